# SPDX-License-Identifier: Apache-2.0
"""The small tasks of the corpus, one per kind of contract; every one is admitted unless its name says otherwise."""

from __future__ import annotations

import textwrap

from kernelwright.task import Case, Contract, Task

INIT: dict[str, str] = {}
"""Body of each reference's constructor: a candidate copies it to have the same state_dict."""
TASKS: dict[str, Task] = {}


def add(
    name: str,
    forward: str,
    inputs: str,
    *,
    args: str = "x",
    init: str = "",
    axes: tuple[tuple[str, int], ...] = (),
    contract: Contract | None = None,
    takes: str = "",
    given: str = "[]",
    head: str = "",
) -> None:
    """``takes``, ``given``: what the constructor takes, and what ``get_init_inputs`` returns for it."""
    body = textwrap.indent(textwrap.dedent(init).strip() or "pass", " " * 8)
    steps = textwrap.indent(textwrap.dedent(forward).strip(), " " * 8)
    keywords = ", ".join(f"{axis}={size}" for axis, size in axes)
    source = (
        "import torch\nimport torch.nn as nn\nimport torch.nn.functional as F\n\n\n"
        f"{head}class Model(nn.Module):\n    def __init__(self{takes and f', {takes}'}):\n"
        f"        super().__init__()\n{body}\n\n"
        f"    def forward(self, {args}):\n{steps}\n\n\n"
        f"def get_inputs({keywords}):\n    return {inputs}\n\n\ndef get_init_inputs():\n    return {given}\n"
    )
    assert name not in TASKS, f"two tasks are called {name}"
    INIT[name] = init
    cases = (Case(name="main", axes=axes, timed=True),)
    TASKS[name] = Task(name=name, form="kernelbench", reference=source, cases=cases, contract=contract or Contract())


add("pointwise", "return F.gelu(x * 1.7) + 0.5 * x", "[torch.randn(64, 256)]")
add("pointwise_free", "return F.gelu(x * 1.7) + 0.5 * x", "[torch.randn(64, 256)]",
     contract=Contract(free_strides=True))  # fmt: skip
add("matmul_free", "return a @ b", "[torch.randn(96, 128), torch.randn(128, 64)]", args="a, b",
     contract=Contract(free_strides=True))  # fmt: skip
add("positive", "return torch.relu(x) * 2.0", "[torch.rand(64, 64)]")
add("tiny_values", "return x * 1e-6", "[torch.randn(64, 64)]")
add(
    "row_norm",
    "return self.norm(x)",
    "[torch.randn(32, 128)]",
    init="self.norm = nn.LayerNorm(128)",
)
add("softmax", "return torch.softmax(x, dim=-1)", "[torch.randn(32, 192)]")
add("matmul", "return a @ b", "[torch.randn(96, 128), torch.randn(128, 64)]", args="a, b")
add(
    "linear",
    "return torch.relu(self.fc(x))",
    "[torch.randn(24, 64)]",
    init="self.fc = nn.Linear(64, 48)",
)
add("several", "return x + y, {'product': x * y, 'top': x.amax(-1)}", "[torch.randn(32, 64), torch.randn(32, 64)]",
     args="x, y")  # fmt: skip
add(
    "in_place",
    "total += x * 0.5\nreturn total",
    "[torch.randn(32, 64), torch.randn(32, 64)]",
    args="x, total",
    contract=Contract(mutates=(1,), aliases=((0, 1),), layouts=("contiguous",)),
)
add(
    "argmax",
    "return x.argmax(dim=-1)",
    "[torch.randn(64, 96)]",
    contract=Contract(index_outputs=((0, 0),)),
)
add("counts", "return (x * k) // 3 + x.sum(-1, keepdim=True)",
     "[torch.randint(-2**40, 2**40, (32, 48)), torch.randint(1, 9, (48,))]", args="x, k")  # fmt: skip
add("lookup", "return self.table(ids)", "[torch.randint(0, 200, (16, 12))]", args="ids",
     init="self.table = nn.Embedding(200, 32)")  # fmt: skip
add("loss", "return F.mse_loss(x, y)", "[torch.randn(64, 96), torch.randn(64, 96)]", args="x, y")
add("total", "return x.sum()", "[torch.rand(128, 512)]")
add("batch_norm", "return self.bn(x)", "[torch.randn(8, 12, 10, 10)]", init="self.bn = nn.BatchNorm2d(12)")
add("masked", "return x.masked_fill(mask, -1.0) * 3.0",
     "[torch.randn(32, 64), torch.rand(32, 64) < 0.3]", args="x, mask")  # fmt: skip
add("shapes", "return torch.tanh(x) + x.mean(-1, keepdim=True)", "[torch.randn(rows, columns)]",
     axes=(("rows", 32), ("columns", 64)))  # fmt: skip
add("half", "return (x @ x.T) * 0.1", "[torch.randn(48, 64).to(torch.bfloat16)]")
add("special", "return torch.maximum(x, torch.zeros(())) + x.abs().sqrt()", "[torch.randn(32, 64)]",
     contract=Contract(special_values=True))  # fmt: skip
