# SPDX-License-Identifier: Apache-2.0
"""judge/stages.py: which times are believed."""

from __future__ import annotations

import contextlib
import dataclasses
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
import torch

from kernelwright.errors import TaskError
from kernelwright.judge import checks, measure, race, spot_checks, stages
from kernelwright.judge.entrant import Entrant
from kernelwright.judge.leash import ChildFailure
from kernelwright.judge.load import Strain
from kernelwright.judge.stages import Judgement
from kernelwright.judge.timing_plan import TimingPlan
from kernelwright.trial import CaseResult, Rejected


def judgement(device: str, *bounds: float | None) -> Judgement:
    """One whose bound is the first of ``bounds``, and the second after another look."""
    made = object.__new__(Judgement)
    seen = list(bounds)
    made.bound_us = seen.pop(0)
    made.bound_again = lambda: seen.pop(0)
    made.alone = contextlib.nullcontext
    made.bench = SimpleNamespace(device=torch.device(device))  # type: ignore[assignment]  # all that is asked
    made.conditions = []
    return made


@pytest.mark.parametrize(("device", "idle", "refused"), [("cpu", 1.0, True), ("cpu", 0.3, False), ("cuda", 0.3, True)])
def test_a_time_below_the_bound_is_refused_unless_others_slow_the_memory_down(
    monkeypatch: pytest.MonkeyPatch, device: str, idle: float, refused: bool
) -> None:
    """On a GPU the host's load says nothing; where the time is let pass, no bound is claimed and the record says so."""
    monkeypatch.setattr(stages.load, "idle_share", lambda seconds: idle)
    made = judgement(device, 5000.0, 4800.0)
    found = made._impossible(3200.0)
    if refused:
        assert found is not None and ("integrity", 4800.0) == (found.stage, made.bound_us)
        assert "3.2e+03 us is below the 4.8e+03 us" in found.reason and not made.conditions
    else:
        assert found is None and made.bound_us is None
        assert "no bound to hold it to" in made.conditions[0]


def test_a_second_look_that_explains_the_time_ends_the_matter(monkeypatch: pytest.MonkeyPatch) -> None:
    """The new bound counts from then on; a time at or above the first needs no second look."""
    monkeypatch.setattr(stages.load, "idle_share", lambda seconds: 1.0)
    for again in (3300.0, None):
        made = judgement("cpu", 5000.0, again)
        assert made._impossible(3200.0) is None and made.bound_us == again and not made.conditions
    made = judgement("cpu", 3000.0)
    assert made._impossible(3200.0) is None and 3000.0 == made.bound_us


@pytest.mark.parametrize(
    ("device", "sets", "most_sets", "reason", "again"),
    [
        ("cuda", 5, None, "OutOfMemoryError: CUDA out of memory. Tried to allocate 9 GiB", True),
        ("cuda", 2, 2, "OutOfMemoryError: CUDA out of memory. Tried to allocate 9 GiB", False),
        ("cuda", 1, 1, "OutOfMemoryError: CUDA out of memory. Tried to allocate 9 GiB", False),
        ("cuda", 5, None, "ValueError: no", False),
        ("cpu", 5, None, "RuntimeError: can't allocate memory", False),
    ],
)
def test_a_program_without_room_on_a_device_is_asked_again_beside_fewer_call_sets(
    monkeypatch: pytest.MonkeyPatch, device: str, sets: int, most_sets: int | None, reason: str, again: bool
) -> None:
    """Once: it may be the call sets of all that filled it; after that what is left on the device is measured."""
    made = judgement(device, None)
    made.bench.most_sets, made.disk = most_sets, Path()
    made.bench.plan = lambda spend, processes: SimpleNamespace(sets=sets)
    monkeypatch.setattr(stages.health, "probe", lambda device: None)

    def fails(self: Judgement) -> None:
        raise ChildFailure("smoke", reason)

    monkeypatch.setattr(Judgement, "_run", fails)
    if again:
        with pytest.raises(torch.OutOfMemoryError, match="Tried to allocate 9 GiB"):
            made.run()
    else:
        outcome = made.run()
        assert isinstance(outcome, Rejected) and ("smoke", reason) == (outcome.stage, outcome.reason)


