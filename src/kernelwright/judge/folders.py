# SPDX-License-Identifier: Apache-2.0
"""Folders that untrusted programs wrote to: removed, or made fit to be copied, whatever was built in them.

A program may nest folders deeper than a path can name or Python can recurse, and take its own rights to them away.
All programs that could write there have ended. Nothing here follows a link or recurses.
"""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterator
from pathlib import Path

DEEPEST, MOST_FILES = 32, 1 << 16
"""Nesting and entries of what a compiler leaves, with room; beyond them a folder is not looked through."""


def removed(folder: Path) -> bool:
    """Remove ``folder`` and all below it; False where something is left of it."""
    waiting = [folder]
    try:
        while waiting:
            here = waiting.pop()
            for entry in _entries(here):
                if not entry.is_dir(follow_symlinks=False):
                    os.unlink(entry.path)
                    continue
                os.chmod(entry.path, 0o700)  # or it cannot be moved
                waiting.append(folder.with_name(f".gone-{uuid.uuid4().hex}"))
                os.rename(entry.path, waiting[-1])  # beside the first: however deep it was, its path stays short
            os.rmdir(here)
    except OSError:
        return not os.path.lexists(folder)
    return True


def _entries(folder: Path) -> list[os.DirEntry[str]]:
    os.chmod(folder, 0o700)
    with os.scandir(folder) as entries:
        return list(entries)


def settled(folder: Path) -> int | None:
    """Bytes below ``folder``, its links and odd files removed and the rest readable; None where it is too deep, too
    full, or cannot be looked through."""
    size = 0
    try:
        for count, entry in enumerate(_walk(folder)):
            if count >= MOST_FILES:
                return None
            if not entry.is_file(follow_symlinks=False):
                os.unlink(entry.path)
                continue
            found = entry.stat(follow_symlinks=False)
            os.chmod(entry.path, 0o600 | found.st_mode & 0o777)
            size += found.st_size
    except (OSError, RecursionError):
        return None
    return size


def _walk(folder: Path) -> Iterator[os.DirEntry[str]]:
    """Everything below that is no folder. Raises RecursionError beyond DEEPEST."""
    waiting = [(folder, 0)]
    while waiting:
        here, depth = waiting.pop()
        if depth > DEEPEST:
            raise RecursionError
        for entry in _entries(here):
            if entry.is_dir(follow_symlinks=False):
                waiting.append((Path(entry.path), depth + 1))
            else:
                yield entry
