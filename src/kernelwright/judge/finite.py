# SPDX-License-Identifier: Apache-2.0
"""Whether a reference stays within its domain: its answers are finite, or infinite as exact arithmetic says.

Masked logits are infinite by design. While finite answers were asked for, a reference that gives them was tried in
hardly any variant, and a log_softmax without its maximum passed for it. And a matrix that is singular but for rounding
is outside: one factorisation meets a pivot of 1e-8 there, another one of zero, and raises. So are numbers so large that
what is compared to choose by overflows: of squared distances that are all infinite the first is the nearest, and who
leaves out what they have in common finds another one.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

import torch

from kernelwright.judge import calls, health, logarithms, numerics
from kernelwright.judge.domains import factored
from kernelwright.judge.extremes import FREE, guarded
from kernelwright.judge.kinds import Watching, chooses
from kernelwright.judge.oracle import Float64Trace
from kernelwright.judge.variants import AS_GIVEN, Variant

if TYPE_CHECKING:
    from kernelwright.judge.buffers import TensorSpec
    from kernelwright.judge.instance import Instance
    from kernelwright.judge.weights import State

Answers = Sequence[torch.Tensor]
DEGREES = (0, 1, -1, 2)
"""Powers of its inputs' size that a reference's answers are of."""
ROUNDED = 2.0**4
"""Unit roundoffs of a whole output by which a reference errs at the most that loses nothing to such numbers: chains
and sums in blocks err by one to four."""
NEAR = 1 / 4
"""How near, in their own size, answers that survive an overflow inside are to those of float64: scores of 400 in half
precision are off by a quarter, and a softmax of them by a tenth."""
_DESIGNED: WeakKeyDictionary[Instance, tuple[frozenset[int], frozenset[int]]] = WeakKeyDictionary()


class _Singular(Watching):
    """Whether one of the matrices that are factored has no inverse to working precision, and is not factored again with
    more on its diagonal: who asks whether it failed, and adds jitter then, answers for such matrices as well."""

    def __init__(self) -> None:
        super().__init__()
        self.calls = 0
        self.retried = False
        self._overflowed = False
        self._open: list[torch.Tensor] = []

    @property
    def met(self) -> bool:
        """Whether there was one."""
        return self._overflowed or bool(self._open)

    def __torch_dispatch__(
        self, func: Any, kinds: Any, args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        """Called by torch for every operator below autograd."""
        if factored(func) and args[0].numel():
            matrix, self.calls = args[0].detach(), self.calls + 1
            if not numerics.finite(matrix):  # the singular values of an overflow are an error
                self._overflowed = True
                return func(*args, **(kwargs or {}))
            before, self._open = self._open, [other for other in self._open if not _off_diagonal(other, matrix)]
            self.retried |= len(self._open) < len(before)
            if "upper" in (kwargs or {}) and "triangular" in func._schema.name:  # the other half is not looked at
                matrix = matrix.triu() if kwargs["upper"] else matrix.tril()  # type: ignore[index]
            sizes = torch.linalg.svdvals(matrix.to(torch.complex128 if matrix.is_complex() else torch.float64))
            least = sizes[..., :1] * (torch.finfo(args[0].dtype).eps * sizes.shape[-1])
            if not bool((sizes[..., -1:] > least).all()):
                self._open.append(matrix.clone())
        return func(*args, **(kwargs or {}))


def _off_diagonal(one: torch.Tensor, other: torch.Tensor) -> bool:
    """Whether they are the same but on their diagonals."""
    if one.shape != other.shape or one.dtype != other.dtype:
        return False
    off = one != other
    off.diagonal(dim1=-2, dim2=-1).fill_(False)
    return not bool(off.any())


class _Compared(Watching):
    """Which of the floats that places are chosen by are finite, operator by operator; None: all."""

    def __init__(self) -> None:
        super().__init__()
        self.finite: list[torch.Tensor | None] = []

    def __torch_dispatch__(
        self, func: Any, kinds: Any, args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        """Called by torch for every operator below autograd."""
        if chooses(func, args) and args[0].is_floating_point():
            fine = torch.isfinite(args[0].detach())
            self.finite.append(None if bool(fine.all()) else fine)
        return func(*args, **(kwargs or {}))


class _Spreads(Watching):
    """Whether the square of a standard deviation, or of a complex number's size, vanishes or overflows in its own
    precision. Torch takes neither by squares in that (a deviation on a CPU in float64), and most others do."""

    def __init__(self) -> None:
        super().__init__()
        self.lost = False

    def __torch_dispatch__(
        self, func: Any, kinds: Any, args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        """Called by torch for every operator below autograd."""
        out = func(*args, **(kwargs or {}))
        name = func._schema.name
        if name in ("aten::std", "aten::std_mean") or name == "aten::abs" and args[0].is_complex():
            size = (out if isinstance(out, torch.Tensor) else out[0]).detach()
            square, least = size.square(), torch.finfo(size.dtype).smallest_normal
            self.lost |= bool(((square < least) & (size != 0) | square.isinf() & size.isfinite()).any())
        return out


class _Overflowing(Watching):
    """How many results of a type hold positive infinities, operator by operator. Negative ones alone are masks: -1e9 is
    one in float16, and so is the largest number of that with anything less added; each draw of a task with such a mask
    was outside."""

    def __init__(self, kind: torch.dtype) -> None:
        super().__init__()
        self._kind = kind
        self.counts: Counter[Any] = Counter()

    def __torch_dispatch__(
        self, func: Any, kinds: Any, args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        """Called by torch for every operator below autograd."""
        out = func(*args, **(kwargs or {}))
        made = isinstance(out, torch.Tensor) and out.dtype is self._kind and not func.is_view
        if made and "empty" not in func._schema.name:  # what nobody has written to yet may hold anything
            self.counts[func] += bool((out.detach() == math.inf).any())
        return out


def shaped(outputs: Answers, specs: Sequence[TensorSpec]) -> bool:
    """Whether the outputs are of these shapes."""
    return [tuple(out.shape) for out in outputs] == [spec.shape for spec in specs]


def pattern(outputs: Answers | None) -> tuple[bool, ...] | None:
    """Which outputs are finite; None where there are none."""
    return None if outputs is None else tuple(numerics.finite(out) for out in outputs)


def infinite(outputs: Answers) -> frozenset[int]:
    """Outputs that hold infinities or NaN."""
    return frozenset(index for index, finite in enumerate(pattern(outputs) or ()) if not finite)


def within(instance: Instance, variant: Variant, leaves: Answers, state: State | None, outputs: Answers) -> bool:
    """Whether inputs of a variant lie within the reference's domain: ``regular``, and where they are slight or vast, as
    precise as ever, or without a size of its own."""
    if variant.beyond:
        return True
    if not regular(instance, leaves, state, outputs) or logarithms.unsure(instance, leaves, state) > logarithms.LOST:
        return False
    if overflowed(instance, leaves, state) and not _survives(instance, leaves, state, outputs):
        return False
    if guarded(variant) and (instance.contract.random or _loses_squares(instance, leaves, state)):
        return False
    if variant.group in FREE:
        return _scale_free(instance, leaves, state, outputs, variant.scale)
    return not guarded(variant) or (
        _kept(instance, leaves, state, outputs) and not (instance.sorts and _overflows(instance, leaves, state))
    )


def _loses_squares(instance: Instance, leaves: Answers, state: State | None) -> bool:
    with (spreads := _Spreads()):
        instance.eager(leaves, state)
    return spreads.lost


def _scale_free(instance: Instance, leaves: Answers, state: State | None, outputs: Answers, scale: float) -> bool:
    """Whether the answers are those for inputs of usual size, bit for bit but for a power of ``scale``, which is one of
    two."""
    try:
        usual = instance.eager([x / scale if x.is_floating_point() else x for x in leaves], state)
    except calls.CAUGHT as error:
        health.pass_on(error)
        return False
    for here, there in zip(usual, outputs, strict=False):  # gradients come after them
        degrees = DEGREES if here.is_floating_point() or here.is_complex() else (0,)
        if not any(torch.equal(numerics.wide(here) * scale**k, numerics.wide(there)) for k in degrees):
            return False
    return True


def _kept(instance: Instance, leaves: Answers, state: State | None, outputs: Answers) -> bool:
    """Whether nothing that counts has vanished, or is infinite: a product of six numbers of 1e-8 is zero in float32,
    and where the reference meets one some honest program may not."""
    exact, _ = instance.oracle(leaves, state)
    for out, true in zip(outputs, exact, strict=False):
        if not (out.is_floating_point() or out.is_complex()) or not out.numel():
            continue
        error = float(torch.linalg.vector_norm(numerics.wide(out) - numerics.wide(true)))
        if not error <= ROUNDED * numerics.unit_roundoff(out.dtype) * float(torch.linalg.vector_norm(true)):
            return False
    return True


def _overflows(instance: Instance, leaves: Answers, state: State | None) -> bool:
    """Whether a place is chosen by what is not finite in the reference's own precision, and is so in float64."""
    with (own := _Compared()):
        instance.eager(leaves, state)
    if instance.without_double or all(fine is None for fine in own.finite):
        return False
    with (exact := _Compared()):
        instance.doubled(leaves, state, Float64Trace())
    pairs = zip(own.finite, exact.finite, strict=False)
    return any(
        mine is not None and (theirs is None or mine.shape == theirs.shape and bool((theirs & ~mine).any()))
        for mine, theirs in pairs
    )


