# SPDX-License-Identifier: Apache-2.0
"""Small tasks written in a line, for the tests of the judge."""

from __future__ import annotations

from kernelwright.judge.instance import Instance
from kernelwright.judge.reference import Reference
from kernelwright.task import Case, Contract, Task


def task(forward: str, inputs: str, *, init: str = "", args: str = "x", head: str = "", **more: object) -> Task:
    """A KernelBench-form task: the returned expression of ``forward(self, args)``, and what get_inputs returns."""
    start = "\n".join("        " + line for line in init.splitlines())
    source = (
        "import torch\nimport torch.nn as nn\nimport torch.nn.functional as F\n"
        f"{head}\nclass Model(nn.Module):\n    def __init__(self):\n        super().__init__()\n{start}\n"
        f"    def forward(self, {args}):\n        return {forward}\n"
        f"def get_inputs():\n    return {inputs}\ndef get_init_inputs():\n    return []\n"
    )
    return Task(name="plain", form="kernelbench", reference=source, **more)


def instance(forward: str, inputs: str, **more: object) -> Instance:
    """The timed case of such a task, on the CPU."""
    made = task(forward, inputs, **more)
    return Reference(made, "cpu").instance(made.timed_case())


MAIN = Case(name="main", timed=True)
GRADIENTS = Contract(gradients=True)
