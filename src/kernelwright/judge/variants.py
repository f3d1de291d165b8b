# SPDX-License-Identifier: Apache-2.0
"""Which ways of drawing inputs and weights a case is judged on: each catches programs that the others let through."""

from __future__ import annotations

import functools
import math
import random
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from kernelwright.judge import comparisons, extremes, fitted, layouts, level, near_ends, patterned, relations, singled
from kernelwright.judge.almost import CHANGES
from kernelwright.judge.buffers import TensorSpec
from kernelwright.judge.dealing import TOGETHER
from kernelwright.judge.far import LEVELS, WAYS
from kernelwright.judge.inputs import MIXED, ORDERED, Variant
from kernelwright.judge.labelled import RIGHT, likeliest
from kernelwright.judge.marks import Marks, alone
from kernelwright.judge.near_numbers import NEAR
from kernelwright.judge.singled import TAKEN
from kernelwright.judge.slices import ALONG, BLANK, COMMON, EMPTY, EQUAL
from kernelwright.judge.solved import TRAINED, small_differences
from kernelwright.judge.thresholds import AT
from kernelwright.judge.weights import ALIKE, CODES, EXPONENTS, FURTHER, OUTLYING, PRUNED, SIGNS, SIZES
from kernelwright.judge.whole import ADDED, EMPTIED, LINES
from kernelwright.task import Contract

if TYPE_CHECKING:
    from kernelwright.judge.instance import Instance

AS_GIVEN = "as given"
LIGHT, HEAVY = 5 * 10**7, 2 * 10**10
"""Multiply-adds of one call: below the first, floors are drawn freely; above the second, as few as possible."""
HUGE = 1 << 26
"""Elements that go in and out of one call, from where a variant costs a CPU 5 to 10 s of draws, float64, comparisons:
there the changes of value come mixed into one draw, of which the first that the reference accepts is taken."""
HUGE_NOTE = (
    f"huge calls (over {HUGE} elements): changes of value are judged mixed in one draw, and honest error is that of one"
)
TINY = 2 * 10**6
"""Multiply-adds of one call up to which a draw costs a few milliseconds, and more of them are made."""
_INTEGERS = ("uint8", "int8", "int16", "int32", "int64")
_FLOATS = ("float16", "bfloat16", "float32", "float64", "complex64", "complex128")
_CODED = Variant(name="largest codes", required=True, change="largest", fresh_weights=True, moved=CODES, draws=2)
"""Whole numbers, and codes of weights, most of which are the furthest from zero: sums of products by lot stay so far
below what they may be that nothing was cut off at 127, and who wrapped around there passed."""
CONSTANTS = "other constants"
NEVER_SPARED = (*TOGETHER, *fitted.DRAWS, "constants", "borders", "marks", "largest", *LINES, EMPTY)
"""Changes that a dear case has itself, though smaller ones had them: what never comes is easily left out of it. They
come one by one, in one draw: a border, or a number looked for, is one element among many, a sum that overflows needs
all of its terms large, and a reference that refuses an empty line would refuse all that is mixed with it."""
BY_LOT = 1
"""Of all other changes, which come mixed, those that come by themselves too: some show in a whole input alone."""
LEAVING = ("negated", "shifted", "far", "zero rows", "skewed", "mask rows")
"""Changes of value after which it is looked at what a call leaves: a largest without its abs() was right for numbers
that are never negative. And on the smallest other case: of 2^18 elements a running variance by n is one by n - 1."""
SPREAD = 20.0
"""A scale for exponentials: of normal logits 20 times as large as usual a softmax has probabilities of all sizes down
to 1e-13, 16 and more of each factor of 16. Of those 1000 times as large nearly all are 0 or 1, and who flushed what lay
below 1e-7 passed."""
NEARLY = (2.0**-18, 2.0**-10)
"""Shares of themselves by which two draws differ. A program that keeps its last answer while ``torch.allclose`` finds
no other input (1e-5 unless something is said) passes where inputs differ by more than that or not at all; 2^-18 of an
element moves a result by 10 and more of its roundings, 2^-10 one that is worse conditioned, or in half precision."""
_SEEDED = ("near-duplicate", "nearly", "rearranged", "zero rows", "held", "alone")
"""Changes that every draw makes to the same values, or in the same place."""
_OF_NUMBERS = ("", "masks", "held", "alone", "constants", "marks", "throughout", "near-duplicate", "rearranged",
                "skewed", "largest", "least", *LINES, *EMPTIED, EMPTY, EQUAL, COMMON, ALONG, NEAR, WAYS, LEVELS,
                comparisons.MET, RIGHT, AT, singled.CODES, *relations.CHANGES, *CHANGES, *TOGETHER)  # fmt: skip
