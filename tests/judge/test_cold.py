# SPDX-License-Identifier: Apache-2.0
"""Walking unrelated memory evicts what was cached."""

from __future__ import annotations

import os

import pytest
import torch

from kernelwright.judge import cold as cold_module
from kernelwright.judge.cold import HANDS, Cold
from kernelwright.judge.timing_plan import LastCache


def test_walk_touches_all_of_its_memory_and_changes_nothing() -> None:
    """The size asked for, in float32, still ones after a walk."""
    cold = Cold(torch.device("cpu"), 1 << 20)
    cold.walk()
    assert 1 << 18 == int(cold._memory.sum())


def _lines(part: torch.Tensor) -> int:
    """Lines of 64 bytes of which one number each is read."""
    assert part.stride() == (16,) and part.element_size() == 4
    return part.numel()


def test_every_last_level_cache_is_walked_from_a_cpu_that_has_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its share of the memory each, and this thread may run where it might before."""
    own = os.sched_getaffinity(0)
    first, last = {min(own)}, {max(own)}
    seen: list[tuple[frozenset[int], int]] = []
    monkeypatch.setattr(
        cold_module.torch, "sum", lambda part: seen.append((frozenset(os.sched_getaffinity(0)), _lines(part)))
    )
    cold = Cold(torch.device("cpu"), 1 << 20, [LastCache(3, frozenset(first)), LastCache(1, frozenset(last))])
    for _ in range(8):
        cold.walk()
    assert sorted(8 * [(sorted(first), 3 << 12), (sorted(last), 1 << 12)]) == sorted((sorted(c), n) for c, n in seen)
    assert own == os.sched_getaffinity(0)


def test_eight_caches_of_32_mib_are_walked_by_four_threads_each() -> None:
    """64 MiB for each, twice its size."""
    caches = [LastCache(32 << 20, frozenset(range(8 * number, 8 * number + 8))) for number in range(8)]
    parts = list(cold_module._dealt(torch.empty(512 << 18), caches))
    assert [(cache.cpus, 16 << 18) for cache in caches for _ in range(HANDS)] == [(c, p.numel()) for c, p in parts]


def test_one_cache_is_walked_from_anywhere() -> None:
    """By as many threads as there are CPUs, four at the most, bound to none."""
    parts = list(cold_module._dealt(torch.empty(1 << 10), [LastCache(1 << 20, frozenset(os.sched_getaffinity(0)))]))
    hands = min(HANDS, len(os.sched_getaffinity(0)))
    assert hands * [frozenset()] == [cpus for cpus, _ in parts] and 1 << 10 == sum(p.numel() for _, p in parts)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_walk_resets_persisting_lines() -> None:
    """The driver knows the call, and the walk ends synchronised."""
    cold = Cold(torch.device("cuda:0"), 1 << 20)
    cold.walk()
    assert 0 == cold._driver.cuCtxResetPersistingL2Cache()
    assert 2.0 == float(cold._memory[0])
