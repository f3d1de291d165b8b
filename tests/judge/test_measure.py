# SPDX-License-Identifier: Apache-2.0
"""The clock's arithmetic: intervals, ratios, overhead, delivery charged, rounds within a budget."""

from __future__ import annotations

import math
import os
from dataclasses import dataclass

import numpy as np
import pytest

from kernelwright.judge import intervals, measure
from kernelwright.judge.load import Strain

ALL = range(5)
"""Every round of ``lane``."""


@dataclass(frozen=True)
class FakeWindow:
    """What a program's window reports."""

    call_us: float
    deliver_us: float
    strain: Strain
    deliver_cpu_us: float
    self_us: tuple[float, ...]


class FakeProgram:
    """Takes ``each`` per call, ``deliver`` to deliver and ``base`` for an empty window."""

    def __init__(self, each: float, deliver: float, base: float) -> None:
        self.each, self.deliver, self.base = each, deliver, base
        self.pid = 0

    def window(self, order: list[int], *, grad: bool, keep: bool = False) -> FakeWindow:
        """A window in virtual time."""
        calls = len(order)
        return FakeWindow(self.base + self.each * calls, 5e4, Strain(0.0, 0), self.deliver, (self.each,) * calls)


def lane(each: float, deliver: float = 100.0, base: float = 50.0, rounds: int = 5) -> measure.Lane:
    """A lane that ran ``rounds`` windows of four calls."""
    made = measure.Lane("x", FakeProgram(each, deliver, base))
    measure.run_empty(made, grad=False)
    for _ in range(rounds):
        measure.run_window(made, [0, 1, 2, 3], grad=False)
    return made


def test_clock_never_goes_back() -> None:
    """A thousand readings are in order."""
    readings = [measure.clock() for _ in range(1000)]
    assert sorted(readings) == readings


def test_cpu_clock_of_a_process_counts_its_work() -> None:
    """It moves when this process computes, and a process that is not there has used nothing."""
    before = measure.clock(os.getpid())
    sum(range(200_000))
    assert before < measure.clock(os.getpid())
    assert 0 == measure.clock(2**22 + 1)


def test_a_first_call_that_costs_more_belongs_to_the_window() -> None:
    """A launch after sleep costs 30 more than the others: with windows of one call it is known, without it is not."""
    made = lane(each=10.0, base=50.0)
    made.calls_us = [50.0 + 30.0 + 4 * 10.0] * 5
    assert 50.0 == made.overhead_us(4)
    assert 17.5 == pytest.approx(measure.per_call_us(made, made, 4, ALL)[0])
    made.singles_us = [50.0 + 30.0 + 10.0] * 5
    assert 80.0 == made.overhead_us(4)
    assert 10.0 == pytest.approx(measure.per_call_us(made, made, 4, ALL)[0])


def test_windows_of_one_call_never_take_away_more_than_themselves() -> None:
    """Noise that makes one call dearer than four must not make time vanish, nor the overhead less than an empty one."""
    made = lane(each=10.0, base=50.0)
    made.singles_us = [500.0] * 5
    assert 500.0 == made.overhead_us(4)
    made.singles_us = [20.0] * 5
    assert 50.0 == made.overhead_us(4)
    made.calls_us, made.singles_us = [42_000.0] * 5, [21_150.0] * 5  # 0.7 % of 21 ms, which is scatter
    assert 50.0 == made.overhead_us(2)


@pytest.mark.parametrize(("fastest", "overhead"), [(260.0, 150.0), (200.0, 50.0)])
def test_a_first_launch_is_subtracted_beside_a_long_program_whose_call_no_window_is_shorter_than(
    fastest: float, overhead: float
) -> None:
    """Half a percent of 2.4 ms is half a percent at the most of ten calls of 260 us, but not of ten of 200."""
    eager, mine = lane(each=2400.0, base=50.0), lane(each=fastest, base=50.0)
    for made, each in ((eager, 2400.0), (mine, fastest)):
        made.calls_us, made.singles_us = [150.0 + 10 * each] * 5, [150.0 + each] * 5
    assert 50.0 == eager.overhead_us(10)
    measure.acquaint([eager, mine])
    assert overhead == pytest.approx(eager.overhead_us(10))
    assert fastest + (150.0 - overhead) / 10 == pytest.approx(measure.per_call_us(mine, eager, 10, ALL)[0])


