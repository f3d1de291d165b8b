# SPDX-License-Identifier: Apache-2.0
"""Walking unrelated memory evicts what was cached."""

from __future__ import annotations

import pytest
import torch

from kernelwright.judge.cold import Cold


def test_walk_touches_all_of_its_memory_and_changes_nothing() -> None:
    """The size asked for, in float32, still ones after a walk."""
    cold = Cold(torch.device("cpu"), 1 << 20)
    cold.walk()
    assert 1 << 18 == int(cold._memory.sum())


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_walk_resets_persisting_lines() -> None:
    """The driver knows the call, and the walk ends synchronised."""
    cold = Cold(torch.device("cuda:0"), 1 << 20)
    cold.walk()
    assert 0 == cold._driver.cuCtxResetPersistingL2Cache()
    assert 2.0 == float(cold._memory[0])
