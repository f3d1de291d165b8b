# SPDX-License-Identifier: Apache-2.0
"""The honest alternatives every candidate is raced against: the reference's own source, run as a candidate runs."""

from __future__ import annotations

from dataclasses import dataclass

from kernelwright.candidate import Candidate
from kernelwright.task import Task

PROPOSER = "baseline"

EAGER = """from reference import {entry} as Reference


class Baseline(Reference):
    pass
"""

COMPILED = """import torch
import torch._inductor.config
from reference import {entry} as Reference

# Choices are prepared in as many threads as the environment says, and nothing in processes beside this one.
torch._inductor.config.compile_threads = 1


class Baseline(Reference):
    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.compile({options})
"""

GRAPHED = """import torch
import torch._inductor.config
from torch.utils._pytree import tree_map_only
from reference import {entry} as Reference

torch._inductor.config.compile_threads = 1


class Baseline(Reference):
    # A replay overwrites the outputs of the one before, so a drop-in has to copy them out.
    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        object.__setattr__(self, "_graphed", torch.compile(super().__call__, {options}))

    def __call__(self, *args, **kwargs):
        torch.compiler.cudagraph_mark_step_begin()
        return tree_map_only(torch.Tensor, torch.clone, self._graphed(*args, **kwargs))
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    """One way to run the reference."""

    name: str
    template: str
    options: str
    compiles: bool
    """It spends seconds on its first call, so it is prepared ahead where that can be done."""


KINDS = {
    kind.name: kind
    for kind in (
        Kind(name="eager", template=EAGER, options="", compiles=False),
        Kind(name="compile", template=COMPILED, options="dynamic=False", compiles=True),
        Kind(
            name="compile-max-autotune",
            template=COMPILED,
            options="mode='max-autotune-no-cudagraphs', dynamic=False",
            compiles=True,
        ),
        Kind(name="cuda-graph", template=GRAPHED, options="mode='reduce-overhead', dynamic=False", compiles=True),
    )
}


def names(device: str, level: str, asked: tuple[str, ...] | None, *, tight: bool = False) -> tuple[str, ...]:
    """Which baselines a level races: eager alone when coarse, else those asked for or the device's usual ones, of which
    fewer where it is ``tight``: each holds three copies of what a call gives."""
    if level == "coarse":
        return ("eager",)
    if device.startswith("cuda"):
        usual: tuple[str, ...] = ("eager", "compile", *(() if tight else ("compile-max-autotune", "cuda-graph")))
    else:
        usual = ("eager", "compile")
    wanted = usual if asked is None else ("eager", *(name for name in asked if name != "eager"))
    return tuple(name for name in wanted if name in KINDS and (device != "cpu" or name != "cuda-graph"))


def program(task: Task, kind: Kind) -> Candidate:
    """The baseline as a candidate: the reference's file untouched beside a few lines that run it this way."""
    text = kind.template.format(entry=task.entry, options=kind.options)
    return Candidate(
        task=task.digest(),
        language="torch",
        entry="baseline.py::Baseline",
        sources=(("baseline.py", text), ("reference.py", task.reference)),
        proposer=PROPOSER,
        note=kind.name,
    )
