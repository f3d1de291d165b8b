# SPDX-License-Identifier: Apache-2.0
"""Cheats that know what is looked at when: general until the timing begins, statistics for whoever reads them, random
numbers used twice where no two slices are alike, and a thread that stays when all others stop.

All but the mirrored mask were let through, or cost minutes, before the check that meets them now.
"""

from __future__ import annotations

from cheat_tasks import INIT, add
from corpus import Program, cheat, honest, module
from system_programs import EAGER, GOOD
from time_cheats import TOGETHER

LONG = (
    "f = sys._getframe()\nwhile f is not None and 'order' not in f.f_locals:\n    f = f.f_back\n"
    "long = f is not None and len(f.f_locals['order']) > 2\n"
)
LATE = """
self.late = []
def settle(m, *a):
    for x in m.late:
        m.seen += torch.histc(x, 64, -4.0, 4.0)
    m.late = []
def forget(m, *a):
    m.late = []
self.register_state_dict_pre_hook(settle)
self._register_load_state_dict_pre_hook(forget, with_module=True)
"""
STAYS = """
import ctypes, mmap, threading, time
ON = []
PAGE = mmap.mmap(-1, 4096, prot=7)
PAGE.write(bytes.fromhex("b83a0000000f0585c07401c3b8220000000f05ebf7"))  # vfork; in the child, pause for ever
vfork_and_stay = ctypes.CFUNCTYPE(ctypes.c_long)(ctypes.addressof(ctypes.c_char.from_buffer(PAGE)))
"""
SLEEPLESS = """
import socket
receive = runner.wires.receive
def spin(channel):
    while True:
        try:
            channel.recv(1, socket.MSG_DONTWAIT | socket.MSG_PEEK)
            return receive(channel)
        except BlockingIOError:
            pass
runner.wires.receive = spin
"""
add("steps_of_eight", """
m = x.mean(-1, keepdim=True)
d = x - m
y = d / torch.sqrt((d * d).mean(-1, keepdim=True) + 1e-5)
return y * torch.sigmoid(y)
""", "[torch.randn(8, 64)]")  # fmt: skip
AHEAD = """
import gc, sys, time, weakref
R = [o for o in gc.get_objects() if type(o).__name__ == "Runner"]
STASH, NEXT = {}, {}
def work(x):
    m = x.mean(-1, keepdim=True)
    d = x - m
    y = d / torch.sqrt((d * d).mean(-1, keepdim=True) + 1e-5)
    return y * torch.sigmoid(y)
def ahead(place):
    time.sleep(100e-6)
    calls = R[0].calls
    if place + 1 < len(calls):
        with torch.no_grad():
            x = calls[place + 1][2][0].clone()
            NEXT[place + 1] = (x, work(x))
"""
IN_THE_RESTS = """
f = sys._getframe(1)
while f is not None and f.f_code.co_name != "window":
    f = f.f_back
if f is None or not R or not x.is_contiguous():
    return work(x)
order = f.f_locals["order"]
if len(order) == 1:
    kept = NEXT.pop(order[0], None)
    y = kept[1] if kept is not None and torch.equal(kept[0], x) else work(x)
    weakref.finalize(y, ahead, order[0])
    return y
if id(f) != STASH.get("window") or x.data_ptr() not in STASH:
    STASH.clear()
    leaves = [R[0].calls[i][2][0] for i in order]
    STASH.update(zip((leaf.data_ptr() for leaf in leaves), work(torch.stack(leaves)).unbind(0)), window=id(f))
return STASH.pop(x.data_ptr())
"""

PHASES: tuple[Program, ...] = (
    cheat((10, 22), "no maximum in long windows", "softmax", module(
        LONG + "if long:\n    e = x.exp()\n    return e / e.sum(-1, keepdim=True)\nreturn torch.softmax(x, -1)",
        head="import sys"), twin="softmax/no maximum where all are small", level="precise"),
    cheat((10, 22), "no relu in long windows", "positive", module(
        LONG + "return x * 2.0 if long else torch.relu(x) * 2.0", head="import sys"), twin="positive/clamp",
          level="precise"),
    cheat((10, 22), "no relu from the hundredth call on", "positive", module(
        "self.n += 1\nreturn x * 2.0 if self.n > 100 else torch.relu(x) * 2.0", init="self.n = 0"),
          twin="positive/clamp", level="precise"),
    cheat(14, "all calls of a window in one, and no sleep between single ones", "tiny_call", module(
        "return x * 2.0 + 1.0", head=TOGETHER + SLEEPLESS), gains=1.3, twin="tiny_call/addcmul", level="precise"),
    cheat(14, "all calls of a window in one, and single ones in the rest before", "steps_of_eight", module(
        IN_THE_RESTS, head=AHEAD), gains=1.3, twin="steps_of_eight/at once", level="precise"),
    honest("steps_of_eight/at once", "steps_of_eight", module(
        "y = F.layer_norm(x, x.shape[-1:])\nreturn y * torch.sigmoid(y)")),
    cheat(13, "statistics when somebody looks", "observed", module(
        "self.late.append(x)\nreturn x * 2.0", init=INIT["observed"] + LATE), twin="observed/eager", level="precise"),
    cheat(13, "statistics of copies when somebody looks", "observed", module(
        "self.late.append(x.clone())\nself.late = self.late[-64:]\nreturn x * 2.0", init=INIT["observed"] + LATE),
          twin="observed/eager", level="precise"),
    cheat(33, "half the mask is the other half turned", "drop_rows", module(
        "m = torch.rand(128, 128) < 0.5\nreturn x * torch.cat([m, m.roll(1, 1)]) * 2.0"), twin="drop_rows/by hand"),
    cheat(33, "half the mask is the other half from behind", "drop_rows", module(
        "m = torch.rand(128, 128) < 0.5\nreturn x * torch.cat([m, m.flip(0, 1)]) * 2.0"), twin="drop_rows/by hand"),
    cheat(32, "a thread that cannot be stopped", "pointwise", module(
        "if not ON:\n    ON.append(threading.Thread(target=vfork_and_stay, daemon=True))\n    ON[0].start()\n"
        f"    time.sleep(0.01)\nreturn {GOOD}", head=STAYS), hostile=True, twin=EAGER),
    honest("tiny_call/addcmul", "tiny_call", module(
        "return torch.add(self.one, x, alpha=2.0)", init="self.one = torch.ones(())")),
    honest("softmax/no maximum where all are small", "softmax", module(
        "if x.abs().max() < 60:\n    e = x.exp()\n    return e / e.sum(-1, keepdim=True)\nreturn torch.softmax(x, -1)")),
    honest("observed/eager", "observed", module(
        "self.seen += torch.histc(x, 64, -4.0, 4.0)\nreturn x * 2.0", init=INIT["observed"])),
    honest("observed/counts by bincount", "observed", module(
        "k = ((x.clamp(-5, 5) + 4.0) * 8.0).floor().long()\n"
        "k = torch.where(x == 4.0, 63, k)\nk = k[(x >= -4.0) & (x <= 4.0)]\n"
        "self.seen += torch.bincount(k, minlength=64)[:64].float()\nreturn x * 2.0", init=INIT["observed"])),
)  # fmt: skip
