# SPDX-License-Identifier: Apache-2.0
"""What a judge keeps warm between jobs, and the jobs themselves: describe, admit, prepare, judge, build, machine.

Benches are kept per task and device, baselines run once and then stay stopped, the zygote is preloaded. Every job
takes and returns plain data; ``task``, ``candidate`` and ``outcome`` are ``wire`` forms of the nouns.
"""

from __future__ import annotations

import dataclasses
import functools
import os
import secrets
import time
from collections import OrderedDict
from pathlib import Path
from typing import Any

import torch

from kernelwright import wire
from kernelwright.candidate import Candidate
from kernelwright.errors import BadCommand, JudgeFailed, KernelwrightError, NotEnoughMemory
from kernelwright.judge import (
    also,
    aside,
    baselines,
    calibration,
    facts,
    mathlib,
    odd_addresses,
    pages,
    race,
    requests,
    room,
    sanitize,
    standing,
    tester,
    waiting,
)
from kernelwright.judge.bench import Bench
from kernelwright.judge.build import build, by_own_names, commands, compiler
from kernelwright.judge.calibration import energy, store
from kernelwright.judge.clocks import Clocks
from kernelwright.judge.entrants import Entrants
from kernelwright.judge.foresight import Say
from kernelwright.judge.profile import job as profiles
from kernelwright.judge.profile import operators, static
from kernelwright.judge.program import Program
from kernelwright.judge.programs import Programs
from kernelwright.judge.server import Emit, Handler
from kernelwright.judge.stages import Judgement
from kernelwright.judge.verify import noted
from kernelwright.judge.warm import Warm
from kernelwright.machine import Machine
from kernelwright.sandbox.lease import Leases
from kernelwright.trial import Outcome, Rejected, Timed

MOST_BENCHES = 2
LEVELS = ("smoke", "coarse", "precise")


