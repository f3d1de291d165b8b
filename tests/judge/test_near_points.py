# SPDX-License-Identifier: Apache-2.0
"""Values close to a point where a function is zero, and whole numbers that stay on their side of their own place."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch

from kernelwright.judge import near_points, singled, whole
from kernelwright.judge.buffers import TensorSpec
from kernelwright.judge.inputs import Variant, change_leaves


def rng(seed: int = 3) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


@pytest.mark.parametrize(("low", "high"), [(0.4, 0.9), (1.0, 5.0), (-0.8, 0.8)])
def test_all_elements_come_close_to_one_on_their_own_side(low: float, high: float) -> None:
    values = torch.rand(64, 32, generator=rng()) * (high - low) + low
    points = set()
    for seed in range(12):
        (made,) = near_points.close([values], rng(seed))
        point = float(made.mean().round())
        points.add(point)
        assert (
            abs(point) == 1
            and float((made - point).abs().max()) <= 2.0**-7 * float((values - point).abs().max()) * 1.01
        )
        assert bool(((made >= 1) == (values >= 1))[(values - 1).abs() > 1e-3].all()) or point < 0
    assert points == ({-1.0, 1.0} if low < 0 else {1.0})


def test_a_clip_shows_there_alone() -> None:
    """-log1p(-p) of probabilities that are cut off at 1 - 1e-6."""

    def differs(p: torch.Tensor) -> bool:
        return not torch.equal(torch.log1p(-p), torch.log1p(-p.clamp(max=1 - 1e-6)))

    values = torch.rand(64, 256, generator=rng()) * 0.9
    assert not differs(values)
    assert sum(differs(near_points.close([values], rng(seed))[0]) for seed in range(12)) >= 2


def test_it_is_offered_where_a_function_has_such_a_point() -> None:
    names = [SimpleNamespace(_schema=SimpleNamespace(name=f"aten::{name}")) for name in ("log", "acosh", "exp")]
    assert [near_points.pointed(func) for func in names] == [True, True, False]
    plane = [TensorSpec.contiguous((8, 8), torch.float32)]
    offered = singled.far_apart(plane, light=True, sorts=False, traits={near_points.POINTED})
    assert [v.name for v in offered] == [near_points.CLOSE]


@pytest.mark.parametrize("dtype", [torch.int64, torch.uint8])
def test_parents_stay_before_their_children_and_children_after(dtype: torch.dtype) -> None:
    places = torch.arange(200)
    parents = (torch.rand(200, generator=rng()) * places).long().to(dtype)
    children = (places + 1 + (torch.rand(200, generator=rng()) * 9).long()).clamp(max=199).to(dtype)
    for seed in range(10):
        for change in ("skewed", "largest", "least", "numbers nearly alike", "rearranged", "almost repeated"):
            made = change_leaves([parents, children], Variant(name="x", required=True, change=change), seed)
            assert bool((made[0][1:] < places[1:]).all()) and bool((made[1][:-1] > places[:-1]).all())
            assert int(made[1].max()) <= 199 and made[0].dtype is dtype
    others = torch.randint(0, 200, (200,), generator=rng())
    assert torch.equal(whole.in_place_of(others, others.flip(0)), others.flip(0))
