# SPDX-License-Identifier: Apache-2.0
"""capture: modules whose constructor's arguments nobody kept, from their parts; configurations with slots and names."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest
import torch
from torch import nn

from kernelwright.capture import capture
from kernelwright.errors import TaskError
from kernelwright.task import Task

FILE = """
import collections
import dataclasses
import enum
import typing

import torch
from torch import nn


class Loop(nn.Module):
    def __init__(self, inputs, hidden, outputs):
        super().__init__()
        layers = []
        for width in hidden:
            layers.append(nn.Linear(inputs, width))
            layers.append(nn.ReLU())
            inputs = width
        layers.append(nn.Linear(inputs, outputs))
        self.network = nn.Sequential(*layers)

    def forward(self, x):
        return self.network(x)


class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.linear = nn.Linear(width, width)

    def forward(self, x):
        return x + torch.tanh(self.linear(x))


class Stack(nn.Module):
    def __init__(self, width, depth, names=("one",)):
        super().__init__()
        self.layers = nn.ModuleList()
        for index in range(depth):
            self.layers.append(Block(width * 2 // 2))
            if index:
                self.layers.append(nn.Tanh())
        self.heads = nn.ModuleDict({name: nn.Linear(width, width) for name in names})
        self.gain = nn.Parameter(torch.rand(width), requires_grad=False)
        self.register_parameter("nothing", None)
        self.register_buffer("shift", torch.arange(float(width)))
        self.power = depth + 0.5

    def forward(self, x):
        for layer in self.layers:
            x = layer(x)
        for head in self.heads.values():
            x = head(x)
        return self.after(x)

    def after(self, x):
        return (x * self.gain + self.shift) * self.power


class Model(nn.Module):
    def __init__(self, width, depths):
        super().__init__()
        act = nn.ReLU()
        self.body = nn.Sequential(act, *[Stack(width, depth) for depth in depths], act)

    def forward(self, x):
        return self.body(x)


@dataclasses.dataclass(slots=True)
class Slotted:
    width: int
    times: int = 2


class Written:
    __slots__ = ("times", "width")

    def __init__(self, width, times=2):
        print("made again")
        self.width, self.times = width, times


class Named(typing.NamedTuple):
    width: int
    times: int = 2


Older = collections.namedtuple("Older", "width times", defaults=(2,))


class Kind(enum.Enum):
    SOFT = object()
    HARD = object()


class Modes(enum.Flag):
    ABS = 1
    NEGATE = 2


class Configured(nn.Module):
    def __init__(self, config, kind=Kind.SOFT, modes=Modes(0)):
        super().__init__()
        self.config, self.kind, self.modes = config, kind, modes
        self.linear = nn.Linear(config.width, config.width * config.times)

    def forward(self, x):
        x = self.linear(x) * self.config.times
        x = x.abs() if Modes.ABS in self.modes else x
        x = -x if Modes.NEGATE in self.modes else x
        return x.clamp(0, 1) if self.kind is Kind.HARD else x.sigmoid()
"""
X = torch.randn(5, 4)


@pytest.fixture(scope="module")
def user(tmp_path_factory: pytest.TempPathFactory) -> ModuleType:
    """FILE as a module that the user has imported."""
    folder = tmp_path_factory.mktemp("user")
    (folder / "user_parts.py").write_text(FILE)
    sys.path.insert(0, str(folder))
    try:
        import user_parts  # type: ignore[import-not-found]  # noqa: PLC0415 - just written
    finally:
        sys.path.remove(str(folder))
    found: ModuleType = user_parts
    return found


def model(task: Task) -> nn.Module:
    """The written reference's module."""
    scratch = ModuleType("written_down")
    exec(compile(task.reference, "<written>", "exec", dont_inherit=True), scratch.__dict__)
    made: nn.Module = scratch.Model()
    return made.train(task.contract.training)


MAKERS: list[tuple[str, Callable[[ModuleType], nn.Module]]] = [
    ("loop", lambda user: user.Loop(4, [6, 3], 2)),
    ("stack", lambda user: user.Stack(4, 3, ("a", "b"))),
    ("a user's Model, of parts of parts", lambda user: user.Model(4, [1, 2])),
    ("inside of torch's", lambda user: nn.Sequential(user.Loop(4, [5], 4), user.Stack(4, 1))),
]


@pytest.mark.parametrize("make", [make for _, make in MAKERS], ids=[name for name, _ in MAKERS])
def test_modules_are_put_together_where_their_arguments_cannot_be_read(
    user: ModuleType, make: Callable[[ModuleType], nn.Module], tmp_path: Path
) -> None:
    """Parts, tensors with whether they learn, plain attributes and methods, in the order of the state_dict."""
    module = make(user)
    built = model(capture(module, (X,), tmp_path, None))
    fresh = torch.randn(7, 4)
    assert torch.equal(module(fresh), built(fresh))
    assert list(module.state_dict()) == list(built.state_dict())
    assert all(torch.equal(value, built.state_dict()[name]) for name, value in module.state_dict().items())
    assert [p.requires_grad for p in module.parameters()] == [p.requires_grad for p in built.parameters()]


def _tied(module: nn.Module) -> None:
    module.heads["b"].weight = module.heads["a"].weight  # type: ignore[index]


def _hidden(module: nn.Module) -> None:
    module.register_buffer("table", torch.ones(4), persistent=False)


def test_what_is_more_than_its_parts_is_refused_with_the_reason(user: ModuleType, tmp_path: Path) -> None:
    """A copy without it would be another program; the constructor's arguments would make it again."""
    module = user.Stack(4, 2, ("a", "b"))
    module.more = [nn.Linear(4, 4)]
    with pytest.raises(TaskError, match=r"(?s)of Stack cannot be read off.*more\[0\] is a Linear.*init_args"):
        capture(module, (X,), tmp_path, None)


@pytest.mark.parametrize("change", [_tied, _hidden])
def test_ties_and_hidden_buffers_are_put_together_too(
    user: ModuleType, change: Callable[[nn.Module], None], tmp_path: Path
) -> None:
    """As they are in the original: one Parameter under two names, a buffer that the state_dict does not have."""
    module = user.Stack(4, 2, ("a", "b"))
    change(module)
    built = model(capture(module, (X,), tmp_path, None))
    assert torch.equal(module(X), built(X))
    assert list(module.state_dict()) == list(built.state_dict())
    assert [name for name, _ in module.named_parameters()] == [name for name, _ in built.named_parameters()]
    hidden = {name: value for name, value in built.named_buffers() if name not in built.state_dict()}
    assert all(torch.equal(value, module.get_buffer(name)) for name, value in hidden.items())
    assert (change is _hidden) == (hidden != {})


@pytest.mark.parametrize("name", ["Slotted", "Written", "Named", "Older", "namespace"])
def test_configurations_are_made_as_what_they_are(
    user: ModuleType, name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """With slots, with named places, loose; beside a member of an enumeration and a union of flags."""
    config = SimpleNamespace(width=4, times=3, kinds={user.Kind.SOFT: user.Named(1)})
    config = config if name == "namespace" else getattr(user, name)(4, 3)
    module = user.Configured(config, user.Kind.HARD, user.Modes.ABS | user.Modes.NEGATE)
    capsys.readouterr()
    for given in (None, (config, user.Kind.HARD, user.Modes.ABS | user.Modes.NEGATE)):
        built = model(capture(module, (X,), tmp_path, given))
        assert torch.equal(module(X), built(X))
        assert 12 == built(X).shape[1]
    assert "" == capsys.readouterr().out
