# SPDX-License-Identifier: Apache-2.0
"""Where the results of a window lie, as the judge sees it: in which of its own regions, in whose way, in what order.

A program notes addresses and strides of its results (``fetch``), and the judge reads the bytes there, so a lie about
them only loses. Which addresses are the judge's own memory the kernel says (``/proc/PID/maps``): a program can
neither deny that it hands back an input, nor have a result written into pages that were never its own.
Linux, CPU memory.
"""

from __future__ import annotations

import array
import bisect
import functools
import itertools
import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from kernelwright.judge import skeletons
from kernelwright.judge.buffers import Buffers, TensorSpec

_MAPPING = re.compile(
    rb"^([0-9a-f]+)-([0-9a-f]+) \S+ ([0-9a-f]+) (\S+) ([1-9]\d*) *(/memfd:kernelwright\b)?", re.MULTILINE
)
"""First and last address, offset, device and inode of one mapping of a file, and whether it is the judge's memory."""


@dataclass(frozen=True, slots=True)
class Whereabouts:
    """What the addresses and strides of one window's results say."""

    aliases: tuple[tuple[int, int], ...]
    """(output leaf, input leaf) pairs that share storage in some call; gradients follow the outputs."""
    shared: frozenset[int]
    """Leaves whose memory belongs to the results of two calls: the later call overwrote what the earlier returned."""
    trespass: str
    """Which result lies in memory of the judge's that is no input of its call, or that two of the results' places are
    one piece of memory; empty for none."""
    strides: tuple[tuple[int, ...], ...]
    """Of every leaf of the last call, in elements."""
    together: frozenset[tuple[int, int]]
    """Pairs of outputs of one call, or an output and a gradient, that share memory: who writes to one of them changes
    the other. Gradients of a sum are one tensor, of which ``backward()`` makes copies."""
    results: tuple[Result, ...]
    """Those in memory of the program's own."""


@dataclass(frozen=True, slots=True)
class Result:
    """One leaf of one call, from its first byte to the one after its last."""

    call: int
    leaf: int
    start: int
    end: int


def look(pid: int, notes: bytes, buffers: Buffers, order: Sequence[int], wanted: Sequence[TensorSpec]) -> Whereabouts:
    """Compare the notes of the calls ``order`` with the memory map of process ``pid``, which stands still.

    ``notes`` have been accepted by ``fetch.read``; ``wanted`` are the leaves of one call: outputs, then gradients.
    """
    numbers = array.array("q", notes)
    results: list[Result] = []
    dense: list[Result] = []
    strides: list[tuple[int, ...]] = []
    at = 0
    for call in range(len(order)):
        strides = []
        for leaf, spec in enumerate(wanted):
            rank = len(spec.shape)
            address, steps = numbers[at], tuple(numbers[at + 1 : at + 1 + rank])
            at += 1 + rank
            strides.append(steps)
            if math.prod(spec.shape):
                span = 1 + sum((n - 1) * step for n, step in zip(spec.shape, steps, strict=True))
                end = address + span * skeletons.dtype(spec.dtype).itemsize
                results.append(Result(call, leaf, address, end))
                if span == math.prod(spec.shape):
                    dense.append(results[-1])
    maps = _maps(pid)
    own, aliases, trespass = _in_our_memory(maps, results, buffers, order)
    apart = tuple(result for result in results if result not in own)
    if _mapped_twice(maps, apart):
        trespass = trespass or "two places of its results are one piece of memory, which is mapped twice"
    one = frozenset(pair for pair in _together(dense) if pair[0] < len(buffers.plan.outputs))
    return Whereabouts(tuple(sorted(aliases)), _overlapping(apart), trespass, tuple(strides), one, apart)


def overwritten(windows: Sequence[Whereabouts]) -> frozenset[int]:
    """Leaves of results that share memory with those of another call, of windows whose results were alive at once."""
    results, calls = [], 0
    for window in windows:
        results += [replace(result, call=result.call + calls) for result in window.results]
        calls += 1 + max((result.call for result in window.results), default=0)
    return _overlapping(results)


