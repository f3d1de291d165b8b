# SPDX-License-Identifier: Apache-2.0
"""From a model's reply to a Candidate or a JSON object, whatever the reply looks like; nothing in it is executed."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import Any

from kernelwright.candidate import Candidate

FENCE = re.compile(r"^(?P<ticks>```+|~~~+)[ \t]*(?P<info>[^\n`]*)\n(?P<body>.*?)^(?P=ticks)[ \t]*$", re.M | re.S)
NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_\-./]*\.(?:py|cpp|cu|cuh|h|hpp)$")
SUFFIX = {"cpp": ".cpp", "c++": ".cpp", "cxx": ".cpp", "cuda": ".cu", "cu": ".cu", "python": ".py", "py": ".py"}
LONGEST_REPLY = 4 << 20
MAIN = "kernel.py"


class Malformed(ValueError):
    """The reply holds no candidate; the text says why, for the record and for a repair request."""


@dataclass(frozen=True, slots=True)
class Block:
    """One fenced block: the file it names (or ""), its language word, its text."""

    name: str
    language: str
    text: str


def code_blocks(reply: str) -> list[Block]:
    """Fenced blocks in order. A fence left open at the end of a cut-off reply yields nothing."""
    found = []
    for match in FENCE.finditer(reply[:LONGEST_REPLY].replace("\r\n", "\n") + "\n"):
        words = match["info"].replace("=", " ").replace(":", " ").strip().split()
        name = next((word.strip("\"'`") for word in words if NAME.match(word.strip("\"'`"))), "")
        body = match["body"]
        first = body.split("\n", 1)[0]
        if not name:
            said = re.match(r"^\s*(?:#|//)\s*(?:file(?:name)?:?\s*)?([\w./\-]+\.(?:py|cpp|cu|cuh|h))\s*$", first)
            name = said.group(1) if said else ""
        found.append(Block(name.removeprefix("./"), words[0].lower() if words else "", body))
    return found


def candidate_from(
    reply: str, *, task: str, entry: str, proposer: str, note: str = "", parent: str = "", prompt: str = ""
) -> Candidate:
    """The Candidate in a reply. Raises ``Malformed``.

    The Python file that defines ``entry`` is the last block that does (earlier ones are drafts); blocks in other
    languages belong to it under the names they carry, or under the name the Python file loads.
    """
    blocks = code_blocks(reply)
    mains = [block for block in blocks if _defines(block.text, entry)]
    if not mains and _defines(reply, entry):
        mains = [Block("", "python", reply)]
    if not mains:
        raise Malformed(_why_none(blocks, entry))
    main = mains[-1]
    sources = {MAIN: main.text}
    for block in blocks:
        suffix = SUFFIX.get(block.language, "")
        name = block.name or _loaded_name(main.text, suffix)
        if block in mains or not name or name == MAIN or name.endswith(".py") and _drafts(block, blocks, name):
            continue
        if name.rpartition(".")[2] in ("cpp", "cu", "cuh", "h", "hpp", "py"):
            sources[name] = block.text
    return Candidate(
        task=task,
        language=language_of(sources),
        entry=f"{MAIN}::{entry}",
        sources=tuple(sorted(sources.items())),
        proposer=proposer,
        note=note or first_line(reply),
        parent=parent,
        prompt=prompt,
    )


def language_of(sources: dict[str, str]) -> str:
    """The candidate language that a set of files amounts to."""
    suffixes = {name.rpartition(".")[2] for name in sources}
    if "cu" in suffixes:
        return "cuda"
    if "cpp" in suffixes:
        return "cpp"
    text = "\n".join(sources.values())
    return "triton" if re.search(r"^\s*(?:import|from)\s+triton\b", text, flags=re.M) else "torch"


def first_line(reply: str) -> str:
    """The first line of prose, at most 160 characters: what the model said it did."""
    outside = FENCE.sub("", reply[:20_000] + "\n")
    lines = [re.sub(r"^[\W_]+", "", line).rstrip() for line in outside.splitlines()]
    return next((line[:160] for line in lines if line), "")


def json_object(reply: str, *required: str) -> dict[str, Any]:
    """The last JSON object in a reply that has every required key. Raises ``Malformed``."""
    texts = [block.text for block in code_blocks(reply)] + [reply[:LONGEST_REPLY]]
    decoder = json.JSONDecoder()
    found: dict[str, Any] | None = None
    for text in texts:
        at = text.find("{")
        while at != -1:
            try:
                value, end = decoder.raw_decode(text, at)
            except json.JSONDecodeError:
                at = text.find("{", at + 1)
                continue
            if isinstance(value, dict) and all(key in value for key in required):
                found = value
            at = text.find("{", end)
        if found is not None:
            return found
    raise Malformed(f"no JSON object with {', '.join(required)} in the reply")


def _defines(text: str, entry: str) -> bool:
    # Text, not a parse: broken Python is still an attempt, and the judge says what is wrong with it.
    return re.search(rf"^class\s+{re.escape(entry)}\b", text, flags=re.M) is not None


def _loaded_name(main: str, suffix: str) -> str:
    if suffix not in (".cpp", ".cu"):
        return ""
    loaded = re.findall(r"([\w\-]+)\.so\b", main)
    return (loaded[0] if loaded else "kernel") + suffix


def _drafts(block: Block, blocks: list[Block], name: str) -> bool:
    """True for a named Python block that a later block of the same name replaces."""
    return any(other is not block and other.name == name for other in blocks[blocks.index(block) + 1 :])


def _why_none(blocks: list[Block], entry: str) -> str:
    if not blocks:
        return "the reply has no fenced code block"
    kinds = ", ".join(sorted({block.language or "unnamed" for block in blocks}))
    return f"no block of the reply defines class {entry} (blocks: {kinds})"
