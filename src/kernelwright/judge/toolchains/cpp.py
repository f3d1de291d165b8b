# SPDX-License-Identifier: Apache-2.0
"""Candidates in C++: NAME.cpp to NAME.so with g++, flags pinned here and nowhere else."""

from __future__ import annotations

import functools
import re
import shutil
from pathlib import Path

from kernelwright import sandbox
from kernelwright.errors import ToolMissing

FLAGS = (
    "-O3",
    "-march=native",
    "-fopenmp",
    "-shared",
    "-fPIC",
    "-std=c++20",
    "-fno-fast-math",
    "-fno-math-errno",  # errno is never read; keeps results and lets sqrt vectorise
    "-fno-trapping-math",  # floating-point traps are never enabled; lets selects vectorise
    "-ffp-contract=fast",
)
"""No flag here changes a result beyond contraction to fma, which rounds once instead of twice."""

VECTORS = re.compile(r"AVX\w*|FMA|F16C|BMI2|GFNI|AMX\w*|ARM_NEON|ARM_FEATURE_(?:SVE2?|BF16|DOTPROD|MATMUL_INT8)")
"""Predefined macros, without their underscores, of instruction sets that decide how a kernel is written."""


class Cpp:
    """C++20 with OpenMP for the machine it is judged on."""

    suffix = ".cpp"

    def identity(self, device: str) -> str:
        """Compiler version, flags and what ``native`` means here."""
        return f"{_version()} {' '.join(FLAGS)} cpu {_cpu_identity()}"

    def command(self, source: Path, output: Path, device: str) -> list[str]:
        """g++ with the pinned flags."""
        return [compiler(), *FLAGS, "-o", str(output), str(source)]

    def about(self, device: str) -> str:
        """``g++ 12.2.0, which targets AVX2, FMA here``: its own word for what the flags mean on this processor."""
        targets = _targets()
        return f"{_version()}{', which targets ' + ', '.join(targets) + ' here' if targets else ''}"

    def readable(self) -> tuple[Path, ...]:
        """Nothing beyond the system."""
        return ()


def compiler() -> str:
    """Path of g++. Raises ToolMissing."""
    found = shutil.which("g++")
    if found is None:
        raise ToolMissing(
            "There is no C++ compiler", "g++ is not on PATH", "g++ 11 or newer", "install g++ (apt install g++)"
        )
    return found


@functools.cache
def _version() -> str:
    limits = sandbox.Limits(seconds=10.0, memory_bytes=1 << 30, processes=64, file_bytes=1 << 20, output_bytes=1 << 16)
    done = sandbox.run([compiler(), "--version"], limits=limits, writable=(), cwd=Path("/"), env={})
    return done.stdout.splitlines()[0] if done.stdout else "g++ of unknown version"


@functools.cache
def _targets() -> tuple[str, ...]:
    """Instruction sets that the pinned flags let a source use, as the compiler's own macros name them."""
    limits = sandbox.Limits(seconds=10.0, memory_bytes=1 << 30, processes=64, file_bytes=1 << 20, output_bytes=1 << 20)
    command = [compiler(), *(flag for flag in FLAGS if flag != "-shared"), "-dM", "-E", "-x", "c++", "/dev/null"]
    done = sandbox.run(command, limits=limits, writable=(), cwd=Path("/"), env={})
    return tuple(
        sorted(
            found
            for found in re.findall(r"^#define __(\w+?)__ 1$", done.stdout, flags=re.M)
            if VECTORS.fullmatch(found)
        )
    )


@functools.cache
def _cpu_identity() -> str:
    """Model and features of CPU 0: ``-march=native`` on another CPU is another binary."""
    try:
        text = Path("/proc/cpuinfo").read_text().split("\n\n")[0]
    except OSError:
        return "unknown"
    wanted = re.findall(r"^(?:model name|flags|Features)\s*:\s*(.*)$", text, flags=re.MULTILINE)
    return " | ".join(wanted)
