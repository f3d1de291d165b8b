# SPDX-License-Identifier: Apache-2.0
"""Which rows are shared by several programs, and in how many kernels."""

import pathlib
import sys

import pytest

from kernelwright.proposers.templates import triton_plans, triton_split
from kernelwright.proposers.templates.graph import capture
from kernelwright.proposers.templates.lower import lower
from kernelwright.task import Task

sys.path.insert(0, str(pathlib.Path(__file__).parent))
import triton_cases


def region_of(body, inputs, **more):
    """The only fused step of a reference."""
    reference = triton_cases.reference(f"return {body}", inputs, **more)
    (fused,) = lower(capture(Task(name="t", form="kernelbench", reference=reference))).regions()
    return fused


@pytest.mark.parametrize(
    ("body", "inputs", "shared"),
    [
        ("torch.softmax(x, -1)", "torch.randn(4, 1 << 20)", True),
        ("torch.softmax(x, -1)", "torch.randn(1024, 1 << 13)", False),
        ("torch.softmax(x, -1)", "torch.randn(4, 1 << 10)", False),
        ("x.sum(0)", "torch.randn(8192, 2048)", True),
        ("x.sum(1)", "torch.randn(512, 1024, 256)", False),
        ("torch.softmax(x, -1).mean()", "torch.randn(4, 1 << 20)", False),
    ],
)
def test_only_few_long_rows_are_shared(body, inputs, shared):
    """Many rows fill the device by themselves; totals are not shared this way."""
    assert shared is triton_plans.shared(region_of(body, inputs))


@pytest.mark.parametrize(
    ("body", "kernels"),
    [
        ("x.sum(-1)", 2),
        ("torch.softmax(x, -1)", 2),
        ("x - x.amax(-1, keepdim=True)", 2),
        ("torch.softmax(x / x.abs().sum(-1, keepdim=True), -1)", 3),
    ],
)
def test_one_kernel_per_level_of_reductions_and_one_that_writes(body, kernels):
    """Maximum and sum of exponentials share a level; a reduction of something already reduced needs another."""
    text = triton_split.kernels(region_of(body, "torch.randn(5, 100)"), 0, "")
    assert kernels == text.count("@triton.jit")
    assert f"def _k0_{kernels - 1}(" in text


def test_partial_results_are_added_without_atomics():
    """The order of addition is fixed, so equal inputs give equal bits."""
    assert "atomic" not in triton_split.kernels(region_of("torch.softmax(x, -1)", "torch.randn(5, 100)"), 0, "")
