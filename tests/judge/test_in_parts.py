# SPDX-License-Identifier: Apache-2.0
"""Random numbers of large inputs, drawn in parts."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from kernelwright.judge import in_parts, lanes
from kernelwright.judge.in_parts import InParts

N = in_parts.LARGE


def drawn(draw: Any, seed: int = 1) -> torch.Tensor:
    torch.manual_seed(seed)
    with InParts():
        made: torch.Tensor = draw()
    return made


@pytest.mark.parametrize(
    ("draw", "mean", "std"), [(lambda: torch.randn(2, N), 0.0, 1.0), (lambda: torch.rand((N, 2)), 0.5, 12**-0.5)]
)
def test_the_numbers_are_of_that_law_and_no_part_is_another_one(draw: Any, mean: float, std: float) -> None:
    """What is drawn once more without a seed in between is another one."""
    first = drawn(draw)
    assert first.shape in ((2, N), (N, 2)) and first.is_contiguous() and first.dtype is torch.float32
    assert abs(float(first.mean()) - mean) < 5e-3 and abs(float(first.std()) - std) < 5e-3
    starts = torch.stack([part[:64] for part in first.view(-1).tensor_split(in_parts.PARTS)])
    assert len(torch.unique(starts)) > 0.99 * starts.numel()
    assert torch.equal(first, drawn(draw)) and not torch.equal(first, drawn(draw, 2))
    with InParts():
        assert not torch.equal(draw(), draw())


def test_they_are_the_same_in_one_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    """In a fork there is one, and machines differ in how many they have."""
    several = drawn(lambda: torch.randn(N))
    monkeypatch.setattr(lanes, "_hands", lambda: (None, 1))
    assert torch.equal(several, drawn(lambda: torch.randn(N)))


def test_what_is_small_or_asks_for_something_else_is_torchs_own() -> None:
    """A generator of the task's own, a complex law, another memory."""
    out = torch.empty(N)
    for draw in (
        lambda: torch.randn(N - 1),
        lambda: torch.randn(N, generator=torch.Generator().manual_seed(3)),
        lambda: torch.randn(N, dtype=torch.complex64),
        lambda: torch.randn(N, out=out).clone(),
        lambda: torch.rand(8, 8, requires_grad=True).detach(),
        lambda: torch.randint(9, (N,)),
        lambda: torch.randn(N, device="meta").new_zeros((), device="cpu"),
    ):
        torch.manual_seed(1)
        assert torch.equal(draw(), drawn(draw))


def test_types_and_gradients_are_kept() -> None:
    """As torch would make them."""
    made = drawn(lambda: torch.randn(N, dtype=torch.bfloat16, requires_grad=True))
    assert made.dtype is torch.bfloat16 and made.requires_grad and made.is_leaf and made.grad_fn is None
    assert drawn(lambda: torch.rand(size=(4, N), dtype=torch.float64)).dtype is torch.float64
