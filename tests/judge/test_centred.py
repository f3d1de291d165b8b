# SPDX-License-Identifier: Apache-2.0
"""Variances by Welford's recurrence, one number after the other, far from zero."""

from __future__ import annotations

import pytest
import torch
from plain_tasks import instance

from kernelwright.judge import rounding
from kernelwright.judge.centred import Centred
from kernelwright.judge.inputs import Variant, generator
from kernelwright.judge.verify import Checker

UNIT = 2.0**-24
VARIANCES = ["x.var(-1)", "(x - x.mean(-1, keepdim=True)).square().sum(-1) / (x.shape[-1] - 1)",
             "torch.var_mean(x, -1)[0]"]  # fmt: skip
FAR = Variant(name="far below zero", required=True, change="far", scale=-1000.0)


def welford(x: torch.Tensor) -> torch.Tensor:
    """The variance of each row, from one pass."""
    mean, total = torch.zeros(x.shape[0]), torch.zeros(x.shape[0])
    for count, column in enumerate(x.unbind(-1), 1):
        off = column - mean
        mean = mean + off / count
        total = total + off * (column - mean)
    return total / (x.shape[-1] - 1)


def by_squares(x: torch.Tensor) -> torch.Tensor:
    """The same as a difference of two sums, which cancel."""
    return (x.square().sum(-1) - x.sum(-1).square() / x.shape[-1]) / (x.shape[-1] - 1)


@pytest.mark.parametrize("forward", VARIANCES)
@pytest.mark.parametrize("far", [8.0, 24.0, 100.0])
def test_the_model_covers_what_the_recurrence_errs_by_and_little_more(forward: str, far: float) -> None:
    """Real errors of 2048 rows of 96 numbers beside drawn ones, in RMS: 0.8 of them at the most, 0.5 at the least."""
    x = torch.randn(2048, 96, generator=torch.Generator().manual_seed(1)) + far
    exact = x.double().var(-1)
    with rounding.Rounded(UNIT, generator(2, "cpu")):
        drawn = eval(forward, {"x": x.double(), "torch": torch}) - exact
    real = welford(x).double() - exact
    assert 0.5 < float((real / exact).square().mean().sqrt() / (drawn / exact).square().mean().sqrt()) < 0.85


@pytest.mark.parametrize("forward", VARIANCES[:2])
def test_one_pass_is_honest_and_a_difference_of_sums_is_not(forward: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """60 draws; without the model some of the former are refused."""
    made = instance(forward, "[torch.randn(256, 96)]")

    def refused(program: object) -> int:
        found = 0
        for seed in range(100, 160):
            leaves = made.draw(FAR, seed)
            found += not Checker(made, seed=seed).check(FAR, leaves, None, [program(*leaves)], leaves).passed
        return found

    assert (0, 60) == (refused(welford), refused(by_squares))
    monkeypatch.setattr(Centred, "total", lambda self, mode, values, out, width: out)
    assert refused(welford) > 0


@pytest.mark.parametrize(
    "forward",
    [
        "(x - x.mean()).abs().sum()",
        "x.square().sum() - x.mean()",
        "(x - 24.0).square().sum()",
        "((x - x.mean()) * x).sum()",
    ],
)
def test_other_sums_have_no_mean_to_be_off_by(forward: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is added to what is no sum of squares of distances from a mean."""
    x = torch.randn(4096, generator=torch.Generator().manual_seed(1)).double() + 24.0

    def drawn() -> torch.Tensor:
        with rounding.Rounded(UNIT, generator(2, "cpu")):
            return eval(forward, {"x": x.clone(), "torch": torch})

    before = drawn()
    monkeypatch.setattr(Centred, "total", lambda self, mode, values, out, width: out)
    assert torch.equal(before, drawn())
