# SPDX-License-Identifier: Apache-2.0
"""What a term is expected to cost: bytes moved and operations done at the machine's rates. A guess, never reported."""

from __future__ import annotations

from dataclasses import dataclass

from kernelwright.machine import Machine
from kernelwright.proposers.rewrites.terms import POINTWISE, VIEWS, Term, numel, walk

FUSED = 0.5
"""Share of a read still charged when a pointwise operator reads what another has just written (cache, fusion)."""

TRIANGLE = 0.5 + 0.5 / 8
"""Share of a product's operations that its triangle takes in eight strips of rows."""

PREFERENCE = 1e-9
"""Seconds charged per node, so that equal programs are ordered by size."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rates:
    """Rates of one device. Facts the machine has measured replace the round numbers."""

    bytes_per_second: float
    operations_per_second: float
    launch_seconds: float
    itemsize: int = 4


def rates(device: str, machine: Machine | None) -> Rates:
    """Measured rates where there are any; otherwise those of a small CPU or a current data-centre GPU."""
    bandwidth, peak, launch = (2.5e12, 4e13, 4e-6) if device == "cuda" else (1.2e10, 1.2e11, 3e-6)
    if machine is not None:
        bandwidth = 1e9 * (machine.value("bandwidth.copy.dram_GBps") or bandwidth / 1e9)
        peak = 1e12 * (machine.value("peak.gemm.float32_TFLOPs") or peak / 1e12)
        launch = 1e-6 * (machine.value("latency.launch_us") or launch * 1e6)
    return Rates(bytes_per_second=bandwidth, operations_per_second=peak, launch_seconds=launch)


def cost(term: Term, at: Rates) -> float:
    """Seconds for the node itself, its arguments excluded. Views and leaves are free."""
    if term.op in ("leaf", "get") or term.op in VIEWS:
        return PREFERENCE
    written = numel(term.shape)
    read = sum(_read(term, arg) for arg in term.args)
    moved = (written + read) * at.itemsize / at.bytes_per_second
    operations = _multiplied(term) or float(written + read)
    return max(moved, operations / at.operations_per_second) + at.launch_seconds


def _multiplied(term: Term) -> float:
    """Operations of matrix products and convolutions (two per multiplication)."""
    if term.op == "matmul":
        return 2.0 * numel(term.shape) * term.args[0].shape[-1]
    if term.op == "call" and term.attrs[0].startswith("triangle."):
        return 2.0 * TRIANGLE * numel(term.shape) * term.args[0].shape[-1]
    if term.op == "call" and term.attrs[0].startswith("attention."):
        return 4.0 * numel(term.shape) * term.args[1].shape[-2]
    if term.op == "call" and "conv" in term.attrs[0] and len(term.args) > 1:
        weight = term.args[1].shape
        places = term.args[0] if "transpose" in term.attrs[0] else term
        return 2.0 * numel(places.shape) * numel(weight) / max(weight[0], 1)
    return 0.0


def _read(term: Term, arg: Term) -> float:
    fused = term.op in POINTWISE and arg.op in POINTWISE
    return numel(arg.shape) * (FUSED if fused else 1.0)


def total(root: Term, at: Rates) -> float:
    """Seconds for the whole program; what is shared is counted once."""
    return sum(cost(term, at) for term in walk((root,)))
