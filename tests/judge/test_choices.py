# SPDX-License-Identifier: Apache-2.0
"""Whole numbers and booleans: ties and borders may fall either way, and nothing else may."""

from __future__ import annotations

import math
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from plain_tasks import GRADIENTS, instance

from kernelwright.judge import choices
from kernelwright.judge.floors import Floor
from kernelwright.judge.inputs import Variant
from kernelwright.judge.verify import Checker
from kernelwright.judge.yardstick import Yardstick

SPARSER = Variant(name="sparser", required=True, change="sparser")
GIVEN = Variant(name="as given", required=True)
ROWS = "[torch.randn(256, 64)]"
QUANT = "torch.round(x / (x.abs().amax(-1, keepdim=True) / 127)).to(torch.int8)"
FLOATS = QUANT.removesuffix(".to(torch.int8)")
MANY = "[torch.randn(512, 1024)]"
FLOAT8 = "(x / (x.abs().amax(-1, keepdim=True) / 448)).to(torch.float8_e4m3fn).float()"
HALF_STEPS = "[torch.randint(-4, 4, (64, 64)) / 2]"
ONE = torch.tensor([3])
CANCEL = "[torch.cat([torch.cat([(a := torch.randn(64, 64)), -a[:, torch.randperm(64)]], 1), torch.randn(1984, 128)])]"
"""Some rows whose sums are zero but for rounding."""
Program = Callable[[torch.Tensor], torch.Tensor]


def passes(forward: str, inputs: str, other: Program, variant: Variant = GIVEN) -> bool:
    """Whether a program's answer to one call passes; the last of the draws is one where it is not the reference's."""
    checker = Checker(instance(forward, inputs), seed=3)
    for seed in range(40):
        leaves = checker.instance.draw(variant, seed)
        (eager,), ((exact,), _) = checker.instance.eager(leaves, None), checker.instance.oracle(leaves, None)
        got = other(*leaves)
        if bool(((got != eager) & (got != exact)).any()):
            return checker.check(variant, leaves, None, [got], leaves).passed
    raise AssertionError("its answers are always the reference's")


def last_of_ties(x: torch.Tensor) -> torch.Tensor:
    """argmax, from the right."""
    return x.shape[-1] - 1 - x.flip(-1).argmax(-1)


def top(x: torch.Tensor) -> torch.Tensor:
    """Places of the eight largest, from a stable sort."""
    return torch.sort(x, dim=-1, descending=True, stable=True).indices[..., :8].contiguous()


def second(x: torch.Tensor) -> torch.Tensor:
    """argmax, but the second largest of the first row."""
    out = x.argmax(-1)
    out[0] = x[0].topk(2).indices[1]
    return out


def twice(x: torch.Tensor) -> torch.Tensor:
    """The eight largest, one of them twice where values are equal."""
    found = top(x)
    values = x.gather(-1, found)
    found[..., 7] = torch.where(values[..., 7] == values[..., 6], found[..., 6], found[..., 7])
    return found


def outside(x: torch.Tensor) -> torch.Tensor:
    """A place beyond the row, where the reference's is a tie."""
    out = x.argmax(-1)
    out[0] = x.shape[-1]
    return out


def by_reciprocal(x: torch.Tensor) -> torch.Tensor:
    """Whole numbers of 8 bits by a product for a quotient."""
    return torch.round(x * (127 / x.abs().amax(-1, keepdim=True))).to(torch.int8)


def float8(x: torch.Tensor) -> torch.Tensor:
    """Floats of 8 bits by a product for a quotient."""
    return (x * (448 / x.abs().amax(-1, keepdim=True))).to(torch.float8_e4m3fn).float()


def of_16_bits(x: torch.Tensor) -> torch.Tensor:
    """The same of numbers with 16 bits."""
    high = x.bfloat16().float()
    return by_reciprocal(high + (x - high).bfloat16().float())


@pytest.mark.parametrize(
    ("forward", "program"),
    [("x.argmax(-1)", last_of_ties), ("x.max(-1)[1]", last_of_ties), ("x.topk(8)[1]", top), ("x.argsort(-1)", None)],
)
def test_of_equal_values_any_place_is_right(forward: str, program: Program | None) -> None:
    """Rows of zeros with few other numbers: which zero comes first is nobody's promise."""
    sort = torch.flip(torch.arange(64), (0,))
    assert passes(forward, ROWS, program or (lambda x: sort[x.flip(-1).argsort(dim=-1, stable=True)]), SPARSER)


@pytest.mark.parametrize(
    ("forward", "program"),
    [("x.argmax(-1)", second), ("x.argmax(-1)", outside), ("x.topk(8)[1]", twice),
     ("x.argsort(dim=-1, stable=True)", lambda x: 63 - x.flip(-1).argsort(dim=-1, stable=True))],
)  # fmt: skip
def test_other_places_are_wrong(forward: str, program: Program) -> None:
    """Smaller values, none at all, one place twice, and another order where one is promised."""
    assert not passes(forward, ROWS, program, SPARSER)


