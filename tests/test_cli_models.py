# SPDX-License-Identifier: Apache-2.0
"""cli_models.py: options to a Guide, the verbs of models, what each mistake says."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from kernelwright import cli, cli_models
from kernelwright.errors import BadCommand

RUN = CliRunner()


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Caches of the test's own."""
    monkeypatch.setenv("KERNELWRIGHT_HOME", str(tmp_path / "home"))


def test_options_become_a_guide(tmp_path: Path) -> None:
    """Every option arrives in its field; what is not given keeps its default."""
    words = tmp_path / "words.txt"
    words.write_text("fuse it\n")
    given = {"llm": ["local:a", "openai:b"], "base_url": "http://x/v1", "recipe": "elites", "max_usd": 1.5,
             "agent_env": "A, B", "words": str(words), "parallel": None}  # fmt: skip
    guide = cli_models.guide(given)
    assert guide is not None
    assert (("local:a", "openai:b"), "elites", 1.5, ("A", "B"), "fuse it", 2) == (
        guide.llm, guide.recipe, guide.max_usd, guide.agent_env, guide.words, guide.parallel
    )  # fmt: skip


def test_no_model_means_no_guide_and_no_options_for_one() -> None:
    """Options for models without a model are a mistake, named."""
    assert cli_models.guide({"llm": None}) is None
    with pytest.raises(BadCommand, match="--max-usd"):
        cli_models.guide({"max_usd": 1.0})


@pytest.mark.parametrize("text", [None, ""])
def test_a_file_of_words_must_have_words(tmp_path: Path, text: str | None) -> None:
    """Absent and empty are two messages of one kind."""
    path = tmp_path / "words.txt"
    if text is not None:
        path.write_text(text)
    with pytest.raises(BadCommand, match="words"):
        cli_models.guide({"llm": ["local:a"], "words": str(path)})


def test_an_unknown_price_is_said_and_never_zero() -> None:
    """The cost line of a run whose model has no known price."""
    line = cli_models.cost_line({"requests": 2, "tokens": 30, "usd": None, "verified": 1, "usd_per_verified": None})
    assert "models: 2 requests, 30 tokens, price unknown; 1 verified" == line


def test_recipes_are_listed_with_where_they_depart() -> None:
    """Thirteen rows, each with its paper and its departure."""
    found = json.loads(RUN.invoke(cli.app, ["recipes", "--json"]).stdout)
    assert (13, True) == (len(found), all(row["paper"] and row["departs"] for row in found))
    assert "departs:" in RUN.invoke(cli.app, ["recipes"]).stdout


def test_knowledge_lists_what_ships_and_exports_it(tmp_path: Path) -> None:
    """list, export and import through the command line."""
    out = tmp_path / "k.jsonl"
    assert len(json.loads(RUN.invoke(cli.app, ["knowledge", "list", "--json"]).stdout)) == 50
    assert "export: " in RUN.invoke(cli.app, ["knowledge", "export", str(out)]).stdout
    assert 0 == RUN.invoke(cli.app, ["knowledge", "import", str(out)]).exit_code
    assert 2 == RUN.invoke(cli.app, ["knowledge", "forget"]).exit_code


@pytest.mark.parametrize(
    ("words", "code"),
    [(["replay", "nowhere"], 44), (["export-data", "nowhere", "--out", "d"], 44),
     (["optimize", "x.py", "--llm", "gpt-4o"], 11), (["optimize", "x.py", "--max-usd", "1"], 2),
     (["optimize", "--resume", "r", "--llm", "local:a"], 2), (["optimize", "x.py", "--agent", "no-such-thing"], 60)],
)  # fmt: skip
def test_mistakes_have_their_exit_codes(words: list[str], code: int, tmp_path: Path) -> None:
    """Each kind of mistake ends with the code of its class, and never with a traceback."""
    result = RUN.invoke(cli.app, words)
    assert code == result.exit_code, result.output
