# SPDX-License-Identifier: Apache-2.0
"""Facts about exactly one candidate on one case: what was compiled, what a few calls did, what the counters say.

The names are those that the rules of ``diagnosis`` use. Everything here is advisory: the program that was asked runs
the candidate's own code, so nothing of it is ever a result.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from kernelwright import limits, sandbox
from kernelwright.judge import skeletons
from kernelwright.judge.profile import binary, counters, occupancy, perf, sass, traces
from kernelwright.limits import Trace
from kernelwright.limits.bounds import reach_us, us_per_byte
from kernelwright.machine import Machine

SECONDS = 180.0
LIMITS = sandbox.Limits(
    seconds=SECONDS, memory_bytes=16 << 30, processes=1024, file_bytes=4 << 30, output_bytes=16 << 20
)
FOREIGN = 0.5
"""Share of the device time that the candidate's own kernels must have before their code speaks for the program."""


REGISTERS = 65536
"""Of a multiprocessor of compute capability 5.0 to 10.0, where torch does not say."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    """One built candidate and one call of it."""

    entry: str
    folder: Path
    device: str
    init_args: Sequence[Any]
    init_kwargs: dict[str, Any]
    state: Sequence[tuple[str, torch.Tensor]]
    leaves: Sequence[torch.Tensor]
    skeleton: Any
    training: bool
    traced: Trace
    """The reference's trace on the same call."""
    workshop: Path
    """A folder of this candidate's own: the Triton kernels that its last profile compiled stay there."""
    threads: int
    imports: tuple[str, ...] = ()
    """Folders that the reference imports from."""


@dataclass(slots=True, kw_only=True)
class Profile:
    """``facts`` in the rules' names and units; ``notes`` say what could not be measured; ``kernels`` by device time."""

    facts: dict[str, float] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    kernels: list[traces.Launch] = field(default_factory=list)


LACKING: set[str] = set()
"""Counters that Nsight Compute said this device lacks: not asked for again by this process."""
Runner = Callable[[Subject, list[str], list[str]], sandbox.Finished]
"""What runs (subject, the tool that counts, the command it starts)."""


def profile(subject: Subject, machine: Machine, *, count: bool = True, counted: Runner | None = None) -> Profile:
    """Run and read ``subject``. ``count`` False leaves the hardware counters out. Raises OSError for a full disk.

    ``counted`` runs the command that is counted, by default in the sandbox.
    """
    found = Profile()
    subject.workshop.mkdir(parents=True, exist_ok=True)
    # What an earlier profile compiled for other shapes did not run in this one.
    shutil.rmtree(subject.workshop / "triton", ignore_errors=True)
    request = _request(subject)
    _replay(subject, request, found)
    found.facts |= _task(subject.traced, machine, found.facts)
    if subject.device == "cpu":
        compiled, notes = binary.facts(subject.folder)
        found.facts |= compiled | {"threads": float(subject.threads)}
        found.notes += notes
        if count:
            _count_on_processor(subject, request, found, counted or watched)
    else:
        _machine_code(subject, found)
        least = 0.6 * found.facts.get("bound_us", float("inf"))
        found.facts["passes"] = sum(one.count for one in found.kernels if one.us / max(1.0, one.count) >= least)
        if count:
            _count(subject, request, found, counted or watched)
    if not count:
        found.notes.append("hardware counters: not asked for")
    found.facts |= _measured(machine, subject.traced.unavoidable_bytes)
    _atomics(found.facts, machine)
    return found


def _measured(machine: Machine, moved: int) -> dict[str, float]:
    """What the machine does at best: a launch, a wait, a fresh page, and ``moved`` bytes from where they fit."""
    names = {
        "launch_us": "latency.launch_us",
        "kernel_launch_us": "latency.kernel_launch_us",
        "synchronise_us": "latency.synchronise_us",
        "fault_us": "latency.page_fault_us",
    }
    found = {name: value for name, fact in names.items() if (value := machine.value(fact)) is not None}
    if "launch_us" in found:
        found.setdefault("kernel_launch_us", found["launch_us"])
    reach = reach_us(machine, moved)
    return found if reach is None else found | {"reach_us": reach}


