# SPDX-License-Identifier: Apache-2.0
"""judge/standing.py: what is frozen while somebody is timed is excused for as long, and nobody else is."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any, cast

from kernelwright.judge import standing
from kernelwright.judge.bench import Bench
from kernelwright.judge.entrants import Entrants
from kernelwright.judge.programs import Programs


def test_only_what_compiles_in_the_background_is_excused() -> None:
    """A baseline that warms, the primer and what loads, from before they are frozen until after; one that is raced must
    answer."""
    order: list[str] = []

    def program(name: str) -> Any:  # noqa: ANN401 - as much of a program as is asked for
        @contextlib.contextmanager
        def excused() -> Iterator[None]:
            order.append(f"{name} excused")
            yield
            order.append(f"{name} has to answer")

        return SimpleNamespace(leash=SimpleNamespace(excused=excused))

    @contextlib.contextmanager
    def freeze(others: list[tuple[threading.Thread, Any]]) -> Iterator[None]:
        order.append(f"frozen, {len(others)} beside baselines")
        yield
        order.append("going on")

    release = threading.Event()
    warming = threading.Thread(target=release.wait, daemon=True)
    warming.start()
    entrants = {
        "compile": SimpleNamespace(warming=warming, program=program("compile")),
        "not started": SimpleNamespace(warming=warming, program=None),
        "warm": SimpleNamespace(warming=threading.Thread(), program=program("warm")),
        "eager": SimpleNamespace(warming=None, program=program("eager")),
    }
    benches = {("task", "cpu"): cast(Bench, SimpleNamespace(entrants=entrants))}
    background = [(warming, program("primer")), (warming, program("what loads"))]
    programs = cast(Programs, SimpleNamespace(in_background=lambda: background))
    with standing.hushed(cast(Entrants, SimpleNamespace(hushed=freeze)), programs, benches):
        order.append("timed")
    release.set()
    names = ["primer", "what loads", "compile"]
    excused, answering = [[f"{name} {word}" for name in names] for word in ("excused", "has to answer")]
    assert [*excused, "frozen, 2 beside baselines", "timed", "going on", *answering[::-1]] == order
