# SPDX-License-Identifier: Apache-2.0
"""capture: configurations of ordinary classes, and arguments that reach their parts through functions."""

from __future__ import annotations

import sys
import threading
from pathlib import Path
from types import ModuleType

import pytest
import torch

from kernelwright.capture import capture
from kernelwright.errors import TaskError

FILE = """
import dataclasses
import fractions

import torch
from torch import nn


class Inner:
    scale = 2

    def __init__(self, count):
        self.count = count


class Config:
    def __init__(self, width, count=3):
        print("made again")  # a constructor may do anything: it is not run
        self.width = width
        self.inner = Inner(count)
        self.norm = Centred

    @property
    def wide(self):
        return self.width * self.inner.count * self.inner.scale


@dataclasses.dataclass
class Settings:
    width: object


class Centred(nn.Module):
    def forward(self, x):
        return x - x.mean()


class Configured(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.config = config
        self.norm = config.norm()
        self.out = nn.Linear(config.width, config.wide)

    def forward(self, x):
        return self.out(self.norm(x)) * self.config.inner.scale


class Forgetful(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.out = nn.Linear(config.width, config.wide)

    def forward(self, x):
        return self.out(x)


def mlp(inputs, outputs, act=nn.ReLU):
    hidden = nn.Linear(inputs, outputs)
    net = nn.Sequential(hidden, act())
    return net


def block(size):
    return nn.Sequential(nn.LayerNorm(size), nn.Linear(size, size))


class Helped(nn.Module):
    def __init__(self, width, inner, depth):
        super().__init__()
        self.body = mlp(width, outputs=inner)
        self.rest = nn.Sequential(*[block(inner) for _ in range(depth)])

    def forward(self, x):
        return self.rest(self.body(x))


def counted(x, kind=fractions.Fraction):
    return x * (float(kind(1, 2)) if callable(kind) else kind)


def scaled(x, config):
    return x * config.width


class Slotted:
    __slots__ = ("width",)
"""
X = torch.randn(5, 4)


@pytest.fixture(scope="module")
def user(tmp_path_factory: pytest.TempPathFactory) -> ModuleType:
    """FILE as a module that the user has imported."""
    folder = tmp_path_factory.mktemp("user")
    (folder / "user_configured.py").write_text(FILE)
    sys.path.insert(0, str(folder))
    try:
        import user_configured  # type: ignore[import-not-found]  # noqa: PLC0415 - just written
    finally:
        sys.path.remove(str(folder))
    found: ModuleType = user_configured
    return found


def rebuilt(target: torch.nn.Module, init_args: tuple[object, ...] | None, folder: Path) -> torch.nn.Module:
    """The module of the written reference, made in a module of its own."""
    task = capture(target, (X,), folder, init_args)
    scratch = ModuleType("written_down")
    exec(compile(task.reference, "<written>", "exec", dont_inherit=True), scratch.__dict__)
    made: torch.nn.Module = scratch.Model()
    return made.train(task.contract.training)


@pytest.mark.parametrize("name", ["Configured", "Forgetful"])
def test_an_ordinary_class_is_rebuilt_from_its_source_and_its_attributes(
    user: ModuleType, name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """With another inside, a class among its values and a property; kept by the module, or given."""
    config = user.Config(4, count=2)
    config.inner.count = 5  # as it is, not as it was made
    module = getattr(user, name)(config)
    capsys.readouterr()
    made = rebuilt(module, None if name == "Configured" else (config,), tmp_path)
    assert torch.equal(module(X), made(X))
    assert 40 == made(X).shape[1]
    assert "" == capsys.readouterr().out


def test_arguments_are_followed_through_functions_of_the_file(user: ModuleType, tmp_path: Path) -> None:
    """By position and by name, through a local name and a comprehension."""
    module = user.Helped(4, 6, 3)
    assert torch.equal(module(X), rebuilt(module, None, tmp_path)(X))


def test_a_default_that_is_a_class_stays_where_it_is_written(user: ModuleType, tmp_path: Path) -> None:
    """Beside the function that has it; its name alone would say nothing in another file."""
    assert "def forward(self, x, kind):" in capture(user.counted, (X, 3), tmp_path, None).reference


def test_what_a_configuration_holds_beside_plain_values_is_named(user: ModuleType, tmp_path: Path) -> None:
    """A lock, itself: refused in words with the place."""
    for name, value, words in (
        ("lock", threading.Lock(), r"config\.inner\.lock is a lock"),
        ("back", None, r"config\.inner\.back holds itself"),
    ):
        config = user.Config(4)
        setattr(config.inner, name, config.inner if name == "back" else value)
        with pytest.raises(TaskError, match=f"(?s)config of Configured cannot be read.*{words}.*init_args"):
            capture(user.Configured(config), (X,), tmp_path, None)


def test_a_configuration_that_nobody_kept_is_asked_for(user: ModuleType, tmp_path: Path) -> None:
    """And one that is given to the call itself is no input."""
    module = user.Forgetful(user.Config(4))
    module.after = user.mlp
    with pytest.raises(TaskError, match="(?s)config of Forgetful.*no attribute.*parts: after is a function.*init_args"):
        capture(module, (X,), tmp_path, None)
    for odd in (user.Config(4), user.Config, user.Config(X), user.Settings(4), user.Settings(X)):
        with pytest.raises(
            TaskError, match="(?s)input cannot be written down.*(Config|Settings): a class of yours.*pass the values"
        ):
            capture(user.scaled, (X, odd), tmp_path, None)
