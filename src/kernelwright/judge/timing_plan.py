# SPDX-License-Identifier: Apache-2.0
"""How a case is timed: call sets, rounds and seconds, from its bytes, the cache it must outgrow and the budget."""

from __future__ import annotations

import math
import os
import re
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path

import torch

MOST_SETS = {"cpu": 64, "cuda": 256}
MOST_SET_BYTES = 1 << 30
"""Host memory one program may take for its call sets."""
DEVICE_PROGRAMS, DEVICE_CALLS, DEVICE_CONTEXTS = 6, 24, 5 << 30
"""What a race takes of a device's memory: for each of its programs (four baselines, the candidate and its next process)
the call sets, and the results of a window, which live until it is over; the values that are drawn for a round, and a
stack of them; so many times a call besides, for what programs hold inside and the judge in float64; and what contexts
take. On an H200 (140 GiB) eleven sets of an RMSNorm with 0.5 GiB in and out filled it, and so did five of a call that
takes and gives twice as much."""
DEVICE_FREE = 0.9
"""The part of it that a race may take."""
DEVICE_WINDOW_US = 6000.0
"""Least window on a device: the switch from one process's context to another's costs 50 to 100 us and is in it."""
LEAD = 3.0
"""A program this much faster than eager should still fill that window, where calls are work more than launches: the
switch scatters by as much as it costs. On an H200, windows of four calls that took eager 1,661 us each and its rivals
280 told their ratio, over 25 rounds, to 15 % either way."""
DEVICE_ROUNDS, DEVICE_SECONDS = 4, 2.0
"""So many times the rounds and seconds there: with five programs in the race, windows of five calls of 256 us on an
H200 scattered by 100 to 400 us, and twelve of them gave an interval of 6 % either way. Since a round takes a tenth of a
second and no longer four, twice the seconds are twenty rounds."""
LAUNCHES = ((100.0, 8),)
"""Calls below so many microseconds have at the most so many rounds a process on a device: they are launches more than
work, and processors differ by more than rounds tell. Of twelve proofs of kernels of 10 to 30 us on an H200, eight
rounds told the ratio to 4.5 % either way (median), thirty-five to 1.9 %; of a softmax of 90 us ten to 0.7 %. A program
of four launches counts as 33 us or as 55, by what else the host does, and each round of 256 calls takes 75 ms, of which
23 are timed."""
DEVICE_DRAWS = 0.02
"""Seconds of real draws in a round there at the most: recombined ones are made for all calls at once, and 256 real ones
of 0.3 ms each were a fifth of a round."""
ALONE_US = 2000.0
"""Calls this long are timed one to a window on a CPU: the walk before it makes the cache cold, and a second result
kept alive would make the allocator give pages back, which no loop of a user's does."""
SYSTEM = Path("/sys/devices/system/cpu")
FALLBACK_CACHE = 64 << 20
SLOW_CALL_US = 200_000.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Spend:
    """How much a level may cost."""

    least: int
    most: int
    seconds: float
    """Budget of the timed rounds, all programs together; ``least`` rounds are run whatever they cost."""
    full_checks: int
    """Timed calls compared in full against the oracle."""
    window_us: float
    """A window is not made longer than this by adding calls."""
    draw_seconds: float
    """What drawing the inputs of one round may cost."""


AHEAD = 1 / 32
"""Of a device's memory, for what a race draws before it and keeps until it is over: see ``ahead_bytes``."""
COARSE = Spend(least=5, most=9, seconds=0.35, full_checks=2, window_us=15_000.0, draw_seconds=0.02)
PRECISE = Spend(least=10, most=24, seconds=2.0, full_checks=4, window_us=60_000.0, draw_seconds=0.15)


