# SPDX-License-Identifier: Apache-2.0
"""The judge's hold on one confined process: ask, wait within limits, stop and wake its group, say how it died."""

from __future__ import annotations

import contextlib
import os
import re
import select
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NoReturn

from kernelwright import sandbox
from kernelwright.judge import wires
from kernelwright.judge.placing import Places
from kernelwright.judge.states import States

SPIN_MS, SPARE_CORES = 50, 4
"""For how long one waits for the end of a window on a device without sleeping, where there are so many cores."""
LOOK_SECONDS = 0.05
"""How often a busy program's memory is looked at."""
STIRRED_NS = 2_000_000
"""CPU time that threads may use on their way into the stop: a large page fault or unmapping is not interrupted."""
FORGIVEN_NS = STIRRED_DEVICE_NS = 50_000_000
FORGIVEN_DEVICE_NS = 500_000_000
"""The same of a program on a GPU: honest Triton programs were seen to use over 2 ms inside the driver, and what a CPU
does in this time is nothing to a GPU.

So much is forgiven once on a CPU too: a thread that is called stopped may wait for its last moment on a CPU behind
others, and the host takes that CPU away in it. Of 200 honest programs beside other load one was refused, for 27.1 ms,
and of 66 kernels of other projects beside five more judges of a GPU one for 63.6; whoever works while stopped does so
before every window.
"""
STOP_SECONDS = 1.0
"""How long a program may take to stand still."""
CHANCES, CHANCE_SECONDS = 3, 0.05
LEAVING_SECONDS, MUTE = 0.1, 3
"""How long its threads may take to leave their CPUs once they are called stopped, and how often that may be in vain
before nobody waits for it any more: there are kernels that never say where a thread waits."""
_FATAL = re.compile(r"Fatal Python error: (Aborted|Segmentation fault|Bus error|Floating-point exception|Illegal)")
_SIGNALS = {
    "Aborted": "SIGABRT", "Segmentation fault": "SIGSEGV", "Bus error": "SIGBUS",
    "Floating-point exception": "SIGFPE", "Illegal": "SIGILL",
}  # fmt: skip


class ChildFailure(Exception):
    """A program failed. ``stage`` is one of ``trial.STAGES``; ``reason`` one line; ``detail`` evidence."""

    def __init__(self, stage: str, reason: str, detail: str = "") -> None:
        super().__init__(stage, reason, detail)
        self.stage, self.reason, self.detail = stage, reason, detail[-wires.TEXT :]

    def __str__(self) -> str:
        return f"{self.stage}: {self.reason}"