"""Changes that make sense without any floating input."""


def offered(
    contract: Contract,
    specs: Sequence[TensorSpec],
    *,
    weights: bool,
    work: int,
    autocast: bool,
    hidden_seed: int,
    huge: bool = False,
    timed: bool = True,
    masked: bool = False,
    borders: Sequence[float] = (),
    marks: Marks = (),
    wraps: Marks = (),
    reach: float = 0.0,
    depth: float = 1.0,
    exponential: bool = False,
    constants: tuple[int, ...] = (),
    roots: Sequence[int] = (),
    exponents: Mapping[str, float] | None = None,
    sorts: bool = False,
    traits: Collection[str] = (),
    fits: Sequence[int] = (),
) -> list[Variant]:
    """The variants of a case, the task's own first; the reference has not been asked whether it accepts them.
    ``weights``: there are some, and they may change. ``timed``: it is raced. ``work``: multiply-adds of a call.
    ``huge``: over ``HUGE`` elements, on a CPU. ``masked``: some floating input is a mask that is added. ``borders``:
    where the answer jumps. ``marks``: by input, values that the reference looks for. ``wraps``: by input, whole numbers
    of which it takes a rest that they are not themselves. ``reach``: how many times as large values become that are
    compared with the furthest. ``depth``: how small, beside the smallest number that guards them against zero.
    ``exponential``: it has some. ``constants``: inputs of whole numbers (or flags) that are the same in every draw, and
    may be others. ``roots``: outputs that may have gradients. ``exponents``: weights that it takes an exponential of.
    ``sorts``: it does, or its answers are exact. ``traits``: see ``oracle``. ``fits``: inputs that are subtracted."""
    more = further(contract, reach, depth, exponential)
    many = functools.partial(mixed, contract, further=more, numbers=masked or _numbered(specs))
    wanted = _wanted(contract, specs, weights, work, hidden_seed, many, huge=huge, timed=timed, masked=masked)
    if autocast:  # precision is what it is about
        kept = [v for v in wanted if v.layout == "contiguous" and not v.moved and v.change in ("", "negated")]
        wanted = [v for v in kept if v.scale in (1.0, 1e-3)]
    dealt = [replace(v, seed=hidden_seed % 2**40) if v.change in _SEEDED else v for v in wanted]
    if small := not (huge or autocast or work > HEAVY):
        dealt += [Variant(name=f"scale {s:.3g}", required=True, scale=s) for s in more]
        dealt += extremes.drawn(specs, traits) if work <= LIGHT else []
        dealt += [*small_differences(specs, traits, work, weights=weights), *likeliest(specs, traits)]
        dealt += patterned.drawn(timed=timed, tiny=work <= TINY, light=work <= LIGHT, sorts=sorts, weights=weights)
        dealt += comparisons.drawn(specs, traits, light=work <= TINY) if work <= LIGHT else []
        dealt += singled.far_apart(specs, light=work <= LIGHT, sorts=sorts, traits=traits, weights=weights)
    dealt += fitted.drawn(specs, fits, work, (TINY, LIGHT, HEAVY)) if not (huge or autocast) else []
    if borders and small:
        on = Variant(name="on borders", required=True, change="borders", factors=tuple(borders), draws=2)
        dealt += [on, *(replace(on, name=level.NAME, strewn=level.LEVEL, draws=n) for n in [level.draws(specs)] if n)]
    dealt += [*singled.looked_for(marks, wraps), *_throughout(specs, marks, hidden_seed)] if small else []
    dealt += _exponents() if exponents and weights and small else []
    dealt += singled.rooted(roots, hidden_seed) if small and contract.gradients else []
    floats = any(spec.dtype in _FLOATS for spec in specs)
    if constants and not autocast:
        dealt.append(Variant(name=CONSTANTS, required=True, change="constants", constants=constants, draws=2))
    return [v for v in dealt if floats or (v.change in (*_OF_NUMBERS, TRAINED) and v.scale == 1.0)]


