# SPDX-License-Identifier: Apache-2.0
"""The baselines as running programs: started once per task, compiled in the background, frozen while others run."""

from __future__ import annotations

import contextlib
import functools
import os
import signal
import threading
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import torch

from kernelwright.candidate import Candidate
from kernelwright.errors import JudgeFailed, NotEnoughMemory
from kernelwright.judge import baselines, health, race, refusals, spoilt, timing_plan, unfinished, waiting
from kernelwright.judge.also.scene import Contender
from kernelwright.judge.bench import Bench, Point
from kernelwright.judge.build import build
from kernelwright.judge.entrant import Entrant
from kernelwright.judge.leash import ChildFailure
from kernelwright.judge.loading import load
from kernelwright.judge.program import Program
from kernelwright.judge.programs import Programs
from kernelwright.trial import Rejected

RENEWED_BYTES = 64 << 20
"""Inputs, outputs and weights of a call up to which a baseline that compiles nothing is started anew for every race:
half a second, and what a call takes depends on where they lie."""
DEVICE_RENEWED_BYTES, DEVICE_RACES = 1 << 30, 8
"""The same on a device, where it has a context to make: after so many races, of four proofs."""
SIZING_CALLS, DEVICE_SIZING_CALLS, SIZING_BYTES = 3, 64, 1 << 30
"""Of a window of three calls on an H200 the overhead, which varies by 0.3 ms, is most: a call of 33 us counted as 108.
There as many are run as take up SIZING_BYTES, at the most."""


def crowded(bench: Bench, said: str) -> bool:
    """Whether it may be the call sets of all programs that filled a device where one says that it is full: several are
    bound."""
    if str(bench.device) == "cpu" or not health.is_full(said):
        return False
    return bench.plan(timing_plan.PRECISE, 2).sets > 1


