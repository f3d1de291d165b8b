# SPDX-License-Identifier: Apache-2.0
"""What a reference is, in plain data: its tensors, what eager takes, and its bounds on a measured machine."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import torch

from kernelwright import limits
from kernelwright.judge import skeletons, timing_plan
from kernelwright.judge.bench import Bench, Point
from kernelwright.judge.buffers import TensorSpec, laid_out_oddly
from kernelwright.judge.variants import HUGE_NOTE, LIGHT
from kernelwright.limits import Operator, Trace, products
from kernelwright.limits import memory as predictor
from kernelwright.machine import Machine
from kernelwright.task import Contract

DEAR_NOTE = "honest error of dear cases: measured once for all candidates, by fewer draws the dearer, and scaled"
FEW_ZEROS = 0.01
"""Of the elements of an input: more zeros than chance makes of numbers."""


def describe(bench: Bench, machine: Machine, *, variants: bool = True) -> dict[str, Any]:
    """Inputs, outputs and weights of the timed case with shapes and dtypes, sizes in bytes, eager's rough time in us.

    ``points`` has the leaves of every judged case: ``inputs`` and ``state``, each {shape, dtype} or {value}, and the
    ``skeleton`` in which the inputs lie.
    ``bound_us``, ``as_written_us`` and ``limiter`` need a measured machine; else None, None, "unknown". ``variants``:
    name the ways of drawing that the reference accepts, which costs a call of eager each (3.5 s for 12 of 16 MB).
    ``race_share``: of a device's memory, what a proof needs to time the task well; 0 on a CPU.
    """
    instance = bench.timed.instance
    found = bounds(bench, machine)
    points = bench.points(bench.seed)
    return {
        "inputs": [_spec(spec, name) for name, spec in zip(instance.names, instance.specs, strict=True)],
        "outputs": [_spec(spec, "") for spec in instance.out_specs],
        "parameters": [
            {"name": name, "shape": list(t.shape), "dtype": str(t.dtype).removeprefix("torch.")}
            for name, t in instance.first_state
        ],
        "call_bytes": bench.call_bytes,
        "race_share": bench.plan(timing_plan.PRECISE, 2).share,
        "eager_us": bench.eager_us,
        "cases": [point.case.name for point in points],
        "points": [_point(point) for point in points],
        "variants": [variant.name for variant in bench.timed.variants] if variants else [],
        "notes": list(instance.notes),
        "bound_us": found["unavoidable_us"] if found else None,
        "as_written_us": found["as_written_us"] if found else None,
        "limiter": found["limiter"] if found else "unknown",
    }


def bounds(bench: Bench, machine: Machine) -> dict[str, Any] | None:
    """Every bound of the timed case on ``machine``, as plain data, or None where there is no bandwidth to divide by."""
    traced = traced_once(bench)
    found = limits.bounds(traced, machine)
    if found is None:
        return None
    plain = dataclasses.asdict(found)
    plain["conditional"] = list(traced.conditional)
    plain |= {"read_bytes": traced.input_bytes, "written_bytes": traced.output_bytes}
    return plain | {"products": _products(traced.operators, machine)}


def memory(bench: Bench) -> dict[str, Any]:
    """Bytes that the reference is predicted to need at once, with the predictor's own error; why not, where it cannot
    be run without data."""
    instance = bench.timed.instance
    args = skeletons.unflatten(instance.skeleton, bench.some_call())
    kind = bench.device.type
    try:
        found = predictor.memory(instance.model, args, gradients=bench.contract.gradients, device=str(bench.device))
    except Exception as error:  # noqa: BLE001 - whatever the reference raises on tensors without data
        return {"peak": None, "note": f"{type(error).__name__} on tensors without data"}
    middle, worst = predictor.ERRORS[kind]
    plain = {"peak": found.peak, **dataclasses.asdict(found)}
    return plain | {"median_error": middle, "worst_error": worst}


def traced_once(bench: Bench) -> Trace:
    """The reference's trace on the timed case; the same for every machine, so it is kept with the bench."""
    if bench.traced is None:
        instance = bench.timed.instance
        args = skeletons.unflatten(instance.skeleton, bench.some_call())
        found = limits.trace_module(instance.model, args, {}, gradients=bench.contract.gradients)
        bench.traced = _less_masked(found, bench.some_call())
    return bench.traced


def _less_masked(found: Trace, leaves: Sequence[torch.Tensor]) -> Trace:
    """Less what a factor of zero makes needless, where products are taken and an input holds zeros (a mask in numbers).

    Which elements it multiplies is not followed: of all other inputs its share of zeros is taken off.
    """
    if not any(operator.name.startswith("mul") for operator in found.operators):
        return found
    share, mask = max(((_zeros(leaf), leaf) for leaf in leaves), key=lambda pair: pair[0], default=(0.0, None))
    if mask is None or share < FEW_ZEROS:
        return found
    own = min(mask.numel() * mask.element_size(), found.input_bytes)
    text = f"an input is zero in {share:.0%} of its elements: what it may multiply need not be read there"
    return dataclasses.replace(
        found,
        input_bytes=own + int((found.input_bytes - own) * (1.0 - share)),
        conditional=(*found.conditional, text),
    )


