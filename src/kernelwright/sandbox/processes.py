# SPDX-License-Identifier: Apache-2.0
"""Starting, feeding and ending child processes; a child of ours never outlives the process that started it."""

from __future__ import annotations

import dataclasses
import functools
import json
import os
import select
import signal
import subprocess
import sys
import tempfile
import threading
import time
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future
from pathlib import Path
from queue import SimpleQueue
from typing import IO, Any

from kernelwright.errors import JudgeFailed, ToolMissing
from kernelwright.sandbox import environment
from kernelwright.sandbox.limits import Finished, Limits

_HERE = Path(__file__).resolve().parent
_BOOT = """import sys, types
for name, folder in (("kernelwright", {package!r}), ("kernelwright.sandbox", {room!r})):
    sys.modules[name] = types.ModuleType(name)
    sys.modules[name].__path__ = [folder]
from kernelwright.sandbox.launcher import {entry}
{entry}()"""
"""Loads the launcher and what it needs, not the packages around it: 40 ms less for every command."""
MARK = "KW_COMMAND"
"""Variable by which everything that a trusted command started is found again."""
_LONGEST_LINE = 256 << 20
_TAIL = 4000
_LOOK_SECONDS = 0.05


class _Spawner:
    """One thread that starts every child: Linux sends the death signal when the starting *thread* ends."""

    def __init__(self) -> None:
        self._jobs: SimpleQueue[tuple[Future[Any], Callable[[], Any]]] = SimpleQueue()
        self._lock = threading.Lock()
        self._owner = 0

    def call(self, work: Callable[[], Any]) -> Any:
        """Run ``work`` in the thread and return what it returns; a forked process gets a thread of its own."""
        with self._lock:
            if self._owner != os.getpid():
                self._owner = os.getpid()
                threading.Thread(target=self._serve, name="kernelwright-spawner", daemon=True).start()
        done: Future[Any] = Future()
        self._jobs.put((done, work))
        return done.result()

    def _serve(self) -> None:
        while True:
            done, work = self._jobs.get()
            try:
                done.set_result(work())
            except BaseException as error:  # noqa: BLE001 - handed to the caller
                done.set_exception(error)


_SPAWNER = _Spawner()


def _boot(entry: str) -> str:
    return _BOOT.format(package=str(_HERE.parent), room=str(_HERE), entry=entry)


def _require_linux() -> None:
    """Raise ToolMissing elsewhere: prctl, pidfd, memfd and namespaces are calls of its kernel."""
    system: str = sys.platform  # as plain text: mypy takes it for what it is where mypy runs
    if system != "linux":
        raise ToolMissing(
            "Programs are judged on Linux only.",
            got=system,
            expected="linux on x86-64 or aarch64",
            what_next="run it there: on a server, in a container, or under WSL 2",
        )


def _launch(spec: dict[str, Any], *, pass_fds: Sequence[int] = (), **options: Any) -> subprocess.Popen[bytes]:
    _require_linux()
    boot = _boot("main")
    spec = spec | {"parent": os.getpid()}
    # Not as an argument, which every user of the machine can read: the environment in it may hold keys.
    with os.fdopen(os.memfd_create("specification"), "w+b") as told:
        told.write(json.dumps(spec).encode())
        told.seek(0)
        command = [sys.executable, "-I", "-S", "-c", boot, str(told.fileno())]
        kept = (*pass_fds, told.fileno())
        popen = functools.partial(subprocess.Popen, command, env={}, pass_fds=kept, start_new_session=True, **options)
        started: subprocess.Popen[bytes] = _SPAWNER.call(popen)
    return started


