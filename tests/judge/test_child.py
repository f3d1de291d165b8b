# SPDX-License-Identifier: Apache-2.0
"""Driving programs: weights, windows, gradients, layouts, and stillness between windows."""

from __future__ import annotations

import dataclasses
import os
import time
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from kernelwright import sandbox
from kernelwright.judge import skeletons
from kernelwright.judge.buffers import CallPlan, TensorSpec
from kernelwright.judge.child import Zygote
from kernelwright.judge.leash import ChildFailure
from kernelwright.judge.program import Program

LIMITS = sandbox.Limits(seconds=20.0, memory_bytes=512 << 20, processes=64, file_bytes=1 << 20, output_bytes=1 << 16)
Make = Callable[..., Program]
Plan = Callable[..., CallPlan]
LINEAR = """
import torch
class ModelNew(torch.nn.Module):
    def __init__(self, width, *, scale=1.0):
        super().__init__()
        self.inner = torch.nn.Linear(width, width)
        self.norm = torch.nn.BatchNorm1d(width)
        self.scale = scale
    def forward(self, x):
        return self.norm(self.inner(x)) * self.scale
"""


def model() -> torch.nn.Module:
    """The same class, on the judge's side."""
    names: dict[str, object] = {}
    exec(LINEAR, names)
    made: torch.nn.Module = names["ModelNew"](4, scale=0.5)  # type: ignore[operator]
    return made.eval()


def state(module: torch.nn.Module) -> list[tuple[str, torch.Tensor]]:
    """Names and copies of its weights."""
    return [(name, tensor.clone()) for name, tensor in module.state_dict().items()]


@pytest.fixture
def linear(zygote: Zygote, tmp_path: Path) -> Program:
    """A forked, unloaded program over LINEAR."""
    (tmp_path / "new.py").write_text(LINEAR)
    return zygote.fork(tmp_path, device="cpu", limits=LIMITS, threads=1)


def test_weights_and_arguments_arrive(linear: Program, plan: Plan) -> None:
    """Constructor arguments by position and name, weights strictly by name, results equal to the reference's."""
    module = model()
    linear.load("new.py::ModelNew", [4], {"scale": 0.5}, state(module))
    buffers = linear.bind(plan((3, 4), sets=3))
    for index in range(3):
        buffers.inputs[index][0].normal_()
        buffers.outputs[index][0].fill_(float("nan"))
    linear.window([2, 0])
    with torch.no_grad():
        for index in (0, 2):
            assert torch.equal(module(buffers.inputs[index][0]), buffers.outputs[index][0])
    assert buffers.outputs[1][0].isnan().all()
    linear.close()


def test_new_weights_replace_the_old_ones(linear: Program, plan: Plan) -> None:
    """set_state after construction changes what the next window computes."""
    module = model()
    linear.load("new.py::ModelNew", [4], {"scale": 0.5}, state(module))
    buffers = linear.bind(plan((3, 4)))
    buffers.inputs[0][0].normal_()
    fresh = [(n, torch.randn_like(t).abs() if t.is_floating_point() else t) for n, t in state(module)]
    module.load_state_dict(dict(fresh))
    linear.set_state(fresh)
    linear.window([0])
    with torch.no_grad():
        assert torch.equal(module(buffers.inputs[0][0]), buffers.outputs[0][0])
    linear.close()


def test_training_mode_changes_buffers_that_can_be_read_back(linear: Program, plan: Plan) -> None:
    """Running statistics move in train() and are visible to the judge."""
    module = model()
    linear.load("new.py::ModelNew", [4], {"scale": 0.5}, state(module), training=True)
    buffers = linear.bind(plan((3, 4)))
    buffers.inputs[0][0].normal_()
    linear.window([0])
    module.train()
    module(buffers.inputs[0][0].clone())
    linear.say_state()
    found = dict(linear.said_state())
    assert torch.allclose(module.state_dict()["norm.running_mean"], found["norm.running_mean"])
    assert not torch.equal(torch.zeros(4), found["norm.running_mean"])
    assert 1 == found["norm.num_batches_tracked"].item()
    linear.close()


def test_weights_are_read_back_by_name(linear: Program) -> None:
    """In the order of the reference's state_dict, whatever the candidate's own is."""
    given = state(model())[::-1]
    linear.load("new.py::ModelNew", [4], {}, given)
    linear.say_state()
    found = linear.said_state()
    assert [name for name, _ in given] == [name for name, _ in found]
    assert all(torch.equal(one, other) for (_, one), (_, other) in zip(given, found, strict=True))
    linear.close()


def test_missing_weights_are_a_load_failure(linear: Program) -> None:
    """load_state_dict is strict, and the words say which names are wrong and what to do, as it does not."""
    first, *others = state(model())
    extra = rf"wrong structure: {first[0]} is in the candidate's state_dict and not in the ref.*persistent=False"
    with pytest.raises(ChildFailure, match=extra):
        linear.load("new.py::ModelNew", [4], {}, others)
    with pytest.raises(ChildFailure, match=r"wrong structure: \S+ is .*persistent=False.*; other, third are missing"):
        linear.load("new.py::ModelNew", [4], {}, [*others, ("other", first[1]), ("third", first[1])])
    with pytest.raises(ChildFailure, match="size mismatch"):
        linear.load("new.py::ModelNew", [4], {}, [(first[0], torch.zeros(3)), *others])
    linear.close()


