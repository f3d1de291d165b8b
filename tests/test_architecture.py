# SPDX-License-Identifier: Apache-2.0
"""The architecture, as tests: who may import whom, and which file owns which power."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
import types
from collections import Counter
from pathlib import Path

import pytest

SRC = Path(__file__).parents[1] / "src" / "kernelwright"
FILES = sorted(SRC.rglob("*.py"))
NOUNS = {"task", "candidate", "trial", "machine", "errors", "wire"}
ALLOWED: dict[str, set[str]] = {
    "errors": set(),
    "wire": set(),
    "task": {"errors", "wire"},
    "candidate": {"errors", "wire"},
    "trial": {"errors", "wire", "candidate"},
    "machine": {"errors", "wire"},
    "settings": {"errors"},
    "kinds": {"errors"},
    "neighbours": set(),
    "sandbox": {"errors"},
    "tuning": {"errors"},
    "energy": set(),
    "limits": NOUNS,
    "llm": {"errors", "wire"},
    "model_server": set(),
    "diagnosis": {"errors"},
    "load": NOUNS | {"kinds", "neighbours"},
    "capture": NOUNS | {"load", "neighbours"},
    "kernels": set(),
    "judge": NOUNS | {"neighbours", "sandbox", "limits", "energy"},
    "workers": NOUNS | {"sandbox"},
    "proposers": NOUNS | {"neighbours", "tuning", "limits", "llm"},
    "search": NOUNS | {"tuning"},
    "recipes": {"errors", "search"},
    "ledger": NOUNS,
    "training": NOUNS | {"kinds", "ledger", "llm", "proposers", "search", "workers"},
    "knowledge": NOUNS | {"ledger"},
    "report": NOUNS | {"ledger"},
    "export": NOUNS | {"ledger", "neighbours"},
    "testing": NOUNS | {"workers", "proposers", "search", "llm", "tuning", "ledger"},
    "optimize": NOUNS
    | {"settings", "kinds", "neighbours", "sandbox", "workers", "proposers", "search", "ledger", "knowledge", "tuning"}
    | {"load", "capture", "export", "report", "llm", "recipes", "diagnosis", "training", "energy"},
    "__init__": NOUNS | {"optimize", "report", "load", "capture", "settings", "workers", "export"},
    "cli": {"__init__", "settings", "errors"}
    | {"cli_judge", "cli_models", "cli_compare", "cli_demo", "cli_display", "cli_environment"},
    "cli_judge": {"__init__", "settings", "errors"},
    "cli_models": {"__init__", "settings", "errors"},
    "cli_compare": {"__init__", "settings", "errors", "cli_judge", "cli_models"},
    "cli_demo": {"__init__", "settings", "errors", "cli_display", "cli_judge", "cli_models"},
    "cli_display": {"__init__"},
    "cli_environment": {"__init__", "settings", "errors", "cli_models"},
    "mcp_server": {"__init__", "settings", "errors"},
    "__main__": {"cli"},
}
"""Room to the rooms it may import; no room lists "judge": it is run, never imported."""
STDLIB_ONLY = NOUNS | {"neighbours", "settings", "kinds", "sandbox", "search", "ledger", "tuning", "load", "energy"}
FORKERS = {"judge/zygote.py", "judge/child.py", "judge/programs.py", "judge/entrants.py"}
FORKERS |= {"judge/also/scene.py", "judge/warm.py"}
"""The zygote forks; the others call its ``fork`` method."""
CLOCKS = {"perf_counter", "perf_counter_ns", "do_bench"}


def room(path: Path) -> str:
    """The first part of a file's path below the package, without its ending."""
    return path.relative_to(SRC).parts[0].removesuffix(".py")


