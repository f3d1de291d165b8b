# SPDX-License-Identifier: Apache-2.0
"""First program of every child started here: dies with its parent, and confines itself before an untrusted command.

Run as ``python -I -S -c BOOT`` by ``processes``; the specification is JSON in an open file, which nobody else can read.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from typing import Any

from kernelwright.sandbox import confinement, kernel
from kernelwright.sandbox.confinement import Permission, spare_user
from kernelwright.sandbox.limits import Limits


def main() -> None:
    """Become the child that the file with descriptor ``sys.argv[1]`` describes; does not return."""
    with os.fdopen(int(sys.argv[1]), "rb") as told:
        spec = json.load(told)
    kernel.die_with_parent()
    if os.getppid() != spec["parent"]:
        os._exit(125)  # the parent ended before the death signal was armed
    if "limits" in spec:
        _confined(spec)
    os.execvpe(spec["argv"][0], spec["argv"], spec["env"])


def _confined(spec: dict[str, Any]) -> None:
    """Go through namespaces and a fork; the outer process stays to pass on the status."""
    permission = _permission(spec)
    flags = confinement.detach(permission)
    kernel.die_with_parent()  # the change of credentials forgot it
    ready, go = os.pipe()
    pid = os.fork()
    if pid:
        os.write(go, b"g")
        _, status = os.waitpid(pid, 0)
        if os.WIFSIGNALED(status):
            signal.signal(os.WTERMSIG(status), signal.SIG_DFL)
            os.kill(os.getpid(), os.WTERMSIG(status))
        os._exit(os.waitstatus_to_exitcode(status) & 0xFF)
    os.close(go)
    confinement.adopt_parent(ready)
    confinement.close_descriptors({0, 1, 2})
    if spec["watch"]:
        interpreter = os.path.realpath(sys.executable)  # as a link it may not exist in there
        entered = confinement.enter(flags, permission)
        rest = json.dumps({**spec, "flags": flags, "entered": entered})
        inner = [interpreter, "-I", "-S", "-c", spec["boot"], rest]
        os.execvpe(spec["watch"][0], [*spec["watch"], *inner], spec["env"])
    confinement.restrict(flags, permission)


def watched() -> None:
    """Started by a trusted tool inside our namespaces: confine this process, then become the untrusted command.

    The environment stays as the tool made it. The tool itself is not restricted, because a rule of Landlock names
    files that exist: what the tool starts could not be given its own /proc/PID/task, without which CUDA does not
    start (error 304).
    """
    spec = json.loads(sys.argv[1])
    confinement.restrict(spec["flags"], _permission(spec), tuple(spec["entered"]))
    os.execvp(spec["argv"][0], spec["argv"])


def _permission(spec: dict[str, Any]) -> Permission:
    return Permission(
        readable=tuple(spec["readable"]),
        writable=tuple(spec["writable"]),
        limits=Limits(**spec["limits"]),
        devices=spec["devices"],
        execute=True,
        own_root=spec["own_root"],
    )


def probe() -> None:
    """Confine this process as a candidate would be and write the level as one JSON line; does not return."""
    limits = Limits(seconds=10, memory_bytes=1 << 30, processes=64, file_bytes=1 << 20, output_bytes=1 << 16)
    own_root = confinement.root_works()
    permission = Permission(limits=limits, devices=False, execute=False, user=spare_user(), own_root=own_root)
    flags = confinement.detach(permission)
    pid = os.fork()
    if pid:
        os.waitpid(pid, 0)
        os._exit(0)
    level = confinement.restrict(flags, permission)
    os.write(1, json.dumps({"level": level, "own_root": own_root}).encode())
    os._exit(0)
