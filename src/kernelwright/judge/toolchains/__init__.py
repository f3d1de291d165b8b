# SPDX-License-Identifier: Apache-2.0
"""One file per language: which sources it compiles, with which pinned flags, and what identifies its compiler."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Protocol

from kernelwright.judge.toolchains.cpp import Cpp
from kernelwright.judge.toolchains.cuda import Cuda
from kernelwright.judge.toolchains.torch import Torch
from kernelwright.judge.toolchains.triton import Triton


class Toolchain(Protocol):
    """How one language becomes something that loads."""

    suffix: str
    """Sources with this suffix are compiled to ``NAME.so``; empty: nothing is."""

    def identity(self, device: str) -> str:
        """Everything outside the sources that can change the result: compiler, version, flags, target.

        Raises ``ToolMissing`` where the compiler is not there."""
        ...

    def command(self, source: Path, output: Path, device: str) -> list[str]:
        """The command that compiles ``source`` to ``output``."""
        ...

    def about(self, device: str) -> str:
        """For a person who writes sources: which compiler it is and what it may assume of the device; or nothing."""
        ...

    def readable(self) -> tuple[Path, ...]:
        """Folders the compiler must be able to read, beyond the system's own."""
        ...


TABLE: Mapping[str, Toolchain] = {"torch": Torch(), "triton": Triton(), "cpp": Cpp(), "cuda": Cuda()}
"""Candidate language to toolchain."""
