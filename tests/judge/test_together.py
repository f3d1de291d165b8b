# SPDX-License-Identifier: Apache-2.0
"""All calls of a window at once: what is written, found changed, and how far answers lie apart, as one by one."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from test_spot_checks import Trial

from kernelwright.judge import numerics, race, spot_checks, together
from kernelwright.judge.buffers import Buffers, CallPlan, TensorSpec

CALLS = 12


def buffers(dtype: torch.dtype = torch.float32, layout: TensorSpec | None = None) -> Buffers:
    """Two inputs, one of them of odd size, two outputs, a gradient."""
    rows = layout or TensorSpec.contiguous((5, 7), dtype)
    return Buffers.create(
        CallPlan(
            arguments=None,
            inputs=(rows, TensorSpec.contiguous((3,), torch.int64)),
            results=None,
            outputs=(TensorSpec.contiguous((5, 7), dtype), TensorSpec.contiguous((2,), torch.int32)),
            sets=CALLS,
            gradients=(("input:0", TensorSpec.contiguous((5, 7), dtype)),),
        ),
        "cpu",
    )


def values(seed: int) -> list[list[torch.Tensor]]:
    """Inputs of all calls."""
    dice = torch.Generator().manual_seed(seed)
    return [[torch.randn(5, 7, generator=dice), torch.randint(99, (3,), generator=dice)] for _ in range(CALLS)]


def test_a_region_of_all_sets_is_the_regions_of_each() -> None:
    """With steps and an offset of its own too, and nothing beside them is written to."""
    for layout in (None, TensorSpec(shape=(5, 7), stride=(14, 2), offset=1, dtype="float32")):
        made = buffers(layout=layout)
        for kind, each in (("input", made.inputs), ("output", made.outputs), ("gradient", made.grads)):
            for position in range(len(each[0])):
                together_ = made.across(kind, position)
                for call in range(CALLS):
                    each[call][position].fill_(call + 1)
                    assert torch.equal(together_[call], each[call][position])
                together_.fill_(3)
                assert all(bool((part[position] == 3).all()) for part in each)
        assert made.guards_intact()


def test_filling_all_sets_leaves_what_filling_each_leaves() -> None:
    """Bit by bit, poison included."""
    drawn, one, all_ = values(1), buffers(), buffers()
    for call, leaves in enumerate(drawn):
        race.fill(one, call, leaves)
    together.fill(all_, together.stacked(drawn))
    assert one.arena.tensor is not None and all_.arena.tensor is not None
    assert torch.equal(one.arena.tensor, all_.arena.tensor)
    assert all(bool(numerics.still_poisoned(out[0]).all()) for out in all_.outputs)


def test_some_calls_are_those_of_the_first_sets() -> None:
    """Of a window of fewer calls than there are sets; the others are neither written to nor looked at."""
    drawn, ours, theirs = values(4), buffers(), buffers()
    for memory in (ours, theirs):
        together.fill(memory, together.stacked(drawn))
        for call, leaves in enumerate(drawn):
            memory.outputs[call][0].copy_(leaves[0])
            memory.outputs[call][1].fill_(3)
            memory.grads[call][0].copy_(leaves[0])
    before = theirs.inputs[5][0].clone(), theirs.outputs[5][0].clone()
    stacks = together.stacked(values(5)[:5])
    together.fill(theirs, stacks)
    assert torch.equal(theirs.inputs[5][0], before[0]) and torch.equal(theirs.outputs[5][0], before[1])
    assert torch.equal(theirs.inputs[4][0], stacks[0][4])
    assert bool(numerics.still_poisoned(theirs.outputs[4][0]).all())
    theirs.inputs[2][0].add_(1), theirs.inputs[9][0].add_(1)
    assert together.changed(theirs, stacks) == [call == 2 for call in range(5)]
    found = together.distances(ours, theirs, 7)
    assert [any(seen) for seen in found] == [True] * 5 + [False] * 2


@pytest.mark.parametrize("call", range(CALLS))
def test_a_changed_element_is_found_in_its_call(call: int) -> None:
    """Of either input, NaN among them."""
    drawn, made = values(2), buffers()
    stacks = together.stacked(drawn)
    for index, wrong in ((0, math.nan), (0, 0.5), (1, 100)):
        together.fill(made, stacks)
        assert not any(together.changed(made, stacks))
        made.inputs[call][index].view(-1)[-1] = wrong
        assert together.changed(made, stacks) == [number == call for number in range(CALLS)]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.complex64])
def test_distances_are_those_of_each_call_or_infinite(dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch) -> None:
    """Infinite where a closer look is due: Inf, NaN, zeros, whole numbers that differ. In parts, too."""
    ours, theirs = buffers(dtype), buffers(dtype)
    dice = torch.Generator().manual_seed(3)
    for call in range(CALLS):
        for mine, other in zip(ours.answers(call), theirs.answers(call), strict=True):
            other.copy_(torch.randn(other.shape, generator=dice) * 9)
            mine.copy_(other)
            if mine.is_floating_point() or mine.is_complex():
                mine.mul_(1 + 0.01 * call)
    ours.outputs[4][0][0, 0] = math.nan
    ours.outputs[5][0][0, 0] = theirs.outputs[5][0][0, 0] = math.inf
    theirs.outputs[6][0].zero_()
    ours.outputs[7][1][1] += 1
    for part in (together.PART_BYTES, 300):
        monkeypatch.setattr(together, "PART_BYTES", part)
        found = together.distances(ours, theirs, CALLS)
        for call, seen in enumerate(found):
            exact = spot_checks.distances(ours.answers(call), theirs.answers(call), None)
            if call in (4, 5, 6):
                assert seen[:3] == [math.inf] * 3 and seen[6:] == pytest.approx(exact[6:], rel=1e-5)
            elif call == 7:
                assert seen[3:6] == [math.inf] * 3
            else:
                assert seen == pytest.approx(exact, rel=1e-5, abs=1e-12)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.complex64, torch.int64])
def test_answers_and_inputs_that_are_single_numbers(dtype: torch.dtype) -> None:
    """As of a loss: a number for each call, told apart by call."""
    number = TensorSpec.contiguous((), dtype)
    plan = CallPlan(arguments=None, inputs=(number,), results=None, outputs=(number,), sets=CALLS)
    ours, theirs = Buffers.create(plan, "cpu"), Buffers.create(plan, "cpu")
    drawn = [[torch.tensor(call + 1).to(dtype)] for call in range(CALLS)]
    for made in (ours, theirs):
        together.fill(made, together.stacked(drawn))
        for call in range(CALLS):
            made.outputs[call][0].fill_(call + 1)
    ours.outputs[5][0].fill_(9)
    ours.inputs[3][0].fill_(7)
    assert together.changed(ours, together.stacked(drawn)) == [call == 3 for call in range(CALLS)]
    found = together.distances(ours, theirs, CALLS)
    assert all((seen == [0.0] * 3) == (call != 5) for call, seen in enumerate(found))
    if dtype != torch.int64:
        exact = spot_checks.distances(ours.answers(5), theirs.answers(5), None)
        assert found[5] == pytest.approx(exact, rel=1e-2)


def test_calls_too_large_to_be_held_twice_are_dealt_with_one_by_one() -> None:
    """On a device a stack of all inputs of a window would be as large as they are."""

    class OnDevice:
        is_cuda = True

        def __init__(self, nbytes: int) -> None:
            self.nbytes = nbytes

    class Memory:
        inputs = (None,) * CALLS

    one = together.MOST_BYTES // CALLS
    for nbytes, held in ((one, True), (one + CALLS, False)):
        values: Any = [[OnDevice(nbytes)]] * CALLS
        assert together.fits(Memory(), values) is held  # type: ignore[arg-type]
    few: Any = [[OnDevice(1)]]
    assert together.fits(Memory(), few * together.LEAST)  # type: ignore[arg-type]
    assert not together.fits(Memory(), few * (CALLS + 1))  # type: ignore[arg-type]


def test_calls_that_are_near_at_a_glance_are_read_no_further_and_all_others_are(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The same calls are compared in full as one by one: a wrong one, one that changed its input, and no other."""
    monkeypatch.setattr(together, "fits", lambda buffers, values: True)
    read: list[int] = []
    real = spot_checks.SpotChecks._seen

    def seen(self: spot_checks.SpotChecks, suspect: Any, leaves: Any, call: int, sample: Any) -> list[float]:
        read.append(call)
        return real(self, suspect, leaves, call, sample)

    monkeypatch.setattr(spot_checks.SpotChecks, "_seen", seen)
    for wrong, spoil in ((0.0, 0.0), (0.5, 0.0), (0.0, 0.5)):
        trial = Trial(1, calls=CALLS, budget=0)
        for memory in (trial.eager, trial.mine):
            _made_of_buffers(memory)
        read.clear()
        if wrong or spoil:
            with pytest.raises(spot_checks.Mismatch):
                trial.round(0, wrong=wrong, spoil=spoil, call=7)
            assert set(read) == {7}
        else:
            trial.round(0)
            assert not read and trial.checks.suspects[-1].sampled == CALLS


def _made_of_buffers(memory: object) -> None:
    """Give a test's memory what ``together`` asks of buffers."""
    made = Buffers.create(
        CallPlan(
            arguments=None, inputs=(TensorSpec.contiguous((64,), torch.float32),), results=None,
            outputs=(TensorSpec.contiguous((64,), torch.float32),), sets=CALLS,
        ),
        "cpu",
    )  # fmt: skip
    memory.inputs, memory.outputs, memory.plan, memory.across = made.inputs, made.outputs, made.plan, made.across  # type: ignore[attr-defined]