def _request(subject: Subject) -> dict[str, Any]:
    """The call as a file of tensors and the rest as JSON."""
    arguments, first = skeletons.of_constructor(list(subject.init_args))
    keywords, second = skeletons.of_constructor(dict(subject.init_kwargs))
    data = subject.workshop / "call.pt"
    state = [(name, tensor.detach().cpu()) for name, tensor in subject.state]
    torch.save({"leaves": list(subject.leaves), "init": [*first, *second], "state": state}, data)
    return {
        "entry": subject.entry, "device": subject.device, "threads": subject.threads, "training": subject.training,
        "data": str(data), "trace": str(subject.workshop / "trace.json"), "init_args": arguments,
        "init_kwargs": _shifted(keywords, len(first)), "arguments": subject.skeleton,
    }  # fmt: skip


def _shifted(skeleton: Any, by: int) -> Any:
    """``skeleton``, a dictionary of plain values and tensors, with its leaves numbered from ``by``."""
    if by == 0 or "dict" not in skeleton:
        return skeleton
    moved = {key: {"t": item["t"] + by} if "t" in item else item for key, item in skeleton["dict"].items()}
    return {"dict": moved}


def _program(request: dict[str, Any], mode: str) -> list[str]:
    return [sys.executable, "-m", "kernelwright.judge.profile.replay", json.dumps({**request, "mode": mode})]


def watched(subject: Subject, tool: list[str], argv: list[str]) -> sandbox.Finished:
    """``argv`` confined as ever, with a trusted tool in the same namespaces that reads counters of it."""
    return confined(subject, argv, tool)


def confined(subject: Subject, argv: list[str], watch: Sequence[str] = ()) -> sandbox.Finished:
    root = Path(__file__).resolve().parents[3]
    own = subject.workshop
    (own / "tmp").mkdir(exist_ok=True)
    env = {
        "PYTHONPATH": ":".join([str(root), *subject.imports, *(path for path in sys.path if path)]),
        "TRITON_CACHE_DIR": str(own / "triton"),
        "TORCHINDUCTOR_CACHE_DIR": str(own / "inductor"),
        "TMPDIR": str(own / "tmp"),
        "HOME": str(own),
        "OMP_NUM_THREADS": str(subject.threads),
        "OMP_WAIT_POLICY": "PASSIVE",  # a thread that waits must not look busy
    }
    return sandbox.run(
        argv,
        limits=LIMITS,
        writable=(own,),
        # torch's own folder too: it need not lie in Python's (a package folder of the user's, a path that was given)
        readable=(
            *(root, subject.folder, sys.prefix, sys.base_prefix, Path(torch.__file__).parents[1]),
            *map(Path, subject.imports),
        ),
        cwd=subject.folder,
        env=env,
        devices=subject.device != "cpu",
        watch=watch,
    )


def _replay(subject: Subject, request: dict[str, Any], found: Profile) -> None:
    done = confined(subject, _program(request, "trace"))
    if done.returncode != 0 or not _said(done.stdout):
        why = done.killed or (done.stderr.strip().splitlines() or ["it said nothing"])[-1]
        found.notes.append(f"run-time facts: the replay failed: {why[:300]}")
        return
    seen = _said(done.stdout)
    found.facts |= seen
    if subject.device == "cpu":
        return
    try:
        trace = json.loads(Path(request["trace"]).read_text(encoding="utf-8", errors="replace"))
    except (OSError, ValueError) as error:
        found.notes.append(f"kernels: the trace cannot be read: {error}")
        return
    facts, found.kernels = traces.read(trace)
    found.facts |= facts
    if "waiting_us" in facts:
        # A host that waits is not busy; what it waits for is the device's time.
        found.facts["host_us"] = max(0.0, found.facts["host_us"] - facts["waiting_us"])
    if not found.kernels:
        found.notes.append("kernels: the profiler saw none")


def energy_of(subject: Subject) -> tuple[dict[str, float], str]:
    """(energy_mJ and watts of calls that follow each other, or nothing; how, or why not). CUDA only: a processor's
    counter is not readable from inside the sandbox, and from outside it would hold the start of the process too."""
    if subject.device == "cpu":
        return {}, "a processor's counter cannot be read for one confined program"
    subject.workshop.mkdir(parents=True, exist_ok=True)
    done = confined(subject, _program(_request(subject), "energy"))
    found = _said(done.stdout)
    if not found:
        return {}, done.killed or (done.stderr.strip().splitlines() or ["the driver gives no counter"])[-1][:200]
    return found, "the driver's counter over calls that follow each other, rest included; the program's own count"


