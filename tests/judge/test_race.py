# SPDX-License-Identifier: Apache-2.0
"""The order of things in a round on a device: what a program has seen before the window that counts."""

from __future__ import annotations

import itertools
import random
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from kernelwright.judge import measure, race


def test_windows_of_one_call_never_see_the_inputs_that_count(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every program runs one, on other inputs, which are replaced before the timed window begins."""
    numbers, log = itertools.count(), []
    written = lambda buffers, index, leaves, settle: log.append(("fill", buffers, index, leaves, settle))  # noqa: E731
    monkeypatch.setattr(race, "fill", written)
    monkeypatch.setattr(measure, "run_empty", lambda lane, grad: log.append(("empty", lane)))
    monkeypatch.setattr(measure, "run_single", lambda lane, grad: log.append(("single", lane)))
    monkeypatch.setattr(measure, "run_window", lambda lane, order, grad, keep: log.append(("window", lane)))
    program = SimpleNamespace(window=lambda order, grad: None)
    racers = [SimpleNamespace(name=name, lane=name, buffers=name, program=program) for name in ("eager", "mine")]
    plan: Any = SimpleNamespace(sets=3)
    nothing: Any = SimpleNamespace(look=lambda *_: None, walk=lambda: None)
    contest = race.Race(
        racers=racers, plan=plan, draw=lambda: next(numbers), draw_state=None, state=None, dice=random.Random(1),
        grad=False, checks=nothing, look=lambda window: None, left=None, threads=torch.get_num_threads(),
        device=torch.device("cpu"), again=False, clocks=nothing, odd=nothing,
    )  # fmt: skip
    contest._cold, contest._singles, contest._steady, contest._held, contest._odd = (
        nothing,
        True,
        nothing,
        -1,
        frozenset(),
    )
    contest._round(0)
    for name in ("eager", "mine"):
        mine = [entry for entry in log if entry[1] == name]
        kinds = [entry[0] for entry in mine]
        assert ["empty", "fill", "single", *["fill"] * 3, "window"] == kinds
        before, after = ({entry[3] for entry in part} for part in (mine[1:2], mine[3:6]))
        assert before.isdisjoint(after)
        assert 3 == len(after)
        assert mine[1][4] and mine[5][4], "a device may still be writing when the window begins"
