# SPDX-License-Identifier: Apache-2.0
"""Honest programs as people write them elsewhere: plain loops, intrinsics, numpy, out= arguments, packed weights,
compiled functions, results in another layout. Plain loops over a row were refused once.
"""

from __future__ import annotations

from cheat_tasks import INIT
from corpus import Program, honest, module, native

ROWS = "x = x.contiguous()\ny = torch.empty_like(x)\nrun(x, y, x.shape[0], x.shape[1])\nreturn y"
PLAIN = "const float* x, float* y, long rows, long n"
LAYER_NORM = """
for (long r = 0; r < rows; ++r) {
    const float* p = x + r * n;
    float m = 0.0f, v = 0.0f;
    for (long i = 0; i < n; ++i) m += p[i];
    m /= n;
    for (long i = 0; i < n; ++i) { float d = p[i] - m; v += d * d; }
    float s = 1.0f / sqrtf(v / n + 1e-5f);
    for (long i = 0; i < n; ++i) y[r * n + i] = s * (p[i] - m) * w[i] + b[i];
}
"""
SOFTMAX = """
for (long r = 0; r < rows; ++r) {
    const float* p = x + r * n;
    float top = -INFINITY, s = 0.0f;
    for (long i = 0; i < n; ++i) top = p[i] > top ? p[i] : top;
    for (long i = 0; i < n; ++i) { y[r * n + i] = expf(p[i] - top); s += y[r * n + i]; }
    for (long i = 0; i < n; ++i) y[r * n + i] /= s;
}
"""
PRODUCT = """
#pragma omp parallel for
for (long i = 0; i < m; ++i)
    for (long j = 0; j < n; ++j) {
        float s = 0.0f;
        for (long p = 0; p < k; ++p) s += a[i * k + p] * b[p * n + j];
        c[i * n + j] = s;
    }
"""
GROUP_NORM = """
for (long r = 0; r < rows * g; ++r) {
    long n = c / g * hw;
    const float* p = x + r * n;
    double m = 0, v = 0;
    for (long i = 0; i < n; ++i) m += p[i];
    m /= n;
    for (long i = 0; i < n; ++i) { double d = p[i] - m; v += d * d; }
    float s = (float)(1.0 / sqrt(v / n + 1e-5));
    for (long i = 0; i < n; ++i) {
        long channel = r % g * (c / g) + i / hw;
        y[r * n + i] = (float)(p[i] - m) * s * w[channel] + b[channel];
    }
}
"""
INTRINSICS = """
for (long i = 0; i + 8 <= n; i += 8) {
    __m256 z = _mm256_max_ps(_mm256_loadu_ps(x + i), _mm256_setzero_ps());
    _mm256_storeu_ps(y + i, _mm256_add_ps(z, z));
}
for (long i = n / 8 * 8; i < n; ++i) y[i] = x[i] > 0 ? 2 * x[i] : 0;
"""
LAST_OF_TIES = """
for (long r = 0; r < rows; ++r) {
    long k = 0;
    for (long i = 1; i < n; ++i) k = x[r * n + i] >= x[r * n + k] ? i : k;
    y[r] = k;
}
"""
BLOCKS = """
top = torch.full((*q.shape[:-1], 1), float("-inf"))
total = torch.zeros_like(top)
found = torch.zeros_like(q)
for s in range(0, k.shape[-2], 16):
    a = q @ k[..., s:s + 16, :].transpose(-1, -2) * 0.125
    t = torch.maximum(top, a.amax(-1, keepdim=True))
    e, f = torch.exp(a - t), torch.exp(top - t)
    total, found, top = total * f + e.sum(-1, keepdim=True), found * f + e @ v[..., s:s + 16, :], t
return found / total
"""
PACKED = """
def pack(m, keys):
    m.turned = m.fc.weight.detach().t().contiguous()
pack(self, None)
self.register_load_state_dict_post_hook(pack)
"""

