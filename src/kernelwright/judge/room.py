# SPDX-License-Identifier: Apache-2.0
"""Whether a task fits this machine's memory, asked before anything of it is allocated."""

from __future__ import annotations

import resource
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils import _pytree

from kernelwright.errors import NotEnoughMemory
from kernelwright.judge import calls, numerics, pages, refusals, skeletons
from kernelwright.judge.inputs import seeded
from kernelwright.judge.instance import Instance
from kernelwright.judge.reference import Reference
from kernelwright.limits import memory as predictor
from kernelwright.task import Case

COPIES, ANSWERS = 4, 6
"""Of a call's inputs and of its outputs, held at once at the least: what is given, what it is in float64, and a copy of
that; answers of eager, in float64, with what they are made from. Admitting 1.5 GiB of inputs and outputs of one
convolution took 9 GiB, 1 GiB of another's 7 GiB; what is timed comes on top, so this only refuses what cannot work."""
LARGE_SHARE = 1 / 16
"""Of the free memory, what inputs must take before the reference is run without data to see the size of its outputs."""
RISEN_SHARE = 1 / 8
"""Of the free memory, what this process must once have held beyond what it holds for the inside of a call to be looked
at: predicting it takes up to a second, and small calls pass anyway."""
_MEMINFO, _STATUS = Path("/proc/meminfo"), Path("/proc/self/status")
OWN_SHARE = 0.75
"""Of the memory that is free, what the judge may take for itself; the programs it runs need the rest."""


