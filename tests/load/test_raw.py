# SPDX-License-Identifier: Apache-2.0
"""load/raw.py: the parameter rule of raw kernels, read from real signatures and run through a real compiler."""

from __future__ import annotations

import copy
import importlib.util
import shutil
import subprocess
from pathlib import Path
from types import ModuleType

import pytest

from kernelwright.errors import CandidateError
from kernelwright.load import load_candidate
from kernelwright.load.raw import Argument, parse
from kernelwright.task import Task

HERE = Path("k.cpp")
REFERENCE = """from __future__ import annotations
import torch

class Model(torch.nn.Module):
    def __init__(self, cols, eps=1e-6):
        super().__init__()
        self.norm = torch.nn.Module()
        self.norm.weight = torch.nn.Parameter(torch.rand(cols))
        self.eps = eps

    def forward(self, x, scale: float = 1.0):
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + self.eps) * self.norm.weight * scale

def get_inputs():
    return [torch.randn(5, 33)]

def get_init_inputs():
    return [33]
"""
KERNEL = """
#include <cmath>
#include <cstdint>
// extern "C" void decoy(float* out) {
static float square(float v) { return v * v; }
extern "C" {
int rms(float* __restrict__ out, const float *x, float const* norm_weight, int64_t x_d0, long x_d1,
        float eps, double scale, size_t n) {
    if ((int64_t)n != x_d0 * x_d1) return 1;
    for (int64_t r = 0; r < x_d0; ++r) {
        double sum = 0;
        for (long c = 0; c < x_d1; ++c) { sum += square(x[r * x_d1 + c]); }
        float k = 1.0f / std::sqrt(float(sum / x_d1) + eps);
        for (long c = 0; c < x_d1; ++c) out[r * x_d1 + c] = x[r * x_d1 + c] * k * norm_weight[c] * float(scale);
    }
    return 0;
}
}
"""


def test_a_signature_is_read_with_its_qualifiers() -> None:
    """const on either side, restrict, std::, comments, functions that are not exported."""
    name, returns, arguments = parse(HERE, KERNEL)
    assert ("rms", "int") == (name, returns)
    assert (
        Argument("out", "out", "float32"),
        Argument("in", "x", "float32"),
        Argument("in", "norm_weight", "float32"),
        Argument("number", "x_d0", "c_int64"),
        Argument("number", "x_d1", "c_long"),
        Argument("number", "eps", "c_float"),
        Argument("number", "scale", "c_double"),
        Argument("number", "n", "c_size_t"),
    ) == arguments


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("void f(float* o, const float* x) {}", "exactly one"),
        ('extern "C" void f(float* o) {}\nextern "C" void g(float* o) {}', "exactly one"),
        ('extern "C" void f(const float* x, float* o) {}', "come first"),
        ('extern "C" void f(int n) {}', "come first"),
        ('extern "C" void f(float** o) {}', "cannot be passed"),
        ('extern "C" void f(torch::Tensor x) {}', "cannot be passed"),
    ],
)
def test_a_signature_outside_the_rule_is_refused_with_the_rule(text: str, words: str) -> None:
    """The message quotes what was found."""
    with pytest.raises(CandidateError, match=words):
        parse(HERE, text)


def test_a_cuda_launcher_takes_the_stream() -> None:
    """Both spellings; the device functions of the file are not exported and not counted."""
    text = (
        "__global__ void k(float* o) { o[0] = 1; }\n"
        'extern "C" void launch(__half* o, const __nv_bfloat16* x, int n, cudaStream_t s) { k<<<1, 1>>>(0); }'
    )
    assert ["out", "in", "number", "stream"] == [a.kind for a in parse(Path("k.cu"), text)[2]]


