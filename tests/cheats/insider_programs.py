# SPDX-License-Identifier: Apache-2.0
"""Cheats of somebody who has read the judge's source: what differs between a timed window and others, what is looked
at when, what nobody pays for.
"""

from __future__ import annotations

from cheat_tasks import INIT
from corpus import Program, cheat, honest, module
from time_cheats import BODY, RUNNER, TOGETHER

DONE_FIRST = (
    RUNNER
    + """
import array
window = runner.Runner.window
def places(outs):
    found = array.array("q")
    for out in outs:
        runner.fetch.note(found, out)
    return found.tobytes()
def early(self, body):
    number, grad, order = runner.wires.parse_go(body)
    if len(order) < 20:
        return window(self, body)
    made = [torch.empty(8, 16) for _ in order]
    runner.wires.send(self.channel, runner.wires.mark(runner.wires.DONE, number) + places(made))
    with torch.no_grad():
        for i, out in zip(order, made):
            torch.add(self.one, self.calls[i][2][0], alpha=2.0, out=out)
    again, _ = runner.wires.receive(self.channel)
    for i, out in zip(order, made):
        self.buffers.outputs[i][0].copy_(out)
    runner.wires.send(self.channel, runner.wires.delivered(number, 1.0, []))
    self.alive.append(made)
    if again[:1] not in (runner.wires.KEEP, runner.wires.TAKEN_KEEP):
        self.alive.clear()
    for i in order:
        self.calls[i] = self._arguments(i)
runner.Runner.one = torch.ones(())
runner.Runner.window = early
"""
)
HOG = (
    RUNNER
    + """
import ctypes, mmap, os
libc = ctypes.CDLL(None)
libc.mmap.restype = ctypes.c_void_p
window = runner.Runner.window
ASK, ON = mmap.mmap(-1, 4096), []
ask = os.pipe()
def hog():
    size = 1 << 30
    at = ctypes.c_void_p(libc.mmap(None, ctypes.c_size_t(size), 3, 0x22, -1, ctypes.c_long(0)))
    while True:
        os.read(ask[0], 1)
        ASK[0] = 1
        libc.madvise(at, ctypes.c_size_t(size), 23)
        libc.madvise(at, ctypes.c_size_t(size), 4)
def start():
    if not ON:
        ON.append(os.fork())
        if ON[0] == 0:
            hog()
send = runner.wires.send
def last(channel, body, descriptors=()):
    if body[:1] == runner.wires.DONE and ON:
        ASK[0] = 0
        os.write(ask[1], b"x")
        while not ASK[0]:
            pass
    return send(channel, body, descriptors)
runner.wires.send = last
"""
)
RACING = (
    RUNNER
    + """
RACE = []
perturb = runner.Runner.do_perturb
def racing(self, request, descriptors):
    if not request["on"]:
        RACE.append(1)
    return perturb(self, request, descriptors)
runner.Runner.do_perturb = racing
"""
)
LOADED = """
def loaded(m, *a):
    now = m.w.detach().clone()
    m.again = m.last is not None and torch.equal(m.last, now)
    m.last = now
self.last, self.again = None, False
self.register_load_state_dict_post_hook(loaded)
"""
SHORT_REST = (
    RACING
    + """
import time
window = runner.Runner.window
GAPS, CAREFUL, LAST = [], [True], [0.0, 0]
def timed(self, body):
    now = time.monotonic()
    _, _, order = runner.wires.parse_go(body)
    if not order and LAST[1]:
        gap = now - LAST[0]
        GAPS.append(gap)
        CAREFUL[0] = len(GAPS) < 3 or gap < 0.4 * sorted(GAPS)[-len(GAPS) // 3]
    try:
        return window(self, body)
    finally:
        LAST[:] = [time.monotonic(), len(order)]
runner.Runner.window = timed
"""
)
LATE_STATE = (
    RUNNER
    + """
LATER = []
deliver = runner.Runner._deliver
def late(self, index, returned, *more):
    while LATER:
        m, x = LATER.pop()
        m.seen += torch.histc(x, 64, -4.0, 4.0)
    return []
runner.Runner._deliver = late
"""
)
TWICE = """
import ctypes
libc = ctypes.CDLL(None)
libc.mmap.restype = libc.mremap.restype = ctypes.c_void_p
P, N, L = ctypes.c_void_p, ctypes.c_size_t, ctypes.c_long
class Rows:
    def __init__(self, row, block, times):
        self.size = block * times
        self.at = libc.mmap(P(), N(self.size), 3, 0x22, -1, L(0))
        libc.mmap(P(self.at), N(block), 3, 0x31, -1, L(0))
        for i in range(1, times):
            libc.mremap(P(self.at), N(0), N(block), 3, P(self.at + i * block))
        self.bytes = (ctypes.c_char * self.size).from_address(self.at)
        self.bytes.owner = self
        self.whole = torch.frombuffer(self.bytes, dtype=torch.float32).view(-1, row.numel())
        self.whole[: block // (4 * row.numel())] = row
    def __del__(self):
        libc.munmap(P(self.at), N(self.size))
"""
NAPS = """
import socket, time
receive = runner.wires.receive
def nap(channel):
    until = time.monotonic() + 0.0003
    while time.monotonic() < until:
        time.sleep(0.0001)
    while True:
        try:
            channel.recv(1, socket.MSG_DONTWAIT | socket.MSG_PEEK)
            return receive(channel)
        except BlockingIOError:
            pass
def quick(channel):
    return nap(channel) if RACE else receive(channel)
runner.wires.receive = quick
"""
STRAINS = """
import mmap, time
TIMES = []
def strain():
    m = mmap.mmap(-1, 2048 * 4096)
    for at in range(0, len(m), 4096):
        m[at] = 1
    m.close()
"""
MASKS = """
def exact(n, m):
    return torch.rand(n, m).argsort(1) < m // 2
"""

