# SPDX-License-Identifier: Apache-2.0
"""Gains that only windows of many calls show."""

from __future__ import annotations

from kernelwright.judge import singly


def test_a_gain_that_single_calls_have_too_counts() -> None:
    """4 us a call gained many at a time, and 3 alone: nothing is put back on."""
    assert 0.0 == singly.vanished_us([3.0, 2.5, 3.5], [10.0, 11.0, 9.0], [6.0, 6.5, 5.5])


def test_a_gain_that_is_gone_alone_is_put_back_on() -> None:
    """200 us a call gained many at a time and 2 alone: 198 are the window's; a loss alone counts as none gained."""
    assert 198.0 == singly.vanished_us([2.0, 1.0, 50.0], [240.0], [40.0])
    assert 200.0 == singly.vanished_us([-30.0], [240.0], [40.0])


def test_slower_programs_and_those_never_asked_pay_nothing() -> None:
    """There is no gain to look for."""
    assert 0.0 == singly.vanished_us([-5.0], [10.0], [20.0])
    assert 0.0 == singly.vanished_us([], [10.0], [5.0])
    assert singly.claimed([10.0], [5.0])
    assert not singly.claimed([10.0], [9.8])


def test_a_thread_that_runs_through_the_rests_is_restless() -> None:
    """Four calls of 20 us and as many rests: 80 us of work, some waiting without sleep, and all of it."""
    calls, rest = [20.0] * 4, 4 * singly.GAP_US
    assert not singly.restless({"1": 500.0}, {"1": 580.0, "2": 90.0}, calls)
    assert not singly.restless({"1": 500.0}, {"1": 580.0, "2": 80.0 + 0.3 * rest}, calls)
    assert singly.restless({"1": 500.0}, {"1": 580.0 + 0.9 * rest}, calls)
    assert singly.restless({"1": 500.0}, {"1": 580.0, "7": 0.9 * rest}, calls)


def test_series_are_clear_where_their_median_surely_lies_on_one_side() -> None:
    """Few, or some on either side of what is asked, are not."""
    assert not singly.clear([], 1.0) and not singly.clear([5.0, 5.0], 1.0)
    assert singly.clear([5.0] * 9, 1.0) and singly.clear([0.0] * 9, 1.0)
    mixed = [0.0, 2.0] * 10
    assert not singly.clear(mixed, 1.0) and singly.clear(mixed, 3.0)
    assert singly.clear([0.0] * 5 + [2.0] * 25, 1.0) and not singly.clear([0.0] * 11 + [2.0] * 14, 1.0)
