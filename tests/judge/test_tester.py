# SPDX-License-Identifier: Apache-2.0
"""Cases that a model wrote: only those the reference confirms are used, and nothing they show loosens anything."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from plain_tasks import task

from kernelwright import wire
from kernelwright.candidate import Candidate
from kernelwright.judge import tester
from kernelwright.judge.bench import Bench
from kernelwright.task import Contract
from kernelwright.trial import Outcome, Rejected, Timed
from kernelwright.workers import LocalWorker

SUM = task("x.sum(dim=-1)", "[torch.randn(8, 16)]")
GOOD = """import torch
def cases():
    yield "ones", [torch.ones(8, 16)]
    yield "of another shape", [torch.ones(8, 17)]
    yield "of another dtype", [torch.ones(8, 16, dtype=torch.float64)]
    yield "infinite sum", [torch.full((8, 16), 3e38)]
    yield "ramp", [torch.arange(128.).reshape(8, 16)]
"""


@pytest.fixture(scope="module")
def bench() -> Bench:
    """A bench of the sum, in this process."""
    return Bench(SUM, "cpu")


def test_only_cases_that_the_reference_confirms_are_used(bench: Bench) -> None:
    """Two of five: other shapes and dtypes are no inputs of this task, and an infinite sum tells nobody anything."""
    found = tester.confirmed(bench, GOOD)
    assert ["0: ones", "2: ramp"] == [case.name for case in found.cases]
    assert 3 == len(found.notes) and any("not finite" in note for note in found.notes)


def test_the_judge_says_which_cases_are_in_force(tmp_path: Path) -> None:
    """A job of its own: whoever wrote them hears it before a candidate is judged."""
    with LocalWorker("cpu", tmp_path / "judge", tmp_path / "built") as worker:
        found = worker.run({"job": "cases", "task": wire.to_data(SUM), "device": "cpu", "extra_cases": GOOD})
    assert (["0: ones", "2: ramp"], 3) == (found["used"], len(found["notes"]))


def test_a_wrong_answer_on_a_case_fails_with_the_case_shown(bench: Bench) -> None:
    """The result names the case, and the detail shows how its input looks."""
    case = tester.confirmed(bench, GOOD).cases[1]
    right = case.leaves[0].sum(dim=-1)
    state = bench.timed.instance.first_state
    assert case.check(state, [right], case.leaves).passed
    wrong = case.check(state, [right * 1.01], case.leaves)
    assert (False, True) == (wrong.passed, "ramp" in wrong.name)
    assert "input 0: float32 [8, 16], from 0 to 127; it begins 0, 1, 2, 3, 4, 5" in case.shown(wrong)


@pytest.mark.parametrize(
    ("source", "words"),
    [
        ("def cases():\n    raise ValueError('no idea')\n", "no idea"),
        ("import torch\n", "cases"),
        ("def cases(:\n", "SyntaxError|invalid|was never closed"),
        ("import os\ndef cases():\n    os._exit(0)\n", "wrote nothing"),
        ("x" * 300_000, "too long"),
    ],
)
def test_a_source_that_fails_makes_no_cases(bench: Bench, source: str, words: str) -> None:
    """Whatever the source does, there are no cases and a note that says why."""
    found = tester.confirmed(bench, source)
    assert () == found.cases
    assert re.search(words, found.notes[0])


def test_a_source_cannot_reach_the_files_of_the_judge(bench: Bench, tmp_path: Path) -> None:
    """It runs confined: a file outside its folder is neither read nor written."""
    secret = tmp_path / "secret"
    secret.write_text("7")
    source = f"""import torch
def cases():
    try:
        value = float(open({str(secret)!r}).read())
    except OSError:
        value = 1.0
    yield "value", [torch.full((8, 16), value)]
"""
    (case,) = tester.confirmed(bench, source).cases
    assert 1.0 == float(case.leaves[0][0, 0])


def test_an_oracle_that_fails_on_a_case_stays_in_force_for_the_contract(bench: Bench) -> None:
    """A case beyond what the reference can answer leaves the bench's own instance and checker untouched."""
    before = bench.timed.instance.without_double, list(bench.timed.checker.notes)
    tester.confirmed(bench, GOOD)
    assert before == (bench.timed.instance.without_double, list(bench.timed.checker.notes))


def test_random_references_take_no_cases() -> None:
    """There is nothing to compare on given inputs where outputs are drawn."""
    made = Bench(task("x + torch.rand_like(x)", "[torch.zeros(8, 16)]", contract=Contract(random=True)), "cpu")
    assert () == tester.confirmed(made, GOOD).cases


RELU = task("torch.relu(x)", "[torch.randn(64, 64)]", contract=Contract(scales=(1.0,), layouts=("contiguous",)))
SLIPS = "y = torch.relu(x)\n        return torch.where(x == 77.0, y + 1.0, y)"
"""Right wherever no element is 77, which random inputs never are."""
FOUND = "import torch\ndef cases():\n    yield 'sevens', [torch.full((64, 64), 77.0)]\n"
HARMLESS = "import torch\ndef cases():\n    yield 'ones', [torch.ones(64, 64)]\n"


def verdict(worker: LocalWorker, body: str, level: str = "coarse", **more: object) -> Outcome:
    """The outcome of a plain torch program with that body of forward."""
    text = f"import torch\nclass ModelNew(torch.nn.Module):\n    def forward(self, x):\n        {body}\n"
    candidate = Candidate(
        task=RELU.digest(), language="torch", entry="k.py::ModelNew", sources=(("k.py", text),), proposer="test"
    )
    job = {"job": "judge", "task": wire.to_data(RELU), "candidate": wire.to_data(candidate), "level": level}
    reply = worker.run(job | {"baselines": ["eager"], "seed": 5, "admit": False} | more)
    return wire.from_data(Outcome, reply["outcome"])  # type: ignore[arg-type]  # a union is no class


@pytest.mark.slow
def test_a_tester_rejects_what_random_inputs_let_pass_and_accepts_nothing(tmp_path: Path) -> None:
    """A slip at one value: timed without cases, rejected with the case that has it, the values in the detail.

    A program that fails the contract fails with harmless cases too, at the same stage and for the same reason; one
    that passes is proved to the same precision, with one case more."""
    with LocalWorker("cpu", tmp_path / "state", tmp_path / "cache") as worker:
        assert isinstance(verdict(worker, SLIPS), Timed)
        caught = verdict(worker, SLIPS, extra_cases=FOUND)
        assert isinstance(caught, Rejected)
        assert ("verify", True) == (caught.stage, "a case of the tester" in caught.reason and "sevens" in caught.reason)
        assert "from 77 to 77" in caught.detail
        wrong = "return torch.relu(x) * 1.01"
        assert verdict(worker, wrong).stage == verdict(worker, wrong, extra_cases=HARMLESS).stage == "smoke"
        plain, tested = (
            verdict(worker, "return torch.relu(x)"),
            verdict(worker, "return torch.relu(x)", extra_cases=HARMLESS),
        )
        assert isinstance(plain, Timed) and isinstance(tested, Timed)
        names = {case.name for case in tested.proof.cases} - {case.name for case in plain.proof.cases}
        assert ({"main: tester 0: ones"}, plain.proof.bits_lost) == (names, tested.proof.bits_lost)
