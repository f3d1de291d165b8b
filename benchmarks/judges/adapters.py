# SPDX-License-Identifier: Apache-2.0
"""Other evaluators behind one question: does this one accept that program? Each is loaded from a path the user names.

What had to be patched from outside so that an evaluator runs on a CPU stands in ``patched`` and goes into the result.
None of it touches how the evaluator compares.
"""

from __future__ import annotations

import contextlib
import importlib
import importlib.abc
import importlib.machinery
import importlib.util
import sys
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest import mock

import torch

Verdict = Callable[[str, str], bool]
"""(reference source, candidate source) to whether the evaluator accepts the candidate."""


class CannotRun(Exception):
    """Why this evaluator has no verdicts here."""


class Absent(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Empty stand-ins for packages an evaluator imports and this use of it never calls."""

    def __init__(self, *names: str) -> None:
        self.names = names

    def find_spec(self, name: str, path: object = None, target: object = None) -> Any:
        if name.partition(".")[0] in self.names:
            return importlib.machinery.ModuleSpec(name, self, is_package=True)
        return None

    def create_module(self, spec: Any) -> types.ModuleType:
        made = mock.MagicMock(name=spec.name)
        made.__path__, made.__spec__, made.__name__ = [], spec, spec.name
        return made

    def exec_module(self, module: types.ModuleType) -> None:
        """Nothing to execute."""


def _enter(place: Path, *absent: str) -> None:
    if not place.is_dir():
        raise CannotRun(f"no such folder: {place.name}")
    sys.path.insert(0, str(place))
    sys.meta_path.append(Absent(*absent))


def _missing(*names: str) -> list[str]:
    """Those of the packages that are not installed here."""
    return [name for name in names if importlib.util.find_spec(name) is None]


def _pretend_cuda() -> None:
    """Device management does nothing; tensors stay on the CPU."""
    nothing = mock.MagicMock()
    for name in (
        "set_device",
        "synchronize",
        "empty_cache",
        "reset_peak_memory_stats",
        "manual_seed",
        "manual_seed_all",
    ):
        setattr(torch.cuda, name, nothing)
    torch.cuda.is_available = lambda: True
    torch.cuda.get_device_name = lambda *a, **k: "cpu"
    torch.cuda.device = lambda *a, **k: contextlib.nullcontext()


def _pair(reference: str, candidate: str) -> tuple[Any, torch.nn.Module, torch.nn.Module]:
    """The task's namespace, its model and the candidate's with the same weights."""
    task: dict[str, Any] = {}
    exec(compile(reference, "reference", "exec"), task)
    theirs: dict[str, Any] = {"__name__": "submission"}
    exec(compile(candidate, "submission", "exec"), theirs)
    torch.manual_seed(0)
    model = task["Model"](*task["get_init_inputs"]())
    torch.manual_seed(0)
    new = theirs["ModelNew"](*task["get_init_inputs"]())
    new.load_state_dict(model.state_dict())
    return task, model, new


def kernelbench(root: Path) -> tuple[Verdict, list[str]]:
    """eval_kernel_against_ref with the 5 trials its scripts use, correctness only."""
    _enter(
        root / "src",
        "dotenv",
        "openai",
        "litellm",
        "datasets",
        "together",
        "google",
        "anthropic",
        *_missing("tqdm", "requests", "pydantic", "numpy"),
    )
    evaluator = importlib.import_module("kernelbench.eval")
    utils = importlib.import_module("kernelbench.utils")
    utils.get_gpu_vendor = lambda *a: "nvidia"
    _pretend_cuda()

    def judge(reference: str, candidate: str) -> bool:
        found = evaluator.eval_kernel_against_ref(
            reference, candidate, num_correct_trials=5, measure_performance=False, device=torch.device("cpu")
        )
        return bool(found and found.compiled and found.correctness)

    return judge, ["torch.cuda device management", "utils.get_gpu_vendor", "packages for language models left out"]


def robust_kbench(root: Path) -> tuple[Verdict, list[str]]:
    """check_forward_correctness, 5 trials; a module stands in for the forward function."""
    _enter(root, "anthropic", "openai", "dotenv", "google", "boto3", "pynvml", "datasets", "backoff", "ninja")
    checks = importlib.import_module("robust_kbench.sandbox.correct_forward_fn")
    checks.easy_to_device = lambda inputs, device: inputs
    checks.graceful_eval_cleanup = lambda *a, **k: None
    _pretend_cuda()
    real_to = torch.nn.Module.to
    torch.nn.Module.to = lambda self, *a, **k: self if a == ("cuda",) else real_to(self, *a, **k)

    def judge(reference: str, candidate: str) -> bool:
        task, _, _ = _pair(reference, candidate)
        theirs: dict[str, Any] = {"__name__": "submission"}
        exec(compile(candidate, "submission", "exec"), theirs)

        class Both(torch.nn.Module):
            def __init__(self) -> None:
                super().__init__()
                self.old, self.new = task["Model"](), theirs["ModelNew"]()
                self.new.load_state_dict(self.old.state_dict())

            def forward(self, *args: Any, fn: str) -> Any:
                return getattr(self, fn)(*args)

        return bool(checks.check_forward_correctness(Both, "old", "new", task["get_inputs"], {}, {}).correct)

    return judge, ["the literal 'cuda' in Module.to and easy_to_device", "graceful_eval_cleanup", "torch.cuda calls"]


def backendbench(root: Path) -> tuple[Verdict, list[str]]:
    """eval_correctness over 5 draws of the inputs."""
    _enter(root, "datasets", "anthropic", "tenacity", "expecttest", *_missing("tqdm", "requests", "pandas", "pyarrow"))
    evaluator = importlib.import_module("BackendBench.eval")

    def judge(reference: str, candidate: str) -> bool:
        task, model, new = _pair(reference, candidate)
        model.__name__ = "reference"
        tests = [types.SimpleNamespace(args=task["get_inputs"](), kwargs={}) for _ in range(5)]
        with torch.no_grad():
            share, _ = evaluator.eval_correctness(model, new, tests)
        return share == 1.0

    return judge, ["packages for language models and data sets left out where absent"]


def sol_execbench(root: Path) -> tuple[Verdict, list[str]]:
    """check of ten rounds with compute_error_stats at the default tolerances; its driver needs CUPTI."""
    _enter(root / "src", "cupti", "flashinfer")
    checks = importlib.import_module("sol_execbench.core.bench.correctness")
    workload = importlib.import_module("sol_execbench.core.data.workload")
    tolerance = workload.ToleranceSpec()

    def judge(reference: str, candidate: str) -> bool:
        task, model, new = _pair(reference, candidate)
        checks.set_seed(200)
        with torch.no_grad():
            for _ in range(10):
                inputs = task["get_inputs"]()
                expected, got = model(*inputs), new(*inputs)
                if got.shape != expected.shape or got.dtype != expected.dtype or type(got) is not torch.Tensor:
                    return False
                if checks.compute_error_stats(got, expected, tolerance)[1]:
                    return False
        return True

    return judge, ["the rounds of its driver rewritten here (10, seed 200): the driver needs CUPTI", "one process"]


def kernelbot(root: Path) -> tuple[Verdict, list[str]]:
    """eval.py's run of single tests with verbose_allclose, five seeds, as its tests mode does."""
    _enter(root / "examples", "submission")
    sys.modules["reference"] = types.ModuleType("reference")
    sys.modules["reference"].check_implementation = sys.modules["reference"].generate_input = None
    evaluator = importlib.import_module("eval")
    utils = importlib.import_module("utils")
    _pretend_cuda()
    evaluator._clone_data = lambda data, rank: tuple(x.clone() for x in data)  # its own moves to a device

    def judge(reference: str, candidate: str) -> bool:
        task, model, new = _pair(reference, candidate)

        def draw(seed: int) -> tuple:
            torch.manual_seed(seed)
            return tuple(task["get_inputs"]())

        def check(data: tuple, output: Any) -> tuple[bool, str]:
            faults = utils.verbose_allclose(output, model(*data))
            return (False, " ".join(faults)) if faults else (True, "")

        evaluator.generate_input, evaluator.check_implementation = draw, check
        submission = types.ModuleType("submission")
        submission.custom_kernel = lambda data: new(*data)
        sys.modules["submission"] = submission
        with torch.no_grad():
            tests = [evaluator.TestCase(args={"seed": seed}, spec="") for seed in range(5)]
            return all(evaluator._run_single_test(test)[0] for test in tests)

    return judge, [
        "torch.cuda device management",
        "_clone_data without its move to a device",
        "generate_input and check_implementation made from the task",
    ]


ADAPTERS: dict[str, Callable[[Path], tuple[Verdict, list[str]]]] = {
    "KernelBench": kernelbench,
    "robust-kbench": robust_kbench,
    "BackendBench": backendbench,
    "SOL-ExecBench": sol_execbench,
    "kernelbot": kernelbot,
}
