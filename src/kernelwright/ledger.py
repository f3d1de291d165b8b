# SPDX-License-Identifier: Apache-2.0
"""Append-only store of trials in one SQLite file; resume, duplicates and history are queries on it.

A trial's row holds what the report asks for, indexed; its full JSON is a second table, read one at a time;
a source text is stored once under the hash of its content. Every write is one transaction, so a killed run
loses at most the trial in flight. Safe between threads of one process; one writing process at a time.
"""

from __future__ import annotations

import errno
import json
import sqlite3
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kernelwright import wire
from kernelwright.errors import LedgerCorrupt, RunFolderUnwritable
from kernelwright.trial import Rejected, Timed, Trial

APPLICATION_ID = 0x4B574C31  # "KWL1"
VERSION = 1
LEVELS = ("smoke", "coarse", "precise")
FULL_CHECK_BYTES = 16 << 20
"""Ledgers up to this size, and those not closed cleanly, are checked page by page on opening (about 1 ms per MiB)."""

_SCHEMA = (
    "create table meta (key text primary key, value text not null) without rowid",
    "create table sources (hash text primary key, text text not null) without rowid",
    "create table trials (id integer primary key, candidate text not null, structure text not null,"
    " proposer text not null, language text not null, note text not null, tunables text not null,"
    " level text not null, stage text not null, reason text not null, median_us real, speedup real,"
    " speedup_low real, machine text not null, seconds real not null, started_at real not null)",
    "create table bodies (id integer primary key, body text not null)",
    "create index trials_by_candidate on trials (candidate, level, machine)",
    "create index trials_by_stage on trials (stage, seconds)",
    "create index trials_by_proposer on trials (proposer, stage, seconds, speedup)",
    "create index trials_by_speed on trials (level, speedup desc) where stage = ''",
    "create index trials_by_proof on trials (level, speedup_low desc) where stage = ''",
    "create index trials_trajectory on trials (level, started_at, speedup, median_us, candidate) where stage = ''",
)

