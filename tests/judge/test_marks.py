# SPDX-License-Identifier: Apache-2.0
"""Values that a reference looks for come, in the inputs it looks into alone; and samples that are zero throughout."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from plain_tasks import instance

from kernelwright.judge import inputs, marks, slices
from kernelwright.judge.inputs import Variant

IDS, FLOATS = "torch.randint(1, 9, (16, 8))", "torch.randn(16, 8)"


@pytest.mark.parametrize(
    ("formula", "given", "found"),
    [
        ("(i != 0).float()", IDS, ((0, (0.0,)),)),
        ("(i[:, None] < 5).float()", IDS, ((0, (5.0,)),)),
        ("((i + 1) != 1).float()", IDS, ()),
        ("F.cross_entropy(torch.ones(16, 9), i[:, 0], ignore_index=-1)", IDS, ((0, (-1.0,)),)),
        ("F.cross_entropy(torch.ones(16, 9), i[:, 0])", IDS, ()),
        ("F.cross_entropy(torch.ones(16, 9), i[:, 0], label_smoothing=0.1)", IDS, ()),
        ("F.cross_entropy(torch.ones(16, 9), i[:, 0], ignore_index=-100)", IDS, ((0, (-100.0,)),)),
        ("torch.where(i != -100, i, 0).float()", IDS, ((0, (-100.0,)),)),
        ("(i != torch.tensor(0)).float()", IDS, ((0, (0.0,)),)),
        ("(torch.tensor([0, 2]) == i[..., None]).float()", IDS, ((0, (0.0, 2.0)),)),
        ("torch.isin(i, torch.tensor([11, 7])).float()", IDS, ((0, (7.0, 11.0)),)),
        ("(i[0] == i[1]).float()", IDS, ()),
        ("(i[:, 0, None] > torch.arange(9)).float()", IDS, ()),
        ("(torch.arange(9) > i).float()", "torch.randint(0, 9, ())", ((0, (0.0, 8.0)),)),
        ("(i < torch.arange(9.0)).float()", "torch.randint(0, 9, ())", ()),
        ("(torch.arange(9) > i + 0).float()", "torch.randint(0, 9, ())", ()),
        ("i.clamp(min=1).float()", IDS, ((0, (0.0,)),)),
        ("i.clamp(2, 7).float()", IDS, ((0, (1.0, 8.0)),)),
        ("i.clamp_max(7).float()", IDS, ((0, (8.0,)),)),
        ("i.to(torch.int32).sum(-1).clamp(min=1).float()", IDS, ()),
        ("F.embedding(i, torch.ones(9, 4), padding_idx=2)", IDS, ((0, (0.0, 2.0)),)),
        ("F.embedding(i - 1, torch.ones(9, 4))", IDS, ()),
        ("F.embedding(i, torch.ones(12, 4))", IDS, ((0, (0.0, 11.0)),)),
        ("torch.ones(12, 4)[i]", IDS, ((0, (0.0, 11.0)),)),
        ("torch.ones(16, 12).gather(1, i)", IDS, ((0, (0.0, 11.0)),)),
        ("torch.ones(9, 4)[i - 9]", IDS, ()),
        ("i.bool().float()", IDS, ((0, (0.0,)),)),
        ("torch.fmax(i, i + 1.0)", FLOATS, ((0, (math.nan,)),)),
        ("torch.nan_to_num(torch.softmax(i, -1))", FLOATS, ()),
        ("torch.nan_to_num(i)", FLOATS, ((0, (math.nan,)),)),
        ("torch.isnan(i).float()", FLOATS, ((0, (math.nan,)),)),
        ("torch.isnan(i.flip(0)).float()", FLOATS, ((0, (math.nan,)),)),
        ("torch.nan_to_num(torch.tanh(i @ torch.ones(8, 4) + 1.0) / 2.0)", FLOATS, ((0, (math.nan,)),)),
        ("torch.where((i * torch.ones(8)).sum(1).isinf(), 0.0, 1.0)", FLOATS, ((0, (-math.inf, math.inf)),)),
        ("torch.nan_to_num(i / i.sum(1, keepdim=True))", FLOATS, ()),
        ("torch.nan_to_num(i.log() @ torch.ones(8, 4))", FLOATS, ()),
        ("torch.nan_to_num((i * 1.0).masked_fill_(i > 9.0, torch.inf))", FLOATS, ()),
        ("torch.nan_to_num((i - 1.0).view(8, 16).t())", FLOATS, ((0, (math.nan,)),)),
        ("(i * 2.0).clamp(min=1.0)", FLOATS, ()),
        ("torch.where(i.isinf(), 0.0, i)", FLOATS, ((0, (-math.inf, math.inf)),)),
        ("torch.where(i.isneginf(), 0.0, i)", FLOATS, ((0, (-math.inf,)),)),
        ("torch.where(i.abs() == torch.inf, 0.0, i)", FLOATS, ((0, (-math.inf, math.inf)),)),
        ("torch.where(i == -torch.inf, 0.0, i)", FLOATS, ((0, (-math.inf,)),)),
        ("torch.where(i.isinf() | (i < 0.0), 0.0, 1.0 / i)", FLOATS, ((0, (-math.inf, math.inf)),)),
        ("i.nanmean(-1)", FLOATS, ((0, (math.nan,)),)),
    ],
)
def test_values_looked_for_are_those_of_operators_that_read_an_input_itself(
    formula: str, given: str, found: marks.Marks
) -> None:
    """Not what is looked for in something computed, but for NaN and infinities that come of an input alone; nor what
    torch ignores unless it is told otherwise."""
    made = instance(formula, f"[{given}]", args="i")
    assert repr(found) == repr(made.met["marks"])
    assert bool(found) is ("values looked for" in [v.name for v in made.variants(3)])


@pytest.mark.parametrize(
    ("formula", "found"),
    [
        ("torch.isfinite(i).float()", {-math.inf, math.inf}),
        ("torch.nan_to_num(i, posinf=9.0)", {math.inf}),
        ("torch.nan_to_num(i, 0.0, 9.0, -9.0)", {-math.inf, math.inf}),
        ("torch.nan_to_num(i, posinf=1e30)", set()),
    ],
)
def test_infinities_are_looked_for_beside_nan(formula: str, found: set[float]) -> None:
    """Where somebody says what becomes of them that is no larger than what sums of it are finite."""
    ((_, values),) = instance(formula, f"[{FLOATS}]", args="i").met["marks"]
    assert any(map(math.isnan, values)) and found == {value for value in values if math.isinf(value)}


@pytest.mark.parametrize(
    ("formula", "found"),
    [
        ("(i % 9).float()", ((0, (9.0, 19.0)),)),
        ("torch.fmod(i, 9).float()", ((0, (9.0, 19.0)),)),
        ("(i.to(torch.int8) % 100).float()", ()),
        ("((i + 1) % 9).float()", ()),
        ("torch.remainder(i.float(), 9)", ()),
    ],
)
def test_whole_numbers_come_that_wrap_around_where_the_reference_takes_their_rest(
    formula: str, found: marks.Marks
) -> None:
    """Ids below a size are their own rest by it, in every draw. Not of what is computed from them, nor of floats."""
    made = instance(formula, f"[{IDS}]", args="i")
    assert made.met["wraps"] == found
    variants = [v for v in made.variants(3) if v.name == "values that wrap"]
    assert bool(found) is bool(variants)
    for variant in variants:
        (ids,) = made.draw(variant, 5)
        assert {9, 19} <= set(ids.flatten().tolist())


def test_an_input_holds_some_of_the_values_looked_for_and_others_do_not() -> None:
    """What lies in order does so still."""
    variant = Variant(name="", required=True, change="marks", marks=((1, (-1.0, 7.0)),))
    ids = torch.randint(0, 5, (64,))
    one, other = inputs.change_leaves([ids, ids], variant, 5)
    assert torch.equal(one, ids) and {-1, 7} <= set(other.tolist())
    assert 1 <= int((other != ids).sum()) < 32
    lengths = torch.arange(4).repeat_interleave(2)
    made = inputs.change_leaves([ids, lengths], variant, 5)[1]
    assert {-1, 7} & set(made.tolist()) and bool((made.diff() >= 0).all())


def test_numbers_in_order_end_with_a_value_beyond_them_or_begin_with_one_below() -> None:
    """Times that are not known, the largest number there is; what lies among them is in no place."""
    times, rng = torch.arange(0, 640, 10), torch.Generator().manual_seed(0)
    for value in (2**40, 640):
        made = marks.planted(times, (float(value), 55.0), rng)
        count = int((made == value).sum())
        assert 0 < count <= 16 and torch.equal(made[:-count], times[:-count]) and bool((made[-count:] == value).all())
    assert int(marks.planted(times, (-1.0,), rng)[0]) == -1
    assert marks.planted(times, (55.0, math.inf), rng) is times


def test_whole_rows_are_values_looked_for_and_a_single_number_is_one_throughout() -> None:
    """Beside rows that are not; a row has one value. Of places the last is half of the time in no proof."""
    rng = torch.Generator().manual_seed(3)
    ids = torch.randint(10, 90, (64, 8), generator=rng)
    made = marks.planted(ids, (1.0, 2.0), rng, marks.ROWS)
    rows = (made != ids).any(1)
    assert 1 <= int(rows.sum()) <= 24 and bool((made[rows] == made[rows][:, :1]).all())
    assert {1, 2} == set(made[rows].flatten().tolist())
    assert torch.equal(ids[0], marks.planted(ids[0], (1.0,), rng, marks.ROWS))
    place = torch.tensor(5)
    assert 8 == int(marks.throughout(place, (8.0,))) and place is marks.planted(place, (8.0,), rng)


def test_one_input_is_another_moved_along_and_one_tensor_is_handed_over_for_both() -> None:
    """Along its last two axes, whole numbers where they lie within; others stay."""
    rng = torch.Generator().manual_seed(5)
    x, y, other = torch.randn(4, 6), torch.randn(4, 6), torch.randn(4, 5)
    few, many = torch.randint(10, 15, (4, 6)), torch.randint(0, 50, (4, 6))
    many[0] = torch.tensor([0, 49, 11, 14, 12, 12])
    seen = set()
    for _ in range(12):
        found = slices.along([x, y, other, few, many], rng)
        assert found[0] is x and found[2] is other
        assert torch.equal(found[1].sort(1).values, x.sort(1).values), "the same numbers in each row"
        for at, of in ((1, x), (4, few)):
            seen.add((at, any(torch.equal(found[at], of.roll(by, 1)) for by in range(1, 6))))
    assert seen == {(1, True), (1, False), (4, True), (4, False)}, "some moved as they are, some not"
    held = slices.along([many, few], rng)[1]
    assert 10 <= int(held.min()) and int(held.max()) <= 14
    leaves = [x, other, x.clone(), few, few.clone()]
    skeleton = {"dict": {"t": {"list": [{"t": at} for at in range(5)]}, "v": {"v": 3}}}
    made = slices.handed(skeleton, leaves, slices.ITSELF)
    assert {"dict": {"t": {"list": [{"t": at} for at in (0, 1, 0, 3, 4)]}, "v": {"v": 3}}} == made
    assert skeleton is slices.handed(skeleton, leaves, "one for all")


@pytest.mark.parametrize("axis", [0, 1])
def test_the_same_slices_of_all_inputs_are_zero(axis: int) -> None:
    """Of all that are as long there as the largest."""
    name = next(name for name, number in slices.BLANK.items() if number == axis)
    leaves = [torch.rand(8, 12, 4) + 1, torch.rand(8, 12) + 1, torch.rand(5, 5) + 1, torch.randint(1, 9, (8, 12))]
    variant, counts = Variant(name=name, required=True, change=name), set()
    for seed in range(12):
        one, other, third, fourth = inputs.change_leaves(leaves, variant, seed)
        blank = (one == 0).movedim(axis, 0).flatten(1).all(1)
        counts.add(int(blank.sum()))
        assert torch.equal(blank, (other == 0).movedim(axis, 0).all(1))
    assert len(blank) - 1 in counts and 1 <= min(counts) < 6
    assert torch.equal(third, leaves[2]) and torch.equal(fourth, leaves[3])


def test_some_rows_are_those_of_another_input_and_all_inputs_are_zero() -> None:
    """Whole samples where shapes are the same; a mask, single numbers and whole ones stay."""
    leaves = [torch.rand(8, 3, 4) + 1, torch.rand(8, 3, 4) + 1, torch.rand(6, 4), torch.tensor(2.0), torch.arange(4)]
    alike = Variant(name="", required=True, change="rows alike")
    first, second, rows, single, whole = inputs.change_leaves(leaves, alike, 5)
    same = (second == first).flatten(1).all(1)
    assert torch.equal(first, leaves[0]) and 1 <= int(same.sum()) < 8
    near = ((second - first).abs() <= 2.0**-2 * first).flatten(1).all(1) & ~same
    assert torch.equal(second[~same & ~near], leaves[1][~same & ~near]) and 1 <= int(near.sum()) < 8
    assert 1 <= int((rows == first.reshape(-1, 4)[:6]).all(1).sum()) < 6
    zero = inputs.change_leaves(leaves, Variant(name="", required=True, change="blank inputs"), 5)
    assert not any(bool(leaf.any()) for leaf in zero[:3])
    assert torch.equal(zero[3], single) and torch.equal(zero[4], whole) and torch.equal(single, leaves[3])
    one = inputs.change_leaves(leaves, Variant(name="", required=True, change="one for all"), 5)
    assert torch.equal(one[1], leaves[0]) and all(torch.equal(one[i], leaves[i]) for i in (0, 2, 3, 4))


@pytest.mark.parametrize(("change", "more"), [("", {"scale": 8.0}), ("sparse", {}), ("zero rows", {}), ("far", {})])
def test_complex_inputs_change_as_the_numbers_they_are_made_of(change: str, more: dict[str, Any]) -> None:
    """Whatever can be done to floats."""
    leaf = torch.randn(16, 96, dtype=torch.complex64)
    (made,) = inputs.change_leaves([leaf], Variant(name="", required=True, change=change, **more), 5)
    assert made.dtype == leaf.dtype and made.shape == leaf.shape and not torch.equal(made, leaf)
    if more:
        assert torch.equal(made, leaf * 8.0)


def test_an_input_comes_again_with_two_elements_exchanged() -> None:
    """Whoever tells inputs apart by a sum, in whatever order, takes one for the other."""
    made = instance("x * 2.0", "[torch.randn(16, 8)]")
    variant = next(v for v in made.offered(3) if v.change == "rearranged")
    (one,), (other,) = made.draw(variant, 1), made.draw(variant, 2)
    assert not torch.equal(one, other)
    assert torch.equal(one.flatten().sort().values, other.flatten().sort().values)
    rows = [row for row in range(16) if not torch.equal(one[row], other[row])]
    assert any(torch.equal(one[row].sort().values, other[row].sort().values) for row in rows)


def test_a_reference_that_does_not_take_the_largest_scale_gets_one_that_it_takes() -> None:
    """The first of a few, and outliers as large."""
    made = instance("torch.sinh(x)", "[torch.rand(16, 8)]")
    taken = [v.name for v in made.variants(3)]
    assert "scale 1000" not in taken and "outliers" not in taken
    assert {"scale 20, the largest taken", "outliers of 20"} <= set(taken)


def test_values_come_in_runs_along_any_axis() -> None:
    """A gap of more than half of the places, before what is there again."""
    leaf, longest = torch.randn(3, 40, 5, generator=torch.Generator().manual_seed(1)), [0, 0, 0]
    for seed in range(60):
        made = marks.planted(leaf, (float("nan"),), torch.Generator().manual_seed(seed), marks.RUNS)
        gone = made.isnan()
        assert torch.equal(torch.where(gone, leaf, made), leaf)
        for axis in range(3):
            along = gone.movedim(axis, -1).reshape(-1, leaf.shape[axis]).float()
            run = [max(map(len, "".join(str(int(flag)) for flag in row).split("0"))) for row in along]
            longest[axis] = max(longest[axis], *(n for n in run if n < leaf.shape[axis]), 0)
    assert longest[1] > 20 and longest[2] >= 3
    ordered = torch.arange(40) * 2
    assert torch.equal(marks.planted(ordered, (3.0,), torch.Generator().manual_seed(1), marks.RUNS), ordered)
