# SPDX-License-Identifier: Apache-2.0
"""Searches every results file for a time that beats the unavoidable bound written beside it by more than 2 %.

python -m benchmarks.under_bound
"""

import json
import statistics
import sys
from pathlib import Path

HERE = Path(__file__).parent / "results"
TOLERANCE = 0.02
TIMES = ("best_us", "time_us", "median_us", "us", "least_us")


def pairs(data, where=""):
    """(where, time, bound) of every place in a file that has both; None for a bound that was not measured.

    A bound belongs to the times in its own object and in the objects and lists below it. Where data may have stayed
    in a cache (``warm_bound_us`` of bounds.py, ``reach_us`` of a profile's repeated calls) that is the bound.
    """
    if isinstance(data, list):
        for number, item in enumerate(data):
            yield from pairs(item, f"{where}[{number}]")
    elif isinstance(data, dict):
        bound = bound_of(data)
        if bound is not None:
            yield from ((f"{where}{place}", time, bound) for place, time in times(data))
        else:
            for key, value in data.items():
                yield from pairs(value, f"{where}/{key}")


def bound_of(data):
    """The bound an object states, in microseconds, or None."""
    if isinstance(data.get("bound"), dict) and "unavoidable_us" in data["bound"]:
        return data["bound"]["unavoidable_us"]
    for name in ("warm_bound_us", "reach_us", "bound_us"):
        if isinstance(data.get(name), int | float):
            return data[name]
    return None


def times(data, where=""):
    """(where, microseconds) of every time in and below an object; a list of numbers counts by its least, a judge's
    samples by their median: each is a window less the median cost of a window, and scatters both ways."""
    if isinstance(data, list):
        for number, item in enumerate(data):
            yield from times(item, f"{where}[{number}]")
    elif isinstance(data, dict):
        for key, value in data.items():
            timed = key in TIMES or (key.endswith("_us") and isinstance(value, list))
            numbers = value if isinstance(value, list) else [value]
            if timed and numbers and all(isinstance(number, int | float) for number in numbers):
                yield f"{where}/{key}", float(statistics.median(numbers) if key == "samples_us" else min(numbers))
            else:
                yield from times(value, f"{where}/{key}")


def search(folder=HERE):
    """(times compared, [(file, where, time, bound) of those under it])."""
    compared, under = 0, []
    for path in sorted(folder.rglob("*.json")):
        for where, time, bound in pairs(json.loads(path.read_text())):
            compared += 1
            if time < (1 - TOLERANCE) * bound:
                under.append((str(path.relative_to(folder)), where, time, bound))
    return compared, under


def main():
    """Print what is under its bound; the exit status says whether anything is."""
    compared, under = search()
    for file, where, time, bound in under:
        print(f"{file} {where}: {time:.4g} us under {bound:.4g} us ({time / bound:.3f}x)")
    print(f"{compared} times compared, {len(under)} more than {TOLERANCE:.0%} under their bound")
    sys.exit(bool(under))


if __name__ == "__main__":
    main()