def _said(text: str) -> dict[str, float]:
    """What a replay reported, or nothing."""
    said = next((line for line in reversed(text.splitlines()) if line.startswith('{"replay"')), None)
    return {} if said is None else {name: float(value) for name, value in json.loads(said)["replay"].items()}


def _task(traced: Trace, machine: Machine, seen: dict[str, float]) -> dict[str, float]:
    """What the reference needs, whoever computes it."""
    products = [operator for operator in traced.operators if operator.unit == "matmul"]
    small = [one for one in products if one.dtype in ("float16", "bfloat16") or one.dtype.startswith("float8")]
    doubles = any(operator.dtype in ("float64", "complex128") for operator in traced.operators)
    found = {
        "needed_bytes": float(traced.unavoidable_bytes),
        "tensor_eligible": float(bool(small)),
        "dtype_bits": 8.0 if any(one.dtype.startswith("float8") for one in small) else 16.0 if small else 32.0,
        "task_float64": float(doubles),
    }
    rate = machine.value("peak.simd.float32_TFLOPs") or machine.value("peak.gemm.float32_TFLOPs")
    if rate and "busy_us" in seen:
        # The products' share of all work, each at the vector unit's rate or memory's: what they take if they run there.
        product = sum(one.operations for one in small) / (rate * 1e6)
        rest = sum(one.operations for one in traced.operators if one not in small) / (rate * 1e6)
        moving = traced.unavoidable_bytes * (us_per_byte(machine, 0.5) or 0.0)
        found["matmul_us"] = seen["busy_us"] * product / max(1e-9, product + rest + moving)
    bounds = limits.bounds(traced, machine)
    if bounds is not None:
        found["bound_us"] = bounds.unavoidable_us
        found["written_us"], found["unfused_us"] = bounds.as_written_us, bounds.unfused_us
        found["launch_bound"] = float(bounds.limiter == "launch")
        found["memory_bound"] = float(bounds.limiter == "memory")
    cache = machine.value("cache.last_level_bytes")
    if cache is not None:
        found["cache_bytes"] = cache
    return found


def _machine_code(subject: Subject, found: Profile) -> None:
    objects = sorted([*subject.folder.rglob("*.so"), *(subject.workshop / "triton").rglob("*.cubin")])
    ran = {one.name: one.registers for one in found.kernels if one.registers}
    code, notes = sass.facts(objects, subject.workshop / "tmp", ran)
    found.notes += notes
    if not found.kernels:
        return
    main = found.kernels[0]
    own = [one for one in found.kernels if one.name in code]
    everything = sum(one.us for one in found.kernels)
    share = sum(one.us for one in own) / everything if everything else 0.0
    found.facts |= _resident(subject, main, code.get(main.name, {}))
    if share < FOREIGN:
        if code:
            found.notes.append(
                f"compiled facts: own kernels take {share:.0%} of the device time; libraries are not read"
            )
        return
    # Time-weighted over the candidate's own kernels; limits of residency are the longest one's.
    total = sum(one.us for one in own)
    for name in sorted({key for one in own for key in code[one.name]} - set(sass.KEPT)):
        found.facts[name] = sum(code[one.name].get(name, 0.0) * one.us for one in own) / total
    loads, issued = found.facts["global_loads"], main.blocks * main.threads
    if loads:
        found.facts["load_bytes"] = found.facts["loaded_bytes"] / loads
    if loads and not found.facts["looped_loads"] and len(found.kernels) == 1:
        # Straight code: every lane launched loads once an instruction, and what is needed is known.
        wanted = subject.traced.input_bytes / found.facts["load_bytes"]
        found.facts["loads_useful"] = min(1.0, wanted / (issued * loads))
    if found.facts.get("library_product_us", 0.0) > 0.1 * everything:
        found.facts["tensor_instructions"] = max(1.0, found.facts["tensor_instructions"])


