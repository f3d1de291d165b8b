# SPDX-License-Identifier: Apache-2.0
"""Who may use the device now: builds share it, timing has it alone, within this judge and between judges."""

from __future__ import annotations

import contextlib
import fcntl
import os
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from kernelwright.errors import DeviceLost

PATIENCE_SECONDS = 600.0


class Lease:
    """``shared()`` around work that disturbs timings (compiling), ``alone()`` around timed windows.

    Within one judge a waiting ``alone`` keeps new ``shared`` work from starting, so it is served after what already
    runs. Between judges of one device an advisory file lock makes timed windows take turns; the kernel drops it
    when a judge dies.
    """

    def __init__(self, device: str, folder: Path | None = None) -> None:
        name = f"kernelwright-{device.replace(':', '')}.lock"
        self.path = (folder or Path(tempfile.gettempdir())) / name
        self._turn = threading.Condition()
        self._sharing = 0
        self._alone = False
        self.apart = ""
        """Why judges of this device cannot take turns, where they cannot."""
        self._hush: Callable[[], contextlib.AbstractContextManager[None]] = contextlib.nullcontext

    def while_alone(self, hush: Callable[[], contextlib.AbstractContextManager[None]]) -> None:
        """Enter ``hush()`` around every ``alone``: where background work is frozen instead of waited for."""
        self._hush = hush

    @contextlib.contextmanager
    def shared(self) -> Iterator[None]:
        """Hold a share: any number at once, none while somebody is alone."""
        with self._turn:
            self._turn.wait_for(lambda: not self._alone)
            self._sharing += 1
        try:
            yield
        finally:
            with self._turn:
                self._sharing -= 1
                self._turn.notify_all()

    @contextlib.contextmanager
    def alone(self) -> Iterator[None]:
        """Hold the device alone. Raises DeviceLost when another judge does not let go within ten minutes."""
        with self._turn:
            self._turn.wait_for(lambda: not self._alone)
            self._alone = True
            self._turn.wait_for(lambda: self._sharing == 0)
        try:
            with self._hush(), self._file_lock():
                yield
        finally:
            with self._turn:
                self._alone = False
                self._turn.notify_all()

    @contextlib.contextmanager
    def _file_lock(self) -> Iterator[None]:
        handle = _lock_file(self.path)
        if handle is None:  # no temporary folder, or a file nobody may read: this judge still takes turns by thread
            self.apart = f"{self.path} cannot be opened, so another judge on this device is not kept out"
            yield
            return
        try:
            deadline = time.monotonic() + PATIENCE_SECONDS
            while not _try_lock(handle):
                if time.monotonic() > deadline:
                    raise DeviceLost(
                        "The device stayed busy",
                        f"another judge has held {self.path} for {PATIENCE_SECONDS:.0f} s",
                        "a judge that lets go between windows",
                        "end the other judge",
                    )
                time.sleep(0.005)
            yield
        finally:
            os.close(handle)


def _lock_file(path: Path) -> int | None:
    """The file opened; one that another user made is only read, which is enough to lock it."""
    flags = os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW
    for more in (0, os.O_CREAT):  # in a folder like /tmp the kernel refuses O_CREAT on other users' files
        try:
            return os.open(path, flags | more, 0o644)
        except OSError:
            continue
    return None


def _try_lock(handle: int) -> bool:
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
