# SPDX-License-Identifier: Apache-2.0
"""Which timed calls are compared in full: as many as budgeted, late ones as likely as early ones, and any odd one."""

from __future__ import annotations

import dataclasses
import math
import random
from collections import Counter

import pytest
import torch

from kernelwright.judge import spot_checks
from kernelwright.judge.spot_checks import Mismatch, SpotChecks, Suspect
from kernelwright.trial import CaseResult


class Memory:
    """Call sets of one program without shared memory: one input and one output each."""

    def __init__(self, calls: int, size: int = 64) -> None:
        self.inputs = [[torch.zeros(size)] for _ in range(calls)]
        self.outputs = [[torch.zeros(size)] for _ in range(calls)]

    def answers(self, call: int) -> list[torch.Tensor]:
        """What a call is compared on."""
        return self.outputs[call]


def result(passed: bool) -> CaseResult:
    """A verdict on one call."""
    return CaseResult(name="main", required=True, passed=passed, detail="", error_ratio=0.0, calls=1)


class Trial:
    """Eager and a candidate that double their input, and a record of what was compared in full."""

    def __init__(self, seed: int, calls: int = 3, budget: int = 2, **options: object) -> None:
        self.calls, self.compared = calls, []
        self.eager, self.mine = Memory(calls), Memory(calls)
        suspects = [Suspect(self.eager, self._check, False), Suspect(self.mine, self._check, True)]  # type: ignore[arg-type]
        settings: dict[str, object] = {"thorough": True, "random_outputs": False, "mutates": frozenset()}
        settings |= {"tolerated": [1e-7, 1e-6, 1e-6]} | options
        self.checks = SpotChecks(suspects=suspects, budget=budget, dice=random.Random(seed), **settings)  # type: ignore[arg-type]

    def _check(self, leaves: list, state: object, outputs: list, inputs: list) -> CaseResult:
        self.compared.append(state)
        return result(torch.equal(outputs[0], leaves[0] * 2) and torch.equal(inputs[0], leaves[0]))

    def round(self, number: int, *, wrong: float = 0.0, spoil: float = 0.0, call: int = 0) -> None:
        """One round on fresh values; the candidate errs by ``wrong`` in one element of one call."""
        dice = torch.Generator().manual_seed(number)
        values = [[torch.randn(64, generator=dice)] for _ in range(self.calls)]
        for memory in (self.eager, self.mine):
            for index, leaves in enumerate(values):
                memory.inputs[index][0].copy_(leaves[0])
                memory.outputs[index][0].copy_(leaves[0] * 2)
        self.mine.outputs[call][0][5] += wrong
        if spoil:
            self.mine.inputs[call][0][7] *= 1 + spoil
        self.checks.look(values, number)


def test_every_round_is_equally_likely_to_be_compared_in_full() -> None:
    """2 of 10 rounds in 600 races: each about 120 times (deviation 9.8), the last no less than the first."""
    seen: Counter[int] = Counter()
    for seed in range(600):
        trial = Trial(seed)
        for number in range(10):
            trial.round(number)
        assert [] == trial.compared  # nothing is decided before the end
        trial.checks.conclude()
        assert 2 == len(trial.compared)
        seen.update(trial.compared)  # type: ignore[arg-type]
    assert all(80 < seen[number] < 160 for number in range(10)), seen


@pytest.mark.parametrize("by_chance", [False, True])
def test_what_passed_by_chance_teaches_nothing_of_how_far_honest_answers_lie(by_chance: bool) -> None:
    trial = Trial(1)
    detail = "missed by little" if by_chance else ""
    trial.checks.suspects[-1].check = lambda *_: dataclasses.replace(result(True), detail=detail)
    trial.round(1, wrong=0.5)
    assert 1 == len(trial.checks.suspects[-1].checks)
    assert (max(trial.checks.tolerated) < 1e-5) is by_chance


def test_a_call_too_little_wrong_for_eager_to_tell_is_caught_when_it_was_chosen() -> None:
    """The answers are copied when chosen: later rounds overwrite the buffers."""
    trial = Trial(1, calls=1, budget=13)
    for number in range(12):
        trial.round(number, wrong=3e-7 if number == 11 else 0.0)
    trial.round(12)
    with pytest.raises(Mismatch):
        trial.checks.conclude()


