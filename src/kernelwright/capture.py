# SPDX-License-Identifier: Apache-2.0
"""A live module or function with example inputs to a Task; the one parent-side file that uses torch.

The caller has torch loaded already. The definitions that the object needs are sliced out of its source file
(never the whole file: that could run a training script), a constructor call is written that rebuilds it, and
the rebuilt object must give bit for bit the same output before the task is accepted.
"""

from __future__ import annotations

import hashlib
import inspect
import io
import types
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from kernelwright.errors import TaskError
from kernelwright.load.handed import handed_on
from kernelwright.load.slicing import needed_source
from kernelwright.load.source import sibling_imports
from kernelwright.task import Contract, Task, by_position

SEED = 20240229


@dataclass(frozen=True, slots=True)
class _Example:
    """One call: its values by position, and how a ``forward`` of ours takes them and hands them on."""

    values: tuple[object, ...]
    head: str = "*args"
    """Parameters of that ``forward``."""
    passed: str = "*args"
    """What it hands on: ``x, scale=scale`` where ``scale`` is taken by keyword only."""
    keywords: tuple[str, ...] = ()
    """Names of the last values, where the target takes them by keyword only."""

    def of(self, target: Callable[..., Any]) -> object:
        """What the target answers."""
        count = len(self.values) - len(self.keywords)
        return target(*self.values[:count], **dict(zip(self.keywords, self.values[count:], strict=True)))


def capture(target: object, inputs: object, state_dir: Path, init_args: Sequence[object] | None) -> Task:
    """The Task of ``target`` called with ``inputs``; weights are saved under ``state_dir`` by their content.

    ``inputs``: the positional arguments of one call, a dict of keywords, or a pair of both. The reference is in
    training mode where the module is. Raises TaskError for lambdas, closures, objects without source, calls that do
    not fit, and modules whose constructor arguments cannot be found, each with what to do.
    """
    if isinstance(target, torch.nn.Module):
        return _module(target, _example(target.forward, inputs), state_dir, init_args)
    if isinstance(target, types.FunctionType):
        return _function(target, _example(target, inputs))
    raise TaskError(
        "This cannot be optimised.",
        got=type(target).__name__,
        expected="an nn.Module, a function, a task file or a task folder",
    )


def _example(target: Callable[..., Any], inputs: object) -> _Example:
    """The call that example inputs stand for. Raises TaskError where the target does not take them."""
    signature = inspect.signature(target)
    given = list(signature.parameters.values())
    fixed = all(p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY) for p in given)
    try:
        values = tuple(by_position(inputs, signature, alone=fixed))
        names = list(signature.parameters)[: len(values)]
        alone = tuple(p.name for p in given if p.kind is p.KEYWORD_ONLY and p.name in names)
        found = _Example(values, keywords=alone)
        found.of(signature.bind)
    except TypeError as error:
        raise TaskError(
            "The example inputs are not a call of what is to be optimised.",
            got=str(error),
            expected=f"arguments for {signature}"[:300],
            what_next="pass those of one call: (x, y), or {'x': x, 'y': y}, or ((x,), {'y': y})",
        ) from error
    if not fixed:
        return found
    head = list(names)
    defaults = [signature.parameters[name].default for name in names]
    if all(value is inspect.Parameter.empty or _is_plain(value) for value in defaults):
        for i, value in enumerate(defaults):
            if value is not inspect.Parameter.empty:
                head[i] += f"={value!r}"
            elif any("=" in earlier for earlier in head[:i]):
                head[i] += "=NotImplemented"  # required by keyword, after one with a default: it fails where it is used
    passed = [f"{name}={name}" if name in alone else name for name in names]
    return _Example(values, ", ".join(head), ", ".join(passed), alone)


def _function(target: types.FunctionType, example: _Example) -> Task:
    name = target.__name__
    if name == "<lambda>":
        raise TaskError("A lambda has no name to find its source by.", got="a lambda", expected="a def function")
    if target.__closure__ or "<locals>" in target.__qualname__:
        raise TaskError(
            f"{name} is defined inside another function.",
            got=target.__qualname__,
            expected="a function at the top level of a file",
            what_next="move it there and pass what it closes over as arguments",
        )
    text, imports = _source(target, {name})
    head, passed = example.head, example.passed
    body = f"class Model(torch.nn.Module):\n    def forward(self, {head}):\n        return {name}({passed})\n"
    return _task(name, text, body, example.values, imports, training=False)


