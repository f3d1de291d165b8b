# SPDX-License-Identifier: Apache-2.0
"""Gradients that belong to an answer: moved along them, or along a third of them, it changes as they say."""

from __future__ import annotations

import random
from typing import Any

import torch
from plain_tasks import GRADIENTS, instance

from kernelwright.judge import randomness, weights
from kernelwright.judge.inputs import Variant

GIVEN = Variant(name="as given", required=True)


def test_a_small_part_that_is_wrong_shows_along_that_part_alone() -> None:
    """Rows of a head whose gradient is a fiftieth of the others', of noise that was drawn anew."""
    forward = "(lambda h: h[:, :24] + 0.02 * h[:, 24:] * n)(torch.tanh(x) @ w)"
    inputs = "[torch.randn(64, 16), torch.randn(16, 48), torch.randn(64, 24)]"
    asked = instance(forward, inputs, args="x, w, n", contract=GRADIENTS)
    leaves = asked.draw(GIVEN, 1)
    at = len(asked.out_specs) + [name for name, _ in asked.gradients].index("input:1")

    def right(given: list[torch.Tensor], weights: Any) -> list[torch.Tensor]:
        return list(asked.eager(given, weights))

    def anew(given: list[torch.Tensor], weights: Any) -> list[torch.Tensor]:
        found = right(given, weights)
        found[at] = torch.cat([found[at][:, :24], found[at][:, 24:].roll(1, 0)], 1)
        return found

    part = (slice(None), slice(32, 48))
    for run, passes in ((right, True), (anew, False)):
        assert abs(randomness.followed(asked, leaves, None, run, "input:1") - 1.0) < randomness.OFF
        off = abs(randomness.followed(asked, leaves, None, run, "input:1", part) - 1.0)
        assert (off < randomness.OFF) is passes


def test_thirds_are_of_axes_that_have_as_many_places() -> None:
    """Each third of each such axis comes; what is too small is moved whole."""
    dice = random.Random(1)
    found = [randomness.third((3, 9, 12), dice) for _ in range(200)]
    ends = {(len(part), part[-1].start, part[-1].stop) for part in found}
    assert ends == {(2, 0, 3), (2, 3, 6), (2, 6, 9), (3, 0, 4), (3, 4, 8), (3, 8, 12)}
    assert randomness.third((3, 5), dice) == randomness.WHOLE == randomness.third((), dice)


def test_tied_weights_are_moved_together() -> None:
    """An embedding that is the head too: moved under one of its names alone it does not change at all."""
    init = (
        "self.e, self.o = torch.nn.Embedding(12, 8), torch.nn.Linear(8, 12, bias=False); self.o.weight = self.e.weight"
    )
    asked = instance("self.o(torch.tanh(self.e(x)))", "[torch.randint(12, (64,))]", init=init, contract=GRADIENTS)
    leaves, state = asked.draw(GIVEN, 1), asked.first_state
    name = next(name for name, _ in asked.gradients if name.startswith("parameter:"))
    assert sorted(weights.tied(asked.model, name.partition(":")[2])) == ["e.weight", "o.weight"]

    def right(given: list[torch.Tensor], values: Any) -> list[torch.Tensor]:
        return list(asked.eager(given, values))

    def half(given: list[torch.Tensor], values: Any) -> list[torch.Tensor]:
        found = right(given, values)
        found[-1] = found[-1] * (torch.arange(12) % 2)[:, None]
        found[-1] += found[-1].roll(1, 0)
        return found

    assert abs(randomness.followed(asked, leaves, state, right, name) - 1.0) < randomness.OFF
    assert abs(randomness.followed(asked, leaves, state, half, name) - 1.0) > randomness.OFF
