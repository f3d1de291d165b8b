# SPDX-License-Identifier: Apache-2.0
"""capture: what lies around an object and its file does not say is refused: classes, globals, settings."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from types import ModuleType

import pytest
import torch
from lost_bench import X, imported, model
from torch import nn

from kernelwright.capture import capture
from kernelwright.errors import TaskError


@pytest.fixture
def user(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    """FILE as a module that the user has imported, and SETTINGS beside it; fresh for each test."""
    with imported(tmp_path, monkeypatch) as module:
        yield module


def _of_class(user: ModuleType) -> None:
    user.Limited.limit_of_all = 0.5


def _method(user: ModuleType) -> None:
    user.Limited.train = lambda self, mode=True: self


def test_what_was_changed_in_a_class_is_refused(
    user: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A value, a method; a method of torch's. What calls change in their class is theirs."""
    for change, words in ((_of_class, r"limit_of_all is 0.5 and would be 100.0"), (_method, "Limited.train is not")):
        fresh = importlib.reload(user)
        change(fresh)
        with pytest.raises(TaskError, match=f"(?s)Limited holds something.*{words}.*write it in the file"):
            capture(fresh.Limited(), (X * 1e-3,), tmp_path, None)
    monkeypatch.setattr(nn.ReLU, "forward", user.plain)
    with pytest.raises(TaskError, match=r"(?s)installed package.*ReLU.forward is user_lost.plain"):
        capture(nn.Sequential(nn.ReLU()), (X,), tmp_path, None)


CHANGES: list[tuple[str, str, str]] = [
    ("limited", "user.LIMIT = 0.5", "LIMIT is 0.5 and would be 100.0"),
    ("by_table", "user.TABLE['limit'] = 0.5", "TABLE is .'limit': 0.5."),
    ("by_default", "user.by_default.__defaults__ = (0.5,)", "by_default has as its defaults"),
    ("by_keyword", "user.by_keyword.__kwdefaults__['limit'] = 0.5", "by_keyword has as its keyword defaults"),
    ("by_attribute", "user.by_attribute.limit = 0.5", "by_attribute has as its attributes"),
    ("by_closure", "user.by_closure.change(0.5)", "limit, which by_closure closes over, is 0.5 and would be 100.0"),
    ("by_setting", "user.lost_settings.LIMIT = 0.5", "lost_settings.LIMIT is 0.5 and would be 100.0"),
    ("by_inner", "user.lost_settings.INNER = 0.5", "lost_settings.INNER is 0.5 and would be 100.0"),
    ("by_ring", "user.RING.append(0.5)", "RING is a deque"),
    ("by_bytes", "user.LETTERS[0] = 1", "LETTERS is a bytearray"),
    ("plain", "user.plain.__code__ = user.limited.__code__", "plain is not the function"),
]


@pytest.mark.parametrize(("name", "change", "words"), CHANGES, ids=[row[0] for row in CHANGES])
def test_what_a_function_reads_and_its_file_does_not_say_is_refused(
    user: ModuleType, name: str, change: str, words: str, tmp_path: Path
) -> None:
    """Globals, defaults, attributes, closures, constants of modules beside it: inputs below 0.5 do not show them."""
    x = X.clamp(max=0.0)
    before = model(capture(getattr(user, name), (x,), tmp_path, None))
    assert torch.equal(before(x), getattr(user, name)(x))
    exec(change, {"user": user})
    with pytest.raises(TaskError, match=f"(?s){name} holds something.*{words}.*an argument of the function"):
        capture(getattr(user, name), (x,), tmp_path, None)


def test_what_calls_change_themselves_is_no_loss(user: ModuleType, tmp_path: Path) -> None:
    """A cache and a counter of the file; what of a module beside it nobody reads."""
    user.remembered(X)
    user.lost_settings.UNREAD = 2
    for name in ("remembered", "by_setting"):
        assert name == capture(getattr(user, name), (X,), tmp_path, None).name


@pytest.mark.parametrize(
    ("setting", "words"),
    [(lambda: torch.autocast("cpu", torch.bfloat16), "autocast is on"), (lambda: torch.device("meta"), "device.. is")],
)
def test_settings_of_this_process_are_refused(
    user: ModuleType, setting: Callable[[], AbstractContextManager[object]], words: str, tmp_path: Path
) -> None:
    """Autocast, a default device; the default type and hooks of all modules below."""
    with setting(), pytest.raises(TaskError, match=f"(?s)set here for all of torch.*{words}"):
        capture(user.plain, (X,), tmp_path, None)


def test_the_default_type_and_hooks_of_all_modules_are_refused(user: ModuleType, tmp_path: Path) -> None:
    """Judges would have float32 and no hook."""
    torch.set_default_dtype(torch.float64)
    try:
        with pytest.raises(TaskError, match="(?s)set here for all of torch.*float64"):
            capture(user.plain, (X,), tmp_path, None)
    finally:
        torch.set_default_dtype(torch.float32)
    handle = nn.modules.module.register_module_forward_hook(lambda *given: None)
    try:
        with pytest.raises(TaskError, match="(?s)set here for all of torch.*global_forward_hooks"):
            capture(user.Limited(), (X,), tmp_path, None)
    finally:
        handle.remove()


def test_two_files_with_one_name_for_two_things_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Their sources become one, in which one of the two would win."""
    text = (
        "import torch\nLIMIT = {limit}\nclass {name}(torch.nn.Module):\n"
        "    def forward(self, x): return x.clamp(max=LIMIT)\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    for name, limit in (("Here", 100.0), ("There", 200.0)):
        (tmp_path / f"lost_{name.lower()}.py").write_text(text.format(name=name, limit=limit))
    here, there = importlib.import_module("lost_here"), importlib.import_module("lost_there")
    with pytest.raises(TaskError, match=r"(?s)LIMIT is 100.0 and would be 200.0|LIMIT is 200.0 and would be 100.0"):
        capture(nn.Sequential(here.Here(), there.There()), (X,), tmp_path, None)


def test_an_import_of_several_things_keeps_what_is_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """``import torch, kernelwright``: the exported file runs where only the first is installed."""
    (tmp_path / "lost_imports.py").write_text("import torch, kernelwright, math as m\ndef f(x): return x * m.pi\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    task = capture(importlib.import_module("lost_imports").f, (X,), tmp_path, None)
    assert "import math as m" in task.reference and "kernelwright" not in task.reference
    assert torch.equal(X * torch.pi, model(task)(X))
