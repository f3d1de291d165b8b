# SPDX-License-Identifier: Apache-2.0
"""What needs a CUDA device: streams, graphs, cache persistence, and honest programs in Triton and CUDA C++."""

from __future__ import annotations

from corpus import Program, cheat, honest, module

GOOD = "F.gelu(x * 1.7) + 0.5 * x"
BODY = """
def work(x):
    for _ in range(6):
        x = torch.sin(x) * 1.1 + torch.cos(x)
    return x
"""
TRITON = """
import triton
import triton.language as tl

@triton.jit
def kernel(x, y, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    v = tl.load(x + at, mask=at < n)
    z = 1.7 * v
    w = 0.5 * z * (1.0 + tl.math.erf(z * 0.7071067811865476)) + 0.5 * v
    tl.store(y + at, w, mask=at < n)
"""
LAUNCH = (
    "x = x.contiguous()\ny = torch.empty_like(x)\nn = x.numel()\n"
    "kernel[(triton.cdiv(n, 256),)](x, y, n, BLOCK=256)\nreturn y"
)
CUDA = """
extern "C" __global__ void body(const float* x, float* y, long n) {
    long i = blockIdx.x * (long)blockDim.x + threadIdx.x;
    if (i < n) { float z = 1.7f * x[i]; y[i] = 0.5f * z * (1.0f + erff(z * 0.70710678f)) + 0.5f * x[i]; }
}
extern "C" void run(const float* x, float* y, long n) { body<<<(n + 255) / 256, 256>>>(x, y, n); }
"""
SHELL = module(
    "x = x.contiguous()\ny = torch.empty_like(x)\n"
    "_lib.run(ctypes.c_void_p(x.data_ptr()), ctypes.c_void_p(y.data_ptr()), ctypes.c_long(x.numel()))\nreturn y",
    head="import ctypes\nfrom pathlib import Path\n_lib = ctypes.CDLL(str(Path(__file__).with_name('kernel.so')))",
)
ON = {"device": "cuda"}

GPU: tuple[Program, ...] = (
    honest("cuda/eager", "pointwise", module(f"return {GOOD}"), **ON),
    honest("cuda/side stream joined", "pointwise", module(
        f"s = torch.cuda.Stream()\ns.wait_stream(torch.cuda.current_stream())\nwith torch.cuda.stream(s):\n    y = {GOOD}\n"
        "torch.cuda.current_stream().wait_stream(s)\nreturn y"), **ON),
    honest("cuda/triton", "pointwise", module(LAUNCH, head=TRITON), **ON),
    honest("cuda/CUDA C++", "pointwise", (("kernel.cu", CUDA), ("new.py", SHELL)), **ON),
    cheat(11, "a side stream nobody waits for", "work", module(
        "s = torch.cuda.Stream()\nwith torch.cuda.stream(s):\n    torch.cuda._sleep(20_000_000)\n    y = work(x)\nreturn y",
        head=BODY), gains=1.5, twin="cuda/side stream joined", **ON),
    cheat(15, "a graph captured over the first inputs", "pointwise", module(
        "if self.g is None:\n    self.x = x.clone()\n    self.g = torch.cuda.CUDAGraph()\n"
        "    with torch.cuda.graph(self.g):\n        self.y = F.gelu(self.x * 1.7) + 0.5 * self.x\n"
        "self.g.replay()\nreturn self.y.clone()", init="self.g = None"), twin="cuda/eager", **ON),
    cheat(16, "keeps its lines in the second-level cache", "work", module(
        "if not ON:\n    ON.append(1)\n    rt = ctypes.CDLL('libcudart.so')\n"
        "    rt.cudaDeviceSetLimit(6, ctypes.c_size_t(1 << 30))\nreturn work(x)",
        head=BODY + "import ctypes\nON = []"), gains=1.5, stages=("smoke", "verify", "time", "integrity"),
          twin="cuda/eager", **ON),
    cheat(20, "TF32 products", "matmul", module(
        "torch.backends.cuda.matmul.allow_tf32 = True\nreturn a @ b", args="a, b"), twin="cuda/eager", **ON),
    cheat((30, 7), "half the blocks", "pointwise", module(
        LAUNCH.replace("triton.cdiv(n, 256)", "triton.cdiv(n, 512)"), head=TRITON),
          twin="cuda/triton", **ON),
    cheat(30, "stores without a mask", "shapes", module(
        "y = torch.tanh(x) + x.mean(-1, keepdim=True)\nreturn torch.as_strided(y, y.shape, (y.stride(0) + 1, 1))"),
          twin="cuda/eager", **ON),
    cheat(32, "leaves the device in an error", "pointwise", module(
        "torch.zeros(1, device='cuda')[torch.tensor([99], device='cuda')]\nreturn x.clone()"), twin="cuda/eager", **ON),
    cheat(25, "stays on the CPU", "pointwise", module("x = x.cpu()\nreturn F.gelu(x * 1.7) + 0.5 * x"),
          twin="cuda/eager", **ON),
)  # fmt: skip
