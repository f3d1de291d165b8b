# SPDX-License-Identifier: Apache-2.0
"""Commands run confined and within limits; trusted children speak JSON lines and die with their parent."""

from __future__ import annotations

import os
import pickle
import select
import subprocess
import sys
import time
from pathlib import Path

import pytest

from kernelwright import sandbox
from kernelwright.errors import JudgeFailed, ToolMissing

SRC = Path(__file__).parents[2] / "src"
LIMITS = sandbox.Limits(seconds=20.0, memory_bytes=1 << 30, processes=64, file_bytes=1 << 20, output_bytes=1 << 16)


def limits(**changes: float) -> sandbox.Limits:
    """LIMITS with changes."""
    return sandbox.Limits(**{name: getattr(LIMITS, name) for name in LIMITS.__slots__} | changes)  # type: ignore[arg-type]


def test_a_command_returns_status_and_text() -> None:
    """stdin goes in; stdout, stderr and the exit status come out."""
    done = sandbox.run(["sh", "-c", "cat; echo oops >&2; exit 3"], limits=LIMITS, stdin="hello")
    assert sandbox.Finished(returncode=3, stdout="hello", stderr="oops\n", killed="") == done


def test_other_systems_are_refused_in_words(monkeypatch: pytest.MonkeyPatch) -> None:
    """Before anything is started: what is confined there would not be."""
    monkeypatch.setattr(sys, "platform", "darwin")
    with pytest.raises(ToolMissing, match=r"(?s)Linux only.*darwin"):
        sandbox.run(["true"], limits=LIMITS)
    with pytest.raises(ToolMissing, match="Linux only"):
        sandbox.start(["true"])


def test_what_a_command_is_given_in_its_environment_stands_in_no_command_line(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every user of the machine can read command lines; keys are in the environment, which the owner alone can."""
    said: list[list[str]] = []
    real = subprocess.Popen

    def started(command: list[str], **options: object) -> object:
        said.append(command)
        return real(command, **options)

    monkeypatch.setattr(subprocess, "Popen", started)
    show = [sys.executable, "-c", "import os; print(os.environ['SECRET'])"]
    done = sandbox.command(show, seconds=20.0, cwd="/", env={"SECRET": "KEY-4711"})
    assert "KEY-4711\n" == done.stdout
    assert said and not any("KEY-4711" in word for command in said for word in command)


def test_a_signal_is_told_as_a_negative_status() -> None:
    """As subprocess does."""
    done = sandbox.run(["sh", "-c", "sh -c 'kill -SEGV $$'; exit $?"], limits=LIMITS)
    assert 139 == done.returncode


def test_a_watched_command_is_confined_as_much_and_keeps_what_its_watcher_gave_it(tmp_path: Path) -> None:
    """The tool (env) adds a variable; the command has the filter, no capability, no secret and no other folder."""
    good, bad = tmp_path / "good", tmp_path / "bad"
    good.mkdir()
    bad.mkdir()
    (bad / "secret").write_text("canary")
    script = (
        f"echo $GIVEN $(id -u); grep -E '^(Seccomp|NoNewPrivs|CapEff):' /proc/self/status; "
        f"echo 1 > {good}/a; echo 1 > {bad}/b; cat {bad}/secret"
    )
    command = ["sh", "-c", script]
    plain = sandbox.run(command, limits=LIMITS, writable=(good,), cwd=good)
    done = sandbox.run(command, limits=LIMITS, writable=(good,), cwd=good, watch=["/usr/bin/env", "GIVEN=here"])
    assert f"here {plain.stdout}" == done.stdout, done
    assert (["a"], ["secret"]) == (os.listdir(good), os.listdir(bad))
    assert "CapEff:\t0000000000000000" in done.stdout


@pytest.mark.parametrize(
    ("command", "changes", "reason"),
    [
        ("sleep 60", {"seconds": 0.5}, "no end within 0.5 s"),
        ("yes", {"seconds": 20.0, "output_bytes": 4096}, "more than 4096 bytes of output"),
    ],
)
def test_a_limit_names_itself(command: str, changes: dict[str, float], reason: str) -> None:
    """Time and output."""
    assert reason == sandbox.run(["sh", "-c", command], limits=limits(**changes)).killed


def test_a_command_writes_only_where_allowed(tmp_path: Path) -> None:
    """The writable folder keeps the file; another stays empty; nothing else is readable."""
    good, bad = tmp_path / "good", tmp_path / "bad"
    good.mkdir()
    bad.mkdir()
    (bad / "secret").write_text("canary")
    script = f"echo 1 > {good}/a; echo 1 > {bad}/b; cat {bad}/secret; ls {tmp_path}"
    done = sandbox.run(["sh", "-c", script], limits=LIMITS, writable=(good,), cwd=good)
    assert ["a"] == os.listdir(good)
    assert ["secret"] == os.listdir(bad)
    assert "" == done.stdout


def test_a_compiler_runs(tmp_path: Path) -> None:
    """g++ reads its headers and libraries and writes the object."""
    (tmp_path / "a.cpp").write_text("#include <vector>\nint f() { return (int)std::vector<int>(3).size(); }\n")
    command = ["g++", "-shared", "-fPIC", "-o", "a.so", "a.cpp"]
    done = sandbox.run(command, limits=LIMITS, writable=(tmp_path,), cwd=tmp_path, env={"TMPDIR": str(tmp_path)})
    assert (0, "") == (done.returncode, done.stderr)
    assert (tmp_path / "a.so").is_file()


def test_a_command_has_a_clean_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """What the caller names, and no secret of ours."""
    monkeypatch.setenv("MY_API_KEY", "canary")
    done = sandbox.run(["env"], limits=LIMITS, env={"MARK": "1"})
    assert "canary" not in done.stdout and "MARK=1" in done.stdout.splitlines()


def test_a_missing_program_is_a_failure_and_no_crash() -> None:
    """The launcher's own error text is the evidence."""
    done = sandbox.run(["no-such-program"], limits=LIMITS)
    assert done.returncode != 0 and "no-such-program" in done.stderr


def test_everything_it_started_ends_with_it(tmp_path: Path) -> None:
    """A process left in the background dies when the command is over."""
    script = "(sleep 60; echo late > late) & echo started"
    done = sandbox.run(["sh", "-c", script], limits=limits(seconds=10.0), writable=(tmp_path,), cwd=tmp_path)
    assert ("started\n", "") == (done.stdout, done.killed)
    assert [] == os.listdir(tmp_path)


ECHO = "import sys\nfor line in sys.stdin: sys.stdout.write(line); sys.stdout.flush()"


def test_a_child_answers_line_by_line() -> None:
    """What is sent comes back as an object; silence is None; after kill it is not alive."""
    child = sandbox.start([sys.executable, "-c", ECHO])
    child.send({"id": 1, "text": "one\ntwo"})
    assert {"id": 1, "text": "one\ntwo"} == child.receive(20.0)
    assert child.receive(0.05) is None and child.alive
    child.kill()
    assert not child.alive
    with pytest.raises(JudgeFailed):
        child.send({})


def test_a_child_that_stands_still_answers_once_it_goes_on() -> None:
    """It has heard, and does nothing about it; one that is gone is no matter."""
    child = sandbox.start([sys.executable, "-c", ECHO])
    child.stand_still()
    child.send({"id": 1})
    assert child.receive(0.5) is None and child.alive
    child.go_on()
    assert {"id": 1} == child.receive(20.0)
    child.kill()
    child.stand_still()


@pytest.mark.parametrize("text", ["no json", "[1]"])
def test_nonsense_from_a_child_is_an_error(text: str) -> None:
    """A line that is no JSON object."""
    child = sandbox.start(["echo", text])
    with pytest.raises(JudgeFailed) as caught:
        child.receive(20.0)
    assert text in str(pickle.loads(pickle.dumps(caught.value)))
    child.kill()


def test_the_last_words_on_stderr_are_kept() -> None:
    """They explain why a child ended."""
    child = sandbox.start(["sh", "-c", "echo because >&2"])
    assert child.receive(20.0) is None
    assert "because\n" == child.error_tail()
    child.kill()


def test_a_child_dies_with_its_parent() -> None:
    """Even when the parent is killed without a chance to clean up."""
    script = (
        f"import sys, time; sys.path.insert(0, {str(SRC)!r})\nfrom kernelwright import sandbox\n"
        "child = sandbox.start(['sleep', '60']); print(child.pid, flush=True); time.sleep(60)"
    )
    parent = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE)
    assert parent.stdout is not None
    handle = os.pidfd_open(int(parent.stdout.readline()))
    parent.kill()
    parent.wait()
    parent.stdout.close()
    assert select.select([handle], [], [], 10.0)[0]
    os.close(handle)


