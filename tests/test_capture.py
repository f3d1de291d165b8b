# SPDX-License-Identifier: Apache-2.0
"""capture: live modules and functions become tasks whose reference computes the same, or a clear refusal."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest
import torch

from kernelwright.capture import capture
from kernelwright.errors import TaskError
from kernelwright.task import Task

FILE = """
import torch
from torch import nn

raise_if_executed = []
WIDTH = 8


def norm(x, eps: float = 1e-6):
    return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + eps)


def gelu_norm(x, y):
    return torch.nn.functional.gelu(norm(x)) * y[0] + y[1]["shift"]


def several(*inputs):
    return inputs[0]


def scaled(x, y=None, *, factor, power: int = 2):
    return x.pow(power) * factor + (0 if y is None else y)


class Tilted(nn.Module):
    def __init__(self, size: int):
        super().__init__()
        self.size = size
        self.weight = nn.Parameter(torch.randn(size))

    def forward(self, x, *, slope):
        return x * self.weight * slope


class Block(nn.Module):
    def __init__(self, width: int, eps: float = 1e-5, hidden: int | None = None):
        super().__init__()
        self.width, self.eps = width, eps
        self.inner = nn.Linear(width, hidden or 2 * width)
        self.register_buffer("scale", torch.full((1,), 3.0))

    def forward(self, x, times: int = 1):
        return norm(self.inner(x), self.eps) * self.scale * times


class Model(nn.Module):
    def __init__(self, block):
        super().__init__()
        self.block = block

    def forward(self, x):
        return self.block(x) + 1


class Opaque(nn.Module):
    def __init__(self, size):
        super().__init__()
        self.n = size * 2
        self.weight = nn.Parameter(torch.randn(self.n))

    def forward(self, x):
        return x * self.weight


class Liar(Opaque):
    def __init__(self, size):
        super().__init__(size)
        self.size = size
        self.offset = 0.0

    def forward(self, x):
        return x * self.weight + self.offset


class Unregistered(nn.Module):
    def __init__(self, size):
        super().__init__()
        self.size = size
        self.layers = [nn.Linear(size, size)]

    def forward(self, x):
        return self.layers[0](x)


def make_closure(k):
    def inner(x):
        return x * k
    return inner
"""


@pytest.fixture(scope="module")
def user(tmp_path_factory: pytest.TempPathFactory) -> ModuleType:
    """FILE as a module the user has imported."""
    path = tmp_path_factory.mktemp("user") / "user_models.py"
    path.write_text(FILE)
    spec = importlib.util.spec_from_file_location("user_models", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["user_models"] = module
    spec.loader.exec_module(module)
    return module


def rebuilt(task: Task) -> dict[str, Callable[..., object]]:
    """The names that the written reference defines."""
    scope: dict[str, Callable[..., object]] = {"__name__": "fresh"}  # type: ignore[dict-item]  # a module's own name
    exec(task.reference, scope)
    return scope


def test_a_function_becomes_a_task_with_what_it_calls(user: ModuleType, tmp_path: Path) -> None:
    """Nested inputs keep their structure; the output is the same; nothing else of the file comes along."""
    inputs = (torch.randn(3, 8), [torch.randn(8), {"shift": 2.5}])
    task = capture(user.gelu_norm, inputs, tmp_path, None)
    scope = rebuilt(task)
    assert ("gelu_norm", "object") == (task.name, task.form)
    torch.testing.assert_close(user.gelu_norm(*inputs), scope["Model"]()(*inputs), rtol=0, atol=0)
    made = scope["get_inputs"]()
    assert [(3, 8), (8,), 2.5] == [tuple(made[0].shape), tuple(made[1][0].shape), made[1][1]["shift"]]
    assert "Opaque" not in task.reference


@pytest.mark.parametrize("training", [True, False])
def test_a_module_is_rebuilt_from_its_attributes_with_its_weights(
    user: ModuleType, tmp_path: Path, training: bool
) -> None:
    """Constructor arguments are read off it, the state dict has the same names, the mode is the module's."""
    module = user.Block(8, eps=0.5).train(training)
    task = capture(module, (torch.randn(4, 8),), tmp_path, None)
    copy = rebuilt(task)["Model"]()
    assert training == task.contract.training
    assert list(module.state_dict()) == list(copy.state_dict())
    x = torch.randn(4, 8)
    torch.testing.assert_close(module(x), copy(x), rtol=0, atol=0)


