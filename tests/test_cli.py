# SPDX-License-Identifier: Apache-2.0
"""cli.py: the verbs as a person or a script uses them, with doubles in place of the judge and the proposer host."""

from __future__ import annotations

import functools
import importlib.metadata
import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from kernelwright import cli, cli_judge, errors
from kernelwright.cli import app
from kernelwright.optimize import services
from kernelwright.proposers import Structure
from kernelwright.testing import FakeHost, FakeWorker, Verdict
from kernelwright.trial import Rejected
from kernelwright.tuning import Space

TASK = """import torch
class Model(torch.nn.Module):
    def forward(self, x):
        return x + 1
def get_inputs():
    return [torch.randn(4)]
def get_init_inputs():
    return []
"""
ONE = Structure(name="one", note="the one", language="torch", space=Space(parameters=(), constraints=()), order=1.0)


class Bench:
    """A folder with a task, and the command line against doubles."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.folder, self.task = folder, folder / "add.py"
        self.task.write_text(TASK)
        self.verdict: Verdict = 25.0
        self.admit: errors.KernelwrightError | None = None
        monkeypatch.setattr(
            services, "LocalWorker", lambda *a, **k: FakeWorker(lambda c: self.verdict, admit=self.admit)
        )
        monkeypatch.setattr(services, "ProposerHost", lambda *a, **k: FakeHost({"templates": [ONE]}))

    def run(self, *arguments: str) -> Result:
        """One command, in process."""
        return CliRunner().invoke(app, [str(argument) for argument in arguments])


def made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Bench:
    """Homes and runs of the test's own."""
    for name in list(os.environ):
        if name.startswith("KERNELWRIGHT_"):
            monkeypatch.delenv(name)
    monkeypatch.setenv("KERNELWRIGHT_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("KERNELWRIGHT_RUNS", str(tmp_path / "runs"))
    return Bench(tmp_path, monkeypatch)


bench = pytest.fixture(made, name="bench")


def test_optimize_prints_plain_lines_and_the_result_when_piped(bench: Bench) -> None:
    """No colour codes, one line per event, the message and the files at the end."""
    result = bench.run("optimize", bench.task, "--out", bench.folder / "run")
    assert 0 == result.exit_code, result.output
    assert "\x1b" not in result.output
    assert "3.20x faster than compile" in result.output
    assert str(bench.folder / "run" / "optimized.py") in result.output


def test_measuring_the_machine_says_what_it_is_at_and_keeps_the_table_apart(bench: Bench) -> None:
    """Progress on standard error, the facts on standard output; nothing but the object with --json."""
    plain = bench.run("machine", "--device", "cpu")
    assert "measuring this device, once:  25% memory bandwidth" in plain.stderr
    assert "fingerprint" in plain.stdout and "measuring" not in plain.stdout
    quiet = bench.run("machine", "--device", "cpu", "--json")
    assert ("", "cpu") == (quiet.stderr, json.loads(quiet.stdout)["device"])


def test_json_is_one_object_on_standard_output(bench: Bench) -> None:
    """Scripts parse it without looking for it."""
    data = json.loads(bench.run("optimize", bench.task, "--json").stdout)
    assert ("faster", "add", 3.2) == (data["status"], data["task"], data["winner"]["speedup"])
    listed = json.loads(bench.run("runs", "--json").stdout)
    assert [(data["run"], "faster")] == [(item["run"], item["status"]) for item in listed]


def test_the_version_is_that_of_the_installed_package(bench: Bench) -> None:
    """For a report of a defect, as with other tools."""
    assert (0, f"{importlib.metadata.version('kernelwright')}\n") == _said(bench.run("--version"))


def _said(result: Result) -> tuple[int, str]:
    return result.exit_code, result.stdout


def test_nothing_faster_is_said_plainly_with_exit_code_zero(bench: Bench) -> None:
    """An honest no is a result, not a failure."""
    bench.verdict = 120.0
    result = bench.run("optimize", bench.task)
    assert 0 == result.exit_code
    assert "Nothing honest beats the baseline" in result.output


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (errors.TaskDoesNotImport("raises"), 12),
        (errors.ReferenceFails("fails"), 14),
        (errors.ReferenceIsRandom("random"), 15),
        (errors.NoTensorOutput("none"), 16),
        (errors.WrongDevice("device"), 17),
        (errors.EmptyShape("empty"), 18),
        (errors.NotAdmitted("passes"), 19),
        (errors.ToolMissing("g++"), 30),
        (errors.NoSuchDevice("cuda:9"), 31),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, Exception) else str(value),
)
def test_each_mistake_has_one_message_and_its_own_exit_code(
    bench: Bench, error: errors.KernelwrightError, code: int
) -> None:
    """No traceback; the parts are labelled; --json carries the same as data."""
    bench.admit = type(error)("It went wrong.", "this", "that", "do this")
    result = bench.run("optimize", bench.task)
    assert code == result.exit_code
    assert f"{type(error).__name__}: It went wrong.\n  got: this\n  expected: that\n  next: do this\n" in result.output
    assert "Traceback" not in result.output
    data = json.loads(bench.run("optimize", bench.task, "--json").stdout)
    assert (type(error).__name__, code) == (data["error"], data["exit_code"])


