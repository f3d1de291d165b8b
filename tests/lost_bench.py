# SPDX-License-Identifier: Apache-2.0
"""A file of a user's whose modules and functions change after they were made, and what compares its copies."""

from __future__ import annotations

import contextlib
import importlib
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest
import torch
from torch import nn

from kernelwright.task import Task

FILE = """
import collections

import torch
from torch import nn

import lost_settings
from lost_settings import inner_limit

LIMIT = 100.0
TABLE = {"limit": 100.0}
RING = collections.deque([100.0])
LETTERS = bytearray([100])
CACHE = {}
CALLS = 0


def limited(x): return x.clamp(max=LIMIT)
def by_table(x): return x.clamp(max=TABLE["limit"])
def by_default(x, limit=100.0): return x.clamp(max=limit)
def by_keyword(x, *, limit=100.0): return x.clamp(max=limit)
def by_attribute(x): return x.clamp(max=by_attribute.limit)
by_attribute.limit = 100.0
def by_setting(x): return x.clamp(max=lost_settings.LIMIT)
def by_inner(x): return inner_limit(x)
def by_ring(x): return x.clamp(max=min(RING))
def by_bytes(x): return x.clamp(max=float(LETTERS[0]))
def plain(x): return x + 0.0


def remembered(x):
    global CALLS
    CALLS += 1
    if x.shape not in CACHE:
        CACHE[x.shape] = torch.ones(x.shape)
    return x * CACHE[x.shape]


def closed(limit):
    def inner(x):
        return x.clamp(max=limit)
    def change(value):
        nonlocal limit
        limit = value
    inner.change = change
    return inner


by_closure = closed(100.0)


class Tied(nn.Module):
    def __init__(self, words=7, width=4):
        super().__init__()
        self.words, self.width = words, width
        self.embedding = nn.Embedding(words, width)
        self.lm_head = nn.Linear(width, words, bias=False)

    def forward(self, x):
        return self.lm_head(self.embedding(x))


class Rotated(nn.Module):
    def __init__(self, width=4):
        super().__init__()
        self.width = width
        self.linear = nn.Linear(width, width)
        self.register_buffer("table", torch.arange(float(width)), persistent=False)

    def forward(self, x):
        return self.linear(x) + self.table


class Limited(nn.Module):
    limit_of_all = 100.0

    def __init__(self, width=4):
        super().__init__()
        self.width = width
        self.n = width * 2
        self.weight = nn.Parameter(torch.randn(width))
        self.limit = 100.0
        self.steps = 0
        self.kept = {}
        self.norm = nn.BatchNorm1d(width)
        self.drop = nn.Dropout(0.0)
        self.act = nn.ReLU()

    def forward(self, x):
        self.steps += 1
        self.kept["last"] = x
        x = self.act(self.drop(x * self.weight))
        return x.clamp(max=min(self.limit, self.limit_of_all))

    def train(self, mode=True):
        return super().train(mode)


class Shifted(Limited):
    def forward(self, x):
        return super().forward(x) if x.max() < 90 else x + self.shift


class Normed(nn.Module):
    def __init__(self, width=4):
        super().__init__()
        self.width = width
        self.linear = nn.utils.parametrizations.weight_norm(nn.Linear(width, width))
        self.old = nn.utils.weight_norm(nn.Linear(width, width))
        self.old.register_forward_hook(self.halved)

    def halved(self, part, given, result):
        return result / 2

    def forward(self, x):
        return self.old(self.linear(x))
"""
SETTINGS = "LIMIT = 100.0\nINNER = 100.0\nUNREAD = 1\ndef inner_limit(x): return x.clamp(max=INNER)\n"


@contextlib.contextmanager
def imported(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    """FILE as a module that was imported from ``folder``, with SETTINGS beside it; forgotten afterwards."""
    (folder / "user_lost.py").write_text(FILE)
    (folder / "lost_settings.py").write_text(SETTINGS)
    monkeypatch.syspath_prepend(str(folder))
    yield importlib.import_module("user_lost")
    for name in ("user_lost", "lost_settings"):
        sys.modules.pop(name, None)


X = torch.randn(6, 4)


def model(task: Task) -> nn.Module:
    """The written reference's module, in the mode of its contract."""
    scratch = ModuleType("written_down")
    exec(compile(task.reference, "<written>", "exec", dont_inherit=True), scratch.__dict__)
    made: nn.Module = scratch.Model()
    return made.train(task.contract.training)


def alike(module: nn.Module, built: nn.Module, x: torch.Tensor) -> None:
    """Equal answers and gradients, names, types, and whether each weight learns."""
    assert torch.equal(module(x), built(x))
    assert list(module.state_dict()) == list(built.state_dict())
    for kind in ("parameters", "buffers"):
        both = [list(getattr(each, f"named_{kind}")()) for each in (module, built)]
        assert [name for name, _ in both[0]] == [name for name, _ in both[1]]
        pairs = [(one, two) for (_, one), (_, two) in zip(*both, strict=True)]
        assert all(torch.equal(one, two) and one.dtype is two.dtype for one, two in pairs)
        assert all(one.requires_grad is two.requires_grad for one, two in pairs)
