# SPDX-License-Identifier: Apache-2.0
"""Frozen dataclasses to JSON and back, and their digests: what crosses processes, machines and years."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import types
import typing
from collections.abc import Mapping
from typing import Any, TypeVar

T = TypeVar("T")


def to_data(value: object) -> Any:
    """Plain JSON data for nouns, tuples, mappings and scalars. A member of a union carries its class name."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        fields = {f.name: to_data(getattr(value, f.name)) for f in dataclasses.fields(value)}
        return {"is": type(value).__name__, **fields}
    if isinstance(value, list | tuple):
        return [to_data(item) for item in value]
    if isinstance(value, Mapping):
        return {str(key): to_data(item) for key, item in value.items()}
    if value is None or isinstance(value, str | int | float | bool):
        return value
    raise TypeError(f"no JSON form for {type(value).__name__}")


def from_data(cls: type[T], data: Any) -> T:
    """Rebuild ``cls`` from ``to_data`` output; an unknown or missing field is a ``ValueError``, never a default."""
    return typing.cast(T, _build(cls, data))


def _build(hint: Any, data: Any) -> Any:
    origin = typing.get_origin(hint)
    if origin in (typing.Union, types.UnionType):
        return _build_union(typing.get_args(hint), data)
    if origin is tuple:
        args = typing.get_args(hint)
        if len(args) == 2 and args[1] is Ellipsis:
            return tuple(_build(args[0], item) for item in data)
        if len(args) != len(data):
            raise ValueError(f"expected {len(args)} items, got {len(data)}")
        return tuple(_build(arg, item) for arg, item in zip(args, data, strict=True))
    if origin is list:
        return [_build(typing.get_args(hint)[0], item) for item in data]
    if origin in (dict, Mapping):
        return {key: _build(typing.get_args(hint)[1], item) for key, item in data.items()}
    if origin is typing.Literal:
        if data not in typing.get_args(hint):
            raise ValueError(f"expected one of {typing.get_args(hint)}, got {data!r}")
        return data
    if dataclasses.is_dataclass(hint):
        return _build_noun(typing.cast(type, hint), data)
    if hint is float and isinstance(data, int) and not isinstance(data, bool):
        return float(data)
    if isinstance(hint, type) and not isinstance(data, hint):
        raise ValueError(f"expected {hint.__name__}, got {type(data).__name__}")
    return data


def _build_noun(cls: type, data: Any) -> Any:
    if not isinstance(data, dict):
        raise ValueError(f"expected an object for {cls.__name__}, got {type(data).__name__}")
    hints = typing.get_type_hints(cls)
    names = {f.name for f in dataclasses.fields(cls)}
    given = {key: value for key, value in data.items() if key != "is"}
    if set(given) != names:
        odd = sorted(set(given) ^ names)
        raise ValueError(f"{cls.__name__}: unknown or missing fields {odd}")
    built = {}
    for name in names:
        try:
            built[name] = _build(hints[name], given[name])
        except (ValueError, TypeError) as error:
            raise ValueError(f"{name} of {cls.__name__}: {error}") from error
    return cls(**built)


def _build_union(args: tuple[Any, ...], data: Any) -> Any:
    if data is None and type(None) in args:
        return None
    members = [arg for arg in args if arg is not type(None)]
    if isinstance(data, dict) and "is" in data:
        for arg in members:
            if dataclasses.is_dataclass(arg) and typing.cast(type, arg).__name__ == data["is"]:
                return _build(arg, data)
    for arg in members:
        try:
            return _build(arg, data)
        except (ValueError, TypeError):
            continue
    raise ValueError(f"{data!r} fits none of {args}")


def dumps(value: object) -> str:
    """Canonical JSON text: sorted keys, no spaces, so that equal nouns have equal text."""
    return json.dumps(to_data(value), sort_keys=True, separators=(",", ":"))


def digest(*values: object) -> str:
    """Content address (sha256, 32 hex digits) of nouns or plain values; anything that can change the answer goes in."""
    body = json.dumps([to_data(value) for value in values], sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(body.encode()).hexdigest()[:32]
