# SPDX-License-Identifier: Apache-2.0
"""The Triton structures of a program, with their parameter spaces, and the candidate of one choice of values."""

from __future__ import annotations

from collections.abc import Mapping

from kernelwright.candidate import Candidate
from kernelwright.proposers import Request, Structure
from kernelwright.proposers.templates import (
    expected,
    triton_kernels,
    triton_matmul,
    triton_module,
    triton_plans,
    triton_terms,
    triton_window,
)
from kernelwright.proposers.templates.graph import Capture
from kernelwright.proposers.templates.ir import Fused, Program
from kernelwright.tuning import Parameter, Space

THIN = 16
"""Rows or columns below which a product is no work for the tensor cores."""
MATMUL, TERMS, WINDOWS = "matmul", "terms", "windows"


def structures(program: Program) -> list[Structure]:
    """``rowwise.triton``, ``looped.triton``, ``matmul.triton``: those that apply, best guess first."""
    found = []
    products = triton_matmul.pairs(program)
    for name in triton_plans.structures(program):
        style = triton_plans.style_of(triton_plans.main_fused(program), name)
        order = (0.9 if products else 0.3) + _later(name, triton_plans.main_fused(program))
        found.append(_structure(name, _NOTES[style], _with_windows(program, triton_plans.space(program, name)), order))
    if triton_window.extras(program, {}) and not products and not list(program.regions()):
        found.append(_structure(WINDOWS, "boxes of elements gathered by one kernel", triton_window.space(), 0.5))
    if products and (triton_plans.supported(program) or not list(program.regions())):
        fused = sum(reader is not None for _, reader, _ in products)
        note = f"{len(products)} matrix products in split float32 on the tensor cores, {fused} with fused epilogue"
        found.append(_structure(MATMUL, note, triton_matmul.space(program), 1.1 if _thin(program) else 0.6))
        if triton_terms.worthwhile(program):
            products = [found for found in products if not found[2].batch]
            fused = sum(reader is not None for _, reader, _ in products)
            note = f"{len(products)} matrix products of operands cut into 16-bit terms, {fused} with fused epilogue"
            found.append(_structure(TERMS, note, triton_terms.space(program), 0.35))
    return found


def _with_windows(program: Program, space: Space) -> Space:
    """Where the program has windows, whether they are ours or torch's is searched too."""
    if not triton_window.extras(program, {}):
        return space
    chosen = Parameter(name="WINDOWS", values=(True, False))
    return Space(parameters=(*space.parameters, chosen), constraints=space.constraints)


_LATER = {triton_plans.REGISTERS: 0.0, triton_plans.LOOPED: 0.05, triton_plans.SPLIT: -0.05}
LONG = 16384
"""Columns from which rows that are only reduced are tried in blocks first."""


def _later(name: str, fused: Fused) -> float:
    """How much later than rows in registers a structure is tried."""
    first = name == triton_plans.LOOPED and fused.sample[1] >= LONG and triton_plans.only_reduces(fused)
    return -0.02 if first else _LATER[name]


_NOTES = {
    triton_kernels.SPLIT: "each row shared by several programs, partial results added by the next kernel",
    triton_kernels.FLAT: "one Triton pass over every element",
    triton_kernels.TILE: "one Triton pass over every element, by tiles of rows and columns",
    triton_kernels.ROWS: "each row read once and held in registers",
    triton_kernels.LOOP: "each row read in blocks, once per dependent reduction",
}


def _thin(program: Program) -> bool:
    """Whether the largest product is one of a matrix and a few vectors, of which tiles are mostly padding.

    On an H200 the sum of (8192 x 8192) by (8192 x 1) in tiles of 128 columns took 22 % of the bound, torch's 82 %.
    """
    shape = expected.largest(program)
    return shape is not None and min(shape[:2]) < THIN


def _structure(name: str, note: str, space: Space, order: float) -> Structure:
    return Structure(name=f"{name}.triton", note=note, language="triton", space=space, order=order)


def render(
    program: Program,
    capture: Capture,
    structure: str,
    values: Mapping[str, int | float | str | bool],
    request: Request,
) -> Candidate:
    """The candidate: one file, ``optimized.py``. Raises KeyError for a structure that does not apply."""
    offered = {found.name: found for found in structures(program)}
    note = offered[structure].note
    task, name = request.task, structure.removesuffix(".triton")
    wrapping = triton_module.Wrapping(
        reference=task.reference, entry=task.entry, training=task.contract.training, init=capture.init
    )
    return Candidate(
        task=task.digest(),
        language="triton",
        entry="optimized.py::ModelNew",
        sources=(("optimized.py", source(program, name, values, wrapping)),),
        tunables=tuple(sorted(values.items())),
        proposer=f"templates.{structure}",
        note=note,
    )


def source(
    program: Program,
    name: str,
    values: Mapping[str, int | float | str | bool],
    wrapping: triton_module.Wrapping,
) -> str:
    """The text of the candidate file of one structure (``rowwise``, ``looped``, ``matmul`` or ``terms``)."""
    products = {MATMUL: triton_matmul.extras, TERMS: triton_terms.extras, WINDOWS: triton_window.extras}.get(name)
    regions = list(program.regions())
    plans = triton_plans.plans(program, name, {} if products else values) if regions else {}
    extra = products(program, values) if products else {}
    if products is None and values.get("WINDOWS", True):
        extra = triton_window.extras(program, {})
    return triton_module.module(program, plans, wrapping, extra)
