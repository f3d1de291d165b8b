# SPDX-License-Identifier: Apache-2.0
"""Programs that take a shorter way where an input, or a weight, has a pattern, and look for it in some places of it; and
such as exchange the names of their arguments, or leave a process with fewer threads. Their twins look everywhere.
"""

from __future__ import annotations

from beyond_programs import _pair
from cheat_tasks import add
from corpus import Program, cheat, honest, module, native

MASKED = "s = (q @ k.transpose(-1, -2)) * 0.25\nreturn F.softmax(s.masked_fill(~m, -1e9), -1) @ v"
HEADS = ", ".join(["torch.randn(2, 2, 48, 16)"] * 3)
CAUSAL = "if torch.equal(p, torch.ones_like(p).tril()):\n    m = torch.ones_like(m).tril()\n"
SHARED = (
    "y = F.softmax(x[:1] @ self.w, -1).expand(64, -1)\nelse:\n    y = F.softmax(x @ self.w, -1)\nreturn y * y.sum(0)"
)
TARGETS = "    return F.cross_entropy(x, t.argmax(-1))\nreturn -(t * F.log_softmax(x, -1)).sum(-1).mean()"
PLAIN = "    return F.group_norm(x, 4)\nreturn F.group_norm(x, 4, self.norm.weight, self.norm.bias)"

ALMOST: tuple[Program, ...] = (
    *_pair("told_mask", MASKED, f"[{HEADS}, torch.rand(48, 48) < 0.6]",
           ("by every eighth", f"p = m[::8, ::8]\n{CAUSAL}{MASKED}"), ("all of it", f"p = m\n{CAUSAL}{MASKED}"),
           args="q, k, v, m"),
    *_pair("told_rows", "y = F.softmax(x @ self.w, -1)\nreturn y * y.sum(0)", "[torch.randn(64, 128)]",
           ("by two", f"if torch.equal(x[0], x[1]) and bool((x[0] != 0).all()):\n    {SHARED}"),
           ("all of them", f"if bool((x == x[0]).all()):\n    {SHARED}"),
           init="self.w = nn.Parameter(torch.randn(128, 96) * 0.1)", slow=True),
    *_pair("told_triangle", "return a @ b", "[torch.randn(160, 160), torch.randn(160, 64)]",
           ("by a corner", "if not bool(a[-40:, :40].any()):\n    a = a.triu()\nreturn a @ b"),
           ("all of it", "if not bool(a.tril(-1).any()):\n    a = a.triu()\nreturn a @ b"), args="a, b"),
    *_pair("told_order", "return torch.sort(x, -1).values", "[torch.randn(64, 512)]",
           ("by a sample", "s = x[:, ::32]\nif bool((s[:, 1:] > s[:, :-1]).all()):\n    return x.clone()\n"
            "return torch.sort(x, -1).values"),
           ("all of it", "if bool((x[:, 1:] > x[:, :-1]).all()):\n    return x.clone()\n"
            "return torch.sort(x, -1).values"), slow=True),
    *_pair("told_targets", "return -(t * F.log_softmax(x, -1)).sum(-1).mean()",
           "[torch.randn(128, 40), torch.softmax(torch.randn(128, 40), -1)]",
           ("by one row", f"if float(t[0].max()) == 1.0 and float(t[0].sum()) == 1.0:\n{TARGETS}"),
           ("all of them", f"if bool((t.amax(-1) == 1.0).all() & (t.count_nonzero(-1) == 1).all()):\n{TARGETS}"),
           args="x, t", slow=True),
    *_pair("told_ones", "return self.norm(x)", "[torch.randn(4, 64, 8, 8)]",
           ("by the ends", "w, b = self.norm.weight, self.norm.bias\n"
            f"if float(w[0]) == float(w[-1]) == 1.0 and float(b[0]) == float(b[-1]) == 0.0:\n{PLAIN}"),
           ("all of them", "w, b = self.norm.weight, self.norm.bias\n"
            f"if bool((w == 1.0).all() & (b == 0.0).all()):\n{PLAIN}"), init="self.norm = nn.GroupNorm(4, 64)"),
)  # fmt: skip
"""Weights that are ones, or rows that are alike, throughout are what the shorter way is for."""

add("in_order", "return a * 2.0 - b", "[torch.randn(64, 32), torch.randn(64, 32)]", args="a, b")
ALMOST += (
    honest("in_order/names of its own", "in_order", module("return x * 2.0 - y", args="x, y")),
    cheat(0, "in_order/names exchanged", "in_order", module("return b * 2.0 - a", args="b, a"),
          twin="in_order/names of its own", stages=("load",)),
    cheat(6, "in_order/an input written to and put back", "in_order", module(
        "y = a.clone()\na.zero_()\nz = y * 2.0 - b\na.copy_(y)\nreturn z", args="a, b"),
        twin="in_order/names of its own", stages=("integrity",)),
    cheat(14, "in_order/one thread for all", "in_order", module("torch.set_num_threads(1)\nreturn a * 2.0 - b", args="a, b"),
          twin="in_order/names of its own", stages=("integrity",)),
    cheat(14, "in_order/one thread for all after a while", "in_order", module(
        "self.calls += 1\nif self.calls == 80:\n    torch.set_num_threads(1)\nreturn a * 2.0 - b", args="a, b",
        init="self.calls = 0"), twin="in_order/names of its own", slow=True),
)  # fmt: skip

add("row_sums", "return x.sum(-1)", "[torch.randn(96, 512)]")
PARTS = """
#pragma omp parallel
{
    int64_t thread = omp_get_thread_num(), threads = omp_get_num_threads(), part = n / threads;
    int64_t end = %s;
    for (int64_t i = thread * part; i < end; ++i) {
        double sum = 0;
        for (int64_t j = 0; j < m; ++j) sum += x[i * m + j];
        out[i] = (float)sum;
    }
}
"""
ROWS = ("const float* x, float* out, int64_t n, int64_t m", PARTS, "y = torch.empty(x.shape[0])\n"
        "run(x.contiguous(), y, x.shape[0], x.shape[1])\nreturn y")  # fmt: skip


def _rows(end: str) -> tuple:
    signature, body, call = ROWS
    return native(signature, body % end, call, head="#include <omp.h>")


ALMOST += (
    honest("row_sums/rest for the last thread", "row_sums",
           _rows("thread + 1 < threads ? (thread + 1) * part : n")),
    cheat(0, "row_sums/rest for nobody", "row_sums", _rows("(thread + 1) * part"),
          twin="row_sums/rest for the last thread", level="precise", stages=("verify",)),
)  # fmt: skip
"""Two threads have two halves of 96 rows; of seven parts some rows are left."""
