# SPDX-License-Identifier: Apache-2.0
"""Whole numbers and booleans that an honest program may answer otherwise than the reference.

A place of a value that several elements hold may be any of theirs: torch says which only for some operators, and the
kernels of others differ (``argmax``, ``topk``, ``sort`` that need not be stable). And a number that is rounded to a
whole one, or compared, may fall to the other side where it lies within rounding of the border: ``x / (m / 127)`` and
``x * (127 / m)`` differ in one element of 10^5 or so. Both are asked only of an answer that is wrong otherwise.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch

from kernelwright.judge import calls, health, inputs, numerics, rounding
from kernelwright.judge.numerics import Comparison
from kernelwright.judge.oracle import Chosen, Float64Trace

if TYPE_CHECKING:
    from kernelwright.judge.instance import Instance
    from kernelwright.judge.verify import Truth

MOST = 4
"""One element in so many may lie near a border and be asked about; honest rounding of sums that cancel moves half."""
SLACK = 4.0
"""Times the honest rounding by which a border is approached, so that few draws suffice: one that honest rounding just
reaches is crossed by two draws of five."""
DRAWS, PATIENCE = 24, 4
"""Draws of such rounding (of elements as near as that 5 in 10^6 remain), and after how many a crowd of wrong elements
that has not halved is given up."""
CROWD = 16


def settled(instance: Instance, truth: Truth, index: int, got: torch.Tensor, found: Comparison) -> Comparison:
    """What ``found`` says of the answer ``got`` to output ``index``, or that it is right after all."""
    eager, exact = truth.eager[index], truth.exact[index]
    if got.shape != eager.shape or got.dtype != eager.dtype or not got.numel() or instance.without_double:
        return found
    if got.dtype is torch.bool and int(got.view(torch.uint8).max()) > 1:
        return found
    wrong = (got != eager) & (got != exact.to(got.dtype))
    try:
        wrong = _elsewhere(instance, truth, index, got, wrong)
    except calls.CAUGHT as error:
        health.pass_on(error)
    if bool(wrong.any()):
        return found
    return Comparison(error_ratio=0.0, bits_lost=0.0, worst_index=-1, nonfinite_mismatch=False, detail="")


def _elsewhere(instance: Instance, truth: Truth, index: int, got: torch.Tensor, wrong: torch.Tensor) -> torch.Tensor:
    """Which elements are still wrong when ties may fall either way, and borders are approached."""
    mode = Float64Trace()
    mode.chosen = []
    want = instance.doubled(truth.leaves, truth.state, mode)[index]
    if want.dtype == torch.int64:
        wrong = wrong & ~_tied(mode.chosen, got, want)
    unit = SLACK * rounding.unit_of(instance.all_specs())
    counts = [int(wrong.sum())]
    if counts[0] > max(1, wrong.numel() // MOST):
        return wrong
    for draw in range(DRAWS):
        if counts[-1] == 0 or counts[-1] > max(CROWD, counts[0] / 2) and draw >= PATIENCE:
            break
        rough = rounding.Rounded(unit, inputs.generator(draw, instance.device), few=True)
        other = instance.doubled(truth.leaves, truth.state, rough)[index]
        wrong = wrong & (got != other.to(got.dtype))
        counts.append(int(wrong.sum()))
    return wrong


def _tied(chosen: Sequence[Chosen], got: torch.Tensor, want: torch.Tensor) -> torch.Tensor:
    """Elements that point at values equal to those that the oracle's point at, in what these were chosen from."""
    right = torch.zeros_like(got, dtype=torch.bool)
    for func, args, kwargs, out in chosen:
        places = out if isinstance(out, torch.Tensor) else out[1] if len(out) > 1 else None
        if places is None or places.dtype != torch.int64 or places.numel() != want.numel() or args[0].dim() == 0:
            continue
        given = rounding.bound(func, args, kwargs)
        if given.get("stable") or not torch.equal(places.reshape(-1), want.reshape(-1)):
            continue
        right |= _same_values(got.reshape(places.shape), places, args[0], given).reshape(got.shape)
    return right


def _same_values(mine: torch.Tensor, theirs: torch.Tensor, source: torch.Tensor, given: dict[str, Any]) -> torch.Tensor:
    """The same for one operator; none where an index is out of range. Of several places that differ none may come
    twice."""
    dim = given.get("dim")
    if dim is None:
        source, dim = source.reshape(-1), 0
        mine, theirs = mine.reshape(-1), theirs.reshape(-1)
    kept = mine.dim() == source.dim()
    pair = [places if kept else places.unsqueeze(dim) for places in (mine, theirs)]
    if int(mine.min()) < 0 or int(mine.max()) >= source.shape[dim]:
        return torch.zeros_like(mine, dtype=torch.bool)
    values = [source.gather(dim, places) for places in pair]
    right = (values[0] == values[1]) | (values[0].isnan() & values[1].isnan())
    if pair[0].shape[dim] > 1:
        twice = numerics.repeated(pair[0], dim) & ~numerics.repeated(pair[1], dim)
        right &= ~twice.unsqueeze(dim)
    return right if kept else right.squeeze(dim)
