# SPDX-License-Identifier: Apache-2.0
"""The repository's own results: no measured time beats the unavoidable bound written beside it."""

from __future__ import annotations

import fnmatch
import json
import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from benchmarks import under_bound  # noqa: E402 - a script of the checkout, no part of the package
from kernelwright.limits.memory import ERRORS  # noqa: E402 - beside the one below


def test_no_result_is_under_its_bound() -> None:
    """Every file below benchmarks/results; hundreds of times are compared, so an empty search cannot pass."""
    compared, under = under_bound.search()
    assert compared > 500
    assert [] == under


def test_samples_of_a_judge_count_by_their_median(tmp_path: Path) -> None:
    """One window that reads short is noise; a time that is short in most of them is not possible."""
    for name, samples in (("noise", [96.0, 104.0, 101.0]), ("short", [96.0, 104.0, 97.0])):
        data = {"bound_us": 100.0, "timing": {"samples_us": samples}}
        (tmp_path / f"{name}.json").write_text(json.dumps(data))
    assert ["short.json"] == [file for file, *_ in under_bound.search(tmp_path)[1]]


def test_a_time_under_its_bound_is_found_wherever_it_stands(tmp_path: Path) -> None:
    """In the bound's object, below it, in a list, in a proof; not where data may have stayed in a cache."""
    data = {
        "rows": [
            {"bound_us": 100.0, "best_us": 97.0},
            {"bound_us": 100.0, "best_us": 98.5, "candidates": [{"us": [99.0, 90.0]}]},
            {"bound_us": 100.0, "warm_bound_us": 10.0, "best_us": 50.0},
        ],
        "proof": {"bound": {"unavoidable_us": 10.0}, "speed": {"timing": {"median_us": 9.0}}},
    }
    (tmp_path / "one.json").write_text(json.dumps(data))
    compared, under = under_bound.search(tmp_path)
    assert (5, ["/rows[0]/best_us", "/rows[1]/candidates[0]/us", "/proof/speed/timing/median_us"]) == (
        compared,
        [where for _, where, _, _ in under],
    )


def test_the_memory_predictor_states_the_errors_that_were_measured() -> None:
    """Of the files of both kinds of device."""
    for kind, folder in (("cpu", "cpu"), ("cuda", "h200")):
        found = json.loads((under_bound.HERE / folder / "memory.json").read_text())["seen"]
        middle, worst = ERRORS[kind]
        errors = sorted(abs(row["predicted"] / row["measured"] - 1) for row in found["rows"])
        assert (round((errors[9] + errors[10]) / 2, 3), round(errors[-1], 2)) == (middle, worst)
        assert len(errors) == 20 and errors[18] < 0.1


def test_every_result_is_named_with_its_command() -> None:
    """In the table of commands beside the files, or in the file itself."""
    table = (under_bound.HERE / "README.md").read_text().partition("## Commands")[2]
    patterns = [name for row in table.splitlines() for name in re.findall(r"`([^`]+\.json)`", row.split(" | ")[0])]
    for path in sorted(under_bound.HERE.rglob("*.json")):
        name = str(path.relative_to(under_bound.HERE))
        own = json.loads(path.read_text())
        listed = any(fnmatch.fnmatch(name, pattern) for pattern in patterns)
        assert listed or (isinstance(own, dict) and own.get("command")), name
    assert len(patterns) > 20
