# SPDX-License-Identifier: Apache-2.0
"""Matrices that have no inverse but for rounding, and what overflows by chance, are outside a reference's domain."""

from __future__ import annotations

import pytest
import torch
from plain_tasks import instance

from kernelwright.judge.extremes import SLIGHT, VAST
from kernelwright.judge.finite import regular, within
from kernelwright.judge.inputs import Variant
from kernelwright.judge.verify import Checker
from kernelwright.task import Contract


@pytest.mark.parametrize(
    "forward", ["torch.linalg.solve(x, x[:, :3])", "torch.linalg.inv(x)", "torch.linalg.lu_factor(x)[0]"]
)
def test_a_matrix_that_is_singular_but_for_rounding_is_outside(forward: str) -> None:
    """A last row that is the sum of the others, to a unit of the last place, has a pivot of about 1e-6, or none."""
    made = instance(forward, "[torch.randn(12, 12) + 12 * torch.eye(12)]")
    matrix = torch.randn(12, 12, generator=torch.Generator().manual_seed(3)) + 12 * torch.eye(12)
    assert regular(made, [matrix], None, made.eager([matrix], None))
    matrix[-1] = matrix[:-1].sum(0) + 1e-6
    assert not regular(made, [matrix], None, made.eager([matrix], None))
    plain = instance("x * 2.0", "[torch.randn(12, 12)]")
    assert regular(plain, [matrix], None, plain.eager([matrix], None))


RETRIED = """
def factored(c, other):
    l, info = torch.linalg.cholesky_ex(c)
    return torch.linalg.cholesky(other) if info else l
"""


def test_a_matrix_that_is_factored_again_with_more_on_its_diagonal_is_inside() -> None:
    """Not where another one is, and not where only float32 tries again."""
    given, dice = "[torch.randn(64, 12)]", torch.Generator().manual_seed(3)
    rows = torch.randn(64, 12, generator=dice)
    blank, near = rows.clone(), rows.clone()
    blank[:, 4] = 0.0
    near[:, 4] = near[:, 3] * (1 + 1e-7 * torch.randn(64, generator=dice))
    for other, inside in (("x.mT @ x + 0.01 * torch.eye(12)", True), ("2 * x.mT @ x + torch.eye(12)", False)):
        made = instance(f"factored(x.mT @ x, {other})", given, head=RETRIED)
        assert regular(made, [rows], None, made.eager([rows], None))
        assert inside is regular(made, [blank], None, made.eager([blank], None))
    made = instance("factored(x.mT @ x, x.mT @ x + 0.01 * torch.eye(12))", given, head=RETRIED)
    assert not regular(made, [near], None, made.eager([near], None))


def test_a_matrix_that_overflows_is_outside_too() -> None:
    """Its singular values are an error in torch, which ended the whole judgement once."""
    made = instance("torch.linalg.inv(x @ x.mT + torch.eye(6))", "[torch.randn(6, 8)]")
    leaves = [torch.randn(6, 8, generator=torch.Generator().manual_seed(3)) * 1e25]
    assert not regular(made, leaves, None, [torch.zeros(6, 6)])


@pytest.mark.parametrize(
    ("forward", "inside"),
    [
        ("x * torch.rsqrt(x.square().mean(-1, keepdim=True) + 1e-5)", False),
        ("x / x.float().square().mean(-1, keepdim=True).sqrt().half()", True),
        ("torch.softmax(x.masked_fill(x > 0, -float('inf')), -1)", True),
        ("torch.softmax(x / 1000 + (x > 0).to(x.dtype) * -1e9, -1)", True),
        ("torch.softmax(x / 1000 - (x > 0).to(x.dtype) * 1e9, -1)", True),
        ("torch.softmax(x.clamp(max=0) + torch.finfo(torch.float16).min * (x > 0).to(x.dtype), -1)", True),
    ],
)
def test_what_overflows_inside_in_half_precision_is_outside(forward: str, inside: bool) -> None:
    """Squares of 1000 are infinite, and answers zeros, which were the oracle; infinities of a mask are so by design."""
    made = instance(forward, "[torch.randn(8, 64).half()]")
    leaves = [torch.randn(8, 64, generator=torch.Generator().manual_seed(1)).half() * 1000]
    leaves[0][:, 0] = -leaves[0][:, 0].abs()
    usual, large = ([leaves[0] / scale] for scale in (1000, 1))
    given = Variant(name="scale 1000", required=True, scale=1000.0)
    found = [within(made, given, each, None, made.eager(each, None)) for each in (usual, large)]
    assert found == [True, inside]


