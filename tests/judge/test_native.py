# SPDX-License-Identifier: Apache-2.0
"""Compiled passes say what numpy says, and numpy says it where they cannot."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from kernelwright.judge import native, yardstick
from kernelwright.judge.floors import Spread
from kernelwright.judge.native import Passes
from kernelwright.judge.yardstick import Magnitudes, Yardstick


@pytest.fixture(scope="module")
def passes(tmp_path_factory: pytest.TempPathFactory) -> Passes:
    """Compiled."""
    made = Passes()
    made.prepare(tmp_path_factory.mktemp("built"))
    assert made.compile()
    return made


@pytest.fixture
def both(passes: Passes, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """``Magnitudes`` uses them, and several threads for arrays of 4096 elements."""
    monkeypatch.setattr(native, "LARGE", 4096)
    monkeypatch.setattr(yardstick, "PASSES", passes)
    yield


def by_numpy(exact: torch.Tensor, monkeypatch: pytest.MonkeyPatch) -> Magnitudes:
    """The same in numpy."""
    with monkeypatch.context() as patch:
        patch.setattr(yardstick, "PASSES", Passes())
        return Magnitudes(exact)


def alike(one: Spread, other: Spread) -> None:
    """All but the order of summation."""
    assert one.peak == other.peak and one.chunk == other.chunk
    assert one.rms == pytest.approx(other.rms, rel=1e-12)
    assert one.bands == pytest.approx(other.bands, rel=1e-12)


def spread_out(count: int) -> torch.Tensor:
    """Magnitudes over all bands, and some zeros."""
    values = torch.randn(count, dtype=torch.float64) * 10.0 ** -torch.randint(0, 16, (count,))
    values[torch.randint(0, count, (count // 50,))] = 0.0
    return values


CASES = {
    "all bands": spread_out(70_001),
    "one band": torch.full((5000,), -3.0, dtype=torch.float64),
    "one band below the largest": torch.cat([torch.full((4999,), 1e-3), torch.ones(1)]).double(),
    "a multiple of the stretch": torch.randn(1 << 16, dtype=torch.float64),
    "powers of sixteen": (16.0 ** -(torch.arange(5000) % 13)).double(),
}


@pytest.mark.usefixtures("both")
@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.float16])
def test_bands_sizes_and_errors_are_those_of_numpy(
    name: str, dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    """For answers of every width, on the same exact values."""
    exact = CASES[name]
    mine, other = Magnitudes(exact), by_numpy(exact, monkeypatch)
    assert mine._native and not other._native
    assert mine.counts == other.counts and mine.top == other.top and mine.finite
    alike(mine.own, other.own)
    answer = (exact * (1 + 1e-4 * torch.randn_like(exact))).to(dtype)
    alike(mine.measure(answer, 2.5), other.measure(answer, 2.5))
    assert mine.worst(answer, mine.measure(answer)) == other.worst(answer, other.measure(answer))
    assert mine.measure(exact) == other.measure(exact)  # no error at all


@pytest.mark.usefixtures("both")
@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf, 1e200])
def test_what_squares_do_not_hold_is_left_to_numpy(bad: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """In the answer, and in the exact values."""
    exact = CASES["all bands"].clone()
    answer = exact.clone()
    answer[40_000] = bad
    mine, other = Magnitudes(exact), by_numpy(exact, monkeypatch)
    one, two = mine.measure(answer), other.measure(answer)
    assert one.chunk == two.chunk == 32768 and mine._native
    assert one.peak == two.peak or (one.peak != one.peak and two.peak != two.peak)
    exact[40_000] = bad
    mine, other = Magnitudes(exact), by_numpy(exact, monkeypatch)
    assert not mine._native and mine.counts == other.counts and mine.finite == other.finite
    assert mine.own == other.own


@pytest.mark.usefixtures("both")
def test_one_wrong_element_is_found_where_it_is() -> None:
    """In the last, odd stretch as well."""
    exact = CASES["all bands"]
    eager = exact.float()
    for at in (0, 1023, 1024, 35_001, 70_000):
        wrong = eager.clone()
        wrong[at] += 1.0
        found = Yardstick(eager, exact, yardstick.NO_FLOOR).compare(wrong)
        assert found.worst_index == at and found.bits_lost > 5


def fits(made: Passes, values: torch.Tensor) -> bool:
    """Whether they are there within a minute."""
    deadline = time.monotonic() + 60
    while not made.fit(values) and time.monotonic() < deadline:
        time.sleep(0.01)
    return made.fit(values)


def test_the_first_large_array_has_them_compiled(tmp_path: Path) -> None:
    """Small ones, or without a place to keep them, do not; those find what is there, and then use it."""
    made = Passes()
    large, small = (torch.zeros(count, dtype=torch.float64) for count in (native.LARGE, native.LEAST))
    assert not made.fit(large)
    made.prepare(tmp_path)
    assert not made.fit(small) and not made.find() and not [*tmp_path.iterdir()]
    assert fits(made, large) and made.fit(small) and not made.fit(small[1:])
    other = Passes()
    other.prepare(tmp_path)
    assert fits(other, small)


@pytest.mark.usefixtures("both")
def test_a_part_whose_squares_vanish_is_left_to_numpy(monkeypatch: pytest.MonkeyPatch) -> None:
    """One thread has it alone."""
    exact = torch.cat([torch.ones(4096), torch.full((4096,), 1e-30)]).double()
    exact[4096:] *= 1e-170
    mine, other = Magnitudes(exact), by_numpy(exact, monkeypatch)
    assert mine.own == other.own and mine.counts == other.counts


def test_without_a_compiler_numpy_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The thread ends, and nothing is raised."""
    monkeypatch.setenv("PATH", str(tmp_path))
    made = Passes()
    made.prepare(tmp_path / "built")
    assert not made.compile()
    assert not made.fit(torch.zeros(native.LARGE, dtype=torch.float64))
