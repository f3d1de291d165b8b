# SPDX-License-Identifier: Apache-2.0
"""A window as one Triton kernel: every program gathers the boxes of BLOCK neighbouring elements of the result."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from kernelwright.proposers.templates import cpp_window, ir
from kernelwright.proposers.templates.triton_module import Value
from kernelwright.tuning import Parameter, Space

Extra = tuple[str, Callable[[], list[str]]]

_KERNEL = """
@triton.jit
def _k{number}(p0, p1, p2, o0, count, channels, D, H, N, OD, OH, ON, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    m = at < count
    on = at % ON
    row = at // ON
    oh = row % OH
    od = row // OH % OD
    plane = row // (OH * OD)
    base = (plane // {repeats}).to(tl.int64) * D * H * N
    acc = {start}
    for i in {range}({kernel[0]}):
        d = od * {stride[0]} - {padding[0]} + i * {dilation[0]}
        for j in {range}({kernel[1]}):
            h = oh * {stride[1]} - {padding[1]} + j * {dilation[1]}
            line = base + (d * H + h) * N
            for k in {range}({kernel[2]}):
                n = on * {stride[2]} - {padding[2]} + k * {dilation[2]}
                inside = {inside}
                x = tl.load(p0 + line + n, mask=inside, other={neutral}).to(tl.float32)
                {step}
    tl.store(o0 + at, {result}, mask=m)


def _run{number}(p0, p1, p2, o0, planes, channels, d, h, n, od, oh, on):
    count = planes * od * oh * on
    grid = -(-count // {block})
    _start(_k{number}, grid, {warps}, p0, p1, p2, o0, count, channels, d, h, n, od, oh, on, {block})
"""

LONGEST = 2**31 - 4096
"""Elements that a kernel counts in 32 bits, the last block included."""


def space() -> Space:
    """Open parameters of programs that are windows and nothing else."""
    return Space(
        parameters=(
            Parameter(name="BLOCK", values=(512, 128, 256, 1024, 2048)),
            Parameter(name="WARPS", values=(4, 2, 8)),
        ),
        constraints=("BLOCK >= 32 * WARPS",),
    )


def extras(program: ir.Program, values: Mapping[str, Value]) -> dict[int, Extra]:
    """Definitions and calls of every window of a program, by its step."""
    tensors = program.tensors()
    found: dict[int, Extra] = {}
    for position, step in enumerate(program.steps):
        if isinstance(step, ir.Call) and step.window is not None and step.output.dtype == "float32":
            shape = int(values.get("BLOCK", 512)), int(values.get("WARPS", 4))
            biased = bool(step.operands[2:] and step.operands[2])
            found[position] = (kernel(step.window, position, biased, *shape), _caller(step, position, tensors))
    return found


def kernel(window: ir.Window, number: int, biased: bool, block: int, warps: int) -> str:
    """Device and host text of one window."""
    taps = window.kernel[0] * window.kernel[1] * window.kernel[2]
    largest, dot = window.kind == "max", window.kind == "dot"
    inside = ["m"]
    for name, size, padding in zip("dhn", "DHN", window.padding, strict=True):
        inside += [f"({name} >= 0)", f"({name} < {size})"] if padding else []
    weight = f"tl.load(p1 + plane % channels * {taps} + (i * {window.kernel[1]} + j) * {window.kernel[2]} + k, mask=m)"
    start = 'tl.full((BLOCK,), float("-inf"), tl.float32)' if largest else "tl.zeros((BLOCK,), tl.float32)"
    if biased:
        start = "tl.load(p2 + plane % channels, mask=m).to(tl.float32)"
    step = "acc = _nan_max(acc, x)" if largest else "acc = acc + x"
    return _KERNEL.format(
        number=number,
        repeats=window.repeats,
        range="tl.static_range" if taps <= 32 else "range",
        kernel=window.kernel,
        stride=window.stride,
        padding=window.padding,
        dilation=window.dilation,
        inside=" & ".join(inside),
        neutral='float("-inf")' if largest else "0.0",
        start=start,
        step=f"acc = tl.fma({weight}.to(tl.float32), x, acc)" if dot else step,
        result=f"tl.div_rn(acc, {float(taps)})" if window.kind == "mean" else "acc",
        block=block,
        warps=warps,
    )


def _caller(call: ir.Call, number: int, tensors: dict[str, ir.Tensor]) -> Callable[[], list[str]]:
    return lambda: _lines(call, number, tensors)


def _lines(call: ir.Call, number: int, tensors: dict[str, ir.Tensor]) -> list[str]:
    made, source = call.output.name, call.operands[0]
    sizes = cpp_window.arguments(call, tensors)[4:]
    assert call.window is not None
    operands = [*call.operands, "", ""][:3] if call.window.kind == "dot" else [source]
    names = [name or source for name in operands] + [source] * (3 - len(operands))
    return [
        f"if max({source}.numel(), {' * '.join(f'({size})' for size in call.output.shape)}) > {LONGEST}:",
        f"    {made} = {call.expression}",
        "else:",
        *(f"    {name} = {name}.contiguous()" for name in dict.fromkeys(names)),
        f"    {made} = {source}.new_empty(({', '.join(call.output.shape)},))",
        f"    _run{number}({', '.join([*names, made, *sizes])})",
    ]
