# SPDX-License-Identifier: Apache-2.0
"""Results read by the judge out of a stopped program's memory: what was not there when it said done does not count.

The program only says where its results lie (address and strides, ``note``); shape and dtype are the plan's, and the
bytes are what they are, so a lie about the place can only lose. Linux, CPU memory: process_vm_readv(2).
"""

from __future__ import annotations

import array
import ctypes
import errno
import math
import os
from collections.abc import Collection, Sequence
from typing import Any

import torch

from kernelwright.judge import skeletons
from kernelwright.judge.buffers import Buffers, CallPlan, TensorSpec

MOST_BYTES = 96 << 10
"""Records of places larger than this are not sent: the copies the program delivers itself are used instead."""
SPREAD, ROOM = 8, 4096
"""A result may span this many times its elements and some more; sparser ones are copied together by the program."""
RUBBISH, PIECES = ctypes.create_string_buffer(b"\xff" * (1 << 20), 1 << 20), 512
"""Not a number in any floating type; so many times it is written at once."""
Fetched = list[list[torch.Tensor]] | str | None
_LIBC = ctypes.CDLL(None, use_errno=True)


class _Piece(ctypes.Structure):
    _fields_ = [("at", ctypes.c_void_p), ("size", ctypes.c_size_t)]


def note(found: array.array[int], leaf: torch.Tensor, like: torch.Tensor | None = None) -> torch.Tensor:
    """Append address and strides (elements) of ``leaf`` to ``found``; the tensor to keep alive until it is read.
    ``like``: of the shape and dtype that is expected, or what is read and overwritten there would be another tensor's.

    Lazily conjugated or negated values and very sparse views are materialised first: memory must hold the result.
    """
    if leaf.device.type != "cpu":
        raise ValueError(f"a result on {leaf.device}")
    if like is not None and (leaf.dtype != like.dtype or leaf.shape != like.shape):
        raise ValueError(f"{leaf.dtype} of {tuple(leaf.shape)}")
    if leaf.is_conj() or leaf.is_neg():
        leaf = leaf.resolve_conj().resolve_neg()
    strides = leaf.stride()
    if not leaf.is_contiguous() and _span(leaf.shape, strides) > SPREAD * leaf.numel() + ROOM:
        leaf = leaf.contiguous()
        strides = leaf.stride()
    found.append(leaf.data_ptr())
    found.extend(strides)
    return leaf


def notes(buffers: Buffers, results: Sequence[tuple[Any, Sequence[torch.Tensor]]]) -> tuple[bytes, list[torch.Tensor]]:
    """Where (result, gradients) of each call lie, for the judge to read, and what must live until then.

    An empty window notes the output buffers instead, so that what noting costs is in the overhead.
    """
    found: array.array[int] = array.array("q")
    kept, alike = list[torch.Tensor](), [*buffers.outputs[0], *buffers.grads[0]]
    for result, gradients in results or [(outputs, ()) for outputs in buffers.outputs]:
        try:
            leaves = [result] if type(result) is torch.Tensor else skeletons.flatten(result)[1]
            pairs = zip((*leaves, *gradients), alike, strict=False)
            kept += [note(found, leaf, like) for leaf, like in pairs]
        except Exception:  # noqa: BLE001 - a result that is not what is expected is refused at its delivery
            return b"", kept
    places = found.tobytes()
    return places if len(places) <= MOST_BYTES else b"", kept


def specs(plan: CallPlan, *, grad: bool) -> list[TensorSpec]:
    """What one call leaves behind, in the order of its notes."""
    return [*plan.outputs, *(spec for _, spec in plan.gradients if grad)]


def due(buffers: Buffers, calls: int, *, grad: bool) -> bool:
    """Whether results of these calls are fetched: on a CPU, where their notes fit one record."""
    flat = buffers.arena.tensor
    assert flat is not None, "the arena is closed"
    return flat.device.type == "cpu" and _size(specs(buffers.plan, grad=grad), calls) <= MOST_BYTES


def read(pid: int, notes: bytes, wanted: Sequence[TensorSpec], calls: int) -> Fetched:
    """The results of every call, read from process ``pid`` (stopped); None where the kernel does not let us.

    A text where there are none: notes of the wrong length, impossible strides, memory that is not there.
    """
    if len(notes) != _size(wanted, calls):
        return "it said done without results"
    numbers = array.array("q", notes)
    at = 0
    results = []
    try:
        for _ in range(calls):
            leaves = []
            for spec in wanted:
                rank = len(spec.shape)
                leaves.append(_read_leaf(pid, numbers[at], numbers[at + 1 : at + 1 + rank].tolist(), spec))
                at += 1 + rank
            results.append(leaves)
    except PermissionError:
        return None
    except OSError as error:
        return f"its results are not where it said ({error.strerror})"
    return results


