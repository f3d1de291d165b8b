# SPDX-License-Identifier: Apache-2.0
"""What kernels take inside and what an allocator makes of sizes, on examples worked out from the sources they state."""

from __future__ import annotations

import pytest
import torch

from kernelwright.limits import scratch
from kernelwright.limits.blocks import Blocks
from kernelwright.limits.memory import memory
from kernelwright.limits.scratch import Part, reduction

MIB = 1 << 20
H200 = Part("cuda")


def floats(*shape: int) -> torch.Tensor:
    """Of no values."""
    return torch.empty(shape, device="meta")


def test_a_large_block_whose_rest_is_small_is_charged_whole() -> None:
    """24.5 MiB come from a segment of 26, split; 49 MiB from one of 50, whose last MiB is not worth splitting off."""
    blocks = Blocks()
    blocks.take(49 * MIB // 2)
    assert (49 * MIB // 2, 26 * MIB) == (blocks.now, blocks.reserved)
    blocks.take(49 * MIB)
    assert (49 * MIB // 2 + 50 * MIB, 76 * MIB) == (blocks.now, blocks.reserved)


def test_freed_neighbours_become_one_block_that_is_used_again() -> None:
    """Three of 6 MiB share a segment of 20; two of them freed hold 12 MiB, and no new segment is taken."""
    blocks = Blocks()
    first, second, third = (blocks.take(6 * MIB) for _ in range(3))
    blocks.give(second)
    blocks.give(first)
    assert blocks.take(12 * MIB).size == 12 * MIB and blocks.reserved == 20 * MIB
    blocks.give(third)
    assert (12 * MIB, 18 * MIB) == (blocks.now, blocks.most)


def test_small_requests_have_segments_of_their_own() -> None:
    """Of 2 MiB, in steps of 512 bytes, and never from what large ones left."""
    blocks = Blocks()
    blocks.give(blocks.take(3 * MIB))
    small = blocks.take(1)
    assert (512, 22 * MIB) == (small.size, blocks.reserved)
    blocks.give(small)
    assert blocks.now == 0 and blocks.take(MIB).size == MIB and blocks.reserved == 22 * MIB


def test_sums_of_columns_hold_places_for_every_thread() -> None:
    """4096 rows of 2048: 64 blocks share a column, 32 threads of 4 columns each: 4 x 2048 x 64 x 128 bytes and 16
    counters. Sums of rows, sums that are left to one block, and few rows need none."""
    assert (64 * MIB, 64) == reduction(floats(4096, 2048), [0], 4, H200)
    assert (24 * MIB, 48) == reduction(floats(2048, 1536), [0], 4, H200)
    assert (0, 0) == reduction(floats(4096, 2048), [1], 4, H200) == reduction(floats(64, 2048), [0], 4, H200)


def test_sums_of_everything_share_it_among_all_processors() -> None:
    """One number out of 2**26: 132 processors times 4 blocks of 512 threads leave one partial sum each."""
    assert (4 * 132 * 4, 4) == reduction(floats(1 << 26), [0], 4, H200)


@pytest.mark.parametrize(
    ("shape", "steps", "kind", "expected"),
    [
        ((8, 512, 512), (262144, 512, 1), "cuda", [8 * 512 * 512 * 4]),
        ((8, 512, 512), (262144, 512, 1), "cpu", []),
        ((8, 512, 512), (262144, 1, 512), "cpu", [8 * 512 * 512 * 4] * 2),
    ],
)
def test_the_gradient_of_a_softmax_begins_with_a_product_on_cuda(
    shape: tuple[int, ...], steps: tuple[int, ...], kind: str, expected: list[int]
) -> None:
    """Of gradient and output; on both kinds what is not in order is copied."""
    one = torch.empty_strided(shape, steps, device="meta")
    call = torch.ops.aten._softmax_backward_data.default, (one, one, -1, torch.float32), {}, one
    assert expected == scratch.scratch(*call, Part(kind))


def test_products_copy_what_has_no_row_or_column_of_step_one() -> None:
    """A gradient that one number was expanded to, and every second column."""
    good, expanded, gaps = floats(64, 64), floats(1, 1).expand(64, 64), floats(64, 128)[:, ::2]
    func = torch.ops.aten.mm.default
    assert [] == scratch.scratch(func, (good.t(), good), {}, good, H200)
    assert [16384, 16384] == scratch.scratch(func, (expanded, gaps), {}, good, H200)


def test_a_convolution_on_a_cpu_holds_its_result_twice() -> None:
    """In blocks of channels while it is made, in the order asked for then; channels last are taken as they are."""
    module, x = torch.nn.Conv2d(64, 128, 3, padding=1), torch.empty(16, 64, 48, 48)
    result = 16 * 128 * 48 * 48 * 4
    with torch.no_grad():
        assert 2 * result == memory(module, (x,)).activations
        assert memory(module, (x.to(memory_format=torch.channels_last),)).activations < 1.1 * result


def test_half_of_each_backward_copy_is_gone_when_the_weights_turn_comes() -> None:
    """Input and coming gradient lie in blocks beside what is left from the forward pass and both results."""
    module, x = torch.nn.Conv2d(64, 64, 3, padding=1), torch.empty(8, 64, 48, 48)
    size = 8 * 64 * 48 * 48 * 4
    found = memory(module, (x,), gradients=True).activations
    assert 4 * size < found < 4.2 * size


def test_what_a_library_chooses_for_itself_is_named() -> None:
    """oneDNN's LSTM is, a convolution of it is not: its copies are known."""
    with torch.no_grad():
        assert "recurrent" in memory(torch.nn.LSTM(16, 16), (torch.empty(4, 2, 16),)).unknown[0]
        assert () == memory(torch.nn.Conv2d(16, 16, 3), (torch.empty(2, 16, 8, 8),)).unknown


def test_a_gradient_that_nobody_wants_is_not_counted() -> None:
    """The input's of a batch norm: input, result and coming gradient are all that is large."""
    x = torch.empty(8, 16, 64, 64)
    found = memory(torch.nn.BatchNorm2d(16), (x,), gradients=True)
    assert 2 * x.nbytes < found.activations < 2.1 * x.nbytes


@pytest.mark.parametrize(("kind", "expected"), [("cuda", [8 * 513 * 64]), ("cpu", [])])
def test_transforms_to_real_numbers_copy_their_input_on_cuda(kind: str, expected: list[int]) -> None:
    """cuFFT may write over it."""
    spectrum = torch.empty(64, 513, dtype=torch.complex64, device="meta")
    call = torch.ops.aten._fft_c2r.default, (spectrum, [1], 2, 1024), {}, floats(64, 1024)
    assert expected == scratch.scratch(*call, Part(kind))


def test_distances_by_a_product_hold_both_operands_again_two_columns_wider() -> None:
    """256 and 128 points of 62 numbers."""
    call = torch.ops.aten._euclidean_dist.default, (floats(256, 62), floats(128, 62)), {}, floats(256, 128)
    assert [256 * 64 * 4, 128 * 64 * 4] == scratch.scratch(*call, H200)