def _exponents() -> list[Variant]:
    """Weights that an exponential is taken of, moved; under the largest, inputs and weights that are equal."""
    kinds = {EXPONENTS: "", FURTHER: "", ALIKE: "one for all"}
    made = Variant(name="", required=True, fresh_weights=True)
    return [replace(made, name=f"weights as {how}", moved=how, change=change) for how, change in kinds.items()]


def further(contract: Contract, reach: float, depth: float, exponential: bool) -> tuple[float, ...]:
    """Scales beside those of the contract; for ``reach``, ``depth`` and ``exponential`` see ``offered``."""
    most, found = max(contract.scales, default=1.0), []
    if exponential and most > SPREAD:
        found.append(SPREAD)
    if reach > most > 1.0:  # a clamp that no usual scale meets could be left out
        found.append(2 * reach)
    if depth < min(contract.scales, default=1.0):  # an epsilon could be another one
        found.append(depth / 2)
    return tuple(found)


def mixed(
    contract: Contract, *, few: bool = False, further: tuple[float, ...] = (), numbers: bool = False
) -> list[Variant]:
    """All changes of value in one draw, a part of the rows each: for a case on which every draw is dear. ``few``: some
    of them, one row each, which a sample of the rows does not show. ``further``: more scales than the contract's.
    ``numbers``: there are whole numbers, or masks, which change too.

    In order of preference: the reference may not accept the larger scales, nor other numbers, nor anything larger or
    negative (a probability), nor zeros (a logarithm).
    """
    usual = tuple(scale for scale in contract.scales if scale != 1.0)
    beyond = [scale for scale in further if not min(contract.scales) <= scale <= max(contract.scales)]
    small = tuple(scale for scale in usual + further if scale < 1.0)
    dealt = [("", usual + further, MIXED), *([(", usual", usual, MIXED)] if beyond else []), (", small", small, MIXED)]
    last = [(", plain", (), MIXED), (", none larger", small, ("sparse", "zero rows")), (", scaled down", small, ())]
    name, change = ("a few odd rows", "strewn") if few else ("mixed rows", "mixed")

    def made(more: str, factors: tuple[float, ...], kinds: tuple[str, ...], *, numbers: bool) -> Variant:
        return Variant(
            name=f"{name}{more}", required=True, change=change, factors=factors, dealt=kinds, numbers=numbers
        )

    found = [made(*deal, numbers=numbers) for deal in (*dealt, *last)]
    as_given = [made(*deal, numbers=False) for deal in (dealt[0], *last)] if numbers else []
    return [*found, *(replace(v, name=f"{v.name}, numbers as given") for v in as_given)]


def mixed_of(instance: Instance, *, few: bool = False) -> list[Variant]:
    """The same for a case."""
    met = {name: instance.met[name] for name in ("reach", "depth", "exponential")}
    numbers = instance.masked or _numbered(instance.specs)
    return mixed(instance.contract, few=few, further=further(instance.contract, **met), numbers=numbers)


def _numbered(specs: Sequence[TensorSpec]) -> bool:
    """Whether some input holds whole numbers or flags."""
    return any(spec.dtype in ("bool", *_INTEGERS) and len(spec.shape) > 0 for spec in specs)


