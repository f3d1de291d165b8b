# SPDX-License-Identifier: Apache-2.0
"""The run folder: made, locked, described in run.json, found again; a kill at any moment leaves it readable.

run.json       what was asked, versions, status and result (rewritten whole, by rename)
ledger.sqlite  every trial
events.jsonl   what happened when, one line each
candidates/    sources of the finalists, a folder per digest
"""

from __future__ import annotations

import errno
import fcntl
import json
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from kernelwright.candidate import Candidate
from kernelwright.errors import (
    KernelwrightError,
    NoSuchRun,
    RunFolderBusy,
    RunFolderError,
    RunFolderUnwritable,
    TaskError,
    from_json,
)
from kernelwright.ledger import open_ledger

RUN, LEDGER, EVENTS, CANDIDATES, LOCK = "run.json", "ledger.sqlite", "events.jsonl", "candidates", "lock"
PAGES = ("report.html", "report.md", "report.json")
OURS = (LEDGER, EVENTS, CANDIDATES, "optimized.py", "task_modules", "proof.json", "report.html")
"""What a run writes beside its record."""
_NO_ROOM = (
    errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS, errno.EACCES, errno.EPERM, errno.ENOENT, errno.ENOTDIR,
    errno.ENAMETOOLONG,
)  # fmt: skip


class RunFolder:
    """One locked run folder; ``create`` or ``reopen`` makes it, ``close`` releases it.

    The lock is the kernel's (flock), so a killed run never leaves it behind.
    """

    def __init__(self, path: Path, lock: int, *, made: bool = False) -> None:
        self.path, self.made = path, made
        self._lock = lock

    @property
    def ledger(self) -> Path:
        """Where the ledger is."""
        return self.path / LEDGER

    def write(self, data: dict[str, Any]) -> None:
        """Replace run.json in one step. Raises RunFolderUnwritable."""
        with unwritable(self.path):
            fresh = self.path / (RUN + ".new")
            fresh.write_text(json.dumps(data, indent=1) + "\n", encoding="utf-8")
            fresh.replace(self.path / RUN)

    def event(self, data: dict[str, Any]) -> None:
        """Append one line to events.jsonl. Raises RunFolderUnwritable."""
        with unwritable(self.path), (self.path / EVENTS).open("a", encoding="utf-8") as file:
            file.write(json.dumps(data) + "\n")

    def keep(self, candidate: Candidate) -> Path:
        """Write a candidate's sources under candidates/ and return the folder. Raises RunFolderUnwritable."""
        folder = self.path / CANDIDATES / candidate.digest()
        with unwritable(self.path):
            for name, text in candidate.sources:
                target = folder / name
                target.parent.mkdir(parents=True, exist_ok=True)
                target.write_text(text, encoding="utf-8")
        return folder

    def discard(self) -> None:
        """Remove a run of which there is nothing to keep, not one line of events: another may have its name. A folder
        that was there before stays."""
        if (self.path / EVENTS).exists():
            return
        with suppress(OSError):
            for name in (RUN, LEDGER, f"{LEDGER}-wal", f"{LEDGER}-shm", LOCK):
                (self.path / name).unlink(missing_ok=True)
            if self.made:
                self.path.rmdir()

    def close(self) -> None:
        """Release the lock; calling it twice is harmless."""
        if self._lock >= 0:
            os.close(self._lock)
            self._lock = -1


def create(path: Path) -> RunFolder:
    """A new run in ``path``, a free name, an empty folder, or one whose run ended by a fault of its task before it had
    judged anything: who has mended the file asks for the same again. Raises RunFolderBusy, RunFolderUnwritable."""
    with unwritable(path):
        if path.exists() and not path.is_dir():
            raise RunFolderError(
                "The run folder is a file.",
                got=str(path),
                expected="a folder or a free name",
                what_next="choose another --out",
            )
        made = not path.exists()
        path.mkdir(parents=True, exist_ok=True)
        folder = RunFolder(path, _lock(path), made=made)
        if _fruitless(path):
            for name in (RUN, EVENTS, LEDGER, f"{LEDGER}-wal", f"{LEDGER}-shm", *PAGES):
                (path / name).unlink(missing_ok=True)
        odd = sorted(entry.name for entry in path.iterdir() if entry.name != LOCK)
    if odd and (path / RUN).exists():
        folder.close()
        raise RunFolderBusy(
            f"There is a run in {path} already.",
            got=RUN,
            expected="an empty folder or a free name",
            what_next=_instead_of(path),
        )
    taken = [name for name in odd if name in OURS]
    if taken:
        folder.close()
        raise RunFolderBusy(
            f"There are files in {path} that a run would overwrite.",
            got=", ".join(taken),
            expected="an empty folder or a free name",
            what_next="choose another --out, or move them away",
        )
    return folder


