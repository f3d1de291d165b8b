# SPDX-License-Identifier: Apache-2.0
"""Rules on terms, in Python: does a rule's left side match here, does its condition hold, and what does it build?"""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable, Iterator
from typing import Any

from kernelwright.proposers.rewrites.laws import Rule, arity
from kernelwright.proposers.rewrites.laws import operator as pattern_operator
from kernelwright.proposers.rewrites.terms import IllTyped, Term, make

Bindings = dict[str, Any]

_ARITHMETIC: dict[type[ast.AST], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
}


def apply(rule: Rule, term: Term) -> Term | None:
    """What ``rule`` turns ``term`` into, or None where it does not apply."""
    found: Bindings = {}
    if not match(rule.left, term, found):
        return None
    try:
        if rule.where is not None and not value(rule.where, found):
            return None
        result = build(rule.right, found)
    except (IllTyped, IndexError, ZeroDivisionError, OverflowError):
        return None
    return result if result.shape == term.shape else None


def match(pattern: ast.expr, term: Term, found: Bindings) -> bool:
    """Whether ``term`` has the form of ``pattern``; fills ``found`` (left as it is partly filled when not)."""
    if isinstance(pattern, ast.NamedExpr):
        return _bind(pattern.target.id, term, found) and match(pattern.value, term, found)
    if isinstance(pattern, ast.Name):
        return _bind(pattern.id, term, found)
    if term.op != pattern_operator(pattern):
        return False
    assert isinstance(pattern, ast.Call)
    operands = (*term.args, *term.attrs)
    return all(
        match(part, operand, found) if isinstance(operand, Term) else _match_attribute(part, operand, found)
        for part, operand in zip(pattern.args, operands, strict=True)
    )


def _match_attribute(part: ast.expr, operand: Any, found: Bindings) -> bool:
    if isinstance(part, ast.Name):
        return _bind(part.id, operand, found)
    return bool(value(part, found) == operand)


def _bind(name: str, item: Any, found: Bindings) -> bool:
    if name in found:
        return bool(found[name] == item)
    found[name] = item
    return True


def build(node: ast.expr, found: Bindings) -> Term:
    """The term a right side stands for; ``IllTyped`` where shapes do not fit."""
    if isinstance(node, ast.Name):
        term = found[node.id]
        assert isinstance(term, Term)
        return term
    op = pattern_operator(node)
    assert isinstance(node, ast.Call)
    terms, _ = arity(op)
    args = tuple(build(part, found) for part in node.args[:terms])
    return make(op, args, tuple(value(part, found) for part in node.args[terms:]))


def value(node: ast.expr, found: Bindings) -> Any:
    """A number, shape or truth value of a condition or attribute."""
    if isinstance(node, ast.Constant):
        return node.value
    if isinstance(node, ast.Name):
        return found[node.id]
    if isinstance(node, ast.BoolOp) and isinstance(node.op, ast.And):
        return all(value(part, found) for part in node.values)
    if isinstance(node, ast.Compare):
        return _ARITHMETIC[type(node.ops[0])](value(node.left, found), value(node.comparators[0], found))
    if isinstance(node, ast.BinOp):
        return _ARITHMETIC[type(node.op)](value(node.left, found), value(node.right, found))
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
        return _function(node.func.id, node.args, found)
    raise ValueError(f"not in the language of laws: {ast.unparse(node)}")


def _function(name: str, args: list[ast.expr], found: Bindings) -> Any:
    if name == "float":
        return float(value(args[0], found))
    shape = build(args[0], found).shape
    if name == "shape":
        return shape
    if name == "size":
        d = value(args[1], found)
        if not 0 <= d < len(shape):
            raise IndexError(f"dimension {d} of {shape}")
        return shape[d]
    offset = {"rank": 0, "last": 1, "rows": 2}[name]
    return len(shape) - offset


def neighbours(term: Term, rules: tuple[Rule, ...]) -> Iterator[tuple[str, Term]]:
    """(law name, result) of every rule that applies at the root of ``term``."""
    for rule in rules:
        if rule.head == term.op:
            result = apply(rule, term)
            if result is not None and result != term:
                yield rule.name, result
