# SPDX-License-Identifier: Apache-2.0
"""Small references whose shapes leave ragged ends, for every way the Triton kernels walk a tensor."""

_FORM = """
import torch
from torch import nn
import torch.nn.functional as F


class Model(nn.Module):
    def __init__(self{init}):
        super().__init__()
        {setup}

    def forward(self, {names}):
        {body}


def get_inputs():
    torch.manual_seed(1)
    return [{inputs}]


def get_init_inputs():
    return [{arguments}]
"""


def reference(body, *inputs, setup="pass", init="", arguments="", names="x"):
    """A reference source in KernelBench form."""
    return _FORM.format(body=body, inputs=", ".join(inputs), setup=setup, init=init, arguments=arguments, names=names)


CHAIN = reference("return torch.tanh(x) * 1.5 + F.gelu(x).exp()", "torch.randn(7, 61)")
BIAS = reference(
    "return F.silu(x + self.b) / (x.abs() + 2)",
    "torch.randn(5, 37)",
    setup="self.b = nn.Parameter(torch.randn(n))",
    init=", n",
    arguments="37",
)
RMS = reference(
    "return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6) * self.w",
    "torch.randn(5, 100)",
    setup="self.w = nn.Parameter(torch.rand(n) + 0.5)",
    init=", n",
    arguments="100",
)
SOFTMAX = reference("return torch.softmax(x, -1)", "torch.randn(5, 100)")
HOLES = reference(
    "return torch.softmax(x, -1)", "torch.where(torch.rand(5, 100) < 0.7, float('-inf'), torch.randn(5, 100))"
)
LAYER = reference(
    "h = x + y\n        return self.norm(h), h",
    "torch.randn(5, 100) + 30",
    "torch.randn(5, 100)",
    setup="self.norm = nn.LayerNorm(n)",
    init=", n",
    arguments="100",
    names="x, y",
)
LOSS = reference(
    "return F.cross_entropy(x, t)",
    "torch.randn(9, 70)",
    "torch.randint(0, 70, (9,))",
    names="x, t",
)
SQUARES = reference("return ((x - y) ** 2).mean()", "torch.randn(13, 77)", "torch.randn(13, 77)", names="x, y")
CHANNEL = reference("return x / (x.pow(2).mean(1, keepdim=True) + 1.0)", "torch.randn(3, 6, 5, 7)")
LARGEST = reference("return x.amax(-1), x - x.amax(-1, keepdim=True)", "torch.randn(5, 40)")
LINEAR = reference(
    "return F.relu(self.fc(x)) + x.mean()",
    "torch.randn(17, 24)",
    setup="self.fc = nn.Linear(24, 19)",
)
LINEAR_GELU = reference("return F.gelu(self.fc(x))", "torch.randn(17, 24)", setup="self.fc = nn.Linear(24, 19)")
PLAIN = reference("return x @ y", "torch.randn(17, 24)", "torch.randn(24, 21)", names="x, y")