def test_interval_of_equal_samples_is_the_sample() -> None:
    """No spread, no width."""
    assert (7.0, 7.0) == intervals.median_interval([7.0] * 9)


def test_interval_covers_the_true_median_at_its_rate() -> None:
    """Of 200 sets of 15 normal samples, the 95 % interval holds the true median in at least 90 %."""
    draw = np.random.default_rng(3)
    held = 0
    for _ in range(200):
        low, high = intervals.median_interval(draw.normal(10.0, 1.0, 15))
        held += low <= 10.0 <= high
    assert held >= 180


def test_ratio_is_paired_by_round() -> None:
    """A disturbance that hits both sides of a round leaves the interval of the ratio tight."""
    noise = np.random.default_rng(1).uniform(1.0, 3.0, 21)
    ratio, low, high = intervals.ratio_interval(list(2.0 * noise), list(noise))
    assert (2.0, 2.0, 2.0) == pytest.approx((ratio, low, high))


def test_a_processor_of_two_speeds_leaves_the_ratio_alone() -> None:
    """Half the rounds 1.4 times slower, for both sides alike: the medians jump, the ratio of a round does not."""
    draw = np.random.default_rng(5)
    speed = np.where(np.arange(24) % 4 < 2, 1.0, 1.4)
    over, under = (scale * speed * draw.normal(1.0, 0.01, 24) for scale in (3.0, 1.0))
    ratio, low, high = intervals.ratio_interval(list(over), list(under))
    assert pytest.approx(3.0, rel=0.01) == ratio
    assert high - low < 0.06


def test_unpaired_samples_are_refused() -> None:
    """Different numbers of rounds are a defect, not a truncation."""
    with pytest.raises(ValueError, match="3 and 2"):
        intervals.ratio_interval([1.0, 2.0, 3.0], [1.0, 2.0])


def test_empty_window_is_subtracted() -> None:
    """Ten microseconds per call, whatever an empty window costs."""
    assert [10.0] * 5 == measure.per_call_us(lane(10.0), lane(10.0), 4, ALL)


def test_dawdling_in_empty_windows_earns_nothing() -> None:
    """What is subtracted is the honest program's overhead, not one's own."""
    slow_when_idle = lane(10.0, base=500.0)
    assert [(540.0 - 50.0) / 4] * 5 == measure.per_call_us(slow_when_idle, lane(10.0), 4, ALL)


def test_overhead_cannot_make_time_vanish() -> None:
    """A window as short as an empty one still counts a tenth of itself."""
    assert [pytest.approx(0.1 * 50.0 / 4)] * 5 == measure.per_call_us(lane(0.0), lane(10.0), 4, ALL)


def test_work_hidden_in_delivery_is_charged() -> None:
    """A program that computes when asked for its outputs is charged the whole excess over an honest one."""
    lazy, honest = lane(4.0, deliver=500.0), lane(10.0, deliver=100.0)
    assert [4.0 + 400.0 / 4] * 5 == measure.per_call_us(lazy, honest, 4, ALL)


def test_delivery_noise_is_not_charged() -> None:
    """An excess within a quarter of the honest delivery, or under 20 us, costs nothing."""
    assert 0.0 == measure.charged_us(lane(1.0, deliver=115.0), lane(1.0, deliver=100.0), ALL)
    assert 0.0 == measure.charged_us(lane(1.0, deliver=1240.0), lane(1.0, deliver=1000.0), ALL)


def test_faster_delivery_earns_nothing() -> None:
    """Delivering sooner than the honest program is not a discount."""
    assert 0.0 == measure.charged_us(lane(1.0, deliver=10.0), lane(1.0, deliver=100.0), ALL)


