# SPDX-License-Identifier: Apache-2.0
"""Where the precision line lies: error ratios of honest orders of summation and of dishonest arithmetic, by operator.

    python benchmarks/precision_line.py [--seeds 20] [--only OPERATOR] [--out FILE]

Writes benchmarks/results/<machine>/precision_line.json: for each program the largest, over seeds and variants, of the
error ratio the judge computes (above 2 it is refused at the default contract), and for the dishonest ones also the
largest over the variants of one judgement, its smallest over seeds: what a cheat can hope for.
"""

from __future__ import annotations

import argparse
import json
import platform
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch

from kernelwright.judge.decoys import round_to_tf32
from kernelwright.judge.reference import Reference
from kernelwright.judge.rounding import SHORT
from kernelwright.judge.verify import Checker
from kernelwright.machine import fingerprint
from kernelwright.task import Case, Task

Sum = Callable[[torch.Tensor], torch.Tensor]
"""Sum along the last dimension, float32 to float32."""


def sequential(x: torch.Tensor) -> torch.Tensor:
    """One running sum."""
    if x.dtype in (torch.float32, torch.float64) and x.numel():  # the same, without an operator for each addend
        return torch.from_numpy(np.add.accumulate(x.numpy(), axis=-1)[..., -1].copy())
    total = torch.zeros_like(x[..., 0])
    for step in range(x.shape[-1]):
        total = total + x[..., step]
    return total


def blocked(lanes: int) -> Sum:
    """``lanes`` running sums, then a tree."""

    def add(x: torch.Tensor) -> torch.Tensor:
        short = -x.shape[-1] % lanes
        x = torch.nn.functional.pad(x, (0, short)).unflatten(-1, (-1, lanes))
        return pairwise(sequential(x.transpose(-1, -2)))

    return add


def pairwise(x: torch.Tensor) -> torch.Tensor:
    """A tree."""
    while x.shape[-1] > 1:
        x = torch.nn.functional.pad(x, (0, x.shape[-1] % 2))
        x = x[..., ::2] + x[..., 1::2]
    return x[..., 0]


def split(x: torch.Tensor) -> torch.Tensor:
    """Eight contiguous parts, each in 32 lanes, added up one after the other (split-K)."""
    parts = torch.nn.functional.pad(x, (0, -x.shape[-1] % 8)).unflatten(-1, (8, -1))
    return sequential(blocked(32)(parts))


def in_low(dtype: torch.dtype) -> Sum:
    """Addends and running sums (in 64 lanes) rounded to a lower precision: half-precision accumulation."""

    def add(x: torch.Tensor) -> torch.Tensor:
        return blocked(64)(x.to(dtype)).to(x.dtype)

    return add


def inputs_in(form: Callable[[torch.Tensor], torch.Tensor]) -> Sum:
    """Addends rounded, accumulated in float32: what tensor cores do."""
    return lambda x: blocked(64)(form(x))


def split_bf16(x: torch.Tensor, terms: int) -> torch.Tensor:
    """float32 as a sum of ``terms`` bfloat16 numbers; three keep all 24 bits, two keep 16."""
    total = torch.zeros_like(x)
    for _ in range(terms):
        total = total + (x - total).to(torch.bfloat16).to(x.dtype)
    return total


HONEST: dict[str, Sum] = {
    **{f"blocked {lanes}": blocked(lanes) for lanes in (8, 64, 256, 1024)},
    "pairwise": pairwise,
    "split": split,
    "bf16 in three terms": inputs_in(lambda x: split_bf16(x, 3)),
}
LINE: dict[str, Sum] = {"bf16 in two terms": inputs_in(lambda x: split_bf16(x, 2))}
"""Neither promised nor forbidden: the measurement says."""
DISHONEST: dict[str, Sum] = {
    "bf16 inputs": inputs_in(lambda x: x.to(torch.bfloat16).to(x.dtype)),
    "fp16 inputs": inputs_in(lambda x: x.to(torch.float16).to(x.dtype)),
    "tf32 inputs": inputs_in(round_to_tf32),
    "bf16 accumulation": in_low(torch.bfloat16),
    "fp16 accumulation": in_low(torch.float16),
}


def fast_exp(x: torch.Tensor) -> torch.Tensor:
    """2^(x log2 e), the product rounded to float32, the power good to 2 ulp: a GPU's fast exponential."""
    return torch.exp2(x * 1.4426950408889634).mul(1 + 2**-23)