def test_a_call_further_from_eager_than_honest_ones_is_compared_at_once() -> None:
    """One element of 64 off by 1e-4 is 6e-6 of the RMS; the largest honest distance is 1e-7."""
    trial = Trial(2, budget=0)
    trial.round(0)
    with pytest.raises(Mismatch):
        trial.round(1, wrong=1e-4, call=2)
    assert [1] == trial.compared


def test_one_wrong_element_among_many_shows_in_the_largest_distance() -> None:
    """It is 1/8 of that in the RMS of 64 elements: 2e-6 against 2 x 1e-6 tolerated, where 1e-5 shows."""
    far = spot_checks.distances([torch.ones(64).index_fill(0, torch.tensor([3]), 1.25)], [torch.ones(64)], None)
    assert [0.25 / 8, 0.25, 0.25 / 64] == far


def test_a_changed_input_is_compared_at_once() -> None:
    """Bit for bit, however little it changed."""
    trial = Trial(3, budget=0)
    with pytest.raises(Mismatch):
        trial.round(0, spoil=3e-7)


def test_an_input_that_calls_write_to_may_change_as_eagers_does() -> None:
    """Equal changes pass; others are compared in full."""
    trial = Trial(4, budget=0, mutates=frozenset({0}))
    trial.round(0)
    assert [] == trial.compared
    with pytest.raises(Mismatch):
        trial.round(1, spoil=1e-4)


def test_random_answers_are_compared_twice_a_round() -> None:
    """No distance says anything about them; two calls of a window must not draw the same."""
    trial = Trial(5, budget=0, random_outputs=True)
    for number in range(4):
        trial.round(number)
    assert [0, 0, 1, 1, 2, 2, 3, 3] == trial.compared


@pytest.mark.parametrize("columns", [False, True])
def test_small_elements_of_an_answer_that_spans_many_orders_of_magnitude_count(columns: bool) -> None:
    """Of 64 by 64 elements from 1e-12 to 1e12 those below 1e3 are nothing in the RMS, and 62 % of all."""
    rows = torch.logspace(-12, 12, 64)[:, None].expand(64, 64) * torch.rand(64, 64).add(0.5)
    theirs = rows.T.contiguous() if columns else rows.contiguous()
    mine = torch.where(theirs.abs() < 1e3, 0.0, theirs)
    near, far, each = spot_checks.distances([mine], [theirs], None)
    assert near < far < 1e-6 and 0.6 < each < 0.65
    rounded = theirs.to(torch.float64).mul(1 + 1e-8).to(torch.float32)
    assert spot_checks.alike([], [rounded], [], [theirs], [1e-6, 1e-6, 0.0])
    assert not spot_checks.alike([], [mine], [], [theirs], [1e-6, 1e-6, 0.0])


def test_calls_measured_at_once_pass_as_they_do_one_by_one() -> None:
    """As on a device: a far one, one that wrote to an input, a NaN and a count that differs do not; nor is a call that
    eager answers alike refused for those beside it. Of what is not finite each value must be the same."""
    x, count = torch.randn(8, 16), torch.arange(8)
    edge = x.clone()
    edge[0, :4] = torch.tensor([math.nan, math.inf, -math.inf, 0.0])
    off = [edge.clone() for _ in range(3)]
    off[0][0, 1], off[1][0, 2], off[2][3, 3] = math.nan, math.inf, edge[3, 3] + 0.01
    nothing = torch.zeros_like(x)
    calls = {
        "equal": ([x], [x * 2, count], [x], [x * 2, count]),
        "rounded": ([x], [(x * 2).double().mul(1 + 1e-9).float(), count], [x], [x * 2, count]),
        "far": ([x], [x * 2 + (x == x.max()) * 0.1, count], [x], [x * 2, count]),
        "written": ([x], [x * 2, count], [x + (x == x.max())], [x * 2, count]),
        "nan": ([x], [x * math.nan, count], [x], [x * 2, count]),
        "counted": ([x], [x * 2, count + 1], [x], [x * 2, count]),
        "nothing given": ([], [x * 2, count], [], [x * 2, count]),
        "edge": ([edge], [edge * 2, count], [edge.clone()], [edge * 2, count]),
        "edge rounded": ([edge], [(edge * 2).double().mul(1 + 1e-9).float(), count], [edge], [edge * 2, count]),
        **{f"edge off {at}": ([edge], [one, count], [edge], [edge, count]) for at, one in enumerate(off)},
        "edge written": ([edge], [edge, count], [off[0]], [edge, count]),
        "zeros": ([x], [nothing, count], [x], [nothing, count]),
        "not zero": ([x], [nothing + 1e-9, count], [x], [nothing, count]),
        "nothing finite": ([x], [nothing / 0, count], [x], [nothing / 0, count]),
    }
    trial = SpotChecks(
        suspects=[], budget=0, thorough=True, random_outputs=False, mutates=frozenset(), dice=random.Random(1),
        tolerated=[1e-6] * 6,
    )  # fmt: skip
    at_once, one_by_one = trial._near_at_once(list(calls.values())), trial.alike(list(calls.values()))
    right = {"equal", "rounded", "nothing given", "edge", "edge rounded", "zeros", "nothing finite"}
    some = [call for name, call in calls.items() if name != "nothing given"]
    alone = trial._near_at_once([calls["nothing given"]])
    together = [*trial._near_at_once(some[:5]), *trial._near_at_once(some[5:])]
    assert [True] == alone and right - {"nothing given"} == {
        name for name, near in zip([name for name in calls if name != "nothing given"], together, strict=True) if near
    }
    assert right == {name for name, near in zip(calls, at_once, strict=True) if near}
    assert right == {name for name, near in zip(calls, one_by_one, strict=True) if near}


