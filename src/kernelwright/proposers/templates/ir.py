# SPDX-License-Identifier: Apache-2.0
"""The fused-program form: pure data between the traced graph and the C++ and Triton emitters; this form is stable.

A ``Program`` is a straight line of steps: ``Call`` (one torch operation, kept as it is) and ``Fused`` (a
``Region``: pointwise operations and reductions over one iteration space). An emitter that meets an op it does
not know declines the program. Nothing here needs torch.

The iteration space of a region is ``rows x cols``; a tensor of it is read contiguously:

=======  ==========================  ==================================================================
kind     elements                    flat index at (row r, column c)
=======  ==========================  ==================================================================
FULL     rows * cols                 ``r * cols + c``
ROW      rows                        ``r``
COLUMN   cols                        ``c``
CYCLE    a divisor p of rows         ``r % p`` (a per-channel value of an N x C x H x W space)
TILE     p * cols, p divides rows    ``(r % p) * cols + c`` (a mask of scores)
BAND     p * q, p divides rows       ``(r % p) * q + c // band`` where ``q = cols / band`` (a value per channel of a
                                     space whose columns are the elements of several channels)
SCALAR   1                           ``0``
TOTAL    1                           known only after every row is done (``total_*`` and what follows it)
=======  ==========================  ==================================================================

``strided`` regions reduce over a middle axis: the space is ``outer x cols x inner``, ``rows = outer * inner``,
row r is (o, i) = (r // inner, r % inner), and FULL is read at ``(o * cols + c) * inner + i``.

Ops, with NaN as torch has it (max, min, relu and the reductions propagate it). Arguments are broadcast by kind.

- leaves: ``input`` (``index`` into ``Fused.inputs``), ``const`` (``number``), ``scalar`` (``index`` into
  ``Fused.scalars``: a float that is known only at the call, such as ``float(cols)``)
- unary float (float32, or float64 in a region of those): neg abs exp expm1 log log1p log2 sqrt rsqrt reciprocal tanh
  erf sigmoid relu floor ceil round trunc sin cos; ``not`` on bool; as_f16 as_bf16 as_f32: rounded to that type,
  still of the region's
- binary: add sub mul div pow max min; eq ne lt le gt ge (bool result); and or (bool)
- integers, in the value's own type, which all arguments have: add sub mul neg abs max min that wrap; bit_and bit_or
  bit_xor bit_not; shl shr (of the sign), floor_div floor_mod (towards minus infinity), trunc_div trunc_mod (towards
  zero), all six by a ``const`` in range: a shift below the width, a divisor that is neither 0 nor -1
- ``where`` (bool, a, b); ``cast`` (to the value's dtype; never a float to an integer)
- row reductions (FULL to ROW): row_sum row_max row_min row_argmax (the first of equals; a NaN is the largest)
- scans along a row (FULL to FULL): scan_sum scan_prod, scan_sum_back scan_prod_back (from the end of the row),
  scan_sum_before (of the elements before each one)
- ``pick`` (FULL, ROW of i64): the element of each row at that column
- ``take`` (integer that no column changes, ``scalar``): that row of a table, ``Fused.inputs[index]``, which has as many
  rows as the scalar says and the columns of the space; FULL or TILE. Negative integers count from the end; others
  outside the table read its first or last row (torch refuses them)
- ``list`` (``scalar``: its length): where the row's own integers begin in ``Fused.inputs[index]``; ROW. ``bag`` (list,
  length, count): the sum of the rows of a table that they name, each as ``take`` reads it; FULL
- all elements (FULL or ROW to TOTAL): total_sum total_max total_min
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from keyword import iskeyword

from kernelwright.proposers.templates.nesting import filled

FULL, ROW, COLUMN, CYCLE, TILE, BAND = "full", "row", "column", "cycle", "tile", "band"
SCALAR, TOTAL = "scalar", "total"
KINDS = (FULL, ROW, COLUMN, CYCLE, TILE, BAND, SCALAR, TOTAL)

F32, F64, I64, BOOL = "f32", "f64", "i64", "bool"
INTEGERS = ("u8", "i8", "i16", "i32", I64)

READS = frozenset({"input", "take", "list", "bag"})
"""Ops whose ``index`` is that of a tensor."""
LEAVES = frozenset({"input", "const", "scalar"})
UNARY = frozenset(
    "neg abs exp expm1 log log1p log2 sqrt rsqrt reciprocal tanh erf sigmoid relu"
    " floor ceil round trunc sin cos not cast as_f16 as_bf16 as_f32 bit_not".split()
)
BINARY = frozenset("add sub mul div pow max min eq ne lt le gt ge and or".split())
BITS = frozenset("bit_and bit_or bit_xor".split())
BY_CONST = frozenset("shl shr floor_div floor_mod trunc_div trunc_mod".split())
COMPARE = frozenset("eq ne lt le gt ge".split())
ROW_REDUCTIONS = frozenset("row_sum row_max row_min row_argmax".split())
TOTAL_REDUCTIONS = frozenset("total_sum total_max total_min".split())
SCANS = frozenset("scan_sum scan_prod scan_sum_back scan_prod_back scan_sum_before".split())
OPS = (
    LEAVES
    | UNARY
    | BINARY
    | BITS
    | BY_CONST
    | ROW_REDUCTIONS
    | TOTAL_REDUCTIONS
    | SCANS
    | {"where", "pick", "take", "list", "bag"}
)

MATMULS = frozenset(f"aten.{name}.default" for name in ("linear", "mm", "addmm", "matmul", "bmm"))


@dataclass(frozen=True, slots=True, kw_only=True)
class Value:
    """One value of a region, at its position in ``Region.values``; ``args`` are earlier positions."""

    op: str
    args: tuple[int, ...] = ()
    kind: str
    dtype: str = F32
    number: float = 0.0
    """Of ``const``."""
    index: int = -1
    """Of ``input``, ``take``, ``list``, ``bag`` and ``scalar``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Region:
    """Values in topological order; ``outputs`` are positions, each of kind FULL, ROW or TOTAL."""

    values: tuple[Value, ...]
    outputs: tuple[int, ...]
    strided: bool = False

    @property
    def float_type(self) -> str:
        """The type of every value that is not whole: a region computes in one."""
        return F64 if any(v.dtype == F64 for v in self.values) else F32

    @property
    def flat(self) -> bool:
        """Whether the space is one long run of elements: no value depends on where a row begins."""
        along = ROW_REDUCTIONS | SCANS
        return all(v.kind in (FULL, SCALAR, TOTAL) and v.op not in along for v in self.values)

    def users(self) -> dict[int, list[int]]:
        """Positions that read each value."""
        found: dict[int, list[int]] = {i: [] for i in range(len(self.values))}
        for position, value in enumerate(self.values):
            for arg in value.args:
                found[arg].append(position)
        return found