def hold(kept: int = 0) -> None:
    """From here on the judge fails to allocate, and says so, before the system kills it for taking too much.

    Private memory only (RLIMIT_DATA): what it shares with programs is theirs. Asked again for every task. ``kept``:
    bytes of its address space that it gave back and may use again (``pages.give_back``). They are among what is free,
    so they count as taken from it; where they are most of it, in pieces too small for a large tensor, half remains.
    """
    free, taken = available_bytes(), _status_bytes("VmData:")
    if free is not None and taken:
        _, most = resource.getrlimit(resource.RLIMIT_DATA)
        wanted = taken + max(int(OWN_SHARE * free) - kept, free // 2)
        wanted = wanted if most == resource.RLIM_INFINITY else min(wanted, most)
        resource.setrlimit(resource.RLIMIT_DATA, (wanted, most))


def check(reference: Reference, case: Case) -> int:
    """Bytes of the inputs of a case, 0 where they cannot be told.

    Raises NotEnoughMemory where they cannot be judged in the memory that is free.

    Sizes are read from ``get_inputs``, and of large inputs from the reference, run on tensors without data; what does
    not run that way is let through.
    """
    size, free = input_bytes(reference, case) or 0, available_bytes()
    if reference.device.type == "cpu" and free is not None and size > LARGE_SHARE * free:
        pages.give_back()  # what an earlier task left is free as well
        free = available_bytes() or free
        enough(reference, size, output_bytes(reference, case) or 0, free)
    return size


def check_answers(instance: Instance) -> None:
    """Raises NotEnoughMemory where the outputs, now known, cannot be judged in the memory that is free."""
    if instance.device.type != "cpu":
        return
    inputs, outputs = (sum(spec.nbytes() for spec in specs) for specs in (instance.specs, instance.out_specs))
    free = available_bytes()
    if free is None:
        return
    enough(instance.reference, inputs, outputs, free + inputs + outputs)  # one of each is held already
    risen = _status_bytes("VmHWM:") - _status_bytes("VmRSS:")
    if risen > RISEN_SHARE * free:
        enough_inside(instance, free)


def enough_inside(instance: Instance, free: int) -> None:
    """Raises NotEnoughMemory where a call of the reference in float64 is predicted to need more than ``free`` bytes.

    Predicted as in ``limits.memory``, for floats of twice the width; a reference that does not run without data, or has
    other numbers than float32, is let through.
    """
    if not all(spec.dtype == "float32" for spec in (*instance.specs, *instance.out_specs)):
        return
    leaves = [torch.empty(spec.shape) for spec in instance.specs]  # pages of it are never touched
    try:
        found = predictor.memory(
            instance.model, skeletons.unflatten(instance.skeleton, leaves), gradients=instance.contract.gradients
        )
    except Exception:  # noqa: BLE001 - whatever the reference raises on tensors without data
        return
    if 2 * found.peak > free:
        raise NotEnoughMemory(
            f"A call of {instance.reference.task.name} in float64 does not fit this machine, so nothing can be judged.",
            got=f"{_gib(free)} of memory available; a call is predicted to hold {_gib(found.peak)} at once",
            expected=f"at least {_gib(2 * found.peak)}",
            what_next="make its sizes smaller, or use a machine with more memory",
        )


def enough(reference: Reference, inputs: int, outputs: int, free: int) -> None:
    """Raises NotEnoughMemory where so many bytes of inputs and outputs cannot be judged in ``free`` bytes."""
    needed = COPIES * inputs + ANSWERS * outputs
    if needed <= free:
        return
    answers = f", {_gib(outputs)} of outputs" if outputs else ""
    times = f" and {ANSWERS} times the outputs" if outputs else ""
    raise NotEnoughMemory(
        f"The tensors of {reference.task.name} are too large to be judged on this machine.",
        got=f"{_gib(inputs)} of inputs{answers}, {_gib(free)} of memory available",
        expected=f"at least {_gib(needed)}: {COPIES} times the inputs{times}",
        what_next=f"make its sizes {_plain(needed / max(free, 1), 2)} times smaller, or use a machine with more memory",
    )


def input_bytes(reference: Reference, case: Case) -> int | None:
    """Bytes of the tensors that ``get_inputs`` makes, without making them; None where that cannot be told."""
    return _without_data(lambda: reference.call_with_axes(reference.module.get_inputs, case))


def output_bytes(reference: Reference, case: Case) -> int | None:
    """Bytes of the tensors that the reference returns, without making them; None where that cannot be told."""

    def call() -> Any:
        args, keywords = reference.init_inputs(case)
        model = getattr(reference.module, reference.task.entry)(*args, **keywords)
        given = reference.call_with_axes(reference.module.get_inputs, case)
        return model(*refusals.arguments(reference, given, model.forward))

    return _without_data(call)


def _without_data(action: Callable[[], Any]) -> int | None:
    """Bytes of the tensors that an action returns when it runs on tensors without data."""
    try:
        with seeded(0), FakeTensorMode(allow_non_fake_inputs=True), torch.no_grad():
            made = action()
    except calls.ANYTHING:  # the user's code, run in a way it was not written for
        return None
    leaves = [leaf for leaf in _pytree.tree_leaves(made) if isinstance(leaf, torch.Tensor)]
    return numerics.held_bytes(leaves)


def available_bytes() -> int | None:
    """Memory that can be had without swapping; None where the system does not say."""
    try:
        lines = _MEMINFO.read_text(encoding="ascii").splitlines()
    except OSError:
        return None
    found = next((line.split()[1] for line in lines if line.startswith("MemAvailable:")), None)
    return None if found is None else int(found) * 1024


def _status_bytes(field: str) -> int:
    """A size of this process by its name in /proc/self/status, 0 where it is not there."""
    try:
        lines = _STATUS.read_text(encoding="ascii", errors="replace").splitlines()
    except OSError:
        return 0
    return next((int(line.split()[1]) * 1024 for line in lines if line.startswith(field)), 0)


def _gib(size: int) -> str:
    return f"{_plain(size / (1 << 30), 3)} GiB"


def _plain(number: float, digits: int) -> str:
    """With so many digits, and never with an exponent: 1910, not 1.91e+03."""
    rounded = float(f"{number:.{digits}g}")
    return f"{rounded:.0f}" if rounded >= 10**digits else f"{rounded:.{digits}g}"
