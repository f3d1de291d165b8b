# SPDX-License-Identifier: Apache-2.0
"""Matrices that are symmetric or Hermitian in every draw stay so, and what they are in more than that."""

from __future__ import annotations

import random

import torch
from plain_tasks import instance

from kernelwright.judge import weights
from kernelwright.judge.extremes import FREE
from kernelwright.judge.inputs import Variant
from kernelwright.judge.symmetric import definite, halved, mirrored
from kernelwright.judge.yardstick import Magnitudes

COMPLEX = "torch.randn(4, 6, 6, dtype=torch.complex64)"


def test_complex_matrices_are_hermitian_not_symmetric() -> None:
    root = torch.randn(3, 6, 6, dtype=torch.complex64)
    assert mirrored(root @ root.mH) and not mirrored(root + root.mT) and not mirrored(root)
    assert not mirrored(torch.full((3, 3), -torch.inf).triu(1)) and not mirrored(torch.full((3, 3), torch.nan))


def test_hermitian_definite_matrices_stay_so() -> None:
    """Of a sum with its plain transpose nothing is kept."""
    made = instance("torch.linalg.solve(x, x)", f"[(b := {COMPLEX}) @ b.mH + torch.eye(6)]")
    assert {0} == made.bonds.symmetric == made.bonds.hermitian == made.bonds.definite
    assert "is Hermitian and positive definite in every draw" in " ".join(made.notes)
    assert {"bond": "Hermitian matrices"} == made.bonds.facts(0)
    moved = 0
    for variant in [v for v in made.offered(3) if v.group not in FREE]:
        leaf = made.draw(variant, 5)[0]
        assert torch.allclose(leaf, leaf.mH) and definite(leaf), variant.name
        moved += not torch.equal(leaf, made.draw(Variant(name="as given", required=True), 5)[0])
    assert moved > 8
    assert not instance("x.real", f"[(b := {COMPLEX}) + b.mT]").bonds.symmetric


def test_one_element_of_a_hermitian_matrix_changes_beside_its_conjugate() -> None:
    root = torch.randn(5, 5, dtype=torch.complex64)
    before = root + root.mH
    for at in ((1, 3), (3, 1), (2, 2)):
        changed = before.clone()
        changed[at] = 2 + 5j
        made = halved(before, changed)
        assert mirrored(made) and int((made != before).sum()) == (1 if at == (2, 2) else 2)


def test_complex_triangles_stay_so() -> None:
    made = instance("torch.linalg.solve(x, x)", f"[{COMPLEX}.tril() + 3 * torch.eye(6)]")
    assert {0: "lower"} == made.triangles
    assert not any(made.draw(v, 5)[0].triu(1).any() for v in made.offered(3) if v.group not in FREE)


def test_semidefinite_matrices_stay_so() -> None:
    """Of fewer samples than numbers, with a ridge inside the reference; one far below zero is none."""
    made = instance("torch.linalg.solve(x + 0.1 * torch.eye(8), x)", "[(a := torch.randn(16, 8, 4)) @ a.mT]")
    assert {0} == made.bonds.symmetric == made.bonds.semidefinite and not made.bonds.definite
    assert "is symmetric and positive semidefinite in every draw" in " ".join(made.notes)
    first = made.draw(Variant(name="as given", required=True), 5)[0]
    for change in ("negated", "shifted", "mixed"):
        leaf = made.draw(Variant(name="", required=True, change=change), 5)[0]
        assert mirrored(leaf) and definite(leaf, semi=True), change
    assert not definite(first) and not made.bonds.sound(0, -first) and made.bonds.sound(0, first)
    for variant in [v for v in made.offered(3) if v.group not in FREE]:
        assert definite(made.draw(variant, 5)[0], semi=True), variant.name
    assert not instance("x", "[(a := torch.randn(16, 8, 4)) @ a.mT - 0.1 * torch.eye(8)]").bonds.semidefinite


def test_covariances_in_buffers_stay_so_in_all_states() -> None:
    """Where one element, or part of them, comes of others too; parameters are trained to anything."""
    head = "S = 0.5 ** (torch.arange(5.0)[:, None] - torch.arange(5.0)).abs()"
    made = instance("x @ torch.inverse(self.s) @ self.w", "[torch.randn(64, 5)]", head=head,
                    init="self.register_buffer('s', S.clone())\nself.w = nn.Parameter(S.clone())")  # fmt: skip
    assert "weight s is symmetric and positive definite as it is made" in " ".join(made.notes)
    dice, states = random.Random(3), []
    for seed in range(6):
        fresh = made.draw_state(seed)
        few = made.draw_state(seed, weights.FEW_OTHERS)
        mixed = weights.recombined(made.first_state, fresh, lambda a, b: torch.where(a > 0.5, a, b), renew=True)
        states += [fresh, few, mixed, *(s for _, s in weights.partly(made.first_state, fresh, dice))]
    first, found = dict(made.first_state), list(map(dict, states))
    assert all(torch.equal(one["s"], one["s"].mT) and definite(one["s"]) for one in found)
    assert sum(not torch.equal(one["s"], first["s"]) for one in found) > 18
    ratios = [one["s"][0, 1] * one["s"][2, 3] / one["s"][0, 3] / one["s"][2, 1] for one in found[::7]]
    assert max(ratios) - min(ratios) > 0.1, "not rows and columns by factors alone, which keep what is separable"
    assert any(not torch.equal(one["w"], one["w"].mT) for one in found)


def test_diagonal_matrices_of_positive_numbers_stay_so() -> None:
    """Others may be of either sign."""
    made = instance("torch.logdet(x)", "[torch.diag_embed(torch.rand(32, 4) + 0.2)]")
    assert {0: "diagonal"} == made.triangles and {0} == made.bonds.positive
    first, changed = made.draw(Variant(name="as given", required=True), 5)[0], 0
    for variant in [v for v in made.offered(3) if v.group not in FREE]:
        leaf = made.draw(variant, 5)[0]
        diagonal = leaf.diagonal(dim1=1, dim2=2)
        assert bool((diagonal > 0).all()) and torch.equal(leaf, diagonal.diag_embed()), variant.name
        changed += not torch.equal(first, leaf)
    assert changed > 8
    assert not instance("x", "[torch.diag_embed(torch.randn(32, 4))]").bonds.positive


def test_a_complex_determinant_is_expected_to_err_as_a_real_one() -> None:
    """Of logarithms that cancel; with one rounding of the sum those of Cholesky's were refused, twice in two."""
    found = []
    for kind in ("float32", "complex64"):
        root = "(b := torch.randn(64, 4, 12)) @ b.mT / 12 + 0.1 * torch.eye(4)"
        made = instance("torch.linalg.slogdet(x)[1]", f"[({root}).to(torch.{kind})]")
        leaves = made.draw(Variant(name="as given", required=True), 3)
        exact, _ = made.oracle(leaves, None)
        found.append(made.floors(leaves, None, list(map(Magnitudes, exact))).whole(0).rms)
    assert 0.4 < found[1] / found[0] < 3.0, found
