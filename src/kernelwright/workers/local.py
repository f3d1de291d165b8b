# SPDX-License-Identifier: Apache-2.0
"""One judge process per device on this machine: started on first use, restarted once when it dies under a job."""

from __future__ import annotations

import concurrent.futures
import itertools
import queue
import sys
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from kernelwright import sandbox
from kernelwright.errors import JudgeFailed, KernelwrightError, ReferenceFails, from_json

Reply = dict[str, Any]
LOST: Reply = {"lost": True}
"""What a waiting job reads when the judge that held it is gone."""
JOB_SECONDS = 1800.0
"""A job that takes longer than this means a judge that no longer works: its own limits are far below."""


class LocalWorker:
    """Runs judge jobs for one device in ``python -m kernelwright.judge --serve``.

    ``state_dir`` keeps what survives a judge (compiled baselines, logs), ``cache_dir`` built candidates; both are
    made when absent. ``env`` is the environment of the judge (None: the allow-listed part of ours). Thread-safe.
    """

    def __init__(
        self,
        device: str,
        state_dir: Path,
        cache_dir: Path,
        *,
        env: Mapping[str, str] | None = None,
        threads: int = 8,
        command: tuple[str, ...] = (sys.executable, "-m", "kernelwright.judge"),
    ) -> None:
        self.device = device
        self._state, self._cache, self._env, self._command = state_dir, cache_dir, env, command
        self._starting = threading.Lock()
        self._sending = threading.Lock()
        self._ids = itertools.count(1)
        self._judge: _Judge | None = None
        self._closed = self._interrupted = False
        self._abandoned = 0
        self._threads = threads
        self.hears: Callable[[str], None] | None = None
        """See Worker."""
        self._pool = self._new_pool()

    def run(self, job: dict[str, Any], on_event: Callable[[dict[str, Any]], None] | None = None) -> Reply:
        """The result of ``job``; its events go to ``on_event`` as they come.

        Raises the KernelwrightError that the judge answered, JudgeFailed when two judges died under it, or
        KeyboardInterrupt (``interrupt``). A fault that
        may pass (``errors``: a lost device, a full disk) counts once it has come again in a fresh judge."""
        request, abandoned = {"device": self.device, **job}, self._abandoned
        restarted = ""
        for attempt in range(2):
            self._go_on()
            judge = self._live_judge()
            reply = self._ask(judge, {**request, "id": next(self._ids)}, on_event)
            if "result" in reply:
                return _told(reply["result"], restarted)
            if "error" in reply:
                error = from_json(reply["error"])
                if not error.passing:
                    raise error
                judge.fault = error
                judge.end()
                if attempt or self._closed or abandoned != self._abandoned:
                    raise again(error)
                restarted = f"{type(error).__name__}: {error.got or error.what}"
                continue
            if self._closed or abandoned != self._abandoned:
                break
            restarted = judge.last_words()
            if on_event is not None:
                on_event({"restarted": restarted})
        self._go_on()
        if judge.fault is not None and abandoned == self._abandoned and not self._closed:
            raise again(judge.fault)  # a job beside this one met it, and the judge was ended for that
        if "task" in request and judge.child.ending.startswith("exit status") and abandoned == self._abandoned:
            raise ReferenceFails(
                f"The reference of {request['task'].get('name', 'this task')} ends the process that it runs in.",
                got=judge.last_words(),
                expected="code that returns or raises",
                what_next="take os._exit, or what calls exit, out of it",
            )
        why = ", twice" if abandoned == self._abandoned else ": it was given up"
        raise JudgeFailed(
            "The judge died under a job" + (": the worker was closed" if self._closed else why),
            got=judge.last_words(),
            expected="one result or error",
            what_next="choose smaller sizes: the system kills what takes too much memory"
            if "SIGKILL" in judge.child.ending
            else "run the reference alone with Python: what kills its process kills the judge, which runs it",
        )

    def submit(
        self, job: dict[str, Any], on_event: Callable[[dict[str, Any]], None] | None = None
    ) -> concurrent.futures.Future[Reply]:
        """``run`` in a thread."""
        return self._pool.submit(self.run, job, on_event)

    def abandon(self) -> None:
        """See Worker: the judge is killed, because a job that computes cannot be told to stop."""
        self._abandoned += 1
        with self._starting:
            pool, self._pool = self._pool, self._new_pool()
            if self._judge is not None:
                self._judge.end()
        pool.shutdown(wait=False, cancel_futures=True)

    def interrupt(self) -> None:
        """See Worker."""
        self._interrupted = True
        with self._starting:
            if self._judge is not None:
                self._judge.end()

    def _go_on(self) -> None:
        if self._interrupted:
            raise KeyboardInterrupt

    def _new_pool(self) -> concurrent.futures.ThreadPoolExecutor:
        return concurrent.futures.ThreadPoolExecutor(self._threads, thread_name_prefix=f"worker-{self.device}")

    def close(self) -> None:
        """End the judge; jobs still waiting raise JudgeFailed."""
        self._closed = True
        with self._starting:
            if self._judge is not None:
                self._judge.end()
                self._judge = None
        self._pool.shutdown(wait=True, cancel_futures=True)

    def __enter__(self) -> LocalWorker:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def _live_judge(self) -> _Judge:
        with self._starting:
            if self._closed:
                raise JudgeFailed("The worker is closed", what_next="make a new one")
            if self._judge is None or not self._judge.alive:
                self._state.mkdir(parents=True, exist_ok=True)
                self._cache.mkdir(parents=True, exist_ok=True)
                places = ("--state", str(self._state), "--cache", str(self._cache))
                argv = [*self._command, "--serve", "--device", self.device, *places]
                self._judge = _Judge(sandbox.start(argv, env=self._environment(), cwd=self._state))
            return self._judge

    def _environment(self) -> dict[str, str]:
        """The judge's own threads sleep when idle: spinning, they would take a core from what is timed. Its large
        tensors lie in huge pages where the kernel has them: made and given back all the time, they cost a third."""
        names = sandbox.trusted() if self._env is None else dict(self._env)
        return {"OMP_WAIT_POLICY": "PASSIVE", "GLIBC_TUNABLES": "glibc.malloc.hugetlb=1"} | names

    def _ask(self, judge: _Judge, request: dict[str, Any], on_event: Callable[[dict[str, Any]], None] | None) -> Reply:
        replies = judge.expect(request["id"])
        try:
            try:
                with self._sending:
                    judge.child.send(request)
            except JudgeFailed:
                return LOST
            while True:
                try:
                    reply = replies.get(timeout=JOB_SECONDS)
                except queue.Empty:
                    judge.end()
                    return LOST
                if "event" not in reply:
                    return reply
                if "waiting" in reply["event"] and self.hears is not None:
                    self.hears(reply["event"]["waiting"])
                elif on_event is not None:
                    on_event(reply["event"])
        finally:
            judge.forget(request["id"])


