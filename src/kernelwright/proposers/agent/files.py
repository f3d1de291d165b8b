# SPDX-License-Identifier: Apache-2.0
"""Files in a reply that come as JSON, as the tools of coding agents take them: ``{"path": ..., "content": ...}``."""

from __future__ import annotations

import json
from collections.abc import Iterator

from kernelwright.proposers.agent.fences import NAME, Block
from kernelwright.proposers.agent.talk import objects

PLACES = ("path", "file_path", "filepath", "filename", "file", "name")
TEXTS = ("content", "contents", "file_text", "code", "source", "text")
DEEPEST = 8
"""Levels of objects inside objects that are looked at; a call of a tool in OpenAI's form has five."""


def files_in(text: str) -> list[Block]:
    """Every file that a JSON object in ``text`` names and holds, in order; arguments of a call may be text of JSON."""
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
    for item in value.values() if isinstance(value, dict) else value:
        yield from _files(item, depth - 1)


def _one(value: dict[str, object]) -> Block | None:
    """The file that an object is; ``{"kernel.py": "import torch..."}`` is none, but its items may be."""
    path = next((value[key] for key in PLACES if isinstance(value.get(key), str)), None)
    body = next((value[key] for key in TEXTS if isinstance(value.get(key), str)), None)
    if not isinstance(path, str) or not isinstance(body, str) or not NAME.fullmatch(path.rpartition("/")[2]):
        return None
    return Block(path.rpartition("/")[2], "", body if body.endswith("\n") else body + "\n")
