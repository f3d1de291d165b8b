# SPDX-License-Identifier: Apache-2.0
"""capture: how a module was made is read off it, or taken from init_args, for the ways in which modules are written."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest
import torch
from torch import nn
from torch.utils._pytree import tree_leaves

from kernelwright.capture import capture
from kernelwright.errors import TaskError
from kernelwright.task import Contract, Task

FILE = """
import dataclasses
from dataclasses import dataclass, field
import functools

import torch
from torch import nn


@dataclass
class Heads:
    count: int = 2


@dataclasses.dataclass
class Config:
    width: int = 4
    heads: Heads = field(default_factory=Heads)
    kind: type = nn.LayerNorm
    dtype: torch.dtype = torch.float32


class Configured(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.config = config
        self.norm = config.kind(config.width)
        self.out = nn.Linear(config.width, config.width * getattr(config.heads, "count", config.heads))

    def forward(self, x):
        return self.out(self.norm(x))


class Weighted(nn.Module):
    def __init__(self, weight, smoothing=0.0):
        super().__init__()
        self.register_buffer("weight", weight)
        self.smoothing = smoothing

    def forward(self, x, target):
        return nn.functional.cross_entropy(x, target, self.weight, label_smoothing=self.smoothing)


class Wired(nn.Module):
    def __init__(self, size, inner, activation=torch.relu, norm=None):
        super().__init__()
        self.inside = inner
        self.after = (norm or nn.Identity)(size * 2 // 2)
        self.call = activation

    def forward(self, x):
        return self.call(self.after(self.inside(x)))


def twice(function):
    @functools.wraps(function)
    def doubled(*args, **kwargs):
        return 2 * function(*args, **kwargs)

    return doubled


@torch.no_grad()
def average(old, new, share: float = 0.5):
    return old * share + new * (1 - share)


@twice
def halved(x):
    return x / 2


square = lambda x: x * x + 1
"""


@pytest.fixture(scope="module")
def user(tmp_path_factory: pytest.TempPathFactory) -> ModuleType:
    """FILE as a module that the user has imported."""
    folder = tmp_path_factory.mktemp("user")
    (folder / "user_made.py").write_text(FILE)
    sys.path.insert(0, str(folder))
    try:
        import user_made  # type: ignore[import-not-found]  # noqa: PLC0415 - just written
    finally:
        sys.path.remove(str(folder))
    found: ModuleType = user_made
    return found


def model(task: Task) -> nn.Module:
    """The written reference's module, in the mode of the contract."""
    scratch = ModuleType("written_down")
    sys.modules[scratch.__name__] = scratch
    exec(compile(task.reference, "<written>", "exec", dont_inherit=True), scratch.__dict__)
    made: nn.Module = scratch.Model()
    return made.train(task.contract.training)


def same(target: Callable[..., torch.Tensor], task: Task, *inputs: torch.Tensor) -> bool:
    """Bit for bit, on new inputs."""
    with torch.no_grad():
        return torch.equal(target(*inputs), model(task)(*inputs))


@pytest.mark.parametrize("loose", [False, True])
def test_a_configuration_is_written_down_with_its_class(user: ModuleType, tmp_path: Path, loose: bool) -> None:
    """A dataclass with one inside of it, with a class and a dtype in its fields; a namespace."""
    config = SimpleNamespace(width=4, heads=3, kind=nn.LayerNorm) if loose else user.Config(heads=user.Heads(3))
    module = user.Configured(config)
    task = capture(module, (torch.randn(5, 4),), tmp_path, None)
    assert 12 == model(task).out.out_features
    assert same(module, task, torch.randn(5, 4))


def test_a_tensor_given_to_the_constructor_is_written_down(user: ModuleType, tmp_path: Path) -> None:
    """The weights of the classes of a loss, a user's and torch's own: not a switch like ``bias``."""
    inputs = torch.randn(6, 5), torch.randint(5, (6,))
    for module in (user.Weighted(torch.rand(5), 0.1), nn.CrossEntropyLoss(torch.rand(5), label_smoothing=0.1)):
        assert same(module, capture(module, inputs, tmp_path, None), torch.randn(6, 5), inputs[1])


def test_init_args_may_be_parts_classes_and_functions_of_torch(user: ModuleType, tmp_path: Path) -> None:
    """What constructors take: layers, kinds of layers, activations."""
    inner = nn.Sequential(nn.Linear(4, 4), nn.Tanh())
    module = user.Wired(4, inner, nn.functional.silu, nn.LayerNorm)
    task = capture(module, (torch.randn(5, 4),), tmp_path, (4, inner, nn.functional.silu, nn.LayerNorm))
    assert same(module, task, torch.randn(5, 4))


def test_recurrent_layers_are_modules_like_others(tmp_path: Path) -> None:
    """Their constructors hand on all they are given, and their methods call one another."""
    for module in (nn.LSTM(3, 4, batch_first=True), nn.GRU(3, 4, bias=False), nn.RNN(3, 4, 2)):
        x = torch.randn(2, 5, 3)
        with torch.no_grad():
            wanted, found = module(x)[0], model(capture(module, (x,), tmp_path, None))(x)[0]
        assert torch.equal(wanted, found)


def test_functions_are_taken_as_their_file_holds_them(user: ModuleType, tmp_path: Path) -> None:
    """Decorated, by torch or by something beside them; a lambda that has a name."""
    x, y = torch.randn(3, 4), torch.randn(3, 4)
    assert same(user.average, capture(user.average, (x, y), tmp_path, None), y, x)
    for function in (user.halved, user.square):
        assert same(function, capture(function, (x,), tmp_path, None), y)


def test_compiled_programs_are_taken_as_they_were_before(user: ModuleType, tmp_path: Path) -> None:
    """torch.compile is tried on them in any case."""
    x, module = torch.randn(3, 4), user.Configured(user.Config()).eval()
    for target, inner in ((torch.compile(module), module), (torch.compile(user.halved), user.halved)):
        task = capture(target, (x,), tmp_path, None)
        assert same(inner, task, x)
    assert Contract(training=False) == capture(torch.compile(module), (x,), tmp_path, None).contract


@pytest.mark.parametrize(
    ("target", "words"),
    [
        (nn.Linear, "got: the class Linear.*next: pass a module made from the class"),
        (nn.Linear(4, 4).forward, "got: a method, Linear.forward.*next: pass the module"),
        (torch.logsumexp, "next: write a def function"),
        (torch.jit.script(nn.ReLU()), "scripted.*next: pass what it was scripted"),
    ],
)
def test_what_cannot_be_taken_is_refused_with_what_to_pass_instead(target: object, words: str, tmp_path: Path) -> None:
    """Each says what it was, and what to do."""
    with pytest.raises(TaskError, match=f"(?s){words}"):
        capture(target, (torch.randn(3, 4),), tmp_path, None)


@pytest.mark.parametrize("dtype", [torch.uint16, torch.uint32, torch.uint64])
def test_wide_unsigned_numbers_are_described(user: ModuleType, tmp_path: Path, dtype: torch.dtype) -> None:
    """torch has no smallest element of these."""
    x = torch.arange(3, 12).to(dtype)
    task = capture(user.halved, (x,), tmp_path, None)
    scope: dict[str, Callable[[], list[torch.Tensor]]] = {}
    exec(task.reference, scope)  # type: ignore[arg-type]  # of functions
    made = scope["get_inputs"]()[0].long()
    assert 3 <= int(made.min()) <= int(made.max()) <= 11


@pytest.mark.parametrize(
    "given", [torch.empty(3, device="meta"), torch.eye(3).to_sparse(), torch.eye(3).to_sparse_csr()]
)
def test_tensors_without_plain_data_are_refused(user: ModuleType, tmp_path: Path, given: torch.Tensor) -> None:
    """No values, or values that a literal cannot place."""
    with pytest.raises(TaskError, match=r"(?s)cannot be written down.*next: pass the parts"):
        capture(user.halved, (given,), tmp_path, None)


def test_torchs_own_modules_are_modules_like_others(tmp_path: Path) -> None:
    """Methods of theirs call one another, and what some were told is in their parts alone: sizes, numbers of layers."""
    wide, long, pixels = torch.randn(2, 5, 16), torch.randn(2, 7, 16), torch.randn(2, 3, 8, 8)
    layer = nn.TransformerEncoderLayer(16, 2, 32, batch_first=True)
    upper = nn.TransformerDecoderLayer(16, 2, 32, batch_first=True)
    calls: list[tuple[nn.Module, tuple[torch.Tensor, ...]]] = [
        (nn.BatchNorm2d(3), (pixels,)),
        (nn.ConvTranspose2d(3, 4, 3, stride=2, output_padding=1), (pixels,)),
        (nn.MultiheadAttention(16, 2, batch_first=True), (wide, wide, wide)),
        (nn.MultiheadAttention(16, 2, add_bias_kv=True, batch_first=True), (wide, long, long)),
        (nn.TransformerEncoder(layer, 3), (wide,)),
        (nn.TransformerDecoder(upper, 2, norm=nn.LayerNorm(16)), (wide, long)),
        (nn.Transformer(16, 2, 1, 2, 32, activation="gelu", norm_first=True, batch_first=True), (wide, long)),
    ]
    for module, inputs in calls:
        built = model(capture(module.eval(), inputs, tmp_path, None))
        with torch.no_grad():
            wanted, found = (tree_leaves(target(*inputs))[0] for target in (module, built))
        assert torch.equal(wanted, found)
        assert list(module.state_dict()) == list(built.state_dict())
