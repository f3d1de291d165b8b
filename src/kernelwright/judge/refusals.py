# SPDX-License-Identifier: Apache-2.0
"""What a reference must not do, each in one message that says how to mend it."""

from __future__ import annotations

import contextlib
import inspect
import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import torch

from kernelwright.errors import (
    EmptyShape,
    NoTensorOutput,
    ReferenceFails,
    ReferenceIsRandom,
    TaskError,
    TaskIncomplete,
    WrongDevice,
)
from kernelwright.judge import agreement, calls, skeletons
from kernelwright.judge.inputs import FLOATS, seeded
from kernelwright.judge.numerics import EIGHT_BITS, EXACT_DTYPES
from kernelwright.task import by_position

if TYPE_CHECKING:
    from kernelwright.judge.buffers import TensorSpec
    from kernelwright.judge.instance import Instance
    from kernelwright.judge.reference import Reference
    from kernelwright.judge.weights import State

COMPARED = (*EXACT_DTYPES, *FLOATS, torch.complex64, torch.complex128)
"""Types of outputs, and of inputs that are written to."""
CALLS, SECONDS = 32, 0.25
"""Further calls of a reference that changes its own state, and how long they may take in all: one that took the mean of
its inputs on every fourth call was admitted, and a copy of it refused."""
SECONDS_OF_A_WINDOW = 10.0
READ = (*COMPARED, torch.uint16, torch.uint32, torch.uint64, *EIGHT_BITS)
"""Types of inputs: these torch can at least copy and tell apart."""


def parameters(model: Any) -> list[str]:
    """The names under which its forward takes arguments by position or by name."""
    found = inspect.signature(getattr(model, "forward", model)).parameters
    return [name for name, parameter in found.items() if parameter.kind is parameter.POSITIONAL_OR_KEYWORD]


def arguments(reference: Reference, given: Any, forward: Callable[..., Any]) -> list[Any]:
    """What ``get_inputs`` returned, by position. Raises TaskError for keywords that have no position."""
    signature = inspect.signature(forward)
    try:
        return by_position(given, signature)
    except TypeError as error:
        names = ", ".join(signature.parameters)
        raise TaskError(
            f"The keyword arguments that get_inputs of {reference.task.name} returns have no order.",
            got=str(error),
            expected=f"a list in the order of forward's parameters ({names}), or a dict of some of them",
            what_next="let forward take these parameters by position too, and return every one without a default",
        ) from error


def plain(reference: Reference, given: Any, forward: Callable[..., Any]) -> tuple[Any, list[torch.Tensor]]:
    """Skeleton and tensor leaves of the arguments that ``get_inputs`` returned. Raises TaskError where there is
    something that other processes, and a proof, cannot be given."""
    args = arguments(reference, given, forward)
    try:
        return skeletons.flatten(args, named=True)
    except TypeError as error:
        raise TaskError(
            f"get_inputs of {reference.task.name} returns something that cannot be handed to another process.",
            got=str(error).removesuffix(" cannot be handed to another process"),
            expected="tensors, Python's own numbers, texts, None, and lists, tuples or dicts of them",
            what_next="return int(n), float(n) or torch.from_numpy(a) for what is NumPy's; make other objects in "
            "Model, of numbers that get_init_inputs returns",
        ) from error


def drawn(reference: Reference, first: Any, second: Any) -> list[str]:
    """What a proof says of numbers that differ between two draws. Raises TaskError where a tensor is there in one of
    them only, or lies elsewhere."""
    one, other = dict(skeletons.leaves(first)), dict(skeletons.leaves(second))
    if [path for path in one if "t" in one[path]] != [path for path in other if "t" in other[path]]:
        raise TaskError(
            f"get_inputs of {reference.task.name} returns a tensor in one draw where there is none in another.",
            got="; ".join("arguments " + (", ".join(skeletons.names(each)) or "none") for each in (first, second)),
            expected="tensors in the same places in every draw",
            what_next="make every way to call it a task of its own",
        )
    changed = [path for path in {**one, **other} if repr(one.get(path)) != repr(other.get(path))]
    return [f"argument {path} is not a tensor, and another in other draws: judged with one of them" for path in changed]


def alike(
    reference: Reference, names: Sequence[str], first: Sequence[torch.Tensor], second: Sequence[torch.Tensor]
) -> None:
    """Raises TaskError where an input has another shape or type in another draw."""
    for index, (one, other) in enumerate(zip(first, second, strict=True)):
        if one.shape == other.shape and one.dtype is other.dtype:
            continue
        said = " and then ".join(f"{str(x.dtype).removeprefix('torch.')} {tuple(x.shape)}" for x in (one, other))
        raise TaskError(
            f"get_inputs of {reference.task.name} gives input {names[index] or index} another shape or type each time.",
            got=said,
            expected="the same shapes and types in every draw",
            what_next="fix what sizes depend on (how many are not zero, how long a sequence is), or pad to the longest",
        )