def spoil(pid: int, notes: bytes, wanted: Sequence[TensorSpec], places: Collection[tuple[int, int]]) -> str:
    """Overwrite results of process ``pid`` (stopped), which are the caller's now: who hands out the same memory again
    and takes for granted what it wrote there long ago (the zeros of a one-hot) is right no more. ``places``: (call,
    leaf) of those to spoil. ``notes`` have been accepted by ``read``. Empty, or what was wrong.
    """
    numbers = array.array("q", notes)
    step = sum(1 + len(spec.shape) for spec in wanted)
    try:
        for call, leaf in sorted(places):
            spec = wanted[leaf]
            at = call * step + sum(1 + len(other.shape) for other in wanted[:leaf])
            strides = numbers[at + 1 : at + 1 + len(spec.shape)].tolist()
            if count := math.prod(spec.shape):
                span = _span(spec.shape, strides)
                kept = None if span == count else _read_leaf(pid, numbers[at], strides, spec)
                _overwrite(pid, numbers[at], span * skeletons.dtype(spec.dtype).itemsize, kept)
    except PermissionError:
        return ""
    except OSError as error:
        return f"its results cannot be written to ({error.strerror})"
    return ""


def _overwrite(pid: int, address: int, size: int, sparse: torch.Tensor | None) -> None:
    """Write RUBBISH over ``size`` bytes; where ``sparse`` lies there, just read, over its elements and not its gaps."""
    block, held = len(RUBBISH), ctypes.addressof(RUBBISH)
    if sparse is not None:
        span = size // sparse.element_size()
        raw = sparse.as_strided((span,), (1,), 0).view(torch.uint8).view(span, -1)
        raw[torch.arange(span).as_strided(sparse.shape, sparse.stride()).reshape(-1)] = 255
        held = raw.data_ptr()
    done = 0
    while done < size:
        left = size - done
        if sparse is None:
            lengths = [min(block, left - i * block) for i in range(min(PIECES, -(-left // block)))]
            here = (_Piece * len(lengths))(*(_Piece(held, length) for length in lengths))
        else:
            lengths, here = [left], (_Piece * 1)(_Piece(held + done, left))
        there = _Piece(address + done, sum(lengths))
        got = _LIBC.process_vm_writev(pid, here, len(lengths), ctypes.byref(there), 1, 0)
        if got <= 0:
            code = errno.EPERM if ctypes.get_errno() == errno.ENOSYS else ctypes.get_errno()
            raise OSError(code, os.strerror(code))
        done += got


def put(buffers: Buffers, order: Sequence[int], fetched: list[list[torch.Tensor]], *, grad: bool) -> None:
    """Put what was fetched in the place of what the program delivered itself."""
    for index, leaves in zip(order, fetched, strict=True):
        targets = [*buffers.outputs[index], *(buffers.grads[index] if grad else ())]
        for target, leaf in zip(targets, leaves, strict=True):
            # Bytes: a copy of booleans makes 1 of every other one, which a program's user would have met.
            if leaf.dtype is torch.bool:
                target, leaf = target.view(torch.uint8), leaf.view(torch.uint8)
            target.copy_(leaf)


def _size(wanted: Sequence[TensorSpec], calls: int) -> int:
    """Bytes of the notes of ``calls`` calls."""
    return 8 * calls * sum(1 + len(spec.shape) for spec in wanted)


def _span(shape: Sequence[int], strides: Sequence[int]) -> int:
    return 1 + sum((n - 1) * step for n, step in zip(shape, strides, strict=True))


def _read_leaf(pid: int, address: int, strides: list[int], spec: TensorSpec) -> torch.Tensor:
    dtype = skeletons.dtype(spec.dtype)
    count = math.prod(spec.shape)
    if count == 0:
        return torch.empty(spec.shape, dtype=dtype)
    span = _span(spec.shape, strides)
    if min(strides, default=0) < 0 or span > SPREAD * count + ROOM or address <= 0:
        raise OSError(errno.EINVAL, "no such place")
    raw = torch.empty(span, dtype=dtype)
    size, done = span * dtype.itemsize, 0
    while done < size:
        here, there = _Piece(raw.data_ptr() + done, size - done), _Piece(address + done, size - done)
        got = _LIBC.process_vm_readv(pid, ctypes.byref(here), 1, ctypes.byref(there), 1, 0)
        if got <= 0:
            code = errno.EPERM if ctypes.get_errno() == errno.ENOSYS else ctypes.get_errno()
            raise OSError(code, os.strerror(code))
        done += got
    return raw.as_strided(spec.shape, strides)


for _copy in (_LIBC.process_vm_readv, _LIBC.process_vm_writev):
    _copy.restype = ctypes.c_ssize_t
    _copy.argtypes = [
        ctypes.c_int, ctypes.c_void_p, ctypes.c_ulong, ctypes.c_void_p, ctypes.c_ulong, ctypes.c_ulong,
    ]  # fmt: skip
