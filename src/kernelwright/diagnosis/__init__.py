# SPDX-License-Identifier: Apache-2.0
"""From measured and compiled facts of one program to one page: the gap, the limiter, the evidence, the next edits.

Rules are data (``rules.toml``). A rule speaks only when every fact it names was measured or counted, and only about
the program whose facts they are.
"""

from __future__ import annotations

import ast
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from kernelwright.errors import BadCommand

FILE = Path(__file__).with_name("rules.toml")
MOST_EDITS = 3
NODES = (
    ast.Expression, ast.BoolOp, ast.And, ast.Or, ast.UnaryOp, ast.Not, ast.USub, ast.BinOp, ast.Add, ast.Sub,
    ast.Mult, ast.Div, ast.Compare, ast.Lt, ast.LtE, ast.Gt, ast.GtE, ast.Eq, ast.NotEq, ast.IfExp, ast.Call,
    ast.Constant, ast.Name, ast.Load,
)  # fmt: skip
NEAR = 0.8
"""Share of the bound from which a program without findings counts as held by the bound's own limiter."""
AT_BOUND = 0.87
"""Share of the bound from which the bound's own limiter holds a program, whatever else is true of it (1 / 1.15)."""
MINOR = 0.1
UNNAMED = "not named by the facts measured here"
UNSEEN = {
    "busy_threads": "idle threads", "page_faults": "page faults", "operators": "PyTorch operators",
    "packed_instructions": "scalar code", "cache_misses_per_thousand": "cache misses",
    "instructions_per_cycle": "stalls on earlier results", "branch_misses_per_thousand": "mispredicted branches",
}  # fmt: skip
"""Facts of CPU programs without which a rule is silent, and what it would have looked for, in words."""
STRIDES = "strides (gather instructions are counted, single elements far apart are not)"
TELLING = (
    "What would tell: performance counters, where a machine gives them; here, a program that changes one part alone "
    "(a pass over the data less, more independent sums, a division less), timed beside this one."
)
FUNCTIONS = {"min": min, "max": max, "abs": abs}


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """One limiter, when it is at work, how much time it may cost, what shows it and what to do about it."""

    name: str
    limiter: str
    device: str
    """``cpu``, ``cuda`` or ``any``."""
    when: str
    share: str
    """Share of the time, 0 to 1, that removing this limiter could save, by the stated model."""
    model: str
    """The model behind ``share``, in words."""
    evidence: str
    """Format string over the facts."""
    edit: str
    unless: tuple[str, ...] = ()
    """Causes of which this limiter would be a symptom; one with facts that were not measured counts as absent."""
    last: bool = False
    """Asked only where no other rule names a share of ``MINOR`` or more of a call: it knows the whole alone."""
    within: str = "call"
    """``call``: the share is of the whole call; ``kernel``: of the time the device is busy; ``job``: of many calls."""

    def facts(self) -> set[str]:
        """Every fact the rule cannot speak without."""
        return _names(self.when) | _names(self.share)


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """A rule that spoke."""

    rule: str
    limiter: str
    share: float
    """Of the time, 0 to 1: by the rule's model, and no more than lies above what the memory allows."""
    evidence: str
    edit: str
    model: str

    @property
    def expected_gain(self) -> float:
        """Ratio of times before and after, if the share were saved in full."""
        return 1.0 / max(1.0 - self.share, 0.02)


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """One fact of the parent's profile and of this one's."""

    what: str
    before: float
    after: float
    unit: str = ""

    def text(self) -> str:
        """``registers a thread 64 -> 40 (-38 %)``."""
        ratio = f" ({self.after / self.before - 1:+.0%})" if self.before else ""
        return f"{self.what} {self.before:.4g} -> {self.after:.4g}{self.unit}{ratio}"


