# SPDX-License-Identifier: Apache-2.0
"""Values of an input that mean something else to the reference, and that ``get_inputs`` may never draw.

A class to be ignored, the row of a padding, a number that positions are compared with, NaN and infinities where they
are looked for: who leaves that out answers right as long as it does not come. So the operators that look at an input
itself say which values they look for, and some elements of that input, and of no other, become those. NaN and
infinities that are looked for in a result come in the inputs they ``arrived`` from.
"""

from __future__ import annotations

import ast
import contextlib
import math
import random
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import torch

from kernelwright.judge import arrived, numerics
from kernelwright.judge.dealing import below
from kernelwright.judge.whole import INTEGERS, in_place, repeats

if TYPE_CHECKING:
    from kernelwright.task import Task

Place = tuple[int, float]
"""A storage, and a value that was looked for in it."""
Marks = tuple[tuple[int, tuple[float, ...]], ...]
"""By input, the values."""
COMPARED = {"eq", "ne", "gt", "ge", "lt", "le"}
CUT = {"clamp", "clamp_min", "clamp_max"}
"""Operators that would not be there if all numbers lay within."""
WRAPPED = {"remainder", "fmod", "floor_divide", "div"}
"""Operators that would not be there if all numbers lay below what they divide by: of a ``div``, one that rounds."""
IGNORING = {"nll_loss_forward": 4, "nll_loss2d_forward": 4, "embedding": 2, "_embedding_bag": 8,
            "_embedding_bag_forward_only": 8}  # fmt: skip
"""Operators whose second argument may hold a number that does not count, and which of their arguments that is."""
TABLE = 64
"""Whole numbers that may be compared with at once: more are other values, and none that is looked for."""
ASKED = {"logical_not", "nonzero", "count_nonzero", "any", "all"}
"""Operators that look for zeros, as a copy to flags does."""
PLACES = (torch.int32, torch.int64)
"""Types of those; one of bytes is a mask."""
INDEXING = {"index", "index_select", "gather"}
"""Operators that take elements from places, as ``embedding`` does: nobody took the padding before the first entry of a
table."""
SWEPT = {"nan_to_num", "nansum", "isnan", "nanmedian", "nanquantile", "fmax", "fmin"}
"""Operators that look for NaN."""
ENDLESS = {"isinf": (math.inf, -math.inf), "isposinf": (math.inf,), "isneginf": (-math.inf,)}
"""Operators that look for infinities, and for which."""
BEYOND = 1e18
"""What an infinity becomes may be so large for it to come. Unless a number is named that is the largest float there
is, and sums of those are infinite or not by their order."""
UNASKED, BY_ITSELF = -0.5, -100
"""What torch ignores unless something is said, and what stands for a target of which that is true: programs for targets
that are all there need not know of it, unless the source says it all the same. Where labels are smoothed torch compares
the target with it besides."""
LOWEST, HIGHEST = -math.inf, math.inf
"""Of whole numbers that are one ``throughout``, the ends of those that were drawn."""
MOST = 4
"""Of the values that are looked for, those that an input is throughout, at the most."""
SHARE = 1 / 8
"""Of the elements of a marked input, or of its rows, those that are a value that it is looked for."""
ROWS = "rows"
"""Whole rows are such a value, beside others that are not: a sequence of nothing but padding in a batch."""
RUNS = "runs"
"""They are one such value from somewhere along an axis to somewhere: who filled gaps from up to 15 places away passed,
and who looked at three characters before a quote."""


