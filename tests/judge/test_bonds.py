# SPDX-License-Identifier: Apache-2.0
"""Inputs that are flags, or symmetric, or in order, in every draw stay so whatever is changed."""

from __future__ import annotations

import functools

import pytest
import torch
from plain_tasks import instance, task

from kernelwright.judge.bonds import LOTS, symmetric
from kernelwright.judge.extremes import FREE
from kernelwright.judge.inputs import Variant
from kernelwright.judge.layouts import EXPANDED
from kernelwright.judge.recombined import Recombiner
from kernelwright.judge.reference import Reference
from kernelwright.judge.repeated import parts
from kernelwright.judge.symmetric import definite
from kernelwright.judge.yardstick import Magnitudes
from kernelwright.task import Case, Task

GIVEN = Variant(name="as given", required=True)
MASK = "(torch.rand(8, 16) < 0.5).float()"
ONE_HOT = "F.one_hot(torch.randint(0, 6, (32,)), 6).float()"
SQUARE = "(b := torch.randn(2, 6, 6)) @ b.mT"
SORTED = "torch.randn(8, 32).sort(-1)[0]"
ANGLES = "(torch.arange(8.0)[:, None] * 0.3 ** torch.arange(8.0))"
HALVES, PAIRS = f"torch.cat(({ANGLES},) * 2, -1).cos()", "torch.randn(8, 8).repeat_interleave(2, -1)"


def drawn(forward: str, inputs: str) -> dict[str, list[torch.Tensor]]:
    """Two draws of the second input in every variant."""
    made = instance(forward, f"[torch.randn(8, 16), {inputs}]", args="x, m")
    offered = [v for v in made.offered(7) if v.layout == "contiguous"]
    return {v.name: [made.draw(v, seed)[1] for seed in (3, 6)] for v in offered}


@pytest.mark.parametrize(
    "inputs", ["F.pad(torch.randint(0, 99, (40,)).sort()[0], (1, 0))", "torch.randperm(99)[:8].sort()[0]"]
)
def test_draws_made_of_others_begin_segments_in_order(inputs: str) -> None:
    """Offsets in none ended eager's program; what neither draw had twice, nor has one made of them."""
    made = instance("x.sum() + m", f"[torch.randn(8, 16), {inputs}]", args="x, m")
    stock = [made.draw(GIVEN, seed) for seed in (3, 6)]
    mix = functools.partial(Recombiner(torch.device("cpu")).of, dice=torch.Generator().manual_seed(1))
    drawn = [made.bonds.mixed(1, *(leaves[1] for leaves in stock), mix, torch.Generator(), False) for _ in range(32)]
    assert all(bool((leaf.diff() >= ("perm" in inputs)).all()) for leaf in drawn)
    assert len({tuple(leaf.tolist()) for leaf in drawn}) > 8
    assert not made.bonds.free(stock[0])


@pytest.mark.parametrize("inputs", ["torch.eye(8)", "(m := torch.ones(8, 8) * 0.4 + 0.6 * torch.eye(8))"])
def test_matrices_that_are_the_same_in_every_draw_stay_symmetric_and_definite(inputs: str) -> None:
    """An identity is no mask: who takes a root of what is made with it was refused for zeros and ones by lot."""
    found = drawn("x.sum() + torch.inverse(m)", inputs)
    leaves = [leaf for leaves in found.values() for leaf in leaves]
    assert all(torch.allclose(leaf, leaf.mT) and definite(leaf) for leaf in leaves)
    assert len({tuple(leaf.reshape(-1).tolist()) for leaf in leaves}) > len(leaves) / 3


def test_masks_of_infinities_are_not_symmetric() -> None:
    assert not symmetric(torch.full((6, 6), -torch.inf).triu(1))
    made = instance("x.sum() + torch.softmax(m, -1)", "[torch.randn(8, 16), torch.full((6, 6), -torch.inf).triu(1)]",
                    args="x, m")  # fmt: skip
    assert not made.bonds.symmetric


