# SPDX-License-Identifier: Apache-2.0
"""A task's reference as a module that is there for as long as a proposer looks at it."""

from __future__ import annotations

import sys
import types
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch

from kernelwright.neighbours import Neighbours
from kernelwright.task import Task


@contextmanager
def loaded(task: Task) -> Iterator[types.ModuleType]:
    """The reference, with the task's import folders on the path. Raises what its source raises."""
    name = f"kernelwright_reference_{task.digest()[:12]}"
    module = types.ModuleType(name)
    before = list(sys.path)
    sys.path[:0] = list(task.imports)
    sys.modules[name] = module
    try:
        with Neighbours(task.imports).turn():
            exec(compile(task.reference, f"<{name}>", "exec", dont_inherit=True), module.__dict__)
            yield module
    finally:
        sys.path[:] = before
        sys.modules.pop(name, None)


def apart(arguments: list[Any]) -> list[Any]:
    """The arguments of a call with a tensor that is given twice as two: torch.export makes one input of both, and the
    judge gives them values of their own."""
    seen: set[int] = set()

    def own(leaf: object) -> object:
        if not isinstance(leaf, torch.Tensor) or id(leaf) not in seen:
            seen.add(id(leaf))
            return leaf
        return leaf.clone()

    found: list[Any] = torch.utils._pytree.tree_map(own, arguments)
    return found
