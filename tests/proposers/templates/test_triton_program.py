# SPDX-License-Identifier: Apache-2.0
"""Triton candidates against float64 in the interpreter, as sm_90 machine code, and outside their fast path."""

import functools
import importlib.util
import pathlib
import subprocess
import sys

import pytest
import torch

from kernelwright.proposers import Request
from kernelwright.proposers.rewrites import RewritesProposer
from kernelwright.proposers.templates import TemplatesProposer, triton_module, triton_program
from kernelwright.proposers.templates.graph import capture
from kernelwright.proposers.templates.lower import lower
from kernelwright.task import Task

sys.path.insert(0, str(pathlib.Path(__file__).parent))
import triton_cases

PROBE = pathlib.Path(__file__).parent / "triton_probe.py"
pytest.importorskip("triton")


def task_of(reference):
    """A task around a reference source."""
    return Task(name="t", form="kernelbench", reference=reference)


@functools.cache
def captured(reference):
    """The graph of a reference, which several cases share: torch.export takes half a second for one."""
    return capture(task_of(reference))


def text(reference, structure, values):
    """The candidate file of one structure."""
    found = captured(reference)
    wrapping = triton_module.Wrapping(reference=reference, entry="Model", training=False, init=found.init)
    return triton_program.source(lower(found, on_host=False), structure, values, wrapping)


def load(path, name="candidate_in_process"):
    """A candidate file as a module of this process."""
    spec = importlib.util.spec_from_file_location(name, path)
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


def prepare(folder, number, reference, structure, values):
    """One case for the probe, and the model that answers for it."""
    path = folder / f"case{number}.py"
    path.write_text(text(reference, structure, values))
    module = load(path, f"reference{number}")
    torch.manual_seed(2)
    init = module.get_init_inputs()
    model = module.Model(*init).eval()
    inputs = module.get_inputs()
    case = {"path": str(path), "init": init, "state": model.state_dict(), "inputs": inputs}
    return case, model


def probe(mode, folder, cases):
    """What the probe answers, case by case."""
    torch.save(cases, folder / "cases.pt")
    command = [sys.executable, str(PROBE), mode, str(folder / "cases.pt"), str(folder / "answers.pt")]
    subprocess.run(command, check=True, timeout=240)
    return torch.load(folder / "answers.pt", weights_only=False)


@pytest.fixture(scope="module")
def interpreted(tmp_path_factory):
    """Name to (model, inputs, answer of the interpreter), all from one process."""
    folder = tmp_path_factory.mktemp("interpreted")
    prepared = {name: prepare(folder, number, *case) for number, (name, case) in enumerate(triton_cases.CASES.items())}
    answers = probe("run", folder, [case for case, _ in prepared.values()])
    return {
        name: (model, case["inputs"], answer)
        for (name, (case, model)), answer in zip(prepared.items(), answers, strict=True)
    }


def leaves(found):
    """Tensors of a result."""
    return [found] if isinstance(found, torch.Tensor) else list(found)


@pytest.mark.parametrize("name", triton_cases.CASES)
def test_a_candidate_is_as_accurate_as_eager(interpreted, name):
    """Every style on ragged shapes: no more than twice eager's own distance from float64, and the same shapes."""
    model, inputs, answer = interpreted[name]
    assert not isinstance(answer, str), answer
    with torch.no_grad():
        eager = leaves(model(*inputs))
        exact = leaves(model.double()(*[x.double() if x.is_floating_point() else x for x in inputs]))
    for got, plain, best in zip(leaves(answer), eager, exact, strict=True):
        assert plain.shape == got.shape
        assert plain.dtype == got.dtype
        assert torch.equal(plain.isnan(), got.isnan())
        if not plain.is_floating_point():
            assert torch.equal(plain, got)
            continue
        least = 4e-15 if plain.dtype == torch.float64 else 4e-7
        allowed = 2 * (plain.double() - best).abs().max() + least * best.abs().max()
        assert (got.double() - best).abs().max() <= allowed


def test_nan_goes_through_a_row_maximum(tmp_path):
    """torch's amax is NaN where a row holds one; the hardware's max would drop it."""
    case, model = prepare(tmp_path, 0, triton_cases.LARGEST, "rowwise", {})
    case["inputs"][0][2, 3] = float("nan")
    (answer,) = probe("run", tmp_path, [case])
    assert not isinstance(answer, str), answer
    assert [False, False, True, False, False] == answer[0].isnan().tolist()


