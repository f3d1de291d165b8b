# SPDX-License-Identifier: Apache-2.0
"""Weights beside what the reference compares them with."""

from __future__ import annotations

import pytest
import torch
from plain_tasks import instance

from kernelwright.judge import inputs, weighed
from kernelwright.judge.instance import Instance

INPUTS = "[torch.randn(8, 16)]"
WEIGHT = "self.w = nn.Parameter(torch.randn(16, 16) / 4)"
U = "\nself.u = nn.Parameter(torch.randn(16, 16))"
NORM = "x @ (self.w * (2000.0 / float(self.w.norm())) if float(self.w.norm()) > 2000.0 else self.w)"


def changed(made: Instance, how: str = "") -> list[tuple[torch.Tensor, torch.Tensor]]:
    """What a weight is of many draws, and what it becomes, where that is another."""
    drawn = [made.draw_state(seed, how) for seed in range(40)]
    placed = [weighed.placed(made, state, seed) for seed, state in enumerate(drawn)]
    pairs = [(state[0][1], other[0][1]) for state, other in zip(drawn, placed, strict=True)]
    return [(one, other) for one, other in pairs if not torch.equal(one, other)]


@pytest.mark.parametrize("how", ["", "sizes", "signs"])
def test_a_weight_lies_on_either_side_of_a_norm_that_its_source_compares(how: str) -> None:
    """Scaled as a whole, every second time, also where weights were moved; a little more or a little less."""
    found = changed(instance(NORM, INPUTS, init=WEIGHT), how)
    norms = [float(other.norm()) / 2000 for _, other in found]
    assert 12 <= len(norms) <= 30 and min(norms) < 1 < max(norms)
    assert all(0.9 < norm < 1.1 and abs(norm - 1) > 0.01 for norm in norms)
    assert all(float((other / one).std()) < 1e-3 * float((other / one).mean()) for one, other in found)


@pytest.mark.parametrize("limit", ["self.w.clamp(-1000, 1000)", "(self.w.t() * 2).clamp(max=2000.0)"])
def test_a_few_elements_lie_about_what_a_clamp_lets_through(limit: str) -> None:
    """Beyond it, and within, of either sign; the others stay."""
    found = changed(instance(f"x @ {limit}", INPUTS, init=WEIGHT))
    assert len(found) >= 12
    moved = torch.cat([other[one != other] for one, other in found])
    assert float(moved.abs().min()) > 500 and float(moved.abs().max()) < 4000
    assert all(bool((side * moved > 1000).any()) and bool((side * moved < 1000).any()) for side in (-1, 1))
    assert all(float((one != other).double().mean()) < 0.1 for one, other in found)


@pytest.mark.parametrize(
    "formula", ["x @ self.w", "(x @ self.w).clamp(-1000, 1000)", "x @ self.w if float(x.norm()) > 2000 else x * 2"]
)
def test_weights_that_nothing_is_compared_with_stay(formula: str) -> None:
    """What is computed of them and of inputs is reached by inputs, and a way that x decides alone."""
    assert changed(instance(formula, INPUTS, init=WEIGHT)) == []


@pytest.mark.parametrize(
    ("formula", "left"),
    [
        ("x @ (self.w - torch.eye(16))", lambda w, o: w - torch.eye(16)),
        ("x @ (self.w - self.o)", lambda w, o: w - o),
        ("x @ (self.o + self.w)", None),
        ("x @ (self.w + self.w.T)", lambda w, o: w + w.T),
        ("(x, (self.w.T @ self.w - torch.eye(16)).square().sum())", lambda w, o: w.T @ w - torch.eye(16)),
        ("(x, self.w.triu(1).square().sum())", lambda w, o: w - torch.diag(w.diagonal())),
    ],
)
def test_weights_come_near_what_is_taken_from_them(formula: str, left: object) -> None:
    """A little off, by several sizes."""
    made = instance(formula, INPUTS, init=f"{WEIGHT}\nself.o = nn.Parameter(torch.randn(16, 16))")
    drawn = [made.draw_state(seed) for seed in range(24)]
    placed = [dict(weighed.placed(made, state, seed)) for seed, state in enumerate(drawn)]
    near = [new for new, old in zip(placed, drawn, strict=True) if not torch.equal(new["w"], dict(old)["w"])]
    if left is None:
        assert not near
        return
    sizes = [inputs.size_of(left(one["w"], one["o"])) for one in near]
    assert 6 <= len(sizes) <= 18 and 0 < max(sizes) < 1 / 20
    assert len({round(torch.tensor(size).log10().item()) for size in sizes}) > 1
    assert all(inputs.size_of(one["w"]) > 1 / 32 for one in near)


