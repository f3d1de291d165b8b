# SPDX-License-Identifier: Apache-2.0
"""Which tasks a verdict would mean something on."""

from __future__ import annotations

from pathlib import Path

import pytest
from plain_tasks import task

from kernelwright import errors
from kernelwright.judge import admission as admission_room
from kernelwright.judge import instance as instances
from kernelwright.judge.admission import Admission, admit
from kernelwright.judge.reference import Reference
from kernelwright.task import Case, Contract, Task

TASKS = sorted(path for path in (Path(__file__).parents[2] / "tasks").glob("*/*") if (path / "reference.py").exists())


def admission(forward: str, inputs: str, **more: object) -> Admission:
    """Admit a plain task on the CPU."""
    return admit(Reference(task(forward, inputs, **more), "cpu"))


@pytest.mark.parametrize(
    ("forward", "inputs", "args"),
    [
        ("F.relu(x)", "[torch.rand(16, 64)]", "x"),
        ("x.mean()", "[torch.rand(16, 64)]", "x"),
        ("x * y", "[torch.ones(16, 64), torch.randn(16, 64)]", "x, y"),
        ("x.argmax(1)", "[torch.randn(16, 64)]", "x"),
        ("torch.topk(x, 3)", "[torch.randn(16, 64)]", "x"),
        ("F.cross_entropy(x, y)", "[torch.randn(16, 9), torch.randint(0, 9, (16,))]", "x, y"),
        ("x + y", "[torch.randint(0, 9, (16,)), torch.randint(0, 9, (16,))]", "x, y"),
        ("torch.triu(x @ y)", "[torch.rand(16, 16), torch.rand(16, 16)]", "x, y"),
        ("x.T.contiguous()", "[torch.rand(16, 9)]", "x"),
    ],
)
@pytest.mark.parametrize("elements", [instances.HUGE, 0])
def test_plain_tasks_are_admitted(
    monkeypatch: pytest.MonkeyPatch, forward: str, inputs: str, args: str, elements: int
) -> None:
    """Every decoy is told from the reference, also where calls count as huge and take few variants."""
    monkeypatch.setattr(instances, "HUGE", elements)
    found = admission(forward, inputs, args=args)
    assert ((), True) == (found.reasons, found.admitted)


@pytest.mark.parametrize(
    ("forward", "inputs", "args", "reason"),
    [
        ("x", "[torch.randn(4, 4)]", "x", "copy of input 0"),
        ("torch.softmax(x.mean(1, keepdim=True), 1)", "[torch.randn(4, 4)]", "x", "ones passes"),
        ("x * 0 + 3", "[torch.randn(4, 4)]", "x", "mean of the output"),
        ("x * 2", "[torch.randn(4, 4), torch.randn(3)]", "x, y", "input 1 ignored"),
        ("torch.relu(x - 1e6)", "[torch.rand(4, 4)]", "x", "zeros passes"),
        ("y.clamp(min=1) + 1e-12 * x", "[torch.rand(4, 4), torch.rand(4, 4) + 1]", "x, y", "input 0 ignored"),
    ],
)
def test_degenerate_tasks_are_refused_in_words(forward: str, inputs: str, args: str, reason: str) -> None:
    """The reason names the program that would pass."""
    scales = Contract(scales=(1.0,))
    found = admission(forward, inputs, args=args, contract=scales)
    assert reason in "; ".join(found.reasons)
    with pytest.raises(errors.NotAdmitted) as caught:
        found.raise_if_refused("plain")
    assert reason in caught.value.got


@pytest.mark.parametrize("forward", ["x.nonzero()", "x[x > 0.5]"])
def test_answers_whose_shape_depends_on_values_are_refused(forward: str) -> None:
    """There is room for those of the first call alone: a copy of the reference had another structure."""
    with pytest.raises(errors.TaskError, match="depends on the values") as caught:
        admission(forward, "[torch.randn(16, 16).round()]")
    assert "for its first inputs" in caught.value.got


def test_a_task_degenerate_only_as_published_is_admitted_with_a_note() -> None:
    """The mean of a group norm is zero until its weights are not ones and zeros."""
    found = admission("self.g(x).mean((1, 2))", "[torch.rand(4, 8, 16)]", init="self.g = nn.GroupNorm(2, 8)")
    assert found.admitted
    assert any("on the task's own inputs and first weights these pass: zeros" in note for note in found.notes)


