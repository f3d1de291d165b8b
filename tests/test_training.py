# SPDX-License-Identifier: Apache-2.0
"""Training data holds only what was proved; the environment pays what the judge says."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from kernelwright import wire
from kernelwright.errors import NoSuchRun, RunFolderError
from kernelwright.ledger import open_ledger
from kernelwright.llm import Recorder, Reply
from kernelwright.proposers.agent import candidate_from
from kernelwright.task import Task
from kernelwright.training import Curation, Environment, Reward, export_data
from kernelwright.trial import Outcome, Rejected, Timed, Timing, Trial, Verified

TASK = Task(name="relu", form="kernelbench", reference="class Model: pass")


def timed(median_us: float, low: float) -> Timed:
    """A Timed with this median (interval +-1 %) and this lower end of the speedup; its proof is made up."""
    proof = Verified(  # the one place outside the judge that makes one: no claim is drawn from it
        cases=(), outputs=1, checked_calls=1, error_ratio=1.0, bits_lost=0.0, oracle="float64", deterministic=True,
        seed=0, sandbox="", notes=(),
    )  # fmt: skip
    timing = Timing(samples_us=(median_us,), low_us=0.99 * median_us, high_us=1.01 * median_us)
    return Timed(
        proof=proof, timing=timing, baselines=(), best_baseline="eager", speedup=low * 1.01, speedup_low=low,
        speedup_high=low * 1.02, bound_us=None, bound_fraction=None, limiter="memory", conditions=(), repeats=2,
        profile=(),
    )  # fmt: skip


def reply(speed: str, reasoning: str = "short") -> str:
    """A reply whose code differs by its body, not by a number."""
    return (
        f"{reasoning}\n```cpp kernel.cpp\nint own;\n```\n"
        f"```python kernel.py\nimport ctypes\nlib = ctypes.CDLL('./kernel.so')\nclass ModelNew:\n    kind = '{speed}'\n"
        "    def forward(self, x):\n        lib.f(x.data_ptr())\n        return x\n```"
    )


def a_run(path: Path, *rows: tuple[str, Outcome, str]) -> Path:
    """A run folder with these (reply, outcome, level)."""
    path.mkdir()
    (path / "run.json").write_text(json.dumps({"task": wire.to_data(TASK)}))
    ledger, recorder = open_ledger(path / "ledger.sqlite"), Recorder(path / "llm.jsonl")
    for text, outcome, level in rows:
        said = Reply(text=text, model="m", input_tokens=1, output_tokens=1, usd=None, finish="stop")
        recorder.write({"request": "r", "role": "coder.new", "messages": [{"role": "user", "text": "faster"}],
                        "reply": wire.to_data(said)})  # fmt: skip
        candidate = candidate_from(text, task=TASK.digest(), entry="ModelNew", proposer="agent:coder_new")
        ledger.record(Trial(candidate=candidate, outcome=outcome, level=level, machine="f", versions=(), seconds=1.0,
                            started_at=0.0))  # fmt: skip
    ledger.close()
    return path


def rows(path: Path) -> list[dict[str, Any]]:
    """The JSON Lines of a file."""
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_thoughts_beside_the_reply_are_its_reasoning(tmp_path: Path) -> None:
    """A model that reasons in a field of its own teaches that too."""
    run = a_run(tmp_path / "run", (reply("fast"), timed(50, 2.0), "precise"))
    (entry,) = rows(run / "llm.jsonl")
    entry["reply"]["thoughts"] = "rows fit the cache"
    (run / "llm.jsonl").write_text(json.dumps(entry) + "\n")
    export_data([run], tmp_path / "out")
    assert "rows fit the cache\n\nshort" == rows(tmp_path / "out" / "supervised.jsonl")[0]["reasoning"]


def test_only_proved_wins_are_exported_shortest_reasoning_first(tmp_path: Path) -> None:
    """Of a precise win, its wordier twin, a coarse win, a precise loss and a rejection, one record remains."""
    bad = Rejected(stage="verify", reason="wrong", detail="")
    run = a_run(
        tmp_path / "run",
        (reply("fast", "a long story " * 20), timed(50, 2.0), "precise"),
        (reply("fast"), timed(50, 2.0), "precise"),
        (reply("untested"), timed(10, 9.0), "coarse"),
        (reply("slow"), timed(200, 0.5), "precise"),
        (reply("wrong"), bad, "precise"),
    )
    counts = export_data([run], tmp_path / "out")
    (kept,) = rows(tmp_path / "out" / "supervised.jsonl")
    assert ("short", "Timed", 1) == (kept["reasoning"], kept["proof"]["is"], counts["supervised"])
    assert "one record" not in (tmp_path / "out" / "DATA_CARD.md").read_text()


def test_programs_that_differ_by_a_directive_are_two(tmp_path: Path) -> None:
    """Of two with another comment one is kept; `#pragma` in a C++ file, and in a string of Python's, is no comment."""
    changes = [("", ""), ("int own;", "int own;\n// own"), ("int own;", "int own;\n#pragma omp simd"),
               ("int own;", "int own;\n#pragma omp for"), ("import ctypes", 'S = """\n#define N 1\n"""\nimport ctypes'),
               ("import ctypes", 'S = """\n#define M 1\n"""\nimport ctypes')]  # fmt: skip
    made = [
        (reply("fast").replace(old, new) if old else reply("fast"), timed(50, 2.0), "precise") for old, new in changes
    ]
    run = a_run(tmp_path / "run", *made)
    assert 5 == export_data([run], tmp_path / "out")["supervised"]


