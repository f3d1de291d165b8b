# SPDX-License-Identifier: Apache-2.0
"""What aten's reductions, normalisations and losses mean in primitive ops."""

from __future__ import annotations

from typing import Any

import torch

from kernelwright.proposers.templates.rules import Lowering, Rule, arg, number, region
from kernelwright.proposers.templates.space import Growing, Handle, NotFusible, product

RULES: dict[str, Rule] = {}


def rule(*names: str) -> Any:
    """Register a rule under aten names without ``aten.`` and ``.default``."""

    def register(function: Rule) -> Rule:
        RULES.update(dict.fromkeys(names, function))
        return function

    return register


def _dims(node: torch.fx.Node, position: int, rank: int) -> list[int]:
    dims = arg(node, position, "dim")
    if dims is None or dims == []:
        return list(range(rank))
    chosen = dims if isinstance(dims, (list, tuple)) else [dims]
    if not all(isinstance(d, int) for d in chosen):
        raise NotFusible("a dimension that is not a number")
    return [d % rank for d in chosen] if rank else []


def _count(low: Lowering, source: Any, dims: list[int]) -> Handle:
    """How many elements are reduced, as a number known at the call."""
    shape = low.shape(source)
    return region(low).scalar(f"float({product(shape[d] for d in dims)})")


def _mean_of(low: Lowering, source: Any, x: Handle, dims: list[int], keepdim: bool) -> Handle:
    r = region(low)
    return r.apply("div", r.reduce("sum", x, dims, keepdim), _count(low, source, dims))


@rule("sum", "sum.dim_IntList", "amax", "amin", "max", "min", "max.dim", "min.dim")
def _reduce(low: Lowering, node: torch.fx.Node) -> Handle:
    source = node.args[0]
    (x,) = low.operands(source)
    name = str(node.target).removeprefix("aten.").split(".")[0]
    op = {"sum": "sum", "amax": "max", "amin": "min", "max": "max", "min": "min"}[name]
    if node.kwargs.get("dtype") not in (None, torch.float32):
        raise NotFusible("accumulates in another type")
    dims = _dims(node, 1, len(x.logical))
    return region(low).reduce(op, x, dims, bool(arg(node, 2, "keepdim", False)))


@rule("argmax", "argmin")
def _argmax(low: Lowering, node: torch.fx.Node) -> Handle:
    """The first place of the largest element of each row; of the smallest: of the largest negative."""
    (x,) = low.operands(node.args[0])
    dim = arg(node, 1, "dim")
    if not isinstance(dim, int):
        raise NotFusible("a place among all elements")
    x = region(low).apply("neg", x) if "argmin" in str(node.target) else x
    return region(low).reduce("argmax", x, [dim], bool(arg(node, 2, "keepdim", False)))


@rule("adaptive_avg_pool1d", "adaptive_avg_pool2d", "adaptive_avg_pool3d")
def _global_mean(low: Lowering, node: torch.fx.Node) -> Handle:
    """Pooling to one place is a mean over the trailing dimensions."""
    source, places = node.args[0], node.args[1]
    if not isinstance(places, (list, tuple)) or any(place != 1 for place in places):
        raise NotFusible("more than one place")
    (x,) = low.operands(source)
    rank = len(x.logical)
    return _mean_of(low, source, x, list(range(rank - len(places), rank)), True)


@rule("mean", "mean.dim")
def _mean(low: Lowering, node: torch.fx.Node) -> Handle:
    source = node.args[0]
    (x,) = low.operands(source)
    if node.kwargs.get("dtype") not in (None, torch.float32):
        raise NotFusible("accumulates in another type")
    return _mean_of(low, source, x, _dims(node, 1, len(x.logical)), bool(arg(node, 2, "keepdim", False)))


def _center(low: Lowering, source: Any, x: Handle, dims: list[int]) -> tuple[Handle, Handle]:
    """(x - mean, sum of its squares), with the dimensions kept: the two-pass form, which does not cancel."""
    r = region(low)
    centred = r.apply("sub", x, _mean_of(low, source, x, dims, True))
    return centred, r.reduce("sum", r.apply("mul", centred, centred), dims, True)


def _drop(handle: Handle, dims: list[int], keepdim: bool) -> Handle:
    if keepdim:
        return handle
    return Handle(handle.value, tuple(axis for d, axis in enumerate(handle.logical) if d not in dims))


