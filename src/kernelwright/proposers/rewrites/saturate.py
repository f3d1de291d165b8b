# SPDX-License-Identifier: Apache-2.0
"""Equality saturation with egglog over the rule table; nothing is found where egglog is not installed.

The rules are written out in egglog's own text language. Shapes are an analysis in the e-graph, so that
conditions are checked there; the e-graph is then read back and the cheapest programs extracted here, by
the one cost model. egglog has no time limit of its own: it is run one iteration at a time, with a limit
on matches, and stopped between iterations by size or wall clock.
"""

from __future__ import annotations

import ast
import collections
import functools
import itertools
import json
import math
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from kernelwright.proposers.rewrites.cost import Rates, cost
from kernelwright.proposers.rewrites.laws import Rule, arity
from kernelwright.proposers.rewrites.laws import operator as pattern_operator
from kernelwright.proposers.rewrites.terms import (
    BINARY,
    REDUCTIONS,
    ROWWISE,
    IllTyped,
    Term,
    make,
    walk,
)

try:
    from egglog import bindings
except ImportError:
    bindings = None  # type: ignore[assignment]

ITERATIONS = 12
NODES = 4000
"""E-nodes after which saturation stops; the graphs met so far saturate below 1000."""
MATCHES = 1000
"""Matches per rule and iteration before the rule backs off."""
TERMS = 400
"""Terms above which egglog is not asked."""
KEPT = 4
"""Programs kept per e-class during extraction."""

_SORTS = {"d": "i64", "c": "f64", "s": "IVec"}
_ATTRIBUTES = {"fill": "cs", "scale": "c", "shift": "c", "over": "c", "reshape": "s"}
_UNARY = ("scale", "shift", "over", "relu", *ROWWISE)
_SIGNS: dict[type[ast.AST], str] = {ast.Add: "+", ast.Sub: "-", ast.Mult: "*", ast.Div: "/"}
_COMPARISONS: dict[type[ast.AST], str] = {
    ast.Eq: "=",
    ast.NotEq: "!=",
    ast.Lt: "<",
    ast.LtE: "<=",
    ast.Gt: ">",
    ast.GtE: ">=",
}
_NEUTRAL = (("scale", 1.0), ("shift", 0.0))
OPERATORS = (*BINARY, "matmul", "t", "diag", "fill", *_UNARY, *REDUCTIONS, "unsqueeze", "squeeze", "reshape")


def search(root: Term, rules: tuple[Rule, ...], at: Rates, *, seconds: float) -> list[Term]:
    """Programs equal to ``root`` in the reals, cheapest first; empty without egglog or for a graph too large for it."""
    terms = [*walk((root,))]
    if bindings is None or len(terms) > TERMS or not all(map(_finite, terms)):
        return []
    try:
        return _search(root, terms, rules, at, time.monotonic() + seconds)
    except BaseException as error:
        if type(error).__name__ != "PanicException":  # a Rust panic, which is no Exception and cannot be imported
            raise
        return []


def _search(root: Term, terms: list[Term], rules: tuple[Rule, ...], at: Rates, deadline: float) -> list[Term]:
    egraph = bindings.EGraph()

    def run(*lines: str) -> None:
        egraph.run_program(*egraph.parse_program("\n".join(lines)))

    ranks = range(max(len(term.shape) for term in terms) + 2)
    run(*_declarations(), *_shape_rules(ranks), *map(rule_text, rules))
    run(*_insertion(terms), "(run-schedule (saturate (run shapes)))")
    size = 0
    for _ in range(ITERATIONS):
        run(f"(run-schedule (let-scheduler once (back-off :match-limit {MATCHES})) (run-with once laws))")
        run("(run-schedule (saturate (run shapes)))")
        nodes = _nodes(egraph)
        if len(nodes) == size or len(nodes) > NODES or time.monotonic() > deadline:
            break
        size = len(nodes)
    return _Extraction(_nodes(egraph), terms, at).cheapest(terms.index(root), deadline)


def _finite(term: Term) -> bool:
    return all(math.isfinite(item) for item in term.attrs if isinstance(item, float))


def _nodes(egraph: Any) -> dict[str, Any]:
    text = egraph.serialize([], max_functions=None, max_calls_per_function=None, include_temporary_functions=False)
    nodes: dict[str, Any] = json.loads(text.to_json())["nodes"]
    return nodes


# --- the rule table in egglog's language --------------------------------------------------------------------------


def _declarations() -> Iterator[str]:
    yield "(sort T) (sort IVec (Vec i64)) (sort TVec (Vec T)) (ruleset shapes) (ruleset laws)"
    yield "(constructor Given (i64) T) (constructor Call (i64 TVec) T) (function shape (T) IVec :merge old)"
    for op in OPERATORS:
        terms, attributes = arity(op)
        sorts = ["T"] * terms + [_SORTS[kind] for kind in _ATTRIBUTES.get(op, "d" * attributes)]
        yield f"(constructor {op}_ ({' '.join(sorts)}) T)"


