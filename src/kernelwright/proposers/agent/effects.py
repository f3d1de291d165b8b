# SPDX-License-Identifier: Apache-2.0
"""Outcomes in words: times beside eager's own, and which of two programs is faster only where that was measured."""

from __future__ import annotations

from kernelwright.trial import Outcome, Rejected, Timed

NOISY = 0.1
"""Half the width of an interval over its median from which on a reader is told what it means."""
HOPELESS = 0.5
"""From here on no edit is likely to show."""
PREDICTED = "predicted to fail"
"""The reason of a program that a verifier kept off the device: no judge has seen it."""
LONGEST_REASON = 240
"""Characters of the reason of a rejection in a list."""
SAME = "which of the two is faster cannot be told: their intervals overlap"


def describe_us(value: float) -> str:
    """Microseconds with four digits and no exponent."""
    return f"{value:.0f} us" if value >= 1000 else f"{value:.4g} us"


def describe_time(outcome: Outcome | None, *, bound: bool = True) -> str:
    """``812 us a call (95 % interval 800 to 825 us), 1.94 times as fast as eager``, and unless ``bound`` is False, for
    a list of programs, the least there can be."""
    if outcome is None or isinstance(outcome, Rejected):
        return "an unknown time"
    low, high = describe_us(outcome.timing.low_us), describe_us(outcome.timing.high_us)
    width = (outcome.timing.high_us - outcome.timing.low_us) / (2 * outcome.timing.median_us)
    noise = f": a change of less than {width:.0%} cannot be told from noise" if width > NOISY else ""
    noise = ": they scatter too much to tell programs apart" if width > HOPELESS else noise
    text = f"{describe_us(outcome.timing.median_us)} a call (95 % interval {low} to {high}{noise}), "
    text += f"{outcome.speedup:.3g} times as fast as {outcome.best_baseline}"
    beside = _beside(outcome)
    text += "" if beside is None else f", which took {describe_us(beside)} beside it"
    if outcome.bound_us and bound:
        text += f"; moving the bytes that must be moved takes {describe_us(outcome.bound_us)}"
    return text


def describe_result(outcome: Outcome | None) -> str:
    """What came of a program, for a list: ``812 us [800 to 825] where eager took 1575 us: 1.94 times as fast [1.9 to
    1.99]``."""
    if isinstance(outcome, Rejected):
        if outcome.reason == PREDICTED:
            return "not judged: a reviewer predicted that it fails"
        return f"rejected at {outcome.stage}: {one_line(outcome.reason)}{_first_error(outcome)}"
    if outcome is None:
        return "not judged"
    low, high = (describe_us(value) for value in (outcome.timing.low_us, outcome.timing.high_us))
    text = f"{describe_us(outcome.timing.median_us)} [{low.removesuffix(' us')} to {high.removesuffix(' us')}]"
    beside = _beside(outcome)
    text += "" if beside is None else f" where {outcome.best_baseline} took {describe_us(beside)}"
    interval = f"{outcome.speedup_low:.3g} to {outcome.speedup_high:.3g}"
    return f"{text}: {outcome.speedup:.3g} times as fast as {outcome.best_baseline} [{interval}]"


def faster(one: Timed, two: Timed) -> int:
    """1 where ``two`` is faster than ``one``, -1 where it is slower, 0 where that cannot be told.

    Told only where the intervals of their times part, and those of their ratios to one baseline the same way: a host
    that is busy by turns moves the times, and a baseline that was slow for a moment the ratios."""
    times = _apart(two.timing.low_us, two.timing.high_us, one.timing.low_us, one.timing.high_us)
    if one.best_baseline != two.best_baseline:
        return times
    ratios = _apart(one.speedup_low, one.speedup_high, two.speedup_low, two.speedup_high)
    return times if times == ratios else 0


def describe_difference(before: Timed, after: Timed) -> str:
    """``faster, 1.31 times by the times and 1.28 times by the ratios``; where intervals overlap, that they do."""
    sign = faster(before, after)
    if not sign:
        return SAME
    by_times = before.timing.median_us / after.timing.median_us
    by_ratios = after.speedup / before.speedup if before.speedup > 0 else by_times
    if sign < 0:
        by_times, by_ratios = 1 / by_times, 1 / by_ratios if by_ratios > 0 else 1 / by_times
    said = f"{by_times:.3g} times by the times"
    if before.best_baseline == after.best_baseline:
        said += f" and {by_ratios:.3g} times by the ratios to {after.best_baseline}"
    return f"{'faster' if sign > 0 else 'slower'}, {said}"


def describe_order(outcomes: list[Outcome | None]) -> str:
    """Which of several numbered programs cannot be told apart; empty where all can."""
    timed = [(number, outcome) for number, outcome in enumerate(outcomes, 1) if isinstance(outcome, Timed)]
    pairs = [f"{one} and {two}" for at, (one, a) in enumerate(timed) for two, b in timed[at + 1 :] if not faster(a, b)]
    return f"Which is faster cannot be told of programs {'; '.join(pairs)}: their intervals overlap." if pairs else ""


def shortened(text: str, most: int) -> str:
    """At most so many characters, no word of it cut."""
    return text if len(text) <= most else text[: most + 1].rpartition(" ")[0] or text[:most]


def one_line(reason: str) -> str:
    """The first and the last line of a reason: a compiler's quotes the source between them."""
    lines = [line.strip() for line in reason.splitlines() if line.strip()]
    text = " ... ".join(dict.fromkeys([*lines[:1], *lines[-1:]]))
    return text if len(text) <= LONGEST_REASON else shortened(text, LONGEST_REASON) + " [...]"


def _first_error(outcome: Rejected) -> str:
    """The compiler's first error, where the reason says no more than that there was one."""
    if outcome.stage != "build":
        return ""
    found = (line.partition("error: ")[2] for line in outcome.detail.splitlines() if "error: " in line)
    first = next(found, "").strip()
    return f" ({first[:120]})" if first and first not in outcome.reason else ""


def _apart(low: float, high: float, other_low: float, other_high: float) -> int:
    """1 where the first interval lies below the second, -1 where above, 0 where they overlap."""
    return 1 if high < other_low else -1 if low > other_high else 0


def _beside(outcome: Timed) -> float | None:
    """The best baseline's own time, taken beside this program."""
    return next((one.timing.median_us for one in outcome.baselines if one.name == outcome.best_baseline), None)
