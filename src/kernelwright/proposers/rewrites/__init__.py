# SPDX-License-Identifier: Apache-2.0
"""The rewrites proposer: the reference as a term, programs equal to it by stated laws, the cheapest few as PyTorch.

Equal in the reals is not equal in floats: nothing is claimed here, the judge compares with float64.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from kernelwright.candidate import Candidate
from kernelwright.errors import CandidateError
from kernelwright.proposers import Request, Structure
from kernelwright.proposers.embed import embed, torch_candidate
from kernelwright.proposers.rewrites import attention, greedy, saturate, triangles
from kernelwright.proposers.rewrites.cost import Rates, cost, rates, total
from kernelwright.proposers.rewrites.emit import Style, emit
from kernelwright.proposers.rewrites.laws import rules
from kernelwright.proposers.rewrites.terms import Term, numel, outline, walk
from kernelwright.proposers.rewrites.trace import NotRewritable, Program, trace
from kernelwright.proposers.templates import TemplatesProposer
from kernelwright.tuning import Space

KEPT = 3
"""Programs proposed per task."""
WORTH = 0.98
"""A program must be expected to take at most this share of the reference's time."""
NEAR = 1.25
"""Programs further from the cheapest than this are not proposed: the cost model is not that wrong."""
HEAVY = 0.05
"""Share of a program's expected time from which an operator counts when programs are told apart."""
SECONDS = 12.0
"""Wall clock for both engines; a safety net, their own limits stop nearly all searches first. A run waits 15 s at the
least for a proposer, tracing included."""

SIGNED = """
import inspect

{name}.forward.__signature__ = inspect.signature({entry}.forward)
"""
"""By which names a rewritten program takes its inputs: its forward has ``*args``, and get_inputs may give a dict."""
TEMPLATED = "rewrite.0+"
"""Prefix of structures in which the templates proposer wrote the best rewritten program."""

