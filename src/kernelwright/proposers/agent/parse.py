# SPDX-License-Identifier: Apache-2.0
"""From a model's reply to a Candidate or a JSON object, whatever the reply looks like; nothing in it is executed."""

from __future__ import annotations

import ast
import re
from typing import Any

from kernelwright.candidate import Candidate
from kernelwright.proposers.agent.brief import shortened
from kernelwright.proposers.agent.fences import (
    FILED,
    LONGEST_REPLY,
    NAME,
    Block,
    code_blocks,
    is_loose,
    loosened,
    opening,
    prose,
)
from kernelwright.proposers.agent.files import files_in
from kernelwright.proposers.agent.patch import applied, is_edit
from kernelwright.proposers.agent.talk import objects, spoken, untagged

CLASS = re.compile(r"^class\s+(\w+)\s*\(\s*(?:torch\.)?(?:nn\.)?Module\s*\)", re.M)
OPEN = re.compile(r"^[ \t]*(?:```|~~~)", re.M)
COMMENT = re.compile(
    r"^[ \t]*(?:#(?!pragma|include|define|if|endif)|//+|/\*+|\"\"\")[ \t]*([^\n]*?)(?:\*/|\"\"\")?$", re.M
)
SHORT = re.compile(r"^[ \t>*_#`-]*in short[ \t*_`]*[:\-\u2013\u2014][ \t*_`]*(\S[^\n]*)$", re.I | re.M)
"""The line that every request for a program asks for."""
LISTED = re.compile(r"(?:design|option|idea)?\s*(\d)\s*[.):\-\u2013\u2014]\s*(\S.*)$", re.I)
TAKEN = re.compile(r"\b(?:cho(?:os|se)\w*|pick\w*|go(?:ing)? with|select\w*|tak(?:e|ing)|least|fastest|best)\b", re.I)
KEPT = frozenset({"cpp", "cu", "cuh", "h", "hpp", "py"})
MAIN = "kernel.py"
LONGEST_NOTE = 200
UNFIT = "the reply holds edits that do not fit the program; whole files are needed"


class Malformed(ValueError):
    """The reply holds no candidate; the text says why, for the record and for the request to answer again."""

    reply = ""
    """What was said, where it is worth showing again."""
    cut = False
    """The reply was cut off for its length."""
    asked: Any = None
    """The request as it was put, an adviser's words among them; None: as the search made it."""


def candidate_from(
    reply: str, *, task: str, entry: str, proposer: str, note: str = "", parent: str = "", prompt: str = "",
    base: Candidate | None = None, whole: bool = True,
) -> Candidate:  # fmt: skip
    """The Candidate in a reply. Raises ``Malformed``.

    Its Python file is the last block that defines ``entry`` (earlier ones are drafts), else the last other module;
    native blocks go by the names they carry, or by what it loads. ``base``: the program that was to be changed: files
    that the reply leaves out come from it, and edits are applied to it. ``whole``: the reply was not cut off, so what
    looks like a thought without an end is none."""
    text = spoken(reply)
    try:
        sources, cls = _read(text, entry, base)
    except Malformed as fault:
        text = untagged(reply) if whole else ""
        try:
            sources, cls = _read(text, entry, base)
        except Malformed:
            raise fault from None
    return Candidate(
        task=task,
        language=language_of(sources),
        entry=f"{MAIN}::{cls}",
        sources=tuple(sorted(sources.items())),
        proposer=proposer,
        note=note or first_line(text),
        parent=parent,
        prompt=prompt,
    )


def _read(text: str, entry: str, base: Candidate | None) -> tuple[dict[str, str], str]:
    """(files, name of the class) of a reply as it stands, or as it was meant."""
    ways = [loosened(text), text] if is_loose(text) else [text, loosened(text)]
    try:
        return _sources(ways[0], entry, base)
    except Malformed as fault:
        try:
            return _sources(ways[1], entry, base)
        except Malformed:
            raise fault from None


