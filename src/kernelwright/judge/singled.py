# SPDX-License-Identifier: Apache-2.0
"""Variants that single out one input, or one output: the others come again, have other factors, or no gradient."""

from __future__ import annotations

import math
import random
from collections.abc import Collection, Sequence
from dataclasses import replace

from kernelwright.judge import derived, selected, thresholds
from kernelwright.judge.buffers import TensorSpec
from kernelwright.judge.eight_bits import CODES
from kernelwright.judge.factors import BOTH, SIGNS, SIZES, SLICES
from kernelwright.judge.far import LANES, LEVELS, LINE, TIGHT, TRAVELS, WAYS, ZEROS
from kernelwright.judge.held_borders import HELD as HELD_BORDERS
from kernelwright.judge.inputs import Variant
from kernelwright.judge.marks import ROWS, RUNS, Marks
from kernelwright.judge.near_numbers import NEAR
from kernelwright.judge.near_points import CLOSE, POINTED
from kernelwright.judge.opposite import ABOVE, SIDES
from kernelwright.judge.relations import ENDS, HASHED, RELATED, STEEP
from kernelwright.judge.slices import ALONG, COMMON, EQUAL, ITSELF
from kernelwright.judge.weights import BELOW
from kernelwright.task import Contract

HELD = 3
"""Inputs at the most of which each comes again beside new values of the others."""
ALONE = 6
"""And, of more than two, of which each is new beside all the others again, where draws are cheap."""
TAKEN = (20.0, 4.0)
"""Scales for references that do not take the largest. The hyperbolic sine of normal numbers 1000 times as large is
infinite, and one that was clipped at -6 passed: nothing else came below the -4 that is drawn."""
RELATIONS = {RELATED: 10, HASHED: 3, ENDS: 2, STEEP: 1}
"""Draws of whole numbers that belong together, where a case is light: of six of the first none had two products nearly
alike in a quarter of all proofs."""
NEARLY = 8
"""Draws of whole numbers that are nearly alike, each one way by lot of four; of two inputs of one shape twice as many,
of six ways: by eight draws a loop of Euclid's that ends too early was granted in one of three runs of all cheats."""
FAR = 4
"""Draws of each way in which something has to travel far, where they are cheap."""
SLIGHT = 5 * 10**7
"""Multiply-adds up to which a call takes more draws of them."""
ROOTS = 3
"""Outputs at the most each of which is asked for gradients alone."""


def again(inputs: int, hidden_seed: int, *, light: bool, tiny: bool) -> list[Variant]:
    """Some inputs as they were, others new: who keeps an answer until one input is another is right as long as all
    change at once, and who forgets one of five inputs as long as two do. ``light``, ``tiny``: what a draw costs."""
    dice, most = random.Random(hidden_seed), HELD if light else 1
    held = sorted(dice.sample(range(inputs), min(inputs, most))) if inputs > 1 else []
    alone = sorted(dice.sample(range(inputs), min(inputs, ALONE if tiny else most))) if inputs > 2 else []
    found = [Variant(name=f"input {i} again", required=True, change="held", held=i, draws=2) for i in held]
    return found + [Variant(name=f"input {i} alone new", required=True, change="alone", held=i, draws=2) for i in alone]


def rooted(roots: Sequence[int], hidden_seed: int) -> list[Variant]:
    """Gradients of one output alone, as of whoever uses no other: the others hand None to who asked for that."""
    some = sorted(random.Random(hidden_seed).sample(roots, min(len(roots), ROOTS))) if len(roots) > 1 else []
    return [Variant(name=f"gradients of output {at} alone", required=True, roots=(at,)) for at in some]


def differing(specs: Sequence[TensorSpec], scales: Sequence[float], work: int, *, weights: bool) -> list[Variant]:
    """Values whose signs, and those of several inputs whose sizes, do not change together; ``opposite`` ones of several
    inputs, or beside ``weights``."""
    floats = sum(spec.dtype.startswith(("float", "bfloat", "complex")) for spec in specs)
    most = max(scales, default=1.0)
    found = [Variant(name=SIGNS, required=True, change=SIGNS)]
    if floats > 1:
        sides = Variant(name=SIDES, required=True, change=SIDES, draws=2 if work <= SLIGHT else 1, group=SIDES)
        found += _or_less(sides, most)
    if floats and weights:
        beside = Variant(name=ABOVE, required=True, change=ABOVE, group=ABOVE, fresh_weights=True, moved=BELOW)
        found += _or_less(beside, most)
    if floats < 2 or most <= 1.0:
        return found
    sizes = Variant(name=SIZES, required=True, change=SIZES, factors=(most,), draws=2, group=SIZES)
    return [*found, sizes, *(replace(sizes, name=f"{SIZES} up to {s:g}", factors=(s,)) for s in TAKEN if s < most)]