GATE = "self.register_buffer('ema', torch.{})"


@pytest.mark.parametrize(
    ("start", "condition", "size"),
    [
        ("tensor(1.0)", "> 10000.0", 1e4),
        ("tensor(0.0)", "> 10000.0", 1e4),
        ("tensor([0.5, 2.0])", "> 10000.0", 1e4),
        ("zeros(3)", "> 10000.0", 1e4),
        ("tensor(1.0)", "< -300.0", -300.0),
        ("tensor([0.0])", "< -300.0", -300.0),
    ],
)
def test_a_float_in_a_buffer_lies_on_either_side_of_what_its_source_compares(
    start: str, condition: str, size: float
) -> None:
    """Also one that begins with zero; below zero where it is a single number."""
    made = instance(f"x * 0.5 if float(self.ema.max()) {condition} else x @ self.w", INPUTS,
                    init=f"{WEIGHT}\n{GATE.format(start)}")  # fmt: skip
    drawn = [made.draw_state(seed) for seed in range(60)]
    placed = [float(dict(weighed.placed(made, state, seed))["ema"].max()) / size for seed, state in enumerate(drawn)]
    near = [value for value in placed if 0.9 < value < 1.1]
    assert len(near) >= 12 and min(near) < 1 < max(near)


def test_a_gate_that_an_operator_compares_lies_about_its_number_where_answers_stay_finite() -> None:
    """A single number; of several that are flags, an honest program multiplies by them."""
    start = f"{WEIGHT}\n{GATE.format('tensor(1.0)')}"
    made = instance("torch.where(self.ema > 10000.0, x * 0.5, x @ self.w)", INPUTS, init=start)
    drawn = [made.draw_state(seed) for seed in range(60)]
    placed = [float(dict(weighed.placed(made, state, seed))["ema"]) for seed, state in enumerate(drawn)]
    assert sum(value > 1e4 for value in placed) >= 5 and sum(5e3 < value < 1e4 for value in placed) >= 2
    root = instance("torch.where(self.ema > 10000.0, x * 0.5, x * self.ema.sqrt())", INPUTS, init=start)
    drawn = [root.draw_state(seed) for seed in range(60)]
    placed = [float(dict(weighed.placed(root, state, seed))["ema"]) for seed, state in enumerate(drawn)]
    assert min(placed) >= 0 and max(placed) > 1e4
    flags = GATE.format("ones(16)")
    assert weighed.heavy(instance("x * (self.ema > 0.5)", INPUTS, init=flags)) == ([], {}, [])


def test_a_buffer_stays_above_zero_where_its_root_is_taken() -> None:
    """A running variance; who turns at a negative one has no answer there."""
    made = instance("x / self.var.sqrt() if float(self.var) < 1e4 else x * self.w", INPUTS,
                    init=f"self.w = 2.0\n{GATE.format('tensor(1.0)').replace('ema', 'var')}")  # fmt: skip
    scales, *_ = weighed.heavy(made)
    assert {name for name, *_ in scales} == {"var"} and scales[0][1] > 0
    rooted = instance("x / self.var.sqrt() if float(self.var) > -1e4 else x * 2", INPUTS,
                      init=GATE.format("tensor(1.0)").replace("ema", "var"))  # fmt: skip
    assert weighed.heavy(rooted) == ([], {}, [])


LIMIT = "(F.layer_norm(x, (16,)) @ self.w).clamp(-60000, 60000)"


@pytest.mark.parametrize(("formula", "weight"), [(LIMIT, WEIGHT), (LIMIT.replace("x,", "x @ self.u,"), WEIGHT + U)])
def test_results_lie_beyond_a_clamp_that_no_scale_of_inputs_reaches(formula: str, weight: str) -> None:
    """By the weights behind the norm alone, as a whole; some elements beyond it, and some within."""
    made = instance(formula, INPUTS, init=weight)
    states = [made.draw_state(seed) for seed in range(40)]
    x, shares, beside = made._raw(1)[0][0], [], 0
    for seed, state in enumerate(states):
        before, after = dict(state), dict(weighed.placed(made, state, seed))
        assert "u" not in before or torch.equal(before["u"], after["u"])
        if torch.equal(before["w"], after["w"]):
            beside += 1
            continue
        given = x @ after["u"] if "u" in after else x
        shares.append(float(((torch.layer_norm(given, (16,)) @ after["w"]).abs() > 60000).double().mean()))
    assert len(shares) >= 12 and beside >= 10
    assert sum(0 < share < 1 for share in shares) > len(shares) / 2
