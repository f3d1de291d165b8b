# SPDX-License-Identifier: Apache-2.0
"""Operators that need not read all of their operands: the bytes that must move are never more than must.

The numbers are worked out by hand as (elements x bytes of an element). Where an honest program may read fewer
elements than can be known beforehand, those of that operand count as none.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F  # noqa: N812
from torch import nn

from kernelwright import limits

N = 64
UPPER = torch.ones(N, N, dtype=torch.bool).triu(1)
COLUMNS = torch.arange(N).expand(N, N).remainder(8).eq(0).clone()
"""Every eighth column: one element of each sector of a row, whole rows of the transpose."""


def fn(body: object) -> nn.Module:
    """A module whose forward is ``body``."""
    return type("M", (nn.Module,), {"forward": staticmethod(body)})()


def read(body: Callable[..., object], inputs: list[torch.Tensor]) -> int:
    """Bytes of inputs that must be read."""
    return limits.trace_module(fn(body), [t.clone() for t in inputs], {}).input_bytes


def x(*shape: int) -> torch.Tensor:
    """Some numbers."""
    return torch.randn(*(shape or (N, N)))


def attention(**options: bool) -> Callable[..., object]:
    """Attention with a mask, or none."""
    return lambda q, k, v, *m: F.scaled_dot_product_attention(q, k, v, *m, **options)


SHORT, LONG = (1, 2, 4, 32), (1, 2, 512, 32)
STOPS: dict[str, tuple[Callable[..., object], list[torch.Tensor], int]] = {
    "a search looks at few of the sorted": (torch.searchsorted, [torch.arange(4096.0), x(10)], 10 * 4),
    "so does a search for buckets": (torch.bucketize, [x(10), torch.arange(4096.0)], 10 * 4),
    "any stops at the first": (lambda m: m.any(), [UPPER], 0),
    "all stops at the first": (lambda a: (a > 0).all(-1), [x()], 0),
    "isin may stop": (torch.isin, [torch.arange(64), torch.arange(64)], 0),
    "the diagonal": (torch.trace, [x()], 0),
    "a bag reads the rows it is given": (
        lambda w, i: F.embedding_bag(i, w), [x(1000, 16), torch.zeros(4, 8, dtype=torch.long)], 32 * 8),
    "an image made smaller": (lambda a: F.interpolate(a, scale_factor=1 / 8), [x(1, 1, N, N)], 0),
    "an image looked at in places": (
        lambda a, g: F.grid_sample(a, g, align_corners=False), [x(1, 1, N, N), torch.zeros(1, 2, 2, 2)], 8 * 4),
    "padding that cuts": (lambda a: F.pad(a, (0, 0, 0, 8 - N)), [x()], 0),
    "a triangle": (
        lambda a, b: torch.linalg.solve_triangular(a, b, upper=False), [x(), x(N, 1)], N * 4),
    "a step's value at zero": (torch.heaviside, [x(), x()], N * N * 4),
    "random numbers of a shape": (lambda a: torch.randint_like(a, 10), [x()], 0),
    "causal attention with few queries": (attention(is_causal=True), [x(*SHORT), x(*LONG), x(*LONG)], 256 * 4),
    "causal attention of as many reads all": (attention(is_causal=True), [x(*LONG)] * 3, 3 * 32768 * 4),
    "attention without a mask reads all": (attention(), [x(*SHORT), x(*LONG), x(*LONG)], (256 + 2 * 32768) * 4),
    "attention with a mask": (
        attention(), [x(1, 2, 1, 32), x(*LONG), x(*LONG), torch.zeros(1, 1, 1, 512)], 64 * 4 + 512 * 4),
    "a window that skips and spreads reads the even places": (
        lambda a, w: F.conv2d(a, w, stride=2, dilation=2), [x(1, 1, N, N), x(1, 1, 3, 3)], (N * N // 4 + 9) * 4),
    "a pool that leaves a rest": (lambda a: F.max_pool2d(a, 9), [x(1, 1, 17, 17)], 81 * 4),
    "a pool in three dimensions": (lambda a: F.avg_pool3d(a, 1, stride=4), [x(1, 1, 32, 32, 32)], 8**3 * 4),
    "taps that see padding alone": (lambda a, w: F.conv2d(a, w, padding=1), [x(1, 1, 1, 1), x(1, 1, 3, 3)], 2 * 4),
    "a full convolution reads all": (
        lambda a, w: F.conv2d(a, w, padding=1), [x(2, 3, 8, 8), x(5, 3, 3, 3)], (384 + 135) * 4),
}  # fmt: skip


@pytest.mark.parametrize("name", STOPS)
def test_what_may_be_left_out_is_not_counted(name: str) -> None:
    """Searches, early stops, samples, triangles, masks of attention, windows."""
    body, inputs, expected = STOPS[name]
    assert expected == read(body, inputs)


def put(a: torch.Tensor, m: torch.Tensor) -> torch.Tensor:
    """Zeros where a mask says so, in a copy."""
    y = a.clone()
    y[m] = 0
    return y


BEHIND: dict[str, tuple[Callable[..., object], list[torch.Tensor], int]] = {
    "a causal softmax, scaled": (
        lambda a: (a / 8).masked_fill(torch.ones(N, N, dtype=torch.bool).triu(1), -torch.inf).softmax(-1), [x()], 0),
    "the same with the mask an input": (
        lambda a, m: (a / 8).masked_fill(m, -torch.inf).softmax(-1), [x(), UPPER], N * (N + 1) // 2 * 4 + N * N),
    "the same for each of a batch": (
        lambda a, m: (a / 8).masked_fill(m, -torch.inf).softmax(-1), [x(3, N, N), UPPER],
        3 * (N * (N + 1) // 2) * 4 + N * N),
    "zeros put into a copy": (put, [x(), ~torch.zeros_like(UPPER)], N * N),
    "a copy filled in place": (lambda a, m: a.clone().masked_fill_(m, 0), [x(), ~torch.zeros_like(UPPER)], N * N),
    "a choice by what is computed": (lambda a, b: torch.where(b > 3, a * 2, 0.0), [x(), x()], N * N * 4),
    "zeros put into another": (
        lambda a, m: a.index_put((m,), torch.tensor(0.0)), [x(), ~torch.zeros_like(UPPER)], N * N),
    "rows put into a copy": (
        lambda a, i, b: a.clone().index_copy_(0, i, b), [x(), torch.arange(16), x(16, N)], 48 * N * 4 + 16 * 8),
}  # fmt: skip


@pytest.mark.parametrize("name", BEHIND)
def test_what_a_mask_hides_is_not_counted_though_it_was_computed_first(name: str) -> None:
    """A program may skip the computation of what a mask leaves out."""
    body, inputs, expected = BEHIND[name]
    found = limits.trace_module(fn(body), [t.clone() for t in inputs], {})
    assert (expected, ()) == (found.input_bytes, found.unused_inputs)