def test_a_folder_of_caches_that_cannot_be_written_is_named_before_a_run_folder_is_made(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A read-only home: one message, and how to choose another place."""
    monkeypatch.setenv("KERNELWRIGHT_HOME", str(bench.task))  # a file
    result = bench.run("optimize", bench.task, "--out", bench.folder / "run")
    assert 36 == result.exit_code
    assert "CacheUnwritable" in result.output and "set KERNELWRIGHT_HOME" in result.output
    assert not (bench.folder / "run").exists()


@pytest.mark.parametrize(
    "arguments",
    [["frobnicate"], ["optimize", "x.py", "--nosuch"], ["optimize", "x.py", "--seed", "x"], ["runs", "a", "b"]],
)
def test_a_command_line_that_is_wrong_is_json_too_where_that_is_asked_for(
    arguments: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Agents read it: empty output and a usage text elsewhere say nothing to them."""
    monkeypatch.setattr(sys, "argv", ["kernelwright", *arguments, "--json"])
    assert 2 == cli.main()
    said = json.loads(capsys.readouterr().out)
    assert ("BadCommand", 2) == (said["error"], said["exit_code"])
    assert said["got"] and said["expected"] and said["what_next"]


def test_mistakes_found_without_a_judge_have_their_codes_too(bench: Bench) -> None:
    """Missing file, missing function, unreadable command, busy folder, no run, damaged ledger."""
    (bench.folder / "bad.py").write_text("x = 1")
    run = bench.folder / "run"
    commands: list[tuple[tuple[object, ...], int]] = [
        (("optimize", "missing.py"), 11),
        (("optimize", bench.folder / "bad.py"), 13),
        (("optimize",), 2),
        (("optimize", bench.task, "--resume", "x"), 2),
        (("optimize", bench.task, "--device", "gpu"), 2),
        (("optimize", bench.task, "--budget", "soon"), 2),
        (("optimize", bench.task, "--proposers", "tempaltes"), 2),
        (("optimize", bench.task, "--start", "none.cu"), 20),
        (("optimize", bench.task, "--out", run), 0),
        (("optimize", bench.task, "--out", run), 41),
        (("optimize", bench.task, "--out", bench.task), 40),
        (("optimize", bench.task, "--out", "/proc/nowhere"), 42),
        (("optimize", "--resume", run, "--seed", "0"), 2),
        (("optimize", "--resume", run, "--bits-lost", "0"), 2),
        (("machine", "--device", "cpu", "--html", "/nowhere/facts.html"), 2),
        (("optimize", "--resume", bench.folder / "none"), 44),
        (("report", bench.folder / "none"), 44),
        (("judge",), 2),
        (("judge", "none.py", "--task", bench.task), 20),
        (("nonsense",), 2),
        (("optimize", "a" * 5000 + ".py"), 11),
        (("judge", "a" * 5000 + ".py", "--task", bench.task), 20),
        (("runs", bench.folder / "none"), 44),
        (("runs", "a" * 5000), 44),
        (("runs", bench.folder), 0),
        (("knowledge", "import", "none.jsonl"), 2),
        (("knowledge", "import", bench.task), 2),
    ]
    for arguments, code in commands:
        result = bench.run(*arguments)  # type: ignore[arg-type]  # turned to text by run
        assert code == result.exit_code, (arguments, result.output)
        assert "Traceback" not in result.output
    (run / "ledger.sqlite").write_bytes(b"x" * 5000)
    assert 43 == bench.run("optimize", "--resume", run).exit_code
    assert 43 == bench.run("report", run).exit_code


def test_a_misspelt_variable_stops_every_verb(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """A setting that nothing reads is a setting that silently does nothing."""
    monkeypatch.setenv("KERNELWRIGHT_BUGDET", "1s")
    assert 2 == bench.run("optimize", bench.task).exit_code


def test_judge_shows_the_verdict_with_the_proof_or_the_reason(bench: Bench) -> None:
    """A refusal has an exit code of its own, with --json too: what follows ``&&`` must not happen."""
    (bench.folder / "new.py").write_text("class ModelNew: pass\n")
    good = bench.run("judge", bench.folder / "new.py", "--task", bench.task)
    assert 0 == good.exit_code, good.output
    assert "3.20x the best baseline (compile)" in good.output and "condition: a double" in good.output
    bench.verdict = Rejected(stage="verify", reason="off by 3 bits", detail="at 7")
    bad = bench.run("judge", bench.folder / "new.py", "--task", bench.task)
    assert (3, "rejected at verify: off by 3 bits\nat 7\n") == (bad.exit_code, bad.stdout)
    bench.verdict = Rejected(stage="verify", reason="main: off by 3 bits", detail="off by 3 bits")
    again = bench.run("judge", bench.folder / "new.py", "--task", bench.task)
    assert "rejected at verify: main: off by 3 bits\n" == again.stdout  # said once
    told = bench.run("judge", bench.folder / "new.py", "--task", bench.task, "--json")
    assert (3, "Rejected") == (told.exit_code, json.loads(told.stdout)["outcome"]["is"])
    assert 3 not in {error.exit_code for error in vars(errors).values() if isinstance(error, type)}


def test_what_was_measured_besides_is_a_table_for_every_program() -> None:
    """One row for each program, a column for each number; who was not measured has the reason."""
    facts = [
        ("registers", "32"), ("server.eager.median_us", "10"), ("server.eager.p99_us", "30"),
        ("server.compile", "not measured: smoke: it crashed"), ("server.candidate.median_us", "5"),
        ("server.candidate.p99_us", "6.5"), ("cold.eager.included_s", "1"),
    ]  # fmt: skip
    lines = cli_judge.besides_lines("server", facts)
    rows = [["server", "median_us", "p99_us"], ["eager", "10", "30"], ["candidate", "5", "6.5"]]
    assert rows == [lines[0].split(), lines[2].split(), lines[4].split()]
    assert lines[3].startswith("compile    not measured: smoke: it crashed") and 5 == len(lines)
    assert [] == cli_judge.besides_lines("memory", facts)


def jobs_of(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """What the double of the judge is asked for from here on."""
    jobs: list[dict[str, Any]] = []
    answer = FakeWorker.run

    def noted(worker: FakeWorker, job: dict[str, Any], *more: Any) -> Any:
        jobs.append(job)
        return answer(worker, job, *more)

    monkeypatch.setattr(FakeWorker, "run", noted)
    return jobs


def test_what_is_to_be_measured_besides_reaches_the_judge(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """A list by commas; what cannot be measured is the judge's to refuse."""
    jobs = jobs_of(monkeypatch)
    (bench.folder / "new.py").write_text("class ModelNew: pass\n")
    bench.run("judge", bench.folder / "new.py", "--task", bench.task, "--also", "server, memory")
    assert [["server", "memory"]] == [job["also"] for job in jobs if job["job"] == "judge"]


def test_a_judgement_says_what_it_is_at_on_standard_error(bench: Bench) -> None:
    """Half a minute of silence looked like a program that hangs; beside JSON nothing is said to a pipe."""
    (bench.folder / "new.py").write_text("class ModelNew: pass\n")
    result = bench.run("judge", bench.folder / "new.py", "--task", bench.task)
    assert "admitting add on cpu\nadmitted: 1 known-wrong programs rejected; judging" in result.stderr
    assert "admitting" not in result.stdout
    assert "" == bench.run("judge", bench.folder / "new.py", "--task", bench.task, "--json").stderr


def test_the_admission_of_a_task_is_shown(bench: Bench) -> None:
    """Which known-wrong program fell at which stage."""
    result = bench.run("judge", "--admit", bench.task)
    assert 0 == result.exit_code, result.output
    assert "zeros  verify" in result.output


def test_resume_keeps_the_options_of_the_run(bench: Bench) -> None:
    """Another device or seed would be another run."""
    bench.run("optimize", bench.task, "--out", bench.folder / "run", "--seed", "3")
    refused = bench.run("optimize", "--resume", bench.folder / "run", "--seed", "4")
    assert 2 == refused.exit_code
    again = bench.run("optimize", "--resume", bench.folder / "run", "--budget", "5s")
    assert 0 == again.exit_code, again.output
    record = json.loads((bench.folder / "run" / "run.json").read_text())
    assert (3, 5.0) == (record["options"]["seed"], record["options"]["budget_seconds"])


def test_bits_lost_changes_the_contract_that_is_judged(bench: Bench) -> None:
    """The allowance is part of the task, so it is in the record and in the report."""
    bench.run("optimize", bench.task, "--out", bench.folder / "run", "--bits-lost", "8")
    record = json.loads((bench.folder / "run" / "run.json").read_text())
    assert 8.0 == record["task"]["contract"]["bits_lost"]


def test_gradients_change_the_contract_that_is_judged(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a run, of one candidate and of an admission; a resumed run keeps what it began with."""
    jobs = jobs_of(monkeypatch)
    (bench.folder / "new.py").write_text("class ModelNew: pass\n")
    for asked in (False, True):
        for command in (
            ("optimize", bench.task, "--out", bench.folder / f"run{asked}"),
            ("judge", bench.folder / "new.py", "--task", bench.task),
            ("judge", "--admit", bench.task),
        ):
            jobs.clear()
            result = bench.run(*command, *(("--gradients",) if asked else ()))
            assert 0 == result.exit_code, result.output
            assert {asked} == {job["task"]["contract"]["gradients"] for job in jobs if "task" in job}
    assert 2 == bench.run("optimize", "--resume", bench.folder / "runTrue", "--gradients").exit_code


def test_contiguous_leaves_strided_inputs_out_of_the_contract(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a run and of one candidate; inputs at odd addresses are contiguous, and stay in it."""
    jobs = jobs_of(monkeypatch)
    (bench.folder / "new.py").write_text("class ModelNew: pass\n")
    for asked, layouts in ((False, ["contiguous", "strided", "offset"]), (True, ["contiguous", "offset"])):
        for command in (
            ("optimize", bench.task, "--out", bench.folder / f"run{asked}"),
            ("judge", bench.folder / "new.py", "--task", bench.task),
        ):
            jobs.clear()
            result = bench.run(*command, *(("--contiguous",) if asked else ()))
            assert 0 == result.exit_code, result.output
            assert [layouts] == [job["task"]["contract"]["layouts"] for job in jobs if "task" in job][:1]
    bench.verdict = Rejected(stage="verify", reason="main: strided inputs: output 0 at (0, 1): got nan", detail="")
    assert (
        "next: read inputs by their strides" in bench.run("judge", bench.folder / "new.py", "--task", bench.task).output
    )
    bench.verdict = Rejected(stage="verify", reason="main: blank inputs: output 0: got nan", detail="")
    assert "next:" not in bench.run("judge", bench.folder / "new.py", "--task", bench.task).output


def test_ctrl_c_saves_and_exits_130(tmp_path: Path) -> None:
    """A real process, a real signal: the run folder says interrupted and can be resumed."""
    code = f"""
import sys, time
from kernelwright.optimize import services
from kernelwright.testing import FakeHost, FakeWorker
sys.path.insert(0, {str(Path(__file__).parent)!r})
from test_cli import ONE
def slow(count):
    print("judging", flush=True)
    time.sleep(60)
services.LocalWorker = lambda *a, **k: FakeWorker(lambda c: 25.0, after=slow)
services.ProposerHost = lambda *a, **k: FakeHost({{"templates": [ONE]}})
from kernelwright.cli import app
app(["optimize", {str(tmp_path / "add.py")!r}, "--out", {str(tmp_path / "run")!r}])
"""
    (tmp_path / "add.py").write_text(TASK)
    env = {**os.environ, "KERNELWRIGHT_HOME": str(tmp_path / "home")}
    for number in (signal.SIGINT, signal.SIGTERM):
        child = subprocess.Popen(
            [sys.executable, "-c", code], stdout=subprocess.PIPE, text=True, env=env,
            preexec_fn=functools.partial(signal.signal, signal.SIGINT, signal.SIG_DFL),
        )  # fmt: skip  # a shell's background jobs, and so the tests run by one, ignore it
        assert child.stdout is not None
        while "judging" not in child.stdout.readline():
            assert child.poll() is None
        child.send_signal(number)
        rest = child.stdout.read()
        assert 130 == child.wait(30), rest
        assert "Interrupted" in rest
        record = json.loads((tmp_path / "run" / "run.json").read_text())
        assert "interrupted" == record["status"]
        (tmp_path / "run").rename(tmp_path / f"run-{number}")


def test_help_and_the_package_load_nothing_heavy() -> None:
    """--help in well under half a second because neither torch, numpy, rich nor jinja2 is imported."""
    code = (
        "import sys\nfrom kernelwright.cli import app\ntry:\n    app(['--help'])\nexcept SystemExit:\n    pass\n"
        "print(sorted({m.split('.')[0] for m in sys.modules} & {'torch', 'numpy', 'rich', 'jinja2', 'sqlite3'}))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "optimize" in done.stdout
    assert "[]" == done.stdout.splitlines()[-1]
