# SPDX-License-Identifier: Apache-2.0
"""Running a reference in float64 although it was written for less: dtypes are rewritten as its operators pass by."""

from __future__ import annotations

import collections
import contextlib
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils._pytree import tree_map

from kernelwright.judge import (
    borders,
    bounds,
    comparisons,
    counted,
    derived,
    domains,
    exponents,
    extremes,
    far,
    filled,
    fitted,
    held_borders,
    labelled,
    marks,
    own_numbers,
    sparse,
    steps,
    thresholds,
)
from kernelwright.judge import near_points as points
from kernelwright.judge.kinds import Watching, chooses, ranks
from kernelwright.judge.numeric_limits import Limits

if TYPE_CHECKING:
    from kernelwright.task import Task

PER_OPERATOR = 20_000
"""Work charged for passing an operator through Python at all, in multiply-adds."""
MANY, OF_MANY = 4096, 1_000_000
"""From so many operators of one call on, each is charged what it takes in float64 and in Python, 50 us: of a recurrent
network that is most of the work (a GRU of 6 layers over 512 steps: 0.26 s in float32, 2.7 s in float64)."""
TRAITS = {
    points.POINTED: points.pointed,
    comparisons.COMPARES: comparisons.compares,
    domains.SYSTEMS: domains.in_systems,
    thresholds.READS: thresholds.reads,
    labelled.PICKS: labelled.picks,
    **extremes.TRAITS,
}
"""What is said of a reference by single operators; far.TRAVELS by many, those of ``derived`` by what they are given."""
STEP = 14
"""Operators of one step of a recurrent layer that oneDNN takes as a whole in float32, and nobody in float64."""
SPREAD_BYTES = 1 << 28
"""What one convolution may write out of its inputs before it multiplies."""
SINGLE_SCALES = {"aten::fake_quantize_per_channel_affine_cachemask", "aten::fake_quantize_per_channel_affine"}
"""Operators whose scales, second, must be float32 whatever the values are."""
SINGLE_VALUES = {f"aten::{name}" for name in steps.PACKERS}
"""Operators whose values must be."""
RAISED = {
    torch.float16: torch.float64,
    torch.bfloat16: torch.float64,
    torch.float32: torch.float64,
    torch.complex32: torch.complex128,
    torch.complex64: torch.complex128,
}


def raised(tensor: torch.Tensor) -> torch.Tensor:
    """A floating or complex tensor in double precision; integers and booleans unchanged."""
    wanted = RAISED.get(tensor.dtype)
    return tensor if wanted is None else tensor.to(wanted)


def lower(value: Any) -> bool:
    """Whether there is anything to raise among the arguments of an operator. Of most there is not, and to map a tree of
    them took 0.16 of the 0.47 ms that one takes on a slow core."""
    if isinstance(value, torch.Tensor):
        return value.dtype in RAISED
    if isinstance(value, torch.dtype):
        return value in RAISED
    if isinstance(value, dict):
        value = value.values()
    elif not isinstance(value, list | tuple):
        return False
    return any(map(lower, value))


