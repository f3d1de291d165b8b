# SPDX-License-Identifier: Apache-2.0
"""A model that says what it is told to, and a task to say it about."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from kernelwright.candidate import Candidate
from kernelwright.llm import Budget, Limits, Message, Reply, Speaker
from kernelwright.proposers.agent import AgentProposer, Evidence, candidate_from
from kernelwright.task import Task
from kernelwright.trial import Rejected

CODE = "import torch\nclass ModelNew(torch.nn.Module):\n    def forward(self, x):\n        return x.relu()\n"
TASK = Task(name="relu", form="kernelbench", reference="class Model: 'THE REFERENCE'")


def parsed(reply: str) -> Candidate:
    """The candidate of a reply to TASK."""
    return candidate_from(reply, task=TASK.digest(), entry="ModelNew", proposer="agent:test")


class Parrot:
    """A model that gives the next scripted reply and remembers what it heard."""

    name = "test:parrot"

    def __init__(self, *replies: str) -> None:
        self.replies, self.heard, self.finish = list(replies), [], "stop"

    def complete(self, messages: Sequence[Message], *, max_tokens: int, temperature: float, seed: int) -> Reply:
        """The next reply."""
        self.heard.append(messages)
        text = self.replies.pop(0)
        return Reply(text=text, model=self.name, input_tokens=1, output_tokens=1, usd=0.0, finish=self.finish)

    def price(self, input_tokens: int, output_tokens: int) -> float | None:
        """Free."""
        return 0.0


def agent(*replies: str, language: str = "torch") -> tuple[AgentProposer, Parrot]:
    """A proposer over a parrot."""
    parrot = Parrot(*replies)
    speaker = Speaker(parrot, Budget(Limits()))
    return AgentProposer(speaker=speaker, task=TASK, device="cpu", machine=None, language=language), parrot


def shown(**changes: object) -> Evidence:
    """A candidate rejected at verify."""
    outcome = Rejected(stage="verify", reason="off by one", detail="row 3")
    base = Evidence(candidate=parsed(f"```python\n{CODE}```"), outcome=outcome, diagnosis="")
    return dataclasses.replace(base, **changes)
