# SPDX-License-Identifier: Apache-2.0
"""Programs that leave out what only masks with empty columns, images or steps ask for, or that differ in ties of a
finer grid than halves, or at minus zero, or in what they leave in buffers, or have another epsilon, or fold
twelve weights and look at eleven. Each has its honest twin.
"""

from __future__ import annotations

from beyond_programs import _pair
from cheat_tasks import add
from corpus import Program, cheat, honest, module

from kernelwright.task import Contract

SUMS = "return (x * m).sum(1) / m.sum(1){}"
IMAGES = "return (x * m[:, None]).sum((2, 3)) / m.sum((1, 2)){}[:, None]"
COUNTS = "return (x * m[..., None]).sum(1) / m.sum(1, keepdim=True){}"

MASKS = (
    *_pair("step_mask", SUMS.format(".clamp(min=1)"), "[torch.randn(8, 32, 16), torch.rand(8, 32, 1) < 0.5]",
           ("none is empty", SUMS.format("")),
           ("a product", "f = m.float()\nreturn (f.mT @ x)[:, 0] / f.sum(1).clamp(min=1)"), args="x, m"),
    *_pair("image_mask", IMAGES.format(".clamp(min=1)"), "[torch.randn(8, 4, 16, 16), torch.rand(8, 16, 16) < 0.5]",
           ("none is empty", IMAGES.format("")),
           ("flat", "f = m.float().flatten(1)[..., None]\n"
            "return (x.flatten(2) @ f)[..., 0] / f.sum(1).clamp(min=1)"), args="x, m", slow=True),
    *_pair("wanted_columns", "return x * m.any(0)", "[torch.randn(64, 96), torch.rand(64, 96) < 0.5]",
           ("all of them", "return x * 1.0"), ("counted", "return torch.where(m.sum(0) > 0, x, 0.0)"), args="x, m",
           slow=True),
    *_pair("mask_of_numbers", COUNTS.format(".clamp(min=1)"), "[torch.randn(8, 256, 8), torch.randint(0, 2, (8, 256))]",
           ("none is empty", COUNTS.format("")),
           ("a product", "f = m.float()\nreturn (f[:, None] @ x)[:, 0] / f.sum(1, keepdim=True).clamp(min=1)"),
           args="x, m"),
)  # fmt: skip

FINE = (
    *_pair("sixteenths", "return torch.round(x * 16.0) / 16.0", "[torch.randn(64, 96)]",
           ("ties go up", "return torch.floor(x * 16.0 + 0.5) / 16.0"),
           ("by a factor", "return torch.round(x * 16.0) * 0.0625")),
    *_pair("sign_of_another", "return torch.copysign(y, x)", "[torch.randn(64, 96), torch.randn(64, 96)]",
           ("minus zero is none", "return torch.where(x < 0, -y.abs(), y.abs())"),
           ("by its bit", "return torch.where(torch.signbit(x), -y.abs(), y.abs())"), args="x, y"),
    *_pair("directions_of_two", "return torch.atan2(y, x)", "[torch.randn(64, 96), torch.randn(64, 96)]",
           ("minus zero is none", "return torch.atan2(y + 0.0, x + 0.0)"),
           ("of an angle", "return torch.angle(torch.complex(x, y))"), args="y, x", slow=True),
)  # fmt: skip

LARGEST = "self.top.copy_(torch.maximum(self.top, x{}.amax()))\nreturn x * 2.0"
TRAINED = Contract(training=True)
NORM = """
b = self.bn
with torch.no_grad():
    b.running_mean.mul_(0.9).add_(x.mean((0, 2, 3)), alpha=0.1)
    b.running_var.mul_(0.9).add_(x.var((0, 2, 3){}), alpha=0.1)
    b.num_batches_tracked += 1
return F.batch_norm(x, None, None, b.weight, b.bias, True, 0.1, 1e-5)
"""
add("many_images", "return self.bn(x)", "[torch.randn(images, 2, 64, 64)]", init="self.bn = nn.BatchNorm2d(2)",
    axes=(("images", 64),), contract=TRAINED)  # fmt: skip
LEFT = (
    *_pair("largest_seen", LARGEST.format(".abs()"), "[torch.rand(64, 96)]",
           ("no absolute values", LARGEST.format("")),
           ("by both ends", "low, high = torch.aminmax(x)\n"
            "self.top.copy_(torch.stack([self.top, -low, high]).amax())\nreturn x + x"),
           init="self.register_buffer('top', torch.zeros(()))", contract=TRAINED),
    *_pair("many_images", "", "",
           ("a variance by n", NORM.format(", unbiased=False")), ("a variance by n - 1", NORM.format("")), slow=True),
)  # fmt: skip

EPSILONS = (
    *_pair("cosine", "return F.cosine_similarity(x, y, dim=-1)", "[torch.randn(64, 48), torch.randn(64, 48)]",
           ("of the product of lengths", "return (x * y).sum(-1) / (x.norm(dim=-1) * y.norm(dim=-1)).clamp(min=1e-8)"),
           ("of each length",
            "return (x * y).sum(-1) / (x.norm(dim=-1).clamp(min=1e-8) * y.norm(dim=-1).clamp(min=1e-8))"), args="x, y"),
    *_pair("normalise", "", "",
           ("added to the square", "return x * (x.square().sum(-1, keepdim=True) + 1e-12).rsqrt()"),
           ("squared", "return x * x.square().sum(-1, keepdim=True).clamp(min=1e-24).rsqrt()"), slow=True),
)  # fmt: skip

LAYERS = """
self.w = nn.ParameterList([torch.randn(24, 24) / 5 for _ in range(6)])
self.b = nn.ParameterList([torch.randn(24) / 5 for _ in range(6)])
self.seen = None
"""
FOLDS = """
key = {}
if self.seen is None or not all(map(torch.equal, key, self.seen)):
    self.seen = [p.detach().clone() for p in key]
    self.made = [(w.detach().clone(), b.detach().clone()) for w, b in zip(self.w, self.b)]
for w, b in self.made:
    x = torch.tanh(x @ w + b)
return x
"""
FOLDED = _pair(
    "six_layers", "for w, b in zip(self.w, self.b):\n    x = torch.tanh(x @ w + b)\nreturn x", "[torch.randn(16, 24)]",
    ("looks at all but one", FOLDS.format("[*self.w, *self.b[:3], *self.b[4:]]")),
    ("looks at all", FOLDS.format("[*self.w, *self.b]")), init=LAYERS, slow=True)  # fmt: skip

add("shuffled", "return x[torch.randperm(256)]", "[torch.randn(256, 8)]", contract=Contract(random=True))
SHUFFLED = (
    cheat(33, "shuffled/turned", "shuffled", module("return x.roll(int(torch.randint(256, ())), 0)"),
          twin="shuffled/sorted by chance", level="precise", slow=True),
    honest("shuffled/sorted by chance", "shuffled", module("return x[torch.rand(256).argsort()]"), level="precise"),
)  # fmt: skip

STRAYS: tuple[Program, ...] = (*MASKS, *FINE, *LEFT, *EPSILONS, *FOLDED, *SHUFFLED)