QUERIES: Mapping[str, str] = {
    "top": "select * from trials where stage = '' and level = ? order by speedup desc limit ?",
    "best": "select * from trials where stage = '' and level = ? order by speedup_low desc limit 1",
    "trajectory": "select started_at, speedup, median_us, candidate from trials"
    " where stage = '' and level = ? order by started_at",
    "stages": "select stage, count(*), sum(seconds) from trials group by stage",
    "proposers": "select proposer, count(*), sum(stage = ''), sum(seconds), max(speedup) from trials group by proposer",
    "known": "select id from trials where candidate = ? and level = ? and machine = ? order by id desc limit 1",
}
"""The report's questions; the tests hold each to an index."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """The indexed part of one trial. ``stage`` and ``reason`` are empty for a timed one, the numbers None else."""

    id: int
    candidate: str
    """Digest of the candidate."""
    structure: str
    """``proposer/structure`` it was rendered from, or empty."""
    proposer: str
    language: str
    note: str
    tunables: str
    """JSON list of (name, value)."""
    level: str
    stage: str
    reason: str
    median_us: float | None
    speedup: float | None
    speedup_low: float | None
    machine: str
    seconds: float
    started_at: float


class Ledger:
    """One open ledger; ``open_ledger`` makes it.

    Raises LedgerCorrupt for a damaged file and RunFolderUnwritable for a full disk or a read-only place;
    what was recorded before stays.
    """

    def __init__(self, path: Path, connection: sqlite3.Connection, *, writable: bool) -> None:
        self.path = path
        self._connection = connection
        self._writable = writable
        self._lock = threading.RLock()

    def record(self, trial: Trial, structure: str = "") -> int:
        """Append a trial and return its number; durable against a killed process when this returns."""
        row = _columns(trial, structure)
        body = wire.to_data(trial)
        sources = [(wire.digest(text), text) for _, text in trial.candidate.sources]
        body["candidate"]["sources"] = [
            [name, key] for (name, _), (key, _) in zip(trial.candidate.sources, sources, strict=True)
        ]
        marks = ", ".join("?" * len(row))
        with self._transaction() as cursor:
            cursor.executemany("insert or ignore into sources values (?, ?)", sources)
            cursor.execute(f"insert into trials ({', '.join(row)}) values ({marks})", tuple(row.values()))
            number = int(cursor.lastrowid or 0)
            cursor.execute("insert into bodies values (?, ?)", (number, json.dumps(body, separators=(",", ":"))))
        return number

    def trial(self, number: int) -> Trial:
        """The whole trial, sources included. Raises KeyError for a number that is not there."""
        found = self._rows("select body from bodies where id = ?", (number,))
        if not found:
            raise KeyError(number)
        try:
            body = json.loads(found[0][0])
            body["candidate"]["sources"] = [[name, self.source(key)] for name, key in body["candidate"]["sources"]]
            return wire.from_data(Trial, body)
        except (ValueError, KeyError, TypeError) as error:
            raise _corrupt(self.path, f"trial {number}: {error}") from error

    def source(self, key: str) -> str:
        """A stored source text by its hash. Raises KeyError for an unknown one."""
        found = self._rows("select text from sources where hash = ?", (key,))
        if not found:
            raise KeyError(key)
        return str(found[0][0])

    def known(self, candidate: str, level: str, machine: str) -> int | None:
        """The latest trial of this candidate at this level on this machine, or None: duplicates cost nothing."""
        found = self._rows(QUERIES["known"], (candidate, level, machine))
        return int(found[0][0]) if found else None

    def best(self, level: str = "precise") -> Row | None:
        """The trial whose speedup is proved highest (lower end of its interval), or None."""
        found = self._rows(QUERIES["best"], (level,))
        return Row(**dict(found[0])) if found else None

    def top(self, count: int = 20, level: str = "coarse") -> list[Row]:
        """The fastest trials of a level, best first."""
        return [Row(**dict(row)) for row in self._rows(QUERIES["top"], (level, count))]

    def rows(self) -> list[Row]:
        """Every trial's row in the order of recording."""
        return [Row(**dict(row)) for row in self._rows("select * from trials order by id")]

    def trajectory(self, level: str = "coarse") -> list[tuple[float, float, float, str]]:
        """(started_at, speedup, median_us, candidate) of each trial that was the best of its level when it came."""
        best, found = 0.0, []
        for at, speedup, median_us, candidate in self._rows(QUERIES["trajectory"], (level,)):
            if speedup > best:
                best = speedup
                found.append((at, speedup, median_us, candidate))
        return found

    def stages(self) -> dict[str, tuple[int, float]]:
        """Stage of rejection (empty: timed) to (trials, seconds spent on them)."""
        return {row[0]: (row[1], row[2]) for row in self._rows(QUERIES["stages"])}

    def proposers(self) -> dict[str, tuple[int, int, float, float | None]]:
        """Proposer to (trials, of them timed, seconds, best speedup or None)."""
        return {row[0]: (row[1], row[2], row[3], row[4]) for row in self._rows(QUERIES["proposers"])}

    def count(self) -> int:
        """How many trials there are."""
        return int(self._rows("select count(*) from bodies")[0][0])

    def plan(self, name: str) -> list[str]:
        """SQLite's plan of one of QUERIES, for the tests that hold it to an index."""
        query = QUERIES[name]
        marks = (1,) * query.count("?")
        return [str(row[3]) for row in self._rows(f"explain query plan {query}", marks)]

    def close(self) -> None:
        """Mark the file as closed cleanly and release it; calling it twice is harmless."""
        with self._lock:
            try:
                if self._writable:
                    self._connection.execute("insert or replace into meta values ('clean', '1')")
                    # A reader of a file in WAL mode leaves two more beside it; where another has it open it stays so.
                    self._connection.execute("pragma journal_mode = delete")
                self._connection.close()
            except sqlite3.Error:
                # Only the mark is lost: the next opening checks the file in full.
                self._connection.close()

    @contextmanager
    def _transaction(self) -> Iterator[sqlite3.Cursor]:
        with self._lock, _translated(self.path):
            cursor = self._connection.cursor()
            cursor.execute("begin immediate")
            try:
                yield cursor
                cursor.execute("commit")
            except BaseException:
                if self._connection.in_transaction:
                    self._connection.rollback()
                raise

    def _rows(self, query: str, values: Sequence[object] = ()) -> list[sqlite3.Row]:
        with self._lock, _translated(self.path):
            return self._connection.execute(query, tuple(values)).fetchall()


