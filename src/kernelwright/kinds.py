# SPDX-License-Identifier: Apache-2.0
"""What a verb is given against what its signature says: another kind is named before anything begins.

A text is no list of letters, True is no number, and whatever has the parts of a protocol is one.
"""

from __future__ import annotations

import functools
import inspect
import numbers
import os
import types
import typing
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, ParamSpec, TypeVar

from kernelwright.errors import BadCommand

P = ParamSpec("P")
R = TypeVar("R")
SAID_ELSEWHERE = ("budget", "bits_lost", "seed", "grid")
"""Arguments that are refused where they are read, in more fitting words."""
_WORDS: Mapping[Any, str] = {
    str: "text", float: "a number", int: "a whole number", bool: "True or False", Path: "a path", type(None): "None",
    object: "anything", dict: "a dict",
}  # fmt: skip


def checked(verb: Callable[P, R]) -> Callable[P, R]:
    """The verb, which raises BadCommand for an argument of another kind than its annotation says."""
    signature = inspect.signature(verb)
    name = verb.__qualname__.removesuffix(".__init__")

    @functools.wraps(verb)
    def called(*args: P.args, **kwargs: P.kwargs) -> R:
        hints = _hints(verb)
        for key, value in signature.bind(*args, **kwargs).arguments.items():
            if key in hints and key not in SAID_ELSEWHERE:
                check(f"{key} of {name}", value, hints[key])
        return verb(*args, **kwargs)

    return called


@functools.cache
def _hints(verb: Callable[..., Any]) -> dict[str, Any]:
    """At the first call: by then every name in the annotations is known."""
    return typing.get_type_hints(verb)


def check(name: str, value: object, hint: Any) -> None:
    """Raise BadCommand unless ``value`` is what ``hint`` says."""
    if not fits(value, hint):
        raise BadCommand(
            f"{name} is of the wrong kind.",
            got=f"{repr(value)[:200]} ({type(value).__name__})",
            expected=words(hint),
            what_next="give it so; help() of it says what it means",
        )


def settle(noun: Any) -> None:
    """For ``__post_init__``: one text and a list become the tuple that a field wants; BadCommand for other kinds."""
    kind: Any = type(noun)
    for name, hint in _hints(kind).items():
        value = getattr(noun, name)
        if typing.get_origin(hint) is tuple and isinstance(value, str | list):
            value = (value,) if isinstance(value, str) else tuple(value)
            object.__setattr__(noun, name, value)
        check(f"{name} of {kind.__name__}", value, hint)


def fits(value: object, hint: Any) -> bool:
    """Whether a value is of the kind that an annotation names, what it holds included."""
    origin, inside = typing.get_origin(hint), typing.get_args(hint)
    if hint is Any or hint is object:
        return True
    if origin in (typing.Union, types.UnionType):
        return any(fits(value, one) for one in inside)
    if origin is Callable:
        return callable(value)
    if origin is Mapping or origin is dict:
        whole = isinstance(value, Mapping)
        return whole and all(fits(k, inside[0]) and fits(v, inside[1]) for k, v in value.items())  # type: ignore[attr-defined]
    if origin in (Sequence, tuple, list):
        listed = isinstance(value, Sequence) and not isinstance(value, str | bytes | bytearray)
        return listed and all(fits(item, inside[0]) for item in value)  # type: ignore[attr-defined]  # just looked
    if hint in (int, float):
        kind = numbers.Real if hint is float else int
        return isinstance(value, kind) and not isinstance(value, bool)
    if hint is Path:
        return isinstance(value, os.PathLike)
    if getattr(hint, "_is_protocol", False):
        return all(hasattr(value, part) for part in vars(hint) if not part.startswith("_"))
    return isinstance(value, hint)


def words(hint: Any) -> str:
    """An annotation for a person: "text or a path or None"."""
    origin, inside = typing.get_origin(hint), typing.get_args(hint)
    if origin in (typing.Union, types.UnionType):
        return " or ".join(dict.fromkeys(words(one) for one in inside))
    if origin is Callable:
        return "a function"
    if origin is Mapping or origin is dict:
        return f"a dict of {words(inside[0])} to {words(inside[1])}"
    if origin in (Sequence, tuple, list):
        return "a list" if inside[0] is object else f"a list of ({words(inside[0])})"
    return _WORDS.get(hint, f"a {getattr(hint, '__name__', hint)}")
