# SPDX-License-Identifier: Apache-2.0
"""What the tests of the corpus have in common: which programs there are, and a judge for them. They are in files of
their own since each file stays in one of several processes: all in one, it alone took as long as all other tests."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import pytest
from corpus import Program
from run_corpus import ALL, by_task

from kernelwright.workers.local import LocalWorker

CPU = [p for p in by_task(ALL) if p.device == "cpu"]
CHEATS = [p for p in CPU if not p.honest]
HONEST = [p for p in CPU if p.honest]
ON_GPU = [p for p in by_task(ALL) if p.device == "cuda"]
_HALF = CHEATS[len(CHEATS) // 2].task
FIRST, SECOND = ([p for p in CHEATS if (p.task < _HALF) == first] for first in (True, False))
"""Halves of the cheats, by task: a judge keeps few of them warm."""


def cases(programs: list[Program]) -> list:
    """One test per program, named by it."""
    late = pytest.mark.slow
    known = pytest.mark.xfail(reason="not caught reliably yet", strict=False)
    return [pytest.param(p, id=f"{p.task}: {p.name}", marks=[late] * p.slow + [known] * p.open) for p in programs]


@contextlib.contextmanager
def judging(device: str, folders: pytest.TempPathFactory) -> Iterator[LocalWorker]:
    """A judge of one device, with folders of its own that confined programs can reach."""
    folder = folders.mktemp("judge")
    folder.chmod(0o755)
    with LocalWorker(device, folder / "state", folder / "cache") as started:
        yield started
