# SPDX-License-Identifier: Apache-2.0
"""What the source of a reference says of conditions: the numbers in comparisons and cases, those of which it takes
rests or whole parts, those of lists that it looks in, by ``in`` or a search, and those that a counter is reckoned with.
Of what Python decides no operator tells: a target that is copied in every 10000th call is none to them. What such an
expression is ``named`` says."""

from __future__ import annotations

import ast
import functools
import math
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import torch

from kernelwright.judge.named import Namespace, called, flat, last_name, parts_of

if TYPE_CHECKING:
    from kernelwright.task import Task

LARGEST, FARTHEST = 10**7, 10**12
"""Of whole numbers that are taken: a counter that is further on may be a size. Where it is none, as of samples or
tokens that a model has seen, they are taken up to the second: who left out what is done behind 1e9 of them passed."""
NUMBERS, FEW = 6, 2
"""Of a source at the most, the largest, as small ones are met by lot; and those beyond LARGEST, the least."""
_SEARCHES = {"bisect", "bisect_left", "bisect_right", "searchsorted", "index", "count", "divmod", "fmod", "remainder",
             "isin", "equal", "eq", "ne", "lt", "le", "gt", "ge"}  # fmt: skip
"""Functions of which numbers that are handed to them are read: the steps at which a rate falls stand in a list. The
comparisons of tensors are such: a target that is copied where ``n.eq(20000)`` was copied by no one who passed."""
_LOOKED_UP = {"get", "pop"}
"""Those whose numbers are the keys of what they are methods of: a target that is copied at a step that a dict tells."""
_ENDS = {"min", "max", "minimum", "maximum", "clamp", "clip", "pow"}
"""Functions of which the arguments are numbers that a counter is reckoned with: a rate stays as it is up to one."""
_SHAPES, _SIZES = {"shape", "ndim"}, {"size", "dim", "numel", "len"}
_REMAKES = {"int", "float", "bool", "abs", "min", "max", "range", "round"}
"""Functions that make of shapes what is as fixed as these."""
_ANY = ast.Name("", ast.Load())
"""Of which nothing is known: a place in a list, an argument of a call of the module."""


@dataclass(frozen=True, slots=True)
class Source:
    """What is said of conditions in the sources of a task."""

    met: tuple[ast.expr, ...]
    """With what something is compared, or of what a rest or a whole part is taken, or what is looked for."""
    reckoned: tuple[ast.expr, ...]
    """Sums, products, quotients and the like, and the least or the largest of some."""
    known: Mapping[str, Sequence[ast.expr]]
    """What names and attributes are given, by their last name; and what functions return, by ``called``."""
    turns: bool
    """Python may go several ways, and no loop ends by what tensors hold: how often that runs is the reference's own
    affair, where an honest program may differ by one. A comparison counts wherever it is made: it was looked for in the
    test of an ``if`` alone, and a norm above which all was zero passed where it had a name, or a method of its own."""

    def numbers(self, live: Mapping[str, Any] | None = None, parts: Iterable[Any] = ()) -> frozenset[float]:
        """Those that are met, as far as the source tells them, the names of its module, or what its modules hold."""
        return self._told(self.met, live, parts)

    def beside(
        self, names: Iterable[str], live: Mapping[str, Any] | None = None, parts: Iterable[Any] = ()
    ) -> frozenset[float]:
        """Those that are reckoned with what has one of these names, or with what comes of it: where a counter in
        20000ths is compared with one, the one was all that was read."""
        wanted = self._coming_of(names)
        nodes = [side for node in self.reckoned if wanted & _names(node) for side in _sides(node)]
        return self._told(nodes, live, parts)

    def _told(
        self, nodes: Iterable[ast.expr], live: Mapping[str, Any] | None, parts: Iterable[Any]
    ) -> frozenset[float]:
        space = Namespace(self.known, live or {}, tuple(parts))
        found = {number for node in nodes for value in space.values(node) for number in flat(value)}
        return frozenset(number for number in found if isinstance(number, int) or math.isfinite(number))

    def fixed(self, node: ast.expr, within: frozenset[str] = frozenset()) -> bool:
        """Whether an expression says the same whatever tensors hold: it has shapes and constants in it."""
        if isinstance(node, ast.Attribute) and node.attr in _SHAPES:
            return True
        if isinstance(node, ast.Call) and last_name(node.func) in _SIZES:
            return True
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in _REMAKES:
            return all(self.fixed(one, within) for one in node.args)
        if isinstance(node, ast.Name):
            given = self.known.get(node.id, ())
            begins = any(node.id not in _names(one) for one in given)
            return node.id in within or begins and all(self.fixed(one, within | {node.id}) for one in given)
        if isinstance(node, ast.Attribute | ast.Call):
            return False
        return all(self.fixed(one, within) for one in ast.iter_child_nodes(node) if isinstance(one, ast.expr))

    def _coming_of(self, names: Iterable[str]) -> set[str]:
        """These names, and those that are given what has one of them in it."""
        wanted, more = set[str](), set(names)
        within = {name: set[str]().union(*map(_names, given)) for name, given in self.known.items()}
        while more:
            wanted |= more
            more = {name.removesuffix("()") for name, inside in within.items() if inside & wanted} - wanted
        return wanted


