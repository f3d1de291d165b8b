# SPDX-License-Identifier: Apache-2.0
"""What servers say when they refuse: whether to come back and when, and how the request is to be put otherwise."""

from __future__ import annotations

import dataclasses
import datetime
import email.utils
import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass

TEMPORARY = frozenset({408, 409, 425, 429})
"""Besides these, what begins with 5 passes, except 501 and 505."""
REFUSED = frozenset({400, 404, 413, 422})
"""Statuses of a request that may be put otherwise; 404 is how routers say that no server takes all its settings."""
SPENT = re.compile(r"insufficient_quota|exceeded your current quota|billing|credit balance|insufficient balance", re.I)
"""A 429 that no waiting ends."""
BUSY_S = 8.0
"""Wait after a 429 that does not say how long; six attempts then span most of a minute, the usual window."""
LONGEST_ASKED_S = 600.0
"""A server that asks for more patience than this is not asked again."""
AGAIN = re.compile(r"(?:try again|retry)\s+(?:in|after)\s+(?:(\d+)m\s*)?([\d.]+)\s*(ms|s)", re.I)

BARE = "bare address"
"""Named as sent where the address has no path: a server that does not know it there may know it below ``/v1``."""
OPTIONAL = ("seed", "temperature")
"""Settings that some models refuse."""
NEWER, OLDER = "max_completion_tokens", "max_tokens"
"""Two names of the limit on a reply; each is refused by some servers."""
UNKNOWN_NAME = re.compile(
    r"unsupported|not supported|unrecognized|unknown|unexpected|forbidden|not permitted|not allowed|use .max_", re.I
)
TOO_LONG = re.compile(
    r"context.{0,12}(?:length|window|size)|maximum.{0,20}tokens|max_model_len|too many tokens|tokens.{0,20}too large|"
    r"at most \d+|max_tokens: \d+ >|maximum value for .?max",
    re.I,
)
SAYS_MOST = re.compile(
    r"at most (\d+) (?:completion |output )?tokens|max_tokens: \d+ > (\d+)|less than or equal to .?(\d+)", re.I
)
CONTEXT = re.compile(
    r"(?:context (?:length|window|size)|max_model_len|n_ctx)\D{0,24}(\d{3,})|\((\d{3,}) tokens\), try increasing", re.I
)
PROMPT = re.compile(
    r"\((\d+) in the messages|(?:request|prompt|input) (?:has|contains|is) (\d+) (?:input |prompt )?tokens|"
    r"n_prompt_tokens\D{1,4}(\d+)|messages resulted in (\d+) tokens",
    re.I,
)
IN_ALL = re.compile(r"requested (?:about )?(\d+) tokens", re.I)
"""Prompt and reply together, where the prompt's share is not said."""
STREAM = re.compile(
    r"(?:only.{0,20}stream|stream(?:ing)?.{0,30}(?:required|must|only|mode|strongly recommended))|expected JSON data",
    re.I,
)
NO_SYSTEM = re.compile(r"system.{0,20}(?:role|message|prompt|instruction).{0,30}not|not.{0,20}\bsystem\b", re.I)
LEAST_REPLY = 512
"""Tokens a reply is still asked for where prompt and reply do not fit the model together."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Manner:
    """How requests to one model are put; it changes as the server says what it does not take."""

    left_out: frozenset[str] = frozenset()
    """Settings that are not sent."""
    most: int | None = None
    """Longest reply of the model, once that was found out."""
    rooms: tuple[tuple[int, int], ...] = ()
    """(bytes of a request, tokens it left for the reply) of requests that did not fit the model with their reply."""
    newer_name: bool = True
    """The limit is sent as ``max_completion_tokens``."""
    streams: bool = False
    no_system: bool = False
    """Rules are put at the head of the first question."""
    versioned: bool = False
    """``/v1`` is added to an address that had no path."""

    def room(self, asked: int, size: int) -> int:
        """Tokens to ask for in the reply to a request of ``size`` bytes; a shorter one is not held to a longer's."""
        return min([asked, *([self.most] if self.most else []), *(left for least, left in self.rooms if least <= size)])