def test_edges_that_are_the_same_in_every_draw_stay_symmetric() -> None:
    """Of zeros and ones, in what is made of two draws too."""
    edges = "((a := torch.rand(12, 12, generator=torch.Generator().manual_seed(4)) < 0.3) | a.mT).float()"
    found = drawn("x.sum() + (m.sum(0) * m.sum(1)).sum()", edges)
    leaves = [leaf for leaves in found.values() for leaf in leaves]
    assert all(torch.equal(leaf, leaf.mT) and {0.0, 1.0} >= set(leaf.unique().tolist()) for leaf in leaves)
    made = instance("x.sum() + (m.sum(0) * m.sum(1)).sum()", f"[torch.randn(8, 16), {edges}]", args="x, m")
    stock = [made.draw(GIVEN, seed)[1] for seed in (3, 6)]
    mix = functools.partial(Recombiner(torch.device("cpu")).of, dice=torch.Generator().manual_seed(1))
    for leaf in (made.bonds.mixed(1, *stock, mix, torch.Generator(), False) for _ in range(8)):
        assert torch.equal(leaf, leaf.mT)


@pytest.mark.parametrize("inputs", [MASK, ONE_HOT])
def test_zeros_and_ones_stay_so_and_change(inputs: str) -> None:
    """As booleans do, and those of which each row has one as whole numbers do."""
    found = drawn("(x.sum() * m).sum(-1)", inputs)
    assert {leaf.dtype for leaves in found.values() for leaf in leaves} == {torch.float32}
    assert all(bool(((leaf == 0) | (leaf == 1)).all()) for leaves in found.values() for leaf in leaves)
    if inputs == ONE_HOT:
        assert all(bool((leaf.sum(-1) == 1).all()) for leaves in found.values() for leaf in leaves)
        assert max(float(leaf.mean(0).max()) for leaf in found["skewed whole numbers"]) > 0.7
    else:
        lines = [leaf.sum(-1) for leaf in found["empty and full mask rows"]]
        assert all(bool((line == 0).any()) and bool((line == 16).any()) for line in lines)


def test_ones_and_minus_ones_stay_so() -> None:
    found = drawn("(x * m).sum(-1)", "(torch.rand(8, 16) < 0.5) * 2.0 - 1")
    assert all(bool((leaf.abs() == 1).all()) for leaves in found.values() for leaf in leaves)
    assert all(bool((leaf == 1).all()) for leaf in found["full masks"])


def test_masks_that_are_added_stay_so_and_a_drop_in_is_told() -> None:
    """Of zero and minus infinity: a program that asks where it is zero is right for no other numbers."""
    mask = "torch.zeros(8, 16).masked_fill(torch.rand(8, 16) < 0.5, -torch.inf)"
    found = drawn("torch.softmax(x + m, -1)", mask)
    assert all(bool(((leaf == 0) | (leaf == -torch.inf)).all()) for leaves in found.values() for leaf in leaves)
    for inputs, told in ((mask, {"bond": "0 and -inf"}), (f"{mask}.where(torch.rand(8, 16) < 0.9, 0.5)", {})):
        made = instance("torch.softmax(x + m, -1)", f"[torch.randn(8, 16), {inputs}]", args="x, m")
        assert made.bonds.facts(1) == told and bool(told) == bool(made.bonds.words(["x", "m"]))


def test_flags_do_not_move_where_honest_error_is_drawn() -> None:
    """Half an ulp from 1 a label is another, and the error as large as the answer."""
    made = instance("F.hinge_embedding_loss(x, m)", "[torch.rand(64), (torch.rand(64) < 0.5) * 2.0 - 1]", args="x, m")
    leaves = made.draw(GIVEN, 3)
    exact, _ = made.oracle(leaves, None)
    assert made.floors(leaves, None, list(map(Magnitudes, exact))).whole(0).rms < 1e-5


@pytest.mark.parametrize("inputs", ["torch.ones(8, 16)", "torch.zeros(8, 16)", "torch.rand(8, 16).round() * 2"])
def test_others_are_numbers(inputs: str) -> None:
    found = drawn("(x.sum() * m).sum(-1)", inputs)
    assert not all(bool(((leaf == 0) | (leaf == 1)).all()) for leaves in found.values() for leaf in leaves)