def _survives(instance: Instance, leaves: Answers, state: State | None, outputs: Answers) -> bool:
    """Whether answers are near those of float64 all the same: what was infinite was a mask that is subtracted."""
    exact, _ = instance.oracle(leaves, state)
    pairs = [(numerics.wide(out), numerics.wide(true)) for out, true in zip(outputs, exact, strict=False)]
    off = [torch.linalg.vector_norm(out - true) <= NEAR * torch.linalg.vector_norm(true) for out, true in pairs]
    return all(map(bool, off))


def overflowed(instance: Instance, leaves: Answers, state: State | None) -> bool:
    """Whether something inside is infinite in float16 alone: one over it is a zero, and finite. Such answers, all of
    them zeros, were the oracle once, and an RMSNorm in float32 was refused for its right ones."""
    if not any(spec.dtype == "float16" for spec in instance.all_specs()) or instance.without_double:
        return False
    with (own := _Overflowing(torch.float16)):
        instance.eager(leaves, state)
    if not own.counts.total():
        return False
    with (exact := _Overflowing(torch.float64)):
        instance.doubled(leaves, state, Float64Trace())
    return any(count > exact.counts[func] for func, count in own.counts.items())


def regular(instance: Instance, leaves: Answers, state: State | None, outputs: Answers) -> bool:
    """Every output is finite, or one that is not in the task's own call, and in both where it is so in float64: rows of
    attention that a mask leaves nothing are NaN by design.

    Float64 is not asked of what overflows or vanishes in the output's own precision only: there, an honest program in
    another order has a finite number. One call in 14 of log(softmax(x)), of x a thousand times as large, had nothing
    else in float64 either, and a log_softmax was refused for its finite numbers. Matrices that are factored and are
    singular stay out.
    """
    if instance.factors:
        with (singular := _Singular()):
            instance.eager(leaves, state)
        if singular.met or singular.retried and not _as_often(instance, leaves, state, singular.calls):
            return False
    odd = infinite(outputs)
    if not odd:
        return True
    if not odd <= instance.infinite:
        return False
    designed, without = _by_design(instance)
    return _without_number(outputs) <= without and odd <= designed & _as_exactly(instance, leaves, state, outputs, odd)


