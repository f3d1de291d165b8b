# SPDX-License-Identifier: Apache-2.0
"""Random outputs of honest programs that are rounded otherwise, and such as are wrong by little."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F

from kernelwright.judge import atoms, distribution

RUNS = distribution.RUNS + distribution.HELD_OUT
Answer = Callable[[torch.Tensor], torch.Tensor]


def kept(x: torch.Tensor) -> torch.Tensor:
    """What a dropout at 0.25 keeps of 1."""
    return torch.rand_like(x) >= 0.25


def both(answer: Answer, x: torch.Tensor, gradient: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """A result and the gradient of its input."""
    x = x.clone().requires_grad_()
    result = answer(x)
    result.backward(gradient)
    assert x.grad is not None
    return result.detach(), x.grad


class Other(torch.autograd.Function):
    """A dropout of a relu: the factor for the gradient is given, by whether the result is positive."""

    @staticmethod
    def forward(ctx, x, backward):
        ctx.save_for_backward(result := F.dropout(F.relu(x), 0.25))
        ctx.by = backward
        return result

    @staticmethod
    def backward(ctx, gradient):
        return ctx.by(gradient, ctx.saved_tensors[0] > 0), None


def related(by: Callable[[torch.Tensor, torch.Tensor], torch.Tensor], dtype: torch.dtype) -> list[str]:
    """What is said in five calls of a gradient that is made ``by`` a function, beside its result."""
    torch.manual_seed(1)
    said = []
    for _ in range(5):
        x, gradient = torch.randn(2, 64, 64).to(dtype)
        runs = [both(lambda x: F.dropout(F.relu(x), 0.25), x, gradient) for _ in range(RUNS)]
        got = both(lambda x: Other.apply(x, by), x, gradient)
        said.append(distribution.unrelated(got, list(zip(*runs, strict=True)), ["one", "two"]))
    return said


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_a_gradient_that_is_rounded_otherwise_belongs_to_its_result(dtype: torch.dtype) -> None:
    """Divided by 0.75 and not multiplied by 1 / 0.75: its correlation with the result was 0.67 for 1.00, where it was
    one ulp off. One by a mask of its own is refused as ever, and one of which a fifth is."""
    assert [""] * 5 == related(lambda g, m: g * m / 0.75, dtype)
    assert [""] * 5 == related(lambda g, m: g * (m * (1 / 0.75)).to(g.dtype), dtype)
    assert all(related(lambda g, m: g * (kept(g) & kept(g)) / 0.75, dtype))
    assert all(related(lambda g, m: g * torch.where(torch.rand(g.shape) < 0.2, m.flip(0), m) / 0.75, dtype))


def found(reference: Answer, answer: Answer, dtype: torch.dtype, shape: tuple[int, int] = (64, 64)) -> list[str]:
    """What is said of three answers."""
    torch.manual_seed(2)
    said = []
    for _ in range(3):
        x = torch.randn(shape).to(dtype)
        said.append(distribution.differs(answer(x), [reference(x) for _ in range(RUNS)]))
    return said


def test_sums_in_another_order_are_dropped_alike() -> None:
    """Near zero they lie hundreds of their own roundings apart: a rank of 0.091 beyond, at most 0.035 expected. Wrong
    in the fourth digit they are refused."""
    torch.manual_seed(3)
    w = torch.randn(1024, 256)

    def exact(x: torch.Tensor) -> torch.Tensor:
        return (x.double() @ w.double()).float()

    shape = (64, 1024)
    assert [""] * 3 == found(
        lambda x: F.dropout(x @ w, 0.25), lambda x: F.dropout(exact(x), 0.25), torch.float32, shape
    )
    assert all(found(lambda x: F.dropout(x @ w, 0.25), lambda x: F.dropout(x @ w, 0.25) * 1.0002, torch.float32, shape))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_noise_of_few_numbers_is_not_refused_as_its_own_replacement(dtype: torch.dtype) -> None:
    """In half precision a run often has what another has: only the candidate's was moved there, and lay too near. No
    noise, or twice as much, is refused even where it is a rounding or two."""
    for least in (0.01, 1.0):
        law = lambda x, by=least: 1 + x + by * torch.randn_like(x)  # noqa: E731
        assert [""] * 3 == found(law, law, dtype)
        assert all(found(law, lambda x: 1 + x, dtype))
        assert all(found(law, lambda x, by=least: 1 + x + 2 * by * torch.randn_like(x), dtype))


def test_one_number_that_is_the_same_in_all_runs_is_held_to_its_own_size() -> None:
    """Beside those of 1e6, rounding of 0.06 is no excuse for it; where an element varies its range is."""
    runs = torch.tensor([[1.0, 1e6, 0.0], [1.0, 0.0, 1e-3], [1.0, 1e6, 1e-3]], dtype=torch.float64)
    near = atoms.close(runs, torch.float32)
    assert near[0] < 1e-5
    assert 1.0 < near[1] < 10.0
    assert near[2] == 1e-3 / 32
    assert not atoms.close(runs, torch.int64).any()


def test_sums_that_are_the_same_in_all_runs_may_be_in_another_order() -> None:
    """Beside halves of a gradient that are random, as a head's for mean and variance: near zero lie sums that are many
    of their own roundings off, and a float32 that passed through bfloat16 is more."""
    torch.manual_seed(1)
    terms = torch.randn(256, 32, 24)
    alone, other = terms.sum(0), terms.flip(0).view(16, 16, 32, 24).sum(0).sum(0)

    def both_halves(one: torch.Tensor) -> torch.Tensor:
        return torch.cat([one, torch.randn(32, 24)])

    runs = [both_halves(alone) for _ in range(RUNS)]
    assert float(((other - alone).abs() > 4 * 2.0**-23 * alone.abs()).float().mean()) > 0.05
    assert distribution.differs(both_halves(other), runs) == ""
    assert distribution.differs(both_halves(alone.bfloat16().float()), runs)


def test_zeros_of_all_runs_may_be_rounding() -> None:
    """A slope in the tail of a GELU is 0 by erf and -4e-14 by erfc; a number that is a thousandth is none."""
    x = torch.randn(64, 200, generator=torch.Generator().manual_seed(1)) * 10

    def slope(tail: float) -> torch.Tensor:
        return torch.where(x < -7, tail, 1.0) * x.abs() * (torch.rand(x.shape) >= 0.25) / 0.75

    runs = [slope(0.0) for _ in range(36)]
    assert distribution.differs(slope(-4e-15), runs) == "" == distribution.differs(slope(0.0), runs)
    assert distribution.differs(slope(-1e-3), runs)


def test_values_are_made_the_same_no_further_than_they_are_close() -> None:
    """A chain of them is not one number."""
    runs = torch.tensor([0.0, 2.75, 1.0, 1.5, 0.5], dtype=torch.float64)[:, None]
    assert [0.0, 2.75, 0.0, 1.5, 0.0] == atoms.leveled(runs, torch.ones(1, dtype=torch.float64)).flatten().tolist()