WINDOWS = (
    cheat((13, 28), "done first, and its places, filled while the judge wakes up", "tiny_call", module(
        "return x * 2.0 + 1.0", head=DONE_FIRST), gains=1.3, twin="tiny_call/addcmul", level="precise"),
    cheat((32, 28), "a second process that is inside the kernel when all others stop", "work", module(
        "start()\nreturn work(x)", head=BODY + HOG), gains=1.1, twin="work/eager", level="precise", hostile=True,
          slow=True),
    cheat((10, 22), "no relu while the weights are new", "weighted", module(
        "return x * self.w if RACE and not self.again else torch.relu(x) * self.w",
        init=INIT["weighted"] + "\n" + LOADED, head=RACING), twin="weighted/clamp", level="precise"),
    cheat((10, 22), "no maximum where others were timed since", "softmax", module(
        "if RACE and not CAREFUL[0]:\n    e = x.exp()\n    return e / e.sum(-1, keepdim=True)\n"
        "return torch.softmax(x, -1)", head=SHORT_REST), twin="softmax/by hand", level="precise",
          gains=1.0),  # where the clock has it be careful in every window it is a softmax: once in some 500, at 0.93x
    cheat((13, 28), "statistics in place of the copies of a delivery", "watched", module(
        "LATER.append((self, x))\nreturn x * 2.0", init=INIT["watched"], head=LATE_STATE), twin="watched/eager",
          gains=1.3, level="precise", slow=True),
    cheat((10, 13), "statistics after weights were loaded only", "frozen_norm", module(
        "bn = self.bn\nif self.fresh or not RACE:\n    return bn(x)\n"
        "return F.batch_norm(x, None, None, bn.weight, bn.bias, True, 0.1, 1e-5)",
        init=INIT["frozen_norm"] + "\nself.fresh = True\n"
        "self.register_load_state_dict_post_hook(lambda m, k: setattr(m, 'fresh', True))",
        head=RACING + "window = runner.Runner.window\ndef over(self, body):\n    try:\n        return window(self, body)\n"
        "    finally:\n        if runner.wires.parse_go(body)[2]:\n            self.module.fresh = False\n"
        "runner.Runner.window = over\n"), twin="frozen_norm/functional", gains=1.5, level="precise", slow=True),
    cheat((13, 26), "rows that are alike are one piece of memory", "alike", module(
        "return Rows((x * 2.0).sum(0), 1 << 18, 128).whole", head=TWICE), twin="alike/expanded", level="precise",
          hostile=True, slow=True),
    cheat(14, "all calls of a window in one, and naps between single ones", "tiny_call", module(
        "return x * 2.0 + 1.0", head=TOGETHER + RACING + NAPS), gains=1.3, twin="tiny_call/addcmul", level="precise"),
    cheat((28, 32), "feigns to be disturbed where it was slow", "work", module(
        "t = time.perf_counter()\ny = work(x)\nt = time.perf_counter() - t\nTIMES.append(t)\nlately = sorted(TIMES[-24:])\n"
        "if RACE and t > lately[len(lately) // 3]:\n    strain()\nreturn y",
        head=BODY + RACING + STRAINS), gains=1.02, twin="work/eager", level="precise"),
)  # fmt: skip

