# SPDX-License-Identifier: Apache-2.0
"""Cheats whose answers are right and whose time is a lie: work before, after, beside or instead of the timed call.

They answer tasks of some milliseconds, so that what they hide is large beside any noise. A verdict that grants them
no gain is as good as a refusal; ``gains`` is the most they may be granted.
"""

from __future__ import annotations

from cheat_tasks import INIT
from corpus import CAUGHT, Program, cheat, module

WORK = "for _ in range(6):\n    x = torch.sin(x) * 1.1 + torch.cos(x)\nreturn x"
BODY = """
def work(x):
    for _ in range(6):
        x = torch.sin(x) * 1.1 + torch.cos(x)
    return x
"""
RUNNER = "import sys\nrunner = sys.modules['kernelwright.judge.runner']\n"
EAGER = "work/eager"
EARLY = (
    RUNNER
    + BODY
    + """
import threading, time
READY = {}
def look_ahead(r):
    for s in range(r.buffers.plan.sets):
        x = r.calls[s][0][0]
        READY[s] = work(x)
"""
)
TOGETHER = (
    RUNNER
    + """
READY = {}
window = runner.Runner.window
def together(self, body):
    _, _, order = runner.wires.parse_go(body)
    if len(order) > 2:
        call = self._call
        first = self.calls[order[0]][2][0]
        step = (self.calls[1][2][0].data_ptr() - self.calls[0][2][0].data_ptr()) // 4
        at = (self.calls[0][2][0].data_ptr() - self.buffers.arena.tensor.data_ptr())
        flat = self.buffers.arena.tensor[at:at + 0].new_empty(0)
        whole = torch.frombuffer(self.buffers.arena._map, dtype=torch.float32, offset=at)
        def module(*a):
            if not READY:
                big = torch.as_strided(whole, (len(self.calls), *first.shape), (step, *first.stride()))
                done = torch.add(big * 2.0, 1.0).unbind(0)
                READY.update({self.calls[i][2][0].data_ptr(): done[i] for i in range(len(self.calls))})
            return READY[a[0].data_ptr()]
        READY.clear()
        kept, self.module = self.module, module
        try:
            return window(self, body)
        finally:
            self.module = kept
            READY.clear()
    return window(self, body)
runner.Runner.window = together
"""
)

