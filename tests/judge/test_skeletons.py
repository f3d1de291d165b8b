# SPDX-License-Identifier: Apache-2.0
"""Nested values survive the trip through a JSON skeleton, and nothing else does."""

from __future__ import annotations

import json
from collections import OrderedDict
from dataclasses import dataclass
from typing import Any, NamedTuple

import pytest
import torch

from kernelwright.judge import skeletons

ONE, TWO = torch.ones(2), torch.zeros(3)


class Batch(NamedTuple):
    """Two things with names."""

    first: Any
    second: Any


@pytest.mark.parametrize(
    ("value", "count"),
    [
        (ONE, 1),
        ([ONE, (TWO, {"a": ONE, "b": [3, None]})], 3),
        ({1: ONE, None: TWO}, 2),
        ({"dict": ONE}, 1),
        ([torch.float16, torch.device("cpu"), torch.Size([2, 3]), slice(1, None, 2), 1 + 2j, {4}], 0),
        ([float("inf"), -0.0, True, "text", None], 0),
        ((), 0),
    ],
)
def test_a_value_survives_json(value: Any, count: int) -> None:
    """Same structure, same types, same leaves in depth-first order."""
    skeleton, leaves = skeletons.flatten(value)
    rebuilt = skeletons.unflatten(json.loads(json.dumps(skeleton)), leaves)
    assert count == len(leaves)
    assert repr(value) == repr(rebuilt)


def test_named_tuples_of_arguments_keep_their_names_and_those_of_results_do_not() -> None:
    """A model asks its arguments by name; a result may be of anybody's type."""
    value = [Batch(ONE, {"y": Batch(TWO, 3)})]
    skeleton, leaves = skeletons.flatten(value, named=True)
    skeleton = json.loads(json.dumps(skeleton))
    (rebuilt,) = skeletons.unflatten(skeletons.shifted(skeleton, 1), [None, *leaves])
    assert repr(value[0]) == repr(rebuilt) and rebuilt.second["y"].first is TWO
    assert type(rebuilt) is type(skeletons.unflatten(skeleton, leaves)[0]) is type(rebuilt.second["y"])
    assert ["0.first", "0.second.y.first"] == skeletons.names(skeleton)
    assert skeletons.flatten([(ONE, {"y": (TWO, 3)})])[0] == skeletons.flatten(value)[0]


def test_an_object_is_refused_by_name() -> None:
    """A live object has no plain form."""
    with pytest.raises(TypeError, match="a value of type Linear cannot be handed"):
        skeletons.flatten([torch.nn.Linear(1, 1)])


@pytest.mark.parametrize("bad", [{}, {"a": 1, "b": 2}, [1], "t", {"eval": "1"}])
def test_a_malformed_skeleton_is_refused(bad: Any) -> None:
    """Unknown kinds are errors, never guesses."""
    with pytest.raises(ValueError, match="not a skeleton"):
        skeletons.unflatten(bad, [])


def test_messages_show_values_as_python_writes_them() -> None:
    """Sets of tensors, which have no names, too."""
    assert "{tensor}" == skeletons.shown(skeletons.flatten({ONE})[0])
    value = [ONE, ({"w": TWO, 3: ONE}, torch.Size([2]), "text", {4})]
    assert "[tensor, ({'w': tensor, 3: tensor}, torch.Size([2]), 'text', {4})]" == skeletons.shown(
        skeletons.flatten(value)[0]
    )
    assert "Batch(first=tensor, second=1)" == skeletons.shown(skeletons.flatten(Batch(ONE, 1), named=True)[0])


def test_leaves_have_names() -> None:
    """A path per tensor, for messages."""
    skeleton, _ = skeletons.flatten([ONE, {"w": (TWO, ONE)}])
    assert ["0", "1.w.0", "1.w.1"] == skeletons.names(skeleton)


@pytest.mark.parametrize("name", ["float99", "nn", "__name__"])
def test_only_dtypes_are_dtypes(name: str) -> None:
    """A dtype name cannot reach another attribute of torch."""
    with pytest.raises(ValueError, match="no dtype"):
        skeletons.dtype(name)


class Encoding(dict[str, Any]):
    """As tokenizers return it."""

    def __getattr__(self, name: str) -> Any:
        return self[name]


def test_mappings_that_give_their_members_as_attributes_still_do() -> None:
    """Of arguments; those of a type of their own that do not are plain, and so are results."""
    skeleton, leaves = skeletons.flatten([Encoding(ids=ONE, mask=TWO), OrderedDict(ids=ONE)], named=True)
    skeleton = json.loads(json.dumps(skeletons.shifted(skeleton, 1)))
    first, second = skeletons.unflatten(skeleton, [None, *leaves])
    assert first.ids is ONE and first["mask"] is TWO and list(first) == ["ids", "mask"]
    assert type(second) is dict and ["0.ids", "0.mask", "1.ids"] == skeletons.names(skeleton)
    with pytest.raises(AttributeError, match="labels"):
        _ = first.labels
    assert {"dict": {"ids": {"t": 0}}} == skeletons.flatten(Encoding(ids=ONE))[0]


@dataclass
class Config:
    """What a model is made by, or returns."""

    width: int
    last: Any = None


def test_dataclasses_configure_and_are_returned() -> None:
    """A constructor is given their fields; a result is no mapping."""
    skeleton, leaves = skeletons.of_constructor([Config(3, Config(4, ONE))])
    (made,) = skeletons.unflatten(json.loads(json.dumps(skeleton)), leaves)
    assert (made.width, made.last.width) == (3, 4) and made.last.last is ONE
    returned, leaves = skeletons.flatten(Config(3, (ONE, TWO)))
    assert ["last.0", "last.1"] == skeletons.names(returned) and len(leaves) == 2
    assert returned != skeletons.flatten({"width": 3, "last": (ONE, TWO)})[0]
    with pytest.raises(TypeError, match="Config"):
        skeletons.flatten([Config(3)], named=True)
