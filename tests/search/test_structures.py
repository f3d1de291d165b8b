# SPDX-License-Identifier: Apache-2.0
"""search/structures.py: every structure once, then tuning where it pays, in an order that can be repeated."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from kernelwright.search import Arm, Choice, StructureSearch
from kernelwright.tuning import Parameter, Space

EMPTY = Space(parameters=(), constraints=())


def line(*values: int) -> Space:
    """A space of one parameter."""
    return Space(parameters=(Parameter(name="x", values=values),), constraints=())


def run(search: StructureSearch, cost: Callable[[Choice], float | None], most: int = 500) -> list[Choice]:
    """Ask and tell until the search is done."""
    asked = []
    while len(asked) < most and (choice := search.ask()) is not None:
        asked.append(choice)
        search.tell(choice, cost(choice))
    return asked


def test_every_structure_is_tried_once_in_order_of_expected_time() -> None:
    """Before any is tuned."""
    arms = [Arm(key=f"a{i}", order=float(-i), space=line(1, 2, 3)) for i in range(4)]
    search = StructureSearch(arms)
    asked = run(search, lambda choice: 10.0)
    assert ["a3", "a2", "a1", "a0"] == [choice.arm for choice in asked[:4]]
    assert [(("x", 1),)] * 4 == [choice.values for choice in asked[:4]]


def test_the_first_pass_is_over_when_every_structure_was_asked_for() -> None:
    """The loop uses this to prove an early result."""
    search = StructureSearch([Arm(key=key, order=0.0, space=line(1, 2)) for key in "ab"])
    assert not search.first_pass_over
    for _ in "ab":
        choice = search.ask()
        assert choice is not None
        search.tell(choice, 1.0)
    assert search.first_pass_over


def test_tuning_goes_to_the_best_and_not_to_the_hopeless() -> None:
    """The best arm gets most asks, one ten times slower gets none beyond its first."""
    wide = line(*range(1, 60))
    arms = [Arm(key=key, order=0.0, space=wide) for key in ("best", "close", "hopeless")]
    base = {"best": 10.0, "close": 15.0, "hopeless": 100.0}
    asked = run(StructureSearch(arms), lambda c: base[c.arm] - 0.01 * int(dict(c.values)["x"]), 40)
    count = {key: sum(choice.arm == key for choice in asked) for key in base}
    assert 1 == count["hopeless"]
    assert count["best"] > 1.3 * count["close"] > 5


def test_a_structure_that_starts_second_wins_when_tuning_shows_it() -> None:
    """A default 2x from the optimum must not be the end of a structure."""
    arms = [Arm(key="steady", order=0.0, space=EMPTY), Arm(key="late", order=1.0, space=line(1, 2, 4, 8, 16))]
    search = StructureSearch(arms)
    run(search, lambda c: 10.0 if c.arm == "steady" else 18.0 - int(dict(c.values)["x"]))
    assert [("late", 2.0), ("steady", 10.0)] == search.ranking()


def test_a_rejected_default_gets_two_more_chances() -> None:
    """Other values may build where the default did not; after three rejections it is left alone."""
    arms = [Arm(key="bad", order=0.0, space=line(*range(50)))]
    assert 3 == len(run(StructureSearch(arms), lambda c: None))
    saved = run(StructureSearch(arms), lambda c: None if dict(c.values)["x"] == 0 else 5.0)
    assert len(saved) > 3


def test_no_choice_is_repeated_and_the_search_ends() -> None:
    """Exhausting small spaces ends it."""
    arms = [Arm(key=key, order=0.0, space=line(1, 2, 3)) for key in "abc"] + [Arm(key="one", order=2.0, space=EMPTY)]
    asked = run(StructureSearch(arms), lambda c: 5.0)
    assert 10 == len(asked) == len(set(asked))


def test_replaying_the_answers_restores_the_search() -> None:
    """What resume relies on."""
    arms = [Arm(key=key, order=0.0, space=line(*range(20))) for key in "ab"]
    first, second = StructureSearch(arms, 7), StructureSearch(arms, 7)
    for choice in run(first, lambda c: 1.0 + int(dict(c.values)["x"]), 12):
        assert choice == second.ask()
        second.tell(choice, 1.0 + int(dict(choice.values)["x"]))
    assert first.ask() == second.ask()


def test_an_impossible_space_is_skipped_and_twin_keys_are_refused() -> None:
    """A space without a feasible point has no candidate."""
    impossible = Space(parameters=(Parameter(name="x", values=(1,)),), constraints=("x > 1",))
    asked = run(
        StructureSearch([Arm(key="no", order=0.0, space=impossible), Arm(key="yes", order=1.0, space=EMPTY)]),
        lambda c: 1.0,
    )
    assert ["yes"] == [choice.arm for choice in asked]
    with pytest.raises(ValueError, match="same key"):
        StructureSearch([Arm(key="a", order=0.0, space=EMPTY)] * 2)