def no_module(reference: Reference, made: object) -> None:
    """An entry whose call is no module: a function, or a class of another kind. Raises TaskIncomplete."""
    if not isinstance(made, torch.nn.Module):
        entry = reference.task.entry
        raise TaskIncomplete(
            f"{entry} of {reference.task.name} is no torch.nn.Module.",
            got=f"{entry}(...) is of type {type(made).__name__}",
            expected=f"class {entry}(torch.nn.Module) with a forward method",
            what_next="put the computation into forward of such a class; from Python, optimize() takes functions too",
        )


def placed(
    reference: Reference, leaves: Sequence[torch.Tensor]
) -> tuple[list[torch.Tensor], frozenset[int], frozenset[int]]:
    """The inputs on the device that was asked for, and which of them were expanded: elements that share memory are
    none that fresh values can be written to, so those come out whole; and which were marked by ``requires_grad``.
    Raises WrongDevice, TaskError."""
    for index, leaf in enumerate(leaves):
        if leaf.device.type not in ("cpu", reference.device.type):
            raise WrongDevice(
                f"Input {index} of {reference.task.name} is on another device.",
                got=str(leaf.device),
                expected=" or ".join(dict.fromkeys(("cpu", str(reference.device)))),
                what_next="let get_inputs return CPU tensors: they are moved to the device asked for",
            )
    _dense(reference, leaves, "Input")
    _typed(reference, [(f"Input {index}", leaf) for index, leaf in enumerate(leaves)], READ)
    given = [leaf.detach() for leaf in leaves]
    whole = [leaf if _apart(leaf) else leaf.contiguous() for leaf in given]
    marked = frozenset(i for i, leaf in enumerate(leaves) if leaf.requires_grad)
    repeated = frozenset(i for i, leaf in enumerate(given) if _repeats(leaf))
    return [leaf.to(reference.device) for leaf in whole], repeated, marked


def _repeats(leaf: torch.Tensor) -> bool:
    return any(step == 0 and size > 1 for step, size in zip(leaf.stride(), leaf.shape, strict=True))


def _apart(leaf: torch.Tensor) -> bool:
    """Whether no two elements share memory."""
    reach = 0
    for step, size in sorted(zip(leaf.stride(), leaf.shape, strict=True)):
        if size > 1 and step <= reach:
            return False
        reach += step * (size - 1)
    return True


def _dense(reference: Reference, leaves: Sequence[torch.Tensor], what: str) -> None:
    """Tensors whose elements do not lie in one storage cannot be handed over. Raises TaskError."""
    for index, leaf in enumerate(leaves):
        if leaf.layout is not torch.strided or leaf.is_nested or leaf.is_quantized:
            kind = "nested" if leaf.is_nested else "quantised" if leaf.is_quantized else str(leaf.layout)
            raise TaskError(
                f"{what} {index} of {reference.task.name} is no dense tensor.",
                got=f"{kind.removeprefix('torch.')}, of {leaf.dtype}",
                expected="dense tensors in and out; what lies between may be sparse, nested or quantised",
                what_next="pass and return the parts it is made of, or call to_dense() on it",
            )


def empty(reference: Reference, names: Sequence[str], leaves: Sequence[torch.Tensor]) -> None:
    """An input of the timed case without elements. Raises EmptyShape."""
    found = [i for i, leaf in enumerate(leaves) if leaf.numel() == 0]
    if found:
        raise EmptyShape(
            f"The timed case of {reference.task.name} has an input without elements.",
            got=", ".join(f"{names[i] or i}: {list(leaves[i].shape)}" for i in found),
            expected="at least one element in every input",
            what_next="give every axis of the timed case a size of 1 or more",
        )


def results(reference: Reference, given: Sequence[torch.Tensor], returned: Sequence[torch.Tensor]) -> None:
    """Results that are no dense tensors, or of a type without arithmetic, or a place in the contract at which there is
    no tensor: what was meant is checked nowhere. Raises TaskError."""
    _dense(reference, returned, "Output")
    contract, inputs, outputs = reference.contract, len(given), len(returned)
    said = [(name, "input", index, inputs) for name in ("mutates", "as_drawn") for index in getattr(contract, name)]
    for name, pairs in (("aliases", contract.aliases), ("index_outputs", contract.index_outputs)):
        for output, source in pairs:
            said += [(name, "output", output, outputs), (name, "input", source, inputs)]
    for name, what, index, count in said:
        if index >= count:
            raise TaskError(
                f"contract.{name} of {reference.task.name} names a tensor that is not there.",
                got=f"{what} {index}",
                expected=f"{what} 0 to {count - 1}" if count else f"no {what}: there is none",
                what_next="count tensors from 0, in the order in which they lie in the arguments or in the result",
            )
    answers = [(f"Output {index}", leaf) for index, leaf in enumerate(returned)]
    written_to = [(f"Input {index}, which is written to,", given[index]) for index in contract.mutates]
    _typed(reference, [*answers, *written_to], COMPARED)