def test_a_parameter_without_effect_is_noted() -> None:
    """The task is still worth judging. A bias before a batch norm in train() mode cancels but for rounding, by whose
    order it may show."""
    layers = "self.l = nn.Linear(4, 4)\nself.b = nn.BatchNorm1d(4)\nself.p = nn.Parameter(torch.ones(4))"
    given = "[torch.randn(16, 4)]"
    found = admission("self.b(self.l(x)) + (self.p - self.p)", given, init=layers, contract=Contract(training=True))
    assert found.admitted
    assert "parameter p ignored without any effect on the result" in found.notes
    assert "parameter l.weight ignored without any effect on the result" not in found.notes


def test_parameters_that_were_not_ignored_in_turn_are_counted() -> None:
    """A note says how many; with few there is none."""
    layers = "self.n = nn.Sequential(*[nn.Linear(4, 4) for _ in range(20)])"
    found = admission("self.n(x) * 1e3", "[torch.randn(8, 4)]", init=layers)
    assert any(note.startswith("of 40 parameters 24 were ignored") for note in found.notes)
    plain = admission("self.n(x)", "[torch.randn(8, 4)]", init="self.n = nn.Linear(4, 4)")
    assert not any("ignored in turn" in note for note in plain.notes)


def test_own_decoys_are_run_and_one_that_passes_refuses_the_task() -> None:
    """The same function under another name is no decoy; a crash counts as rejected; private classes are parts."""
    text = (
        "import torch\nclass _Base(torch.nn.Module):\n    pass\n"
        "class Same(_Base):\n    def forward(self, x): return x * 2\n"
        "class Crash(_Base):\n    def forward(self, x): raise RuntimeError('no')\n"
        "class Wrong(_Base):\n    def forward(self, x): return x * 3\n"
    )
    found = admission("x + x", "[torch.randn(4, 4)]", decoys=text)
    verdicts = dict(found.decoys)
    assert ("decoys.Same of the task's own decoys passes",) == found.reasons
    assert "raises RuntimeError: no" in verdicts["decoys.Crash"]
    assert "main: as given" in verdicts["decoys.Wrong"]
    assert "decoys._Base" not in verdicts


def test_decoys_that_do_not_import_are_the_users_mistake() -> None:
    """With the line."""
    with pytest.raises(errors.TaskDoesNotImport):
        admission("x + x", "[torch.randn(4, 4)]", decoys="1/0")


@pytest.mark.parametrize("folder", TASKS, ids=lambda path: path.name)
def test_every_shipped_task_is_admitted_at_a_small_size(folder: Path) -> None:
    """Together with its own decoys."""
    text = (folder / "reference.py").read_text()
    scope: dict = {}
    exec(compile(text, "reference", "exec"), scope)
    names = scope["get_inputs"].__code__.co_varnames[: scope["get_inputs"].__code__.co_argcount]
    axes = tuple((name, 24 + 8 * index) for index, name in enumerate(names))
    made = Task(
        name=folder.name,
        form="folder",
        reference=text,
        decoys=(folder / "decoys.py").read_text(),
        cases=(Case(name="main", axes=axes, timed=True),),
    )
    found = admit(Reference(made, "cpu"))
    assert ((), True) == (found.reasons, found.admitted)
    assert [] == [name for name, verdict in found.decoys if name.startswith("decoys.") and "PASSES" in verdict]


def test_what_takes_long_is_said_while_it_is_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each known-wrong program by name where a call of the reference is slow; nothing where it is not."""
    said: list[str] = []
    reference = Reference(task("x * 2", "[torch.rand(16, 64)]"), "cpu")
    admit(reference, say=said.append)
    assert not said
    monkeypatch.setattr(admission_room, "SLOW_S", 0.0)
    found = admit(reference, say=said.append)
    assert found.admitted
    assert {"zeros", "input 0 ignored"} <= {line.rpartition(", ")[2] for line in said}


def test_parameters_are_ignored_in_turn_only_as_far_as_time_allows() -> None:
    """A call of 3 s: one of two parameters, and a note that it is one."""
    made = task("self.a(x)", "[torch.rand(16, 8)]", init="self.a = nn.Linear(8, 8)")
    reference = Reference(made, "cpu")
    reference.instance(made.timed_case()).call_seconds = 3.0
    found = admit(reference)
    assert found.admitted
    assert 1 == sum(name.startswith("parameter") for name, _ in found.decoys)
    assert any(note.startswith("of 2 parameters 1 were ignored in turn") for note in found.notes)


def test_a_result_of_nothing_but_nan_is_named_first() -> None:
    """Every constant passes beside it; that alone would not tell the user why."""
    found = admission("(x - x) / 0", "[torch.randn(16, 64)]")
    assert "output 0 holds no finite number" in found.reasons[0]
    assert not any("finite" in reason for reason in admission("x * 0 + 1", "[torch.randn(16, 64)]").reasons)
