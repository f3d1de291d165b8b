# SPDX-License-Identifier: Apache-2.0
"""Places of equal values: which of them an operator answers with is nobody's promise, nor what is computed of them.

A search over beams answers with ``i // V`` and ``i % V`` of one place, a router with ``i.int()``. So places are
followed through what is done to each of them alone, as a table of what any place of a row would have become; an answer
is right where it is what some place of an equal value became, in all outputs at once, and no more often than there are
such.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import torch
from torch.utils._pytree import tree_leaves

from kernelwright.judge import calls, health
from kernelwright.judge.first import FINDING, Flags
from kernelwright.judge.kinds import CHOOSING, Watching, bound
from kernelwright.judge.whole import INTEGERS

ALONE = {"floor_divide", "_to_copy", "clone"}
"""Operators that treat each element by itself, beside those that torch says that of."""
SAME_SHAPE = {"view", "_unsafe_view", "_reshape_alias"}
"""Operators that go by how elements lie, where a copy of the places may lie otherwise."""
MOVING = {"index_select", "flip", "roll"}
"""Operators that are no views and move elements."""
RISING = {"sigmoid", "tanh", "exp", "log", "sqrt", "erf", "hardsigmoid", "hardtanh", "relu", "clamp", "clamp_min"}
"""Operators of one value whose results are in order where that is; ``_softmax`` of a row of them."""


@dataclass(frozen=True, slots=True)
class Choice:
    """What an operator chose among, and the places it answered with, a row each."""

    values: torch.Tensor
    places: torch.Tensor


@dataclass(frozen=True, slots=True)
class Followed:
    """A tensor that was made of places."""

    tensor: torch.Tensor
    choice: int
    at: torch.Tensor
    """The place, of all those chosen, that each element was made of."""
    table: torch.Tensor
    """By row what it would be of every place there is."""


class Noted(Watching):
    """Notes which places the operators of a call chose, and what became of them."""

    def __init__(self) -> None:
        super().__init__()
        self.choices: list[Choice] = []
        self._known: dict[int, Followed] = {}
        self._flags = Flags()

    def __torch_dispatch__(
        self, func: Any, kinds: Any, args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        """Called by torch for every operator below autograd."""
        given = dict(kwargs or {})
        name = func._schema.name.removeprefix("aten::")
        choosing = name in CHOOSING and args[0].dim() > 0 and not args[0].is_complex()
        choosing = choosing and not (name in FINDING and self._flags.are(args[0]))
        source = args[0].clone() if choosing else None
        out = func(*args, **given)
        self._flags.note(func, name, args, given, out)
        if source is not None:
            self._choose(source, out, bound(func, tuple(args), given))
        elif func._schema.is_mutable:
            self._forget([value for value in tree_leaves((args, given)) if isinstance(value, torch.Tensor)])
        elif isinstance(out, torch.Tensor) and any(id(value) in self._known for value in args):
            try:
                self._follow(func, name, list(args), given, out)
            except calls.CAUGHT as error:  # of other shapes than the places themselves: then they are not followed
                health.pass_on(error)
        return out

    def of(self, tensor: torch.Tensor) -> Followed | None:
        """What is known of a tensor that the call returned."""
        return self._known.get(id(tensor)) if tensor.dtype in INTEGERS else None

    def _choose(self, source: torch.Tensor, out: Any, given: Mapping[str, Any]) -> None:
        places = out if isinstance(out, torch.Tensor) else out[1] if len(out) > 1 else None
        if places is None or places.dtype != torch.int64 or given.get("stable") or not places.numel():
            return
        dim = given.get("dim")
        dim, values = (0, source.reshape(-1)) if dim is None else (dim, source)
        kept = places.dim() == values.dim()
        lying = places.reshape(1) if given.get("dim") is None else places if kept else places.unsqueeze(dim)
        lying = lying.movedim(dim, -1)
        at = torch.arange(lying.numel(), device=lying.device).reshape(lying.shape).movedim(-1, dim)
        rows, size = lying.numel() // lying.shape[-1], values.shape[dim]
        chosen = Choice(values.movedim(dim, -1).reshape(rows, size), lying.reshape(rows, -1).clone())
        table = torch.arange(size, device=lying.device).expand(rows, size)
        self._known[id(places)] = Followed(places, len(self.choices), at.reshape(places.shape), table)
        self.choices.append(chosen)

    def _forget(self, written: Sequence[torch.Tensor]) -> None:
        """Places that were written over are none."""
        spots = {value.untyped_storage().data_ptr() for value in written if value.layout is torch.strided}
        self._known = {
            key: found for key, found in self._known.items() if found.tensor.untyped_storage().data_ptr() not in spots
        }

    def _follow(self, func: Any, name: str, args: list[Any], given: dict[str, Any], out: torch.Tensor) -> None:
        mine = {place: self._known[id(value)] for place, value in enumerate(args) if id(value) in self._known}
        first, *more = mine.values()
        if any(one.choice != first.choice or not torch.equal(one.at, first.at) for one in more):
            return
        at, table = first.at, first.table
        if name in SAME_SHAPE:
            at = at.reshape(out.shape)
        elif (func.is_view or name in MOVING) and name != "as_strided" and list(mine) == [0]:
            at = func(at, *args[1:], **given)
        elif (torch.Tag.pointwise in func.tags or name in ALONE) and out.shape == at.shape:
            rows = at // self.choices[first.choice].places.shape[1]
            others = [
                mine[place].table if place in mine else _by_row(value, rows, len(table), at)
                for place, value in enumerate(args)
            ]
            table = func(*others, **{key: value for key, value in given.items() if key != "memory_format"})
        else:
            return
        self._known[id(out)] = Followed(out, first.choice, at, table)


_FINDING = {
    torch.ops.aten.argmax.default: True,
    torch.ops.aten.argmin.default: False,
    torch.ops.aten.max.dim: True,
    torch.ops.aten.min.dim: False,
}
"""Operators that answer with the place of a largest number (of a least one), and whether it is that. Of flags it is the
first that is looked for, by them: ``first``."""


class Ordered(Watching):
    """Sorts, and searches for the largest, find equal values by their places: the first or the ``last`` of them first,
    or as ``told``, by the number of the operator, where that is an order of them, or ``before``: by what they were
    before an operator that made them equal, as who chooses by logits and not by their sigmoids; or those first
    ``where`` an answer of their shape is not zero, as the gradient of what was chosen is: torch's own sort that is not
    stable has an order of equal zeros that is none of these. What a reference answers then is as right as what it
    answers usually."""

    def __init__(
        self,
        last: bool,
        told: Mapping[int, torch.Tensor] = MappingProxyType({}),
        *,
        before: bool = False,
        where: torch.Tensor | None = None,
    ) -> None:
        super().__init__()
        self.last, self._told, self._before, self._where = last, told, before, where
        self._sources: dict[int, tuple[torch.Tensor, torch.Tensor, int | None]] = {}
        self._flags = Flags()
        self.chosen: list[torch.Tensor] = []
        """The places that each operator answered with."""

    def __torch_dispatch__(
        self, func: Any, kinds: Any, args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        """Called by torch for every operator below autograd."""
        given = bound(func, tuple(args), dict(kwargs or {}))
        finds = func in _FINDING and given["dim"] is not None and args[0].dim() > 0 and not self._flags.are(args[0])
        if finds and not bool(args[0].isnan().any()):
            return self._found(func, args[0], given)
        if not sorts(func) or given.get("stable") or args[0].dim() == 0 or "out" in str(func._schema.overload_name):
            out = func(*args, **(kwargs or {}))
            self._flags.note(func, func._schema.name.removeprefix("aten::"), args, dict(kwargs or {}), out)
            self._note(func, args, given, out)
            return out
        dim, down = given["dim"], bool(given["largest"] if "k" in given else given["descending"])
        keys = self._source(args[0], dim)
        first = self._first(keys, dim)
        found, places = torch.sort(keys.gather(dim, first), dim=dim, descending=down, stable=True)
        places = first.gather(dim, places)
        found = found if keys is args[0] else args[0].gather(dim, places)
        most = given.get("k", args[0].shape[dim])
        found, places = found.narrow(dim, 0, most).contiguous(), places.narrow(dim, 0, most).contiguous()
        told = self._told.get(len(self.chosen))
        if told is not None and _is_order(told, args[0], found, dim):
            places = told.clone()
        self.chosen.append(places)
        return found, places

    def _found(self, func: Any, values: torch.Tensor, given: Mapping[str, Any]) -> Any:
        """The largest or least of each row, and its place among those that are equal to it."""
        dim, kept = given["dim"], given["keepdim"]
        keys, down = self._source(values, dim), _FINDING[func]
        if self._where is None or self._where.shape != keys.shape:
            places = _outermost(keys, dim, largest=down, last=self.last)
        else:
            first = self._first(keys, dim)
            places = first.gather(dim, keys.gather(dim, first).sort(dim=dim, descending=down, stable=True).indices)
            places = places.narrow(dim, 0, 1).contiguous()
        told = self._told.get(len(self.chosen))
        told = None if told is None or told.numel() != places.numel() else told.reshape(places.shape)
        if told is not None and _is_order(told, values, values.gather(dim, places), dim):
            places = told.clone()
        found = values.gather(dim, places)
        found, places = (each if kept else each.squeeze(dim) for each in (found, places))
        self.chosen.append(places)
        return (found, places) if "dim" in func._schema.overload_name else places

    def _first(self, keys: torch.Tensor, dim: int) -> torch.Tensor:
        """The order in which equal ones come."""
        if self._where is not None and self._where.shape == keys.shape:
            return (self._where != 0).to(torch.int8).argsort(dim=dim, descending=True, stable=True)
        lines = [size if axis == dim % keys.dim() else 1 for axis, size in enumerate(keys.shape)]
        places = torch.arange(keys.shape[dim], device=keys.device)
        return (places.flip(0) if self.last else places).view(lines).expand(keys.shape)

    def _note(self, func: Any, args: Sequence[Any], given: Mapping[str, Any], out: Any) -> None:
        name = func._schema.name.removeprefix("aten::")
        if self._before and (name in RISING or name == "_softmax") and out.shape == args[0].shape:
            dim = int(given["dim"]) % args[0].dim() if name == "_softmax" and args[0].dim() else None
            self._sources[id(out)] = out, args[0], dim

    def _source(self, values: torch.Tensor, dim: int) -> torch.Tensor:
        """What they were made of, in whose order they are."""
        while id(values) in self._sources:
            _, source, only = self._sources[id(values)]
            if only not in (None, dim % values.dim()):
                break
            values = source
        return values


def _outermost(keys: torch.Tensor, dim: int, *, largest: bool, last: bool) -> torch.Tensor:
    """The place of each row's largest or least, of equal ones the first or the last. Not by a sort, which took eight
    times an input of 0.5 GiB and 8 s on 2 cores, for each wrong answer in five orders."""
    equal = keys == (keys.amax if largest else keys.amin)(dim, keepdim=True)
    if not last:
        return equal.to(torch.int8).argmax(dim, keepdim=True)
    return keys.shape[dim] - 1 - equal.flip(dim).to(torch.int8).argmax(dim, keepdim=True)


class Shared(Watching):
    """The gradient of the largest of a row, or the least, is that of all that are equal to it, in equal parts, as of
    ``amax``: ``max`` gives all of it to the one whose place it answers with, which is nobody's promise either."""

    def __init__(self) -> None:
        super().__init__()
        self._shares: dict[int, tuple[torch.Tensor, torch.Tensor]] = {}
        """By where places lie: them, and the part of each element."""

    def __torch_dispatch__(
        self, func: Any, kinds: Any, args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        """Called by torch for every operator below autograd."""
        name = func._schema.name.removeprefix("aten::").removesuffix("_")
        known = self._shares.get(args[2].data_ptr()) if name == "scatter" and len(args) > 3 else None
        if known is not None and isinstance(args[3], torch.Tensor) and known[1].shape == args[0].shape:
            made = args[0] + args[3] * known[1].to(args[0].dtype)
            return args[0].copy_(made) if func._schema.is_mutable else made
        out = func(*args, **(kwargs or {}))
        if func in (torch.ops.aten.max.dim, torch.ops.aten.min.dim) and args[0].dim():
            given = bound(func, tuple(args), dict(kwargs or {}))
            most = out[0] if given["keepdim"] else out[0].unsqueeze(given["dim"])
            equal = (args[0] == most).to(torch.float64)
            self._shares[out[1].data_ptr()] = out[1], equal / equal.sum(given["dim"], keepdim=True).clamp(min=1)
        return out


def _is_order(told: torch.Tensor, values: torch.Tensor, found: torch.Tensor, dim: int) -> bool:
    """Whether at these places, each of which is there once, ``values`` are what was ``found``."""
    if told.dtype != torch.int64 or told.shape != found.shape or not told.numel():
        return False
    if int(told.min()) < 0 or int(told.max()) >= values.shape[dim]:
        return False
    once = told.sort(dim=dim).values.diff(dim=dim)
    there = values.gather(dim, told)
    return bool((once > 0).all()) and torch.equal(there.nan_to_num(7.0), found.nan_to_num(7.0))


def sorts(func: Any) -> bool:
    """Whether an operator puts values in order."""
    return func._schema.name in ("aten::sort", "aten::topk")


def _by_row(value: Any, rows: torch.Tensor, count: int, at: torch.Tensor) -> Any:
    """An argument beside places, one number for each row of them. Raises ValueError where a row has several."""
    if not isinstance(value, torch.Tensor) or value.numel() == 1:
        return value.reshape(()) if isinstance(value, torch.Tensor) else value
    spread = value.expand(at.shape).reshape(-1)
    made = torch.zeros(count, dtype=value.dtype, device=value.device)
    made[rows.reshape(-1)] = spread
    if not torch.equal(made[rows.reshape(-1)], spread):
        raise ValueError("another number for each place")
    return made[:, None]


def right(
    noted: Noted,
    outputs: Sequence[torch.Tensor],
    index: int,
    got: Sequence[torch.Tensor],
    kinds: Sequence[torch.dtype],
) -> torch.Tensor | None:
    """Which elements of answer ``index`` are those of places of equal values; None where it is no answer of places.

    ``outputs``: those of the call that was ``noted``. ``got``: all of an answer. ``kinds``: by choice, the type in
    which the reference has the values; where ``noted`` has a wider one they are equal that are so in this.
    """
    mine = noted.of(outputs[index])
    if mine is None or len(mine.at.reshape(-1).unique()) != mine.at.numel():
        return None
    choice = noted.choices[mine.choice]
    covered = torch.zeros(choice.places.numel(), dtype=torch.bool, device=choice.places.device)
    covered[mine.at.reshape(-1)] = True
    groups = _groups(_narrowed(choice.values, kinds[mine.choice] if mine.choice < len(kinds) else choice.values.dtype))
    theirs = groups.gather(1, choice.places).reshape(-1)
    keys = torch.cat([groups.reshape(-1), theirs])
    for number, answer in enumerate(got):
        other = noted.of(outputs[number])
        if other is None or other.choice != mine.choice or answer.shape != outputs[number].shape:
            continue
        if answer.dtype != outputs[number].dtype:
            continue
        said = torch.zeros_like(covered)
        said[other.at.reshape(-1)] = True
        if number != index and not bool(said[covered].all()):
            continue
        numbers = torch.zeros(covered.numel(), dtype=torch.int64, device=covered.device)
        numbers[other.at.reshape(-1)] = answer.reshape(-1).to(torch.int64)
        made = torch.cat([other.table.to(torch.int64).reshape(-1), numbers]).unique(return_inverse=True)[1]
        keys = (keys * len(made) + made).unique(return_inverse=True)[1]
    there, here = keys.split([groups.numel(), covered.numel()])
    most = int(keys.max()) + 1
    enough = torch.bincount(here[covered], minlength=most) <= torch.bincount(there, minlength=most)
    return enough[here][mine.at]


def _narrowed(values: torch.Tensor, kind: torch.dtype) -> torch.Tensor:
    """Values as the reference's type holds them. What vanishes there but for a few bits may be zero: some programs have
    such numbers flushed."""
    if not values.is_floating_point() or torch.finfo(values.dtype).eps >= torch.finfo(kind).eps:
        return values
    narrow = values.to(kind).to(values.dtype)
    tiny = torch.finfo(kind).smallest_normal if kind is not torch.float16 else 0.0
    return torch.where((narrow.abs() < tiny) & (narrow != values), 0.0, narrow)


def _groups(rows: torch.Tensor) -> torch.Tensor:
    """A number for each value, the same for equal ones of a row, and another in every row."""
    ordered, order = rows.sort(-1)
    apart = ordered[:, 1:] != ordered[:, :-1]
    if rows.is_floating_point():
        apart &= ~(ordered[:, 1:].isnan() & ordered[:, :-1].isnan())
    ranks = torch.nn.functional.pad(apart.cumsum(-1), (1, 0))
    numbers = torch.empty_like(order).scatter_(-1, order, ranks)
    return numbers + torch.arange(len(rows), device=rows.device)[:, None] * rows.shape[-1]
