# SPDX-License-Identifier: Apache-2.0
"""Matrix products of float32 on 16-bit tensor cores: operands are cut into terms first, by a kernel of their own.

``fp16x3``: each row of the left and column of the right operand is brought to a maximum in [2^14, 2^15) by a power of
two and written as high + low / 2^11, both float16 (22 bits of every element within 2^29 of its row's largest; smaller
ones keep 2^-51 of the largest). Three products; the one of the two low terms lies below float32's rounding.
``bf16x6``: three bfloat16 terms hold all 24 bits at float32's own range; six of the nine products.
Method: Ootomo and Yokota, "Recovering single precision accuracy from Tensor Cores" (2022), with the high products
leaving the tensor core after every block, because it truncates where ordinary additions round.
"""

from __future__ import annotations

from collections.abc import Mapping

from kernelwright.proposers.templates import ir, triton_matmul
from kernelwright.proposers.templates.triton_matmul import Extra, Product
from kernelwright.proposers.templates.triton_module import Value
from kernelwright.tuning import Parameter, Space

WORTH = 1 << 33
"""Multiplications of the largest product from which cutting the operands first can pay."""

HEADER = """
from triton.tools.tensor_descriptor import TensorDescriptor


@triton.jit
def _peak(x, part, outer, depth, so, sk, DEEP: tl.constexpr, BO: tl.constexpr, BD: tl.constexpr):
    # The largest absolute value of each row within one of the parts of the inner dimension.
    o = tl.program_id(0) * BO + tl.arange(0, BO)[:, None]
    top = tl.zeros((BO, BD), tl.float32)
    for step in range(DEEP):
        k = (tl.program_id(1) * DEEP + step) * BD + tl.arange(0, BD)[None, :]
        at = x + o.to(tl.int64) * so + k.to(tl.int64) * sk
        top = _nan_max(top, tl.abs(tl.load(at, mask=(o < outer) & (k < depth), other=0.0)))
    best = tl.reduce(top, 1, _nan_max)[:, None]
    tl.store(part + tl.program_id(1) * outer + o, best, mask=o < outer)


@triton.jit
def _cut(
    x, part, terms, inverse, outer, depth, so, sk, to, tk, wide, size,
    PARTS: tl.constexpr, WIDE: tl.constexpr, HALF: tl.constexpr, BO: tl.constexpr, BD: tl.constexpr,
):
    # Terms of one tile; beyond the operand they are zero. PARTS is 0 where the tile holds whole rows.
    o = tl.program_id(0) * BO + tl.arange(0, BO)[:, None]
    k = tl.program_id(1) * BD + tl.arange(0, BD)[None, :]
    v = tl.load(x + o.to(tl.int64) * so + k.to(tl.int64) * sk, mask=(o < outer) & (k < depth), other=0.0)
    at = terms + o.to(tl.int64) * to + k.to(tl.int64) * tk
    inside = o < size // wide
    room = inside & (k < wide)
    if HALF:
        if PARTS:
            p = tl.arange(0, WIDE)[None, :]
            tops = tl.load(part + p * outer + o, mask=(p < PARTS) & (o < outer), other=0.0)
        else:
            tops = tl.abs(v)
        bits = tl.reduce(tops, 1, _nan_max)[:, None].to(tl.int32, bitcast=True)
        power = tl.minimum(tl.maximum(268 - ((bits >> 23) & 255), 1), 253)
        v = v * (power << 23).to(tl.float32, bitcast=True)
        high = v.to(tl.float16)
        tl.store(at, high, mask=room)
        tl.store(at + size, ((v - high.to(tl.float32)) * 2048.0).to(tl.float16), mask=room)
        if tl.program_id(1) == 0:
            tl.store(inverse + o, ((254 - power) << 23).to(tl.float32, bitcast=True), mask=inside)
    else:
        high = v.to(tl.bfloat16)
        v = v - high.to(tl.float32)
        middle = v.to(tl.bfloat16)
        tl.store(at, high, mask=room)
        tl.store(at + size, middle, mask=room)
        tl.store(at + size + size, (v - middle.to(tl.float32)).to(tl.bfloat16), mask=room)
"""

