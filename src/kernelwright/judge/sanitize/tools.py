# SPDX-License-Identifier: Apache-2.0
"""The sanitizers: how a library is compiled for each, how a process runs under it, and what its report says."""

from __future__ import annotations

import functools
import itertools
import os
import re
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from kernelwright import sandbox, wire
from kernelwright.judge.toolchains.cpp import FLAGS, compiler

CALLED = "all calls made"
REPORT = 4000
THREADS = 4
"""Threads of a program that is looked at: accesses are ordered or not, however many cores there are."""
COMPILING = sandbox.Limits(
    seconds=120.0, memory_bytes=8 << 30, processes=256, file_bytes=256 << 20, output_bytes=1 << 20
)
_RACES = "halt_on_error=0:ignore_noninstrumented_modules=1:history_size=4:atexit_sleep_ms=0"
"""The last, or it sleeps for a second at the end, where nothing of the candidate runs any more."""
_COMMON = "exitcode=66:disable_coredump=0"
"""The second, or they set a limit, which the sandbox has done already and does not permit."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Tool:
    """One way of instrumenting C++ code."""

    name: str
    flags: tuple[str, ...]
    libraries: tuple[str, ...]
    """Loaded before everything else, by the names the compiler knows them by."""
    environment: tuple[tuple[str, str], ...]
    report: re.Pattern[str]
    """First line of a report about a fault."""


ADDRESS = Tool(
    name="AddressSanitizer",
    flags=("-fsanitize=address,bounds,null,return", "-fno-sanitize-recover=bounds,null,return"),
    libraries=("libasan.so", "libubsan.so", "libstdc++.so.6"),  # the last, or throwing ends the process
    environment=(
        ("ASAN_OPTIONS", f"{_COMMON}:detect_leaks=0:alloc_dealloc_mismatch=0:allocator_may_return_null=1"),
        ("UBSAN_OPTIONS", "print_stacktrace=1:exitcode=66"),
    ),
    report=re.compile(r"^.*(?:ERROR: AddressSanitizer: .*|runtime error: .*)$", re.MULTILINE),
)
THREAD = Tool(
    name="ThreadSanitizer",
    flags=("-fsanitize=thread",),
    libraries=("libtsan.so", "openmp", "libgomp.so"),
    environment=(("TSAN_OPTIONS", f"{_COMMON}:{_RACES}"),),
    report=re.compile(r"^.*WARNING: ThreadSanitizer: .*$", re.MULTILINE),
)
CPU_TOOLS = (ADDRESS, THREAD)
CUDA_TOOLS = ("memcheck", "racecheck")
"""Of ``compute-sanitizer``."""


def located(name: str) -> Path | None:
    """Where the compiler finds a shared library, links followed; None where it has none."""
    found = _told(compiler(), name)
    return Path(os.path.realpath(found)) if found.startswith("/") and os.path.exists(found) else None


@functools.cache
def _told(by: str, name: str) -> str:
    """What a compiler says of a file's place. Five such questions take half a second, and have one answer."""
    return _run([by, f"-print-file-name={name}"], Path("/")).stdout.strip()


def compute_sanitizer() -> Path | None:
    """Where NVIDIA's compute-sanitizer is, or None."""
    found = shutil.which("compute-sanitizer", path="/usr/local/cuda/bin:/usr/local/bin:/usr/bin:/opt/cuda/bin")
    return Path(found) if found else None


def shim(cache: Path) -> Path | None:
    """``openmp.c`` as a library, compiled once for its text and compiler; None where that fails."""
    source = Path(__file__).with_name("openmp.c")
    folder = cache / wire.digest(source.read_text(encoding="utf-8"), compiler())[:24]
    made = folder / "openmp.so"
    if not made.exists():
        folder.mkdir(parents=True, exist_ok=True)
        draft = folder / f"openmp-{os.getpid()}.so"
        command = [compiler(), "-x", "c", "-O1", "-shared", "-fPIC", "-o", str(draft), str(source), "-ldl"]
        if _run(command, folder, writable=(folder,), readable=(source.parent,)).returncode:
            return None
        draft.rename(made)
    return made


def instrumented(tool: Tool, source: Path, output: Path) -> str:
    """Compile one source for a tool; empty, or why that failed."""
    kept = [flag for flag in FLAGS if flag != "-O3"]
    plain = ["-O1", "-g", "-fno-omit-frame-pointer", f"-ffile-prefix-map={output.parent}=."]
    command = [compiler(), *kept, *plain, *tool.flags, "-o", str(output), str(source)]
    done = _run(command, output.parent, writable=(output.parent,), readable=(source.parent,))
    return (done.killed or done.stderr.strip()[-300:] or "no reason given") if done.returncode else ""


def _run(
    command: list[str], cwd: Path, *, writable: Sequence[Path] = (), readable: Sequence[Path] = ()
) -> sandbox.Finished:
    env = {"PATH": "/usr/local/bin:/usr/bin:/bin", "LC_ALL": "C", "TMPDIR": str(cwd)}
    return sandbox.run(command, limits=COMPILING, writable=writable, readable=readable, cwd=cwd, env=env)


def fault(tool: Tool, text: str, sources: Sequence[str]) -> tuple[str, str]:
    """(one line with FILE:LINE, the report) of the first report that names one of ``sources``; empty texts for none.

    Reports about code that is not instrumented (torch, Python) name none of them.
    """
    starts = [match.start() for match in tool.report.finditer(text)]
    place = re.compile(r"(?:^|[/\s])((?:" + "|".join(map(re.escape, sources)) + r"):\d+)")
    for start, end in itertools.pairwise([*starts, len(text)]):
        report = text[start:end]
        named = place.search(report)
        if named is not None:
            first = report.splitlines()[0]
            what = re.sub(r"^.*?(?:ERROR: AddressSanitizer: |WARNING: ThreadSanitizer: |runtime error: )", "", first)
            what = re.sub(r" (?:on (?:unknown )?address|\(pid=).*$", "", what)
            return f"{what} at {named[1]}", report[:REPORT]
    return "", ""