def _fruitless(path: Path) -> bool:
    """Whether there is a run that a fault of its task ended, and no trial of it."""
    if not (path / RUN).exists() or any((path / name).exists() for name in (CANDIDATES, "optimized.py")):
        return False
    with suppress(KernelwrightError):
        error = read(path).get("error")
        if isinstance(error, dict) and isinstance(from_json(error), TaskError):
            ledger = open_ledger(path / LEDGER)
            try:
                return ledger.count() == 0
            finally:
                ledger.close()
    return False


def _instead_of(path: Path) -> str:
    """What to do where there is a run. One that a fault of its task ended keeps that task, and would fail again."""
    error: object = None
    with suppress(RunFolderError):
        error = read(path).get("error")
    if isinstance(error, dict) and isinstance(from_json(error), TaskError):
        return "that run ended with " + str(error.get("what")) + " Remove the folder, or choose another --out"
    return f"continue it with --resume {path}, or choose another --out"


def reopen(path: Path) -> tuple[RunFolder, dict[str, Any]]:
    """An existing run and its run.json. Raises NoSuchRun, RunFolderBusy, RunFolderUnwritable."""
    data = read(path)
    with unwritable(path):
        return RunFolder(path, _lock(path)), data


def read(path: Path) -> dict[str, Any]:
    """run.json of a run, without locking it. Raises NoSuchRun, or RunFolderError when it is not readable."""
    try:
        data = json.loads((path / RUN).read_text(encoding="utf-8"))
    except (FileNotFoundError, NotADirectoryError):
        raise NoSuchRun(
            "There is no run.", got=str(path), expected=f"a folder with {RUN}", what_next="kernelwright runs lists them"
        ) from None
    except (ValueError, OSError) as error:
        raise _unreadable(path, str(error)) from error
    if not isinstance(data, dict):
        raise _unreadable(path, type(data).__name__)
    return data


def _unreadable(path: Path, got: str) -> RunFolderError:
    return RunFolderError(
        f"{path / RUN} cannot be read.",
        got=got,
        expected="the JSON of a run",
        what_next="start a new run in another folder; the files beside it are still good",
    )


def fresh_name(parent: Path, task: str) -> Path:
    """A free folder name for a run of ``task``: ``runs/rmsnorm-20260131-1415``, with a number when taken."""
    stem = "".join(letter if letter.isalnum() or letter in "-_" else "-" for letter in task)
    base = parent / f"{stem}-{time.strftime('%Y%m%d-%H%M%S')}"
    path, number = base, 2
    while path.exists():
        path, number = base.with_name(f"{base.name}-{number}"), number + 1
    return path


def unlisted(parent: Path) -> str:
    """Why a folder cannot be listed, or an empty string."""
    try:
        os.listdir(parent)
    except (OSError, ValueError) as error:
        return str(error)[:300]
    return ""


def listed(parent: Path) -> list[tuple[Path, dict[str, Any]]]:
    """(folder, run.json) of every run below ``parent``, newest first.

    The record of a killed run still says that it is running; here its status is ``stopped``. Of one that cannot be read
    there is a status and a message.
    """
    found = []
    for place in sorted(parent.glob(f"*/{RUN}")):
        try:
            data = read(place.parent)
        except NoSuchRun:
            continue  # deleted meanwhile
        except RunFolderError as error:
            data = {"status": "unreadable", "message": str(error)}
        if data.get("status") == "running" and not _held(place.parent):
            data["status"] = "stopped"
        found.append((place.parent, data))
    return sorted(found, key=lambda pair: _began(pair[1]), reverse=True)


def _began(data: dict[str, Any]) -> float:
    at = data.get("started_at")
    return float(at) if isinstance(at, int | float) else 0.0


def _held(path: Path) -> bool:
    """Whether a process holds the folder."""
    try:
        handle = os.open(path / LOCK, os.O_RDONLY)
    except OSError:
        return False
    try:
        fcntl.flock(handle, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(handle)
    return False


def _lock(path: Path) -> int:
    handle = os.open(path / LOCK, os.O_RDWR | os.O_CREAT, 0o644)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(handle)
        raise RunFolderBusy(
            f"Another run holds {path}.",
            got="its lock is taken",
            expected="a folder that no running kernelwright uses",
            what_next="wait for it or choose another --out",
        ) from None
    return handle


@contextmanager
def unwritable(path: Path) -> Iterator[None]:
    """A full disk, a read-only place or missing permission inside the block becomes RunFolderUnwritable."""
    try:
        yield
    except OSError as error:
        if error.errno not in _NO_ROOM:
            raise
        raise RunFolderUnwritable(
            f"The run folder {path} cannot be written.",
            got=str(error),
            expected="a folder that you may write to, on a disk with free space",
            what_next="free space, or choose another folder with --out; --resume continues what is recorded",
        ) from error
