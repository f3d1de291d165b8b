# SPDX-License-Identifier: Apache-2.0
"""Bounds: bytes and operations recomputed by hand for small programs."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import pytest
import torch
from torch import library, nn

from kernelwright import limits
from kernelwright.limits.memory import memory
from kernelwright.machine import Fact, Machine


def machine(**facts: float) -> Machine:
    """A made-up machine: 100 GB/s, 1 TFLOP/s of float32 vector and matrix arithmetic, unless told otherwise."""
    values = {"bandwidth.copy.dram_GBps": 100.0, "peak.simd.float32_TFLOPs": 1.0, "peak.gemm.float32_TFLOPs": 1.0}
    values |= facts
    rows = tuple(Fact(name=name, value=value, unit="", spread=0.0, note="") for name, value in values.items())
    return Machine(device="cpu", name="made up", fingerprint="f", versions=(), facts=rows, measured_at=0.0)


def fn(body: object) -> nn.Module:
    """A module whose forward is ``body``."""
    return type("M", (nn.Module,), {"forward": staticmethod(body)})()


F32 = 4
CASES = {
    "pointwise reads x and writes y": (lambda x: torch.relu(x) * 2, [(8, 16)], 128 * F32, 128 * F32),
    "a product by a diagonal reads the vector, not the square": (
        lambda v, x: torch.diag(v) @ x,
        [(16,), (16, 4)],
        (16 + 64) * F32,
        64 * F32,
    ),
    "only the slice that is used is read": (lambda x: x[:2] + 1, [(8, 16)], 32 * F32, 32 * F32),
    "an input without influence is not read": (lambda x, y: x + torch.zeros_like(y), [(8,), (8,)], 8 * F32, 8 * F32),
    "the lower triangle is read, not the square": (lambda x: torch.tril(x) * 2, [(4, 4)], 10 * F32, 16 * F32),
    "an input used twice is read once": (lambda x: x.sum(0) + x.mean(0), [(8, 4)], 32 * F32, 4 * F32),
    "a strided window skips what it skips": (
        lambda x: nn.functional.avg_pool2d(x, 1, stride=2),
        [(1, 1, 8, 8)],
        16 * F32,
        16 * F32,
    ),
    "a view costs nothing to write": (lambda x: x.t(), [(4, 8)], 0, 0),
    "a masked operand may be skipped": (lambda x: torch.where(x[:4] > 0, x[4:], 0.0), [(8,)], 4 * F32, 4 * F32),
}


@pytest.mark.parametrize("name", CASES)
def test_bytes_that_must_move(name: str) -> None:
    """Each needed input element once, each output element once, in bytes computed by hand."""
    body, shapes, read, written = CASES[name]
    found = limits.trace_module(fn(body), [torch.randn(*shape) for shape in shapes], {})
    assert (read, written) == (found.input_bytes, found.output_bytes)


def test_matmul_counts_two_operations_a_multiply_add() -> None:
    """M=3, N=5, K=7: 2*3*5*7 operations on the matrix unit, and the bound is their time when it is longer."""
    found = limits.trace_module(fn(lambda a, b: a @ b), [torch.randn(3, 7), torch.randn(7, 5)], {})
    assert [("mm", 210, "matmul")] == [(op.name, op.operations, op.unit) for op in found.operators]
    slow = limits.bounds(found, machine(**{"peak.gemm.float32_TFLOPs": 1e-6}))
    assert slow is not None
    assert (210.0, "compute") == (pytest.approx(slow.as_written_us), slow.limiter)
    assert pytest.approx((21 + 35 + 15) * F32 / 1e5) == slow.unavoidable_us


def test_distances_of_all_pairs_are_a_product() -> None:
    """30 rows of 7 against 40: a multiply-add for each pair and column."""
    found = limits.trace_module(fn(torch.cdist), [torch.randn(30, 7), torch.randn(40, 7)], {})
    assert [2 * 30 * 40 * 7] == [op.operations for op in found.operators if op.unit == "matmul"]


def test_backward_moves_gradients_too() -> None:
    """y = x * w: backward reads x, w and the incoming gradient, and writes both gradients besides y."""

    class Scale(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.w = nn.Parameter(torch.ones(8))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x * self.w

    found = limits.trace_module(Scale(), [torch.randn(4, 8)], {}, gradients=True)
    assert ((32 + 8 + 32) * F32, (32 + 32 + 8) * F32) == (found.input_bytes, found.output_bytes)


def test_control_flow_on_values_is_traced_on_the_example() -> None:
    """A branch on a value cannot be followed by fake tensors; the example decides and a warning says so."""
    found = limits.trace_module(fn(lambda x: x * 2 if x.sum() > 0 else x - 1), [torch.ones(4)], {})
    assert ["sum", "gt", "_local_scalar_dense", "mul"] == [op.name for op in found.operators]
    assert any("traced on the example" in warning for warning in found.warnings)


class Recurrent(nn.Module):
    """Keeps its hidden state as a plain attribute, as many a recurrent cell does."""

    def __init__(self) -> None:
        super().__init__()
        self.cell = nn.Linear(12, 8)
        self.hidden = torch.zeros(4, 8)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.hidden = torch.tanh(self.cell(torch.cat([x, self.hidden], 1)))
        self.steps = 1
        return self.hidden


@pytest.mark.parametrize("look", [limits.trace_module, memory])
def test_a_hidden_state_is_not_left_behind_on_fake_tensors(look: Callable[..., object]) -> None:
    """What forward assigns is undone, so the next real call computes with real numbers."""
    module, x = Recurrent(), torch.randn(4, 4)
    before = module.hidden
    look(module, (x,), {})
    assert module.hidden is before and not hasattr(module, "steps")
    assert type(module(x)) is torch.Tensor and bool(module(x).isfinite().all())


def test_unknown_operators_are_named_and_bounded_by_bytes() -> None:
    """An FFT has no operation count here: it is named in a warning and costs its bytes."""
    found = limits.trace_module(fn(lambda x: torch.fft.rfft(x).real.clone()), [torch.randn(64)], {})
    assert any("fft" in warning for warning in found.warnings)
    assert [False] == [op.known for op in found.operators if "fft" in op.name]


@library.custom_op("kernelwright_test::twist", mutates_args=())
def twist(x: torch.Tensor) -> torch.Tensor:
    """An operator that no library knows."""
    return x.flip(0)


@twist.register_fake
def _(x: torch.Tensor) -> torch.Tensor:
    return torch.empty_like(x)


@library.custom_op("kernelwright_test::scale", mutates_args=("x",))
def scale(x: torch.Tensor) -> None:
    """One that writes to its operand and returns nothing."""
    x.mul_(2.0)


def test_somebodys_own_operator_is_named_and_makes_nothing_unavoidable() -> None:
    """What it reads is not known, so no byte of its input may void a time; what it makes must be read and written."""
    found = limits.trace_module(fn(lambda x, y: twist(x) * y), [torch.randn(64), torch.randn(64)], {})
    assert (256, 256, ()) == (found.input_bytes, found.output_bytes, found.unused_inputs)
    assert [("kernelwright_test::twist", 512, False), ("mul", 768, True)] == [
        (op.name, op.bytes, op.known) for op in found.operators
    ]
    assert any("kernelwright_test::twist" in text for text in found.warnings)
    assert any("kernelwright_test::twist" in text for text in found.conditional)


def test_somebodys_own_operator_that_writes_in_place_is_named_too() -> None:
    """It returns nothing; the tensor that it changed is what later operators read."""

    def call(x: torch.Tensor) -> torch.Tensor:
        mine = x + 1
        scale(mine)
        return mine * 3

    found = limits.trace_module(fn(call), [torch.randn(64)], {})
    assert ["add", "kernelwright_test::scale", "mul"] == [op.name for op in found.operators]
    assert (256, 256) == (found.input_bytes, found.output_bytes)


def test_an_unmeasured_machine_gives_no_bound() -> None:
    """Without a measured bandwidth there is no bound, rather than one from a table of names."""
    empty = Machine(device="cpu", name="", fingerprint="", versions=(), facts=(), measured_at=0.0)
    assert limits.unavoidable_us(1000, 0, empty) is None
    assert 0.005 == pytest.approx(limits.unavoidable_us(600, 400, machine(), resident=500) or 0)


def test_a_mix_of_reads_and_writes_costs_what_that_mix_was_measured_at() -> None:
    """1 byte/ns read, 2 copied, 4 written: a quarter written costs the mean of the read's and the copy's price."""
    rates = {"bandwidth.read.dram_GBps": 1.0, "bandwidth.copy.dram_GBps": 2.0, "bandwidth.write.dram_GBps": 4.0}
    costs = [limits.unavoidable_us(1000 - w, w, machine(**rates)) for w in (0, 250, 500, 750, 1000)]
    assert pytest.approx([1.0, 0.75, 0.5, 0.375, 0.25]) == costs


def test_rows_sum_to_the_unfused_time() -> None:
    """Two pointwise operators alone move twice what their fusion moves."""
    found = limits.trace_module(fn(lambda x: torch.relu(x * 2)), [torch.randn(1024)], {})
    bound = limits.bounds(found, machine())
    assert bound is not None
    assert pytest.approx(2 * bound.unavoidable_us) == bound.unfused_us


def test_data_in_a_cache_is_reached_at_the_cache_s_rate_and_a_disturbed_step_does_not_slow_it() -> None:
    """1 MiB: at its own step's rate or a larger one's, whichever is faster; far larger sets at the largest step's."""
    steps = (("bandwidth.read.512KiB_GBps", 200.0), ("bandwidth.read.1MiB_GBps", 10.0),
             ("bandwidth.copy.2MiB_GBps", 100.0), ("bandwidth.read.256MiB_GBps", 20.0))  # fmt: skip
    facts = tuple(Fact(name=name, value=value, unit="GB/s", spread=0.0, note="") for name, value in steps)
    known = Machine(device="cpu", name="x", fingerprint="0", versions=(), facts=facts, measured_at=0.0)
    assert [10.48576, 50_000.0] == [pytest.approx(limits.reach_us(known, size)) for size in (1 << 20, 10**9)]
    assert limits.reach_us(dataclasses.replace(known, facts=()), 1) is None


@pytest.mark.parametrize("kind", [nn.GRU, nn.RNN])
def test_a_recurrent_layer_is_one_operator_that_needs_its_inputs_and_weights(kind: type[nn.RNNBase]) -> None:
    """Followed step by step, six layers of 512 steps took 17 s. The results are as large as they really are."""
    layer = kind(3, 5, num_layers=2, bidirectional=True, batch_first=True)
    given, hidden = torch.randn(4, 50, 3), torch.randn(4, 4, 5)
    found = limits.trace_module(layer, [given, hidden], {})
    weights = sum(value.numel() for value in layer.parameters())
    assert 1 == len(found.operators) and not found.operators[0].known
    assert 4 * (given.numel() + hidden.numel() + weights) == found.input_bytes
    assert 4 * sum(out.numel() for out in layer(given, hidden)) == found.output_bytes


def test_a_recurrent_layer_is_followed_where_gradients_are_wanted() -> None:
    """What is left empty has none."""
    found = limits.trace_module(nn.GRU(3, 5), [torch.randn(2, 4, 3)], {}, gradients=True)
    assert any("mm" in one.name for one in found.operators)
