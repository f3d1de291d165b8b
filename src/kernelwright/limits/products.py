# SPDX-License-Identifier: Apache-2.0
"""Time and power of a library's matrix product before it runs, learnt from measured ones, with the models' own errors.

Time: boosted trees on the roofline (``gemm.py``). Power: trees for the share of the power of a large bfloat16 product
that a product draws, from how busy its time keeps the arithmetic and the memory. Shipped beside this file: both models
and their errors on products they had not seen (``benchmarks/gemm_model.py``).
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np

from kernelwright.limits.gemm import WIDTH, Device, Model, Shape, predict_us
from kernelwright.limits.tiles import short
from kernelwright.limits.trace import Operator
from kernelwright.machine import Machine

FILE = Path(__file__).with_name("products.json")
RATES = ("bfloat16", "float16", "float32", "tf32")


@dataclass(frozen=True, slots=True)
class Learned:
    """Both models with what is known of them; errors are medians, relative, on products held out from training."""

    time: Model
    watts: Model
    time_error: float
    watts_error: float
    products: int
    powered: int
    device: str


@dataclass(frozen=True, slots=True)
class Product:
    """One predicted matrix product."""

    shape: Shape
    us: float
    watts: float | None
    """None where the machine's own power under a large product was not measured."""

    @property
    def millijoules(self) -> float | None:
        """Energy of one such product, the device's rest included."""
        return None if self.watts is None else self.watts * self.us * 1e-3


def load_features(shape: Shape, us: float, device: Device) -> list[float]:
    """What the power model sees of a product that takes ``us``: how much of its units the time uses."""
    dtype, m, n, k = shape
    computing = 2.0 * m * n * k / device.flops_per_us[dtype] / us
    moving = WIDTH[dtype] * (m * k + k * n + m * n) / device.bytes_per_us / us
    return [
        math.log(computing), math.log(moving), min(1.5, computing), min(1.5, moving), math.log(us), math.log(m * n),
        math.log(k), math.log(m / n), float(WIDTH[dtype]), float(dtype == "tf32"), float(dtype == "float32"),
        min(1.0, m * n / (128 * 128) / device.processors),
    ]  # fmt: skip


def predict(learned: Learned, shapes: Sequence[Shape], device: Device, gemm_watts: float | None) -> list[Product]:
    """Time of each product on ``device``, and its power where a large product was measured to draw ``gemm_watts``."""
    if not shapes:
        return []
    times = predict_us(learned.time, shapes, device)
    rows = np.array([load_features(shape, us, device) for shape, us in zip(shapes, times, strict=True)])
    shares = np.exp(learned.watts.correction(rows))
    return [
        Product(shape, us, None if gemm_watts is None else float(share) * gemm_watts)
        for shape, us, share in zip(shapes, times, shares, strict=True)
    ]


def of_machine(machine: Machine) -> Device | None:
    """The rates the models need, or None where one was not measured."""
    rates = {dtype: machine.value(f"peak.gemm.{dtype}_TFLOPs") for dtype in RATES}
    known = {dtype: rate * 1e6 for dtype, rate in rates.items() if rate}
    copy, processors = machine.value("bandwidth.copy.dram_GBps"), machine.value("count.processors")
    return Device(int(processors), copy * 1e3, known) if copy and processors and len(known) == len(RATES) else None


def shape_of(operator: Operator) -> Shape | None:
    """(dtype, m, n, k) of a traced two-dimensional product, None for any other operator."""
    if operator.name not in ("mm", "addmm") or operator.dtype not in WIDTH or operator.dtype == "float64":
        return None
    (m, k), (_, n) = operator.shapes[-2:]
    return operator.dtype, m, n, k


def save(learned: Learned, path: Path = FILE) -> None:
    """One JSON file; numbers with five digits."""
    models = {
        name: {"base": model.base, "rate": model.rate, "trees": [short(tree) for tree in model.trees]}
        for name, model in (("time", learned.time), ("watts", learned.watts))
    }
    about = {name: getattr(learned, name) for name in ("time_error", "watts_error", "products", "powered", "device")}
    path.write_text(json.dumps({**about, **models}, separators=(",", ":")) + "\n", encoding="ascii")


@cache
def load(path: Path = FILE) -> Learned:
    """What ``save`` wrote."""
    data = json.loads(path.read_text(encoding="ascii"))
    models = {
        name: Model(base=data[name]["base"], rate=data[name]["rate"], trees=tuple(data[name]["trees"]))
        for name in ("time", "watts")
    }
    return Learned(**{**data, **models})