def _sources(text: str, entry: str, base: Candidate | None) -> tuple[dict[str, str], str]:
    """(files, name of the class) of a reply."""
    old: dict[str, str] = {}
    if base is not None and base.entry:
        first = base.entry.partition("::")[0]
        old = {MAIN if name == first else name: body for name, body in base.sources}
    blocks = code_blocks(text)
    edits = [block for block in blocks if is_edit(block.text)]
    whole = [block for block in blocks if not is_edit(block.text)]
    found = _main(whole, text, entry)
    if found is None and not edits:
        held = files_in(text)
        found = _main(held, text, entry) if held else None
        whole = held if found is not None else whole
    if found is None and base is not None and base.entry and (edits or _natives(whole)):
        cls = base.entry.partition("::")[2]
        made = _edited(edits, old)
        return made | _beside(whole, made[MAIN]), cls
    if found is None:
        raise Malformed(_why_none(blocks, entry, text))
    main, cls = found
    sources = {MAIN: main.text} | _beside([block for block in whole if block is not main], main.text, main.name)
    carried = _carried(sources, old)
    for block in edits:  # of the module's other files; those of files that came whole only show what is new in them
        changed = applied(block.text, carried, block.name)
        if changed is None and block.name in carried:
            raise Malformed(UNFIT)
        carried = changed or carried
    return sources | carried, cls


def _edited(edits: list[Block], old: dict[str, str]) -> dict[str, str]:
    """Files after all edits. Raises ``Malformed`` where one does not fit."""
    made = dict(old)
    for block in edits:
        changed = applied(block.text, made, block.name)
        if changed is None:
            raise Malformed(UNFIT)
        made = changed
    return made


def _main(blocks: list[Block], text: str, entry: str) -> tuple[Block, str] | None:
    """(the block with the module, its class): ``entry`` where it is defined, else the likeliest other module."""
    mains = [block for block in blocks if _defines(block.text, entry)]
    if mains:
        return mains[-1], entry
    pythons = [block for block in blocks if block.suffix in ("", ".py") and CLASS.search(block.text)]
    own = [block for block in pythons if "def get_inputs" not in block.text]  # else it quotes the reference
    if own:
        classes = CLASS.findall(own[-1].text)
        return own[-1], next((name for name in ("ModelNew", "Model") if name in classes), classes[-1])
    if not blocks and _defines(text, entry) and not OPEN.search(text) and not FILED.search(text):
        return Block("", "python", _unfenced(text, entry)), entry
    return None


def _natives(blocks: list[Block]) -> list[Block]:
    return [block for block in blocks if block.suffix in (".cpp", ".cu", ".cuh", ".h", ".hpp")]


def _beside(blocks: list[Block], main: str, named: str = "") -> dict[str, str]:
    """The files of the other blocks; the last of a name counts, a lone native file gets the name that is loaded.

    ``named``: the name the module's own block has; files in its folder lie beside it, which becomes the root."""
    folder = named.rpartition("/")[0] + "/" if "/" in named else ""
    loaded = re.findall(r"([\w\-]+)\.so\b", main)
    sources: dict[str, str] = {}
    for block in blocks:
        suffix = ".cu" if block.suffix == ".cpp" and "__global__" in block.text else block.suffix
        name = block.name.removeprefix(folder) or (
            (loaded[0] if loaded else "kernel") + suffix if block in _natives(blocks) else ""
        )
        name = re.sub(r"\.(?:cc|cxx)$", ".cpp", name)
        if name and name != MAIN and name.rpartition(".")[2] in KEPT and not _defines(block.text, "ModelNew"):
            sources[name] = block.text
    compiled = [name for name in sources if name.endswith((".cpp", ".cu"))]
    if len(loaded) == 1 and len(compiled) == 1 and compiled[0].rpartition("/")[2].rpartition(".")[0] != loaded[0]:
        sources[loaded[0] + "." + compiled[0].rpartition(".")[2]] = sources.pop(compiled[0])
    return sources


