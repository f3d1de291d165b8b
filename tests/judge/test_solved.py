# SPDX-License-Identifier: Apache-2.0
"""judge/solved.py: inputs that make a difference of two results small."""

from __future__ import annotations

import pytest
import torch
from plain_tasks import GRADIENTS, instance

from kernelwright.judge import approach, solved, symmetric
from kernelwright.judge.inputs import Variant, size_of
from kernelwright.judge.instance import Instance
from kernelwright.task import Contract

DRAW = Variant(name=solved.SOLVED, required=True, change=solved.SOLVED)
AT_ONCE = Variant(name=solved.TOGETHER, required=True, change=solved.TOGETHER)
PLAIN = Variant(name="", required=True)
WEIGHT = "self.w = torch.nn.Parameter(torch.randn(12, 16) / 4)\nself.v = torch.nn.Parameter(torch.randn(10, 16) / 3)"
TWO = "[torch.randn(32, 12), torch.randn(32, {})]"
NORMALISED = "F.normalize(x @ self.w, dim=-1) - F.normalize(y, dim=-1)"
STANDARD = "v, m = torch.var_mean(y, -1, keepdim=True)\n        d = x @ self.w - (y - m) / (v + 1e-6).sqrt()\n"


def offered(made: Instance) -> bool:
    """Whether such a draw is, and means something."""
    return any(made.usable(variant, 3) for variant in made.offered(3) if variant.change == solved.SOLVED)


@pytest.mark.parametrize(
    ("apart", "inputs", "args"),
    [
        (NORMALISED, TWO.format(16), "x, y"),
        ("x @ self.w - y @ self.v", TWO.format(10), "x, y"),
        ("F.log_softmax(x @ self.w, -1) - F.log_softmax(y, -1)", TWO.format(16), "x, y"),
        ("x.mT @ x - torch.eye(8)", "[torch.randn(4, 16, 8)]", "x"),
        ("x.norm(dim=1) - 1", "[torch.randn(64, 16)]", "x"),
        ("1 - x.norm(dim=1)", "[torch.randn(64, 16)]", "x"),
        ("(x - x.mean(1, keepdim=True)) - x.diff(dim=1).mean(1, keepdim=True) * (torch.arange(16) - 7.5)",
         "[torch.randn(64, 16)]", "x"),
        ("x + x.mT", "[torch.randn(4, 16, 16)]", "x"),
        ("x.mT - x", "[torch.randn(4, 16, 16)]", "x"),
        ("x - torch.eye(16)", "[torch.randn(16, 16)]", "x"),
        ("x - torch.diag_embed(x.diagonal(dim1=1, dim2=2))", "[torch.randn(4, 16, 16)]", "x"),
        ("(torch.fft.rfft(x @ self.w) - torch.fft.rfft(y)).abs()", TWO.format(16), "x, y"),
        ("(torch.complex(x, -x) @ self.w.to(torch.complex64) - y.conj() * 2).abs()",
         "[torch.randn(32, 12), torch.randn(32, 16, dtype=torch.complex64)]", "x, y"),
        ("x @ self.w * m - y * m", TWO.format(16)[:-1] + ", torch.rand(32, 16)]", "x, y, m"),
        ("(x.T @ x).fill_diagonal_(0)", "[torch.randn(64, 16)]", "x"),
        ("x.T @ y / 64 * (1 - torch.eye(16))", "[torch.randn(64, 16), torch.randn(64, 16)]", "x, y"),
    ],
)  # fmt: skip
def test_a_difference_is_small_for_such_inputs(apart: str, inputs: str, args: str) -> None:
    """Of several sizes, by hundreds less than it is of inputs by lot, which keep theirs; the same for the same seed."""
    made = instance(f"({apart})", inputs, args=args, init=WEIGHT)
    assert offered(made)
    [plain] = made.eager(made.draw(PLAIN, 1), None)
    sizes = set()
    for seed in range(8):
        leaves = made.draw(DRAW, seed)
        assert all(map(torch.equal, leaves, made.draw(DRAW, seed)))
        assert all(size_of(leaf) > 1 / 32 for leaf in leaves)
        [out] = made.eager(leaves, None)
        sizes.add(round(float(torch.tensor(size_of(out)).log10())))
        assert 0 < size_of(out) < size_of(plain) / 20
    assert len(sizes) > 1


