# SPDX-License-Identifier: Apache-2.0
"""judge/descent.py: least squares by L-BFGS."""

from __future__ import annotations

import math

import torch

from kernelwright.judge import descent

SMALL, ENOUGH = 2.0**-16, 2.0**-24


def slopes(factors: torch.Tensor, asked: list[float]) -> descent.Error:
    """Squares of so many factors, with their gradient; notes each that is asked for."""

    def error(at: torch.Tensor) -> tuple[float, torch.Tensor]:
        asked.append(float((factors * at).square().mean()))
        return asked[-1], 2 * factors.square() * at / len(at)

    return error


def test_squares_of_several_sizes_become_small() -> None:
    asked = list[float]()
    error = slopes(torch.linspace(0.5, 2.0, 50), asked)
    assert error(descent.least(error, torch.ones(50), 96, small=SMALL, enough=ENOUGH))[0] <= ENOUGH
    assert len(asked) < 40


def test_what_falls_slowly_is_given_up_unless_it_is_near() -> None:
    """Factors of a mask, near zero in many places: near, it goes on until 2^-8 of a side is left, and far it does not;
    nor once there is less."""
    torch.manual_seed(0)
    mask = torch.rand(4096)
    for factor, runs, left in ((1.0, range(60, 100), (64, 128)), (1e3, range(34), (2**16, math.inf)),
                               (0.1, range(34), (1, 64))):  # fmt: skip
        asked = list[float]()
        descent.least(slopes(factor * mask**2, asked), torch.ones(4096), 2000, small=SMALL, enough=ENOUGH)
        assert len(asked) in runs and left[0] < min(asked) / ENOUGH < left[1]


def test_kinds_of_another_slope_are_measured_by_their_own() -> None:
    """As weights that all rows have, beside inputs by the row."""
    asked, left = (list[float](), list[float]()), list[float]()
    factors = torch.cat([torch.linspace(0.08, 0.12, 4096), torch.linspace(0.5, 2.0, 50)])
    for runs, groups in zip(asked, ([], [4096, 50]), strict=True):
        first = torch.cat([torch.full((4096,), 10.0), torch.ones(50)])
        left.append(slopes(factors, [])(descent.least(slopes(factors, runs), first, 96, small=SMALL, enough=ENOUGH,
                                                      groups=groups))[0])  # fmt: skip
    assert max(left) <= SMALL and len(asked[1]) < len(asked[0]) / 2
