# SPDX-License-Identifier: Apache-2.0
"""Candidates in CUDA C++: NAME.cu to NAME.so with nvcc for the device's own architecture, flags pinned here."""

from __future__ import annotations

import functools
import shutil
from pathlib import Path

import torch

from kernelwright import sandbox
from kernelwright.errors import NoSuchDevice, ToolMissing

FLAGS = ("-O3", "-std=c++17", "-shared", "-Xcompiler", "-fPIC", "--fmad=true", "-lineinfo")
"""No -use_fast_math: fast exponentials and divisions lose bits that the contract does not give away."""


class Cuda:
    """CUDA C++ with host code, loaded through ctypes."""

    suffix = ".cu"

    def identity(self, device: str) -> str:
        """Compiler version, flags and architecture."""
        return f"{_version()} {' '.join(FLAGS)} {_architecture(device)}"

    def command(self, source: Path, output: Path, device: str) -> list[str]:
        """nvcc with the pinned flags."""
        return [_compiler(), *FLAGS, f"-arch={_architecture(device)}", "-o", str(output), str(source)]

    def about(self, device: str) -> str:
        """``nvcc`` and its version."""
        return f"nvcc {_version()}"

    def readable(self) -> tuple[Path, ...]:
        """The toolkit's folder."""
        return (Path(_compiler()).resolve().parent.parent,)


def _compiler() -> str:
    found = shutil.which("nvcc") or shutil.which("nvcc", path="/usr/local/cuda/bin")
    if found is None:
        raise ToolMissing(
            "There is no CUDA compiler",
            "nvcc is neither on PATH nor in /usr/local/cuda/bin",
            "a CUDA toolkit that matches the driver",
            "install the toolkit, or use --proposers without cuda candidates",
        )
    return found


def _architecture(device: str) -> str:
    """``sm_90a`` and the like: the architecture-specific variant, because the binary never leaves this device."""
    if not torch.cuda.is_available():
        raise NoSuchDevice(
            "A .cu kernel needs an NVIDIA GPU.",
            f"the device {device}, and no GPU that can be seen",
            "--device cuda:N on a machine with one",
            "judge it there, or give a .cpp or .py kernel here",
        )
    major, minor = torch.cuda.get_device_capability(device)
    return f"sm_{major}{minor}{'a' if major >= 9 else ''}"


@functools.cache
def _version() -> str:
    limits = sandbox.Limits(seconds=20.0, memory_bytes=4 << 30, processes=64, file_bytes=1 << 20, output_bytes=1 << 16)
    done = sandbox.run(
        [_compiler(), "--version"], limits=limits, writable=(), readable=Cuda().readable(), cwd=Path("/"), env={}
    )
    return " ".join(done.stdout.split()[-2:]) if done.stdout else "nvcc of unknown version"
