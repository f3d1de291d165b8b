# SPDX-License-Identifier: Apache-2.0
"""A root directory in which only the named paths exist: what is not there can be neither read nor guessed at.

Needs a mount namespace. Method: pivot_root(2), "pivot_root(".", ".")", in the two steps bubblewrap uses, so that
sources below the first mount point stay reachable.
"""

from __future__ import annotations

import ctypes
import os
import platform
from collections.abc import Iterable, Mapping

from kernelwright.sandbox import kernel

_PIVOT_ROOT = {"x86_64": 155, "aarch64": 41}
_MOUNT_SETATTR = 442
_RECURSIVE = 0x8000
_READ_ONLY, _NO_SUID, _NO_DEVICES = 1, 2, 4
_OLD, _NEW = "/old", "/new"
_HERE = -100  # AT_FDCWD


def possible() -> bool:
    """Whether this machine's numbers for the system calls are known."""
    return platform.machine() in _PIVOT_ROOT


def enter(
    *,
    readable: Iterable[str],
    writable: Iterable[str],
    devices: Iterable[str],
    proc: bool,
    moved: Mapping[str, str] | None = None,
) -> bool:
    """Move the calling process into a new root with only these paths, at their own places; True: with its own /proc.

    Paths are absolute and exist; ``moved``: those that are elsewhere outside, and where. ``proc``: try a fresh /proc
    (else the old one is bound). The working directory becomes ``/``. Raises OSError halfway when the kernel
    refuses: the process must then end.
    """
    wanted = sorted({path for path in readable if not _below(path, "/proc")} | set(writable))
    gates = list(devices)
    outside = {path: path for path in (*wanted, *gates)} | dict(moved or {})
    real = {path: os.path.realpath(place) for path, place in outside.items()}  # links lead elsewhere after the pivot
    kernel.mount("none", "/", None, kernel.MS_REC | kernel.MS_PRIVATE)
    _empty("/tmp" if os.path.isdir("/tmp") else "/dev")
    os.mkdir("old")
    os.mkdir("new")
    _pivot("old")
    _empty(_NEW)
    os.chdir("/")
    covered: list[str] = []
    changeable = set(writable)
    for path in wanted:
        if path in changeable:
            _bind(real[path], path, _NO_SUID | _NO_DEVICES)
        elif not any(_below(path, above) for above in covered):
            _bind(real[path], path, _READ_ONLY | _NO_SUID | _NO_DEVICES)
        covered.append(path)
    for path in gates:
        if not any(_below(path, above) for above in covered):
            _bind(real[path], path, _NO_SUID)
    own_proc = _mount_proc(fresh=proc)
    os.chdir(_NEW)
    _pivot(".")
    kernel.detach_mount(".")
    os.chdir("/")
    return own_proc


def _below(path: str, above: str) -> bool:
    return path == above or path.startswith(above.rstrip("/") + "/")


def _empty(target: str) -> None:
    """A fresh, small tmpfs at ``target``, entered."""
    kernel.mount("tmpfs", target, "tmpfs", kernel.MS_NOSUID | kernel.MS_NODEV, "size=1m,mode=755")
    os.chdir(target)


def _pivot(old: str) -> None:
    kernel.syscall(_PIVOT_ROOT[platform.machine()], b".", old.encode())
    if old != ".":
        os.chdir("/")


def _bind(real: str, path: str, attributes: int) -> None:
    """Show the old root's ``real`` at ``path`` of the new one, with everything mounted below it."""
    source, target = _OLD + real, _NEW + path
    if os.path.isdir(source):
        os.makedirs(target, exist_ok=True)
    else:
        os.makedirs(os.path.dirname(target), exist_ok=True)
        if not os.path.exists(target):
            os.close(os.open(target, os.O_CREAT | os.O_WRONLY, 0o644))
    kernel.mount(source, target, None, kernel.MS_BIND | kernel.MS_REC)
    set_flags = (ctypes.c_uint64 * 4)(attributes, 0, 0, 0)
    kernel.syscall(_MOUNT_SETATTR, _HERE, target.encode(), _RECURSIVE, ctypes.byref(set_flags), 32)


def _mount_proc(*, fresh: bool) -> bool:
    os.makedirs(_NEW + "/proc", exist_ok=True)
    if fresh:
        try:
            kernel.mount("proc", _NEW + "/proc", "proc", kernel.MS_NOSUID | kernel.MS_NODEV | kernel.MS_NOEXEC)
            return True
        except OSError:
            pass  # containers that hide parts of /proc refuse a fresh one
    kernel.mount(_OLD + "/proc", _NEW + "/proc", None, kernel.MS_BIND | kernel.MS_REC)
    return False
