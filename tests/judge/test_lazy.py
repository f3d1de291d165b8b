# SPDX-License-Identifier: Apache-2.0
"""Modules that learn their sizes from their first call."""

from __future__ import annotations

import torch
from plain_tasks import instance

from kernelwright.judge.inputs import Variant

LAYERS = "self.f = nn.Sequential(nn.LazyConv2d(4, 3), nn.LazyBatchNorm2d(), nn.Flatten(), nn.LazyLinear(5))"


def test_a_lazy_module_has_its_weights_before_it_is_looked_at() -> None:
    """The same with each seed, statistics as its constructor makes them, and in float64."""
    made = instance("self.f(x)", "[torch.randn(2, 3, 6, 6)]", init=LAYERS)
    shapes = {name: tuple(value.shape) for name, value in made.first_state}
    assert shapes["f.0.weight"] == (4, 3, 3, 3) and shapes["f.3.weight"] == (5, 64)
    assert (
        torch.equal(torch.zeros(4), dict(made.first_state)["f.1.running_mean"]) and made.training == made.model.training
    )
    again = made._construct(made.seed)
    assert all(torch.equal(value, again.state_dict()[name]) for name, value in made.first_state)
    leaves = made.draw(Variant(name="as given", required=True), 1)
    exact, kind = made.oracle(leaves, made.draw_state(4))
    assert kind == "float64" and exact[0].shape == (2, 5)
