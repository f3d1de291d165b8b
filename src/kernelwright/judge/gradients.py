# SPDX-License-Identifier: Apache-2.0
"""Gradients asked for as users ask for them: of none, of some, and after a later layer wrote to what a call was given
or gave.

A layer that works in place comes after another one, or before it. Torch counts how often each tensor was written to and
raises where one was that a backward pass needs; who keeps such a tensor beside that (``ctx.y = y.detach()``) answers by
what is there now. So outputs, and then inputs, are turned round between a call and its gradients, and back after them,
where the reference does not mind; a candidate may mind, which it says aloud, but not be wrong.

``backward()`` takes a gradient that nobody else holds for ``.grad`` as it is, and adds to it, or empties it, in place.
One that is an input, a weight, another gradient or the caller's own incoming one changes that with it: two gradients
that are views of one memory add up to 12 for 8 in two passes. So they are emptied, and all else has to stay.
"""

from __future__ import annotations

import collections
import functools
import random
from typing import Any

import torch

from kernelwright.judge import asked, calls, health, incoming, race, singled, skeletons, unused_parameters, variants
from kernelwright.judge.bench import Point
from kernelwright.judge.buffers import Buffers
from kernelwright.judge.checks import NEEDED, ODD, RAISED, WRITTEN, Wrong
from kernelwright.judge.correctness import Correctness
from kernelwright.judge.inputs import Variant
from kernelwright.judge.instance import Instance
from kernelwright.judge.leash import ChildFailure
from kernelwright.judge.program import Program
from kernelwright.sandbox.lease import sharing
from kernelwright.trial import CaseResult


