# SPDX-License-Identifier: Apache-2.0
"""The lines of the contract one by one: who breaks one is refused, who keeps it passes.

Values, gradients, outputs, layouts, scales, randomness, exactness and indices are in ``tests/cheats``.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from kernelwright import wire
from kernelwright.candidate import Candidate
from kernelwright.errors import TaskError
from kernelwright.task import Case, Contract, Task
from kernelwright.trial import Outcome, Rejected, Timed
from kernelwright.workers import LocalWorker

LINES = Contract(scales=(1.0,), layouts=("contiguous",))


def task(forward: str, inputs: str, *, init: str = "", args: str = "x", axes: str = "", **contract: object) -> Task:
    """A small task: the bodies of ``forward`` and ``__init__``, what ``get_inputs(axes)`` returns, and its contract."""
    sizes = tuple((name, int(size)) for name, size in (axis.split("=") for axis in axes.split(", ") if axis))
    known = {"scales": LINES.scales, "layouts": LINES.layouts, **contract}
    source = source_of("Model", forward, init, args) + f"def get_inputs({axes}):\n    return {inputs}\n"
    return Task(
        name="lines",
        form="folder",
        reference=source + "def get_init_inputs():\n    return []\n",
        cases=(Case(name="main", axes=sizes, timed=True),),
        contract=Contract(**known),  # type: ignore[arg-type]  # the names are those of its fields
    )


def source_of(name: str, forward: str, init: str, args: str) -> str:
    """Source of a module."""
    lines = "\n".join("        " + line for line in forward.splitlines())
    start = "\n".join("        " + line for line in init.splitlines())
    head = "import torch\nimport torch.nn as nn\nimport torch.nn.functional as F\n\n\n"
    return (
        f"{head}class {name}(nn.Module):\n    def __init__(self):\n        super().__init__()\n{start}\n"
        f"    def forward(self, {args}):\n{lines}\n\n\n"
    )


@pytest.fixture(scope="module")
def worker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalWorker]:
    """One judge for all verdicts of this file."""
    home = tmp_path_factory.mktemp("judge")
    with LocalWorker("cpu", home / "state", home / "cache") as made:
        yield made


def judged(
    worker: LocalWorker, asked: Task, forward: str, *, init: str = "", args: str = "x", **more: object
) -> Outcome:
    """The full verdict on a candidate with these bodies."""
    sources = (("new.py", source_of("ModelNew", forward, init, args)),)
    candidate = Candidate(
        task=asked.digest(), language="torch", entry="new.py::ModelNew", sources=sources, proposer="test"
    )
    job = {"job": "judge", "task": wire.to_data(asked), "candidate": wire.to_data(candidate), "baselines": ["eager"]}
    outcome = worker.run({**job, "level": "precise", "admit": False, **more})["outcome"]
    return wire.from_data(Outcome, outcome)  # type: ignore[arg-type,return-value]  # a union is no class


def refused(worker: LocalWorker, asked: Task, forward: str, words: str, **bodies: str) -> None:
    """It is rejected, and the reason says these words."""
    outcome = judged(worker, asked, forward, **bodies)
    assert isinstance(outcome, Rejected), outcome.conditions
    assert words in outcome.reason


def passed(worker: LocalWorker, asked: Task, forward: str, **bodies: str) -> Timed:
    """It is verified and timed."""
    outcome = judged(worker, asked, forward, **bodies)
    assert isinstance(outcome, Timed), f"{outcome.stage}: {outcome.reason}"
    return outcome


AXES = {"inputs": "[torch.randn(rows, cols)]", "axes": "rows=16, cols=24"}
SUMS = "return x.sum(-1) / x.shape[0] if x.shape[0] else x.sum(-1)"
NEVER_EMPTY = "if x.numel() == 0: raise ValueError('nothing to do')\nreturn x.sum(-1) / x.shape[0]"
WRONG_IF_EMPTY = "return x.sum(-1) / x.shape[0] if x.numel() else x.new_ones(x.shape[0])"


@pytest.mark.slow  # over 40 s on 2 cores
def test_size_zero_is_tried_and_a_failure_narrows_the_proven_space(worker: LocalWorker) -> None:
    """Unasked: a note outside the proven space for a program that cannot, none for one that can."""
    asked = task(SUMS, **AXES)
    noted = [note for note in passed(worker, asked, NEVER_EMPTY).proof.notes if "outside the proven space" in note]
    assert 1 == len(noted) and "=zero" in noted[0] and "nothing to do" in noted[0]
    fine = passed(worker, asked, SUMS)
    assert any("=zero" in case.name and case.passed and not case.required for case in fine.proof.cases)
    assert not any("outside" in note for note in fine.proof.notes)


@pytest.mark.slow  # 27 s on 2 cores
def test_size_zero_is_required_where_the_task_says_so(worker: LocalWorker) -> None:
    """Every axis: an exception and a wrong answer refuse, the honest twin passes with both cases in its proof."""
    asked = task(SUMS, **AXES, zero_size=True)
    refused(worker, asked, NEVER_EMPTY, "nothing to do")
    refused(worker, asked, WRONG_IF_EMPTY, "hidden:cols=zero")
    names = {case.name for case in passed(worker, asked, SUMS).proof.cases if case.required}
    assert {"hidden:rows=zero: as given", "hidden:cols=zero: as given"} <= names


def test_sizes_that_the_reference_refuses_are_not_asked_of_a_candidate(worker: LocalWorker) -> None:
    """amax has no answer for an empty row."""
    asked = task("return x.amax(-1)", **AXES, zero_size=True)
    names = {case.name for case in passed(worker, asked, "return x.max(-1)[0]").proof.cases}
    assert "hidden:rows=zero: as given" in names and not any("cols=zero" in name for name in names)


def test_a_program_that_raises_on_some_inputs_is_told_which(worker: LocalWorker) -> None:
    """Of an error about steps in memory nobody sees by itself that inputs came laid out otherwise."""
    asked = task("return x.reshape(-1, 8).sum(-1)", "[torch.randn(24, 32)]", layouts=("contiguous", "strided"))
    outcome = judged(worker, asked, "return x.view(-1, 8).sum(-1)")
    assert isinstance(outcome, Rejected) and outcome.reason.startswith("raised RuntimeError: view size")
    assert outcome.reason.endswith(("(in main: strided inputs)", "(in main: padded inputs)"))


def test_a_program_that_answers_otherwise_in_train_mode_is_refused(worker: LocalWorker) -> None:
    """By default, where the reference does not care; unlike one that does not care either."""
    asked = task("return torch.relu(x) * 2", "[torch.randn(24, 32)]")
    refused(worker, asked, "return torch.relu(x) * (3 if self.training else 2)", "in train() mode")
    fine = passed(worker, asked, "return x.clamp(min=0) * 2")
    assert not any("not judged in" in words for words in fine.conditions)


def test_a_reference_that_train_mode_moves_by_little_is_no_program_for_both(worker: LocalWorker) -> None:
    """spectral_norm turns its vectors once more in every call there: by 1e-5 at times, and its own reference was
    refused."""
    turned = "return torch.relu(x) * (1.000003 if self.training else 1)"
    asked = task(turned, "[torch.randn(24, 32)]")
    assert any("not judged in train() mode" in words for words in passed(worker, asked, turned).conditions)


def test_a_reference_with_two_modes_is_judged_in_the_one_of_its_contract(worker: LocalWorker) -> None:
    """And the proof says that the other was left out, unless the task asks for both."""
    one = task("return self.bn(x)", "[torch.randn(16, 8)]", init="self.bn = nn.BatchNorm1d(8)")
    now = "self.bn.running_mean, self.bn.running_var, self.bn.weight, self.bn.bias"
    always = f"return F.batch_norm(x, {now}, False, 0.1, 1e-5)"
    assert any("not judged in train() mode" in words for words in passed(worker, one, always, init=BN).conditions)
    both = task("return self.bn(x)", "[torch.randn(16, 8)]", init="self.bn = nn.BatchNorm1d(8)", both_modes=True)
    refused(worker, both, always, "main", init=BN)
    latch = (
        "self.was = getattr(self, 'was', False) or self.training\nif self.was and not self.training: return x * 1.5\n"
    )
    refused(worker, both, latch + "return self.bn(x)", "main", init=BN)
    passed(worker, both, "return self.bn(x)", init=BN)


BN = "self.bn = nn.BatchNorm1d(8)"
LINEAR = {"inputs": "[torch.randn(16, 8)]", "init": "self.fc = nn.Linear(8, 8)"}
FC = "self.fc = nn.Linear(8, 8)"


def test_outputs_without_gradients_are_those_with(worker: LocalWorker) -> None:
    """A program that is right only where gradients are recorded is refused under no_grad, and its twin passes."""
    asked = task("return torch.tanh(self.fc(x))", **LINEAR, gradients=True)
    lazy = "y = torch.tanh(self.fc(x))\nreturn y if torch.is_grad_enabled() else y + 0.01"
    refused(worker, asked, lazy, "torch.no_grad()", init=FC)
    passed(worker, asked, "return self.fc(x).tanh()", init=FC)


def test_what_a_call_leaves_without_gradients_is_what_it_leaves_with(worker: LocalWorker) -> None:
    """Running statistics are taken under no_grad of all of a loader's batches."""
    asked = task("return self.bn(x)", "[torch.randn(16, 8)]", init=BN, gradients=True, training=True)
    lazy = "if torch.is_grad_enabled(): return self.bn(x)\nreturn F.batch_norm(x, None, None, {}, True, 0.1, 1e-5)"
    refused(worker, asked, lazy.format("self.bn.weight, self.bn.bias"), "after a call bn.", init=BN)


