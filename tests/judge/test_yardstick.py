# SPDX-License-Identifier: Apache-2.0
"""Errors measured against an exact answer: in chunks, by bands, and no further than a rejection needs."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable

import pytest
import torch

from kernelwright.judge.floors import BANDS, FEW, NO_FLOOR, OF_FEW, SOME, Floors, Spread, honest_floor
from kernelwright.judge.yardstick import Magnitudes, Yardstick


def directly(error: torch.Tensor, exact: torch.Tensor) -> tuple[list[float], list[int]]:
    """RMS by band as defined: floor(log16(largest / magnitude)), at most BANDS - 1."""
    bands = (torch.log2(exact.abs().max() / exact.abs().clamp_min(5e-324)) / 4).clamp(0, BANDS - 1).to(torch.int64)
    found, counts = [], []
    for band in range(BANDS):
        here = error[bands == band]
        counts.append(here.numel())
        found.append(float(here.square().mean().sqrt()) if here.numel() else 0.0)
    return found, counts


@pytest.mark.parametrize("size", [1, 1000, 100_003])
def test_a_measurement_in_chunks_is_that_of_the_whole(size: int) -> None:
    """RMS, largest error and its place, and the RMS of every band; the last chunk is short."""
    exact = torch.randn(size, dtype=torch.float64) * 10.0 ** torch.randint(-16, 1, (size,)).double()
    answer = exact.float()
    error = answer.double() - exact
    scale = Magnitudes(exact)
    spread = scale.measure(answer)
    bands, counts = directly(error, exact)
    assert counts == scale.counts
    assert pytest.approx(bands, rel=1e-12) == list(spread.bands)
    assert pytest.approx(float(error.square().mean().sqrt()), rel=1e-12) == spread.rms
    assert float(error.abs().max()) == spread.peak
    assert int(error.abs().argmax()) == scale.worst(answer, spread)


@pytest.mark.parametrize("factor", [1e-200, 1e200])
def test_errors_whose_squares_leave_float64_are_measured(factor: float) -> None:
    """Sums of squares are scaled where they would vanish or overflow."""
    exact = torch.randn(40_000, dtype=torch.float64)
    there = Magnitudes(exact * factor).measure(exact * factor * 1.5).rms
    assert pytest.approx(Magnitudes(exact).measure(exact * 1.5).rms, rel=1e-9) == there / factor


def test_what_is_not_finite_is_forgiven_only_on_request() -> None:
    """A floor's draw may leave the domain where the oracle does; an answer may not."""
    exact = torch.tensor([1.0, math.inf, 2.0], dtype=torch.float64)
    answer = torch.tensor([1.0, math.inf, 2.5])
    scale = Magnitudes(exact)
    assert 0.5 == scale.measure(answer, lenient=True).peak
    assert math.isnan(scale.measure(answer).peak)
    assert not scale.finite


def test_a_sample_suffices_to_reject_and_never_to_accept() -> None:
    """Zeros are refused on the sample; one wrong element outside it is still found."""
    exact = torch.rand(1 << 18, dtype=torch.float64) + 1
    held = Yardstick(exact.float(), exact, NO_FLOOR)
    zeros = held.compare(torch.zeros(1 << 18), 1.0)
    assert "at least" in zeros.detail
    assert zeros.bits_lost > 10
    whole = held.compare(torch.zeros(1 << 18))
    assert "at least" not in whole.detail
    assert zeros.error_ratio <= whole.error_ratio
    got = exact.float()
    got[2] += 1e-3
    assert 2 == held.compare(got, 1.0).worst_index
    assert held.compare(got, 1.0).bits_lost > 1.0
    assert held.compare(exact.float(), 1.0).error_ratio <= 1.0


def test_what_errs_in_one_band_is_shown_by_an_element_of_it() -> None:
    """The largest error lies among the largest magnitudes, and is no fault there."""
    exact = torch.rand(4096, dtype=torch.float64) + 1
    exact[1000:2000] *= 1e-4
    got = exact.float()
    got[5] += 3e-7
    got[1000:2000] *= 1 + 1e-5
    got[1234] *= 1 + 1e-5
    found = Yardstick(exact.float(), exact, NO_FLOOR).compare(got)
    assert "magnitudes near 16^-" in found.detail
    assert 1000 <= found.worst_index < 2000
    assert float((got.double() - exact)[found.worst_index].abs()) > 1.5e-9


@pytest.mark.parametrize("wrong", [math.nan, math.inf])
def test_a_large_output_with_one_stray_element_names_it(wrong: float) -> None:
    """The sample of a large output does not hide it."""
    exact = torch.rand(1 << 18, dtype=torch.float64) + 1
    got = exact.float()
    got[77] = wrong
    found = Yardstick(exact.float(), exact, NO_FLOOR).compare(got, 1.0)
    assert (True, 77, math.inf) == (found.nonfinite_mismatch, found.worst_index, found.error_ratio)