def test_gradients_match_autograd(linear: Program, plan: Plan) -> None:
    """Gradients of inputs and parameters for incoming gradients the judge chose."""
    module = model()
    linear.load("new.py::ModelNew", [4], {"scale": 0.5}, state(module))
    names = [("input:0", (3, 4)), ("parameter:inner.weight", (4, 4)), ("parameter:norm.bias", (4,))]
    gradients = tuple((name, TensorSpec.contiguous(shape, "float32")) for name, shape in names)
    full = dataclasses.replace(plan((3, 4)), gradients=gradients, seeds=(0,))
    buffers = linear.bind(full)
    buffers.inputs[1][0].normal_()
    buffers.seeds[1][0].normal_()
    linear.window([1], grad=True)
    x = buffers.inputs[1][0].clone().requires_grad_()
    wanted = [x, module.get_parameter("inner.weight"), module.get_parameter("norm.bias")]
    expected = torch.autograd.grad(module(x), wanted, buffers.seeds[1][0].clone())
    for one, other in zip(expected, buffers.grads[1], strict=True):
        assert torch.allclose(one, other, rtol=1e-5, atol=1e-6)
    linear.close()


def test_one_set_twice_in_separate_windows_agrees(program: Make, plan: Plan) -> None:
    """The way repeat-run determinism is measured."""
    one = program("return torch.softmax(x, 0)")
    buffers = one.bind(plan((1000,)))
    buffers.inputs[0][0].normal_()
    one.window([0])
    first = buffers.outputs[0][0].clone()
    one.window([0])
    assert torch.equal(first, buffers.outputs[0][0])


def test_nested_results_and_scalars(program: Make) -> None:
    """Every leaf of a nested result is delivered into its own buffer."""
    one = program("return {'a': [x + 1, (x > 0)], 'n': None}")
    specs = (TensorSpec.contiguous((4,), "float32"), TensorSpec.contiguous((4,), "bool"))
    results, _ = skeletons.flatten({"a": [torch.empty(0), (torch.empty(0))], "n": None})
    plan = CallPlan(arguments={"list": [{"t": 0}]}, inputs=specs[:1], results=results, outputs=specs, sets=1)
    buffers = one.bind(plan)
    buffers.inputs[0][0].copy_(torch.tensor([-1.0, 0.0, 1.0, 2.0]))
    one.window([0])
    assert [0.0, 1.0, 2.0, 3.0] == buffers.outputs[0][0].tolist()
    assert [False, False, True, True] == buffers.outputs[0][1].tolist()


def test_keyword_arguments(program: Make) -> None:
    """A skeleton of args and kwargs calls by name."""
    one = program("return x")
    arguments, _ = skeletons.flatten({"args": [], "kwargs": {"x": torch.empty(0)}})
    spec = TensorSpec.contiguous((2,), "float32")
    buffers = one.bind(CallPlan(arguments=arguments, inputs=(spec,), results={"t": 0}, outputs=(spec,), sets=1))
    buffers.inputs[0][0].fill_(3.0)
    window = one.window([0])
    assert [3.0, 3.0] == buffers.outputs[0][0].tolist()
    assert ((0, 0),) == window.aliases


def test_a_written_input_is_seen_by_the_judge(program: Make, plan: Plan) -> None:
    """Inputs are the shared memory itself."""
    one = program("x.add_(1)\nreturn x * 2")
    buffers = one.bind(plan())
    buffers.inputs[0][0].fill_(1.0)
    one.window([0])
    assert [2.0] * 4 == buffers.inputs[0][0].tolist()
    assert [4.0] * 4 == buffers.outputs[0][0].tolist()


def test_no_gradient_is_recorded_without_asking(program: Make, plan: Plan) -> None:
    """Calls run under no_grad."""
    one = program(
        "assert not torch.is_grad_enabled()\nreturn x + self.w", init="self.w = torch.nn.Parameter(torch.ones(4))"
    )
    buffers = one.bind(plan())
    one.window([0])
    assert [1.0] * 4 == buffers.outputs[0][0].tolist()


def test_autocast_changes_the_dtype_of_matrix_products(zygote: Zygote, tmp_path: Path) -> None:
    """The option reaches the call."""
    (tmp_path / "new.py").write_text("class ModelNew:\n    def __call__(self, x): return x @ x\n")
    with zygote.fork(tmp_path, device="cpu", limits=LIMITS, threads=1) as one:
        one.load("new.py::ModelNew", autocast="bfloat16")
        spec, out = TensorSpec.contiguous((2, 2), "float32"), TensorSpec.contiguous((2, 2), "bfloat16")
        plan = CallPlan(arguments={"list": [{"t": 0}]}, inputs=(spec,), results={"t": 0}, outputs=(out,), sets=1)
        one.bind(plan).inputs[0][0].fill_(1.0)
        one.window([0])
        assert one.buffers is not None
        assert [[2.0, 2.0], [2.0, 2.0]] == one.buffers.outputs[0][0].tolist()


