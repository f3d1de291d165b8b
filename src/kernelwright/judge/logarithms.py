# SPDX-License-Identifier: Apache-2.0
"""A softmax that the backward pass computes again, from its arguments and the logarithm of their exponentials' sum.

Fused attention keeps no weights of attention for the gradients: it keeps that logarithm, one number a row, and takes
exp(s - l) again (FlashAttention, Dao et al. 2022, algorithm 4; Rabe and Staats 2021). Rounded at its own size, l is off
by so many units as it is large, s comes from another product, and nothing divides by the sum once more: with arguments
of 10^6 all weights of a row are off by a tenth. Where a reference keeps its softmax, gradients of torch's own fused
attention were refused by that. Where they are off by more than MOST, gradients say nothing: of arguments of 10^8, all
of a row, weights of attention come again as infinities.

Of what follows from the weights the gradient of their arguments is off by that factor, and by the sum in it:
p (g - sum(p g)), whose sum these programs take as a product of the answer and its gradient. A reference takes it of the
same g: where one weight is 1 the two cancel exactly there, and to within rounding here.

Kernels of cross-entropy (Liger's, Unsloth's) do so where torch keeps a log_softmax; their arguments are as given. Their
answers are that logarithm less an argument.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, NamedTuple
from weakref import WeakKeyDictionary

import torch

from kernelwright.judge.inputs import Variant
from kernelwright.judge.kinds import bound
from kernelwright.judge.oracle import Float64Trace
from kernelwright.judge.variants import AS_GIVEN

if TYPE_CHECKING:
    from kernelwright.judge.instance import Instance
    from kernelwright.judge.numerics import Comparison
    from kernelwright.judge.rounding import Rounded
    from kernelwright.judge.weights import State

aten = torch.ops.aten
MADE = frozenset({aten._softmax.default, aten._log_softmax.default})
LARGEST = frozenset({aten.max.dim, aten.amax.default})
PRODUCT = frozenset({aten.mm.default, aten.bmm.default})
SUMS, PRODUCTS = 2.0, 4.0
"""Units by which the logarithm is off, and an argument that is a product in another order (64 addends in a row and as
many again: 3.6 in RMS of the largest of them)."""
MOST, LOST = 1 / 16, 8.0
"""By how much of itself a weight may be off that is computed again, and from where on such inputs are not asked of who
has gradients: a reference in float32 has other weights than in float64 there, so that this would be distrusted."""
SINGLE = 2.0**-24
GONE, FAR = 128.0, -(2.0**26)
"""By how much an argument is below the largest that has no weight in float32; and what the largest of a row is below
that a mask fills, where it is there once."""
_FILLED: WeakKeyDictionary[Instance, bool] = WeakKeyDictionary()
"""Of tasks whose own calls were looked at: whether a mask fills rows there."""


@dataclass(frozen=True, slots=True)
class Softmax:
    """One that a forward pass made: its values, which lie in memory of their own, and the logarithms, a row each."""

    values: torch.Tensor
    logarithm: torch.Tensor
    logarithmic: bool
    """A log_softmax."""
    centred: bool
    """Of arguments less their largest."""


class Off(NamedTuple):
    """A factor of a result, and what is added to it then."""

    factor: torch.Tensor
    more: torch.Tensor
    exact: dict[int, tuple[torch.Tensor, torch.Tensor]] | None = None
    """Where results are remembered without these, by where they lie with them."""

    def applied(self, out: torch.Tensor) -> torch.Tensor:
        """The result off by that."""
        made = out * self.factor + self.more
        if self.exact is not None:
            self.exact[made.untyped_storage().data_ptr()] = made, out
        return made


class Logarithms:
    """The softmaxes of one run of a reference with gradients."""

    def __init__(self) -> None:
        self._made: dict[int, Softmax] = {}
        """By where its memory begins."""
        self._again: dict[int, tuple[torch.Tensor, torch.Tensor]] = {}
        """The values as they come again, and their factors."""
        self._largest: dict[int, torch.Tensor] = {}
        """Maxima, and what they were taken from, by where they lie. Their part of a gradient is the sum of a row of
        that of the softmax, which is zero; had the largest all of what that is off, it would be as right as a
        reference's own where one weight is 1."""
        self._exact: dict[int, tuple[torch.Tensor, torch.Tensor]] = {}
        self._product: tuple[Any, tuple[Any, ...], torch.Tensor] | None = None
        """The last product of the backward pass: operator, arguments, result."""

    def note(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], out: Any) -> None:
        """After an operator."""
        if self._made and func in PRODUCT and backward():
            self._product = func, args, out
        if not torch.is_grad_enabled() or backward():
            return
        if func in LARGEST:
            most = out[0] if isinstance(out, tuple) else out
            self._largest[_place(most)] = most
        elif func is aten.sub.Tensor and isinstance(args[1], torch.Tensor) and _place(args[1]) in self._largest:
            self._largest[_place(out)] = out
        elif func in MADE and out.dtype is torch.float64 and out.numel():
            level = _logarithm(func, args, kwargs).masked_fill(_even(func, args, kwargs), 0.0)
            centred = _place(args[0]) in self._largest
            self._made[_place(out)] = Softmax(out, level, func is aten._log_softmax.default, centred)

    def again(self, mode: Rounded, func: Any, args: tuple[Any, ...]) -> tuple[tuple[Any, ...], Off | None]:
        """The arguments of an operator of a backward pass, with such softmaxes computed again; instead by what its
        result is off where it is the gradient of one."""
        if not self._made or func.is_view or not backward():
            return args, None
        if func is aten._log_softmax_backward_data.default:
            made = self._made.get(_place(args[1]))
            if made is None or args[1].dtype is not torch.float64:
                return args, None
            off = mode.noise(made.logarithm) * SUMS * mode.unit * made.logarithm.abs()
            return (args[0], args[1] + off, *args[2:]), None
        if func is aten.neg.default and _place(args[0]) in self._exact:
            return (_as(args[0], self._exact[_place(args[0])][1]),), None
        if func is aten._softmax_backward_data.default:
            found = self._found(mode, args[1])
            return args, None if found is None else self._off(mode, args, *(_as(args[1], each) for each in found))
        return tuple(self._replaced(mode, arg) for arg in args), None

    def _off(self, mode: Rounded, args: tuple[Any, ...], values: torch.Tensor, factor: torch.Tensor) -> Off:
        """By what the gradient of a softmax's arguments is off; ``args``: those of its operator."""
        incoming, _, dim, *_ = args
        size = (values * incoming).abs().sum(dim, keepdim=True)
        off = mode.noise(size) * size * PRODUCTS * mode.unit
        if self._product is not None and incoming.is_contiguous():  # of weights and values: as exact as another one is
            func, given, out = self._product
            if out.data_ptr() == incoming.data_ptr() and out.numel() == incoming.numel():
                other = mode.rounded_again(func, given).reshape(incoming.shape)
                off = off + (values * (incoming - other)).sum(dim, keepdim=True)
        centred = self._made[_place(args[1])].centred
        return Off(factor, factor * values * off, self._exact if centred else None)

    def _replaced(self, mode: Rounded, arg: Any) -> Any:
        found = self._found(mode, arg) if isinstance(arg, torch.Tensor) else None
        return arg if found is None else _as(arg, found[0])

    def _found(self, mode: Rounded, arg: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor] | None:
        if arg.layout is not torch.strided:
            return None
        place = _place(arg)
        made = self._made.get(place)
        if made is None or made.logarithmic or arg.dtype is not torch.float64:
            return None
        if place not in self._again:
            values, level = made.values, made.logarithm
            arguments = torch.where(values > 0.0, values.log() + level, 0.0)
            off = mode.noise(level) * SUMS * level.abs() + mode.noise(values) * PRODUCTS * arguments.abs()
            factor = torch.exp(mode.unit * off)
            self._again[place] = values * factor, factor
        return self._again[place]


