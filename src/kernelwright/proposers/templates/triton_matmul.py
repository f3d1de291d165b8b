# SPDX-License-Identifier: Apache-2.0
"""A matrix product with the region that reads it computed on the accumulator, before it is written.

float32 stays float32: ``ieee`` multiplies on the ordinary units; ``tf32x3`` (three TF32 products) and ``bf16x6``
(six bfloat16 products) split each operand so that the tensor cores lose next to nothing. Partial sums leave the
tensor core every CHUNK blocks, because it truncates where ordinary adds round. The judge decides which hold.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from kernelwright.proposers.templates import ir, triton_kernels
from kernelwright.proposers.templates.sizes import product
from kernelwright.proposers.templates.triton_module import Value, allocate
from kernelwright.tuning import Parameter, Space

Extra = tuple[str, Callable[[], list[str]]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Product:
    """One matrix product of the program, as ``left[M, K] @ right[K, N] (+ bias[N])``, or a batch of them."""

    call: ir.Call
    left: str
    right: str
    bias: str
    right_axes: tuple[int, int]
    """Dimensions of ``right`` that run along K and N."""
    rows: str
    cols: str
    depth: str
    batch: str = ""
    """How many products of ``rows x depth`` by ``depth x cols``, or nothing where there is one."""


def read(program: ir.Program, call: ir.Call) -> Product | None:
    """The product that a call makes, or None where it is of another dtype, broadcast, or has an odd bias."""
    tensors = program.tensors()
    kind = call.target.split(".")[1] if call.target in ir.MATMULS else ""
    if not kind:
        return None
    if kind == "addmm":
        bias, left, right = call.operands[:3]
    else:
        left, right = call.operands[:2]
        bias = call.operands[2] if kind == "linear" and len(call.operands) > 2 else ""
    known = [tensors.get(name) for name in (left, right, *([bias] if bias else []))]
    if any(tensor is None or tensor.dtype != "float32" for tensor in known):
        return None
    a, b = tensors[left], tensors[right]
    if len(b.shape) > 2 and a.shape[:-2] == b.shape[:-2] and not bias:
        *batch, rows, cols = call.output.shape
        every = product(batch)
        return Product(call=call, left=left, right=right, bias="", right_axes=(1, 2), rows=rows, cols=cols,
                       depth=a.shape[-1], batch=every)  # fmt: skip
    if len(b.shape) != 2 or len(a.shape) < 2 or (bias and len(tensors[bias].shape) != 1):
        return None
    if kind == "addmm" and ("alpha" in call.expression or "beta" in call.expression):
        return None
    shape = call.output.shape
    return Product(
        call=call,
        left=left,
        right=right,
        bias=bias,
        right_axes=(1, 0) if kind == "linear" else (0, 1),
        rows=product(shape[:-1]),
        cols=shape[-1],
        depth=a.shape[-1],
    )


def fusible(fused: ir.Fused, found: Product) -> bool:
    """Whether the region is pointwise over exactly the elements of the product."""
    region = fused.region
    if any(
        v.op in ir.ROW_REDUCTIONS | ir.TOTAL_REDUCTIONS | ir.SCANS or v.op in ("pick", "take", "bag")
        for v in region.values
    ):
        return False
    if region.strided or any(region.values[v].kind != ir.FULL for v in region.outputs):
        return False
    kinds = {v.kind for v in region.values}
    if found.batch and fused.cols == product((found.rows, found.cols)):
        return not kinds & {ir.TILE, ir.BAND}
    shared = {ir.BAND} if found.batch else {ir.CYCLE, ir.TILE, ir.BAND}
    return region.flat or (fused.cols == found.cols and not kinds & shared)


def pairs(program: ir.Program) -> list[tuple[int, int | None, Product]]:
    """(position of the call, position of the region that reads it or None, what it computes) of every product."""
    epilogues = dict(ir.matmul_epilogues(program))
    found: list[tuple[int, int | None, Product]] = []
    for position, step in enumerate(program.steps):
        if isinstance(step, ir.Fused):
            continue
        matrix = read(program, step)
        if matrix is None:
            continue
        reader = epilogues.get(position)
        fused = program.steps[reader] if reader is not None else None
        fits = isinstance(fused, ir.Fused) and fusible(fused, matrix)
        found.append((position, reader if fits else None, matrix))
    return found


def space(program: ir.Program) -> Space:
    """Open parameters, one choice for all products of the program.

    Measured on an H200 at 4096 x 4096 x 4096: with the right operand stored by columns (a linear layer) tf32x3 runs
    1.6 times cuBLAS float32; stored by rows, Hopper's tensor cores cannot read 32-bit values transposed and
    bf16x6 is the faster one (1.3 times). From 2^33 multiplications on, ``triton_terms`` is faster than either.
    """
    by_columns = all(matrix.right_axes == (1, 0) for _, _, matrix in pairs(program))
    splits = ("tf32x3", "bf16x6", "ieee") if by_columns else ("bf16x6", "tf32x3", "ieee")
    return Space(
        parameters=(
            Parameter(name="PRECISION", values=splits),
            Parameter(name="BM", values=(128, 64, 256)),
            Parameter(name="BN", values=(128, 64, 256)),
            Parameter(name="BK", values=(32, 16, 64)),
            Parameter(name="CHUNK", values=(2, 1, 4)),
            Parameter(name="WARPS", values=(8, 4)),
            Parameter(name="STAGES", values=(3, 2, 4)),
        ),
        # The loads of a whole chunk are in flight per stage and must fit 227 KiB of shared memory with what the
        # split operands need; the accumulators must fit the registers.
        constraints=(
            "(BM + BN) * BK * CHUNK * (STAGES - 1) * 4 + (BM + BN) * BK * 4 <= 224 * 1024",
            "BM * BN <= 4096 * WARPS",
            "BM * BN >= 512 * WARPS",
        ),
    )


def extras(program: ir.Program, values: Mapping[str, Value]) -> dict[int, Extra]:
    """Replacements of the program's steps for ``triton_module.module``."""
    chosen = {p.name: p.values[0] for p in space(program).parameters} | dict(values)
    found: dict[int, Extra] = {}
    like = program.sources[0].tensor.name
    for position, reader, matrix in pairs(program):
        fused = program.steps[reader] if reader is not None else identity(matrix)
        assert isinstance(fused, ir.Fused)
        place = position if reader is None else reader
        text = "\n".join([_kernel(matrix, fused, place), "", "", _launch(matrix, fused, place, chosen)])
        if reader is not None:
            found[position] = ("", list)
        found[place] = (text, caller(matrix, fused, place, like))
    return found


