# SPDX-License-Identifier: Apache-2.0
"""Results on a device are rubbish once they were delivered, but what is no memory of their own."""

from __future__ import annotations

import pytest
import torch
from plain_tasks import instance
from torch import nn

from kernelwright.judge.inputs import Variant
from kernelwright.judge.spoilt import shared, spoil


@pytest.mark.parametrize(
    "dtype", [torch.float32, torch.float16, torch.float8_e4m3fn, torch.complex64, torch.int64, torch.uint8, torch.bool]
)
def test_a_result_is_overwritten_whatever_it_holds(dtype: torch.dtype) -> None:
    """No element stays zero, which is what a program would take for granted."""
    whole, part = torch.zeros(4, 6).to(dtype), torch.zeros(4, 6).to(dtype)
    spoil([[whole], [part[:, ::2]]], (), nn.Identity(), [])
    assert bool((whole.to(torch.complex128) != 0).all()) and bool((part[:, ::2].to(torch.complex128) != 0).all())
    assert not bool((part[:, 1::2].to(torch.complex128) != 0).any())


def test_what_belongs_to_others_stays() -> None:
    """Weights, what the call was given, a leaf that the reference shares too, and one element that is many."""
    module, given, spared, repeated = nn.Linear(3, 3), torch.ones(3), torch.ones(3), torch.ones(1).expand(4)
    spoil([[module.weight.detach(), given[:2], spared, repeated, torch.ones(0)]], {2}, module, [given])
    assert bool((given == 1).all()) and bool((spared == 1).all()) and bool((repeated == 1).all())
    assert bool(module.weight.isfinite().all())


def test_a_table_that_the_reference_holds_is_shared_by_its_calls() -> None:
    made = instance("x + 1, self.table", "[torch.randn(4)]", init="self.table = torch.arange(3)")
    leaves = made.draw(Variant(name="as given", required=True), 1)
    assert {1} == shared(lambda: made.eager(leaves, None))