def test_a_timed_call_that_the_reference_answers_otherwise_itself_is_not_the_candidate_s(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Where calls change buffers the reference is asked, in as many calls as a window has; where none do, nobody is."""
    result = CaseResult(name="main", required=True, passed=False, detail="far", error_ratio=9.0, calls=1)

    def fails(self: Judgement) -> None:
        raise spot_checks.Mismatch(result, [torch.ones(2)], [("n", torch.ones(()))])

    def carried(instance: object, leaves: list[torch.Tensor], state: object, calls: int) -> None:
        assert (5 * race.HELD_WINDOWS, 2) == (calls, leaves[0].numel())
        raise TaskError("it remembers", "a", "b", "c")

    monkeypatch.setattr(Judgement, "_run", fails)
    monkeypatch.setattr(checks.refusals, "carried_in_a_window", carried)
    monkeypatch.setattr(checks, "said", lambda instance, refused: refused)
    for stateful in (True, False):
        made = judgement("cpu", None)
        made.stateful, made.shared = stateful, contextlib.nullcontext
        made.bench.plan = lambda spend, processes: SimpleNamespace(sets=5)
        made.bench.contract = SimpleNamespace(random=False)  # type: ignore[misc]
        made.points = cast(Any, (SimpleNamespace(instance=None),))
        if stateful:
            with pytest.raises(TaskError, match="it remembers"):
                made.run()
        else:
            outcome = made.run()
            assert isinstance(outcome, Rejected) and "a timed call was wrong: main: far" == outcome.reason


PLAN = TimingPlan(sets=1, least=8, most=8, seconds=1.0, full_checks=1, draw_seconds=1.0, flush_bytes=0)


def racers(passed: bool = True, **times: float) -> list[SimpleNamespace]:
    """Programs of so many microseconds a call, a hundredth up and down; ``passed``: whether compile's checks did."""
    made = []
    for name, us in times.items():
        lane = measure.Lane(name, None)  # type: ignore[arg-type]
        lane.calls_us = [us * (1 + 0.01 * (-1) ** n) for n in range(8)]
        lane.deliveries_us, lane.empties_us, lane.idles_us = [1.0] * 8, [0.0] * 8, [1.0] * 8
        lane.strains = [Strain(0.0, 0)] * 8
        checks = [SimpleNamespace(passed=passed or name != "compile")]
        made.append(SimpleNamespace(name=name, lane=lane, suspect=SimpleNamespace(checks=checks)))
    return made


def test_baselines_that_are_clearly_slower_than_another_run_in_the_first_race_only() -> None:
    """Eager always runs, who is near the best does, and how fast the candidate is plays no part."""
    for candidate in (100.0, 4000.0):
        run = racers(eager=3000.0, compile=1000.0, tuned=1020.0, graphs=1200.0, candidate=candidate)
        assert race.outrun(run, PLAN) == {"graphs"}  # type: ignore[arg-type]
    assert race.outrun(racers(eager=800.0, compile=1000.0, candidate=1.0), PLAN) == {"compile"}  # type: ignore[arg-type]


def test_a_baseline_that_breaks_the_contract_outruns_nobody() -> None:
    """It cannot be the best, so it is no measure."""
    run = racers(passed=False, eager=3000.0, compile=100.0, tuned=1020.0, candidate=5.0)
    assert race.outrun(run, PLAN) == frozenset()  # type: ignore[arg-type]
    run = racers(passed=False, eager=3000.0, compile=2000.0, tuned=1020.0, candidate=5.0)
    assert race.outrun(run, PLAN) == {"compile"}  # type: ignore[arg-type]


def test_a_proof_begins_with_new_processes_of_baselines_and_a_search_keeps_them() -> None:
    """What comes from the race before, of the same proof alone, is warm; one that was not raced is not renewed."""
    begun: list[str] = []
    eager, compiled = (Entrant(name=name, program=None, failure="", warming=None) for name in ("eager", "compile"))

    def start() -> None:
        begun.append("eager")
        eager.program = SimpleNamespace(close=lambda: None)  # type: ignore[assignment]

    start()
    eager.start = start
    made = judgement("cpu", None)
    made.baselines, made.shared, made.level = [eager, compiled], contextlib.nullcontext, "precise"
    made.bench.eager_us = 100.0
    made._renew(0)
    assert begun == ["eager"] and made.warm == frozenset()
    eager.races = compiled.races = 1
    made._renew(1)
    assert begun == ["eager"] * 2 and made.warm == {"compile"}
    eager.races, made.level = 1, "coarse"
    made._renew(0)
    assert begun == ["eager"] * 2 and made.warm == frozenset()
    made.bench.eager_us = 1.1 * race.WARM_US
    made._renew(0)
    assert made.warm == {"eager", "compile"}, "the calls they began with are a warm-up of more than that"


@pytest.mark.parametrize(("dear", "level", "asked"), [(False, "coarse", [2, 2]), (False, "precise", [2, 2]),
                                                      (True, "coarse", [0, 0]), (True, "precise", [1, 0])])  # fmt: skip
def test_the_oracle_is_asked_about_one_timed_call_of_a_dear_proof(dear: bool, level: str, asked: list[int]) -> None:
    """In its first process: there the baselines' calls are, too."""
    made = object.__new__(Judgement)
    made.bench, made.level = cast(Any, SimpleNamespace(timed=SimpleNamespace(dear=dear))), level
    plan = dataclasses.replace(PLAN, full_checks=2)
    assert asked == [made._full_checks(plan, number) for number in range(2)]