def rough_exp(x: torch.Tensor) -> torch.Tensor:
    """Good to 2^-16."""
    return torch.exp(x) * (1 + 2**-16 * torch.sin(1e4 * x))


def op_sum(add: Sum, x: torch.Tensor) -> torch.Tensor:
    return add(x)


def op_mean(add: Sum, x: torch.Tensor) -> torch.Tensor:
    return add(x) / x.shape[-1]


def op_softmax(add: Sum, x: torch.Tensor) -> torch.Tensor:
    e = torch.exp(x - x.amax(-1, keepdim=True))
    return e / add(e).unsqueeze(-1)


def op_layernorm(add: Sum, x: torch.Tensor) -> torch.Tensor:
    d = x - (add(x) / x.shape[-1]).unsqueeze(-1)
    return d * torch.rsqrt((add(d * d) / x.shape[-1]).unsqueeze(-1) + 1e-5)


def op_rmsnorm(add: Sum, x: torch.Tensor) -> torch.Tensor:
    return x * torch.rsqrt((add(x * x) / x.shape[-1]).unsqueeze(-1) + 1e-6)


def op_matmul(add: Sum, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """Products in float32 too: harsher than a fused multiply-add."""
    return torch.stack([add(a * column) for column in b.t()], -1)


def low_matmul(form: Callable[[torch.Tensor], torch.Tensor]) -> Callable[..., torch.Tensor]:
    return lambda a, b: form(a) @ form(b)


def three_products(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """bf16 in two terms, three of the four products."""
    high_a, high_b = split_bf16(a, 1), split_bf16(b, 1)
    low_a, low_b = split_bf16(a - high_a, 1), split_bf16(b - high_b, 1)
    return high_a @ high_b + (high_a @ low_b + low_a @ high_b)


def task(name: str, forward: str, inputs: str) -> Task:
    source = (
        "import torch\nimport torch.nn.functional as F\n"
        f"class Model(torch.nn.Module):\n    def forward(self, *a):\n        x = a[0]\n        return {forward}\n"
        f"def get_inputs():\n    return {inputs}\ndef get_init_inputs():\n    return []\n"
    )
    return Task(name=name, form="kernelbench", reference=source, cases=(Case(name="main", timed=True),))


OPERATORS: dict[str, tuple[Callable[..., torch.Tensor], str, str]] = {
    "sum 16x4096 normal": (op_sum, "x.sum(-1)", "[torch.randn(16, 4096)]"),
    "sum 16x4096 positive": (op_sum, "x.sum(-1)", "[torch.rand(16, 4096)]"),
    "mean 1x16384 positive": (op_mean, "x.mean(-1)", "[torch.rand(1, 16384)]"),
    "mean 4x1024 positive": (op_mean, "x.mean(-1)", "[torch.rand(4, 1024)]"),
    "softmax 16x4096": (op_softmax, "x.softmax(-1)", "[torch.randn(16, 4096)]"),
    "layernorm 16x4096 positive": (op_layernorm, "F.layer_norm(x, (4096,))", "[torch.rand(16, 4096)]"),
    "layernorm 16x768": (op_layernorm, "F.layer_norm(x, (768,))", "[torch.randn(16, 768)]"),
    "layernorm 256x192": (op_layernorm, "F.layer_norm(x, (192,))", "[torch.randn(256, 192)]"),
    "softmax 256x192": (op_softmax, "x.softmax(-1)", "[torch.randn(256, 192)]"),
    "sum 256x192 positive": (op_sum, "x.sum(-1)", "[torch.rand(256, 192)]"),
    "sum 64x1024 positive": (op_sum, "x.sum(-1)", "[torch.rand(64, 1024)]"),
    "rmsnorm 16x4096": (op_rmsnorm, "F.rms_norm(x, (4096,), eps=1e-6)", "[torch.randn(16, 4096)]"),
    "matmul 16x4096x8 normal": (op_matmul, "x @ a[1]", "[torch.randn(16, 4096), torch.randn(4096, 8)]"),
    "matmul 16x1024x8 positive": (op_matmul, "x @ a[1]", "[torch.rand(16, 1024), torch.rand(1024, 8)]"),
}


def programs(name: str) -> dict[str, tuple[str, Callable[..., torch.Tensor]]]:
    """Program name to (side, program) for one operator."""
    op = OPERATORS[name][0]
    addends = int(name.split()[1].split("x")[1])
    side = "honest" if op is op_matmul or addends <= SHORT else "line"  # products: LONGEST_DOT is beyond them all
    found: dict[str, tuple[str, Callable[..., torch.Tensor]]] = {
        "sequential": (side, lambda *x: op(sequential, *x)),
    }
    for side, table in (("honest", HONEST), ("line", LINE), ("dishonest", DISHONEST)):
        for label, add in table.items():
            found[label] = side, (lambda *x, add=add: op(add, *x))
    if op is op_matmul:
        for label in [*DISHONEST, "bf16 in two terms", "bf16 in three terms"]:
            if "accumulation" not in label:
                del found[label]
        low = {
            "bf16 inputs": lambda x: x.to(torch.bfloat16).to(x.dtype),
            "fp16 inputs": lambda x: x.to(torch.float16).to(x.dtype),
            "tf32 inputs": round_to_tf32,
        }
        found |= {label: ("dishonest", low_matmul(form)) for label, form in low.items()}
        found["bf16 in three terms"] = "honest", low_matmul(lambda x: split_bf16(x, 3))
        found["bf16 in two terms, three products"] = "line", three_products
    if op is op_softmax:
        for label, exp in (("fast exponential", fast_exp), ("rough exponential 2^-16", rough_exp)):
            side = "line" if exp is fast_exp else "dishonest"

            def run(x: torch.Tensor, exp: Callable[[torch.Tensor], torch.Tensor] = exp) -> torch.Tensor:
                e = exp(x - x.amax(-1, keepdim=True))
                return e / pairwise(e).unsqueeze(-1)

            found[label] = side, run
    return found


def measure(name: str, seeds: range, only: str = "") -> list[dict[str, object]]:
    """One row per program (``only``: of this one)."""
    _, forward, draw = OPERATORS[name]
    tried = {label: found for label, found in programs(name).items() if only in ("", label)}
    instance = Reference(task(name, forward, draw), "cpu").instance(Case(name="main", timed=True))
    rows = {label: (side, [], {}) for label, (side, _) in tried.items()}
    for seed in seeds:
        checker = Checker(instance, seed=seed)
        worst: dict[str, float] = dict.fromkeys(rows, 0.0)
        for variant in instance.variants(seed):
            leaves = instance.draw(variant, 1000 + seed)
            for label, (_, run) in tried.items():
                got = run(*[leaf.clone() for leaf in leaves])
                ratio = checker.check(variant, leaves, None, [got], leaves).error_ratio
                worst[label] = max(worst[label], ratio)
                by = rows[label][2]
                by[variant.name] = max(by.get(variant.name, 0.0), ratio)
        for label, ratio in worst.items():
            rows[label][1].append(ratio)
    return [
        {
            "operator": name,
            "program": label,
            "side": side,
            "largest": max(found),
            "smallest": min(found),
            "refused": sum(ratio > 2 for ratio in found),
            "judgements": len(found),
            "by_variant": {key: float(f"{value:.4g}") for key, value in by.items()},
        }
        for label, (side, found, by) in rows.items()
    ]


def main() -> None:
    """Measure, print a table, write the file."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--out", type=Path, default=None)
    parser.add_argument("--only", default="")
    options = parser.parse_args()
    torch.set_num_threads(1)
    rows = []
    for name in OPERATORS:
        if options.only in name:
            rows += measure(name, range(options.seeds))
            for row in rows:
                if row["operator"] == name:
                    print(
                        f"{name:28} {row['side']:9} {row['program']:34} "
                        f"{row['smallest']:10.3g} {row['largest']:10.3g}  refused {row['refused']}/{row['judgements']}"
                    )
    versions = (("torch", torch.__version__), ("python", platform.python_version()))
    machine = fingerprint("cpu", platform.processor() or platform.machine(), versions)
    commit = subprocess.run(["git", "rev-parse", "HEAD"], capture_output=True, text=True, check=False).stdout.strip()
    out = options.out or Path(__file__).parent / "results" / machine / "precision_line.json"
    out.parent.mkdir(parents=True, exist_ok=True)
    record = {
        "command": " ".join(["python", *sys.argv]),
        "commit": commit,
        "machine": machine,
        "versions": dict(versions),
        "seeds": list(range(options.seeds)),
        "allowed": 2.0,
        "rows": rows,
    }
    out.write_text(json.dumps(record, indent=1) + "\n")


if __name__ == "__main__":
    main()
