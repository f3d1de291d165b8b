# SPDX-License-Identifier: Apache-2.0
"""What models say around an answer: thoughts are left out, numbers and truth values are read as people write them."""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Iterator
from typing import Any

THOUGHT = re.compile(r"<(/?)(?:think|thinking|thought|reasoning|reflection)>", re.I)
ENDLESS = re.compile(r"\d{400,}")
"""A number that Python refuses to read, or that is no float: a model that loops writes such."""
BEGINS = re.compile(r"\{(?=\s*[\"'}/#])")
MOST_TRIED = 2000
"""Places of one text where an object may begin that are tried: the first and the last half of so many."""
MOST_MENDED = 100
"""Broken objects of one text that are tried again leniently."""
LONGEST_OBJECT = 100_000
"""Characters of one object: a program may be in it."""
LONGEST_MENDED = 20_000
"""Characters of one that is not quite JSON."""
NO = frozenset({"false", "no", "none", "null", "0", "passes", "pass", ""})


def spoken(reply: str) -> str:
    """The reply without its thoughts, as reasoning models put them inline: whole, begun by the server, or cut off."""
    return _heard(reply)[0]


def untagged(reply: str) -> str:
    """The reply without its marks of thoughts, where a thought begins and never ends (a comment of a program may hold
    such a mark); "" where each has its end."""
    return "" if _heard(reply)[1] else THOUGHT.sub("", reply)


def _heard(reply: str) -> tuple[str, bool]:
    """(what is said outside thoughts, whether all of them end)."""
    said: list[str] = []
    at, thinking = 0, False
    for tag in THOUGHT.finditer(reply):
        if tag[1]:
            said = said if thinking else []  # what came before the end of a thought that never began was one
        elif not thinking:
            said.append(reply[at : tag.start()])
        thinking, at = not tag[1], tag.end()
    if not thinking:
        said.append(reply[at:])
    return "".join(said).strip(), not thinking


def objects(text: str) -> Iterator[dict[str, Any]]:
    """Every JSON object in a text, outermost ones only; trailing commas, comments and Python's spelling are borne."""
    decoder = json.JSONDecoder(strict=False)
    text = ENDLESS.sub("0", text)
    places = [match.start() for match in BEGINS.finditer(text)]
    if len(places) > MOST_TRIED:
        places = places[: MOST_TRIED // 2] + places[-MOST_TRIED // 2 :]
    done, mended = 0, 0
    for at in places:
        if at < done:
            continue
        value: object = None
        # A window, because the error of a failed attempt counts the lines of all the text it was given.
        window = text[at : at + LONGEST_OBJECT]
        try:
            value, length = decoder.raw_decode(window)
        except (ValueError, RecursionError):  # ValueError itself: a number of more digits than Python reads
            length = 1
            if mended < MOST_MENDED:
                mended += 1
                value, length = _lenient(window[:LONGEST_MENDED])
        done = at + length
        if isinstance(value, dict):
            yield value


def real(value: object, default: float) -> float:
    """``1.3``, ``"1.3x"``, ``"about 30 %"`` (a gain of 1.3), else ``default``. Never infinite, never NaN."""
    if isinstance(value, bool):
        return default
    if isinstance(value, int | float):
        return float(value) if abs(value) < 1e6 else default  # compared first: a long integer is no float
    found = re.search(r"-?\d+(?:\.\d+)?", str(value))
    if found is None or len(found[0]) > 6:
        return default
    number = float(found[0])
    return 1.0 + number / 100 if "%" in str(value) else number


def truth(value: object) -> bool:
    """A truth value however it is written: ``"false"`` is false."""
    return value.strip().lower() not in NO if isinstance(value, str) else bool(value)


def _lenient(text: str) -> tuple[object, int]:
    """(the object that ``text`` begins with after mending, its length), or (None, 1)."""
    end = _closing(text)
    if end is None:
        return None, 1
    plain = re.sub(r"^\s*(?://|#)[^\n]*$", "", text[:end], flags=re.M)
    plain = re.sub(r",(\s*[}\]])", r"\1", plain)
    try:
        return json.loads(plain, strict=False), end
    except (ValueError, RecursionError):
        pass
    try:
        return ast.literal_eval(plain), end
    except (ValueError, SyntaxError, MemoryError, RecursionError, TypeError):
        return None, 1


def _closing(text: str) -> int | None:
    """Where the brace that ``text`` begins with is closed, strings in double quotes passed over."""
    depth, quoted, place = 0, False, 0
    while place < len(text):
        letter = text[place]
        if quoted and letter == "\\":
            place += 1
        elif letter == '"':
            quoted = not quoted
        elif not quoted and letter in "{}":
            depth += 1 if letter == "{" else -1
            if depth == 0:
                return place + 1
        place += 1
    return None
