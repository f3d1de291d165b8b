# SPDX-License-Identifier: Apache-2.0
"""The candidate file: the reference source, the kernels, and a ModelNew that runs them where they apply.

ModelNew subclasses the reference, so parameters, state_dict and constructor are its own; whatever lies outside
the traced program (another dtype, device, constructor argument, a wanted gradient) runs ``super().forward``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from kernelwright.proposers.templates import ir, triton_kernels, triton_online, triton_ops, triton_split
from kernelwright.proposers.templates.module import flattening

Value = int | float | str | bool

LONGEST_ROW = 32768
"""Columns that a register-held row may have (32 warps x 32 float32 values a thread)."""

_HOST = '''
_DEVICE = "cuda"
_PROCESSORS = {}
_PLAIN = (torch.Tensor, torch.nn.Parameter)
_READY = {}
_DIRECT = triton.__version__.startswith(("3.6.", "3.7."))


def _usable(*operands):
    """Tensors of the expected type on one device, not empty, with no gradient asked for."""
    if torch.is_autocast_enabled():
        return False
    grad = torch.is_grad_enabled()
    device = operands[0][0].device if isinstance(operands[0][0], torch.Tensor) else None
    if device is None or device.type != _DEVICE:
        return False
    for tensor, rank, dtype in operands:
        if type(tensor) not in _PLAIN or tensor.dtype != dtype or tensor.dim() != rank or tensor.is_neg():
            return False
        if tensor.device != device or tensor.numel() == 0 or (grad and tensor.requires_grad):
            return False
    return True


def _start(kernel, grid, warps, *args):
    """Launch; one like an earlier one (equal numbers, pointers on 16 bytes) skips Triton's argument analysis."""
    bits, key = 0, [id(kernel)]
    for arg in args:
        if type(arg) in _PLAIN:
            bits |= arg.data_ptr()
            device = arg.device.index
        else:
            key.append(arg)
    grid = grid if type(grid) is tuple else (grid, 1, 1)
    if bits % 16 or not _DIRECT:
        kernel[grid](*args, num_warps=warps)
        return
    key = (device, *key)
    ready = _READY.get(key)
    if ready is not None:
        ready(*args)
        return
    compiled = kernel[grid](*args, num_warps=warps)
    if compiled is not None and len(_READY) < 256:
        _READY[key] = compiled[grid]


def _programs(tiles, waves, device):
    """One program per tile, or so many per multiprocessor that they walk the tiles."""
    if waves == 0:
        return tiles
    if device not in _PROCESSORS:
        cuda = device.type == "cuda"
        _PROCESSORS[device] = torch.cuda.get_device_properties(device).multi_processor_count if cuda else 2
    return min(tiles, waves * _PROCESSORS[device])


