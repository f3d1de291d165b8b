# SPDX-License-Identifier: Apache-2.0
"""Runs a reference far enough to write down its graph: torch.export with every input size left open where it can be."""

from __future__ import annotations

import inspect
import logging
import re
import sys
import types
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import dataclass, field
from typing import Any

import sympy
import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.symbolic_shapes import ShapeEnv
from torch.utils._pytree import tree_map
from torch.utils._sympy.printers import PythonPrinter

from kernelwright.proposers.loaded import apart, loaded
from kernelwright.proposers.templates import nesting
from kernelwright.proposers.templates.ir import Source, Tensor
from kernelwright.proposers.templates.recurrent import MOST_OPEN_STEPS, MOST_STEPS, short
from kernelwright.task import Task, by_position

ORDINARY_ERRORS = (
    ArithmeticError,
    AssertionError,
    AttributeError,
    ImportError,
    LookupError,
    MemoryError,
    NameError,
    OSError,
    RuntimeError,
    SyntaxError,
    TypeError,
    ValueError,
)
"""What a reference, or torch.export on its behalf, may raise: the task is then not one for templates."""

LARGE = 40
"""Submodules from which a trace with open sizes takes longer than the search: 42 s for a MobileNetV2, 4 s without."""
MOST_BYTES = 1 << 28
"""Parameters of a module that is made with data where fake tensors do not do: 2 GiB of them took 20 s to draw."""
MOST_WRITTEN = 64
"""Elements of a constant tensor that a program writes out again at every call."""

_PLAIN = re.compile(r"[\w\s+*/()-]*")


class NotCaptured(Exception):
    """The reference cannot be written as one graph; the text says why."""


@dataclass(frozen=True)
class Capture:
    """A graph and how its placeholders are fed."""

    graph: torch.fx.Graph
    sources: dict[torch.fx.Node, Source]
    arguments: tuple[str, ...]
    constants: tuple[tuple[int, str], ...]
    symbols: tuple[tuple[str, str], ...]
    guards: tuple[str, ...]
    training: bool | None
    """The mode the graph holds in; None where train() and eval() give the same graph."""
    init: tuple[str, str]
    """Python literals of the constructor's positional and keyword arguments in the timed case."""
    results: tuple[torch.fx.Node, ...]
    returns: str
    nested: tuple[str, ...] = ()
    reached: tuple[str, ...] = ()
    literals: dict[torch.fx.Node, torch.Tensor] = field(default_factory=dict)
    """Small tensors that ``forward`` writes out itself, such as ``torch.tensor(0.5)``."""


def capture(task: Task) -> Capture:
    """The reference's graph in its timed case. Raises NotCaptured, and nothing else, for odd references."""
    with _loaded(task) as module, _quiet():
        failure = "no attempt was made"
        for fake, dynamic in ((True, True), (True, False), (False, True), (False, False)):
            if not fake and _weighs(task, module) > MOST_BYTES:
                break
            try:
                found = _attempt(task, module, fake, dynamic)
                if found is not None:
                    return found
            except (*ORDINARY_ERRORS, NotCaptured, nesting.Unreadable) as reason:
                failure = f"{type(reason).__name__}: {reason}"
    raise NotCaptured(failure[:400])


def warm() -> None:
    """Trace a program of one operation: the first use of torch.export imports for seconds."""
    with FakeTensorMode(shape_env=ShapeEnv()), _quiet():
        torch.export.export(torch.nn.ReLU(), (torch.ones(2, 2),), strict=False)


@contextmanager
def _quiet() -> Iterator[None]:
    """torch.export logs whole stack traces about sizes that it could not simplify; they are no one's concern here."""
    before = logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        yield
    finally:
        logging.disable(before)


@contextmanager
def _loaded(task: Task) -> Iterator[types.ModuleType]:
    with ExitStack() as stack:
        try:
            module = stack.enter_context(loaded(task))
        except ORDINARY_ERRORS as reason:
            raise NotCaptured(f"the reference does not import: {reason}") from reason
        yield module


def _call(function: Any, axes: Mapping[str, int]) -> Any:
    """With the axes it takes, as the judge calls it."""
    known = inspect.signature(function).parameters
    wild = any(parameter.kind is parameter.VAR_KEYWORD for parameter in known.values())
    return function(**{name: size for name, size in axes.items() if wild or name in known})


