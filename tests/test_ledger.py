# SPDX-License-Identifier: Apache-2.0
"""ledger.py: what goes in comes out, nothing is stored twice, damage is noticed, every query has its index."""

from __future__ import annotations

import dataclasses
import os
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest

from kernelwright.candidate import Candidate
from kernelwright.errors import LedgerCorrupt, RunFolderUnwritable
from kernelwright.ledger import QUERIES, open_ledger
from kernelwright.testing import timed
from kernelwright.trial import Rejected, Trial


def make(number: int, median_us: float | None = None, *, level: str = "coarse", proposer: str = "templates") -> Trial:
    """A trial of candidate ``number``; no median means rejected."""
    candidate = Candidate(
        task="t",
        language="cpp",
        entry="optimized.py::ModelNew",
        sources=(("k.cpp", f"// {number}"), ("optimized.py", "import shared")),
        tunables=(("block", number),),
        proposer=proposer,
    )
    refused = Rejected(stage="verify", reason="wrong", detail="worst at 3")
    return Trial(
        candidate=candidate,
        outcome=refused if median_us is None else timed(median_us, level=level),
        level=level,
        machine="m1",
        versions=(("torch", "2.9"),),
        seconds=1.5,
        started_at=1000.0 + number,
    )


def test_a_trial_comes_back_exactly_as_it_went_in(tmp_path: Path) -> None:
    """After closing and opening, sources, samples and all."""
    trials = [make(1, 20.0), make(2), make(3, 30.0, level="precise")]
    ledger = open_ledger(tmp_path / "l.sqlite")
    numbers = [ledger.record(trial, "templates/rowwise") for trial in trials]
    ledger.close()
    again = open_ledger(tmp_path / "l.sqlite", writable=False)
    assert trials == [again.trial(number) for number in numbers]
    assert ["templates/rowwise"] * 3 == [row.structure for row in again.rows()]
    again.close()


def test_a_source_text_is_stored_once(tmp_path: Path) -> None:
    """Fifty variants of one wrapper cost one copy of it."""
    ledger = open_ledger(tmp_path / "l.sqlite")
    for number in range(50):
        ledger.record(make(number, 10.0))
    stored = sqlite3.connect(tmp_path / "l.sqlite").execute("select count(*) from sources").fetchone()[0]
    assert 51 == stored
    ledger.close()


def test_the_report_questions_are_answered(tmp_path: Path) -> None:
    """Best, top, trajectory, stages and proposers over a known set of trials."""
    ledger = open_ledger(tmp_path / "l.sqlite")
    for number, median in enumerate([50.0, None, 40.0, 45.0, 20.0]):
        ledger.record(make(number, median, proposer="compiler" if number == 0 else "templates"))
    ledger.record(make(4, 25.0, level="precise"))
    assert [20.0, 40.0] == [row.median_us for row in ledger.top(2)]
    assert [50.0, 40.0, 20.0] == [median for _, _, median, _ in ledger.trajectory()]
    assert {"": (5, 7.5), "verify": (1, 1.5)} == ledger.stages()
    assert {"compiler": (1, 1, 1.5, 2.0), "templates": (5, 4, 7.5, 5.0)} == ledger.proposers()
    best = ledger.best()
    assert best is not None
    assert ("precise", 25.0) == (best.level, best.median_us)
    ledger.close()


def test_known_candidates_are_found_by_content_level_and_machine(tmp_path: Path) -> None:
    """The proposer may differ, the machine may not."""
    ledger = open_ledger(tmp_path / "l.sqlite")
    number = ledger.record(make(7, 12.0))
    other = dataclasses.replace(make(7, 12.0).candidate, proposer="someone", note="else").digest()
    assert number == ledger.known(other, "coarse", "m1")
    assert None is ledger.known(other, "precise", "m1")
    assert None is ledger.known(other, "coarse", "m2")
    ledger.close()


def test_a_reader_leaves_no_files_beside_a_closed_ledger(tmp_path: Path) -> None:
    """A report made again left -shm and -wal there; a ledger that is opened again goes on."""
    path = tmp_path / "l.sqlite"
    for number in range(2):
        ledger = open_ledger(path)
        ledger.record(make(number))
        ledger.close()
        reader = open_ledger(path, writable=False)
        assert number + 1 == reader.count()
        reader.close()
        assert [path] == list(tmp_path.iterdir())


