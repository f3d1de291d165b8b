# SPDX-License-Identifier: Apache-2.0
"""own.py: what lets a library do the work, under whatever name; and what is honest work of its own."""

from __future__ import annotations

import textwrap

import pytest

from kernelwright.candidate import Candidate
from kernelwright.proposers.agent import Prompts, candidate_from
from kernelwright.training.own import borrowed

KERNEL = 'extern "C" void f(const float* x, float* y, long n) { for (long i = 0; i < n; ++i) y[i] = 2 * x[i]; }\n'
TOP = """
import ctypes
import pathlib
import torch
_lib = ctypes.CDLL(str(pathlib.Path(__file__).with_name("kernel.so")))


class ModelNew(torch.nn.Module):
    def __init__(self, features):
        super().__init__()
        self.fc = torch.nn.Linear(features, features)

    def forward(self, x):
        x = x.contiguous()
        y = torch.empty_like(x)
        _lib.f(x.data_ptr(), y.data_ptr(), x.numel())
"""


def program(body: str, top: str = TOP, kernel: str = KERNEL, before: str = "") -> Candidate:
    """A C++ program whose forward goes on with ``body``."""
    text = before + top + textwrap.indent(textwrap.dedent(body).strip(), "        ") + "\n"
    sources = (("kernel.cpp", kernel), ("kernel.py", text))
    return Candidate(task="t", language="cpp", entry="kernel.py::ModelNew", sources=sources, proposer="test")


EVASIONS = {
    "plainly": ("return torch.softmax(y, -1)", ""),
    "under another name": ("return t.softmax(y, -1)", "import torch as t\n"),
    "the function alone": ("return s(y, -1)", "from torch import softmax as s\n"),
    "a module's alias": ("G = torch.nn.functional\nreturn G.gelu(y)", ""),
    "functional imported": ("return G.gelu(y)", "from torch.nn import functional as G\n"),
    "a constant getattr": ("return getattr(torch, 'softmax')(y, -1)", ""),
    "a computed getattr": ("return getattr(torch, 'soft' + 'max')(y, -1)", ""),
    "aten": ("return torch.ops.aten.relu(y)", ""),
    "the class's method": ("return torch.Tensor.exp(y)", ""),
    "a method": ("return y.exp()", ""),
    "a method of something": ("z = self.make(y)\nreturn z.softmax(-1)", ""),
    "an operator": ("return y + x", ""),
    "in place": ("y *= 2\nreturn y", ""),
    "a dunder": ("return y.__matmul__(x)", ""),
    "a product": ("return y @ self.fc.weight.t()", ""),
    "a layer": ("return self.fc(y)", ""),
    "a layer's alias": ("g = self.fc\nreturn g(y)", ""),
    "a layer's forward": ("return self.fc.forward(y)", ""),
    "a layer on the spot": ("return torch.nn.GELU()(y)", ""),
    "a helper": ("return twice(y)", "def twice(v):\n    return v + v\n"),
    "a helper by keyword": ("return twice(v=y)", "def twice(v):\n    return v * 3\n"),
    "a function kept": ("f = torch.relu\nreturn f(y)", ""),
    "through numpy": ("return torch.from_numpy(np.exp(y.numpy()))", "import numpy as np\n"),
    "operator": ("return operator.add(y, x)", "import operator\n"),
    "exec": ("exec('y = torch.relu(y)')\nreturn y", ""),
    "an index": ("i = self.order(x)\nreturn y[x]", ""),
    "another library": ("c = ctypes.CDLL('libtorch_cpu.so')\nc.go(y.data_ptr())\nreturn y", ""),
    "a builtin": ("return sum(y)", ""),
    "sys.modules": ("m = sys.modules['torch']\nreturn m.softmax(y, -1)", "import sys\n"),
}


@pytest.mark.parametrize("name", sorted(EVASIONS))
def test_a_library_is_seen_through_its_disguise(name: str) -> None:
    """An own kernel is launched in each, and the result is a library's all the same."""
    body, before = EVASIONS[name]
    assert borrowed(program(body, before=before))


@pytest.mark.parametrize(
    "kernel",
    ["#include <torch/extension.h>\n" + KERNEL, KERNEL + "void g() { cblas_sgemm(0); }\n",
     KERNEL + "#include <dlfcn.h>\nvoid* h = dlsym(0, \"sgemm\");\n", KERNEL + "void g() { sgemm_(); }\n"],
)  # fmt: skip
def test_native_code_that_calls_a_library_is_borrowed(kernel: str) -> None:
    """By its headers, its names, or by looking them up."""
    assert borrowed(program("return y", kernel=kernel))


def test_a_native_file_that_is_never_called_is_no_work() -> None:
    """It is compiled, and the result is the input."""
    top = "import torch\n\n\nclass ModelNew(torch.nn.Module):\n    def forward(self, x):\n"
    assert "launched" in borrowed(program("return x.contiguous()", top=top))


HONEST = {
    "as it is": ("return y", ""),
    "comments name libraries": ("# faster than torch.softmax\nreturn y", ""),
    "sizes are computed": ("n = x.numel() // x.shape[-1] + 2 * x.size(0)\nreturn y.view(n, -1)", ""),
    "weights of a layer": ("w = self.fc.weight\n_lib.g(w.data_ptr(), self.fc.bias.data_ptr())\nreturn y", ""),
    "views and casts": ("z = y.transpose(0, 1).reshape(-1)[:4]\nreturn z.to(torch.float32)", ""),
    "a condition": ("if not x.is_contiguous() or x.dtype != torch.float32:\n    raise ValueError\nreturn y", ""),
    "a helper": ("n = blocks(x.numel(), 256)\nreturn y", "def blocks(n, size):\n    return (n + size - 1) // size\n"),
    "an attribute of its own": ("self.scale = 1.0 / x.shape[0]\nreturn y", ""),
    "a library in a helper": ("load().f(y.data_ptr())\nreturn y",
                              "import ctypes\ndef load():\n    return ctypes.CDLL('./kernel.so')\n"),
}  # fmt: skip


@pytest.mark.parametrize("name", sorted(HONEST))
def test_honest_work_is_not_taken_for_borrowed(name: str) -> None:
    """Allocation, views, casts, sizes and launches."""
    body, before = HONEST[name]
    assert "" == borrowed(program(body, before=before))


@pytest.mark.parametrize(("language", "native"), [("cpp", "cpp"), ("cuda", "cu"), ("triton", "")])
def test_the_example_that_prompts_show_is_own_work(language: str, native: str) -> None:
    """Whoever answers as shown is paid."""
    text = Prompts().render("answer_format", native=native, language=language, entry="ModelNew", tuning=0, stays="")
    assert "" == borrowed(candidate_from(text, task="t", entry="ModelNew", proposer="test"))
