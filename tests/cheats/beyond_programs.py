# SPDX-License-Identifier: Apache-2.0
"""Programs that are right on all that a constructor makes and ``get_inputs`` draws, and wrong right beyond it.

Weights that are ones, an identity, half zeros; whole numbers that are the same in every draw; sums of whole numbers that
never get as large as they may; small results of exponentials; clamps that nothing reaches; the gaps in a strided input.
And other formulas that are worse conditioned, or leave out what is small as a rule. Each has its honest twin.
"""

from __future__ import annotations

from cheat_tasks import INIT, add
from corpus import Program, cheat, honest, module
from insider_programs import RACING

from kernelwright.task import Contract


def _pair(
    name: str, reference: str, inputs: str, wrong: tuple[str, str], right: tuple[str, str], *, args: str = "x",
    init: str = "", contract: Contract | None = None, slow: bool = False,
) -> tuple[Program, Program]:  # fmt: skip
    """A wrong and a right program, each with its words, for a task, which is added unless it is there."""
    if reference:
        add(name, reference, inputs, args=args, init=init, contract=contract)
    (said, source), (other, twin) = wrong, right
    made = honest(f"{name}/{other}", name, module(twin, args=args, init=INIT[name]), level="precise", slow=slow)
    source = module(source, args=args, init=INIT[name])
    return cheat((0, 22), f"{name}/{said}", name, source, twin=made.name, level="precise", slow=slow), made


GRADIENTS = Contract(gradients=True)
BYTES = "torch.randint(-128, 128, ({}), dtype=torch.int8)"
DECAY = """
y, h = [], torch.zeros_like(x[..., 0])
for t in range(x.shape[-1]):
    h = 0.5 * h + x[..., t]
    y.append(h)
return torch.stack(y, -1)
"""
IN_FULL = """
n = x.shape[-1]
d = torch.arange(n)[None] - torch.arange(n)[:, None]
return x @ torch.where(d >= 0, 0.5 ** d.clamp(min=0).float(), 0.0)
"""
OVER_THE_END = """
if x.stride(0) > x.shape[1] and x.stride(1) == 1:
    rows = x.as_strided((x.shape[0] - 1, x.stride(0)), x.stride())
    rows.mul_(0.5)
    rows[:, x.shape[1]:] = 7.0
    x[-1].mul_(0.5)
else:
    x.mul_(0.5)
return x.sum(-1)
"""
PAIRS = """
p = a.to(torch.int16)[:, None, :] * b.to(torch.int16)[None]
return (p[..., ::2] + p[..., 1::2]).sum(-1, dtype=torch.int32)
"""
BAGS = """
bag = torch.bucketize(torch.arange(len(i)), o, right=True) - 1
n = torch.bincount(bag, minlength=len(o)).clamp(min=1)
return torch.zeros(len(o), 32).index_add(0, bag, self.t[i]) / n[:, None]
"""

WEIGHTS = (
    *_pair("gamma", "return torch.relu(x * self.g)", "[torch.randn(64, 128)]",
           ("relu before the factor", "return torch.relu(x) * self.g"), ("relu after", "return (x * self.g).relu_()"),
           init="self.g = nn.Parameter(torch.ones(128))"),
    cheat((10, 22), "gamma/relu before the factor once the race has begun", "gamma", module(
        "return torch.relu(x) * self.g if RACE else torch.relu(x * self.g)", init=INIT["gamma"], head=RACING),
          twin="gamma/relu after", level="precise", slow=True),
    *_pair("row_norm", "", "",
           ("absolute weights", "return F.layer_norm(x, (128,), self.norm.weight.abs(), self.norm.bias)"),
           ("functional, in order", "return F.layer_norm(x, (128,), self.norm.weight, self.norm.bias)"), slow=True),
    *_pair("slope_below_one", "return F.prelu(x, self.a)", "[torch.randn(24, 32)]",
           ("the larger one", "return torch.maximum(x, x * self.a)"),
           ("by sign", "return torch.where(x > 0, x, x * self.a)"),
           init="self.a = nn.Parameter(torch.tensor([0.25]))", slow=True),
    *_pair("identity", "return torch.relu(self.fc(x))", "[torch.randn(24, 64)]",
           ("no product", "return torch.relu(x)"), ("a product", "return (x @ self.fc.weight.t()).relu_()"),
           init="self.fc = nn.Linear(64, 64, bias=False)\nnn.init.eye_(self.fc.weight)"),
    *_pair("weight_norm", "return x @ (self.v * (self.g / self.v.norm(dim=1, keepdim=True))).T", "[torch.randn(24, 64)]",
           ("no norm", "return x @ self.v.T"),
           ("a norm of products", "return x @ self.v.T * (self.g / self.v.square().sum(1, keepdim=True).sqrt()).T"),
           init="v = torch.randn(32, 64)\nself.v = nn.Parameter(v)\nself.g = nn.Parameter(v.norm(dim=1, keepdim=True))",
           slow=True),
    *_pair("half_zero", "return x @ self.w", "[torch.randn(24, 64)]",
           ("half the product", "return x[:, :32] @ self.w[:32]"),
           ("in halves", "return x[:, :32] @ self.w[:32] + x[:, 32:] @ self.w[32:]"),
           init="self.w = nn.Parameter(torch.randn(64, 48) * (torch.arange(64) < 32)[:, None])"),
)  # fmt: skip

