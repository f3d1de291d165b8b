# SPDX-License-Identifier: Apache-2.0
"""Clock rates and what holds a device back: read from doubles of NVML and of /sys, said in one line."""

from __future__ import annotations

import ctypes
import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from kernelwright.judge import clocks, nvml
from kernelwright.judge.clocks import Clocks, processor_mhz

CUDA = torch.device("cuda:0")


class Library:
    """libnvidia-ml of a device whose readings are given."""

    def __init__(self, sm: list[int], reasons: list[int], *, status: int = 0, old: bool = False) -> None:
        self.sm, self.reasons, self.status = sm, reasons, status
        name = "nvmlDeviceGetCurrentClocksThrottleReasons" if old else "nvmlDeviceGetCurrentClocksEventReasons"
        setattr(self, name, self._reasons)

    def nvmlInit_v2(self) -> int:
        return 0

    def nvmlDeviceGetHandleByPciBusId_v2(self, name: bytes, handle: Any) -> int:
        return 0 if name == b"00000000:1B:00.0" else 6

    def nvmlDeviceGetClockInfo(self, handle: Any, kind: ctypes.c_uint, value: Any) -> int:
        value._obj.value = 2619 if kind.value == 2 else self.sm.pop(0)
        return self.status

    def _reasons(self, handle: Any, value: Any) -> int:
        value._obj.value = self.reasons.pop(0)
        return self.status


@pytest.fixture(autouse=True)
def _one_device(monkeypatch: pytest.MonkeyPatch) -> None:
    about = SimpleNamespace(pci_domain_id=0, pci_bus_id=0x1B, pci_device_id=0)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda device: about)


@pytest.mark.parametrize("old", [False, True])
def test_clocks_and_reasons_of_a_gpu_are_in_one_line(old: bool) -> None:
    """The range over all readings, and how many of them were held back by what; idleness (1) is no reason."""
    library = Library([1980, 1755, 1980], [0x1, 0x4 | 0x40, 0x4], old=old)
    found = Clocks(CUDA, lambda device: nvml.Device(device, library))
    for _ in range(3):
        found.look()
    assert (
        "clocks in 3 readings: SM 1755 to 1980 MHz, memory 2619 MHz; held back by heat (hardware) in 1 of 3, "
        "power cap in 2 of 3" == found.words()
    )


def test_clocks_that_somebody_set_are_said_to_be() -> None:
    """Locked clocks are no throttling, but a reader must know."""
    found = Clocks(CUDA, lambda device: nvml.Device(device, Library([1500], [0x2])))
    found.look()
    assert found.words().endswith("SM 1500 MHz, memory 2619 MHz; held back by nothing; set by somebody")


def test_what_cannot_be_read_is_not_measured() -> None:
    """No driver, a refused reading, and a device that NVML does not know."""

    def absent(device: str) -> nvml.Device:
        raise OSError("libnvidia-ml.so.1: cannot open shared object file")

    assert "clocks: not measured (libnvidia-ml.so.1: cannot open" in Clocks(CUDA, absent).words()
    found = Clocks(CUDA, lambda device: nvml.Device(device, Library([1], [0], status=3)))
    found.look()
    assert "clocks: not measured (NVML gives no clock rate (status 3))" == found.words()
    assert "not measured" in Clocks(torch.device("cpu")).words()


def test_the_rate_of_a_processor_is_what_the_system_gives(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """cpufreq first, then /proc/cpuinfo, else nothing; processors that are not ours are not asked."""
    own = sorted(os.sched_getaffinity(0))[0]
    info = tmp_path / "cpuinfo"
    info.write_text("processor\t: 0\ncpu MHz\t\t: 2449.998\nprocessor\t: 1\ncpu MHz\t\t: 3000.002\n")
    assert [2449.998, 3000.002] == processor_mhz(tmp_path, info)
    for number, rate in ((own, "2800000"), (9999, "1")):
        (tmp_path / f"cpu{number}" / "cpufreq").mkdir(parents=True)
        (tmp_path / f"cpu{number}" / "cpufreq" / "scaling_cur_freq").write_text(rate)
    assert [2800.0] == processor_mhz(tmp_path, info)
    assert [] == processor_mhz(tmp_path / "none", tmp_path / "none")
    monkeypatch.setattr(clocks, "processor_mhz", lambda: [2000.0, 3000.0])
    found = Clocks(torch.device("cpu"))
    found.look()
    assert "clocks in 1 readings: processor 2500 MHz" == found.words()