HOST = '''
def _up(number, block):
    return -(-number // block) * block


def _terms(x, outer, depth, axes, half, block, deep, along):
    """x as 16-bit terms: (terms, outer, depth), both sizes rounded up, or (terms, depth, outer) unless ``along``."""
    so, sk = x.stride(axes[0]), x.stride(axes[1])
    high, wide = _up(outer, block), _up(depth, deep)
    size = high * wide
    terms = torch.empty((2 if half else 3, size), dtype=torch.float16 if half else torch.bfloat16, device=x.device)
    inverse = torch.empty((high,), dtype=torch.float32, device=x.device)
    bo, bd, warps = (8, 256, 4) if sk == 1 else (64, 32, 4)
    parts, part = 0, inverse
    if half and sk == 1 and wide <= 16384:
        bd = 1 << (wide - 1).bit_length()
        bo = max(1, 4096 // bd)
        warps = max(4, bo * bd // 512)
    elif half:
        steps = max(1, depth // (bd * 16))
        parts = -(-depth // (bd * steps))
        part = torch.empty((parts, outer), dtype=torch.float32, device=x.device)
        _start(_peak, (-(-outer // bo), parts, 1), 4, x, part, outer, depth, so, sk, steps, bo, bd)
    to, tk = (wide, 1) if along else (1, high)
    grid = (-(-high // bo), -(-wide // bd), 1)
    most = 1 << max(0, parts - 1).bit_length()
    _start(
        _cut, grid, warps, x, part, terms, inverse, outer, depth, so, sk, to, tk, wide, size,
        parts, most, half, bo, bd,
    )
    return terms, inverse, (high, wide) if along else (wide, high)


def _plate(terms, number, shape, block):
    """One term as the copy engine wants it described."""
    return TensorDescriptor(terms[number], list(shape), [shape[1], 1], list(block))
'''


def _single(program: ir.Program) -> list[tuple[int, int | None, Product]]:
    """The products that are no batches, which are left to torch: operands are cut as one matrix each."""
    return [found for found in triton_matmul.pairs(program) if not found[2].batch]


def worthwhile(program: ir.Program) -> bool:
    """Whether some product is large enough that its operands may be read once more first."""
    tensors = program.tensors()
    for _, _, matrix in _single(program):
        size = tensors[matrix.left].sample[-1]
        for length in matrix.call.output.sample:
            size *= length
        if size >= WORTH:
            return True
    return False


def space(program: ir.Program) -> Space:
    """Open parameters, one choice for all products of the program."""
    return Space(
        parameters=(
            Parameter(name="TERMS", values=("fp16x3", "bf16x6")),
            Parameter(name="BM", values=(128, 64, 256)),
            Parameter(name="BN", values=(128, 64, 256)),
            Parameter(name="BK", values=(64, 32)),
            Parameter(name="WARPS", values=(8, 4)),
            Parameter(name="STAGES", values=(3, 2, 4)),
            Parameter(name="BULK", values=(False, True)),
        ),
        # Every term of a stage lies in shared memory (227 KiB); two or three accumulators in registers.
        constraints=(
            "(BM + BN) * BK * STAGES * (4 if TERMS == 'fp16x3' else 6) <= 224 * 1024",
            "BM * BN <= 2048 * WARPS",
            "BM * BN >= 512 * WARPS",
        ),
    )


def extras(program: ir.Program, values: Mapping[str, Value]) -> dict[int, Extra]:
    """Replacements of the program's steps for ``triton_module.module``."""
    chosen = {p.name: p.values[0] for p in space(program).parameters} | dict(values)
    found: dict[int, Extra] = {}
    like = program.sources[0].tensor.name
    for position, reader, matrix in _single(program):
        fused = program.steps[reader] if reader is not None else triton_matmul.identity(matrix)
        assert isinstance(fused, ir.Fused)
        place = position if reader is None else reader
        text = "\n".join([_kernel(matrix, fused, place), "", "", _launch(matrix, fused, place, chosen)])
        if not found:
            text = "\n".join([HEADER.strip("\n"), "", HOST.rstrip("\n"), "", "", text])
        if reader is not None:
            found[position] = ("", list)
        found[place] = (text, triton_matmul.caller(matrix, fused, place, like))
    return found


_FIXED = ("BM", "BN", "BK", "STAGES", "HALF", "BULK", "FREE", "FLIPPED")


_OPERANDS = ("a1", "a2", "a3", "b1", "b2", "b3", "lower", "upper")
_SIZES = ("rows", "cols", "wide", "rk", "rn", "one")


def _kernel(matrix: Product, fused: ir.Fused, number: int) -> str:
    return triton_matmul.kernel(matrix, fused, number, operands=_OPERANDS, sizes=_SIZES, fixed=_FIXED, lines=_PRODUCT)


