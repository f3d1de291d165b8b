# SPDX-License-Identifier: Apache-2.0
"""The exported drop-in as a module: what calls write to it, what its owner changes in it, and copies of it."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from export_bench import BINDING, COMMAND, CPP, SQUARE, alone, leaf, trial

from kernelwright import export
from kernelwright.task import Contract, Task

NOTING = """import torch
from torch import nn


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.scale, self.calls, self.history = 2.0, 0, []
        self.names = {"shift": 0.0}
        self.register_buffer("mean", torch.zeros(8))

    def forward(self, x):
        self.calls += 1
        self.history.append(x.shape[0])
        if self.training:
            self.mean = 0.9 * self.mean + 0.1 * x.mean(0)
        if x.shape[0] == 3:
            raise ValueError("three rows")
        return (x - self.mean) * self.scale + self.names["shift"]
"""
LAYERS = """import torch
from torch import nn


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(8, 8)
        self.norm = nn.LayerNorm(8)
        self.drop = nn.Dropout(0.5)
        self.act = nn.GELU()

    def forward(self, x):
        return self.act(self.drop(self.norm(self.fc(x))))
"""
WEIGHTS = [leaf(8, 8), leaf(8), leaf(8), leaf(8)]
# Marked wrong by exactly one, so that a test can see which program answered; once with a constructor of its own, once
# as the reference with another forward.
EXTENSION = "\n\nclass ModelNew(Model):\n    def forward(self, x):\n        return super().forward(x) + 1\n"


def fast(reference: str, extends: bool) -> str:
    """The marked program."""
    if extends:
        return reference + EXTENSION
    return reference.replace("class Model(", "class Base(") + EXTENSION.replace("Model)", "Base)")


def place(folder: Path, reference: str, source: str, state: list[dict[str, object]], **contract: bool) -> None:
    """Export a program judged at 4 rows of 8."""
    task = Task(name="noting", form="folder", reference=reference, contract=Contract(**contract))
    export.write(
        folder, task, trial(task, {"fast.py": source}), cases=[{"name": "m", "inputs": [leaf(4, 8)], "state": state}]
    )


@pytest.mark.parametrize("extends", [True, False])
def test_what_the_reference_writes_into_itself_is_kept(extends: bool, tmp_path: Path) -> None:
    """Buffers by assignment, numbers and lists, also of a call that fails: as after the same calls of the reference."""
    place(tmp_path, NOTING, fast(NOTING, extends), [leaf(8)])
    out, _ = alone(
        tmp_path,
        """
        import optimized
        for kind in (optimized._Reference, optimized.ModelNew):
            model = kind().train()
            for rows in (4, 5, 3, 4, 4):
                try:
                    model(torch.ones(rows, 8))
                except ValueError:
                    pass
            out.append([model.mean.tolist(), model.calls, list(model.history)])
            out.append(torch.equal(model.state_dict()["mean"], model.mean))
        model.eval()
        out.append([float(model(torch.ones(4, 8))[0, 0] - (1 - model.mean[0]) * 2), model.calls])
        """,
    )

    assert out[0] == out[2]
    assert (5, [4, 5, 3, 4, 4]) == (out[0][1], out[0][2])
    assert [True, True] == [out[1], out[3]]
    assert [1.0, 6] == pytest.approx(out[4], abs=1e-6)


@pytest.mark.parametrize("extends", [True, False])
def test_values_set_later_are_seen(extends: bool, tmp_path: Path) -> None:
    """A number set or a dict written to after construction leaves the fast program and reaches the reference."""
    place(tmp_path, NOTING, fast(NOTING, extends), [leaf(8)])
    code = """
        import optimized
        x = torch.ones(4, 8)
        def answers(change):
            model = optimized.ModelNew().eval()
            said = [float(model(x)[0, 0]), float(model(x)[0, 0])]
            change(model)
            return said + [float(model(x)[0, 0]), float(model(x)[0, 0])]
        out.append(answers(lambda model: None))
        out.append(answers(lambda model: setattr(model, "scale", 10.0)))
        out.append(answers(lambda model: model.names.update(shift=5.0)))
        model = optimized.ModelNew().train()
        model.scale = 10.0
        out.append(round(float(model(x)[0, 0]), 4))
    """
    out, said = alone(tmp_path, code)

    assert [[3.0, 3.0, 3.0, 3.0], [3.0, 3.0, 10.0, 10.0], [3.0, 3.0, 7.0, 7.0], 9.0] == out
    assert 1 == len(said) and "scale was changed" in said[0]


CHANGES = {
    "weight_norm": "torch.nn.utils.parametrizations.weight_norm(model.fc)",
    "old weight_norm": "torch.nn.utils.weight_norm(model.fc)",
    "pruned": "prune.random_unstructured(model.fc, 'weight', amount=0.0)",
    "wrapped": "model.fc = torch.nn.Sequential(model.fc)",
    "another class": "model.act = torch.nn.ReLU()",
    "taken away": "del model.fc.bias; model.fc.bias = None",
}


@pytest.mark.parametrize("change", list(CHANGES))
def test_weights_that_are_not_where_they_were_are_an_error(change: str, tmp_path: Path) -> None:
    """Neither program may answer with weights that have no match, before or after the first call, in either mode."""
    place(tmp_path, LAYERS, fast(LAYERS, True), WEIGHTS)
    code = """
        import optimized
        from torch.nn.utils import prune
        for mode in (False, True):
            for called in (False, True):
                model = optimized.ModelNew().train(mode)
                with torch.no_grad():
                    if called:
                        model(torch.ones(4, 8))
                    CHANGE
                    try:
                        model(torch.ones(4, 8))
                    except RuntimeError as error:
                        out.append(str(error))
    """
    out, _ = alone(tmp_path, code.replace("CHANGE", CHANGES[change]))

    assert 4 == len(out)
    assert all("expected a " in text and "optimise that" in text for text in out)


@pytest.mark.parametrize("extends", [True, False])
def test_parts_changed_by_hand_are_the_references(extends: bool, tmp_path: Path) -> None:
    """Other constants, modes and hooks of parts, and weights put in place, end the fast path only where they must."""
    place(tmp_path, LAYERS, fast(LAYERS, extends), WEIGHTS)
    code = """
        import optimized
        x = torch.randn(4, 8)
        def by_hand(model, eps=1e-5):
            y = torch.nn.functional.layer_norm(model.fc(x), (8,), model.norm.weight, model.norm.bias, eps)
            return torch.nn.functional.gelu(y)
        def fast(model, change, eps=1e-5):
            with torch.no_grad():
                model(x)
                change(model)
                return round(float((model(x) - by_hand(model, eps)).mean()), 4)
        new = lambda: optimized.ModelNew().eval()
        other = torch.nn.Parameter(torch.randn(8, 8))
        out.append(fast(new(), lambda model: setattr(model.fc, "weight", other)))
        out.append(fast(new(), lambda model: setattr(model.fc.weight, "data", torch.randn(8, 8))))
        out.append(fast(new(), lambda model: setattr(model, "fc", torch.nn.Linear(8, 8).eval())))
        out.append(fast(new(), lambda model: setattr(model.norm, "eps", 0.5), 0.5))
        model = new().train()
        model.drop.eval()
        out.append(fast(model, lambda model: None))
        model = new()
        out.append(fast(model, lambda model: model.drop.train()) != 0.0)
        if EXTENDS:
            model, seen = new(), []
            out.append(fast(model, lambda model: model.norm.register_forward_hook(lambda *a: seen.append(1))))
            out.append(len(seen))
        with torch.no_grad():
            try:
                model = new()
                model(x)
                model.fc.half()
                model(x)
            except RuntimeError as error:
                out.append("dtype" in str(error))
    """
    out, _ = alone(tmp_path, code.replace("EXTENDS", str(extends)))

    assert [1.0, 1.0, 1.0, 0.0, 0.0, True] + [0.0, 1] * extends + [True] == out


def test_recurrent_weights_reach_the_reference(tmp_path: Path) -> None:
    """A recurrent layer calls a list it made of its weights; the reference's has this module's."""
    reference = NOTING[: NOTING.index("        self.scale")] + (
        "        self.rnn = nn.GRU(8, 8)\n\n    def forward(self, x):\n        return self.rnn(x)[0]\n"
    )
    place(tmp_path, reference, fast(reference, False), [leaf(24, 8), leaf(24, 8), leaf(24), leaf(24)])
    code = """
        import optimized
        with torch.no_grad():
            model = optimized.ModelNew().eval()
            x = torch.ones(5, 8)
            for change in (lambda: None, lambda: [p.mul_(2) for p in model.parameters()], lambda: model.double()):
                change()
                x = x.to(model.rnn.weight_ih_l0.dtype)
                out.append(torch.equal(model(x), model.rnn(x)[0]))
    """

    assert [True] * 3 == alone(tmp_path, code)[0]


@pytest.mark.parametrize(
    "made",
    [
        "self.quick = torch.compile(super().forward, backend='eager')",
        "me = self\n        self.quick = lambda x: Model.forward(me, x)",
        "me = self\n        self.forward = lambda x: Model.forward(me, x) + 1",
    ],
)
def test_a_copy_never_answers_with_the_originals_weights(made: str, tmp_path: Path) -> None:
    """A function that a program made of itself stays with the original; its copies answer by the reference."""
    source = LAYERS + (
        "\n\nclass ModelNew(Model):\n    def __init__(self):\n        super().__init__()\n        "
        + made
        + "\n\n    def forward(self, x):\n        return self.quick(x) + 1\n"
    )
    place(tmp_path, LAYERS, source, WEIGHTS)
    code = """
        import copy, optimized
        model, x = optimized.ModelNew().eval(), torch.randn(4, 8)
        with torch.no_grad():
            first = model(x)
            twin = copy.deepcopy(model)
            for weight in twin.parameters():
                weight.zero_()
            out.append(twin(x).unique().tolist())
            out.append(torch.equal(model(x), first))
            twin.load_state_dict(model.state_dict())
            out.append(torch.allclose(twin(x) + 1, first))
    """

    assert [[0.0], True, True] == alone(tmp_path, code)[0]


def test_the_program_may_note_things_in_itself(tmp_path: Path) -> None:
    """What the fast program writes to its own attributes is no change from outside: it stays in use."""
    place(tmp_path, NOTING, fast(NOTING, True), [leaf(8)])
    code = """
        import copy, optimized
        model = optimized.ModelNew().eval()
        for _ in range(3):
            out.append(float(model(torch.ones(4, 8))[0, 0]))
        model(torch.ones(5, 8))
        out.append(float(model(torch.ones(4, 8))[0, 0]))
        twin = copy.deepcopy(model)
        out += [float(twin(torch.ones(4, 8))[0, 0]), twin.calls, model.calls, twin.history]
    """

    assert [3.0] * 5 + [6, 5, [4, 4, 4, 5, 4, 4]] == alone(tmp_path, code)[0]


@pytest.fixture(scope="module")
def native(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An exported C++ program, which no tracer sees into."""
    if shutil.which("g++") is None:
        pytest.skip("no g++")
    folder = tmp_path_factory.mktemp("native")
    task = Task(name="square", form="folder", reference=SQUARE)
    won = trial(task, {"fast.py": BINDING, "square.cpp": CPP}, "cpp")
    seen = [{"name": "main", "inputs": [leaf(6)], "state": []}]
    export.write(folder, task, won, cases=seen, commands={"square.cpp": COMMAND})
    return folder


