# SPDX-License-Identifier: Apache-2.0
"""The machine's faults are named as such, never taken for a candidate's, and believed only where they are real."""

from __future__ import annotations

import errno
import shutil
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from kernelwright import errors
from kernelwright.candidate import Candidate
from kernelwright.errors import ClockJumped, DeviceLost, DiskFull, NotEnoughMemory
from kernelwright.judge import health
from kernelwright.judge.build import build
from kernelwright.judge.health import Steady, fault
from kernelwright.judge.server import answer
from kernelwright.trial import Rejected

MS = 1_000_000


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (RuntimeError("CUDA error: an illegal memory access was encountered\nmore"), DeviceLost),
        (RuntimeError("CUDA error: device-side assert triggered"), DeviceLost),
        (torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 9 GiB"), NotEnoughMemory),
        (RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to allocate 9 bytes"), NotEnoughMemory),
        (MemoryError(), NotEnoughMemory),
        (OSError(errno.ENOSPC, "No space left on device", "x"), DiskFull),
        (OSError(errno.EFBIG, "File too large", "x"), DiskFull),
        (OSError(errno.EDQUOT, "Disk quota exceeded"), DiskFull),
        (OSError(errno.ENOENT, "No such file"), type(None)),
        (RuntimeError("CUDA error: invalid device ordinal"), type(None)),
        (RuntimeError("shapes cannot be multiplied"), type(None)),
        (ValueError("CUDA error"), type(None)),
    ],
)
def test_a_fault_of_the_machine_is_told_from_a_mistake(error: Exception, kind: type) -> None:
    """By its class and words; what is no machine's fault stays what it was."""
    assert kind is type(fault(error))


def test_a_poisoned_context_is_a_lost_device_whatever_job_meets_it() -> None:
    """Also where nobody expected it: the server answers DeviceLost, not a defect of its own."""

    def handler(request: object, emit: object) -> dict[str, object]:
        raise RuntimeError("CUDA error: unspecified launch failure")

    _, error = answer({"judge": handler}, {"id": 1, "job": "judge"}, lambda event: None)
    assert isinstance(error, DeviceLost) and "unspecified launch failure" in error.got
    assert [True] * 3 == [getattr(errors, name).passing for name in ("DeviceLost", "ClockJumped", "DiskFull")]


def test_a_device_that_fails_under_a_candidate_is_nobodys_fault(monkeypatch: pytest.MonkeyPatch) -> None:
    """After a failure the judge asks the device for a sum: no answer, or nonsense, is a lost device."""
    cuda = torch.device("cuda:0")
    health.probe(torch.device("cpu"))

    def dead(*args: object, **more: object) -> torch.Tensor:
        raise RuntimeError("CUDA error: uncorrectable ECC error encountered")

    monkeypatch.setattr(torch, "arange", dead)
    with pytest.raises(DeviceLost, match="ECC"):
        health.probe(cuda)
    monkeypatch.setattr(torch, "arange", lambda count, device: torch.ones(count))
    with pytest.raises(DeviceLost, match="64"):
        health.probe(cuda)


@pytest.mark.skipif(shutil.which("g++") is None, reason="needs g++")
def test_a_full_disk_is_believed_only_where_the_disk_is_full(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same words of a compiler: a source can print them, and then it is refused as any that does not compile."""
    sources = (("k.cpp", "#error No space left on device\n"), ("new.py", "class ModelNew: pass\n"))
    candidate = Candidate(task="", language="cpp", entry="new.py::ModelNew", sources=sources, proposer="test")
    refused = build(candidate, "cpu", tmp_path)
    assert isinstance(refused, Rejected) and "build" == refused.stage
    monkeypatch.setattr(shutil, "disk_usage", lambda place: SimpleNamespace(free=health.NO_ROOM_BYTES - 1))
    with pytest.raises(DiskFull, match="63 MiB left"):
        build(candidate, "cpu", tmp_path)


def clocks(*steps: tuple[int, int, int]) -> Steady:
    """Clocks that advance by these (record, raw, boot) nanoseconds between looks."""
    seen: Iterator[tuple[int, int, int]] = iter([(0, 5, 9), *steps])
    now = [0, 0, 0]

    def others() -> tuple[int, ...]:
        return now[1], now[2]

    def clock() -> int:
        if clock.turn % 2 == 0:  # type: ignore[attr-defined]
            for index, step in enumerate(next(seen)):
                now[index] += step
        clock.turn += 1  # type: ignore[attr-defined]
        return now[0]

    clock.turn = 0  # type: ignore[attr-defined]
    return Steady(clock, others)


@pytest.mark.parametrize(
    "jump",
    [
        (100 * MS, 900 * MS, 100 * MS),  # the clock of record stood, or was slewed hard
        (900 * MS, 100 * MS, 100 * MS),  # it was set forward
        (100 * MS, 100 * MS, 4000 * MS),  # the machine slept
        (-5 * MS, 100 * MS, 100 * MS),  # it went back
    ],
)
def test_a_clock_that_jumps_is_noticed(jump: tuple[int, int, int]) -> None:
    """Whichever of the three leaves the others; the looks before it and after it are quiet."""
    steady = clocks((100 * MS, 100 * MS, 100 * MS), jump, (100 * MS, 100 * MS, 100 * MS))
    steady.look()
    with pytest.raises(ClockJumped, match="disagree"):
        steady.look()
    steady.look()


def test_clocks_that_are_slewed_as_ntp_does_are_no_jump() -> None:
    """500 parts in a million, over ten seconds."""
    clocks((10_000 * MS, 10_005 * MS, 10_000 * MS)).look()


def test_the_clocks_of_this_machine_go_alike() -> None:
    """The real ones."""
    steady = Steady()
    for _ in range(50):
        steady.look()


@pytest.mark.parametrize(("free", "given_back"), [(3, True), (5, False)])
def test_what_the_judge_keeps_in_reserve_gives_way_to_programs(
    monkeypatch: pytest.MonkeyPatch, free: int, given_back: bool
) -> None:
    """It keeps 4 of the 9 GiB that it has: more than is free, or less."""
    called: list[bool] = []
    monkeypatch.setattr(torch.cuda, "memory_reserved", lambda device: 9 << 30)
    monkeypatch.setattr(torch.cuda, "memory_allocated", lambda device: 5 << 30)
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device: (free << 30, 80 << 30))
    monkeypatch.setattr(torch.cuda, "empty_cache", lambda: called.append(True))
    health.make_room(torch.device("cuda:0"))
    assert given_back == bool(called)
