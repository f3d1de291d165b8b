# SPDX-License-Identifier: Apache-2.0
"""The small program inside a confined process that loads candidate code and calls it when the judge says so.

Everything it says may be a lie, since the candidate shares its address space. The judge therefore trusts only
its own clock and the bytes in the shared buffers; what is checked here is checked to give honest programs
good messages.
"""

from __future__ import annotations

import contextlib
import functools
import os
import random
import socket
import sys
import time
from collections.abc import Callable
from typing import Any

import torch

from kernelwright.judge import asked, buffers, fetch, imported, left, plain, skeletons, spoilt, state_names, veil, wires
from kernelwright.judge.amid import Amid
from kernelwright.judge.anew import Anew
from kernelwright.judge.fills import constructed
from kernelwright.judge.handover import Handover


class Runner:
    """Serves one channel; holds one module, its weights buffer and one set of call buffers."""

    def __init__(self, channel: socket.socket, device: str, threads: int) -> None:
        self.channel, self.device = channel, device
        self.module: Any = None
        self.twin: Any = None
        """Another instance of it, once one was asked for."""
        self.by_twin: frozenset[int] = frozenset()  # sets whose calls are answered by that one
        self.anew = Anew()
        self.construct: Callable[[], Any] = _nothing
        self.autocast = self.written = ""
        self.training = False  # the mode of whatever instance answers
        self.weights: buffers.Regions | None = None
        self.names: list[str] = []
        self.buffers: buffers.Buffers | None = None
        self.calls: list[tuple[list[Any], dict[str, Any], list[torch.Tensor]]] = []
        self.before: Any = None
        self.alive: list[Any] = []
        """Results of earlier windows that the judge wants to live on."""
        self.spared: list[int] | None = None
        """Results on a device that stay as they were once they were delivered (None: all)."""
        self.copies = True
        """Whether what is delivered is to be copied: not where the judge has read it."""
        self.cover: veil.Words | None = None
        """Hidden inputs of the next window, which each call's stream is to show it."""
        self.delay = veil.Delay()
        self.handover: Handover | None = None
        self.handed: Handover | None = None
        """The next window's inputs are handed over call by call."""
        self.needed: list[str] | None = None
        self.unused: list[str] = []
        self.stream: torch.cuda.Stream | None = None
        """Current in every window, where it is not the default one."""
        self.late = False
        """Gradients are asked for only when the results of all calls of a window are there."""
        self.sync: Callable[[], None] = _nothing
        self.wake: Callable[[], object] = _nothing
        """Gives the device something to do at the start of every window, empty ones too: windows of five calls on
        an H200 read some 0.4 ms longer than events say, which the switch to this process's context would explain (not
        measured apart). So it becomes part of the overhead that is subtracted."""
        if threads not in (0, torch.get_num_threads()):  # it starts as many at once, which no program of a user's has
            torch.set_num_threads(threads)
        if device != "cpu":
            self.sync = torch.cuda.synchronize

    def serve(self) -> None:
        """Answer until the judge closes the channel."""
        while True:
            body, descriptors = wires.receive(self.channel)
            if not body:
                return
            try:
                if body[:1] == wires.GO:
                    self.window(body)
                else:
                    request = wires.decode(body)
                    answer = getattr(self, "do_" + request["do"])(request, descriptors)
                    wires.send(self.channel, wires.encode({"ok": request["do"], **(answer or {})}))
            except BaseException as error:  # noqa: BLE001 - candidate code can raise anything, SystemExit too
                wires.send(self.channel, wires.encode({"failed": plain.describe(error)}))
            finally:
                for descriptor in descriptors:
                    os.close(descriptor)

    def do_load(self, request: dict[str, Any], descriptors: list[int]) -> None:
        """Import the entry, construct it, load its weights."""
        if self.device != "cpu":
            torch.cuda.set_device(self.device)
            self.wake = torch.zeros(1, device=self.device).zero_
        self._open_weights(request, descriptors)
        self.before, (path, _, name) = left.Before(), request["entry"].partition("::")
        module = imported.of(path, request["imports"], request["threads"])
        if not hasattr(module, name):
            raise plain.WrongStructure(f"{path} defines no {name}")
        self.construct = functools.partial(self._constructed, getattr(module, name), request)
        self.autocast, self.training = request["autocast"], request["training"]
        self.module = self.construct()
        plain.takes(self.module, request["takes"])
        state_names.trained(self.module, self.names, request["trained"])
        self.before.begins(self.module, self.names, self.weights.tensors() if self.weights else [])
        self.do_state({}, [])

    def _constructed(self, made: Callable[..., Any], request: dict[str, Any]) -> Any:
        """A module with its own copies of what its constructor takes."""
        leaves = [leaf.clone() for leaf in (self.weights.tensors()[len(self.names) :] if self.weights else [])]
        arguments = skeletons.unflatten(request["init_args"], leaves)
        keywords = skeletons.unflatten(request["init_kwargs"], leaves)
        try:
            make = functools.partial(made, *arguments, **keywords)
            module = constructed(make, request["seeds"], request["filled"])
        finally:
            self.before.constructed()
        if isinstance(module, torch.nn.Module):
            module.to(self.device)
            module.train(self.training)
        return module

    def do_twin(self, request: dict[str, Any], descriptors: list[int]) -> None:
        """Answer by another instance from now on, or by the first one again; each keeps its weights."""
        if self.twin is None:
            self.twin = self.construct()
        self.module, self.twin = self.twin, self.module

    def do_turns(self, request: dict[str, Any], descriptors: list[int]) -> None:
        """Which sets of later windows the other instance answers; where there are none, that one is gone."""
        self.by_twin = frozenset(request["sets"])
        self.twin = self.twin if self.by_twin else None

    def do_anew(self, request: dict[str, Any], descriptors: list[int]) -> None:
        """Answer by an instance that is made once those before are gone, where they may have been."""
        self.anew.gone(self.module)
        self.module, self.twin, self.by_twin = None, None, frozenset()
        self.alive.clear()
        self.module = self.anew.made(self.construct, request["how"])

    def do_state(self, request: dict[str, Any], descriptors: list[int]) -> None:
        """Copy the weights the judge wrote into the module, strictly by name."""
        if self.weights is None or not isinstance(self.module, torch.nn.Module):
            if self.names:
                raise plain.WrongStructure("the candidate is no nn.Module, so it cannot take the reference's weights")
            return
        state = dict(zip(self.names, self.weights.tensors()[: len(self.names)], strict=True))
        try:
            self.module.load_state_dict(state, strict=True)
        except RuntimeError as error:
            if said := state_names.differences(self.module.state_dict(), self.names):
                raise plain.WrongStructure(said) from error
            raise
        self.sync()

    def do_read_state(self, request: dict[str, Any], descriptors: list[int]) -> None:
        """Copy the module's weights and buffers into the shared memory, for the judge to look at."""
        if self.weights is None:
            return
        state = self.module.state_dict()
        if said := state_names.differences(state, self.names):
            raise plain.WrongStructure(f"a call changed the state_dict: {said}")
        for target, name in zip(self.weights.tensors(), self.names, strict=False):
            target.copy_(state[name].detach())
        self.sync()

    def do_relaid(self, request: dict[str, Any], descriptors: list[int]) -> None:
        """Lay the module's weights out as channels_last does, which leaves all but those of four axes as they are."""
        self.module.to(memory_format=torch.channels_last)

    def do_stream(self, request: dict[str, Any], descriptors: list[int]) -> None:
        """Make another stream the current one of every window from now on."""
        self.stream = torch.cuda.Stream(self.device)

    def do_perturb(self, request: dict[str, Any], descriptors: list[int]) -> None:
        """Whether memory that nobody has written to yet, or that was given back, holds rubbish (glibc).

        Else the kernel's zeros, or an earlier result, stand where a program left out what is the same in every call.
        """
        spoilt.heap(on=request["on"])
        if request["on"] and self.device != "cpu":
            spoilt.memory(self.device)

    def do_seed(self, request: dict[str, Any], descriptors: list[int]) -> None:
        """Seed every generator of torch, and those of Python and numpy, until further notice."""
        random.seed(request["seed"])
        torch.manual_seed(request["seed"])
        if (numpy := sys.modules.get("numpy")) is not None:
            numpy.random.seed(request["seed"] % 2**32)

    def do_need(self, request: dict[str, Any], descriptors: list[int]) -> None:
        """Of which inputs and parameters gradients are asked for from now on; None: of all. And what changes before."""
        self.needed, self.unused, self.written = request["names"], request.get("unused", []), request.get("written", "")

    def do_late(self, request: dict[str, Any], descriptors: list[int]) -> None:
        """Whether what a program keeps for its gradients must outlive its later calls."""
        self.late = request["on"]

    def do_left(self, request: dict[str, Any], descriptors: list[int]) -> dict[str, Any]:
        """What the program has changed in this process that is not its own."""
        return {"left": self.before.changed(), "begun": self.before.begun, "own": self.before.own}

    def do_mode(self, request: dict[str, Any], descriptors: list[int]) -> None:
        """Switch between train() and eval(): every instance there is, and those that are made from now on."""
        self.training = request["training"]
        for instance in (self.module, self.twin):
            if instance is not None:
                instance.train(self.training)

    def do_bind(self, request: dict[str, Any], descriptors: list[int]) -> None:
        """Map the call buffers, or lay them out anew in those of the plan before."""
        plan, self.spared = buffers.CallPlan.from_json(request["plan"]), request["spared"]
        if self.device != "cpu" and torch.cuda.memory_reserved(self.device) > 1 << 30:
            torch.cuda.empty_cache()  # what calls of another layout left in reserve
        if descriptors:
            arena = buffers.attach_arena(descriptors[0], request["size"], self.device)
        else:
            assert self.buffers is not None
            arena = self.buffers.arena
        self.calls = []
        self.buffers = buffers.Buffers(arena, plan)
        self.calls = [self._arguments(index) for index in range(plan.sets)]

    def do_uncover(self, request: dict[str, Any], descriptors: list[int]) -> None:
        """The next window's inputs are hidden, as the judge's ``Program.checked`` says."""
        assert self.buffers is not None
        self.cover = veil.Words(self.buffers, request["shown"], request["first"])

    def do_handover(self, request: dict[str, Any], descriptors: list[int]) -> dict[str, Any]:
        """The next window's inputs come one call at a time, through this memory."""
        try:
            if descriptors:
                self.handover = Handover(buffers.CpuArena.attach(descriptors[0], request["size"]), self.device)
            assert self.buffers is not None and self.handover is not None
            self.handover.arm(self.buffers, request["first"], request["calls"], waits=request["waits"])
        except (RuntimeError, AttributeError, OSError) as error:
            return {"ready": False, "why": f"{error!r:.200}"}
        self.handed = self.handover
        return {"ready": True}

    def window(self, body: bytes) -> None:
        """Run the calls, say done, and deliver what was returned once asked."""
        number, grad, order = wires.parse_go(body)
        began = time.monotonic()
        amid, calls, results = Amid(self, order, wires.looked_at(body)), list(enumerate(order)), list[Any]()
        self.wake()
        with self._context(grad):
            if wires.at_once(body):
                results = [amid.at_once(place, functools.partial(self._called, index, grad)) for place, index in calls]
            elif self.late:
                begun = [self._begin(index) for index in order]
                results = [self._in_order(finish()) for finish in begun]
            else:
                for place, index in calls:
                    amid.before(place)
                    results.append(self._called(index, grad))
                    amid.after(place, results[-1])
        self.cover = self.handed = None
        self.sync()
        own_us = (time.monotonic() - began) * 1e6
        seen = self.buffers if self.device == "cpu" else None
        places, kept = fetch.notes(seen, results) if seen is not None else (b"", [])
        wires.send(self.channel, wires.mark(wires.DONE, number) + places)
        again, _ = wires.receive(self.channel)
        wanted = {wires.asking(number, taken=taken, keep=keep) for taken in (True, False) for keep in (True, False)}
        if again not in wanted:
            raise plain.WrongStructure("the judge did not ask for delivery")
        self.copies = again[:1] in (wires.DELIVER, wires.KEEP)
        aliases: list[tuple[int, int]] = []
        with torch.no_grad():
            pairs: list[tuple[torch.Tensor, torch.Tensor]] = []
            for place, (index, result) in enumerate(zip(order, results, strict=True)):
                aliases = amid.aliases[place] if place in amid.aliases else self._deliver(index, result, pairs)
            if pairs and self.device != "cpu":  # 256 small copies, one by one, were a third of a delivery
                torch._foreach_copy_([target for target, _ in pairs], [leaf for _, leaf in pairs])
            if self.spared is not None and self.device != "cpu" and self.buffers is not None:
                given = [t for index in order for t in (*self.calls[index][2], *self.buffers.seeds[index])]
                leaves = [[made] if type(made) is torch.Tensor else skeletons.flatten(made)[1] for made, _ in results]
                spoilt.spoil(leaves, self.spared, self.module, given)
            self.sync()
        wires.send(self.channel, wires.delivered(number, own_us, aliases))
        self.alive.append((results, kept))
        if again[:1] not in (wires.KEEP, wires.TAKEN_KEEP):
            self.alive.clear()
        for index in set(order):  # outside the clock
            left.called(None if self.written else self.before, self.calls[index][2])
            self.calls[index] = left.kept(self.before, self.calls[index], grad=grad) or self._arguments(index)

    def _context(self, grad: bool) -> contextlib.ExitStack:
        stack = contextlib.ExitStack()
        stack.enter_context(torch.enable_grad() if grad else torch.no_grad())
        if self.stream is not None:
            stack.enter_context(torch.cuda.stream(self.stream))
        if self.autocast:
            kind = self.device.partition(":")[0]
            stack.enter_context(torch.autocast(kind, dtype=skeletons.dtype(self.autocast)))
        return stack

    def _called(self, index: int, grad: bool) -> Any:
        return self._in_order(self._call(index, grad))

    def _call(self, index: int, grad: bool) -> tuple[Any, tuple[torch.Tensor, ...]]:
        arguments, keywords, _ = self.calls[index]
        if not grad:
            return self._answers(index)(*arguments, **keywords), ()
        return self._begin(index)()

    def _answers(self, index: int) -> Any:
        """The instance that answers a call."""
        return self.twin if index in self.by_twin else self.module

    def _begin(self, index: int) -> Callable[[], asked.Returned]:
        assert (held := self.buffers) is not None
        answers, asks = self._answers(index), (held.plan, held.seeds[index], self.needed, self.written)
        return asked.begin(answers, self.calls[index], *asks, self.unused)

    def _in_order(self, returned: tuple[Any, tuple[torch.Tensor, ...]]) -> tuple[Any, tuple[torch.Tensor, ...]]:
        """Results in another order than the reference's or row-major are put in order here, as part of the call.

        Honest programs leave a transposing to their reader; their reader would have to pay for it.
        """
        result, gradients = returned
        if type(result) is torch.Tensor and result.is_contiguous():
            return returned
        assert self.buffers is not None
        orders = self.buffers.plan.orders
        if not orders:
            return returned
        try:
            skeleton, leaves = skeletons.flatten(result)
            pairs = zip(leaves, orders, strict=True)
            odd = [buffers.laid_out_oddly(leaf.stride(), steps, leaf.shape) for leaf, steps in pairs]
        except Exception:  # noqa: BLE001 - what is no plain result is refused at its delivery
            return returned
        if any(odd):
            leaves = [leaf.contiguous() if one else leaf for leaf, one in zip(leaves, odd, strict=True)]
            result = skeletons.unflatten(skeleton, leaves)
        return result, gradients

    def _deliver(
        self,
        index: int,
        returned: tuple[Any, tuple[torch.Tensor, ...]],
        pairs: list[tuple[torch.Tensor, torch.Tensor]],
    ) -> list[tuple[int, int]]:
        """Copy what a call returned into its set, or on a device add to ``pairs`` (target, source) what is to be."""
        assert self.buffers is not None
        result, gradients = returned
        skeleton, leaves = skeletons.flatten(result)
        if skeleton != self.buffers.plan.results:
            mine, theirs = skeletons.shown(skeleton), skeletons.shown(self.buffers.plan.results)
            raise plain.WrongStructure(f"returned {mine:.300}, expected {theirs:.300}")
        for position, (leaf, target) in enumerate(zip(leaves, self.buffers.outputs[index], strict=True)):
            plain.check(f"output {position}", leaf, target)
            self._copy(target, leaf, pairs)
        for (name, _), leaf, target in (
            zip(self.buffers.plan.gradients, gradients, self.buffers.grads[index], strict=True) if gradients else ()
        ):
            plain.check(f"gradient of {name}", leaf, target)
            self._copy(target, leaf, pairs)
        inputs = [tensor.untyped_storage().data_ptr() for tensor in self.calls[index][2]]
        return [
            (position, inputs.index(leaf.untyped_storage().data_ptr()))
            for position, leaf in enumerate(leaves)
            if leaf.numel() and leaf.untyped_storage().data_ptr() in inputs
        ]

    def _copy(self, target: torch.Tensor, leaf: torch.Tensor, pairs: list[tuple[torch.Tensor, torch.Tensor]]) -> None:
        if not self.copies:
            return
        leaf = leaf.detach()
        if leaf.dtype is torch.bool:  # bytes: a copy of booleans makes 1 of every other one
            target, leaf = target.view(torch.uint8), leaf.view(torch.uint8)
        if self.device != "cpu":
            pairs.append((target, leaf))
        else:
            target.copy_(leaf)

    def _arguments(self, index: int) -> tuple[list[Any], dict[str, Any], list[torch.Tensor]]:
        assert self.buffers is not None
        leaves = self.buffers.arguments(index)
        value = skeletons.unflatten(self.buffers.plan.arguments, leaves)
        named = isinstance(value, dict)
        return (list(value["args"]), value["kwargs"], leaves) if named else (list(value), {}, leaves)

    def _open_weights(self, request: dict[str, Any], descriptors: list[int]) -> None:
        self.names = request["names"]
        if descriptors:
            arena = buffers.attach_arena(descriptors[0], request["size"], self.device)
            specs = [buffers.TensorSpec.from_json(item) for item in request["specs"]]
            self.weights = buffers.Regions(arena, specs)


def _nothing() -> None:
    """CPU calls are finished when they return."""