def _module(module: torch.nn.Module, example: _Example, state_dir: Path, init_args: Sequence[object] | None) -> Task:
    kinds = {type(part) for part in module.modules() if not type(part).__module__.startswith("torch.")}
    for kind in kinds:
        if "<locals>" in kind.__qualname__:
            raise TaskError(
                f"{kind.__name__} is defined inside a function.",
                got=kind.__qualname__,
                expected="a class at the top level of a file",
                what_next="move it there",
            )
    text, imports = _sources(kinds)
    construct = _constructor(module, init_args)
    state = _save(module, state_dir)
    lines = [
        f"STATE = {str(state)!r}",
        "",
        "",
        "def _built():",
        f"    return {construct}",
        "",
        "",
        "class Model(torch.nn.Module):",
        "    def __init__(self):",
        "        super().__init__()",
        "        built = _built()",
        "        self.__dict__.update(built.__dict__)",
        "        self._kind = type(built)",
        *_types(module),
        "        try:",
        "            self.load_state_dict(torch.load(STATE, weights_only=True))",
        "        except OSError:",
        "            pass  # the weights given at capture are not on this machine",
        "",
        f"    def forward(self, {example.head}):",
        f"        return self._kind.forward(self, {example.passed})",
        "",
    ]
    if type(module).forward is torch.nn.Sequential.forward:
        # Sequential iterates over itself; the copied submodules are all there is to it.
        lines[-2] = f"        for part in self._modules.values():\n            {example.head} = part({example.head})"
        lines[-1] = f"        return {example.head}\n"
    elif kinds and type(module) in kinds:
        lines[7:] = _subclass(module, construct)
        lines[3:7] = []
        if example.keywords:
            lines[-1:] = ["", f"    def forward(self, {example.head}):"]
            lines += [f"        return super().forward({example.passed})", ""]
    task = _task(type(module).__name__, text, "\n".join(lines), example.values, imports, training=module.training)
    _check_rebuilt(task, module, example)
    return task


def _subclass(module: torch.nn.Module, construct: str) -> list[str]:
    """Model as a subclass of the user's class: methods and attributes are then the user's own."""
    name = type(module).__name__
    arguments = construct[len(name) + 1 : -1]
    base = name if name != "Model" else "_Given"
    head = ["_Given = Model"] if base == "_Given" else []
    return [
        *head,
        "",
        "",
        f"class Model({base}):",
        "    def __init__(self):",
        f"        super().__init__({arguments})",
        *_types(module),
        "        try:",
        "            self.load_state_dict(torch.load(STATE, weights_only=True))",
        "        except OSError:",
        "            pass  # the weights given at capture are not on this machine",
        "",
    ]


def _types(module: torch.nn.Module) -> list[str]:
    """Lines of a constructor that bring parameters and buffers to the types they have in the module."""
    tensors = [*module.named_parameters(), *module.named_buffers()]
    odd = {name: tensor.dtype for name, tensor in tensors if tensor.dtype is not torch.get_default_dtype()}
    odd = {name: dtype for name, dtype in odd.items() if dtype.is_floating_point}
    if not odd:
        return []
    return [
        f"        types = {odd!r}",
        "        for name, tensor in [*self.named_parameters(), *self.named_buffers()]:",
        "            tensor.data = tensor.data.to(types.get(name, tensor.dtype))",
    ]


def _task(
    name: str, text: str, body: str, inputs: tuple[object, ...], imports: tuple[str, ...], *, training: bool
) -> Task:
    given = ", ".join(_literal(value) for value in inputs)
    parts = [
        "import torch",
        text.strip(),
        body.strip(),
        f"def get_inputs():\n    return [{given}]",
        "def get_init_inputs():\n    return []",
    ]
    future = [line for line in text.splitlines() if line.startswith("from __future__")]
    reference = "\n\n\n".join(part for part in parts if part)
    for line in future:
        reference = line + "\n" + reference.replace(line + "\n", "", 1)
    return Task(
        name=name,
        form="object",
        reference=reference + "\n",
        contract=Contract(training=training),
        imports=imports,
    )


