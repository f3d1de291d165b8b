# SPDX-License-Identifier: Apache-2.0
"""Large weights are drawn in parts in the judge, repeated in programs, and nothing else differs."""

from typing import Any

import pytest
import torch
from torch import nn

from kernelwright.judge import fills, left
from kernelwright.judge.fills import ASIDE, CHEAPLY, IN_TURN, POOL
from kernelwright.judge.instance import Instance
from kernelwright.judge.reference import Reference
from kernelwright.task import Contract, Task

SIDE = 1500  # 2.25 Mi elements
SOURCE = """
import torch
from torch import nn
class Model(nn.Module):
    def __init__(self, side={side}):
        super().__init__()
        self.fc = nn.Linear(side, side, bias=False)
        {more}
    def forward(self, x):
        return self.fc(x)
def get_inputs():
    return [torch.randn(2, {side})]
def get_init_inputs():
    return []
"""


def _made(how: str, seed: int = 3, **kinds: Any) -> tuple[torch.Tensor, torch.Tensor, list[int]]:
    """A large weight, a small one after it, and what was seen."""
    with left.seeds(seed, seed), fills.filled(how) as seen:
        model = nn.Linear(SIDE, SIDE, bias=False, **kinds)
        after = torch.randn(5)
    return model.weight.detach(), after, seen


def _instance(more: str = "pass", side: int = SIDE, **contract: bool) -> Instance:
    task = Task(
        name="t",
        form="file",
        entry="Model",
        reference=SOURCE.format(side=side, more=more),
        contract=Contract(**contract),
    )
    return Reference(task, "cpu").instance(task.timed_case())


def test_a_program_draws_what_comes_after_as_the_judge_does() -> None:
    """Whatever is done with the large ones; of those the parts are the same, side by side or in turn."""
    aside, turn, cheap = (_made(how) for how in (ASIDE, IN_TURN, CHEAPLY))
    assert torch.equal(aside[0], turn[0]) and not torch.equal(aside[0], cheap[0])
    assert torch.equal(aside[1], turn[1]) and torch.equal(aside[1], cheap[1])
    assert aside[2] == turn[2] == cheap[2] == [SIDE * SIDE]
    assert not torch.equal(_made(ASIDE, 4)[0], aside[0])


def test_large_weights_are_spread_as_torch_spreads_them() -> None:
    """Over the same range, nothing repeated; repeated numbers too have its mean and scatter."""
    plain, whole, cheap = (_made(how)[0] for how in ("", ASIDE, CHEAPLY))
    bound = SIDE**-0.5
    for found in (whole, cheap):
        assert float(found.abs().max()) <= bound and abs(float(found.mean())) < 0.01 * bound
        assert float(found.std() / plain.std()) == pytest.approx(1.0, abs=0.01)
    assert len(whole.unique()) > 0.5 * len(plain.unique())
    assert torch.equal(cheap.view(-1)[:1000], cheap.view(-1)[POOL : POOL + 1000])


@pytest.mark.parametrize("how", [ASIDE, CHEAPLY])
def test_what_is_small_or_says_how_is_drawn_by_torch(how: str) -> None:
    """A small weight, one with a generator of its own, one of another layout, one that may not be written to."""

    def drawn() -> list[torch.Tensor]:
        own = torch.Generator().manual_seed(5)
        turned = torch.empty(SIDE, SIDE).t()
        return [
            torch.randn(100),
            torch.empty(SIDE, SIDE).normal_(1.0, 2.0, generator=own),
            turned.uniform_(),
            torch.rand(SIDE, SIDE, generator=own),
            torch.empty(SIDE, SIDE, dtype=torch.int32).random_(7),
        ]

    torch.manual_seed(1)
    expected = drawn()
    torch.manual_seed(1)
    with fills.filled(how) as seen:
        found = drawn()
        with pytest.raises(RuntimeError, match="leaf Variable"):
            nn.Parameter(torch.empty(SIDE, SIDE)).uniform_()
    assert all(map(torch.equal, expected, found)) and seen == []


def test_torch_is_as_it_was_afterwards() -> None:
    """A function kept from inside is torch's own again too."""
    before = torch.rand, torch.randn, torch.Tensor.uniform_, torch.Tensor.normal_
    with pytest.raises(ZeroDivisionError), fills.filled(ASIDE):
        kept, uniform = torch.randn, torch.Tensor.uniform_
        1 / 0  # noqa: B018
    assert (torch.rand, torch.randn, torch.Tensor.uniform_, torch.Tensor.normal_) == before
    assert "uniform_" not in vars(torch.Tensor)
    torch.manual_seed(2)
    expected = torch.randn(SIDE, SIDE), torch.empty(SIDE, SIDE).uniform_(1, 2)
    torch.manual_seed(2)
    assert torch.equal(kept(SIDE, SIDE), expected[0]) and torch.equal(
        uniform(torch.empty(SIDE, SIDE), 1, 2), expected[1]
    )


@pytest.mark.parametrize(
    ("more", "contract", "how"),
    [
        ("pass", {}, CHEAPLY),
        ("pass", {"frozen_parameters": True}, IN_TURN),
        ("self.register_buffer('b', torch.randn(side, side))", {}, CHEAPLY),
        ("self.register_buffer('b', torch.randn(side, side), persistent=False)", {}, IN_TURN),
        ("self.kept = torch.randn(side, side)", {}, IN_TURN),
        ("self.kept = [torch.randn(side, side)]", {}, IN_TURN),
        ("self.kept = torch.randn(side, side).sum()", {}, IN_TURN),
    ],
)
def test_a_program_may_repeat_numbers_where_its_state_holds_all(more: str, contract: dict[str, bool], how: str) -> None:
    """Not what a module keeps beside it, nor what may stay as it began."""
    assert fills.of_programs(_instance(more, **contract)) == how


def test_small_weights_are_torch_s() -> None:
    """Nothing is done for them."""
    assert fills.of_programs(_instance(side=64)) == ""


def test_one_that_fails_on_repeated_numbers_is_asked_again() -> None:
    """Its rows are the same in turn, which has no inverse."""
    asked: list[bool] = []

    def make() -> torch.Tensor:
        weight = torch.randn(2048, 1024)
        asked.append(torch.equal(weight[:1024], weight[1024:]))
        if asked[-1]:
            raise ValueError("no inverse")
        return weight

    made = fills.constructed(make, (1, 2), CHEAPLY)
    assert asked == [True, False]
    with left.seeds(1, 2), fills.filled(ASIDE):
        assert torch.equal(made, torch.randn(2048, 1024))