add("dropout", "return F.dropout(x, 0.4, training=True)", "[torch.randn(64, 128)]", contract=Contract(random=True))
add("gradient", "return torch.sigmoid(self.fc(x))", "[torch.randn(16, 24).requires_grad_()]",
     init="self.fc = nn.Linear(24, 16)", contract=Contract(gradients=True))  # fmt: skip
add(
    "work",
    "for _ in range(6):\n    x = torch.sin(x) * 1.1 + torch.cos(x)\nreturn x",
    "[torch.randn(256, 768)]",
)
add("tiny_call", "return x * 2.0 + 1.0", "[torch.randn(8, 16)]")
add("row_weights", "return self.fc(x)", "[torch.randn(1, 1024)]", init="self.fc = nn.Linear(1024, 1024, bias=False)")
add("degenerate", "return torch.softmax(x, dim=1)", "[torch.randn(64, 1)]")
add("unread", "return x * 2.0 + (y - y)", "[torch.randn(16, 16), torch.randn(16, 16)]", args="x, y")
add("passing", "return x.clone(), x.sum(-1)", "[torch.randn(256, 512)]")
add("repeated", "return x.mean(-1, keepdim=True).repeat(1, 512)", "[torch.randn(256, 512)]")
add("turned", "return (x * 2.0).t().contiguous()", "[torch.randn(512, 384)]")
add("large", "return x * 2.0 + 1.0", "[torch.randn(1024, 4096)]")
add("big_softmax", "return torch.softmax(x, dim=-1)", "[torch.randn(rows, columns)]",
     axes=(("rows", 1024), ("columns", 2048)))  # fmt: skip
add("normalise", "return F.normalize(x, dim=-1)", "[torch.randn(64, 96)]")
add("masked_mean", "return (x * m).sum(-1) / m.sum(-1).clamp(min=1)",
     "[torch.randn(64, 96), torch.rand(64, 96) < 0.5]", args="x, m")  # fmt: skip
add("top", "return x.topk(4, dim=-1)[1]", "[torch.randn(64, 96)]", contract=Contract(index_outputs=((0, 0),)))
add("moments", "return F.layer_norm(x, (256,))", "[torch.randn(64, 256)]")
add("backward", "return torch.relu(self.fc(x))", "[torch.randn(64, 96).requires_grad_()]",
     init="self.fc = nn.Linear(96, 96)", contract=Contract(gradients=True))  # fmt: skip
add("train_norm", "return self.bn(x)", "[torch.randn(16, 12, 10, 10)]", init="self.bn = nn.BatchNorm2d(12)",
     contract=Contract(training=True))  # fmt: skip
add("counted", "n += x.ne(0).sum(-1)\nreturn x * 2.0", "[torch.randn(32, 64), torch.zeros(32, dtype=torch.int64)]",
     args="x, n", contract=Contract(mutates=(1,), layouts=("contiguous",)))  # fmt: skip
add("cast", "return torch.relu(self.fc(x))", "[torch.randn(24, 64)]", init="self.fc = nn.Linear(64, 48)",
     contract=Contract(autocast=True))  # fmt: skip
add("drop_rows", "return F.dropout(x, 0.5, training=True)", "[torch.randn(256, 128)]",
     contract=Contract(random=True))  # fmt: skip
add("variance", "return x.var(-1, unbiased=False)", "[torch.randn(128, 256)]")
add("groups", "return self.norm(x)", "[torch.randn(6, 16, 12, 12)]", init="self.norm = nn.GroupNorm(4, 16)")
add("lower", "return torch.tril(x)", "[torch.randn(192, 192)]")
add(
    "moving",
    "y = x\nfor _ in range(6):\n    y = torch.sin(y) * 1.1 + torch.cos(y)\nstate.copy_(y)\nreturn x.sum(-1)",
    "[torch.randn(256, 768), torch.randn(256, 768)]",
    args="x, state",
    contract=Contract(mutates=(1,), layouts=("contiguous",)),
)
add("many_rows", "for _ in range(6):\n    x = torch.sin(x) * 1.1 + torch.cos(x)\nreturn x.unbind(0)",
     "[torch.randn(160, 160)]")  # fmt: skip
add("attention", "return torch.softmax(q @ k.transpose(-1, -2) / 8.0, -1) @ v",
     "[torch.randn(2, 4, 48, 64), torch.randn(2, 4, 48, 64), torch.randn(2, 4, 48, 64)]", args="q, k, v")  # fmt: skip
add("observed", "self.seen += torch.histc(x, 64, -4.0, 4.0)\nreturn x * 2.0", "[torch.randn(256, 512)]",
     init="self.register_buffer('seen', torch.zeros(64))", contract=Contract(training=True))  # fmt: skip
add("clamped", "return torch.clamp(a @ b, -2000.0, 2000.0).sum(-1)",
     "[torch.randn(rows, 4096), torch.randn(4096, 2400)]", args="a, b", axes=(("rows", 2400),))  # fmt: skip
add("alike", "return (x * 2.0).sum(0, keepdim=True).repeat(2048, 1)", "[torch.randn(8, 4096)]")
add("frozen_norm", "return self.bn(x)", "[torch.randn(64, 32, 16, 16)]", init="self.bn = nn.BatchNorm2d(32)",
     contract=Contract(training=True, frozen_parameters=True))  # fmt: skip
