# SPDX-License-Identifier: Apache-2.0
"""Sums that are added up in a tree: the error of one running sum over their leaves, and no more beside a residual."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

from kernelwright.judge import rounding, trees
from kernelwright.judge.inputs import generator

UNIT = 2.0**-24
Made = Callable[[torch.Tensor], torch.Tensor]


def butterflies(x: torch.Tensor, factor: float = 1.0) -> torch.Tensor:
    """A Walsh-Hadamard transform of the last axis, each level times a factor."""
    width = 1
    while width < x.shape[-1]:
        a, b = x.unflatten(-1, (-1, 2, width)).unbind(-2)
        x = torch.stack([a + b, a - b], -2).flatten(-3) * factor
        width *= 2
    return x


def halves(x: torch.Tensor) -> torch.Tensor:
    """A sum over the last axis, halves added to halves."""
    while x.shape[-1] > 1:
        a, b = x.chunk(2, -1)
        x = a + b
    return x


def residuals(x: torch.Tensor) -> torch.Tensor:
    """A stream that four branches are added to, each of it alone."""
    for _ in range(4):
        x = x + x.tanh()
    return x


def off(made: Made, values: torch.Tensor) -> float:
    """How far the drawn results lie from the exact ones, in roundings of their size (RMS)."""
    with rounding.Rounded(UNIT, generator(3, "cpu")), torch.no_grad():
        drawn = made(values.clone())
    exact = made(values)
    return float((drawn - exact).square().mean().sqrt() / exact.square().mean().sqrt()) / UNIT


VALUES = torch.randn(64, 256, generator=torch.Generator().manual_seed(2)).double()


@pytest.mark.parametrize("made", [butterflies, lambda x: butterflies(x, 0.5**0.5), halves])
def test_a_tree_errs_as_one_running_sum_over_its_leaves_does(made: Made) -> None:
    expected = rounding.ROUND * (256 / 2 + 256 / 3) ** 0.5
    assert 0.8 * expected < off(made, VALUES) < 1.25 * expected


def test_a_product_with_the_matrix_is_as_honest_as_the_butterflies() -> None:
    matrix = butterflies(torch.eye(256))
    values = VALUES.float()
    error = (values @ matrix).double() - butterflies(VALUES.float().double())
    assert float(error.square().mean().sqrt()) < UNIT * 16 * off(butterflies, VALUES)


def test_a_residual_stream_is_no_tree() -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(trees, "HELD", 0)
        plain = off(residuals, VALUES)
    assert off(residuals, VALUES) == plain
