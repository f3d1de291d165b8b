# SPDX-License-Identifier: Apache-2.0
"""The ``templates`` proposer: fused kernels written from the reference's graph, in C++ on a CPU, in Triton on a GPU."""

from __future__ import annotations

from collections.abc import Mapping

from kernelwright.candidate import Candidate
from kernelwright.proposers import Request, Structure
from kernelwright.proposers.templates import cpp_program, expected, triton_program
from kernelwright.proposers.templates.graph import Capture, NotCaptured, capture
from kernelwright.proposers.templates.ir import Program
from kernelwright.proposers.templates.lower import lower


class TemplatesProposer:
    """Deterministic; the graph of a task is traced once and kept for the life of the proposer."""

    name = "templates"

    def __init__(self) -> None:
        self._traced: dict[str, tuple[Capture, Program] | str] = {}

    def structures(self, request: Request) -> list[Structure]:
        """``rowwise.cpp``, ``pointwise.cpp`` or ``segments.cpp`` on a CPU; the Triton ones on CUDA; or nothing."""
        traced = self._trace(request)
        if isinstance(traced, str):
            request.say(traced)
            return []
        if request.device.startswith("cuda"):
            return expected.ordered(triton_program.structures(traced[1]), traced[1], request.machine)
        return cpp_program.structures(traced[1]) if _fused(traced[1]) else []

    def render(self, request: Request, structure: str, values: Mapping[str, int | float | str | bool]) -> Candidate:
        """The candidate of one structure for one choice of values."""
        traced = self._trace(request)
        if isinstance(traced, str):
            raise KeyError(structure)
        language = triton_program if request.device.startswith("cuda") else cpp_program
        return language.render(traced[1], traced[0], structure, values, request)

    def _trace(self, request: Request) -> tuple[Capture, Program] | str:
        """What there is to write, or why there is nothing."""
        on_host = not request.device.startswith("cuda")
        key = f"{request.task.digest()}.{on_host}"
        if key not in self._traced:
            self._traced[key] = "no templates for gradients and random numbers"
            if not request.task.contract.gradients and not request.task.contract.random:
                try:
                    captured = capture(request.task)
                    self._traced[key] = (captured, lower(captured, on_host))
                except NotCaptured as reason:
                    self._traced[key] = f"no template fits: {reason}"
        return self._traced[key]


def _fused(program: Program) -> int:
    """Operations that would no longer be torch's own; none: there is nothing to gain."""
    return sum(1 for f in program.regions() for v in f.region.values if v.args) + len(program.windows())
