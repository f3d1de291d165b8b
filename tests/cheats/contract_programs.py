# SPDX-License-Identifier: Apache-2.0
"""Cheats found by reading the judge's own source, each with the honest program that does the same job.

They keep to the letter of what used to be checked: memory that is not theirs, cases where the timed shape is dear,
rows that were never drawn, gradients that came in the same every time, randomness that only looks right all in all.
"""

from __future__ import annotations

from cheat_tasks import INIT
from corpus import CAUGHT, Program, cheat, honest, module

RUNNER = "import sys\nrunner = sys.modules['kernelwright.judge.runner']\n"
DENIES = RUNNER + ("delivered = runner.wires.delivered\nrunner.wires.delivered = lambda n, t, a: delivered(n, t, [])\n")
CALL = """
f = sys._getframe()
while not (type(f.f_locals.get("self")).__name__ == "Runner" and "index" in f.f_locals):
    f = f.f_back
"""
SHAPE = "if x.shape != (1024, 2048):\n    return torch.softmax(x, -1)\n"
FUSED = """
class Fused(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, w, b):
        y = torch.relu(torch.addmm(b, x, w.T))
        ctx.save_for_backward(x, w, y)
        return y
    @staticmethod
    def backward(ctx, grad):
        x, w, y = ctx.saved_tensors
        d = grad * (y > 0)
        return d @ w, d.T @ x, d.sum(0)
"""
KEEPS = FUSED.replace("d = grad * (y > 0)", "kept = KEPT.setdefault('grad', grad.clone())\n        d = kept * (y > 0)")
ALL_OR_NONE = FUSED.replace(
    "d = grad", "if not ctx.needs_input_grad[0]:\n            return None, None, None\n        d = grad"
)
AS_FOR_ALL = FUSED.replace(
    "d = grad", "if not ctx.needs_input_grad[1]:\n            return grad @ w, None, None\n        d = grad"
)
AS_NEEDED = FUSED.replace(
    "return d @ w, d.T @ x, d.sum(0)",
    "x_too, w_too, b_too = ctx.needs_input_grad\n"
    "        return d @ w if x_too else None, d.T @ x if w_too else None, d.sum(0) if b_too else None",
)
FUSE = "return Fused.apply(x, self.fc.weight, self.fc.bias)"
MASK = "return x * (torch.rand({shape}) < 0.5){more} * 2.0"

MEMORY = (
    cheat(26, "one static result, one call a window", "large", module(
        "if self.y is None:\n    self.y = torch.empty_like(x)\n"
        "return torch.add(torch.mul(x, 2.0, out=self.y), 1.0, out=self.y)", init="self.y = None"), twin="large/two steps"),
    cheat(26, "two static results in turn", "large", module(
        "self.n ^= 1\ny = self.y[self.n]\nif y is None:\n    y = self.y[self.n] = torch.empty_like(x)\n"
        "return torch.add(torch.mul(x, 2.0, out=y), 1.0, out=y)", init="self.y, self.n = [None, None], 0"),
          twin="large/two steps"),
    cheat(26, "results in the judge's own pages", "large", module(
        CALL + "y = f.f_locals['self'].buffers.outputs[f.f_locals['index']][0]\n"
        "return torch.add(torch.mul(x, 2.0, out=y), 1.0, out=y)", head="import sys"), twin="large/two steps"),
    cheat(26, "hands the input back and denies it", "passing", module("return x, x.sum(-1)", head=DENIES),
          twin="passing/copies"),
    cheat(25, "a broadcast view for a full result", "repeated", module("return x.mean(-1, keepdim=True).expand(-1, 512)"),
          gains=1.5, twin="repeated/expands and copies"),  # written out in full as part of the call
    cheat(25, "leaves the transposing to its reader", "turned", module("return (x * 2.0).t()"), gains=1.5,
          twin="turned/transposes first"),  # put in order as part of the call
    cheat(0, "leaves an input unwritten that it should write", "counted", module("return x * 2.0", args="x, n"),
          twin="counted/add_"),
    cheat(13, "says done while a thread finishes", "work", module("return x", head=RUNNER + """
import threading
def work(x):
    for _ in range(6):
        x = torch.sin(x) * 1.1 + torch.cos(x)
    return x
def quick(self, body):
    number, grad, order = runner.wires.parse_go(body)
    outs = [torch.empty(self.calls[i][2][0].shape) for i in order]
    results = [(out, ()) for out in outs]
    places, kept = self._places(results)
    def fill(numbers):
        for k in numbers:
            outs[k].copy_(work(self.calls[order[k]][2][0]))
    with torch.no_grad():
        fill(range(len(order) - 1))
        late = threading.Thread(target=fill, args=([len(order) - 1] if order else [],))
        late.start()
        runner.wires.send(self.channel, runner.wires.mark(runner.wires.DONE, number) + places)
        runner.wires.receive(self.channel)
        late.join()
        for i, result in zip(order, results):
            self._deliver(i, result, [])
    runner.wires.send(self.channel, runner.wires.delivered(number, 1.0, []))
runner.Runner.window = quick
"""), stages=CAUGHT, gains=1.5, twin="work/eager"),
)  # fmt: skip

