# SPDX-License-Identifier: Apache-2.0
"""What a constructor takes reaches another process as it is, or is named with the place where it lies."""

from __future__ import annotations

import functools
import json
import types
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from kernelwright import errors
from kernelwright.judge import skeletons
from kernelwright.judge.reference import Reference
from kernelwright.judge.resized import one_module
from kernelwright.task import Case, Task

SOURCE = """
import functools
import types
import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F


class Act(nn.ReLU):
    pass


class Config(types.SimpleNamespace):
    pass


class Model(nn.Module):
    def __init__(self, *args, **kwargs):
        super().__init__()

    def forward(self, x):
        return x * 2


def get_inputs(n=3):
    return [torch.randn(n, 4)]


def get_init_inputs():
    return {given}
"""


def again(value: Any) -> Any:
    """The same as another process is given it."""
    skeleton, leaves = skeletons.of_constructor(value)
    return skeletons.unflatten(skeletons.shifted(json.loads(json.dumps(skeleton)), 1), [None, *leaves])


def made(given: str) -> Reference:
    """A reference whose constructor takes this."""
    source = SOURCE.replace("{given}", given)
    return Reference(Task(name="raw", form="kernelbench", reference=source), "cpu")


@pytest.mark.parametrize(
    "value",
    [nn.Mish, nn.LayerNorm, torch.Tensor, torch.optim.Adam, F.gelu, F.silu, F.max_pool2d, torch.tanh,
     nn.init.xavier_uniform_, torch.special.expit, torch.linalg.norm, int, dict],
)  # fmt: skip
def test_classes_and_functions_of_torch_are_the_very_ones(value: Any) -> None:
    assert again([value])[0] is value


def test_configurations_and_partial_calls_are_made_anew() -> None:
    """With whatever lies in them, tensors too."""
    one, two = torch.ones(2), torch.zeros(3)
    norm = functools.partial(nn.LayerNorm, eps=1)
    value = types.SimpleNamespace(d=3, parts=(two, {"w": one}), act=nn.GELU, norm=norm)
    there = again({"cfg": value})["cfg"]
    assert type(there) is types.SimpleNamespace and list(vars(value)) == list(vars(there))
    assert there.parts[0] is two and there.parts[1]["w"] is one and there.act is nn.GELU
    assert type(there.norm) is functools.partial
    assert (nn.LayerNorm, (), {"eps": 1}) == (there.norm.func, there.norm.args, there.norm.keywords)
    bound = again(functools.partial(F.pad, one, (0, 1), value=two))
    assert bound.func is F.pad and bound.args[0] is one and bound.args[1] == (0, 1) and bound.keywords["value"] is two


@pytest.mark.parametrize(
    "value",
    [lambda x: x, print, object, nn.GELU(), torch.Tensor.relu, torch.ops.aten.relu, torch.hub.urlopen,
     functools.partial(print), functools.partial(nn.Linear, len)],
)  # fmt: skip
def test_nothing_else_is_handed_over(value: Any) -> None:
    """Not what a module of torch has from elsewhere, either."""
    with pytest.raises(TypeError, match="cannot be handed to another process"):
        skeletons.of_constructor([value])


@pytest.mark.parametrize("value", [nn.Mish, F.gelu, types.SimpleNamespace(a=1), functools.partial(nn.Mish)])
def test_arguments_of_a_call_and_results_are_as_before(value: Any) -> None:
    for named in (False, True):
        with pytest.raises(TypeError, match="cannot be handed to another process"):
            skeletons.flatten([value], named=named)


@pytest.mark.parametrize(
    "named",
    [["os", "system"], ["torch", "os.system"], ["torch.hub", "os"], ["torch.hub", "urlopen"], ["torchx", "a"],
     ["torch..nn", "x"], ["", "x"], ["builtins", "eval"], ["torch", "float32"], ["torch", "nn"],
     ["torch.serialization", "pickle"], ["torch", "no_such"], [3, "x"]],
)  # fmt: skip
def test_names_reach_nothing_but_torch(named: list[Any]) -> None:
    """No module of another name is imported, nothing that a module of torch has from elsewhere is given."""
    with pytest.raises(ValueError, match="no class or function of torch"):
        skeletons.unflatten({"from": named}, [])


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ("[4, Act]", "argument 1: the class Act"),
        ("[types.SimpleNamespace(d=4, acts=[nn.ReLU, lambda x: x])]", "argument 0.acts[1]: the function <lambda>"),
        ("{'act': nn.GELU()}", "act: a value of type GELU"),
        ("[[3], {'norm': functools.partial(nn.LayerNorm, eps=np.float32(1))}]",
         "norm.keywords['eps']: a value of type float32"),
        ("[functools.partial(Act, 1)]", "argument 0.func: the class Act"),
        ("[Config(d=4)]", "argument 0: a value of type Config"),
        ("[{'a': {1, Act}}]", "argument 0['a']: the class Act"),
    ],
)  # fmt: skip
def test_what_cannot_be_handed_over_is_named(given: str, said: str) -> None:
    """With its place, what may lie there, and what to do instead."""
    with pytest.raises(errors.TaskError) as caught:
        made(given).instance(Case(name="main"))
    assert caught.value.what.startswith("get_init_inputs of raw returns something that cannot be handed")
    assert caught.value.got == said
    assert "functions of torch" in caught.value.expected and "let Model make" in caught.value.what_next


def test_one_construction_serves_both_where_all_that_they_are_given_is_the_same() -> None:
    """Configurations and functions too."""
    here = made("[types.SimpleNamespace(d=4), nn.Mish, functools.partial(F.gelu, approximate='tanh')]")
    own, other = (here.instance(Case(name=f"n{n}", axes=(("n", n),))) for n in (3, 5))
    assert one_module(own, other)
    other.init_args[2] = functools.partial(F.gelu, approximate="none")
    assert not one_module(own, other)
