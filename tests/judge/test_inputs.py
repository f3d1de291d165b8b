# SPDX-License-Identifier: Apache-2.0
"""Fresh inputs and weights: new values of the old kind."""

from __future__ import annotations

import random

import numpy as np
import pytest
import torch

from kernelwright.judge import dealing, inputs, layouts, renewed
from kernelwright.judge.buffers import TensorSpec
from kernelwright.judge.inputs import Variant


def rng(seed: int = 0) -> torch.Generator:
    """A generator on the CPU."""
    return inputs.generator(seed, "cpu")


def test_seeded_restores_all_three_generators() -> None:
    """Drawing inputs leaves no trace in the process."""
    random.seed(1)
    np.random.seed(1)
    torch.manual_seed(1)
    expected = random.random(), np.random.rand(), torch.rand(1).item()
    random.seed(1)
    np.random.seed(1)
    torch.manual_seed(1)
    with inputs.seeded(2**61):
        inside = random.random(), np.random.rand(), torch.rand(1).item()
    assert expected == (random.random(), np.random.rand(), torch.rand(1).item())
    assert expected != inside


@pytest.mark.parametrize(
    "constant",
    [torch.ones(64), torch.zeros(64), torch.full((8, 8), -3.0), torch.arange(64.0), torch.eye(8), torch.randn(8, 8)],
)
def test_constant_tensors_get_values_of_their_own_kind(constant: torch.Tensor) -> None:
    """New values; same shape, dtype and sign of the constant; sorted stays sorted, zeros and ones stay so."""
    fresh = renewed.rerandomise(constant, rng())
    assert (constant.shape, constant.dtype) == (fresh.shape, fresh.dtype)
    assert not torch.equal(constant, fresh)
    if float(constant.min()) == float(constant.max()) != 0.0:
        assert torch.equal(constant.sign(), fresh.sign())
    if torch.equal(constant, torch.arange(64.0)):
        assert bool((fresh[1:] >= fresh[:-1]).all())


def test_constant_matrices_that_are_symmetric_stay_so() -> None:
    """Diagonal, definite, and zeros and ones with the same diagonal, as they were; and in another order too."""
    dice = rng()
    half = torch.randn(3, 6, 9, generator=dice)
    edges = (torch.rand(12, 12, generator=dice) < 0.3).to(torch.float32).triu(1)
    for constant in (torch.eye(8), half @ half.mT, edges + edges.mT + torch.eye(12)):
        fresh, other = renewed.rerandomise(constant, dice), renewed.permuted(constant, dice)
        for made in (fresh, other):
            assert torch.allclose(made, made.mT) and made.dtype is constant.dtype
            lost = [bool((torch.linalg.cholesky_ex(one.double()).info > 0).any()) for one in (constant, made)]
            assert lost[0] or not lost[1]
        assert not torch.equal(constant, fresh)
        assert torch.equal(constant.reshape(-1).sort().values, other.reshape(-1).sort().values)
    assert {0.0, 1.0} == set(fresh.unique().tolist()) and bool((fresh.diagonal() == 1).all())
    assert torch.equal(torch.eye(8) != 0, renewed.rerandomise(torch.eye(8), dice) != 0)
    one_sided = renewed.rerandomise(edges, dice)
    assert {0.0, 1.0} == set(one_sided.unique().tolist())


def test_masks_with_infinities_are_structure_and_stay() -> None:
    """An additive attention mask is not made of numbers."""
    mask = torch.full((4, 4), float("-inf")).triu(1)
    assert torch.equal(mask, renewed.rerandomise(mask, rng()))


@pytest.mark.parametrize("layout", ["strided", "offset", "transposed"])
def test_layouts_change_the_memory_and_not_the_values(layout: str) -> None:
    """What the candidate is handed lies where the layout says."""
    values = torch.randn(3, 5)
    laid = layouts.lay_out(values, layout)
    assert torch.equal(values, laid)
    expected = {"strided": ((10, 2), 0), "offset": ((5, 1), 1), "transposed": ((1, 3), 0)}[layout]
    assert expected == (laid.stride(), laid.storage_offset())


