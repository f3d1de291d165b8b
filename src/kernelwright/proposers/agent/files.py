# SPDX-License-Identifier: Apache-2.0
"""Files in a reply that come as JSON, as the tools of coding agents take them: ``{"path": ..., "content": ...}``."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator

from kernelwright.proposers.agent.fences import NAME, Block
from kernelwright.proposers.agent.talk import objects

PLACES = ("path", "file_path", "filepath", "filename", "file", "name")
TEXTS = ("content", "contents", "file_text", "code", "source", "text")
MODULE = re.compile(r"^class\s+\w+\s*\(\s*(?:torch\.)?(?:nn\.)?Module\s*\)", re.M)
DEEPEST = 8
"""Levels of objects inside objects that are looked at; a call of a tool in OpenAI's form has five."""


def files_in(text: str) -> list[Block]:
    """Every file that a JSON object in ``text`` names and holds, in order; arguments of a call may be text of JSON.

    ``{"path": ..., "content": ...}``, ``{"kernel.py": ...}``, or ``{"code": ...}`` where that holds a module."""
    return [block for value in objects(text) for block in _files(value, DEEPEST)]


def _files(value: object, depth: int) -> Iterator[Block]:
    if isinstance(value, str) and value.lstrip().startswith(("{", "[")):
        try:
            value = json.loads(value, strict=False)
        except (ValueError, RecursionError):
            return
    if depth == 0 or not isinstance(value, dict | list):
        return
    if isinstance(value, dict):
        found = _one(value)
        if found is not None:
            yield found
            return
        named = [(name, text) for name, text in value.items() if isinstance(text, str) and _is_file(name)]
        yield from (_block(name, text) for name, text in named)
        alone = [value[key] for key in TEXTS if isinstance(value.get(key), str)]
        if not named and len(alone) == 1 and MODULE.search(alone[0]) and "```" not in alone[0]:
            yield _block("kernel.py", alone[0])
            return
    for item in value.values() if isinstance(value, dict) else value:
        yield from _files(item, depth - 1)


def _one(value: dict[str, object]) -> Block | None:
    """The file that an object is by itself."""
    path = next((value[key] for key in PLACES if isinstance(value.get(key), str)), None)
    body = next((value[key] for key in TEXTS if isinstance(value.get(key), str)), None)
    return _block(path, body) if isinstance(path, str) and isinstance(body, str) and _is_file(path) else None


def _is_file(path: str) -> bool:
    return bool(NAME.fullmatch(path.rpartition("/")[2]))


def _block(path: str, body: str) -> Block:
    return Block(path.rpartition("/")[2], "", body if body.endswith("\n") else body + "\n")