def _attempt(task: Task, module: types.ModuleType, fake: bool, dynamic: bool) -> Capture | None:
    """The graph; None where sizes are asked to stay open, nobody needs that, and it would take a minute."""
    axes = dict(task.timed_case().axes)
    mode = FakeTensorMode(shape_env=ShapeEnv(), allow_non_fake_inputs=False) if fake else None
    torch.manual_seed(0)
    with mode or nullcontext():
        init = _call(module.get_init_inputs, axes) if hasattr(module, "get_init_inputs") else []
        positional, keywords = _split_init(init)
        model = getattr(module, task.entry)(*positional, **keywords)
        inputs = apart(by_position(_call(module.get_inputs, axes), inspect.signature(model.forward)))
    model.train(task.contract.training)
    large = sum(1 for _ in model.modules()) > LARGE
    if dynamic and not axes and (large or any(isinstance(part, torch.nn.RNNBase) for part in model.modules())):
        return None
    sizes = tree_map(_open_sizes, list(inputs))
    shapes = ((tuple(sizes),) if _varargs(model) else tuple(sizes)) if dynamic else None
    with torch.no_grad(), short(model, MOST_OPEN_STEPS if dynamic else MOST_STEPS):
        program = torch.export.export(model, tuple(inputs), dynamic_shapes=shapes, strict=False)
        training = model.training if large else _mode(model, tuple(inputs), shapes, str(program.graph))
        if any(_mutates(node) for node in program.graph.nodes):
            program = program.run_decompositions({})
    return _describe(program, model, inputs, training, (literal(positional), literal(keywords)))


def _weighs(task: Task, module: types.ModuleType) -> int:
    """Bytes of the parameters, 0 where the module cannot be made without data."""
    try:
        with FakeTensorMode(allow_non_fake_inputs=True):
            init = _call(module.get_init_inputs, dict(task.timed_case().axes))
            positional, keywords = _split_init(init)
            made = getattr(module, task.entry)(*positional, **keywords)
    except ORDINARY_ERRORS:
        return 0
    return sum(value.nbytes for value in made.parameters())


def _open_sizes(value: object) -> dict[int, Any] | None:
    return {d: torch.export.Dim.AUTO for d in range(value.dim())} if isinstance(value, torch.Tensor) else None


def _mode(model: torch.nn.Module, inputs: tuple[Any, ...], shapes: Any, graph: str) -> bool | None:
    """The mode that ``graph`` is bound to, found by tracing in the other mode too."""
    training = model.training
    model.train(not training)
    try:
        other = str(torch.export.export(model, inputs, dynamic_shapes=shapes, strict=False).graph)
    except ORDINARY_ERRORS:
        return training
    finally:
        model.train(training)
    return None if other == graph else training


def _varargs(model: torch.nn.Module) -> bool:
    """Whether forward takes ``*args``, as torch.export reads it: of a decorated one, what the inner one takes."""
    kinds = [parameter.kind for parameter in inspect.signature(model.forward).parameters.values()]
    return inspect.Parameter.VAR_POSITIONAL in kinds


def _split_init(init: Any) -> tuple[list[Any], dict[str, Any]]:
    """KernelBench gives a list; some suites give [args, kwargs] or a dict of keywords."""
    if isinstance(init, dict):
        return [], init
    if len(init) == 2 and isinstance(init[0], (list, tuple)) and isinstance(init[1], dict):
        return list(init[0]), init[1]
    return list(init), {}


def literal(value: Any) -> str:
    """Python text of a plain value; raises NotCaptured for anything that does not read back equal."""
    plain = isinstance(value, (int, float, str, bool, type(None), list, tuple, dict))
    text = repr(value)
    if not plain or re.search(r"[<]|tensor\(|\b(nan|inf)\b", text):
        raise NotCaptured(f"a constructor or call argument is not plain data: {text[:80]}")
    return text


def _mutates(node: torch.fx.Node) -> bool:
    schema = getattr(node.target, "_schema", None)
    return bool(schema is not None and schema.is_mutable)


def _describe(
    program: Any, model: torch.nn.Module, inputs: Any, training: bool | None, init: tuple[str, str]
) -> Capture:
    signature = program.graph_signature
    mutated = [s for s in signature.output_specs if s.kind.name != "USER_OUTPUT"]
    if mutated:
        raise NotCaptured("the reference writes to its inputs or buffers")
    placeholders = [n for n in program.graph.nodes if n.op == "placeholder"]
    sources: dict[torch.fx.Node, Source] = {}
    arguments: list[str] = []
    constants: list[tuple[int, str]] = []
    literals: dict[torch.fx.Node, torch.Tensor] = {}
    found = [nesting.reached(value, f"args[{number}]") for number, value in enumerate(inputs)]
    nested = tuple(condition for conditions, _ in found for condition in conditions)
    nested = (f"len(args) == {len(found)}", *nested) if nested else ()
    leaves = [leaf for _, inside in found for leaf in inside]
    position = 0
    for node, spec in zip(placeholders, signature.input_specs, strict=True):
        value = node.meta.get("val")
        if spec.kind.name == "USER_INPUT":
            if isinstance(value, torch.Tensor):
                name = f"a{position}"
                sources[node] = Source(tensor=tensor(name, value), argument=position)
                arguments.append(name)
            else:
                arguments.append("")
                constants.append((position, literal(leaves[position][1])))
            position += 1
        elif (written := _written(model, spec.target, program.constants)) is not None:
            literals[node] = written
        else:
            _check_attribute(model, spec.target)
            sources[node] = Source(tensor=tensor(f"p{len(sources)}", value), path=spec.target)
    if position != len(leaves):
        raise NotCaptured("an argument of forward is not a tensor or a plain value")
    symbols, guards = _bindings(sources, program)
    out = next(n for n in program.graph.nodes if n.op == "output")
    results, returns = _results(program, out)
    return Capture(
        graph=program.graph, sources=sources, arguments=tuple(arguments), constants=tuple(constants),
        symbols=symbols, guards=guards, training=training, init=init, results=results, returns=returns,
        nested=nested, reached=tuple(text for text, _ in leaves) if nested else (), literals=literals,
    )  # fmt: skip