def test_elements_infinite_in_the_reference_are_left_out_of_the_rest() -> None:
    """An index counts in the whole output, not among the finite elements."""
    exact = torch.rand(64, dtype=torch.float64) + 1
    exact[:8] = -math.inf
    held = Yardstick(exact.float(), exact, NO_FLOOR)
    assert not held.plain
    got = exact.float()
    assert held.compare(got).error_ratio <= 1.0
    got[20] += 1e-3
    assert 20 == held.compare(got).worst_index


def test_bands_are_counted_from_the_largest() -> None:
    """A band is a factor 16 wide and closed at its upper end below the first."""
    exact = torch.tensor([16.0, 1.1, 1.0, 0.5, 0.0], dtype=torch.float64)
    assert [2, 2, *[0] * (BANDS - 3), 1] == Magnitudes(exact).counts
    assert [5, *[0] * (BANDS - 1)] == Magnitudes(torch.zeros(5, dtype=torch.float64)).counts


def test_outputs_of_exact_dtypes_have_no_magnitudes() -> None:
    """Their floor is nothing."""
    scale = Magnitudes(torch.arange(4))
    assert NO_FLOOR == honest_floor([scale.measure(torch.arange(4))])


def test_a_zero_that_rounding_lifts_is_honest_and_many_are_not() -> None:
    """Behind a ReLU: an argument of 0 to within rounding may land on the other side, one in thousands."""
    draw = torch.Generator().manual_seed(3)
    exact = torch.randn(20_000, dtype=torch.float64, generator=draw).clamp_min(0.0)
    eager = exact.float()
    zeros = torch.nonzero(exact == 0.0).reshape(-1)
    one, several, all_of_them = eager.clone(), eager.clone(), eager.clone()
    one[zeros[7]] = 5e-8
    several[zeros[:40]] = 1e-6
    all_of_them[zeros] = 1e-8
    held = Yardstick(eager, exact, NO_FLOOR)
    assert held.compare(one).error_ratio <= 2.0
    assert held.compare(several).error_ratio > 8.0
    assert held.compare(all_of_them).error_ratio > 2.0


def drawing(sizes: list[float], made: list[int]) -> Callable[[int], list[Spread]]:
    """Draws of one output of these sizes, in units of 1e-5; ``made`` is told which."""

    def draw(index: int) -> list[Spread]:
        made.append(index)
        size = sizes[index] * 1e-5
        return [Spread(rms=size, peak=3 * size, bands=(size,) * BANDS, chunk=0)]

    return draw


