# SPDX-License-Identifier: Apache-2.0
"""Real candidates through a real judge on the CPU: honest ones are timed, each kind of wrong one is refused."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kernelwright import wire
from kernelwright.candidate import Candidate
from kernelwright.errors import (
    BadCommand,
    CandidateError,
    KernelwrightError,
    NoSuchDevice,
    ReferenceFails,
    TaskError,
    from_json,
)
from kernelwright.load import load_task
from kernelwright.task import Case, Contract, Task
from kernelwright.trial import Outcome, Rejected, Timed
from kernelwright.workers import LocalWorker

REFERENCE = """
import torch
from torch import nn

class Model(nn.Module):
    def __init__(self, width=64):
        super().__init__()
        self.weight = nn.Parameter(torch.rand(width) + 0.5)

    def forward(self, x):
        return torch.relu(x) * self.weight

def get_inputs(rows=32, width=64):
    return [torch.randn(rows, width)]

def get_init_inputs(width=64):
    return [width]
"""

TASK = Task(
    name="scaled relu",
    form="kernelbench",
    reference=REFERENCE,
    cases=(Case(name="main", axes=(("rows", 32), ("width", 64)), timed=True),),
    contract=Contract(scales=(1.0, 1e3), layouts=("contiguous", "strided")),
)

CPP = """
extern "C" void run(const float* x, const float* w, float* out, long rows, long width) {
  for (long r = 0; r < rows; r++)
    for (long i = 0; i < width; i++) out[r * width + i] = (x[r * width + i] > 0 ? x[r * width + i] : 0) * w[i];
}
"""

HEAD = """
import ctypes
import torch
from pathlib import Path
from torch import nn

class ModelNew(nn.Module):
    def __init__(self, width=64):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))
        self.calls = 0
        self.kept = None

    def forward(self, x):
        self.calls += 1