def test_infinities_that_only_float32_has_in_a_tasks_own_calls_are_no_design() -> None:
    """Of larger values float64 has the same, and an honest log_softmax has finite numbers there."""
    made = instance("torch.log(torch.softmax(x, -1))", "[torch.randn(4, 8) * 60.0]")
    leaves = [torch.arange(32.0).reshape(4, 8) * 5000.0]
    outputs = made.eager(leaves, None)
    assert torch.isinf(outputs[0]).sum() == torch.isinf(made.oracle(leaves, None)[0][0]).sum() == 28
    assert not regular(made, leaves, None, outputs)
    masked = instance("torch.log_softmax(x.masked_fill(x > 1.0, -float('inf')), -1)", "[torch.randn(4, 64)]")
    leaves = [torch.randn(4, 64, generator=torch.Generator().manual_seed(3)) * 20.0]
    assert regular(masked, leaves, None, masked.eager(leaves, None))


@pytest.mark.parametrize(
    ("forward", "inside"),
    [
        ("x / x.norm(dim=-1, keepdim=True)", True),
        ("x ** 3", True),
        ("x ** 3 * 1e20", True),
        ("x ** 7", False),
        ("(x ** 7) * 1e30 + 1.0", True),  # of which nothing shows
        ("(x ** 7) * 1e30 + x ** 6", False),
    ],
)
def test_slight_numbers_are_inside_where_nothing_that_shows_vanishes(forward: str, inside: bool) -> None:
    """Of the scale that asks so; of others what float32 does not hold is the reference's own matter."""
    made = instance(forward, "[torch.randn(8, 64)]")
    leaves = [SLIGHT * torch.randn(8, 64, generator=torch.Generator().manual_seed(1))]
    outputs = made.eager(leaves, None)
    for scale, expected in ((SLIGHT, inside), (1e-3, True)):
        variant = Variant(name="slight", required=True, scale=scale)
        assert expected == within(made, variant, leaves, None, outputs)


def test_of_results_by_lot_nothing_says_whether_slight_numbers_are_inside() -> None:
    made = instance("F.dropout(x, 0.5, True)", "[torch.randn(8, 64)]", contract=Contract(random=True))
    leaves = [SLIGHT * torch.randn(8, 64)]
    slight = Variant(name="slight", required=True, scale=SLIGHT)
    assert not within(made, slight, leaves, None, made.eager(leaves, None))


CODES = "torch.linspace(-1, 1, 64).sin().reshape(16, 4)"
APART = f"((x[:, None] - {CODES}) ** 2).sum(-1)"


@pytest.mark.parametrize(
    ("forward", "inside"),
    [
        (f"{CODES}[({APART}).argmin(1)]", [True, False, False]),
        (f"{CODES}[({APART}).topk(2, 1, largest=False).indices].mean(1)", [True, False, False]),
        (f"{CODES}[(x @ {CODES}.mT).argmax(1)]", [True, True, True]),
        ("x.masked_fill(x < 0, -float('inf')).topk(2).indices", [True, True, True]),
        ("x.sort(-1).values", [True, True, True]),
    ],
)
def test_vast_numbers_are_outside_where_what_is_chosen_by_overflows(forward: str, inside: list[bool]) -> None:
    """Of squared distances that all are infinite the first was the nearest: who left out the squares that they have in
    common was refused in each judgement."""
    made = instance(forward, "[torch.randn(8, 4)]")
    kinds = (
        Variant(name="slight", required=True, scale=SLIGHT),
        Variant(name="vast", required=True, scale=VAST),
        Variant(name="one", required=True, change="outliers", factors=(VAST,)),
    )
    found = []
    for variant in kinds:
        leaves = made.draw(variant, 3)
        found.append(within(made, variant, leaves, None, made.eager(leaves, None)))
    assert inside == found


@pytest.mark.parametrize(("low", "refused"), [(-1e9, True), (-3e38, False)])
def test_who_chooses_the_largest_from_some_number_on_is_still_refused(low: float, refused: bool) -> None:
    made = instance("x.topk(2).indices", "[torch.randn(8, 64)]")
    checker, wrong = Checker(made, seed=3), []
    for variant in made.offered(1):
        if abs(variant.scale) == VAST and made.usable(variant, 1):
            leaves = made.draw(variant, 5)
            answer = leaves[0].clamp(min=low).topk(2).indices
            wrong.append(not checker.check(variant, leaves, None, [answer]).passed)
    assert len(wrong) == 3 and refused == any(wrong)
