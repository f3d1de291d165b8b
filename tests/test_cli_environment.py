# SPDX-License-Identifier: Apache-2.0
"""The verb ``environment``: what a trainer writes and reads, whatever it writes."""

from __future__ import annotations

import io
import json
import math
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

import kernelwright
from kernelwright import cli
from kernelwright.candidate import Candidate
from kernelwright.errors import JudgeFailed
from kernelwright.optimize import services
from kernelwright.testing import FakeHost, FakeWorker, Verdict
from kernelwright.training import Environment, lines
from kernelwright.trial import Rejected

TASK = """import torch
class Model(torch.nn.Module):
    def forward(self, x):
        return x + 1
def get_inputs():
    return [torch.randn(4)]
def get_init_inputs():
    return []
"""
OWN = """```cpp kernel.cpp
extern "C" void f(float* x) { x[0] = 1; }
```
```python kernel.py
import ctypes, pathlib, torch
_lib = ctypes.CDLL(str(pathlib.Path(__file__).with_name("kernel.so")))
class ModelNew(torch.nn.Module):
    def forward(self, x):
        y = torch.empty_like(x)
        _lib.f(y.data_ptr())
        return y
# %s
```"""


def verdict(candidate: Candidate) -> Verdict:
    """Wrong, slow or fast, as a comment in the program says."""
    text = dict(candidate.sources)["kernel.py"]
    if "wrong" in text:
        return Rejected(stage="verify", reason="off by one", detail="row 3")
    return 400.0 if "slow" in text else 25.0


