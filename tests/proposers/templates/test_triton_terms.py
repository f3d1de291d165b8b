# SPDX-License-Identifier: Apache-2.0
"""When matrix products are cut into 16-bit terms, that every choice fits the chip, and what the terms lose."""

import pathlib
import sys

import pytest
import torch

from kernelwright.judge.reference import Reference
from kernelwright.judge.verify import Checker
from kernelwright.proposers.templates import triton_program, triton_terms
from kernelwright.proposers.templates.graph import capture
from kernelwright.proposers.templates.lower import lower
from kernelwright.task import Case, Task
from kernelwright.tuning import Feasible

sys.path.insert(0, str(pathlib.Path(__file__).parent))
import triton_cases


def product(rows, inner, cols):
    """``x @ y`` of one size, lowered."""
    reference = triton_cases.reference(
        "return x @ y", f"torch.randn({rows}, {inner})", f"torch.randn({inner}, {cols})", names="x, y"
    )
    return lower(capture(Task(name="t", form="kernelbench", reference=reference)))


@pytest.mark.parametrize(("size", "offered"), [(1024, False), (2047, False), (2048, True)])
def test_operands_are_cut_only_where_the_product_is_large(size, offered):
    """Below 2^33 multiplications the extra launches cost more than the tensor cores save."""
    program = product(size, size, size)
    assert offered is triton_terms.worthwhile(program)
    assert offered is ("terms.triton" in [s.name for s in triton_program.structures(program)])


def test_a_batch_beside_a_large_product_is_left_to_torch():
    """The kernel that cuts operands knows one matrix of each; the large product is cut all the same."""
    reference = triton_cases.reference(
        "return torch.bmm(x, y), z @ z", "torch.randn(4, 64, 64)", "torch.randn(4, 64, 64)", "torch.randn(4096, 4096)",
        names="x, y, z",
    )  # fmt: skip
    program = lower(capture(Task(name="t", form="kernelbench", reference=reference)))
    assert triton_terms.worthwhile(program)
    calls = [step.target for position, step in enumerate(program.steps) if position in triton_terms.extras(program, {})]
    assert ["aten.matmul.default"] == calls


def test_every_choice_fits_registers_and_shared_memory():
    """227 KiB hold the stages of all terms; 255 registers a thread hold three accumulators and leave room."""
    for values in Feasible(triton_terms.space(product(8, 8, 8))).points():
        terms = 2 if values["TERMS"] == "fp16x3" else 3
        tile = (values["BM"] + values["BN"]) * values["BK"]
        assert 227 * 1024 >= 2 * terms * values["STAGES"] * tile
        assert 192 >= 3 * values["BM"] * values["BN"] / (32 * values["WARPS"])


def scaled(x, dim):
    """High and low float16 terms and the exponent, as ``_cut`` makes them."""
    top = torch.frexp(x.abs().amax(dim, keepdim=True).clamp_min(2.0**-100))[1]
    whole = torch.ldexp(x, 15 - top)
    high = whole.half().float()
    return high, ((whole - high) * 2048).half().float(), 15 - top


def three_products(a, b):
    """What the kernel computes, in float32 on the CPU."""
    high_a, low_a, up_a = scaled(a, 1)
    high_b, low_b, up_b = scaled(b, 0)
    total = high_a @ high_b + (high_a @ low_b + low_a @ high_b) / 2048
    return torch.ldexp(total, -up_a - up_b)


@pytest.mark.parametrize(("draw", "inner"), [("randn", 512), ("rand", 64)])
def test_three_products_of_float16_terms_keep_what_the_contract_asks(draw, inner):
    """The judge's own error ratio over all its ways of drawing inputs, sparse rows included, stays under one bit."""
    source = triton_cases.reference(
        "return x @ y", f"torch.{draw}(16, {inner})", f"torch.{draw}({inner}, 8)", names="x, y"
    )
    case = Case(name="main", timed=True)
    instance = Reference(Task(name="t", form="kernelbench", reference=source, cases=(case,)), "cpu").instance(case)
    checker = Checker(instance, seed=3)
    ratios = {}
    for variant in instance.variants(3):
        leaves = instance.draw(variant, 1003)
        got = three_products(*[leaf.clone().contiguous() for leaf in leaves])
        ratios[variant.name] = checker.check(variant, leaves, None, [got], leaves).error_ratio
    assert max(ratios.values()) <= 2.0, ratios
    assert "sparser" in ratios


def test_rows_far_below_the_range_of_float16_lose_nothing():
    """Each row has a power of two of its own: 1e-30 and 1e30 in one matrix both keep 22 bits."""
    torch.manual_seed(0)
    a = torch.randn(6, 50) * torch.tensor([1e-30, 1e-12, 1.0, 1e12, 1e25, 3e30]).unsqueeze(1)
    b = torch.randn(50, 7)
    exact = a.double() @ b.double()
    assert float(((three_products(a, b).double() - exact).abs() / exact.abs().amax(1, keepdim=True)).max()) < 2**-20
