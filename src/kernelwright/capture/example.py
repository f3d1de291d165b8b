# SPDX-License-Identifier: Apache-2.0
"""Example inputs as one call: what is given by position, what by name, and copies that the call may write to."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from kernelwright.capture.values import Name, is_plain, literal
from kernelwright.errors import TaskError
from kernelwright.task import by_position


@dataclass(frozen=True, slots=True)
class Example:
    """One call: its values by position, and how a ``forward`` of ours takes them and hands them on."""

    values: tuple[object, ...]
    head: str = "*args"
    """Parameters of that ``forward``."""
    passed: str = "*args"
    """What it hands on: ``x, scale=scale`` where ``scale`` is taken by keyword only."""
    keywords: tuple[str, ...] = ()
    """Names of the last values, where the target takes them by keyword only."""

    def of(self, target: Callable[..., Any], values: tuple[object, ...] | None = None) -> object:
        """What the target answers, to other values where they are given."""
        values = self.values if values is None else values
        count = len(values) - len(self.keywords)
        return target(*values[:count], **dict(zip(self.keywords, values[count:], strict=True)))

    def copied(self) -> tuple[object, ...]:
        """The values with tensors of their own, so that a call which writes to its inputs leaves the caller's alone."""
        made: dict[int, torch.Tensor] = {}

        def copy(leaf: object) -> object:
            if not isinstance(leaf, torch.Tensor):
                return leaf
            if id(leaf) not in made:  # one given twice stays one
                made[id(leaf)] = leaf.detach().clone().requires_grad_(leaf.requires_grad)
            return made[id(leaf)]

        values: tuple[object, ...] = torch.utils._pytree.tree_map(copy, self.values)
        return values


def read(target: Callable[..., Any], inputs: object) -> Example:
    """The call that example inputs stand for. Raises TaskError where the target does not take them."""
    signature = inspect.signature(target)
    given = list(signature.parameters.values())
    fixed = all(p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY) for p in given)
    try:
        values = tuple(by_position(inputs, signature, alone=fixed))
        names = list(signature.parameters)[: len(values)]
        alone = tuple(p.name for p in given if p.kind is p.KEYWORD_ONLY and p.name in names)
        found = Example(values, keywords=alone)
        found.of(signature.bind)
    except TypeError as error:
        raise TaskError(
            "The example inputs are not a call of what is to be optimised.",
            got=str(error),
            expected=f"arguments for {signature}"[:300],
            what_next="pass those of one call: (x, y), or {'x': x, 'y': y}, or ((x,), {'y': y})",
        ) from error
    if not fixed:
        return found
    head = list(names)
    defaults = [signature.parameters[name].default for name in names]
    if all(value is inspect.Parameter.empty or is_plain(value, own=False) for value in defaults):
        for i, value in enumerate(defaults):
            if value is not inspect.Parameter.empty:
                head[i] += f"={literal(value, own=False)}"
            elif any("=" in earlier for earlier in head[:i]):
                head[i] += "=NotImplemented"  # required by keyword, after one with a default: it fails where it is used
    passed = [f"{name}={name}" if name in alone else name for name in names]
    for more, handed in _left_to_defaults(given[len(names) :]):
        head.append(more)
        passed.append(handed)
    return Example(values, ", ".join(head), ", ".join(part for part in passed if part), alone)


def _left_to_defaults(rest: Sequence[inspect.Parameter]) -> list[tuple[str, str]]:
    """How ``forward`` takes, and hands on, what the example leaves to its defaults: another call may give it. Nothing
    of what comes by position after a default that cannot be written down."""
    plain = [p.default is not p.empty and is_plain(p.default, own=False) for p in rest]
    placed = [p.kind is not p.KEYWORD_ONLY for p in rest]
    first = min((i for i, (ok, place) in enumerate(zip(plain, placed, strict=True)) if place and not ok), default=None)
    found = []
    for p in (p for p, place in zip(rest[:first], placed, strict=False) if place):
        found.append((f"{p.name}={literal(p.default, own=False)}", p.name))
    named = [p for p, ok, place in zip(rest, plain, placed, strict=True) if ok and not place]
    found += [("*", "")] if named else []
    return found + [(f"{p.name}={literal(p.default, own=False)}", f"{p.name}={p.name}") for p in named]


def drawn(values: tuple[object, ...]) -> str:
    """The source of a ``get_inputs`` that makes such values; a tensor that is given twice is given twice by it too."""
    tensors = [leaf for leaf in torch.utils._pytree.tree_leaves(values) if isinstance(leaf, torch.Tensor)]
    places = [_place(leaf) for leaf in tensors]
    twice = dict.fromkeys(place for place in places if places.count(place) > 1)
    names = {place: Name(f"shared_{number}") for number, place in enumerate(twice)}
    first = {_place(leaf): leaf for leaf in reversed(tensors)}
    lines = [f"    {name} = {literal(first[place], own=False)}" for place, name in names.items()]

    def named(leaf: object) -> object:
        return names.get(_place(leaf), leaf) if isinstance(leaf, torch.Tensor) else leaf

    given = ", ".join(literal(value, own=False) for value in torch.utils._pytree.tree_map(named, values))
    return "\n".join(["def get_inputs():", *lines, f"    return [{given}]"])


def _place(leaf: torch.Tensor) -> object:
    """What two tensors with the very same elements have in common."""
    if leaf.layout is not torch.strided or leaf.is_meta or not leaf.numel():
        return id(leaf)
    return leaf.data_ptr(), leaf.shape, leaf.stride(), leaf.dtype, leaf.device
