# SPDX-License-Identifier: Apache-2.0
"""A live module or function with example inputs to a Task; the one parent-side room that uses torch.

The caller has torch loaded already. The definitions that the object needs are sliced out of its source file
(never the whole file: that could run a training script), a constructor call is written that rebuilds it, and
the rebuilt object must give bit for bit the same output before the task is accepted. Nothing of the caller's changes.
"""

from __future__ import annotations

import functools
import hashlib
import inspect
import io
import sys
import types
from collections.abc import Sequence
from dataclasses import is_dataclass
from pathlib import Path

import torch

from kernelwright.capture.amended import AMENDED, hooked, no_hooks
from kernelwright.capture.assembled import PUT_TOGETHER, PUT_TOGETHER_SOURCE
from kernelwright.capture.construct import constructor, described
from kernelwright.capture.example import Example, drawn, read
from kernelwright.capture.origin import source, sources
from kernelwright.capture.rebuilt import Lost, amended, check_function, check_module, refuse_beside
from kernelwright.capture.surroundings import refuse_library_changes, refuse_settings
from kernelwright.capture.values import MADE_OF, MADE_OF_SOURCE, held, is_plain
from kernelwright.errors import TaskError
from kernelwright.load.beside import Files, carried
from kernelwright.neighbours import tells
from kernelwright.task import Contract, Task

_WEIGHTS = """CAPTURED_STATE = {path!r}


def _weights_given():
    import os
    import warnings

    folder = os.path.dirname(os.path.abspath(globals().get("__file__", "")))
    beside = os.path.join(folder, os.path.basename(CAPTURED_STATE))
    for path in (beside, CAPTURED_STATE):
        if os.path.exists(path):
            return torch.load(path, weights_only=True)
    warnings.warn("the weights given at capture are neither " + beside + " nor " + CAPTURED_STATE + ": these are fresh")


"""
"""Beside ``optimized.py``, where runs copy them, before the cache they were saved in."""


def capture(target: object, inputs: object, state_dir: Path, init_args: Sequence[object] | None) -> Task:
    """The Task of ``target`` called with ``inputs``; weights are saved under ``state_dir`` by their content.

    ``inputs``: the positional arguments of one call, a dict of keywords, or a pair of both. The reference is in
    training mode where the module is, and its gradients are asked for where an input requires one. Raises TaskError
    for lambdas, closures, objects without source, calls that do not fit, and modules whose constructor arguments
    cannot be found, each with what to do.
    """
    target = _as_written(target)
    refuse_settings()
    if isinstance(target, torch.jit.ScriptModule | torch.jit.ScriptFunction):
        raise TaskError(
            "A scripted program has no Python source.",
            got=type(target).__name__,
            expected="an nn.Module or a function",
            what_next="pass what it was scripted or traced from",
        )
    if isinstance(target, torch.nn.Module):
        return _module(target, read(target.forward, inputs), state_dir, init_args)
    if isinstance(target, types.FunctionType):
        if init_args is not None:
            raise TaskError(
                "A function has no constructor.",
                got="init_args",
                expected="example inputs alone",
                what_next="leave init_args out",
            )
        return _function(target, read(target, inputs))
    raise TaskError(
        "This cannot be optimised.",
        got=_named(target),
        expected="an nn.Module, a function, a task file or a task folder",
        what_next=_instead(target),
    )


def _as_written(target: object) -> object:
    """What torch.compile was given: the compiler is tried on it in any case."""
    inner = getattr(target, "_orig_mod", None) or getattr(target, "_torchdynamo_orig_callable", None)
    return target if inner is None else inner


def _named(target: object) -> str:
    if isinstance(target, type) or inspect.isroutine(target):
        kind = "the class" if isinstance(target, type) else f"a {type(target).__name__},"
        return f"{kind} {getattr(target, '__qualname__', '')}"
    return type(target).__name__


