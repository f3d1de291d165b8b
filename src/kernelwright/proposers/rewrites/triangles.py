# SPDX-License-Identifier: Apache-2.0
"""A triangle of a matrix product: half of the product need not be computed.

Not a law of the table: both sides are the same product, and what is saved is known only to the cost model.
"""

from __future__ import annotations

from kernelwright.proposers.rewrites.greedy import replace
from kernelwright.proposers.rewrites.terms import Term, make, walk

SMALLEST = 256
"""Rows below which eight small products cost more than one."""
UPPER, LOWER = "triangle.upper", "triangle.lower"
_SIDES = {"aten.triu.default": UPPER, "aten.tril.default": LOWER}

CODE = '''
def _triangle(a, b, upper, panels=8):
    """The upper or lower triangle of a @ b, by strips of rows; what lies on the other side is never computed."""
    if torch.is_grad_enabled() and (a.requires_grad or b.requires_grad):
        return torch.triu(a @ b) if upper else torch.tril(a @ b)
    rows, cols = a.shape[0], b.shape[1]
    out = a.new_zeros(rows, cols)
    step = -(-rows // panels)
    for start in range(0, rows, step):
        stop = min(start + step, rows)
        first, last = (start, cols) if upper else (0, min(stop, cols))
        if first < last:
            part = out[start:stop, first:last]
            torch.mm(a[start:stop], b[:, first:last], out=part)
            if upper:
                part[:, : stop - start].triu_()
            elif start < last:
                part[:, start:].tril_()
    return out


'''


def cut(root: Term) -> list[Term]:
    """The program with every triangle of a large product computed as one; nothing where there is none."""
    found = root
    for place in [*walk((root,))]:
        side = _SIDES.get(place.attrs[0]) if place.op == "call" else None
        if side is None or place.attrs[1].replace(" ", "") not in ("<0>", "<0>,0"):
            continue
        product = place.args[0]
        if product.op == "matmul" and len(product.shape) == 2 and min(product.shape) >= SMALLEST:
            found = replace(found, place, make("call", product.args, (side, "<0>, <1>"), place.shape))
    return [] if found is root else [found]