COMPARED = (
    ("time_us", "time", " us"), ("busy_us", "device time", " us"), ("host_us", "host time", " us"),
    ("kernels", "kernels a call", ""), ("registers", "registers a thread", ""),
    ("shared_bytes", "shared memory a block", " B"), ("occupancy", "occupancy", ""),
    ("spill_bytes", "spilled a thread", " B"), ("blocks", "blocks", ""), ("device_bytes", "device traffic", " B"),
    ("load_bytes", "bytes a load", " B"), ("tensor_instructions", "tensor instructions", ""),
    ("instructions", "instructions", ""), ("memory_throughput", "memory throughput", ""),
    ("packed_instructions", "packed instructions", ""), ("widest_bits", "vector width", " bits"),
    ("busy_threads", "busy cores", ""), ("page_faults", "page faults", ""), ("operators", "operators a call", ""),
    ("energy_mJ", "energy a call", " mJ"),
)  # fmt: skip
NOTABLE = 0.05
"""Facts that differ by less than this are left out of the comparison."""


def changes(parent: Mapping[str, float], facts: Mapping[str, float]) -> tuple[Change, ...]:
    """What differs between two profiles by more than ``NOTABLE``, the time always, in a fixed order."""
    found = []
    for name, what, unit in COMPARED:
        if name not in parent or name not in facts:
            continue
        before, after = parent[name], facts[name]
        if name == "time_us" or abs(after - before) > NOTABLE * max(abs(before), abs(after)):
            found.append(Change(what=what, before=before, after=after, unit=unit))
    return tuple(found)


@dataclass(frozen=True, slots=True, kw_only=True)
class Diagnosis:
    """One page about one program."""

    time_us: float
    bound_us: float | None
    limiter: str
    findings: tuple[Finding, ...]
    unknown: tuple[str, ...]
    """Facts that no tool gave here, so that rules naming them were silent."""
    since: tuple[Change, ...] = ()
    """What changed since the parent, where one was profiled too."""
    cleared: tuple[str, ...] = ()
    """Rules that had every fact they ask for and found too little, where no limiter is named. By their own names: each
    saw what it counts and no more (gathers are not all strides)."""

    @property
    def gap_us(self) -> float | None:
        """Time above the unavoidable bound."""
        return None if self.bound_us is None else self.time_us - self.bound_us

    def text(self) -> str:
        """The page, for a person or a model."""
        lines = [f"Time: {self.time_us:.4g} us a call."]
        if self.bound_us is not None and self.gap_us is not None:
            reached = 100 * self.bound_us / self.time_us
            speed = f"{reached:.0f} % of the speed that it allows"
            lines.append(f"Bound: {self.bound_us:.4g} us; gap {self.gap_us:.4g} us: the program reaches {speed}.")
        lines.append(f"Limiter: {self.limiter}.")
        if self.cleared:
            lines.append(f"Looked for, and none or too little found: {', '.join(self.cleared)}.")
        unseen = [words for name, words in UNSEEN.items() if name in self.unknown]
        if self.limiter == UNNAMED and unseen:
            lines.append(f"Not looked at, for want of a measurement: {', '.join([*unseen, STRIDES])}. {TELLING}")
        lines += [f"Evidence: {found.evidence}" for found in self.findings]
        if self.since:
            lines.append(f"Since the parent: {'; '.join(change.text() for change in self.since)}.")
        for number, found in enumerate(self.findings[:MOST_EDITS], 1):
            lines.append(f"Edit {number}: {found.edit} Expected gain up to {found.expected_gain:.2f}x ({found.model}).")
        if self.unknown:
            lines.append(f"Not measured here: {', '.join(self.unknown[:12])}.")
        return "\n".join(lines) + "\n"


def load_rules(path: Path = FILE) -> tuple[Rule, ...]:
    """Every rule. Raises ``BadCommand`` naming a rule whose expressions are not arithmetic over facts."""
    rows = tomllib.loads(path.read_text(encoding="utf-8"))["rule"]
    rules = tuple(Rule(**{"device": "any", **row, "unless": tuple(row.get("unless", ()))}) for row in rows)
    for rule in rules:
        for text in (rule.when, rule.share, *rule.unless):
            odd = [type(n).__name__ for n in ast.walk(ast.parse(text, mode="eval")) if not isinstance(n, NODES)]
            if odd:
                raise BadCommand(f"Rule {rule.name} is not arithmetic over facts.", got=", ".join(odd), expected=text)
    return rules


