# SPDX-License-Identifier: Apache-2.0
"""A reference bound to one case: its signature, fresh draws of inputs and weights, eager results and the oracle's."""

from __future__ import annotations

import copy
import functools
import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch

from kernelwright.errors import KernelwrightError
from kernelwright.judge import (
    agreement,
    as_drawn,
    calls,
    constants,
    fills,
    health,
    inputs,
    noise,
    orders,
    own_dtypes,
    refusals,
    replaced,
    rounding,
    single_numbers,
    skeletons,
    weights,
)
from kernelwright.judge.beside_weights import apart, by_reference
from kernelwright.judge.bonds import Bonds
from kernelwright.judge.buffers import TensorSpec
from kernelwright.judge.codes import Numbers
from kernelwright.judge.domains import Particular, kept
from kernelwright.judge.finite import infinite, shaped, within
from kernelwright.judge.floors import Floors, Spread
from kernelwright.judge.in_parts import InParts
from kernelwright.judge.inputs import Variant, seeded
from kernelwright.judge.lazy import settled
from kernelwright.judge.measure import timed
from kernelwright.judge.oracle import Counting, Float64Trace, raised, run_raised
from kernelwright.judge.units import Units
from kernelwright.judge.variants import AS_GIVEN, HEAVY, HUGE, offered
from kernelwright.judge.weights import State
from kernelwright.judge.whole import changes
from kernelwright.judge.yardstick import Magnitudes

if TYPE_CHECKING:
    from kernelwright.judge.reference import Reference
    from kernelwright.task import Case

Leaves = Sequence[torch.Tensor]
Drawn = list[torch.Tensor]
_DRAWS = ((2 * 10**6, 8), (2 * 10**7, 5), (10**9, 4), (4 * 10**9, 2), (10**30, 1))
"""How many draws one floor takes, by the work of a call (three took 34 s on 2 cores: a Conv3d with GroupNorm)."""


