# SPDX-License-Identifier: Apache-2.0
"""Samples that are drawn one by one, each one of few results of its own input: turned or not, channels in some order.

A whole batch of 16 has 2^16 results then, of which none comes twice (``chance`` counts them where there are few), and
no rank of an element tells that rows are never turned the other way. So each sample, a slice along the first axis, is
counted alone over calls on equal inputs. Which result of one sample is which of another's nobody knows: each sample has
its own chi-square, of the program's counts beside the reference's, and these are added up.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import torch

from kernelwright.judge.whole import INTEGERS

SAMPLES, ELEMENTS = 64, 256
"""Samples of an output that are looked at, and elements of each, evenly spread."""
MOST = 24
"""Results that a sample has in the reference's runs at the most: four channels have 24 orders. One that has more is
left out: of continuous numbers all are gone after 25 runs."""
CLOSE, ROUNDINGS = 1e-3, 8.0
"""Distance, beside the size (RMS) of the largest that a sample has, up to which a result is one of the reference's,
rounded otherwise; and in roundings of its type, where these are larger. What is near none is left to other checks."""
SAME, APART = 1 / 32, 2.0
"""Of that, how far runs of the reference lie apart at the most that have one result, and at the least that have two. A
sample of which two lie between has noise: a program's are not as likely as the runs to be near the first of these."""
UNKNOWN, UNKNOWN_SHARE = 2, 1 / 50
"""Calls, and parts of them, in which a sample may have a result that is near none; else it is left out: of one whose
results are rounded away from the reference's, but for some, these would seem to come too often."""
LEAST = 6
"""Results that come less often over all calls and runs are left out, as they say nothing."""
DEALS = 1000
"""Ways of dealing out calls and runs anew, from which the mean and the scatter of the sum are known, whatever samples
share: all of them one number, or an order in which each has another place."""
LIMIT = 6.0
"""Standard errors of the sum, as a normal number: once in 10^9, and it is asked twice in a proof. With 16 samples and
48 calls beside 144 runs, one of four results that never comes is 10.9 off at the least of 20 times, one of two that is
half as frequent 8.3, but one of eight that never comes 5.1 in the mean, and one of four that is half as frequent 4.1:
for these there is more."""
AGAIN, SECONDS = 10, 1.0
"""So many times as many calls once more, and as many runs, where samples have few results; and what the runs may take.
Then one of eight results is 26 off if it never comes, and 8.2 if it is half as frequent, at the least of 20 times."""

Columns = Sequence[tuple[Sequence[torch.Tensor], Sequence[torch.Tensor]]]
"""Of each output a program's calls and the reference's runs, all on equal inputs."""


def times(calls_us: float) -> int:
    """How often so many runs as take ``calls_us`` are made once more at the most."""
    return min(AGAIN, int(1e6 * SECONDS / max(calls_us, 1.0)))


def otherwise(drawn: Columns, further: Callable[[], Columns], again: int) -> str:
    """Empty where samples of all outputs have their results as often as the reference's do; else how they do not.

    ``further``: more calls and runs, which are asked for ``again`` times where samples have few results.
    """
    found = {index: Outcomes() for index, (mine, _) in enumerate(drawn) if mine[0].numel()}
    for number in range(1 + again):
        columns = further() if number else drawn
        for index, one in found.items():
            one.add(*columns[index])
        if number in (0, again):
            for index, one in found.items():
                if said := one.told():
                    return f"output {index}: {said}"
        if not any(one.few for one in found.values()):
            break
    return ""


