# SPDX-License-Identifier: Apache-2.0
"""How wrong is an answer: the comparisons one by one."""

from __future__ import annotations

import math

import pytest
import torch
from plain_tasks import instance

from kernelwright.judge import numerics
from kernelwright.judge.floors import NO_FLOOR, Floor, Spread, honest_floor
from kernelwright.judge.inputs import Variant
from kernelwright.judge.verify import Checker
from kernelwright.judge.yardstick import Magnitudes, compare


def against(got: torch.Tensor, exact: torch.Tensor, floor: Floor = NO_FLOOR) -> numerics.Comparison:
    """Compare with an eager that is right to the last bit."""
    return compare(got, exact.to(got.dtype), exact, floor, got.dtype)


def test_an_ulp_is_within_one_bit_and_four_are_not() -> None:
    """The scale of the ratio is the rounding of the dtype."""
    exact = torch.rand(4096, dtype=torch.float64) + 1
    rounded = exact.to(torch.float32)
    assert against(rounded, exact).error_ratio <= 1.0
    assert against(rounded * (1 + 2**-21), exact).bits_lost > 1.0


def test_zeros_fail_however_small_the_values_are() -> None:
    """An absolute tolerance would let them pass."""
    exact = torch.rand(64, dtype=torch.float64) * 1e-20
    assert against(torch.zeros(64), exact).bits_lost > 10


def test_small_rows_beside_large_ones_count() -> None:
    """Zeros for the small rows vanish in the RMS of the whole; the band of their magnitude sees them."""
    exact = torch.rand(64, 64, dtype=torch.float64) + 1
    exact[32:] *= 1e-12
    got = exact.to(torch.float32)
    got[32:] = 0.0
    found = against(got, exact)
    assert "magnitudes" in found.detail
    assert found.bits_lost > 1.0


def test_one_wrong_element_in_a_million_fails() -> None:
    """The largest error is bounded too, and the element is named."""
    exact = torch.rand(1 << 20, dtype=torch.float64) + 1
    got = exact.to(torch.float32)
    got[12345] += 1e-3
    found = against(got, exact)
    assert 12345 == found.worst_index
    assert found.bits_lost > 1.0


@pytest.mark.parametrize("wrong", [math.nan, math.inf, -math.inf])
def test_a_stray_nan_or_inf_fails_and_matching_ones_pass(wrong: float) -> None:
    """No wildcard: the pattern is the reference's."""
    exact = torch.ones(8, dtype=torch.float64)
    got = torch.ones(8)
    got[3] = wrong
    found = against(got, exact)
    assert (True, 3) == (found.nonfinite_mismatch, found.worst_index)
    exact[3] = wrong
    assert 0.0 == against(got, exact).error_ratio


def test_inf_where_the_reference_has_nan_fails() -> None:
    """One poison is not as good as another."""
    exact = torch.tensor([math.nan, 1.0], dtype=torch.float64)
    assert against(torch.tensor([math.inf, 1.0]), exact).nonfinite_mismatch


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16, torch.float64, torch.int32])
def test_poison_left_in_place_is_named_unwritten(dtype: torch.dtype) -> None:
    """The message says what happened, not that NaN differs from 1."""
    exact = torch.ones(8, dtype=dtype if dtype is torch.int32 else torch.float64)
    got = torch.ones(8, dtype=dtype)
    numerics.poison_(got[5:])
    assert "unwritten" in against(got, exact).detail


def test_shape_and_dtype_are_exact() -> None:
    """Broadcastable and castable is not equal."""
    exact = torch.ones(4, 1, dtype=torch.float64)
    eager = exact.to(torch.float32)
    assert math.inf == compare(torch.ones(4), eager, exact, NO_FLOOR, torch.float32).error_ratio
    assert math.inf == compare(torch.ones(4, 1).double(), eager, exact, NO_FLOOR, torch.float32).error_ratio


def test_integers_are_exact_and_rounded_ties_may_follow_the_oracle() -> None:
    """Where eager and the oracle round differently either is right, nothing else is."""
    eager, exact = torch.tensor([1, 2, 3]), torch.tensor([1, 2, 4])
    assert 0.0 == compare(torch.tensor([1, 2, 4]), eager, exact, NO_FLOOR, torch.int64).error_ratio
    found = compare(torch.tensor([1, 3, 3]), eager, exact, NO_FLOOR, torch.int64)
    assert (math.inf, 1) == (found.error_ratio, found.worst_index)


