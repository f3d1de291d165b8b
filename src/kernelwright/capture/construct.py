# SPDX-License-Identifier: Apache-2.0
"""A module to the Python text of a constructor call that makes one like it."""

from __future__ import annotations

import dataclasses
import inspect
import re
from collections.abc import Sequence

import torch

from kernelwright.capture.values import held, is_plain, literal, unplain
from kernelwright.errors import TaskError
from kernelwright.load.handed import handed_on

_EMPTY = inspect.Parameter.empty


def constructor(module: torch.nn.Module, init_args: Sequence[object] | None = None) -> str:
    """A call that builds such a module, from ``init_args``, from attributes named like the parameters, or from those
    of the parts that its constructor hands them to."""
    kind = type(module)
    foreign = kind.__module__.startswith("torch.")
    name = f"torch.nn.{kind.__name__}" if foreign else kind.__name__
    if init_args is not None:
        return f"{name}({', '.join(_argument(value) for value in init_args)})"
    if kind in (torch.nn.Sequential, torch.nn.ModuleList):
        names = list(module._modules)
        if names == [str(i) for i in range(len(names))]:
            parts = ", ".join(constructor(part) for part in module.children())
            return f"{name}({parts})" if kind is torch.nn.Sequential else f"{name}([{parts}])"
        pairs = ", ".join(f"({key!r}, {constructor(part)})" for key, part in module.named_children())
        return f"{name}(__import__('collections').OrderedDict([{pairs}]))"
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
            found[parameter.name] = constructor(value)
        elif parameter.default is _EMPTY:
            why = "" if value is _EMPTY else unplain(value, parameter.name)
            raise TaskError(
                f"The constructor argument {parameter.name} of {kind.__name__} cannot be read off the module.",
                got=f"an attribute, but {why}" if why else "no attribute of that name",
                expected=f"{kind.__name__}{inspect.signature(kind)}"[:200],
                what_next="pass init_args=(...), the arguments it was made with",
            )
    return f"{name}({', '.join(f'{key}={text}' for key, text in found.items())})"


def described(module: torch.nn.Module, init_args: Sequence[object] | None = None) -> set[type]:
    """Classes, besides those of its parts, that a constructor call of the module names: those of its configuration."""
    text = constructor(module, init_args)
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
        elif isinstance(value, tuple | list):
            waiting += value
        elif isinstance(value, dict):
            waiting += value.values()
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
