# SPDX-License-Identifier: Apache-2.0
"""Two predictors of the limits room: memory before a module runs, and the time of a matrix product."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from kernelwright.limits import gemm, tiles
from kernelwright.limits.memory import memory

DEVICE = gemm.Device(100, 4e6, {"bfloat16": 8e8, "float16": 8e8, "float32": 5e7, "tf32": 4e8})


def test_intermediate_results_count_only_while_they_live() -> None:
    """A chain of four equal tensors never holds more than two; weights and inputs are counted apart."""
    module = torch.nn.Sequential(*[torch.nn.Sigmoid() for _ in range(4)])
    found = memory(module, (torch.empty(256, 256),))
    assert (0, 256 * 256 * 4, 2 * 256 * 256 * 4) == (found.weights, found.inputs, found.activations)


def test_what_the_backward_pass_needs_is_held() -> None:
    """With gradients the results of both linear layers and the gradients of their weights live together."""
    module = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.Sigmoid(), torch.nn.Linear(64, 64))
    inputs = (torch.empty(4096, 64),)
    plain, trained = memory(module, inputs), memory(module, inputs, gradients=True)
    assert 2 * 4096 * 64 * 4 == plain.activations
    assert trained.activations > 3 * 4096 * 64 * 4


def test_an_untrained_model_is_the_roofline() -> None:
    """Memory-bound, compute-bound, and never below a launch."""
    empty = gemm.Model(base=0.0, rate=0.1, trees=())
    shapes = [("bfloat16", 8192, 8192, 8192), ("bfloat16", 8192, 8192, 1), ("bfloat16", 1, 1, 1)]
    expected = [3.0 + 2 * 8192**3 / 8e8, 3.0 + 2 * (2 * 8192 + 8192**2) / 4e6, 3.0]
    assert np.allclose(expected, gemm.predict_us(empty, shapes, DEVICE), rtol=1e-3)


def test_trees_learn_what_the_roofline_misses_and_survive_a_file(tmp_path: Path) -> None:
    """Products whose last wave is nearly empty take twice the roofline: held-out shapes are predicted within 10 %."""
    dice = np.random.default_rng(1)
    shapes = [("bfloat16", int(m) * 64, int(n) * 64, int(k) * 64) for m, n, k in dice.integers(1, 64, (300, 3))]
    slow = np.array([1.0 if m * n > 1 << 20 else 2.0 for _, m, n, _ in shapes])
    rows = np.array([gemm.features(shape, DEVICE) for shape in shapes])
    model = gemm.fit(rows[:250], np.log(slow[:250]), trees=60, depth=3, rate=0.2)
    gemm.save(model, tmp_path / "model.json")
    read = gemm.load(tmp_path / "model.json")
    error = np.abs(np.exp(read.correction(rows[250:])) / slow[250:] - 1)
    assert float(np.median(error)) < 0.1
    assert gemm.order(read, shapes[:3], DEVICE) == gemm.order(model, shapes[:3], DEVICE)


def test_the_shipped_tile_model_prefers_large_tiles_for_large_products_and_more_tiles_for_small_ones() -> None:
    """On 4096 cubed, 128 x 256 beats 64 x 64; at 256 x 256 x 4096 four tiles of 128 leave the device empty."""
    device = gemm.Device(132, 4.2e6, {"bfloat16": 7.8e8, "tf32": 3.7e8})
    learned = tiles.load()
    large, small = (128, 256, 64, 8, 3), (64, 64, 64, 4, 3)
    wide = tiles.predict_us(learned, ("bfloat16", 4096, 4096, 4096), [large, small], device)
    thin = tiles.predict_us(learned, ("bfloat16", 256, 256, 4096), [large, small], device)
    assert wide[0] < wide[1] and thin[1] < thin[0]
    assert (0.0 < learned.median_error < 0.1, learned.products) == (True, 76)


def test_a_tile_model_survives_its_file(tmp_path: Path) -> None:
    """Predictions stay within the digits that are kept."""
    learned, path = tiles.load(), tmp_path / "tiles.json"
    tiles.save(learned, path)
    device = gemm.Device(132, 4.2e6, {"bfloat16": 7.8e8, "tf32": 3.7e8})
    job = ("tf32", 1024, 2048, 512), [(128, 128, 32, 8, 3)], device
    assert tiles.predict_us(learned, *job) == pytest.approx(tiles.predict_us(tiles.load(path), *job), rel=1e-3)