class Leash:
    """One process, its channel and its output file. ``collect`` kills, reaps and returns the wait status."""

    def __init__(
        self,
        pid: int,
        channel: socket.socket,
        output: int,
        limits: sandbox.Limits,
        collect: Callable[[int], int],
    ) -> None:
        self.pid, self.limits = pid, limits
        self._channel, self._output, self._collect = channel, output, collect
        self.cpu_clock: Callable[[int], int] | None = None
        """CPU nanoseconds a process has used so far; with it, work done while stopped is seen."""
        self._stood_at = 0
        self._stirred = False
        """It used more CPU time while stopped than a thread on its way there does, once."""
        self._mute = 0
        """How often its threads did not seem to leave their CPUs."""
        self.on_device = False
        self.family = False
        """It may start processes: they must stand still as well, and what they hold counts."""
        self.shared_bytes = 0
        """Shared memory the judge gave it, which does not count as its own."""
        self._stood: tuple[float, float | None] = (0.0, None)
        """Seconds for which it was ``excused``, and the moment since which it is again."""
        self._waking = threading.RLock()
        """Held while it is excused, or about to be woken."""
        self._ended = ""
        self._states = States()
        self.born_with, _ = sandbox.resident_bytes(pid)
        self._handle = os.pidfd_open(pid)
        self._poll = select.poll()
        self._poll.register(channel, select.POLLIN)
        self._poll.register(self._handle, select.POLLIN)

    def ask(self, request: dict[str, Any], stage: str, descriptors: Sequence[int] = ()) -> dict[str, Any]:
        """Wake the program, put a request to it, stop it again; its answer. Raises ChildFailure."""
        self.expect_silence()
        self.send(wires.encode(request), stage, descriptors)
        self.wake()
        answer = self.hear(stage, self.limits.seconds)
        if answer.get("ok") != request["do"]:
            self.end("integrity", "it answered a question nobody asked", repr(answer))
        return answer

    def hear(self, stage: str, seconds: float) -> dict[str, Any]:
        """The next JSON record, and the program stopped. Raises ChildFailure."""
        body = self.wait(stage, seconds)
        self.stop()
        try:
            answer = wires.decode(body)
        except ValueError:
            self.end("integrity", "it sent something that is no answer", repr(body[:200]))
        if "failed" in answer:
            self.fail(answer, stage)
        return answer

    def send(self, body: bytes, stage: str, descriptors: Sequence[int] = ()) -> None:
        """Put one record in its queue. Raises ChildFailure when it is gone."""
        if self._ended:
            raise ChildFailure(stage, f"it had already ended: {self._ended}")
        try:
            wires.send(self._channel, body, descriptors)
        except OSError:
            self.end(stage, "")

    def wait(self, stage: str, seconds: float, places: Places | None = None) -> bytes:
        """The next record, unchecked. Raises ChildFailure for a death, a hang, or too much memory.

        ``places``: where its threads stand; they are freed where no record comes until these are settled.
        """
        deadline = time.monotonic() - self._excused_seconds() + seconds
        spins = places is not None and self.on_device and len(os.sched_getaffinity(0)) >= SPARE_CORES
        heard = self._spun if spins else self._poll.poll
        if places is not None and not heard(places.settled_ms):
            places.free_others()
            if spins:
                self._spun(SPIN_MS)
        while not (ready := self._poll.poll(LOOK_SECONDS * 1000)):
            if time.monotonic() - self._excused_seconds() > deadline:
                self.end(stage, f"no answer within {seconds:g} s")
            self._look(stage)
        if any(descriptor == self._channel.fileno() and event & select.POLLIN for descriptor, event in ready):
            body, extra = b"", list[int]()
            with contextlib.suppress(ConnectionResetError):  # it died before it had read what it was told
                body, extra = wires.receive(self._channel)
            for descriptor in extra:
                os.close(descriptor)
            if body:
                return body
        self.end(stage, "")

    def speaks(self) -> bool:
        """Whether a record is there to be heard, or it is dead."""
        return bool(self._poll.poll(0))

    def _spun(self, milliseconds: int) -> bool:
        """Whether a record comes within this time, looked for without ever sleeping.

        On a virtual machine whoever sleeps is woken late: of the end of a window on an H200 a judge asleep heard after
        77 to 245 us, one that was awake after 25 to 39, and windows of 4 ms scattered by that.
        """
        until = time.monotonic() + milliseconds / 1000
        while not (heard := self.speaks()) and time.monotonic() < until:
            pass
        return heard

    @contextlib.contextmanager
    def excused(self) -> Iterator[None]:
        """Around what makes it stand still while another thread asks it: that time does not count as its own.

        Nobody wakes it inside; and whoever lets it go on at the end may not know that it had been stopped before.
        """
        with self._waking:
            before, since = self._stood[0], time.monotonic()
            self._stood = before, since
            try:
                yield
            finally:
                if self._stood_at and self._handle >= 0:
                    self._signal(signal.SIGSTOP)
                self._stood = before + time.monotonic() - since, None

    def _excused_seconds(self) -> float:
        before, since = self._stood
        return before if since is None else before + time.monotonic() - since

    def _look(self, stage: str) -> None:
        """Limits that no kernel counts for one program alone: resident memory, threads and processes."""
        held = [sandbox.resident_bytes(pid) for pid in self._members()]
        private = sum(max(0, own - self.born_with) for own, _ in held)  # a fork has most of it in common with its maker
        shared = max(together for _, together in held)
        if private + max(0, shared - self.shared_bytes) > self.limits.memory_bytes:
            self.end(stage, f"out of memory: more than {self.limits.memory_bytes >> 20} MiB")
        if sandbox.crowd(self.pid, self.limits.processes) > self.limits.processes:
            self.end(stage, f"more than {self.limits.processes} processes and threads")

    def expect_silence(self) -> None:
        """Nothing may wait in the channel before a request. Raises ChildFailure (stage integrity)."""
        if self._ended:
            return
        try:
            body = self._channel.recv(64, socket.MSG_DONTWAIT)
        except (BlockingIOError, ConnectionResetError):
            return
        if body:
            self.end("integrity", "it sent an answer before it was asked", repr(body))

    def fail(self, answer: Any, stage: str) -> NoReturn:
        """Raise the failure the program reported about itself."""
        told = answer["failed"] if isinstance(answer, dict) else None
        texts = [str(told.get(key, "")) for key in ("kind", "text", "detail")] if isinstance(told, dict) else [""] * 3
        kind, text, detail = map(_writable, texts)
        lead = {"structure": "wrong structure: ", "memory": "out of memory: ", "sandbox": ""}.get(kind, "raised ")
        if self.flooded():
            lead = f"endless output (more than {self.limits.output_bytes} bytes); {lead}"
        raise ChildFailure(stage, (lead + text)[:600], f"{self.output()}\n{detail}".strip())

    def refuse(self, body: bytes, stage: str) -> NoReturn:
        """Raise what ``body``, which is not the record that was due, means."""
        try:
            answer = wires.decode(body)
        except ValueError:
            answer = {}
        if "failed" in answer:
            self.fail(answer, stage)
        self.end("integrity", "it sent something that is no answer", repr(body[:200]))

    def end(self, stage: str, reason: str, detail: str = "") -> NoReturn:
        """Kill it and raise: for ``reason``, or for how it died when that is empty."""
        status = self.kill()
        reason = reason or self._death(status)
        if self.flooded():
            reason = f"endless output (more than {self.limits.output_bytes} bytes); {reason}"
        self._ended = reason
        raise ChildFailure(stage, reason, f"{self.output()}\n{detail}".strip())

    def kill(self) -> int:
        """Kill and reap it; its wait status. Safe to call twice (then 0)."""
        if self._handle < 0:
            return 0
        status = self._collect(self.pid)
        os.close(self._handle)
        self._handle = -1
        self._channel.close()
        self._states.close()
        self._ended = self._ended or "closed"
        return status

    def strike(self) -> None:
        """Kill its group and free nothing: whoever waits for an answer from it, in another thread, finds it dead."""
        if self._handle >= 0:
            self._signal(signal.SIGKILL)

    def forget(self) -> None:
        """Kill it and drop its output."""
        self.kill()
        if self._output >= 0:
            os.close(self._output)
            self._output = -1

    def stop(self) -> None:
        """Stop every thread and process of its group, and see that it stands still. Raises ChildFailure (stage
        integrity) where one does not.

        Every thread's state is waited for: on CUDA one inside the driver may go on for milliseconds, honestly. One that
        waits for a child of its own to start a program cannot stop before it has, and that child is stopped: so they
        get more than one chance.
        """
        for _ in range(CHANCES):
            if self._stands() or self.on_device:
                break
            self._signal(signal.SIGCONT)
            time.sleep(CHANCE_SECONDS)
        else:
            self.end("integrity", "a thread of it cannot be stopped")
        self._stood_at = self._settled(self.cpu_clock) if self.cpu_clock else 0

    def _settled(self, clock: Callable[[int], int]) -> int:
        """Its CPU time once all its threads have left their CPUs.

        A thread is called stopped just before, and what it ran since the last tick is added to the clock only when it
        leaves. Where a host takes a virtual CPU away in between, that is milliseconds: on 128 busy CPUs 16 of 2,476
        judgements of honest programs were refused for 2.2 to 6.2 ms, with a clock that stood still for two readings.
        """
        going = [] if self.on_device or self._mute >= MUTE else self._threads()  # in a driver one may go on for long
        deadline = time.monotonic() + LEAVING_SECONDS
        while (going := [t for t in going if self._leaves(t)]) and time.monotonic() < deadline:
            os.sched_yield()
        self._mute += bool(going)
        return clock(self.pid)

    def _stands(self) -> bool:
        """Tell its group to stop; whether every thread did within STOP_SECONDS."""
        self._signal(signal.SIGSTOP)
        deadline = time.monotonic() + STOP_SECONDS
        seen: set[str] = set()
        going = self._threads()
        while going and time.monotonic() < deadline:
            os.sched_yield()  # its threads may need this very CPU to get to their stop
            # One that stands stays so, and is not asked again: 29 files a look, on an H200. A last look finds new ones,
            # and on a CPU those that another process of the group has woken meanwhile.
            seen.update(going)
            going = [t for t in going if self._goes(t)] or [
                t for t in self._threads() if (t not in seen if self.on_device else self._goes(t))
            ]
        return not going

    def wake(self) -> None:
        """Let its group run. Raises ChildFailure (stage integrity) where it ran although it was stopped."""
        if self._stood_at and self.cpu_clock:
            used = self.cpu_clock(self.pid) - self._stood_at
            most, once = (STIRRED_DEVICE_NS, FORGIVEN_DEVICE_NS) if self.on_device else (STIRRED_NS, FORGIVEN_NS)
            if used > most:
                if self._stirred or used > once:
                    self.end("integrity", f"it ran for {used / 1e6:.1f} ms while it was stopped")
                self._stirred = True
        with self._waking:
            self._stood_at = 0
            self._signal(signal.SIGCONT)

    def _signal(self, number: signal.Signals) -> None:
        try:
            os.killpg(self.pid, number)
        except ProcessLookupError:
            return  # the next wait says how it died

    def _members(self) -> list[int]:
        """Its processes, itself first."""
        return sandbox.family(self.pid) if self.family else [self.pid]

    def _threads(self) -> list[str]:
        """The folders of all threads of its processes; none where it is gone."""
        found = []
        for pid in self._members():
            with contextlib.suppress(OSError):
                found += [f"/proc/{pid}/task/{thread}" for thread in os.listdir(f"/proc/{pid}/task")]
        return found

    def _goes(self, thread: str) -> bool:
        """Whether a thread has yet to stop: one inside a long system call stops only when that returns."""
        return self._states.of(f"{thread}/stat") not in b"TtZX"

    def _leaves(self, thread: str) -> bool:
        """Whether a stopped thread has yet to leave its CPU, or the queue for it."""
        return self._states.waits(f"{thread}/wchan") is False and self._states.of(f"{thread}/stat") in b"Tt"

    def flooded(self) -> bool:
        """Whether it filled its output file."""
        return self._output >= 0 and os.lseek(self._output, 0, os.SEEK_CUR) > 0.95 * self.limits.output_bytes

    def output(self) -> str:
        """The last part of what it wrote to stdout and stderr."""
        if self._output < 0:
            return ""
        written = min(os.lseek(self._output, 0, os.SEEK_CUR), self.limits.output_bytes)
        start = max(0, written - wires.TEXT)
        return os.pread(self._output, written - start, start).decode(errors="replace")

    def _death(self, status: int) -> str:
        """How it died. An abort of a namespace's first process ends as SIGSEGV; its output says what it was."""
        words = sandbox.death(status) if status >= 0 else "disappeared"
        found = _FATAL.search(self.output())
        return f"killed by {_SIGNALS[found[1]]}" if found and words.startswith("killed by") else words


def _writable(text: str) -> str:
    """Text that any file takes: halves of surrogate pairs, which JSON lets through, are in no encoding."""
    return text.encode("utf-8", "replace").decode()
