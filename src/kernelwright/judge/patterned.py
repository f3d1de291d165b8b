# SPDX-License-Identifier: Apache-2.0
"""How often inputs and weights come with a pattern that a few elements do not have (``almost``), and weights with rows
near one another, or large ones side by side."""

from __future__ import annotations

from dataclasses import replace

from kernelwright.judge.almost import REPEATED, SET, SORTED
from kernelwright.judge.beside_weights import BOTH_FAR, ROWS
from kernelwright.judge.inputs import Variant
from kernelwright.judge.slices import CANCELLING
from kernelwright.judge.weights import (
    ALIKE,
    AWAY,
    BELOW,
    CODES,
    EXPONENTS,
    FEW_OTHERS,
    FURTHER,
    NEIGHBOURS,
    OUTLYING,
    PATTERNED,
    PRUNED,
    REPLACED,
    SIZES,
    SLICED,
    ZEROED,
)

NAMES = {FEW_OTHERS: "almost as made", PATTERNED: "with a pattern", SLICED: "with slices of other sizes"}
TIMES = 2
"""Of the timed case there are so many of each, where that is cheap: each is one pattern of some ten, and a program that
looks at a few weights is wrong in one draw of two of the right one. With three of them, and
16 draws of inputs for 12, all tests took 22 minutes where they had taken 18, on a slower machine."""


def drawn(*, timed: bool, tiny: bool, light: bool, sorts: bool, weights: bool) -> list[Variant]:
    """Draws that have a pattern, all but a few elements, and where cheap such whose rows cancel. Of the timed case,
    ``tiny`` or ``light``, as many as there are patterns of a cube: files that were made elsewhere have no other case.
    ``sorts``: the reference does, and where it has ``weights``, it may be products with them that it sorts."""
    draws = (12 if timed else 4) if tiny else (9 if timed else 3) if light else 1
    wanted = {REPEATED: draws, SET: draws, **({SORTED: draws} if sorts else {})}
    wanted |= {CANCELLING: 2} if light else {}
    made = [Variant(name=change, required=True, change=change, draws=count) for change, count in wanted.items()]
    return [*made, *(_ranked() if sorts and weights else [])]


def weights(fresh: Variant, *, often: bool) -> list[Variant]:
    """``fresh`` weights that are as they were made, or have a pattern, all but a few elements; and inputs that have
    rows of them."""
    made = [replace(fresh, name=f"weights {name}", moved=how) for how, name in NAMES.items()]
    more = [replace(v, name=f"{v.name}, {number}") for number in range(2, 1 + TIMES) for v in made] if often else []
    far = replace(fresh, name=BOTH_FAR, change=BOTH_FAR, moved=AWAY)
    held = [replace(fresh, name=f"weights {how}", moved=how) for how in (ZEROED, REPLACED)]
    held += [replace(held[1], name=f"weights {REPLACED}, 2")] if often else []
    return [*made, *more, *held, *([far] if often else []), Variant(name=ROWS, required=True, change=ROWS, draws=2)]


def _ranked() -> list[Variant]:
    """Weights whose products are near one another, or the largest side by side, for a reference that ranks those."""
    fresh = Variant(name="fresh weights", required=True, fresh_weights=True)
    return [replace(fresh, name=f"weights with {how}", moved=how) for how in NEIGHBOURS]


def of_weights(variant: Variant) -> bool:
    """Whether it is one of several ways of having other weights, of which others cost as much and show more: where
    weights are dear (256 MB take over a second each time) cases smaller than that had them."""
    others = (
        SIZES,
        SLICED,
        PRUNED,
        OUTLYING,
        FEW_OTHERS,
        PATTERNED,
        CODES,
        EXPONENTS,
        FURTHER,
        ALIKE,
        BELOW,
        ZEROED,
        REPLACED,
    )
    return variant.moved in (*others, *NEIGHBOURS) or (variant.fresh_weights and variant.change == "sparse")
