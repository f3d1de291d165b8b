# SPDX-License-Identifier: Apache-2.0
"""Run a module on fake tensors and record every operator: bytes, operations by unit, and what depends on what.

The method is the calibrated roofline over a functional trace (the "generic method" of SOL-style harnesses),
with three corrections: bytes are counted per storage and per touched slice, every operand in its own dtype,
and inputs the result does not depend on are not counted.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_flatten, tree_map_only
from torch.utils.flop_counter import flop_registry

SFU = {"exp", "exp2", "expm1", "log", "log1p", "log2", "sin", "cos", "tanh", "erf", "sigmoid", "pow", "rsqrt", "sqrt"}
"""Operators whose elementwise work goes to special-function units or polynomial code."""
REDUCING = {"sum", "mean", "amax", "amin", "max", "min", "var", "var_mean", "prod", "argmax", "argmin", "logsumexp"}
FREE = {"detach", "alias", "lift_fresh", "lift_fresh_copy", "_to_copy_noop", "empty", "empty_like", "new_empty"}
SHAPE_ONLY = {
    "zeros_like", "ones_like", "full_like", "rand_like", "randn_like", "new_zeros", "new_ones", "new_full",
    "zero_", "fill_",
}  # fmt: skip
"""Operators that read a tensor's shape and never its values."""
GATHERS = {"embedding", "index_select", "gather", "index"}


@dataclass(frozen=True, slots=True)
class Operator:
    """One executed ATen operator. ``bytes`` counts each operand and result once, in its own dtype."""

    name: str
    shapes: tuple[tuple[int, ...], ...]
    dtype: str
    """Dtype of the first floating operand or result, else of the first operand."""
    bytes: int
    operations: int
    """Floating operations (a multiply-add is 2)."""
    unit: str
    """``matmul``, ``vector``, ``sfu`` or ``none`` (views)."""
    known: bool
    """False: no operation count exists for it, so it is bounded by bytes alone."""


@dataclass(frozen=True, slots=True)
class Trace:
    """Everything the bounds need. Bytes are those that must cross device memory at least once."""

    operators: tuple[Operator, ...]
    input_bytes: int
    output_bytes: int
    unused_inputs: tuple[int, ...]
    """Positions of leaves (inputs first, then parameters and buffers) the result does not depend on."""
    conditional: tuple[str, ...]
    """Reasons why some input bytes were left out although they may be read (masks, data-dependent reads)."""
    warnings: tuple[str, ...]

    @property
    def unavoidable_bytes(self) -> int:
        """Each needed input element once and each output element once."""
        return self.input_bytes + self.output_bytes


@dataclass(slots=True)
class _Leaf:
    """Bookkeeping of one external storage: how many of its elements were seen to be read."""

    position: int
    elements: int
    width: int
    touched: float = 0.0
    conditional: bool = False


