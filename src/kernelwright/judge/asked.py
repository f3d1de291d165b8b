# SPDX-License-Identifier: Apache-2.0
"""A call in a program's process whose gradients are asked for: of everything, or of some, as the user of a layer does.

The inputs of a first layer need none, and frozen weights need none. Who returns the gradient of a weight only where the
input needs one is right as long as all do.
"""

from __future__ import annotations

import contextlib
import random
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any

import torch

from kernelwright.judge import plain, skeletons, unused_parameters
from kernelwright.judge.buffers import CallPlan

OUTPUTS, INPUTS = "outputs", "inputs"
WRITTEN = (OUTPUTS, INPUTS)
"""What a later layer may write to before gradients are asked for."""
EXPANDED = "expanded"
"""In the place of one of these: incoming gradients that are one number are one element, as ``y.sum().backward()`` gives
them, with steps of zero."""
FROZEN = "frozen"
"""There too: whatever needs no gradient before a call needs none after it, and all that does still does."""
Call = tuple[list[Any], dict[str, Any], list[torch.Tensor]]
"""Arguments, keywords, and the tensors among them."""
Returned = tuple[Any, tuple[torch.Tensor, ...]]
"""What a call returned, and its gradients."""


def begin(
    module: Any,
    call: Call,
    plan: CallPlan,
    incoming: Sequence[torch.Tensor],
    needed: Collection[str] | None,
    written: str | Collection[str] = "",
    unused: Collection[str] = (),
) -> Callable[[], Returned]:
    """Run a call; what is returned asks for its gradients, of those in ``needed`` (None: all) and zeros for others.
    Those of ``unused`` must be None.
    ``written``: which of WRITTEN are others by then, or EXPANDED; or names of gradients, all of which are then those
    that ``backward()`` leaves in ``.grad`` (``emptied``)."""
    arguments, keywords, leaves = call
    wanted = [_of(module, name, leaves) for name, _ in plan.gradients]
    for tensor, (name, _) in zip(wanted, plan.gradients, strict=True):
        tensor.requires_grad_(needed is None or name in needed)
    asks = needs(module) if written == FROZEN else {}
    stood = [] if isinstance(written, str) else standing(wanted)
    result = module(*arguments, **keywords)
    if not cleared(stood):
        raise plain.WrongStructure("a call changed .grad, where gradients of earlier calls are added up")
    if asks and (said := unlike(asks, needs(module))):
        raise plain.WrongStructure(said)
    _, returned = skeletons.flatten(result)
    roots = [returned[leaf] for leaf in plan.seeds]
    if written == EXPANDED:
        incoming = [seed.flatten()[0].expand(seed.shape) if seed.numel() else seed for seed in incoming]
    pairs = [(root, seed) for root, seed in zip(roots, incoming, strict=True) if root.requires_grad]

    def finish() -> Returned:
        if not pairs:
            return result, tuple(torch.zeros_like(tensor) for tensor in wanted)
        some = [tensor for tensor in wanted if tensor.requires_grad]
        outputs, seeds = zip(*pairs, strict=True)
        if not isinstance(written, str):
            torch.autograd.backward(outputs, seeds, inputs=some)
            named = {name: tensor for tensor, (name, _) in zip(wanted, plan.gradients, strict=True)}
            return result, emptied(named, written)
        with turned({OUTPUTS: outputs, INPUTS: leaves}.get(written, ())):
            made = torch.autograd.grad(outputs, some, seeds, materialize_grads=not unused, allow_unused=True)
        found = iter(made)
        gradients = [next(found) if tensor.requires_grad else None for tensor in wanted]
        gradients = [one if one is None else dense(one) for one in gradients]
        for (name, _), gradient in zip(plan.gradients, gradients, strict=True):
            if gradient is not None and name in unused:
                raise plain.WrongStructure(unused_parameters.words(name))
        pairs_ = zip(wanted, gradients, strict=True)
        return result, tuple(torch.zeros_like(tensor) if one is None else one for tensor, one in pairs_)

    return finish


