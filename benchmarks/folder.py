# SPDX-License-Identifier: Apache-2.0
"""Programs that are not in the repository through the judge: other projects' kernels, an attacker's.

    python benchmarks/folder.py FOLDER [--device cpu|cuda:N] [--lanes 1] [--repeats 1] [--seconds 500] [--gradients]
        [--out FILE]

Each NAME/ of FOLDER has a ``task.py`` in KernelBench's form and ``candidate.py``, ``.cu`` or ``.cpp``, and may have a
``twin.*``, an honest program for the same task. Each is judged at the precise level against eager, without admission,
``--lanes`` at a time. A row says what the judge said; FILE is written after each.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import queue
import shlex
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

from provenance import commit

from kernelwright import wire
from kernelwright.errors import KernelwrightError
from kernelwright.load import load_candidate, load_task
from kernelwright.workers.local import LocalWorker

FILES = [f"{name}.{ending}" for name in ("candidate", "twin") for ending in ("py", "cu", "cpp")]


def main() -> None:
    """Judge, print and record."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--lanes", type=int, default=1)
    parser.add_argument("--repeats", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=500.0, help="begin none after this")
    parser.add_argument("--gradients", action="store_true", help="of all of them, beside the answers")
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    waiting: queue.SimpleQueue[Path] = queue.SimpleQueue()
    for place in programs(given.folder) * given.repeats:
        waiting.put(place)
    record: dict[str, Any] = {
        "command": shlex.join(["python", *sys.argv]), "commit": commit(), "device": given.device, "level": "precise",
        "baselines": ["eager"], "rows": [],
    }  # fmt: skip
    writing, end = threading.Lock(), time.monotonic() + given.seconds

    def lane(cache: Path) -> None:
        with tempfile.TemporaryDirectory() as own, LocalWorker(given.device, Path(own, "state"), cache) as worker:
            Path(own).chmod(0o755)
            while time.monotonic() < end:
                try:
                    place = waiting.get_nowait()
                except queue.Empty:
                    return
                row = {
                    "name": place.parent.name,
                    "file": place.name,
                    "said": judged(worker, place, given.device, given.gradients),
                }
                with writing:
                    record["rows"].append(row)
                    print(json.dumps(row), flush=True)
                    if given.out:
                        given.out.write_text(json.dumps(record, indent=1) + "\n")

    with tempfile.TemporaryDirectory() as shared:
        Path(shared).chmod(0o755)
        threads = [threading.Thread(target=lane, args=[Path(shared, "cache")]) for _ in range(given.lanes)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()


def programs(folder: Path) -> list[Path]:
    """The candidates and twins below ``folder``, by name."""
    names = sorted(path.parent for path in folder.glob("*/task.py"))
    return [name / file for name in names for file in FILES if (name / file).is_file()]


def judged(worker: LocalWorker, place: Path, device: str, gradients: bool = False) -> str:
    """What the judge says of one, in words."""
    try:
        task = load_task(place.with_name("task.py"), device)
        contract = dataclasses.replace(task.contract, gradients=gradients or task.contract.gradients)
        task = dataclasses.replace(task, contract=contract)
        job = {
            "job": "judge", "device": device, "task": wire.to_data(task), "level": "precise", "baselines": ["eager"],
            "candidate": wire.to_data(load_candidate(place, task)), "admit": False,
        }  # fmt: skip
        outcome = worker.run(job)["outcome"]
    except KernelwrightError as error:
        return f"FAILED {type(error).__name__}: {error}"[:400]
    if outcome["is"] == "Timed":
        charged = [words for words in outcome["conditions"] if "windows of many calls only" in words]
        return "; ".join([f"granted {outcome['speedup']:.3f} (low {outcome['speedup_low']:.3f})", *charged])
    return f"REFUSED {outcome['stage']}: {outcome['reason']}"[:400]


if __name__ == "__main__":
    main()
