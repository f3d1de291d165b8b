# SPDX-License-Identifier: Apache-2.0
"""judge/stock.py: draws made of a few real ones, as freely as the reference takes that."""

from __future__ import annotations

import pytest
import torch
from plain_tasks import instance

from kernelwright.judge.inputs import Variant
from kernelwright.judge.recombined import Recombiner
from kernelwright.judge.stock import Stock
from kernelwright.judge.variants import AS_GIVEN

SPANS = "(b := torch.randint(0, 30, (64,))), b + torch.randint(1, 3, (64,))"
HEAD = """
def spans(x, start, end):
    return torch.stack([row[int(a):int(b)].mean() for row, a, b in zip(x, start, end)])
"""


def stock(forward: str, inputs: str, **more: str) -> Stock:
    made = instance(forward, inputs, **more)
    return Stock(made, Variant(name=AS_GIVEN, required=True), 100, Recombiner(torch.device("cpu")))


def test_where_a_reference_has_no_answer_inputs_of_one_shape_come_from_one_draw_at_each_place() -> None:
    """A beginning of one draw and an end of another hold nothing, and the mean of that is no number: programs were
    refused for another one than the reference's."""
    made = stock("spans(x, start, end)", f"[torch.randn(64, 32), {SPANS}]", args="x, start, end", head=HEAD)
    dice, seen = torch.Generator().manual_seed(1), set[tuple[int, ...]]()
    for _ in range(6):
        x, start, end = made.made(dice)
        assert bool((end > start).all()) and not torch.equal(x, made.drawn[0][0])
        seen.add(tuple(start.tolist()))
    assert len(seen) == 6 and not made.free


def test_elsewhere_each_comes_by_itself() -> None:
    """Or pairs that were seen before would come again."""
    made = stock("x[:, 0] * (a + b)", "[torch.randn(64, 2), *torch.randint(0, 99, (2, 64))]", args="x, a, b")
    known = {pair for _, a, b in made.drawn for pair in zip(a.tolist(), b.tolist(), strict=True)}
    _, a, b = made.made(torch.Generator().manual_seed(1))
    assert len({*zip(a.tolist(), b.tolist(), strict=True)} & known) < 48


@pytest.mark.parametrize("numbers", ["torch.randint(0, 9, (64,))", "torch.rand(64) < 0.5"])
def test_where_no_place_may_come_from_elsewhere_a_draw_stays_whole(numbers: str) -> None:
    """A checksum beside them: of any others the reference has no answer."""
    total = "(m.long() * torch.arange(64) ** 2).sum()"
    made = stock(f"x / ({total} == s)", f"[torch.randn(64), (m := {numbers}), {total}]", args="x, m, s")
    dice = torch.Generator().manual_seed(1)
    for _ in range(4):
        x, m, _ = made.made(dice)
        assert any(torch.equal(m, drawn[1]) for drawn in made.drawn)
        assert not any(torch.equal(x, drawn[0]) for drawn in made.drawn)


@pytest.mark.parametrize("dtype", ["uint16", "uint32", "uint64", "float8_e4m3fn", "float8_e5m2"])
@pytest.mark.parametrize("shape", [(8, 12), (9, 3), (40,), (0, 4)])
def test_types_that_torch_hardly_knows_are_mixed_by_their_bits(dtype: str, shape: tuple[int, ...]) -> None:
    """It gathers no unsigned numbers and compares no floats of eight bits: every such task whose draws are dear would
    have ended the judge."""
    made, dice = Recombiner(torch.device("cpu")), torch.Generator().manual_seed(1)
    kind = getattr(torch, dtype)
    drawn = [(torch.rand(shape) * 90).to(kind) for _ in range(3)]
    for one in (made.of(drawn[0], drawn[1], dice), *(row[0] for row in made.batch([[x] for x in drawn], (), 2, dice))):
        assert one.dtype is kind and one.shape == drawn[0].shape
        assert set(one.float().flatten().tolist()) <= {n for each in drawn for n in each.float().flatten().tolist()}


def test_flags_in_floats_are_asked_of_the_reference_too() -> None:
    """Of masks with one element a row every second row had none, and a mean of nothing is no number."""
    given = "[torch.randn(64, 12), (m := (torch.rand(64, 12).argsort(-1) < 2).float())]"
    made = stock("(x * m).sum(-1) / m.sum(-1)", given, args="x, m")
    dice = torch.Generator().manual_seed(1)
    for _ in range(4):
        _, m = made.made(dice)
        assert bool((m.sum(-1) > 0).all())


def test_a_reference_that_refuses_what_is_made_of_draws_gets_real_ones() -> None:
    """Rows that add up to one within 1e-3 do in a made draw as well, within 1e-5 they do not: eager's own program
    raised in a race."""
    head = "def asked(x, most):\n    if float((x.sum(1) - 1).abs().max()) > most:\n        raise Exception(most)\n"
    inputs = "[torch.softmax(torch.randn(64, 32), 1)]"
    assert not stock("(x, asked(x, 1e-5))[0] * 2", inputs, head=head).taken
    assert stock("(x, asked(x, 10.0))[0] * 2", inputs, head=head).taken
