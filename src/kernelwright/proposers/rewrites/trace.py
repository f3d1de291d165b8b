# SPDX-License-Identifier: Apache-2.0
"""A reference module to a term: torch.export under fake tensors, so that no weight or input is ever allocated.

The exported graph is taken before decomposition: linear, matmul, sum, mul, t stay visible.
"""

from __future__ import annotations

import ast
import inspect
import operator
from dataclasses import dataclass
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.export.graph_signature import InputKind, OutputKind
from torch.utils import _pytree

from kernelwright.proposers.loaded import apart, loaded
from kernelwright.proposers.rewrites import aten
from kernelwright.proposers.rewrites.terms import Term, leaf, make
from kernelwright.proposers.templates.recurrent import MOST_STEPS, TooManySteps, short
from kernelwright.task import Task, by_position


class NotRewritable(ValueError):
    """The reference is outside what this proposer expresses; the message says why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Program:
    """A traced reference."""

    root: Term
    """``call`` of target ``return`` whose arguments are the results."""
    inputs: tuple[tuple[str, Any], ...]
    """(name, (shape, dtype text)) of each tensor argument, or (name, literal) of each other argument, in call order."""
    parameters: tuple[tuple[str, str, tuple[int, ...]], ...]
    """(leaf name, dotted path below the module, shape) of each parameter and buffer that is read."""
    results: str
    """``tensor``, ``tuple`` or ``list``: how results are returned."""
    dtype: str
    """The floating dtype of the program, as ``torch.float32``."""
    init: tuple[str, str]
    """Literals of the constructor's positional and keyword arguments."""
    training: bool

    def batch(self) -> int | None:
        """First dimension of the first tensor input."""
        return next((spec[0][0] for _, spec in self.inputs if isinstance(spec, tuple) and spec[0]), None)


def trace(task: Task, *, batch: int | None = None) -> Program:
    """Trace the timed case. ``NotRewritable`` where the graph is not expressible; else whatever the reference raises.

    ``batch`` replaces the first dimension of the first tensor, and of every input that has the same one.
    """
    axes = dict(task.timed_case().axes)
    with loaded(task) as module, FakeTensorMode(allow_non_fake_inputs=True), torch.no_grad():
        init_args, init_kwargs = _arguments(_call(module.get_init_inputs, axes))
        init = (_literal(init_args), _literal(init_kwargs))
        model = getattr(module, task.entry)(*init_args, **init_kwargs).train(task.contract.training)
        args = apart(by_position(_call(module.get_inputs, axes), inspect.signature(model.forward)))
        if batch is not None:
            args = _resized(args, batch)
        try:
            with short(model, MOST_STEPS):
                exported = torch.export.export(model, tuple(args), strict=False)
        except TooManySteps as reason:
            raise NotRewritable(str(reason)) from reason
    return _program(exported, args, init, task.contract.training)


def _resized(args: list[Any], batch: int) -> list[Any]:
    size = next(arg.shape[0] for arg in args if isinstance(arg, torch.Tensor) and arg.dim())
    return [
        torch.empty((batch, *arg.shape[1:]), dtype=arg.dtype)
        if isinstance(arg, torch.Tensor) and arg.shape[:1] == (size,)
        else arg
        for arg in args
    ]


def _call(function: Any, axes: dict[str, int]) -> Any:
    known = inspect.signature(function).parameters
    return function(**{name: size for name, size in axes.items() if name in known})


def _arguments(given: Any) -> tuple[list[Any], dict[str, Any]]:
    """Forms of get_init_inputs: a list of arguments, a dict of keywords, or a pair of both."""
    if isinstance(given, dict):
        return [], given
    if len(given) == 2 and isinstance(given[0], list | tuple) and isinstance(given[1], dict):
        return list(given[0]), given[1]
    return list(given), {}


def _literal(value: Any) -> str:
    text = repr(tuple(value) if isinstance(value, list) else value)
    try:
        if ast.literal_eval(text) != (tuple(value) if isinstance(value, list) else value):
            raise NotRewritable(f"constructor argument {text[:60]}")
    except (ValueError, SyntaxError) as error:
        raise NotRewritable(f"constructor argument {text[:60]}") from error
    return text


def _program(exported: torch.export.ExportedProgram, args: list[Any], init: tuple[str, str], training: bool) -> Program:
    graph, signature = exported.graph, exported.graph_signature
    if any(spec.kind is not OutputKind.USER_OUTPUT for spec in signature.output_specs):
        raise NotRewritable("the reference changes its inputs or buffers")
    if any(not isinstance(arg, torch.Tensor | int | float | bool | str | type(None)) for arg in args):
        raise NotRewritable("inputs nested in containers")
    dtype = _dtype(graph)
    reader = _Reader(dtype)
    inputs: list[tuple[str, Any]] = []
    parameters: list[tuple[str, str, tuple[int, ...]]] = []
    holders = [node for node in graph.nodes if node.op == "placeholder"]
    for node, spec in zip(holders, signature.input_specs, strict=True):
        value = node.meta.get("val")
        if spec.kind is InputKind.USER_INPUT:
            if isinstance(value, torch.Tensor):
                inputs.append((node.name, (tuple(value.shape), str(value.dtype))))
                reader.terms[node] = leaf(node.name, *value.shape)
            else:
                inputs.append((node.name, value))
        elif spec.kind in (InputKind.PARAMETER, InputKind.BUFFER) and node.users:
            parameters.append((node.name, str(spec.target), tuple(value.shape)))
            reader.terms[node] = leaf(node.name, *value.shape)
        elif node.users:
            reader.terms[node] = _number(exported.constants.get(str(spec.target)), dtype, str(spec.target))
    for node in graph.nodes:
        if node.op == "call_function":
            reader.read(node)
        elif node.op not in ("placeholder", "output"):
            raise NotRewritable(f"graph node {node.op}")
    found = [reader.terms[item] for item in _outputs(graph)]
    used = {term.attrs[0] for root in found for term in _leaves(root)}
    return Program(
        root=make("call", tuple(found), ("return", ""), ()),
        inputs=tuple(inputs),
        parameters=tuple(entry for entry in parameters if entry[0] in used),
        results=_results(exported),
        dtype=str(dtype),
        init=init,
        training=training,
    )


