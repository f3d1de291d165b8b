# SPDX-License-Identifier: Apache-2.0
"""Each published method is a row that loads, starts its strategy and says where it departs from its paper."""

from __future__ import annotations

from pathlib import Path

import pytest

from kernelwright import recipes
from kernelwright.errors import BadCommand

PROMISED = {
    "forge", "mcts", "stitch", "elites", "fsr", "contrast", "blaster", "evolve", "scenario", "autokernel", "mutual",
    "parevo", "best",
}  # fmt: skip


def test_every_promised_method_is_a_row_that_starts() -> None:
    """Thirteen rows; each strategy asks; each row names its paper and its departures."""
    rows = recipes.load()
    assert set(rows) == PROMISED
    for row in rows.values():
        first = row.start(3, 0).ask()
        assert first is not None
        assert ("fresh", True) == (first.edit, len(row.departs) > 40)


@pytest.mark.parametrize(
    ("text", "match"),
    [
        ('[x]\npaper = "p"\ndeparts = "d"\nstrategy = "magic"\nroles = ["coder"]', "magic"),
        ('[x]\npaper = "p"\ndeparts = "d"\nstrategy = "chain"\nroles = ["poet"]', "poet"),
        ('[x]\npaper = "p"\ndeparts = "d"\nstrategy = "chain"\nroles = []\noptions = {width = 3}', "width"),
        ('[x]\npaper = "p"\nstrategy = "chain"\nroles = []\ncolour = 3', "colour.*departs"),
    ],
)
def test_a_wrong_row_is_named(tmp_path: Path, text: str, match: str) -> None:
    """Unknown strategy, role, option or key: the error names the word."""
    path = tmp_path / "recipes.toml"
    path.write_text(text)
    with pytest.raises(BadCommand, match=f"(?s)Recipe x.*{match}"):
        recipes.load(path)


def test_an_unknown_recipe_lists_the_known_ones() -> None:
    """The error is the list to choose from."""
    with pytest.raises(BadCommand, match="forge, mcts"):
        recipes.find("forged")
