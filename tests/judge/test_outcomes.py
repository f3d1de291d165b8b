# SPDX-License-Identifier: Apache-2.0
"""A result that each sample draws for itself is seen over many calls on equal inputs, whatever the others draw."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

from kernelwright.judge import chance, outcomes

Law = Callable[[torch.Tensor], torch.Tensor]


def either(share: float, kind: Law, other: Law = torch.clone) -> Law:
    """Of each sample the one result, with this chance, or the other."""

    def law(x: torch.Tensor) -> torch.Tensor:
        lot = torch.rand(len(x), *[1] * (x.dim() - 1)) < share
        return torch.where(lot, kind(x), other(x))

    return law


def turned(*chances: float) -> Law:
    """Turned one way, and the other, each by lot."""
    return lambda x: either(chances[1], lambda y: y.flip(2))(either(chances[0], lambda y: y.flip(1))(x))


def ordered(orders: list[list[int]]) -> Law:
    """Of each sample the channels in one of some orders."""

    def law(x: torch.Tensor) -> torch.Tensor:
        some = torch.tensor(orders)[torch.randint(len(orders), (len(x),))]
        return x.gather(1, some[:, :, None].expand_as(x))

    return law


def moved(*shares: float) -> Law:
    """Of each sample the rows moved along by so many places, as likely as these shares say."""

    def law(x: torch.Tensor) -> torch.Tensor:
        by = torch.multinomial(torch.tensor(shares), len(x), replacement=True)
        return x.gather(1, ((torch.arange(x.shape[1]) + by[:, None]) % x.shape[1])[..., None].expand_as(x))

    return law


def noisy(size: float) -> Law:
    """A little noise."""
    return lambda x: x + size * x * torch.randn(x.shape)


def rounded(law: Law) -> Law:
    """By another order of operations."""
    return lambda x: law(x * 3.0) / 3.0


def said(mine: Law, theirs: Law, x: torch.Tensor, again: int = outcomes.AGAIN) -> str:
    """What a comparison of as many calls as a proof makes says."""

    def columns(runs: int) -> outcomes.Columns:
        return [([mine(x) for _ in range(chance.CALLS)], [theirs(x) for _ in range(runs)])]

    return outcomes.otherwise(columns(chance.RUNS * chance.CALLS), lambda: columns(chance.CALLS), again)


def both_or_none(x: torch.Tensor) -> torch.Tensor:
    """Turned both ways, or not at all."""
    return either(0.5, lambda y: y.flip((1, 2)))(x)


def together(x: torch.Tensor) -> torch.Tensor:
    """Half of the samples share one number, and each of the others has its own."""
    return torch.cat([x[:8].flip(1) if torch.rand(()) < 0.5 else x[:8], turned(0.5, 0.5)(x[8:])])


CYCLES = [[0, 1, 2], [1, 2, 0], [2, 0, 1]]
ORDERS = [*CYCLES, [0, 2, 1], [1, 0, 2], [2, 1, 0]]
EIGHTHS, SEVENTHS = [1 / 8] * 8, [1 / 7] * 7 + [0.0]
HALVED = [1 / 16] + [15 / 112] * 7


@pytest.mark.parametrize(
    ("mine", "theirs", "right"),
    [
        (turned(0.5, 0.5), turned(0.5, 0.5), True),
        (rounded(turned(0.5, 0.5)), turned(0.5, 0.5), True),
        (lambda x: turned(0.5, 0.5)(x).bfloat16(), lambda x: turned(0.5, 0.5)(x * 1.001).bfloat16(), True),
        (rounded(turned(0.25, 0.5)), turned(0.5, 0.5), False),
        (lambda x: turned(0.25, 0.5)(x).bfloat16(), lambda x: turned(0.5, 0.5)(x * 1.004).bfloat16(), False),
        (turned(0.0, 0.5), turned(0.5, 0.5), False),
        (both_or_none, turned(0.5, 0.5), False),
        (turned(0.25, 0.5), turned(0.5, 0.5), False),
        (ordered(ORDERS), ordered(ORDERS), True),
        (ordered(CYCLES), ordered(ORDERS), False),
        (moved(*EIGHTHS), moved(*EIGHTHS), True),
        (moved(*SEVENTHS), moved(*EIGHTHS), False),
        (moved(*HALVED), moved(*EIGHTHS), False),
        (moved(7 / 8, 1 / 8), moved(7 / 8, 1 / 8), True),
        (moved(1.0, 0.0), moved(7 / 8, 1 / 8), False),
        (moved(15 / 16, 1 / 16), moved(7 / 8, 1 / 8), False),
        (together, together, True),
        (lambda x: x[torch.randperm(len(x))], lambda x: x[torch.randperm(len(x))], True),
        (either(0.01, torch.zeros_like), either(0.01, torch.zeros_like), True),
        (lambda x: torch.randint(10, (16,)), lambda x: torch.randint(10, (16,)), True),
        (lambda x: torch.randint(9, (16,)), lambda x: torch.randint(10, (16,)), False),
        (torch.rand_like, torch.rand_like, True),
        (torch.clone, torch.clone, True),
        (lambda x: turned(0.5, 0.5)(x) * 1j, lambda x: turned(0.5, 0.5)(x) * 1j, True),
        (lambda x: turned(0.5, 0.0)(x) * 1j, lambda x: turned(0.5, 0.5)(x) * 1j, False),
    ],
)
def test_results_of_samples_come_as_often_as_those_of_the_reference(mine: Law, theirs: Law, right: bool) -> None:
    """Twice each; which result of one sample is which of another's does not matter."""
    torch.manual_seed(5)
    channels = 3 if "ordered" in mine.__qualname__ else 8
    for _ in range(2):
        found = said(mine, theirs, torch.randn(16, channels, 8))
        assert bool(found) is not right, found


