# SPDX-License-Identifier: Apache-2.0
"""Expectations for the spaces of matrix products: which tiles a learnt model would try first."""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Sequence

from kernelwright.limits import tiles
from kernelwright.limits.gemm import Device, Shape
from kernelwright.machine import Machine
from kernelwright.proposers import Structure
from kernelwright.proposers.templates import ir, triton_matmul
from kernelwright.tuning import Expectation, Space

PROCESSORS = 132
"""Of the H200 the model was learnt on, for machines measured before the count was a fact."""
NAMES = ("BM", "BN", "BK", "WARPS", "STAGES")


def ordered(structures: Sequence[Structure], program: ir.Program, machine: Machine | None) -> list[Structure]:
    """The same structures; a space with tiles gets an expectation where the machine's rates are known."""
    shape = largest(program)
    device = device_of(machine) if machine is not None else None
    if shape is None or device is None:
        return list(structures)
    return [
        dataclasses.replace(one, space=dataclasses.replace(one.space, expected=expectation(one.space, shape, device)))
        if {parameter.name for parameter in one.space.parameters} >= set(NAMES)
        else one
        for one in structures
    ]


def expectation(space: Space, shape: tuple[int, int, int], device: Device) -> Expectation:
    """Expected microseconds of every tile of a space. Terms of 16 bits are multiplied as bfloat16, others as TF32."""
    choices = {parameter.name: parameter.values for parameter in space.parameters}
    points = [tuple(int(value) for value in point) for point in itertools.product(*(choices[name] for name in NAMES))]
    learned = tiles.load()
    kind: Shape = ("bfloat16" if "TERMS" in choices else "tf32", *shape)
    found = tiles.predict_us(learned, kind, [(a, b, c, d, e) for a, b, c, d, e in points], device)
    return Expectation(
        names=NAMES,
        costs=tuple((point, float(f"{cost:.4g}")) for point, cost in zip(points, found, strict=True)),
        error=learned.median_error,
        source=f"product times learnt on {learned.device} from {learned.products} products",
    )


def largest(program: ir.Program) -> tuple[int, int, int] | None:
    """(m, n, k) of the program's largest product in the timed case, or None where it has none."""
    tensors = program.tensors()
    found = []
    for _, _, matrix in triton_matmul.pairs(program):
        sizes, depth = matrix.call.output.sample, tensors[matrix.left].sample[-1]
        found.append((math.prod(sizes[:-1]), sizes[-1], depth))
    return max(found, key=math.prod, default=None)


def device_of(machine: Machine) -> Device | None:
    """The rates the model needs, or None where one was not measured."""
    names = {"bfloat16": "peak.gemm.bfloat16_TFLOPs", "tf32": "peak.gemm.tf32_TFLOPs"}
    rates = {dtype: machine.value(fact) for dtype, fact in names.items()}
    copy = machine.value("bandwidth.copy.dram_GBps")
    known = {dtype: rate * 1e6 for dtype, rate in rates.items() if rate}
    processors = int(machine.value("count.processors") or PROCESSORS)
    return Device(processors, copy * 1e3, known) if copy and len(known) == len(names) else None