def shared_out(
    offered: Sequence[Variant], covered: Collection[str], contract: Contract, *, heavy: bool, dear: bool, seed: int
) -> tuple[list[Variant], list[Variant]]:
    """Those of a dear case that it has itself, and those that it is spared, since smaller cases had them (``covered``,
    by name) and here they come mixed into one. ``heavy``: the odd rows of that size are its own. ``dear``: so are new
    weights. ``seed``: decides which of the others it has all the same.
    """
    groups = {v.group for v in offered if v.group and v.name in covered}
    known = [v for v in offered if (v.name in covered or v.group in groups) and v.name != AS_GIVEN]
    once = {v.name: replace(v, draws=1) for v in known if v.special or (v.change in NEVER_SPARED and not v.moved)}
    once |= {v.name: v for v in known if v.constants}
    strange = (1.0, *contract.scales)
    once |= {v.name: v for v in known if not (v.change or v.group or v.scale in strange)}
    spared = [v for v in known if v.name not in once]
    spared = [v for v in spared if heavy or not v.fresh_weights or (dear and patterned.of_weights(v))]
    others = [v for v in spared if v.layout == "contiguous" and not (v.fresh_weights or v.apart)]
    others = [v for v in others if v.name in covered]
    if not any(v.change in TOGETHER for v in offered):  # there each draw costs seconds
        some = random.Random(seed).sample(others, min(BY_LOT, len(others)))
        once |= {v.name: replace(v, draws=min(v.draws, 2)) for v in some}
    spared = [v for v in spared if v.name not in once]
    return [once.get(v.name, v) for v in offered if v not in spared], spared


def accepted(offered: Sequence[Variant], usable: Callable[[Variant], bool]) -> tuple[str, tuple[int, ...]]:
    """How parameters may be moved (empty: not at all), and which constant inputs may be others."""
    how = next((v.moved for v in offered if v.moved and not v.change and usable(v)), "")
    return how, next((v.constants for v in offered if v.constants and usable(v)), ())


def stood_in_for(variant: Variant, taken: Sequence[Variant]) -> bool:
    """Whether it is one of several of which the first that the reference accepts is taken, and one was."""
    if variant.group:
        return any(other.group == variant.group for other in taken)
    return variant.change in TOGETHER and any(other.change == variant.change for other in taken)


def _wanted(
    contract: Contract,
    specs: Sequence[TensorSpec],
    weights: bool,
    work: int,
    hidden_seed: int,
    many: Callable[..., list[Variant]],
    *,
    huge: bool,
    timed: bool,
    masked: bool,
) -> list[Variant]:
    given = Variant(name=AS_GIVEN, required=True)
    sparser = Variant(name="sparser", required=True, change="sparser", fresh_weights=weights)
    if work > HEAVY or huge:  # each variant costs seconds of float64: one that is everything at once
        layout = next((name for name in contract.layouts if name != "contiguous"), "contiguous")
        if work > HEAVY:  # values that the task's own never have: or what these never need is left out at this size
            odd = many(few=hidden_seed % 3 > 0)
            odd = [replace(v, layout=layout, fresh_weights=weights) for v in odd]
            signs = [replace(v, name=f"{v.name}, weights of other {SIGNS}", moved=SIGNS) for v in odd if weights]
            return [given, *signs, *odd, sparser]
        return [given, replace(sparser, layout=layout), *many()]
    wanted = [given]
    wanted += _new_weights(often=timed and work <= LIGHT) if weights else []
    wanted += [v for s in contract.scales if s != 1.0 for v in _scaled(s)]
    wanted += [
        Variant(name="sparse", required=True, change="sparse", fresh_weights=weights),
        sparser,
        Variant(name="negated", required=True, change="negated"),
        Variant(name="shifted", required=True, change="shifted"),
        Variant(name="far from zero", required=True, change="far"),
        *_far_below(contract.scales),
        Variant(name="zero rows", required=True, change="zero rows"),
        *_blank(len(specs)),
        *_much_alike(),
    ]
    wanted += _outliers(contract.scales, work, timed) + singled.lines(specs, work)
    wanted += [*singled.differing(specs, contract.scales, work, weights=weights), *singled.twice(specs, contract)]
    wanted += [
        Variant(name=f"{layout} inputs", required=True, layout=layout)
        for layout in _layouts(contract, specs)
        if layout != "contiguous"
    ]
    if any(spec.dtype in _INTEGERS for spec in specs):
        draws = 4 if work <= LIGHT else 1  # of counts in half precision every second one is right by luck
        for change in ("skewed", "largest"):
            wanted.append(Variant(name=f"{change} whole numbers", required=True, change=change, draws=draws))
        wanted.append(Variant(name="rows of least whole numbers", required=True, change="least"))
        wanted += [*([_CODED] if weights else []), *singled.equal(specs, light=work <= LIGHT)]
    if len(specs) > 1 and any(s.dtype in ("bool", *_INTEGERS) and len(s.shape) > 1 for s in specs):
        wanted.append(Variant(name=EMPTY, required=True, change=EMPTY, draws=4 if work <= LIGHT else 2))
    wanted += singled.again(len(specs), hidden_seed, light=work <= LIGHT, tiny=work <= TINY)
    wanted += _apart(contract, specs, hidden_seed)
    wanted += _masks(specs, masked)
    if contract.random:
        wanted.append(Variant(name=ORDERED, required=True, change=ORDERED))
    if contract.special_values:
        draws = 6 if work <= TINY else 2
        wanted.append(Variant(name="special values", required=True, special=True, draws=draws))
    return wanted