def test_inputs_that_are_not_marked_have_no_gradients_where_some_are(worker: LocalWorker) -> None:
    """A target has none from a kernel of a loss; where no input is marked every one has."""
    own = (
        "class Own(torch.autograd.Function):\n    @staticmethod\n    def forward(ctx, x, y):\n"
        "        ctx.save_for_backward(x, y)\n        return (x - y) ** 2\n    @staticmethod\n"
        "    def backward(ctx, g):\n        x, y = ctx.saved_tensors\n        return 2 * g * (x - y), None\n"
        "return Own.apply(x, y)"
    )
    both = "[torch.randn(16, 8){}, torch.randn(16, 8)]"
    marked, plain = (
        task("return (x - y).square()", both.format(mark), args="x, y", gradients=True)
        for mark in (".requires_grad_()", "")
    )
    passed(worker, marked, own, args="x, y")
    refused(worker, plain, own, "gradient of input:1", args="x, y")
    wrong = own.replace("2 * g * (x - y), None", "g * (x - y), None")
    refused(worker, marked, wrong, "gradient of input:0", args="x, y")


def test_a_large_call_of_fixed_size_passes_as_its_own_replacement(worker: LocalWorker) -> None:
    """8 MiB with weights and buffers and no smaller case, as most files of KernelBench are: all checks at that size."""
    init = BN + "\nself.w = nn.Parameter(torch.rand(8) + 0.5)"
    asked = task("return self.bn(x) * self.w", "[torch.randn(1 << 17, 8)]", init=init)
    passed(worker, asked, "return self.w * self.bn(x)", init=init)
    refused(worker, asked, "return self.bn(x)", "output 0", init=init)


