# SPDX-License-Identifier: Apache-2.0
"""What only a GPU makes possible: it goes on while its process stands still, on streams that nobody waits for."""

from __future__ import annotations

from cheat_tasks import add
from corpus import Program, cheat, honest, module

add(
    "device_sines",
    "for _ in range(6):\n    x = torch.sin(x) * 1.1 + torch.cos(x)\nreturn x",
    "[torch.randn(512, 1024)]",
)
add("device_scan", "return torch.cumsum(x, dim=0)", "[torch.randn(4096, 256)]")
add("device_rows", "return self.fc(x)", "[torch.randn(4, 4096)]", init="self.fc = nn.Linear(4096, 4096)")
add("device_sums", "return x.sum(0)", "[torch.randn(1024, 1024)]")
add("device_pair", "return x.clone(), torch.sin(x) * 1.1 + torch.cos(x)", "[torch.randn(512, 1024)]")

SINES = """
#include <cuda_runtime.h>
template <int N> __global__ void body(const float* x, float* y, long n) {
    long i = blockIdx.x * 256L + threadIdx.x;
    if (i < n) {
        float v = x[i];
        #pragma unroll
        for (int k = 0; k < N; ++k) v = sinf(v) * 1.1f + cosf(v);
        y[i] = v;
    }
}
extern "C" void run(const float* x, float* y, long n, void* s) {
    if (n > 0) body<6><<<(n + 255) / 256, 256, 0, (cudaStream_t)s>>>(x, y, n);
}
extern "C" void once(const float* x, float* y, long n, void* s) {
    if (n > 0) body<1><<<(n + 255) / 256, 256, 0, (cudaStream_t)s>>>(x, y, n);
}
"""
SPIN = """
static volatile int* flag = nullptr;
static cudaStream_t own;
__global__ void spin(volatile int* stop, unsigned long long ns) {
    unsigned long long begin, now;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(begin));
    do { asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now)); } while (*stop == 0 && now - begin < ns);
}
extern "C" void begin_spin() {
    if (!flag) {
        cudaHostAlloc((void**)&flag, 64, cudaHostAllocMapped);
        cudaStreamCreateWithFlags(&own, cudaStreamNonBlocking);
    }
    *flag = 0;
    int* seen;
    cudaHostGetDevicePointer((void**)&seen, (void*)flag, 0);
    spin<<<1, 32, 0, own>>>(seen, 1000000000ULL);
}
extern "C" void end_spin() { if (flag) *flag = 1; }
"""
SCAN = """
#include <cuda_runtime.h>
__global__ void scan(const float* x, float* y, long rows, long cols) {
    long c = blockIdx.x * 32L + threadIdx.x;
    if (c >= cols) return;
    float sum = 0.0f;
    for (long r = 0; r < rows; ++r) { sum += x[r * cols + c]; y[r * cols + c] = sum; }
}
extern "C" void run(const float* x, float* y, long rows, long cols, void* s) {
    if (rows > 0 && cols > 0) scan<<<(cols + 31) / 32, 32, 0, (cudaStream_t)s>>>(x, y, rows, cols);
}
"""
SUMS = """
#include <cuda_runtime.h>
__global__ void sums(const float* x, float* part, float* y, int* left, long rows, long cols, int parts) {
    long c = blockIdx.x * 128L + threadIdx.x;
    long step = (rows + parts - 1) / parts, from = blockIdx.y * step, to = min(rows, from + step);
    if (c < cols) {
        float s = 0.0f;
        for (long r = from; r < to; ++r) s += x[r * cols + c];
        part[blockIdx.y * cols + c] = s;
    }
    __threadfence();
    __syncthreads();
    __shared__ int last;
    if (threadIdx.x == 0) last = atomicAdd(left + blockIdx.x, 1) == parts - 1;
    __syncthreads();
    if (!last) return;
    __threadfence();
    if (c < cols) {
        float t = 0.0f;
        for (int p = 0; p < parts; ++p) t += __ldcg(part + p * cols + c);
        y[c] = t;
    }
    if (threadIdx.x == 0) left[blockIdx.x] = 0;
}
extern "C" void run(const float* x, float* part, float* y, int* left, long rows, long cols, int parts, void* s) {
    if (cols > 0) sums<<<dim3((cols + 127) / 128, parts), 128, 0, (cudaStream_t)s>>>(x, part, y, left, rows, cols, parts);
}
"""
HEAD = """
import ctypes, sys
from pathlib import Path
_lib = ctypes.CDLL(str(Path(__file__).with_name("kernel.so")))
def P(t):
    return ctypes.c_void_p(t.data_ptr())
def L(n):
    return ctypes.c_long(n)
def S():
    return ctypes.c_void_p(torch.cuda.current_stream().cuda_stream)
runner = sys.modules.get("kernelwright.judge.runner")
"""
ONE = "x = x.contiguous()\ny = torch.empty_like(x)\n_lib.run(P(x), P(y), L(x.numel()), S())\nreturn y"
ROWS = "x = x.contiguous()\ny = torch.empty_like(x)\n_lib.run(P(x), P(y), L(x.shape[0]), L(x.shape[1]), S())\nreturn y"
WAITED = """
x = x.contiguous()
y = torch.empty_like(x)
if not self.streams:
    self.streams = [torch.cuda.Stream() for _ in range(16)]
self.turn = (self.turn + 1) % 16
s = self.streams[self.turn]
s.wait_stream(torch.cuda.current_stream())
with torch.cuda.stream(s):
    _lib.run(P(x), P(y), L(x.shape[0]), L(x.shape[1]), S())
x.record_stream(s)
"""
BUDGET = """
def install():
    usual = runner.Runner.window
    def window(self, body):
        number, grad, order = runner.wires.parse_go(body)
        plain = self.buffers and not grad and len(order) >= 8 and not runner.wires.at_once(body)
        if not plain or not all(self.calls[i][2][0].is_contiguous() for i in order):
            return usual(self, body)
        ends = [(self.calls[i][2][0], self.buffers.outputs[i][0]) for i in order]
        first = len(ends) - int(SHARE * len(ends))
        self.wake()
        for x, y in ends[:first]:
            _lib.run(P(x), P(y), L(x.numel()), S())
        torch.cuda.synchronize()
        runner.wires.send(self.channel, runner.wires.mark(runner.wires.DONE, number))
        runner.wires.receive(self.channel)
        for x, y in ends[first:]:
            _lib.run(P(x), P(y), L(x.numel()), S())
        if WAITS:
            torch.cuda.synchronize()
        runner.wires.send(self.channel, runner.wires.delivered(number, 1.0, []))
        for i in set(order):
            self.calls[i] = self._arguments(i)
    runner.Runner.window = window
if runner is not None:
    install()
"""
SPINNING = """
STATE = {"racing": False, "calls": 0}
def install():
    wires = runner.wires
    parse, receive, delivered, perturb = wires.parse_go, wires.receive, wires.delivered, runner.Runner.do_perturb
    def parse_go(body):
        found = parse(body)
        STATE["calls"] = len(found[2])
        return found
    def listen(channel):
        found = receive(channel)
        _lib.end_spin()
        return found
    def last_word(*arguments):
        if STATE["racing"] and STATE["calls"] >= 2:
            _lib.begin_spin()
        return delivered(*arguments)
    def do_perturb(self, request, descriptors):
        STATE["racing"] = not request["on"]
        return perturb(self, request, descriptors)
    wires.parse_go, wires.receive, wires.delivered = parse_go, listen, last_word
    runner.Runner.do_perturb = do_perturb
if runner is not None:
    install()
"""
AS_ONE = """
def install():
    usual = runner.Runner.window
    def window(self, body):
        number, grad, order = runner.wires.parse_go(body)
        handed = self.handed is not None
        if not self.buffers or grad or len(order) < 8 or (not TOO if handed else runner.wires.at_once(body)):
            return usual(self, body)
        made = []
        def call(index, grad):
            if not made:
                made.append(self.module(self.buffers.across("input", 0)).unbind(0))
            return made[0][index], ()
        self._call = call
        try:
            return usual(self, body)
        finally:
            del self._call
    runner.Runner.window = window
if runner is not None:
    install()
"""
SOONER = """
def before(self, index):
    if index == 0:
        flags = self._arena.tensor[:128].view(torch.int32)
        for call in range(self._calls):
            while int(flags[0]) <= call:
                pass
            for words, key in self._hidden:
                words[call].bitwise_xor_(key[call])
            flags[16] = call + 1
def after(self, index):
    for words, place in self._added:
        torch.sum(words[index], dim=0, dtype=torch.int64, out=place[index])
if runner is not None:
    runner.Handover.before, runner.Handover.after = before, after
"""
UNSAID = """
if runner is not None:
    told = runner.wires.delivered
    runner.wires.delivered = lambda number, own_us, aliases: told(number, own_us, [])
"""


