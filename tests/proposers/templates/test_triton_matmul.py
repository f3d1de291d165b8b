# SPDX-License-Identifier: Apache-2.0
"""Which matrix products the Triton kernel takes, and what it leaves to torch."""

import pathlib
import sys

import pytest

from kernelwright.proposers.templates import triton_matmul, triton_program
from kernelwright.proposers.templates.graph import capture
from kernelwright.proposers.templates.lower import lower
from kernelwright.task import Task

sys.path.insert(0, str(pathlib.Path(__file__).parent))
import triton_cases


def program_of(reference):
    """The fused form of a reference."""
    return lower(capture(Task(name="t", form="kernelbench", reference=reference)))


def test_a_pointwise_reader_is_computed_on_the_accumulator():
    """The product is not written and read again when only an activation reads it."""
    ((call, reader, matrix),) = triton_matmul.pairs(program_of(triton_cases.LINEAR_GELU))
    assert (0, 1) == (call, reader)
    assert (1, 0) == matrix.right_axes
    assert matrix.bias


def test_a_reader_that_reduces_stays_a_kernel_of_its_own():
    """A softmax over the product needs whole rows, which no tile of the product holds."""
    reference = triton_cases.reference(
        "return torch.softmax(x @ y, -1)", "torch.randn(8, 16)", "torch.randn(16, 24)", names="x, y"
    )
    assert [None] == [reader for _, reader, _ in triton_matmul.pairs(program_of(reference))]


@pytest.mark.parametrize(
    ("left", "right"),
    [
        ("torch.randn(2, 8, 16)", "torch.randn(1, 16, 24)"),
        ("torch.randn(8, 16)", "torch.randn(3, 16, 24)"),
        ("torch.randn(8, 16)", "torch.randn(16)"),
        ("torch.randn(2, 8, 16).double()", "torch.randn(2, 16, 24).double()"),
    ],
)
def test_broadcast_products_vectors_and_doubles_are_left_to_torch(left, right):
    """Each product of a batch has operands of its own; a vector and float64 have other kernels."""
    reference = triton_cases.reference("return torch.matmul(x, y)", left, right, names="x, y")
    assert [] == triton_matmul.pairs(program_of(reference))


@pytest.mark.parametrize("name", ["SCORES", "GATED"])
def test_what_reads_a_batch_of_products_is_computed_on_the_accumulator(name):
    """A mask that every product of the batch shares, a number per head, a bias by column, a gate by row."""
    program = program_of(getattr(triton_cases, name))
    ((call, reader, matrix),) = triton_matmul.pairs(program)
    assert matrix.batch
    assert reader is not None
    assert "matmul.triton" in [found.name for found in triton_program.structures(program)]
    assert "terms.triton" not in [found.name for found in triton_program.structures(program)]


def test_a_matrix_times_itself_has_two_operands():
    """One tensor of the graph, read twice."""
    ((_, _, matrix),) = triton_matmul.pairs(program_of(triton_cases.reference("return x @ x", "torch.randn(8, 8)")))
    assert matrix.left == matrix.right == "a0"


def test_the_split_that_suits_the_storage_of_the_right_operand_comes_first():
    """Hopper's tensor cores cannot read 32-bit operands transposed, so row storage prefers the bfloat16 split."""
    first = {
        name: triton_matmul.space(program_of(reference)).parameters[0].values[0]
        for name, reference in (("columns", triton_cases.LINEAR_GELU), ("rows", triton_cases.PLAIN))
    }
    assert {"columns": "tf32x3", "rows": "bf16x6"} == first


@pytest.mark.parametrize(("columns", "first"), [(1, False), (triton_program.THIN - 1, False), (64, True)])
def test_a_product_with_few_columns_is_tried_in_tiles_last(columns, first):
    """Tiles of a product with a few vectors are mostly padding: torch's own kernels (order 1) come before them."""
    reference = triton_cases.reference(
        "return torch.relu(x @ y)", "torch.randn(256, 512)", f"torch.randn(512, {columns})", names="x, y"
    )
    (matmul,) = (s for s in triton_program.structures(program_of(reference)) if s.name == "matmul.triton")
    assert (matmul.order < 1) == first
