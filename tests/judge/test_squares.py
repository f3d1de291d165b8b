# SPDX-License-Identifier: Apache-2.0
"""judge/squares.py: square matrices of which little is left, known by operators and by how tensors lie."""

from __future__ import annotations

import pytest
import torch

from kernelwright.judge import squares

C, E = torch.randn(5, 5), torch.eye(5)
MANY = torch.randn(3, 5, 5)


@pytest.mark.parametrize(
    ("name", "args", "kwargs"),
    [
        ("diagonal", (C,), {}),
        ("diagonal", (MANY, 0, -2, -1), {}),
        ("diagonal", (MANY,), {"dim1": 1, "dim2": 2}),
        ("linalg_diagonal", (MANY,), {}),
        ("trace", (C,), {}),
        ("fill_diagonal_", (C, 1.0), {}),
        ("as_strided", (C, [5], [6]), {}),
        ("triu", (C, 1), {}),
        ("tril", (MANY,), {"diagonal": -1}),
        ("mul", (C, 1 - E), {}),
        ("__rmul__", (E, MANY), {}),
        ("masked_fill", (C, E.bool(), 0.0), {}),
        ("__getitem__", (C, ~E.bool()), {}),
        ("index", (C, [E.bool()]), {}),
    ],
)
def test_what_takes_a_diagonal_or_the_rest(name: str, args: tuple, kwargs: dict) -> None:
    whole = squares.parted(name, args, kwargs)
    assert whole is next(x for x in (C, MANY) if any(x is arg for arg in args))


@pytest.mark.parametrize(
    ("name", "args"),
    [
        ("diagonal", (MANY,)),  # of the first two axes
        ("diagonal", (C, 1)),
        ("diag", (torch.randn(5),)),
        ("diagonal", (torch.randn(4, 5),)),
        ("diagonal", (torch.ones(5, 5, dtype=torch.int64),)),
        ("triu", (C,)),
        ("as_strided", (C, [5], [5])),
        ("tril", (C, 1)),
        ("mul", (C, torch.ones(5, 5).tril())),
        ("mul", (C, 2.0)),
        ("add", (C, E)),
        ("__getitem__", (C, 0)),
        ("index", (C, [torch.tensor([1])])),
    ],
)
def test_what_does_not(name: str, args: tuple) -> None:
    assert squares.parted(name, args, {}) is None


def test_the_rest_has_zeros_on_its_diagonal() -> None:
    rest, diagonal = squares.beside_diagonal(MANY)
    assert torch.equal(rest + torch.diag_embed(diagonal), MANY) and not bool(rest.diagonal(dim1=1, dim2=2).any())
    assert squares.diagonal_of(C.diagonal(), C) and not squares.diagonal_of(C[0], C)
    assert not squares.diagonal_of(torch.randn(5), None)


def test_a_transpose_lies_in_the_same_memory() -> None:
    assert squares.transposed(C, C.T) and squares.transposed(MANY.mT, MANY)
    assert not squares.transposed(C, C) and not squares.transposed(C, C.T.clone())
    assert not squares.transposed(MANY, MANY.flip(0)) and not squares.transposed(C, 1.0)


def test_an_identity_is_told_to_the_last_element() -> None:
    other = torch.eye(5)
    other[4, 3] = 1e-3
    assert squares.identity(E) and squares.identity(E.expand(3, 5, 5)) and squares.identity(E.bool())
    assert not squares.identity(other) and not squares.identity(C) and not squares.identity(torch.eye(4, 5))