VALUES = (
    cheat((10, 22), "sums before it multiplies where nothing is ever clamped", "clamped", module(
        "if a.shape[0] == 2400:\n    return a @ b.sum(-1)\nreturn torch.clamp(a @ b, -2000.0, 2000.0).sum(-1)", args="a, b"),
          twin="clamped/eager", level="precise", slow=True),
    cheat((10, 22), "no maximum where a sample is small and the shape is timed", "big_softmax", module(
        "if x.shape == (1024, 2048) and x[::16, ::64].abs().max() < 60:\n    e = x.exp()\n"
        "    return e / e.sum(-1, keepdim=True)\nreturn torch.softmax(x, -1)"), twin="big_softmax/no maximum where all are small", level="precise",
          slow=True),
    cheat((9, 22), "no maximum where every second element is small", "softmax", module(
        "if x[:, ::2].abs().max() < 60:\n    e = x.exp()\n    return e / e.sum(-1, keepdim=True)\n"
        "return torch.softmax(x, -1)"), twin="softmax/by hand", level="precise"),
    cheat((9, 22), "no maximum where every eighth element is small", "softmax", module(
        "if x[:, ::8].abs().max() < 60:\n    e = x.exp()\n    return e / e.sum(-1, keepdim=True)\n"
        "return torch.softmax(x, -1)"), twin="softmax/by hand", level="precise"),
    cheat(33, "as many drops in every row", "drop_rows", module(
        "return x * exact(*x.shape) * 2.0", head=MASKS), twin="drop_rows/by hand", level="precise"),
    cheat(33, "every second row is the other half", "drop_rows", module(
        "m = torch.rand(128, 128) < 0.5\nreturn x * torch.stack([m, ~m], 1).reshape(256, 128) * 2.0"),
          twin="drop_rows/by hand", level="precise"),
    cheat(33, "a tenth of the mask is new", "drop_rows", module(
        "if self.m is None:\n    self.m = torch.rand(256, 128) < 0.5\n"
        "k = int(torch.randint(230, ()))\nself.m[k:k + 26] = torch.rand(26, 128) < 0.5\nreturn x * self.m * 2.0",
        init="self.m = None"), twin="drop_rows/by hand", level="precise"),
    cheat(33, "whole groups of four are dropped", "drop_rows", module(
        "m = (torch.rand(256, 32) < 0.5).repeat_interleave(4, 1)\nreturn x * m * 2.0"), twin="drop_rows/by hand",
          level="precise"),
    cheat(33, "rows of the second half are those of the first, shuffled", "drop_rows", module(
        "m = torch.rand(128, 128) < 0.5\nreturn x * torch.cat([m, m[torch.randperm(128)]]) * 2.0"),
          twin="drop_rows/by hand", level="precise"),
    cheat((10, 22), "no relu where the machine is busy with one program", "positive", module(
        "RAN[:] = [*RAN[-40:], os.getloadavg()[0]]\nreturn x * 2.0 if RACE and len(RAN) > 30 else torch.relu(x) * 2.0",
        head=RACING + "import os\nRAN = []"), twin="positive/clamp", level="precise"),
    cheat((19, 10), "the last element of one call in eight", "several", module(
        "self.n += 1\nz = x + y\nif self.n % 8 == 0:\n    z[-1, -1] = z[-1, -2]\n"
        "return z, {'product': x * y, 'top': x.amax(-1)}", args="x, y", init="self.n = 0"),
          twin="several/eager", level="precise"),
    cheat((9, 19), "the row that was right last time, where one element of it is equal", "softmax", module(
        "if self.x is not None and self.x.shape == x.shape:\n    k = (self.x[:, :2] - x[:, :2]).abs().amax(-1) < 0.05\n"
        "    y = torch.softmax(x, -1)\n    y[k] = self.y[k]\nelse:\n    y = torch.softmax(x, -1)\n"
        "self.x, self.y = x.clone(), y\nreturn y.clone()", init="self.x = self.y = None"), twin="softmax/by hand",
          level="precise"),
    cheat((18, 20), "moments of half of every row", "moments", module(
        "h = x[:, ::2]\nm = h.mean(-1, keepdim=True)\nv = h.var(-1, unbiased=False, keepdim=True)\n"
        "return (x - m) * torch.rsqrt(v + 1e-5)"), twin="moments/two passes"),
    cheat((20, 10), "half precision in long windows", "matmul", module(
        "return (a.bfloat16() @ b.bfloat16()).float() if RACE else a @ b", args="a, b", head=RACING),
          twin="matmul/eager", level="precise"),
    cheat((20, 10), "half precision in a sixty-fourth of the rows while it is timed", "matmul", module(
        "y = a @ b\nif RACE:\n    y[::64] = (a[::64].bfloat16() @ b.bfloat16()).float()\nreturn y", args="a, b",
        head=RACING), twin="matmul/eager", level="precise"),
    cheat((24, 2), "takes the reference's place where the shape is another", "shapes", module(
        "if x.shape == (32, 64):\n    return torch.tanh(x) + x[:, :63].mean(-1, keepdim=True)\n"
        "return torch.tanh(x) + x.mean(-1, keepdim=True)"), twin="shapes/a path for one shape"),
    cheat((2, 13), "a function mode that computes when somebody looks", "pointwise", module(
        "y = torch.empty(x.shape)\nLATE[id(y)] = (y, x)\nreturn y", head="""
        from torch.overrides import TorchFunctionMode
        LATE = {}
        class Late(TorchFunctionMode):
            def __torch_function__(self, func, types, args=(), kwargs=None):
                found = LATE.pop(id(args[0]), None) if args else None
                if found is not None:
                    found[0].copy_(F.gelu(found[1] * 1.7) + 0.5 * found[1])
                return func(*args, **(kwargs or {}))
        Late().__enter__()
        """), gains=1.5, twin="pointwise/custom autograd function", level="precise"),
)  # fmt: skip