_PRODUCT = """\
down = tl.cdiv(rows, BM)
across = tl.cdiv(cols, BN)
group = tl.program_id(0) // (8 * across)
height = tl.minimum(down - group * 8, 8)
within = tl.program_id(0) % (8 * across)
top = (group * 8 + within % height) * BM
left = (within // height) * BN
i = top + tl.arange(0, BM)
j = left + tl.arange(0, BN)
k = tl.arange(0, BK)
if not BULK:
    a_at = i[:, None] * tl.full((), 1, tl.int64) * wide + k[None, :]
    b_at = j[None, :] * tl.full((), 1, tl.int64) * rn + k[:, None] * rk
acc = tl.zeros((BM, BN), tl.float32)
small = tl.zeros((BM, BN), tl.float32)
for start in tl.range(0, wide, BK, num_stages=STAGES):
    if BULK:
        x1 = a1.load([top, start])
        x2 = a2.load([top, start])
        if FLIPPED:
            y1 = b1.load([left, start]).T
            y2 = b2.load([left, start]).T
        else:
            y1 = b1.load([start, left])
            y2 = b2.load([start, left])
        if not HALF:
            x3 = a3.load([top, start])
            y3 = b3.load([left, start]).T if FLIPPED else b3.load([start, left])
    else:
        down_b = tl.full((), 1, tl.int64) * start * rk
        x1 = tl.load(a1 + start + a_at)
        x2 = tl.load(a2 + start + a_at)
        y1 = tl.load(b1 + down_b + b_at)
        y2 = tl.load(b2 + down_b + b_at)
        if not HALF:
            x3 = tl.load(a3 + start + a_at)
            y3 = tl.load(b3 + down_b + b_at)
    part = tl.dot(x1, y1)
    if not HALF:
        small = tl.dot(x3, y1, small)
        small = tl.dot(x1, y3, small)
        small = tl.dot(x2, y2, small)
    small = tl.dot(x2, y1, small)
    small = tl.dot(x1, y2, small)
    # A plain sum would be folded into the product's own accumulator; fma with a 1 from outside is not.
    acc = tl.fma(part, one, acc)
if HALF:
    acc = tl.fma(small, one * 0.00048828125, acc)
    acc = acc * tl.load(lower + i)[:, None] * tl.load(upper + j)[None, :]
else:
    acc = acc + small
r = i[:, None]
c = j[None, :]
rm = None if FREE else r < rows
cm = None if FREE else c < cols
m = None if FREE else rm & cm
base = r * tl.full((), 1, tl.int64) * cols
at = base + c""".splitlines()


def _launch(matrix: Product, fused: ir.Fused, number: int, values: Mapping[str, Value]) -> str:
    slot = fused.inputs.index(matrix.call.output.name)
    others = ["bias"] * bool(matrix.bias) + [f"p{i}" for i in range(len(fused.inputs)) if i != slot]
    others += [f"s{i}" for i in range(len(fused.scalars))] + [f"o{i}" for i in range(len(fused.outputs))]
    bm, bn, bk, half = values["BM"], values["BN"], values["BK"], values["TERMS"] == "fp16x3"
    k_axis, n_axis = matrix.right_axes
    names = ", ".join(["left", "right", *others, "rows", "cols", "depth"])
    passed = ", ".join([*others, "rows", "cols", "shape[1]", "rk", "rn", "1.0"])
    # Descriptors are no plain arguments: Triton's own launcher unpacks them.
    tiles, warps = f"-(-rows // {bm}) * -(-cols // {bn})", values["WARPS"]
    begin, close = f"_start(\n        _k{number}, {tiles}, {warps},", ","
    if values["BULK"]:
        begin, close = f"_k{number}[({tiles},)](", f", num_warps={warps},"
    fixed = f"{bm}, {bn}, {bk}, {values['STAGES']}, {half}, {values['BULK']}, free, flipped"
    return f"""\
def _run{number}({names}):
    left = left.reshape(-1, depth)
    flipped = right.stride({k_axis}) == 1
    a, lower, shape = _terms(left, rows, depth, (0, 1), {half}, {bm}, {bk}, True)
    b, upper, other = _terms(right, cols, depth, ({n_axis}, {k_axis}), {half}, {bn}, {bk}, flipped)
    rk, rn = (1, other[1]) if flipped else (other[1], 1)
    free = rows % {bm} == 0 and cols % {bn} == 0
    if {values["BULK"]}:
        plate = ({bn}, {bk}) if flipped else ({bk}, {bn})
        a = [_plate(a, number, shape, ({bm}, {bk})) for number in range(len(a))]
        b = [_plate(b, number, other, plate) for number in range(len(b))]
    {begin}
        a[0], a[1], a[-1], b[0], b[1], b[-1], lower, upper, {passed},
        {fixed}{close}
    )"""