def test_a_tracer_is_shown_the_reference(native: Path) -> None:
    """torch.jit.trace records operators: of a kernel it would keep an empty tensor."""
    code = """
        import optimized
        x = torch.arange(6.0)
        traced = torch.jit.trace(optimized.ModelNew(), (x,), check_trace=False)
        out += traced(x + 1).tolist()
        out.append(getattr(optimized.ModelNew, "calls", 0))
    """

    assert [1.0, 4.0, 9.0, 16.0, 25.0, 36.0, 0] == alone(native, code)[0]


def test_forward_mode_derivatives_come_from_the_reference(native: Path) -> None:
    """A kernel drops the tangent of a dual tensor without a word."""
    code = """
        import optimized
        from torch.autograd import forward_ad
        model, x = optimized.ModelNew(), torch.arange(3.0).repeat(2)
        model(x)
        with forward_ad.dual_level():
            y = model(forward_ad.make_dual(x, torch.ones(6)))
            out += forward_ad.unpack_dual(y).tangent.tolist()
        model(x)
        out.append(optimized.ModelNew.calls)
    """

    assert [0.0, 2.0, 4.0, 0.0, 2.0, 4.0, 2] == alone(native, code)[0]


TABLE = """import torch
from torch import nn


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("table", torch.arange(8.0), persistent=False)

    def forward(self, x):
        return x + self.table


def get_inputs():
    return [torch.randn(4, 8)]


def get_init_inputs():
    return []
"""
OWN_TABLES = {
    "the same": ("torch.arange(8.0)", "self.table"),
    "in another order": ("torch.arange(8.0).view(2, 4).T.reshape(8)", "self.table.view(4, 2).T.reshape(8)"),
    "half of it": ("torch.arange(4.0)", "torch.cat((self.table, self.table + 4))"),
    "made in the first call": ("None", "self.made()"),
}


