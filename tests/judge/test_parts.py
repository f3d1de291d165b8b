# SPDX-License-Identifier: Apache-2.0
"""What a program does of its own that a larger module does not ask it for, and weights in another layout."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from plain_programs import checks_of
from plain_tasks import task
from torch import nn

from kernelwright.judge import parts, relaid
from kernelwright.judge.bench import Bench
from kernelwright.judge.program import Program
from kernelwright.judge.verification import Verification
from kernelwright.task import Contract

Start = Callable[..., Program]


class Mine(nn.Linear):
    """Loads, and switches its mode, in ways of its own."""

    def load_state_dict(self, *given: Any, **named: Any) -> Any:
        return super().load_state_dict(*given, **named)

    def train(self, mode: bool = True) -> Mine:
        return super().train(mode)


def test_what_torchs_classes_do_is_nobodys_own() -> None:
    """Nor is what a larger module asks its parts for."""
    assert parts.own(nn.Linear(2, 2)) == [] == parts.own(nn.LazyLinear(2)) == parts.own(lambda x: x)
    made = Mine(2, 2)
    assert parts.own(made) == ["load_state_dict"]
    made.eval = made.eval  # type: ignore[method-assign]
    assert parts.own(made) == ["load_state_dict", "eval"]


@pytest.mark.parametrize("name", parts.UNASKED)
def test_a_larger_module_asks_no_part_for_it(name: str) -> None:
    """As torch is: what it does with its parts it does by ``_apply``, ``_load_from_state_dict`` and ``train``."""
    asked: list[str] = []
    part = nn.Linear(2, 2)
    setattr(part, name, lambda *given, **named: asked.append(name))
    whole = nn.Sequential(part)
    given = {"load_state_dict": [whole.state_dict()], "to": ["cpu"], "type": [torch.float32], "to_empty": []}
    if name == "cuda":
        return  # the same as ``cpu``, on a device
    made = getattr(whole, name)(*given.get(name, ()), **({"device": "cpu"} if name == "to_empty" else {}))
    if not isinstance(made, nn.Module) and name not in ("load_state_dict", "zero_grad"):
        list(made)
    assert asked == []


def test_a_proof_names_the_methods_but_those_of_the_reference() -> None:
    """And repeats nothing else that a program says."""
    assert (
        "" == parts.words(None, []) == parts.words([], []) == parts.words(["granted", 3], []) == parts.words("to", [])
    )
    assert parts.words(["eval", "to"], ["to"]) == f"{parts.WORDS} eval"
    assert "" == parts.words(["to"], ["to"])


@pytest.mark.parametrize("own", [True, False])
def test_a_condition_of_a_proof_says_so_once(program: Start, own: bool) -> None:
    """By the word of a program in its process."""
    init = "self.w = torch.nn.Parameter(torch.randn(8))" + ("\nself.load_state_dict = self.load_state_dict" * own)
    bench = Bench(
        task("x * self.w", "[torch.randn(4, 8)]", init=init.partition("\n")[0].replace("torch.nn", "nn")), "cpu"
    )
    checks = checks_of(bench)
    checks.points = (bench.timed,)
    with program("return x * self.w", init=init, load=False) as made:
        made.load("new.py::ModelNew", state=bench.timed.instance.first_state)
        told = made.leash.ask({"do": "left"}, "smoke") | {"left": {}}
    for _ in range(2):
        checks._leaves_alone(SimpleNamespace(leash=SimpleNamespace(ask=lambda *_: told), stage=""))  # type: ignore
    assert checks.conditions == ([f"{parts.WORDS} load_state_dict"] if own else [])


FLAT = "return (torch.as_strided(self.w, (6, 36), (36, 1)) @ torch.nn.functional.unfold(x, 3)).view(2, 6, 4, 4)"


@pytest.mark.parametrize(
    ("forward", "init", "otherwise"),
    [
        (FLAT, "(6, 4, 3, 3)", "output 0 at "),
        ("return torch.nn.functional.conv2d(x, self.w)", "(6, 4, 3, 3)", ""),
        ("return torch.nn.functional.conv2d(x, self.w.view(6, -1).view(6, 4, 3, 3))", "(6, 4, 3, 3)", "raised Runtime"),
    ],
)
def test_weights_are_laid_out_as_a_model_of_images_is_told(
    program: Start, forward: str, init: str, otherwise: str
) -> None:
    """Who reads them as they lay is not refused, and a proof says it."""
    init = f"self.w = nn.Parameter(torch.randn{init} / 6)"
    bench = Bench(task("F.conv2d(x, self.w)", "[torch.randn(2, 4, 6, 6)]", init=init, contract=Contract()), "cpu")

    def start() -> Program:
        return program(forward, init=init.replace("nn.", "torch.nn.", 1), load=False)

    checks = Verification(bench=bench, entry="new.py::ModelNew", start=start, shared=contextlib.nullcontext, seed=5)
    checks.points = bench.points(5)
    said = relaid.otherwise(checks)
    assert len(said) == bool(otherwise)
    assert all(one.startswith(f"with weights in torch.channels_last it answers otherwise ({otherwise}")
               for one in said)  # fmt: skip


def test_weights_that_have_one_layout_are_not_asked_about() -> None:
    """Nobody loads a process for them: a matrix, and four axes of which only one is longer than one."""
    for shape in ("(16, 16)", "(16, 1, 3, 3)", "(16, 16, 1, 1)"):
        made = task("x * self.w.sum()", "[torch.randn(2, 4)]", init=f"self.w = nn.Parameter(torch.randn{shape})")
        bench = Bench(made, "cpu")
        checks = Verification(bench=bench, entry="", start=_never, shared=contextlib.nullcontext, seed=5)
        checks.points = bench.points(5)
        assert not relaid.otherwise(checks)


def _never() -> Program:
    raise AssertionError("no program is needed")
