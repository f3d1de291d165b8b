# SPDX-License-Identifier: Apache-2.0
"""The facade: the listed names exist, the verbs survive the rooms of their names, live objects are taken."""

from __future__ import annotations

import importlib
import json
import os
import types
from pathlib import Path
from typing import Any

import pytest
import torch

import kernelwright
from kernelwright.errors import BadCommand
from kernelwright.proposers import Structure
from kernelwright.testing import FakeHost, FakeWorker
from kernelwright.tuning import Space


def twice(x: torch.Tensor) -> torch.Tensor:
    """Something to optimise."""
    return x * 2


@pytest.fixture
def services(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> kernelwright.Services:
    """Doubles for both children."""
    for name in list(os.environ):
        if name.startswith("KERNELWRIGHT_"):
            monkeypatch.delenv(name)
    monkeypatch.setenv("KERNELWRIGHT_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("KERNELWRIGHT_RUNS", str(tmp_path / "runs"))
    one = Structure(name="one", note="", language="torch", space=Space(parameters=(), constraints=()), order=1.0)
    return kernelwright.Services("cpu", worker=FakeWorker(lambda c: 20.0), host=FakeHost({"templates": [one]}))


def test_every_listed_name_is_there() -> None:
    """Those that are fetched when used too."""
    for name in kernelwright.__all__:
        assert getattr(kernelwright, name) is not None, name
    assert set(kernelwright.__all__) <= set(dir(kernelwright))
    with pytest.raises(AttributeError, match="no attribute 'nonsense'"):
        _ = kernelwright.nonsense


@pytest.mark.parametrize("name", ["optimize", "judge", "report"])
def test_a_verb_stays_a_function_when_the_room_of_its_name_is_imported(name: str) -> None:
    """Python would put the sub-package in its place."""
    room = importlib.import_module(f"kernelwright.{name}")
    assert isinstance(room, types.ModuleType)
    assert isinstance(getattr(kernelwright, name), types.FunctionType)


def test_a_function_with_example_inputs_is_optimised(services: kernelwright.Services) -> None:
    """From Python, as from the command line."""
    heard: list[kernelwright.Event] = []
    result = kernelwright.optimize(twice, (torch.randn(4),), services=services, budget="5s", listen=heard.append)
    assert ("faster", "twice", 4.0) == (result.status, result.task, result.speedup)
    assert result.winner is not None and str(result).startswith(result.message)
    assert str(result.optimized) in str(result)
    for source in dict(result.winner.candidate.sources).values():
        assert source not in str(result) and repr(source) not in repr(result)
    assert result.optimized is not None and result.optimized.exists()
    assert ["phase", "done"] == [heard[0].kind, heard[-1].kind]
    again = kernelwright.resume(result.run, services=services)
    assert result.winner == again.winner
    assert [str(result.run)] == [item["run"] for item in kernelwright.runs()]
    assert kernelwright.report(result.run).exists()


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"budget": [1]}, "budget is not a length of time.*got: \\[1\\]"),
        ({"budget": True}, "budget is not a length"),
        ({"bits_lost": "half"}, "no number of bits.*got: 'half'"),
        ({"seed": 1.5}, "seed is not a whole number.*got: 1.5"),
        ({"grid": [1]}, "grid factor"),
        ({"device": 0}, "no such kind of device.*got: '0'"),
        ({"guide": "openai:x"}, "guide of optimize is of the wrong kind.*got: 'openai:x'.*a Guide or None"),
        ({"proposers": "compilr"}, "no such proposer.*got: compilr"),
        ({"start": "missing.cpp"}, "no candidate.*missing.cpp does not exist"),
        ({"start": [Path("missing.cpp")]}, "no candidate.*missing.cpp does not exist"),
    ],
)
def test_options_of_the_wrong_kind_are_named(
    services: kernelwright.Services, given: dict[str, Any], words: str
) -> None:
    """Before anything begins; a text is one name, not a list of letters."""
    with pytest.raises(kernelwright.KernelwrightError, match=f"(?s){words}"):
        kernelwright.optimize(twice, (torch.randn(4),), services=services, **given)
    assert [] == kernelwright.runs()


def test_one_name_is_a_list_of_one_and_a_torch_device_a_device(services: kernelwright.Services) -> None:
    """As torch itself takes them."""
    result = kernelwright.optimize(
        twice, (torch.randn(4),), services=services, budget="5s", device=torch.device("cpu"), proposers="templates"
    )
    options = json.loads((result.run / "run.json").read_text())["options"]
    assert ("cpu", ["templates"]) == (options["device"], options["proposers"])


def test_a_file_with_inputs_beside_it_is_refused(services: kernelwright.Services, tmp_path: Path) -> None:
    """It has its own: those given would not be used."""
    for given in ({"example_inputs": (torch.randn(4),)}, {"init_args": (4,)}):
        with pytest.raises(BadCommand, match="inputs and constructor arguments of its own"):
            kernelwright.optimize(tmp_path / "model.py", services=services, **given)  # type: ignore[arg-type]  # either


def test_a_live_object_without_inputs_is_refused(services: kernelwright.Services) -> None:
    """The message says how to call."""
    with pytest.raises(BadCommand, match="example inputs"):
        kernelwright.optimize(twice, services=services)


def test_judge_takes_files_or_nouns(services: kernelwright.Services, tmp_path: Path) -> None:
    """Both give a Trial at level precise."""
    task = kernelwright.Task(name="t", form="kernelbench", reference="class Model: pass\n")
    (tmp_path / "c.py").write_text("class ModelNew: pass\n")
    candidate = kernelwright.load_candidate(tmp_path / "c.py", task)
    trials = [kernelwright.judge(what, task, services=services) for what in (tmp_path / "c.py", candidate)]
    assert [candidate, candidate] == [trial.candidate for trial in trials]
    assert isinstance(trials[0].outcome, kernelwright.Timed)
    assert "precise" == trials[0].level


def test_an_environment_is_a_task_with_a_judge(services: kernelwright.Services) -> None:
    """The first messages show what prompts of a run show; a reply is judged and paid; without models nothing else."""
    env = kernelwright.environment(Path(__file__).parents[1] / "examples" / "rmsnorm.py", services, turns=1)
    talk, info = env.reset()
    assert ["system", "user"] == [message["role"] for message in talk]
    assert "takes about 100 us a call in eager" in talk[1]["content"]
    reply = "```python\nclass ModelNew:\n    pass\n```"
    _, reward, terminated, truncated, info = env.step(reply)
    assert (1, "Timed") == (info["turn"], info["outcome"]["is"])
    assert (terminated, truncated) == (reward > 0, not terminated)
