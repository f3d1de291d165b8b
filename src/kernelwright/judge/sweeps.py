# SPDX-License-Identifier: Apache-2.0
"""Operators that are many steps one after the other inside: what each of them rounds is carried on by the next.

A running sum of exponentials may take one element at a time, y = logaddexp(y, x), or keep a largest one and a sum
beside it: each step rounds at the size of what it has so far. So does each factor of a running product. Eigenvalues and
singular values come of a matrix that is turned about until it is diagonal, and rounded at the size of the whole: a
small one errs as the largest does. CTC takes a step for each frame, the logarithm of three exponentials and a sum, and
the logarithm grows to the loss.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import torch

from kernelwright.judge.noise import finite

if TYPE_CHECKING:
    from kernelwright.judge.rounding import Rounded

aten = torch.ops.aten
ROUND = 0.55
"""RMS of one rounding over the unit roundoff (``rounding.ROUND``)."""
IN_A_ROW = 2048
"""Factors of one running product at the most (``swallowed.LONGEST``)."""
TURNS = 4.0
"""Roundings of an element of such a matrix, at the size of its largest value, times the root of its rows: each sweep of
so many as there are rows moves a value by the few elements that its vector lies on. LAPACK's eigenvalues of symmetric
normal matrices of 4, 24, 64 and 128 rows err by 1.8, 2.9, 3.9 and 4.7 units of the largest (RMS), these by 1.9, 3.3,
4.3 and 5.2. With half an ulp of the elements alone those of the other triangle were refused in 3 variants of 22."""

FRAME = 2.0
"""Roundings of CTC at each frame: of the logarithm of its exponentials, and of the sum with the label's. Torch's losses
in float32 of 40 to 1000 frames err by 0.45 to 0.67 of what that makes (RMS: states share what came before, which evens
it out), those of pairs of logarithms by 0.47 to 1.15, the gradients by 0.4 to 0.5, and of 3 frames all by one."""


def running_exponentials(mode: Rounded, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """logcumsumexp, an element at a time. What a step rounds weighs less as the sum grows: by its share of that."""
    values, dim = args[0], args[1]
    out = func(*args, **kwargs)
    if values.dim() == 0 or values.numel() == 0:
        return mode.roughen(out)
    share = (values - out).exp()
    counts = (share > mode.unit) & (share < 1.0 - mode.unit)
    # 1.0: of the exponential, and of the sum beside a maximum
    step = torch.where(counts, out.square() + 1.0, 0.0).log()
    carried = (func(step + 2.0 * out, dim) - 2.0 * out).exp()
    return mode.roughen(out + mode.bells(out) * (ROUND * mode.unit) * finite(carried.sqrt()))


def running_products(mode: Rounded, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """cumprod and prod, a factor at a time: each rounds the product, but for those that are powers of two.

    Near one all may round the same way: a product above it lies on steps twice as wide as a factor below, and what
    breaks the ties is the sign of what vanishes. 192 factors of 1 + 1e-5 x were off by 57 roundings, an even walk by 8.
    """
    values = args[0]
    out = func(*args, **kwargs)
    if values.dim() == 0 or values.numel() == 0:
        return mode.roughen(out)
    rounds = (torch.frexp(values).mantissa.abs() != 0.5) & (values != 0)
    near = rounds & ((values.abs() - 1.0).abs() < math.sqrt(mode.unit))
    if func is aten.cumprod.default:
        terms, alike = (flags.to(values.dtype).cumsum(args[1]) for flags in (rounds, near))
    else:
        axes = {"dim": args[1], "keepdim": len(args) > 2 and args[2]} if func is aten.prod.dim_int else {}
        terms, alike = (flags.to(values.dtype).sum(**axes) for flags in (rounds, near))
    row = terms.clamp(1.0, IN_A_ROW) + alike.clamp_max(IN_A_ROW).square()
    return mode.roughen(out + mode.bells(out) * (ROUND * mode.unit) * out * row.sqrt())


def turned(mode: Rounded, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Eigenvalues and singular values, and the vectors of these, of a matrix that rounding has moved (``TURNS``)."""
    matrix = args[0]
    rows = min(matrix.shape[-2:])
    if matrix.numel() == 0:
        return func(*args, **kwargs)
    values = next(out for out in func(*args, **kwargs) if out.dim() == matrix.dim() - 1)
    size = finite(values.abs().amax(-1)[..., None, None]) * (ROUND * mode.unit)
    moved = matrix + mode.bells(matrix) * size * math.sqrt(TURNS * math.sqrt(rows) if rows > 1 else 0.0)
    return tuple(mode.roughen(out) if out.numel() else out for out in func(moved, *args[1:], **kwargs))


