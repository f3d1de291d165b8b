# SPDX-License-Identifier: Apache-2.0
"""Labels of the largest scores, and samples whose other classes are left about one probability."""

from __future__ import annotations

import math

import pytest
import torch
from plain_tasks import instance

from kernelwright.judge import labelled
from kernelwright.judge.inputs import Variant
from kernelwright.judge.instance import Instance

GIVEN = Variant(name="", required=True)
LOGITS, HIDDEN = "torch.randn(64, 40)", "torch.randn(64, 16)"
PAIR = "[{}, torch.randint(0, 40, (64,))]"
WEIGHTS = "self.w = nn.Parameter(torch.randn(16, 40) / 4)"


def scores_of(made: Instance, change: str, seed: int = 3) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Labels as drawn and changed, and the scores of the changed draw."""
    before = made.draw(GIVEN, seed)
    after = labelled.changed(made, change, before, seed, None)
    ((index, (_, scores, axis)),) = labelled._scores(made, after, None).items()
    return before[index], after[index], scores.movedim(axis, -1)


@pytest.mark.parametrize(
    ("forward", "x", "init"),
    [
        ("F.cross_entropy(x, y)", LOGITS, ""),
        ("F.cross_entropy(x @ self.w, y, reduction='none')", HIDDEN, WEIGHTS),
        ("x.log_softmax(-1).gather(1, y[:, None])", LOGITS, ""),
        ("(x.softmax(-1) - F.one_hot(y, 40)).square().sum(-1)", LOGITS, ""),
        ("(x.log_softmax(-1) * F.one_hot(y, 40).to(x.dtype)).sum()", LOGITS, ""),
        ("torch.where(y[:, None] == torch.arange(40), x.log_softmax(-1), 0.0).sum(-1)", LOGITS, ""),
    ],
)
def test_labels_are_the_likeliest_and_sure(forward: str, x: str, init: str) -> None:
    made = instance(forward, PAIR.format(x), args="x, y", init=init)
    names = {v.change for v in made.variants(5)}
    assert {labelled.RIGHT, labelled.SURE} <= names
    old, new, scores = scores_of(made, labelled.RIGHT)
    right = (new == scores.argmax(-1)).double().mean()
    assert 0.7 < float(right) < 1.0 and float((old == new).double().mean()) < 0.4
    _, new, scores = scores_of(made, labelled.SURE)
    sure = torch.log_softmax(scores if bool((scores < 0).any()) else scores.log(), -1)
    left = torch.log1p(-sure.double().gather(-1, new[:, None])[:, 0].exp().clamp(max=1 - 1e-12)) / math.log(10.0)
    assert bool((new == scores.argmax(-1)).all())
    assert float(left.max() - left.min()) < 0.3 and -5.2 < float(left.mean()) < -2.8


def test_pixels_and_words_that_come_after_others_have_their_labels_too() -> None:
    pixels = instance("F.cross_entropy(x, y)", "[torch.randn(2, 7, 6, 5), torch.randint(0, 7, (2, 6, 5))]", args="x, y")
    _, new, scores = scores_of(pixels, labelled.SURE)
    assert new.shape == (2, 6, 5) and bool((new == scores.argmax(-1)).all())
    assert float(torch.softmax(scores.double(), -1).amax(-1).min()) > 0.99
    words = "F.cross_entropy(x[:, :-1].reshape(-1, 9), y[:, 1:].reshape(-1))"
    made = instance(words, "[torch.randn(4, 8, 9), torch.randint(0, 9, (4, 8))]", args="x, y")
    old, new, scores = scores_of(made, labelled.SURE)
    assert bool((new[:, 1:].reshape(-1) == scores.argmax(-1)).all()) and torch.equal(old[:, 0], new[:, 0])


def test_what_is_no_label_stays() -> None:
    """Ids of a table label nothing; those that are ignored stay so; nothing is asked of a reference without labels."""
    table = instance("x * self.w[y]", PAIR.format("torch.randn(64, 1)"), args="x, y",
                     init="self.w = nn.Parameter(torch.randn(40, 1))")  # fmt: skip
    assert not {v.change for v in table.variants(5)} & set(labelled.CHANGES)
    ignored = "[torch.randn(64, 40), torch.where(torch.rand(64) < 0.3, -100, torch.randint(0, 40, (64,)))]"
    made = instance("F.cross_entropy(x, y)", ignored, args="x, y")
    old, new, _ = scores_of(made, labelled.SURE)
    assert torch.equal(old < 0, new < 0) and bool((old < 0).any())


def test_of_very_many_scores_labels_are_right_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    made = instance("F.cross_entropy(x, y)", PAIR.format(LOGITS), args="x, y")
    before = made.draw(GIVEN, 3)
    monkeypatch.setattr(labelled, "MOST", 64)
    after = labelled.changed(made, labelled.SURE, before, 3, None)
    assert torch.equal(before[0], after[0]) and torch.equal(before[0].argmax(-1), after[1])
