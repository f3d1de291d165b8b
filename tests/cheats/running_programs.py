# SPDX-License-Identifier: Apache-2.0
"""Sums and variances one number after the other, weights of a cubic interpolation by the usual formula, and losses of
clamped probabilities. The honest ones were refused, in some judgements or in all; beside each is one that is wrong.
"""

from __future__ import annotations

from cheat_tasks import add
from corpus import Program, module, native
from ported_programs import HALVES, _pair

add("spread", "return x.var(-1)", "[torch.randn(64, 96)]")
add("hazard", "return F.softplus(x).cumsum(-1)", "[torch.randn(16, 600)]")
add("enlarged", "return F.interpolate(x, size=(11, 11), mode='bicubic', align_corners=True)",
    "[torch.randn(2, 4, 7, 7)]")  # fmt: skip
add("focal_loss", """
p = torch.sigmoid(x).clamp(1e-7, 1 - 1e-7)
return ((1 - p) ** 2 * -p.log() * (y > 0).float()).sum(-1)
""", "[torch.randn(64, 96), torch.randn(64, 96)]", args="x, y")  # fmt: skip
ROWS = "const float* x, float* y, long rows, long n"
WELFORD = """
for (long r = 0; r < rows; ++r) {
    float mean = 0, total = 0;
    for (long i = 0; i < n; ++i) {
        const float d = x[r * n + i] - mean;
        mean += d / (float)(i + 1);
        total += d * (x[r * n + i] - mean);
    }
    y[r] = total / (float)(n - 1);
}
"""
TWO_SUMS = """
for (long r = 0; r < rows; ++r) {
    float sum = 0, total = 0;
    for (long i = 0; i < n; ++i) {
        sum += x[r * n + i];
        total += x[r * n + i] * x[r * n + i];
    }
    y[r] = (total - sum * sum / (float)n) / (float)(n - 1);
}
"""
RUNNING = """
for (long r = 0; r < rows; ++r) {
    float sum = 0;
    for (long i = 0; i < n; ++i) {
        const float v = x[r * n + i];
        sum += std::fmax(v, 0.0f) + std::log1p(std::exp(-std::fabs(v)));
        y[r * n + i] = sum;
    }
}
"""
CALL = "x = x.contiguous()\ny = torch.empty({})\nrun(x, y, x.shape[0], x.shape[1])\nreturn y"
CUBIC = """
def cubic(x, dim, a=-0.75):
    def outer(t):
        return ((a * t - 5 * a) * t + 8 * a) * t - 4 * a

    def inner(t):
        return ((a + 2) * t - (a + 3)) * t * t + 1

    most = x.shape[dim] - 1
    place = torch.arange(11) * (most / 10)
    start = place.floor()
    t, shape = place - start, [1] * dim + [-1] + [1] * (x.dim() - dim - 1)
    weights = outer(t + 1), inner(t), inner(1 - t), outer(2 - t)
    parts = [x.index_select(dim, (start + k - 1).clamp(0, most).long()) * w.view(shape) for k, w in enumerate(weights)]
    return parts[0] + parts[1] + parts[2] + parts[3]
"""
LOSS = """
p = (1 / (1 + (-x).exp())).clamp(1e-7, 1 - 1e-7)
loss, out = torch.where(y > 0, -(1 - p) * (1 - p) * p.log(), 0.0), torch.zeros(x.shape[0])
for column in loss.unbind(-1):
    out = out + column
return out
"""

RUNNINGS: tuple[Program, ...] = (
    *_pair("spread", "Welford one by one", native(ROWS, WELFORD, CALL.format("x.shape[0]")),
           "two sums", native(ROWS, TWO_SUMS, CALL.format("x.shape[0]"))),
    *_pair("hazard", "one by one", native(ROWS, RUNNING, CALL.format("x.shape")),
           "of 16 bits", module("return short(F.softplus(x)).cumsum(-1)", head=HALVES)),
    *_pair("enlarged", "rows, then columns", module("return cubic(cubic(x, 2), 3)", head=CUBIC),
           "of 16 bits", module("return cubic(cubic(short(x), 2), 3)", head=CUBIC + HALVES.replace("\n    ", "\n"))),
    *_pair("focal_loss", "one by one", module(LOSS, args="x, y"),
           "no largest probability", module(LOSS.replace("1 - 1e-7)", "1.0)"), args="x, y")),
)  # fmt: skip
