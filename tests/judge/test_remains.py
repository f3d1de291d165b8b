# SPDX-License-Identifier: Apache-2.0
"""Parameters and buffers as calls left them, whatever a program does when they are read."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
import torch

from kernelwright import sandbox
from kernelwright.judge import remains
from kernelwright.judge.buffers import CallPlan
from kernelwright.judge.checks import Wrong
from kernelwright.judge.child import Zygote
from kernelwright.judge.correctness import Correctness
from kernelwright.judge.leash import ChildFailure
from kernelwright.judge.program import Program

Plan = Callable[..., CallPlan]
LIMITS = sandbox.Limits(seconds=20.0, memory_bytes=1 << 30, processes=64, file_bytes=1 << 20, output_bytes=1 << 16)
SOURCE = """
import torch
class ModelNew(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("seen", torch.zeros(()))
        self.late = []
        {hook}
    def settle(self, *rest):
        while self.late:
            self.seen += count(self.late.pop())
    def forward(self, x):
        {forward}
        return x * 2.0
def count(x):
    for _ in range(40):
        x = x.sin() + 1.0
    return x.sum()
"""
HOOK = "self.register_state_dict_pre_hook(ModelNew.settle)"
SIZE = (1 << 18,)


def after_a_call(zygote: Zygote, folder: Path, plan: CallPlan, forward: str, hook: str = "pass") -> Program:
    """A program that was asked once, with ones."""
    (folder / "new.py").write_text(SOURCE.format(forward=forward, hook=hook))
    folder.chmod(0o755)
    program = zygote.fork(folder, device="cpu", limits=LIMITS, threads=1)
    program.load("new.py::ModelNew", state=[("seen", torch.zeros(()))])
    program.bind(plan).inputs[0][0].fill_(1.0)
    program.window([0])
    return program


def expected() -> float:
    """What one call leaves."""
    x = torch.ones(SIZE)
    for _ in range(40):
        x = x.sin() + 1.0
    return float(x.sum())


@pytest.mark.parametrize("looks", [2, 3])
def test_what_calls_left_is_read_and_the_inputs_come_back(
    zygote: Zygote, tmp_path: Path, plan: Plan, looks: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A program that does its work in its calls has nothing left to do. A first look may be dear for its pages."""
    monkeypatch.setattr(remains, "LOOKS", looks)
    with after_a_call(zygote, tmp_path, plan(SIZE, sets=1), "self.seen += count(x)") as program:
        for count in (1, 2, 3):
            state, late = remains.read(program)
            assert [name for name, _ in state] == ["seen"]
            assert float(state[0][1]) == pytest.approx(count * expected(), rel=1e-4)
            if not late:
                break
            program.window([0])
        assert late == ""
        assert program.buffers is not None
        assert bool((program.buffers.inputs[0][0] == 1.0).all())


def test_inputs_are_gone_when_somebody_looks(zygote: Zygote, tmp_path: Path, plan: Plan) -> None:
    """Who has only noted what to look at finds nothing."""
    with after_a_call(zygote, tmp_path, plan(SIZE, sets=1), "self.late.append(x)", HOOK) as program:
        assert not bool(torch.isfinite(remains.read(program)[0][0][1]))


def test_work_on_copies_shows_in_the_first_look(zygote: Zygote, tmp_path: Path, plan: Plan) -> None:
    """The state is right and was made when it was read."""
    with after_a_call(zygote, tmp_path, plan(SIZE, sets=1), "self.late.append(x.clone())", HOOK) as program:
        state, late = remains.read(program)
        assert float(state[0][1]) == pytest.approx(expected(), rel=1e-4)
        assert "whoever reads parameters" in late


ALWAYS = "self.register_state_dict_pre_hook(lambda module, *rest: module.seen.copy_(count(module.late[-1])))"


def test_a_look_that_always_costs_more_than_at_eager_shows(zygote: Zygote, tmp_path: Path, plan: Plan) -> None:
    """Who does as much work at the second look as at the first was taken for a program whose looks are dear."""
    honest = tmp_path / "honest"
    honest.mkdir()
    with after_a_call(zygote, honest, plan(SIZE, sets=1), "self.seen += count(x)") as eager:
        usual = remains.usual({"eager": cast(Any, SimpleNamespace(program=eager, look_us=0.0))})
    assert 1.0 <= usual < remains.FLOOR_US and remains.usual({}) == float("inf")
    with after_a_call(zygote, tmp_path, plan(SIZE, sets=1), "self.late.append(x.clone())", ALWAYS) as program:
        assert remains.read(program)[1] == ""
        assert "whoever reads parameters" in remains.read(program, usual)[1]


def test_a_look_in_which_others_may_work_shows(zygote: Zygote, tmp_path: Path, plan: Plan) -> None:
    """It sleeps for 50 ms, as one does that waits for a process of its own."""
    sleeps = 'self.register_state_dict_pre_hook(lambda *rest: __import__("time").sleep(0.05))'
    with after_a_call(zygote, tmp_path, plan(SIZE, sets=1), "self.seen += count(x)", sleeps) as program:
        assert "others worked" in remains.read(program)[1]


def test_the_judges_own_copies_are_no_work_of_others(
    zygote: Zygote, tmp_path: Path, plan: Plan, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of 256 MB of weights they took 8 ms longer than an honest program ran: it was refused."""
    copied = Program.said_state
    monkeypatch.setattr(Program, "said_state", lambda program: (time.sleep(0.05), copied(program))[1])
    with after_a_call(zygote, tmp_path, plan(SIZE, sets=1), "self.seen += count(x)") as program:
        assert "others worked" not in remains.read(program)[1]


@pytest.mark.parametrize(("forward", "left"), [("self.late.append(x.clone())", True), ("self.seen += count(x)", False)])
def test_work_too_little_to_be_seen_shows_after_many_calls(
    zygote: Zygote, tmp_path: Path, plan: Plan, forward: str, left: bool
) -> None:
    """Of each a fifth of a millisecond."""
    with after_a_call(zygote, tmp_path, plan((1 << 12,), sets=remains.MANY), forward, HOOK) as program:
        assert left == ("whoever reads parameters" in remains.of_many(program, remains.MANY, grad=False))
    assert remains.many(2000.0, 1 << 20) == 10
    assert (remains.many(1.0, 1 << 28), remains.many(1e9, 1)) == (2, 1)


def test_one_dear_look_is_forgiven_and_two_are_not(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever was left is right."""
    seen = [("seen", torch.ones(2))]
    monkeypatch.setattr(remains, "read", lambda program, usual: (seen, "1646 us at first, then 155"))
    checks = Correctness.__new__(Correctness)
    checks.late, checks.stateful, checks.bench = 0, False, cast(Any, SimpleNamespace(entrants={}))
    instance = SimpleNamespace(state_after=lambda given, before: before)
    checks.points = (cast(Any, SimpleNamespace(instance=instance)),)
    program = cast(Any, SimpleNamespace(stage="verify"))
    checks._state_as_left(program, [], seen)
    with pytest.raises(Wrong, match="1646 us at first"):
        checks._state_as_left(program, [], seen)


def test_looks_in_a_verification_have_more_chances_and_rest_between_them(monkeypatch: pytest.MonkeyPatch) -> None:
    """A host that takes CPUs away does so for longer than two looks in a row."""
    seen, slept = [("seen", torch.ones(2))], list[float]()
    said = ["9797 us", "5378 us", "2000 us", ""]
    monkeypatch.setattr(remains, "read", lambda program, usual: (seen, said.pop(0)))
    monkeypatch.setattr(remains, "time", SimpleNamespace(sleep=slept.append))
    program = cast(Any, SimpleNamespace(window=lambda *a, **k: None))
    assert not remains.of_many(program, 1, grad=False)
    assert [round(rest, 2) for rest in slept] == [0.05, 0.15, 0.45]
    said[:] = ["always"] * 9
    assert "always" == remains.of_many(program, 1, grad=False)
    assert len(said) == 9 - remains.CHANCES
    checks = Correctness.__new__(Correctness)
    checks.late, checks.stateful, checks.bench = 0, False, cast(Any, SimpleNamespace(entrants={}))
    point = cast(Any, SimpleNamespace(instance=SimpleNamespace(state_after=lambda given, before: before)))
    program.stage = "verify"
    for _ in range(remains.CHANCES - 1):
        checks._state_as_left(program, [], seen, point)
    with pytest.raises(Wrong, match="always"):
        checks._state_as_left(program, [], seen, point)


def test_eager_that_has_ended_is_no_fault_of_a_candidate() -> None:
    """Whoever races it next starts it anew."""

    class Ended:
        pid = 1

        def clock(self, pid: int) -> int:
            return 0

        def say_state(self) -> None:
            raise ChildFailure("smoke", "it had already ended")

    entrant = SimpleNamespace(program=Ended(), look_us=0.0)
    assert remains.usual({"eager": entrant}) == math.inf and not entrant.look_us  # type: ignore[dict-item]
