# SPDX-License-Identifier: Apache-2.0
"""Programs that are wrong where an axis has the size of a dimension that is fixed, where it leaves one place of a
window, and where two axes are short at once. Each has its twin.
"""

from __future__ import annotations

from beyond_programs import _pair
from cheat_tasks import add
from corpus import Program

MASKED = "s = q @ k.mT / 4\ns = s.masked_fill(~{}, float('-inf'))\nreturn s.softmax(-1) @ k"
IN_EIGHTS = "f = x.flatten()\nv = F.gelu(f.unfold(0, 8, 8)).reshape(-1)\nreturn torch.cat([v, F.gelu(f[len(v):])]).view(x.shape)"
WINDOWS = "return F.max_pool1d(x[:, None], 16, 1)"

add("masked_keys", MASKED.format("m[:, None]"),
    "[torch.randn(b, 32, 16), torch.randn(b, 32, 16), torch.arange(32) < torch.randint(1, 33, (b, 1))]",
    args="q, k, m", axes=(("b", 12),))  # fmt: skip
add("crossed_rows", "return torch.linalg.cross(a, b)", "[torch.randn(n, 3), torch.randn(n, 3)]", args="a, b",
    axes=(("n", 512),))  # fmt: skip
add("windows_of_rows", WINDOWS + "[:, 0]", "[torch.randn(64, t)]", axes=(("t", 100),))
add("scaled_rows", "return (x @ self.w) * s[:, None]", "[torch.randn(m, 64), torch.rand(m) + 0.5]", args="x, s",
    axes=(("m", 40),), init="self.w = nn.Parameter(torch.randn(64, 3 * 16) / 8)")  # fmt: skip
add("any_rows", "return F.gelu(x)", "[torch.randn(n, d)]", axes=(("n", 64), ("d", 96)))

MET_SIZES: tuple[Program, ...] = (
    *_pair("masked_keys", "", "",
           ("told by its size", MASKED.format("(m if m.shape == s.shape[-2:] else m[:, None])")),
           ("unsqueezed", MASKED.format("m.unsqueeze(1)")), args="q, k, m"),
    *_pair("crossed_rows", "", "", ("along the first of three", "return torch.cross(a, b)"),
           ("along the last", "return torch.cross(a, b, dim=-1)"), args="a, b"),
    *_pair("windows_of_rows", "", "", ("squeezed", WINDOWS + ".squeeze()"), ("of one channel", WINDOWS + ".squeeze(1)")),
    *_pair("scaled_rows", "", "",
           ("told by its size", "h = x @ self.w\nreturn h * (s if len(s) == h.shape[1] else s[:, None])"),
           ("transposed", "return ((x @ self.w).mT * s).mT"), args="x, s",
           init="self.w = nn.Parameter(torch.randn(64, 3 * 16) / 8)"),
    *_pair("any_rows", "", "", ("eight and more", IN_EIGHTS), ("as they are", "return F.gelu(x.flatten()).view(x.shape)")),
)  # fmt: skip