__all__ = ["Rewrite", "RewritesProposer", "rewritten"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Rewrite:
    """One program that equals the reference in the reals."""

    root: Term
    seconds: float
    """Expected, by the cost model."""
    share: float
    """``seconds`` over the reference's expected seconds."""


class RewritesProposer:
    """Proposes up to ``KEPT`` rewritten programs, each as plain PyTorch and through torch.compile."""

    name = "rewrites"

    def __init__(self) -> None:
        self._templates = TemplatesProposer()
        self._known: dict[tuple[str, str], tuple[Program, list[Rewrite]] | str] = {}

    def structures(self, request: Request) -> list[Structure]:
        """Two structures per rewritten program; none when no law makes the reference cheaper."""
        found = self._found(request)
        if isinstance(found, str):
            request.say(found)
            return []
        algebra = [
            Structure(
                name=f"rewrite.{index}{suffix}",
                note=_note(rewrite, how),
                language="torch",
                space=Space(parameters=(), constraints=()),
                order=rewrite.share * factor,
            )
            for index, rewrite in enumerate(found[1])
            for suffix, how, factor in (("", "", 1.0), (".compile", ", through torch.compile", 0.95))
        ]
        best = found[1][0] if found[1] else None
        return algebra if best is None else [*algebra, *self._templated(request, best)]

    def _templated(self, request: Request, best: Rewrite) -> list[Structure]:
        """The best rewritten program handed to ``templates``: its structures, tunables included."""
        inner = self._templates.structures(self._rewritten_request(request))
        return [
            replace(
                structure,
                name=f"{TEMPLATED}{structure.name}",
                note=f"{_note(best, '')}; {structure.note}",
                order=best.share * structure.order,
            )
            for structure in inner
        ]

    def _rewritten_request(self, request: Request) -> Request:
        """The request about the best rewritten program as if that were the reference.

        What the templates write then falls back to the rewritten module, and that to the reference.
        """
        found = self._found(request)
        assert not isinstance(found, str) and found[1]
        summary = _note(found[1][0], "")
        style = Style(entry=request.task.entry, summary=summary, device="cuda", compiled=False, name="Rewritten")
        body = emit(found[0], found[1][0].root, style) + SIGNED.format(name=style.name, entry=request.task.entry)
        reference = embed(request.task, body, header=summary)
        return replace(request, task=replace(request.task, reference=reference, entry=style.name))

    def render(self, request: Request, structure: str, values: Mapping[str, int | float | str | bool]) -> Candidate:
        """The candidate of a structure. ``CandidateError`` for an unknown name. Only templates have ``values``."""
        found = self._found(request)
        if structure.startswith(TEMPLATED) and not isinstance(found, str) and found[1]:
            inner = self._templates.render(self._rewritten_request(request), structure.removeprefix(TEMPLATED), values)
            note = f"{_note(found[1][0], '')}; {inner.note}"
            return replace(inner, task=request.task.digest(), proposer=f"rewrites.{structure}", note=note)
        names = [] if isinstance(found, str) else [f"rewrite.{index}" for index in range(len(found[1]))]
        base, _, how = structure.partition(".compile")
        if isinstance(found, str) or base not in names or how:
            raise CandidateError("The rewrites proposer has no such structure.", structure, ", ".join(names))
        program, rewrite, compiled = found[0], found[1][names.index(base)], structure != base
        note = _note(rewrite, ", through torch.compile" if compiled else "")
        style = Style(entry=request.task.entry, summary=note, device=request.device, compiled=compiled)
        body = _source(request, program, rewrite, style)
        source = embed(request.task, body, header=note)
        return torch_candidate(request.task, source, proposer=f"rewrites.{structure}", note=note)

    def _found(self, request: Request) -> tuple[Program, list[Rewrite]] | str:
        """The reference and what equals it, or why it cannot be rewritten."""
        fingerprint = request.machine.fingerprint if request.machine else ""
        key = (request.task.digest(), request.device + fingerprint)
        if key not in self._known:
            try:
                program = trace(request.task)
            except NotRewritable as reason:
                self._known[key] = f"no laws are tried: {reason}"
            else:
                self._known[key] = program, rewritten(program, rates(request.device, request.machine))
        return self._known[key]


def _source(request: Request, program: Program, rewrite: Rewrite, style: Style) -> str:
    """``ModelNew`` for any batch size where the same text also answers the reference traced with another one."""

    batch = program.batch()
    if batch is not None and batch > 1:
        sizes = {size for term in walk((program.root,)) for size in term.shape}
        other = next(size for size in range(batch + 1, batch + 2 + len(sizes)) if size not in sizes)
        try:
            second = trace(request.task, batch=other)
        except (NotRewritable, RuntimeError, ValueError, TypeError, AssertionError):
            second = None  # the reference insists on its batch size
        wanted = emit(program, rewrite.root, style, batch=batch)
        roots = [] if second is None else rewritten(second, rates(request.device, request.machine))
        if second is not None and any(emit(second, found.root, style, batch=other) == wanted for found in roots):
            return wanted
    return emit(program, rewrite.root, style)


def rewritten(program: Program, at: Rates) -> list[Rewrite]:
    """The cheapest few programs equal to ``program``, cheapest first, each clearly cheaper than it.

    Equality saturation where egglog is installed, and a beam search over the same rules in any case.
    """
    table = rules()
    pool = [
        *greedy.search(program.root, table, at, seconds=SECONDS / 2),
        *saturate.search(program.root, table, at, seconds=SECONDS / 2),
    ]
    for engine in (triangles.cut, attention.cut):
        pool += [made for root in (program.root, *pool[:1]) for made in engine(root)]
    reference = total(program.root, at)
    ranked = sorted({root: total(root, at) for root in pool}.items(), key=lambda entry: (entry[1], outline(entry[0])))
    chosen: dict[tuple[object, ...], Rewrite] = {}
    for root, seconds in ranked:
        if len(chosen) == KEPT or seconds > min(WORTH * reference, NEAR * ranked[0][1]):
            break
        chosen.setdefault(_work(root, at), Rewrite(root=root, seconds=seconds, share=seconds / reference))
    return [*chosen.values()]


def _work(root: Term, at: Rates) -> tuple[object, ...]:
    """What most of a program's time goes into, whatever the spelling of the rest."""
    seconds = {term: cost(term, at) for term in walk((root,))}
    heavy = [term for term, spent in seconds.items() if spent >= HEAVY * sum(seconds.values())]
    return tuple(sorted((term.op, numel(term.shape), *sorted(numel(arg.shape) for arg in term.args)) for term in heavy))


def _note(rewrite: Rewrite, how: str) -> str:
    return f"rewritten by algebra, expected {1 / rewrite.share:.3g}x the reference's speed{how}"
