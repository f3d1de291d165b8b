# SPDX-License-Identifier: Apache-2.0
"""The proposer host speaks its protocol, survives odd tasks, and never lets a reference write into it."""

from __future__ import annotations

import io
import json
import subprocess
import sys
import time
from collections.abc import Mapping
from typing import Any

import pytest

from kernelwright import errors, wire
from kernelwright.candidate import Candidate
from kernelwright.proposers import Request, Structure
from kernelwright.proposers.__main__ import Host, main, serve
from kernelwright.task import Task
from kernelwright.tuning import Space

PRINTS = """
import torch
print("the reference prints at import")
class Model(torch.nn.Module):
    def forward(self, v, x):
        print("and while it runs")
        return torch.diag(v) @ x
def get_inputs():
    return [torch.randn(32), torch.randn(32, 64)]
def get_init_inputs():
    return []
"""


class Fails:
    """Raises what tracing an odd reference may raise."""

    name = "fails"

    def structures(self, request: Request) -> list[Structure]:
        if request.device == "cuda":
            raise SystemExit(3)
        raise RuntimeError("data-dependent\n  control flow")

    def render(self, request: Request, structure: str, values: Mapping[str, Any]) -> Candidate:
        raise ZeroDivisionError(structure)


class Echoes:
    """Shows what the host passed on."""

    name = "echoes"

    def structures(self, request: Request) -> list[Structure]:
        note = f"{request.task.name} {request.device} {request.machine}"
        return [
            Structure(name="one", note=note, language="torch", space=Space(parameters=(), constraints=()), order=1.0)
        ]

    def render(self, request: Request, structure: str, values: Mapping[str, Any]) -> Candidate:
        text = f"{structure} {sorted(values.items())}"
        return Candidate(task="t", language="torch", entry="a.py::M", sources=(("a.py", text),), proposer="echoes")


class Endless:
    """Traces for ever, as far as the tests go, and catches whatever it can."""

    name = "endless"

    def structures(self, request: Request) -> list[Structure]:
        for _ in range(2000):
            try:
                time.sleep(0.01)
            except Exception:  # noqa: BLE001 - as torch and references do
                continue
        return []

    def render(self, request: Request, structure: str, values: Mapping[str, Any]) -> Candidate:
        self.structures(request)
        raise ValueError(structure)


TABLE = {
    "endless": f"{__name__}:Endless",
    "fails": f"{__name__}:Fails",
    "echoes": f"{__name__}:Echoes",
    "absent": "no.such.module:Class",
}


def ask(*jobs: object) -> list[dict[str, Any]]:
    """Replies of a host to these lines."""
    out = io.StringIO()
    serve(io.StringIO("\n".join(job if isinstance(job, str) else json.dumps(job) for job in jobs)), out, Host(TABLE))
    return [json.loads(line) for line in out.getvalue().splitlines()]


def job(kind: str, proposer: str, **more: object) -> dict[str, object]:
    """One request about a small task."""
    task = wire.to_data(Task(name="small", form="kernelbench", reference="pass"))
    return {"id": 7, "job": kind, "proposer": proposer, "task": task, "device": "cpu", "machine": None, **more}


def test_structures_come_back_as_nouns() -> None:
    """The reply carries what the proposer returned, and the device without its index."""
    (reply,) = ask(job("structures", "echoes", device="cuda:1"))
    (structure,) = (wire.from_data(Structure, item) for item in reply["result"]["structures"])

    assert (7, "one", "small cuda None") == (reply["id"], structure.name, structure.note)


def test_render_passes_the_values_on() -> None:
    """The candidate closes the parameters that were sent."""
    (reply,) = ask(job("render", "echoes", structure="one", values={"BLOCK": 4}))
    candidate = wire.from_data(Candidate, reply["result"]["candidate"])

    assert "one [('BLOCK', 4)]" == candidate.sources[0][1]


@pytest.mark.parametrize(
    ("device", "reason"), [("cpu", "RuntimeError: data-dependent control flow"), ("cuda", "SystemExit: 3")]
)
def test_a_proposer_that_raises_proposes_nothing_and_says_why(device: str, reason: str) -> None:
    """An event names the reason in one line, then the list is empty."""
    event, reply = ask(job("structures", "fails", device=device))

    assert {"event": "proposer-skipped", "proposer": "fails", "reason": reason} == event["event"]
    assert 7 == reply["id"]
    assert [] == reply["result"]["structures"]
    assert "late" not in reply["result"]


