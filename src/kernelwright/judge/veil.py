# SPDX-License-Identifier: Apache-2.0
"""Inputs on a device that a program sees only while its calls run, and a device that is idle when it has stopped.

A program that stands still leaves a device running: what it launched goes on. And what it does once it said done costs
it only what an honest delivery does not take, which copies the outputs and spoils them: three times their bytes, in
which a pointwise kernel can be run as well. On an H200 one that ran 45 % of its calls then was granted 6.6 for its
honest twin's 3.8, and one that left a warp spinning beside the baselines, which share the device by slices of time,
20.4 for 5.6.

So one word of STEP of every input is another, by a secret key, from when the inputs are written until right before the
calls, and again from the word that these are done until they are delivered: a result that is computed ahead, or later,
is wrong there. The key is another each time, and so are the words, or a program could take it off, or keep what they
hold: one that had seen which they are mended them, for 18.5 times eager's speed where its honest twin had 10.6. Both
take the device, so that what still runs on it is part of the delivery's time; and where the device stays busy beside a
program that is stopped, and does not once it is killed, its work was left behind.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Collection, Iterator, Sequence

import torch

from kernelwright.judge.buffers import Buffers

STEP, LEAST = 509, 8
"""Every so many words of four bytes one is hidden, and of small inputs so many at the least: 1 of 64 sectors of 32
bytes, so that lifting it warms next to nothing."""
BUSY_US, LOOKS = 1000.0, 5
"""A kernel on an H200 takes 12 to 40 us to be launched and waited for, 280 after a rest, and 2,370 beside another
process's kernel, which holds the device for a slice of time. And how often in a row it must take that long."""
REST_SECONDS = 3.0
"""What another judge's program left running ends in this time, or with that program."""

DELAYS = 4.0
"""How many times as long as the last call took to be enqueued, and read, a stream is held up for the next one."""
DELAY_S = 0.1e-3, 2e-3, 20e-3
"""Least, first and most of it, in seconds. A program that waits for its device inside a call waits that long too."""
SLEEP_HZ = 2.0e9
"""Cycles a second of the kernel that sleeps, at most: an H200 has 1.98e9."""


