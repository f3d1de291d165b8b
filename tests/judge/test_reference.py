# SPDX-License-Identifier: Apache-2.0
"""What the judge says about references that cannot be used."""

from __future__ import annotations

import contextlib
import dataclasses
import inspect
from pathlib import Path

import pytest
import torch
from plain_tasks import instance, task

from kernelwright import errors
from kernelwright.judge import reference, refusals, skeletons
from kernelwright.judge.inputs import Variant
from kernelwright.judge.reference import Reference, execute
from kernelwright.task import Case, Contract, Task


def source_only(text: str) -> Task:
    """A task around raw source text."""
    return Task(name="raw", form="kernelbench", reference=text)


def test_source_that_raises_names_the_line() -> None:
    """The user is told which line of the file raised, in the error of its own kind."""
    with pytest.raises(errors.TaskDoesNotImport) as caught:
        Reference(source_only("import torch\nraise KeyError('lost')\n"), "cpu")
    assert "KeyError: 'lost' (line 2)" == caught.value.got


def test_source_that_exits_is_source_that_fails() -> None:
    """A script that ends with sys.exit() must not end the judge, or leave it waiting."""
    with pytest.raises(errors.TaskDoesNotImport) as caught:
        Reference(source_only("import sys\nsys.exit(3)\n"), "cpu")
    assert "SystemExit: 3 (line 2)" == caught.value.got


def test_annotations_are_what_the_file_says() -> None:
    """No future statement but the source's own holds in it: what reads types of fields sees types."""
    for head, wanted in (("", int), ("from __future__ import annotations\n", "int")):
        assert wanted == execute(head + "def sized(n: int): ...", "annotated").sized.__annotations__["n"]


def test_missing_names_are_listed() -> None:
    """A file without get_inputs says so."""
    with pytest.raises(errors.TaskIncomplete) as caught:
        Reference(source_only("import torch\nclass Model(torch.nn.Module): pass\n"), "cpu")
    assert "The reference of raw lacks get_inputs." == caught.value.what


@pytest.mark.parametrize(
    ("forward", "inputs", "error"),
    [
        ("x @ x", "[torch.randn(3, 4)]", errors.ReferenceFails),
        ("exit(3)", "[torch.randn(3, 4)]", errors.ReferenceFails),
        ("x", "exit(3)", errors.ReferenceFails),
        ("x + torch.rand_like(x)", "[torch.randn(3, 4)]", errors.ReferenceIsRandom),
        ("3.5", "[torch.randn(3, 4)]", errors.NoTensorOutput),
        ("object()", "[torch.randn(3, 4)]", errors.NoTensorOutput),
        ("x", "[torch.randn(0, 4)]", errors.EmptyShape),
        ("x", "[torch.randn(int(torch.randint(9, 99999, ())), 4)]", errors.TaskError),
        ("x", "[torch.randn(3).to(torch.float64 if torch.initial_seed() % 2 else torch.float32)]", errors.TaskError),
        ("x", "[torch.empty(3, device='meta')]", errors.WrongDevice),
        ("x.to('cuda')", "[torch.randn(3, 4)]", errors.WrongDevice),
    ],
)
def test_each_unusable_reference_has_its_own_error(forward: str, inputs: str, error: type) -> None:
    """The class decides the exit code; the message is complete."""
    if error is errors.WrongDevice and "cuda" in forward and torch.cuda.is_available():
        pytest.skip("a CUDA device is present, so the reference runs")
    with pytest.raises(error) as caught:
        instance(forward, inputs)
    assert [] == [part for part in (caught.value.got, caught.value.expected, caught.value.what_next) if not part]


@pytest.mark.parametrize(
    ("contract", "words"),
    [
        (Contract(mutates=(2,)), "contract.mutates .*got: input 2\n  expected: input 0 to 1"),
        (Contract(aliases=((0, 5),)), "contract.aliases .*got: input 5"),
        (Contract(index_outputs=((1, 0),)), "contract.index_outputs .*got: output 1\n  expected: output 0 to 0"),
    ],
)
def test_a_contract_about_tensors_that_are_not_there_is_the_tasks_mistake(contract: Contract, words: str) -> None:
    """Named with the places there are; it would be checked nowhere, or end the judge."""
    with pytest.raises(errors.TaskError, match=f"(?s){words}"):
        instance("x + y", "[torch.randn(3), torch.randn(3)]", args="x, y", contract=contract)


