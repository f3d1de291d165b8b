# SPDX-License-Identifier: Apache-2.0
"""What is spared on a dear case, and what a wrong program of that size still meets."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
import torch
from plain_tasks import instance, task

from kernelwright.judge import bench as benches
from kernelwright.judge import entrants as entrants_module
from kernelwright.judge import timing_plan, verification
from kernelwright.judge.bench import Bench
from kernelwright.judge.buffers import Buffers
from kernelwright.judge.by_chance import ByChance
from kernelwright.judge.checks import Wrong
from kernelwright.judge.entrant import Entrant
from kernelwright.judge.entrants import Entrants
from kernelwright.judge.load import Strain
from kernelwright.judge.program import Program
from kernelwright.judge.verification import Verification
from kernelwright.judge.window import Window
from kernelwright.task import Contract
from kernelwright.trial import CaseResult

FOLDED = task(
    "x @ torch.softmax(self.w, -1)", "[torch.randn(4, 256)]", init="self.w = nn.Parameter(torch.randn(256, 256))"
)


def _checks(bench: Bench) -> Verification:
    made = object.__new__(Verification)
    made.bench, made.seed, made.near, made.results = bench, 5, [1e-6, 1e-5, 1e-5], []
    made.first, made.fresh, made.shared = None, None, contextlib.nullcontext
    made.chance = ByChance(1.0)
    return made


class _Answers:
    """A program in this process: ``forward(x, w)``."""

    stage = "verify"

    def __init__(self, forward: Callable[[torch.Tensor, torch.Tensor], torch.Tensor]) -> None:
        self.forward, self.weight, self.calls = forward, torch.zeros(0), 0

    def bind(self, plan: Any) -> Buffers:
        self.buffers = Buffers.create(plan, "cpu")
        return self.buffers

    def set_state(self, state: Any) -> None:
        self.weight = dict(state)["w"].clone()

    def checked(self, order: list[int], *, grad: bool, hidden: bool) -> Window:
        return self.window(order, grad=grad)

    def window(self, order: list[int], *, grad: bool = False) -> Window:
        for call in order:
            self.calls += 1
            self.buffers.outputs[call][0].copy_(self.forward(self.buffers.inputs[call][0], self.weight))
        return Window(1.0, 1.0, Strain(0.0, 0), 1.0, (1.0,), (), None)


def _anew(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    return x @ torch.softmax(w, -1)


class _Folds:
    """Folds anew where ``key`` says so."""

    def __init__(self, key: Callable[[torch.Tensor], object]) -> None:
        self.key, self.known, self.kept = key, object(), torch.zeros(0)

    def __call__(self, x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        if self.key(w) != self.known:
            self.known, self.kept = self.key(w), torch.softmax(w, -1)
        return x @ self.kept


@pytest.mark.parametrize("heavy", [True, False])
def test_one_changed_weight_is_looked_for_beside_eager_and_a_fold_that_misses_it_is_refused(
    monkeypatch: pytest.MonkeyPatch, heavy: bool
) -> None:
    """On a dear case an honest answer needs no product in float64, and one made of old weights is refused all the
    same: it lies further from eager's than any honest one, and is then compared in full."""
    monkeypatch.setattr(verification, "HEAVY", -1 if heavy else 1 << 60)
    bench = Bench(FOLDED, "cpu")
    point, asked = bench.timed, list[object]()
    real = type(point.instance).oracle
    monkeypatch.setattr(type(point.instance), "oracle", lambda self, *given: asked.append(given) or real(self, *given))
    checks = _checks(bench)
    places = torch.arange(1.0, 1.0 + sum(w.numel() for _, w in point.instance.first_state))
    for forward in (_anew, _Folds(lambda w: (w.flatten() * places).sum().item())):
        asked.clear()
        checks._weights_alone(cast(Program, _Answers(forward)), point)
        assert heavy is not bool(asked)
    with pytest.raises(Wrong, match="with one element of each weight changed"):
        checks._weights_alone(cast(Program, _Answers(_Folds(lambda w: float(w[0, 0])))), point)
    assert not checks.results[-1].passed


