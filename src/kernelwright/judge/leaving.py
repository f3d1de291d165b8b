# SPDX-License-Identifier: Apache-2.0
"""After which calls it is looked at what they leave in parameters and buffers, and what is right there.

What eager leaves is rounded too, and not always well: a running variance as E[x^2] - E[x]^2 in float32 is off by 9.3e-5
where inputs lie around 100, one of two passes by 2.8e-8. The latter was refused for what it had better. So what lies
apart from eager's is compared with what the reference leaves in float64, before anybody is refused.
"""

from __future__ import annotations

import functools
import math
import random
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import torch

from kernelwright.judge import calls, health, numerics, spot_checks, variants, weights
from kernelwright.judge.oracle import Float64Trace

if TYPE_CHECKING:
    from kernelwright.judge.bench import Point
    from kernelwright.judge.inputs import Variant
    from kernelwright.judge.instance import Instance
    from kernelwright.judge.weights import State

SLACK = 64.0
"""Units of the last place by which running statistics may differ from the reference's (RMS over the buffer)."""
EARLIER = 2
"""Calls that were before, where a state is begun from what they left."""


def looked_at(variant: Variant) -> bool:
    """Whether it is looked at what a call with it leaves: of ``variants.LEAVING``; of larger numbers, which a cap cuts;
    of small ones, which a floor lifts. Of inputs of usual size no variance is below 0.01, and one that was never less
    passed; of those a thousandth of that it is 1e-6."""
    if variant.change in variants.LEAVING:
        return True
    small = 0.0 < variant.scale < 1.0 and not (variant.change or variant.group)
    return small or variant.scale > 1.0 and variant.name == variant.group


def begun(point: Point, before: State, dice: random.Random) -> State | None:
    """What some calls left, with whole numbers and flags as they are at first; None where calls leave no other floats,
    or some that are no longer finite.

    A checkpoint from before there was a counter loads so. In all other states that are drawn a counter is further on,
    or nothing has been counted: who writes what one call leaves of zeros and ones while ``num_batches_tracked`` is 0,
    whatever stands there, was right in all of them.
    """
    instance = point.instance
    given = [instance.draw(point.as_given, dice.getrandbits(62)) for _ in range(EARLIER)]
    after = instance.state_after(given, before)
    floats = [(now, was) for (_, now), (_, was) in zip(after, before, strict=True) if _floating(now)]
    if after is before or all(torch.equal(now, was) for now, was in floats):
        return None
    if any(numerics.finite(was) and not numerics.finite(now) for now, was in floats):
        return None
    first = instance.first_state
    return [now if _floating(now[1]) else one for now, one in zip(after, first, strict=True)]


class Left:
    """What is right after some calls of a reference in turn, that began with the state ``before``."""

    def __init__(self, instance: Instance, given: Sequence[Sequence[torch.Tensor]], before: State) -> None:
        self._instance, self._given, self._before = instance, given, before
        self.theirs = instance.state_after(given, before)
        """What eager leaves."""

    @functools.cached_property
    def exact(self) -> Mapping[str, torch.Tensor]:
        """What the reference leaves in float64; nothing where that is not known, where it is random (of other numbers
        drawn anything is as near), or where calls leave all as it was."""
        instance, now = self._instance, self._before
        if instance.without_double or instance.contract.random or self.theirs is self._before:
            return {}
        try:
            for leaves in self._given:
                instance.doubled(leaves, now, Float64Trace())
                assert instance.double is not None
                now = weights.read(instance.double)
        except calls.CAUGHT as error:
            health.pass_on(error)
            return {}
        return dict(now)

    def wrong(self, name: str, mine: torch.Tensor, theirs: torch.Tensor) -> str:
        """Empty where a program may leave ``mine`` there, as near to eager's as SLACK allows; or no further from
        float64's than that, or than eager's own times what the contract allows. Else how far off it is.

        Whole numbers and flags are eager's, or those of float64.
        """
        if torch.equal(mine, theirs):  # 256 MB of distances take 0.7 s
            return ""
        allowed = SLACK * torch.finfo(theirs.dtype).eps if _floating(theirs) else 0.0
        far = _apart(mine, theirs)
        if far <= allowed:
            return ""
        own = eagers = math.inf
        if (true := self.exact.get(name)) is not None and true.shape == mine.shape:
            own, eagers = _apart(mine, true), _apart(theirs, true)
            usual = 2.0**self._instance.contract.bits_lost * eagers if _floating(theirs) else 0.0
            if own <= max(allowed, usual if math.isfinite(usual) else 0.0):
                return ""
        return _words(mine, theirs, (far, own, eagers), allowed)


def _apart(values: torch.Tensor, true: torch.Tensor) -> float:
    """RMS of the differences, in the RMS of what is right; of whole numbers the share that differs."""
    if true.dtype is torch.float64 and _floating(values):
        values = numerics.wide(values)
    return spot_checks.distances([values], [true], None)[0]


def _words(mine: torch.Tensor, theirs: torch.Tensor, seen: tuple[float, float, float], allowed: float) -> str:
    """How far off, for a message: ``seen`` are the distances from eager's, and of both from float64's."""
    far, own, eagers = seen
    if not _floating(theirs):
        wrong = mine != theirs
        most = float((mine[wrong].double() - theirs[wrong].double()).abs().max())
        return f" ({int(wrong.sum())} of {wrong.numel()} differ, by up to {most:g})"
    if not math.isfinite(far):
        return " (zero, or not finite, where the other is not)"
    most = spot_checks.distances([mine], [theirs], None)[1]
    shown = f"off by up to {most:.1e} of its RMS, {far:.1e} in RMS, {allowed:.1e} allowed"
    if math.isfinite(own) and math.isfinite(eagers):
        shown += f"; {own:.1e} off what it leaves in float64, and the reference's own {eagers:.1e}"
    return f" ({shown})"


def _floating(value: torch.Tensor) -> bool:
    return value.is_floating_point() or value.is_complex()
