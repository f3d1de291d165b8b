# SPDX-License-Identifier: Apache-2.0
"""What a bench draws for the rounds of a race."""

from __future__ import annotations

import itertools

import torch
from plain_tasks import task

from kernelwright.judge.bench import Bench

TIED = "self.a = nn.Linear(64, 64)\nself.b = nn.Linear(64, 64)\nself.b.weight = self.a.weight"


def test_weights_too_dear_to_draw_are_recombined_anew_each_round_and_stay_tied() -> None:
    """No two rounds share their weights, whatever a draw may cost; tied names get one tensor."""
    bench = Bench(task("self.b(self.a(x))", "[torch.randn(8, 64)]", init=TIED), "cpu")
    for budget in (10.0, 0.0):
        states = [dict(state) for state in itertools.islice(bench.states(bench.timed.instance, 7, budget, None), 4)]
        assert all(state["a.weight"] is state["b.weight"] for state in states)
        for one, other in itertools.combinations(states, 2):
            assert not torch.equal(one["a.weight"], other["a.weight"])
        assert all(0.5 < float(state["a.weight"].std() / states[0]["a.weight"].std()) < 2.0 for state in states)
