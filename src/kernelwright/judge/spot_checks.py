# SPDX-License-Identifier: Apache-2.0
"""Which timed calls are compared and with what: a few with the oracle, chosen from all rounds; the others with eager.

The few are a reservoir sample (Vitter 1985, algorithm R): after n rounds every round, the last as likely as the
first, has the same chance of holding one of them, and no program can know which before the race is over. They are
copied when chosen and compared when the race has ended.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

import torch

from kernelwright.judge import numerics, together
from kernelwright.judge.buffers import Buffers
from kernelwright.judge.by_chance import ByChance
from kernelwright.trial import CaseResult, Rejected

SUSPICION = 2.0
"""A timed call is compared in full whose distance from eager is this many times the largest honest one seen."""
SAMPLE = 1 << 18
"""Elements of a call compared with eager's when the level is coarse."""
FEW = 1 / 16
"""Share of exact values, or of those flags that are fewer, that may differ from eager's and still tell an answer from a
wrong one (rounded ties). Of 0.2 % that were true all were left out by one that had half of them otherwise at first."""
BEYOND, AGAIN = 16, 1 / 8
"""So many calls beyond all measure, yet right, are compared in full; then each with this chance. A wrong call that
changes a median has many like it: of 32, one is compared with a chance of 0.986 in each process."""

_NONE, _BEYOND = (0.0,) * 3, (math.inf,) * 3

Leaves = list[torch.Tensor]
Call = tuple[Leaves, Leaves, Leaves, Leaves]
"""Of a call its inputs, the answer, the inputs afterwards and eager's answer."""
Check = Callable[[Leaves, Any, Leaves, Leaves], CaseResult]
"""(inputs, state, outputs, inputs afterwards) to the verdict on one call."""
MEASURES, ALIKE, EACH = 3, 64, 8
"""Distances per output; what part of a rounding all may be off before anything was learned, and how many of these each
element may, on average."""
Distances = list[float]
"""Per output: RMS(ours - theirs) / RMS(theirs), then max(ours - theirs) / RMS(theirs), then the mean of what each
element is off, in parts of itself and at most all of it: where outputs span many orders of magnitude the first two say
nothing of the small ones (95 % of the rows left out passed). Of exact values the share that differs, the largest
difference, the share. inf: beyond all measure (see ``distances``)."""


class Mismatch(Exception):
    """A timed call of the candidate was wrong, that of these inputs, with weights a window began with."""

    def __init__(self, result: CaseResult, leaves: Leaves, state: Any) -> None:
        super().__init__(result.detail)
        self.result, self.leaves, self.state = result, leaves, state

    def rejected(self) -> Rejected:
        """The refusal."""
        reason = f"a timed call was wrong: {self.result.name}: {self.result.detail}"
        return Rejected(stage="time", reason=reason[:600], detail=self.result.detail)


@dataclass(slots=True)
class Suspect:
    """One program whose timed calls are compared."""

    buffers: Buffers
    check: Check
    on_trial: bool
    """The candidate: a wrong call of it ends the race. A baseline's is only recorded."""
    checks: list[CaseResult] = field(default_factory=list)
    sampled: int = 0
    """Calls compared with eager's own outputs only."""
    chance: ByChance | None = None
    """What the candidate may miss by chance."""

    def judged(self, leaves: Leaves, state: Any, outputs: Leaves, inputs: Leaves) -> CaseResult:
        """Compare one call in full. Raises Mismatch for a wrong one of the candidate."""
        result = self.spared(self.check(leaves, state, outputs, inputs))
        self.checks.append(result)
        if self.on_trial and not result.passed:
            raise Mismatch(result, leaves, state)
        return result

    def spared(self, result: CaseResult) -> CaseResult:
        """The result, or that it passed after all."""
        return result if self.chance is None else self.chance.passed(result)


@dataclass(frozen=True, slots=True)
class _Kept:
    """One chosen call: what it was given, and per program what it left behind."""

    leaves: Leaves
    state: Any
    answers: list[tuple[Leaves, Leaves]]
    eager: Leaves
    """Eager's answer, where somebody is to be told."""