class Child:
    """A trusted program that speaks JSON lines: one object per line in, one per line out; stderr goes to a file.

    Not for concurrent use by several threads, except ``kill``.
    """

    def __init__(self, process: subprocess.Popen[bytes], errors: IO[bytes]) -> None:
        assert process.stdin is not None and process.stdout is not None
        self._process, self._errors = process, errors
        self._in, self._out = process.stdin, process.stdout
        self._pending = b""

    @property
    def pid(self) -> int:
        """Process id; also the id of its process group."""
        return self._process.pid

    @property
    def alive(self) -> bool:
        """Whether it is still running."""
        return self._process.poll() is None

    @property
    def ending(self) -> str:
        """How it ended, in words: ``killed by SIGSEGV``, ``exit status 3``; empty while it runs."""
        status = self._process.poll()
        if status is None:
            return ""
        return f"exit status {status}" if status >= 0 else f"killed by {signal.Signals(-status).name}"

    def send(self, message: Mapping[str, Any]) -> None:
        """Write one message. Raises JudgeFailed when the child is gone."""
        try:
            self._in.write(json.dumps(message).encode() + b"\n")
            self._in.flush()
        except (BrokenPipeError, ValueError) as error:
            raise JudgeFailed("a child of ours ended", got=self.error_tail(), expected="a running process") from error

    def receive(self, timeout: float) -> dict[str, Any] | None:
        """The next message, or None after ``timeout`` seconds or once the child has closed its output.

        Raises JudgeFailed for a line that is no JSON object.
        """
        deadline = time.monotonic() + timeout
        while b"\n" not in self._pending:
            left = deadline - time.monotonic()
            if left <= 0 or not select.select([self._out], [], [], left)[0]:
                return None
            chunk = os.read(self._out.fileno(), 1 << 16)
            if not chunk or len(self._pending) > _LONGEST_LINE:
                return None
            self._pending += chunk
        line, _, self._pending = self._pending.partition(b"\n")
        try:
            message = json.loads(line)
        except ValueError as error:
            raise JudgeFailed("a child of ours wrote no JSON", got=repr(line[:200])) from error
        if not isinstance(message, dict):
            raise JudgeFailed("a child of ours wrote no JSON object", got=repr(line[:200]))
        return message

    def error_tail(self) -> str:
        """The last part of what it wrote to stderr."""
        size = os.fstat(self._errors.fileno()).st_size
        return os.pread(self._errors.fileno(), _TAIL, max(0, size - _TAIL)).decode(errors="replace")

    def stand_still(self) -> None:
        """Stop it and its process group until ``go_on``; nothing happens when it is gone."""
        _signal_group(self.pid, signal.SIGSTOP)

    def go_on(self) -> None:
        """Let it go on after ``stand_still``."""
        _signal_group(self.pid, signal.SIGCONT)

    def kill(self) -> None:
        """End it and its process group now, and collect it. Safe to call twice."""
        kill_group(self.pid)
        self._process.wait()
        for pipe in (self._in, self._out):
            try:
                pipe.close()
            except BrokenPipeError:
                continue

    def close(self, timeout: float = 5.0) -> None:
        """Close its stdin, give it ``timeout`` seconds to end by itself, then kill it."""
        try:
            self._in.close()
        except BrokenPipeError:
            pass
        try:
            self._process.wait(timeout)
        except subprocess.TimeoutExpired:
            pass
        self.kill()


def kill_group(pid: int) -> None:
    """SIGKILL the process group that ``pid`` leads; nothing happens when it is gone."""
    _signal_group(pid, signal.SIGKILL)


def _signal_group(pid: int, number: signal.Signals) -> None:
    try:
        os.killpg(pid, number)
    except (ProcessLookupError, PermissionError):
        pass


def start(
    argv: Sequence[str],
    *,
    env: Mapping[str, str] | None = None,
    cwd: Path | str | None = None,
    pass_fds: Sequence[int] = (),
) -> Child:
    """Start a trusted, long-lived program in a process group of its own; it is killed when this process ends.

    ``env`` is its whole environment (default: the allow-listed part of ours). Descriptors in ``pass_fds`` keep
    their numbers. Raises OSError when the launcher cannot be started.
    """
    names = environment.trusted() if env is None else dict(env)
    errors = tempfile.TemporaryFile()  # noqa: SIM115 - closed with the Child
    process = _launch(
        {"argv": list(argv), "env": names},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=errors,
        cwd=cwd,
        pass_fds=tuple(pass_fds),
    )
    return Child(process, errors)


