# SPDX-License-Identifier: Apache-2.0
"""A program keeps nothing of one instance for another."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

import pytest
import torch
from plain_tasks import task

from kernelwright.judge.anew import MOVED, THERE, Anew
from kernelwright.judge.bench import Bench
from kernelwright.judge.checks import Wrong
from kernelwright.judge.program import Program
from kernelwright.judge.verification import Verification
from kernelwright.task import Contract

FORWARD = """v = self.w._version
if _known.get({0}, (None,))[0] != v:
    _known[{0}] = v, self.w.detach() * 2
return x * _known[{0}][1]"""
SPOILT = """y = {0}
if _known.get("by", self) is not self:
    _known["of"].copy_(y)
_known["by"], _known["of"] = self, y
return y"""
INIT = "self.w = torch.nn.Parameter(torch.ones(8))"
WEAK = "import weakref\n_known = weakref.WeakKeyDictionary()"
Start = Callable[..., Program]


def checked(
    program: Start,
    forward: str,
    *,
    init: str = INIT,
    own: str = "",
    reference: str,
    head: str,
    fails: str,
    rows: int = 4,
    switched: bool = False,
) -> list[str]:
    """Checks of one program on a task with these weights; with which words it fails ("": it passes). ``own``: what its
    constructor does besides. ``switched``: in the other mode. What is said of a program that passes."""
    about = Contract(both_modes=switched)
    made = task(reference, f"[torch.randn({rows}, 8)]", init=init.replace("torch.nn", "nn"), contract=about)
    bench = Bench(made, "cpu")

    def start() -> Program:
        return program(forward, init=init + own, head=head, load=False)

    checks = Verification(bench=bench, entry="new.py::ModelNew", start=start, shared=contextlib.nullcontext, seed=5)
    checks.points = tuple(one for one in bench.points(5) if one.instance.training == switched)
    with checks._loaded() as main, pytest.raises(Wrong, match=fails) if fails else contextlib.nullcontext():
        main.stage = "verify"
        checks._keeps_state(main, checks.points[0])
        checks._two_of_them(main)
        assert checks._call(main, *_as_given(checks, main)).passed, "the first instance answers again"
    return checks.conditions


def _as_given(checks: Verification, program: Program) -> tuple[Any, ...]:
    point = checks.points[0]
    leaves = point.instance.draw(point.as_given, 3)
    return point, point.as_given, point.bind(program, point.as_given, 1), 0, leaves, point.instance.first_state


@pytest.mark.parametrize(
    ("key", "head", "fails"),
    [
        ("0", "_known = {}", "with two instances of it: "),
        ("self.w.data_ptr()", "_known = {}", "made anew when another instance was gone"),
        ("self", WEAK, ""),
    ],
)
def test_weights_of_another_instance_are_no_answer(program: Start, key: str, head: str, fails: str) -> None:
    """Both were loaded once, so their weights were written to as often; and where one was, another one may be."""
    checked(program, FORWARD.format(key), reference="x * self.w * 2", head=head, fails=fails)


@pytest.mark.parametrize(
    ("init", "made"), [(INIT, "x * self.w * 2"), ("", "x * 2")], ids=["with weights", "without weights"]
)
def test_what_one_instance_gave_the_other_leaves_alone(program: Start, init: str, made: str) -> None:
    """Results of both live on until they are read, and afterwards the first one answers by itself."""
    how = {"init": init, "reference": made, "head": "_known = {}"}
    checked(program, SPOILT.format(made), fails="with two instances of it in turn", **how)
    checked(program, SPOILT.format(made).replace('_known["of"].copy_(y)', "pass"), fails="", **how)


@pytest.mark.parametrize(
    ("forward", "fails"),
    [
        ("return x * self.w * 2", ""),
        (FORWARD.format("0"), "with two instances of it: "),
        (SPOILT.format("x * self.w * 2"), "with two instances of it in turn"),
    ],
)
def test_of_a_large_call_of_fixed_size_both_have_weights_of_their_own(program: Start, forward: str, fails: str) -> None:
    """16 MiB, and no smaller case: they are asked at that size, whatever weights the check before had."""
    checked(program, forward, reference="x * self.w * 2", head="_known = {}", fails=fails, rows=1 << 18)


def test_who_can_be_made_once_in_a_process_passes_where_there_are_no_weights(program: Start) -> None:
    """An operator's name is registered once. The proof says so; with weights there are a dozen of a layer."""
    once, how = "assert not _known\n_known[0] = self", {"reference": "x * 2", "head": "_known = {}"}
    said = checked(program, "return x * 2", init="", own=once, fails="", **how)
    assert ["another instance of it in its process raised AssertionError:"] == said
    assert [] == checked(program, "return x * 2", init="", fails="", **how)


