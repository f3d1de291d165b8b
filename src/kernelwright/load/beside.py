# SPDX-License-Identifier: Apache-2.0
"""The modules of a user's own that a reference imports, as texts: with them a task is whole without its folder.

Candidates import them too (most embed the reference), and must not read a folder that holds a task's cases and decoys.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from pathlib import Path

from kernelwright.errors import TaskError
from kernelwright.load.source import imported_modules
from kernelwright.neighbours import tells

MOST_FILES, MOST_BYTES = 200, 1 << 20
"""A task travels whole with every request, so a library beside a reference is imported from where it lies."""
_NEEDS_ITS_PLACE = re.compile(r"__file__|__path__|\bpkgutil\b|importlib\.resources|importlib\.util")
_COMPILED = (".so", ".pyd", ".dll", ".dylib")

Files = tuple[tuple[str, str], ...]


class _Stay(Exception):
    """These modules can be imported from their own folder only; the message says why."""


def carried(folders: Sequence[str], text: str) -> tuple[Files, tuple[str, ...]]:
    """(modules that ``text`` imports from ``folders`` as path and text, however deep; the folders still needed).

    One of the two is empty: modules that look at where they lie, compiled ones, and too many of them stay where they
    are. Raises TaskError where they then could not be read, and where the task's own decoys are among them.
    """
    if not folders:
        return (), ()
    try:
        found = _closure([Path(folder) for folder in folders], text)
    except _Stay as reason:
        hidden = [folder for folder in folders if tells(Path(folder))]
        if not hidden:
            return (), tuple(folders)
        raise TaskError(
            "The reference imports modules that programs under judgement could not.",
            got=f"{reason}, in {hidden[0]}, which holds task folders or a home",
            expected="modules that are Python text alone, or a folder of their own with no task.toml at or below it",
            what_next="write what they read into them, or move them to a package that is installed",
        ) from None
    if "decoys.py" in found:
        raise TaskError(
            "The reference imports the task's decoys.",
            got="decoys.py among its modules",
            expected="decoys that nothing else needs: programs under judgement may read what the reference imports",
            what_next="move what both need to another file",
        )
    return tuple(sorted(found.items())), ()


def _closure(folders: Sequence[Path], text: str) -> dict[str, str]:
    found: dict[str, str] = {}
    size = 0
    waiting = [text]
    while waiting:
        for name in sorted(_imported(waiting.pop())):
            for path, module in _modules(folders, name):
                if path in found:
                    continue
                found[path] = _read(module)
                size += len(found[path])
                if len(found) > MOST_FILES or size > MOST_BYTES:
                    raise _Stay(f"over {MOST_FILES} files or {MOST_BYTES >> 20} MiB of them")
                waiting.append(found[path])
    return found


def _imported(text: str) -> set[str]:
    try:
        return imported_modules(text)
    except (SyntaxError, ValueError):
        return set()  # executing it says so, with its line


def _modules(folders: Iterable[Path], name: str) -> list[tuple[str, Path]]:
    """(path from the folder, file) of a module or of all that a package holds, from the first folder that has it."""
    for folder in folders:
        if (folder / name).is_dir():
            parts = [path for path in sorted((folder / name).rglob("*")) if path.is_file()]
            compiled = [path for path in parts if path.suffix in _COMPILED]
            if compiled:
                raise _Stay(f"{compiled[0].name}, which is compiled")
            parts = [path for path in parts if path.suffix == ".py"]
            if parts:
                return [(path.relative_to(folder).as_posix(), path) for path in parts]
        if (folder / f"{name}.py").is_file():
            return [(f"{name}.py", folder / f"{name}.py")]
    return []


def _read(path: Path) -> str:
    try:
        text = path.read_bytes().decode("utf-8")  # with its line ends: what is exported has the same bytes
    except UnicodeDecodeError:
        raise _Stay(f"{path.name}, which is not UTF-8") from None
    except OSError as error:
        raise TaskError(
            "A module that the reference imports cannot be read.", got=str(error), expected="a readable file"
        ) from error
    looks = _NEEDS_ITS_PLACE.search(text)
    if looks:
        raise _Stay(f"{path.name}, which looks at where it lies ({looks[0]})")
    return text