def test_random_references_pass_when_declared_and_eval_dropout_is_not_random() -> None:
    """Dropout in eval() mode draws nothing."""
    made = instance("self.d(x)", "[torch.randn(3, 4)]", init="self.d = nn.Dropout(0.5)")
    assert [] == made.notes


def test_axes_reach_get_inputs_and_get_init_inputs() -> None:
    """A case binds the sizes of its own instance; axes that nobody takes are refused."""
    text = (
        "import torch\nclass Model(torch.nn.Module):\n    def __init__(self, n):\n        super().__init__()\n"
        "        self.w = torch.nn.Parameter(torch.ones(n))\n    def forward(self, x):\n        return x * self.w\n"
        "def get_inputs(n=4, m=2):\n    return [torch.randn(m, n)]\ndef get_init_inputs(n=4):\n    return [n]\n"
    )
    reference = Reference(source_only(text), "cpu")
    small = reference.instance(Case(name="small", axes=(("n", 3), ("m", 5))))
    assert (5, 3) == small.specs[0].shape
    assert [("w", (3,))] == [(name, tuple(value.shape)) for name, value in small.first_state]
    with pytest.raises(errors.TaskIncomplete):
        reference.instance(Case(name="odd", axes=(("q", 3),)))


def test_hidden_cases_take_every_axis_to_one_and_to_an_odd_size() -> None:
    """Shapes nobody was told of come from the axes of the timed case."""
    made = task("x", "[torch.randn(4, 4)]", cases=(Case(name="main", axes=(("n", 64), ("m", 32)), timed=True),))
    found = [case.axes for case in Reference(made, "cpu").hidden_cases(seed=5)]
    assert [(("n", 1), ("m", 33)), (("n", 1), ("m", 32))] == found[:2]
    assert 1 == dict(found[2])["n"] % 2
    assert (("n", 69), ("m", 1)) in found


def test_beside_an_odd_axis_the_others_are_even_and_no_multiples_of_four() -> None:
    """Where the reference does not take that, as before."""
    made = task("x", "[torch.randn(4, 4)]", cases=(Case(name="main", axes=(("n", 64), ("m", 3)), timed=True),))
    met = set()
    for seed in range(0, 1 << 14, 99):
        odd = [case.axes for case in Reference(made, "cpu").hidden_cases(seed) if case.name == "hidden:m=odd"]
        assert all(dict(axes)["m"] == 3 for axes in odd) and dict(odd[1])["n"] == 48
        met.add(dict(odd[0])["n"])
    assert met == set(range(6, 47, 4))
    assert [2, 3, 5, 6] == [reference.even(size, 7) for size in (2, 3, 5, 6)]


def test_source_of_the_reference_can_be_inspected() -> None:
    """torch.jit and Triton read the source text of functions."""
    reference = Reference(task("x + 1", "[torch.randn(2)]"), "cpu")
    assert "return x + 1" in inspect.getsource(reference.module.Model)


@pytest.mark.parametrize("model", ["def Model(): return 7", "class Model:\n    def forward(self, x): return x"])
def test_a_model_that_is_no_module_is_told_so(model: str) -> None:
    """And not that it lacks ``to``."""
    source = f"import torch\n{model}\ndef get_inputs(): return [torch.randn(4)]\ndef get_init_inputs(): return []\n"
    odd = source_only(source)
    with pytest.raises(errors.TaskIncomplete, match="no torch.nn.Module") as caught:
        Reference(odd, "cpu").instance(odd.timed_case())
    assert caught.value.got in ("Model(...) is of type int", "Model(...) is of type Model")


