# SPDX-License-Identifier: Apache-2.0
"""Programs started before their turn: in order, all closed, and failures heard when their turn comes."""

from __future__ import annotations

import contextlib
import threading
from typing import Any

import pytest

from kernelwright.judge import ahead
from kernelwright.judge.leash import ChildFailure


class _Started:
    """Stands for a program: remembers who started it, and that it was closed."""

    def __init__(self, item: int) -> None:
        if item < 0:
            raise ChildFailure("load", f"no program {item}")
        self.item, self.thread, self.open = item, threading.current_thread(), True

    def close(self) -> None:
        self.open = False

    def __enter__(self) -> _Started:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class _Starts:
    def __init__(self) -> None:
        self.made: list[_Started] = []
        self.second = threading.Event()

    def __call__(self, item: int) -> Any:
        program = _Started(item)
        self.made.append(program)
        if len(self.made) == 2:
            self.second.set()
        return program


def test_the_next_one_is_started_while_the_first_is_used_and_each_is_closed_in_its_turn() -> None:
    starts, seen = _Starts(), []
    with contextlib.closing(ahead.each([1, 2, 3], starts, lambda item: True)) as programs:
        for item, program in programs:
            assert starts.second.wait(10), "nothing was started ahead"
            assert program.item == item and program.open
            assert [other.open for other in starts.made[: item - 1]] == [False] * (item - 1)
            seen.append(item)
    assert seen == [1, 2, 3]
    assert not any(program.open for program in starts.made)
    assert starts.made[1].thread is not threading.current_thread()


def test_one_that_may_not_be_started_early_waits_for_its_turn() -> None:
    starts = _Starts()
    with contextlib.closing(ahead.each([1, 2], starts, lambda item: False)) as programs:
        next(programs)
        assert not starts.second.wait(0.2)
        next(programs)
    assert {program.thread for program in starts.made} == {threading.current_thread()}


def test_a_failure_to_start_is_heard_at_its_turn_and_not_before() -> None:
    starts = _Starts()
    with contextlib.closing(ahead.each([1, -2], starts, lambda item: True)) as programs:
        assert next(programs)[0] == 1
        with pytest.raises(ChildFailure, match="no program -2"):
            next(programs)
    assert not starts.made[0].open


def test_a_caller_who_fails_leaves_no_program_behind_and_hears_of_its_own_failure_only() -> None:
    for second in (2, -2):
        starts = _Starts()
        with (
            pytest.raises(ValueError, match="mine"),
            contextlib.closing(ahead.each([1, second, 3], starts, lambda item: True)) as programs,
        ):
            next(programs)
            raise ValueError("mine")
        assert not any(program.open for program in starts.made)
        assert [program.item for program in starts.made] in ([1], [1, 2])


def test_what_was_begun_is_taken_or_closed_and_its_failure_heard_when_taken() -> None:
    """The first is started when asked for, the second in another thread before; a third that nobody takes is closed."""
    items = iter([1, 2, -3, 4])
    made: list[_Started] = []

    def start() -> Any:
        made.append(_Started(next(items)))
        return made[-1]

    programs = ahead.Ahead(start)
    here = threading.current_thread()
    assert programs.take().thread is here
    programs.begin()
    assert programs.take().thread is not here
    programs.begin()
    with pytest.raises(ChildFailure, match="no program -3"):
        programs.take()
    programs.begin()
    programs.close()
    assert [(one.item, one.open) for one in made] == [(1, True), (2, True), (4, False)]


def test_a_program_ends_beside_the_next_one_where_that_was_begun_and_before_it_is_timed() -> None:
    """In the other thread, so that the caller goes on; ``rest`` waits for it. Without a next one it ends at once."""
    made: list[_Started] = []
    ended = threading.Event()

    class Slow(_Started):
        def close(self) -> None:
            here = threading.current_thread() is threading.main_thread()
            assert here or ended.wait(60), "nobody waited for the end of the first"
            super().close()

    def start() -> Any:
        made.append(Slow(len(made)))
        return made[-1]

    programs = ahead.Ahead(start)
    with programs.turn():
        programs.begin()
    with programs.turn():
        assert [True, True] == [one.open for one in made]
        ended.set()
        programs.rest()
        assert [False, True] == [one.open for one in made]
    assert [False, False] == [one.open for one in made]
    programs.close()
