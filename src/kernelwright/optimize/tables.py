# SPDX-License-Identifier: Apache-2.0
"""Answers of the judge as tables and pages for a person: the limits by operator, the diagnosis of a profile."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from kernelwright.diagnosis import diagnose

HEADINGS = ("operator", "shapes", "dtype", "bytes", "FLOPs", "bound us", "limiter", "eager us", "gap us", "share")
MOST_KERNELS = 8


def limits(bounds: Mapping[str, Any] | None) -> str:
    """The table of a task's bounds, longest operator first."""
    if bounds is None:
        return "This device's bandwidth is not measured: run `kernelwright machine` first.\n"
    rows = [_row(row) for row in sorted(bounds["rows"], key=lambda row: -(row.get("measured_us") or row["bound_us"]))]
    lines = aligned([HEADINGS, *rows])
    lines += [
        "",
        f"unavoidable  {bounds['unavoidable_us']:.4g} us (bytes only; no rewrite beats it)",
        f"as written   {bounds['as_written_us']:.4g} us ({bounds['limiter']}; its arithmetic, fused ideally)",
        f"unfused      {bounds['unfused_us']:.4g} us (each operator at its own bound)",
    ]
    if bounds.get("measured_us"):
        lines.append(f"eager        {bounds['measured_us']:.4g} us (its operators one by one)")
    if bounds.get("products"):
        lines.append(_products(bounds["products"]))
    if bounds.get("memory"):
        lines.append(_memory(bounds["memory"]))
    lines += [f"warning: {text}" for text in (*bounds.get("warnings", ()), *bounds.get("conditional", ()))]
    return "\n".join(lines) + "\n"


def _memory(found: Mapping[str, Any]) -> str:
    """One line about the memory that the reference needs, with the predictor's own error."""
    if found["peak"] is None:
        return f"memory       not predicted: {found['note']}"
    parts = ", ".join(f"{amount(found[name])} {name}" for name in ("weights", "inputs", "activations", "workspace"))
    line = (
        f"memory       {amount(found['peak'])}B at once, predicted ({parts}; median error "
        f"{found['median_error']:.1%} on 20 modules, worst {found['worst_error']:.0%})"
    )
    return "\n".join([line, *(f"             at the least: {reason}" for reason in found.get("unknown", ()))])


def _products(found: Mapping[str, Any]) -> str:
    """One line about the library's matrix products, with the predictors' own errors."""
    energy = "energy unknown" if found["mJ"] is None else f"{found['mJ']:.4g} mJ"
    return (
        f"products     {found['us']:.4g} us, {energy}: what the library's {found['count']} matrix products should take "
        f"(learnt on {found['learnt_on']}; median error {found['time_error']:.0%} of time, "
        f"{found['watts_error']:.0%} of power)"
    )


def _row(row: Mapping[str, Any]) -> tuple[str, ...]:
    operator, measured = row["operator"], row.get("measured_us")
    name = operator["name"] if operator["known"] else f"{operator['name']} (unknown work)"
    shapes = " ".join("x".join(str(size) for size in shape) for shape in operator["shapes"])
    return (
        name,
        shapes if len(shapes) <= 40 else shapes[:37] + "...",
        operator["dtype"],
        amount(operator["bytes"]),
        amount(operator["operations"]),
        f"{row['bound_us']:.4g}",
        row["limiter"],
        "-" if measured is None else f"{measured:.4g}",
        "-" if measured is None else f"{measured - row['bound_us']:.4g}",
        "-" if row.get("share") is None else f"{row['share']:.0%}",
    )


def profile(reply: Mapping[str, Any], device: str) -> str:
    """The diagnosis of a profile, its kernels, and what could not be measured."""
    facts = reply.get("facts", {})
    lines: list[str] = []
    if facts.get("time_us"):
        page = diagnose(
            facts,
            device=device,
            time_us=facts["time_us"],
            bound_us=reply.get("bound_us"),
            limiter=reply.get("limiter", "unknown"),
            parent=reply.get("parent_facts"),
        )
        lines.append(page.text().rstrip())
    kernels = list(reply.get("kernels", ()))[:MOST_KERNELS]
    if kernels:
        heads = ("kernel", "calls", "us", "blocks", "threads", "registers", "shared B")
        keys = ("count", "us", "blocks", "threads", "registers", "shared_bytes")
        rows = [(str(one["name"])[:48], *(f"{one[key]:.4g}" for key in keys)) for one in kernels]
        lines += ["", *aligned([heads, *rows])]
    lines += [f"note: {note}" for note in reply.get("notes", ())]
    return "\n".join(lines) + "\n"


def amount(value: float) -> str:
    """1234567 as ``1.23M``."""
    for letter, size in (("T", 1e12), ("G", 1e9), ("M", 1e6), ("k", 1e3)):
        if value >= size:
            return f"{value / size:.3g}{letter}"
    return f"{value:.3g}"


def aligned(rows: Sequence[Sequence[str]]) -> list[str]:
    """Lines of left-aligned columns."""
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    return ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]
