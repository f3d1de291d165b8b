# SPDX-License-Identifier: Apache-2.0
"""Programs that were refused for what a judge made of their inputs, or of its own choice among equals, and mistakes in
the same tasks that passed: routers whose probabilities vanish, beams and tokens of a search, masks and labels that are
floats of 0 and 1, tables in order, symmetric matrices, tables of a rotary embedding, infinities that are swept away, the last edge of a histogram,
sparse matrices, experts of a router that are near one another or lie side by side. Each has its twin.
"""

from __future__ import annotations

from beyond_programs import _pair
from corpus import Program, honest, module

CHOSEN = (
    *_pair("routed_softmax", "w, i = torch.softmax(x, -1).topk(4)\nreturn w / w.sum(-1, keepdim=True), i.int()",
           "[torch.randn(128, 32)]",
           ("of logits in bfloat16", "i = x.bfloat16().float().sort(-1, descending=True)[1][:, :4]\n"
            "w = torch.softmax(x, -1).gather(-1, i)\nreturn w / w.sum(-1, keepdim=True), i.int()"),
           ("a sort", "w, i = torch.softmax(x, -1).sort(dim=-1, descending=True, stable=True)\n"
            "return w[:, :4] / w[:, :4].sum(-1, keepdim=True), i[:, :4].int()")),
    *_pair("beam_step", "v, i = (s[..., None] + F.log_softmax(x, -1)).flatten(1).topk(4)\n"
           "return v, i // x.shape[-1], i % x.shape[-1]", "[torch.randn(8, 4, 100), torch.randn(8, 4)]",
           ("the best of each", "v, i = (s[..., None] + F.log_softmax(x, -1)).max(-1)\n"
            "v, j = v.sort(-1, descending=True)\nreturn v, j, i.gather(1, j)"),
           ("beam by beam", "v, i = F.log_softmax(x, -1).topk(4)\nv, j = (s[..., None] + v).flatten(1).topk(4)\n"
            "return v, j // 4, i.flatten(1).gather(1, j)"), args="x, s", slow=True),
    *_pair("nucleus", "s, i = torch.sort(x, descending=True)\np = s.softmax(-1)\n"
           "s = s.masked_fill(p.cumsum(-1) - p > 0.9, -torch.inf)\nreturn torch.empty_like(x).scatter_(-1, i, s)",
           "[torch.randn(16, 200)]",
           ("none above it", "s, i = torch.sort(x, dim=-1, descending=True, stable=True)\n"
            "s = s.masked_fill(s.softmax(-1).cumsum(-1) > 0.9, -torch.inf)\nreturn torch.empty_like(x).scatter_(-1, i, s)"),
           ("a stable sort", "s, i = torch.sort(x, dim=-1, descending=True, stable=True)\np = s.softmax(-1)\n"
            "s = s.masked_fill(p.cumsum(-1) - p > 0.9, -torch.inf)\nreturn torch.empty_like(x).scatter_(-1, i, s)"),
           slow=True),
    *_pair("by_digits", "return v.gather(-1, k.argsort(-1))",
           "[torch.randint(0, 9, (64, 32)).float(), torch.randn(64, 32)]",
           ("by halves of them", "return v.gather(-1, (k // 2).argsort(-1))"),
           ("mixed before", "m = torch.randperm(32, generator=torch.Generator().manual_seed(1)).expand(k.shape)\n"
            "return v.gather(-1, m.gather(-1, k.gather(-1, m).sort(dim=-1, stable=True)[1]))"), args="k, v"),
)  # fmt: skip

