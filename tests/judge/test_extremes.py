# SPDX-License-Identifier: Apache-2.0
"""Numbers of sizes that no contract's scales reach, and which references are asked about them."""

from __future__ import annotations

import pytest
import torch
from plain_tasks import instance

from kernelwright.judge import extremes
from kernelwright.judge.extremes import SLIGHT, VAST, WIDE
from kernelwright.judge.inputs import Variant


@pytest.mark.parametrize(
    ("forward", "inputs", "scales"),
    [
        ("x * 2.0", "[torch.randn(8, 16)]", {SLIGHT}),
        ("x.amax(-1)", "[torch.randn(8, 16)]", {SLIGHT, VAST, -VAST}),
        ("x - x.floor()", "[torch.randn(8, 16)]", {SLIGHT, WIDE, -WIDE}),
        ("x.amax(-1).round()", "[torch.randn(8, 16)]", {SLIGHT, WIDE, -WIDE}),
        ("torch.exp(x - x.amax(-1, keepdim=True))", "[torch.randn(8, 16)]", {SLIGHT}),
        ("x.amax(-1)", "[torch.randn(8, 16).bfloat16()]", {SLIGHT, VAST, -VAST}),
        ("x.amax(-1)", "[torch.randn(8, 16).half()]", set()),
        ("x.amax(-1)", "[torch.randint(0, 9, (8, 16))]", set()),
    ],
)
def test_who_is_asked_about_which(forward: str, inputs: str, scales: set[float]) -> None:
    offered = instance(forward, inputs).offered(1)
    assert scales == {v.scale for v in offered if abs(v.scale) in extremes.GUARDED}


@pytest.mark.parametrize(("forward", "taken"), [("x.amax(-1)", True), ("x.amax(-1) * x.amin(-1)", False)])
def test_a_reference_that_overflows_takes_none_that_are_vast(forward: str, taken: bool) -> None:
    made = instance(forward, "[torch.randn(8, 16)]")
    vast = [v for v in made.offered(1) if abs(v.scale) == VAST]
    assert len(vast) == 3 and {taken} == {made.usable(v, 1) for v in vast}


def test_one_draw_is_on_each_side_of_zero() -> None:
    """All of a row below what a maximum is begun from, or above what a minimum is."""
    made = instance("x.amax(-1)", "[torch.randn(8, 16)]")
    sides = [made.draw(v, 3)[0].sign().unique().tolist() for v in made.offered(1) if abs(v.scale) == VAST]
    assert [[-1.0, 1.0], [-1.0], [1.0]] == sides
    assert float(made.draw(Variant(name="", required=True, scale=VAST), 3)[0].abs().max()) > 1e30


def test_operators_are_known_by_name_in_place_or_not() -> None:
    found: list[bool] = []

    class Seen(torch.utils._python_dispatch.TorchDispatchMode):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):  # type: ignore[no-untyped-def]
            found.append(extremes.parts(func) or extremes.chooses(func))
            return func(*args, **(kwargs or {}))

    x = torch.randn(4)
    with Seen():
        x.floor_()
        x.mul_(2)
        torch.maximum(x, -x)
    assert [True, False, False, True] == found