class Gradients(Correctness):
    """The checks of gradients, and of their absence."""

    __slots__ = ()

    @sharing
    def _without_gradients(self, program: Program, point: Point) -> None:
        """Under torch.no_grad() the outputs, and what a call leaves, are the same as where gradients are wanted, and
        they are wanted right after it, of the same weights: a view of one that is kept until it is written to has no
        gradient if it was made there, as after every validation."""
        if not self.bench.contract.gradients or self.bench.contract.random:
            return
        variant, leaves, state = self._elsewhere(program, point, self.seed ^ 0x0FF)
        buffers = point.bind(program, variant, 1)
        result = self._under_no_grad(program, point, buffers, variant, leaves, state)
        if self.stateful:  # statistics are taken of a loader's batches without gradients
            self._state_as_left(program, [leaves], state, point)
        if not result.passed:
            raise Wrong("verify", f"under torch.no_grad(): {result.name}: {result.detail}", result.detail)
        if not self.stateful:  # what it would be set to again is written to
            result = self._call(program, point, variant, buffers, 0, leaves, state)
            if not result.passed:
                reason = f"after a call under torch.no_grad() with these weights: {result.name}: {result.detail}"
                raise Wrong("verify", reason, result.detail)

    @sharing
    def _one_for_all(self, program: Program, point: Point) -> None:
        """One tensor as several inputs, as self-attention is called, under torch.no_grad(): its gradients would be
        those of all its places."""
        instance, contract = point.instance, self.bench.contract
        variant = singled.itself(instance.specs) if contract.gradients else None  # elsewhere it is one of all variants
        if variant is None or contract.random or contract.mutates or point.dear or self.spares(ODD):
            return
        leaves, state = instance.draw(variant, random.Random(self.seed ^ 0x1AF).getrandbits(62)), instance.first_state
        if not point.checker.accepts(variant, leaves, state):
            return
        program.set_state(state)
        buffers = point.bind(program, variant, 1, leaves)
        result = self._under_no_grad(program, point, buffers, variant, leaves, state)
        if not result.passed:
            raise Wrong("verify", f"under torch.no_grad(): {result.name}: {result.detail}", result.detail)

    def _under_no_grad(
        self, program: Program, point: Point, buffers: Buffers, variant: Variant, leaves: list[torch.Tensor], state: Any
    ) -> CaseResult:
        """What is said of the outputs of a call under ``torch.no_grad()``, of a task with gradients."""
        instance = point.instance
        race.fill(buffers, 0, leaves)
        program.window([0], grad=False)
        gradients = point.checker.truth(variant, leaves, state).eager[len(instance.out_specs) :]
        answers = [*buffers.outputs[0], *gradients[: len(instance.gradients)]]
        return self.chance.passed(point.checker.check(variant, leaves, state, answers, list(buffers.inputs[0])))

    @sharing
    def _some_gradients(self, program: Program, point: Point) -> None:
        """Where only some inputs and parameters need gradients they are those of a call in which all do, and the others
        need none after it either, where the reference leaves that alone. Of one name alone none is needed, too."""
        instance = point.instance
        each = [name for name, _ in instance.gradients]
        groups = asked.groups(each, random.Random(self.seed ^ 0x50E)) or [[] for _ in each]
        if self.bench.contract.random or self.spares(NEEDED) or not groups:
            return
        variant, leaves, state = self._elsewhere(program, point, self.seed ^ 0x50F)
        truth = point.checker.truth(variant, leaves, state).eager[len(instance.out_specs) :]
        written = asked.FROZEN if leaves_frozen(instance, leaves) else ""
        for needed in groups:
            program.leash.ask({"do": "need", "names": needed, "written": written}, program.stage)
            buffers = point.bind(program, variant, 1)
            race.fill(buffers, 0, leaves)
            program.window([0], grad=True)
            found = zip(instance.gradients, buffers.grads[0], truth, strict=False)
            gradients = [mine if name in needed else other for (name, _), mine, other in found]
            check = functools.partial(point.checker.check, variant, leaves, state)
            result = self.chance.passed(check([*buffers.outputs[0], *gradients], list(buffers.inputs[0])))
            if not result.passed:
                names = ", ".join(needed) or "nothing"
                raise Wrong("verify", f"gradients of {names} alone: {result.name}: {result.detail}", result.detail)
        program.leash.ask({"do": "need", "names": None}, program.stage)

    @sharing
    def _none_of_unused(self, program: Program, point: Point) -> None:
        """What no output depends on has the gradient None, not zeros: an optimizer with weight decay moves what has
        zeros. One call as given, of which torch has none of the reference's."""
        instance, contract = point.instance, self.bench.contract
        if not instance.gradients or point.dear:
            return
        dice, state = random.Random(self.seed ^ 0x404E), instance.first_state
        names = {name for name, _ in instance.gradients}
        for number in range(unused_parameters.CALLS):
            if number and not contract.frozen_parameters:
                state = self._fresh_state(point, dice.getrandbits(62))
            leaves = instance.draw(point.as_given, dice.getrandbits(62))
            names &= unused_parameters.of_call(instance, leaves, state)
            if not names:
                return
        program.set_state(state)
        buffers = point.bind(program, point.as_given, 1)
        race.fill(buffers, 0, leaves)
        program.leash.ask({"do": "need", "names": None, "unused": sorted(names)}, program.stage)
        program.window([0], grad=True)
        program.leash.ask({"do": "need", "names": None}, program.stage)

    def _elsewhere(
        self, program: Program, point: Point, seed: int, *, plain: bool = False
    ) -> tuple[Variant, list[torch.Tensor], Any]:
        """A call for a mode that is looked at once: all changes of value in one draw, where the reference takes it and
        nobody wants a ``plain`` one, on new weights, which the program has. On a dear case the first call, whose truth
        is known."""
        instance = point.instance
        if point.dear:
            program.set_state(instance.first_state)
            return point.as_given, self._first_call(point, seed), instance.first_state
        frozen = self.bench.contract.frozen_parameters or not instance.first_state
        state = instance.first_state if frozen else self._fresh_state(point, seed)
        program.set_state(state)
        mixed = () if plain else variants.mixed_of(instance)
        offered = (v for v in mixed if point.offered[1:] and point.usable(v))
        variant = next(offered, point.as_given)
        leaves = instance.draw(variant, seed)
        if variant is not point.as_given and not point.checker.accepts(variant, leaves, state):
            variant, leaves = point.as_given, instance.draw(point.as_given, seed)
        return variant, leaves, state

    @sharing
    def _as_of_losses(self, program: Program, point: Point) -> None:
        """Incoming gradients as losses make them, not normal numbers alone: see ``incoming``."""
        if not point.instance.gradients:
            return
        dice = random.Random(self.seed ^ 0x105)
        variant, leaves, state = self._elsewhere(program, point, dice.getrandbits(62), plain=True)
        if not isinstance(leaves, calls.Given) or leaves.incoming is None:
            return
        buffers = point.bind(program, variant, 1)
        for kind in incoming.chosen(dice, dear=point.dear, random_=self.bench.contract.random):
            if self.stateful:
                program.set_state(state)
            given = incoming.given(leaves, leaves.incoming, kind, dice.getrandbits(62))
            expanded = asked.EXPANDED if kind == incoming.EVEN else ""
            self._asked_so(
                program, point, buffers, (variant, given), state, expanded, f"with incoming gradients {kind}"
            )

    @sharing
    def _written_between(self, program: Program, point: Point) -> None:
        """Outputs, or inputs, that are written to after a call leave its gradients as they are, where they leave those
        of the reference so."""
        if not point.instance.gradients or self.bench.contract.random or self.spares(WRITTEN):
            return
        variant, leaves, state = self._elsewhere(program, point, self.seed ^ 0x51E)
        for written in asked.WRITTEN:
            if not _minds_not(point, variant, leaves, state, written):
                continue
            if self.stateful:
                program.set_state(state)
            program.leash.ask({"do": "need", "names": None, "written": written}, program.stage)
            buffers = point.bind(program, variant, 1)
            race.fill(buffers, 0, leaves)
            try:
                program.window([0], grad=True)
            except ChildFailure as failure:
                if not failure.reason.startswith(RAISED):
                    raise
            else:
                answers = [*buffers.outputs[0], *buffers.grads[0]]
                found = point.checker.check(variant, leaves, state, answers, list(buffers.inputs[0]))
                if not self.chance.passed(found).passed:
                    reason = f"gradients after its {written} were written to: {found.name}: {found.detail}"
                    raise Wrong("verify", reason, found.detail)
            program.leash.ask({"do": "need", "names": None}, program.stage)

    @sharing
    def _accumulated(self, program: Program, point: Point) -> None:
        """Gradients that ``backward()`` leaves, and that share no memory with anything in the reference, share none:
        of normal incoming gradients, and of ones, for which a product by them may be left out. What stood in ``.grad``
        before a call stands there after it, where it does in the reference."""
        if not point.instance.gradients:
            return
        variant, leaves, state = self._elsewhere(program, point, self.seed ^ 0xACC, plain=True)
        if not isinstance(leaves, calls.Given) or leaves.incoming is None:
            return
        if (names := apart(point.instance, leaves, state)) is None:
            return
        buffers = point.bind(program, variant, 1)
        for ones in (False, True) if names else (False,):
            if self.stateful or ones:
                program.set_state(state)
            given = calls.Given(leaves)
            given.incoming = [torch.ones_like(one) if ones else one for one in leaves.incoming]
            words = "gradients of backward() that are emptied one by one"
            self._asked_so(program, point, buffers, (variant, given), state, names, words)
            if not point.dear:
                self._state_as_left(program, [given], state, point)

    def _asked_so(
        self, program: Program, point: Point, buffers: Buffers, given: tuple[Variant, calls.Given], state: Any,
        written: str | list[str], words: str,
    ) -> None:  # fmt: skip
        """A call whose gradients are asked for as ``asked.begin`` says of ``written`` is right, or Wrong is raised."""
        variant, leaves = given
        program.leash.ask({"do": "need", "names": None, "written": written}, program.stage)
        result = self._call(program, point, variant, buffers, 0, leaves, state)
        program.leash.ask({"do": "need", "names": None}, program.stage)
        if not result.passed:
            raise Wrong("verify", f"{words}: {result.name}: {result.detail}", result.detail)


