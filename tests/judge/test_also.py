# SPDX-License-Identifier: Apache-2.0
"""What is measured when asked: latency after idle gaps, cold start, peak memory; a lie on the way is caught."""

from __future__ import annotations

import random
import shutil
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from kernelwright import wire
from kernelwright.candidate import Candidate
from kernelwright.errors import BadCommand
from kernelwright.judge import also, checks, measure, race, spot_checks
from kernelwright.judge.also import idle
from kernelwright.judge.leash import ChildFailure
from kernelwright.judge.load import Strain
from kernelwright.task import Contract, Task
from kernelwright.testing import timed
from kernelwright.trial import CaseResult, Outcome, Rejected, Timed
from kernelwright.workers import LocalWorker

MIB = 1 << 20
TASK = Task(
    name="add one",
    form="kernelbench",
    reference="""
import torch
class Model(torch.nn.Module):
    def forward(self, x):
        return x + 1
def get_inputs():
    return [torch.randn(512, 512)]
def get_init_inputs():
    return []
""",
    contract=Contract(scales=(1.0,), layouts=("contiguous",)),
)
HEAD = "import torch\nclass ModelNew(torch.nn.Module):\n    def __init__(self):\n        super().__init__()\n"
FORWARD = "    def forward(self, x):\n"
HOARDER = HEAD + "        self.calls = 0\n        self.kept = None\n" + FORWARD + (
    "        big = torch.ones(48 << 18)\n        x = x + big[0]\n        del big\n        return x\n"
)  # fmt: skip
KEEPER = HEAD + "        self.kept = None\n" + FORWARD + (
    "        if self.kept is None:\n            self.kept = torch.ones(32 << 18)\n        return x + self.kept[0]\n"
)  # fmt: skip
CPP = 'extern "C" void run(const float* x, float* y, long n) { for (long i = 0; i < n; ++i) y[i] = x[i] + 1; }\n'
SHELL = HEAD.replace("import torch\n", "import ctypes\nimport torch\nfrom pathlib import Path\n") + FORWARD + (
    "        lib = ctypes.CDLL(str(Path(__file__).with_name('kernel.so')))\n        y = torch.empty_like(x)\n"
    "        lib.run(ctypes.c_void_p(x.data_ptr()), ctypes.c_void_p(y.data_ptr()), ctypes.c_long(x.numel()))\n"
    "        return y\n"
)  # fmt: skip


@pytest.fixture(scope="module")
def worker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalWorker]:
    """One judge for all verdicts of this file."""
    home = tmp_path_factory.mktemp("judge")
    with LocalWorker("cpu", home / "state", home / "cache") as made:
        yield made


def judged(worker: LocalWorker, *sources: tuple[str, str], also: tuple[str, ...]) -> Outcome:
    """The outcome of a candidate with what was asked for besides."""
    language = "cpp" if any(name.endswith(".cpp") for name, _ in sources) else "torch"
    candidate = Candidate(
        task=TASK.digest(), language=language, entry="new.py::ModelNew", sources=sources, proposer="test"
    )
    job: dict[str, Any] = {"job": "judge", "task": wire.to_data(TASK), "candidate": wire.to_data(candidate)}
    outcome = worker.run({**job, "level": "precise", "baselines": ["eager"], "also": list(also)})["outcome"]
    return wire.from_data(Outcome, outcome)  # type: ignore[arg-type,return-value]  # a union is no class


def numbers(outcome: Outcome, what: str) -> dict[str, float]:
    """What was measured under one name."""
    assert isinstance(outcome, Timed), outcome
    return {name.removeprefix(what + "."): float(value) for name, value in outcome.profile if name.startswith(what)}


@pytest.mark.slow  # over 40 s on 2 cores
def test_memory_is_what_a_call_needs_and_what_it_leaves(worker: LocalWorker) -> None:
    """48 MiB that are freed before the call returns are its peak, 32 MiB that it never frees are kept; eager has none.

    Resident memory after the call, or its results counted in, would give other numbers.
    """
    hoarder = numbers(judged(worker, ("new.py", HOARDER), also=("memory",)), "memory")
    keeper = numbers(judged(worker, ("new.py", KEEPER), also=("memory",)), "memory")
    assert hoarder["candidate.peak_bytes"] == pytest.approx(48 * MIB, abs=2 * MIB)
    assert keeper["candidate.kept_bytes"] == pytest.approx(32 * MIB, abs=2 * MIB)
    for found in (hoarder, keeper):
        assert found["eager.peak_bytes"] < 2 * MIB and found["eager.kept_bytes"] < 2 * MIB
    assert hoarder["candidate.kept_bytes"] < 2 * MIB and keeper["candidate.peak_bytes"] < 2 * MIB


