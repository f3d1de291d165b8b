# SPDX-License-Identifier: Apache-2.0
"""float64 on the CPU: functions against extended precision, candidates as close to torch as torch is to the truth."""

from __future__ import annotations

import ctypes
import subprocess
from pathlib import Path

import numpy as np
import pytest
import torch
from templates_bench import leaves, load, pair, propose, reference, request

from kernelwright.proposers.templates.cpp_double import DOUBLES
from kernelwright.proposers.templates.cpp_math import head
from kernelwright.proposers.templates.graph import capture
from kernelwright.proposers.templates.ir import F64, Call, Fused
from kernelwright.proposers.templates.lower import lower

ULPS = {"exp": 1.1, "expm1": 2.0, "log": 1.0, "log1p": 1.6, "sigmoid": 2.5, "tanh": 2.5, "sqrt": 0.51, "rsqrt": 1.6,
        "floor": 0.0, "ceil": 0.0, "trunc": 0.0, "round": 0.0, "reciprocal": 0.51}  # fmt: skip
"""Greatest error allowed, in units of the last place."""
SPECIAL = [0.0, -0.0, float("inf"), -float("inf"), float("nan"), 5e-324, -5e-324, 709.7, 710.0, -708.0, -745.0, 1e300,
           -1e300, -1.0, 1.0, 1e-17]  # fmt: skip
EXTENDED = {"sigmoid": lambda x: 1 / (1 + np.exp(-x)), "rsqrt": lambda x: 1 / np.sqrt(x), "round": np.rint}


@pytest.fixture(scope="module", params=[0, 4])
def library(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL:
    """Every function of ULPS over an array, at one vector width."""
    folder: Path = tmp_path_factory.mktemp("doubles")
    text = head(request.param) + DOUBLES
    for name in ULPS:
        text += f'extern "C" void t_{name}(const double* a, double* b, int64_t n) {{ for (int64_t i = 0; i < n; i += W)'
        text += f" kw_store<false>(b + i, kw_{name}(kw_load<false>(a + i, W)), W); }}\n"
    (folder / "d.cpp").write_text(text)
    flags = "-O1 -march=native -shared -fPIC -std=c++20 -fno-fast-math".split()
    subprocess.run(["g++", *flags, str(folder / "d.cpp"), "-o", str(folder / "d.so")], check=True)
    return ctypes.CDLL(str(folder / "d.so"))


def _run(library: ctypes.CDLL, name: str, x: torch.Tensor) -> torch.Tensor:
    y = torch.empty_like(x)
    function = library[f"t_{name}"]
    function.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64]
    function(x.data_ptr(), y.data_ptr(), x.numel())
    return y


@pytest.mark.skipif(np.finfo(np.longdouble).nmant < 63, reason="numpy has nothing more precise than float64 here")
@pytest.mark.parametrize("name", sorted(ULPS))
def test_a_function_is_within_its_ulps(library: ctypes.CDLL, name: str) -> None:
    """Over three ranges of arguments, wherever the exact result is a normal number."""
    rng = np.random.default_rng(0)
    x = np.concatenate([rng.normal(size=1 << 14), rng.normal(size=1 << 14) * 20, rng.uniform(-700, 700, 1 << 14)])
    x = np.abs(x) if name in ("log", "sqrt", "rsqrt") else np.where(x < -1, -x, x) if name == "log1p" else x
    exact = (EXTENDED.get(name) or getattr(np, name))(x.astype(np.longdouble))
    normal = np.isfinite(exact.astype(np.float64)) & ((np.abs(exact) > 2.3e-308) | (exact == 0))
    got = _run(library, name, torch.from_numpy(x)).numpy().astype(np.longdouble)
    error = np.abs(got - exact) / np.spacing(np.abs(exact.astype(np.float64)))
    assert float(error[normal].max()) <= ULPS[name]


