# SPDX-License-Identifier: Apache-2.0
"""What comparisons of tensors are made of: poison, sizes, exact outputs and indices (floats: ``yardstick``)."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import torch

EXACT_DTYPES = (torch.bool, torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64)
MOST_COUNTED = 1 << 24
"""Elements of a wrong output that are read once more to count how many are; 128 MiB in float64."""
_POISON_BITS = {8: 0x7FF5A5A5A5A5A5A5, 4: 0x7FE5A5A5, 2: 0x7FE5, 1: 0x65}


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
    """A complex tensor as pairs of reals, of a lazy conjugate too; others unchanged."""
    return torch.view_as_real(tensor.resolve_conj()) if tensor.is_complex() else tensor


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
    if tiny(values):
        values = values.float()
    low, high = torch.stack(torch.aminmax(values)).tolist()  # at once: a device is waited for each time it is asked
    return max(-float(low), float(high)) if low == low else math.nan


EIGHT_BITS = (
    torch.float8_e4m3fn,
    torch.float8_e4m3fnuz,
    torch.float8_e5m2,
    torch.float8_e5m2fnuz,
    torch.float8_e8m0fnu,
)
"""Floats that torch can copy and tell apart, and hardly anything else."""


def tiny(values: torch.Tensor) -> bool:
    """Whether they are floats of eight bits, of which torch neither says which is larger nor fills some."""
    return values.is_floating_point() and values.itemsize < 2


def held_bytes(tensors: Iterable[torch.Tensor]) -> int:
    """What their elements take."""
    return sum(tensor.numel() * tensor.element_size() for tensor in tensors)


def finite(values: torch.Tensor) -> bool:
    """Whether all elements are. In one pass without a temporary: torch.isfinite takes 60 ms of 256 MiB, 70 times a
    proof."""
    return not (values.is_floating_point() or values.is_complex()) or math.isfinite(peak(real(values)))


def failed(detail: str, index: int, *, nonfinite: bool = False) -> Comparison:
    """The comparison of an answer that is wrong however much error is allowed."""
    return Comparison(
        error_ratio=math.inf, bits_lost=math.inf, worst_index=index, nonfinite_mismatch=nonfinite, detail=detail
    )


def at(shape: Sequence[int], flat: int) -> str:
    """The place of an element, in words; empty below 0."""
    if flat < 0:
        return ""
    index = []
    for size in reversed(shape):
        index.append(flat % max(size, 1))
        flat //= max(size, 1)
    return f" at {tuple(reversed(index))}"


def shown(got: torch.Tensor, exact: torch.Tensor, at: int, *, brief: bool = False) -> str:
    """``; got 0.52, expected 0.61; 1020 of 1024 elements err by a tenth of that or more``: what the worst element is,
    what it should be, and (unless ``brief``: 0.1 s for 16 MB) whether a few places are wrong or the formula. Of real
    outputs alone."""
    if at < 0 or got.is_complex() or exact.is_complex():
        return ""
    mine, truth = got.detach().reshape(-1), exact.reshape(-1)
    one, other = float(mine[at]), float(truth[at])
    text = f"; got {one:.9g}, expected {other:.9g}"
    if brief or mine.numel() > MOST_COUNTED:
        return text
    far = (mine.to(truth.device, truth.dtype) - truth).abs() >= abs(one - other) / 10
    return f"{text}; {int(far.sum())} of {far.numel()} elements err by a tenth of that or more"


def first_of(mask: torch.Tensor) -> int:
    """Flat index of the first element that is set."""
    return int(torch.nonzero(mask.reshape(-1))[0, 0])


def bits_lost(ratio: float) -> float:
    """log2 of the ratio, at least 0."""
    return max(0.0, math.log2(ratio)) if ratio > 0 else 0.0


def worst_within(answer: torch.Tensor, exact: torch.Tensor, above: float, most: float) -> int:
    """Flat index of the largest error among elements of a size ``above`` one bound, and at ``most`` another."""
    place, largest = 0, -1.0
    for start in range(0, exact.numel(), MOST_COUNTED):
        part = exact[start : start + MOST_COUNTED]
        sizes = part.abs()
        error = torch.sub(answer[start : start + MOST_COUNTED], part).abs_().nan_to_num_(0.0, 0.0, 0.0)
        error = error.masked_fill_(~((sizes > above) & (sizes <= most)), -1.0)
        at = int(error.argmax())
        if float(error[at]) > largest:
            place, largest = start + at, float(error[at])
    return place


def compare_exact(got: torch.Tensor, eager: torch.Tensor, exact: torch.Tensor) -> Comparison:
    """Integers and booleans: every element equals eager's, or the oracle's where the two disagree (rounded ties).

    A boolean is a byte of 0 or 1: of another one torch says that it is true, and casts and sums it as what it is.
    """
    if got.dtype is torch.bool and got.numel() and int((bits := got.view(torch.uint8)).max()) > 1:
        return failed(f"booleans in bytes that are neither 0 nor 1 (up to {int(bits.max())})", first_of(bits > 1))
    wrong = (got != eager) & (got != exact.to(got.dtype))
    if bool(wrong.any()):
        at = first_of(wrong)
        count = int(wrong.sum())
        unwritten = still_poisoned(got)
        word = "unwritten: " if bool(unwritten[wrong].all()) else ""
        shown = f"got {got.reshape(-1)[at].item()}, expected {eager.reshape(-1)[at].item()}"
        return failed(f"{word}{count} of {got.numel()} exact elements differ; at {at}: {shown}", at)
    return Comparison(error_ratio=0.0, bits_lost=0.0, worst_index=-1, nonfinite_mismatch=False, detail="")


def compare_indices(got: torch.Tensor, eager: torch.Tensor, source: torch.Tensor) -> Comparison:
    """An integer output that indexes ``source``: the values pointed at must be equal, so ties may fall either way.

    ``got`` and ``eager`` index the flat source (argmax over all) or one of its dimensions, found by shape.
    """
    if got.dtype != eager.dtype or got.shape != eager.shape:
        return failed(f"got {got.dtype}{list(got.shape)}, expected {eager.dtype}{list(eager.shape)}", -1)
    dim = _dimension(eager, source)
    mine, theirs = pointed(got, source, dim), pointed(eager, source, dim)
    if mine is None or theirs is None:
        return failed("an index is out of range", -1)
    wrong = (mine != theirs) & ~(mine.isnan() & theirs.isnan())
    if bool(wrong.any()):
        at = first_of(wrong)
        count = int(wrong.sum())
        return failed(f"{count} of {got.numel()} indices point at other values; first at {at}", at)
    if dim is not None and got.dim() == source.dim():  # a rank of its own: several indices along the dimension
        again = repeated(got, dim) & ~repeated(eager, dim)
        if bool(again.any()):
            return failed("an index appears twice where the reference's are all different", first_of(again))
    return Comparison(error_ratio=0.0, bits_lost=0.0, worst_index=-1, nonfinite_mismatch=False, detail="")


def _dimension(index: torch.Tensor, source: torch.Tensor) -> int | None:
    """Which dimension of ``source`` the reference's ``index`` runs over; None: the flat source.

    Where the shapes leave it open, the one whose indices are all different, or whose values are the extreme ones.
    """
    fits = []
    for dim in range(source.dim()):
        kept = (*source.shape[:dim], *source.shape[dim + 1 :])
        same_rank = index.dim() == source.dim() and all(
            index.shape[d] == source.shape[d] for d in range(source.dim()) if d != dim
        )
        if tuple(index.shape) == kept or same_rank:
            fits.append(dim)
    for dim in reversed(fits) if len(fits) > 1 else ():
        if index.dim() == source.dim():
            if not bool(repeated(index, dim).any()):
                return dim
            continue
        found = pointed(index, source, dim)
        if found is not None and any(torch.equal(found, f(source, dim)) for f in (torch.amax, torch.amin)):
            return dim
    return fits[-1] if fits else None


def repeated(index: torch.Tensor, dim: int) -> torch.Tensor:
    """Per slice along ``dim``: whether a value appears twice."""
    ordered = index.sort(dim).values
    size = ordered.shape[dim]
    if size < 2:
        return torch.zeros((), dtype=torch.bool, device=index.device)
    return (ordered.narrow(dim, 1, size - 1) == ordered.narrow(dim, 0, size - 1)).any(dim)


def pointed(index: torch.Tensor, source: torch.Tensor, dim: int | None) -> torch.Tensor | None:
    """The values of ``source`` that ``index`` points at, or None where it points outside."""
    index = index.to(torch.int64)
    size = source.numel() if dim is None else source.shape[dim]
    if index.numel() and (int(index.min()) < 0 or int(index.max()) >= size):
        return None
    if dim is None:
        return source.reshape(-1)[index]
    if index.dim() == source.dim():
        return source.gather(dim, index)
    return source.gather(dim, index.unsqueeze(dim)).squeeze(dim)


def classes(tensor: torch.Tensor) -> torch.Tensor:
    """Of each element: 0 finite, 1 NaN, 2 +Inf, 3 -Inf, in int8."""
    kind = torch.zeros(tensor.shape, dtype=torch.int8, device=tensor.device)
    kind[torch.isnan(tensor)] = 1
    kind[tensor == math.inf] = 2
    kind[tensor == -math.inf] = 3
    return kind
