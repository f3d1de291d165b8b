# SPDX-License-Identifier: Apache-2.0
"""Training data holds only what was proved; the environment pays what the judge says."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest

from kernelwright import wire
from kernelwright.errors import NoSuchRun
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
    return f"{reasoning}\n```python\nclass ModelNew:\n    kind = '{speed}'\n```"


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
        tuple(row[side].split("kind = '")[1][0] for side in ("chosen", "rejected"))
        for row in rows(tmp_path / "out" / "preference.jsonl")
    }
    assert {("a", "c"), ("b", "c"), ("a", "d"), ("b", "d"), ("c", "d")} == names


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
    assert pytest.approx(1.3) == reward.of(timed(1, 2.0))


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


def test_a_reply_without_code_never_reaches_the_judge() -> None:
    """Malformed replies cost no device time."""
    worker = OneVerdict(timed(1, 2.0))
    env = Environment(TASK, worker)  # type: ignore[arg-type]
    env.reset()
    assert -1.0 == env.step("prose")[1]
    assert [] == worker.jobs
    assert dataclasses.is_dataclass(Reward())
