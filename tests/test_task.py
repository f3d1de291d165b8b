# SPDX-License-Identifier: Apache-2.0
"""task.py: what get_inputs may return, as the arguments of one call; where modules beside a reference may lie."""

from __future__ import annotations

import inspect
from pathlib import Path

import pytest

from kernelwright import wire
from kernelwright.errors import TaskError
from kernelwright.judge import requests
from kernelwright.task import Task, by_position


def call(x: object, y: object = 2, z: object = 3) -> None:
    """Two parameters with defaults."""


def alone(x: object, *, z: object) -> None:
    """One parameter by keyword only."""


def wild(*args: object, **kwargs: object) -> None:
    """Anything."""


@pytest.mark.parametrize(
    ("given", "arguments"),
    [
        ([1, 5], [1, 5]),
        ((1,), [1]),
        (7, [7]),
        ({"x": 1}, [1]),
        ({"z": 9, "x": 1}, [1, 2, 9]),
        ([[1], {"z": 9}], [1, 2, 9]),
        (((1, 4), {"z": 9}), [1, 4, 9]),
        ({"shift": 1}, [{"shift": 1}]),
        ({}, [{}]),
        ([[1], {"shift": 1}], [[1], {"shift": 1}]),
        ([[1], {}], [[1], {}]),
        ([{"x": 1}, 5], [{"x": 1}, 5]),
    ],
)
def test_keywords_take_their_places_and_other_dicts_stay_arguments(given: object, arguments: list[object]) -> None:
    """A dict means keywords only where every key is a parameter; gaps are filled with defaults, the tail is not."""
    assert arguments == by_position(given, inspect.signature(call))


def test_parameters_by_keyword_only_come_last_or_are_refused() -> None:
    """They have no position unless the caller gives them one."""
    given = {"z": 1, "x": 0}
    with pytest.raises(TypeError, match="z can be given by keyword only"):
        by_position(given, inspect.signature(alone))
    assert [0, 1] == by_position(given, inspect.signature(alone), alone=True)


@pytest.mark.parametrize("given", [{"y": 1}, [[1], {"x": 2}]])
def test_a_call_that_does_not_fit_is_a_type_error(given: object) -> None:
    """A required parameter left out, and one given twice."""
    with pytest.raises(TypeError):
        by_position(given, inspect.signature(call))


def test_a_signature_that_takes_anything_gets_the_dict_itself() -> None:
    """No key of it is the name of a parameter."""
    assert [{"x": 1}] == by_position({"x": 1}, inspect.signature(wild))


@pytest.mark.parametrize("name", ["../other.py", "/etc/other.py", "a/../../other.py", "", "."])
def test_a_module_beside_a_reference_lies_in_its_folder(name: str, tmp_path: Path) -> None:
    """A task may come from a run folder that somebody sent: its texts are written to a folder of the judge's."""
    with pytest.raises(ValueError, match="not a plain relative path"):
        Task(name="x", form="kernelbench", reference="", cases=(), beside=((name, "text"),))
    good = wire.to_data(Task(name="x", form="kernelbench", reference="", cases=(), beside=(("a/b.py", "text"),)))
    assert requests.task_of({"task": good}, tmp_path).imports
    good["beside"][0][0] = name
    with pytest.raises(TaskError, match="cannot be read"):
        requests.task_of({"task": good}, tmp_path)
