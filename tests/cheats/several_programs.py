# SPDX-License-Identifier: Apache-2.0
"""Programs that are right while they are alone: one instance that is never freed, as many cores as there are here, and
inputs that lie in memory as often as they have rows. Each has its honest twin.
"""

from __future__ import annotations

from cheat_tasks import INIT, add
from corpus import Program, cheat, honest, module

add("unit_weights", "return F.linear(x, self.w / self.w.norm(dim=1, keepdim=True).clamp(min=1e-6))",
    "[torch.randn(24, 32)]", init="self.w = nn.Parameter(torch.randn(48, 32))")  # fmt: skip
FOLDED = """
key = self.w.data_ptr(), self.w._version
if key not in KEPT:
    KEPT[key] = self.w / self.w.norm(dim=1, keepdim=True).clamp(min=1e-6)
return F.linear(x, KEPT[key])
"""
BY_WEIGHT = """
if self.w not in KEPT or KEPT[self.w][0] != self.w._version:
    KEPT[self.w] = self.w._version, self.w / self.w.norm(dim=1, keepdim=True).clamp(min=1e-6)
return F.linear(x, KEPT[self.w][1])
"""
WEAKLY = "from torch.utils.weak import WeakTensorKeyDictionary\nKEPT = WeakTensorKeyDictionary()"

SPOILS = """
y = {made}
if LAST and LAST[0] is not self and LAST[1].shape == y.shape:
    LAST[1].copy_(y)
LAST[:] = [self, y]
return y
"""
APART = "y = {made}\nLAST[:] = [self, y.clone()]\nreturn y"

add("swished_rows", "return F.silu(x) * 1.5", "[torch.randn(96, 64)]")
STEPS = """
if x.dim() == 2 and x.stride(0) == 0:
    x = x[:1] * torch.arange(x.shape[0]).clamp(max=1)[:, None]
return F.silu(x) * 1.5
"""
FIRST_ROW = """
if x.dim() == 2 and x.stride(0) == 0:
    return (F.silu(x[:1]) * 1.5).repeat(x.shape[0], 1)
return F.silu(x) * 1.5
"""
SHARES = """
n = {count}
y = torch.zeros_like(x)
k = max(x.shape[0] // n, 1)
for part in range(n{more}):
    y[part * k : part * k + k] = F.silu(x[part * k : part * k + k]) * 1.5
return y
"""

SEVERAL: tuple[Program, ...] = (
    cheat(9, "folded weights kept for all by address and version", "unit_weights", module(
        FOLDED, init=INIT["unit_weights"], head="KEPT = {}"),
          twin="unit_weights/kept by the weight itself", level="precise"),
    honest("unit_weights/kept by the weight itself", "unit_weights", module(
        BY_WEIGHT, init=INIT["unit_weights"], head=WEAKLY)),
    cheat(4, "writes to what another instance gave", "linear", module(
        SPOILS.format(made="torch.relu(self.fc(x))"), init=INIT["linear"], head="LAST = []"),
          twin="linear/keeps a copy of its last result", level="precise"),
    honest("linear/keeps a copy of its last result", "linear", module(
        APART.format(made="torch.relu(self.fc(x))"), init=INIT["linear"], head="LAST = []")),
    cheat(4, "writes to what another instance gave, without weights", "positive", module(
        SPOILS.format(made="torch.relu(x) * 2.0"), head="LAST = []"),
          twin="positive/keeps a copy of its last result", level="precise"),
    honest("positive/keeps a copy of its last result", "positive", module(
        APART.format(made="torch.relu(x) * 2.0"), head="LAST = []")),
    cheat(0, "steps of zero are a row, the others none", "swished_rows", module(STEPS),
          twin="swished_rows/the first row for all", level="precise"),
    honest("swished_rows/the first row for all", "swished_rows", module(FIRST_ROW)),
    cheat(0, "rows by core, no rest", "swished_rows", module(
        SHARES.format(count="os.cpu_count()", more=""), head="import os"),
          twin="swished_rows/rows by core and a rest", level="precise"),
    cheat(0, "rows by thread, no rest", "swished_rows", module(SHARES.format(count="torch.get_num_threads()", more="")),
          twin="swished_rows/rows by core and a rest", level="precise"),
    honest("swished_rows/rows by core and a rest", "swished_rows", module(
        SHARES.format(count="len(os.sched_getaffinity(0))", more=" + 1 + x.shape[0] // n"), head="import os")),
)  # fmt: skip
