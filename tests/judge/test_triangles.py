# SPDX-License-Identifier: Apache-2.0
"""Inputs that are triangular in every draw stay so, and nothing else is taken for one."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
import torch
from plain_tasks import instance

from kernelwright.judge import facts, renewed, variants
from kernelwright.judge.instance import Instance
from kernelwright.judge.reference import Reference
from kernelwright.judge.triangles import kept_so, kind, triangular, words_of
from kernelwright.task import Task

SQUARE = torch.arange(1.0, 37.0).reshape(6, 6)


@pytest.mark.parametrize(
    ("leaf", "found"),
    [
        (SQUARE.triu(), "upper"),
        (torch.stack([SQUARE.tril(), 2 * SQUARE.tril()]), "lower"),
        (SQUARE.triu().tril(), "diagonal"),
        (SQUARE[:, :4].triu(), "upper"),
        (torch.stack([SQUARE.tril(), SQUARE]), ""),
        (SQUARE.triu(-1), ""),
        (SQUARE, ""),
        (SQUARE.triu().long(), ""),
        (torch.zeros(6, 6), ""),
        (SQUARE.triu()[:3, :3], ""),
        (SQUARE.triu()[:3, :3].expand(2, 3, 3), "upper"),
        (SQUARE.tril()[:2, :2].expand(5, 2, 2), ""),
        (SQUARE.tril()[:2, :2].expand(6, 2, 2), "lower"),
        (SQUARE.triu()[:2].expand(64, 2, 6), ""),
        (torch.complex(SQUARE, SQUARE).tril(), "lower"),
        (torch.complex(SQUARE.tril(), SQUARE), ""),
        (torch.full((6, 6), -torch.inf).triu(1), ""),
        (SQUARE[0], ""),
        (torch.zeros(0, 6, 6), ""),
    ],
)
def test_what_counts_as_triangular(leaf: torch.Tensor, found: str) -> None:
    assert found == kind(leaf)


def test_only_what_changes_between_draws_and_stays_triangular_counts() -> None:
    """The same lower triangle in every draw may be a mask of ones."""
    mask = torch.ones(6, 6).triu()
    first, second = [SQUARE.triu(), SQUARE.triu(), mask], [2 * SQUARE.triu(), 2 * SQUARE, mask]
    found = triangular(first, second, {2})
    assert {0: "upper"} == found
    moved = kept_so([SQUARE - 50.0, SQUARE], found)
    assert torch.equal((SQUARE - 50.0).triu(), moved[0]) and torch.equal(SQUARE, moved[1])
    assert "input a is upper triangular" in words_of(found, ["a", "b"])[0]


ROOT = torch.linalg.cholesky(0.6 ** (torch.arange(8.0)[:, None] - torch.arange(8.0)).abs())


def test_constant_roots_stay_triangular_and_masks_do_not() -> None:
    """In another order, too. One number beside zeros is a mask, and a zero on the diagonal makes no root."""
    dice = torch.Generator().manual_seed(3)
    for root, name in ((ROOT, "lower"), (ROOT.mT, "upper")):
        assert {0: name} == triangular([root], [root], {0})
        made, other = renewed.rerandomise(root, dice), renewed.permuted(root, dice)
        for leaf in (made, other):
            assert torch.equal(leaf, kept_so([leaf], {0: name})[0]) and bool((leaf.diagonal() > 0).all())
            assert not torch.equal(leaf, root) and float(torch.linalg.cond(leaf)) < 1e4
        assert torch.equal(root.reshape(-1).sort().values, other.reshape(-1).sort().values)
    for mask in (torch.ones(8, 8).tril(), ROOT.tril(-1), torch.full((8, 8), 0.5).tril(), torch.eye(8), ROOT[:, :6]):
        assert not triangular([mask], [mask], {0})
    ones = renewed.rerandomise(torch.ones(8, 8).tril(), dice)
    assert bool(ones.triu(1).any())


def test_a_constant_root_is_triangular_in_every_change() -> None:
    made = instance("torch.linalg.solve(m, x)", "[torch.randn(8, 16), torch.linalg.cholesky(0.6 ** (torch.arange(8.0)"
                    "[:, None] - torch.arange(8.0)).abs())]", args="x, m")  # fmt: skip
    assert {1: "lower"} == made.triangles
    assert not any(made.draw(v, 5)[1].triu(1).any() for v in made.offered(3) if v.layout == "contiguous")


TASK = Task(
    name="triangles",
    form="kernelbench",
    reference="""
import torch
from torch import nn


class Model(nn.Module):
    def forward(self, a, b):
        return a @ b


def get_inputs():
    return [torch.tril(torch.rand(16, 16)), torch.rand(16, 16)]


def get_init_inputs():
    return []
""",
)


def test_every_change_of_value_keeps_the_zeros_of_an_instance_and_the_facts_say_so() -> None:
    """Those of the race too, which change draws that were made elsewhere."""
    instance = Instance(Reference(TASK, torch.device("cpu")), TASK.timed_case(), 3)
    assert {0: "lower"} == instance.triangles
    assert any("is lower triangular in every draw" in note for note in instance.notes)
    offered = [v for v in instance.variants(5) if v.layout == "contiguous"]
    changes = [*offered, *variants.mixed(TASK.contract), *variants.mixed(TASK.contract, few=True)]
    assert any(v.change == "shifted" for v in changes)
    for variant in changes:
        for leaves in (instance.draw(variant, 7), instance.changed([SQUARE.new_ones(16, 16)] * 2, variant, 7)):
            assert not leaves[0].triu(1).any(), variant.name
    assert instance.draw(dataclasses.replace(offered[0], change="shifted"), 7)[1].triu(1).any()
    point: Any = type("Point", (), {"instance": instance, "case": TASK.timed_case()})
    assert ["lower", None] == [leaf.get("triangle") for leaf in facts._point(point)["inputs"]]
