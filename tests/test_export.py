# SPDX-License-Identifier: Apache-2.0
"""The exported drop-in: it stands alone, answers as proved inside its space, and steps back outside it."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import pytest
from export_bench import (
    CASES,
    FAST,
    REFERENCE,
    SQUARE,
    alone,
    case,
    leaf,
    make,
    trial,
    with_fault,
)

from kernelwright import export, wire
from kernelwright.export.space import proven_space
from kernelwright.task import Contract, Task
from kernelwright.trial import Rejected, Trial


@pytest.fixture(scope="module")
def scale(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An exported torch program without gradients in its contract."""
    folder = tmp_path_factory.mktemp("scale")
    make(folder)
    return folder


def test_inside_the_proven_space_the_fast_program_answers(scale: Path) -> None:
    """Tested sizes, and sizes between them, in every proven layout, go to the fast program without a word."""
    out, said = alone(
        scale,
        """
        import optimized
        with torch.no_grad():
            for rows, cols in ((4, 8), (1, 33), (5, 20)):
                model = optimized.ModelNew(cols)
                strided = torch.randn(rows, 2 * cols)[:, ::2]
                offset = torch.randn(rows * cols + 1)[1:].view(rows, cols)
                for x in (torch.randn(rows, cols), strided, offset):
                    out.append(torch.equal(model(x, 2), (x * model.weight) ** 2 + 1))
                out.append(torch.equal(model(x, power=2), model(x, 2)))
        """,
    )

    assert [True] * 12 == out
    assert [] == said


def test_inputs_between_vectors_are_the_references_where_the_proof_says_so(tmp_path: Path) -> None:
    """Those that begin at no multiple of 16 bytes, or whose rows do not; rows of any length that lie close do."""
    task = Task(name="scale", form="folder", reference=REFERENCE)
    export.write(tmp_path, task, with_fault(trial(task, {"fast.py": FAST}), "offset inputs"), cases=CASES)
    out, said = alone(
        tmp_path,
        """
        import optimized
        model = optimized.ModelNew(33)
        close, late, early = (torch.randn(n + 5 * 33)[n:].view(5, 33) for n in (0, 4, 1))
        wide, odd = (torch.randn(5, n)[:, :33] for n in (36, 35))
        with torch.no_grad():
            for x in (close, late, early, wide, odd):
                out.append(torch.equal(model(x, 2), (x * model.weight) ** 2 + 1))
        """,
    )

    assert [True, True, False, True, False] == out
    assert "not aligned to 16 bytes" in said[0]


def test_outside_the_proven_space_the_reference_answers_and_says_so_once(scale: Path) -> None:
    """Size, dtype, layout, plain value, gradients and autocast outside the proof each fall back."""
    out, said = alone(
        scale,
        """
        import optimized
        def by_reference(model, x, power=2):
            got = model(x, power)
            return torch.allclose(got.float(), ((x * model.weight) ** power).float(), rtol=1e-2)
        model = optimized.ModelNew(8)
        with torch.no_grad():
            out.append(by_reference(model, torch.randn(9, 8)))
            out.append(by_reference(optimized.Model(50), torch.randn(4, 50)))
            out.append(by_reference(model, torch.randn(4, 8, dtype=torch.float64)))
            out.append(by_reference(model, torch.randn(8, 4).T))
            out.append(by_reference(model, torch.randn(1, 8).expand(4, 8)))
            out.append(by_reference(model, torch.randn(4, 8), 3))
            out.append(by_reference(optimized.Model(8).half(), torch.randn(4, 8).half()))
            with torch.autocast("cpu"):
                out.append(by_reference(model, torch.randn(4, 8)))
        out.append(by_reference(model, torch.randn(4, 8)))
        loss = model(torch.randn(4, 8), 2).sum()
        loss.backward()
        out.append(model.weight.grad is not None)
        """,
    )

    assert [True] * 10 == out
    assert 1 == len(said)
    assert "size of 9" in said[0]


def test_results_are_row_major_where_the_references_are(scale: Path) -> None:
    """What the judge put in order as part of a call is put in order here; the rest stays as the program left it."""
    out, said = alone(
        scale,
        """
        import optimized
        optimized.PROVEN["row_major"] = [1, 2]
        turned = torch.arange(6).view(2, 3).T
        a, (b, none), named = optimized._in_order((turned, [turned, None], {"c": turned}), iter(range(9)))
        out.append([a.is_contiguous(), b.is_contiguous(), named["c"].is_contiguous(), none])
        out.append(all(torch.equal(one, turned) for one in (a, b, named["c"])))
        """,
    )

    assert [[False, True, True, None], True] == out
    assert [] == said


