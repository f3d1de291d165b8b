# SPDX-License-Identifier: Apache-2.0
"""Cubic interpolations whose weights are made by the formula that kernels are written from."""

from __future__ import annotations

import pytest
import torch
from plain_tasks import instance

from kernelwright.judge import rounding
from kernelwright.judge.inputs import Variant
from kernelwright.judge.verify import Checker

A = -0.75
FAR = Variant(name="far from zero", required=True, change="far")
FORWARD = "F.interpolate(x, size=(11, 11), mode='bicubic', align_corners=True)"


def weights(t: torch.Tensor) -> list[torch.Tensor]:
    """Of the four numbers around a place that lies ``t`` (from 0 to 1) after the second."""

    def outer(x: torch.Tensor) -> torch.Tensor:
        return ((A * x - 5 * A) * x + 8 * A) * x - 4 * A

    def inner(x: torch.Tensor) -> torch.Tensor:
        return ((A + 2) * x - (A + 3)) * x * x + 1

    return [outer(t + 1), inner(t), inner(1 - t), outer(2 - t)]


def along(x: torch.Tensor, dim: int) -> torch.Tensor:
    """Eleven places along one axis."""
    most = x.shape[dim] - 1
    place = torch.arange(11) * (most / 10)
    start = place.floor()
    shape = [-1 if axis == dim else 1 for axis in range(x.dim())]
    parts = zip(range(-1, 3), weights(place - start), strict=True)
    return sum(x.index_select(dim, (start + at).clamp(0, most).long()) * w.view(shape) for at, w in parts)


def of_16_bits(x: torch.Tensor) -> torch.Tensor:
    """The same numbers with 16 bits."""
    high = x.bfloat16().float()
    return high + (x - high).bfloat16().float()


def refused(short: bool) -> int:
    """In how many of eight draws."""
    made, found = instance(FORWARD, "[torch.randn(2, 4, 7, 7)]"), 0
    for seed in range(8):
        leaves = made.draw(FAR, seed)
        got = along(along(of_16_bits(leaves[0]) if short else leaves[0], 2), 3)
        found += not Checker(made, seed=seed).check(FAR, leaves, None, [got], leaves).passed
    return found


def test_rows_and_columns_one_after_the_other_are_honest(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the weights are held to be exact, each draw is refused; of numbers of 16 bits so or so."""
    assert (0, 8) == (refused(short=False), refused(short=True))
    monkeypatch.delitem(rounding._SUMS, torch.ops.aten.upsample_bicubic2d.default)
    assert refused(short=False) == 8


def test_the_weights_are_off_by_what_is_measured() -> None:
    """Of one number throughout the drawn error is that of the weights of both axes."""
    t = torch.rand(100_000, generator=torch.Generator().manual_seed(1))
    off = sum(weight.double() for weight in weights(t)) - 1.0
    real = float(off.square().mean().sqrt()) * 2.0**24 * 2**0.5
    x = torch.ones(64, 4, 7, 7, dtype=torch.float64)
    with rounding.Rounded(2.0**-24, torch.Generator().manual_seed(2)):
        drawn = torch.nn.functional.interpolate(x, size=(11, 11), mode="bicubic") - 1.0
    assert 0.8 < float(drawn.square().mean().sqrt()) * 2.0**24 / real < 1.2


def matrix(n: int, k: int, short: bool) -> torch.Tensor:
    """The weights of ``k`` places among ``n`` numbers; ``short``: of places in half precision."""
    place = ((torch.arange(k) + 0.5) * (n / k) - 0.5).clamp(min=0)
    place = place.half().float() if short else place
    first = place.floor().long().clamp(max=n - 1)
    part = (place - first)[:, None]
    return torch.eye(n)[first] * (1 - part) + torch.eye(n)[(first + 1).clamp(max=n - 1)] * part


def errors(short: bool) -> list[float]:
    """Of two matrices in 60 draws with outliers, in honest errors."""
    made = instance("F.interpolate(x, size=(24, 27), mode='bilinear')", "[torch.randn(2, 4, 16, 18)]")
    outliers = Variant(name="outliers", required=True, change="outliers")
    rows, columns, found = matrix(16, 24, short), matrix(18, 27, short), list[float]()
    for seed in range(60):
        leaves = made.draw(outliers, seed)
        got = rows @ leaves[0] @ columns.T
        found.append(Checker(made, seed=seed).check(outliers, leaves, None, [got], leaves).error_ratio)
    return found


def test_two_matrices_are_honest_beside_outliers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where places are held to be exact they come near the 2 that is allowed; in half precision far beyond."""
    assert max(errors(short=False)) < 1.1
    assert min(errors(short=True)) > 4.0
    monkeypatch.delitem(rounding._SUMS, torch.ops.aten.upsample_bilinear2d.default)
    assert max(errors(short=False)) > 1.2


@pytest.mark.parametrize(("sizes", "mode"), [((9,), "linear"), ((5, 6), "bilinear"), ((3, 4, 5), "trilinear")])
def test_a_place_is_off_by_what_is_drawn(sizes: tuple[int, ...], mode: str) -> None:
    """Torch's own error in float32 is of that size, along one axis, two and three; equal numbers have none of it."""
    x = torch.randn(8, 4, *sizes, generator=torch.Generator().manual_seed(1))
    size = [2 * n + 3 for n in sizes]
    exact = torch.nn.functional.interpolate(x.double(), size=size, mode=mode)
    real = (torch.nn.functional.interpolate(x, size=size, mode=mode) - exact).square().mean().sqrt()
    with rounding.Rounded(2.0**-24, torch.Generator().manual_seed(2)):
        drawn = torch.nn.functional.interpolate(x.double(), size=size, mode=mode)
        alike = torch.nn.functional.interpolate(torch.ones_like(x).double(), size=size, mode=mode)
    assert 0.7 < float((drawn - exact).square().mean().sqrt() / real) < 4.0
    assert float((alike - 1.0).abs().max()) < 2.0**-21


def test_places_of_half_precision_are_those_of_float32() -> None:
    """Else numbers that alternate could be off by 3 % where their own rounding is a 2000th."""
    x = torch.ones(1, 1, 64, dtype=torch.float64)
    x[..., ::2] = -1.0
    exact = torch.nn.functional.interpolate(x, size=150, mode="linear")
    with rounding.Rounded(2.0**-11, torch.Generator().manual_seed(2)):
        drawn = torch.nn.functional.interpolate(x, size=150, mode="linear")
    assert 0.0 < float((drawn - exact).abs().max()) < 4 * 2.0**-11
