# SPDX-License-Identifier: Apache-2.0
"""Who may use the device now: builds and checks share it, timing has it alone, within this judge and between judges."""

from __future__ import annotations

import contextlib
import contextvars
import fcntl
import functools
import os
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Concatenate, ParamSpec, Protocol, TypeVar

from kernelwright.errors import DeviceLost

PATIENCE_SECONDS = 600.0
SAID_AFTER_S = 2.0
"""From so long a wait on it is said what is waited for, once a job."""
_TELLER: contextvars.ContextVar[Callable[[str], None] | None] = contextvars.ContextVar("teller", default=None)
_WAITS: contextvars.ContextVar[list[float] | None] = contextvars.ContextVar("waits", default=None)
WATCH_SECONDS = 0.004
"""How often it is looked whether another judge is alone, while something compiles here in the background."""
POLL_SECONDS = 0.005
"""How often a lock is asked for that another judge has."""
SOONER = 0.5
"""By what these, and what follows, are shorter where judges share a device other than the CPU: nobody times anything
there between one who lets go and the next, and who asks takes no core from what is timed."""
STILL_SECONDS = 2.5 * WATCH_SECONDS
"""How long who is alone waits for what other judges have in the background to stand still, where there are some."""
P = ParamSpec("P")
R = TypeVar("R")


@contextlib.contextmanager
def told(tell: Callable[[str], None]) -> Iterator[list[float]]:
    """Inside, in this thread, ``tell`` hears of the first wait for another judge that takes long; the seconds of every
    wait are added to the list."""
    waits: list[float] = []
    token, counting = _TELLER.set(tell), _WAITS.set(waits)
    try:
        yield waits
    finally:
        _TELLER.reset(token)
        _WAITS.reset(counting)


