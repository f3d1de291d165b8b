# SPDX-License-Identifier: Apache-2.0
"""Operators of many steps: honest programs take them one after the other, and round each."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from plain_tasks import instance

from kernelwright.judge import rounding
from kernelwright.judge.inputs import generator
from kernelwright.judge.verify import Checker

Program = Callable[[torch.Tensor], torch.Tensor]
LONG = "[torch.randn(64, 200)]"
SYMMETRIC = "[(lambda a: (a + a.mT) / 2)(torch.randn(4, {0}, {0}))]"
NAMES = ("as given", "negated", "sparser", "scale 0.001", "far below zero", "shifted", "far from zero", "rearranged")


def worst(forward: str, inputs: str, other: Program) -> float:
    """The largest error of a program over the honest one, in some variants."""
    made, found = instance(forward, inputs), [0.0]
    checker = Checker(made, seed=3)
    for variant in made.offered(1):
        for draw in range(3 if variant.name in NAMES and made.usable(variant, 1) else 0):
            leaves = made.draw(variant, draw + 20)
            found.append(checker.check(variant, leaves, None, [other(*leaves)]).error_ratio)
    return max(found)


def one_by_one(x: torch.Tensor) -> torch.Tensor:
    """A running sum of exponentials, in logarithms."""
    sums = [x[..., 0]]
    for place in range(1, x.shape[-1]):
        sums.append(torch.logaddexp(sums[-1], x[..., place]))
    return torch.stack(sums, -1)


def beside_the_largest(x: torch.Tensor) -> torch.Tensor:
    """The same, as the largest so far and a sum of what is left of it."""
    top, total = x[..., 0], torch.ones_like(x[..., 0])
    sums = [top]
    for place in range(1, x.shape[-1]):
        new = torch.maximum(top, x[..., place])
        total, top = total * (top - new).exp() + (x[..., place] - new).exp(), new
        sums.append(top + total.log())
    return torch.stack(sums, -1)


@pytest.mark.parametrize(
    ("forward", "inputs", "program"),
    [
        ("torch.logcumsumexp(x, -1)", LONG, one_by_one),
        ("torch.logcumsumexp(x, -1)", LONG, beside_the_largest),
        *(("torch.linalg.eigvalsh(x, UPLO='U')", SYMMETRIC.format(n), torch.linalg.eigvalsh) for n in (8, 24)),
    ],
)
def test_each_step_is_rounded(forward: str, inputs: str, program: Program) -> None:
    """Running sums of 200 elements were refused at 6 times, and eigenvalues of the other triangle at 3.6 times the
    honest error: of one rounding of each result."""
    assert worst(forward, inputs, program) <= 2.0


@pytest.mark.parametrize(
    ("forward", "inputs", "program"),
    [
        ("torch.logcumsumexp(x, -1)", LONG, lambda x: one_by_one(x.half().float())),
        ("torch.logcumsumexp(x, -1)", LONG, lambda x: one_by_one(x.bfloat16()).float()),
        ("torch.logcumsumexp(x, -1)", LONG, lambda x: x.exp().cumsum(-1).log()),
        ("torch.linalg.eigvalsh(x)", SYMMETRIC.format(64), lambda x: torch.linalg.eigvalsh(x.half().float())),
        ("torch.linalg.svdvals(x)", SYMMETRIC.format(64), lambda x: torch.linalg.eigvalsh(x.mT @ x).sqrt().flip(-1)),
    ],
)
def test_fewer_bits_and_worse_formulas_are_not(forward: str, inputs: str, program: Program) -> None:
    """Halves, sums without a maximum, and the square of a matrix."""
    assert not worst(forward, inputs, program) <= 2.0


def test_a_product_may_be_one_running_product() -> None:
    """Factors near one all round the same way: a cumulative product of 192 of them was refused in each judgement."""

    def running(x: torch.Tensor) -> torch.Tensor:
        factors = 1 + 0.01 * x
        made = [factors[..., 0]]
        for place in range(1, x.shape[-1]):
            made.append(made[-1] * factors[..., place])
        return torch.stack(made, -1)

    assert worst("(1 + 0.01 * x).cumprod(-1)", LONG, running) < 2.0
    halved = worst("(1 + 0.01 * x).cumprod(-1)", LONG, lambda x: (1 + 0.01 * x).half().float().cumprod(-1))
    assert halved > 100.0


@pytest.mark.parametrize("made", [lambda x: x.prod(), lambda x: x.prod(-1), lambda x: x.cumprod(-1)])
def test_factors_that_are_powers_of_two_round_nothing(made: Program) -> None:
    values = torch.full((3, 8), 0.5, dtype=torch.float64)
    with rounding.Rounded(2.0**-24, generator(3, "cpu")):
        drawn = made(values)
    assert float((drawn / made(values) - 1).abs().max()) <= 2.0**-22


LABELS = (torch.arange(80).reshape(8, 10) * 7) % 19 + 1
CTC = (
    "torch.nn.functional.ctc_loss(x.log_softmax(-1), (torch.arange(80).reshape(8, 10) * 7) % 19 + 1, [40] * 8,"
    " [10] * 8, reduction='none')"
)
FRAMES = "[torch.randn(40, 8, 20)]"


def frame_by_frame(x: torch.Tensor) -> torch.Tensor:
    """CTC's losses by pairs of logarithms."""
    states = torch.zeros(8, 21, dtype=torch.int64)
    states[:, 1::2] = LABELS
    far = torch.full((8, 21), -torch.inf, dtype=x.dtype)
    skips = torch.zeros(8, 21, dtype=torch.bool)
    skips[:, 3::2] = LABELS[:, 1:] != LABELS[:, :-1]
    logs = x.log_softmax(-1)
    alpha = torch.where(torch.arange(21) < 2, logs[0].gather(1, states), far)
    for frame in logs[1:]:
        before = torch.logaddexp(alpha, torch.cat([far[:, :1], alpha[:, :-1]], 1))
        skipped = torch.where(skips, torch.cat([far[:, :2], alpha[:, :-2]], 1), far)
        alpha = torch.logaddexp(before, skipped) + frame.gather(1, states)
    return -torch.logaddexp(alpha[:, -1], alpha[:, -2])


