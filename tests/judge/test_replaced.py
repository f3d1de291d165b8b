# SPDX-License-Identifier: Apache-2.0
"""Weights that a checkpoint may hold and no constructor gives come where the reference takes them."""

from __future__ import annotations

import pytest
import torch
from plain_tasks import GRADIENTS, instance

from kernelwright.judge import replaced, weights
from kernelwright.judge.instance import Instance
from kernelwright.task import Contract

X = "[torch.randn(8, 64)]"
WEIGHT = "self.w = nn.Parameter(torch.randn(64, 64))\n"
BUFFER = WEIGHT + "self.register_buffer('q', {})"


def seen(made: Instance, name: str = "q", moved: str = weights.REPLACED) -> list[torch.Tensor]:
    """What a weight is in draws that replace something."""
    return [dict(made.draw_state(seed, moved))[name] for seed in range(6)]


def test_a_whole_parameter_is_zero_where_the_reference_stays_finite() -> None:
    """A scale that is kept off zero takes it; one that is not is no number there, and such weights never come."""
    kept, bare = "x @ (self.w / self.w.abs().amax().clamp(min=1e-8))", "x @ (self.w / self.w.abs().amax())"
    assert all(not value.any() for value in seen(instance(kept, X, init=WEIGHT), "w", weights.ZEROED))
    made = instance(bare, X, init=WEIGHT)
    assert replaced.nothing(made, weights.ZEROED) and made.draw_state(1, weights.ZEROED) is made.first_state


@pytest.mark.parametrize(
    ("formula", "contract"),
    [
        ("x @ self.w", GRADIENTS),
        ("x @ self.w + torch.rand(())", Contract(random=True)),
        ("(x @ self.w).argmax(-1)", Contract()),
    ],
)
def test_zeros_do_not_come_beside_kinks_and_ties(formula: str, contract: Contract) -> None:
    """A gradient at a kink, a place among equal numbers, are any that a program likes."""
    assert replaced.nothing(instance(formula, X, init=WEIGHT, contract=contract), weights.ZEROED)


@pytest.mark.parametrize(
    ("formula", "init"),
    [
        ("torch.minimum(x @ self.w, self.q)", "torch.tensor(float('inf'))"),
        ("x / torch.where(self.q.isinf(), x.abs().amax(), self.q)", "torch.tensor(-float('inf'))"),
        ("torch.maximum(x, self.q)", "torch.full((64,), -float('inf'))"),
        ("torch.minimum(x.view(-1, 8, 8), self.q)", "torch.full((8, 8), float('inf'))"),
        ("torch.where(self.q.isnan(), x, self.q)", "torch.full((64,), float('nan'))"),
        ("x - self.q if bool(self.q.isfinite().all()) else x", "torch.full((64,), float('inf'))"),
    ],
)
def test_finite_numbers_come_for_infinite_ones(formula: str, init: str) -> None:
    """Statistics that nothing was seen of yet, a bound that there is not yet."""
    found = torch.stack(seen(instance(formula, X, init=BUFFER.format(init))))
    assert bool(found.isfinite().all()) and bool((found < 0).any()) is ("nan" in init)


@pytest.mark.parametrize(("table", "others"), [("torch.arange(0, 64, 2)", True), ("torch.arange(32)", False)])
def test_places_in_order_are_others_in_order(table: str, others: bool) -> None:
    """Of kept channels, with the first and the last one; the first 32 of all stay."""
    made = instance("x[:, self.q] @ self.w[:32]", X, init=BUFFER.format(table))
    assert replaced.nothing(made, weights.REPLACED) is not others
    first = dict(made.first_state)["q"]
    for value in seen(made) if others else ():
        assert bool((value.diff() > 0).all()) and not torch.equal(value, first) and value[-1] == 62 and value[0] == 0


def test_a_least_and_a_largest_value_are_in_order() -> None:
    """Infinite until something was seen, the other way around; all that was seen may lie above zero, or below."""
    init = BUFFER.format("torch.tensor(float('inf'))") + "\nself.register_buffer('p', torch.tensor(-float('inf')))"
    made = instance("torch.where(self.q <= self.p, x.clamp(self.q, self.p), x)", X, init=init)
    assert all(low < high for low, high in zip(seen(made), seen(made, "p"), strict=True))
    ends = [[dict(made.draw_state(seed, weights.REPLACED))[name] for name in "qp"] for seed in range(24)]
    assert {(float(low) > 0, float(high) > 0) for low, high in ends} == {(True, True), (False, True), (False, False)}


