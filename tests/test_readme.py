# SPDX-License-Identifier: Apache-2.0
"""The documents, held to the code: commands exist, Python runs, tables are generated, links lead somewhere."""

from __future__ import annotations

import functools
import importlib.util
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

import kernelwright
from kernelwright import cli

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text()
DOCUMENTS = [path for path in (ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "CHANGELOG.md") if path.exists()]


def blocks(language: str) -> list[str]:
    """Fenced blocks of one language."""
    return re.findall(rf"^```{language}\n(.*?)^```", README, flags=re.M | re.S)


def commands(text: str) -> list[list[str]]:
    """Every ``kernelwright ...`` command of a document, split into words."""
    found = re.findall(r"^kernelwright .*$", "\n".join(blocks("sh")), flags=re.M)
    found += [code for code in re.findall(r"`([^`\n]+)`", text) if code.startswith("kernelwright ")]
    return [shlex.split(command, comments=True) for command in found]


@functools.cache
def options(verb: str) -> set[str]:
    """Long options that a verb's help names."""
    command = [sys.executable, "-m", "kernelwright.cli", verb, "--help"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src"), "COLUMNS": "200"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert 0 == done.returncode, done.stderr
    return set(re.findall(r"--[a-z][a-z-]*", done.stdout))


def verbs() -> set[str]:
    """Commands of the command line."""
    return {str(c.name or getattr(c.callback, "__name__", "")) for c in cli.app.registered_commands}


def table_script() -> object:
    """benchmarks/readme_table.py as a module."""
    spec = importlib.util.spec_from_file_location("readme_table", ROOT / "benchmarks" / "readme_table.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda p: p.name)
def test_every_command_in_the_documents_exists_with_its_options(document: Path) -> None:
    """A renamed verb or option breaks this test before it breaks a reader."""
    for words in commands(document.read_text()):
        assert words[1] in verbs(), words
        assert {word for word in words[2:] if word.startswith("--")} <= options(words[1]), words


def test_every_verb_is_in_the_readme() -> None:
    """A feature nobody can find does not exist."""
    assert verbs() == {words[1] for words in commands(README)}


def test_every_python_name_in_the_readme_is_public() -> None:
    """``kernelwright.x`` in the text is a name of the facade."""
    names = set(re.findall(r"\bkernelwright\.([a-z_]+)\(", README))

    assert {"optimize", "judge", "report"} <= names
    assert names <= set(kernelwright.__all__)


def test_every_make_target_in_the_documents_exists() -> None:
    """The two commands of the first screen are in the Makefile."""
    targets = set(re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(), flags=re.M))
    for document in DOCUMENTS:
        assert set(re.findall(r"(?:^|`)make ([a-z]+)", document.read_text(), flags=re.M)) <= targets


@pytest.mark.slow
@pytest.mark.parametrize("block", blocks("python"))
def test_every_python_block_runs(block: str, tmp_path: Path) -> None:
    """As written, in a process and a folder of its own."""
    script = tmp_path / "block.py"
    script.write_text(block)
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
    done = subprocess.run(
        [sys.executable, str(script)], cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
    )

    assert 0 == done.returncode, done.stderr[-3000:]
    assert "baseline" in done.stdout or "faster" in done.stdout


def test_the_table_of_results_is_the_recorded_one() -> None:
    """No figure is typed by hand: `make results` changes nothing."""
    script = table_script()

    assert README == script.replaced(README, script.render(script.records()))


def test_the_table_says_where_nothing_won() -> None:
    """Each shows its interval; what was not proved, and a run without a proof, say so in words."""
    timing = {"samples_us": [2000.0, 1500.0, 1800.0]}
    outcome = {
        "speedup": 3.0, "speedup_low": 2.5, "speedup_high": 3.25, "best_baseline": "compile", "bound_fraction": 0.8,
        "timing": timing, "baselines": [{"name": "eager", "speedup": 6.5}], "proof": {"bits_lost": 0.1},
    }  # fmt: skip
    row = {"task": "t", "axes": {"rows": 4, "cols": 8}, "status": "faster", "outcome": outcome}
    cells = table_script().cells
    won = ["t", "4 x 8", "3.00x (2.50 to 3.25)", "compile", "1.8 ms", "6.50", "80 %", "0.10"]

    assert won == cells(row)
    unproved = [*won[:2], "not proved: 3.00x (2.50 to 3.25)", *won[3:]]
    assert unproved == cells(row | {"status": "not-faster"})
    assert ["t", "4 x 8", "nothing faster", "", "", "", "", ""] == cells(row | {"outcome": None})


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda p: p.name)
def test_links_and_paths_in_the_documents_lead_somewhere(document: Path) -> None:
    """Relative links and shipped files that are named exist."""
    text = document.read_text()
    named = set(re.findall(r"\]\(([^)#:]+)\)", text))
    named |= set(re.findall(r"\b(?:examples|benchmarks|src)/[\w/]+\.py\b", text))

    assert [] == [name for name in sorted(named) if not (ROOT / name).exists()]