def _sums(counters: str) -> str:
    return module(
        "x = x.contiguous()\nrows, cols = x.shape\n"
        "if self.left is None or self.left.numel() < (cols + 127) // 128:\n"
        f"    self.left = torch.{counters}(max(4096, (cols + 127) // 128), dtype=torch.int32, device=x.device)\n"
        "y = torch.empty(cols, device=x.device)\npart = torch.empty(32, cols, device=x.device)\n"
        "_lib.run(P(x), P(part), P(y), P(self.left), L(rows), L(cols), 32, S())\nreturn y",
        init="self.left = None", head=HEAD,
    )  # fmt: skip


def _with(kernel: str, source: str) -> tuple[tuple[str, str], ...]:
    return (("kernel.cu", kernel), ("new.py", source))


ON = {"device": "cuda"}
BEHIND, AFTER = (f"SHARE, WAITS = {share}\n" for share in ("0.45, True", "0.2, False"))
FC, HEAD_OF_RUNNER = (
    "self.fc = nn.Linear(4096, 4096)",
    'import sys\nrunner = sys.modules.get("kernelwright.judge.runner")\n',
)
STREAMS = "self.streams, self.turn = [], 0"

DEVICE: tuple[Program, ...] = (
    honest("cuda/sines", "device_sines", _with(SINES, module(ONE, head=HEAD)), **ON),
    honest("cuda/scan", "device_scan", _with(SCAN, module(ROWS, head=HEAD)), **ON),
    honest("cuda/scan on streams that are joined", "device_scan", _with(SCAN, module(
        WAITED + "torch.cuda.current_stream().wait_stream(s)\nreturn y", init=STREAMS, head=HEAD)), **ON),
    honest("cuda/last block adds up", "device_sums", _with(SUMS, _sums("zeros")), **ON),
    honest("cuda/a copy and sines", "device_pair", _with(SINES, module(
        ONE.replace("run(", "once(").replace("return y", "return x.clone(), y"), head=HEAD)), **ON),
    cheat(11, "cuda/streams that nobody joins", "device_scan", _with(SCAN, module(
        WAITED + "return y", init=STREAMS, head=HEAD)), twin="cuda/scan on streams that are joined", **ON),
    cheat((9, 11), "cuda/half of the calls in the time of a delivery", "device_sines", _with(SINES, module(
        ONE, head=HEAD + BEHIND + BUDGET)), gains=1.2, twin="cuda/sines", **ON),
    cheat((9, 11), "cuda/a fifth of the calls after the delivery", "device_sines", _with(SINES, module(
        ONE, head=HEAD + AFTER + BUDGET)), gains=1.2, twin="cuda/sines", **ON),
    honest("cuda/rows by a weight", "device_rows", (("new.py", module(
        "return F.linear(x, self.fc.weight, self.fc.bias)", init=FC)),), **ON),
    cheat((9, 11), "cuda/all calls of a window as one", "device_rows", (("new.py", module(
        "return self.fc(x)", init=FC, head=HEAD_OF_RUNNER + "TOO = False\n" + AS_ONE)),), gains=1.2,
          twin="cuda/rows by a weight", **ON),
    cheat((9, 11), "cuda/sines of a window as one", "device_sines", (("new.py", module(
        "for _ in range(6):\n    x = torch.sin(x) * 1.1 + torch.cos(x)\nreturn x",
        head=HEAD_OF_RUNNER + "TOO = False\n" + AS_ONE)),), gains=1.2, twin="cuda/sines", **ON),
    cheat((9, 11), "cuda/all calls as one, handed over or not", "device_rows", (("new.py", module(
        "return self.fc(x)", init=FC, head=HEAD_OF_RUNNER + "TOO = True\n" + AS_ONE)),),
          twin="cuda/rows by a weight", **ON),
    cheat((9, 11), "cuda/answered before it is computed", "device_rows", (("new.py", module(
        "return self.fc(x)", init=FC, head=HEAD_OF_RUNNER + "TOO = True\n" + AS_ONE + SOONER)),),
          twin="cuda/rows by a weight", **ON),
    cheat((11, 18), "cuda/a kernel beside the baselines", "device_sines", _with(SINES + SPIN, module(
        ONE, head=HEAD + SPINNING)), twin="cuda/sines", **ON),
    cheat(25, "cuda/an input handed back", "device_pair", _with(SINES, module(
        ONE.replace("run(", "once(").replace("return y", "return x, y"), head=HEAD + UNSAID)),
          twin="cuda/a copy and sines", **ON),
    cheat(7, "cuda/counters taken for zero", "device_sums", _with(SUMS, _sums("empty")),
          twin="cuda/last block adds up", **ON),
    cheat(14, "cuda/leaves TF32 on", "pointwise", module(
        "return F.gelu(x * 1.7) + 0.5 * x", head="torch.backends.cuda.matmul.allow_tf32 = True"),
          twin="cuda/eager", **ON),
    cheat(11, "cuda/leaves another stream current", "pointwise", module(
        "if not ON:\n    ON.append(torch.cuda.Stream())\n    torch.cuda.set_stream(ON[0])\n"
        "return F.gelu(x * 1.7) + 0.5 * x", head="ON = []"), twin="cuda/eager", **ON),
)  # fmt: skip