def test_runs_that_exist_tell_what_never_comes() -> None:
    """One of four results, without a further run."""
    torch.manual_seed(6)
    for _ in range(3):
        assert said(both_or_none, turned(0.5, 0.5), torch.randn(16, 8, 8), again=0)


def test_noise_of_the_size_of_a_rounding_is_no_result() -> None:
    """A run that is the first near one is a result, a call that is there is none: such a sample is not counted."""
    torch.manual_seed(7)
    for size in (3e-5, 3e-4, 1e-3, 3e-3):
        found = outcomes.Outcomes()
        x, law = torch.randn(64, 4), noisy(size)
        found.add([law(x) for _ in range(48)], [law(x) for _ in range(144)])
        assert not found.few


def test_a_sample_whose_results_are_rounded_away_is_left_out() -> None:
    """One result is off by a hundredth, as in other arithmetic, and not the other: that is for others to judge."""
    torch.manual_seed(8)
    x = torch.randn(16, 64)
    mine, theirs = (either(0.5, lambda y, s=scale: y.flip(1) * s) for scale in (1.01, 1.0))
    assert not said(mine, theirs, x)


def test_a_result_of_nothing_but_rounding_is_that_of_zeros() -> None:
    """Beside the other result of the sample it is zero, however little it is like it."""
    torch.manual_seed(9)
    x = torch.randn(16, 64)
    assert not said(either(0.5, lambda y: y * 1e-9), either(0.5, torch.zeros_like), x)
    assert said(either(0.9, lambda y: y * 1e-9), either(0.5, torch.zeros_like), x)


def test_a_sample_alone_has_more_results_than_whole_calls_are_counted_for() -> None:
    """Four channels have 24 orders."""
    torch.manual_seed(10)
    x = torch.randn(1, 4, 8)
    assert not said(lambda x: x[:, torch.randperm(4)], lambda x: x[:, torch.randperm(4)], x)
    assert said(lambda x: x[:, (torch.arange(4) + torch.randint(4, ())) % 4], lambda x: x[:, torch.randperm(4)], x)


def test_further_runs_are_made_for_few_results_alone() -> None:
    """Dropout has none, nor has what is no random number; and dear calls are made once."""
    x, asked = torch.randn(16, 64), []

    def further() -> outcomes.Columns:
        asked.append(1)
        return columns(turned_)

    def columns(law: Law) -> outcomes.Columns:
        return [([law(x) for _ in range(48)], [law(x) for _ in range(144)])]

    turned_ = either(0.5, lambda y: y.flip(1))
    for law, many in ((torch.nn.functional.dropout, 0), (torch.clone, 0), (turned_, 3)):
        asked.clear()
        assert not outcomes.otherwise(columns(law), further, 3)
        assert len(asked) == many
    assert (outcomes.times(1.0), outcomes.times(4e5), outcomes.times(2e6)) == (outcomes.AGAIN, 2, 0)
