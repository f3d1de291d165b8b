# SPDX-License-Identifier: Apache-2.0
"""The few Linux calls that Python does not wrap, through ctypes; each raises OSError as the wrapped ones do."""

from __future__ import annotations

import ctypes
import os

_LIBC = ctypes.CDLL(None, use_errno=True)
_LIBC.syscall.restype = ctypes.c_long

PR_SET_PDEATHSIG = 1
PR_SET_DUMPABLE = 4
PR_CAPBSET_DROP = 24
PR_SET_CHILD_SUBREAPER = 36
PR_SET_NO_NEW_PRIVS = 38

NEW_MOUNTS = 0x0002_0000
NEW_UTS = 0x0400_0000
NEW_IPC = 0x0800_0000
NEW_USER = 0x1000_0000
NEW_PIDS = 0x2000_0000
NEW_NET = 0x4000_0000

MS_RDONLY, MS_NOSUID, MS_NODEV, MS_NOEXEC, MS_REMOUNT = 1, 2, 4, 8, 32
MS_BIND, MS_REC, MS_PRIVATE = 4096, 16384, 1 << 18

_CAPABILITY_VERSION_3 = 0x2008_0522
_LAST_CAPABILITY = 63


def _check(result: int, what: str) -> int:
    if result < 0:
        code = ctypes.get_errno()
        raise OSError(code, f"{what}: {os.strerror(code)}")
    return result


def syscall(number: int, *arguments: object) -> int:
    """Raw system call; arguments are ints, ctypes pointers or bytes."""
    wrapped = [ctypes.c_long(a) if isinstance(a, int) else a for a in arguments]
    return _check(_LIBC.syscall(ctypes.c_long(number), *wrapped), f"system call {number}")


def prctl(option: int, value: int = 0) -> int:
    """prctl with one argument; the rest are zero."""
    zero = ctypes.c_ulong(0)
    return _check(_LIBC.prctl(option, ctypes.c_ulong(value), zero, zero, zero), f"prctl {option}")


def unshare(flags: int) -> None:
    """Move the calling process into new namespaces (pid: its future children only)."""
    _check(_LIBC.unshare(flags), "unshare")


def mount(source: str, target: str, kind: str | None, flags: int, data: str | None = None) -> None:
    """mount(2)."""
    arguments = (source.encode(), target.encode(), kind.encode() if kind else None)
    _check(
        _LIBC.mount(*arguments, ctypes.c_ulong(flags), data.encode() if data else None),
        f"mount {target}",
    )


def detach_mount(target: str) -> None:
    """umount2 with MNT_DETACH."""
    _check(_LIBC.umount2(target.encode(), 2), f"umount {target}")


def drop_capabilities() -> None:
    """Give up every capability, in the bounding set too, so that no later exec brings one back."""
    for capability in range(_LAST_CAPABILITY + 1):
        try:
            prctl(PR_CAPBSET_DROP, capability)
        except OSError:
            break  # beyond the last one this kernel knows, or not ours to drop
    header = (ctypes.c_uint32 * 2)(_CAPABILITY_VERSION_3, 0)
    nothing = (ctypes.c_uint32 * 6)()
    _check(_LIBC.capset(header, nothing), "capset")


def die_with_parent() -> None:
    """SIGKILL this process when the thread that started it ends."""
    prctl(PR_SET_PDEATHSIG, 9)
