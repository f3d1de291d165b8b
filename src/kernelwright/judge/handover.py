# SPDX-License-Identifier: Apache-2.0
"""Inputs handed over on a device one call at a time, in a window that is launched as any other.

A program has all inputs of a window before it, and nothing shows what it makes them into: on an H200 one that computed
the calls of a window as one was granted 3.5 for a chain of pointwise operators, 6 for four rows by a weight of 64 MB
and 23 for a small norm, by the code of eager. Calls waited for one by one say little there: a first launch after sleep
scatters by more than most calls take, and what host and device do at once they do one after the other.

So some words of every input are others, by keys of the judge's (as in ``veil``), until the call before is answered. A
kernel waits for the judge's word and takes the keys off, the call runs, what it gave is copied, a second kernel adds up
the copy's words and says that it is answered, all of it enqueued without waiting, or once the judge's word is there.
Sums, keys and both words lie in memory of the host that the device sees. Who has not computed a call does not know its
sum.

Both kernels (``handover.cu``) cost the host a launch each. Streams that wait for values, and torch's operators for the
rest, cost it up to 150 us, which beside three other judges went up and down by 100 from one second to the next: of ten
proofs there of programs that compute a window as one, for 6 to 8 times eager's speed, five passed. What these gain
call by call was up to 1.6 of what they claim then, and 0.2 of it at the most with these kernels; honest ones had 0.6.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from kernelwright.judge.buffers import Buffers, CpuArena
from kernelwright.judge.veil import Words, words_of

RELEASED, ANSWERED, SUMS = 0, 64, 4096
"""Bytes at which the judge says how many calls it has handed over, the device how many it has answered, and sums
begin."""
FORMS = tuple(Path(__file__).with_suffix(f".{form}").read_bytes() for form in ("fatbin", "ptx"))
"""The kernels, read here since confined programs do not see this folder: made for devices of today, and for any, which
each process's driver compiles anew."""
MAPPED = 3  # cudaHostRegisterPortable | cudaHostRegisterMapped
THREADS = 256
"""Of a block of either kernel."""
EACH, BLOCKS = 8, (16, 512)
"""Words of each thread where there are blocks enough, and the most blocks that show a call's inputs, and that add up
its answers. Those that wait keep the others of a call from no place: nothing else runs then."""


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
        self._where = torch.device("cuda", torch.device(device).index or 0)
        torch.cuda.synchronize(self._where)  # makes its context the current one
        module = ctypes.c_void_p()
        if self._driver.cuModuleLoadData(ctypes.byref(module), FORMS[0]):
            self._call("cuModuleLoadData", ctypes.byref(module), FORMS[1])
        self._kernels = {name: ctypes.c_void_p() for name in ("hand_over", "answered")}
        for name, kernel in self._kernels.items():
            self._call("cuModuleGetFunction", ctypes.byref(kernel), module, name.encode())

    def arm(self, buffers: Buffers, first: int, calls: int, *, waits: bool) -> None:
        """The next ``calls`` are handed over, on the first sets; of all inputs, since none is hidden again. ``waits``:
        none is begun before it is handed over, else the device alone waits for that."""
        words, mine = Words(buffers, (), first), answers(buffers)
        layout = Layout(words, calls, len(mine))
        assert self._arena.tensor is not None
        self._calls = calls
        self._hidden = list(zip(words, layout.keys(self._arena.tensor), strict=True))
        self._added = list(zip(mine, layout.sums(self._arena.tensor).unbind(1), strict=True))
        self._released = self._arena.tensor[RELEASED : RELEASED + 4].view(torch.int32).numpy() if waits else None
        self._prepare()

    def _prepare(self) -> None:
        """Lay out what each launch is given, reckoned from where the first call's lies: with a view of each call's
        words this took half as long as the calls of a series."""
        hidden = [(w, k, (w.shape[1], w.stride(1) * w.element_size(), w.element_size())) for w, k in self._hidden]
        added = [(w, sums, (w.shape[1], w.element_size())) for w, sums in self._added]
        shown, told = (
            [
                [[_at(words, call), _at(other, call), *form] for words, other, form in parts]
                for call in range(self._calls)
            ]
            for parts in (hidden, added)
        )
        self._tables = [torch.tensor(table, dtype=torch.int64, device=self._where) for table in (shown, told)]
        self._sums = torch.zeros(len(told[0]) + 1, dtype=torch.int64, device=self._where)
        torch.cuda.synchronize(self._where)
        most = [max([part.shape[1] for part, _ in parts], default=1) for parts in (self._hidden, self._added)]
        self._grids = [
            max(1, min(words // (THREADS * EACH), blocks)) for words, blocks in zip(most, BLOCKS, strict=True)
        ]
        befores, afters = self._tables
        self._before = [
            _parameters(self._at + RELEASED, index + 1, table.data_ptr(), len(table))
            for index, table in enumerate(befores.unbind(0))
        ]
        self._after = [
            _parameters(self._at + ANSWERED, index + 1, table.data_ptr(), len(table), self._sums.data_ptr())
            for index, table in enumerate(afters.unbind(0))
        ]

    def begin(self, index: int) -> None:
        """Come to a call: wait for it, where it is the host that waits."""
        while self._released is not None and self._released[0] <= index:
            pass
        self.before(index)

    def before(self, index: int) -> None:
        """The current stream waits for a call's inputs and shows them."""
        self._launch("hand_over", self._grids[0], self._before[index][0])

    def after(self, index: int) -> None:
        """What the call gave was copied by the current stream: it says so."""
        self._launch("answered", self._grids[1], self._after[index][0])

    def _launch(self, name: str, blocks: int, parameters: ctypes.Array[ctypes.c_void_p]) -> None:
        stream = ctypes.c_void_p(torch.cuda.current_stream().cuda_stream)
        self._call("cuLaunchKernel", self._kernels[name], blocks, 1, 1, THREADS, 1, 1, 0, stream, parameters, None)

    def _call(self, what: str, *arguments: Any) -> None:
        if code := getattr(self._driver, what)(*arguments):
            raise RuntimeError(f"{what} failed ({code})")


def _at(tensor: torch.Tensor, index: int) -> int:
    """Where a tensor's part of a call lies."""
    return tensor.data_ptr() + index * tensor.stride(0) * tensor.element_size()


def _parameters(*values: int) -> tuple[ctypes.Array[ctypes.c_void_p], list[ctypes.c_int64]]:
    """What a launch takes: where its parameters lie, and they themselves. An int is the first half of eight bytes."""
    kept = [ctypes.c_int64(value) for value in values]
    return (ctypes.c_void_p * len(kept))(*(ctypes.addressof(value) for value in kept)), kept


def bits(views: Sequence[torch.Tensor], calls: int, generator: torch.Generator) -> list[torch.Tensor]:
    """Keys for the first ``calls`` sets of each view."""
    return [torch.empty(calls, v.shape[1], dtype=v.dtype, device=v.device).random_(generator=generator) for v in views]
