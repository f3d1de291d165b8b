# SPDX-License-Identifier: Apache-2.0
"""judge/fitted.py: an input is, nearly, what the reference computes of the others and takes from it."""

from __future__ import annotations

import pytest
import torch
from plain_tasks import GRADIENTS, instance

from kernelwright.judge import variants
from kernelwright.judge.buffers import TensorSpec
from kernelwright.judge.fitted import DRAWS, FITTED, FURTHEST, NEAREST, SHARES, SOME
from kernelwright.judge.inputs import Variant, size_of
from kernelwright.judge.instance import Instance
from kernelwright.judge.variants import HEAVY, NEVER_SPARED
from kernelwright.task import Contract

ALL, HALF, TOGETHER = (Variant(name=name, required=True, change=name) for name in DRAWS)
SINGLE = {FITTED, SOME}
WEIGHT = "self.w = torch.nn.Parameter(torch.randn(12, 8))"
ROWS = "[torch.randn(32, 12), torch.randn(32, 8)]"
ROUNDINGS = 1e-5
"""Of what is fitted, more than float32 loses."""


def offered(made: Instance) -> set[str]:
    """Such draws of a task."""
    return {variant.name for variant in made.offered(3)} & set(DRAWS)


def off(left: torch.Tensor, of: torch.Tensor) -> bool:
    """Whether each element is off by one of SHARES of a size."""
    sizes = left.abs() / size_of(of)
    return any(
        bool(((sizes >= NEAREST * share - ROUNDINGS) & (sizes <= FURTHEST * share + ROUNDINGS)).all())
        for share in SHARES
    )


@pytest.mark.parametrize(
    ("forward", "inputs", "args", "fits"),
    [
        ("(x @ self.w - y).pow(2).sum(1)", ROWS, "x, y", (1,)),
        ("y - torch.tanh(x @ self.w)", ROWS, "x, y", (1,)),
        ("F.mse_loss(x @ self.w, y)", ROWS, "x, y", (1,)),
        ("F.l1_loss(y, x @ self.w)", ROWS, "x, y", (1,)),
        ("F.smooth_l1_loss(x @ self.w, y)", ROWS, "x, y", (1,)),
        ("F.huber_loss(x @ self.w, y)", ROWS, "x, y", (1,)),
        ("torch.dist(x @ self.w, y)", ROWS, "x, y", (1,)),
        ("torch.add(y, x @ self.w, alpha=-1)", ROWS, "x, y", (1,)),
        ("torch.cdist(x @ self.w, y)", ROWS, "x, y", (1,)),
        ("F.pairwise_distance(y.T, (x @ self.w).T)", ROWS, "x, y", (1,)),
        ("(x @ self.w)[:, None] - y[None, :5]", ROWS, "x, y", (1,)),
        ("(x[:, :8] * 2 - y) + (y * 2 - x[:, 4:])", ROWS, "x, y", (0, 1)),
        ("x[:, :8] - y", ROWS, "x, y", ()),
        ("x - x.mean(-1, keepdim=True)", ROWS, "x, y", ()),
        ("y - (x @ self.w + y)", ROWS, "x, y", (1,)),
        ("x @ self.w.exp() - y.exp()", ROWS, "x, y", ()),
        ("x @ self.w + y", ROWS, "x, y", (1,)),
        ("x @ self.w - y.float()", "[torch.randn(32, 12), torch.randn(32, 8).bfloat16()]", "x, y", (1,)),
        ("(x @ self.w + y) * (x[:, :8] - y.sum())", ROWS, "x, y", (0,)),
        ("x @ self.w * 2 + self.w.sum(0) + x.sum()", ROWS[:22] + "]", "x", ()),
        ("y - self.w.sum(0)", ROWS, "x, y", ()),
        ("x - torch.tanh(x @ self.w) @ self.w.T", ROWS, "x, y", ()),
        ("2.0 - y", ROWS, "x, y", ()),
        ("(x @ self.w).half() - y", "[torch.randn(32, 12), torch.randn(32, 8).half()]", "x, y", ()),
        (
            "torch.view_as_complex(x.view(32, 6, 2)) * 2 - y",
            "[torch.randn(32, 12), torch.randn(32, 6, dtype=torch.complex64)]",
            "x, y",
            (1,),
        ),
        ("x.sum().long() - y", "[torch.randn(32, 12), torch.arange(8)]", "x, y", ()),
    ],
)
def test_what_is_taken_from_a_result_of_others_may_fit_it(
    forward: str, inputs: str, args: str, fits: tuple[int, ...]
) -> None:
    """Not what is taken from its own mean, from another input, or from weights alone, nor halves or whole numbers."""
    made = instance(forward, inputs, args=args, init=WEIGHT)
    assert made.met["fits"] == fits
    assert offered(made) == (set() if not fits else set(DRAWS) if len(fits) > 1 else SINGLE)


