# SPDX-License-Identifier: Apache-2.0
"""Prompts rendered from nouns. Rules come from the Contract the judge enforces, numbers from measurements."""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from kernelwright import wire
from kernelwright.candidate import Candidate
from kernelwright.machine import Machine
from kernelwright.task import Contract
from kernelwright.trial import Outcome, Rejected

FOLDER = Path(__file__).parent.parent / "prompts"
FENCES = {"py": "python", "cpp": "cpp", "cu": "cuda", "h": "cpp", "cuh": "cuda", "hpp": "cpp"}
SHOWN_FACTS = (
    "bandwidth.copy.dram_GBps",
    "peak.simd.float32_TFLOPs",
    "peak.gemm.float32_TFLOPs",
    "peak.gemm.bfloat16_TFLOPs",
    "cache.last_level_bytes",
    "latency.launch_us",
)
LONGEST_DETAIL = 3000


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
        f"Precision: each output's error against a float64 oracle may exceed the reference's own error by at most "
        f"{contract.bits_lost:g} bit(s), in RMS and at the maximum.",
    ]
    if contract.scales != (1.0,):
        factors = ", ".join(f"{scale:g}" for scale in contract.scales)
        lines.append(f"It must hold with floating inputs scaled by {factors}.")
    if set(contract.layouts) - {"contiguous"}:
        lines.append(f"Inputs may be {', '.join(contract.layouts)}.")
    lines.append(
        "Weights never change after construction."
        if contract.frozen_parameters
        else "Weights may change between calls: nothing derived from them may be kept."
    )
    if contract.mutates:
        lines.append(f"Tensor inputs {list(contract.mutates)} are written to as the reference does; no others.")
    else:
        lines.append("Inputs must be left unchanged.")
    optional = (
        (contract.gradients, "Gradients with respect to inputs and parameters are checked too."),
        (contract.training, "The module is called in train() mode."),
        (contract.special_values, "NaN, Inf, -0.0 and denormals among the inputs must give the reference's pattern."),
        (contract.random, "Outputs are random and are compared as distributions; each call must draw anew."),
        (contract.deterministic, "Equal inputs must give equal bits every time."),
        (contract.autocast, "It must also agree under torch.autocast with bfloat16."),
        (bool(contract.aliases), "Outputs share storage with inputs exactly where the reference's do."),
    )
    return lines + [text for wanted, text in optional if wanted]


def describe_machine(machine: Machine | None) -> list[str]:
    """The handful of measured facts that decide designs; nothing for an unmeasured machine."""
    if machine is None:
        return []
    facts = {fact.name: fact for fact in machine.facts}
    shown = [facts[name] for name in SHOWN_FACTS if name in facts and facts[name].value is not None]
    return [machine.name, *(f"{fact.name}: {fact.value:.4g} {fact.unit}" for fact in shown)]


def describe_time(outcome: Outcome | None) -> str:
    """``812 us a call (1.94x the best baseline; bound 610 us)``."""
    if outcome is None or isinstance(outcome, Rejected):
        return "an unknown time"
    text = f"{outcome.timing.median_us:.4g} us a call, {outcome.speedup:.4g}x the {outcome.best_baseline} baseline"
    if outcome.bound_us:
        text += f"; the machine allows {outcome.bound_us:.4g} us"
    return text


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
    diff = "\n".join(lines[:120])
    return f"```diff\n{diff}\n```\nBefore: {describe_time(parent.outcome)}. After: {describe_time(child.outcome)}."


def cut(text: str) -> str:
    """Head and tail of a long text: errors say what at the top and where at the bottom."""
    if len(text) <= LONGEST_DETAIL:
        return text
    half = LONGEST_DETAIL // 2
    return f"{text[:half]}\n[... {len(text) - 2 * half} characters ...]\n{text[-half:]}"


def labelled(programs: Sequence[Evidence]) -> list[tuple[str, str, str]]:
    """(label with its time, path, text) of each source of each program."""
    return [
        (f"Program {number}: {describe_time(shown.outcome)}.", path, text)
        for number, shown in enumerate(programs, 1)
        for path, text in shown.candidate.sources
    ]