class Lease:
    """``shared()`` around work that disturbs timings (compiling, checking), ``alone()`` around timed windows.

    Between judges of one device two advisory file locks do the same; the kernel drops them when a judge dies. Who
    wants the device alone holds the gate until it has it, and sharers pass the gate first, so none of them overtakes.
    Within one judge a waiting ``alone`` keeps new ``shared`` work from starting, so it is served after what already
    runs. A thread that holds a share has it: asking once more waits for nobody.
    """

    def __init__(self, device: str, folder: Path | None = None) -> None:
        self._device, self._folder = device, folder
        name = f"kernelwright-{device.replace(':', '')}"
        folder = folder or Path(tempfile.gettempdir())
        self.path, self.gate, self._judges = (folder / f"{name}.{end}" for end in ("lock", "gate", "judges"))
        self._pace = 1.0 if device == "cpu" else SOONER
        self._present: int | None = None
        """A file that each judge of this device with something in the background has locked with others."""
        self._turn = threading.Condition()
        self._mine = threading.local()
        self._sharing = 0
        self._alone = False
        self._share: int | None = None
        """The lock file, held for all threads that share."""
        self.apart = ""
        """Why judges of this device cannot take turns, where they cannot."""
        self._hush: Callable[[], contextlib.AbstractContextManager[None]] = contextlib.nullcontext
        self._hushing = threading.Lock()
        """Held by whoever has entered ``_hush``: one who leaves it lets go on what the other wants to stand still."""
        self._watcher: threading.Thread | None = None
        self._closed = False
        self._apart = threading.Event()
        """Set while this judge has no part in the device: waiting for one is none."""
        self._apart.set()
        self._claiming = threading.Lock()
        """Around taking the lock and saying so: the watcher must not take this judge for another one."""

    def while_alone(self, hush: Callable[[], contextlib.AbstractContextManager[None]]) -> None:
        """Enter ``hush()`` around what is done alone: where background work is frozen instead of waited for. From now
        on it is frozen while another judge is alone, too."""
        self._hush = hush
        if self._present is None and (handle := _lock_file(self._judges)) is not None:
            fcntl.flock(handle, fcntl.LOCK_SH)
            self._present = handle
        if self._watcher is None:
            self._watcher = threading.Thread(target=self._watch, name="lease", daemon=True)
            self._watcher.start()

    def _watch(self) -> None:
        """Freeze what is in the background here for as long as another judge is alone.

        Looked at only where this judge has no part in the device: with a share nobody else is alone, and alone it has
        frozen everything itself.
        """
        while not self._closed:
            self._apart.wait()
            with self._hushing:
                if self._away():
                    with self._hush():
                        while self._away():
                            time.sleep(WATCH_SECONDS * self._pace)
            time.sleep(WATCH_SECONDS * self._pace)

    def _away(self) -> bool:
        """Whether another judge is alone, as far as this one, which has no part in the device, can see."""
        with self._claiming:
            return not self._closed and self._apart.is_set() and self._taken()

    def close(self) -> None:
        """Look after nothing any more."""
        self._closed = True
        self._apart.set()
        if self._present is not None:
            os.close(self._present)
            self._present = None

    def forked(self) -> Lease:
        """In a fork, made while this thread held a share: another lease of the device. What was locked is the parent's
        to let go of, which it could not while the file is open here too."""
        for handle in (self._share, self._present):
            if handle is not None:
                os.close(handle)
        self._share = self._present = None
        return Lease(self._device, self._folder)

    def _beside_others(self) -> bool:
        """Whether another judge may have something in the background; who comes later finds this one alone."""
        if self._present is None:
            return True
        others = not try_lock(self._present, fcntl.LOCK_EX)
        fcntl.flock(self._present, fcntl.LOCK_SH)
        return others

    def _taken(self) -> bool:
        """Whether somebody, another judge or this one, is alone."""
        handle = _lock_file(self.path)
        if handle is None:
            return False
        try:
            return not try_lock(handle, fcntl.LOCK_SH)
        finally:
            os.close(handle)

    @contextlib.contextmanager
    def shared(self) -> Iterator[None]:
        """Hold a share: any number at once, none while somebody is alone. Raises DeviceLost as ``alone``."""
        if getattr(self._mine, "shares", False):
            yield
            return
        self._join()
        try:
            yield
        finally:
            self._leave()

    @contextlib.contextmanager
    def lent(self) -> Iterator[None]:
        """Inside, this thread's share, if it has one, is given back: around waiting for what stands still (``hush``)
        while somebody is alone. Raises DeviceLost as ``alone``."""
        if not getattr(self._mine, "shares", False):
            yield
            return
        self._leave()
        try:
            yield
        finally:
            self._join()

    def _join(self) -> None:
        with self._turn:
            self._turn.wait_for(lambda: not self._alone)
            if self._sharing == 0:
                self._share = self._locked(fcntl.LOCK_SH)
            self._sharing += 1
        self._mine.shares = True

    def _leave(self) -> None:
        if not getattr(self._mine, "shares", False):
            return  # nobody let it have one again
        self._mine.shares = False
        with self._turn:
            self._sharing -= 1
            if self._sharing == 0 and self._share is not None:
                os.close(self._share)
                self._share = None
            if self._sharing == 0:
                self._apart.set()
            self._turn.notify_all()

    @contextlib.contextmanager
    def alone(self) -> Iterator[None]:
        """Hold the device alone. Raises DeviceLost when another judge does not let go within ten minutes."""
        with self._turn:
            self._turn.wait_for(lambda: not self._alone)
            self._alone = True
            self._turn.wait_for(lambda: self._sharing == 0)
        held = None
        try:
            held = self._locked(fcntl.LOCK_EX)
            with self._hushing, self._hush():  # not before: another judge may be waited for, and for minutes
                if self._beside_others():
                    time.sleep(STILL_SECONDS * self._pace)
                yield
        finally:
            if held is not None:
                os.close(held)
            self._apart.set()
            with self._turn:
                self._alone = False
                self._turn.notify_all()

    def _claimed(self, handle: int, how: int) -> bool:
        """Lock it if it is free, and from then on have a part in the device."""
        with self._claiming:
            if not try_lock(handle, how):
                return False
            self._apart.clear()
            return True

    def _locked(self, how: int) -> int | None:
        """The lock file, open and locked; None where judges cannot take turns, and then ``apart`` says why."""
        gate, handle = _lock_file(self.gate), _lock_file(self.path)
        if gate is None or handle is None:  # no temporary folder, or a file nobody may read: threads still take turns
            missing = self.gate if gate is None else self.path
            self.apart = f"{missing} cannot be opened, so another judge on this device is not kept out"
            for opened in (gate, handle):
                if opened is not None:
                    os.close(opened)
            self._apart.clear()
            return None
        deadline = time.monotonic() + PATIENCE_SECONDS
        try:
            pause = POLL_SECONDS * self._pace
            _wait_for(lambda: try_lock(gate, fcntl.LOCK_EX), deadline, self.gate, handle, pause)
            _wait_for(lambda: self._claimed(handle, how), deadline, self.path, handle, pause)
        except BaseException:
            os.close(handle)
            raise
        finally:
            os.close(gate)
        return handle