class Entrants:
    """Starts baselines with ``programs``; what they compile is kept below ``state``."""

    def __init__(self, programs: Programs, state: Path, cache: Path) -> None:
        self._programs, self._state, self._cache = programs, state, cache
        self._warming: list[tuple[threading.Thread, Entrant]] = []

    def of(self, bench: Bench, name: str) -> Entrant:
        """A baseline, started if it is not yet; one that compiles goes on warming in a thread."""
        if name in bench.entrants and bench.entrants[name].fault is None:
            return bench.entrants[name]
        kind = baselines.KINDS[name]
        candidate = baselines.program(bench.task, kind)
        folder = build(candidate, str(bench.device), self._cache)
        if isinstance(folder, Rejected):
            raise JudgeFailed("A baseline cannot be written", folder.reason, "a folder")
        own = self._own(bench, kind)
        # Drawn here: the reference's own drawing uses the generator of the process, one user at a time.
        leaves = bench.timed.instance.draw(bench.timed.as_given, bench.seed)
        entrant = bench.entrants[name] = Entrant(name=name, program=None, failure="", warming=None)
        start = functools.partial(self._begin, bench, entrant, candidate, folder, own, leaves)
        if kind.compiles:
            entrant.warming = threading.Thread(target=start)
            # Here alone, for the lease's own thread reads it: one that drops what it has not seen would lose this one.
            self._warming = [pair for pair in self._warming if pair[0].is_alive()] + [(entrant.warming, entrant)]
            entrant.warming.start()
        else:
            start()
            on_cpu = str(bench.device) == "cpu"
            most, lasts = (RENEWED_BYTES, 1) if on_cpu else (DEVICE_RENEWED_BYTES, DEVICE_RACES)
            if bench.call_bytes <= most:
                entrant.start, entrant.lasts = start, lasts
        return entrant

    def contender(self, bench: Bench, name: str) -> Contender:
        """A baseline as a program that can be started again, apart from the one that is kept warm."""
        kind = baselines.KINDS[name]
        seconds = waiting.seconds(bench.eager_us, kind.compiles)
        candidate = baselines.program(bench.task, kind)
        return Contender(name=name, candidate=candidate, own=self._own(bench, kind), seconds=seconds)

    def _own(self, bench: Bench, kind: baselines.Kind) -> Path | None:
        return self._state / "baselines" / bench.task.digest() / kind.name if kind.compiles else None

    def _begin(
        self,
        bench: Bench,
        entrant: Entrant,
        candidate: Candidate,
        folder: Path,
        own: Path | None,
        leaves: list[torch.Tensor],
    ) -> None:
        """Load, bind and warm: compilers, autotuners and page faults are paid here, once."""
        instance = bench.timed.instance
        try:
            limit = waiting.seconds(bench.eager_us, own is not None)
            program = self._programs.fork(str(bench.device), folder, limit, own, in_threads=True)
            entrant.program = program
            if entrant.unwanted:
                raise ChildFailure("load", "nobody waits for it any more")
            with unfinished.written(own):
                load(program, candidate.entry, instance)
                ran = 0
                if entrant.name == "eager" and not bench.sized:  # once: all baselines are bound to equally many sets
                    ran = self._size_up(bench, program, leaves)
                sets, program.shown = bench.plan(timing_plan.PRECISE, 2).sets, bench.eager_aliases
                if bench.device.type != "cpu" and instance.giver.keeps:  # what spoilt memory costs, it costs all
                    program.spared = bench.eager_shared
                _bind(program, bench.timed, sets, leaves)
                if ran < sets or bench.device.type != "cpu":
                    program.window(list(range(sets)), grad=bench.contract.gradients)
        except Exception as failure:  # noqa: BLE001 - one that ends this thread would lose the baseline unsaid
            entrant.failure = str(failure)[:300] or type(failure).__name__
            if not isinstance(failure, OSError):  # of a full disk ``blame_disk`` asks whether it is full
                entrant.fault = health.fault(failure)
            needed = entrant.name == "eager" and bench.device.type != "cpu" and health.is_full(entrant.failure)
            if entrant.fault is None and (needed or crowded(bench, entrant.failure)):  # it may run beside fewer
                entrant.fault = health.fault(torch.OutOfMemoryError(entrant.failure))
            if entrant.program is not None:
                entrant.program.close()
                entrant.program = None

    def blame_disk(self, entrants: Iterable[Entrant]) -> None:
        """Raise DiskFull where one of these is missing for want of room: a speedup over the others would flatter."""
        for entrant in entrants:
            health.blame_disk(entrant.failure, self._state)

    def blame_device(self, bench: Bench, outcome: object) -> None:
        """Raise NotEnoughMemory where a candidate was refused for want of memory on a device that had less left for it
        than eager takes: on an H100 of which another program held 64 GiB the reference itself was refused. That is
        measured, for who says so falsely would be judged in windows of one call, in which less is seen."""
        eager = bench.entrants.get("eager")
        if not isinstance(outcome, Rejected) or bench.device.type == "cpu" or not health.is_full(outcome.reason):
            return
        if eager is None or eager.program is None:
            return
        left = health.left_on(bench.device)
        self.drop(bench, "eager", "")
        taken = health.left_on(bench.device) - left
        if left < taken:
            raise NotEnoughMemory(
                f"Too little of {bench.device} is left to judge anything of {bench.task.name} on it.",
                f"{left >> 20} MiB for the candidate, which says: {outcome.reason[:200]}",
                f"the {taken >> 20} MiB that eager takes",
                "end other programs on this device, or give the timed case smaller sizes",
            )

    @staticmethod
    def _size_up(bench: Bench, program: Program, leaves: list[torch.Tensor]) -> int:
        """Eager's time per call as a program, which plans are made with: in the judge it also copies its weights. How
        many sets it ran on, whose memory is warm since.

        What an empty window takes is not the calls': with it, on an H200, a call of 66 us counted as 350, and windows
        of 17 calls, not 91, read 6 % apart.
        """
        count, repeats = (SIZING_CALLS, 3) if bench.eager_us < timing_plan.SLOW_CALL_US else (2, 1)
        if bench.device.type != "cpu" and bench.eager_us < timing_plan.DEVICE_WINDOW_US:
            count, repeats = max(count, min(DEVICE_SIZING_CALLS, SIZING_BYTES // max(bench.call_bytes, 1))), 5
        count = 1 if bench.tight else count  # it keeps the memory: of three calls of a softmax of 6 GiB 54 GiB
        _bind(program, bench.timed, count, leaves)
        calls = list(range(count))
        program.watched = repeats == 1  # looking is outside the clock; a slow call is not made again for it
        windows = [program.window(calls, grad=bench.contract.gradients) for _ in range(repeats)]
        window_us = min(window.call_us for window in windows)
        empty_us = min(program.window([]).call_us for _ in range(repeats))
        bench.eager_us, bench.sized = max(window_us - empty_us, 0.1 * window_us) / count, True
        program.watched = True
        window = program.window(calls, grad=bench.contract.gradients) if repeats > 1 else windows[0]
        program.watched = False
        bench.eager_aliases = frozenset(window.aliases)
        if window.whereabouts:
            bench.eager_shared, bench.eager_together = window.whereabouts.shared, window.whereabouts.together
        elif bench.device.type != "cpu":
            bench.eager_shared = spoilt.shared(lambda: bench.timed.instance.eager(leaves, None))
        return count

    def drop(self, bench: Bench, name: str, failure: str) -> None:
        """Forget a baseline's process; with ``failure`` it is not tried again."""
        entrant = bench.entrants.pop(name)
        if entrant.program is not None:
            entrant.program.close()
        if failure and name != "eager":
            bench.entrants[name] = Entrant(name=name, program=None, failure=failure[:300], warming=None)

    def again(self, bench: Bench, failure: race.Lost | torch.OutOfMemoryError | NotEnoughMemory, *, first: bool) -> str:
        """Ready another try: without the process of a baseline that was lost, or with half the call sets where the
        device was full, and with one where it was full before. What was wrong. Raises the failure where one set was too
        many, and TaskError where eager's own answer was of another shape than before."""
        if isinstance(failure, race.Lost):
            last = f"{failure.name}: {failure.failure}"
            odd = failure.name == "eager" and failure.failure.reason.startswith("wrong structure")
            if odd and bench.timed.instance.sized:
                raise refusals.of_values(bench.task.name, failure.failure.reason)
            self.drop(bench, failure.name, "" if first else last)
            return last
        sets = bench.plan(timing_plan.PRECISE, 2).sets
        if bench.device.type == "cpu" or sets < 2:
            raise failure
        bench.most_sets = sets // 2 if bench.most_sets is None else 1
        for name in list(bench.entrants):
            self.drop(bench, name, "")
        return f"no room for {sets} call sets of each program: {failure}"

    @contextlib.contextmanager
    def hushed(self, others: Sequence[tuple[threading.Thread, Program]]) -> Iterator[None]:
        """Freeze baselines that compile in the background, and ``others``, so that they take no core from what is
        timed."""
        started = [(thread, entrant.program) for thread, entrant in list(self._warming) if thread.is_alive()]
        frozen = [(thread, program.pid) for thread, program in started if program is not None]
        frozen += [(thread, program.pid) for thread, program in others]
        for _, group in frozen:
            _signal(group, signal.SIGSTOP)
        try:
            yield
        finally:
            for thread, group in frozen:
                if thread.is_alive():
                    _signal(group, signal.SIGCONT)


def _signal(pid: int, number: signal.Signals) -> None:
    try:
        os.killpg(pid, number)
    except ProcessLookupError:
        return


def _bind(program: Program, point: Point, sets: int, leaves: list[torch.Tensor]) -> None:
    """Bind the call sets of the timed case and put real values in each, so that a first window can run."""
    buffers = point.bind(program, point.as_given, sets)
    for index in range(sets):
        race.fill(buffers, index, leaves)
