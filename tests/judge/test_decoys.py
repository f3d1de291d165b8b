# SPDX-License-Identifier: Apache-2.0
"""The known-wrong programs made for any task."""

from __future__ import annotations

import torch
from plain_tasks import instance

from kernelwright.judge import decoys
from kernelwright.judge.inputs import Variant
from kernelwright.judge.instance import Instance

GIVEN = Variant(name="as given", required=True)


def test_every_input_and_parameter_has_its_decoys() -> None:
    """Ignored, copied, cut short, and low precision for all."""
    layer = "self.l = nn.Linear(4, 4)"
    made = instance("self.l(x) + y", "[torch.randn(4, 4), torch.arange(4)]", args="x, y", init=layer)
    names = {decoy.name for decoy in decoys.standard(made, seed=1)}
    assert {
        "zeros", "ones", "mean of the output", "constant from another draw", "output shifted by one",
        "input 0 ignored", "input 1 ignored", "copy of input 0", "last columns of input 0 ignored",
        "parameter l.weight ignored", "parameter l.bias ignored", "arithmetic in tf32", "arithmetic in bfloat16",
    } <= names  # fmt: skip


def test_of_many_parameters_some_are_drawn() -> None:
    """The same ones for a seed, in their order, others for another; few are all looked at."""
    many = instance("self.n(x)", "[torch.randn(2, 4)]", init="self.n = nn.Sequential(*[nn.Linear(4, 4)] * 30)")
    assert 60 == len(decoys.parameters(many))
    first, again, other = (decoys.looked_at(many, seed) for seed in (1, 1, 2))
    assert first == again != other
    assert decoys.MOST_PARAMETERS == len(first) == len(other)
    assert [name for name in decoys.parameters(many) if name in first] == first
    assert len(first) == sum(decoy.kind == "parameter" for decoy in decoys.standard(many, seed=1))


def test_each_decoy_is_wrong_on_a_plain_task_or_does_not_apply() -> None:
    """None of them is the reference by accident."""
    made = instance("self.l(x)", "[torch.randn(32, 16)]", init="self.l = nn.Linear(16, 32)")
    leaves = made.draw(GIVEN, 1)
    eager = made.eager(leaves, None)
    for decoy in decoys.standard(made, seed=1):
        answer = decoy.answer(GIVEN, leaves, None, eager)
        assert answer is None or not torch.equal(eager[0], answer[0]), decoy.name


def test_tf32_keeps_ten_bits() -> None:
    """Ties away from zero, as the hardware rounds."""
    x = torch.tensor([1 + 2**-10, 1 + 2**-11, 1 + 2**-12, -(1 + 2**-11)])
    assert [1 + 2**-10, 1 + 2**-10, 1.0, -(1 + 2**-10)] == decoys.round_to_tf32(x).tolist()


def test_half_precision_tasks_have_no_precision_decoys() -> None:
    """Their own precision is the low one."""
    made = instance("x * 2", "[torch.randn(4).bfloat16()]")
    assert [] == [decoy for decoy in decoys.standard(made, seed=1) if decoy.kind == "precision"]


def answers(made: Instance) -> dict[str, list[torch.Tensor] | None]:
    """What each decoy gives for the task's own inputs."""
    leaves, state = made.draw(GIVEN, 1), made.first_state
    return {d.name: d.answer(GIVEN, leaves, state, made.eager(leaves, state)) for d in decoys.standard(made, seed=1)}


def test_an_input_that_is_handed_on_beside_a_result_is_no_copy_of_it() -> None:
    """A cell that passes a piece of its state through was not admitted: what "copied" that input was right."""
    made = instance("(x, y * 2)", "[torch.randn(4), torch.randn(8)]", args="x, y")
    found = answers(made)
    assert found["copy of input 0"] is None
    copied = found["copy of input 1"]
    assert copied is not None and not torch.equal(copied[1], made.eager(made.draw(GIVEN, 1), None)[1])
    assert answers(instance("x * 1", "[torch.randn(4)]"))["copy of input 0"] is not None, "nothing else is computed"


def test_a_table_made_of_parameters_alone_is_drawn_with_others() -> None:
    """The answer to other inputs, where there are none, was the answer."""
    made = instance("self.w.softmax(-1)", "[]", args="", init="self.w = nn.Parameter(torch.randn(3, 4))")
    other = answers(made)["constant from another draw"]
    assert other is not None and not torch.equal(other[0], made.eager([], made.first_state)[0])