def diagnose(
    facts: Mapping[str, float],
    *,
    device: str,
    time_us: float,
    bound_us: float | None,
    limiter: str = "memory",
    rules: Sequence[Rule] | None = None,
    parent: Mapping[str, float] | None = None,
) -> Diagnosis:
    """The findings of every rule that applies, largest share first. ``limiter`` names the bound's own limiter: what
    holds the program when no rule finds anything else. ``parent``: the facts of the program this one was made from."""
    kind = device.partition(":")[0]
    known = dict(facts) | {"time_us": time_us}
    if bound_us is not None:
        known |= {"bound_us": bound_us, "bound_fraction": bound_us / time_us}
    # What goes on inside kernels can save no more than the time they run, and nothing more than lies above the least
    # time in which memory moves this many bytes.
    busy = min(1.0, known["busy_us"] / time_us) if kind == "cuda" and "busy_us" in known and time_us > 0 else 1.0
    most = 1.0 - min(1.0, known.get("reach_us", 0.0) / time_us) if time_us > 0 else 1.0
    findings: list[tuple[float, Finding]] = []
    of_calls: list[tuple[float, float, Finding]] = []
    silent: set[str] = set()
    cleared: list[str] = []
    for rule in sorted(rules if rules is not None else load_rules(), key=lambda rule: rule.last):
        if rule.device not in ("any", kind) or (rule.last and any(share >= MINOR for share, *_ in of_calls)):
            continue
        missing = rule.facts() - known.keys()
        if missing:
            silent |= missing
        elif not _value(rule.when, known):
            cleared.append(rule.name.removeprefix("cpu-").replace("-", " "))
        elif not _caused(rule, known):
            share = min(0.98, max(0.0, _value(rule.share, known))) * (busy if rule.within == "kernel" else 1.0)
            finding = _finding(rule, share if rule.within == "job" else min(share, most), known)
            findings.append((share, finding))
            if rule.within != "job":
                of_calls.append((finding.share, share, finding))
    findings.sort(key=lambda pair: (-pair[1].share, -pair[0], pair[1].rule))
    named = _limiter([pair[1] for pair in findings], of_calls, limiter, known.get("bound_fraction"))
    return Diagnosis(
        time_us=time_us,
        bound_us=bound_us,
        limiter=named,
        cleared=tuple(dict.fromkeys(cleared)) if named == UNNAMED else (),
        findings=tuple(found for _, found in findings),
        unknown=tuple(sorted(silent)),
        since=changes(parent, known) if parent else (),
    )


def _limiter(
    findings: Sequence[Finding], of_calls: Sequence[tuple[float, float, Finding]], bound: str, reached: float | None
) -> str:
    """What holds the program: at its bound the bound's own limiter; else what costs a call most; else, not far from
    it, the bound's own again; else what costs a job most."""
    if reached is not None and reached >= AT_BOUND:
        return bound
    major = [one for one in of_calls if one[0] >= MINOR or one[1] >= MINOR]
    if major:
        return max(major, key=lambda one: one[:2])[2].limiter
    if reached is not None and reached > NEAR:
        return bound
    if findings:
        return findings[0].limiter
    return bound if reached is None else UNNAMED


def _finding(rule: Rule, share: float, known: Mapping[str, float]) -> Finding:
    evidence = rule.evidence.format_map(_Shown(known))
    return Finding(
        rule=rule.name, limiter=rule.limiter, share=share, evidence=evidence, edit=rule.edit, model=rule.model
    )


def _caused(rule: Rule, known: Mapping[str, float]) -> bool:
    return any(_names(text) <= known.keys() and _value(text, known) for text in rule.unless)


def _names(text: str) -> set[str]:
    """The facts an expression names."""
    return {n.id for n in ast.walk(ast.parse(text, mode="eval")) if isinstance(n, ast.Name)} - set(FUNCTIONS)


class _Shown(dict[str, float]):
    """Facts for a format string; one that was not measured shows as such."""

    def __missing__(self, key: str) -> float:
        return float("nan")


def _value(text: str, facts: Mapping[str, float]) -> float:
    code = compile(ast.parse(text, mode="eval"), text, "eval")
    try:
        return float(eval(code, {"__builtins__": {}}, {**FUNCTIONS, **facts}))
    except ZeroDivisionError:
        return 0.0
