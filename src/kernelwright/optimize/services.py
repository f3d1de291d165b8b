# SPDX-License-Identifier: Apache-2.0
"""The two long-lived children of a run, a judge worker and a proposer host, and what is known of the device.

Made once and shared between runs: their imports and the measurement of the device are paid once.
"""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from kernelwright import kinds, settings, wire
from kernelwright.errors import CacheUnwritable, DeviceLost
from kernelwright.machine import Machine
from kernelwright.optimize.host import Host, ProposerHost
from kernelwright.sandbox import lease
from kernelwright.task import Task
from kernelwright.workers import LocalWorker, Worker

Say = Callable[[str], None]
"""What hears, in a sentence each, what is being done."""


def silent(text: str) -> None:
    """Hears nothing."""


def caches() -> Path:
    """The folder of caches, made where it is not there. Raises CacheUnwritable."""
    home = settings.read().home
    try:
        home.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=home):
            return home
    except OSError as error:
        raise CacheUnwritable(
            f"The folder of caches {home} cannot be written.",
            got=str(error),
            expected="a folder on a disk with free space",
            what_next="set KERNELWRIGHT_HOME to one, or free space",
        ) from error


def _nobody(seconds: float) -> None:
    """Counts nothing."""


class Services:
    """A worker for one device and a proposer host; both start on first use and end with ``close``.

    Doubles may be passed in place of either; those are used, and closed, as the real ones are.
    """

    @kinds.checked
    def __init__(self, device: str, *, worker: Worker | None = None, host: Host | None = None) -> None:
        self.device = device = settings.device(device)
        home = caches()
        self._machine: Machine | None = None
        self.waited: Callable[[float], None] = _nobody
        """Hears how many seconds ``share`` waited for a judge."""
        self._tell: Say = silent
        self._lease = lease.Lease(device) if device == "cpu" else None
        self.worker: Worker = worker or LocalWorker(device, home / "judge", home / "built")
        self.host: Host = host or ProposerHost(home, share=self.share)

    def hear(self, say: Say) -> None:
        """From now on ``say`` hears that another judge has the device: the first time, for they take turns all the
        time."""
        said: list[str] = []

        def once(text: str) -> None:
            if not said:
                said.append(text)
                say(text)

        self.worker.hears = self._tell = once

    @contextlib.contextmanager
    def share(self) -> Iterator[None]:
        """Around work of this process, and of the host, on the processors that a judge times: they take turns."""
        if self._lease is None:
            yield
            return
        with lease.told(self._tell) as waits, contextlib.ExitStack() as kept:
            with contextlib.suppress(DeviceLost):  # somebody has had it for ten minutes: no reason to lose a run
                kept.enter_context(self._lease.shared())
            self.waited(sum(waits))
            yield

    def machine(self, say: Say = silent) -> Machine:
        """Facts of the device: measured at its first use ever (15 s to a minute), then from the judge's cache.

        ``say`` hears what is being measured. Raises NoSuchDevice.
        """
        if self._machine is None:
            reply = self.worker.run(
                {"job": "machine", "device": self.device, "measure": True},
                lambda event: say(
                    f"measuring this device, once: {event.get('share', 0.0):4.0%} {event.get('measuring', '')}"
                ),
            )
            self._machine = wire.from_data(Machine, reply["machine"])
        return self._machine

    def describe(self, task: Task) -> dict[str, Any]:
        """Facts of a task on this device: its leaves, eager's rough time, the bound. Raises TaskError."""
        return self.worker.run(
            {
                "job": "describe",
                "device": self.device,
                "task": wire.to_data(task),
                "machine": wire.to_data(self.machine()),
            }
        )

    def interrupt(self) -> None:
        """End the runs that use these as an interrupt would, from another thread: each keeps what it has found."""
        self.worker.interrupt()

    def close(self) -> None:
        """End both; calling it twice is harmless."""
        self.host.close()
        self.worker.close()

    def __enter__(self) -> Services:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()


def bound_of(facts: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of a judge job that state the bound, from the judge's answer to ``describe``."""
    return {"bound_us": facts.get("bound_us"), "limiter": facts.get("limiter", "unknown")}
