# SPDX-License-Identifier: Apache-2.0
"""Compilers' folders that outlive a judge: what one that was killed had half written is removed before the next.

torch's compiler lets g++ write a shared object where it will lie. Killed over it, it left an empty one, and whoever
compiled the same program afterwards failed on it ("file too short"): the baseline was missing from every later proof of
that task, which then read 15 times faster than eager and nothing of torch.compile.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import secrets
from collections.abc import Iterator
from pathlib import Path

from kernelwright.sandbox.lease import try_lock

WRITTEN_IN_PLACE = (".so", ".o", ".gch", ".pch")
"""Everything else appears under its name by a rename, when it is whole."""


@contextlib.contextmanager
def written(folder: Path | None) -> Iterator[None]:
    """While the block runs, ``folder`` is written to. A mark beside it, held by a lock that dies with this process,
    says so until the block ended well; a mark that nobody holds is of one that did not."""
    if folder is None:
        yield
        return
    folder.parent.mkdir(parents=True, exist_ok=True)
    with _locked(folder.with_name(f"{folder.name}.marks")):
        _mend(folder)
        mark = folder.with_name(f"{folder.name}.mark-{secrets.token_hex(8)}")
        held = os.open(mark, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
        fcntl.flock(held, fcntl.LOCK_EX)
    try:
        yield
        mark.unlink(missing_ok=True)
    finally:
        os.close(held)


@contextlib.contextmanager
def _locked(path: Path) -> Iterator[None]:
    handle = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)


def _mend(folder: Path) -> None:
    """Remove what writers that were ended may have left half written; not while another writes."""
    marks = sorted(folder.parent.glob(f"{folder.name}.mark-*"))
    if not marks or any(map(_is_held, marks)):
        return
    since = min(mark.stat().st_mtime for mark in marks)
    for path in folder.rglob("*"):
        if path.suffix in WRITTEN_IN_PLACE and path.stat().st_mtime >= since - 1.0:
            path.unlink(missing_ok=True)
    for mark in marks:
        mark.unlink(missing_ok=True)


def _is_held(mark: Path) -> bool:
    handle = os.open(mark, os.O_RDWR)
    try:
        return not try_lock(handle, fcntl.LOCK_EX)
    finally:
        os.close(handle)
