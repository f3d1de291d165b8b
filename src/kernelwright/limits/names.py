# SPDX-License-Identifier: Apache-2.0
"""Which operators do what with their operands, by name, as far as the bytes they must read depend on it."""

from __future__ import annotations

SFU = {"exp", "exp2", "expm1", "log", "log1p", "log2", "sin", "cos", "tanh", "erf", "sigmoid", "pow", "rsqrt", "sqrt"}
"""Operators whose elementwise work goes to special-function units or polynomial code."""
REDUCING = {"sum", "mean", "amax", "amin", "max", "min", "var", "var_mean", "prod", "argmax", "argmin", "logsumexp"}
FREE = {"detach", "alias", "lift_fresh", "lift_fresh_copy", "_to_copy_noop", "empty", "empty_like", "new_empty"}
SHAPE_ONLY = {
    "zeros_like", "ones_like", "full_like", "rand_like", "randn_like", "new_zeros", "new_ones", "new_full",
    "zero_", "fill_",
}  # fmt: skip
"""Operators that read a tensor's shape and never its values."""
GATHERS = {"embedding", "index_select", "gather", "index", "take", "nll_loss_forward", "nll_loss2d_forward"}
"""Operators that read of their first operand what an index names."""
MASKED = {"where": (1, 2), "masked_fill": (0,), "masked_scatter": (0,), "masked_fill_": (0,)}
"""Operands of which a mask may leave out any element."""
OVERWRITING = {"scatter", "index_put", "index_copy", "slice_scatter", "select_scatter", "diagonal_scatter"}
"""Operators that give their first operand with as many elements replaced as their last tensor has."""
WRITERS = {"copy_", "zero_", "fill_"}
"""Operators that write their first operand and read nothing of it."""
SILENT = frozenset({"prim", "prims", "profiler", "inductor", "_c10d_functional"})
"""Namespaces beside aten's whose operators are bookkeeping; every other one is somebody's own operator."""
