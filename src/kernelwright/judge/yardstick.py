# SPDX-License-Identifier: Apache-2.0
"""How wrong a floating answer is, measured in the honest program's own error.

Method: candidate and eager are both compared with an oracle of higher precision. The ratio of their errors is
formed for the root mean square, for the largest element, and for each band of magnitudes (so that small rows
beside large ones count too). Eager may be right by luck, so its error is floored: see ``rounding.py``.

What no candidate changes is measured once (``Magnitudes``, ``Yardstick``). Elements are read in chunks that stay in the
cache: over 4 Mi of them a pass through fresh temporaries costs 20 ms, and a comparison in chunks 20 on two cores.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import torch

from kernelwright.judge import bands, lanes, norms, numerics
from kernelwright.judge.by_chance import NEAR
from kernelwright.judge.floors import BANDS, NO_FLOOR, Floor, Spread, sure
from kernelwright.judge.native import PASSES, SAFE
from kernelwright.judge.numerics import Comparison, bits_lost, failed, first_of

BAND_SLACK = 8.0
"""A band may err this much more than the whole: it has fewer elements and its own conditioning."""
BAND_LEAST = 16
"""Bands with fewer elements are not judged on their own (the peak still sees them)."""
CHUNK = {"cpu": 1 << 15, "cuda": 1 << 24}
"""Elements read at a time. 256 KiB of float64 stay in a core's cache; a device wants few launches."""
ROOMY = 1 << 27
"""Elements up to which there is room on a device for the place of each in the order of magnitudes."""
SAMPLE, TAIL = 1 << 14, 1 << 12
"""Elements looked at first, spread over the output, and those at its end."""
MANY, GROSS = 64, 16.0
"""Bits beyond which no further draw of a floor is asked for: over so many elements, neither luck of eager's nor a bad
order of summation makes an honest error 2^16 times eager's largest and 2^16 roundings of the largest element. What
cancels does: the gradient of a saturated softmax is zero, exactly, to eager and to the oracle, and its terms are not.
So the first draw is made, but where it is dear and eager errs at all."""
NAN = 1
"""Of ``numerics.classes``."""
CLOSE = 4.0
"""Bits lost up to which an answer is refused by a floor of ``floors.LEAST`` draws only: 16 times the honest error, and
half precision errs by thousands. Of an answer in half precision up to GROSS: what eager stores in it may cancel there,
to nothing, where one rounding less leaves one (see ``stored``)."""