def test_the_level_is_found_out_without_harm() -> None:
    """In words; this process stays as free as it was."""
    assert sandbox.reached_level().endswith("limits")
    assert os.path.exists(__file__)


@pytest.mark.skipif(os.getuid() != 0, reason="needs root, to become an ordinary user")
def test_an_ordinary_user_is_confined_too() -> None:
    """Namespaces, Landlock and the filter need no privilege."""
    boot = f"import sys; sys.path.append({str(SRC)!r}); from kernelwright.sandbox.launcher import probe; probe()"
    become = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", "/usr/bin/python3"]
    try:
        done = subprocess.run([*become, "-I", "-S", "-c", boot], capture_output=True, text=True, timeout=60)
    except FileNotFoundError:
        pytest.skip("setpriv or a system Python is missing")
    if "No module named" in done.stderr or "Permission" in done.stderr:
        pytest.skip("the source folder is not readable for other users")
    ours = sandbox.reached_level()
    assert ("landlock" in ours, "seccomp" in ours) == ("landlock" in done.stdout, "seccomp" in done.stdout)


def test_a_trusted_command_has_the_environment_it_was_given_and_no_other(tmp_path: Path) -> None:
    """Exactly the names passed, and the mark; its output and status come back."""
    code = "import os, sys; print(sorted(os.environ)); sys.exit(3)"
    names = {"PATH": "/bin", "LC_CTYPE": "C"}
    done = sandbox.command([sys.executable, "-c", code], seconds=20, cwd=tmp_path, env=names)
    assert (3, "['KW_COMMAND', 'LC_CTYPE', 'PATH']", "") == (done.returncode, done.stdout.strip(), done.killed)


def test_a_trusted_command_that_never_ends_is_killed_with_what_left_its_group(tmp_path: Path) -> None:
    """A grandchild in a session of its own is found by the mark and killed too."""
    code = (
        "import os, time\n"
        "if os.fork() == 0:\n    os.setsid()\n    open('pid', 'w').write(str(os.getpid()))\n    time.sleep(600)\n"
        "time.sleep(600)"
    )
    done = sandbox.command([sys.executable, "-c", code], seconds=1, cwd=tmp_path, env={"PATH": "/bin"})
    assert "no end within 1 s" == done.killed
    state = Path(f"/proc/{(tmp_path / 'pid').read_text()}/stat")
    until = time.monotonic() + 20
    while time.monotonic() < until and state.exists() and ") Z " not in state.read_text():
        time.sleep(0.01)  # the signal is sent; the process takes it when it next runs
    assert not state.exists() or ") Z " in state.read_text()
