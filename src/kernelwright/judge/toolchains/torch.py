# SPDX-License-Identifier: Apache-2.0
"""Candidates in plain torch: nothing is compiled ahead of the run."""

from __future__ import annotations

import importlib.metadata
from pathlib import Path


class Torch:
    """Python source that imports torch."""

    suffix = ""

    def identity(self, device: str) -> str:
        """The torch version."""
        return f"torch {importlib.metadata.version('torch')}"

    def command(self, source: Path, output: Path, device: str) -> list[str]:
        """Never called: there is no suffix to compile."""
        raise NotImplementedError(f"{source.name}: torch candidates are not compiled")

    def about(self, device: str) -> str:
        """Nothing: no file is compiled ahead."""
        return ""

    def readable(self) -> tuple[Path, ...]:
        """Nothing beyond the system."""
        return ()
