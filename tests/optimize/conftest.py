# SPDX-License-Identifier: Apache-2.0
"""No test here reads the caches, runs or settings of whoever runs it."""

from __future__ import annotations

import os
from pathlib import Path

import pytest


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Caches and runs of the test's own."""
    for name in list(os.environ):
        if name.startswith("KERNELWRIGHT_"):
            monkeypatch.delenv(name)
    monkeypatch.setenv("KERNELWRIGHT_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("KERNELWRIGHT_RUNS", str(tmp_path / "runs"))
    return tmp_path
