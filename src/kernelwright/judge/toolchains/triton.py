# SPDX-License-Identifier: Apache-2.0
"""Candidates in Triton: compiled by Triton itself when first called, inside the candidate's own process."""

from __future__ import annotations

import importlib.metadata
import importlib.util
from pathlib import Path

from kernelwright.errors import ToolMissing


class Triton:
    """Python source that imports triton."""

    suffix = ""

    def identity(self, device: str) -> str:
        """The triton and torch versions."""
        if importlib.util.find_spec("triton") is None:
            raise ToolMissing(
                "Triton is not installed",
                "no package named triton",
                "triton>=3.6",
                "pip install 'kernelwright[triton]'",
            )
        return f"triton {importlib.metadata.version('triton')} torch {importlib.metadata.version('torch')}"

    def command(self, source: Path, output: Path, device: str) -> list[str]:
        """Never called: there is no suffix to compile."""
        raise NotImplementedError(f"{source.name}: triton candidates are compiled when they run")

    def about(self, device: str) -> str:
        """Nothing: no file is compiled ahead."""
        return ""

    def readable(self) -> tuple[Path, ...]:
        """Nothing beyond the system."""
        return ()
