# SPDX-License-Identifier: Apache-2.0
"""States that a recurrence multiplies by an exponential in each step: gated linear attention, state space models.

Programs take such steps in chunks, and the decay from one step to another as exp(c[t] - c[s]), of running sums c of the
logarithms. Each of these sums is rounded at its own size, so a decay is off by so many roundings as c is large: of 32
steps by exp(-0.7 * 16) by some hundred, where the factors one after the other are off by a few. Kernels of Mamba 2 and
of gated linear attention are made so; with the error of the factors alone each of them was refused, at 2 to 6 times it.

A decay that is made of the state it belongs to, as an LSTM's is, has no such sums: there the steps stay as they are.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch.nn import functional
from torch.utils.weak import WeakIdKeyDictionary

from kernelwright.judge.noise import finite

if TYPE_CHECKING:
    from kernelwright.judge.rounding import Rounded

aten = torch.ops.aten
HELD = 1 << 24
"""Elements of a state, or of decays, at the most that are followed: each takes as much memory again."""
MOST = 2.0**-8
"""Of a state that may be off by this, over its size: more nobody would call an answer, however large the sums are."""
_ADDS = frozenset({aten.add.Tensor, aten.sub.Tensor, aten.add_.Tensor, aten.sub_.Tensor})
_MULTIPLIES = frozenset({aten.mul.Tensor, aten.mul_.Tensor})
_MOVES = frozenset(
    {aten.clone.default, aten._unsafe_view.default, aten._to_copy.default, aten.index_select.default, aten.index.Tensor}
)


def _decaying(value: torch.Tensor) -> torch.Tensor:
    """The logarithm of an exponential; one that grows is no decay."""
    return value.clamp_max(0.0)


@dataclass(frozen=True, slots=True)
class Sum:
    """The logarithms of what a state was multiplied by, added up (as the decays are shaped), and of how many steps."""

    total: torch.Tensor
    steps: int


class Decays:
    """The decays and the states of one run of a reference."""

    def __init__(self, deviation: float) -> None:
        self._deviation = deviation
        """Of the rounding of one addition, over the size of the sum."""
        self._made = WeakIdKeyDictionary()
        """By tensor that is an exponential: how its logarithm is computed, and of what. Most are never asked for it."""
        self._sums = WeakIdKeyDictionary()
        self._made_of_states = WeakIdKeyDictionary()

    def spread(self, args: Sequence[Any], out: Any) -> None:
        """Note what was computed of a state."""
        if not len(self._sums):
            return
        tensors = [part for arg in args for part in (arg if isinstance(arg, (list, tuple)) else (arg,))]
        if any(isinstance(one, torch.Tensor) and self._of_state(one) for one in tensors):
            for made in out if isinstance(out, (list, tuple)) else (out,):
                if isinstance(made, torch.Tensor):
                    self._made_of_states[made] = True

    def _of_state(self, value: torch.Tensor) -> bool:
        return value in self._sums or value in self._made_of_states

    def followed(self, mode: Rounded, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], out: Any) -> Any:
        """``out`` of an operator, rounded; where it is one more step of a state, with the error of such sums."""
        if func in (aten.exp.default, aten.sigmoid.default, aten.rsub.Scalar):
            self._begun(func, args, out)
        elif not len(self._made) and not len(self._sums):
            return out
        elif func.is_view or func in _MOVES:
            self._viewed(func, args, kwargs, out)
        elif isinstance(out, torch.Tensor) and out.dtype is torch.float64 and 0 < out.numel() <= HELD:
            if func in _MULTIPLIES:
                return self._multiplied(mode, args, out)
            if func in _ADDS:
                self._added(args, out)
        return out

    def _begun(self, func: Any, args: tuple[Any, ...], out: Any) -> None:
        """An exponential, or what is left of one by a gate that is a sigmoid."""
        value = args[0]
        if not isinstance(out, torch.Tensor) or out.dtype is not torch.float64 or not 0 < out.numel() <= HELD:
            return
        if self._of_state(value):
            return
        if func is not aten.rsub.Scalar:
            self._made[out] = _decaying if func is aten.exp.default else functional.logsigmoid, value
        elif value in self._made and tuple(args[1:]) == (1,):
            log, taken = self._made[value]
            self._made[out] = (lambda x: torch.log1p(-log(x).exp())), taken

    def _viewed(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], out: Any) -> None:
        if not isinstance(args[0], torch.Tensor):  # a complex constant, which a backward pass conjugates
            return
        log, value = self._made.get(args[0], (None, None))
        if log is None:
            return
        moved = func(value, *args[1:], **kwargs)
        parts = zip(out, moved, strict=True) if isinstance(out, (list, tuple)) else [(out, moved)]
        for part, of_it in parts:
            if isinstance(part, torch.Tensor) and part.dtype is torch.float64:
                self._made[part] = log, of_it

    def _multiplied(self, mode: Rounded, args: tuple[Any, ...], out: torch.Tensor) -> torch.Tensor:
        """A state times a decay; what is multiplied by one for the first time has the error of that alone."""
        known = [isinstance(side, torch.Tensor) and side in self._made for side in args[:2]]
        if sum(known) != 1:
            return out
        decay, state = args[known.index(True)], args[known.index(False)]
        logarithm, of_it = self._made[decay]
        log = logarithm(of_it)
        before = self._sums.get(state) if isinstance(state, torch.Tensor) else None
        total = log if before is None else log + before.total
        total = total.masked_fill(total.isinf(), 0.0)
        if before is not None:  # one and the same error for all that one decay belongs to
            share = (finite(total.abs()) * self._deviation).clamp_max(MOST)
            rough = out * (mode.bells(decay) * share + 1.0)
            out = out.copy_(rough) if out is state else rough
        self._sums[out] = Sum(total, 1 if before is None else before.steps + 1)
        return out

    def _added(self, args: tuple[Any, ...], out: torch.Tensor) -> None:
        """A state and what a step adds to it. Of two, the one that has been multiplied longer."""
        found = [self._sums.get(side) for side in args[:2] if isinstance(side, torch.Tensor)]
        longest = max((one for one in found if one is not None), key=lambda one: one.steps, default=None)
        if longest is not None:
            self._sums[out] = longest
