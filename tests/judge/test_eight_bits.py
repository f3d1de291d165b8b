# SPDX-License-Identifier: Apache-2.0
"""judge/eight_bits.py: floats of eight bits have codes that numbers by lot never have."""

from __future__ import annotations

import pytest
import torch
from plain_tasks import instance

from kernelwright.judge import agreement, eight_bits
from kernelwright.judge.inputs import Variant, generator

KINDS = ("float8_e4m3fn", "float8_e5m2")


@pytest.mark.parametrize("kind", KINDS)
def test_every_number_of_the_format_comes_and_no_other(kind: str) -> None:
    """A program that cut off at 240 was right on all that is quantised from usual numbers."""
    made = instance("x.float() * 2", f"[torch.randn(64, 64).to(torch.{kind})]")
    [variant] = [v for v in made.offered(3) if v.change == eight_bits.CODES]
    [leaf] = made.draw(variant, 5)
    numbers = leaf.float()
    assert leaf.dtype is getattr(torch, kind) and bool(numbers.isfinite().all())
    ends = torch.finfo(leaf.dtype)
    assert (ends.min, ends.max) == (float(numbers.min()), float(numbers.max()))
    every = torch.arange(256, dtype=torch.uint8).view(leaf.dtype).float()
    assert set(every[every.isfinite()].tolist()) == set(numbers.flatten().tolist())
    assert made.usable(variant, 3)


def test_what_is_no_number_comes_where_it_is_asked_for_and_few_do() -> None:
    leaf, special = torch.ones(64, 64).to(torch.float8_e4m3fn), Variant(name="", required=True, special=True)
    made = eight_bits.changed(leaf, special.change, special.special, generator(1, "cpu"))
    assert 0 < int(made.float().isnan().sum()) < 64
    assert int((made.float() != 1).sum()) < 2 * eight_bits.SOWN * leaf.numel()
    assert eight_bits.changed(leaf, "", False, generator(1, "cpu")) is leaf
    wide = torch.ones(4)
    assert eight_bits.changed(wide, eight_bits.CODES, True, generator(1, "cpu")) is wide


def test_two_of_them_are_compared_though_some_are_no_number() -> None:
    """torch replaces no NaN of eight bits, and every task with such an input would have ended the judge."""
    one = torch.tensor([1.0, torch.nan, 3.0]).to(torch.float8_e4m3fn)
    assert agreement.same(one, one.clone()) and agreement.same_bits(one, one.clone())
    other = torch.tensor([1.0, torch.nan, 4.0]).to(torch.float8_e4m3fn)
    assert not agreement.same(one, other) and not agreement.same_bits(one, other)