class Instance:
    """One case of a reference on one device.

    Raises ReferenceFails, ReferenceIsRandom, NoTensorOutput, WrongDevice, and EmptyShape for a timed case.
    """

    def __init__(
        self,
        reference: Reference,
        case: Case,
        seed: int = 1,
        autocast: str = "",
        training: bool | None = None,
        opening: int | None = None,
    ) -> None:
        self.training = reference.contract.training if training is None else training
        self.reference, self.case, self.autocast = reference, case, autocast
        self.contract, self.device, self.seed = reference.contract, reference.device, seed
        reference.check_axes(case)
        self.init_args, self.init_kwargs = reference.init_inputs(case)
        self.model = self._construct(seed)
        self.first_state: State = weights.read(self.model)
        drawn = seed if opening is None else opening
        first, self.skeleton = self._raw(drawn)
        (second, other), self.draw_seconds = timed(lambda: self._raw(drawn + 1))
        self.notes: list[str] = refusals.drawn(reference, self.skeleton, other)
        self.names, self.masked = skeletons.names(self.skeleton), inputs.masked(first)
        self.specs = tuple(TensorSpec.like(leaf) for leaf in first)
        refusals.alike(reference, self.names, first, second)
        if case == reference.task.timed_case():
            refusals.empty(reference, self.names, first)
        self.constant = {index for index, (a, b) in enumerate(zip(first, second, strict=True)) if agreement.same(a, b)}
        """Input leaves that ``get_inputs`` never changes."""
        self.renumbered = tuple(i for i in sorted(self.constant) if changes(first[i]))
        """Those of whole numbers that have others in some calls."""
        self.bonds = Bonds.of(first, second, self.constant, reference.bonds)
        self.triangles = self.bonds.triangles
        """How the matrices of those leaves lie that are triangular in every draw."""
        self.kept, self.bounded = set[int](), False
        """Constant floating leaves that had to stay, in its domain; whether infinite ones are finite in some calls."""
        self.renewing, self.turned, self.notes = "", False, self.notes + self.bonds.words(self.names, self.model)
        """How constant floats become others, and whether whole numbers do too; see ``constants``."""
        self.wanted = calls.gradient_names(self.model, first, self.marked) if self.contract.gradients else None
        self.incoming: list[torch.Tensor] | None = None
        """One incoming gradient per output leaf (floating ones count), where they are asked for: the last call's."""
        self.giver, self.particular, self._numbers = weights.Giver(), Particular(), Numbers()
        del second  # a call may be gigabytes
        self.call_seconds, self.double_seconds, self.jumps, self.steep = 0.0, 0.0, True, False
        """What a call took the second time, and the last one in float64: rough, for planning."""
        self.opened: tuple[calls.Given, list[torch.Tensor]] | None = None
        """The first call and its answer under the seed ``opening``, for whoever takes it, where one was named."""
        answered = self._learn_outputs(first, seed)
        if opening is not None and not self.constant and not (self.contract.gradients or self.contract.mutates):
            self.opened = self.given(first, opening), answered
        constants.settle(self, seed)
        self.double: torch.nn.Module | None = None
        self.without_double = ""
        """Why the reference cannot run in float64, or empty."""
        self.own_dtypes = own_dtypes.OwnDtypes()

    # -- construction ------------------------------------------------------------------------------------------

    def _construct(self, seed: int) -> torch.nn.Module:
        entry = getattr(self.reference.module, self.reference.task.entry)
        try:
            with seeded(seed), fills.filled(fills.ASIDE) as self.filled:
                model = entry(*copy.deepcopy(self.init_args), **copy.deepcopy(self.init_kwargs))
            refusals.no_module(self.reference, model)
            return settled(self.reference, model.to(self.device), self._given, seed, training=self.training)
        except KernelwrightError:
            raise
        except calls.ANYTHING as error:
            raise self.reference.failure("the constructor", error) from error

    def _raw(self, seed: int) -> tuple[list[torch.Tensor], Any]:
        """One run of ``get_inputs`` under a seed: tensor leaves on the device, and the skeleton of the arguments."""
        try:
            skeleton, leaves = refusals.plain(self.reference, self._given(seed), self.model.forward)
        except KernelwrightError:
            raise
        except calls.ANYTHING as error:
            raise self.reference.failure("get_inputs", error) from error
        leaves, self.expanded, self.marked = refusals.placed(self.reference, leaves)
        return leaves, skeleton

    def _given(self, seed: int) -> Any:
        """What ``get_inputs`` returns, made on the device where it lets itself: 128 Mi normal numbers take 1.2 s on
        a processor core and 1 ms there. A ``get_inputs`` that insists on the CPU (its own generator) stays there."""
        make, failed = self.reference.module.get_inputs, False
        if self.device.type != "cpu" and not self.reference.on_host:
            try:
                with seeded(seed), self.device:
                    return self.reference.call_with_axes(make, self.case)
            except (RuntimeError, TypeError, ValueError) as error:
                failed = not isinstance(error, torch.OutOfMemoryError)
        with seeded(seed), InParts():
            given = self.reference.call_with_axes(make, self.case)
        self.reference.on_host |= failed  # where it fails on both, as of an empty range, the device is not why
        return given

    def _learn_outputs(self, leaves: list[torch.Tensor], seed: int) -> list[torch.Tensor]:
        """Run once, learn the output tree; run again, refuse randomness that was not declared. The first answer."""
        try:
            with seeded(11), Counting(leaves, self.model) as count, count.limits.noted():
                before, outputs = refusals.counts(self.model), (answer := self.answered(self.model, leaves)).outputs
            self.work, self.searches, self.particular = count.work, count.searches, count.particular
            """Multiply-adds of one call, roughly; whether it searches in an input; what it asks of values."""
            self.factors, self.sized, self.sorts, self.limits = count.factors, count.sized, count.sorts, count.limits
            self.jumps, self.steep, self.counts = count.jumps, count.exponential, count.jumps and count.counts
            self.met = count.met(answer.inputs, self.reference.task, outputs) | {"roots": calls.differentiable(outputs)}
            """What operators said of values, and outputs that may have gradients, for ``offered``."""
            refusals.results(self.reference, leaves, outputs)
            refusals.written(self.reference, self.names, leaves, answer.inputs)
            self.out_skeleton, self.infinite = answer.skeleton, infinite(outputs)
            self.out_specs = tuple(TensorSpec.contiguous(t.shape, t.dtype) for t in outputs)
            self.out_strides, self.units = tuple(tuple(t.stride()) for t in outputs), Units(self.out_specs)
            self.giver.keeps = weights.still(self.model, self.first_state)
            kept_apart = refusals.kept_apart(before, self.model, self.notes)
            if (kept_apart or not self.giver.keeps) and not self.contract.random:
                given, anew = (leaves, self._raw(seed + 1)[0]), (lambda: self._construct(seed)) if kept_apart else None
                refusals.carried(self.reference, outputs, self.model, self.answered, given, 11, anew)
            self._restore()  # in train() mode buffers have changed
            with seeded(12):
                again, self.call_seconds = timed(lambda: self.answered(self.model, leaves).outputs)
        except KernelwrightError:
            raise
        except TypeError as error:
            if "cannot be handed to another process" not in str(error):
                raise self.reference.failure("forward", error) from error
            raise refusals.no_tensor(self.reference, str(error)) from error
        except calls.ANYTHING as error:
            raise self.reference.failure("forward", error) from error
        if not outputs:
            raise refusals.no_tensor(self.reference, "a result without tensors")
        self._restore()
        self.seeds = tuple(calls.differentiable(outputs)) if self.contract.gradients else ()
        """Output leaves that receive an incoming gradient."""
        self.gradients = tuple(
            (name, TensorSpec.contiguous(t.shape, t.dtype))
            for name, t in zip(self.wanted or (), answer.gradients, strict=True)
        )
        """Gradients compared after the outputs, by name."""
        if self.contract.gradients:
            rng = inputs.generator(seed, self.device)
            self.incoming = self._first_incoming = [calls.incoming_for(out, rng) for out in outputs]
        self.settled = agreement.settled(outputs, again)
        if not self.contract.random and agreement.differ(outputs, again):
            new = self._construct
            raise refusals.differing(self.reference, outputs, again, lambda: self.answered(new(seed), leaves).outputs)
        return outputs

    def in_other_mode(self, leaves: Leaves, state: State) -> list[torch.Tensor] | None:
        """What the reference returns in the other of train() and eval(); None where it raises there."""
        self.giver.give(self.model, state)
        self.model.train(not self.training)
        try:
            return self.run(self.model, leaves)
        except calls.CAUGHT as error:
            health.pass_on(error)
            return None
        finally:
            self.model.train(self.training)
            self._restore()

    def accepted(self, leaves: Leaves, state: State | None = None) -> list[torch.Tensor] | None:
        """Outputs, or None where the reference raises, or gives others than usual."""
        if state is not None:
            self.giver.give(self.model, state, lasting=False)
        try:
            outputs = self.answered(self.model, leaves).outputs
        except calls.CAUGHT as error:
            health.pass_on(error)
            return None
        finally:
            self._restore()
        return outputs if shaped(outputs, self.out_specs) else None

    # -- draws ---------------------------------------------------------------------------------------------------

    def draw(self, variant: Variant, seed: int, state: State | None = None) -> list[torch.Tensor]:
        """Fresh input leaves in private memory, on the device, in the variant's layout, beside these weights."""
        base = variant.seed if variant.change in inputs.OF_ONE else seed
        leaves = constants.renewed(self, self._raw(base & (2**63 - 1))[0], base)
        return self.given(inputs.laid_out(self.changed(leaves, variant, seed, state), variant), seed, variant.roots)

    def changed(self, leaves: Drawn, variant: Variant, seed: int, state: State | None = None) -> Drawn:
        """A draw with the changes of a variant, but for its layout."""
        own, made = as_drawn.held(self, leaves), self.bonds.changed(leaves, variant, seed % 2**40, self.searches)
        return as_drawn.put(own, by_reference(self, variant, made, seed, state))

    def given(self, leaves: Leaves, seed: int, roots: Sequence[int] = ()) -> calls.Given:
        """The leaves of a call with incoming gradients of its own, where there are any: those of no other call.
        ``roots``: zeros but of these outputs."""
        made = calls.Given(leaves)
        if self.contract.gradients:
            made.incoming = calls.anew(self._first_incoming, seed, roots)
        return made

    def adopt(self, leaves: Leaves) -> None:
        """The incoming gradients of this call hold until another call brings its own."""
        if isinstance(leaves, calls.Given) and leaves.incoming is not None:
            self.incoming = leaves.incoming

    def draw_state(self, seed: int, moved: str = "", redrawn: State | None = None) -> State:
        """All parameters and buffers, new at their own scale (``redrawn``: an earlier draw of them); tied ones stay."""
        if moved in replaced.MOVED:
            return replaced.drawn(self, moved, seed)
        other = single_numbers.settled(self, seed, moved, redrawn)
        return weights.fresh(self.model, self.first_state, other, seed, moved, self.met["exponents"])

    def variants(self, hidden_seed: int) -> tuple[Variant, ...]:
        """The ways of drawing that this case is judged on; the first is the task's own."""
        return tuple(variant for variant in self.offered(hidden_seed) if self.usable(variant, hidden_seed))

    def offered(self, hidden_seed: int) -> list[Variant]:
        """The same, the reference not yet asked (``usable``)."""
        found = offered(
            self.contract,
            self.bonds.specs(self.specs),
            weights=bool(self.first_state) and not self.contract.frozen_parameters,
            work=self.work,
            huge=self.huge,
            timed=self.case == self.reference.task.timed_case(),
            masked=self.masked,
            constants=self.renumbered,
            **self.met,
            autocast=bool(self.autocast),
            hidden_seed=hidden_seed,
        )
        large = self.device.type != "cpu" and sum(spec.nbytes() for spec in self.specs) > inputs.LARGE_BYTES
        return self.bonds.allowed(inputs.narrower(found) if large else found)

    def usable(self, variant: Variant, seed: int) -> bool:
        """The reference accepts such inputs, where lot decides in several draws, and stays as finite as on its own."""
        for number in range(self.bonds.lots(variant, self.factors) if variant.name != AS_GIVEN else 0):
            state = self.draw_state(seed, variant.moved) if variant.moved else None
            found = self.accepted(leaves := self.draw(variant, seed + number), state)
            if found is None or not (within(self, variant, leaves, state, found) and apart(self, variant, seed)):
                return False
        return True

    def answered(self, model: torch.nn.Module, leaves: Leaves, written: str = "") -> calls.Answer:
        """All that a call of a module in the reference's place gives back."""
        self.adopt(leaves)
        kind = skeletons.dtype(self.autocast) if self.autocast else None
        cast = torch.autocast(self.device.type, dtype=kind, enabled=bool(self.autocast))
        with cast, kept(self.device, self.particular):
            return calls.call(model, self.skeleton, leaves, self.wanted, self.incoming, written)

    def run(self, model: torch.nn.Module, leaves: Leaves, written: str = "") -> list[torch.Tensor]:
        """Outputs, gradients, inputs written to, of a module in the reference's place."""
        return self._everything(self.answered(model, leaves, written))

    def _everything(self, answer: calls.Answer) -> list[torch.Tensor]:
        return [*answer.outputs, *answer.gradients, *(answer.inputs[index] for index in self.contract.mutates)]

    def _restore(self) -> None:
        """Put the first weights back: a module in train() mode changes its buffers."""
        self.giver.give(self.model, self.first_state)

    def eager(self, leaves: Leaves, state: State | None, written: str = "") -> list[torch.Tensor]:
        """What the reference itself returns for these leaves and weights (None: the first ones), then gradients."""
        self.giver.give(self.model, self.first_state if state is None else state)
        return self.run(self.model, leaves, written)

    def state_after(self, calls: Sequence[Sequence[torch.Tensor]], state: State) -> State:
        """Parameters and buffers after calls of the reference in turn; ``state``, not copied, if unchanged. Those over
        HEAVY are not made where the first one left all as it was."""
        self.giver.give(self.model, state)
        for leaves in () if self.giver.keeps and self.work > HEAVY else calls:
            self.run(self.model, leaves)
        live = self.model.state_dict()
        return state if all(agreement.same(value, live[name]) for name, value in state) else weights.read(self.model)

    def oracle(self, leaves: Leaves, state: State | None) -> tuple[list[torch.Tensor], str]:
        """The same in float64, and which kind of oracle that is."""
        found = own_dtypes.oracle(self, leaves, state)
        return found or (orders.centre(self._several(leaves, state, 0)), "orders-of-summation")

    def distrust_double(self, why: str, leaves: Leaves | None = None, state: State | None = None) -> None:
        """From here on, several orders of summation stand in for the oracle; the proof says why. With a call: unless
        the reference can be told its ``own_dtypes``."""
        if leaves is None or not own_dtypes.tell(self, leaves, state, why):
            own_dtypes.withdraw(self)
            self.without_double = why
            self.notes.append(f"the reference is {orders.judged_by(why)}")

    def _several(self, leaves: Leaves, state: State | None, seed: int) -> list[list[torch.Tensor]]:
        return orders.several(self.eager, leaves, state or self.first_state, inputs.generator(seed, self.device))

    def doubled(self, leaves: Leaves, state: State | None, mode: Float64Trace, move: Any = None) -> list[torch.Tensor]:
        """What the reference computes under ``mode``, told of dtypes what it needs. Raises what it raises."""
        return own_dtypes.run(self, leaves, state, mode, lambda: self._doubled(leaves, state, mode, move))

    def _doubled(self, leaves: Leaves, state: State | None, mode: Float64Trace, move: Any) -> list[torch.Tensor]:
        self.double = weights.doubled(self.model) if self.double is None else self.double
        double, mode.single, mode.fills, mode.limits = self.double, self.units.single, self.steep, self.limits
        self.giver.give(double, self.first_state if state is None else state, lasting=move is None)
        if move is not None:  # where they lie: two copies of 512 MB were up to 2.5 s of a draw, with new pages
            move(weights.once(double), write=True)
        self.adopt(leaves)
        incoming = [raised(value) for value in self.incoming] if self.incoming else None
        asked, own = (self.wanted, incoming), not mode.copies

        def answer(values: list[torch.Tensor]) -> list[torch.Tensor]:
            values = values if move is None else mode.aside(functools.partial(move, write=True), values)
            with kept(self.device, self.particular, order=move is None), self.own_dtypes.again():
                return self._everything(calls.call(double, self.skeleton, values, *asked, own=own))

        return run_raised(answer, leaves, mode)

    def floors(
        self, leaves: Leaves, state: State | None, exact: Sequence[Magnitudes], seed: int = 0, few: bool = False
    ) -> Floors:
        """What an honest program may be wrong by on these leaves, per output (``rounding``, ``borders``)."""
        if self.without_double:  # twice the spread: six orders see less than the least careful sensible one
            runs = functools.cache(lambda number: self._several(leaves, state, seed + 1 + number))
            return Floors(lambda at: noise.errors(runs(at // orders.RUNS)[at % orders.RUNS], exact, 2.0), orders.RUNS)
        few |= bool(self.bonds.flags) or self.counts
        ties = functools.cache(lambda: rounding.equal_keys(lambda mode: self.doubled(leaves, state, mode), self.sorts))

        def one(index: int, unit: float) -> list[Spread]:
            rng = inputs.generator((seed * 1009 + index) % 2**63, self.device)
            move = functools.partial(noise.half_ulps, unit=unit, rng=rng, few=few)
            rounded = functools.partial(rounding.Rounded, unit, rng, few)
            found = noise.taken(lambda by: self.doubled(leaves, state, rounded(ties()), by), move)
            return noise.errors(found, exact, 1.0)

        count = 1 if self.huge else next(count for most, count in _DRAWS if self.work <= most)
        return Floors(lambda index: self.units.each(len(exact), functools.partial(one, index)), count)

    def all_specs(self) -> tuple[TensorSpec, ...]:
        """Everything one call is compared on: outputs, then gradients, then the inputs it writes to."""
        written = (TensorSpec.contiguous(self.specs[i].shape, self.specs[i].dtype) for i in self.contract.mutates)
        return (*self.out_specs, *(spec for _, spec in self.gradients), *written)

    @property
    def huge(self) -> bool:
        """Looking at all elements that go in and out of a call takes minutes a variant, on a CPU."""
        return self.device.type == "cpu" and sum(math.prod(s.shape) for s in (*self.specs, *self.out_specs)) > HUGE
