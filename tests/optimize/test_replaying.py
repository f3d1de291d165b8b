# SPDX-License-Identifier: Apache-2.0
"""What a replay says of a record that is no longer what the run was: which request, candidate or verdict differs."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from test_modelled import HOST, TASK, asked, go, program, quick, verdict

from kernelwright.errors import BadCommand
from kernelwright.model_server import ScriptedServer
from kernelwright.optimize import Options, Services, optimize_task
from kernelwright.optimize.replaying import replay_run
from kernelwright.testing import FakeHost, FakeWorker

pytest.importorskip("pydantic_ai", reason="the llm extra is not installed")

__all__ = ["quick"]  # the fixture of these tests too


def test_a_changed_record_is_noticed(tmp_path: Path) -> None:
    """A reply edited after the fact gives another candidate, and the replay says where."""
    run = tmp_path / "run"
    with ScriptedServer(["ok"], [program(speed) for speed in (60, 40, 20)]) as server:
        go(run, asked(server, max_candidates=3))
    text = (run / "llm.jsonl").read_text()
    (run / "llm.jsonl").write_text(text.replace("SPEED = 40", "SPEED = 41"))
    found = replay_run(run)
    assert (False, 1) == (found["identical"], found["first_difference"])
    said = found["difference"]
    assert ("candidate", "    SPEED = 40", "    SPEED = 41") == (said["what"], said["recorded"], said["now"])


def test_a_changed_prompt_is_named_with_its_role_and_line(tmp_path: Path) -> None:
    """What the record does not answer is compared with what was asked there: the sentence names the line."""
    run = tmp_path / "run"
    with ScriptedServer(["ok"], [program(speed) for speed in (60, 40, 20)]) as server:
        go(run, asked(server, max_candidates=3))
    text = (run / "run.json").read_text()
    record = json.loads(text)
    record["nouns"]["bound"] = "The machine allows 7 us."
    (run / "run.json").write_text(json.dumps(record))
    found = replay_run(run)
    said = found["difference"]
    assert (False, 0, "prompt", "coder.new", "user") == (
        found["identical"], said["ask"], said["what"], said["role"], said["message"],
    )  # fmt: skip
    assert said["now"].endswith(" The machine allows 7 us.") and said["now"] != said["recorded"]
    assert "the request of coder.new is another at line" in found["text"]


def test_another_verdict_is_named(tmp_path: Path) -> None:
    """A ledger without a candidate's trial, as after a change of what a candidate is called: both ends are said."""
    run = tmp_path / "run"
    with ScriptedServer(["ok"], [program(speed) for speed in (60, 40, 20)]) as server:
        go(run, asked(server, max_candidates=3))
    rows = [json.loads(line) for line in (run / "guided.jsonl").read_text().splitlines()]
    rows[2]["ended"] = "verify"
    (run / "guided.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    said = replay_run(run)["difference"]
    assert (2, "verdict", "verify", "timed") == (said["ask"], said["what"], said["recorded"], said["now"])


def test_a_run_without_models_has_nothing_to_replay(tmp_path: Path) -> None:
    """The error says what kind of run has."""
    services = Services("cpu", worker=FakeWorker(verdict), host=FakeHost(HOST))
    optimize_task(TASK, Options(budget_seconds=5), out=tmp_path / "run", services=services)
    with pytest.raises(BadCommand, match="asked no model"):
        replay_run(tmp_path / "run")