@pytest.mark.parametrize(
    ("formula", "init"),
    [
        ("(x @ self.w + self.q).softmax(-1)", "torch.where(torch.arange(64) == 3, float('-inf'), 0.0)"),
        ("(x @ self.w).masked_fill(~self.q, 0.0)", "torch.arange(64) % 4 != 3"),
        ("x @ (self.w * self.q)", "(torch.arange(4096).view(64, 64) ** 2 % 4099 < 1000).float()"),
        ("x @ self.w[self.q]", "torch.arange(64) // 2"),
    ],
)
@pytest.mark.parametrize("contract", [Contract(), GRADIENTS])
def test_masks_and_tables_are_others_of_the_same_elements(formula: str, init: str, contract: Contract) -> None:
    """What is masked lies elsewhere, and groups are shuffled, beside gradients too."""
    made = instance(formula, X, init=BUFFER.format(init), contract=contract)
    first = dict(made.first_state)["q"]
    found = seen(made)
    assert any(not torch.equal(value, first) for value in found)
    assert all(torch.equal(value.reshape(-1).sort().values, first.reshape(-1).sort().values) for value in found)


@pytest.mark.parametrize(
    ("formula", "init"),
    [
        ("(x @ self.w).masked_fill(x > 0, self.q)", "torch.tensor(float('-inf'))"),
        ("(x @ self.w)[:, self.q]", "torch.arange(64)"),
        ("x @ self.w.masked_fill(self.q == 0, 0.0)", "torch.ones(64, 64).tril()"),
        ("x @ (self.w + self.q).softmax(-1)", "torch.full((64, 64), float('-inf')).triu(1)"),
        ("(x @ self.w).masked_fill(~self.q, 0.0)", "torch.arange(64) % 2 == 1"),
        ("(x @ self.w).masked_fill(~self.q, 0.0)", "torch.arange(64) < 32"),
        ("x / self.q", "torch.tensor(0.5)"),
        ("x * self.q", "torch.tensor(0.5)"),
    ],
)
def test_what_programs_may_know_stays(formula: str, init: str) -> None:
    """Minus infinity to mask with, places in order, causal masks, every second one, one half, and a factor that nobody
    asks for anything."""
    made = instance(formula, X, init=BUFFER.format(init))
    assert replaced.nothing(made, weights.REPLACED)


def test_a_number_is_zero_where_python_goes_another_way() -> None:
    """A temperature of zero, and counts of which some are zero where they are compared with it."""
    made = instance("x if float(self.q) == 0.0 else x / self.q", X, init=BUFFER.format("torch.tensor(0.7)"))
    assert all(not value.any() for value in seen(made))
    cap = instance("x.clamp(max=self.q) if self.q > 0 else x", X, init=BUFFER.format("torch.tensor(-1.0)"))
    assert {float(value) for value in seen(cap)} <= {0.0, 1.0} and 1.0 in map(float, seen(cap))
    clip = instance("x if self.q < 0 else x.clamp(-self.q, self.q)", X, init=BUFFER.format("torch.tensor(0.5)"))
    assert {float(value) for value in seen(clip)} == {-1.0}
    for asked in ("self.q > 0", "self.q.bool()"):
        counts = instance(f"torch.where({asked}, x / self.q, x)", X, init=BUFFER.format("torch.ones(64)"))
        assert all(0 < int((value == 0).sum()) < 64 for value in seen(counts))


def test_eight_bits_are_left_alone() -> None:
    """Of which torch knows no NaN: drawn and constant ones."""
    for init in ("torch.randn(64).to(torch.float8_e4m3fn)", "torch.ones(64).to(torch.float8_e4m3fn)"):
        made = instance("x * self.q.float()", X, init=BUFFER.format(init))
        assert replaced.nothing(made, weights.REPLACED)


def test_rows_of_a_mask_of_ones_are_zero() -> None:
    """Where the reference is finite with it: heads that are switched off."""
    for least, rows in (("1.0", True), ("0.0", False)):
        formula = f"(x.view(8, 8, 8) * self.q[..., None]).sum(2) / self.q.sum(1).clamp(min={least})[:, None]"
        made = instance(formula.replace("[:, None]", "[None]"), X, init=BUFFER.format("torch.ones(8, 8)"))
        assert replaced.nothing(made, weights.REPLACED) is not rows
        assert not rows or all(0 < int((value == 0).all(1).sum()) < 8 for value in seen(made))


def test_what_a_call_counts_stays_and_the_rest_comes() -> None:
    """A table beside a counter."""
    init = BUFFER.format("torch.arange(64) // 2") + "\nself.register_buffer('n', torch.zeros((), dtype=torch.long))"
    made = instance("x @ self.w[self.q] + 0 * self.n.add_(1)", X, init=init)
    assert any(not torch.equal(value, torch.arange(64) // 2) for value in seen(made))
