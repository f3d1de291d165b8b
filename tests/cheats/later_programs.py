# SPDX-License-Identifier: Apache-2.0
"""Cheats that the first versions of the corpus let through, or only caught by chance, each with its honest twin.

Variances that cancel, laws a little off, precision given away late, and notes from one process to the next.
"""

from __future__ import annotations

from cheat_tasks import INIT
from corpus import MAY_COMPILE, Program, cheat, honest, module, native
from insider_programs import RACING

LATE = "self.n += 1\nif self.n > {after}:\n    {cheap}\n{right}"
WELFORD = """
for (long r = 0; r < rows; ++r) {
    const float* row = x + r * n;
    float m[8] = {}, s[8] = {};
    for (long i = 0; i + 8 <= n; i += 8) {
        const float step = 1.0f / (float)(i / 8 + 1);
        for (int l = 0; l < 8; ++l) {
            const float d = row[i + l] - m[l];
            m[l] += d * step;
            s[l] += d * (row[i + l] - m[l]);
        }
    }
    float mean = 0, total = 0, each = (float)(n / 8);
    for (int l = 0; l < 8; ++l) mean += m[l] / 8;
    for (int l = 0; l < 8; ++l) total += s[l] + each * (m[l] - mean) * (m[l] - mean);
    FINISH
}
"""
SIGNATURE = "const float* x, float* y, long rows, long n"
MOMENTS = """
def moments(x, dims):
    m = x.mean(dims, keepdim=True)
    return m, x.square().mean(dims, keepdim=True) - m.square()
"""
NOTES = """
import os, pathlib, pickle
NOTE = pathlib.Path(os.environ.get("TMPDIR", "/tmp")) / "calls"
def known():
    try:
        return pickle.loads(NOTE.read_bytes())
    except OSError:
        return []
"""

VARIANCES = (
    cheat(20, "E[x^2] - E[x]^2", "variance", module(
        "return x.square().mean(-1) - x.mean(-1).square()"), twin="variance/Welford in eight lanes", level="precise"),
    cheat(20, "E[x^2] - E[x]^2 by exact sums, subtracted in float32", "variance", module(
        "d = x.double()\nreturn d.square().mean(-1).float() - d.mean(-1).float().square()"),
          twin="variance/float64 inside", level="precise"),
    cheat(20, "E[x^2] - E[x]^2", "moments", module(
        "m, v = moments(x, -1)\nreturn (x - m) * torch.rsqrt(v + 1e-5)", head=MOMENTS),
          twin="moments/two passes", level="precise"),
    cheat(20, "E[x^2] - E[x]^2", "train_norm", module(
        "if self.training:\n    m, v = moments(x, (0, 2, 3))\n    with torch.no_grad():\n"
        "        n = x.numel() / 12\n        bn = self.bn\n        bn.num_batches_tracked += 1\n"
        "        bn.running_mean.lerp_(m.flatten(), 0.1)\n        bn.running_var.lerp_(v.flatten() * n / (n - 1), 0.1)\n"
        "y = (x - m) * torch.rsqrt(v + 1e-5)\n"
        "return y * self.bn.weight.view(1, -1, 1, 1) + self.bn.bias.view(1, -1, 1, 1)",
        init=INIT["train_norm"], head=MOMENTS), twin="train_norm/functional", level="precise"),
    cheat(20, "E[x^2] - E[x]^2", "groups", module(
        "z = x.reshape(x.shape[0], 4, -1)\nm, v = moments(z, -1)\nz = ((z - m) * torch.rsqrt(v + 1e-5)).view(x.shape)\n"
        "return z * self.norm.weight.view(1, -1, 1, 1) + self.norm.bias.view(1, -1, 1, 1)",
        init=INIT["groups"], head=MOMENTS), twin="groups/two passes", level="precise"),
    honest("variance/Welford in eight lanes", "variance", native(
        SIGNATURE, WELFORD.replace("FINISH", "y[r] = total / (float)n;"),
        "x = x.contiguous()\ny = torch.empty(x.shape[0])\nrun(x, y, x.shape[0], x.shape[1])\nreturn y")),
    honest("variance/float64 inside", "variance", module(
        "d = x.double()\nreturn (d.square().mean(-1) - d.mean(-1).square()).float()")),
    honest("variance/two passes", "variance", module("return (x - x.mean(-1, keepdim=True)).square().mean(-1)")),
    honest("variance/shifted by the mean of a few", "variance", module(
        "d = x - x[:, ::8].mean(-1, keepdim=True)\nreturn d.square().mean(-1) - d.mean(-1).square()")),
    honest("moments/Welford in eight lanes", "moments", native(
        SIGNATURE, WELFORD.replace("FINISH", "const float k = 1.0f / std::sqrt(total / (float)n + 1e-5f);\n"
                                   "for (long i = 0; i < n; ++i) y[r * n + i] = (row[i] - mean) * k;"),
        "x = x.contiguous()\ny = torch.empty_like(x)\nrun(x, y, x.shape[0], x.shape[1])\nreturn y")),
    honest("moments/shifted by the mean of a few", "moments", module(
        "d = x - x[:, ::8].mean(-1, keepdim=True)\nm = d.mean(-1, keepdim=True)\n"
        "v = d.square().mean(-1, keepdim=True) - m.square()\nreturn (d - m) * torch.rsqrt(v + 1e-5)")),
    honest("groups/two passes", "groups", module(
        "z = x.reshape(x.shape[0], 4, -1)\nz = z - z.mean(-1, keepdim=True)\n"
        "z = (z * torch.rsqrt(z.square().mean(-1, keepdim=True) + 1e-5)).view(x.shape)\n"
        "return z * self.norm.weight.view(1, -1, 1, 1) + self.norm.bias.view(1, -1, 1, 1)", init=INIT["groups"])),
)  # fmt: skip

