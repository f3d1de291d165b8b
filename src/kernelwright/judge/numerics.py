# SPDX-License-Identifier: Apache-2.0
"""Pure comparisons of tensors: how wrong is an answer, measured in the honest program's own error.

Method: candidate and eager are both compared with an oracle of higher precision. The ratio of their errors is
formed for the root mean square, for the largest element, and for each band of magnitudes (so that small rows
beside large ones count too). Eager may be right by luck, so its error is floored: see ``rounding.py``.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch

EXACT_DTYPES = (torch.bool, torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64)
BANDS = 12
"""Bands of output magnitude, each a factor 16 wide, counted down from the largest; the last takes the rest."""
BAND_SLACK = 8.0
"""A band may err this much more than the whole: it has fewer elements and its own conditioning."""
BAND_LEAST = 16
"""Bands with fewer elements are not judged on their own (the peak still sees them)."""
_POISON_BITS = {8: 0x7FF5A5A5A5A5A5A5, 4: 0x7FE5A5A5, 2: 0x7FE5, 1: 0x65}


@dataclass(frozen=True, slots=True, kw_only=True)
class Floor:
    """What an honest program may be wrong by at one output, rounding of the output dtype not included."""

    rms: float
    peak: float
    """Largest absolute error."""
    bands: tuple[float, ...]
    """RMS by band of magnitude (``band_of``); 0.0 where no element fell."""


NO_FLOOR = Floor(rms=0.0, peak=0.0, bands=(0.0,) * BANDS)


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """One output leaf, compared."""

    error_ratio: float
    """Error over the honest error; 0.0 for an exact match of an exact dtype, inf for a structural failure."""
    bits_lost: float
    worst_index: int
    """Flat index of the worst element, or -1."""
    nonfinite_mismatch: bool
    detail: str
    """Empty where nothing needs saying."""


def poison_(tensor: torch.Tensor) -> torch.Tensor:
    """Fill in place with a pattern no honest program produces: a NaN with a payload, or a large odd integer."""
    if tensor.dtype is torch.bool:
        return tensor.fill_(True)
    size = tensor.element_size()
    if tensor.is_complex():
        torch.view_as_real(tensor).copy_(torch.full_like(torch.view_as_real(tensor), math.nan))
        return tensor
    kind = {8: torch.int64, 4: torch.int32, 2: torch.int16, 1: torch.int8}[size]
    tensor.view(kind).fill_(_POISON_BITS[size])
    return tensor


def still_poisoned(tensor: torch.Tensor) -> torch.Tensor:
    """Mask of elements that still carry the pattern of ``poison_``."""
    if tensor.dtype is torch.bool or tensor.is_complex():
        return torch.zeros(tensor.shape, dtype=torch.bool, device=tensor.device)
    size = tensor.element_size()
    kind = {8: torch.int64, 4: torch.int32, 2: torch.int16, 1: torch.int8}[size]
    bits = tensor.contiguous().view(kind)
    return bits == _POISON_BITS[size]


def unit_roundoff(dtype: torch.dtype) -> float:
    """Half the spacing of 1.0 in a floating or complex dtype."""
    return torch.finfo(dtype).eps / 2


def real(tensor: torch.Tensor) -> torch.Tensor:
    """A complex tensor as pairs of reals; others unchanged."""
    return torch.view_as_real(tensor) if tensor.is_complex() else tensor


def wide(tensor: torch.Tensor) -> torch.Tensor:
    """The tensor in float64 (complex as pairs)."""
    return real(tensor.detach()).to(torch.float64)


def rms(values: torch.Tensor) -> float:
    """Root mean square; 0.0 of nothing. Scaled by the largest element where squares would overflow or vanish."""
    if values.numel() == 0:
        return 0.0
    norm = float(torch.linalg.vector_norm(values))  # one pass and no temporary, against four and three
    if 1e-140 < norm < 1e140 and values.dtype is torch.float64:
        return norm / math.sqrt(values.numel())
    top = peak(values)
    if top == 0.0 or not math.isfinite(top):
        return top
    return top * float((values / top).square().mean().sqrt())


def peak(values: torch.Tensor) -> float:
    """Largest absolute value; 0.0 of nothing."""
    if not values.numel():
        return 0.0
    low, high = torch.aminmax(values)
    return max(-float(low), float(high)) if low == low else math.nan


def band_of(exact: torch.Tensor) -> torch.Tensor:
    """Band index (0 is the largest magnitudes) of every element of a finite float64 tensor."""
    top = peak(exact)
    if top == 0.0:
        return torch.zeros(exact.shape, dtype=torch.int64, device=exact.device)
    below = torch.log2(top / exact.abs().clamp_min(5e-324)) / 4
    return below.clamp(0, BANDS - 1).to(torch.int64)


def band_rms(errors: torch.Tensor, bands: torch.Tensor) -> tuple[list[float], list[int]]:
    """RMS of the errors by band, and how many elements each band has."""
    flat, index = errors.reshape(-1), bands.reshape(-1)
    top = peak(flat) or 1.0
    sums = torch.zeros(BANDS, dtype=torch.float64, device=flat.device)
    sums.index_add_(0, index, (flat / top).square())
    counts = torch.bincount(index, minlength=BANDS)
    means = (sums / counts.clamp_min(1)).sqrt() * top
    return means.tolist(), counts.tolist()


def honest_floor(noises: Sequence[torch.Tensor], exact: torch.Tensor) -> Floor:
    """Pool several draws of honest error at one output (float64, shape of ``exact``).

    An error shared by all elements (one bad norm scales a whole row) makes the RMS of a draw vary like a single
    normal number; the spread between draws measures that, and widens the floor by up to 2.5 times.
    """
    sizes = [rms(noise) for noise in noises]
    if not sizes or exact.numel() == 0:
        return NO_FLOOR
    widen = _widening(sizes)
    bands = band_of(exact)
    by_band = [band_rms(noise, bands)[0] for noise in noises]
    return Floor(
        rms=max(sizes) * widen,
        peak=max(peak(noise) for noise in noises) * _widening([peak(noise) for noise in noises]),
        bands=tuple(max(column) * widen for column in zip(*by_band, strict=True)),
    )


def _widening(sizes: Sequence[float]) -> float:
    """1 + 2 * coefficient of variation, at most 2.5 (a half-normal has 0.75); 2.5 where there are too few to tell."""
    mean = sum(sizes) / len(sizes)
    if mean == 0.0:
        return 1.0
    if len(sizes) < 2:
        return 1.5
    spread = math.sqrt(sum((size - mean) ** 2 for size in sizes) / (len(sizes) - 1))
    return 1.0 + min(1.5, 2.0 * spread / mean)


def _classes(tensor: torch.Tensor) -> torch.Tensor:
    """0 finite, 1 NaN, 2 +Inf, 3 -Inf."""
    kind = torch.zeros(tensor.shape, dtype=torch.int8, device=tensor.device)
    kind[torch.isnan(tensor)] = 1
    kind[tensor == math.inf] = 2
    kind[tensor == -math.inf] = 3
    return kind


def _failure(detail: str, index: int, *, nonfinite: bool = False) -> Comparison:
    return Comparison(
        error_ratio=math.inf, bits_lost=math.inf, worst_index=index, nonfinite_mismatch=nonfinite, detail=detail
    )


def _first(mask: torch.Tensor) -> int:
    return int(torch.nonzero(mask.reshape(-1))[0, 0])


def bits_lost(ratio: float) -> float:
    """log2 of the ratio, at least 0."""
    return max(0.0, math.log2(ratio)) if ratio > 0 else 0.0


def compare(
    got: torch.Tensor, eager: torch.Tensor, exact: torch.Tensor, floor: Floor, dtype: torch.dtype
) -> Comparison:
    """Compare one output leaf with eager's and with the oracle's.

    ``got`` and ``eager`` have the reference's dtype; ``exact`` is float64 (or the integer dtype); all one shape.
    """
    if got.dtype != dtype or got.shape != eager.shape:
        return _failure(f"got {got.dtype}{list(got.shape)}, expected {dtype}{list(eager.shape)}", -1)
    if dtype in EXACT_DTYPES:
        return compare_exact(got, eager, exact)
    unwritten = still_poisoned(got)
    if bool(unwritten.any()):
        detail = f"unwritten: {int(unwritten.sum())} of {got.numel()} elements were never set"
        return _failure(detail, _first(unwritten), nonfinite=True)
    return _compare_floating(wide(got), wide(eager), wide(exact), floor, dtype)


def compare_exact(got: torch.Tensor, eager: torch.Tensor, exact: torch.Tensor) -> Comparison:
    """Integers and booleans: every element equals eager's, or the oracle's where the two disagree (rounded ties)."""
    wrong = (got != eager) & (got != exact.to(got.dtype))
    if bool(wrong.any()):
        at = _first(wrong)
        count = int(wrong.sum())
        unwritten = still_poisoned(got)
        word = "unwritten: " if bool(unwritten[wrong].all()) else ""
        shown = f"got {got.reshape(-1)[at].item()}, expected {eager.reshape(-1)[at].item()}"
        return _failure(f"{word}{count} of {got.numel()} exact elements differ; at {at}: {shown}", at)
    return Comparison(error_ratio=0.0, bits_lost=0.0, worst_index=-1, nonfinite_mismatch=False, detail="")


def _compare_floating(
    got: torch.Tensor, eager: torch.Tensor, exact: torch.Tensor, floor: Floor, dtype: torch.dtype
) -> Comparison:
    largest = torch.finfo(dtype).max
    kinds, honest = _classes(got), _classes(eager)
    ideal = _classes(torch.where(exact.abs() > largest, exact.sign() * math.inf, exact))
    wrong = (kinds != honest) & (kinds != ideal)
    if bool(wrong.any()):
        at = _first(wrong)
        shown = f"at {at}: got {got.reshape(-1)[at].item()}, expected {eager.reshape(-1)[at].item()}"
        detail = f"{int(wrong.sum())} of {got.numel()} elements differ in NaN or Inf; {shown}"
        return _failure(detail, at, nonfinite=True)
    usable = (kinds == 0) & (honest == 0) & (ideal == 0)
    every = bool(usable.all())
    got, eager, exact = (t.reshape(-1) if every else t[usable] for t in (got, eager, exact))
    if got.numel() == 0:
        return Comparison(error_ratio=0.0, bits_lost=0.0, worst_index=-1, nonfinite_mismatch=False, detail="")
    ratio, which, flat = _ratio(got - exact, eager - exact, exact, floor, dtype)
    index = flat if every else int(torch.nonzero(usable.reshape(-1))[flat, 0])
    return Comparison(
        error_ratio=ratio, bits_lost=bits_lost(ratio), worst_index=index, nonfinite_mismatch=False, detail=which
    )


def _ratio(
    error: torch.Tensor, eager: torch.Tensor, exact: torch.Tensor, floor: Floor, dtype: torch.dtype
) -> tuple[float, str, int]:
    """The worst of three ratios, its name, and the flat index of the largest error."""
    info = torch.finfo(dtype)
    size, top = rms(exact), peak(exact)
    rounding = info.eps / 2
    least = info.smallest_normal  # below it, flushing to zero is as honest as not
    base_rms = max(rms(eager), math.hypot(floor.rms, rounding * size / math.sqrt(3)), least)
    base_peak = max(peak(eager), floor.peak + rounding * top, least)
    ratios = {"RMS error": rms(error) / base_rms, "largest error": peak(error) / base_peak}
    bands = band_of(exact)
    mine, counts = band_rms(error, bands)
    theirs, _ = band_rms(eager, bands)
    rounded, _ = band_rms(exact * rounding, bands)
    for index, count in enumerate(counts):
        if count >= BAND_LEAST:
            base = max(theirs[index], math.hypot(floor.bands[index], rounded[index]), least)
            ratios[f"RMS error of magnitudes near 16^-{index} of the largest"] = mine[index] / base / BAND_SLACK
    name = max(ratios, key=lambda key: ratios[key])
    worst = int(error.abs().argmax())
    return ratios[name], f"{name} is {ratios[name]:.3g} times the honest error", worst


def compare_indices(got: torch.Tensor, eager: torch.Tensor, source: torch.Tensor) -> Comparison:
    """An integer output that indexes ``source``: the values pointed at must be equal, so ties may fall either way.

    ``got`` and ``eager`` index the flat source (argmax over all) or one of its dimensions, found by shape.
    """
    if got.dtype != eager.dtype or got.shape != eager.shape:
        return _failure(f"got {got.dtype}{list(got.shape)}, expected {eager.dtype}{list(eager.shape)}", -1)
    mine, theirs = _pointed(got, source), _pointed(eager, source)
    if mine is None or theirs is None:
        return _failure("an index is out of range", -1)
    wrong = (mine != theirs) & ~(mine.isnan() & theirs.isnan())
    if bool(wrong.any()):
        at = _first(wrong)
        count = int(wrong.sum())
        return _failure(f"{count} of {got.numel()} indices point at other values; first at {at}", at)
    return Comparison(error_ratio=0.0, bits_lost=0.0, worst_index=-1, nonfinite_mismatch=False, detail="")


def _pointed(index: torch.Tensor, source: torch.Tensor) -> torch.Tensor | None:
    """The values of ``source`` that ``index`` points at, or None where it points outside."""
    index = index.to(torch.int64)
    for dim in range(source.dim()):
        kept = (*source.shape[:dim], *source.shape[dim + 1 :])
        same_rank = index.dim() == source.dim() and all(
            index.shape[d] == source.shape[d] for d in range(source.dim()) if d != dim
        )
        if tuple(index.shape) == kept or same_rank:
            wide_index = index.unsqueeze(dim) if tuple(index.shape) == kept else index
            if index.numel() and (int(index.min()) < 0 or int(index.max()) >= source.shape[dim]):
                return None
            found = source.gather(dim, wide_index)
            return found.squeeze(dim) if tuple(index.shape) == kept else found
    if index.numel() and (int(index.min()) < 0 or int(index.max()) >= source.numel()):
        return None
    return source.reshape(-1)[index]
