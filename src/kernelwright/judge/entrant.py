# SPDX-License-Identifier: Apache-2.0
"""A baseline as a program: warmed in a thread of its own where it compiles, and ended without a fight over it."""

from __future__ import annotations

import errno
import os
import re
import threading
from collections.abc import Callable
from dataclasses import dataclass

from kernelwright.errors import JudgeFailed, KernelwrightError, ReferenceFails
from kernelwright.judge import health, refusals, skeletons
from kernelwright.judge.intervals import Met
from kernelwright.judge.program import Program

_OF_ITS_OWN = ("raised ", "endless output")
"""In a failure's words: it was the program's doing, and no fault of the moment."""
_OTHER_SHAPE = re.compile(r"wrong structure: output \d+ is (\[[^]]*\]).*, expected (?!\1)\[")
"""In a failure's words: a draw of values had another shape than the one before it."""
_OTHER_NUMBER = re.compile(r"wrong structure: returned (.*), expected (.*)", re.DOTALL)


@dataclass(slots=True)
class Entrant:
    """A baseline that is loaded, bound and warm, or the reason why it is not."""

    name: str
    program: Program | None
    failure: str
    warming: threading.Thread | None
    """The thread in which its first calls compile, while they do."""
    unwanted: bool = False
    """Closed before it had a program: whoever starts one must end it."""
    fault: KernelwrightError | None = None
    """The machine's fault that kept it away, or the judge's own: it is started anew for whoever asks next."""

    start: Callable[[], None] | None = None
    """Starts it anew, where that is cheap."""
    lasts: int = 1
    """Races after which that is done."""
    races: int = 0
    """In which its process has been."""
    look_us: float = 0.0
    """What a look at its state costs, once that is known."""

    def renew(self) -> None:
        """A new process for another race, where one is cheap. Raises JudgeFailed where it cannot be had.

        Where the memory of a process lies makes it 4 to 9 % faster or slower than others of the same program on a
        2-core virtual machine, for all its life: an RMSNorm of 16 MiB judged against itself 100 times, beside one
        process of eager's, read 0.91, and 81 intervals held 1. On an H200 it is 0.15 % (RMS of 17 sessions), or 0.3.
        """
        if self.start is None or self.races < self.lasts or self.program is None:
            return
        self.program.close()
        self.program, self.races = None, 0
        self.start()
        if self.program is None:
            raise self.fault or JudgeFailed(f"The baseline {self.name} does not start again", self.failure, "a process")

    def required(self, task: str) -> None:
        """Raises where there is no program: ReferenceFails for what the reference does wherever it runs confined."""
        if self.program is not None:
            return
        if _OTHER_SHAPE.search(self.failure):
            raise ReferenceFails(
                f"The shape of what the reference of {task} returns depends on values: two draws differ in it.",
                got=self.failure,
                expected="shapes that follow from the shapes of the inputs: there is room for outputs before a call",
                what_next="in place of what a mask or nonzero selects, return torch.where(mask, x, 0.0), or the result "
                "padded to its largest size and a count",
            )
        if _of_numbers(self.failure):
            raise refusals.of_numbers(task, self.failure)
        if os.strerror(errno.EFBIG) in self.failure:
            raise health.full(self.failure)
        if not any(sign in self.failure for sign in _OF_ITS_OWN):
            raise JudgeFailed("The reference does not run as a program", self.failure, "a result")
        raise ReferenceFails(
            f"The reference of {task} does not run confined, as candidates and baselines do.",
            got=self.failure,
            expected="no network, no files written, none read but its own modules', little printed",
            what_next="take out of its constructor and forward what is named above",
        )

    def met(self, races: int) -> Met:
        """In so many races, how many processes of a candidate met how many of its own."""
        on_device = self.program is None or self.program.device != "cpu"
        return Met(races, races if self.start is not None and self.lasts == 1 else 1, on_device=on_device)

    def ready(self) -> None:
        """Wait until it is warm, or has failed. Raises its ``fault``: a speedup over the others would flatter."""
        if self.warming is not None:
            self.warming.join()
            self.warming = None
        if self.fault is not None:
            raise self.fault

    def close(self) -> None:
        """End its program. While a thread still warms it only that thread may free what they share; it hears of the
        program's death at once."""
        self.unwanted = True
        if self.warming is not None and self.warming.is_alive():
            program = self.program
            if program is None:
                return
            program.leash.strike()
            self.warming.join()
        if self.program is not None:
            self.program.close()
            self.program = None


def _of_numbers(failure: str) -> bool:
    """Whether two draws had answers of one structure, but for numbers that are no tensors."""
    told = _OTHER_NUMBER.search(failure)
    if told is None:
        return False
    got, expected = (skeletons.NUMBER.sub("#", words) for words in told.groups())
    return "#" in got and (got.startswith(expected) or expected.startswith(got))
