# SPDX-License-Identifier: Apache-2.0
"""Quantisers and samples of the nearest pixel: honest programs differ there by a step, and wrong ones are caught."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from plain_tasks import instance

from kernelwright.judge.variants import AS_GIVEN
from kernelwright.judge.verify import Checker

Program = Callable[..., torch.Tensor]
VALUES = "[torch.randn(64, 128) * 4]"
PIXELS = "[torch.randn(4, 3, 16, 12), torch.rand(4, 20, 20, 2) * 2 - 1]"
TENTH = "torch.fake_quantize_per_tensor_affine(x, 0.1, 3, -128, 127)"
QUARTER = "torch.fake_quantize_per_tensor_affine(x, 0.25, 0, -128, 127)"
CHANNELS = "torch.fake_quantize_per_channel_affine(x, torch.full((64,), 0.25), torch.zeros(64).int(), 0, -128, 127)"
GIVEN_SCALES = "torch.fake_quantize_per_channel_affine(x, g, torch.zeros(64).int(), 0, -128, 127)"
PACKED = "torch.quantize_per_channel(x, g.double(), torch.zeros(64).int(), 0, torch.qint8).int_repr()"
PACKED_QUARTER = "torch.quantize_per_tensor(x, 0.25, 3, torch.quint8).int_repr()"
SCALED = "[torch.randn(64, 128) * 4, torch.rand(64) * 0.05 + 0.01]"
NEAREST = "F.grid_sample(x, g, mode='nearest', align_corners=False)"
CORNERS = "F.grid_sample(x, g, mode='nearest', align_corners=True)"


def refused(forward: str, inputs: str, other: Program, draws: int = 4) -> list[str]:
    """The variants, those of borders and as given, on which a program is refused."""
    made = instance(forward, inputs, args="x, g" if inputs.count("torch.") > 1 else "x")
    checker, found = Checker(made, seed=3), []
    for variant in made.offered(1):
        for draw in range(draws if variant.change == "borders" or variant.name == AS_GIVEN else 0):
            leaves = made.draw(variant, draw + 20)
            found += [] if checker.check(variant, leaves, None, [other(*leaves)]).passed else [variant.name]
    return found


def quantised(scale: float, zero: int, divide: bool, round_: Program) -> Program:
    """A quantiser written out."""
    return lambda x: (
        (round_(x / scale if divide else x * (1 / scale)) + zero).clamp(-128, 127) - zero
    ) * scale  # fmt: skip


def by_channel(divide: bool, round_: Program) -> Program:
    """The same with a scale for each channel."""
    return lambda x, g: quantised(g[:, None], 0, divide, round_)(x)  # type: ignore[arg-type]


def packed(divide: bool, round_: Program) -> Program:
    """The whole numbers alone, with a scale for each channel."""

    def codes(x: torch.Tensor, g: torch.Tensor) -> torch.Tensor:
        over = x / g[:, None] if divide else x * (1 / g)[:, None]
        return round_(over).clamp(-128, 127).to(torch.int8)

    return codes


def packed_quarter(round_: Program) -> Program:
    """Those of one scale of few bits, which begin at three; torch adds that before it rounds."""
    return lambda x: round_(x / 0.25 + 3).clamp(0, 255).to(torch.uint8)


def sampled(corners: bool, round_: Program) -> Program:
    """Nearest pixels, and zero outside; the place is made in another order than torch's."""

    def sample(x: torch.Tensor, g: torch.Tensor) -> torch.Tensor:
        high, wide = x.shape[2:]
        places = [
            round_(g[..., axis] * ((size - corners) / 2) + (size - 1) / 2).long()
            for axis, size in enumerate((wide, high))
        ]
        inside = (places[0] >= 0) & (places[0] < wide) & (places[1] >= 0) & (places[1] < high)
        batch = torch.arange(len(x))[:, None, None]
        found = x[batch, :, places[1].clamp(0, high - 1), places[0].clamp(0, wide - 1)]
        return (found * inside[..., None]).permute(0, 3, 1, 2).contiguous()

    return sample


