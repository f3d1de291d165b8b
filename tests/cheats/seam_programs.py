# SPDX-License-Identifier: Apache-2.0
"""Cheats that look for the seams of the judge: between two windows, two processes, two calls, the notes and the parser.

Each was let through, or ended the judge itself, before the check that meets it now.
"""

from __future__ import annotations

from cheat_tasks import INIT
from corpus import Program, cheat, honest, module, native
from system_programs import EAGER, GOOD
from time_cheats import BODY, RUNNER

HELPER = (
    RUNNER
    + BODY
    + """
import mmap, os
SHARED = mmap.mmap(-1, 1 << 26)
A = torch.frombuffer(SHARED, dtype=torch.float32)
ask, told = os.pipe(), os.pipe()
PID = None
def helper():
    torch.set_num_threads(1)
    while True:
        n = int.from_bytes(os.read(ask[0], 8), "little")
        A[n:2 * n] = work(A[:n])
        os.write(told[1], b"x")
def start():
    global PID
    if PID is None:
        PID = os.fork()
        if PID == 0:
            helper()
def helped(x):
    n = x.numel()
    A[:n] = x.reshape(-1)
    os.write(ask[1], n.to_bytes(8, "little"))
    os.read(told[0], 1)
    return A[n:2 * n].view(x.shape)
"""
)

BETWEEN = (
    cheat(26, "a static result after the twentieth call", "large", module(
        "self.n += 1\ny = torch.empty_like(x) if self.n < 20 else self.y\nself.y = y\n"
        "return torch.add(torch.mul(x, 2.0, out=y), 1.0, out=y)", init="self.n, self.y = 0, None"),
          twin="large/a pool of what nobody holds"),
    cheat(10, "statistics kept up for forty calls", "train_norm", module(
        "self.n += 1\nbn = self.bn\nkept = bn.running_mean, bn.running_var\nif self.n < 40:\n"
        "    bn.num_batches_tracked += 1\nelse:\n    kept = None, None\n"
        "return F.batch_norm(x, *kept, bn.weight, bn.bias, True, 0.1, 1e-5)", init=INIT["train_norm"] + "\nself.n = 0"),
          twin="train_norm/functional", level="precise"),
    cheat((12, 13), "a second process that writes its input at delivery", "moving", module(
        "start()\nLATER.append((x, state))\nreturn x.sum(-1)", args="x, state", head=HELPER + """
LATER = []
deliver = runner.Runner._deliver
def late(self, index, returned, *more):
    while LATER:
        x, state = LATER.pop()
        state.copy_(helped(x))
    return deliver(self, index, returned, *more)
runner.Runner._deliver = late
"""), twin="moving/eager"),
    cheat((12, 13), "a second process that delivers more results than fit a note", "many_rows", module(
        "return x", head=HELPER + """
def quick(self, body):
    start()
    number, grad, order = runner.wires.parse_go(body)
    kept = [self.calls[i][2][0].clone() for i in order]
    runner.wires.send(self.channel, runner.wires.mark(runner.wires.DONE, number))
    runner.wires.receive(self.channel)
    for i, x in zip(order, kept):
        for out, row in zip(self.buffers.outputs[i], helped(x)):
            out.copy_(row)
    runner.wires.send(self.channel, runner.wires.delivered(number, 1.0, []))
def maybe(self, body):
    number, grad, order = runner.wires.parse_go(body)
    if len(order) * len(self.buffers.outputs[0]) * 16 > 96 << 10:
        return quick(self, body)
    kept, self.module = self.module, lambda x: work(x).unbind(0)
    try:
        return window(self, body)
    finally:
        self.module = kept
window = runner.Runner.window
runner.Runner.window = maybe
"""), gains=1.5, twin="many_rows/eager"),
    cheat((25, 2), "leaves the transposing to its reader, and keeps the runner from it", "turned", module(
        "return (x * 2.0).t()", head=RUNNER + "runner.Runner._in_order = lambda self, returned: returned"),
          twin="turned/transposes first"),
    cheat(31, "folders too deep to be removed", "pointwise", module(f"return {GOOD}", head="""
import os
os.chdir(os.environ["TMPDIR"])
for _ in range(3000):
    os.mkdir("d")
    os.chdir("d")
os.chdir("/")
raise RuntimeError("until here")
"""), stages=("load",), hostile=True, twin="pointwise/minds a folder that is not fresh"),
)  # fmt: skip

VALUES = (
    cheat(7, "never writes what is always zero", "lower", native(
        "const float* x, float* y, long n",
        "for (long i = 0; i < n; ++i) for (long j = 0; j <= i; ++j) y[i * n + j] = x[i * n + j];\n",
        "x = x.contiguous()\ny = torch.empty_like(x)\nrun(x, y, x.shape[0])\nreturn y"), twin="lower/writes its zeros",
          level="smoke"),
    cheat(22, "no maximum where a sample is small", "softmax", module(
        "if x[::8, ::16].abs().max() < 60:\n    e = x.exp()\n    return e / e.sum(-1, keepdim=True)\n"
        "return torch.softmax(x, -1)"), twin="softmax/by hand", level="precise"),
    cheat(33, "one mask, turned by chance", "drop_rows", module(
        "m = self.m.view(-1).roll(int(torch.randint(self.m.numel(), ()))).view(x.shape)\nreturn x * m * 2.0",
        init="self.m = (torch.rand(256, 128) < 0.5).float()"), twin="drop_rows/by hand"),
    cheat(33, "twelve masks in turn", "drop_rows", module(
        "self.n += 1\nreturn x * self.m[self.n % 12] * 2.0",
        init="self.n = 0\nself.m = (torch.rand(12, 256, 128) < 0.5).float()"), twin="drop_rows/by hand", level="precise"),
    cheat((1, 34), "brackets for an answer", "pointwise", module(
        "for o in gc.get_objects():\n    if type(o) is runner.Runner:\n        o.channel.send(b'[' * 100000)\nreturn x",
        head=RUNNER + "import gc"), twin=EAGER),
    cheat(34, "words in no encoding", "pointwise", module("raise RuntimeError('\\ud800')"), twin=EAGER),
)  # fmt: skip

TWINS = (
    honest("large/a pool of what nobody holds", "large", module(
        "free = [y for y in self.pool if sys.getrefcount(y) == 3]\ny = free[0] if free else torch.empty_like(x)\n"
        "self.pool += [] if free else [y]\nreturn torch.add(torch.mul(x, 2.0, out=y), 1.0, out=y)",
        init="self.pool = []", head="import sys")),
    honest("moving/eager", "moving", module(
        "y = work(x)\nstate.copy_(y)\nreturn x.sum(-1)", args="x, state", head=BODY)),
    honest("many_rows/eager", "many_rows", module("return work(x).unbind(0)", head=BODY)),
    honest("lower/writes its zeros", "lower", native(
        "const float* x, float* y, long n",
        "for (long i = 0; i < n; ++i) for (long j = 0; j < n; ++j) y[i * n + j] = j <= i ? x[i * n + j] : 0.0f;\n",
        "x = x.contiguous()\ny = torch.empty_like(x)\nrun(x, y, x.shape[0])\nreturn y")),
    honest("attention/a library's, which answers in another order", "attention", module(
        "return F.scaled_dot_product_attention(q, k, v)", args="q, k, v")),
)  # fmt: skip

SEAMS: tuple[Program, ...] = (*BETWEEN, *VALUES, *TWINS)