def _masks(specs: Sequence[TensorSpec], masked: bool) -> list[Variant]:
    """Masks drawn anew, and such as have empty and full lines."""
    long = [sum(size > 1 for size in spec.shape) for spec in specs if spec.dtype == "bool"]
    drawn = [Variant(name="masks redrawn", required=True, change="masks")] if long or masked else []
    kinds = [lines for lines, least in zip(LINES, (0, 2, 3), strict=True) if max(long, default=-1) >= least]
    drawn += [Variant(name=f"empty and full {lines}", required=True, change=lines) for lines in kinds]
    drawn += [Variant(name=f"empty and full {lines}", required=True, change=lines) for lines in ADDED if masked]
    flags = [index for index, spec in enumerate(specs) if spec.dtype == "bool" and math.prod(spec.shape) > 1]
    for kind in EMPTIED if flags else ():  # one alone where the reference does not take all at once
        first = Variant(name=kind, required=True, change=kind, group=kind)
        one = [replace(first, name=f"{kind}, input {index} alone", held=index) for index in flags]
        drawn += [first, *(one if len(flags) > 1 else [])]
    return drawn


def _throughout(specs: Sequence[TensorSpec], marks: Marks, hidden_seed: int) -> list[Variant]:
    """Inputs of one value alone: the ends of whole numbers, and what is looked for."""
    numbers = [i for i, spec in enumerate(specs) if spec.dtype in _INTEGERS and math.prod(spec.shape) > 1]
    ways = alone(marks, numbers, random.Random(hidden_seed))
    return [
        Variant(name=f"one value throughout, {number}", required=True, change="throughout", marks=way)
        for number, way in enumerate(ways, 1)
    ]


def _scaled(scale: float) -> list[Variant]:
    """Values so many times as large, or as many times as the reference takes, which may have powers in it."""
    name = f"scale {scale:g}"
    if scale <= 1.0:
        return [Variant(name=name, required=True, scale=scale)]
    first = Variant(name=name, required=True, scale=scale, group=name)
    return [first, *(replace(first, name=f"scale {s:g}, the largest taken", scale=s) for s in TAKEN if s < scale)]


def _much_alike() -> list[Variant]:
    """Draws that differ in one element, at an end, in all by a little, and in the order of elements."""
    near = Variant(name="near-duplicate", required=True, change="near-duplicate", draws=2)
    ends = [replace(near, name=f"equal but for the {end}", strewn=end) for end in (near_ends.LAST, near_ends.END)]
    nearly = [replace(near, name=f"equal to {step:.0e}", change="nearly", factors=(step,)) for step in NEARLY]
    return [near, *ends, *nearly, replace(near, name="rearranged", change="rearranged")]