def test_a_boolean_is_a_byte_of_zero_or_one() -> None:
    """torch takes any other one for true, numpy and C do not."""
    eager = torch.tensor([True, False, True])
    assert numerics.compare_exact(eager.clone(), eager, eager).error_ratio == 0.0
    told = numerics.compare_exact(torch.tensor([1, 0, 255], dtype=torch.uint8).view(torch.bool), eager, eager)
    assert (math.inf, 2) == (told.error_ratio, told.worst_index)


def test_indices_are_compared_by_the_value_they_point_at() -> None:
    """Ties may fall either way; a worse element may not, nor one outside."""
    source = torch.tensor([[1.0, 5.0, 5.0], [7.0, 2.0, 7.0]])
    eager = source.argmax(1)
    assert 0.0 == numerics.compare_indices(torch.tensor([2, 2]), eager, source).error_ratio
    assert math.inf == numerics.compare_indices(torch.tensor([0, 2]), eager, source).error_ratio
    assert math.inf == numerics.compare_indices(torch.tensor([2, 9]), eager, source).error_ratio


def test_denormals_may_be_flushed() -> None:
    """Flushing to zero below the smallest normal number is as honest as not."""
    exact = torch.full((64,), 1e-40, dtype=torch.float64)
    assert against(torch.zeros(64), exact).bits_lost <= 1.0


def test_the_floor_widens_where_all_elements_share_one_error() -> None:
    """Draws that move as one vary like a single normal number: their floor is wider than that of independent ones."""
    exact = torch.ones(4096, dtype=torch.float64)
    generator = torch.Generator().manual_seed(0)
    shared = [torch.randn(1, generator=generator).double().expand(4096) for _ in range(8)]
    apart = [torch.randn(4096, generator=generator).double() for _ in range(8)]
    scale = Magnitudes(exact)
    floors = [honest_floor([scale.measure(exact + noise) for noise in noises]) for noises in (apart, shared)]
    assert floors[0].rms < 1.2
    assert floors[1].rms > 1.5 * max(float(one[0].abs()) for one in shared)


def test_complex_outputs_are_compared() -> None:
    """As pairs of reals."""
    exact = torch.randn(64, dtype=torch.complex128)
    got = exact.to(torch.complex64)
    assert compare(got, got, exact, NO_FLOOR, torch.complex64).error_ratio <= 1.0
    assert compare(got * 1.001, got, exact, NO_FLOOR, torch.complex64).bits_lost > 5


def test_errors_whose_squares_are_no_numbers_have_a_floor() -> None:
    """1.8e308 is what float64 has for infinity after nan_to_num: three such draws scatter as three ones do."""
    floors = [
        honest_floor([Spread(rms=size, peak=size, bands=(), chunk=1) for _ in range(3)]) for size in (1.0, 1.7e308)
    ]
    assert [1.0, 1.7e308] == [floor.rms for floor in floors]
    apart = honest_floor([Spread(rms=size, peak=size, bands=(), chunk=1) for size in (1e200, 2e200, 3e200)])
    assert apart.rms == pytest.approx(2.0 * 3e200)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64, torch.complex64])
@pytest.mark.parametrize("odd", [math.nan, math.inf, -math.inf, None])
def test_what_is_not_finite_is_found_wherever_it_is(dtype: torch.dtype, odd: float | None) -> None:
    """One element of many, in either part of a complex number; sums that overflow are no infinities."""
    values = torch.full((7, 33), torch.finfo(dtype).max, dtype=dtype)
    assert numerics.finite(values)
    assert numerics.finite(values[:0])
    if odd is not None:
        numerics.real(values)[3, 5] = odd
        assert not numerics.finite(values)
        assert not numerics.finite(values.T)
    assert numerics.finite(torch.ones(3, dtype=torch.int64))


def test_a_lazy_conjugate_is_what_it_says() -> None:
    """Of a result too, which a task may return: a reference that did so was said to fail."""
    z = torch.complex(torch.tensor([1.0, -2.0]), torch.tensor([0.5, 3.0]))
    assert numerics.real(z.conj()).tolist() == [[1.0, -0.5], [-2.0, -3.0]]
    made = instance("torch.fft.rfft(x).conj()", "[torch.randn(4, 16)]")
    given = Variant(name="as given", required=True)
    leaves = made.draw(given, 3)
    answers = [torch.fft.rfft(leaves[0]).conj().resolve_conj(), torch.fft.rfft(leaves[0])]
    assert [Checker(made, seed=3).check(given, leaves, None, [one], leaves).passed for one in answers] == [True, False]