def _names(node: ast.expr) -> set[str]:
    """The last names of what an expression has in it."""
    return {last_name(part) for part in ast.walk(node) if isinstance(part, ast.Name | ast.Attribute)}


def _sides(node: ast.expr) -> list[ast.expr]:
    """What is reckoned with one another."""
    if isinstance(node, ast.BinOp):
        return [node.left, node.right]
    return [*node.args, *(given.value for given in node.keywords)] if isinstance(node, ast.Call) else []


class _Reader(ast.NodeVisitor):
    def __init__(self) -> None:
        self.known: dict[str, list[ast.expr]] = {}
        self.met: list[ast.expr] = []
        self.reckoned: list[ast.expr] = []
        self.turns = False
        self.ends: list[ast.expr] = []
        self._asked: list[ast.expr] = []
        self._functions: dict[str, list[str]] = {}
        self._within: list[str] = []
        self._calls: list[ast.Call] = []

    def visit_Assign(self, node: ast.Assign) -> None:
        for target in node.targets:
            self._name(target, node.value)
        self.generic_visit(node)

    def visit_AnnAssign(self, node: ast.AnnAssign) -> None:
        if node.value is not None:
            self._name(node.target, node.value)
        self.generic_visit(node)

    def visit_NamedExpr(self, node: ast.NamedExpr) -> None:
        self._name(node.target, node.value)
        self.generic_visit(node)

    def visit_For(self, node: ast.For) -> None:
        self._name(node.target, ast.Subscript(node.iter, _ANY, ast.Load()))
        self.generic_visit(node)

    def visit_comprehension(self, node: ast.comprehension) -> None:
        self._name(node.target, ast.Subscript(node.iter, _ANY, ast.Load()))
        self.generic_visit(node)

    def visit_AugAssign(self, node: ast.AugAssign) -> None:
        made = ast.BinOp(node.target, node.op, node.value)
        self._name(node.target, made)
        self.visit(made)

    def visit_FunctionDef(self, node: ast.FunctionDef) -> None:
        names = [one.arg for one in (*node.args.posonlyargs, *node.args.args)]
        self._functions[node.name] = names[1:] if names[:1] == ["self"] else names
        if node.name == "forward":
            for name in names:
                self.known.setdefault(name, []).append(_ANY)
        self._within.append(node.name)
        self.generic_visit(node)
        self._within.pop()

    def visit_ClassDef(self, node: ast.ClassDef) -> None:
        self.generic_visit(node)
        made = next((one for one in node.body if isinstance(one, ast.FunctionDef) and one.name == "__init__"), None)
        if made is not None:  # what a class is called with its constructor is handed
            self._functions[node.name] = [one.arg for one in made.args.args[1:]]

    def visit_Return(self, node: ast.Return) -> None:
        if node.value is not None and self._within:
            self.known.setdefault(called(self._within[-1]), []).append(node.value)
        self.generic_visit(node)

    def visit_arguments(self, node: ast.arguments) -> None:
        given = node.args[len(node.args) - len(node.defaults) :]
        pairs = [*zip(given, node.defaults, strict=False), *zip(node.kwonlyargs, node.kw_defaults, strict=True)]
        for one, value in pairs:
            if value is not None:
                self.known.setdefault(one.arg, []).append(value)
        self.generic_visit(node)

    def visit_BinOp(self, node: ast.BinOp) -> None:
        if isinstance(node.op, ast.Mod | ast.FloorDiv):
            self.met.append(node.right)
        self.reckoned.append(node)
        self.generic_visit(node)

    def visit_Compare(self, node: ast.Compare) -> None:
        self.turns = True
        self.met += [node.left, *node.comparators]
        self.generic_visit(node)

    def visit_Match(self, node: ast.Match) -> None:
        self.turns = True
        self.met.append(node.subject)
        self.generic_visit(node)

    def visit_MatchValue(self, node: ast.MatchValue) -> None:
        self.met.append(node.value)
        self.generic_visit(node)

    def visit_Call(self, node: ast.Call) -> None:
        self._calls.append(node)
        if last_name(node.func) in _SEARCHES:
            self.met += _sides(node)
            self.met += [node.func.value] if isinstance(node.func, ast.Attribute) else []
        if last_name(node.func) in _LOOKED_UP and isinstance(node.func, ast.Attribute):
            self.met.append(node.func.value)
        if last_name(node.func) in _ENDS:
            self.turns |= isinstance(node.func, ast.Name)  # Python's own, no tensor's
            self.reckoned.append(node)
        self.generic_visit(node)

    def visit_If(self, node: ast.If) -> None:
        self.turns = True
        self._asked.append(node.test)
        self.generic_visit(node)
        self._asked.pop()

    def visit_IfExp(self, node: ast.IfExp) -> None:
        self.turns = True
        self.generic_visit(node)

    def visit_While(self, node: ast.While) -> None:
        self.ends.append(node.test)
        self.generic_visit(node)

    def visit_Break(self, node: ast.Break) -> None:
        self.ends += self._asked[-1:]

    def handed(self) -> Iterator[tuple[str, ast.expr]]:
        """Arguments of functions that the sources define, and what they are called with, by ``partial`` too."""
        for call in self._calls:
            func, args = call.func, call.args
            if last_name(func) == "partial" and args:
                func, args = args[0], args[1:]
            names = self._functions.get(last_name(func), [])
            yield from zip(names, args, strict=False)
            yield from ((one.arg, one.value) for one in call.keywords if one.arg in names)

    def _name(self, target: ast.expr, value: ast.expr) -> None:
        if isinstance(target, ast.Tuple | ast.List):
            for at, one in enumerate(target.elts):
                self._name(one, ast.Subscript(value, ast.Constant(at), ast.Load()))
        elif name := last_name(target):
            self.known.setdefault(name, []).append(value)


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
    for name, value in reader.handed():
        reader.known.setdefault(name, []).append(value)
    said = Source(tuple(reader.met), tuple(reader.reckoned), reader.known, reader.turns)
    return said if all(map(said.fixed, reader.ends)) else replace(said, turns=False)


def counts(task: Task, model: torch.nn.Module, live: Mapping[str, Any], counting: Collection[str]) -> list[int]:
    """Whole numbers of its source, of names that live in its files (``live``), and of those that its modules hold,
    the largest first: those that are met, and as many that are reckoned with what has one of the names ``counting``."""
    said, held = source(task), parts_of(model)
    found = list[int]()
    for numbers in (said.numbers(live, held), said.beside(counting, live, held)):
        fit = sorted({int(n) for n in numbers if 2 <= n <= FARTHEST and n == int(n)}.difference(found))
        near = [n for n in fit if n <= LARGEST]
        found += near[::-1][:NUMBERS] + fit[len(near) :][:FEW]
    return found