def mended(manner: Manner, status: int, body: str, sent: Collection[str], asked: int, size: int = 0) -> Manner | None:
    """How to ask after a refusal; None where its text names nothing that this request could do without.

    Judged by what this very request sent: others may have changed the manner meanwhile, and it is worth another
    attempt then too. ``asked``: the reply length it asked for. ``size``: its bytes."""
    if status in (404, 405) and BARE in sent:
        return dataclasses.replace(manner, versioned=True)
    if status not in REFUSED and not STREAM.search(body):
        return None
    if "stream" not in sent and STREAM.search(body):
        return dataclasses.replace(manner, streams=True)
    name = NEWER if NEWER in sent else OLDER
    if re.search(rf"\b{name}\b", body) and UNKNOWN_NAME.search(body) and not SAYS_MOST.search(body):
        return dataclasses.replace(manner, newer_name=name == OLDER)
    if TOO_LONG.search(body) and asked > LEAST_REPLY:
        said = SAYS_MOST.search(body)
        if said:
            return dataclasses.replace(manner, most=max(LEAST_REPLY, min(_first(said), asked - 1)))
        room = _left(body, asked)
        if room is not None and room < LEAST_REPLY:
            return None  # the request itself is too long for the model
        room = max(LEAST_REPLY, asked // 2 if room is None or room >= asked else room)
        return dataclasses.replace(manner, rooms=(*manner.rooms, (size, room)))
    refused = {name for name in OPTIONAL if name in sent and name in body.lower()}
    if refused:
        return dataclasses.replace(manner, left_out=manner.left_out | refused)
    if "system" in sent and NO_SYSTEM.search(body):
        return dataclasses.replace(manner, no_system=True)
    return None


def _left(body: str, asked: int) -> int | None:
    """Tokens that a request leaves for its reply in the model's context, from the numbers in a refusal, if it has any.

    Half a hundredth is kept back: servers count once more with the reply's own frame."""
    context, prompt, whole = CONTEXT.search(body), PROMPT.search(body), IN_ALL.search(body)
    if context is None:
        return None
    if prompt is None and (whole is None or _first(whole) <= asked):
        return None
    taken = _first(prompt) if prompt is not None else _first(whole) - asked if whole is not None else 0
    return _first(context) - taken - _first(context) // 200


def _first(found: re.Match[str]) -> int:
    return int(next(number for number in found.groups() if number))


def passes(status: int, body: str, wait_s: float) -> bool:
    """Whether the same request may succeed later."""
    if status == 429:
        return not SPENT.search(body) and wait_s <= LONGEST_ASKED_S
    return (status in TEMPORARY or status >= 500 and status not in (501, 505)) and wait_s <= LONGEST_ASKED_S


def patience(status: int, headers: Mapping[str, str], body: str) -> float:
    """Seconds a server asks to be left alone, from its headers or its words; 0 where it does not say."""
    given = {name.lower(): value for name, value in headers.items()}
    try:
        if "retry-after-ms" in given:
            return max(0.0, float(given["retry-after-ms"]) / 1000)
        if "retry-after" in given:
            return max(0.0, _seconds(given["retry-after"]))
    except ValueError:
        pass
    said = AGAIN.search(body)
    if said:
        amount = float(said[2].rstrip(".") or 0) * (0.001 if said[3].lower() == "ms" else 1.0)
        return 60.0 * float(said[1] or 0) + amount
    return BUSY_S if status == 429 else 0.0


def _seconds(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        at = email.utils.parsedate_to_datetime(text)
        at = at if at.tzinfo else at.replace(tzinfo=datetime.UTC)  # "-0000" names no zone
        return (at - datetime.datetime.now(tz=datetime.UTC)).total_seconds()
