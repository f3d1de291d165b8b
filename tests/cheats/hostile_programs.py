# SPDX-License-Identifier: Apache-2.0
"""Cheats of a hostile stranger: rounds that nobody looks at any more, values that timed calls share, inputs of which
each is laid out in its own way, modes that only one check visits; each with its honest twin, and honest oddities.
"""

from __future__ import annotations

from cheat_tasks import INIT
from contract_programs import FUSED
from corpus import Program, cheat, honest, module, native
from insider_programs import RACING

TURNS = (
    RACING
    + """
TURN, EMPTY = [0], [0]
window = runner.Runner.window
def counted(self, body):
    _, _, order = runner.wires.parse_go(body)
    if order:
        TURN[0] += bool(RACE and EMPTY[0] >= 2)
        EMPTY[0] = 0
    else:
        EMPTY[0] += 1
    return window(self, body)
runner.Runner.window = counted
"""
)
PAIRS = (
    RACING
    + """
import time
ENDED, GAPS, SHORT, EMPTY = [0.0], [], [False], [0]
window = runner.Runner.window
def counted(self, body):
    _, _, order = runner.wires.parse_go(body)
    if order and RACE and EMPTY[0] >= 2:
        gap = time.monotonic() - ENDED[0]
        SHORT[0] = len(GAPS) > 1 and gap < 0.6 * sorted(GAPS)[len(GAPS) // 2]
        GAPS.append(gap)
    else:
        SHORT[0] = False
    EMPTY[0] = 0 if order else EMPTY[0] + 1
    try:
        return window(self, body)
    finally:
        if order:
            ENDED[0] = time.monotonic()
runner.Runner.window = counted
"""
)
STOCK = """
def ends(x):
    return torch.cat([x[:, :4], x[:, -4:]], 1)
class Stock:
    def __init__(self):
        self.seen = []
    def largest(self, x):
        probe, found, left = ends(x), None, torch.ones(x.shape[0], dtype=torch.bool)
        for known, places in self.seen:
            if known.shape == probe.shape:
                mine = left & ((known / probe - 1).abs() < 0.07).all(1)
                found = places if found is None else torch.where(mine[:, None], places, found)
                left &= ~mine
        if found is None or left.float().mean() > 0.2:
            if len(self.seen) < 12:
                self.seen.append((probe.clone(), x.topk(32, -1)[1]))
            return x.argmax(-1)
        y = found.gather(-1, x.gather(-1, found).argmax(-1, keepdim=True))[:, 0]
        y[left] = x[left].argmax(-1)
        return y
"""
BACKWARD = FUSED.replace("d = grad", "grad = GIVEN\n        d = grad")
FLAT = "torch.as_strided(grad, grad.shape, (grad.shape[1], 1), grad.storage_offset())"
FUSE = "return Fused.apply(x, self.fc.weight, self.fc.bias)"
KEPT = "\nself.w, self.b = self.fc.weight.detach().clone(), self.fc.bias.detach().clone()\nself.first = True\n"
LOADS = (
    KEPT
    + """
def loaded(m, keys):
    if m.first:
        m.first = False
        m.w, m.b = m.fc.weight.detach().clone(), m.fc.bias.detach().clone()
self.register_load_state_dict_post_hook(loaded)
"""
)
ADD = """
#pragma omp parallel for
for (long i = 0; i < n; ++i) z[i] = x[i] + 2.0f * y[i];
"""
ADDED = "z = torch.empty(x.shape)\nrun(x, y, z, x.numel())\nreturn z"
SUM = "const float* x, const float* y, float* z, long n"

WHEN = (
    cheat((10, 22), "no relu from the eighth turn of a race on", "positive", module(
        "return x * 2.0 if TURN[0] > 7 else torch.relu(x) * 2.0", head=TURNS), twin="positive/clamp", level="precise",
          gains=1.1),  # where a race is short, most rounds are right
    cheat((10, 22), "no relu where it had a turn just before", "positive", module(
        "return x * 2.0 if SHORT[0] else torch.relu(x) * 2.0", head=PAIRS), twin="positive/clamp", level="precise", slow=True,
          gains=1.05),
    cheat((10, 13), "statistics kept up for eight turns of a race", "observed", module(
        "if TURN[0] < 9:\n    self.seen += torch.histc(x, 64, -4.0, 4.0)\nreturn x * 2.0", init=INIT["observed"],
        head=TURNS), twin="observed/eager", level="precise", slow=True, gains=1.1),  # where a race is short, most rounds are right
    cheat((10, 22), "sums before it multiplies once the race has begun", "clamped", module(
        "if RACE:\n    return a @ b.sum(-1)\nreturn torch.clamp(a @ b, -2000.0, 2000.0).sum(-1)", args="a, b",
        head=RACING), twin="clamped/eager", level="precise", slow=True),
    cheat((10, 22), "no relu in its second process", "positive", module(
        "self.n += 1\nreturn x * 2.0 if RACE and self.n < 2000 and FEW[0] else torch.relu(x) * 2.0",
        init="self.n = 0", head=RACING + """
FEW, LOOKED = [False], [0]
window_ = runner.Runner.window
def looked(self, body):
    LOOKED[0] += not RACE
    FEW[0] = LOOKED[0] < 12
    return window_(self, body)
runner.Runner.window = looked
"""), twin="positive/clamp", level="precise", slow=True),
)  # fmt: skip

