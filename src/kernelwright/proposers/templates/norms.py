# SPDX-License-Identifier: Apache-2.0
"""What aten's reductions and normalisations mean in primitive ops."""

from __future__ import annotations

from typing import Any

import torch

from kernelwright.proposers.templates.rules import Lowering, Rule, arg, number, own_type, region, registrar
from kernelwright.proposers.templates.sizes import product
from kernelwright.proposers.templates.space import Growing, Handle, NotFusible

RULES: dict[str, Rule] = {}
rule = registrar(RULES)


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
    if node.kwargs.get("dtype") not in (None, own_type(low)):
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
    if node.kwargs.get("dtype") not in (None, own_type(low)):
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
    count = r.scalar(f"float({product(low.shape(source)[d] for d in dims)} - {correction:g})")  # type: ignore[arg-type]
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
    if len(node.args) > 2 and node.args[2] not in (None, False, own_type(low)):
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


def cut_in_groups(node: torch.fx.Node, region: Growing | None) -> Growing | None:
    """For a group_norm, a region whose channels are cut into groups; for any other node the region as it is."""
    if str(node.target) != "aten.group_norm.default" or region is None:
        return region
    shape, groups = node.meta["val"].shape, int(node.args[1])  # type: ignore[arg-type]
    channels = str(shape[1])
    before = sum(str(size) != "1" for size in shape[:1])
    if not channels.isdigit() or groups == 1 or groups == int(channels) or region.sizes[before] != channels:
        return region
    cut = (groups, int(channels) // groups)
    sizes, sample = list(region.sizes), list(region.sample)
    sizes[before : before + 1], sample[before : before + 1] = map(str, cut), cut
    grown = Growing(tuple(sizes), tuple(sample), region.level, region.float_type)
    grown.merge((before, before + 1), channels)
    return grown


@rule("group_norm")
def _group_norm(low: Lowering, node: torch.fx.Node) -> Handle:
    """Groups of channels by their own mean and variance; the axes of a group follow each other in memory."""
    x, groups = node.args[0], int(node.args[1])  # type: ignore[arg-type]
    weight, bias, eps = arg(node, 2, "weight"), arg(node, 3, "bias"), number(arg(node, 4, "eps", 1e-5))
    (full,) = low.operands(x)
    r = region(low)
    channel = full.logical[1]
    inside = r.real(full.logical[2:])
    if channel is None:
        raise NotFusible("one channel only")
    own = r.real([channel])
    if groups == 1:
        inside = own + inside
    elif r.size(channel) != str(groups):
        if len(own) != 2 or r.sizes[own[0]] != str(groups):
            raise NotFusible("its channels are not cut into these groups")
        inside = own[1:] + inside
    left = (full.logical[0], *(None for _ in full.logical[1:]))
    axes = frozenset(inside)
    count = r.scalar(f"float({product(r.sizes[axis] for axis in inside)})")
    mean = r.apply("div", r.reduce_axes("sum", full, axes, left), count)
    centred = r.apply("sub", full, mean)
    squares = r.reduce_axes("sum", r.apply("mul", centred, centred), axes, left)
    scale = r.apply("rsqrt", r.apply("add", r.apply("div", squares, count), r.const(eps)))
    if weight is not None:
        scale = r.apply("mul", scale, _channel(low, full, weight))
    out = r.apply("mul", centred, scale)
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
