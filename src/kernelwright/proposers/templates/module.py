# SPDX-License-Identifier: Apache-2.0
"""The Python side of a C++ candidate: the reference's own source, and a ``ModelNew`` over it that calls the kernels."""

from __future__ import annotations

from collections.abc import Sequence

from kernelwright.proposers.templates import cpp_signature, cpp_window
from kernelwright.proposers.templates.graph import Capture
from kernelwright.proposers.templates.ir import FULL, READS, Call, Fused, Program, Source, Tensor

_FRESH = frozenset(
    "aten.linear.default aten.mm.default aten.addmm.default aten.bmm.default aten.baddbmm.default"
    " aten.conv1d.default aten.conv2d.default aten.conv3d.default".split()
)
"""Calls that always return memory of their own, which a region may overwrite with its result."""


def source(reference: str, entry: str, program: Program, capture: Capture, library: str) -> str:
    """The whole candidate file. The fast path takes the types that were traced; else the reference runs."""
    lines = [reference.rstrip(), "", "", *_header(library, program), "", "", f"class ModelNew({entry}):"]
    lines += ['    """The reference with its forward replaced wherever the kernels apply."""', ""]
    lines += [
        "    def __init__(self, *args, **kwargs):",
        "        super().__init__(*args, **kwargs)",
        "        # The kernels were derived for these constructor arguments; others keep the reference's forward.",
        f"        self._kw_fast = list(args) == {capture.init[0]} and kwargs == {capture.init[1]}",
        "",
        *_forward(program),
        "",
        *_ready(program, capture.training),
        "",
        *_run(program),
    ]
    return "\n".join(lines) + "\n"


def _forward(program: Program) -> list[str]:
    if not program.nested:
        return [
            "    def forward(self, *args, **kwargs):",
            "        if self._kw_fast and not kwargs and self._kw_ready(args):",
            "            return self._kw_run(*args)",
            "        return super().forward(*args, **kwargs)",
        ]
    return [
        "    def forward(self, *args, **kwargs):",
        "        flat = self._kw_flat(args) if self._kw_fast and not kwargs else ()",
        "        if flat and self._kw_ready(flat):",
        "            return self._kw_run(*flat)",
        "        return super().forward(*args, **kwargs)",
        "",
        *flattening("_kw_flat", program),
    ]


def flattening(name: str, program: Program) -> list[str]:
    """The method that takes nested arguments apart."""
    return [
        f"    def {name}(self, args):",
        '        """What lies in the arguments, one after the other; nothing where they are nested otherwise."""',
        "        if not (" + "\n            and ".join(program.nested) + "\n        ):",
        "            return ()",
        f"        return ({', '.join(program.reached)},)",
    ]


def _header(library: str, program: Program) -> list[str]:
    lines = [
        "import ctypes as _kw_ctypes",
        "import pathlib as _kw_pathlib",
        "",
        "import torch",
        "",
        f'_KW_LIBRARY = _kw_ctypes.CDLL(str(_kw_pathlib.Path(__file__).resolve().parent / "{library}"))',
    ]
    for number, fused in enumerate(program.regions()):
        pointers = len(fused.inputs) + len(fused.outputs)
        integers = len(cpp_signature.cycles_of(fused.region)) + 3 + cpp_signature.banded(fused.region)
        lines += [
            f"_kw_region{number} = _KW_LIBRARY.kw_region{number}",
            f"_kw_region{number}.restype = None",
            f"_kw_region{number}.argtypes = [_kw_ctypes.c_void_p] * {pointers}"
            f" + [_kw_ctypes.c_int64] * {integers} + [_kw_ctypes.c_double] * {len(fused.scalars)}",
        ]
    for number, _ in enumerate(program.windows()):
        lines += [
            f"_kw_window{number} = _KW_LIBRARY.kw_window{number}",
            f"_kw_window{number}.restype = None",
            f"_kw_window{number}.argtypes = [_kw_ctypes.c_void_p] * 4 + [_kw_ctypes.c_int64] * 8",
        ]
    return lines


def _attributes(program: Program) -> list[str]:
    return [f"{s.tensor.name} = {s.attribute}" for s in _used(program) if s.argument < 0]


def _used(program: Program) -> list[Source]:
    read = {name for step in program.steps for name in (step.inputs if isinstance(step, Fused) else step.operands)}
    return [s for s in program.sources if s.argument >= 0 or s.tensor.name in read]


def _ready(program: Program, training: bool | None) -> list[str]:
    """The method that says whether the fast path holds for these arguments."""
    mode = {None: "", True: " or not self.training", False: " or self.training"}[training]
    lines = [
        "    def _kw_ready(self, args):",
        f"        if len(args) != {len(program.arguments)}{mode} or torch.is_autocast_enabled('cpu'):",
        "            return False",
    ]
    for position, text in program.constants:
        lines.append(f"        if args[{position}] != {text}:")
        lines.append("            return False")
    names = [name for name in program.arguments if name]
    for position, name in enumerate(program.arguments):
        if name:
            lines.append(f"        {name} = args[{position}]")
    sources = _used(program)
    lines += [f"        {line}" for line in _attributes(program)]
    every = ", ".join(s.tensor.name for s in sources)
    tests = [f"type({name}) is torch.Tensor" for name in names]
    tests += [_typed(s.tensor) for s in sources]
    lines.append("        if not (" + "\n            and ".join(tests) + "\n        ):")
    lines.append("            return False")
    lines.append(f"        if torch.is_grad_enabled() and any(t.requires_grad for t in ({every},)):")
    lines.append("            return False")
    lines += [f"        {symbol} = {text}" for symbol, text in program.symbols]
    checks = " and ".join(f"({guard})" for guard in program.guards) or "True"
    lines.append(f"        return {checks}")
    return lines