def _blank(inputs: int) -> list[Variant]:
    """Zero samples, channels, inputs; where there are several ``inputs``, rows of one that are those of another, and
    inputs that are another."""
    some = [Variant(name=name, required=True, change=name, draws=2) for name in BLANK]
    alike = [
        Variant(name="rows alike", required=True, change="rows alike", draws=2),
        Variant(name="one for all", required=True, change="one for all"),
    ]
    alike.append(Variant(name="one blank input", required=True, change="one blank input", draws=min(3 * inputs, 8)))
    return [*some, Variant(name="blank inputs", required=True, change="blank inputs"), *(alike if inputs > 1 else [])]


def _far_below(scales: tuple[float, ...]) -> list[Variant]:
    """All values of a row below what programs begin a maximum from, or pad with, instead of minus infinity: -10000 of
    a kernel in half precision. Normal numbers 1000 times as large never are, all of a row."""
    most = max(scales, default=1.0)
    return [Variant(name="far below zero", required=True, change="far", scale=-most)] if most > 1.0 else []


def _outliers(scales: tuple[float, ...], work: int, timed: bool) -> list[Variant]:
    """Few elements that are much larger, or as much as the reference takes."""
    most = max(scales, default=1.0)
    if most <= 1.0:
        return []
    # A softmax without its maximum fails where one is positive and all are where nobody looked: of a program that
    # looked at every second element that is one draw in five, and two draws let it pass two times in three. Small
    # cases beside the timed one are four at the least, and it is as wrong on each.
    draws = (24 if timed else 12) if work <= TINY else 6 if work <= LIGHT else 2
    first = Variant(name="outliers", required=True, change="outliers", group="outliers", factors=scales, draws=draws)
    fewer = [replace(first, name=f"outliers of {s:g}", factors=(s,), draws=min(draws, 4)) for s in TAKEN if s < most]
    return [first, *fewer]


def _new_weights(*, often: bool) -> list[Variant]:
    """Fresh ones, and moved in several ways, each where the reference accepts it."""
    fresh = Variant(name="fresh weights", required=True, fresh_weights=True)
    names = {
        SIGNS: "of other signs",
        SIZES: "of other sizes",
        PRUNED: "with zero rows",
        OUTLYING: "with outliers",
    }
    moved = [replace(fresh, name=f"weights {name}", moved=how) for how, name in names.items()]
    return [fresh, *moved, *patterned.weights(fresh, often=often)]


def _layouts(contract: Contract, specs: Sequence[TensorSpec]) -> list[str]:
    """Those of the contract; who takes any steps takes rows, and blocks of rows, that lie further apart than they are
    long: a slice of a batch, of channels, of a sequence."""
    dims = max((len(spec.shape) for spec in specs), default=0) if "strided" in contract.layouts else 0
    further = [*(["padded"] if dims > 1 else []), *(f"gap{axis}" for axis in range(dims - 2))]
    one = dims and not contract.mutates and any(layouts.expands(spec.shape, spec.dtype) for spec in specs)
    return [*contract.layouts, *further, *([layouts.EXPANDED] if one else [])]


def _apart(contract: Contract, specs: Sequence[TensorSpec], hidden_seed: int) -> list[Variant]:
    """Two inputs of several, each alone laid out oddly: against programs that look at another to see how all lie."""
    steps = [name for name in _layouts(contract, specs) if name in ("strided", "padded", "transposed")]
    lying = [index for index, spec in enumerate(specs) if len(spec.shape) > 0 and 0 not in spec.shape]
    if not steps or len(lying) < 2:
        return []
    dice = random.Random(hidden_seed)
    layout = dice.choice(steps)
    return [
        Variant(name=f"{layout} input {index} alone", required=True, layout=layout, seed=index, apart=True)
        for index in sorted(dice.sample(lying, 2))
    ]
