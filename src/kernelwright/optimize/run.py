# SPDX-License-Identifier: Apache-2.0
"""One optimisation from a Task to a run folder with its result; begun afresh or continued after a kill."""

from __future__ import annotations

import dataclasses
import importlib.metadata
import platform
import time
from collections.abc import Mapping
from concurrent.futures import Future
from pathlib import Path
from typing import Any

from kernelwright import settings, wire
from kernelwright.errors import BadCommand, KernelwrightError, ModelError, ReferenceFails, RunFolderError, TaskError
from kernelwright.export import fixed_values
from kernelwright.ledger import Ledger, open_ledger, there
from kernelwright.machine import Machine
from kernelwright.optimize import cost, learning
from kernelwright.optimize import folder as folders
from kernelwright.optimize.finding import message
from kernelwright.optimize.given import Given, read_given
from kernelwright.optimize.guide import LIMITS, Guide
from kernelwright.optimize.host import ProposerHost
from kernelwright.optimize.judging import Identity, Judging
from kernelwright.optimize.loop import Loop, chosen_proposers
from kernelwright.optimize.modelled import Modelled
from kernelwright.optimize.pace import Pace
from kernelwright.optimize.products import energy_of_call, export_winner, write_pages
from kernelwright.optimize.result import Event, Listener, Options, Result
from kernelwright.optimize.services import Services, bound_of, caches
from kernelwright.optimize.verbs import check_admitted
from kernelwright.task import Task

Reply = dict[str, Any]
LONGEST_FIRST_CALL_S, LONGEST_IN_BUDGETS = 60.0, 1.0
"""The judge's first look at a reference (two calls, two draws of its inputs) may take the larger of these: what takes
longer needs at least four times as long for admission and a proof, for which the judge would refuse the budget."""
NOT_READ = {"joules": None, "note": "not read after an interrupt"}
"""In place of the device's counter where the judge was ended."""
LEAST_TRACING_S, TRACING_SHARE = 15.0, 0.25
"""Tracing the reference may take so long at the least, or that share of the budget, all proposers together."""
DETERMINISTIC_SHARE = 0.25
"""Of the budget, for the deterministic proposers where models are asked too; models get at least as much."""


def optimize_task(
    task: Task,
    options: Options,
    *,
    out: Path | None = None,
    services: Services | None = None,
    listen: Listener | None = None,
) -> Result:
    """Optimise ``task`` within the budget; the run folder is ``out`` or a fresh one under the runs folder.

    Raises TaskError and its kind when the task is at fault, ToolMissing, RunFolderError and JudgeFailed. An
    interrupt (KeyboardInterrupt) ends the search, not the call: the result then has status "interrupted".
    """
    chosen_proposers(options.proposers)
    given = read_given(task, options)
    caches()
    place = out or folders.fresh_name(settings.read().runs, task.name)
    folder = folders.create(place)
    try:
        record = {
            "kernelwright": version(),
            "python": platform.python_version(),
            "task": wire.to_data(task),
            "options": wire.to_data(options),
            "started_at": time.time(),
            "status": "running",
            "message": "",
            "result": None,
        }
        folder.write(record)
        return _in_folder(folder, record, task, options, given, services, listen)
    except TaskError:
        raise  # kept: the task is what failed, and the run says how
    except KernelwrightError:
        folder.discard()
        raise
    finally:
        folder.close()


