# SPDX-License-Identifier: Apache-2.0
"""One call in the judge's own process: outputs and gradients."""

from __future__ import annotations

import errno

import pytest
import torch
from plain_tasks import GRADIENTS, instance

from kernelwright.errors import DiskFull, ReferenceFails
from kernelwright.judge import calls
from kernelwright.judge.inputs import Variant
from kernelwright.task import Contract

GIVEN = Variant(name="as given", required=True)


def test_gradients_follow_the_outputs_by_name() -> None:
    """Inputs first, then parameters; seeded by the instance's incoming gradients."""
    made = instance("self.l(x) * y", "[torch.randn(3, 4), torch.randn(3, 1)]", args="x, y", contract=GRADIENTS,
                    init="self.l = nn.Linear(4, 2)")  # fmt: skip
    assert ["input:0", "input:1", "parameter:l.weight", "parameter:l.bias"] == [name for name, _ in made.gradients]
    x, y = made.draw(GIVEN, 1)
    found = made.eager([x, y], None)
    incoming = made.incoming[0]
    torch.testing.assert_close((incoming * y) @ made.model.l.weight.detach(), found[1])
    torch.testing.assert_close((incoming * y).sum(0), found[4])
    assert (0,) == made.seeds


def test_a_missing_gradient_is_zero_and_the_oracle_has_gradients_too() -> None:
    """An input that no output depends on."""
    made = instance("x * 2", "[torch.randn(3), torch.randn(2)]", args="x, y", contract=GRADIENTS)
    exact, kind = made.oracle(made.draw(GIVEN, 1), None)
    assert "float64" == kind
    assert torch.equal(torch.zeros(2, dtype=torch.float64), exact[2])
    assert torch.equal(made.incoming[0].double() * 2, exact[1])


def test_inputs_written_in_place_do_not_reach_the_caller() -> None:
    """The reference works on copies, in the layout it was given."""
    made = instance("x.mul_(2)", "[torch.randn(3, 4)]", contract=Contract(mutates=(0,)))
    leaves = made.draw(Variant(name="t", required=True, layout="transposed"), 1)
    before = leaves[0].clone()
    made.eager(leaves, None)
    assert torch.equal(before, leaves[0])


def test_gradients_of_one_output_alone_come_where_there_are_several() -> None:
    """Whoever uses no other hands None to the rest, which counts as zeros do."""
    made = instance("(x * 2, x.sort()[1], x * 3)", "[torch.randn(3, 4)]", contract=GRADIENTS)
    assert [0, 2] == made.met["roots"]
    alone = [variant for variant in made.variants(5) if variant.roots]
    assert [(0,), (2,)] == [variant.roots for variant in alone]
    for variant, factor in zip(alone, (2.0, 3.0), strict=True):
        leaves = made.draw(variant, 7)
        assert [at for at, one in enumerate(leaves.incoming) if bool(one.any())] == list(variant.roots)
        assert torch.equal(leaves.incoming[variant.roots[0]] * factor, made.eager(leaves, None)[-1])
    single = instance("x * 2", "[torch.randn(3, 4)]", contract=GRADIENTS).variants(5)
    assert not any(variant.roots for variant in single)


@pytest.mark.parametrize(
    ("formula", "given"), [("torch.fft.rfft(x)", "torch.randn(3, 8)"), ("x.abs()", "torch.randn(3, 8) + 0j")]
)
def test_complex_results_and_inputs_have_gradients_that_are_compared(formula: str, given: str) -> None:
    """Zeros came in, and an input had none: any backward was right."""
    made = instance(formula, f"[{given}]", contract=GRADIENTS)
    leaves = made.draw(GIVEN, 1)
    _, gradient = made.eager(leaves, None)
    assert bool((made.incoming[0] != 0).all()) and bool((gradient != 0).any())
    assert gradient.shape == leaves[0].shape and gradient.dtype is leaves[0].dtype
    torch.testing.assert_close(made.oracle(leaves, None)[0][1].to(gradient.dtype), gradient)


@pytest.mark.parametrize(
    "raised",
    ["Exception('too large')", "StopIteration", "Own()", "OverflowError", "KeyError(3)", "NameError", "SystemExit(2)"],
)
def test_what_a_reference_raises_of_a_draw_is_that_it_does_not_take_it(raised: str) -> None:
    """Of whatever class: an OverflowError, of ``int(inf)``, ended the judge."""
    head = f"class Own(Exception):\n    pass\n\n\ndef checked(x):\n    if float(x.max()) > 9:\n        raise {raised}\n"
    made = instance("(x, checked(x))[0] * 2", "[torch.rand(3)]", head=head)
    leaves = made.draw(GIVEN, 1)
    assert made.accepted(leaves) is not None
    assert made.accepted([leaves[0] + 10]) is None
    with pytest.raises(ReferenceFails, match="too large" if "too" in raised else raised[:3]):
        instance("(x, checked(x))[0] * 2", "[torch.rand(3) + 10]", head=head)


def test_faults_of_the_machine_stay_what_they_are() -> None:
    """A full disk is nobody's word on a draw."""
    with pytest.raises(OSError), calls.OfItsOwn():
        raise OSError(errno.ENOSPC, "No space left on device")
    with pytest.raises(DiskFull), calls.OfItsOwn():
        raise DiskFull("full", "", "")


def test_a_sparse_gradient_is_compared_as_it_is_added() -> None:
    """That of a table whose rows few ids take."""
    made = instance("self.e(x)", "[torch.randint(0, 50, (6,))]", contract=GRADIENTS,
                    init="self.e = nn.Embedding(50, 4, sparse=True)")  # fmt: skip
    leaves = made.draw(GIVEN, 1)
    _, grad = made.eager(leaves, None)
    exact, _ = made.oracle(leaves, None)
    expected = torch.zeros(50, 4).index_add_(0, leaves[0], made.incoming[0])
    assert grad.layout is torch.strided and torch.equal(expected, grad)
    torch.testing.assert_close(exact[1], expected.double())