@dataclass(slots=True)
class SpotChecks:
    """The checks of one race. ``suspects``: eager first, whose answers are the measure; the candidate last."""

    suspects: Sequence[Suspect]
    budget: int
    """Calls of the candidate compared in full."""
    thorough: bool
    """Compare every element of every other call with eager's; else a sample of one call per round."""
    random_outputs: bool
    """No distance says anything, so two calls of every round are compared in full."""
    mutates: frozenset[int]
    """Inputs that calls write to."""
    dice: random.Random
    tolerated: Distances
    """Largest distances from eager among calls that passed in full, per output."""
    of_baselines: bool = True
    """One call of each baseline is compared in full too."""
    indices: Sequence[tuple[int, int]] = ()
    """(output, input): whole numbers that point into an input, where ties may fall either way."""
    tell: Callable[[Leaves, Any, Leaves], None] | None = None
    """Hears what the eager program answered to a call (inputs, state, outputs) before that is compared in full: where a
    call is dear, so that nobody makes it once more."""
    _beyond: int = 0
    """Calls so far that lay beyond all measure."""
    _kept: list[_Kept] = field(default_factory=list)
    _rounds: int = 0
    _stacked: tuple[Sequence[Leaves], list[torch.Tensor]] | None = None
    """Values of a round, and the same stacked."""

    def look(self, values: Sequence[Leaves], state: Any) -> None:
        """After a round: keep a call of it perhaps, and compare the candidate's calls. Raises Mismatch."""
        self._choose(values, state)
        candidate = self.suspects[-1]
        if self.random_outputs:
            for call in self.dice.sample(range(len(values)), min(2, len(values))):  # two: they must not agree
                self._full(candidate, values, call, state)
            return
        calls = range(len(values)) if self.thorough else [self.dice.randrange(len(values))]
        near = self._near(values)
        for call in calls:
            if call in near:
                candidate.sampled += 1
                continue
            sample = None if self.thorough else self.dice.getrandbits(30)
            seen = self._seen(candidate, values[call], call, sample)
            theirs = self.suspects[0].buffers.answers(call)
            if self._far(seen, theirs) or self._changed(candidate, values[call], call, sample):
                self._full(candidate, values, call, state)
            elif all(map(math.isfinite, seen)):
                candidate.sampled += 1
            elif self._chosen():
                self._full(candidate, values, call, state)

    def stacks_of(self, values: Sequence[Leaves]) -> list[torch.Tensor]:
        """``together.stacked``, remembered: all programs of a round are given the same values."""
        if self._stacked is None or self._stacked[0] is not values:
            self._stacked = values, together.stacked(values)
        return self._stacked[1]

    def _near(self, values: Sequence[Leaves]) -> frozenset[int]:
        """Calls that a look at all at once finds as near to eager's as honest ones are, inputs unchanged; the others
        are looked at one by one."""
        mine, eager = self.suspects[-1].buffers, self.suspects[0].buffers
        if not self.thorough or self.mutates or self.indices or not together.fits(mine, values):
            return frozenset()
        stacks = self.stacks_of(values)
        written = together.changed(mine, stacks)
        found = together.distances(mine, eager, len(values))
        theirs = eager.answers(0)
        return frozenset(
            call
            for call, seen in enumerate(found)
            if not written[call] and all(map(math.isfinite, seen)) and not self._far(seen, theirs)
        )

    def conclude(self) -> None:
        """After the race: compare in full what was kept. Raises Mismatch."""
        for number, kept in enumerate(self._kept):
            for suspect, (outputs, inputs) in zip(self.suspects[1:], kept.answers, strict=True):
                if outputs and (suspect.on_trial or number == 0):
                    if self.tell is not None:
                        self.tell(kept.leaves, kept.state, kept.eager)
                    suspect.judged(kept.leaves, kept.state, outputs, inputs)
        self._kept.clear()

    def _choose(self, values: Sequence[Leaves], state: Any) -> None:
        self._rounds += 1
        slot = len(self._kept) if len(self._kept) < self.budget else self.dice.randrange(self._rounds)
        if slot >= self.budget:
            return
        call = self.dice.randrange(len(values))
        answers = []
        for suspect in self.suspects[1:]:
            # Where results are random ``look`` compares each round's in full, and one seen twice would look repeated.
            wanted = not self.random_outputs if suspect.on_trial else slot == 0 and self.of_baselines
            buffers = suspect.buffers
            after = _unlike(buffers.inputs[call], values[call]) if wanted else []
            answers.append((_copies(buffers.answers(call)) if wanted else [], after))
        eager = _copies(self.suspects[0].buffers.answers(call)) if self.tell is not None else []
        self._kept[slot : slot + 1] = [_Kept(values[call], state, answers, eager)]

    def _full(self, suspect: Suspect, values: Sequence[Leaves], call: int, state: Any) -> None:
        outputs, inputs = suspect.buffers.answers(call), suspect.buffers.inputs[call]
        result = suspect.judged(values[call], state, list(outputs), list(inputs))
        if not self.random_outputs and not result.detail:
            self.tolerated = learned(self._seen(suspect, values[call], call, None), self.tolerated)

    def _seen(self, suspect: Suspect, leaves: Leaves, call: int, sample: int | None) -> Distances:
        """How far a call's answers lie from eager's."""
        ours, theirs = suspect.buffers.answers(call), self.suspects[0].buffers.answers(call)
        pointed = {output: leaves[source] for output, source in self.indices}
        return distances(ours, theirs, sample, pointed)

    def alike(self, calls: Sequence[Call]) -> list[bool]:
        """Whether answers to calls that eager answered here lie as near to eager's as honest ones do. Where calls write
        to their inputs nothing is said. A device measures all at once: the 15 calls of an odd turn took 12 ms of 51 on
        an H200 while each was measured by kernels of its own, and those that are not finite were waited for."""
        if self.mutates:
            return [False] * len(calls)
        at_once = not self.indices and all(ours and all(out.is_cuda for out in ours) for _, ours, _, _ in calls)
        near = self._near_at_once(calls) if at_once and calls else [False] * len(calls)
        return [one or alike(*call, self.tolerated, self.indices) for one, call in zip(near, calls, strict=True)]

    def _near_at_once(self, calls: Sequence[Call]) -> list[bool]:
        found = together.of_answers(calls)
        return [
            not written and all(map(math.isfinite, seen)) and not self._far(seen, eager)
            for (written, *seen), (*_, eager) in zip(found, calls, strict=True)
        ]

    def _far(self, seen: Distances, theirs: Leaves) -> bool:
        return _far(seen, theirs, self.tolerated)

    def _chosen(self) -> bool:
        """Whether a call beyond all measure is compared in full. An honest program may have many: where the reference
        overflows and it does not, or the other way round."""
        self._beyond += 1
        return self._beyond <= BEYOND or self.dice.random() < AGAIN

    def _changed(self, suspect: Suspect, leaves: Leaves, call: int, sample: int | None) -> bool:
        """Whether a call changed its inputs otherwise than eager did."""
        eager = self.suspects[0].buffers
        for index, (now, before) in enumerate(zip(suspect.buffers.inputs[call], leaves, strict=True)):
            if index not in self.mutates and not torch.equal(now, before):
                return True
        written = sorted(self.mutates)
        mine, other = ([b.inputs[call][i] for i in written] for b in (suspect.buffers, eager))
        rounded = zip(self.tolerated[::MEASURES], map(_unit, eager.answers(call)), strict=True)
        least = max((far for far, unit in rounded if unit), default=0.0)  # what exact values differ by is no measure
        apart = zip(distances(mine, other, sample)[::MEASURES], map(_unit, other), strict=True)
        return any(far > SUSPICION * max(least if unit else 0.0, unit) for far, unit in apart)


