# SPDX-License-Identifier: Apache-2.0
"""Whether two runs of one program agree: exactly, or as far as rounding lets them."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from kernelwright.judge.buffers import Buffers
from kernelwright.judge.calls import Given
from kernelwright.judge.numerics import tiny, wide
from kernelwright.judge.oracle import RAISED

HEAD, AT_ONCE = 1 << 12, 16 << 20
"""Elements of a larger tensor that are looked at first: most tensors that differ do so there. Up to so many bytes on a
device all are: it takes less than to wait for it once more."""


def same(a: torch.Tensor, b: torch.Tensor) -> bool:
    """Equal shape, dtype and values; NaN equals NaN."""
    if a.shape != b.shape or a.dtype != b.dtype:
        return False
    large = a.numel() > HEAD and not (a.is_cuda and a.nbytes <= AT_ONCE)
    if large and _unlike(_head(a), _head(b)):
        return False
    if _equal(a, b):
        return True
    if not (a.is_floating_point() or a.is_complex()) or not bool(a.isnan().any()):
        return False  # two copies without NaN cost more than anything else here
    return _same_but_nan(a, b)


def _head(tensor: torch.Tensor) -> torch.Tensor:
    """The first HEAD elements or so; of rows that lie apart some, for all in a row would be a copy."""
    while tensor.dim() > 1 and tensor.numel() > HEAD:
        rows = max(1, HEAD * tensor.shape[0] // tensor.numel())
        tensor = tensor[0] if tensor.shape[0] == 1 else tensor[:rows]
    return tensor.reshape(-1)[:HEAD]


def same_bits(a: torch.Tensor, b: torch.Tensor) -> bool:
    """Equal values in tensors of equal shape; NaN equals NaN."""
    if _equal(a, b):
        return True
    return a.is_floating_point() and _same_but_nan(a, b)


def _equal(a: torch.Tensor, b: torch.Tensor) -> bool:
    """As torch says, which compares no floats of eight bits with themselves: a module with such a buffer ended with an
    error of the judge."""
    return torch.equal(a.float(), b.float()) if tiny(a) and a.dtype is b.dtype else torch.equal(a, b)


def _same_but_nan(a: torch.Tensor, b: torch.Tensor) -> bool:
    """Whether both are NaN at the same places, and equal elsewhere."""
    one, other = (value.float() if tiny(value) else value for value in (a, b))
    return torch.equal(one.isnan(), other.isnan()) and torch.equal(one.nan_to_num(0.0), other.nan_to_num(0.0))


def alike(state: Sequence[tuple[str, torch.Tensor]], other: Sequence[tuple[str, torch.Tensor]]) -> bool:
    """The same names, shapes and dtypes."""
    return [(n, t.shape, t.dtype) for n, t in state] == [(n, t.shape, t.dtype) for n, t in other]


def _unlike(a: torch.Tensor, b: torch.Tensor) -> bool:
    """Whether elements differ that are both numbers."""
    return bool(((a != b) & (a == a) & (b == b)).any())


def differ(first: Sequence[torch.Tensor], second: Sequence[torch.Tensor]) -> bool:
    """More than rounding (atomics, other orders of summation) could explain."""
    for a, b in zip(first, second, strict=True):
        if a.shape != b.shape or a.dtype != b.dtype:
            return True
        if torch.equal(a, b):
            continue
        if a.dtype not in RAISED and a.dtype is not torch.float64:
            if not torch.equal(a, b):
                return True
            continue
        x, y = wide(a).nan_to_num(), wide(b).nan_to_num()
        # 256 eps: atomics and other orders of summation stay far below, a random mask or noise far above.
        allowed = 256 * torch.finfo(a.dtype).eps * float(x.square().mean().sqrt()) if x.numel() else 0.0
        if x.numel() and float((x - y).square().mean().sqrt()) > allowed:
            return True
    return False


def settled(first: Sequence[torch.Tensor], second: Sequence[torch.Tensor]) -> bool:
    """Whether two runs, each of random numbers of its own, gave some output that is not empty the same."""
    return any(a.numel() > 0 and same(a, b) for a, b in zip(first, second, strict=False))


def first_difference(first: Sequence[torch.Tensor], second: Sequence[torch.Tensor]) -> str:
    """Where two results differ, for a message."""
    for index, (a, b) in enumerate(zip(first, second, strict=True)):
        if a.shape != b.shape:
            return f"output {index}: shapes {list(a.shape)} and {list(b.shape)}"
        if not torch.equal(a, b):
            at = int((a != b).reshape(-1).nonzero()[0, 0])
            return f"output {index}, element {at}: {a.reshape(-1)[at].item()} and {b.reshape(-1)[at].item()}"
    return "different results"


def where(before: torch.Tensor, now: torch.Tensor) -> str:
    """How many elements of a tensor are others now, and the first of them, for a message."""
    wrong = ((before != now) & ((before == before) | (now == now))).reshape(-1)
    if not bool(wrong.any()):
        return ""
    at = int(wrong.nonzero()[0, 0])
    shown = f"{now.reshape(-1)[at].item()} for {before.reshape(-1)[at].item()}"
    return f", {int(wrong.sum())} of {wrong.numel()} elements, the first at {at}: {shown}"


def incoming_changed(buffers: Buffers, given: dict[int, list[torch.Tensor]]) -> list[int]:
    """Outputs whose incoming gradient a call changed: it belongs to whoever asked for gradients, and autograd hands the
    same tensor to others as well."""
    found = []
    for call, leaves in given.items():
        incoming = leaves.incoming if isinstance(leaves, Given) else None
        if incoming is not None:
            pairs = zip(buffers.plan.seeds, buffers.seeds[call], strict=True)
            found += [at for at, now in pairs if not same(incoming[at], now.to(incoming[at].device))]
    return found
