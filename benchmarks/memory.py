# SPDX-License-Identifier: Apache-2.0
"""Predicted against measured peak memory of 20 modules, forward and with gradients.

python benchmarks/memory.py cpu|cuda OUT.json
On CUDA the measure is the allocator's peak; on a CPU the growth of the resident set of a fresh process.
"""

import json
import os
import statistics
import subprocess
import sys
import time

import torch
from torch import nn

from kernelwright.limits.memory import memory


class Residual(nn.Module):
    """Two convolutions and a sum."""

    def __init__(self, width):
        super().__init__()
        self.one, self.two = nn.Conv2d(width, width, 3, padding=1), nn.Conv2d(width, width, 3, padding=1)
        self.norm = nn.BatchNorm2d(width)

    def forward(self, x):
        """The block."""
        return torch.relu(x + self.two(torch.relu(self.norm(self.one(x)))))


class Attention(nn.Module):
    """Written out, so that the scores exist."""

    def __init__(self, width, heads):
        super().__init__()
        self.qkv, self.out, self.heads = nn.Linear(width, 3 * width), nn.Linear(width, width), heads

    def forward(self, x):
        """Self-attention."""
        b, t, c = x.shape
        q, k, v = (part.view(b, t, self.heads, -1).transpose(1, 2) for part in self.qkv(x).chunk(3, -1))
        weights = torch.softmax(q @ k.transpose(-2, -1) / (c // self.heads) ** 0.5, -1)
        return self.out((weights @ v).transpose(1, 2).reshape(b, t, c))


class Sums(nn.Module):
    """Softmax of a product with a broadcast bias."""

    def forward(self, x, y):
        """Elementwise chain."""
        return torch.softmax(x * y + x.exp(), -1).sum(-1)


def mlp(width, depth):
    """Linear and GELU, several times."""
    return nn.Sequential(*[part for _ in range(depth) for part in (nn.Linear(width, width), nn.GELU())])


def modules():
    """(name, module, inputs, gradients)."""
    r = torch.randn
    return [
        ("mlp", mlp(2048, 4), (r(4096, 2048),), False),
        ("mlp backward", mlp(2048, 4), (r(4096, 2048),), True),
        ("mlp wide", mlp(4096, 2), (r(2048, 4096),), False),
        ("softmax chain", Sums(), (r(4096, 4096), r(4096, 4096)), False),
        ("layer norm", nn.LayerNorm(4096), (r(8192, 4096),), False),
        ("layer norm backward", nn.LayerNorm(4096), (r(8192, 4096),), True),
        ("rms norm", nn.RMSNorm(4096), (r(8192, 4096),), False),
        ("attention", Attention(512, 8), (r(4, 512, 512),), False),
        ("attention backward", Attention(512, 8), (r(4, 512, 512),), True),
        ("embedding", nn.Embedding(50000, 512), (torch.randint(0, 50000, (32, 1024)),), False),
        ("gelu", nn.GELU(), (r(8192, 4096),), False),
        ("batch norm", nn.BatchNorm2d(64).eval(), (r(32, 64, 112, 112),), False),
        ("pooling", nn.MaxPool2d(2), (r(32, 64, 112, 112),), False),
        ("average pooling", nn.AvgPool2d(3, 2), (r(32, 64, 112, 112),), False),
        ("convolution", nn.Conv2d(64, 128, 3, padding=1), (r(16, 64, 96, 96),), False),
        ("residual", Residual(64).eval(), (r(16, 64, 96, 96),), False),
        ("residual backward", Residual(64), (r(8, 64, 96, 96),), True),
        ("upsampling", nn.Upsample(scale_factor=2, mode="bilinear"), (r(8, 64, 96, 96),), False),
        ("gated", nn.GLU(), (r(8192, 4096),), False),
        ("encoder layer", nn.TransformerEncoderLayer(512, 8, 2048, batch_first=True), (r(8, 512, 512),), True),
    ]


def once(module, inputs, gradients):
    """One call, and its backward pass."""
    with torch.set_grad_enabled(gradients):
        result = module(*inputs)
        if gradients:
            result = torch.autograd.grad(result, list(module.parameters()), torch.ones_like(result))
    return result


def on_cuda(module, inputs, gradients):
    """Peak bytes of the allocator, with weights and inputs."""
    before = torch.cuda.memory_allocated()
    module, inputs = module.cuda(), tuple(t.cuda() for t in inputs)
    torch.cuda.reset_peak_memory_stats()
    once(module, inputs, gradients)
    torch.cuda.synchronize()
    return torch.cuda.max_memory_allocated() - before


def resident(field):
    """Kilobytes of this process by that name, in bytes."""
    with open("/proc/self/status", encoding="ascii") as file:
        return next(int(line.split()[1]) * 1024 for line in file if line.startswith(field))


def on_cpu(index):
    """Growth of the resident set from before the module existed to its peak, in a fresh process."""
    code = f"import benchmarks.memory as m; m.child({index})"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env={
        **os.environ, "MALLOC_MMAP_THRESHOLD_": "65536", "OMP_NUM_THREADS": "2"})  # fmt: skip
    return json.loads(done.stdout.splitlines()[-1])


def child(index):
    """Runs in a process of its own: prints the growth."""
    small = torch.randn(64, 64)
    for one in (small @ small, torch.softmax(small, 1), nn.Conv2d(1, 1, 3)(small[None, None])):
        one.sum()
    before = resident("VmRSS:")
    _, module, inputs, gradients = modules_at(index)
    kept = resident("VmRSS:")
    with open("/proc/self/clear_refs", "w", encoding="ascii") as file:
        file.write("5")
    result = once(module, inputs, gradients)
    print(json.dumps({"peak": resident("VmHWM:") - before, "start": kept - before, "leaves": len(result)}))


def modules_at(index):
    """Only the wanted row is built."""
    return modules()[index]


def main():
    """Measure, print, write."""
    kind, out = sys.argv[1], sys.argv[2]
    rows = []
    if kind == "cuda":  # what libraries keep for themselves is there before the first module
        small = torch.randn(256, 256, device="cuda")
        nn.Linear(256, 256).cuda()(small).sum().backward()
        (small @ small).sum().item()
    for index, (name, module, inputs, gradients) in enumerate(modules()):
        predicted = memory(module, inputs, gradients=gradients, device=kind, warm=True)
        if kind == "cuda":
            for one in [t for t in module.parameters()]:
                one.grad = None
            torch.cuda.empty_cache()
            measured = on_cuda(module, inputs, gradients)
            module.cpu()
        else:
            found = on_cpu(index)
            # what all 20 modules hold cancels: growth from the held state, plus this module's own tensors
            measured = found["peak"] - found["start"] + predicted.weights + predicted.inputs
        error = predicted.peak / measured - 1
        rows.append({"name": name, "predicted": predicted.peak, "measured": measured, "error": error})
        print(f"{name:22} {predicted.peak / 2**20:9.1f} MiB predicted {measured / 2**20:9.1f} measured {error:+.1%}")
    errors = [abs(row["error"]) for row in rows]
    print(f"median error {statistics.median(errors):.1%}, worst {max(errors):.1%}, {len(rows)} modules")
    result = {
        "command": ["python", "benchmarks/memory.py", kind], "torch": torch.__version__, "when": time.time(),
        "median_error": statistics.median(errors), "worst_error": max(errors), "rows": rows,
    }  # fmt: skip
    if kind == "cuda":
        result["device"] = torch.cuda.get_device_name()
    with open(out, "w", encoding="ascii") as file:
        json.dump(result, file, indent=1)


if __name__ == "__main__":
    main()
