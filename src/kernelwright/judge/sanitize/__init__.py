# SPDX-License-Identifier: Apache-2.0
"""A candidate's first cases under sanitizers: memory it must not touch, and threads that race.

C++: the sources are compiled again for AddressSanitizer (with bounds and null checks) and for ThreadSanitizer, and
run in fresh confined processes on the smallest cases. torch itself is not instrumented; a report counts where it
names the candidate's sources. CUDA and Triton: compute-sanitizer, where it is installed; like the counter tools it is
trusted and starts the program, which confines itself. What could not be run is a note, never a rejection.
"""

from __future__ import annotations

import shutil
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from kernelwright import sandbox, wire
from kernelwright.candidate import Candidate
from kernelwright.judge import skeletons
from kernelwright.judge.bench import Bench
from kernelwright.judge.programs import readable
from kernelwright.judge.sanitize import tools
from kernelwright.judge.sanitize.tools import CALLED, CPU_TOOLS, CUDA_TOOLS, THREAD, THREADS, Tool
from kernelwright.trial import Rejected

STAGE = "sanitize"
COMPILED = ("cpp", "cuda")
ON_DEVICE = ("cuda", "triton")
"""Languages whose kernels compute-sanitizer looks at."""
LEAST_SECONDS = 15.0
"""Two sanitizers took 8 to 10 s for a small task on two busy cores, one after the other."""
MOST_CASES = 3
MOST_WORK, MOST_CALL_US = 10**9, 200_000.0
"""Multiply-adds of the reference in a call that is made under a sanitizer, or what the candidate itself takes for it
where that is known: sanitizers slow a program down 5 to 50 times, and a fast one may do far less than its reference.
"""
LIMITS = sandbox.Limits(
    seconds=90.0,
    memory_bytes=1 << 46,  # shadow memory is reserved by the terabyte and hardly used
    processes=256,
    file_bytes=64 << 20,
    output_bytes=4 << 20,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Sanitized:
    """What the sanitizers said."""

    rejected: Rejected | None
    """The first fault found, or None."""
    notes: tuple[str, ...]
    """One line per sanitizer: clean, or why it did not run."""


def within(
    seconds: float | None, candidate: Candidate, folder: Path, bench: Bench, cache: Path, call_us: float
) -> Sanitized:
    """``run``, or a note where fewer than LEAST_SECONDS are left for it (None: as many as it takes)."""
    if seconds is not None and seconds < LEAST_SECONDS and _can_be_looked_at(candidate, bench):
        return Sanitized(rejected=None, notes=("sanitizers: not run (no time was left for them)",))
    return run(candidate, folder, bench, cache, call_us)


def run(candidate: Candidate, folder: Path, bench: Bench, cache: Path, call_us: float | None = None) -> Sanitized:
    """Look at a built candidate (in ``folder``) on the smallest cases of a task. ``cache`` keeps compiled libraries;
    ``call_us`` is what the candidate takes for the timed case, where that is known."""
    if not _can_be_looked_at(candidate, bench):
        return Sanitized(rejected=None, notes=("sanitizers: not run (there is nothing of its own to compile)",))
    notes: list[str] = []
    with tempfile.TemporaryDirectory(prefix="kernelwright-sanitize-") as place:
        Path(place).chmod(0o755)
        imports = readable(bench.task.imports)
        scene = _Scene(candidate, folder, Path(place), cache / "sanitize", str(bench.device), imports)
        made = scene.write_calls(bench, call_us)
        if not made:
            return Sanitized(rejected=None, notes=("sanitizers: not run (every case is too large)",))
        found: Iterator[Rejected | str]
        with ThreadPoolExecutor(len(CPU_TOOLS)) as pool:
            if candidate.language in ON_DEVICE:  # one after the other, and none after a fault: each fills the device
                found = map(scene.on_cuda, CUDA_TOOLS)
            else:
                found = pool.map(scene.on_cpu, CPU_TOOLS)
            for said in found:
                if isinstance(said, Rejected):
                    return Sanitized(rejected=said, notes=(*notes, said.reason))
                notes.append(said.format(cases=f"{made} cases"))
    return Sanitized(rejected=None, notes=tuple(notes))


def _can_be_looked_at(candidate: Candidate, bench: Bench) -> bool:
    return candidate.language in COMPILED or (candidate.language in ON_DEVICE and bench.device.type == "cuda")


@dataclass(frozen=True, slots=True)
class _Scene:
    """One candidate, and a folder with the calls it is to make."""

    candidate: Candidate
    built: Path
    work: Path
    cache: Path
    device: str
    imports: tuple[str, ...] = ()
    """Folders that the reference imports from."""

    def write_calls(self, bench: Bench, call_us: float | None) -> int:
        """Draw the inputs of the smallest cases and write them beside the driver; how many there are."""
        points = sorted(bench.points(bench.seed), key=lambda point: point.instance.work)
        most = MOST_WORK
        if call_us is not None:
            most = max(most, int(bench.timed.instance.work * MOST_CALL_US / max(call_us, 1.0)))
        chosen = [p for p in points if p.instance.work <= most and not p.instance.autocast]
        cases = []
        for point in chosen[:MOST_CASES]:
            instance = point.instance
            given = {"args": list(instance.init_args), "kwargs": dict(instance.init_kwargs)}
            init, init_leaves = skeletons.of_constructor(given)
            leaves = instance.draw(point.as_given, bench.seed)
            case: dict[str, Any] = {"init": init, "init_leaves": init_leaves, "skeleton": instance.skeleton}
            case |= {"leaves": [leaf.detach().cpu().contiguous() for leaf in leaves]}
            case |= {"state": {name: value.cpu() for name, value in instance.first_state}}
            case |= {"training": bench.contract.training, "gradients": bench.contract.gradients}
            cases.append(case)
        if cases:
            torch.save(cases, self.work / "calls.pt")
            shutil.copy(Path(__file__).with_name("driver.py"), self.work)
            shutil.copy(str(skeletons.__file__), self.work)
        return len(cases)

    def on_cpu(self, tool: Tool) -> Rejected | str:
        """One sanitizer over a copy of the candidate that is compiled for it."""
        name = f"{tool.name}:"
        preload = []
        for wanted in tool.libraries:
            found = tools.shim(self.cache) if wanted == "openmp" else tools.located(wanted)
            if found is None:
                return f"{name} not run ({wanted} is not there)"
            preload.append(str(found))
        folder, why = self._compiled(tool)
        if why:
            return f"{name} not run ({why})"
        if tool is THREAD and any(b"GOMP_task" in file.read_bytes() for file in folder.glob("*.so")):
            return f"{name} not run (OpenMP tasks are not understood)"
        env = {"LD_PRELOAD": " ".join(preload), **dict(tool.environment), "OMP_NUM_THREADS": str(THREADS)}
        done = self._drive([], folder, env, None)
        sources = [file for file, _ in self.candidate.sources]
        reason, report = tools.fault(tool, done.stdout + done.stderr, sources)
        return self._said(tool.name, reason, report, done)

    def on_cuda(self, name: str) -> Rejected | str:
        """One tool of compute-sanitizer over the candidate as it is; every tensor an allocation of its own, or a
        neighbour in the allocator's block would hide what is read beyond the end."""
        found = tools.compute_sanitizer()
        if found is None:
            return f"compute-sanitizer {name}: not run (it is not installed)"
        own = self.work / "own"
        for folder in (own, own / "tmp"):
            folder.mkdir(exist_ok=True)
        env = {"PYTORCH_NO_CUDA_MEMORY_CACHING": "1", "TRITON_CACHE_DIR": str(own / "triton"), "HOME": str(own)}
        watch = [str(found), "--tool", name, "--error-exitcode", "66", "--target-processes", "all"]
        done = self._drive(watch, self.built, env | {"TMPDIR": str(own / "tmp")}, own)
        lines = (done.stdout + done.stderr).splitlines()
        faults = [line for line in lines if line.startswith("=========")]
        told = [line.strip("= ") for line in faults[1:]] if done.returncode == 66 else []
        reason = next(filter(None, told), "")
        return self._said(f"compute-sanitizer {name}", reason, "\n".join(faults)[: tools.REPORT], done)

    def _said(self, name: str, reason: str, report: str, done: sandbox.Finished) -> Rejected | str:
        if reason:
            return Rejected(stage=STAGE, reason=f"{name}: {reason}"[:600], detail=report)
        if CALLED not in done.stdout:
            last = (done.stderr.strip().splitlines() or ["no output"])[-1]
            return f"{name}: not run ({done.killed or last[:200]})".replace("{", "(").replace("}", ")")
        return f"{name}: clean on {{cases}}"

    def _compiled(self, tool: Tool) -> tuple[Path, str]:
        """The candidate's folder with libraries for ``tool``, found again by content; and why there is none."""
        key = wire.digest(self.candidate.sources, tool.name, tool.flags, tools.compiler())[:24]
        folder = self.cache / key
        if folder.is_dir():
            return folder, ""
        folder.parent.mkdir(parents=True, exist_ok=True)
        draft = Path(tempfile.mkdtemp(prefix="draft-", dir=folder.parent))
        try:
            for name, text in self.candidate.sources:
                target = draft / name
                target.parent.mkdir(parents=True, exist_ok=True)
                target.write_text(text, encoding="utf-8", errors="surrogatepass")
            for name, _ in self.candidate.sources:
                if name.endswith(".cpp"):
                    why = tools.instrumented(tool, draft / name, (draft / name).with_suffix(".so"))
                    if why:
                        return folder, why
            draft.chmod(0o755)
            draft.rename(folder)
        finally:
            shutil.rmtree(draft, ignore_errors=True)
        return folder, ""

    def _drive(self, watch: Sequence[str], folder: Path, env: Mapping[str, str], own: Path | None) -> sandbox.Finished:
        """The driver, confined; ``watch`` is a trusted tool that starts it, ``own`` a folder both may write."""
        arguments = (str(folder), self.candidate.entry, self.device, *self.imports)
        driver = [sys.executable, "-I", str(self.work / "driver.py"), *arguments]
        needed: list[str | Path] = [self.work, folder, *self.imports, sys.prefix, sys.base_prefix]
        return sandbox.run(
            driver,
            limits=LIMITS,
            readable=(*needed, *_preloaded(env), *_tool_folder(watch)),
            writable=() if own is None else (own,),
            cwd=folder,
            env={"PATH": "/usr/local/cuda/bin:/usr/bin:/bin", "LC_ALL": "C", **env},
            devices=self.device != "cpu",
            watch=watch,
        )


def _tool_folder(watch: Sequence[str]) -> tuple[Path, ...]:
    return (Path(watch[0]).resolve().parents[1],) if watch else ()


def _preloaded(env: Mapping[str, str]) -> tuple[Path, ...]:
    return tuple(Path(path) for path in env.get("LD_PRELOAD", "").split())