def _or_less(variant: Variant, most: float) -> list[Variant]:
    """It with numbers so many times as large, and less where the reference does not take that: a softmax of numbers
    below zero is that of a row with a zero in it until they are below -100."""
    less = [scale for scale in (*TAKEN, 1.0) if scale < most]
    made = [replace(variant, name=f"{variant.name}, scale {scale:g}", scale=scale) for scale in less]
    return [replace(variant, scale=max(most, 1.0)), *made]


def lines(specs: Sequence[TensorSpec], work: int) -> list[Variant]:
    """Lines that lie far up and down, slices along an axis by lot that have sizes of their own, and all codes of eight
    bits: as many draws of each as the multiply-adds of a call allow."""
    draws = {BOTH: 16 if work <= SLIGHT else 3, SLICES: 16 if work <= SLIGHT else 4}
    draws |= {CODES: 2} if any(spec.dtype.startswith("float8") for spec in specs) else {}
    draws |= dict.fromkeys(selected.CHANGES, 4 if work <= SLIGHT else 2) if selected.offered(specs) else {}
    return [Variant(name=name, required=True, change=name, draws=count) for name, count in draws.items()]


def equal(specs: Sequence[TensorSpec], *, light: bool) -> list[Variant]:
    """Whole numbers that are equal at some places of two inputs, where there are two of one shape and type, that two
    have in common anywhere, that are nearly the same, or that belong together."""
    found = [(spec.shape, spec.dtype) for spec in specs if "int" in spec.dtype and math.prod(spec.shape) > 1]
    wanted = {
        EQUAL: 2 * (len(set(found)) < len(found)),
        COMMON: 6 * (len(found) > 1),
        NEAR: (NEARLY * (1 + (len(set(found)) < len(found))) if light else 2) * bool(found),
        **{name: (draws if light else 1) * bool(found) for name, draws in RELATIONS.items()},
    }
    return [Variant(name=name, required=True, change=name, draws=draws) for name, draws in wanted.items() if draws]


def far_apart(
    specs: Sequence[TensorSpec], *, light: bool, sorts: bool, traits: Collection[str], weights: bool = False
) -> list[Variant]:
    """Inputs in which something has to travel far, where a reference that ``TRAVELS`` has planes, or rows of a few
    numbers, and such whose largest lie at a step, where it ``sorts``; all close to one where it is ``POINTED``. And
    what is by classes of its own (``derived``, beside other ``weights`` too), on borders in buffers, and by conditions
    (``thresholds``)."""
    travels, pointed = (trait in traits for trait in (TRAVELS, POINTED))
    floats = [spec.shape for spec in specs if spec.dtype.startswith(("float", "bfloat"))]
    deep = any(len(spec.shape) > 1 for spec in specs) or any("int" in spec.dtype for spec in specs)
    points = any(len(shape) > 1 for shape in floats)
    wanted = {WAYS: travels and deep, LEVELS: travels, LINE: travels and points}
    wanted |= dict.fromkeys((LANES, ZEROS, TIGHT), sorts and bool(floats)) | {CLOSE: pointed and bool(floats)}
    draws = FAR if light else FAR // 2
    found = [Variant(name=name, required=True, change=name, draws=draws) for name, fits in wanted.items() if fits]
    found += derived.drawn(specs, traits, light=light, anew=weights)
    if weights and HELD_BORDERS in traits and floats:
        held = Variant(name=HELD_BORDERS, required=True, change="borders", strewn=HELD_BORDERS, draws=2)
        found.append(replace(held, fresh_weights=True, moved=HELD_BORDERS))
    return [*found, *thresholds.drawn(specs, traits, light=light)]


def looked_for(marks: Marks, wraps: Marks) -> list[Variant]:
    """Values that are looked for, in some elements, in all of some rows and in runs, and those of which a rest is
    taken."""
    looked = Variant(name="values looked for", required=True, change="marks", marks=marks, draws=2)
    found = [looked, *(replace(looked, name=f"{how} of values looked for", strewn=how) for how in (ROWS, RUNS))]
    found = found if marks else []
    return [*found, *([replace(looked, name="values that wrap", marks=wraps)] if wraps else [])]


def twice(specs: Sequence[TensorSpec], contract: Contract) -> list[Variant]:
    """Where two inputs are of one shape and type: one that is another moved along, and one tensor for both. Not where
    inputs are written to, or have gradients, which are those of all its places then."""
    found = [(spec.shape, spec.dtype) for spec in specs if math.prod(spec.shape) > 1 and spec.dtype != "bool"]
    moved = Variant(name=ALONG, required=True, change=ALONG, draws=4)
    same = None if contract.gradients or contract.mutates else itself(specs)
    return [moved, *([same] if same else [])] if len(set(found)) < len(found) else []


def itself(specs: Sequence[TensorSpec]) -> Variant | None:
    """One tensor for all inputs of floats that are of one shape and type; None where no two are."""
    floats = [(spec.shape, spec.dtype) for spec in specs if spec.dtype.startswith(("float", "bfloat"))]
    floats = [kind for kind in floats if math.prod(kind[0]) > 1]
    return Variant(name=ITSELF, required=True, change="one for all") if len(set(floats)) < len(floats) else None