def _shape_rules(ranks: range) -> Iterator[str]:
    def rule(pattern: str, result: str, *facts: str) -> str:
        return f"(rule ((= root {pattern}) {' '.join(facts)}) ((set (shape root) {result})) :ruleset shapes)"

    p, q = "(= p (shape a))", "(= q (shape b))"
    last, rows = "(- (vec-length p) 1)", "(- (vec-length p) 2)"
    for op in _UNARY:
        yield rule(f"({op}_ a{' x' if arity(op)[1] else ''})", "p", p)
    for op in REDUCTIONS:
        yield rule(f"({op}_ a d)", "(vec-set p d 1)", p)
    yield rule("(t_ a)", f"(vec-set (vec-set p {rows} (vec-get p {last})) {last} (vec-get p {rows}))", p)
    yield rule("(diag_ a)", "(vec-of (vec-get p 0) (vec-get p 0))", p)
    yield rule("(fill_ c s)", "s")
    yield rule("(reshape_ a s)", "s")
    yield rule("(squeeze_ a d)", "(vec-remove p d)", p)
    for rank in ranks:
        here = f"(= {rank} (vec-length p))"
        for d in range(rank + 1):
            sizes = [f"(vec-get p {k})" for k in range(rank)]
            yield rule(f"(unsqueeze_ a {d})", _vector([*sizes[:d], "1", *sizes[d:]]), p, here)
        wide = [f"(max (vec-get p {k}) (vec-get q {k}))" for k in range(rank)]
        for op in BINARY:
            yield rule(f"({op}_ a b)", _vector(wide), p, q, here)
        if rank >= 2:
            result = [*wide[:-2], f"(vec-get p {rank - 2})", f"(vec-get q {rank - 1})"]
            yield rule("(matmul_ a b)", _vector(result), p, q, here)


def _vector(items: Sequence[object]) -> str:
    return f"(vec-of {' '.join(map(str, items))})" if items else "(vec-empty)"


def rule_text(rule: Rule) -> str:
    """One rule in egglog's language: facts bind the pattern and the shapes, then a union."""
    writer = _RuleWriter()
    left = writer.pattern(rule.left)
    conditions = [] if rule.where is None else writer.conditions(rule.where)
    right = writer.built(rule.right)
    facts = [f"(= root {left})", *writer.facts, *conditions]
    return f"(rule ({' '.join(facts)}) ((union root {right})) :ruleset laws)"


class _RuleWriter:
    """Translates one rule; collects the facts that its parts need."""

    def __init__(self) -> None:
        self.facts: list[str] = []

    def pattern(self, node: ast.expr) -> str:
        if isinstance(node, ast.Name):
            return node.id
        if isinstance(node, ast.NamedExpr):
            self.facts.append(f"(= {node.target.id} {self.pattern(node.value)})")
            return node.target.id
        assert isinstance(node, ast.Call)
        return f"({pattern_operator(node)}_ {' '.join(map(self.pattern, node.args))})"

    def conditions(self, node: ast.expr) -> list[str]:
        if isinstance(node, ast.BoolOp):
            return [text for part in node.values for text in self.conditions(part)]
        assert isinstance(node, ast.Compare)
        sign = _COMPARISONS[type(node.ops[0])]
        return [f"({sign} {self.number(node.left)} {self.number(node.comparators[0])})"]

    def built(self, node: ast.expr) -> str:
        if isinstance(node, ast.Name):
            return node.id
        assert isinstance(node, ast.Call)
        op = pattern_operator(node)
        terms = arity(op)[0]
        parts = [*map(self.built, node.args[:terms]), *map(self.number, node.args[terms:])]
        return f"({op}_ {' '.join(parts)})"

    def number(self, node: ast.expr) -> str:
        if isinstance(node, ast.Constant):
            return repr(node.value)
        if isinstance(node, ast.UnaryOp):
            return f"-{self.number(node.operand)}"
        if isinstance(node, ast.Name):
            return node.id
        if isinstance(node, ast.BinOp):
            return f"({_SIGNS[type(node.op)]} {self.number(node.left)} {self.number(node.right)})"
        assert isinstance(node, ast.Call) and isinstance(node.func, ast.Name)
        return self._function(node.func.id, node.args)

    def _function(self, name: str, args: list[ast.expr]) -> str:
        if name == "float":
            return f"(to-f64 {self.number(args[0])})"
        subject = args[0]
        assert isinstance(subject, ast.Name)
        fact = f"(= shape-{subject.id} (shape {subject.id}))"
        if fact not in self.facts:
            self.facts.append(fact)
        shape = f"shape-{subject.id}"
        if name == "shape":
            return shape
        if name == "size":
            return f"(vec-get {shape} {self.number(args[1])})"
        return f"(- (vec-length {shape}) {dict(rank=0, last=1, rows=2)[name]})"


