# SPDX-License-Identifier: Apache-2.0
"""optimize/tally.py: costs are sums per place, unknown prices stay unknown, predictions are scored where judged."""

from __future__ import annotations

from kernelwright.llm import Meter
from kernelwright.optimize.tally import Tally


def meter(tokens: int, usd: float | None) -> Meter:
    """A meter that shows this."""
    made = Meter()
    made.add(1, tokens, usd)
    return made


def test_costs_add_up_where_candidates_ended() -> None:
    """Two at verify, one timed."""
    tally = Tally(asked=3)
    tally.charge("verify", meter(10, 0.5), 1.0)
    tally.charge("verify", meter(5, 0.25), 2.0)
    tally.charge("timed", meter(1, 0.125), 3.0)
    died = tally.to_json()["died"]
    assert {"reached": 3, "count": 2, "tokens": 15, "usd": 0.75, "judge_seconds": 3.0} == died["verify"]
    assert 1 == died["timed"]["reached"]
    assert 0.125 == died["timed"]["usd"]


def test_one_unknown_price_makes_the_sum_unknown_for_good() -> None:
    """Neither the known part nor zero is shown."""
    tally = Tally()
    for usd in (1.0, None, 1.0):
        tally.charge("timed", meter(1, usd), 0.0)
    assert tally.to_json()["died"]["timed"]["usd"] is None


def test_precision_and_recall_of_predictions() -> None:
    """Three alarms of which two right; four rejected of which two were seen coming."""
    tally = Tally()
    for fails, rejected in ((True, True), (True, True), (True, False), (False, True), (False, True), (False, False)):
        tally.guessed(fails, rejected)
    found = tally.to_json()["verifier"]
    assert {"checked": 6, "precision": 2 / 3, "recall": 0.5} == found


def test_without_predictions_nothing_is_claimed() -> None:
    """No alarm, no precision; nothing rejected, no recall."""
    assert {"checked": 0, "precision": None, "recall": None} == Tally().to_json()["verifier"]


def test_the_funnel_is_in_the_order_of_the_tiers() -> None:
    """Whatever ended first, parsing comes before building and building before timing."""
    tally = Tally()
    for place in ("timed", "build", "same object", "parse", "timed"):
        tally.charge(place, meter(1, 0.0), 0.0)
    died = tally.to_json()["died"]
    assert ["parse", "build", "same object", "timed"] == list(died)
    assert [5, 4, 3, 2] == [row["reached"] for row in died.values()]
