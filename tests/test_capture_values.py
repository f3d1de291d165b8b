# SPDX-License-Identifier: Apache-2.0
"""capture/values.py: text that makes the same number, or a tensor with the same gaps."""

from __future__ import annotations

import enum
import math
from typing import Any

import numpy as np
import pytest
import torch

from kernelwright.capture.example import drawn
from kernelwright.capture.values import literal

INF = math.inf


class Level(enum.IntEnum):
    """An integer whose repr is no literal."""

    HIGH = 3


def made(value: object, *, own: bool = True) -> object:
    """What the written text makes, where only torch is imported."""
    return eval(literal(value, own=own), {"torch": torch})


def tensor(value: torch.Tensor) -> torch.Tensor:
    """The same for tensors; shape and type are the given one's."""
    found = made(value)
    assert isinstance(found, torch.Tensor)
    assert (value.shape, value.dtype) == (found.shape, found.dtype)
    return found


@pytest.mark.parametrize(
    ("given", "wanted"),
    [
        (-INF, -INF),
        ([INF, {"a": (0.5,)}], [INF, {"a": (0.5,)}]),
        (np.float64(0.5), 0.5),
        (np.float32(0.5), 0.5),
        (np.int64(7), 7),
        (Level.HIGH, 3),
        ({Level.HIGH: True}, {3: True}),
        (np.str_("mean"), "mean"),
        (-0.0, -0.0),
        (None, None),
    ],
)
def test_numbers_are_written_as_plain_ones(given: object, wanted: object) -> None:
    """Infinities have no literal; subclasses name what is not imported."""
    assert repr(wanted) == repr(made(given, own=False))
    assert math.isnan(made(math.nan))  # type: ignore[arg-type]  # a float


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64])
def test_small_tensors_with_infinities_are_written_out(dtype: torch.dtype) -> None:
    """A causal mask of 4 by 4, and one with nan."""
    mask = torch.full((4, 4), -INF, dtype=dtype).triu(1)
    assert torch.equal(mask, tensor(mask))
    odd = torch.tensor([0.5, math.nan, INF], dtype=dtype)
    torch.testing.assert_close(odd, tensor(odd), rtol=0, atol=0, equal_nan=True)


@pytest.mark.parametrize("hidden", [-INF, torch.finfo(torch.float32).min])
@pytest.mark.parametrize("shape", [(33, 33), (2, 1, 16, 40)])
def test_causal_masks_stay_causal(hidden: float, shape: tuple[int, ...]) -> None:
    """On either side of the diagonal, with any offset, and with true and false."""
    for cut in (torch.Tensor.triu, torch.Tensor.tril):
        for diagonal in (-2, 0, 1):
            there = cut(torch.ones(shape), diagonal).bool()
            mask = torch.zeros(shape).masked_fill(there, hidden)
            assert torch.equal(mask, tensor(mask))
            assert torch.equal(there, tensor(there))


def test_scattered_infinities_keep_their_share_and_leave_no_row_empty() -> None:
    """Finite values keep their spread; a softmax over each row stays finite."""
    torch.manual_seed(0)
    scores = torch.randn(200, 8) * 3
    scores[torch.rand(200, 8) < 0.75] = -INF
    scores[:, 3] = 1.0
    found = tensor(scores)
    assert 0.5 < float(found.isinf().double().mean()) < 0.8
    assert bool(found.softmax(-1).isfinite().all())
    assert 1.0 < float(found[found.isfinite()].std()) < 4.0
    both = torch.rand(100, 10)
    both[::2, 0], both[1::2, 0] = INF, math.nan
    again = tensor(both)
    assert 20 <= int(again.isinf().sum()) <= 90 and 20 <= int(again.isnan().sum()) <= 90
    assert 0.0 <= float(again[again.isfinite()].min())


def test_tensors_of_nothing_but_infinity() -> None:
    """There is no spread to speak of."""
    for shape in ((100,), (70, 1), ()):
        assert bool((tensor(torch.full(shape, -INF)) == -INF).all())
    assert (0, 3) == tensor(torch.empty(0, 3)).shape


def test_the_largest_integer_can_be_drawn() -> None:
    """The range ends where the type does."""
    assert (3,) == tensor(torch.tensor([0, 1, 2**63 - 1])).shape


@pytest.mark.parametrize(
    ("given", "kept"),
    [
        (torch.rand(2, 3, 4, 5).to(memory_format=torch.channels_last), True),
        (torch.rand(6, 4).T, True),
        (torch.rand(6, 8)[:, :4], True),
        (torch.rand(12)[::2] > 0.5, True),
        (torch.randint(0, 5, (4, 6)).T, True),
        (torch.rand(1, 4).expand(3, 4), True),
        (torch.rand(8).unfold(0, 4, 2), False),
        (torch.rand(4, 1).T, True),
    ],
)
def test_a_tensor_lies_as_the_given_one_does(given: torch.Tensor, kept: bool) -> None:
    """Channels last, transposed, with gaps, expanded; windows that overlap are written out flat."""
    found = tensor(given)
    assert (given.is_contiguous() or found.stride() == given.stride()) == kept
    assert kept or found.is_contiguous()


def call(*values: object) -> list[Any]:
    """What the written ``get_inputs`` returns."""
    names: dict[str, Any] = {"torch": torch}
    exec(drawn(values), names)
    found: list[Any] = names["get_inputs"]()
    return found


def test_an_input_that_is_given_twice_is_one() -> None:
    """sqrt(x * x) has a value where sqrt(x * y) has none; equal tensors of their own stay two."""
    x = torch.randn(6, 4)
    for given, one in (((x, x), True), ((x, x.clone()), False), ((x, x[:, :]), True), ((x[:3], x[3:]), False)):
        first, second = call(*given)
        assert one == (first is second)
    nested = call({"a": [x, 3], "b": (x,)}, x.t())
    assert nested[0]["a"][0] is nested[0]["b"][0]
    assert (3, torch.Size([4, 6])) == (nested[0]["a"][1], nested[1].shape)


def test_an_expanded_input_stays_one_row() -> None:
    """Its rows are equal in every draw, as they are in the example."""
    mask = torch.ones(4, 4, dtype=torch.bool).tril().expand(3, 4, 4)
    for given in (torch.randn(1, 4).expand(6, 4), torch.randn(6, 1).expand(6, 4), torch.ones(()).expand(2, 3), mask):
        assert given.stride() == tensor(given).stride()
    assert torch.equal(mask, tensor(mask))