def identity(matrix: Product) -> ir.Fused:
    """A region that stores the product unchanged."""
    value = ir.Value(op="input", kind=ir.FULL, index=0)
    return ir.Fused(
        region=ir.Region(values=(value,), outputs=(0,)),
        inputs=(matrix.call.output.name,),
        scalars=(),
        outputs=(matrix.call.output,),
        rows="1",
        cols=product(matrix.call.output.shape),
    )


_FIXED = ("BM", "BN", "BK", "CHUNK", "STAGES", "FREE", "PRECISION")


def _kernel(matrix: Product, fused: ir.Fused, number: int) -> str:
    sizes: tuple[str, ...] = ("rows", "cols", "depth", "lm", "lk", "rk", "rn")
    if matrix.batch:
        end = _OF_MATRICES if fused.cols != matrix.cols and not fused.region.flat else _OF_BATCH
        lines = [*_BATCH, *_PRODUCT[: -len(_OF_BATCH)], *end]
        sizes = (*sizes, "lb", "rb")
        return kernel(matrix, fused, number, operands=("left", "right"), sizes=sizes, fixed=_FIXED, lines=lines)
    return kernel(matrix, fused, number, operands=("left", "right"), sizes=sizes, fixed=_FIXED, lines=_PRODUCT)


def kernel(
    matrix: Product,
    fused: ir.Fused,
    number: int,
    *,
    operands: Sequence[str],
    sizes: Sequence[str],
    fixed: Sequence[str],
    lines: Sequence[str],
) -> str:
    """``lines``, which leave a tile of the product in ``acc`` at rows ``i`` and columns ``j``, then the epilogue.

    ``operands`` come first among its arguments, ``sizes`` after the epilogue's own, ``fixed`` at compile time.
    """
    style = triton_kernels.FLAT if fused.region.flat else triton_kernels.ROWS
    writer = triton_kernels.Writer(fused, style)
    slot = fused.inputs.index(matrix.call.output.name)
    arguments = [*operands, *["bias"] * bool(matrix.bias)]
    arguments += [name for name in triton_kernels.signature(fused, False) if name != f"p{slot}"]
    arguments += [*sizes, *(f"{name}: tl.constexpr" for name in fixed)]
    for line in lines:
        writer.put(line)
    if matrix.bias:
        writer.put("acc = acc + tl.load(bias + j, mask=j < cols)[None, :]")
    for position, value in enumerate(fused.region.values):
        if value.op == "input" and value.index == slot:
            writer.names[position] = "acc"
    for output in range(len(fused.outputs)):
        writer.store(output)
    return "\n".join(["@triton.jit", f"def _k{number}({', '.join(arguments)}):", *writer.lines])