def _typed(tensor: Tensor) -> str:
    name = tensor.name
    return (
        f"{name}.dtype is torch.{tensor.dtype} and {name}.dim() == {len(tensor.shape)}"
        f" and {name}.is_cpu and {name}.is_contiguous() and not {name}.is_neg()"
    )


def _run(program: Program) -> list[str]:
    names = [name or f"_c{position}" for position, name in enumerate(program.arguments)]
    lines = [f"    def _kw_run(self, {', '.join(names)}):"]
    lines += [f"        {line}" for line in _attributes(program)]
    used = _names_in(program)
    lines += [f"        {symbol} = {text}" for symbol, text in program.symbols if symbol in used]
    number = 0
    tensors, windows = program.tensors(), program.windows()
    for position, step in enumerate(program.steps):
        if isinstance(step, Call) and step.window is not None:
            lines += [f"        {line}" for line in _window(step, windows.index(step), tensors)]
        elif isinstance(step, Call):
            lines.append(f"        {step.output.name} = {step.expression}")
        else:
            lines += [f"        {line}" for line in _call(program, position, step, number, tensors)]
            number += 1
    return [*lines, f"        return {program.returned()}"]


def _window(call: Call, number: int, tensors: dict[str, Tensor]) -> list[str]:
    return [
        f"{call.operands[0]} = {call.operands[0]}.contiguous()",
        f"{call.output.name} = torch.empty(({', '.join(call.output.shape)},))",
        f"_kw_window{number}({', '.join(cpp_window.arguments(call, tensors))})",
    ]


def _names_in(program: Program) -> str:
    parts: list[str] = []
    tensors = program.tensors()
    for step in program.steps:
        if isinstance(step, Call) and step.window is not None:
            parts += [*step.output.shape, *tensors[step.operands[0]].shape]
        elif isinstance(step, Call):
            parts.append(step.expression)
        else:
            parts += [
                step.rows,
                step.cols,
                step.inner,
                step.band,
                *step.scalars,
                *(d for t in step.outputs for d in t.shape),
            ]
    return " ".join(parts)


def _call(program: Program, position: int, fused: Fused, number: int, tensors: dict[str, Tensor]) -> Sequence[str]:
    lines = []
    made = {step.output.name for step in program.steps if isinstance(step, Call)}
    for name in fused.inputs:
        if name in made:
            lines.append(f"if not {name}.is_contiguous():")
            lines.append(f"    {name} = {name}.contiguous()")
    reused: set[str] = set()
    for slot, tensor in enumerate(fused.outputs):
        over = _overwritten(program, position, fused, slot, reused)
        if over:
            reused.add(over)
            lines.append(f"{tensor.name} = {over}")
        else:
            lines.append(f"{tensor.name} = {_empty(tensor, program)}")
    arguments = [f"{name}.data_ptr()" for name in fused.inputs] + [f"{t.name}.data_ptr()" for t in fused.outputs]
    arguments += [f"{fused.inputs[i]}.numel()" for i in cpp_signature.cycles_of(fused.region)]
    arguments += [
        fused.rows,
        fused.cols,
        fused.inner,
        *([fused.band] * cpp_signature.banded(fused.region)),
        *fused.scalars,
    ]
    lines.append(f"_kw_region{number}({', '.join(arguments)})")
    return lines


def _empty(tensor: Tensor, program: Program) -> str:
    """An expression for fresh memory, made like a source of the same shape where there is one.

    In a call whose instructions are in no cache torch.empty takes 60 us, to parse sizes and a dtype, and empty_like 28.
    """
    for source in _used(program):
        if source.tensor.shape == tensor.shape and source.tensor.dtype == tensor.dtype:
            return f"torch.empty_like({source.tensor.name}, memory_format=torch.contiguous_format)"
    shape = ", ".join(tensor.shape) + ("," if len(tensor.shape) == 1 else "")
    return f"torch.empty(({shape}), dtype=torch.{tensor.dtype})"


def _overwritten(program: Program, position: int, fused: Fused, slot: int, reused: set[str]) -> str:
    """A tensor that dies in this region and whose memory can take the output, or an empty name.

    Safe because an element is read before its place is written, in the region's last pass over its row.
    """
    output = fused.outputs[slot]
    value = fused.region.values[fused.region.outputs[slot]]
    if value.kind != FULL or value.dtype not in ("f32", "f64") or fused.region.strided or len(fused.outputs) > 1:
        return ""
    for step in program.steps[:position]:
        made = isinstance(step, Call) and (step.target in _FRESH or step.window is not None)
        fresh = [step.output] if isinstance(step, Call) and made else []
        fresh = list(step.outputs) if isinstance(step, Fused) else fresh
        for tensor in fresh:
            if tensor.shape != output.shape or tensor.dtype != output.dtype or tensor.name in reused:
                continue
            if tensor.name not in fused.inputs or program.readers(tensor.name) != [position]:
                continue
            if _kind_of(fused, tensor.name) == FULL:
                return tensor.name
    return ""


def _kind_of(fused: Fused, name: str) -> str:
    slot = fused.inputs.index(name)
    kinds = {v.kind if v.op == "input" else "" for v in fused.region.values if v.index == slot and v.op in READS}
    return kinds.pop() if len(kinds) == 1 else ""