def open_ledger(path: Path, *, writable: bool = True) -> Ledger:
    """Open the ledger at ``path``; a writable one is made where there is none. FileNotFoundError when reading only."""
    exists = path.exists() and path.stat().st_size > 0
    if not exists and not writable:
        raise FileNotFoundError(path)
    with _translated(path):
        mode = "rwc" if writable else "ro"
        # isolation_level None: transactions are written out, never opened behind our back.
        connection = sqlite3.connect(
            f"{path.absolute().as_uri()}?mode={mode}",
            uri=True,
            timeout=30,
            isolation_level=None,
            check_same_thread=False,
        )
        connection.row_factory = sqlite3.Row
        try:
            if exists:
                _check(path, connection)
            if writable:
                _prepare(connection, fresh=not exists)
        except BaseException:
            connection.close()
            raise
    return Ledger(path, connection, writable=writable)


def there(path: Path, record: Mapping[str, Any]) -> bool:
    """Whether a run's ledger is there; a run killed before it was made has none. Raises LedgerCorrupt where it is gone:
    the run's record (run.json) tells of trials, and a page or a search without them would take their place."""
    if path.exists() and path.stat().st_size:
        return True
    tried = (record.get("result") or {}).get("tried", 0)
    if not tried:
        return False
    raise LedgerCorrupt(
        f"The ledger {path} is gone.",
        got="an empty file" if path.exists() else "no such file",
        expected=f"the {tried} trials that run.json tells of",
        what_next="put it back, or start a new run in another folder; the files beside it are still good",
    )


def _prepare(connection: sqlite3.Connection, *, fresh: bool) -> None:
    connection.execute("pragma journal_mode = wal")
    # WAL + normal: survives a killed process without a sync per trial; a power cut may lose the last trials.
    connection.execute("pragma synchronous = normal")
    connection.execute("begin immediate")
    if fresh:
        connection.execute(f"pragma application_id = {APPLICATION_ID}")
        connection.execute(f"pragma user_version = {VERSION}")
        for statement in _SCHEMA:
            connection.execute(statement)
    connection.execute("insert or replace into meta values ('clean', '0')")
    connection.execute("commit")


def _check(path: Path, connection: sqlite3.Connection) -> None:
    marks = [connection.execute(f"pragma {name}").fetchone()[0] for name in ("application_id", "user_version")]
    if marks != [APPLICATION_ID, VERSION]:
        raise _corrupt(path, f"application id and version {marks}")
    clean = connection.execute("select value from meta where key = 'clean'").fetchone()
    if clean is None or clean[0] != "1" or path.stat().st_size <= FULL_CHECK_BYTES:
        found = connection.execute("pragma quick_check(1)").fetchone()[0]
        if found != "ok":
            raise _corrupt(path, str(found))


def _columns(trial: Trial, structure: str) -> dict[str, object]:
    outcome = trial.outcome
    rejected = outcome if isinstance(outcome, Rejected) else None
    timed = outcome if isinstance(outcome, Timed) else None
    return {
        "candidate": trial.candidate.digest(),
        "structure": structure,
        "proposer": trial.candidate.proposer,
        "language": trial.candidate.language,
        "note": trial.candidate.note,
        "tunables": wire.dumps(trial.candidate.tunables),
        "level": trial.level,
        "stage": rejected.stage if rejected else "",
        "reason": rejected.reason if rejected else "",
        "median_us": timed.timing.median_us if timed else None,
        "speedup": timed.speedup if timed else None,
        "speedup_low": timed.speedup_low if timed else None,
        "machine": trial.machine,
        "seconds": trial.seconds,
        "started_at": trial.started_at,
    }


def _corrupt(path: Path, got: str) -> LedgerCorrupt:
    return LedgerCorrupt(
        f"The ledger {path} is damaged.",
        got=got[:300],
        expected="a ledger that passes its integrity check",
        what_next="start a new run in another folder; the files beside the ledger are still good",
    )


@contextmanager
def _translated(path: Path) -> Iterator[None]:
    """SQLite's and the system's errors as ours; anything else is a defect and passes through."""
    try:
        yield
    except sqlite3.OperationalError as error:
        text = str(error)
        if any(word in text for word in ("readonly", "full", "unable to open", "disk I/O", "locked")):
            raise _unwritable(path, text) from error
        raise _corrupt(path, text) from error
    except sqlite3.DatabaseError as error:
        raise _corrupt(path, str(error)) from error
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EFBIG, errno.EROFS, errno.EACCES, errno.EPERM):
            raise _unwritable(path, str(error)) from error
        raise


def _unwritable(path: Path, got: str) -> RunFolderUnwritable:
    return RunFolderUnwritable(
        f"The run folder {path.parent} cannot be written.",
        got=got,
        expected="a folder on a disk with free space",
        what_next="free space or choose another folder with --out; --resume continues what is recorded",
    )