def resume_run(
    path: Path,
    *,
    budget_seconds: float | None = None,
    limits: Mapping[str, float | int] | None = None,
    services: Services | None = None,
    listen: Listener | None = None,
) -> Result:
    """Continue a killed, interrupted or finished run with a fresh budget (default: the one it began with).

    The search is a function of the task, the seed and the outcomes, so it is simply run again: what the ledger
    knows is answered from it at no cost, and so is every request to a model that was answered before. ``limits``
    replaces limits of the run's guide by name. Raises NoSuchRun, LedgerCorrupt, and what ``optimize_task`` raises.
    """
    folder, record = folders.reopen(path)
    try:
        there(folder.ledger, record)
        try:
            task = wire.from_data(Task, record["task"])
            options = wire.from_data(Options, record["options"])
        except (KeyError, ValueError, TypeError) as error:
            raise RunFolderError.of_another_version(path / "run.json", error) from error
        if budget_seconds is not None:
            options = dataclasses.replace(options, budget_seconds=budget_seconds)
        if limits:
            options = dataclasses.replace(options, guide=_relimited(options.guide, limits))
        given = read_given(task, options)
        record |= {"status": "running", "options": wire.to_data(options)}
        return _in_folder(folder, record, task, options, given, services, listen)
    finally:
        folder.close()


def _relimited(guide: Guide | None, limits: Mapping[str, float | int]) -> Guide:
    if guide is None:
        raise BadCommand("This run asks no model.", got=", ".join(limits), expected="a run with --llm or --agent")
    if odd := sorted(set(limits) - set(LIMITS)):
        raise BadCommand("There is no such limit.", got=", ".join(odd), expected=", ".join(LIMITS))
    changed = dataclasses.replace(guide, **limits)  # type: ignore[arg-type]  # names of limits alone
    return changed.checked()


def version() -> str:
    """The installed version, or "source" when run from a checkout that is not installed."""
    try:
        return importlib.metadata.version("kernelwright")
    except importlib.metadata.PackageNotFoundError:
        return "source"


def _in_folder(
    folder: folders.RunFolder,
    record: Reply,
    task: Task,
    options: Options,
    given: Given,
    services: Services | None,
    listen: Listener | None,
) -> Result:
    ledger = open_ledger(folder.ledger)
    own = services is None
    used = services or Services(options.device)
    run = _Run(folder, record, task, options, given, used, ledger, listen)
    try:
        return run.go()
    except KernelwrightError as error:
        run.fail(error)
        raise
    finally:
        ledger.close()
        if own:
            used.close()


