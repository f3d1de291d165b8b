# SPDX-License-Identifier: Apache-2.0
"""judge/beside_weights.py: inputs of which some rows are rows of weights."""

from __future__ import annotations

import torch
from plain_tasks import instance

from kernelwright.judge.beside_weights import BOTH_FAR, ROWS
from kernelwright.judge.inputs import Variant

PLANTED = Variant(name=ROWS, required=True, change=ROWS)
CENTRES = "self.c = torch.nn.Parameter(torch.randn(20, 16))"


def same_rows(leaf: torch.Tensor, table: torch.Tensor) -> int:
    """How many rows of the one are some row of the other."""
    return int((leaf[..., None, :] == table).all(-1).any(-1).sum())


def test_some_rows_of_an_input_are_rows_of_weights() -> None:
    """Distances to the centres that points were chosen from are zero: multiplied out they are a little below it."""
    made = instance("torch.cdist(x, self.c)", "[torch.randn(48, 16), torch.randn(48, 12)]", args="x, y", init=CENTRES)
    [(_, table)] = made.first_state
    assert ROWS in {variant.name for variant in made.offered(3)}
    for seed in range(100, 106):
        as_given, planted = (made.draw(Variant(name="", required=True), seed), made.draw(PLANTED, seed))
        assert 0 == same_rows(as_given[0], table)
        assert 0 < same_rows(planted[0], table) < 48
        assert torch.equal(as_given[1], planted[1]), "no weight is as long"
        assert planted[0].dtype is as_given[0].dtype and planted[0].shape == as_given[0].shape


def test_without_weights_there_are_none() -> None:
    made = instance("x + 1", "[torch.randn(8, 8)]")
    assert ROWS not in {variant.name for variant in made.offered(3)}


def test_inputs_and_weights_are_far_from_zero_where_only_their_distance_counts() -> None:
    """Squares that are multiplied out cancel there; a product with them, or a sum, is of another task."""
    distances = "((x[:, None] - self.c) ** 2).sum(-1)"
    for forward, offered in (
        (distances, True),
        (f"{distances}.argmin(-1)", True),
        (f"(-{distances}).exp()", True),
        ("x @ self.c.T", False),
        (f"{distances} * x[:, :1]", False),
    ):
        made = instance(forward, "[torch.randn(48, 16)]", init=CENTRES)
        [variant] = [v for v in made.offered(3) if v.name == BOTH_FAR]
        assert made.usable(variant, 3) is offered, forward
        [leaf], state = made.draw(variant, 5), dict(made.draw_state(5, variant.moved))
        assert 20 < float(leaf.mean()) < 28 and 20 < float(state["c"].mean()) < 28
