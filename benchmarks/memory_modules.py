# SPDX-License-Identifier: Apache-2.0
"""The modules whose memory is predicted and measured: 20 that the model was made with."""

import torch
from torch import nn


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


def randoms(*shapes):
    """Makes the inputs when asked."""
    return lambda: tuple(torch.randn(shape) for shape in shapes)


def indices(below, *shape):
    """Makes integers when asked."""
    return lambda: (torch.randint(0, below, shape),)


SEEN = {
    "mlp": (lambda: mlp(2048, 4), randoms((4096, 2048)), False),
    "mlp backward": (lambda: mlp(2048, 4), randoms((4096, 2048)), True),
    "mlp wide": (lambda: mlp(4096, 2), randoms((2048, 4096)), False),
    "softmax chain": (Sums, randoms((4096, 4096), (4096, 4096)), False),
    "layer norm": (lambda: nn.LayerNorm(4096), randoms((8192, 4096)), False),
    "layer norm backward": (lambda: nn.LayerNorm(4096), randoms((8192, 4096)), True),
    "rms norm": (lambda: nn.RMSNorm(4096), randoms((8192, 4096)), False),
    "attention": (lambda: Attention(512, 8), randoms((4, 512, 512)), False),
    "attention backward": (lambda: Attention(512, 8), randoms((4, 512, 512)), True),
    "embedding": (lambda: nn.Embedding(50000, 512), indices(50000, 32, 1024), False),
    "gelu": (nn.GELU, randoms((8192, 4096)), False),
    "batch norm": (lambda: nn.BatchNorm2d(64).eval(), randoms((32, 64, 112, 112)), False),
    "pooling": (lambda: nn.MaxPool2d(2), randoms((32, 64, 112, 112)), False),
    "average pooling": (lambda: nn.AvgPool2d(3, 2), randoms((32, 64, 112, 112)), False),
    "convolution": (lambda: nn.Conv2d(64, 128, 3, padding=1), randoms((16, 64, 96, 96)), False),
    "residual": (lambda: Residual(64).eval(), randoms((16, 64, 96, 96)), False),
    "residual backward": (lambda: Residual(64), randoms((8, 64, 96, 96)), True),
    "upsampling": (lambda: nn.Upsample(scale_factor=2, mode="bilinear"), randoms((8, 64, 96, 96)), False),
    "gated": (nn.GLU, randoms((8192, 4096)), False),
    "encoder layer": (lambda: nn.TransformerEncoderLayer(512, 8, 2048, batch_first=True), randoms((8, 512, 512)), True),
}
"""Name: what makes the module, what makes its inputs, whether gradients of its parameters are wanted."""