def _typed(reference: Reference, leaves: Sequence[tuple[str, torch.Tensor]], allowed: Sequence[torch.dtype]) -> None:
    """Answers are compared in their own type: torch does no arithmetic in float8 and hardly any in the unsigned types
    of several bytes, and of 256 patterns none is left that no honest program writes, for what was never written.
    Raises TaskError."""
    for what, leaf in leaves:
        if leaf.dtype not in allowed:
            kind = str(leaf.dtype).removeprefix("torch.")
            wider = "int64" if kind.startswith("uint") else "complex64" if leaf.is_complex() else "float32"
            between = "what lies between" + ("" if leaf.dtype not in READ else " and what is only read")
            raise TaskError(
                f"{what} of {reference.task.name} is of a type that is not judged there.",
                got=kind,
                expected=", ".join(str(dtype).removeprefix("torch.") for dtype in allowed),
                what_next=f"let it be .to(torch.{wider}) of that: a wider type holds the same values; {between} may "
                f"be {kind}",
            )


def written(
    reference: Reference, names: Sequence[str], before: Sequence[torch.Tensor], after: Sequence[torch.Tensor]
) -> None:
    """An input that the reference writes to and does not declare: no candidate could do the same. Raises TaskError."""
    declared = reference.contract.mutates
    pairs = enumerate(zip(before, after, strict=True))
    found = [index for index, (old, new) in pairs if index not in declared and not agreement.same(old, new)]
    if found:
        labels = ", ".join(f"input {index}" + (f" ({names[index]})" if names[index] else "") for index in found)
        raise TaskError(
            f"The reference of {reference.task.name} writes to its own inputs and does not declare it.",
            got=f"{labels} changed by a call",
            expected=f"contract.mutates = {sorted({*declared, *found})} in the task.toml of a task folder",
            what_next="declare it there, or let forward work on a copy",
        )


def carried(
    reference: Reference,
    first: Sequence[torch.Tensor],
    model: torch.nn.Module,
    answer: Callable[[torch.nn.Module, list[torch.Tensor]], calls.Answer],
    given: tuple[list[torch.Tensor], list[torch.Tensor]],
    seed: int,
    anew: Callable[[], torch.nn.Module] | None,
) -> None:
    """Answers that depend on what earlier calls left in parameters or buffers: calls are checked each by itself, so a
    copy of the reference would be refused. ``first``: the ``answer`` of ``model`` to the first of two ``given``, which
    is asked for again under ``seed`` with nothing put back: at once, and after the other, three times as large: the
    least and the largest value met so far are the same after equal inputs. Then CALLS times, or for SECONDS, as state
    may be taken anew only now and then. ``anew`` makes the model again, where it keeps something in attributes: what it
    took from its first call stays, so the other comes first there. Raises TaskError."""
    own, other = given
    other = [3 * leaf if leaf.is_floating_point() else leaf for leaf in other]

    def call(used: torch.nn.Module, leaves: list[torch.Tensor], seed: int = seed) -> Sequence[torch.Tensor]:
        with seeded(seed):
            return answer(used, leaves).outputs

    second = call(model, own)
    if not agreement.differ(first, second):
        with contextlib.suppress(*calls.CAUGHT):
            call(model, other, seed + 1)
        end = time.monotonic() + SECONDS
        for _ in range(CALLS):
            second = call(model, own)
            if agreement.differ(first, second) or time.monotonic() > end:
                break
    if agreement.differ(first, second):
        raise _remembers(reference, first, second, "buffers" if anew is None else "buffers or attributes")
    if anew is not None:
        first, used = call(anew(), own), anew()
        with contextlib.suppress(*calls.CAUGHT):
            call(used, other, seed + 1)
        if agreement.differ(first, second := call(used, own)):
            raise _remembers(reference, first, second, "attributes")


