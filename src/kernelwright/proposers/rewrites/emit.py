# SPDX-License-Identifier: Apache-2.0
"""Terms to readable PyTorch: one line per operator that does work, views inline, and the guard around it."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from kernelwright.proposers.rewrites import attention, triangles
from kernelwright.proposers.rewrites.terms import REDUCTIONS, VIEWS, Term, walk
from kernelwright.proposers.rewrites.trace import Program

_REDUCERS = {"sum": "sum", "mean": "mean", "max": "amax", "min": "amin", "logsumexp": "logsumexp"}
_SIGNS = {"add": "+", "sub": "-", "mul": "*", "div": "/", "scale": "*", "shift": "+", "over": "/"}

BLOCKS = '''
def _in_blocks(a, b, size=512):
    """a @ b with partial sums per block of the inner dimension: one long chain of additions loses bits."""
    return torch.stack([x @ y for x, y in zip(a.split(size, dim=-1), b.split(size))]).sum(0)


'''

COLUMNS = '''
def _column_sums(matrix, block=128):
    """matrix.sum(0, keepdim=True) through BLAS, which reads rows at full bandwidth; blocks keep the sums accurate."""
    whole = matrix.shape[0] // block * block
    sums = torch.matmul(matrix.new_ones(1, block), matrix[:whole].unflatten(0, (-1, block))).sum(0)
    return sums if whole == matrix.shape[0] else sums + matrix[whole:].sum(0)


'''

_HELPERS = (
    ("_in_blocks(", BLOCKS),
    ("_column_sums(", COLUMNS),
    ("_triangle(", triangles.CODE),
    ("_attention(", attention.CODE),
)

MODULE = '''
class {name}({entry}):
    """{summary}"""

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        # The rewrite speaks of one construction and one set of shapes; anything else takes the reference's own path.
        self._as_traced = (
            (args, kwargs) == ({init_args}, {init_kwargs}){shapes}
        )
{prepare}
    def _rewritten(self{signature}):
{body}

    def forward(self, *args, **kwargs):
        if self._as_traced and {mode}not kwargs and self._fits(*args):
{run}
        return super().forward(*args, **kwargs)

    def _fits(self, *args):
        return (
            len(args) == {count}{fits}
        )
'''

DIRECT = "            return self._rewritten(*args)"
COMPILED = """            if self._compiled is None:
                self._compiled = torch.compile(self._rewritten, dynamic=False)
            return self._compiled(*args)"""
COPIED = """
    def __getstate__(self):
        return {**super().__getstate__(), "_compiled": None}  # it closes over this very module: a copy makes its own
