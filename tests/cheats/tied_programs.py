# SPDX-License-Identifier: Apache-2.0
"""Programs that were refused for what a judge made of their inputs, or of its own choice among equals, and mistakes in
the same tasks that passed: routers whose probabilities vanish, beams and tokens of a search, masks and labels that are
floats of 0 and 1, tables in order, symmetric matrices, infinities that are swept away, the last edge of a histogram,
sparse matrices. Each has its twin.
"""

from __future__ import annotations

from beyond_programs import _pair
from corpus import Program

CHOSEN = (
    *_pair("routed_softmax", "w, i = torch.softmax(x, -1).topk(4)\nreturn w / w.sum(-1, keepdim=True), i.int()",
           "[torch.randn(128, 32)]",
           ("of logits in bfloat16", "i = x.bfloat16().float().sort(-1, descending=True)[1][:, :4]\n"
            "w = torch.softmax(x, -1).gather(-1, i)\nreturn w / w.sum(-1, keepdim=True), i.int()"),
           ("a sort", "w, i = torch.softmax(x, -1).sort(dim=-1, descending=True, stable=True)\n"
            "return w[:, :4] / w[:, :4].sum(-1, keepdim=True), i[:, :4].int()")),
    *_pair("beam_step", "v, i = (s[..., None] + F.log_softmax(x, -1)).flatten(1).topk(4)\n"
           "return v, i // x.shape[-1], i % x.shape[-1]", "[torch.randn(8, 4, 100), torch.randn(8, 4)]",
           ("the best of each", "v, i = (s[..., None] + F.log_softmax(x, -1)).max(-1)\n"
            "v, j = v.sort(-1, descending=True)\nreturn v, j, i.gather(1, j)"),
           ("beam by beam", "v, i = F.log_softmax(x, -1).topk(4)\nv, j = (s[..., None] + v).flatten(1).topk(4)\n"
            "return v, j // 4, i.flatten(1).gather(1, j)"), args="x, s", slow=True),
)  # fmt: skip

TIED: tuple[Program, ...] = (*CHOSEN,)