def test_nested_user_and_torch_modules_are_rebuilt(user: ModuleType, tmp_path: Path) -> None:
    """Also when the user's class is called Model itself, and inside Sequential."""
    x = torch.randn(4, 8)
    wrapped = user.Model(torch.nn.Sequential(torch.nn.Linear(8, 8, bias=False), torch.nn.GELU(approximate="tanh")))
    stacked = torch.nn.Sequential(user.Block(8), torch.nn.LayerNorm(16), torch.nn.Dropout(0.25)).eval()
    for module in (wrapped, stacked):
        copy = rebuilt(capture(module, (x,), tmp_path, None))["Model"]()
        copy.train(module.training)
        torch.testing.assert_close(module(x), copy(x), rtol=0, atol=0)
        assert list(module.state_dict()) == list(copy.state_dict())


def test_an_input_that_requires_a_gradient_asks_for_all_of_them(user: ModuleType, tmp_path: Path) -> None:
    """Nested ones too; weights that could learn ask for nothing, or no module in eval() mode could be made faster."""
    plain, learns = torch.randn(4, 8), torch.randn(4, 8, requires_grad=True)
    for target, inputs in (
        (user.norm, (learns,)),
        (user.gelu_norm, (plain, [learns, {"shift": 2.5}])),
        (user.Block(8), (learns,)),
    ):
        task = capture(target, inputs, tmp_path, None)
        assert task.contract.gradients
    assert not capture(user.norm, (plain,), tmp_path, None).contract.gradients
    assert not capture(user.Block(8), (plain,), tmp_path, None).contract.gradients


def test_keywords_are_inputs_too_and_may_be_used_again_on_the_result(user: ModuleType, tmp_path: Path) -> None:
    """Given as a dict or as a pair, left to a default in between, or taken by keyword only."""
    x, factor = torch.randn(3, 8), torch.randn(8)
    for given in ({"factor": factor, "x": x}, ((x,), {"factor": factor})):
        scope = rebuilt(capture(user.scaled, given, tmp_path, None))
        model, made = scope["Model"](), scope["get_inputs"]()
        assert [(3, 8), None, (8,)] == [x if x is None else tuple(x.shape) for x in made]  # type: ignore[attr-defined]
        torch.testing.assert_close(user.scaled(x, factor=factor), model(x, factor=factor), rtol=0, atol=0)  # type: ignore[operator]
        torch.testing.assert_close(user.scaled(x, factor=factor), model(x, None, factor), rtol=0, atol=0)  # type: ignore[operator]
        other = user.scaled(x, factor=factor, power=3)  # of which the example said nothing
        torch.testing.assert_close(other, model(x, factor=factor, power=3), rtol=0, atol=0)  # type: ignore[operator]
    scope = rebuilt(capture(user.norm, (x,), tmp_path, None))
    torch.testing.assert_close(user.norm(x, 0.5), scope["Model"]()(x, 0.5), rtol=0, atol=0)  # type: ignore[operator]
    module = user.Tilted(8)
    copy = rebuilt(capture(module, {"slope": factor, "x": x}, tmp_path, None))["Model"]()
    copy.load_state_dict(module.state_dict())  # type: ignore[attr-defined]
    torch.testing.assert_close(module(x, slope=factor), copy(x, factor), rtol=0, atol=0)  # type: ignore[operator]