def _instead(target: object) -> str:
    """What to pass instead of something that is neither a module nor a function of one's own."""
    if isinstance(target, type):
        return "pass a module made from the class"
    if isinstance(getattr(target, "__self__", None), torch.nn.Module):
        return "pass the module; it is called as a whole"
    if isinstance(target, functools.partial) or callable(target):
        return "write a def function at the top level of a file that calls it, and pass that"
    return "pass the module or function itself"


def _function(target: types.FunctionType, example: Example) -> Task:
    name = _own_name(target)
    if name is None and target.__name__ == "<lambda>":
        raise TaskError(
            "A lambda without a name has no source that can be found.",
            got="a lambda",
            expected="a def function, or a lambda assigned to a name, at the top level of a file",
            what_next="give it a name there and pass that",
        )
    if name is None:
        raise TaskError(
            f"{target.__name__} is defined inside another function.",
            got=target.__qualname__,
            expected="a function at the top level of a file",
            what_next="move it there and pass what it closes over as arguments",
        )
    text, imports = source(inspect.unwrap(target), {name})
    head, passed = example.head, example.passed
    body = f"class Model(torch.nn.Module):\n    def forward(self, {head}):\n        return {name}({passed})\n"
    task = _task(name, text, body, example.values, imports, training=False)
    check_function(task, target, example)
    refuse_beside(task, imports)
    return task


def _own_name(target: types.FunctionType) -> str | None:
    """The name under which the file of a function holds it, decorated or not; None where it holds it under none."""
    held, first = vars(sys.modules.get(target.__module__, types.ModuleType(""))), target.__name__
    at_top = first.isidentifier() and not target.__closure__ and "<locals>" not in target.__qualname__
    found = (name for name in (first, *held) if name.isidentifier() and held.get(name) is target)
    return first if at_top else next(found, None)


def _module(module: torch.nn.Module, example: Example, state_dir: Path, init_args: Sequence[object] | None) -> Task:
    refuse_library_changes(module)
    try:
        return _written(module, example, state_dir, init_args)
    except Lost:
        raise
    except TaskError as error:
        if init_args is None:
            # What its attributes told of the constructor's arguments may have been wrong: its parts are not.
            try:
                return _written(module, example, state_dir, None, whole=True)
            except Lost:
                raise
            except TaskError:
                pass
        if hook := hooked(module):
            raise no_hooks(hook) from error
        raise


def _written(
    module: torch.nn.Module,
    example: Example,
    state_dir: Path,
    init_args: Sequence[object] | None,
    *,
    whole: bool = False,
) -> Task:
    construct = constructor(module, init_args, whole=whole)
    state = _save(module, state_dir)
    made = _draft(module, example, state, construct, init_args, ())
    make = functools.partial(constructor, whole=whole)
    lines = amended(made[0], module, example, make)
    task, kinds, imports = _draft(module, example, state, construct, init_args, lines) if lines else made
    check_module(task, module, example, kinds, make)
    refuse_beside(task, imports)
    return task


def _draft(
    module: torch.nn.Module,
    example: Example,
    state: Path,
    construct: str,
    init_args: Sequence[object] | None,
    lines: Sequence[str],
) -> tuple[Task, set[type], tuple[str, ...]]:
    """The task of a module whose constructor call is ``construct``, mended by ``lines``; its classes and folders."""
    kinds = {type(part) for part in module.modules()}
    kinds |= described(module, "\n".join((construct, *lines)), init_args)
    kinds = {kind for kind in kinds if not kind.__module__.startswith("torch.")}
    for kind in kinds:
        if "<locals>" in kind.__qualname__:
            raise TaskError(
                f"{kind.__name__} is defined inside a function.",
                got=kind.__qualname__,
                expected="a class at the top level of a file",
                what_next="move it there",
            )
    text, imports = sources(kinds)
    loaded = [
        *([f"        {AMENDED}(self)"] if lines else []),
        "        if (weights := _weights_given()) is not None:",
        "            self.load_state_dict(weights)",
        "",
    ]
    if type(module).forward is torch.nn.Sequential.forward:
        # It iterates over itself, and a slice of it is made by its constructor: the parts are all there is to it.
        body = _sequence(construct, loaded, example.head)
    else:  # methods call one another, those of torch's classes too
        body = [*_subclass(construct), *loaded]
        if example.keywords:
            body[-1:] = ["", f"    def forward(self, {example.head}):"]
            body += [f"        return super().forward({example.passed})", ""]
    if lines:
        body = [f"def {AMENDED}(model):", *(f"    {line}" for line in lines), "", "", *body]
    written = _WEIGHTS.format(path=str(state)) + "\n".join(body)
    task = _task(type(module).__name__, text, written, example.values, imports, training=module.training)
    return task, kinds, imports


