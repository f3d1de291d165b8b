# SPDX-License-Identifier: Apache-2.0
"""capture: what a constructor does not make is written down or refused, though the example inputs may not show it."""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType

import pytest
import torch
from lost_bench import FILE, X, alike, imported, model
from torch import nn

import kernelwright
from kernelwright.capture import capture
from kernelwright.errors import TaskError
from kernelwright.proposers import Structure
from kernelwright.testing import FakeHost, FakeWorker
from kernelwright.tuning import Space

WORDS = torch.tensor([1, 2, 3])


@pytest.fixture
def user(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    """FILE as a module that the user has imported, and SETTINGS beside it; fresh for each test."""
    with imported(tmp_path, monkeypatch) as module:
        yield module


@pytest.mark.parametrize("inside", [False, True])
def test_a_tied_weight_moves_both_uses(user: ModuleType, inside: bool, tmp_path: Path) -> None:
    """One Parameter under two names stays one: after a step of training too, and after load_state_dict."""
    tied = user.Tied()
    tied.lm_head.weight = tied.embedding.weight
    module = nn.Sequential(tied, nn.Identity()) if inside else tied
    built = model(capture(module, (WORDS,), tmp_path, None))
    alike(module, built, WORDS)
    own = built.get_submodule("0") if inside else built
    assert own.lm_head.weight is own.embedding.weight
    for each in (module, built):
        step = torch.optim.SGD(each.parameters(), 0.1)
        each(WORDS).square().sum().backward()
        step.step()
    alike(module, built, WORDS)
    state = {name: torch.ones(7, 4) for name in module.state_dict()}
    built.load_state_dict(state)
    assert [4.0] == built(WORDS).unique().tolist()


def test_a_weight_tied_no_more_moves_one_use(user: ModuleType, tmp_path: Path) -> None:
    """The constructor ties; the user has given one of the two a weight of its own."""
    source = Path(user.__file__ or "")
    tied = FILE.replace("bias=False)\n", "bias=False)\n        self.lm_head.weight = self.embedding.weight\n")
    source.write_text(tied)
    module = importlib.reload(user).Tied()
    assert module.lm_head.weight is module.embedding.weight
    module.lm_head.weight = nn.Parameter(module.lm_head.weight.detach().clone())
    built = model(capture(module, (WORDS,), tmp_path, None))
    assert built.lm_head.weight is not built.embedding.weight
    alike(module, built, WORDS)


def test_a_part_under_two_names_is_one(user: ModuleType, tmp_path: Path) -> None:
    """Of torch's containers and of the user's classes; an activation without state need not be."""
    linear = nn.Linear(4, 4)
    module = nn.Sequential(linear, nn.ReLU(), linear)
    built = model(capture(module, (X,), tmp_path, None))
    alike(module, built, X)
    assert built.get_submodule("0") is built.get_submodule("2")


def test_memory_shared_without_a_tie_is_refused(user: ModuleType, tmp_path: Path) -> None:
    """Two Parameters of one memory move together, and a state_dict does not say so."""
    module = user.Tied()
    module.lm_head.weight.data = module.embedding.weight.data
    with pytest.raises(TaskError, match=r"(?s)share memory.*embedding.weight and lm_head.weight.*assigning"):
        capture(module, (WORDS,), tmp_path, None)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.complex64, torch.bool, torch.int64])
def test_hidden_buffers_keep_their_values(user: ModuleType, dtype: torch.dtype, tmp_path: Path) -> None:
    """Changed after construction, in any type, bit for bit; they stay out of the state_dict."""
    module = user.Rotated()
    module.table = (torch.randn(4) * 3).to(dtype)
    built = model(capture(module, (X,), tmp_path, None))
    alike(module, built, X)
    assert "table" not in built.state_dict()
    assert dtype is built.table.dtype


