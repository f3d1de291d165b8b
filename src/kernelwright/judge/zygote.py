# SPDX-License-Identifier: Apache-2.0
"""A process that has torch imported and nothing else, and forks one confined program per request.

It knows no task, opens no device, stays single-threaded (a fork copies one thread only), and ends when the judge
does. Run by ``child.Zygote`` as ``python -I -S -c BOOT``.
"""

from __future__ import annotations

import contextlib
import faulthandler
import gc
import importlib
import io
import json
import operator
import os
import select
import signal
import socket
import sys
import tempfile
from pathlib import Path
from typing import Any

import torch

from kernelwright import sandbox
from kernelwright.judge import headers, mathlib, pages, runner, wires

FOUND_OUT = (
    ("torch._inductor.codecache", "torch_key"),
    ("torch._inductor.codecache", "CacheBase.get_system"),
    ("torch._inductor.codegen.common", "init_backend_registration"),
    ("torch._dynamo.backends.registry", "_lazy_import"),
    ("torch._dynamo.repro.after_aot", ""),
    ("torch._export.passes.collect_tracepoints_pass", ""),
    ("torch._higher_order_ops.passes", ""),
    ("torch.distributed.tensor.experimental", ""),
    ("torch.export._trace", ""),
    ("torch.utils.cpp_extension", ""),
    ("sympy.physics.units", ""),
    ("setuptools", ""),
)
"""Modules that are imported late, and functions in them that remember their result; see ``_found_out``."""


def main() -> None:
    """Serve fork requests on descriptor ``sys.argv[1]`` after importing the modules of ``sys.argv[2]``."""
    channel = socket.socket(fileno=int(sys.argv[1]))
    sandbox.prctl(sandbox.PR_SET_CHILD_SUBREAPER, 1)
    for name in json.loads(sys.argv[2]):
        importlib.import_module(name)
    if "torch._inductor.compile_fx" in sys.modules:
        _without_headers()
        _found_out()
    mathlib.settle()
    gc.collect()
    gc.freeze()  # the collector of a fork must not touch, and so copy, what was loaded here
    threads = len(os.listdir("/proc/self/task"))
    own_root = sandbox.root_works()
    wires.send(channel, wires.encode({"ready": os.getpid(), "threads": threads, "own_root": own_root}))
    serve(channel)


def _without_headers() -> None:
    """No precompiled headers of torch's own: it puts them in a folder that forks of this process may not write. Which
    they read instead, each is told (``headers``).

    Torch 2.13 reads that from the environment; 2.11 does not, and every CPU program it compiled failed.
    """
    config: Any = sys.modules.get("torch._inductor.config")
    if hasattr(config, "cpp_cache_precompile_headers"):
        config.cpp_cache_precompile_headers = False


def _found_out() -> None:
    """What torch's compiler finds out or imports in the first compilation of a process, once for all forks.

    It is the same for every program, and was 1.3 s of one core of each, of 2.1 s beside its C++ compiler (torch 2.13, a
    softmax). A version that has it elsewhere leaves it to the forks. Where torch knows of GPUs it asks one for its
    name, which no process may do that forks.
    """
    for module, name in FOUND_OUT:
        if name.endswith("get_system") and (torch.version.cuda or torch.version.hip):
            continue
        with contextlib.suppress(ImportError, AttributeError, TypeError, OSError):
            found = importlib.import_module(module)
            if name:
                operator.attrgetter(name)(found)()


def serve(channel: socket.socket) -> None:
    """Answer until the judge closes the channel. A fork of the judge has one of its own (``serve``), and programs that
    it left are ended when that is closed."""
    programs: dict[socket.socket, set[int]] = {channel: set()}
    while True:
        for asking in select.select(list(programs), [], [])[0]:
            body, descriptors = b"", list[int]()
            with contextlib.suppress(ConnectionResetError):  # a fork that was killed had not heard an answer
                body, descriptors = wires.receive(asking)
            if not body and asking is channel:
                return
            if not body:
                for pid in programs.pop(asking):
                    collect(pid)
                asking.close()
                continue
            answer = _answer(wires.decode(body), descriptors, programs, asking)
            with contextlib.suppress(BrokenPipeError, ConnectionResetError):
                wires.send(asking, wires.encode(answer))
            for descriptor in descriptors:
                os.close(descriptor)


