# SPDX-License-Identifier: Apache-2.0
"""The written source against the live object: bit for bit the same answers on the example inputs, or no task."""

from __future__ import annotations

import contextlib
import copy
import inspect
import random
import sys
import types
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import torch

from kernelwright.capture.amended import Lost, amendments, written_attributes
from kernelwright.capture.example import Example
from kernelwright.capture.surroundings import Written, changed_beside
from kernelwright.errors import TaskError
from kernelwright.task import Task

SEED = 20240229
MODULE_ADVICE = "pass init_args=(...), the arguments it was made with"
CLASS_ADVICE = "write it in the file, or keep it on the module: in its constructor, or as an attribute"
FUNCTION_ADVICE = "make what its file draws, or changes after defining it, an argument of the function"


def check_function(task: Task, function: Callable[..., Any], example: Example) -> None:
    """Raise TaskError unless the written source computes what the live function does, from the same values."""
    with _unseen():
        model, made = _made(task, FUNCTION_ADVICE)
        written = Written([inspect.unwrap(function), function], task.reference, made)
        _compare(task.name, lambda: function, model, example, FUNCTION_ADVICE, written)
        _refuse(task.name, written.lost(), FUNCTION_ADVICE)


def amended(task: Task, module: torch.nn.Module, example: Example, make: Callable[..., str]) -> list[str]:
    """The lines that make what the task's source rebuilds the live module, where its constructor alone does not."""
    with _unseen():
        model, _ = _made(task, MODULE_ADVICE, module.state_dict())
        found = amendments(module, model, task.reference, make)
        if found.doubts:
            # What a call writes itself is a cache or a counter: the comparison of answers says whether it matters.
            with contextlib.suppress(Exception):
                _answer(lambda values: model(*values), example)
            written_attributes(module, found, model)
        return found.lines


def check_module(
    task: Task, module: torch.nn.Module, example: Example, kinds: Iterable[type], make: Callable[..., str]
) -> None:
    """Raise TaskError unless the written source rebuilds a module with equal outputs on the example inputs, and with
    all else that the module has."""
    with _unseen():
        model, made = _made(task, MODULE_ADVICE, module.state_dict())
        written = Written(kinds, task.reference, made)
        found = amendments(module, model, task.reference, make)
        model.to(next(module.parameters(), torch.empty(0)).device).train(module.training)
        _compare(task.name, lambda: _copied(task.name, module), model, example, MODULE_ADVICE, written)
        _refuse(task.name, found.lines[0] if found.lines else found.left(), MODULE_ADVICE)
        _refuse(task.name, written.lost(), CLASS_ADVICE)


def refuse_beside(task: Task, imports: tuple[str, ...]) -> None:
    """Raise Lost where a module beside the source holds another constant than its file says."""
    _refuse(task.name, changed_beside(imports, task.reference), FUNCTION_ADVICE)


def _refuse(name: str, lost: str, advice: str) -> None:
    if lost:
        raise Lost(
            f"{name} holds something that its source does not make.",
            got=lost,
            expected="what the file says, from its first line to the call",
            what_next=advice,
        )


def _copied(name: str, module: torch.nn.Module) -> torch.nn.Module:
    """A copy to run: statistics and caches of the caller's own stay as they are."""
    attributes = [value for part in module.modules() for value in vars(part).values()]
    # Results of calculations, as weight_norm keeps one, are not copied by deepcopy itself.
    made = {id(x): x.detach().clone() for x in attributes if isinstance(x, torch.Tensor) and not x.is_leaf}
    try:
        return copy.deepcopy(module, made)
    except Exception as error:
        raise TaskError(
            f"{name} cannot be copied, and running yours could change it.",
            got=_short(error),
            expected="a module that copy.deepcopy takes",
            what_next="remove attributes such as handles, locks and open files",
        ) from error


@contextlib.contextmanager
def _unseen() -> Iterator[None]:
    """The caller's random generators are afterwards where they were."""
    devices = range(torch.cuda.device_count()) if torch.cuda.is_initialized() else ()
    state = random.getstate()
    try:
        with torch.random.fork_rng(devices=devices):
            yield
    finally:
        random.setstate(state)


