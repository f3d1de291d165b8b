# SPDX-License-Identifier: Apache-2.0
"""Every honest program past the judge: each once in the quick run, some at every case and variant."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from corpus import Program
from judged import HONEST, cases, judging
from run_corpus import judge

from kernelwright.workers.local import LocalWorker

THOROUGH = {
    "pointwise/erf", "pointwise/C++ strides", "row_norm/split sums", "softmax/online in blocks", "several/eager",
    "matmul/three-term bfloat16 split", "argmax/last of ties", "shapes/a path for one shape", "gradient/own backward",
    "in_place/add_",
}  # fmt: skip
"""Honest programs judged in all cases and variants in the quick run too."""


@pytest.fixture(scope="module")
def worker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalWorker]:
    """One warm judge for all of them."""
    with judging("cpu", tmp_path_factory) as started:
        yield started


@pytest.mark.parametrize("program", cases(HONEST))
def test_an_honest_program_passes(worker: LocalWorker, program: Program) -> None:
    """However slow or odd it is."""
    verdict = judge(worker, program, "precise" if program.name in THOROUGH else "smoke")
    assert verdict.right, verdict.words


@pytest.mark.slow
@pytest.mark.parametrize("program", [pytest.param(p, id=f"{p.task}: {p.name}") for p in HONEST])
def test_an_honest_program_passes_every_case_and_variant(worker: LocalWorker, program: Program) -> None:
    """All of the proof, and the race."""
    verdict = judge(worker, program, "precise")
    assert verdict.right, verdict.words
