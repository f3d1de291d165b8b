# SPDX-License-Identifier: Apache-2.0
"""Strategies that ask and tell: what to try next, decided apart from trying it; pure, seeded, no torch."""

from kernelwright.search.protocol import Ask, Strategy, Told
from kernelwright.search.structures import Arm, Choice, StructureSearch

__all__ = ["Arm", "Ask", "Choice", "Strategy", "StructureSearch", "Told"]
