# SPDX-License-Identifier: Apache-2.0
"""Numbers of sizes that no contract's scales reach, and which references are asked about them."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from plain_tasks import instance

from kernelwright.judge import extremes, factors, variants
from kernelwright.judge.extremes import LEAST, SLIGHT, SLIGHTER, VAST, WIDE
from kernelwright.judge.inputs import Variant
from kernelwright.judge.verify import Checker


@pytest.mark.parametrize(
    ("forward", "inputs", "scales"),
    [
        ("x * 2.0", "[torch.randn(8, 16)]", {SLIGHT, VAST}),
        ("x.amax(-1)", "[torch.randn(8, 16)]", {SLIGHT, WIDE, VAST, -VAST}),
        ("x - x.floor()", "[torch.randn(8, 16)]", {SLIGHT, WIDE, -WIDE}),
        ("x.amax(-1).round()", "[torch.randn(8, 16)]", {SLIGHT, WIDE, -WIDE}),
        ("torch.hypot(x, x + 1.0)", "[torch.randn(8, 16)]", {SLIGHT, VAST}),
        ("torch.exp(x - x.amax(-1, keepdim=True))", "[torch.randn(8, 16)]", {SLIGHT, VAST}),
        ("x.amax(-1)", "[torch.randn(8, 16).bfloat16()]", {SLIGHT, WIDE, VAST, -VAST}),
        ("x.amax(-1)", "[torch.randn(8, 16).half()]", set()),
        ("x.amax(-1)", "[torch.randint(0, 9, (8, 16))]", set()),
    ],
)
def test_who_is_asked_about_which(forward: str, inputs: str, scales: set[float]) -> None:
    offered = instance(forward, inputs).offered(1)
    assert scales == {v.scale for v in offered if abs(v.scale) in extremes.GUARDED}


@pytest.mark.parametrize(("forward", "taken"), [("x.amax(-1)", True), ("x.amax(-1) * x.amin(-1)", False)])
def test_a_reference_that_overflows_takes_none_that_are_vast(forward: str, taken: bool) -> None:
    made = instance(forward, "[torch.randn(8, 16)]")
    vast = [v for v in made.offered(1) if abs(v.scale) == VAST]
    assert len(vast) == 3 and {taken} == {made.usable(v, 1) for v in vast}


def test_one_draw_is_on_each_side_of_zero() -> None:
    """All of a row below what a maximum is begun from, or above what a minimum is."""
    made = instance("x.amax(-1)", "[torch.randn(8, 16)]")
    sides = [made.draw(v, 3)[0].sign().unique().tolist() for v in made.offered(1) if abs(v.scale) == VAST]
    assert [[-1.0, 1.0], [-1.0], [1.0]] == sides
    assert float(made.draw(Variant(name="", required=True, scale=VAST), 3)[0].abs().max()) > 1e30


def test_operators_are_known_by_name_in_place_or_not() -> None:
    found: list[bool] = []

    class Seen(torch.utils._python_dispatch.TorchDispatchMode):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):  # type: ignore[no-untyped-def]
            found.append(any(has(func) for has in extremes.TRAITS.values()))
            return func(*args, **(kwargs or {}))

    x = torch.randn(4)
    with Seen():
        x.floor_()
        x.mul_(2)
        torch.maximum(x, -x)
    assert [True, False, False, True] == found


@pytest.mark.parametrize(
    ("forward", "held"),
    [
        ("x / y", [*SLIGHTER, LEAST, VAST]),
        ("x * y", [SLIGHTER[1], LEAST]),
        ("x / (y * y).sqrt()", [SLIGHTER[1], LEAST]),
        ("torch.hypot(x, y)", [*SLIGHTER, LEAST, VAST]),
        ("x + y * y", []),
        ("(x / (x + y)).argmax(-1)", [*SLIGHTER, LEAST]),
        ("torch.softmax(x, -1)", []),
        ("x / (y + 1e-20)", [LEAST, VAST]),
    ],
)
def test_references_without_a_size_of_their_own_get_slighter_and_vaster_numbers(
    forward: str, held: list[float]
) -> None:
    made = instance(forward, "[torch.rand(64) + 1.0, torch.rand(64) + 1.0]", args="x, y")
    free = [v for v in made.offered(1) if v.group in extremes.FREE]
    assert held == [v.scale for v in free if made.usable(v, 1)]


STD = "x.std(-1)"


@pytest.mark.parametrize(
    ("answer", "right"),
    [
        (lambda x: (x - x.mean(-1, keepdim=True)).square().sum(-1).div(15).sqrt(), True),  # in float32
        (lambda x: x.std(-1).clamp(min=1e-10), False),
        (lambda x: x.std(-1) * 1.01, False),
        (lambda x: torch.where(x.std(-1) < 1e-9, 0.0, x.std(-1)), False),
    ],
)
def test_squares_may_vanish_where_float32_has_none(answer: Callable[[torch.Tensor], torch.Tensor], right: bool) -> None:
    """Torch takes standard deviations in float64; who takes them in float32 is right where that has squares."""
    made = instance(STD, "[torch.rand(32, 16)]")
    checker, checked = Checker(made), []
    for variant in made.offered(1):
        if variant.group in extremes.FREE and made.usable(variant, 1):
            leaves = made.draw(variant, 7)
            checked.append(checker.check(variant, leaves, None, [answer(leaves[0])]).passed)
    assert len(checked) >= 2
    assert right is all(checked)


@pytest.mark.parametrize(
    ("forward", "inputs", "held"),
    [
        ("x / x.std(-1, keepdim=True) + 1.0", "[torch.randn(8, 64)]", [SLIGHTER[1], LEAST]),
        ("x.abs()", "[torch.randn(8, 64, dtype=torch.complex64)]", [SLIGHTER[1], LEAST]),
        ("x.abs()", "[torch.randn(8, 64)]", [*SLIGHTER, LEAST, VAST]),
    ],
)
def test_deviations_come_no_smaller_than_float32_holds_their_squares(
    forward: str, inputs: str, held: list[float]
) -> None:
    """What is added to one hides that it was lost."""
    made = instance(forward, inputs)
    free = [v for v in made.offered(1) if v.group in extremes.FREE]
    assert held == [v.scale for v in free if made.usable(v, 1)]


def test_of_slighter_numbers_the_least_that_a_reference_takes_come() -> None:
    deep = [v for v in instance("x", "[torch.rand(64)]").offered(1) if v.group == "slighter"]
    assert len(deep) == 2 and variants.stood_in_for(deep[1], deep[:1]) and not variants.stood_in_for(deep[0], [])


def test_one_number_of_a_draw_lies_far_from_all_others() -> None:
    made = instance("x.median(-1).values", "[torch.randn(8, 65)]")
    (one,) = [v for v in made.offered(1) if v.factors == (VAST,)]
    sizes = made.draw(one, 3)[0].abs()
    assert int((sizes > 1e20).sum()) == 1 and float(sizes.median()) < 10.0


def test_who_solves_gets_matrices_whose_sizes_lie_far_apart() -> None:
    """As symmetric and positive as they were."""
    made = instance("torch.linalg.inv(x)", "[(lambda r: r @ r.mT + torch.eye(12))(torch.randn(3, 12, 12))]")
    (one,) = [v for v in made.offered(1) if v.change == factors.CONDITION]
    (drawn,) = made.draw(one, 3)
    values = torch.linalg.eigvalsh(drawn.double())
    lost = values[..., 0] / values[..., -1] / torch.finfo(drawn.dtype).eps / 12
    assert torch.equal(drawn, drawn.mT) and bool(
        (lost > factors.LEFT[0] / 2).all() and (lost < 2 * factors.LEFT[1]).all()
    )
    assert float(lost.max() / lost.min()) > 1.5, "each matrix by a lot of its own"
    assert made.usable(one, 3) and not [
        v for v in instance("x @ x", "[torch.randn(4, 4)]").offered(1) if v.change == factors.CONDITION
    ]


def test_who_solves_gets_matrices_whose_sizes_are_alike_where_any_program_finds_the_same() -> None:
    """Vectors of equal eigenvalues are anybody's: a reference that gives them is not asked."""
    symmetric = "[(lambda r: r + r.mT)(torch.randn(24, 3, 3))]"
    made = instance("torch.linalg.eigvalsh(x)", symmetric)
    (one,) = [v for v in made.offered(1) if v.change == factors.ALIKE]
    (drawn,) = made.draw(one, 3)
    values = torch.linalg.eigvalsh(drawn.double())
    apart = values.diff(dim=-1).amin(-1) / values[..., -1]
    assert torch.equal(drawn, drawn.mT) and bool((values > 0).all() and (apart < 1e-6).all())
    assert 2 <= int((values[..., -1] / values[..., 0] < 1 + 1e-6).sum()) < 20
    assert made.usable(one, 3)
    vectors = instance("torch.linalg.eigh(x).eigenvectors", symmetric)
    assert not vectors.usable(one, 3)