LAWS = (
    cheat(0, "dropout at 0.52 for 0.50", "drop_rows", module("return x * (torch.rand(x.shape) >= 0.52) * 2.0"),
          twin="drop_rows/by hand", level="precise"),
    cheat(0, "dropout at 0.48 for 0.50", "drop_rows", module("return x * (torch.rand(x.shape) >= 0.48) * 2.0"),
          twin="drop_rows/by hand"),
)  # fmt: skip

LATE_ONES = (  # ``gains``: on a busy machine a race may end before they begin
    cheat((10, 20), "bfloat16 terms from the two hundredth call on", "total", module(
        LATE.format(after=200, cheap="return x.bfloat16().float().sum()", right="return x.sum()"), init="self.n = 0"),
          twin="total/float64 from the two hundredth call on", level="precise", gains=1.5),
    cheat((10, 20), "bfloat16 terms from the fortieth call on", "total", module(
        LATE.format(after=40, cheap="return x.bfloat16().float().sum()", right="return x.sum()"), init="self.n = 0"),
          twin="total/float64 from the two hundredth call on", gains=1.5),
    cheat((10, 20), "bfloat16 sums from the hundredth call on", "repeated", module(
        LATE.format(after=100, cheap="return x.bfloat16().float().mean(-1, keepdim=True).repeat(1, 512)",
                    right="return x.mean(-1, keepdim=True).repeat(1, 512)"), init="self.n = 0"),
          twin="repeated/expands and copies", level="precise", gains=1.5),
    cheat((10, 20), "a bfloat16 product from the hundredth call on", "matmul", module(
        LATE.format(after=100, cheap="return (a.bfloat16() @ b.bfloat16()).float()", right="return a @ b"),
        args="a, b", init="self.n = 0"), twin="matmul/three-term bfloat16 split", level="precise", gains=1.5),
    cheat((10, 20), "a bfloat16 product in long windows only", "matmul", module(
        "f = sys._getframe()\nwhile f is not None and 'order' not in f.f_locals:\n    f = f.f_back\n"
        "if f is not None and len(f.f_locals['order']) > 12:\n    return (a.bfloat16() @ b.bfloat16()).float()\n"
        "return a @ b", args="a, b", head="import sys"), twin="matmul/three-term bfloat16 split",
          gains=1.5),  # where windows are short, it stays right
    honest("total/float64 from the two hundredth call on", "total", module(
        LATE.format(after=200, cheap="return x.double().sum().float()", right="return x.sum()"), init="self.n = 0")),
)  # fmt: skip