@pytest.mark.parametrize("given", [{"x": 1.0}, (), ((), {"y": 1.0}), {"x": 1.0, "factor": 2.0, "y": 3.0, "other": 4.0}])
def test_inputs_that_are_no_call_are_refused_with_the_signature(
    user: ModuleType, tmp_path: Path, given: object
) -> None:
    """Something is missing, or names no parameter."""
    with pytest.raises(TaskError, match=r"(?s)not a call.*\*, factor, power: int = 2"):
        capture(user.scaled, given, tmp_path, None)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float64])
def test_types_are_the_modules_own(user: ModuleType, tmp_path: Path, dtype: torch.dtype) -> None:
    """After ``.bfloat16()``, and where one buffer was left as it was; inside torch's own containers too."""
    mixed = torch.nn.Sequential(user.Block(8).to(dtype))
    mixed[0].scale = mixed[0].scale.float()
    for module in (user.Block(8).to(dtype), mixed):
        x = torch.randn(4, 8, dtype=dtype)
        copy = rebuilt(capture(module, (x,), tmp_path, None))["Model"]()
        types = [tensor.dtype for tensor in copy.state_dict().values()]  # type: ignore[attr-defined]
        assert [tensor.dtype for tensor in module.state_dict().values()] == types
        assert torch.equal(module(x), copy(x))  # type: ignore[operator]


def test_what_cannot_be_read_off_can_be_given(user: ModuleType, tmp_path: Path) -> None:
    """Without init_args it is refused with that advice; with them it works."""
    module = user.Opaque(3)
    module.after = user.Opaque.forward  # plain attributes and parts would do without
    with pytest.raises(TaskError, match="(?s)after is a function.*init_args"):
        capture(module, (torch.randn(6),), tmp_path, None)
    assert "super().__init__(3)" in capture(module, (torch.randn(6),), tmp_path, (3,)).reference


def test_a_copy_that_computes_something_else_is_refused(user: ModuleType, tmp_path: Path) -> None:
    """Weights that nobody registered are drawn anew: better no task than another one."""
    module, x = user.Unregistered(3), torch.randn(3)
    with pytest.raises(TaskError, match="computes something else"):
        capture(module, (x,), tmp_path, None)
    changed = user.Liar(3)
    changed.offset = 1.0
    for given in ((3,), None):
        copy = rebuilt(capture(changed, (torch.randn(6),), tmp_path, given))["Model"]()
        assert torch.equal(changed(torch.ones(6)), copy(torch.ones(6)))  # type: ignore[operator]


def test_lambdas_closures_and_strangers_are_refused_with_advice(user: ModuleType, tmp_path: Path) -> None:
    """Their source cannot be executed elsewhere."""

    class Local(torch.nn.Module):
        pass

    for target in (lambda x: x, user.make_closure(3), Local(), torch.relu, 3, "x"):
        with pytest.raises(TaskError):
            capture(target, (torch.randn(3),), tmp_path, None)
    with pytest.raises(TaskError, match="cannot be written down"):
        capture(user.norm, (object(),), tmp_path, None)


def test_inputs_are_described_by_shape_dtype_and_range(user: ModuleType, tmp_path: Path) -> None:
    """Integers stay in the range seen, booleans keep their share, floats their scale and sign."""
    inputs = (
        torch.randint(5, 9, (1000,)),
        torch.rand(1000) < 0.25,
        torch.randn(1000, dtype=torch.float64) * 100,
        torch.rand(1000).to(torch.bfloat16) + 1,
        7,
    )
    made = rebuilt(capture(user.several, inputs, tmp_path, None))["get_inputs"]()
    assert [x.dtype for x in inputs[:4]] == [x.dtype for x in made[:4]]
    assert 5 <= int(made[0].min()) <= int(made[0].max()) <= 8
    assert 150 < int(made[1].sum()) < 350
    assert 80 < float(made[2].std()) < 120
    assert 0 <= float(made[3].min())
    assert 7 == made[4]
