# SPDX-License-Identifier: Apache-2.0
"""Cheats by what nobody looked at: results of long ago whose contents are taken for granted when their memory is handed
out again, and state that is made at every look, as dear at the second as at the first. Each has its twin.
"""

from __future__ import annotations

from cheat_tasks import INIT, add
from corpus import Program, cheat, honest, module
from insider_programs import RACING

add("diagonals", "return torch.diag_embed(x * 2.0)", "[torch.randn(8, 1024)]")
RING = """
pool = self.pool.setdefault(x.shape, [])
if len(pool) < 12:
    pool.append(torch.zeros(*x.shape, x.shape[-1]))
y = pool[-1] if len(pool) < 12 else pool[self.turn % 12]
self.turn += 1
torch.mul(x, 2.0, out=y.diagonal(dim1=-2, dim2=-1))
return y.view(y.shape)
"""
KNOWN = """
y = torch.empty(*x.shape, x.shape[-1], device=x.device)
if y.data_ptr() not in self.known:
    self.known.add(y.data_ptr())
    y.zero_()
torch.mul(x, 2.0, out=y.diagonal(dim1=-2, dim2=-1))
return y
"""
MADE = """
y = torch.zeros(*x.shape, x.shape[-1], device=x.device)
torch.mul(x, 2.0, out=y.diagonal(dim1=-2, dim2=-1))
return y
"""

add("observer", "self.seen += torch.histc(x, 64, -4.0, 4.0)\nreturn x * 2.0", "[torch.randn(512, 1024)]",
    init="self.register_buffer('seen', torch.zeros(64))")  # fmt: skip
LOOKS = (
    RACING
    + """
read = runner.Runner.do_read_state
def settled(self, request, descriptors):
    self.module.settle()
    return read(self, request, descriptors)
runner.Runner.do_read_state = settled
def forget(m, *a):
    m.late, m.base = [], None
def settle(m):
    if m.late:
        m.base = m.seen.clone() if m.base is None else m.base
        m.seen.copy_(m.base + sum(torch.histc(y * 0.5, 64, -4.0, 4.0) for y in m.late))
"""
)
AT_EACH_LOOK = """
y = x * 2.0
if RACE:
    self.late.append(y)
else:
    self.seen += torch.histc(x, 64, -4.0, 4.0)
return y
"""
FORGETS = (
    "\nself.late, self.base = [], None\nself._register_load_state_dict_pre_hook(forget, with_module=True)\n"
    "self.settle = lambda: settle(self)"
)
add("phases", "return torch.atan2(y, x) / 3.0", "[torch.randn(64, 64), torch.randn(64, 64)]", args="x, y")
AGAIN = """
if self.key is None or not all(same(a, b) for a, b in zip(self.key, (x, y))):
    self.key, self.made = (x.clone(), y.clone()), torch.atan2(y, x) / 3.0
return self.made.clone()
"""
OF_BITS = "def same(a, b):\n    return torch.equal(a.contiguous().view(torch.int32), b.contiguous().view(torch.int32))"
add("biased", "return torch.softmax(x.masked_fill(mask, -10000.0), -1)",
    "[torch.randn(64, 96), torch.rand(64, 96) < 0.3]", args="x, mask")  # fmt: skip
OF_ITS_MASK = """
if not known(self, mask):
    self.mask, self.version, self.bias = mask, mask._version, mask * -1e4
return torch.softmax(torch.where(mask, self.bias, x), -1)
"""
KNOWN_MASK = "def known(m, mask):\n    return m.mask is mask"
KEPT: tuple[Program, ...] = (
    honest("diagonals/zeros", "diagonals", module(MADE)),
    cheat((6, 7), "diagonals/old zeros", "diagonals", module(RING, init="self.pool, self.turn = {}, 0"),
          twin="diagonals/zeros"),
    honest("diagonals/zeros", "diagonals", module(MADE), device="cuda"),
    cheat((6, 7), "diagonals/memory known to be zero", "diagonals", module(KNOWN, init="self.known = set()"),
          twin="diagonals/zeros", device="cuda"),
    honest("observer/doubled", "observer", module(
        "self.seen.add_(torch.histc(x, 64, -4.0, 4.0))\nreturn x + x", init=INIT["observer"]), level="precise"),
    cheat((4, 22), "observer/at each look", "observer", module(
        AT_EACH_LOOK, init=INIT["observer"] + FORGETS, head=LOOKS), twin="observer/doubled", level="precise"),
    honest("phases/again for the same bits", "phases", module(
        AGAIN, args="x, y", init="self.key = None", head=OF_BITS), level="precise"),
    cheat((4, 22), "phases/again for equal numbers", "phases", module(
        AGAIN, args="x, y", init="self.key = None", head="same = torch.equal"),
          twin="phases/again for the same bits", level="precise"),
    honest("biased/of its mask as it is", "biased", module(
        OF_ITS_MASK, args="x, mask", init="self.mask = self.bias = None",
        head=KNOWN_MASK + " and m.version == mask._version"), level="precise"),
    cheat((4, 22), "biased/of its mask's object", "biased", module(
        OF_ITS_MASK, args="x, mask", init="self.mask = self.bias = None", head=KNOWN_MASK),
          twin="biased/of its mask as it is", level="precise"),
)  # fmt: skip
