# SPDX-License-Identifier: Apache-2.0
"""Results on a device that are overwritten once they were delivered, as ``fetch.spoil`` overwrites those on a CPU.

They are the caller's then. Who is handed the same memory again by torch's allocator, and takes for granted what it
wrote there long ago (the zeros of a one-hot, a half of a triangle), is right no more. The program's own process does
this, for only it knows where they lie; whoever keeps it from doing so has changed the judge's code there.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Collection, Iterable, Sequence

import torch

LARGE = 1 << 18
"""Elements from which on a result is filled by itself: those of many at once are read as well."""
SMALL, SMALL_BLOCKS, LARGE_BLOCKS = 1 << 20, 4, (10 << 20, 256 << 20)
"""Bytes of the blocks that ``memory`` spoils: torch keeps those of up to 1 MiB, of up to 10 and of more apart."""
_PERTURB, _RUBBISH = -6, 1
"""M_PERTURB: fresh memory is filled with the complement of the byte, 0xFE (-1.7e38 in float32), freed with the byte."""
_TOGETHER = (torch.float16, torch.bfloat16, torch.float32, torch.float64, torch.complex64, torch.complex128)


def shared(run: Callable[[], Sequence[torch.Tensor]]) -> frozenset[int]:
    """The results of a call, by leaf, that lie in the same memory in every call: a table that the reference holds."""
    first, second = run(), run()
    pairs = enumerate(zip(first, second, strict=True))
    return frozenset(leaf for leaf, (one, other) in pairs if one.numel() and _place(one) == _place(other))


def spoil(
    results: Iterable[Sequence[torch.Tensor]], spared: Collection[int], module: torch.nn.Module,
    given: Iterable[torch.Tensor],
) -> None:  # fmt: skip
    """Write NaN, the largest whole number or true over ``results`` (by call, then leaf) that are not ``spared``.

    What shares memory with a parameter or buffer of the module, or with what a call was ``given``, stays too.
    """
    held = {0, *(_place(tensor) for tensor in (*module.parameters(), *module.buffers(), *given))}  # 0: no elements
    floats = []
    for leaves in results:
        for index, leaf in enumerate(leaves):
            if index in spared or _place(leaf) in held or not (leaf.is_contiguous() or _apart(leaf)):
                continue
            leaf = leaf.detach() if leaf.requires_grad else leaf
            if leaf.dtype in _TOGETHER and leaf.numel() < LARGE:
                floats.append(leaf)
            elif leaf.is_floating_point() or leaf.is_complex():
                leaf.fill_(torch.nan)
            else:
                leaf.fill_(1 if leaf.dtype is torch.bool else torch.iinfo(leaf.dtype).max)
    if floats:  # one by one, 256 small results take a third of a delivery
        torch._foreach_mul_(floats, torch.nan)


def heap(*, on: bool) -> None:
    """Whether glibc leaves rubbish in memory of the heap that it hands out, and in what was given back."""
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(_PERTURB, _RUBBISH if on else 0)


def memory(device: str) -> None:
    """Leave rubbish in memory that torch's allocator hands out next, small blocks and one that large ones are cut from:
    the driver's own is all zeros, which counters were taken for. Less where a device has less."""
    sizes = [SMALL] * SMALL_BLOCKS + [size for size in LARGE_BLOCKS if size < torch.cuda.mem_get_info(device)[0] // 8]
    blocks = [torch.empty(size, dtype=torch.uint8, device=device).fill_(0xFE) for size in sizes]
    torch.cuda.synchronize(device)
    del blocks


def _place(tensor: torch.Tensor) -> int:
    return tensor.untyped_storage().data_ptr()


def _apart(leaf: torch.Tensor) -> bool:
    """Whether no elements of it are one and the same."""
    return not any(step == 0 and size > 1 for size, step in zip(leaf.shape, leaf.stride(), strict=True))
