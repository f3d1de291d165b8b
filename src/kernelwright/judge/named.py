# SPDX-License-Identifier: Apache-2.0
"""What expressions of a source are, where they can be told without a call of the reference.

A number that is compared with is seldom written there: it is a name of the module, one of two in a line, ``int(2e4)``,
an entry of settings. While assignments alone were read, in four forms, all of these passed for numbers that nobody
knows. So names are looked up where they live, in the module that ran and in what its parts hold, and in what the
source gives them; numbers and lists of numbers are reckoned with, and tensors of a few, which stand for their numbers:
a period that an attribute held as a tensor was a number that nobody knew, as was a step in a buffer of milestones.
"""

from __future__ import annotations

import ast
import builtins
import itertools
import math
import operator
import sys
import types
from collections.abc import Callable, Iterable, Mapping, Sequence
from numbers import Real
from typing import Any

import torch

from kernelwright.judge import calls

LISTED = 64
"""Elements of a list at the most, at either end, and values of an expression."""
STEPS = 2048
"""Parts of one expression that are looked at, those of names that it has among them."""
DEEP = 8
"""Names that are given by others."""
_POWERS = 64
_HELD = 4096
"""Elements of a list that functions are called with."""
_LISTS = (list, tuple, set, frozenset, dict, range)
_MADE = {"tensor", "as_tensor", "array", "asarray"}
"""Functions that make of numbers what is no list: their argument stands for it."""
_AS_IT_IS = {"item", "tolist", "numpy", "cpu", "detach", "clone", "long", "int", "float", "double", "to"}
"""Methods of a tensor that give the same numbers."""
_BUILTINS = ("int", "float", "round", "abs", "min", "max", "len", "sum", "sorted", "list", "tuple", "set", "frozenset",
             "dict", "range", "getattr")  # fmt: skip
_MATHS = ("floor", "ceil", "trunc", "sqrt", "isqrt", "log", "log2", "log10", "exp", "prod")
_FUNCTIONS: dict[str, Callable[..., Any]] = {
    **{name: getattr(builtins, name) for name in _BUILTINS}, **{name: getattr(math, name) for name in _MATHS},
}  # fmt: skip
_OF_DICTS = {"get", "keys", "values"}
_ARITHMETIC: dict[type, Callable[[Any, Any], Any]] = {
    ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.Pow: operator.pow,
    ast.LShift: operator.lshift, ast.FloorDiv: operator.floordiv, ast.Div: operator.truediv, ast.Mod: operator.mod,
    ast.BitOr: operator.or_, ast.RShift: operator.rshift,
}  # fmt: skip


def last_name(node: ast.expr) -> str:
    """The last name of a variable or an attribute."""
    return node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""


def called(name: str) -> str:
    """The name by which it is known what a function of this name returns."""
    return f"{name}()"


def _unpacked(value: Any) -> Any:
    """The number or the list that a tensor on the CPU is that has a few real elements and is no weight; all else as it
    is."""
    few = isinstance(value, torch.Tensor) and value.numel() <= LISTED and value.layout is torch.strided
    if not few or not value.is_cpu or value.requires_grad or value.is_complex() or value.dtype is torch.bool:
        return value
    return next(iter(_tried(value.tolist)), value)


def flat(value: Any) -> list[Any]:
    """The number that a value is, or those of which it is a list, the keys of a dict."""
    value = _unpacked(value)
    if isinstance(value, Real):
        return [] if isinstance(value, bool) else [value]
    if not isinstance(value, _LISTS):
        return []
    return [number for one in _ends(value) for number in flat(one)]


def _ends(value: Any) -> list[Any]:
    """The first and the last elements of a list."""
    last = value[-LISTED:] if isinstance(value, list | tuple | range) else ()
    return [*itertools.islice(value, LISTED), *last]


def _plain(value: Any) -> bool:
    """A number, a word, or a list of such that is not long."""
    if isinstance(value, _LISTS):
        return len(value) <= _HELD and all(isinstance(one, Real | str) for one in value)
    return isinstance(value, Real | str)


def _tried(function: Callable[..., Any], *given: Any) -> list[Any]:
    """What it answers, nothing where it raises: a property of a module may do anything."""
    try:
        return [function(*given)]
    except calls.ANYTHING:
        return []


def _some(values: Iterable[Any]) -> list[Any]:
    """Different ones, as many as are looked at."""
    return list({v if isinstance(v, Real) else id(v): v for v in values}.values())[:LISTED]


def names(module: types.ModuleType, model: torch.nn.Module) -> dict[str, Any]:
    """Those of the module that a reference is, and of the files beside it whose classes are parts of the model."""
    others = {type(part).__module__ for part in model.modules()} - {module.__name__}
    beside = [sys.modules[name] for name in sorted(others) if name in sys.modules and not name.startswith("torch.")]
    return {name: value for each in (*beside, module) for name, value in vars(each).items()}


def parts_of(model: torch.nn.Module) -> tuple[Any, ...]:
    """Modules of a model, and what they hold of plain classes that live beside theirs: a helper that says when a call
    is due held a period that nobody knew."""
    modules = tuple(model.modules())
    homes = {type(part).__module__ for part in modules}
    plain = (value for part in modules for value in vars(part).values() if type(value).__module__ in homes)
    return (*modules, *(value for value in plain if hasattr(value, "__dict__")))


