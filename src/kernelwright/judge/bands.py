# SPDX-License-Identifier: Apache-2.0
"""Elements by bands of magnitude, each a factor of 16: band 0 holds the largest, the last one all that is smaller."""

from __future__ import annotations

import functools
import sys

import numpy as np
import torch

from kernelwright.judge.floors import BANDS

_HIGHEST = 3 if sys.byteorder == "little" else 0
"""Which 16 bits of a float64 hold its exponent."""


@functools.cache
def _bounds(device: torch.device) -> torch.Tensor:
    """Where bands end, in parts of the largest element, from below."""
    return torch.tensor([16.0**-band for band in range(BANDS - 1, 0, -1)], dtype=torch.float64, device=device)


@functools.cache
def _edges(device: torch.device) -> torch.Tensor:
    """Less the number of bounds that lie below elements of each band."""
    return torch.arange(1 - BANDS, 1, dtype=torch.int32, device=device)


def banded(sizes: np.ndarray, top: float) -> tuple[torch.Tensor, list[int]]:
    """The band of each element, floor(log16(top / size)), and the size of each band. From the bits of the quotient, on
    one thread: 5 ns per element, where comparing with every bound and sorting by band took 19."""
    with np.errstate(divide="ignore", over="ignore"):
        ratio = np.divide(top, sizes)
    bits = ratio.view(np.uint16)[_HIGHEST::4] + np.uint16(1 << 4)  # 11 bits of exponent plus 1023, 4 of mantissa
    bits >>= 6  # one more, and four exponents are a band
    found = np.minimum(bits - np.uint16(256), BANDS - 1).astype(np.uint8)
    return torch.from_numpy(found), [int(np.count_nonzero(found == band)) for band in range(BANDS)]


def in_order(sizes: torch.Tensor, top: float) -> tuple[torch.Tensor, list[int]]:
    """Positions in the order of their bands, and the size of each band: in few launches and one wait for the device,
    of which a proof of small calls on an H200 spent 0.1 s when each band was compared and counted by itself."""
    below, order = torch.bucketize(sizes, top * _bounds(sizes.device), out_int32=True).sort(descending=True)
    ends = torch.searchsorted(-below, _edges(sizes.device), right=True).tolist()
    return order.to(torch.int32), [end - start for start, end in zip([0, *ends], ends, strict=False)]


def in_bytes(sizes: torch.Tensor, top: float) -> tuple[torch.Tensor, list[int]]:
    """The band of each element on a device, a byte each where ``in_order`` takes four, and the size of each band."""
    found = (BANDS - 1) - torch.bucketize(sizes, top * _bounds(sizes.device), out_int32=True)
    return found.to(torch.uint8), torch.bincount(found, minlength=BANDS).tolist()