_PRODUCT = """\
down = tl.cdiv(rows, BM)
across = tl.cdiv(cols, BN)
group = tl.program_id(0) // (8 * across)
height = tl.minimum(down - group * 8, 8)
within = tl.program_id(0) % (8 * across)
i = (group * 8 + within % height) * BM + tl.arange(0, BM)
j = (within // height) * BN + tl.arange(0, BN)
k = tl.arange(0, BK)
a_at = left + i[:, None] * tl.full((), 1, tl.int64) * lm + k[None, :] * lk
b_at = right + j[None, :] * tl.full((), 1, tl.int64) * rn + k[:, None] * rk
acc = tl.zeros((BM, BN), tl.float32)
for start in tl.range(0, depth, BK * CHUNK, num_stages=STAGES):
    part = tl.zeros((BM, BN), tl.float32)
    for step in tl.static_range(CHUNK):
        if FREE:
            a = tl.load(a_at)
            b = tl.load(b_at)
        else:
            left_over = depth - start - step * BK
            a = tl.load(a_at, mask=(i[:, None] < rows) & (k[None, :] < left_over), other=0.0)
            b = tl.load(b_at, mask=(k[:, None] < left_over) & (j[None, :] < cols), other=0.0)
        part = tl.dot(a, b, part, input_precision=PRECISION)
        a_at += BK * lk
        b_at += BK * rk
    acc = acc + part
r = i[:, None]
c = j[None, :]
rm = r < rows
cm = c < cols
m = rm & cm
base = r * tl.full((), 1, tl.int64) * cols
at = base + c""".splitlines()
_BATCH = """\
one = tl.program_id(1) * tl.full((), 1, tl.int64)
left += one * lb
right += one * rb""".splitlines()
_OF_BATCH = """\
r = one * rows + i[:, None]
c = j[None, :]
rm = i[:, None] < rows
cm = c < cols
m = rm & cm
base = r * cols
at = base + c""".splitlines()
"""In place of the last lines of a product: rows are those of the whole batch."""
_OF_MATRICES = """\
r = one + tl.zeros((BM, 1), tl.int64)
c = i[:, None] * cols + j[None, :]
rm = i[:, None] < rows
cm = rm & (j[None, :] < cols)
m = cm
base = r * rows * cols
at = base + c""".splitlines()
"""The same where each matrix of the batch is one row of the region."""


def _launch(matrix: Product, fused: ir.Fused, number: int, values: Mapping[str, Value]) -> str:
    slot = fused.inputs.index(matrix.call.output.name)
    operands = ["left", "right"] + ["bias"] * bool(matrix.bias)
    others = [f"p{i}" for i in range(len(fused.inputs)) if i != slot]
    rest = [f"s{i}" for i in range(len(fused.scalars))] + [f"o{i}" for i in range(len(fused.outputs))]
    passed = ", ".join([*operands, *others, *(f"p{i}.numel()" for i in triton_kernels.cycles(fused)), *rest])
    others += rest
    k_axis, n_axis = matrix.right_axes
    fixed = [values["BM"], values["BN"], values["BK"], values["CHUNK"], values["STAGES"]]
    strides = f"left.stride(0), left.stride(1), right.stride({k_axis}), right.stride({n_axis})"
    text = f"def _run{number}({', '.join([*operands, *others, 'rows', 'cols', 'depth'])}):\n"
    if matrix.batch:
        strides = "left.stride(1), left.stride(2), right.stride(1), right.stride(2), left.stride(0), right.stride(0)"
        text += "    left, right = left.reshape(-1, rows, depth), right.reshape(-1, depth, cols)\n"
    else:
        text += "    left = left.reshape(-1, depth)\n"
    text += f"    free = rows % {fixed[0]} == 0 and cols % {fixed[1]} == 0"
    text += f" and depth % {int(fixed[2]) * int(fixed[3])} == 0\n"
    text += f"    grid = -(-rows // {fixed[0]}) * -(-cols // {fixed[1]})\n"
    text += "    grid = (grid, left.shape[0], 1)\n" if matrix.batch else ""
    text += f"    _start(\n        _k{number}, grid, {values['WARPS']},\n"
    text += f"        {passed}, rows, cols, depth,\n"
    return text + f"        {strides},\n        {', '.join(map(str, fixed))}, free, {values['PRECISION']!r},\n    )"


def caller(matrix: Product, fused: ir.Fused, number: int, like: str) -> Callable[[], list[str]]:
    """Lines of forward that run ``_run<number>`` on the product's operands and the region's other inputs."""

    def lines() -> list[str]:
        others = [name for name in fused.inputs if name != matrix.call.output.name]
        found = [f"{name} = {name}.contiguous()" for name in dict.fromkeys(others)]
        found += [f"{matrix.bias} = {matrix.bias}.contiguous()"] * bool(matrix.bias)
        found += allocate(fused, like)
        passed = [matrix.left, matrix.right, *([matrix.bias] if matrix.bias else []), *others]
        passed += [f"float({s})" for s in fused.scalars] + [tensor.name for tensor in fused.outputs]
        return [*found, f"_run{number}({', '.join([*passed, matrix.rows, matrix.cols, matrix.depth])})"]

    return lines