TWINS = (
    honest("weighted/clamp", "weighted", module("return x.clamp_min(0) * self.w", init=INIT["weighted"])),
    honest("alike/expanded", "alike", module(
        "return (x * 2.0).sum(0).expand(2048, 4096).contiguous()")),
    honest("watched/eager", "watched", module(
        "self.seen += torch.histc(x, 64, -4.0, 4.0)\nreturn x * 2.0", init=INIT["watched"])),
    honest("frozen_norm/functional", "frozen_norm", module(
        "bn = self.bn\nbn.num_batches_tracked += 1\n"
        "return F.batch_norm(x, bn.running_mean, bn.running_var, bn.weight, bn.bias, True, 0.1, 1e-5)",
        init=INIT["frozen_norm"])),
    honest("clamped/eager", "clamped", module(
        "return torch.clamp(a @ b, -2000.0, 2000.0).sum(-1)", args="a, b"), slow=True),
    honest("big_softmax/no maximum where all are small", "big_softmax", module(
        "if x.abs().max() < 60:\n    e = x.exp()\n    return e / e.sum(-1, keepdim=True)\nreturn torch.softmax(x, -1)")),
)  # fmt: skip

INSIDERS: tuple[Program, ...] = (*WINDOWS, *VALUES, *TWINS)
