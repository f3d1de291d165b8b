# SPDX-License-Identifier: Apache-2.0
"""judge/gathered.py: changes of value that come in one window are each drawn, asked, compared and named."""

from __future__ import annotations

import contextlib
from typing import Any

import pytest
import torch
from plain_programs import Obedient, checks_of
from plain_tasks import task

from kernelwright.judge import variants
from kernelwright.judge.bench import Bench, Point
from kernelwright.judge.checks import Checks, Wrong
from kernelwright.judge.inputs import Variant
from kernelwright.judge.leash import ChildFailure
from kernelwright.judge.window import Window


def bench() -> Bench:
    """A task of which every change of value is taken."""
    return Bench(task("x * 2", "[torch.randn(8, 64)]"), "cpu")


def asked(made: Bench, program: Obedient) -> list[str]:
    """Names of the calls compared, one for each."""
    checks = checks_of(made)
    with contextlib.suppress(Wrong):
        checks._variants(program, made.timed, made.timed.offered)  # type: ignore[arg-type]
    return [result.name for result in checks.results for _ in range(result.calls)]


def test_every_variant_is_asked_as_often_as_it_has_draws_in_far_fewer_windows() -> None:
    """None is left in the queue at the end, and the first call, the task's own values, comes alone."""
    made, program = bench(), Obedient(0)
    names = asked(made, program)
    taken = list[Variant]()
    for variant in made.timed.variants:
        taken += [] if variants.stood_in_for(variant, taken) else [variant]
    wanted = [f"main: {v.name}" for v in taken for _ in range(v.draws)]
    assert sorted(names) == sorted(wanted) and names[0] == "main: as given" and program.windows[0] == 1
    assert len(program.windows) < len(taken)


def test_one_wrong_answer_among_others_refuses_and_is_called_by_its_own_name() -> None:
    """Each call in turn: the reason names the variant that was asked there."""
    made = bench()
    usual = asked(made, Obedient(0))
    for wrong in (1, 2, 9, len(usual) // 2, len(usual)):
        checks = checks_of(made)
        with pytest.raises(Wrong) as refused:
            checks._variants(Obedient(wrong), made.timed, made.timed.offered)  # type: ignore[arg-type]
        assert refused.value.outcome.reason.startswith(f"{usual[wrong - 1]}: ")


class Fastidious(Obedient):
    """One that raises an error where all it is given is below zero."""

    def window(self, order: list[int], *, grad: bool) -> Window:
        assert self.buffers is not None
        if any(bool((self.buffers.inputs[call][0] < 0).all()) for call in order):
            raise ChildFailure("verify", "raised ValueError: none is positive", "")
        return super().window(order, grad=grad)


def test_an_error_among_others_is_named_by_the_one_call_that_raises_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """A second process is asked each of them alone."""
    made, started = bench(), list[Point]()

    def loaded(self: Checks, point: Point, threads: int = 0) -> Any:
        started.append(point)
        return contextlib.nullcontext(Fastidious(0))

    monkeypatch.setattr(Checks, "_loaded", loaded)
    with pytest.raises(ChildFailure) as failed:
        checks_of(made)._variants(Fastidious(0), made.timed, made.timed.offered)  # type: ignore[arg-type]
    assert started == [made.timed]
    assert failed.value.reason == "raised ValueError: none is positive (in main: far below zero)"


def test_a_window_holds_no_more_than_it_has_room_for() -> None:
    """Calls of 6 MB come two at a time, the dear ones of 12 MB alone."""
    for columns, most in ((768 << 10, 2), (1536 << 10, 1)):
        made = Bench(task("x * 2", f"[torch.randn(1, {columns})]"), "cpu")
        program = Obedient(0)
        chosen = [v for v in made.timed.offered if v.draws == 1][:8]
        checks_of(made)._variants(program, made.timed, chosen)  # type: ignore[arg-type]
        assert max(program.windows) == most, torch.tensor(program.windows)


class Forgetful(Obedient):
    """One that keeps its last answer by the sum of what it was given."""

    def __init__(self) -> None:
        super().__init__(0)
        self.kept: tuple[int, torch.Tensor] = 0, torch.empty(0)

    def window(self, order: list[int], *, grad: bool) -> Window:
        done = super().window(order, grad=grad)
        assert self.buffers is not None
        for call in order:
            key = int(self.buffers.inputs[call][0].contiguous().view(torch.int32).long().sum())
            if key != self.kept[0]:
                self.kept = key, self.buffers.outputs[call][0].clone()
            self.buffers.outputs[call][0].copy_(self.kept[1])
        return done


def test_calls_of_one_variant_follow_each_other() -> None:
    """Others between them would have a memo forgotten before it is asked."""
    made = bench()
    for seed in range(12):
        checks = checks_of(made)
        checks.seed = seed
        with pytest.raises(Wrong) as refused:
            checks._variants(Forgetful(), made.timed, made.timed.offered)  # type: ignore[arg-type]
        assert refused.value.outcome.reason.startswith("main: rearranged: ")
