# SPDX-License-Identifier: Apache-2.0
"""``benchmarks/folder.py``: which programs of a folder are judged, and what is said of each."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "benchmarks"))

import folder  # noqa: E402 - a script of the checkout, no part of the package

TASK = """
import torch
class Model(torch.nn.Module):
    def forward(self, x):
        return x * 2
def get_inputs():
    return [torch.randn(8, 8)]
def get_init_inputs():
    return []
"""


class Worker:
    """Says the same of everything, and remembers what it was asked."""

    def __init__(self, outcome: dict[str, Any]) -> None:
        self.outcome, self.jobs = outcome, list[dict[str, Any]]()

    def run(self, job: dict[str, Any]) -> dict[str, Any]:
        self.jobs.append(job)
        return {"outcome": self.outcome}


def test_candidates_and_twins_are_judged_and_a_broken_one_ends_nothing(tmp_path: Path) -> None:
    """In the order of their names; what no task lies beside is left out."""
    for name, files in {"b": ["task.py", "twin.py", "candidate.py"], "a": ["task.py", "candidate.cu"], "c": []}.items():
        (tmp_path / name).mkdir()
        for file in files:
            (tmp_path / name / file).write_text(TASK.replace("Model(", "Model(" if file == "task.py" else "ModelNew("))
    found = folder.programs(tmp_path)
    assert [str(p.relative_to(tmp_path)) for p in found] == ["a/candidate.cu", "b/candidate.py", "b/twin.py"]
    charged = "3 us a call, gained in windows of many calls only, do not count"
    worker: Any = Worker({"is": "Timed", "speedup": 2.0, "speedup_low": 1.5, "conditions": ["level precise", charged]})
    assert folder.judged(worker, found[1], "cpu") == f"granted 2.000 (low 1.500); {charged}"
    assert worker.jobs[0]["level"] == "precise" and worker.jobs[0]["baselines"] == ["eager"]
    folder.judged(worker, found[1], "cpu", gradients=True)
    assert [job["task"]["contract"]["gradients"] for job in worker.jobs] == [False, True]
    refused: Any = Worker({"is": "Rejected", "stage": "verify", "reason": "wrong"})
    assert folder.judged(refused, found[2], "cpu") == "REFUSED verify: wrong"
    assert folder.judged(worker, found[0], "cpu").startswith("FAILED CandidateError")
