# SPDX-License-Identifier: Apache-2.0
"""Labels that a reference finds the likeliest, as most are where a model is trained.

By lot one label in a thousand is, and where scores are far apart the others have a probability of zero: nowhere is a
loss small. So a Brier score by ``sum(p^2) - 2 p + 1`` passed that was 15 % off where p is 0.9995 (eager 5e-4), and so
would one that keeps probabilities below ``1 - 1e-7``.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import torch

from kernelwright.judge import inputs
from kernelwright.judge.borders import named
from kernelwright.judge.inputs import Variant
from kernelwright.judge.kinds import Watching

if TYPE_CHECKING:
    from kernelwright.judge.buffers import TensorSpec
    from kernelwright.judge.instance import Instance
    from kernelwright.judge.weights import State

CHANGES = RIGHT, SURE = "right labels", "sure labels"
"""Of the largest scores; and, beside them, samples that are larger or smaller, each by as much as leaves all other
classes together about one probability: among losses of all sizes an error of the small ones does not show."""
PICKS = "picks"
"""What ``oracle`` says of a reference that takes or marks single elements along an axis."""
_TAKING = {"nll_loss_forward": 1, "nll_loss2d_forward": 1, "gather": None}
"""Operators that take one score for each label, and along which axis; None: as they are told."""
_MARKING = {"scatter", "eq"}
"""Operators that make ones where labels are, and zeros."""
_BESIDE = {"mul", "sub", "rsub", "add", "where", "binary_cross_entropy"}
"""Operators that scores and such marks meet in."""
LEFT = -3.0, -5.0
"""Digits of what is left to all other classes, from the first to the second by lot."""
SCALED = 1 / 8, 32.0
"""How many times as large a sample becomes at the least and at the most; instead of one that would have to be larger,
as where two classes are nearly as likely, there is another one again."""
HALVINGS = 16
"""Of a range of factors, until one is known to four digits."""
MOST = 1 << 21
"""Scores that are looked at so often, 20 ms each time; of more labels are right and no samples scaled."""
KEPT = 1 / 8
"""Share of the labels that stay as they were drawn where none are sure: no data is without such, but where one in eight
is wrong nearly all of a loss is theirs."""
FEWEST = 2
"""Classes that there are at the least."""


def picks(func: Any) -> bool:
    """Whether an operator takes or marks single elements along an axis."""
    return named(func) in _TAKING or named(func) in _MARKING


def likeliest(specs: Sequence[TensorSpec], traits: Collection[str]) -> list[Variant]:
    """Such draws, where there are whole numbers and they may be labels."""
    if PICKS not in traits or not any(_may_label(spec.dtype, spec.shape) for spec in specs):
        return []
    return [Variant(name=change, required=True, change=change, draws=2) for change in CHANGES]


def _may_label(dtype: str, shape: Sequence[int]) -> bool:
    return dtype in ("int32", "int64") and len(shape) > 0


class _Scores(Watching):
    """For each input of whole numbers that labels anything, the scores it chooses from and their axis."""

    def __init__(self, leaves: Sequence[torch.Tensor]) -> None:
        super().__init__()
        self.found: dict[int, tuple[slice, torch.Tensor, int]] = {}
        """By input: the part of it, the scores, and the axis of the classes."""
        self._labels = [
            (index, part, leaf[..., part].reshape(-1).long())
            for index, leaf in enumerate(leaves)
            if _may_label(str(leaf.dtype).removeprefix("torch."), leaf.shape)
            for part in (slice(None), slice(1, None))  # as of words, each of which is what comes after the last
        ]
        self._marks: list[tuple[torch.Tensor, int, slice, int]] = []

    def __torch_dispatch__(
        self, func: Any, kinds: Any, args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        """Called by torch for every operator below autograd."""
        out = func(*args, **(kwargs or {}))
        name, given = named(func), [arg for arg in args if isinstance(arg, torch.Tensor)]
        if name in _TAKING and len(given) > 1:
            axis = _TAKING[name]
            axis = int(args[1]) if axis is None else min(axis, given[0].dim() - 1)
            for index, part in self._which(given[1]):
                self._note(index, part, given[0], axis)
        elif name in _MARKING and given and isinstance(out, torch.Tensor):
            self._mark(name, args, given, out)
        elif name == "_to_copy" and given:
            same = [known for known in self._marks if known[0].data_ptr() == given[0].data_ptr()]
            self._marks += [(out, *known[1:]) for known in same]
        elif name in _BESIDE:
            self._meet(given)
        return out

    def _mark(self, name: str, args: Sequence[Any], given: Sequence[torch.Tensor], out: torch.Tensor) -> None:
        """Remember a result that is one where labels are."""
        labels = given[:2] if name == "eq" else given[1:2]
        for index, part in (found for label in labels for found in self._which(label)):
            axis = out.dim() - 1 if name == "eq" else int(args[1])
            if out.numel() > self._size(index, part):
                self._marks.append((out, index, part, axis))

    def _meet(self, given: Sequence[torch.Tensor]) -> None:
        """Note the scores that stand beside marks."""
        for mark, index, part, axis in self._marks:
            beside = [arg for arg in given if arg.data_ptr() != mark.data_ptr()]
            if len(beside) < len(given):
                for scores in (arg for arg in beside if arg.shape == mark.shape):
                    self._note(index, part, scores, axis)  # of floats alone

    def _which(self, label: torch.Tensor) -> Iterator[tuple[int, slice]]:
        """Inputs that an operator's whole numbers are."""
        if label.dtype not in (torch.int32, torch.int64):
            return
        flat = label.reshape(-1).long()
        for index, part, known in self._labels:
            if flat.numel() == known.numel() and torch.equal(flat, known):
                yield index, part

    def _size(self, index: int, part: slice) -> int:
        return next(known.numel() for at, other, known in self._labels if at == index and other == part)

    def _note(self, index: int, part: slice, scores: torch.Tensor, axis: int) -> None:
        count = self._size(index, part)
        fits = scores.is_floating_point() and scores.dim() and scores.shape[axis] >= FEWEST
        if fits and count * scores.shape[axis] == scores.numel():
            self.found.setdefault(index, (part, scores.detach().clone(), axis))