ALONG = reference(
    "return torch.relu(x * self.w).sum(1) * self.w",
    "torch.randn(3, 11, 21)",
    setup="self.w = nn.Parameter(torch.randn(n))",
    init=", n",
    arguments="21",
)
COLUMNS = reference("return x.sum(0)", "torch.randn(100, 37)")
DOWN = reference("return torch.softmax(x, 0), x.var(0)", "torch.randn(100, 37)")
DEEP = reference("return torch.tanh(x @ y)", "torch.randn(70, 100) * 0.1", "torch.randn(100, 66)", names="x, y")
HALF_CHAIN = reference(
    "return F.gelu(x * self.w) + x",
    "torch.randn(7, 61).bfloat16()",
    setup="self.w = nn.Parameter(torch.rand(n).bfloat16())",
    init=", n",
    arguments="61",
)
HALF_SOFTMAX = reference("return torch.softmax(x, -1)", "torch.randn(5, 100).half()")
HALF_LAYER = reference(
    "h = x + y\n        return self.norm(h), h",
    "torch.randn(5, 100).bfloat16()",
    "torch.randn(5, 100).bfloat16()",
    setup="self.norm = nn.LayerNorm(n, dtype=torch.bfloat16)",
    init=", n",
    arguments="100",
    names="x, y",
)
CASTS = reference(
    "h = x.float()\n        return (h * torch.rsqrt(h.pow(2).mean(-1, keepdim=True) + 1e-6)).to(x.dtype) * 2",
    "torch.randn(5, 100).half()",
)
RUNNING = reference("return torch.cumsum(x * 2, 1) + 1", "torch.randn(5, 100)")
BACK = reference("return torch.cumsum(x.flip(1), 1).flip(1)", "torch.randn(5, 100)")
BEFORE = reference(
    "part = torch.cumsum(x.narrow(1, 0, x.size(1) - 1), 1)\n"
    "        return torch.cat((torch.zeros_like(x.select(1, 0).unsqueeze(1)), part), 1)",
    "torch.randn(5, 100)",
)
POWERS = reference("return torch.cumprod(x, 1)", "torch.rand(5, 100) + 0.5")
RUNNING_DOWN = reference("return torch.cumsum(x, 1)", "torch.randn(3, 100, 7)")
SHARE = reference("s = torch.cumsum(x.exp(), 1)\n        return s / s.amax(1, keepdim=True)", "torch.randn(5, 100)")
PLACE = reference("return torch.argmax(x, 1), torch.argmin(x, 1)", "torch.randn(5, 100).round()")
PLACE_DOWN = reference("return torch.argmax(x, 1)", "torch.randn(3, 300, 7).round()")
LARGEST_OF_BOXES = reference("return F.max_pool2d(x, 3, 2, 1, 2)", "torch.randn(2, 3, 17, 19)")
MEAN_OF_BOXES = reference("return torch.relu(F.avg_pool3d(x, (1, 2, 3), 2, (0, 1, 1)))", "torch.randn(2, 3, 7, 9, 11)")
MEAN_OF_MANY = reference("return F.avg_pool1d(x, 40, 3)", "torch.randn(2, 3, 90)")
FILTERS = reference(
    "return self.c(x)", "torch.randn(2, 3, 11, 13)", setup="self.c = nn.Conv2d(3, 6, (3, 2), 2, 1, groups=3)"
)
GROUPS = reference(
    "return torch.relu(self.n(F.silu(x)))", "torch.randn(3, 12, 7, 9) + 3", setup="self.n = nn.GroupNorm(4, 12)"
)
GROUPS_OF_VECTORS = reference("return self.n(x)", "torch.randn(5, 12)", setup="self.n = nn.GroupNorm(4, 12)")

BYTES = reference("return x ^ 85", "torch.arange(7 * 61).remainder(256).to(torch.uint8).view(7, 61)")
WRAPPED = reference(
    "return (x * 3 + y) // 7 - (x % 5), (x << 2) >> 3, -x.abs(), torch.where(x > y, x, ~y).clamp(-5, 100)",
    "torch.randint(-128, 128, (7, 61)).to(torch.int8)",
    "torch.randint(-128, 128, (7, 61)).to(torch.int8)",
    names="x, y",
)
WORDS = reference(
    "return x * 65539 // 10 + self.c, torch.fmod(x, 1000), torch.maximum(x, self.c), x.to(torch.uint8), x / 3",
    "torch.randint(-2**31, 2**31, (5, 37)).int()",
    setup="self.register_buffer('c', torch.arange(n, dtype=torch.int32) * 58031 - 10**6)",
    init=", n",
    arguments="37",
)
UNPACKED = reference("return (x.float() - 128) * self.s", "torch.arange(256).byte().view(4, 64)",
                     setup="self.s = nn.Parameter(torch.rand(4, 1))")  # fmt: skip
