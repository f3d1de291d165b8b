# SPDX-License-Identifier: Apache-2.0
"""Values as Python text: a literal that makes the same number, or a tensor of the same shape, type, spread and gaps."""

from __future__ import annotations

import dataclasses
import enum
import numbers
import types
from typing import Any

import torch

from kernelwright.errors import TaskError

_WRITTEN_OUT = 64
"""Elements up to which a tensor with infinities or nan is written as it is; larger ones are described."""
_PLACES = {"torch": torch, "torch.nn": torch.nn, "torch.nn.functional": torch.nn.functional}
MADE_OF = "_made_of"
"""Makes an instance of a class without calling it; written beside literals that use it."""
MADE_OF_SOURCE = f"""def {MADE_OF}(kind, attributes):
    made = object.__new__(kind)
    for name, value in attributes.items():
        object.__setattr__(made, name, value)
    return made
"""
_INFINITIES = (float("-inf"), float("inf"), float("nan"))


class Name(str):
    """The name under which a value was written down before: its literal is the name."""

    __slots__ = ()


def is_plain(value: object, *, own: bool = True) -> bool:
    """Whether a value is a number, text, None, one of torch's types or functions, or a collection of such: a list, a
    dict, a configuration. ``own``: classes of the user's count too, whose source must then be written down with it."""
    return not unplain(value, own=own)


def unplain(value: object, name: str = "it", within: tuple[int, ...] = (), *, own: bool = True) -> str:
    """What keeps a value from being plain, such as ``it.lock is a lock``; or an empty string."""
    parts: dict[str, object] | None = None
    if own and isinstance(value, enum.Enum):
        return ""
    if isinstance(value, tuple | list):
        parts = {f"{name}[{index}]": item for index, item in enumerate(value)}
    elif isinstance(value, dict):
        parts = {f"a key of {name}[{key!r}]": key for key in value}
        parts |= {f"{name}[{key!r}]": item for key, item in value.items()}
    elif (fields := _fields(value) or (held(value) if own else None)) is not None:
        parts = {f"{name}.{key}": item for key, item in fields.items()}
    if parts is None:
        plain = value is None or isinstance(value, bool | int | float | str | torch.dtype) or _of_torch(value)
        return "" if plain or (own and isinstance(value, type)) else f"{name} is a {type(value).__name__}"
    if id(value) in within:
        return f"{name} holds itself"
    reasons = (unplain(item, key, (*within, id(value)), own=own) for key, item in parts.items())
    return next((reason for reason in reasons if reason), "")


def held(value: object) -> dict[str, object] | None:
    """The attributes of an instance of an ordinary class, those in slots among them, which with the class make another
    like it; None for what is no such instance, or keeps more than attributes."""
    kind = type(value)
    if isinstance(value, torch.nn.Module | type) or kind.__module__.partition(".")[0] in ("builtins", "torch"):
        return None
    usual = ("__new__", "__reduce__", "__reduce_ex__", "__getattribute__", "__setattr__")
    ordinary = all(getattr(kind, name) is getattr(object, name) for name in usual)
    if not ordinary:
        return None
    listed = [vars(base).get("__slots__", ()) for base in kind.__mro__[:-1]]
    slots = [name for names in listed for name in ((names,) if isinstance(names, str) else names)]
    written = hasattr(value, "__dict__") or all("__slots__" in vars(base) for base in kind.__mro__[:-1])
    if not written or any(name.startswith("__") for name in slots):  # a class of C's; weak references, mangled names
        return None
    return {name: getattr(value, name) for name in slots if hasattr(value, name)} | getattr(value, "__dict__", {})


def is_named(value: object) -> bool:
    """Whether a value is a tuple of a class of the user's that names its places."""
    kind = type(value)
    outside = kind.__module__.partition(".")[0] not in ("builtins", "torch")
    return outside and isinstance(value, tuple) and hasattr(kind, "_fields") and hasattr(kind, "_make")


def _fields(value: object) -> dict[str, object] | None:
    """What a configuration was made from: the fields of a dataclass or of a namespace; None for anything else."""
    if isinstance(value, types.SimpleNamespace):
        return vars(value)
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {f.name: getattr(value, f.name) for f in dataclasses.fields(value) if f.init}
    return None


