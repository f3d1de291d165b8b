# SPDX-License-Identifier: Apache-2.0
"""Rows, planes and samples of one number: which come, that their ranges are zero, and what may hang on their means."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import torch
from plain_tasks import instance

from kernelwright.judge import level, slices
from kernelwright.judge.borders import few_bits
from kernelwright.judge.inputs import Variant, change_leaves, generator
from kernelwright.judge.verify import Checker

ROWS, IMAGES = "[torch.randn(32, 48)]", "[torch.randn(8, 6, 12, 12)]"
BY_RANGE = "torch.where((b := x.amax({0}, True)) > (a := x.amin({0}, True)), (x - a) / (b - a), 1.0)"
Program = Callable[[torch.Tensor], torch.Tensor]


def variant_of(checker: Checker) -> Variant:
    """The variant of level groups that a case is judged on."""
    (found,) = (v for v in checker.instance.variants(5) if v.name == level.NAME)
    return found


def share(forward: str, inputs: str, program: Program, draws: int = 40) -> float:
    """Of so many draws, the part in which the answer of a program passes."""
    checker = Checker(instance(forward, inputs), seed=3)
    variant, passed = variant_of(checker), 0
    for seed in range(draws):
        leaves = checker.instance.draw(variant, seed)
        passed += checker.check(variant, leaves, None, [program(*leaves)], leaves).passed
    return passed / draws


def unless_zero(axes: tuple[int, ...]) -> Program:
    """The range of a group is taken care of where all of it is zero, and nowhere else."""

    def program(x: torch.Tensor) -> torch.Tensor:
        low, high = x.amin(axes, True), x.amax(axes, True)
        return torch.where((low != 0) | (high != 0), (x - low) / (high - low), 1.0)

    return program


@pytest.mark.parametrize(
    ("axes", "inputs", "least"),
    [((-1,), ROWS, 0.5), ((0,), ROWS, 0.5), ((2, 3), IMAGES, 0.5), ((1, 2, 3), IMAGES, 0.5), ((0, 2, 3), IMAGES, 0.25)],
)
def test_a_range_that_is_zero_comes_along_every_axis(axes: tuple[int, ...], inputs: str, least: float) -> None:
    """In half of the draws within samples, in the others across them, as far as these are half of it."""
    refused = 1.0 - share(BY_RANGE.format(axes), inputs, unless_zero(axes))
    assert refused >= least * 0.6


def test_who_takes_care_of_the_range_passes() -> None:
    """By another order of the same."""

    def program(x: torch.Tensor) -> torch.Tensor:
        wide = x.amax(-1, True) - x.amin(-1, True)
        return torch.where(wide == 0, 1.0, (x - x.amin(-1, True)) / torch.where(wide == 0, 1.0, wide))

    assert share(BY_RANGE.format((-1,)), ROWS, program) == 1.0


def mean_one_by_one(x: torch.Tensor) -> torch.Tensor:
    """Each element times a rounded 1 / n, one after another."""
    total = torch.zeros_like(x[:, :1])
    for column in x.split(1, -1):
        total = total + column * (1 / x.shape[-1])
    return total


@pytest.mark.parametrize(
    ("forward", "program"),
    [
        ("x > x.mean(-1, keepdim=True)", lambda x: x > mean_one_by_one(x)),
        ("torch.sign(x - x.mean(-1, keepdim=True))", lambda x: torch.sign(x - mean_one_by_one(x))),
        ("F.layer_norm(x, (48,)).clamp(-2, 2)", lambda x: by_hand(x).clamp(-2, 2)),
    ],
)
def test_what_hangs_on_a_rounded_mean_may_be_either(forward: str, program: Program) -> None:
    """A mean of equal numbers is that number in one program, and is off by its last bit in the next one."""
    assert share(forward, ROWS, program) == 1.0


def by_hand(x: torch.Tensor) -> torch.Tensor:
    """A layer's norm of a mean that is off by its last bit."""
    off = x - mean_one_by_one(x)
    return off * torch.rsqrt((off * off).sum(-1, keepdim=True) * (1 / x.shape[-1]) + 1e-5)


@pytest.mark.parametrize("shape", [(32, 48), (8, 6, 12, 12), (7, 4, 9)])
def test_a_level_group_holds_one_number_of_few_bits(shape: tuple[int, ...]) -> None:
    """Within the range of the leaf, a quarter of its elements at the most twice over, all others as they were."""
    leaf = torch.rand(shape, generator=torch.Generator().manual_seed(1)) + 0.1
    for seed in range(20):
        made = level.levelled(leaf, generator(seed, leaf.device))
        changed = made != leaf
        assert 0 < int(changed.sum()) <= leaf.numel() / 2
        assert bool(few_bits(made[changed].to(torch.float64)).all())
        assert float(leaf.min()) <= float(made.min()) and float(made.max()) <= float(leaf.max())
        assert made.is_contiguous() and made.dtype == leaf.dtype


def test_what_has_no_groups_stays() -> None:
    """One axis, or three rows of one element."""
    for shape in ((64,), (3, 1), ()):
        leaf = torch.randn(shape)
        assert torch.equal(level.levelled(leaf, generator(0, leaf.device)), leaf)
    assert not [
        v for v in instance("torch.where(x > 0, x, 0.0)", "[torch.randn(64)]").offered(1) if v.name == level.NAME
    ]


def test_a_number_is_cut_towards_zero_unless_that_leaves_the_range() -> None:
    """Eight bits: 0.3 becomes 153 / 512, and the least of a leaf no less."""
    values = torch.tensor([0.3, -0.3, 0.5])
    assert level._cut(values, torch.tensor([-1.0, 1.0])).tolist() == [153 / 512, -153 / 512, 0.5]
    assert level._cut(values[:1], values[[0, 2]]).tolist() == [math.ceil(0.3 * 512) / 512]


def test_an_infinity_is_not_spread_over_a_row() -> None:
    """A mask among numbers stays where it is."""
    leaf = torch.randn(32, 48)
    leaf[:, 0] = leaf[0] = -math.inf
    for seed in range(20):
        made = level.levelled(leaf, generator(seed, leaf.device))
        assert int(made.isinf().sum()) <= int(leaf.isinf().sum())


@pytest.mark.parametrize("change", sorted(slices.CHANGES))
def test_inputs_of_eight_bits_are_changed_like_others(change: str) -> None:
    """Torch neither orders them nor fills some: the judge of each task that has such inputs ended."""
    torch.manual_seed(5)
    wide = [torch.randn(8, 16), torch.randn(8, 16)]
    leaves = [leaf.to(torch.float8_e4m3fn) for leaf in wide]
    made = change_leaves(leaves, Variant(name=change, required=True, change=change), 7)
    assert [leaf.dtype for leaf in made] == [torch.float8_e4m3fn] * 2
    assert all(bool(leaf.float().isfinite().all()) for leaf in made)
    if change == "blank samples":
        empty = (made[0].float() == 0).all(1)
        assert bool(empty.any()) and not bool(empty.all())
