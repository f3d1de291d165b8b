# SPDX-License-Identifier: Apache-2.0
"""An operation of the graph that stays torch's own, as Python text."""

from __future__ import annotations

import operator
from collections.abc import Mapping, Sequence
from typing import Any

import torch

from kernelwright.proposers.templates import windows
from kernelwright.proposers.templates.graph import NotCaptured, size_text
from kernelwright.proposers.templates.ir import Call, Tensor

_STRICT_VIEWS = frozenset({"aten.view.default", "aten._unsafe_view.default"})
_VIEWS = frozenset(
    "view reshape transpose.int permute unsqueeze squeeze expand t select.int slice.Tensor flatten split".split()
)


def kept(
    node: torch.fx.Node, out: Tensor, operands: Sequence[str], names: Mapping[torch.fx.Node, str],
    *, on_host: bool, windowed: bool,
) -> Call:  # fmt: skip
    """The step that leaves a node to torch; ``windowed``: the emitter has code for windows of this type."""
    target = str(node.target)
    if node.target is operator.getitem:
        text, target = f"{operands[0]}[{node.args[1]}]", "getitem"
    else:
        text = expression(node, names, on_host)
    base = target.removeprefix("aten.").removesuffix(".default")
    return Call(
        output=out, target=target, operands=tuple(operands), expression=text,
        view=base in _VIEWS or target == "getitem",
        window=windows.window(node) if windowed else None,
    )  # fmt: skip


def expression(node: torch.fx.Node, names: Mapping[torch.fx.Node, str], on_host: bool) -> str:
    """``torch.ops.aten...(...)`` over the names of what it reads.

    ``on_host`` says that the program runs on the CPU, where the graph was traced: only there may it name a device.
    Raises NotCaptured for effects and for arguments that cannot be written down.
    """
    packet = str(node.target)
    if not packet.startswith("aten."):
        raise NotCaptured(f"an operation outside aten: {packet}")
    schema = getattr(node.target, "_schema", None)
    if schema is None or schema.is_mutable:
        raise NotCaptured(f"an operation with effects: {packet}")
    parts = [_argument(a, names, on_host) for a in node.args]
    parts += [f"{key}={_argument(a, names, on_host)}" for key, a in node.kwargs.items()]
    # Copies are left out, so what was contiguous may not be: reshape views where it can and copies where it must.
    packet = "aten.reshape.default" if packet in _STRICT_VIEWS else packet
    return f"torch.ops.{packet}({', '.join(parts)})"


def _argument(arg: Any, names: Mapping[torch.fx.Node, str], on_host: bool) -> str:
    if isinstance(arg, torch.fx.Node):
        return names[arg]
    if isinstance(arg, (list, tuple)):
        return "[" + ", ".join(_argument(a, names, on_host) for a in arg) + "]"
    if isinstance(arg, torch.SymInt):
        return size_text(arg)
    if isinstance(arg, (torch.dtype, torch.memory_format, torch.layout)):
        return str(arg)
    if isinstance(arg, torch.device):
        if not on_host or arg.type != "cpu":
            raise NotCaptured("an operation names a device")
        return "torch.device('cpu')"
    if arg is None or isinstance(arg, (bool, int, str)):
        return repr(arg)
    if isinstance(arg, float):
        return _number(arg)
    raise NotCaptured(f"an argument that cannot be written down: {type(arg).__name__}")


def tensor_text(value: torch.Tensor) -> str:
    """Python text that makes a small tensor again on the CPU."""
    return f"torch.tensor({_nested(value.tolist())}, dtype={value.dtype})"


def _nested(value: Any) -> str:
    if isinstance(value, list):
        return "[" + ", ".join(map(_nested, value)) + "]"
    return _number(value) if isinstance(value, float) else repr(value)


def _number(value: float) -> str:
    return repr(value) if value == value and abs(value) != float("inf") else f"float('{value}')"
