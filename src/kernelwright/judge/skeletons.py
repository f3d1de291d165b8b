# SPDX-License-Identifier: Apache-2.0
"""Nested arguments and results as a JSON skeleton and a flat list of tensors, so that no object crosses a process.

Skeleton: ``{"t": i}`` tensor leaf i (depth first), ``{"list": [...]}``, ``{"tuple": [...]}``, ``{"set": [...]}``,
``{"dict": {key: ...}}`` (``{"pairs": [[key, ...], [...]]}`` where a key is no text), ``{"v": scalar or None}``,
``{"dtype": "float32"}``, ``{"device": "cpu"}``, ``{"size": [...]}``, ``{"slice": [...]}``, ``{"complex": [re, im]}``;
of arguments ``{"named": [type's name, [field, ...], [...]]}``, a tuple whose members a model may ask for by name, and
``{"attributes": {key: ...}}``, a mapping whose members it may, as tokenizers make them, and of results a dataclass. Of
what a constructor takes also ``{"namespace": {field: ...}}``, ``{"from": [module, name]}``, a class or a function of
torch (an activation, a norm) or a plain type of Python's, and ``{"partial": [function, arguments, keywords]}`` of such.
"""

from __future__ import annotations

import dataclasses
import functools
import importlib
import re
import types
from collections import defaultdict, namedtuple
from collections.abc import Mapping, Sequence
from typing import Any, cast

import torch

NUMBER = re.compile(r"[+-]?\b(?:\d[\d.]*(?:e[+-]?\d+)?|inf|nan|True|False)j?\b")
"""In what is ``shown``: something that is no tensor, perhaps cut short."""
TYPES = {kind.__name__: kind for kind in (bool, int, float, complex, str, list, tuple, dict, set)}
"""Types of Python's own that have a name in another process."""
PUBLIC = ("torch.nn", "torch.nn.functional", "torch", "torch.special", "torch.linalg", "torch.fft", "torch.nn.init")
"""Modules where a function of torch is looked for that is not to be found where it says it is (F.max_pool2d)."""


def flatten(value: Any, *, named: bool = False) -> tuple[Any, list[torch.Tensor]]:
    """Skeleton and tensor leaves of ``value``; ``named``: whether named tuples keep their names, or are tuples as any
    other, as results are. Raises TypeError for an object that has no plain form."""
    leaves: list[torch.Tensor] = []
    return _flatten(value, leaves, named), leaves


def of_constructor(value: Any) -> tuple[Any, list[torch.Tensor]]:
    """The same of what a constructor takes, where there may be namespaces, classes and functions of torch, and partial
    calls of those: configurations hold them, an activation, a norm with its eps."""
    leaves: list[torch.Tensor] = []
    return _flatten(value, leaves, named=True, making=True), leaves


def unflatten(skeleton: Any, leaves: Sequence[Any]) -> Any:
    """The value of ``skeleton`` with ``leaves`` in their places. Raises ValueError for a malformed skeleton."""
    if not isinstance(skeleton, dict) or len(skeleton) != 1:
        raise ValueError(f"not a skeleton: {skeleton!r:.80}")
    ((kind, body),) = skeleton.items()
    if kind == "t":
        return leaves[body]
    if kind in ("list", "tuple", "set"):
        members = [unflatten(item, leaves) for item in body]
        return members if kind == "list" else tuple(members) if kind == "tuple" else set(members)
    if kind == "dict":
        return {key: unflatten(item, leaves) for key, item in body.items()}
    if kind == "pairs":
        return dict(zip(body[0], (unflatten(item, leaves) for item in body[1]), strict=True))
    if kind == "v":
        return body
    if kind == "named":
        return _type(body[0], tuple(body[1]))(*(unflatten(item, leaves) for item in body[2]))
    if kind == "attributes":
        return Attributes((key, unflatten(item, leaves)) for key, item in body.items())
    if kind == "namespace":
        return types.SimpleNamespace(**{key: unflatten(item, leaves) for key, item in body.items()})
    if kind == "partial":
        function, arguments, keywords = (unflatten(item, leaves) for item in body)
        return functools.partial(function, *arguments, **keywords)
    return _special(kind, body)


