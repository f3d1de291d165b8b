# SPDX-License-Identifier: Apache-2.0
"""Inputs handed over on a device one call at a time, in a window that is launched as any other.

A program has all inputs of a window before it, and nothing shows what it makes them into: on an H200 one that computed
the calls of a window as one was granted 3.5 for a chain of pointwise operators, 6 for four rows by a weight of 64 MB
and 23 for a small norm, by the code of eager. Calls waited for one by one say little there: a first launch after sleep
scatters by more than most calls take, and what host and device do at once they do one after the other.

So some words of every input are others, by keys of the judge's (as in ``veil``), until the call before is answered.
The stream waits for the judge's word, takes the keys off, runs the call, copies what it gave, adds up the copy's words
and says that it is answered, all of it enqueued without waiting; sums, keys and both words lie in memory of the host
that the device sees. Who has not computed a call does not know its sum. Method: CUDA driver API, "Stream Memory
Operations".
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence

import torch

from kernelwright.judge.buffers import Buffers, CpuArena
from kernelwright.judge.veil import Words, words_of

RELEASED, ANSWERED, SUMS = 0, 64, 4096
"""Bytes at which the judge says how many calls it has handed over, the device how many it has answered, and sums
begin."""
AT_LEAST, PLAIN = 0, 0  # CU_STREAM_WAIT_VALUE_GEQ, CU_STREAM_WRITE_VALUE_DEFAULT
MAPPED = 3  # cudaHostRegisterPortable | cudaHostRegisterMapped


class Layout:
    """The shared memory of a window of ``calls``: ``words`` of each hidden input, and sums of each of ``answers``."""

    def __init__(self, words: Words, calls: int, answers: int) -> None:
        self._forms = [(view.shape[1], view.dtype) for view in words]
        self._calls, self._answers = calls, answers
        at, self._keys = SUMS + 8 * calls * answers, list[int]()
        for count, dtype in self._forms:
            self._keys.append(at)
            at += -(-calls * count * dtype.itemsize // 64) * 64
        self.size = at

    def sums(self, memory: torch.Tensor) -> torch.Tensor:
        """(calls, answers) of int64."""
        return memory[SUMS : SUMS + 8 * self._calls * self._answers].view(torch.int64).view(self._calls, self._answers)

    def keys(self, memory: torch.Tensor) -> list[torch.Tensor]:
        """Of each hidden input, (calls, words)."""
        made = []
        for at, (count, dtype) in zip(self._keys, self._forms, strict=True):
            part = memory[at : at + self._calls * count * dtype.itemsize]
            made.append(part.view(dtype).view(self._calls, count))
        return made


def answers(buffers: Buffers) -> list[torch.Tensor]:
    """What is added up: (sets, words) of every output and gradient."""
    plan = buffers.plan
    regions = [("output", i) for i in range(len(plan.outputs))] + [("gradient", i) for i in range(len(plan.gradients))]
    return [words_of(buffers, kind, index) for kind, index in regions]


def sums(buffers: Buffers, calls: int) -> torch.Tensor:
    """(calls, answers): the sums of what lies there now."""
    return torch.stack([words[:calls].sum(1, dtype=torch.int64) for words in answers(buffers)], 1)


class Handover:
    """The program's side of it: ``arena`` is shared with the judge. Raises RuntimeError, OSError or AttributeError
    where the device, the driver or torch cannot."""

    def __init__(self, arena: CpuArena, device: str) -> None:
        assert arena.tensor is not None
        self._arena, self._driver = arena, ctypes.CDLL("libcuda.so.1")
        self._at, size = arena.tensor.data_ptr(), arena.size
        if code := int(torch.cuda.cudart().cudaHostRegister(self._at, size, MAPPED)):
            raise RuntimeError(f"host memory cannot be mapped ({code})")
        where = torch.device("cuda", torch.device(device).index or 0)
        made = torch._C._construct_storage_from_data_pointer(self._at, where, size)
        self._memory = torch.empty(0, dtype=torch.uint8, device=where).set_(made)
        self._enqueue("cuStreamWaitValue32_v2", RELEASED, 0, AT_LEAST)

    def arm(self, buffers: Buffers, first: int, calls: int) -> None:
        """The next ``calls`` are handed over, on the first sets; of all inputs, since none is hidden again."""
        words, mine = Words(buffers, (), first), answers(buffers)
        layout = Layout(words, calls, len(mine))
        keys, places = layout.keys(self._memory), layout.sums(self._memory)
        self._hidden = [[(view[i], key[i]) for view, key in zip(words, keys, strict=True)] for i in range(calls)]
        self._added = [[(part[i], places[i, j]) for j, part in enumerate(mine)] for i in range(calls)]

    def before(self, index: int) -> None:
        """The current stream waits for a call's inputs and shows them."""
        self._enqueue("cuStreamWaitValue32_v2", RELEASED, index + 1, AT_LEAST)
        for words, key in self._hidden[index]:
            words.bitwise_xor_(key)

    def after(self, index: int) -> None:
        """What the call gave was copied by the current stream: it says so."""
        for words, place in self._added[index]:
            torch.sum(words, dim=0, dtype=torch.int64, out=place)
        self._enqueue("cuStreamWriteValue32_v2", ANSWERED, index + 1, PLAIN)

    def _enqueue(self, what: str, at: int, value: int, how: int) -> None:
        stream, place = ctypes.c_void_p(torch.cuda.current_stream().cuda_stream), ctypes.c_uint64(self._at + at)
        if code := getattr(self._driver, what)(stream, place, ctypes.c_uint(value), ctypes.c_uint(how)):
            raise RuntimeError(f"{what} failed ({code})")


def bits(views: Sequence[torch.Tensor], calls: int, generator: torch.Generator) -> list[torch.Tensor]:
    """Keys for the first ``calls`` sets of each view."""
    return [torch.empty(calls, v.shape[1], dtype=v.dtype, device=v.device).random_(generator=generator) for v in views]
