# SPDX-License-Identifier: Apache-2.0
"""Every law is true where it says it is, in float64 on random shapes, and is not applied where it is false."""

from __future__ import annotations

import ast
import random
import zlib
from typing import Any

import pytest
import torch

from kernelwright.proposers.rewrites.laws import Law, laws, rules
from kernelwright.proposers.rewrites.match import apply, build
from kernelwright.proposers.rewrites.terms import IllTyped, Term, leaf, make

LAWS = {law.name: law for law in laws()}


def evaluate(term: Term, given: dict[str, torch.Tensor]) -> torch.Tensor:
    """The meaning of each operator, written independently of the emitter."""
    args = [evaluate(arg, given) for arg in term.args]
    x, at = (args or [None])[0], (term.attrs or (None,))[0]
    meaning = {
        "leaf": lambda: given[at],
        "fill": lambda: torch.full(term.shape, at, dtype=torch.float64),
        "matmul": lambda: torch.einsum("...mk,...kn->...mn", *args),
        "t": lambda: x.transpose(-1, -2),
        "diag": lambda: x.unsqueeze(0) * torch.eye(len(x), dtype=x.dtype),
        "add": lambda: args[0] + args[1],
        "sub": lambda: args[0] - args[1],
        "mul": lambda: args[0] * args[1],
        "div": lambda: args[0] / args[1],
        "scale": lambda: x * at,
        "shift": lambda: x + at,
        "over": lambda: x / at,
        "relu": lambda: x.clamp(min=0),
        "sum": lambda: x.sum(at, keepdim=True),
        "mean": lambda: x.mean(at, keepdim=True),
        "max": lambda: x.amax(at, keepdim=True),
        "min": lambda: x.amin(at, keepdim=True),
        "logsumexp": lambda: x.exp().sum(at, keepdim=True).log(),
        "softmax": lambda: x.exp() / x.exp().sum(at, keepdim=True),
        "logsoftmax": lambda: x - x.exp().sum(at, keepdim=True).log(),
        "unsqueeze": lambda: x.unsqueeze(at),
        "squeeze": lambda: x.squeeze(at),
        "reshape": lambda: x.reshape(at),
    }
    return meaning[term.op]()


def instance(text: str, seed: int) -> tuple[dict[str, Any], dict[str, torch.Tensor]]:
    """``A: m k; d=1`` as bindings and values; letters become distinct sizes between 2 and 9."""
    draw = random.Random(seed)
    letters = dict(zip("bkmnp", draw.sample(range(2, 10), 5), strict=True))
    bound: dict[str, Any] = {}
    values: dict[str, torch.Tensor] = {}
    generator = torch.Generator().manual_seed(seed)
    for part in text.split("; "):
        if "=" in part:
            name, _, number = part.partition("=")
            bound[name] = float(number) if "." in number else int(number)
            continue
        name, _, sizes = part.partition(": ")
        shape = tuple(letters.get(size) or int(size) for size in sizes.split())
        bound[name] = leaf(name, *shape) if name.isupper() else shape
        if name.isupper():
            values[name] = torch.randn(shape, dtype=torch.float64, generator=generator)
    return bound, values


class _Plain(ast.NodeTransformer):
    def visit_NamedExpr(self, node: ast.NamedExpr) -> ast.AST:
        return self.visit(node.value)


def side(text: str, bound: dict[str, Any]) -> Term:
    """One side of a law as a term."""
    tree = ast.parse(text, mode="eval").body
    for node in ast.walk(tree):
        if isinstance(node, ast.NamedExpr):
            bound[node.target.id] = build(_Plain().visit(ast.parse(ast.unparse(node.value), mode="eval").body), bound)
    return build(_Plain().visit(tree), bound)


def results(law: Law, term: Term) -> list[Term]:
    """What the rules of a law make of a term."""
    found = [apply(rule, term) for rule in rules() if rule.name == law.name]
    return [result for result in found if result is not None]


def seed_of(name: str, draw: int) -> int:
    """A seed that does not depend on the hash seed of the process."""
    return zlib.crc32(f"{name}{draw}".encode())


@pytest.mark.parametrize("name", LAWS)
def test_a_law_holds_on_random_shapes_in_float64(name: str) -> None:
    """Both sides exist, the rule turns one into the other, and their values agree."""
    law = LAWS[name]
    for draw in range(2):
        bound, values = instance(law.holds, seed_of(name, draw))
        left = side(law.left, bound)
        right = side(law.right, bound)

        assert right in results(law, left) or right == left
        assert left in results(law, right) or not law.both
        torch.testing.assert_close(evaluate(right, values), evaluate(left, values), rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("name", [name for name, law in LAWS.items() if law.where])
def test_a_law_is_not_applied_where_its_condition_fails_and_rightly_so(name: str) -> None:
    """The counterexample differs or does not exist, and no rule of the law matches it."""
    law = LAWS[name]
    for draw in range(2):
        bound, values = instance(law.fails, seed_of(name, draw))
        left = side(law.left, bound)
        exact = evaluate(left, values)
        try:
            right = side(law.right, bound)
        except (IllTyped, IndexError, ZeroDivisionError):
            right = None

        assert [] == results(law, left)
        assert right is None or right.shape != left.shape or not torch.allclose(evaluate(right, values), exact)


def test_every_conditional_law_names_a_counterexample() -> None:
    """A condition without a case that needs it is either superfluous or untested."""
    assert [] == [law.name for law in laws() if bool(law.where) != bool(law.fails)]


def test_law_names_are_unique() -> None:
    """Reports cite laws by name."""
    assert len(laws()) == len(LAWS)


def test_commuting_operators_match_in_either_order() -> None:
    """a*diag is found whichever side of the product the factor stands on."""
    a, b, r = leaf("A", 3, 4), leaf("B", 4, 5), leaf("R", 3, 1)
    law = LAWS["row-factor-leaves-product"]
    expected = make("mul", (make("matmul", (a, b)), r))

    assert [expected] == results(law, make("matmul", (make("mul", (r, a)), b)))
    assert [expected] == results(law, make("matmul", (make("mul", (a, r)), b)))


def test_an_ill_typed_result_is_no_result() -> None:
    """A rule whose right side does not fit the shapes at hand stays silent."""
    with pytest.raises(IllTyped):
        make("matmul", (leaf("A", 3, 4), leaf("B", 3, 4)))
    with pytest.raises(IllTyped):
        make("add", (leaf("A", 3, 4), leaf("B", 4)))
