# SPDX-License-Identifier: Apache-2.0
"""Numbers that differ by what selects them: a mask, or the class, segment or expert of each, in another input.

What is selected by lot is like all there is, on any numbers that are drawn without a look at the mask. A variance of
what a mask selects that took E[x^2] - E[x]^2 after the mean of whole rows was right then, and so was who left out the
rows of experts to whom small ones went.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch

from kernelwright.judge import factors, numerics
from kernelwright.judge.buffers import TensorSpec
from kernelwright.judge.dealing import below

Move = Callable[[torch.Tensor, torch.Tensor, int, torch.Generator], torch.Tensor]
FAR_BY, SIZED_BY = "far apart by class", "of other sizes by class"
CLASSES = 64
"""Classes that are moved one by one; of more some are one, by the rest of a division."""


def offered(specs: Sequence[TensorSpec]) -> bool:
    """Whether an input may select what another one holds."""
    floats = [spec.shape for spec in specs if spec.dtype.startswith(("float", "bfloat"))]
    others = [spec.shape for spec in specs if spec.dtype == "bool" or "int" in spec.dtype]
    others += [shape[:-1] for shape in others if len(shape) > 1]  # a single one in each row stands for a number
    return any(_axes(shape, leaf) for shape in others for leaf in floats)


def _axes(selector: Sequence[int], leaf: Sequence[int]) -> list[int] | None:
    """The axes of a leaf that those of a selector stand for, in their order, the first that are as long; None where
    there are none. Single places stand for no axis; of a selector with as many axes each stands for its own."""
    if own := own_axes(selector, leaf):
        return own
    found: list[int] = []
    for size in (size for size in selector if size > 1):
        place = next((at for at in range(found[-1] + 1 if found else 0, len(leaf)) if leaf[at] == size), None)
        if place is None:
            return None
        found.append(place)
    return found or None


def own_axes(selector: Sequence[int], leaf: Sequence[int]) -> list[int]:
    """The axes that are as long in both, where a selector has as many as a leaf and its others are single: a row of
    flags for the columns of a square says columns."""
    fits = len(selector) == len(leaf) and all(one in (1, size) for one, size in zip(selector, leaf, strict=True))
    return [axis for axis, size in enumerate(selector) if size > 1] if fits else []


def _by_class(leaves: Sequence[torch.Tensor], rng: torch.Generator, move: Move) -> list[torch.Tensor]:
    """Floats moved by the classes that one other input, by lot, says; as they are where none does."""
    kinds = [i for i, x in enumerate(leaves) if not (x.is_floating_point() or x.is_complex()) and x.numel() > 1]
    pairs = {kind: [i for i, x in enumerate(leaves) if _moves(x, leaves[kind])] for kind in kinds}
    kinds = [kind for kind in kinds if pairs[kind]]
    if not kinds:
        return list(leaves)
    chosen = kinds[below(len(kinds), rng)]
    values, classes = torch.unique(leaves[chosen], return_inverse=True)
    count = len(values)
    if not 1 < count < classes.numel():  # each comes once
        return list(leaves)
    if count > CLASSES:
        count = 2 + below(CLASSES - 1, rng)
        classes = classes % count
    out = list(leaves)
    for index in pairs[chosen]:
        axes = _axes(classes.shape, leaves[index].shape) or []
        shape = [size if at in axes else 1 for at, size in enumerate(leaves[index].shape)]
        out[index] = move(leaves[index], classes.view(shape), count, rng)
    return out


def _moves(leaf: torch.Tensor, selector: torch.Tensor) -> bool:
    """Whether a leaf holds finite floats for each place of a selector."""
    return leaf.is_floating_point() and _axes(selector.shape, leaf.shape) is not None and numerics.finite(leaf)


def _far(leaf: torch.Tensor, classes: torch.Tensor, count: int, rng: torch.Generator) -> torch.Tensor:
    """Half of the classes, by lot, lie far up and the others far down."""
    up = torch.randperm(count, generator=rng, device=leaf.device) < count / 2
    far = factors.distance(leaf, rng) * torch.where(up, 1.0, -1.0).to(torch.float64)
    return (leaf + far[classes]).to(leaf.dtype)


def _sized(leaf: torch.Tensor, classes: torch.Tensor, count: int, rng: torch.Generator) -> torch.Tensor:
    """Half of the classes, or as few as one, are smaller, as ``factors.smaller`` says."""
    return (leaf * factors.smaller(*factors.some(count, rng))[classes]).to(leaf.dtype)


def far(leaves: Sequence[torch.Tensor], rng: torch.Generator) -> list[torch.Tensor]:
    """Classes far from each other, the mean of all near zero."""
    return _by_class(leaves, rng, _far)


def sized(leaves: Sequence[torch.Tensor], rng: torch.Generator) -> list[torch.Tensor]:
    """Classes of other sizes."""
    return _by_class(leaves, rng, _sized)


CHANGES = {FAR_BY: far, SIZED_BY: sized}