def _carried(sources: dict[str, str], old: dict[str, str]) -> dict[str, str]:
    """Files of the old program that the new one still names and does not bring along."""
    text = "\n".join(sources.values())
    built = {name.rpartition(".")[0] for name in sources if name.endswith((".cpp", ".cu"))}
    kept = {}
    for name, body in old.items():
        stem, _, ending = name.rpartition(".")
        wanted = rf"{re.escape(stem)}\.so\b" if ending in ("cpp", "cu") else rf"\b{re.escape(name)}\b"
        if ending == "py":
            wanted = rf"^\s*(?:import|from)\s+{re.escape(stem)}\b"
        replaced = name in sources or ending in ("cpp", "cu") and stem in built
        if not replaced and re.search(wanted, text, flags=re.M):
            kept[name] = body
    return kept


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
    """What the model said it did, at most LONGEST_NOTE characters: its line ``In short: ...`` wherever it stands; else
    the design it chose of a list, its first line before the code, or the first comment in the code.

    File names and headings do not count, nor does what stands below the code: that is how to call it."""
    asked = SHORT.findall(prose(reply[-20_000:])) or SHORT.findall(prose(reply[:20_000]))
    if asked:
        return shortened(asked[-1].strip(" *_`#"), LONGEST_NOTE)
    lines = [
        re.sub(r"^[\W_]+", "", line).strip() for line in opening(reply[:20_000]).splitlines() if '": "' not in line
    ]
    lines = [re.sub(r"[*_`#]+", "", line) for line in lines if line and not NAME.match(line.rstrip(":*_`# "))]
    telling = [line for line in lines if _tells(line) and not _heads(line)]
    said = _chosen(telling) or next(iter(telling), "")
    for block in code_blocks(reply[:LONGEST_REPLY]) if not said else ():
        said = said or next((text for text in COMMENT.findall(block.text) if _tells(text)), "")
    return shortened(said or next((line for line in lines if not _heads(line)), ""), LONGEST_NOTE)


def _chosen(lines: list[str]) -> str:
    """The one of several numbered designs that a later line says is taken; "" where there is no such list."""
    listed = {found[1]: found[2] for line in lines if (found := LISTED.match(line))}
    for line in reversed(lines) if len(listed) > 1 else ():
        if LISTED.match(line) or not TAKEN.search(line):
            continue
        named = re.findall(r"(?:design|option|idea|plan|number|no\.?|#)\s*\(?(\d)\b", line, flags=re.I)
        number = next((number for number in [*named, *re.findall(r"\b\d\b", line)] if number in listed), "")
        if number:
            return listed[number]
    return ""


def _tells(line: str) -> bool:
    return len(line.split()) > 2 and not line.startswith(("tunable ", "where ")) and not line.endswith(":")


def _heads(line: str) -> bool:
    """Whether a line only announces what follows it: a heading, a tag, a file's name."""
    words = line.split()
    return line.endswith((":", ">")) or len(words) < 6 and any(NAME.search(word.strip("\"'`*_,;()>")) for word in words)


def json_object(reply: str, *required: str) -> dict[str, Any]:
    """The last JSON object in a reply that has every required key. Raises ``Malformed``."""
    text = spoken(reply)[:LONGEST_REPLY]
    for place in [*(block.text for block in code_blocks(text)), text]:
        found = [value for value in objects(place) if all(key in value for key in required)]
        if found:
            return found[-1]
    raise Malformed(f"no JSON object with {', '.join(required)} in the reply")


def _defines(text: str, entry: str) -> bool:
    # Text, not a parse: broken Python is still an attempt, and the judge says what is wrong with it.
    return re.search(rf"^class\s+{re.escape(entry)}\b", text, flags=re.M) is not None


def _unfenced(text: str, entry: str) -> str:
    """The program in a reply that has no fences: from its first line of code, less a tail that is not Python."""
    lines = text.splitlines()
    starts = [at for at, line in enumerate(lines) if re.match(r"(?:import|from|class|def|@|#|\"\"\")", line)]
    lines = lines[starts[0] :] if starts else lines
    for end in range(len(lines), max(0, len(lines) - 60), -1):
        body = "\n".join(lines[:end]) + "\n"
        try:
            ast.parse(body)
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            continue
        if _defines(body, entry):
            return body
    return "\n".join(lines) + "\n"


def _why_none(blocks: list[Block], entry: str, text: str) -> str:
    if not blocks:
        ends = ": it ends inside one that is not whole" if OPEN.search(text) else ""
        return f"the reply has no fenced code block{ends}"
    kinds = ", ".join(sorted({block.language or "unnamed" for block in blocks}))
    return f"no block of the reply defines class {entry} (blocks: {kinds})"