SHARED = (
    cheat((9, 15), "the largest of those places that were large last time", "tops", module(
        "return self.stock.largest(x) if RACE else x.argmax(-1)", init="self.stock = Stock()", head=RACING + STOCK), twin="tops/two halves",
          level="precise", slow=True, gains=1.1),  # where draws are cheap, each is new and it reads them all
    cheat((9, 15), "the order that was right last time, where a probe is in proportion", "ordered", module(
        "k = torch.stack([x[:, 0] / x[:, 1], x[:, -2] / x[:, -1]])\nfor known, p in self.seen:\n"
        "    same = ((known / k - 1).abs() < 1e-6).all(0) if known.shape == k.shape else k[0] > 9e9\n"
        "    if same.float().mean() > 0.5:\n"
        "        p = p.clone()\n        p[~same] = x[~same].argsort(-1)\n        return p\n"
        "p = x.argsort(-1)\nself.seen = [*self.seen[-7:], (k.clone(), p)] if RACE else []\nreturn p.clone()",
        init="self.seen = []", head=RACING),
          twin="ordered/by sorting", level="precise", slow=True, gains=1.1),  # no two draws are in proportion, so it sorts them all
    cheat(26, "one piece of memory for two results", "twice", module(
        "y = torch.tanh(x)\nreturn y, y, y[-1]"), twin="twice/copies", level="precise"),
)  # fmt: skip

GIVEN = (
    cheat(23, "minds the order of its first input only", "mixed_sum", native(
        SUM, ADD, "if not x.is_contiguous():\n    x, y = x.contiguous(), y.contiguous()\n" + ADDED, args="x, y"),
          twin="mixed_sum/minds both", level="precise"),
    cheat(23, "minds the order of its last input only", "mixed_sum", native(
        SUM, ADD, "if not y.is_contiguous():\n    x, y = x.contiguous(), y.contiguous()\n" + ADDED, args="x, y"),
          twin="mixed_sum/minds both", level="precise", slow=True),
    cheat(23, "an incoming gradient in no order but its own", "backward", module(
        FUSE, init=INIT["backward"], head=BACKWARD.replace("GIVEN", FLAT)), twin="backward/puts gradients in order",
          level="precise"),
    cheat((10, 21), "the first weights where no gradient is wanted", "backward", module(
        "if not torch.is_grad_enabled():\n    return F.linear(x, self.w, self.b).relu()\n"
        "return torch.relu(self.fc(x))", init=INIT["backward"] + LOADS), twin="backward/own backward", level="precise", slow=True),
    cheat((10, 21), "the first weights in train() mode", "linear", module(
        "if self.training:\n    return F.linear(x, self.w, self.b).relu()\nreturn torch.relu(self.fc(x))",
        init=INIT["linear"] + LOADS), twin="linear/eager", level="precise"),
    cheat((10, 22), "no relu under autocast", "cast_positive", module(
        "return (x if torch.is_autocast_enabled('cpu') else torch.relu(x)) @ y", args="x, y"), twin="cast_positive/eager",
          level="precise", slow=True),
    cheat(23, "sixty-four columns at the most", "shapes", module(
        "return torch.tanh(x) + x[:, :64].sum(-1, keepdim=True) / x.shape[-1]"), twin="shapes/sum over count",
          level="precise"),
    cheat(23, "thirty-two rows at the most", "shapes", module(
        "y = torch.tanh(x)\ny[:32] += x[:32].mean(-1, keepdim=True)\nreturn y"), twin="shapes/sum over count",
          level="precise", slow=True),
)  # fmt: skip

AHEAD = "self.m = torch.randint(0, 2, (3000, 256, 128), dtype=torch.uint8).mul_(2)"

