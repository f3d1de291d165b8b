# SPDX-License-Identifier: Apache-2.0
"""Modules that lie beside a task's files: put where a process can import them, only while that task has its turn.

One process looks at several tasks, and two projects may each have a ``layers.py``: under one name in ``sys.modules``
the second would get the first one's. Functions of a reference import when they are called, too.
"""

from __future__ import annotations

import hashlib
import os
import sys
import tempfile
import types
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import ClassVar


def placed(files: Sequence[tuple[str, str]], root: Path) -> tuple[str, ...]:
    """The folder under ``root`` that holds these texts and nothing else, made where it is missing; none for no files.

    Its name is their digest, so it is never written twice; others may do so at the same time.
    """
    if not files:
        return ()
    folder = root / hashlib.sha256(repr(list(files)).encode()).hexdigest()[:16]
    if not folder.is_dir():
        root.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=root, prefix=".new-") as fresh:
            write(files, Path(fresh) / "whole")
            try:
                os.rename(Path(fresh) / "whole", folder)
            except OSError:
                if not folder.is_dir():
                    raise
    return (str(folder),)


def write(files: Sequence[tuple[str, str]], folder: Path) -> None:
    """Each text to its path in ``folder``, with the line ends it has, readable by anybody."""
    for name, text in files:
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(text.encode("utf-8"))
        path.chmod(0o644)
    for path in (folder, *folder.rglob("*/")):
        path.chmod(0o755)


def tells(folder: Path) -> bool:
    """Whether programs under judgement must not read a folder: a whole home, or where cases and decoys lie."""
    depths = ("", "*/", "*/*/", "*/*/*/")
    return Path.home().is_relative_to(folder) or any(any(folder.glob(f"{depth}task.toml")) for depth in depths)


class Neighbours:
    """Of one task; ``folders`` are its imports. One has its turn at a time; not for several threads."""

    _in_turn: ClassVar[Neighbours | None] = None

    def __init__(self, folders: Sequence[str]) -> None:
        self._folders = tuple(folders)
        self._places = {os.path.realpath(folder) for folder in folders}
        self._modules: dict[str, types.ModuleType] = {}
        self._before: frozenset[str] = frozenset()
        self._added: list[str] = []

    def enter(self) -> None:
        """Put this task's modules where imports look, in place of those of the task before, and its folders last."""
        other = Neighbours._in_turn
        if other is self:
            return
        if other is not None:
            other._leave()
        self._before = frozenset(sys.modules)
        sys.modules.update(self._modules)
        self._added = [folder for folder in self._folders if folder not in sys.path]
        sys.path += self._added
        Neighbours._in_turn = self

    @contextmanager
    def turn(self) -> Iterator[None]:
        """``enter``, and back to whose turn it was."""
        before = Neighbours._in_turn
        self.enter()
        try:
            yield
        finally:
            if before is None:
                self._leave()
            else:
                before.enter()

    def _leave(self) -> None:
        """Take away what was imported from these folders meanwhile, and keep it for the next turn."""
        names = [name for name in sys.modules if name not in self._before and self._beside(name.partition(".")[0])]
        self._modules = {name: sys.modules.pop(name) for name in names}
        sys.path[:] = [folder for folder in sys.path if folder not in self._added]
        Neighbours._in_turn = None

    def _beside(self, top: str) -> bool:
        """Whether a module (or the package around it) lies directly in one of the folders; this package never does."""
        module = sys.modules.get(top)
        file = getattr(module, "__file__", None)
        if file and os.path.basename(file) != "__init__.py":
            places = [file]
        else:
            places = [*getattr(module, "__path__", ())]  # without __init__.py there is no file
        held = {os.path.realpath(os.path.dirname(place)) for place in places}
        return top != "kernelwright" and bool(held & self._places)
