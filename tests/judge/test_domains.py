# SPDX-License-Identifier: Apache-2.0
"""Operators that a device asserts for raise before it is asked, for the values that a CPU raises for."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch import tensor

from kernelwright.judge.domains import Kept, Particular, kept
from kernelwright.judge.oracle import Counting

ROWS, SCORES = torch.ones(4, 3), torch.zeros(2, 5)
HALF = torch.full((3,), 0.5)
ASKED: dict[str, Callable[[int], object]] = {
    "probabilities": lambda out: F.binary_cross_entropy(HALF + out, HALF),
    "targets": lambda out: F.binary_cross_entropy(HALF, HALF + out),
    "coins": lambda out: torch.bernoulli(HALF + out),
    "coins each": lambda out: torch.empty(3).bernoulli_(HALF + out),
    "shares": lambda out: torch.multinomial(HALF - out, 2),
    "shares of nothing": lambda out: torch.multinomial(ROWS - tensor([[0], [out], [0], [0]]), 2),
    "rates": lambda out: torch.poisson(HALF - out),
    "repeats": lambda out: torch.repeat_interleave(ROWS, tensor([1, 0 - out, 2, 1]), dim=0),
    "said to be true": lambda out: torch._assert_async(tensor(1 - out)),
    "embedding": lambda out: F.embedding(tensor([0, 3 + out]), ROWS),
    "bag": lambda out: F.embedding_bag(tensor([0, 3 + out]), ROWS, tensor([0])),
    "rows": lambda out: ROWS.index_select(0, tensor([3 + out])),
    "gathered": lambda out: ROWS.gather(1, tensor([[2 + out]])),
    "scattered": lambda out: torch.zeros(4, 3).scatter(1, tensor([[2 + out]]), 1.0),
    "added": lambda out: torch.zeros(4, 3).scatter_add(0, tensor([[3 + out]]), torch.ones(1, 1)),
    "added rows": lambda out: torch.zeros(4, 3).index_add(0, tensor([3 + out]), torch.ones(1, 3)),
    "scattered in place": lambda out: torch.zeros(4, 3).scatter_(1, tensor([[2 + out]]), 1.0),
    "most of them": lambda out: torch.zeros(4, 3).scatter_reduce(0, tensor([[3 + out]]), torch.ones(1, 1), "amax"),
    "copied rows": lambda out: torch.zeros(4, 3).index_copy_(0, tensor([3 + out]), torch.ones(1, 3)),
    "filled rows": lambda out: torch.zeros(4, 3).index_fill(0, tensor([3 + out]), 1.0),
    "put": lambda out: torch.zeros(4, 3).index_put_((tensor([3 + out]),), torch.ones(3)),
    "taken": lambda out: ROWS.take(tensor([11 + out])),
    "unpooled": lambda out: F.max_unpool2d(torch.ones(1, 1, 1, 1), tensor([[[[3 + out]]]]), 2),
    "classes": lambda out: F.cross_entropy(SCORES, tensor([0, 4 + out])),
    "places": lambda out: ROWS[:, tensor([2 + out])],
    "places beside flags": lambda out: ROWS[tensor([True, False, True, True]), tensor([0, 1, 2 + out])],
}
"""Calls that are accepted as they are, and not with values one too large."""


@pytest.mark.parametrize("name", ASKED)
def test_what_a_cpu_refuses_is_refused_before_it_is_asked(name: str) -> None:
    """And nothing else is; that the operator is particular is seen in a call that it takes."""
    call = ASKED[name]
    with pytest.raises((RuntimeError, IndexError)):
        call(1)
    with Counting() as count, Kept():
        call(0)
    assert count.particular
    with Kept(), pytest.raises(ValueError, match="are accepted"):
        call(1)


def test_classes_that_do_not_count_and_nothing_at_all_are_accepted() -> None:
    """As they are on a CPU, and places from the end."""
    with Kept():
        F.cross_entropy(SCORES, tensor([0, -100]))
        ROWS[tensor([-4])]
        F.embedding(torch.zeros(0, dtype=torch.int64), ROWS)
        F.binary_cross_entropy(torch.zeros(0), torch.zeros(0))
        torch.bernoulli(3.0 * ROWS, 0.5)
        torch.empty(3).fill_(7.0).bernoulli_(0.5)
        torch.zeros(4, 3).scatter_add_(0, torch.zeros(0, 3, dtype=torch.int64), torch.zeros(0, 3))


def test_only_on_a_device_and_where_a_reference_has_such_operators() -> None:
    """Elsewhere it would cost time for nothing: a CPU raises itself."""
    device, asking = torch.device("cuda:0"), Particular()
    assert not isinstance(kept(device, asking), Kept)
    asking.values = True
    assert isinstance(kept(device, asking), Kept)
    assert not isinstance(kept(torch.device("cpu"), asking), Kept)
    with Counting() as count:
        torch.softmax(ROWS, -1)
    assert not count.particular.values and not count.particular.order


def test_a_table_that_is_searched_in_stays_in_order_where_it_was() -> None:
    """On a CPU too, where nothing raises and a search in any other finds what it likes."""
    shares = torch.rand(4, 16, generator=torch.Generator().manual_seed(1))
    for search in (
        lambda table: torch.searchsorted(table, torch.ones(4, 2)),
        lambda table: torch.bucketize(torch.ones(3), table[0]),
    ):
        with Counting() as count:
            search(shares.cumsum(-1))
        with kept(torch.device("cpu"), count.particular):
            search(shares.cumsum(-1) * 3.0)
            search(torch.ones(4, 16) - 2e-7 * (torch.arange(16) == 7))  # a rounding below the one before
            search(torch.zeros(4, 0))  # nothing is found in nothing
            with pytest.raises(ValueError, match="not in order"):
                search(-shares.cumsum(-1))
        with Counting() as count:
            search(shares)
            search(shares.cumsum(-1))
        with kept(torch.device("cpu"), count.particular):
            search(-shares.cumsum(-1))
            with kept(
                torch.device("cpu"), count.particular, order=False
            ):  # of neighbours that are equal, moved a little
                search(-shares)
    with Counting() as count:
        torch.searchsorted(shares, torch.ones(4, 2), sorter=shares.argsort(-1))
    assert not count.particular.order
