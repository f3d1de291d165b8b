# SPDX-License-Identifier: Apache-2.0
"""Run a module on fake tensors and record every operator: bytes, operations by unit, and what depends on what.

The method is the calibrated roofline over a functional trace (the "generic method" of SOL-style harnesses),
with three corrections: bytes are counted per storage and per touched slice, every operand in its own dtype,
and inputs the result does not depend on are not counted (``demand.py``).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_flatten, tree_map_only
from torch.utils.flop_counter import flop_registry

from kernelwright.limits import counting
from kernelwright.limits.demand import WHOLE, Needs, Read, Step, shared
from kernelwright.limits.names import FREE, REDUCING, SFU, SHAPE_ONLY, SILENT, WRITERS
from kernelwright.limits.partial import Leaf, Reader
from kernelwright.limits.partial import distinct as _distinct
from kernelwright.limits.partial import key_of as _key
from kernelwright.limits.partial import view_of as _view


@dataclass(frozen=True, slots=True)
class Operator:
    """One executed operator. ``bytes`` counts each operand and result once, in its own dtype."""

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


RECURRENT = ("gru", "rnn_tanh", "rnn_relu")
"""Layers whose steps torch runs one by one; an LSTM is one operator of oneDNN's already."""


class _Recorder(TorchDispatchMode):
    """Records operators, and for each what it read of which storage and which it made."""

    def __init__(self) -> None:
        super().__init__()
        self.operators: list[Operator] = []
        self.steps: list[Step] = []
        self.sizes: dict[int, int] = {}
        self.keep: list[torch.Tensor] = []
        self.reader = Reader()
        self.leaves, self.changed = self.reader.leaves, self.reader.changed
        self.unknown: set[str] = set()

    def leaf(self, position: int, tensor: torch.Tensor, index: np.ndarray | None = None) -> None:
        """Declare an external tensor; tensors that share a storage share the account."""
        key = _key(tensor)
        self.keep.append(tensor)
        unique = min(tensor.untyped_storage().nbytes() // max(tensor.itemsize, 1), _distinct(tensor))
        self.leaves.setdefault(key, Leaf(position, tensor, index))
        self.sizes.setdefault(key, unique * tensor.itemsize)

    def __torch_dispatch__(
        self, func: Any, types: Sequence[type], args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        result = func(*args, **(kwargs or {}))
        operands = [t for t in tree_flatten((args, kwargs))[0] if isinstance(t, torch.Tensor)]
        results = [t for t in tree_flatten(result)[0] if isinstance(t, torch.Tensor)]
        space, _, name = str(func._schema.name).partition("::")
        self.keep += results
        ins = {_key(t) for t in operands}
        shared = {_key(t) for t in results} & ins
        if shared and not func._schema.is_mutable:
            return result  # a view: it shares storage, so it is read only when something else reads it
        self.changed |= shared
        if name in SHAPE_ONLY:
            operands = []
        for t in results:
            self.sizes.setdefault(_key(t), _distinct(t) * t.itemsize)
        if name in FREE or space in SILENT:
            return result
        if space != "aten" or any(t.layout is not torch.strided for t in (*operands, *results)):
            self._foreign(func, operands, results, args)
            return result
        filled = name in WRITERS or str(func._schema.overload_name).endswith("out")
        reads = self.reader.reads(
            func, name, operands[1:] if name in WRITERS else operands, results, args, kwargs or {}
        )
        wrote = None
        for t in results:
            if _key(t) in shared:
                most = float(_distinct(t)) if filled else self.reader.replaced(name, operands, args)
                wrote = Read(_key(t), _view(t), most, t.itemsize)
            else:
                self.reader.makers[_key(t)] = name
        made = float(_distinct(results[0])) if results else 0.0
        self.steps.append(Step(tuple(_key(t) for t in results), reads, made, wrote, filled))
        self.operators.append(self._operator(func, name, operands, results, args, kwargs or {}))
        return result

    def written_to(self, result: torch.Tensor, needs: Needs) -> None:
        """Of an input that is changed and handed back, what is written is needed; the rest stays where it is."""
        for step in self.steps:
            wrote = step.wrote
            if wrote is None or wrote.key != _key(result) or wrote.key not in self.leaves:
                continue
            every = step.replaces or not wrote.amount  # otherwise a mask or an index says what is written
            common = shared(wrote.view, _view(result)) if wrote.width == result.itemsize else None
            needs.add(wrote, float(common or 0.0) if every else 0.0)

    def _foreign(self, func: Any, operands: list[torch.Tensor], results: list[torch.Tensor], args: Any) -> None:
        """Somebody's own operator: it may read any part of its operands, so none of an input is unavoidable for it."""
        name = str(func._schema.name)
        given = [pair for pair in zip(args, func._schema.arguments, strict=False) if isinstance(pair[0], torch.Tensor)]
        changes = [value for value, about in given if about.alias_info is not None and about.alias_info.is_write]
        made = [*results, *changes]
        if not made:
            return
        for t in made:
            self.sizes.setdefault(_key(t), _distinct(t) * t.itemsize)
        self.changed |= {_key(t) for t in changes}
        self.reader.conditional.add(f"what {name} reads of its operands is not known")
        self.unknown.add(name)
        reads = tuple(Read(_key(t), _view(t), 0.0, t.itemsize, WHOLE) for t in operands)
        self.steps.append(Step(tuple(_key(t) for t in made), reads))
        found = self._operator(func, name, operands, results or changes, args, {})
        self.operators.append(dataclasses.replace(found, operations=0, known=False))

    def layer(self, name: str, operands: list[torch.Tensor], results: Sequence[torch.Tensor]) -> None:
        """Note a recurrent layer: a share of its results needs at least that share of its operands."""
        self.keep += results
        for t in results:
            self.sizes.setdefault(_key(t), _distinct(t) * t.itemsize)
            self.reader.makers[_key(t)] = name
        reads = tuple(_all_of(t) for t in operands)
        self.steps.append(Step(tuple(_key(t) for t in results), reads, float(_distinct(results[0]))))
        moved = sum(_distinct(t) * t.itemsize for t in (*operands, *results))
        self.unknown.add(name)
        self.operators.append(
            Operator(
                name=name,
                shapes=tuple(tuple(t.shape) for t in operands),
                dtype=str(operands[0].dtype).removeprefix("torch."),
                bytes=moved,
                operations=0,
                unit="vector",
                known=False,
            )
        )

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
        elif name in counting.DISTANCES:
            work, unit = counting.distances(operands), "matmul"
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


class _Layers(TorchFunctionMode):
    """Takes recurrent layers as one operator each: followed step by step, 6 of 512 steps took 17 s.

    Their results are left empty, so the tensors must be without data, and nobody may want gradients.
    """

    def __init__(self, recorder: _Recorder) -> None:
        super().__init__()
        self.recorder = recorder

    def __torch_function__(
        self, func: Any, types: Sequence[type], args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        name = getattr(func, "__name__", "")
        if func is not getattr(torch, name, None) or name not in RECURRENT or not isinstance(args[1], torch.Tensor):
            return func(*args, **(kwargs or {}))  # anything else, or sequences packed into one
        given, hidden, weights = args[:3]
        ways = 2 if args[7] else 1
        results = given.new_empty((*given.shape[:-1], ways * hidden.shape[-1])), torch.empty_like(hidden)
        self.recorder.layer(name, [given, hidden, *weights], results)
        return results


def _all_of(tensor: torch.Tensor) -> Read:
    return Read(_key(tensor), _view(tensor), float(_distinct(tensor)), tensor.itemsize)


def _empty(tensors: Sequence[torch.Tensor]) -> bool:
    """Whether all are tensors without data."""
    return all(isinstance(t, FakeTensor) for t in tensors)


def _reduces(name: str) -> bool:
    return name in REDUCING or "norm" in name or "softmax" in name


def trace(
    call: Callable[..., object],
    inputs: Sequence[torch.Tensor],
    parameters: Sequence[torch.Tensor],
    *,
    gradients: bool = False,
    indices: Sequence[np.ndarray | None] = (),
) -> Trace:
    """Record ``call(*inputs)`` (and its backward) on tensors that are already fake or real.

    ``inputs`` are the tensor leaves the call reads, ``parameters`` the module's parameters and buffers; ``indices`` has
    the values of those inputs that hold integers. Nothing is computed where the tensors are fake. Raises whatever the
    reference raises.
    """
    recorder = _Recorder()
    given = [*inputs, *parameters]
    for position, tensor in enumerate(given):
        recorder.leaf(position, tensor, indices[position] if position < len(indices) else None)
    layers = _Layers(recorder) if not gradients and _empty(given) else nullcontext()
    with layers, recorder:
        results = [t for t in tree_flatten(call())[0] if isinstance(t, torch.Tensor)]
        passed: list[torch.Tensor] = []
        if gradients:
            found = _backward(recorder, results, given)
            passed = [t for t in found if _key(t) in recorder.leaves]  # an incoming gradient handed on is a copy of it
            results += [t for t in found if _key(t) not in recorder.leaves]
    needs = Needs(recorder.sizes)
    fresh = {_key(t): t for t in results if _key(t) not in recorder.leaves or _key(t) in recorder.changed}
    for t in results:
        if _key(t) in fresh:
            needs.add(_all_of(t), None if _key(t) not in recorder.leaves else 0.0)
            recorder.written_to(t, needs)
    written = {key: needs.bytes(key) for key in fresh}
    for t in passed:
        needs.add(_all_of(t))
    before = set(recorder.changed & fresh.keys() & recorder.leaves.keys())
    needs.back(recorder.steps)
    read = sum(needs.bytes(key) for key in recorder.leaves)
    unused = [
        leaf.position
        for key, leaf in recorder.leaves.items()
        if not needs.known(key) and leaf.position < len(given) and key not in before
    ]
    warnings = [f"{name}: no operation count, bounded by bytes alone" for name in sorted(recorder.unknown)]
    return Trace(
        operators=tuple(recorder.operators),
        input_bytes=int(read),
        output_bytes=int(sum(written.values())) + sum(_distinct(t) * t.itemsize for t in passed),
        unused_inputs=tuple(sorted(unused)),
        conditional=tuple(sorted(recorder.reader.conditional)),
        warnings=tuple(warnings),
    )


def _backward(
    recorder: _Recorder, results: Sequence[torch.Tensor], given: Sequence[torch.Tensor]
) -> list[torch.Tensor]:
    """Gradients of ``given``; the incoming ones are inputs of the call too."""
    wanted = [t for t in given if t.requires_grad]
    heads = [t for t in results if t.requires_grad]
    if not heads or not wanted:
        return []
    seeds = [torch.empty_like(t) for t in heads]
    for number, seed in enumerate(seeds):
        recorder.leaf(len(given) + number, seed)
    found = torch.autograd.grad(heads, wanted, seeds, allow_unused=True)
    return [g for g in found if g is not None]


@contextmanager
def untouched(module: torch.nn.Module) -> Iterator[None]:
    """Undo what ``forward`` assigns to attributes of the module: a hidden state of fake tensors would stay one."""
    before = [(part, dict(vars(part))) for part in module.modules()]
    try:
        yield
    finally:
        for part, values in before:
            vars(part).clear()
            vars(part).update(values)


def trace_module(
    module: torch.nn.Module, args: Sequence[object], kwargs: dict[str, object], *, gradients: bool = False
) -> Trace:
    """Trace ``module(*args, **kwargs)`` on fake copies; where fake tensors cannot follow (a value decides the
    control flow), on the given tensors themselves, with a warning."""
    indices = [_integers(t) for t in [*_leaves(args, kwargs), *(t for _, t in _state(module))]]
    try:
        with untouched(module), FakeTensorMode(allow_non_fake_inputs=True) as mode:
            return _trace_as(module, args, kwargs, mode.from_tensor, gradients, indices)
    except (RuntimeError, TypeError, ValueError, AttributeError, AssertionError, LookupError) as error:
        with untouched(module):
            found = _trace_as(module, args, kwargs, lambda t: t.detach().clone(), gradients, indices)
        note = f"traced on the example itself: {type(error).__name__} on fake tensors"
        return dataclasses.replace(found, warnings=(*found.warnings, note))


def _leaves(args: Sequence[object], kwargs: dict[str, object]) -> list[torch.Tensor]:
    return [t for t in tree_flatten((tuple(args), dict(kwargs)))[0] if isinstance(t, torch.Tensor)]


def _state(module: torch.nn.Module) -> list[tuple[str, torch.Tensor]]:
    return [*module.named_parameters(), *module.named_buffers()]


def _integers(tensor: torch.Tensor) -> np.ndarray | None:
    """The values of a tensor that may name elements of others, else None."""
    if tensor.dtype not in (torch.int64, torch.int32, torch.bool):
        return None
    return tensor.detach().cpu().numpy()


def _trace_as(
    module: torch.nn.Module,
    args: Sequence[object],
    kwargs: dict[str, object],
    convert: Callable[[torch.Tensor], torch.Tensor],
    gradients: bool,
    indices: Sequence[np.ndarray | None],
) -> Trace:
    def prepared(t: torch.Tensor) -> torch.Tensor:
        return convert(t).requires_grad_(gradients and t.is_floating_point())

    state = {
        name: convert(t.detach()).requires_grad_(gradients and t.requires_grad and isinstance(t, torch.nn.Parameter))
        for name, t in _state(module)
    }
    fake_args, fake_kwargs = tree_map_only(torch.Tensor, prepared, (tuple(args), dict(kwargs)))
    with torch.set_grad_enabled(gradients):
        return trace(
            lambda: torch.func.functional_call(module, state, fake_args, fake_kwargs),
            _leaves(fake_args, fake_kwargs),
            list(state.values()),
            gradients=gradients,
            indices=indices,
        )