def _source(target: object, names: set[str]) -> tuple[str, tuple[str, ...]]:
    try:
        file = inspect.getsourcefile(target)  # type: ignore[arg-type]  # a function or class by the callers' checks
        text = Path(file or "").read_text(encoding="utf-8")
    except (TypeError, OSError) as error:
        raise TaskError(
            f"The source of {getattr(target, '__qualname__', target)} cannot be found.",
            got=str(error),
            expected="something defined in a .py file",
            what_next="write it to a file and import it",
        ) from error
    sliced = needed_source(text, names)
    return sliced, sibling_imports(Path(file or "").parent, sliced)


def _sources(kinds: set[type]) -> tuple[str, tuple[str, ...]]:
    files: dict[str, tuple[type, set[str]]] = {}
    for kind in sorted(kinds, key=lambda kind: kind.__qualname__):
        try:
            file = inspect.getsourcefile(kind) or ""
        except TypeError:
            file = ""
        files.setdefault(file, (kind, set()))[1].add(kind.__name__)
    parts: list[str] = []
    imports: tuple[str, ...] = ()
    for file, (kind, names) in files.items():
        if "site-packages" in file:
            parts.append(f"from {kind.__module__} import {', '.join(sorted(names))}")
        else:
            sliced, found = _source(kind, names)
            parts.append(sliced)
            imports = tuple(dict.fromkeys(imports + found))
    return "\n\n".join(parts), imports


def _constructor(module: torch.nn.Module, init_args: Sequence[object] | None = None) -> str:
    """A call that builds such a module, from ``init_args``, from attributes named like the parameters, or from those
    of the parts that its constructor hands them to."""
    kind = type(module)
    foreign = kind.__module__.startswith("torch.")
    name = f"torch.nn.{kind.__name__}" if foreign else kind.__name__
    if init_args is not None:
        return f"{name}({', '.join(_literal(value) for value in init_args)})"
    if kind in (torch.nn.Sequential, torch.nn.ModuleList):
        names = list(module._modules)
        if names == [str(i) for i in range(len(names))]:
            parts = ", ".join(_constructor(part) for part in module.children())
            return f"{name}({parts})" if kind is torch.nn.Sequential else f"{name}([{parts}])"
        pairs = ", ".join(f"({key!r}, {_constructor(part)})" for key, part in module.named_children())
        return f"{name}(__import__('collections').OrderedDict([{pairs}]))"
    found = OrderedDict[str, str]()
    handed = handed_on(module)
    for parameter in inspect.signature(kind.__init__).parameters.values():
        if parameter.name in ("self", "device", "dtype") or parameter.kind in (
            parameter.VAR_POSITIONAL,
            parameter.VAR_KEYWORD,
        ):
            continue
        value = getattr(module, parameter.name, inspect.Parameter.empty)
        if isinstance(value, torch.Tensor) or (value is None and parameter.name == "bias"):
            found[parameter.name] = repr(value is not None)
        elif value is not inspect.Parameter.empty and _is_plain(value):
            found[parameter.name] = _literal(value)
        elif parameter.name in handed:
            found[parameter.name] = _literal(handed[parameter.name])
        elif isinstance(value, torch.nn.Module):
            found[parameter.name] = _constructor(value)
        elif parameter.default is inspect.Parameter.empty:
            raise TaskError(
                f"The constructor argument {parameter.name} of {kind.__name__} cannot be read off the module.",
                got="no plain attribute of that name",
                expected=f"{kind.__name__}({inspect.signature(kind)})"[:200],
                what_next="pass init_args=(...), the arguments it was made with",
            )
    return f"{name}({', '.join(f'{key}={text}' for key, text in found.items())})"


def _is_plain(value: object) -> bool:
    if isinstance(value, tuple | list):
        return all(_is_plain(item) for item in value)
    return value is None or isinstance(value, bool | int | float | str)


