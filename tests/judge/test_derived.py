# SPDX-License-Identifier: Apache-2.0
"""Floats that differ by classes which the reference makes of other floats."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from plain_tasks import instance

from kernelwright.judge import derived
from kernelwright.judge.derived import FAR_BY, SIZED_BY
from kernelwright.judge.inputs import Variant
from kernelwright.judge.instance import Instance
from kernelwright.task import Contract

EXPERTS = "x - x[l.argmax(1)]"
ROWS = "[torch.randn(64, 8), torch.randn(64, 4)]"
SPLIT = "((f[:, None] <= t[None]) * y[:, None]).sum(0)"
SIDES = "[torch.randn(64), torch.rand(64), torch.rand(16)]"


def of_its_own(made: Instance) -> set[str]:
    """The changes of this kind that a case has."""
    return {v.change for v in made.offered(1) if v.change in derived.CHANGES and made.usable(v, 5)}


def test_rows_of_an_expert_lie_apart_from_those_of_others_and_the_logits_stay() -> None:
    """All rows of one as far; some up, some down; or some of them smaller."""
    made = instance(EXPERTS, ROWS, args="x, l")
    assert of_its_own(made) == {FAR_BY, SIZED_BY}
    plain = Variant(name="", required=True)
    for seed in range(8):
        x, logits = made.draw(plain, seed)
        kinds = logits.argmax(1)
        far, same = made.draw(Variant(name="", required=True, change=FAR_BY), seed)
        assert torch.equal(logits, same)
        by = torch.stack([(far - x)[kinds == kind].mean() for kind in range(4)])
        assert bool((by.abs() > 10).all()) and by.min() < 0 < by.max()
        assert all(float((far - x)[kinds == kind].std()) < 1e-2 for kind in range(4))
        small, same = made.draw(Variant(name="", required=True, change=SIZED_BY), seed)
        assert torch.equal(logits, same) and not torch.equal(small, x)
        assert all(float((small / x)[kinds == kind].std()) < 1e-5 for kind in range(4))


def test_sides_of_a_split_lie_apart_and_thresholds_are_one_where_there_are_many() -> None:
    """What is small by one of 16 thresholds is large by all the others."""
    made = instance(SPLIT, SIDES, args="y, f, t")
    assert of_its_own(made) == {FAR_BY, SIZED_BY}
    alike = 0
    for seed in range(12):
        y, f, t = made.draw(Variant(name="", required=True, change=FAR_BY), seed)
        alike += int(len(t.unique()) == 1)
        apart = [
            bool((y[f <= one] > 10).all() and (y[f > one] < -10).all())
            or bool((y[f <= one] < -10).all() and (y[f > one] > 10).all())
            for one in t
        ]
        assert any(apart) and (all(apart) or len(t.unique()) > 1)
    assert 4 <= alike < 12


@pytest.mark.parametrize(
    ("formula", "inputs"),
    [
        ("x * (x > 0) + l", "[torch.randn(64, 8), torch.randn(64, 8)]"),
        ("x[torch.arange(64) % 4 > 1] @ l.T", ROWS.replace("64, 4", "64, 8")),
        ("(x @ l).argmax(1)", "[torch.randn(16, 8), torch.randn(8, 4)]"),
        ("x + l", "[torch.randn(64, 8), torch.randn(64, 8)]"),
    ],
)
def test_what_decides_itself_is_not_moved_nor_by_what_no_input_decides(formula: str, inputs: str) -> None:
    """A mask of its own sign may move another input alone; places decide nothing."""
    made = instance(formula, inputs, args="x, l")
    moved = {index for pair in derived.of(made) for index in pair.fit}
    assert moved <= {1}
    if "x > 0" not in formula:
        assert not of_its_own(made)


@pytest.mark.parametrize("formula", ["x - x[(l * 4).long()[:, 0] % 4]", "x * l.sign()[:, :1]", "x * (l[:, :1] > 0.2)"])
def test_classes_are_floors_signs_and_comparisons_too(formula: str) -> None:
    """Of floats: an operator that rounds them, or makes flags or places of them."""
    made = instance(formula, "[torch.randn(64, 8), torch.rand(64, 4) - 0.5]", args="x, l")
    assert {index for pair in derived.of(made) for index in pair.fit} == {0}


def moved_by(made: Instance, change: str, seed: int, state: object = None) -> torch.Tensor:
    """By how much the last input, of floats, is moved; others stay."""
    plain = Variant(name="", required=True)
    (*others, x), (*same, far) = (
        made.draw(plain, seed),
        made.draw(Variant(name="", required=True, change=change), seed, state),
    )
    assert all(torch.equal(one, other) for one, other in zip(others, same, strict=True))
    return far - x


@pytest.mark.parametrize(
    ("formula", "init", "classes"),
    [
        ("F.one_hot(i // 16, 8).float().T @ x", "", lambda i, made: i // 16),
        ("F.one_hot(i % 5, 5).float().T @ x", "", lambda i, made: i % 5),
        ("x * (i > 40)[:, None]", "", lambda i, made: (i > 40).long()),
        ("F.one_hot((i.to(torch.uint8) // 16).long(), 8).float().T @ x", "", lambda i, made: i // 16),
        ("x * (i.float().sqrt() > 6.5)[:, None]", "", lambda i, made: (i > 42).long()),
        (
            "x - x[self.m[i]]",
            "self.register_buffer('m', torch.randperm(128) % 6)",
            lambda i, made: dict(made.first_state)["m"][i],
        ),
    ],
)
def test_classes_made_of_whole_numbers_lie_apart_as_a_whole(formula: str, init: str, classes: Any) -> None:
    """Each class goes one way, or stays beside one other; the numbers that come in stay. Ids by lot are in each."""
    made = instance(formula, "[torch.randint(0, 128, (256,)), torch.randn(256, 4)]", init=init, args="i, x")
    assert of_its_own(made) == {FAR_BY, SIZED_BY}
    apart = 0
    for seed in range(12):
        kinds = classes(made.draw(Variant(name="", required=True), seed)[0], made)
        far = moved_by(made, FAR_BY, seed)
        whole = [far[kinds == kind] for kind in kinds.unique()]
        assert float(far.abs().min()) > 10
        apart += all(float(part.std()) < 1e-2 for part in whole)
    assert apart >= 6, "other classes are columns of one_hot, or what a buffer takes"


@pytest.mark.parametrize(("init", "rows"), [("randperm(16)[:8]", 1), ("randperm(16)[:8].view(2, 4)", 2)])
def test_columns_that_a_buffer_of_indices_takes_lie_apart_beside_new_buffers_too(init: str, rows: int) -> None:
    """Of a square by its columns, no rows; by the buffer that the weights of the call have."""
    made = instance(
        "x[:, self.idx].sum(-1)", "[torch.randn(16, 16)]", init=f"self.register_buffer('idx', torch.{init})"
    )
    offered = [v for v in made.offered(1) if v.change == FAR_BY]
    assert [v.fresh_weights for v in offered] == [False, *[True] * 6] and all(made.usable(v, 3) for v in offered)
    frozen = instance(
        "x[:, self.idx].sum(-1)",
        "[torch.randn(16, 16)]",
        init=f"self.register_buffer('idx', torch.{init})",
        contract=Contract(frozen_parameters=True),
    )
    assert [v.fresh_weights for v in frozen.offered(1) if v.change == FAR_BY] == [False]
    for seed in range(6):
        state = made.draw_state(seed) if seed % 2 else made.first_state
        groups = dict(state)["idx"].view(rows, -1)
        far = moved_by(made, FAR_BY, seed, state)
        columns = far.mean(0)
        assert float(far.std(0).max()) < 1e-2 and float(far.abs().min()) > 10
        assert all(float(columns[group].std()) < 1e-2 for group in groups)
        assert columns.min() < 0 < columns.max()


def test_labels_in_a_buffer_are_classes_and_places_that_come_in_once_are_none() -> None:
    """Numbers of which each comes once, or that take all places, put nothing apart."""
    labels = "self.register_buffer('k', torch.arange(64) % 3)"
    made = instance("torch.zeros(3, 4).index_add(0, self.k, x)[i]", "[torch.randint(0, 3, (8,)), torch.randn(64, 4)]",
                    init=labels, args="i, x")  # fmt: skip
    assert any(pair.kind == derived.HELD for pair in derived.of(made))
    order = "self.register_buffer('k', torch.randperm(64))"
    assert derived.of(instance("x[self.k]", "[torch.randn(64, 4)]", init=order)) == ()
    plain = instance("x + 1.0", "[torch.randn(64, 4)]", init=labels)
    assert not of_its_own(plain)


@pytest.mark.parametrize(
    "formula",
    ["x[:, self.m].var(1)", "(x * self.m).sum(1)", "x.masked_fill(~self.m, 0.0)", "x[:, self.m.nonzero()[:, 0]]"],
)
@pytest.mark.parametrize("shape", ["(32, 16)", "(16, 16)"])
def test_columns_that_flags_of_a_buffer_select_lie_apart(formula: str, shape: str) -> None:
    """Of a square where they are taken by flags; all flags that are one say nothing, nor does a mask of places by
    places."""
    init = "self.register_buffer('m', torch.arange(16) % 5 {})"
    made = instance(formula, f"[torch.randn({shape})]", init=init.format("== 1"))
    assert of_its_own(made) == {FAR_BY, SIZED_BY}
    apart = 0
    for seed in range(8):
        columns = moved_by(made, FAR_BY, seed).mean(0)
        sides = columns[made.model.m], columns[~made.model.m]
        apart += all(float(side.std()) < 1e-2 for side in sides) and abs(float(sides[0][0] - sides[1][0])) > 10
    assert apart == 8 if shape == "(32, 16)" else apart >= 1 or "self.m]" not in formula
    assert not of_its_own(instance(formula, f"[torch.randn({shape})]", init=init.format("< 5")))
    init_floats = "self.register_buffer('m', (torch.arange(16) % 5 {}).float())"
    times = formula.replace("self.m]", "self.m > 0]").replace("~self.m", "self.m < 1")
    floats = (instance(times, f"[torch.randn({shape})]", init=init_floats.format(how)) for how in ("== 1", "< 5"))
    assert [of_its_own(one) for one in floats] == [{FAR_BY, SIZED_BY}, set()], (
        "zeros and ones are flags, ones alone are not"
    )
    square = "self.register_buffer('m', torch.ones(16, 16).tril() > 0)"
    assert not of_its_own(instance("x.masked_fill(~self.m, 0.0)", f"[torch.randn({shape.replace('32', '4, 16')})]",
                                   init=square))  # fmt: skip


def test_random_references_and_dear_ones_are_not_asked() -> None:
    """A search costs a call for each input; of random results those are asked of which one is none."""
    made = instance(f"F.dropout({EXPERTS})", ROWS, args="x, l", contract=Contract(random=True))
    assert derived.of(made) == ()
    made = instance(f"(F.dropout(x), {EXPERTS})", ROWS, args="x, l", contract=Contract(random=True))
    assert {index for pair in derived.of(made) for index in pair.fit} == {0}, "one answer is the same in all runs"
    dear = instance(EXPERTS, ROWS, args="x, l")
    dear.work = 10**9
    assert derived.of(dear) == ()
    larger = instance(EXPERTS, ROWS, args="x, l")
    larger.work = 5 * 10**7
    assert len(derived.of(larger)) == 1
