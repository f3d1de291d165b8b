# SPDX-License-Identifier: Apache-2.0
"""capture: what is written down is compared with the live object, which is left as it was; lost weights are said."""

from __future__ import annotations

import importlib
import importlib.util
import random
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest
import torch

import kernelwright
from kernelwright.capture import capture
from kernelwright.errors import TaskError
from kernelwright.proposers import Structure
from kernelwright.task import Task
from kernelwright.testing import FakeHost, FakeWorker
from kernelwright.tuning import Space

FILE = """
import random

import torch
from torch import nn
from torch import sum

GROWN = [1.0]
GROWN.append(2.0)
DRAWN = torch.randn(4)


def grown(x): return x * GROWN[-1]
def drawn(x): return x * DRAWN
def summed(x): return x - sum(x)
def noisy(x): return x * torch.rand_like(x) * random.random()
def raising(x): raise KeyError("nothing of that name")
def in_place(x): return x.add_(1)


COUNT = [0]


def wobble(x):
    COUNT[0] += 1
    return x + 2.0**-23 * COUNT[0]


class Norm(nn.Module):
    def __init__(self):
        super().__init__()
        self.bn = nn.BatchNorm1d(4)

    def forward(self, x):
        return self.bn(x)


class InPlace(nn.Module):
    def forward(self, x):
        return x.add_(1)


class Fussy(nn.Module):
    def __init__(self):
        super().__init__()
        raise KeyError("never built again")

    def forward(self, x):
        return x
"""


def imported(path: Path, text: str) -> ModuleType:
    """A file the user has imported."""
    path.write_text(text)
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = module
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def user(tmp_path_factory: pytest.TempPathFactory) -> ModuleType:
    """FILE, imported."""
    return imported(tmp_path_factory.mktemp("user") / "user_honest.py", FILE)


def rebuilt(task: Task) -> dict[str, Callable[..., object]]:
    """The names that the written reference defines."""
    scope: dict[str, Callable[..., object]] = {"__name__": "fresh"}  # type: ignore[dict-item]  # a module's own name
    exec(task.reference, scope)
    return scope


@pytest.mark.parametrize("name", ["grown", "drawn"])
def test_a_function_whose_source_is_not_all_of_it_is_refused(user: ModuleType, tmp_path: Path, name: str) -> None:
    """A list that was appended to, a tensor that was drawn: what was got, what is expected, what to do."""
    with pytest.raises(TaskError, match=r"(?s)something else.*12 of 12 elements differ.*bit for bit.*an argument"):
        capture(getattr(user, name), (torch.rand(3, 4) + 1,), tmp_path, None)


def test_a_name_that_hides_a_builtin_comes_along(user: ModuleType, tmp_path: Path) -> None:
    """torch's sum, not Python's."""
    x = torch.randn(3, 4)
    copy = rebuilt(capture(user.summed, (x,), tmp_path, None))["Model"]()
    assert torch.equal(user.summed(x), copy(x))  # type: ignore[operator]


def test_random_functions_are_compared_from_equal_seeds_that_the_caller_does_not_lose(
    user: ModuleType, tmp_path: Path
) -> None:
    """Accepted, and the generators are afterwards where they were."""
    torch.manual_seed(3)
    random.seed(3)
    before = torch.get_rng_state(), random.getstate()
    assert "noisy" == capture(user.noisy, (torch.ones(3, 4),), tmp_path, None).name
    capture(user.Norm(), (torch.ones(3, 4),), tmp_path, None)
    assert torch.equal(before[0], torch.get_rng_state())
    assert before[1] == random.getstate()


def test_a_function_that_differs_from_itself_in_rounding_may(user: ModuleType, tmp_path: Path) -> None:
    """As sums by atomic additions do."""
    before = user.wobble(torch.ones(3))
    assert not torch.equal(before, user.wobble(torch.ones(3)))
    assert "wobble" == capture(user.wobble, (torch.ones(3),), tmp_path, None).name


def test_what_raises_is_a_task_error_of_any_kind(user: ModuleType, tmp_path: Path) -> None:
    """KeyError too: in the call, and where the copy is made."""
    with pytest.raises(TaskError, match=r"(?s)fails on the example inputs.*KeyError: 'nothing of that name'"):
        capture(user.raising, (torch.ones(3),), tmp_path, None)
    fussy = user.Fussy.__new__(user.Fussy)
    torch.nn.Module.__init__(fussy)
    fussy.after = user.raising  # else its constructor need not be run
    with pytest.raises(TaskError, match=r"(?s)cannot be rebuilt.*KeyError: 'never built again'"):
        capture(fussy, (torch.ones(3),), tmp_path, None)


