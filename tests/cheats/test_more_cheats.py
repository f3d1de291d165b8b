# SPDX-License-Identifier: Apache-2.0
"""The second half of the cheats: see ``test_cheats``."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from corpus import Program
from judged import SECOND, cases, judging
from run_corpus import judge

from kernelwright.workers.local import LocalWorker


@pytest.fixture(scope="module")
def worker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalWorker]:
    """One warm judge for all of them."""
    with judging("cpu", tmp_path_factory) as started:
        yield started


@pytest.mark.parametrize("program", cases(SECOND))
def test_a_cheat_is_refused_or_gains_nothing(worker: LocalWorker, program: Program) -> None:
    """It ends at a stage where that makes sense; a lie about time alone may also be granted no gain."""
    verdict = judge(worker, program)
    assert verdict.right, verdict.words
