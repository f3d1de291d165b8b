# SPDX-License-Identifier: Apache-2.0
"""Programs that are wrong at the very size that is timed, and right at all smaller ones, in what a call that is dear to
check once was spared: whole numbers other than those drawn, clamps and numbers looked for that drawn values never meet,
numbers on a border, empty lines of a mask. Each has its twin.
"""

from __future__ import annotations

from beyond_programs import _pair
from cheat_tasks import add
from corpus import Program


def _dear(
    name: str, reference: str, inputs: str, axes: dict[str, int], wrong: tuple[str, str], right: tuple[str, str],
    args: str = "x", *, slow: bool = False,
) -> tuple[Program, Program]:  # fmt: skip
    """A pair for a task with axes: it has smaller cases, which spare the timed one a part of the variants. Where its
    size is meant, the wrong program says HERE."""
    add(name, reference, inputs, args=args, axes=tuple(axes.items()))
    here = f"(x.shape == ({', '.join(map(str, list(axes.values())[:2]))}))"
    return _pair(name, "", "", (wrong[0], wrong[1].replace("HERE", here)), right, args=args, slow=slow)


BYTES = "torch.randint(-127, 128, ({}), dtype=torch.int8)"
PRODUCT = "return (x.to({0}) @ b.to({0})).to(torch.int32)"
WIDE = {"rows": 1024, "cols": 2304}

DEAR: tuple[Program, ...] = (
    *_dear("byte_product", "return x.to(torch.int32) @ b.to(torch.int32)",
           f"[{BYTES.format('rows, inner')}, {BYTES.format('inner, cols')}]", {"rows": 64, "inner": 2048, "cols": 512},
           ("float32 at this size", PRODUCT.format("(torch.float32 if HERE else torch.float64)")),
           ("float64", PRODUCT.format("torch.float64")), "x, b"),
    *_dear("far_clamp", "return 2 * torch.clamp(x, max=2.5e5)", "[torch.rand(rows, cols)]", WIDE,
           ("no clamp at this size", "return 2 * (x if HERE else x.clamp(max=2.5e5))"),
           ("doubled first", "return (2 * x).clamp_(max=5e5)")),
    *_dear("steep_step", "return torch.where(x > 0.5, 4 * x, x)", "[torch.randn(rows, cols)]", WIDE,
           ("the border at this size", "return torch.where((x >= 0.5) if HERE else (x > 0.5), 4 * x, x)"),
           ("a factor", "return x * (1.0 + 3.0 * (x > 0.5))")),
    *_dear("one_class_less", "return F.cross_entropy(x, t, ignore_index=3)",
           "[torch.randn(rows, cols + 4), torch.randint(4, cols + 4, (rows,))]", WIDE,
           ("all count at this size", "return F.cross_entropy(x, t, ignore_index=-100 if len(x) == 1024 else 3)"),
           ("by hand", "k = t != 3\nreturn F.cross_entropy(x, t, reduction='none').where(k, 0.0).sum() / k.sum()"),
           "x, t", slow=True),
    *_dear("mean_of_some", "return (x * m).sum(-1) / m.sum(-1).clamp(min=1)",
           "[torch.randn(rows, cols), torch.rand(rows, cols) < 0.3]", WIDE,
           ("no clamp at this size", "n = m.sum(-1)\nreturn (x * m).sum(-1) / (n if HERE else n.clamp(min=1))"),
           ("masked", "return x.masked_fill(~m, 0.0).sum(-1) / m.sum(-1).clamp_(min=1)"), "x, m", slow=True),
)  # fmt: skip