def test_a_shape_outside_says_what_was_expected_of_it_and_no_file_stays_open(tmp_path: Path) -> None:
    """Sizes that were equal in every test must be: the message names them. Files read were closed."""
    make(tmp_path, cases=[case(4, 8)])
    out, said = alone(
        tmp_path,
        """
        import gc, optimized
        gc.collect()
        with torch.no_grad():
            optimized.ModelNew(9)(torch.randn(4, 9), 2)
            optimized._warned.clear()
            optimized.ModelNew(8)(torch.randn(4, 1), 2)
        out += [text for text in said if "unclosed" in text]
        """,
    )
    assert ([], 2) == (out, len(said))
    assert "weight 0 has shape (8,): sizes that are 8 and 1 here were equal in every test" in str(said[1])


def test_the_weights_are_the_references_and_stay_shared(scale: Path) -> None:
    """Same state_dict names; weights loaded, moved or changed later are seen by both programs; copies work."""
    out, said = alone(
        scale,
        """
        import copy, io, optimized
        model = optimized.ModelNew(8)
        out.append(list(model.state_dict()))
        out.append([name for name, _ in model.named_modules()])
        model.load_state_dict({"weight": torch.full((8,), 2.0), "seen": torch.ones(1)})
        x = torch.ones(9, 8)
        with torch.no_grad():
            out.append(float(model(x, 2)[0, 0]))
            model.weight.mul_(2)
            out.append([float(model(x, 2)[0, 0]), float(model(x[:4], 2)[0, 0])])
            twin = copy.deepcopy(model)
            twin.weight.zero_()
            out.append([float(twin(x, 2)[0, 0]), float(twin(x[:4], 2)[0, 0]), float(model(x, 2)[0, 0])])
            file = io.BytesIO()
            torch.save(model, file)
            file.seek(0)
            out.append(float(torch.load(file, weights_only=False)(x, 2)[0, 0]))
            model.double()
            out.append(str(model(x.double(), 2).dtype))
        """,
    )

    assert [["weight", "seen"], [""], 4.0, [16.0, 17.0], [0.0, 1.0, 16.0], 16.0, "torch.float64"] == out
    assert 1 == len(said)


def test_gradients_flow_through_the_fast_program_where_they_were_proved(tmp_path: Path) -> None:
    """With gradients in the contract, training takes the fast path."""
    make(tmp_path, Contract(gradients=True, as_drawn=(0,)))
    assert "inputs 0 only as get_inputs draws them" in (tmp_path / "optimized.py").read_text()
    out, said = alone(
        tmp_path,
        """
        import optimized
        model = optimized.ModelNew(8)
        y = model(torch.zeros(4, 8), 2)
        y.sum().backward()
        out.append([float(y[0, 0]), model.weight.grad is not None])
        """,
    )

    assert [[1.0, True]] == out
    assert [] == said


def test_only_the_judged_mode_is_served_fast(tmp_path: Path) -> None:
    """A new module is in the judged mode, unless modes differ: then it is in train(), as the reference would be."""
    code = """
        import optimized
        model = optimized.ModelNew(8)
        with torch.no_grad():
            for change in (lambda: None, model.eval, model.train):
                change()
                out.append(float(model(torch.zeros(4, 8), 2)[0, 0]))
    """
    make(tmp_path / "plain")
    make(tmp_path / "moody", reference=REFERENCE.replace("** power", "** power  # no dropout here"))

    assert [1.0, 1.0, 0.0] == alone(tmp_path / "plain", code)[0]
    assert [0.0, 1.0, 0.0] == alone(tmp_path / "moody", code)[0]
    assert not export.mode_matters(REFERENCE)
    assert export.mode_matters("from mymodels import Block\n")


def test_a_program_without_weights_is_also_a_function(tmp_path: Path) -> None:
    """``optimized`` calls one shared instance."""
    task = Task(name="square", form="object", reference=SQUARE)
    fast = SQUARE.replace("class Model(", "class ModelNew(").replace("x * x", "x * x + 1")
    export.write(
        tmp_path,
        task,
        trial(task, {"fast.py": fast}),
        cases=[{"name": "main", "inputs": [leaf(6)], "state": []}],
    )
    code = "from optimized import optimized\nout += [optimized(torch.zeros(n)).tolist() for n in (6, 5)]"
    out, said = alone(tmp_path, code)

    assert [[1.0] * 6, [0.0] * 5] == out
    assert 1 == len(said)