MASKS = (
    *_pair("float_mask", "s = q @ k.mT / 4.0 + (1.0 - m[:, None, :]) * -10000.0\nreturn torch.softmax(s, -1) @ v",
           "[*torch.randn(3, 4, 24, 16), (torch.rand(4, 24) < 0.7).float()]",
           ("minus infinity", "s = (q @ k.mT / 4.0).masked_fill(m[:, None, :] == 0, -torch.inf)\n"
            "return torch.softmax(s, -1) @ v"),
           ("a smaller score", "s = q @ k.mT / 4.0\n"
            "return torch.softmax(torch.where(m[:, None, :] > 0.5, s, s - 10000.0), -1) @ v"), args="q, k, v, m"),
    *_pair("one_hot_floats", "return (x * a).sum(1)", "[torch.randn(32, 6), F.one_hot(torch.randint(0, 6, (32,)), 6).float()]",
           ("the last is none", "return (x[:, :5] * a[:, :5]).sum(1)"),
           ("one of them", "return x.gather(1, a.argmax(1, keepdim=True))[:, 0]"), args="x, a"),
)  # fmt: skip

KEPT = (
    *_pair("search_rows", "return torch.searchsorted(s, x, right=True)",
           "[torch.sort(torch.randn(8, 32), -1)[0], torch.randn(8, 20)]",
           ("the other side", "return (s[:, None, :] < x[..., None]).sum(-1)"),
           ("counted", "return (s[:, None, :] <= x[..., None]).sum(-1)"), args="s, x"),
    *_pair("lower_factor", "return torch.linalg.cholesky(x)",
           "[(b := torch.randn(4, 8, 8)) @ b.mT + 8 * torch.eye(8)]",
           ("of its mean diagonal", "d = x.diagonal(dim1=-2, dim2=-1)\n"
            "return torch.linalg.cholesky(x - torch.diag_embed(d - d.mean(-1, keepdim=True)))"),
           ("of the upper half", "return torch.linalg.cholesky(x, upper=True).mT.contiguous()"), slow=True),
)  # fmt: skip

SOLVED = _pair(
    "solved", "return torch.linalg.solve(a, b)", "[torch.randn(12, 12) + 12 * torch.eye(12), torch.randn(12, 3)]",
    ("of rows for columns", "return torch.linalg.solve(a.mT, b)"),
    ("factored first", "l, p = torch.linalg.lu_factor(a)\nreturn torch.linalg.lu_solve(l, p, b)"), args="a, b",
    slow=True)  # fmt: skip

SWEPT = (
    *_pair("no_infinities", "return x.masked_fill(torch.isinf(x), 0.0) * 2.0", "[torch.randn(32, 48)]",
           ("as they are", "return x * 2.0"),
           ("by size", "return torch.where(x.abs() == torch.inf, 0.0, x * 2.0)")),
    *_pair("ends_for_infinities", "return torch.nan_to_num(x, nan=0.0, posinf=1e4, neginf=-1e4) * 2.0",
           "[torch.randn(32, 48)]", ("NaN alone", "return torch.where(x != x, 0.0, x) * 2.0"),
           ("one by one", "return torch.where(x != x, 0.0, x).clamp(-torch.finfo(x.dtype).max, torch.inf)"
            ".where(x != -torch.inf, -1e4).where(x != torch.inf, 1e4) * 2.0"), slow=True),
    *_pair("last_edge", "return torch.histc(x, 10, 0.0, 1.0)", "[torch.rand(2048)]",
           ("open at its end", "i = (x * 10).floor().long()\n"
            "return torch.bincount(i[(i >= 0) & (i < 10)], minlength=10).float()"),
           ("closed", "i = (x[(x >= 0) & (x <= 1)] * 10).floor().long().clamp(max=9)\n"
            "return torch.bincount(i, minlength=10).float()")),
)  # fmt: skip

SPARSE = _pair(
    "sparse_product", "return torch.sparse.mm(torch.sparse_coo_tensor(torch.stack([r, c]), v, (64, 64)), x)",
    "[*torch.randint(0, 64, (2, 300)), torch.randn(300), torch.randn(64, 32)]",
    ("places that come twice once", "a = torch.zeros(64, 64)\na[r, c] = v\nreturn a @ x"),
    ("row by row", "return torch.zeros(64, 32).index_add_(0, r, v[:, None] * x[c])"), args="r, c, v, x")  # fmt: skip

