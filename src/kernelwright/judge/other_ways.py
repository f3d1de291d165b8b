# SPDX-License-Identifier: Apache-2.0
"""Single whole numbers and flags of buffers with which a reference takes another way: an off switch, a third mode, two
flags together.

Numbers nearby show none of it: a k of 0 that leaves a filter out, a window of -1 that is none, the largest number of a
type for no limit. Programs that never looked passed. Who counts turns of a loop by such a number takes another way with
any, and has no zero: a program may begin with one turn.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from itertools import combinations
from typing import TYPE_CHECKING, Any

import torch

from kernelwright.judge import agreement, borders, codes, single_numbers, weights
from kernelwright.judge.finite import pattern
from kernelwright.judge.kinds import Watching

if TYPE_CHECKING:
    from kernelwright.judge.instance import Instance

NUMBERS = 4
"""Single numbers at the most that are others here, each by itself, the first."""
PAIRS = 6
"""Pairs of flags at the most, by lot."""
ASKED = ("isinf", "isnan", "isposinf", "isneginf", "nan_to_num", "logical_not", "nonzero", "count_nonzero")
"""Operators that look whether numbers are finite (``isfinite`` compares), or zero, as a copy to flags does."""
BOUNDING = ("maximum", "minimum", "fmax", "fmin")
"""Operators that take the larger, or the less, of both."""
NONE = (2**15 - 1, 2**31 - 1, 2**63 - 1)
"""Numbers that say that there is no limit."""
UNLIMITED = 10**6
"""A number from which on it says so too."""
LIMITS = (32, 8)
"""Limits in their place."""


class Way(Watching):
    """Which operators run, in turn, and how many elements those have that are compared."""

    def __init__(self) -> None:
        super().__init__()
        self.names, self.compared = list[str](), set[int]()

    def __torch_dispatch__(
        self, func: Any, kinds: Any, args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        """Called by torch for every operator below autograd."""
        name = borders.named(func)
        if name not in ("copy", "detach"):  # so weights are given
            self.names.append(name)
        flags = (kwargs or {}).get("dtype") is torch.bool
        asked = args[:1] if flags or name in (*borders.COMPARED, *ASKED) else args if name in BOUNDING else ()
        for one in asked:
            if isinstance(one, torch.Tensor) and one.layout is torch.strided and one.device.type != "meta":
                self.compared |= {one.numel()} - {0}
        return func(*args, **(kwargs or {}))


def numbers(instance: Instance) -> list[single_numbers.Numbers]:
    """Such numbers, beside the first ones of all others."""
    able = any(value.numel() == 1 and not value.dtype.is_floating_point for _, value in instance.first_state)
    return single_numbers.asked_on_host(instance, _numbers) if able else []


def _numbers(instance: Instance) -> list[single_numbers.Numbers]:
    first, leaves = dict(instance.first_state), instance.given(instance._raw(instance.seed)[0], 1)
    held = {name: value for name, value in first.items() if single_numbers._single(name, value, first)}
    zeros = [name for name, value in first.items() if codes.counter(name, value)]
    if not (held or zeros):
        return []
    usual, found = pattern(instance.accepted(leaves, instance.first_state)), list[single_numbers.Numbers]()
    chosen = _chosen(instance, leaves, zeros) if zeros else []
    for others in [*_alone(instance, leaves, held), *_together(instance, leaves, held), *chosen]:
        count = single_numbers._answers(instance, leaves, others, usual)
        if count is not None:
            found.append({**held, **others})
            single_numbers.seen(instance, count)
    return found


def _way(instance: Instance, leaves: Any, others: single_numbers.Numbers) -> list[str] | None:
    """The operators of a call with these; None where the reference does not take them."""
    state = [(name, others.get(name, value)) for name, value in instance.first_state]
    with (way := Way()):
        taken = instance.accepted(leaves, state)
    return way.names if taken is not None else None


def _others(instance: Instance, names: Sequence[str], number: int) -> single_numbers.Numbers:
    known = dict(instance.first_state)
    return {tied: torch.full_like(known[tied], number) for name in names for tied in weights.tied(instance.model, name)}


def _alone(instance: Instance, leaves: Any, held: single_numbers.Numbers) -> list[single_numbers.Numbers]:
    found = list[single_numbers.Numbers]()
    for name in list(held)[:NUMBERS]:
        number, kind = int(held[name]), held[name].dtype
        if number in NONE or number >= UNLIMITED:
            found += [_others(instance, [name], limit) for limit in LIMITS]
            continue
        flag = kind in (torch.bool, torch.uint8) or number == 0
        known = [_way(instance, leaves, _others(instance, [name], n)) for n in (number, *_near(held[name]))]
        if flag or number > 1 and known[-1] != known[0]:
            continue
        for other in {1: [2], -1: [2, 0]}.get(number, [0]):
            way = _way(instance, leaves, made := _others(instance, [name], other))
            found += [made] if way is not None and way not in known else []
    return found


def _chosen(instance: Instance, leaves: Any, zeros: Sequence[str]) -> list[single_numbers.Numbers]:
    """One and two in the place of zeros that no call counts on, where answers are others: which of three matrices is
    used, of which a program that always took the first passed."""
    counted, found = single_numbers._changed(instance, leaves), list[single_numbers.Numbers]()
    usual = [out.detach().clone() for out in instance.accepted(leaves, instance.first_state) or []]
    for name in [name for name in zeros if name not in counted][:NUMBERS]:
        for number in (1, 2):
            made = _others(instance, [name], number)
            state = [(other, made.get(other, value)) for other, value in instance.first_state]
            outs = instance.accepted(leaves, state)
            found += [made] if usual and outs is not None and agreement.differ(usual, outs) else []
    return found


def _near(value: torch.Tensor) -> list[int]:
    """Zero for one, whose other way a third is not; and the next for what is larger."""
    number = int(value)
    return [0] if number == 1 else [number + 1] if number > 1 and number < torch.iinfo(value.dtype).max else []


def _together(instance: Instance, leaves: Any, held: single_numbers.Numbers) -> list[single_numbers.Numbers]:
    """Pairs of flags with which it does what it does with neither of them alone."""
    flags = [name for name, value in held.items() if int(value) in (0, 1)]
    if len(flags) < 3:  # all together are tried as they are
        return []
    pairs = list(combinations(flags, 2))
    pairs = random.Random(instance.seed).sample(pairs, min(PAIRS, len(pairs)))
    other = {name: _others(instance, [name], 1 - int(held[name])) for name in flags}
    known, found = [_way(instance, leaves, other[name]) for name in flags], list[single_numbers.Numbers]()
    for one, two in pairs:
        way = _way(instance, leaves, both := other[one] | other[two])
        if way is not None and way not in known:
            found, known = [*found, both], [*known, way]
    return found
