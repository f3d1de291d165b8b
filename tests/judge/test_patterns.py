# SPDX-License-Identifier: Apache-2.0
"""Moments of slices over runs, taken in fewer passes than torch's own, are the same numbers."""

from __future__ import annotations

import math

import torch

from kernelwright.judge import patterns

RUNS = 37


def ranks(seed: int, slices: int, members: int) -> torch.Tensor:
    """Ranks of so many runs; in the first slice all but a few elements are the same in most."""
    rng = torch.Generator().manual_seed(seed)
    made = torch.rand(RUNS, slices, members, generator=rng, dtype=torch.float64)
    made[:, 0] = torch.where(torch.rand(RUNS, members, generator=rng) < 0.002, 1.0, 0.5).double()
    return made


def test_slices_lie_apart_by_the_variance_of_each_element() -> None:
    """The one in question, the last, among the others; what is given stays as it was."""
    for seed, (slices, members) in enumerate([(2, 32), (32, 192), (5, 400)]):
        made = ranks(seed, slices, members)
        given, others = made.clone(), RUNS - 1
        error = (made.var(0).mean(1) / members).sqrt().clamp_min(1e-3 / math.sqrt(members))
        means = made.mean(2)
        wanted = (means - (means.sum(0) - means) / others) / (error * math.sqrt(1 + 1 / others))
        torch.testing.assert_close(patterns._apart(made), wanted, rtol=1e-9, atol=1e-12)
        assert torch.equal(made, given)


def test_a_slice_is_seldom_by_the_fourth_moment_of_its_elements() -> None:
    """One that varies in a few runs alone may be."""
    seen = []
    for seed, (slices, members) in enumerate([(2, 32), (32, 192), (5, 400)]):
        made = ranks(seed, slices, members)
        given, centred = made.clone(), made - made.mean(0)
        second, fourth = centred.square().mean(0), centred.pow(4).mean(0)
        wanted = (fourth - 3 * second.square()).sum(1) > patterns.TAILS * second.sum(1).square()
        assert torch.equal(patterns._seldom(made), wanted) and torch.equal(made, given)
        seen += wanted.tolist()
    assert any(seen) and not all(seen)
