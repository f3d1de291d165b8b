# SPDX-License-Identifier: Apache-2.0
"""How wrong an honest program may be: the reference in float64 with its own rounding put back at random.

Method: stochastic (Monte Carlo) arithmetic after Parker 1997. Each elementary operator's result is perturbed as a
rounding would; sums and products of matrices are perturbed as the least careful order of summation that is still
sensible would be (one running sum for dot products and up to ``SHORT`` addends, ``LANES`` for more); inputs and weights
are perturbed by up to half an ulp, so an ill-conditioned reference shows itself. The deviation from the plain oracle is
the floor.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch._decomp import decomposition_table

from kernelwright.judge import borders, counted, filled, interpolated, scattered, sparse, steps, sweeps, waves
from kernelwright.judge.addends import Chain
from kernelwright.judge.centred import Centred
from kernelwright.judge.decays import Decays
from kernelwright.judge.exchanged import Equal, Kept
from kernelwright.judge.kinds import EXACT, TAKEN_APART, bound
from kernelwright.judge.logarithms import Logarithms, less_logarithm
from kernelwright.judge.noise import Pool, apart, finite, stretches
from kernelwright.judge.oracle import Float64Trace, convolved
from kernelwright.judge.swallowed import LONGEST, by_row, equal, equal_terms
from kernelwright.judge.trees import Trees
from kernelwright.judge.wide import Finer

SHORT = 1024
"""Addends that a sensible reduction may take one after the other: a row of a norm or of a softmax, in the kernel that
is written first (llm.c's layer norm: 768). A choice, not a measurement: some end there must be."""
LANES = 8
"""Running sums of a sensible reduction of more: one SIMD register of float32. SHORT * LANES addends are then as exact
as SHORT in a row, so the line has no step."""
LONGEST_DOT = 16384
"""Additions in one accumulator of a matrix product, which tiled programs run down the whole inner dimension."""
ROWS = 256
"""Rows of a matrix that its share of addends is counted in."""
ROUND = 0.55
"""RMS of one rounding over the unit roundoff: 0.42 for mantissas spread evenly in logarithm, 0.58 at the worst."""

aten = torch.ops.aten


def equal_keys(run: Callable[[Float64Trace], Any], chooses: bool) -> Equal | None:
    """What of the keys of a reference is equal in float64, where one of its operators ``chooses``."""
    mode = Equal()
    if chooses:
        run(mode)
    return mode if any(firsts is not None for firsts in mode.firsts) else None


class Rounded(Float64Trace):
    """Float64 with the rounding of ``unit`` (a unit roundoff) put back at random, from a private generator."""

    def __init__(self, unit: float, rng: torch.Generator, few: bool = False, equal: Equal | None = None) -> None:
        super().__init__()
        self.unit, self.rng, self.few = unit, rng, few
        self._equal = None if equal is None else Kept(equal)
        self._open: list[Any] = []
        self._pool = Pool(rng)
        self.chain = Chain(ROUND * unit)
        self.centred = Centred(ROUND * unit)
        self.trees = Trees(ROUND * unit, LONGEST_DOT)
        self.decays = Decays(ROUND * unit)
        self._logarithms = Logarithms()
        self._terms: tuple[int, int] | None = None
        """Where the product before this operator lies, and its size: it may be added up as a library adds it up."""
        self._finer = Finer(Rounded)

    def apply(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """One operator, perturbed."""
        if self.limits.wide.any and not self._open and (fine := self._finer.of(self, func)) is not None:
            return fine.apply(func, args, kwargs)
        args, off = (args, None) if self._open else self._logarithms.again(self, func, args)
        out = self._applied(func, args, kwargs)
        out = out if off is None else off.applied(out)
        if not self._open:
            out = less_logarithm(self, func, args, kwargs, out)
            self._logarithms.note(func, args, kwargs, out)
        self.decays.spread(args, out)
        return out

    def rounded_again(self, func: Any, args: tuple[Any, ...]) -> torch.Tensor:
        """Another draw of an operator of one result."""
        return self._applied(func, args, {})

    def _applied(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        args = args if self._equal is None else self._equal.again(func, args, kwargs)
        if func in TAKEN_APART and func not in self._open and self._widest(args):
            self._open.append(func)
            try:
                with self:
                    out = decomposition_table[func](*args, **kwargs)
            finally:
                self._open.pop()
            if out is not NotImplemented:
                return out
        if sparse.found(args):
            return sparse.product(self, func, args, kwargs, LONGEST_DOT)
        rule = (_SUMS if self._widest(args) else _NARROW).get(func)
        if rule is not None:
            found = rule(self, func, args, kwargs)
            known = self.few and isinstance(found, torch.Tensor) and found.dtype is torch.float64
            return counted.kept(func, args, kwargs, found) if known else found
        out = self._rounded(func, args, kwargs)
        if not func.is_view:
            self.multiplied(out if _multiplies(func, args) else None)
            self.centred.followed(func, args, out)
        return out

    def multiplied(self, out: torch.Tensor | None) -> None:
        """Note the elements of a product, or None: that there was none."""
        self._terms = None if out is None else (out.data_ptr(), out.numel())

    def are_terms(self, values: torch.Tensor) -> bool:
        """Whether these are those elements, or a view of them."""
        return self._terms == (values.data_ptr(), values.numel())

    def _rounded(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        out = func(*args, **kwargs)
        name = func._schema.name.removeprefix("aten::")
        exact = func.is_view or name in EXACT or name.rstrip("_") in EXACT  # in place too: a whole number stays one
        if exact or sparse.found([out]):
            return self._followed(func, args, kwargs, out)
        if func._schema.is_mutable:
            return self.decays.followed(self, func, args, kwargs, self._roughen_written(func, args, kwargs, out))
        if isinstance(out, torch.Tensor) and out.dtype is torch.float64:
            shared = any(isinstance(arg, torch.Tensor) and arg.data_ptr() == out.data_ptr() for arg in args)
            known, fills = self.few and borders.exact(func, args), self.fills_by(func, kwargs, out)
            rough = self.chain.joined(self, func, args, self.roughen(out.clone() if shared or known or fills else out))
            rough = self._followed(func, args, kwargs, rough)
            rough = filled.kept(func, args, out, rough) if fills else rough
            return borders.kept(out, rough, borders.divisor(func, args)) if known else rough
        return waves.rounded(self, func, args, out)

    def _followed(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], out: Any) -> Any:
        out = self.trees.followed(self, func, args, kwargs, out)
        return self.decays.followed(self, func, args, kwargs, out)

    @staticmethod
    def _widest(args: tuple[Any, ...]) -> bool:
        """True where the first tensor is double: only then do the rules below mean anything."""
        first = next((arg for arg in args if isinstance(arg, torch.Tensor)), None)
        return first is not None and first.dtype is torch.float64

    def _roughen_written(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], out: Any) -> Any:
        """In-place operators: perturb the tensor that was written, where its values were computed."""
        if isinstance(out, torch.Tensor) and out.dtype is torch.float64 and torch.Tag.pointwise in func.tags:
            known, fills = self.few and borders.exact(func, args), self.fills_by(func, kwargs, out)
            before = out.clone() if known or fills else out
            moved = self.roughen(out)
            out = out if moved is out else out.copy_(moved)
            out = filled.kept(func, args, before, out) if fills else out
            return borders.kept(before, out, borders.divisor(func, args)) if known else out
        return out

    def noise(self, like: torch.Tensor) -> torch.Tensor:
        """Uniform in [-1, 1), shape and device of ``like``, float64."""
        return self._pool.noise(like)

    def bells(self, like: torch.Tensor) -> torch.Tensor:
        """Nearly normal, of unit variance: what many roundings add up to."""
        return self._pool.bells(like)

    def roughen(self, out: torch.Tensor) -> torch.Tensor:
        """One correctly rounded result and as much again: elementary functions err by an ulp. It may be written to."""
        return self._pool.moved(out, self.unit)

    def but_few(self, before: torch.Tensor, moved: torch.Tensor) -> torch.Tensor:
        """``moved``, where what has few bits stays written over by that."""
        return borders.kept(before, moved) if self.few else moved

    def summed(
        self,
        out: torch.Tensor,
        squares: torch.Tensor,
        terms: Any,
        lanes: float,
        longest: float,
        alike: Any = 0.0,
        lost: Any = 0.0,
    ) -> torch.Tensor:
        """A sum with the error of ``lanes`` running sums over ``terms`` effective addends.

        A running sum of c addends with sum of squares q and sum s errs by unit * ROUND * sqrt(q c / 2 + s^2 c / 3):
        its k-th partial sum is s k / c beside a random walk of q k / c, and each rounds by itself. Lanes add up in a
        tree; up to SHORT addends, and SHORT of each lane's, may be one running sum. ``squares`` is the sum of squared
        addends, ``terms`` a tensor or a number. ``alike`` counts the addends that equal their neighbours: within a
        binade of the partial sum those all round the same way, so their errors add up linearly, over the lanes too;
        by unit * s each where another addend made the sum large before them. ``lost`` is the part of a sum that is lost
        of addends which vanish beside it (see ``swallowed``). ``out`` may be written to.
        """
        count = torch.as_tensor(terms, dtype=torch.float64, device=out.device).clamp_min(1.0)
        chain = _in_a_row(count, lanes, longest)
        width = (count / chain).clamp_min(1.0)
        spread, size = chain / 2 + torch.log2(width) + 1, chain / (3 * width) + 2
        if spread.dim() == 0 and not isinstance(alike, torch.Tensor) and stretches(out, squares):
            return self._pool.strewn(out, squares, float(spread), float(size), ROUND * self.unit)
        variance = squares * spread + out.square() * size
        if isinstance(alike, torch.Tensor):
            variance = variance + (out * _in_a_row(alike, lanes, longest)).square()
            variance = variance + (out * lost / (ROUND * self.unit * width)).square()
        return out + self.bells(out) * ROUND * self.unit * finite(variance.sqrt())


def _multiplies(func: Any, args: tuple[Any, ...]) -> bool:
    """Whether an operator multiplies tensors of one shape, element by element."""
    if func in (aten.square.default, aten.pow.Tensor_Scalar):
        return len(args) == 1 or args[1] == 2
    return func is aten.mul.Tensor and isinstance(args[1], torch.Tensor) and args[0].shape == args[1].shape


def _in_a_row(count: torch.Tensor, lanes: float, longest: float) -> torch.Tensor:
    """How many of ``count`` addends the longest sensible running sum takes."""
    return torch.maximum(count / lanes, count.clamp_max(SHORT)).clamp_max(longest)


def _sum_rule(mode: Rounded, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    values = args[0]
    out = func(*args, **kwargs)
    dims = args[1] if len(args) > 1 and args[1] else list(range(values.dim()))
    dims = [dims] if isinstance(dims, int) else list(dims)
    if values.dim() == 0 or values.numel() == 0:
        return out
    found = by_row(values, dims, mode.unit)
    share = 1.0
    if func._schema.name == "aten::mean":
        share = math.prod(values.shape[dim] for dim in dims)
    shape = out.shape
    squares, terms, alike, lost = (part.reshape(shape) for part in found)
    manner = (1, LONGEST_DOT) if mode.are_terms(values) else (LANES, LONGEST)
    noisy = mode.summed(out * share, squares, terms, *manner, alike, lost)
    noisy = mode.centred.total(mode, values, noisy, terms.clamp_min(1.0) / _in_a_row(terms, LANES, LONGEST))
    return mode.centred.averaged(mode.roughen(noisy / share)) if share != 1.0 else noisy


def _density(values: torch.Tensor, dim: int, unit: float) -> float:
    """Mean share of the addends along ``dim`` that round the running sum: all that do not vanish beside their row's
    sum (see ``swallowed``). Of at most ROWS rows, evenly spread."""
    rows = values.movedim(dim, -1)
    while rows[..., 0].numel() > ROWS:
        longest = max(range(rows.dim() - 1), key=lambda d: rows.shape[d])
        step = min(rows.shape[longest], -(-rows[..., 0].numel() // ROWS))
        rows = rows[(slice(None),) * longest + (slice(None, None, step),)]
    size = rows.abs()
    carry = size > size.sum(-1, keepdim=True) * unit
    return max(float(carry.to(torch.float64).mean()), 1.0 / max(1, values.shape[dim]))


def _product_rule(mode: Rounded, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    left, right = args[0], args[1]
    out, alike = func(left, right), 0.0
    inner = left.shape[-1]
    if inner == 0 or out.numel() == 0:
        return out
    if out.numel() * inner <= 1 << 28:
        squares, alike = func(left.square(), right.square()), equal_terms(func, left, right, mode.unit)
    else:  # rows and columns independent: exact for random ones, and it saves a product of this size
        sizes = (
            torch.linalg.vector_norm(left, 2, -1, keepdim=True),
            torch.linalg.vector_norm(right, 2, -2, keepdim=True),
        )
        squares = sizes[0].square() * sizes[1].square() / inner
    terms = max(1.0, inner * _density(left, -1, mode.unit) * _density(right, -2, mode.unit))
    return mode.chain.begun(mode.summed(out, squares, terms, 1, LONGEST_DOT, alike), min(inner, LONGEST_DOT))


def _affine_rule(mode: Rounded, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    product = aten.bmm.default if func._schema.name == "aten::baddbmm" else aten.mm.default
    beta, alpha = kwargs.get("beta", 1), kwargs.get("alpha", 1)
    out = _product_rule(mode, product, args[1:3], {}) * alpha
    return _shifted(mode, out, args[0] * beta, args[1].shape[-1]) if beta != 0 else out


def _shifted(mode: Rounded, out: torch.Tensor, bias: torch.Tensor, terms: float) -> torch.Tensor:
    return mode.chain.shifted(mode, mode.roughen(out + bias), bias, min(terms, LONGEST_DOT))


def _vector_rule(mode: Rounded, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """dot, vdot and mv as a product of matrices. An inner product is a reduction: it is done in lanes."""
    left, right = args[0], args[1]
    if left.numel() == 0 or left.is_complex():
        return func(*args, **kwargs)
    if func._schema.name == "aten::mv":
        return _product_rule(mode, aten.mm.default, (left, right.unsqueeze(1)), {}).squeeze(1)
    terms = left * right
    return _sum_rule(mode, aten.sum.dim_IntList, (mode.roughen(terms), [0]), {})


def _convolution_backward_rule(mode: Rounded, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    grad, values, weight, *rest = args
    found = func(*args, **kwargs)
    squares = func(grad.square(), values.square(), weight.square(), *rest)
    places = grad.numel() / max(1, grad.shape[1])
    terms = (weight.numel() / max(1, weight.shape[1]), places, places)
    return tuple(
        mode.summed(out, square, count, 1, LONGEST_DOT) if isinstance(out, torch.Tensor) else out
        for out, square, count in zip(found, squares, terms, strict=True)
    )


def _convolution_rule(mode: Rounded, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    values, weight, bias, *rest = args
    out = convolved(func, values, weight, None, *rest)
    squares = convolved(func, values.square(), weight.square(), None, *rest)
    transposed = bool(rest[3])
    addends = weight.numel() / max(1, weight.shape[1 if transposed else 0])
    out = mode.summed(out, squares, addends, 1, LONGEST_DOT)
    if bias is not None:
        return _shifted(mode, out, bias.reshape(1, -1, *[1] * (out.dim() - 2)), addends)
    return mode.chain.begun(out, min(addends, LONGEST_DOT))


def _variance_rule(mode: Rounded, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    values, given = args[0], bound(func, args, kwargs)
    correction = given.get("correction", 1) if "unbiased" not in given else int(given["unbiased"])
    correction = 1 if correction is None else correction
    dims = list(given["dim"]) if given.get("dim") else list(range(values.dim()))
    count = math.prod(values.shape[dim] for dim in dims)
    keep = bool(given.get("keepdim", False))
    if values.numel() == 0 or values.dim() == 0:
        return func(*args, **kwargs)
    mean = _sum_rule(mode, aten.mean.dim, (values, dims, True), {})
    spread = mode.roughen(values - mean).square()
    mode.multiplied(spread)
    mode.centred.squared(spread)
    total = _sum_rule(mode, aten.sum.dim_IntList, (spread, dims, keep), {})
    out = total / max(count - correction, 0) if count > correction else func(*args, **kwargs)
    out = mode.roughen(out) if isinstance(out, torch.Tensor) else out[0]
    name = func._schema.name.removeprefix("aten::")
    out = mode.roughen(out.sqrt()) if name.startswith("std") else out
    if name.endswith("_mean"):
        return out, mean if keep else mean.reshape(out.shape)
    return out


def _norm_rule(mode: Rounded, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    values = args[0]
    power = args[1] if len(args) > 1 else kwargs.get("ord", 2)
    dims = args[2] if len(args) > 2 else kwargs.get("dim")
    keep = args[3] if len(args) > 3 else kwargs.get("keepdim", False)
    if power not in (1, 2):
        return mode.roughen(func(*args, **kwargs))
    dims = [dims] if isinstance(dims, int) else list(dims or range(values.dim()))
    terms = values.abs() if power == 1 else values.square()
    mode.multiplied(terms if power == 2 else None)
    total = _sum_rule(mode, aten.sum.dim_IntList, (terms, dims, keep), {})
    return total if power == 1 else mode.roughen(total.sqrt())


def _running_rule(mode: Rounded, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    dim = args[1]
    if (parts := apart(args[0], dim)) is not None:
        return torch.cat([_running_rule(mode, func, (part, *args[1:]), kwargs) for part in parts[1]], parts[0])
    out = func(*args, **kwargs)
    squares = args[0].square().cumsum(dim)
    terms = torch.arange(1, out.shape[dim] + 1, dtype=torch.float64, device=out.device) if out.dim() else 1.0
    if isinstance(terms, torch.Tensor):
        terms = terms.reshape([-1 if axis == dim % out.dim() else 1 for axis in range(out.dim())])
    alike = equal(args[0], args[0].abs(), dim, mode.unit).cumsum(dim).to(torch.float64)
    return mode.summed(out, squares, terms, 1, LONGEST, alike)


def _pool_rule(mode: Rounded, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    out = func(*args, **kwargs)
    spread = func(args[0].square(), *args[1:], **kwargs)
    return mode.roughen(out + mode.noise(out) * mode.unit * finite(spread.sqrt()))


_Rule = Callable[[Rounded, Any, tuple[Any, ...], dict[str, Any]], Any]
_SUMS: dict[Any, _Rule] = {
    **steps.RULES,
    **sweeps.RULES,
    **scattered.RULES,
    **interpolated.RULES,
    **dict.fromkeys((aten.sum.default, aten.sum.dim_IntList, aten.mean.default, aten.mean.dim), _sum_rule),
    aten._fft_r2c.default: waves.transform,
    **dict.fromkeys((aten.mm.default, aten.bmm.default), _product_rule),
    **dict.fromkeys((aten.addmm.default, aten.baddbmm.default), _affine_rule),
    **dict.fromkeys((aten.dot.default, aten.vdot.default, aten.mv.default), _vector_rule),
    aten.convolution.default: _convolution_rule,
    aten.convolution_backward.default: _convolution_backward_rule,
    **dict.fromkeys((aten.var.default, aten.var.dim, aten.var.correction), _variance_rule),
    **dict.fromkeys((aten.std.default, aten.std.dim, aten.std.correction), _variance_rule),
    **dict.fromkeys((aten.var_mean.default, aten.var_mean.dim, aten.var_mean.correction), _variance_rule),
    aten.std_mean.correction: _variance_rule,
    aten.linalg_vector_norm.default: _norm_rule,
    aten.cumsum.default: _running_rule,
    **dict.fromkeys((aten.avg_pool1d.default, aten.avg_pool2d.default, aten.avg_pool3d.default), _pool_rule),
    **dict.fromkeys((aten._adaptive_avg_pool2d.default, aten._adaptive_avg_pool3d.default), _pool_rule),
}
_NARROW: dict[Any, _Rule] = {**waves.RULES, **steps.SINGLE_RULES, **sweeps.COMPLEX}
"""Of operators whose values are none of float64."""
