# SPDX-License-Identifier: Apache-2.0
"""The first of several that something is true of: ``(ids == end).int().argmax(-1)``.

Which place of equal values an operator answers with is nobody's promise (``ties``), but for one idiom: of flags, or of
numbers made of flags, all that hold are equal, and torch says of ``argmax`` and its like that they answer with the
first one. Who answers with the last one has found another end of the sentence.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch

FINDING = {"argmax", "argmin", "max", "min"}
"""Operators whose documentation names the first of several."""
MADE = {"_to_copy", "mul", "where", "bitwise_and", "bitwise_or", "logical_not", "rsub", "clone"}
"""Operators that make flags, or two numbers, of flags and of numbers that are the same for all elements."""
MOVED = {"flip", "roll", "index_select", "view", "_unsafe_view", "_reshape_alias"}
"""Operators that put them elsewhere, beside views."""


class Flags:
    """Tensors of a call that hold flags, or one number for those that are set and another for the others."""

    def __init__(self) -> None:
        self._known: dict[int, torch.Tensor] = {}

    def note(self, func: Any, name: str, args: Sequence[Any], kwargs: Mapping[str, Any], out: Any) -> None:
        """One operator, and its answer; what was written to holds nothing that is known."""
        if func._schema.is_mutable:
            written = args[0] if args and isinstance(args[0], torch.Tensor) else kwargs.get("out")
            if isinstance(written, torch.Tensor):
                spot = written.untyped_storage().data_ptr()
                self._known = {k: t for k, t in self._known.items() if t.untyped_storage().data_ptr() != spot}
            return
        if not isinstance(out, torch.Tensor) or not (name.partition(".")[0] in MADE | MOVED or func.is_view):
            return
        tensors = [arg for arg in (*args, *kwargs.values()) if isinstance(arg, torch.Tensor)]
        flags = [tensor for tensor in tensors if self.are(tensor)]
        if flags and all(tensor.numel() == 1 or self.are(tensor) for tensor in tensors):
            self._known[id(out)] = out

    def are(self, tensor: torch.Tensor) -> bool:
        """Whether this is one of them."""
        return tensor.dtype is torch.bool or id(tensor) in self._known
