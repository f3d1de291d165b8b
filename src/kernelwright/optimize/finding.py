# SPDX-License-Identifier: Apache-2.0
"""What a run found, in a sentence or two."""

from __future__ import annotations

from kernelwright.optimize.loop import Loop
from kernelwright.trial import Timed

LIKELY = 1.1
"""A median from which a candidate whose interval reaches below 1 is more than noise around the baseline."""


def trials(count: int) -> str:
    """``1 trial``, ``2 trials``."""
    return f"{count} trial" if count == 1 else f"{count} trials"


def message(loop: Loop | None, interrupted: bool) -> str:
    """One or two sentences for a person; ``loop`` is None where the search had not begun."""
    if loop is None:
        return "Interrupted. The search had not begun."
    text = "Interrupted. " if interrupted else ""
    if interrupted and loop.winner is None:
        text += f"Nothing is proved yet ({trials(loop.tried)}{_fastest(loop)})."
    else:
        text += _finding(loop)
    if loop.winner is None and loop.unjudged:
        structure, why = next(reversed(loop.unjudged.items()))
        text += f" The judge itself failed on {len(loop.unjudged)} of the structures, as on {structure} ({why})."
    if loop.winner is None and not loop.exhausted:
        left = loop.schedule.left()
        early = left >= 1 and not interrupted and not loop.schedule.fits()
        why = f" ({left:.0f} s left: too few for another candidate and its proof)" if early else ""
        text += f" The search was not over{why}: --resume goes on, --budget gives it more time."
    return text


def _fastest(loop: Loop) -> str:
    """The best time so far, which nobody has proved."""
    best = loop.best_time()
    return "" if best is None else f"; the fastest, not proved, is at {best.speedup:.2f}x of {best.best_baseline}"


def _finding(loop: Loop) -> str:
    if loop.winner is not None and isinstance(loop.winner.outcome, Timed):
        timed = loop.winner.outcome
        return (
            f"{timed.speedup:.2f}x faster than {timed.best_baseline} "
            f"(95 % interval {timed.speedup_low:.2f} to {timed.speedup_high:.2f}), "
            f"{timed.proof.bits_lost:.2f} bits lost, {len(timed.proof.cases)} cases checked."
            f"{_circumstances(timed)}{_missing(timed)}"
        )
    tried = f"{trials(loop.tried)}, {loop.rejected} of them rejected"
    if loop.nearest is not None:
        near = loop.nearest
        text = (
            f"Nothing honest beats the baseline ({tried}): the best is at {near.speedup:.2f}x "
            f"of {near.best_baseline} (95 % interval {near.speedup_low:.2f} to {near.speedup_high:.2f})."
        )
        if near.speedup < LIKELY:
            return text
        return f"{text} That may be faster, but times here spread too far to tell: try again on a quiet machine."
    if loop.unproved:
        return f"Nothing is proved ({tried}): there was no time for a proof of {loop.unproved}."
    if not loop.tried:
        return (
            "Nothing was judged." if loop.unjudged else "Nothing was tried: there was no candidate, or no time for one."
        )
    if loop.unjudged:
        return f"Nothing is proved ({tried})."
    if loop.rejected == loop.tried:
        return f"Nothing was timed: every candidate was rejected ({trials(loop.tried)}; the reasons are in the report)."
    return f"Nothing honest beats the baseline ({tried})."


def _circumstances(timed: Timed) -> str:
    """What a loop of one's own would show beside that, and why times may be others elsewhere."""
    warm = [value for name, value in timed.profile if name.startswith("warm.candidate.speedup")]
    text = ""
    if len(warm) == 3:
        text = f" Caches were cold; called in a loop on one input it is {warm[0]}x ({warm[1]} to {warm[2]})."
    if any("threads that sleep when idle" in condition for condition in timed.conditions):
        text += " Other programs used this machine, so threads slept while they waited: a quiet one may show less."
    return text


def _missing(timed: Timed) -> str:
    """What the judge says of baselines that did not run: a speedup over the others alone must not pass for more."""
    said = [condition for condition in timed.conditions if condition.startswith("baseline ")]
    return "".join(f" The {condition.splitlines()[0][:160].rstrip('.')}." for condition in said)