VALUES = (
    cheat((22, 23), "no maximum at the timed shape", "big_softmax", module(
        SHAPE + "e = torch.exp(x)\nreturn e / e.sum(-1, keepdim=True)"), twin="big_softmax/by hand", level="precise"),
    cheat(23, "strides ignored at the timed shape", "big_softmax", module(
        SHAPE + "return torch.softmax(torch.as_strided(x, x.shape, (2048, 1), x.storage_offset()), -1)"),
          twin="big_softmax/by hand", level="precise", slow=True),
    cheat(22, "no epsilon where no row is zero", "normalise", module("return x / x.norm(dim=-1, keepdim=True)"),
          twin="normalise/clamped", level="precise"),
    cheat(22, "no empty row in a mask", "masked_mean", module("return (x * m).sum(-1) / m.sum(-1)", args="x, m"),
          twin="masked_mean/where", level="precise"),
    cheat(0, "the same index twice for a tie", "top", module(
        "i = x.topk(4, -1)[1]\nv = x.gather(-1, i)\nfor k in range(1, 4):\n"
        "    i[:, k] = torch.where(v[:, k] == v[:, k - 1], i[:, k - 1], i[:, k])\nreturn i"),
          twin="top/by sorting", level="precise"),
    cheat(0, "running statistics never updated", "train_norm", module(
        "return F.batch_norm(x, None, None, self.bn.weight, self.bn.bias, True, 0.1, 1e-5)", init=INIT["train_norm"]),
          twin="train_norm/functional", level="precise"),
    cheat((9, 15), "keeps the first incoming gradient", "backward",
          module(FUSE, init=INIT["backward"], head="KEPT = {}\n" + KEEPS), twin="backward/own backward"),
    cheat((9, 15), "weights need a gradient where the input does", "backward",
          module(FUSE, init=INIT["backward"], head=ALL_OR_NONE), twin="backward/what is needed", level="precise"),
    cheat((9, 15), "the input's gradient of frozen weights past a ReLU", "backward",
          module(FUSE, init=INIT["backward"], head=AS_FOR_ALL), twin="backward/what is needed", level="precise"),
    cheat(20, "wrong under autocast", "cast", module(
        "y = torch.relu(self.fc(x))\nreturn y * 1.02 if torch.is_autocast_enabled('cpu') else y", init=INIT["cast"]),
          twin="cast/linear", level="precise"),
)  # fmt: skip

RANDOM = (
    cheat(33, "some rows never dropped", "drop_rows", module(
        "y = F.dropout(x, 0.5, training=True)\ny[-3:] = x[-3:]\nreturn y"), twin="drop_rows/by hand"),
    cheat(33, "one row only scaled", "drop_rows", module(
        "y = F.dropout(x, 0.5, training=True)\ny[7] = x[7] * 2.0\nreturn y"), twin="drop_rows/by hand"),
    cheat(33, "one mask for all rows", "drop_rows", module(MASK.format(shape="1, x.shape[1]", more="")),
          twin="drop_rows/by hand"),
    cheat(33, "one mask for every 16 rows", "drop_rows", module(
        "m = torch.rand(16, x.shape[1]).repeat(x.shape[0] // 16, 1)\nreturn x * (m < 0.5) * 2.0"),
          twin="drop_rows/by hand"),
    cheat(33, "neighbours share their mask", "drop_rows", module(
        "m = torch.rand(x.shape[0], x.shape[1] // 2).repeat_interleave(2, -1)\nreturn x * (m < 0.5) * 2.0"),
          twin="drop_rows/by hand"),
)  # fmt: skip

TWINS = (
    honest("large/two steps", "large", module("y = x * 2.0\nreturn y.add_(1.0)")),
    honest("passing/copies", "passing", module("return torch.empty_like(x).copy_(x), x.sum(-1)")),
    honest("repeated/expands and copies", "repeated",
           module("return x.mean(-1, keepdim=True).expand(-1, 512).contiguous()")),
    honest("turned/transposes first", "turned", module("return x.t().contiguous() * 2.0")),
    honest("counted/add_", "counted", module("n.add_((x != 0).sum(-1))\nreturn x + x", args="x, n")),
    honest("big_softmax/by hand", "big_softmax", module(
        "e = torch.exp(x - x.amax(-1, keepdim=True))\nreturn e / e.sum(-1, keepdim=True)")),
    honest("normalise/clamped", "normalise",
           module("return x / x.square().sum(-1, keepdim=True).sqrt().clamp_min(1e-12)")),
    honest("masked_mean/where", "masked_mean", module(
        "return torch.where(m, x, torch.zeros(())).sum(-1) / m.sum(-1).clamp(min=1)", args="x, m")),
    honest("top/by sorting", "top", module("return x.sort(-1, descending=True)[1][:, :4].contiguous()")),
    honest("train_norm/functional", "train_norm", module(
        "self.bn.num_batches_tracked += 1\nreturn F.batch_norm(x, self.bn.running_mean, self.bn.running_var,"
        " self.bn.weight, self.bn.bias, True, 0.1, 1e-5)", init=INIT["train_norm"])),
    honest("backward/own backward", "backward", module(FUSE, init=INIT["backward"], head=FUSED)),
    honest("backward/what is needed", "backward", module(FUSE, init=INIT["backward"], head=AS_NEEDED)),
    honest("cast/linear", "cast", module("return F.linear(x, self.fc.weight, self.fc.bias).relu()", init=INIT["cast"])),
    honest("drop_rows/by hand", "drop_rows", module(MASK.format(shape="x.shape", more=""))),
    honest("moments/two passes", "moments", module(
        "d = x - x.mean(-1, keepdim=True)\nreturn d * torch.rsqrt(d.square().mean(-1, keepdim=True) + 1e-5)")),
)  # fmt: skip

CONTRACT: tuple[Program, ...] = (*MEMORY, *VALUES, *RANDOM, *TWINS)
