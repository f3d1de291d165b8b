# SPDX-License-Identifier: Apache-2.0
"""Many calls on equal inputs: how often each result comes, where one number drawn decides all of it.

A crop, or a batch turned or not, is one of few results, each as likely for every element: no rank (``distribution``)
shows that a program always gives the same one. Nor does one show that a sampler of tokens has another temperature,
where the numbers of these say nothing of how likely they are: there it is counted how often calls agree.
"""

from __future__ import annotations

import collections
import math
from collections.abc import Iterable, Sequence

import torch

from kernelwright.judge.whole import INTEGERS

LOOKED_AT = 1 << 12
"""Elements by which results are told apart."""
CLOSE = 1e-3
"""Distance, beside its size (RMS), up to which a result is the same as another: rounded otherwise."""
CALLS = 48
"""That of two results, as likely as each other, only one comes happens once in 10^14."""
RUNS = 3
"""So many runs of the reference for each."""
SECONDS = 2.0
"""What they may take."""
MOST = 12
"""Different results up to which their counts are compared; of more each comes too seldom."""
ERRORS = 4.5
"""Standard errors that the counts may differ by: three times in a million, and it is looked at once in a proof."""
SPLITS, BEYOND = 1000, 1.75
"""Ways of dealing out calls and runs anew, and how many times as far as in the furthest of them whole numbers may agree
less or more with the runs than these with each other. Of normal numbers that is 5.8 standard errors. A temperature of 1
for 0.8 is 7 (64 rows of 50 tokens), of 0.9 it is 4."""
LUCK, OFTEN = 24, 8
"""So many pairs of calls may give one result where none of the reference's do, and so many times as many as is usual.
Of 48 calls of a program with twelve results in turn 72 do."""
UNSEEN = 1e-9
"""How unlikely it must be that a bit of no number changes in any call."""
RARE = 1e-6
"""How likely it must be, at the least, that an honest program gives one result all the time."""


def calls(call_us: float, fit: int) -> int:
    """So many, of which ``fit`` lie in memory at once."""
    return max(1, min(CALLS, fit, int(1e6 * SECONDS / ((1 + RUNS) * max(call_us, 1.0)))))


def otherwise(mine: Sequence[torch.Tensor], theirs: Sequence[torch.Tensor]) -> str:
    """Empty where the results of a program come as often as the reference's; else how they do not."""
    kinds = _kinds([*theirs, *mine])
    here, there = collections.Counter(kinds[len(theirs) :]), collections.Counter(kinds[: len(theirs)])
    count, other, most = len(mine), len(theirs), max(there.values())
    share = most / other + 3 * math.sqrt(max(most * (other - most), other) / other**3)
    if len(here) == 1 and len(there) > 1 and share < 1 and share ** (count - 1) < RARE:
        return f"the same result in {count} calls on equal inputs, of which the reference has {len(there)} in {other}"
    every = here | there
    if len(every) > MOST:
        return _again(here, there) or _agree(mine, theirs) or _still(mine, theirs)
    if len(every) == 1:
        return ""
    both = count + other
    expected = {key: (here[key] + there[key]) / both for key in every}
    pairs = [(some[key], number * expected[key]) for some, number in ((here, count), (there, other)) for key in every]
    found = sum((seen - wanted) ** 2 / wanted for seen, wanted in pairs)
    part = 2 / (9 * (len(every) - 1))  # Wilson and Hilferty (1931): nearly a normal number
    off = ((found / (len(every) - 1)) ** (1 / 3) - (1 - part)) / math.sqrt(part)
    words = f"one of {len(every)} results on equal inputs comes {max(here.values())} times in {count} calls"
    return f"{words}, of the reference's {most} times in {other}" if off > ERRORS else ""


