# SPDX-License-Identifier: Apache-2.0
"""The programs that ``gpu_templates.py`` times, and their sizes."""

import pathlib

from gpu_families import PROGRAMS

from kernelwright.task import Case, Task

ROOT = pathlib.Path(__file__).resolve().parent.parent

INLINE = {
    "log_softmax": """
import torch
from torch import nn

class Model(nn.Module):
    def forward(self, x):
        return torch.log_softmax(x, dim=-1)

def get_inputs(rows=1024, cols=4096):
    return [torch.randn(rows, cols)]

def get_init_inputs(rows=1024, cols=4096):
    return []
""",
    "copy_scale": """
import torch
from torch import nn

class Model(nn.Module):
    def forward(self, x):
        return x * 1.5 + 0.25

def get_inputs(rows=1024, cols=4096):
    return [torch.randn(rows, cols)]

def get_init_inputs(rows=1024, cols=4096):
    return []
""",
    "nll": """
import torch
from torch import nn
import torch.nn.functional as F

class Model(nn.Module):
    def forward(self, logits, target):
        return F.cross_entropy(logits, target)

def get_inputs(rows=1024, classes=8192):
    return [torch.randn(rows, classes), torch.randint(0, classes, (rows,))]

def get_init_inputs(rows=1024, classes=8192):
    return []
""",
    "channel_norm": """
import torch
from torch import nn

class Model(nn.Module):
    def forward(self, x):
        return x * torch.rsqrt(x.pow(2).mean(dim=1, keepdim=True) + 1e-6)

def get_inputs(batch=64, channels=64, side=256):
    return [torch.randn(batch, channels, side, side)]

def get_init_inputs(batch=64, channels=64, side=256):
    return []
""",
    "scale_rows": """
import torch
from torch import nn

class Model(nn.Module):
    def forward(self, v, x):
        return v.unsqueeze(-1) * x

def get_inputs(rows=2048, cols=2048):
    return [torch.randn(rows), torch.randn(rows, cols)]

def get_init_inputs(rows=2048, cols=2048):
    return []
""",
    "sum_first": """
import torch
from torch import nn

class Model(nn.Module):
    def __init__(self, inner, outer):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(outer, inner) / inner**0.5)

    def forward(self, x):
        return (x @ self.weight.sum(0).unsqueeze(-1)) * 1.5

def get_inputs(rows=1024, inner=8192, outer=8192):
    return [torch.randn(rows, inner)]

def get_init_inputs(rows=1024, inner=8192, outer=8192):
    return [inner, outer]
""",
    "sum_all": """
import torch
from torch import nn

class Model(nn.Module):
    def forward(self, x, y):
        return ((x - y) ** 2).mean()

def get_inputs(rows=1024, cols=4096):
    return [torch.randn(rows, cols), torch.randn(rows, cols)]

def get_init_inputs(rows=1024, cols=4096):
    return []
""",
}

_HALF = """
import torch
from torch import nn
import torch.nn.functional as F

class Model(nn.Module):
    def __init__(self, cols):
        super().__init__()
        self.weight = nn.Parameter((torch.rand(cols) + 0.5).bfloat16())

    def forward(self, x):
        return BODY

def get_inputs(rows=1024, cols=4096):
    return [torch.randn(rows, cols).bfloat16()]

def get_init_inputs(rows=1024, cols=4096):
    return [cols]
"""
INLINE |= {
    "softmax_bf16": _HALF.replace("BODY", "torch.softmax(x, -1)"),
    "rmsnorm_bf16": _HALF.replace("BODY", "F.rms_norm(x, (x.shape[-1],), self.weight, 1e-6)"),
    "layernorm_bf16": _HALF.replace("BODY", "F.layer_norm(x, (x.shape[-1],), self.weight)"),
    "gelu_bf16": _HALF.replace("BODY", "F.gelu(x * self.weight) + x"),
}

BIG = {"rows": 16384, "cols": 8192}
CASES = [
    ("copy_scale", BIG),
    ("gelu_chain", BIG),
    ("rmsnorm", BIG),
    ("layernorm_residual", BIG),
    ("softmax", BIG),
    ("log_softmax", BIG),
    ("cross_entropy", {"rows": 16384, "classes": 8192}),
    ("nll", {"rows": 16384, "classes": 8192}),
    ("sum_all", BIG),
    ("channel_norm", {"batch": 64, "channels": 64, "side": 256}),
    ("rmsnorm", {"rows": 4096, "cols": 8192}),
    ("rmsnorm", {"rows": 1024, "cols": 8192}),
    ("rmsnorm", {"rows": 524288, "cols": 256}),
    ("softmax", {"rows": 131072, "cols": 1000}),
    ("softmax", {"rows": 4096, "cols": 32768}),
    ("layernorm_residual", {"rows": 4096, "cols": 32768}),
    ("softmax", {"rows": 1024, "cols": 131072}),
    ("rmsnorm", {"rows": 1024, "cols": 131072}),
    ("softmax", {"rows": 32, "cols": 4194304}),
    ("rmsnorm", {"rows": 128, "cols": 1024}),
    ("linear_gelu", None),
    ("matmul_plain", None),
]
PRODUCTS = {"linear_gelu", "matmul_plain"}
SHIFTED = {*PRODUCTS, "mlp_block"}
"""Also checked on inputs that do not cancel: sums that truncate go wrong there."""


def source(name):
    """Reference text of a program."""
    return INLINE.get(name) or PROGRAMS.get(name) or (ROOT / "examples" / f"{name}.py").read_text()


def task_of(name, axes):
    """The program at one size, as a task."""
    case = Case(name="main", axes=tuple((axes or {}).items()), timed=True)
    return Task(name=name, form="kernelbench", reference=source(name), cases=(case,))


def task_axes(name):
    """Keyword names of a program's get_inputs."""
    scope = {}
    exec(source(name), scope)
    code = scope["get_inputs"].__code__
    return code.co_varnames[: code.co_argcount]