def test_the_callers_module_and_inputs_are_left_as_they_were(user: ModuleType, tmp_path: Path) -> None:
    """Running statistics of train(), inputs that are written to."""
    module, x = user.Norm(), torch.randn(8, 4) + 5
    before = {name: tensor.clone() for name, tensor in module.state_dict().items()}
    capture(module, (x,), tmp_path, None)
    assert all(torch.equal(tensor, before[name]) for name, tensor in module.state_dict().items())
    kept = x.clone()
    for target in (user.InPlace(), user.in_place):
        capture(target, (x,), tmp_path, None)
    assert torch.equal(kept, x)


def test_a_module_whose_results_are_kept_on_it_can_be_copied(user: ModuleType, tmp_path: Path) -> None:
    """deepcopy alone refuses tensors that were calculated."""
    module = user.InPlace()
    module.last = torch.ones(3, requires_grad=True) * 2
    assert "InPlace" == capture(module, (torch.ones(3),), tmp_path, None).name


def test_a_copy_that_differs_where_the_live_one_is_nan_is_refused(tmp_path: Path) -> None:
    """nan is not zero, and infinity is not the largest number."""
    text = "import torch\nFLAG = [float('nan')]\ndef f(x): return x * FLAG[-1]\nFLAG.append({value})\n"
    for index, (value, x) in enumerate((("0.0", 1.0), ("float('inf')", 1.0))):
        module = imported(tmp_path / f"flag{index}.py", text.format(value=value))
        with pytest.raises(TaskError, match="something else"):
            capture(module.f, (torch.full((2,), x),), tmp_path, None)


def test_a_package_is_captured_with_its_relative_imports(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Written out, with the folder of the package: modules and functions, from another process too."""
    package = tmp_path / "kw_pack" / "inner"
    package.mkdir(parents=True)
    for folder in (package.parent, package):
        (folder / "__init__.py").write_text("")
    (package.parent / "base.py").write_text("def double(x):\n    return x * 2\n")
    (package / "layers.py").write_text(
        "import torch\nfrom ..base import double\nclass Layer(torch.nn.Module):\n    def forward(self, x):\n"
        "        return double(x)\n"
    )
    (package / "net.py").write_text(
        "import torch\nfrom .layers import (\n    Layer,\n)  # a part\nclass Net(torch.nn.Module):\n"
        "    def __init__(self):\n        super().__init__()\n        self.layer = Layer()\n"
        "    def forward(self, x):\n        return self.layer(x)\n"
        "def call(x):\n    from . import layers; return layers.Layer()(x)\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    net = importlib.import_module("kw_pack.inner.net")
    x = torch.randn(3)
    for target in (net.Net(), net.call):
        task = capture(target, (x,), tmp_path / "state", None)
        assert (str(tmp_path),) == task.imports
        assert "from ." not in task.reference
        assert torch.equal(2 * x, rebuilt(task)["Model"]()(x))  # type: ignore[operator]


def test_form_feeds_and_byte_order_marks_are_no_lines(tmp_path: Path) -> None:
    """Python counts lines otherwise than str.splitlines."""
    text = "\ufeffimport torch\n\x0c\nA = 3\n\x0c\ndef f(x):\n    return x * A\n"
    module = imported(tmp_path / "feeds.py", text)
    copy = rebuilt(capture(module.f, (torch.ones(2),), tmp_path, None))["Model"]()
    assert [3.0, 3.0] == copy(torch.ones(2)).tolist()  # type: ignore[operator,attr-defined]


def test_a_file_that_no_longer_parses_is_refused(tmp_path: Path) -> None:
    """Edited after it was imported."""
    module = imported(tmp_path / "edited.py", "def f(x):\n    return x\n")
    (tmp_path / "edited.py").write_text("def f(x:\n    return x\n")
    with pytest.raises(TaskError, match=r"(?s)cannot be read.*import it again"):
        capture(module.f, (torch.ones(2),), tmp_path, None)


def test_weights_are_found_beside_the_file_and_their_loss_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A run copies them beside optimized.py, which then needs no cache; where they are not, it warns."""
    monkeypatch.setenv("KERNELWRIGHT_HOME", str(tmp_path / "home"))
    one = Structure(name="one", note="", language="torch", space=Space(parameters=(), constraints=()), order=1.0)
    doubles = kernelwright.Services("cpu", worker=FakeWorker(lambda c: 20.0), host=FakeHost({"templates": [one]}))
    module, x = torch.nn.Linear(4, 4), torch.randn(2, 4)
    result = kernelwright.optimize(module, (x,), services=doubles, budget="5s", out=tmp_path / "run")
    (saved,) = (tmp_path / "home" / "state").glob("*.pt")
    assert result.optimized is not None and tmp_path / "run" / saved.name in result.files
    saved.unlink()
    text = result.optimized.read_text()
    assert torch.equal(module.weight, imported(result.optimized, text)._reference.Model().weight)
    (tmp_path / "run" / saved.name).unlink()
    with pytest.warns(UserWarning, match=r"weights given at capture.*fresh"):
        imported(result.optimized, text)._reference.Model()
