# SPDX-License-Identifier: Apache-2.0
"""What ``get_init_inputs`` gives a constructor: its forms, and whether another process can be given it."""

from __future__ import annotations

import functools
import types
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from kernelwright.errors import TaskError
from kernelwright.judge import skeletons

if TYPE_CHECKING:
    from kernelwright.judge.reference import Reference


def taken(reference: Reference, given: Any) -> tuple[list[Any], dict[str, Any]]:
    """Arguments by position and by name: a list, a mapping of keywords, or a pair of both. Raises TaskError for what a
    candidate's process cannot be given, by the place where it lies."""
    if isinstance(given, Mapping):
        args, kwargs = [], dict(given)
    else:
        given = list(given)
        pair = len(given) == 2 and isinstance(given[0], list | tuple) and isinstance(given[1], dict)
        args, kwargs = (list(given[0]), dict(given[1])) if pair else (given, {})
    for path, value in [*((f"argument {i}", v) for i, v in enumerate(args)), *kwargs.items()]:
        _handed(reference, path, value)
    return args, kwargs


def _handed(reference: Reference, path: str, value: Any) -> None:
    try:
        skeletons.of_constructor(value)
    except TypeError as error:
        for place, member in _members(value):
            _handed(reference, path + place, member)
        raise TaskError(
            f"get_init_inputs of {reference.task.name} returns something that cannot be handed to another process.",
            got=f"{path}: {str(error).removesuffix(' cannot be handed to another process')}",
            expected="tensors, Python's own numbers, texts, None, classes and functions of torch, functools.partial of "
            "those, and lists, tuples, dicts or types.SimpleNamespace of them",
            what_next="return a text or a number, and let Model make the object or choose the function by it; return "
            "int(n), float(n) or torch.from_numpy(a) for what is NumPy's, types.SimpleNamespace(**vars(config)) for "
            "a configuration",
        ) from error


def _members(value: Any) -> list[tuple[str, Any]]:
    """What lies in a value, and how a program would reach it."""
    if type(value) is types.SimpleNamespace:
        return [(f".{name}", member) for name, member in vars(value).items()]
    if type(value) is functools.partial:
        named = [(f".keywords[{name!r}]", member) for name, member in value.keywords.items()]
        return [(".func", value.func), *((f".args[{i}]", member) for i, member in enumerate(value.args)), *named]
    if isinstance(value, Mapping):
        return [(f"[{key!r}]", member) for key, member in value.items()]
    if isinstance(value, list | tuple):
        return [(f"[{i}]", member) for i, member in enumerate(value)]
    return []