def test_a_symmetric_matrix_stays_so() -> None:
    """And one element of it that becomes another does so twice."""
    found = drawn("(x.sum() * m).sum(-1)", SQUARE)
    assert all(torch.allclose(leaf, leaf.mT) for leaves in found.values() for leaf in leaves)
    first, second = found["near-duplicate"]
    assert 2 <= int((first[0] != second[0]).sum() + (first[1] != second[1]).sum()) <= 4
    assert not symmetric(torch.randn(2, 6, 6)) and not symmetric(torch.eye(6))


def test_a_positive_definite_matrix_stays_so() -> None:
    """Negated, too, and it is another then."""
    made = instance("torch.linalg.cholesky(x)", "[(b := torch.randn(4, 8, 8)) @ b.mT + 8 * torch.eye(8)]")
    offered = [v for v in made.offered(3) if v.group not in FREE]
    for variant in offered:
        leaf = made.draw(variant, 5)[0]
        assert torch.allclose(leaf, leaf.mT) and definite(leaf), variant.name
    assert [v.name for v in offered] == [v.name for v in made.variants(3) if v.group not in FREE]
    first, negated = (made.draw(Variant(name="", required=True, change=change), 5)[0] for change in ("", "negated"))
    assert torch.equal(first.triu(1), -negated.triu(1))


def test_a_reference_of_symmetric_matrices_is_asked_in_many_draws() -> None:
    """Some of those with outliers have a root, others end the call."""
    made = instance("torch.linalg.eigvalsh(x)", "[(b := torch.randn(4, 8, 8)) + b.mT]")
    outliers = Variant(name="outliers of 4", required=True, change="outliers", factors=(4.0,))
    assert LOTS == made.bonds.lots(outliers, made.factors)
    assert made.usable(Variant(name="shifted", required=True, change="shifted"), 3)


def test_a_reference_that_factors_a_matrix_is_asked_in_several_draws_of_thin_ones() -> None:
    """Of two inputs the other one may be thinned out in the first of them."""
    made = instance(
        "torch.linalg.solve(x, m)", "[torch.randn(12, 12) + 12 * torch.eye(12), torch.randn(12, 3)]", args="x, m"
    )
    sparse = Variant(name="sparse", required=True, change="sparse")
    assert not any(made.usable(sparse, seed) for seed in range(4))


def test_rows_in_order_stay_so() -> None:
    """Where the reference searches in them; the others are numbers."""
    found = drawn("torch.searchsorted(m, x)", SORTED)
    assert all(bool((leaf.diff() >= 0).all()) for leaves in found.values() for leaf in leaves)
    found = drawn("x.sum() + m", SORTED)
    assert not all(bool((leaf.diff() >= 0).all()) for leaves in found.values() for leaf in leaves)


@pytest.mark.parametrize(("inputs", "kind"), [(HALVES, "halves"), (PAIRS, "pairs"), (f"{PAIRS}.bfloat16()", "pairs")])
def test_what_is_there_twice_stays_so(inputs: str, kind: str) -> None:
    """In constant tables too, and one element that becomes another does so twice."""
    found = drawn("(x.sum() * m).sum(-1)", inputs)
    for leaves in found.values():
        assert all(torch.equal(*(part.nan_to_num(7.0) for part in parts(leaf, kind))) for leaf in leaves)
    first, second = found["near-duplicate"]
    assert 2 <= int((first != second).sum()) <= 4


@pytest.mark.parametrize(
    "inputs",
    ["torch.full((8, 16), 0.7)", "torch.randn(8, 1).repeat(1, 16)", "torch.randn(8, 16)", "torch.randn(3).repeat(2)"],
)
def test_what_is_there_twice_by_chance_or_throughout_is_a_number_like_others(inputs: str) -> None:
    made = instance("(x.sum() * m).sum(-1)", f"[torch.randn(8, 16), {inputs}]", args="x, m")
    assert not made.bonds.twice