class Session:
    """The state of one judge process. ``jobs`` are its verbs; only those in ``beside`` may run in parallel."""

    def __init__(self, device: str, state: Path, cache: Path) -> None:
        self.device, self.state, self.cache = device, state, cache
        self.threads = len(os.sched_getaffinity(0))
        torch.set_num_threads(self.threads)
        mathlib.settle()
        self.programs = Programs(self.threads, cache)
        self.entrants = Entrants(self.programs, state, cache)
        self.warm = Warm(self.programs, state, cache)
        self._benches: OrderedDict[tuple[str, str], Bench] = OrderedDict()
        self._leases = Leases(functools.partial(standing.hushed, self.entrants, self.programs, self._benches))
        self._lease = self._leases.of
        self._confirmed: dict[tuple[str, str], tester.Extras] = {}
        self._refused: requests.Refused | None = None
        """The last task that could not be looked at, and why."""

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
            "sanitize": self.sanitize,
            "cases": self.cases,
        }

    def beside(self) -> frozenset[str]:
        """Jobs that touch neither the device nor the benches."""
        return frozenset({"build", "prime"})

    def close(self) -> None:
        """End every program."""
        self._leases.close()
        for bench in self._benches.values():
            bench.close()
        self.programs.close()
        self.warm.close()

    # -- jobs ----------------------------------------------------------------------------------------------

    def build(self, job: dict[str, Any], emit: Emit) -> dict[str, Any]:
        """{candidate, device, facts?} -> {"outcome": null or Rejected, "folder", "commands", "compiler"}: compile only.

        ``commands``: source name to the command that compiles it, with ``{source}`` and ``{output}`` in it;
        ``compiler``: that one in words. ``facts`` true adds "facts" of the compiled object; see ``profile.static``.
        """
        candidate, device = requests.candidate_of(job), requests.device_of(job, self.device)
        with self._lease(device).shared():
            folder = build(candidate, device, self.cache)
        if isinstance(folder, Rejected):
            return {"outcome": wire.to_data(folder), "folder": None, "commands": {}}
        found = static.facts(folder, candidate.language) if job.get("facts") else {}
        made = {"commands": commands(candidate, device), "compiler": compiler(candidate, device)}
        return {"outcome": None, "folder": str(folder), "facts": found, **made}

    def machine(self, job: dict[str, Any], emit: Emit) -> dict[str, Any]:
        """{device, measure?} -> {"machine": Machine}: as measured before, else without facts.

        ``measure`` true measures a device not yet known under its present versions (over a minute, with events).
        """
        device = requests.device_of(job, self.device)
        found = store.known(device, self.state)
        if not found.facts and job.get("measure"):
            with self._lease(device).alone():
                found = store.measured(
                    device, self.state, self.cache, lambda what, share: emit({"measuring": what, "share": share})
                )
        return {"machine": wire.to_data(found)}

    def describe(self, job: dict[str, Any], emit: Emit) -> dict[str, Any]:
        """{task, device, machine?, variants?, left?} -> facts of the reference; see ``facts.describe``.

        ``left``: seconds; BudgetTooSmall where a proof would come long after them. Events say what takes long."""
        emit({"doing": f"looking at the reference of {requests.task_of(job).name}"})
        bench = self._bench(job, lambda text: emit({"doing": text}))
        with self._lease(str(bench.device)).shared():
            return facts.describe(bench, self._machine(job), variants=bool(job.get("variants", True)))

    def limits(self, job: dict[str, Any], emit: Emit) -> dict[str, Any]:
        """{task, device, machine, timed?} -> {"bounds": ...}; ``timed``: with eager's times, and memory."""
        bench = self._bench(job)
        found = facts.bounds(bench, self._machine(job))
        if found is not None and job.get("timed"):
            with self._lease(str(bench.device)).alone():
                found = {**operators.attach(found, operators.times(bench)), "memory": facts.memory(bench)}
        return {"bounds": found}

    def profile(self, job: dict[str, Any], emit: Emit) -> dict[str, Any]:
        """{task, candidate, device, count?} -> facts of exactly this candidate; see ``profile.job.run``."""
        candidate, device = requests.candidate_of(job), requests.device_of(job, self.device)
        folder = build(candidate, device, self.cache)
        if isinstance(folder, Rejected):
            return {"outcome": wire.to_data(folder), "facts": {}, "notes": [folder.reason], "kernels": []}
        return self._profile(job, candidate, folder)

    def energy(self, job: dict[str, Any], emit: Emit) -> dict[str, Any]:
        """{device, task?, candidate?} -> {"joules": counter or None, "note", "call"?}; see ``profile.job.energy``."""
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
        for name in (names := self._names(job, "precise", bench)):
            with self._lease(str(bench.device)).shared():
                self.entrants.of(bench, name)
        return {"preparing": list(names)}

    def judge(self, job: dict[str, Any], emit: Emit) -> dict[str, Any]:
        """{task, candidate, device, level, ...} -> {"outcome": Outcome, or null for a passed smoke test}.

        Optional: ``seed``; ``baselines`` (names); ``bound_us`` and ``limiter``; ``admit`` false skips admission;
        ``patience``, ``hanging``: as in ``waiting.limit``; ``profile`` adds facts to a precise result,
        ``facts`` those of the compiled object to any; ``verify`` checks every case before a coarse time too;
        ``extra_cases``: source of a tester's inputs, see ``tester``;
        ``sanitize`` looks at a precise result with ``sanitize``, whose fault rejects and whose notes join the proof
        (``winner``: only where it is proved faster than every baseline); ``sanitize_seconds`` are left for that;
        ``also``: names of ``also.WHAT``, measured of a precise result and of its baselines.
        """
        level = job.get("level", "precise")
        if level not in LEVELS:
            raise BadCommand("There is no such level of judging", repr(level), " or ".join(LEVELS))
        wanted = also.wanted(job.get("also") or ())
        candidate, device = requests.candidate_of(job), requests.device_of(job, self.device)
        with self._lease(device).shared():
            folder = build(candidate, device, self.cache)
        if isinstance(folder, Rejected):
            return {"outcome": wire.to_data(folder)}
        emit({"stage": "built"})
        outcome = self._judge(job, level, candidate, folder)
        if isinstance(outcome, Timed) and self._lease(device).apart:
            outcome = dataclasses.replace(outcome, conditions=(*outcome.conditions, self._lease(device).apart))
        if job.get("facts"):
            outcome = profiles.with_compiled(outcome, candidate, folder, self.warm.left(candidate))
        if job.get("profile") and level == "precise" and isinstance(outcome, Timed):
            outcome = profiles.attached(outcome, self._profile(job, candidate, folder))
        if job.get("sanitize") and level == "precise" and isinstance(outcome, Timed):
            if job["sanitize"] != "winner" or outcome.speedup_low > 1.0:
                left, call_us = job.get("sanitize_seconds"), outcome.timing.median_us
                found = sanitize.within(left, candidate, folder, self._bench(job), self.cache, call_us)
                outcome = found.rejected or dataclasses.replace(outcome, proof=noted(outcome.proof, found.notes))
        if set(wanted).difference(also.IN_RACES) and level == "precise" and isinstance(outcome, Timed):
            outcome = also.attached(outcome, wanted, self._scene(job, candidate, outcome))
        return {"outcome": None if outcome is None else wire.to_data(outcome)}

    def sanitize(self, job: dict[str, Any], emit: Emit) -> dict[str, Any]:
        """{task, candidate, device} -> {"outcome": null or Rejected, "notes"}: the sanitizers alone."""
        candidate, device = requests.candidate_of(job), requests.device_of(job, self.device)
        with self._lease(device).shared():
            folder = build(candidate, device, self.cache)
        if isinstance(folder, Rejected):
            return {"outcome": wire.to_data(folder), "notes": []}
        found = sanitize.run(candidate, folder, self._bench(job), self.cache)
        return {"outcome": wire.to_data(found.rejected) if found.rejected else None, "notes": list(found.notes)}

    def cases(self, job: dict[str, Any], emit: Emit) -> dict[str, Any]:
        """{task, device, extra_cases} -> {"used": names of a tester's cases in force, "notes": why others are not}."""
        found = self._tested(job, self._bench(job))
        return {"used": [case.name for case in found.cases], "notes": list(found.notes)}

    def admit(self, job: dict[str, Any], emit: Emit) -> dict[str, Any]:
        """{task, device} -> {"admitted", "reasons", "decoys": [[name, rejected by], ...], "notes"}; found out once."""
        bench = self._bench(job)
        with self._lease(str(bench.device)).shared():
            found = bench.admit(lambda text: emit({"doing": text}))
        reasons, decoys = list(found.reasons), [list(pair) for pair in found.decoys]
        return {"admitted": found.admitted, "reasons": reasons, "decoys": decoys, "notes": list(found.notes)}

    # -- parts ---------------------------------------------------------------------------------------------

    def _judge(self, job: dict[str, Any], level: str, candidate: Candidate, folder: Path) -> Outcome | None:
        bench = self._bench(job)
        device, last = str(bench.device), ""
        names = ("eager",) if level == "smoke" else self._names(job, level, bench)
        if level == "precise" and job.get("admit", True):
            with self._lease(device).shared():
                bench.admit().raise_if_refused(bench.task.name)
        bound_us, limiter = self._bound(job, bench)
        for attempt in range(3):
            try:
                with self._lease(device).shared():
                    entrants = [self.entrants.of(bench, name) for name in names]
                for entrant in entrants:
                    if device != "cpu" or entrant is entrants[0]:
                        entrant.ready()  # on a CPU compiling goes on beside the checks; the race waits for it
                entrants[0].required(bench.task.name)
                made = functools.partial(
                    Judgement,
                    bench=bench,
                    entry=candidate.entry,
                    start=functools.partial(self._start, bench, folder, candidate, job, level),
                    alone=self._lease(device).alone,
                    shared=self._lease(device).shared,
                    baselines=entrants,
                    level=level,
                    verifies=bool(job.get("verify")),
                    seed=int(job["seed"]) if job.get("seed") is not None else secrets.randbits(60),
                    bound_us=bound_us,
                    limiter=limiter,
                    bound_again=functools.partial(self._bound_again, bench, job),
                    threads=self.threads,
                    aside=functools.partial(aside.begun, self.programs, candidate, device, self._lease(device)),
                    extras=self._tested(job, bench).cases,
                    compiles=waiting.compiles_again(candidate),
                    counts=waiting.counts_cores(candidate),
                    disk=self.cache,
                    clocks=Clocks(bench.device),
                    waiting="sleep" if "OMP_WAIT_POLICY" in self.programs.waiting else "spin",
                    besides=[] if "warm" in (job.get("also") or ()) else None,
                )
                outcome = by_own_names(odd_addresses.judged(made), folder)
                self.entrants.blame_disk(entrants)
                self.entrants.blame_device(bench, outcome)
                return outcome
            except (race.Lost, torch.OutOfMemoryError, NotEnoughMemory) as failure:
                last = self.entrants.again(bench, failure, first=not attempt)
        raise JudgeFailed("Three races in a row did not end", last, "a race that ends")

    def _scene(self, job: dict[str, Any], candidate: Candidate, outcome: Timed) -> also.Scene:
        """The candidate and the baselines it was raced against, for what is measured besides."""
        bench = self._bench(job)
        contenders = [self.entrants.contender(bench, baseline.name) for baseline in outcome.baselines]
        seconds = waiting.limit(bench.eager_us, candidate, job.get("patience"), job.get("hanging"))
        own, includes = self.warm.aside(candidate), self.warm.includes(candidate)
        mine = also.Contender(name="candidate", candidate=candidate, own=own, includes=includes, seconds=seconds)
        return also.Scene(
            bench=bench,
            contenders=[*contenders, mine],
            programs=self.programs,
            cache=self.cache,
            alone=self._lease(str(bench.device)).alone,
            seed=outcome.proof.seed,
            leaves=bench.timed.instance.draw(bench.timed.as_given, outcome.proof.seed ^ 0xA150),
        )

    def _tested(self, job: dict[str, Any], bench: Bench) -> tester.Extras:
        """The cases of the job's tester that the reference confirms; found out once for each source."""
        source = str(job.get("extra_cases") or "")
        key = bench.task.digest(), source
        if source and key not in self._confirmed:
            self._confirmed = {key: tester.confirmed(bench, source)}  # a later source replaces the one before
        return self._confirmed[key] if source else tester.Extras((), ())

    def _bound(self, job: dict[str, Any], bench: Bench) -> tuple[float | None, str]:
        """(unavoidable microseconds, limiter): as the job says, or from what is known of the machine."""
        if "bound_us" in job and not bench.looked_again:
            return job["bound_us"], str(job.get("limiter", "unknown"))
        if bench.bound is None:
            found = facts.bounds(bench, self._machine(job))
            bench.bound = (found["unavoidable_us"], found["limiter"]) if found else (None, "unknown")
        return bench.bound

    def _bound_again(self, bench: Bench, job: dict[str, Any]) -> float | None:
        """The bound after the device's memory was measured once more, which is remembered."""
        before = self._machine(job)
        if not before.facts:
            return self._bound(job, bench)[0]
        if not bench.looked_again:
            machine = calibration.refreshed(before, self.cache / "calibration")
            store.keep(machine, self.state)
            found = facts.bounds(bench, machine)
            bench.bound = (found["unavoidable_us"], found["limiter"]) if found else (None, "unknown")
            bench.looked_again = True
        assert bench.bound is not None
        return bench.bound[0]

    def _start(self, bench: Bench, folder: Path, candidate: Candidate, job: dict[str, Any], level: str) -> Program:
        seconds = waiting.limit(bench.eager_us, candidate, job.get("patience"), job.get("hanging"))
        several = level == "precise" or bool(job.get("facts"))
        lease = self._lease(str(bench.device))
        return self.programs.aside(self.warm.start(bench, candidate, folder, seconds, several=several), lease)

    def _names(self, job: dict[str, Any], level: str, bench: Bench) -> tuple[str, ...]:
        return baselines.names(bench.device.type, level, requests.named(job, "baselines"), tight=bench.tight)

    def _bench(self, job: dict[str, Any], say: Say = lambda text: None) -> Bench:
        device = requests.device_of(job, self.device)
        task = requests.task_of(job, self.state)
        self.programs.allow(task.imports)
        key = task.digest(), device
        if key in self._benches:
            self._benches.move_to_end(key)
            self._benches[key].reference.neighbours.enter()
            return self._benches[key]
        if self._refused is not None and self._refused.answers(key, job):
            raise self._refused.error
        self._refused = None
        while len(self._benches) >= (MOST_BENCHES if device == "cpu" else 1):
            self._benches.popitem(last=False)[1].close()
            if device != "cpu":
                torch.cuda.empty_cache()
        if device == "cpu":
            room.hold(pages.give_back(room.available_bytes()))
        try:
            with self._lease(device).shared():
                bench = self._benches[key] = Bench(task, device, left=job.get("left"), say=say)
        except KernelwrightError as error:
            self._refused = requests.Refused(key, error, time.monotonic())
            raise
        return bench

    def _machine(self, job: dict[str, Any]) -> Machine:
        """The machine a job brings, or what is known of its device."""
        if job.get("machine") is None:
            return store.known(requests.device_of(job, self.device), self.state)
        return wire.from_data(Machine, job["machine"])