class Namespace:
    """Where names of a source are looked up: what it gives them (``known``, by the last name), in the module that it
    is (``live``), and in ``parts`` of the model, and what they hold, of which each may be ``self``."""

    def __init__(self, known: Mapping[str, Sequence[ast.expr]], live: Mapping[str, Any], parts: Sequence[Any]) -> None:
        self._known, self._live, self._parts = known, live, parts
        self._open: set[str] = set()
        self._left = STEPS
        self._kinds: dict[type, Callable[[Any], Iterable[Any]]] = {
            ast.Constant: lambda node: [node.value],
            ast.Name: lambda node: self._looked_up(node.id),
            ast.Attribute: self._attribute,
            ast.Subscript: self._element,
            ast.UnaryOp: self._signed,
            ast.BinOp: self._reckoned,
            ast.Call: self._called,
            ast.IfExp: lambda node: [*self._of(node.body), *self._of(node.orelse)],
            ast.NamedExpr: lambda node: self._of(node.value),
            ast.Starred: lambda node: self._of(node.value),
            **dict.fromkeys((ast.List, ast.Tuple, ast.Set), self._listed),
            ast.Dict: self._mapped,
        }

    def values(self, node: ast.expr) -> list[Any]:
        """What an expression may be: a name is given several things at times."""
        self._left = STEPS
        return self._of(node)

    def _of(self, node: ast.expr) -> list[Any]:
        kind = self._kinds.get(type(node))
        self._left -= 1
        return _some(kind(node)) if kind is not None and self._left > 0 else []

    def _plainly(self, node: ast.expr) -> list[Any]:
        """The same, tensors of a few numbers as these."""
        return [_unpacked(value) for value in self._of(node)]

    def _looked_up(self, name: str) -> list[Any]:
        if name in self._open or len(self._open) >= DEEP:
            return []
        found = [self._live[name]] if name in self._live else []
        found += [vars(part)[name] for part in self._parts if name in vars(part)]
        self._open.add(name)
        for node in self._known.get(name, ()):
            found += self._of(node)
        self._open.discard(name)
        return found

    def _attribute(self, node: ast.Attribute) -> list[Any]:
        owners = self._parts if last_name(node.value) == "self" else self._of(node.value)
        found = [one for owner in owners for one in _tried(getattr, owner, node.attr)]
        return found or self._looked_up(node.attr)

    def _element(self, node: ast.Subscript) -> list[Any]:
        """One of a list or of settings, all where it is not known which."""
        places, found = self._of(node.slice), list[Any]()
        for owner in self._plainly(node.value):
            if isinstance(owner, _LISTS):
                one = [value for at in places for value in _tried(operator.getitem, owner, at)]
                found += one or _ends(owner.values() if isinstance(owner, dict) else owner)
        return found

    def _signed(self, node: ast.UnaryOp) -> list[Any]:
        found = [value for value in self._plainly(node.operand) if isinstance(value, Real)]
        return [-value for value in found] if isinstance(node.op, ast.USub) else found

    def _reckoned(self, node: ast.BinOp) -> list[Any]:
        function = _ARITHMETIC.get(type(node.op))
        left, right = ([v for v in self._plainly(side) if isinstance(v, Real)] for side in (node.left, node.right))
        pairs: Iterable[tuple[Any, Any]] = itertools.islice(itertools.product(left, right), LISTED)
        if function is None:
            return []
        if isinstance(node.op, ast.Pow | ast.LShift):
            pairs = [(one, other) for one, other in pairs if abs(other) <= _POWERS]
        return [value for pair in pairs for value in _tried(function, *pair)]

    def _called(self, node: ast.Call) -> list[Any]:
        name, method = last_name(node.func), isinstance(node.func, ast.Attribute)
        if name in _MADE:
            return self._of(node.args[0]) if node.args else []
        given = itertools.islice(itertools.product(*map(self._plainly, node.args)), LISTED)
        if isinstance(node.func, ast.Attribute) and name in _OF_DICTS:
            owners = [owner for owner in self._of(node.func.value) if isinstance(owner, dict)]
            found = [v for some in given for owner in owners for v in _tried(getattr(owner, name), *some)]
            return [list(value) if name != "get" else value for value in found]
        if isinstance(node.func, ast.Attribute) and name in _AS_IT_IS:
            return self._of(node.func.value)
        if name not in _FUNCTIONS or (method and name in _BUILTINS):
            return self._looked_up(called(name))
        function = _FUNCTIONS[name]
        fit = [some for some in given if name == "getattr" or all(map(_plain, some))]
        return [value for some in fit for value in _tried(function, *some)]

    def _listed(self, node: ast.List | ast.Tuple | ast.Set) -> list[Any]:
        parts = [(isinstance(one, ast.Starred), self._of(one)) for one in node.elts]
        spread = [flat(values) if starred else values[:1] for starred, values in parts]
        return [[value for some in spread for value in some]]

    def _mapped(self, node: ast.Dict) -> list[Any]:
        pairs = [(self._of(key), self._of(value)) for key, value in zip(node.keys, node.values, strict=True) if key]
        return [{keys[0]: (values or [None])[0] for keys, values in pairs if keys and isinstance(keys[0], Real | str)}]
