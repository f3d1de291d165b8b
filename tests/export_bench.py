# SPDX-License-Identifier: Apache-2.0
"""Tasks, trials and exported folders in a few lines: what the tests of the export share."""

from __future__ import annotations

import dataclasses
import json
import subprocess
import sys
import tempfile
import textwrap
from collections.abc import Sequence
from pathlib import Path

from kernelwright import export, wire
from kernelwright.candidate import Candidate
from kernelwright.task import Contract, Task
from kernelwright.trial import CaseResult, Timed, Trial

REFERENCE = '''"""Scale and square."""
import torch
from torch import nn


class Model(nn.Module):
    def __init__(self, cols):
        super().__init__()
        self.weight = nn.Parameter(torch.rand(cols))
        self.register_buffer("seen", torch.zeros(1))

    def forward(self, x, power=2):
        return (x * self.weight) ** power


def get_inputs(rows=4, cols=8):
    return [torch.randn(rows, cols), 2]


def get_init_inputs(rows=4, cols=8):
    return [cols]
'''
# Marked wrong by exactly one, so that a test can see which program answered.
FAST = REFERENCE.replace("class Model(", "class ModelNew(").replace("** power", "** power + 1")
CPP = 'extern "C" void square(const float* x, float* y, long n) { for (long i = 0; i < n; ++i) y[i] = x[i] * x[i]; }\n'
SQUARE = """import torch
from torch import nn


class Model(nn.Module):
    def forward(self, x):
        return x * x


def get_inputs():
    return [torch.randn(6)]


def get_init_inputs():
    return []
"""
BINDING = """import ctypes
import os

import torch
from torch import nn

_library = ctypes.CDLL(os.path.join(os.path.dirname(os.path.abspath(__file__)), "square.so"))


class ModelNew(nn.Module):
    calls = 0

    def forward(self, x):
        type(self).calls += 1
        x = x.contiguous()
        y = torch.empty_like(x)
        _library.square(ctypes.c_void_p(x.data_ptr()), ctypes.c_void_p(y.data_ptr()), ctypes.c_long(x.numel()))
        return y
"""
COMMAND = ("g++", "-O2", "-shared", "-fPIC", "-o", "{output}", "{source}")


def leaf(*shape: int, dtype: str = "float32") -> dict[str, object]:
    """Facts of a tensor leaf."""
    return {"shape": list(shape), "dtype": dtype}


def case(rows: int, cols: int) -> dict[str, object]:
    """Facts of one judged case of REFERENCE."""
    return {"name": f"{rows}x{cols}", "inputs": [leaf(rows, cols), {"value": 2}], "state": [leaf(cols), leaf(1)]}


CASES = [case(4, 8), case(1, 33), case(7, 2)]


def timed(**changes: object) -> Timed:
    """A timed outcome, as the ledger would bring it back."""
    timing = {"samples_us": [10.0, 11.0, 12.0], "low_us": 10.5, "high_us": 11.5}
    baseline = {"name": "eager", "timing": timing, "speedup": 3.0, "speedup_low": 2.5, "speedup_high": 3.5}
    data = {
        "proof": {
            "cases": [
                {"name": "4x8", "required": True, "passed": True, "detail": "", "error_ratio": 1.0, "calls": 3}
            ],
            "outputs": 1, "checked_calls": 3, "error_ratio": 1.1, "bits_lost": 0.14, "oracle": "float64",
            "deterministic": True, "seed": 7, "sandbox": "namespaces", "notes": [],
        },
        "timing": timing, "baselines": [baseline], "best_baseline": "eager", "speedup": 3.0, "speedup_low": 2.5,
        "speedup_high": 3.5, "bound_us": 5.0, "bound_fraction": 0.45, "limiter": "memory",
        "conditions": ["cold cache"], "repeats": 2, "profile": [],
    }  # fmt: skip
    return wire.from_data(Timed, data | changes)


