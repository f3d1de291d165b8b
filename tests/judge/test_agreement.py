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
    nan, mixed = torch.tensor([float("nan")]), torch.tensor([1.0, float("nan")])
    assert agreement.same(nan, nan.clone()) and agreement.same(mixed, mixed.clone())
    assert not agreement.same(nan, torch.zeros(1))  # and nothing else does
    assert not agreement.same(mixed, torch.tensor([2.0, float("nan")]))
    assert not agreement.same(torch.ones(2), torch.tensor([1.0, float("inf")]))
    assert not agreement.same(torch.ones(2), torch.ones(2, dtype=torch.float64))
    assert agreement.same(torch.tensor([True]), torch.tensor([True]))


def test_eight_bits_agree_with_themselves_and_with_no_others() -> None:
    """Of which torch compares no tensor with itself."""
    one = torch.tensor([1.0, float("nan"), -2.0]).to(torch.float8_e4m3fn)
    other = torch.tensor([1.0, float("nan"), 2.0]).to(torch.float8_e4m3fn)
    for same in (agreement.same, agreement.same_bits):
        assert same(one, one) and same(one, one.clone()) and not same(one, other)