def test_ctc_is_rounded_at_each_frame() -> None:
    """With one rounding of each loss a program of the same steps was refused in 5 judgements of 5."""
    assert worst(CTC, FRAMES, frame_by_frame) <= 2.0


@pytest.mark.parametrize(
    "program",
    [
        lambda x: frame_by_frame(x.bfloat16()).float(),
        lambda x: frame_by_frame(x.half().float()),
        lambda x: frame_by_frame(x) + 1e-4,
        lambda x: frame_by_frame(x) * (1 + 2e-6),
    ],
)
def test_ctc_of_fewer_bits_is_not(program: Program) -> None:
    assert not worst(CTC, FRAMES, program) <= 2.0


def ctc(logs: torch.Tensor, lengths: list[int], tensors: bool) -> list[torch.Tensor]:
    """CTC's losses and gradients."""
    logs = logs.clone().requires_grad_()
    given = lengths, [min(10, lengths[0] // 2)] * 8
    lying = tuple(torch.tensor(part) for part in given) if tensors else given
    loss = torch.nn.functional.ctc_loss(logs, LABELS, *lying, reduction="none", zero_infinity=True)
    return [loss.detach(), torch.autograd.grad(loss.sum(), logs)[0]]


@pytest.mark.parametrize("tensors", [False, True])
@pytest.mark.parametrize("frames", [3, 40, 200])
def test_what_ctc_is_moved_by_is_what_float32_errs_by(frames: int, tensors: bool) -> None:
    """Of losses and gradients, of shorter ones too."""
    rng, ratios = generator(5, "cpu"), []
    for draw in range(8):
        logs, lengths = torch.randn(frames, 8, 20, generator=rng).log_softmax(-1), [frames] * 6 + [frames - 1] * 2
        exact, single = ctc(logs.double(), lengths, tensors), ctc(logs, lengths, tensors)
        with rounding.Rounded(2.0**-24, generator(draw, "cpu")):
            drawn = ctc(logs.double(), lengths, tensors)
        off = [[float((a - b).norm()) for a, b in zip(other, exact, strict=True)] for other in (single, drawn)]
        ratios.append([mine / theirs for mine, theirs in zip(*off, strict=True)])
        assert not bool(drawn[1][-1, 6:].any())
    for mean in torch.tensor(ratios).mean(0).tolist():
        assert 0.2 < mean < 1.3