@pytest.fixture(scope="module")
def compiled(tmp_path_factory):
    """Name to resource usage of its launches on sm_90."""
    folder = tmp_path_factory.mktemp("compiled")
    wide = triton_cases.SOFTMAX.replace("(5, 100)", "(64, 4096)")
    product = triton_cases.LINEAR_GELU.replace("17, 24", "128, 128").replace("24, 19", "128, 128")
    long_words = triton_cases.WORDS.replace("5, 37", "256, 4096").replace("return [37]", "return [4096]")
    small = {"BLOCK": 1024, "WARPS": 4}
    wanted = {
        "rows": (wide, "rowwise", {}),
        "loop": (wide, "looped", {"BLOCK": 1024, "WARPS": 4}),
        "product": (product, "matmul", {"BM": 64, "BN": 64, "CHUNK": 1, "WARPS": 4}),
        "terms": (product, "terms", {}),
        "bags": (triton_cases.BAGS.replace("7, 41", "700, 41").replace("33", "256"), "rowwise", {}),
        "tokens": (
            triton_cases.TOKENS.replace("(3, 9)", "(16, 512)").replace("9", "512").replace("33", "1024"),
            "rowwise",
            {},
        ),
        "batched": (
            triton_cases.SCORES.replace("17", "128").replace("21", "128").replace(", 24", ", 64"),
            "matmul",
            {"BM": 64, "BN": 64, "CHUNK": 1, "WARPS": 4},
        ),
        "scan": (triton_cases.BACK.replace("(5, 100)", "(64, 4096)"), "looped", {"BLOCK": 1024, "WARPS": 4}),
        "window": (triton_cases.LARGEST_OF_BOXES.replace("17, 19", "170, 190"), "windows", {}),
        "filter": (triton_cases.FILTERS.replace("11, 13", "110, 130"), "windows", {}),
        "bytes": (triton_cases.BYTES.replace("7 * 61", "1 << 20").replace("7, 61", "1024, 1024"), "rowwise", {}),
        "words": (long_words, "rowwise", {}),
        "doubles": (triton_cases.DOUBLE_SOFTMAX.replace("5, 100", "64, 4096"), "rowwise", {}),
        "doubles loop": (
            triton_cases.DOUBLE_LAYER.replace("5, 100", "64, 4096").replace("return [100]", "return [4096]"),
            "looped",
            {"BLOCK": 1024, "WARPS": 8},
        ),
        "double chain": (triton_cases.DOUBLE_CHAIN.replace("5, 100", "64, 4096"), "rowwise", {}),
        "double scan": (triton_cases.DOUBLE_RUNNING.replace("5, 100", "64, 4096"), "rowwise", {}),
        "double total": (triton_cases.DOUBLE_TOTAL.replace("5, 100", "64, 4096"), "rowwise", {}),
        "place": (triton_cases.PLACE.replace("(5, 100)", "(64, 4096)"), "looped", {**small, "STAGES": 0}),
        "ahead": (triton_cases.PLACE.replace("(5, 100)", "(64, 4096)"), "looped", {**small, "STAGES": 3}),
        "ahead of odd": (triton_cases.PLACE.replace("(5, 100)", "(64, 4097)"), "looped", {**small, "STAGES": 3}),
    }
    cases = [prepare(folder, number, *case)[0] for number, case in enumerate(wanted.values())]
    return dict(zip(wanted, probe("compile", folder, cases), strict=True))


@pytest.mark.parametrize("name", ["rows", "loop", "product", "batched", "scan", "place", "bytes", "words", "tokens"])
def test_machine_code_for_hopper_moves_16_bytes_at_a_time_and_does_not_spill(compiled, name):
    """A kernel that spills or loads single words reads memory twice as long."""
    assert not isinstance(compiled[name], str), compiled[name]
    (launch,) = compiled[name]
    assert 0 == launch["spills"]
    assert launch["wide"]
    assert (name in ("product", "batched")) == launch["tensor_cores"]


@pytest.mark.parametrize("name", ["doubles", "doubles loop", "double chain", "double scan", "double total"])
def test_float64_becomes_machine_code_that_does_not_spill(compiled, name):
    """Two of them make the 16 bytes of a load; a value takes two registers."""
    assert not isinstance(compiled[name], str), compiled[name]
    assert {0} == {launch["spills"] for launch in compiled[name]}


def test_blocks_of_a_row_are_copied_ahead_sixteen_bytes_at_a_time(compiled):
    """Where columns do not come in fours, only copies of four bytes could be: those are left out."""
    copies = {name: [launch["copies"] for launch in compiled[name]] for name in ("place", "ahead", "ahead of odd")}
    assert {"place": [[]], "ahead": [[16]], "ahead of odd": [[]]} == copies
    assert [0] == [launch["spills"] for launch in compiled["ahead"]]


