# SPDX-License-Identifier: Apache-2.0
"""Pointwise integers on the CPU: equal to torch on every edge of the types, and declined where torch may differ."""

from __future__ import annotations

import pytest
import torch
from templates_bench import leaves, load, pair, propose, reference, request

from kernelwright.proposers.templates.graph import capture
from kernelwright.proposers.templates.ir import Fused, Program
from kernelwright.proposers.templates.lower import lower

TYPES = {"uint8": torch.uint8, "int8": torch.int8, "int16": torch.int16, "int32": torch.int32, "int64": torch.int64}
CHAINS = {
    "bits": "return (x ^ 85) | (x & y), ~x, x.bitwise_and(15)",
    "wrapped": "return x * y + 7, x - y, y * 3 - x, -x, x + x, torch.add(x, y, alpha=3)",
    "divided": "return x // 7, x % 7, torch.div(x, 3, rounding_mode='trunc'), torch.fmod(x, 3), x // 1",
    "shifted": "return x << 3, x >> 2, (x << 1) >> 1, x >> 0",
    "bounded": "return x.clamp(3, 100), torch.maximum(x, y), torch.minimum(x, y), x.abs(), torch.relu(x)",
    "chosen": "return torch.where(x > y, x, y + 1), x.masked_fill(y == 5, 9), torch.where(x >= 100, 1, 0)",
    "compared": "return x == y, x != 3, (x < y) ^ (x > 4), (x <= 9) | ~(y >= 9), torch.logical_and(x, y)",
    "powers": "return x ** 2, y ** 3, torch.square(x)",
    "widened": "return x.long() * 3, x.to(torch.int16), x.bool(), x + (y > 3), (x > 3).int() * 5",
    "as floats": "return x / 7, x * 0.5 + 1, x.float() / 3 - y, (x > 2.5)",
}


def _edges(dtype: torch.dtype, seed: int) -> torch.Tensor:
    """Every value of a short type; the ends of a long one and their neighbours among random ones. 3 x 331 elements."""
    info = torch.iinfo(dtype)
    rng = torch.Generator().manual_seed(seed)
    every = torch.randint(info.min, info.max, (993,), dtype=torch.int64, generator=rng)
    ends = torch.tensor([info.min, info.min + 1, info.max, info.max - 1, -1 if info.min else 255, 0, 1, 2, 3, 5, 7, 9])
    every[:12] = ends
    if info.bits == 8:
        every[12:268] = torch.arange(info.min, info.max + 1)
    return every[torch.randperm(993, generator=rng)].to(dtype).view(3, 331)


@pytest.mark.parametrize("kind", TYPES)
@pytest.mark.parametrize("name", CHAINS)
def test_integers_are_torchs_bit_for_bit(name: str, kind: str) -> None:
    """Wrapping, signs of quotients and of shifts, and comparisons at the ends of each type."""
    inputs = f"*(torch.zeros(3, 331, dtype=torch.{kind}) for _ in range(2))"
    candidate = propose(reference(CHAINS[name], inputs, arguments="x, y"))
    assert candidate is not None
    old, new = pair(load(candidate))
    x, y = _edges(TYPES[kind], 1), _edges(TYPES[kind], 2)
    assert new._kw_ready((x, y))
    with torch.no_grad():
        for plain, got in zip(leaves(old(x, y)), leaves(new(x, y)), strict=True):
            assert plain.dtype == got.dtype
            assert torch.equal(plain, got)


def test_rows_columns_and_channels_of_integers_are_read_where_they_lie() -> None:
    """Per column, per row, per channel, per position of a picture, and one number; results go past the cache."""
    forward = "return (x + self.c) ^ r, x * self.n + self.k, x | self.p"
    init = ("self.c, self.n, self.p, self.k = (nn.Parameter(torch.randint(0, 255, s, dtype=torch.uint8),"
            " requires_grad=False) for s in ((130,), (8, 1, 1), (64, 130), (1,)))")  # fmt: skip
    inputs = "*(torch.randint(0, 255, (130, 8, 64, n), dtype=torch.uint8) for n in (130, 1))"
    candidate = propose(reference(forward, inputs, init, "x, r"))
    assert candidate is not None
    module = load(candidate)
    old, new = pair(module)
    given = module.get_inputs()
    assert new._kw_ready(tuple(given))
    for plain, got in zip(leaves(old(*given)), leaves(new(*given)), strict=True):
        assert torch.equal(plain, got)


def _program(forward: str, inputs: str) -> Program:
    arguments = "x, y" if "y" in forward else "x"
    return lower(capture(request(reference(forward, inputs, arguments=arguments)).task))


SHORT = "torch.randint(0, 9, (50,), dtype=torch.int8)"
DECLINED = {
    "a divisor of zero": ("return x // 0", SHORT),
    "a quotient that is in no type": ("return x // -1", SHORT),
    "a divisor from memory": ("return x // y", f"{SHORT}, {SHORT} + 1"),
    "a shift by the width": ("return x << 7", SHORT),
    "a shift by less than nothing": ("return x >> -1", SHORT),
    "a shift from memory": ("return x << y", f"{SHORT}, {SHORT}"),
    "a number outside the type": ("return x.clamp(max=300)", SHORT),
    "a float as an integer": ("return x.to(torch.int32)", "torch.randn(50)"),
    "a power from memory": ("return x ** y", f"{SHORT}, {SHORT}"),
    "a sum": ("return x.sum()", SHORT),
    "a type without arithmetic": ("return x.to(torch.uint16)", SHORT),
}


@pytest.mark.parametrize("name", DECLINED)
def test_what_depends_on_the_processor_stays_torchs(name: str) -> None:
    """No region: the operation is called as the reference calls it."""
    assert not [step for step in _program(*DECLINED[name]).steps if isinstance(step, Fused)]


def test_functions_of_floats_leave_the_region_of_the_integers_they_came_from() -> None:
    """The compiler vectorises no exponential: bytes become floats in one region, their softmax is another."""
    found = _program("return torch.softmax(x.float() * 0.1, -1)", "torch.randint(0, 9, (50, 60), dtype=torch.uint8)")
    assert [["input", "cast", "const", "mul"], True] == [
        [value.op for value in found.steps[0].region.values],  # type: ignore[union-attr]
        isinstance(found.steps[1], Fused),
    ]