def _number(value: Any, dtype: torch.dtype, name: str) -> Term:
    """A tensor without dimensions that ``forward`` writes out from a number."""
    plain = type(value) is torch.Tensor and value.dim() == 0 and value.dtype == dtype
    if not plain or not bool(torch.isfinite(value)):
        raise NotRewritable(f"constant tensor {name}")
    return make("fill", (), (float(value), ()))


def _leaves(root: Term) -> list[Term]:
    return [term for term in aten.walk((root,)) if term.op == "leaf"]


def _results(exported: torch.export.ExportedProgram) -> str:
    spec = exported.call_spec.out_spec
    if spec is None or spec.is_leaf():
        return "tensor"
    if spec.type in (tuple, list) and all(child.is_leaf() for child in spec.children()):
        return str(spec.type.__name__)
    raise NotRewritable(f"results nested in {spec.type}")


def _outputs(graph: torch.fx.Graph) -> list[torch.fx.Node]:
    (items,) = graph.output_node().args
    if not isinstance(items, list | tuple) or not all(isinstance(item, torch.fx.Node) for item in items):
        raise NotRewritable("results that are no tensors")
    return [item for item in items if isinstance(item, torch.fx.Node)]


def _dtype(graph: torch.fx.Graph) -> torch.dtype:
    kinds = {item.meta["val"].dtype for item in _outputs(graph)}
    if len(kinds) != 1 or not next(iter(kinds)).is_floating_point:
        raise NotRewritable(f"results of dtypes {sorted(map(str, kinds))}")
    return next(iter(kinds))


class _Reader:
    """Turns graph nodes into terms one by one; what ``aten`` does not know becomes an opaque ``call``."""

    def __init__(self, dtype: torch.dtype) -> None:
        self.dtype = dtype
        self.terms: dict[torch.fx.Node, Term] = {}

    def read(self, node: torch.fx.Node) -> None:
        if node.target is operator.getitem:
            self._read_item(node)
            return
        value = node.meta.get("val")
        target = node.target
        if not isinstance(target, torch._ops.OpOverload):
            raise NotRewritable(f"operator {target}")
        random = torch.Tag.nondeterministic_seeded in target.tags
        if (target._schema.is_mutable or random) and not aten.is_identity(node):
            raise NotRewritable(f"{target} writes or draws random numbers")
        structured = None
        if isinstance(value, torch.Tensor) and self._floating(node, value):
            structured = aten.read(node, self.terms)
            if structured is not None and structured.shape != tuple(value.shape):
                raise AssertionError(f"{target}: read as {structured.shape}, traced as {tuple(value.shape)}")
        self.terms[node] = structured or self._opaque(node, value)

    def _floating(self, node: torch.fx.Node, value: torch.Tensor) -> bool:
        tensors = [value, *(item.meta.get("val") for item in node.all_input_nodes)]
        return all(isinstance(tensor, torch.Tensor) and tensor.dtype == self.dtype for tensor in tensors)

    def _read_item(self, node: torch.fx.Node) -> None:
        source, index = node.args
        assert isinstance(source, torch.fx.Node)
        value = node.meta.get("val")
        if not isinstance(value, torch.Tensor):
            raise NotRewritable("an operator with nested results")
        first = aten.read_extreme(source, self.terms) if index == 0 and value.dtype == self.dtype else None
        shape = tuple(value.shape)
        self.terms[node] = first or make("get", (self.terms[source],), (index,), shape)

    def _opaque(self, node: torch.fx.Node, value: Any) -> Term:
        arguments: list[Term] = []

        def text(item: Any) -> str:
            if isinstance(item, torch.fx.Node):
                if item not in self.terms:
                    raise NotRewritable(f"{node.target} of a value that is no tensor")
                arguments.append(self.terms[item])
                return f"<{len(arguments) - 1}>"
            if isinstance(item, list | tuple):
                return "[" + ", ".join(map(text, item)) + "]"
            if isinstance(item, torch.device):
                return "<device>"
            if isinstance(item, float) and (item != item or abs(item) == float("inf")):
                return f'float("{item}")'
            if isinstance(item, torch.SymInt | torch.SymFloat | torch.SymBool):
                raise NotRewritable("sizes that depend on data")
            return repr(item)

        template = ", ".join([*map(text, node.args), *(f"{key}={text(item)}" for key, item in node.kwargs.items())])
        shape = tuple(value.shape) if isinstance(value, torch.Tensor) else ()
        if not isinstance(value, torch.Tensor) and not _all_tensors(value):
            raise NotRewritable(f"{node.target} returns no tensor")
        return make("call", tuple(arguments), (str(node.target), template), shape)


def _all_tensors(value: Any) -> bool:
    leaves = _pytree.tree_leaves(value)
    return bool(leaves) and all(isinstance(item, torch.Tensor) for item in leaves)
