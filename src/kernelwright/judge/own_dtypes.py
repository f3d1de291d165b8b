# SPDX-License-Identifier: Apache-2.0
"""What a reference is told of dtypes in float64, where it looks at them: those of its own run.

``assert x.dtype == torch.float32``, as references of kernels say, ended the float64 run. Six orders of summation stood
in for it, which see less than the honest error and nothing of borders of roundings: a quantiser by a reciprocal was
refused that is nearer the exact quotients than eager (262 of 353 thousand codes wrong), and so were folded colours and
powers of a discount at 4.5 times the error. Without the assertion all were granted.

So what is read of dtypes is noted in one run of the reference's own, by the place in its source and in order, and said
again in float64. All else is as ever: tensors are double, and a dtype that an operator is asked for is raised. It is
tried once, where float64 fails without it, or gives something else. Not told: TorchScript, ``isinstance`` of a type of
tensor, and the backward of a function of its own.
"""

from __future__ import annotations

import contextlib
import sys
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import torch
from torch.overrides import TorchFunctionMode

from kernelwright.judge import calls, health
from kernelwright.judge.finite import shaped
from kernelwright.judge.measure import timed
from kernelwright.judge.oracle import RAISED, Float64Trace

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kernelwright.judge.instance import Instance
    from kernelwright.judge.weights import State

READS = frozenset(
    {
        torch.Tensor.dtype.__get__,  # type: ignore[attr-defined]
        torch.Tensor.itemsize.__get__,  # type: ignore[attr-defined]
        torch.Tensor.element_size,
        torch.Tensor.type,
        torch.result_type,
    }
)
"""What says the dtype of a tensor; ``type`` where it is given none."""
_WORDS = "the reference looks at dtypes: in float64 it is told those of its own run, for {}"
_Place = tuple[int, ...]


class OwnDtypes:
    """What one run of a reference read of dtypes, and whether it is told that again in float64."""

    def __init__(self) -> None:
        self.said: dict[_Place, list[Any]] = defaultdict(list)
        self.tried, self.why = False, ""
        """Whether it was noted at all; and why it is said again, empty where it is not."""

    def noted(self, run: Callable[[], Any]) -> bool:
        """Note what a run reads, the first time; whether that is anything."""
        if self.tried:
            return False
        self.tried = True
        try:
            with _Noting(self.said):
                run()
        except calls.CAUGHT as error:
            health.pass_on(error)
            return False
        return bool(self.said)

    @contextlib.contextmanager
    def again(self) -> Iterator[None]:
        """Say it again, where that is done."""
        with _Saying(self.said) if self.why else contextlib.nullcontext():
            yield


class _Noting(TorchFunctionMode):
    def __init__(self, said: dict[_Place, list[Any]]) -> None:
        super().__init__()
        self.said = said

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Called by torch for every function of tensors."""
        found = func(*args, **(kwargs or {}))
        place = _place(func, found)
        return found if place is None else self.read(place, found)

    def read(self, place: _Place, found: Any) -> Any:
        """What is said where ``found`` is read."""
        self.said[place].append(found)
        return found


class _Saying(_Noting):
    """Beyond what was noted at a place, as the last time there; at a place that was not met, or where that cannot be,
    the one dtype that becomes this one, if there is but one."""

    def __init__(self, said: dict[_Place, list[Any]]) -> None:
        super().__init__(said)
        self._at: Counter[_Place] = Counter()

    def read(self, place: _Place, found: Any) -> Any:
        """What was noted."""
        noted, at = self.said.get(place, []), self._at[place]
        self._at[place] += 1
        before = noted[min(at, len(noted) - 1)] if noted else None
        if before is not None and (not isinstance(found, torch.dtype) or found in (before, RAISED.get(before))):
            return before
        known = {one for answers in self.said.values() for one in answers if isinstance(one, torch.dtype)}
        lower = [one for one in known if found in (one, RAISED.get(one))]
        return lower[0] if len(lower) == 1 else found


def _place(func: Any, found: Any) -> _Place | None:
    """Where in its source the reference reads this, and from where it came there: all asks of a helper are in one line.
    None where it is read by a part of this package, in the middle of a call, or by torch of an operator that it takes
    apart, or is no dtype."""
    if func not in READS or isinstance(found, torch.Tensor):
        return None
    frame: Any = sys._getframe(2)
    if _module(frame).startswith(("kernelwright.", "torch._")):
        return None
    place: list[int] = []
    while frame is not None and not _module(frame).startswith("kernelwright."):
        place += [id(frame.f_code), frame.f_lasti]  # a hash of code reads all of it
        frame = frame.f_back
    return tuple(place)


def _module(frame: Any) -> str:
    return str(frame.f_globals.get("__name__", ""))


def oracle(instance: Instance, leaves: Sequence[torch.Tensor], state: State | None) -> tuple[list[Any], str] | None:
    """What a reference computes in float64, and how that was had; None where it cannot, from here on."""
    while not instance.without_double:
        mode = Float64Trace()
        try:
            outputs, instance.double_seconds = timed(lambda: instance.doubled(leaves, state, mode))  # noqa: B023
        except calls.CAUGHT as error:
            health.pass_on(error)
            instance.distrust_double(_raised(error))
            break
        if shaped(outputs, instance.all_specs()):
            return outputs, "float64-trace" if mode.rewritten or instance.own_dtypes.why else "float64"
        instance.distrust_double("its float64 run has other shapes", leaves, state)
    return None


def run(
    instance: Instance,
    leaves: Sequence[torch.Tensor],
    state: State | None,
    mode: Float64Trace,
    once: Callable[[], list[torch.Tensor]],
) -> list[torch.Tensor]:
    """``once``, a float64 run; where it fails, and it tells nothing yet, once more telling what the reference reads."""
    try:
        return once()
    except calls.CAUGHT as error:
        health.pass_on(error)
        if type(mode) is not Float64Trace or not tell(instance, leaves, state, _raised(error)):
            raise
        try:
            return once()
        except calls.CAUGHT as other:
            health.pass_on(other)
            withdraw(instance)
            raise error from None


def tell(instance: Instance, leaves: Sequence[torch.Tensor], state: State | None, why: str) -> bool:
    """Whether a reference is told what it reads of dtypes from here on, and was not before. The proof says so."""
    if not instance.own_dtypes.noted(lambda: instance.eager(leaves, state)):
        return False
    instance.own_dtypes.why = why
    instance.notes.append(_WORDS.format(why))
    return True


def withdraw(instance: Instance) -> None:
    """Say nothing of it any more."""
    words = _WORDS.format(instance.own_dtypes.why)
    instance.notes, instance.own_dtypes.why = [note for note in instance.notes if note != words], ""


def _raised(error: BaseException) -> str:
    return f"it does not run in float64 ({type(error).__name__})"
