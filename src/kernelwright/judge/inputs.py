# SPDX-License-Identifier: Apache-2.0
"""Fresh inputs and weights under secret seeds: same shapes, dtypes, ranges and scale, never the same values."""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import math
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.random import mtrand

from kernelwright.judge import (
    almost,
    borders,
    dealing,
    eight_bits,
    factors,
    layouts,
    level,
    marks,
    near_ends,
    numerics,
    slices,
    specials,
    whole,
)
from kernelwright.judge.dealing import Dice, below

FLOATS = (torch.float16, torch.bfloat16, torch.float32, torch.float64)
ORDERED = "in order"
"""Every tensor of floats sorted as a whole, for references with random answers: what lies side by side is alike, so a
roll by a random distance is no random order any more, which it is of independent numbers, number by number."""
SPARSE_KEPT = {"sparse": 32, "sparser": 2}
"""Elements a row keeps, about: no order of summation has much to add up, so lower precision has nowhere to hide.

Few enough that rounding them does not average out in a reduction over all rows; two, because norms hide one.
"""
ADDED = {"shifted": 2.0, "far": 24.0}
"""What they add, in sizes (RMS) of the tensor: the first leaves the range of what was positive, the second makes the
mean large against the spread. There E[x^2] - E[x]^2 cancels: in a norm of 256 to 8192 elements it errs
by 3.3 times the honest error and more (at 8 sizes 1.1 and more, so it passed now and then), in a variance by over 100
times. Welford's stays within 1.0 in 8 lanes, within 1.6 in one; of a variance what that one
errs by is in the honest error (``centred``).
"""
LOTS = 5
"""Draws in which a reference must accept what another draw may make too large."""
OF_ONE = ("near-duplicate", "nearly", "rearranged", "held", "alone")
"""Changes of which every draw begins with the same values."""
MIXED = ("negated", factors.SIGNS, "shifted", "far", "sparse", "zero rows", "outliers")
"""Changes of parts of the rows of one draw."""
_OF_MASKS = ("masks", *whole.LINES, *whole.EMPTIED)
LARGE_BYTES = 1 << 30
"""Of the inputs of a call on a device; see ``narrower``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Variant:
    """One way of drawing inputs and weights for a case."""

    name: str
    required: bool
    """False: a probe outside the contract."""
    scale: float = 1.0
    """Factor on floating inputs."""
    layout: str = "contiguous"
    """``contiguous`` (as the task gives them), ``strided``, ``padded``, ``gap0``, ``transposed`` or ``offset``."""
    fresh_weights: bool = False
    """Load ``draw_state`` weights into the constructed candidate before these calls."""
    special: bool = False
    """NaN, +-Inf, -0.0 and denormals sown into the floating inputs."""
    change: str = ""
    """``negated``, ``shifted``, ``far``, ``outliers``, ``sparse``, ``sparser``, ``zero rows``, ``near-duplicate``,
    ``nearly``, ``mixed``, ``strewn``, ``borders``, ``marks``, ``throughout``, ``rearranged``, ``blank samples``,
    ``blank channels``, ``blank inputs``, ``rows alike``, ``one for all``, ``empty samples``, ``masks``,
    ``whole.LINES``, ``whole.EMPTIED``, ``skewed``, ``largest``, ``least``, ``held``, ``alone``, ``factors.SIGNS``,
    ``factors.SIZES``, ``factors.SLICES``, ``factors.BOTH``, ``beside_weights.ROWS``, one of ``slices.CHANGES``,
    ``almost.CHANGES`` or ``fitted.DRAWS``, ``solved.CHANGES``, or nothing."""
    factors: tuple[float, ...] = ()
    """Scales that ``mixed`` and ``strewn`` deal to rows (the largest is also that of ``outliers``), ``borders``, or by
    what share of itself an element is ``nearly`` what it was."""
    draws: int = 1
    """Calls worth making: near-duplicates mean nothing alone."""
    seed: int = 0
    """Base of near-duplicates, place of zero rows, and which input is the ``apart`` one; the caller's seed decides
    everything else."""
    dealt: tuple[str, ...] = MIXED
    """What ``mixed`` and ``strewn`` deal to rows beside ``factors``."""
    numbers: bool = False
    """``mixed`` or ``strewn``, it changes whole numbers and masks too."""
    strewn: str = ""
    """How ``strewn`` changes are dealt: ``rows`` (one for each change), ``few`` (some changes only), ``spots`` (of each
    row a few elements), ``ends`` (two elements in all are outliers, one up and one down); empty: by lot. ``level``:
    ``borders`` are rows of one number. Of near-duplicates, at which end these differ (``near_ends``)."""
    held: int = -1
    """Of ``held`` draws, the input that is the same in all of them; of those that change one ``alone``, that one; of
    ``whole.EMPTIED``, the one that is emptied."""
    apart: bool = False
    """One of several inputs alone has the layout; the others lie as the task gives them."""
    constants: tuple[int, ...] = ()
    """Inputs of whole numbers, the same in every draw, that are others in this one (``whole.renumbered``)."""
    moved: str = ""
    """Of fresh weights, which parameters are moved, as training does: see ``weights.moved``."""
    marks: marks.Marks = ()
    """By input, values that the reference looks for in it, of which some come, or one ``throughout``."""
    roots: tuple[int, ...] = ()
    """Outputs that are asked for gradients alone; the others get none. Empty: all that can have some."""
    group: str = ""
    """Of several with this name the first is taken that the reference accepts."""

    def lots(self) -> int:
        """In how many draws to ask whether a reference accepts it: an outlier of a probability is one in a draw of
        twenty, and the next one raises. Nor do draws of factors meet alike in two inputs."""
        if self.change in (factors.SIGNS, factors.SIZES):
            return LOTS
        return min(self.draws, LOTS) if self.change == "outliers" else 1

    @property
    def beyond(self) -> bool:
        """Whether answers may be infinite or NaN: values are that the contract, or the reference itself, asks for."""
        asked = () if self.change == "throughout" else self.marks
        return self.special or not all(math.isfinite(value) for _, values in asked for value in values)


_SPARE: list[np.random.MT19937] = []
"""Generators for numpy that no ``seeded`` uses now; a new one takes 0.2 ms."""


@contextlib.contextmanager
def seeded(seed: int) -> Iterator[None]:
    """Python, numpy and torch generators (every device in use) start from ``seed`` inside, and are restored after.

    ``torch.manual_seed`` and ``fork_rng`` also queue calls for devices nobody uses, at 2 ms each time. numpy has
    another generator inside: to read the state of its own and write it back took 0.25 ms, for draws of 0.1 ms.
    """
    python_state, torch_state = random.getstate(), torch.get_rng_state()
    before, own = mtrand.get_bit_generator(), _SPARE.pop() if _SPARE else np.random.MT19937()
    devices = torch.cuda.is_initialized()
    cuda_states = torch.cuda.get_rng_state_all() if devices else []
    random.seed(seed)
    seed = mixed(seed)
    mtrand.set_bit_generator(own)
    np.random.seed(seed % 2**32)
    torch.default_generator.manual_seed(seed)
    if devices:
        torch.cuda.manual_seed_all(seed)
    try:
        yield
    finally:
        random.setstate(python_state)
        mtrand.set_bit_generator(before)
        _SPARE.append(own)
        torch.set_rng_state(torch_state)
        if devices:
            torch.cuda.set_rng_state_all(cuda_states)


def generator(seed: int, device: torch.device | str) -> torch.Generator:
    """A private generator on a device."""
    if torch.device(device).type == "cpu":
        return torch.Generator().manual_seed(mixed(seed))
    return Dice(device=device).sown(mixed(seed))


def mixed(seed: int) -> int:
    """63 bits that all depend on all bits of the seed: torch and numpy look at the low 32 only."""
    return int.from_bytes(hashlib.blake2b(str(seed).encode(), digest_size=8).digest(), "big") >> 1


def size_of(values: torch.Tensor) -> float:
    """Root mean square of the finite elements, of both parts of complex ones, 1.0 where all are zero or none."""
    finite = numerics.wide(values)
    finite = finite[torch.isfinite(finite)]
    found = float(finite.square().mean().sqrt()) if finite.numel() else 0.0
    return found if found > 0 and math.isfinite(found) else 1.0


def narrower(offered: Sequence[Variant]) -> list[Variant]:
    """Of inputs of LARGE_BYTES and more on a device, rows a little apart in place of steps of two: of 6 GiB these would
    take as much again in the judge, in the memory it shares, and in a program that copies them."""
    names, found = {variant.name for variant in offered}, list[Variant]()
    for variant in offered:
        padded = dataclasses.replace(variant, name=variant.name.replace("strided", "padded"), layout="padded")
        if variant.layout != "strided":
            found.append(variant)
        elif padded.name == variant.name or padded.name not in names:
            found.append(padded)
    return found


def layout_for(variant: Variant, index: int, count: int) -> str:
    """The layout of one of ``count`` inputs."""
    return "contiguous" if variant.apart and index != variant.seed % max(count, 1) else variant.layout


def masked(leaves: Sequence[torch.Tensor]) -> bool:
    """Whether one of them is a mask that is added."""
    return any(whole.is_mask(leaf) or whole.far(leaf) for leaf in leaves)


def laid_out(leaves: Sequence[torch.Tensor], variant: Variant) -> list[torch.Tensor]:
    """All inputs of a call in the layouts of a variant."""
    return [layouts.lay_out(leaf, layout_for(variant, index, len(leaves))) for index, leaf in enumerate(leaves)]


def change_leaves(leaves: list[torch.Tensor], variant: Variant, seed: int, sorts: bool = False) -> list[torch.Tensor]:
    """Apply the variant's change, scale and special values to fresh leaves; layouts come last, elsewhere. ``sorts``:
    what is sorted stays so, for the reference searches in it."""
    given, leaves, out = leaves, list(map(slices.real, leaves)), []
    sparse_at = _sparse_leaf(leaves, seed) if variant.change in SPARSE_KEPT else -1
    if variant.change == "zero rows":
        sparse_at = _sparse_leaf(leaves, variant.seed)
    for index, leaf in enumerate(leaves):
        rng = generator(seed * 1_000_003 + index, leaf.device)
        lot = generator(seed, leaf.device)  # the same for all of them
        leaf = _change_numbers(leaf, index, variant, rng, lot, seed + index)
        if leaf.dtype in FLOATS and leaf.numel():
            if variant.change in dealing.TOGETHER:
                changed = _dealt(leaf, variant, rng, lot)
            else:
                changed = _change_floats(leaf, variant, rng, sparse=index == sparse_at)
            leaf = changed if variant.beyond or changed is leaf or numerics.finite(leaf) else _as_masked(leaf, changed)
        out.append(leaf)
    if variant.change in slices.CHANGES:
        kinds = [leaf.dtype for leaf in out]
        wider = [leaf.float() if numerics.tiny(leaf) else leaf for leaf in out]
        wider = slices.CHANGES[variant.change](wider, generator(seed, leaves[0].device))
        out = [leaf.to(kind) for leaf, kind in zip(wider, kinds, strict=True)]
    out = list(map(whole.in_order, leaves, out)) if sorts else out
    out = list(map(whole.in_place_of, leaves, out))
    out = list(map(whole.kept_apart, leaves, out))
    return list(map(slices.again, given, out))


def _change_numbers(
    leaf: torch.Tensor, index: int, variant: Variant, rng: torch.Generator, lot: torch.Generator, number: int
) -> torch.Tensor:
    """What becomes of whole numbers and masks, and of whatever changes by changing places."""
    leaf = whole.renumbered(leaf, rng) if index in variant.constants else leaf
    leaf = eight_bits.changed(leaf, variant.change, variant.special, rng)
    if leaf.dtype is torch.bool and variant.change in _OF_MASKS and leaf.numel() and variant.held in (-1, index):
        leaf = whole.redrawn_booleans(leaf, rng, variant.change if variant.change != "masks" else "")
    elif variant.change in ("masks", *whole.ADDED) and whole.is_mask(leaf):
        leaf = whole.redrawn(leaf, rng, variant.change)
    elif variant.change == "rearranged":
        leaf = whole.swapped(leaf, rng)
    elif variant.change in almost.CHANGES:
        leaf = almost.changed(leaf, variant.change, number, rng)
    elif variant.change == "marks":
        leaf = marks.planted(leaf, dict(variant.marks).get(index, ()), rng, variant.strewn)
    elif variant.change == "throughout":
        leaf = marks.throughout(leaf, dict(variant.marks).get(index, ()))
    elif variant.change in ("held", "alone") and (index == variant.held) is (variant.change == "alone"):
        leaf = whole.moved(leaf, rng)
    elif variant.numbers and (leaf.dtype in (torch.bool, *whole.INTEGERS) or whole.is_mask(leaf)):
        leaf = dealing.numbers(leaf, variant.change, rng, lot, variant.strewn)
    elif leaf.dtype in whole.INTEGERS and variant.change in whole.CHANGES:
        leaf = whole.CHANGES[variant.change](leaf, rng)
    return leaf


def _as_masked(leaf: torch.Tensor, changed: torch.Tensor) -> torch.Tensor:
    """A changed leaf that holds infinities (or NaN), which stay what and where they are: negated or multiplied by zero
    they would make NaN of every result. One of nothing but zeros besides is a mask, no numbers, and stays whole."""
    finite = torch.isfinite(leaf)
    return torch.where(finite, changed, leaf) if bool((finite & (leaf != 0)).any()) else leaf


def _sparse_leaf(leaves: list[torch.Tensor], seed: int) -> int:
    """Which floating leaf is thinned out: one of those with rows, by the seed; only one, or products would vanish. A
    mask that adds -inf only where there is no other."""
    rows = [i for i, leaf in enumerate(leaves) if leaf.dtype in FLOATS and leaf.dim() >= 1 and leaf.numel() > 8]
    rows = [i for i in rows if numerics.finite(leaves[i])] or rows
    return rows[seed % len(rows)] if rows else -1


def _changes(variant: Variant) -> list[dealing.Change]:
    """What ``mixed`` and ``strewn`` do to rows."""
    changes = [Variant(name="", required=True, change=name, factors=variant.factors) for name in variant.dealt]
    changes += [Variant(name="", required=True, scale=factor) for factor in variant.factors]

    def of(change: Variant) -> dealing.Change:
        return lambda part, rng: _change_floats(part, change, rng, sparse=True)

    return list(map(of, changes))


def _dealt(leaf: torch.Tensor, variant: Variant, rng: torch.Generator, lot: torch.Generator) -> torch.Tensor:
    """Floats of which parts, or a few rows, have changes of their own."""
    factor = max(variant.factors, default=1.0)
    if variant.change == "mixed":
        return dealing.mixed(leaf, _changes(variant), rng, lot)
    if variant.strewn != "ends" or factor <= 1.0 or leaf.dim() == 0:
        return dealing.strewn(leaf, _changes(variant), rng, variant.strewn)
    if below(2, rng):
        return factors.outlier(leaf, rng)
    leaf = leaf.clone(memory_format=torch.contiguous_format)
    for end in torch.aminmax(leaf):
        leaf.view(-1)[int(torch.randint(leaf.numel(), (), generator=rng, device=leaf.device))] = end * factor
    return leaf


def _zero_rows(leaf: torch.Tensor, rng: torch.Generator) -> torch.Tensor:
    """One row in eight, and one at least, exactly zero, and of as many a single element: the gradient of a product of
    a row is that of the others there, and who divides the product by the element has nothing left."""
    leaf = leaf.clone(memory_format=torch.contiguous_format)
    rows = leaf.view(-1, leaf.shape[-1]) if leaf.dim() > 1 else leaf.view(-1, 1)
    drawn = torch.rand(rows.shape[0], generator=rng, device=leaf.device)
    rows[drawn <= max(1 / 8, float(drawn.min()))] = 0.0
    single = torch.nonzero(drawn >= min(7 / 8, float(drawn.max())))[:, 0]
    rows[single, torch.randint(rows.shape[1], single.shape, generator=rng, device=leaf.device)] = 0.0
    return leaf


def _change_floats(leaf: torch.Tensor, variant: Variant, rng: torch.Generator, *, sparse: bool) -> torch.Tensor:
    if variant.change == "negated":
        leaf = -leaf
    elif variant.change in ADDED:
        leaf = leaf + ADDED[variant.change] * size_of(leaf)
    elif variant.change in _BY_FACTOR:
        leaf = _BY_FACTOR[variant.change](leaf, max(variant.factors, default=1.0), rng)
    elif variant.change == "borders":
        even = variant.strewn == level.LEVEL
        leaf = level.levelled(leaf, rng) if even else borders.planted(leaf, variant.factors, rng)
    elif variant.change == ORDERED:
        leaf = leaf.flatten().sort().values.reshape(leaf.shape)
    elif variant.change == "zero rows":
        leaf = _zero_rows(leaf, rng) if sparse else leaf
    elif sparse and variant.change in SPARSE_KEPT:
        leaf = _thin(leaf, SPARSE_KEPT[variant.change], rng)
    elif variant.change == "near-duplicate" and variant.strewn:
        leaf = near_ends.replaced(leaf, variant.strewn, variant.seed, rng)
    elif variant.change == "near-duplicate":
        leaf = leaf.clone(memory_format=torch.contiguous_format)
        at = int(torch.randint(leaf.numel(), (1,), generator=rng, device=leaf.device))
        leaf.view(-1)[at] = _far_from(float(leaf.view(-1)[at]), leaf)
    if variant.scale != 1.0:
        leaf = leaf * variant.scale
    if variant.special:
        leaf = specials.sow(leaf, rng)
    return leaf


def nudged(leaf: torch.Tensor, step: float, rng: torch.Generator) -> torch.Tensor:
    """Every element larger or smaller by up to ``step`` times itself: close to what it was, and not equal. None leaves
    the range of all: some references refuse a probability above 1, in a draw that happens to have one close to it."""
    times = 1.0 + step * (2.0 * torch.rand(leaf.shape, generator=rng, device=leaf.device) - 1.0)
    return (leaf * times.to(leaf.dtype)).clamp(*torch.aminmax(leaf))


_BY_FACTOR = {
    "outliers": factors.outlying,
    "nearly": nudged,
    factors.SIGNS: factors.signed,
    factors.SIZES: factors.sized,
    factors.SLICES: factors.sliced,
    factors.BOTH: factors.both_ways,
    factors.CONDITION: factors.squeezed,
    factors.ALIKE: factors.alike,
}


def _far_from(value: float, leaf: torch.Tensor) -> float:
    """The end of the leaf's range that lies further off, so the domain is kept; past it where all are equal."""
    finite = leaf[torch.isfinite(leaf)]
    low, high = (float(finite.min()), float(finite.max())) if finite.numel() else (0.0, 0.0)
    if low == high:
        return value + 8 * size_of(leaf)
    return high if value - low < high - value else low


def _thin(leaf: torch.Tensor, kept: int, rng: torch.Generator) -> torch.Tensor:
    """About ``kept`` elements of every row (at most one in eight) and at least one; the rest exactly zero."""
    last = leaf.shape[-1]
    share = min(kept / last, max(1 / 8, 2 / last), 1.0)
    mask = torch.rand(leaf.shape, generator=rng, device=leaf.device) < share
    one = torch.randint(last, (*leaf.shape[:-1], 1), generator=rng, device=leaf.device)
    mask.scatter_(-1, one, True)
    return leaf.masked_fill(~mask, 0.0)
