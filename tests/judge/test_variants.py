# SPDX-License-Identifier: Apache-2.0
"""Which variants a case gets, and what the new ones do to values."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import pytest
import torch
from plain_tasks import instance

from kernelwright.judge import inputs, layouts, patterned, relations, variants, weights, whole
from kernelwright.judge.almost import REPEATED, SET, SORTED
from kernelwright.judge.bench import Point
from kernelwright.judge.buffers import TensorSpec
from kernelwright.judge.correctness import Correctness
from kernelwright.judge.extremes import FREE
from kernelwright.judge.inputs import Variant
from kernelwright.judge.near_numbers import NEAR
from kernelwright.judge.verify import Checker
from kernelwright.task import Contract


def changed(change: str, leaf: torch.Tensor, **more: object) -> torch.Tensor:
    """One leaf after a change."""
    return inputs.change_leaves([leaf], Variant(name=change, required=True, change=change, **more), 5)[0]


def test_zero_rows_are_whole_rows_and_not_all() -> None:
    """Exactly zero; the other rows are as they were, but for a single zero in some."""
    leaf = torch.randn(64, 16)
    made = changed("zero rows", leaf)
    zeros = (made == 0).sum(-1)
    assert set(zeros.tolist()) == {0, 1, 16} and 1 <= int((zeros == 16).sum()) < 32
    assert torch.equal(made[made != 0], leaf[made != 0])


def test_mask_rows_leave_one_row_empty_and_one_full() -> None:
    """Beside rows of the same density."""
    made = changed("mask rows", torch.rand(64, 40) < 0.5)
    sums = made.sum(-1)
    assert 0 == int(sums.min())
    assert 40 == int(sums.max())
    assert 0.4 < float(made.float().mean()) < 0.6


def test_a_few_outliers_stand_among_elements_that_are_as_they_were() -> None:
    """One in a thousand, and one at least, is a thousand times as large, or a single one 16 to 64 times the largest or
    the least, of which the mean of squares says nothing; zeros stay zeros."""
    alone = []
    for seed in range(16):
        leaf = torch.randn(40 if seed % 2 else 1 << 14).relu() + 0.5
        some = Variant(name="", required=True, change="outliers", factors=(1e-3, 1e3))
        [made] = inputs.change_leaves([leaf], some, seed)
        far = made != leaf
        assert 1 <= int(far.sum()) <= 120
        if not torch.equal(made[far], leaf[far] * 1e3):
            alone.append([float(made[far] / end) for end in torch.aminmax(leaf)])
    assert 2 < len(alone) < 14
    assert all(any(16.0 <= times <= 64.1 for times in both) for both in alone)
    assert torch.equal(torch.zeros(64), changed("outliers", torch.zeros(64), factors=(1e3,)))
    specs = instance("x + 1", "[torch.randn(8, 8)]").specs
    for scales, wanted in (((1.0, 1e3), True), ((1.0, 1e-3), False)):
        asked = {"weights": False, "work": 1, "autocast": False, "hidden_seed": 1}
        names = [v.name for v in variants.offered(Contract(scales=scales), specs, **asked)]
        assert wanted is ("outliers" in names)


@pytest.mark.parametrize("shape", [(90, 64), (4, 1440), (1, 5760), (5760,), (2, 90, 32), (9, 1, 640, 1)])
def test_mixed_rows_hold_every_change(shape: tuple[int, ...]) -> None:
    """Nine parts, in an order drawn by lot: as given, negated, shifted, far, sparse, some rows (or elements) zero, an
    outlier, and both scales. Where there are fewer rows they are cut: of a batch of four none is lost, nor of one."""
    orders = set()
    for seed in range(8):
        leaf = torch.rand(shape) + 0.5
        variant = Variant(name="", required=True, change="mixed", factors=(1e-3, 1e3))
        made = inputs.change_leaves([leaf], variant, seed)[0]
        places = [0, *(at for at in range(1, leaf.numel()) if _kind(leaf, made, at) != _kind(leaf, made, at - 1))]
        kinds = [_kind(leaf, made, at) for at in places]
        assert {"given", "negated", "near", "far", "small", "large", "zero"} == set(kinds)
        assert 1 <= int((made[(made > 400) & (leaf * 1e3 == made)]).numel())
        orders.add(tuple(dict.fromkeys(kinds)))
    assert len(orders) > 1


def _kind(leaf: torch.Tensor, made: torch.Tensor, at: int) -> str:
    """What became of one element from 0.5 to 1.5."""
    old, new = float(leaf.reshape(-1)[at]), float(made.reshape(-1)[at])
    if new in (0.0, old, -old):
        return "zero" if new == 0.0 else "given" if new == old else "negated"
    return "small" if new < 0.01 else "large" if new > 400 else "far" if new > 15 else "near"


def test_parts_of_whole_numbers_and_masks_change_within_what_they_hold() -> None:
    """Rows of bytes are as given, mostly one, all the furthest or all the nearest; lengths keep their order, and
    permutations stay; without leave for that nothing changes."""
    torch.manual_seed(1)
    given = [
        torch.randint(-9, 8, (40, 64), dtype=torch.int8), torch.rand(40, 64) < 0.5, torch.randperm(64),
        torch.randint(0, 99, (64,)).sort()[0], torch.full((16, 16), float("-inf")).triu(1),
    ]  # fmt: skip
    for change in ("mixed", "strewn"):
        bare = Variant(name="", required=True, change=change, factors=(1e3,))
        assert all(map(torch.equal, given, inputs.change_leaves(given, bare, 3)))
        for seed in range(6):
            made = inputs.change_leaves(given, replace(bare, numbers=True), seed)
            numbers, flags, order, lengths, mask = made
            odd = (numbers != given[0]).any(-1)
            assert bool((numbers[odd] == -9).all(-1).any()) or change == "strewn"
            assert bool((numbers[odd] == 0).all(-1).any()) or change == "strewn"
            assert 0 < int(odd.sum()) <= (32 if change == "mixed" else 5) and set(numbers.unique().tolist()) <= set(
                range(-9, 8)
            )
            assert not torch.equal(flags, given[1]) and torch.equal(order, given[2])
            assert bool((lengths.diff() >= 0).all()) and set(lengths.tolist()) <= set(given[3].tolist())
            assert torch.equal(mask.isinf().sum(-1), given[4].isinf().sum(-1)) and bool(
                (mask.isinf() | (mask == 0)).all()
            )


def test_what_a_reference_compares_with_further_off_is_among_the_mixed_scales() -> None:
    """A clamp at 10^5 and an epsilon of 10^-9; where such a scale is refused the usual ones come, and where other whole
    numbers are, none."""
    made = instance("torch.clamp(x, -1e5, 1e5) / (x.abs() + 1e-9) + i", "[torch.rand(64, 64), torch.randint(9, (64,))]",
                    args="x, i")  # fmt: skip
    found = variants.mixed_of(made)
    last = [", plain", ", none larger", ", scaled down"]
    assert ["", ", usual", ", small", *last] == [v.name.removeprefix("mixed rows") for v in found[:6]]
    given = [f"mixed rows{name}, numbers as given" for name in ("", *last)]
    assert [True] * 6 + [False] * 4 == [v.numbers for v in found] and given == [v.name for v in found[6:]]
    assert max(found[0].factors) > 1e5 and min(found[0].factors) < 1e-9
    assert (1e-3, 1e3) == found[1].factors and max(found[2].factors) < 1.0
    only = variants.mixed(Contract())
    assert [f"mixed rows{name}" for name in ("", ", small", *last)] == [v.name for v in only]
    # probabilities are no larger than one, and a logarithm is of no zero
    for forward, name in (("F.binary_cross_entropy(x, x)", ", none larger"), ("x.log().mean(-1)", ", scaled down")):
        strict = instance(forward, "[torch.rand(64, 64)]")
        assert f"mixed rows{name}" == next(v.name for v in variants.mixed_of(strict) if strict.usable(v, 1))


def test_what_is_one_element_among_many_or_a_whole_input_comes_by_itself_on_a_dear_case_too() -> None:
    """Once each: borders, numbers looked for, whole numbers all the largest, lines of masks, scales out of reach. And
    one of the others by lot."""
    forward = "torch.where(x > 0.5, torch.clamp(x, -1e5, 1e5), x) + i.eq(3) + m"
    given = "[torch.rand(64, 64), torch.randint(9, (64, 64)), torch.rand(64, 64) < 0.5]"
    made = instance(forward, given, args="x, i, m")
    offered = made.offered(3)
    names = {v.name for v in offered}
    asked = {"heavy": False, "dear": False}
    lots = set()
    for seed in range(20):
        chosen, spared = variants.shared_out(offered, names, made.contract, seed=seed, **asked)
        assert names == {v.name for v in (*chosen, *spared)} and len(offered) == len(chosen) + len(spared)
        assert {"borders", "marks", "largest", "mask rows", "mask columns", "empty samples"} <= {
            v.change for v in chosen
        }
        assert any(v.scale > 1e5 for v in chosen) and all(v.draws <= 2 for v in chosen)
        lots |= {v.name for v in chosen}
    assert len(lots) > 20
    alone, spared = variants.shared_out(offered, set(), made.contract, seed=1, **asked)
    assert (offered, []) == (alone, spared)


def test_of_a_group_whose_first_a_smaller_case_took_a_dear_one_is_spared_the_others() -> None:
    """No smaller case takes them then: a scale of 20 came for one of 1000 on every dear case, and two outliers."""
    made = instance("x * 2", "[torch.randn(64, 64)]")
    offered = made.offered(3)
    asked = {"heavy": False, "dear": False, "seed": 1}
    chosen, spared = variants.shared_out(offered, {"scale 1000", "negated"}, made.contract, **asked)
    assert {"scale 1000", "scale 20, the largest taken", "scale 4, the largest taken", "negated"} >= {
        v.name for v in spared
    }
    assert not any(v.group == "scale 1000" and v.name != "scale 1000" for v in chosen)
    assert any(v.group == "outliers" for v in chosen)


def test_a_few_odd_rows_are_seen_by_no_small_sample() -> None:
    """All but a few rows are as given; over draws every change comes, alone too."""
    leaf = torch.rand(512, 64) + 0.5
    counts, seen = set(), set()
    for seed in range(60):
        strewn = Variant(name="", required=True, change="strewn", factors=(1e-3, 1e3))
        made = inputs.change_leaves([leaf], strewn, seed)[0]
        odd = made[(made != leaf).any(-1)]
        counts.add(len(odd))
        seen |= {"large" for row in odd if row.min() > 400} | {"small" for row in odd if 0 < float(row.max()) < 0.01}
        seen |= {"negated" for row in odd if row.max() < 0} | {"zero" for row in odd if not row.any()}
    assert {1, 9} <= counts <= set(range(1, 10))
    assert {"large", "small", "negated", "zero"} == seen
    scalar = torch.tensor(2.0)
    assert torch.equal(scalar, changed("strewn", scalar, factors=(1e3,)))


def test_of_several_inputs_one_alone_is_laid_out_oddly() -> None:
    """Two such calls; what lies oddly is laid out in the buffers too. Of one input there is none."""
    made = instance("x + y + z", "[torch.randn(4, 8), torch.randn(4, 8), torch.randn(())]", args="x, y, z")
    alone = [v for v in made.offered(3) if v.apart]
    assert {0, 1} == {v.seed for v in alone}
    for variant in alone:
        leaves = made.draw(variant, 5)
        assert [i == variant.seed for i in range(2)] == [not leaf.is_contiguous() for leaf in leaves[:2]]
        plan = Point(made.case, made, Checker(made), 3, {}).call_plan(variant, 1)
        assert [spec.stride for spec in plan.inputs] == [leaf.stride() for leaf in leaves]
    assert not any(v.apart for v in instance("x", "[torch.randn(4, 8)]").offered(3))


def test_autocast_is_judged_on_values_and_small_ones() -> None:
    """An instance under autocast answers in its own dtype, and no layouts are tried on it."""
    linear = {"init": "self.l = nn.Linear(8, 8)", "contract": Contract(autocast=True)}
    made = instance("self.l(x)", "[torch.randn(4, 8)]", **linear)
    under = made.reference.instance(made.case, "bfloat16")
    assert ("float32", "bfloat16") == (made.out_specs[0].dtype, under.out_specs[0].dtype)
    assert ["as given", "fresh weights", "scale 0.001", "negated"] == [v.name for v in under.offered(1)]


def test_incoming_gradients_belong_to_their_call() -> None:
    """Two draws bring two; the instance goes by the one it looked at last."""
    linear = {"init": "self.l = nn.Linear(8, 8)", "contract": Contract(gradients=True)}
    made = instance("self.l(x)", "[torch.randn(4, 8)]", **linear)
    given = Variant(name=variants.AS_GIVEN, required=True)
    one, other = made.draw(given, 1), made.draw(given, 2)
    first, again, second = made.eager(one, None)[1], made.eager(one, None)[1], made.eager(other, None)[1]
    assert one.incoming is not None and other.incoming is not None
    assert not torch.equal(one.incoming[0], other.incoming[0])
    assert torch.equal(first, again)
    assert not torch.equal(first, second)


def test_attention_under_an_added_mask_accepts_every_variant() -> None:
    """Whatever the seed: which were taken went by lot."""
    made = instance(
        "torch.softmax(q @ k.mT + m, -1) @ v",
        "[*torch.randn(3, 4, 16, 16).unbind(), torch.full((16, 16), float('-inf')).triu(1)]",
        args="q, k, v, m",
    )
    for seed in range(8):
        offered = [v.name for v in made.offered(seed) if v.change not in whole.ADDED and v.group not in FREE]
        assert offered == [v.name for v in made.variants(seed)]


def test_a_dear_case_is_laid_out_in_every_way_beside_its_mixed_draw() -> None:
    """One way by lot let a program pass that ignores strides at that size; inputs laid out alone are not asked."""
    layouts = ("contiguous", "strided", "offset", "transposed")
    checks = Correctness.__new__(Correctness)
    checks.bench = cast(Any, SimpleNamespace(contract=Contract(layouts=layouts)))
    specs = [TensorSpec.contiguous((64, 64), "float32")] * 2
    offered = variants.offered(checks.bench.contract, specs, weights=False, work=1, autocast=False, hidden_seed=3)
    met = {"reach": 0.0, "depth": 1.0, "exponential": False}
    bare = SimpleNamespace(work=1, contract=checks.bench.contract, specs=specs, masked=False, met=met)
    point = cast(Any, SimpleNamespace(offered=offered, instance=bare, usable=lambda variant: True))
    assert [("mixed", "contiguous"), *(("", layout) for layout in (*layouts[1:], "padded", "expanded"))] == [
        (variant.change, variant.layout) for variant in checks._instead(point)
    ]


def test_one_row_comes_for_all_where_that_can_be() -> None:
    """Floats of two axes, of a contract that takes any steps, and no input that calls write to."""
    rows, numbers = TensorSpec.contiguous((8, 4), "float32"), TensorSpec.contiguous((8, 4), "int64")
    vector = TensorSpec.contiguous((8,), "float32")

    def comes(specs: list[TensorSpec], **contract: Any) -> bool:
        how = {"weights": False, "work": 1, "autocast": False, "hidden_seed": 3}
        return any(v.layout == layouts.EXPANDED for v in variants.offered(Contract(**contract), specs, **how))

    assert comes([rows]) and comes([vector, rows])
    assert not comes([numbers, vector]) and not comes([rows], mutates=(0,))
    assert not comes([rows], layouts=("contiguous", "offset"))


def test_an_input_of_several_comes_again_and_numbers_are_skewed() -> None:
    """Each of up to three inputs, one where draws cost more; of a single input none."""
    both = ("x + i", "[torch.randn(4, 8), torch.randint(0, 9, (4, 8))]")
    made = instance(*both, args="x, i")
    names = [v.name for v in made.offered(5)]
    assert {"input 0 again", "input 1 again", "skewed whole numbers", "padded inputs"} <= set(names)
    again = next(v for v in made.offered(5) if v.held == 1)
    one, other = made.draw(again, 1), made.draw(again, 2)
    assert torch.equal(one[1], other[1])
    assert not torch.equal(one[0], other[0])
    assert not any(v.held >= 0 for v in instance("x", "[torch.randn(4, 8)]").offered(5))
    ids = {v.change for v in instance("i + 1", "[torch.randint(0, 9, (4, 8))]", args="i").offered(5)}
    assert {
        "",
        "near-duplicate",
        "rearranged",
        "skewed",
        "largest",
        "least",
        "throughout",
        NEAR,
        *relations.CHANGES,
        REPEATED,
        SET,
        SORTED,
    } == ids
    specs = [TensorSpec.contiguous((64, 64), "float32")] * 4
    dear = variants.offered(Contract(), specs, weights=False, work=10**9, autocast=False, hidden_seed=3)
    assert ["held", "alone"] == [v.change for v in dear if v.held >= 0]


def test_a_mask_that_is_added_is_redrawn() -> None:
    """A program that hides what it always hid would never be found out."""
    made = instance("x + m", "[torch.randn(4, 4), torch.full((4, 4), float('-inf')).triu(1)]", args="x, m")
    assert made.masked
    assert "masks redrawn" in {v.name for v in made.offered(5)}
    assert "masks redrawn" not in {v.name for v in instance("x", "[torch.randn(4, 8)]").offered(5)}


def test_of_changes_that_stand_in_for_each_other_one_is_judged() -> None:
    """The first that was taken of what a dear case has in one draw; weights are moved in both ways."""
    signs, sizes = (Variant(name=how, required=True, fresh_weights=True, moved=how) for how in ("signs", "sizes"))
    rows, more = (Variant(name=name, required=True, change="mixed") for name in "ab")
    given = Variant(name="as given", required=True)
    assert variants.stood_in_for(more, [given, rows])
    assert not variants.stood_in_for(sizes, [given, signs, rows]) and not variants.stood_in_for(given, [given, rows])


def test_heavy_calls_have_moved_weights_beside_odd_rows() -> None:
    """There each variant is dear, so both come in one; the weights as they are where the reference wants them so."""
    specs = instance("x + 1", "[torch.randn(8, 8)]").specs
    asked = {"work": variants.HEAVY + 1, "autocast": False, "hidden_seed": 1}
    found = variants.offered(Contract(), specs, weights=True, **asked)
    assert ["", *["signs"] * 5, *[""] * 6] == [v.moved for v in found]
    assert len({v.name for v in found}) == len(found)
    assert not any(v.moved for v in variants.offered(Contract(), specs, weights=False, **asked))


def test_each_of_several_inputs_is_new_beside_all_the_others_again() -> None:
    """Whole numbers, flags and floats; of two inputs that is the one that comes again."""
    given = ", ".join(["torch.randn(8, 8)", "torch.randint(0, 9, (8, 8))", "torch.rand(8, 8) < 0.5", "torch.randn(8)"])
    made = instance("a * b + c * d", f"[{given}]", args="a, b, c, d")
    alone = [v for v in made.variants(3) if v.change == "alone"]
    assert [v.held for v in alone] == [0, 1, 2, 3]
    for variant in alone:
        first, second = made.draw(variant, 1), made.draw(variant, 2)
        assert [i for i, pair in enumerate(zip(first, second, strict=True)) if not torch.equal(*pair)] == [variant.held]
    two = instance("a * b", "[torch.randn(8, 8), torch.randn(8, 8)]", args="a, b").variants(3)
    assert sorted(v.held for v in two if v.change in ("held", "alone")) == [0, 1]


def test_small_cases_beside_the_timed_one_have_fewer_draws_of_outliers() -> None:
    """And of the ways of having other weights those are spared on dear cases of which another shows as much."""
    spec = TensorSpec.contiguous((4, 8), "float32")

    def of(timed: bool) -> list[Variant]:
        return variants.offered(Contract(), [spec], weights=True, work=1000, autocast=False, hidden_seed=1, timed=timed)

    draws = [max(v.draws for v in of(timed) if v.change == "outliers") for timed in (True, False)]
    assert [24, 12] == draws
    spared = {v.name for v in of(True) if patterned.of_weights(v)}
    others = {f"weights {how}" for how in ("of other sizes", "with zero rows", "with outliers", "almost as made")}
    alike = {f"weights with a pattern{more}" for more in ("", ", 2")}
    again = {"weights almost as made, 2", *(f"weights with slices of other sizes{more}" for more in ("", ", 2"))}
    below = {v.name for v in of(True) if v.moved == weights.BELOW}
    held = {v.name for v in of(True) if v.moved in (weights.ZEROED, weights.REPLACED)}
    assert below and len(held) == 3 and others | alike | again | below | held | {"sparse"} == spared


@pytest.mark.parametrize(
    ("forward", "init", "asked"),
    [
        ("self.fc(x).topk(2)", "self.fc = nn.Linear(8, 16)", True),
        ("self.fc(x)", "self.fc = nn.Linear(8, 16)", False),
        ("x.topk(2)", "", False),
    ],
)
def test_weights_whose_products_are_near_one_another_come_where_they_are_ranked(
    forward: str, init: str, asked: bool
) -> None:
    """Rows near one another, and large ones side by side, in every proof; none for a product alone, nor for inputs."""
    found = {v.moved for v in instance(forward, "[torch.randn(4, 8)]", init=init).variants(3)}
    assert asked is (set(weights.NEIGHBOURS) <= found) and asked is bool(set(weights.NEIGHBOURS) & found)
