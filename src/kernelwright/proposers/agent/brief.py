# SPDX-License-Identifier: Apache-2.0
"""Prompts rendered from nouns. Rules come from the Contract the judge enforces, numbers from measurements."""

from __future__ import annotations

import difflib
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from kernelwright import wire
from kernelwright.candidate import Candidate
from kernelwright.machine import Machine
from kernelwright.proposers.agent import capacity
from kernelwright.proposers.agent.capacity import describe_capacity
from kernelwright.proposers.agent.effects import describe_difference, describe_result, shortened
from kernelwright.task import Contract
from kernelwright.trial import Outcome, Rejected, Timed

FOLDER = Path(__file__).parent.parent / "prompts"
FENCES = {"py": "python", "cpp": "cpp", "cu": "cuda", "h": "cpp", "cuh": "cuda", "hpp": "cpp"}
SHOWN_FACTS = (
    ("bandwidth.copy.dram_GBps", "copying large arrays, bytes read plus bytes written"),
    ("bandwidth.read.dram_GBps", "reading large arrays"),
    ("bandwidth.read_kernel.dram_GBps", "reading large arrays, by a plain kernel"),
    ("bandwidth.read.16KiB_GBps", "reading 16 KiB again and again"),
    ("bandwidth.read.256KiB_GBps", "reading 256 KiB again and again"),
    ("bandwidth.read.4MiB_GBps", "reading 4 MiB again and again"),
    ("bandwidth.read.32MiB_GBps", "reading 32 MiB again and again"),
    ("bandwidth.shared_GBps", "shared memory, all multiprocessors together"),
    ("peak.simd.float32_TFLOPs", "float32 arithmetic without matrix units"),
    ("peak.gemm.float32_TFLOPs", "float32 matrix product by PyTorch"),
    ("peak.gemm.tf32_TFLOPs", "TF32 matrix product by PyTorch"),
    ("peak.gemm.bfloat16_TFLOPs", "bfloat16 matrix product by PyTorch"),
    ("peak.gemm.float16_TFLOPs", "float16 matrix product by PyTorch"),
    ("count.processors", "multiprocessors"),
    ("cache.last_level_bytes", "last-level cache"),
    ("latency.load.512MiB_ns", "a load that depends on the one before, from device memory"),
    ("rate.atomics_contended_Gops", "atomic additions to one address"),
    ("latency.launch_us", "one PyTorch operator on one element"),
    ("latency.kernel_launch_us", "one kernel launch"),
    ("latency.fork_join_us", "an empty OpenMP parallel region"),
)
"""Measured facts that decide designs, and what each is in words."""
SPOKEN = {"cpp": "C++ with OpenMP", "cuda": "CUDA C++", "triton": "Triton", "torch": "PyTorch"}
STAGES = {
    "scan": "it was refused unread",
    "build": "compiling it",
    "load": "importing kernel.py, constructing the class, loading the state_dict",
    "smoke": "a first call on inputs of the timed case",
    "verify": "other magnitudes, masks, layouts, sizes or weights than in the timed case",
    "time": "while it was being timed",
    "sanitize": "a sanitizer ran it on the smallest of the cases",
    "integrity": "it broke a rule that has nothing to do with numbers",
    "sandbox": "it did what the sandbox forbids",
}
LONGEST_DETAIL = 3000
TRACEBACK = "Traceback (most recent call last):"
LONGEST_DIFF = 120
CLOSE_BITS = 6.0
"""Bits lost below which a wrong result is called a matter of rounding; half precision loses ten and more."""
REWRITTEN = 0.7
"""Share of all lines of two programs from which on a diff says no more than the programs themselves."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """A candidate and what is known of it, as a prompt shows it."""

    candidate: Candidate
    outcome: Outcome | None
    diagnosis: str
    """The diagnosis of exactly this candidate, or empty."""


class Prompts:
    """The prompt files, rendered strictly: a missing noun is our bug and raises."""

    def __init__(self, folder: Path = FOLDER) -> None:
        # jinja2 takes 40 ms to load; every command imports this room, few render a prompt.
        import jinja2  # noqa: PLC0415

        self._environment = jinja2.Environment(
            loader=jinja2.FileSystemLoader(folder),
            undefined=jinja2.StrictUndefined,
            trim_blocks=True,
            lstrip_blocks=True,
            keep_trailing_newline=False,
            autoescape=False,  # plain text for a model, not markup
        )
        self._environment.globals["fence"] = lambda path: FENCES.get(path.rpartition(".")[2], "")
        self._folder = folder

    def render(self, name: str, **nouns: object) -> str:
        """The text of ``prompts/NAME.md`` with these nouns."""
        return self._environment.get_template(f"{name}.md").render(**nouns).strip() + "\n"

    def digest(self, name: str) -> str:
        """Content address of a prompt file: recorded in each candidate it asked for."""
        return wire.digest((self._folder / f"{name}.md").read_text())

    def names(self) -> list[str]:
        """Every prompt file."""
        return sorted(path.stem for path in self._folder.glob("*.md"))


def describe_contract(contract: Contract) -> list[str]:
    """One sentence for each rule the judge enforces under this contract, in its own terms."""
    lines = [
        "Every output must have the reference's shape, dtype and device; NaN and Inf must appear exactly where the "
        "reference has them.",
        _precision(contract.bits_lost),
    ]
    if contract.scales != (1.0,):
        factors = ", ".join(f"{scale:g}" for scale in contract.scales)
        lines.append(
            f"It must hold with the floating inputs (masks and weights that are given as inputs among them) scaled by "
            f"{factors} where the reference itself stays finite."
        )
    if set(contract.layouts) - {"contiguous"}:
        lines.append(
            f"Inputs may be {', '.join(contract.layouts)} in memory (offset: not aligned to a vector); it must not "
            "assume `x.is_contiguous()`, but may copy with `x.contiguous()`."
        )
    lines.append(
        "Weights never change after construction: what is derived from them may be kept."
        if contract.frozen_parameters
        else "Weights may change between calls: nothing derived from them may be kept from one call to the next."
    )
    if contract.mutates:
        lines.append(f"Tensor inputs {list(contract.mutates)} are written to as the reference does; no others.")
    else:
        lines.append("Inputs must be left unchanged, and outputs share no storage with them unless the reference's do.")
    if not contract.special_values:
        lines.append("No check puts NaN or Inf into inputs that have none as `get_inputs()` draws them.")
    if contract.as_drawn:
        lines.append(f"Tensor inputs {list(contract.as_drawn)} come only with such values as `get_inputs()` draws.")
    optional = (
        (contract.gradients, "Gradients with respect to floating inputs and parameters are checked too, so it must "
         "work under autograd (torch.autograd.Function for native code)."),
        (contract.training, "The module is called in train() mode."),
        (contract.special_values, "NaN, Inf, -0.0 and denormals among the inputs must give the reference's pattern."),
        (
            contract.random,
            "Outputs are random and are compared as distributions. Each call draws anew, from torch's generators or "
            "a seed drawn from them: after the same torch.manual_seed it must repeat, as the reference does.",
        ),
        (contract.deterministic, "Equal inputs must give equal bits every time."),
        (contract.autocast, "It must also agree under torch.autocast with bfloat16."),
        (bool(contract.aliases), "Outputs share storage with inputs exactly where the reference's do."),
    )  # fmt: skip
    return lines + [text for wanted, text in optional if wanted]


def _precision(bits: float) -> str:
    lost = f"{bits:g} bit{'' if bits == 1 else 's'} lost"
    return (
        f"Precision: the error of each output, against the same computation in float64, may be at most {2.0**bits:g} "
        f"times the error of the reference itself ({lost}), in RMS and at the worst element; where the reference is "
        "exact or nearly so, honest rounding in its dtype is the measure. Another order of summation passes where it "
        "is as good as PyTorch's, which adds in many partial sums: one running sum over thousands of elements may "
        "lose more, several accumulators (SIMD lanes, threads) or a wider one do not. Narrower arithmetic than the "
        "reference's own does not pass, unless the factor allows it."
    )


def describe_machine(machine: Machine | None, vector_bits: int = 0) -> list[str]:
    """The measured facts that decide designs, in words; nothing for an unmeasured machine."""
    if machine is None:
        return []
    facts = {fact.name: fact for fact in machine.facts if fact.value is not None}
    about = [f"{name} {value}" for name, value in machine.versions if name in ("torch", "triton", "cuda", "driver")]
    threads = dict(machine.versions).get("threads") if machine.device == "cpu" else None
    if threads:
        cores = facts["count.cores"].value if "count.cores" in facts else None
        where = f" on {cores:.0f} core{'s' if cores > 1 else ''}" if cores else ""
        about.append(f"{threads} threads{where} (OMP_NUM_THREADS={threads})")
    if vector_bits:
        about.append(f"vectors of {vector_bits} bits")
    lines = [", ".join([machine.name, *about])]
    for name, words in SHOWN_FACTS:
        if name in facts:
            lines.append(f"{words}: {_amount(facts[name].value or 0.0, facts[name].unit)}")
    return lines + describe_capacity(machine)


def _amount(value: float, unit: str) -> str:
    if unit == "B":
        return capacity.size(value)
    if unit == "TFLOP/s" and value < 1:
        value, unit = 1e3 * value, "GFLOP/s"
    return (f"{value:.0f} {unit}" if value >= 100 else f"{value:.3g} {unit}").strip()


def describe_attempt(shown: Evidence, most: int = 200) -> str:
    """What a program is and what came of it, in one line of history."""
    note = shortened(shown.candidate.note, most).rstrip(" .:") or f"a program in {SPOKEN[shown.candidate.language]}"
    return f"{note}: {describe_result(shown.outcome)}"


def describe_change(parent: Evidence | None, child: Evidence) -> str:
    """The diff from parent to child and what it did to the time."""
    if parent is None:
        return ""
    lines: list[str] = []
    before, after = dict(parent.candidate.sources), dict(child.candidate.sources)
    for path in sorted(before | after):
        lines += difflib.unified_diff(
            before.get(path, "").splitlines(), after.get(path, "").splitlines(), path, path, lineterm="", n=1
        )
    changed = sum(line[:1] in "+-" for line in lines)
    if changed > REWRITTEN * sum(text.count("\n") for text in [*before.values(), *after.values()]):
        what = "It was written anew."
    else:
        left = len(lines) - LONGEST_DIFF
        rest = f"\n[... {left} more lines]" if left > 0 else ""
        what = "```diff\n" + "\n".join(lines[:LONGEST_DIFF]) + rest + "\n```"
    said = f"{what}\nBefore: {describe_result(parent.outcome)}. After: {describe_result(child.outcome)}."
    if isinstance(parent.outcome, Timed) and isinstance(child.outcome, Timed):
        said += f" That is: {describe_difference(parent.outcome, child.outcome)}."
    return said


def own_frames(detail: str, names: Sequence[str], reason: str = "") -> str:
    """A Python traceback with the frames in these files alone, and how it ends unless ``reason`` says that; any other
    text as it is.

    The frames of the runner, of torch and of a compiler are none of the author's."""
    head, mark, rest = detail.partition(TRACEBACK)
    frames = re.split(r"(?m)^(?=  File \")", rest)
    if not mark or len(frames) < 2:
        return detail
    # The last frame is followed by the exception, which begins in the first column.
    last, *ending = re.split(r"(?m)^(?=\S)", frames[-1], maxsplit=1)
    kept = []
    for frame in [*frames[1:-1], last]:
        found = re.match(r'  File "(?:.*/)?([^/"]+)", line (\d+)', frame)
        if found is not None and found[1] in names:
            kept.append(frame.replace(frame[: found.end()], f'  File "{found[1]}", line {found[2]}', 1))
    if ending and ending[0].partition(":")[2].strip() in reason:
        ending = []
    return "".join([head, *([mark, "\n", *kept] if kept else []), *ending]).strip()


def is_close(fault: Rejected) -> bool:
    """Whether a program failed by a few bits alone: its formula is right, its rounding is not."""
    said = re.search(r"\(([\d.]+) bits lost", fault.reason)
    return said is not None and float(said[1]) < CLOSE_BITS


def cut(text: str) -> str:
    """Head and tail of a long text: errors say what at the top and where at the bottom."""
    if len(text) <= LONGEST_DETAIL:
        return text
    half = LONGEST_DETAIL // 2
    return f"{text[:half]}\n[... {len(text) - 2 * half} characters ...]\n{text[-half:]}"
