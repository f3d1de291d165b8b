# SPDX-License-Identifier: Apache-2.0
"""The two long-lived children of a run, a judge worker and a proposer host, made once and shared between runs."""

from __future__ import annotations

from kernelwright import settings
from kernelwright.optimize.host import Host, ProposerHost
from kernelwright.workers import LocalWorker, Worker


class Services:
    """A worker for one device and a proposer host; both start on first use and end with ``close``.

    Doubles may be passed in place of either; those are used, and closed, as the real ones are.
    """

    def __init__(self, device: str, *, worker: Worker | None = None, host: Host | None = None) -> None:
        self.device = device
        known = settings.read()
        state = known.home / "judge"
        self.worker: Worker = worker or LocalWorker(device, state, known.home / "built")
        known.home.mkdir(parents=True, exist_ok=True)
        self.host: Host = host or ProposerHost(known.home)

    def close(self) -> None:
        """End both; calling it twice is harmless."""
        self.host.close()
        self.worker.close()

    def __enter__(self) -> Services:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()
