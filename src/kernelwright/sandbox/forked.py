# SPDX-License-Identifier: Apache-2.0
"""Work in a fork of this process, for a core that else would idle: it has at once what is known here, where a new
process would import torch for 3 s.

A fork has one thread, whatever other threads held when it began stays held, and what runs in threads of a library may
wait for ever. So what it cannot do is left to who forked.
"""

from __future__ import annotations

import contextlib
import gc
import os
import pickle
import select
import signal
import time
import warnings
from collections.abc import Callable
from typing import Generic, TypeVar

from kernelwright.sandbox.kernel import die_with_parent

T = TypeVar("T")

PATIENCE, PATIENCE_S = 4.0, 30.0
"""How long a result is waited for beyond the time that its fork already had: so many times that, and so many
seconds."""


class Fork(Generic[T]):
    """``work`` in a fork of this process, begun at once. ``relayed``: errors of it that are raised here; where it
    raises another one, or dies, there is no result."""

    def __init__(self, work: Callable[[], T], relayed: tuple[type[Exception], ...]) -> None:
        self._began = time.monotonic()
        self._result: T | None = None
        self._error: Exception | None = None
        parent = os.getpid()
        self._pipe, inside = os.pipe()
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", DeprecationWarning)  # that threads are not there: they are not asked
                self._pid = os.fork()
        except OSError:
            os.close(self._pipe)
            os.close(inside)
            raise
        if self._pid == 0:
            _live(work, relayed, inside, parent)
        os.close(inside)

    def glance(self) -> None:
        """Raise what it raised, where it has ended already."""
        if self._pid and select.select([self._pipe], [], [], 0.0)[0]:
            self._hear()
        if self._error is not None:
            raise self._error

    def result(self) -> T | None:
        """What ``work`` gave, None where nothing came of it. Raises what is relayed."""
        left = PATIENCE_S + PATIENCE * (time.monotonic() - self._began)
        if self._pid and select.select([self._pipe], [], [], left)[0]:
            self._hear()
        self.close()
        if self._error is not None:
            raise self._error
        return self._result

    def close(self) -> None:
        """End it, and its programs. Safe to call twice."""
        if self._pid:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self._pid, signal.SIGKILL)
            with contextlib.suppress(ChildProcessError):
                os.waitpid(self._pid, 0)
            os.close(self._pipe)
            self._pid = 0

    def _hear(self) -> None:
        with open(self._pipe, "rb", closefd=False) as said:
            body = said.read()
        self.close()
        with contextlib.suppress(EOFError, pickle.UnpicklingError):
            self._result, self._error = pickle.loads(body)


def _live(work: Callable[[], T], relayed: tuple[type[Exception], ...], pipe: int, parent: int) -> None:
    """The life of a fork; ends the process."""
    try:
        die_with_parent()
        if os.getppid() != parent:
            return
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # who forked ends it
        gc.disable()  # what is garbage there must not be touched, and so copied, here
        said: tuple[T | None, Exception | None]
        try:
            said = work(), None
        except relayed as error:
            said = None, error
        with open(pipe, "wb") as out:
            out.write(pickle.dumps(said))
    finally:
        os._exit(0)