def test_a_reference_that_loads_and_moves_its_weights_when_made(tmp_path: Path) -> None:
    """Modules from Python do: their constructor ends with load_state_dict, some with a conversion."""
    end = """        self.load_state_dict({"weight": torch.full((cols,), 2.0), "seen": torch.zeros(1)})
        self.to("cpu")
        self.eval()
"""
    reference = REFERENCE.replace("    def forward", end + "\n    def forward", 1)
    make(
        tmp_path,
        reference=reference,
        fast=reference.replace("class Model(", "class ModelNew(").replace("** power", "** power + 1"),
    )
    code = """
        import optimized
        with torch.no_grad():
            out.append(optimized.ModelNew(8)(torch.ones(4, 8), 2).unique().tolist())
    """
    out, said = alone(tmp_path, code)

    assert [[5.0]] == out
    assert [] == said


def test_keywords_take_their_places_and_gaps_their_defaults(tmp_path: Path) -> None:
    """A call that leaves out a parameter before the last is the proved one where the default is the proved value."""
    reference = SQUARE.replace("self, x", "self, x, shift=0.5, power=2").replace("x * x", "(x + shift) ** power")
    task = Task(name="power", form="object", reference=reference)
    fast = reference.replace("class Model(", "class ModelNew(").replace("** power", "** power + 1")
    seen = [{"name": "main", "inputs": [leaf(6), {"value": 0.5}, {"value": 3}], "state": []}]
    export.write(tmp_path, task, trial(task, {"fast.py": fast}), cases=seen)
    code = """
        from optimized import optimized
        x = torch.zeros(6)
        for given in ({"x": x, "power": 3}, {"power": 3, "shift": 0.5, "x": x}, {"x": x, "power": 3, "shift": 1.0}):
            out.append(float(optimized(**given)[0]))
    """
    out, said = alone(tmp_path, code)

    assert [1.125, 1.125, 1.0] == out
    assert 1 == len(said)


def test_a_broken_fast_program_leaves_the_reference(tmp_path: Path) -> None:
    """A candidate whose imports are missing here costs the speed, not the answer."""
    make(tmp_path, fast="import a_package_that_is_not_there\n" + FAST)
    code = (
        "import optimized\nwith torch.no_grad():\n    out.append(float(optimized.Model(8)(torch.zeros(4, 8), 2)[0, 0]))"
    )
    out, said = alone(tmp_path, code)

    assert [0.0] == out
    assert 1 == len(said) and "a_package_that_is_not_there" in said[0]


def test_the_proof_holds_everything_needed_to_replay(scale: Path) -> None:
    """Digests, cases, precision, timings with intervals, bound, machine, versions, seed and isolation are there."""
    proof = json.loads((scale / "proof.json").read_text())
    task = wire.from_data(Task, proof["task"]["noun"])

    assert task.digest() == proof["task"]["digest"]
    assert "fast.py" in proof["candidate"]["sources"]
    assert (7, "namespaces", 0.14) == (proof["seed"], proof["sandbox"], proof["precision"]["bits_lost"])
    assert [2.5, 3.5] == [proof["speed"]["baselines"][0][key] for key in ("speedup_low", "speedup_high")]
    assert ("memory", 5.0) == (proof["bound"]["limiter"], proof["bound"]["unavoidable_us"])
    assert hashlib.sha256((scale / "optimized.py").read_bytes()).hexdigest() == proof["optimized"]["optimized.py"]


def test_the_proof_carries_energy_or_says_that_it_was_not_measured(scale: Path, tmp_path: Path) -> None:
    """Millijoules and watts with how they were taken; where there was no counter, words in their place."""
    assert ("not measured", "not asked for") == tuple(
        json.loads((scale / "proof.json").read_text())["energy"][name] for name in ("per_call_mJ", "note")
    )
    task = Task(name="scale", form="folder", reference=REFERENCE)
    energy = {"mJ": 75.5, "watts": 540.0, "note": "the driver's counter"}
    export.write(tmp_path, task, trial(task, {"fast.py": FAST}), cases=CASES, energy=energy)
    expected = {"per_call_mJ": 75.5, "watts": 540.0, "note": "the driver's counter"}
    assert expected == json.loads((tmp_path / "proof.json").read_text())["energy"]


def test_a_rejected_candidate_is_never_exported(tmp_path: Path) -> None:
    """There is no proof of a failure."""
    task = Task(name="scale", form="folder", reference=REFERENCE)
    won = trial(task, {"fast.py": FAST})
    lost = wire.from_data(
        Trial, wire.to_data(won) | {"outcome": wire.to_data(Rejected(stage="verify", reason="r", detail=""))}
    )

    with pytest.raises(ValueError, match="verify"):
        export.write(tmp_path, task, lost, cases=CASES)
    assert [] == list(tmp_path.iterdir())


