# SPDX-License-Identifier: Apache-2.0
"""Fenced blocks of a reply, found line by line, with the file each belongs to as far as the reply says it."""

from __future__ import annotations

import ast
import re
import textwrap
from dataclasses import dataclass

FENCE = re.compile(r"^[ \t]*(```+|~~~+)[ \t]*([^\n`]*)$")
NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_\-./]*\.(?:py|cpp|cc|cxx|cu|cuh|h|hpp)$")
SAID = re.compile(
    r"^\s*(?:#|//|/\*)\s*(?:file(?:name)?:?\s*)?([\w./\-]+\.(?:py|cpp|cc|cxx|cu|cuh|h|hpp))\s*(?:\*/)?\s*$", re.I
)
SUFFIX = {
    "cpp": ".cpp", "c++": ".cpp", "cxx": ".cpp", "cc": ".cpp", "c": ".cpp", "cuda": ".cu", "cu": ".cu",
    "python": ".py", "py": ".py", "python3": ".py",
}  # fmt: skip
FILED = re.compile(r"<file\s+(?:path|name|filename)\s*=\s*[\"']([^\"'<>\n]{1,200})[\"']\s*>|</file>", re.I)
MARKS = re.compile(r"<\|[\w ]{1,30}\|>")
LATE = re.compile(r"(?m)(?<=[^\s`])[ \t]*(```[\w+]*)[ \t]*$")
OPENS_LATE = re.compile(r"(?m)(?<=[^\s`])[ \t]*```(?:python|py|cpp|c\+\+|cuda|cu)[ \t]*$")
LONGEST_REPLY = 4 << 20
LONGEST_TITLE = 80


@dataclass(frozen=True, slots=True)
class Block:
    """One fenced block: the file it names (or ""), its language word, its text."""

    name: str
    language: str
    text: str

    @property
    def suffix(self) -> str:
        """What its file should end with, by its name or its language; "" where neither says."""
        return "." + self.name.rpartition(".")[2] if self.name else SUFFIX.get(self.language, "")


def code_blocks(reply: str) -> list[Block]:
    """Fenced blocks in order; a fence left open at the end counts where it holds whole Python.

    A block's file is named on its fence, in its first comment, or on the line above it."""
    return _read(reply)[0]


def loosened(reply: str) -> str:
    """The reply with fences where they were meant: in place of ``<file path=...>``, on lines of their own where they
    stand behind text, and without the marks that some servers leave between the parts of an answer."""
    text = MARKS.sub("\n", reply[:LONGEST_REPLY])
    parts, at, name = [], 0, ""
    for tag in FILED.finditer(text):
        inside = text[at : tag.start()]
        meant = name and not tag[1] and "```" not in inside
        parts.append(f"\n```{name}\n{inside}\n```\n" if meant else inside)
        at, name = tag.end(), tag[1] or ""
    return LATE.sub(r"\n\1", "".join([*parts, text[at:]]))


def is_loose(reply: str) -> bool:
    """Whether ``loosened`` is more likely what was meant than the reply as it stands."""
    return bool(MARKS.search(reply) or OPENS_LATE.search(reply))


def opening(reply: str) -> str:
    """What a reply says before its first block."""
    lines = reply[:LONGEST_REPLY].split("\n")
    first = next((at for at, line in enumerate(lines) if FENCE.match(line)), len(lines))
    return "\n".join(lines[:first])


def prose(reply: str) -> str:
    """What a reply says outside its blocks."""
    return _read(reply)[1]


def _read(reply: str) -> tuple[list[Block], str]:
    found: list[Block] = []
    outside: list[str] = []
    body: list[str] = []
    ticks, info, title = "", "", ""
    for line in reply[:LONGEST_REPLY].replace("\r\n", "\n").split("\n"):
        fence = FENCE.match(line)
        if fence is None or ticks and fence[1][0] != ticks[0] or ticks and not fence[2] and len(fence[1]) < len(ticks):
            (body if ticks else outside).append(line)
            continue
        if ticks:
            found.append(_block(info, body, title))
        else:
            title = next((text for text in reversed(outside[-3:]) if text.strip()), "")
        if ticks and not fence[2].strip():
            ticks, body = "", []
            outside.append("")
        else:  # a fence begins, or begins where the one before it was never closed
            ticks, info, body = fence[1], fence[2], []
            title = "" if len(title) > LONGEST_TITLE else title
    if ticks and body:
        left = _block(info, body, title)
        if left.suffix not in (".cpp", ".cu") and left.text.strip() and _parses(left.text):
            found.append(left)
    return found, "\n".join(outside)


def _block(info: str, body: list[str], title: str) -> Block:
    words = info.replace("=", " ").replace(":", " ").strip().split()
    bare = [word.strip("\"'`()[]{}*") for word in words]
    name = next((word for word in bare if NAME.match(word)), "")
    said = SAID.match(body[0]) if body and not name else None
    name = name or (said[1] if said else _titled(title))
    if said:
        body = body[1:]  # it names the file and would be the first line of every comparison of two programs
    text = "\n".join(body) + "\n" if body else ""
    if text[:1] in (" ", "\t"):
        text = textwrap.dedent(text)  # a block inside a list
    return Block(name.removeprefix("./"), words[0].lower() if words else "", text)


def _titled(line: str) -> str:
    """The file named by the line above a fence: ``**kernel.cpp**``, ``### File: kernel.py``, ``kernel.py:``."""
    words = [word.strip("*_`#:()[],") for word in line.split()]
    names = [word for word in words if NAME.match(word)]
    return names[0] if len(names) == 1 and len(words) <= 6 else ""


def _parses(text: str) -> bool:
    try:
        ast.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return False
    return True
