# SPDX-License-Identifier: Apache-2.0
"""References run in float64 although they were written for less."""

from __future__ import annotations

import pytest
import torch
from plain_tasks import instance

from kernelwright.judge import oracle
from kernelwright.judge.inputs import Variant
from kernelwright.judge.yardstick import Magnitudes

GIVEN = Variant(name="as given", required=True)


@pytest.mark.parametrize(
    ("forward", "kind"),
    [
        ("x.softmax(-1)", "float64"),
        ("x.float().softmax(-1)", "float64-trace"),
        ("x.to(torch.bfloat16).sum(-1)", "float64-trace"),
        ("x + torch.zeros(4, dtype=torch.float32)", "float64-trace"),
        ("x * torch.tensor(0.1)", "float64"),
        ("F.scaled_dot_product_attention(x[None], x[None], x[None])", "float64"),
        ("x if x.dtype == torch.float32 else x.nothing", "float64-trace"),
        ("x.view(torch.int32).view(torch.float32)", "orders-of-summation"),
    ],
)
def test_the_proof_says_which_oracle_there_is(forward: str, kind: str) -> None:
    """Plain float64, dtypes rewritten on the way, or several orders of summation."""
    made = instance(forward, "[torch.randn(4, 4)]")
    exact, found = made.oracle(made.draw(GIVEN, 1), None)
    assert (kind, torch.float64) == (found, exact[0].dtype)


OWN = "torch.Generator().manual_seed(7)"


@pytest.mark.parametrize(
    "forward",
    [
        f"x + torch.randn(4, 4, generator={OWN})",
        f"x + torch.rand(4, 4, generator={OWN}, dtype=torch.float32)",
        f"x + torch.randn(4, 4, generator={OWN}, dtype=torch.float64)",
        f"x + torch.empty(4, 4).normal_(1.0, 2.0, generator={OWN})",
        f"x + torch.empty(4, 4).uniform_(2, 3, generator={OWN})",
        f"x + torch.normal(0.0, 2.0, (4, 4), generator={OWN})",
        f"x + torch.normal(x.abs(), 1.0, generator={OWN})",
        "torch.view_as_real(x.view(torch.complex64) * 1j)",
        "(x.view(torch.complex64) * 1j).view(torch.float32)",
    ],
)
def test_numbers_of_a_generator_of_its_own_and_pairs_taken_for_complex_ones_are_the_same_in_float64(
    forward: str,
) -> None:
    """Of doubles such a generator draws others; and a pair of doubles is a complex number as well."""
    made = instance(forward, "[torch.randn(4, 4)]")
    leaves = made.draw(GIVEN, 1)
    exact, kind = made.oracle(leaves, None)
    assert kind == "float64-trace" and exact[0].dtype is torch.float64
    assert float((exact[0] - made.eager(leaves, None)[0].double()).abs().max()) < 1e-6


def test_casts_to_half_precision_vanish_from_the_oracle() -> None:
    """The oracle is what the program means, not what its dtypes do to it."""
    made = instance("(x.half() * 3).float()", "[torch.rand(64)]")
    leaves = made.draw(GIVEN, 1)
    exact, _ = made.oracle(leaves, None)
    assert torch.equal(leaves[0].double() * 3, exact[0])


def test_the_oracle_leaves_the_reference_in_its_own_precision() -> None:
    """The module and the default dtype are as before."""
    made = instance("self.l(x)", "[torch.randn(4, 4)]", init="self.l = nn.Linear(4, 4)")
    made.oracle(made.draw(GIVEN, 1), None)
    assert torch.float32 == made.model.l.weight.dtype == torch.get_default_dtype()


def test_the_work_of_a_product_is_counted() -> None:
    """Cost decides how often floors are drawn."""
    made = instance("x @ x.T", "[torch.randn(64, 300)]")
    made.oracle(made.draw(GIVEN, 1), None)
    assert 64 * 64 * 300 <= made.work < 3 * 64 * 64 * 300


def test_orders_of_summation_centre_on_the_truth() -> None:
    """Where float64 is impossible the mean of several orders is closer than eager."""
    made = instance("(x.view(torch.int32).view(torch.float32)).sum(-1)", "[torch.rand(64, 4096)]")
    leaves = made.draw(GIVEN, 1)
    exact, kind = made.oracle(leaves, None)
    truth = leaves[0].double().sum(-1)
    assert "orders-of-summation" == kind
    assert float((exact[0] - truth).abs().max()) < 4e-7 * float(truth.max())
    assert made.floors(leaves, None, list(map(Magnitudes, exact))).whole(0).rms > 0.0


@pytest.mark.parametrize(
    ("shape", "kernel", "rest"),
    [
        ((7, 4, 9, 9), (6, 4, 3, 3), ([2, 1], [1, 1], [1, 1], False, [0, 0], 1)),
        ((5, 4, 9), (4, 2, 3), ([1], [0], [2], False, [0], 2)),
        ((3, 4, 5, 5), (4, 6, 3, 3), ([2, 2], [1, 1], [1, 1], True, [1, 1], 1)),
    ],
)
def test_a_convolution_in_parts_of_the_batch_is_the_same(
    monkeypatch: pytest.MonkeyPatch, shape: tuple[int, ...], kernel: tuple[int, ...], rest: tuple[object, ...]
) -> None:
    """Two images at a time, strided, grouped and transposed; and two at a time are what was asked for."""
    run = torch.ops.aten.convolution.default
    seen: list[int] = []

    def counted(values: torch.Tensor, *others: object) -> torch.Tensor:
        seen.append(len(values))
        return run(values, *others)

    rng = torch.Generator().manual_seed(4)
    values, weight = (torch.randn(size, dtype=torch.float64, generator=rng) for size in (shape, kernel))
    spread = values[:1].numel() * weight[0, 0].numel() * values.element_size()
    monkeypatch.setattr(oracle, "SPREAD_BYTES", 2 * spread + 1)
    found = oracle.convolved(counted, values, weight, None, *rest)
    assert torch.allclose(run(values, weight, None, *rest), found, rtol=1e-14, atol=1e-14)
    assert (2, len(values)) == (max(seen), sum(seen))


def test_the_steps_of_a_recurrent_layer_are_counted_whoever_takes_them() -> None:
    """oneDNN takes an LSTM's layer as one operator, and float64 has none such: counted as one it was cheap, and eight
    honest errors of 7 s each were drawn for it."""
    layer = "self.layer = nn.{}(8, 16, 2)"
    gru, lstm = (
        instance("self.layer(x)[0]", "[torch.rand(300, 4, 8)]", init=layer.format(name)).work
        for name in ("GRU", "LSTM")
    )
    products = 300 * 4 * (8 + 16 + 16 + 16) * 16
    assert 3 * products + 4000 * oracle.OF_MANY < gru < 3 * products + 7000 * oracle.OF_MANY
    assert 4 * products + 4000 * oracle.OF_MANY < lstm < 4 * products + 7000 * oracle.OF_MANY
