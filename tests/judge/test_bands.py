# SPDX-License-Identifier: Apache-2.0
"""Elements by bands of magnitude: both ways, as comparisons with every bound say."""

from __future__ import annotations

import pytest
import torch

from kernelwright.judge import bands
from kernelwright.judge.floors import BANDS

SIZES = {
    "normal": torch.randn(5000, dtype=torch.float64, generator=torch.Generator().manual_seed(1)).abs(),
    "wide": torch.rand(3000, dtype=torch.float64, generator=torch.Generator().manual_seed(2)) ** 20,
    "on bounds": torch.tensor([16.0**-k * (1 + e) for k in range(14) for e in (-1e-15, 0, 1e-15)][1:] + [1.0, 0.0]),
    "one": torch.full((7,), 3.5, dtype=torch.float64),
}


@pytest.mark.parametrize("name", SIZES)
def test_both_ways_find_what_each_bound_says(name: str) -> None:
    """Band by band: how many, and which."""
    sizes = SIZES[name].to(torch.float64)
    top = float(sizes.max())
    expected = sum((sizes <= top * 16.0**-band).to(torch.int64) for band in range(1, BANDS))
    counts = torch.bincount(torch.as_tensor(expected), minlength=BANDS).tolist()
    order, ordered = bands.in_order(sizes, top)
    assert counts == ordered
    assert torch.equal(expected[order.long()], expected.sort().values)  # type: ignore[index,union-attr]
    assert sorted(order.tolist()) == list(range(sizes.numel()))
    if name != "on bounds":  # there a quotient rounds across one
        found, counted = bands.banded(sizes.numpy(), top)
        assert counts == counted and torch.equal(found.long(), expected)  # type: ignore[arg-type]