@rule("var.correction", "std.correction", "var.dim", "std.dim", "var", "std")
def _var(low: Lowering, node: torch.fx.Node) -> Handle:
    source = node.args[0]
    (x,) = low.operands(source)
    r = region(low)
    name = str(node.target)
    if name.endswith(".correction"):
        correction = number(node.kwargs.get("correction", 1) if node.kwargs.get("correction") is not None else 1)
        dims, keepdim = _dims(node, 1, len(x.logical)), bool(node.kwargs.get("keepdim", False))
    elif name.endswith(".dim"):
        dims, keepdim = _dims(node, 1, len(x.logical)), bool(arg(node, 3, "keepdim", False))
        correction = float(bool(arg(node, 2, "unbiased", True)))
    else:
        dims, keepdim = list(range(len(x.logical))), False
        correction = float(bool(arg(node, 1, "unbiased", True)))
    _, squares = _center(low, source, x, dims)
    count = r.scalar(f"float({product(low.shape(source)[d] for d in dims)} - {int(correction)})")  # type: ignore[arg-type]
    out = r.apply("div", squares, count)
    if "std" in name:
        out = r.apply("sqrt", out)
    return _drop(out, dims, keepdim)


@rule("linalg_vector_norm", "norm.ScalarOpt_dim", "norm.Scalar")
def _norm(low: Lowering, node: torch.fx.Node) -> Handle:
    source = node.args[0]
    (x,) = low.operands(source)
    r = region(low)
    order = number(arg(node, 1, "ord", 2))
    dims = _dims(node, 2, len(x.logical))
    keepdim = bool(arg(node, 3, "keepdim", False))
    if order == 1:
        return r.reduce("sum", r.apply("abs", x), dims, keepdim)
    if order != 2:
        raise NotFusible("an order that is not 1 or 2")
    return r.apply("sqrt", r.reduce("sum", r.apply("mul", x, x), dims, keepdim))


@rule("softmax.int", "_softmax", "log_softmax.int", "_log_softmax")
def _softmax(low: Lowering, node: torch.fx.Node) -> Handle:
    (x,) = low.operands(node.args[0])
    if len(node.args) > 2 and node.args[2] not in (None, False, torch.float32):
        raise NotFusible("another type")
    r = region(low)
    dims = [int(node.args[1])]  # type: ignore[arg-type]
    shifted = r.apply("sub", x, r.reduce("max", x, dims, True))
    powers = r.apply("exp", shifted)
    total = r.reduce("sum", powers, dims, True)
    if "log" in str(node.target):
        return r.apply("sub", shifted, r.apply("log", total))
    return r.apply("mul", powers, r.apply("reciprocal", total))


@rule("logsumexp")
def _logsumexp(low: Lowering, node: torch.fx.Node) -> Handle:
    (x,) = low.operands(node.args[0])
    r = region(low)
    dims = _dims(node, 1, len(x.logical))
    keepdim = bool(arg(node, 2, "keepdim", False))
    top = r.reduce("max", x, dims, True)
    # An infinite maximum must not give inf - inf; torch shifts by zero there.
    finite = r.apply("where", r.apply("lt", r.apply("abs", top), r.const(float("inf"))), top, r.const(0.0))
    total = r.reduce("sum", r.apply("exp", r.apply("sub", x, finite)), dims, True)
    return _drop(r.apply("add", r.apply("log", total), finite), dims, keepdim)


def _affine(low: Lowering, x: Handle, weight: Any, bias: Any, source: Any) -> Handle:
    r = region(low)
    if weight is not None:
        x = r.apply("mul", x, low.operands(source, weight)[1])
    if bias is not None:
        x = r.apply("add", x, low.operands(source, bias)[1])
    return x


@rule("layer_norm")
def _layer_norm(low: Lowering, node: torch.fx.Node) -> Handle:
    source = node.args[0]
    (x,) = low.operands(source)
    r = region(low)
    dims = [d - len(node.args[1]) for d in range(len(node.args[1]))]  # type: ignore[arg-type]
    dims = [d % len(x.logical) for d in dims]
    centred, squares = _center(low, source, x, dims)
    eps = r.const(number(arg(node, 4, "eps", 1e-5)))
    scale = r.apply("rsqrt", r.apply("add", r.apply("div", squares, _count(low, source, dims)), eps))
    return _affine(low, r.apply("mul", centred, scale), arg(node, 2, "weight"), arg(node, 3, "bias"), source)