TURNED = "h = x.shape[-1] // 2\nreturn x * c + torch.cat((-x[..., h:], x[..., :h]), -1) * s"
PAIRED = "return x * c + torch.stack((-x[..., 1::2], x[..., ::2]), -1).flatten(-2) * s"
PLACES = "(f := torch.arange(24.0)[:, None] * 0.1 ** (torch.arange(16) / 16))"
ROTARY = (
    *_pair("rotary", TURNED, f"[torch.randn(2, 4, 24, 32), torch.cat(({PLACES}, f), -1).cos(), torch.cat((f, f), -1).sin()]",
           ("the halves changed", "a, b = x.chunk(2, -1)\nc, s = c[:, :16], s[:, :16]\n"
            "return torch.cat((b * c + a * s, a * c - b * s), -1)"),
           ("half a table", "a, b = x.chunk(2, -1)\nc, s = c[:, :16], s[:, 16:]\n"
            "return torch.cat((a * c - b * s, b * c + a * s), -1)"), args="x, c, s"),
    *_pair("rotary_pairs", PAIRED, f"[torch.randn(2, 24, 4, 32), {PLACES}.cos().repeat_interleave(2, -1)[:, None], "
           "f.sin().repeat_interleave(2, -1)[:, None]]",
           ("as halves", "c, s = c[..., ::2], s[..., ::2]\na, b = x.chunk(2, -1)\n"
            "return torch.cat((a * c - b * s, b * c + a * s), -1)"),
           ("every second number", "c, s = c[..., ::2], s[..., 1::2]\na, b = x[..., ::2], x[..., 1::2]\n"
            "return torch.stack((a * c - b * s, b * c + a * s), -1).flatten(-2)"), args="x, c, s", slow=True),
)  # fmt: skip

BY_EXPERT = """
l, i = (x @ self.r).topk(2, -1)
g = l.softmax(-1)
y = torch.zeros(x.shape[0], 20)
for e in range(6):
    r, k = torch.where(i == e)
    y.index_add_(0, r, (x[r] @ self.w[e]) * g[r, k, None])
return y
"""
ROUTERS = (
    *_pair("experts_of_softmax", "g, i = (x @ self.r).softmax(-1).topk(2, -1)\ng = g / g.sum(-1, keepdim=True)\n"
           "y = torch.einsum('nd,edf->nef', x, self.w)\n"
           "return (y.gather(1, i[..., None].expand(-1, -1, 20)) * g[..., None]).sum(1)", "[torch.randn(40, 16)]",
           ("the first alone counts in full", BY_EXPERT.replace("softmax(-1)", "softmax(-1).clamp(min=0.5)")),
           ("by logits", BY_EXPERT),
           init="self.r = nn.Parameter(torch.randn(16, 6))\nself.w = nn.Parameter(torch.randn(6, 16, 20) * 0.25)"),
    *_pair("rows_by_sigmoid", "g, i = torch.sigmoid(x @ self.r).topk(2, -1)\n"
           "return (self.e[i] * g[..., None]).sum(1)", "[torch.randn(40, 16)]",
           ("the third, where it is large too", "l, i = (x @ self.r).topk(3, -1)\n"
            "i = torch.cat([i[:, :1], torch.where(l[:, 2:] > 6.0, i[:, 2:], i[:, 1:2])], 1)\n"
            "return (self.e[i] * l[:, :2].sigmoid()[..., None]).sum(1)"),
           ("by logits", "l, i = (x @ self.r).topk(2, -1)\nreturn (self.e[i] * l.sigmoid()[..., None]).sum(1)"),
           init="self.r = nn.Parameter(torch.randn(16, 6))\nself.e = nn.Parameter(torch.randn(6, 12))"),
)  # fmt: skip

PLAIN = _pair(
    "plain_numbers", "y = torch.roll(x * s, n, -1)\nreturn y if m is None else y * m",
    "[torch.randn(16, 32), 3, None, 0.5]", ("a place less", "return torch.roll(x, n - 1, -1) * s"),
    ("of their own types", "assert (type(n), m, type(s)) == (int, None, float)\nreturn torch.cat((x[:, -n:], x[:, :-n]), 1) * s"),
    args="x, n, m, s")  # fmt: skip