class _Largest(Float64Trace):
    """The largest logarithm of a sum of exponentials of a softmax, but of rows of one number."""

    def __init__(self) -> None:
        super().__init__()
        self.size = 0.0
        self.filled = False
        """There are such rows, of numbers so large that a weight that comes again is 1 there, of n places."""

    def apply(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """One operator."""
        if func in MADE and args[0].numel():
            sizes = _logarithm(func, args, kwargs).nan_to_num(0.0, 0.0, 0.0)
            even = _even(func, args, kwargs)
            self.size = max(self.size, float(sizes.masked_fill(even, 0.0).abs().max()))
            self.filled |= bool((even & (sizes.abs() * SINGLE > MOST)).any())
        return super().apply(func, args, kwargs)


def less_logarithm(mode: Rounded, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], out: Any) -> Any:
    """The result of an operator; a log_softmax off by one rounding of the logarithm, as x - logsumexp(x) has it. By the
    same share of it in each row, for rows that are alike are rounded to one side: of a contrastive loss whose pairs all
    agree, at a logarithm of 14.3, kernels of cross-entropy (Liger's) leave 2e-7 where a log_softmax has 5e-7."""
    if func is not aten._log_softmax.default or out.dtype is not torch.float64 or not out.numel():
        return out
    level = _logarithm(func, args, kwargs).masked_fill(_even(func, args, kwargs), 0.0).nan_to_num(0.0, 0.0, 0.0)
    return out + mode.noise(level.flatten()[:1]) * mode.unit * level


