# SPDX-License-Identifier: Apache-2.0
"""What the source of a reference says of conditions: the numbers in comparisons, those of which it takes rests or whole
parts, and those of lists that it looks in, by ``in`` or a search. Of what Python decides no operator tells: a target
that is copied in every 10000th call is none to them."""

from __future__ import annotations

import ast
import functools
import itertools
import math
import operator
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from kernelwright.task import Task

LARGEST = 10**7
"""Of whole numbers that are taken: a counter that is further on may be a size."""
NUMBERS = 6
"""Of a source at the most, the largest: small ones are met by lot."""
LISTED = 64
"""Elements of a list at the most, at either end."""
_POWERS = 64
_SEARCHES = {"bisect", "bisect_left", "bisect_right", "searchsorted", "index", "count", "divmod", "fmod", "remainder"}
"""Functions of which numbers that are handed to them are read: the steps at which a rate falls stand in a list."""
_LISTS = {"list", "tuple", "set", "frozenset", "sorted", "range", "tensor"}
"""Those that make a list of another, or of numbers."""
_ARITHMETIC: dict[type, Callable[[Any, Any], Any]] = {
    ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.Pow: operator.pow,
    ast.LShift: operator.lshift, ast.FloorDiv: operator.floordiv, ast.Div: operator.truediv,
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Source:
    """What is said of conditions in the sources of a task."""

    numbers: frozenset[float]
    """With which something is compared, or of which a rest or a whole part is taken, or that are looked for."""
    names: frozenset[str]
    """Of what else is, that has no number in the source itself."""
    turns: bool
    """Python goes one of two ways by a comparison, and no loop ends by one: how often a loop runs is the reference's
    own affair, where an honest program may differ by one."""


class _Reader(ast.NodeVisitor):
    def __init__(self) -> None:
        self.known: dict[str, set[float]] = {}
        self.met: list[ast.expr] = []
        self.turns = self.loops = False

    def visit_Assign(self, node: ast.Assign) -> None:
        for target in node.targets:
            self._name(target, node.value)
        self.generic_visit(node)

    def visit_arguments(self, node: ast.arguments) -> None:
        given = node.args[len(node.args) - len(node.defaults) :]
        pairs = [*zip(given, node.defaults, strict=True), *zip(node.kwonlyargs, node.kw_defaults, strict=True)]
        for one, value in pairs:
            if value is not None:
                self.known.setdefault(one.arg, set()).update(_numbers(value))
        self.generic_visit(node)

    def visit_BinOp(self, node: ast.BinOp) -> None:
        if isinstance(node.op, ast.Mod | ast.FloorDiv):
            self.met.append(node.right)
        self.generic_visit(node)

    def visit_Compare(self, node: ast.Compare) -> None:
        self.met += [node.left, *node.comparators]
        self.generic_visit(node)

    def visit_Call(self, node: ast.Call) -> None:
        if _named(node.func) in _SEARCHES:
            self.met += [*node.args, *(given.value for given in node.keywords)]
            self.met += [node.func.value] if isinstance(node.func, ast.Attribute) else []
        self.generic_visit(node)

    def visit_If(self, node: ast.If) -> None:
        self.turns |= any(isinstance(part, ast.Compare) for part in ast.walk(node.test))
        self.generic_visit(node)

    def visit_IfExp(self, node: ast.IfExp) -> None:
        self.turns |= any(isinstance(part, ast.Compare) for part in ast.walk(node.test))
        self.generic_visit(node)

    def visit_While(self, node: ast.While) -> None:
        self.loops = True
        self.generic_visit(node)

    def visit_Break(self, node: ast.Break) -> None:
        self.loops = True

    def _name(self, target: ast.expr, value: ast.expr) -> None:
        if name := _named(target):
            self.known.setdefault(name, set()).update(_numbers(value))


def _named(node: ast.expr) -> str:
    """The last name of a variable or an attribute."""
    return node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""


def _numbers(node: ast.expr) -> list[float]:
    """The number that an expression is, or those of which it is a list, the keys of a dict."""
    parts: list[ast.expr] = []
    if isinstance(node, ast.List | ast.Tuple | ast.Set):
        parts = node.elts
    elif isinstance(node, ast.Dict):
        parts = [key for key in node.keys if key is not None]
    elif isinstance(node, ast.Call) and _named(node.func) in _LISTS:
        parts = node.args
    return [number for part in parts for number in _numbers(part)] if parts else _number(node)


def _number(node: ast.expr) -> list[float]:
    """The number that an expression of numbers alone is."""
    if isinstance(node, ast.Constant):
        return [node.value] if isinstance(node.value, int | float) and not isinstance(node.value, bool) else []
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        return [-value for value in _number(node.operand)]
    if isinstance(node, ast.BinOp) and type(node.op) in _ARITHMETIC:
        sides = _number(node.left), _number(node.right)
        steep = isinstance(node.op, ast.Pow | ast.LShift) and any(abs(n) > _POWERS for n in sides[1])
        if all(sides) and not steep:
            try:
                return [_ARITHMETIC[type(node.op)](sides[0][0], sides[1][0])]
            except (ArithmeticError, TypeError):
                return []
    return []


@functools.lru_cache(maxsize=8)
def source(task: Task) -> Source:
    """What the sources of a task say."""
    return read(task.reference, *(text for _, text in task.beside))


def read(*texts: str) -> Source:
    """What sources say; one that is no Python says nothing."""
    reader = _Reader()
    for text in texts:
        try:
            reader.visit(ast.parse(text))
        except SyntaxError:
            continue
    found, names = set[float](), set[str]()
    for node in reader.met:
        found.update(_numbers(node))
        if name := _named(node):
            found.update(reader.known.get(name, ()))
            names.add(name)
    usual = frozenset(n for n in found if isinstance(n, int) or math.isfinite(n))
    return Source(usual, frozenset(names), reader.turns and not reader.loops)


def counts(task: Task, model: torch.nn.Module) -> list[int]:
    """Whole numbers of its source, and those that its modules hold by names that are compared with, the largest
    first."""
    said = source(task)
    held = [one for part in model.modules() for name in said.names for one in _held(part, name)]
    numbers = [*said.numbers, *(one for one in held if isinstance(one, int | float) and not isinstance(one, bool))]
    fit = {int(n) for n in numbers if math.isfinite(n) and 2 <= n <= LARGEST and n == int(n)}
    return sorted(fit, reverse=True)[:NUMBERS]


def _held(part: torch.nn.Module, name: str) -> list[Any]:
    """What a module has by a name, the first and the last of it where that is a list, or the keys of a dict."""
    value = vars(part).get(name)
    if not isinstance(value, list | tuple | set | frozenset | dict | range):
        return [value]
    return [*itertools.islice(value, LISTED), *(value[-LISTED:] if isinstance(value, list | tuple) else ())]
