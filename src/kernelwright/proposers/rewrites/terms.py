# SPDX-License-Identifier: Apache-2.0
"""Programs as trees: immutable, hash-consed by value, every node with a known shape. Standard library only.

The algebra is kept small so that each law can be stated once. Binary operators have operands of equal
rank (broadcasting only over size 1), reductions keep their dimension with size 1, and everything the laws
know nothing about is an opaque ``call`` whose arguments are still terms.

Operators (term arguments | attributes):
    leaf(|name)  fill(|value, shape)  call(...|target, template)  get(A|i)
    matmul(A, B)  t(A) swaps the last two dimensions  diag(A) vector to matrix
    add sub mul div (A, B)   scale(A|c) A*c   shift(A|c) A+c   over(A|c) A/c   relu(A)
    sum mean max min logsumexp softmax logsoftmax (A|d)
    unsqueeze squeeze (A|d)   reshape(A|shape)
"""

from __future__ import annotations

import math
import weakref
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

Shape = tuple[int, ...]

BINARY = ("add", "sub", "mul", "div")
POINTWISE = (*BINARY, "scale", "shift", "over", "relu")
REDUCTIONS = ("sum", "mean", "max", "min", "logsumexp")
ROWWISE = ("softmax", "logsoftmax")
VIEWS = ("t", "unsqueeze", "squeeze", "reshape")


class IllTyped(ValueError):
    """A term whose argument shapes do not fit its operator; a law that builds one does not apply there."""


@dataclass(frozen=True, slots=True, weakref_slot=True)
class Term:
    """One node. ``attrs`` are integers, floats, strings or tuples of integers.

    ``make`` gives equal nodes one object: two programs that use their parts many times would take as long to compare as
    they are when written out."""

    op: str
    args: tuple[Term, ...]
    attrs: tuple[Any, ...]
    shape: Shape
    key: int
    """Hash by content, so that comparing and hashing stay cheap on deep trees."""

    def __hash__(self) -> int:
        return self.key

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        return isinstance(other, Term) and self.key == other.key and self._same(other)

    def _same(self, other: Term) -> bool:
        return (self.op, self.attrs, self.shape, self.args) == (
            other.op,
            other.attrs,
            other.shape,
            other.args,
        )

    def __repr__(self) -> str:
        inner = ", ".join([*map(repr, self.args), *map(str, self.attrs)])
        return f"{self.op}({inner})"


_MADE: weakref.WeakValueDictionary[tuple[object, ...], Term] = weakref.WeakValueDictionary()


def make(op: str, args: tuple[Term, ...] = (), attrs: tuple[Any, ...] = (), shape: Shape | None = None) -> Term:
    """A term with its shape inferred; ``leaf``, ``call`` and ``get`` bring their own."""
    found = infer(op, tuple(arg.shape for arg in args), attrs) if shape is None else shape
    name = (op, args, repr(attrs), found)  # 1, 1.0 and True are equal, and are written otherwise
    term = _MADE.get(name)
    if term is None:
        term = Term(op, args, attrs, found, hash((op, attrs, found, tuple(arg.key for arg in args))))
        _MADE[name] = term
    return term


def outline(root: Term) -> str:
    """The program as text with every part written once: its repr repeats those that are used again."""
    places: dict[Term, int] = {}
    lines = []
    for term in walk((root,)):
        lines.append(f"{term.op} {[places[arg] for arg in term.args]} {term.attrs} {term.shape}")
        places[term] = len(places)
    return "\n".join(lines)


def leaf(name: str, *shape: int) -> Term:
    """An input or parameter."""
    return make("leaf", (), (name,), shape)


def infer(op: str, shapes: tuple[Shape, ...], attrs: tuple[Any, ...]) -> Shape:
    """Shape of ``op`` applied to operands of these shapes."""
    if op == "fill":
        return tuple(attrs[1])
    if op in BINARY:
        return broadcast(shapes[0], shapes[1])
    if op == "matmul":
        return _matmul(*shapes)
    first = shapes[0]
    if op in ("scale", "shift", "over", "relu"):
        return first
    if op == "reshape":
        if math.prod(first) != math.prod(attrs[0]):
            raise IllTyped(f"reshape {first} to {attrs[0]}")
        return tuple(attrs[0])
    if op == "diag":
        return _expect(len(first) == 1, (*first, *first), op)
    if op == "t":
        return _expect(len(first) >= 2, (*first[:-2], *first[:-3:-1]), op)
    return _dimensional(op, first, attrs[0])


def _dimensional(op: str, first: Shape, d: int) -> Shape:
    if op == "unsqueeze":
        return _expect(0 <= d <= len(first), (*first[:d], 1, *first[d:]), op)
    _expect(0 <= d < len(first), first, op)
    if op in REDUCTIONS:
        return (*first[:d], 1, *first[d + 1 :])
    if op in ROWWISE:
        return first
    if op == "squeeze":
        return _expect(first[d] == 1, (*first[:d], *first[d + 1 :]), op)
    raise IllTyped(f"no operator {op}")


def _expect(holds: bool, shape: Shape, op: str) -> Shape:
    if not holds:
        raise IllTyped(f"{op} on {shape}")
    return shape


def broadcast(a: Shape, b: Shape) -> Shape:
    """Common shape of two operands of equal rank."""
    if len(a) != len(b) or any(m != n and 1 not in (m, n) for m, n in zip(a, b, strict=False)):
        raise IllTyped(f"broadcast {a} with {b}")
    return tuple(n if m == 1 else m for m, n in zip(a, b, strict=True))


def _matmul(a: Shape, b: Shape) -> Shape:
    if len(a) != len(b) or len(a) < 2 or a[-1] != b[-2]:
        raise IllTyped(f"matmul {a} with {b}")
    return (*broadcast(a[:-2], b[:-2]), a[-2], b[-1])


def rebuild(term: Term, args: tuple[Term, ...]) -> Term:
    """The same operator on other arguments."""
    keep = term.op in ("leaf", "call", "get")
    return make(term.op, args, term.attrs, term.shape if keep else None)


def walk(roots: tuple[Term, ...]) -> Iterator[Term]:
    """Every distinct term below ``roots``, arguments before their users."""
    seen: set[Term] = set()
    stack: list[tuple[Term, bool]] = [(root, False) for root in reversed(roots)]
    while stack:
        term, ready = stack.pop()
        if term in seen:
            continue
        if ready:
            seen.add(term)
            yield term
        else:
            stack.append((term, True))
            stack.extend((arg, False) for arg in reversed(term.args))


def numel(shape: Shape) -> int:
    """Number of elements."""
    return math.prod(shape)