def test_hostile_text_stays_text(tmp_path: Path) -> None:
    """Names and sources with quotes, backslashes, returns and braces come back byte for byte."""
    odd = FAST + "ODD = '''a\\\\''' + \"{{FAST}}\" # \u00e9 '''\r\n"
    task = Task(name='x"""\nimport os; os.abort()\n"""', form="folder", reference=REFERENCE)
    export.write(tmp_path, task, trial(task, {"fast.py": odd}), cases=CASES)
    text = json.dumps(odd)
    out, _ = alone(tmp_path, f"import json, optimized\nout.append(optimized.FAST == json.loads({text!r}))")

    assert [True] == out


def test_a_dimension_is_free_from_three_sizes_on_and_ties_are_kept() -> None:
    """rows took three values, heads two; width is always twice rows."""
    cases = [{"inputs": [leaf(r, h, 2 * r)], "state": [leaf(r)]} for r, h in ((4, 2), (9, 2), (1, 8))]
    space = proven_space(cases)

    assert [0, 2] == space["free"]
    assert [[0, 2, 8, 4]] == space["ties"]
    assert [{"dtype": "float32", "dims": [0, 1, 2]}] == space["inputs"]
    assert [{"dtype": "float32", "dims": [0]}] == space["state"]
    assert [[4, 2, 8], [9, 2, 18], [1, 8, 2]] == space["tested"]


def test_cases_that_disagree_in_structure_are_refused() -> None:
    """Another dtype or another number of inputs is not one space."""
    with pytest.raises(ValueError, match="dtype"):
        proven_space([{"inputs": [leaf(3)]}, {"inputs": [leaf(3, dtype="float16")]}])
    with pytest.raises(ValueError, match="numbers"):
        proven_space([{"inputs": [leaf(3)]}, {"inputs": [leaf(3), leaf(3)]}])


def test_modules_of_the_references_folder_are_found_from_anywhere_and_named_where_they_are_not(tmp_path: Path) -> None:
    """Also those that a call imports; beside the file a copy comes first; without either, the error says where from."""
    project, run, moved = tmp_path / "project", tmp_path / "run", tmp_path / "moved"
    project.mkdir()
    (project / "kw_power.py").write_text("POWER = 2\n")
    (project / "kw_shift.py").write_text("SHIFT = 1\n")
    text = SQUARE.replace("x * x", "x**POWER + _shift()")
    text = (
        f"from kw_power import POWER\n\n\ndef _shift():\n    from kw_shift import SHIFT\n\n    return SHIFT\n\n\n{text}"
    )
    task = Task(name="square", form="kernelbench", reference=text, imports=(str(project),))
    fast = text.replace("class Model(", "class ModelNew(")
    seen = [{"name": "main", "inputs": [leaf(6)], "state": []}]
    export.write(run, task, trial(task, {"fast.py": fast}), cases=seen)
    code = "from optimized import ModelNew\nm = ModelNew().eval()\n"
    code += "out.extend(float(m(torch.full((n,), 3.0))[0]) for n in (6, 7))\n"
    out, said = alone(run, code)
    assert ([10.0, 10.0], 1) == (out, len(said))
    run.rename(moved)
    project.rename(tmp_path / "gone")
    out, _ = alone(
        moved, "try:\n    import optimized\nexcept ModuleNotFoundError as error:\n    out += error.__notes__"
    )
    assert str(project) in out[0] and "beside this file" in out[0]


def test_modules_of_the_task_go_with_the_file(tmp_path: Path) -> None:
    """Byte for byte, found from wherever both are moved, in calls too, and in place of others of their names."""
    modules = (("kw_power.py", "POWER = 2\r\n"), ("kw_shift/one.py", "SHIFT = 1\n"))
    text = SQUARE.replace("x * x", "x**POWER + _shift()")
    shift = "def _shift():\n    from kw_shift.one import SHIFT\n\n    return SHIFT\n"
    text = f"from kw_power import POWER\n\n\n{shift}\n\n{text}"
    task = Task(name="square", form="folder", reference=text, beside=modules)
    fast = text.replace("class Model(", "class ModelNew(")
    seen = [{"name": "main", "inputs": [leaf(6)], "state": []}]
    export.write(tmp_path / "run", task, trial(task, {"fast.py": fast}), cases=seen)
    moved = (tmp_path / "run").rename(tmp_path / "moved")
    assert [text.encode() for _, text in modules] == [(moved / "task_modules" / n).read_bytes() for n, _ in modules]
    code = "from optimized import ModelNew\nm = ModelNew().eval()\n"
    code += "out.extend(float(m(torch.full((n,), 3.0))[0]) for n in (6, 7))\n"
    out, said = alone(moved, code)
    assert ([10.0, 10.0], 1) == (out, len(said))