@pytest.mark.parametrize("contract", [Contract(gradients=True), Contract(mutates=(0,))])
def test_calls_that_give_more_than_outputs_are_compared_in_full(
    monkeypatch: pytest.MonkeyPatch, contract: Contract
) -> None:
    """Gradients and inputs that are written to."""
    monkeypatch.setattr(verification, "HEAVY", -1)
    checks = object.__new__(Verification)
    checks.bench = cast(Any, SimpleNamespace(contract=contract))
    full = CaseResult(name="in full", required=True, passed=True, detail="", error_ratio=0.0, calls=1)
    monkeypatch.setattr(Verification, "_call", lambda self, *given: full)
    point = cast(Any, SimpleNamespace(instance=SimpleNamespace(work=0), as_given=None))
    assert full is checks._beside_eager(cast(Program, None), point, cast(Buffers, None), [], None)


def test_the_call_of_admission_is_the_first_of_one_proof_only(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of none after it, and of none after a coarse judgement: what one candidate was asked, another may have heard."""
    assert Bench(FOLDED, "cpu").unasked() is None  # quickly computed anew, by the proof's own seed
    monkeypatch.setattr(benches, "HEAVY", -1)
    bench = Bench(FOLDED, "cpu")
    bench.admit()
    admitted = bench.some_call()
    found = bench.unasked()
    assert found is not None and found[0] is admitted
    assert torch.allclose(found[1].eager[0], bench.timed.instance.eager(admitted, None)[0])
    assert bench.unasked() is None
    other = Bench(FOLDED, "cpu")
    other.known_call(asking=True)
    assert other.unasked() is None


def test_a_proof_that_begins_with_a_known_call_knows_the_oracle_behind_it() -> None:
    """Its own checker never asked one."""
    bench = Bench(FOLDED, "cpu")
    truth = bench.timed.checker.truth(bench.timed.as_given, bench.some_call(), bench.timed.instance.first_state)
    point = bench.points(7)[0]
    assert "" == point.checker.oracle
    point.checker.recall(truth)
    assert bench.timed.checker.oracle == point.checker.oracle
    assert truth is point.checker.truth(point.as_given, truth.leaves, truth.state)


@pytest.mark.parametrize(("sets", "device", "windows"), [(2, "cpu", 1), (3, "cpu", 2), (2, "cuda:0", 2)])
def test_eager_is_not_warmed_again_on_sets_it_was_sized_on(
    monkeypatch: pytest.MonkeyPatch, sets: int, device: str, windows: int
) -> None:
    """A call of a second is one second more; on more sets than that, pages are new."""
    ran: list[int] = []

    class Sized:
        watched = False

        def window(self, order: list[int], *, grad: bool = False) -> Any:  # noqa: ANN401 - stands for a window
            ran.extend([len(order)] if order else [])
            return SimpleNamespace(call_us=1e6, aliases=(), whereabouts=None)

        def close(self) -> None:
            raise AssertionError("it failed")

    slow = 2 * timing_plan.SLOW_CALL_US
    bench = SimpleNamespace(
        eager_us=slow, sized=False, contract=SimpleNamespace(gradients=False), device=torch.device(device),
        timed=SimpleNamespace(instance=SimpleNamespace(eager=lambda *_: [], giver=SimpleNamespace(keeps=True))),
        plan=lambda *_: SimpleNamespace(sets=sets), call_bytes=1 << 30, tight=False,
    )  # fmt: skip
    monkeypatch.setattr(entrants_module, "_bind", lambda *_: None)
    monkeypatch.setattr(entrants_module, "load", lambda *_: None)
    programs = cast(Any, SimpleNamespace(fork=lambda *_, **__: Sized()))
    entrant = Entrant(name="eager", program=None, failure="", warming=None)
    candidate = cast(Any, SimpleNamespace(entry="m.py::M"))
    Entrants(programs, Path(), Path())._begin(cast(Bench, bench), entrant, candidate, Path(), None, [])
    assert ("", [2, sets][:windows]) == (entrant.failure, ran)


def test_state_that_calls_leave_alone_is_not_copied_and_what_they_change_is() -> None:
    """NaN stays NaN: 0 in its place is a change."""
    init = "self.w = nn.Parameter(torch.ones(4)); self.register_buffer('b', torch.tensor([float('nan'), 1.0]))"
    left = instance("x * self.w + self.b.nansum() * 0", "[torch.randn(4)]", init=init)
    state = [(name, value.clone()) for name, value in left.first_state]
    assert state is left.state_after([left.draw(left.offered(1)[0], 1)], state)
    changed = instance("x * self.w + self.b.nan_to_num_(0.0).sum() * 0", "[torch.randn(4)]", init=init)
    after = dict(changed.state_after([changed.draw(changed.offered(1)[0], 1)], state))
    assert after is not state and [0.0, 1.0] == after["b"].tolist()
