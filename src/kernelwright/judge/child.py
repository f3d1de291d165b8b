# SPDX-License-Identifier: Apache-2.0
"""The judge's handle on confined programs: a zygote that forks them, and one ``Program`` per candidate or baseline.

Whatever a program does, each method returns or raises ``ChildFailure`` within the limits; the judge goes on.
"""

from __future__ import annotations

import copy
import fcntl
import json
import os
import socket
import sys
import threading
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch

from kernelwright import sandbox
from kernelwright.errors import JudgeFailed
from kernelwright.judge import buffers, wires
from kernelwright.judge.leash import Leash
from kernelwright.judge.program import FORK_SECONDS, Clock, Program

_ROOT = str(Path(__file__).resolve().parents[2])
_BOOT = "import sys, json; sys.path[:] = json.loads(sys.argv[3]); from kernelwright.judge.zygote import main; main()"
_START_SECONDS = 120.0


class Zygote:
    """One preloaded process per judge that forks confined programs; restarted once when a fork fails."""

    def __init__(
        self, preload: Sequence[str] = ("torch",), *, clock: Clock, env: Mapping[str, str] | None = None
    ) -> None:
        self.preload, self.clock, self._env = tuple(preload), clock, dict(env or {})
        self._process: sandbox.Child | None = None
        self._channel: socket.socket | None = None
        self.own_root = self._lent = False
        self._lock = threading.RLock()

    @classmethod
    def start(
        cls, preload: Sequence[str] = ("torch",), *, clock: Clock, env: Mapping[str, str] | None = None
    ) -> Zygote:
        """Import ``preload`` in a fresh process (seconds). ``clock``: from ``measure``; see ``Clock``.

        ``env`` is for what libraries read when they are loaded, such as OpenMP's waiting policy.
        """
        zygote = cls(preload, clock=clock, env=env)
        zygote._start()
        return zygote

    def fork(
        self,
        folder: Path,
        *,
        device: str,
        limits: sandbox.Limits,
        env: Mapping[str, str] | None = None,
        readable: Sequence[Path | str] = (),
        writable: Sequence[Path | str] = (),
        execute: bool = False,
        threads: int = 0,
        headers: Path | str = "",
    ) -> Program:
        """A confined program that reads ``folder`` (its working directory) and has loaded nothing yet.

        ``env`` is added to a clean environment; with ``own_root`` the first of ``writable`` is ``sandbox.OWN``. Without
        ``execute`` neither fork nor exec works. ``threads`` 0: torch's default. ``headers``: see ``headers.use``.
        Raises ChildFailure (stage sandbox) for a folder it cannot enter, JudgeFailed when none can be started at all.
        """
        request = {
            "folder": str(Path(folder).resolve()),
            "device": device,
            "limits": asdict(limits),
            "env": sandbox.confined(env),
            "readable": [str(path) for path in readable],
            "headers": str(headers),
            "writable": [str(path) for path in writable],
            "execute": execute,
            "threads": threads,
            "own_root": self.own_root,
            "user": sandbox.spare_user() if not writable and _anyone_reads(folder) else 0,
        }
        try:
            return self._fork(request, limits)
        except (OSError, JudgeFailed):
            if self._lent:
                raise
            self.close()
            self._start()
            return self._fork(request, limits)

    @property
    def pid(self) -> int:
        """Process id of the zygote, 0 when closed."""
        return self._process.pid if self._process is not None else 0

    def lend(self) -> socket.socket:
        """Another channel to it, for a fork of this process; see ``lent``."""
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            self._ask({"serve": True}, [theirs.fileno()])
        return ours

    def lent(self, channel: socket.socket) -> Zygote:
        """The same zygote in a fork of the process that started it, over a channel that was lent; it is not closed, nor
        restarted, from there."""
        other = copy.copy(self)
        other._channel, other._lock, other._lent = channel, threading.RLock(), True
        return other

    def close(self) -> None:
        """End the zygote and every program it started. Safe to call twice."""
        if self._channel is not None:
            self._channel.close()
            self._channel = None
        if self._process is not None and not self._lent:
            self._process.kill()
        self._process = None

    def collect(self, pid: int) -> int:
        """Kill and reap program ``pid``; its wait status, -1 when unknown."""
        try:
            return int(self._ask({"collect": pid})["status"])
        except (OSError, JudgeFailed, KeyError):
            return -1

    def _start(self) -> None:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        path = [_ROOT, *(entry for entry in sys.path if entry and entry != os.getcwd())]
        argv = [sys.executable, "-I", "-c", _BOOT, str(theirs.fileno()), json.dumps(self.preload), json.dumps(path)]
        env = sandbox.confined({"OPENBLAS_NUM_THREADS": "1", **self._env})  # its pool would start at import
        self._process = sandbox.start(argv, env=env, cwd="/", pass_fds=(theirs.fileno(),))
        theirs.close()
        self._channel = ours
        if not wires.readable(ours, _START_SECONDS):
            raise JudgeFailed("the zygote did not start", got=self._process.error_tail(), expected="torch imported")
        self.own_root = bool(self._answer().get("own_root"))

    def _fork(self, request: dict[str, Any], limits: sandbox.Limits) -> Program:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        output = -1
        try:
            output = _output_file(limits.output_bytes)
            answer = self._ask({"fork": request}, [theirs.fileno(), output])
            if "pid" not in answer:
                raise JudgeFailed("no confined program could be started", got=str(answer.get("failed")))
            leash = Leash(answer["pid"], ours, output, limits, self.collect)
        except BaseException:
            ours.close()
            if output >= 0:
                os.close(output)
            raise
        finally:
            theirs.close()
        leash.family = request["execute"] and request["device"] == "cpu"  # thirty threads of a GPU's: 1 ms a look
        try:
            return Program(leash, request["device"], self.clock)
        except BaseException:
            leash.forget()
            raise

    def _ask(self, request: dict[str, Any], descriptors: Sequence[int] = ()) -> dict[str, Any]:
        with self._lock:
            if self._channel is None:
                raise JudgeFailed("the zygote is closed")
            wires.send(self._channel, wires.encode(request), descriptors)
            if not wires.readable(self._channel, FORK_SECONDS):
                raise JudgeFailed("the zygote does not answer")
            return self._answer()

    def _answer(self) -> dict[str, Any]:
        assert self._channel is not None and self._process is not None
        body, _ = wires.receive(self._channel)
        if not body:
            raise JudgeFailed("the zygote died", got=self._process.error_tail())
        return wires.decode(body)


def _output_file(size: int) -> int:
    """A memory file of exactly ``size`` bytes: writing more fails in the program, and nothing needs draining."""
    descriptor = os.memfd_create("output", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    try:
        os.ftruncate(descriptor, size)
        fcntl.fcntl(descriptor, buffers.ADD_SEALS, buffers.SEALS)
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def _anyone_reads(folder: Path | str) -> bool:
    """Whether a stranger could read ``folder``, its files, and the Python this process runs on."""
    for path in (Path(folder), *Path(folder).rglob("*"), Path(sys.prefix), Path(torch.__file__)):
        mode = path.stat().st_mode
        if not mode & 0o004 or (path.is_dir() and not mode & 0o001):
            return False
    return True
