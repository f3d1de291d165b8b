# SPDX-License-Identifier: Apache-2.0
"""How long (and at what power) a matrix product will run, learnt from measured ones: boosted trees on a roofline.

The trees correct the roofline's logarithm, so an untrained model is the roofline itself. Features are what decides a
product's efficiency: the times its parts would take at the measured peaks, waves of tiles over the multiprocessors,
and how full the last wave is. Method: gradient boosting of regression trees (Friedman 2001), squared error.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

TILES = ((64, 64), (64, 128), (128, 128), (128, 256), (256, 128))
LAUNCH_US = 3.0
WIDTH = {"float64": 8, "float32": 4, "tf32": 4, "bfloat16": 2, "float16": 2}
Shape = tuple[str, int, int, int]
"""(dtype, m, n, k)."""


@dataclass(frozen=True, slots=True)
class Device:
    """What the roofline needs: multiprocessors, bytes per us, and multiply-add FLOPs per us by dtype."""

    processors: int
    bytes_per_us: float
    flops_per_us: Mapping[str, float]


def roofline_us(shape: Shape, device: Device) -> float:
    """The longer of moving each operand once and computing at the peak, after a launch."""
    dtype, m, n, k = shape
    moving = WIDTH[dtype] * (m * k + k * n + m * n) / device.bytes_per_us
    return LAUNCH_US + max(moving, 2.0 * m * n * k / device.flops_per_us[dtype])


def features(shape: Shape, device: Device) -> list[float]:
    """What the trees see of a product."""
    dtype, m, n, k = shape
    width = WIDTH[dtype]
    moving = width * (m * k + k * n + m * n) / device.bytes_per_us
    computing = 2.0 * m * n * k / device.flops_per_us[dtype]
    found = [
        math.log(m), math.log(n), math.log(k), math.log(moving), math.log(computing), math.log(computing / moving),
        float(width), float(dtype == "tf32"), float(dtype == "float32"), math.log(m / n), math.log(m * n),
        float(m * width % 16 == 0), float(n * width % 16 == 0), float(k * width % 16 == 0),
        float(min(n % 128, 64)), float(min(k % 64, 63)), float(m % 128),
    ]  # fmt: skip
    for height, breadth in TILES:
        tiles = math.ceil(m / height) * math.ceil(n / breadth)
        waves = tiles / device.processors
        found += [math.log(waves), math.ceil(waves) / waves, tiles * height * breadth / (m * n)]
        found.append(math.log(math.ceil(waves) * device.processors * height * breadth * k / device.flops_per_us[dtype]))
    return found


Tree = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Model:
    """Trees whose sum is added to the logarithm of the roofline (or, for power, to ``base``)."""

    base: float
    rate: float
    trees: tuple[Tree, ...]

    def correction(self, rows: np.ndarray) -> np.ndarray:
        """[products, features] to [products]."""
        total = np.full(len(rows), self.base)
        for tree in self.trees:
            total += self.rate * _descend(tree, rows)
        return total


def predict_us(model: Model, shapes: Sequence[Shape], device: Device) -> list[float]:
    """Microseconds of each product."""
    rows = np.array([features(shape, device) for shape in shapes])
    roof = np.log([roofline_us(shape, device) for shape in shapes])
    return [float(value) for value in np.exp(model.correction(rows) + roof)]


def order(model: Model, shapes: Sequence[Shape], device: Device) -> list[int]:
    """Positions of ``shapes``, those predicted fastest per FLOP first: the order in which trials are worth running."""
    times = predict_us(model, shapes, device)
    cost = [time / (m * n * k) for time, (_, m, n, k) in zip(times, shapes, strict=True)]
    return sorted(range(len(shapes)), key=lambda index: cost[index])


def fit(
    rows: np.ndarray, target: np.ndarray, *, trees: int = 400, depth: int = 5, rate: float = 0.08, seed: int = 0
) -> Model:
    """Boosted trees for ``target`` [products]; each tree sees a random 70 % of the products."""
    dice = np.random.default_rng(seed)
    base = float(np.median(target))
    left, grown = target - base, []
    for _ in range(trees):
        chosen = dice.permutation(len(target))[: max(8, int(0.7 * len(target)))]
        tree = _grow(rows[chosen], left[chosen], depth, dice)
        grown.append(tree)
        left = left - rate * _descend(tree, rows)
    return Model(base=base, rate=rate, trees=tuple(grown))


def _grow(rows: np.ndarray, target: np.ndarray, depth: int, dice: np.random.Generator) -> Tree:
    if depth == 0 or len(target) < 6:
        return {"value": float(target.mean())}
    best: tuple[float, int, float] | None = None
    for column in dice.permutation(rows.shape[1])[: max(4, rows.shape[1] * 2 // 3)]:
        order_ = np.argsort(rows[:, column], kind="stable")
        values, sums = rows[order_, column], np.cumsum(target[order_])
        count = np.arange(1, len(target))
        gain = sums[:-1] ** 2 / count + (sums[-1] - sums[:-1]) ** 2 / (len(target) - count)
        gain[(values[1:] == values[:-1]) | (count < 3) | (count > len(target) - 3)] = -np.inf
        at = int(np.argmax(gain))
        if np.isfinite(gain[at]) and (best is None or gain[at] > best[0]):
            best = float(gain[at]), int(column), float((values[at] + values[at + 1]) / 2)
    if best is None:
        return {"value": float(target.mean())}
    _, column, edge = best
    low = rows[:, column] <= edge
    return {
        "column": column,
        "edge": edge,
        "low": _grow(rows[low], target[low], depth - 1, dice),
        "high": _grow(rows[~low], target[~low], depth - 1, dice),
    }


def _descend(tree: Tree, rows: np.ndarray) -> np.ndarray:
    if "value" in tree:
        return np.full(len(rows), tree["value"])
    low = rows[:, tree["column"]] <= tree["edge"]
    found = np.empty(len(rows))
    found[low], found[~low] = _descend(tree["low"], rows[low]), _descend(tree["high"], rows[~low])
    return found


def save(model: Model, path: Path) -> None:
    """One JSON file."""
    path.write_text(json.dumps({"base": model.base, "rate": model.rate, "trees": model.trees}), encoding="ascii")


def load(path: Path) -> Model:
    """What ``save`` wrote."""
    data = json.loads(path.read_text(encoding="ascii"))
    return Model(base=data["base"], rate=data["rate"], trees=tuple(data["trees"]))
