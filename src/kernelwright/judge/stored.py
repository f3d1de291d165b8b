# SPDX-License-Identifier: Apache-2.0
"""What half precision loses between operators: a reference in float64, each result rounded as it was stored.

Sums in half precision are made in float32, and the draws of ``rounding`` know of no other. But eager stores what each
operator answers in two bytes, and so does who fuses some of them, elsewhere. By eager alone such errors are measured
once: where they cancel (x cos - y sin of rotary embeddings, whose two products round to the same number), or where a
few rows are a thousand times as large, it is right by luck, and a fused program with one rounding less was refused, at
3.4 and 4.9 times the honest error.

So an answer in half precision that is refused is held against DRAWS such runs too, the largest of them, as they are.
Operators are known by their order in a call of eager's. A bias is added to a product that was stored, and operands of
products are in half precision: torch's own attention takes its weights so, also for a reference in float32 inside, and
was refused for small elements, by 3 to 55 times the honest error where that of all is 1.3 times eager's.

The gradient of a softmax's arguments is p (g - sum(p g)). Fused attention takes that sum as a product of its answer and
the answer's gradient (FlashAttention, Dao et al. 2022, section B.2), and its answer was rounded: by so much a gradient
is off where a weight is nearly 1 and the two cancel. One in three verdicts in float16 was a refusal by that.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel

from kernelwright.judge import noise
from kernelwright.judge.floors import NO_FLOOR, Floor, Floors, Spread
from kernelwright.judge.inputs import generator
from kernelwright.judge.kinds import EXACT, Watching
from kernelwright.judge.logarithms import PRODUCT, backward
from kernelwright.judge.numerics import unit_roundoff
from kernelwright.judge.oracle import Float64Trace

if TYPE_CHECKING:
    from kernelwright.judge.buffers import TensorSpec
    from kernelwright.judge.instance import Instance
    from kernelwright.judge.weights import State
    from kernelwright.judge.yardstick import Magnitudes

aten = torch.ops.aten
DRAWS = 3
HALVES = frozenset({torch.float16, torch.bfloat16})
NAMES = frozenset({"float16", "bfloat16"})
Kinds = list[tuple[Any, list[torch.dtype | None], list[bool]]]
"""Operators that round, the dtypes of their results (None of what is no half), and which arguments are halves, or came
of some as they are."""
_OPERANDS = {
    **dict.fromkeys((aten.mm.default, aten.bmm.default, aten.convolution.default), (0, 1)),
    **dict.fromkeys((aten.addmm.default, aten.baddbmm.default), (1, 2)),
}
"""Operators that multiply matrices, and which of their arguments these are."""
_WEIGHTS = frozenset({aten._softmax.default, aten._softmax_backward_data.default})
"""Operators whose results torch's own attention takes in half precision, also where a reference has them in float32."""
_CARRIED = frozenset({"mul", "div", "_to_copy", "clone", "masked_fill", "where"})
"""Operators whose results are still such weights."""


def _rounds(func: Any, out: Any) -> bool:
    """Whether an operator rounds at all."""
    name = func._schema.name.removeprefix("aten::")
    return not (func.is_view or name in EXACT or name.rstrip("_") in EXACT) and any(map(_floating, _results(out)))


