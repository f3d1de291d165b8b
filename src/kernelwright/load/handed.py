# SPDX-License-Identifier: Apache-2.0
"""Constructor arguments read off where they were handed on: after ``self.head = Linear(width, words)`` both are known.

Most modules keep their parts and not their arguments. What is read here is a guess until the rebuilt module was
compared with the original, which the caller does.
"""

from __future__ import annotations

import ast
import copy
import inspect
import textwrap
import types
from collections.abc import Callable, Iterator, Mapping, Sequence

PLAIN = (bool, int, float, str, type(None))
DEEPEST = 4
"""Functions that call one another on the way from a constructor to what is kept."""


def handed_on(built: object) -> dict[str, object]:
    """Plain values of parameters of ``type(built).__init__`` that it hands, as they are, to something it keeps."""
    function = _constructor(type(built))
    if function is None:
        return {}
    arguments = function.args
    own = {a.arg for a in (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs)}
    # A parameter that is given another value on the way is not what was passed.
    own -= {n.id for n in ast.walk(function) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}
    found: dict[str, object] = {}
    for node in ast.walk(function):
        target = node.targets[0] if isinstance(node, ast.Assign) else getattr(node, "target", None)
        value = getattr(node, "value", None) if isinstance(node, ast.Assign | ast.AnnAssign) else None
        if not _of_self(target) or value is None:
            continue
        assert isinstance(target, ast.Attribute)
        part, globals_ = getattr(built, target.attr, inspect.Parameter.empty), _globals(type(built).__init__)
        for name, known in _read(value, part, globals_, DEEPEST):
            if name in own and type(known) in PLAIN:
                found.setdefault(name, known)
    return found


def _globals(function: object) -> dict[str, object]:
    return getattr(function, "__globals__", {})


def _constructor(kind: type) -> ast.FunctionDef | None:
    return _written(kind.__init__)  # type: ignore[misc]  # of the class itself


def _written(function: Callable[..., object]) -> ast.FunctionDef | None:
    try:
        tree = ast.parse(textwrap.dedent(inspect.getsource(function)))
    except (OSError, TypeError, SyntaxError):
        return None
    first = tree.body[0] if tree.body else None
    return first if isinstance(first, ast.FunctionDef) else None


def _of_self(target: object) -> bool:
    return isinstance(target, ast.Attribute) and isinstance(target.value, ast.Name) and target.value.id == "self"


def _read(value: ast.expr, part: object, scope: Mapping[str, object], deep: int) -> Iterator[tuple[str, object]]:
    """(name in the constructor, value) that ``part`` tells, which the constructor made by the expression ``value``.

    ``scope``: the names of its file; ``deep``: how many more functions are followed."""
    if isinstance(value, ast.Name):
        yield value.id, part
    if not isinstance(value, ast.Call):
        return
    if _called(value) != type(part).__name__:
        yield from _through(value, part, scope, deep)
        return
    if type(part).__name__ in ("Sequential", "ModuleList"):
        inside = list(getattr(part, "_modules", {}).values())
        yield from _inside(value.args, inside, scope, deep)
        return
    names = [name for name in inspect.signature(type(part).__init__).parameters if name != "self"]
    for name, argument in _given(value, names):
        if isinstance(argument, ast.Name) and hasattr(part, str(name)):
            known = getattr(part, str(name))
            yield argument.id, known is not None if name == "bias" else known


def _inside(
    arguments: Sequence[ast.expr], children: Sequence[object], scope: Mapping[str, object], deep: int
) -> Iterator[tuple[str, object]]:
    """What the children of a container tell: of its arguments, or of ``[Block(width) for _ in range(depth)]``."""
    alone = arguments[0] if len(arguments) == 1 else None
    listed = alone.value if isinstance(alone, ast.Starred) else alone
    if isinstance(listed, ast.List) and len(listed.elts) == len(children):
        arguments = listed.elts
    elif isinstance(listed, ast.ListComp | ast.GeneratorExp) and len(listed.generators) == 1:
        over = listed.generators[0]
        times = over.iter.args if isinstance(over.iter, ast.Call) and _called(over.iter) == "range" else []
        if len(times) == 1 and isinstance(times[0], ast.Name) and not over.ifs:
            yield times[0].id, len(children)
        arguments = [listed.elt] * len(children)
    if len(arguments) == len(children):
        for argument, child in zip(arguments, children, strict=True):
            yield from _read(argument, child, scope, deep)


def _through(call: ast.Call, part: object, scope: Mapping[str, object], deep: int) -> Iterator[tuple[str, object]]:
    """What a function of the same file tells that made the part: what its ``return`` was given, under the names that it
    was called with."""
    function = scope.get(call.func.id) if isinstance(call.func, ast.Name) else None
    written = _written(function) if isinstance(function, types.FunctionType) and deep else None
    if written is None:
        return
    returned = [node.value for node in ast.walk(written) if isinstance(node, ast.Return) and node.value is not None]
    known = {
        node.targets[0].id: node.value
        for node in ast.walk(written)
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name)
    }
    passed = {
        name: argument.id for name, argument in _given(call, _parameters(written)) if isinstance(argument, ast.Name)
    }
    passed = {name: outer for name, outer in passed.items() if name not in known}
    for value in returned:
        made = _Filled(known).visit(copy.deepcopy(value))
        for name, found in _read(made, part, _globals(function), deep - 1):
            if name in passed:
                yield passed[name], found


class _Filled(ast.NodeTransformer):
    """Names of a function that were assigned once replaced by what they were given, a few levels deep."""

    def __init__(self, known: Mapping[str, ast.expr], deep: int = DEEPEST) -> None:
        self._known, self._deep = known, deep

    def visit_Name(self, node: ast.Name) -> ast.expr:
        """The value of a local name; itself otherwise."""
        if node.id not in self._known or not self._deep:
            return node
        filled: ast.expr = _Filled(self._known, self._deep - 1).visit(copy.deepcopy(self._known[node.id]))
        return filled


def _parameters(function: ast.FunctionDef) -> list[str]:
    return [a.arg for a in (*function.args.posonlyargs, *function.args.args, *function.args.kwonlyargs)]


def _given(call: ast.Call, names: Sequence[str]) -> list[tuple[str, ast.expr]]:
    """(parameter, argument) of a call; what follows a starred one is at places nobody knows."""
    stars = [index for index, argument in enumerate(call.args) if isinstance(argument, ast.Starred)]
    placed = call.args[: stars[0]] if stars else call.args
    return [*zip(names, placed, strict=False), *((k.arg, k.value) for k in call.keywords if k.arg)]


def _called(call: ast.Call) -> str:
    return call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")