def test_a_double_precision_output_is_not_measured_with_single_precision() -> None:
    """Some of its own rounding is the least that is tolerated: an answer in float32 lies 1e-8 off and is compared."""
    assert 2.0**-59 == spot_checks._unit(torch.zeros(1, dtype=torch.float64))
    assert 0.0 == spot_checks._unit(torch.zeros(1, dtype=torch.int64))


def test_answers_whose_squares_overflow_are_measured_all_the_same() -> None:
    """In single precision from 1e19 on, in double from 1e154 on; NaN and Inf beside them stay where they are."""
    for dtype, size in ((torch.float32, 1e30), (torch.float64, 1e200), (torch.complex64, 1e25), (torch.float32, 3e38)):
        theirs = torch.linspace(-1.0, 1.0, 65, dtype=torch.float64).mul(size).to(dtype)
        assert [0.0] * 3 == spot_checks.distances([theirs], [theirs], None)
        near, far, each = spot_checks.distances([theirs * 0.5], [theirs], None)
        assert 0.49 < near < 0.51 < far < 1.3 and 0.2 < each < 0.51
    edge = torch.tensor([1e30, torch.inf, 2e30])
    assert [0.0] * 3 == spot_checks.distances([edge], [edge], None)
    assert [torch.inf] * 3 == spot_checks.distances([edge.flip(0)], [edge.roll(1)], None)


class Legal:
    """Eager and a candidate whose answers are whole numbers or not finite, and how often it was compared in full."""

    def __init__(self, eager: torch.Tensor, **options: object) -> None:
        self.compared = 0
        self.source = torch.tensor([[1.0, 3.0, 3.0, 0.0]]).repeat(eager.numel(), 1)
        self.eager, self.mine = Memory(1), Memory(1)
        self.eager.outputs, self.mine.outputs = [[eager]], [[eager.clone()]]
        suspects = [Suspect(self.eager, self._check, False), Suspect(self.mine, self._check, True)]  # type: ignore[arg-type]
        settings: dict[str, object] = {"thorough": True, "random_outputs": False, "mutates": frozenset()}
        settings |= {"tolerated": [0.0] * 3, "dice": random.Random(5), "budget": 0} | options
        self.checks = SpotChecks(suspects=suspects, **settings)  # type: ignore[arg-type]

    def _check(self, leaves: list, state: object, outputs: list, inputs: list) -> CaseResult:
        self.compared += 1
        return result(state == "right")

    def call(self, answer: torch.Tensor, state: str = "right") -> None:
        """One timed call; ``state`` is what a comparison in full says of it."""
        self.mine.outputs[0][0].copy_(answer)
        self.mine.inputs[0] = self.eager.inputs[0] = [self.source]
        self.checks.look([[self.source]], state)


