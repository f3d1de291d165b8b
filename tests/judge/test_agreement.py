# SPDX-License-Identifier: Apache-2.0
"""Whether two runs agree as far as rounding lets them."""

from __future__ import annotations

import torch

from kernelwright.judge import agreement


def test_rounding_is_not_randomness() -> None:
    """Atomics move results by ulps; a random mask moves them by themselves."""
    x = torch.rand(64)
    assert not agreement.differ([x], [x * (1 + 2**-22)])
    assert agreement.differ([x], [x * 1.01])
    assert agreement.differ([torch.arange(3)], [torch.arange(3) + 1])


def test_the_first_difference_is_shown() -> None:
    """Output, element and both values."""
    a, b = torch.zeros(4), torch.tensor([0.0, 0.0, 2.0, 3.0])
    assert "output 0, element 2: 0.0 and 2.0" == agreement.first_difference([a], [b])


def test_nan_equals_nan() -> None:
    """Constant inputs may hold NaN."""
    assert agreement.same(torch.tensor([float("nan")]), torch.tensor([float("nan")]))
