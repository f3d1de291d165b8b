# SPDX-License-Identifier: Apache-2.0
"""How long a matrix product takes at each choice of tile, learnt from measured ones: it orders tuning trials.

Boosted trees (``gemm.py``) correct the roofline's logarithm. They see what a tile decides: how many tiles and waves
there are and how full the last one is, how many blocks a multiprocessor holds, the traffic of the tiles' edges.
Shipped beside this file: the trees and their error on products they had not seen (``benchmarks/gemm_model.py``).
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from kernelwright.limits.gemm import WIDTH, Device, Model, Shape, roofline_us

FILE = Path(__file__).with_name("tiles.json")
SHARED_BYTES, WARPS, REGISTERS = 227 << 10, 64, 65536
"""Of a multiprocessor of compute capability 9.0: shared memory, resident warps, registers."""
Tile = tuple[int, int, int, int, int]
"""(rows, columns, depth, warps, stages)."""


@dataclass(frozen=True, slots=True)
class Learned:
    """Trees with what is known of them."""

    model: Model
    median_error: float
    """Relative, on products held out from training."""
    products: int
    device: str


def features(shape: Shape, tile: Tile, device: Device) -> list[float]:
    """What the trees see of a product at one choice of tile."""
    dtype, m, n, k = shape
    rows, cols, depth, warps, stages = tile
    width, peak = WIDTH[dtype], device.flops_per_us[dtype]
    tiles = math.ceil(m / rows) * math.ceil(n / cols)
    waves, steps = tiles / device.processors, math.ceil(k / depth)
    shared = (rows + cols) * depth * stages * width
    registers = rows * cols + (rows + cols) * depth // 2
    resident = max(1, min(SHARED_BYTES // (shared + 1024), WARPS // warps, REGISTERS // registers))
    turns = math.ceil(waves)
    block_us = 2.0 * rows * cols * k / (peak / device.processors)
    return [
        math.log(tiles), math.log(waves), turns / waves, math.ceil(waves / resident) * resident / waves,
        math.log(resident), math.log(steps), math.log(k), math.log(rows), math.log(cols), float(depth), float(warps),
        float(stages), math.log(rows * cols / warps), math.log(shared), tiles * rows * cols / (m * n),
        math.log(turns * block_us), math.log(width * (rows + cols) * k * tiles / device.bytes_per_us),
        math.log(width * (m * k + k * n + m * n) / device.bytes_per_us), float(width), math.log(rows / cols),
        steps * depth / k, math.log(2.0 * m * n * k / peak), math.log(rows * cols / (rows + cols)),
    ]  # fmt: skip


def predict_us(learned: Learned, shape: Shape, tiles: Sequence[Tile], device: Device) -> list[float]:
    """Microseconds of a product at each choice of tile."""
    rows = np.array([features(shape, tile, device) for tile in tiles])
    return [float(value) for value in np.exp(learned.model.correction(rows)) * roofline_us(shape, device)]


def save(learned: Learned, path: Path = FILE) -> None:
    """One JSON file; numbers with five digits."""
    data = {
        "median_error": learned.median_error,
        "products": learned.products,
        "device": learned.device,
        "base": learned.model.base,
        "rate": learned.model.rate,
        "trees": [short(tree) for tree in learned.model.trees],
    }
    path.write_text(json.dumps(data, separators=(",", ":")) + "\n", encoding="ascii")


def short(tree: dict[str, Any]) -> dict[str, Any]:
    """A tree with the digits that are kept in a file."""
    if "value" in tree:
        return {"value": float(f"{tree['value']:.4g}")}
    return {
        "column": tree["column"],
        "edge": float(f"{tree['edge']:.6g}"),
        "low": short(tree["low"]),
        "high": short(tree["high"]),
    }


@cache
def load(path: Path = FILE) -> Learned:
    """What ``save`` wrote."""
    data = json.loads(path.read_text(encoding="ascii"))
    model = Model(base=data["base"], rate=data["rate"], trees=tuple(data["trees"]))
    return Learned(model, data["median_error"], data["products"], data["device"])
