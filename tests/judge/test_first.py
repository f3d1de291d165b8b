# SPDX-License-Identifier: Apache-2.0
"""Of flags that are set the first one is meant, whatever they were made into; of other equal values any is right."""

from __future__ import annotations

import pytest
import torch
from plain_tasks import instance

from kernelwright.judge.inputs import Variant
from kernelwright.judge.verify import Checker

GIVEN = Variant(name="as given", required=True)
WORDS = "[torch.randint(0, 8, (64, 64))]"


def passes(forward: str, inputs: str, got: torch.Tensor | None = None) -> bool:
    """Whether an answer passes; None: that of the last place of the largest of what the reference searches in."""
    checker = Checker(instance(forward, inputs), seed=3)
    leaves = checker.instance.draw(GIVEN, 1)
    if got is None:
        searched = forward.replace(".max(-1)[1]", "").replace(".argmax(-1)", "").replace(".argmin(-1)", "")
        values = eval(searched, {"x": leaves[0], "torch": torch}).to(torch.float32)  # noqa: S307
        values = -values if "argmin" in forward else values
        got = values.shape[-1] - 1 - values.flip(-1).argmax(-1)
    return checker.check(GIVEN, leaves, None, [got], leaves).passed


@pytest.mark.parametrize(
    "forward",
    [
        "(x == 3).int().argmax(-1)",
        "(x == 3).max(-1)[1]",
        "(x == 3).float().argmax(-1)",
        "((x == 3) * 1).argmax(-1)",
        "(x == 3).to(torch.uint8).flip(-1).argmax(-1)",
        "((x > 2).long() * (x < 6).long()).argmax(-1)",
        "torch.where(x == 3, 1.0, 0.0).argmax(-1)",
        "(~(x == 3)).int().argmin(-1)",
    ],
)
def test_the_last_flag_is_not_the_first(forward: str) -> None:
    """As casts, products, and one number for each side."""
    assert not passes(forward, WORDS)


@pytest.mark.parametrize(
    ("forward", "inputs"),
    [
        ("x.argmax(-1)", WORDS),
        ("x.float().argmax(-1)", WORDS),
        ("x.max(-1)[1]", WORDS),
        ("torch.where(x == 3, 0, x).argmax(-1)", WORDS),
        ("(x * (x < 5)).argmax(-1)", WORDS),
    ],
)
def test_of_other_equal_values_the_last_is_right(forward: str, inputs: str) -> None:
    """Numbers that were drawn, some of them masked."""
    assert passes(forward, inputs)


def test_flags_that_rounding_may_set_are_still_asked_about() -> None:
    """Which sum is the first above a border is a matter of rounding where one lies on it."""
    none = "torch.cat([(a := torch.randn(16, 1, 32)), -a[..., torch.randperm(32)]], -1)"
    sums = f"[torch.cat([torch.cat([{none}, torch.randn(48, 1, 64)]), torch.randn(64, 15, 64)], 1)]"
    checker = Checker(instance("(x.sum(-1) > 0).int().argmax(-1)", sums), seed=3)
    leaves = checker.instance.draw(GIVEN, 1)
    other = (sum(leaves[0].unbind(-1)) > 0).int().argmax(-1)
    assert not torch.equal(other, checker.instance.eager(leaves, None)[0])
    assert checker.check(GIVEN, leaves, None, [other], leaves).passed


def test_floats_that_hang_on_the_first_flag_are_no_tie() -> None:
    """What lies before the end of a sentence; and before its last end, which is another one."""
    ends = "torch.where((x == 2).any(-1), (x == 2).int().argmax(-1), 32)"
    before = f"(torch.arange(32)[None] < {ends}[:, None]).float()"
    checker = Checker(instance(before, "[torch.randint(0, 12, (32, 32))]"), seed=3)
    leaves = checker.instance.draw(GIVEN, 1)
    found, here = leaves[0] == 2, torch.arange(32)
    first = torch.where(found, here, 32).amin(-1, keepdim=True)
    last = torch.where(found.any(-1, keepdim=True), torch.where(found, here, -1).amax(-1, keepdim=True), 32)
    assert checker.check(GIVEN, leaves, None, [(here < first).float()], leaves).passed
    assert not checker.check(GIVEN, leaves, None, [(here < last).float()], leaves).passed
