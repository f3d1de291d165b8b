# SPDX-License-Identifier: Apache-2.0
"""Tensors inside tuples, lists and dicts, as Python text: how arguments are reached and how results are put back."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any

KEYS = (str, int, bool)
"""Types of a dict's keys that read back equal from their text."""


class Unreadable(Exception):
    """The nesting is of other types than tuple, list and dict; the text says which."""


def reached(value: Any, text: str) -> tuple[list[str], list[tuple[str, Any]]]:  # noqa: ANN401 - an argument is anything
    """(conditions under which ``text`` is nested as ``value`` is, (text, leaf) of what lies in it), depth first.

    Only the very types count: what a subclass holds is its own affair. Raises Unreadable for a dict's odd keys.
    """
    if type(value) is dict:
        if not all(type(key) in KEYS for key in value):
            raise Unreadable("a dict with keys that are neither text nor whole numbers")
        same = f"type({text}) is dict and list({text}) == {list(value)!r}"
        inside = [(f"{text}[{key!r}]", item) for key, item in value.items()]
    elif type(value) in (list, tuple):
        same = f"type({text}) is {type(value).__name__} and len({text}) == {len(value)}"
        inside = [(f"{text}[{position}]", item) for position, item in enumerate(value)]
    else:
        return [], [(text, value)]
    conditions, leaves = [same], []
    for place, item in inside:
        more, found = reached(item, place)
        conditions += more
        leaves += found
    return conditions, leaves


def returned(spec: Any, leaf: Callable[[], str]) -> str:  # noqa: ANN401 - torch's TreeSpec, which this file does not import
    """Python text of a result that is nested as a TreeSpec says; ``leaf`` gives the text of each next leaf.

    Raises Unreadable for types other than tuple, list and dict.
    """
    if spec.type is None:
        return leaf()
    children = [returned(child, leaf) for child in spec.children()]
    if spec.type is dict and all(type(key) in KEYS for key in spec.context):
        return (
            "{"
            + ", ".join(f"{unmarked(repr(k))}: {text}" for k, text in zip(spec.context, children, strict=True))
            + "}"
        )
    if spec.type is list:
        return f"[{', '.join(children)}]"
    if spec.type is tuple:
        return f"({', '.join(children)}{',' * (len(children) == 1)})"
    raise Unreadable(f"the result is a {spec.type.__name__}")


def unmarked(text: str) -> str:
    """Python text of a plain value without the sign that begins a mark."""
    return text.replace("$", r"\x24")


def filled(pattern: str, names: Sequence[str]) -> str:
    """``pattern`` with its marks ``$0$``, ``$1$`` replaced by names."""
    return re.sub(r"\$(\d+)\$", lambda found: names[int(found[1])], pattern)