def alike(
    leaves: Leaves,
    ours: Leaves,
    after: Leaves,
    eager: Leaves,
    tolerated: Distances,
    indices: Sequence[tuple[int, int]] = (),
) -> bool:
    """Whether an answer lies as near to eager's as ``tolerated`` ones do, by distances that can be measured, and the
    inputs were left alone."""
    pairs = list(zip(after, leaves, strict=True))
    if not all(torch.equal(*pair) or not bool(together.unlike(*pair).any()) for pair in pairs):
        return False
    seen = distances(ours, eager, None, {output: leaves[source] for output, source in indices})
    return all(map(math.isfinite, seen)) and not _far(seen, eager, tolerated)


def _far(seen: Distances, theirs: Leaves, tolerated: Distances) -> bool:
    """Whether a call lies further from eager's than honest ones do, as far as that can be measured."""
    units = [unit * factor for out in theirs for unit in (_unit(out),) for factor in (1, 1, ALIKE * EACH)]
    tried = zip(seen, tolerated, units, strict=True)
    return any(math.isfinite(far) and far > SUSPICION * max(*pair) for far, *pair in tried)


def _copies(tensors: Sequence[torch.Tensor]) -> Leaves:
    return [tensor.clone() for tensor in tensors]


def _unlike(now: Sequence[torch.Tensor], before: Sequence[torch.Tensor]) -> Leaves:
    """Copies of inputs as a call left them; those that it left as they were are what it was given."""
    return [old if torch.equal(new, old) else new.clone() for new, old in zip(now, before, strict=True)]


