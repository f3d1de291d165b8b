# SPDX-License-Identifier: Apache-2.0
"""Calls that take much of a device: what is measured in parts, kept once, or left out for want of room."""

import gc
import weakref
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import pytest
import torch

from kernelwright.judge import (
    agreement,
    bands,
    baselines,
    inputs,
    noise,
    norms,
    remembered,
    rounding,
    skeletons,
    spot_checks,
    swallowed,
    timing_plan,
    together,
)
from kernelwright.judge.calls import call
from kernelwright.judge.floors import BANDS
from kernelwright.judge.inputs import Variant

UNIT = 2.0**-24
GIB = 1 << 30
H200 = 140 * GIB


def _addends(count: int, *, small: bool = False) -> torch.Tensor:
    values = torch.randn(count, dtype=torch.float64, generator=torch.Generator().manual_seed(3))
    values[::7] = values[1::7][: len(values[::7])]  # some equal their neighbours
    if small:
        values[5::11] *= 1e-9  # and some vanish beside the sum
    return values


@pytest.mark.parametrize("dims", [[0], [1], [2], [0, 2], [1, 2]])
def test_sums_looked_at_some_at_a_time_are_as_all_at_once(dims: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    """Along each dimension, and along several."""
    values = _addends(6 * 8 * 10, small=True).reshape(6, 8, 10)
    whole = swallowed._addends(values, dims, UNIT)
    monkeypatch.setattr(swallowed, "AT_ONCE", 200)
    for one, other in zip(whole, swallowed._in_parts(values, dims, UNIT), strict=True):
        assert one.shape == other.shape
        torch.testing.assert_close(one, other, rtol=1e-12, atol=0.0)


def test_one_sum_is_looked_at_in_stretches(monkeypatch: pytest.MonkeyPatch) -> None:
    """All but neighbours across the borders of two stretches."""
    values = _addends(3000, small=True).reshape(30, 100)
    whole = swallowed._addends(values.reshape(-1), [0], UNIT)
    monkeypatch.setattr(swallowed, "AT_ONCE", 512)
    found = swallowed._in_parts(values, [0, 1], UNIT)
    assert all(part.shape == (1, 1) for part in found)
    for at, (one, other) in enumerate(zip(whole, found, strict=True)):
        within = 6.0 if at == 2 else 1e-9 * float(one)
        assert abs(float(one) - float(other)) <= within
    assert float(whole[2]) > 300 and float(whole[3]) > 0


def test_bands_in_bytes_are_those_of_the_host() -> None:
    """The same counts, and of each element the same band."""
    sizes = 10.0 ** (-20 * torch.rand(5000, dtype=torch.float64, generator=torch.Generator().manual_seed(1)))
    top = float(sizes.max())
    found, counts = bands.in_bytes(sizes, top)
    there, known = bands.banded(sizes.numpy(), top)
    assert counts == known and sum(count > 0 for count in counts) > 5
    assert torch.equal(found, there)
    ones = norms._sizes(sizes, there, known, 1.0)
    assert norms._sizes_on_device(sizes, found, counts, 1.0) == pytest.approx(ones)
    assert norms._sizes_on_device(sizes, found, counts, top) == pytest.approx(ones) and len(ones) == BANDS


@pytest.mark.parametrize("calls", [1, 3])
def test_distances_in_blocks_are_as_in_one(calls: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """The largest, the mean and the norm, wherever an answer is off."""
    other = torch.randn(calls, 40, 30, generator=torch.Generator().manual_seed(2))
    mine = other * (1 + 1e-6)
    mine[:, 17, 4] += 0.25
    whole = torch.stack(together.apart(mine, other))
    monkeypatch.setattr(together, "PART_BYTES", 600)
    torch.testing.assert_close(torch.stack(together.apart(mine, other)), whole, rtol=1e-5, atol=0.0)
    mine[-1, 0, 0] = torch.inf
    assert torch.stack(together.apart(mine, other))[:, -1].isinf().all()


@pytest.mark.parametrize("dim", [0, 1])
def test_running_sums_err_alike_in_parts(dim: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """And they are the same sums."""
    values = torch.rand(64, 48, dtype=torch.float64, generator=torch.Generator().manual_seed(2))

    def off() -> torch.Tensor:
        with rounding.Rounded(UNIT, torch.Generator().manual_seed(1)):
            return (values.cumsum(dim) - exact).abs()

    exact = values.cumsum(dim)
    whole = off()

    def parted(given: torch.Tensor, at: int) -> tuple[int, Sequence[torch.Tensor]] | None:
        return (1 - at, given.split(10, 1 - at)) if given.numel() == values.numel() else None

    monkeypatch.setattr(rounding, "apart", parted)
    parts = off()
    assert parts.shape == whole.shape
    assert 0.5 < float(parts.square().mean() / whole.square().mean()) < 2.0


def test_parts_of_sums_lie_along_another_dimension(monkeypatch: pytest.MonkeyPatch) -> None:
    """None on a host, where there is room, or where there is no other."""
    monkeypatch.setattr(noise, "AT_ONCE", 100)
    large = torch.empty(8, 50, device="meta")
    found = noise.apart(large, 1)
    assert found is not None and found[0] == 0 and [part.shape[0] for part in found[1]] == [2, 2, 2, 2]
    found = noise.apart(large, -2)
    assert found is not None and found[0] == 1 and sum(part.shape[1] for part in found[1]) == 50
    assert noise.apart(torch.empty(8, 50), 1) is None
    assert noise.apart(torch.empty(8, 5, device="meta"), 1) is None
    assert noise.apart(torch.empty(500, device="meta"), 0) is None


def test_own_leaves_are_handed_on_and_others_copied() -> None:
    """Nobody else's leaves are what the module gets."""

    class Doubles(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x.mul_(2.0)

    shape, leaves = skeletons.flatten([leaf := torch.ones(3)])
    call(Doubles(), shape, leaves, None, None)
    assert torch.equal(leaf, torch.ones(3))
    call(Doubles(), shape, leaves, None, None, own=True)
    assert torch.equal(leaf, torch.full((3,), 2.0))


@dataclass(eq=False)
class _Truth:
    leaves: list[torch.Tensor]
    state: None = None
    exact: list[torch.Tensor] = field(default_factory=list)


@pytest.fixture
def emptied(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """How often a device was asked to give memory back."""
    asked: list[str] = []
    monkeypatch.setattr(torch.cuda, "empty_cache", lambda: asked.append("empty"))
    monkeypatch.setattr(remembered.health, "make_room", lambda device: asked.append("room"))
    return asked


def test_of_large_calls_on_a_device_one_is_remembered_by_all(emptied: list[str]) -> None:
    """Another checker's is forgotten before the next is made; on a host each has its own."""
    for device, large in (("cuda", True), ("cpu", False)):
        one, other = (remembered.Remembered[_Truth](torch.device(device), 1, 2 * GIB) for _ in range(2))
        first, second = _Truth([torch.ones(2)]), _Truth([torch.ones(2)])
        one.add(first)
        other.make_room()
        assert (one.find(first.leaves, None) is None) is large
        other.add(second)
        assert other.find(second.leaves, None) is second and other.find(first.leaves, None) is None
        assert emptied == (["empty", "room", "empty"] if large else [])
        emptied.clear()


def test_what_is_forgotten_is_gone(emptied: list[str]) -> None:
    """No other list holds it."""
    memory = remembered.Remembered[_Truth](torch.device("cuda"), 1, 2 * GIB)
    truth = _Truth([torch.ones(2)])
    memory.add(truth)
    gone = weakref.ref(truth)
    del truth
    memory.make_room()
    gc.collect()
    assert gone() is None and emptied[-1] == "room"


@pytest.mark.parametrize(("size", "work", "kept"), [(1 << 20, 1, 4), (200 << 20, 1, 1), (1 << 20, 10**12, 1)])
def test_few_calls_are_remembered_of_those_that_are_dear(size: int, work: int, kept: int) -> None:
    """And the last ones; one that is known already is not remembered twice."""
    memory = remembered.Remembered[_Truth](torch.device("cpu"), work, size)
    truths = [_Truth([torch.ones(1)]) for _ in range(6)]
    for truth in truths:
        memory.add(truth)
        memory.add(truth)
    assert [memory.find(one.leaves, None) is one for one in truths] == [False] * (6 - kept) + [True] * kept


def test_large_inputs_are_padded_and_not_strided() -> None:
    """Each once, and all else as it was."""
    given = [
        Variant(name="as given", required=True),
        Variant(name="strided inputs", required=True, layout="strided"),
        Variant(name="padded inputs", required=True, layout="padded"),
        Variant(name="mixed", required=True, change="mixed", layout="strided"),
        Variant(name="offset inputs", required=True, layout="offset"),
    ]
    found = inputs.narrower(given)
    assert [(v.name, v.layout) for v in found] == [
        ("as given", "contiguous"), ("padded inputs", "padded"), ("mixed", "padded"), ("offset inputs", "offset"),
    ]  # fmt: skip
    assert [v.layout for v in inputs.narrower(given[:2])] == ["contiguous", "padded"]


def test_a_device_is_tight_from_a_fortieth_of_it_on() -> None:
    """A host never is."""
    assert not timing_plan.tight(H200, 2 * GIB)
    assert timing_plan.tight(H200, 8 * GIB) and timing_plan.tight(24 * GIB, 2 * GIB)
    assert not timing_plan.tight(0, 100 * GIB)
    assert baselines.names("cuda:0", "precise", None, tight=True) == ("eager", "compile")
    assert len(baselines.names("cuda:0", "precise", None)) == 4
    assert baselines.names("cuda:0", "precise", ("cuda-graph",), tight=True) == ("eager", "cuda-graph")


def test_inputs_that_a_call_left_alone_are_not_copied() -> None:
    """One that it wrote to is, as it was left."""
    before = [torch.arange(4.0), torch.arange(4.0)]
    now = [before[0].clone(), before[1] + 1]
    kept = spot_checks._unlike(now, before)
    assert kept[0] is before[0]
    now[1].zero_()
    assert torch.equal(kept[1], torch.arange(4.0) + 1)


@pytest.mark.parametrize("lay", [lambda x: x, lambda x: x.t().contiguous().t(), lambda x: x[:, ::2], lambda x: x[None]])
def test_the_head_of_a_tensor_is_no_copy_of_it(lay: Callable[[torch.Tensor], torch.Tensor]) -> None:
    """It shows that two differ at once, and is all of a small one."""
    values = lay(torch.arange(2.0**21).reshape(1024, 2048))
    head = agreement._head(values)
    assert 0 < head.numel() <= agreement.HEAD and head[0] == 0.0
    assert head.untyped_storage().nbytes() <= max(4 * agreement.HEAD, values.untyped_storage().nbytes())
    other = values.clone()
    assert agreement.same(values, other)
    other[(-1,) * other.dim()] = -1.0
    assert not agreement.same(values, other)
    assert torch.equal(agreement._head(torch.arange(6.0).reshape(2, 3)), torch.arange(6.0))


def test_many_numbers_are_moved_in_place_on_a_device_as_elsewhere() -> None:
    """By the same numbers: a pool that is read again and again."""
    pool = noise.Pool(torch.Generator().manual_seed(4))
    values = torch.rand(3 * noise.POOL + 5, dtype=torch.float64)
    start, size = pool._dealt(values.numel(), values.device)
    factors = pool._numbers * UNIT + 1.0
    expected = values * noise._read(factors, start, size, values)
    found = noise._in_place(values.clone(), factors[start : start + size])
    assert torch.equal(found, expected)