def again(error: KernelwrightError) -> KernelwrightError:
    """The same error, and that a fresh process met it too."""
    got = f"{error.got}; the same again in a fresh process" if error.got else "the same again in a fresh process"
    return type(error)(error.what, got, error.expected, error.what_next)


def _told(result: Reply, restarted: str) -> Reply:
    """The result, and in the conditions of a time why its judge was not the first."""
    if not restarted:
        return result
    outcome = result.get("outcome")
    if isinstance(outcome, dict) and "conditions" in outcome:
        said = f"judged by a second judge, the first ended: {restarted.splitlines()[0][:200]}"
        outcome = {**outcome, "conditions": [*outcome["conditions"], said]}
        result = {**result, "outcome": outcome}
    return {**result, "restarted": restarted}


class _Judge:
    """A running judge and the jobs that wait for its replies."""

    def __init__(self, child: sandbox.Child) -> None:
        self.child = child
        self.fault: KernelwrightError | None = None
        """The fault of the moment that it was ended for."""
        self._waiting: dict[int, queue.Queue[Reply]] = {}
        self._lock = threading.Lock()
        self._over = False
        self._reader = threading.Thread(target=self._read, name="judge-replies", daemon=True)
        self._reader.start()

    @property
    def alive(self) -> bool:
        return not self._over and self.child.alive

    def expect(self, key: int) -> queue.Queue[Reply]:
        replies: queue.Queue[Reply] = queue.Queue()
        with self._lock:
            if self._over:
                replies.put(LOST)
            self._waiting[key] = replies
        return replies

    def forget(self, key: int) -> None:
        with self._lock:
            self._waiting.pop(key, None)

    def tail(self) -> str:
        """The last lines of the judge's log."""
        return self.child.error_tail()[-1000:]

    def last_words(self) -> str:
        """How it ended, and the last lines of its log."""
        return "\n".join(part for part in (self.child.ending, self.tail()) if part)

    def end(self) -> None:
        self.child.kill()
        if threading.current_thread() is not self._reader:
            self._reader.join(timeout=5.0)

    def _read(self) -> None:
        while True:
            try:
                reply = self.child.receive(timeout=1.0)
            except (OSError, ValueError):
                break  # ``end`` closed the pipe under us
            except JudgeFailed:  # nonsense on its output: whatever else it would say is not to be believed
                self.child.kill()
                break
            if reply is None:
                if self.child.alive:
                    continue
                break
            with self._lock:
                waiting = self._waiting.get(reply.get("id", -1))
            if waiting is not None:
                waiting.put(reply)
        with self._lock:
            self._over = True
            for waiting in self._waiting.values():
                waiting.put(LOST)
