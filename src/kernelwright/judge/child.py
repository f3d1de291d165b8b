# SPDX-License-Identifier: Apache-2.0
"""The judge's handle on confined programs: a zygote that forks them, and one ``Program`` per candidate or baseline.

Whatever a program does, each method returns or raises ``ChildFailure`` within the limits; the judge goes on.
"""

from __future__ import annotations

import fcntl
import json
import os
import secrets
import select
import socket
import struct
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch

from kernelwright import sandbox
from kernelwright.errors import JudgeFailed
from kernelwright.judge import buffers, load, skeletons, wires
from kernelwright.judge.buffers import Buffers, CallPlan, Regions, TensorSpec
from kernelwright.judge.leash import ChildFailure, Leash
from kernelwright.judge.placing import Places
from kernelwright.judge.window import Harvest, Window

__all__ = ["ChildFailure", "Program", "Window", "Zygote"]

_ROOT = str(Path(__file__).resolve().parents[2])
_BOOT = "import sys, json; sys.path[:] = json.loads(sys.argv[3]); from kernelwright.judge.zygote import main; main()"
_START_SECONDS, _FORK_SECONDS = 120.0, 20.0

Clock = Callable[[int], int]
"""Nanoseconds: of wall time for 0, of CPU time used by all threads of a process for its id (0 once it is gone)."""


class Zygote:
    """One preloaded process per judge that forks confined programs; restarted once when a fork fails."""

    def __init__(
        self, preload: Sequence[str] = ("torch",), *, clock: Clock, env: Mapping[str, str] | None = None
    ) -> None:
        self.preload, self.clock, self._env = tuple(preload), clock, dict(env or {})
        self._process: sandbox.Child | None = None
        self._channel: socket.socket | None = None
        self.own_root = False
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
            self.close()
            self._start()
            return self._fork(request, limits)

    @property
    def pid(self) -> int:
        """Process id of the zygote, 0 when closed."""
        return self._process.pid if self._process is not None else 0

    def close(self) -> None:
        """End the zygote and every program it started. Safe to call twice."""
        if self._channel is not None:
            self._channel.close()
            self._channel = None
        if self._process is not None:
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
        if not _readable(ours, _START_SECONDS):
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
            if not _readable(self._channel, _FORK_SECONDS):
                raise JudgeFailed("the zygote does not answer")
            return self._answer()

    def _answer(self) -> dict[str, Any]:
        assert self._channel is not None and self._process is not None
        body, _ = wires.receive(self._channel)
        if not body:
            raise JudgeFailed("the zygote died", got=self._process.error_tail())
        return wires.decode(body)