def test_one_row_for_all_lies_in_memory_once() -> None:
    """Floats of two axes and more: whole numbers may be places to write to, of which none comes twice."""
    values = torch.randn(6, 5)
    laid = layouts.lay_out(values, layouts.EXPANDED)
    assert laid.stride() == (0, 1) and torch.equal(laid, values[:1].expand(6, 5)) and laid.storage_offset() == 0
    assert laid.untyped_storage().nbytes() == 20
    spec = layouts.spec_of(TensorSpec.like(values), layouts.EXPANDED)
    assert spec.stride == (0, 1) and spec.nbytes() == 20
    target = torch.zeros(5).expand(6, 5)
    layouts.write(target, laid)
    assert torch.equal(target, laid)
    for other in (torch.arange(6).view(3, 2), torch.randn(7), torch.randn(1, 4), torch.rand(3, 4) < 0.5):
        same = layouts.lay_out(other, layouts.EXPANDED)
        assert torch.equal(same, other) and same.stride() == other.stride()
        assert layouts.spec_of(TensorSpec.like(other), layouts.EXPANDED) == TensorSpec.like(other)


def test_sparse_thins_one_input_and_leaves_a_value_in_every_row() -> None:
    """All inputs thinned would leave nothing of a product."""
    leaves = [torch.rand(16, 512) + 1, torch.rand(512, 16) + 1]
    thin = inputs.change_leaves(leaves, Variant(name="s", required=True, change="sparse"), seed=0)
    assert torch.equal(leaves[1], thin[1])
    kept = (thin[0] != 0).sum(1)
    assert 1 <= int(kept.min()) <= int(kept.max()) < 64


MASK = torch.full((16, 16), float("-inf")).triu(1)
CHANGES = (
    *("negated", "shifted", "far", "outliers", "sparse", "sparser"),
    *("zero rows", "near-duplicate", "mixed", "strewn"),
)


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("scale", [1.0, 0.0, 1e-3, 1e3])
def test_a_mask_that_adds_infinities_stays_one(change: str, scale: float) -> None:
    """-inf times 0 is NaN, and negated it is what nobody adds to scores: the reference then accepted a change or not by
    the leaf that a seed had picked. Everything beside it is changed as ever, whatever the seed."""
    variant = Variant(name="v", required=True, change=change, scale=scale, factors=(1e-3, 1e3))
    for seed in range(4):
        leaves = [torch.randn(16, 16, generator=rng(seed)) for _ in range(2)]
        first, mask, second = inputs.change_leaves([leaves[0], MASK, leaves[1]], variant, seed)
        assert torch.equal(MASK, mask)
        assert not torch.equal(leaves[0], first) or not torch.equal(leaves[1], second)


@pytest.mark.parametrize("change", CHANGES)
def test_a_bias_keeps_its_infinities_and_has_its_numbers_changed(change: str) -> None:
    """A position bias under a causal mask is both, here in half precision."""
    bias = (MASK + torch.randn(16, 16, generator=rng())).half()
    variant = Variant(name="v", required=True, change=change, factors=(0.5, 2.0))
    drawn = [inputs.change_leaves([bias], variant, seed)[0] for seed in range(8)]
    for changed in drawn:
        assert torch.equal(bias.isneginf(), changed.isneginf()) and changed.dtype is torch.float16
        assert bool(changed[~bias.isneginf()].isfinite().all())
    assert not all(torch.equal(bias, changed) for changed in drawn)


def test_near_duplicates_differ_in_one_element() -> None:
    """A cache that looks at a sample of the input takes them for equal."""
    leaves = [torch.randn(16, 16)]
    near = inputs.change_leaves(leaves, Variant(name="n", required=True, change="near-duplicate"), seed=4)
    assert 1 == int((near[0] != leaves[0]).sum())


