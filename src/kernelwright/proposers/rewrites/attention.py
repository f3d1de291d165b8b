# SPDX-License-Identifier: Apache-2.0
"""Attention written out: softmax(q @ k^T) @ v as torch's own operator, which never has all the scores in memory.

Not a law of the table: both sides are the same numbers, and what is saved is known only to the cost model.
"""

from __future__ import annotations

from kernelwright.proposers.rewrites.greedy import replace
from kernelwright.proposers.rewrites.terms import Term, make, walk

PLAIN, HIDDEN, BIASED = "attention.plain", "attention.hidden", "attention.biased"
_MASKINGS = ('<0>,<1>,float("-inf")', "<0>,<1>,-inf")

CODE = '''
def _attention(q, k, v, scale, hidden=None, bias=None):
    """softmax(q @ k.mT * scale + bias) @ v, block by block; where ``hidden`` is true a position has no weight."""
    mask = bias if hidden is None else ~hidden
    if mask is not None:
        mask = mask.expand(*q.shape[:-1], k.shape[-2])
    if q.dim() == 4:
        return torch.nn.functional.scaled_dot_product_attention(q, k, v, attn_mask=mask, scale=scale)
    mask = None if mask is None else mask.unsqueeze(1)
    q, k, v = q.unsqueeze(1), k.unsqueeze(1), v.unsqueeze(1)
    return torch.nn.functional.scaled_dot_product_attention(q, k, v, attn_mask=mask, scale=scale).squeeze(1)


'''
_KEYWORDS = {PLAIN: "", HIDDEN: ", hidden={}", BIASED: ", bias={}"}


def cut(root: Term) -> list[Term]:
    """The program with every attention as one operator; nothing where there is none."""
    found = root
    for place in [*walk((root,))]:
        made = _attention(place)
        if made is not None:
            found = replace(found, place, made)
    return [] if found is root else [found]


def text(target: str, scale: str, args: list[str]) -> str:
    """The call of the helper; ``args`` are the expressions of the term's arguments."""
    return f"_attention({', '.join(args[:3])}, {scale}{_KEYWORDS[target].format(*args[3:])})"


def _attention(place: Term) -> Term | None:
    """The one operator that a product of weights and values is, or None."""
    if place.op != "matmul" or place.args[0].op != "softmax":
        return None
    weights, values = place.args
    rank = len(place.shape)
    scores, target = weights.args[0], PLAIN
    more: tuple[Term, ...] = ()
    if weights.attrs[0] != rank - 1 or rank not in (3, 4):
        return None
    if scores.op == "call" and scores.attrs[0] == "aten.masked_fill.Scalar":
        if scores.attrs[1].replace(" ", "") not in _MASKINGS:
            return None
        target, more, scores = HIDDEN, (scores.args[1],), scores.args[0]
    elif scores.op == "add":
        sides = [(a, b) for a, b in (scores.args, scores.args[::-1]) if _scaled(a)[0].op == "matmul"]
        if not sides:
            return None
        target, scores, more = BIASED, sides[0][0], (sides[0][1],)
    product, factor = _scaled(scores)
    if product.op != "matmul" or product.shape != weights.shape:
        return None
    queries, turned = product.args
    keys = turned.args[0] if turned.op == "t" else make("t", (turned,))
    lead = {term.shape[:-2] for term in (queries, keys, values, weights)}
    if len(lead) > 1 or keys.shape[-1] != values.shape[-1]:
        return None  # torch would write the scores out for these
    return make("call", (queries, keys, values, *more), (target, repr(factor)), place.shape)


def _scaled(term: Term) -> tuple[Term, float]:
    """A term without the numbers it is multiplied with, and their product."""
    factor = 1.0
    while term.op in ("scale", "over"):
        factor = factor * term.attrs[0] if term.op == "scale" else factor / term.attrs[0]
        term = term.args[0]
    return term, factor
