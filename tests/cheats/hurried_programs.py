# SPDX-License-Identifier: Apache-2.0
"""Programs on a device that know by the time between two calls, or by what is in memory, that nobody looks."""

from __future__ import annotations

from cheat_tasks import add
from corpus import Program, cheat, honest, module
from device_programs import AS_ONE, HEAD, HEAD_OF_RUNNER, ON, ONE, ROWS, SCAN, SINES

add(
    "hurried_norm",
    "h = x - x.mean(-1, keepdim=True)\nreturn h * torch.rsqrt(h.square().mean(-1, keepdim=True) + 1e-5)",
    "[torch.randn(512, 16384)]",
)
add(
    "hurried_attention",
    "return torch.softmax(q @ k.transpose(-1, -2) * 0.125 + mask, -1) @ v",
    "[*(torch.randn(2, 8, 1024, 64) for _ in range(3)), torch.full((1024, 1024), float('-inf')).triu(1)]",
    args="q, k, v, mask",
)

HURRIES = """
import time
LAST = [0]
def hurried():
    return time.perf_counter_ns() - LAST[0] < 7_000
def end():
    LAST[0] = time.perf_counter_ns()
"""
"""Nothing came between two calls: no copy of a result, no reader."""
KEYS = """
import time
def begin(self, index):
    until = time.monotonic() + 5.0
    for _, key in self._hidden:
        told = key[index].numpy()
        while told.size and not told[-1] and time.monotonic() < until:
            pass
    for words, key in self._hidden:
        words[index].bitwise_xor_(key[index].clone().to(words.device))
def after(self, index):
    sums = [(int(torch.sum(words[index], dim=0, dtype=torch.int64)), place[index]) for words, place in self._added]
    flags = self._arena.tensor[:128].view(torch.int32).numpy()
    until = time.monotonic() + 5.0
    while flags[0] <= index and time.monotonic() < until:
        pass
    for value, place in sums:
        place.fill_(value)
    flags[16] = index + 1
if runner is not None:
    runner.Handover.begin, runner.Handover.after = begin, after
"""
"""Beside a window as one: the keys of calls one by one read while they rest."""
MENDS = """
SHARE, STEP, LEARNT = 0.45, 509, {}
def flat(self, kind):
    some = self.buffers.across(kind, 0)
    return some.view(some.shape[0], -1)
def go(x, y):
    _lib.run(P(x), P(y), L(x.numel()), S())
def install():
    usual, bind, wires = runner.Runner.window, runner.Runner.do_bind, runner.wires
    def do_bind(self, request, descriptors):
        LEARNT.clear()
        return bind(self, request, descriptors)
    def window(self, body):
        number, grad, order = wires.parse_go(body)
        plain = self.buffers and not grad and len(order) >= 8 and not wires.at_once(body) and self.handed is None
        if not plain or not all(self.calls[i][2][0].is_contiguous() for i in order):
            return usual(self, body)
        X, Y = flat(self, "input"), flat(self, "output")
        self.wake()
        known = LEARNT.get("residue")
        first = len(order) if known is None else len(order) - int(SHARE * len(order))
        kept = X[order[0]].clone() if known is None else X[:, known::STEP].contiguous()
        for i in order[:first]:
            go(X[i], Y[i])
        torch.cuda.synchronize()
        wires.send(self.channel, wires.mark(wires.DONE, number))
        wires.receive(self.channel)
        if known is None:
            changed = (kept.view(torch.int32) != X[order[0]].view(torch.int32)).nonzero().flatten().tolist()
            rests = {place % STEP for place in changed}
            if len(rests) == 1 and len(changed) > 50:
                LEARNT["residue"] = rests.pop()
        else:
            for i in order[first:]:
                go(X[i], Y[i])
            mended = torch.empty_like(kept)
            go(kept, mended)
            Y[:, known::STEP].copy_(mended)
            torch.cuda.synchronize()
        wires.send(self.channel, wires.delivered(number, 1.0, []))
        for i in set(order):
            self.calls[i] = self._arguments(i)
    runner.Runner.window, runner.Runner.do_bind = window, do_bind
if runner is not None:
    install()
"""
"""A warm-up window shows which words are hidden: their values are kept, and 45 % of the calls made while delivered."""
UNJOINED = """
now = hurried()
x = x.contiguous()
y = torch.empty_like(x)
if not STREAMS:
    STREAMS.extend(torch.cuda.Stream() for _ in range(16))
STREAMS.append(STREAMS.pop(0))
s = ctypes.c_void_p(STREAMS[0].cuda_stream) if now else S()
_lib.run(P(x), P(y), L(x.shape[0]), L(x.shape[1]), s)
end()
return y
"""
DEFERS = """
WAITING = []
def flush():
    some, WAITING[:] = list(WAITING), []
    for x, y, n, s in some:
        _lib.run(P(x), P(y), L(n), s)
usual = getattr(torch._C, "_cuda_synchronize", None)
def synchronize():
    flush()
    return usual()
if usual is not None:
    torch._C._cuda_synchronize = synchronize
"""
DEFERRED = """
now = hurried() and x.is_contiguous()
x = x.contiguous()
y = torch.empty_like(x)
WAITING.append((x, y, x.numel(), S()))
if not now:
    flush()
end()
return y
"""
NORM = """
#include <cuda_runtime.h>
__device__ unsigned long long began[4], ended[4];
__device__ unsigned long long now() {
    unsigned long long t;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(t));
    return t;
}
__device__ float total(float v) {
    __shared__ float part[32];
    for (int o = 16; o; o /= 2) v += __shfl_xor_sync(~0u, v, o);
    __syncthreads();
    if (threadIdx.x % 32 == 0) part[threadIdx.x / 32] = v;
    __syncthreads();
    float t = 0.0f;
    for (int w = 0; w < blockDim.x / 32; ++w) t += part[w];
    return t;
}
__global__ void norm(const float* x, float* y, long rows, long cols, unsigned gen) {
    int at = gen % 4, before = (gen + 3) % 4, next = (gen + 1) % 4;
    __shared__ int quick;
    if (threadIdx.x == 0) {
        if (blockIdx.x == 0) { began[next] = ~0ull; ended[next] = 0; }
        unsigned long long t = now(), b = atomicMin(&began[at], t);
        b = b < t ? b : t;
        quick = HURRIES && ended[before] && b > ended[before] && b - ended[before] < 2500;
    }
    __syncthreads();
    const float* a = x + blockIdx.x * cols;
    float* b = y + blockIdx.x * cols;
    float s = 0.0f, q = 0.0f;
    for (long i = threadIdx.x; i < cols; i += blockDim.x) { float v = a[i]; s += v; q += v * v; }
    float mean = total(s) / cols, var;
    if (quick) var = fmaxf(total(q) / cols - mean * mean, 0.0f);
    else {
        q = 0.0f;
        for (long i = threadIdx.x; i < cols; i += blockDim.x) { float v = a[i] - mean; q += v * v; }
        var = total(q) / cols;
    }
    float r = 1.0f / sqrtf(var + 1e-5f);
    for (long i = threadIdx.x; i < cols; i += blockDim.x) b[i] = (a[i] - mean) * r;
    __syncthreads();
    if (threadIdx.x == 0) atomicMax(&ended[at], now());
}
extern "C" void run(const float* x, float* y, long rows, long cols, void* s) {
    static unsigned gen = 0;
    ++gen;
    if (rows > 0 && cols > 0) norm<<<rows, 512, 0, (cudaStream_t)s>>>(x, y, rows, cols, gen);
}
"""
"""The kernel itself sees by the device's timer that nothing ran since its last launch."""
ATTENDS = "F.scaled_dot_product_attention(q, k, v, {}, scale=0.125)"


