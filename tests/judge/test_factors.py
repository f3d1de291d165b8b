# SPDX-License-Identifier: Apache-2.0
"""Values whose signs, and sizes, differ between inputs."""

from __future__ import annotations

import pytest
import torch

from kernelwright.judge import factors, singled
from kernelwright.judge.buffers import TensorSpec
from kernelwright.judge.inputs import Variant, change_leaves

FLOAT = TensorSpec(shape=(32, 48), stride=(48, 1), offset=0, dtype="float32")


def drawn(variant: Variant, seed: int) -> list[torch.Tensor]:
    return change_leaves([torch.rand(32, 48) + 0.1, torch.rand(32, 48) + 0.1], variant, seed)


def variants(inputs: int) -> dict[str, Variant]:
    return {
        variant.name: variant for variant in singled.differing([FLOAT] * inputs, (1.0, 1e-3, 1e3), 1000, weights=False)
    }


def test_products_of_positive_inputs_are_negative_too() -> None:
    x, y = drawn(variants(2)[factors.SIGNS], 1)
    negative = float((x * y < 0).float().mean())
    assert 0.4 < negative < 0.6


def test_quotients_have_other_sizes() -> None:
    sizes = [float((x / y).abs().max()) for x, y in (drawn(variants(2)[factors.SIZES], seed) for seed in range(8))]
    assert max(sizes) > 1e3


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64])
@pytest.mark.parametrize("shape", [(), (1,), (7,), (3, 1), (2, 3, 4)])
def test_types_and_shapes_stay(dtype: torch.dtype, shape: tuple[int, ...]) -> None:
    rng = torch.Generator().manual_seed(0)
    for change in (factors.signed, factors.sized, factors.sliced, factors.both_ways, factors.outlying):
        for _ in range(4):
            made = change(torch.ones(shape, dtype=dtype), 20.0, rng)
            assert made.dtype is dtype and made.shape == shape


def test_one_input_has_no_sizes_of_its_own() -> None:
    assert list(variants(1)) == [factors.SIGNS]


def test_mixed_rows_of_two_inputs_have_other_signs() -> None:
    """Dear cases have all changes in one draw, and those over 2e10 multiply-adds no other."""
    x, y = (torch.rand(512, 16) + 0.1 for _ in range(2))
    some = Variant(name="", required=True, change="mixed", factors=(1e-3, 1e3))
    made, other = change_leaves([x, y], some, 3)
    assert bool((made * other < 0).any())


def test_slices_along_every_axis_have_sizes_of_their_own() -> None:
    """A channel, a sample or a head of a thousandth of the others' size was taken for zero, a block of rows, or a tile;
    one is as it was."""
    rng, leaf = torch.Generator().manual_seed(0), torch.ones(8, 16, 12)
    found, blocks, strides = set[tuple[int, ...]](), set[int](), set[tuple[int, ...]]()
    for _ in range(200):
        made = factors.sliced(leaf, 1.0, rng)
        assert float(made.max()) == 1.0 and 2.0**-factors.DEEPEST <= float(made.min())
        smaller = made < 1
        lines = [smaller.movedim(axis, 0).flatten(1).any(1) for axis in range(3)]
        assert torch.equal(smaller, lines[0][:, None, None] & lines[1][:, None] & lines[2])
        axes = tuple(axis for axis in range(3) if not bool(lines[axis].all()))
        found.add(axes)
        if axes == (1,):
            blocks |= {len(run) for run in "".join("01"[int(one)] for one in lines[1]).split("0") if run}
            strides.add(tuple(lines[1].nonzero().diff(dim=0).reshape(-1).tolist()))
    assert {(0,), (1,), (2,), (0, 1), (1, 2)} <= found and {1, 2, 4, 8} <= blocks
    assert (2,) * 7 in strides, "every second channel"


@pytest.mark.parametrize("shape", [(64, 32), (8, 16, 12), (7, 9), (40,)])
def test_lines_lie_far_up_and_down_and_the_mean_of_all_stays(shape: tuple[int, ...]) -> None:
    """Who asks the mean of all whether E[x^2] - E[x]^2 cancels hears that it does not."""
    rng, leaf = torch.Generator().manual_seed(0), torch.randn(shape)
    kinds = set()
    for _ in range(24):
        made = factors.both_ways(leaf, 1.0, rng)
        size = float(leaf.square().mean().sqrt())
        moved = (made - leaf).double() / size
        up, down = moved > 20, moved < -20
        assert int(up.sum()) == int(down.sum()) > 0
        assert abs(float(moved.mean())) < 1e-4
        assert bool((up | down | (moved.abs() < 1e-3)).all())
        kinds.add(bool((up == up.select(-1, 0).unsqueeze(-1)).all()))
    assert kinds == ({True, False} if len(shape) > 1 else {False})
    if len(shape) == 3:
        groups = [factors.both_ways(leaf, 1.0, rng) > 20 for _ in range(90)]
        assert any(bool((up[:, :8].all() or up[:, 8:].all()) and up.any((0, 2)).sum() == 8) for up in groups)
        assert any(bool((up[:, ::2].all() or up[:, 1::2].all()) and up.any((0, 2)).sum() == 8) for up in groups)


def test_groups_are_of_sizes_that_divide_nothing_too() -> None:
    """Chunks of eight of 63 rows; two groups of nine channels."""
    rng = torch.Generator().manual_seed(0)
    for size, wanted in ((63, 8), (18, 9)):
        seen = [factors._groups(size, rng).tolist() for _ in range(200)]
        assert [place // wanted for place in range(size)] in seen
        assert all(sorted(set(one)) == list(range(max(one) + 1)) for one in seen)
        alone = sum(one == list(range(size)) for one in seen)
        assert 40 < alone < 100
    assert [0, 1, 2] == factors._groups(3, rng).tolist()


def test_a_single_outlier_is_no_infinity_where_those_are_masks() -> None:
    rng, leaf = torch.Generator().manual_seed(0), torch.tensor([[0.0, -torch.inf], [0.0, 0.0]])
    assert all(torch.equal(leaf, factors.outlier(leaf, rng)) for _ in range(20))
