# SPDX-License-Identifier: Apache-2.0
"""What each operator of the reference takes when eager runs it: each repeated where it stands, on its own operands."""

from __future__ import annotations

import statistics
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_flatten

from kernelwright.judge import measure
from kernelwright.judge.bench import Bench, synchronise

REPEATS = 5
"""Runs of each operator, of which the quickest counts: in any other the allocator may have handed out pages that the
kernel had yet to clear, 36 ms for 16 MiB on a virtual machine where squaring them takes 1.1."""
SECONDS = 0.2
Key = tuple[str, tuple[tuple[int, ...], ...]]
"""(operator, shapes of its tensor operands), as ``limits.Operator`` has them."""


class _Timer(TorchDispatchMode):
    """Times each operator after one warm-up run of it; one that writes to its operands runs once and is not timed."""

    def __init__(self, device: torch.device) -> None:
        super().__init__()
        self.device = device
        self.times: dict[Key, list[float]] = {}

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        given = kwargs or {}
        result = func(*args, **given)
        operands = [leaf for leaf in tree_flatten((args, given))[0] if isinstance(leaf, torch.Tensor)]
        if func._schema.is_mutable or func.is_view or not operands:
            return result

        def again() -> None:
            func(*args, **given)
            synchronise(self.device)

        samples: list[float] = []
        synchronise(self.device)
        while len(samples) < REPEATS and sum(samples) < SECONDS:
            samples.append(measure.stopwatch(again))
        key = str(func._schema.name).removeprefix("aten::"), tuple(tuple(tensor.shape) for tensor in operands)
        self.times.setdefault(key, []).append(min(samples) * 1e6)
        return result


def times(bench: Bench) -> dict[Key, float]:
    """Microseconds a call of each operator of the timed case, by name and shapes; overhead of torch included."""
    instance = bench.timed.instance
    leaves = instance.draw(bench.timed.as_given, 0)
    timer = _Timer(bench.device)
    with timer:
        instance.eager(leaves, None)
    return {key: statistics.median(found) for key, found in timer.times.items()}


def attach(plain: dict[str, Any], measured: dict[Key, float]) -> dict[str, Any]:
    """``facts.bounds``'s answer with ``measured_us`` and ``share`` in each row; None: eager runs another operator."""
    rows = plain["rows"]
    for row in rows:
        operator = row["operator"]
        key = operator["name"], tuple(tuple(shape) for shape in operator["shapes"])
        row["measured_us"] = measured.get(key)
    total = sum(row["measured_us"] or 0.0 for row in rows)
    for row in rows:
        row["share"] = row["measured_us"] / total if total and row["measured_us"] is not None else None
    return {**plain, "measured_us": total}
