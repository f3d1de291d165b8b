# SPDX-License-Identifier: Apache-2.0
"""Programs whose parts are used again and again (steps of a simulation): their length written out costs nothing."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import pytest

from kernelwright.optimize.run import LEAST_TRACING_S
from kernelwright.proposers import rewrites
from kernelwright.proposers.rewrites import greedy, saturate
from kernelwright.proposers.rewrites.cost import rates, total
from kernelwright.proposers.rewrites.laws import rules
from kernelwright.proposers.rewrites.terms import Term, leaf, make, outline, walk
from kernelwright.proposers.rewrites.trace import Program

AT = rates("cpu", None)


def steps(count: int) -> Term:
    """Place and speed of a spring after some steps, summed: each step uses both twice."""
    x, v = leaf("x", 64), leaf("v", 64)
    for _ in range(count):
        v = make("add", (v, make("scale", (make("sub", (v, x)),), (0.125,))))
        x = make("add", (x, make("scale", (v,), (0.5,))))
    return make("call", (make("add", (x, v)),), ("return", ""), (64,))


def test_equal_programs_are_one_object_and_are_told_apart_by_what_is_written() -> None:
    """Compared at once however often their parts are used; 1 and 1.0 stay what they were."""
    assert steps(40) is steps(40)
    assert steps(40) is not steps(41)
    x = leaf("x", 4)
    assert ["1", "1.0"] == [repr(make("shift", (x,), (number,)).attrs[0]) for number in (1, 1.0)]


def test_the_outline_of_a_program_has_every_part_once() -> None:
    """A line for each of 5 * 40 steps, two leaves and the end; others for another program."""
    assert 5 * 40 + 2 + 2 == len(outline(steps(40)).splitlines())
    assert outline(steps(3)) != outline(make("call", (leaf("x", 64),), ("return", ""), (64,)))


def test_extraction_ends_with_its_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """A clock that moves on by a second whenever it is read: no node is visited after the end."""
    pytest.importorskip("egglog")
    clock: Iterator[float] = (float(second) for second in itertools.count())
    visits: list[str] = []
    visit = saturate._Extraction._visit

    def counted(self: saturate._Extraction, name: str, node: dict[str, Any]) -> bool:
        visits.append(name)
        return visit(self, name, node)

    monkeypatch.setattr(saturate.time, "monotonic", lambda: next(clock))
    monkeypatch.setattr(saturate._Extraction, "_visit", counted)
    saturate.search(steps(4), rules(), AT, seconds=200.0)
    assert 0 < len(visits) <= 200


def test_extraction_finds_what_looking_at_every_node_again_does(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nodes below which nothing changed are passed over; the cheapest program is as cheap."""
    pytest.importorskip("egglog")
    few = saturate.search(steps(2), rules(), AT, seconds=60.0)
    visit = saturate._Extraction._visit

    def forgetful(self: saturate._Extraction, name: str, node: dict[str, Any]) -> bool:
        self.seen.clear()
        return visit(self, name, node)

    monkeypatch.setattr(saturate._Extraction, "_visit", forgetful)
    every = saturate.search(steps(2), rules(), AT, seconds=60.0)
    assert [total(term, AT) for term in few] == pytest.approx([total(term, AT) for term in every])
    assert len(few) > 1


def test_both_engines_together_have_less_time_than_a_proposer_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """Or a task on which they use it all would lose every rewrite."""
    given: list[float] = []

    def engine(root: Term, table: object, at: object, *, seconds: float) -> list[Term]:
        given.append(seconds)
        return [root]

    for room in (greedy, saturate):
        monkeypatch.setattr(room, "search", engine)
    root = steps(1)
    inputs = tuple((name, ((64,), "torch.float32")) for name in ("x", "v"))
    kept = {"parameters": (), "results": "tensor", "init": ("()", "{}"), "training": False}
    program = Program(root=root, inputs=inputs, dtype="torch.float32", **kept)  # type: ignore[arg-type]  # of each field
    rewrites.rewritten(program, AT)
    assert 2 == len(given)
    assert sum(given) < LEAST_TRACING_S
    assert {"leaf", "add", "sub", "scale", "call"} == {term.op for term in walk((root,))}