class Attributes(dict[str, Any]):
    """A mapping that gives its members as attributes as well."""

    def __getattr__(self, name: str) -> Any:
        if name not in self:
            raise AttributeError(name)
        return self[name]


@functools.lru_cache
def _type(name: str, fields: tuple[str, ...]) -> Any:
    """One type for all calls, as there is one where the task is."""
    return namedtuple(name, fields)  # noqa: PYI024 - the fields are not known before


class _Tensor:
    """Stands where a tensor does."""

    def __repr__(self) -> str:
        return "tensor"


def shown(skeleton: Any) -> str:
    """As Python writes it, for messages: ``(tensor, {'b': tensor})``."""
    return repr(unflatten(skeleton, cast(Any, defaultdict(_Tensor))))


def names(skeleton: Any) -> list[str]:
    """A name for every tensor leaf, in order: ``0``, ``1.weight``; empty text for a lone tensor."""
    return [path for path, leaf in leaves(skeleton) if "t" in leaf]


def leaves(skeleton: Any, path: str = "") -> list[tuple[str, Any]]:
    """Name and skeleton of everything that holds nothing else, in order."""
    ((kind, body),) = skeleton.items()
    inner: list[tuple[Any, Any]] = []
    if kind in ("list", "tuple", "partial"):
        inner = list(enumerate(body))
    elif kind in ("dict", "attributes", "namespace"):
        inner = list(body.items())
    elif kind == "pairs":
        inner = list(zip(body[0], body[1], strict=True))
    elif kind == "named":
        inner = list(zip(body[1], body[2], strict=True))
    else:
        return [(path, skeleton)]
    return [found for key, item in inner for found in leaves(item, f"{path}.{key}" if path else str(key))]


def shifted(skeleton: Any, by: int) -> Any:
    """``skeleton`` with its tensor leaves numbered from ``by``."""
    ((kind, body),) = skeleton.items()
    if kind == "t":
        return {"t": body + by}
    if kind in ("list", "tuple", "set", "partial"):
        return {kind: [shifted(item, by) for item in body]}
    if kind in ("dict", "attributes", "namespace"):
        return {kind: {key: shifted(item, by) for key, item in body.items()}}
    if kind == "pairs":
        return {"pairs": [body[0], [shifted(item, by) for item in body[1]]]}
    if kind == "named":
        return {"named": [body[0], body[1], [shifted(item, by) for item in body[2]]]}
    return skeleton


def _flatten(value: Any, leaves: list[torch.Tensor], named: bool, making: bool = False) -> Any:
    if isinstance(value, torch.Tensor):
        leaves.append(value)
        return {"t": len(leaves) - 1}
    if isinstance(value, torch.Size):
        return {"size": list(value)}
    if isinstance(value, list | tuple | set):
        kind = "list" if isinstance(value, list) else "tuple" if isinstance(value, tuple) else "set"
        inner = [_flatten(item, leaves, named, making) for item in value]
        fields = getattr(value, "_fields", None) if named and kind == "tuple" else None
        return {kind: inner} if fields is None else {"named": [type(value).__name__, list(fields), inner]}
    if isinstance(value, Mapping):
        inner = [_flatten(item, leaves, named, making) for item in value.values()]
        if all(type(key) is str for key in value):
            kind = "attributes" if named and _as_attributes(value) else "dict"
            return {kind: dict(zip(value, inner, strict=True))}
        return {"pairs": [[_key(key) for key in value], inner]}
    if value is None or isinstance(value, bool | int | float | str):
        return {"v": value}
    if dataclasses.is_dataclass(value) and not isinstance(value, type) and (making or not named):
        inner = [_flatten(getattr(value, field.name), leaves, named, making) for field in dataclasses.fields(value)]
        fields = [field.name for field in dataclasses.fields(value)]
        return {"namespace" if making else "attributes": dict(zip(fields, inner, strict=True))}
    made = _flatten_made(value, leaves) if making else None
    return _flatten_special(value) if made is None else made


