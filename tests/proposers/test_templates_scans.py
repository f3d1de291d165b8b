# SPDX-License-Identifier: Apache-2.0
"""Running sums and products, and places of maxima, in C++: against float64, torch's ties and torch's NaN."""

from __future__ import annotations

import pytest
import torch
from templates_bench import PROPOSER, error_ratios, load, pair, propose, reference, request

from kernelwright.proposers.templates.ir import Call

BEFORE = """\
part = torch.cumsum(x.narrow(dim=1, start=0, length=x.size(1) - 1), dim=1)
return torch.cat((torch.zeros_like(x.select(1, 0).unsqueeze(1)), part), dim=1)"""
SCANS = {
    "sum": reference("return torch.cumsum(x, dim=1)", "torch.randn(7, 9001)"),
    "sum of a middle axis": reference("return torch.cumsum(x, 1)", "torch.randn(3, 901, 37)"),
    "product": reference("return torch.cumprod(x, -1)", "torch.rand(7, 203) + 0.5"),
    "product of a middle axis": reference("return torch.cumprod(x, 0)", "torch.rand(203, 37) + 0.5"),
    "from the end": reference("return torch.cumsum(x.flip(1), dim=1).flip(1)", "torch.randn(7, 8999)"),
    "product from the end": reference("return torch.cumprod(x.flip(0), 0).flip(0)", "torch.rand(203, 37) + 0.5"),
    "before": reference(BEFORE, "torch.randn(7, 8193)"),
    "before, middle axis": reference(BEFORE, "torch.randn(3, 101, 19)"),
    "masked": reference("return torch.cumsum(x * m, dim=1)", "torch.randn(7, 999), torch.rand(7, 999) > 0.5",
                        arguments="x, m"),
    "normalised": reference("s = torch.cumsum(torch.exp(x), -1)\nreturn s / s.amax(-1, keepdim=True)",
                            "torch.randn(7, 999)"),
}  # fmt: skip
PLACES = {
    "rows": reference("return torch.argmax(x, dim=1)", "torch.randn(33, 9001)"),
    "middle axis": reference("return torch.argmin(x, 1)", "torch.randn(3, 301, 21)"),
    "middle axis in two passes": reference(
        "return torch.argmin(x, 1), (x - x.amax(1, keepdim=True)).amin(1)", "torch.randn(3, 301, 21)"
    ),
    "kept": reference("return torch.argmax(x * 2, -1, keepdim=True), x.amax(-1, keepdim=True)", "torch.randn(9, 70)"),
}


@pytest.mark.parametrize("name", sorted(SCANS))
@pytest.mark.parametrize("width", [0, 4])
def test_a_scan_is_as_accurate_as_the_reference(name: str, width: int) -> None:
    """Rows of thousands: sums of float32 in float32, one after the other, would lose bits."""
    found = propose(SCANS[name], width=width)
    assert found is not None
    module = load(found)
    torch.manual_seed(1)
    assert max(error_ratios(module, module.get_inputs())) <= 1.2


@pytest.mark.parametrize("name", ["from the end", "before", "product from the end"])
def test_a_compound_is_one_region_and_nothing_else(name: str) -> None:
    """No flip, no narrowed copy and no concatenation is left."""
    traced = PROPOSER._trace(request(SCANS[name]))
    assert traced is not None
    assert [] == [step.target for step in traced[1].steps if isinstance(step, Call)]


@pytest.mark.parametrize(
    "forward",
    [
        "return torch.cumsum(x.flip(0), dim=1).flip(1)",
        "return torch.cumsum(x.flip(1), dim=1).flip(0)",
        "y = torch.cumsum(x.flip(1), dim=1)\nreturn y.flip(1), y + 1",
        "z = torch.ones_like(x.select(1, 0).unsqueeze(1))\n"
        "return torch.cat((z, torch.cumsum(x.narrow(1, 0, x.size(1) - 1), 1)), 1) * 2",
        "z = torch.zeros_like(x.select(1, 0).unsqueeze(1))\n"
        "return torch.cat((z, torch.cumsum(x.narrow(1, 1, x.size(1) - 1), 1)), 1) * 2",
    ],
)
def test_what_only_looks_like_a_compound_is_right_too(forward: str) -> None:
    """Another dimension, a middle value that is read, ones in place of zeros, another part."""
    found = propose(reference(forward, "torch.randn(6, 50)"))
    assert found is not None
    module = load(found)
    torch.manual_seed(1)
    assert max(error_ratios(module, module.get_inputs())) <= 1.2


def test_a_product_that_has_reached_zero_stays_there() -> None:
    """Local products of large numbers must not turn 0 into NaN."""
    found = propose(SCANS["product"])
    assert found is not None
    old, new = pair(load(found))
    x = torch.full((3, 203), 1e38)
    x[:, 5] = 0.0
    with torch.no_grad():
        assert torch.equal(old(x), new(x))


@pytest.mark.parametrize("name", sorted(PLACES))
@pytest.mark.parametrize("width", [0, 8])
def test_the_first_of_the_largest_is_named(name: str, width: int) -> None:
    """Ties, NaN (the first one wins), rows of one value and rows of -inf."""
    found = propose(PLACES[name], width=width)
    assert found is not None
    old, new = pair(load(found))
    torch.manual_seed(1)
    (x,) = load(found).get_inputs()
    rounded, broken = (x * 2).round(), (x * 2).round()
    broken[x > 2.2] = float("nan")
    cases = [x, rounded, broken, torch.zeros_like(x), torch.full_like(x, -float("inf")), -x.abs().round()]
    for given in cases:
        expected, got = ([r] if isinstance(r, torch.Tensor) else list(r) for r in (old(given), new(given)))
        for one, other in zip(expected, got, strict=True):
            assert one.dtype == other.dtype
            torch.testing.assert_close(one, other, rtol=0, atol=0, equal_nan=True)


def test_a_place_among_all_elements_stays_a_torch_call() -> None:
    """argmax without a dimension has no rows."""
    assert propose(reference("return torch.argmax(x)", "torch.randn(5, 7)")) is None
