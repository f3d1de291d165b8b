# SPDX-License-Identifier: Apache-2.0
"""The Proposer protocol and the table of deterministic proposers, each loaded only when chosen.

Proposers run in the proposer host (``python -m kernelwright.proposers``), never in the parent: they may
need torch to trace the reference. They never build, run, grade or time what they propose.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Protocol

from kernelwright.candidate import Candidate
from kernelwright.machine import Machine
from kernelwright.task import Task
from kernelwright.tuning import Space

TABLE: Mapping[str, str] = {
    "compiler": "kernelwright.proposers.compiler:CompilerProposer",
    "rewrites": "kernelwright.proposers.rewrites:RewritesProposer",
    "templates": "kernelwright.proposers.templates:TemplatesProposer",
}
"""Proposer name to ``module:Class``."""
TRACELESS = frozenset({"compiler"})
"""Those that write their candidates without a trace of the reference."""


def silent(reason: str) -> None:
    """Hears nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """What a deterministic proposer is asked: this task, on this device."""

    task: Task
    device: str
    """``cpu`` or ``cuda`` (an index is of no interest to a proposer)."""
    machine: Machine | None
    say: Callable[[str], None] = silent
    """Hears why nothing is proposed, or less."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Structure:
    """One program shape with its open parameters; ``render`` closes them into a Candidate."""

    name: str
    """Unique within its proposer and task, stable between runs: ``rowwise.cpp``, ``eqsat.0`` ..."""
    note: str
    """One line for a person."""
    language: str
    space: Space
    """Empty space: one candidate."""
    order: float
    """Expected time relative to eager (lower is tried first); a guess, never reported."""


class Proposer(Protocol):
    """Deterministic: equal requests give equal structures and equal candidates, on every machine and hash seed."""

    name: str

    def structures(self, request: Request) -> list[Structure]:
        """Every program shape that applies to the task; empty when none does. Raises nothing for odd tasks."""
        ...

    def render(self, request: Request, structure: str, values: Mapping[str, int | float | str | bool]) -> Candidate:
        """The candidate of a structure for one choice of values (missing names take their first value)."""
        ...