def _resident(subject: Subject, main: traces.Launch, code: dict[str, float]) -> dict[str, float]:
    about = torch.cuda.get_device_properties(subject.device)
    processor = occupancy.Processor(
        registers=getattr(about, "regs_per_multiprocessor", REGISTERS),
        shared_bytes=about.shared_memory_per_multiprocessor,
        threads=about.max_threads_per_multi_processor,
    )
    registers = main.registers or code.get("registers", 0.0)
    shared = main.shared_bytes or code.get("static_shared_bytes", 0.0)
    fits = occupancy.limits(processor, registers=registers, shared_bytes=shared, threads=main.threads)
    return fits | {
        "registers": registers,
        "shared_bytes": shared,
        "blocks": main.blocks,
        "block_threads": main.threads,
        "lanes_filled": main.threads / (-(-main.threads // 32) * 32) if main.threads else 1.0,
        "processors": float(about.multi_processor_count),
    }


def _count(subject: Subject, request: dict[str, Any], found: Profile, run: Runner) -> None:
    ncu = counters.tool()
    if ncu is None:
        found.notes.append("hardware counters: Nsight Compute is not installed")
        return
    program = _program(request, "counters")
    for _ in range(4):  # a counter that this device lacks makes ncu refuse all of them, another profiler too
        wanted = [metric for metric in counters.METRICS if metric not in LACKING]
        done = run(subject, counters.command(ncu, wanted), program)
        rows = counters.rows(done.stdout)
        lacking = counters.unknown(done.stdout + done.stderr, wanted)
        if rows or not (lacking or counters.occupied(done.stdout + done.stderr)):
            break
        LACKING.update(lacking)
    if not rows:
        last = (done.stderr.strip().splitlines() or [""])[-1][:200]
        why = done.killed or counters.refusal(done.stdout + done.stderr)
        found.notes.append(f"hardware counters: {why}" + (f" ({last})" if last and last not in why else ""))
        return
    launched = found.facts.get("kernels", 0.0)
    found.facts |= counters.facts(rows)
    if len(rows) >= counters.MOST_LAUNCHES and launched > len(rows):
        found.notes.append(
            f"hardware counters: of the first {len(rows)} launches only, of {launched:.0f} a call; "
            "bytes and requests that are added up are too few"
        )
    absent = [metric for metric in counters.METRICS if metric not in rows[0]]
    if absent:
        found.notes.append(f"hardware counters this device lacks: {', '.join(absent)}")


def _count_on_processor(subject: Subject, request: dict[str, Any], found: Profile, run: Runner) -> None:
    tool, control, table = perf.tool(), subject.workshop / perf.CONTROL, subject.workshop / perf.TABLE
    if tool is None:
        found.notes.append("hardware counters: perf is not installed")
        return
    for path in (control, table):
        path.unlink(missing_ok=True)
    os.mkfifo(control)
    program = _program({**request, "control": str(control)}, "perf")
    done = run(subject, perf.command(tool, subject.workshop), program)
    calls = _said(done.stdout).get("counted_calls")
    if done.returncode != 0 or not calls or not table.exists():
        why = done.killed or (done.stderr.strip().splitlines() or ["perf wrote no table"])[-1]
        found.notes.append(f"hardware counters: {why[:200]}")
        return
    counts, refused = perf.counts(table.read_text(encoding="utf-8", errors="replace"))
    found.facts |= perf.facts(counts, calls)
    if refused:
        found.notes.append(f"hardware counters that perf does not get here: {', '.join(refused)}")


def _atomics(facts: dict[str, float], machine: Machine) -> None:
    """Share of the time that atomics explain: their number at the contended rate, or their share of all requests.

    Without counters the number is taken from the code: an atomic beside each load is one for each needed element, and
    only a time that this explains within a half either way counts.
    """
    if facts.get("atomics", 0.0) <= 0:
        if "atomics" in facts:
            facts["stall_atomics"] = 0.0
        return
    rate = machine.value("rate.atomics_contended_Gops")
    took = facts.get("counted_us") or facts.get("busy_us", 0.0)
    if {"atomic_requests", "stall_memory"} <= facts.keys():
        of_requests = facts["atomic_requests"] / max(1.0, facts.get("memory_requests", 0.0))
        by_rate = facts["atomic_requests"] * 32 / (rate * 1e3) / took if rate and took else 0.0
        facts["stall_atomics"] = min(1.0, max(by_rate, of_requests * facts["stall_memory"]))
    elif rate and took and facts["atomics"] >= facts.get("global_loads", 0.0) > 0:
        explained = facts["needed_bytes"] / facts.get("load_bytes", 4.0) / (rate * 1e3) / took
        facts["stall_atomics"] = min(1.0, explained) if 0.5 <= explained <= 1.5 else 0.0