def _attribute(model: torch.nn.Module, path: str) -> object:
    found: object = model
    for part in path.split("."):
        found = getattr(found, part, None)
    return found


def _check_attribute(model: torch.nn.Module, path: str) -> None:
    """A constant that torch.export lifted has no path in the module, and so no place to be read from at a call."""
    if not isinstance(_attribute(model, path), torch.Tensor):
        raise NotCaptured(f"the graph holds a tensor that the module does not: {path}")


def _written(model: torch.nn.Module, path: str, constants: Mapping[str, Any]) -> torch.Tensor | None:
    """The values of a small tensor that ``forward`` makes from numbers, or None where it is no such tensor."""
    value = constants.get(path)
    if _attribute(model, path) is not None or type(value) is not torch.Tensor or value.is_complex():
        return None
    return value.detach() if value.device.type == "cpu" and value.numel() <= MOST_WRITTEN else None


def _results(program: Any, out: torch.fx.Node) -> tuple[tuple[torch.fx.Node, ...], str]:
    nodes, spec = out.args[0], program.call_spec.out_spec
    if not isinstance(nodes, (tuple, list)) or spec is None:
        raise NotCaptured("the reference returns something other than tensors in a tuple, list or dict")
    results = tuple(n for n in nodes if isinstance(n, torch.fx.Node))
    if not results:
        raise NotCaptured("the reference returns no tensor")
    texts, number = [], 0
    for node in nodes:
        texts.append(f"${number}$" if isinstance(node, torch.fx.Node) else nesting.unmarked(literal(node)))
        number += isinstance(node, torch.fx.Node)
    remaining = iter(texts)
    returns = nesting.returned(spec, lambda: next(remaining))
    return results, returns


def size_text(size: Any) -> str:
    """A size as a Python expression over symbols; raises NotCaptured for anything but sums, products, quotients."""
    text = str(size.node.expr) if isinstance(size, torch.SymInt) else str(int(size))
    if not _PLAIN.fullmatch(text):
        raise NotCaptured(f"a size is computed in a way that cannot be repeated: {text}")
    return text


def tensor(name: str, value: torch.Tensor) -> Tensor:
    """The program's view of a fake tensor. Raises NotCaptured where a size depends on data."""
    sample = []
    for size in value.shape:
        known = size.node.hint if isinstance(size, torch.SymInt) else size
        if known is None:
            raise NotCaptured("a size depends on what is in a tensor")
        sample.append(int(known))
    return Tensor(
        name=name,
        shape=tuple(size_text(s) for s in value.shape),
        sample=tuple(sample),
        dtype=str(value.dtype).removeprefix("torch."),
    )


def _bindings(
    sources: Mapping[torch.fx.Node, Source], program: Any
) -> tuple[tuple[tuple[str, str], ...], tuple[str, ...]]:
    symbols: dict[str, str] = {}
    guards: list[str] = []
    env = None
    for node, source in sources.items():
        name = source.tensor.name
        for d, size in enumerate(node.meta["val"].shape):
            text = size_text(size)
            if isinstance(size, torch.SymInt):
                env = size.node.shape_env
                if isinstance(size.node.expr, sympy.Symbol) and text not in symbols:
                    symbols[text] = f"{name}.shape[{d}]"
                    continue
            if source.argument >= 0 or isinstance(size, torch.SymInt):
                guards.append(f"{name}.shape[{d}] == {text}")
    guards += _range_guards(program, symbols) + (_shape_guards(env, symbols) if env is not None else [])
    return tuple(symbols.items()), tuple(dict.fromkeys(guards))


def _range_guards(program: Any, symbols: Mapping[str, str]) -> list[str]:
    found = []
    for symbol, bounds in program.range_constraints.items():
        if str(symbol) in symbols:
            # Sizes 0 and 1 are never assumed: torch.export specialises on them.
            low = int(bounds.lower) if isinstance(bounds.lower, sympy.Integer) else 2
            found.append(f"{symbol} >= {max(2, low)}")
            if isinstance(bounds.upper, sympy.Integer) and int(bounds.upper) < sys.maxsize // 2:
                found.append(f"{symbol} <= {int(bounds.upper)}")
    return found


def _shape_guards(env: Any, symbols: Mapping[str, str]) -> list[str]:
    """Conditions on sizes that the trace relied on, such as "this one is divisible by 4"."""
    found = []
    for guard in env.guards:
        expression = env.simplify(guard.expr.xreplace(env.replacements))
        if expression in (sympy.true, True):
            continue
        text = PythonPrinter().doprint(expression)
        names = {str(s) for s in expression.free_symbols}
        if not names <= set(symbols) or re.search(r"[A-Za-z_]\w*\(", text):
            raise NotCaptured(f"the graph depends on sizes in a way that cannot be checked: {text}")
        found.append(text)
    return found
