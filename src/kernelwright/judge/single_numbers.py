# SPDX-License-Identifier: Apache-2.0
"""Single whole numbers and flags in buffers, others in some new weights: zero points, switches, bounds.

A zero point of 128, LoRA's flag that its matrices are merged, torch's flag that weights are quantised: a checkpoint
has others, and a constructor always the same. They were neither codes (several numbers) nor counters (that begin with
zero), so none ever changed, and programs that had 128 in their source, or never looked at the flag, passed: they were
off by a third of the answer with another one. What sets a shape, a step or a stride makes a reference fail, or answer
in another shape, and stays: the reference is asked, with a few numbers, which are the only ones that come.
"""

from __future__ import annotations

import functools
import random
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

import torch

from kernelwright.judge import agreement, codes, inputs, weights, whole
from kernelwright.judge.finite import pattern
from kernelwright.judge.host_copy import on_host
from kernelwright.judge.oracle import Counting

if TYPE_CHECKING:
    from kernelwright.judge.instance import Instance
    from kernelwright.judge.weights import State

SHARE = 1 / 2
"""Of the new weights those in which some such number is another one."""
DEAR_BYTES = 8 << 20
"""Weights of more are drawn once, and their whole numbers are the new ones or the first ones by lot after that."""
NEARBY = 8
"""What part of itself a number is moved by at the most."""
ALONE = 8
"""How many are others each by itself: a flag that skips a layer hides what the layer's zero point does. All of them
together, and one half and the other, are so too."""
WORK = 10**9
"""Multiply-adds of all runs of the reference that are made for them, of which there are four at the least."""

Numbers = dict[str, torch.Tensor]
_TAKEN: WeakKeyDictionary[Instance, list[Numbers]] = WeakKeyDictionary()


def settled(instance: Instance, seed: int, moving: str, redrawn: State | None) -> Numbers:
    """What weights are made of, see ``codes``, with other single numbers by lot, but where the rest is ``moving``: a
    weight that a flag switches off is no other one then. ``redrawn``: an earlier draw, with its numbers."""
    first = instance.first_state
    known, drawn = dict(first), dict(weights.read(instance._construct(seed)) if redrawn is None else redrawn)
    held = {name for numbers in _TAKEN.get(instance, ()) for name in numbers} if redrawn is not None else set[str]()
    made = instance._numbers.settled(
        first,
        drawn | {name: known[name] for name in held},
        seed,
        lambda state: pattern(instance.accepted(instance._raw(instance.seed)[0], state)),
    )
    if redrawn is not None or moving:
        return made | {name: drawn[name] for name in held if not moving}
    if not any(_single(name, value, made) for name, value in first):
        return made
    dice = random.Random(seed)
    often = sum(value.nbytes for _, value in first) > DEAR_BYTES or dice.random() < SHARE
    able = taken(instance, made) if often else []
    return made | (dice.choice(able) if able else {})


def taken(instance: Instance, made: Mapping[str, torch.Tensor]) -> list[Numbers]:
    """Other single numbers that the reference takes, by what comes together. Looked for once: what it was seen to do
    on the way, jump or choose, it may do from here on."""
    if instance not in _TAKEN:
        ask = functools.partial(_taken, made=made)
        _TAKEN[instance] = [] if instance.contract.random else asked_on_host(instance, ask)
    return _TAKEN[instance]


def asked_on_host(given: Instance, ask: Callable[[Instance], list[Numbers]]) -> list[Numbers]:
    """What the reference takes on the host; what it was seen to do on the way, it may do where it is."""
    if (instance := on_host(given)) is None:
        return []
    found = ask(instance)
    for name in ("jumps", "steep", "sorts", "factors", "counts"):
        setattr(given, name, getattr(instance, name))
    return [{name: value.to(given.device) for name, value in numbers.items()} for numbers in found]