def _answer(
    request: dict[str, Any], descriptors: list[int], programs: dict[socket.socket, set[int]], asking: socket.socket
) -> dict[str, Any]:
    """``programs``: of each channel, those that were asked for over it."""
    if "serve" in request:
        programs[socket.socket(fileno=os.dup(descriptors[0]))] = set()
        return {"served": True}
    if "fork" in request:
        answer = fork(request["fork"], descriptors, list(programs))
        programs[asking] |= {answer["pid"]} if "pid" in answer else set()
        return answer
    programs[asking].discard(request["collect"])
    return collect(request["collect"])


def fork(request: dict[str, Any], descriptors: list[int], channels: list[socket.socket]) -> dict[str, Any]:
    """Start one confined program; {"pid": n}, or {"failed": reason}. ``descriptors``: its channel, its output;
    ``channels``: this process's own.

    Three processes: this one, one that enters the namespaces and ends, and the program, which is the first
    process of a pid namespace and whose parent is this one (a subreaper).
    """
    report, tell = os.pipe()
    ready, go = os.pipe()
    middle = os.fork()
    if middle == 0:
        try:
            for channel in channels:
                channel.close()
            _enter(request, descriptors, ready, tell)
        except BaseException as error:  # noqa: BLE001 - anything here must end this process, and be told
            os.write(tell, f"failed {type(error).__name__}: {error}".encode()[:1000])
        finally:
            os._exit(70)
    os.close(tell)
    os.close(ready)
    said = os.read(report, 4096).decode(errors="replace")
    os.waitpid(middle, 0)
    os.close(report)
    if not said.isdigit():
        os.close(go)
        return {"failed": said or "the process between died"}
    os.write(go, b"g")
    os.close(go)
    return {"pid": int(said)}


def _enter(request: dict[str, Any], descriptors: list[int], ready: int, tell: int) -> None:
    permission = sandbox.Permission(
        readable=(request["folder"], *request["readable"], *_preloaded()),
        writable=tuple(request["writable"]),
        own=next(iter(request["writable"]), ""),
        limits=sandbox.Limits(**request["limits"]),
        devices=request["device"] != "cpu",
        execute=request["execute"],
        user=request["user"],
        own_root=request["own_root"],
    )
    flags = sandbox.detach(permission)
    pid = os.fork()
    if pid:
        os.write(tell, str(pid).encode())
        os._exit(0)
    try:
        os.close(tell)
        program(request, permission, flags, descriptors, ready)
    except BaseException as error:  # noqa: BLE001 - whatever it is, the judge must hear of it
        failed = {"kind": "sandbox", "text": f"{type(error).__name__}: {error}"[:500], "detail": ""}
        wires.send(socket.socket(fileno=descriptors[0]), wires.encode({"failed": failed}))
    finally:
        os._exit(71)


def _preloaded() -> tuple[str, ...]:
    """Where torch came from, should that be none of Python's own folders."""
    file = torch.__file__
    return (str(Path(file).parents[1]),) if file else ()


def program(
    request: dict[str, Any], permission: sandbox.Permission, flags: int, descriptors: list[int], ready: int
) -> None:
    """The confined program's life: confine, then serve the judge; ends the process."""
    talk, output = descriptors
    os.setpgid(0, 0)
    null = os.open("/dev/null", os.O_RDONLY)
    os.dup2(null, 0)
    os.dup2(output, 1)
    os.dup2(output, 2)
    sandbox.close_descriptors({0, 1, 2, talk, ready})
    sandbox.adopt_parent(ready)
    sandbox.replace(request["env"])
    tempfile.tempdir = None if request["writable"] else "/"  # what was found before the fork is not ours to write
    os.chdir(request["folder"])
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGPIPE, signal.SIGXFSZ):
        signal.signal(number, signal.SIG_IGN)
    for stream in (sys.stdout, sys.stderr):
        assert isinstance(stream, io.TextIOWrapper)
        stream.reconfigure(line_buffering=True, errors="replace")  # what a crash would swallow is evidence
    faulthandler.enable(file=2)  # names the crash in the output, which the judge reads
    level = sandbox.restrict(flags, permission)
    os.set_inheritable(talk, False)
    channel = socket.socket(fileno=talk)
    wires.send(channel, wires.encode({"level": level}))
    headers.use(request["headers"], [*request["writable"], sandbox.OWN])
    pages.steady()
    runner.Runner(channel, request["device"], request["threads"]).serve()
    os._exit(0)


def collect(pid: int) -> dict[str, Any]:
    """Kill ``pid`` and its group if it still runs, and reap it: {"status": wait status}."""
    for kill in (os.killpg, os.kill):
        try:
            kill(pid, signal.SIGKILL)
        except (ProcessLookupError, PermissionError):
            continue
    try:
        _, status = os.waitpid(pid, 0)
    except ChildProcessError:
        return {"status": -1}
    return {"status": status}