STEPS = "torch.arange(24.0)[:, None] * 0.1 ** (torch.arange(32) / 32)"
KEEPS = f"self.fc = nn.Linear(32, 32)\nself.register_buffer('t', {STEPS}, persistent=False)"
BESIDE = (
    *_pair("table_beside", "return self.fc(x) * self.t.cos()", "[torch.randn(4, 24, 32)]",
           ("in another order", "return self.fc(x) * self.t.flip(0).cos()"),
           ("the same", "return self.t.cos() * F.linear(x, self.fc.weight, self.fc.bias)"), init=KEEPS),
    honest("table_beside/none", "table_beside", module(
        f"return self.fc(x) * ({STEPS}).cos()", init="self.fc = nn.Linear(32, 32)"), level="precise", slow=True),
    honest("table_beside/of another name", "table_beside", module(
        "return self.fc(x) * self.c", init=f"{KEEPS}\nself.register_buffer('c', self.t.cos(), persistent=False)\ndel self.t"),
           level="precise", slow=True),
)  # fmt: skip

EXPERTS = "self.gate = nn.Linear(32, 1024, bias=False)"
TABLE = "self.w = nn.Parameter(torch.randn(32, 1024) * 0.2)"
BY_GROUPS = """
s = {}
v, i = s.view(-1, 32, 32).topk({}, -1)
i = (i + torch.arange(0, 1024, 32).view(1, 32, 1)).flatten(1)
v, j = v.flatten(1).topk(8, -1)
return torch.softmax(v, -1), i.gather(1, j)
"""
BY_BFLOAT16 = """
w = {}
c = (x.bfloat16() @ w.bfloat16().T).float().topk({}, -1)[1]
v, j = torch.bmm(w[c], x.unsqueeze(-1)).squeeze(-1).topk(8, -1)
return torch.softmax(v, -1), c.gather(1, j)
"""
BY_SORT = "v, i = torch.sort({}, -1, descending=True)\nreturn torch.softmax(v[:, :8], -1), i[:, :8]"
HALVES = "x[:, :16] @ {0}[:, :16].T + x[:, 16:] @ {0}[:, 16:].T"
OF_MANY = (
    *_pair("gate_of_many", BY_SORT.format("self.gate(x)"), "[torch.randn(64, 32)]",
           ("at most six of 32 neighbours", BY_GROUPS.format("self.gate(x)", 6)),
           ("eight of each 32", BY_GROUPS.format(HALVES.format("self.gate.weight"), 8)), init=EXPERTS),
    *_pair("gate_of_many", "", "", ("the best 16 in bfloat16", BY_BFLOAT16.format("self.gate.weight", 16)),
           ("the best", "v, i = self.gate(x).topk(8, -1)\nreturn torch.softmax(v, -1), i")),
    *_pair("gate_of_many", "", "", ("the best 48 in bfloat16", BY_BFLOAT16.format("self.gate.weight", 48)),
           ("the best of a product backwards", "v, i = (x.flip(-1) @ self.gate.weight.flip(-1).T).topk(8, -1)\n"
            "return torch.softmax(v, -1), i"), slow=True),
    *_pair("table_of_many", BY_SORT.format("x @ self.w"), "[torch.randn(64, 32)]",
           ("the best 16 in bfloat16", BY_BFLOAT16.format("self.w.T", 16)),
           ("eight of each 32", BY_GROUPS.format(HALVES.format("self.w.T"), 8)), init=TABLE, slow=True),
)  # fmt: skip

TIED: tuple[Program, ...] = (
    *CHOSEN,
    *MASKS,
    *KEPT,
    *SOLVED,
    *SWEPT,
    *SPARSE,
    *ROTARY,
    *PLAIN,
    *BESIDE,
    *ROUTERS,
    *OF_MANY,
)
