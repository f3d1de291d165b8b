# SPDX-License-Identifier: Apache-2.0
"""Small answers of a device are measured on the host, and what is said of them is the same."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
import torch
from plain_tasks import task

from kernelwright.judge import hosted, yardstick
from kernelwright.judge.native import Passes
from kernelwright.judge.reference import Reference
from kernelwright.judge.verify import Checker
from kernelwright.task import Contract
from kernelwright.trial import CaseResult

TENSORS = {
    "float32": torch.randn(3, 5),
    "float64, columns first": torch.randn(4, 6, dtype=torch.float64).t(),
    "complex64, conjugate": torch.randn(3, dtype=torch.complex64).conj(),
    "complex128": torch.randn(2, 3, dtype=torch.complex128),
    "of one byte": torch.randn(7).to(torch.float8_e4m3fn),
    "flags": torch.tensor([True, False, True]),
    "whole numbers": torch.arange(5, dtype=torch.int16),
    "one number": torch.tensor(2.5),
    "nothing": torch.zeros(0, 3),
}


def test_one_transfer_brings_tensors_of_all_types_as_they_are() -> None:
    """Their bits too, and none shares memory with what it was copied from."""
    found = hosted.together(list(TENSORS.values()))
    for (name, before), now in zip(TENSORS.items(), found, strict=True):
        assert (before.dtype, before.shape) == (now.dtype, now.shape), name
        assert before.resolve_conj().tolist() == now.tolist(), name
        assert now.is_contiguous() and (not before.numel() or now.data_ptr() != before.data_ptr())
    assert found[0].data_ptr() % hosted.ALIGNED == found[3].data_ptr() % hosted.ALIGNED


def test_what_is_on_the_host_stays_as_it_is() -> None:
    """A copy of it would be work for nothing."""
    one, other = [torch.randn(3)], [torch.randn(3)]
    assert ([one[0]], [other[0]]) == hosted.pair(one, other)


def test_who_asks_first_has_the_passes_compiled(tmp_path: Path) -> None:
    """Until they are there nothing is brought; numpy would take as long as the device."""
    passes = Passes()
    assert not passes.awaited()  # nobody said where
    passes.prepare(tmp_path)
    until = time.monotonic() + 120
    while not passes.awaited() and time.monotonic() < until:
        time.sleep(0.05)
    assert passes.awaited()


ANSWERS = {
    "as it is": lambda y: y,
    "in half precision": lambda y: y.half().float(),
    "a wrong row": lambda y: y.index_fill(0, torch.tensor([3], device=y.device), 7.0),
    "a missing row": lambda y: y.index_fill(0, torch.tensor([3], device=y.device), float("nan")),
}


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
@pytest.mark.parametrize("forward", ["torch.log(x)", "torch.relu(x) * 1e-3 + x.exp()", "(x * 8).round()"])
def test_the_host_says_what_the_device_says(forward: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of answers that are right, wrong, not numbers, and infinite where the reference is."""
    passes = Passes()
    passes.prepare(tmp_path)
    assert passes.compile()
    monkeypatch.setattr(hosted, "PASSES", passes)
    monkeypatch.setattr(yardstick, "PASSES", passes)

    def said(most: int) -> list[list[CaseResult]]:
        monkeypatch.setattr(hosted, "MOST_BYTES", most)
        instance = Reference(task(forward, "[torch.randn(64, 40)]", contract=Contract()), "cuda").instance(
            task(forward, "[torch.randn(64, 40)]").timed_case()
        )
        checker, found = Checker(instance, seed=1), []
        for variant in instance.variants(3)[:12]:
            leaves = instance.draw(variant, 5)
            right = instance.eager(leaves, None)
            found.append([checker.check(variant, leaves, None, [make(right[0])], leaves) for make in ANSWERS.values()])
        return found

    most = hosted.MOST_BYTES
    there, here = said(0), said(most)
    for one, other in zip(there, here, strict=True):
        assert [case.passed for case in one] == [case.passed for case in other]
        assert [case.error_ratio for case in one] == pytest.approx([case.error_ratio for case in other], rel=1e-9)