add("watched", "self.seen += torch.histc(x, 64, -4.0, 4.0)\nreturn x * 2.0", "[torch.randn(1024, 2048)]",
     init="self.register_buffer('seen', torch.zeros(64))", contract=Contract(training=True))  # fmt: skip
add("weighted", "return torch.relu(x) * self.w", "[torch.rand(256, 512)]",
     init="self.w = nn.Parameter(torch.randn(512))")  # fmt: skip
add("long_squares", "return x.square().sum(-1)", "[torch.randn(16, 6144)]")
add("products", "return (a.to(torch.int32)[:, None, :] * b.to(torch.int32)[None]).sum(-1, dtype=torch.int32)",
     "[torch.randint(-128, 128, (24, 96), dtype=torch.int8), torch.randint(-128, 128, (16, 96), dtype=torch.int8)]",
     args="a, b")  # fmt: skip
add("ties", "return x.argmax(-1)", "[torch.randint(0, 9, (512, 256)).float()]",
     contract=Contract(index_outputs=((0, 0),)))  # fmt: skip
add("steps", "return torch.round(x / 0.1).clamp(-127, 127).to(torch.int8)", "[torch.randn(512, 512)]")
add("halves", "return torch.round(x / 0.1).clamp(-127, 127).to(torch.int8)",
     "[torch.randint(-200, 201, (512, 512)) / 20.0]")  # fmt: skip
add("log_softmax", "return torch.log(torch.softmax(x, -1))", "[torch.randn(64, 192) * 60.0]")
add("long_rows", "return torch.logsumexp(x, -1)", "[torch.randn(2000, 1000)]")
add("tops", "return x.argmax(-1)", "[torch.randn(128, 2048).exp().sqrt()]",
     contract=Contract(index_outputs=((0, 0),)))  # fmt: skip
add("ordered", "return x.argsort(-1)", "[torch.linalg.qr(torch.randn(192, 192))[0] + 2.0]",
     contract=Contract(index_outputs=((0, 0),)))  # fmt: skip
add("twice", "y = torch.tanh(x)\nreturn y, y.clone(), y[-1].clone()", "[torch.randn(256, 512)]")
add("mixed_sum", "return x + 2.0 * y", "[torch.randn(64, 96), torch.randn(64, 96)]", args="x, y")
add("cast_positive", "return torch.relu(x) @ y", "[torch.rand(48, 64), torch.randn(64, 32)]", args="x, y",
     contract=Contract(autocast=True))  # fmt: skip
add("exponential", "return torch.exp(x)", "[torch.randn(256, 512) * 3.0]")
add("folded", "return x @ torch.softmax(self.w, -1) + torch.sigmoid(self.b)", "[torch.randn(4, 256)]",
     init="self.w = nn.Parameter(torch.randn(256, 256))\nself.b = nn.Parameter(torch.randn(256))")  # fmt: skip
add("flags", "return x > y", "[torch.randn(64, 128), torch.randn(64, 128)]", args="x, y")
add("gated", "return torch.tanh(x @ w) * y", "[torch.randn(32, 64), torch.randn(64, 48), torch.randn(32, 48)]",
     args="x, w, y")  # fmt: skip
add("tally", "return torch.bincount(x, minlength=64)", "[torch.randint(0, 64, (4096,))]")
add("gathered", "return torch.zeros(64, 32).index_add(0, i, x)",
     "[torch.randint(0, 64, (256,)), torch.randn(256, 32)]", args="i, x")  # fmt: skip
add("positions", "return x + self.table[at]", "[torch.randn(8, 32, 64), torch.arange(32)]", args="x, at",
     init="self.table = nn.Parameter(torch.randn(64, 64))")  # fmt: skip
add("causal", "return torch.softmax(q @ k.transpose(-1, -2) / 32**0.5 + mask, -1) @ v",
     "[*torch.randn(3, 2, 4, 48, 32).unbind(), torch.full((48, 48), float('-inf')).triu(1)]",
     args="q, k, v, mask")  # fmt: skip
add("larger", "return torch.maximum(x, y)", "[torch.randn(32, 66), torch.randn(32, 66)]", args="x, y",
     contract=Contract(special_values=True))  # fmt: skip
add("drop_pair", "m = torch.rand_like(x) < 0.5\nreturn x * m * 2.0, m", "[torch.randn(128, 64)]",
     contract=Contract(random=True))  # fmt: skip
add("drop_gradient", "return F.dropout(x, 0.5, training=True)", "[torch.randn(128, 64).requires_grad_()]",
     contract=Contract(random=True, gradients=True))  # fmt: skip
add("drop_softmax", "return F.dropout(torch.softmax(x, -1), 0.5, training=True)", "[torch.randn(64, 128)]",
     contract=Contract(random=True))  # fmt: skip
add("drop_relu", "return F.dropout(F.relu(x), 0.25, training=True)", "[torch.randn(64, 64).requires_grad_()]",
     contract=Contract(random=True, gradients=True))  # fmt: skip
