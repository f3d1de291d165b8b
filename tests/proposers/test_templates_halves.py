# SPDX-License-Identifier: Apache-2.0
"""float16 and bfloat16 on the CPU: values are read and rounded as torch does, kernels are as exact as eager."""

from __future__ import annotations

import ctypes
import subprocess
from pathlib import Path

import pytest
import torch
from templates_bench import error_ratios, load, pair, propose, reference

from kernelwright.proposers.templates import cpp_half
from kernelwright.proposers.templates.cpp_math import prelude

TYPES = {"float16": torch.float16, "bfloat16": torch.bfloat16}


@pytest.fixture(scope="module", params=[0, 4])
def library(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL:
    """Reading and writing of both types, by vectors and one by one, at one vector width."""
    folder: Path = tmp_path_factory.mktemp("halves")
    text = prelude(request.param) + cpp_half.PRELUDE
    for name, ctype in cpp_half.CTYPES.items():
        text += f"""
extern "C" void read_{name}(const {ctype}* a, float* b, int64_t n) {{
    int64_t i = 0;
    for (; i + W <= n; i += W) kw_store<false>(b + i, kw_load<false>(a + i, W), W);
    if (i < n) kw_store<true>(b + i, kw_load<true>(a + i, (int)(n - i)), (int)(n - i));
}}
extern "C" void write_{name}(const float* a, {ctype}* b, int64_t n) {{
    int64_t i = 0;
    for (; i + W <= n; i += W) kw_store<false>(b + i, kw_load<false>(a + i, W), W);
    if (i < n) kw_store<true>(b + i, kw_load<true>(a + i, (int)(n - i)), (int)(n - i));
}}
extern "C" void singly_{name}(const {ctype}* a, {ctype}* b, int64_t n) {{
    for (int64_t i = 0; i < n; ++i) b[i] = (float)a[i];
}}
"""
    (folder / "h.cpp").write_text(text)
    flags = "-O1 -march=native -shared -fPIC -std=c++20 -fno-fast-math".split()
    subprocess.run(["g++", *flags, str(folder / "h.cpp"), "-o", str(folder / "h.so")], check=True)
    return ctypes.CDLL(str(folder / "h.so"))


def _run(library: ctypes.CDLL, name: str, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    function = library[name]
    function.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64]
    function(x.data_ptr(), y.data_ptr(), x.numel())
    return y


def _every(name: str) -> torch.Tensor:
    """All values of a type but the last, so that vectors leave a tail."""
    return torch.arange(-32768, 32767).to(torch.int16).view(TYPES[name])


@pytest.mark.parametrize("name", sorted(TYPES))
def test_every_value_is_read_as_torch_reads_it(library: ctypes.CDLL, name: str) -> None:
    """Numbers below the normal ones, zeros of both signs, infinities and NaN among them."""
    values = _every(name)
    found, expected = _run(library, f"read_{name}", values, torch.empty(65535)), values.float()
    assert torch.equal(expected.isnan(), found.isnan())
    here = ~expected.isnan()
    assert torch.equal(expected[here].view(torch.int32), found[here].view(torch.int32))
    alone = _run(library, f"singly_{name}", values, torch.empty_like(values))
    assert torch.equal(values[here].view(torch.int16), alone[here].view(torch.int16)) and bool(
        alone[~here].isnan().all()
    )


@pytest.mark.parametrize("name", sorted(TYPES))
def test_every_rounding_is_torchs(library: ctypes.CDLL, name: str) -> None:
    """Halfway between neighbours, one step of float32 beside that, overflow, and float32 drawn from all its bits."""
    low = _every(name).float()
    low = low[low.isfinite()].sort().values
    middle = (low[1:].double() + low[:-1].double()).div(2).float()
    bits = torch.randint(-(2**31), 2**31, (100_003,), generator=torch.Generator().manual_seed(5), dtype=torch.int64)
    edges = torch.tensor([65504.0, 65519.9, 65520.0, 1e6, 3.39e38, 1e-8, -1e-8, 2.0**-25, 2.0**-24, float("inf"), -0.0])
    x = torch.cat([middle, torch.nextafter(middle, torch.tensor(3e38)), torch.nextafter(middle, torch.tensor(-3e38)),
                   bits.to(torch.int32).view(torch.float32), edges, torch.tensor([float("nan")])])  # fmt: skip
    expected = x.to(TYPES[name])
    found = _run(library, f"write_{name}", x, torch.empty_like(expected))
    assert torch.equal(expected.isnan(), found.isnan())
    here = ~expected.isnan()
    assert torch.equal(expected[here].view(torch.int16), found[here].view(torch.int16))


CASES = {
    "rms": ("return x * torch.rsqrt(x.float().pow(2).mean(-1, keepdim=True) + 1e-6).to(x.dtype) * self.w",
            "torch.randn(37, 1001).to(D)", "self.w = nn.Parameter(torch.randn(1001).to(D))"),
    "softmax": ("return torch.softmax(x, -1)", "(torch.randn(5, 9, 333) * 4).to(D)", "pass"),
    "layer_norm": ("return self.n(x)", "torch.randn(33, 130).to(D)", "self.n = nn.LayerNorm(130).to(D)"),
    "gelu": ("return F.gelu(x + self.b) * 2", "torch.randn(33, 65).to(D)",
             "self.b = nn.Parameter(torch.randn(65).to(D))"),
    "middle_axis": ("return x / x.abs().amax(1, keepdim=True)", "torch.randn(3, 70, 37).to(D)", "pass"),
    "channels": ("return torch.relu(x * self.s + 1)", "torch.randn(4, 8, 5, 7).to(D)",
                 "self.s = nn.Parameter(torch.randn(8, 1, 1).to(D))"),
    "mixed": ("return torch.tanh(x.float()) * self.w, x.amax(1)", "torch.randn(20, 50).to(D)",
              "self.w = nn.Parameter(torch.randn(50))"),
    "mlp": ("return F.silu(self.a(x)) + 1", "torch.randn(32, 48).to(D)", "self.a = nn.Linear(48, 96).to(D)"),
    "total": ("return torch.logsumexp(x, -1).float().mean()", "torch.randn(300, 70).to(D)", "pass"),
}  # fmt: skip


@pytest.mark.parametrize("kind", sorted(TYPES))
@pytest.mark.parametrize("name", sorted(CASES))
def test_a_candidate_is_as_accurate_as_eager(name: str, kind: str) -> None:
    """Sums in float32 and one rounding at the end: never further from float64 than the reference."""
    forward, inputs, init = CASES[name]
    source = reference(forward, inputs, init).replace("class Model", f"D = torch.{kind}\n\n\nclass Model", 1)
    candidate = propose(source)
    assert candidate is not None
    module = load(candidate)
    torch.manual_seed(6)
    limit = 2.0 if name in ("mixed", "total") else 1.1  # these answer in float32
    assert max(error_ratios(module, module.get_inputs())) <= limit


@pytest.mark.parametrize(
    "values", [{"pages": "populate"}, {"pages": "huge", "width": 8}, {"stream": False, "unroll": 4}]
)
def test_large_outputs_are_complete_and_end_where_they_end(values: dict[str, int | str | bool]) -> None:
    """Half the bytes of a float32 output: pages beyond them belong to somebody else."""
    source = reference("return torch.sigmoid(x) * 3", "torch.randn(1024, 4096).to(torch.bfloat16)")
    candidate = propose(source, **values)
    assert candidate is not None
    assert "sizeof(*out0)" in dict(candidate.sources)["kernels.cpp"] or "pages" not in values
    old, new = pair(load(candidate))
    x = torch.randn(1024, 4096).to(torch.bfloat16)
    with torch.no_grad():
        assert new._kw_ready((x,))
        exact, found = torch.sigmoid(x.double()) * 3, new(x)
        assert float((found.double() - exact).norm()) <= float((old(x).double() - exact).norm())


@pytest.mark.parametrize("kind", sorted(TYPES))
def test_a_number_is_compared_in_half_precision(kind: str) -> None:
    """As eager does: a half that is nearest to 0.1 is no less than 0.1, though 0.1 in float32 is larger or smaller."""
    body = "return torch.where(x >= 0.1, x * 2, x - 1) + (x < 0.1)"
    source = reference(body, "torch.full((8, 64), 0.1).to(D)").replace(
        "class Model", f"D = torch.{kind}\n\n\nclass Model", 1
    )
    candidate = propose(source)
    assert candidate is not None
    old, new = pair(load(candidate))
    x = torch.full((8, 64), 0.1).to(TYPES[kind])
    with torch.no_grad():
        assert new._kw_ready((x,))
        assert torch.equal(old(x), new(x))