"""


@dataclass
class _Writer:
    """Names, lines and expressions of one program."""

    dtype: str
    device: str
    names: dict[Term, str]
    uses: Counter[Term]
    blocked: bool
    """Long products of a few rows or columns in blocks (CPU; libraries for GPUs sum in trees anyway)."""
    lines: list[str] = field(default_factory=list)

    def expression(self, term: Term) -> str:
        """A Python expression for ``term``; statements it needs are appended to ``lines`` first."""
        if term in self.names:
            return self.names[term]
        text = self._write(term)
        if term.op in VIEWS or term.op == "fill":
            self.names[term] = text
            return text
        name = f"v{len(self.lines)}"
        self.lines.append(f"{name} = {text}")
        self.names[term] = name
        return name

    def _write(self, term: Term) -> str:
        if term.op == "call":
            return self._call(term)
        if term.op == "matmul":
            left, right = _unlifted(*term.args)
            product = "_in_blocks" if self.blocked and _narrow(*term.args) else "torch.matmul"
            return f"{product}({self.expression(left)}, {self.expression(right)})"
        if term.op == "add" and (linear := _linear(term, self.uses)):
            return f"torch.nn.functional.linear({', '.join(map(self.expression, linear))})"
        if term.op in ("add", "sub", "mul", "div"):
            a, b = _lowered(*term.args)
            return f"{self.expression(a)} {_SIGNS[term.op]} {self.expression(b)}"
        if term.op in REDUCTIONS:
            return self._reduction(term)
        return self._unary(term)

    def _reduction(self, term: Term) -> str:
        dims, inner = [term.attrs[0]], term.args[0]
        while inner.op == term.op and self.uses[inner] == 1 and inner not in self.names:
            dims, inner = [*dims, inner.attrs[0]], inner.args[0]
        if self.blocked and len(dims) == 1 and (matrix := _tall(term)):
            sums = f"_column_sums({self.expression(matrix)})" + ("" if inner is matrix else ".mT")
            return sums if term.op == "sum" else f"{sums} / {matrix.shape[0]}"
        if inner.op == "t" and len(dims) == 1 and dims[0] >= len(inner.shape) - 2:
            swapped = 2 * len(inner.shape) - 3 - dims[0]
            return f"torch.{_REDUCERS[term.op]}({self.expression(inner.args[0])}, dim={swapped}, keepdim=True).mT"
        spec = str(dims[0]) if len(dims) == 1 else str(tuple(sorted(dims)))
        return f"torch.{_REDUCERS[term.op]}({self.expression(inner)}, dim={spec}, keepdim=True)"

    def _unary(self, term: Term) -> str:
        if term.op == "fill":
            return f"torch.full({term.shape}, {term.attrs[0]!r}, dtype={self.dtype}, device={self.device})"
        if term.op == "get":
            return f"{self.expression(term.args[0])}[{term.attrs[0]}]"
        inner = self.expression(term.args[0])
        if term.op in ("scale", "shift", "over"):
            return f"-{inner}" if (term.op, term.attrs[0]) == ("scale", -1.0) else _scalar(term, inner)
        if term.op == "t":
            return f"{inner}.mT"
        if term.op == "reshape":
            return f"{inner}.reshape({term.shape})"
        if term.op in ("squeeze", "unsqueeze"):
            return f"{inner}.{term.op}({term.attrs[0]})"
        if term.op in ("softmax", "logsoftmax"):
            return f"torch.{'softmax' if term.op == 'softmax' else 'log_softmax'}({inner}, dim={term.attrs[0]})"
        return f"torch.{term.op}({inner})"

    def _call(self, term: Term) -> str:
        target, template = term.attrs
        if target.startswith("triangle."):
            return f"_triangle({', '.join(map(self.expression, term.args))}, {target == triangles.UPPER})"
        if target.startswith("attention."):
            return attention.text(target, template, [self.expression(arg) for arg in term.args])
        for index, arg in reversed([*enumerate(term.args)]):
            template = template.replace(f"<{index}>", self.expression(arg))
        return f"torch.ops.{target}({template.replace('<device>', self.device)})"


def _scalar(term: Term, inner: str) -> str:
    value = term.attrs[0]
    if term.op == "shift" and value < 0:
        return f"{inner} - {-value!r}"
    return f"{inner} {_SIGNS[term.op]} {value!r}"


def _bare(term: Term) -> Term:
    """Without the leading dimensions that ``lift`` put there."""
    while term.op == "unsqueeze" and term.attrs[0] == 0:
        term = term.args[0]
    return term


def _unlifted(left: Term, right: Term) -> tuple[Term, Term]:
    """Operands of torch.matmul, which lifts the right one by itself (and folds the batch when it is rank 2)."""
    bare = right
    while bare.op == "unsqueeze" and bare.attrs[0] == 0 and len(bare.shape) > 2:
        bare = bare.args[0]
    return left, bare


def _lowered(a: Term, b: Term) -> tuple[Term, Term]:
    """Operands of a broadcasting operator: one of the two may drop its leading dimensions."""
    if _bare(b) is not b and _bare(b).shape:
        return a, _bare(b)
    if _bare(a) is not a and _bare(a).shape:
        return _bare(a), b
    return a, b


def _narrow(a: Term, b: Term) -> bool:
    """A product that BLAS computes as dot products: 3.4e-5 error at 8192 terms against 1.2e-5 in blocks of 512."""
    return len(a.shape) == 2 and min(a.shape[0], b.shape[1]) <= 4 and a.shape[1] >= 1024


def _tall(term: Term) -> Term | None:
    """The large stored matrix whose columns this sum or mean adds up: torch.sum reads it at half the bandwidth."""
    inner, d = term.args[0], term.attrs[0]
    matrix, columns = (inner.args[0], d == 1) if inner.op == "t" else (inner, d == 0)
    large = matrix.op == "leaf" and len(matrix.shape) == 2 and min(matrix.shape) >= 512
    return matrix if term.op in ("sum", "mean") and columns and large else None


def _linear(term: Term, uses: Counter[Term]) -> tuple[Term, Term, Term] | None:
    """(input, weight, bias) where the sum is exactly a linear layer."""
    for product, bias in (term.args, term.args[::-1]):
        if product.op != "matmul" or uses[product] > 1 or len(_bare(bias).shape) != 1:
            continue
        x, weight = _unlifted(*product.args)
        if weight.op == "t" and len(weight.shape) == 2 and _bare(bias).shape == weight.shape[1:]:
            return x, weight.args[0], _bare(bias)
    return None


@dataclass(frozen=True, slots=True, kw_only=True)
class Style:
    """How a program is written out."""

    entry: str
    """The class that ``name`` extends."""
    summary: str
    device: str
    """``cpu`` or ``cuda``."""
    compiled: bool
    """Through torch.compile."""
    name: str = "ModelNew"


def emit(program: Program, root: Term, style: Style, *, batch: int | None = None) -> str:
    """Source of a class that computes ``root``, and of the functions it uses.

    ``batch``: inputs whose first dimension has this size are accepted with any first dimension.
    """
    signature = [name for name, _ in program.inputs]
    tensors = [name for name, spec in program.inputs if isinstance(spec, tuple)]
    place = f"{tensors[0]}.device" if tensors else "next(self.parameters()).device"
    lines = _body(program, root, device=place, blocked=style.device == "cpu")
    body = "\n".join(f"        {line}" for line in lines)
    needed = "".join(code.lstrip("\n") for name, code in _HELPERS if name in body)
    shapes = "".join(f"\n            and {path}.shape == {shape}" for path, shape in _paths(program))
    fits = "".join(_fit(index, spec, batch) for index, (_, spec) in enumerate(program.inputs))
    batched = [index for index, (_, spec) in enumerate(program.inputs) if _batched(spec, batch)]
    fits += "".join(f"\n            and args[{index}].shape[0] == args[{batched[0]}].shape[0]" for index in batched[1:])
    text = MODULE.lstrip("\n").format(
        name=style.name,
        entry=style.entry,
        summary=style.summary,
        init_args=program.init[0],
        init_kwargs=program.init[1],
        shapes=shapes,
        prepare="        self._compiled = None  # until the first call\n" if style.compiled else "",
        run=COMPILED if style.compiled else DIRECT,
        signature="".join(f", {name}" for name in signature),
        body=body,
        mode="self.training and " if program.training else "not self.training and ",
        count=len(program.inputs),
        fits=fits,
    )
    return needed + text + (COPIED if style.compiled else "")


def _paths(program: Program) -> list[tuple[str, tuple[int, ...]]]:
    return [(_attribute(path), shape) for _, path, shape in program.parameters]


def _attribute(path: str) -> str:
    """``self.`` and a dotted path as Python: children of Sequential and ModuleList have numbers for names."""
    text = "self"
    for part in path.split("."):
        text = f"{text}.{part}" if part.isidentifier() else f'getattr({text}, "{part}")'
    return text


def _fit(index: int, spec: object, batch: int | None) -> str:
    if not isinstance(spec, tuple):
        return f"\n            and args[{index}] == {spec!r}"
    shape, dtype = spec
    test = f"args[{index}].shape == {shape}"
    if _batched(spec, batch):
        test = f"args[{index}].dim() == {len(shape)} and args[{index}].shape[1:] == {shape[1:]}"
    return f"\n            and isinstance(args[{index}], torch.Tensor) and args[{index}].dtype == {dtype} and {test}"


def _batched(spec: object, batch: int | None) -> bool:
    return batch is not None and isinstance(spec, tuple) and spec[0][:1] == (batch,)


def _body(program: Program, root: Term, *, device: str, blocked: bool) -> list[str]:
    order = [*walk((root,))]
    uses = Counter(arg for term in order for arg in term.args)
    paths = {name: _attribute(path) for name, path, _ in program.parameters}
    names = {term: paths.get(term.attrs[0], term.attrs[0]) for term in order if term.op == "leaf"}
    writer = _Writer(dtype=program.dtype, device=device, names=names, uses=uses, blocked=blocked)
    for term in order:
        if term.op == "call" and term is not root:
            writer.expression(term)  # in order, so that deep chains need no deep recursion
    results = [_fresh(writer, result) for result in root.args]
    shown = {"tensor": "{0}", "tuple": "({0},)", "list": "[{0}]"}[program.results].format(", ".join(results))
    return [*writer.lines, f"return {shown}"]


def _fresh(writer: _Writer, result: Term) -> str:
    """The result, copied where it would be an input or parameter itself, and in the order one expects."""
    text = writer.expression(result)
    base = result
    while base.op in VIEWS:
        base = base.args[0]
    if base.op == "call" and base.attrs[0].startswith("attention."):
        return f"{text}.contiguous()"  # torch's operator keeps the heads innermost but one
    return f"{text}.clone()" if base.op == "leaf" else text
