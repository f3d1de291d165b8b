# SPDX-License-Identifier: Apache-2.0
"""One call of a module in the judge's own process: outputs, and gradients where the contract asks for them."""

from __future__ import annotations

import contextlib
import random
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from kernelwright.judge import asked, health, layouts, skeletons

CAUGHT = (
    RuntimeError,
    ValueError,
    TypeError,
    LookupError,
    AttributeError,
    AssertionError,
    ArithmeticError,
    NameError,
)
"""What a module raises on inputs or dtypes it was not written for (NotImplementedError and RecursionError are
RuntimeErrors). ``int(inf)`` and ``10.0 ** 400`` are OverflowErrors, a name that no branch gave a value a NameError."""
ANYTHING = (Exception, SystemExit, KeyboardInterrupt)
"""What the user's code may raise at all: a judge has a session of its own, so no interrupt but that comes to it."""


class Raised(RuntimeError):
    """An error of a class that is none of these: the file's own, StopIteration, or a plain Exception."""


class OfItsOwn(contextlib.ContextDecorator):
    """Whatever a module raises inside is one of ``CAUGHT``, but for the machine's faults. A reference that said
    ``raise Exception("too large")`` ended the judge, since nobody caught it on a draw that was too large."""

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: Any) -> None:
        if not isinstance(error, Exception | SystemExit) or isinstance(error, CAUGHT):
            return
        if health.fault(error) is None:
            raise Raised(f"{type(error).__name__}: {error}") from error


class Given(list[torch.Tensor]):
    """The input leaves of one call, and the incoming gradients that belong to it (None: the instance's last)."""

    incoming: list[torch.Tensor] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What one call gave back."""

    skeleton: Any
    outputs: list[torch.Tensor]
    gradients: list[torch.Tensor]
    inputs: list[torch.Tensor]
    """The input leaves as the call left them."""
    absent: frozenset[str] = frozenset()
    """Names of gradients that torch has none of, where it has some."""


def copied(leaf: torch.Tensor) -> torch.Tensor:
    """The same values and strides in storage of their own."""
    out = torch.empty_strided(leaf.shape, leaf.stride(), dtype=leaf.dtype, device=leaf.device)
    layouts.write(out, leaf)
    return out


@OfItsOwn()
def call(
    model: torch.nn.Module,
    skeleton: Any,
    leaves: Sequence[torch.Tensor],
    wanted: Sequence[str] | None,
    incoming: Sequence[torch.Tensor] | None,
    written: str = "",
    *,
    own: bool = False,
) -> Answer:
    """Call ``model`` on copies of ``leaves``; on themselves where they are nobody else's (``own``).

    ``wanted`` names gradients (``input:3``, ``parameter:fc.weight``), None asks for outputs only; ``incoming`` holds
    one incoming gradient per floating output that carries a gradient, by position (ones where it is None). A
    gradient that does not exist is zero. ``written``: which of ``asked.WRITTEN`` are others before them. Raises what
    the module raises.
    """
    given = list(leaves) if own else [copied(leaf) for leaf in leaves]
    if wanted is None:
        with torch.no_grad():
            skeleton_out, outputs = skeletons.flatten(model(*skeletons.unflatten(skeleton, given)))
        return Answer(skeleton=skeleton_out, outputs=_plain(outputs), gradients=[], inputs=given)
    parameters = dict(model.named_parameters())
    sources = []
    for name in wanted:
        kind, _, which = name.partition(":")
        if kind == "input":
            given[int(which)] = given[int(which)].requires_grad_()
        sources.append(given[int(which)] if kind == "input" else parameters[which])
    with torch.enable_grad():
        # A view keeps the leaf out of reach of operators that write to their input.
        seen = [leaf.view_as(leaf) if leaf.requires_grad else leaf for leaf in given]
        skeleton_out, outputs = skeletons.flatten(model(*skeletons.unflatten(skeleton, seen)))
    carried = [index for index in differentiable(outputs) if outputs[index].requires_grad]
    seeds = [torch.ones_like(outputs[i]) if incoming is None else incoming[i].to(outputs[i].dtype) for i in carried]
    found: Sequence[torch.Tensor | None] = [None] * len(sources)
    if carried and sources:
        with asked.turned({asked.OUTPUTS: outputs, asked.INPUTS: given}.get(written, ())):
            found = torch.autograd.grad([outputs[i] for i in carried], sources, seeds, allow_unused=True)
    gradients = [
        torch.zeros_like(source) if grad is None else asked.dense(grad.detach())
        for source, grad in zip(sources, found, strict=True)
    ]
    absent = frozenset(name for name, grad in zip(wanted, found, strict=True) if grad is None and carried)
    return Answer(
        skeleton=skeleton_out, outputs=_plain(outputs), gradients=gradients, inputs=_plain(given), absent=absent
    )


def _plain(tensors: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    return [tensor.detach() for tensor in tensors]


def differentiable(outputs: Sequence[torch.Tensor]) -> list[int]:
    """Positions of those that can have a gradient."""
    return [index for index, out in enumerate(outputs) if out.is_floating_point() or out.is_complex()]


def gradient_names(
    model: torch.nn.Module, leaves: Sequence[torch.Tensor], marked: Collection[int] = ()
) -> tuple[str, ...]:
    """Every floating or complex input and every parameter that requires a gradient, in that order. Of inputs that
    ``get_inputs`` ``marked`` by ``requires_grad``, where there are any, those alone: a table or a target beside them
    has none from most kernels."""
    inputs = [index for index in differentiable(leaves) if index in marked or not marked]
    parameters = [name for name, value in model.named_parameters() if value.requires_grad]
    return (*(f"input:{index}" for index in inputs), *(f"parameter:{name}" for name in parameters))


def incoming_for(out: torch.Tensor, rng: torch.Generator) -> torch.Tensor:
    """A random incoming gradient for an output; zeros where it can have none."""
    if not differentiable([out]):
        return torch.zeros_like(out)
    if out.is_complex():
        return torch.randn(out.shape, generator=rng, device=out.device, dtype=torch.complex64).to(out.dtype)
    return torch.randn(out.shape, generator=rng, device=out.device, dtype=torch.float32).to(out.dtype)


def anew(first: Sequence[torch.Tensor], seed: int, roots: Sequence[int] = ()) -> list[torch.Tensor]:
    """Incoming gradients of another call, by output; zeros but of ``roots``, where there are any."""
    dice = random.Random(seed)
    made = [turned(one, dice) for one in first]
    return [one.zero_() if roots and at not in roots else one for at, one in enumerate(made)]


def turned(first: torch.Tensor, dice: random.Random) -> torch.Tensor:
    """The same gradient rolled, with another sign and size: cheaper than a draw, of no use to who kept the first. Of
    whole numbers, places of a sort for one, there is none."""
    if not differentiable([first]):
        return first.clone()
    shift = dice.randrange(max(first.numel(), 1))
    return first.reshape(-1).roll(shift).mul_(dice.choice((-1, 1)) * dice.uniform(0.5, 2.0)).reshape(first.shape)