class _Recorder(TorchDispatchMode):
    """Records operators, dataflow between storages, and how much of each leaf is read."""

    def __init__(self) -> None:
        super().__init__()
        self.operators: list[Operator] = []
        self.parents: dict[int, set[int]] = {}
        self.keep: list[torch.Tensor] = []
        self.leaves: dict[int, _Leaf] = {}
        self.pending: dict[int, float] = {}
        self.conditional: set[str] = set()
        self.unknown: set[str] = set()

    def leaf(self, position: int, tensor: torch.Tensor) -> None:
        """Declare an external tensor before the run; tensors that share a storage share the account."""
        key = _key(tensor)
        self.keep.append(tensor)
        unique = min(tensor.untyped_storage().nbytes() // max(tensor.itemsize, 1), _distinct(tensor))
        self.leaves.setdefault(key, _Leaf(position, unique, tensor.itemsize))

    def __torch_dispatch__(
        self, func: Any, types: Sequence[type], args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        result = func(*args, **(kwargs or {}))
        operands = [t for t in tree_flatten((args, kwargs))[0] if isinstance(t, torch.Tensor)]
        results = [t for t in tree_flatten(result)[0] if isinstance(t, torch.Tensor)]
        name = str(func._schema.name).split("::")[-1]
        if name in SHAPE_ONLY:
            operands = []
        self.keep += results
        ins = {_key(t) for t in operands}
        if any(_key(t) in ins for t in results) and not func._schema.is_mutable:
            return result  # a view: it shares storage, so it is read only when something else reads it
        if name in FREE or not str(func._schema.name).startswith("aten::"):
            return result
        self._read(name, operands, results, kwargs or {}, args)
        for t in results:
            self.parents.setdefault(_key(t), set()).update(ins)
        self.operators.append(self._operator(func, name, operands, results, args, kwargs or {}))
        return result

    def _read(
        self, name: str, operands: list[torch.Tensor], results: list[torch.Tensor], kwargs: dict[str, Any], args: Any
    ) -> None:
        for position, tensor in enumerate(operands):
            leaf = self.leaves.get(_key(tensor))
            if leaf is None:
                continue
            seen = float(_distinct(tensor))
            if name in GATHERS and position == 0 and results:
                seen = min(seen, float(results[0].numel()))
            elif name in ("tril", "triu"):
                seen *= _triangle(tensor, name, int(args[1]) if len(args) > 1 else int(kwargs.get("diagonal", 0)))
            elif name == "where" and position > 0:
                seen, leaf.conditional = 0.0, True
                self.conditional.add("elements behind a mask (where) may never be read")
            elif name in ("convolution", "max_pool2d_with_indices", "avg_pool2d") and position == 0:
                seen *= _window_coverage(name, operands, args)
            leaf.touched = min(float(leaf.elements), leaf.touched + seen)

    def _operator(
        self, func: Any, name: str, operands: list[torch.Tensor], results: list[torch.Tensor], args: Any, kwargs: Any
    ) -> Operator:
        moved = sum({_key(t): _distinct(t) * t.itemsize for t in operands}.values())
        moved += sum(t.numel() * t.itemsize for t in results)
        counter = flop_registry.get(func._overloadpacket)
        known, unit = True, "vector"
        work = max((t.numel() for t in [*results, *(operands if _reduces(name) else [])]), default=0)
        if counter is not None:
            out_val = results[0] if len(results) == 1 else tuple(results)
            work, unit = int(counter(*args, **kwargs, out_val=out_val)), "matmul"
        elif "attention" in name or "_lstm" in name or "gru" in name or "fft" in name:
            known = False
            self.unknown.add(name)
        elif name.rstrip("_") in SFU or "softmax" in name or "gelu" in name:
            unit = "sfu"
        floating = [t for t in [*operands, *results] if t.is_floating_point()] or operands or results
        return Operator(
            name=name,
            shapes=tuple(tuple(t.shape) for t in operands),
            dtype=str(floating[0].dtype).removeprefix("torch.") if floating else "none",
            bytes=moved,
            operations=work,
            unit=unit,
            known=known,
        )

    def ancestors(self, outputs: Sequence[torch.Tensor]) -> set[int]:
        """Storages the outputs depend on, the outputs' own included."""
        found: set[int] = set()
        stack = [_key(t) for t in outputs]
        while stack:
            key = stack.pop()
            if key not in found:
                found.add(key)
                stack += self.parents.get(key, set())
        return found


def _key(tensor: torch.Tensor) -> int:
    return tensor.untyped_storage()._cdata


def _distinct(tensor: torch.Tensor) -> int:
    """Elements with distinct addresses: expanded (stride 0) dimensions count once."""
    return math.prod(size for size, step in zip(tensor.shape, tensor.stride(), strict=True) if step or size <= 1)


def _reduces(name: str) -> bool:
    return name in REDUCING or "norm" in name or "softmax" in name


def _triangle(tensor: torch.Tensor, name: str, diagonal: int) -> float:
    rows, cols = tensor.shape[-2], tensor.shape[-1]
    lower = sum(min(max(row + diagonal + 1, 0), cols) for row in range(rows))
    if name == "triu":
        lower = rows * cols - sum(min(max(row + diagonal, 0), cols) for row in range(rows))
    return lower / max(rows * cols, 1)


def _window_coverage(name: str, operands: list[torch.Tensor], args: Any) -> float:
    """Least share of the input a strided window reads: prod(min(1, kernel / stride))."""
    if name == "convolution":
        kernel, stride = list(operands[1].shape[2:]), list(args[3])
    else:
        kernel = list(args[1])
        stride = list(args[2]) if len(args) > 2 and args[2] else kernel
    if len(stride) == 1:
        stride = stride * len(kernel)
    return math.prod(min(1.0, size / step) for size, step in zip(kernel, stride, strict=False))


def trace(
    call: Callable[..., object],
    inputs: Sequence[torch.Tensor],
    parameters: Sequence[torch.Tensor],
    *,
    gradients: bool = False,
) -> Trace:
    """Record ``call(*inputs)`` (and its backward) on tensors that are already fake or real.

    ``inputs`` are the tensor leaves the call reads, ``parameters`` the module's parameters and buffers.
    Nothing is computed where the tensors are fake. Raises whatever the reference raises.
    """
    recorder = _Recorder()
    for position, tensor in enumerate([*inputs, *parameters]):
        recorder.leaf(position, tensor)
    with recorder:
        results = [t for t in tree_flatten(call())[0] if isinstance(t, torch.Tensor)]
        if gradients:
            wanted = [t for t in [*inputs, *parameters] if t.requires_grad]
            heads = [t for t in results if t.requires_grad]
            if heads and wanted:
                seeds = [torch.empty_like(t) for t in heads]
                grads = torch.autograd.grad(heads, wanted, seeds, allow_unused=True)
                results += [g for g in grads if g is not None]
    needed = recorder.ancestors(results)
    read, unused = 0.0, []
    for key, leaf in recorder.leaves.items():
        if key in needed and (leaf.touched or leaf.conditional):
            read += leaf.touched * leaf.width
        else:
            unused.append(leaf.position)
    fresh = {_key(t): t for t in results if _key(t) not in recorder.leaves}
    warnings = [f"{name}: no operation count, bounded by bytes alone" for name in sorted(recorder.unknown)]
    return Trace(
        operators=tuple(recorder.operators),
        input_bytes=int(read),
        output_bytes=sum(_distinct(t) * t.itemsize for t in fresh.values()),
        unused_inputs=tuple(sorted(unused)),
        conditional=tuple(sorted(recorder.conditional)),
        warnings=tuple(warnings),
    )


def trace_module(
    module: torch.nn.Module, args: Sequence[object], kwargs: dict[str, object], *, gradients: bool = False
) -> Trace:
    """Trace ``module(*args, **kwargs)`` on fake copies; where fake tensors cannot follow (a value decides the
    control flow), on the given tensors themselves, with a warning."""
    try:
        with FakeTensorMode(allow_non_fake_inputs=True) as mode:
            return _trace_as(module, args, kwargs, mode.from_tensor, gradients)
    except (RuntimeError, NotImplementedError, TypeError, ValueError) as error:
        found = _trace_as(module, args, kwargs, lambda t: t.detach().clone(), gradients)
        note = f"traced on the example itself: {type(error).__name__} on fake tensors"
        return Trace(
            operators=found.operators,
            input_bytes=found.input_bytes,
            output_bytes=found.output_bytes,
            unused_inputs=found.unused_inputs,
            conditional=found.conditional,
            warnings=(*found.warnings, note),
        )


def _trace_as(
    module: torch.nn.Module,
    args: Sequence[object],
    kwargs: dict[str, object],
    convert: Callable[[torch.Tensor], torch.Tensor],
    gradients: bool,
) -> Trace:
    def prepared(t: torch.Tensor) -> torch.Tensor:
        return convert(t).requires_grad_(gradients and t.is_floating_point())

    state = {
        name: prepared(t) if isinstance(t, torch.nn.Parameter) else convert(t.detach())
        for name, t in [*module.named_parameters(), *module.named_buffers()]
    }
    fake_args, fake_kwargs = tree_map_only(torch.Tensor, prepared, (tuple(args), dict(kwargs)))
    inputs = [t for t in tree_flatten((fake_args, fake_kwargs))[0] if isinstance(t, torch.Tensor)]
    with torch.set_grad_enabled(gradients):
        return trace(
            lambda: torch.func.functional_call(module, state, fake_args, fake_kwargs),
            inputs,
            list(state.values()),
            gradients=gradients,
        )
