# SPDX-License-Identifier: Apache-2.0
"""What prompts say of a task and its surroundings, from the judge's own description of them, in words."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from typing import Any

from kernelwright import wire
from kernelwright.candidate import Candidate
from kernelwright.errors import KernelwrightError
from kernelwright.machine import Machine
from kernelwright.optimize import tables
from kernelwright.proposers.agent import Surroundings, describe_us
from kernelwright.task import Task
from kernelwright.workers import Worker

PROBES = {
    "cpp": ("probe.cpp", 'extern "C" void probe(float* x) {\n  for (long i = 0; i < 999; ++i) x[i] += 1.0f;\n}\n'),
    "cuda": ("probe.cu", "__global__ void probe(float* x) { x[threadIdx.x] += 1.0f; }\n"),
}
"""A file in each compiled language, built once to learn the command that compiles it and what the machine offers."""
MAIN = ("kernel.py", "import torch\n\n\nclass ModelNew(torch.nn.Module):\n    pass\n")


def describe(
    task: Task, facts: Mapping[str, Any], device: str, language: str, worker: Worker, planned: Machine | None
) -> dict[str, Any]:
    """``shapes``, ``eager``, ``bound``, ``cases``, ``toolchain``, ``compiler``, ``vector_bits``, ``profile``.

    ``planned``: the machine, where a planner wants the reference operator by operator; else None."""
    return {
        "shapes": shapes(facts),
        "eager": _eager(facts),
        "bound": _bound(facts),
        "cases": _cases(facts),
        "profile": _operators(task, device, worker, planned),
        **_toolchain(device, language, worker),
    }


def about(nouns: Mapping[str, Any], *, watched: bool = False) -> Surroundings:
    """What ``describe`` returned, as prompts take it. ``watched``: sanitizers run before anything is timed."""
    return Surroundings(
        shapes=tuple(nouns.get("shapes", ())),
        eager=str(nouns.get("eager", "")),
        bound=str(nouns.get("bound", "")),
        cases=str(nouns.get("cases", "")),
        toolchain=str(nouns.get("toolchain", "")),
        compiler=str(nouns.get("compiler", "")),
        vector_bits=int(nouns.get("vector_bits", 0)),
        watched=watched,
    )


def shapes(facts: Mapping[str, Any]) -> list[str]:
    """Inputs, outputs and weights, a line each."""
    lines = [f"input {_shape(item)}" for item in facts.get("inputs", ())]
    lines += [f"output {_shape(item | {'name': n})}" for n, item in enumerate(facts.get("outputs", ()))]
    weights = list(facts.get("parameters", ()))
    lines += [f"state_dict {_shape(item)}" for item in weights]
    return lines if weights or not lines else [*lines, "state_dict: empty"]


def _shape(item: Mapping[str, Any]) -> str:
    where = "" if _packed(item) else f", strides {list(item['stride'])}"
    return f"{item.get('name', '')}: {item.get('dtype')} {list(item.get('shape', ()))}{where}"


def _packed(item: Mapping[str, Any]) -> bool:
    expected, step = [], 1
    for size in reversed(item.get("shape", ())):
        expected.append(step)
        step *= max(1, size)
    return "stride" not in item or list(item["stride"]) == expected[::-1] or step <= 1


def _eager(facts: Mapping[str, Any]) -> str:
    if not facts.get("eager_us"):
        return ""
    look = "by a first look; what eager took beside a program says more"
    return f"The reference takes about {describe_us(facts['eager_us'])} a call in eager PyTorch, {look}."


def _bound(facts: Mapping[str, Any]) -> str:
    if not facts.get("bound_us"):
        return ""
    return (
        f"Reading its inputs and writing its outputs once, which cannot be avoided, takes "
        f"{describe_us(facts['bound_us'])} on this machine."
    )


def _cases(facts: Mapping[str, Any]) -> str:
    """What is checked beyond the timed case; hidden sizes are not given away."""
    more = len(facts.get("cases", ())) > 1
    text = (
        "Other sizes are checked too, odd ones and small ones included, some of them not listed here: only ranks and "
        "dtypes may be relied on."
        if more
        else "Only the sizes of the timed case are checked: they may be relied on, and anything else may be refused "
        "with an exception."
    )
    named = [name for name in facts.get("variants", ()) if name != "as given"]
    return text + (f" At these sizes inputs are also drawn as: {', '.join(named)}." if named else "")


def _operators(task: Task, device: str, worker: Worker, machine: Machine | None) -> str:
    """The reference operator by operator with eager's times, or nothing."""
    if machine is None:
        return ""
    job = {"job": "limits", "device": device, "task": wire.to_data(task), "machine": wire.to_data(machine)}
    try:
        table = tables.limits(worker.run({**job, "timed": True}).get("bounds"))
    except KernelwrightError:
        return ""
    return f"The reference on this machine, operator by operator:\n\n```\n{table.strip()}\n```" if table.strip() else ""


def _toolchain(device: str, language: str, worker: Worker) -> dict[str, Any]:
    """The command that compiles native files, as the judge runs it, and the width of the processor's vectors."""
    if language not in PROBES:
        return {}
    candidate = Candidate(
        task="probe", language=language, entry="kernel.py::ModelNew", sources=(MAIN, PROBES[language]), proposer="probe"
    )
    try:
        reply = worker.run({"job": "build", "device": device, "candidate": wire.to_data(candidate), "facts": True})
    except KernelwrightError:
        return {}
    command: list[str] = next(iter(reply.get("commands", {}).values()), [])
    text = shlex.join(command).replace("'{output}'", "NAME.so").replace("'{source}'", PROBES[language][0])
    text = text.replace(PROBES[language][0], "NAME" + PROBES[language][0][5:])
    bits = (reply.get("facts") or {}).get("machine_bits", 0.0)
    return {"toolchain": text, "compiler": str(reply.get("compiler", "")), "vector_bits": int(bits)}
