# SPDX-License-Identifier: Apache-2.0
"""Which parameters an optimizer would move: those that require a gradient, and of these those that have one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from plain_tasks import GRADIENTS, instance
from torch import nn

from kernelwright.judge import unused_parameters
from kernelwright.judge.asked import begin
from kernelwright.judge.buffers import CallPlan
from kernelwright.judge.leash import ChildFailure
from kernelwright.judge.plain import WrongStructure
from kernelwright.judge.program import Program
from kernelwright.judge.skeletons import flatten
from kernelwright.judge.state_names import requiring, trained

Start = Callable[..., Program]


class Held(nn.Module):
    """A weight that is trained, one that is held still, and a buffer."""

    def __init__(self, still: bool = False, trained_too: bool = True) -> None:
        super().__init__()
        self.w = nn.Parameter(torch.ones(4), requires_grad=trained_too)
        self.still = nn.Parameter(torch.ones(4), requires_grad=still)
        self.register_buffer("seen", torch.ones(4))


def test_what_requires_a_gradient_is_compared_by_name() -> None:
    """A buffer for what is held still is as well; what an optimizer would move beside it, or would not, is refused."""
    theirs, names = requiring(Held()), ["w", "still", "seen"]
    assert theirs == ["w"]
    trained(Held(), names, theirs)
    trained(Held(still=True), names, None)
    with pytest.raises(WrongStructure, match="got still, expected none"):
        trained(Held(still=True), names, theirs)
    with pytest.raises(WrongStructure, match="got none of w, expected all"):
        trained(Held(trained_too=False), names, theirs)


@pytest.mark.parametrize(("init", "fails"), [("torch.nn.Parameter(torch.ones(4))", True), ("torch.ones(4)", False)])
def test_a_program_says_so_when_it_is_loaded(program: Start, init: str, fails: bool) -> None:
    """In its own process, before the first call."""
    kind = f"self.w = {init}" if fails else f"self.register_buffer('w', {init})"
    one = program("return x * self.w", init=kind, load=False)
    one.trained, state = [], [("w", torch.ones(4))]
    if fails:
        with pytest.raises(ChildFailure, match="got w, expected none of these"):
            one.load("new.py::ModelNew", state=state)
    else:
        one.load("new.py::ModelNew", state=state)


def absent(forward: str, init: str) -> set[str]:
    """What a call of a reference with this body does not use."""
    made: Any = instance(forward, "[torch.randn(4, 8)]", init=init, contract=GRADIENTS)
    leaves = made.draw(made.offered(0)[0], 3)
    return unused_parameters.of_call(made, leaves, made.first_state)


def test_a_parameter_that_nothing_depends_on_is_named_and_no_expert_without_tokens() -> None:
    """One of several alike may be used in another call; an input is no parameter."""
    spare = "self.spare = nn.Parameter(torch.ones(8))\nself.l = nn.Linear(8, 8)"
    assert absent("self.l(x)", spare) == {"parameter:spare"}
    assert absent("self.l(x) + 0.0 * self.spare.sum()", spare) == set()
    assert absent("self.l(torch.ones_like(x))", spare) == {"parameter:spare"}
    assert absent("self.e[0](x)", "self.e = nn.ModuleList(nn.Linear(8, 8) for _ in range(3))") == set()


class Spare(nn.Module):
    """It adds nothing of ``spare``, or does not look at it."""

    def __init__(self, looks: bool) -> None:
        super().__init__()
        self.w, self.spare, self.looks = nn.Parameter(torch.ones(4)), nn.Parameter(torch.ones(4)), looks

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * self.w + (0.0 * self.spare.sum() if self.looks else 0.0)


def test_zeros_where_the_reference_has_none_are_refused_when_asked() -> None:
    """Nobody who is not asked is, and who has None gets the zeros that are compared."""
    skeleton, leaves = flatten([torch.ones(4)])
    for looks, unused in ((False, ()), (False, ("parameter:spare",)), (True, ())):
        made = Spare(looks)
        gradients = tuple((f"parameter:{name}", None) for name in ("w", "spare"))
        plan: Any = CallPlan(arguments=skeleton, inputs=(), results={"t": 0}, outputs=(), sets=1)
        object.__setattr__(plan, "gradients", gradients)
        object.__setattr__(plan, "seeds", (0,))
        _, (of_w, of_spare) = begin(made, (leaves, {}, leaves), plan, [torch.ones(4)], None, "", unused)()
        assert bool((of_w == 1).all()) and not of_spare.any()
    with pytest.raises(WrongStructure, match="gradient of parameter:spare: got a tensor, expected None"):
        begin(Spare(True), (leaves, {}, leaves), plan, [torch.ones(4)], None, "", ("parameter:spare",))()