def test_hidden_buffers_that_the_constructor_makes_are_not_written_out(user: ModuleType, tmp_path: Path) -> None:
    """Of a converted module neither: the type is. What is too large for the source is refused."""
    for dtype in (torch.float32, torch.bfloat16):
        module = user.Rotated().to(dtype)
        task = capture(module, (X.to(dtype),), tmp_path, None)
        assert "fromhex" not in task.reference
        alike(module, model(task), X.to(dtype))
    module = user.Rotated()
    module.register_buffer("wide", torch.randn(1 << 17), persistent=False)
    with pytest.raises(TaskError, match=r"(?s)Too much.*524288 bytes.*at most 262144.*persistent"):
        capture(module, (X,), tmp_path, None)


def test_a_buffer_added_later_is_hidden_too(user: ModuleType, tmp_path: Path) -> None:
    """The constructor knows nothing of it."""
    module = user.Rotated()
    module.linear.register_buffer("more", torch.randn(4), persistent=False)
    alike(module, model(capture(module, (X,), tmp_path, None)), X)


HOOKS: list[tuple[str, Callable[[nn.Module], object], str]] = [
    ("forward", lambda m: m.act.register_forward_hook(lambda p, given, out: out), "act .ReLU. has forward_hooks"),
    ("pre", lambda m: m.register_forward_pre_hook(lambda p, given: None), "the module .Limited. has forward_pre_hooks"),
    ("backward", lambda m: m.register_full_backward_hook(lambda p, a, b: None), "has backward_hooks"),
    ("tensor", lambda m: m.weight.register_hook(lambda g: g * 2), "weight has hooks of its gradient"),
    ("state", lambda m: m.register_state_dict_post_hook(lambda *a: None), "has state_dict_hooks"),
    ("parametrized", lambda m: nn.utils.parametrize.register_parametrization(m, "weight", nn.Identity()), "parametriz"),
]


@pytest.mark.parametrize(("change", "words"), [row[1:] for row in HOOKS], ids=[row[0] for row in HOOKS])
def test_hooks_are_refused_though_they_change_no_answer(
    user: ModuleType, change: Callable[[nn.Module], object], words: str, tmp_path: Path
) -> None:
    """What, where, and what to do: whether the module is read off, given its arguments, or put together."""
    module = user.Limited()
    change(module)
    for given in (None, (4,)):
        with pytest.raises(TaskError, match=rf"(?s)hook or parametrization.*{words}.*constructor of a class") as caught:
            capture(module, (X,), tmp_path, given)
        assert 10 == caught.value.exit_code


@pytest.mark.parametrize("norm", ["weight_norm", "spectral_norm", "parametrizations.weight_norm"])
def test_normed_weights_are_refused_outside_and_kept_inside_of_a_constructor(
    user: ModuleType, norm: str, tmp_path: Path
) -> None:
    """weight_norm, old and new, is a hook or a parametrization."""
    make: Callable[[nn.Module], nn.Module] = nn.utils.parametrizations.weight_norm
    make = make if "." in norm else getattr(nn.utils, norm)
    for module in (make(nn.Linear(4, 4)), nn.Sequential(make(nn.Linear(4, 4)))):
        with pytest.raises(TaskError, match="hook or parametrization"):
            capture(module, (X,), tmp_path, None)
    inside = user.Normed()
    alike(inside, model(capture(inside, (X,), tmp_path, None)), X)


def test_frozen_weights_and_types_are_kept(user: ModuleType, tmp_path: Path) -> None:
    """requires_grad, either way, and the type of one part."""
    module = nn.Sequential(user.Limited(), nn.Linear(4, 4))
    module[0].weight.requires_grad_(False)
    module[1].requires_grad_(False).double()
    module[0].norm.half()
    built = model(capture(nn.Sequential(module[0]), (X,), tmp_path, None))
    alike(nn.Sequential(module[0]), built, X)
    only = nn.Sequential(module[1])
    alike(only, model(capture(only, (X.double(),), tmp_path, None)), X.double())