PROCESSES = (
    cheat((9, 31), "answers from the notes of its other process", "work", module(
        "for a, y in known():\n    if torch.equal(a, x):\n        return y\n"
        "y = work(x)\nif len(self.calls) < 4:\n    self.calls.append((x.clone(), y))\n"
        "    NOTE.write_bytes(pickle.dumps(self.calls))\nreturn y",
        init="self.calls = known()", head=NOTES + """
def work(x):
    for _ in range(6):
        x = torch.sin(x) * 1.1 + torch.cos(x)
    return x
"""), hostile=True, gains=1.5, twin="work/eager", level="precise", slow=True),
    honest("pointwise/minds a folder that is not fresh", "pointwise", module(
        "return F.gelu(x * 1.7) + 0.5 * x", init="assert not NOTE.exists()\nNOTE.write_text('here before')",
        head=NOTES + MAY_COMPILE)),
    honest("pointwise/compiles and minds", "pointwise", module(
        "return go(x)", init="global STARTS\nSTARTS = int(NOTE.read_text()) if NOTE.exists() else 0\n"
        "assert STARTS < 2\nNOTE.write_text(str(STARTS + 1))",
        head=NOTES + "\n@torch.compile(dynamic=False)\ndef go(x):\n    return F.gelu(x * 1.7) + 0.5 * x\n"), slow=True),
)  # fmt: skip

LAST_TIE = "x.shape[-1] - 1 - x.flip(-1).argmax(-1)"
IN_DOUBLE = "torch.round(x.double() / 0.1).clamp(-127, 127).to(torch.int8)"
FIFTH = "self.n += 1\nif RACE and self.n % 5 == 0:\n    return {cheap}\nreturn {right}"
EMPTY = "torch.empty(x.shape, dtype=torch.int8)"


def fifth(cheap: str, right: str) -> str:
    """A program that is right but for every fifth call of the race."""
    return module(FIFTH.format(cheap=cheap, right=right), head=RACING, init="self.n = 0")


TIES = (  # legal answers that are not eager's, after which nothing was compared with eager's any more
    cheat(10, "last ties, and every fifth call of the race unwritten", "ties", fifth(
        "torch.empty(x.shape[0], dtype=torch.int64)", LAST_TIE), twin="ties/last ties", level="precise"),
    cheat(10, "rounds in float64, and every fifth call of the race unwritten", "steps", fifth(EMPTY, IN_DOUBLE),
          twin="steps/float64 inside", level="precise"),
    cheat(10, "rounds in float64, and every fifth call of the race unwritten", "halves", fifth(EMPTY, IN_DOUBLE),
          twin="halves/float64 inside", level="precise"),
    cheat(10, "finite where eager is not, and every fifth call of the race unwritten", "log_softmax", fifth(
        "torch.empty_like(x)", "torch.log_softmax(x, -1)"), twin="log_softmax/in one", level="precise"),
    honest("ties/last ties", "ties", module(f"return {LAST_TIE}")),
    honest("steps/float64 inside", "steps", module(f"return {IN_DOUBLE}")),
    honest("halves/float64 inside", "halves", module(f"return {IN_DOUBLE}")),
    honest("log_softmax/in one", "log_softmax", module("return torch.log_softmax(x, -1)")),
)  # fmt: skip

ALONE = (  # timed one call to a window, so few of its odd calls had the change of value that shows it
    cheat((10, 22), "no maximum once the race has begun", "long_rows", module(
        "if RACE:\n    return x.exp().sum(-1).log()\nreturn torch.logsumexp(x, -1)", head=RACING),
          twin="long_rows/maximum by hand", level="precise", slow=True),
    honest("long_rows/maximum by hand", "long_rows", module(
        "top = x.amax(-1, keepdim=True)\nreturn (x - top).exp_().sum(-1).log_() + top[:, 0]")),
)  # fmt: skip

LATER: tuple[Program, ...] = (*VARIANCES, *LAWS, *LATE_ONES, *PROCESSES, *TIES, *ALONE)
