# SPDX-License-Identifier: Apache-2.0
"""What a verb is asked to work on: files, folders, live objects and nouns made by hand, read into nouns."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import TypeVar

from kernelwright import settings, wire
from kernelwright.candidate import Candidate
from kernelwright.errors import BadCommand
from kernelwright.load import load_candidate, load_task
from kernelwright.optimize.services import caches
from kernelwright.task import Task

Noun = TypeVar("Noun", Task, Candidate)


def task_of(
    target: object,
    device: str,
    example_inputs: object = None,
    init_args: Sequence[object] | None = None,
    *,
    bits_lost: float | None = None,
    gradients: bool = False,
    contiguous: bool = False,
) -> Task:
    """The task that ``target`` is, or is made into. What follows ``init_args`` changes its contract."""
    bits = None if bits_lost is None else settings.bits(bits_lost)  # before anything is imported or saved
    task = _task(target, device, example_inputs, init_args)
    contract = task.contract if bits is None else dataclasses.replace(task.contract, bits_lost=bits)
    if gradients:
        contract = dataclasses.replace(contract, gradients=True)
    if contiguous:
        dense = tuple(name for name in contract.layouts if name not in ("strided", "transposed"))
        contract = dataclasses.replace(contract, layouts=dense or ("contiguous",))
    return task if contract is task.contract else dataclasses.replace(task, contract=contract)


def candidate_of(given: str | Path | Candidate, task: Task) -> Candidate:
    """A candidate, or the one that a file is."""
    return _read_again(given) if isinstance(given, Candidate) else load_candidate(given, task)


def _read_again(noun: Noun) -> Noun:
    """A noun made by hand, with lists as tuples. Raises BadCommand for a field of another kind."""
    try:
        return wire.from_data(type(noun), wire.to_data(noun))
    except (ValueError, TypeError) as error:
        raise BadCommand(
            f"This {type(noun).__name__} has a field of another kind.", got=str(error), expected="what its class says"
        ) from error


def _task(
    target: object,
    device: str,
    example_inputs: object = None,
    init_args: Sequence[object] | None = None,
) -> Task:
    if isinstance(target, Task | str | Path) and (example_inputs is not None or init_args is not None):
        raise BadCommand(
            "A task has inputs and constructor arguments of its own.",
            got="example_inputs or init_args beside it",
            expected="the task alone, or a module or function with example inputs",
            what_next="write them into get_inputs and get_init_inputs of the task",
        )
    if isinstance(target, Task):
        settings.bits(target.contract.bits_lost)
        return _read_again(target)
    if isinstance(target, str | Path):
        return load_task(target, device)
    from kernelwright.capture import capture  # noqa: PLC0415 - the one room that needs the caller's torch

    if example_inputs is None:
        raise BadCommand(
            "A module or function needs example inputs.",
            got=type(target).__name__,
            expected="optimize(module, (tensor, ...)), or a dict of keyword arguments; other verbs take tasks alone",
            what_next="pass the arguments of one call",
        )
    return capture(target, example_inputs, caches() / "state", init_args)