class Outcomes:
    """The results of each sample of one output, of a program and of the reference. Not thread-safe."""

    def __init__(self) -> None:
        self._known: torch.Tensor | None = None
        """By sample and number of the result; as many as ``_many``."""
        self._many = torch.empty(0, dtype=torch.int64)
        self._seen: tuple[list[torch.Tensor], list[torch.Tensor]] = [], []
        """The program's calls and the reference's runs: of each sample the number of its result, -1 for none."""

    def add(self, mine: Sequence[torch.Tensor], theirs: Sequence[torch.Tensor]) -> None:
        """Count calls and runs on the inputs of those before. Results have numbers from the reference's runs alone."""
        for seen, results, new in ((self._seen[1], theirs, True), (self._seen[0], mine, False)):
            for one in results:
                if self._known is not None and not bool((self._many <= MOST).any()):
                    return
                seen.append(self._numbers(one, new))

    @property
    def few(self) -> bool:
        """Whether there are samples that have few results, and more than one."""
        return bool(((self._many > 1) & (self._many <= MOST)).any())

    def told(self) -> str:
        """Empty where the results of all samples come as often as the reference's do; else how they do not."""
        if not (self.few and self._seen[0] and self._seen[1]):
            return ""
        calls = len(self._seen[0])
        labels = torch.stack([*self._seen[0], *self._seen[1]])
        unknown = (labels[:calls] < 0).sum(0)
        labels = labels[:, (self._many <= MOST) & (unknown <= UNKNOWN + UNKNOWN_SHARE * calls)]
        if not labels.numel():
            return ""
        marks = torch.nn.functional.one_hot(labels + 1, MOST + 1)[..., 1:]
        marks = marks * (marks.sum(0) >= LEAST)
        order = torch.rand(DEALS, len(labels), generator=torch.Generator().manual_seed(calls)).argsort(1)
        dealt = torch.cat([torch.arange(len(labels))[None], order]) < calls
        off = _furthest(_homogeneity(marks.to(torch.float32), dealt.to(torch.float32)))
        if off <= LIMIT:
            return ""
        parts = [marks[:calls].sum(0), marks[calls:].sum(0)]
        shares = [part / part.sum(1, keepdim=True).clamp_min(1) for part in parts]
        sample, number = divmod(int((shares[0] - shares[1]).abs().argmax()), MOST)
        mine, usual = (float(share[sample, number]) for share in shares)
        words = f"of one sample, one of {int((marks.sum(0) > 0).sum(1)[sample])} comes in {mine:.0%} of {calls} calls"
        return (
            f"results of {labels.shape[1]} samples come otherwise on equal inputs ({words}, "
            f"of the reference's in {usual:.0%}; {off:.1f} standard errors off over all)"
        )

    def _numbers(self, result: torch.Tensor, new: bool) -> torch.Tensor:
        """Of each sample, which of the known results is nearest; -1 where none is near, unless it is a ``new`` one."""
        rows = _rows(result)
        if self._known is None:
            self._known = torch.zeros(len(rows), MOST, rows.shape[1], dtype=torch.float64)
            self._many = torch.zeros(len(rows), dtype=torch.int64)
        apart = (self._known - rows[:, None]).square().mean(2)
        apart.masked_fill_(torch.arange(MOST) >= self._many[:, None], math.inf)
        least, found = apart.min(1)
        sizes = torch.maximum(self._known.square().mean(2).amax(1), rows.square().mean(1))
        near = _near(result.dtype) * sizes.sqrt()
        distance = least.sqrt()
        found[distance > (SAME * near if new else near)] = -1
        if new:
            unknown = found < 0
            self._many[unknown & (distance <= APART * near)] = MOST
            free = torch.nonzero(unknown & (self._many < MOST)).reshape(-1)
            self._known[free, self._many[free]] = rows[free]
            found[free] = self._many[free]
            self._many[unknown] += 1
        return found


def _rows(result: torch.Tensor) -> torch.Tensor:
    """Some samples of a result, or all of it where there is none, and some elements of each, float64, on the host."""
    result = torch.view_as_real(result.detach().resolve_conj()) if result.is_complex() else result.detach()
    some = result[:: -(-len(result) // SAMPLES)] if result.dim() else result[None]
    rows = some.reshape(len(some), -1)
    return rows[:, :: -(-rows.shape[1] // ELEMENTS)].to("cpu", torch.float64).nan_to_num(0.0, 0.0, 0.0)


def _near(dtype: torch.dtype) -> float:
    """How far results may lie apart, beside their size, that are the same."""
    if dtype in INTEGERS or dtype == torch.bool:
        return 0.0
    return max(CLOSE, ROUNDINGS * torch.finfo(dtype).eps)


def _homogeneity(marks: torch.Tensor, dealt: torch.Tensor) -> torch.Tensor:
    """Of each deal (first dimension) the sum over samples of chi-square, of two kinds of calls.

    ``marks``: which (last dimension) result a sample had in a call (first dimension). ``dealt``: of which kind it is.
    """
    total = marks.sum(0)
    counts = (dealt @ marks.flatten(1)).reshape(len(dealt), *total.shape)
    some = counts.sum(2, keepdim=True)
    rest = total.sum(1, keepdim=True) - some
    wanted = total / total.sum(1, keepdim=True).clamp_min(1.0)
    found = (counts - some * wanted).square() / wanted.clamp_min(1e-9)
    both = ((some > 0) & (rest > 0)).to(marks.dtype)
    return (found.sum(2, keepdim=True) * both * (1 / some.clamp_min(1.0) + 1 / rest.clamp_min(1.0))).sum((1, 2))


def _furthest(sums: torch.Tensor) -> float:
    """How far the first lies beyond the others, as a normal number: they are taken for a multiple of a chi-square
    (Satterthwaite), which is nearly the cube of a normal number (Wilson and Hilferty); 0.0 within the others."""
    found, others = float(sums[0]), sums[1:].to(torch.float64)
    mean, variance = float(others.mean()), float(others.var())
    if found <= float(others.max()) or not (mean > 0.0 and variance > 0.0):
        return 0.0
    part = variance / (9 * mean**2)
    return ((found / mean) ** (1 / 3) - (1 - part)) / math.sqrt(part)