@rule("rms_norm")
def _rms_norm(low: Lowering, node: torch.fx.Node) -> Handle:
    source = node.args[0]
    (x,) = low.operands(source)
    r = region(low)
    dims = [len(x.logical) - 1 - d for d in range(len(node.args[1]))]  # type: ignore[arg-type]
    eps = arg(node, 3, "eps")
    if eps is None and node.meta["val"].dtype != torch.float32:
        raise NotFusible("an epsilon of the input's type")
    epsilon = r.const(torch.finfo(torch.float32).eps if eps is None else number(eps))
    mean = _mean_of(low, source, r.apply("mul", x, x), sorted(dims), True)
    scale = r.apply("rsqrt", r.apply("add", mean, epsilon))
    return _affine(low, r.apply("mul", x, scale), arg(node, 2, "weight"), None, source)


@rule("instance_norm")
def _instance_norm(low: Lowering, node: torch.fx.Node) -> Handle:
    """Each channel of each sample by its own mean and variance; running statistics are not covered."""
    x, weight, bias, running_mean = node.args[:4]
    if running_mean is not None or not node.args[5]:
        raise NotFusible("running statistics")
    (full,) = low.operands(x)
    r = region(low)
    dims = list(range(2, len(full.logical)))
    centred, squares = _center(low, x, full, dims)
    scale = r.apply("add", r.apply("div", squares, _count(low, x, dims)), r.const(number(node.args[7])))
    out = r.apply("mul", centred, r.apply("rsqrt", scale))
    out = r.apply("mul", out, _channel(low, full, weight)) if weight is not None else out
    return r.apply("add", out, _channel(low, full, bias)) if bias is not None else out


@rule("batch_norm", "_native_batch_norm_legit_no_training")
def _batch_norm(low: Lowering, node: torch.fx.Node) -> Handle:
    """Outside training only: (x - mean) * (weight * rsqrt(var + eps)) + bias along dimension 1."""
    if "legit" not in str(node.target) and node.args[5]:
        raise NotFusible("it trains")
    x, weight, bias, mean, var = node.args[:5]
    eps = number(node.args[6] if "legit" in str(node.target) else node.args[7])
    r = region(low)
    (full,) = low.operands(x)
    scale = r.apply("rsqrt", r.apply("add", _channel(low, full, var), r.const(eps)))
    if weight is not None:
        scale = r.apply("mul", scale, _channel(low, full, weight))
    out = r.apply("mul", r.apply("sub", full, _channel(low, full, mean)), scale)
    return r.apply("add", out, _channel(low, full, bias)) if bias is not None else out


def _channel(low: Lowering, full: Handle, value: Any) -> Handle:
    """A vector along dimension 1 of ``full``, as if it had been viewed so that it broadcasts."""
    axis = full.logical[1]
    if axis is None:
        raise NotFusible("one channel only")
    logical = tuple(axis if d == 1 else None for d in range(1, len(full.logical)))
    return low.vector(value, logical)


def _apply_reduction(low: Lowering, loss: Handle, reduction: Any, count: Handle) -> Handle:
    r = region(low)
    if reduction == 0:
        return loss
    total = r.reduce("sum", loss, range(len(loss.logical)), False)
    return r.apply("div", total, count) if reduction == 1 else total


@rule("mse_loss", "l1_loss", "smooth_l1_loss", "huber_loss")
def _pointwise_loss(low: Lowering, node: torch.fx.Node) -> Handle:
    a, b = low.operands(node.args[0], node.args[1])
    r = region(low)
    name = str(node.target)
    delta = r.apply("sub", a, b)
    if "mse" in name:
        loss = r.apply("mul", delta, delta)
    else:
        loss = r.apply("abs", delta)
        if "l1_loss" not in name or "smooth" in name:
            loss = _smooth(r, loss, delta, "huber" in name, number(arg(node, 3, "beta", arg(node, 3, "delta", 1.0))))
    sizes = product(r.sizes[axis] for axis in loss.logical if axis is not None)
    return _apply_reduction(low, loss, arg(node, 2, "reduction", 1), r.scalar(f"float({sizes})"))


@rule("kl_div")
def _kl_div(low: Lowering, node: torch.fx.Node) -> Handle:
    """target (log(target) - input), zero where the target is zero; or with a target given as its logarithm."""
    given, target = low.operands(node.args[0], node.args[1])
    r = region(low)
    if arg(node, 3, "log_target", False):
        loss = r.apply("mul", r.apply("exp", target), r.apply("sub", target, given))
    else:
        zero = r.const(0.0)
        entropy = r.apply("mul", target, r.apply("log", target))
        entropy = r.apply("where", r.apply("eq", target, zero), zero, entropy)
        loss = r.apply("sub", entropy, r.apply("mul", target, given))
    sizes = product(r.sizes[axis] for axis in loss.logical if axis is not None)
    return _apply_reduction(low, loss, arg(node, 2, "reduction", 1), r.scalar(f"float({sizes})"))


