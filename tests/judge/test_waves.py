# SPDX-License-Identifier: Apache-2.0
"""Fourier transforms and complex numbers: computed another way they pass, with less precision they do not."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from plain_tasks import instance

from kernelwright.judge.inputs import Variant
from kernelwright.judge.yardstick import Magnitudes

GIVEN = Variant(name="as given", required=True)
SIZE = 256


def ratio(forward: str, inputs: str, other: Callable[..., torch.Tensor], args: str = "x", seed: int = 3) -> float:
    """The error (RMS) of another program over the honest one; 2 is allowed."""
    made = instance(forward, inputs, args=args)
    leaves = made.draw(GIVEN, seed)
    exact, _ = made.oracle(leaves, None)
    floor = made.floors(leaves, None, list(map(Magnitudes, exact))).whole(0)
    found = other(*leaves)
    got, want = (torch.view_as_real(t) if t.is_complex() else t for t in (found, exact[0]))
    return float((got.double() - want).square().mean().sqrt()) / floor.rms


def table(kind: torch.dtype) -> tuple[torch.Tensor, torch.Tensor]:
    """Cosines and sines of a transform of SIZE elements, their angles in one precision, the values in float32."""
    i = torch.arange(SIZE)
    angles = (i[:, None] * i[None, : SIZE // 2 + 1]).to(kind) * (-2 * math.pi / SIZE)
    return angles.cos().float(), angles.sin().float()


def by_products(x: torch.Tensor) -> torch.Tensor:
    """rfft as two products of matrices."""
    cos, sin = table(torch.float64)
    return torch.complex(x @ cos, x @ sin)


def by_rough_angles(x: torch.Tensor) -> torch.Tensor:
    """The same with angles of up to 800 in float32."""
    cos, sin = table(torch.float32)
    return torch.complex(x @ cos, x @ sin)


def by_halves(x: torch.Tensor) -> torch.Tensor:
    """The same of inputs rounded to 16 bits."""
    return by_products(short(x))


def short(x: torch.Tensor) -> torch.Tensor:
    """The same numbers with 16 bits."""
    return x.bfloat16().float() + (x - x.bfloat16().float()).bfloat16().float()


def direct(u: torch.Tensor, k: torch.Tensor) -> torch.Tensor:
    """A causal convolution as sums of products."""
    return F.conv1d(F.pad(u, (SIZE - 1, 0)), k.flip(-1)[:, None], groups=k.shape[0])


RFFT = ("torch.fft.rfft(x)", f"[torch.randn(32, {SIZE})]")
LONG = (
    f"torch.fft.irfft(torch.fft.rfft(u, n={2 * SIZE}) * torch.fft.rfft(k, n={2 * SIZE}), n={2 * SIZE})[..., :{SIZE}]",
    f"[torch.randn(4, 16, {SIZE}), torch.randn(16, {SIZE})]",
)


def test_a_transform_may_be_a_product_of_matrices() -> None:
    """Each element is a sum of as many products; torch's own transform errs by a third of that."""
    assert ratio(*RFFT, by_products) < 1.2
    assert ratio(*RFFT, torch.fft.rfft) < 0.6


@pytest.mark.parametrize("program", [by_rough_angles, by_halves])
def test_a_transform_of_lower_precision_is_refused(program: Callable[..., torch.Tensor]) -> None:
    """Angles that were rounded as large numbers, inputs of 16 bits."""
    assert ratio(*RFFT, program) > 3.0


def test_a_convolution_by_transforms_may_be_the_sums_it_stands_for() -> None:
    """Torch's own convolution lost 1.2 to 1.9 bits against the reference by transforms."""
    assert ratio(*LONG, direct, args="u, k") < 1.2
    assert ratio(*LONG, lambda u, k: direct(u.bfloat16().float(), k), args="u, k") > 100.0
    assert ratio(*LONG, lambda u, k: direct(short(u), k), args="u, k") > 2.2


def test_rows_and_columns_of_transforms_are_scaled_alike() -> None:
    """A transform of two dimensions and its inverse, divided at either end or at both."""
    for norm in ("backward", "ortho", "forward"):
        text = f"torch.fft.irfft2(torch.fft.rfft2(x, norm='{norm}') * 0.7, norm='{norm}')"
        assert 0.1 < ratio(text, "[torch.randn(4, 32, 32)]", lambda x: x * 0.7 * (1 + 2e-7)) < 1.0
        assert ratio(text, "[torch.randn(4, 32, 32)]", lambda x: x * 0.7 * (1 + 1e-5)) > 3.0


def test_complex_products_err_by_their_modulus_and_sums_by_their_parts() -> None:
    """Three real products for four, and a sum whose small part is rounded by its own size."""
    pair = "[torch.randn(24, 48, dtype=torch.complex64), torch.randn(48, 16, dtype=torch.complex64)]"

    def gauss(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        p, q, r = a.real @ b.real, a.imag @ b.imag, (a.real + a.imag) @ (b.real + b.imag)
        return torch.complex(p - q, r - p - q)

    assert ratio("a @ b", pair, gauss, args="a, b") < 1.6
    assert ratio("a @ b", pair, lambda a, b: gauss(a * (1 + 3e-5), b), args="a, b") > 10.0
    thin = "[torch.randn(64, 64), torch.randn(64, 64) * 1e-6]"
    text = "torch.complex(a, b).sum(-1).imag.clone()"
    assert ratio(text, thin, lambda a, b: b.sum(-1), args="a, b") < 1.2
    assert ratio(text, thin, lambda a, b: b.bfloat16().float().sum(-1), args="a, b") > 100.0
