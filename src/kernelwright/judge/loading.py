# SPDX-License-Identifier: Apache-2.0
"""A program as a case of the reference has it constructed."""

from __future__ import annotations

from kernelwright.judge import fills, refusals
from kernelwright.judge.inputs import mixed
from kernelwright.judge.instance import Instance
from kernelwright.judge.program import Program
from kernelwright.judge.state_names import requiring


def load(program: Program, entry: str, instance: Instance) -> None:
    """Import, construct and load with an instance's first weights what is entered by ``entry``."""
    program.written, program.takes = instance.contract.mutates, refusals.parameters(instance.model)
    program.trained = requiring(instance.model) if instance.contract.gradients else None
    program.load(
        entry,
        instance.init_args,
        instance.init_kwargs,
        instance.first_state,
        training=instance.contract.training,
        autocast=instance.autocast,
        seeds=(instance.seed, mixed(instance.seed)),
        imports=instance.reference.task.imports,
        filled=fills.of_programs(instance),
    )