def test_tables_of_a_single_place_are_tables_still() -> None:
    """That of the place 0 is all ones: what the timed case showed of it holds."""
    table = "torch.cat((torch.arange(n)[:, None] * 0.3 ** torch.arange(8.0),) * 2, -1)"
    cases = (Case(name="main", axes=(("n", 8),), timed=True), Case(name="one", axes=(("n", 1),)))
    source = task("x * c", "", args="x, c", cases=cases).reference.partition("def get_inputs")[0]
    source += f"def get_inputs(n):\n    return [torch.randn(n, 16), {table}.cos()]\n"
    made = Task(name="rope", form="kernelbench", reference=source, cases=cases)
    reference = Reference(made, "cpu")
    first, second = (reference.instance(case) for case in cases)
    assert {1: "halves"} == dict(first.bonds.twice) == dict(second.bonds.twice)
    assert torch.equal(*parts(second.draw(GIVEN, 3)[1], "halves"))


@pytest.mark.parametrize("inputs", [MASK, ONE_HOT, SQUARE, SORTED, HALVES, PAIRS])
def test_draws_made_of_others_hold_it_too(inputs: str) -> None:
    """Moved by 3 % a label is none, and half a matrix beside half of another is not symmetric."""
    made = instance("torch.searchsorted(m, m) + x.sum()", f"[torch.randn(8, 16), {inputs}]", args="x, m")
    first, second = (made.draw(GIVEN, seed)[1] for seed in (3, 6))
    dice = torch.Generator().manual_seed(1)
    mix = functools.partial(Recombiner(torch.device("cpu")).of, dice=dice)
    drawn = [made.bonds.mixed(1, first, second, mix, dice, inputs == SORTED) for _ in range(8)]
    assert not all(torch.equal(leaf, first) for leaf in drawn)
    for leaf in drawn:
        if inputs == SQUARE:
            assert symmetric(leaf)
        elif inputs == SORTED:
            assert bool((leaf.diff() >= 0).all())
        elif inputs in (HALVES, PAIRS):
            assert torch.equal(*parts(leaf, "halves" if inputs == HALVES else "pairs"))
        else:
            assert bool(((leaf == 0) | (leaf == 1)).all())
            assert inputs == MASK or bool((leaf.sum(-1) == 1).all())


@pytest.mark.parametrize(
    ("inputs", "offered"), [(SQUARE, False), ("torch.randn(16, 16).tril()", False), ("torch.randn(16, 16)", True)]
)
def test_one_row_for_all_comes_where_it_breaks_nothing(inputs: str, offered: bool) -> None:
    """It would be neither symmetric nor triangular."""
    made = instance("x.sum() + m * 2", f"[torch.randn(8, 16), {inputs}]", args="x, m")
    assert offered == any(variant.layout == EXPANDED for variant in made.offered(5))


def test_lengths_add_up_to_what_they_are_parts_of() -> None:
    """Of others a reference's slices ended silently where there was no more, and repeating each so often raised."""
    lengths = "torch.tensor([7, 13, 20, 5, 15])"
    made = instance("torch.repeat_interleave(m, m)[:, None] * x", f"[torch.randn(60, 4), {lengths}]", args="x, m")
    assert {1: 60} == made.bonds.sums and {"bond": "a sum of 60"} == made.bonds.facts(1)
    assert "adds up to 60" in " ".join(made.notes)
    drawn = [made.draw(variant, seed)[1] for variant in made.offered(3) for seed in range(3)]
    assert {60} == {int(one.sum()) for one in drawn}
    assert all(5 <= int(one.min()) for one in drawn) and max(int(one.max()) for one in drawn) > 30, "one has most"
    base, other = torch.tensor([7, 13, 20, 5, 15]), torch.tensor([20, 10, 10, 10, 10])
    dice = torch.Generator().manual_seed(1)
    mix = functools.partial(Recombiner(torch.device("cpu")).of, dice=dice)
    assert torch.equal(base, made.bonds.mixed(1, base, other, mix, dice, False))
    assert not instance("x[m]", f"[torch.randn(50, 4), {lengths}]", args="x, m").bonds.sums
