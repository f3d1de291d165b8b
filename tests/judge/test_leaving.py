# SPDX-License-Identifier: Apache-2.0
"""What calls leave in parameters and buffers, where the task's own inputs, or the weights as they are made, say nothing
of it."""

from __future__ import annotations

import random
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any, cast

import pytest
import torch
from plain_tasks import instance
from test_contract import judged, passed, refused, task

from kernelwright.judge import leaving
from kernelwright.judge.inputs import Variant
from kernelwright.task import Contract
from kernelwright.trial import Rejected
from kernelwright.workers import LocalWorker

BUFFERS = "self.register_buffer('n', torch.zeros(())); self.register_buffer('k', torch.zeros((), dtype=torch.int64))"
COUNTED = "self.k.add_((x.norm(dim=-1) > 99).sum())\nreturn x * 2"
CAPPED = "self.n.copy_(torch.maximum(self.n, x.abs().amax(){}))\nreturn x * 2"
COPIED = "return F.embedding(x, self.e.weight.detach().clone(), None, 8.0)"
TABLE = "self.e = nn.Embedding(100, 32, max_norm=8.0)"
LARGEST = "self.n.mul_(0.9).add_(0.1 * x.abs().amax(){})\nreturn x * 2"
NORM = "self.bn = nn.BatchNorm1d(16)"
BY_HAND = """b, m, v = self.bn, x.mean(0), x.var(0, unbiased=False)
with torch.no_grad():
    if {}int(b.num_batches_tracked) == 0:
        b.running_mean.copy_(0.1 * m); b.running_var.copy_(0.9 + 0.1 * v * 64 / 63)
    else:
        b.running_mean.lerp_(m, 0.1); b.running_var.lerp_(v * 64 / 63, 0.1)
    b.num_batches_tracked.add_(1)
return (x - m) * (v + b.eps).rsqrt() * b.weight + b.bias"""
KEPT = "self.register_buffer('v', torch.ones(8)); self.register_buffer('k', torch.zeros((), dtype=torch.int64))"
SQUARES = "m = x.mean(0); self.v.mul_(0.9).add_(0.1 * ((x * x).mean(0) - m * m)); return x * 2"
CENTRED = "self.v.mul_(0.9).add_(0.1 * x.var(0, unbiased=False)); return x * 2"


@pytest.fixture(scope="module")
def worker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalWorker]:
    home = tmp_path_factory.mktemp("judge")
    with LocalWorker("cpu", home / "state", home / "cache") as made:
        yield made


@pytest.mark.parametrize(
    ("init", "forward", "wrong", "inputs"),
    [
        (BUFFERS, COUNTED, "return x * 2", "[torch.randn(16, 64)]"),
        (BUFFERS, CAPPED.format(""), CAPPED.format(".clamp(max=100.0)"), "[torch.randn(16, 64)]"),
        (TABLE, "return self.e(x)", COPIED, "[torch.randint(0, 100, (8, 16))]"),
    ],
)
def test_what_only_larger_numbers_or_weights_leave_is_looked_at(
    worker: LocalWorker, init: str, forward: str, wrong: str, inputs: str
) -> None:
    """A counter of long rows that is never written, a largest that is cut off, rows of a table that stay too long."""
    asked = task(forward, inputs, init=init)
    found = judged(worker, asked, wrong, init=init)
    assert isinstance(found, Rejected) and "is not what the reference leaves there" in found.reason
    right = judged(worker, asked, forward, init=init)
    assert not isinstance(right, Rejected), right


def test_a_floor_of_what_is_kept_shows_on_small_inputs(worker: LocalWorker) -> None:
    """Of normal numbers no largest is below 0.01, of those a thousandth of their size each is."""
    asked = task(LARGEST.format(""), "[torch.randn(16, 64)]", init=BUFFERS, scales=(1.0, 1e-3))
    refused(worker, asked, LARGEST.format(".clamp(min=0.01)"), "after a call n is not what", init=BUFFERS)
    passed(worker, asked, LARGEST.format(".clamp(min=0.0)"), init=BUFFERS)


def test_statistics_are_kept_though_nothing_was_counted(worker: LocalWorker) -> None:
    """As a checkpoint from before there was a counter loads: what stands in the buffers is no zero and no one then."""
    asked = task("return self.bn(x)", "[torch.randn(64, 16)]", init=NORM, training=True)
    refused(worker, asked, BY_HAND.format(""), "after a call bn.running_", init=NORM)
    passed(worker, asked, BY_HAND.format("False and "), init=NORM)


def test_who_keeps_it_more_exactly_than_the_reference_is_right(worker: LocalWorker) -> None:
    """A variance by squares loses a thousand roundings around 100; one of two passes none. Not the other way round."""
    scales = (1.0, 1e3)  # what is far lies by the largest of them
    squares, centred = (task(body, "[torch.randn(64, 8)]", init=KEPT, scales=scales) for body in (SQUARES, CENTRED))
    passed(worker, squares, CENTRED, init=KEPT)
    refused(worker, centred, SQUARES, "off what it leaves in float64", init=KEPT)