def test_functions_of_the_reference_import_from_its_folder_when_they_are_called(tmp_path: Path) -> None:
    """As they do where the file is run by itself, with its folder first on the path."""
    (tmp_path / "kw_first.py").write_text("ONE = 1.0\n")
    (tmp_path / "kw_second.py").write_text("TWO = 2.0\n")
    made = task("x * ONE * second()", "[torch.ones(3)]", head="from kw_first import ONE\n" + SECOND)
    made = dataclasses.replace(made, imports=(str(tmp_path),))
    found = Reference(made, "cpu").instance(made.timed_case())
    assert [2.0] * 3 == found.eager([torch.ones(3)], None)[0].tolist()


SECOND = "def second():\n    from kw_second import TWO\n    return TWO\n"


COUNTED = "self.register_buffer('seen', torch.zeros(4))"


def test_answers_that_hang_on_earlier_calls_are_refused_with_what_to_do() -> None:
    """Every candidate would be refused for it; buffers that no answer depends on are no matter."""
    forward = "self.seen.add_(x.sum(0)){}"
    training = Contract(training=True)
    with pytest.raises(errors.TaskError, match=r"earlier calls left in its buffers(.|\n)*contract\.mutates"):
        instance(forward.format(" + x"), "[torch.rand(3, 4)]", init=COUNTED, contract=training)
    instance(forward.format(" * 0 + x"), "[torch.rand(3, 4)]", init=COUNTED, contract=training)


def test_the_largest_value_met_so_far_is_carried_too() -> None:
    """After equal inputs it is what it was: only others in between tell."""
    largest = "self.seen.copy_(torch.maximum(self.seen, x.abs().amax(0)))"
    for training in (True, False):
        with pytest.raises(errors.TaskError, match="earlier calls left in its buffers"):
            instance(f"x / {largest}", "[torch.rand(3, 4)]", init=COUNTED, contract=Contract(training=training))


@pytest.mark.parametrize("counter", ["self.register_buffer('n', torch.zeros(()))", "self.n = 0", "self.n = []"])
def test_state_that_is_taken_anew_on_every_seventh_call_is_carried_too(counter: str) -> None:
    """Whoever counts the calls, a buffer or a plain number beside it: a copy of the reference was refused for it."""
    head = (
        "def step(self, x):\n    self.n = self.n + ([1] if isinstance(self.n, list) else 1)\n"
        "    if int(len(self.n) if isinstance(self.n, list) else self.n) % 7 == 0:\n        self.seen.copy_(x.sum(0))\n"
        "    return x - self.seen\n"
    )
    with pytest.raises(errors.TaskError, match="earlier calls left in its buffers"):
        instance("step(self, x)", "[torch.rand(3, 4)]", init=f"{COUNTED}\n{counter}", head=head)


def test_what_is_taken_anew_at_every_thousandth_call_is_met_in_a_window_that_begins_shortly_before() -> None:
    """Nobody makes a thousand calls to admit a task; a window begins with any count, and a right program was refused
    for the calls after the thousandth. One that ends before it says nothing, nor does one of other weights."""
    head = (
        "def step(self, x):\n    self.n += 1\n    self.seen.mul_(0.9).add_(0.1 * x.sum(0))\n"
        "    if int(self.n) % 1000 == 0:\n        self.taken.copy_(self.seen)\n    return x - self.taken\n"
    )
    counter = "self.register_buffer('n', torch.zeros((), dtype=int))"
    init = f"{COUNTED}\nself.register_buffer('taken', torch.zeros(4))\n{counter}"
    made = instance("step(self, x)", "[torch.rand(3, 4)]", init=init, head=head, contract=Contract(training=True))
    leaves = made.draw(Variant(name="as given", required=True), 3)
    for count, calls, met in ((990, 10, True), (990, 8, False), (999, 2, True), (0, 12, False)):
        state = [(name, value + count if name == "n" else value) for name, value in made.first_state]
        with contextlib.ExitStack() as kept:
            if met:
                kept.enter_context(pytest.raises(errors.TaskError, match="earlier calls left in its buffers"))
            refusals.carried_in_a_window(made, leaves, state, calls)


KEPT = {
    "scale of the first call": "if self.s is None: self.s = x.std()\n    return x / self.s",
    "running mean": "self.s = x.mean() if self.s is None else 0.9 * self.s + 0.1 * x.mean()\n    return x - self.s",
    "largest so far": "self.s = x.max() if self.s is None else torch.maximum(self.s, x.max())\n    return x / self.s",
    "in place": "if self.s is None: self.s = torch.zeros(4)\n    return x - self.s.add_(x.mean(0))",
}