OTHERS: tuple[Program, ...] = (
    honest("row_norm/C++ from left to right", "row_norm", native(
        "const float* x, const float* w, const float* b, float* y, long rows, long n", LAYER_NORM,
        "x = x.contiguous()\ny = torch.empty_like(x)\n"
        "run(x, self.norm.weight, self.norm.bias, y, x.shape[0], x.shape[1])\nreturn y", init=INIT["row_norm"])),
    honest("softmax/C++ from left to right", "softmax", native(PLAIN, SOFTMAX, ROWS)),
    honest("matmul/C++ three loops", "matmul", native(
        "const float* a, const float* b, float* c, long m, long k, long n", PRODUCT,
        "a, b = a.contiguous(), b.contiguous()\nc = torch.empty(a.shape[0], b.shape[1])\n"
        "run(a, b, c, a.shape[0], a.shape[1], b.shape[1])\nreturn c", args="a, b")),
    honest("groups/C++ in float64", "groups", native(
        "const float* x, const float* w, const float* b, float* y, long rows, long c, long hw, long g", GROUP_NORM,
        "x = x.contiguous()\ny = torch.empty_like(x)\n"
        "run(x, self.norm.weight, self.norm.bias, y, x.shape[0], 16, 144, 4)\nreturn y", init=INIT["groups"])),
    honest("positive/intrinsics", "positive", native(
        "const float* x, float* y, long n", INTRINSICS,
        "x = x.contiguous()\ny = torch.empty_like(x)\nrun(x, y, x.numel())\nreturn y",
        head="#include <immintrin.h>")),
    honest("argmax/C++, last of ties", "argmax", native(
        "const float* x, long* y, long rows, long n", LAST_OF_TIES,
        "x = x.contiguous()\ny = torch.empty(x.shape[0], dtype=torch.int64)\n"
        "run(x, y, x.shape[0], x.shape[1])\nreturn y")),
    honest("total/numpy", "total", module(
        "return torch.from_numpy(np.asarray(x.numpy().sum(dtype=np.float32)))", head="import numpy as np")),
    honest("softmax/numpy", "softmax", module(
        "a = x.numpy()\ne = np.exp(a - a.max(-1, keepdims=True))\n"
        "return torch.from_numpy(e / e.sum(-1, keepdims=True))",
        head="import numpy as np")),
    honest("linear/out=", "linear", module(
        "y = torch.empty(x.shape[0], 48)\ntorch.addmm(self.fc.bias, x, self.fc.weight.t(), out=y)\nreturn y.relu_()",
        init=INIT["linear"])),
    honest("linear/weights turned when loaded", "linear", module(
        "return torch.addmm(self.fc.bias, x, self.turned).relu_()", init=INIT["linear"] + PACKED)),
    honest("batch_norm/a result with channels last", "batch_norm", module(
        "return self.bn(x.contiguous(memory_format=torch.channels_last))", init=INIT["batch_norm"])),
    honest("batch_norm/one multiply-add", "batch_norm", module(
        "s = self.bn.weight * torch.rsqrt(self.bn.running_var + self.bn.eps)\n"
        "t = self.bn.bias - self.bn.running_mean * s\n"
        "return torch.addcmul(t.view(1, -1, 1, 1), x, s.view(1, -1, 1, 1))", init=INIT["batch_norm"])),
    honest("variance/einsum", "variance", module(
        "d = x - x.mean(-1, keepdim=True)\nreturn torch.einsum('ij,ij->i', d, d) / x.shape[-1]")),
    honest("attention/blocks of keys", "attention", module(BLOCKS, args="q, k, v")),
    honest("attention/compiled", "attention", module(
        "return go(q, k, v)", args="q, k, v", head="@torch.compile(dynamic=False)\ndef go(q, k, v):\n"
        "    return torch.softmax(q @ k.transpose(-1, -2) / 8.0, -1) @ v\n"), slow=True),
)  # fmt: skip