def _of_torch(value: object) -> str:
    """The name of a class or function of torch (a layer to use, an activation), or an empty string."""
    name = getattr(value, "__name__", "")
    for place in ("torch.nn", "torch.nn.functional", "torch"):
        if callable(value) and getattr(_PLACES[place], name or " ", None) is value:
            return f"{place}.{name}"
    return ""


def literal(value: object, *, own: bool = True) -> str:
    """Python text that makes a value like this one: same shapes, dtypes, spread and ranges; weights travel apart.

    ``own``: classes of the user's may be named; without, an enumeration's number and a named tuple's values are it.
    """
    if isinstance(value, torch.Tensor):
        return _tensor(value)
    if isinstance(value, Name):
        return str(value)
    if own and isinstance(value, enum.Enum):
        return _member(value)
    if isinstance(value, tuple | list):
        inside = ", ".join(literal(item, own=own) for item in value)
        listed = f"({inside}{',' if len(value) == 1 else ''})" if isinstance(value, tuple) else f"[{inside}]"
        return f"{type(value).__name__}._make({listed})" if own and is_named(value) else listed
    if isinstance(value, dict):
        return "{" + ", ".join(f"{literal(k, own=own)}: {literal(v, own=own)}" for k, v in value.items()) + "}"
    if isinstance(value, torch.dtype | bool | None):
        return repr(value)
    # Not repr: that of a subclass (numpy's float64, an enumeration) names what the source has not imported.
    if isinstance(value, str):
        return str.__repr__(value)
    if isinstance(value, numbers.Integral):
        return repr(int(value))
    if isinstance(value, numbers.Real):
        number = float(value)
        return repr(number) if number - number == 0.0 else f'float("{number}")'
    if (fields := _fields(value)) is not None:
        loose = isinstance(value, types.SimpleNamespace)
        name = "__import__('types').SimpleNamespace" if loose else type(value).__name__
        return f"{name}({', '.join(f'{key}={literal(item)}' for key, item in fields.items())})"
    if made := _of_torch(value) or _of_class(value):
        return made
    raise TaskError(
        "An input cannot be written down.",
        got=type(value).__name__,
        expected="tensors, numbers, text, None, dataclasses, and lists, tuples or dicts of them",
        what_next="turn it into one of these before the call (an array into a tensor by torch.from_numpy)",
    )


def _member(value: enum.Enum) -> str:
    known = value.name in type(value).__members__  # of flags, a union has no name of its own
    return type(value).__name__ + (f"[{value.name!r}]" if known else f"({literal(value.value)})")


def _of_class(value: object) -> str:
    """The name of a class, or what makes an instance of one; an empty string for anything else."""
    if isinstance(value, type):
        return value.__name__
    attributes = held(value)
    return "" if attributes is None else f"{MADE_OF}({type(value).__name__}, {literal(attributes)})"


def _tensor(value: torch.Tensor) -> str:
    if value.is_meta or value.layout is not torch.strided or value.is_quantized:
        kind = "without data, on the meta device" if value.is_meta else f"{value.layout} of {value.dtype}"
        raise TaskError(
            "An input cannot be written down.",
            got=f"a tensor {kind}",
            expected="dense tensors with data; what is made from them may be sparse or quantised",
            what_next="pass the parts it is made of, and make it inside of the function",
        )
    repeats = [step == 0 and size > 1 for step, size in zip(value.stride(), value.shape, strict=True)]
    if value.numel() and any(repeats):
        once = value[tuple(slice(1) if again else slice(None) for again in repeats)]
        return f"{_tensor(once)}.expand({list(value.shape)})"
    text = _contents(value)
    if value.is_contiguous() or not _apart(value):
        return text
    return f"torch.empty_strided({list(value.shape)}, {value.stride()}, dtype={value.dtype}).copy_({text})"


def _apart(value: torch.Tensor) -> bool:
    """Whether no two elements share memory: those of windows that overlap do."""
    reach = 0
    for step, size in sorted(zip(value.stride(), value.shape, strict=True)):
        if size > 1 and step <= reach:
            return False
        reach += step * (size - 1)
    return value.numel() > 0


