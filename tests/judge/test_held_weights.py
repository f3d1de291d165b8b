# SPDX-License-Identifier: Apache-2.0
"""What is not trained, or has infinities in it, is others in new weights too: centres, frozen factors, transitions."""

from __future__ import annotations

import pytest
import torch
from plain_tasks import instance

from kernelwright.judge import renewed, weights
from kernelwright.judge.patterned import BOTH_FAR


def fresh(values: dict[str, torch.Tensor], how: str, redrawn: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """New weights of a module that has these as buffers but for ``frozen``, a parameter that is."""
    model = torch.nn.Module()
    for name, value in values.items():
        if name == "frozen":
            model.frozen = torch.nn.Parameter(value, requires_grad=False)
        else:
            model.register_buffer(name, value)
    return dict(weights.fresh(model, weights.read(model), redrawn, 5, how))


def test_frozen_vectors_and_factors_of_a_norm_have_both_signs() -> None:
    """Others do not: a scale without a shift, a table, a variance."""
    ones = torch.ones(64)
    held = {"frozen": ones.view(1, 64, 1, 1), "weight": ones.clone(), "scale": ones.clone(), "table": torch.eye(8)}
    made = fresh(held, weights.SIGNS, {})
    assert {name for name, value in made.items() if bool((value < 0).any())} == {"frozen", "weight"}
    folded = fresh({"scale": ones.clone(), "shift": ones.clone()}, weights.SIGNS, {})
    assert bool((folded["scale"] < 0).any()) and not bool((folded["shift"] < 0).any())


@pytest.mark.parametrize("how", [weights.PRUNED, weights.AWAY])
def test_what_is_drawn_and_not_trained_has_rows_of_zeros_and_lies_far_off(how: str) -> None:
    """A codebook; a table that every construction has does not."""
    held = {"codes": torch.randn(48, 64), "table": torch.linspace(1, 2, 512).view(8, 64)}
    plain, made = (fresh(held, way, {"codes": torch.randn(48, 64)}) for way in ("", how))
    assert torch.equal(plain["table"], made["table"]) and not torch.equal(plain["codes"], made["codes"])
    rows = made["codes"].eq(0).all(-1).sum()
    assert (0 < int(rows) < 24) if how == weights.PRUNED else float(made["codes"].mean()) > 10


def test_vectors_have_outliers_but_for_variances_and_what_is_in_order() -> None:
    """A slope in a buffer; edges of buckets stay in order."""
    held = {"slope": torch.full((64,), 0.25), "running_var": torch.ones(64), "edges": torch.linspace(-1, 1, 64)}
    made = fresh(held, weights.OUTLYING, {})
    assert float(made["slope"].max()) > 2 and float(made["running_var"].max()) <= 1.5
    assert bool((made["edges"].diff() >= 0).all())


def test_centres_in_a_buffer_lie_far_from_zero_beside_inputs() -> None:
    """Where nothing changes if all is moved."""
    init = "self.register_buffer('c', torch.randn(48, 64))"
    made = instance("((x[:, None] - self.c) ** 2).sum(-1)", "[torch.randn(16, 64)]", init=init)
    assert [variant for variant in made.offered(1) if variant.change == BOTH_FAR and made.usable(variant, 3)]
    other = instance("x @ self.c.mT", "[torch.randn(16, 64)]", init=init)
    assert not [variant for variant in other.offered(1) if variant.change == BOTH_FAR and other.usable(variant, 3)]


def test_infinities_stay_where_they_are_beside_other_numbers() -> None:
    """What a constructor draws is drawn anew; of the rest finite numbers are scattered, and a mask is none."""
    rng = torch.Generator().manual_seed(1)
    seen, other = (torch.randn(8, 8).index_fill(1, torch.tensor(2), -torch.inf) for _ in range(2))
    assert torch.equal(renewed.fresh_weight("w", seen, other, rng), other)
    made = renewed.fresh_weight("w", seen, seen.clone(), rng)
    assert torch.equal(made == -torch.inf, seen == -torch.inf) and not torch.equal(made, seen)
    mask = torch.full((4, 4), -torch.inf).triu(1)
    assert torch.equal(renewed.fresh_weight("m", mask, mask.clone(), rng), mask)
    nan = torch.full((4,), torch.nan)
    assert bool(renewed.fresh_weight("n", nan, nan.clone(), rng).isnan().all())


def test_zeros_named_as_variances_become_positive() -> None:
    """The logarithm of one, that was zero in every draw."""
    made = renewed.fresh_weight("logvar", torch.zeros(64), torch.zeros(64), torch.Generator().manual_seed(1))
    assert float(made.min()) > 0.0
