# SPDX-License-Identifier: Apache-2.0
"""What a judge keeps warm between jobs, and the jobs themselves: describe, admit, prepare, judge, build, machine.

Benches are kept per task and device, baselines run once and then stay stopped, the zygote is preloaded. Every job
takes and returns plain data; ``task``, ``candidate`` and ``outcome`` are ``wire`` forms of the nouns.
"""

from __future__ import annotations

import contextlib
import functools
import os
import secrets
import signal
import threading
from collections import OrderedDict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch

from kernelwright import wire
from kernelwright.candidate import Candidate
from kernelwright.errors import BadCommand, JudgeFailed
from kernelwright.judge import baselines, calibration, facts, race, requests, tester, timing_plan, waiting
from kernelwright.judge.bench import Bench, Entrant, bind
from kernelwright.judge.build import build, commands
from kernelwright.judge.calibration import energy, store
from kernelwright.judge.child import Program
from kernelwright.judge.lease import Lease
from kernelwright.judge.leash import ChildFailure
from kernelwright.judge.profile import job as profiles
from kernelwright.judge.profile import operators, static
from kernelwright.judge.programs import Programs
from kernelwright.judge.server import Emit, Handler
from kernelwright.judge.stages import Judgement
from kernelwright.machine import Machine
from kernelwright.trial import Outcome, Rejected, Timed

MOST_BENCHES = 2
LEVELS = ("smoke", "coarse", "precise")
SIZING_CALLS = 3