def test_weights_lie_as_they_lay_and_lazy_ones_are_asked_for(tmp_path: Path) -> None:
    """Convolutions of channels last round otherwise; a lazy layer has no weights before its first call."""
    module = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4)).to(memory_format=torch.channels_last).eval()  # type: ignore[call-overload]
    x = torch.randn(1, 3, 8, 8)
    built = model(capture(module, (x,), tmp_path, None))
    alike(module, built, x)
    assert module[0].weight.stride() == built.get_parameter("0.weight").stride()
    lazy = nn.Sequential(nn.LazyLinear(4))
    with pytest.raises(TaskError, match=r"(?s)not made yet.*0.weight, 0.bias.*call it once"):
        capture(lazy, (X,), tmp_path, None)
    lazy(X)
    alike(lazy, model(capture(lazy, (X,), tmp_path, None)), X)


ATTRIBUTES: list[tuple[str, Callable[[nn.Module], object]]] = [
    ("number", lambda m: setattr(m, "limit", 0.5)),
    ("of a part", lambda m: setattr(m.drop, "p", 0.5)),
    ("part", lambda m: setattr(m, "act", nn.ReLU6())),
    ("added", lambda m: setattr(m, "limit_of_all", 0.5)),
    ("state of calls", lambda m: m(X)),
]


@pytest.mark.parametrize("change", [row[1] for row in ATTRIBUTES], ids=[row[0] for row in ATTRIBUTES])
def test_attributes_changed_after_construction_are_kept(
    user: ModuleType, change: Callable[[nn.Module], object], tmp_path: Path
) -> None:
    """The example inputs are too small to show any of it."""
    small, large = X * 1e-3, X.abs() * 1e3
    module = user.Limited().eval()
    module.weight.data.abs_()
    change(module)
    built = model(capture(module, (small,), tmp_path, None))
    assert torch.equal(module(large), built(large))
    assert module.steps - 1 <= built.steps + 1 and module.drop.p == built.drop.p


def test_a_tensor_kept_as_an_attribute_comes_along_and_functions_do_not(user: ModuleType, tmp_path: Path) -> None:
    """Both are read only where the inputs are large."""
    module = user.Shifted()
    module.shift = torch.randn(4)
    built = model(capture(module, (X,), tmp_path, None))
    assert torch.equal(module(X * 100 + 900), built(X * 100 + 900))
    module.shift = lambda x: x
    with pytest.raises(TaskError, match="(?s)Shifted holds something.*shift is a "):
        capture(module, (X,), tmp_path, None)
    patched = user.Limited()
    patched.forward = lambda x: user.Limited.forward(patched, x)
    with pytest.raises(TaskError, match="(?s)Limited holds something.*forward is a function"):
        capture(patched, (X,), tmp_path, None)


def test_parts_in_another_mode_are_refused_where_modes_matter(user: ModuleType, tmp_path: Path) -> None:
    """A batch norm frozen inside of a module in train(); an activation's mode is nothing."""
    module = nn.Sequential(user.Limited())
    module[0].act.eval()
    assert "Sequential" == capture(module, (X,), tmp_path, None).name
    module[0].norm.eval()
    with pytest.raises(TaskError, match=r"(?s)another mode.*0.norm .BatchNorm1d. is in eval.*in train"):
        capture(module, (X,), tmp_path, None)


def test_the_exported_file_has_ties_hidden_buffers_and_changed_attributes(
    user: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """optimized.py in the hands of somebody who has neither the file nor this process."""
    monkeypatch.setenv("KERNELWRIGHT_HOME", str(tmp_path / "home"))
    one = Structure(name="one", note="", language="torch", space=Space(parameters=(), constraints=()), order=1.0)
    module = nn.Sequential(user.Tied(), user.Rotated(7), user.Limited(7))
    module[0].lm_head.weight = module[0].embedding.weight
    module[1].table = torch.randn(7)
    module[2].limit = 0.25
    module.eval()
    doubles = kernelwright.Services("cpu", worker=FakeWorker(lambda c: 20.0), host=FakeHost({"templates": [one]}))
    result = kernelwright.optimize(module, (WORDS,), services=doubles, budget="5s", out=tmp_path / "run")
    assert result.optimized is not None
    spec = importlib.util.spec_from_file_location("exported_lost", result.optimized)
    assert spec is not None and spec.loader is not None
    exported = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(exported)
    built = exported._Reference().eval()
    alike(module, built, WORDS)
    assert built.get_submodule("0").lm_head.weight is built.get_submodule("0").embedding.weight
