# SPDX-License-Identifier: Apache-2.0
"""Programs that answer otherwise under another CUDA stream than the default one."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from kernelwright import wire
from kernelwright.judge import other_stream, race
from kernelwright.judge.leash import ChildFailure
from kernelwright.load import load_candidate, load_task
from kernelwright.workers.local import LocalWorker

REFERENCE = """import torch
class Model(torch.nn.Module):
    def forward(self, x): return x * 2 + 1
def get_inputs(): return [torch.randn(1 << 20)]
def get_init_inputs(): return []
"""
KERNEL = """__global__ void twice(float* out, const float* x, long n) {
    for (long i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) out[i] = x[i] * 2.f + 1.f;
}
extern "C" void run(float* out, const float* x, long n, void* stream) {
    twice<<<1024, 256, 0, STREAM>>>(out, x, n);
}
"""


def asked(
    monkeypatch: pytest.MonkeyPatch, *, passes: Any = (True, True), dies: bool = False, **other: Any
) -> list[Any]:
    """What is said of a program, after what was done with it."""
    done: list[Any] = []
    monkeypatch.setattr(race, "fill", lambda buffers, index, leaves: done.append(("fill", index, leaves)))

    def checked(order: list[int], *, grad: bool, hidden: bool) -> None:
        done.append(("checked", order, grad, hidden))
        if dies:
            raise ChildFailure("time", "an illegal access")

    def check(variant: str, leaves: Any, state: Any, answers: Any, inputs: Any) -> Any:
        done.append(("check", leaves, state, answers))
        return SimpleNamespace(passed=passes[answers], detail="7 for 8")

    checker = SimpleNamespace(recall=lambda truth: done.append(("recall", truth)), check=check)
    point = SimpleNamespace(instance=SimpleNamespace(first_state=["w"]), checker=checker, as_given="as given")
    buffers = SimpleNamespace(answers=lambda index: index, inputs=["x", "y"], plan=SimpleNamespace(sets=2))
    leash = SimpleNamespace(ask=lambda request, stage: done.append(request["do"]))
    program: Any = SimpleNamespace(buffers=buffers, leash=leash, stage="time", set_state=done.append, checked=checked)
    contract = SimpleNamespace(random=other.get("random", False), gradients=True)
    bench = SimpleNamespace(device=torch.device(other.get("device", "cuda:0")), contract=contract)
    checks: Any = SimpleNamespace(points=[point], bench=bench, first=other.get("first", ("leaves", "truth")))
    return [other_stream.answers_otherwise(checks, program), done]


def test_calls_on_another_stream_are_compared_with_a_truth_that_is_known(monkeypatch: pytest.MonkeyPatch) -> None:
    """With the first weights again, and inputs that only this stream shows."""
    said, done = asked(monkeypatch)
    assert said == []
    assert done == [
        ["w"], "stream", ("fill", 0, "leaves"), ("fill", 1, "leaves"), ("checked", [0, 1], True, True),
        ("recall", "truth"), ("check", "leaves", ["w"], 0), ("check", "leaves", ["w"], 1),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("how", "words"), [({"passes": (True, False)}, "7 for 8"), ({"dies": True}, "an illegal access")]
)
def test_what_is_wrong_there_is_a_condition_and_no_refusal(
    how: dict[str, Any], words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Right for whoever uses no other stream."""
    assert asked(monkeypatch, **how)[0] == [f"{other_stream.WORDS} ({words})"]


@pytest.mark.parametrize("how", [{"random": True}, {"device": "cpu"}, {"first": None}])
def test_where_nothing_can_be_said_nothing_is_asked(how: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """Of random results, on a CPU, and without a call whose truth is known."""
    assert asked(monkeypatch, passes=(False, False), **how) == [[], []]


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_a_kernel_on_the_default_stream_is_named_in_its_proof(tmp_path: Path) -> None:
    """And its twin on the current one is not."""
    tmp_path.chmod(0o755)
    (tmp_path / "task.py").write_text(REFERENCE)
    task = load_task(tmp_path / "task.py", "cuda:0")
    said = []
    with LocalWorker("cuda:0", tmp_path / "state", tmp_path / "cache") as worker:
        for stream in ("0", "(cudaStream_t)stream"):
            (tmp_path / "new.cu").write_text(KERNEL.replace("STREAM", stream))
            candidate = load_candidate(tmp_path / "new.cu", task)
            job = {"job": "judge", "task": wire.to_data(task), "candidate": wire.to_data(candidate), "level": "precise"}
            found = worker.run({**job, "device": "cuda:0", "baselines": ["eager"], "admit": False})["outcome"]
            assert "Timed" == found["is"], found
            said.append([words for words in found["conditions"] if words.startswith(other_stream.WORDS)])
    assert [1, 0] == list(map(len, said)), said