class Magnitudes:
    """An exact answer, its elements sorted once into bands of magnitude, against which errors are then measured.

    Band 0 is the largest magnitudes; elements that are not finite count in no band. ``exact`` is float64 or complex128;
    outputs of exact dtypes have no magnitudes, and count as empty.
    """

    def __init__(self, exact: torch.Tensor) -> None:
        floating = exact.dtype not in numerics.EXACT_DTYPES
        self.exact = numerics.wide(exact).reshape(-1) if floating else torch.empty(0, dtype=torch.float64)
        self._host = self.exact.device.type == "cpu"
        self._step = CHUNK["cpu" if self._host else "cuda"]
        self._native = PASSES.fit(self.exact) and self._at_once()
        self._sorted: list[tuple[slice, torch.Tensor | None, list[int]]] = []
        if self._native:
            return
        parts = self._parts()
        tops = lanes.each(lambda part: numerics.peak(self.exact[part]), parts, host=self._host)
        self.finite = all(map(math.isfinite, tops))
        if not self.finite:
            tops = [numerics.peak(norms.tamed(self.exact[part])) for part in parts]
        self.top = max(tops, default=0.0)
        self._sorted += lanes.each(lambda part: (part, *self._sort(self.exact[part])), parts, host=self._host)
        columns = zip([0] * BANDS, *(counts for _, _, counts in self._sorted), strict=True)
        self.counts = [sum(column) for column in columns]
        if not self.finite:  # sorted as zeros, but nobody errs there
            self.counts[BANDS - 1 if self.top else 0] -= sum(int((~self.exact[p].isfinite()).sum()) for p in parts)
        self.own = self._measure(None, 1.0, lenient=True)
        """The exact answer's own size: the error of an answer of zeros."""

    def _parts(self) -> list[slice]:
        return [slice(start, start + self._step) for start in range(0, self.exact.numel(), self._step)]

    def _at_once(self) -> bool:
        """Sort and measure by compiled passes; False where something is not finite, or squares vanish or overflow."""
        self.top = PASSES.peak(self.exact)
        self.finite = math.isfinite(self.top)
        if not SAFE[0] < self.top < SAFE[1]:
            return False
        self._bands, self.counts = PASSES.sort(self.exact, self.top)
        own = self._measured(None, 1.0)
        if own is None:  # of a part
            return False
        self.own = own
        return True

    def _measured(self, answer: torch.Tensor | None, factor: float) -> Spread | None:
        """``_measure`` by a compiled pass; None where it does not suffice."""
        found = PASSES.measure(self.exact, answer, self._bands, self.counts)
        return None if found is None else self._spread(found[0], found[1], [math.sqrt(s) for s in found[2]], factor)

    def _spread(self, worst: float, place: int, norms: Sequence[float], factor: float) -> Spread:
        """From the largest error, an element near it, and the norm of the errors in each band."""
        sizes = [norm * factor for norm in norms]
        bands = tuple(size / math.sqrt(max(count, 1)) for size, count in zip(sizes, self.counts, strict=True))
        total = math.hypot(*sizes) / math.sqrt(max(sum(self.counts), 1))
        chunk = place // self._step * self._step
        return Spread(rms=total, peak=worst * factor, bands=bands, chunk=chunk)

    def _sort(self, exact: torch.Tensor) -> tuple[torch.Tensor | None, list[int]]:
        """Of a chunk, the band of each element on a CPU, elsewhere positions in the order of their bands (None: all
        are in one); and how many each band has."""
        if self.top == 0.0:
            return None, [exact.numel()] + [0] * (BANDS - 1)
        sizes = exact.abs() if self.finite else norms.tamed(exact).abs_()
        if exact.device.type == "cpu":
            ranks, counts = bands.banded(sizes.numpy(), self.top)
        else:
            ranks, counts = (bands.in_bytes if self.exact.numel() > ROOMY else bands.in_order)(sizes, self.top)
        return (None if exact.numel() in counts else ranks), counts

    def measure(self, answer: torch.Tensor, factor: float = 1.0, *, lenient: bool = False) -> Spread:
        """The error of an answer of any floating dtype, times ``factor``; ``lenient`` forgives what is not finite."""
        if not self.exact.numel():
            return Spread(rms=0.0, peak=0.0, bands=(0.0,) * BANDS, chunk=0)
        flat = numerics.real(answer.detach()).reshape(-1).to(self.exact.device)
        return self._measure(flat, factor, lenient=lenient)

    def _measure(self, answer: torch.Tensor | None, factor: float, *, lenient: bool) -> Spread:
        if self._native and (known := self._measured(answer, factor)) is not None:
            return known
        if not self._sorted:
            self._sorted += [(part, *self._sort(self.exact[part])) for part in self._parts()]

        def sized(stretch: tuple[slice, torch.Tensor | None, list[int]]) -> tuple[float, list[float]]:
            part, order, counts = stretch
            error = self.exact[part] if answer is None else norms.minus(answer[part], self.exact[part])
            return norms.of_bands(error, order, counts, lenient=lenient)

        found = lanes.each(sized, self._sorted, host=self._host)
        worst, chunk = 0.0, 0
        for (part, _, _), (top, _) in zip(self._sorted, found, strict=True):
            if not math.isfinite(top):
                return Spread(rms=math.nan, peak=top, bands=(math.nan,) * BANDS, chunk=part.start)
            if top > worst:
                worst, chunk = top, part.start
        columns = zip([0.0] * BANDS, *(sizes for _, sizes in found), strict=True)
        return self._spread(worst, chunk, [math.hypot(*column) for column in columns], factor)

    def worst(self, answer: torch.Tensor, spread: Spread, band: int = -1) -> int:
        """Flat index of the largest error of an answer that was measured; of one band, where one is named."""
        if band >= 0:
            within = (self.top * 16.0 ** -(band + 1) if band < BANDS - 1 else -1.0, self.top * 16.0**-band)
            return numerics.worst_within(numerics.real(answer.detach()).reshape(-1), self.exact, *within)
        part = slice(spread.chunk, spread.chunk + self._step)
        error = norms.minus(numerics.real(answer.detach()).reshape(-1)[part], self.exact[part])
        return spread.chunk + int(error.abs_().argmax())


