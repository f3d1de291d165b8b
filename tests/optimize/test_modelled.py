# SPDX-License-Identifier: Apache-2.0
"""Runs that ask models: a scripted HTTP server with every bad manner, kills, resumes, replays, budgets, secrets."""

from __future__ import annotations

import json
import os
import re
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

import kernelwright
from kernelwright.candidate import Candidate
from kernelwright.errors import BadCommand, KernelwrightError, ModelError
from kernelwright.llm import read_record, speaker
from kernelwright.model_server import ScriptedServer
from kernelwright.optimize import Options, Result, Services, flight, optimize_task, resume_run
from kernelwright.optimize.guide import Guide
from kernelwright.optimize.replaying import replay_run
from kernelwright.proposers import Structure
from kernelwright.task import Task
from kernelwright.testing import FakeHost, FakeWorker, Verdict
from kernelwright.trial import Rejected
from kernelwright.tuning import Space

pytest.importorskip("pydantic_ai", reason="the llm extra is not installed")

REFERENCE = """import torch
class Model(torch.nn.Module):
    def forward(self, x):
        return torch.relu(x)
def get_inputs():
    return [torch.randn(4)]
def get_init_inputs():
    return []
"""
TASK = Task(name="double", form="kernelbench", reference=REFERENCE)
MANNERS = [
    "429", "500", "truncated", "malformed", "wrong-language", "empty", "three-fences", "no-fence", "syntax-error",
    "ok", "503", "not-json", "drop", "cut-off", "ok", "hang", "prose", "ok", "think", "reasoning", "no-choices",
    "parts", "length", "529", "newer-limit", "ok", "no-usage", "stream-only", "ok", "at-most", "no-system",
    "tool-calls",
    "refusal", "thoughts-only", "json-code", "ok", "surrogates", "null-message", "filtered", "padded", "negative-usage",
    "huge-usage", "ok", "latin-1", "half-usage", "429-date",
    "error-200", "bare", "apart-usage",
]  # fmt: skip
OBEDIENT = [
    name for name in MANNERS if name not in ("prose", "no-usage", "negative-usage", "half-usage", "huge-usage")
]  # fmt: skip
"""Without replies longer than what was asked for, which no budget can foresee, and such as are charged in full."""
CANARY = "sk-canary-0451-kernelwright"
HOST = {"compiler": [Structure(name="mode", note="a mode", language="torch",
                               space=Space(parameters=(), constraints=()), order=1.0)]}  # fmt: skip


def program(speed: int) -> str:
    """A program whose double judge takes its SPEED in microseconds."""
    return f"import torch\nclass ModelNew(torch.nn.Module):\n    SPEED = {speed}\n"


ANSWERS = [program(90 - 7 * (n % 9) + 1000 * (n % 7 == 3)) for n in range(41)]


def verdict(candidate: Candidate) -> Verdict:
    """SPEED as microseconds; above 500 it is wrong, with a syntax error it does not load."""
    text = "\n".join(source for _, source in candidate.sources)
    if "oops" in text:
        return Rejected(stage="load", reason="SyntaxError", detail="oops")
    if "SPEED = " not in text:
        return 95.0
    speed = float(text.split("SPEED = ")[1].split()[0])
    return speed if speed < 500 else Rejected(stage="verify", reason="wrong", detail="wrong everywhere")


