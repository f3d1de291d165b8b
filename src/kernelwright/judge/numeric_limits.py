# SPDX-License-Identifier: Apache-2.0
"""What ``torch.finfo`` says in float64 of a tensor that has another type in the reference's own run.

``torch.finfo(x.dtype).min`` fills masks, ``.eps`` and ``.tiny`` guard quotients and logarithms. Of a tensor that was
raised these are float64's: -1.8e308 for -3.4e38. The oracle was given up then, for all outputs, and six orders of
summation stood in for it: of embeddings that are added up in another order, beside such a mask, 4 of 4 were refused.
An RMSNorm that was given no eps takes that of its type too: of inputs of a thousandth float64 was 10 % off, all of
which counted as eager's own error.

So what a call asks for is noted once, in order, in the reference's own precision, and said again.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch

from kernelwright.judge.wide import Wide

_FINFO, _RMS_NORM = torch.finfo, torch.rms_norm
WIDEST = 64
"""Bits of float64, to which tensors are raised. Of narrower types a reference asks by name."""


class Limits:
    """The answers that one call of a reference had from ``torch.finfo``, the eps of each RMSNorm without one,
    and which of its operators were ``wide``."""

    def __init__(self) -> None:
        self.said: list[Any] = []
        self.guards: list[float] = []
        self.wide = Wide()

    @contextlib.contextmanager
    def noted(self) -> Iterator[None]:
        """Note what is asked for."""

        def note(*args: Any, **kwargs: Any) -> Any:
            found = _FINFO(*args, **kwargs)
            if not _of_the_judge():
                self.said.append(found)
            return found

        def guard(values: torch.Tensor) -> None:
            self.guards.append(_FINFO(torch.promote_types(values.dtype, torch.float32)).eps)  # halves: in float32

        with _instead(note, guard):
            yield

    @contextlib.contextmanager
    def again(self) -> Iterator[None]:
        """Say it once more where float64's are asked for; beyond what was noted, as the last time."""
        left, guards = iter(self.said), iter(self.guards)

        def say(*args: Any, **kwargs: Any) -> Any:
            found = _FINFO(*args, **kwargs)
            if _of_the_judge() or not self.said:
                return found
            before = next(left, self.said[-1])
            return before if found.bits == WIDEST else found

        with _instead(say, lambda values: next(guards, self.guards[-1] if self.guards else None)):
            yield


def _of_the_judge() -> bool:
    """Whether a part of this package asks, in the middle of a call, or torch of an operator that it takes apart."""
    name = str(sys._getframe(2).f_globals.get("__name__", ""))
    return name.startswith(("kernelwright.", "torch._"))


@contextlib.contextmanager
def _instead(finfo: Callable[..., Any], guard: Callable[[torch.Tensor], float | None]) -> Iterator[None]:
    """``guard``: the eps of an RMSNorm of such values that was given none; None: torch's own."""

    def rms_norm(
        input: torch.Tensor,  # noqa: A002 - torch's names: they may be given by keyword
        normalized_shape: Sequence[int],
        weight: torch.Tensor | None = None,
        eps: float | None = None,
    ) -> torch.Tensor:
        return _RMS_NORM(input, normalized_shape, weight, guard(input) if eps is None else eps)

    before = {name: vars(torch)[name] for name in ("finfo", "rms_norm")}
    vars(torch).update(finfo=finfo, rms_norm=rms_norm)
    try:
        yield
    finally:
        vars(torch).update(before)
