# SPDX-License-Identifier: Apache-2.0
"""Places of equal values, as they are or as what was made of them: any will do, and no place of another value."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from plain_tasks import GRADIENTS, instance

from kernelwright.judge import one_order, ties
from kernelwright.judge.inputs import Variant
from kernelwright.judge.verify import Checker

GIVEN = Variant(name="as given", required=True)
LARGE = Variant(name="scale 1000", required=True, scale=1000.0)
DIGITS = "[torch.randint(0, 9, (64, 4, 16)).float()]"
NORMAL = "[torch.randn(64, 32)]"
SPLIT = "(i := x.flatten(1).topk(4)[1]) // 16, i % 16"
"""Of a beam search: which beam, and which token of it."""
Answers = list[torch.Tensor]
Program = Callable[[torch.Tensor], Answers]


def passes(forward: str, inputs: str, other: Program, variant: Variant = GIVEN, *, double: bool = True) -> bool:
    """Whether a program's answers to one call pass."""
    checker = Checker(instance(forward, inputs), seed=3)
    if not double:
        checker.instance.distrust_double("other places of equal numbers")
    leaves = checker.instance.draw(variant, 5)
    return checker.check(variant, leaves, None, other(*leaves), leaves).passed


def first(x: torch.Tensor) -> torch.Tensor:
    """Places of the four largest, the first ones of equal ones."""
    return x.sort(dim=-1, descending=True, stable=True)[1][..., :4].contiguous()


def next_best(x: torch.Tensor) -> torch.Tensor:
    """The same, but the second largest of the first row comes first: a place of another value."""
    found, values = first(x), x[0].unique()
    found[0, 0] = (x[0] == values[-2]).nonzero()[-1, 0]
    return found


