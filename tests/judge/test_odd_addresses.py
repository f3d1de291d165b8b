# SPDX-License-Identifier: Apache-2.0
"""judge/odd_addresses.py: what fails on inputs at odd addresses alone is granted, on a GPU, for the others."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from plain_tasks import task

from kernelwright import wire
from kernelwright.candidate import Candidate
from kernelwright.export.space import by_vectors
from kernelwright.judge import layouts, odd_addresses
from kernelwright.judge.inputs import Variant
from kernelwright.judge.layouts import LATE, WIDE
from kernelwright.judge.session import Session
from kernelwright.task import Task
from kernelwright.trial import Outcome, Rejected, Timed
from kernelwright.workers.local import LocalWorker

PLAIN = "return torch.tanh(x) + x.mean(-1, keepdim=True)"
TASK = task("torch.tanh(x) + x.mean(-1, keepdim=True)", "[torch.randn(32, 48)]")


def program(body: str) -> Candidate:
    """A module with that forward."""
    lines = "".join(f"        {line}\n" for line in body.splitlines())
    text = f"import torch\nclass ModelNew(torch.nn.Module):\n    def forward(self, x):\n{lines}"
    return Candidate(
        task=TASK.digest(), language="torch", entry="new.py::ModelNew", sources=(("new.py", text),), proposer="test"
    )


Judged = Callable[[str, bool], Outcome]


@pytest.fixture
def judged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Judged:
    """judged(body, open): the outcome of a program, where the task leaves addresses open or does not."""

    def ask(body: str, open_: bool) -> Outcome:
        monkeypatch.setattr(odd_addresses, "left_open", lambda bench: open_)
        threads = torch.get_num_threads()
        session = Session("cpu", tmp_path / "state", tmp_path / "cache")
        job = {"task": wire.to_data(TASK), "device": "cpu", "candidate": wire.to_data(program(body))}
        more: dict[str, Any] = {"job": "judge", "level": "coarse", "verify": True, "admit": False}
        try:
            outcome: Outcome = wire.from_data(Outcome, session.judge({**job, **more}, lambda event: None)["outcome"])
        finally:
            session.close()
            torch.set_num_threads(threads)
        return outcome

    return ask


ODD = f"if x.data_ptr() % 16:\n    return x * float('nan')\n{PLAIN}"
ROWS = (
    "if x.data_ptr() % 16 or x.stride(-1) == 1 and x.stride(0) * x.element_size() % 16:\n    return x * float('nan')\n"
    f"{PLAIN}"
)
FAILS = f"if x.data_ptr() % 16:\n    raise ValueError('misaligned')\n{PLAIN}"


@pytest.mark.parametrize("body", [ODD, ROWS, FAILS])
def test_who_is_wrong_there_alone_is_granted_for_other_inputs(judged: Judged, body: str) -> None:
    """The proof says so, with what it was refused for, and the drop-in serves no such input."""
    outcome = judged(body, True)

    assert isinstance(outcome, Timed)
    assert any("multiples of 16 bytes" in said for said in outcome.conditions)
    assert any("outside the proven space: offset inputs" in note for note in outcome.proof.notes)
    assert by_vectors(outcome)


def test_who_is_right_everywhere_is_granted_for_all_inputs(judged: Judged) -> None:
    """Nothing is said of addresses."""
    outcome = judged(PLAIN, True)

    assert isinstance(outcome, Timed)
    assert not any("multiples of" in said for said in outcome.conditions)
    assert not by_vectors(outcome)


@pytest.mark.parametrize(
    ("body", "open_", "reason"),
    [
        (ODD, False, "offset inputs"),
        (f"x = x.as_strided(x.shape, x.stride(), 0)\n{PLAIN}", True, "offset inputs"),
        (f"if x.stride(-1) > 1:\n    return x * 2\n{ODD}", True, "inputs"),
    ],
)
def test_other_faults_are_none_of_addresses(judged: Judged, body: str, open_: bool, reason: str) -> None:
    """A contract that asks for any address; who begins at the start of the storage; who ignores steps as well."""
    outcome = judged(body, open_)

    assert isinstance(outcome, Rejected)
    assert reason in outcome.reason


@pytest.mark.parametrize("kind", [torch.float16, torch.float32, torch.float64, torch.int8])
def test_late_inputs_begin_where_vectors_do_but_not_where_their_storage_does(kind: torch.dtype) -> None:
    """Whatever the type."""
    made = layouts.lay_out(torch.ones(5, 3, dtype=kind), LATE)
    assert made.is_contiguous()
    assert made.storage_offset() > 0
    assert 0 == made.storage_offset() * made.element_size() % 16


def test_no_other_variant_is_moved() -> None:
    """Steps and values stay, and so does what is as given; rows that began between vectors no longer do."""
    kinds = ("contiguous", "strided", "gap0", "offset", "padded")
    given = [Variant(name=f"{how} inputs", required=True, layout=how) for how in kinds]
    moved = odd_addresses.moved(given)
    assert given[:3] == moved[:3]
    assert [LATE, WIDE] == [v.layout for v in moved[3:]]
    (rows, step), offset = layouts.layout_of((6, 48), WIDE)
    assert (64, 1, 0) == (rows, step, offset)


ATTENTION = """
import torch

class Model(torch.nn.Module):
    def forward(self, q, k, v):
        return torch.softmax((q @ k.mT * 0.125).float(), -1).to(q.dtype) @ v

def get_inputs():
    return [torch.randn(2, 4, 128, 64, dtype=torch.float16) for _ in range(3)]

def get_init_inputs():
    return []
"""
FUSED = """
import torch

class ModelNew(torch.nn.Module):
    def forward(self, q, k, v):
        return torch.nn.functional.scaled_dot_product_attention(q, k, v)
"""


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_torchs_own_attention_is_granted_on_a_gpu(tmp_path: Path) -> None:
    """In half precision it reads vectors wherever its inputs begin."""
    attention = Task(name="attention", form="kernelbench", reference=ATTENTION)
    sources = (("new.py", FUSED),)
    fused = Candidate(
        task=attention.digest(), language="torch", entry="new.py::ModelNew", sources=sources, proposer="test"
    )
    tmp_path.chmod(0o755)
    with LocalWorker("cuda:0", tmp_path / "state", tmp_path / "cache") as worker:
        job = {"job": "judge", "task": wire.to_data(attention), "candidate": wire.to_data(fused), "level": "precise"}
        found = worker.run({**job, "baselines": ["eager"], "admit": False})["outcome"]
    assert "Timed" == found["is"], found