@pytest.mark.parametrize(("apart", "number"), [("x @ self.w / y - 1", -1), ("3 - torch.div(y, x @ self.w)", 3)])
def test_a_ratio_is_near_a_number_but_where_it_is_of_tiny_ones(apart: str, number: int) -> None:
    """There it is near zero: by 1e-4 of itself one was off in float32, and hid what is lost of all others."""
    made = instance(f"({apart})", TWO.format(16), args="x, y", init=WEIGHT)
    assert offered(made)
    sizes, tiny = set(), 0
    for seed in range(8):
        [out] = made.eager(made.draw(DRAW, seed), None)
        near = out.abs() < 0.3
        tiny += int((~near).sum())
        assert float(near.float().mean()) > 0.9 and bool(((out[~near] - number).abs() < 0.1).all())
        sizes.add(round(float(out[near].abs().median().log10())))
    assert len(sizes) > 1 and tiny


@pytest.mark.parametrize(
    "first",
    ["x @ self.w - torch.tanh(y)", "x @ self.w - y", "F.normalize(x @ self.w, dim=-1) - F.normalize(y, dim=-1)"],
)
def test_all_differences_are_small_at_once(first: str) -> None:
    """Those of an input too, where one of results is beside them; each of them hides the other where one is."""
    made = instance(f"({first}, x @ self.w.exp() / 4 - z.sinh())", TWO.format(16)[:-1] + ", torch.randn(32, 16)]",
                    args="x, y, z", init=WEIGHT)  # fmt: skip
    plain = made.eager(made.draw(PLAIN, 1), None)
    for seed in range(4):
        answers = made.eager(made.draw(AT_ONCE, seed), None)
        assert all(0 < size_of(one) < size_of(other) / 20 for one, other in zip(answers, plain, strict=True))