def test_a_state_dict_goes_in_and_comes_out_the_same(worker: LocalWorker) -> None:
    """Weights that a program keeps in another form must come back as they were given."""
    asked = task("return self.fc(x)", **LINEAR)
    packs = FC + (
        "\ndef half(module, state, prefix, meta):\n    state['fc.weight'] = state['fc.weight'] / 2\n"
        "self._register_state_dict_hook(half)"
    )
    refused(worker, asked, "return self.fc(x)", "fc.weight is not what", init=packs)
    passed(worker, asked, "return F.linear(x, self.fc.weight, self.fc.bias)", init=FC)


def test_what_a_constructor_draws_and_no_state_dict_holds_is_the_same_for_a_copy(worker: LocalWorker) -> None:
    """``self.h0 = torch.randn(...)``, as recurrent models of KernelBench keep it; other numbers are another program."""
    asked = task("return x + self.h0", "[torch.randn(16, 8)]", init="self.h0 = torch.randn(8)")
    passed(worker, asked, "return self.h0 + x", init="self.h0 = torch.randn(8)")
    refused(worker, asked, "return self.h0 + x", "output 0", init="torch.randn(1)\nself.h0 = torch.randn(8)")


def test_weights_that_cannot_be_loaded_are_refused(worker: LocalWorker) -> None:
    """Other names than the reference's."""
    asked = task("return self.fc(x)", **LINEAR)
    refused(worker, asked, "return self.lin(x)", "fc.weight", init="self.lin = nn.Linear(8, 8)")


WRITES = {"inputs": "[torch.randn(16, 8), torch.randn(16, 8)]", "args": "x, total"}


def test_a_reference_that_writes_to_its_inputs_must_say_so(worker: LocalWorker) -> None:
    """In words: which input, and the line that declares it; declared, it is judged with what it writes."""
    with pytest.raises(TaskError, match=r"(?s)input 1.*contract.mutates = \[1\]"):
        judged(worker, task("total += x\nreturn x * 2", **WRITES), "return x * 2", args="x, total")
    declared = task("total += x\nreturn x * 2", **WRITES, mutates=(1,))
    refused(worker, declared, "return x * 2", "input 1 after the call", args="x, total")
    passed(worker, declared, "total.add_(x)\nreturn x + x", args="x, total")


def test_an_output_that_must_share_storage_with_an_input_does(worker: LocalWorker) -> None:
    """In place, declared as such: a copy is refused; an alias that nobody declared is as well."""
    declared = task("total += x\nreturn total", **WRITES, mutates=(1,), aliases=((0, 1),))
    refused(worker, declared, "total += x\nreturn total.clone()", "must share storage", args="x, total")
    passed(worker, declared, "return total.add_(x)", args="x, total")
    apart = task("return x.clone(), x.sum(-1)", "[torch.randn(16, 8)]")
    refused(worker, apart, "return x, x.sum(-1)", "shares storage with input 0")


