# SPDX-License-Identifier: Apache-2.0
"""Random numbers that a constructor fills large weights with, on the host.

torch draws them in one thread, 0.28 s for nn.Linear(8192, 8192), 5 s for 2^30 of them, and a proof constructs the
reference and its copies a dozen times; of 35 of the 100 files of KernelBench's second level the weights are over 64
MiB. The judge draws them in parts, side by side. A program, which is loaded with the judge's weights before it is
asked anything, repeats some; the generator moves on as in the judge, so that what a module keeps beside its state_dict
is the same in both.
"""

from __future__ import annotations

import collections
import contextlib
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, TypeVar

import torch

from kernelwright.judge import lanes, left
from kernelwright.judge.in_parts import DTYPES, FILLS, LARGE, PARTS, PLAIN

if TYPE_CHECKING:
    from kernelwright.judge.instance import Instance

ASIDE, IN_TURN, CHEAPLY = "aside", "in turn", "cheaply"
"""In parts side by side (the judge), one after the other with the same numbers, and by repeating POOL of them."""
POOL = 1 << 20
IN_PLACE = ("uniform_", "normal_")
_MADE: dict[str, Any] = {"rand": torch.rand, "randn": torch.randn}
T = TypeVar("T")


@contextlib.contextmanager
def filled(how: str) -> Iterator[list[int]]:
    """Large fills inside happen ``how`` it says (nothing: as torch does); how many elements each has had."""
    seen: list[int] = []
    if not how:
        yield seen
        return
    active = [True]
    before = {name: vars(torch.Tensor).get(name) for name in IN_PLACE}
    plain = {name: getattr(torch.Tensor, name) for name in IN_PLACE}

    def in_place(fill: Any) -> Any:
        def of(self: torch.Tensor, *args: Any, generator: Any = None, **kwargs: Any) -> torch.Tensor:
            if not active or generator is not None or not _fits(self):
                return fill(self, *args, generator=generator, **kwargs)
            return _fill(self, lambda part, rng: fill(part, *args, generator=rng, **kwargs), how, seen)

        return of

    def making(make: Any, fill: Any) -> Any:
        def of(*args: Any, **kwargs: Any) -> torch.Tensor:
            made = torch.empty(*args, **kwargs) if active and kwargs.keys() <= PLAIN else None
            if made is None or not _fits(made.detach()):
                return make(*args, **kwargs)
            _fill(made.detach(), lambda part, rng: fill(part, generator=rng), how, seen)
            return made

        return of

    for name, fill in plain.items():
        setattr(torch.Tensor, name, in_place(fill))
    for name, make in _MADE.items():
        setattr(torch, name, making(make, FILLS[make]))
    try:
        yield seen
    finally:
        active.clear()
        for name, own in before.items():
            setattr(torch.Tensor, name, own) if own is not None else delattr(torch.Tensor, name)
        for name, make in _MADE.items():
            setattr(torch, name, make)


def _fits(tensor: torch.Tensor) -> bool:
    """Whether a fill of it is dear, and torch would let it be written to."""
    plain = type(tensor) in (torch.Tensor, torch.nn.Parameter) and tensor.dtype in DTYPES
    writable = not (tensor.requires_grad and torch.is_grad_enabled())
    return plain and writable and tensor.device.type == "cpu" and tensor.numel() >= LARGE and tensor.is_contiguous()


def _fill(tensor: torch.Tensor, fill: Callable[[torch.Tensor, torch.Generator], Any], how: str, seen: list[int]) -> Any:
    seeds = torch.randint(2**62, (PARTS,)).tolist()
    flat = tensor.detach().view(-1)
    seen.append(flat.numel())
    if how == CHEAPLY:
        fill(flat[:POOL], torch.Generator().manual_seed(seeds[0]))
        whole = flat.numel() // POOL * POOL
        flat[POOL:whole].view(-1, POOL).copy_(flat[:POOL])
        flat[whole:].copy_(flat[: flat.numel() - whole])
        return tensor
    parts = flat.tensor_split(PARTS)
    lanes.each(
        lambda at: fill(parts[at], torch.Generator().manual_seed(seeds[at])), range(PARTS), host=how == ASIDE
    )  # fmt: skip
    return tensor


def of_programs(instance: Instance) -> str:
    """How a program fills its weights: as torch does where the reference's are small; cheaply where all that is filled
    is in its state, which is loaded before a call, and may be another one then."""
    if not instance.filled:
        return ""
    registered = instance.model.state_dict()
    aside = [value for module in instance.model.modules() for value in vars(module).values()]
    aside += [value for name, value in instance.model.named_buffers() if name not in registered]
    if instance.contract.frozen_parameters or any(isinstance(v, torch.Tensor) and v.numel() >= LARGE for v in aside):
        return IN_TURN
    held = collections.Counter(value.numel() for value in registered.values())
    return IN_TURN if collections.Counter(instance.filled) - held else CHEAPLY


def constructed(make: Callable[[], T], seeds: tuple[int, int], how: str) -> T:
    """What a constructor makes under these seeds. One that fails on repeated numbers, whose matrices have no inverse,
    is asked again."""
    if how == CHEAPLY:
        with contextlib.suppress(Exception), left.seeds(*seeds), filled(how):
            return make()
        how = IN_TURN
    with left.seeds(*seeds), filled(how):
        return make()
