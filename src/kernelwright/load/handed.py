# SPDX-License-Identifier: Apache-2.0
"""Constructor arguments read off where they were handed on: after ``self.head = Linear(width, words)`` both are known.

Most modules keep their parts and not their arguments. What is read here is a guess until the rebuilt module was
compared with the original, which the caller does.
"""

from __future__ import annotations

import ast
import inspect
import textwrap
from collections.abc import Iterator

PLAIN = (bool, int, float, str, type(None))


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
        for name, known in _read(value, getattr(built, target.attr, inspect.Parameter.empty)):
            if name in own and type(known) in PLAIN:
                found.setdefault(name, known)
    return found


def _constructor(kind: type) -> ast.FunctionDef | None:
    try:
        tree = ast.parse(textwrap.dedent(inspect.getsource(kind.__init__)))  # type: ignore[misc]  # of the class itself
    except (OSError, TypeError, SyntaxError):
        return None
    first = tree.body[0] if tree.body else None
    return first if isinstance(first, ast.FunctionDef) else None


def _of_self(target: object) -> bool:
    return isinstance(target, ast.Attribute) and isinstance(target.value, ast.Name) and target.value.id == "self"


def _read(value: ast.expr, part: object) -> Iterator[tuple[str, object]]:
    """(name in the constructor, value) that ``part`` tells, which the constructor made by the expression ``value``."""
    if isinstance(value, ast.Name):
        yield value.id, part
    if not isinstance(value, ast.Call) or _called(value) != type(part).__name__:
        return
    if type(part).__name__ == "Sequential":
        inside = list(getattr(part, "_modules", {}).values())
        if len(inside) == len(value.args):
            for argument, child in zip(value.args, inside, strict=True):
                yield from _read(argument, child)
        return
    names = [name for name in inspect.signature(type(part).__init__).parameters if name != "self"]
    given = [*zip(names, value.args, strict=False), *((k.arg, k.value) for k in value.keywords if k.arg)]
    for name, argument in given:
        if isinstance(argument, ast.Starred):
            return  # what follows it is at places nobody knows
        if isinstance(argument, ast.Name) and hasattr(part, str(name)):
            known = getattr(part, str(name))
            yield argument.id, known is not None if name == "bias" else known


def _called(call: ast.Call) -> str:
    return call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")