def test_preferences_need_disjoint_intervals_or_a_rejection(tmp_path: Path) -> None:
    """50 us beats 100 us and the rejected one; 50 and 50.5 us are not told apart."""
    bad = Rejected(stage="verify", reason="wrong", detail="")
    run = a_run(
        tmp_path / "run",
        (reply("a"), timed(50, 2.0), "precise"), (reply("b"), timed(50.5, 2.0), "precise"),
        (reply("c"), timed(100, 1.0), "precise"), (reply("d"), bad, "precise"),
    )  # fmt: skip
    export_data([run], tmp_path / "out", Curation())
    names = {
        tuple(row[side][0]["content"].split("kind = '")[1][0] for side in ("chosen", "rejected"))
        for row in rows(tmp_path / "out" / "preference.jsonl")
    }
    assert {("a", "c"), ("b", "c"), ("a", "d"), ("b", "d"), ("c", "d")} == names
    first = rows(tmp_path / "out" / "preference.jsonl")[0]
    assert ("both", "assistant", {"role": "user", "content": "faster"}) == (
        first["prompt_of"], first["chosen"][0]["role"], first["prompt"][0]
    )  # fmt: skip


def test_a_folder_that_is_no_run_is_named(tmp_path: Path) -> None:
    """A clear error instead of an empty export."""
    with pytest.raises(NoSuchRun, match=str(tmp_path)):
        export_data([tmp_path], tmp_path / "out")


class OneVerdict:
    """A worker that gives the same outcome to everything."""

    def __init__(self, outcome: Outcome) -> None:
        self.outcome, self.jobs = outcome, []

    def run(self, job: dict[str, Any], on_event: object = None) -> dict[str, Any]:
        """The verdict."""
        self.jobs.append(job)
        return {"outcome": wire.to_data(self.outcome)}


def test_rewards_rise_with_how_far_a_candidate_got() -> None:
    """Malformed < not built < wrong < correct and slow < as fast < twice as fast; dishonesty is worst of the judged."""
    reward = Reward()
    order = [None, Rejected(stage="build", reason="", detail=""), Rejected(stage="smoke", reason="", detail="")]
    order += [Rejected(stage="verify", reason="", detail=""), timed(1, 0.5), timed(1, 1.0), timed(1, 2.0)]
    paid = [reward.of(outcome) for outcome in order]
    assert sorted(paid) == paid
    assert len(set(paid)) == len(paid)
    assert reward.of(Rejected(stage="integrity", reason="", detail="")) == min(paid)
    assert pytest.approx(1.0) == reward.of(timed(1, 2.0))


def test_an_episode_ends_with_a_win_or_with_the_last_turn() -> None:
    """A loss goes on to the next turn with the evidence in the observation; a win terminates."""
    env = Environment(TASK, OneVerdict(Rejected(stage="verify", reason="off by one", detail="row 3")), turns=2)  # type: ignore[arg-type]
    first, _ = env.reset(seed=1)
    seen, paid, done, cut, _ = env.step(reply("x"))
    assert (2, 4, False, False) == (len(first), len(seen), done, cut)
    assert "off by one" in seen[-1]["content"]
    assert (False, True) == env.step("no code here")[2:4]
    env = Environment(TASK, OneVerdict(timed(1, 2.0)), rubric=lambda *_: 0.5, reward=Reward(rubric_weight=0.2))  # type: ignore[arg-type]
    env.reset()
    _, paid, done, _, info = env.step(reply("x"))
    assert (True, 0.5) == (done, info["rubric"])
    assert pytest.approx(info["rule_reward"] + 0.1) == paid


def test_of_a_traceback_a_policy_sees_its_own_frames() -> None:
    """Neither the runner's nor the folders of this machine; an error that the reason says is not said twice."""
    trace = (
        'Traceback (most recent call last):\n  File "/here/runner.py", line 70, in serve\n    call()\n'
        '  File "/built/a1/kernel.py", line 3, in forward\n    y.oops()\nAttributeError: oops'
    )
    for detail, shown in (
        (trace, 'File "kernel.py", line 3, in forward\n    y.oops()'),
        ("AttributeError: oops", "oops"),
    ):
        fault = Rejected(stage="smoke", reason="raised AttributeError: oops", detail=detail)
        env = Environment(TASK, OneVerdict(fault))  # type: ignore[arg-type]
        env.reset()
        heard = env.step(reply("x").replace("```python\n", "```python kernel.py\n"))[0][-1]["content"]
        assert heard.endswith(shown) and "runner.py" not in heard and 1 == heard.count("AttributeError: oops")