def _added(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> torch.Tensor | None:
    """What an operator adds to its product, as others do to one that they have stored; None where there is none."""
    if func in (aten.addmm.default, aten.baddbmm.default):
        return args[0] * kwargs.get("beta", 1)
    if func is aten.convolution.default and args[2] is not None:
        return args[2].reshape(-1, *[1] * (args[0].dim() - 2))
    return None


def _floating(value: Any) -> bool:
    return isinstance(value, torch.Tensor) and value.is_floating_point()


def _results(out: Any) -> Sequence[Any]:
    return out if isinstance(out, tuple | list) else (out,)


class _Seen(Watching):
    """The operators of a call of eager's."""

    def __init__(self) -> None:
        super().__init__()
        self.kinds: Kinds = []
        self._wider: dict[int, torch.Tensor] = {}
        """Halves in a wider type, by where their memory begins."""

    def __torch_dispatch__(
        self, func: Any, kinds: Any, args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        """Called by torch for every operator below autograd."""
        out = func(*args, **(kwargs or {}))
        if func in (aten._to_copy.default, aten.clone.default) and self._is_half(args[0]):
            self._wider[out.untyped_storage().data_ptr()] = out
        if func._schema.is_mutable:
            for known, value in zip(func._schema.arguments, args, strict=False):  # _foreach_add_ gives nothing back
                if known.alias_info and known.alias_info.is_write:
                    for one in filter(_floating, _results(value)):
                        self._wider.pop(one.untyped_storage().data_ptr(), None)
        if _rounds(func, out):
            dtypes = [getattr(one, "dtype", None) for one in _results(out)]
            halves = [self._is_half(arg) for arg in args]
            self.kinds.append((func, [dtype if dtype in HALVES else None for dtype in dtypes], halves))
        return out

    def _is_half(self, value: Any) -> bool:
        plain = isinstance(value, torch.Tensor) and value.layout is torch.strided
        return plain and (value.dtype in HALVES or value.untyped_storage().data_ptr() in self._wider)


class _Weighed:
    """Answers of products with weights of attention, which the gradients of those weights come from."""

    def __init__(self) -> None:
        self._answers: dict[tuple[int, int], torch.Tensor] = {}
        """By where the second operand lies."""
        self._last: tuple[torch.Tensor, torch.Tensor] | None = None
        """An answer and its gradient: of the last such product of the backward pass."""

    def note(self, func: Any, args: tuple[Any, ...], out: Any) -> None:
        """After an operator."""
        if func not in PRODUCT or not torch.is_grad_enabled() and not backward():
            return
        place = args[1].untyped_storage().data_ptr(), args[1].storage_offset()
        if not backward():
            self._answers[place] = out
        elif place in self._answers and args[0].shape == self._answers[place].shape:
            self._last = self._answers[place], args[0]

    def off(self, values: torch.Tensor, kind: torch.dtype) -> torch.Tensor | None:
        """What is added to the gradient of a softmax's arguments (its ``values``: of one row each, in the last axis)
        where the answer is rounded to this kind: to the nearest, for where one weight is 1 the answer is a value."""
        if self._last is None:
            return None
        answer, incoming = self._last
        off = ((answer.to(kind).to(answer.dtype) - answer) * incoming).sum(-1).nan_to_num(0.0, 0.0, 0.0)
        return values * off.reshape(*values.shape[:-1], 1) if off.numel() == values[..., 0].numel() else None


class Stored(Float64Trace):
    """Float64, where each result that eager stored in half precision is rounded to that, at random, or (``rng``: None)
    to the nearest."""

    copies = True  # its operators are told by their order in the call that was seen

    def __init__(self, kinds: Kinds, kind: torch.dtype, rng: torch.Generator | None) -> None:
        super().__init__()
        self._kind = kind
        """That of the answer."""
        self._kinds, self._at, self._pool = kinds, 0, None if rng is None else noise.Pool(rng)
        self._weighed = _Weighed()
        self._weights: dict[int, torch.Tensor] = {}
        """By where its memory begins: what may be an operand in half precision."""
        self.known = True
        """All operators so far are those of the call that was seen."""

    def __torch_dispatch__(
        self, func: Any, kinds: Any, args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        """Called by torch for every operator below autograd."""
        out = super().__torch_dispatch__(func, kinds, args, kwargs)
        asked = (kwargs or {}).get("dtype")
        if func is aten._to_copy.default and asked in HALVES and out.dtype is torch.float64:
            return self._rounded(out, asked)
        return out

    def apply(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """One operator."""
        given = args
        args = self._operands(func, args) if self.known else args
        out = super().apply(func, args, kwargs)
        self._weighed.note(func, given, out)
        self._mark(func, given, out)
        if func is aten._softmax_backward_data.default and args[1].numel() and args[2] in (-1, args[1].dim() - 1):
            off = self._weighed.off(args[1], self._kind)
            out = out if off is None else out + off
        if not self.known or not _rounds(func, out):
            return out
        seen, dtypes, _ = self._kinds[self._at] if self._at < len(self._kinds) else (None, [], [])
        self._at += 1
        self.known = seen is func and len(dtypes) == len(_results(out))
        if not self.known:
            return out
        added = _added(func, args, kwargs)
        if added is not None and dtypes[0] is not None:
            out = self._rounded(out - added, dtypes[0]) + added
        pairs = zip(_results(out), dtypes, strict=True)
        found = [one if dtype is None else self._rounded(one, dtype) for one, dtype in pairs]
        if func._schema.is_mutable:
            for old, new in zip(_results(out), found, strict=True):
                if new is not old:
                    old.copy_(new)
            return out
        return type(out)(found) if isinstance(out, tuple | list) else found[0]

    def _operands(self, func: Any, args: tuple[Any, ...]) -> tuple[Any, ...]:
        """The arguments, with the operands of a product as units for half precision take them: those that eager has in
        it, and weights of attention of what eager had in it. Angles of a reference that takes them in float32 on
        purpose stay as they are, and so do weights of places in an image."""
        places = _OPERANDS.get(func, ())
        if not places or self._at >= len(self._kinds):
            return args
        halves = self._kinds[self._at][2]
        own = [at for at in places if at < len(halves) and halves[at]]
        own += [at for at in places if own and self._weighs(args[at])]
        return tuple(self._rounded(arg, self._kind) if at in own else arg for at, arg in enumerate(args))

    def _weighs(self, value: Any) -> bool:
        return isinstance(value, torch.Tensor) and value.untyped_storage().data_ptr() in self._weights

    def _mark(self, func: Any, args: tuple[Any, ...], out: Any) -> None:
        name = func._schema.name.removeprefix("aten::").rstrip("_")
        if isinstance(out, torch.Tensor) and (func in _WEIGHTS or name in _CARRIED and any(map(self._weighs, args))):
            self._weights[out.untyped_storage().data_ptr()] = out

    def _rounded(self, value: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
        """To either side, but what is a number of that kind; an overflow stays one of float64."""
        if value.dtype is not torch.float64:
            return value
        nearest = value.to(dtype).to(torch.float64)
        if self._pool is None:
            return torch.where(nearest.isfinite(), nearest, value)
        half = torch.ldexp(torch.ones_like(value), torch.frexp(value).exponent - 1) * unit_roundoff(dtype)
        moved = value + self._pool.noise(value) * half
        return torch.where(nearest == value, value, moved)


class Further(Floors):
    """Floors of one call, and beyond them what half precision loses at its outputs."""

    def __init__(
        self,
        floors: Floors,
        instance: Instance,
        leaves: Sequence[torch.Tensor],
        state: State | None,
        exact: Sequence[Magnitudes],
    ) -> None:
        super().__init__(floors.draw, floors.count, floors.known)
        self._call = instance, leaves, state, exact
        self._last: dict[int, tuple[int, Floor]] = {}
        self._halves: list[Floor] | None = None
        self._nearest: list[Floor] | None = None

    def beyond(self, output: int, more: int, sure: float = 0.0) -> Floor | None:
        """The floor after ``more`` steps beyond the usual draws; None where there is none."""
        found = super().beyond(output, more, sure)
        if found is not None:
            self._last[output] = more, found
            return found
        steps, before = self._last.get(output, (0, self.whole(output)))
        if more != steps + 1 or not self._is_half(output):
            return None
        return _larger(before, self.stored(output))

    def stored(self, output: int) -> Floor:
        """What half precision loses at an output by storing; nothing where it is of no such kind."""
        if not self._is_half(output):
            return NO_FLOOR
        if self._halves is None:
            self._halves = self._runs(
                [generator(self._call[0].seed + number, self._call[0].device) for number in range(DRAWS)]
            )
        return self._halves[output]

    def explained(self, output: int) -> float:
        """RMS error of the reference itself that follows from storing. To the nearest too, for two scores of thousands
        that round to the same number share what one of them has alone in float64."""
        if not self._is_half(output):
            return 0.0
        if self._nearest is None:
            self._nearest = self._runs([None])
        return max(self.stored(output).rms, self._nearest[output].rms)

    def _is_half(self, output: int) -> bool:
        instance = self._call[0]
        half = instance.all_specs()[output].dtype in NAMES
        return half and not instance.contract.random and not instance.without_double

    def _runs(self, generators: Sequence[torch.Generator | None]) -> list[Floor]:
        """The largest errors of a few runs at each output."""
        instance, leaves, state, exact = self._call
        with sdpa_kernel([SDPBackend.MATH]), (seen := _Seen()):
            instance.eager(leaves, state)
        found = [NO_FLOOR] * len(exact)
        kind = next(getattr(torch, spec.dtype) for spec in instance.all_specs() if spec.dtype in NAMES)
        for rng in generators:
            mode = Stored(seen.kinds, kind, rng)
            spreads = noise.errors(instance.doubled(leaves, state, mode), exact, 1.0)
            if not mode.known:
                return [NO_FLOOR] * len(exact)
            floors = [_before_its_own(*each) for each in zip(spreads, exact, instance.all_specs(), strict=True)]
            found = [_larger(one, other) for one, other in zip(found, floors, strict=True)]
        return found


def _before_its_own(spread: Spread, exact: Magnitudes, spec: TensorSpec) -> Floor:
    """A floor without the rounding of the output, which is added to any."""
    dtype = getattr(torch, spec.dtype)
    unit = unit_roundoff(dtype) if dtype in HALVES else 0.0

    def less(error: float, size: float) -> float:
        return math.sqrt(max(error * error - (unit * size) ** 2 / 3, 0.0))

    bands = tuple(map(less, spread.bands, exact.own.bands))
    return Floor(rms=less(spread.rms, exact.own.rms), peak=max(spread.peak - unit * exact.top, 0.0), bands=bands)


def _larger(one: Floor, other: Floor) -> Floor:
    bands = tuple(map(max, one.bands, other.bands))
    return Floor(rms=max(one.rms, other.rms), peak=max(one.peak, other.peak), bands=bands)
