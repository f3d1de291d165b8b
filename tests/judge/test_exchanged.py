# SPDX-License-Identifier: Apache-2.0
"""Floats that follow an order of equal keys: any of these orders is right, and no order of unequal ones."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from plain_tasks import instance

from kernelwright.judge import exchanged
from kernelwright.judge.inputs import Variant
from kernelwright.judge.oracle import Float64Trace
from kernelwright.judge.verify import Checker

GIVEN = Variant(name="as given", required=True)
DIGITS = "[torch.randint(0, 9, (64, 32)).float(), torch.randn(64, 32)]"
NORMAL = "[torch.randn(64, 32) * 4, torch.randn(64, 32)]"
ROWS = "[torch.randint(0, 9, (256,)).float(), torch.randn(256, 16)]"
Program = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]
SORTED = "v.gather(-1, x.argsort(-1))"
ROUNDED = "v.gather(-1, x.round().sort(-1)[1]) * 2.0"
CHOSEN = "torch.relu(v.gather(-1, x.topk(4)[1]))"
BEST = "v.gather(-1, x.argmax(-1, keepdim=True))"
LARGEST = "v[torch.arange(64), x.max(-1)[1]]"
MOVED = "v[x.argsort()]"
PUT = "torch.zeros_like(x).scatter(-1, x.argsort(-1), torch.arange(32.0).expand(64, 32))"
CUT = "v.gather(-1, x.argsort(-1)[:, :7])"


def passes(forward: str, inputs: str, other: Program) -> bool:
    """Whether a program's answer to one call passes."""
    checker = Checker(instance(forward, inputs, args="x, v"), seed=3)
    leaves = checker.instance.draw(GIVEN, 5)
    return checker.check(GIVEN, leaves, None, [other(*leaves)], leaves).passed


def shuffled(x: torch.Tensor, *, down: bool = False) -> torch.Tensor:
    """Places of an order in which equal ones come by lot."""
    mixed = torch.rand(x.shape, generator=torch.Generator().manual_seed(1)).argsort(-1)
    return mixed.gather(-1, x.gather(-1, mixed).sort(dim=-1, stable=True, descending=down)[1])


@pytest.mark.parametrize(
    ("forward", "inputs", "program"),
    [
        (SORTED, DIGITS, lambda x, v: v.gather(-1, shuffled(x))),
        (ROUNDED, NORMAL, lambda x, v: v.gather(-1, shuffled(x.round())) * 2.0),
        (CHOSEN, DIGITS, lambda x, v: v.gather(-1, shuffled(x, down=True)[:, :4]).relu()),
        (BEST, DIGITS, lambda x, v: v.gather(-1, shuffled(x, down=True)[:, :1])),
        (LARGEST, DIGITS, lambda x, v: v.gather(-1, shuffled(x, down=True)[:, :1])[:, 0]),
        (MOVED, ROWS, lambda x, v: v[shuffled(x)]),
        (PUT, DIGITS, lambda x, v: torch.zeros_like(x).scatter(-1, shuffled(x), torch.arange(32.0).expand(64, 32))),
        (CUT, DIGITS, lambda x, v: v.gather(-1, shuffled(x)[:, :7])),
    ],
)
def test_equal_keys_may_come_in_any_order(forward: str, inputs: str, program: Program) -> None:
    """Neither the first nor the last of them first: of a kernel that sorts by networks, or chooses by counting."""
    assert passes(forward, inputs, program)


@pytest.mark.parametrize(
    ("forward", "inputs", "program"),
    [
        (SORTED, DIGITS, lambda x, v: v.gather(-1, (-x).argsort(-1))),
        (SORTED, DIGITS, lambda x, v: v.gather(-1, (x // 2).argsort(-1))),
        (SORTED, DIGITS, lambda x, v: v.sort(-1)[0]),
        (ROUNDED, NORMAL, lambda x, v: v.gather(-1, shuffled((x + 0.25).round())) * 2.0),
        (CHOSEN, DIGITS, lambda x, v: v.gather(-1, shuffled(x, down=True)[:, 1:5]).relu()),
        (CHOSEN, DIGITS, lambda x, v: v.gather(-1, shuffled(x, down=True)[:, :1]).relu().expand(-1, 4).contiguous()),
        (BEST, DIGITS, lambda x, v: v.gather(-1, x.argmin(-1, keepdim=True))),
        (LARGEST, DIGITS, lambda x, v: v.max(-1)[0]),
        (MOVED, ROWS, lambda x, v: v[(-x).argsort()]),
        (MOVED, ROWS, lambda x, v: torch.cat([v[shuffled(x)][:, :8], v[x.argsort()][:, 8:]], 1)),
        (PUT, DIGITS, lambda x, v: torch.zeros_like(x).scatter(-1, v.argsort(-1), torch.arange(32.0).expand(64, 32))),
        (CUT, DIGITS, lambda x, v: v.gather(-1, shuffled(x)[:, 1:8])),
    ],
)
def test_unequal_keys_may_not(forward: str, inputs: str, program: Program) -> None:
    """Nor one place twice, nor halves of two rows: digits were moved apart when the honest error was drawn, which was
    then as large as the values are."""
    assert not passes(forward, inputs, program)


def test_what_stands_beside_equal_keys_must_be_equal() -> None:
    """Else they may not change places: a factor by place of the order is none of theirs."""
    made = instance("v.gather(-1, x.argsort(-1)) * torch.arange(32.0)", DIGITS, args="x, v")
    leaves = made.draw(GIVEN, 5)

    def run(mode: exchanged.Turned) -> list[torch.Tensor]:
        with mode:
            return made.doubled(leaves, None, Float64Trace())

    exact = run(exchanged.Turned(0))
    assert exchanged.restored(exact[0].float(), run, 0, 0.0, exact[0]) is None


@pytest.mark.parametrize("block", [1, 12, 1 << 24])
def test_equals_are_found_part_by_part(monkeypatch: pytest.MonkeyPatch, block: int) -> None:
    """Whatever the parts are; rows of a transposed tensor too, and nothing is kept where nothing is equal."""
    monkeypatch.setattr(exchanged, "BLOCK", block)
    rows = torch.tensor([[[3.0, 1.0, 3.0, 1.0]], [[1.0, 2.0, 3.0, 4.0]], [[0.0, -0.0, 7.0, 7.0]]])
    wanted = torch.tensor([[[0, 1, 0, 1]], [[0, 1, 2, 3]], [[0, 0, 2, 2]]])
    for given in (rows, rows.mT.contiguous().mT):
        assert torch.equal(wanted, exchanged._firsts(given).long())  # type: ignore[union-attr]  # some are equal
    assert exchanged._firsts(rows[1:2]) is None
    assert [0, 1, 0, 1] == exchanged._firsts(rows[0, 0]).tolist()  # type: ignore[union-attr]  # one row is one part


def test_where_no_order_is_seen_no_exchange_is_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    """A wrong minimum was looked at in five orders, and then once more: over four minutes of admission for 0.5 GiB."""
    tried: list[int] = []
    monkeypatch.setattr(exchanged, "restored", lambda *_: tried.append(1))
    scores = "[torch.randint(0, 3, (8, 16)).float() + torch.rand(8, 1), torch.randn(16)]"
    for forward, seen in (("x.min(dim=1)[0] + v[0]", False), ("v[x.argmin(dim=1)]", True)):
        made = instance(forward, scores, args="x, v")
        leaves = made.draw(GIVEN, 7)
        answer = [torch.full((8,), 5.0)]
        result = Checker(made, seed=3).check(GIVEN, leaves, made.first_state, answer, leaves)
        assert not result.passed and bool(tried) is seen
