# SPDX-License-Identifier: Apache-2.0
"""Flags that several comparisons decide: each of those within rounding of its border may fall to either side."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from plain_tasks import instance

from kernelwright.judge.inputs import Variant
from kernelwright.judge.sides import PATTERNS, Sides
from kernelwright.judge.verify import Checker

GIVEN = Variant(name="as given", required=True)
Parts = list[torch.Tensor] | tuple[torch.Tensor, ...]
Program = Callable[..., torch.Tensor]
BESIDE = "torch.linalg.cross(x, y)[..., 2] >= 0"
PARALLEL = "[(a := torch.randn(256, 3)), a * 0.7]"
HEAD = """
def same(p, a, b, c):
    u, v, w = (torch.linalg.cross(t - s, p - s) for s, t in ((a, b), (b, c), (c, a)))
    return ((u * v).sum(-1) >= 0) & ((u * w).sum(-1) >= 0)
"""
IN_A_LINE = "[*(torch.randn(1024, 1).expand(1024, 3).contiguous() for _ in range(3)), torch.randn(1024, 3)]"


def passes(forward: str, inputs: str, args: str, other: Program, head: str = "") -> list[bool]:
    """Whether a program's answers pass to those of several calls in which some are not the reference's."""
    checker, said = Checker(instance(forward, inputs, args=args, head=head), seed=3), []
    for seed in range(6):
        leaves = checker.instance.draw(GIVEN, seed)
        (eager,), ((exact,), _) = checker.instance.eager(leaves, None), checker.instance.oracle(leaves, None)
        got = other(*leaves)
        if bool(((got != eager) & (got != exact)).any()):
            said.append(checker.check(GIVEN, leaves, None, [got], leaves).passed)
    assert said
    return said


def cross(p: Parts, q: Parts) -> Parts:
    """A cross product, each product rounded by itself."""
    return [p[1] * q[2] - p[2] * q[1], p[2] * q[0] - p[0] * q[2], p[0] * q[1] - p[1] * q[0]]


def dot(p: Parts, q: Parts) -> torch.Tensor:
    """A sum of three products."""
    return p[0] * q[0] + p[1] * q[1] + p[2] * q[2]


def same_side(*points: torch.Tensor) -> torch.Tensor:
    """``HEAD`` one component at a time."""
    p, a, b, c = (point.unbind(-1) for point in points)

    def beside(s: Parts, t: Parts) -> Parts:
        return cross([i - j for i, j in zip(t, s, strict=True)], [i - j for i, j in zip(p, s, strict=True)])

    u, v, w = beside(a, b), beside(b, c), beside(c, a)
    return (dot(u, v) >= 0) & (dot(u, w) >= 0)


def test_a_cross_product_of_parallel_vectors_is_rounding_of_its_products() -> None:
    """Its sign is as the products round, which vanish beside each other; numbers of 16 bits do not decide it."""
    assert all(passes(BESIDE, PARALLEL, "x, y", lambda x, y: cross(x.unbind(-1), y.unbind(-1))[2] >= 0))
    drawn = "[torch.randn(4096, 3), torch.randn(4096, 3)]"
    assert not any(passes(BESIDE, drawn, "x, y", lambda x, y: cross(*(k.half().unbind(-1) for k in (x, y)))[2] >= 0))


@pytest.mark.parametrize(
    ("program", "right"),
    [(same_side, True), (lambda *points: same_side(*(point.half().float() for point in points)), False)],
)
def test_two_signs_that_noise_has_always_unlike_may_both_be_those_of_zero(program: Program, right: bool) -> None:
    """Three points in a line and one beside it; not of points that were moved."""
    inputs = IN_A_LINE if right else "[torch.randn(4096, 3) for _ in range(4)]"
    assert set(passes("same(p, a, b, c)", inputs, "p, a, b, c", program, HEAD)) == {right}


def test_only_sides_that_were_both_met_are_taken_together() -> None:
    """Each pattern once; what is always on one side stays there."""
    sides, rng = Sides(), torch.Generator()
    first, second = torch.tensor([True, True]), torch.tensor([True, False])
    for out in (first, second):
        for number in range(2):
            sides.fallen(number, out, rng, None)
        assert sides.patterns() == (0 if out is first else 4)
    met = {tuple(tuple(sides.fallen(n, first, rng, k).tolist()) for n in range(2)) for k in range(sides.patterns())}
    assert met == {((True, one), (True, other)) for one in (True, False) for other in (True, False)}
    for number in range(2, 9):
        sides.fallen(number, first, rng, None)
    assert sides.patterns() == PATTERNS