class Session:
    """The state of one judge process. ``jobs`` are its verbs; only those in ``beside`` may run in parallel."""

    def __init__(self, device: str, state: Path, cache: Path) -> None:
        self.device, self.state, self.cache = device, state, cache
        self.threads = len(os.sched_getaffinity(0))
        torch.set_num_threads(self.threads)
        self.programs = Programs(self.threads, cache)
        self._benches: OrderedDict[tuple[str, str], Bench] = OrderedDict()
        self._leases: dict[str, Lease] = {}
        self._confirmed: dict[tuple[str, str], tester.Extras] = {}
        self._warming: list[tuple[threading.Thread, Entrant]] = []

    def jobs(self) -> dict[str, Handler]:
        """Name to handler."""
        return {
            "describe": self.describe,
            "admit": self.admit,
            "prime": self.prime,
            "prepare": self.prepare,
            "judge": self.judge,
            "build": self.build,
            "machine": self.machine,
            "limits": self.limits,
            "profile": self.profile,
            "energy": self.energy,
        }

    def beside(self) -> frozenset[str]:
        """Jobs that touch neither the device nor the benches."""
        return frozenset({"build", "prime"})

    def close(self) -> None:
        """End every program."""
        for bench in self._benches.values():
            bench.close()
        self.programs.close()

    # -- jobs ----------------------------------------------------------------------------------------------

    def build(self, job: dict[str, Any], emit: Emit) -> dict[str, Any]:
        """{candidate, device, facts?} -> {"outcome": null or Rejected, "folder", "commands"}: compile, run nothing.

        ``commands``: source name to the command that compiles it, with ``{source}`` and ``{output}`` in it. ``facts``
        true adds "facts" of the compiled object; see ``profile.static``.
        """
        candidate, device = requests.candidate_of(job), requests.device_of(job, self.device)
        with self._lease(device).shared():
            folder = build(candidate, device, self.cache)
        if isinstance(folder, Rejected):
            return {"outcome": wire.to_data(folder), "folder": None, "commands": {}}
        found = static.facts(folder, candidate.language) if job.get("facts") else {}
        made = commands(candidate, device)
        return {"outcome": None, "folder": str(folder), "commands": made, "facts": found}

    def machine(self, job: dict[str, Any], emit: Emit) -> dict[str, Any]:
        """{device, measure?} -> {"machine": Machine}: as measured before, else without facts.

        ``measure`` true measures a device not yet known under its present versions (over a minute, with events).
        """
        device = requests.device_of(job, self.device)
        found = store.known(device, self.state)
        if not found.facts and job.get("measure"):
            with self._lease(device).alone():
                found = calibration.calibrate(
                    device, self.cache / "calibration", lambda what, share: emit({"measuring": what, "share": share})
                )
            store.keep(found, self.state)
        return {"machine": wire.to_data(found)}

    def describe(self, job: dict[str, Any], emit: Emit) -> dict[str, Any]:
        """{task, device, machine?} -> facts of the reference; see ``facts.describe``."""
        bench = self._bench(job)
        return facts.describe(bench, self._machine(job))

    def limits(self, job: dict[str, Any], emit: Emit) -> dict[str, Any]:
        """{task, device, machine, timed?} -> {"bounds": ...}; ``timed``: with eager's time of each operator."""
        bench = self._bench(job)
        found = facts.bounds(bench, self._machine(job))
        if found is not None and job.get("timed"):
            with self._lease(str(bench.device)).alone():
                found = operators.attach(found, operators.times(bench))
        return {"bounds": found}

    def profile(self, job: dict[str, Any], emit: Emit) -> dict[str, Any]:
        """{task, candidate, device, count?} -> facts of exactly this candidate; see ``profile.job.run``."""
        candidate, device = requests.candidate_of(job), requests.device_of(job, self.device)
        folder = build(candidate, device, self.cache)
        if isinstance(folder, Rejected):
            return {"outcome": wire.to_data(folder), "facts": {}, "notes": [folder.reason], "kernels": []}
        return self._profile(job, candidate, folder)

    def energy(self, job: dict[str, Any], emit: Emit) -> dict[str, Any]:
        """{device, task?, candidate?} -> {"joules": counter now or None, "note", "call"?}; see ``profile.job.energy``."""
        device = requests.device_of(job, self.device)
        found: dict[str, Any] = energy.reading(device)
        if found["joules"] is None or "candidate" not in job:
            return found
        candidate = requests.candidate_of(job)
        folder = build(candidate, device, self.cache)
        if isinstance(folder, Rejected):
            return {**found, "call": {"mJ": None, "watts": None, "note": folder.reason}}
        bench = self._bench(job)
        with self._lease(device).alone():
            return {**found, "call": profiles.energy(bench, candidate, folder, self.state / "profiles", self.threads)}

    def _profile(self, job: dict[str, Any], candidate: Candidate, folder: Path) -> dict[str, Any]:
        bench, own, count = self._bench(job), self.state / "profiles", bool(job.get("count", True))
        with self._lease(str(bench.device)).alone():
            return profiles.run(bench, candidate, folder, self._machine(job), own, self.threads, count=count)

    def prime(self, job: dict[str, Any], emit: Emit) -> dict[str, Any]:
        """{device} -> {}: begin to load what compiled baselines on a CPU will need; of no use elsewhere."""
        if requests.device_of(job, self.device) == "cpu":
            self.programs.prime()
        return {}

    def prepare(self, job: dict[str, Any], emit: Emit) -> dict[str, Any]:
        """{task, device, baselines?} -> {"preparing": names}: start baselines; compiling goes on in the background."""
        bench = self._bench(job)
        names = self._names(job, "precise", bench)
        for name in names:
            self._entrant(bench, name)
        return {"preparing": list(names)}

    def judge(self, job: dict[str, Any], emit: Emit) -> dict[str, Any]:
        """{task, candidate, device, level, ...} -> {"outcome": Outcome, or null for a passed smoke test}.

        Optional: ``seed``; ``baselines`` (names); ``bound_us`` and ``limiter``; ``admit`` false skips admission;
        ``patience``: seconds after which a window counts as hanging; ``profile`` adds facts to a precise result,
        ``facts`` those of the compiled object to any; ``extra_cases``: source of a tester's inputs, see ``tester``.
        """
        level = job.get("level", "precise")
        if level not in LEVELS:
            raise BadCommand("There is no such level of judging", repr(level), " or ".join(LEVELS))
        candidate, device = requests.candidate_of(job), requests.device_of(job, self.device)
        with self._lease(device).shared():
            folder = build(candidate, device, self.cache)
        if isinstance(folder, Rejected):
            return {"outcome": wire.to_data(folder)}
        emit({"stage": "built"})
        outcome = self._judge(job, level, candidate, folder)
        if job.get("facts"):
            outcome = profiles.with_compiled(outcome, candidate, folder, self.cache / "jit")
        if job.get("profile") and level == "precise" and isinstance(outcome, Timed):
            outcome = profiles.attached(outcome, self._profile(job, candidate, folder))
        return {"outcome": None if outcome is None else wire.to_data(outcome)}

    def admit(self, job: dict[str, Any], emit: Emit) -> dict[str, Any]:
        """{task, device} -> {"admitted", "reasons", "decoys": [[name, rejected by], ...], "notes"}; found out once."""
        found = self._bench(job).admit()
        return {
            "admitted": found.admitted,
            "reasons": list(found.reasons),
            "decoys": [list(pair) for pair in found.decoys],
            "notes": list(found.notes),
        }

    # -- parts ---------------------------------------------------------------------------------------------

    def _judge(self, job: dict[str, Any], level: str, candidate: Candidate, folder: Path) -> Outcome | None:
        bench = self._bench(job)
        device = str(bench.device)
        names = ("eager",) if level == "smoke" else self._names(job, level, bench)
        if level == "precise" and job.get("admit", True):
            bench.admit().raise_if_refused(bench.task.name)
        bound_us, limiter = self._bound(job, bench)
        last = ""
        for attempt in range(3):
            entrants = [self._entrant(bench, name) for name in names]
            for entrant in entrants:
                entrant.ready()
            if entrants[0].program is None:
                raise JudgeFailed("The reference does not run as a program", entrants[0].failure, "a result")
            judgement = Judgement(
                bench=bench,
                entry=candidate.entry,
                start=lambda: self._start(bench, folder, candidate, job.get("patience")),
                alone=self._lease(device).alone,
                baselines=entrants,
                level=level,
                seed=int(job["seed"]) if job.get("seed") is not None else secrets.randbits(60),
                bound_us=bound_us,
                limiter=limiter,
                threads=self.threads,
                extras=self._extras(job, bench),
                waiting="sleep" if "OMP_WAIT_POLICY" in self.programs.waiting else "spin",
            )
            try:
                return judgement.run()
            except race.Lost as lost:
                last = f"{lost.name}: {lost.failure}"
                self._drop(bench, lost.name, last if attempt else "")
        raise JudgeFailed("Baselines died three times in one race", last, "a race that ends")

    def _extras(self, job: dict[str, Any], bench: Bench) -> tuple[tester.ExtraCase, ...]:
        """The cases of the job's tester that the reference confirms; found out once for each source."""
        source = str(job.get("extra_cases") or "")
        key = bench.task.digest(), source
        if source and key not in self._confirmed:
            self._confirmed = {key: tester.confirmed(bench, source)}  # a later source replaces the one before
        return self._confirmed[key].cases if source else ()

    def _bound(self, job: dict[str, Any], bench: Bench) -> tuple[float | None, str]:
        """(unavoidable microseconds, limiter): as the job says, or from what is known of the machine."""
        if "bound_us" in job:
            return job["bound_us"], str(job.get("limiter", "unknown"))
        if bench.bound is None:
            found = facts.bounds(bench, self._machine(job))
            bench.bound = (found["unavoidable_us"], found["limiter"]) if found else (None, "unknown")
        return bench.bound

    def _start(self, bench: Bench, folder: Path, candidate: Candidate, patience: float | None) -> Program:
        """A fresh confined process for a candidate."""
        own = self.cache / "jit" / candidate.digest() if candidate.language in waiting.JIT else None
        seconds = waiting.limit(bench.eager_us, candidate, patience)
        return self.programs.fork(str(bench.device), folder, seconds, own)

    def _entrant(self, bench: Bench, name: str) -> Entrant:
        """A baseline, started if it is not yet; one that compiles goes on warming in a thread."""
        if name in bench.entrants:
            return bench.entrants[name]
        kind = baselines.KINDS[name]
        entrant = bench.entrants[name] = Entrant(name=name, program=None, failure="", warming=None)
        candidate = baselines.program(bench.task, kind)
        folder = build(candidate, str(bench.device), self.cache)
        if isinstance(folder, Rejected):
            raise JudgeFailed("A baseline cannot be written", folder.reason, "a folder")
        own = self.state / "baselines" / bench.task.digest() / name if kind.compiles else None
        # Drawn here: the reference's own drawing uses the generator of the process, one user at a time.
        leaves = bench.timed.instance.draw(bench.timed.as_given, bench.seed)
        start = functools.partial(self._start_entrant, bench, entrant, candidate, folder, own, leaves)
        if kind.compiles:
            entrant.warming = threading.Thread(target=start)
            self._warming.append((entrant.warming, entrant))
            entrant.warming.start()
        else:
            start()
        return entrant

    def _start_entrant(
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
            program = self.programs.fork(str(bench.device), folder, limit, own)
            entrant.program = program
            program.load(
                candidate.entry,
                instance.init_args,
                instance.init_kwargs,
                instance.first_state,
                training=bench.contract.training,
            )
            if entrant.name == "eager" and not bench.sized:  # once: all baselines are bound to equally many sets
                self._size_up(bench, program, leaves)
            sets = bench.plan(timing_plan.PRECISE, 2).sets
            bind(program, bench.timed, sets, leaves)
            program.window(list(range(sets)), grad=bench.contract.gradients)
        except ChildFailure as failure:
            entrant.failure = str(failure)[:300]
            if entrant.program is not None:
                entrant.program.close()
                entrant.program = None

    @staticmethod
    def _size_up(bench: Bench, program: Program, leaves: list[torch.Tensor]) -> None:
        """Eager's time per call as a program, which plans are made with: in the judge it also copies its weights."""
        bind(program, bench.timed, SIZING_CALLS, leaves)
        calls = list(range(SIZING_CALLS))
        windows = [program.window(calls, grad=bench.contract.gradients) for _ in range(3)]
        bench.eager_us, bench.sized = min(window.call_us for window in windows) / SIZING_CALLS, True
        program.watched = True
        window = program.window(calls, grad=bench.contract.gradients)
        program.watched = False
        bench.eager_aliases = frozenset(window.aliases)
        bench.eager_shared = window.whereabouts.shared if window.whereabouts else frozenset()

    def _drop(self, bench: Bench, name: str, failure: str) -> None:
        """Forget a baseline's process; with ``failure`` it is not tried again."""
        entrant = bench.entrants.pop(name)
        if entrant.program is not None:
            entrant.program.close()
        if failure and name != "eager":
            bench.entrants[name] = Entrant(name=name, program=None, failure=failure[:300], warming=None)

    def _names(self, job: dict[str, Any], level: str, bench: Bench) -> tuple[str, ...]:
        asked = job.get("baselines")
        return baselines.names(bench.device.type, level, None if asked is None else tuple(asked))

    @contextlib.contextmanager
    def _hush(self) -> Iterator[None]:
        """Freeze baselines that compile in the background, so that they take no core from what is timed."""
        self._warming = [(thread, entrant) for thread, entrant in self._warming if thread.is_alive()]
        started = [(thread, entrant.program) for thread, entrant in self._warming]
        frozen = [(thread, program.pid) for thread, program in started if program is not None]
        frozen += self.programs.in_background()
        for _, group in frozen:
            _signal(group, signal.SIGSTOP)
        try:
            yield
        finally:
            for thread, group in frozen:
                if thread.is_alive():
                    _signal(group, signal.SIGCONT)

    def _lease(self, device: str) -> Lease:
        if device not in self._leases:
            lease = Lease(device)
            lease.while_alone(self._hush)
            self._leases[device] = lease
        return self._leases[device]

    def _bench(self, job: dict[str, Any]) -> Bench:
        device = requests.device_of(job, self.device)
        task = requests.task_of(job)
        key = task.digest(), device
        if key in self._benches:
            self._benches.move_to_end(key)
            return self._benches[key]
        while len(self._benches) >= MOST_BENCHES:
            self._benches.popitem(last=False)[1].close()
        bench = self._benches[key] = Bench(task, device)
        return bench

    def _machine(self, job: dict[str, Any]) -> Machine:
        """The machine a job brings, or what is known of its device."""
        if job.get("machine") is None:
            return store.known(requests.device_of(job, self.device), self.state)
        return wire.from_data(Machine, job["machine"])


def _signal(pid: int, number: signal.Signals) -> None:
    try:
        os.killpg(pid, number)
    except ProcessLookupError:
        return
