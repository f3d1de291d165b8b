# SPDX-License-Identifier: Apache-2.0
"""Measured besides the race: latency after idle gaps, a cold start, peak memory, warm calls; every program alike.

None of it ranks anything. The calls are checked as timed ones are: a candidate that is wrong in one is rejected, a
baseline that fails gets its reason in place of a number.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence

from kernelwright.errors import BadCommand
from kernelwright.judge import spot_checks
from kernelwright.judge.also import idle, peak, start
from kernelwright.judge.also.scene import Contender, Scene, failed
from kernelwright.judge.checks import Wrong
from kernelwright.judge.leash import ChildFailure
from kernelwright.trial import Outcome, Rejected, Timed

__all__ = ["WHAT", "Contender", "Scene", "attached", "wanted"]

Pairs = list[tuple[str, str]]
_TAKEN: dict[str, Callable[[Scene], Pairs]] = {
    "server": idle.taken,
    "cold": start.taken,
    "memory": peak.taken,
}
IN_RACES = ("warm",)
"""Measured in the processes of a race (``warm``)."""
WHAT = (*_TAKEN, *IN_RACES)


def wanted(names: Sequence[str]) -> tuple[str, ...]:
    """The names of what is to be measured, each once. Raises BadCommand for an unknown one."""
    odd = [name for name in names if name not in WHAT]
    if odd:
        raise BadCommand("This cannot be measured as well.", ", ".join(odd), "some of " + ", ".join(WHAT))
    return tuple(dict.fromkeys(names))


def attached(outcome: Timed, names: Sequence[str], scene: Scene) -> Outcome:
    """The outcome with what was asked for beside its facts; Rejected where the candidate was wrong on the way."""
    pairs: Pairs = []
    try:
        for name in (name for name in wanted(names) if name in _TAKEN):
            pairs += _TAKEN[name](scene)
    except ChildFailure as failure:
        return Rejected(stage=failure.stage, reason=failure.reason[:600], detail=failure.detail[:4000])
    except Wrong as wrong:
        return wrong.outcome
    except spot_checks.Mismatch as mismatch:
        return failed(mismatch.result)
    return dataclasses.replace(outcome, profile=(*outcome.profile, *pairs))