LONGS = reference("return (x ^ (x >> 33)) * 1181783497, x % 1000003 < 17", "torch.randint(-2**62, 2**62, (5, 100))")

DOUBLE = "torch.randn(5, 100, dtype=torch.float64)"
DOUBLE_CHAIN = reference("return torch.tanh(x) * 1.1 + F.gelu(x).exp() / (x.abs() + 0.3)", DOUBLE)
DOUBLE_SOFTMAX = reference("return torch.softmax(x * 3, -1), torch.logsumexp(x, -1)", DOUBLE)
DOUBLE_LAYER = reference(
    "h = x + y\n        return self.norm(h), h",
    f"{DOUBLE} + 30",
    DOUBLE,
    setup="self.norm = nn.LayerNorm(n, dtype=torch.float64)",
    init=", n",
    arguments="100",
    names="x, y",
)
DOUBLE_TOTAL = reference("return ((x - y) ** 2).mean(), x.sum(0)", DOUBLE, DOUBLE, names="x, y")
DOUBLE_RUNNING = reference("return torch.cumsum(x, 1), torch.argmax(x, 1)", DOUBLE)
DOUBLE_MIXED = reference(
    "return x.sum(-1, dtype=torch.float64) / 7, (x.double() * 0.1).sqrt().float(), torch.sigmoid(x).double() + y",
    "torch.rand(5, 100)",
    DOUBLE,
    names="x, y",
)

BATCHED = reference("return torch.bmm(x, y)", "torch.randn(3, 17, 24)", "torch.randn(3, 24, 21)", names="x, y")
SCORES = reference(
    "return torch.relu(x @ y.transpose(2, 3) * 0.125 + self.mask) * self.head",
    "torch.randn(2, 3, 17, 24)",
    "torch.randn(2, 3, 21, 24)",
    setup="self.mask, self.head = nn.Parameter(torch.randn(17, 21)), nn.Parameter(torch.randn(3, 1, 1))",
    names="x, y",
)
GATED = reference(
    "return torch.tanh(x @ y + self.bias) * z",
    "torch.randn(3, 17, 24)",
    "torch.randn(3, 24, 21)",
    "torch.randn(3, 17, 1)",
    setup="self.bias = nn.Parameter(torch.randn(21))",
    names="x, y, z",
)

TOKENS = reference(
    "return self.norm(self.words(i) * 1.5 + self.kinds(k) + self.places(p))",
    "torch.randint(0, 50, (3, 9))",
    "torch.randint(0, 2, (3, 9))",
    "torch.arange(9)",
    setup="self.words, self.kinds, self.places = nn.Embedding(50, 33), nn.Embedding(2, 33), nn.Embedding(9, 33)\n"
    "        self.norm = nn.LayerNorm(33)",
    names="i, k, p",
)
SELECTED = reference(
    "return torch.relu(self.w[i + 1]), self.w.index_select(0, i).amax(1)",
    "torch.randint(0, 48, (70,), dtype=torch.int32)",
    setup="self.w = nn.Parameter(torch.randn(50, 33))",
    names="i",
)
FROM_THE_END = reference(
    "return self.w[i] * 2", "torch.randint(-50, 50, (70,))", setup="self.w = nn.Parameter(torch.randn(50, 3, 4))",
    names="i",
)  # fmt: skip

BAGS = reference(
    "return self.norm(self.e(i).mean(1)), self.e(k).sum(-2)",
    "torch.randint(0, 50, (7, 41))",
    "torch.randint(0, 50, (3, 5, 9))",
    setup="self.e, self.norm = nn.Embedding(50, 33), nn.LayerNorm(33)",
    names="i, k",
)

SMALL_TERMS = {"BM": 64, "BN": 64, "BK": 32, "WARPS": 4, "STAGES": 2}
SHARED = {"BLOCK": 32, "WARPS": 1, "WAVES": 16}
SMALL_TILE = {"BM": 16, "BN": 16, "BK": 16, "WARPS": 4, "PRECISION": "ieee"}

