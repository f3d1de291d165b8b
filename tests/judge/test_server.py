# SPDX-License-Identifier: Apache-2.0
"""Every request gets exactly one answer, each a whole line; nothing a job does breaks the stream."""

from __future__ import annotations

import contextlib
import io
import json
import threading
from pathlib import Path
from typing import Any

import pytest

from kernelwright.errors import ToolMissing
from kernelwright.judge.server import Emit, Handler, Server
from kernelwright.sandbox import lease
from kernelwright.sandbox.lease import Lease


def talk(jobs: dict[str, Handler], lines: list[str], beside: frozenset[str] = frozenset()) -> list[dict[str, Any]]:
    """The replies to ``lines``."""
    replies = io.StringIO()
    Server(jobs, beside, replies).serve(io.StringIO("".join(line + "\n" for line in lines)))
    return [json.loads(line) for line in replies.getvalue().splitlines()]


def echo(job: dict[str, Any], emit: Emit) -> dict[str, Any]:
    """Say it, then return it."""
    emit({"said": job["text"]})
    return {"text": job["text"]}


def test_events_come_before_the_result() -> None:
    """An event carries the id of its request, and the result follows with its seconds."""
    event, result = talk({"echo": echo}, ['{"id": 4, "job": "echo", "text": "a"}'])
    assert {"id": 4, "event": {"said": "a"}} == event
    assert (4, "a", True) == (result["id"], result["result"]["text"], result["result"]["seconds"] >= 0)
    assert 0 == result["result"]["waited"]


def test_a_job_that_waits_for_another_judge_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As an event of its own request, before the result."""
    monkeypatch.setattr(lease, "SAID_AFTER_S", 0.0)
    told = threading.Event()
    other, held = Lease("cpu", tmp_path), contextlib.ExitStack()
    held.enter_context(other.alone())

    class Replies(io.StringIO):
        def write(self, text: str) -> int:
            if "waiting" in text:
                told.set()
            return super().write(text)

    def check(job: dict[str, Any], emit: Emit) -> dict[str, Any]:
        with Lease("cpu", tmp_path).shared():
            return {}

    replies = Replies()
    line = '{"id": 4, "job": "check"}\n'
    server = threading.Thread(target=Server({"check": check}, frozenset(), replies).serve, args=(io.StringIO(line),))
    server.start()
    said = told.wait(10)
    held.close()
    server.join(10)
    event, result = [json.loads(line) for line in replies.getvalue().splitlines()]
    assert said and event["event"]["waiting"].startswith("waiting for the device: another judge")
    assert (4, 4) == (event["id"], result["id"])
    assert 0.0 < result["result"]["waited"] <= result["result"]["seconds"]


def test_users_errors_travel_as_data() -> None:
    """A KernelwrightError keeps its class and words."""

    def fail(job: dict[str, Any], emit: Emit) -> dict[str, Any]:
        raise ToolMissing("no nvcc", "nothing", "nvcc", "install it")

    (reply,) = talk({"fail": fail}, ['{"id": 1, "job": "fail"}'])
    assert {"id": 1, "error": ToolMissing("no nvcc", "nothing", "nvcc", "install it").to_json()} == reply


def test_our_own_defects_are_named_as_such() -> None:
    """An unexpected exception answers JudgeFailed and the server lives on."""

    def broken(job: dict[str, Any], emit: Emit) -> dict[str, Any]:
        return {"never": job["absent"]}

    first, *rest = talk(
        {"broken": broken, "echo": echo}, ['{"id": 1, "job": "broken"}', '{"id": 2, "job": "echo", "text": "b"}']
    )
    assert ("JudgeFailed", "KeyError: 'absent'") == (first["error"]["error"], first["error"]["got"])
    assert "b" == rest[-1]["result"]["text"]


@pytest.mark.parametrize("error", [SystemExit(3), StopIteration(), EOFError("end")])
def test_every_exception_is_an_answer(error: BaseException) -> None:
    """Whatever a job raises, its request is answered and the next one is served: nobody waits for ever."""

    def broken(job: dict[str, Any], emit: Emit) -> dict[str, Any]:
        raise error

    first, *rest = talk(
        {"broken": broken, "echo": echo}, ['{"id": 1, "job": "broken"}', '{"id": 2, "job": "echo", "text": "b"}']
    )
    assert "JudgeFailed" == first["error"]["error"]
    assert "b" == rest[-1]["result"]["text"]


def test_nonsense_lines_are_answered_and_skipped() -> None:
    """Neither broken JSON nor a request without an id ends the service."""
    replies = talk({"echo": echo}, ["{", '{"job": "echo"}', "", '{"id": 9, "job": "echo", "text": "c"}'])
    assert ["CandidateError", "CandidateError"] == [r["error"]["error"] for r in replies[:2]]
    assert 9 == replies[-1]["id"]


def test_unknown_jobs_are_refused() -> None:
    """The refusal lists what there is."""
    (reply,) = talk({"echo": echo}, ['{"id": 1, "job": "dance"}'])
    assert ("dance", "echo") == (reply["error"]["got"], reply["error"]["expected"])


def test_builds_run_beside_a_job_that_holds_the_device() -> None:
    """The device job only ends once the build has: they must overlap."""
    built = threading.Event()

    def slow(job: dict[str, Any], emit: Emit) -> dict[str, Any]:
        return {"built_first": built.wait(30)}

    def build(job: dict[str, Any], emit: Emit) -> dict[str, Any]:
        built.set()
        return {}

    replies = talk(
        {"slow": slow, "build": build}, ['{"id": 1, "job": "slow"}', '{"id": 2, "job": "build"}'], frozenset({"build"})
    )
    assert [2, 1] == [reply["id"] for reply in replies]
    assert replies[1]["result"]["built_first"]
