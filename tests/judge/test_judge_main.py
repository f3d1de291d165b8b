# SPDX-License-Identifier: Apache-2.0
"""The judge as a program: a job in, one JSON object out, and an exit code that says whose fault a failure is."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

from kernelwright import wire
from kernelwright.candidate import Candidate
from kernelwright.errors import BadCommand, TaskIncomplete
from kernelwright.task import Task

TASK = Task(
    name="printer",
    form="kernelbench",
    reference="""
import torch
print("a reference that prints")
class Model(torch.nn.Module):
    def forward(self, x):
        return x + 1
def get_inputs():
    return [torch.rand(8)]
""",
)


def judge(job: object, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run the program with a job on its standard input."""
    command = [sys.executable, "-m", "kernelwright.judge", *arguments]
    text = job if isinstance(job, str) else json.dumps(job)
    return subprocess.run(command, input=text, capture_output=True, text=True, timeout=120, check=False)


def test_a_verdict_exits_zero_and_is_all_there_is_on_stdout(tmp_path: Path) -> None:
    """A rejection is a verdict; what the reference prints does not disturb it."""
    candidate = Candidate(
        task=TASK.digest(),
        language="torch",
        entry="c.py::ModelNew",
        sources=(("c.py", "import torch\nclass ModelNew(torch.nn.Module):\n    def forward(self, x): return x + 2\n"),),
        proposer="test",
    )
    job = {"task": wire.to_data(TASK), "candidate": wire.to_data(candidate), "level": "smoke"}
    file = tmp_path / "job.json"
    file.write_text(json.dumps(job))
    done = judge("", str(file))
    assert 0 == done.returncode, done.stderr
    assert "smoke" == json.loads(done.stdout)["outcome"]["stage"]


def test_errors_exit_with_the_code_of_their_class() -> None:
    """A task without Model, and a job that is no JSON."""
    broken = Task(name="x", form="kernelbench", reference="y = 1\n")
    done = judge({"job": "describe", "task": wire.to_data(broken)})
    assert (TaskIncomplete.exit_code, "TaskIncomplete") == (done.returncode, json.loads(done.stdout)["error"])
    done = judge("{")
    assert (BadCommand.exit_code, "BadCommand") == (done.returncode, json.loads(done.stdout)["error"])


def test_a_served_judge_that_is_killed_leaves_no_folder_behind(tmp_path: Path) -> None:
    """Whoever serves names where state and cache go: a folder of its own would stay, one for every kill."""
    (tmp_path / "temporary").mkdir()
    command = [sys.executable, "-m", "kernelwright.judge", "--serve"]
    command += ["--state", str(tmp_path / "state"), "--cache", str(tmp_path / "cache")]
    served = subprocess.Popen(
        command,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        env={**os.environ, "TMPDIR": str(tmp_path / "temporary")},
    )
    assert served.stdin is not None and served.stdout is not None
    served.stdin.write('{"job": "no such job", "id": 1}\n')
    served.stdin.flush()
    assert served.stdout.readline()
    served.kill()
    served.communicate()
    assert [] == list((tmp_path / "temporary").glob("kernelwright-judge-*"))