def test_a_reply_without_code_never_reaches_the_judge() -> None:
    """Malformed replies cost no device time."""
    worker = OneVerdict(timed(1, 2.0))
    env = Environment(TASK, worker)  # type: ignore[arg-type]
    env.reset()
    assert -1.0 == env.step("prose")[1]
    assert [] == worker.jobs


def test_programs_that_answered_other_prompts_are_paired_under_the_task(tmp_path: Path) -> None:
    """An improvement and a first program: the pair says that its prompt is the task's, and whose it is."""
    run = a_run(tmp_path / "run", (reply("a"), timed(50, 2.0), "precise"), (reply("b"), timed(100, 1.0), "precise"))
    lines = [json.loads(line) for line in (run / "llm.jsonl").read_text().splitlines()]
    lines[1] |= {"role": "coder.improve", "messages": [{"role": "user", "text": "improve"}]}
    (run / "llm.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    export_data([run], tmp_path / "out")
    (pair,) = rows(tmp_path / "out" / "preference.jsonl")
    assert ("task", "faster", 2.0) == (pair["prompt_of"], pair["prompt"][0]["content"], pair["margin"])


def test_a_run_of_another_version_is_said_to_be(tmp_path: Path) -> None:
    """Not "no run": the folder is there, its task cannot be read."""
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "run.json").write_text(json.dumps({"task": {"is": "Task", "colour": 3}}))
    with pytest.raises(RunFolderError, match="another version"):
        export_data([tmp_path / "run"], tmp_path / "out")


HEAD = "import torch\nclass ModelNew(torch.nn.Module):\n    def forward(self, x):\n"
COPY = f"```python\n{HEAD}        return x.exp()\n```"
CALL = COPY.replace("x.exp()", "torch.softmax(x, -1)")
DISGUISED = "```cpp kernel.cpp\nint unused;\n```\n" + CALL.replace("import torch", "import torch  # kernel.so")
LAYER = "```cpp kernel.cpp\nint unused;\n```\n```python\nimport torch\nfrom torch import nn  # kernel.so\n" + (
    "class ModelNew(nn.Module):\n    def __init__(self):\n        self.fc = nn.Linear(4, 4)\n"
    "    def forward(self, x):\n        return self.fc(x)\n```"
)


@pytest.mark.parametrize("text", ["", "no code", COPY, CALL, DISGUISED, LAYER])
def test_what_does_no_work_of_its_own_is_paid_nothing(text: str) -> None:
    """Prose, the reference again, a library call, one beside an unused file, a layer: however fast, not paid."""
    env = Environment(TASK, OneVerdict(timed(1, 8.0)))  # type: ignore[arg-type]
    env.reset()
    _, paid, won, _, info = env.step(text)
    assert (True, False) == (paid <= 0.0, won), info


def test_own_kernels_are_not_taken_for_library_calls() -> None:
    """A ctypes program and a Triton program with reductions of their own are paid for their speed."""
    triton = (
        "```python\nimport torch, triton\nimport triton.language as tl\n@triton.jit\ndef k(x):\n    s = tl.sum(x, 0)\n"
        f"    t = x.sum(0)\n{HEAD}        y = torch.empty_like(x)\n        k[(1,)](x)\n        return y\n```"
    )
    for text in (reply("x"), triton):
        env = Environment(TASK, OneVerdict(timed(1, 2.0)))  # type: ignore[arg-type]
        env.reset()
        assert pytest.approx(1.0) == env.step(text)[1]


def test_speed_is_paid_for_against_the_best_baseline_alone() -> None:
    """What beats eager is judged again, precisely; what does not is not."""
    fast, slow = OneVerdict(timed(1, 2.0)), OneVerdict(timed(1, 0.5))
    for worker in (fast, slow):
        env = Environment(TASK, worker)  # type: ignore[arg-type]
        env.reset()
        env.step(reply("x"))
    assert ["coarse", "precise"] == [job["level"] for job in fast.jobs]
    assert ["coarse"] == [job["level"] for job in slow.jobs]
    assert all("baselines" not in job for job in fast.jobs)


def test_the_first_observation_is_a_request_one_can_act_on() -> None:
    """Rules, reference and form of the answer, in the language of the device."""
    env = Environment(TASK, OneVerdict(timed(1, 2.0)))  # type: ignore[arg-type]
    talk, _ = env.reset()
    assert ["system", "user"] == [said["role"] for said in talk]
    assert all(part in talk[1]["content"] for part in (TASK.reference, "```cpp kernel.cpp", "class ModelNew"))
