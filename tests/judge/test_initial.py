# SPDX-License-Identifier: Apache-2.0
"""judge/initial.py: parameters that begin otherwise than the reference's, and such as were drawn in another order."""

from __future__ import annotations

import math
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from plain_programs import checks_of
from plain_tasks import task
from torch import nn

from kernelwright.judge import initial
from kernelwright.judge.bench import Bench
from kernelwright.judge.program import Program

Start = Callable[..., Program]


def drawn(*shape: int, seed: int = 1) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize(
    ("mine", "theirs", "otherwise"),
    [
        (torch.zeros(64, 64), drawn(64, 64) / 8, True),
        (drawn(64, 64), drawn(64, 64) / 8, True),
        (drawn(64, 64, seed=2) / 8 + 0.1, drawn(64, 64) / 8, True),
        (torch.full((64, 64), math.nan), drawn(64, 64) / 8, True),
        (drawn(64, 64) * 1e-38, drawn(64, 64) / 8, True),
        (drawn(64, 64), torch.zeros(64, 64), True),
        (torch.zeros(64), torch.ones(64), True),
        (torch.zeros(4), drawn(4), True),
        (drawn(16) * 1e30, drawn(16), True),
        (torch.zeros(()), torch.tensor(2.66), True),
        (drawn(64, 64, seed=2) / 8, drawn(64, 64) / 8, False),
        (drawn(64, 64).T / 8, drawn(64, 64) / 8, False),
        ((drawn(64, 64) / 8).bfloat16(), drawn(64, 64) / 8, False),
        (torch.ones(64).bfloat16(), torch.ones(64), False),
        (drawn(3, seed=2), drawn(3), False),
        (torch.tensor(0.3), torch.tensor(-1.2), False),
        (torch.empty(0), torch.empty(0), False),
        (torch.zeros(64), torch.full((64,), math.nan), False),
        (torch.complex(drawn(64), drawn(64, seed=2)), torch.complex(drawn(64, seed=3), drawn(64)), False),
    ],
)
def test_what_begins_otherwise(mine: torch.Tensor, theirs: torch.Tensor, otherwise: bool) -> None:
    """Neither by its values nor by its mean and scatter as the reference's."""
    assert initial.apart(mine, theirs) is otherwise


@pytest.mark.parametrize("shape", [(8,), (20,), (63,), (64,), (100,), (32, 32)])
@pytest.mark.parametrize("draw", ["normal_", "uniform_", "exponential_"])
def test_another_order_of_drawing_is_no_other_beginning(shape: tuple[int, ...], draw: str) -> None:
    """Who constructs two layers the other way round has other numbers of the same law: not once in 400."""
    rng = torch.Generator().manual_seed(3)
    pairs = [[getattr(torch.empty(shape), draw)(generator=rng) for _ in range(2)] for _ in range(400)]
    assert not any(initial.apart(*pair) for pair in pairs)


class Mine(nn.Module):
    """A weight of the reference's name, one that is packed, and one by a name of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.w, self.packed = nn.Parameter(torch.zeros(64, 64)), nn.Parameter(torch.zeros(128, 32))
        self.mine, self.tied = nn.Parameter(torch.zeros(64)), self.w
        self.register_buffer("seen", torch.zeros(64))


def test_parameters_are_compared_by_name_and_shape_alone() -> None:
    """Weights that a program keeps otherwise are its own affair, and so are buffers."""
    names, theirs = ["w", "packed", "other", "seen", "tied"], [drawn(64, 64) for _ in range(5)]
    assert initial.otherwise(Mine(), names, theirs) == {"w": ("0", "0"), "tied": ("0", "0")}
    assert initial.otherwise(lambda x: x, names, theirs) == {}
    lazy = nn.LazyLinear(4)
    assert initial.otherwise(lazy, ["weight"], [drawn(4, 4)]) == {}


def test_a_proof_repeats_names_and_numbers_alone() -> None:
    """Whatever else a program says of itself."""
    state = [(name, drawn(64) * 2) for name in "abcd"]
    assert "" == initial.words({}, state) == initial.words(None, state) == initial.words({"x": ("0", "0")}, state)
    assert "" == initial.words({"a": "granted by the judge", "b": ("0", "all well"), "c": 3}, state)
    said = initial.words({name: ("0", "nan") for name in "abcd"}, state)
    assert said.startswith(initial.WORDS) and "a: mean 0 and scatter nan, expected " in said and "and 1 more" in said


@pytest.mark.parametrize("made", ["randn", "zeros"])
def test_a_program_tells_how_it_began_before_weights_were_loaded(program: Start, made: str) -> None:
    """And not how it is now, with the reference's."""
    init = f"self.w, self.v = torch.nn.Parameter(torch.{made}(64, 64)), torch.nn.Parameter(torch.ones(64))"
    one, state = program("return x @ self.w", init=init, load=False), [("w", drawn(64, 64)), ("v", torch.ones(64))]
    one.load("new.py::ModelNew", state=state)
    said = initial.words(one.leash.ask({"do": "left"}, "smoke")["begun"], state)
    assert ("w: mean 0 and scatter 0, expected" in said and "v:" not in said) if made == "zeros" else said == ""


def test_a_condition_of_a_proof_says_so_once() -> None:
    """After the first call and after the last one, of each of two processes."""
    checks = checks_of(Bench(task("self.l(x)", "[torch.randn(4, 16)]", init="self.l = nn.Linear(16, 8)"), "cpu"))
    checks.points = (checks.bench.timed,)
    told = {"left": {}, "begun": {"l.weight": ("0", "0")}}
    made: Any = SimpleNamespace(leash=SimpleNamespace(ask=lambda request, stage: told), stage="smoke")
    for _ in range(3):
        checks._leaves_alone(made)
    assert 1 == len(checks.conditions) and "(l.weight: mean 0 and scatter 0, expected" in checks.conditions[0]