class Yardstick:
    """The honest error at one floating output of one call; ``compare`` holds an answer against it.

    ``eager`` has the reference's dtype, ``exact`` is float64 or complex128; both have the output's shape. A ``floor``
    that must be measured first (``Floors.at``: by the number of draws) is asked for while an answer errs by more than
    what is known, since it can only raise what is allowed: of a ratio of at most 1 is only known that it is no more.
    ``beyond`` (``Floors.beyond``) is asked where an answer would be refused and is CLOSE.

    The last band holds what is zero beside the largest (below 1e-13 of it). Where a ReLU or a clamp makes zeros, an
    element is wrong there when its argument, of size 0 to within rounding, lands on the other side: so rarely that
    eager and the floor may show none and an honest answer one. So one element of that band may err like the whole.
    """

    def __init__(
        self,
        eager: torch.Tensor,
        exact: torch.Tensor,
        floor: Floor | Callable[[int], Floor | None],
        magnitudes: Magnitudes | None = None,
        beyond: Callable[[int, float], Floor | None] | None = None,
        *,
        dear: bool = False,
    ) -> None:
        self.dtype, self.shape = eager.dtype, eager.shape
        largest = torch.finfo(eager.dtype).max
        scale = Magnitudes(exact) if magnitudes is None else magnitudes
        spread = scale.measure(eager)
        self.plain = scale.finite and scale.top <= largest and math.isfinite(spread.peak)
        """Eager and the oracle are finite everywhere."""
        self._usable: torch.Tensor | None = None
        if not self.plain:
            truth = scale.exact
            self._honest = numerics.classes(numerics.wide(eager).reshape(-1))
            self._ideal = numerics.classes(torch.where(truth.abs() > largest, truth.sign() * math.inf, truth))
            self._usable = torch.nonzero((self._honest == 0) & (self._ideal == 0)).reshape(-1)
            scale = Magnitudes(truth[self._usable])
            spread = scale.measure(numerics.wide(eager).reshape(-1)[self._usable])
        self.scale, self.spread = scale, spread
        self._expected = eager
        self._floor = None if isinstance(floor, Floor) else floor
        self._draws = self._more = 0
        self._sure = dear and spread.peak > 0.0
        self.honest = 0.0
        """RMS of the honest error."""
        self.may_lack = False
        """Where neither eager nor the oracle has a number, any answer is right: a gradient that is 0 times infinity by
        one formula is one by another."""
        self.times = 1.0
        """How much more than the honest error counts as that."""
        self._beyond = beyond
        self.bases(floor if isinstance(floor, Floor) else NO_FLOOR)
        self._sample: torch.Tensor | None = None
        count = scale.exact.numel()
        if self.plain and count > 8 * SAMPLE:
            step = count // SAMPLE | 1  # odd, so that it is no multiple of a row
            device = scale.exact.device
            spots = torch.arange(0, count - TAIL, step, device=device)
            self._sample = torch.cat([spots, torch.arange(count - TAIL, count, device=device)])
            self._sampled = scale.exact[self._sample]

    def sizes(self, out: torch.Tensor, truth: torch.Tensor) -> tuple[float, float]:
        """RMS of the truth and of eager's error, over the elements that are finite in both."""
        if self.plain:
            return self.scale.own.rms, self.spread.rms
        mine, true = numerics.wide(out), numerics.wide(truth)
        finite = torch.isfinite(mine) & torch.isfinite(true)
        return numerics.rms(true[finite]), numerics.rms((mine - true)[finite])

    def bases(self, floor: Floor) -> None:
        """What each error is divided by."""
        info = torch.finfo(self.dtype)
        own, rounding, times = self.scale.own, info.eps / 2, self.times
        slack = times * BAND_SLACK
        least = info.smallest_normal  # below it, flushing to zero is as honest as not
        self.honest = times * max(self.spread.rms, math.hypot(floor.rms, rounding * own.rms / math.sqrt(3)), least)
        self.peak = times * max(self.spread.peak, floor.peak + rounding * self.scale.top, least)
        self.bands = {
            band: slack * max(self.spread.bands[band], math.hypot(floor.bands[band], rounding * size), least)
            for band, size in enumerate(own.bands)
            if self.scale.counts[band] >= BAND_LEAST
        }
        last = BANDS - 1
        if last in self.bands:  # zeros of a ReLU: see ``Yardstick``
            self.bands[last] = max(self.bands[last], self.peak / math.sqrt(self.scale.counts[last]))

    def compare(self, got: torch.Tensor, limit: float = math.inf) -> Comparison:
        """Hold an answer against it. One that loses over ``limit`` bits on a sample alone is not read further."""
        if got.dtype != self.dtype or got.shape != self.shape:
            return failed(f"got {got.dtype}{list(got.shape)}, expected {self.dtype}{list(self.shape)}", -1)
        got = got.to(self._expected.device)
        flat = numerics.real(got.detach()).reshape(-1)
        if not self.plain or got.element_size() == 1:  # elsewhere a poisoned element shows as not finite
            found = self._irregular(got, flat)
            if found is not None:
                return found
        if self._usable is not None:
            flat = flat[self._usable]
        if flat.numel() == 0:
            return Comparison(error_ratio=0.0, bits_lost=0.0, worst_index=-1, nonfinite_mismatch=False, detail="")
        early = None if self._sample is None else self._glance(flat, self._sample, limit)
        if early is not None:
            return early
        spread = self.scale.measure(flat)
        if not math.isfinite(spread.peak):
            return self._irregular(got, flat) or failed("the error is beyond the range of float64", -1)
        ratio, name, band = self._ratio(spread, limit)
        index = self.scale.worst(flat, spread, band)
        return Comparison(
            error_ratio=ratio,
            bits_lost=bits_lost(ratio),
            worst_index=index if self._usable is None else int(self._usable[index]),
            nonfinite_mismatch=False,
            detail=f"{name} is {ratio:.3g} times the honest error",
        )

    def odd(self, flat: torch.Tensor) -> torch.Tensor:
        """Which elements differ from eager's, and from the oracle's, in being NaN or infinite."""
        kinds = numerics.classes(flat.to(self._expected.device))
        if self.plain:
            return (kinds != 0).to(flat.device)
        found = (kinds != self._honest) & (kinds != self._ideal)
        if self.may_lack:
            found &= (self._honest != NAN) | (self._ideal != NAN)
        return found.to(flat.device)

    def _irregular(self, got: torch.Tensor, flat: torch.Tensor) -> Comparison | None:
        """What is wrong with an answer before its errors are measured: elements never written, NaN or Inf."""
        unwritten = numerics.still_poisoned(got)
        if bool(unwritten.any()):
            detail = f"unwritten: {int(unwritten.sum())} of {got.numel()} elements were never set"
            return failed(detail, first_of(unwritten), nonfinite=True)
        wrong = self.odd(flat)
        if not bool(wrong.any()):
            return None
        at = first_of(wrong)
        shown = f"at {at}: got {flat[at].item()}, expected {numerics.real(self._expected).reshape(-1)[at].item()}"
        return failed(
            f"{int(wrong.sum())} of {flat.numel()} elements differ in NaN or Inf; {shown}", at, nonfinite=True
        )

    def _glance(self, flat: torch.Tensor, sample: torch.Tensor, limit: float) -> Comparison | None:
        """The rejection that the sample suffices for: the largest error of all elements is no smaller than its own."""
        error = norms.minus(flat.index_select(0, sample), self._sampled)
        largest = numerics.peak(error)
        more = math.isfinite(largest) and not self._hopeless(largest, limit)
        while bits_lost(ratio := largest / self.peak) > limit and more:
            more = self.raise_floor() or self._beyond_it(ratio, limit)
        if not (math.isfinite(ratio) and bits_lost(ratio) > limit + NEAR):  # by how much, is asked of those few
            return None
        return Comparison(
            error_ratio=ratio,
            bits_lost=bits_lost(ratio),
            worst_index=int(sample[error.abs_().argmax()]),
            nonfinite_mismatch=False,
            detail=f"largest error is at least {ratio:.3g} times the honest error (of {sample.numel()} elements read)",
        )

    def _ratio(self, spread: Spread, limit: float) -> tuple[float, str, int]:
        """The worst of the ratios, its name, and the band it is of (-1: all)."""
        more = self.scale.exact.numel() < MANY or not self._hopeless(spread.peak, limit)
        while (found := self._worst(spread))[0] > 1.0 and more:
            more = self.raise_floor() or self._beyond_it(found[0], limit)
        return found

    def _hopeless(self, largest: float, limit: float) -> bool:
        """Whether an answer with this largest error is past all further draws; see GROSS. Makes the first."""
        gross = math.isfinite(limit) and bits_lost(largest / self.peak) > max(limit, GROSS)
        if gross and not self._sure and self._draws == 0 and self.raise_floor():
            return self._hopeless(largest, limit)
        return gross

    def raise_floor(self) -> bool:
        """Have the floor drawn once more; whether there was another draw."""
        found = None if self._floor is None else self._floor(self._draws + 1)
        if found is None:
            return False
        self._draws += 1
        self.bases(found)
        return True

    def _beyond_it(self, ratio: float, limit: float) -> bool:
        """Have it drawn more often than usual for an answer that is refused by little; whether it was."""
        near = GROSS if self.dtype in (torch.float16, torch.bfloat16) else CLOSE
        if self._beyond is None or not limit < bits_lost(ratio) <= max(limit, near):
            return False
        found = self._beyond(self._more + 1, sure(self.scale.exact.numel()))
        if found is None:
            return False
        self._more += 1
        self.bases(found)
        return True

    def _worst(self, spread: Spread) -> tuple[float, str, int]:
        ratios = {("RMS error", -1): spread.rms / self.honest, ("largest error", -1): spread.peak / self.peak}
        for band, base in self.bands.items():
            ratios[f"RMS error of magnitudes near 16^-{band} of the largest", band] = spread.bands[band] / base
        name = max(ratios, key=lambda key: ratios[key])
        return ratios[name], *name


def compare(
    got: torch.Tensor, eager: torch.Tensor, exact: torch.Tensor, floor: Floor, dtype: torch.dtype
) -> Comparison:
    """Compare one output leaf of any dtype with eager's and with the oracle's, once."""
    if got.dtype != dtype or got.shape != eager.shape:
        return failed(f"got {got.dtype}{list(got.shape)}, expected {dtype}{list(eager.shape)}", -1)
    if dtype in numerics.EXACT_DTYPES:
        return numerics.compare_exact(got, eager, exact)
    return Yardstick(eager, exact, floor).compare(got)