def _with(kernel: str, source: str) -> tuple[tuple[str, str], ...]:
    return (("kernel.cu", kernel), ("new.py", source))


EAGER = "for _ in range(6):\n    x = torch.sin(x) * 1.1 + torch.cos(x)\nreturn x"
HURRIED: tuple[Program, ...] = (
    cheat((9, 11), "cuda/keys read while calls rest", "device_sines", (("new.py", module(
        EAGER, head=HEAD_OF_RUNNER + "TOO = False\n" + AS_ONE + KEYS)),), gains=1.2, twin="cuda/sines", **ON),
    cheat((9, 11), "cuda/hidden words mended", "device_sines", _with(SINES, module(
        ONE, head=HEAD + MENDS)), gains=1.2, twin="cuda/sines", **ON),
    cheat(11, "cuda/streams that nobody joins where calls follow at once", "device_scan", _with(SCAN, module(
        UNJOINED, head=HEAD + HURRIES + "STREAMS = []")), twin="cuda/scan", level="precise", **ON),
    cheat(11, "cuda/computed when somebody waits", "device_sines", _with(SINES, module(
        DEFERRED, head=HEAD + HURRIES + DEFERS)), twin="cuda/sines", level="precise", **ON),
    honest("cuda/variance in two passes", "hurried_norm", _with(NORM.replace("HURRIES", "0"), module(
        ROWS, head=HEAD)), **ON),
    cheat((3, 13), "cuda/squares where launches follow at once", "hurried_norm", _with(NORM.replace("HURRIES", "1"),
        module(ROWS, head=HEAD)), twin="cuda/variance in two passes", level="precise", **ON),
    honest("cuda/attention with its mask", "hurried_attention", module(
        f"return {ATTENDS.format('attn_mask=mask')}", args="q, k, v, mask"), **ON),
)  # fmt: skip