def test_bags_become_machine_code_that_does_not_spill(compiled):
    """One kernel each: rows are added up where they are read."""
    assert not isinstance(compiled["bags"], str), compiled["bags"]
    assert [0, 0] == [launch["spills"] for launch in compiled["bags"]]


@pytest.mark.parametrize("name", ["window", "filter"])
def test_windows_become_machine_code_that_does_not_spill(compiled, name):
    """Their loads are single words: neighbours of the result lie a stride apart."""
    assert not isinstance(compiled[name], str), compiled[name]
    assert [0] == [launch["spills"] for launch in compiled[name]]


def test_cut_operands_meet_on_the_tensor_cores_without_spilling(compiled):
    """One kernel cuts each operand, one multiplies: three accumulators of the default tile stay in registers."""
    assert not isinstance(compiled["terms"], str), compiled["terms"]
    assert ["_cut", "_cut", "_k1"] == [launch["kernel"] for launch in compiled["terms"]]
    assert [0, 0, 0] == [launch["spills"] for launch in compiled["terms"]]
    assert [False, False, True] == [launch["tensor_cores"] for launch in compiled["terms"]]
    assert 227 * 1024 >= compiled["terms"][2]["shared"]


def test_what_lies_outside_the_fast_path_runs_the_reference(tmp_path):
    """CPU tensors, another dtype, keywords, training and wanted gradients must all give the reference's result."""
    path = tmp_path / "candidate.py"
    path.write_text(text(triton_cases.RMS, "rowwise", {}))
    module = load(path)
    reference, candidate = module.Model(100), module.ModelNew(100)
    candidate.load_state_dict(reference.state_dict(), strict=True)
    x = torch.randn(3, 100)
    assert torch.equal(reference(x), candidate(x))
    assert candidate(x).requires_grad
    assert torch.equal(reference(x=x), candidate(x=x))
    candidate.eval()
    assert torch.equal(reference(x), candidate(x))
    assert torch.equal(reference.double()(x.double()), candidate.double()(x.double()))


def test_equal_requests_give_equal_candidates_on_every_call():
    """A candidate is known by its content; a set or hash in the emitter would give it another name each run."""
    request = Request(task=task_of(triton_cases.LAYER), device="cuda", machine=None)
    first, second = TemplatesProposer(), TemplatesProposer()
    for structure in first.structures(request):
        one = first.render(request, structure.name, {})
        assert one == second.render(request, structure.name, {})
        assert "triton" == one.language
        assert "kernelwright" not in one.sources[0][1]


@pytest.mark.parametrize(
    ("reference", "names"),
    [
        (triton_cases.CHAIN, ["rowwise.triton"]),
        (triton_cases.SOFTMAX.replace("(5, 100)", "(64, 4096)"), ["rowwise.triton", "looped.triton"]),
        (triton_cases.SOFTMAX.replace("(5, 100)", "(64, 100000)"), ["looped.triton", "split.triton"]),
        (triton_cases.SOFTMAX.replace("(5, 100)", "(640, 100000)"), ["looped.triton"]),
        (triton_cases.LINEAR_GELU, ["rowwise.triton", "matmul.triton"]),
        (triton_cases.PLAIN, ["matmul.triton"]),
    ],
)
def test_structures_follow_from_the_graph_and_their_defaults_keep_the_constraints(reference, names):
    """Each shape of program offers the kernels that fit it, and a default that the tuner may start from."""
    program = lower(capture(task_of(reference)))
    found = triton_program.structures(program)
    assert names == [structure.name for structure in found]
    for structure in found:
        first = {parameter.name: parameter.values[0] for parameter in structure.space.parameters}
        assert [] == [rule for rule in structure.space.constraints if not eval(rule, {}, dict(first))]


EXAMPLES = sorted((pathlib.Path(__file__).parents[3] / "examples").glob("*.py"))


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_every_shipped_example_has_a_structure_of_ours_on_cuda(path):
    """No device is needed to propose; each default must render to a file that Python reads."""
    request = Request(task=task_of(path.read_text()), device="cuda", machine=None)
    found = 0
    for proposer in (TemplatesProposer(), RewritesProposer()):
        for structure in proposer.structures(request):
            rendered = proposer.render(request, structure.name, {})
            for name, source in rendered.sources:
                compile(source, name, "exec")
            found += structure.language == "triton"
    assert found >= 1


def test_slabs_that_32_bit_numbers_cannot_count_are_left_to_the_reference():
    """A reduction over an axis that is not the last multiplies a column by the elements of one."""
    bodies = (triton_cases.reference(f"return torch.softmax(x, {dim})", "torch.randn(3, 8, 5)") for dim in (-1, 1))
    along, across = (text(body, "rowwise", {}) for body in bodies)
    assert ("< 2**31" in along, "< 2**31" in across) == (False, True)
