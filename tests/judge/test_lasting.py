# SPDX-License-Identifier: Apache-2.0
"""Slices that lie off in call after call are no chance, though each call alone may be."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from plain_tasks import instance

from kernelwright.judge import distribution, draws
from kernelwright.judge.admission import _Bar
from kernelwright.judge.inputs import seeded
from kernelwright.judge.lasting import LEAST, Lasting, Offsets
from kernelwright.judge.verify import Checker
from kernelwright.task import Contract

Law = Callable[[torch.Tensor], torch.Tensor]


def rows(x: torch.Tensor) -> torch.Tensor:
    """Half of the rows are dropped."""
    return x * (torch.rand(len(x), 1) < 0.5) * 2.0


def last(x: torch.Tensor) -> torch.Tensor:
    """The same, and the last four in every call."""
    kept = torch.rand(len(x), 1) < 0.5
    kept[-4:] = False
    return x * kept * 2.0


def told(answers: Law, calls: int, law: Law = rows) -> list[str]:
    """What is said of one program's calls, each on inputs of its own, until it is refused."""
    program, found = draws.Draws(), list[str]()
    with seeded(5):
        for _ in range(calls):
            x = torch.randn(64, 32)
            runs = [law(x) for _ in range(distribution.RUNS + distribution.HELD_OUT)]
            found.append(program.told(0, answers(x), runs))
            if found[-1]:
                break
    return found


def test_last_rows_that_are_dropped_in_every_call_are_seen_after_some() -> None:
    """One of 16 honest calls drops the last four."""
    found = told(last, 60)
    assert LEAST <= len(found) < 40
    assert "the same slices are drawn otherwise in all calls" in found[-1]


@pytest.mark.parametrize(
    "answers", [rows, lambda x: torch.stack([a * 2.0 if torch.rand(()) < 0.5 else a * 0.0 for a in x])]
)
def test_rows_that_are_dropped_by_chance_are_not(answers: Law) -> None:
    assert [""] * 40 == told(answers, 40)


def test_results_of_another_shape_begin_anew() -> None:
    lasting = Lasting()

    def off(size: int) -> Offsets:
        return Offsets(torch.full((size,), 4.0), torch.arange(size), size)

    assert "" == "".join(lasting.told(off(3)) for _ in range(LEAST - 1))
    assert "" == "".join(lasting.told(off(4)) for _ in range(LEAST - 1))
    assert "off over 8" in lasting.told(off(4))
    assert "" == lasting.told(off(0))


@pytest.mark.parametrize("other", [None, lambda v: v.__setitem__(-1, v[-1] * 1.5), lambda v: v[-3:].zero_()])
def test_rows_of_large_results_are_remembered_by_their_place(other: Callable[[torch.Tensor], None] | None) -> None:
    """Of 256 rows some are looked at in each call: the last has more noise, or the last three are zero."""
    program, found = draws.Draws(), list[str]()
    with seeded(5):
        for _ in range(48):
            mine, *runs = torch.randn(37, 256, 160)
            if other is not None:
                other(mine)
            found.append(program.told(0, mine, runs))
            if found[-1]:
                break
    assert bool(found[-1]) is (other is not None)


def test_a_decoy_is_judged_by_its_own_calls_alone() -> None:
    """Calls of others that are as chance has them would excuse it, and the numbers of eager's run are theirs too."""
    made = instance("F.dropout(x, 0.5)", "[torch.randn(64, 32)]", contract=Contract(random=True))
    bar = _Bar(made, Checker(made, seed=1), 1, None)
    assert bar.drawn_by("one") is bar.drawn_by("one") is not bar.drawn_by("other")
