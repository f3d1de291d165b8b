# SPDX-License-Identifier: Apache-2.0
"""Sanitizers over C++ candidates: what they find, where they say it is, and what they are silent about."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path
from typing import Any

import pytest
from plain_tasks import task

from kernelwright import sandbox
from kernelwright.candidate import Candidate
from kernelwright.judge import sanitize
from kernelwright.judge.bench import Bench
from kernelwright.judge.sanitize import Sanitized, tools
from kernelwright.trial import STAGES

SHELL = """
import ctypes
from pathlib import Path
import torch
lib = ctypes.CDLL(str(Path(__file__).with_name("kernel.so")))
class ModelNew(torch.nn.Module):
    def forward(self, x):
        y = torch.empty_like(x)
        lib.run(*(ctypes.c_void_p(t.data_ptr()) for t in (x, y)), ctypes.c_long(x.numel()))
        return y
"""
HEAD = '#include <cmath>\nextern "C" void run(const float* x, float* y, long n) {\n'
ORDERED = """float s = 0;
#pragma omp parallel for reduction(+ : s)
for (long i = 0; i < n; ++i) s += 0 * x[i];
#pragma omp parallel
{
#pragma omp for schedule(dynamic, 16)
for (long i = 0; i < n; ++i) y[i] = 2 * x[i];
#pragma omp for
for (long i = 0; i < n; ++i) y[n - 1 - i] += s;
#pragma omp critical
s += 0;
#pragma omp barrier
#pragma omp single
y[0] += s;
}
#pragma omp parallel for schedule(guided)
for (long i = 0; i < n; ++i) y[i] += 0;
}
"""
RACE = """float s = 0;
#pragma omp parallel for
for (long i = 0; i < n; ++i) {
s = 2 * x[i];
y[i] = s;
}
}
"""
BEYOND = "for (long i = 0; i <= n; ++i) { volatile float v = x[i]; if (i < n) y[i] = 2 * v; }\n}\n"
NARROW = "float t[8];\nfor (long i = 0; i < n; ++i) { t[i % 9] = x[i]; y[i] = 2 * x[i]; }\ny[0] += 0 * t[n % 3];\n}\n"
TASKS = "#pragma omp parallel\n#pragma omp single\n#pragma omp task\ny[0] = 0;\n}\n"

needs = pytest.mark.skipif(shutil.which("g++") is None, reason="needs g++")


def looked_at(body: str, folder: Path) -> Sanitized:
    """The verdict on one C++ body."""
    asked = task("x * 2", "[torch.randn(64, 33)]")
    sources = (("kernel.cpp", HEAD + body), ("new.py", SHELL))
    candidate = Candidate(task="", language="cpp", entry="new.py::ModelNew", sources=sources, proposer="test")
    folder.chmod(0o755)
    return sanitize.run(candidate, folder, Bench(asked, "cpu"), folder)


@needs
@pytest.mark.slow
def test_what_openmp_orders_is_no_race(tmp_path: Path) -> None:
    """Regions, reductions, dynamic and guided loops, critical sections, barriers, single: both tools find nothing."""
    found = looked_at(ORDERED, tmp_path)
    assert found == Sanitized(
        rejected=None, notes=("AddressSanitizer: clean on 1 cases", "ThreadSanitizer: clean on 1 cases")
    )


@needs
@pytest.mark.slow
def test_a_variable_that_threads_share_is_a_race(tmp_path: Path) -> None:
    """Its stage, its line (two lines of head come first), and the report beside it."""
    found = looked_at(RACE, tmp_path).rejected
    assert found is not None and found.stage == sanitize.STAGE in STAGES
    assert found.reason in {f"ThreadSanitizer: data race at kernel.cpp:{line}" for line in (6, 7)}
    assert "WARNING: ThreadSanitizer: data race" in found.detail and "run._omp_fn.0" in found.detail


@needs
@pytest.mark.slow
def test_a_read_one_element_past_an_input_is_found(tmp_path: Path) -> None:
    """However right the answer is."""
    found = looked_at(BEYOND, tmp_path).rejected
    assert found is not None and found.reason == "AddressSanitizer: heap-buffer-overflow at kernel.cpp:3"


@needs
@pytest.mark.slow
def test_an_index_beyond_an_array_is_found(tmp_path: Path) -> None:
    """Arrays of fixed size on the stack, by the bounds check."""
    found = looked_at(NARROW, tmp_path).rejected
    assert found is not None and found.reason.startswith("AddressSanitizer: index 8 out of bounds for type 'float [8]'")


@needs
@pytest.mark.slow
def test_what_cannot_be_judged_is_a_note(tmp_path: Path) -> None:
    """OpenMP tasks are not understood, which is said and refuses nobody."""
    found = looked_at(TASKS, tmp_path)
    assert found.rejected is None
    assert "ThreadSanitizer: not run (OpenMP tasks are not understood)" in found.notes


def test_python_candidates_have_nothing_to_look_at(tmp_path: Path) -> None:
    """One note, no process."""
    candidate = Candidate(task="", language="torch", entry="a.py::M", sources=(("a.py", ""),), proposer="test")
    found = sanitize.run(candidate, tmp_path, Bench(task("x * 2", "[torch.randn(4)]"), "cpu"), tmp_path)
    assert found == Sanitized(rejected=None, notes=("sanitizers: not run (there is nothing of its own to compile)",))


def test_without_time_nothing_runs_and_that_is_said(tmp_path: Path) -> None:
    """A fact of the proof, not a failure."""
    candidate = Candidate(task="", language="cpp", entry="a.py::M", sources=(("a.py", ""),), proposer="test")
    found = sanitize.within(14.9, candidate, tmp_path, Bench(task("x * 2", "[torch.randn(4)]"), "cpu"), tmp_path, 1.0)
    assert found == Sanitized(rejected=None, notes=("sanitizers: not run (no time was left for them)",))


def test_a_fast_program_is_looked_at_however_much_work_its_reference_does(tmp_path: Path) -> None:
    """A product with a diagonal matrix: 2^30 multiply-adds, of which the candidate does a thousandth."""
    candidate = Candidate(task="", language="cpp", entry="a.py::M", sources=(("a.py", ""),), proposer="test")
    bench = Bench(task("torch.diag(v) @ x", "[torch.randn(1024), torch.randn(1024, 1024)]", args="v, x"), "cpu")
    scene = sanitize._Scene(candidate, tmp_path, tmp_path, tmp_path, "cpu")
    assert [0, 1, 0] == [scene.write_calls(bench, call_us) for call_us in (None, 500.0, 1e6)]


def test_only_reports_that_name_the_candidates_sources_count() -> None:
    """torch is not instrumented: what is said of it alone is not the candidate's; the first that is, is taken."""
    other = "WARNING: ThreadSanitizer: data race (pid=1)\n  Write of size 8\n    #0 gemm <null> (libtorch_cpu.so+0x1)\n"
    mine = "WARNING: ThreadSanitizer: data race (pid=1)\n  Write of size 4\n    #0 run ./my.cpp:12 (my.so+0x1)\n"
    assert ("", "") == tools.fault(tools.THREAD, other, ["my.cpp"])
    assert ("", "") == tools.fault(tools.THREAD, "", ["my.cpp"])
    assert ("data race at my.cpp:12", mine) == tools.fault(tools.THREAD, other + mine + mine, ["my.cpp"])