def test_a_number_at_a_border_may_fall_to_either_side() -> None:
    """One element in 10^5 of a quantised tensor lies within rounding of a half."""
    assert passes(QUANT, MANY, by_reciprocal)


def test_a_number_that_is_no_nearer_to_it_may_not() -> None:
    """16 bits of the input cross borders that are 2^8 times as far."""
    assert not passes(QUANT, MANY, of_16_bits)


@pytest.mark.parametrize("forward", ["x >= 0.5", "(x * 2.0).floor().to(torch.int32) >= 1"])
def test_what_is_computed_exactly_has_no_doubtful_side(forward: str) -> None:
    """Multiples of one half, and a comparison that leaves equality out."""
    assert not passes(forward, HALF_STEPS, lambda x: x > 0.5)


def test_sums_in_another_order_may_decide_otherwise() -> None:
    """Some rows, whose sums are zero but for rounding."""
    assert passes("x.sum(-1) > 0", CANCEL, lambda x: sum(x.unbind(-1)) > 0)
    assert not passes("x.sum(-1) > 0", "[torch.randn(4096, 64)]", lambda x: x.bfloat16().float().sum(-1) > 0)


@pytest.mark.parametrize(
    ("forward", "inputs", "program"),
    [
        ("torch.sign(x.sum(-1))", CANCEL, lambda x: torch.sign(sum(x.unbind(-1)))),
        (FLOATS, MANY, lambda x: torch.round(x * (127 / x.abs().amax(-1, keepdim=True)))),
        (FLOAT8, MANY, float8),
        ("(x.sum(-1, keepdim=True) > 0) * x", CANCEL, lambda x: (sum(x.unbind(-1))[:, None] > 0) * x),
    ],
)  # fmt: skip
def test_floats_that_hang_on_a_border_may_fall_to_either_side(forward: str, inputs: str, program: Program) -> None:
    """The sign of a sum of nearly zero, a step of a quantiser, a row that a sum lets through."""
    assert passes(forward, inputs, program)


@pytest.mark.parametrize(
    ("forward", "inputs", "program"),
    [
        ("torch.sign(x.sum(-1))", "[torch.randn(4096, 64)]", lambda x: torch.sign(x.bfloat16().float().sum(-1))),
        (FLOATS, MANY, lambda x: of_16_bits(x).to(x.dtype)),
        (FLOAT8, MANY, lambda x: float8((high := x.bfloat16().float()) + (x - high).bfloat16().float())),
        ("torch.sign(x.sum(-1))", "[torch.randn(4096, 64)]", lambda x: torch.sign(x.sum(-1)).index_fill(0, ONE, 0.0)),
        ("x.sum(-1)", "[torch.randn(4096, 64)]", lambda x: x.sum(-1).index_fill(0, ONE, 0.0)),
    ],
)  # fmt: skip
def test_floats_that_are_no_nearer_to_it_may_not(forward: str, inputs: str, program: Program) -> None:
    """Sides by numbers of 16 bits, of an exact comparison, and one element that is simply wrong."""
    assert not passes(forward, inputs, program)


@pytest.mark.parametrize(("row", "right"), [(None, True), (0, False)])
def test_attention_may_take_another_key_only_where_rounding_decides(row: int | None, right: bool) -> None:
    """Scores near 5e9 are whole steps apart: sums one by one take another key in one row of this draw. ``row``: one
    that takes its second best key though the best is far better."""
    heads = f"torch.randn({(2, 4, 48, 64)})"
    forward = "torch.softmax(q @ k.transpose(-1, -2) / 8.0, -1) @ v"
    made = instance(forward, f"[{heads}, {heads}, {heads}]", args="q, k, v")
    far = Variant(name="far below zero", required=True, change="far", scale=-1000.0)
    q, k, v = leaves = made.draw(far, 3720)
    scores = sum(q[..., c, None] * k[..., None, :, c] for c in range(64)) * 0.125
    got = torch.softmax(scores, -1) @ v
    if row is not None:
        got = made.eager(leaves, None)[0].clone()
        got[0, 0, row] = v[0, 0, scores[0, 0, row].topk(2).indices[1]]
    assert right is Checker(made, seed=3).check(far, leaves, None, [got], leaves).passed
    assert not Checker(made, seed=3).check(far, leaves, None, [got], leaves, brief=True).passed  # of decoys nobody asks


def test_floats_on_an_exact_border_may_not() -> None:
    """Halves are halves, and no honest rounding moves them."""
    borders = Variant(name="on borders", required=True, change="borders")
    assert not passes("torch.where(x >= 0.5, x, -x)", ROWS, lambda x: torch.where(x > 0.5, x, -x), borders)


