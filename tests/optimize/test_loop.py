# SPDX-License-Identifier: Apache-2.0
"""What is still proved when the budget is over."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from types import MappingProxyType, SimpleNamespace
from typing import Any

import pytest

from kernelwright.optimize.finding import message, trials
from kernelwright.optimize.loop import Loop
from kernelwright.optimize.schedule import Schedule
from kernelwright.testing import timed


def finished(
    waiting: list[tuple[str, float]],
    left: float,
    said: bool = False,
    unjudged: Mapping[str, str] = MappingProxyType({}),
) -> tuple[list[str], list[str]]:
    """(structures proved, notes) of a loop with these coarse finalists (structure, speedup) and seconds left; ``said``:
    and what the run then says that it found. ``unjudged``: what the judge died of."""
    loop: Any = Loop.__new__(Loop)
    proved: list[str] = []
    notes: list[str] = []
    items = [(name, name, SimpleNamespace(baselines=(), speedup=speedup)) for name, speedup in waiting]
    loop.tried, loop._missing, loop._precise = len(items), {}, {}
    clock: Any = SimpleNamespace(budget=0.0, left=lambda: left, room=lambda least: left, whole=lambda least: 0.0)
    loop.schedule = Schedule(clock, SimpleNamespace(expected_seconds=lambda level: 10.0))  # type: ignore[arg-type]
    loop._finalists = lambda: [item for item in items if item[1] not in proved]
    loop._prove = lambda candidate, structure: proved.append(structure)
    loop.unproved = ""
    loop._say = lambda kind, text, **data: notes.append(text)
    loop.finish()
    loop.winner = loop.nearest = None
    loop.rejected, loop.exhausted, loop.unjudged = 0, True, dict(unjudged)
    return proved, [*notes, *([message(loop, interrupted=False)] if said else [])]


@pytest.mark.parametrize(
    "waiting, proved",
    [
        ([("templates/rowwise.cpp", 1.2)], ["templates/rowwise.cpp"]),
        ([("templates/rowwise.cpp", 1.01)], []),
        ([("compiler/compile.max-autotune", 1.4)], []),
        ([("compiler/compile.max-autotune", 1.4), ("templates/rowwise.cpp", 1.2)], ["templates/rowwise.cpp"]),
        ([("compiler/channels_last", 1.2)], ["compiler/channels_last"]),
    ],
)
def test_a_late_proof_is_begun_only_where_it_promises_something(
    waiting: list[tuple[str, float]], proved: list[str]
) -> None:
    """The budget is over: what promises too little, or compiles itself for every case, is noted instead."""
    first, notes = finished(waiting, left=0.0)
    assert first[: len(proved)] == proved and bool(first) == bool(proved)
    assert len(notes) == (len(proved) < len(waiting))


def test_compilers_are_proved_where_there_is_time() -> None:
    """In the order of the finalists."""
    waiting = [("compiler/compile.max-autotune", 1.4), ("templates/rowwise.cpp", 1.2)]
    assert finished(waiting, left=99.0)[0] == [name for name, _ in waiting]


def test_what_there_was_no_time_to_prove_is_not_called_slower() -> None:
    """Nor is a run in which nothing was tried one in which nothing beats the baseline."""
    compiled = [("compiler/compile.max-autotune", 1.4)]
    assert "no time for a proof of compiler/compile.max-autotune, 1.40x" in finished(compiled, 0.0, said=True)[1][-1]
    assert "Nothing honest beats" not in finished(compiled, 0.0, said=True)[1][-1]
    assert "Nothing was tried" in finished([], 0.0, said=True)[1][-1]
    assert "Nothing honest beats" in finished(compiled, 99.0, said=True)[1][-1]


def test_a_judge_that_failed_is_no_want_of_time_or_candidates() -> None:
    """It once failed on every program for a loss on a GPU, and the run spoke of candidates."""
    died = {"templates/rowwise.triton": "IndexError: Dimension out of range"}
    text = finished([], 0.0, said=True, unjudged=died)[1][-1]
    assert "Nothing was tried" not in text
    assert "The judge itself failed on 1 of the structures, as on templates/rowwise.triton (IndexError" in text
    text = finished([("templates/rowwise.triton", 1.4)], 99.0, said=True, unjudged=died)[1][-1]
    assert "Nothing is proved" in text and "Nothing honest beats" not in text, "its proof is what failed"


@pytest.mark.parametrize(("rejected", "told"), [(3, False), (2, True)])
def test_a_run_whose_candidates_were_all_rejected_says_that_nothing_was_timed(rejected: int, told: bool) -> None:
    """It once said that nothing beats the baseline where a broken compiler let nothing be built."""
    loop: Any = SimpleNamespace(
        winner=None, nearest=None, unproved=None, unjudged={}, tried=3, rejected=rejected, exhausted=True
    )
    text = message(loop, interrupted=False)
    assert ("Nothing honest beats the baseline" in text) is told
    assert ("Nothing was timed: every candidate was rejected (3 trials" in text) is not told


@pytest.mark.parametrize(("policy", "busy"), [("sleep", True), ("spin", False)])
def test_a_speedup_is_said_with_what_a_loop_of_ones_own_would_show(policy: str, busy: bool) -> None:
    """Of 2.35x, taken with cold caches beside another judge, 1.0 to 1.3x were left in its user's own loop, unsaid."""
    loop = tuple((f"warm.candidate.speedup{end}", value) for end, value in (("", "1.2"), ("_low", "1"), ("_high", "2")))
    conditions = (f"2 threads that {policy} when idle",)
    outcome = dataclasses.replace(timed(50.0), profile=loop, conditions=conditions)
    winner = SimpleNamespace(outcome=outcome)
    text = message(SimpleNamespace(winner=winner, exhausted=True), interrupted=False)  # type: ignore[arg-type]
    assert "called in a loop on one input it is 1.2x (1 to 2)." in text
    assert ("Other programs used this machine" in text) is busy
    assert "in a loop" not in message(
        SimpleNamespace(winner=SimpleNamespace(outcome=timed(50.0)), exhausted=True),  # type: ignore[arg-type]
        interrupted=False,
    )


@pytest.mark.parametrize(("left", "said"), [(12.0, "not over (12 s left: too few"), (0.2, "not over: --resume")])
def test_a_search_that_ends_early_says_why(left: float, said: str) -> None:
    """A budget of which a third was left looked like one that was ignored."""
    loop: Any = SimpleNamespace(
        winner=None, nearest=None, unproved=None, unjudged={}, tried=3, rejected=1, exhausted=False,
        schedule=SimpleNamespace(left=lambda: left, fits=lambda: False),
    )  # fmt: skip
    assert said in message(loop, interrupted=False)


def test_one_trial_is_not_called_several() -> None:
    """In every sentence that counts them."""
    assert [trials(count) for count in (0, 1, 2)] == ["0 trials", "1 trial", "2 trials"]