def test_a_legal_tie_leaves_the_check_of_other_calls_as_it_was() -> None:
    """One that fell the other way made every distance tolerable, and what was never written passed unread."""
    eager = torch.ones(64, dtype=torch.int64)
    trial = Legal(eager, indices=((0, 0),))
    for _ in range(40):
        trial.call(torch.full((64,), 2))
    assert (0, 40) == (trial.compared, trial.checks.suspects[-1].sampled)  # the values are equal: no oracle is asked
    with pytest.raises(Mismatch):
        trial.call(torch.full((64,), 0x7FF5A5A5A5A5A5A5), "wrong")
    with pytest.raises(Mismatch):
        trial.call(torch.where(torch.arange(64) == 9, 3, eager), "wrong")


def test_a_few_halves_rounded_otherwise_are_compared_now_and_then() -> None:
    """Four of 128 that differ by one are learned; more of them, or a larger difference, are compared again."""
    eager = torch.arange(128, dtype=torch.int8)
    trial = Legal(eager)
    moved = lambda count, by: eager + by * (torch.arange(128) < count).to(torch.int8)  # noqa: E731
    for count in (2, 3, 4, 4, 3, 4):
        trial.call(moved(count, 1))
    assert 1 == trial.compared
    for answer in (moved(6, 1), moved(2, 5), torch.full((128,), 0x65, dtype=torch.int8)):
        with pytest.raises(Mismatch):
            trial.call(answer, "wrong")


def test_flags_that_are_seldom_set_may_not_all_be_left_out() -> None:
    """Two of four of 1024 that fell the other way at first were a share of twice which all of them are."""
    eager = torch.arange(1024) % 256 == 0
    trial = Legal(eager)
    trial.call(eager & (torch.arange(1024) < 512))
    assert 1 == trial.compared and trial.checks.tolerated == [0.0] * 3
    with pytest.raises(Mismatch):
        trial.call(torch.zeros(1024, dtype=torch.bool), "wrong")


@pytest.mark.parametrize("eager", [torch.linspace(0, 1, 64).log(), torch.arange(64), torch.zeros(64)])
def test_nothing_is_learned_of_a_legal_call_beyond_all_measure(eager: torch.Tensor) -> None:
    """Finite where eager overflows, most whole numbers off by one, next to zero beside zeros: the first BEYOND of them
    are compared in full, and then some by lot; calls as usual are checked as ever."""
    legal = eager.nan_to_num(neginf=-90.0) if eager.isinf().any() else eager + 1
    trial = Legal(eager)
    for _ in range(spot_checks.BEYOND):
        trial.call(legal)
    assert (spot_checks.BEYOND, 0) == (trial.compared, trial.checks.suspects[-1].sampled)
    for _ in range(400):
        trial.call(legal)
    assert 20 < trial.compared - spot_checks.BEYOND < 90  # 50, deviation 6.6
    assert [0.0] * 3 == trial.checks.tolerated and 0 == trial.checks.suspects[-1].sampled
    with pytest.raises(Mismatch):
        for _ in range(200):
            trial.call(torch.full_like(eager, 77), "wrong")


def test_what_a_smoke_test_saw_beyond_all_measure_is_not_tolerated() -> None:
    """A first call may be legal and as far off."""
    assert [0.0, 0.0, 0.5, 2.0] == spot_checks.learned([torch.inf, torch.inf, 0.5, 2.0])
    assert [1e-7, 1e-6, 0.5, 3.0] == spot_checks.learned([torch.inf, torch.nan, 0.5, 2.0], [1e-7, 1e-6, 0.25, 3.0])


def test_whole_numbers_that_differ_are_no_measure_for_written_inputs() -> None:
    """A share of halves is not an error of floats."""
    trial = Legal(torch.arange(64), mutates=frozenset({0}), tolerated=[0.05, 1.0, 0.05])
    trial.eager.inputs[0], trial.mine.inputs[0] = [torch.ones(8)], [torch.ones(8) * 1.01]
    with pytest.raises(Mismatch):
        trial.checks.look([[torch.zeros(8)]], "wrong")


def test_what_eager_answered_is_told_before_a_dear_call_is_compared_in_full() -> None:
    """As it was in that round: by the end the buffers hold a later one's."""
    told: list[tuple[object, bool]] = []

    def tell(leaves: list, state: object, eager: list) -> None:
        assert len(told) == len(trial.compared)
        told.append((state, torch.equal(eager[0], 2 * leaves[0])))

    trial = Trial(3, budget=2, tell=tell)
    for number in range(6):
        trial.round(number)
    trial.checks.conclude()
    assert told == [(state, True) for state in trial.compared] and 2 == len(told)