def _sequence(construct: str, loaded: Sequence[str], head: str) -> list[str]:
    """Model with the parts of a sequence, called one after another."""
    return [
        "def _built():",
        f"    return {construct}",
        "",
        "",
        "class Model(torch.nn.Module):",
        "    def __init__(self):",
        "        super().__init__()",
        "        self.__dict__.update(_built().__dict__)",
        *loaded,
        f"    def forward(self, {head}):",
        f"        for part in self._modules.values():\n            {head} = part({head})",
        f"        return {head}\n",
    ]


def _subclass(construct: str) -> list[str]:
    """Model as a subclass of the module's class: methods and attributes are then its own."""
    name, _, arguments = construct[:-1].partition("(")
    made = [f"        super().__init__({arguments})"]
    if name == PUT_TOGETHER:
        name = arguments.partition(",")[0]
        made = [f"        self.__dict__.update({construct}.__dict__)"]
    base = name if name != "Model" else "_Given"
    head = ["_Given = Model"] if base == "_Given" else []
    return [
        *head,
        "",
        "",
        f"class Model({base}):",
        "    def __init__(self):",
        *made,
    ]


def _task(
    name: str, text: str, body: str, inputs: tuple[object, ...], imports: tuple[str, ...], *, training: bool
) -> Task:
    leaves = torch.utils._pytree.tree_leaves(inputs)
    learns = any(isinstance(leaf, torch.Tensor) and leaf.requires_grad for leaf in leaves)
    others = [leaf for leaf in leaves if not isinstance(leaf, torch.Tensor)]
    own = [leaf for leaf in others if _of_a_user(leaf)]
    if own:
        raise TaskError(
            "An input cannot be written down.",
            got=f"{_named(own[0])}: a class of yours, or an instance of one",
            expected="tensors, numbers, text, None, and lists, tuples or dicts of them",
            what_next="pass the values it holds",
        )
    parts = [
        "import torch",
        text.strip(),
        MADE_OF_SOURCE.strip() if MADE_OF in body else "",
        PUT_TOGETHER_SOURCE.strip() if PUT_TOGETHER in body else "",
        body.strip(),
        drawn(inputs),
        "def get_init_inputs():\n    return []",
    ]
    future = [line for line in text.splitlines() if line.startswith("from __future__")]
    reference = "\n\n\n".join(part for part in parts if part)
    beside: Files = ()
    if any(tells(Path(folder)) for folder in imports):  # else the modules stay the ones that the caller has loaded
        beside, imports = carried(imports, text)
    for line in future:
        reference = line + "\n" + reference.replace(line + "\n", "", 1)
    return Task(
        name=name,
        form="object",
        reference=reference + "\n",
        contract=Contract(training=training, gradients=learns),
        imports=imports,
        beside=beside,
    )


def _of_a_user(leaf: object) -> bool:
    """Whether an input is an instance of a class of the user's, whatever it holds (tensors, say), or such a class."""
    if is_plain(leaf):
        return is_dataclass(leaf) or not is_plain(leaf, own=False)
    return is_dataclass(leaf) or held(leaf) is not None


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
