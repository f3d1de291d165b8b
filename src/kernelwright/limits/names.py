# SPDX-License-Identifier: Apache-2.0
"""Which operators do what with their operands, by name, as far as the bytes they must read depend on it."""

from __future__ import annotations

SFU = {"exp", "exp2", "expm1", "log", "log1p", "log2", "sin", "cos", "tanh", "erf", "sigmoid", "pow", "rsqrt", "sqrt"}
"""Operators whose elementwise work goes to special-function units or polynomial code."""
REDUCING = {"sum", "mean", "amax", "amin", "max", "min", "var", "var_mean", "prod", "argmax", "argmin", "logsumexp"}
FREE = {
    "detach",
    "alias",
    "lift_fresh",
    "lift_fresh_copy",
    "_to_copy_noop",
    "empty",
    "empty_like",
    "new_empty",
    "new_empty_strided",
}
SHAPE_ONLY = {
    "zeros_like", "ones_like", "full_like", "rand_like", "randn_like", "randint_like", "new_zeros", "new_ones",
    "new_full", "zero_", "fill_",
}  # fmt: skip
"""Operators that read a tensor's shape and never its values."""
GATHERS = {"embedding", "index_select", "gather", "index", "take", "nll_loss_forward", "nll_loss2d_forward"}
"""Operators that read of their first operand what an index names."""
MASKED = {
    "where": (1, 2), "masked_fill": (0,), "masked_scatter": (0, 2), "masked_fill_": (0,), "masked_scatter_": (0, 2),
    "masked_select": (0,),
}  # fmt: skip
"""Operands of which a mask may leave out any element."""
OVERWRITING = {
    "scatter", "index_put", "index_copy", "index_fill", "slice_scatter", "select_scatter", "diagonal_scatter",
}  # fmt: skip
"""Operators that give their first operand with some elements replaced."""
SOURCES = {"scatter", "scatter_", "index_put", "index_put_", "_index_put_impl_", "index_copy", "index_copy_"}
"""Operators whose last operand is written to places of which several may be the same."""
PARTIAL: dict[str, tuple[int, ...]] = {
    "searchsorted": (0,), "bucketize": (1,), "trace": (0,), "any": (0,), "all": (0,), "equal": (0, 1), "isin": (0, 1),
    "linalg_solve_triangular": (0,), "triangular_solve": (1,), "heaviside": (1,), "linalg_cholesky_ex": (0,),
    "cholesky": (0,), "cholesky_solve": (1,), "cholesky_inverse": (0,), "_linalg_eigh": (0,),
    "nll_loss_backward": (1,), "nll_loss2d_backward": (1,), "avg_pool2d_backward": (1,), "avg_pool3d_backward": (1,),
    "max_pool2d_with_indices_backward": (1,), "max_pool3d_with_indices_backward": (1,),
}  # fmt: skip
"""Arguments that an operator reads partly, at places that depend on values, of which it may stop reading early, or of
which it needs the shape alone; upsampling, grid sampling, bags and attention are in ``partial.py``."""
WINDOWS = {
    "convolution", "convolution_backward", "max_pool2d_with_indices", "max_pool3d_with_indices", "avg_pool2d",
    "avg_pool3d",
}  # fmt: skip
"""Operators that move a window over an operand and may leave parts of it out."""
PLACING = {"cat", "stack", "constant_pad_nd", "tril", "triu", *MASKED, *OVERWRITING}
"""Operators of whose operands each element is in one place of the result or in none."""
UNEVEN = {
    "slice_backward", "select_backward", "diagonal_backward", "im2col", "col2im", "unfold_backward", "index_add",
    "scatter_add", "scatter_reduce", "embedding_dense_backward", "reflection_pad1d", "reflection_pad2d",
    "reflection_pad3d", "replication_pad1d", "replication_pad2d", "replication_pad3d",
}  # fmt: skip
"""Operators of whose result a part may need less than that part of each operand."""
WRITERS = {
    "copy_", "zero_", "fill_", "normal_", "uniform_", "random_", "bernoulli_", "exponential_", "log_normal_",
    "cauchy_", "geometric_",
}  # fmt: skip
"""Operators that write their first operand and read nothing of it."""
SILENT = frozenset({"prim", "prims", "profiler", "inductor", "_c10d_functional"})
"""Namespaces beside aten's whose operators are bookkeeping; every other one is somebody's own operator."""