def built(folder: Path, kernel: str, reference: str) -> ModuleType:
    """The wrapper of a kernel, compiled and imported."""
    if shutil.which("g++") is None:
        pytest.skip("needs g++")
    (folder / "rms.cpp").write_text(kernel)
    task = Task(name="rms", form="kernelbench", reference=reference)
    candidate = load_candidate(folder / "rms.cpp", task)
    assert ("cpp", "optimized.py::ModelNew") == (candidate.language, candidate.entry)
    for name, text in candidate.sources:
        (folder / name).write_text(text)
    subprocess.run(["g++", "-O1", "-shared", "-fPIC", "rms.cpp", "-o", "rms.so"], cwd=folder, check=True)
    spec = importlib.util.spec_from_file_location("raw_wrapper", folder / "optimized.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def compiled(tmp_path_factory: pytest.TempPathFactory) -> ModuleType:
    """The wrapper of KERNEL."""
    return built(tmp_path_factory.mktemp("raw"), KERNEL, REFERENCE)


def test_the_wrapped_kernel_computes_the_reference(compiled: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    """Weights by name, sizes, attributes and arguments arrive; strided inputs too; new weights are seen."""
    torch = pytest.importorskip("torch")
    new, old = compiled.ModelNew(33), compiled.Model(33)
    called: list[int] = []
    kernel = compiled._FUNCTION
    monkeypatch.setattr(compiled, "_FUNCTION", lambda *values: called.append(1) or kernel(*values))
    for shape in ((5, 33), (33, 5)):
        x = torch.randn(shape)
        x = x.t() if shape[0] == 33 else x
        torch.nn.init.uniform_(new.norm.weight)
        old.load_state_dict(new.state_dict(), strict=True)
        with torch.no_grad():
            torch.testing.assert_close(new(x, 0.5), old(x, 0.5))
    assert 2 == len(called)


def test_outside_its_rule_the_wrapper_runs_the_reference(compiled: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another dtype, or a gradient: the kernel is not called and the answer is still right."""
    torch = pytest.importorskip("torch")
    monkeypatch.setattr(compiled, "_FUNCTION", lambda *values: pytest.fail("called"))
    new = compiled.ModelNew(33).double()
    x = torch.randn(4, 33, dtype=torch.float64, requires_grad=True)
    new(x).sum().backward()
    assert x.grad is not None
    assert torch.float64 == new(x.detach()).dtype


def test_tensors_of_a_dict_are_bound_by_their_keys(tmp_path: Path) -> None:
    """Whatever order the caller's dict has: a - b, never b - a."""
    torch = pytest.importorskip("torch")
    kernel = (
        'extern "C" void f(float* out, const float* a, const float* b, long n)'
        " { for (long i = 0; i < n; ++i) out[i] = a[i] - b[i]; }"
    )
    reference = "import torch\nclass Model(torch.nn.Module):\n    def forward(self, d): return d['a'] - d['b']\n"
    model = built(tmp_path, kernel, reference).ModelNew()
    a, b = torch.full((3,), 5.0), torch.full((3,), 2.0)
    assert [[3.0] * 3] * 2 == [model({"a": a, "b": b}).tolist(), model({"b": b, "a": a}).tolist()]


def test_shapes_of_outputs_follow_numbers_too(tmp_path: Path) -> None:
    """A kernel that writes k floats is never given room for another k."""
    torch = pytest.importorskip("torch")
    kernel = (
        'extern "C" void f(float* out, const float* x, long k, long out_d0)'
        " { for (long i = 0; i < k && i < out_d0; ++i) out[i] = x[i]; }"
    )
    reference = "import torch\nclass Model(torch.nn.Module):\n    def forward(self, x, k=2): return x[:k] + 0\n"
    model, x = built(tmp_path, kernel, reference).ModelNew(), torch.arange(9.0)
    assert [x[:k].tolist() for k in (3, 7, 1)] == [model(x, k).tolist() for k in (3, 7, 1)]
    assert [0.0, 1.0] == model(x).tolist()


def test_a_number_of_an_unknown_name_is_told_the_names_that_are_known(tmp_path: Path) -> None:
    """Not that an attribute is missing from a class that the user never wrote."""
    torch = pytest.importorskip("torch")
    kernel = 'extern "C" void f(float* out, const float* x, long rows) { (void)rows; out[0] = x[0]; }'
    reference = "import torch\nclass Model(torch.nn.Module):\n    def forward(self, x): return x + 0\n"
    model = built(tmp_path, kernel, reference).ModelNew()
    with pytest.raises(TypeError, match=r"number rows of f is not known.*out_d0"):
        model(torch.ones(3))


def test_shapes_of_outputs_follow_attributes_that_the_kernel_takes(tmp_path: Path) -> None:
    """Changed after the first call."""
    torch = pytest.importorskip("torch")
    kernel = (
        'extern "C" void f(float* out, const float* x, long k, long out_d0)'
        " { for (long i = 0; i < k && i < out_d0; ++i) out[i] = x[i]; }"
    )
    reference = (
        "import torch\nclass Model(torch.nn.Module):\n    k = 3\n    def forward(self, x): return x[:self.k] + 0\n"
    )
    model, x = built(tmp_path, kernel, reference).ModelNew(), torch.arange(9.0)
    for model.k in (3, 7, 1):
        assert x[: model.k].tolist() == model(x).tolist()


def test_what_a_call_needs_to_know_is_looked_up_once(compiled: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    """For arguments of one shape: with a state_dict and a signature at every call a gelu on an H200, as fast as
    eager's by events, took 1.6 times as long. Weights and numbers are those of the call all the same."""
    torch = pytest.importorskip("torch")
    new, old, asked = compiled.ModelNew(33), compiled.Model(33), list[str]()
    usual = torch.nn.Module.state_dict
    monkeypatch.setattr(
        compiled.ModelNew, "state_dict", lambda self, **how: asked.append("state") or usual(self, **how)
    )
    monkeypatch.setattr(
        compiled.inspect, "signature", lambda f, real=compiled.inspect.signature: asked.append("s") or real(f)
    )
    x = torch.randn(5, 33)
    with torch.no_grad():
        for eps, scale in ((1e-6, 0.5), (1e-6, 2.0), (0.5, 2.0), (1e-6, 0.5)):
            new.eps = old.eps = eps
            torch.nn.init.uniform_(new.norm.weight)
            old.norm.weight.copy_(new.norm.weight)
            torch.testing.assert_close(new(x, scale), old(x, scale))
        first = list(asked)
        new.norm = copy.deepcopy(new.norm)  # another parameter, where the old one was
        torch.nn.init.uniform_(new.norm.weight)
        old.norm.weight.copy_(new.norm.weight)
        torch.testing.assert_close(new(x, 0.5), old(x, 0.5))
        torch.testing.assert_close(copy.deepcopy(new)(x, 0.5), old(x, 0.5))
    assert first == asked and first.count("state") == 3, "once for each scale and eps"


def test_sizes_of_weights_are_those_of_the_call(tmp_path: Path) -> None:
    """Arguments of one shape say nothing of them; a weight of another type is the reference's."""
    torch = pytest.importorskip("torch")
    kernel = """extern "C" void f(float* out, const float* x, const float* inner_w, long n, long inner_w_d0,
                                  long n_inner_w, long inner_w_s0) {
        for (long i = 0; i < n; ++i) out[i] = x[i] + inner_w[0] + inner_w_d0 + n_inner_w + inner_w_s0; }"""
    reference = """import torch
class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = torch.nn.Module()
        self.inner.w = torch.nn.Parameter(torch.full((2, 3), 100.0))
    def forward(self, x): return x - 1
"""
    model, x = built(tmp_path, kernel, reference).ModelNew(), torch.zeros(2)
    with torch.no_grad():
        assert model(x).tolist() == [111.0] * 2
        model.inner.w = torch.nn.Parameter(torch.full((5, 1), 200.0))
        assert model(x).tolist() == [211.0] * 2
        model.double()
        assert model(x).tolist() == [-1.0] * 2


def test_results_that_the_kernel_has_no_pointer_for_are_the_references(tmp_path: Path) -> None:
    """Not memory that nobody wrote to."""
    torch = pytest.importorskip("torch")
    kernel = 'extern "C" void f(float* out, const float* x, long n) { for (long i = 0; i < n; ++i) out[i] = x[i]; }'
    reference = "import torch\nclass Model(torch.nn.Module):\n    def forward(self, x): return x + 0, x * 2\n"
    one, two = built(tmp_path, kernel, reference).ModelNew()(torch.ones(64))
    assert one.tolist() == [1.0] * 64 and two.tolist() == [2.0] * 64
