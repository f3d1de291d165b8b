# SPDX-License-Identifier: Apache-2.0
"""What aten's losses mean in primitive ops, and the picking of one element per row that some of them need."""

from __future__ import annotations

from typing import Any

import torch

from kernelwright.proposers.templates.rules import Lowering, Rule, arg, number, region, registrar
from kernelwright.proposers.templates.sizes import product
from kernelwright.proposers.templates.space import Growing, Handle, NotFusible

RULES: dict[str, Rule] = {}
rule = registrar(RULES)


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
    sizes = product(r.size(axis) for axis in loss.logical if axis is not None)
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
    sizes = product(r.size(axis) for axis in loss.logical if axis is not None)
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
    sizes = product(r.size(axis) for axis in loss.logical if axis is not None)
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