@pytest.mark.parametrize("given", OWN_TABLES)
def test_a_buffer_beside_the_state_may_hold_other_things_under_its_name(given: str, tmp_path: Path) -> None:
    """The reference was given it, and answered with it, or failed; what both hold and somebody sets reaches both."""
    value, used = OWN_TABLES[given]
    program = TABLE.replace("class Model(", "class ModelNew(").replace("self.table\n", f"{used} + 100\n")
    program = program.replace("torch.arange(8.0)", value) + (
        "\n\ndef made(self):\n    if self.table is None:\n        self.table = torch.arange(8.0)\n"
        "    return self.table\n\n\nModelNew.made = made\n"
    )
    place(tmp_path, TABLE, program, [])
    code = """
        import copy, optimized
        inside, outside, model = torch.ones(4, 8), torch.ones(2, 4, 8), optimized.ModelNew().eval()
        for each in (model, model, copy.deepcopy(model)):
            for x in (inside, outside, inside):
                out.append((each(x) - 1 - torch.arange(8.0)).unique().tolist())
        model = optimized.ModelNew().double().eval()
        out.append((model(outside) - 1 - torch.arange(8.0)).unique().tolist())
        model.table = torch.zeros(8)
        out.append((model(outside) - 1).abs().max().item())
    """
    out, _ = alone(tmp_path, code)
    assert [[100.0], [0.0], [100.0]] * 3 == out[:9]
    assert [[0.0], 0.0 if given == "the same" else 7.0] == out[9:]


@pytest.mark.parametrize("extends", [True, False])
@pytest.mark.parametrize("warm", [True, False])
def test_torch_export_leaves_the_module_as_it_was(extends: bool, warm: bool, tmp_path: Path) -> None:
    """Its fake weights stayed in the reference beside it, and in the module: later calls returned fake tensors."""
    place(tmp_path, LAYERS, fast(LAYERS, extends), WEIGHTS)
    out, _ = alone(
        tmp_path,
        f"""
        import optimized
        model, x = optimized.ModelNew().eval(), torch.randn(4, 8)
        if {warm}:
            model(x)
        for _ in range(2):
            made = torch.export.export(model, (x,))
            answer = model(x)
            assert type(answer) is torch.Tensor, type(answer)
            assert not [p for p in model.parameters() if type(p) is not torch.nn.Parameter]
            with torch.no_grad():
                model.fc.weight.mul_(2.0)
            assert torch.allclose(made.module()(x), model(x), atol=1e-6)
        with torch.no_grad():
            out.append(round((model(x) - made.module()(x)).mean().item(), 3))
        """,
    )
    assert [1.0] == out  # the fast program still answers where it may