"""

LIBRARY = """
        x = x.contiguous()
        out = torch.empty_like(x)
        library = ctypes.CDLL(str(Path(__file__).with_name("kernel.so")))
        pointers = [ctypes.c_void_p(t.data_ptr()) for t in (x, self.weight, out)]
        library.run(*pointers, ctypes.c_long(x.numel() // x.shape[-1]), ctypes.c_long(x.shape[-1]))
        return out
"""

HONEST = "        return torch.relu(x) * self.weight\n"


def torch_candidate(body: str) -> Candidate:
    """A candidate in plain torch whose forward ends with ``body``."""
    sources = (("optimized.py", HEAD + body),)
    return Candidate(
        task=TASK.digest(), language="torch", entry="optimized.py::ModelNew", sources=sources, proposer="test"
    )


def cpp_candidate(cpp: str) -> Candidate:
    """A candidate whose work is done in C++."""
    sources = (("kernel.cpp", cpp), ("optimized.py", HEAD + LIBRARY))
    return Candidate(
        task=TASK.digest(), language="cpp", entry="optimized.py::ModelNew", sources=sources, proposer="test"
    )


@pytest.fixture(scope="module")
def worker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalWorker]:
    """One judge for all verdicts of this file."""
    home = tmp_path_factory.mktemp("judge")
    with LocalWorker("cpu", home / "state", home / "cache") as made:
        yield made


def judged(worker: LocalWorker, candidate: Candidate, level: str, **more: Any) -> Outcome | None:
    """The outcome of one candidate."""
    job = {"job": "judge", "task": wire.to_data(TASK), "candidate": wire.to_data(candidate), "level": level, **more}
    outcome = worker.run(job)["outcome"]
    return None if outcome is None else wire.from_data(Outcome, outcome)  # type: ignore[arg-type]


def rejected(worker: LocalWorker, candidate: Candidate, level: str, **more: Any) -> Rejected:
    """The rejection of a candidate that must be rejected."""
    outcome = judged(worker, candidate, level, **more)
    assert isinstance(outcome, Rejected), outcome
    return outcome


def test_a_right_program_passes_the_smoke_test_without_a_number(worker: LocalWorker) -> None:
    """Smoke never says how fast anything is."""
    assert judged(worker, cpp_candidate(CPP), "smoke") is None


def test_a_coarse_verdict_is_timed_against_eager_alone(worker: LocalWorker) -> None:
    """Times, one baseline, and a proof of the calls that were checked."""
    outcome = judged(worker, cpp_candidate(CPP), "coarse", baselines=["eager", "compile"])
    assert isinstance(outcome, Timed)
    assert ["eager"] == [baseline.name for baseline in outcome.baselines]
    assert ["main: as given"] == [case.name for case in outcome.proof.cases]
    assert "level coarse" in outcome.conditions
    assert 1 == outcome.repeats


def test_hidden_cases_come_before_a_coarse_time_where_that_is_asked_for(worker: LocalWorker) -> None:
    """Right on inputs as they are given and wrong on large ones: timed by default, refused before any time if asked."""
    wrong = CPP.replace("* w[i]", "* (x[r * width + i] > 100 ? 1 : w[i])")
    assert isinstance(judged(worker, cpp_candidate(wrong), "coarse"), Timed)
    found = rejected(worker, cpp_candidate(wrong), "coarse", verify=True)
    assert ("verify", True) == (found.stage, "scale 1000" in found.reason)
    outcome = judged(worker, cpp_candidate(CPP), "coarse", verify=True)
    assert isinstance(outcome, Timed) and 1 == outcome.repeats
    assert "main: mixed rows" in {case.name for case in outcome.proof.cases}


@pytest.fixture(scope="module")
def proven(worker: LocalWorker) -> Timed:
    """A full proof under a given seed."""
    outcome = judged(worker, cpp_candidate(CPP), "precise", baselines=["eager"], seed=7)
    assert isinstance(outcome, Timed), outcome
    return outcome


def test_a_precise_verdict_proves_every_case_in_two_processes(proven: Timed) -> None:
    """Other weights, scales, layouts and hidden shapes are in the proof, and two fresh processes were timed."""
    outcome = proven
    names = {case.name for case in outcome.proof.cases}
    assert {"main: as given", "main: fresh weights", "main: scale 1000", "main: strided inputs"} <= names
    assert any(name.startswith("hidden:rows=one") for name in names)
    assert 2 == outcome.repeats
    assert len(outcome.timing.samples_us) == len(outcome.baselines[0].timing.samples_us) >= 8
    assert outcome.speedup_low <= outcome.speedup <= outcome.speedup_high
    assert outcome.proof.bits_lost <= 1.0


def test_equal_seeds_prove_the_same_cases(worker: LocalWorker, proven: Timed) -> None:
    """Everything drawn follows from the seed: the errors of two judgements agree to the last bit."""
    again = judged(worker, cpp_candidate(CPP), "precise", baselines=["eager"], seed=7)
    assert isinstance(again, Timed)
    first, second = ({c.name: c.error_ratio for c in o.proof.cases if c.calls == 1} for o in (proven, again))
    assert 7 == again.proof.seed
    assert first == second


@pytest.mark.parametrize(
    ("body", "stage", "words"),
    [
        ("        return torch.zeros_like(x)\n", "smoke", "output 0"),
        ("        return (torch.relu(x) * self.weight).half()\n", "smoke", "wrong structure"),
        ("        return (torch.relu(x) * self.weight)[:-1]\n", "smoke", "wrong structure"),
        ("        return [torch.relu(x) * self.weight]\n", "smoke", "wrong structure"),
        ("        x.relu_()\n        return x * self.weight\n", "smoke", "input 0 was changed"),
        ("        raise ValueError('no')\n", "smoke", "ValueError: no"),
        ("        import os\n        os._exit(3)\n", "smoke", "exited with status 3"),
        ("        return torch.empty_like(x)\n", "smoke", "output 0"),
    ],
)  # fmt: skip
def test_a_wrong_program_is_refused_at_its_first_call(worker: LocalWorker, body: str, stage: str, words: str) -> None:
    """Wrong values, types, shapes and trees, changed inputs, exceptions and exits each name themselves."""
    outcome = rejected(worker, torch_candidate(body), "coarse")
    assert stage == outcome.stage
    assert words in outcome.reason


def test_weights_folded_ahead_of_time_are_refused(worker: LocalWorker) -> None:
    """A product kept from the first weights is stale once they change."""
    body = (
        "        if self.kept is None:\n            self.kept = self.weight.detach().clone()\n"
        "        return torch.relu(x) * self.kept\n"
    )
    outcome = rejected(worker, torch_candidate(body), "precise", baselines=["eager"])
    assert "fresh weights" in outcome.reason


def test_a_program_that_is_right_only_at_first_is_refused(worker: LocalWorker) -> None:
    """Right in the checks that come first, wrong in the timed calls: timed calls are checked calls. A coarse race on a
    busy machine has some 100 calls in all."""
    body = (
        "        if self.calls > 40:\n            return torch.relu(x) * self.weight * (1 + 1e-3)\n"
        "        return torch.relu(x) * self.weight\n"
    )
    outcome = rejected(worker, torch_candidate(body), "coarse")
    assert "time" == outcome.stage


def test_a_remembered_answer_is_refused(worker: LocalWorker) -> None:
    """Every call has fresh values, so the first answer is wrong for the second."""
    body = (
        "        if self.kept is None:\n            self.kept = torch.relu(x) * self.weight\n"
        "        return self.kept.clone()\n"
    )
    assert "time" == rejected(worker, torch_candidate(body), "coarse").stage


def test_a_returned_input_is_refused(worker: LocalWorker) -> None:
    """An output may share storage with an input only where the reference's does."""
    body = "        out = torch.relu(x) * self.weight\n        x.copy_(out)\n        return x\n"
    outcome = rejected(worker, torch_candidate(body), "smoke")
    assert "shares storage with input 0" in outcome.reason


def test_a_hanging_program_is_ended(worker: LocalWorker) -> None:
    """It costs some seconds, not the run, and not fewer than a slow machine may need."""
    outcome = rejected(
        worker, torch_candidate("        while True:\n            pass\n"), "smoke", patience=1.0, hanging=1.0
    )
    assert outcome.reason.startswith("no answer within ")


def test_a_crashing_kernel_is_named(worker: LocalWorker) -> None:
    """A write to address zero in C++."""
    cpp = CPP.replace("for (long r = 0;", "*(volatile int*)0 = 1; for (long r = 0;")
    assert "SIGSEGV" in rejected(worker, cpp_candidate(cpp), "smoke").reason


def test_an_error_names_the_candidate_s_files_and_no_folder(worker: LocalWorker) -> None:
    """A library under another name than the one loaded: the reason goes into prompts, and the folder is nobody's."""
    made = cpp_candidate(CPP)
    other = tuple((name.replace("kernel.cpp", "other.cpp"), text) for name, text in made.sources)
    outcome = rejected(worker, dataclasses.replace(made, sources=other), "smoke")
    assert "OSError: kernel.so: cannot open" in outcome.reason
    assert 'File "optimized.py", line' in outcome.detail


def test_writing_past_the_end_is_refused(worker: LocalWorker) -> None:
    """Guard bytes around every buffer the candidate is handed."""
    cpp = CPP.replace("for (long r = 0;", "((float*)x)[rows * width + 3] = 1.0f; for (long r = 0;", 1)
    outcome = rejected(worker, cpp_candidate(cpp), "coarse")
    assert "outside the memory" in outcome.reason


def test_a_source_that_does_not_compile_is_refused(worker: LocalWorker) -> None:
    """The compiler's words are the evidence."""
    outcome = rejected(worker, cpp_candidate("nonsense"), "coarse")
    assert "build" == outcome.stage
    assert "error" in outcome.detail


def test_implausible_times_are_refused(worker: LocalWorker) -> None:
    """Nothing is faster than the bound that the caller's machine facts give; on a CPU that others use there is none."""
    outcome = judged(worker, cpp_candidate(CPP), "coarse", bound_us=1e9, limiter="memory")
    if isinstance(outcome, Timed):
        assert outcome.bound_us is None
        assert any("while others use it" in words for words in outcome.conditions)
    else:
        assert isinstance(outcome, Rejected) and "integrity" == outcome.stage


def test_the_bound_and_its_fraction_are_reported(worker: LocalWorker) -> None:
    """A bound below the time is quoted with the share reached."""
    outcome = judged(worker, cpp_candidate(CPP), "coarse", bound_us=1e-3, limiter="memory")
    assert isinstance(outcome, Timed)
    assert (1e-3, "memory") == (outcome.bound_us, outcome.limiter)
    assert outcome.bound_fraction == pytest.approx(1e-3 / outcome.timing.median_us)


def test_describe_names_the_tensors(worker: LocalWorker) -> None:
    """Shapes and dtypes of inputs, outputs and weights."""
    facts = worker.run({"job": "describe", "task": wire.to_data(TASK)})
    assert [32, 64] == facts["inputs"][0]["shape"]
    assert [{"name": "weight", "shape": [64], "dtype": "float32"}] == facts["parameters"]
    assert facts["eager_us"] > 0


def test_admission_lists_rejected_decoys(worker: LocalWorker) -> None:
    """The task is admitted because zeros and its kin are not."""
    reply = worker.run({"job": "admit", "task": wire.to_data(TASK)})
    assert reply["admitted"]
    assert "zeros" in [name for name, _ in reply["decoys"]]


def test_builds_say_nothing_about_correctness(worker: LocalWorker) -> None:
    """A build job compiles, and runs nothing."""
    wrong = CPP.replace("> 0", "< 0")
    assert worker.run({"job": "build", "candidate": wire.to_data(cpp_candidate(wrong))})["outcome"] is None


def test_modules_beside_a_reference_are_there_for_programs_and_their_folder_is_not(
    worker: LocalWorker, tmp_path: Path
) -> None:
    """Baselines embed the reference, so they import them; cases and decoys are for nobody to read."""
    (tmp_path / "task.toml").write_text("")
    (tmp_path / "kw_gate.py").write_text("import torch\n\n\ndef gate(x):\n    return torch.relu(x)\n")
    (tmp_path / "reference.py").write_text(REFERENCE.replace("torch.relu", "kw_gate.gate") + "\nimport kw_gate\n")
    found = load_task(tmp_path)
    task = dataclasses.replace(TASK, reference=found.reference, beside=found.beside, imports=found.imports)
    text = HEAD.replace(
        "class", f"import os\nfrom kw_gate import gate\nHID = not os.path.exists({str(tmp_path)!r})\nclass"
    )
    text += "        assert HID\n" + HONEST.replace("torch.relu", "gate")
    made = dataclasses.replace(torch_candidate(""), task=task.digest(), sources=(("optimized.py", text),))
    outcome = judged(worker, made, "coarse", task=wire.to_data(task))
    assert isinstance(outcome, Timed), outcome


@pytest.mark.parametrize(
    ("job", "error"),
    [
        ({"job": "judge", "level": "exact"}, BadCommand),
        ({"job": "judge", "candidate": {"is": "Candidate"}}, CandidateError),
        ({"job": "describe", "task": {"is": "Task"}}, TaskError),
        ({"job": "machine", "device": "cuda:99"}, NoSuchDevice),
    ],
)
def test_malformed_jobs_are_the_callers_error(
    worker: LocalWorker, job: dict[str, Any], error: type[KernelwrightError]
) -> None:
    """Each comes back as its own class."""
    given = {"task": wire.to_data(TASK), "candidate": wire.to_data(cpp_candidate(CPP)), **job}
    with pytest.raises(error):
        worker.run(given)


def test_references_that_fail_are_errors_not_verdicts(worker: LocalWorker) -> None:
    """A reference without Model is the user's to mend."""
    broken = Task(name="broken", form="kernelbench", reference="x = 1\n")
    with pytest.raises(TaskError):
        worker.run({"job": "describe", "task": wire.to_data(broken)})


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("print('noise ' * 10**6)", "endless output"),
        ("open('FOLDER/left', 'w').write('x')", "Error: [Errno"),
    ],
)
def test_a_reference_that_cannot_run_confined_is_the_users_to_mend(
    worker: LocalWorker, tmp_path: Path, line: str, words: str
) -> None:
    """It runs in the judge, and not where candidates do: no fault of the judge's, and the message names what it was."""
    line = line.replace("FOLDER", str(tmp_path))
    text = REFERENCE.replace("        return torch.relu", f"        {line}\n        return torch.relu")
    loud = dataclasses.replace(TASK, reference=text)
    candidate = dataclasses.replace(cpp_candidate(CPP), task=loud.digest())
    with pytest.raises(ReferenceFails) as caught:
        worker.run({"job": "judge", "task": wire.to_data(loud), "candidate": wire.to_data(candidate), "level": "smoke"})
    assert words in caught.value.got
    assert caught.value.what_next


def test_verdicts_survive_json(worker: LocalWorker, tmp_path: Path) -> None:
    """A Timed outcome is the same after a trip through text."""
    outcome = judged(worker, cpp_candidate(CPP), "coarse")
    assert outcome == wire.from_data(Outcome, json.loads(wire.dumps(outcome)))  # type: ignore[arg-type]
    assert isinstance(from_json(BadCommand("x").to_json()), BadCommand)
