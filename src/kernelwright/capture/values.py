# SPDX-License-Identifier: Apache-2.0
"""Values as Python text: a literal that makes the same number, or a tensor of the same shape, type, spread and gaps."""

from __future__ import annotations

import numbers
from typing import Any

import torch

from kernelwright.errors import TaskError

_WRITTEN_OUT = 64
"""Elements up to which a tensor with infinities or nan is written as it is; larger ones are described."""
_INFINITIES = (float("-inf"), float("inf"), float("nan"))


def is_plain(value: object) -> bool:
    """Whether a value is a number, text, None, or a list or tuple of such."""
    if isinstance(value, tuple | list):
        return all(is_plain(item) for item in value)
    return value is None or isinstance(value, bool | int | float | str)


def literal(value: object) -> str:
    """Python text that makes a value like this one: same shapes, dtypes, spread and ranges; weights travel apart."""
    if isinstance(value, torch.Tensor):
        return _tensor(value)
    if isinstance(value, tuple | list):
        inside = ", ".join(literal(item) for item in value)
        if isinstance(value, tuple):
            return f"({inside}{',' if len(value) == 1 else ''})"
        return f"[{inside}]"
    if isinstance(value, dict):
        return "{" + ", ".join(f"{literal(key)}: {literal(item)}" for key, item in value.items()) + "}"
    if isinstance(value, torch.dtype | bool | None):
        return repr(value)
    # Not repr: that of a subclass (numpy's float64, an enumeration) names what the source has not imported.
    if isinstance(value, str):
        return str.__repr__(value)
    if isinstance(value, numbers.Integral):
        return repr(int(value))
    if isinstance(value, numbers.Real):
        number = float(value)
        return repr(number) if number - number == 0.0 else f'float("{number}")'
    raise TaskError(
        "An input cannot be written down.",
        got=type(value).__name__,
        expected="tensors, numbers, text, None, and lists, tuples or dicts of them",
    )


def _tensor(value: torch.Tensor) -> str:
    shape, dtype = list(value.shape), str(value.dtype)
    if value.dtype is torch.bool:
        return _pattern(value.detach().to("cpu"), leading=False) if value.numel() else f"(torch.rand({shape}) < 0.5)"
    if not value.is_floating_point() and not value.is_complex():
        low, high = (int(value.min()), int(value.max())) if value.numel() else (0, 1)
        return f"torch.randint({low}, {min(high + 1, 2**63 - 1)}, {shape}, dtype={dtype})"
    if value.is_complex():
        return f"torch.randn({shape}, dtype={dtype})"
    wide = value.detach().to("cpu", torch.float64)
    edge = torch.finfo(value.dtype).max  # a mask's "minus infinity" in many models
    marks = [mark for mark in (*_INFINITIES, -edge, edge) if bool(_is(wide, mark).any())]
    if not marks:
        return _drawn(wide, shape, dtype)
    if wide.numel() <= _WRITTEN_OUT:
        return f"torch.tensor({_nested(wide.tolist())}, dtype={dtype})"
    hit = torch.stack([_is(wide, mark) for mark in marks]).any(0)
    text = _drawn(wide[~hit], shape, dtype)
    leading = wide.ndim > 0 and not bool(hit.all(-1).any())
    for mark in marks:
        text += f".masked_fill({_pattern(_is(wide, mark), leading=leading)}, {literal(mark)})"
    return text


def _is(values: torch.Tensor, mark: float) -> torch.Tensor:
    return values.isnan() if mark != mark else values == mark


def _nested(value: Any) -> str:
    """Nested lists of floats; ``literal`` of a float knows the infinities."""
    return f"[{', '.join(map(_nested, value))}]" if isinstance(value, list) else literal(value)


def _drawn(wide: torch.Tensor, shape: list[int], dtype: str) -> str:
    """Random numbers of the mean and spread of finite ones."""
    mean, spread = (float(wide.mean()), float(wide.std(correction=0))) if wide.numel() else (0.0, 1.0)
    if wide.numel() and float(wide.min()) >= 0.0:
        # Kept nonnegative: probabilities, distances and the like often feed a square root or a logarithm.
        return f"(torch.rand({shape}) * {2 * mean!r}).to({dtype})"
    centre = mean if abs(mean) > 0.25 * spread else 0.0
    shift = f" + {centre:.6g}" if centre else ""
    return f"(torch.randn({shape}) * {spread or 1.0:.6g}{shift}).to({dtype})"


def _run(flags: torch.Tensor) -> int:
    """How many are set before the first that is not."""
    return int(flags.long().cumprod(0).sum())


def _pattern(hit: torch.Tensor, *, leading: bool) -> str:
    """Where something is: a triangle of the last two axes (causal masks) as such, else drawn with the same share.

    ``leading``: the first of every row stays out, so that no row is hit everywhere: its softmax would be nan.
    """
    shape = list(hit.shape)
    if hit.ndim >= 2 and min(shape[-2:]) > 2:
        page = hit.reshape(-1, *shape[-2:])[0]
        row, column = page[0], page[:, 0]
        upper = _run(~row) if not row[0] else 1 - _run(column)
        lower = _run(row) - 1 if row[0] else -_run(~column)
        for name, diagonal in (("triu", upper), ("tril", lower)):
            if torch.equal(hit, getattr(torch.ones(shape, dtype=torch.bool), name)(diagonal)):
                return f"torch.ones({shape}, dtype=torch.bool).{name}({diagonal})"
    kept = f" & (torch.arange({shape[-1]}) > 0)" if leading else ""
    share = float(hit.double().mean()) * (shape[-1] / max(shape[-1] - 1, 1) if leading else 1.0)
    return f"((torch.rand({shape}) < {share!r}){kept})" if leading else f"(torch.rand({shape}) < {share!r})"