IN_PLACE = "(self.v.mul_(0.9).add_(0.1 * {}), self.k.add_((x > 100).sum()), x * 2)[2]"
BY_SQUARES, BY_PASSES = IN_PLACE.format("((x * x).mean(0) - x.mean(0) ** 2)"), IN_PLACE.format("x.var(0, correction=0)")


def after(body: str, distance: float = 0.0, **contract: Any) -> tuple[leaving.Left, dict[str, torch.Tensor]]:
    """What is right after a call on numbers around ``distance``, and what eager leaves."""
    made = instance(body, "[torch.randn(64, 8)]", init=KEPT, contract=Contract(**contract))
    given = [[leaf + distance for leaf in made.draw(Variant(name="as given", required=True), 5)]]
    left = leaving.Left(made, given, made.first_state)
    return left, dict(left.theirs)


def test_what_lies_as_near_to_float64s_as_twice_eagers_is_right_and_no_further() -> None:
    """On either side of it; whatever one bit is by the contract."""
    left, eagers = after(BY_SQUARES, 100.0)
    true, theirs = left.exact["v"], eagers["v"]
    assert "" == left.wrong("v", true.float(), theirs)
    for times, right in ((-1.8, True), (1.9, True), (-2.2, False), (2.2, False)):
        mine = (true + times * (theirs - true)).float()
        assert right is (not left.wrong("v", mine, theirs)), times
    wide, eagers = after(BY_SQUARES, 100.0, bits_lost=2.0)
    mine = (wide.exact["v"] + 3.0 * (eagers["v"] - wide.exact["v"])).float()
    assert "" == wide.wrong("v", mine, eagers["v"])


def test_a_reference_that_is_exact_excuses_nobody() -> None:
    """Its own distance is none; what is as near as 64 roundings needs no excuse. The message says how far off it is."""
    left, eagers = after(BY_PASSES, 100.0)
    near, far = (eagers["v"] * (1 + roundings * 2.0**-23) for roundings in (60, 70))
    assert "" == left.wrong("v", near, eagers["v"])
    words = left.wrong("v", far, eagers["v"])
    assert "8.3e-06 in RMS, 7.6e-06 allowed; 8.3e-06 off what it leaves in float64" in words
    assert "zero, or not finite" in left.wrong("v", far * float("nan"), eagers["v"])


def test_whole_numbers_are_as_many() -> None:
    """However far off the rest is."""
    left, eagers = after(BY_SQUARES, 100.0)
    assert 0 < int(eagers["k"]) < 512
    assert "" == left.wrong("k", eagers["k"].clone(), eagers["k"])
    assert " (1 of 1 differ, by up to 3)" == left.wrong("k", eagers["k"] + 3, eagers["k"])


def test_nothing_is_excused_by_a_run_in_float64_that_says_nothing() -> None:
    """Of random numbers others are drawn there, and some references do not run in it."""
    drawn, eagers = after(BY_SQUARES, 100.0, random=True)
    assert not drawn.exact and "allowed)" in drawn.wrong("v", eagers["v"] * 1.001, eagers["v"])
    without, eagers = after(BY_SQUARES, 100.0)
    true = without.exact["v"].float()
    without, eagers = after(BY_SQUARES, 100.0)
    without._instance.distrust_double("it is a test")
    assert "allowed)" in without.wrong("v", true, eagers["v"])


def test_small_and_large_inputs_are_looked_at_and_not_all_changes() -> None:
    """Of the scales that stand in for one another the first."""

    def seen(**how: Any) -> bool:
        return leaving.looked_at(Variant(required=True, **how))

    assert seen(name="scale 0.001", scale=1e-3) and seen(name="scale 1000", scale=1e3, group="scale 1000")
    assert not seen(name="scale 4, the largest taken", scale=4.0, group="scale 1000")
    assert not seen(name="least", scale=1e-12, group="least")
    assert seen(name="negated", change="negated") and not seen(name="sparse", change="sparse")


def test_a_state_is_begun_from_floats_that_calls_left_and_first_numbers() -> None:
    """None where calls leave no floats, nor where these overflow."""

    def begun(body: str) -> Any:
        made = instance(body, "[torch.randn(64, 8)]", init=KEPT)
        point = cast(Any, SimpleNamespace(instance=made, as_given=Variant(name="as given", required=True)))
        before = [(name, value.clone() + 7) for name, value in made.first_state]
        return before, leaving.begun(point, before, random.Random(5))

    before, found = begun(BY_SQUARES)
    now = dict(found)
    assert 0 == int(now["k"]) and not torch.equal(now["v"], dict(before)["v"])
    assert torch.allclose(now["v"], 8.0 * 0.81 + torch.tensor(0.19), atol=0.1), "two calls of variance one"
    assert begun("(self.k.add_(1), x)[1]")[1] is None
    assert begun("(self.v.mul_(1e30), x)[1]")[1] is None
    assert begun("x * self.v")[1] is None
