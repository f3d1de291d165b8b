# SPDX-License-Identifier: Apache-2.0
"""load/handed.py: what a constructor was called with, told by the parts it made."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import nn

from kernelwright.capture import capture
from kernelwright.load.handed import handed_on


class Tied(nn.Module):
    """Nothing keeps the arguments but the parts."""

    def __init__(self, words: int, width: int, *, bias: bool = True, share: float = 0.0, twice: int = 1) -> None:
        super().__init__()
        twice = 2 * twice
        self.embedding = nn.Embedding(words, width)
        self.net = nn.Sequential(nn.Linear(width, 3 * width, bias=bias), nn.GELU(), nn.Dropout(share))
        self.head = nn.Linear(3 * width, words * twice)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        """Logits."""
        return self.head(self.net(self.embedding(tokens)))


class Other(nn.Module):
    """Hands its argument to something of another type than it keeps, and keeps one under another name."""

    def __init__(self, rows: int, places: int) -> None:
        super().__init__()
        self.kept = self.made(rows)
        self.elsewhere = places

    @staticmethod
    def made(rows: int) -> nn.Module:
        """A part whose first argument is no ``rows``."""
        return nn.Linear(rows + 1, 2)


def test_arguments_are_read_off_the_parts_they_were_handed_to() -> None:
    """Also inside a Sequential, a bias, and what a Dropout calls p; not one that was changed on the way."""
    module = Tied(11, 4, bias=False, share=0.25, twice=3)
    assert {"words": 11, "width": 4, "bias": False, "share": 0.25} == handed_on(module)


def test_only_the_type_that_is_named_is_asked() -> None:
    """A function's argument is not its result's; a plain copy is one."""
    assert {"places": 5} == handed_on(Other(3, 5))


@pytest.mark.parametrize(
    ("module", "inputs"),
    [
        (Tied(11, 4, bias=False, share=0.25), (torch.arange(11),)),
        (nn.TransformerEncoderLayer(8, 2, 24, dropout=0.0, batch_first=True), (torch.randn(2, 5, 8),)),
    ],
    ids=["own", "torch"],
)
def test_modules_that_keep_no_arguments_are_captured(
    module: nn.Module, inputs: tuple[torch.Tensor, ...], tmp_path: Path
) -> None:
    """The copy was compared with the original on the way; without the arguments it has other shapes."""
    assert "get_inputs" in capture(module.eval(), inputs, tmp_path, None).reference
