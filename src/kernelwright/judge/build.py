# SPDX-License-Identifier: Apache-2.0
"""From a Candidate to a folder that loads: sources written, compiled files beside them, found again by content.

Builds may run many at once, in threads and in processes: each works in a folder of its own and moves it into
place with one rename, so a folder that exists is complete.
"""

from __future__ import annotations

import re
import shutil
import uuid
from pathlib import Path, PurePosixPath

from kernelwright import sandbox, wire
from kernelwright.candidate import LANGUAGES, Candidate
from kernelwright.judge import health
from kernelwright.judge.toolchains import TABLE, Toolchain
from kernelwright.trial import Outcome, Rejected

MOST_FILES = 64
MOST_BYTES = 4 << 20
PART = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.\-]*")
RESERVED = frozenset(
    {"torch", "numpy", "triton", "kernelwright", "ctypes", "sitecustomize", "usercustomize", "conftest"}
)
"""Module names that a candidate's own files may not take: the runner's imports must mean what they say."""
LIMITS = sandbox.Limits(seconds=120.0, memory_bytes=8 << 30, processes=256, file_bytes=256 << 20, output_bytes=1 << 20)
DETAIL = 4000


def build(candidate: Candidate, device: str, cache: Path) -> Path | Rejected:
    """The folder to load the candidate from, or why there is none.

    Raises ``ToolMissing`` where the compiler itself is absent and ``DiskFull`` where there is no room for what it
    makes: that is the machine's fault, not the candidate's.
    """
    refusal = refuse(candidate)
    if refusal is not None:
        return refusal
    folder, toolchain = place(candidate, device, cache), TABLE[candidate.language]
    if folder.is_dir():
        return folder
    folder.parent.mkdir(parents=True, exist_ok=True)
    workshop = folder.parent / f"tmp-{uuid.uuid4().hex}"
    try:
        _write(candidate, workshop)
        failure = _compile(candidate, toolchain, workshop, device)
        if failure is not None:
            return failure
        _move(workshop, folder)
        return folder
    finally:
        shutil.rmtree(workshop, ignore_errors=True)


def place(candidate: Candidate, device: str, cache: Path) -> Path:
    """The folder that a candidate is built in, or would be."""
    identity = TABLE[candidate.language].identity(device)
    key = wire.digest(candidate.sources, candidate.language, device.partition(":")[0], identity)
    return cache / key[:2] / key


def compiler(candidate: Candidate, device: str) -> str:
    """What compiles a candidate's files and which instructions it may use, in words; empty where nothing does."""
    return TABLE[candidate.language].about(device)


def commands(candidate: Candidate, device: str) -> dict[str, list[str]]:
    """Name of each compiled source to the command that compiles it, with ``{source}`` and ``{output}`` in it."""
    toolchain = TABLE[candidate.language]
    names = [name for name, _ in candidate.sources if toolchain.suffix and name.endswith(toolchain.suffix)]
    return {name: toolchain.command(Path("{source}"), Path("{output}"), device) for name in names}


def refuse(candidate: Candidate) -> Rejected | None:
    """Why this candidate is never written to disk: names that escape, shadow or clash, or too much of anything."""
    if candidate.language not in LANGUAGES:
        return _rejected(f"language {candidate.language!r} is none of {', '.join(LANGUAGES)}")
    if not candidate.sources or len(candidate.sources) > MOST_FILES:
        return _rejected(f"{len(candidate.sources)} source files; between 1 and {MOST_FILES} are allowed")
    size = sum(len(text.encode("utf-8", "surrogatepass")) for _, text in candidate.sources)
    if size > MOST_BYTES:
        return _rejected(f"{size} bytes of source; at most {MOST_BYTES} are allowed")
    names = [name for name, _ in candidate.sources]
    if len(set(names)) != len(names):
        return _rejected("two sources have the same path")
    for name in names:
        fault = _bad_name(name)
        if fault:
            return _rejected(f"source path {name!r} {fault}")
    file, _, cls = candidate.entry.partition("::")
    if file not in names or not file.endswith(".py") or not cls.isidentifier():
        return _rejected(f"entry {candidate.entry!r} is not FILE.py::Class of one of the sources")
    return None


def _bad_name(name: str) -> str:
    path = PurePosixPath(name)
    if path.is_absolute() or "\\" in name or str(path) != name:
        return "is not a plain relative path"
    if not all(PART.fullmatch(part) for part in path.parts) or ".." in path.parts:
        return "leaves its folder or has odd characters"
    if path.parts[0].partition(".")[0] in RESERVED:
        return "takes the name of a module the harness imports"
    if path.suffix in (".so", ".pth", ".pyc"):
        return "is a binary, not a source"
    return ""


def _write(candidate: Candidate, folder: Path) -> None:
    for name, text in candidate.sources:
        target = folder / name
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text, encoding="utf-8", errors="surrogatepass")


def _compile(candidate: Candidate, toolchain: Toolchain, folder: Path, device: str) -> Rejected | None:
    if not toolchain.suffix:
        return None
    scratch = folder / ".scratch"
    scratch.mkdir()
    for name, _ in candidate.sources:
        if not name.endswith(toolchain.suffix):
            continue
        source = folder / name
        output = source.with_suffix(".so")
        finished = sandbox.run(
            toolchain.command(source, output, device),
            limits=LIMITS,
            writable=(folder,),
            readable=toolchain.readable(),
            cwd=folder,
            env={"TMPDIR": str(scratch), "PATH": "/usr/local/cuda/bin:/usr/local/bin:/usr/bin:/bin", "LC_ALL": "C"},
        )
        if finished.killed:
            return _rejected(f"compiling {name} did not finish: {finished.killed}", _told(finished.stderr, folder))
        if finished.returncode != 0 or not output.is_file() or output.is_symlink():
            health.blame_disk(finished.stderr + finished.stdout, folder)
            return _rejected(f"{name} does not compile", _told(finished.stderr or finished.stdout, folder))
    shutil.rmtree(scratch, ignore_errors=True)
    return None


def by_own_names(outcome: Outcome | None, folder: Path) -> Outcome | None:
    """The outcome with files called what their author called them, where an error names them by their place."""
    if not isinstance(outcome, Rejected):
        return outcome
    reason, detail = _told(outcome.reason, folder), _told(outcome.detail, folder)
    return Rejected(stage=outcome.stage, reason=reason, detail=detail)


def _told(output: str, folder: Path) -> str:
    """What a compiler said, files by the names their author gave them: the folder is a passing one."""
    return output.replace(f"{folder}/", "")


def _move(workshop: Path, folder: Path) -> None:
    try:
        workshop.rename(folder)
    except OSError:
        if not folder.is_dir():  # otherwise another builder of the same content came first, and that is as good
            raise


def _rejected(reason: str, detail: str = "") -> Rejected:
    return Rejected(stage="build", reason=reason, detail=detail[:DETAIL])
