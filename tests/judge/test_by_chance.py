# SPDX-License-Identifier: Apache-2.0
"""Answers that miss by little: two of a proof may, and none by more."""

from __future__ import annotations

import math

import pytest
from plain_tasks import instance

from kernelwright.judge.buffers import Buffers
from kernelwright.judge.by_chance import MOST, ByChance
from kernelwright.judge.inputs import Variant
from kernelwright.judge.spot_checks import Mismatch, Suspect
from kernelwright.judge.verify import Checker
from kernelwright.trial import CaseResult

GIVEN = Variant(name="as given", required=True)


def _result(ratio: float, allowed: float = 1.0) -> CaseResult:
    passed = ratio <= 2.0**allowed
    detail = "" if passed else f"{ratio:.3g} times the honest error"
    return CaseResult(name="main", required=True, passed=passed, detail=detail, error_ratio=ratio, calls=1)


def test_two_answers_of_a_proof_may_miss_by_little_and_it_says_so() -> None:
    chance = ByChance(1.0)
    assert not chance.words()
    said = [chance.passed(_result(ratio)).passed for ratio in (2.1, 1.0, 2.8, 1.9, 2.1)]
    assert said == [True, True, True, True, False]
    assert chance.words() == [f"{MOST} checked calls missed by little, up to 2.8 times the honest error"]


@pytest.mark.parametrize("ratio", [2.9, 16.0, math.inf])
def test_no_answer_may_miss_by_more(ratio: float) -> None:
    chance = ByChance(1.0)
    assert not chance.passed(_result(ratio)).passed and not chance.words()


def test_what_counts_as_little_is_beside_what_the_contract_allows() -> None:
    assert ByChance(3.0).passed(_result(11.0, 3.0)).passed
    assert not ByChance(3.0).passed(_result(12.0, 3.0)).passed


def test_how_far_an_answer_misses_is_not_taken_from_a_sample_of_it() -> None:
    """One element of many that is far off, beside others that miss by little where they are looked at first."""
    checker = Checker(instance("x * 3.0", "[torch.rand(512, 512) + 1.0]"), seed=3)
    leaves = checker.instance.draw(GIVEN, 1)
    answer = (leaves[0].double() * 3.0).reshape(-1)
    unit = float(answer.max()) * 2.0**-24
    answer[17 * 16 :: 17 * 1000] += 10 * unit  # every 17th is looked at
    near = checker.check(GIVEN, leaves, None, [answer.reshape(512, 512).float()], leaves)
    assert 2.0 < near.error_ratio < 2.8 and not near.passed
    answer[5000] += 1000 * unit
    wrong = checker.check(GIVEN, leaves, None, [answer.reshape(512, 512).float()], leaves)
    assert not ByChance(1.0).passed(wrong).passed
    assert wrong.error_ratio > 100


def test_a_baseline_is_spared_nothing_and_the_candidate_what_it_may_miss() -> None:
    def check(*_: object) -> CaseResult:
        return _result(2.2)

    buffers = Buffers.__new__(Buffers)
    alone, mine = Suspect(buffers, check, False), Suspect(buffers, check, True, chance=ByChance(1.0))
    assert not alone.judged([], None, [], []).passed
    assert [mine.judged([], None, [], []).passed for _ in range(MOST)] == [True, True]
    with pytest.raises(Mismatch):
        mine.judged([], None, [], [])
