# SPDX-License-Identifier: Apache-2.0
"""The verb ``judge`` of the command line: one candidate's verdict, or the admission of a task, as lines or JSON."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Annotated, Any

import typer

import kernelwright
from kernelwright import settings
from kernelwright.errors import BadCommand

REJECTED = 3
"""Exit code of a verdict that refuses the candidate, so that ``kernelwright judge ... && deploy`` does not deploy."""
CANDIDATE = (
    'The replacement: .py with ModelNew, or .cu or .cpp with one extern "C" void f(float* out, const float* x, '
    "int64_t n), n the elements of out (x_d0: a size of x; README.md has the rule)."
)
MEASURED_BESIDES = ("server", "cold", "memory", "warm")
Contiguous = Annotated[bool, typer.Option("--contiguous", help="Inputs always are: no strided ones are tried.")]
STEPS = ("strided", "transposed", "padded", "expanded", "gap")
"""What reasons call inputs that are not contiguous."""
BY_STEPS = (
    "next: read inputs by their strides, or call .contiguous() on them; for contiguous inputs alone: --contiguous"
)


def register(
    app: typer.Typer,
    guarded: Callable[..., Any],
    show: Callable[..., None],
    teller: Callable[[bool], Callable[[str], None]],
) -> None:
    """Add the verb to ``app``; ``guarded`` turns errors into exit codes, ``show`` prints, ``teller`` makes what says
    what is waited for, or nothing beside JSON."""

    @app.command()
    @guarded
    def judge(
        candidate: Annotated[str | None, typer.Argument(help=CANDIDATE)] = None,
        task: Annotated[str | None, typer.Option(help="The task it must replace.")] = None,
        admit: Annotated[str | None, typer.Option(help="Instead: show which wrong programs this task rejects.")] = None,
        sanitize: Annotated[bool, typer.Option("--sanitize", help="Look for memory errors and races too.")] = False,
        also: Annotated[str, typer.Option(help="Measure besides: of server,cold,memory,warm.")] = "",
        gradients: Annotated[bool, typer.Option("--gradients", help="Gradients must be right too.")] = False,
        contiguous: Contiguous = False,
        device: Annotated[str | None, typer.Option(help="cpu or cuda:N.")] = None,
        as_json: Annotated[bool, typer.Option("--json", help="One JSON object on standard output only.")] = False,
    ) -> None:
        """Build, verify and measure one candidate, as a finalist is. Exit code 3: it is rejected."""
        if admit is not None:
            reply = kernelwright.admit(admit, device=device, gradients=gradients, say=teller(as_json))
            show(reply, as_json, lambda: admission_lines(reply))
            return
        if candidate is None or task is None:
            raise BadCommand("Nothing to judge.", expected="kernelwright judge CANDIDATE --task FILE, or --admit TASK")
        wanted = settings.names(also)
        say = teller(as_json)
        trial = kernelwright.judge(
            candidate,
            task,
            device=device,
            sanitize=sanitize,
            also=wanted,
            gradients=gradients,
            contiguous=contiguous,
            say=say,
        )
        show(kernelwright.to_data(trial), as_json, lambda: verdict_lines(trial))
        if isinstance(trial.outcome, kernelwright.Rejected):
            raise typer.Exit(REJECTED)


def verdict_lines(trial: kernelwright.Trial) -> list[str]:
    """A verdict for a person."""
    outcome = trial.outcome
    if isinstance(outcome, kernelwright.Rejected):
        more = [outcome.detail] if outcome.detail.strip() not in outcome.reason else []
        next_ = [BY_STEPS] if any(f": {name}" in outcome.reason for name in STEPS) else []
        return [f"rejected at {outcome.stage}: {outcome.reason}", *more, *next_]
    rows = [
        (b.name, f"{b.timing.median_us:.1f}", f"{b.speedup:.2f}x", f"{b.speedup_low:.2f} to {b.speedup_high:.2f}")
        for b in outcome.baselines
    ]
    proof = outcome.proof
    return [
        f"verified on {len(proof.cases)} cases, {proof.checked_calls} calls: {proof.bits_lost:.2f} bits lost "
        f"against {proof.oracle}",
        f"{outcome.timing.median_us:.1f} us ({outcome.timing.low_us:.1f} to {outcome.timing.high_us:.1f}), "
        f"{outcome.speedup:.2f}x the best baseline ({outcome.best_baseline})",
        *table(("baseline", "us", "speedup", "95 % interval"), rows),
        *(line for what in MEASURED_BESIDES for line in besides_lines(what, outcome.profile)),
        *(f"note: {note}" for note in proof.notes),
        *(f"condition: {condition}" for condition in outcome.conditions),
    ]


def besides_lines(what: str, facts: Sequence[tuple[str, str]]) -> list[str]:
    """One table of what was measured besides: a row for each program, a column for each number; or nothing."""
    found: dict[str, dict[str, str]] = {}
    for name, value in facts:
        first, _, rest = name.partition(".")
        if first == what:
            program, _, number = rest.rpartition(".") if "." in rest else (rest, "", "")
            found.setdefault(program, {})[number] = value
    columns = list(dict.fromkeys(number for row in found.values() for number in row if number))
    rows = [(name, *(row.get(column, row.get("", "")) for column in columns)) for name, row in found.items()]
    return table((what, *columns), rows)


def admission_lines(reply: dict[str, Any]) -> list[str]:
    """An admission for a person."""
    decoys = [item if isinstance(item, dict) else {"name": item[0], "by": item[1]} for item in reply.get("decoys", ())]
    rows = [tuple(str(value) for value in item.values()) for item in decoys]
    return ["admitted: every known-wrong program is rejected", *table(("decoy", "rejected by"), rows)]


def table(headings: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> list[str]:
    """Aligned columns under their headings; nothing where there are no rows."""
    if not rows:
        return []
    widths = [max(len(row[i]) for row in [headings, *rows] if i < len(row)) for i in range(len(headings))]
    lines = [headings, tuple("-" * width for width in widths), *rows]
    return ["  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=False)).rstrip() for line in lines]