def trial(task: Task, sources: dict[str, str], language: str = "torch") -> Trial:
    """A winning trial of the given sources; the first is the entry."""
    candidate = Candidate(
        task=task.digest(),
        language=language,
        entry=f"{next(iter(sources))}::ModelNew",
        sources=tuple(sorted(sources.items())),
        proposer="test",
    )
    return Trial(
        candidate=candidate, outcome=timed(), level="precise", machine="m1", versions=(("torch", "x"),),
        seconds=1.0, started_at=0.0,
    )  # fmt: skip


def with_fault(won: Trial, name: str) -> Trial:
    """The same trial, whose proof says that it fails on these calls, which nobody asked for."""
    assert isinstance(won.outcome, Timed)
    proof = won.outcome.proof
    failed = CaseResult(name=name, required=False, passed=False, detail="it fails", error_ratio=0.0, calls=1)
    proof = dataclasses.replace(proof, cases=(*proof.cases, failed))
    return dataclasses.replace(won, outcome=dataclasses.replace(won.outcome, proof=proof))


def make(
    folder: Path,
    contract: Contract | None = None,
    reference: str = REFERENCE,
    fast: str = FAST,
    cases: Sequence[dict[str, object]] = CASES,
) -> None:
    """Export the marked program into ``folder``."""
    task = Task(name="scale", form="folder", reference=reference, contract=contract or Contract())
    export.write(folder, task, trial(task, {"fast.py": fast}), cases=cases)


def alone(folder: Path, code: str, path: str | None = None, **environment: str) -> list[object]:
    """Run code in a process in which kernelwright cannot be imported; returns what it appended to ``out``."""
    head = f"""
        import json, sys, warnings
        sys.modules["kernelwright"] = None
        sys.path.insert(0, {str(folder)!r})
        out, said = [], []
        warnings.simplefilter("always")
        warnings.showwarning = lambda message, *rest, **more: said.append(str(message))
        import torch
        torch.manual_seed(0)
    """
    tail = "\nprint(json.dumps([out, [s for s in said if s.startswith('optimized')]]))"
    script = textwrap.dedent(head) + textwrap.dedent(code) + tail
    base = {"PATH": path if path is not None else "/usr/local/bin:/usr/bin:/bin", "HOME": str(folder)}
    with tempfile.TemporaryDirectory() as place:
        said, complaint = Path(place, "out"), Path(place, "err")
        asked = {"script": script, "env": base | environment, "files": [str(said), str(complaint)]}
        returned = _Torch.ask(json.dumps(asked))
        assert 0 == returned, complaint.read_text()[-3000:]
        return json.loads(said.read_text().splitlines()[-1])


class _Torch:
    """A process that has imported torch and nothing of ours, and forks for each script: torch alone took 3 s of the 4
    that one takes on a slow core."""

    SERVED = """
import atexit, json, os, sys, tempfile, traceback, types
import torch

for line in sys.stdin:
    asked = json.loads(line)
    child = os.fork()
    if not child:
        code = 1
        try:
            os.environ.clear()
            os.environ.update(asked["env"])
            tempfile.tempdir = None
            for number, file in enumerate(asked["files"], 1):
                os.dup2(os.open(file, os.O_WRONLY | os.O_CREAT), number)
            os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
            main = sys.modules["__main__"] = types.ModuleType("__main__")
            exec(compile(asked["script"], "<string>", "exec"), main.__dict__)
            code = 0
        except BaseException:
            traceback.print_exc()
        atexit._run_exitfuncs()
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
"""
    _process: subprocess.Popen[str] | None = None

    @classmethod
    def ask(cls, request: str) -> int:
        """Run one script; its exit code."""
        if cls._process is None:
            cls._process = subprocess.Popen(
                [sys.executable, "-I", "-c", cls.SERVED], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
            )
        assert cls._process.stdin and cls._process.stdout
        cls._process.stdin.write(request + "\n")
        cls._process.stdin.flush()
        return int(cls._process.stdout.readline())