def _shape(block):
    """Rows per program and warps for a row of ``block`` columns: 8 or 16 values a thread, 4 warps at least."""
    rows = max(1, 1024 // block)
    return rows, min(32, max(4, rows * block // 512))


def _enter(tensor):
    """Kernels are launched on the current device; make it the tensor's."""
    if tensor.device.type == "cuda" and tensor.device.index != torch.cuda.current_device():
        return torch.cuda.device(tensor.device)
    return nullcontext()
'''


@dataclass(frozen=True, slots=True)
class Plan:
    """How one fused step is run: a style and its parameters (R, BLOCK, WARPS, WAVES, HINT, EARLY, STAGES)."""

    style: str
    values: Mapping[str, Value]

    def number(self, name: str) -> int:
        """An integer parameter."""
        return int(self.values[name])

    @property
    def staged(self) -> bool:
        """Whether the launch says how many blocks of a row are in flight."""
        return bool(self.values.get("STAGES", 0))


@dataclass(frozen=True, slots=True, kw_only=True)
class Wrapping:
    """The reference around the program: what ModelNew inherits, and when the program speaks for it."""

    reference: str
    entry: str
    training: bool
    init: tuple[str, str] | None
    """Literals of the constructor's positional and keyword arguments that the program was traced with."""


def launch(fused: ir.Fused, number: int, plan: Plan) -> str:
    """Host text of ``_run<number>(inputs, scalars, outputs, rows, cols, inner)``."""
    totals = [i for i, v in enumerate(fused.region.values) if v.op in ir.TOTAL_REDUCTIONS]
    kinds = [fused.region.values[v].kind for v in fused.region.outputs]
    inputs = [f"p{i}" for i in range(len(fused.inputs))]
    scalars = [f"s{i}" for i in range(len(fused.scalars))]
    outputs = [f"o{i}" for i in range(len(kinds))]
    passed = inputs + [f"p{i}.numel()" for i in triton_kernels.cycles(fused)] + scalars
    passed += [o for o, kind in zip(outputs, kinds, strict=True) if kind != ir.TOTAL] + ["part"] * bool(totals)
    passed += ["band"] * triton_kernels.banded(fused)
    device = f"{(inputs + outputs)[0]}.device"
    lines = [f"def _run{number}({', '.join([*inputs, *scalars, *outputs, 'rows', 'cols', 'inner', 'band'])}):"]
    lines += [f"    {line}" for line in _extent(fused, plan)]
    lines += [f"    grid = _programs(tiles, {plan.number('WAVES')}, {device})"]
    if totals:
        lines += [f"    part = torch.empty(({len(totals)}, grid), dtype=torch.float32, device={device})"]
    sizes = "rows * cols, block" if plan.style == triton_kernels.FLAT else "rows, cols // q, inner, q, r, block"
    lines += [f"    _start(_k{number}, grid, warps, {', '.join(passed)}, {sizes}, free{', stages' * plan.staged})"]
    if totals:
        last = [o for o, kind in zip(outputs, kinds, strict=True) if kind == ir.TOTAL]
        lines += [
            "    block = min(8192, 1 << (grid - 1).bit_length())",
            f"    _start(_f{number}, 1, 8, {', '.join([*inputs, *scalars, *last])}, part, grid, block)",
        ]
    return triton_ops.computed(fused.region, "\n".join(lines))


def _extent(fused: ir.Fused, plan: Plan) -> list[str]:
    """Lines that settle block, r, warps, q, free and the number of tiles for the sizes at hand."""
    block, warps = plan.number("BLOCK"), plan.number("WARPS")
    if plan.style == triton_kernels.FLAT:
        return [
            f"block, warps = {block}, {warps}",
            "free = rows * cols % block == 0",
            "tiles = -(-rows * cols // block)",
        ]
    if plan.style == triton_kernels.ROWS:
        tuned = f"({plan.number('R')}, {warps}) if block == {block} else _shape(block)"
        lines = ["block = 1 << (cols - 1).bit_length()", f"r, warps = {tuned}"]
    else:
        lines = [f"r, warps, block = {plan.number('R')}, {warps}, {block}"]
    lines.append("q = 4 if cols % 4 == 0 else 1")
    if plan.staged:  # copies of four bytes each are slower than loads: 480 us for 329, 8192 rows of 32001 float32
        lines.append(f"stages = {plan.number('STAGES')} if q == 4 else 1")
    if fused.region.strided:
        lines.append("free = cols % block == 0 and inner % r == 0")
        down = "rows // inner * -(-inner // r)"
    else:
        lines.append("free = cols % block == 0 and rows % r == 0")
        down = "-(-rows // r)"
    across = " * -(-cols // block)" if plan.style == triton_kernels.TILE else ""
    return [*lines, f"tiles = {down}{across}"]


def longest(region: ir.Region) -> int:
    """Columns that a row of this region may have in registers, where a float64 takes two."""
    return LONGEST_ROW // (2 if region.float_type == ir.F64 else 1)


def conditions(program: ir.Program, plans: Mapping[int, Plan]) -> list[str]:
    """Guards of the program, and that each register-held row fits."""
    found = list(program.guards)
    for position, plan in plans.items():
        step = program.steps[position]
        if isinstance(step, ir.Fused) and step.region.strided:
            found.append(f"{step.cols} * {step.inner} < 2**31")  # the kernels multiply them as 32-bit numbers
        if isinstance(step, ir.Fused) and plan.style == triton_kernels.ROWS:
            found.append(f"{step.cols} <= {longest(step.region)}")
    return found


def module(
    program: ir.Program,
    plans: Mapping[int, Plan],
    wrapping: Wrapping,
    extra: Mapping[int, tuple[str, Callable[[], list[str]]]] | None = None,
) -> str:
    """The whole file. ``extra`` replaces steps: position to (definitions, lines of forward)."""
    parts = [wrapping.reference.rstrip(), "", "from contextlib import nullcontext", triton_ops.HEADER.strip("\n"), ""]
    if any(plan.style in (triton_kernels.LOOP, triton_kernels.SPLIT) for plan in plans.values()):
        parts += ["", triton_online.HEADER.strip("\n"), ""]
    extra = extra or {}
    for position, step in enumerate(program.steps):
        if position in extra:
            parts += ["", extra[position][0], ""]
        elif isinstance(step, ir.Fused):
            plan = plans[position]
            hint = str(plan.values.get("HINT", ""))
            if plan.style == triton_kernels.SPLIT:
                shape = plan.number("R"), plan.number("BLOCK"), plan.number("WARPS"), plan.number("WAVES")
                parts += ["", triton_split.kernels(step, position, hint), "", ""]
                parts += [triton_split.launch(step, position, shape), ""]
                continue
            early = bool(plan.values.get("EARLY", False))
            parts += ["", triton_kernels.kernel(step, position, plan.style, hint, early, plan.staged), ""]
            if any(v.op in ir.TOTAL_REDUCTIONS for v in step.region.values):
                parts += ["", triton_kernels.final(step, position), ""]
            parts += ["", launch(step, position, plan), ""]
    parts += [_HOST.rstrip(), "", "", *_class(program, plans, wrapping, extra)]
    return "\n".join(parts) + "\n"


def _class(
    program: ir.Program,
    plans: Mapping[int, Plan],
    wrapping: Wrapping,
    extra: Mapping[int, tuple[str, Callable[[], list[str]]]],
) -> list[str]:
    lines = [f"class ModelNew({wrapping.entry}):"]
    known = ""
    if wrapping.init is not None:
        known = " and self._as_traced"
        lines += [
            "    def __init__(self, *args, **kwargs):",
            "        super().__init__(*args, **kwargs)",
            f"        self._as_traced = list(args) == {wrapping.init[0]} and kwargs == {wrapping.init[1]}",
            "",
        ]
    count = len(program.arguments)
    leave = _leave(program)
    if program.nested:
        lines += [*flattening("_flat", program), "", "    def forward(self, *given, **kwargs):"]
        lines += ["        args = self._flat(given)"]
    else:
        lines += ["    def forward(self, *args, **kwargs):"]
    lines += [
        f"        if len(args) == {count} and not kwargs and self.training is {wrapping.training}{known}:",
    ]
    body, names = _operands(program)
    lines += [f"            {line}" for line in body]
    lines += [f"            {symbol} = {text}" for symbol, text in program.symbols]
    guards = conditions(program, plans)
    indent = "            "
    if guards:
        lines.append(f"            if {' and '.join(f'({guard})' for guard in guards)}:")
        indent += "    "
    lines.append(f"{indent}with _enter({names[0]}):")
    lines += [f"{indent}    {line}" for line in _steps(program, names, extra)]
    return [*lines, f"        {leave}"]


def _leave(program: ir.Program) -> str:
    return f"return super().forward(*{'given' if program.nested else 'args'}, **kwargs)"


def _operands(program: ir.Program) -> tuple[list[str], list[str]]:
    """Lines that name and check every source tensor; a failed check leaves through the reference."""
    lines: list[str] = []
    leave = _leave(program)
    for position, text in program.constants:
        lines.append(f"if type(args[{position}]) is not type({text}) or args[{position}] != {text}:")
        lines.append(f"    {leave}")
    checks, names = [], []
    for source in program.sources:
        name = source.tensor.name
        lines.append(f"{name} = args[{source.argument}]" if source.argument >= 0 else f"{name} = {source.attribute}")
        checks.append(f"({name}, {len(source.tensor.shape)}, torch.{source.tensor.dtype})")
        names.append(name)
    lines.append(f"if not _usable({', '.join(checks)}):")
    lines.append(f"    {leave}")
    return lines, names


def _steps(
    program: ir.Program,
    names: list[str],
    extra: Mapping[int, tuple[str, Callable[[], list[str]]]],
) -> list[str]:
    lines: list[str] = []
    dense: set[str] = set()
    for position, step in enumerate(program.steps):
        if position in extra:
            lines += extra[position][1]()
            continue
        if isinstance(step, ir.Call):
            lines.append(f"{step.output.name} = {step.expression}")
            continue
        for name in dict.fromkeys(step.inputs):
            if name not in dense:
                lines.append(f"{name} = {name}.contiguous()")
        lines += allocate(step, names[0])
        dense |= {tensor.name for tensor in step.outputs}
        number = "int" if step.region.float_type == ir.F64 else "float"
        passed = [*step.inputs, *(f"{number}({s})" for s in step.scalars), *(t.name for t in step.outputs)]
        lines.append(f"_run{position}({', '.join([*passed, step.rows, step.cols, step.inner, step.band])})")
    return [*lines, f"return {program.returned()}"]


def allocate(step: ir.Fused, like: str) -> list[str]:
    """Lines that make the step's output tensors."""
    lines = []
    for tensor in step.outputs:
        shape = f"({', '.join(tensor.shape)}{',' if len(tensor.shape) == 1 else ''})"
        lines.append(f"{tensor.name} = torch.empty({shape}, dtype=torch.{tensor.dtype}, device={like}.device)")
    return lines
