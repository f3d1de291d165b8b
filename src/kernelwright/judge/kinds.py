# SPDX-License-Identifier: Apache-2.0
"""Which operators round nothing, which are taken apart before their rounding is put back, and which choose places."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

aten = torch.ops.aten
TAKEN_APART = (
    aten._softmax.default,
    aten._log_softmax.default,
    aten.native_layer_norm.default,
    aten.native_group_norm.default,
    aten.native_batch_norm.default,
    aten._native_batch_norm_legit.default,
    aten._native_batch_norm_legit.no_stats,
    aten._native_batch_norm_legit_no_training.default,
    aten.linalg_cross.default,
    aten.logsumexp.default,
    aten._euclidean_dist.default,
    aten.mse_loss.default,
    aten.silu.default,
    aten._fused_rms_norm.default,
    aten.binary_cross_entropy.default,
    aten.binary_cross_entropy_with_logits.default,
    aten.smooth_l1_loss.default,
    aten.huber_loss.default,
    aten.nll_loss_forward.default,
    aten.nll_loss2d_forward.default,
    aten._softmax_backward_data.default,
    aten._log_softmax_backward_data.default,
    aten.native_layer_norm_backward.default,
    aten.native_group_norm_backward.default,
    aten.native_batch_norm_backward.default,
    aten._fused_rms_norm_backward.default,
    aten.gelu_backward.default,
    aten.silu_backward.default,
    aten.mish_backward.default,
    aten.softplus_backward.default,
    aten.elu_backward.default,
    aten.log_sigmoid_backward.default,
    aten.glu_backward.default,
)
"""Operators whose own decomposition is perturbed step by step."""
EXACT = {
    "abs", "neg", "relu", "maximum", "minimum", "clamp", "clamp_min", "clamp_max", "where", "sign", "floor", "ceil",
    "round", "trunc", "max_pool2d_with_indices", "max_pool3d_with_indices", "amax", "amin", "max", "min", "sort",
    "topk", "cummax", "cummin", "hardtanh", "threshold", "copy", "copy_", "fill", "fill_", "zero_", "_to_copy",
    "masked_fill", "masked_fill_", "relu_", "leaky_relu_backward", "eq", "ne", "lt", "le", "gt", "ge", "isnan", "isinf",
    "lift_fresh", "clone", "cat", "stack", "gather", "index", "index_select", "embedding", "scatter", "index_put",
    "index_put_", "flip", "roll", "repeat", "tril", "triu", "constant_pad_nd", "new_zeros", "zeros", "ones", "full",
    "empty", "arange", "scalar_tensor", "zeros_like", "ones_like", "full_like", "empty_like", "new_empty", "new_full",
    "new_ones", "eye", "linspace", "rand", "randn", "rand_like", "randn_like", "bernoulli", "native_dropout", "median",
    "kthvalue", "mode", "unfold", "im2col", "reflection_pad1d", "reflection_pad2d", "replication_pad2d", "nonzero",
    "diag_embed", "pixel_shuffle",
     "squeeze", "unsqueeze", "detach", "argmax", "argmin", "diagonal_copy", "_unsafe_view",
}  # fmt: skip
"""Operators that move, choose or compare values and round nothing."""
CHOOSING = {
    "argmax", "argmin", "topk", "sort", "max", "min", "kthvalue", "median", "nanmedian", "mode",
}  # fmt: skip
"""Operators that answer with places of their first argument, any of them where several hold the same value."""


_RANKS = {"median", "nanmedian", "kthvalue", "mode", "cummax", "cummin", "_unique2", "unique_consecutive"}


def bound(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
    """The arguments by name, with the schema's defaults."""
    named = {arg.name: arg.default_value for arg in func._schema.arguments if arg.has_default_value()}
    named |= {arg.name: value for arg, value in zip(func._schema.arguments, args, strict=False)}
    return named | kwargs


def chooses(func: Any, args: Sequence[Any]) -> bool:
    """Whether an operator answers with places in an order of numbers, or with the first of them."""
    name, overload = func._schema.name.removeprefix("aten::"), func._schema.overload_name
    known = name in ("sort", "topk", "argmax", "argmin") and overload in ("", "stable")
    if not known and (name not in ("max", "min") or overload != "dim"):
        return False
    first = args[0]
    return isinstance(first, torch.Tensor) and first.dim() > 0 and first.numel() > 0 and not first.is_complex()


def ranks(func: Any, args: Sequence[Any]) -> bool:
    """Whether it does, or answers with what stands at a place of such an order."""
    return chooses(func, args) or func._schema.name.removeprefix("aten::") in _RANKS


class Watching(TorchDispatchMode):
    """What sees every operator of a call below autograd."""

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """Torch's own hook: True would import torch._dynamo (2 to 4 s) at the first operator, to no use here."""
        return False
