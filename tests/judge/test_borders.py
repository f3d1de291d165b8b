# SPDX-License-Identifier: Apache-2.0
"""Numbers at which an answer jumps are read from the reference, planted, and not moved when honest error is drawn."""

from __future__ import annotations

import pytest
import torch
from plain_tasks import instance

from kernelwright.judge import borders, noise
from kernelwright.judge.extremes import FREE, SLIGHT
from kernelwright.judge.inputs import generator
from kernelwright.judge.variants import HEAVY
from kernelwright.judge.yardstick import Magnitudes


@pytest.mark.parametrize(
    ("formula", "found"),
    [
        ("torch.where(x >= 0.5, x, -x)", [0.5]),
        ("torch.nn.functional.hardtanh(x, -2.0, 6.0)", [-2.0, 6.0]),
        ("x.floor()", [0.0]),
        ("torch.div(x, 0.25, rounding_mode='floor')", [0.0]),
        ("torch.copysign(x + 2.0, x)", [0.0]),
        ("x.to(torch.int32) + 1", [0.0]),
        ("torch.bucketize(x, torch.tensor([0.25, 3.0]))", [0.0, 0.25, 3.0]),
        ("torch.histc(x, 10, 0.0, 1.0)", [0.0, 0.5, 1.0]),
        ("torch.histogram(x, 4, range=(-1.0, 1.0)).hist", [-1.0, -0.5, 0.0, 0.5, 1.0]),
        ("torch.histc(x, 10)", []),
        ("torch.where(x > 0.3, x, -x)", []),
        ("x * 0.5 + 2.0", []),
        ("torch.where(torch.arange(8) > 3, x, -x)", []),
    ],
)
def test_the_borders_of_a_reference_are_those_it_compares_values_with(formula: str, found: list[float]) -> None:
    """0.3 is another number in float64, and whole numbers are compared as they are."""
    made = instance(formula, "[torch.randn(16, 8)]")
    assert made.met["borders"] == found
    assert [v.factors for v in made.offered(1) if v.name == "on borders"] == ([tuple(found)] if found else [])


def test_a_dear_call_is_not_judged_on_borders() -> None:
    """There the cases that are smaller are."""
    made = instance("torch.where(x >= 0.5, x, -x)", "[torch.randn(16, 8)]")
    made.work = HEAVY + 1
    assert not [v for v in made.offered(1) if v.name == "on borders"]


def test_what_is_planted_keeps_to_the_signs_and_the_size_of_a_leaf() -> None:
    """Halves, smaller fractions and borders are there, half of the elements and more are as they were."""
    leaf = torch.rand(64, 64, generator=torch.Generator().manual_seed(0)) + 0.01
    made = borders.planted(leaf, [0.7, -0.5, 64.0], generator(3, "cpu"))
    changed = made[made != leaf]
    fine = changed * 2**borders.FINEST
    numbers = [float((changed == value).float().mean()) for value in (0.5, 0.7, 1.0)]
    assert min(numbers) > 0.1 and len(set(fine.tolist())) > 99
    assert bool(((fine == fine.round()) | (changed == leaf.new_tensor(0.7))).all())
    assert 0.3 < changed.numel() / leaf.numel() < 0.5
    assert bool((made > 0).all())
    assert made.dtype == leaf.dtype and made.shape == leaf.shape


def test_zeros_that_are_planted_have_either_sign_where_a_leaf_has_both() -> None:
    """A sign that is read as x < 0 differs at minus zero alone."""
    for leaf, signed in ((torch.randn(64, 64), True), (torch.rand(64, 64), False)):
        zeros = borders.planted(leaf - leaf.min() * (not signed), [0.0], generator(3, "cpu"))
        minus = torch.signbit(zeros[zeros == 0])
        assert minus.any() == signed and not minus.all()


def test_numbers_of_few_bits_are_not_moved_on_borders_only() -> None:
    """All others are, and nothing else than these stays where halves are multiplied by a third."""
    values = torch.tensor([0.5, -3.0, 0.0, 1 / 3, 0.3, 2.0**20 + 0.5], dtype=torch.float64)
    plain = noise.half_ulps([values], 2.0**-24, generator(1, "cpu"))[0]
    few = noise.half_ulps([values], 2.0**-24, generator(1, "cpu"), few=True)[0]
    assert [bool(a == b) for a, b in zip(few, values, strict=True)] == [True, True, True, False, False, False]
    assert torch.equal(few[3:], plain[3:]) and not torch.equal(plain[:2], values[:2])
    there = values.clone()
    assert noise.half_ulps([there], 2.0**-24, generator(1, "cpu"), write=True, few=True)[0] is there
    assert torch.equal(there, few)