def apart(instance: Instance, leaves: calls.Given, state: Any) -> list[str] | None:
    """Names of gradients that share memory with nothing else where ``backward()`` leaves them in the reference: those
    of ``torch.cat``, of views, and of the terms of a sum that is viewed first, are parts of the incoming one. None
    where it changes what stood in ``.grad``, or raises."""
    instance.giver.give(instance.model, state)
    given = [calls.copied(leaf) for leaf in leaves]
    parameters, wanted = dict(instance.model.named_parameters()), dict[str, torch.Tensor]()
    for name, _ in instance.gradients:
        kind, _, which = name.partition(":")
        wanted[name] = given[int(which)].requires_grad_() if kind == "input" else parameters[which]
    stood = asked.standing([*wanted.values()])
    try:
        with torch.enable_grad(), calls.OfItsOwn():
            outputs = skeletons.flatten(instance.model(*skeletons.unflatten(instance.skeleton, given)))[1]
        if not asked.cleared(stood):
            return None
        incoming = [one.to(out.dtype) for one, out in zip(leaves.incoming or (), outputs, strict=True)]
        carried = [at for at in instance.seeds if outputs[at].requires_grad]
        if carried:
            seeds = [incoming[at] for at in carried]
            torch.autograd.backward([outputs[at] for at in carried], seeds, inputs=[*wanted.values()])
        grads = {name: leaf.grad for name, leaf in wanted.items() if leaf.grad is not None}
        held = [*given, *incoming, *outputs, *instance.model.state_dict().values(), *grads.values()]
        places = collections.Counter(_place(one) for one in {id(one): one for one in held}.values())
        return [name for name in wanted if name not in grads or places[_place(grads[name])] == 1]
    except calls.CAUGHT as error:
        health.pass_on(error)
        return None
    finally:
        for leaf in wanted.values():
            leaf.grad = None


def leaves_frozen(instance: Instance, leaves: list[torch.Tensor]) -> bool:
    """Whether the reference leaves parameters that require no gradient so."""
    parameters = [one for one in instance.model.parameters() if one.requires_grad]
    try:
        for one in parameters:
            one.requires_grad = False
        instance.accepted(leaves)
        return not any(one.requires_grad for one in parameters)
    finally:
        for one in parameters:
            one.requires_grad = True


def _place(value: Any) -> int:
    """Where its memory begins; that of sparse ones, which have several, counts as one."""
    plain = isinstance(value, torch.Tensor) and value.layout is torch.strided
    return value.untyped_storage().data_ptr() if plain else 0


def _minds_not(point: Point, variant: Variant, leaves: list[torch.Tensor], state: Any, written: str) -> bool:
    """Whether the reference's gradients stay as they are."""
    instance = point.instance
    count = len(instance.out_specs)
    usual = point.checker.truth(variant, leaves, state).eager[count:]
    try:
        now = instance.eager(leaves, state, written)[count:]
    except calls.CAUGHT as error:
        health.pass_on(error)
        return False
    return all(map(torch.equal, usual, now))