DOUBLE = """#!{python}
import subprocess, sys
arguments = sys.argv[1:]
start = next(i for i, word in enumerate(arguments) if word.startswith("/"))
options, command = arguments[:start], arguments[start:]
print("========= COMPUTE-SANITIZER")
done = subprocess.run(command, capture_output=True, text=True)
print(done.stdout, done.stderr)
faulty = "beyond" in done.stdout and "memcheck" in options
if faulty:
    print("========= Invalid __global__ read of size 4 bytes")
    print("=========     at kernel(float*)+0x90 in k.cu:7")
print("========= ERROR SUMMARY: " + ("1 error" if faulty else "0 errors"))
sys.exit(66 if faulty else done.returncode)
"""
TELLS = """
import os
import torch
def can(path, mode):
    try:
        open(path, mode).close()
        return "yes"
    except OSError:
        return "no"
class ModelNew(torch.nn.Module):
    def forward(self, x):
        if {beyond}:
            print("beyond")
        print("writes to its sources:", can(__file__, "a"), "pool:", os.environ.get("PYTORCH_NO_CUDA_MEMORY_CACHING"))
        return x * 2
"""


def on_device(
    beyond: bool, place: Path, monkeypatch: pytest.MonkeyPatch
) -> tuple[Sanitized, list[tuple[list[str], str]]]:
    """A CUDA candidate looked at by a double of compute-sanitizer: what is said, and each tool's options and output."""
    built, tool = place / "built", place / "tool" / "bin" / "compute-sanitizer"
    for folder in (built, tool.parent):
        folder.mkdir(parents=True)
    tool.write_text(DOUBLE.format(python=sys.executable))
    (built / "new.py").write_text(TELLS.format(beyond=beyond))
    for path in (place, *place.rglob("*")):
        path.chmod(0o777)
    monkeypatch.setattr(tools, "compute_sanitizer", lambda: tool)
    seen: list[tuple[list[str], str]] = []
    plain = sandbox.run

    def noted(*given: Any, **more: Any) -> sandbox.Finished:
        done = plain(*given, **more)
        seen.append((list(more.get("watch", ())), done.stdout))
        return done

    monkeypatch.setattr(sandbox, "run", noted)
    sources = (("k.cu", ""), ("new.py", ""))
    candidate = Candidate(task="", language="cuda", entry="new.py::ModelNew", sources=sources, proposer="test")
    found = sanitize.run(candidate, built, Bench(task("x * 2", "[torch.randn(8, 4)]"), "cpu"), place / "cache")
    return found, [(watch[1:], said) for watch, said in seen if watch]


