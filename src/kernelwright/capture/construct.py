# SPDX-License-Identifier: Apache-2.0
"""A module to the Python text of a constructor call that makes one like it."""

from __future__ import annotations

import dataclasses
import enum
import functools
import inspect
import re
import types
from collections.abc import Sequence

import torch

from kernelwright.capture.assembled import assembled, obstacle
from kernelwright.capture.values import held, is_named, is_plain, literal, unplain
from kernelwright.errors import TaskError
from kernelwright.load.handed import handed_on

_EMPTY = inspect.Parameter.empty


def constructor(module: torch.nn.Module, init_args: Sequence[object] | None = None, *, whole: bool = False) -> str:
    """A call that builds such a module, from ``init_args``, from attributes named like the parameters, or from those
    of the parts that its constructor hands them to; and where these do not tell, from its parts and what it keeps.

    ``whole``: the latter at once, for every class of the user's, and of torch's with parts, that is no more than that.
    Raises TaskError.
    """
    kind = type(module)
    foreign = kind.__module__.startswith("torch.")
    name = _of_torchs(kind) if foreign else kind.__name__
    # A Transformer's numbers of layers are in its parts alone; a Linear is all that its constructor is told.
    from_parts = not foreign or bool(module._modules)
    if init_args is not None:
        return f"{name}({', '.join(_argument(value) for value in init_args)})"
    if kind in (torch.nn.Sequential, torch.nn.ModuleList, torch.nn.ModuleDict):
        return f"{name}({_contents(module, whole=whole)})"
    if whole and from_parts and not obstacle(module):
        return assembled(module, name, functools.partial(constructor, whole=True))
    found: dict[str, str] = {}
    handed = handed_on(module)
    for parameter in _parameters(kind):
        value = getattr(module, parameter.name, _EMPTY)
        if isinstance(module, torch.nn.RNNBase) and value == parameter.default:
            continue  # not every kind takes all of them
        if isinstance(value, torch.Tensor) or (value is None and parameter.name == "bias"):
            found[parameter.name] = _of_tensor(parameter, value)
        elif value is not _EMPTY and is_plain(value):
            found[parameter.name] = literal(value)
        elif parameter.name in handed:
            found[parameter.name] = literal(handed[parameter.name])
        elif isinstance(value, torch.nn.Module):
            found[parameter.name] = constructor(value, whole=whole)
        elif parameter.default is _EMPTY:
            stuck = obstacle(module) if from_parts else ""
            if from_parts and not stuck:
                return assembled(module, name, constructor)
            why = "" if value is _EMPTY else unplain(value, parameter.name)
            other = f"; and it cannot be put together from its parts: {stuck}" if stuck and stuck != why else ""
            raise TaskError(
                f"The constructor argument {parameter.name} of {kind.__name__} cannot be read off the module.",
                got=(f"an attribute, but {why}" if why else "no attribute of that name") + other,
                expected=f"{kind.__name__}{inspect.signature(kind)}"[:200],
                what_next="pass init_args=(...), the arguments it was made with",
            )
    return f"{name}({', '.join(f'{key}={text}' for key, text in found.items())})"


def _of_torchs(kind: type) -> str:
    """Where one of torch's classes is found: some have no name in torch.nn."""
    here = getattr(torch.nn, kind.__name__, None) is kind
    return f"torch.nn.{kind.__name__}" if here else f"{kind.__module__}.{kind.__qualname__}"


def _contents(module: torch.nn.Module, *, whole: bool) -> str:
    """What one of torch's containers is called with."""
    held = [(key, part) for key, part in module._modules.items() if part is not None]
    parts = [(key, constructor(part, whole=whole)) for key, part in held]
    if isinstance(module, torch.nn.ModuleDict):
        return "{" + ", ".join(f"{key!r}: {text}" for key, text in parts) + "}"
    if [key for key, _ in parts] == [str(i) for i in range(len(parts))]:
        inside = ", ".join(text for _, text in parts)
        return inside if isinstance(module, torch.nn.Sequential) else f"[{inside}]"
    return "__import__('collections').OrderedDict([" + ", ".join(f"({key!r}, {text})" for key, text in parts) + "])"


def described(module: torch.nn.Module, text: str, init_args: Sequence[object] | None = None) -> set[type]:
    """Classes, besides those of its parts, that a constructor call of the module (``text``) names: those of its
    configuration."""
    found: set[type] = set()
    seen: set[int] = set()
    waiting: list[object] = [*(init_args or ()), *(value for part in module.modules() for value in vars(part).values())]
    while waiting:
        value = waiting.pop()
        if id(value) in seen:
            continue
        seen.add(id(value))
        if isinstance(value, type):
            found |= {value} if value.__module__ != "builtins" and _names(text, value) else set()
        elif isinstance(value, enum.Enum):
            found |= {type(value)} if _names(text, type(value)) else set()
        elif isinstance(value, tuple | list):
            found |= {type(value)} if is_named(value) and _names(text, type(value)) else set()
            waiting += value
        elif isinstance(value, dict):
            waiting += [*value, *value.values()]
        elif isinstance(value, types.SimpleNamespace):
            waiting += vars(value).values()
        elif dataclasses.is_dataclass(value) and _names(text, type(value)):
            found.add(type(value))
            waiting += [getattr(value, field.name, None) for field in dataclasses.fields(value)]
        elif (attributes := held(value)) is not None and is_plain(value) and _names(text, type(value)):
            found.add(type(value))
            waiting += attributes.values()
    return found


def _names(text: str, kind: type) -> bool:
    return re.search(rf"(?<![.\w]){re.escape(kind.__name__)}\b", text) is not None


def _parameters(kind: type) -> list[inspect.Parameter]:
    """Of its constructor; of torch's recurrent layers, whose own hands everything on, of the class above but for the
    kind, which is the class."""
    open_ended = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    above = torch.nn.RNNBase if kind in (torch.nn.LSTM, torch.nn.GRU, torch.nn.RNN) else kind
    left_out = ("self", "device", "dtype", *(("mode",) if above is not kind else ()))
    given = inspect.signature(above.__init__).parameters.values()  # type: ignore[misc]  # of the class itself
    return [p for p in given if p.kind not in open_ended and p.name not in left_out]


def _of_tensor(parameter: inspect.Parameter, value: object) -> str:
    """The argument of which a module keeps a tensor: whether to have one (``bias=True``), or the tensor."""
    if parameter.name == "bias" or isinstance(parameter.default, bool):
        return repr(value is not None)
    return literal(value)


def _argument(value: object) -> str:
    """One of ``init_args``: a value, or a part that the module was given."""
    return constructor(value) if isinstance(value, torch.nn.Module) else literal(value)
