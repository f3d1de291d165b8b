# SPDX-License-Identifier: Apache-2.0
"""Replies that hold edits instead of whole files, although whole files were asked for: applied where they fit."""

from __future__ import annotations

import re

SEARCH = re.compile(r"^<{5,}[^\n]*\n(.*?)^={5,}[^\n]*\n(.*?)^>{5,}[^\n]*$", re.M | re.S)
HUNK = re.compile(r"^@@[^\n]*$", re.M)


def is_edit(text: str) -> bool:
    """Whether a block is a set of edits: SEARCH/REPLACE pairs or a unified diff."""
    return bool(SEARCH.search(text)) or bool(HUNK.search(text) and re.search(r"^[+-](?![+-])", text, re.M))


def applied(text: str, sources: dict[str, str], name: str = "") -> dict[str, str] | None:
    """``sources`` after every edit of ``text``; None where one fits in no file, or in more than one place.

    ``name``: the file the block names, tried before the others."""
    edits = _pairs(text)
    if not edits:
        return None
    made = dict(sources)
    order = sorted(made, key=lambda path: (path != name, path))
    for old, new in edits:
        path = next((path for path in order if _places(made[path], old) == 1), None)
        if path is None:
            return None
        made[path] = _replaced(made[path], old, new)
    return made


def _pairs(text: str) -> list[tuple[list[str], list[str]]]:
    """(lines before, lines after) of every edit."""
    found = [(old.splitlines(), new.splitlines()) for old, new in SEARCH.findall(text)]
    if found:
        return found
    for hunk in HUNK.split(text)[1:]:
        before, after = [], []
        for line in hunk.strip("\n").splitlines():
            if line.startswith(("--- ", "+++ ", "diff ", "index ", "\\ ")):
                continue
            if not line.startswith("+"):
                before.append(line[1:] if line[:1] in ("-", " ") else line)
            if not line.startswith("-"):
                after.append(line[1:] if line[:1] in ("+", " ") else line)
        if before and before != after:
            found.append((before, after))
    return found


def _places(text: str, old: list[str]) -> int:
    return len(_starts(text.splitlines(), old)) if any(line.strip() for line in old) else 0


def _starts(lines: list[str], old: list[str]) -> list[int]:
    wanted = [line.rstrip() for line in old]
    bare = [line.rstrip() for line in lines]
    return [at for at in range(len(bare) - len(wanted) + 1) if bare[at : at + len(wanted)] == wanted]


def _replaced(text: str, old: list[str], new: list[str]) -> str:
    lines = text.splitlines()
    at = _starts(lines, old)[0]
    return "\n".join([*lines[:at], *new, *lines[at + len(old) :]]) + "\n"
