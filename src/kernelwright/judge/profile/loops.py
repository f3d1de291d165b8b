# SPDX-License-Identifier: Apache-2.0
"""A static guess at how often instructions run: those inside a loop count eight times those around it.

Loops are found by their backward jumps. The guess is used for shares only ("most memory instructions are local"),
where a factor of two does not change the answer.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

TRIPS = 8
DEEPEST = 5


@dataclass(frozen=True, slots=True)
class Instruction:
    """One disassembled instruction of one function."""

    address: int
    name: str
    """Mnemonic with its suffixes, as the disassembler writes it."""
    operands: str
    target: int | None
    """Address of a direct jump within the function, else None."""


def weights(body: Sequence[Instruction]) -> list[int]:
    """``TRIPS`` to the power of the loop depth, for each instruction of a function."""
    spans = {
        (found.target, found.address) for found in body if found.target is not None and found.target < found.address
    }
    heads: dict[int, int] = {}
    for start, end in spans:  # several jumps to one head are one loop
        heads[start] = max(end, heads.get(start, 0))
    return [TRIPS ** min(DEEPEST, sum(start <= found.address <= end for start, end in heads.items())) for found in body]