def _as_attributes(value: Mapping[str, Any]) -> bool:
    """Whether a mapping of a type of its own gives its members by name."""
    return type(value) is not dict and bool(value) and all(getattr(value, k, None) is v for k, v in value.items())


def _flatten_made(value: Any, leaves: list[torch.Tensor]) -> Any:
    """Of what only constructors take; None for anything else."""
    if type(value) is types.SimpleNamespace:
        return {"namespace": {key: _flatten(item, leaves, True, True) for key, item in vars(value).items()}}
    if type(value) is functools.partial:
        parts = (value.func, list(value.args), dict(value.keywords))
        return {"partial": [_flatten(part, leaves, True, True) for part in parts]}
    found = _whence(value) if _lent(value) else None
    return None if found is None else {"from": list(found)}


def _lent(value: Any) -> bool:
    """Whether this is a class or a function of torch's, or one of ``TYPES``."""
    if not isinstance(value, type | types.FunctionType | types.BuiltinFunctionType):
        return False
    return value in TYPES.values() or _below(getattr(value, "__module__", None))


def _below(module: Any) -> bool:
    """Whether a module is torch or below it, and nothing but names and dots."""
    parts = module.split(".") if isinstance(module, str) else [""]
    return parts[0] == "torch" and all(map(str.isidentifier, parts))


def _whence(value: Any) -> tuple[str, str] | None:
    """Module and name from which any process has this very class or function; None where there are none."""
    if value in TYPES.values():
        return "builtins", value.__name__
    for module in (value.__module__, *PUBLIC):
        held = vars(importlib.import_module(module))
        own = str(value.__name__)
        name = own if held.get(own) is value else next((other for other in held if held[other] is value), "")
        if name.isidentifier():
            return module, name
    return None


def _borrowed(module: str, name: str) -> Any:
    """What another process named so. Raises ValueError for what is neither torch's nor one of ``TYPES``."""
    if module == "builtins" and name in TYPES:
        return TYPES[name]
    found: Any = getattr(importlib.import_module(module), name, None) if _below(module) else None
    if not _lent(found):
        raise ValueError(f"no class or function of torch: {module!r:.80}, {name!r:.80}")
    return found


def _flatten_special(value: Any) -> Any:
    if isinstance(value, torch.dtype):
        return {"dtype": str(value).removeprefix("torch.")}
    if isinstance(value, torch.device):
        return {"device": str(value)}
    if isinstance(value, slice):
        return {"slice": [value.start, value.stop, value.step]}
    if isinstance(value, complex):
        return {"complex": [value.real, value.imag]}
    said = f"a value of type {type(value).__name__}"
    if isinstance(value, type | types.FunctionType | types.BuiltinFunctionType):
        kind, name = "class" if isinstance(value, type) else "function", str(value.__qualname__)
        said = f"the {kind} {name.rpartition('<locals>.')[2]}"
    raise TypeError(f"{said} cannot be handed to another process")


def _key(key: Any) -> Any:
    if key is None or isinstance(key, bool | int | float | str):
        return key
    raise TypeError(f"a mapping key of type {type(key).__name__} cannot be handed to another process")


def _special(kind: str, body: Any) -> Any:
    if kind == "dtype":
        return dtype(body)
    if kind == "device":
        return torch.device(body)
    if kind == "size":
        return torch.Size(body)
    if kind == "slice":
        return slice(*body)
    if kind == "complex":
        return complex(*body)
    if kind == "from":
        return _borrowed(*body)
    raise ValueError(f"not a skeleton: {kind!r:.80}")


def dtype(name: str) -> torch.dtype:
    """The torch dtype called ``name`` (``float32``). Raises ValueError for any other name."""
    found = getattr(torch, name, None)
    if not isinstance(found, torch.dtype):
        raise ValueError(f"no dtype {name!r:.40}")
    return found
