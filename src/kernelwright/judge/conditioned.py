# SPDX-License-Identifier: Apache-2.0
"""Errors held against what honest rounding does to elements of their own kind, where a reference has more than one.

An output may be exact to seven digits in one half and to three in the other, both of one size: a sine of large angles
beside a hyperbolic tangent. Its error as a whole is that of the worse half, and a tanh in half precision would pass
beside it. So elements are sorted by how far draws of the honest error (``rounding``) move each of them, and those that
hardly move are held to that. Only where a reference errs by many roundings as a whole, and the answer too: elsewhere
there is nothing to hide behind. Not where a reference solves systems (``domains.IN_SYSTEMS``): what those round moves
all elements along few directions, and where these have zeros another algorithm's need have none (by QR instead of LU 19
times as much in 157 of 32768 elements).

What is compared is the error that three quarters of a kind stay within (MOST), for an honest program may have a few
elements on the other side of a border.
"""

from __future__ import annotations

import functools
import math
from typing import TYPE_CHECKING

import torch

from kernelwright.judge import calls, domains, health, inputs, noise, numerics, rounding
from kernelwright.judge.numerics import Comparison
from kernelwright.judge.variants import HEAVY

if TYPE_CHECKING:
    from kernelwright.judge.instance import Instance
    from kernelwright.judge.verify import Truth
    from kernelwright.judge.yardstick import Yardstick

COARSE = 256.0
"""Roundings of the whole output (RMS) from which on an error can hide another kind's: half precision errs by 2^12."""
LOOKS = 2
"""Calls of a case that are looked at so closely: who computes a kind of element coarsely does so in all."""
DRAWS = 6
"""Draws of the honest error. An element that it moves by the whole's RMS lies below 2^-8 of that in all of them, and in
eager's answer, once in 10^16 times."""
SHOWN = 1 / 8
"""Of the honest error that each draw has to show (RMS). Where draws of a solution by ``torch.linalg.solve`` had none,
for its inputs were not moved, a kind was what eager had right by luck."""
STEP, FIRST, LAST = 16.0, 2, 7
"""Kinds are STEP apart in error, and looked at from STEP^-FIRST of the whole's on, where they are well apart."""
FEWEST = 32
"""Elements of a kind."""
MOST = 3 / 4
"""Of the elements of a kind; by their median a tanh that was coarse in 40 of 100 rows passed."""
SLACK = 32.0
"""Times the largest error of a kind that MOST of an answer's may be, the bit that is allowed aside: 64 to 1024
times what rounding does there. Half precision errs 4096 times as much as single."""
ROUNDINGS, OF_ALL = 32.0, 2.0
"""Roundings of an element, and of the whole output, that are held against nobody."""


class Conditioned:
    """Looks at the first answers to one case that pass otherwise. Not thread-safe."""

    def __init__(self) -> None:
        self._looks = 0

    def held(
        self,
        instance: Instance,
        truth: Truth,
        index: int,
        got: torch.Tensor,
        yardstick: Yardstick,
        found: Comparison,
    ) -> Comparison:
        """``found`` of the floats ``got`` at output ``index``, or what is wrong with a kind of its elements."""
        if found.bits_lost > instance.contract.bits_lost or self._looks >= LOOKS or not yardstick.plain:
            return found
        unit = COARSE * numerics.unit_roundoff(got.dtype) * yardstick.scale.own.rms
        if yardstick.honest <= unit or instance.without_double or instance.work > HEAVY:
            return found
        if domains.SYSTEMS in instance.met["traits"]:
            return found
        exact = yardstick.scale.exact
        error = _apart(got, exact)
        # More than that is right where equal values are taken in another order (``choices``).
        if not unit < numerics.rms(error) <= 2.0**instance.contract.bits_lost * yardstick.honest:
            return found
        self._looks += 1
        try:
            moved = _moved(instance, truth, index, exact, yardstick.honest)
            limit = instance.contract.bits_lost
            return found if moved is None else _worst(error, moved, yardstick, got.dtype, limit) or found
        except calls.CAUGHT as problem:
            health.pass_on(problem)
            return found


def _moved(instance: Instance, truth: Truth, index: int, exact: torch.Tensor, honest: float) -> torch.Tensor | None:
    """How far honest rounding moved each element, at the most: in eager's answer, and in DRAWS draws. None where these
    err by far less than what is ``honest``: they do not show where that comes from."""
    moved = _apart(truth.eager[index], exact)
    unit = instance.units.of(index)
    for draw in range(DRAWS):
        rng = inputs.generator(draw, instance.device)
        move = functools.partial(noise.half_ulps, unit=unit, rng=rng)
        other = instance.doubled(truth.leaves, truth.state, rounding.Rounded(unit, rng), move)[index]
        error = _apart(other, exact)
        if not numerics.rms(error) >= SHOWN * honest:
            return None
        moved = torch.maximum(moved, error)
    return moved


def _apart(answer: torch.Tensor, exact: torch.Tensor) -> torch.Tensor:
    """How far each number of an answer is from an exact one, which may have been brought to the host (``hosted``)."""
    return (numerics.wide(answer).reshape(-1).to(exact.device) - exact).abs_()


def _worst(
    error: torch.Tensor, moved: torch.Tensor, yardstick: Yardstick, dtype: torch.dtype, limit: float
) -> Comparison | None:
    """The kind that errs most of those that lose more than ``limit`` bits, or None."""
    exact, unit = yardstick.scale.exact.abs(), numerics.unit_roundoff(dtype)
    worst: Comparison | None = None
    for step in range(FIRST, LAST):
        edge = yardstick.honest * STEP**-step
        kind = torch.nonzero((moved <= edge) & ((moved > edge / STEP) | (step == LAST - 1))).reshape(-1)
        if kind.numel() < FEWEST:
            continue
        roundings = unit * max(ROUNDINGS * float(exact[kind].median()), OF_ALL * yardstick.scale.own.rms)
        reached = float(error[kind].kthvalue(math.ceil(MOST * kind.numel())).values)
        ratio = reached / max(SLACK * edge, roundings)
        if numerics.bits_lost(ratio) > max(limit, worst.bits_lost if worst else 0.0):
            worst = Comparison(
                error_ratio=ratio,
                bits_lost=numerics.bits_lost(ratio),
                worst_index=int(kind[error[kind].argmax()]),
                nonfinite_mismatch=False,
                detail=f"the error of most of {kind.numel()} elements that honest rounding moves by at most {edge:.1e} "
                f"is {ratio:.3g} times the honest one",
            )
    return worst
