# SPDX-License-Identifier: Apache-2.0
"""The runner's own words about failures, bounded and honest."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

import pytest
import torch

from kernelwright.judge import plain


@pytest.mark.parametrize(
    ("error", "kind", "text"),
    [
        (ValueError("x" * 9000), "raised", "ValueError: " + "x" * 488),
        (MemoryError("m"), "memory", "MemoryError: m"),
        (RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried"), "memory", "RuntimeError: Default"),
        (torch.OutOfMemoryError("CUDA"), "memory", "OutOfMemoryError: CUDA"),
        (plain.WrongStructure("output 0"), "structure", "output 0"),
        (SystemExit(2), "raised", "SystemExit: 2"),
    ],
)
def test_a_failure_is_described(error: BaseException, kind: str, text: str) -> None:
    """Kind for a program, bounded text for a person."""
    told = plain.describe(error)
    assert kind == told["kind"]
    assert told["text"].startswith(text) and len(told["text"]) <= 500 and len(told["detail"]) <= 4000


def test_an_exception_that_cannot_be_printed_is_still_described() -> None:
    """Candidate code writes __str__ too."""

    class Rude(Exception):
        def __str__(self) -> str:
            raise RuntimeError

    assert "Rude" in plain.describe(Rude())["text"]


@pytest.mark.parametrize(
    "leaf",
    [
        torch.zeros(2, 2),
        torch.zeros(4, dtype=torch.float64),
        torch.zeros(4).to_sparse(),
        torch.zeros(4, device="meta"),
        torch.zeros(4).as_subclass(type("Sub", (torch.Tensor,), {})),
    ],
)
def test_only_the_exact_tensor_is_delivered(leaf: torch.Tensor) -> None:
    """Shape, dtype, device, layout and class are exact."""
    with pytest.raises(plain.WrongStructure):
        plain.check("output 0", leaf, torch.zeros(4))


def test_a_parameter_counts_as_a_tensor() -> None:
    """A module may return its own parameter."""
    plain.check("output 0", torch.nn.Parameter(torch.zeros(4)), torch.zeros(4))


@pytest.mark.parametrize(
    ("forward", "right"),
    [
        (lambda a, b: a, True),
        (lambda x, y: x, True),
        (lambda a, weight, b=1: a, True),
        (lambda *given: given, True),
        (lambda b, a: a, False),
        (lambda x, b, a: a, False),
    ],
)
def test_arguments_that_have_the_references_names_stand_where_they_do_there(
    forward: Callable[..., Any], right: bool
) -> None:
    """``b - a`` by position is granted as ``a - b``, and wrong for whoever names them."""
    with contextlib.nullcontext() if right else pytest.raises(plain.WrongStructure, match="exchanged"):
        plain.takes(forward, ["a", "b"])
