# SPDX-License-Identifier: Apache-2.0
"""Runs whose models failed, resumed: who is asked again, what is not paid twice, and a replay that agrees."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest
from test_modelled import ANSWERS, HOST, TASK, asked, go, program, quick, verdict

from kernelwright.candidate import Candidate
from kernelwright.errors import ModelError
from kernelwright.llm import budget
from kernelwright.model_server import ScriptedServer
from kernelwright.optimize import Options, Result, Services, optimize_task, resume_run
from kernelwright.optimize.replaying import replay_run
from kernelwright.testing import FakeHost, FakeWorker, Verdict

pytest.importorskip("pydantic_ai", reason="the llm extra is not installed")

__all__ = ["quick"]  # the fixture of these tests too


def resumed(run: Path, **limits: int) -> Result:
    """The run, gone on with."""
    return resume_run(
        run, limits=limits, services=Services("cpu", worker=FakeWorker(verdict), host=FakeHost(HOST))
    )  # fmt: skip


@pytest.mark.parametrize("refusals", [1, 2])
def test_a_model_with_a_wrong_key_is_asked_anew_when_its_run_is_resumed(tmp_path: Path, refusals: int) -> None:
    """401, the key is put right, resume: every candidate is asked for, the first one too; later resumes ask nobody."""
    run = tmp_path / "run"
    with ScriptedServer(["401"] * refusals + ["ok"] * 20, ANSWERS) as server:
        with pytest.raises(ModelError, match="401"):
            go(run, asked(server, llm=("openai:gpt-4o",), parallel=1, max_candidates=4))
        assert (True, 1) == (replay_run(run)["identical"], server.requests)
        for again in range(1, refusals):
            with pytest.raises(ModelError, match="401"):
                resumed(run)
            assert 1 + again == server.requests
        second = resumed(run)
        assert ("faster", 4 + refusals, 4 + refusals) == (
            second.status, server.requests, (second.models or {})["requests"]
        )  # fmt: skip
        assert (4, 0) == ((second.models or {})["tally"]["asked"], (second.models or {})["tally"]["failed"])
        first = replay_run(run)
        resumed(run)
        assert 4 + refusals == server.requests
    assert (True, 4, first["digest"]) == (first["identical"], first["recorded"], replay_run(run)["digest"])


def test_a_failure_in_the_middle_of_a_run_is_history(tmp_path: Path) -> None:
    """The server was down for one request of many: what was paid for afterwards is not paid for again."""
    run = tmp_path / "run"
    with ScriptedServer(["ok", *["500"] * 6, *["ok"] * 30], ANSWERS) as server:
        first = go(run, asked(server, parallel=1, max_candidates=6))
        assert (11, 1) == (server.requests, (first.models or {})["tally"]["failed"])
        second = resumed(run, max_candidates=8)
        assert (13, 1) == (server.requests, (second.models or {})["tally"]["failed"])
    found = replay_run(run)
    assert (True, 8) == (found["identical"], found["recorded"])


def test_of_two_models_the_dead_one_is_tried_once_more_and_the_other_not_paid_twice(tmp_path: Path) -> None:
    """Still dead: one request. Without one to spare: none, and the work of the other stands. Alive: it takes part."""
    run = tmp_path / "run"
    with ScriptedServer(["ok"], ANSWERS) as server:
        server.refused = {"gpt-4o"}
        go(run, asked(server, llm=("openai:gpt-4o", "local:scripted"), max_candidates=6, max_requests=6, parallel=1))
        first, sent = replay_run(run), server.requests
        for most, more in ((6, 0), (7, 1)):
            again = resumed(run, max_requests=most)
            assert (sent + more, 6) == (server.requests, (again.models or {})["tally"]["asked"])
            assert first["digest"] == replay_run(run)["digest"]
        server.refused = set()
        last = resumed(run, max_requests=30)
    assert (0, 6) == ((last.models or {})["tally"]["failed"], (last.models or {})["tally"]["asked"])
    found = replay_run(run)
    assert (True, 6) == (found["identical"], found["recorded"])


def test_the_minutes_of_the_models_begin_when_they_are_asked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:  # fmt: skip
    """Each judgement takes an hour of a clock that only budgets see: with one minute, the first model still speaks."""
    now = [0.0]
    monkeypatch.setattr(budget, "time", SimpleNamespace(monotonic=lambda: now[0]))

    def slowly(candidate: Candidate) -> Verdict:
        now[0] += 3600.0
        return verdict(candidate)

    with ScriptedServer(["ok"], [program(30), program(20)]) as server:
        services = Services("cpu", worker=FakeWorker(slowly), host=FakeHost(HOST))
        guide = asked(server, max_minutes=1.0, max_candidates=4, parallel=1, recipe="fsr")
        result = optimize_task(TASK, Options(guide=guide, budget_seconds=60), out=tmp_path / "run", services=services)
        assert 1 == server.requests
    assert "the budget of seconds is spent" in result.message
