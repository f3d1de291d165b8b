# SPDX-License-Identifier: Apache-2.0
"""A static guess at how often instructions run: those inside a loop count eight times those around it.

Loops are those of the control flow (a jump to a block that every way to the jump passes), not of the addresses: a
compiler lays out rare blocks behind the rest, and their jumps back would look like loops around everything between.
The guess is used for shares only ("most memory instructions are local"), where a factor of two does not change the
answer.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

TRIPS = 8
DEEPEST = 5
ENDS = frozenset({"jmp", "jmpq", "ret", "retq", "hlt", "ud2", "BRA", "BRX", "JMP", "JMX", "EXIT", "RET"})
"""Instructions after which the next one is not run, where they have no condition."""
CONDITIONS = frozenset({"DIV", "CONV"})
"""Suffixes of a GPU's branch that make it one for diverged lanes only."""


@dataclass(frozen=True, slots=True)
class Instruction:
    """One disassembled instruction of one function."""

    address: int
    name: str
    """Mnemonic with its suffixes, as the disassembler writes it."""
    operands: str
    target: int | None
    """Address of a direct jump within the function, else None."""

    @property
    def ends(self) -> bool:
        """Whether the next instruction is never run after this one."""
        base, *suffixes = self.name.split(".")
        if base not in ENDS or CONDITIONS & set(suffixes) or self.operands.startswith("@"):
            return False
        return not (base == "BRA" and "," in self.operands)  # a predicate among the operands


def weights(body: Sequence[Instruction]) -> list[int]:
    """``TRIPS`` to the power of the loop depth, for each instruction of a function."""
    starts, after = _blocks(body)
    depth = [0] * len(starts)
    for loop in _loops(after):
        for block in loop:
            depth[block] += 1
    found: list[int] = []
    for block, start in enumerate(starts):
        end = starts[block + 1] if block + 1 < len(starts) else len(body)
        found += [TRIPS ** min(DEEPEST, depth[block])] * (end - start)
    return found


def _blocks(body: Sequence[Instruction]) -> tuple[list[int], list[list[int]]]:
    """(position of each block's first instruction, blocks that may run next). A jump whose target is not known may go
    to any block that nothing else leads to."""
    at = {found.address: position for position, found in enumerate(body)}
    heads = {0} if body else set()
    for position, found in enumerate(body):
        if found.target in at:
            heads.add(at[found.target])
        if (found.target is not None or found.ends) and position + 1 < len(body):
            heads.add(position + 1)
    starts = sorted(heads)
    number = {start: block for block, start in enumerate(starts)}
    after: list[list[int]] = [[] for _ in starts]
    unknown: list[int] = []
    for block in range(len(starts)):
        end = starts[block + 1] if block + 1 < len(starts) else len(body)
        last = body[end - 1]
        if last.target in at and last.target != last.address:
            after[block].append(number[at[last.target]])
        if not last.ends and end < len(body):
            after[block].append(block + 1)
        if last.ends and last.target is None and not last.name.startswith(("ret", "RET", "EXIT", "hlt", "ud2")):
            unknown.append(block)
    reached = {0, *(block for following in after for block in following)}
    loose = [block for block in range(len(starts)) if block not in reached]
    for block in unknown:
        after[block] += loose
    return starts, after


def _loops(after: Sequence[Sequence[int]]) -> list[set[int]]:
    """The blocks of each natural loop; loops with one head are one."""
    order, before = _order(after)
    above = _dominators(order, before)
    loops: dict[int, set[int]] = {}
    for block in order:
        for head in after[block]:
            if not _passes(above, block, head):
                continue
            loop, left = loops.setdefault(head, {head}), [block]
            while left:
                one = left.pop()
                if one not in loop:
                    loop.add(one)
                    left += before[one]
    return list(loops.values())


def _order(after: Sequence[Sequence[int]]) -> tuple[list[int], list[list[int]]]:
    """(blocks that can be reached, each after one that leads to it; the reachable blocks before each).

    What fills the space behind a jump up to an aligned address leads to the next block and is never run.
    """
    path = [(0, iter(after[0]))] if after else []
    done: list[int] = []
    seen = {0}
    while path:
        block, following = path[-1]
        new = next((one for one in following if one not in seen), None)
        if new is None:
            done.append(block)
            path.pop()
        else:
            seen.add(new)
            path.append((new, iter(after[new])))
    before: list[list[int]] = [[] for _ in after]
    for block in done:
        for one in after[block]:
            before[one].append(block)
    return done[::-1], before


def _dominators(order: Sequence[int], before: Sequence[Sequence[int]]) -> dict[int, int | None]:
    """Nearest other block that every way to a block passes, None for the first (Cooper, Harvey, Kennedy 2001)."""
    place = {block: position for position, block in enumerate(order)}
    above: dict[int, int | None] = {0: None}

    def meet(one: int | None, two: int | None) -> int | None:
        while one is not None and two is not None and one != two:
            if place[one] > place[two]:
                one = above[one]
            else:
                two = above[two]
        return one if one == two else None

    changed = True
    while changed:
        changed = False
        for block in order:
            if block == 0:
                continue
            known = [one for one in before[block] if one in above]
            nearest: int | None = known[0]
            for one in known[1:]:
                nearest = meet(nearest, one)
            if block not in above or above[block] != nearest:
                above[block] = nearest
                changed = True
    return above


def _passes(above: dict[int, int | None], block: int, head: int) -> bool:
    """Whether every way to ``block`` passes ``head``."""
    one: int | None = block
    while one is not None and one != head:
        one = above[one]
    return one == head