def test_an_input_becomes_that_result_but_for_noise() -> None:
    """The same for the same seed, of all sizes in some draws, on the first weights; nothing else changes."""
    made = instance("(x @ self.w - y).pow(2).sum(1)", ROWS, args="x, y", init=WEIGHT)
    [(_, w)] = made.first_state
    sizes = set()
    for seed in range(12):
        x, y = made.draw(ALL, seed)
        assert torch.equal(x, made.draw(Variant(name="", required=True), seed)[0])
        assert torch.equal(y, made.draw(ALL, seed)[1]), "a draw is the same again"
        left = y - x @ w
        assert off(left, y)
        assert float(left.min()) < 0 < float(left.max())
        sizes.add(round(float(torch.log10(left.abs().mean() / y.square().mean().sqrt()))))
    assert sizes == {-2, -3, -4}


def test_what_is_added_fits_where_nothing_is_taken_and_halves_by_more() -> None:
    """The negative of the other; of bfloat16 from 2^-6 on, of which its own rounding is an eighth."""
    made = instance("(x @ self.w + y).pow(2).sum(1)", ROWS, args="x, y", init=WEIGHT)
    [(_, w)] = made.first_state
    x, y = made.draw(ALL, 4)
    assert off(x @ w + y, y)
    halves = "[torch.randn(32, 12), torch.randn(32, 8).bfloat16()]"
    made = instance("(x @ self.w - y.float()).pow(2).sum(1)", halves, args="x, y", init=WEIGHT)
    [(_, w)] = made.first_state
    for seed in range(6):
        x, y = made.draw(ALL, seed)
        assert y.dtype is torch.bfloat16
        assert 2.0**-7 < size_of(y.float() - x @ w) / size_of(y) < 2.0**-3.5


def test_of_several_all_fit_at_once() -> None:
    """By the same share, of which the largest is none; of two that are taken from each other's only one does."""
    inputs = "[torch.randn(32, 12), torch.randn(32, 8), torch.randn(32, 8)]"
    made = instance(
        "(x @ self.w - y).abs(), (y.tanh() - z).abs(), (x.T @ x - z.mean())", inputs, args="x, y, z", init=WEIGHT
    )
    assert made.met["fits"] == (1, 2)
    made = instance("(x @ self.w - y), (x[:, :8].tanh() - z)", inputs, args="x, y, z", init=WEIGHT)
    for seed in range(6):
        x, y, z = made.draw(TOGETHER, seed)
        assert off(y - x @ dict(made.first_state)["w"], y) and off(z - x[:, :8].tanh(), z)
        assert size_of(z - x[:, :8].tanh()) < 2e-3 * size_of(z)
    made = instance("x[:, :8] * 2 - y, y.tanh() - z", inputs, args="x, y, z")
    chosen = {tuple(size_of(one) < 0.1 for one in made.eager(made.draw(TOGETHER, seed), None)) for seed in range(12)}
    assert chosen == {(True, False), (False, True)}


def test_complex_inputs_fit_in_both_parts() -> None:
    """Of a real input no complex number is."""
    rows = "[torch.randn(32, 12, dtype=torch.complex64), torch.randn(32, 12, dtype=torch.complex64)]"
    made = instance("(x * 2j - y).abs()", rows, args="x, y")
    for seed in range(6):
        x, y = made.draw(ALL, seed)
        left, of = torch.view_as_real(y - 2j * x), torch.view_as_real(y)
        assert off(left, of) and float(left[..., 0].abs().min()) > 0 < float(left[..., 1].abs().min())
    made = instance("(x * 2j - y).abs()", rows.replace(", dtype=torch.complex64)]", ")]"), args="x, y")
    x, y = made.draw(ALL, 1)
    assert size_of(x * 2j - y) > 1 / 2


def test_half_of_the_rows_fit_too() -> None:
    made = instance("(x @ self.w - y).pow(2).sum(1)", ROWS, args="x, y", init=WEIGHT)
    [(_, w)] = made.first_state
    for seed in range(6):
        x, y = made.draw(HALF, seed)
        near = ((y - x @ w).abs() < 0.1).all(1)
        assert 4 < int(near.sum()) < 28
        plain = made.draw(Variant(name="", required=True), seed)[1]
        assert torch.equal(y[~near], plain[~near])