def _zeros(leaf: torch.Tensor) -> float:
    """The share of exact zeros of a tensor that may be a mask: any of floats, whole numbers only of zeros and ones."""
    if leaf.numel() == 0 or not (leaf.is_floating_point() or bool(((leaf == 0) | (leaf == 1)).all())):
        return 0.0
    return float((leaf == 0).to(torch.float32).mean())


def left_out(contract: Contract) -> list[str]:
    """What a proof says of inputs that the contract does not ask for."""
    return [] if "strided" in contract.layouts else ["inputs were never strided: the contract leaves those out"]


def point_notes(points: Sequence[Point]) -> list[str]:
    """What a proof says of its cases: which sizes the hidden ones had, and what dear ones were spared."""
    hidden = [point.case for point in points if point.case.name.startswith("hidden:")]
    notes = [f"{case.name}: " + ", ".join(f"{axis}={size}" for axis, size in case.axes) for case in hidden]
    notes += [HUGE_NOTE] if any(point.instance.huge for point in points) else []
    return notes + ([DEAR_NOTE] if any(point.instance.work > LIGHT for point in points) else [])


def bound_notes(bench: Bench) -> list[str]:
    """What a proof says of the bound: operators of unknown work, elements that a mask or an index may leave out."""
    found = traced_once(bench)
    return [f"bound: {text}" for text in (*found.warnings, *found.conditional)]


def _products(operators: Sequence[Operator], machine: Machine) -> dict[str, Any] | None:
    """What a library's matrix products are predicted to take and to draw; None where there is nothing to predict by."""
    rates = products.of_machine(machine) if machine.device != "cpu" else None
    shapes = [shape for shape in map(products.shape_of, operators) if shape is not None]
    if rates is None or not shapes:
        return None
    learned = products.load()
    found = products.predict(learned, shapes, rates, machine.value("power.gemm_W"))
    energies = [one.millijoules for one in found]
    return {
        "us": sum(one.us for one in found),
        "mJ": None if None in energies else sum(energy for energy in energies if energy is not None),
        "count": len(found),
        "time_error": learned.time_error,
        "watts_error": learned.watts_error,
        "learnt_on": learned.device,
    }


def _point(point: Point) -> dict[str, Any]:
    instance = point.instance
    more: list[dict[str, Any]] = [
        {"expanded": True} if index in instance.expanded else {} for index in range(len(instance.specs))
    ]
    more = [{**besides, **instance.bonds.facts(index)} for index, besides in enumerate(more)]
    tensors = [_given(spec, besides) for spec, besides in zip(instance.specs, more, strict=True)]
    found = enumerate(zip(instance.out_specs, instance.out_strides, strict=True))
    usual = [index for index, (spec, steps) in found if not laid_out_oddly(steps, spec.stride, spec.shape)]
    return {
        "row_major": [] if instance.contract.free_strides else usual,
        "name": point.case.name,
        "inputs": _leaves(instance.skeleton, tensors),
        "skeleton": instance.skeleton,
        "state": [
            {"shape": list(t.shape), "dtype": str(t.dtype).removeprefix("torch.")} for _, t in instance.first_state
        ],
    }


def _given(spec: TensorSpec, besides: dict[str, Any]) -> dict[str, Any]:
    """An input leaf; how it lies only where that is not row by row, and what is known besides."""
    usual = TensorSpec.contiguous(spec.shape, spec.dtype).stride == spec.stride
    lies = {} if usual else {"stride": list(spec.stride)}
    return {"shape": list(spec.shape), "dtype": spec.dtype, **lies, **besides}


def _leaves(skeleton: Any, tensors: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The leaves of an argument tree, depth first: tensors as shape and dtype, anything else as its value."""
    ((kind, body),) = skeleton.items()
    if kind == "t":
        return [tensors[body]]
    if kind in ("list", "tuple", "set"):
        return [leaf for item in body for leaf in _leaves(item, tensors)]
    if kind == "dict":
        return [leaf for item in body.values() for leaf in _leaves(item, tensors)]
    if kind in ("pairs", "named"):
        return [leaf for item in body[-1] for leaf in _leaves(item, tensors)]
    return [{"value": body if kind == "v" else str(body)}]


def _spec(spec: TensorSpec, name: str) -> dict[str, Any]:
    return {"name": name, "shape": list(spec.shape), "stride": list(spec.stride), "dtype": spec.dtype}
