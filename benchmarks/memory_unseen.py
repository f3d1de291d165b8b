# SPDX-License-Identifier: Apache-2.0
"""Modules of other kinds, written after the rules of ``kernelwright.limits.scratch``, to see how far those carry."""

import torch
import torch.nn.functional as F
from torch import nn

from benchmarks.memory_modules import indices, mlp, randoms


class Block(nn.Module):
    """Depthwise convolution, norm over channels, two linear layers."""

    def __init__(self, width):
        super().__init__()
        self.depth, self.norm = nn.Conv2d(width, width, 7, padding=3, groups=width), nn.LayerNorm(width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x):
        """The block with its residual."""
        y = self.norm(self.depth(x).permute(0, 2, 3, 1))
        return x + self.down(F.gelu(self.up(y))).permute(0, 3, 1, 2)


class Words(nn.Module):
    """Mean negative log-likelihood of words."""

    def __init__(self, width, words):
        super().__init__()
        self.head = nn.Linear(width, words)

    def forward(self, x, y):
        """The loss; words are told by the place of the largest of a row."""
        return F.cross_entropy(self.head(x), y.argmax(-1))


class Experts(nn.Module):
    """The two best of eight linear layers for every row."""

    def __init__(self, width, count):
        super().__init__()
        self.gate, self.all = nn.Linear(width, count), nn.Parameter(torch.randn(count, width, width) / width**0.5)

    def forward(self, x):
        """All experts on all rows, two of them kept."""
        shares, which = self.gate(x).softmax(-1).topk(2, -1)
        made = torch.einsum("nd,edo->neo", x, self.all)
        picked = made.gather(1, which[..., None].expand(-1, -1, x.shape[-1]))
        return (picked * shares[..., None]).sum(1)