def run(
    argv: Sequence[str],
    *,
    limits: Limits,
    writable: Iterable[Path | str] = (),
    readable: Iterable[Path | str] = (),
    cwd: Path | str = "/",
    env: Mapping[str, str] | None = None,
    stdin: str = "",
    devices: bool = False,
    watch: Sequence[str] = (),
) -> Finished:
    """Run one untrusted command (a compiler on untrusted sources) confined, and wait for it.

    It reads system and Python paths, ``readable`` and ``cwd``, writes only ``writable``, has no network, and is
    killed with everything it started when a limit is reached. ``watch`` is a trusted tool (a reader of counters) that
    gets ``argv`` as the end of its own arguments and starts it: the tool runs in the same namespaces and root, and
    ``argv`` is confined as without it.
    """
    spec = {
        "argv": list(argv),
        "watch": list(watch),
        "boot": _boot("watched"),
        "env": environment.confined(env),
        "limits": dataclasses.asdict(limits),
        "readable": [
            str(path)
            for path in (
                *readable,
                *_borrowed(),
                *([cwd] if str(cwd) != "/" else []),
                *([_HERE.parent] if watch else []),
            )
        ],
        "writable": [str(path) for path in writable],
        "devices": devices,
        "own_root": _probe()["own_root"],
    }
    with tempfile.TemporaryFile() as source, tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        source.write(stdin.encode())
        source.seek(0)
        process = _launch(spec, stdin=source, stdout=out, stderr=err, cwd=cwd)
        killed = _watch(process, limits, (out, err))
        texts = [os.pread(f.fileno(), limits.output_bytes, 0).decode(errors="replace") for f in (out, err)]
    return Finished(returncode=process.returncode, stdout=texts[0], stderr=texts[1], killed=killed)


def _borrowed() -> list[str]:
    """Package folders of this process, which may lie outside the environment (a .pth file) and hold torch."""
    return [path for path in sys.path if Path(path).name in ("site-packages", "dist-packages")]


def command(
    argv: Sequence[str], *, seconds: float, cwd: Path | str, env: Mapping[str, str], output_bytes: int = 1 << 20
) -> Finished:
    """Run a command the user trusts, in a process group of its own, with exactly ``env``, and wait for it.

    After ``seconds``, or more output than allowed, it is killed. However it ends, its process group and everything
    else that inherited its environment is killed too. It is not confined.
    """
    mark = uuid.uuid4().hex
    limits = Limits(seconds=seconds, memory_bytes=0, processes=0, file_bytes=0, output_bytes=output_bytes)
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        spec = {"argv": list(argv), "env": {**env, MARK: mark}}
        process = _launch(spec, stdin=subprocess.DEVNULL, stdout=out, stderr=err, cwd=cwd)
        try:
            killed = _watch(process, limits, (out, err))
        finally:
            kill_group(process.pid)
            process.wait()
            _kill_marked(mark)
        texts = [os.pread(f.fileno(), output_bytes, 0).decode(errors="replace") for f in (out, err)]
    return Finished(returncode=process.returncode, stdout=texts[0], stderr=texts[1], killed=killed)


def _kill_marked(mark: str) -> None:
    """SIGKILL every process whose environment carries ``mark``: those that left the group of the command."""
    sought = f"{MARK}={mark}".encode()
    for place in Path("/proc").glob("[0-9]*/environ"):
        try:
            if sought in place.read_bytes().split(b"\0"):
                os.kill(int(place.parent.name), signal.SIGKILL)
        except OSError:
            continue  # gone, or another user's


def _watch(process: subprocess.Popen[bytes], limits: Limits, files: Sequence[IO[bytes]]) -> str:
    """Wait for the end; returns why it was killed, or an empty text."""
    deadline = time.monotonic() + limits.seconds
    killed = ""
    ended = os.pidfd_open(process.pid)
    try:
        while not select.select([ended], [], [], _LOOK_SECONDS)[0]:
            if time.monotonic() > deadline:
                killed = f"no end within {limits.seconds:g} s"
            elif sum(os.fstat(f.fileno()).st_size for f in files) > limits.output_bytes:
                killed = f"more than {limits.output_bytes} bytes of output"
            if killed:
                kill_group(process.pid)
                break
    finally:
        os.close(ended)
    process.wait()
    if not killed and sum(os.fstat(f.fileno()).st_size for f in files) > limits.output_bytes:
        killed = f"more than {limits.output_bytes} bytes of output"
    return killed


def reached_level() -> str:
    """The isolation a candidate gets on this machine, in words; found out once, in a process that tries it."""
    return str(_probe()["level"])


@functools.cache
def _probe() -> dict[str, Any]:
    command = [sys.executable, "-I", "-S", "-c", _boot("probe")]
    work = functools.partial(subprocess.run, command, env={}, capture_output=True, timeout=30, check=False)
    done: subprocess.CompletedProcess[bytes] = _SPAWNER.call(work)
    try:
        found: dict[str, Any] = json.loads(done.stdout)
    except ValueError:
        return {"level": "none", "own_root": False}
    return found
