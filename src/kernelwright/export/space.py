# SPDX-License-Identifier: Apache-2.0
"""From the shapes that were judged to the input space that may be served: no size outside what was tested.

A dimension is *free* where at least three sizes of it were judged; it may then take any size between the
smallest and the largest of them. Every other dimension must have one of the judged sizes. Dimensions that
were equal, or in a constant ratio, in every judged case must stay so.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from kernelwright.trial import Timed

ENOUGH_SIZES = 3
"""Distinct sizes from which a dimension counts as free."""


def proven_space(cases: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Pattern over the leaves of ``cases`` (each with ``inputs`` and ``state``: lists of leaf facts).

    Returns ``inputs`` and ``state`` (per leaf ``dtype`` and ``dims``, symbol numbers, and where the cases give it other
    than row by row ``lies``, shapes with strides, or ``expanded``, ``triangle``, where its matrices have numbers, or
    ``bond``, what held of its numbers in every draw; or ``values``), ``symbols`` (how many), ``tested`` (a row of sizes
    per case), ``free`` (symbols) and ``ties`` (i, j, up, down: size_i * up == size_j * down). Raises ValueError where
    there is no case, or cases disagree in structure.
    """
    if not cases:
        raise ValueError("no judged case to derive a proven space from")
    columns: dict[tuple[int, ...], int] = {}
    inputs = [_leaf(leaves, columns) for leaves in _aligned(cases, "inputs")]
    state = [_leaf(leaves, columns) for leaves in _aligned(cases, "state")]
    vectors = list(columns)
    free = [i for i, vector in enumerate(vectors) if len(set(vector)) >= ENOUGH_SIZES]
    return {
        "inputs": inputs,
        "state": state,
        "symbols": len(vectors),
        "tested": [list(row) for row in zip(*vectors, strict=True)],
        "free": free,
        "ties": _ties(vectors, free),
    }


def fixed_values(cases: Sequence[Mapping[str, Any]]) -> str:
    """What a proof takes as given: ``input 4 is 10``, of each number or text beside tensors; empty where all inputs are
    tensors. What ``optimized.py`` is called with another of there, the reference answers."""
    found: dict[int, list[str]] = {}
    for case in cases:
        for position, leaf in enumerate(case.get("inputs", ())):
            if "shape" not in leaf:
                found.setdefault(position, []).append(f"{leaf.get('value')!r:.60}")
    return ", ".join(f"input {position} is {' or '.join(dict.fromkeys(some))}" for position, some in found.items())


def _aligned(cases: Sequence[Mapping[str, Any]], part: str) -> list[tuple[Mapping[str, Any], ...]]:
    lists = [case.get(part, ()) for case in cases]
    if len({len(leaves) for leaves in lists}) > 1:
        raise ValueError(f"the cases have different numbers of {part}")
    return list(zip(*lists, strict=True))


def _leaf(seen: tuple[Mapping[str, Any], ...], columns: dict[tuple[int, ...], int]) -> dict[str, Any]:
    if any("shape" not in leaf for leaf in seen):
        if any("shape" in leaf for leaf in seen):
            raise ValueError("a leaf is a tensor in one case and a plain value in another")
        values: list[Any] = []
        for leaf in seen:
            if not any(type(leaf["value"]) is type(v) and repr(leaf["value"]) == repr(v) for v in values):  # nan, -0.0
                values.append(leaf["value"])
        return {"values": values}
    dtypes = {str(leaf["dtype"]).removeprefix("torch.") for leaf in seen}
    if len(dtypes) > 1 or len({len(leaf["shape"]) for leaf in seen}) > 1:
        raise ValueError("a leaf changes its dtype or rank between cases")
    vectors = zip(*(leaf["shape"] for leaf in seen), strict=True)
    found = {"dtype": dtypes.pop(), "dims": [columns.setdefault(tuple(v), len(columns)) for v in vectors]}
    given: list[Any] = []
    for leaf in seen:
        if "stride" in leaf and [leaf["shape"], leaf["stride"]] not in given:
            given.append([list(leaf["shape"]), list(leaf["stride"])])
    held = {part: sorted({leaf[part] for leaf in seen if part in leaf}) for part in ("triangle", "bond")}
    more = {"expanded": True} if seen[0].get("expanded") else {}
    return found | ({"lies": given} if given else {}) | more | {part: kinds for part, kinds in held.items() if kinds}


def by_vectors(outcome: Timed) -> bool:
    """Whether the proof is for inputs that begin, as their rows do, where vectors of 16 bytes do."""
    return any(case.name == "offset inputs" and not case.passed for case in outcome.proof.cases)


def _ties(vectors: Sequence[tuple[int, ...]], free: Sequence[int]) -> list[list[int]]:
    found = []
    for place, i in enumerate(free):
        for j in free[place + 1 :]:
            up, down = vectors[j][0], vectors[i][0]
            if all(a * up == b * down for a, b in zip(vectors[i], vectors[j], strict=True)):
                found.append([i, j, up, down])
    return found


def nesting(cases: Sequence[Mapping[str, Any]]) -> list[Any]:
    """How the arguments of the cases lie in tuples, lists and dicts (keys in their order), each way once.

    A case without a ``skeleton`` was called with nothing but leaves.
    """
    found: list[Any] = []
    for case in cases:
        one = _nest(case["skeleton"]) if "skeleton" in case else {"tuple": [None] * len(case.get("inputs", ()))}
        one = {"tuple": next(iter(one.values()))}  # the arguments of a call are a tuple, however they were listed
        if one not in found:
            found.append(one)
    return found


def _nest(skeleton: Mapping[str, Any]) -> Any:
    ((kind, body),) = skeleton.items()
    if kind in ("list", "tuple"):
        return {kind: [_nest(item) for item in body]}
    if kind == "named":
        return {"tuple": [_nest(item) for item in body[2]]}
    if kind in ("dict", "attributes", "pairs"):
        keys, items = body if kind == "pairs" else (list(body), list(body.values()))
        return {"dict": [list(keys), [_nest(item) for item in items]]}
    return None
