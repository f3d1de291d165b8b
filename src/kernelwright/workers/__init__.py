# SPDX-License-Identifier: Apache-2.0
"""Workers run judge jobs somewhere: the protocol, and one judge per device on this machine."""

from __future__ import annotations

import concurrent.futures
from collections.abc import Callable
from typing import Any, Protocol

from kernelwright.workers.local import LocalWorker

__all__ = ["LocalWorker", "Worker"]


class Worker(Protocol):
    """Where judge jobs run. A job is the JSON object of the judge's protocol without its id."""

    hears: Callable[[str], None] | None
    """What hears that a job waits for the device, which another judge has; called in other threads."""

    def run(self, job: dict[str, Any], on_event: Callable[[dict[str, Any]], None] | None = None) -> dict[str, Any]:
        """The job's result. Raises the KernelwrightError that the judge answered, or JudgeFailed."""
        ...

    def submit(
        self, job: dict[str, Any], on_event: Callable[[dict[str, Any]], None] | None = None
    ) -> concurrent.futures.Future[dict[str, Any]]:
        """The same, later; ``on_event`` is called in another thread."""
        ...

    def abandon(self) -> None:
        """Give up every job in progress or waiting, at once; the next job is served as if by a new worker."""
        ...

    def interrupt(self) -> None:
        """From another thread: whoever asks for a job, or waits for one, gets a KeyboardInterrupt from now on."""
        ...

    def close(self) -> None:
        """End the judge and everything it started."""
        ...