@pytest.mark.parametrize(("place", "right"), [(20, True), (21, False), (3, False)])
def test_the_only_small_float_on_a_border_may_fall_to_either_side_too(place: int, right: bool) -> None:
    """Steps of large ones are within what draws of the honest error show; of small ones they drew none."""
    made = instance(FLOAT8 + " * (x.abs().amax(-1, keepdim=True) / 448)", "[torch.randn(64, 128)]")
    x = torch.full((64, 128), 1.9)
    x[:, 0], x[:, 16:48], x[1, 20] = 3.0, 0.009, 1.3125 * 3 / 448  # a border lies at 1.3125 steps
    (eager,), ((exact,), _) = made.eager([x], None), made.oracle([x], None)
    got = eager.clone()
    got[1, place] = (1.375 if got[1, place] < 1.3 * 3 / 448 else 1.25) * 3 / 448 if place > 3 else 2.6
    bands = (0.02, 1e-3, *[1e-9] * 10)
    held = Yardstick(eager, exact, Floor(rms=0.02, peak=0.2, bands=bands))
    assert held.compare(got, 1.0).bits_lost > 1.0
    truth: Any = SimpleNamespace(leaves=[x], state=None, eager=[eager], exact=[exact])
    assert right is (choices.held(made, truth, 0, got, held).bits_lost <= 1.0)


MASKED = "x.masked_fill((p := torch.softmax(x, -1)) < 0.1 * p.amax(-1, keepdim=True), -torch.inf)"
AT_A_TENTH = (
    "[(lambda x: torch.where(torch.arange(512) == 7, x[:, 8:].amax(-1, keepdim=True) - 2.302585092994046, x)"
    ".index_fill(1, torch.arange(7), -1.0))(torch.randn(64, 512) * 2)]"
)
"""One of each row has a tenth of the largest share, to within rounding."""


def least(x: torch.Tensor, share: float = 0.1) -> torch.Tensor:
    """The least logit that is kept."""
    return x.amax(-1, keepdim=True) + math.log(share)


def spoilt(x: torch.Tensor, value: float, place: int = 9) -> torch.Tensor:
    """Masked by logits, but for one element."""
    out = torch.where(x < least(x), -torch.inf, x)
    out[3, place] = value
    return out


def above(x: torch.Tensor, add: float) -> torch.Tensor:
    """Masked by logits, the one at the border of each row filled with another number where it is kept."""
    kept = torch.where(x < least(x), -torch.inf, x)
    return torch.where((torch.arange(512) == 7) & kept.isfinite(), kept + add, kept)


def test_an_infinity_at_a_border_may_be_there_or_not() -> None:
    """By logits and not by shares 28 of 32 elements at the border fell to the other side, and each call was refused."""
    assert passes(MASKED, AT_A_TENTH, lambda x: torch.where(x < least(x), -torch.inf, x))


@pytest.mark.parametrize(
    "program",
    [
        lambda x: torch.where(x < least(x, 0.1005), -torch.inf, x),
        lambda x: torch.where(x < least(x, 0.0995), -torch.inf, x),
        lambda x: torch.where(x.bfloat16() < least(x.bfloat16()), -torch.inf, x),
        lambda x: torch.where(x < least(x), torch.inf, x),
        lambda x: torch.where(x < least(x), torch.nan, x),
        lambda x: spoilt(x, -torch.inf, int(x[3].argmax())),
        lambda x: spoilt(x, torch.inf, 7),
        lambda x: spoilt(x, torch.nan, 7),
        lambda x: spoilt(x, 1.0),
        lambda x: above(x, 0.01),
    ],
)
def test_an_infinity_elsewhere_may_not(program: Program) -> None:
    """Borders a little off, other infinities, none, and other numbers at the border."""
    assert not passes(MASKED, AT_A_TENTH, program)


@pytest.mark.parametrize("value", [torch.inf, -torch.inf, torch.nan])
def test_infinities_that_no_draw_has_are_wrong(value: float) -> None:
    """Of a reference whose answers are finite, and jump."""
    signs = "torch.where(x.sum(-1) > 0, 1.0, -1.0)"
    assert not passes(signs, CANCEL, lambda x: x.sum(-1).sign().index_fill(0, ONE, value))


@pytest.mark.parametrize(
    ("forward", "at", "times", "right"),
    [
        ("F.hardswish(x)", 3.0, 1.5, True),
        ("F.hardswish(x)", 3.0, 1.0, True),
        ("F.hardswish(x)", 3.0, 1.7, False),
        ("F.hardswish(x)", 2.9, 1.5, False),
        ("torch.relu(x)", 0.0, 1.0, False),
    ],
)
def test_a_gradient_at_a_kink_is_that_of_either_side_but_at_zero(
    forward: str, at: float, times: float, right: bool
) -> None:
    """One number in many lies there; zeros are what other layers make, of half of all."""
    made = instance(forward, "[torch.randn(16, 64)]", contract=GRADIENTS)
    given = made.offered(0)[0]
    leaves = made.draw(given, 1)
    leaves[0][3, 5] = at
    output, gradient = made.eager(leaves, None)
    gradient[3, 5] = times * leaves.incoming[0][3, 5]
    assert Checker(made, seed=3).check(given, leaves, None, [output, gradient], leaves).passed is right