def words_of(buffers: Buffers, kind: str, position: int) -> torch.Tensor:
    """One region of every call set as (sets, words) of four bytes, or bytes where it has fewer; what is left is not in
    it. ``kind`` and ``position`` as ``Buffers.across`` takes them."""
    specs = {"input": buffers.plan.inputs, "output": buffers.plan.outputs}
    spec = specs[kind][position] if kind in specs else buffers.plan.gradients[position][1]
    flat, size = buffers.arena.tensor, spec.nbytes()
    assert flat is not None, "the arena is closed"
    across = buffers.across(kind, position)
    wide, unit = across.element_size(), 4 if size >= 4 else 1
    start, apart = (across.storage_offset() - spec.offset) * wide, across.stride(0) * wide
    values = flat.view(torch.int32) if unit == 4 else flat
    return values.as_strided((buffers.plan.sets, size // unit), (apart // unit, 1), start // unit)


class Words:
    """Views of the words of all inputs that are hidden, sets first; ``first`` says which. Not of inputs that
    results lie in: ``shown`` has pairs of such an output and its input."""

    def __init__(self, buffers: Buffers, shown: Collection[tuple[int, int]], first: int) -> None:
        self._words = []
        for position, spec in enumerate(buffers.plan.inputs):
            if not spec.nbytes() or any(source == position for _, source in shown):
                continue
            every = words_of(buffers, "input", position)
            step = max(1, min(STEP, every.shape[1] // LEAST))
            self._words.append(every[:, first % step :: step])

    def __iter__(self) -> Iterator[torch.Tensor]:
        """The views, (sets, words) each."""
        return iter(self._words)

    def keys(self) -> list[torch.Tensor]:
        """Room for a key to each view."""
        return [torch.empty(words.shape, dtype=words.dtype, device=words.device) for words in self._words]

    def turn(self, keys: Sequence[torch.Tensor]) -> None:
        """Make them others by ``keys``, or what they were again; enqueued, not waited for."""
        for words, key in zip(self._words, keys, strict=True):
            words.bitwise_xor_(key)

    def invert(self, sets: Sequence[int]) -> None:
        """The same without a key, of some call sets alone."""
        for words in self._words:
            for index in sets:
                words[index].bitwise_not_()


class Delay:
    """Holds a stream up until a call's work and the copies of its results are enqueued, so that what nobody waits for
    begins no sooner than those copies do.

    What a program computes on a stream that the current one does not wait for is late by as long as it takes only if
    the host comes to copy at once. In 0.1 ms, on a host that runs four judges, it does not: a scan on such streams was
    granted 4.6 there, and refused alone. So the stream sleeps for as long as the host is seen to take.
    """

    def __init__(self) -> None:
        self._began, self._seconds = 0.0, DELAY_S[1]

    def begin(self) -> None:
        """Let the current stream sleep, before what the program waits for is enqueued on it."""
        self._began = time.monotonic()
        torch.cuda._sleep(int(SLEEP_HZ * self._seconds))

    def end(self) -> None:
        """The copies are enqueued. Who took longer than the stream slept has waited for it, as far as is known."""
        least, _, most = DELAY_S
        host = time.monotonic() - self._began
        own = host if host < self._seconds else host - self._seconds
        self._seconds = min(max(DELAYS * own, least), most)


class Veil:
    """The judge's side of it, for one program; on a CPU, and without ``shown``, nothing is ever hidden."""

    def __init__(self, device: str) -> None:
        self._device = device
        self._over: tuple[Buffers, Collection[tuple[int, int]]] | None = None
        self._words: Words | None = None
        """While it is down."""
        self._keys: list[torch.Tensor] = []
        self._probe: torch.Tensor | None = None
        self._random: torch.Generator | None = None

    def over(self, buffers: Buffers, shown: Collection[tuple[int, int]] | None) -> None:
        """From now on it is over the inputs of ``buffers``, seen until it drops. ``shown``: None hides none."""
        self._over = self._words = None
        if shown is None or self._device == "cpu":
            return
        self._over = buffers, shown
        self._random = torch.Generator(self._device).manual_seed(secrets.randbits(62))

    def drop(self) -> None:
        """Hide what is not hidden, and wait until it is: other words than before, or who had seen which kept those."""
        if self._over is None or self._words is not None:
            return
        self._words = Words(*self._over, secrets.randbits(20))
        self._keys = self._words.keys()
        for key in self._keys:
            key.random_(generator=self._random)
        self._words.turn(self._keys)
        torch.cuda.synchronize(self._device)

    def lift(self) -> None:
        """Show it again, as it was when it was hidden."""
        if self._words is not None:
            self._words.turn(self._keys)
            self._words = None
            torch.cuda.synchronize(self._device)

    def busy(self, clock: Callable[[int], int]) -> bool:
        """Whether something keeps the device from taking a kernel of the judge's, look after look."""
        return self._device != "cpu" and all(self._wait_us(clock) > BUSY_US for _ in range(LOOKS))

    def rests(self, clock: Callable[[int], int]) -> bool:
        """Whether the device is idle, or will be within REST_SECONDS."""
        begun = clock(0)
        while busy := self.busy(clock):
            if clock(0) - begun > REST_SECONDS * 1e9:
                break
        return not busy

    def _wait_us(self, clock: Callable[[int], int]) -> float:
        if self._probe is None:
            self._probe = torch.zeros(32, dtype=torch.int32, device=self._device)
            torch.cuda.synchronize(self._device)
        begun = clock(0)
        self._probe.bitwise_not_()
        torch.cuda.synchronize(self._device)
        return (clock(0) - begun) / 1e3
