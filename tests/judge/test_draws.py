# SPDX-License-Identifier: Apache-2.0
"""Random numbers over several calls and processes: whose are new, and whose were made before."""

from __future__ import annotations

import functools

import torch
import torch.nn.functional as F
from plain_tasks import instance

from kernelwright.judge import distribution
from kernelwright.judge.draws import Draws, run
from kernelwright.judge.inputs import Variant
from kernelwright.judge.verify import Checker
from kernelwright.task import Contract

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


def test_what_the_reference_draws_seldom_may_be_drawn_where_no_run_has_it() -> None:
    """A class of 0.005 is in no run of 36 five times in six; one that the reference never draws is wrong as ever."""
    chances = "torch.tensor([[0.995, 0.005, 0.0]])"
    made = instance("torch.multinomial(x, 1).float()", f"[{chances}]", contract=Contract(random=True))
    leaves = [torch.tensor([[0.995, 0.005, 0.0]])]
    again, usual = functools.partial(run, made, leaves, None, 5), torch.zeros(1, 1)
    said = {}
    for drawn in (0.0, 1e-6, 1.0, 2.0):
        draws = Draws()
        said[drawn] = [draws.usual(0, usual + drawn, usual, again) for _ in range(9)]
    assert [drawn == 1.0 for drawn in said] == [
        float(found[0][0]) == 0.0 and drawn > 0.1 for drawn, found in said.items()
    ]
    assert not any(words for found in said.values() for _, words in found[:8])
    assert "seldom does, and the like in 9 of 9 calls" in said[1.0][-1][1] and not said[2.0][-1][1]


def test_a_checker_takes_it_for_usual_and_nothing_else() -> None:
    made = instance("torch.multinomial(x, 1)", "[torch.tensor([[0.996, 0.004, 0.0]])]", contract=Contract(random=True))
    leaves, given = [torch.tensor([[0.996, 0.004, 0.0]])], Variant(name="as given", required=True)
    answers = [torch.tensor([[number]]) for number in range(3)]
    found = {tuple(Checker(made, seed=k).check(given, leaves, None, [one]).passed for one in answers) for k in range(6)}
    assert found <= {(True, True, False), (True, True, True)}, "the latter where one of the first runs has drawn it"
    assert (True, True, False) in found