class Program:
    """One confined process. It runs only inside these methods: between them its whole group is stopped."""

    def __init__(self, leash: Leash, device: str, clock: Clock) -> None:
        self.device, self.limits, self.born_with = device, leash.limits, leash.born_with
        self.stage = "smoke"
        """Stage that failures of ``window`` carry; whoever drives the program moves it on."""
        self.buffers: Buffers | None = None
        self.watched = False
        """Look where results lie after every window (1 ms, outside the clock)."""
        self.spared: frozenset[int] | None = None
        """Results that stay as they were once they were read (None: all); on a CPU others are spoilt if ``watched``."""
        self.written: Sequence[int] = ()
        """Inputs that a call writes to, by leaf."""
        self.leash, self.clock, self._places = leash, clock, Places(leash.pid, learns=device == "cpu")
        leash.cpu_clock, leash.on_device = clock, device != "cpu"
        self._weights: Regions | None = None
        self._names: list[str] = []
        self.level = str(leash.hear("sandbox", leash.limits.seconds + _FORK_SECONDS).get("level", ""))
        """The isolation reached, in words."""

    @property
    def pid(self) -> int:
        """Process id, also the id of its group, as the judge sees it."""
        return self.leash.pid

    def load(
        self,
        entry: str,
        init_args: Sequence[Any] = (),
        init_kwargs: Mapping[str, Any] | None = None,
        state: Sequence[tuple[str, torch.Tensor]] = (),
        *,
        training: bool = False,
        autocast: str = "",
        seeds: tuple[int, int] = (1, 1),
        imports: Sequence[str] = (),
    ) -> None:
        """Import ``FILE.py::CLASS``, construct it with these arguments, move it to the device, load ``state`` strictly.

        ``autocast`` names a dtype (``bfloat16``) to run every call under. ``seeds`` of Python's generator, and of
        numpy's and torch's, under which it is constructed. ``imports``: folders on its path. Raises ChildFailure.
        """
        arguments, first = skeletons.flatten(list(init_args), named=True)
        keywords, second = skeletons.flatten(dict(init_kwargs or {}), named=True)
        keywords = skeletons.shifted(keywords, len(first))
        self._names = [name for name, _ in state]
        tensors = [*(tensor for _, tensor in state), *first, *second]
        specs = [TensorSpec.contiguous(tensor.shape, tensor.dtype) for tensor in tensors]
        if tensors:
            self._weights = Regions.create(specs, self.device)
            self._fill_weights(tensors)
            self.leash.shared_bytes += self._weights.arena.size
        arena = self._weights.arena if self._weights else None
        request = {
            "do": "load", "entry": entry, "init_args": arguments, "init_kwargs": keywords, "names": self._names,
            "specs": [spec.to_json() for spec in specs], "training": training, "autocast": autocast, "seeds": seeds,
            "size": arena.size if arena else 0, "imports": list(imports),
        }  # fmt: skip
        self.leash.ask(request, "load", [arena.fd] if arena else [])
        if arena:
            arena.close_fd()

    def set_state(self, state: Sequence[tuple[str, torch.Tensor]]) -> None:
        """Load other weights (same names, shapes and dtypes as at ``load``)."""
        if [name for name, _ in state] != self._names:
            raise ValueError("set_state needs the names given to load, in order")
        if state:
            self._fill_weights([tensor for _, tensor in state])
        self.leash.ask({"do": "state"}, self.stage)

    def say_state(self) -> None:
        """Have the program write its module's weights and buffers, as they are now, where ``said_state`` finds them."""
        self.leash.ask({"do": "read_state"}, self.stage)

    def said_state(self) -> list[tuple[str, torch.Tensor]]:
        """Copies of what it wrote last."""
        tensors = self._weights.tensors() if self._weights else []
        return [(name, tensor.clone()) for name, tensor in zip(self._names, tensors, strict=False)]

    def perturb(self, *, on: bool) -> None:
        """Whether memory the program has not written to holds rubbish; not for timing."""
        self.leash.ask({"do": "perturb", "on": on}, self.stage)

    def seed(self, seed: int) -> None:
        """torch.manual_seed in the program."""
        self.leash.ask({"do": "seed", "seed": seed}, self.stage)

    def mode(self, *, training: bool) -> None:
        """Switch the module between train() and eval()."""
        self.leash.ask({"do": "mode", "training": training}, self.stage)

    def bind(self, plan: CallPlan) -> Buffers:
        """Shared memory for the plan's call sets, mapped on both sides: that of the plan before, where large enough.

        New pages cost 0.2 s for 96 MiB on two cores, and a GPU's stay mapped in the program: 30 GB, once, by its race.
        """
        old = self.buffers
        asked = {"do": "bind", "plan": plan.to_json(), "spared": None if self.spared is None else sorted(self.spared)}
        if old is not None and old.holds(plan):
            self.buffers = Buffers.anew(old.arena, plan)
            self.leash.ask({**asked, "size": 0}, "load")
            return self.buffers
        self.buffers = Buffers.create(plan, self.device)
        self.leash.shared_bytes += (arena := self.buffers.arena).size
        self.leash.ask({**asked, "size": arena.size}, "load", [arena.fd])
        arena.close_fd()
        if old is not None:
            old.close()
        return self.buffers

    def window(self, order: Sequence[int], *, grad: bool = False, keep: bool = False) -> Window:
        """Wake the program, run one call on each set of ``order`` back to back, have the results delivered, stop it.

        An empty ``order`` measures the overhead. Only the outputs of sets in ``order`` are written. ``keep``: the
        results stay alive until those of a later window are delivered without it. Raises ChildFailure.
        """
        if len(order) > wires.MOST_CALLS:
            raise ValueError(f"a window of {len(order)} calls; the most is {wires.MOST_CALLS}")
        number = secrets.randbits(63)
        go, done = wires.go(number, order, grad=grad), wires.mark(wires.DONE, number)
        leash, on_device = self.leash, self.device != "cpu"
        leash.expect_silence()
        self._places.put()
        strained = load.strain(self.pid, len(order), first=on_device)
        begin = self.clock(0)
        leash.wake()
        self._places.free_first()
        leash.send(go, self.stage)
        body = leash.wait(self.stage, self.limits.seconds, self._places)
        end = self.clock(0)
        if not on_device:  # at once: what another thread still does is not done
            leash.stop()
        self._places.look(len(order))
        strained = load.strain(self.pid, len(order), first=on_device).since(strained)
        if body[: len(done)] != done:
            leash.stop()
            leash.refuse(body, self.stage)
        used = self.clock(self.pid)
        harvest = Harvest(self.pid, self.buffers, order, self.written, grad=grad)
        harvest.read(body[len(done) :], watched=self.watched, spared=self.spared)
        asked = self.clock(0)
        leash.send(wires.asking(number, taken=harvest.taken, keep=keep), self.stage)
        leash.wake()
        body = leash.wait(self.stage, self.limits.seconds)
        given = self.clock(0)
        leash.stop()
        used = max(0, self.clock(self.pid) - used)
        own_us, aliases = self.delivered(body, number)
        if harvest.fault:  # its delivery did not say what is wrong with its results
            leash.end("integrity", harvest.fault)
        harvest.put()
        if (found := harvest.whereabouts) is not None:
            aliases = tuple({*aliases, *found.aliases})
        delivery_ns = used if harvest.whole else given - asked  # other processes of its own may have delivered
        return Window(
            (end - begin) / 1e3, (given - asked) / 1e3, strained, delivery_ns / 1e3, (own_us,), aliases, found
        )

    def delivered(self, body: bytes, number: int) -> tuple[float, tuple[tuple[int, int], ...]]:
        """What it says after a delivery; raises ChildFailure where that is none."""
        try:
            echoed, own_us, aliases = wires.parse_delivered(body)
        except (struct.error, ValueError):
            echoed = -1
        if echoed != number or body[:1] != wires.DELIVERED:
            self.leash.refuse(body, self.stage)
        return own_us, aliases

    def output(self) -> str:
        """The last part of what the program wrote to stdout and stderr."""
        return self.leash.output()

    def close(self) -> None:
        """Kill the program and free what it used. Safe to call twice."""
        self.leash.forget()
        if self.buffers is not None:
            self.buffers.close()
        if self._weights is not None:
            self._weights.arena.close()

    def __enter__(self) -> Program:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _fill_weights(self, tensors: Sequence[torch.Tensor]) -> None:
        assert self._weights is not None
        for target, tensor in zip(self._weights.tensors(), tensors, strict=False):
            target.copy_(tensor.detach())
        self._settle()

    def _settle(self) -> None:
        """What the judge wrote must be there before the other process reads it."""
        if self.device != "cpu":
            torch.cuda.synchronize(self.device)


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


def _readable(channel: socket.socket, seconds: float) -> bool:
    return bool(select.select([channel], [], [], seconds)[0])
