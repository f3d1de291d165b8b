# SPDX-License-Identifier: Apache-2.0
"""Fits the product-time model to what gemm_measure.py measured and reports its error on shapes it has not seen.

python -m benchmarks.gemm_model MEASURED.json MACHINE.json OUT.json [MODEL.json [POWER.json]]

POWER.json has watts of other products on the same device (gemm_measure.py with ``power``); MODEL.json is then what
limits/products.py ships, time and power. With what gemm_tiles.py measured it fits the model over tile choices, and
MODEL.json is what limits/tiles.py ships.
"""

import json
import sys
import time
from pathlib import Path

import numpy as np

from benchmarks.provenance import commit
from kernelwright import wire
from kernelwright.limits import gemm, products, tiles
from kernelwright.machine import Machine

FOLDS = 5
TREES = {"trees": 120, "depth": 5, "rate": 0.15}
"""For tile choices; 200 trees at half the rate were no better on held-out products."""


SHIPPED = {"trees": 150, "depth": 4, "rate": 0.1}
"""For library products, so that the file stays below 200 KB."""


def device_of(machine, processors):
    """The roofline's numbers from measured facts."""
    names = {name: f"peak.gemm.{name}_TFLOPs" for name in ("bfloat16", "float16", "float32", "tf32")}
    rates = {name: machine.value(fact) * 1e6 for name, fact in names.items()}
    return gemm.Device(processors, machine.value("bandwidth.copy.dram_GBps") * 1e3, rates)


def folds(count, seed=3):
    """Held-out positions of each fold."""
    return np.array_split(np.random.default_rng(seed).permutation(count), FOLDS)


def held_out(rows, target, back):
    """Predictions for every row by a model that has not seen it."""
    found = np.empty(len(target))
    for part in folds(len(target)):
        rest = np.setdiff1d(np.arange(len(target)), part)
        found[part] = back(part, gemm.fit(rows[rest], target[rest], **SHIPPED).correction(rows[part]))
    return found


def over_tiles(measured, machine, device):
    """Fit over tile choices; products are held out whole, so every tile of a held-out one is new."""
    data = measured["rows"]
    shapes = [(row["dtype"], row["m"], row["n"], row["k"]) for row in data]
    rows = np.array([tiles.features(s, tuple(row["tile"]), device) for s, row in zip(shapes, data, strict=True)])
    roof = np.array([gemm.roofline_us(shape, device) for shape in shapes])
    took = np.array([row["seconds"] * 1e6 for row in data])
    target, products = np.log(took / roof), sorted(set(shapes))
    number = np.array([products.index(shape) for shape in shapes])
    guess = np.empty(len(took))
    for part in folds(len(products)):
        out = np.isin(number, part)
        guess[out] = gemm.fit(rows[~out], target[~out], **TREES).correction(rows[out])
    error = np.abs(np.exp(guess - target) - 1)
    first, third, middle, rank = [], [], [], []
    for one in range(len(products)):
        own = np.where(number == one)[0]
        order = own[np.argsort(guess[own])]
        best = took[own].min()
        first.append(took[order[0]] / best)
        third.append(took[order[:3]].min() / best)
        middle.append(np.median(took[own]) / best)
        rank.append(np.corrcoef(np.argsort(np.argsort(guess[own])), np.argsort(np.argsort(took[own])))[0, 1])
    result = {
        "command": ["python", "-m", "benchmarks.gemm_model", "gemm_tiles.json"], "commit": commit(),
        "machine": machine.fingerprint, "device": machine.name, "torch": measured["torch"], "when": time.time(),
        "folds": FOLDS, "products": len(products), "times": len(took), "median_error": float(np.median(error)),
        "p90_error": float(np.percentile(error, 90)), "first_over_best": float(np.mean(first)),
        "best_of_three_over_best": float(np.mean(third)), "median_tile_over_best": float(np.mean(middle)),
        "median_rank_correlation": float(np.median(rank)),
    }  # fmt: skip
    Path(sys.argv[3]).write_text(json.dumps(result, indent=1))
    print(json.dumps({name: value for name, value in result.items() if isinstance(value, float)}, indent=1))
    if len(sys.argv) > 4:
        model = gemm.fit(rows, target, **TREES)
        tiles.save(tiles.Learned(model, result["median_error"], len(products), machine.name), Path(sys.argv[4]))