def _again(here: collections.Counter[int], there: collections.Counter[int]) -> str:
    """Empty unless two calls give one result far more often than two of the reference's do: some that were made ahead,
    in turn. A race meets the same one twice only where it has rounds enough."""
    same, pairs = zip(*((_pairs(some.values()), _pairs([some.total()])) for some in (here, there)), strict=True)
    usual = (same[1] + LUCK) * pairs[0] / max(pairs[1], 1)
    if same[0] <= OFTEN * usual + LUCK:
        return ""
    return (
        f"{len(here)} results in {here.total()} calls on equal inputs, of which the reference has {len(there)} in "
        f"{there.total()}"
    )


def _pairs(counts: Iterable[int]) -> int:
    return sum(count * (count - 1) // 2 for count in counts)


def _agree(mine: Sequence[torch.Tensor], theirs: Sequence[torch.Tensor]) -> str:
    """Empty unless whole numbers agree with those of the reference otherwise than these, or they, among themselves.

    Each call is as likely to be any of them where both have one law, whatever its elements share: so they are dealt
    out anew, and the furthest of many deals says what chance does.
    """
    if mine[0].dtype not in INTEGERS:
        return ""
    flat = torch.stack([one.reshape(-1) for one in (*mine, *theirs)])
    flat = flat[:, :: -(-max(flat.shape[1], 1) // LOOKED_AT)]
    same = torch.stack([(flat == one).sum(1) for one in flat]).to(torch.float64).fill_diagonal_(0.0)
    count, other = len(mine), len(theirs)
    order = torch.rand(SPLITS, len(flat), generator=torch.Generator().manual_seed(count)).argsort(1)
    order = torch.cat([torch.arange(len(flat))[None], order]).to(flat.device)
    some, rest = (kind.to(torch.float64) for kind in (order < count, order >= count))
    across = ((some @ same) * rest).sum(1) / (count * other)
    for kind, number in ((rest, other), (some, count)):
        within = ((kind @ same) * kind).sum(1) / max(number * (number - 1), 1)
        off, *dealt = (across - within).abs().tolist()
        if number > 1 and off > BEYOND * max(dealt):
            whose = "the reference" if kind is rest else "the program"
            words = f"{float(across[0]):.2f} of {flat.shape[1]} elements are as in a run of the reference"
            return f"another distribution ({words} on equal inputs, of two calls of {whose} {float(within[0]):.2f})"
    return ""


def _still(mine: Sequence[torch.Tensor], theirs: Sequence[torch.Tensor]) -> str:
    """Empty unless a bit of whole numbers never changes from call to call that does so in the reference's: of 30 random
    bits from a float of 24 the last six are always zero, and no rank shows that."""
    if mine[0].dtype not in INTEGERS or len(mine) < 2:
        return ""
    here, there = (_flips(some) for some in (mine, theirs))
    for bit, (own, usual) in enumerate(zip(here, there, strict=True)):
        if own == 0.0 and (1.0 - usual) ** (len(mine) - 1) < UNSEEN:
            return (
                f"bit {bit} of its numbers is the same in {len(mine)} calls on equal inputs, and not in the reference's"
            )
    return ""


def _flips(results: Sequence[torch.Tensor]) -> list[float]:
    """By bit, in which share of further calls it is not that of the first call at some element."""
    flat = torch.stack([one.reshape(-1) for one in results]).to(torch.int64)
    flat = flat[:, :: -(-max(flat.shape[1], 1) // LOOKED_AT)]
    other = flat[1:] ^ flat[:1]
    return [float(((other >> bit) & 1).any(1).to(torch.float32).mean()) for bit in range(63)]


def _kinds(results: Sequence[torch.Tensor]) -> list[int]:
    """A number for each result, the same for those that are CLOSE."""
    flat = torch.stack([one.reshape(-1) for one in results]).to(torch.float64).nan_to_num(0.0, 0.0, 0.0)
    flat = flat[:, :: -(-max(flat.shape[1], 1) // LOOKED_AT)]
    first: list[int] = []
    kinds = []
    for index, one in enumerate(flat):
        near = (flat[first] - one).square().mean(1) <= CLOSE**2 * one.square().mean() + 1e-300
        found = torch.nonzero(near).reshape(-1).tolist()
        kinds.append(found[0] if found else len(first))
        first += [] if found else [index]
    return kinds
