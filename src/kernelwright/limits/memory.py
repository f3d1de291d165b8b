# SPDX-License-Identifier: Apache-2.0
"""Memory a module will need, before it runs: weights, inputs, and the largest sum of what lives between them.

The module runs on fake tensors, whose storages live and die as the real ones would, so liveness needs no model. What
kernels take inside comes from ``scratch``, what an allocator makes of the sizes from ``blocks``.

What is predicted: on CUDA the most that torch's allocator has given out at once (``torch.cuda.max_memory_allocated``),
which leaves out the context of the driver; ``reserved`` is what it has taken for that from the device. On a CPU the
growth of the process's own memory (anonymous pages), which leaves out the code of libraries.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_flatten, tree_map_only

from kernelwright.limits.blocks import Block, Blocks, Sizes
from kernelwright.limits.scratch import Part, scratch, unknown, wanted
from kernelwright.limits.trace import untouched

PRODUCTS = ("mm", "addmm", "bmm", "baddbmm", "_scaled_mm")
WORKSPACES = {9: 32 << 20}
"""What a thread's cuBLAS takes from torch's allocator at its first product and keeps, by compute capability
(ATen/cuda/CublasHandlePool.cpp: parseChosenWorkspaceSize); the backward pass runs in a thread of its own."""
WORKSPACE, EPILOGUE = (4096 * 2 + 16 * 8) << 10, 1 << 20
"""The same for other devices; and what cuBLASLt, which adds a bias, takes besides (parseCUDABlasLtWorkspaceSize)."""

ERRORS = {"cpu": (0.002, 0.05), "cuda": (0.0, 0.0)}
"""(median, worst) relative error on 20 modules, measured (benchmarks/results/cpu and h200/memory.json, which have those
of held-out modules too). On CUDA with the device there, so that cuDNN could be asked; where it cannot, one convolution
of the twenty is 20 % low, and the result names it."""


@dataclass(frozen=True, slots=True)
class Memory:
    """Bytes. ``peak`` is weights, inputs and the largest live sum of what was made from them, gradients included."""

    weights: int
    inputs: int
    activations: int
    """With what kernels take for themselves, and what blocks are larger than asked for."""
    workspace: int
    """That libraries keep once they were used."""
    reserved: int
    """What the allocator has taken from the device by then."""
    unknown: tuple[str, ...]
    """What cannot be known beforehand and is in ``peak`` at the least it can be."""

    @property
    def peak(self) -> int:
        """All of them together."""
        return self.weights + self.inputs + self.activations + self.workspace


class _Live(TorchDispatchMode):
    """What storages made under it, and kernels that ran under it, take of an allocator while they are there."""

    def __init__(self, allocator: Sizes, part: Part, *, warm: bool) -> None:
        super().__init__()
        self.allocator, self.part, self.warm = allocator, part, warm
        self.live: dict[int, tuple[StorageWeakRef, Block]] = {}
        self.known: set[int] = set()
        self.kept: dict[tuple[str, bool], Block] = {}
        self.unknown: set[str] = set()
        self.backward = False

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self._forget()
        result = func(*args, **(kwargs or {}))
        self._products(func, args)
        for tensor in wanted(func, args, kwargs or {}, result):
            if tensor.layout is torch.strided:
                self._add(tensor.untyped_storage())
        inside = [self.allocator.take(size) for size in scratch(func, args, kwargs or {}, result, self.part)]
        for block in inside:
            self.allocator.give(block)
        self.unknown |= {unknown(func, args, kwargs or {}, result, self.part)} - {""}
        return result

    def hold(self, tensors: Sequence[torch.Tensor]) -> int:
        """Take what was there before the call, each storage once; bytes of it."""
        before = self.allocator.now
        for tensor in tensors:
            storage = tensor.untyped_storage()
            if storage._cdata not in self.known:
                self.known.add(storage._cdata)
                self.allocator.take(storage.nbytes())
        return self.allocator.now - before

    def _products(self, func: Any, args: Any) -> None:
        name = str(func._schema.name).split("::")[-1]
        if self.warm or self.part.kind == "cpu" or name not in PRODUCTS:
            return
        wanted = {"cublas": WORKSPACES.get(self.part.major, WORKSPACE)}
        if name == "addmm" and args[0].dim() == 1:
            wanted["cublasLt"] = EPILOGUE
        for library, size in wanted.items():
            if (library, self.backward) not in self.kept:
                self.kept[library, self.backward] = self.allocator.take(size)

    def _add(self, storage: torch.UntypedStorage) -> None:
        key = storage._cdata
        if key not in self.known and key not in self.live and storage.nbytes():
            self.live[key] = StorageWeakRef(storage), self.allocator.take(storage.nbytes())

    def _forget(self) -> None:
        for key in [key for key, (weak, _) in self.live.items() if weak.expired()]:
            self.allocator.give(self.live.pop(key)[1])


def memory(
    module: torch.nn.Module,
    args: Sequence[object],
    kwargs: dict[str, object] | None = None,
    *,
    gradients: bool = False,
    device: str = "cpu",
    warm: bool = False,
) -> Memory:
    """Predicted bytes of ``module(*args, **kwargs)`` (and of its backward pass) on ``device``; nothing is computed.

    ``warm``: the process has run matrix products before, so that their workspaces are there already.
        Raises whatever the module raises on fake tensors.
    """
    part = Part.of(device)
    allocator = Sizes() if part.kind == "cpu" else Blocks()
    with untouched(module), FakeTensorMode(allow_non_fake_inputs=True) as mode:

        def fake(tensor: torch.Tensor) -> torch.Tensor:
            return mode.from_tensor(tensor.detach()).to(device)

        state = {
            name: fake(tensor).requires_grad_(gradients and tensor.requires_grad)
            for name, tensor in [*module.named_parameters(), *module.named_buffers()]
        }
        given = tree_map_only(torch.Tensor, fake, (tuple(args), dict(kwargs or {})))
        live = _Live(allocator, part, warm=warm)
        weights = live.hold(list(state.values()))
        inputs = live.hold([leaf for leaf in tree_flatten(given)[0] if isinstance(leaf, torch.Tensor)])
        with torch.set_grad_enabled(gradients), live:
            result = torch.func.functional_call(module, state, given[0], given[1])
            if gradients:
                heads = [t for t in tree_flatten(result)[0] if isinstance(t, torch.Tensor) and t.requires_grad]
                wanted = [t for t in state.values() if t.requires_grad]
                live.backward = part.kind != "cpu"
                torch.autograd.grad(heads, wanted, [torch.ones_like(head) for head in heads], allow_unused=True)
    workspace = sum(block.size for block in live.kept.values())
    return Memory(
        weights=weights,
        inputs=inputs,
        activations=allocator.most - weights - inputs - workspace,
        workspace=workspace,
        reserved=allocator.reserved,
        unknown=tuple(sorted(live.unknown)),
    )