CASES = {
    "flat": (CHAIN, "rowwise", {"BLOCK": 128}),
    "flat persistent": (CHAIN, "rowwise", {"BLOCK": 64, "WAVES": 1}),
    "tile": (BIAS, "rowwise", {"BLOCK": 16, "R": 2}),
    "rms rows": (RMS, "rowwise", {}),
    "rms several rows": (RMS, "rowwise", {"R": 2, "WAVES": 1}),
    "rms loop": (RMS, "looped", {"BLOCK": 32}),
    "softmax rows": (SOFTMAX, "rowwise", {}),
    "softmax loop": (SOFTMAX, "looped", {"BLOCK": 32, "R": 2}),
    "softmax with -inf, loop": (HOLES, "looped", {"BLOCK": 16}),
    "layer norm rows": (LAYER, "rowwise", {}),
    "layer norm loop": (LAYER, "looped", {"BLOCK": 32}),
    "cross entropy rows": (LOSS, "rowwise", {"R": 2, "WAVES": 1}),
    "cross entropy loop": (LOSS, "looped", {"BLOCK": 32}),
    "mean of squares": (SQUARES, "rowwise", {"BLOCK": 64, "WAVES": 2}),
    "channel": (CHANNEL, "rowwise", {"R": 16}),
    "along the rows of channels": (ALONG, "rowwise", {"R": 16}),
    "along the rows of channels, loop": (ALONG, "looped", {"R": 16, "BLOCK": 4}),
    "maximum": (LARGEST, "rowwise", {}),
    "linear": (LINEAR_GELU, "matmul", SMALL_TILE),
    "product": (PLAIN, "matmul", SMALL_TILE | {"CHUNK": 1}),
    "batched product": (BATCHED, "matmul", SMALL_TILE | {"CHUNK": 1}),
    "batched scores": (SCORES, "matmul", SMALL_TILE | {"CHUNK": 1}),
    "batched product by rows": (GATED, "matmul", SMALL_TILE),
    "tokens rows": (TOKENS, "rowwise", {"R": 2}),
    "tokens loop": (TOKENS, "looped", {"BLOCK": 16}),
    "selected rows": (SELECTED, "rowwise", {}),
    "bags rows": (BAGS, "rowwise", {"R": 2}),
    "bags loop": (BAGS, "looped", {"BLOCK": 16, "R": 2}),
    "indices from the end": (FROM_THE_END, "rowwise", {}),
    "terms": (LINEAR_GELU, "terms", SMALL_TERMS),
    "terms, copy engine": (PLAIN, "terms", SMALL_TERMS | {"BULK": True}),
    "terms, deep": (DEEP, "terms", SMALL_TERMS),
    "softmax, shared rows": (SOFTMAX, "split", SHARED),
    "softmax with -inf, shared rows": (HOLES, "split", SHARED),
    "rms, shared rows": (RMS, "split", SHARED),
    "layer norm, shared rows": (LAYER, "split", SHARED),
    "sum of columns, shared": (COLUMNS, "split", {"R": 16, "BLOCK": 16, "WARPS": 1, "WAVES": 16}),
    "channel, shared": (CHANNEL, "split", {"R": 16, "BLOCK": 2, "WARPS": 1, "WAVES": 64}),
    "softmax of columns, shared": (DOWN, "split", {"R": 16, "BLOCK": 16, "WARPS": 1, "WAVES": 16}),
    "layer norm loop, nothing early": (LAYER, "looped", {"BLOCK": 32, "EARLY": False}),
    "bfloat16 tile": (HALF_CHAIN, "rowwise", {}),
    "float16 softmax": (HALF_SOFTMAX, "rowwise", {}),
    "float16 softmax, shared rows": (HALF_SOFTMAX, "split", SHARED),
    "bfloat16 layer norm": (HALF_LAYER, "rowwise", {}),
    "bfloat16 layer norm loop": (HALF_LAYER, "looped", {"BLOCK": 32}),
    "written casts": (CASTS, "rowwise", {}),
    "running sum rows": (RUNNING, "rowwise", {"R": 2}),
    "running sum loop": (RUNNING, "looped", {"BLOCK": 16, "R": 2}),
    "running sum from the end, rows": (BACK, "rowwise", {}),
    "running sum from the end, loop": (BACK, "looped", {"BLOCK": 32}),
    "sum of those before, rows": (BEFORE, "rowwise", {}),
    "sum of those before, loop": (BEFORE, "looped", {"BLOCK": 16}),
    "running product rows": (POWERS, "rowwise", {}),
    "running product loop": (POWERS, "looped", {"BLOCK": 16}),
    "running sum of columns": (RUNNING_DOWN, "rowwise", {"R": 16}),
    "running sum of columns, loop": (RUNNING_DOWN, "looped", {"R": 16, "BLOCK": 16}),
    "running sum, twice": (SHARE, "looped", {"BLOCK": 16}),
    "places of extremes, rows": (PLACE, "rowwise", {}),
    "places of extremes, loop": (PLACE, "looped", {"BLOCK": 16}),
    "largest of boxes": (LARGEST_OF_BOXES, "windows", {"BLOCK": 64}),
    "mean of boxes": (MEAN_OF_BOXES, "rowwise", {}),
    "mean of boxes by torch": (MEAN_OF_BOXES, "rowwise", {"WINDOWS": False}),
    "mean of many": (MEAN_OF_MANY, "windows", {"BLOCK": 64}),
    "filters": (FILTERS, "windows", {"BLOCK": 64}),
    "groups rows": (GROUPS, "rowwise", {}),
    "groups loop": (GROUPS, "looped", {"BLOCK": 32}),
    "groups of vectors": (GROUPS_OF_VECTORS, "rowwise", {}),
    "bytes": (BYTES, "rowwise", {"BLOCK": 128}),
    "wrapped bytes": (WRAPPED, "rowwise", {"BLOCK": 64}),
    "words by columns": (WORDS, "rowwise", {"BLOCK": 16, "R": 2}),
    "bytes to floats": (UNPACKED, "rowwise", {}),
    "long words": (LONGS, "rowwise", {"WAVES": 1}),
    "float64 chain": (DOUBLE_CHAIN, "rowwise", {"BLOCK": 64}),
    "float64 softmax rows": (DOUBLE_SOFTMAX, "rowwise", {}),
    "float64 softmax loop": (DOUBLE_SOFTMAX, "looped", {"BLOCK": 32}),
    "float64 softmax, shared rows": (DOUBLE_SOFTMAX, "split", SHARED),
    "float64 layer norm rows": (DOUBLE_LAYER, "rowwise", {}),
    "float64 layer norm loop": (DOUBLE_LAYER, "looped", {"BLOCK": 32}),
    "float64 layer norm, shared rows": (DOUBLE_LAYER, "split", SHARED),
    "float64 total": (DOUBLE_TOTAL, "rowwise", {}),
    "float64 running sum loop": (DOUBLE_RUNNING, "looped", {"BLOCK": 32}),
    "float64 and float32": (DOUBLE_MIXED, "rowwise", {}),
    "places in columns, loop": (PLACE_DOWN, "looped", {"BLOCK": 16, "R": 16}),
}
DEVICE_CASES = {
    "terms in bfloat16": (LINEAR_GELU, "terms", SMALL_TERMS | {"TERMS": "bf16x6"}),
    "terms in bfloat16, copy engine": (DEEP, "terms", SMALL_TERMS | {"TERMS": "bf16x6", "BULK": True}),
    "terms by default": (DEEP, "terms", {}),
}
"""The interpreter multiplies bfloat16 bit patterns as if they were integers."""