@pytest.mark.parametrize(
    ("proposer", "source", "reason"),
    [
        ("templates", "raise ValueError('not\\ntoday')", "no template fits: the reference does not import: not today"),
        ("rewrites", "def get_init_inputs(): return [...]", "no laws are tried: constructor argument (Ellipsis,)"),
    ],
)
def test_why_nothing_is_proposed_is_said_every_time(proposer: str, source: str, reason: str) -> None:
    """An event names the reason, also where it is known from before; nothing was said until then."""
    out, host = io.StringIO(), Host()
    task = wire.to_data(Task(name="odd", form="kernelbench", reference=source))
    asked = json.dumps({**job("structures", proposer), "task": task})
    serve(io.StringIO(f"{asked}\n{asked}"), out, host)
    for event, reply in [[json.loads(line) for line in out.getvalue().splitlines()][i : i + 2] for i in (0, 2)]:
        assert {"event": "left-out", "proposer": proposer, "reason": reason} == event["event"]
        assert [] == reply["result"]["structures"]


def test_what_takes_longer_than_it_may_is_stopped_and_the_host_lives_on() -> None:
    """Though it catches every exception: else each proposer of a run would trace a long loop to its end."""
    late, other, failed = ask(
        job("structures", "endless", seconds=0.05),
        job("structures", "echoes", seconds=60.0),
        job("render", "endless", structure="one", values={}, seconds=0.05),
    )

    assert late["result"]["late"]
    assert 1 == len(other["result"]["structures"])
    assert "in time" in errors.from_json(failed["error"]).what


def test_a_failed_render_is_a_candidate_error() -> None:
    """The class survives the pipe, so the parent can tell it from a bad command."""
    (reply,) = ask(job("render", "fails", structure="one", values={}))

    assert isinstance(errors.from_json(reply["error"]), errors.CandidateError)
    assert "ZeroDivisionError: one" == reply["error"]["got"]


@pytest.mark.parametrize(
    ("request_", "error"),
    [
        (job("structures", "unheard-of"), "BadCommand"),
        (job("dance", "echoes"), "BadCommand"),
        ({"id": 7, "job": "structures", "proposer": "echoes"}, "TaskError"),
        ("{ not json", "BadCommand"),
        ("[1, 2]", "BadCommand"),
    ],
)
def test_a_bad_request_gets_one_error_and_the_next_is_answered(request_: object, error: str) -> None:
    """The server outlives nonsense."""
    first, second = ask(request_, job("structures", "echoes"))

    assert error == first["error"]["error"]
    assert "result" in second


def test_shutdown_ends_the_server() -> None:
    """What follows is not read."""
    replies = ask({"id": 1, "job": "shutdown"}, job("structures", "echoes"))

    assert [{"id": 1, "result": {}}] == replies


def test_wrong_arguments_are_refused() -> None:
    """Only --serve is known."""
    assert 2 == main(["--help"])


def test_a_printing_reference_cannot_corrupt_the_replies() -> None:
    """In a process of its own: every line on stdout is a reply, and the rewrite is found."""
    task = wire.to_data(Task(name="prints", form="kernelbench", reference=PRINTS))
    request = {"id": 1, "job": "structures", "proposer": "rewrites", "task": task, "device": "cpu", "machine": None}
    lines = json.dumps(request) + "\n" + json.dumps({"id": 2, "job": "shutdown"}) + "\n"
    done = subprocess.run(
        [sys.executable, "-m", "kernelwright.proposers", "--serve"], input=lines, capture_output=True, text=True
    )
    replies = [json.loads(line) for line in done.stdout.splitlines()]

    assert [1, 2] == [reply["id"] for reply in replies]
    assert "rewrite.0" == replies[0]["result"]["structures"][0]["name"]
    assert "the reference prints at import" in done.stderr


def test_warming_up_loads_the_proposers_and_keeps_quiet_about_what_is_missing() -> None:
    """What cannot be imported is the request's to report, once it is asked for."""
    host = Host({"echoes": f"{__name__}:Echoes"})
    host.warm()
    assert ["echoes"] == list(host._loaded)
    lost = Host({"lost": "no_such_package:Proposer"})
    lost.warm()
    out = io.StringIO()
    task = wire.to_data(Task(name="t", form="kernelbench", reference=PRINTS))
    request = {"id": 1, "job": "structures", "proposer": "lost", "task": task, "device": "cpu"}
    serve(io.StringIO(json.dumps(request) + "\n"), out, lost)
    assert [] == json.loads(out.getvalue().splitlines()[-1])["result"]["structures"]
    assert "no_such_package" in out.getvalue()
