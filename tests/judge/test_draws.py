# SPDX-License-Identifier: Apache-2.0
"""Random numbers over several calls and processes: whose are new, and whose were made before."""

from __future__ import annotations

import torch
import torch.nn.functional as F

from kernelwright.judge import distribution
from kernelwright.judge.draws import Draws

X = torch.linspace(0.5, 2.0, 64 * 128).reshape(64, 128)
ELSEWHERE = "the random numbers of its first call are those of another process, which was seeded otherwise"


def dropped(seed: int) -> torch.Tensor:
    """One call of a dropout."""
    torch.manual_seed(seed)
    return F.dropout(X, 0.5, training=True)


def runs(seed: int) -> list[torch.Tensor]:
    """What the reference answers to the same call, again and again."""
    return [dropped(1000 * seed + number) for number in range(distribution.RUNS + distribution.HELD_OUT)]


def test_the_first_call_of_a_second_process_draws_other_numbers() -> None:
    """What a constructor made is there again in the next process, which has other seeds by then."""
    draws = Draws()
    draws.another_process()
    assert ["", ""] == [draws.told(0, dropped(seed), runs(seed)) for seed in (1, 2)]
    draws.another_process()
    assert ELSEWHERE == draws.told(0, dropped(1), runs(3))


def test_an_honest_second_process_passes_and_so_does_another_program() -> None:
    """New numbers are new; and what one program drew first is not held against the next."""
    draws = Draws()
    for seed in (1, 2):
        draws.another_process()
        assert "" == draws.told(0, dropped(seed), runs(seed))
    draws.forget()
    draws.another_process()
    assert "" == draws.told(0, dropped(1), runs(4))
