# SPDX-License-Identifier: Apache-2.0
"""The corpus of cheats and honest programs through the judge, again and again, in as many runs as it takes.

    python benchmarks/corpus.py --out FILE [--repeats 20] [--seconds 200] [--honest | --cheats] [--level coarse ...]
                                [--lanes N]

Each run judges what has the fewest verdicts in FILE until its seconds are spent, and adds to FILE: one row per entry,
level and commit, with how often it was judged, how often rightly, and the words of every wrong verdict. Cheats are
judged at the level it takes, honest programs at every level asked for. Calling it again continues; nothing is left
out, and a wrong verdict stays in the file. ``--lanes 16`` judges with sixteen judges at a time, each with two cores
and a home and a folder for temporary files of its own; timings of lanes that share cores mean nothing.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import multiprocessing
import os
import random
import signal
import sys
import tempfile
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from multiprocessing.connection import Connection
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "src"), str(ROOT / "tests" / "cheats"), str(Path(__file__).parent)]

import provenance  # noqa: E402
import run_corpus  # noqa: E402
from corpus import Program  # noqa: E402

from kernelwright.workers.local import LocalWorker  # noqa: E402

LEVELS = ("coarse", "precise")
WORDS = 300
PART = 6
"""Entries of one task that are judged by one lane, in a row: a judge keeps a task warm, and some tasks have 60."""
WRITTEN_EVERY = 3.0
"""Seconds between two writings of the file: 128 lanes give ten verdicts a second."""
Key = tuple[str, str, str]
"""Task, name, level."""


def entries(asked: argparse.Namespace) -> list[tuple[Program, str]]:
    """What is to be judged and at which level."""
    found = []
    for program in run_corpus.by_task(p for p in run_corpus.ALL if p.device == asked.device):
        if program.honest and not asked.cheats:
            found += [(program, level) for level in asked.level or LEVELS]
        elif not program.honest and not asked.honest:
            found.append((program, program.level))
    return found


def read(path: Path) -> dict:
    """The rows so far, by commit."""
    return json.loads(path.read_text()) if path.exists() else {"rows": []}


def count(rows: list[dict], commit: str) -> dict[Key, dict]:
    """The rows of this commit by what they are about."""
    return {(row["task"], row["name"], row["level"]): row for row in rows if row["commit"] == commit}


def note(rows: list[dict], known: dict[Key, dict], verdict: run_corpus.Verdict, level: str, commit: str) -> None:
    """Add one verdict."""
    program = verdict.program
    key = program.task, program.name, level
    if key not in known:
        known[key] = {
            "task": program.task, "name": program.name, "level": level, "honest": program.honest, "commit": commit,
            "classes": list(program.classes), "verdicts": 0, "right": 0, "seconds": 0.0, "wrong": [],
        }  # fmt: skip
        rows.append(known[key])
    row = known[key]
    row["verdicts"] += 1
    row["right"] += verdict.right
    row["seconds"] = round(row["seconds"] + verdict.seconds, 2)
    if not verdict.right:
        row["wrong"].append(verdict.words[:WORDS])


def summary(rows: list[dict]) -> dict:
    """Counts over all commits in the file."""
    honest, cheats = ([row for row in rows if row["honest"] is kind] for kind in (True, False))
    return {
        "honest programs": len({(row["task"], row["name"]) for row in honest}),
        "honest verdicts": sum(row["verdicts"] for row in honest),
        "honest refused": sum(row["verdicts"] - row["right"] for row in honest),
        "cheats": len({(row["task"], row["name"]) for row in cheats}),
        "cheat verdicts": sum(row["verdicts"] for row in cheats),
        "cheats misjudged": sum(row["verdicts"] - row["right"] for row in cheats),
        "fewest honest verdicts per entry and level": min((row["verdicts"] for row in honest), default=0),
    }


def text(rows: list[dict]) -> str:
    """A file of these rows, each on a line."""
    lines = ",\n".join(json.dumps(row) for row in rows)
    return f'{{"summary": {json.dumps(summary(rows))}, "rows": [\n{lines}\n]}}\n'


def lane(device: str, folder: Path, cores: set[int], channel: Connection) -> None:
    """Judge the entries whose program and level arrive, until None does."""
    for name in ("HOME", "TMPDIR"):
        place = folder / name.lower()
        place.mkdir(parents=True)
        place.chmod(0o1777)
        os.environ[name] = str(place)
    tempfile.tempdir = None
    os.environ["OMP_NUM_THREADS"] = str(len(cores))
    os.sched_setaffinity(0, cores)
    folder.chmod(0o755)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent ends a lane by closing the channel
    with contextlib.suppress(EOFError), LocalWorker(device, folder / "state", folder / "cache") as worker:
        while (item := channel.recv()) is not None:
            channel.send(run_corpus.judge(worker, *item))


class Corpus:
    """What is to be judged, how often it was, and the file that says so."""

    def __init__(self, asked: argparse.Namespace) -> None:
        self.asked = asked
        self.rows: list[dict] = read(asked.out)["rows"]
        self.commit = provenance.commit()
        self.known = count(self.rows, self.commit)
        self.parts: list[list[tuple[Program, str]]] = []
        for item in entries(asked):
            if not self.parts or len(self.parts[-1]) == PART or self.parts[-1][-1][0].task != item[0].task:
                self.parts.append([])
            self.parts[-1].append(item)
        random.Random(self.commit).shuffle(self.parts)  # runs that time ends see other tasks on each commit
        self.taken = [min(map(self.judged, part)) for part in self.parts]
        self.lock = threading.Lock()
        self.until = time.monotonic() + asked.seconds
        self.written = 0.0
        self.wrong = 0

    def judged(self, item: tuple[Program, str]) -> int:
        """How often an entry was judged on this commit."""
        program, level = item
        return self.known.get((program.task, program.name, level), {"verdicts": 0})["verdicts"]

    def take(self) -> list[tuple[Program, str]]:
        """The part that was taken least often."""
        with self.lock:
            least = min(range(len(self.parts)), key=self.taken.__getitem__, default=-1)
            if least < 0 or self.taken[least] >= self.asked.repeats:
                return []
            self.taken[least] += 1
            return self.parts[least]

    def add(self, verdict: run_corpus.Verdict, level: str) -> None:
        """Add a verdict to the rows; the file follows every few seconds."""
        with self.lock:
            note(self.rows, self.known, verdict, level, self.commit)
            self.wrong += not verdict.right
            if not verdict.right:
                program = verdict.program
                sys.stdout.write(f"WRONG {level} {program.task}/{program.name}: {verdict.words[:WORDS]}\n")
                sys.stdout.flush()
            if time.monotonic() - self.written > WRITTEN_EVERY:
                self.write()

    def write(self) -> None:
        """The file, whole at any moment."""
        beside = self.asked.out.with_suffix(".part")
        beside.write_text(text(self.rows))
        beside.replace(self.asked.out)
        self.written = time.monotonic()

    def feed(self, folder: Path, cores: set[int]) -> None:
        """Keep one lane at work until the time is spent; one that dies is noted as wrong and replaced."""
        context = multiprocessing.get_context("spawn")
        ends = 0
        while time.monotonic() < self.until:
            here, there = context.Pipe()
            process = context.Process(target=lane, args=(self.asked.device, folder / str(ends), cores, there))
            process.start()
            there.close()
            ends += 1
            with here:
                if not self.fed(here):
                    here.send(None)
                    process.join()
                    return
            process.join()

    def fed(self, channel: Connection) -> bool:
        """Whether the lane died; False where nothing is left to judge or no time."""
        while items := self.take():
            for program, level in items:
                if time.monotonic() > self.until:
                    return False
                began = time.monotonic()
                try:
                    channel.send((program, level))
                    self.add(channel.recv(), level)
                except (EOFError, BrokenPipeError):
                    words, seconds = "the judge's own process died", time.monotonic() - began
                    self.add(run_corpus.Verdict(program, False, words, "", None, seconds), level)
                    return True
        return False


def main() -> int:
    """Judge until the time is spent; the exit code says whether a verdict of this run was wrong."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--repeats", type=int, default=20)
    parser.add_argument("--seconds", type=float, default=200.0)
    parser.add_argument("--honest", action="store_true")
    parser.add_argument("--cheats", action="store_true")
    parser.add_argument("--level", action="append", choices=LEVELS)
    parser.add_argument("--device", default="cpu", choices=("cpu", "cuda"))
    parser.add_argument("--lanes", type=int, default=1)
    corpus = Corpus(parser.parse_args())
    signal.signal(signal.SIGINT, lambda *_: setattr(corpus, "until", 0.0))  # what is being judged is finished, written
    cores = sorted(os.sched_getaffinity(0))
    pairs = [set(cores[k : k + 2]) for k in range(0, len(cores), 2)] if corpus.asked.lanes > 1 else [set(cores)]
    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(corpus.asked.lanes) as threads:
        Path(folder).chmod(0o755)
        lanes = [
            threads.submit(corpus.feed, Path(folder, str(k)), pairs[k % len(pairs)]) for k in range(corpus.asked.lanes)
        ]
        for each in lanes:
            each.result()
    corpus.write()
    sys.stdout.write(f"{json.dumps(summary(corpus.rows))}\n")
    return bool(corpus.wrong)


if __name__ == "__main__":
    sys.exit(main())