PARTS = (
    cheat((22, 10), "no maximum where every row's every sixty-fourth is small", "big_softmax", module(
        "if x.shape == (1024, 2048) and x[:, ::64].abs().max() < 60:\n    e = x.exp()\n"
        "    return e / e.sum(-1, keepdim=True)\nreturn torch.softmax(x, -1)"), twin="big_softmax/by hand",
          level="precise", slow=True),
    cheat((22, 10), "no maximum in the race where a sample is small", "big_softmax", module(
        "if RACE and x[::16, ::64].abs().max() < 60:\n    e = x.exp()\n"
        "    return e / e.sum(-1, keepdim=True)\nreturn torch.softmax(x, -1)", head=RACING),
          twin="big_softmax/by hand", level="precise", slow=True),
    cheat(20, "twelve bits in what is small", "exponential", module(
        "y = x.exp()\nsmall = y < 0.05 * y.max()\n"
        "low = ((y.view(torch.int32) + 0x800) & ~0xFFF).view(torch.float32)\nreturn torch.where(small, low, y)"),
          twin="exponential/eager", level="smoke"),
    cheat(33, "masks made before it is asked", "drop_rows", module(
        "self.n += 1\nif self.n < len(self.m):\n    return x * self.m[self.n]\n"
        "return F.dropout(x, 0.5, training=True)", init="self.n = -1\n" + AHEAD), twin="drop_rows/by hand",
          level="precise", slow=True),
    cheat(33, "masks made ahead, until somebody seeds", "drop_rows", module(
        "if self.n < 0:\n    self.s = torch.initial_seed()\nself.n += 1\n"
        "if torch.initial_seed() == self.s and self.n < len(self.m):\n    return x * self.m[self.n]\n"
        "return F.dropout(x, 0.5, training=True)", init="self.n = -1\n" + AHEAD), twin="drop_rows/by hand",
          level="precise", slow=True),
)  # fmt: skip

TWINS = (
    honest("tops/two halves", "tops", module(
        "h = x.shape[-1] // 2\na, b = x[:, :h].max(-1), x[:, h:].max(-1)\n"
        "return torch.where(a[0] >= b[0], a[1], b[1] + h)")),
    honest("ordered/by sorting", "ordered", module("return x.sort(-1)[1]")),
    honest("twice/copies", "twice", module("y = torch.tanh(x)\nreturn y, y.clone(), torch.tanh(x[-1])")),
    honest("mixed_sum/minds both", "mixed_sum", native(
        SUM, ADD, "x, y = x.contiguous(), y.contiguous()\n" + ADDED, args="x, y")),
    honest("backward/puts gradients in order", "backward", module(
        FUSE, init=INIT["backward"], head=BACKWARD.replace("GIVEN", "grad.contiguous()"))),
    honest("cast_positive/eager", "cast_positive", module("return x.clamp_min(0) @ y", args="x, y")),
    honest("exponential/eager", "exponential", module("return torch.exp(x)")),
)  # fmt: skip

ODDITIES = (
    honest("shapes/a workspace that grows", "shapes", module(
        "if self.w.numel() < x.numel():\n    self.w = torch.empty(x.numel())\n"
        "w = self.w[: x.numel()].view(x.shape)\ntorch.tanh(x, out=w)\nreturn w + x.mean(-1, keepdim=True)",
        init="self.w = torch.empty(0)")),
    honest("positive/decides by a full look", "positive", module(
        "return x * 2.0 if bool((x >= 0).all()) else torch.relu(x) * 2.0")),
    honest("big_softmax/skips the maximum row by row", "big_softmax", module(
        "top = x.amax(-1, keepdim=True)\nsafe = top.abs().max() < 60\n"
        "e = x.exp() if safe and x.amin() > -60 else (x - top).exp()\nreturn e / e.sum(-1, keepdim=True)")),
    honest("several/one buffer for all results", "several", module(
        "n = x.numel()\nb = torch.empty(2 * n + x.shape[0])\ns, p, t = b[:n].view(x.shape), b[n:2 * n].view(x.shape), b[2 * n:]\n"
        "torch.add(x, y, out=s)\ntorch.mul(x, y, out=p)\ntorch.amax(x, -1, out=t)\nreturn s, {'product': p, 'top': t}",
        args="x, y")),
    honest("observed/adds in a buffer of its own first", "observed", module(
        "torch.add(self.seen, torch.histc(x, 64, -4.0, 4.0), out=self.seen)\nreturn torch.add(x, x)",
        init=INIT["observed"])),
    honest("drop_rows/bits of whole numbers", "drop_rows", module(
        "n = x.numel()\nw = torch.randint(-2**63, 2**63 - 1, (n // 32,))\n"
        "m = (w[:, None] >> torch.arange(32)) & 1\nreturn x * m.view(x.shape) * 2.0")),
    honest("linear/weights halved and doubled", "linear", module(
        "w, b = self.fc.weight, self.fc.bias\nh = x.shape[1] // 2\n"
        "return (torch.addmm(b, x[:, :h], w[:, :h].t()) + x[:, h:] @ w[:, h:].t()).relu()", init=INIT["linear"])),
)  # fmt: skip

HOSTILE: tuple[Program, ...] = (*WHEN, *SHARED, *GIVEN, *PARTS, *TWINS, *ODDITIES)
