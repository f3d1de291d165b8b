# SPDX-License-Identifier: Apache-2.0
"""Borders that a buffer holds are met exactly, in draws of which the honest error moves none of them."""

from __future__ import annotations

import pytest
import torch
from plain_tasks import instance

from kernelwright.judge import held_borders, inputs
from kernelwright.judge.instance import Instance

TABLE = "self.register_buffer('t', torch.rand(8)); self.w = nn.Parameter(torch.rand(8))"
EDGES = "self.register_buffer('t', torch.rand(12).sort().values + 0.5)"


def made(formula: str, init: str = TABLE) -> tuple[Instance, list[inputs.Variant]]:
    one = instance(formula, "[torch.randn(64, 8)]", init=init)
    return one, [v for v in one.offered(1) if v.strewn == held_borders.HELD]


@pytest.mark.parametrize(
    ("formula", "found"),
    [
        ("torch.where(x >= self.t, x, -x)", True),
        ("torch.clamp(x, None, self.t)", True),
        ("torch.bucketize(x, self.t.sort().values[None][0])", False),
        ("torch.where(x >= self.w, x, -x)", False),
        ("torch.where(x >= 0.5, x, self.t)", False),
        ("x * (self.t > 0.5) * self.w", False),
    ],
)
def test_what_compares_with_a_buffer_has_them(formula: str, found: bool) -> None:
    """A weight that is trained is none, nor one number, nor what is computed."""
    assert bool(made(formula)[1]) is found


@pytest.mark.parametrize(
    ("formula", "init"), [("torch.where(x >= self.t, x, -x)", TABLE), ("torch.bucketize(x, self.t)", EDGES)]
)
def test_inputs_are_elements_of_buffers_of_few_bits(formula: str, init: str) -> None:
    """Which are in order where they were, and other weights are as they are drawn."""
    one, (variant,) = made(formula, init)
    state = one.draw_state(5, variant.moved)
    table = dict(state)["t"]
    assert torch.equal(table, held_borders.cut(table)) and not torch.equal(table, dict(one.first_state)["t"])
    assert all(not torch.equal(value, held_borders.cut(value)) for name, value in state if name == "w")
    assert init is TABLE or bool((table.diff() >= 0).all())
    assert not torch.equal(table, dict(one.draw_state(5))["t"])
    (leaf,) = one.draw(variant, 3, state)
    met = leaf == table if init is TABLE else torch.isin(leaf, table)
    assert 0.15 < float(met.float().mean()) < 0.35
    assert one.usable(variant, 7)


def test_a_buffer_is_laid_along_an_axis_that_is_as_long() -> None:
    """Two axes and more where they fit; none leaves the signs of what was drawn, nor is far beyond its size."""
    rng, leaf = torch.Generator().manual_seed(1), torch.rand(6, 5, 4)
    for value, axis in ((torch.arange(5.0), 1), (torch.arange(4.0), 2), (torch.arange(6.0), 0)):
        laid = held_borders._laid(value, leaf, rng)
        assert torch.equal(laid.select(axis, 3), torch.full_like(laid.select(axis, 3), 3.0))
    wide = torch.rand(5, 1)
    assert torch.equal(held_borders._laid(wide, leaf, rng), wide.expand(6, 5, 4))
    assert bool(torch.isin(held_borders._laid(torch.arange(9.0), leaf, rng), torch.arange(9.0)).all())
    one = instance("torch.clamp(x, self.t, None)", "[torch.rand(16, 8) + 0.1]",
                   init="self.register_buffer('t', torch.tensor([-1.0, 0.5] * 4) * 1.5)")  # fmt: skip
    given = one.draw(one.offered(1)[0], 1)
    (changed,) = held_borders.planted(one, given, 1, one.first_state)
    assert bool((changed > 0).all()) and bool((changed == 0.75).any())
