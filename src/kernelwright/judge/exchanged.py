# SPDX-License-Identifier: Apache-2.0
"""Floats that follow an order in which equal keys may come in any: rows sorted by a whole number, what was chosen with
the largest of several equal scores.

When the honest error is drawn, keys that are equal in float64 stay equal (``Equal``): moved apart by rounding they came
in any order, the floor was as wide as the values are, and any order passed, of unequal keys too. What differs from the
reference's order is put back instead: elements made of places of equal keys change places among each other.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from kernelwright.judge import calls, health, ties
from kernelwright.judge.first import FINDING, Flags
from kernelwright.judge.kinds import Watching, bound, chooses
from kernelwright.judge.oracle import Float64Trace

TURNS, DEAR_TURNS = 64, 8
"""Runs of the reference at the most, each with the next of equal keys in their place, where not all were chosen; and
where a call is work."""
_SMALLEST = {"aten::argmin", "aten::min"}
BLOCK = 1 << 24
"""Elements whose equals are looked for at a time."""


def _in_rows(func: Any, args: tuple[Any, ...], given: dict[str, Any]) -> tuple[torch.Tensor, int | None]:
    """What is chosen among along the last dimension, and the dimension that this was."""
    dim = given.get("dim")
    return (args[0].reshape(1, -1), None) if dim is None else (args[0].movedim(dim, -1), int(dim))


class Equal(Float64Trace):
    """Notes, operator by operator, which keys are equal: the first of its equals for each, or None."""

    def __init__(self) -> None:
        super().__init__()
        self.firsts: list[torch.Tensor | None] = []

    def apply(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """One operator."""
        if chooses(func, args) and args[0].dtype is torch.float64:
            rows, _ = _in_rows(func, args, bound(func, args, kwargs))
            self.firsts.append(_firsts(rows))
        return super().apply(func, args, kwargs)


class Kept:
    """Has operators find equal what they found equal when it was noted."""

    def __init__(self, noted: Equal) -> None:
        self._firsts = iter(noted.firsts)

    def again(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, ...]:
        """The arguments of the next operator, its keys equal where they were."""
        if not chooses(func, args) or args[0].dtype is not torch.float64:
            return args
        firsts = next(self._firsts, None)
        rows, dim = _in_rows(func, args, bound(func, args, kwargs))
        if firsts is None or firsts.shape != rows.shape:
            return args
        kept = torch.empty(args[0].shape, dtype=args[0].dtype, device=args[0].device)
        target = kept.reshape(1, -1) if dim is None else kept.movedim(dim, -1)
        for into, of, at in zip(*map(_blocks, (target, rows, firsts)), strict=True):
            into.copy_(of.gather(-1, at.long()))
        return (kept, *args[1:])


def _blocks(rows: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """Parts of BLOCK elements, about: what a sort of rows takes besides is then that of a part, not ten times a tensor
    of 8 GiB."""
    return (rows,) if rows.dim() < 2 else rows.split(max(1, BLOCK // max(1, rows[0].numel())))


def _firsts(rows: torch.Tensor) -> torch.Tensor | None:
    """The place of the first of its equals for each element of rows; None where none has one before it."""
    found: torch.Tensor | None = None
    here = torch.arange(rows.shape[-1], device=rows.device)
    kind = torch.int32 if rows.shape[-1] < 2**31 else torch.int64
    begun = 0
    for part in _blocks(rows):
        ordered, order = part.sort(dim=-1, stable=True)
        start = _starts(ordered)
        if not bool((start == here).all()):
            found = here.to(kind).expand(rows.shape).clone() if found is None else found
            firsts = torch.empty_like(order).scatter_(-1, order, order.gather(-1, start))
            found[begun : begun + len(part)] = firsts
        begun += len(part)
    return found


def _starts(ordered: torch.Tensor) -> torch.Tensor:
    """Of rows in order, where the run of equal ones begins that each is of."""
    fresh = ordered[..., 1:] != ordered[..., :-1]
    fresh &= ~(ordered[..., 1:].isnan() & ordered[..., :-1].isnan())
    here = torch.arange(ordered.shape[-1], device=ordered.device)
    return torch.where(torch.nn.functional.pad(fresh, (1, 0), value=True), here, 0).cummax(-1).values


@dataclass(frozen=True, slots=True)
class Units:
    """Of a tensor, which place of an order each element was made of; -1: of none."""

    tensor: torch.Tensor
    choice: int
    at: torch.Tensor
    written: bool = False
    """Numbered by the places written to, not by those of the order."""


@dataclass(frozen=True, slots=True)
class Order:
    """What one operator answered: by place of the order the group of equal keys, and the place of the value."""

    groups: torch.Tensor
    places: torch.Tensor
    by_place: torch.Tensor
    """The group of each value, in the shape of the values."""
    sizes: torch.Tensor
    """By group how many values are of it."""
    dim: int | None


class Turned(Watching):
    """Operators that choose places take equal keys ``turn`` places further on; what becomes of them is followed."""

    def __init__(self, turn: int) -> None:
        super().__init__()
        self.turn = turn
        self.orders: list[Order] = []
        self._known: dict[int, Units] = {}
        self._flags = Flags()

    def __torch_dispatch__(
        self, func: Any, kinds: Any, args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        """Called by torch for every operator below autograd."""
        args, given = tuple(args), dict(kwargs or {})
        named = bound(func, args, given)
        plain = func._schema.name.removeprefix("aten::")
        free = chooses(func, args) and not named.get("stable") and not bool(args[0].isnan().any())
        if free and not (plain in FINDING and self._flags.are(args[0])):
            return self._choose(func, args, named)
        out = func(*args, **given)
        self._flags.note(func, plain, args, given, out)
        if isinstance(out, torch.Tensor):
            name = func._schema.name.removeprefix("aten::").rstrip("_")
            try:
                found = self._follow(func, name, list(args), given, out)
            except calls.CAUGHT as error:  # of other shapes than the places themselves: then they are not followed
                health.pass_on(error)
                found = None
            self._known.pop(id(out), None)
            if found is not None:
                self._known[id(out)] = found
        return out

    def of(self, tensor: torch.Tensor) -> Units | None:
        """What is known of a tensor that the call returned."""
        return self._known.get(id(tensor))

    def _choose(self, func: Any, args: tuple[Any, ...], named: dict[str, Any]) -> Any:
        rows, dim = _in_rows(func, args, named)
        name = func._schema.name
        sorts = ties.sorts(func)
        down = bool(named["largest"] if "k" in named else named["descending"]) if sorts else name not in _SMALLEST
        ordered, order = rows.sort(dim=-1, descending=down, stable=True)
        start, size, count = _starts(ordered), rows.shape[-1], rows.shape[:-1].numel()
        sizes = torch.zeros_like(order).scatter_add_(-1, start, torch.ones_like(order))
        here = torch.arange(size, device=rows.device)
        places = order.gather(-1, start + (here - start + self.turn) % sizes.gather(-1, start))
        groups = start + size * torch.arange(count, device=rows.device).reshape(*rows.shape[:-1], 1)
        by_place = torch.empty_like(groups).scatter_(-1, order, groups)
        most = (named.get("k", size) if sorts else 1) if dim is not None or sorts else 1
        lying = -1 if dim is None else dim
        keep = sorts or bool(named.get("keepdim"))

        def back(found: torch.Tensor) -> torch.Tensor:
            found = found.narrow(-1, 0, most)
            if dim is None:
                return found.reshape([1] * args[0].dim() if keep else [])
            return found.movedim(-1, lying).contiguous() if keep else found[..., 0].contiguous()

        chosen = back(places)
        at = back((groups - start) + here)
        wide = by_place.reshape(args[0].shape) if dim is None else by_place.movedim(-1, lying)
        far = places + (groups - start)
        self._known[id(chosen)] = Units(chosen, len(self.orders), at)
        self.orders.append(Order(groups.reshape(-1), far.reshape(-1), wide, sizes.reshape(-1), dim))
        return chosen if name in ("aten::argmax", "aten::argmin") else (back(ordered), chosen)

    def _follow(self, func: Any, name: str, args: list[Any], given: dict[str, Any], out: torch.Tensor) -> Units | None:
        flat = [one for arg in args for one in (arg if isinstance(arg, list | tuple) else [arg])]
        mine = [self._known[id(value)] for value in flat if id(value) in self._known]
        if not mine:
            return None
        first = mine[0]
        if any(other.choice != first.choice for other in mine) or (given and name not in ("_to_copy", "clone")):
            return None
        if name in _TAKING or name == "scatter":
            return self._moved(name, args, first, out) if len(mine) == 1 else None
        at = first.at
        if name in ties.SAME_SHAPE:
            at = at.reshape(out.shape)
        elif (func.is_view or name in ties.MOVING) and name != "as_strided" and id(args[0]) in self._known:
            at = func(at, *args[1:])
        elif torch.Tag.pointwise in func.tags or name in ties.ALONE:
            at = at.expand(out.shape)
            if not all(torch.equal(other.at.expand(out.shape), at) for other in mine):
                return None
            others = [v for v in flat if isinstance(v, torch.Tensor) and id(v) not in self._known and v.numel() > 1]
            if not all(self._alike(value.expand(out.shape), at, first) for value in others):
                return None
        else:
            return None
        return Units(out, first.choice, at, first.written)

    def _moved(self, name: str, args: list[Any], units: Units, out: torch.Tensor) -> Units | None:
        """What is read, or written, at places."""
        order, at = self.orders[units.choice], units.at
        if units.written:
            return None
        if name == "scatter":
            by_place = order.by_place
            same = order.dim is not None and args[1] % out.dim() == order.dim % out.dim()
            if args[2] is not units.tensor or not same or out.shape != by_place.shape:
                return None
            return Units(out, units.choice, torch.arange(out.numel(), device=out.device).reshape(out.shape), True)
        if name == "gather":
            return Units(out, units.choice, at) if args[2] is units.tensor else None
        if name == "embedding":
            return Units(out, units.choice, at[..., None].expand(out.shape)) if args[1] is units.tensor else None
        indices = [None] * (args[1] % args[0].dim()) + [args[2]] if name == "index_select" else list(args[1])
        tensors = [number for number, value in enumerate(indices) if value is not None]
        others = [value for value in indices if value is not None and value is not units.tensor]
        if len(tensors) != tensors[-1] - tensors[0] + 1 or units.tensor.dtype is not torch.int64:
            return None
        shape = torch.broadcast_shapes(*(indices[number].shape for number in tensors))
        at = at.expand(shape)
        if not all(self._alike(value.expand(shape), at, units) for value in others):
            return None
        rest = out.dim() - tensors[0] - len(shape)
        return Units(out, units.choice, at.reshape(*shape, *[1] * rest).expand(out.shape))

    def _alike(self, values: torch.Tensor, at: torch.Tensor, units: Units) -> bool:
        """Whether what stands beside elements of equal keys is the same for all of them."""
        groups = _groups(self.orders[units.choice], units.written)
        inside, spots = _vectors(at)
        if inside is None:
            return False
        rows = values.reshape(-1)[inside]
        mine = groups[spots]
        order = mine.argsort(stable=True)
        rows, mine = rows[order], mine[order]
        return bool((rows[1:] == rows[:-1])[mine[1:] == mine[:-1]].all())


_TAKING = {"gather", "index", "index_select", "embedding"}


def _groups(order: Order, written: bool) -> torch.Tensor:
    return order.by_place.reshape(-1) if written else order.groups


def _vectors(at: torch.Tensor) -> tuple[torch.Tensor | None, torch.Tensor]:
    """Where the elements of each unit lie, a row for each, and which units these are; None where some have more."""
    order = at.reshape(-1).argsort(stable=True)
    spots, counts = at.reshape(-1)[order].unique_consecutive(return_counts=True)
    most = int(counts.max()) if counts.numel() else 0
    return (order.reshape(-1, most) if most and bool((counts == most).all()) else None), spots


def restored(
    got: torch.Tensor,
    run: Callable[[Turned], Sequence[torch.Tensor]],
    index: int,
    near: float,
    exact: torch.Tensor,
    most: int = TURNS,
) -> torch.Tensor | None:
    """An answer with what was made of equal keys put in the order that the reference has them in; None where nothing
    of it was. ``run(mode)``: all answers of the reference, watched. ``near``: how far from what was made of another
    place an element may lie, where not all of equal keys were chosen, for which there are ``most`` runs."""
    mode = Turned(0)
    units = mode.of(run(mode)[index])
    if units is None:
        return None
    inside, spots = _vectors(units.at)
    order = mode.orders[units.choice]
    if inside is None:
        return None
    mine = _groups(order, units.written)[spots]
    there = torch.bincount(order.by_place.reshape(-1), minlength=order.groups.numel())
    open_ = torch.bincount(mine, minlength=len(there)) < there
    loose = open_[mine]
    dice = torch.Generator(got.device).manual_seed(inside.shape[1])
    weights = torch.rand(inside.shape[1], generator=dice, device=got.device, dtype=torch.float64) + 0.5
    wide = got.reshape(-1).to(torch.float64)
    theirs, ours = wide[inside] @ weights, exact.reshape(-1).to(torch.float64)[inside] @ weights
    made = got.reshape(-1).clone()
    made[inside[_by_group(mine, ours)]] = got.reshape(-1)[inside[_by_group(mine, theirs)]]
    turns = int(there[mine[loose]].max()) if bool(loose.any()) else 1
    if turns > most or turns == 1:
        return made.reshape(got.shape)
    made[inside[loose]] = got.reshape(-1)[inside[loose]]
    found, places = [], []
    for turn in range(turns):
        other = Turned(turn)
        found.append(run(other)[index].reshape(-1)[inside[loose]])
        places.append(other.orders[units.choice].places[spots[loose]])
    _match(made, inside[loose], mine[loose], torch.stack(found), torch.stack(places), near, exact.reshape(-1))
    return made.reshape(got.shape)


def _by_group(groups: torch.Tensor, sizes: torch.Tensor) -> torch.Tensor:
    """An order by group, and by size within one."""
    order = sizes.argsort(stable=True)
    return order[groups[order].argsort(stable=True)]


def _match(
    made: torch.Tensor,
    inside: torch.Tensor,
    groups: torch.Tensor,
    found: torch.Tensor,
    places: torch.Tensor,
    near: float,
    exact: torch.Tensor,
) -> None:
    """Write the exact answer where one is what a place of an equal key would have made, each place once."""
    for group in groups.unique().tolist():
        rows = torch.nonzero(groups == group).reshape(-1)
        wide = made[inside[rows]].to(torch.float64)
        fits = ((found[:, rows].to(torch.float64) - wide).abs() <= near).all(-1) | (found[:, rows] == wide).all(-1)
        used: set[int] = set()
        for number, row in enumerate(rows.tolist()):
            free = [p for p in places[fits[:, number], row].tolist() if p not in used]
            if free:
                used.add(free[0])
                made[inside[row]] = exact[inside[row]].to(made.dtype)