@pytest.mark.slow  # 30 s on 2 cores
@pytest.mark.skipif(shutil.which("g++") is None, reason="needs g++")
def test_a_cold_start_has_its_parts_for_every_program(worker: LocalWorker) -> None:
    """Compiler, interpreter and first call add up; what was built before is built again."""
    sources = (("kernel.cpp", CPP), ("new.py", SHELL))
    found = numbers(judged(worker, *sources, also=("cold", "server")), "cold")
    for name in ("eager", "candidate"):
        parts = sum(found[f"{name}.{part}_s"] for part in ("build", "import", "first"))
        assert found[f"{name}.included_s"] == pytest.approx(parts, rel=1e-4)
        assert 0 < found[f"{name}.excluded_s"] < found[f"{name}.included_s"]
    assert found["candidate.build_s"] > 10 * found["eager.build_s"]  # g++ ran, though the judge has it built


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (ChildFailure("time", "killed by SIGSEGV"), "killed by SIGSEGV"),
        (checks.Wrong("time", "output 0 is off"), "output 0 is off"),
        (spot_checks.Mismatch(CaseResult(name="main", required=True, passed=False, detail="far", error_ratio=9.0,
                                         calls=1), [], None), "a call was wrong: main: far"),
    ],
    ids=lambda value: type(value).__name__,
)  # fmt: skip
def test_a_candidate_that_is_wrong_on_the_way_is_refused(
    monkeypatch: pytest.MonkeyPatch, error: Exception, reason: str
) -> None:
    """A proof from before does not outlive a wrong call, a crash or a wrong first result."""

    def fails(scene: object) -> list[tuple[str, str]]:
        raise error

    monkeypatch.setitem(also._TAKEN, "server", fails)
    outcome = also.attached(timed(50.0), ("server",), None)  # type: ignore[arg-type]  # nothing looks at the scene
    assert isinstance(outcome, Rejected) and ("time", reason) == (outcome.stage, outcome.reason)


def test_unknown_names_are_refused_before_anything_runs(worker: LocalWorker) -> None:
    """A misspelt wish is not silently left out."""
    with pytest.raises(BadCommand, match="latency"):
        judged(worker, ("new.py", HOARDER), also=("latency",))
    assert ("memory", "server") == also.wanted(["memory", "server", "memory"])


class Fake:
    """A program whose windows take what they are told; notes what happens to it."""

    device, pid = "cpu", 0

    def __init__(self, name: str, log: list[str], slow: int, answer: float = 2.0) -> None:
        self.name, self.log, self.slow, self.answer, self.calls = name, log, slow, answer, 0
        tensor = torch.zeros(4)
        spec = SimpleNamespace(seeds=())
        self.buffers: Any = SimpleNamespace(
            inputs=[[tensor]], outputs=[[torch.zeros(4)]], grads=[[]], seeds=[[]], plan=spec
        )
        self.buffers.answers = lambda index: self.buffers.outputs[index]

    def window(self, order: list[int], *, grad: bool = False, keep: bool = False) -> Any:
        """Empty windows take 10 us, calls 110 and every ``slow``-th 1010."""
        self.calls += bool(order)
        self.log.append(f"{self.name} {'call' if order else 'empty'}")
        if order:
            self.buffers.outputs[0][0].copy_(self.buffers.inputs[0][0] * self.answer)
        took = 10.0 if not order else 1010.0 if self.slow and self.calls % self.slow == 0 else 110.0
        return SimpleNamespace(
            call_us=took,
            deliver_us=1.0,
            deliver_cpu_us=1.0,
            strain=Strain(0.0, 0),
            self_us=(took,),
            aliases=(),
            whereabouts=None,
        )


def served(*fakes: Fake, gaps: list[float]) -> list[measure.Lane]:
    """The lanes of these programs after all rounds."""
    racers = []
    for fake in fakes:
        lane = measure.Lane(fake.name, fake)
        suspect = spot_checks.Suspect(fake.buffers, _check, fake is fakes[-1])
        racers.append(race.Racer(fake.name, fake, suspect, lane))  # type: ignore[arg-type]  # a double
    checks = spot_checks.SpotChecks(
        suspects=[racer.suspect for racer in racers], budget=2, thorough=True, random_outputs=False,
        mutates=frozenset(), dice=random.Random(3), tolerated=[0.0] * 3,
    )  # fmt: skip
    draw = lambda: [torch.randn(4)]  # noqa: E731
    idle.serve(racers, draw, checks, None, random.Random(5), grad=False, rest=gaps.append)
    return [racer.lane for racer in racers]


def _check(leaves: Any, state: Any, outputs: Any, inputs: Any) -> Any:
    right = torch.equal(outputs[0], leaves[0] * 2.0)
    return SimpleNamespace(passed=right, name="main", detail="" if right else "wrong")


def test_latency_is_the_call_after_a_gap_less_an_empty_window_after_a_gap() -> None:
    """Median and 99th percentile of windows that take 100 us beyond the empty ones, and one in fifty 1000 us."""
    log: list[str] = []
    gaps: list[float] = []
    lanes = served(Fake("eager", log, slow=0), Fake("candidate", log, slow=50), gaps=gaps)
    found = dict(idle.figures(lanes))
    assert ("100", "100", "200") == tuple(found[f"server.eager.{n}"] for n in ("median_us", "p99_us", "calls"))
    assert ("100", "1000") == tuple(found[f"server.candidate.{n}"] for n in ("median_us", "p99_us"))
    assert len(gaps) == len(log) and len(set(gaps)) == len(gaps)  # one before every window, never the same
    assert 0.5 * idle.MEAN_GAP_S < sum(gaps) / len(gaps) < 2 * idle.MEAN_GAP_S
    firsts = {log[i].split()[0] for i in range(0, len(log), 4)}
    assert {"eager", "candidate"} == firsts  # the order is random


def test_every_call_of_server_mode_is_compared() -> None:
    """A program that is wrong in each call is caught, though its first was right; a baseline that dies is named."""
    wrong = Fake("candidate", [], slow=0, answer=2.5)
    with pytest.raises(spot_checks.Mismatch):
        served(Fake("eager", [], slow=0), wrong, gaps=[])
    dead = Fake("compile", [], slow=0)
    dead.window = _dies  # type: ignore[method-assign]
    with pytest.raises(race.Lost, match="compile"):
        served(Fake("eager", [], slow=0), dead, Fake("candidate", [], slow=0), gaps=[])


def _dies(order: list[int], *, grad: bool = False) -> Any:
    raise ChildFailure("time", "killed by SIGSEGV")
