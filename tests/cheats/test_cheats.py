# SPDX-License-Identifier: Apache-2.0
"""Every row of the exploit catalogue against the judge: the first half of the cheats, what tasks are admitted, a GPU.

The quick run judges each cheat at the level it takes, and each honest program once. The rest is marked slow;
``run_corpus.py`` judges everything outside of pytest and repeats it.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch
from cheat_tasks import TASKS
from corpus import Program
from judged import CHEATS, FIRST, HONEST, ON_GPU, cases, judging
from run_corpus import ALL, judge

from kernelwright import wire
from kernelwright.errors import NotAdmitted
from kernelwright.workers.local import LocalWorker

ON_DEVICE = {
    "loss", "total", "dropout", "drop_gradient", "top", "argmax", "backward", "half", "special", "attention",
    "cross_binary",
}  # fmt: skip
"""Tasks whose references are judged on a GPU in the quick run: single numbers, random, whole, half ones, gradients,
and one that a value above one would end there, with the judge."""
REFUSED = {"degenerate": "passes as an answer", "unread": "nothing shows whether a program reads it"}


@pytest.fixture(scope="module")
def worker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalWorker]:
    """One warm judge for all of them."""
    with judging("cpu", tmp_path_factory) as started:
        yield started


@pytest.mark.parametrize("program", cases(FIRST))
def test_a_cheat_is_refused_or_gains_nothing(worker: LocalWorker, program: Program) -> None:
    """It ends at a stage where that makes sense; a lie about time alone may also be granted no gain."""
    verdict = judge(worker, program)
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