NUMBERS = (
    *_pair("byte_products", "return a.to(torch.int32) @ b.to(torch.int32)",
           f"[{BYTES.format('24, 2048')}, {BYTES.format('2048, 16')}]",
           ("float32", "return (a.float() @ b.float()).to(torch.int32)"),
           ("float64", "return (a.double() @ b.double()).to(torch.int32)"), args="a, b"),
    *_pair("products", "", "", ("pairs in sixteen bits", PAIRS),
           ("batches of dots", "return (a.double() @ b.double().mT).int()"), args="a, b", slow=True),
    *_pair("running_bytes", "return x.cumsum(-1)", f"[{BYTES.format('32, 512')}]",
           ("in sixteen bits", "return x.cumsum(-1, dtype=torch.int16).long()"),
           ("in thirty-two", "return x.cumsum(-1, dtype=torch.int32).long()"), slow=True),
    *_pair("shares", "return torch.zeros(100).scatter_add(0, i, torch.ones(4096))", "[torch.randint(0, 100, (4096,))]",
           ("in halves", "n = torch.zeros(100, dtype=torch.half)\n"
            "return n.scatter_add(0, i, torch.ones(4096, dtype=torch.half)).float()"),
           ("counted", "return torch.bincount(i, minlength=100).float()"), args="i", slow=True),
    *_pair("mask_counts", "return m.sum(-1)", "[torch.rand(64, 300) < 0.5]",
           ("in eight bits", "return m.to(torch.uint8).sum(-1, dtype=torch.uint8).long()"),
           ("in thirty-two", "return m.sum(-1, dtype=torch.int32).long()"), args="m", slow=True),
    *_pair("whole_mask", "return (x * m[..., None]).sum(1) / m.sum(1, keepdim=True)",
           "[torch.randn(8, 32, 64), torch.ones(8, 32, dtype=torch.int64)]",
           ("no mask", "return x.sum(1) / 32"),
           ("a product", "return (m[:, None].float() @ x)[:, 0] / m.sum(1, keepdim=True)"), args="x, m"),
    *_pair("token_types", "return x + self.t[k]", "[torch.randn(8, 32, 64), torch.zeros(8, 32, dtype=torch.int64)]",
           ("all of type zero", "return x + self.t[0]"), ("an embedding", "return x + F.embedding(k, self.t)"),
           args="x, k", init="self.t = nn.Parameter(torch.randn(2, 64))", slow=True),
    *_pair("bags", "return F.embedding_bag(i, self.t, o, mode='mean')",
           "[torch.randint(0, 100, (256,)), torch.arange(0, 256, 16)]",
           ("of sixteen", "return self.t[i].view(16, 16, 32).mean(1)"), ("of any size", BAGS), args="i, o",
           init="self.t = nn.Parameter(torch.randn(100, 32))"),
    *_pair("full_lengths",
           "m = torch.arange(32)[None] < n[:, None]\nreturn (x * m[..., None]).sum(1) / n[:, None]",
           "[torch.randn(8, 32, 16), torch.full((8,), 32)]",
           ("taken for granted", "return x.mean(1)"),
           ("row by row", "return torch.stack([r[:k].sum(0) / k for r, k in zip(x, n.tolist())])"), args="x, n",
           slow=True),
)  # fmt: skip

SMALL = (
    *_pair("sigmoid", "return torch.sigmoid(x)", "[torch.randn(32, 64)]",
           ("by tanh", "return 0.5 * torch.tanh(0.5 * x) + 0.5"), ("by exp", "return 1 / (1 + torch.exp(-x))")),
    *_pair("soft_plus", "return F.softplus(x)", "[torch.randn(32, 64)]",
           ("log of one and", "return torch.log(1 + torch.exp(-x.abs())) + torch.relu(x)"),
           ("log1p", "return torch.log1p(torch.exp(-x.abs())) + torch.relu(x)")),
    *_pair("mish", "return F.mish(x)", "[torch.randn(32, 64)]",
           ("log of one and", "return x * torch.tanh(torch.log(1 + torch.exp(x.clamp(max=30))))"),
           ("by algebra", "e = torch.exp(x.clamp(max=20))\nn = e * (e + 2)\nreturn x * n / (n + 2)"), slow=True),
    *_pair("clamped_scores", "return (F.layer_norm(x, (64,)) @ self.w).clamp(-60000.0, 60000.0)", "[torch.randn(256, 64)]",
           ("no clamp", "return F.layer_norm(x, (64,)) @ self.w"),
           ("two clamps", "return torch.mm(F.layer_norm(x, (64,)), self.w).clamp(max=60000.0).clamp_(min=-60000.0)"),
           init="self.w = nn.Parameter(torch.randn(64, 64) / 8)"),
    *_pair("fits_half", "return torch.clamp(torch.relu(x) * 1.5, -65504.0, 65504.0)", "[torch.randn(256, 512)]",
           ("no clamp", "return torch.relu(x) * 1.5"), ("one clamp", "return torch.clamp(x * 1.5, 0.0, 65504.0)")),
    *_pair("cross_binary", "return F.binary_cross_entropy(p, t)", "[torch.rand(32, 64), torch.rand(32, 64)]",
           ("infinite at one", "return -(t * p.log().clamp(min=-100) + (1 - t) * (1 - p).log()).mean()"),
           ("by hand", "return -(t * p.log().clamp(min=-100) + (1 - t) * torch.log1p(-p).clamp(min=-100)).mean()"),
           args="p, t"),
    *_pair("divergence", "return F.kl_div(x, t, reduction='batchmean')",
           "[torch.log_softmax(torch.randn(32, 64), -1), torch.softmax(torch.randn(32, 64), -1)]",
           ("the logarithm of a zero", "return (t * (t.log() - x)).sum() / x.shape[0]"),
           ("zero times it", "return (torch.xlogy(t, t) - t * x).sum() / x.shape[0]"), args="x, t", slow=True),
)  # fmt: skip

