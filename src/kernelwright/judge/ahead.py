# SPDX-License-Identifier: Apache-2.0
"""Programs one after the other, the next one started and loaded while the caller works with the one before."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Generator, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

from kernelwright.judge.program import Program

T = TypeVar("T")


def each(
    items: Sequence[T], start: Callable[[T], Program], early: Callable[[T], bool]
) -> Generator[tuple[T, Program], None, None]:
    """Each item with the program that ``start`` makes of it, closed when the next is asked for.

    Where ``early`` says so a program is started before its turn, in a thread of its own; what that raises is raised
    when its turn comes, and never where the caller is done before. Close the iterator: that closes the programs.
    """
    coming: Future[Program] | None = None
    with ThreadPoolExecutor(1) as beside:
        try:
            for number, item in enumerate(items):
                program = start(item) if coming is None else coming.result()
                coming = None
                with program:
                    if number + 1 < len(items) and early(items[number + 1]):
                        coming = beside.submit(start, items[number + 1])
                    yield item, program
        finally:
            if coming is not None and coming.exception() is None:
                coming.result().close()


class Ahead:
    """Programs of one kind, the next of which may be begun in a thread before it is asked for."""

    def __init__(self, start: Callable[[], Program]) -> None:
        self._start = start
        self._beside = ThreadPoolExecutor(1)
        self._coming: Future[Program] | None = None
        self._ending: Future[None] | None = None
        self._begun = 0

    def begin(self) -> None:
        """Start the next one now."""
        self._begun += 1
        self._coming = self._beside.submit(self._start)

    def take(self) -> Program:
        """The next program; raises what starting it raises."""
        coming, self._coming = self._coming, None
        return self._start() if coming is None else coming.result()

    @contextlib.contextmanager
    def turn(self) -> Iterator[Program]:
        """The next program, ended afterwards: in the thread, after what was begun there, where something was.

        On an H200 the end of a process takes 74 ms, in which the next one can be asked its first questions; ``rest``
        before that one is timed.
        """
        program = self.take()
        begun = self._begun
        try:
            yield program
        finally:
            if self._begun > begun:
                self._ending = self._beside.submit(program.close)
            else:
                program.close()

    def rest(self) -> None:
        """Wait until what was to end has ended; raises what ending it raised."""
        ending, self._ending = self._ending, None
        if ending is not None:
            ending.result()

    def close(self) -> None:
        """End what was begun and not taken."""
        if self._coming is not None and self._coming.exception() is None:
            self._coming.result().close()
        self._beside.shutdown()
        self.rest()