def test_parts_of_an_input_fit_what_each_is_taken_from() -> None:
    """Coordinates are taken apart: both are set, where they lie."""
    forward = "(p[..., 0] * a[:, None] - q[..., 0]) ** 2 + (p[..., 1] * 3 - q[..., 1]) ** 2"
    made = instance(forward, "[torch.randn(8, 16, 2), torch.randn(8, 16, 2), torch.rand(8)]", args="p, q, a")
    p, q, a = made.draw(ALL, 5)
    assert off(p[..., 0] * a[:, None] - q[..., 0], q[..., 0]) and off(p[..., 1] * 3 - q[..., 1], q[..., 1])


def test_of_pairs_each_row_fits_one() -> None:
    """Each of a gallery one of the queries, another one as long as there are some; a centre is one of its points."""
    made = instance("torch.cdist(x @ self.w, y)", "[torch.randn(6, 12), torch.randn(9, 8)]", args="x, y", init=WEIGHT)
    [(_, w)] = made.first_state
    for seed in range(4):
        x, y = made.draw(ALL, seed)
        apart = torch.cdist(x @ w, y, compute_mode="donot_use_mm_for_euclid_dist") / size_of(y)
        assert float(apart.min(0).values.max()) < 0.1 and set(apart.argmin(0).tolist()) == set(range(6))
    made = instance("x * 2 - c", "[torch.randn(6, 12), torch.randn(12)]", args="x, c")
    x, c = made.draw(ALL, 1)
    assert float((2 * x - c).abs().amax(1).min()) < 0.1


def test_where_a_nearest_is_chosen_each_is_fitted_once() -> None:
    """Of three rows that are all as near to one query, which is nearest is lost where squares are multiplied out."""
    inputs = "[torch.randn(6, 12), torch.randn(20, 8)]"
    made = instance("((x @ self.w)[:, None] - y).pow(2).sum(-1).argmin(-1)", inputs, args="x, y", init=WEIGHT)
    [(_, w)] = made.first_state
    for seed in range(4):
        x, y = made.draw(ALL, seed)
        apart = torch.cdist(x @ w, y, compute_mode="donot_use_mm_for_euclid_dist") / size_of(y)
        assert ((apart < 0.1).sum(1) == 1).all() and int((apart < 0.1).sum()) == 6
        assert torch.equal((y.square().sum(1) - 2 * x @ w @ y.T).argmin(-1), made.eager([x, y], None)[0])


def test_one_draw_of_the_dearest_case_fits_and_none_of_one_by_autocast() -> None:
    """A program may expand at that size alone: what never comes is easily left out of it."""
    specs, together = [TensorSpec.contiguous((8, 4), torch.float32)] * 2, TOGETHER.name

    def found(**more: object) -> dict[str, int]:
        kinds = {"weights": False, "autocast": False, "hidden_seed": 1, "work": HEAVY + 1, **more}
        return {v.name: v.draws for v in variants.offered(Contract(), specs, **kinds) if v.change in DRAWS}

    assert found(fits=(1,)) == {FITTED: 1} and found() == {}
    assert found(fits=(1,), work=1) == {FITTED: 4, SOME: 2}
    assert found(fits=(0, 1)) == {FITTED: 1, together: 1} and found(fits=(0, 1), work=1)[together] == 2
    assert found(fits=(1,), autocast=True) == {} and found(fits=(1,), huge=True) == {}
    assert set(DRAWS) <= set(NEVER_SPARED)


def test_nothing_else_may_hold_of_it() -> None:
    """Labels of zeros and ones stay those; answers by lot are compared otherwise. Gradients change nothing."""
    labels = "[torch.randn(32, 12), (torch.rand(32, 8) > 0.5).float()]"
    forward = "(torch.sigmoid(x @ self.w) - y) ** 2"
    assert offered(instance(forward, labels, args="x, y", init=WEIGHT)) == set()
    lot = Contract(random=True)
    made = instance(f"F.dropout({forward})", ROWS, args="x, y", init=WEIGHT, contract=lot)
    assert offered(made) == SINGLE and not any(made.usable(variant, 3) for variant in (ALL, HALF))
    made = instance(f"(F.dropout(x), {forward})", ROWS, args="x, y", init=WEIGHT, contract=lot)
    assert all(made.usable(variant, 3) for variant in (ALL, HALF)), "one answer is the same in all runs"
    made = instance(forward, ROWS, args="x, y", init=WEIGHT, contract=GRADIENTS)
    x, y = made.draw(ALL, 3)
    assert off(torch.sigmoid(x @ dict(made.first_state)["w"]) - y, y) and float(y.min()) > 0, "the sign stays"
    assert all(made.usable(variant, 3) for variant in made.offered(3) if variant.change in (FITTED, SOME))