@pytest.mark.parametrize("kept", list(KEPT))
def test_tensors_that_are_kept_in_attributes_are_carried_too(kept: str) -> None:
    """A copy of the reference was refused for them, with another reason; a table that is made once is no state."""
    head = "def step(self, x):\n    {}\n"
    with pytest.raises(errors.TaskError, match="earlier calls left in its (buffers or )?attributes"):
        instance("step(self, x)", "[torch.rand(3, 4)]", init="self.s = None", head=head.format(KEPT[kept]))
    table = "if self.s is None: self.s = torch.arange(4.0).cos()\n    return x * self.s"
    instance("step(self, x)", "[torch.rand(3, 4)]", init="self.s = None", head=head.format(table))


@pytest.mark.parametrize(
    ("forward", "inputs", "said"),
    [
        ("x.to_sparse()", "[torch.randn(3, 4)]", "Output 0 of raw is no dense tensor.: sparse_coo"),
        ("x.to_dense() * 2", "[torch.eye(3).to_sparse_csr()]", "Input 0 of raw is no dense tensor.: sparse_csr"),
        ("x * 2", "[torch.nested.nested_tensor([torch.ones(2), torch.ones(3)])]", "Input 0 of raw is no dense"),
    ],
)
def test_tensors_that_are_not_dense_are_named(forward: str, inputs: str, said: str) -> None:
    """No defect of the judge's: it says what cannot be handed over, and what to do."""
    text = f"""import torch
class Model(torch.nn.Module):
    def forward(self, x):
        return {forward}
def get_inputs():
    return {inputs}
"""
    with pytest.raises(errors.TaskError) as caught:
        Reference(source_only(text), "cpu").instance(Case(name="main"))
    assert f"{caught.value.what}: {caught.value.got}".startswith(said)


def with_inputs(inputs: str) -> Task:
    """A reference of two arguments, and what get_inputs returns."""
    return source_only(
        "import random\nimport numpy as np\nimport torch\nseen = [0]\nclass Model(torch.nn.Module):\n"
        "    def forward(self, x, n):\n        return x * 2\n"
        f"def get_inputs():\n    return [torch.randn(3, 4), {inputs}]\n"
    )


@pytest.mark.parametrize("given", [3, 0.5, True, None, "mean", float("inf"), (2, [None, 1.0])])
def test_what_is_no_tensor_reaches_forward_as_it_is(given: object) -> None:
    made = Reference(with_inputs(repr(given).replace("inf", "float('inf')")), "cpu").instance(Case(name="main"))
    args = skeletons.unflatten(made.skeleton, made.draw(made.offered(3)[0], 5))
    assert (type(given), given, []) == (type(args[1]), args[1], made.notes)


def test_numbers_that_are_drawn_are_said_to_stay() -> None:
    made = Reference(with_inputs("random.random()"), "cpu").instance(Case(name="main"))
    assert ["argument 1 is not a tensor, and another in other draws: judged with one of them"] == made.notes


@pytest.mark.parametrize(
    ("inputs", "said"),
    [
        ("np.int64(3)", "handed to another process.: a value of type int64"),
        ("range(3)", "handed to another process.: a value of type range"),
        ("torch.ones(2) if seen.append(0) or len(seen) % 2 else None", "in another.: arguments 0; arguments 0, 1"),
    ],
)
def test_arguments_that_no_other_process_can_have_are_named(inputs: str, said: str) -> None:
    """And what to return instead: nothing raises where the file is run by itself."""
    with pytest.raises(errors.TaskError) as caught:
        Reference(with_inputs(inputs), "cpu").instance(Case(name="main"))
    assert f"{caught.value.what}: {caught.value.got}".endswith(said)