def _in_our_memory(
    maps: bytes, results: Sequence[Result], buffers: Buffers, order: Sequence[int]
) -> tuple[set[Result], set[tuple[int, int]], str]:
    """Results that lie in memory of the judge's; which inputs they are; words for one that is none."""
    mappings = [mapping for mapping in _mappings(maps) if mapping.ours]
    outputs = len(buffers.plan.outputs)
    own: set[Result] = set()
    aliases: set[tuple[int, int]] = set()
    trespass = ""
    for result in results:
        found = next((m for m in mappings if result.start < m.high and m.low < result.end), None)
        if found is None:
            continue
        own.add(result)
        in_arena = found.inode == buffers.arena.inode
        here = buffers.locate(result.start - found.low + found.offset) if in_arena else None
        gradient = result.leaf >= outputs
        if here is not None and here.set == order[result.call] and here.kind == "input":
            aliases.add((result.leaf, here.position))
        elif here is None or here.set != order[result.call] or not gradient or here.kind != "incoming gradient":
            what = f"gradient {result.leaf - outputs}" if gradient else f"output {result.leaf}"
            trespass = trespass or f"{what} lies in memory of the judge that is no input of its call"
    return own, aliases, trespass


def _maps(pid: int) -> bytes:
    """The memory map of a process in the kernel's words; nothing once it is gone."""
    try:
        with open(f"/proc/{pid}/maps", "rb") as file:
            return file.read()
    except OSError:
        return b""


@dataclass(frozen=True, slots=True)
class _Mapping:
    """Addresses from ``low`` to ``high`` that show a file from ``offset`` on."""

    low: int
    high: int
    offset: int
    file: bytes
    inode: int
    ours: bool


@functools.lru_cache(maxsize=8)  # a program's map is often as it was: reading it took longer than to ask for it
def _mappings(maps: bytes) -> tuple[_Mapping, ...]:
    """Every mapping of a file or of shared memory, by address."""
    found = (match.groups() for match in _MAPPING.finditer(maps))
    return tuple(
        _Mapping(int(low, 16), int(high, 16), int(offset, 16), device + inode, int(inode), ours is not None)
        for low, high, offset, device, inode, ours in found
    )


def _mapped_twice(maps: bytes, results: Iterable[Result]) -> bool:
    """Whether results lie at two addresses of one file or shared memory: what is written to one would be in the other.

    Rows that are alike would cost one row, and whoever writes to such a result finds it changed elsewhere.
    """
    spans: list[list[int]] = []
    for result in sorted(results, key=lambda result: result.start):
        if spans and result.start <= spans[-1][1]:
            spans[-1][1] = max(spans[-1][1], result.end)
        else:
            spans.append([result.start, result.end])
    pieces: dict[bytes, list[tuple[int, int]]] = {}
    mappings = _mappings(maps) if spans else ()
    for start, end in spans:
        for mapping in mappings[max(0, bisect.bisect_right(mappings, start, key=lambda m: m.low) - 1) :]:
            if mapping.low >= end:
                break
            if start < mapping.high:
                at = mapping.offset - mapping.low
                pieces.setdefault(mapping.file, []).append((at + max(start, mapping.low), at + min(end, mapping.high)))
    return any(right[0] < left[1] for spots in pieces.values() for left, right in itertools.pairwise(sorted(spots)))


def _together(results: Iterable[Result]) -> frozenset[tuple[int, int]]:
    """Pairs of leaves without gaps that share memory within one call."""
    found: set[tuple[int, int]] = set()
    last: Result | None = None
    for result in sorted(results, key=lambda result: (result.call, result.start)):
        if last is not None and last.call == result.call and result.start < last.end:
            found.add((min(last.leaf, result.leaf), max(last.leaf, result.leaf)))
        if last is None or last.call != result.call or result.end > last.end:
            last = result
    return frozenset(found)


def _overlapping(results: Iterable[Result]) -> frozenset[int]:
    """Leaves of results that share memory with a result of another call."""
    found: set[int] = set()
    ordered = sorted(results, key=lambda result: result.start)
    ends: list[Result] = []
    for result in ordered:
        ends = [other for other in ends if other.end > result.start]
        for other in ends:
            if other.call != result.call:
                found |= {result.leaf, other.leaf}
        ends.append(result)
    return frozenset(found)
