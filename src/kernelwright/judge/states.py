# SPDX-License-Identifier: Apache-2.0
"""What the kernel says of threads, a file of /proc each, kept open."""

from __future__ import annotations

import os

MOST_OPEN = 128
"""Files of one program's threads that stay open."""


class States:
    """States of threads by their files, which stay open: opening them was most of what it took to see a program stand
    still, and that 8 of the 225 s that ten proofs took on two cores."""

    def __init__(self) -> None:
        self._open: dict[str, int] = {}

    def of(self, path: str) -> bytes:
        """One letter of a stat file; ``X`` where the thread is gone."""
        text = self._read(path)
        return b"X" if text is None else self._kept(path, _letter(text))

    def waits(self, path: str) -> bool | None:
        """Whether a thread is off its CPU and not in the queue for one, by its wchan file; None where it is gone.

        Also False where the kernel does not say where threads wait, or not to us.
        """
        text = self._read(path)
        return None if text is None else text not in (b"0", b"")

    def _read(self, path: str) -> bytes | None:
        known = self._open.get(path)
        if known is not None:
            try:
                return os.pread(known, 512, 0)
            except OSError:  # it is gone, but another one may be called as it was
                os.close(self._open.pop(path))
        try:
            file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        except OSError:
            return None
        try:
            found = os.pread(file, 512, 0)
        except OSError:
            os.close(file)
            return None
        if len(self._open) >= MOST_OPEN:
            os.close(file)
        else:
            self._open[path] = file
        return found

    def _kept(self, path: str, letter: bytes) -> bytes:
        if letter == b"X" and path in self._open:
            os.close(self._open.pop(path))
        return letter

    def close(self) -> None:
        """Close them all."""
        while self._open:
            os.close(self._open.popitem()[1])


def _letter(text: bytes) -> bytes:
    return text.rpartition(b")")[2].split(None, 1)[0] if b")" in text else b"X"
