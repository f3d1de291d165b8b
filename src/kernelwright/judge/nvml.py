# SPDX-License-Identifier: Apache-2.0
"""The NVIDIA driver's own management library, as far as the judge reads it; nothing is ever set.

libnvidia-ml comes with every driver and keeps its functions; so a few calls through ctypes need no package.
"""

from __future__ import annotations

import ctypes
from typing import Any

import torch

LIBRARY = "libnvidia-ml.so.1"
_CLOCKS = {"SM": 1, "memory": 2}
"""nvmlClockType_t."""


class Device:
    """One GPU. Raises OSError where there is no driver or it does not know the device."""

    def __init__(self, device: str, library: Any = None) -> None:
        self._nvml = ctypes.CDLL(LIBRARY) if library is None else library
        self._handle = ctypes.c_void_p()
        about = torch.cuda.get_device_properties(device)
        places = [getattr(about, f"pci_{part}_id", 0) for part in ("domain", "bus", "device")]
        if self._nvml.nvmlInit_v2() != 0:
            raise OSError("NVML cannot be initialised")
        name = "{:08X}:{:02X}:{:02X}.0".format(*places).encode()
        if self._nvml.nvmlDeviceGetHandleByPciBusId_v2(name, ctypes.byref(self._handle)) != 0:
            raise OSError("NVML does not know this device")

    def joules(self) -> float:
        """Energy since the driver was loaded."""
        value = ctypes.c_ulonglong()
        self._ask("nvmlDeviceGetTotalEnergyConsumption", "energy counter", value)
        return float(value.value) / 1e3

    def watts(self) -> float:
        """Power now, as the driver averages it."""
        value = ctypes.c_uint()
        self._ask("nvmlDeviceGetPowerUsage", "power reading", value)
        return float(value.value) / 1e3

    def clocks_mhz(self) -> dict[str, float]:
        """Rates now, by name."""
        found = {}
        for name, kind in _CLOCKS.items():
            value = ctypes.c_uint()
            self._ask("nvmlDeviceGetClockInfo", "clock rate", value, ctypes.c_uint(kind))
            found[name] = float(value.value)
        return found

    def held_back(self) -> int:
        """Bits of nvmlClocksEventReasons now. Older drivers know the function by its older name only."""
        value = ctypes.c_ulonglong()
        newer = "nvmlDeviceGetCurrentClocksEventReasons"
        name = newer if hasattr(self._nvml, newer) else "nvmlDeviceGetCurrentClocksThrottleReasons"
        self._ask(name, "reasons for its clocks", value)
        return int(value.value)

    def _ask(self, function: str, what: str, value: Any, *before: Any) -> None:
        status = getattr(self._nvml, function)(self._handle, *before, ctypes.byref(value))
        if status != 0:
            raise OSError(f"NVML gives no {what} (status {status})")
