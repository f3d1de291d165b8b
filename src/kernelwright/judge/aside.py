# SPDX-License-Identifier: Apache-2.0
"""Some of the other cases of a proof, checked in a fork of the judge, and what is taken over from there.

Checks are mostly Python, in one thread. Softmax with nine cases on two cores: with four of the other eight in a fork a
proof of 13.6 s takes 12.3 (those cases 4.8 s, 3.5), layer norm with a residual 32.6 and 29.6 (12 and 9.2). The fork has
the reference, the cases and all that is known of them from the first moment on. What it cannot do, and where it dies,
the judge does itself.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from kernelwright.candidate import Candidate
from kernelwright.errors import JudgeFailed
from kernelwright.judge import load, waiting
from kernelwright.judge.bench import DEAR_BYTES, Point
from kernelwright.judge.by_chance import MOST, ByChance
from kernelwright.judge.checks import Wrong
from kernelwright.judge.leash import ChildFailure
from kernelwright.judge.numerics import bits_lost
from kernelwright.judge.programs import Programs
from kernelwright.judge.verify import Drawn
from kernelwright.sandbox.forked import Fork
from kernelwright.sandbox.lease import Lease
from kernelwright.task import Contract
from kernelwright.trial import CaseResult

IDLE = 0.6
"""Share of all CPUs' time that nobody but this judge uses, from which on it pays: two judges on two cores wait for each
other."""
FEWEST = 2
"""Cases from which it pays: a fork takes 20 to 50 ms, and a second core comes to the pages that both then write."""
CALL_BYTES = 64 << 20
"""The largest call of them: what is bound for it is there besides what is bound for another case."""
Shared = Callable[[], contextlib.AbstractContextManager[None]]
Work = Callable[[Shared], "Found"]


@dataclass(frozen=True, slots=True)
class Known:
    """What was found out about one case: see ``Point.known``, ``Checker`` and ``Instance.notes``."""

    usable: dict[str, bool]
    drawn: Drawn
    notes: list[str]
    said: list[str]
    oracle: str


@dataclass(frozen=True, slots=True)
class Found:
    """What checks of other cases found out about a program, and about the reference."""

    covered: set[tuple[Any, str]]
    results: list[CaseResult]
    conditions: list[str]
    chance: ByChance
    cases: list[Known]


def begun(programs: Programs, candidate: Candidate, device: str, lease: Lease, work: Work) -> Fork[Found] | None:
    """``work`` in a fork, where a CPU has a core for it and the candidate is ready to run. It is given shares of the
    device of its own."""
    if device != "cpu" or programs.threads < 2 or waiting.may_compile(candidate) or load.idle_share() < IDLE:
        return None
    with contextlib.suppress(OSError, JudgeFailed), lease.shared():  # none else is being locked then
        return programs.forked(lambda: work(lease.forked().shared), (Wrong, ChildFailure))
    return None


def pays(points: Sequence[Point], contract: Contract) -> bool:
    """Whether these cases are several, and small. Where results are random, each checker remembers the ones before, and
    dear weights are drawn once for all cases."""
    if contract.random or len(points) < FEWEST:
        return False
    return all(point.call_bytes <= CALL_BYTES and point.state_bytes <= DEAR_BYTES for point in points)


def known(points: Sequence[Point]) -> list[Known]:
    """Of each case."""
    pairs = [(point, point.checker) for point in points]
    return [Known(dict(p.known), dict(c.drawn), c.notes, p.instance.notes, c.oracle) for p, c in pairs]


def adopted(points: Sequence[Point], found: Found, chance: ByChance) -> None:
    """Take over what a fork found out. Raises Wrong where it and this process let pass more by chance than one may."""
    for point, there in zip(points, found.cases, strict=True):
        point.known.update(there.usable)
        for name, draws in there.drawn.items():
            point.checker.drawn.setdefault(name, draws)
        for mine, others in ((point.checker.notes, there.notes), (point.instance.notes, there.said)):
            mine += [note for note in others if note not in mine]
        point.checker.weaken(there.oracle)
    chance.seen, chance.worst = chance.seen + found.chance.seen, max(chance.worst, found.chance.worst)
    if chance.seen > MOST:
        last = next(r for r in reversed(found.results) if r.passed and bits_lost(r.error_ratio) > chance.allowed)
        raise Wrong("verify", f"{last.name}: {last.detail}", last.detail)
