# SPDX-License-Identifier: Apache-2.0
"""The judge's job ``profile``: from a built candidate and a bench to plain data, and to the pairs a proof carries."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

from kernelwright import limits
from kernelwright.candidate import Candidate
from kernelwright.judge import skeletons
from kernelwright.judge.bench import Bench
from kernelwright.judge.profile import Subject, energy_of, profile, static
from kernelwright.judge.programs import readable
from kernelwright.machine import Machine
from kernelwright.trial import Outcome, Timed


def run(
    bench: Bench, candidate: Candidate, folder: Path, machine: Machine, workshop: Path, threads: int, *, count: bool
) -> dict[str, Any]:
    """{"candidate" (digest), "facts", "notes", "kernels", "bound_us", "limiter"} of one call of the timed case."""
    subject = _subject(bench, candidate, folder, workshop, threads)
    bounds = limits.bounds(subject.traced, machine)
    found = profile(subject, machine, count=count)
    return {
        "candidate": candidate.digest(),
        "facts": found.facts,
        "notes": found.notes,
        "kernels": [dataclasses.asdict(kernel) for kernel in found.kernels],
        "bound_us": bounds.unavoidable_us if bounds else None,
        "limiter": bounds.limiter if bounds else "unknown",
    }


def energy(bench: Bench, candidate: Candidate, folder: Path, workshop: Path, threads: int) -> dict[str, Any]:
    """{"mJ", "watts", "note"} of one call of the timed case; None where nothing was measured."""
    found, note = energy_of(_subject(bench, candidate, folder, workshop, threads))
    return {"mJ": found.get("energy_mJ"), "watts": found.get("watts"), "note": note}


def _subject(bench: Bench, candidate: Candidate, folder: Path, workshop: Path, threads: int) -> Subject:
    instance = bench.timed.instance
    leaves = instance.draw(bench.timed.as_given, 0)
    args = skeletons.unflatten(instance.skeleton, leaves)
    return Subject(
        entry=candidate.entry,
        folder=folder.resolve(),
        device=str(bench.device),
        init_args=instance.init_args,
        init_kwargs=instance.init_kwargs,
        state=instance.first_state,
        leaves=leaves,
        skeleton=instance.skeleton,
        training=bench.contract.training,
        traced=limits.trace_module(instance.model, args, {}, gradients=False),
        workshop=(workshop / candidate.digest()).resolve(),
        threads=threads,
        imports=readable(bench.task.imports),
    )


def with_compiled(outcome: Outcome | None, candidate: Candidate, folder: Path, jit: Path) -> Outcome | None:
    """The outcome with the facts of its compiled object; ``jit``: what it compiled itself."""
    if not isinstance(outcome, Timed):
        return outcome
    found = static.facts(folder, candidate.language, jit / "triton")
    return attached(outcome, {"facts": found, "notes": []})


def attached(outcome: Outcome | None, found: dict[str, Any]) -> Outcome | None:
    """The outcome with the facts beside its proof, as text; one that was not timed stays as it is."""
    if not isinstance(outcome, Timed):
        return outcome
    values = sorted(found["facts"].items())
    pairs = [(name, value if isinstance(value, str) else f"{value:.6g}") for name, value in values]
    return dataclasses.replace(outcome, profile=(*pairs, *(("note", note) for note in found["notes"])))