def test_draws_are_equal_but_for_what_lies_at_an_end() -> None:
    """The last element alone, or at either end of some axes; always at the same one, with values that the input has."""
    leaf = torch.randn(4, 6, 5)
    for seed in (1, 2, 3):
        last = Variant(name="n", required=True, change="near-duplicate", strewn="last", seed=seed)
        made = inputs.change_leaves([leaf], last, seed + 7)[0]
        assert [[3, 5, 4]] == (made != leaf).nonzero().tolist() and bool((leaf == made[3, 5, 4]).any())
    wheres = set()
    for seed in range(60):
        end = Variant(name="n", required=True, change="near-duplicate", strewn="end", seed=seed)
        drawn = [inputs.change_leaves([leaf], end, draw)[0] for draw in range(4)]
        changed = torch.stack([made != leaf for made in drawn]).any(0).nonzero()
        box = [sorted(set(changed[:, axis].tolist())) for axis in range(3)]
        wheres.add(tuple(lows[0] if len(lows) == 1 else -1 for lows in box))
        assert all(len(lows) == 1 or len(lows) > 2 for lows in box)
        assert not torch.equal(drawn[0], drawn[1])
    ends = {(place if count == 1 else -1) for where in wheres for count, place in [(1, where[0])]}
    assert {0, 3, -1} == ends and len(wheres) > 8
    assert inputs.change_leaves([torch.tensor(2.0)], end, 1)[0] == 2.0


def test_inputs_that_are_nearly_equal_are_so_element_by_element() -> None:
    """Where a tolerance takes them for the same; zeros stay."""
    leaf = torch.randn(16, 16) * (torch.rand(16, 16) < 0.9)
    variant = Variant(name="n", required=True, change="nearly", factors=(2.0**-18,))
    near, other = (inputs.change_leaves([leaf], variant, seed)[0] for seed in (1, 2))
    assert torch.allclose(near, other) and torch.equal(near == 0, leaf == 0)
    assert int((near != other).sum()) > 100
    assert torch.aminmax(near).max <= leaf.max() and torch.aminmax(near).min >= leaf.min()


def test_infinities_meet_in_a_row_and_across_inputs() -> None:
    """Alone they say nothing of their sum."""
    special = Variant(name="s", required=True, special=True)
    rows = across = 0
    for seed in range(40):
        x, y = inputs.change_leaves([torch.ones(32, 64), torch.ones(32, 64)], special, seed)
        rows += bool(((x == torch.inf).any(1) & (x == -torch.inf).any(1)).any())
        across += bool((x + y)[torch.isinf(x) & torch.isinf(y)].isnan().any())
    assert rows == 40 and across >= 25


def test_special_values_are_sown() -> None:
    """NaN, both infinities, -0.0 and a denormal; one of each or many, or a loop's tail would hardly ever meet one."""
    special = Variant(name="s", required=True, special=True)
    sown = [inputs.change_leaves([torch.ones(1024)], special, seed)[0] for seed in range(40)]
    counts = [int(one.isnan().sum()) for one in sown]
    assert 1 <= min(counts) <= 2
    assert 8 <= max(counts) <= 16
    for one in sown:
        assert bool((one == torch.inf).any() and (one == -torch.inf).any() and (one == 0.0).any())
        assert bool(((one > 0) & (one < torch.finfo(one.dtype).smallest_normal)).any())


def test_weights_change_and_structure_stays() -> None:
    """Ones and zeros are scattered, variances stay positive, masks and counters stay."""
    ones, zeros, mask = torch.ones(32), torch.zeros(32), torch.tril(torch.ones(4, 4))
    count = torch.tensor(7)
    assert 0.5 <= float(renewed.fresh_weight("weight", ones, ones, rng()).min()) < 1.0
    assert 0.0 < float(renewed.fresh_weight("bias", zeros, zeros, rng()).std()) < 0.3
    assert 0.0 < float(renewed.fresh_weight("running_var", ones, ones, rng()).min())
    assert torch.equal(mask, renewed.fresh_weight("mask", mask, mask, rng()))
    assert torch.equal(count, renewed.fresh_weight("num_batches_tracked", count, count, rng()))


