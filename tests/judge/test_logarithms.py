# SPDX-License-Identifier: Apache-2.0
"""Gradients of a softmax that is computed again from the logarithm of its sum, and of one that is off otherwise."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from plain_tasks import GRADIENTS, instance

from kernelwright.judge import logarithms, rounding
from kernelwright.judge.inputs import generator
from kernelwright.judge.verify import Checker

UNIT = 2.0**-24
Made = Callable[[torch.Tensor], torch.Tensor]
RNG = torch.Generator().manual_seed(3)
QUERIES, KEYS, VALUES, INCOMING = (torch.randn(4, 24, 16, generator=RNG, dtype=torch.float64) for _ in range(4))


def gradients(scale: float) -> list[torch.Tensor]:
    """Of attention, by queries, keys and values."""
    given = [(QUERIES * scale).requires_grad_(), (KEYS * scale).requires_grad_(), VALUES.clone().requires_grad_()]
    answer = torch.softmax(given[0] @ given[1].mT, -1) @ given[2]
    return list(torch.autograd.grad(answer, given, INCOMING))


def again(scale: float) -> list[torch.Tensor]:
    """The same in float32, as fused attention takes them, which adds up another tile of the products there."""
    q, k, v, g = ((x * s).float() for x, s in ((QUERIES, scale), (KEYS, scale), (VALUES, 1.0), (INCOMING, 1.0)))
    logarithm = torch.logsumexp(q @ k.mT, -1, keepdim=True)
    answer = torch.softmax(q @ k.mT, -1) @ v
    weights = torch.exp(q.flip(-1) @ k.flip(-1).mT - logarithm)
    inner = weights * (g @ v.mT - (g * answer).sum(-1, keepdim=True))
    return [inner @ k, inner.mT @ q, weights.mT @ g]


def drawn(run: Callable[[], list[torch.Tensor]]) -> list[float]:
    """How far drawn runs lie from exact ones at the most (RMS of each result, in its own size)."""
    exact, found = run(), []
    for seed in range(4):
        with rounding.Rounded(UNIT, generator(seed, "cpu")):
            found.append(run())
    return [max(off(run[index], exact[index]) for run in found) for index in range(len(exact))]


def off(found: torch.Tensor, exact: torch.Tensor) -> float:
    return float((found.double() - exact).square().mean().sqrt() / exact.square().mean().sqrt())


@pytest.mark.parametrize("scale", [1.0, 20.0, 200.0])
def test_gradients_of_weights_that_come_again_are_allowed_for(scale: float) -> None:
    allowed = drawn(lambda: gradients(scale))
    exact, fused = gradients(scale), again(scale)
    assert all(off(one, true) < 2 * most for one, true, most in zip(fused, exact, allowed, strict=True))


def test_without_it_they_are_not(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(logarithms, "backward", lambda: False)
    values, fused = drawn(lambda: gradients(200.0))[2], again(200.0)[2]
    assert off(fused, gradients(200.0)[2]) > 4 * values


def test_at_usual_scales_weights_in_half_precision_stay_out() -> None:
    allowed = drawn(lambda: gradients(1.0))[2]
    weights = torch.softmax(QUERIES @ KEYS.mT, -1)
    assert off(weights.bfloat16().double().mT @ INCOMING, gradients(1.0)[2]) > 100 * allowed


def test_the_forward_pass_is_as_exact_as_ever() -> None:
    def run() -> list[torch.Tensor]:
        return [torch.softmax((200 * QUERIES).requires_grad_() @ KEYS.mT * 200, -1).detach()]

    def without() -> list[torch.Tensor]:
        with torch.no_grad():
            return run()

    assert drawn(run) == drawn(without)


def test_the_gradient_of_a_saturated_softmax_stays_zero() -> None:
    """Its terms cancel, and programs that take the sum of what the forward pass answered have zeros there too."""

    def run() -> list[torch.Tensor]:
        logits = (torch.eye(8, dtype=torch.float64) * 1e5).requires_grad_()
        answer = torch.softmax(logits, -1)
        return list(torch.autograd.grad(answer, [logits], torch.ones_like(answer) * 3.0))

    with rounding.Rounded(UNIT, generator(1, "cpu")):
        assert float(run()[0].abs().max()) < 1e-5  # off by 6e-3 where the factor is within the sum


def test_a_cross_entropy_that_keeps_the_logarithm() -> None:
    labels = torch.arange(24) % 16

    def run() -> list[torch.Tensor]:
        logits = (1000 * QUERIES[0]).requires_grad_()
        loss = torch.nn.functional.cross_entropy(logits, labels, reduction="none")
        return list(torch.autograd.grad(loss, [logits], INCOMING[0, :, 0]))

    logits = (1000 * QUERIES[0]).float()
    weights = torch.exp(logits - torch.logsumexp(logits, -1, keepdim=True))
    weights[torch.arange(24), labels] -= 1.0
    kept = weights * INCOMING[0, :, :1].float()
    assert off(kept, run()[0]) < 2 * drawn(run)[0]


@pytest.mark.parametrize(("scale", "says"), [(1.0, True), (100.0, True), (10000.0, False)])
def test_gradients_that_say_nothing_are_no_matter_and_outputs_are(scale: float, says: bool) -> None:
    inputs = "[torch.randn(24, 16) for _ in range(3)]"
    asked = instance("torch.softmax(q @ k.mT, -1) @ v", inputs, args="q, k, v", contract=GRADIENTS)
    given = asked.offered(0)[0]
    leaves = [scale * leaf for leaf in asked.draw(given, 1)]
    right = asked.eager(leaves, None)
    checker = Checker(asked, seed=3)
    nothing = [right[0], *(torch.full_like(one, torch.inf) for one in right[1:])]
    assert checker.check(given, leaves, None, right, leaves).passed
    assert checker.check(given, leaves, None, nothing, leaves).passed is not says
    assert not checker.check(given, leaves, None, [torch.zeros_like(right[0]), *right[1:]], leaves).passed


def test_a_row_that_a_mask_fills_hides_no_gradient() -> None:
    """Its logarithm is -1e9, and as exact as any: nothing was asked of a task that had one."""
    forward = "torch.softmax((q @ k.mT).masked_fill(m, -1e9), -1) @ v"
    inputs = "[*(torch.randn(24, 16) for _ in range(3)), torch.arange(24)[:, None].expand(24, 24) < 3]"
    asked = instance(forward, inputs, args="q, k, v, m", contract=GRADIENTS)
    given = asked.offered(0)[0]
    leaves = asked.draw(given, 1)
    right = asked.eager(leaves, None)
    assert logarithms.unsure(asked, leaves, None) < 1e-5
    assert logarithms.unsure(asked, [1e6 * leaf if leaf.is_floating_point() else leaf for leaf in leaves], None) > 1.0
    checker = Checker(asked, seed=3)
    assert checker.check(given, leaves, None, right, leaves).passed
    for less in (lambda one: one + 1.0, lambda one: 0.9 * one, torch.zeros_like):
        wrong = [*right[:3], less(right[3])]  # of the values: sums over all rows, those too
        assert not checker.check(given, leaves, None, wrong, leaves).passed


def test_rows_that_a_mask_fills_in_few_draws_are_no_matter_to_gradients_there() -> None:
    """Torch's own attention has weights of 1 in them, of n places; where the task's own calls have such rows it is
    wrong by that."""
    forward = "torch.softmax((q @ k.mT).masked_fill(m, -1e9), -1) @ v"
    floats = "*(torch.randn(24, 16) for _ in range(3))"
    for own, passes in (("24", True), ("21", False)):
        inputs = f"[{floats}, torch.arange(24)[:, None].expand(24, 24) >= {own}]"
        asked = instance(forward, inputs, args="q, k, v, m", contract=GRADIENTS)
        given = asked.offered(0)[0]
        leaves = asked.draw(given, 1)
        leaves[3] = (torch.arange(24) >= 21)[:, None].expand(24, 24).contiguous()
        right = asked.eager(leaves, None)
        wrong = [*right[:3], right[3] + leaves.incoming[0][21:].sum(0) * 23 / 24]
        assert Checker(asked, seed=3).check(given, leaves, None, wrong, leaves).passed is passes
        wrong[1] = right[1].index_fill(0, torch.tensor([22]), torch.nan)  # a mask of -inf behind one of -1e9
        assert not Checker(asked, seed=3).check(given, leaves, None, wrong, leaves).passed


def test_a_loss_of_rows_that_are_all_sure_may_be_a_logarithm_less_an_argument() -> None:
    """Each rounds to the same side where rows are alike; a coarser one is refused, and so is a loss of nothing."""
    asked = instance("F.cross_entropy(x, t)", "[torch.randn(64, 64), torch.arange(64)]", args="x, t")
    given = asked.offered(0)[0]
    leaves = [14.3 * (torch.eye(64) + 0.001 * torch.randn(64, 64, generator=RNG)), torch.arange(64)]
    labels = leaves[0].diagonal()
    less = (torch.logsumexp(leaves[0], -1) - labels).mean()
    checker = Checker(asked, seed=3)
    assert float(less) > 0.0 and checker.check(given, leaves, None, [less], leaves).passed
    assert not checker.check(given, leaves, None, [less + 1e-5], leaves).passed
    assert not checker.check(given, leaves, None, [torch.zeros(())], leaves).passed


@pytest.mark.parametrize("known", [True, False])
def test_the_largest_that_is_taken_off_first_has_no_gradient(monkeypatch: pytest.MonkeyPatch, known: bool) -> None:
    """Where one weight is 1, it would take back all that the softmax's gradient is off there, and a program whose
    weights come again, which is off by that, was refused."""

    def run(centred: bool) -> torch.Tensor:
        logits = (300 * QUERIES).requires_grad_()
        scores = logits - logits.max(-1, keepdim=True)[0] if centred else logits
        return torch.autograd.grad(torch.softmax(scores, -1), [logits], INCOMING)[0]

    monkeypatch.setattr(logarithms, "LARGEST", logarithms.LARGEST if known else frozenset())
    errors = []
    for centred in (True, False):
        exact, sizes = run(centred), []
        for seed in range(8):
            with rounding.Rounded(UNIT, generator(seed, "cpu")):
                sizes.append((run(centred) - exact).abs().amax(-1))
        errors.append(torch.stack(sizes).amax(0))
    assert (float((errors[0] / errors[1]).median()) > 1 / 64) is known
