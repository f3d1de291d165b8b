# SPDX-License-Identifier: Apache-2.0
"""Programs that are known to be wrong, made for any task: a judge that passes one of them judges nothing."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch

from kernelwright.judge.inputs import FLOATS, Variant, seeded
from kernelwright.judge.instance import Instance, State
from kernelwright.judge.reference import execute, last_line
from kernelwright.judge.variants import HEAVY

Leaves = Sequence[torch.Tensor]
Answer = Callable[[Variant, Leaves, State | None, Sequence[torch.Tensor]], "list[torch.Tensor] | None"]
"""(variant, inputs, weights, eager's outputs) to the decoy's outputs, or None where it does not apply."""

TILE = 16
"""A skipped tile is one part in this many of the first or last dimension, at least one element."""

MOST_PARAMETERS = 24
"""Parameters ignored in turn. Their survival is a note and never a refusal, and each costs a call: a MobileNetV2 has
262, which took 110 s on 2 loaded cores."""
PARAMETERS_S = 5.0
"""Nor more than calls of the reference that take so long."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Decoy:
    """One known-wrong program. ``kind`` decides what its survival means (see ``admission``)."""

    name: str
    kind: str
    """``degenerate``, ``input``, ``parameter``, ``partial``, ``precision`` or ``own``."""
    answer: Answer
    applies: bool = True
    """False where the shapes of the case alone say that ``answer`` returns None."""


def standard(instance: Instance, seed: int) -> list[Decoy]:
    """The decoys every task must tell from its reference."""
    outs = instance.all_specs()
    rows, columns = (any(len(out.shape) > 0 and out.shape[dim] > 1 for out in outs) for dim in (0, -1))
    several = any(math.prod(out.shape) > 1 for out in outs)
    other = _OtherDraw(instance, seed)
    found = [
        Decoy(name="zeros", kind="degenerate", answer=_filled(lambda out: torch.zeros_like(out))),
        Decoy(name="ones", kind="degenerate", answer=_filled(lambda out: torch.ones_like(out))),
        Decoy(name="mean of the output", kind="degenerate", answer=_mean, applies=several),
        Decoy(name="constant from another draw", kind="degenerate", answer=other.answer),
        Decoy(name="last rows of the output skipped", kind="partial", answer=_skipped(0), applies=rows),
        Decoy(name="last columns of the output skipped", kind="partial", answer=_skipped(-1), applies=columns),
        Decoy(name="output shifted by one", kind="partial", answer=_shifted, applies=several),
    ]
    if len(outs) > 1:
        found.append(Decoy(name="first output only", kind="partial", answer=_first_only))
    for index, spec in enumerate(instance.specs):
        label = instance.names[index] or str(index)
        floating = getattr(torch, spec.dtype) in FLOATS
        if floating:
            fits = any(math.prod(out.shape) == math.prod(spec.shape) and out.dtype == spec.dtype for out in outs)
            wide = len(spec.shape) > 0 and spec.shape[-1] > 1
            name, cut = f"copy of input {label}", f"last columns of input {label} ignored"
            found.append(Decoy(name=name, kind="degenerate", answer=_copied(index), applies=fits))
            found.append(Decoy(name=cut, kind="partial", answer=_cut(instance, index), applies=wide))
        kind = "input" if floating else "exact input"
        ignored = other.ignoring if len(instance.specs) == 1 else _ignored(instance, index, seed)
        found.append(Decoy(name=f"input {label} ignored", kind=kind, answer=ignored))
    for name in looked_at(instance, seed):
        found.append(Decoy(name=f"parameter {name} ignored", kind="parameter", answer=_stale(instance, name, seed)))
    return [*found, *_low_precision(instance)]


def parameters(instance: Instance) -> list[str]:
    """Floating parameters and buffers that are not empty."""
    return [name for name, value in instance.first_state if value.dtype in FLOATS and value.numel()]


def looked_at(instance: Instance, seed: int) -> list[str]:
    """The parameters that are ignored in turn: all, or that many of them drawn by the seed."""
    names = parameters(instance)
    most = min(MOST_PARAMETERS, int(PARAMETERS_S / max(instance.call_seconds, 1e-6)))
    drawn = set(random.Random(seed).sample(names, min(most, len(names))))
    return [name for name in names if name in drawn]


def own(instance: Instance) -> list[Decoy]:
    """Every public module class of the task's ``decoys.py``. Raises what executing that file raises."""
    task = instance.reference.task
    if not task.decoys.strip():
        return []
    module = execute(task.decoys, f"kernelwright_decoys_{task.digest()[:16]}", task.imports)
    classes = [
        value
        for name, value in vars(module).items()
        if isinstance(value, type)
        and issubclass(value, torch.nn.Module)
        and not name.startswith("_")
        and value.__module__ == module.__name__
    ]
    return [Decoy(name=f"decoys.{cls.__name__}", kind="own", answer=_run_class(instance, cls)) for cls in classes]


def _filled(make: Callable[[torch.Tensor], torch.Tensor]) -> Answer:
    return lambda variant, leaves, state, eager: [make(out) for out in eager]


def _mean(variant: Variant, leaves: Leaves, state: State | None, eager: Sequence[torch.Tensor]) -> list | None:
    """Every element replaced by the mean; means nothing for a lone element."""
    if all(out.numel() <= 1 for out in eager):
        return None
    return [
        torch.full_like(out, out.double().mean().item())
        if out.dtype in FLOATS and out.numel() > 1
        else torch.zeros_like(out)
        if out.numel() > 1
        else out
        for out in eager
    ]


class _OtherDraw:
    """Eager's answer to other inputs. Of a lone input it is also the answer of a program that ignores it."""

    def __init__(self, instance: Instance, seed: int) -> None:
        self.instance, self.seed = instance, seed
        self._kept: tuple[str, list[torch.Tensor], bool] | None = None
        """The variant, the answer, and whether the inputs were the same: of one variant, for it may be gigabytes."""

    def answer(
        self, variant: Variant, leaves: Leaves, state: State | None, eager: Sequence[torch.Tensor]
    ) -> list[torch.Tensor]:
        if self._kept is None or self._kept[0] != variant.name:
            self._kept = None
            other = self.instance.draw(variant, self.seed + 101)
            same = all(torch.equal(a, b) for a, b in zip(other, leaves, strict=True))
            if not other and self.instance.first_state:  # a table made of parameters alone
                state = self.instance.draw_state(self.seed + 101)
            self._kept = variant.name, self.instance.eager(other, state), same
        return self._kept[1]

    def ignoring(
        self, variant: Variant, leaves: Leaves, state: State | None, eager: Sequence[torch.Tensor]
    ) -> list[torch.Tensor] | None:
        found = self.answer(variant, leaves, state, eager)
        return None if self._kept is None or self._kept[2] else found


def _skipped(dim: int) -> Answer:
    def answer(variant: Variant, leaves: Leaves, state: State | None, eager: Sequence[torch.Tensor]) -> list | None:
        if all(out.dim() == 0 or out.shape[dim] < 2 for out in eager):
            return None
        return [_without_tail(out, dim) for out in eager]

    return answer


def _without_tail(out: torch.Tensor, dim: int) -> torch.Tensor:
    """The last tile of a dimension set to zero."""
    if out.dim() == 0 or out.shape[dim] < 2:
        return out
    out = out.clone()
    size = out.shape[dim]
    tail = max(1, size // TILE)
    out.narrow(dim, size - tail, tail).zero_()
    return out


def _shifted(variant: Variant, leaves: Leaves, state: State | None, eager: Sequence[torch.Tensor]) -> list | None:
    if all(out.numel() < 2 for out in eager):
        return None
    return [out.reshape(-1).roll(1).reshape(out.shape) for out in eager]


def _first_only(variant: Variant, leaves: Leaves, state: State | None, eager: Sequence[torch.Tensor]) -> list:
    return [eager[0], *(torch.zeros_like(out) for out in eager[1:])]


def _copied(index: int) -> Answer:
    def answer(variant: Variant, leaves: Leaves, state: State | None, eager: Sequence[torch.Tensor]) -> list | None:
        leaf = leaves[index]
        fits = [out.numel() == leaf.numel() and out.dtype == leaf.dtype for out in eager]
        handed = [out.shape == leaf.shape and torch.equal(out, leaf) for out in eager]
        if not all(handed):  # an input that is handed on beside results is no copy of them
            fits = [fit and not same for fit, same in zip(fits, handed, strict=True)]
        if not any(fits):
            return None
        return [leaf.reshape(out.shape) if fit else out for out, fit in zip(eager, fits, strict=True)]

    return answer


def _cut(instance: Instance, index: int) -> Answer:
    def answer(variant: Variant, leaves: Leaves, state: State | None, eager: Sequence[torch.Tensor]) -> list | None:
        if leaves[index].dim() == 0 or leaves[index].shape[-1] < 2:
            return None
        changed = list(leaves)
        changed[index] = _without_tail(leaves[index], -1)
        return instance.eager(changed, state)

    return answer


def _ignored(instance: Instance, index: int, seed: int) -> Answer:
    def answer(variant: Variant, leaves: Leaves, state: State | None, eager: Sequence[torch.Tensor]) -> list | None:
        changed = list(leaves)
        changed[index] = instance.draw(variant, seed + 211)[index]
        if torch.equal(changed[index], leaves[index]):
            return None
        return instance.eager(changed, state)

    return answer


def _stale(instance: Instance, name: str, seed: int) -> Answer:
    kept: list[dict[str, torch.Tensor]] = []

    def answer(variant: Variant, leaves: Leaves, state: State | None, eager: Sequence[torch.Tensor]) -> list | None:
        if not kept:
            kept.append(dict(instance.draw_state(seed + 307)))
        weights = list(instance.first_state if state is None else state)
        changed = [(key, kept[0][key] if key == name else value) for key, value in weights]
        if all(torch.equal(new, old) for (_, new), (_, old) in zip(changed, weights, strict=True)):
            return None
        return instance.eager(leaves, changed)

    return answer


def _low_precision(instance: Instance) -> list[Decoy]:
    """Inputs and weights rounded to fewer bits and computed as before: the gentlest form of lower precision."""
    if instance.work > HEAVY or instance.huge:  # they only ever make a note, and each costs a run of the reference
        return []
    if all(spec.dtype in ("float16", "bfloat16") for spec in instance.specs if spec.dtype.startswith(("f", "b"))):
        return []
    forms: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
        "bfloat16": lambda x: x.to(torch.bfloat16).to(x.dtype),
        "float16": lambda x: x.to(torch.float16).to(x.dtype),
        "tf32": round_to_tf32,
    }
    return [
        Decoy(name=f"arithmetic in {name}", kind="precision", answer=_rounded(instance, form))
        for name, form in forms.items()
    ]


def round_to_tf32(values: torch.Tensor) -> torch.Tensor:
    """float32 rounded to the 10 stored mantissa bits of TF32, ties away from zero as the hardware does."""
    if values.dtype is not torch.float32:
        return values.to(torch.float32).to(values.dtype)
    bits = values.contiguous().view(torch.int32)
    return ((bits + 0x1000) & ~0x1FFF).view(torch.float32).reshape(values.shape)


def _rounded(instance: Instance, form: Callable[[torch.Tensor], torch.Tensor]) -> Answer:
    def lower(value: torch.Tensor) -> torch.Tensor:
        return form(value) if value.dtype in FLOATS else value

    def answer(variant: Variant, leaves: Leaves, state: State | None, eager: Sequence[torch.Tensor]) -> list:
        weights = instance.first_state if state is None else state
        return instance.eager([lower(leaf) for leaf in leaves], [(key, lower(value)) for key, value in weights])

    return answer


def _run_class(instance: Instance, cls: type[torch.nn.Module]) -> Answer:
    def answer(variant: Variant, leaves: Leaves, state: State | None, eager: Sequence[torch.Tensor]) -> list:
        with seeded(1):
            try:
                model = cls(*instance.init_args, **instance.init_kwargs)
            except TypeError:
                model = cls()  # a decoy need not take what it ignores
        model = model.to(instance.device).train(instance.contract.training)
        weights = dict(instance.first_state if state is None else state)
        known = model.state_dict()
        fits = {k: v for k, v in weights.items() if k in known and known[k].shape == v.shape}
        model.load_state_dict(fits, strict=False)
        return instance.run(model, leaves)

    return answer


def outcome_of_error(error: BaseException) -> str:
    """How a decoy that raised is recorded."""
    return f"raises {last_line(error)}"
