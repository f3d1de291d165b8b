# SPDX-License-Identifier: Apache-2.0
"""ATen operators in the algebra of terms: one small reader per operator; ``read`` returns None for the rest."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch

from kernelwright.proposers.rewrites.terms import Term, make, walk

__all__ = ["is_identity", "read", "read_extreme", "walk"]

Terms = Mapping[torch.fx.Node, Term]
_aten = torch.ops.aten


class _Call:
    """Arguments of one node by schema name, tensors as terms."""

    def __init__(self, node: torch.fx.Node, terms: Terms) -> None:
        target = node.target
        assert isinstance(target, torch._ops.OpOverload)
        self.shape: tuple[int, ...] = tuple(getattr(node.meta["val"], "shape", ()))
        self.values: dict[str, Any] = {}
        for argument, given in zip(target._schema.arguments, node.args, strict=False):
            self.values[argument.name] = given
        for argument in target._schema.arguments:
            given = node.kwargs.get(argument.name, self.values.get(argument.name, argument.default_value))
            self.values[argument.name] = terms[given] if isinstance(given, torch.fx.Node) and given in terms else given

    def __getitem__(self, name: str) -> Any:
        return self.values[name]

    def term(self, name: str = "self") -> Term:
        """A tensor argument."""
        found = self.values[name]
        assert isinstance(found, Term)
        return found


def read(node: torch.fx.Node, terms: Terms) -> Term | None:
    """The term of a node, or None where the algebra has no operator for it."""
    reader = READERS.get(node.target)
    return None if reader is None else reader(_Call(node, terms))


def read_extreme(node: torch.fx.Node, terms: Terms) -> Term | None:
    """Values of ``max.dim`` and ``min.dim`` (their first result)."""
    extremes: dict[Any, str] = {_aten.max.dim: "max", _aten.min.dim: "min"}
    op = extremes.get(node.target)
    if op is None:
        return None
    call = _Call(node, terms)
    return reduced(op, call.term(), [call["dim"]], call["keepdim"])


def is_identity(node: torch.fx.Node) -> bool:
    """Dropout outside training, and detaching what never had a gradient."""
    return node.target in DROPOUTS and node.args[2:3] == (False,) or node.target is _aten.detach_.default


def lift(term: Term, rank: int) -> Term:
    """Leading dimensions of size 1 up to ``rank``."""
    while len(term.shape) < rank:
        term = make("unsqueeze", (term,), (0,))
    return term


def reduced(op: str, term: Term, dims: list[int] | None, keep: bool) -> Term:
    """A reduction over ``dims`` (all when None or empty), one dimension at a time, from the last."""
    rank = len(term.shape)
    order = sorted({d % rank for d in dims} if dims else set(range(rank)), reverse=True) if rank else []
    for d in order:
        term = make(op, (term,), (d,))
    for d in order if not keep else ():
        term = make("squeeze", (term,), (d,))
    return term


def _binary(op: str, a: Term, b: Term) -> Term:
    rank = max(len(a.shape), len(b.shape))
    return make(op, (lift(a, rank), lift(b, rank)))


def _scaled(term: Term, factor: Any) -> Term:
    return term if factor == 1 else make("scale", (term,), (float(factor),))


def _add(call: _Call) -> Term:
    if isinstance(call["other"], Term):
        return _binary("add", call.term(), _scaled(call.term("other"), call["alpha"]))
    return make("shift", (call.term(),), (float(call["other"] * call["alpha"]),))


def _sub(call: _Call) -> Term:
    if isinstance(call["other"], Term):
        return _binary("sub", call.term(), _scaled(call.term("other"), call["alpha"]))
    return make("shift", (call.term(),), (-float(call["other"] * call["alpha"]),))


def _mul(call: _Call) -> Term:
    if isinstance(call["other"], Term):
        return _binary("mul", call.term(), call.term("other"))
    return make("scale", (call.term(),), (float(call["other"]),))


def _div(call: _Call) -> Term:
    if isinstance(call["other"], Term):
        return _binary("div", call.term(), call.term("other"))
    return make("over", (call.term(),), (float(call["other"]),))


def _product(a: Term, b: Term) -> Term | None:
    """torch.matmul for every combination of ranks from 1."""
    if not a.shape or not b.shape:
        return None
    left = a if len(a.shape) > 1 else make("unsqueeze", (a,), (0,))
    right = b if len(b.shape) > 1 else make("unsqueeze", (b,), (1,))
    rank = max(len(left.shape), len(right.shape))
    result = make("matmul", (lift(left, rank), lift(right, rank)))
    if len(b.shape) == 1:
        result = make("squeeze", (result,), (len(result.shape) - 1,))
    if len(a.shape) == 1:
        result = make("squeeze", (result,), (len(result.shape) - (1 if len(b.shape) == 1 else 2),))
    return result


def _linear(call: _Call) -> Term | None:
    result = _product(call.term("input"), make("t", (call.term("weight"),)))
    bias = call["bias"]
    return result if bias is None or result is None else _binary("add", result, bias)


def _addmm(call: _Call) -> Term:
    result = _scaled(make("matmul", (call.term("mat1"), call.term("mat2"))), call["alpha"])
    return _binary("add", result, _scaled(call.term(), call["beta"]))


def _swap(call: _Call) -> Term | None:
    rank = len(call.shape)
    pair = {call["dim0"] % rank, call["dim1"] % rank} if rank else set()
    if len(pair) < 2:
        return call.term()
    return make("t", (call.term(),)) if pair == {rank - 1, rank - 2} else None


def _permute(call: _Call) -> Term | None:
    rank = len(call.shape)
    dims = [d % rank for d in call["dims"]]
    if dims == [*range(rank)]:
        return call.term()
    swapped = [*range(rank - 2), rank - 1, rank - 2]
    return make("t", (call.term(),)) if dims == swapped else None


def _t(call: _Call) -> Term:
    return make("t", (call.term(),)) if len(call.shape) == 2 else call.term()


def _numpy_t(call: _Call) -> Term | None:
    return _t(call) if len(call.shape) <= 2 else None


def _reduction(op: str) -> Callable[[_Call], Term | None]:
    def reader(call: _Call) -> Term | None:
        if call.values.get("dtype") is not None:
            return None
        dims = call.values.get("dim")
        dims = [dims] if isinstance(dims, int) else dims
        return reduced(op, call.term(), dims, bool(call.values.get("keepdim", False)))

    return reader


def _rowwise(op: str) -> Callable[[_Call], Term | None]:
    def reader(call: _Call) -> Term | None:
        if call.values.get("dtype") is not None or not call.shape:
            return None
        return make(op, (call.term(),), (call["dim"] % len(call.shape),))

    return reader


def _reshape(call: _Call) -> Term:
    term = call.term()
    return term if term.shape == call.shape else make("reshape", (term,), (call.shape,))


def _unsqueeze(call: _Call) -> Term:
    return make("unsqueeze", (call.term(),), (call["dim"] % len(call.shape),))


def _same_shape(call: _Call) -> Term | None:
    return call.term() if call.term().shape == call.shape else None


def _diagonal(call: _Call) -> Term | None:
    plain = len(call.term().shape) == 1 and call.values.get("diagonal", 0) == 0 and call.values.get("offset", 0) == 0
    return make("diag", (call.term(),)) if plain and len(call.shape) == 2 else None


def _dropout(call: _Call) -> Term | None:
    return None if call["train"] else call.term("input")


DROPOUTS = (_aten.dropout.default, _aten.feature_dropout.default, _aten.alpha_dropout.default)

READERS: dict[Any, Callable[[_Call], Term | None]] = {
    _aten.linear.default: _linear,
    _aten.addmm.default: _addmm,
    _aten.mm.default: lambda call: _product(call.term(), call.term("mat2")),
    _aten.bmm.default: lambda call: _product(call.term(), call.term("mat2")),
    _aten.mv.default: lambda call: _product(call.term(), call.term("vec")),
    _aten.dot.default: lambda call: _product(call.term(), call.term("tensor")),
    _aten.matmul.default: lambda call: _product(call.term(), call.term("other")),
    _aten.t.default: _t,
    _aten.numpy_T.default: _numpy_t,
    _aten.mT.default: lambda call: make("t", (call.term(),)),
    _aten.transpose.int: _swap,
    _aten.permute.default: _permute,
    _aten.add.Tensor: _add,
    _aten.sub.Tensor: _sub,
    _aten.mul.Tensor: _mul,
    _aten.div.Tensor: _div,
    _aten.neg.default: lambda call: make("scale", (call.term(),), (-1.0,)),
    _aten.relu.default: lambda call: make("relu", (call.term(),)),
    _aten.sum.default: _reduction("sum"),
    _aten.sum.dim_IntList: _reduction("sum"),
    _aten.mean.default: _reduction("mean"),
    _aten.mean.dim: _reduction("mean"),
    _aten.amax.default: _reduction("max"),
    _aten.amin.default: _reduction("min"),
    _aten.max.default: _reduction("max"),
    _aten.min.default: _reduction("min"),
    _aten.logsumexp.default: _reduction("logsumexp"),
    _aten.softmax.int: _rowwise("softmax"),
    _aten.log_softmax.int: _rowwise("logsoftmax"),
    _aten.view.default: _reshape,
    _aten.reshape.default: _reshape,
    _aten.flatten.using_ints: _reshape,
    _aten.unflatten.int: _reshape,
    _aten.squeeze.dim: _reshape,
    _aten.squeeze.default: _reshape,
    _aten.unsqueeze.default: _unsqueeze,
    _aten.expand.default: _same_shape,
    _aten.clone.default: _same_shape,
    _aten.contiguous.default: _same_shape,
    _aten.alias.default: _same_shape,
    _aten.detach.default: _same_shape,
    _aten.detach_.default: _same_shape,
    _aten.lift_fresh_copy.default: _same_shape,
    _aten.to.dtype: _same_shape,
    _aten._to_copy.default: _same_shape,
    _aten.diag.default: _diagonal,
    _aten.diag_embed.default: _diagonal,
    **dict.fromkeys(DROPOUTS, _dropout),
}
