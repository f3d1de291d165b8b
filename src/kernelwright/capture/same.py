# SPDX-License-Identifier: Apache-2.0
"""Whether two live values are one value: the caller's, and what the written source makes; in words where not."""

from __future__ import annotations

import collections
import dis
import enum
import functools
import types
from collections.abc import Iterable

import torch

from kernelwright.capture.values import is_plain, literal
from kernelwright.errors import TaskError

_WRAPPERS = {"staticmethod": "__func__", "classmethod": "__func__", "_lru_cache_wrapper": "__wrapped__"}
_ENDLESS = 12
"""Values within values that are looked at; deeper ones are taken for equal."""
ABSENT = object()
"""What stands for a value that one of two does not have."""


def difference(live: object, written: object, name: str, seen: tuple[int, ...] = ()) -> str:
    """What of ``live`` is another in ``written``, such as ``SCALE is 3.0 and would be 2.0``; or an empty string.

    Objects of which nothing is known (locks, handles) are equal where their classes are called alike.
    """
    if live is written or id(live) in seen or len(seen) > _ENDLESS:
        return ""
    seen = (*seen, id(live))
    if live is ABSENT or written is ABSENT:
        return f"{name} is there no more" if live is ABSENT else f"{name} is {shown(live)} and would not be there"
    if isinstance(live, types.FunctionType) and isinstance(written, types.FunctionType):
        return _functions(live, written, name, seen)
    if isinstance(live, type) and isinstance(written, type):
        return "" if issubclass(live, enum.Enum) else _classes(live, written, name, seen)
    if type(live).__name__ != type(written).__name__:
        return f"{name} is {shown(live)} and would be {shown(written)}"
    if isinstance(live, torch.Tensor) and isinstance(written, torch.Tensor):
        return "" if equal(live, written) else f"{name} is another tensor than its source makes"
    if is_plain(live) and is_plain(written):
        return "" if _text(live) == _text(written) else f"{name} is {shown(live)} and would be {shown(written)}"
    pairs = _inside(live, written) if _raw(live) == _raw(written) else None
    if pairs is None:
        return f"{name} is {shown(live)} and would be {shown(written)}"
    return next((why for part, one, other in pairs if (why := difference(one, other, f"{name}{part}", seen))), "")


def equal(live: torch.Tensor, written: torch.Tensor) -> bool:
    """Bit for bit but for the signs of NaN, with the same shape and type."""
    if live.shape != written.shape or live.dtype is not written.dtype or live.layout is not written.layout:
        return False
    if live.is_meta or written.is_meta:
        return live.is_meta is written.is_meta
    one, other = live.detach().to("cpu"), written.detach().to("cpu")
    try:
        one, other = one.to_dense(), other.to_dense()
        return bool(((one == other) | ((one != one) & (other != other))).all())
    except RuntimeError:  # quantised and other kinds that have no comparison
        return False


def mark(value: object, depth: int = 3) -> object:
    """Something that is another after the value was replaced or written to."""
    if isinstance(value, torch.Tensor):
        return id(value), value._version
    if isinstance(value, list | tuple | set | frozenset | dict) and depth:
        items = [*value, *(value.values() if isinstance(value, dict) else ())]
        return id(value), *(mark(item, depth - 1) for item in items)
    if isinstance(value, type) and depth:
        held = ((name, item) for name, item in vars(value).items() if not name.startswith("__"))
        return id(value), *((name, mark(item, depth - 1)) for name, item in held)
    return repr(value) if isinstance(value, bool | int | float | str) else id(value)


def shown(value: object) -> str:
    """A value in few words."""
    if isinstance(value, torch.Tensor):
        return f"a tensor of shape {list(value.shape)}"
    text = repr(value) if is_plain(value) else f"a {type(value).__name__}"
    return text if len(text) <= 60 else f"{text[:57]}..."


def _text(value: object) -> str:
    try:
        return literal(value)
    except TaskError:
        return repr(value)


def _raw(value: object) -> object:
    """What bytes, ranges, rings and arrays of numpy are compared by; None for anything else."""
    if isinstance(value, bytes | bytearray | complex | range | slice | collections.deque):
        return repr(value)
    if type(value).__module__ == "numpy" and hasattr(value, "tobytes"):
        return type(value).__name__, str(getattr(value, "dtype", "")), getattr(value, "shape", ()), value.tobytes()
    return None


