# SPDX-License-Identifier: Apache-2.0
"""Every row of the exploit catalogue against the judge, and every honest program past it.

The quick run judges a third of the cheats at the level they take, a third of the honest programs once, and some at
every case and variant: the third is another one with each commit. The rest is marked slow; ``run_corpus.py`` judges
everything outside of pytest and repeats it.
"""

from __future__ import annotations

import contextlib
import subprocess
import zlib
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from cheat_tasks import TASKS
from corpus import Program
from run_corpus import ALL, by_task, judge

from kernelwright import wire
from kernelwright.errors import NotAdmitted
from kernelwright.workers.local import LocalWorker

CPU = [p for p in by_task(ALL) if p.device == "cpu"]
CHEATS = [p for p in CPU if not p.honest]
HONEST = [p for p in CPU if p.honest]
ON_GPU = [p for p in by_task(ALL) if p.device == "cuda"]
THOROUGH = {
    "pointwise/erf", "pointwise/C++ strides", "row_norm/split sums", "softmax/online in blocks", "several/eager",
    "matmul/three-term bfloat16 split", "argmax/last of ties", "shapes/a path for one shape", "gradient/own backward",
    "in_place/add_",
}  # fmt: skip
"""Honest programs judged in all cases and variants in the quick run too."""
ON_DEVICE = {
    "loss", "total", "dropout", "drop_gradient", "top", "argmax", "backward", "half", "special", "attention",
    "cross_binary",
}  # fmt: skip
"""Tasks whose references are judged on a GPU in the quick run: single numbers, random, whole, half ones, gradients,
and one that a value above one would end there, with the judge."""
REFUSED = {"degenerate": "passes as an answer", "unread": "nothing shows whether a program reads it"}


def turn() -> int:
    """How many commits there are; 0 where nobody knows."""
    try:
        asked = ["git", "rev-list", "--count", "HEAD"]
        said = subprocess.run(asked, cwd=Path(__file__).parent, capture_output=True, text=True, check=True, timeout=20)
        return int(said.stdout)
    except (OSError, ValueError, subprocess.SubprocessError):
        return 0


TURN = turn()
THIRDS = 3
"""All of the corpus took the quick run to 23 to 26 minutes on two old cores, of 25 that it may take, and so did half of
it once it was twice as large."""


def left_out(program: Program, turn: int = TURN) -> bool:
    """Whether it is of the two thirds whose turn a commit is not."""
    named = zlib.crc32(f"{program.task}/{program.name}".encode())
    return program.device == "cpu" and (named + turn) % THIRDS > 0 and program.name not in THOROUGH


def cases(programs: list[Program]) -> list:
    """One test per program, named by it."""
    late = pytest.mark.slow
    known = pytest.mark.xfail(reason="not caught reliably yet", strict=False)
    return [
        pytest.param(p, id=f"{p.task}: {p.name}", marks=[late] * (p.slow or left_out(p)) + [known] * p.open)
        for p in programs
    ]


@contextlib.contextmanager
def judging(device: str, folders: pytest.TempPathFactory) -> Iterator[LocalWorker]:
    """A judge of one device, with folders of its own that confined programs can reach."""
    folder = folders.mktemp("judge")
    folder.chmod(0o755)
    with LocalWorker(device, folder / "state", folder / "cache") as started:
        yield started


@pytest.fixture(scope="module")
def worker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalWorker]:
    """One warm judge for all of them."""
    with judging("cpu", tmp_path_factory) as started:
        yield started


@pytest.mark.parametrize("program", cases(CHEATS))
def test_a_cheat_is_refused_or_gains_nothing(worker: LocalWorker, program: Program) -> None:
    """It ends at a stage where that makes sense; a lie about time alone may also be granted no gain."""
    verdict = judge(worker, program)
    assert verdict.right, verdict.words


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


@pytest.mark.parametrize("name", sorted(REFUSED))
def test_a_task_that_anything_answers_is_not_admitted(worker: LocalWorker, name: str) -> None:
    """A constant, or a program that leaves an input unread, cannot win where there is no verdict."""
    program = next(p for p in HONEST if p.task == "pointwise")
    task = TASKS[name]
    job = {"job": "judge", "task": wire.to_data(task), "candidate": wire.to_data(program.candidate(task))}
    with pytest.raises(NotAdmitted, match=REFUSED[name]):
        worker.run({**job, "level": "precise", "baselines": ["eager"]})


@pytest.mark.parametrize("name", ["row_norm", "argmax", "counts", "masked", "tiny_call"])
def test_the_tasks_of_the_corpus_are_admitted(worker: LocalWorker, name: str) -> None:
    """Otherwise its cheats would be refused for the task's sake."""
    assert [] == worker.run({"job": "admit", "task": wire.to_data(TASKS[name])})["reasons"]


def test_each_program_is_judged_by_one_of_three_commits_at_the_least() -> None:
    """About a third by each, so that in three commits all are."""
    counts = [sum(left_out(p, turn) for p in CPU) for turn in (7, 8, 9)]
    assert all(sum(left_out(p, turn) for turn in (7, 8, 9)) == 2 * (p.name not in THOROUGH) for p in CPU)
    assert min(counts) > len(CPU) / 1.7


def test_the_corpus_covers_the_catalogue() -> None:
    """34 classes, at least 60 cheats and 60 honest programs, and an honest twin for every cheat."""
    honest = {p.name for p in ALL if p.honest}
    assert set(range(1, 35)) == {number for p in CHEATS for number in p.classes} - {0}
    assert [] == [p.name for p in ALL if not p.honest and p.twin not in honest]
    assert min(len(CHEATS), len(HONEST)) >= 60
    assert len({(p.task, p.name, p.device) for p in ALL}) == len(ALL)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize("program", cases(ON_GPU))
def test_the_verdict_on_a_gpu_is_right(program: Program, tmp_path_factory: pytest.TempPathFactory) -> None:
    """Streams, graphs, cache persistence, and honest programs in three languages."""
    with judging("cuda", tmp_path_factory) as started:
        verdict = judge(started, program)
    assert verdict.right, verdict.words


@pytest.fixture(scope="module")
def on_device(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalWorker]:
    """One judge of a GPU for all of them."""
    with judging("cuda", tmp_path_factory) as started:
        yield started


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize(
    "name",
    [pytest.param(n, marks=[pytest.mark.slow] * (n not in ON_DEVICE)) for n in sorted(set(TASKS) - set(REFUSED))],
)
def test_a_reference_passes_as_a_candidate_on_a_gpu(on_device: LocalWorker, name: str) -> None:
    """Whatever it takes and returns. Single numbers, and all that is random, once made the judge itself fail there."""
    source = TASKS[name].reference + "\n\nModelNew = Model\n"
    verdict = judge(on_device, Program(name="itself", task=name, sources=(("new.py", source),)), "precise")
    if "insists on another device" in verdict.words:
        pytest.skip("its reference makes tensors on the CPU")
    assert verdict.right, verdict.words