def unsure(instance: Instance, leaves: Sequence[torch.Tensor], state: State | None) -> float:
    """The logarithm of what a softmax of these inputs may be off by where gradients compute it again."""
    return _largest(instance, leaves, state).size * SINGLE


def _largest(instance: Instance, leaves: Sequence[torch.Tensor], state: State | None) -> _Largest:
    mode = _Largest()
    if instance.contract.gradients and instance.steep and not instance.without_double:
        instance.doubled(leaves, state, mode)
    return mode


def _filled_by_variants(instance: Instance, filled: bool) -> bool:
    """Whether rows that a mask fills are of this call and not of the task's own."""
    if not filled:
        return False
    if instance not in _FILLED:
        _FILLED[instance] = _largest(
            instance, instance.draw(Variant(name=AS_GIVEN, required=True), instance.seed), None
        ).filled
    return not _FILLED[instance]


def told(
    instance: Instance, leaves: Sequence[torch.Tensor], state: State | None, found: list[Comparison], limit: float
) -> list[Comparison]:
    """What was found at each result of a call. Gradients that lost over ``limit`` bits are no matter where a softmax
    that is computed again is off by over MOST: outputs are, there too. Nor are they in a call with rows that a mask
    fills where the task's own have none, if they are numbers: torch's own attention has them n times as large there,
    and one NaN more in a padded batch makes all weights NaN."""
    first, count = len(instance.out_specs), len(instance.gradients)
    wrong = [at for at in range(first, first + count) if found[at].bits_lost > limit]
    if not wrong:
        return found
    mode = _largest(instance, leaves, state)
    if mode.size * SINGLE <= MOST:
        if not _filled_by_variants(instance, mode.filled):
            return found
        wrong = [at for at in wrong if not found[at].nonfinite_mismatch]
        if not wrong:
            return found
    none = replace(found[wrong[0]], error_ratio=0.0, bits_lost=0.0, nonfinite_mismatch=False, detail="")
    return [none if at in wrong else one for at, one in enumerate(found)]


def _logarithm(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> torch.Tensor:
    """Of the sum of the exponentials of a softmax's arguments."""
    return torch.logsumexp(args[0], bound(func, args, kwargs)["dim"], keepdim=True)


def _even(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> torch.Tensor:
    """Rows of one number in float32, and others so far below it that they have no weight: those that a mask fills (-1e9
    at each place, -2e9 where two masks do), whose weights are as exact as any.
    With a logarithm of 1e9 off by its rounding no gradient behind such a row was asked for. Torch's own fused attention
    has weights of 1 there, of n places, which is as wrong as it looks."""
    rows, dim = args[0].float(), bound(func, args, kwargs)["dim"]
    most = rows.amax(dim, keepdim=True)
    equal = rows == most
    alone = (equal == (rows > most - GONE)).all(dim, keepdim=True)
    alone &= (equal.sum(dim, keepdim=True) > 1) | (most < FAR)
    return alone | (most == rows.amin(dim, keepdim=True))


def _place(value: torch.Tensor) -> int:
    """Where its memory begins; 0 of what has none."""
    return value.untyped_storage().data_ptr() if value.layout is torch.strided else 0


def _as(arg: torch.Tensor, whole: torch.Tensor) -> torch.Tensor:
    """The view of ``whole`` that ``arg`` is of what it stands for."""
    return whole.as_strided(arg.size(), arg.stride(), arg.storage_offset())


def backward() -> bool:
    """Whether this operator is one of a backward pass."""
    return torch._C._current_graph_task_id() != -1
