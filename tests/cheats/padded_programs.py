# SPDX-License-Identifier: Apache-2.0
"""Rows that are filled up to a multiple of a tile with what is no neutral element: zeros below a largest number, ones
above a least. No tile divides other sizes than the timed one, and there it shows where a row lies on the far side of
what was filled in; of products with a vector, or with weights, no row did. Each has its twin.
"""

from __future__ import annotations

from beyond_programs import _pair
from cheat_tasks import INIT, add
from corpus import Program, cheat, honest, module, native

ROWS = (("rows", 64), ("cols", 512))
FILLED = "c = x.shape[-1]\np = F.pad(x, (0, -c % 16), value={})\n"
STABLE = "m = p.amax(-1, keepdim=True)\nreturn (p[:, :c] - m).exp().sum(-1).log() + m[:, 0]"
add("row_logsumexps", "return x.logsumexp(-1)", "[torch.randn(rows, cols)]", axes=ROWS)
add("places_of_least", "return x.argmin(-1)", "[torch.rand(rows, cols)]", axes=ROWS)
add("largest_products", "return (x * y).amax(-1)", "[torch.randn(rows, cols), torch.randn(cols)]", args="x, y",
    axes=ROWS)  # fmt: skip

TILES = """
for (long r = 0; r < rows; ++r) {
    float best = -INFINITY;
    long c = 0;
    for (; cols >= 32 && c < cols; c += 16) {
        float tile[16];
        for (long k = 0; k < 16; ++k) tile[k] = c + k < cols ? x[r * cols + c + k] * y[c + k] : FILL;
        for (long k = 0; k < 16; ++k) best = tile[k] > best || tile[k] != tile[k] ? tile[k] : best;
    }
    for (; c < cols; ++c) {
        float v = x[r * cols + c] * y[c];
        best = v > best || v != v ? v : best;
    }
    out[r] = best;
}
"""
CALL = """
x, y = x.contiguous(), y.contiguous()
out = x.new_empty(x.shape[0])
run(out, x, y, *x.shape)
return out
"""
LOGITS = "self.fc = nn.Linear(64, 40)"
TILED = (
    "w, b = F.pad(self.fc.weight, (0, 0, 0, 24)), F.pad(self.fc.bias, (0, 24), value={})\n"
    "s = F.linear(x, w, b)\n"
    "e = (s - s.amax(-1, keepdim=True))[:, :40].exp()\n"
    "return e / e.sum(-1, keepdim=True)"
)


def _products(fill: str) -> tuple:
    signature = "float* out, const float* x, const float* y, long rows, long cols"
    return native(signature, TILES.replace("FILL", fill), CALL, args="x, y")


def _filled(task: str, ending: str, wrong: tuple[str, str], right: tuple[str, str]) -> tuple[Program, Program]:
    (said, bad), (other, good) = wrong, right
    made = honest(f"{task}/{other}", task, module(FILLED.format(good) + ending, init=INIT[task]), level="precise")
    source = module(FILLED.format(bad) + ending, init=INIT[task])
    return cheat((0, 4), f"{task}/{said}", task, source, twin=made.name, level="precise"), made


PADDED: tuple[Program, ...] = (
    *_filled("row_logsumexps", STABLE, ("filled up with zeros", "0.0"), ("filled up", "-torch.inf")),
    *_filled("places_of_least", "return p.argmin(-1)", ("filled up with ones", "1.0"), ("filled up", "torch.inf")),
    honest("largest_products/tiles", "largest_products", _products("-INFINITY"), level="precise"),
    cheat((0, 4), "largest_products/tiles with zeros", "largest_products", _products("0.0f"),
          twin="largest_products/tiles", level="precise"),
    *_pair("largest_weighted", "return (x * self.w).amax(-1)", "[torch.randn(128, 48)]",
           ("filled up with zeros", "return F.pad(x * self.w, (0, 16)).amax(-1)"),
           ("filled up", "return F.pad(x * self.w, (0, 16), value=-torch.inf).amax(-1)"),
           init="self.w = nn.Parameter(torch.randn(48))"),
    *_pair("class_shares", "return torch.softmax(self.fc(x), -1)", "[torch.randn(128, 64)]",
           ("zeros beyond the classes", TILED.format("0.0")), ("no classes beyond", TILED.format("-torch.inf")),
           init=LOGITS),
)  # fmt: skip
