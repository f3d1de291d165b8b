# SPDX-License-Identifier: Apache-2.0
"""Whole numbers and booleans that an honest program may answer otherwise than the reference.

A place of a value that several elements hold may be any of theirs: torch says which only for some operators, and the
kernels of others differ (``argmax``, ``topk``, ``sort`` that need not be stable). And a number that is rounded to a
whole one, or compared, may fall to the other side where it lies within rounding of the border: ``x / (m / 127)`` and
``x * (127 / m)`` differ in one element of 10^5 or so. Both are asked only of an answer that is wrong otherwise.

So may floats that hang on such a number: a sign, a row of a table, a step of a quantiser. Draws of the honest error
mostly cross a border that an answer crosses too, and then nobody asks here; of the signs of 24576 sums of 64 products,
added up in halves, one call in 1500 had one on the other side, and 4 in 10 of those were refused. An infinity that is
filled in where a comparison says so is one too, where a draw has it, or has none, at that very place.

And so may a softmax of scores so large that they are whole steps apart: which of two keys a row of attention takes is
then a matter of rounding (of inputs near -24000 one call in 500, summed one by one, took another and was refused).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import torch

from kernelwright.judge import calls, exchanged, health, inputs, numerics, rounding, sides, ties
from kernelwright.judge.floors import BANDS
from kernelwright.judge.numerics import Comparison
from kernelwright.judge.oracle import Float64Trace
from kernelwright.judge.units import unit_of
from kernelwright.judge.variants import HEAVY, LIGHT
from kernelwright.judge.whole import INTEGERS

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
CROWD = 128
"""Elements that fall together: a row of attention, which takes another key."""
DEAR_DRAWS = 8
"""As many at the most where a call is work: of 2^22 elements a draw takes half a second and more on a CPU. A GPU makes
all of them up to HEAVY: of 84 million codes by a reciprocal 49 fell to the other side, and 8 draws met not all."""
JUMP, BESIDE = 16.0, 8.0
"""Times the honest error by which a float lies on the other side of a border, and by which it may lie beside what a
draw gives there: SLACK moves none that stays on this side by over 5. It may lie between the two sides."""
FEW = 16
"""One float in so many may be beyond a border: a row of a table is, where one choice of a row is."""


def settled(
    instance: Instance, truth: Truth, index: int, answers: Sequence[torch.Tensor], found: Comparison
) -> Comparison:
    """What ``found`` says of the answer to output ``index``, or that it is right after all. ``answers``: those to all
    outputs, for what was made of one place must agree on it."""
    eager, exact, got = truth.eager[index], truth.exact[index], answers[index]
    if got.shape != eager.shape or got.dtype != eager.dtype or not got.numel():
        return found
    if got.dtype is torch.bool and int(got.view(torch.uint8).max()) > 1:
        return found
    wrong = (got != eager) & (got != exact.to(got.dtype))
    try:
        if not instance.without_double:
            wrong = _elsewhere(instance, truth, index, answers, wrong)
        if instance.sorts and bool(wrong.any()) and _as_ordered(instance, truth, answers):
            wrong = torch.zeros_like(wrong)
    except calls.CAUGHT as error:
        health.pass_on(error)
    if bool(wrong.any()):
        return found
    return Comparison(error_ratio=0.0, bits_lost=0.0, worst_index=-1, nonfinite_mismatch=False, detail="")


def held(
    instance: Instance, truth: Truth, index: int, got: torch.Tensor, yardstick: Yardstick, *, brief: bool = False
) -> Comparison:
    """What ``yardstick`` says of the floats ``got`` at output ``index``. Where it refuses them, of those without the
    few that lie where the reference, rounded otherwise, lies too, far beyond what rounding alone moves anything by.
    Only where one of its operators jumps, or is as steep as an exponential, and there not of what is known to be wrong
    (``brief``): such answers are drawn, which took 25 of the 31 s that admission takes for the examples' decoys."""
    limit, exact = instance.contract.bits_lost, truth.exact[index]
    found = yardstick.compare(got, limit)
    if found.bits_lost > limit and instance.sorts and got.shape == exact.shape and not instance.without_double:
        found = _ordered(instance, truth, index, got, yardstick, found)
    if found.bits_lost <= limit:
        return found
    if got.shape != exact.shape or not got.is_floating_point() or instance.without_double:
        return found
    if not (instance.jumps or instance.steep and not brief) or bool(numerics.still_poisoned(got).any()):
        return found
    wide = got.to(torch.float64)
    near = _near(yardstick, exact)
    far, beside = JUMP * near, BESIDE * near
    odd = yardstick.odd(wide.reshape(-1)).reshape(wide.shape)
    beyond = odd | ((wide - exact).abs() > far) & exact.isfinite() & wide.isfinite()
    if not 0 < int(beyond.sum()) <= max(1, beyond.numel() // FEW):
        return found

    def crossed(other: torch.Tensor) -> torch.Tensor:
        between = ((wide - exact) * (wide - other) <= 0.0) & ~odd  # the sign of a sum that is zero
        like = (wide == other) & odd | between | ((wide - other).abs() <= beside)
        return ((other - exact).abs() > far) & like

    try:
        kinks = _beside(instance, truth, index, crossed)
        if bool(_left(instance, truth, index, beyond & ~kinks, crossed).any()):
            return found
    except calls.CAUGHT as error:
        health.pass_on(error)
        return found
    return yardstick.compare(torch.where(beyond, exact.to(got.dtype), got), limit)


def _near(yardstick: Yardstick, exact: torch.Tensor) -> torch.Tensor:
    """What honest rounding errs by at each element: as the largest error, or as its band of magnitudes where this is
    less. Draws that cross borders of large elements say nothing of the only small one that lies on such: a code of
    eight bits among 20 of its band was refused in one of 60 draws."""
    near, sizes, top = torch.full_like(exact, yardstick.peak), exact.abs(), yardstick.scale.top
    for band, base in yardstick.bands.items():
        within = (sizes <= top * 16.0**-band) & ((sizes > top * 16.0 ** -(band + 1)) | (band == BANDS - 1))
        near.masked_fill_(within, min(base, yardstick.peak))
    return near


def _ordered(
    instance: Instance, truth: Truth, index: int, got: torch.Tensor, yardstick: Yardstick, found: Comparison
) -> Comparison:
    """What is said of an answer without what differs where equal values are in another order, and is as in that one:
    which of equal logits are masked, which of the rows of an expert comes first, whose is the gradient of a largest."""
    eager, exact, limit = truth.eager[index], truth.exact[index], instance.contract.bits_lost
    if got.dtype != eager.dtype or not got.is_floating_point():
        return found
    try:
        moves, ends = False, (ties.Ordered(False), ties.Ordered(True))
        for order in (*ends, ties.Ordered(False, before=True), ties.Ordered(False, where=got), ties.Shared()):
            if order not in ends and not moves:  # neither the first nor the last of equal ones: it hangs on none
                return found
            with order:
                other = instance.doubled(truth.leaves, truth.state, Float64Trace())[index]
            differs = other != exact
            if not bool(differs.any()):
                continue
            wide, moves = got.to(torch.float64), True
            near = (wide == other) | ((wide - other).abs() <= BESIDE * yardstick.peak)
            usual = torch.where(near & differs, exact.to(got.dtype), got)
            if (said := yardstick.compare(usual, limit)).bits_lost <= limit:
                return said

        def run(mode: exchanged.Turned) -> list[torch.Tensor]:
            with mode:
                return instance.doubled(truth.leaves, truth.state, Float64Trace())

        most = exchanged.TURNS if instance.work <= LIGHT else exchanged.DEAR_TURNS
        put = exchanged.restored(got, run, index, BESIDE * yardstick.peak, exact, most)
        if put is not None and (said := yardstick.compare(put, limit)).bits_lost <= limit:
            return said
    except calls.CAUGHT as error:
        health.pass_on(error)
    return found


def _beside(
    instance: Instance, truth: Truth, index: int, agrees: Callable[[torch.Tensor], torch.Tensor]
) -> torch.Tensor:
    """Where a gradient is one of inputs that are larger or smaller by their last bit: at a kink, as hardswish has at 3,
    that of either side is one, and of halves one number in 10^4 is 3. Zeros stay: of those a ReLU makes a half."""
    first, found = len(instance.out_specs), torch.zeros_like(truth.exact[index], dtype=torch.bool)
    for side in (1.0, -1.0) if first <= index < first + len(instance.wanted or ()) else ():
        bits = [torch.finfo(x.dtype).eps * side if x.is_floating_point() else 0 for x in truth.leaves]
        moved = calls.Given(x * (1 + bit) if bit else x for x, bit in zip(truth.leaves, bits, strict=True))
        moved.incoming = truth.leaves.incoming if isinstance(truth.leaves, calls.Given) else None
        found |= agrees(instance.doubled(moved, truth.state, Float64Trace())[index])
    return found


def _left(
    instance: Instance,
    truth: Truth,
    index: int,
    wrong: torch.Tensor,
    agrees: Callable[[torch.Tensor], torch.Tensor],
) -> torch.Tensor:
    """Which ``wrong`` elements agree with no answer that the reference gives with SLACK times honest rounding; flags,
    with comparisons that such rounding had on both sides on either, each by itself (``sides``)."""
    unit = SLACK * unit_of(instance.all_specs())
    first = left = int(wrong.sum())
    light = instance.work <= (LIGHT if instance.device.type == "cpu" else HEAVY)
    draws, seen = DRAWS if light else DEAR_DRAWS, sides.Sides()
    flags, draw = truth.eager[index].dtype is torch.bool, 0
    while draw < draws or flags and draw - draws < min(seen.patterns(), sides.PATTERNS if light else DEAR_DRAWS):
        crowd = left > max(CROWD, first / 2) and draw >= PATIENCE
        if left == 0 or crowd and not (light and seen.patterns()):  # flags of rows all alike hang on several sides
            break
        rng, pattern = inputs.generator(draw, instance.device), draw - draws if draw >= draws else None
        rough = sides.Sided(unit, rng, seen, pattern) if flags else rounding.Rounded(unit, rng, few=True)
        wrong = wrong & ~agrees(instance.doubled(truth.leaves, truth.state, rough)[index])
        left, draw = int(wrong.sum()), draw + 1
    return wrong


def _elsewhere(
    instance: Instance, truth: Truth, index: int, answers: Sequence[torch.Tensor], wrong: torch.Tensor
) -> torch.Tensor:
    """Which elements are still wrong when ties may fall either way, and borders are approached."""
    got = answers[index]
    if got.dtype in INTEGERS:
        wrong = wrong & ~_tied(instance, truth, index, answers)
    if int(wrong.sum()) > max(1, wrong.numel() // MOST):
        return wrong
    return _left(instance, truth, index, wrong, lambda other: got == other.to(got.dtype))


def _as_ordered(instance: Instance, truth: Truth, answers: Sequence[torch.Tensor]) -> bool:
    """Whether all whole numbers of an answer, and flags, are those of one run of the reference that takes equal values
    in another order: the first of them first, the last, or as the answer's own places have them. An inverse of an
    order, ranks, a mask of what was chosen and counts by expert follow it, all of them the same one."""
    whole = [i for i, answer in enumerate(answers) if answer.dtype is torch.bool or answer.dtype in INTEGERS]

    runs: list[Callable[[], Sequence[torch.Tensor]]] = [lambda: instance.eager(truth.leaves, truth.state)]
    if not instance.without_double:  # equal ones that vanish in float32 alone may have cost it that
        runs.append(lambda: instance.doubled(truth.leaves, truth.state, Float64Trace()))
    for run in runs:
        told: dict[int, torch.Tensor] = {}
        for order in (ties.Ordered(False), ties.Ordered(True), ties.Ordered(True, told)):
            with order:
                outputs = run()
            if all(torch.equal(answers[i], outputs[i].to(answers[i].dtype)) for i in whole):
                return True
            spots = {outputs[i].data_ptr(): answers[i] for i in whole if outputs[i].numel()}
            for number, places in enumerate(order.chosen):
                said = spots.get(places.data_ptr())
                if said is not None and said.numel() == places.numel():
                    told[number] = said.reshape(places.shape)
            if order.last and not told:
                break
    return False


def _tied(instance: Instance, truth: Truth, index: int, answers: Sequence[torch.Tensor]) -> torch.Tensor:
    """Elements that say places of values equal to those that eager's, or the oracle's, say: equal numbers of float32
    (probabilities that vanish, sigmoids of 1) are none in float64, and what float32 rounds apart may be equal there."""
    ours, exact = ties.Noted(), ties.Noted()
    with ours:
        own = instance.eager(truth.leaves, truth.state)
    with exact:
        doubled = instance.doubled(truth.leaves, truth.state, Float64Trace())
    kinds = [choice.values.dtype for choice in ours.choices]
    kinds = kinds if len(kinds) == len(exact.choices) else []
    right = torch.zeros_like(answers[index], dtype=torch.bool)
    for noted, outputs in ((ours, own), (exact, doubled)):
        found = ties.right(noted, outputs, index, answers, kinds)
        right = right if found is None else right | found
    return right
