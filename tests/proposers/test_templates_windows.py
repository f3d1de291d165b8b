# SPDX-License-Identifier: Apache-2.0
"""Windows in C++ against torch: every kind and rank, padding, strides, dilation, narrow rows, NaN, and what stays."""

from __future__ import annotations

import pytest
import torch
from templates_bench import PROPOSER, error_ratios, load, pair, propose, reference, request

from kernelwright.proposers.templates.ir import Call

POOLS = {
    "largest of lines": ("return F.max_pool1d(x, 8, 1, 4, 3)", "torch.randn(3, 5, 133)"),
    "largest of squares": ("return F.max_pool2d(x, 2)", "torch.randn(3, 5, 33, 47)"),
    "largest, overlapping": ("return F.max_pool2d(x, 4, 1, 1)", "torch.randn(3, 5, 33, 47)"),
    "largest, uneven": ("return F.max_pool2d(x, (3, 2), (2, 3), 1, (2, 3))", "torch.randn(3, 5, 33, 47)"),
    "largest of cubes": ("return F.max_pool3d(x, 3, 2, 1, 2)", "torch.randn(2, 3, 17, 18, 19)"),
    "mean of lines": ("return F.avg_pool1d(x, 8, 1, 4)", "torch.randn(3, 5, 133)"),
    "mean of squares": ("return F.avg_pool2d(x, 11)", "torch.randn(3, 5, 33, 247)"),
    "mean of cubes": ("return F.avg_pool3d(x, 3, 2, 1)", "torch.randn(2, 3, 17, 18, 19)"),
    "no batch": ("return F.max_pool2d(x, 3)", "torch.randn(5, 33, 47)"),
    "between regions": ("return torch.tanh(F.max_pool2d(F.silu(x), 2)) * 2", "torch.randn(3, 5, 33, 47)"),
}
FILTERS = {
    "same": ("nn.Conv2d(6, 6, 3, padding=1, groups=6)", "2, 6, 40, 73"),
    "two a channel": ("nn.Conv2d(6, 12, (5, 3), stride=2, padding=(1, 2), groups=6)", "2, 6, 40, 73"),
    "dilated": ("nn.Conv2d(6, 6, 3, dilation=(2, 3), padding=2, groups=6, bias=False)", "2, 6, 40, 73"),
    "narrow": ("nn.Conv2d(6, 6, 3, padding=1, groups=6)", "2, 6, 5, 4"),
    "lines": ("nn.Conv1d(6, 6, 7, stride=3, padding=3, groups=6)", "2, 6, 153"),
    "cubes": ("nn.Conv3d(6, 6, (3, 2, 3), padding=(1, 0, 1), groups=6)", "2, 6, 7, 8, 39"),
    "wider than the row": ("nn.Conv1d(6, 6, 9, padding=4, groups=6)", "2, 6, 5"),
}


@pytest.mark.parametrize("name", sorted(POOLS))
@pytest.mark.parametrize("width", [0, 8])
def test_pooling_is_as_accurate_as_the_reference(name: str, width: int) -> None:
    """Maxima are equal; means may differ in how they were added up."""
    found = propose(reference(*POOLS[name]), width=width, threshold=1)
    assert found is not None
    assert "windows.cpp" in found.proposer
    module = load(found)
    torch.manual_seed(1)
    assert max(error_ratios(module, module.get_inputs())) <= (2.0 if name == "between regions" else 1.2)


@pytest.mark.parametrize("name", sorted(FILTERS))
@pytest.mark.parametrize("width", [0, 4])
def test_filters_are_as_accurate_as_the_reference(name: str, width: int) -> None:
    """At the edges too, where taps fall outside the row."""
    layer, shape = FILTERS[name]
    found = propose(reference("return self.c(x)", f"torch.randn({shape})", f"self.c = {layer}"), width=width)
    assert found is not None
    module = load(found)
    torch.manual_seed(1)
    assert max(error_ratios(module, module.get_inputs())) <= 1.5


def test_nan_and_infinity_in_a_box() -> None:
    """A NaN is the largest of its boxes and of no other."""
    found = propose(reference(*POOLS["largest, overlapping"]))
    assert found is not None
    old, new = pair(load(found))
    x = torch.randn(2, 3, 20, 40)
    x[0, 0, 7, 9], x[1, 2, 0, 0], x[1, 1] = float("nan"), float("inf"), -float("inf")
    torch.testing.assert_close(new(x), old(x), rtol=0, atol=0, equal_nan=True)


@pytest.mark.parametrize(
    "forward",
    [
        "return F.avg_pool2d(x, 3, 2, 1, count_include_pad=False)",
        "return F.max_pool2d(x, 3, 2, ceil_mode=True)",
        "return F.avg_pool2d(x, 3, divisor_override=2)",
        "return F.conv2d(x, x[:2, :3, :3, :3], groups=2)",
    ],
)
def test_what_is_not_covered_stays_a_torch_call(forward: str) -> None:
    """Beside a region that is; and it is right."""
    source = reference(forward.replace("return ", "y = ") + "\nreturn torch.tanh(y) * 2", "torch.randn(2, 6, 20, 23)")
    traced = PROPOSER._trace(request(source))
    assert traced is not None
    assert [] == traced[1].windows()
    assert 1 <= sum(isinstance(step, Call) and not step.view for step in traced[1].steps)
    found = propose(source)
    assert found is not None
    module = load(found)
    torch.manual_seed(1)
    assert max(error_ratios(module, module.get_inputs())) <= 1.2