def test_nested_inputs_are_handed_over_as_they_are(worker: LocalWorker) -> None:
    """A dict and a list among the positional inputs; a swap of two of their leaves is seen."""
    inputs = "[{'a': torch.randn(16, 8), 'b': [torch.randn(16, 8), 2]}, (torch.randn(8),)]"
    asked = task("return (d['a'] - d['b'][0]) * d['b'][1] + t[0]", inputs, args="d, t")
    refused(worker, asked, "return (d['b'][0] - d['a']) * 2 + t[0]", "output 0", args="d, t")
    passed(worker, asked, "return 2 * d['a'] - 2 * d['b'][0] + t[0]", args="d, t")


def test_named_tuples_among_inputs_keep_their_names(worker: LocalWorker) -> None:
    """Of one type in all calls; what a model returns is compared as tuples are, whoever wrote the type."""
    batch = "__import__('collections').namedtuple('Batch', ['x', 'scale'])"
    asked = task(
        "return b.x * b.scale, type(b)(b.x, -b.scale)", f"[{batch}(torch.randn(16, 8), torch.randn(8))]", args="b"
    )
    refused(worker, asked, "return b.scale * b.x, (b.x, b.scale)", "output 2", args="b")
    passed(worker, asked, "return b.scale * b[0], (b.x, -b.scale)", args="b")


def test_keyword_inputs_are_put_in_order(worker: LocalWorker) -> None:
    """A dict that names parameters is one call, in whatever order; a dict that is one argument stays one."""
    swapped = "{'y': torch.randn(16, 8), 'x': torch.randn(16, 8)}"
    asked = task("return x - 2 * y", swapped, args="x, y")
    passed(worker, asked, "return x - (y + y)", args="x, y")
    refused(worker, asked, "return y - 2 * x", "output 0", args="x, y")
    one = task("return both['x'] - both['y']", swapped, args="both")
    passed(worker, one, "return -both['y'] + both['x']", args="both")


def test_keywords_without_a_place_are_refused_in_one_sentence(worker: LocalWorker) -> None:
    """What to do instead is in it."""
    asked = task("return x + y", "{'x': torch.randn(16, 8), 'y': torch.randn(16, 8)}", args="x, *, y")
    with pytest.raises(TaskError, match=r"(?s)have no order.*by keyword only.*\(x, y\).*let forward take"):
        judged(worker, asked, "return x + y", args="x, *, y")


def test_autocast_is_judged_where_the_task_says_so(worker: LocalWorker) -> None:
    """A program that ignores it answers in another dtype."""
    asked = task("return self.fc(x)", **LINEAR, autocast=True)
    heedless = "with torch.autocast('cpu', enabled=False):\n    return self.fc(x.float())"
    refused(worker, asked, heedless, "float32", init=FC)
    passed(worker, asked, "return F.linear(x, self.fc.weight, self.fc.bias)", init=FC)


def test_repeats_are_bit_for_bit_where_the_task_says_so(worker: LocalWorker) -> None:
    """A last bit that differs from call to call is within the precision and outside this contract."""
    asked = task("return x * 2", "[torch.randn(16, 8)]", deterministic=True, bits_lost=6.0)
    loose = task("return x * 2", "[torch.randn(16, 8)]", bits_lost=6.0)
    shaky = "self.n = getattr(self, 'n', 0) + 1\nreturn x * 2 * (1 + (self.n % 2) * 2.4e-7)"
    refused(worker, asked, shaky, "two calls on equal inputs differ")
    passed(worker, asked, "return x + x")
    assert not passed(worker, loose, shaky).proof.deterministic


def test_an_empty_row_of_a_mask_is_met_before_a_coarse_time(worker: LocalWorker) -> None:
    """A search that hears of a division by an empty row at its proof alone has nothing left to mend with."""
    mean = "return (x * keep).sum(-1) / keep.sum(-1){}"
    asked = task(mean.format(".clamp(min=1)"), "[torch.randn(64, 32), torch.rand(64, 32) > 0.3]", args="x, keep")
    asked_soon = {"args": "x, keep", "level": "coarse", "verify": True}
    wrong = judged(worker, asked, mean.format(""), **asked_soon)
    assert isinstance(wrong, Rejected) and "verify" == wrong.stage
    assert "empty samples" in wrong.reason or "mask rows" in wrong.reason
    assert isinstance(judged(worker, asked, mean.format(".clamp(min=1)"), **asked_soon), Timed)
