# SPDX-License-Identifier: Apache-2.0
"""What is claimed of strategies is run again, and the result file says what the run says."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path
from types import ModuleType

import pytest

from kernelwright import recipes

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def landscapes() -> ModuleType:
    """The benchmark, which is a script and no package."""
    spec = importlib.util.spec_from_file_location("landscapes", ROOT / "benchmarks" / "landscapes.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_every_strategy_beats_best_of_n_where_its_paper_says_so_and_rollback_beats_the_chain(
    landscapes: ModuleType,
) -> None:
    """24 of the 50 seeds, equal candidates, a sign test each; rollback on all five landscapes."""
    found = landscapes.scores(landscapes.STRATEGIES, seeds=24)
    made = landscapes.claims(found)
    assert [] == [row for row in made if not row["holds"]]
    assert set(landscapes.STRATEGIES) - {"best-of-n"} == {row["strategy"] for row in made}
    assert len(landscapes.LANDSCAPES) == sum(row["beats"] == "chain" for row in made) >= 4


def test_the_result_file_holds_the_claims_of_today(landscapes: ModuleType) -> None:
    """Every claim and every recipe is in the file; nothing in it was left behind by an older script."""
    record = json.loads((ROOT / "benchmarks" / "results" / "any" / "landscapes.json").read_text())
    named = {(row["strategy"], row["beats"], row["on"]) for row in record["claims"]}
    wanted = {(name, "best-of-n", place) for name, (places, _) in landscapes.CLAIMS.items() for place in places}
    assert wanted | {("chain-rollback", "chain", place) for place in landscapes.LANDSCAPES} == named
    assert ([], 50) == (record["claims_that_fail"], record["seeds"])
    assert set(recipes.load()) == {name for name, _, _ in record["recipes_by_share_of_the_best"]}


def test_the_default_recipe_is_within_a_percent_of_the_best_on_average() -> None:
    """``best`` is called so for its strategy; the file must bear that out."""
    record = json.loads((ROOT / "benchmarks" / "results" / "any" / "landscapes.json").read_text())
    share = {name: mean for name, mean, _ in record["recipes_by_share_of_the_best"]}
    assert share["best"] >= 0.99 * max(share.values())