class Spectrum(nn.Module):
    """A filter in frequencies."""

    def __init__(self, size):
        super().__init__()
        self.filter = nn.Parameter(torch.randn(size // 2 + 1))

    def forward(self, x):
        """There, times the filter, and back."""
        return torch.fft.irfft(torch.fft.rfft(x) * self.filter, n=x.shape[-1])


class Bag(nn.Module):
    """The mean of the rows of a table."""

    def __init__(self, rows, width):
        super().__init__()
        self.table = nn.Embedding(rows, width)

    def forward(self, which):
        """Over the second dimension."""
        return self.table(which).mean(1)


class Nearest(nn.Module):
    """The nearest of some points, and how far it is."""

    def forward(self, x, y):
        """Distances of all pairs, the least of each row."""
        return torch.cdist(x, y).min(1)


class Down(nn.Module):
    """One level down and up again."""

    def __init__(self, width):
        super().__init__()
        self.into, self.down = nn.Conv2d(8, width, 3, padding=1), nn.Conv2d(width, 2 * width, 3, stride=2, padding=1)
        self.up, self.out = nn.ConvTranspose2d(2 * width, width, 2, stride=2), nn.Conv2d(2 * width, 8, 3, padding=1)

    def forward(self, x):
        """With the skip between."""
        first = F.silu(self.into(x))
        return self.out(torch.cat([first, self.up(F.silu(self.down(first)))], 1))


class Causal(nn.Module):
    """Attention that the library fuses."""

    def __init__(self, width, heads):
        super().__init__()
        self.qkv, self.heads = nn.Linear(width, 3 * width), heads

    def forward(self, x):
        """Each row looks at those before it."""
        b, t, c = x.shape
        q, k, v = (part.view(b, t, self.heads, -1).transpose(1, 2) for part in self.qkv(x).chunk(3, -1))
        return F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).reshape(b, t, c)


class Running(nn.Module):
    """Running sums and where they rise above their mean."""

    def forward(self, x):
        """Of rows."""
        total = x.cumsum(-1)
        return torch.where(total > total.mean(-1, keepdim=True), total, -total)


class Sorted(nn.Module):
    """Rows in order, and the difference of neighbours."""

    def forward(self, x):
        """The values alone."""
        return x.sort(-1).values.diff(dim=-1)


def halves():
    """Rows in bfloat16."""
    return (torch.randn(8192, 2048, dtype=torch.bfloat16),)


UNSEEN = {
    "lstm": (lambda: nn.LSTM(256, 512, 2, batch_first=True), randoms((64, 256, 256)), False),
    "gru backward": (lambda: nn.GRU(256, 256), randoms((128, 64, 256)), True),
    "transposed convolution": (lambda: nn.ConvTranspose2d(64, 32, 4, 2, 1), randoms((16, 64, 64, 64)), False),
    "depthwise block backward": (lambda: Block(96), randoms((8, 96, 56, 56)), True),
    "volume convolution": (lambda: nn.Conv3d(16, 32, 3, padding=1), randoms((4, 16, 32, 64, 64)), False),
    "group norm backward": (lambda: nn.GroupNorm(8, 64), randoms((32, 64, 96, 96)), True),
    "word loss backward": (lambda: Words(512, 32000), randoms((1024, 512), (1024, 64)), True),
    "experts": (lambda: Experts(512, 8), randoms((4096, 512)), False),
    "spectrum": (lambda: Spectrum(4096), randoms((4096, 4096)), False),
    "bag of rows backward": (lambda: Bag(20000, 256), indices(20000, 1024, 64), True),
    "nearest point": (Nearest, randoms((8192, 64), (4096, 64)), False),
    "down and up backward": (lambda: Down(32), randoms((8, 8, 128, 128)), True),
    "causal attention backward": (lambda: Causal(1024, 16), randoms((4, 1024, 1024)), True),
    "running sums": (Running, randoms((8192, 2048)), False),
    "sorted rows": (Sorted, randoms((4096, 4096)), False),
    "bfloat16 mlp backward": (lambda: mlp(2048, 3).bfloat16(), halves, True),
}
"""As ``SEEN`` in ``memory_modules``."""


class Gradients(nn.Module):
    """Dilated and grouped convolutions of one dimension, and the spread of what they make."""

    def __init__(self, width):
        super().__init__()
        self.wide = nn.Conv1d(width, width, 3, padding=4, dilation=4)
        self.grouped = nn.Conv1d(width, width, 5, padding=2, groups=4)

    def forward(self, x):
        """Normalised by hand."""
        y = self.grouped(F.elu(self.wide(x)))
        return (y - y.mean((0, 2), keepdim=True)) / (y.var((0, 2), keepdim=True) + 1e-5).sqrt()


class Decoder(nn.Module):
    """One layer that looks at itself and at another sequence."""

    def __init__(self, width):
        super().__init__()
        self.layer = nn.TransformerDecoderLayer(width, 8, 4 * width, dropout=0.0, batch_first=True)

    def forward(self, x, y):
        """Without masks."""
        return self.layer(x, y)


LATER = {
    "lstm backward": (lambda: nn.LSTM(128, 256, batch_first=True), randoms((64, 128, 128)), True),
    "lstm both ways": (lambda: nn.LSTM(192, 192, bidirectional=True), randoms((200, 96, 192)), False),
    "transposed volume": (lambda: nn.ConvTranspose3d(32, 16, 3, 3), randoms((2, 32, 16, 32, 32)), False),
    "transposed backward": (lambda: nn.ConvTranspose2d(48, 24, 3, 2, 1, 1), randoms((16, 48, 56, 56)), True),
    "dilated rows backward": (lambda: Gradients(128), randoms((32, 128, 2048)), True),
    "few channels": (lambda: nn.Conv2d(3, 24, 7, 2, 3), randoms((32, 3, 224, 224)), False),
    "channels last": (
        lambda: nn.Conv2d(64, 64, 3, padding=1).to(memory_format=torch.channels_last),
        lambda: (torch.randn(16, 64, 96, 96).to(memory_format=torch.channels_last),),
        False,
    ),
    "decoder backward": (lambda: Decoder(512), randoms((8, 256, 512), (8, 384, 512)), True),
    "instance norm backward": (lambda: nn.InstanceNorm2d(64, affine=True), randoms((32, 64, 96, 96)), True),
    "bilinear form": (lambda: nn.Bilinear(128, 128, 64), randoms((4096, 128), (4096, 128)), False),
}
"""Written after the rules that the first of the unseen modules led to (oneDNN's LSTM and transposed convolution)."""
