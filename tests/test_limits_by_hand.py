# SPDX-License-Identifier: Apache-2.0
"""Bytes of sample programs worked out by hand, forward and backward: what must be read and written, no more.

Every number is (elements x bytes of an element), written out, so that it can be checked with a pencil.
"""

from __future__ import annotations

import math

import pytest
import torch
import torch.nn.functional as F  # noqa: N812
from torch import nn

from kernelwright import limits
from kernelwright.machine import Fact, Machine


def fn(body: object) -> nn.Module:
    """A module whose forward is ``body``."""
    return type("M", (nn.Module,), {"forward": staticmethod(body)})()


def add_in_place(x: torch.Tensor) -> torch.Tensor:
    """Changes its input and returns it."""
    return x.add_(1.0)


def overwrite(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """Nothing of what x was is left."""
    return x.copy_(y).mul_(2.0)


def halves(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Three results, one of them a view of another."""
    y = x.half()
    return y, y[:2], x.amax(1)


REPEATED = torch.tensor([3, 3, 3, 7, 3, 7, 7, 3])
ROWS = torch.tensor([0, 5, 5, 2])
FORWARD = {
    # name: (body, inputs, bytes read, bytes written)
    "several results, one a view of another": (
        halves, [torch.randn(8, 16)], 128 * 4, 128 * 2 + 8 * 4),
    "a broadcast column is read once": (
        lambda x: x.expand(8, 1024) * 2, [torch.randn(8, 1)], 8 * 4, 8 * 1024 * 4),
    "an expanded result is as large as its own elements": (
        lambda x: x.sum(1, keepdim=True).expand(8, 16), [torch.randn(8, 16)], 128 * 4, 8 * 4),
    "an input for its shape alone": (
        lambda x, y: torch.ones_like(x) + y, [torch.randn(8, 4), torch.randn(4)], 4 * 4, 32 * 4),
    "rows of a table named twice are read once": (
        lambda i, w: F.embedding(i, w), [REPEATED, torch.randn(100, 16)], 8 * 8 + 2 * 16 * 4, 8 * 16 * 4),
    "selected rows": (
        lambda x, i: x.index_select(0, i) + 1, [torch.randn(64, 8), ROWS], 3 * 8 * 4 + 4 * 8, 4 * 8 * 4),
    "advanced indexing of columns": (
        lambda x, i: x[:, i], [torch.randn(4, 64), ROWS], 4 * 3 * 4 + 4 * 8, 4 * 4 * 4),
    "an element gathered from each row": (
        lambda x, i: x.gather(1, i), [torch.randn(4, 100), torch.tensor([[1], [1], [50], [99]])],
        4 * 32 + 4 * 8, 4 * 4),
    "elements gathered from the same sectors": (
        lambda x, i: x.gather(1, i), [torch.randn(4, 96), torch.tensor([[1, 2], [16, 9], [50, 51], [0, 7]])],
        5 * 32 + 8 * 8, 8 * 4),
    "what is gathered from a result need not lie in sectors": (
        lambda x, i: (x * 2).gather(1, i), [torch.randn(4, 100), torch.tensor([[1], [1], [50], [99]])],
        4 * 4 + 4 * 8, 4 * 4),
    "a loss reads the targets' elements of log-probabilities": (
        lambda x, t: F.nll_loss(x, t, reduction="none"), [torch.randn(8, 1000), torch.arange(8)], 8 * 4 + 8 * 8, 8 * 4),
    "bytes in, floats out": (
        lambda x: x.float() * 0.5, [torch.randint(-128, 127, (1024,), dtype=torch.int8)], 1024, 4096),
    "a product of bfloat16": (
        lambda a, b: a @ b, [torch.randn(32, 64).bfloat16(), torch.randn(64, 16).bfloat16()],
        (32 * 64 + 64 * 16) * 2, 32 * 16 * 2),
    "changed in place and returned": (add_in_place, [torch.randn(256)], 256 * 4, 256 * 4),
    "overwritten in place and returned": (overwrite, [torch.randn(256), torch.randn(256)], 256 * 4, 256 * 4),
    "a slice of a chain needs a slice of its input": (
        lambda x: (x.exp() * 2)[:4].contiguous(), [torch.randn(64, 16)], 4 * 16 * 4, 4 * 16 * 4),
    "the first columns, used twice, are read once": (
        lambda x: x[:, :10].sum(1) + x[:, :10].amax(1), [torch.randn(6, 100)], 60 * 4, 6 * 4),
    "overlapping windows are read once": (
        lambda x: x[:-1] + x[1:], [torch.randn(65)], 65 * 4, 64 * 4),
    "a part replaced need not be read": (
        lambda x, y: torch.slice_scatter(x, y, 0, 0, 48), [torch.randn(64, 4), torch.randn(48, 4)],
        (16 + 48) * 4 * 4, 64 * 4 * 4),
    "a view of the input, scaled": (
        lambda x: x.t()[1:3] * 2, [torch.randn(32, 8)], 2 * 32 * 4, 2 * 32 * 4),
    "a mask that is an input lets half of each operand through": (
        torch.where, [torch.arange(64) % 32 < 16, torch.randn(64), torch.randn(64)], 64 + 32 * 4 + 32 * 4, 64 * 4),
    "a mask that alternates leaves no sector out": (
        torch.where, [torch.arange(64) % 2 == 0, torch.randn(64), torch.randn(64)], 64 + 64 * 4 + 64 * 4, 64 * 4),
    "a mask over a result leaves elements out": (
        lambda m, x, y: torch.where(m, x * 2, y), [torch.arange(64) % 2 == 0, torch.randn(64), torch.randn(64)],
        64 + 32 * 4 + 64 * 4, 64 * 4),
    "a mask over a part that begins within a sector": (
        lambda m, x: torch.where(m, x[1:65], 0.0), [torch.arange(64) % 2 == 0, torch.randn(72)], 64 + 32 * 4, 64 * 4),
    "a mask that is an input hides a quarter": (
        lambda x, m: x.masked_fill(m, 0.0) * 2, [torch.randn(64), torch.arange(64) < 16], 48 * 4 + 64, 64 * 4),
    "double and complex": (
        lambda x: torch.complex(x, x * 2), [torch.randn(16).double()], 16 * 8, 16 * 16),
}  # fmt: skip


@pytest.mark.parametrize("name", FORWARD)
def test_forward_bytes(name: str) -> None:
    """Each needed element once, however often and through whatever view it is used."""
    body, inputs, read, written = FORWARD[name]
    found = limits.trace_module(fn(body), [t.clone() for t in inputs], {})
    assert (read, written) == (found.input_bytes, found.output_bytes)


class Layer(nn.Module):
    """A linear layer with a weight that learns and a scale that does not."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(64, 16)
        self.scale = nn.Parameter(torch.ones(16), requires_grad=False)
        self.register_buffer("mean", torch.zeros(64))
        self.register_buffer("never", torch.zeros(1000))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """[n, 64] to [n, 16]."""
        return self.linear(x - self.mean) * self.scale


def test_backward_of_a_layer() -> None:
    """Reads x, both weights, scale, mean and the incoming gradient; writes y and the gradients of x, W and b."""
    found = limits.trace_module(Layer(), [torch.randn(32, 64)], {}, gradients=True)
    read = 32 * 64 + 16 * 64 + 16 + 16 + 64 + 32 * 16
    assert (4 * read, 4 * (32 * 16 + 32 * 64 + 16 * 64 + 16)) == (found.input_bytes, found.output_bytes)
    assert (5,) == found.unused_inputs  # x, weight, bias and scale, mean, never


def test_forward_of_the_same_layer_reads_no_more_than_it_must() -> None:
    """Without gradients: x, the weights, the buffer that is used."""
    found = limits.trace_module(Layer(), [torch.randn(32, 64)], {})
    assert (4 * (32 * 64 + 16 * 64 + 16 + 16 + 64), 4 * 32 * 16) == (found.input_bytes, found.output_bytes)


def test_backward_of_softmax_needs_its_result_and_the_incoming_gradient() -> None:
    """x and dy in, y and dx out."""
    found = limits.trace_module(nn.Softmax(1), [torch.randn(8, 32)], {}, gradients=True)
    assert (2 * 256 * 4, 2 * 256 * 4) == (found.input_bytes, found.output_bytes)


def test_backward_of_a_bfloat16_gate_with_two_inputs() -> None:
    """silu(a) * b: a, b and dy in, y, da and db out, two bytes each."""
    found = limits.trace_module(
        fn(lambda a, b: F.silu(a) * b), [torch.randn(64).bfloat16(), torch.randn(64).bfloat16()], {}, gradients=True
    )
    assert (3 * 64 * 2, 3 * 64 * 2) == (found.input_bytes, found.output_bytes)


def test_an_incoming_gradient_that_is_handed_on_is_copied() -> None:
    """x + y: x, y and dy in; the sum, dx and dy out, though the latter two are the incoming gradient itself."""
    found = limits.trace_module(fn(torch.add), [torch.randn(64), torch.randn(64)], {}, gradients=True)
    assert (3 * 64 * 4, 3 * 64 * 4) == (found.input_bytes, found.output_bytes)


def test_a_computed_index_names_an_unknown_number_of_rows() -> None:
    """The row of the largest element is found at run time: the bound counts none of the table, and says so."""
    found = limits.trace_module(fn(lambda x, w: w[x.argmax(1)]), [torch.randn(8, 10), torch.randn(10, 64)], {})
    assert (8 * 10 * 4, 8 * 64 * 4) == (found.input_bytes, found.output_bytes)
    assert any("computed index" in reason for reason in found.conditional)
    assert () == found.unused_inputs


def test_the_bound_in_microseconds_by_hand() -> None:
    """1 MiB read and 1 MiB written at 100 GB/s as a copy: 20.97 us; 2 x 256^3 FLOPs at 1 TFLOP/s: 33.55 us."""
    rates = {"bandwidth.copy.dram_GBps": 100.0, "peak.gemm.float32_TFLOPs": 1.0, "peak.simd.float32_TFLOPs": 1.0}
    facts = tuple(Fact(name=name, value=value, unit="", spread=0.0, note="") for name, value in rates.items())
    machine = Machine(device="cpu", name="x", fingerprint="f", versions=(), facts=facts, measured_at=0.0)
    found = limits.bounds(limits.trace_module(nn.ReLU(), [torch.randn(512, 512)], {}), machine)
    product = limits.bounds(limits.trace_module(fn(torch.mm), [torch.randn(256, 256)] * 2, {}), machine)
    assert found is not None and product is not None
    assert math.isclose(2 * 2**20 / 1e5, found.unavoidable_us) and "memory" == found.limiter
    assert math.isclose(2 * 256**3 / 1e6, product.as_written_us) and "compute" == product.limiter
    # The same matrix twice is one input: 256 KiB read, 256 KiB written.
    assert math.isclose(2 * 2**18 / 1e5, product.unavoidable_us)