class _Run:
    """What one run carries from step to step."""

    def __init__(
        self,
        folder: folders.RunFolder,
        record: Reply,
        task: Task,
        options: Options,
        given: Given,
        services: Services,
        ledger: Ledger,
        listen: Listener | None,
    ) -> None:
        self.folder, self.record, self.task, self.options, self.given = folder, record, task, options, given
        self.services, self.ledger, self.listen = services, ledger, listen
        self.began = time.monotonic()
        self.loop: Loop | None = None
        self.modelled: Modelled | None = None
        self.counter: Reply = {}
        self.machine: Machine | None = None
        self.facts: Reply = {}

    def go(self) -> Result:
        """The whole run; see ``optimize_task``."""
        interrupted = False
        self.services.hear(lambda text: self.say("note", text, waiting=True))
        try:
            if self.options.guide is not None:
                self.modelled = Modelled(self.task, self.options, self.folder.path)
            self.loop = self._prepare()
            self.say("phase", "searching")
            with self.loop.pace.step("search"):
                self.loop.search(1.0 if self.modelled is None else DETERMINISTIC_SHARE)
                if self.modelled is not None:
                    self._ask_models(self.modelled, self.loop)
            self.loop.finish()
        except KeyboardInterrupt:
            interrupted = True
            self.say("note", "interrupted: keeping what was found")
            self.services.worker.abandon()
        return self._end(interrupted)

    def _ask_models(self, modelled: Modelled, loop: Loop) -> None:
        """The model-driven search; what it starts from is written down first, for resumed runs and replays."""
        if "nouns" not in self.record:
            start = [*loop.given(), *loop.fastest(1)]
            self.record["nouns"] = modelled.nouns(self.machine, self.facts, start, self.services.worker)
            self.folder.write(self.record)
        minutes = self.options.guide.max_minutes if self.options.guide else None
        with loop.granted(60.0 * minutes if minutes else DETERMINISTIC_SHARE * self.options.budget_seconds):
            modelled.search(loop, self.services.worker, self.record["nouns"], self.say)

    def _cost(self, interrupted: bool) -> Reply:
        """Device-hours, kWh and kg CO2e of this run so far. No judge is started for the sake of a counter."""
        device, now = self.options.device, self.counter
        if self.counter.get("joules") is not None:
            now = dict(NOT_READ)
            if not interrupted:
                now = self.services.worker.run({"job": "energy", "device": device})
        return cost.job(time.monotonic() - self.began, self.counter, now, device, self.options.grid)

    def _learn(self) -> None:
        """Add what was measured to the user's knowledge; a damaged store costs that and no more."""
        if self.machine is None:
            return
        try:
            learning.learn(self.ledger, self.task, self.machine, self.facts)
        except (KernelwrightError, OSError) as error:
            self.say("note", f"nothing was learnt: {error}")

    def fail(self, error: KernelwrightError) -> None:
        """Write down why the run ended; the report of what was found until then is still made."""
        self.record |= {"status": "failed", "message": str(error), "error": error.to_json()}
        try:
            self.folder.write(self.record)
        except RunFolderError:
            return  # the folder itself is the trouble; the error being raised says so

    def say(self, kind: str, text: str, **data: Any) -> None:  # noqa: ANN401 - event data is free JSON
        """Tell the listener and events.jsonl."""
        event = Event(kind=kind, text=text, seconds=time.monotonic() - self.began, data=data)
        self.folder.event({**data, "kind": kind, "text": text, "at": time.time(), "seconds": event.seconds})
        if self.listen is not None:
            self.listen(event)

    def _prepare(self) -> Loop:
        if isinstance(self.services.host, ProposerHost):
            self.services.host.patience = max(LEAST_TRACING_S, TRACING_SHARE * self.options.budget_seconds)
            self.services.host.start()
        self.machine, pace = self._machine()
        with pace.step("start"):
            return self._begin(pace)

    def _machine(self) -> tuple[Machine, Pace]:
        """The device's facts, and a budget that begins now: less the start, but not for measuring a device."""
        measuring: list[float] = []

        host = self.services.host if isinstance(self.services.host, ProposerHost) else None

        def say(text: str) -> None:
            if host is not None and not measuring:
                host.stand_still()
            measuring.append(time.monotonic())
            self.say("phase", text)

        try:
            machine = self.services.machine(say)
        finally:
            if host is not None and measuring:
                host.go_on()
        measured = time.monotonic() - measuring[0] if measuring else 0.0
        pace = Pace(self.options.budget_seconds, self.began + measured)
        self.services.waited = pace.waited
        return machine, pace

    def _begin(self, pace: Pace) -> Loop:
        services, device = self.services, self.options.device
        assert self.machine is not None
        self.counter = services.worker.run({"job": "energy", "device": device})
        self.say("phase", f"admitting {self.task.name} on {device}")
        data = wire.to_data(self.task)
        services.worker.submit({"job": "prime", "device": device})
        described = services.worker.submit(
            {
                "job": "describe",
                "device": device,
                "task": data,
                "machine": wire.to_data(self.machine),
                "variants": self.options.guide is not None,  # only prompts name them
                # A resumed run may have its proof already: what it has is worth more than an early end.
                "left": None if self.ledger.count() else pace.left(),
            },
            self._doing,
        )
        admitted = services.worker.submit({"job": "admit", "device": device, "task": data}, self._doing)
        identity = Identity(machine=self.machine.fingerprint, versions=self.machine.versions)
        judging = Judging(self.task, device, services.worker, self.ledger, self.options.seed, identity)
        loop = Loop(self.task, self.options, judging, services.host, self.say, pace, self.given)
        loop.collect(self.machine, lambda: described.done() and described.result())  # a task that fails fails soon
        loop.build_defaults()
        judging.waited = pace.waited
        self.facts = self._described(described, pace)
        judging.bound = bound_of(self.facts)
        judging.foresee(self.facts)
        self._admit(_result(admitted, pace))
        pace.admitted()
        if news := loop.schedule.news():
            self.say("note", news)
        # Compiled baselines warm up in the background; the judge freezes them while it times anything.
        services.worker.submit({"job": "prepare", "device": device, "task": data})
        if fixed := fixed_values(self.facts.get("points", ())):
            self.say(
                "note", f"{fixed}: of other values nothing is proved, unless a tensor of one number takes its place"
            )
        self.record |= {"machine": wire.to_data(self.machine), "facts": self.facts, "fixed": fixed}
        self.folder.write(self.record)
        return loop

    def _doing(self, event: Reply) -> None:
        """What the judge says of a job that takes long."""
        if "doing" in event:
            self.say("phase", event["doing"])

    def _described(self, future: Future[Reply], pace: Pace) -> Reply:
        """Facts of the reference; one that never answers must not keep the run waiting."""
        limit = max(LONGEST_FIRST_CALL_S, LONGEST_IN_BUDGETS * self.options.budget_seconds)
        try:
            return _result(future, pace, limit)
        except TimeoutError as error:
            self.services.worker.abandon()
            raise ReferenceFails(
                f"The reference of {self.task.name} does not come to an end, or is too slow for this budget.",
                got=f"its inputs were not drawn and its result not seen twice within {limit:.0f} s",
                expected="two draws and two calls in that time: the longer of a minute and the budget",
                what_next="run it on its own inputs; if it ends there, choose smaller sizes or a longer --budget",
            ) from error

    def _admit(self, reply: Reply) -> None:
        self.record["admission"] = reply
        check_admitted(self.task, reply)
        rejected = reply.get("decoys", ())
        self.say("admitted", f"admitted: {len(rejected)} known-wrong programs rejected", **reply)

    def _end(self, interrupted: bool) -> Result:
        loop = self.loop
        winner = loop.winner if loop else None
        status = "faster" if winner else "not-faster"
        result = Result(
            status="interrupted" if interrupted else status,
            message=message(loop, interrupted) + (self.modelled.cut_short() if self.modelled is not None else ""),
            run=self.folder.path,
            task=self.task.name,
            device=self.options.device,
            winner=winner,
            tried=loop.tried if loop else 0,
            rejected=loop.rejected if loop else 0,
            seconds=time.monotonic() - self.began,
            files=(),
            models=self.modelled.result(winner.candidate if winner else None) if self.modelled else None,
            spent=loop.pace.spent() if loop else {},
            overrun=loop.pace.words() if loop else "",
        )
        if winner is not None:
            self.folder.keep(winner.candidate)
        self.record |= {"status": result.status, "message": result.message, "result": result.to_json()}
        self.folder.write(self.record)
        files: tuple[Path, ...] = ()
        if winner is not None:
            worker, device = self.services.worker, self.options.device
            self.record["energy"] = energy_of_call(self.task, winner, worker, device)
            files = export_winner(
                self.folder.path, self.task, winner, self.facts, self.machine, worker, device, self.record["energy"]
            )
        self.record["cost"] = self._cost(interrupted)
        self.folder.write(self.record)
        with self.services.share():
            files += write_pages(self.folder.path)
        result = dataclasses.replace(result, files=files, seconds=time.monotonic() - self.began)
        self.record["result"] = result.to_json()
        self.folder.write(self.record)
        self._learn()
        self.say("done", result.message, status=result.status)
        fault = self.modelled.fault if self.modelled is not None else None
        if fault is not None:
            what = f"{fault.what}. Without it: {result.message}"
            raise ModelError(what, fault.got, fault.expected, f"{fault.what_next}; the run is in {self.folder.path}")
        return result


def _result(future: Future[Reply], pace: Pace, limit: float | None = None) -> Reply:
    """The result of a submitted job; an interrupt while waiting goes through. What the job waited for another judge
    counts as that, as far as it was waited for here."""
    began = time.monotonic()
    reply = future.result(timeout=limit)
    pace.waited(min(float(reply.get("waited", 0.0)), time.monotonic() - began))
    return reply