def _made(task: Task, advice: str, state: dict[str, Any] | None = None) -> tuple[torch.nn.Module, types.ModuleType]:
    scratch = types.ModuleType(f"captured_{task.digest()[:12]}")
    sys.modules[scratch.__name__] = scratch  # dataclasses look up the module of theirs
    try:
        exec(compile(task.reference, "<captured>", "exec", dont_inherit=True), scratch.__dict__)
        model: torch.nn.Module = scratch.Model()
        if state is not None:
            model.load_state_dict(state, strict=True)
    except Exception as error:
        raise TaskError(f"{task.name} cannot be rebuilt.", got=_short(error), what_next=advice) from error
    finally:
        del sys.modules[scratch.__name__]
    return model, scratch


def _compare(
    name: str,
    live: Callable[[], Callable[..., Any]],
    rebuilt: Callable[..., Any],
    example: Example,
    advice: str,
    written: Written,
) -> None:
    """``live`` makes what is called, fresh for each call; ``written`` may know what makes a difference."""
    original = live()
    try:
        wanted = _answer(lambda values: example.of(original, values), example)
    except Exception as error:
        raise TaskError(
            f"{name} fails on the example inputs.",
            got=_short(error),
            expected="a call that works under torch.no_grad()",
            what_next="pass the arguments of a call that does, on the device of the weights",
        ) from error
    try:
        found = _answer(lambda values: rebuilt(*values), example)
    except Exception as error:
        raise TaskError(f"{name} was written down, and the copy fails.", got=_short(error), what_next=advice) from error
    difference = _difference(found, wanted)
    if not difference:
        return
    # Sums by atomic additions differ from call to call; where the original does so too, rounding is no difference.
    original = live()
    if _difference(_answer(lambda values: example.of(original, values), example), wanted) and _close(found, wanted):
        return
    raise TaskError(
        f"{name} was rebuilt from its source, and the copy computes something else.",
        got="; ".join(filter(None, (difference, written.lost()))),
        expected="equal outputs, bit for bit, on the example inputs",
        what_next=advice,
    )


def _answer(call: Callable[[tuple[object, ...]], object], example: Example) -> list[object]:
    """Leaves of what a call returns; the same seeds and fresh inputs every time."""
    with torch.no_grad():
        torch.manual_seed(SEED)
        random.seed(SEED)
        leaves: list[object] = torch.utils._pytree.tree_leaves(call(example.copied()))
    return leaves


def _difference(found: list[object], wanted: list[object]) -> str:
    """The first difference in words, or an empty string."""
    if len(found) != len(wanted):
        return f"{len(found)} outputs instead of {len(wanted)}"
    for index, (one, other) in enumerate(zip(found, wanted, strict=True)):
        if isinstance(one, torch.Tensor) and isinstance(other, torch.Tensor):
            words = _of_tensors(one, other)
        else:
            words = "" if one == other or (one != one and other != other) else f"{one!r} instead of {other!r}"[:200]
        if words:
            return f"output {index}: {words}"
    return ""


def _of_tensors(one: torch.Tensor, other: torch.Tensor) -> str:
    kinds = [(list(t.shape), str(t.dtype), str(t.device)) for t in (one, other)]
    if kinds[0] != kinds[1]:
        return f"{kinds[0]} instead of {kinds[1]}"
    one, other = one.to_dense(), other.to_dense()
    same = (one == other) | ((one != one) & (other != other))
    if bool(same.all()):
        return ""
    at = int((~same).flatten().long().argmax())
    pair = one.flatten()[at].item(), other.flatten()[at].item()
    return f"{int((~same).sum())} of {same.numel()} elements differ, the first is {pair[0]!r} instead of {pair[1]!r}"


def _close(found: list[object], wanted: list[object]) -> bool:
    try:
        torch.testing.assert_close(found, wanted, equal_nan=True)
    except (AssertionError, TypeError):
        return False
    return True


def _short(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}"[:500]
