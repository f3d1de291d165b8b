# SPDX-License-Identifier: Apache-2.0
"""How a module's parameters begin, before weights are loaded into it, beside the reference's own.

A program of which they begin as zeros, or as whatever lay in memory, answers rightly once it has the reference's
weights, and trains otherwise from scratch. That is no wrong answer, so a proof says it and nobody is refused. It is the
program's own word.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Mapping, Sequence
from typing import Any

import torch

READ = 1 << 16
"""Elements of a parameter that are looked at, its first ones."""
MANY, SOME = 64, 8
"""Of fewer elements the scatter tells less, and of fewer than these nothing."""
APART, FAR_APART = 1.5, 8.0
"""Factors between two scatters from which on they are not about the same, where elements are without number, and where
they are few. Of 64 elements it is 2.6: one of 4000 pairs of so many exponential numbers lay 2.7 apart."""
SHOWN = 3
WORDS = "its parameters begin otherwise than the reference's, which matters to who trains it from scratch"


def otherwise(module: Any, names: Sequence[str], theirs: Sequence[torch.Tensor]) -> dict[str, tuple[str, str]]:
    """Parameters of a module as it was constructed that begin otherwise than the reference's of that name and shape:
    their mean and scatter. Weights kept by other names, or in another shape, are the program's own affair."""
    found: dict[str, tuple[str, str]] = {}
    if not isinstance(module, torch.nn.Module):
        return found
    own = dict(module.named_parameters(remove_duplicate=False))
    for name, their in zip(names, theirs, strict=False):
        with contextlib.suppress(
            RuntimeError, TypeError
        ):  # a lazy one, or a class of tensors that has no such operator
            if name in own and own[name].shape == their.shape and apart(own[name].detach(), their):
                mean, scatter = _moments(_numbers(own[name].detach()))
                found[name] = f"{mean:.3g}", f"{scatter:.3g}"
    return found


def apart(mine: torch.Tensor, theirs: torch.Tensor) -> bool:
    """Whether two parameters begin otherwise: neither with equal values, nor with about the same mean and scatter."""
    mine, theirs = _numbers(mine), _numbers(theirs)
    if torch.equal(mine, theirs) or not bool(theirs.isfinite().all()):
        return False
    if not bool(mine.isfinite().all()):
        return True
    count = mine.numel()
    if count < 2:  # a number that was drawn is as good as another, and none is zero
        return bool((mine == 0.0).any()) != bool((theirs == 0.0).any())
    (here, narrow), (there, wide) = _moments(mine), _moments(theirs)
    if not (narrow and wide):  # one of them holds one number
        return bool(narrow or wide) or not math.isclose(here, there, rel_tol=1e-3)
    if count < SOME:
        return False
    most = APART * (1 + 6 / math.sqrt(count)) if count >= MANY else FAR_APART
    far = count >= MANY and abs(here - there) > (0.25 + 5 * math.sqrt(2 / count)) * max(narrow, wide)
    return far or not 1 / most <= narrow / wide <= most


def words(told: Any, state: Sequence[tuple[str, torch.Tensor]]) -> str:
    """What a proof says of what a program ``told``; empty for nothing. Only names and numbers of it are repeated."""
    theirs, said = dict(state), []
    for name, numbers in told.items() if isinstance(told, Mapping) else ():
        with contextlib.suppress(ValueError, TypeError):
            mean, scatter = map(float, numbers)
            if name in theirs:
                there, wide = _moments(_numbers(theirs[name]))
                said.append(f"{name}: mean {mean:.3g} and scatter {scatter:.3g}, expected {there:.3g} and {wide:.3g}")
    more = f"; and {len(said) - SHOWN} more" if len(said) > SHOWN else ""
    return f"{WORDS} ({'; '.join(said[:SHOWN])}{more})" if said else ""


def _numbers(value: torch.Tensor) -> torch.Tensor:
    value = torch.view_as_real(value) if value.is_complex() else value
    return value.flatten()[:READ].to(torch.float64)


def _moments(numbers: torch.Tensor) -> tuple[float, float]:
    """Mean and scatter, which is zero where all are one number."""
    if not numbers.numel():
        return 0.0, 0.0
    mean, same = numbers.mean(), bool((numbers == numbers[0]).all())
    return float(mean), 0.0 if same else float((numbers - mean).square().mean().sqrt())