def test_rounds_stop_at_the_budget_but_not_before_the_least() -> None:
    """With no seconds to spend, exactly the least rounds run; with plenty, exactly the most."""
    seen: list[int] = []
    assert 3 == measure.rounds_until(seen.append, lambda: len(seen), least=3, most=9, seconds=0.0)
    assert [0, 1, 2] == seen
    assert 9 == measure.rounds_until(seen.append, lambda: len(seen), least=3, most=9, seconds=60.0)


def test_disturbed_rounds_are_made_up_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where every other round is disturbed, twice as many run."""
    seen: list[int] = []
    monkeypatch.setattr(measure, "clock", lambda: len(seen) * 2_000_000)
    assert 8 == measure.rounds_until(seen.append, lambda: len(seen) // 2, least=4, most=99, seconds=0.01)


def disturbed(waits: list[float]) -> measure.Lane:
    """A lane of 10 ms windows that lost ``waits`` (us) to other load."""
    made = measure.Lane("x", FakeProgram(1.0, 1.0, 1.0))
    made.calls_us, made.strains = [1e4] * len(waits), [Strain(wait, 0) for wait in waits]
    return made


def test_a_round_counts_for_all_programs_or_for_none() -> None:
    """A round is clean when nobody was disturbed in it."""
    lanes = [disturbed([0.0, 5000.0, 100.0, 0.0]), disturbed([0.0, 0.0, 0.0, 3000.0])]
    assert [0, 2] == measure.chosen_rounds(lanes, least=2)


def faulting(faults: list[int]) -> measure.Lane:
    """A lane of 10 ms windows that touched so many fresh pages."""
    made = measure.Lane("x", FakeProgram(1e4, 0.0, 0.0))
    made.calls_us, made.strains = [1e4] * len(faults), [Strain(0.0, count) for count in faults]
    return made


def test_a_window_on_fresh_pages_is_not_clean_unless_all_are() -> None:
    """A heap that was trimmed costs the next window its pages; a program that maps and unmaps pays in every one."""
    assert [1, 2, 3] == measure.clean_rounds([faulting([4096, 0, 3, 0])])
    assert [0, 1, 2, 3] == measure.clean_rounds([faulting([4096, 4100, 4096, 4099])])


def test_a_program_that_waits_for_itself_is_not_disturbed() -> None:
    """What it waits in every window is its own doing; what comes on top is not."""
    lanes = [disturbed([1700.0, 1720.0, 6000.0, 1690.0, 1700.0]), disturbed([0.0] * 5)]
    assert [0, 1, 3, 4] == measure.chosen_rounds(lanes, least=2)


def test_in_a_crowd_no_waiting_is_a_baselines_own() -> None:
    """Its twin is no faster for having waited less, where strangers used the CPUs."""
    eager, twin = disturbed([4000.0] * 9), disturbed([0.0] * 9)
    twin.calls_us = [7000.0 + r for r in range(9)]
    eager.deliveries_us = twin.deliveries_us = [10.0] * 9
    for crowded in (False, True):
        eager.crowded = twin.crowded = crowded
        rounds = measure.chosen_rounds([eager, twin], least=5)
        one, other = (measure.sampled(lane, eager, 1, rounds, rounds) for lane in (eager, twin))
        made = intervals.baseline("eager", one, other, ONE)
        assert made.speedup == pytest.approx(10 / 7, rel=0.01)
        assert (made.speedup_low < 1.0) is crowded


def test_a_candidate_that_feigns_to_be_disturbed_does_not_choose_its_rounds() -> None:
    """In five of nine it is as slow as eager and lets its threads fight: all nine count for the least of its gain."""
    eager, mine = disturbed([0.0] * 9), disturbed([0.0, 5000.0] * 4 + [5000.0])
    mine.calls_us = [1e3, 1e4] * 4 + [1e4]
    eager.deliveries_us = mine.deliveries_us = [10.0] * 9
    everyone, others = (measure.chosen_rounds(lanes, least=3) for lanes in ([eager, mine], [eager]))
    assert [0, 2, 4, 6] == everyone and list(range(9)) == others
    one, other = (measure.sampled(lane, eager, 1, everyone, others) for lane in (eager, mine))
    made = intervals.baseline("eager", one, other, ONE)
    assert made.speedup > 9.0 and made.speedup_low <= 1.0


def test_too_few_clean_rounds_are_filled_with_the_calmest() -> None:
    """The least disturbed rounds, in their order."""
    lanes = [disturbed([9000.0, 500.0, 4000.0]), disturbed([0.0, 0.0, 0.0])]
    assert [1, 2] == measure.chosen_rounds(lanes, least=2)


ONE = intervals.Met(1, 1)


def read(times: list[float], **others: list[float]) -> intervals.Sampled:
    return intervals.Sampled(**{name: times for name in ("times", "own", "calm", "doubted", "fair")} | others)


def test_baseline_compares_itself_with_the_candidate() -> None:
    """Speedup is baseline over candidate; rounds without scatter leave that between processes."""
    made = intervals.baseline("eager", read([4.0] * 3), read([2.0] * 3), ONE)
    assert (2.0, 4.0) == (made.speedup, made.timing.median_us)
    assert made.speedup_low == pytest.approx(2.0 * (1 - intervals.PROCESSES))
    assert made.speedup_high == pytest.approx(2.0 * (1 + intervals.PROCESSES))


def test_on_a_cpu_the_interval_holds_what_processes_of_one_program_differ_by() -> None:
    """A share of the scatter of rounds: less of it the more processes there were, none without scatter."""
    times, even = [4.0, 4.16, 3.84, 4.08, 3.92, 4.0, 4.04, 3.96], [2.0] * 8
    met = (intervals.Met(10**9, 10**9), intervals.Met(2, 1), intervals.Met(2, 2))
    many, one, two = (intervals.baseline("eager", read(times), read(even), m) for m in met)
    assert many.speedup == one.speedup == two.speedup == 2.0
    assert one.speedup_low < two.speedup_low < many.speedup_low < many.speedup_high < two.speedup_high
    rounds = 1.4826 * 0.015  # half of the ratios lie within 1.5 % of the median
    wide = math.hypot((many.speedup_high - 2.0) / 2.0, 1.96 * intervals.OF_ROUNDS * rounds)
    assert (two.speedup_high - 2.0) / 2.0 == pytest.approx(wide, rel=0.05)
    wild = intervals.baseline(
        "eager", read([4.0 * (1 + 5 * (t / 4 - 1)) for t in times]), read(even), intervals.Met(2, 2)
    )
    assert (wild.speedup_high - 2.0) / 2.0 < math.hypot(0.2, 1.96 * intervals.APART) + 0.005
    still = intervals.baseline("eager", read([4.0] * 8), read(even), intervals.Met(2, 1))
    assert still.speedup_low == pytest.approx(2.0 * (1 - intervals.PROCESSES))


def test_on_a_device_processes_differ_where_its_host_sets_the_pace() -> None:
    """Not by what rounds of a busy device scatter by; by a percent or so where calls are mostly launches."""
    busy, hosted, wild = (intervals.Met(2, 1, on_device=True).apart(scatter) for scatter in (0.005, 0.015, 0.5))
    assert 1.3 * intervals.PROCESSES < busy < 1.5 * intervals.PROCESSES
    assert 0.018 < hosted < 0.021  # 0.8 of what lies above half a percent, for two processes beside one
    assert hosted < wild < 0.03
    assert intervals.Met(2, 1, on_device=True).apart(0.015, paced=True) == busy
    rough = [4.0, 4.16, 3.84, 4.08, 3.92, 4.0, 4.04, 3.96]
    met = intervals.Met(2, 1, on_device=True)
    wide = [intervals.baseline("eager", read(rough), read([4.0] * 8), met, 0, bound) for bound in (None, 1.0, 3.0)]
    assert wide[0].speedup_high == wide[1].speedup_high > wide[2].speedup_high + 0.005


def test_what_is_not_known_of_windows_is_in_the_interval_and_not_in_the_ratio() -> None:
    """Each program by its own windows; less what disturbed it, but never both at once to its favour."""
    slow_to_wake = intervals.baseline("eager", read([4.0] * 3), read([2.0] * 3, own=[1.6] * 3), ONE)
    assert slow_to_wake.speedup == 2.0 and slow_to_wake.speedup_low > 1.99
    assert 2.5 <= slow_to_wake.speedup_high < 2.51
    alike = intervals.baseline("compile", read([4.0] * 3, own=[3.2] * 3), read([2.0] * 3, own=[1.6] * 3), ONE)
    assert 1.99 < alike.speedup_low and alike.speedup_high < 2.01
    disturbed = intervals.baseline("eager", read([4.0] * 3, calm=[2.0] * 3), read([2.0] * 3), ONE)
    assert disturbed.speedup == 2.0 and 0.99 < disturbed.speedup_low <= 1.0 and disturbed.speedup_high < 2.01
    together = intervals.baseline("eager", read([4.0] * 3), read([2.0] * 3, doubted=[3.2] * 3), ONE)
    assert together.speedup == 2.0 and 1.2 < together.speedup_low <= 1.25 and together.speedup_high < 2.01


def test_samples_read_a_program_by_its_windows_and_without_what_others_took() -> None:
    """20 us more overhead in windows of two calls are 10 us a call; only rounds that are not clean are lightened."""
    honest, lane = disturbed([0.0] * 8), disturbed([0.0] * 7 + [5000.0])
    honest.empties_us, lane.empties_us = [100.0] * 8, [120.0] * 8
    honest.deliveries_us, lane.deliveries_us = [1.0] * 8, [1.0] * 8
    made = measure.sampled(lane, honest, 2, range(8), range(8))
    assert made.times == [(call - 100.0) / 2 for call in lane.calls_us]
    assert made.own == [time - 10.0 for time in made.times]
    assert made.calm[:7] == made.times[:7] and made.calm[7] < 0.6 * made.times[7]
    total = intervals.Sampled()
    total.add(made, 3.0)
    assert total.own[0] == made.own[0] + 3.0 and total.calm[7] == made.calm[7] + 3.0
    assert total.doubted == total.times
    total.add(made, 0.0, 5.0)
    assert total.times[8:] == made.times and total.doubted[8:] == [time + 5.0 for time in made.times]


def test_rounds_that_know_the_ratio_end_early_whoever_is_faster() -> None:
    """Steady lanes are narrow at any ratio; scattered ones, disturbed ones and few rounds are not."""
    for factor in (0.5, 1.0, 3.0):
        assert measure.narrow([steady(9, 100.0 * factor), steady(9, 100.0)])
    assert not measure.narrow([steady(7, 100.0), steady(7, 100.0)])
    assert not measure.narrow([steady(9, 100.0), steady(9, 100.0, swing=4.0)])
    waiting = steady(9, 100.0)
    waiting.strains = [Strain(waited_us=9e4 * (r % 2), faults=0) for r in range(9)]
    assert not measure.narrow([waiting, steady(9, 100.0)])


def steady(rounds: int, us: float, swing: float = 0.05) -> measure.Lane:
    """Windows of about the same length, ``swing`` either way."""
    times = [us + swing * (-1) ** r * (r % 3) for r in range(rounds)]
    quiet = [Strain(waited_us=0.0, faults=0) for _ in range(rounds)]
    return measure.Lane("x", FakeProgram(1.0, 1.0, 1.0), calls_us=times, strains=quiet)


def test_rounds_end_when_settled_but_not_before_the_least() -> None:
    """``settled`` counts once there are enough clean rounds."""
    seen: list[int] = []
    done = measure.rounds_until(seen.append, lambda: len(seen), least=3, most=9, seconds=60.0, settled=lambda: True)
    assert done == 3
