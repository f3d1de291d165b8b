# SPDX-License-Identifier: Apache-2.0
"""A reference bound to a case: what it draws and which ways of drawing it is judged on."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch
from plain_tasks import instance

from kernelwright.judge import variants
from kernelwright.judge.inputs import Variant
from kernelwright.judge.instance import Instance
from kernelwright.judge.yardstick import Magnitudes
from kernelwright.task import Contract

GIVEN = Variant(name="as given", required=True)


def test_draws_follow_the_seed_and_nothing_else() -> None:
    """Equal seeds, equal inputs; other seeds, other inputs."""
    made = instance("x * 2", "[torch.randn(3, 4)]")
    assert torch.equal(made.draw(GIVEN, 5)[0], made.draw(GIVEN, 5)[0])
    assert not torch.equal(made.draw(GIVEN, 5)[0], made.draw(GIVEN, 2**61 + 5)[0])


def test_constant_inputs_change_between_calls_and_integers_stay_in_range() -> None:
    """Ones that are always ones would let a program skip the multiplication."""
    made = instance("x * y[z]", "[torch.ones(4), torch.randn(9), torch.randint(0, 9, (4,))]", args="x, y, z")
    first, second = made.draw(GIVEN, 1), made.draw(GIVEN, 2)
    assert {0} == made.constant
    assert not torch.equal(first[0], second[0])
    assert 0 <= int(second[2].min()) <= int(second[2].max()) < 9


def test_constants_that_keep_the_reference_in_its_domain_are_kept() -> None:
    """Changing them would turn every result into NaN."""
    made = instance("x / torch.where(y == 1, 1.0, float('nan'))", "[torch.randn(4), torch.ones(4)]", args="x, y")
    assert {1} == made.kept
    assert torch.equal(torch.ones(4), made.draw(GIVEN, 3)[1])
    assert ["constant inputs kept as given (changing them leaves the domain): 1"] == made.notes


def test_variants_outside_the_domain_are_left_out() -> None:
    """A logarithm is not judged on negative numbers, nor an overflow on its Inf."""
    names = [v.name for v in instance("torch.log(x) + x.exp().exp()", "[torch.rand(4, 8) + 0.5]").variants(1)]
    assert "as given" == names[0]
    assert not {"negated", "scale 1000", "sparse"} & set(names)
    assert {"scale 0.001", "near-duplicate", "strided inputs", "offset inputs"} <= set(names)


def test_weights_and_masks_have_their_own_variants() -> None:
    """Fresh weights only where weights may change; masks only where there are masks."""
    linear = {"init": "self.l = nn.Linear(4, 4)"}
    names = [v.name for v in instance("self.l(x)", "[torch.randn(2, 4)]", **linear).variants(1)]
    frozen = Contract(frozen_parameters=True, special_values=True)
    other = [v.name for v in instance("self.l(x)", "[torch.randn(2, 4)]", contract=frozen, **linear).variants(1)]
    masked = instance("x.masked_fill(y, 0.0)", "[torch.randn(4), torch.rand(4) > 0.5]", args="x, y").variants(1)
    assert ("fresh weights" in names, "fresh weights" in other) == (True, False)
    assert ("special values" in names, "special values" in other) == (False, True)
    assert "masks redrawn" in [v.name for v in masked]


def test_fresh_weights_change_every_parameter_and_tied_ones_together() -> None:
    """Also the ones and zeros of normalisations, also buffers, and what they count."""
    made = instance(
        "self.b(F.linear(F.linear(x, self.w.weight), self.v.weight))",
        "[torch.randn(3, 4)]",
        init="self.w = nn.Linear(4, 4)\nself.v = nn.Linear(4, 4)\nself.v.weight = self.w.weight\n"
        "self.b = nn.BatchNorm1d(4)",
    )
    fresh, first = dict(made.draw_state(7)), dict(made.first_state)
    assert not [name for name in first if torch.equal(first[name], fresh[name])]
    assert torch.equal(fresh["w.weight"], fresh["v.weight"])
    assert 0.0 < float(fresh["b.running_var"].min())


def test_training_mode_does_not_drift() -> None:
    """A batch norm updates its buffers in every call; the next call starts from the given weights again."""
    made = instance(
        "self.b(x) + self.b.running_mean", "[torch.randn(8, 4)]", init="self.b = nn.BatchNorm1d(4)",
        contract=Contract(training=True, random=True),  # else it is refused, for it answers by what came before
    )  # fmt: skip
    leaves = made.draw(GIVEN, 1)
    assert torch.equal(made.eager(leaves, None)[0], made.eager(leaves, None)[0])


def test_transposed_draws_keep_their_values_for_the_reference() -> None:
    """The reference sees the strides that the candidate will see."""
    made = instance("x.sum(0) + x.stride(0)", "[torch.randn(3, 4)]")
    plain, turned = (made.draw(Variant(name=n, required=True, layout=n), 1) for n in ("contiguous", "transposed"))
    assert torch.equal(plain[0], turned[0])
    assert 3.0 == float((made.eager(plain, None)[0] - made.eager(turned, None)[0])[0].round())


@pytest.mark.parametrize(
    ("fails", "stays"), [("on the device", True), ("everywhere", False), ("for want of memory", False), ("", False)]
)
def test_inputs_are_drawn_on_the_host_only_where_the_device_is_why_they_fail(fails: str, stays: bool) -> None:
    """An axis of size 0, tried once, made every later draw of 1 GiB of logits take a second in place of a millisecond:
    a range of no numbers is empty on the host as well."""

    def get_inputs() -> list[torch.Tensor]:
        made = torch.ones(3)
        if fails == "everywhere" or fails == "on the device" and made.is_meta:
            raise RuntimeError("from must be less than to")
        if fails == "for want of memory" and made.is_meta:
            raise torch.OutOfMemoryError
        return [made]

    reference = SimpleNamespace(
        on_host=False, module=SimpleNamespace(get_inputs=get_inputs), call_with_axes=lambda make, case: make()
    )
    made: Any = SimpleNamespace(reference=reference, device=torch.device("meta"), case=None)
    if fails == "everywhere":
        with pytest.raises(RuntimeError):
            Instance._given(made, 1)
    else:
        assert Instance._given(made, 1)[0].is_meta == (not fails)
    assert reference.on_host is stays


@pytest.mark.parametrize(("formula", "signs", "sizes"), [("x * self.w", True, True), ("x * self.w.log()", False, True)])
def test_weights_move_as_far_as_a_reference_accepts(formula: str, signs: bool, sizes: bool) -> None:
    """Either sign, or the signs that they have; afterwards the first weights are back."""
    made = instance(formula, "[torch.randn(4, 64)]", init="self.w = nn.Parameter(torch.ones(64))")
    others = ("", "zero rows", "zero throughout", "held otherwise")
    known = {v.moved: made.usable(v, 3) for v in made.offered(3) if v.moved not in others}
    wanted = {"signs": signs, "sizes": sizes, "outliers": sizes, "few others": sizes, "a pattern": True}
    assert wanted | {"slices of other sizes": True, "far from zero": False, "below zero": signs} == known
    few = dict(made.draw_state(3, "few others"))["w"]
    assert 1 <= int((few != 1).sum()) <= 8
    assert torch.equal(made.model.w.detach(), torch.ones(64))
    assert variants.accepted(made.offered(3), lambda v: made.usable(v, 3))[0] == ("signs" if signs else "sizes")


@pytest.mark.parametrize(
    ("formula", "numbers", "offered", "usable"),
    [
        ("x[:, :4] * k", "torch.ones(4, 4, dtype=torch.int64)", True, True),
        ("x[:, k]", "torch.zeros(3, dtype=torch.int64)", True, True),
        ("x.view(4, 1, 8)[:, k].sum(1) * 1.0", "torch.zeros(3, dtype=torch.int64)", True, False),
        ("x[:, : int(k)]", "torch.tensor(3)", True, False),
        ("x[:, :4] * k", "torch.randint(0, 9, (4, 4))", False, False),
    ],
)
def test_constant_whole_numbers_become_others_where_the_reference_takes_them(
    formula: str, numbers: str, offered: bool, usable: bool
) -> None:
    """Not where an index would lie outside, nor where they are sizes of the result."""
    made = instance(formula, f"[torch.randn(4, 8), {numbers}]", args="x, k")
    found = [v for v in made.offered(3) if v.change == "constants"]
    assert offered == bool(found)
    for variant in found:
        assert variant.constants == (1,) and made.usable(variant, 3) == usable


@pytest.mark.parametrize(
    ("formula", "taken"),
    [
        ("y.log_softmax(-1)", True),
        ("y.softmax(-1).log()", False),
        ("y.log_softmax(-1).where(x < 200, torch.nan)", False),
        ("y.masked_fill(m[:1], torch.nan)", True),
        ("y.log_softmax(-1).where(x > -200, -torch.inf)", True),
        ("y.nan_to_num(neginf=0.0).where(x < 200, torch.inf)", False),
    ],
)
def test_infinities_that_a_reference_always_has_leave_it_in_its_domain(formula: str, taken: bool) -> None:
    """Masked logits do, unless exact arithmetic has a number there; NaN or infinities that are new do not."""
    made = instance(
        f"(y := x.masked_fill(m, -torch.inf), {formula})[1]",
        "[torch.randn(4, 32), torch.rand(4, 32) < 0.3]",
        args="x, m",
    )
    assert made.usable(Variant(name="scale 1000", required=False, scale=1000.0), 3) is taken


def test_what_a_reference_accepts_by_lot_alone_is_no_variant() -> None:
    """A probability in ten stays one where it is four times as large, and the judge ended at the second draw."""
    made = instance("F.binary_cross_entropy(p, t)", "[torch.rand(32, 64), torch.rand(32, 64)]", args="p, t")
    assert not [
        v.name for seed in range(1, 40) for v in made.offered(seed) if v.change == "outliers" and made.usable(v, seed)
    ]
    plain = instance("x.softmax(-1)", "[torch.randn(32, 64)]")
    assert "outliers" in [v.name for v in plain.variants(3)]


def test_what_calls_leave_on_a_module_is_named() -> None:
    """A caller who reads a loss there gets what the candidate left."""
    made = instance("setattr(self, 'aux_loss', x.mean()) or x * 2", "[torch.randn(4, 8)]")
    assert ["calls leave tensors in aux_loss of the reference's modules, which are not compared"] == [
        note for note in made.notes if "calls leave" in note
    ]
    assert not any("calls leave" in note for note in instance("x * 2", "[torch.randn(4, 8)]").notes)


def test_a_reference_that_asks_for_symmetry_has_an_honest_error_all_the_same() -> None:
    """Half an ulp at each element breaks it: the judge ended by the assertion."""
    made = instance("(x @ x).mul_(2 if torch.equal(x, x.mT) else [][0])", "[(a := torch.randn(8, 8)) + a.T]")
    leaves = made.draw(Variant(name="as given", required=True), 3)
    exact, _ = made.oracle(leaves, None)
    floor = made.floors(leaves, None, [Magnitudes(value) for value in exact]).at(0, 1)
    assert 0.0 < floor.rms < 1e-5