def half_up(x: torch.Tensor) -> torch.Tensor:
    """Not to even."""
    return (x + 0.5).floor()


@pytest.mark.parametrize(
    ("forward", "inputs", "program"),
    [
        (TENTH, VALUES, quantised(0.1, 3, True, torch.round)),
        (QUARTER, VALUES, quantised(0.25, 0, True, torch.round)),
        (CHANNELS, VALUES, quantised(0.25, 0, False, torch.round)),
        (GIVEN_SCALES, SCALED, by_channel(True, torch.round)),
        (GIVEN_SCALES, SCALED, by_channel(False, torch.round)),
        (PACKED, SCALED, packed(True, torch.round)),
        (PACKED, SCALED, packed(False, torch.round)),
        (PACKED_QUARTER, VALUES, packed_quarter(torch.round)),
        (NEAREST, PIXELS, sampled(False, torch.round)),
        (CORNERS, PIXELS, sampled(True, torch.round)),
        (
            "torch.fake_quantize_per_tensor_affine(x, 0.007, 3, -128, 127)",
            VALUES,
            quantised(0.007, 3, True, torch.round),
        ),
    ],
)
def test_programs_with_a_formula_of_their_own_pass(forward: str, inputs: str, program: Program) -> None:
    """What is no number of few bits lies on either side of a step."""
    assert not refused(forward, inputs, program)


@pytest.mark.parametrize(
    ("forward", "inputs", "program"),
    [
        (QUARTER, VALUES, quantised(0.25, 0, True, half_up)),
        (CHANNELS, VALUES, quantised(0.25, 0, False, half_up)),
        (GIVEN_SCALES, SCALED, by_channel(False, torch.trunc)),
        (PACKED, SCALED, packed(False, torch.trunc)),
        (PACKED_QUARTER, VALUES, packed_quarter(half_up)),
        (NEAREST, PIXELS, sampled(False, half_up)),
        (CORNERS, PIXELS.replace("16, 12", "17, 9"), sampled(True, half_up)),
        (NEAREST, PIXELS, sampled(False, torch.trunc)),
    ],
)
def test_halves_are_rounded_to_even(forward: str, inputs: str, program: Program) -> None:
    """And not up: such numbers are planted."""
    assert refused(forward, inputs, program)


def test_scales_of_channels_stay_float32_in_a_float64_oracle() -> None:
    """The operator takes no others; without an oracle an element beside a step was refused, in 3 of 7 proofs."""
    assert instance(GIVEN_SCALES, SCALED, args="x, g").without_double == ""


def test_values_stay_float32_where_a_quantiser_takes_no_others() -> None:
    """Without an oracle x / s was refused in each of three proofs."""
    assert instance(PACKED, SCALED, args="x, g").without_double == ""


@pytest.mark.parametrize(
    ("forward", "inputs", "some"),
    [
        (QUARTER, VALUES, {-32.125, -0.125, 0.125, 0.375, 31.875}),
        (TENTH, VALUES, set()),
        (PACKED_QUARTER, VALUES, {-0.875, -0.125, 0.125, 63.125}),
        (NEAREST, PIXELS, {-1.0, -0.875, 0.0, 0.5, 0.875, 1.0}),
        (NEAREST.replace("nearest", "bilinear"), PIXELS, set()),
    ],
)
def test_the_steps_are_read_from_the_operator(forward: str, inputs: str, some: set[float]) -> None:
    """Halves of a scale with few bits, and places between pixels."""
    made = instance(forward, inputs, args="x, g" if inputs.count("torch.") > 1 else "x")
    assert some <= set(made.met["borders"]) and made.jumps == ("bilinear" not in forward)
    assert bool(some) == bool(made.met["borders"]) or forward is TENTH
