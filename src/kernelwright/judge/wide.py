# SPDX-License-Identifier: Apache-2.0
"""Operators that a reference has in float64 in its own run, as where it says ``x.double()`` before a variance.

All operators of its float64 run were given float32's rounding when the honest error was drawn, those too: a variance as
E[d^2] - E[d]^2 of d = x.double() seemed to be as bad as that of x, which is off by 0.09 of 1 where x is near 1000, and
was granted. So it is noted in order which results are float64's, and those get float64's rounding.

Of an operator that the float64 run has more or less often (attention is taken apart there, a loop ends elsewhere)
nothing is known, and it rounds as float32 does.
"""

from __future__ import annotations

import collections
from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from kernelwright.judge.rounding import Rounded

DOUBLE = 2.0**-53
"""The unit roundoff of float64."""
_WIDE = (torch.float64, torch.complex128)


class Wide:
    """Which of the calls of each operator gave float64."""

    def __init__(self) -> None:
        self._noted: dict[Any, list[bool]] = {}
        self.any = False
        self.ran: collections.Counter[Any] = collections.Counter()
        """How often each operator came in the last run in float64 that rounded nothing."""

    def note(self, func: Any, out: Any) -> None:
        """One operator of the reference's own run."""
        found = any(isinstance(one, torch.Tensor) and one.dtype in _WIDE for one in _each(out))
        self._noted.setdefault(func, []).append(found)
        self.any = self.any or found

    def at(self, func: Any, number: int) -> bool:
        """Whether so manieth call of an operator was such a one."""
        noted = self._noted.get(func, [])
        return number < len(noted) == self.ran[func] and noted[number]


class Finer:
    """Finds what rounds as float64 does, for one draw of the honest error."""

    def __init__(self, made: type[Rounded]) -> None:
        self.made = made
        self._met: collections.Counter[Any] = collections.Counter()
        self._fine: Rounded | None = None

    def of(self, rough: Rounded, func: Any) -> Rounded | None:
        """That, if the next call of an operator is one of the ``wide``; None where float32 rounds it."""
        number = self._met[func]
        self._met[func] += 1
        if rough.unit <= DOUBLE or not rough.limits.wide.at(func, number):
            return None
        rough.multiplied(None)
        if self._fine is None:
            self._fine = self.made(DOUBLE, rough.rng, rough.few)
            self._fine._equal, self._fine.single, self._fine.fills = rough._equal, rough.single, rough.fills
        return self._fine


def _each(out: Any) -> Any:
    return out if isinstance(out, tuple | list) else (out,)