def _as_often(instance: Instance, leaves: Answers, state: State | None, times: int) -> bool:
    """Whether float64 factors as many matrices: where one fails by rounding alone it goes on without another."""
    if instance.without_double:
        return False
    with (exact := _Singular()):
        instance.doubled(leaves, state, Float64Trace())
    return exact.calls == times


def _as_exactly(
    instance: Instance, leaves: Answers, state: State | None, outputs: Answers, odd: Iterable[int]
) -> frozenset[int]:
    """Which of the ``odd`` outputs are infinite where they are in float64, and nowhere else."""
    exact, _ = instance.oracle(leaves, state)
    return frozenset(i for i in odd if bool((numerics.classes(outputs[i]) == numerics.classes(exact[i])).all()))


def _without_number(outputs: Answers) -> frozenset[int]:
    return frozenset(index for index in infinite(outputs) if bool(torch.isnan(outputs[index]).any()))


def _by_design(instance: Instance) -> tuple[frozenset[int], frozenset[int]]:
    """Outputs of which that holds in a call of the task's own, and those that hold NaN there."""
    if instance not in _DESIGNED:
        leaves = instance.draw(Variant(name=AS_GIVEN, required=True), instance.seed)
        outputs = instance.eager(leaves, None)
        exactly = _as_exactly(instance, leaves, None, outputs, instance.infinite)
        _DESIGNED[instance] = exactly, _without_number(outputs)
    return _DESIGNED[instance]
