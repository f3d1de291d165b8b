# SPDX-License-Identifier: Apache-2.0
"""Calls on a device that are looked at amid a window that is as timed ones are.

In windows that are checked each result is copied right after its call, and the stream shows a call its inputs then. In
timed ones calls follow each other at once, or what is measured is the copies; and a program knows which it is by the
time between two calls. On an H200 those were granted that took the mean of the squares for a variance, or streams that
nobody joins, where less than 7 us lay between two calls (2.2 and 14 times eager's speed), and one that computed all
calls of such a window in its second one (24, where one by one it has 11), or none before somebody waits (11). The third
of them still is, for it computes again what was not there.

So in some odd turns calls follow each other as timed ones do, but for a few in places drawn in secret. Their inputs are
shown by the stream alone, which was told to AHEAD calls before and sleeps first, and their results are copied right
after them: what was computed ahead, late, or on a stream that waits for nobody is wrong there. A program sees that
somebody looks when the odd values have been before it, and then for a call or two.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from kernelwright.judge.runner import Runner

AHEAD = 2
"""So many calls before its own the host tells the stream to show a call its inputs: right before it that is seen."""
LOOKS, LEAST = 3, 8
"""Calls of a window that are looked at, and how many it has at the least."""


def places(calls: int, dice: random.Random) -> list[int]:
    """Where in a window of so many calls is looked, in order: never twice within AHEAD, nor at the first ones. Nowhere
    in short windows."""
    if calls < LEAST:
        return []
    part = (calls - AHEAD) // LOOKS
    starts = range(AHEAD, AHEAD + LOOKS * part, part)
    return [dice.randrange(start + (start > AHEAD), start + part) for start in starts]


class Amid:
    """The program's side of it, for one window of calls on the sets of ``order``, some places of which are looked at.
    Where inputs are hidden (``Runner.cover``) they are those of these calls."""

    def __init__(self, runner: Runner, order: Sequence[int], looked_at: Sequence[int]) -> None:
        self._runner, self._order, self._read = runner, order, frozenset(looked_at)
        self._shown = {place - AHEAD: order[place] for place in looked_at} if runner.cover is not None else {}
        self.aliases: dict[int, list[tuple[int, int]]] = {}
        """Of each place where a result was copied: which outputs share storage with which inputs."""
        self._stream = None if runner.device == "cpu" or not looked_at else torch.cuda.current_stream()

    def before(self, place: int) -> None:
        """Come to a call: have the stream show what it is to show by now."""
        if place in self._shown and self._runner.cover is not None:
            self._runner.delay.begin()
            self._runner.cover.invert([self._shown[place]])

    def after(self, place: int, result: Any) -> None:
        """Leave a call: copy its result, where that is looked at."""
        if place in self._read:
            self._copy(place, result, self._stream)
            if self._shown:
                self._runner.delay.end()

    def at_once(self, place: int, call: Callable[[], Any]) -> Any:
        """A call whose result the stream that is current now copies right after it, as any caller's next operator reads
        it: what a program computes on a stream of its own, or later, is not there. Where its inputs are hidden that
        stream shows them first, when the program was called and the copies wait: see ``veil.Delay``."""
        runner, index = self._runner, self._order[place]
        stream = None if runner.device == "cpu" else torch.cuda.current_stream()
        if (covered := runner.cover) is not None:
            runner.delay.begin()
            covered.invert([index])
        if runner.handed is not None:
            runner.handed.begin(index)
        result = call()
        self._copy(place, result, stream)
        if covered is not None:
            runner.delay.end()
        return result

    def _copy(self, place: int, result: Any, stream: Any) -> None:
        """Have a stream copy a call's result into its set."""
        runner, pairs = self._runner, list[tuple[torch.Tensor, torch.Tensor]]()
        runner.copies = True
        with torch.no_grad(), torch.cuda.stream(stream):
            self.aliases[place] = runner._deliver(self._order[place], result, pairs)
            if pairs:
                torch._foreach_copy_([target for target, _ in pairs], [leaf for _, leaf in pairs])
            if runner.handed is not None:
                runner.handed.after(self._order[place])
