# SPDX-License-Identifier: Apache-2.0
"""An environment in the common reinforcement-learning form: an action is a reply, the reward is the judge's.

``reset() -> (observation, info)`` and ``step(reply) -> (observation, reward, terminated, truncated, info)``, as in
Gymnasium, without depending on it. The rule reward cannot be argued with; an optional rubric adds to it.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import IO, Any

from kernelwright import kinds, wire
from kernelwright.candidate import Candidate
from kernelwright.errors import BadCommand
from kernelwright.llm.speaker import whole
from kernelwright.machine import Machine
from kernelwright.proposers.agent import Ask, Evidence, Malformed, Surroundings, Wording, candidate_from
from kernelwright.proposers.agent.brief import cut, own_frames
from kernelwright.proposers.agent.effects import describe_time
from kernelwright.task import Task
from kernelwright.training import lines
from kernelwright.training.own import borrowed
from kernelwright.trial import Outcome, Rejected, Timed
from kernelwright.workers import Worker

Observation = list[dict[str, str]]
Rubric = Callable[[str, Candidate, Outcome], float]
"""(reply, candidate, outcome) to a number in [0, 1]."""
STEPS = {"scan": -0.8, "build": -0.6, "load": -0.5, "smoke": -0.4, "sandbox": -0.8, "integrity": -1.0}
"""Reward of a rejection by stage: further is better, a dishonest candidate is worst."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reward:
    """How outcomes become numbers."""

    malformed: float = -1.0
    verify: float = -0.3
    slow: float = -0.2
    """Least for a proved candidate, however slow: being right is worth more than being wrong, and pays nothing."""
    per_doubling: float = 1.0
    """Times log2 of the speedup over the best baseline, lower end of its interval."""
    most: float = 4.0
    own_code: bool = True
    """Nothing is paid for the speed of torch's own arithmetic, called from Python; see ``own.borrowed``."""
    rubric_weight: float = 0.0

    def __post_init__(self) -> None:
        kinds.settle(self)

    def of(self, outcome: Outcome | None) -> float:
        """The rule reward; None is a reply without a candidate."""
        if outcome is None:
            return self.malformed
        if isinstance(outcome, Rejected):
            return STEPS.get(outcome.stage, self.verify)
        speed = self.per_doubling * math.log2(max(outcome.speedup_low, 2.0**-8))
        return min(self.most, max(speed, self.slow))


class Environment:
    """One task on one worker. An episode is up to ``turns`` replies, each seeing what came of the last.

    A reply is judged coarsely against eager, and what may beat eager precisely, against the best baseline: only that
    is paid for speed. ``level`` "coarse" leaves the second out; it is quicker, and a mere call of a library that
    beats eager is then paid unless ``reward.own_code``."""

    def __init__(
        self, task: Task, worker: Worker, device: str = "cpu", *, turns: int = 4, level: str = "precise",
        reward: Reward | None = None, rubric: Rubric | None = None, entry: str = "ModelNew",
        language: str = "", machine: Machine | None = None, about: Surroundings | None = None,
    ) -> None:  # fmt: skip
        """``about``: shapes, bound and toolchain that the first message shows; see ``kernelwright.environment``."""
        self._task, self._worker, self._device, self._entry = task, worker, device, entry
        self._turns, self._level, self._rubric = turns, level, rubric
        self._reward = reward or Reward()
        self._wording = Wording(
            task=task, device=device, machine=machine, language=language or ("cpp" if device == "cpu" else "triton"),
            entry=entry, about=about or Surroundings(),
        )  # fmt: skip
        if turns < 1:
            raise BadCommand("An episode has no turns.", got=str(turns), expected="1 or more")
        self._turn = 0
        self._over = True
        self._talk: Observation = []

    @kinds.checked
    def reset(self, *, seed: int | None = None) -> tuple[Observation, dict[str, Any]]:
        """A new episode: the messages a policy answers."""
        self._turn, self._over = 0, False
        rules, (_, text) = self._wording.rules(), self._wording.request(Ask(kind="new"))
        self._talk = [{"role": "system", "content": rules}, {"role": "user", "content": text}]
        return list(self._talk), {"task": self._task.digest(), "seed": seed}

    @kinds.checked
    def step(self, reply: str) -> tuple[Observation, float, bool, bool, dict[str, Any]]:
        """Judge one reply. ``terminated``: a proved win; ``truncated``: the last turn.

        Raises BadCommand before a reset and after the end. Where the judge itself fails, its error is raised, and the
        turn was not taken."""
        if self._over:
            raise BadCommand("No episode is under way.", expected="a reset before the first step and after the last")
        reply = whole(reply)
        info: dict[str, Any] = {"turn": self._turn + 1, "at": time.time()}
        outcome: Outcome | None = None
        candidate: Candidate | None = None
        try:
            candidate = candidate_from(reply, task=self._task.digest(), entry=self._entry, proposer="policy")
        except Malformed as fault:
            info["malformed"] = str(fault)
        else:
            outcome = self._judged(candidate, "coarse")
            if self._level == "precise" and isinstance(outcome, Timed) and outcome.speedup_high > 1.0:
                outcome = self._judged(candidate, "precise")
            info["outcome"] = wire.to_data(outcome)
        rule = self._reward.of(outcome)
        if candidate is not None and self._reward.own_code and isinstance(outcome, Timed):
            info["borrowed"] = borrowed(candidate)
            rule = min(rule, 0.0) if info["borrowed"] else rule
        reward = info["rule_reward"] = rule
        if self._rubric is not None and candidate is not None and outcome is not None:
            info["rubric"] = min(1.0, max(0.0, self._rubric(reply, candidate, outcome)))
            reward += self._reward.rubric_weight * info["rubric"]
        won = isinstance(outcome, Timed) and outcome.speedup_low > 1.0 and rule > 0.0
        heard = self._says(candidate, outcome, info)
        self._talk += [{"role": "assistant", "content": reply}, {"role": "user", "content": heard}]
        self._turn += 1
        cut_off = not won and self._turn >= self._turns
        self._over = won or cut_off
        return list(self._talk), reward, won, cut_off, info

    def converse(self, asked: IO[bytes], tell: Callable[[str], None]) -> int:
        """Be spoken to over lines of JSON, as ``lines`` describes them, until ``asked`` ends; how many were steps."""
        return lines.converse(self, asked, tell)

    def _judged(self, candidate: Candidate, level: str) -> Outcome:
        job = {"job": "judge", "task": wire.to_data(self._task), "candidate": wire.to_data(candidate)}
        answer = self._worker.run(job | {"device": self._device, "level": level, "verify": True})
        found: Outcome = wire.from_data(Outcome, answer["outcome"])  # type: ignore[arg-type]  # a union is no class
        return found

    def _says(self, candidate: Candidate | None, outcome: Outcome | None, info: dict[str, Any]) -> str:
        if candidate is None or outcome is None:
            return f"The reply holds no candidate: {info.get('malformed', 'not judged')}."
        shown = Evidence(candidate=candidate, outcome=outcome, diagnosis="")
        if isinstance(shown.outcome, Rejected):
            fault = shown.outcome
            said = own_frames(fault.detail, [name for name, _ in candidate.sources], fault.reason)
            return (
                f"Rejected at stage {fault.stage}: {fault.reason}\n{'' if said in fault.reason else cut(said)}".strip()
            )
        text = f"Correct; it takes {describe_time(shown.outcome)}."
        if info.get("borrowed"):
            return f"{text} But the work is done by PyTorch ({info['borrowed']}); write it yourself, and faster."
        return f"{text} Make it faster."
