# SPDX-License-Identifier: Apache-2.0
"""Programs that know again what inputs are made of where drawing them is dear: the signs of rows. And such as are wrong
where numbers differ by what selects them, where classes of them are small, where channels of a group lie apart from
those of another, or where one input of several is zero. Each has its honest twin.
"""

from __future__ import annotations

from beyond_programs import _pair
from cheat_tasks import INIT, add
from corpus import Program, cheat, honest, module

from kernelwright.task import Contract

SUMS = "sum(float(torch.rand(())) for _ in range(6)) - 3.0"
DRAWN = f"[torch.tensor([[{SUMS} for _ in range(16)] for _ in range(64)])]"
DEEP = "self.m = nn.Sequential(nn.Linear(16, 512), nn.SiLU(), nn.Linear(512, 512), nn.SiLU(), nn.Linear(512, 1))"
SIGNS = "b = torch.where(x >= 0, 1.0, -1.0)\n"
KNOWN = (
    SIGNS
    + """
rows, out = [bytes(row) for row in (x >= 0).to(torch.uint8).numpy()], []
new = [at for at, row in enumerate(rows) if row not in self.known]
if new:
    self.known.update(zip([rows[at] for at in new], self.m(b[new])))
return torch.stack([self.known[row] for row in rows])
"""
)
FORGETS = "self.known = {}\nself.register_load_state_dict_post_hook(lambda *_: self.known.clear())"
BY_MASK = """
out = []
for row, some in zip(x, m):
    k = some.float()
    n = k.sum().clamp(min=1)
    u = (row * k).sum() / n
    out.append((((row - u) ** 2) * k).sum() / n)
return torch.stack(out)
"""
CENTRED = "z, k = x - x.mean(1, keepdim=True), m.float()\nn = k.sum(1).clamp(min=1)\nu = (z * k).sum(1) / n\n"
EXPERTS = "h = F.one_hot(s, 8).float()\n"
THROUGH = "return ((h * live)[:, :, None] * x[:, None]).reshape(256, 128) @ w.reshape(128, 16)"
GROUPED = "g = x.view(6, 8, 2, 36).transpose(1, 2).reshape(6, 2, 288)\n"
BACK = "return y.view(6, 2, 8, 36).transpose(1, 2).reshape(6, 16, 36)"
STEP = "a, b = w.norm(), u.norm()\n"

STILL, SPARE = "self.pos = nn.Parameter(torch.randn(64, 64){})", "self.spare = nn.Parameter(torch.randn(64))"
LAYER = "self.l = nn.Linear(64, 64)\n"
HELD = LAYER + STILL.format(", requires_grad=False")
GRADIENTS = Contract(gradients=True)

add("signs_drawn", SIGNS + "return self.m(b)", DRAWN, init=DEEP)

add("held_still", "return F.gelu(self.l(x) + self.pos)", "[torch.randn(8, 64, 64)]", init=HELD, contract=GRADIENTS)
ADDED = "return F.gelu(self.pos + self.l(x))"

UNSEEN: tuple[Program, ...] = (
    cheat((0, 22), "held_still/a parameter that is trained", "held_still", module(ADDED, init=LAYER + STILL.format("")),
          twin="held_still/requires no gradient", level="precise", stages=("load",)),
    honest("held_still/requires no gradient", "held_still", module(ADDED, init=HELD), level="precise"),
    honest("held_still/a buffer", "held_still", module(ADDED, init=LAYER + "self.register_buffer('pos', "
           "torch.randn(64, 64))"), level="precise"),
    *_pair("spare_parameter", "return F.gelu(self.l(x)), x.mean(1)", "[torch.randn(128, 64)]",
           ("zeros for no gradient", "return F.gelu(self.l(x)) + 0.0 * self.spare.sum(), x.mean(1)"),
           ("without it", "return F.gelu(F.linear(x, self.l.weight, self.l.bias)), x.mean(1)"),
           init=LAYER + SPARE, contract=GRADIENTS),
    cheat(8, "signs_drawn/rows known by their signs", "signs_drawn", module(KNOWN, init=f"{DEEP}\n{FORGETS}"),
          twin="signs_drawn/once more", level="precise", gains=1.3),
    honest("signs_drawn/once more", "signs_drawn", module(SIGNS + "return self.m(b) + 0.0", init=INIT["signs_drawn"]),
           level="precise"),
    *_pair("masked_variance", BY_MASK, "[torch.randn(16, 256), torch.rand(16, 256) > 0.5]",
           ("squares about the mean of the row", f"{CENTRED}return ((z * z * k).sum(1) / n - u * u).clamp(min=0)"),
           ("about the mean of what counts", "k = m.float()\nn = k.sum(1).clamp(min=1)\nu = (x * k).sum(1) / n\n"
            "return (((x - u[:, None]) ** 2) * k).sum(1) / n"), args="x, m"),
    *_pair("experts", f"{EXPERTS}live = 1.0\n{THROUGH}",
           "[torch.randn(256, 16), torch.randint(0, 8, (256,)), torch.randn(8, 16, 16)]",
           ("small rows left out", f"{EXPERTS}q = (h.t() @ x.square().mean(1)) / h.sum(0).clamp(min=1)\n"
            f"live = (q >= 1e-6 * q.median()).float()\n{THROUGH}"),
           ("row by row", "return torch.einsum('ni,nio->no', x, w[s])"), args="x, s, w"),
    *_pair("shuffled_groups", f"{GROUPED}y = F.layer_norm(g, (288,))\n{BACK}", "[torch.randn(6, 16, 36)]",
           ("squares about the mean of the sample", f"{GROUPED}z = g - g.mean((1, 2), keepdim=True)\n"
            "u = z.mean(-1, keepdim=True)\nv = (z * z).mean(-1, keepdim=True) - u * u\n"
            f"y = (z - u) * torch.rsqrt(v.clamp(min=0) + 1e-5)\n{BACK}"),
           ("two passes", f"{GROUPED}v, u = torch.var_mean(g, -1, keepdim=True, correction=0)\n"
            f"y = (g - u) * torch.rsqrt(v + 1e-5)\n{BACK}")),
    *_pair("handed_on", "return x * m * 2.0, m", "[torch.randn(32, 64), torch.randn(32, 64)]",
           ("a rounded one", "return x * 2.0 * m, m.half().float()"), ("doubled first", "return x * 2.0 * m, m"),
           args="x, m"),
    *_pair("trusted_step", f"{STEP}return w - torch.where((a > 0) & (b > 0), a / b, 1.0) * u",
           "[torch.randn(16, 64), torch.randn(16, 64)]",
           ("a clamped norm", f"{STEP}return w - a / b.clamp(min=1e-20) * u"),
           ("an if", f"{STEP}r = a / b if float(a) > 0 and float(b) > 0 else 1.0\nreturn w - r * u"), args="w, u"),
)  # fmt: skip