@dataclass(frozen=True, slots=True, kw_only=True)
class Tensor:
    """A tensor of the program. Sizes are Python expressions over the program's symbols: ``"s0"``, ``"4096"``."""

    name: str
    shape: tuple[str, ...]
    sample: tuple[int, ...]
    """The sizes of the timed case."""
    dtype: str
    """As torch names it: ``float32``, ``int64``, ``uint8``, ``bool``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """Where a tensor of the program comes from: a positional argument, or an attribute of the module."""

    tensor: Tensor
    argument: int = -1
    """Position in ``forward``, or -1."""
    path: str = ""
    """``layers.0.weight`` for a parameter, buffer or constant of the module."""

    @property
    def attribute(self) -> str:
        """Python that reads ``path`` below ``self``: ``getattr(self.layers, '0').weight``."""
        text = "self"
        for part in self.path.split("."):
            named = part.isidentifier() and not iskeyword(part)
            text = f"{text}.{part}" if named else f"getattr({text}, {part!r})"
        return text


@dataclass(frozen=True, slots=True, kw_only=True)
class Window:
    """Each element of a result from a box of elements of the first operand, along its last ``rank`` dimensions.

    Three numbers each: depth, height, width; missing dimensions have kernel 1. Boxes lie inside the padded input.
    """

    kind: str
    """``max``; ``mean`` (of the whole box, padding included as zeros); ``dot`` (with a filter per channel)."""
    rank: int
    kernel: tuple[int, int, int]
    stride: tuple[int, int, int]
    padding: tuple[int, int, int]
    dilation: tuple[int, int, int]
    repeats: int
    """Results per input channel (``dot``)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """One torch operation. ``expression`` is its Python text over tensor names and symbols (it may use ``torch``)."""

    output: Tensor
    target: str
    """``aten.linear.default`` ..., or ``getitem``."""
    operands: tuple[str, ...]
    """Tensor names in argument order; an absent optional operand (no bias) is the empty string."""
    expression: str
    view: bool = False
    """It moves no data (a reshape, a transpose, an item of a tuple)."""
    window: Window | None = None
    """What it computes, where that is a window; an emitter that has no code for windows uses ``expression``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fused:
    """One region with its operands. The period of a CYCLE, TILE or BAND input is its number of elements at the call."""

    region: Region
    inputs: tuple[str, ...]
    """Tensor name of ``input`` values by ``index``."""
    scalars: tuple[str, ...]
    """Python expressions of ``scalar`` values by ``index``."""
    outputs: tuple[Tensor, ...]
    """Parallel to ``region.outputs``, with the shapes torch would give."""
    rows: str
    cols: str
    inner: str = "1"
    band: str = "1"
    """Columns that share a BAND value, one after the other; it divides ``cols``."""
    sample: tuple[int, int, int] = (1, 1, 1)
    """(rows, cols, inner) of the timed case."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Program:
    """The whole reference as sources, steps and results, valid for every input that passes ``guards``."""

    sources: tuple[Source, ...]
    steps: tuple[Call | Fused, ...]
    results: tuple[str, ...]
    """Tensor names returned."""
    returns: str
    """Python text of what is returned, with ``$0$``, ``$1$`` in place of the results."""
    arguments: tuple[str, ...]
    """Name per positional argument of ``forward``, or per leaf of nested ones: a tensor name, or ``""`` for a constant.
    """
    constants: tuple[tuple[int, str], ...]
    """(position, Python literal) of arguments that are not tensors; another value means: not this program."""
    symbols: tuple[tuple[str, str], ...]
    """(symbol, Python expression over tensor names that binds it), in order: ``("s0", "x.shape[0]")``."""
    guards: tuple[str, ...]
    """Python expressions over tensor names and symbols that must all hold."""
    nested: tuple[str, ...] = ()
    """Where arguments are nested: Python conditions on ``args`` under which they are nested as they were traced."""
    reached: tuple[str, ...] = ()
    """Where arguments are nested: Python that reaches each of ``arguments`` in ``args``."""

    def returned(self) -> str:
        """Python text of what is returned, by the names of tensors."""
        return filled(self.returns, self.results)

    def tensors(self) -> dict[str, Tensor]:
        """Every tensor by name."""
        found = {source.tensor.name: source.tensor for source in self.sources}
        for step in self.steps:
            for tensor in step.outputs if isinstance(step, Fused) else (step.output,):
                found[tensor.name] = tensor
        return found

    def regions(self) -> Iterator[Fused]:
        """The fused steps in order."""
        return (step for step in self.steps if isinstance(step, Fused))

    def windows(self) -> list[Call]:
        """The calls that are windows, in order."""
        return [step for step in self.steps if isinstance(step, Call) and step.window is not None]

    def readers(self, name: str) -> list[int]:
        """Positions of the steps that read a tensor; a returned tensor also has reader ``len(steps)``."""
        found = [
            position
            for position, step in enumerate(self.steps)
            if name in (step.inputs if isinstance(step, Fused) else step.operands)
        ]
        return found + ([len(self.steps)] if name in self.results else [])


def matmul_epilogues(program: Program) -> list[tuple[int, int]]:
    """(Call position, Fused position) pairs in which a matrix product is read only by that region, as FULL.

    A region is the epilogue of one product; where it reads several, as a gated layer does, that is the last of them.
    """
    found: dict[int, int] = {}
    for position, step in enumerate(program.steps):
        if isinstance(step, Fused) or step.target not in MATMULS:
            continue
        readers = program.readers(step.output.name)
        if len(readers) != 1 or readers[0] == len(program.steps):
            continue
        fused = program.steps[readers[0]]
        if not isinstance(fused, Fused) or fused.region.strided:
            continue
        slot = fused.inputs.index(step.output.name)
        kinds = {v.kind for v in fused.region.values if v.op == "input" and v.index == slot}
        if kinds == {FULL}:
            found[readers[0]] = position
    return [(position, reader) for reader, position in found.items()]
