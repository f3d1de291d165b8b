# SPDX-License-Identifier: Apache-2.0
"""Which model or role to ask next: UCB over arms by reward per cost (ShinkaEvolve routes models the same way)."""

from __future__ import annotations

import math
from collections.abc import Sequence


class Bandit:
    """Arms with unknown reward and cost. Deterministic in what it was told.

    The value of an arm is its mean reward (improvement of the best score, in log2, 0 for none) plus an
    exploration bonus, divided by its mean cost relative to the cheapest arm to the power ``thrift``.
    """

    def __init__(self, arms: Sequence[str], *, explore: float = 0.5, thrift: float = 0.5) -> None:
        if not arms or len(set(arms)) != len(arms):
            raise ValueError(f"a bandit needs distinct arms, got {list(arms)}")
        self.arms = list(arms)
        self._explore, self._thrift = explore, thrift
        self._pulls = dict.fromkeys(arms, 0)
        self._reward = dict.fromkeys(arms, 0.0)
        self._cost = dict.fromkeys(arms, 0.0)

    def choose(self) -> str:
        """The arm to pull: each once in order, then the most valuable."""
        for arm in self.arms:
            if self._pulls[arm] == 0:
                return arm
        return max(self.arms, key=lambda arm: (self._value(arm), -self.arms.index(arm)))

    def tell(self, arm: str, reward: float, cost: float) -> None:
        """What one pull brought and cost (any one unit: dollars, tokens, seconds). Rewards below zero count as zero."""
        self._pulls[arm] += 1
        self._reward[arm] += max(0.0, reward)
        self._cost[arm] += max(0.0, cost)

    def retire(self, arm: str) -> None:
        """Never choose this arm again. Raises ValueError for the last one and for one that is not there."""
        if self.arms == [arm]:
            raise ValueError("the last arm cannot be retired")
        self.arms.remove(arm)

    def _value(self, arm: str) -> float:
        total = sum(self._pulls.values())
        mean = self._reward[arm] / self._pulls[arm]
        bonus = self._explore * math.sqrt(math.log(total) / self._pulls[arm])
        costs = {name: self._cost[name] / max(self._pulls[name], 1) for name in self.arms}
        cheapest = min((cost for cost in costs.values() if cost > 0), default=1.0)
        return (mean + bonus) / max(costs[arm] / cheapest, 1.0) ** self._thrift