def test_nothing_runs_between_windows(program: Make, plan: Plan) -> None:
    """A thread that counts stands still while the judge is not in a window."""
    thread = "import threading\nself.n = torch.zeros(1)\ndef count():\n    while True: self.n.add_(1)\n"
    one = program("return x + self.n", init=thread + "threading.Thread(target=count, daemon=True).start()")
    buffers = one.bind(plan())
    one.window([0])
    before = _cpu_ticks(one.pid)
    time.sleep(0.3)
    assert before == _cpu_ticks(one.pid)
    one.window([0])
    assert buffers.outputs[0][0][0] > 0


def _cpu_ticks(pid: int) -> int:
    """User and system time of all threads (1/100 s)."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    assert "T" == fields[0]
    return int(fields[11]) + int(fields[12])


def test_an_empty_window_runs_nothing(program: Make, plan: Plan) -> None:
    """Its time is the overhead of all windows."""
    one = program("raise ValueError")
    one.bind(plan())
    assert 0 < one.window([]).call_us


def test_binding_again_replaces_the_buffers(program: Make, plan: Plan) -> None:
    """One program serves case after case."""
    one = program("return x * 3")
    one.bind(plan((4,)))
    buffers = one.bind(plan((2, 5), sets=1, dtype=torch.float64))
    buffers.inputs[0][0].fill_(2.0)
    one.window([0])
    assert [[6.0] * 5] * 2 == buffers.outputs[0][0].tolist()


def test_a_smaller_plan_is_laid_out_in_the_memory_of_a_larger_one(program: Make, plan: Plan) -> None:
    """Guarded anew, on both sides; a larger one gets memory of its own."""
    one = program("return x * 3")
    first = one.bind(plan((64,), sets=3)).arena
    shared = one.leash.shared_bytes
    buffers = one.bind(plan((2, 5), sets=2, dtype=torch.float64))
    assert buffers.arena is first and one.leash.shared_bytes == shared
    for index in (0, 1):
        buffers.inputs[index][0].fill_(2.0 + index)
    one.window([1, 0])
    assert [answer[0].unique().tolist() for answer in buffers.outputs] == [[6.0], [9.0]]
    assert buffers.guards_intact()
    large = one.bind(plan((4096,), sets=2))
    assert large.arena is not first and first.tensor is None
    large.inputs[0][0].fill_(1.0)
    one.window([0])
    assert large.outputs[0][0].unique().tolist() == [3.0] and large.guards_intact()


def test_seeded_randomness_repeats(program: Make, plan: Plan) -> None:
    """seed() reaches the generator the candidate uses."""
    one = program("return torch.rand(4)")
    buffers = one.bind(plan())
    drawn = []
    for _ in range(2):
        one.seed(5)
        one.window([0])
        drawn.append(buffers.outputs[0][0].clone())
    assert torch.equal(*drawn)
    assert torch.equal(torch.rand(4, generator=torch.Generator().manual_seed(5)), drawn[0])


def test_close_leaves_no_process(program: Make) -> None:
    """Killed, reaped, and closed twice without complaint."""
    one = program("return x")
    pid = one.pid
    one.close()
    one.close()
    assert not os.path.exists(f"/proc/{pid}")


def test_tensors_may_be_constructor_arguments(zygote: Zygote, tmp_path: Path, plan: Plan) -> None:
    """They travel in shared memory beside the weights."""
    (tmp_path / "new.py").write_text(
        "class ModelNew:\n    def __init__(self, a, *, b): self.sum = a + b\n"
        "    def __call__(self, x): return x + self.sum\n"
    )
    with zygote.fork(tmp_path, device="cpu", limits=LIMITS, threads=1) as one:
        one.load("new.py::ModelNew", [torch.tensor(1.0)], {"b": torch.tensor(2.0)})
        buffers = one.bind(plan())
        one.window([1])
        assert [3.0] * 4 == buffers.outputs[1][0].tolist()


LAST = """
class Square(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        Square.kept = x.detach().clone()
        return x * x
    @staticmethod
    def backward(ctx, g):
        return 2 * g * Square.kept
"""


@pytest.mark.parametrize("late", [False, True])
def test_gradients_may_be_asked_for_when_all_results_are_there(program, plan: Plan, late: bool) -> None:
    """What one call keeps for them must not be another's: a program that keeps the last one's is told apart."""
    one = program("return Square.apply(x)", head=LAST)
    gradients = (("input:0", TensorSpec.contiguous((4,), "float32")),)
    buffers = one.bind(dataclasses.replace(plan((4,)), gradients=gradients, seeds=(0,)))
    for index in range(2):
        buffers.inputs[index][0].fill_(index + 1.0)
        buffers.seeds[index][0].fill_(1.0)
    one.leash.ask({"do": "late", "on": late}, "smoke")
    one.window([0, 1], grad=True)
    assert [[4.0] * 4 if late else [2.0] * 4, [4.0] * 4] == [grads[0].tolist() for grads in buffers.grads]
