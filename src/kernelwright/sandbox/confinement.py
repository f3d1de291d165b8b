# SPDX-License-Identifier: Apache-2.0
"""Turn the calling, freshly forked, single-threaded process into a confined one, as far as this machine allows."""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterable
from dataclasses import dataclass

from kernelwright.sandbox import kernel, landlock, places, root, seccomp
from kernelwright.sandbox import limits as ceilings
from kernelwright.sandbox.limits import Limits

_NOBODY = 65534
OWN = "/own"
"""Where a program with a root of its own finds the folder that is its own."""
_REST = kernel.NEW_NET | kernel.NEW_IPC | kernel.NEW_PIDS | kernel.NEW_MOUNTS | kernel.NEW_UTS
_ATTEMPTS = (
    kernel.NEW_USER | _REST,
    _REST,
    kernel.NEW_USER | kernel.NEW_NET | kernel.NEW_IPC,
    kernel.NEW_NET | kernel.NEW_IPC,
)
_NAMES = {
    kernel.NEW_USER: "user", kernel.NEW_NET: "net", kernel.NEW_IPC: "ipc", kernel.NEW_PIDS: "pid",
    kernel.NEW_MOUNTS: "mount", kernel.NEW_UTS: "uts",
}  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Permission:
    """What a confined program may do. Paths that do not exist are skipped."""

    readable: tuple[str, ...] = ()
    """Beside the interpreter, its packages and the system's libraries, which are always readable."""
    writable: tuple[str, ...] = ()
    own: str = ""
    """One of ``writable``, called OWN in a root of its own: compilers look for what they made before by its path."""
    limits: Limits
    devices: bool
    """True: the GPU's files may be used, and memory is limited by the judge's looking only."""
    execute: bool
    """True: it may start programs and processes."""
    user: int = 0
    """Not 0: where the kernel lets us (we are root), become this unprivileged user."""
    own_root: bool = True
    """Try a root directory of its own; set to what ``root_works`` found."""


def spare_user() -> int:
    """A user id nobody on this machine is likely to have, different for every process that asks; 0 unless root."""
    return 0x4000_0000 + secrets.randbelow(0x2000_0000) if os.getuid() == 0 else 0


def detach(permission: Permission) -> int:
    """Enter as many new namespaces as this kernel gives; the flags obtained.

    A new pid namespace holds the *children* of the caller: fork once more. Must be called single-threaded.
    """
    user, group = os.getuid(), os.getgid()
    first = (_REST,) if permission.user and user == 0 else ()
    for flags in (*first, *_ATTEMPTS):
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


def enter(flags: int, permission: Permission) -> tuple[bool, bool]:
    """A root and a /proc of our own as far as ``flags`` (what ``detach`` returned) allow: (own root, own /proc).

    Nothing is taken from the caller. Raises OSError where the kernel refuses halfway into a new root.
    """
    here = os.getcwd()
    if permission.own_root and flags & kernel.NEW_MOUNTS and root.possible():
        paths = places.unique([*places.readable(devices=permission.devices), *permission.readable])
        gates, fresh = places.device_files(devices=permission.devices), bool(flags & kernel.NEW_PIDS)
        moved = {OWN: permission.own} if permission.own else {}
        inside = _writable(permission, own_root=True)
        own_proc = root.enter(readable=paths, writable=inside, devices=gates, proc=fresh, moved=moved)
        if os.path.isdir(here):
            os.chdir(here)
        return True, own_proc
    return False, bool(flags & kernel.NEW_MOUNTS and flags & kernel.NEW_PIDS) and _fresh_proc()


def _writable(permission: Permission, *, own_root: bool) -> list[str]:
    """Writable folders by the names that the program has for them."""
    if not (own_root and permission.own):
        return places.unique(list(permission.writable))
    return [*places.unique([path for path in permission.writable if path != permission.own]), OWN]


def restrict(flags: int, permission: Permission, entered: tuple[bool, bool] | None = None) -> str:
    """In the innermost process: own root and /proc, limits, Landlock, no privileges, system-call filter.

    ``flags`` is what ``detach`` returned, ``entered`` what ``enter`` returned to the process that started this one.
    Returns the level reached, in words. The working directory is kept where it is still reachable. Raises OSError
    where the kernel refuses halfway into a new root.
    """
    words = [" ".join(_NAMES[flag] for flag in _NAMES if flags & flag) + " namespaces" if flags else ""]
    gates = places.device_files(devices=permission.devices)
    own_root, own_proc = enter(flags, permission) if entered is None else entered
    writable = _writable(permission, own_root=own_root)
    words += ["own root" if own_root else "", "own /proc" if own_proc else ""]
    named = [*places.readable(devices=permission.devices), *places.processes(own=own_proc), *permission.readable]
    ceilings.apply(permission.limits, memory=not permission.devices)
    kernel.prctl(kernel.PR_SET_NO_NEW_PRIVS, 1)
    execute = permission.execute
    if permission.devices:  # the CUDA driver names its threads there and does not start without
        writable = [*writable, f"/proc/{os.readlink('/proc/self')}/task"]
    words.append(landlock.restrict(readable=places.unique(named), writable=writable, devices=gates, execute=execute))
    words.append(_give_up_privileges(flags, permission.user))
    hidden = bool(flags & kernel.NEW_PIDS)
    words.append(
        seccomp.refuse(execute=execute, devices=permission.devices, foreign_signals=not hidden and not execute)
    )
    return ", ".join(word for word in (*words, "limits") if word)


def _give_up_privileges(flags: int, user: int) -> str:
    """Change to ``user`` where we are really root, drop every capability, keep dying with the parent."""
    changed = user and os.getuid() == 0 and not flags & kernel.NEW_USER
    if changed:
        try:
            os.setgroups([])
            os.setresgid(user, user, user)
            os.setresuid(user, user, user)
        except OSError:
            changed = False
    kernel.drop_capabilities()
    kernel.die_with_parent()  # a change of credentials forgets it
    kernel.prctl(kernel.PR_SET_DUMPABLE, 1)  # and makes our own /proc unreadable to ourselves
    return "own user" if changed else ""


def _fresh_proc() -> bool:
    """Mount a /proc that shows only the new pid namespace; False where the kernel or a container refuses."""
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


def root_works() -> bool:
    """Whether a root of one's own can be entered on this machine: tried once, in a process that ends."""
    limits = Limits(seconds=10, memory_bytes=1 << 30, processes=64, file_bytes=1 << 20, output_bytes=1 << 16)
    permission = Permission(limits=limits, devices=False, execute=True)
    middle = os.fork()
    if middle:
        return os.waitpid(middle, 0)[1] == 0
    try:
        flags = detach(permission)
        inner = os.fork()
        if inner:
            os._exit(0 if os.waitpid(inner, 0)[1] == 0 else 1)
        reached = restrict(flags, permission)
        os._exit(0 if "own root" in reached and os.path.isdir("/usr") else 1)
    finally:
        os._exit(2)
