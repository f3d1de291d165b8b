# SPDX-License-Identifier: Apache-2.0
"""How much faster C++ candidates are built two at once than one after another, through the judge's own build jobs.

    python benchmarks/compile_parallel.py [--candidates 8] [--rounds 3] [--out FILE.json]

Each round builds fresh sources (no cache can answer) serially and with every job in flight, in alternating order. It
needs a machine that does nothing else; the load average before each round is in the result.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from kernelwright import wire
from kernelwright.candidate import Candidate
from kernelwright.workers import LocalWorker

SOURCE = """#include <algorithm>
#include <cmath>
#include <functional>
#include <map>
#include <regex>
#include <string>
#include <vector>
extern "C" void f(const float* x, float* y, long n) {{
  static const int mark = {mark};
  std::map<std::string, std::vector<float>> bins;
  std::regex pattern("[a-z]+([0-9]*)");
  for (long i = 0; i < n; ++i) bins[std::to_string(i % 7 + mark)].push_back(std::sqrt(x[i]));
  long at = 0;
  for (auto& [name, values] : bins) {{
    std::sort(values.begin(), values.end(), std::greater<float>());
    if (std::regex_match(name, pattern)) values.clear();
    for (float v : values) y[at++] = v;
  }}
}}
"""
MAIN = "import ctypes, torch\nclass ModelNew(torch.nn.Module):\n    def forward(self, x):\n        return x\n"


def jobs(count: int, start: int) -> list[dict[str, object]]:
    """Build jobs of sources that were never built before."""
    made = []
    for mark in range(start, start + count):
        sources = (("kernel.py", MAIN), ("work.cpp", SOURCE.format(mark=mark)))
        candidate = Candidate(
            task="benchmark", language="cpp", entry="kernel.py::ModelNew", sources=sources, proposer="benchmark"
        )
        made.append({"job": "build", "candidate": wire.to_data(candidate), "device": "cpu"})
    return made


def timed(worker: LocalWorker, work: list[dict[str, object]], together: bool) -> float:
    """Seconds until every job is done; raises when one was rejected."""
    began = time.monotonic()
    replies = [f.result() for f in [worker.submit(job) for job in work]] if together else [worker.run(j) for j in work]
    seconds = time.monotonic() - began
    assert all(reply["outcome"] is None for reply in replies), replies
    return seconds


def main() -> None:
    """Measure and write the result."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--candidates", type=int, default=8)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--out", type=Path)
    chosen = parser.parse_args()
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        worker = LocalWorker("cpu", Path(folder) / "state", Path(folder) / "built")
        try:
            mark = 1
            timed(worker, jobs(1, 0), together=False)
            for number in range(chosen.rounds):
                row = {"load_before": os.getloadavg()[0]}
                for together in (False, True) if number % 2 == 0 else (True, False):
                    row["together" if together else "serial"] = timed(worker, jobs(chosen.candidates, mark), together)
                    mark += chosen.candidates
                row["ratio"] = row["serial"] / row["together"]
                rows.append(row)
        finally:
            worker.close()
    commit = subprocess.run(["git", "rev-parse", "HEAD"], capture_output=True, text=True, check=False).stdout.strip()
    result = {
        "command": "python benchmarks/" + " ".join([Path(sys.argv[0]).name, *sys.argv[1:]]),
        "commit": commit,
        "machine": {"processor": platform.processor(), "cores": len(os.sched_getaffinity(0))},
        "candidates": chosen.candidates,
        "rounds": rows,
        "ratio_median": statistics.median(row["ratio"] for row in rows),
    }
    print(json.dumps(result, indent=1))
    if chosen.out is not None:
        chosen.out.write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
