# SPDX-License-Identifier: Apache-2.0
"""The form of an answer that every prompt shows is itself an answer: built, loaded and judged."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from kernelwright import wire
from kernelwright.proposers.agent import Prompts, candidate_from
from kernelwright.task import Task
from kernelwright.workers import LocalWorker

REFERENCE = """
import torch


class Model(torch.nn.Module):
    def __init__(self, features):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.randn(features))

    def forward(self, x):
        return x * self.weight


def get_inputs():
    return [torch.randn(64, 48)]


def get_init_inputs():
    return [48]
"""


@pytest.mark.skipif(shutil.which("g++") is None, reason="needs g++")
@pytest.mark.parametrize("language", ["cpp", "torch"])
def test_the_example_is_accepted_for_the_reference_it_names(language: str, tmp_path: Path) -> None:
    """A model that copies it word for word has a correct program for ``x * self.weight``."""
    task = Task(name="scale", form="kernelbench", reference=REFERENCE)
    native = {"cpp": "cpp"}.get(language, "")
    nouns = {"entry": "ModelNew", "tuning": 0, "stays": "", "ending": ""}
    text = Prompts().render("answer_format", native=native, language=language, **nouns)
    found = candidate_from(text, task=task.digest(), entry="ModelNew", proposer="test")
    assert language == found.language
    with LocalWorker("cpu", tmp_path / "judge", tmp_path / "built") as worker:
        job = {"job": "judge", "task": wire.to_data(task), "candidate": wire.to_data(found), "device": "cpu"}
        outcome = worker.run(job | {"level": "coarse"})["outcome"]
    assert "Timed" == outcome["is"], outcome