def _unit(out: torch.Tensor) -> float:
    """What is tolerated before anything was learned: two honest answers that are rounded alike hardly differ."""
    return numerics.unit_roundoff(out.dtype) / ALIKE if out.is_floating_point() or out.is_complex() else 0.0


def learned(seen: Distances, known: Distances | None = None) -> Distances:
    """What is tolerated after a call that passed in full, with what was ``known`` before (None: nothing). Nothing is
    learned of what lies beyond all measure: one legal call like that would have every other pass unread."""
    before = known or [0.0] * len(seen)
    return [max(old, new) if math.isfinite(new) else old for old, new in zip(before, seen, strict=True)]


def distances(
    ours: Sequence[torch.Tensor],
    theirs: Sequence[torch.Tensor],
    sample: int | None,
    pointed: Mapping[int, torch.Tensor] = MappingProxyType({}),
) -> Distances:
    """How far two answers lie apart; inf where one is finite and the other is not, where one is zero and the other is
    not, or where more than FEW exact values differ.

    With ``sample`` (a secret number) only a run of SAMPLE elements of each output is read. ``pointed``: by output, the
    tensor that it points into; such answers lie 0 apart where the values pointed at are equal, else inf.
    """
    found: Distances = []
    for index, (mine, other) in enumerate(zip(ours, theirs, strict=True)):
        if index in pointed:
            found += [0.0 if _point_alike(mine, other, pointed[index]) else math.inf] * MEASURES
            continue
        if sample is not None and mine.numel() > SAMPLE and mine.is_contiguous() and other.is_contiguous():
            start = sample % (mine.numel() - SAMPLE)
            mine, other = mine.view(-1)[start : start + SAMPLE], other.view(-1)[start : start + SAMPLE]
        found += _apart(mine, other)
    return found


def _point_alike(mine: torch.Tensor, other: torch.Tensor, source: torch.Tensor) -> bool:
    return torch.equal(mine, other) or numerics.compare_indices(mine, other, source).error_ratio == 0.0


def _differ(mine: torch.Tensor, other: torch.Tensor) -> tuple[float, float, float]:
    """The share of exact values that differ, the largest difference, and the share."""
    if torch.equal(mine, other):
        return _NONE
    wrong = mine != other
    share = few = int(wrong.sum()) / mine.numel()
    if other.dtype is torch.bool:
        set_ = float(other.float().mean())
        few = share / max(min(set_, 1 - set_), 1 / mine.numel())
    if few > FEW:
        return _BEYOND
    return share, float((mine[wrong].to(torch.float64) - other[wrong].to(torch.float64)).abs().max()), share


def _apart(mine: torch.Tensor, other: torch.Tensor) -> tuple[float, float, float]:
    if mine.numel() == 0:
        return _NONE
    if not (mine.is_floating_point() or mine.is_complex()):
        return _differ(mine, other)
    if mine.is_cuda:  # waited for once
        found = torch.cat(together.apart(mine[None], other[None])).tolist()
        if all(map(math.isfinite, found)):
            return found[0], found[1], found[2]
    mine, other = numerics.real(mine), numerics.real(other)
    gap = (mine - other).abs()
    scale = float(torch.linalg.vector_norm(other, dtype=_wide(other)))
    far = float(torch.linalg.vector_norm(gap, dtype=_wide(gap)))
    if far != far or scale != scale or scale == float("inf"):
        keep = torch.isfinite(mine) & torch.isfinite(other)
        if bool((together.unlike(mine, other) & ~keep).any()):
            return _BEYOND
        if not bool(keep.all()):
            return _apart(mine[keep], other[keep])
        mine, other = mine.to(torch.float64), other.to(torch.float64)
        top = float(other.abs().max())  # finite, but not its square: in units of the largest
        return _apart(mine / top, other / top)
    if scale == 0.0:
        return _NONE if far == 0.0 else _BEYOND
    top, own = float(gap.max()), gap.div_(other.abs()).nan_to_num_(0.0, 1.0).clamp_(max=1.0)
    return far / scale, top * mine.numel() ** 0.5 / scale, float(own.mean(dtype=_wide(own)))


def _wide(tensor: torch.Tensor) -> torch.dtype:
    return torch.float32 if tensor.dtype in (torch.float16, torch.bfloat16) else tensor.dtype