def met(func: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> list[tuple[torch.Tensor, float]]:
    """The tensor that an operator looks for values in, with each of them."""
    name = str(func._schema.name).removeprefix("aten::").rstrip("_")
    if name in IGNORING:
        place = IGNORING[name]
        number = args[place] if len(args) > place else -1
        named = isinstance(number, int) and (number >= 0 or name.startswith("nll"))
        ends = _unmet(args[1], args[0].shape[0]) if name == "embedding" else []
        return ends + ([(args[1], UNASKED if number == BY_ITSELF else float(number))] if named else [])
    if name in INDEXING:
        return [found for places, size in _indexed(name, args) for found in _unmet(places, size)]
    if args and isinstance(args[0], torch.Tensor) and args[0].is_floating_point():
        return [(args[0], number) for number in _odd(name, args, kwargs)]
    if len(args) > 1 and all(isinstance(arg, torch.Tensor) for arg in args[:2]):
        return _of_table(name, *args[:2]) + (_ends(*args[:2]) if name in COMPARED else [])
    if args and isinstance(args[0], torch.Tensor) and (name in ASKED or kwargs.get("dtype") is torch.bool):
        return _held(args[0], [0]) if args[0].dtype in INTEGERS else []
    if name not in (*COMPARED, *CUT, "isin") or args[0].dtype not in INTEGERS:
        return []
    numbers = [n for n in args[1:2] if _whole(n)]
    if name in CUT:  # who cuts numbers off expects some beyond
        low, high = [*([None] if name == "clamp_max" else []), *args[1:], None, None][:2]
        numbers = [*([low - 1] if _whole(low) else []), *([high + 1] if _whole(high) else [])]
    return _held(args[0], numbers)


def _indexed(name: str, args: Sequence[Any]) -> list[tuple[torch.Tensor, int]]:
    """Places that an operator takes elements from, with how many there are."""
    if name == "index":
        pairs = zip(args[1], args[0].shape, strict=False)
        return [(places, size) for places, size in pairs if places is not None and places.dtype in PLACES]
    return [(args[2], args[0].shape[args[1]])]


def _unmet(places: torch.Tensor, size: int) -> list[tuple[torch.Tensor, float]]:
    """The first and the last place there is, where none of these is. Not on a device, where the end of one table may
    lie outside of another."""
    if not places.numel() or not places.is_cpu:
        return []
    low, high = (int(end) for end in torch.aminmax(places))
    return _held(places, [*([0] if low > 0 else []), *([size - 1] if 0 <= low and high < size - 1 else [])])


def wrapped(func: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> list[tuple[torch.Tensor, float]]:
    """The whole numbers that an operator takes the rest of, or whole parts, with the first beyond it that wraps, one
    that does so twice, and the last among those that are there that does, with the one before it. Of ids below 100
    every rest by 100 is the id itself, and who left that out passed."""
    name = str(func._schema.name).removeprefix("aten::").rstrip("_")
    if name not in WRAPPED or len(args) < 2 or not isinstance(args[0], torch.Tensor) or not _whole(args[1]):
        return []
    if args[0].dtype not in INTEGERS or args[1] < 2 or (name == "div" and not kwargs.get("rounding_mode")):
        return []
    last = int(args[0].max()) // args[1] * args[1] if args[0].numel() else 0
    beyond = [last - 1, last] if last > 2 * args[1] + 1 else []
    return _held(args[0], [args[1], 2 * args[1] + 1, *beyond])


def _held(looked_into: torch.Tensor, numbers: Iterable[int]) -> list[tuple[torch.Tensor, float]]:
    """Those that its type holds."""
    limits = torch.iinfo(looked_into.dtype)
    return [(looked_into, float(n)) for n in numbers if limits.min <= n <= limits.max]


def _of_table(name: str, one: torch.Tensor, other: torch.Tensor) -> list[tuple[torch.Tensor, float]]:
    """Whole numbers of a few that more are compared with: a padding that is a buffer, tokens that are special, an end
    that is an input. Of order, a single one: steps below lengths are no values of either."""
    if name != "isin" and one.numel() < other.numel():
        one, other = other, one
    most = TABLE if name in ("eq", "ne", "isin") else 1 if name in COMPARED else 0
    if one.dtype not in INTEGERS or other.dtype not in INTEGERS or not 0 < other.numel() <= most:
        return []
    if name != "isin" and one.numel() == other.numel():
        return []
    return _held(one, other.reshape(-1).tolist())


def _ends(one: torch.Tensor, other: torch.Tensor) -> list[tuple[torch.Tensor, float]]:
    """A single number that many are compared with, places with a length say, and the ends of those: of 2048 places the
    last is drawn in half of the proofs."""
    if one.dim() and other.dim() == 0:
        one, other = other, one
    if one.dim() or other.numel() < 2 or one.dtype not in INTEGERS or other.dtype not in INTEGERS:
        return []
    return _held(one, [int(end) for end in torch.aminmax(other)])


class Looked:
    """Notes where operators look for values, and for which."""

    def __init__(self) -> None:
        self.found: set[Place] = set()
        self.wraps: set[Place] = set()
        """Where they take the rest of whole numbers, and which are beyond it."""
        self._sizes: tuple[Any, Any] = None, None
        """What ``abs`` was taken of last, and its answer: ``isfinite`` looks for an infinity of either sign there."""
        self._arrived = arrived.Arrived()

    def note(self, func: Any, args: Sequence[Any], kwargs: Mapping[str, Any], out: Any) -> None:
        """One operator, and its answer."""
        for looked_into, value in met(func, args, kwargs):
            if looked_into.layout is not torch.strided:  # of a sparse one only its parts are inputs
                continue
            twice = looked_into is self._sizes[1] and value == math.inf
            for tensor, number in (
                ((self._sizes[0], -value), (self._sizes[0], value)) if twice else ((looked_into, value),)
            ):
                place = tensor.untyped_storage().data_ptr()
                odd = tensor.is_floating_point() and not math.isfinite(number) and numerics.finite(tensor)
                self.found |= {(from_, number) for from_ in (self._arrived.origins(place) if odd else (place,))}
        self._arrived.note(func, args, out)
        self.wraps |= {(tensor.untyped_storage().data_ptr(), number) for tensor, number in wrapped(func, args, kwargs)}
        if func._schema.name == "aten::abs":
            self._sizes = args[0], out


def _odd(name: str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> list[float]:
    """NaN and infinities that an operator looks for among floats."""
    if name in ENDLESS:
        return list(ENDLESS[name])
    if name in ("eq", "ne") and len(args) > 1:
        number = args[1].item() if isinstance(args[1], torch.Tensor) and args[1].dim() == 0 else args[1]
        found = [number] if isinstance(number, float) and math.isinf(number) else []
        return [math.nan] if args[0] is args[1] else found
    if name == "nan_to_num":
        ends = [kwargs.get(key, args[at] if len(args) > at else None) for key, at in (("posinf", 2), ("neginf", 3))]
        given = zip(ends, (math.inf, -math.inf), strict=True)
        return [math.nan, *(number for end, number in given if end is not None and abs(end) <= BEYOND)]
    return [math.nan] if name in SWEPT else []


def _whole(number: Any) -> bool:
    return isinstance(number, int) and not isinstance(number, bool)


def said(task: Task) -> bool:
    """Whether the sources of a reference name BY_ITSELF: an operator is handed the same whether they do or not."""
    nodes: list[ast.AST] = []
    for text in (task.reference, *(text for _, text in task.beside)):
        with contextlib.suppress(SyntaxError):  # of what lies beside it and is no Python
            nodes += ast.walk(ast.parse(text))
    numbers = (node.operand for node in nodes if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub))
    return any(isinstance(number, ast.Constant) and number.value == -BY_ITSELF for number in numbers)


def of_inputs(found: Iterable[tuple[int, float]], leaves: Sequence[torch.Tensor], named: bool = False) -> Marks:
    """Of values looked for, by the storage that they were looked for in, those of inputs. ``named``: see ``said``."""
    places = {leaf.untyped_storage().data_ptr(): index for index, leaf in enumerate(leaves) if leaf.numel()}
    values: dict[int, set[float]] = {}
    for place, number in found:
        if place in places:
            values.setdefault(places[place], set()).add(number)
    for numbers in values.values():
        if UNASKED in numbers:
            numbers -= {UNASKED, BY_ITSELF}
            numbers |= {float(BY_ITSELF)} if named else set()
    return tuple((index, tuple(sorted(numbers))) for index, numbers in sorted(values.items()) if numbers)


def planted(leaf: torch.Tensor, values: Sequence[float], rng: torch.Generator, how: str = "") -> torch.Tensor:
    """Some elements, and one at least, or all of some rows, or a run (``how``), are such values. What lies in order
    does so still, and single numbers stay: they are one ``throughout``."""
    if leaf.numel() < 2 or not values or (how == ROWS and leaf.dim() < 2):
        return leaf
    if in_place(leaf):
        return _at_an_end(leaf, values, rng)
    if how == RUNS:
        return _run(leaf, values, rng)
    drawn = (*leaf.shape[:-1], 1) if how == ROWS else leaf.shape
    chance = torch.rand(drawn, generator=rng, device=leaf.device)
    which = torch.randint(len(values), drawn, generator=rng, device=leaf.device)
    numbers = torch.tensor(values, dtype=torch.float64, device=leaf.device)[which]
    return torch.where(chance <= max(SHARE, float(chance.min())), numbers.to(leaf.dtype), leaf)


def _at_an_end(leaf: torch.Tensor, values: Sequence[float], rng: torch.Generator) -> torch.Tensor:
    """Numbers in order, of which the last are a value beyond them, or the first one below: times that are not known."""
    low, high = int(leaf[0]), int(leaf[-1])
    able = [int(value) for value in values if math.isfinite(value) and not low <= value <= high]
    if not able:
        return leaf
    count, value = 1 + below(max(1, int(len(leaf) * 2 * SHARE)), rng), able[below(len(able), rng)]
    made = leaf.clone()
    (made[:count] if value < low else made[-count:]).fill_(value)
    return made


def _run(leaf: torch.Tensor, values: Sequence[float], rng: torch.Generator) -> torch.Tensor:
    """One value along a part of an axis, and another after it, by lot in every row of it or in half of them."""
    axes = [axis for axis, size in enumerate(leaf.shape) if size > 1]
    axis = axes[below(len(axes), rng)]
    size = leaf.shape[axis]
    start, length = below(size, rng), 1 + below(size - 1, rng)
    made = leaf.clone(memory_format=torch.contiguous_format)
    others = [1 if dim == axis else n for dim, n in enumerate(leaf.shape)]
    chosen = torch.rand(others, generator=rng, device=leaf.device) < (1.0 if below(2, rng) else 0.5)
    end, first = min(start + length, size), below(len(values), rng)
    parts = [(start, end, values[first])]
    if end < size and len(values) > 1:
        parts.append((end, end + 1, values[first - 1]))
    for at, until, value in parts:
        part = made.narrow(axis, at, until - at)
        part.copy_(torch.where(chosen, torch.full_like(part, value), part))
    return made


def alone(found: Marks, numbers: Sequence[int], dice: random.Random) -> list[Marks]:
    """Ways in which inputs are one value throughout: those of whole ``numbers`` each of their ends, and all inputs some
    of the values that they are looked for. A target that is ignored in every place, a batch of nothing but padding: who
    divides by the number of others unguarded passed while an eighth of them was marked."""
    ways: list[Marks] = [tuple((index, (end,)) for index in numbers) for end in (LOWEST, HIGHEST) if numbers]
    some = {index: dice.sample(values, min(len(values), MOST)) for index, values in found}
    for number in range(max(map(len, some.values()), default=0)):
        ways.append(tuple((index, (values[number % len(values)],)) for index, values in some.items()))
    return ways


def throughout(leaf: torch.Tensor, values: Sequence[float]) -> torch.Tensor:
    """All elements are that value, but of whole numbers in order, and none is an end of numbers that never repeat."""
    if not leaf.numel() or not values or (leaf.numel() > 1 and in_place(leaf)):
        return leaf
    (value,) = values
    if not leaf.is_floating_point() and (leaf.dtype not in INTEGERS or math.isnan(value)):
        return leaf  # floats that are flags are changed as those: nothing is looked for there
    if leaf.dtype in INTEGERS and math.isinf(value):
        if not repeats(leaf):
            return leaf
        value = int(leaf.min() if value == LOWEST else leaf.max())
    return torch.full_like(leaf, value, memory_format=torch.contiguous_format)
