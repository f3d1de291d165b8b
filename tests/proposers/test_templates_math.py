# SPDX-License-Identifier: Apache-2.0
"""The vector functions of the C++ prelude against float64."""

from __future__ import annotations

import ctypes
import subprocess
from pathlib import Path

import numpy as np
import pytest
import torch

from kernelwright.proposers.templates.cpp_math import prelude

ULPS = {
    "exp": 1.1, "expm1": 1.5, "log": 1.0, "log1p": 1.5, "log2": 1.5, "sigmoid": 2.5, "tanh": 1.5, "erf": 1.1,
    "sqrt": 0.51, "rsqrt": 1.6, "floor": 0.0, "ceil": 0.0, "trunc": 0.0, "round": 0.0, "reciprocal": 0.51,
}  # fmt: skip
"""Greatest error allowed, in units of the last place."""
SPECIAL = [0.0, -0.0, float("inf"), -float("inf"), float("nan"), 1e-40, -1e-40, 88.8, -88.0, -103.0, 100.0, -100.0,
           -1.0, 1.0, 3e38, -3e38]  # fmt: skip


@pytest.fixture(scope="module", params=[0, 4])
def library(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL:
    """Every function of ULPS over an array, at one vector width."""
    folder: Path = tmp_path_factory.mktemp("math")
    text = prelude(request.param)
    for name in ULPS:
        text += f'extern "C" void t_{name}(const float* a, float* b, int64_t n) {{ for (int64_t i = 0; i < n; i += W)'
        text += f" kw_store<false>(b + i, kw_{name}(kw_load<false>(a + i, W)), W); }}\n"
    (folder / "m.cpp").write_text(text)
    flags = "-O1 -march=native -shared -fPIC -std=c++20 -fno-fast-math".split()
    subprocess.run(["g++", *flags, str(folder / "m.cpp"), "-o", str(folder / "m.so")], check=True)
    return ctypes.CDLL(str(folder / "m.so"))


def _run(library: ctypes.CDLL, name: str, x: torch.Tensor) -> torch.Tensor:
    y = torch.empty_like(x)
    function = library[f"t_{name}"]
    function.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64]
    function(x.data_ptr(), y.data_ptr(), x.numel())
    return y


@pytest.mark.parametrize("name", sorted(ULPS))
def test_a_function_is_within_its_ulps_of_float64(library: ctypes.CDLL, name: str) -> None:
    """Over three ranges of arguments, wherever the exact result is a normal number."""
    torch.manual_seed(0)
    x = torch.cat([torch.randn(1 << 14), torch.randn(1 << 14) * 10, torch.rand(1 << 14) * 170 - 85])
    if name in ("log", "log2", "sqrt", "rsqrt"):
        x = x.abs()
    if name == "log1p":
        x = torch.where(x < -1, -x, x)
    exact = getattr(torch, name)(x.double())
    normal = exact.abs().float().isfinite() & ((exact.abs() > 1.2e-38) | (exact == 0))
    ulp = torch.from_numpy(np.spacing(np.abs(exact.float().numpy()))).double()
    error = ((_run(library, name, x).double() - exact).abs() / ulp)[normal]
    assert float(error.max()) <= ULPS[name]


@pytest.mark.parametrize("name", sorted(ULPS))
def test_special_values_come_out_as_in_torch(library: ctypes.CDLL, name: str) -> None:
    """NaN, infinities, zeros of both signs, denormals and overflow."""
    x = torch.tensor(SPECIAL)
    expected, actual = getattr(torch, name)(x), _run(library, name, x)
    assert torch.isclose(expected, actual, rtol=1e-6, atol=1e-44, equal_nan=True).all(), (expected, actual)


def test_the_logarithm_of_a_power_of_two_is_its_exponent(library: ctypes.CDLL) -> None:
    """From the smallest to the largest: whoever rounds it down gets the exponent, and random numbers never hit one."""
    exponents = torch.arange(-149.0, 128.0)
    padded = torch.nn.functional.pad(exponents, (0, -exponents.numel() % 64))
    assert torch.equal(padded, _run(library, "log2", torch.exp2(padded.double()).float()))
