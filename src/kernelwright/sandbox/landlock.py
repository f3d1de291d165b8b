# SPDX-License-Identifier: Apache-2.0
"""Landlock by ctypes: from here on this process and its children reach only the named files, and no one else.

Works without privileges on Linux 5.13 and later. Source of numbers: linux/landlock.h. Access is fixed at the
version of the running kernel; what an older one cannot refuse is left to the other layers and reported.
"""

from __future__ import annotations

import ctypes
import os
import stat
from collections.abc import Iterable

from kernelwright.sandbox import kernel

_CREATE, _ADD, _RESTRICT = 444, 445, 446  # the same on every architecture
_EXECUTE, _WRITE, _READ, _LIST = 1, 2, 4, 8
_TRUNCATE, _IOCTL = 1 << 14, 1 << 15
_ON_FILES = _EXECUTE | _WRITE | _READ | _TRUNCATE | _IOCTL
_HANDLED = {1: (1 << 13) - 1, 2: (1 << 14) - 1, 3: (1 << 15) - 1, 4: (1 << 15) - 1}
_HANDLED_NEWEST = (1 << 16) - 1
_TCP = 3
_SCOPES = 3  # abstract unix sockets and signals stay inside the domain


class _Rule(ctypes.Structure):
    _pack_ = 1
    _fields_ = [("access", ctypes.c_uint64), ("parent", ctypes.c_int32)]


def version() -> int:
    """The Landlock version of the running kernel, 0 where there is none."""
    try:
        return kernel.syscall(_CREATE, 0, 0, 1)
    except OSError:
        return 0


def restrict(*, readable: Iterable[str], writable: Iterable[str], devices: Iterable[str], execute: bool) -> str:
    """Confine the calling process for good and say what was reached, or return "" where Landlock is missing.

    ``readable`` may be read (and executed when ``execute``), ``writable`` also changed, ``devices`` opened for
    reading, writing and control. Paths that do not exist are skipped. Needs no_new_privs.
    """
    level = version()
    if level < 1:
        return ""
    handled = _HANDLED.get(level, _HANDLED_NEWEST)
    attributes = (ctypes.c_uint64 * 3)(handled, _TCP if level >= 4 else 0, _SCOPES if level >= 6 else 0)
    size = 24 if level >= 6 else 16 if level >= 4 else 8
    rules = kernel.syscall(_CREATE, ctypes.byref(attributes), size, 0)
    try:
        run = _EXECUTE if execute else 0
        for path in readable:
            _allow(rules, path, (_READ | _LIST | run) & handled)
        for path in writable:
            _allow(rules, path, handled & ~_IOCTL & (~_EXECUTE | run))
        for path in devices:
            _allow(rules, path, (_READ | _WRITE | _LIST | _IOCTL) & handled)
        kernel.syscall(_RESTRICT, rules, 0)
    finally:
        os.close(rules)
    scope = "files, tcp, signals" if level >= 6 else "files, tcp" if level >= 4 else "files"
    return f"landlock {level} ({scope})"


def _allow(rules: int, path: str, access: int) -> None:
    try:
        descriptor = os.open(path, os.O_PATH | os.O_CLOEXEC)
    except OSError:
        return
    try:
        if not stat.S_ISDIR(os.fstat(descriptor).st_mode):
            access &= _ON_FILES
        rule = _Rule(access, descriptor)
        kernel.syscall(_ADD, rules, 1, ctypes.byref(rule), 0)
    finally:
        os.close(descriptor)
