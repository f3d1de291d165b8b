# SPDX-License-Identifier: Apache-2.0
"""Whole numbers and booleans that an honest program may answer otherwise than the reference.

A place of a value that several elements hold may be any of theirs: torch says which only for some operators, and the
kernels of others differ (``argmax``, ``topk``, ``sort`` that need not be stable). And a number that is rounded to a
whole one, or compared, may fall to the other side where it lies within rounding of the border: ``x / (m / 127)`` and
``x * (127 / m)`` differ in one element of 10^5 or so. Both are asked only of an answer that is wrong otherwise.

So may floats that hang on such a number: a sign, a row of a table, a step of a quantiser. Draws of the honest error
mostly cross a border that an answer crosses too, and then nobody asks here; of the signs of 24576 sums of 64 products,
added up in halves, one call in 1500 had one on the other side, and 4 in 10 of those were refused.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import torch

from kernelwright.judge import calls, health, inputs, numerics, rounding
from kernelwright.judge.numerics import Comparison
from kernelwright.judge.oracle import Chosen, Float64Trace
from kernelwright.judge.variants import LIGHT

if TYPE_CHECKING:
    from kernelwright.judge.instance import Instance
    from kernelwright.judge.verify import Truth
    from kernelwright.judge.yardstick import Yardstick

MOST = 4
"""One element in so many may lie near a border and be asked about; honest rounding of sums that cancel moves half."""
SLACK = 4.0
"""Times the honest rounding by which a border is approached, so that few draws suffice: one that honest rounding just
reaches is crossed by two draws of five."""
DRAWS, PATIENCE = 24, 4
"""Draws of such rounding (of elements as near as that 5 in 10^6 remain), and after how many a crowd of wrong elements
that has not halved is given up."""
CROWD = 16
DEAR_DRAWS = 8
"""As many at the most where a call is work: of 2^22 elements a draw takes half a second and more."""
JUMP, BESIDE = 16.0, 8.0
"""Times the honest error by which a float lies on the other side of a border, and by which it may lie beside what a
draw gives there: SLACK moves none that stays on this side by over 5. It may lie between the two sides."""
FEW = 16
"""One float in so many may be beyond a border: a row of a table is, where one choice of a row is."""


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


def held(instance: Instance, truth: Truth, index: int, got: torch.Tensor, yardstick: Yardstick) -> Comparison:
    """What ``yardstick`` says of the floats ``got`` at output ``index``. Where it refuses them, of those without the
    few that lie where the reference, rounded otherwise, lies too, far beyond what rounding alone moves anything by.
    Only where one of its operators jumps: such answers are drawn, and admission would take minutes for its decoys."""
    limit, exact = instance.contract.bits_lost, truth.exact[index]
    found = yardstick.compare(got, limit)
    if found.bits_lost <= limit or found.nonfinite_mismatch or not yardstick.plain:
        return found
    if got.shape != exact.shape or not got.is_floating_point() or instance.without_double or not instance.jumps:
        return found
    wide = got.to(torch.float64)
    far, beside = JUMP * yardstick.peak, BESIDE * yardstick.peak
    beyond = (wide - exact).abs() > far
    if not 0 < int(beyond.sum()) <= max(1, beyond.numel() // FEW):
        return found

    def crossed(other: torch.Tensor) -> torch.Tensor:
        between = (wide - exact) * (wide - other) <= 0.0  # the sign of a sum that is zero
        return ((other - exact).abs() > far) & (between | ((wide - other).abs() <= beside))

    try:
        if bool(_left(instance, truth, index, beyond, crossed).any()):
            return found
    except calls.CAUGHT as error:
        health.pass_on(error)
        return found
    return yardstick.compare(torch.where(beyond, exact.to(got.dtype), got), limit)


def _left(
    instance: Instance,
    truth: Truth,
    index: int,
    wrong: torch.Tensor,
    agrees: Callable[[torch.Tensor], torch.Tensor],
) -> torch.Tensor:
    """Which ``wrong`` elements agree with no answer that the reference gives with SLACK times honest rounding."""
    unit = SLACK * rounding.unit_of(instance.all_specs())
    first = left = int(wrong.sum())
    for draw in range(DRAWS if instance.work <= LIGHT else DEAR_DRAWS):
        if left == 0 or left > max(CROWD, first / 2) and draw >= PATIENCE:
            break
        rough = rounding.Rounded(unit, inputs.generator(draw, instance.device), few=True)
        wrong = wrong & ~agrees(instance.doubled(truth.leaves, truth.state, rough)[index])
        left = int(wrong.sum())
    return wrong


def _elsewhere(instance: Instance, truth: Truth, index: int, got: torch.Tensor, wrong: torch.Tensor) -> torch.Tensor:
    """Which elements are still wrong when ties may fall either way, and borders are approached."""
    mode = Float64Trace()
    mode.chosen = []
    want = instance.doubled(truth.leaves, truth.state, mode)[index]
    if want.dtype == torch.int64:
        wrong = wrong & ~_tied(mode.chosen, got, want)
    if int(wrong.sum()) > max(1, wrong.numel() // MOST):
        return wrong
    return _left(instance, truth, index, wrong, lambda other: got == other.to(got.dtype))


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
