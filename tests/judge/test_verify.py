# SPDX-License-Identifier: Apache-2.0
"""The verdict on correctness: cases, pooling and the proof."""

from __future__ import annotations

import dataclasses
import math
import re

import pytest
import torch
from plain_tasks import GRADIENTS, instance

from kernelwright.judge import pooled, verify
from kernelwright.judge.inputs import Variant
from kernelwright.judge.instance import Instance
from kernelwright.judge.verify import Checker
from kernelwright.task import Contract
from kernelwright.trial import CaseResult

GIVEN = Variant(name="as given", required=True)


def softmax(**more: object) -> tuple[Checker, list[torch.Tensor]]:
    """A checker of softmax and one draw for it."""
    checker = Checker(instance("x.softmax(-1)", "[torch.randn(16, 64)]", **more), seed=3)
    return checker, checker.instance.draw(GIVEN, 1)


def proof(checker: Checker, results: list[CaseResult]) -> object:
    """A proof with the remaining facts filled in."""
    return verify.verified([checker], results, deterministic=True, seed=7, sandbox="none")


def test_an_honest_answer_passes_and_its_proof_counts_the_calls() -> None:
    """Two calls of one case are pooled."""
    checker, leaves = softmax()
    results = []
    for seed in range(2):
        leaves = checker.instance.draw(GIVEN, seed)
        e = (leaves[0] - leaves[0].amax(-1, keepdim=True)).exp()
        results.append(checker.check(GIVEN, leaves, None, [e / e.sum(-1, keepdim=True)], leaves))
    made = proof(checker, results)
    assert (1, 2, 1, "float64") == (len(made.cases), made.checked_calls, made.outputs, made.oracle)
    assert 0.0 <= made.bits_lost <= 1.0


def test_bf16_arithmetic_is_refused_with_the_bits_it_lost() -> None:
    """The detail names output, place, ratio and what was allowed."""
    checker, leaves = softmax()
    result = checker.check(GIVEN, leaves, None, [leaves[0].bfloat16().softmax(-1).float()], leaves)
    assert not result.passed
    assert "output 0 at (" in result.detail
    assert "bits lost, 1 allowed" in result.detail
    with pytest.raises(ValueError, match="not verified: main: as given"):
        proof(checker, [result])


def test_of_a_wrong_output_the_values_are_said_and_how_many_are_wrong() -> None:
    """One wrong place and a wrong formula read differently; who mends it sees both numbers."""
    checker, leaves = softmax()
    right = leaves[0].softmax(-1)
    one = right.clone()
    one[3, 5] += 0.25
    said = checker.check(GIVEN, leaves, None, [one], leaves).detail
    assert "output 0 at (3, 5):" in said and f"; 1 of {right.numel()} elements err by a tenth of that or more" in said
    got, expected = re.findall(r"got (\S+), expected (\S+);", said)[0]
    assert (pytest.approx(float(one[3, 5])), pytest.approx(float(right[3, 5]))) == (float(got), float(expected))
    every = checker.check(GIVEN, leaves, None, [right + 0.25], leaves).detail
    assert f"; {right.numel()} of {right.numel()} elements err" in every


def test_a_loosened_contract_passes_it_and_says_so() -> None:
    """Precision traded for speed stands beside the result."""
    checker, leaves = softmax(contract=Contract(bits_lost=20.0))
    result = checker.check(GIVEN, leaves, None, [leaves[0].bfloat16().softmax(-1).float()], leaves)
    made = proof(checker, [result])
    assert made.bits_lost > 8
    assert "contract loosened: 20 bits of precision may be lost" in made.notes


def test_a_written_input_is_refused_unless_the_contract_says_so() -> None:
    """The comparison is bit by bit; NaN equals NaN."""
    checker, leaves = softmax()
    right = checker.instance.eager(leaves, None)
    after = [leaves[0].clone()]
    after[0][3, 3] += 1
    changed = checker.check(GIVEN, leaves, None, right, after).detail
    at = 3 * leaves[0].shape[1] + 3
    assert changed.startswith(f"input 0 was changed by the call, 1 of {leaves[0].numel()} elements, the first at {at}:")
    free, leaves = softmax(contract=Contract(mutates=(0,)))
    result, unwritten = free.instance.eager(leaves, None)
    assert free.check(GIVEN, leaves, None, [result], [unwritten]).passed
    assert "input 0 after the call" in free.check(GIVEN, leaves, None, [result], after).detail