def carried_in_a_window(instance: Instance, leaves: list[torch.Tensor], state: State, calls: int) -> None:
    """The same of a reference that was admitted, in a window of so many calls that begins with this ``state``, where a
    program's answer was found wrong: one that copies weights at every thousandth call answers otherwise from then on,
    and so does a right program. Each second call is of inputs three times as large. Raises TaskError."""
    first, end = instance.eager(leaves, state), time.monotonic() + SECONDS_OF_A_WINDOW
    other = [3 * leaf if leaf.is_floating_point() else leaf for leaf in leaves]
    instance.giver.give(instance.model, state)
    for _ in range(calls // 2):
        instance.run(instance.model, other)
        second = instance.run(instance.model, leaves)
        if agreement.differ(first, second):
            raise _remembers(instance.reference, first, second, "buffers")
        if time.monotonic() > end:
            return


def counts(model: torch.nn.Module) -> list[tuple[int, str, Any]]:
    """What the modules of a model keep outside their buffers, such as how often they were called: (place of the module,
    name, value), of lists and dicts how long they are, of anything else but numbers and texts which it is."""
    return [
        (place, name, _told(value)) for place, part in enumerate(model.modules()) for name, value in vars(part).items()
    ]


def kept_apart(before: list[tuple[int, str, Any]], model: torch.nn.Module, notes: list[str]) -> bool:
    """Whether a call changed what its modules keep outside their buffers, and in ``notes`` which tensors: a loss that a
    mixture of experts leaves on itself is read by who trains it, and no part of what is compared."""
    now = counts(model)
    told = {(place, name) for place, name, value in set(now) - set(before) if isinstance(value, tuple)}
    if told:
        names = ", ".join(sorted({name for _, name in told}))
        notes.append(f"calls leave tensors in {names} of the reference's modules, which are not compared")
    return now != before


def _told(value: Any) -> Any:
    if isinstance(value, (bool, int, float, str)):
        return value
    if isinstance(value, (list, dict, set, deque)):
        return len(value)
    if isinstance(value, torch.Tensor) and not value.is_inference():
        return id(value), value._version
    return id(value)


def of_one_shape(reference: Reference, specs: Sequence[TensorSpec], other: Sequence[torch.Tensor]) -> None:
    """Answers whose shape depends on values: there is room for those of the first call alone, so a copy of the
    reference would be refused. ``other``: its answer to another draw. Raises TaskError."""
    for index, (spec, out) in enumerate(zip(specs, other, strict=False)):
        if tuple(out.shape) != spec.shape:
            got = f"output {index}: {list(spec.shape)} for its first inputs, {list(out.shape)} for others"
            raise of_values(reference.task.name, got)


def of_values(task: str, got: str) -> TaskError:
    """The error for such answers, whoever met them."""
    return TaskError(
        f"The shape of what {task} returns depends on the values of its inputs.",
        got=got,
        expected="answers of one shape for inputs of one shape",
        what_next="let forward fill up to the most there may be, or return a mask instead",
    )


def of_numbers(task: str, got: str) -> ReferenceFails:
    """The error for answers with numbers that are no tensors and depend on values."""
    return ReferenceFails(
        f"A number that the reference of {task} returns depends on values: two draws differ in it.",
        got=got,
        expected="tensors of what is computed: numbers that are none are compared as a part of the structure",
        what_next="return the tensor that it was taken from, without .item(), int(), float() or bool(), or "
        "torch.tensor(number)",
    )


def _remembers(
    reference: Reference, first: Sequence[torch.Tensor], second: Sequence[torch.Tensor], where: str
) -> TaskError:
    return TaskError(
        f"The answers of {reference.task.name} depend on what earlier calls left in its {where}.",
        got=f"a second call on equal inputs: {agreement.first_difference(first, second)}",
        expected="calls that answer the same whichever came before, or state that is an input",
        what_next="let forward take the state as an input, and declare it in contract.mutates if it is written to",
    )


def differing(
    reference: Reference,
    first: Sequence[torch.Tensor],
    second: Sequence[torch.Tensor],
    anew: Callable[[], Sequence[torch.Tensor]],
) -> TaskError:
    """The error for two calls on equal inputs that differ. ``anew``: the first call of a module made anew. Where these
    are alike under any seed, it is not chance: the module keeps something from call to call."""
    fresh = []
    for seed in (11, 12):
        with seeded(seed):
            fresh.append(anew())
    if not agreement.differ(*fresh):
        return _remembers(reference, first, second, "attributes")
    return ReferenceIsRandom(
        f"Two runs of the reference of {reference.task.name} on equal inputs differ.",
        got=agreement.first_difference(first, second),
        expected="equal results up to rounding",
        what_next="call eval(), seed it inside forward, or declare contract.random = true in task.toml",
    )


def no_tensor(reference: Reference, got: str) -> NoTensorOutput:
    """The error for a reference that returns nothing to compare."""
    return NoTensorOutput(
        f"The reference of {reference.task.name} returns no tensor.",
        got=got,
        expected="a tensor, or a list, tuple or dict that holds tensors",
        what_next="return the tensors that are to be compared",
    )