@pytest.mark.parametrize("name", sorted(ULPS))
def test_special_values_come_out_as_in_torch(library: ctypes.CDLL, name: str) -> None:
    """NaN, infinities, zeros of both signs, denormals and overflow."""
    x = torch.tensor(SPECIAL, dtype=torch.float64)
    expected, actual = getattr(torch, name)(x), _run(library, name, x)
    assert torch.isclose(expected, actual, rtol=1e-14, atol=5e-324, equal_nan=True).all(), (expected, actual)
    assert torch.equal(expected.signbit()[:2], actual.signbit()[:2])


ROW = "torch.randn(37, 1001, dtype=torch.float64)"
CASES = {
    "chain": ("return torch.tanh(x) * 3.1 + torch.exp(x) / 7 - torch.log1p(x.abs())", ROW, "pass"),
    "rms": ("return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6) * self.w", ROW,
            "self.w = nn.Parameter(torch.randn(1001).double())"),
    "softmax": ("return torch.softmax(x * 4, -1)", ROW, "pass"),
    "softmax of columns": ("return torch.softmax(x, 0), x.var(0)", ROW, "pass"),
    "layer norm": ("return self.n(x + 30)", ROW, "self.n = nn.LayerNorm(1001).double()"),
    "a number": ("return torch.logsumexp(x, -1).mean()", ROW, "pass"),
    "along rows": ("return torch.cumsum(x, 1), x.argmax(1), x.amin(1)", ROW, "pass"),
    "channels": ("return torch.relu(x * self.s + 1)", "torch.randn(4, 8, 5, 7).double()",
                 "self.s = nn.Parameter(torch.randn(8, 1, 1).double())"),
    "from float32": ("return x.double() * 0.1 + 3, x.sum(-1, dtype=torch.float64)", "torch.randn(37, 1001)", "pass"),
    "to float32": ("return (x * 3 + 0.1).float(), torch.where(x > 0.5, x, x.float().double())", ROW, "pass"),
    "of bytes": ("return x.double() * 0.1 - 3", "torch.arange(256, dtype=torch.uint8).view(4, 64)", "pass"),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_a_candidate_differs_from_torch_by_rounding_alone(name: str) -> None:
    """A single float32 on the way, an argument or a sum of them, would be a million times further off."""
    forward, inputs, init = CASES[name]
    candidate = propose(reference(forward, inputs, init))
    assert candidate is not None
    old, new = pair(module := load(candidate))
    torch.manual_seed(4)
    given = module.get_inputs()
    with torch.no_grad():
        assert new._kw_ready(tuple(given))
        for plain, got in zip(leaves(old(*given)), leaves(new(*given)), strict=True):
            assert plain.dtype == got.dtype
            if plain.dtype == torch.float64:
                assert float((plain - got).norm()) <= 4e-15 * float(plain.norm())
            else:
                assert torch.equal(plain, got)


def test_functions_that_have_no_vectors_stay_torchs() -> None:
    """An erf of float64 by the C library, one by one, is slower than torch's; what surrounds it is still fused."""
    program = lower(capture(request(reference("return F.gelu(x * 2 + 1)", ROW)).task))
    assert ["Fused", "Call"] == [type(step).__name__ for step in program.steps]
    on_device = lower(capture(request(reference("return F.gelu(x * 2 + 1)", ROW)).task), on_host=False)
    assert [Fused] == [type(step) for step in on_device.steps]


def test_a_region_computes_in_one_type() -> None:
    """float32 work is not done in float64 because a float64 reads it, nor the other way round."""
    source = reference("return torch.sigmoid(x).double() * y", f"torch.randn(37, 1001), {ROW}", arguments="x, y")
    program = lower(capture(request(source).task))
    assert ["f32", "f64"] == [fused.region.float_type for fused in program.regions()]
    assert not [step for step in program.steps if isinstance(step, Call)]
    assert {"f64", F64} == {value.dtype for value in list(program.regions())[1].region.values}