def imported(path: Path) -> set[str]:
    """Every dotted name a file imports, in functions too: lazy imports count."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: use absolute imports"
            found |= {f"{node.module}.{alias.name}" for alias in node.names}
    return found


def calls(path: Path) -> set[str]:
    """The last part of every called name in a file."""
    tree = ast.parse(path.read_text())
    return {ast.unparse(n.func).split(".")[-1] for n in ast.walk(tree) if isinstance(n, ast.Call)}


def by_file(paths: list[Path]) -> dict[str, object]:
    """Arguments for a test over files, named by their path."""
    return {"argvalues": paths, "ids": [str(p.relative_to(SRC)) for p in paths]}


@pytest.mark.parametrize("path", **by_file(FILES))
def test_each_room_imports_only_the_rooms_below_it(path: Path) -> None:
    """The import table of ARCHITECTURE.md holds, lazy imports included."""
    here = room(path)
    assert here in ALLOWED, f"{here}: a new room needs a row in ALLOWED and in ARCHITECTURE.md"
    for name in imported(path):
        top, _, rest = name.partition(".")
        if top == "kernelwright":
            there = rest.split(".")[0] if rest else "__init__"
            if not ((SRC / there).is_dir() or (SRC / f"{there}.py").exists()):
                there = "__init__"  # a name re-exported by the facade
            assert there == here or there in ALLOWED[here], f"{here} must not import {there}"
        elif here in STDLIB_ONLY:
            assert top in sys.stdlib_module_names, f"{here} is stdlib-only, imports {top}"


@pytest.mark.parametrize("path", **by_file(FILES))
def test_files_and_functions_stay_small(path: Path) -> None:
    """No file over 400 lines, no function over 60: split at once, not later."""
    text = path.read_text()
    assert len(text.splitlines()) <= 400
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.end_lineno is not None:
            assert node.end_lineno - node.lineno < 60, f"{node.name} is too long"


@pytest.mark.parametrize("path", **by_file(FILES))
def test_source_is_plain_text_with_a_licence_line_and_a_docstring(path: Path) -> None:
    """SPDX first, a module docstring, ASCII only."""
    text = path.read_text()
    assert text.isascii()
    assert text.startswith("# SPDX-License-Identifier: Apache-2.0\n")
    assert ast.get_docstring(ast.parse(text))


@pytest.mark.parametrize("path", **by_file(FILES))
def test_no_room_is_called_misc(path: Path) -> None:
    """A name that could hold anything soon does."""
    assert path.stem not in {"utils", "util", "core", "common", "helpers", "misc"}
    assert not {"utils", "util", "core", "common", "helpers", "misc"} & set(path.relative_to(SRC).parts)


def test_only_verify_can_say_verified() -> None:
    """A proof of correctness is constructed in exactly one file."""
    makers = {str(p.relative_to(SRC)) for p in FILES if "Verified" in calls(p)}
    assert {"judge/verify.py"} == makers


def test_results_have_no_defaults() -> None:
    """A forgotten field must be a TypeError, never a flattering zero."""
    for node in ast.walk(ast.parse((SRC / "trial.py").read_text())):
        if isinstance(node, ast.ClassDef):
            lies = [ast.unparse(f) for f in node.body if isinstance(f, ast.AnnAssign) and f.value]
            assert [] == lies, f"{node.name} has defaults"


def test_one_clock() -> None:
    """Times that can become a result are taken in judge/measure.py only."""
    owners = {str(p.relative_to(SRC)) for p in FILES if calls(p) & CLOCKS}
    assert owners <= {"judge/measure.py"}


def test_processes_start_in_one_room() -> None:
    """subprocess and multiprocessing belong to the sandbox; os.fork also to the zygote."""
    for path in FILES:
        here = str(path.relative_to(SRC))
        tops = {name.split(".")[0] for name in imported(path)}
        assert not tops & {"subprocess", "multiprocessing"} or room(path) == "sandbox", here
        assert "fork" not in calls(path) or room(path) == "sandbox" or here in FORKERS, here


def test_the_environment_is_read_in_one_room() -> None:
    """os.environ appears in settings.py and in the sandbox, which builds clean ones."""
    for path in FILES:
        if room(path) not in {"settings", "sandbox"}:
            assert not re.search(r"os\.(environ|getenv)\b", path.read_text()), path


def test_prompts_live_in_prompt_files() -> None:
    """No literal of more than five lines of prose in source: words said to a model are files with a digest."""
    for path in FILES:
        if room(path) == "proposers" and "agent" in str(path):
            for node in ast.walk(ast.parse(path.read_text())):
                if isinstance(node, ast.Constant) and isinstance(node.value, str) and node.value.count("\n") > 5:
                    assert node.value.strip() in (ast.get_docstring(ast.parse(path.read_text())) or ""), path


def test_importing_the_package_loads_nothing_heavy() -> None:
    """`import kernelwright` works in an empty environment and loads no torch, numpy, triton, ray or jinja2."""
    code = "import sys, kernelwright; print(sorted({m.split('.')[0] for m in sys.modules}))"
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, capture_output=True, text=True, env={"PYTHONPATH": str(SRC.parent)}, check=True)
    loaded = set(ast.literal_eval(done.stdout))
    assert set() == loaded & {"torch", "numpy", "triton", "ray", "jinja2", "rich", "egglog", "typer"}


def test_public_names_are_exactly_all() -> None:
    """The facade is a list, and the list is what is public."""
    code = (
        "import types, kernelwright as k;"
        "print(sorted(n for n, v in vars(k).items() if n[0] != '_' and not isinstance(v, types.ModuleType)"
        " and n != 'annotations'), sorted(k.__all__), sep='|')"
    )
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, capture_output=True, text=True, env={"PYTHONPATH": str(SRC.parent)}, check=True)
    public, listed = (set(ast.literal_eval(part)) for part in done.stdout.split("|"))
    assert listed >= public
    assert isinstance(types, types.ModuleType)


def test_the_project_speaks_only_of_itself() -> None:
    """No file names a private path or the tools its authors work with."""
    words = re.compile("|".join(["/wo" + "rk/", "/ro" + "ot/", "sub" + "agent", "Cla" + "ude", "\\.lib" + "rary"]))
    root = SRC.parents[1]
    listed = subprocess.run(["git", "ls-files"], cwd=root, capture_output=True, text=True, check=False).stdout
    for name in listed.splitlines():
        path = root / name
        if path.suffix in {".py", ".md", ".toml", ".j2", ".json", ".yml", ""} and path.is_file():
            assert not words.search(path.read_text(errors="replace")), name


def test_test_files_have_names_of_their_own() -> None:
    """Two files of one name in folders that are no packages cannot be collected together."""
    names = [path.name for path in Path(__file__).parent.rglob("test_*.py")]
    assert [] == sorted(name for name, count in Counter(names).items() if count > 1)