def split(chosen: Callable[[torch.Tensor], torch.Tensor]) -> Program:
    """Beams and tokens of places."""
    return lambda x: [(i := chosen(x.flatten(1))) // 16, i % 16]


def inverse(order: torch.Tensor) -> torch.Tensor:
    """Where each place went."""
    return torch.empty_like(order).scatter_(0, order, torch.arange(len(order)))


def by_lot(x: torch.Tensor) -> torch.Tensor:
    """An order in which equal keys come by lot."""
    lot = torch.randperm(len(x), generator=torch.Generator().manual_seed(3))
    return lot[x[lot].argsort(stable=True)]


@pytest.mark.parametrize(
    ("program", "right"),
    [
        (lambda x: [o := x.argsort(stable=True), inverse(o)], True),
        (lambda x: [o := by_lot(x), inverse(o)], True),
        (lambda x: [x.argsort(stable=True), inverse(by_lot(x))], False),
        (lambda x: [o := by_lot(x), inverse(o.roll(1))], False),
        (lambda x: [x.argsort(stable=True), (x[None] < x[:, None]).sum(1)], False),
    ],
    ids=["stable", "by lot", "of another order", "of none", "ranks that equal keys share"],
)
def test_what_follows_an_order_of_equal_keys_may_be_of_any_but_of_one(program: Program, right: bool) -> None:
    """Tokens put in order by expert, and where each of them went: ``argsort`` promises no order of equal ones."""
    tokens = "[torch.randint(0, 8, (120,))]"
    assert right is passes("(o := x.argsort(), o.argsort())", tokens, program)


@pytest.mark.parametrize(("kept", "right"), [("first", True), ("last", True), ("fewer", False), ("smaller", False)])
def test_a_mask_of_the_largest_may_have_any_of_equal_ones(kept: str, right: bool) -> None:
    """As many as were asked for."""

    def mask(x: torch.Tensor) -> Answers:
        places = first(x) if kept != "last" else x.shape[-1] - 1 - first(x.flip(-1))
        if kept == "smaller":
            places[3, 3] = x[3].argmin()
        made = torch.zeros(x.shape, dtype=torch.bool).scatter_(-1, places, True)
        return [made & (x > x.topk(5)[0][..., 4:]) if kept == "fewer" else made]

    few = "[torch.randint(0, 6, (64, 32)).float()]"
    assert right is passes("torch.zeros(x.shape, dtype=torch.bool).scatter(-1, x.topk(4)[1], True)", few, mask)


@pytest.mark.parametrize("right", [True, False])
def test_experts_may_be_chosen_one_after_the_other_where_probabilities_vanish(right: bool) -> None:
    """The second one is any of those of probability zero in float32, in float64 the next: no oracle is left then."""

    def chosen(x: torch.Tensor) -> Answers:
        p = x.softmax(-1)
        one = p.argmax(-1, keepdim=True)
        two = p.scatter(-1, one, -1.0)
        two = two.argmax(-1, keepdim=True) if right else two.argmin(-1, keepdim=True).roll(1)
        return [torch.zeros(p.shape, dtype=torch.long).scatter_(-1, one, 1).scatter_(-1, two, 1)]

    counts = "F.one_hot(x.softmax(-1).topk(2, -1)[1], 6).sum(1)"
    assert right is passes(counts, "[torch.randn(60, 6)]", chosen, LARGE, double=False)


def crossed(x: torch.Tensor) -> Answers:
    """Beams of the first of equal places, tokens of the last."""
    flat = x.flatten(1)
    last = flat.shape[1] - 1 - first(flat.flip(-1))
    return [first(flat) // 16, last % 16]


@pytest.mark.parametrize(
    ("forward", "inputs", "program", "variant"),
    [
        ("x.flatten(1).topk(4)[1].int()", DIGITS, lambda x: [first(x.flatten(1)).int()], GIVEN),
        ("x.flatten(1).argsort(-1, descending=True)[:, :4] + torch.arange(64)[:, None] * 64", DIGITS,
         lambda x: [first(x.flatten(1)) + torch.arange(64)[:, None] * 64], GIVEN),
        (SPLIT, DIGITS, split(first), GIVEN),
        ("x.softmax(-1).topk(4)[1]", NORMAL, lambda x: [first(x.softmax(-1))], LARGE),
        ("x.sigmoid().topk(4)[1].int()", NORMAL, lambda x: [first(x.sigmoid()).int()], LARGE),
    ],
)  # fmt: skip
def test_what_was_made_of_any_of_them_is_right(forward: str, inputs: str, program: Program, variant: Variant) -> None:
    """Narrower, counted from the start of a batch, taken apart; and values that are equal as the reference has them."""
    assert passes(forward, inputs, program, variant)


@pytest.mark.parametrize(
    ("forward", "inputs", "program", "variant"),
    [
        ("x.flatten(1).topk(4)[1].int()", DIGITS, lambda x: [next_best(x.flatten(1)).int()], GIVEN),
        (SPLIT, DIGITS, split(next_best), GIVEN),
        (SPLIT, DIGITS, crossed, GIVEN),
        (SPLIT, DIGITS, split(lambda x: first(x)[:, :1].expand(-1, 4).contiguous()), GIVEN),
        ("x.softmax(-1).topk(4)[1]", NORMAL, lambda x: [next_best(x)], GIVEN),
        ("x.softmax(-1).argmax(-1)", NORMAL, lambda x: [x.argmin(-1)], LARGE),
        ("x.topk(4)[1]", NORMAL, lambda x: [first(x.bfloat16().float())], GIVEN),
    ],
)  # fmt: skip
def test_a_place_of_another_value_is_wrong(forward: str, inputs: str, program: Program, variant: Variant) -> None:
    """Also two halves of two places, and one place for all."""
    assert not passes(forward, inputs, program, variant)


MASKED = (
    "torch.empty_like(x).scatter(-1, (s := x.sort(-1, descending=True))[1], "
    "s[0].masked_fill(torch.arange(32) > 9, -torch.inf))"
)
"""Ten logits stay."""


def masked(x: torch.Tensor, *, stable: bool = True, kept: int = 10) -> Answers:
    """The same; those of equal ones that come first, or last."""
    s, i = torch.sort(x if stable else x.flip(-1), dim=-1, descending=True, stable=True)
    i = i if stable else 31 - i
    return [torch.empty_like(x).scatter(-1, i, s.masked_fill(torch.arange(32) >= kept, -torch.inf))]


def test_which_of_equal_logits_are_masked_is_nobodys_promise() -> None:
    """The first of them or the last, but as many."""
    digits = "[torch.randint(0, 4, (64, 32)).float()]"
    assert passes(MASKED, digits, masked) and passes(MASKED, digits, lambda x: masked(x, stable=False))
    assert not passes(MASKED, digits, lambda x: masked(x, kept=11))


def test_rows_may_follow_any_order_of_equal_keys() -> None:
    """Tokens by expert; by another's key they do not."""
    rows, ids = "x[:, 0].float()[x[:, 1].argsort()]", "[torch.randint(0, 4, (64, 32))]"
    assert passes(rows, ids, lambda x: [x[:, 0].float()[x[:, 1].argsort(stable=True)]])
    assert not passes(rows, ids, lambda x: [x[:, 0].float()[x[:, 2].argsort(stable=True)]])


def test_who_chooses_by_logits_may_choose_among_sigmoids_that_are_equal() -> None:
    """Those beyond 40 are 1.0 in float64 too; a third one that is less is none of them."""
    chosen = "(x[..., None] * (s := torch.sigmoid(x).topk(2)[1])[:, None]).sum((1, 2)) + torch.sigmoid(x).sum(-1)"
    wide = "[torch.where((z := torch.randn(64, 8)) > 0, 40.0 + z * 100.0, z)]"

    def by_logits(x: torch.Tensor, skipped: int = 0) -> Answers:
        places = x.topk(2 + skipped)[1][:, skipped:]
        return [(x[..., None] * places[:, None]).sum((1, 2)) + torch.sigmoid(x).sum(-1)]

    assert passes(chosen, wide, by_logits) and not passes(chosen, wide, lambda x: by_logits(x, 4))


def test_the_gradient_of_the_largest_may_be_shared_by_all_that_are_equal() -> None:
    """As of amax, and in equal parts: who gives all of it to each of them gives too much."""

    def by(share: bool) -> Program:
        def program(x: torch.Tensor) -> Answers:
            most = x.amax(1, keepdim=True)
            equal = (x == most).float()
            equal = equal / equal.sum(1, keepdim=True) if share else equal
            return [most.squeeze(1), equal * incoming[:, None]]

        return program

    made = instance("x.max(1)[0]", "[torch.randint(0, 3, (64, 8)).float()]", contract=GRADIENTS)
    checker = Checker(made, seed=3)
    leaves = made.draw(GIVEN, 5)
    incoming = leaves.incoming[0]
    for share, right in ((True, True), (False, False)):
        given = leaves[0].clone()
        result = checker.check(GIVEN, leaves, None, by(share)(given), [given])
        assert result.passed is right, result.detail


def test_of_equal_keys_those_may_be_chosen_that_a_sort_in_no_order_finds() -> None:
    """Which of equal zeros a row keeps, when it must be some; one that is kept instead of a larger one is wrong."""
    kept = "torch.zeros_like(x).scatter(1, (i := x.abs().topk(6)[1]), x.gather(1, i) + 1.0)"
    sparse = "[torch.randn(32, 24) * (torch.rand(32, 24) < 0.1)]"

    def any_of_them(x: torch.Tensor, *, least: bool = False) -> Answers:
        lot = torch.rand(x.shape, generator=torch.Generator().manual_seed(4)).argsort(1)
        places = lot.gather(1, x.abs().gather(1, lot).sort(dim=1, descending=not least, stable=True)[1][:, :6])
        return [torch.zeros_like(x).scatter(1, places, x.gather(1, places) + 1.0)]

    assert passes(kept, sparse, any_of_them) and not passes(kept, sparse, lambda x: any_of_them(x, least=True))


@pytest.mark.parametrize("first", ["first", "last", "lot"])
def test_all_that_follows_from_one_sort_has_one_order(first: str) -> None:
    """Places of one order and what stands at those of another, pairs torn apart: each was right by itself."""
    given = "[torch.randint(0, 4, (32, 24)).float(), torch.randn(32, 24)]"
    checker = Checker(instance("(o := x.argsort(-1)), y.gather(-1, o)", given, args="x, y"), seed=3)
    x, y = leaves = checker.instance.draw(GIVEN, 5)

    def order(how: str) -> torch.Tensor:
        places = torch.arange(24) if how == "first" else torch.arange(24).flip(0)
        places = torch.randperm(24, generator=torch.Generator().manual_seed(5)) if how == "lot" else places
        return places[x[:, places].argsort(dim=-1, stable=True)]

    for second in ("first", "last", "lot"):
        answers = [order(first), y.gather(-1, order(second))]
        result = checker.check(GIVEN, leaves, None, answers, leaves)
        if first == second:
            assert result.passed, result.detail
        elif "lot" not in (first, second):
            assert one_order.TORN in result.detail


def test_two_sorts_may_have_an_order_each() -> None:
    given = "[torch.randint(0, 4, (32, 24)).float(), torch.randn(32, 24)]"
    two = "y.gather(-1, x.argsort(-1)), y.gather(-1, (-x).argsort(-1))"
    checker = Checker(instance(two, given, args="x, y"), seed=3)
    x, y = leaves = checker.instance.draw(GIVEN, 5)
    last = 23 - (-x).flip(-1).argsort(dim=-1, stable=True)
    answers = [y.gather(-1, x.argsort(dim=-1, stable=True)), y.gather(-1, last)]
    assert checker.check(GIVEN, leaves, None, answers, leaves).passed


@pytest.mark.parametrize(
    "forward",
    ["(i := x.argmax(-1, keepdim=True)), y.gather(-1, i)", "(i := x.min(-1)[1]), y.gather(-1, i.unsqueeze(-1))"],
)
def test_the_place_of_a_largest_may_be_any_of_equal_ones_for_all_results(forward: str) -> None:
    """Named by the first of them and gathered by the last, it is two."""
    given = "[torch.randint(0, 4, (32, 24)).float(), torch.randn(32, 24)]"
    checker = Checker(instance(forward, given, args="x, y"), seed=3)
    x, y = leaves = checker.instance.draw(GIVEN, 5)
    least = "min" in forward
    keys = -x if least else x
    first, last = keys.argmax(-1, keepdim=True), 23 - keys.flip(-1).argmax(-1, keepdim=True)
    for one in (first, last):
        for other in (first, last):
            answers = [one.squeeze(-1) if least else one, y.gather(-1, other)]
            assert checker.check(GIVEN, leaves, None, answers, leaves).passed is (one is other)


@pytest.mark.parametrize("last", [False, True])
@pytest.mark.parametrize("largest", [False, True])
def test_the_outermost_of_a_row_is_what_a_stable_sort_puts_first(largest: bool, last: bool) -> None:
    """Of equal ones, zeros of both signs among them, the first or the last; along any axis."""
    dice = torch.Generator().manual_seed(5)
    for _ in range(40):
        shape = [int(size) for size in torch.randint(1, 7, (3,), generator=dice)]
        keys = torch.randint(-2, 3, shape, generator=dice).double() * -1.0
        for dim in (-2, 0, 1, 2):
            lined = keys.flip(dim) if last else keys
            first = lined.sort(dim=dim, descending=largest, stable=True).indices.narrow(dim, 0, 1)
            wanted = keys.shape[dim] - 1 - first if last else first
            assert torch.equal(wanted, ties._outermost(keys, dim, largest=largest, last=last))