@pytest.fixture
def task(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A task file, homes of the test's own, and a double in place of the judge."""
    monkeypatch.setenv("KERNELWRIGHT_HOME", str(tmp_path / "home"))
    monkeypatch.setattr(services, "LocalWorker", lambda *a, **k: FakeWorker(verdict))
    monkeypatch.setattr(services, "ProposerHost", lambda *a, **k: FakeHost({}))
    path = tmp_path / "add.py"
    path.write_text(TASK)
    return str(path)


def spoken(task: str, *said: object, options: tuple[str, ...] = ()) -> list[dict[str, Any]]:
    """What comes back for these lines, bytes as they are, anything else as JSON."""
    text = b"".join(one if isinstance(one, bytes) else json.dumps(one).encode() + b"\n" for one in said)
    done = CliRunner().invoke(cli.app, ["environment", task, *options], input=text)
    assert 0 == done.exit_code, done.output
    return [json.loads(line, parse_constant=lambda name: pytest.fail(name)) for line in done.stdout.splitlines()]


def test_an_episode_over_lines_is_paid_by_the_judge(task: str) -> None:
    """Wrong, then slow, then fast: less than nothing, nothing, and more; the evidence is in the next observation."""
    first, wrong, slow, won, over, again = spoken(
        task, *({"action": OWN % word} for word in ("wrong", "slow", "fast", "late")), {"reset": 5}
    )
    assert ["system", "user"] == [said["role"] for said in first["observation"]]
    assert TASK.strip() in first["observation"][1]["content"]
    assert wrong["reward"] < slow["reward"] <= 0.0 < won["reward"]
    assert "off by one" in wrong["observation"][-1]["content"] and "row 3" in wrong["observation"][-1]["content"]
    assert [False, False, True] == [step["terminated"] for step in (wrong, slow, won)]
    assert (8, "No episode is under way.") == (len(won["observation"]), over["error"]["what"])
    assert (first["observation"], 5) == (again["observation"], again["info"]["seed"])


def test_the_last_turn_is_cut_off_and_prose_is_a_turn(task: str) -> None:
    """Two turns of a policy that only talks."""
    _, one, two, over = spoken(task, *[{"action": "no program"}] * 3, options=("--turns", "2"))
    assert [(-1.0, False), (-1.0, True)] == [(step["reward"], step["truncated"]) for step in (one, two)]
    assert ["error"] == list(over)


@pytest.mark.parametrize(
    "odd",
    [b"\n\xff\xfe\n", b"not json\n", b"[1]\n", b"{}\n", b"null\n", b'{"action": 3}\n', b'{"action": null}\n',
     b'{"reset": "x"}\n', b'{"reset": true}\n', b'{"reset": 1.5}\n', b'{"action": "a", "reset": 1}\n',
     b'{"act": "a"}\n', b"[" * 100_000 + b"\n", b'{"action": ' + b'"a' * 40 + b"\n",
     b'"' + b"x" * (lines.LONGEST_LINE + 9) + b'"\n'],
)  # fmt: skip
def test_a_line_that_cannot_be_used_changes_nothing(task: str, odd: bytes) -> None:
    """One error, and the episode goes on where it was."""
    _, error, step = spoken(task, odd, {"action": "no program"})
    assert ["error"] == list(error) and error["error"]["exit_code"] == 2, error
    assert (1, -1.0) == (step["info"]["turn"], step["reward"])


def test_halves_of_letters_and_endless_replies_are_replies(task: str) -> None:
    """A lone surrogate, five megabytes, an unfinished last line: steps like others."""
    said = [b'{"action": "\\ud800 x"}\n', {"action": "y" * 5_000_000}, b'{"action": "no end"}']
    assert [-1.0, -1.0, -1.0] == [step["reward"] for step in spoken(task, *said)[1:]]


class Failing(Environment):
    """Fails once, then pays what is no number of JSON's."""

    def __init__(self) -> None:
        self.steps = 0

    def reset(self, *, seed: int | None = None) -> tuple[list[dict[str, str]], dict[str, Any]]:
        return [], {}

    def step(self, reply: str) -> tuple[list[dict[str, str]], float, bool, bool, dict[str, Any]]:
        self.steps += 1
        if self.steps == 1:
            raise JudgeFailed("The judge ended.", got="signal 9")
        return [], 1.0, False, False, {"ratio": math.inf}


def test_a_judge_that_fails_is_an_error_of_one_line_and_no_infinity_is_written() -> None:
    """The trainer hears of it with the code of the error, and may go on."""
    heard: list[str] = []
    asked = io.BytesIO(b'{"action": "a"}\n{"action": "b"}\n')
    assert 1 == Failing().converse(asked, heard.append)
    _, failed, step = (json.loads(line) for line in heard)
    assert (JudgeFailed.exit_code, "The judge ended.") == (failed["error"]["exit_code"], failed["error"]["what"])
    assert step["info"]["ratio"] is None


@pytest.mark.parametrize(
    ("options", "word"),
    [(("--turns", "0"), "turns"), (("--level", "fast"), "level"), (("--language", "triton"), "cpu")],
)
def test_what_cannot_work_is_said_before_anything_is_read(task: str, options: tuple[str, ...], word: str) -> None:
    """A usage error with its code, and as JSON where asked."""
    done = CliRunner().invoke(cli.app, ["environment", task, *options, "--json"], input="")
    assert (2, True) == (done.exit_code, word in json.loads(done.stdout)["what"] + json.loads(done.stdout)["got"])


def test_a_trainer_that_goes_away_ends_it_quietly(tmp_path: Path) -> None:
    """Nobody reads any more: no traceback, nothing left running."""
    script = tmp_path / "own.py"
    (tmp_path / "add.py").write_text(TASK)
    script.write_text(
        f"import sys\nsys.path.insert(0, {str(Path(__file__).parent)!r})\nimport test_cli_environment as t\n"
        "t.services.LocalWorker = lambda *a, **k: t.FakeWorker(t.verdict)\n"
        "t.services.ProposerHost = lambda *a, **k: t.FakeHost({})\n"
        "sys.argv[1:] = ['environment', 'add.py']\nt.cli.main()\n"
    )
    environment = {**os.environ, "KERNELWRIGHT_HOME": str(tmp_path / "home")}
    child = subprocess.Popen(
        [sys.executable, str(script)], cwd=tmp_path, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )  # fmt: skip
    assert child.stdin is not None and child.stdout is not None and child.stderr is not None
    assert "observation" in json.loads(child.stdout.readline())
    child.stdout.close()
    child.stdin.write(b'{"reset": null}\n' * 3)
    child.stdin.close()
    assert 0 == child.wait(timeout=60)
    assert all(line.startswith(b"measuring this device") for line in child.stderr.read().splitlines())


class Waiting(FakeWorker):
    """A judge that another keeps waiting, in every job."""

    def run(self, job: dict[str, Any], on_event: Callable[[dict[str, Any]], None] | None = None) -> dict[str, Any]:
        """The same, later."""
        if self.hears is not None:
            self.hears("waiting for the device: another judge has it")
        return super().run(job, on_event)


def test_waiting_is_said_once_and_beside_the_lines(task: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """On standard error, whichever job waited first and however many did; not where only JSON is wanted."""
    monkeypatch.setattr(services, "LocalWorker", lambda *a, **k: Waiting(verdict))
    said = json.dumps({"action": OWN % "slow"}) + "\n"
    for options, times in (((), 1), (("--json",), 0)):
        done = CliRunner().invoke(cli.app, ["environment", task, *options], input=said)
        assert [True, True] == ["observation" in json.loads(line) for line in done.stdout.splitlines()]
        assert times == done.stderr.count("waiting for the device")


def test_a_caller_in_python_hears_it_too_also_when_a_step_is_the_first_to_wait(task: str) -> None:
    """Once, for as long as the services live."""
    heard: list[str] = []
    with kernelwright.Services("cpu") as used:
        made = kernelwright.environment(task, used, say=heard.append)
        made.reset()
        assert [] == [text for text in heard if "waiting" in text]
        assert used.worker.hears is not None
        for _ in range(2):
            used.worker.hears("waiting for the device")
    assert ["waiting for the device"] == [text for text in heard if "waiting" in text]
