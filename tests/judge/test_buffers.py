# SPDX-License-Identifier: Apache-2.0
"""Shared buffers: layouts, guards, and what two mappings of one arena see."""

from __future__ import annotations

import os
from dataclasses import replace

import pytest
import torch

from kernelwright.judge import buffers
from kernelwright.judge.buffers import Buffers, CallPlan, CpuArena, Regions, TensorSpec

LAYOUTS = [
    TensorSpec.contiguous((4, 8), "float32"),
    TensorSpec.contiguous((4, 8), torch.bfloat16, offset=3),
    TensorSpec.like(torch.empty(8, 4).t()),
    TensorSpec.like(torch.empty(8, 6)[::2, ::3]),
    TensorSpec.like(torch.empty(3, 1).expand(3, 5)),
    TensorSpec.contiguous((), "int64"),
    TensorSpec.contiguous((0, 7), "bool"),
    TensorSpec.contiguous((5,), "complex64", offset=1),
    TensorSpec.contiguous((3,), "float8_e4m3fn"),
]


def one_plan(sets: int = 3) -> CallPlan:
    """Every layout in, two outputs, one gradient, one incoming gradient."""
    outputs = (TensorSpec.contiguous((4,), "float32"), TensorSpec.contiguous((2, 2), "int32"))
    return CallPlan(
        arguments={"list": [{"t": index} for index in range(len(LAYOUTS))]},
        inputs=tuple(LAYOUTS),
        results={"tuple": [{"t": 0}, {"t": 1}]},
        outputs=outputs,
        sets=sets,
        gradients=(("input:0", TensorSpec.contiguous((4, 8), "float32")),),
        seeds=(0,),
    )


def test_a_plan_survives_the_wire() -> None:
    """Both sides lay out the same memory because they hold the same plan."""
    assert one_plan() == CallPlan.from_json(one_plan().to_json())


@pytest.mark.parametrize("index", range(len(LAYOUTS)))
def test_a_tensor_has_the_layout_asked_for(index: int) -> None:
    """Shape, strides, offset and dtype are exact; no tensor is an autograd view or shares storage."""
    spec = LAYOUTS[index]
    made = Buffers.create(one_plan(), "cpu")
    tensor, twin = made.inputs[1][index], made.inputs[2][index]
    assert spec.shape == tuple(tensor.shape) and spec.stride == tensor.stride()
    assert spec.offset == tensor.storage_offset() and spec.dtype == str(tensor.dtype).removeprefix("torch.")
    assert not tensor._is_view()
    assert tensor.untyped_storage().data_ptr() != twin.untyped_storage().data_ptr()
    made.close()


def test_incoming_gradients_lie_as_the_plan_says() -> None:
    """In an order of their own where inputs do, else row-major."""
    turned = TensorSpec(shape=(4,), stride=(2,), offset=1, dtype="float32")
    plan = replace(one_plan(), incoming=(turned,))
    assert plan == CallPlan.from_json(plan.to_json())
    for made, stride in ((Buffers.create(plan, "cpu"), 2), (Buffers.create(one_plan(), "cpu"), 1)):
        assert (stride,) == made.seeds[1][0].stride()
        made.close()


def test_regions_start_aligned() -> None:
    """The first element lies ``offset`` elements after a multiple of 512 bytes of the arena."""
    made = Buffers.create(one_plan(), "cpu")
    base = made.arena.tensor.data_ptr() if made.arena.tensor is not None else 0
    starts = [(t.untyped_storage().data_ptr() - base) % 512 for t in made.inputs[1]]
    assert [0] * len(LAYOUTS) == starts
    made.close()


def test_writing_every_element_keeps_the_guards() -> None:
    """No region overlaps a guard or another region."""
    made = Buffers.create(one_plan(), "cpu")
    for index in range(3):
        for part in (made.inputs, made.outputs, made.grads, made.seeds):
            for tensor in part[index]:
                if tensor.numel() and 0 not in tensor.stride():
                    tensor.copy_(torch.full(tensor.shape, index + 1).to(tensor.dtype))
    assert made.guards_intact()
    assert [1.0, 2.0, 3.0] == [made.outputs[index][0].sum().item() / 4 for index in range(3)]
    made.close()


@pytest.mark.parametrize("step", [-1, 4])
def test_one_byte_before_or_behind_a_region_is_noticed(step: int) -> None:
    """An element written past either end breaks a guard."""
    made = Buffers.create(one_plan(), "cpu")
    output = made.outputs[1][0]
    flat = made.arena.tensor
    assert flat is not None
    at = output.data_ptr() - flat.data_ptr() + (step if step < 0 else output.nbytes)
    flat[at] = 0
    assert not made.guards_intact()
    made.fill_guards()
    assert made.guards_intact()
    made.close()


def test_two_mappings_see_one_memory() -> None:
    """What one side writes the other reads, through another descriptor."""
    first = CpuArena.create(10_000)
    second = CpuArena.attach(os.dup(first.fd), first.size)
    assert first.tensor is not None and second.tensor is not None
    first.tensor[9_999] = 7
    assert 7 == second.tensor[9_999]
    first.close()
    second.close()


def test_an_arena_cannot_be_shrunk_under_the_other_side() -> None:
    """Truncation would turn the judge's next read into SIGBUS."""
    arena = CpuArena.create(1)
    with pytest.raises(PermissionError):
        os.ftruncate(arena.fd, 0)
    with pytest.raises(PermissionError):
        os.ftruncate(arena.fd, 1 << 20)
    arena.close()


def test_weights_travel_as_regions() -> None:
    """Fresh tensors over the same memory each time."""
    regions = Regions.create([TensorSpec.contiguous((3,), "float32")] * 2, "cpu")
    regions.tensors()[1].fill_(2.5)
    assert [2.5, 2.5, 2.5] == regions.tensors()[1].tolist()
    assert [0.0, 0.0, 0.0] == regions.tensors()[0].tolist()


def test_the_gap_between_regions_is_a_guard() -> None:
    """At least GUARD_BYTES before, between and behind."""
    specs = one_plan().regions()
    offsets, size = buffers.place(specs)
    ends = [0, *(at + spec.nbytes() for at, spec in zip(offsets, specs, strict=True))]
    gaps = [start - end for start, end in zip([*offsets, size], ends, strict=True)]
    assert min(gaps) >= buffers.GUARD_BYTES


@pytest.mark.parametrize("stride", [(2 * 7, 2), (10, 1)])
def test_what_lies_between_the_elements_of_an_input_is_a_guard(stride: tuple[int, int]) -> None:
    """It reads as NaN, and what is stored there is noticed in any set; elements may be written."""
    spec = TensorSpec(shape=(3, 7), stride=stride, offset=1, dtype="float32")
    made = Buffers.create(replace(one_plan(), inputs=(spec, *one_plan().inputs[1:]), sets=2), "cpu")
    for sets in made.inputs:
        sets[0].fill_(1.0)
    assert made.guards_intact()
    over = made.inputs[1][0].as_strided((2, stride[0]), (stride[0], 1), 1)
    assert int(over.isnan().sum()) == 2 * (stride[0] - 7)
    over[0, -1] = 0.0
    assert not made.guards_intact()
    made.fill_guards()
    assert made.guards_intact() and bool((made.inputs[1][0] == 1.0).all())
    made.close()