def test_a_missing_output_is_refused() -> None:
    """Every leaf is compared; the number of leaves is fixed by the reference."""
    checker = Checker(instance("(x, x * 2)", "[torch.randn(4)]"))
    leaves = checker.instance.draw(GIVEN, 1)
    result = checker.check(GIVEN, leaves, None, [leaves[0]], leaves)
    assert ("got 1 outputs, expected 2", math.inf) == (result.detail, result.error_ratio)


def test_the_second_output_and_the_gradients_count_as_much_as_the_first() -> None:
    """A wrong gradient is named by what it belongs to."""
    checker = Checker(instance("x * 2", "[torch.randn(4, 4)]", contract=GRADIENTS))
    leaves = checker.instance.draw(GIVEN, 1)
    right = checker.instance.eager(leaves, None)
    assert checker.check(GIVEN, leaves, None, right, leaves).passed
    result = checker.check(GIVEN, leaves, None, [right[0], right[1] * 1.01], leaves)
    assert "gradient of input:0" in result.detail


def test_weights_of_the_call_decide_what_is_right() -> None:
    """The first weights are wrong once others were loaded."""
    checker = Checker(instance("self.l(x)", "[torch.randn(4, 4)]", init="self.l = nn.Linear(4, 4)"))
    fresh = Variant(name="fresh weights", required=True, fresh_weights=True)
    leaves, state = checker.instance.draw(fresh, 1), checker.instance.draw_state(9)
    assert not checker.check(fresh, leaves, state, checker.instance.eager(leaves, None), leaves).passed
    assert checker.check(fresh, leaves, state, checker.instance.eager(leaves, state), leaves).passed


def test_a_failed_probe_narrows_the_proof_instead_of_refusing_it() -> None:
    """A case that is not required is reported as outside the proven space."""
    checker, leaves = softmax()
    good = checker.check(GIVEN, leaves, None, checker.instance.eager(leaves, None), leaves)
    probe = dataclasses.replace(good, name="main: probe", required=False, passed=False, detail="crashed")
    made = proof(checker, [good, probe])
    assert "outside the proven space: main: probe (crashed)" in made.notes


def test_nothing_checked_proves_nothing() -> None:
    """An empty list of results is no proof."""
    checker, _ = softmax()
    with pytest.raises(ValueError, match="nothing was checked"):
        proof(checker, [])


def test_pooling_keeps_the_worst_and_the_first_failure() -> None:
    """All calls of a case must pass."""
    base = CaseResult(name="a", required=True, passed=True, detail="", error_ratio=0.5, calls=1)
    bad = dataclasses.replace(base, passed=False, detail="wrong", error_ratio=3.0)
    found = pooled.pool([base, bad, base])
    assert (CaseResult(name="a", required=True, passed=False, detail="wrong", error_ratio=3.0, calls=3),) == found
    assert bad == pooled.failure([base, bad])


def test_references_of_low_precision_and_ill_condition_are_named() -> None:
    """A reader must know why a large error was let pass."""
    half = Checker(instance("(x.half() @ x.half().T).float()", "[torch.randn(16, 64)]"))
    leaves = half.instance.draw(GIVEN, 1)
    half.truth(GIVEN, leaves, None)
    ill = Checker(instance("x - x.mean(-1, keepdim=True)", "[1000 + 1e-4 * torch.rand(8, 64)]"))
    leaves = ill.instance.draw(GIVEN, 1)
    ill.truth(GIVEN, leaves, None)
    assert ["output 0: eager itself is over 2^8 times less precise than its dtype allows"] == half.notes
    assert ["output 0 is ill-conditioned: honest rounding moves it by over 2^10 units"] == ill.notes


def test_a_float64_run_that_computes_something_else_is_not_trusted() -> None:
    """The reference branches on the default dtype; eager and the oracle then have nothing in common."""
    made = instance("x * (1 if torch.get_default_dtype() == torch.float32 else 3)", "[torch.randn(16, 64)]")
    checker = Checker(made)
    leaves = made.draw(GIVEN, 1)
    assert checker.check(GIVEN, leaves, None, [leaves[0].clone()], leaves).passed
    assert not checker.check(GIVEN, leaves, None, [leaves[0] * 3], leaves).passed
    assert "orders-of-summation" == checker.oracle
    assert "disagrees" in made.notes[0]