# --- the program in, and programs out -----------------------------------------------------------------------------


def _insertion(terms: list[Term]) -> Iterator[str]:
    """Definitions ``$0``, ``$1`` ... of terms in order; opaque ones carry their index and their shape."""
    index = {term: number for number, term in enumerate(terms)}
    for term, number in index.items():
        args = [f"${index[arg]}" for arg in term.args]
        if term.op in ("call", "get"):
            text = f"(Call {number} {_vector(args)})"
        elif term.op == "leaf":
            text = f"(Given {number})"
        else:
            text = f"({term.op}_ {' '.join([*args, *map(_attribute, term.attrs)])})"
        yield f"(let ${number} {text}) (set (shape ${number}) {_vector(term.shape)})"


def _attribute(item: Any) -> str:
    return _vector(item) if isinstance(item, tuple) else repr(item)


class _Extraction:
    """The cheapest few programs of every e-class, found bottom-up until nothing improves or the time is over.

    A node is looked at again only when a class below it has another program: its offers are then new ones."""

    def __init__(self, nodes: dict[str, Any], terms: list[Term], at: Rates) -> None:
        self.nodes, self.terms, self.at = nodes, terms, at
        self.best: dict[str, dict[Term, float]] = {}
        self.values: dict[str, Any] = {}
        self.opaque: dict[int, str] = {}
        self.changes: collections.Counter[str] = collections.Counter()
        self.seen: dict[str, tuple[int, ...]] = {}

    def cheapest(self, root: int, deadline: float = math.inf) -> list[Term]:
        """Programs of the class of the root, which is the opaque call number ``root``."""
        changed = True
        while changed and time.monotonic() <= deadline:
            changed = False
            for name, node in self.nodes.items():
                if time.monotonic() > deadline:
                    break
                changed |= self._visit(name, node)
        found = self.best.get(self.opaque.get(root, ""), {})
        return sorted(found, key=lambda term: found[term])

    def _visit(self, name: str, node: dict[str, Any]) -> bool:
        op, home = node["op"], node["eclass"]
        children = [self.nodes[child]["eclass"] for child in node["children"]]
        if op == "shape":
            return False
        if home.split("-")[0] != "T":
            return self._visit_value(op, home, children)
        if op in ("Given", "Call"):
            number = self.values.get(children[0])
            if number is None:
                return False
            self.opaque[number] = home
            original = self.terms[number]
            below = self.values.get(children[1], []) if op == "Call" else []
            make_term = functools.partial(self._opaque, original)
        else:
            terms, attributes = arity(op[:-1])
            if any(child not in self.values for child in children[terms:]):
                return False
            attrs = tuple(self.values[child] for child in children[terms:])
            below = children[:terms]
            make_term = functools.partial(self._structured, op[:-1], attrs)
        state = tuple(self.changes[child] for child in below)
        if self.seen.get(name) == state:
            return False
        self.seen[name] = state
        choices = itertools.product(*self._lists(below))
        return any([self._offer(home, make_term, choice) for choice in choices])

    def _lists(self, classes: Sequence[str]) -> list[list[tuple[Term, float]]]:
        return [[*self.best.get(child, {}).items()] for child in classes]

    def _visit_value(self, op: str, home: str, children: list[str]) -> bool:
        if home in self.values:
            return False
        kind = home.split("-")[0]
        if kind == "TVec":
            self.values[home] = children
        elif any(child not in self.values for child in children):
            return False
        elif kind == "IVec":
            self.values[home] = tuple(self.values[child] for child in children)
        else:
            self.values[home] = {"i64": int, "f64": float}.get(kind, str)(op)
        return True

    @staticmethod
    def _opaque(original: Term, args: tuple[Term, ...]) -> Term:
        return make(original.op, args, original.attrs, original.shape)

    @staticmethod
    def _structured(op: str, attrs: tuple[Any, ...], args: tuple[Term, ...]) -> Term:
        if (op, *attrs) in _NEUTRAL:
            raise IllTyped("a step that does nothing")
        return make(op, args, attrs)

    def _offer(
        self, home: str, build: Callable[[tuple[Term, ...]], Term], choice: Sequence[tuple[Term, float]]
    ) -> bool:
        try:
            term = build(tuple(term for term, _ in choice))
        except (IllTyped, IndexError):
            return False
        seconds = cost(term, self.at) + sum(spent for _, spent in choice)
        known = self.best.setdefault(home, {})
        if term in known:
            return False
        if len(known) >= KEPT:
            worst = max(known, key=lambda other: known[other])
            if known[worst] <= seconds:
                return False
            del known[worst]
        known[term] = seconds
        self.changes[home] += 1
        return True
