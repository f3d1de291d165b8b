# SPDX-License-Identifier: Apache-2.0
"""Memory a module will need, before it runs: weights, inputs and the largest sum of live intermediate results.

The module runs on fake tensors, whose storages live and die as the real ones would, so liveness needs no model: only
what kernels allocate inside (library workspaces) is left out, and stated.
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

from kernelwright.limits.trace import untouched

GRANULE = 512
"""What torch's CUDA allocator rounds sizes up to, in bytes."""
PRODUCTS = ("mm", "addmm", "bmm", "baddbmm", "_scaled_mm")
WORKSPACE = 32 << 20
"""What cuBLAS takes from torch's allocator at the first matrix product on compute capability 9.0."""

ERRORS = {"cpu": (0.019, 0.42), "cuda": (0.001, 0.40)}
"""(median, worst) relative error on 20 modules, measured (benchmarks/results/cpu and h200/memory.json). The worst are
convolutions, whose libraries take memory of their own."""


@dataclass(frozen=True, slots=True)
class Memory:
    """Bytes. ``peak`` is weights, inputs and the largest live sum of what was made from them, gradients included."""

    weights: int
    inputs: int
    activations: int
    workspace: int

    @property
    def peak(self) -> int:
        """All of them together."""
        return self.weights + self.inputs + self.activations + self.workspace


class _Live(TorchDispatchMode):
    """The sum of the storages made under it that are still referenced, and its largest value."""

    def __init__(self, known: set[int], granule: int) -> None:
        super().__init__()
        self.known, self.granule = known, granule
        self.live: dict[int, tuple[StorageWeakRef, int]] = {}
        self.now = self.most = 0
        self.products = False

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self._forget()
        result = func(*args, **(kwargs or {}))
        self.products = self.products or str(func._schema.name).split("::")[-1] in PRODUCTS
        for tensor in tree_flatten(result)[0]:
            if isinstance(tensor, torch.Tensor):
                self._add(tensor.untyped_storage())
        self.most = max(self.most, self.now)
        return result

    def _add(self, storage: torch.UntypedStorage) -> None:
        key = storage._cdata
        if key not in self.known and key not in self.live:
            size = rounded(storage.nbytes(), self.granule)
            self.live[key] = StorageWeakRef(storage), size
            self.now += size

    def _forget(self) -> None:
        for key in [key for key, (weak, _) in self.live.items() if weak.expired()]:
            self.now -= self.live.pop(key)[1]


def rounded(size: int, granule: int) -> int:
    """``size`` rounded up to whole granules."""
    return -(-size // granule) * granule


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

    ``warm``: the process has run a matrix product before, so that its workspace is there already.
        Raises whatever the module raises on fake tensors.
    """
    granule = 1 if device == "cpu" else GRANULE
    with untouched(module), FakeTensorMode(allow_non_fake_inputs=True) as mode:

        def fake(tensor: torch.Tensor) -> torch.Tensor:
            return mode.from_tensor(tensor.detach()).to(device)

        state = {
            name: fake(tensor).requires_grad_(gradients and tensor.requires_grad)
            for name, tensor in [*module.named_parameters(), *module.named_buffers()]
        }
        given = tree_map_only(torch.Tensor, fake, (tuple(args), dict(kwargs or {})))
        inputs = [leaf for leaf in tree_flatten(given)[0] if isinstance(leaf, torch.Tensor)]
        known = {t.untyped_storage()._cdata: t.untyped_storage().nbytes() for t in [*state.values(), *inputs]}
        live = _Live(set(known), granule)
        with torch.set_grad_enabled(gradients), live:
            result = torch.func.functional_call(module, state, given[0], given[1])
            if gradients:
                heads = [t for t in tree_flatten(result)[0] if isinstance(t, torch.Tensor) and t.requires_grad]
                wanted = [t for t in state.values() if t.requires_grad]
                torch.autograd.grad(heads, wanted, [torch.ones_like(head) for head in heads], allow_unused=True)
    owned = {t.untyped_storage()._cdata: t.untyped_storage().nbytes() for t in state.values()}
    return Memory(
        weights=sum(rounded(size, granule) for size in owned.values()),
        inputs=sum(rounded(size, granule) for key, size in known.items() if key not in owned),
        activations=live.most,
        workspace=WORKSPACE if live.products and device != "cpu" and not warm else 0,
    )
