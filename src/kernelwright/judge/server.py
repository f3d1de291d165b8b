# SPDX-License-Identifier: Apache-2.0
"""JSON lines in, JSON lines out: one request per line, one result or error per request, each written whole.

Jobs that need the device run one after another; builds run beside them in threads. A result is one line written
at the end, so a judge killed at any moment has said nothing.
"""

from __future__ import annotations

import concurrent.futures
import json
import os
import queue
import sys
import threading
import time
import traceback
from collections.abc import Callable
from typing import Any, TextIO

from kernelwright.errors import CandidateError, JudgeFailed, KernelwrightError
from kernelwright.judge import calls, health
from kernelwright.sandbox import lease

BUILDERS = max(1, min(8, len(os.sched_getaffinity(0))))
Emit = Callable[[dict[str, Any]], None]
Handler = Callable[[dict[str, Any], Emit], dict[str, Any]]


class Server:
    """Serves ``jobs`` (name to handler) over two text streams. ``beside`` names those that may run in parallel."""

    def __init__(self, jobs: dict[str, Handler], beside: frozenset[str], replies: TextIO) -> None:
        self._jobs, self._beside, self._replies = jobs, beside, replies
        self._writing = threading.Lock()
        self._turn: queue.Queue[dict[str, Any] | None] = queue.Queue()

    def serve(self, requests: TextIO) -> None:
        """Until ``requests`` ends; then what was accepted is finished, and it returns."""
        device = threading.Thread(target=self._one_by_one, name="device")
        device.start()
        with concurrent.futures.ThreadPoolExecutor(BUILDERS, thread_name_prefix="build") as pool:
            for line in requests:
                if not line.strip():
                    continue
                request = self._parse(line)
                if request is None:
                    continue
                if request["job"] in self._beside:
                    pool.submit(self._answer, request)
                else:
                    self._turn.put({**request, "asked": time.monotonic()})
            self._turn.put(None)
            device.join()

    def _one_by_one(self) -> None:
        while True:
            request = self._turn.get()
            if request is None:
                return
            self._answer(request)

    def _parse(self, line: str) -> dict[str, Any] | None:
        try:
            request = json.loads(line)
        except json.JSONDecodeError as error:
            fault = CandidateError("A request is not JSON", line[:200], "one JSON object per line", str(error))
            self._write({"id": None, "error": fault.to_json()})
            return None
        if not isinstance(request, dict) or "id" not in request or not isinstance(request.get("job"), str):
            fault = CandidateError("A request lacks its id or job", line[:200], '{"id": 1, "job": "judge", ...}')
            self._write({"id": None, "error": fault.to_json()})
            return None
        return request

    def _answer(self, request: dict[str, Any]) -> None:
        key = request["id"]
        result, error = answer(self._jobs, request, lambda event: self._write({"id": key, "event": event}))
        self._write({"id": key, "error": error.to_json()} if error else {"id": key, "result": result})

    def _write(self, reply: dict[str, Any]) -> None:
        text = json.dumps(reply, separators=(",", ":"), allow_nan=True)
        with self._writing:
            self._replies.write(text + "\n")
            self._replies.flush()


def answer(
    jobs: dict[str, Handler], request: dict[str, Any], emit: Emit
) -> tuple[dict[str, Any] | None, KernelwrightError | None]:
    """Run one request: (result, None) or (None, error). A defect of the judge is logged and becomes JudgeFailed."""
    handler = jobs.get(request["job"])
    started = time.monotonic()
    try:
        if handler is None:
            raise JudgeFailed("The judge knows no such job", request["job"], ", ".join(sorted(jobs)))
        with lease.told(lambda text: emit({"waiting": text})) as waits:
            result = handler(request, emit)
        return {**result, "seconds": time.monotonic() - started, "waited": sum(waits)}, None
    except KernelwrightError as error:
        return None, error
    except calls.ANYTHING as error:  # an unanswered request would be waited for for ever
        sys.stderr.write(traceback.format_exc())
        sys.stderr.flush()
        return None, health.fault(error) or JudgeFailed(
            "The judge failed on a job", f"{type(error).__name__}: {error}", "a verdict", "see the judge's log"
        )
