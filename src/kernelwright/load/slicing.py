# SPDX-License-Identifier: Apache-2.0
"""The part of a module's source that some of its names need: definitions and imports, nothing that just runs."""

from __future__ import annotations

import ast
import importlib.util
import re

from kernelwright.errors import TaskError
from kernelwright.load.source import bound_names


def needed_source(text: str, names: set[str]) -> str:
    """Top-level statements of ``text`` that bind ``names`` or what those mention, transitively, in their order.

    What sets an attribute or an item of them counts. Bare expressions, loops and ``if __name__`` blocks are left out:
    they run something. ``from __future__`` and star imports stay. Raises TaskError when one of ``names`` is not bound
    at top level.
    """
    tree = ast.parse(text)
    binders: dict[str, list[int]] = {}
    always: set[int] = set()
    for index, node in enumerate(tree.body):
        if isinstance(node, ast.ImportFrom) and (node.module == "__future__" or node.names[0].name == "*"):
            always.add(index)
        if not _is_main_guard(node):
            for name in bound_names(node) | _written_to(node):
                binders.setdefault(name, []).append(index)
    imported = {
        name for node in tree.body if isinstance(node, ast.Import | ast.ImportFrom) for name in bound_names(node)
    }
    for name in imported:  # torch.backends.cudnn.benchmark = True is set for all
        binders[name] = [index for index in binders[name] if name in bound_names(tree.body[index])]
    missing = sorted(name for name in names if name not in binders)
    if missing:
        raise TaskError(
            f"{', '.join(missing)} is not defined at the top level of its file.",
            got="no such definition",
            expected="a class or function that can be imported by name",
            what_next="move it there, out of the block or function in which it is defined",
        )
    kept, waiting = set(always), sorted(names)
    seen: set[str] = set()
    while waiting:
        name = waiting.pop()
        if name in seen or name not in binders:
            continue
        seen.add(name)
        for index in binders[name]:
            if index not in kept:
                kept.add(index)
                waiting += sorted(_mentioned(tree.body[index]) - seen)
    lines = _lines(text)
    parts = {i: "\n".join(lines[_first(tree.body[i]) - 1 : tree.body[i].end_lineno]) for i in sorted(kept)}
    return "\n\n".join(_only(tree.body[i], seen) or part for i, part in parts.items())


def _only(node: ast.stmt, names: set[str]) -> str:
    """An import of several things without those that nobody mentions: each would have to be installed wherever the
    text runs. Empty where nothing is to be left out."""
    if not isinstance(node, ast.Import):
        return ""
    used = [alias for alias in node.names if (alias.asname or alias.name).partition(".")[0] in names]
    return ast.unparse(ast.Import(used)) if used and len(used) < len(node.names) else ""


def absolute(text: str, package: str) -> str:
    """``text`` of a module of ``package`` with relative imports written out, so that it runs outside of the package.

    Raises ImportError for one that leads out of it. Without a package nothing changes.
    """
    relative = [n for n in ast.walk(ast.parse(text)) if isinstance(n, ast.ImportFrom) and n.level > 0]
    lines = [line.encode() for line in _lines(text)]  # the syntax tree counts bytes
    for node in sorted(relative, key=lambda n: (n.lineno, n.col_offset), reverse=True) if package else ():
        assert node.end_lineno is not None and node.end_col_offset is not None
        module = importlib.util.resolve_name("." * node.level + (node.module or ""), package)
        written = ast.unparse(ast.ImportFrom(module, node.names, 0)).encode()
        after = lines[node.end_lineno - 1][node.end_col_offset :]
        lines[node.lineno - 1 : node.end_lineno] = [lines[node.lineno - 1][: node.col_offset] + written + after]
    return b"\n".join(lines).decode()


def _lines(text: str) -> list[str]:
    """Lines as the syntax tree numbers them; str.splitlines also breaks at form feeds and the like."""
    return re.split(r"\r\n|\r|\n", text)


def _first(node: ast.stmt) -> int:
    """The first line of a statement, decorators included."""
    decorators = getattr(node, "decorator_list", [])
    return min([node.lineno, *(decorator.lineno for decorator in decorators)])


def _written_to(node: ast.stmt) -> set[str]:
    """Names whose attributes or items a statement sets: ``function.limit = 3``, ``TABLE["limit"] = 3``."""
    targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", node)]
    found = set()
    for target in targets if isinstance(node, ast.Assign | ast.AugAssign | ast.AnnAssign) else ():
        inner = target
        while isinstance(inner, ast.Attribute | ast.Subscript):
            inner = inner.value
        if isinstance(inner, ast.Name):
            found.add(inner.id)
    return found


def _mentioned(node: ast.stmt) -> set[str]:
    if isinstance(node, ast.Import | ast.ImportFrom):
        return set()
    return {item.id for item in ast.walk(node) if isinstance(item, ast.Name)}


def _is_main_guard(node: ast.stmt) -> bool:
    return isinstance(node, ast.If) and "__name__" in ast.unparse(node.test)
