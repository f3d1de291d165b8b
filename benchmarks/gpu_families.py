# SPDX-License-Identifier: Apache-2.0
"""Programs of the families of templates beyond rows and products, with sizes that fill a card.

    python benchmarks/gpu_templates.py --families --seconds 150 --out families.json

compiles, checks against float64 and times every one of them beside eager and torch.compile, in under three minutes.
"""

_FORM = """
import torch
from torch import nn
import torch.nn.functional as F

class Model(nn.Module):
    def __init__(self, {names}):
        super().__init__()
        {setup}

    def forward(self, {arguments}):
        {body}

def get_inputs({defaults}):
    return [{inputs}]

def get_init_inputs({defaults}):
    return [{names}]
"""


def program(body, inputs, setup="pass", arguments="x", **sizes):
    """A reference over sizes that the timed case may set."""
    defaults = ", ".join(f"{name}={size}" for name, size in sizes.items())
    return _FORM.format(
        names=", ".join(sizes), setup=setup, arguments=arguments, body=body, defaults=defaults, inputs=inputs
    )


_ROWS = {"rows": 64, "cols": 512}
_IMAGE = {"batch": 2, "channels": 16, "side": 32}
_MATRIX = "torch.randn(rows, cols)"
_IMAGES = "torch.randn(batch, channels, side, side)"
_VOLUMES = "torch.randn(batch, channels, side, side, side)"
_LINES = "torch.randn(rows, 64, cols)"
PROGRAMS = {
    "cumsum": program("return torch.cumsum(x, 1)", _MATRIX, **_ROWS),
    "cumsum_down": program("return torch.cumsum(x, 1)", "torch.randn(rows, cols, 512)", **_ROWS),
    "cumsum_back": program("return torch.cumsum(x.flip(1), 1).flip(1)", _MATRIX, **_ROWS),
    "cumsum_before": program(
        "return torch.cat((torch.zeros_like(x[:, :1]), torch.cumsum(x.narrow(1, 0, x.size(1) - 1), 1)), 1)",
        _MATRIX,
        **_ROWS,
    ),
    "cumsum_masked": program(
        "return torch.cumsum(x * m, 1)", f"{_MATRIX}, torch.rand(rows, cols) > 0.5", arguments="x, m", **_ROWS
    ),
    "cumprod": program("return torch.cumprod(x, 1)", "torch.rand(rows, cols) * 0.1 + 0.95", **_ROWS),
    "argmax": program("return torch.argmax(x, 1)", _MATRIX, **_ROWS),
    "argmin_down": program("return torch.argmin(x, 1)", "torch.randn(rows, cols, 512)", **_ROWS),
    "max_pool2d": program("return F.max_pool2d(x, 4, 1, 1)", _IMAGES, **_IMAGE),
    "max_pool3d": program("return F.max_pool3d(x, 3, 2, 1)", _VOLUMES, **_IMAGE),
    "avg_pool1d": program("return F.avg_pool1d(x, 8, 1, 4)", _LINES, **_ROWS),
    "avg_pool2d": program("return F.avg_pool2d(x, 11)", _IMAGES, **_IMAGE),
    "avg_pool3d": program("return F.avg_pool3d(x, 3, 2, 1)", _VOLUMES, **_IMAGE),
    "depthwise": program(
        "return self.c(x)", _IMAGES, "self.c = nn.Conv2d(channels, channels, 3, padding=1, groups=channels)", **_IMAGE
    ),
    "depthwise_pooled": program(
        "return torch.tanh(F.max_pool2d(F.silu(self.c(x)), 2))",
        _IMAGES,
        "self.c = nn.Conv2d(channels, channels, (3, 7), groups=channels)",
        **_IMAGE,
    ),
    "group_norm": program("return self.n(x)", _IMAGES, "self.n = nn.GroupNorm(8, channels)", **_IMAGE),
    "group_norm_chain": program(
        "return F.hardtanh(self.n(F.silu(x))).mean((1, 2, 3))", _IMAGES, "self.n = nn.GroupNorm(8, channels)", **_IMAGE
    ),
    "global_mean": program("return F.adaptive_avg_pool2d(F.gelu(x), 1)", _IMAGES, **_IMAGE),
}

_WIDE = {"rows": 16384, "cols": 8192}
_BIG = {"batch": 32, "channels": 64, "side": 256}
FAMILIES = [
    ("cumsum", _WIDE),
    ("cumsum_back", _WIDE),
    ("cumsum_before", _WIDE),
    ("cumsum_masked", _WIDE),
    ("cumprod", _WIDE),
    ("cumsum_down", {"rows": 64, "cols": 4096}),
    ("argmax", _WIDE),
    ("argmin_down", {"rows": 64, "cols": 4096}),
    ("group_norm", _BIG),
    ("group_norm_chain", _BIG),
    ("global_mean", _BIG),
    ("max_pool2d", _BIG),
    ("max_pool3d", {"batch": 8, "channels": 16, "side": 96}),
    ("avg_pool1d", {"rows": 64, "cols": 32768}),
    ("avg_pool2d", _BIG),
    ("avg_pool3d", {"batch": 8, "channels": 16, "side": 96}),
    ("depthwise", _BIG),
    ("depthwise_pooled", _BIG),
]