def over_power(data, timer, machine, device):
    """(what is known of it, the power model) from rows with watts; products are held out whole, their times too: each
    is the time that a model of other products predicts."""
    data = [row for row in data if "watts" in row]
    shapes = [(row["dtype"], row["m"], row["n"], row["k"]) for row in data]
    watts = np.array([row["watts"] for row in data])
    target = np.log(watts / machine.value("power.gemm_W"))
    measured = [row["seconds"] * 1e6 for row in data]
    known = np.array([products.load_features(*pair, device) for pair in zip(shapes, measured, strict=True)])
    found = {}
    for name, times in (("measured", measured), ("predicted", gemm.predict_us(timer, shapes, device))):
        seen = np.array([products.load_features(*pair, device) for pair in zip(shapes, times, strict=True)])
        guess = np.empty(len(target))
        for part in folds(len(target)):
            rest = np.setdiff1d(np.arange(len(target)), part)
            guess[part] = gemm.fit(known[rest], target[rest], **SHIPPED).correction(seen[part])
        found[name] = np.abs(np.exp(guess - target) - 1)
        print(f"  power, {name} times: median error {np.median(found[name]):.1%}, "
              f"90th percentile {np.percentile(found[name], 90):.1%} of {len(target)}")  # fmt: skip
    about = {"median_error": float(np.median(found["predicted"])), "products": len(target),
             "p90_error": float(np.percentile(found["predicted"], 90)),
             "median_error_at_measured_times": float(np.median(found["measured"])),
             "least_W": float(watts.min()), "most_W": float(watts.max())}  # fmt: skip
    return about, gemm.fit(known, target, **SHIPPED)


def main():
    """Fit, print, write."""
    measured = json.loads(Path(sys.argv[1]).read_text())
    machine = wire.from_data(Machine, json.loads(Path(sys.argv[2]).read_text()))
    device = device_of(machine, measured["processors"])
    data = measured["rows"]
    if "tile" in data[0]:
        over_tiles(measured, machine, device)
        return
    shapes = [(row["dtype"], row["m"], row["n"], row["k"]) for row in data]
    rows = np.array([gemm.features(shape, device) for shape in shapes])
    roof = np.array([gemm.roofline_us(shape, device) for shape in shapes])
    took = np.array([row["seconds"] * 1e6 for row in data])
    guess = held_out(rows, np.log(took / roof), lambda part, value: np.exp(value) * roof[part])
    error = np.abs(guess / took - 1)
    print(f"{len(took)} products, {FOLDS} folds: median error {np.median(error):.1%}, "
          f"90th percentile {np.percentile(error, 90):.1%}; "
          f"roofline alone {np.median(np.abs(roof / took - 1)):.1%}")  # fmt: skip
    by_dtype = {}
    for dtype in sorted({shape[0] for shape in shapes}):
        mask = np.array([shape[0] == dtype for shape in shapes])
        by_dtype[dtype] = float(np.median(error[mask]))
        print(f"  {dtype}: {by_dtype[dtype]:.1%} of {mask.sum()}")
    given = json.loads(Path(sys.argv[5]).read_text())["rows"] if len(sys.argv) > 5 else data
    power, drawn = over_power(given, gemm.fit(rows, np.log(took / roof), **SHIPPED), machine, device)
    rank = float(np.corrcoef(np.argsort(np.argsort(guess)), np.argsort(np.argsort(took)))[0, 1])
    result = {
        "command": ["python", "-m", "benchmarks.gemm_model"], "commit": commit(),
        "machine": machine.fingerprint, "device": machine.name,
        "torch": measured["torch"], "when": time.time(), "folds": FOLDS, "products": len(took),
        "median_error": float(np.median(error)), "p90_error": float(np.percentile(error, 90)),
        "roofline_median_error": float(np.median(np.abs(roof / took - 1))), "by_dtype": by_dtype,
        "rank_correlation": rank, "power": power,
        "rows": [
            [*shape, float(f"{t:.5g}"), float(f"{g:.5g}")] for shape, t, g in zip(shapes, took, guess, strict=True)
        ],
    }  # fmt: skip
    Path(sys.argv[3]).write_text(json.dumps(result))
    if len(sys.argv) > 4:
        learned = products.Learned(
            gemm.fit(rows, np.log(took / roof), **SHIPPED), drawn, result["median_error"], power["median_error"],
            len(took), power["products"], machine.name,
        )  # fmt: skip
        products.save(learned, Path(sys.argv[4]))


if __name__ == "__main__":
    main()
