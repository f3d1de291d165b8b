# SPDX-License-Identifier: Apache-2.0
"""Parts of storages that are needed, replaced or looked at through views: bytes worked out by hand, never too many."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F  # noqa: N812
from torch import nn

from kernelwright import limits
from kernelwright.limits import demand

N = 64
H = N // 2
COLUMNS = torch.arange(N).remainder(8).eq(0).expand(N, N).clone()
"""Every eighth column: an element of each sector of a row; of the transpose, whole rows."""


def fn(body: object) -> nn.Module:
    """A module whose forward is ``body``."""
    return type("M", (nn.Module,), {"forward": staticmethod(body)})()


def x(*shape: int) -> torch.Tensor:
    """Some numbers."""
    return torch.randn(*(shape or (N, N)))


def halves(base: torch.Tensor, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """Nothing of the base is left."""
    o = base.clone()
    o[:H] = a
    o[H:] = b
    return o


def stored(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """The first half of what was stored is never looked at."""
    buffer = torch.zeros(2, N, N)
    buffer[0] = a * 2
    buffer[1] = b
    return buffer[1]


def columns(base: torch.Tensor, a: torch.Tensor) -> torch.Tensor:
    """Half of the columns are replaced."""
    o = base.clone()
    o[:, ::2] = a
    return o


def random(a: torch.Tensor) -> torch.Tensor:
    """Nothing of the input is left."""
    return a.clone().normal_()


PARTS: dict[str, tuple[Callable[..., object], list[torch.Tensor], int]] = {
    "two results are parts of one input that may be the same": (
        lambda a: (a * 2)[:H] + (a.t() * 3)[:, :H].t(), [x()], H * N * 4),
    "two halves, each replaced": (halves, [x(), x(H, N), x(H, N)], N * N * 4),
    "what is stored and not looked at": (stored, [x(), x()], N * N * 4),
    "columns replaced": (columns, [x(), x(N, H)], N * N * 4),
    "what is drawn anew": (random, [x()], 0),
    "the second of two that are joined": (lambda a, b: torch.cat([a.sum(1), b])[N:], [x(), x(N)], 0),
    "both of two that are joined": (lambda a, b: torch.cat([a.sum(1), b]), [x(), x(N)], (N * N + N) * 4),
    "the first rows of a triangle, of which the last may be all": (
        lambda a: torch.tril(a)[:1], [x()], 0),
    "a mask through a view": (
        lambda a, m: torch.where(m.t(), a, 0.0), [x(), COLUMNS], N * N),
    "a mask as it is": (lambda a, m: torch.where(m, a, 0.0), [x(), COLUMNS], N * N + N * N * 4),
    "a mask that was changed": (
        lambda a, m: torch.where(m.logical_not_(), a, 0.0), [x(), ~torch.zeros_like(COLUMNS)], N * N),
    "an index that was changed": (lambda a, i: a[i.clamp_(max=0)], [x(), torch.arange(N)], N * 8),
    "rows of a table, some of which are used": (
        lambda i, w: F.embedding(i, w)[:3], [torch.tensor([5] * 60 + [0, 1, 2, 3]), x(6, 16)], 3 * 8),
    "bytes of floats": (lambda a: a.view(torch.uint8)[:64] + 1, [x(256)], 64),
    "halves of complex numbers": (
        lambda z: torch.view_as_real(z[:64]) * 2, [torch.randn(256, dtype=torch.complex64)], 64 * 8),
    "targets that are ignored": (
        lambda a, t: F.nll_loss(a, t, reduction="none"), [x(N, 2), torch.full((N,), -100)], N * 8),
    "cross entropy reads the rows": (
        F.cross_entropy, [x(N, 100), torch.zeros(N, dtype=torch.long)], N * 100 * 4 + N * 8),
    "cross entropy of pixels": (
        F.cross_entropy, [x(2, 10, 4, 4), torch.zeros(2, 4, 4, dtype=torch.long)], 320 * 4 + 32 * 8),
    "cross entropy leaves ignored rows out": (
        F.cross_entropy, [x(N, 100), torch.where(torch.arange(N) < H, -100, 0)], H * 100 * 4 + N * 8),
}  # fmt: skip


@pytest.mark.parametrize("name", PARTS)
def test_a_part_is_no_more_than_a_part(name: str) -> None:
    """Views of one storage, parts that are replaced, joined, masked, indexed; each element in its own width."""
    body, inputs, expected = PARTS[name]
    assert expected == limits.trace_module(fn(body), [t.clone() for t in inputs], {}).input_bytes


def add_to_rows(a: torch.Tensor) -> torch.Tensor:
    """Changes four rows of its input."""
    a[:4].add_(1)
    return a


CHANGED: dict[str, tuple[Callable[..., object], list[torch.Tensor], int, int]] = {
    "some rows": (add_to_rows, [x()], 4 * N * 4, 4 * N * 4),
    "what a mask says": (lambda a, m: a.masked_fill_(m, 0), [x(), torch.zeros_like(COLUMNS)], 0, 0),
}


@pytest.mark.parametrize("name", CHANGED)
def test_of_an_input_changed_in_place_the_rest_stays_where_it_is(name: str) -> None:
    """It is handed back, but only what is changed is read and written: of what a mask chooses, perhaps nothing."""
    body, inputs, read, written = CHANGED[name]
    found = limits.trace_module(fn(body), [t.clone() for t in inputs], {})
    assert (read, written) == (found.input_bytes, found.output_bytes)


def test_views_have_in_common_what_can_be_counted() -> None:
    """Rows 0-3 and columns 2-3 of an 8 x 8 storage; a row within all; apart; too large to lay over each other."""
    whole, rows, columns_ = (0, (8, 8), (8, 1)), (0, (4, 8), (8, 1)), (2, (8, 2), (8, 1))
    assert [8.0, 32.0, 32.0, 0.0] == [
        demand.shared(*pair) for pair in ((rows, columns_), (whole, rows), (rows, whole), (rows, (32, (8,), (1,))))
    ]
    far = demand.LARGEST_MASK
    assert demand.shared((0, (2, 2), (far, 2)), (0, (2, 2), (far, 1))) is None