def _taken(instance: Instance, made: Mapping[str, torch.Tensor]) -> list[Numbers]:
    made = {name: value.to(instance.device) for name, value in made.items()}
    leaves = instance.given(instance._raw(instance.seed)[0], 1)
    counted = _changed(instance, leaves)
    held = [(n, v) for n, v in instance.first_state if _single(n, v, made) and n not in counted]
    runs = max(4, min(4 * ALONE, WORK // max(instance.work, 1)))
    usual = pattern(instance.accepted(leaves, instance.first_state)) if held else None
    found = list[Numbers]()
    for numbers in _tried(instance, held)[: runs // 2]:
        if (count := _answers(instance, leaves, numbers, usual)) is not None:
            found.append(numbers)
            seen(instance, count)
    return found


def seen(instance: Instance, count: Counting) -> None:
    """Remember what the reference does with other numbers than the first ones: it may do so from here on."""
    instance.jumps |= count.jumps
    instance.steep |= count.exponential
    instance.sorts |= count.sorts
    instance.factors |= count.factors
    instance.counts |= count.jumps and count.counts


def _tried(instance: Instance, held: Sequence[tuple[str, torch.Tensor]]) -> list[Numbers]:
    """Numbers of all, of halves, and of some each alone; one tensor of several names is one."""
    dice, options = random.Random(instance.seed), dict[tuple[str, ...], list[int]]()
    for name, value in held:
        options |= {tuple(sorted(weights.tied(instance.model, name))): found for found in [others(value)] if found}
    known, all_ = dict(instance.first_state), dice.sample(list(options), len(options))

    def numbers(names: Sequence[tuple[str, ...]], turn: int | None = None) -> Numbers:
        new = {tied: dice.choice(options[tied]) if turn is None else options[tied][turn] for tied in names}
        return {name: torch.full_like(known[name], number) for tied, number in new.items() for name in tied}

    most = max((len(found) for found in options.values()), default=0)
    alone = [numbers([tied], turn) for turn in range(most) for tied in all_[:ALONE] if turn < len(options[tied])]
    half = len(all_) // 2
    together = [numbers(some) for some in (all_, all_[:half], all_[half:])] if half else []
    return [*together[:1], *alone[:ALONE], *together[1:]]


def _answers(instance: Instance, leaves: Any, numbers: Numbers, usual: object) -> Counting | None:
    """What the reference does with these; None where it fails, or answers in another shape, or where others are
    finite, or at random."""
    state = [(name, numbers.get(name, value)) for name, value in instance.first_state]
    with inputs.seeded(11), Counting(leaves, instance.model) as count:
        before = instance.accepted(leaves, state)
    if before is None or pattern(before) != usual:
        return None
    before = [out.detach().clone() for out in before]
    with inputs.seeded(12):
        again = instance.accepted(leaves, state)
    return count if again is not None and not agreement.differ(before, again) else None


def _changed(instance: Instance, leaves: Any) -> set[str]:
    """Numbers that a call changes itself: those count something (``thresholds``). Flags it sets are none."""
    if instance.giver.keeps or instance.accepted(leaves, instance.first_state) is None:
        return set()
    after = dict(instance.state_after([leaves], instance.first_state))
    instance._restore()
    flags = (torch.bool, torch.uint8)
    return {n for n, v in instance.first_state if v.dtype not in flags and not agreement.same(v, after[n])}


def _single(name: str, value: torch.Tensor, made: Mapping[str, torch.Tensor]) -> bool:
    """Whether this is one, and no other construction draws another."""
    kind = value.numel() == 1 and value.dtype in (*whole.INTEGERS, torch.bool)
    return kind and not codes.counter(name, value) and torch.equal(value, made.get(name, value))


def others(value: torch.Tensor) -> list[int]:
    """Numbers near this one, in the order they are tried, on both sides; of zero and one the other. -1 says that there
    is none of something."""
    number = int(value)
    if number in (0, 1):
        return [1 - number]
    if number == -1:
        return []
    far = max(1, abs(number) // NEARBY)
    ends = torch.iinfo(value.dtype)
    near = [number - far, number + far, number - max(1, far // 2), number + 1]
    return [n for n in dict.fromkeys(near) if ends.min <= n <= ends.max]
