# SPDX-License-Identifier: Apache-2.0
"""Turn the calling, freshly forked, single-threaded process into a confined one, as far as this machine allows."""

from __future__ import annotations

import os
import select
import time
from collections.abc import Iterable
from dataclasses import dataclass

from kernelwright.sandbox import kernel, landlock, places, seccomp
from kernelwright.sandbox import limits as ceilings
from kernelwright.sandbox.limits import Limits

_NOBODY = 65534
_ATTEMPTS = (
    kernel.NEW_USER | kernel.NEW_NET | kernel.NEW_IPC | kernel.NEW_PIDS | kernel.NEW_MOUNTS | kernel.NEW_UTS,
    kernel.NEW_NET | kernel.NEW_IPC | kernel.NEW_PIDS | kernel.NEW_MOUNTS | kernel.NEW_UTS,
    kernel.NEW_USER | kernel.NEW_NET | kernel.NEW_IPC,
)
_NAMES = {
    kernel.NEW_USER: "user", kernel.NEW_NET: "net", kernel.NEW_IPC: "ipc", kernel.NEW_PIDS: "pid",
    kernel.NEW_MOUNTS: "mount", kernel.NEW_UTS: "uts",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Detached:
    """What leaving the parent's namespaces achieved."""

    flags: int
    parent_gone: int
    """Descriptor that becomes readable once the process that called ``detach`` is reaped; -1: it lives on."""


def detach() -> int:
    """Enter as many new namespaces as this kernel gives; the flags obtained.

    A new pid namespace holds the *children* of the caller: fork once more. Must be called single-threaded.
    """
    user, group = os.getuid(), os.getgid()
    for flags in _ATTEMPTS:
        try:
            kernel.unshare(flags)
        except OSError:
            continue
        if flags & kernel.NEW_USER and not _map_ids(user, group):
            continue
        return flags
    return 0


def _map_ids(user: int, group: int) -> bool:
    """Map one inner id to our own outer one: enough to read what we could read, and nothing is privileged."""
    try:
        _write("/proc/self/setgroups", "deny")
        _write("/proc/self/uid_map", f"{_NOBODY} {user} 1")
        _write("/proc/self/gid_map", f"{_NOBODY} {group} 1")
    except OSError:
        return False
    return True


def _write(path: str, text: str) -> None:
    with open(path, "w", encoding="ascii") as file:
        file.write(text)


def restrict(
    flags: int,
    *,
    readable: Iterable[str],
    writable: Iterable[str],
    limits: Limits,
    devices: bool,
    execute: bool,
) -> str:
    """In the innermost process: fresh /proc, Landlock, limits, no capabilities, system-call filter.

    ``flags`` is what ``detach`` returned. ``devices`` opens the GPU's files and lifts the address-space limit;
    ``execute`` permits starting programs. Returns the level reached, in words.
    """
    words = [" ".join(_NAMES[flag] for flag in _NAMES if flags & flag) + " namespaces" if flags else ""]
    own_proc = _fresh_proc(flags)
    words.append("own /proc" if own_proc else "")
    writable = places.unique(list(writable))
    allowed = places.unique([*places.readable(own_proc=own_proc, devices=devices), *readable])
    gates = places.device_files(devices=devices)
    ceilings.apply(limits, address_space=not devices)
    kernel.prctl(kernel.PR_SET_NO_NEW_PRIVS, 1)
    words.append(landlock.restrict(readable=allowed, writable=writable, devices=gates, execute=execute))
    kernel.drop_capabilities()
    hidden = bool(flags & kernel.NEW_PIDS)
    words.append(seccomp.refuse(execute=execute, devices=devices, foreign_signals=not hidden and not execute))
    words.append("limits")
    return ", ".join(word for word in words if word)


def _fresh_proc(flags: int) -> bool:
    """Mount a /proc that shows only the new pid namespace; False where the kernel or a container refuses."""
    if not flags & kernel.NEW_MOUNTS or not flags & kernel.NEW_PIDS:
        return False
    try:
        kernel.mount("none", "/", None, kernel.MS_REC | kernel.MS_PRIVATE)
        kernel.mount("proc", "/proc", "proc", kernel.MS_NOSUID | kernel.MS_NODEV | kernel.MS_NOEXEC)
    except OSError:
        return False
    return True


def close_descriptors(keep: Iterable[int]) -> None:
    """Close every descriptor of this process except ``keep``."""
    kept = set(keep)
    for name in os.listdir("/proc/self/fd"):
        if int(name) not in kept:
            try:
                os.close(int(name))
            except OSError:
                continue  # the descriptor of the listing itself


def adopt_parent(ready: int) -> None:
    """Wait until ``ready`` says that the process between us and our keeper is gone, then die when the keeper dies.

    Raises OSError when the keeper ended first. (The death signal counts from the current parent, so asking for
    it earlier would kill us when the process in between exits.)
    """
    if os.read(ready, 1) != b"g":
        raise OSError("the keeper of this process is gone")
    os.close(ready)
    kernel.die_with_parent()


def wait_readable(descriptor: int, seconds: float) -> bool:
    """True once ``descriptor`` can be read without blocking; False after ``seconds``."""
    deadline = time.monotonic() + seconds
    poller = select.poll()
    poller.register(descriptor, select.POLLIN)
    while (left := deadline - time.monotonic()) > 0:
        if poller.poll(left * 1000):
            return True
    return False