def _wait_for(locked: Callable[[], bool], deadline: float, path: Path, device: int, pause: float) -> None:
    """``device``: the file that says who has it, whichever of the two is waited for; ``pause``: between asks, in s."""
    began = time.monotonic()
    said_at = began + SAID_AFTER_S
    while not locked():
        if (tell := _TELLER.get()) is not None and time.monotonic() >= said_at:
            _TELLER.set(None)
            tell(f"waiting for the device: another judge{_holders(device)} has {path.with_suffix('.lock')}")
        if time.monotonic() > deadline:
            raise DeviceLost(
                "The device stayed busy",
                f"another judge has held {path} for {PATIENCE_SECONDS:.0f} s",
                "a judge that lets go between windows",
                "end the other judge",
            )
        time.sleep(pause)
    if (waits := _WAITS.get()) is not None:
        waits.append(time.monotonic() - began)


def _holders(handle: int) -> str:
    """`` (process 12, 34)``: who has the lock of an open file, by /proc/locks; empty where the kernel does not say."""
    number = os.fstat(handle).st_ino
    try:
        lines = Path("/proc/locks").read_text(encoding="ascii").splitlines()
    except (OSError, UnicodeDecodeError):
        return ""
    # "1: FLOCK  ADVISORY  WRITE 2359 fe:00:3646712 0 EOF"; who only waits has "->" after the number
    rows = [line.split() for line in lines if " FLOCK " in line and "->" not in line]
    found = {row[4] for row in rows if len(row) > 5 and row[5].rpartition(":")[2] == str(number)}
    known = sorted(int(pid) for pid in found if pid.isdigit() and int(pid) > 0)  # 0: of another PID namespace
    return f" (process {', '.join(map(str, known))})" if known else ""


def _lock_file(path: Path) -> int | None:
    """The file opened; one that another user made is only read, which is enough to lock it."""
    flags = os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW
    for more in (0, os.O_CREAT):  # in a folder like /tmp the kernel refuses O_CREAT on other users' files
        try:
            return os.open(path, flags | more, 0o644)
        except OSError:
            continue
    return None


def try_lock(handle: int, how: int) -> bool:
    """Take the lock of an open file (``fcntl.LOCK_EX`` or ``LOCK_SH``) unless another holds it; whether it is taken."""
    try:
        fcntl.flock(handle, how | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


class Leases:
    """One lease for each device; ``hush`` stills what a judge has in the background, on whichever of them it works."""

    def __init__(self, hush: Callable[[], contextlib.AbstractContextManager[None]]) -> None:
        self._hush = hush
        self._known: dict[str, Lease] = {}

    def of(self, device: str) -> Lease:
        """The lease of a device."""
        if device not in self._known:
            lease = self._known[device] = Lease(device)
            lease.while_alone(self._hush)
        return self._known[device]

    def close(self) -> None:
        """Look after nothing any more."""
        for lease in self._known.values():
            lease.close()


class Sharer(Protocol):
    """Whoever works on a device beside others."""

    @property
    def shared(self) -> Callable[[], contextlib.AbstractContextManager[None]]:
        """As ``Lease.shared``."""
        ...


def sharing(method: Callable[Concatenate[Any, P], R]) -> Callable[Concatenate[Any, P], R]:
    """A method of a ``Sharer``, run while it holds a share: short ones, for who wants to be alone waits for its end."""

    @functools.wraps(method)
    def held(self: Sharer, *args: P.args, **kwargs: P.kwargs) -> R:
        with self.shared():
            return method(self, *args, **kwargs)

    return held
