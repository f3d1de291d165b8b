# SPDX-License-Identifier: Apache-2.0
"""Which paths a confined program may read or use as devices: interpreter, libraries, CPU topology, no more."""

from __future__ import annotations

import glob
import os
import site
import sys
import sysconfig

_SYSTEM = (
    "/usr", "/lib", "/lib32", "/lib64", "/bin", "/sbin", "/opt",
    "/etc/ld.so.cache", "/etc/ld.so.conf", "/etc/ld.so.conf.d", "/etc/localtime", "/etc/alternatives",
    "/etc/nsswitch.conf", "/etc/passwd", "/etc/group",
    "/sys/devices/system",
)  # fmt: skip
_PROC_FILES = (
    "/proc/cpuinfo", "/proc/meminfo", "/proc/stat", "/proc/loadavg", "/proc/version", "/proc/uptime",
    "/proc/filesystems", "/proc/sys/kernel/osrelease", "/proc/sys/vm/overcommit_memory",
)  # fmt: skip
_NULL_DEVICES = ("/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom")
_GPU_READABLE = (
    "/sys", "/proc/driver", "/proc/devices", "/proc/modules", "/proc/sys/vm", "/etc/nvidia", "/etc/OpenCL",
    "/run/nvidia-persistenced",
)  # fmt: skip
_GPU_DEVICES = ("/dev/nvidia*", "/dev/nvidia-caps/*", "/dev/kfd", "/dev/dri/*")


def readable(*, devices: bool) -> list[str]:
    """Paths for reading: the interpreter, its packages, system libraries, and the GPU's facts when ``devices``."""
    paths = [sys.prefix, sys.base_prefix, sys.exec_prefix, *_libraries(), *_SYSTEM]
    return unique([*paths, *_GPU_READABLE] if devices else paths)


def processes(*, own: bool) -> list[str]:
    """What of /proc may be read: all of it where it shows only our own processes (``own``), else named files."""
    return ["/proc"] if own else [*_PROC_FILES, f"/proc/{os.readlink('/proc/self')}"]


def device_files(*, devices: bool) -> list[str]:
    """Device files: null and random ones, and the GPU's when ``devices``."""
    found = list(_NULL_DEVICES)
    if devices:
        found += [path for pattern in _GPU_DEVICES for path in sorted(glob.glob(pattern))]
    return found


def unique(paths: list[str]) -> list[str]:
    """Existing paths, as given and with links resolved, each once, in order."""
    both = [form for path in paths for form in (os.path.abspath(path), os.path.realpath(path))]
    return [path for path in dict.fromkeys(both) if os.path.exists(path)]


def _libraries() -> list[str]:
    here = sysconfig.get_paths()
    named = [here["purelib"], here["platlib"], here["stdlib"], here["platstdlib"]]
    user = site.getusersitepackages()
    return [*named, user] if user in sys.path else named