@rule("triplet_margin_loss")
def _triplet(low: Lowering, node: torch.fx.Node) -> Handle:
    """max(0, margin + |a - p + eps| - |a - n + eps|) with Euclidean distances along the last dimension."""
    anchor, positive, negative = low.operands(*node.args[:3])
    if number(arg(node, 4, "p", 2.0)) != 2 or arg(node, 6, "swap", False):
        raise NotFusible("another distance")
    r = region(low)
    eps = r.const(number(arg(node, 5, "eps", 1e-6)))

    def distance(other: Handle) -> Handle:
        delta = r.apply("add", r.apply("sub", anchor, other), eps)
        return r.apply("sqrt", r.reduce("sum", r.apply("mul", delta, delta), [-1], False))

    loss = r.apply("add", r.const(number(arg(node, 3, "margin", 1.0))), distance(positive))
    loss = r.apply("max", r.apply("sub", loss, distance(negative)), r.const(0.0))
    sizes = product(r.sizes[axis] for axis in loss.logical if axis is not None)
    return _apply_reduction(low, loss, arg(node, 7, "reduction", 1), r.scalar(f"float({sizes})"))


def _smooth(r: Growing, distance: Handle, delta: Handle, huber: bool, beta: float) -> Handle:
    if beta <= 0:
        raise NotFusible("beta")
    near = r.apply("mul", r.apply("mul", delta, delta), r.const(0.5 if huber else 0.5 / beta))
    far = r.apply("sub", distance, r.const(0.5 * beta))
    far = r.apply("mul", far, r.const(beta)) if huber else far
    return r.apply("where", r.apply("lt", distance, r.const(beta)), near, far)


@rule("gather")
def _gather(low: Lowering, node: torch.fx.Node) -> Handle:
    """One element of each row: the last dimension of the index is 1."""
    source, dim, index = node.args[:3]
    full, at = low.operands(source, index)
    if int(dim) % len(full.logical) != len(full.logical) - 1 or at.logical[-1] is not None:  # type: ignore[arg-type]
        raise NotFusible("more than one element of a row")
    if full.logical[:-1] != at.logical[:-1] or region(low).values[at.value].op != "input":
        raise NotFusible("the index is not one per row")
    return region(low).pick(full, at)


@rule("cross_entropy_loss", "nll_loss", "nll_loss_nd")
def _cross_entropy(low: Lowering, node: torch.fx.Node) -> Handle:
    """Class indices, logits (rows, classes): mean over rows whose target is not ``ignore_index``."""
    logits, target = node.args[:2]
    (x,) = low.operands(logits)
    r = region(low)
    smoothing = number(arg(node, 5, "label_smoothing", 0.0)) if "cross" in str(node.target) else 0.0
    if arg(node, 2, "weight") is not None or smoothing != 0 or len(x.logical) != 2:
        raise NotFusible("weights, smoothing or more dimensions")
    if x.logical[0] is None or x.logical[1] is None:
        raise NotFusible("one row or one class")
    index = low.vector(target, (x.logical[0],))
    if r.values[index.value].dtype != "i64":
        raise NotFusible("targets are probabilities")
    reduction, ignored = arg(node, 3, "reduction", 1), r.const(number(arg(node, 4, "ignore_index", -100)))
    if "cross" in str(node.target):
        top = r.reduce("max", x, [1], False)
        lifted = Handle(top.value, (x.logical[0], None))
        total = r.reduce("sum", r.apply("exp", r.apply("sub", x, lifted)), [1], False)
        picked = r.apply("sub", r.pick(x, index), top)
        loss = r.apply("sub", r.apply("log", total), picked)
    else:
        loss = r.apply("neg", r.pick(x, index))
    counted = r.apply("ne", r.apply("cast", index), ignored)
    loss = r.apply("where", counted, loss, r.const(0.0))
    if reduction != 1:
        return _apply_reduction(low, loss, reduction, ignored)
    ones = r.apply("where", counted, r.const(1.0), r.const(0.0))
    return r.apply("div", r.reduce("sum", loss, [0], False), r.reduce("sum", ones, [0], False))