@pytest.mark.parametrize("made", ["torch.cat(self.seen)", "(self.w if self.at == self.w.data_ptr() else None)"])
def test_who_notes_where_its_weights_lie_passes(program: Start, made: str) -> None:
    """A view of them, or an address, from the constructor: right as long as nobody moves them; else it is wrong, or it
    raises."""
    init = f"{INIT}\nself.seen = [self.w.detach()[:4], self.w.detach()[4:]]\nself.at = self.w.data_ptr()"
    checked(program, f"return x * {made} * 2", init=init, reference="x * self.w * 2", head="", fails="")


@pytest.mark.parametrize(
    ("forward", "fails"),
    [
        ("return x * self.w * (3.0 if self.training else 2.0)", ""),
        ("return x * self.w * (3.0 if self.training and self.n else 2.0)", "with two instances of it: "),
        ("return x * self.w * (3.0 if self.training or self.n else 2.0)", "with two instances of it: "),
    ],
)
@pytest.mark.parametrize("switched", [False, True])
def test_all_instances_answer_in_the_mode_that_is_judged(
    program: Start, forward: str, fails: str, switched: bool
) -> None:
    """The second one and those made anew were in the contract's mode, so in the other mode the reference itself was
    refused. ``n``: 1 in the first instance alone, or in all others alone, whichever goes wrong in the mode."""
    late = "_made" if "and" in forward else "1 - _made"
    own = f"\nglobal _made\nself.n = {late}\n_made = 0"
    made = "x * self.w * (3.0 if self.training else 2.0)"
    told = fails if ("or" in forward) != switched else ""
    checked(program, forward, own=own, reference=made, head="_made = 1", fails=told, switched=switched)


@pytest.mark.parametrize("do", [{"do": "twin"}, {"do": "anew", "how": MOVED}], ids=["twin", "anew"])
def test_an_instance_made_later_is_in_the_mode_that_is_current(program: Start, plan: Any, do: dict[str, str]) -> None:
    """So is one that was made before the mode was changed."""
    one = program("return x * 0 + (1.0 if self.training else 2.0)")
    buffers, said = one.bind(plan((4,), sets=1)), []
    buffers.inputs[0][0].zero_()
    for training in (True, False):
        one.mode(training=training)
        one.leash.ask(do, "verify")
        for change in (training, not training):
            one.mode(training=change)
            one.window([0])
            said.append(float(buffers.outputs[0][0][0]))
    assert said == [1.0, 2.0, 2.0, 1.0]


class Module(torch.nn.Module):
    """Of 8 MiB."""

    def __init__(self) -> None:
        super().__init__()
        self.w = torch.nn.Parameter(torch.ones(1 << 21))


def test_weights_lie_where_others_were_or_where_none_were() -> None:
    """Put there, as often written to as others after they are loaded."""
    one, first = Anew(), Module()
    places = {first.w.data_ptr()}
    one.gone(first)
    del first
    there = one.made(Module, THERE)
    assert there.w.data_ptr() in places and bool((there.w == 1).all()) and there.w._version == Module().w._version
    one.gone(there)
    moved = one.made(Module, MOVED)
    assert moved.w.data_ptr() not in places and bool((moved.w == 1).all())
