# SPDX-License-Identifier: Apache-2.0
"""judge/comparisons.py: whole numbers of which what a reference compares is equal are solved for with the reference."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from plain_tasks import instance

from kernelwright.judge import comparisons
from kernelwright.judge.comparisons import COMPARES, MET, TRIPLE, met
from kernelwright.judge.instance import Instance
from kernelwright.task import Contract

SEEDS = range(12)
WIDE = "torch.randint(0, 2**40, (256,))"


def drawn(made: Instance, seed: int) -> list[torch.Tensor]:
    """A draw of the task's own."""
    return [leaf.clone() for leaf in made._raw(seed)[0]]


def most(made: Instance, holds: Callable[..., torch.Tensor]) -> list[int]:
    """In each of some draws: in how many places it holds, for all of which it held nowhere before."""
    found = []
    for seed in SEEDS:
        before = drawn(made, seed)
        assert not holds(*before).any()
        after = met(made, before, seed)
        assert all(torch.equal(one, again) for one, again in zip(before, drawn(made, seed), strict=True))
        for one, other in zip(before, after, strict=True):
            assert one.dtype == other.dtype and one.min() <= other.min() and other.max() <= one.max()
        found.append(int(holds(*after).sum()))
    return found


@pytest.mark.parametrize(
    ("forward", "inputs", "args", "holds"),
    [
        ("a + b <= c", f"[{WIDE}, {WIDE}, {WIDE}]", "a, b, c", lambda a, b, c: a + b == c),
        (
            "coins.sum(-1) >= bill",
            "[torch.randint(0, 2**34, (64,)), torch.randint(0, 2**31, (64, 16))]",
            "bill, coins",
            lambda bill, coins: coins.sum(-1) == bill,
        ),
        ("torch.sign(x.sum(-1))", "[torch.randint(-2**30, 2**30, (64, 12))]", "x", lambda x: x.sum(-1) == 0),
        ("(a - b) % 1000000007 == 0", f"[{WIDE}, {WIDE}]", "a, b", lambda a, b: (a - b) % 1000000007 == 0),
        ("(a + b) // 1000000007", f"[{WIDE}, {WIDE}]", "a, b", lambda a, b: (a + b) % 1000000007 == 0),
        ("(a + b) % 1000000007", f"[{WIDE}, {WIDE}]", "a, b", lambda a, b: (a + b) % 1000000007 == 0),
        (
            "(x[:, ::2].sum(-1) < x[:, 1::2].sum(-1))",
            "[torch.randint(0, 2**40, (64, 8))]",
            "x",
            lambda x: x[:, ::2].sum(-1) == x[:, 1::2].sum(-1),
        ),
    ],
    ids=["sum", "total", "zero", "rest", "quotient", "remainder", "halves"],
)
def test_sides_that_never_meet_by_lot_meet_in_most_draws(
    forward: str, inputs: str, args: str, holds: Callable[..., torch.Tensor]
) -> None:
    """In a tenth of the rows and more, and in none that was drawn."""
    found = most(instance(forward, inputs, args=args), holds)
    assert sum(count >= 6 for count in found) >= len(SEEDS) * 2 // 3


def test_a_whole_row_meets_where_the_reference_asks_for_all_of_it() -> None:
    """A running total is one where each number is: one place of six in a row says False as before."""
    made = instance(
        "(a.cumsum(-1) == b).all(-1)",
        "[torch.randint(0, 1000, (64, 6)), torch.randint(0, 6000, (64, 6))]",
        args="a, b",
    )
    found = most(made, lambda a, b: (a.cumsum(-1) == b).all(-1))
    assert sum(count >= 8 for count in found) >= len(SEEDS) // 4


def test_a_draw_is_one_aside_in_some_rows() -> None:
    """Who takes ``< x + 1`` for ``<`` is right where both sides are equal."""
    made = instance("a <= b", f"[{WIDE}, {WIDE}]", args="a, b")
    apart = torch.cat([torch.sub(*met(made, drawn(made, seed), seed)) for seed in SEEDS])
    assert all((apart == step).sum() > 16 for step in (-1, 0, 1))


def test_squares_that_add_up_to_a_square_come_where_nothing_is_solved() -> None:
    """No step of one number is exact there. Each of the three is the longest in some rows, or one order by lot would
    leave the right one out of a proof."""
    small = "torch.randint(1, 2**20, (512,))"
    made = instance("x * x + y * y <= r * r", f"[{small}, {small}, {small}]", args="x, y, r")
    found = [met(made, drawn(made, seed), seed) for seed in range(40)]
    hits = [int((x * x + y * y == r * r).sum()) for x, y, r in found]
    assert TRIPLE == (3, 4, 5) and min(hits) > 40


def test_what_lies_in_order_or_is_no_number_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    """Offsets of segments are no numbers of which any may come; floats round, each program in its own way; of pairs of
    all there are too many, and of runs of a slow reference."""
    offsets = instance("x[:-1] < x[1:]", "[torch.arange(33) * 5 + torch.randint(0, 5, (33,))]")
    floats = instance("(a + b < c)", "[torch.randn(64), torch.randn(64), torch.randn(64)]", args="a, b, c")
    pairs = "[torch.randint(0, 2**40, (300,)), torch.randint(0, 2**40, (300,))]"
    large = instance("(x[:, None] == y[None]).any(-1)", pairs, args="x, y")
    assert 300 * 300 > comparisons.CELLS
    for made in (offsets, floats, large):
        before = drawn(made, 1)
        assert all(one is other for one, other in zip(before, met(made, before, 1), strict=True))
    slow = instance("a <= b", f"[{WIDE}, {WIDE}]", args="a, b")
    slow.work = comparisons.WORK
    monkeypatch.setattr(comparisons, "_Try", lambda *_: pytest.fail("the reference was run"))
    before = drawn(slow, 1)
    assert met(slow, before, 1) is before


def test_such_draws_are_offered_to_who_compares_whole_numbers() -> None:
    """And to nobody else."""
    compares = instance("a <= b", f"[{WIDE}, {WIDE}]", args="a, b")
    adds = instance("a + b", f"[{WIDE}, {WIDE}]", args="a, b")
    floats = instance("torch.relu(x) * (x > 1)", "[torch.randn(64, 8)]")
    assert COMPARES in compares.met["traits"] and COMPARES not in adds.met["traits"]
    assert [MET in {v.change for v in made.offered(1)} for made in (compares, adds, floats)] == [True, False, False]
    random_ = instance(
        "(torch.rand(64) < 0.5).long() * (x > 3)", "[torch.randint(0, 99, (64,))]", contract=Contract(random=True)
    )
    before = drawn(random_, 1)
    assert met(random_, before, 1) is before


def test_triangles_without_area_come_and_such_with_the_least() -> None:
    """Of points far apart, in some draws."""
    points = "torch.randint(0, 100000, (256, 2))"
    area = "(b - a)[:, 0] * (c - a)[:, 1] - (b - a)[:, 1] * (c - a)[:, 0]"
    made = instance(f"torch.sign({area})", f"[{points}, {points}, {points}]", args="a, b, c")
    flat = least = 0
    for seed in SEEDS:
        a, b, c = met(made, drawn(made, seed), seed)
        found = (b - a)[:, 0] * (c - a)[:, 1] - (b - a)[:, 1] * (c - a)[:, 0]
        far = (b - a).abs().amax(-1) > 10000
        flat, least = flat + int(((found == 0) & far).sum()), least + int(((found.abs() == 1) & far).sum())
        assert all(0 <= int(leaf.min()) and int(leaf.max()) < 100000 for leaf in (a, b, c))
    assert flat > 40 and least > 40
