# SPDX-License-Identifier: Apache-2.0
"""Every error raised here, drawn as a tree; each says what happened, what was got, what was expected, what next.

A failed *candidate* is not an error: it is a ``Rejected`` value (see ``trial.py``). These are for the
person at the keyboard. Each survives pickling and JSON, and each class owns one process exit code.
"""

from __future__ import annotations


class KernelwrightError(Exception):
    """Root of the tree. ``what`` is one sentence; the other three are short phrases or empty."""

    exit_code = 1
    passing = False
    """A fault of the moment or of one process: what asked tries once more in a fresh process before it reports it."""

    def __init__(self, what: str, got: str = "", expected: str = "", what_next: str = "") -> None:
        super().__init__(what, got, expected, what_next)
        self.what, self.got, self.expected, self.what_next = what, got, expected, what_next

    def __str__(self) -> str:
        parts = [self.what]
        for label, text in (("got", self.got), ("expected", self.expected), ("next", self.what_next)):
            if text:
                parts.append(f"  {label}: {text}")
        return "\n".join(parts)

    def to_json(self) -> dict[str, str]:
        """The error as plain data; ``from_json`` brings the same class back on the other side of a pipe."""
        return {
            "error": type(self).__name__,
            "what": self.what,
            "got": self.got,
            "expected": self.expected,
            "what_next": self.what_next,
        }


class BadCommand(KernelwrightError):
    """The command line or a setting is wrong (exit 2, as typer itself uses)."""

    exit_code = 2


class TaskError(KernelwrightError):
    """The task cannot be used as given."""

    exit_code = 10


class TaskNotFound(TaskError):
    """No such file or folder, or it is not a task."""

    exit_code = 11


class TaskDoesNotImport(TaskError):
    """The reference source raises when it is executed."""

    exit_code = 12


class TaskIncomplete(TaskError):
    """``Model``, ``get_inputs`` or another required name is missing."""

    exit_code = 13


class ReferenceFails(TaskError):
    """The reference raises on its own inputs."""

    exit_code = 14


class ReferenceIsRandom(TaskError):
    """Two runs of the reference on equal inputs differ, and the task does not declare randomness."""

    exit_code = 15


class NoTensorOutput(TaskError):
    """The reference returns no tensor."""

    exit_code = 16


class WrongDevice(TaskError):
    """An input or parameter insists on a device other than the one asked for."""

    exit_code = 17


class EmptyShape(TaskError):
    """An input of the timed case has no elements."""

    exit_code = 18


class NotAdmitted(TaskError):
    """A known-wrong program passes, or an input has no influence: no verdict on this task would mean anything."""

    exit_code = 19


class CandidateError(KernelwrightError):
    """The candidate file cannot be read as a candidate (it was never judged)."""

    exit_code = 20


class ToolMissing(KernelwrightError):
    """A compiler, package or device that the request needs is not there."""

    exit_code = 30


class NoSuchDevice(ToolMissing):
    """The device asked for does not exist on this machine."""

    exit_code = 31


class NotEnoughMemory(ToolMissing):
    """The task is too large for the memory of this machine."""

    exit_code = 33


class DeviceLost(KernelwrightError):
    """The device stopped answering, or its context is beyond use; twice, in fresh processes."""

    exit_code = 32
    passing = True


class ClockJumped(KernelwrightError):
    """The clocks of the machine disagree about how long something took, so no time can be believed."""

    exit_code = 34
    passing = True


class DiskFull(KernelwrightError):
    """There is no room left where the judge writes."""

    exit_code = 35
    passing = True


class CacheUnwritable(KernelwrightError):
    """The folder of caches (built objects, measured machines) cannot be made or written."""

    exit_code = 36


class RunFolderError(KernelwrightError):
    """The run folder cannot be used."""

    exit_code = 40

    @classmethod
    def of_another_version(cls, file: object, error: Exception) -> RunFolderError:
        """For a run.json that is JSON, and not that of a run as it is written now; ``error`` came of reading it."""
        return cls(
            f"{file} is of another version.",
            got=f"no {error}" if isinstance(error, KeyError) else str(error),
            expected="a run of this version",
            what_next="read it with the version that wrote it, or start a new run in another folder",
        )


class RunFolderBusy(RunFolderError):
    """Another run holds this folder, or a finished run is already in it."""

    exit_code = 41


class RunFolderUnwritable(RunFolderError):
    """The folder is read-only or its disk is full."""

    exit_code = 42


class LedgerCorrupt(RunFolderError):
    """The ledger fails its integrity check."""

    exit_code = 43


class NoSuchRun(RunFolderError):
    """There is no run where one was named."""

    exit_code = 44


class JudgeFailed(KernelwrightError):
    """The judge itself died or answered nonsense, twice: a defect of ours or of the machine, never a verdict."""

    exit_code = 50


class ModelError(KernelwrightError):
    """A language model or agent command cannot be used (key, address, name, protocol)."""

    exit_code = 60


class BudgetSpent(KernelwrightError):
    """A hard budget left no room for another request."""

    exit_code = 61


class BudgetTooSmall(KernelwrightError):
    """A budget of time in which no candidate could be proved; nothing was tried."""

    exit_code = 62


def _tree(cls: type[KernelwrightError]) -> dict[str, type[KernelwrightError]]:
    found = {cls.__name__: cls}
    for child in cls.__subclasses__():
        found |= _tree(child)
    return found


def from_json(data: dict[str, str]) -> KernelwrightError:
    """Rebuild the error that ``to_json`` wrote; an unknown class name becomes the root class."""
    cls = _tree(KernelwrightError).get(data.get("error", ""), KernelwrightError)
    return cls(data.get("what", ""), data.get("got", ""), data.get("expected", ""), data.get("what_next", ""))