@pytest.mark.parametrize(("formula", "exact"), [
    ("(x * 2 + 1).floor()", True), ("(x * (1 / 3) + 1).floor()", False),
    ("(x / (x[:1] * 0 + 4)).floor()", True), ("(x / (x[:1] * 0 + 3)).floor()", False),
    ("(x * 1.0).div_(x[:1] * 0 + 3).floor()", False), ("(x / (x[:1] * 0 + 4).long()).floor()", True),
])  # fmt: skip
def test_the_honest_error_on_a_border_is_none_where_all_programs_compute_the_same(formula: str, exact: bool) -> None:
    """A floor of 2 * 0.5 + 1 cannot be another one; that of 1.5 / 3 + 0.5 depends on a rounding, as that of 3 / 3 does
    where it is 3 times a third."""
    made = instance(formula, "[torch.randn(64, 64)]")
    (variant,) = [v for v in made.offered(1) if v.name == "on borders"]
    leaves = [torch.arange(64.0 * 64).reshape(64, 64) / 2]
    true, _ = made.oracle(leaves, None)
    floor = made.floors(leaves, None, list(map(Magnitudes, true)), 1, few=True).whole(0)
    assert variant.draws == 2
    assert (floor.peak < 0.5) == exact


@pytest.mark.parametrize(
    ("formula", "scaled"), [("x.softmax(-1)", True), ("x.exp() + 1", True), ("x.sigmoid()", True), ("x.tanh()", False)]
)
def test_exponentials_are_judged_where_they_have_all_sizes(formula: str, scaled: bool) -> None:
    """At a scale between the usual ones."""
    names = [variant.name for variant in instance(formula, "[torch.randn(16, 8)]").offered(1)]
    assert ("scale 20" in names) == scaled


@pytest.mark.parametrize(
    ("formula", "scale"),
    [
        ("x.clamp(-65504.0, 65504.0)", 131008.0),
        ("torch.where(x > 20000.0, x, -x)", 40000.0),
        ("x.clamp(-6.0, 6.0)", 0.0),
        ("x.clamp(max=1e30)", 0.0),
        ("x + 65504.0", 0.0),
    ],
)
def test_a_clamp_that_no_usual_scale_meets_is_met_by_one_of_its_own(formula: str, scale: float) -> None:
    """Twice as far as it takes; not what is met anyway, nor what would take numbers a million times as large."""
    made = instance(formula, "[torch.randn(16, 8).clamp(-1, 1)]")
    larger = [v.scale for v in made.offered(1) if v.scale > 1000.0 and v.group not in FREE]
    assert larger == ([scale] if scale else [])


def test_the_ends_of_a_logarithm_are_borders() -> None:
    """A probability of one, whose complement has an infinite logarithm, which the operator cuts off."""
    made = instance("F.binary_cross_entropy(x, y)", "[torch.rand(16, 8), torch.rand(16, 8)]", args="x, y")
    assert [0.0, 1.0] == made.met["borders"]
    (variant,) = [v for v in made.offered(1) if v.name == "on borders"]
    assert any(bool((made.draw(variant, seed)[0] == 1.0).any()) for seed in range(4))


@pytest.mark.parametrize(
    ("formula", "jumps"),
    [
        ("(x @ x.T).sign()", True),
        ("x[x.argmax(0)]", True),
        ("torch.where(x > 0.3, x, -x)", True),
        ("x.to(torch.int32) * 0.5", True),
        ("x.to(torch.float8_e4m3fn).float() * 0.5", True),
        ("x.to(torch.float16).float() * 0.5", False),
        ("x * torch.exp2(torch.frexp(x)[1].float())", True),
        ("x.clamp(-1.0, 1.0).relu()", False),
        ("torch.log_softmax(x, -1)", False),
        ("torch.nn.functional.gelu(x) * 2", False),
    ],
)
def test_references_that_jump_are_known(formula: str, jumps: bool) -> None:
    """Only of those it is asked where an answer lies beyond a border: draws of the honest error are dear."""
    assert jumps == instance(formula, "[torch.randn(16, 8)]").jumps


@pytest.mark.parametrize(
    ("formula", "deep"),
    [
        ("F.normalize(x, dim=-1)", True),
        ("F.cosine_similarity(x, x.roll(1, 0), dim=-1)", True),
        ("x / (x.norm() + 1e-8)", True),
        ("x / (x.norm() + 1e-2)", False),
        ("x / x.norm().clamp(min=1e-30)", False),
        ("x + 1", False),
    ],
)
def test_values_are_as_small_as_an_epsilon_once(formula: str, deep: bool) -> None:
    """One that the usual scales show needs no scale of its own, nor one whose squares float32 does not hold."""
    made = instance(formula, "[torch.randn(16, 8)]")
    small = [v.scale for v in made.offered(1) if abs(v.scale) < 1e-3 and v.scale != SLIGHT and v.group not in FREE]
    assert [0.0 < scale < 1e-4 for scale in small] == [True] * deep