def _contents(value: torch.Tensor) -> str:
    shape, dtype = list(value.shape), str(value.dtype)
    if value.dtype is torch.bool:
        return _pattern(value.detach().to("cpu"), leading=False) if value.numel() else f"(torch.rand({shape}) < 0.5)"
    if not value.is_floating_point() and not value.is_complex():
        return _whole(value, shape, dtype)
    if value.is_complex():
        return f"torch.randn({shape}, dtype={dtype})"
    wide = value.detach().to("cpu", torch.float64)
    edge = torch.finfo(value.dtype).max  # a mask's "minus infinity" in many models
    marks = [mark for mark in (*_INFINITIES, -edge, edge) if bool(_is(wide, mark).any())]
    if not marks:
        return _drawn(wide, shape, dtype)
    if wide.numel() <= _WRITTEN_OUT:
        return f"torch.tensor({_nested(wide.tolist())}, dtype={dtype})"
    hit = torch.stack([_is(wide, mark) for mark in marks]).any(0)
    text = _drawn(wide[~hit], shape, dtype)
    leading = wide.ndim > 0 and not bool(hit.all(-1).any())
    for mark in marks:
        text += f".masked_fill({_pattern(_is(wide, mark), leading=leading)}, {literal(mark)})"
    return text


def _whole(value: torch.Tensor, shape: list[int], dtype: str) -> str:
    """Whole numbers of the same range."""
    wide = value.detach().to("cpu", torch.int64)  # torch has neither ranges nor draws of wide unsigned ones
    low, high = (int(wide.min()), int(wide.max())) if wide.numel() else (0, 1)
    draw = f"torch.randint({low}, {min(high + 1, 2**63 - 1)}, {shape}"
    odd = value.dtype in (torch.uint16, torch.uint32, torch.uint64)
    return f"{draw}).to({dtype})" if odd else f"{draw}, dtype={dtype})"


def _is(values: torch.Tensor, mark: float) -> torch.Tensor:
    return values.isnan() if mark != mark else values == mark


def _nested(value: Any) -> str:
    """Nested lists of floats; ``literal`` of a float knows the infinities."""
    return f"[{', '.join(map(_nested, value))}]" if isinstance(value, list) else literal(value)


def _drawn(wide: torch.Tensor, shape: list[int], dtype: str) -> str:
    """Random numbers of the mean and spread of finite ones."""
    mean, spread = (float(wide.mean()), float(wide.std(correction=0))) if wide.numel() else (0.0, 1.0)
    if wide.numel() and float(wide.min()) >= 0.0:
        # Kept nonnegative: probabilities, distances and the like often feed a square root or a logarithm.
        return f"(torch.rand({shape}) * {2 * mean!r}).to({dtype})"
    centre = mean if abs(mean) > 0.25 * spread else 0.0
    shift = f" + {centre:.6g}" if centre else ""
    return f"(torch.randn({shape}) * {spread or 1.0:.6g}{shift}).to({dtype})"


def _run(flags: torch.Tensor) -> int:
    """How many are set before the first that is not."""
    return int(flags.long().cumprod(0).sum())


def _pattern(hit: torch.Tensor, *, leading: bool) -> str:
    """Where something is: a triangle of the last two axes (causal masks) as such, else drawn with the same share.

    ``leading``: the first of every row stays out, so that no row is hit everywhere: its softmax would be nan.
    """
    shape = list(hit.shape)
    if hit.ndim >= 2 and min(shape[-2:]) > 2:
        page = hit.reshape(-1, *shape[-2:])[0]
        row, column = page[0], page[:, 0]
        upper = _run(~row) if not row[0] else 1 - _run(column)
        lower = _run(row) - 1 if row[0] else -_run(~column)
        for name, diagonal in (("triu", upper), ("tril", lower)):
            if torch.equal(hit, getattr(torch.ones(shape, dtype=torch.bool), name)(diagonal)):
                return f"torch.ones({shape}, dtype=torch.bool).{name}({diagonal})"
    kept = f" & (torch.arange({shape[-1]}) > 0)" if leading else ""
    share = float(hit.double().mean()) * (shape[-1] / max(shape[-1] - 1, 1) if leading else 1.0)
    return f"((torch.rand({shape}) < {share!r}){kept})" if leading else f"(torch.rand({shape}) < {share!r})"