def test_all_at_once_are_looked_for_in_so_many_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is put in place of sides is tried in as many as a descent has, of any number of differences and inputs."""
    names = ", ".join("abcdefgh")
    apart = ", ".join(f"a.cosh() * {at} - {name}.cosh()" for at, name in enumerate("bcdefgh", 2))
    made = instance(apart, f"[{', '.join(['torch.randn(8, 4)'] * 8)}]", args=names)
    runs, run = list[int](), approach.Search._run
    monkeypatch.setattr(approach, "MOST", 24)
    monkeypatch.setattr(approach.Search, "_run", lambda *args: runs.append(1) or run(*args))
    solved.of(made, solved.TOGETHER)
    assert 24 < len(runs) < 24 + 24 + 7 + 6


def test_at_once_is_more_than_one() -> None:
    made = instance("x @ self.w - torch.tanh(y)", TWO.format(16), args="x, y", init=WEIGHT)
    assert solved.of(made) and solved.of(made, solved.TOGETHER) == []
    assert not made.usable(AT_ONCE, 3) and made.usable(DRAW, 3)


def test_gradients_of_a_call_are_left_alone_and_the_weights_too() -> None:
    made = instance(f"({NORMALISED})", TWO.format(16), args="x, y", init=WEIGHT, contract=GRADIENTS)
    assert offered(made)
    assert all(value.grad is None for value in made.model.parameters())
    assert all(torch.equal(value, made.model.state_dict()[name]) for name, value in made.first_state)


@pytest.mark.parametrize(
    ("forward", "inputs"),
    [
        ("x @ self.w - y", TWO.format(16)),  # one side is an input: ``fitted``
        ("x @ self.w - (x @ self.w).mean(-1, keepdim=True) + y.sum()", TWO.format(16)),
        ("1 - torch.sigmoid(x @ self.w) + y.sum()", TWO.format(16)),
        ("x @ self.w + (x * y.sum()) @ self.w", TWO.format(10)),  # of one input both
        ("x @ self.w + self.w.sum(0)", TWO.format(10)),
        ("F.dropout(x @ self.w - y @ self.v)", TWO.format(10)),
    ],
)
def test_others_have_none(forward: str, inputs: str) -> None:
    lot = Contract(random="dropout" in forward)
    assert not offered(instance(forward, inputs, args="x, y", init=WEIGHT, contract=lot))


def test_what_cannot_be_small_is_left_as_it_is() -> None:
    made = instance("torch.cosh(x @ self.w) + 1 - torch.tanh(y)", TWO.format(16), args="x, y", init=WEIGHT)
    assert solved.of(made) == [] and not offered(made)
    assert all(map(torch.equal, made.draw(DRAW, 4), made.draw(PLAIN, 4)))


@pytest.mark.parametrize("more", [-0.3, 20.0])
def test_matrices_that_are_symmetric_in_every_draw_stay_so(more: float) -> None:
    """And positive definite, where they are."""
    drawn = f"[(lambda c: c @ c.T / 16 + {more} * torch.eye(16))(torch.randn(16, 16))]"
    made = instance("x.masked_fill(torch.eye(16, dtype=torch.bool), 0)", drawn)
    assert made.bonds.symmetric == {0} and bool(made.bonds.definite) is (more > 0) and offered(made)
    for seed in range(8):
        [leaf] = made.draw(DRAW, seed)
        assert torch.equal(leaf, leaf.mT) and 0 < size_of(made.eager([leaf], None)[0]) < 1 / 20
        assert more < 0 or symmetric.definite(leaf)


def test_what_lies_beside_a_diagonal_is_small_with_the_rest_of_it() -> None:
    """A correlation that is the identity: the sum of both kinds of squares is small."""
    sums = (
        "(lambda c: (c.diagonal() - 64).pow(2).sum() + c.masked_fill(torch.eye(8, dtype=torch.bool), 0).pow(2).sum())"
    )
    made = instance(f"{sums}(x.T @ y)", "[torch.randn(64, 8), torch.randn(64, 8)]", args="x, y")
    [plain] = made.eager(made.draw(PLAIN, 1), None)
    left = [float(made.eager(made.draw(DRAW, seed), None)[0]) for seed in range(8)]
    assert min(left) < 1e-3 * float(plain)


def test_weights_are_solved_for_where_no_input_takes_part() -> None:
    """Those that are trained move, buffers do not, and all at once where that can be; where they are equal they are."""
    init = "self.w = nn.Parameter(torch.randn(12, 16))\nself.register_buffer('o', torch.randn(12, 16))\n"
    init += "self.v = nn.Parameter(torch.zeros(16))\nself.register_buffer('p', torch.zeros(16))"
    made = instance("x @ self.w, self.w - self.o, self.v - self.p", "[torch.randn(8, 12)]", init=init)
    assert not offered(made)
    [near] = solved.of_weights(made)
    assert sorted(near) == ["v", "w"]
    assert size_of(near["w"] - made.model.o) < 1 / 200 and not bool(near["v"].any())
    assert all(torch.equal(value, made.model.state_dict()[name]) for name, value in made.first_state)


@pytest.mark.parametrize(
    "formula",
    [
        "x @ self.w - 1",
        "(x @ self.w).tanh() - x @ self.w",  # an input takes part
        "x @ (self.w - self.w.mean(0))",
        "x @ self.w.exp() - self.w",
        "F.dropout(x @ (self.w - self.o))",
    ],
)
def test_other_weights_are_not_solved_for(formula: str) -> None:
    init = "self.w = nn.Parameter(torch.randn(16, 16))\nself.register_buffer('o', torch.randn(16, 16))"
    lot = Contract(random="dropout" in formula)
    assert solved.of_weights(instance(formula, "[torch.randn(16, 16)]", init=init, contract=lot)) == []


def test_a_call_of_many_multiply_adds_is_not_asked() -> None:
    """Of one there are some dozens."""
    specs = instance(f"({NORMALISED})", TWO.format(16), args="x, y", init=WEIGHT).specs
    traits = {solved.fitted.DIFFERS}
    assert solved.small_differences(specs, traits, 1) and not solved.small_differences(specs, set(), 1)
    assert not solved.small_differences(specs, traits, solved.WORK)
    dear = solved.small_differences(specs, traits, 2**26, weights=True)
    assert [(variant.change, variant.draws) for variant in dear] == [(solved.SOLVED, 1)]
    cheap = solved.small_differences(specs, traits, 1, weights=True)
    assert [variant.change for variant in cheap] == list(solved.CHANGES) and cheap[2].fresh_weights


def test_of_a_dear_call_few_runs_are_made(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first difference alone, and it is less small."""
    made = instance("x @ self.w - torch.tanh(y)", TWO.format(16), args="x, y", init=WEIGHT)
    runs, run = list[int](), approach.Search._run
    monkeypatch.setattr(approach, "WORK", made.work)
    monkeypatch.setattr(approach.Search, "_run", lambda *args: runs.append(1) or run(*args))
    assert len(solved.of(made)) == 1 and len(runs) < approach.LEAST + 8