FORMULAS_BEYOND = (
    *_pair("decay", DECAY, "[torch.randn(16, 64)]",
           ("the last thirty-two terms", "w = 0.5 ** torch.arange(31, -1, -1.0)\n"
            "return F.conv1d(F.pad(x, (31, 0))[:, None], w[None, None])[:, 0]"), ("all terms", IN_FULL)),
    *_pair("pooled", "return F.avg_pool1d(x, 4, 1)", "[torch.randn(8, 16, 67)]",
           ("differences of running sums", "s = F.pad(x.cumsum(-1), (1, 0))\nreturn (s[..., 4:] - s[..., :-4]) * 0.25"),
           ("means of four", "return x.unfold(-1, 4, 1).mean(-1)"), slow=True),
    *_pair("distances", "return (x[:, None] - y[None]).square().sum(-1)", "[torch.randn(48, 32), torch.randn(40, 32)]",
           ("products", "return x.square().sum(-1)[:, None] + y.square().sum(-1)[None] - 2 * x @ y.T"),
           ("differences", "d = x[:, None, :] - y\nreturn (d * d).sum(-1)"), args="x, y"),
    *_pair("slope", "p = torch.arange(48)\nd = (p[:, None] - p[None]).abs()\n"
           "return torch.softmax(q @ k.mT / 8.0 - 0.5 * d, -1) @ v", "[*torch.randn(3, 2, 48, 64).unbind()]",
           ("near keys only", "p = torch.arange(48)\nd = (p[:, None] - p[None]).abs()\n"
            "return torch.softmax((q @ k.mT / 8.0 - 0.5 * d).masked_fill(d > 44, float('-inf')), -1) @ v"),
           ("all keys", "p = torch.arange(48)\nb = -0.5 * (p[:, None] - p[None]).abs().float()\n"
            "return F.scaled_dot_product_attention(q, k, v, attn_mask=b)"), args="q, k, v", slow=True),
    *_pair("shared_top", "return x.amax(-1)", "[torch.randn(32, 64).requires_grad_()]",
           ("a gradient for one of the ties", "return x.max(-1).values"),
           ("in one", "return torch.amax(x, dim=1)"),
           contract=GRADIENTS, slow=True),
    *_pair("halved", "x.mul_(0.5)\nreturn x.sum(-1)", "[torch.randn(32, 66)]",
           ("stores over the end of a row", OVER_THE_END), ("in place", "x *= 0.5\nreturn x.sum(-1)"),
           contract=Contract(mutates=(0,))),
)  # fmt: skip

LAYOUTS = (
    *_pair("cube", "return torch.tanh(x) * 2.0", "[torch.randn(6, 12, 32)]",
           ("dense rows are all dense", "if x.stride(-1) == 1 and x.stride(-2) == x.shape[-1]:\n"
            "    x = x.as_strided(x.shape, (x.shape[1] * x.shape[2], x.shape[2], 1))\nreturn torch.tanh(x) * 2.0"),
           ("flat where it is dense", "y = torch.tanh(x.flatten() if x.is_contiguous() else x.reshape(-1))\n"
            "return y.mul_(2.0).view(x.shape)")),
    *_pair("images", "return torch.tanh(x) * 2.0", "[torch.randn(4, 3, 8, 10)]",
           ("channels taken for dense", "if x.stride(-1) == 1 and x.stride(-2) == x.shape[-1]:\n"
            "    x = x.as_strided(x.shape, (x.stride(0), 80, 10, 1))\nreturn torch.tanh(x) * 2.0"),
           ("a step for each axis", "y = torch.empty(x.shape)\nfor one, other in zip(x, y):\n"
            "    torch.tanh(one, out=other)\nreturn y.mul_(2.0)"), slow=True),
)  # fmt: skip

BEYOND: tuple[Program, ...] = (*WEIGHTS, *NUMBERS, *SMALL, *FORMULAS_BEYOND, *LAYOUTS)