@pytest.mark.parametrize("layout", ["gap0", "gap1"])
def test_blocks_that_lie_apart_begin_where_vectors_do(layout: str) -> None:
    """Torch's attention on a GPU reads 16 bytes at a time: a step of three floats more is a misaligned address there,
    and ends the context of whoever asked."""
    shape = (3, 2, 64, 32)
    usual, _ = layouts.layout_of(shape, "contiguous")
    steps, offset = layouts.layout_of(shape, layout)
    assert 0 == offset and steps[0] > usual[0] and steps[2:] == usual[2:]
    assert (steps[1] > usual[1]) == (layout == "gap1")
    assert all(step * 2 % 16 == 0 for step in steps[:3]), "of half precision too"


def test_samples_are_empty_in_all_inputs_at_once() -> None:
    """Flags, labels and every second time floats; places that are all different, and other lengths, stay."""
    given = [
        torch.rand(16, 5) < 0.5,
        torch.randint(1, 4, (16, 7)),
        torch.rand(16, 3) + 1,
        (torch.rand(16, 9) < 0.5).float(),
        torch.randperm(16),
        torch.rand(4, 5) < 0.5,
    ]
    given[1][0, 0] = 1
    seen = set()
    for seed in range(12):
        made = inputs.change_leaves(list(given), Variant(name="e", required=True, change="empty samples"), seed)
        flags, labels, numbers, image, places, others = made
        blank = ~flags.any(1) & (image == 0).all(1)
        assert blank.any() and (labels[blank] == 1).all()
        assert torch.equal(places, given[4]) and torch.equal(others, given[5])
        assert torch.equal(labels[~blank], given[1][~blank]) and torch.equal(numbers[~blank], given[2][~blank])
        seen.add(bool((numbers[blank] == 0).all()))
    assert seen == {True, False}


def test_rows_have_a_single_zero_too() -> None:
    """A product of such a row is zero, and its gradient is not."""
    (made,) = inputs.change_leaves([torch.ones(4, 6, 12)], Variant(name="", required=True, change="zero rows"), 3)
    zeros = (made == 0).sum(-1).flatten().tolist()
    assert 1 in zeros and 12 in zeros


def test_incoming_gradients_on_a_device_begin_where_vectors_do() -> None:
    """One half late, torch's own attention on a GPU ended the context of its backward pass;
    who takes the memory for the gradient is told by a whole vector as well."""
    found = [
        layouts.of_gradient(TensorSpec.contiguous((6, 8), dtype), layout, torch.device(device)).offset
        for dtype, layout, device in (
            (torch.float16, "offset", "cuda"), (torch.float32, "offset", "cuda"), (torch.complex128, "offset", "cuda"),
            (torch.float16, "offset", "cpu"), (torch.float16, "strided", "cuda"),
        )
    ]  # fmt: skip
    assert found == [8, 4, 1, 1, 0]


def test_single_numbers_of_a_devices_dice_are_drawn_on_the_host() -> None:
    """As often as there are values, the same ones for the same seed; what is drawn on the device is another stream."""
    seen = []
    for _ in range(2):
        dice = dealing.Dice(device="cpu").sown(7)
        seen.append([dealing.below(5, dice) for _ in range(200)] + [dealing.few(9, dice) for _ in range(200)])
        assert torch.equal(torch.rand(3, generator=dice), torch.rand(3, generator=torch.Generator().manual_seed(7)))
    assert seen[0] == seen[1]
    assert set(range(5)) == set(seen[0][:200]) and {1, 9} <= set(seen[0][200:]) <= set(range(1, 10))
