# SPDX-License-Identifier: Apache-2.0
"""The verb ``demo``: every task below a folder, a few at a time where there are cores for it, in one table.

On a GPU most of a first proof waits for compilers of baselines. A judge has the device to itself only while it times,
and what other judges have in the background stands still then, so several of them, each with a task of its own, take
little longer than one. Only of tasks that leave each other room: three RMSNorms of 1 GiB a call left each window room
for one call, whose overhead then halved every ratio (3.05x of eager where one judge alone reads 4.4x), and a layer norm
none at all. Those come last, one after the other. Not on two cores: while one judge is alone the other waits, and the
ten examples took 237 s in two lanes for 236 in one.
"""

from __future__ import annotations

import contextlib
import os
import queue
import shutil
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor, wait
from pathlib import Path
from typing import Annotated, Any

import typer

import kernelwright
from kernelwright import cli_display, cli_models, settings
from kernelwright.cli_judge import table
from kernelwright.errors import BadCommand, BudgetTooSmall, KernelwrightError

MOST_LANES, LANE_BYTES, LANE_CORES = 3, 6 << 30, 4
"""Tasks at a time: at the most, and the memory and the cores that there must be for each."""
BUDGETS = ("5s", "2m", "10m")
"""Wall time for a task, in turn, until a proof has room: on two cores that others use a product of 1024 x 8192 x 8192
was expected to take 128 s, which 5 s cannot hold."""
HEADINGS = ("task", "result", "speedup", "against", "vs eager", "of bound", "bits lost", "trials", "s")


def register(app: typer.Typer, guarded: cli_models.Guarded, show: cli_models.Show) -> None:
    """Add the verb to ``app``; ``guarded`` turns errors into exit codes, ``show`` prints."""

    @app.command()
    @guarded
    def demo(
        folder: Annotated[str, typer.Argument(help="Folder of tasks.")] = "tasks",
        device: Annotated[
            str | None, typer.Option(help="cpu or cuda:N (default: KERNELWRIGHT_DEVICE, else cpu).")
        ] = None,
        budget: Annotated[
            str | None, typer.Option(help="Wall time for each task (default: 5s; more where no proof fits in).")
        ] = None,
        out: Annotated[str | None, typer.Option(help="Folder of the runs.")] = None,
        lanes: Annotated[
            int | None, typer.Option(min=1, help="Tasks at a time (default: by cores and memory, at most 3).")
        ] = None,
        as_json: Annotated[
            bool, typer.Option("--json", help="One JSON object on standard output, nothing else.")
        ] = False,
    ) -> None:
        """Optimise every task below a folder and print a table."""
        places = sorted(path.parent for path in Path(folder).rglob("task.toml")) or sorted(Path(folder).glob("*.py"))
        if not places:
            wanted = "a folder with task folders or .py files"
            raise BadCommand("There is nothing to show.", got=folder, expected=wanted)
        if budget is not None:
            settings.seconds(budget)  # refused at once, not in each row
        chosen = settings.device(device or settings.read().device)
        with _board(len(places), quiet=as_json) as board:
            rows = _Lanes(places, chosen, budget, out, board).run(lanes or usual())
        cells = [tuple(str(row[name]) for name in HEADINGS) for row in rows]
        show(rows, as_json, lambda: table(HEADINGS, cells))
        if any(row["status"] == "interrupted" for row in rows) or len(rows) < len(places):
            raise KeyboardInterrupt