def volumes(mode: Rounded, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """The logarithm of a determinant: that of each factor's diagonal, added up one after the other. Of one rounding
    alone twice the sum of Cholesky's was refused for 1.3 of the last place."""
    sign, out, factors, *rest = func(*args, **kwargs)
    terms = factors.diagonal(dim1=-2, dim2=-1).abs().log()
    if not terms.numel() or out.dtype is not torch.float64:
        return sign, out, factors, *rest
    noisy = mode.summed(out.clone(), terms.square().sum(-1), terms.shape[-1], 1, IN_A_ROW)
    return sign, mode.roughen(noisy), factors, *rest


def aligned(mode: Rounded, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """CTC's losses, and the logarithms that they come of, frame by frame."""
    loss, alpha = func(*args, **kwargs)
    if not alpha.numel():
        return loss, alpha
    lengths = torch.as_tensor(args[2], dtype=torch.float64, device=loss.device).reshape(-1)
    frames = torch.arange(alpha.shape[1], dtype=torch.float64, device=loss.device)[:, None]
    return tuple(
        mode.roughen(out + mode.bells(out) * finite((_walked(steps).sqrt() * out).abs() * (ROUND * mode.unit)))
        for out, steps in ((loss, lengths - 1), (alpha, frames))
    )


def aligned_back(mode: Rounded, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Gradients of CTC: of each label what the frames after this one round, and the sum with those before it and the
    loss, moves in proportion. ``log_alpha`` and the losses come rounded."""
    grad, logs, _, lengths, _, loss = args[:6]
    out = func(*args, **kwargs)
    if not out.numel():
        return out
    ends = torch.as_tensor(lengths, dtype=torch.float64, device=out.device).reshape(-1, 1)
    left = ends - 1 - torch.arange(logs.shape[0], dtype=torch.float64, device=out.device)[:, None, None]
    share = torch.where(left >= 0, logs.exp() * grad[:, None] - out, 0.0)
    carried = _walked(left.clamp_min(0.0)) * (left / ends).square() + 3.0
    moved = share * carried.sqrt() * loss[:, None].abs() * (ROUND * mode.unit)
    return mode.roughen(out + mode.bells(out) * finite(moved))


def _walked(steps: torch.Tensor) -> torch.Tensor:
    """Variance of so many steps, each rounded at the size of what it has, over one rounding's of the last."""
    return FRAME * torch.where(steps > 0, steps / 3.0 + 0.5, 0.0)


COMPLEX = {aten._linalg_slogdet.default: volumes}
"""For complex matrices, of which the logarithm is real."""
RULES = {
    aten.logcumsumexp.default: running_exponentials,
    **dict.fromkeys((aten.cumprod.default, aten.prod.default, aten.prod.dim_int), running_products),
    aten._linalg_eigh.default: turned,
    aten._linalg_svd.default: turned,
    aten._linalg_slogdet.default: volumes,
    **dict.fromkeys((aten._ctc_loss.default, aten._ctc_loss.Tensor), aligned),
    **dict.fromkeys((aten._ctc_loss_backward.default, aten._ctc_loss_backward.Tensor), aligned_back),
}
