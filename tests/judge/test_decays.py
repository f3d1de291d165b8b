# SPDX-License-Identifier: Apache-2.0
"""States that decay by an exponential in each step may be computed by running sums of logarithms, and no others."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

from kernelwright.judge import decays, rounding
from kernelwright.judge.inputs import generator

UNIT = 2.0**-24
Made = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]


def steps(logs: torch.Tensor, added: torch.Tensor) -> torch.Tensor:
    """One step after the other."""
    state, found = torch.zeros_like(added[:, 0]), []
    for t in range(added.shape[1]):
        state = logs[:, t].exp()[:, None] * state + added[:, t]
        found.append(state)
    return torch.stack(found, 1)


def written_to(logs: torch.Tensor, added: torch.Tensor) -> torch.Tensor:
    """The same in one tensor, of decays that were made before, cut along the steps."""
    state, found = torch.zeros_like(added[:, 0]), []
    for decay, new in zip(logs.exp()[..., None].unbind(1), added.unbind(1), strict=True):
        state *= decay
        state += new
        found.append(state.clone())
    return torch.stack(found, 1)


def gates(logs: torch.Tensor, added: torch.Tensor) -> torch.Tensor:
    """Of what a sigmoid leaves."""
    taken = torch.sigmoid(torch.log(torch.expm1(-logs)))
    state, found = torch.zeros_like(added[:, 0]), []
    for t in range(added.shape[1]):
        state = (1 - taken[:, t, None]) * state + added[:, t]
        found.append(state)
    return torch.stack(found, 1)


def of_the_state(logs: torch.Tensor, added: torch.Tensor) -> torch.Tensor:
    """Each decay hangs on the state, by nothing."""
    state, found = torch.zeros_like(added[:, 0]), []
    for t in range(added.shape[1]):
        state = (logs[:, t, None] + 0.0 * state).exp() * state + added[:, t]
        found.append(state)
    return torch.stack(found, 1)


def chunk(logs: torch.Tensor, added: torch.Tensor) -> torch.Tensor:
    """All steps at once, each decay from the difference of two sums."""
    sums = logs.cumsum(1)
    after = torch.ones(logs.shape[1], logs.shape[1], dtype=torch.bool).triu(1)
    return (sums[:, :, None] - sums[:, None]).masked_fill(after, float("-inf")).exp() @ added


def off(found: torch.Tensor, exact: torch.Tensor) -> float:
    """In roundings of the size of the results (RMS)."""
    return float((found.double() - exact).square().mean().sqrt() / exact.square().mean().sqrt()) / UNIT


def drawn(made: Made, logs: torch.Tensor, added: torch.Tensor) -> float:
    """How far a drawn run lies from an exact one."""
    with rounding.Rounded(UNIT, generator(3, "cpu")), torch.no_grad():
        found = made(logs.double(), added.double())
    return off(found, made(logs.double(), added.double()))


RNG = torch.Generator().manual_seed(5)
LOGS, ADDED = -torch.rand(64, 48, generator=RNG), torch.randn(64, 48, 16, generator=RNG)


@pytest.mark.parametrize("made", [steps, written_to, gates])
@pytest.mark.parametrize("scale", [1.0, 20.0])
def test_decays_err_as_differences_of_running_sums_do(made: Made, scale: float) -> None:
    honest = off(chunk(LOGS * scale, ADDED), steps((LOGS * scale).double(), ADDED.double()))
    assert 0.6 * honest < drawn(made, LOGS * scale, ADDED) < 2.0 * honest


def test_decays_that_are_made_of_their_state_err_step_by_step() -> None:
    assert drawn(of_the_state, LOGS * 20.0, ADDED) < 2.0


def test_a_gate_alone_is_no_recurrence() -> None:
    def gated(logs: torch.Tensor, added: torch.Tensor) -> torch.Tensor:
        return logs.exp()[..., None] * added

    assert drawn(gated, LOGS * 20.0, ADDED) < 2.0


def test_a_state_that_is_emptied_begins_anew() -> None:
    """A decay of zero has an infinite logarithm, and a vast one an error that nobody would call one."""
    logs = LOGS.clone()
    logs[:, 20] = -torch.inf
    assert drawn(steps, logs, ADDED) < 2.0 * drawn(steps, LOGS, ADDED)
    logs[:, 20] = -1e9
    assert drawn(steps, logs, ADDED) < 2.0 * decays.MOST / UNIT


def test_a_product_with_a_complex_constant_has_a_gradient_all_the_same() -> None:
    """Its backward pass conjugates the number, which is no tensor; each such reference ended the judge."""

    def slope(logs: torch.Tensor) -> torch.Tensor:
        leaf = logs.detach().clone().requires_grad_()
        turned, decay = (1j * leaf).exp(), logs.exp()
        return torch.autograd.grad((turned.real * decay).sum(), leaf)[0]

    logs = -torch.rand(8, 8, generator=torch.Generator().manual_seed(1)).double()
    exact = slope(logs)
    with rounding.Rounded(UNIT, generator(3, "cpu")):
        assert torch.allclose(slope(logs), exact, rtol=1e-5, atol=1e-6)
