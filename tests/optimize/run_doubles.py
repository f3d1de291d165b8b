# SPDX-License-Identifier: Apache-2.0
"""Doubles of whole runs: a landscape of candidates that a run against them is to find its way in."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from kernelwright.candidate import Candidate
from kernelwright.optimize import Event, Options, Result, Services, optimize_task
from kernelwright.proposers import Structure
from kernelwright.task import Task
from kernelwright.testing import FakeHost, FakeWorker, Verdict
from kernelwright.trial import Rejected
from kernelwright.tuning import Parameter, Space

REFERENCE = """import torch
class Model(torch.nn.Module):
    def forward(self, x):
        return x
def get_inputs():
    return [torch.randn(4)]
def get_init_inputs():
    return []
"""
TASK = Task(name="double", form="kernelbench", reference=REFERENCE)
NOWHERE = Space(parameters=(), constraints=())
SIZES = Space(parameters=(Parameter(name="size", values=(8, 1, 2, 4, 16, 32)),), constraints=())


def structure(name: str, space: Space = NOWHERE, order: float = 1.0, language: str = "torch") -> Structure:
    """A structure with a fixed name."""
    return Structure(name=name, note=f"about {name}", language=language, space=space, order=order)


HOST = {
    "compiler": [structure("mode", order=2.0)],
    "rewrites": [structure("law")],
    "templates": [structure("tiles", SIZES, order=0.5)],
}


def landscape(candidate: Candidate) -> Verdict:
    """law is wrong, mode takes 90 us, tiles are best at size 2 with 20 us."""
    if candidate.proposer == "rewrites":
        return Rejected(stage="verify", reason="wrong by 3 bits", detail="at 0")
    if candidate.proposer == "compiler":
        return 90.0
    size = int(dict(candidate.tunables)["size"])
    return 20.0 + 5 * abs(size.bit_length() - 2)


def go(
    out: Path | None,
    verdict: Callable[[Candidate], Verdict] = landscape,
    *,
    host: FakeHost | None = None,
    heard: list[Event] | None = None,
    worker: FakeWorker | None = None,
    options: Options | None = None,
) -> tuple[Result, FakeWorker]:
    """One run against doubles."""
    judge = worker or FakeWorker(verdict)
    services = Services("cpu", worker=judge, host=host or FakeHost(HOST))
    listen = heard.append if heard is not None else None
    return optimize_task(TASK, options or Options(), out=out, services=services, listen=listen), judge
