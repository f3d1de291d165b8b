# SPDX-License-Identifier: Apache-2.0
"""One confined program, as the judge drives it: what it is asked, in windows that it is awake for."""

from __future__ import annotations

import contextlib
import secrets
import struct
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

import torch

from kernelwright.errors import JudgeFailed
from kernelwright.judge import load, skeletons, wires
from kernelwright.judge.buffers import Buffers, CallPlan, CpuArena, Regions, TensorSpec
from kernelwright.judge.leash import ChildFailure, Leash
from kernelwright.judge.placing import Places
from kernelwright.judge.veil import Veil, Words
from kernelwright.judge.window import Harvest, Window

LARGE_BYTES = 1 << 30
"""Of the call sets of a program on a device: for larger ones the judge gives back what it keeps of it in reserve."""
FORK_SECONDS = 20.0
"""What the fork of a program may take, and its first word."""
FORGIVEN = 1
"""Times that the device may be busy beside a program that stands still."""
Clock = Callable[[int], int]
"""Nanoseconds: of wall time for 0, of CPU time used by all threads of a process for its id (0 once it is gone)."""


class Program:
    """One confined process. It runs only inside these methods: between them its whole group is stopped."""

    def __init__(self, leash: Leash, device: str, clock: Clock) -> None:
        self.device, self.limits, self.born_with = device, leash.limits, leash.born_with
        self.stage = "smoke"
        """Stage that failures of ``window`` carry; whoever drives the program moves it on."""
        self.buffers: Buffers | None = None
        self.watched = False
        """Look where results lie after every window (1 ms, outside the clock)."""
        self.spared: frozenset[int] | None = None
        """Results that stay as they were once they were read (None: all); on a CPU others are spoilt if ``watched``."""
        self.written: Sequence[int] = ()
        """Inputs that a call writes to, by leaf."""
        self.takes: Sequence[str] = ()
        """The names of the reference's arguments, in order."""
        self.trained: Sequence[str] | None = None
        """The reference's parameters that require a gradient, where that is compared."""
        self.threads = 0
        """How many threads it has for its calls, where that is not what all programs have."""
        self.shown: Collection[tuple[int, int]] | None = None
        """(output, input) pairs that share storage: such inputs on a device are never hidden (None: none are)."""
        self.veil = Veil(device)
        self.went_on = 0
        """How often the device was busy while the program stood still."""
        self.leash, self.clock, self._places = leash, clock, Places(leash.pid, learns=device == "cpu")
        leash.cpu_clock, leash.on_device = clock, device != "cpu"
        self.loads: Callable[[], contextlib.AbstractContextManager[None]] = contextlib.nullcontext
        """Around waiting until it has loaded."""
        self.handover: CpuArena | None = None
        """What calls are handed over through, once some were."""
        self._large = False
        self._weights: Regions | None = None
        self._names: list[str] = []
        self.level = str(leash.hear("sandbox", leash.limits.seconds + FORK_SECONDS).get("level", ""))
        """The isolation reached, in words."""

    @property
    def pid(self) -> int:
        """Process id, also the id of its group, as the judge sees it."""
        return self.leash.pid

    def load(
        self,
        entry: str,
        init_args: Sequence[Any] = (),
        init_kwargs: Mapping[str, Any] | None = None,
        state: Sequence[tuple[str, torch.Tensor]] = (),
        *,
        training: bool = False,
        autocast: str = "",
        seeds: tuple[int, int] = (1, 1),
        imports: Sequence[str] = (),
        filled: str = "",
    ) -> None:
        """Import ``FILE.py::CLASS``, construct it with these arguments, move it to the device, load ``state`` strictly.

        ``autocast`` names a dtype (``bfloat16``) to run every call under. ``seeds`` of Python's generator, and of
        numpy's and torch's, under which it is constructed. ``imports``: folders on its path; ``filled``: how it fills
        large weights (``fills``). Raises ChildFailure.
        """
        arguments, first = skeletons.of_constructor(list(init_args))
        keywords, second = skeletons.of_constructor(dict(init_kwargs or {}))
        keywords = skeletons.shifted(keywords, len(first))
        self._names = [name for name, _ in state]
        tensors = [*(tensor for _, tensor in state), *first, *second]
        specs = [TensorSpec.contiguous(tensor.shape, tensor.dtype) for tensor in tensors]
        if tensors:
            self._weights = Regions.create(specs, self.device)
            self._fill_weights(tensors)
            self.leash.shared_bytes += self._weights.arena.size
        arena = self._weights.arena if self._weights else None
        request = {
            "do": "load", "entry": entry, "init_args": arguments, "init_kwargs": keywords, "names": self._names,
            "specs": [spec.to_json() for spec in specs], "training": training, "autocast": autocast, "seeds": seeds,
            "size": arena.size if arena else 0, "imports": list(imports), "takes": list(self.takes),
            "threads": self.threads, "trained": None if self.trained is None else list(self.trained),
            "filled": filled,
        }  # fmt: skip
        with self.loads():
            self.leash.ask(request, "load", [arena.fd] if arena else [])
        if arena:
            arena.close_fd()

    def set_state(self, state: Sequence[tuple[str, torch.Tensor]]) -> None:
        """Load other weights (same names, shapes and dtypes as at ``load``)."""
        if [name for name, _ in state] != self._names:
            raise ValueError("set_state needs the names given to load, in order")
        if state:
            self._fill_weights([tensor for _, tensor in state])
        self.leash.ask({"do": "state"}, self.stage)

    def say_state(self) -> None:
        """Have the program write its module's weights and buffers, as they are now, where ``said_state`` finds them."""
        self.leash.ask({"do": "read_state"}, self.stage)

    def said_state(self) -> list[tuple[str, torch.Tensor]]:
        """Copies of what it wrote last."""
        tensors = self._weights.tensors() if self._weights else []
        return [(name, tensor.clone()) for name, tensor in zip(self._names, tensors, strict=False)]

    def perturb(self, *, on: bool) -> None:
        """Whether memory the program has not written to holds rubbish; not for timing."""
        self.leash.ask({"do": "perturb", "on": on}, self.stage)

    def seed(self, seed: int) -> None:
        """torch.manual_seed in the program."""
        self.leash.ask({"do": "seed", "seed": seed}, self.stage)

    def mode(self, *, training: bool) -> None:
        """Switch the module between train() and eval()."""
        self.leash.ask({"do": "mode", "training": training}, self.stage)

    def bind(self, plan: CallPlan) -> Buffers:
        """Shared memory for the plan's call sets, mapped on both sides: that of the plan before, where large enough.

        New pages cost 0.2 s for 96 MiB on two cores, and a GPU's stay mapped in the program: 30 GB, once, by its race.
        """
        old, specs = self.buffers, (*plan.inputs, *plan.outputs)
        self._large = self.device != "cpu" and plan.sets * sum(spec.nbytes() for spec in specs) > LARGE_BYTES
        self._make_room()
        asked = {"do": "bind", "plan": plan.to_json(), "spared": None if self.spared is None else sorted(self.spared)}
        if old is not None and old.holds(plan):
            self.buffers = Buffers.anew(old.arena, plan)
            self.leash.ask({**asked, "size": 0}, "load")
            self.veil.over(self.buffers, self.shown)
            return self.buffers
        self.buffers = Buffers.create(plan, self.device)
        self.leash.shared_bytes += (arena := self.buffers.arena).size
        self.leash.ask({**asked, "size": arena.size}, "load", [arena.fd])
        arena.close_fd()
        if old is not None:
            old.close()
        self.veil.over(self.buffers, self.shown)
        return self.buffers

    def checked(self, order: Sequence[int], *, grad: bool, hidden: bool) -> Window:
        """A window whose results are copied ``at_once``. ``hidden``: on a device the stream that is current at a call
        shows its inputs, some time after it was told to: who reads them on another one must have waited for it."""
        if hidden:
            self._hide(order)
        return self.window(order, grad=grad, at_once=True)

    def looked_at(self, order: Sequence[int], places: Sequence[int], *, grad: bool) -> Window:
        """A window as timed ones are, but for calls at these places in it: see ``amid``."""
        self._hide([order[place] for place in places])
        return self.window(order, grad=grad, looked_at=places)

    def _hide(self, sets: Sequence[int]) -> None:
        """Hide inputs of these sets until their calls in the next window, on a device."""
        if sets and self.shown is not None and self.device != "cpu":
            assert self.buffers is not None
            first = secrets.randbits(20)
            Words(self.buffers, self.shown, first).invert(sets)
            self._settle()
            self.leash.ask({"do": "uncover", "first": first, "shown": sorted(self.shown)}, self.stage)

    def window(
        self,
        order: Sequence[int],
        *,
        grad: bool = False,
        keep: bool = False,
        at_once: bool = False,
        looked_at: Sequence[int] = (),
    ) -> Window:
        """Wake the program, run one call on each set of ``order`` back to back, have the results delivered, stop it.

        An empty ``order`` measures the overhead. Only the outputs of sets in ``order`` are written. ``keep``: results
        live until those of a later window are delivered without it. ``at_once``: on a device each is copied by the
        stream that was current before its call, not once everything is done. Raises ChildFailure.
        """
        if len(order) > wires.MOST_CALLS:
            raise ValueError(f"a window of {len(order)} calls; the most is {wires.MOST_CALLS}")
        number, leash, on_device = secrets.randbits(63), self.leash, self.device != "cpu"
        go = wires.go(number, order, grad=grad, at_once=at_once and on_device, looked_at=looked_at if on_device else ())
        done = wires.mark(wires.DONE, number)
        leash.expect_silence()
        self._ready()
        strained = load.strain(self.pid, len(order), first=on_device)
        begin = self.clock(0)
        leash.wake()
        self._places.free_first()
        leash.send(go, self.stage)
        body = leash.wait(self.stage, self.limits.seconds, self._places)
        end = self.clock(0)
        if not on_device:  # at once: what another thread still does is not done
            leash.stop()
        self._places.look(len(order))
        strained = load.strain(self.pid, len(order), first=on_device).since(strained)
        if body[: len(done)] != done:
            leash.stop()
            leash.refuse(body, self.stage)
        used = self.clock(self.pid)
        harvest = Harvest(self.pid, self.buffers, order, self.written, grad=grad)
        harvest.read(body[len(done) :], watched=self.watched, spared=self.spared)
        asked = self.clock(0)
        if order:
            self.veil.drop()
        leash.send(wires.asking(number, taken=harvest.taken, keep=keep), self.stage)
        leash.wake()
        body = leash.wait(self.stage, self.limits.seconds)
        self.veil.lift()
        given = self.clock(0)
        leash.stop()
        used = max(0, self.clock(self.pid) - used)
        own_us, aliases = self.delivered(body, number)
        if harvest.fault:  # its delivery did not say what is wrong with its results
            leash.end("integrity", harvest.fault)
        harvest.put()
        if (found := harvest.whereabouts) is not None:
            aliases = tuple({*aliases, *found.aliases})
        delivery_ns = used if harvest.whole else given - asked  # other processes of its own may have delivered
        return Window(
            (end - begin) / 1e3, (given - asked) / 1e3, strained, delivery_ns / 1e3, (own_us,), aliases, found
        )

    def hand(self, arena: CpuArena) -> None:
        """Hand calls over through this memory from now on; the program may keep what it had."""
        if self.handover is not None:
            self.handover.close()
        self.handover = arena
        self.leash.shared_bytes += arena.size

    def idle(self) -> None:
        """See that it left no work on the device, which is the judge's alone. Once is forgiven what ends by itself, for
        another judge's program may have left it. Raises ChildFailure, and JudgeFailed where the device stays busy when
        the program is dead."""
        if not self.veil.busy(self.clock):
            return
        self.went_on += 1
        if self.went_on <= FORGIVEN and self.veil.rests(self.clock):
            return
        try:
            self.leash.end("integrity", "its work went on on the device after it had said that it was done")
        except ChildFailure:
            if self.veil.rests(self.clock):
                raise
        raise JudgeFailed(
            f"Another program keeps {self.device} busy.",
            got="a device that is not idle while every program of the judge stands still",
            expected="a device that nobody else uses",
            what_next="end other programs on this device, or name another one",
        )

    def delivered(self, body: bytes, number: int) -> tuple[float, tuple[tuple[int, int], ...]]:
        """What it says after a delivery; raises ChildFailure where that is none."""
        try:
            echoed, own_us, aliases = wires.parse_delivered(body)
        except (struct.error, ValueError):
            echoed = -1
        if echoed != number or body[:1] != wires.DELIVERED:
            self.leash.refuse(body, self.stage)
        return own_us, aliases

    def output(self) -> str:
        """The last part of what the program wrote to stdout and stderr."""
        return self.leash.output()

    def close(self) -> None:
        """Kill the program and free what it used. Safe to call twice."""
        self.leash.forget()
        if self.buffers is not None:
            self.buffers.close()
        if self._weights is not None:
            self._weights.arena.close()
        if self.handover is not None:
            self.handover.close()

    def __enter__(self) -> Program:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _fill_weights(self, tensors: Sequence[torch.Tensor]) -> None:
        assert self._weights is not None
        for target, tensor in zip(self._weights.tensors(), tensors, strict=False):
            target.copy_(tensor.detach())
        self._settle()

    def _ready(self) -> None:
        """What comes before it is woken."""
        self._make_room()
        self.veil.lift()
        self._places.put()

    def _make_room(self) -> None:
        """Before large calls: what the judge keeps of a device in reserve, the program may need inside."""
        if self._large:
            torch.cuda.empty_cache()

    def _settle(self) -> None:
        """What the judge wrote must be there before the other process reads it."""
        if self.device != "cpu":
            torch.cuda.synchronize(self.device)
