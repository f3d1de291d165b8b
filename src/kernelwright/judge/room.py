# SPDX-License-Identifier: Apache-2.0
"""Whether a task fits this machine's memory, asked before anything of it is allocated."""

from __future__ import annotations

import resource
from pathlib import Path
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils import _pytree

from kernelwright.errors import NotEnoughMemory
from kernelwright.judge.reference import Reference
from kernelwright.task import Case

COPIES = 4
"""Of a call's inputs, held at once at the least: two draws, and one of them in float64. A run took 7 times inputs
and outputs together (1 GiB of them, a ReLU); this only refuses what cannot work."""
_MEMINFO, _STATUS = Path("/proc/meminfo"), Path("/proc/self/status")
OWN_SHARE = 0.75
"""Of the memory that is free, what the judge may take for itself; the programs it runs need the rest."""


def hold() -> None:
    """From here on the judge fails to allocate, and says so, before the system kills it for taking too much.

    Private memory only (RLIMIT_DATA): what it shares with programs is theirs. Asked again for every task.
    """
    free = available_bytes()
    try:
        lines = _STATUS.read_text(encoding="ascii", errors="replace").splitlines()
    except OSError:
        return
    taken = next((int(line.split()[1]) * 1024 for line in lines if line.startswith("VmData:")), None)
    if free is not None and taken is not None:
        _, most = resource.getrlimit(resource.RLIMIT_DATA)
        wanted = taken + int(OWN_SHARE * free)
        wanted = wanted if most == resource.RLIM_INFINITY else min(wanted, most)
        resource.setrlimit(resource.RLIMIT_DATA, (wanted, most))


def check(reference: Reference, case: Case) -> int:
    """Bytes of the inputs of a case, 0 where they cannot be told.

    Raises NotEnoughMemory where they cannot be judged in the memory that is free.

    Sizes are read from ``get_inputs`` run on tensors without data; one that does not run that way is let through.
    """
    size = input_bytes(reference, case) or 0
    if reference.device.type != "cpu":
        return size
    needed, free = COPIES * size, available_bytes()
    if free is not None and needed > free:
        raise NotEnoughMemory(
            f"The inputs of {reference.task.name} are too large to be judged on this machine.",
            got=f"{_gib(needed // COPIES)} of inputs, {_gib(free)} of memory available",
            expected=f"at least {_gib(needed)}: {COPIES} times the inputs",
            what_next="give the timed case smaller sizes, or use a machine with more memory",
        )
    return size


def input_bytes(reference: Reference, case: Case) -> int | None:
    """Bytes of the tensors that ``get_inputs`` makes, without making them; None where that cannot be told."""
    try:
        with FakeTensorMode(allow_non_fake_inputs=True), torch.no_grad():
            given: Any = reference.call_with_axes(reference.module.get_inputs, case)
    except (Exception, SystemExit):  # noqa: BLE001 - the user's code, run in a way it was not written for
        return None
    leaves = [leaf for leaf in _pytree.tree_leaves(given) if isinstance(leaf, torch.Tensor)]
    return sum(leaf.numel() * leaf.element_size() for leaf in leaves)


def available_bytes() -> int | None:
    """Memory that can be had without swapping; None where the system does not say."""
    try:
        lines = _MEMINFO.read_text(encoding="ascii").splitlines()
    except OSError:
        return None
    found = next((line.split()[1] for line in lines if line.startswith("MemAvailable:")), None)
    return None if found is None else int(found) * 1024


def _gib(size: int) -> str:
    return f"{size / (1 << 30):.3g} GiB"