def _inside(live: object, written: object) -> Iterable[tuple[str, object, object]] | None:
    """(name, one, other) of what two values of one kind hold; nothing where that is not known; None where they cannot
    be equal."""
    if isinstance(live, list | tuple) and isinstance(written, list | tuple):
        if len(live) != len(written):
            return None
        return [(f"[{i}]", one, other) for i, (one, other) in enumerate(zip(live, written, strict=True))]
    if isinstance(live, dict) and isinstance(written, dict):
        if list(map(_key, live)) != list(map(_key, written)):
            return None
        pairs = zip(live, live.values(), written.values(), strict=True)
        return [(f"[{key!r}]", one, other) for key, one, other in pairs]
    if isinstance(live, set | frozenset) and isinstance(written, set | frozenset):
        return () if set(map(_key, live)) == set(map(_key, written)) else None
    if isinstance(live, property) and isinstance(written, property):
        return [("", getattr(live, part), getattr(written, part)) for part in ("fget", "fset", "fdel")]
    if isinstance(live, functools.partial) and isinstance(written, functools.partial):
        return [(f".{part}", getattr(live, part), getattr(written, part)) for part in ("func", "args", "keywords")]
    if isinstance(live, types.MethodType) and isinstance(written, types.MethodType):
        return [("", live.__func__, written.__func__)]
    if held := _WRAPPERS.get(type(live).__name__):
        return [("", getattr(live, held), getattr(written, held))]
    if isinstance(live, types.ModuleType | torch.nn.Module) or type(live).__module__.partition(".")[0] == "torch":
        return ()  # modules come from where both import them; parts and what torch keeps are compared by others
    one, other = getattr(live, "__dict__", None), getattr(written, "__dict__", None)
    if isinstance(one, dict) and isinstance(other, dict):
        return [(f".{key}", one.get(key, ABSENT), other.get(key, ABSENT)) for key in {**one, **other}]
    return ()


def _key(key: object) -> str:
    return _text(key) if is_plain(key) else type(key).__name__


def _functions(live: types.FunctionType, written: types.FunctionType, name: str, seen: tuple[int, ...]) -> str:
    if not _codes(live.__code__, written.__code__):
        return f"{name} is not the function that its file defines now"
    cells = zip(live.__code__.co_freevars, live.__closure__ or (), written.__closure__ or (), strict=False)
    for variable, one, other in cells:
        if why := difference(_cell(one), _cell(other), f"{variable}, which {name} closes over,", seen):
            return why
    for part, words in (
        ("__defaults__", "defaults"),
        ("__kwdefaults__", "keyword defaults"),
        ("__dict__", "attributes"),
    ):
        if why := difference(getattr(live, part), getattr(written, part), f"what {name} has as its {words}", seen):
            return why
    return ""


def _cell(cell: types.CellType) -> object:
    try:
        return cell.cell_contents
    except ValueError:  # not filled yet
        return ABSENT


def _codes(live: types.CodeType, written: types.CodeType) -> bool:
    """Whether two functions were compiled from one text, wherever it stood."""
    if any(name.startswith("@py") for name in (*live.co_names, *live.co_varnames)):
        return True  # pytest has rewritten its assert statements
    if any(step.opname == "IMPORT_NAME" for step in dis.get_instructions(live)):
        return True  # relative imports were written out
    same = ("co_code", "co_names", "co_varnames", "co_freevars", "co_argcount", "co_kwonlyargcount")
    if any(getattr(live, part) != getattr(written, part) for part in same):
        return False
    if len(live.co_consts) != len(written.co_consts):
        return False
    for one, other in zip(live.co_consts, written.co_consts, strict=True):
        if isinstance(one, types.CodeType) and isinstance(other, types.CodeType):
            if not _codes(one, other):
                return False
        elif type(one) is not type(other) or repr(one) != repr(other) and not isinstance(one, frozenset):
            return False
    return True


def _classes(live: type, written: type, name: str, seen: tuple[int, ...]) -> str:
    for key in {**vars(live), **vars(written)}:
        one, other = vars(live).get(key, ABSENT), vars(written).get(key, ABSENT)
        if key.startswith("__") and not isinstance(one, types.FunctionType):
            continue
        if key.startswith("_abc") or isinstance(one, types.MemberDescriptorType):
            continue
        if why := difference(one, other, f"{name}.{key}", seen):
            return why
    return ""
