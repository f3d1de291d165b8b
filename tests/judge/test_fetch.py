# SPDX-License-Identifier: Apache-2.0
"""Results are read where they lie in the stopped program, in any layout, and nowhere else."""

from __future__ import annotations

import array
import mmap
import os
import re
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest
import torch

from kernelwright.judge import fetch
from kernelwright.judge.buffers import Buffers, TensorSpec
from kernelwright.judge.leash import ChildFailure

LATE = """
import sys
runner = sys.modules["kernelwright.judge.runner"]
deliver = runner.Runner._deliver
def late(self, index, returned, *more):
    returned[0].fill_(3.0)
    return deliver(self, index, returned, *more)
runner.Runner._deliver = late
"""


def fetched(leaf: torch.Tensor, spec: TensorSpec | None = None) -> fetch.Fetched:
    """``leaf`` of this very process, read as another one's would be."""
    found: array.array[int] = array.array("q")
    kept = fetch.note(found, leaf)
    spec = spec or TensorSpec.contiguous(leaf.shape, leaf.dtype)
    result = fetch.read(os.getpid(), found.tobytes(), [spec], 1)
    del kept
    return result


@pytest.mark.parametrize(
    "leaf",
    [
        torch.arange(12.0).reshape(3, 4),
        torch.arange(12.0).reshape(3, 4).T,
        torch.arange(24).reshape(4, 6)[1:, ::2],
        torch.ones(1).expand(5, 7),
        torch.arange(1 << 16).reshape(2, -1)[:, :3],
        torch.tensor([True, False]),
        torch.tensor(2.5, dtype=torch.bfloat16),
        torch.tensor([1 + 2j]).conj(),
        torch.empty(0, 3),
    ],
    ids=["plain", "transposed", "strided", "expanded", "sparse view", "bool", "scalar", "conjugated", "empty"],
)
def test_a_result_in_any_layout_is_read_as_it_is(leaf: torch.Tensor) -> None:
    """Strides, offsets, lazy conjugation and missing elements included."""
    result = fetched(leaf)
    assert isinstance(result, list)
    assert torch.equal(leaf, result[0][0])


def test_the_bytes_of_a_boolean_are_kept() -> None:
    """A copy by torch would make 1 of every one that is not 0, and none could be told from another."""
    results = fetched(torch.tensor([0, 1, 255], dtype=torch.uint8).view(torch.bool))
    assert isinstance(results, list)
    target = torch.zeros(3, dtype=torch.bool)
    buffers = cast(Buffers, SimpleNamespace(outputs=[[target]], grads=[[]]))
    fetch.put(buffers, [0], results, grad=True)
    assert [0, 1, 255] == target.view(torch.uint8).tolist()


def test_memory_that_is_not_there_is_told() -> None:
    """An address nobody mapped, and a place of length zero."""
    spec = TensorSpec.contiguous((4,), torch.float32)
    notes = array.array("q", [64, 1]).tobytes()
    assert "its results are not where it said (Bad address)" == fetch.read(os.getpid(), notes, [spec], 1)
    assert "it said done without results" == fetch.read(os.getpid(), b"", [spec], 1)


@pytest.mark.parametrize("strides", [-1, 1 << 40])
def test_impossible_strides_are_told(strides: int) -> None:
    """Neither backwards nor over half the memory."""
    spec = TensorSpec.contiguous((4,), torch.float32)
    notes = array.array("q", [1 << 20, strides]).tobytes()
    assert "its results are not where it said (no such place)" == fetch.read(os.getpid(), notes, [spec], 1)


def test_what_is_written_after_done_does_not_count(program, plan) -> None:
    """A program whose delivery finishes the work is read as it stood before."""
    one = program("return torch.ones(4)", head=LATE)
    buffers = one.bind(plan((4,)))
    one.window([1, 0])
    assert torch.equal(torch.ones(4), buffers.outputs[0][0])


def test_a_wrong_shape_is_told_in_words(program, plan) -> None:
    """The delivery names shape and dtype, where the memory alone would only say that it is not there."""
    one = program("return torch.ones(1)")
    one.bind(plan((1 << 20,)))
    with pytest.raises(ChildFailure, match=r"wrong structure: output 0 is \[1\] float32"):
        one.window([0])


@pytest.mark.parametrize(
    ("whole", "taken"),
    [
        (torch.arange(12.0).reshape(3, 4), lambda t: t.T),
        (torch.arange(24).reshape(4, 6), lambda t: t[1:, 1::2]),
        (torch.ones(6), lambda t: t[2:3].expand(5, 7)),
        (torch.zeros(3 << 20, dtype=torch.bool), lambda t: t[5:-7]),
    ],
    ids=["transposed", "strided", "expanded", "of several blocks"],
)
def test_what_was_handed_out_is_overwritten_and_nothing_beside_it(
    whole: torch.Tensor, taken: Callable[[torch.Tensor], torch.Tensor]
) -> None:
    """Of results in any layout; the second call's is not asked for."""
    first, second, before = taken(whole), torch.full((2,), 7.0), whole.clone()
    found: array.array[int] = array.array("q")
    kept = fetch.note(found, first)
    specs = [TensorSpec.contiguous(first.shape, first.dtype), TensorSpec.contiguous((2,), torch.float32)]
    fetch.note(found, second)
    assert kept is first and fetch.spoil(os.getpid(), found.tobytes(), specs, {(0, 0)}) == ""
    assert second.tolist() == [7.0, 7.0]
    raw = first.view(torch.uint8) if first.dtype is torch.bool else first
    assert bool((raw == 255).all() if raw.dtype is torch.uint8 else ~(raw >= 0).any())
    left = torch.ones_like(whole, dtype=torch.bool)
    left.view(-1)[taken(torch.arange(whole.numel()).view(whole.shape)).reshape(-1)] = False
    assert torch.equal(whole[left], before[left])


def test_results_that_nobody_may_write_to_are_told() -> None:
    """Whoever is given one could not use it."""
    page = mmap.mmap(-1, mmap.PAGESIZE, prot=mmap.PROT_READ)
    address = int(re.search(rb"^([0-9a-f]+)-.* r--s .*/dev/zero", Path("/proc/self/maps").read_bytes(), re.M)[1], 16)  # type: ignore[index]
    notes, specs = array.array("q", [address, 1]), [TensorSpec.contiguous((4,), torch.float32)]
    assert "cannot be written to" in fetch.spoil(os.getpid(), notes.tobytes(), specs, {(0, 0)})
    page.close()
