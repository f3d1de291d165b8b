# SPDX-License-Identifier: Apache-2.0
"""Memory that was freed stays with the judge."""

from __future__ import annotations

import platform
import subprocess
import sys
from pathlib import Path

import pytest

from kernelwright.workers import LocalWorker

PROGRAM = """
import resource, threading, torch
from kernelwright.judge import pages
if {kept}:
    assert pages.keep_freed_pages()
def work():
    for _ in range(24):
        torch.empty(12 << 20).fill_(1)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(8):
        torch.empty(12 << 20).fill_(1)
    print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
thread = threading.Thread(target=work)
thread.start()
thread.join()
"""


def faults(*, kept: bool) -> int:
    """Page faults of making and freeing 48 MiB eight times in a thread of a fresh interpreter."""
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM.format(kept=kept)], capture_output=True, text=True, check=True, timeout=60
    )
    return int(done.stdout)


def test_what_was_freed_is_used_again_without_page_faults() -> None:
    """By default every large tensor is mapped and cleared afresh: 12288 faults each. Holes take a while to settle."""
    assert faults(kept=True) < 3 * 12288
    assert faults(kept=False) >= 8 * 12288


LARGE = """
import torch
from kernelwright.judge import pages

def resident():
    with open("/proc/self/status") as file:
        return next(int(line.split()[1]) for line in file if line.startswith("VmRSS:")) >> 10

pages.keep_freed_pages()
pages.suit({call}, {free})
before = resident()
held = [torch.ones(16 << 20), torch.ones(4)]  # what is small and above keeps the heap from shrinking
del held[0]
print(resident() - before)
"""


def held_mib(call_bytes: int, free: int | None = None) -> int:
    """What a fresh judge still has of 64 MiB that it freed."""
    text = LARGE.format(call=call_bytes, free=free)
    return int(subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, check=True).stdout)


def test_large_calls_give_their_memory_back_and_small_ones_keep_it() -> None:
    """Both after the same call of ``keep_freed_pages``."""
    assert held_mib(1 << 20) >= 60
    assert held_mib(1 << 30) <= 4
    assert held_mib(1 << 30, free=1 << 38) >= 60  # there is room for all its holes
    assert held_mib(1 << 30, free=1 << 34) <= 4


BETWEEN = """
import torch
from kernelwright.judge import pages

def resident():
    with open("/proc/self/status") as file:
        return next(int(line.split()[1]) for line in file if line.startswith("VmRSS:")) >> 10

pages.keep_freed_pages()
before = resident()
held = [torch.ones(16 << 20), torch.ones(4)]
del held[0]
pages.give_back({free})
print(resident() - before)
"""


@pytest.mark.parametrize(("free", "stays"), [(None, False), (128 << 20, False), (1 << 30, True)])
def test_what_a_task_freed_stays_for_the_next_where_it_is_little_beside_what_is_free(
    free: int | None, stays: bool
) -> None:
    """64 MiB: all of a fresh judge's heap."""
    text = BETWEEN.format(free=free)
    done = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, check=True)
    assert (int(done.stdout) >= 60) is stays


HUGE = Path("/sys/kernel/mm/transparent_hugepage/enabled")
AFRESH = """
import resource, torch
from kernelwright.judge import pages
pages.keep_freed_pages()
pages.suit(1 << 30, None)
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range(8):
    torch.empty(12 << 20).fill_(1)
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


@pytest.mark.skipif(
    not HUGE.exists() or "[never]" in HUGE.read_text() or not platform.libc_ver()[1] >= "2.35",
    reason="needs huge pages and a C library that asks for them",
)
def test_memory_of_large_calls_comes_in_huge_pages(tmp_path: Path) -> None:
    """In the environment that a worker gives its judge: 98304 faults for 8 times 48 MiB without, hundreds here."""
    with LocalWorker("cpu", tmp_path, tmp_path) as worker:
        environment = worker._environment()
    done = subprocess.run(
        [sys.executable, "-c", AFRESH], capture_output=True, text=True, check=True, env=dict(environment)
    )
    assert int(done.stdout) < 98304 // 10


TRIMMED = """
import ctypes, resource
from kernelwright.judge import pages
if {steady}:
    pages.steady()
libc = ctypes.CDLL(None)
libc.malloc.restype, libc.malloc.argtypes, libc.free.argtypes = ctypes.c_void_p, [ctypes.c_size_t], [ctypes.c_void_p]
def work():
    blocks = [libc.malloc(16 << 20) for _ in range(3)]
    for block in blocks:
        ctypes.memset(block, 1, 16 << 20)
    for block in blocks:
        libc.free(block)
for _ in range(6):
    work()
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range(4):
    work()
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


def test_programs_under_test_get_back_what_they_freed_whatever_lies_above_it() -> None:
    """Three temporaries of 16 MiB at the end of the heap: glibc alone trims it after every call."""
    faults = {}
    for steady in (True, False):
        command = [sys.executable, "-c", TRIMMED.format(steady=steady)]
        done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60)
        faults[steady] = int(done.stdout)
    assert faults[True] < 1000
    if platform.libc_ver()[0] == "glibc":
        assert faults[False] > 4 * 4096