@pytest.fixture(autouse=True)
def quick(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Caches of the test's own, no waiting between attempts, a canary for a key."""
    monkeypatch.setenv("KERNELWRIGHT_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("OPENAI_API_KEY", CANARY)
    monkeypatch.setattr(speaker, "FIRST_WAIT_S", 0.0)
    monkeypatch.setattr(speaker, "LONGEST_WAIT_S", 0.0)
    yield tmp_path


def go(out: Path, guide: Guide, *, worker: FakeWorker | None = None, proposers: tuple[str, ...] = ("none",),
       seconds: float = 60.0) -> Result:  # fmt: skip
    """One run of TASK against doubles."""
    services = Services("cpu", worker=worker or FakeWorker(verdict), host=FakeHost(HOST))
    options = Options(guide=guide, proposers=proposers, budget_seconds=seconds)
    return optimize_task(TASK, options, out=out, services=services)


def asked(server: ScriptedServer, **limits: object) -> Guide:
    """A guide to the scripted server."""
    fields = {"llm": ("local:scripted",), "recipe": "fsr", "language": "torch", "max_candidates": 10, **limits}
    return Guide(base_url=server.base_url, **fields)  # type: ignore[arg-type]  # names of limits


def everything(run: Path) -> str:
    """All text a run left behind."""
    return "\n".join(path.read_text(errors="replace") for path in run.rglob("*") if path.is_file())


def test_a_model_that_writes_faster_programs_wins_and_its_cost_is_reported(tmp_path: Path) -> None:
    """The fastest reply is proved; requests, tokens and the unknown price are in the result and on the page."""
    with ScriptedServer(["ok"], [program(speed) for speed in (60, 40, 20, 30)]) as server:
        result = go(tmp_path / "run", asked(server, max_candidates=4))
        assert (4, 4) == (server.requests, result.models["requests"] if result.models else None)
    assert ("faster", 4.0) == (result.status, result.speedup)
    data = result.to_json()["models"]
    assert (None, "unknown", 4) == (data["usd"], data["price"], data["verified"])
    assert (2, None) == (data["winner"]["ask"], data["winner"]["usd"])
    assert 4 == data["tally"]["died"]["timed"]["count"]
    page = (tmp_path / "run" / "report.html").read_text()
    assert "price unknown" in page and "4 requests" in page


def test_deterministic_proposers_come_first_and_their_best_is_where_models_start(tmp_path: Path) -> None:
    """The compiler's candidate is the first ask's answer and the parent of the first request."""
    with ScriptedServer(["ok"], [program(30)]) as server:
        go(tmp_path / "run", asked(server, max_candidates=2), proposers=())
        shown = server.heard[0]["messages"][-1]["content"]
    assert "Make this program faster" in shown and "class ModelNew: pass  # mode" in shown


def test_two_hundred_candidates_from_a_server_with_every_bad_manner(tmp_path: Path) -> None:
    """No crash, not one request beyond the limit, every candidate settled, and a replay without model or device."""
    with ScriptedServer(MANNERS, ANSWERS, hang_s=0.02) as server:
        result = go(tmp_path / "run", asked(server, recipe="evolve", max_candidates=200, max_requests=600))
        served = server.requests
    assert result.models is not None and result.status == "faster"
    tally = result.models["tally"]
    assert 200 == tally["asked"] == sum(cost["count"] for cost in tally["died"].values())
    assert served == result.models["requests"] <= 600
    assert tally["duplicates"] > 50 and tally["malformed"] > 10
    found = replay_run(tmp_path / "run")
    assert (True, 200, 200) == (found["identical"], found["recorded"], found["replayed"])


@pytest.mark.parametrize("limit", [{"max_requests": 7}, {"max_tokens": 200_000}])
def test_a_limit_ends_the_run_quietly_and_is_never_passed(tmp_path: Path, limit: dict[str, int]) -> None:
    """What the server counted stays within the limit; the run ends well and replays to the same end."""
    with ScriptedServer(OBEDIENT, ANSWERS, hang_s=0.02) as server:
        result = go(tmp_path / "run", asked(server, max_candidates=100, parallel=3, **limit))
        assert server.requests == (result.models or {})["requests"]
        assert server.requests <= limit.get("max_requests", 1000)
    assert "of 100 candidates, then the budget of" in result.message
    assert (result.models or {})["tokens"] <= limit.get("max_tokens", 10**9)
    assert replay_run(tmp_path / "run")["identical"]


def test_a_model_that_never_writes_a_program_is_said_to_be_one(tmp_path: Path) -> None:
    """Not only that nothing was faster: what the replies lacked."""
    with ScriptedServer(["refusal"], "") as server:
        said = go(tmp_path / "run", asked(server, max_candidates=3)).message
    assert "No program could be read from any of 3 replies, the last because the reply has no fenced code block" in said


def test_what_is_resumed_costs_nothing_twice(tmp_path: Path) -> None:
    """A finished run resumed with a higher limit sends only the new requests and keeps counting from the record."""
    run = tmp_path / "run"
    with ScriptedServer(["ok"], ANSWERS) as server:
        first = go(run, asked(server, max_requests=5, max_candidates=100))
        services = Services("cpu", worker=FakeWorker(verdict), host=FakeHost(HOST))
        second = resume_run(run, limits={"max_requests": 8}, services=services)
        assert (8, 8) == (server.requests, (second.models or {})["requests"])
    assert 5 == (first.models or {})["requests"]
    assert replay_run(run)["identical"]


CHILD = """
import sys, time
from pathlib import Path
sys.path.insert(0, {tests!r})
import test_modelled as t
from kernelwright.llm import speaker
from kernelwright.optimize import Services, resume_run
speaker.FIRST_WAIT_S = speaker.LONGEST_WAIT_S = 0.0
worker = t.FakeWorker(t.verdict, after=lambda n: time.sleep(0.01))
run, url = Path(sys.argv[1]), sys.argv[2]
services = Services("cpu", worker=worker, host=t.FakeHost(t.HOST))
if (run / "run.json").exists():
    resume_run(run, services=services)
else:
    guide = t.Guide(llm=("local:scripted",), base_url=url, recipe="evolve", language="torch", max_candidates=60,
                    max_requests=150)
    t.optimize_task(t.TASK, t.Options(guide=guide, proposers=("none",)), out=run, services=services)
print("whole", flush=True)
"""


def test_a_run_killed_at_any_moment_goes_on_and_loses_only_what_was_in_flight(tmp_path: Path) -> None:
    """kill -9 five times: what was answered is never sent again, the limit holds, the replay agrees."""
    run = tmp_path / "run"
    script = tmp_path / "child.py"
    script.write_text(CHILD.format(tests=str(Path(__file__).parent)))
    environment = {**os.environ, "PYTHONPATH": str(Path(kernelwright.__file__).parents[1])}
    kills = 0
    # All different: of two equal programs in flight at once the verifier is asked twice, in the same words.
    answers = [program(400 - 2 * n + 1000 * (n % 7 == 3)) for n in range(150)]
    with ScriptedServer(OBEDIENT, answers, hang_s=0.02) as server:
        while True:
            base = server.requests
            child = subprocess.Popen(
                [sys.executable, str(script), str(run), server.base_url], env=environment, stdout=subprocess.PIPE
            )
            while kills < 5 and child.poll() is None and server.requests < base + 7 + 3 * kills:
                time.sleep(0.002)
            if kills < 5 and child.poll() is None:
                child.send_signal(signal.SIGKILL)
                kills += 1
            out, _ = child.communicate(timeout=60)
            if child.returncode == 0:
                break
            assert -signal.SIGKILL == child.returncode, out
        record = list(read_record(run / "llm.jsonl"))
        settled = [entry for entry in record if "attempt" in entry]
        assert (5, True) == (kills, b"whole" in out)
        # Two requests at most are in flight at a kill.
        assert server.requests - len(settled) <= 2 * kills
        assert server.requests <= 150
    # One that failed for good when the run was killed over it has no answer, and is asked anew.
    ended = [(entry["request"], entry["attempt"]) for entry in settled if entry.get("final") and entry["reply"]]
    repeats = len(ended) - len(set(key for key, _ in ended))
    assert repeats == 0, "an answered request was sent again"
    assert replay_run(run)["identical"]


@pytest.mark.parametrize(("status", "word"), [("401", "401"), ("404", "404")])
def test_a_wrong_key_or_an_unknown_model_is_one_clear_error(tmp_path: Path, status: str, word: str) -> None:
    """One request each, no retry; what the deterministic proposers found is kept; the key is nowhere."""
    with ScriptedServer([status], "") as server:
        guide = asked(server, llm=("openai:gpt-4o",), parallel=1)
        with pytest.raises(ModelError, match=word) as caught:
            go(tmp_path / "run", guide, proposers=())
        assert 1 == server.requests
    assert CANARY not in everything(tmp_path / "run") + str(caught.value) + repr(caught.value)
    assert json.loads((tmp_path / "run" / "run.json").read_text())["result"]["tried"] >= 1


def test_a_missing_key_is_found_before_anything_is_spent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No key and no base URL: the error names the variable, and the judge was never asked."""
    monkeypatch.delenv("OPENAI_API_KEY")
    worker = FakeWorker(verdict)
    with pytest.raises(ModelError, match="OPENAI_API_KEY"):
        go(tmp_path / "run", Guide(llm=("openai:gpt-4o",)), worker=worker)
    assert [] == worker.jobs


def test_an_address_where_nobody_listens_is_one_clear_error(tmp_path: Path) -> None:
    """Connection refused, six attempts, one message."""
    guide = Guide(llm=("local:x",), base_url="http://127.0.0.1:9/v1", language="torch", parallel=1)
    with pytest.raises(ModelError, match="no answer in 6 attempt"):
        go(tmp_path / "run", guide)


def test_an_address_where_nobody_listens_is_said_though_the_time_ends_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The budget is over between two attempts: the message names what failed, not only that nothing was found."""
    monkeypatch.setattr(speaker, "FIRST_WAIT_S", 3600.0)
    monkeypatch.setattr(speaker, "LONGEST_WAIT_S", 3600.0)
    monkeypatch.setattr(flight, "GRACE_S", 0.0)
    guide = Guide(llm=("local:x",), base_url="http://127.0.0.1:9/v1", language="torch")
    with pytest.raises(ModelError, match="onnection"):
        go(tmp_path / "run", guide, seconds=4.0)


def test_one_dead_model_of_two_is_given_up(tmp_path: Path) -> None:
    """The arm that never answers is asked once; the other one does the work."""
    with ScriptedServer(["ok"], ANSWERS) as server:
        guide = asked(server, llm=("openai:gpt-4o", "local:scripted"), max_candidates=6, parallel=1)
        server.refused = {"gpt-4o"}
        result = go(tmp_path / "run", guide)
    assert (1, 6) == ((result.models or {})["tally"]["failed"], (result.models or {})["tally"]["asked"])
    assert result.status == "faster"
    assert replay_run(tmp_path / "run")["identical"]


def test_a_server_that_echoes_the_key_spreads_it_nowhere(tmp_path: Path) -> None:
    """The key comes back in a reply; record, ledger, events, prompts and page have its name in its place."""
    answers = [f"{program(40)}    KEY = '{CANARY}'\n", program(30)]
    with ScriptedServer(["ok"], answers) as server:
        go(tmp_path / "run", asked(server, llm=("openai:gpt-4o",), max_candidates=3))
        heard = json.dumps(server.heard)
    text = everything(tmp_path / "run")
    assert CANARY not in text + heard
    assert "[OPENAI_API_KEY]" in text


AGENT = """import pathlib, os, sys, time, shutil
task = pathlib.Path("TASK.md").read_text()
assert "reference.py" in task and pathlib.Path("reference.py").exists()
assert "OPENAI_API_KEY" not in os.environ
{act}
"""
WRITES = "pathlib.Path('kernel.py').write_text({code!r} + f'# {{os.environ.get(\"GIVEN\")}}')"


def agent(place: Path, act: str) -> str:
    """The command line of an agent that does this."""
    script = place / "agent.py"
    script.write_text(AGENT.format(act=act))
    return f"{sys.executable} {script}"


def test_an_agent_command_leaves_files_that_are_judged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """kernel.py becomes the candidate; the agent saw the variables it was given and no key; nothing is left behind."""
    monkeypatch.setenv("GIVEN", "given-value")
    command = agent(tmp_path, WRITES.format(code=program(25)))
    guide = Guide(agent=command, agent_env=("GIVEN",), recipe="fsr", language="torch", max_candidates=2)
    result = go(tmp_path / "run", guide)
    assert ("faster", 3.2) == (result.status, result.speedup)
    assert result.winner is not None
    assert "# [GIVEN]" in dict(result.winner.candidate.sources)["kernel.py"]
    assert [] == list((tmp_path / "run" / "agent").iterdir())
    assert replay_run(tmp_path / "run")["identical"]


@pytest.mark.parametrize(
    ("act", "match"),
    [("time.sleep(600)", "no end within"), ("shutil.rmtree(os.getcwd())", "deleted its folder"),
     ("pass", "left neither"), ("sys.exit(3)", "status 3"),
     ("if os.fork(): time.sleep(600)\nos.setsid(); time.sleep(600)", "no end within"),
     ("os.symlink('/etc/passwd', 'kernel.py')", "left neither"), ("os.mkfifo('ANSWER.md')", "left neither"),
     ("os.symlink('/etc/passwd', 'ANSWER.md')", "left neither"), ("os.truncate(os.open('kernel.py', os.O_CREAT | "
      "os.O_RDWR), 1 << 32)", "left neither"), ("while True: print('y' * 4096)", "of output"),
     ("here = os.getcwd(); shutil.rmtree(here); os.symlink('/etc', here)", "deleted its folder")],
)  # fmt: skip
def test_an_agent_that_misbehaves_is_one_clear_error(tmp_path: Path, act: str, match: str) -> None:
    """Never ends, deletes its folder, leaves nothing, fails: said in words, nothing keeps running."""
    guide = Guide(agent=agent(tmp_path, act), agent_seconds=1.0, recipe="fsr", language="torch", parallel=1)
    with pytest.raises(ModelError, match=match) as caught:
        go(tmp_path / "run", guide)
    assert "--agent-seconds" in str(caught.value) and "key" not in str(caught.value)  # it has neither key nor address
    assert [] == list((tmp_path / "run" / "agent").iterdir())
    script = str(tmp_path / "agent.py").encode()
    alive = [p for p in Path("/proc").glob("[0-9]*/cmdline") if script in _bytes(p)]
    assert [] == alive


def _bytes(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError:
        return b""


@pytest.mark.parametrize(
    ("fields", "error", "match"),
    [({}, BadCommand, "no model"), ({"llm": ("local:a", "local:a")}, BadCommand, "twice"),
     ({"llm": ("local:a",), "language": "rust"}, BadCommand, "language"),
     ({"llm": ("local:a",), "max_usd": 0.0}, BadCommand, "max_usd"),
     ({"agent": "no-such-program-here x"}, ModelError, "cannot be started"),
     ({"agent": "'open"}, BadCommand, "cannot be read"),
     ({"agent": "true", "max_tokens": 9}, BadCommand, "does not say how many tokens"),
     ({"llm": ("local:a",), "price": (1.0,)}, BadCommand, "two numbers")],
)  # fmt: skip
def test_a_guide_that_cannot_work_is_refused(
    fields: dict[str, object], error: type[KernelwrightError], match: str
) -> None:
    """Before a folder is made or a request sent."""
    with pytest.raises(error, match=match):
        Guide(**fields).checked()  # type: ignore[arg-type]  # wrong on purpose


def test_a_limit_in_dollars_needs_a_price(tmp_path: Path) -> None:
    """A local model has no known price: said before the judge or the model is asked for anything."""
    with ScriptedServer(["ok"], [program(30)]) as server:
        with pytest.raises(ModelError, match="price is not known") as caught:
            go(tmp_path / "run", asked(server, max_usd=1.0))
        assert ("--max-tokens" in str(caught.value), 0) == (True, server.requests)


def test_the_command_that_an_agent_may_judge_by_is_one(tmp_path: Path) -> None:
    """TASK.md names it; run as it stands (here for its help) it answers."""
    keeps = "pathlib.Path(sys.argv[0]).with_suffix('.txt').write_text(pathlib.Path('TASK.md').read_text())"
    act = f"{keeps}; {WRITES.format(code=program(25))}"
    go(tmp_path / "run", Guide(agent=agent(tmp_path, act), recipe="fsr", language="torch", max_candidates=1))
    named = re.search(r"`([^`]* judge kernel\.py [^`]*)`", (tmp_path / "agent.txt").read_text())
    assert named is not None and named[1].endswith("--task reference.py --device cpu")
    helped = subprocess.run([*shlex.split(named[1]), "--help"], capture_output=True, text=True, check=True)
    assert "Build, verify and measure one candidate" in helped.stdout
