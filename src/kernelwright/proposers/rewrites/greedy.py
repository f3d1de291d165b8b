# SPDX-License-Identifier: Apache-2.0
"""Rewriting without an e-graph: a beam over whole programs, one law at one place per step. No third-party package."""

from __future__ import annotations

import time

from kernelwright.proposers.rewrites.cost import Rates, total
from kernelwright.proposers.rewrites.laws import Rule
from kernelwright.proposers.rewrites.match import neighbours
from kernelwright.proposers.rewrites.terms import Term, rebuild, walk

WIDTH = 8
STEPS = 24
PATIENCE = 6
"""Steps without a cheaper program before giving up: how far uphill or sideways a path may lead."""


def search(root: Term, rules: tuple[Rule, ...], at: Rates, *, seconds: float) -> list[Term]:
    """Programs equal to ``root`` in the reals, cheapest first; at least ``root`` itself."""
    deadline = time.monotonic() + seconds
    memory: dict[Term, list[Term]] = {}
    costs = {root: total(root, at)}
    beam, best, stale = [root], costs[root], 0
    for _ in range(STEPS):
        fresh: list[Term] = []
        for program in beam:
            for place in walk((program,)):
                if place not in memory:
                    memory[place] = [result for _, result in neighbours(place, rules)]
                for result in memory[place]:
                    changed = replace(program, place, result)
                    if changed not in costs:
                        costs[changed] = total(changed, at)
                        fresh.append(changed)
            if time.monotonic() > deadline:
                return _cheapest(costs)
        beam = sorted(fresh, key=lambda program: costs[program])[:WIDTH]
        stale = 0 if beam and costs[beam[0]] < best else stale + 1
        best = min(best, *(costs[program] for program in beam)) if beam else best
        if not beam or stale > PATIENCE:
            break
    return _cheapest(costs)


def _cheapest(costs: dict[Term, float]) -> list[Term]:
    return sorted(costs, key=lambda program: costs[program])[:64]


def replace(root: Term, place: Term, by: Term) -> Term:
    """``root`` with every occurrence of ``place`` replaced."""
    done: dict[Term, Term] = {place: by}
    for term in walk((root,)):
        if term not in done:
            args = tuple(done[arg] for arg in term.args)
            done[term] = term if args == term.args else rebuild(term, args)
    return done[root]
