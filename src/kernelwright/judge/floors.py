# SPDX-License-Identifier: Apache-2.0
"""The honest error at an output: drawn again and again with random rounding, as often as somebody has to know better.

Each draw is a run of the reference in float64 (see ``rounding``) and most of what a check costs. More of them only
raise the floor, so an answer that lies within the first needs no other: of five in a proof of softmax one sufficed.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

BANDS = 12
"""Bands of output magnitude, each a factor 16 wide, counted down from the largest; the last takes the rest."""


LEAST = 4
"""Draws made, on a dear case too, before an answer that comes close is refused. A floor of one draw refused the row
sums of a product, computed another way, in 3 of 200 judgements: beside a few rows with larger values the error of all
is that of one element, which in that draw may be small."""
FEW, OF_FEW = 4, 12
"""Elements of an output whose errors are too few for a mean, and draws made before an answer of so few is refused."""
SURE = 2.5
"""RMS over these draws that such an element may err by, the bit that is allowed aside. By the largest of 8, widened by
how they differ, one of 1400 honest sums of 65536 numbers was refused: one sum in 400 errs by 3 deviations, and once in
200 times all 8 draws lie within 0.7 of one."""
SOME, OF_SOME = 128, 2.0
"""The same of more elements, which may be few systems: of 4 systems of 8 equations, solved by Cholesky's factors, 2 in
1500 draws were refused by the largest of 8, with errors of 3.5 times the RMS of 12 draws at the most."""


def sure(elements: int) -> float:
    """Times the RMS of OF_FEW draws that an output of so many elements may err by; 0.0 where there are enough."""
    return SURE if elements <= FEW else OF_SOME if elements <= SOME else 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Spread:
    """The size of an error over all elements of an output."""

    rms: float
    peak: float
    """Largest absolute error; NaN or Inf (and then nothing else is known) where an answer is not finite."""
    bands: tuple[float, ...]
    """RMS by band, 0.0 where no element fell."""
    chunk: int
    """Start of the chunk that holds the largest error."""

    def scaled(self, factor: float) -> Spread:
        """The same for outputs ``factor`` times as large."""
        bands = tuple(band * factor for band in self.bands)
        return Spread(rms=self.rms * factor, peak=self.peak * factor, bands=bands, chunk=self.chunk)


@dataclass(frozen=True, slots=True, kw_only=True)
class Floor:
    """What an honest program may be wrong by at one output, rounding of the output dtype not included."""

    rms: float
    peak: float
    """Largest absolute error."""
    bands: tuple[float, ...]
    """RMS by band of magnitude (``Magnitudes``); 0.0 where no element fell."""


NO_FLOOR = Floor(rms=0.0, peak=0.0, bands=(0.0,) * BANDS)


class Floors:
    """The floors of one call, one per output. ``draw(n)`` makes the n-th draw, of at most ``count``, at all outputs.

    ``known`` are draws that other calls of the same kind made, scaled to this one's outputs; they come first.
    """

    def __init__(
        self, draw: Callable[[int], Sequence[Spread]], count: int, known: Sequence[Sequence[Spread]] = ()
    ) -> None:
        self.draw, self.count, self.known = draw, count, known
        self._draws = list(known[:count])

    def at(self, output: int, draws: int) -> Floor | None:
        """The floor after so many draws, which more of them do not lower; None where no more are made than before."""
        if draws > self.count:
            return None
        while len(self._draws) < draws:
            self._draws.append(self.draw(len(self._draws)))
        column = [draw[output] for draw in self._draws[:draws]]
        return honest_floor(column) if draws == self.count else _largest(column, 1.0, 1.0)

    def beyond(self, output: int, more: int, sure: float = 0.0) -> Floor | None:
        """The floor after ``more`` draws than usual, no lower than that of the usual ones; None above LEAST in all.

        Where elements are few, one more step is OF_FEW draws, and ``sure`` times their RMS.
        """
        last = max(LEAST - self.count, 0) + 1
        if more > last or (more == last and not sure):
            return None
        draws = max(self.count, OF_FEW) if more == last else self.count + more
        while len(self._draws) < draws:
            self._draws.append(self.draw(len(self._draws)))
        column = [draw[output] for draw in self._draws[:draws]]
        floors = [honest_floor(column[: self.count]), honest_floor(column[: max(self.count, LEAST)])]
        if more == last:
            floors.append(_typical(column, sure))
        bands = tuple(map(max, *(floor.bands for floor in floors)))
        return Floor(rms=max(f.rms for f in floors), peak=max(f.peak for f in floors), bands=bands)

    def whole(self, output: int) -> Floor:
        """The floor after all draws."""
        return self.at(output, self.count) or NO_FLOOR


def honest_floor(spreads: Sequence[Spread]) -> Floor:
    """Pool several draws of honest error at one output.

    An error shared by all elements (one bad norm scales a whole row) makes the RMS of a draw vary like a single
    normal number; the spread between draws measures that, and widens the floor by up to 2.5 times.
    """
    if not spreads:
        return NO_FLOOR
    return _largest(spreads, _widening([draw.rms for draw in spreads]), _widening([draw.peak for draw in spreads]))


def _largest(spreads: Sequence[Spread], widen: float, widen_peak: float) -> Floor:
    return Floor(
        rms=max(draw.rms for draw in spreads) * widen,
        peak=max(draw.peak for draw in spreads) * widen_peak,
        bands=tuple(max(column) * widen for column in zip(*(draw.bands for draw in spreads), strict=True)),
    )


def _typical(spreads: Sequence[Spread], sure: float) -> Floor:
    """``sure`` times the RMS over draws."""

    def size(values: Sequence[float]) -> float:
        return sure * math.hypot(*values) / math.sqrt(len(values))

    return Floor(
        rms=size([draw.rms for draw in spreads]),
        peak=size([draw.peak for draw in spreads]),
        bands=tuple(map(size, zip(*(draw.bands for draw in spreads), strict=True))),
    )


def _widening(sizes: Sequence[float]) -> float:
    """1 + 2 * coefficient of variation, at most 2.5 (a half-normal has 0.75); 1.5 where there are too few to tell."""
    largest = max(sizes)
    if largest == 0.0:
        return 1.0
    if len(sizes) < 2:
        return 1.5
    # Shares: an error may be 1e308 (float64's infinity after nan_to_num), and neither its square is a number nor a sum.
    shares = [size / largest for size in sizes]
    mean = sum(shares) / len(shares)
    spread = math.sqrt(sum((share - mean) ** 2 for share in shares) / (len(shares) - 1))
    return 1.0 + min(1.5, 2.0 * spread / mean)