def emptied(wanted: Mapping[str, torch.Tensor], names: Collection[str]) -> tuple[torch.Tensor, ...]:
    """Copies of what a backward pass left in ``.grad``, one after the other; those of ``names``, first, are zero once
    they are copied, as ``zero_grad(set_to_none=False)`` leaves them. What shares their memory is zero with them."""
    found: dict[str, torch.Tensor] = {}
    for name in sorted(wanted, key=lambda name: name not in names):
        leaf = wanted[name]
        grad, leaf.grad = leaf.grad, None
        found[name] = torch.zeros_like(leaf) if grad is None else dense(grad.detach().clone())
        if grad is not None and name in names:
            grad.detach().zero_()
    return tuple(found[name] for name in wanted)


def dense(gradient: torch.Tensor) -> torch.Tensor:
    """As it is added to a weight: that of a table may be sparse."""
    return gradient if gradient.layout is torch.strided else gradient.to_dense()


def standing(wanted: Sequence[torch.Tensor]) -> list[tuple[torch.Tensor, torch.Tensor, int]]:
    """Gradients of an earlier call, put into ``.grad`` of what may have any, and how often each was written to."""
    made = [(leaf, torch.zeros_like(leaf)) for leaf in wanted if leaf.requires_grad and leaf.is_leaf]
    for leaf, grad in made:
        leaf.grad = grad
    return [(leaf, grad, grad._version) for leaf, grad in made]


def cleared(stood: Sequence[tuple[torch.Tensor, torch.Tensor, int]]) -> bool:
    """Take them away, and say whether all were there, and as they were: a program that drops them loses all micro
    batches of a step but the last."""
    kept = [leaf.grad is grad and grad._version == version for leaf, grad, version in stood]
    for leaf, _, _ in stood:
        leaf.grad = None
    return all(kept)


def needs(module: Any) -> dict[str, bool]:
    """Which parameters require a gradient."""
    held = module.named_parameters() if isinstance(module, torch.nn.Module) else ()
    return {name: one.requires_grad for name, one in held}


def unlike(before: Mapping[str, bool], now: Mapping[str, bool]) -> str:
    """What is said of a call that left a parameter otherwise than it found it; empty where it did not."""
    changed = [name for name, was in before.items() if now.get(name, was) is not was]
    words = "a weight that is frozen has to stay so"
    return f"a call changed requires_grad of {', '.join(changed):.200}: {words}" if changed else ""


@contextlib.contextmanager
def turned(tensors: Sequence[torch.Tensor]) -> Iterator[None]:
    """Floating and complex ones hold their numbers in reverse inside, with the other sign, and torch knows it: a slope
    may be even, and a copy in any other way would not give them back to the last bit."""
    floats = {t.data_ptr(): t for t in tensors if t.numel() and (t.is_floating_point() or t.is_complex())}
    first = [*floats.values()]

    def turn(some: Sequence[torch.Tensor]) -> None:
        with torch.no_grad():
            for tensor in some:
                tensor.copy_(tensor.flip(tuple(range(tensor.dim()))).neg_())

    try:
        turn(first)
        yield
    finally:
        turn(first[::-1])  # views of one memory may overlap


def groups(names: Sequence[str], dice: random.Random) -> list[list[str]]:
    """Which of these are asked for without the others: parameters, inputs, and some by lot where there are several."""
    kinds = [[name for name in names if name.startswith(kind)] for kind in ("parameter:", "input:")]
    found = [kind for kind in kinds if 0 < len(kind) < len(names)]
    if len(names) > 1:
        lot = set(dice.sample(names, dice.randrange(1, len(names))))
        found.append([name for name in names if name in lot])
    return [some for at, some in enumerate(found) if some not in found[:at]]


def _of(module: Any, name: str, leaves: Sequence[torch.Tensor]) -> torch.Tensor:
    kind, _, rest = name.partition(":")
    if kind == "input":
        return leaves[int(rest)]
    parameter: torch.Tensor = module.get_parameter(rest)
    return parameter
