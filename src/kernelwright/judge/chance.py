# SPDX-License-Identifier: Apache-2.0
"""Many calls on equal inputs: how often each result comes, where one number drawn decides all of it.

A crop, or a batch turned or not, is one of few results, each as likely for every element: no rank (``distribution``)
shows that a program always gives the same one.
"""

from __future__ import annotations

import collections
import math
from collections.abc import Sequence

import torch

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
    if not 1 < len(every) <= MOST:
        return ""
    both = count + other
    expected = {key: (here[key] + there[key]) / both for key in every}
    pairs = [(some[key], number * expected[key]) for some, number in ((here, count), (there, other)) for key in every]
    found = sum((seen - wanted) ** 2 / wanted for seen, wanted in pairs)
    part = 2 / (9 * (len(every) - 1))  # Wilson and Hilferty (1931): nearly a normal number
    off = ((found / (len(every) - 1)) ** (1 / 3) - (1 - part)) / math.sqrt(part)
    words = f"one of {len(every)} results on equal inputs comes {max(here.values())} times in {count} calls"
    return f"{words}, of the reference's {most} times in {other}" if off > ERRORS else ""


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