def usual() -> int:
    """How many tasks go on at a time where nobody says."""
    import psutil  # noqa: PLC0415 - of no use to other verbs

    cores, free = len(os.sched_getaffinity(0)), psutil.virtual_memory().available
    return max(1, min(MOST_LANES, cores // LANE_CORES, free // LANE_BYTES))


class _Lanes:
    """Tasks in order, each taken by the first of several judges that is free."""

    def __init__(self, places: list[Path], device: str, budget: str | None, out: str | None, board: _Board) -> None:
        self._budgets = (budget,) if budget else BUDGETS
        self._device, self._out, self._board = device, out, board
        self._places = places
        self._left: queue.SimpleQueue[int] = queue.SimpleQueue()
        for number in range(len(places)):
            self._left.put(number)
        self._large: queue.SimpleQueue[int] = queue.SimpleQueue()
        """Tasks that need more of the device than a lane's part."""
        self._rows: dict[int, dict[str, Any]] = {}
        self._services: list[kernelwright.Services] = []
        self._over = threading.Event()
        self._lanes, self._counting = 1, threading.Lock()

    def run(self, lanes: int) -> list[dict[str, Any]]:
        """The rows that there are once all tasks are done, or after an interrupt."""
        self._lanes = lanes = min(lanes, len(self._places))
        with cli_display.terminable(), ThreadPoolExecutor(lanes, thread_name_prefix="lane") as pool:
            going: list[Future[None]] = []
            try:
                for _ in range(lanes):
                    going.append(pool.submit(self._lane, 1 / lanes))
                wait(going)
            except KeyboardInterrupt:  # it may come before the last lane has begun
                self._over.set()
                for services in list(self._services):
                    services.interrupt()
                wait(going)
        for lane in going:
            lane.result()
        return [self._rows[number] for number in sorted(self._rows)]

    def _lane(self, share: float) -> None:
        with kernelwright.Services(self._device) as services:
            self._services.append(services)
            self._all_of(self._left, services, share)
            with self._counting:
                self._lanes -= 1
                last = not self._lanes
            if last:  # all other judges have gone, or are about to, with what they held
                self._all_of(self._large, services, 1.0)

    def _all_of(self, numbers: queue.SimpleQueue[int], services: kernelwright.Services, share: float) -> None:
        """Those of a queue that need no more than this share of the device; the others are put off."""
        while not self._over.is_set():
            try:
                number = numbers.get_nowait()
            except queue.Empty:
                return
            place = self._places[number]
            try:
                if share < 1.0 and self._share(place, services) > share:
                    self._large.put(number)
                else:
                    self._board.begins(number, place.stem)
                    self._rows[number] = self._row(place, services)
            except KeyboardInterrupt:  # before there was anything to keep
                self._rows[number] = _without_result(place, "interrupted", "interrupted")
            self._board.ends(place.stem)

    def _share(self, place: Path, services: kernelwright.Services) -> float:
        """Of the device's memory, what a race of this task takes; 0 where that cannot be known."""
        if self._device == "cpu":
            return 0.0
        try:
            services.machine(lambda text: self._board.says(place.stem, text))
            return float(services.describe(kernelwright.load_task(place, self._device)).get("race_share", 0.0))
        except KernelwrightError:  # its row will say why
            return 0.0

    def _row(self, place: Path, services: kernelwright.Services) -> dict[str, Any]:
        """One row of the table; a task that fails is a row too."""
        target = Path(self._out) / place.stem if self._out is not None else None
        try:
            result = self._optimized(place, target, services)
        except KernelwrightError as error:
            return _without_result(place, f"{type(error).__name__}: {error.what} ({error.got[:120]})", "failed")
        row = _without_result(place, result.status, result.status)
        row |= {"trials": result.tried, "s": round(result.seconds, 1), "run": str(result.run)}
        outcome = result.winner.outcome if result.winner else None
        if isinstance(outcome, kernelwright.Timed):
            eager = next((b.speedup for b in outcome.baselines if b.name == "eager"), None)
            row |= {
                "speedup": cli_display.times(outcome.speedup),
                "against": outcome.best_baseline,
                "vs eager": cli_display.times(eager),
                "of bound": "" if outcome.bound_fraction is None else f"{outcome.bound_fraction:.0%}",
                "bits lost": f"{outcome.proof.bits_lost:.2f}",
            }
        return row

    def _optimized(self, place: Path, target: Path | None, services: kernelwright.Services) -> kernelwright.Result:
        """With the least of the budgets in which a proof has room."""
        ours = target is not None and not target.exists()
        for number, budget in enumerate(self._budgets, 1):
            try:
                return kernelwright.optimize(
                    str(place),
                    device=self._device,
                    budget=budget,
                    out=target,
                    services=services,
                    listen=lambda event: self._board.hears(place.stem, event),
                )
            except BudgetTooSmall:
                if number == len(self._budgets):
                    raise
                if ours and target is not None:
                    shutil.rmtree(target, ignore_errors=True)  # nothing was tried in it
        raise AssertionError("there is no budget")


def _without_result(place: Path, result: str, status: str) -> dict[str, Any]:
    return {"task": place.stem, **dict.fromkeys(HEADINGS[2:], ""), "result": result, "status": status}


class _Board:
    """Which tasks go on: a line when one begins, on a terminal also what each is doing. Called by all lanes."""

    def __init__(self, count: int) -> None:
        self._count = count

    def begins(self, number: int, task: str) -> None:
        typer.echo(f"[{number + 1}/{self._count}] {task}")

    def says(self, task: str, text: str) -> None: ...

    def hears(self, task: str, event: kernelwright.Event) -> None: ...

    def ends(self, task: str) -> None: ...


class _Silent(_Board):
    def begins(self, number: int, task: str) -> None: ...


class _Live(_Board):
    def __init__(self, count: int) -> None:
        from rich.console import Console  # noqa: PLC0415 - 0.1 s that only a terminal pays

        super().__init__(count)
        self._console = Console(highlight=False)
        self.status = self._console.status("starting")
        self._doing: dict[str, str] = {}
        self._lock = threading.Lock()

    def begins(self, number: int, task: str) -> None:
        self._console.print(cli_display.escaped(f"[{number + 1}/{self._count}] {task}"))

    def says(self, task: str, text: str) -> None:
        self._now(task, f"{task} {text}")

    def hears(self, task: str, event: kernelwright.Event) -> None:
        self._now(task, f"{task} [{event.seconds:5.1f} s] {event.text}")
        if event.kind != "phase":
            cli_display.rich_line(self._console, event, f"{task}: ")

    def ends(self, task: str) -> None:
        self._now(task, None)

    def _now(self, task: str, doing: str | None) -> None:
        with self._lock:
            self._doing.pop(task, None)
            if doing is not None:
                self._doing[task] = doing
            self.status.update(cli_display.escaped("\n".join(self._doing[name] for name in sorted(self._doing))))


@contextlib.contextmanager
def _board(count: int, *, quiet: bool) -> Iterator[_Board]:
    if quiet or not sys.stdout.isatty():
        yield _Silent(count) if quiet else _Board(count)
        return
    live = _Live(count)
    with live.status:
        yield live
