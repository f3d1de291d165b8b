# SPDX-License-Identifier: Apache-2.0
"""Parameter spaces with integer constraints, and the tuner that walks them (ask and tell, seeded, no torch)."""

from __future__ import annotations

import ast
import random
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from types import CodeType
from typing import Any

Value = int | float | str | bool
Values = dict[str, Value]


@dataclass(frozen=True, slots=True, kw_only=True)
class Parameter:
    """One tunable with its ordered values; the first is the default."""

    name: str
    values: tuple[int | float | str | bool, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Expectation:
    """What a model expects of points, by some of their parameters: it orders trials and decides nothing else."""

    names: tuple[str, ...]
    costs: tuple[tuple[tuple[int | float | str | bool, ...], float], ...]
    """(values of ``names``, expected cost); a point that is not listed has none."""
    error: float
    """The model's own median relative error on what it was not fitted to."""
    source: str
    """Which model, in words."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Space:
    """Parameters, and constraints as Python expressions over their names (``"BLOCK * VEC <= 4096"``)."""

    parameters: tuple[Parameter, ...]
    constraints: tuple[str, ...]
    expected: Expectation | None = None


_ALLOWED_NODES = (
    ast.Expression, ast.BoolOp, ast.And, ast.Or, ast.UnaryOp, ast.Not, ast.USub, ast.BinOp, ast.Add, ast.Sub,
    ast.Mult, ast.Div, ast.FloorDiv, ast.Mod, ast.Pow, ast.LShift, ast.RShift, ast.BitAnd, ast.BitOr, ast.BitXor,
    ast.Compare, ast.Eq, ast.NotEq, ast.Lt, ast.LtE, ast.Gt, ast.GtE, ast.In, ast.NotIn, ast.IfExp, ast.Tuple,
    ast.Constant, ast.Name, ast.Load, ast.Call,
)  # fmt: skip
_FUNCTIONS = {"min": min, "max": max, "abs": abs}
MOST_BITS = 4096
"""Width of the widest number that a power or a shift in a constraint may make: ``9 ** 9 ** 9 ** 9`` fits no memory."""
LONGEST = 160
"""Characters of a constraint: too few to nest deeper than what reads it can follow."""


def _power(base: Any, exponent: Any) -> Any:  # noqa: ANN401 - whatever a constraint holds
    if isinstance(base, int) and isinstance(exponent, int) and base.bit_length() * exponent > MOST_BITS:
        raise OverflowError("a power in a constraint is too large")
    return base**exponent


def _shifted(number: Any, places: Any) -> Any:  # noqa: ANN401 - whatever a constraint holds
    if isinstance(number, int) and isinstance(places, int) and number.bit_length() + places > MOST_BITS:
        raise OverflowError("a shift in a constraint is too far")
    return number << places


class _Bounded(ast.NodeTransformer):
    """Powers and shifts become calls that refuse results which would take minutes or gigabytes."""

    CALLS: Mapping[type[ast.operator], str] = {ast.Pow: "_power", ast.LShift: "_shifted"}

    def visit_BinOp(self, node: ast.BinOp) -> ast.expr:
        self.generic_visit(node)
        name = self.CALLS.get(type(node.op))
        return ast.Call(ast.Name(name, ast.Load()), [node.left, node.right], []) if name else node


_GLOBALS = {"__builtins__": {}, **_FUNCTIONS, "_power": _power, "_shifted": _shifted}


class _Constraint:
    """One compiled constraint and the parameters it mentions."""

    def __init__(self, text: str, known: set[str]) -> None:
        if len(text) > LONGEST:
            raise ValueError(f"a constraint of {len(text)} characters, expected at most {LONGEST}: {text[:40]!r}...")
        tree = ast.parse(text, mode="eval")
        for node in ast.walk(tree):
            if not isinstance(node, _ALLOWED_NODES):
                raise ValueError(f"constraint {text!r}: {type(node).__name__} is not arithmetic")
            _refuse_texts(node, text)
            if isinstance(node, ast.Call) and not (isinstance(node.func, ast.Name) and node.func.id in _FUNCTIONS):
                raise ValueError(f"constraint {text!r}: only {', '.join(_FUNCTIONS)} may be called")
        self.names = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)} - set(_FUNCTIONS)
        if self.names - known:
            raise ValueError(f"constraint {text!r}: unknown parameters {sorted(self.names - known)}")
        bounded = ast.fix_missing_locations(_Bounded().visit(tree))
        self.code: CodeType = compile(bounded, "<constraint>", "eval")

    def holds(self, values: Mapping[str, Value]) -> bool:
        """True when the expression is true; what has no value (a division by zero, a power out of all bounds, a
        comparison of a number with a word) makes the point infeasible."""
        try:
            return bool(eval(self.code, dict(_GLOBALS), dict(values)))
        except (ArithmeticError, TypeError, ValueError):
            return False


def _refuse_texts(node: ast.AST, text: str) -> None:
    """Raises ValueError for a word or a tuple that is not compared: ``'x' * 10 ** 9`` would take a gigabyte."""
    if isinstance(node, ast.Compare | ast.Tuple):
        return
    for child in ast.iter_child_nodes(node):
        number = not isinstance(child, ast.Constant) or isinstance(child.value, int | float)
        if isinstance(child, ast.Tuple) or not number:
            raise ValueError(f"constraint {text!r}: a word or a list of values may only be compared")


class Feasible:
    """A Space made ready: constraints compiled once, points checked, enumerated and stepped between.

    Raises ValueError for a constraint that is not arithmetic over the parameters, for a parameter without
    values and for two parameters of one name.
    """

    def __init__(self, space: Space) -> None:
        self.names = [parameter.name for parameter in space.parameters]
        if len(set(self.names)) != len(self.names):
            raise ValueError(f"parameter names repeat: {self.names}")
        if any(not parameter.values for parameter in space.parameters):
            raise ValueError("a parameter has no values")
        self.choices = [parameter.values for parameter in space.parameters]
        constraints = [_Constraint(text, set(self.names)) for text in space.constraints]
        # A constraint is checked as soon as its last parameter is bound, so whole subtrees are pruned at once.
        self._due: list[list[_Constraint]] = [[] for _ in range(len(self.names) + 1)]
        for constraint in constraints:
            last = max((self.names.index(name) + 1 for name in constraint.names), default=0)
            self._due[last].append(constraint)

    def allows(self, values: Mapping[str, Value]) -> bool:
        """True when every parameter takes one of its values and every constraint holds."""
        if set(values) != set(self.names):
            return False
        listed = all(values[name] in choice for name, choice in zip(self.names, self.choices, strict=True))
        return listed and all(constraint.holds(values) for due in self._due for constraint in due)

    def points(self) -> Iterator[Values]:
        """Every feasible point, the defaults first in each parameter's order; lazy, so a prefix is cheap."""
        return self._extend({}, 0)

    def _extend(self, bound: Values, depth: int) -> Iterator[Values]:
        if not all(constraint.holds(bound) for constraint in self._due[depth]):
            return
        if depth == len(self.names):
            yield dict(bound)
            return
        for value in self.choices[depth]:
            bound[self.names[depth]] = value
            yield from self._extend(bound, depth + 1)
            del bound[self.names[depth]]

    def default(self) -> Values | None:
        """The feasible point made of first values, or the first feasible one, or None where there is none."""
        return next(self.points(), None)

    def neighbours(self, values: Mapping[str, Value]) -> list[Values]:
        """Feasible points one step away: next and previous value for ordered numbers, any value for words."""
        found = []
        for name, choice in zip(self.names, self.choices, strict=True):
            at = choice.index(values[name])
            numeric = all(isinstance(value, int | float) and not isinstance(value, bool) for value in choice)
            if numeric:
                ordered = sorted(choice)
                place = ordered.index(values[name])
                steps = ordered[max(0, place - 1) : place] + ordered[place + 1 : place + 2]
            else:
                steps = [value for index, value in enumerate(choice) if index != at]
            found += [{**values, name: value} for value in steps]
        return [point for point in found if self.allows(point)]

    def sample(self, rng: random.Random, tries: int = 200) -> Values | None:
        """A feasible point drawn at random, or None when ``tries`` draws all break a constraint."""
        for _ in range(tries):
            point = {name: rng.choice(choice) for name, choice in zip(self.names, self.choices, strict=True)}
            if self.allows(point):
                return point
        return None


def key(values: Mapping[str, Value]) -> tuple[tuple[str, Value], ...]:
    """The point as a hashable key, independent of the order in which names were bound."""
    return tuple(sorted(values.items()))


class Tuner:
    """Neighbour descent with random restarts: ask for a point, tell its time, repeat.

    Starts at the default; from the best point known it tries every one-step neighbour, moves as soon as one
    is better, and restarts at an unseen random point when all are worse. No point is asked for twice. The
    sequence of asks is a function of the space, the seed and the answers alone, so telling the same answers
    again restores the state. Where the space has an expectation, neighbours are asked for in its order.
    """

    def __init__(self, space: Space, seed: int = 0, restarts: int = 2) -> None:
        self.feasible = Feasible(space)
        self.best: tuple[float, Values] | None = None
        self._rng = random.Random(f"tuner-{seed}")
        self._restarts = restarts
        self._seen: set[tuple[tuple[str, Value], ...]] = set()
        self._here: tuple[float, Values] | None = None
        self._expected = space.expected
        self._costs = dict(space.expected.costs) if space.expected else {}
        self._told: list[tuple[float, float]] = []
        start = self.feasible.default()
        self._queue: list[Values] = [start] if start is not None else []

    def ask(self) -> Values | None:
        """The next point to try, or None when the neighbourhood and the restarts are used up."""
        while True:
            while self._queue:
                point = self._queue.pop(0)
                if key(point) not in self._seen:
                    self._seen.add(key(point))
                    return point
            if self._restarts <= 0:
                return None
            self._restarts -= 1
            self._here = None
            fresh = self._unseen()
            if fresh is None:
                return None
            self._queue = [fresh]

    def tell(self, values: Mapping[str, Value], cost: float | None) -> None:
        """The cost of a point (lower is better), or None when it was rejected."""
        self._seen.add(key(values))
        if cost is None:
            return
        point = dict(values)
        expected = self.expected(point)
        if expected is not None:
            self._told.append((expected, cost))
        if self.best is None or cost < self.best[0]:
            self.best = (cost, point)
        if self._here is None or cost < self._here[0]:
            improved = self._here is not None
            self._here = (cost, point)
            steps = self.feasible.neighbours(point)
            self._rng.shuffle(steps)
            if improved:
                # Keep going in the direction that just paid off before looking sideways.
                steps.sort(key=lambda step: 0 if self._same_direction(step) else 1)
            if self._expected is not None:
                steps.sort(key=self._rank)
            self._queue = steps
            self._direction = point

    def expected(self, values: Mapping[str, Value]) -> float | None:
        """The cost a model expects of a point, or None."""
        if self._expected is None:
            return None
        return self._costs.get(tuple(values[name] for name in self._expected.names))

    def expectation_error(self) -> float | None:
        """Median relative error of the expectation over the points told, both relative to the first; None: too few."""
        if len(self._told) < 2:
            return None
        guess, true = self._told[0]
        found = sorted(abs((e / guess) / (c / true) - 1.0) for e, c in self._told[1:])
        return found[len(found) // 2]

    def _rank(self, values: Values) -> float:
        expected = self.expected(values)
        return float("inf") if expected is None else expected

    def _same_direction(self, step: Values) -> bool:
        previous = getattr(self, "_direction", None)
        if previous is None or self._here is None:
            return False
        moved = [name for name in step if previous[name] != self._here[1][name]]
        return any(step[name] != self._here[1][name] for name in moved)

    def _unseen(self) -> Values | None:
        for _ in range(50):
            point = self.feasible.sample(self._rng)
            if point is not None and key(point) not in self._seen:
                return point
        return None
