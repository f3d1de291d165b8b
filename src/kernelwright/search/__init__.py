# SPDX-License-Identifier: Apache-2.0
"""Strategies that ask and tell: what to try next, decided apart from trying it; pure, seeded, no torch."""

from kernelwright.search.bandit import Bandit
from kernelwright.search.linear import BestOfN, Chain
from kernelwright.search.population import Contrast, Evolution, MapElites
from kernelwright.search.protocol import Ask, Strategy, Told
from kernelwright.search.structures import Arm, Choice, StructureSearch
from kernelwright.search.tree import Beam, Mcts

__all__ = [
    "Arm",
    "Ask",
    "Bandit",
    "Beam",
    "BestOfN",
    "Chain",
    "Choice",
    "Contrast",
    "Evolution",
    "MapElites",
    "Mcts",
    "Strategy",
    "StructureSearch",
    "Told",
]