class Float64Trace(Watching):
    """Every floating dtype that an operator asks for, or brings along, becomes its double-precision one.

    ``rewritten`` counts the operators where that changed something: 0 means the module ran in float64 as it is.
    ``work`` estimates the cost in multiply-adds: outputs of each operator, and products for matrix operators.
    """

    copies = False
    """A call copies what it is given, as those of eager do, although that was made for it alone."""

    def __init__(self) -> None:
        super().__init__()
        self.rewritten = 0
        self.work = 0
        self.single = True
        """Numbers that it clamps by are those of float32."""
        self.fills = False
        """What a mask puts in swallows a score as it does in float32."""
        self.limits = Limits()
        """What ``torch.finfo`` says of raised tensors."""
        self.ran: collections.Counter[Any] = collections.Counter()
        """How often each operator came, where some are ``wide``."""
        self._theirs = True
        """What runs is the reference, and so is what draws."""

    def aside(self, work: Callable[[Any], Any], values: Any) -> Any:
        """Something of the judge's own, which draws in double precision, in the middle of it."""
        self._theirs = False
        try:
            return work(values)
        finally:
            self._theirs = True

    def __torch_dispatch__(
        self, func: Any, kinds: Any, args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        """Called by torch for every operator below autograd."""
        self.refuse_bits(func, args)
        if self._theirs and own_numbers.drawn(func, kwargs or {}):
            self.rewritten += 1
            return own_numbers.of_single(func, args, kwargs or {})
        args, kwargs = self.raise_arguments(func, tuple(args), dict(kwargs or {}))
        if self.single:
            args, kwargs = bounds.of_single(func, args, kwargs)
        out = self.apply(func, args, kwargs)
        self.work += cost(func, args, out) + PER_OPERATOR
        return out

    def apply(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Run one operator whose arguments are double; subclasses change how."""
        if self.limits.wide.any:
            self.ran[func] += 1
        if func is torch.ops.aten.convolution.default and not kwargs:
            return convolved(func, *args)
        out = func(*args, **kwargs)
        return filled.kept(func, args, out, out) if self.fills_by(func, kwargs, out) else out

    def fills_by(self, func: Any, kwargs: dict[str, Any], out: Any) -> bool:
        """Whether an operator puts in what swallows all else, in float32."""
        return self.fills and self.single and filled.found(func, kwargs, out)

    @staticmethod
    def refuse_bits(func: Any, args: Sequence[Any]) -> None:
        """Raises TypeError where the bits of a float are read: in another precision they mean something else. Pairs of
        numbers that are taken for complex ones, and the other way round, are no bits."""
        if func is torch.ops.aten.view.dtype and args[0].dtype in RAISED.values():
            pairs = {kind for kind in (*RAISED, *RAISED.values()) if kind.is_complex != args[0].is_complex()}
            if args[1] not in pairs:
                raise TypeError("the reference reads the bits of a floating tensor")

    def raise_arguments(
        self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Dtypes and low-precision tensors among the arguments, raised."""
        writes = func._schema.is_mutable
        changed = 0

        def lift(value: Any) -> Any:
            nonlocal changed
            if isinstance(value, torch.dtype) and value in RAISED:
                changed += 1
                return RAISED[value]
            if isinstance(value, torch.Tensor) and value.dtype in RAISED and not writes:
                changed += value.dim() > 0
                return raised(value)
            return value

        name = func._schema.name
        if name in ("aten::_softmax", "aten::_log_softmax"):
            args = (*args[:2], False)  # half_to_float means nothing above half
        if lower((args, kwargs)):
            args, kwargs = tree_map(lift, args), tree_map(lift, kwargs)
        if name in SINGLE_SCALES:
            args = (args[0], args[1].to(torch.float32), *args[2:])
        if name in SINGLE_VALUES:
            args = (args[0].to(torch.float32), *args[1:])
        # A tensor born from Python numbers is raised as soon as it is used; that alone is not a rewritten reference.
        self.rewritten += changed > 0
        return args, kwargs


def convolved(func: Any, values: torch.Tensor, weight: torch.Tensor, *rest: Any) -> torch.Tensor:
    """A convolution, a part of the batch at a time where torch would spread out too much of it at once.

    In double precision torch writes every element once for each place of the kernel that reads it: 9.4 GB for an input
    of 0.5 GB in float32. Images are independent of each other, so their parts give the same numbers.
    """
    batch = values.shape[0] if values.dim() == weight.dim() else 1
    spread = values[:1].numel() * math.prod(weight.shape[2:]) * values.element_size()
    most = max(1, SPREAD_BYTES // max(spread, 1))
    if values.device.type != "cpu" or batch <= most:
        return func(values, weight, *rest)
    out: torch.Tensor | None = None
    for start in range(0, batch, most):
        part = func(values[start : start + most], weight, *rest)
        out = part.new_empty((batch, *part.shape[1:])) if out is None else out
        out[start : start + most] = part
    assert out is not None
    return out


class Counting(Watching):
    """Adds up ``work``, as ``Float64Trace`` does, counts operators, notes ``borders``; changes nothing. ``given``: the
    inputs of the call; ``model``: whose weights are followed."""

    def __init__(self, given: Sequence[torch.Tensor] = (), model: torch.nn.Module | None = None) -> None:
        super().__init__()
        self.work = self.operators = 0
        self.borders: set[float] = set()
        self.reach, self.depth = 0.0, 1.0
        self.looked, self.followed = marks.Looked(), exponents.Followed(model)
        self.exponential = self.searches = self.jumps = False
        self.groups, self.held = derived.flagged(model, given), held_borders.Held(model)
        self.particular, self.travelled, self.fits = domains.Particular(), far.Travelled(), fitted.Fits()
        self.given, self.limits = given, Limits()
        self.factors = self.sized = self.sorts = self.ranks = False
        self.traits = set[str]()
        self.counts = any(map(counted.whole, given))
        """Whole numbers come in, become floats, or are added up."""

    def __torch_dispatch__(
        self, func: Any, kinds: Any, args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        """Called by torch for every operator below autograd."""
        if sparse.found(args):
            out = func(*args, **(kwargs or {}))
            self.operators, self.work = self.operators + 1, self.work + cost(func, args, out) + PER_OPERATOR
            return out
        self.reach = max(self.reach, borders.reach(func, args, kwargs or {}))
        self.depth = min(self.depth, borders.depth(func, args, kwargs or {}))
        self.fits.look(func, args, kwargs or {})
        out = func(*args, **(kwargs or {}))
        self.borders |= borders.met(func, args, kwargs or {})
        self.held.note(func, args, kwargs or {})
        self.limits.wide.note(func, out)
        self.looked.note(func, args, kwargs or {}, out)
        self.exponential |= borders.exponential(func)
        self.followed.note(func, args, out)
        self.particular.note(func, args, kwargs or {})
        self.travelled.note(func)
        self.fits.note(func, args, kwargs or {}, out)
        self.factors |= domains.factored(func)
        self.sorts |= chooses(func, args)
        self.ranks |= ranks(func, args)
        self.traits |= {name for name, has in TRAITS.items() if has(func)}
        self.sized |= torch.Tag.dynamic_output_shape in func.tags
        self.jumps |= borders.jumps(func, args, kwargs or {})
        self.groups = self.groups or derived.groups(func, args)
        self.counts = self.counts or counted.met(func, args, out)
        self.searches |= func._schema.name in ("aten::bucketize", "aten::searchsorted")
        layer = func._schema.name == "aten::mkldnn_rnn_layer"
        count = STEP * int(args[0].shape[0]) if layer else 1
        few = min(count, max(0, MANY - self.operators))
        self.operators += count
        self.work += cost(func, args, out) + few * PER_OPERATOR + (count - few) * OF_MANY
        return out

    def said(self) -> set[str]:
        """TRAITS that it has, far.TRAVELS and those of ``derived``. Of vast numbers an exponential of a difference is
        none that all honest programs take: an attention scales them first, by 1.44, and rounds that."""
        found = self.traits | ({far.TRAVELS} if self.travelled.far else set())
        found |= {held_borders.HELD} if self.held.found else set()
        found |= {fitted.DIFFERS} if self.fits.differs(self.given) else set()
        found |= {fitted.WEIGHS} if self.fits.weighs(self.given) else set()
        found |= ({derived.DERIVES} if self.jumps else set()) | ({derived.GROUPS} if self.groups else set())
        return found - {extremes.CHOOSES, extremes.PARTS} if self.exponential else found

    def met(self, given: Sequence[torch.Tensor], task: Task, outputs: Sequence[torch.Tensor]) -> dict[str, Any]:
        """What operators said of values that a reference treats in a way of their own, in a call on ``given``. Who
        answers in whole numbers or flags alone compares, so that order matters and no rounding does."""
        asked = any(number == marks.UNASKED for _, number in self.looked.found)  # else no source need be parsed for it
        found = marks.of_inputs(self.looked.found, given, asked and marks.said(task))
        wraps = marks.of_inputs(self.looked.wraps, given)
        exact = bool(outputs) and not any(out.is_floating_point() or out.is_complex() for out in outputs)
        more: dict[str, Any] = {"reach": self.reach, "depth": self.depth, "exponential": self.exponential}
        more |= {
            "exponents": self.followed.found,
            "sorts": self.ranks or exact,
            "traits": self.said(),
            "fits": self.fits.of(self.given),
        }
        return {"borders": sorted(self.borders), "marks": found, "wraps": wraps, **more}


def cost(func: Any, args: Sequence[Any], out: Any) -> int:
    """Work of one operator in multiply-adds, roughly: products of matrix operators; 8 per element for the others."""
    if func._schema.name == "aten::mkldnn_rnn_layer":  # its weights at every place of its input
        return math.prod(args[0].shape[:2]) * (int(args[1].numel()) + int(args[2].numel()))
    if isinstance(out, tuple | list):
        return 8 * sum(item.numel() for item in out if isinstance(item, torch.Tensor))
    if not isinstance(out, torch.Tensor):
        return 0
    name = func._schema.name
    tensors = [arg for arg in args if isinstance(arg, torch.Tensor)]
    if sparse.found(tensors):
        return max(8 * sparse.held(out), *(sparse.held(tensor) * int(out.shape[-1]) for tensor in tensors))
    if name in ("aten::mm", "aten::bmm"):
        return out.numel() * int(tensors[0].shape[-1])
    if name in ("aten::addmm", "aten::baddbmm"):
        return out.numel() * int(tensors[1].shape[-1])
    if name == "aten::convolution":
        return out.numel() * max(1, tensors[1].numel() // max(1, int(tensors[1].shape[0])))
    return 8 * max([out.numel(), *(tensor.numel() for tensor in tensors)])


@contextlib.contextmanager
def plain_operators() -> Iterator[None]:
    """Fused attention and encoder kernels off: they have no double version or hide their operators."""
    before = torch.get_default_dtype()
    fast_path = torch.backends.mha.get_fastpath_enabled()
    torch.backends.mha.set_fastpath_enabled(False)
    torch.set_default_dtype(torch.float64)
    try:
        with sdpa_kernel([SDPBackend.MATH]):
            yield
    finally:
        torch.set_default_dtype(before)
        torch.backends.mha.set_fastpath_enabled(fast_path)


def run_raised(
    call: Callable[[list[torch.Tensor]], list[torch.Tensor]], leaves: Sequence[torch.Tensor], mode: Float64Trace
) -> list[torch.Tensor]:
    """Call a double-precision module on double inputs under ``mode``. Raises what the module raises."""
    inputs = [raised(leaf.detach()) if leaf.dtype in RAISED else leaf.detach().clone() for leaf in leaves]
    inputs = [new.clone() if new is old else new for new, old in zip(inputs, leaves, strict=True)]
    with plain_operators(), mode.limits.again(), mode:
        outputs = call(inputs)
    if mode.ran:
        mode.limits.wide.ran = mode.ran
    return outputs