TIME_CHEATS: tuple[Program, ...] = (
    cheat(11, "a thread that fills the output afterwards", "work", module(
        """
        y = torch.empty(x.shape)
        def fill():
            y.copy_(work(x))
        threading.Thread(target=fill).start()
        return y
        """, head=BODY + "import threading"), gains=1.5, twin="pointwise/threads"),
    cheat(11, "a thread awaited at delivery", "work", module(
        """
        y = torch.empty(x.shape)
        t = threading.Thread(target=lambda: y.copy_(work(x)))
        t.start()
        PENDING.append(t)
        return y
        """, head=BODY + RUNNER + """
import threading
PENDING = []
deliver = runner.Runner._deliver
def patient(self, index, returned, *more):
    while PENDING:
        PENDING.pop().join()
    return deliver(self, index, returned, *more)
runner.Runner._deliver = patient
"""), gains=1.5, twin="pointwise/threads"),
    cheat(12, "a thread that works ahead between windows", "work", module(
        """
        if not STARTED:
            f = sys._getframe()
            while "self" not in f.f_locals or type(f.f_locals["self"]).__name__ != "Runner":
                f = f.f_back
            r = f.f_locals["self"]
            STARTED.append(threading.Thread(target=forever, args=(r,), daemon=True))
            STARTED[0].start()
        for key, (seen, y) in list(CACHE.items()):
            if key == x.data_ptr() and torch.equal(seen, x):
                return y
        return work(x)
        """, head=RUNNER + BODY + """
import threading
STARTED, CACHE = [], {}
def forever(r):
    while True:
        for s in range(r.buffers.plan.sets):
            x = r.calls[s][0][0]
            seen = x.clone()
            if x.data_ptr() not in CACHE or not torch.equal(CACHE[x.data_ptr()][0], seen):
                CACHE[x.data_ptr()] = (seen, work(seen))
"""), gains=1.5, twin="pointwise/a pool kept for good"),
    cheat((12, 15), "works ahead in empty windows", "work", module(
        """
        y = READY.pop(x.data_ptr(), None)
        return work(x) if y is None else y
        """, head=RUNNER + BODY + """
READY = {}
window = runner.Runner.window
def early(self, body):
    _, _, order = runner.wires.parse_go(body)
    if not order and self.buffers is not None and self.buffers.plan.sets > 1:
        READY.clear()
        for leaves in (call[2] for call in self.calls):
            READY[leaves[0].data_ptr()] = work(leaves[0])
    return window(self, body)
runner.Runner.window = early
"""), gains=1.5, twin=EAGER),
    cheat((12, 2), "wakes itself by a timer while it is stopped", "work", module(
        """
        y = READY.get(x.data_ptr())
        if y is not None and torch.equal(y[0], x):
            return y[1]
        arm()
        return work(x)
        """, head=RUNNER + BODY + """
import ctypes, threading, gc, signal
READY, ON = {}, []
libc = ctypes.CDLL(None, use_errno=True)
class Event(ctypes.Structure):
    _fields_ = [("value", ctypes.c_void_p), ("signo", ctypes.c_int), ("notify", ctypes.c_int), ("pad", ctypes.c_char * 48)]
def arm():
    if ON:
        return
    ON.append(1)
    timer = ctypes.c_void_p()
    event = Event(None, signal.SIGCONT, 0)
    if libc.syscall(222, 1, ctypes.byref(event), ctypes.byref(timer)) != 0:
        return
    every = (ctypes.c_long * 4)(0, 2_000_000, 0, 2_000_000)
    libc.syscall(223, timer, 0, every, None)
    r = next(o for o in gc.get_objects() if type(o) is runner.Runner)
    threading.Thread(target=ahead, args=(r,), daemon=True).start()
def ahead(r):
    while True:
        for call in list(r.calls):
            x = call[2][0]
            seen = x.clone()
            old = READY.get(x.data_ptr())
            if old is None or not torch.equal(old[0], seen):
                READY[x.data_ptr()] = (seen, work(seen))
"""), gains=1.5, twin="pointwise/a pool kept for good"),
    cheat(13, "computes when its result is delivered", "work", module(
        "y = torch.empty(x.shape)\nLATE[id(y)] = (y, x)\nreturn y", head=RUNNER + BODY + """
LATE = {}
deliver = runner.Runner._deliver
def late(self, index, returned, *more):
    y, x = LATE.pop(id(returned[0]))
    y.copy_(work(x))
    return deliver(self, index, returned, *more)
runner.Runner._deliver = late
"""), gains=1.5, twin=EAGER),
    cheat((13, 2), "says done first and works then", "work", module(WORK, head=RUNNER + """
window = runner.Runner.window
def early(self, body):
    number, grad, order = runner.wires.parse_go(body)
    if len(order) < 2:
        return window(self, body)
    runner.wires.send(self.channel, runner.wires.mark(runner.wires.DONE, number))
    with torch.no_grad():
        results = [self._call(i, grad) for i in order]
    runner.wires.receive(self.channel)
    for i, result in zip(order, results):
        self._deliver(i, result, [])
    runner.wires.send(self.channel, runner.wires.delivered(number, 1.0, []))
    for i in order:
        self.calls[i] = self._arguments(i)
runner.Runner.window = early
"""), gains=1.5, twin=EAGER),
    cheat(13, "a quick delivery that does the work of a small call", "tiny_call", module(
        "y = torch.empty(0)\nreturn y", head=RUNNER + """
import time
def quick(self, body):
    number, grad, order = runner.wires.parse_go(body)
    runner.wires.send(self.channel, runner.wires.mark(runner.wires.DONE, number))
    runner.wires.receive(self.channel)
    with torch.no_grad():
        for i in order:
            torch.add(self.calls[i][2][0] * 2.0, 1.0, out=self.buffers.outputs[i][0])
    runner.wires.send(self.channel, runner.wires.delivered(number, 1.0, []))
runner.Runner.window = quick
"""), gains=1.3, twin="tiny_call/eager"),
    cheat(13, "a quick delivery with private copies", "work", module(
        "return x", head=RUNNER + BODY + """
import time
def quick(self, body):
    number, grad, order = runner.wires.parse_go(body)
    kept = [self.calls[i][2][0].clone() for i in order]
    runner.wires.send(self.channel, runner.wires.mark(runner.wires.DONE, number))
    runner.wires.receive(self.channel)
    with torch.no_grad():
        for i, x in zip(order, kept):
            self.buffers.outputs[i][0].copy_(work(x))
    runner.wires.send(self.channel, runner.wires.delivered(number, 1.0, []))
runner.Runner.window = quick
"""), gains=1.5, twin=EAGER),
    cheat((13, 12), "a second process that works at delivery", "work", module(
        "return x", head=RUNNER + BODY + """
import mmap, os
import numpy as np
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
def quick(self, body):
    global PID
    number, grad, order = runner.wires.parse_go(body)
    if PID is None:
        PID = os.fork()
        if PID == 0:
            helper()
    kept = [self.calls[i][2][0].clone() for i in order]
    runner.wires.send(self.channel, runner.wires.mark(runner.wires.DONE, number))
    runner.wires.receive(self.channel)
    for i, x in zip(order, kept):
        n = x.numel()
        A[:n] = x.reshape(-1)
        os.write(ask[1], n.to_bytes(8, "little"))
        os.read(told[0], 1)
        self.buffers.outputs[i][0].copy_(A[n:2 * n].view(x.shape))
    runner.wires.send(self.channel, runner.wires.delivered(number, 1.0, []))
runner.Runner.window = quick
"""), gains=1.5, twin=EAGER),
    cheat(14, "all calls of a window in one", "tiny_call", module(
        """
        y = READY.pop(x.data_ptr(), None)
        return x * 2.0 + 1.0 if y is None else y
        """, head=TOGETHER), gains=1.3, twin="tiny_call/eager"),
    cheat(14, "reads the weights once for all calls", "row_weights", module(
        "return self.fc(x)", init=INIT["row_weights"], head=RUNNER + """
window = runner.Runner.window
def together(self, body):
    _, _, order = runner.wires.parse_go(body)
    if len(order) < 3:
        return window(self, body)
    ready = {}
    fc = self.module.fc
    kept = self.module
    def module(x):
        if not ready:
            many = torch.cat([self.calls[i][2][0] for i in order])
            ready.update(zip([self.calls[i][2][0].data_ptr() for i in order], fc(many).split(1)))
        return ready[x.data_ptr()]
    self.module = module
    try:
        return window(self, body)
    finally:
        self.module = kept
runner.Runner.window = together
"""), gains=1.5, twin="row_weights/eager"),
    cheat((2, 28), "stops the clocks it can see", "work", module("time.sleep(0.002)\n" + WORK, head="""
import time
time.monotonic = time.perf_counter = time.time = lambda: 0.0
time.perf_counter_ns = time.monotonic_ns = time.time_ns = lambda: 0
"""), gains=1.5, twin="work/sleeps a little"),
    cheat((2, 28), "claims to have taken no time", "work", module(WORK, head=RUNNER + """
delivered = runner.wires.delivered
runner.wires.delivered = lambda number, own, aliases: delivered(number, 0.0, aliases)
"""), gains=1.5, twin=EAGER),
    cheat((28, 32), "threads that slow the others down", "work", module(WORK, head="""
import threading
def burn():
    x = torch.ones(1 << 16)
    while True:
        x.sin_()
for _ in range(2):
    threading.Thread(target=burn, daemon=True).start()
"""), gains=1.5, twin="pointwise/a pool kept for good"),
    cheat((16, 12), "a thread that keeps the cache warm", "row_weights", module(
        """
        if not ON:
            ON.append(threading.Thread(target=warm, args=(self.fc.weight,), daemon=True))
            ON[0].start()
        return self.fc(x)
        """, init=INIT["row_weights"], head="import threading\nON = []\ndef warm(w):\n    while True:\n        w.sum()\n"),
          gains=1.5, twin="row_weights/eager"),
    cheat(8, "memo of equal inputs", "work", module(
        "for a, b in self.memo[-8:]:\n    if torch.equal(a, x):\n        return b.clone()\ny = work(x)\n"
        "self.memo.append((x.clone(), y))\nreturn y", init="self.memo = []", head=BODY), gains=1.5,
          twin="pointwise/memo of shapes"),
    cheat(28, "every other call only", "work", module(
        "self.n += 1\nif self.n % 2:\n    return x.clone()\nreturn work(x)", init="self.n = 0", head=BODY),
          stages=CAUGHT, twin=EAGER),
)  # fmt: skip