def test_an_answer_that_the_first_draws_excuse_asks_for_no_other() -> None:
    """And its verdict is that of all draws: they only raise the floor. A worse answer sees them all, widened."""
    exact = torch.randn(4096, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    eager = exact.float()
    sizes: list[float] = [0.5, 1.0, 2.0, 1.0]
    made: list[int] = []

    draw = drawing(sizes, made)

    def ratio(error: float) -> tuple[float, int]:
        made.clear()
        floors = Floors(draw, len(sizes))
        held = Yardstick(eager, exact, lambda draws: floors.at(0, draws))
        return held.compare(eager + error, 1.0).error_ratio, len(made)

    assert (0.0, 0) == (ratio(0.0)[0] // 1.5, ratio(0.0)[1])
    within, draws = ratio(0.4e-5)
    assert within <= 1.0 and draws == 1
    within, draws = ratio(0.9e-5)
    assert within <= 1.0 and draws == 2
    whole = honest_floor([draw(index)[0] for index in range(4)])
    found, draws = ratio(8e-5)
    assert draws == 4 and found == pytest.approx(8e-5 / whole.rms, rel=0.02)
    floors = Floors(draw, 4)
    steps = [floors.at(0, count) for count in range(1, 5)]
    assert steps[3] == whole == floors.whole(0) and floors.at(0, 5) is None
    assert all(a.rms <= b.rms and a.peak <= b.peak for a, b in zip(steps, steps[1:], strict=False) if a and b)


def test_where_values_cancel_to_zero_the_first_draw_says_what_may_be_left_of_them() -> None:
    """A saturated softmax's gradient: eager and the oracle have zeros, honest rounding leaves 3e-5 of terms of size 1,
    and torch's own fused attention was refused for it. What is wrong beyond a draw sees no other."""
    exact = torch.zeros(4096, dtype=torch.float64)
    made: list[int] = []
    draw = drawing([1.0, 1.0, 1.0, 1.0], made)

    def held(dear: bool = False, eager: float = 0.0) -> Yardstick:
        made.clear()
        floors = Floors(draw, 4)
        return Yardstick((exact + eager).float(), exact, lambda draws: floors.at(0, draws), dear=dear)

    spots = torch.zeros(4096)
    spots[::64] = 3e-5
    for dear in (False, True):
        assert held(dear).compare(spots, 1.0).error_ratio <= 1.0 and made == [0]
    assert held().compare(torch.full((4096,), 1e3), 1.0).bits_lost > 16.0 and made == [0]
    assert held(dear=True, eager=1e-12).compare(torch.full((4096,), 1e3), 1.0).bits_lost > 16.0 and not made


def test_an_answer_close_to_the_line_is_refused_by_four_draws_or_more() -> None:
    """One draw is what a dear case has; an answer that a second one excuses asks for no third, and one that errs by
    over 16 times what is known asks for none."""
    exact = torch.randn(512, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    eager = exact.float()
    sizes: list[float] = [1.0, 3.0, 1.0, 1.0, 50.0]
    made: list[int] = []

    draw = drawing(sizes, made)

    def ratio(error: float) -> tuple[float, int]:
        made.clear()
        floors = Floors(draw, 1)
        beyond = functools.partial(floors.beyond, 0)
        held = Yardstick(eager, exact, lambda draws: floors.at(0, draws), beyond=beyond)
        return held.compare(eager + error, 1.0).error_ratio, len(made)

    assert (True, 1) == (ratio(2e-5)[0] <= 2.0, ratio(2e-5)[1])
    assert (True, 2) == (ratio(7e-5)[0] <= 2.0, ratio(7e-5)[1])
    assert (True, 4) == (ratio(2e-4)[0] > 2.0, ratio(2e-4)[1])
    assert (True, 1) == (ratio(1e-3)[0] > 16.0, ratio(1e-3)[1])


@pytest.mark.parametrize(("elements", "error", "right", "draws"), [
    (1, 4.5e-5, True, OF_FEW), (1, 5.5e-5, False, OF_FEW), (FEW, 4.5e-5, True, OF_FEW),
    (FEW + 1, 4.5e-5, False, OF_FEW), (FEW + 1, 3.5e-5, True, OF_FEW), (SOME, 3.5e-5, True, OF_FEW),
    (SOME + 1, 3.5e-5, False, 8), (1, 2e-6, True, 1),
])  # fmt: skip
@pytest.mark.parametrize("usual", [1, 8])
def test_an_answer_of_few_elements_is_refused_by_the_mean_of_many_draws(
    elements: int, error: float, right: bool, draws: int, usual: int
) -> None:
    """Eight draws that happen to be small say little of one element, or of one system; twelve together do."""
    exact = torch.full((elements,), 0.5, dtype=torch.float64)
    made: list[int] = []
    floors = Floors(drawing([0.4] * 8 + [1.6] * 4, made), usual)
    held = Yardstick(
        exact.float(), exact, lambda draws: floors.at(0, draws), beyond=functools.partial(floors.beyond, 0)
    )
    assert right is (held.compare(exact.float() + error, 1.0).bits_lost <= 1.0)
    assert len(made) == (4 if usual == 1 and draws == 8 else draws)


def test_draws_of_another_call_come_first() -> None:
    """Scaled to this one's size; only what is missing is drawn."""
    made: list[int] = []

    def draw(index: int) -> list[Spread]:
        made.append(index)
        return [Spread(rms=1.0, peak=2.0, bands=(1.0,) * BANDS, chunk=0)]

    known = [[Spread(rms=2.0, peak=3.0, bands=(2.0,) * BANDS, chunk=0).scaled(2.0)]]
    floors = Floors(draw, 2, known)
    first = floors.at(0, 1)
    assert first is not None and (first.rms, first.peak, made) == (4.0, 6.0, [])
    assert floors.whole(0).rms >= 4.0 and made == [1]


@pytest.mark.parametrize("size", [64, 100_000])
def test_infinite_elements_do_not_dilute_the_error_of_others(size: int) -> None:
    """A mean over the finite ones, whether these are sorted out before or by the magnitudes."""
    exact = torch.randn(size, dtype=torch.float64)
    answer, masked = exact * 1.001, torch.arange(size) % 4 > 0
    spread = Magnitudes(exact.masked_fill(masked, -math.inf)).measure(answer, lenient=True)
    alone = Magnitudes(exact[~masked]).measure(answer[~masked])
    assert spread.rms == pytest.approx(alone.rms, rel=1e-12)
    assert list(spread.bands) == pytest.approx(list(alone.bands), rel=1e-12)


def test_a_gradient_that_no_formula_has_to_have_may_be_any() -> None:
    """0 times infinity in eager and in float64 is the true derivative by another formula; elsewhere numbers stay."""
    none = torch.tensor([1.0, math.nan, math.nan, 2.0])
    yardstick = Yardstick(none, none.double(), NO_FLOOR)
    answer = torch.tensor([1.0, 0.0, math.inf, 2.0])
    assert yardstick.compare(answer).nonfinite_mismatch
    yardstick.may_lack = True
    assert not yardstick.compare(answer).nonfinite_mismatch
    assert yardstick.compare(torch.tensor([math.nan, 0.0, 0.0, 2.0])).nonfinite_mismatch
    assert yardstick.compare(torch.tensor([1.0, 0.0, 0.0, 3.0])).bits_lost > 10.0