@pytest.mark.parametrize(
    ("kind", "wider"),
    [("float8_e4m3fn", "float32"), ("float8_e5m2", "float32"), ("float8_e8m0fnu", "float32"), ("uint16", "int64"),
     ("complex32", "complex64")],
)  # fmt: skip
def test_types_that_answers_are_not_judged_are_named(kind: str, wider: str) -> None:
    """At once, with what to return instead; as what lies between, and as inputs, they pass."""
    with pytest.raises(errors.TaskError) as caught:
        instance(f"x, x.abs().to(torch.{kind})", "[torch.rand(3, 4)]")
    assert 10 == caught.value.exit_code
    assert caught.value.what.startswith("Output 1 of") and kind == caught.value.got
    assert "float32, float64, complex64" in caught.value.expected and f".to(torch.{wider})" in caught.value.what_next
    instance(f"x.abs().to(torch.{kind}).to(torch.{wider})", "[torch.rand(3, 4)]")
    given = f"[torch.rand(3, 4).to(torch.{kind})]"
    if kind == "complex32":  # torch does not even compare two of them
        with pytest.raises(errors.TaskError, match="Input 0 of"):
            instance(f"x.to(torch.{wider})", given)
        return
    instance(f"x.to(torch.{wider})", given)
    with pytest.raises(errors.TaskError, match="Input 0, which is written to, of"):
        instance(f"(x.copy_(x.to(torch.{wider}) * 0), x.to(torch.{wider}))[1]", given, contract=Contract(mutates=(0,)))


def test_expanded_inputs_are_written_out_and_said_to_be() -> None:
    """Elements that share memory cannot be given values of their own; the reference never fails for it."""
    found = instance("x + m", "[torch.randn(6, 4), torch.randn(1, 4).expand(6, 4)]", args="x, m")
    assert {1} == found.expanded
    assert [(4, 1), (4, 1)] == [spec.stride for spec in found.specs]
    windows = instance("x * 2", "[torch.randn(8).unfold(0, 4, 1)]")
    assert (frozenset(), [(4, 1)]) == (windows.expanded, [spec.stride for spec in windows.specs])


def test_advice_names_a_line_only_where_one_is_named() -> None:
    """Arguments that do not fit raise in no line of the file."""
    with pytest.raises(errors.ReferenceFails) as caught:
        instance("x + y", "[torch.randn(3)]", args="x, y")
    assert "(line" not in caught.value.got
    assert "run Model(*get_init_inputs())(*get_inputs()) with Python and mend what raises" == caught.value.what_next
    with pytest.raises(errors.ReferenceFails, match=r"\(line \d+\)") as caught:
        instance("x + missing", "[torch.randn(3)]")
    assert "the line named above" in caught.value.what_next


def test_a_hidden_state_in_an_attribute_is_no_chance() -> None:
    """A recurrent module that goes on from its last call: to seed it, or to declare it random, would be no help."""
    head = "def step(self, x):\n    self.h = torch.tanh(x + self.h)\n    return self.h\n"
    with pytest.raises(errors.TaskError, match="earlier calls left in its buffers or attributes") as caught:
        instance("step(self, x)", "[torch.randn(3, 4)]", init="self.h = torch.randn(3, 4)", head=head)
    assert not isinstance(caught.value, errors.ReferenceIsRandom)
    head = head.replace("torch.tanh(x + self.h)", "torch.rand_like(x)")
    with pytest.raises(errors.ReferenceIsRandom):
        instance("step(self, x)", "[torch.randn(3, 4)]", init="self.h = torch.randn(3, 4)", head=head)


def test_an_interrupt_that_the_reference_raises_is_its_own() -> None:
    """The judge ended under it, was started again, and the run said that the reference does not come to an end."""
    head = "def stop():\n    raise KeyboardInterrupt\n"
    with pytest.raises(errors.ReferenceFails, match="KeyboardInterrupt"):
        instance("stop()", "[torch.rand(3)]", head=head)


def test_a_reference_that_reads_a_file_beside_it_hears_why_it_is_not_there() -> None:
    """To run the file with Python was no help: there it works."""
    head = "import os\nHERE = open(os.path.join(os.path.dirname(__file__), 'scale.txt')).read()\n"
    with pytest.raises(errors.TaskDoesNotImport, match="let the file make what it reads"):
        instance("x", "[torch.rand(3)]", head=head)
