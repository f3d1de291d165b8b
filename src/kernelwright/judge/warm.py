# SPDX-License-Identifier: Apache-2.0
"""What a candidate compiles while it runs, handed from one of its processes to the next, and nothing else.

A program that compiles itself (torch.compile, Triton) may write to a folder of its own. Were that the same folder for
all its processes, the second could read there what the first saw: which calls were asked first, with what values, and
how many came before the race. So every process gets a folder that no process had before it. It begins with a copy of
what a process left that was warmed up only: loaded, and called once in each layout on values that are used for nothing
else.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import shutil
import threading
from pathlib import Path

import torch

from kernelwright import wire
from kernelwright.candidate import Candidate
from kernelwright.judge import extensions, folders, race, taken, waiting
from kernelwright.judge.bench import Bench
from kernelwright.judge.leash import ChildFailure
from kernelwright.judge.loading import load
from kernelwright.judge.program import Program
from kernelwright.judge.programs import Programs

MOST_BYTES = 512 << 20
"""A larger folder is not copied for every process: each then compiles for itself. Inductor and Triton leave a few MiB;
the limit keeps a program from filling the disk."""


class Warm:
    """Folders of programs that compile themselves; ``cache`` keeps what warm-ups left between judges."""

    def __init__(self, programs: Programs, state: Path, cache: Path) -> None:
        self.kept = cache / "warm"
        self._programs, self._cache = programs, cache
        self._places = state / "jit"
        self._mine = self._places / str(os.getpid())
        self._used: dict[Path, Program] = {}
        self._starting = threading.Lock()

    def start(self, bench: Bench, candidate: Candidate, folder: Path, seconds: float, *, several: bool) -> Program:
        """A fresh confined process in ``folder``. ``several``: others follow, so a warm-up of its own pays; before
        one that builds extensions it always does, or a coarse judgement and the proof after it build the same twice.

        Raises ChildFailure: that of the warm-up, where the candidate fails in it.
        """
        device = str(bench.device)
        if not waiting.may_compile(candidate):
            return self._programs.fork(device, folder, seconds, None)
        pays = several and waiting.mentions_a_compiler(candidate) or waiting.builds_extensions(candidate)
        if pays and not self.left(candidate).exists():
            self._warm_up(bench, candidate, folder, seconds)
        with self._starting:  # the next one may be started beside this one
            own = self._fresh()
            self._begin(candidate, own)
            found = self.includes(candidate)
            self._used[own] = program = self._programs.fork(device, folder, seconds, own, includes=found)
        return program

    def aside(self, candidate: Candidate) -> Path | None:
        """A folder for processes that no verdict comes from, valid until asked for again; None where none is due."""
        if not waiting.may_compile(candidate):
            return None
        own = self._mine / "aside"
        folders.removed(own)
        self._begin(candidate, own)
        return own

    def _begin(self, candidate: Candidate, own: Path) -> None:
        if self.left(candidate).is_dir():
            shutil.copytree(self.left(candidate), own)

    def includes(self, candidate: Candidate, *, make: bool = False) -> Path | None:
        """Headers that its extensions were built with; ``make``: will be."""
        return extensions.headers(candidate, self._cache, make=make) if waiting.builds_extensions(candidate) else None

    def close(self) -> None:
        """Remove the folders of this judge, whose programs have ended."""
        folders.removed(self._mine)

    def left(self, candidate: Candidate) -> Path:
        """Where what the warm-up of these very sources left is kept, for this torch and this compiler."""
        return self.kept / wire.digest(candidate.digest(), torch.__version__, extensions.compiler())

    def _fresh(self) -> Path:
        """An empty place, the same one again where its program has ended: compilers' caches go by paths too."""
        if not self._used:
            self._forget_others()
        for number in itertools.count():
            place = self._mine / str(number)
            known = self._used.pop(place, None)
            if known is not None and Path(f"/proc/{known.pid}").exists():
                self._used[place] = known
            elif not place.exists() or folders.removed(place):
                return place
        raise AssertionError("numbers never end")

    def _forget_others(self) -> None:
        """Folders of judges that were killed."""
        for place in self._places.glob("*"):
            if not Path(f"/proc/{place.name}").exists():
                folders.removed(place)

    def _warm_up(self, bench: Bench, candidate: Candidate, folder: Path, seconds: float) -> None:
        own, point = self._fresh(), bench.timed
        instance, found = point.instance, self.includes(candidate, make=True)
        with self._programs.fork(str(bench.device), folder, seconds, own, includes=found) as program:
            load(program, candidate.entry, instance)
            program.stage = "smoke"
            buffers = point.bind(program, point.as_given, 1)
            race.fill(buffers, 0, instance.draw(point.as_given, int.from_bytes(os.urandom(7))))
            program.window([0], grad=bench.contract.gradients)
            with contextlib.suppress(ChildFailure):  # what fails there the checks find, and say where
                self._otherwise_laid(bench, program)
        self._keep(own, self.left(candidate))

    @staticmethod
    def _otherwise_laid(bench: Bench, program: Program) -> None:
        """A call in each layout that is checked: Triton compiles again where an address is no multiple of 16 bytes, and
        did so in every proof."""
        point = bench.timed
        for variant in taken.layouts(point):
            buffers = point.bind(program, variant, 1)
            race.fill(buffers, 0, point.instance.draw(variant, int.from_bytes(os.urandom(7))))
            program.window([0], grad=bench.contract.gradients)

    @staticmethod
    def _keep(own: Path, place: Path) -> None:
        """Move what a warm-up left to where copies are made from; links lead nowhere, and are dropped. What another
        judge has put there first stays: it may be copying it."""
        size = folders.settled(own)
        place.parent.mkdir(parents=True, exist_ok=True)
        if size is None or size > MOST_BYTES:
            folders.removed(own)
            own.mkdir(exist_ok=True)
        coming = place.with_name(f"{place.name}.{os.getpid()}")
        shutil.move(own, coming)  # may be of another file system
        try:
            coming.rename(place)
        except OSError:
            folders.removed(coming)