def test_a_float64_run_that_chooses_others_of_nearly_equal_numbers_is_trusted_still() -> None:
    """Second largest probabilities that vanish in float32 are equal to all others there, and not in float64."""
    made = instance("torch.arange(16.0)[x.softmax(-1).topk(2)[1]].sum(-1)", "[torch.randn(64, 16)]")
    checker, wide = Checker(made), Variant(name="wide", required=True, scale=100.0)
    for variant in (GIVEN, wide):
        leaves = made.draw(variant, 1)
        by_logits = torch.arange(16.0)[leaves[0].topk(2)[1]].sum(-1)
        assert checker.check(variant, leaves, None, [by_logits], leaves).passed
    assert not made.without_double and "orders-of-summation" != checker.oracle


def test_whether_the_reference_accepts_inputs_costs_the_check_of_them_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Eager's answer is kept for the same call, and for no other; what is not finite, or raises, is not accepted."""
    checker, leaves = softmax()
    asked: list[object] = []
    eager = checker.instance.eager

    def counted(given: list[torch.Tensor], state: object) -> list[torch.Tensor]:
        asked.append(given)
        return eager(given, state)  # type: ignore[arg-type]

    monkeypatch.setattr(checker.instance, "eager", counted)
    other = checker.instance.draw(GIVEN, 2)
    assert checker.accepts(GIVEN, leaves, None)
    assert checker.check(GIVEN, leaves, None, [leaves[0].softmax(-1)], leaves).passed
    assert 1 == len(asked)
    assert checker.accepts(GIVEN, leaves, None)
    assert checker.check(GIVEN, other, None, [other[0].softmax(-1)], other).passed
    assert [leaves, leaves, other] == asked
    assert not checker.accepts(GIVEN, [leaves[0] * math.inf], None)
    assert checker.accepts(Variant(name="special values", required=True, special=True), [leaves[0] * math.inf], None)
    assert not checker.accepts(GIVEN, [leaves[0].long()], None), "softmax of integers raises"


def test_half_precision_that_amplifies_its_own_rounding_does_not_discredit_float64() -> None:
    """bf16 rounds arguments of three million to multiples of 16384: which is the largest is anybody's guess."""
    checker = Checker(
        instance(
            "torch.softmax(x * w, -1)", "[torch.randn(512, 2048).bfloat16(), torch.rand(2048).bfloat16()]", args="x, w"
        ),
        seed=3,
    )
    large = Variant(name="scale 1000", required=True, scale=1000.0)
    leaves = checker.instance.draw(large, 1)
    x, w = (leaf.float() for leaf in leaves)
    eager, careful = checker.instance.eager(leaves, None)[0], torch.softmax(x * w, -1).bfloat16()
    assert float((eager.float() - careful.float()).abs().max()) > 0.05, "they must differ for this to mean anything"
    assert checker.check(large, leaves, None, [careful], leaves).passed
    assert "float64" == checker.oracle
    wrong = torch.softmax(x * w.flip(0), -1).bfloat16()
    assert not checker.check(large, leaves, None, [wrong], leaves).passed


@pytest.mark.parametrize(("remembered", "known"), [(1 << 20, 8), (1 << 10, 1)])
def test_answers_are_kept_for_the_calls_of_a_window_where_they_are_small(
    monkeypatch: pytest.MonkeyPatch, remembered: int, known: int
) -> None:
    """The reference runs once for each call of a window that it was asked about; of large ones the last is kept alone,
    with its inputs and weights, or sixteen of 256 MB would be."""
    monkeypatch.setattr(verify, "REMEMBERED_BYTES", remembered)
    checker, _ = softmax()
    draws = [checker.instance.draw(GIVEN, seed) for seed in range(8)]
    assert all(checker.accepts(GIVEN, leaves, None) for leaves in draws)
    ran: list[object] = []
    real = Instance.eager
    monkeypatch.setattr(Instance, "eager", lambda self, *given: ran.append(given) or real(self, *given))
    for leaves in reversed(draws):
        checker.check(GIVEN, leaves, None, [leaves[0].softmax(-1)], leaves)
    assert len(ran) == 8 - known


def test_a_sum_that_nearly_cancels_rounds_like_one_that_does_not() -> None:
    """Floors of a dear case are drawn once; that of a sum near 0 was that of a large one, 4000 times as narrow."""
    checker = Checker(instance("x.sum()", "[torch.randn(1024, 2048)]"), seed=3)
    assert checker.instance.work > verify.LIGHT
    one = checker.instance.draw(GIVEN, 1)[0]
    even = (one - one.double().mean()).float()
    for leaf in (one, even):
        exact = leaf.double().sum()
        near, far = (exact + 8e-3).float(), (exact + 0.2).float()
        assert not checker.check(GIVEN, [leaf], None, [far], [leaf]).passed
        assert checker.check(GIVEN, [leaf], None, [near], [leaf]).passed