@dataclass(frozen=True, slots=True, kw_only=True)
class TimingPlan:
    """What the race does with one case."""

    sets: int
    least: int
    most: int
    seconds: float
    full_checks: int
    draw_seconds: float
    """What drawing the inputs of one call may cost; where a real draw costs more, real draws are recombined."""
    flush_bytes: int
    """Bytes of unrelated memory walked before each window so that nothing it reads is left in a last-level cache."""
    wanted: int = 0
    """Call sets there would be, had other programs left room for them."""
    share: float = 0.0
    """Of a device's memory, what those take in a race; 0 on the host."""

    def ahead(self) -> int:
        """Rounds that are worth drawing for before the race: all, where few come after the least. What a proof of a
        small call drew in those was 6 % of its time alone on an H200."""
        return self.most if self.most <= 2 * self.least else self.least

    def words(self) -> tuple[str, ...]:
        """For the record."""
        short = f", for want of memory: there would be {self.wanted}" if self.sets < self.wanted else ""
        return (
            f"{self.sets} call sets per window{short}",
            f"cold cache: {self.flush_bytes >> 20} MiB walked before each",
        )


def plan(
    spend: Spend,
    *,
    call_bytes: int,
    call_us: float,
    cache_bytes: int,
    processes: int,
    device_bytes: int = 0,
    result_bytes: int | None = None,
    most_sets: int | None = None,
) -> TimingPlan:
    """The plan for calls of ``call_bytes`` (inputs, outputs and weights) that eager does in ``call_us``.

    On a host sets rotate until they exceed twice the cache; long calls need no crowd: their window is long enough
    already. ``device_bytes`` is the memory of a device with its own, 0 for the host; there, windows are at least
    DEVICE_WINDOW_US long, for a program that leads by LEAD where calls are work. More calls would make none of them
    colder: each set is used once after the cache was walked. With 256 of 50 us, which still did not exceed twice the
    cache of an H200, a judge gave 16.5 proofs a minute in Triton, without 18.9. ``result_bytes`` of a call are what it
    gives (None: not known), and ``most_sets`` were found to fit (None: nobody knows).
    """
    if device_bytes:
        window_us = DEVICE_WINDOW_US * (LEAD if call_us >= LAUNCHES[-1][0] else 1.0)
        wanted = max(2, math.ceil(window_us / max(call_us, 0.1)))
    else:
        wanted = 1 if call_us >= ALONE_US else math.ceil(2 * cache_bytes / max(call_bytes, 1))
    fits = _fit(device_bytes, call_bytes, result_bytes) if device_bytes else MOST_SET_BYTES // max(call_bytes, 1)
    crowd = max(1, int(spend.window_us / max(call_us, 0.1)))
    wanted = max(1, min(wanted, MOST_SETS["cuda" if device_bytes else "cpu"], fits, crowd))
    sets = min(wanted, most_sets or wanted)
    least = spend.least if call_us < SLOW_CALL_US else max(2, spend.least // 3)
    least_s = 0.2e-6 * call_us
    waits = bool(device_bytes) and call_us < SLOW_CALL_US
    most = math.ceil((DEVICE_ROUNDS if waits else 1) * spend.most / processes)
    if device_bytes:
        most = min([most, *(rounds for us, rounds in LAUNCHES if call_us < us)])
    return TimingPlan(
        sets=sets,
        least=max(1, math.ceil(least / processes)),
        most=max(1, most),
        seconds=(DEVICE_SECONDS if waits else 1.0) * spend.seconds / processes,
        full_checks=max(1, math.ceil(spend.full_checks / processes)),
        draw_seconds=max(
            (min(spend.draw_seconds, DEVICE_DRAWS) if device_bytes else spend.draw_seconds) / sets, least_s
        ),
        flush_bytes=2 * cache_bytes,
        wanted=wanted,
        share=_share(device_bytes, call_bytes, result_bytes, wanted),
    )


def tight(device_bytes: int, call_bytes: int) -> bool:
    """Whether one call of each of a race's programs takes more of a device than ``plan`` has for it: from 3.5 GiB in
    and out on an H200. It is raced and judged all the same, against fewer baselines, and no more is kept than must be.
    A softmax with 6 GiB in and 6 out, a file of KernelBench, took over 120 of its 140 GiB before."""
    return bool(device_bytes) and _fit(device_bytes, call_bytes, call_bytes // 2) < 1


def _each(call_bytes: int, result_bytes: int | None) -> int:
    """What one more call set takes of a device's memory, in all programs of a race."""
    results = call_bytes if result_bytes is None else result_bytes
    return DEVICE_PROGRAMS * (call_bytes + results) + 2 * max(call_bytes - results, 0)


def _share(device_bytes: int, call_bytes: int, result_bytes: int | None, sets: int) -> float:
    if not device_bytes:
        return 0.0
    taken = DEVICE_CONTEXTS + DEVICE_CALLS * call_bytes + sets * _each(call_bytes, result_bytes)
    return taken / (DEVICE_FREE * device_bytes)


def _fit(device_bytes: int, call_bytes: int, result_bytes: int | None) -> int:
    """How many call sets a race has room for on a device. Two are tried with a third of the room besides: in a window
    of one call nothing shows that a result is written where the last one was."""
    room = DEVICE_FREE * device_bytes - DEVICE_CONTEXTS
    each = _each(call_bytes, result_bytes)
    fits = int(max(room - DEVICE_CALLS * call_bytes, 0) // max(each, 1))
    return 2 if fits < 2 and room - DEVICE_CALLS / 3 * call_bytes > 2 * each else fits


@dataclass(frozen=True, slots=True)
class LastCache:
    """One last-level cache: its bytes, and those of our CPUs that share it."""

    size: int
    cpus: frozenset[int]


def cpu_cache_bytes(system: Path = SYSTEM, own: Collection[int] | None = None) -> int:
    """Bytes of all last-level caches that ``own`` CPUs have, or a safe guess where the kernel does not say."""
    return sum(cache.size for cache in last_caches(system, own)) or FALLBACK_CACHE


def last_caches(system: Path = SYSTEM, own: Collection[int] | None = None) -> tuple[LastCache, ...]:
    """The last-level caches of ``own`` CPUs (None: those this process may run on), each once; none where unknown.

    An EPYC has one for every eight cores or so, a machine with several sockets at least one in each.
    """
    sharers: dict[tuple[int, str, int], set[int]] = {}
    for cpu in sorted(os.sched_getaffinity(0) if own is None else own):
        found = [_cache(index) for index in (system / f"cpu{cpu}" / "cache").glob("index*")]
        level, size, shared = max(filter(None, found), default=(0, 0, ""))
        if size:
            sharers.setdefault((level, shared, size), set()).add(cpu)
    return tuple(LastCache(size, frozenset(cpus)) for (_, _, size), cpus in sharers.items())


def _cache(index: Path) -> tuple[int, int, str] | None:
    """(level, bytes, which CPUs share it in the kernel's words) of one cache, None where it says nothing of use."""
    try:
        level = int((index / "level").read_text())
        found = re.fullmatch(r"(\d+)([KMG]?)", (index / "size").read_text().strip())
    except (OSError, ValueError):
        return None
    if found is None:
        return None
    try:
        shared = (index / "shared_cpu_list").read_text().strip()
    except OSError:
        shared = ""  # then all that see this size are taken to share it
    return level, int(found[1]) << {"": 0, "K": 10, "M": 20, "G": 30}[found[2]], shared


def cache_bytes(device: torch.device) -> int:
    """Bytes of the last-level cache of a device."""
    if device.type == "cuda":
        return int(torch.cuda.get_device_properties(device).L2_cache_size)
    return cpu_cache_bytes()


def ahead_bytes(device: torch.device) -> int:
    """Bytes of a device for what a race draws before it, and keeps until it is over, beside other judges: AHEAD of its
    memory, or four times as much of what is free, if that is less; none on the host. On an H200 a proof had the device
    alone for 1.35 s, of which drawing took 0.11, and looking at odd calls at once 0.07."""
    if device.type == "cpu":
        return 0
    free, total = torch.cuda.mem_get_info(device)
    return int(min(total, 4 * free) * AHEAD)


def device_bytes(device: torch.device) -> int:
    """Memory of a device that has its own; 0 for the host."""
    return int(torch.cuda.get_device_properties(device).total_memory) if device.type == "cuda" else 0
