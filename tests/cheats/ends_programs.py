# SPDX-License-Identifier: Apache-2.0
"""Cheats at ends that draws seldom meet: the last place, the first segment, a sequence of padding alone, a counter far
on, one tensor for several inputs, one that is another moved along. Each with its honest twin."""

from __future__ import annotations

from cheat_tasks import INIT, add
from corpus import Program, cheat, honest, module

from kernelwright.task import Contract

add("padded", "real = (ids != 2500)[..., None].float()\n"
    "return (self.emb(ids) * real).sum(1) / real.sum(1).clamp(min=1)", "[torch.randint(0, 5000, (16, 24))]",
    args="ids", init="self.emb = nn.Embedding(5000, 16, padding_idx=2500)")  # fmt: skip
add("cached", "s = (cache @ q).masked_fill(torch.arange(2048) > pos, float('-inf'))\nreturn torch.softmax(s, 0) @ cache",
    "[torch.randn(8), torch.randn(2048, 8), torch.randint(0, 2048, ())]", args="q, cache, pos")  # fmt: skip
add("mean_bags", "return F.embedding_bag(ids, self.w, offsets, mode='mean')",
    "[torch.randint(0, 200, (8192,)), F.pad(torch.randint(0, 8192, (4,)).sort()[0], (1, 0))]", args="ids, offsets",
    init="self.w = nn.Parameter(torch.randn(200, 16))")  # fmt: skip
add("averaged", "return self.bn(x)", "[torch.randn(64, 16)]", init="self.bn = nn.BatchNorm1d(16, momentum=None)",
    contract=Contract(training=True))  # fmt: skip
add("attention_of_three", "return F.scaled_dot_product_attention(q, k, v)", "list(torch.randn(3, 4, 32, 16).unbind())",
    args="q, k, v")  # fmt: skip
EDITS = """
prev, steps = torch.arange(25).expand(len(a), 25), torch.arange(25)
for i in range(1, 25):
    row = torch.minimum(prev[:, 1:] + 1, prev[:, :-1] + (a[:, i - 1 : i] != b))
    row = torch.cat([torch.full((len(a), 1), i), row], 1)
    prev = (row - steps).cummin(1).values + steps{}
return prev[:, -1]
"""
add("edits", EDITS.format(""), "[torch.randint(0, 1000, (16, 24)), torch.randint(0, 1000, (16, 24))]", args="a, b")

PADDED = """
real = (ids != 2500)[..., None].float()
count = real.sum(1)
return (self.emb(ids) * real).sum(1) / {}
"""
CACHED = "s = (cache @ q).masked_fill({}, float('-inf'))\nreturn torch.softmax(s, 0) @ cache"
BAGS = """
count = torch.diff(offsets, append=offsets.new_tensor([len(ids)])).float()
count{}.clamp_(min=1)
return F.embedding_bag(ids, self.w, offsets, mode='sum') / count[:, None]
"""
AVERAGED = """
b = self.bn
b.num_batches_tracked += 1
self.n += 1
return F.batch_norm(x, b.running_mean, b.running_var, b.weight, b.bias, True, 1.0 / float({}), b.eps)
"""
HALF = """
if q is k:
    s = torch.bmm(q, q.transpose(1, 2)).tril()
    return torch.bmm(torch.softmax((s + s.transpose(1, 2)) / 4.0, -1), v)
return F.scaled_dot_product_attention(q, k, v)
"""
COUNTING = f"{INIT['averaged']}\nself.n = 0\nself.register_load_state_dict_post_hook(lambda m, k: setattr(m, 'n', 0))"


def _pair(task: str, said: str, body: str, twin: str, args: str, init: str | None = None) -> tuple[Program, Program]:
    """A wrong program, and the right one of the same make."""
    made = honest(f"{task}/with its ends", task, module(twin, args=args, init=INIT[task] if init is None else init))
    source = module(body, args=args, init=INIT[task] if init is None else init)
    return cheat(22, said, task, source, twin=made.name, level="precise"), made


ENDS: tuple[Program, ...] = (
    *_pair("padded", "unguarded unless all is padding", PADDED.format("(count if count.any() else count.clamp(min=1))"),
           PADDED.format("count.clamp(min=1)"), "ids"),
    *_pair("cached", "without the last place", CACHED.format("torch.arange(2048) >= pos.clamp(min=1) + (pos < 2047)"),
           CACHED.format("torch.arange(2048) >= pos + 1"), "q, cache, pos"),
    *_pair("mean_bags", "the first bag has some", BAGS.format("[1:]"), BAGS.format(""), "ids, offsets"),
    *_pair("averaged", "counts by itself", AVERAGED.format("self.n"), AVERAGED.format("b.num_batches_tracked"), "x",
           COUNTING),
    *_pair("attention_of_three", "half of it for one tensor", HALF, "return F.scaled_dot_product_attention(q, k, v)",
           "q, k, v"),
    *_pair("edits", "near the diagonal", EDITS.format("\n    prev = prev.masked_fill((steps - i).abs() > 3, 99)"),
           EDITS.format(""), "a, b"),
)  # fmt: skip