def _literal(value: object) -> str:
    """Python text that makes a value like this one: same shapes, dtypes, spread and ranges; weights travel apart."""
    if isinstance(value, torch.Tensor):
        return _tensor(value)
    if isinstance(value, tuple | list):
        inside = ", ".join(_literal(item) for item in value)
        if isinstance(value, tuple):
            return f"({inside}{',' if len(value) == 1 else ''})"
        return f"[{inside}]"
    if isinstance(value, dict):
        return "{" + ", ".join(f"{key!r}: {_literal(item)}" for key, item in value.items()) + "}"
    if isinstance(value, torch.dtype) or _is_plain(value):
        return repr(value)
    raise TaskError(
        "An input cannot be written down.",
        got=type(value).__name__,
        expected="tensors, numbers, text, None, and lists, tuples or dicts of them",
    )


def _tensor(value: torch.Tensor) -> str:
    shape, dtype = list(value.shape), str(value.dtype)
    if value.dtype is torch.bool:
        return f"(torch.rand({shape}) < {float(value.float().mean()) if value.numel() else 0.5!r})"
    if not value.is_floating_point() and not value.is_complex():
        low, high = (int(value.min()), int(value.max())) if value.numel() else (0, 1)
        return f"torch.randint({low}, {high + 1}, {shape}, dtype={dtype})"
    if value.is_complex():
        return f"torch.randn({shape}, dtype={dtype})"
    wide = value.detach().to("cpu", torch.float64)
    mean, spread = (float(wide.mean()), float(wide.std(correction=0))) if value.numel() else (0.0, 1.0)
    if value.numel() and float(wide.min()) >= 0.0:
        # Kept nonnegative: probabilities, distances and the like often feed a square root or a logarithm.
        return f"(torch.rand({shape}) * {2 * mean!r}).to({dtype})"
    centre = mean if abs(mean) > 0.25 * spread else 0.0
    shift = f" + {centre:.6g}" if centre else ""
    return f"(torch.randn({shape}) * {spread or 1.0:.6g}{shift}).to({dtype})"


def _save(module: torch.nn.Module, folder: Path) -> Path:
    state = {name: tensor.detach().to("cpu") for name, tensor in module.state_dict().items()}
    body = io.BytesIO()
    torch.save(state, body)
    path = folder / f"{hashlib.sha256(body.getvalue()).hexdigest()[:16]}.pt"
    folder.mkdir(parents=True, exist_ok=True)
    if not path.exists():
        fresh = path.with_suffix(".new")
        fresh.write_bytes(body.getvalue())
        fresh.replace(path)
    return path


def _check_rebuilt(task: Task, module: torch.nn.Module, example: _Example) -> None:
    """Raise TaskError unless the written source rebuilds a module with equal outputs on the example inputs."""
    scope: dict[str, object] = {"__name__": "captured"}
    advice = "pass init_args=(...), the arguments it was made with"
    try:
        exec(compile(task.reference, "<captured>", "exec"), scope)
        rebuilt = scope["Model"]()  # type: ignore[operator]  # the class written above
        rebuilt.load_state_dict(module.state_dict(), strict=True)
    except (ImportError, NameError, TypeError, RuntimeError, AttributeError, ValueError) as error:
        raise TaskError(f"{task.name} cannot be rebuilt.", got=str(error)[:500], what_next=advice) from error
    place = next(module.parameters(), torch.empty(0)).device
    rebuilt.to(place).train(module.training)
    outputs = []
    for call in (lambda: example.of(module), lambda: rebuilt(*example.values)):
        with torch.no_grad(), torch.random.fork_rng(devices=[]):
            torch.manual_seed(SEED)
            outputs.append(torch.utils._pytree.tree_leaves(call()))
    same = len(outputs[0]) == len(outputs[1]) and all(
        torch.equal(a.nan_to_num(), b.nan_to_num()) if isinstance(a, torch.Tensor) else a == b
        for a, b in zip(*outputs, strict=True)
    )
    if not same:
        raise TaskError(
            f"{task.name} was rebuilt from its source, and the copy computes something else.",
            got="different outputs on the example inputs",
            expected="equal ones",
            what_next=advice,
        )
