# SPDX-License-Identifier: Apache-2.0
"""What compiles in the background stands still while something is timed, and the time it stands is not held against it.

A baseline that compiles through one race after another would else be ended for having taken too long, while it was not
let run, and be missing from the proof.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping

from kernelwright.judge.bench import Bench
from kernelwright.judge.entrants import Entrants
from kernelwright.judge.programs import Programs


@contextlib.contextmanager
def hushed(entrants: Entrants, programs: Programs, benches: Mapping[tuple[str, str], Bench]) -> Iterator[None]:
    """Freeze baselines that still warm, and what else is in the background, and move their deadlines by as long as that
    lasts."""
    # Copies: the lease's own thread comes here beside one that makes and drops benches.
    warming = [e for bench in list(benches.values()) for e in list(bench.entrants.values()) if e.warming is not None]
    others = programs.in_background()
    with contextlib.ExitStack() as kept:
        for program in (*(o for _, o in others), *(e.program for e in warming if e.warming and e.warming.is_alive())):
            if program is not None:
                kept.enter_context(program.leash.excused())
        kept.enter_context(entrants.hushed(others))
        yield
