# SPDX-License-Identifier: Apache-2.0
"""The law table, read from ``laws.toml`` where each law is stated once."""

from __future__ import annotations

import ast
import functools
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product
from pathlib import Path

from kernelwright.proposers.rewrites import terms

COMMUTES = ("add", "mul")


@dataclass(frozen=True, slots=True, kw_only=True)
class Law:
    """``left`` may be replaced by ``right`` where ``where`` holds; the other way round too when ``both``."""

    name: str
    left: str
    right: str
    where: str
    both: bool
    holds: str
    fails: str


@dataclass(frozen=True, slots=True)
class Rule:
    """One direction of a law, parsed, with one order of operands for each commuting operator of its left side."""

    name: str
    left: ast.expr
    right: ast.expr
    where: ast.expr | None

    @property
    def head(self) -> str:
        """The operator at the root of the left side."""
        return operator(self.left)


def operator(node: ast.expr) -> str:
    """The operator of a pattern node, looking through ``(S := ...)``."""
    if isinstance(node, ast.NamedExpr):
        node = node.value
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
        return node.func.id
    raise ValueError(f"not an operator pattern: {ast.unparse(node)}")


@functools.cache
def laws() -> tuple[Law, ...]:
    """Every law, families written out, in the order of the file."""
    text = Path(__file__).with_name("laws.toml").read_text(encoding="utf-8")
    return tuple(law for entry in tomllib.loads(text)["law"] for law in _family(entry))


def _family(entry: dict[str, object]) -> Iterator[Law]:
    each = entry.get("each", {"r": [""]})
    assert isinstance(each, dict)
    for choice in each["r"]:
        text = {
            key: str(entry.get(key, "")).replace("{r}", choice)
            for key in ("name", "left", "right", "where", "holds", "fails")
        }
        yield Law(both=bool(entry.get("both", False)), **text)


@functools.cache
def rules() -> tuple[Rule, ...]:
    """Every law as directed rules, commuted; what both engines run."""
    found: dict[tuple[str, str], Rule] = {}
    for law in laws():
        where = ast.parse(law.where, mode="eval").body if law.where else None
        sides = [(law.left, law.right)] + ([(law.right, law.left)] if law.both else [])
        for left, right in sides:
            target = ast.parse(right, mode="eval").body
            for pattern in _commuted(ast.parse(left, mode="eval").body):
                found.setdefault((law.name, ast.dump(pattern)), Rule(law.name, pattern, target, where))
    return tuple(found.values())


def _commuted(node: ast.expr) -> list[ast.expr]:
    """All orders of the operands of commuting operators below ``node``."""
    if isinstance(node, ast.NamedExpr):
        return [ast.NamedExpr(target=node.target, value=value) for value in _commuted(node.value)]
    if not isinstance(node, ast.Call):
        return [node]
    orders: list[ast.expr] = []
    for args in product(*map(_commuted, node.args)):
        orders.append(ast.Call(func=node.func, args=list(args), keywords=[]))
        if operator(node) in COMMUTES:
            orders.append(ast.Call(func=node.func, args=list(reversed(args)), keywords=[]))
    return orders


def arity(op: str) -> tuple[int, int]:
    """(term arguments, attributes) of a structured operator."""
    if op in (*terms.BINARY, "matmul"):
        return 2, 0
    if op in ("t", "diag", "relu"):
        return 1, 0
    if op == "fill":
        return 0, 2
    return 1, 1