@pytest.mark.parametrize("name", sorted(QUERIES))
def test_every_query_of_the_report_uses_an_index(tmp_path: Path, name: str) -> None:
    """A full scan of 100,000 rows, or a sort of them, would show as SCAN without INDEX or as a temporary tree."""
    ledger = open_ledger(tmp_path / "l.sqlite")
    plan = ledger.plan(name)
    ledger.close()
    assert plan
    for step in plan:
        assert "INDEX" in step, step
        assert "TEMP B-TREE" not in step, step


def test_a_killed_writer_loses_nothing_that_was_recorded(tmp_path: Path) -> None:
    """kill -9 right after record returned: the trial is there, and the next writer can go on."""
    path = tmp_path / "l.sqlite"
    code = (
        "import sys, os, signal; sys.path.insert(0, sys.argv[2]);"
        "from pathlib import Path; from test_ledger import make; from kernelwright.ledger import open_ledger;"
        "ledger = open_ledger(Path(sys.argv[1])); [ledger.record(make(n, 10.0)) for n in range(5)];"
        "os.kill(os.getpid(), signal.SIGKILL)"
    )
    done = subprocess.run([sys.executable, "-c", code, str(path), str(Path(__file__).parent)], check=False)
    assert -9 == done.returncode
    ledger = open_ledger(path)
    assert 5 == ledger.count()
    ledger.record(make(6, 10.0))
    assert 6 == ledger.count()
    ledger.close()


def filled(path: Path) -> None:
    """A ledger with enough pages to damage."""
    ledger = open_ledger(path)
    for number in range(200):
        ledger.record(make(number, 10.0 + number))
    ledger.close()


def test_damage_anywhere_in_the_file_is_one_clear_error(tmp_path: Path) -> None:
    """The header, and a page in the middle."""
    for place in (0, 4096 * 9):
        path = tmp_path / f"{place}.sqlite"
        filled(path)
        with path.open("r+b") as file:
            file.seek(place)
            file.write(b"\xa5" * 2048)
        with pytest.raises(LedgerCorrupt, match="damaged"):
            open_ledger(path)


def test_a_file_of_something_else_is_not_taken_for_a_ledger(tmp_path: Path) -> None:
    """Neither text nor someone else's database is written to."""
    text = tmp_path / "a.sqlite"
    text.write_text("hello " * 1000)
    foreign = tmp_path / "b.sqlite"
    other = sqlite3.connect(foreign)
    other.execute("create table mine (x)")
    other.commit()
    other.close()
    for path in (text, foreign):
        before = path.read_bytes()
        with pytest.raises(LedgerCorrupt):
            open_ledger(path)
        assert before == path.read_bytes()


def test_a_place_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    """Here the folder does not exist, which SQLite reports as it does a read-only one."""
    with pytest.raises(RunFolderUnwritable) as caught:
        open_ledger(tmp_path / "missing" / "l.sqlite")
    assert str(tmp_path / "missing") in caught.value.what


def test_a_full_disk_keeps_what_was_recorded(tmp_path: Path) -> None:
    """The page limit of SQLite stands in for the disk: the error is clear and the earlier trials stay."""
    ledger = open_ledger(tmp_path / "l.sqlite")
    ledger.record(make(1, 10.0))
    pages = ledger._connection.execute("pragma page_count").fetchone()[0]
    ledger._connection.execute(f"pragma max_page_count = {pages + 2}")
    with pytest.raises(RunFolderUnwritable):
        for number in range(2, 500):
            ledger.record(make(number, 10.0))
    kept = ledger.count()
    ledger.close()
    again = open_ledger(tmp_path / "l.sqlite", writable=False)
    assert kept == again.count() == len(again.rows())
    again.close()


@pytest.mark.skipif(os.geteuid() == 0, reason="the superuser may write anywhere")
def test_a_ledger_in_a_read_only_folder_can_still_be_read(tmp_path: Path) -> None:
    """Reports are made from archives too."""
    filled(tmp_path / "l.sqlite")
    tmp_path.chmod(0o555)
    try:
        ledger = open_ledger(tmp_path / "l.sqlite", writable=False)
        assert 200 == ledger.count()
        ledger.close()
    finally:
        tmp_path.chmod(0o755)