def _scores(instance: Instance, leaves: Sequence[torch.Tensor], state: State | None) -> dict[int, Any]:
    with (found := _Scores(leaves)):
        instance.eager(leaves, state)
    return found.found


def met(instance: Instance, leaves: Sequence[torch.Tensor]) -> bool:
    """Whether some input labels anything."""
    return bool(_scores(instance, leaves, None))


def changed(
    instance: Instance, change: str, leaves: Sequence[torch.Tensor], seed: int, state: State | None
) -> list[torch.Tensor]:
    """The same inputs with labels of the largest scores: RIGHT but for ``KEPT`` of them, or SURE of all."""
    rng, made = inputs.generator(seed, instance.device), list(leaves)
    found = _scores(instance, leaves, state)
    if change == SURE:
        left = LEFT[0] + (LEFT[1] - LEFT[0]) * float(torch.rand((), generator=rng, device=rng.device))
        for index, (part, scores, axis) in found.items():
            if scores.numel() > MOST:
                continue
            factors = _factors(scores, axis, left * math.log(10.0)).reshape(made[index][..., part].shape)
            chosen = _in_reach(factors.reshape(-1), rng)
            made = [_scaled(leaf, factors, chosen, scores, axis) for leaf in made]
        found = _scores(instance, made, state)
    for index, (part, scores, axis) in found.items():
        made[index] = made[index].clone()
        old = made[index][..., part]
        best = scores.argmax(axis).reshape(old.shape).to(old.dtype)
        stays = torch.rand(old.shape, generator=rng, device=old.device) < (KEPT if change == RIGHT else 0.0)
        old.copy_(torch.where(stays | (old < 0), old, best))
    return made


def _factors(scores: torch.Tensor, axis: int, left: float) -> torch.Tensor:
    """By how much each sample's scores are to be multiplied, for the logarithm of what they leave to all but the first
    class to be ``left``. Of probabilities the scores are their logarithms."""
    scores = scores.movedim(axis, -1).to(torch.float64)
    if bool(((scores >= 0) & (scores <= 1)).all()):
        scores = scores.clamp_min(torch.finfo(torch.float32).tiny).log()
    top, first = scores.max(-1, keepdim=True)
    behind = (scores - top).scatter(-1, first, -torch.inf)
    low, high = (torch.full_like(top[..., 0], bound) for bound in SCALED)
    for _ in range(HALVINGS):
        middle = (low + high) / 2
        far = torch.logsumexp(middle[..., None] * behind, -1) > left
        low, high = torch.where(far, middle, low), torch.where(far, high, middle)
    return low


def _in_reach(factors: torch.Tensor, rng: torch.Generator) -> torch.Tensor:
    """Which sample stands at each place: itself, or one by lot where its factor would have to be larger."""
    own = torch.arange(len(factors), device=factors.device)
    fine = own[factors < SCALED[1] * (1 - 2.0**-HALVINGS * 4 * SCALED[1])]
    if not len(fine):
        return own
    others = fine[torch.randint(len(fine), own.shape, generator=rng, device=rng.device)]
    return torch.where(torch.isin(own, fine), own, others)


def _scaled(
    leaf: torch.Tensor, factors: torch.Tensor, chosen: torch.Tensor, scores: torch.Tensor, axis: int
) -> torch.Tensor:
    """An input with the samples that are ``chosen``, each times its factor, where it holds the scores or what they are
    made of; else as it is."""
    if leaf.dtype not in inputs.FLOATS:
        return leaf

    def taken(samples: torch.Tensor) -> torch.Tensor:
        flat = samples.reshape(len(chosen), -1)[chosen]
        return (flat * factors.reshape(-1)[chosen, None].to(leaf.dtype)).reshape(samples.shape)

    if leaf.shape == scores.shape and factors.numel() * scores.shape[axis] == scores.numel():
        return taken(leaf.movedim(axis, -1)).movedim(-1, axis).contiguous()
    last, places = factors.dim() - 1, leaf.shape[: factors.dim()]
    if len(places) <= last or places[:last] != factors.shape[:last] or places[last] - factors.shape[last] not in (0, 1):
        return leaf
    body, rest = leaf.split([factors.shape[last], places[last] - factors.shape[last]], last)
    return torch.cat([taken(body), rest], last)
