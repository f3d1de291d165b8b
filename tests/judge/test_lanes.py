# SPDX-License-Identifier: Apache-2.0
"""Stretches worked on by all cores: every one, in order, with the errors of their work."""

from __future__ import annotations

import threading

import pytest
import torch

from kernelwright.judge import lanes
from kernelwright.judge.yardstick import CHUNK, Magnitudes


@pytest.mark.parametrize("count", [0, 1, lanes.FEWEST - 1, lanes.FEWEST, 37, 100])
@pytest.mark.parametrize("host", [True, False])
def test_every_item_is_worked_on_once_and_in_order(count: int, host: bool) -> None:
    """However many there are for however many cores."""
    assert [n * n for n in range(count)] == lanes.each(lambda n: n * n, range(count), host=host)


def test_many_are_shared_out_and_few_are_not() -> None:
    """A device's work stays with the caller's thread."""
    here = threading.get_ident()
    assert {here} == set(lanes.each(lambda _: threading.get_ident(), range(100), host=False))
    assert {here} == set(lanes.each(lambda _: threading.get_ident(), range(lanes.FEWEST - 1)))
    if lanes._hands()[1] > 1:
        assert len(set(lanes.each(lambda _: threading.get_ident(), range(100)))) > 1


def test_what_one_raises_is_raised() -> None:
    """Wherever it was worked on."""

    def work(item: int) -> int:
        if item == 99:
            raise ValueError("the last one")
        return item

    with pytest.raises(ValueError, match="the last one"):
        lanes.each(work, range(100))


def test_an_error_in_any_stretch_is_seen_and_placed() -> None:
    """As by one thread: the largest, its place, the root mean square, and one that is not finite."""
    size = 40 * CHUNK["cpu"] + 5
    exact = torch.randn(size, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    scale = Magnitudes(exact)
    for at in (0, size // 2, size - 1):
        wrong = exact.clone()
        wrong[at] += 8.0
        found = scale.measure(wrong)
        assert found.peak == pytest.approx(8.0) and scale.worst(wrong, found) == at
        assert found.rms == pytest.approx(8.0 / size**0.5)
        wrong[at] = float("nan")
        assert scale.measure(wrong).chunk == at // CHUNK["cpu"] * CHUNK["cpu"]