def test_compute_sanitizer_rejects_what_it_finds_and_says_where(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By a double: its first line is the reason, its report the evidence; nothing else runs after a fault."""
    found, runs = on_device(True, tmp_path, monkeypatch)
    assert found.rejected is not None and found.rejected.stage == sanitize.STAGE, found.notes
    assert "compute-sanitizer memcheck: Invalid __global__ read of size 4 bytes" == found.rejected.reason
    assert "k.cu:7" in found.rejected.detail
    assert ["--tool memcheck --error-exitcode 66 --target-processes all"] == [" ".join(words) for words, _ in runs]


def test_what_compute_sanitizer_starts_confines_itself(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both tools run; the program may not write to its own sources, and every tensor is an allocation of its own."""
    found, runs = on_device(False, tmp_path, monkeypatch)
    notes = ("compute-sanitizer memcheck: clean on 1 cases", "compute-sanitizer racecheck: clean on 1 cases")
    assert Sanitized(rejected=None, notes=notes) == found
    assert ["memcheck", "racecheck"] == [words[1] for words, _ in runs]
    assert all("writes to its sources: no pool: 1" in said for _, said in runs)


def test_without_compute_sanitizer_that_is_a_note(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Never a rejection."""
    monkeypatch.setattr(tools, "compute_sanitizer", lambda: None)
    candidate = Candidate(task="", language="cuda", entry="new.py::M", sources=(("new.py", ""),), proposer="test")
    found = sanitize.run(candidate, tmp_path, Bench(task("x * 2", "[torch.randn(8, 4)]"), "cpu"), tmp_path)
    assert found.rejected is None
    assert "compute-sanitizer memcheck: not run (it is not installed)" in found.notes
