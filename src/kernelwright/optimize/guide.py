# SPDX-License-Identifier: Apache-2.0
"""What a model-driven search is asked: who speaks, by which recipe, in which language, and what it may cost."""

from __future__ import annotations

import math
import shlex
import shutil
from dataclasses import dataclass

from kernelwright import kinds, sandbox
from kernelwright.candidate import LANGUAGES
from kernelwright.errors import BadCommand, ModelError

CANDIDATES = 40
"""Candidates asked for when no number is given."""
MINUTES = 10.0
"""Time for the models when neither a budget nor a limit of minutes is given."""


LIMITS = ("max_usd", "max_tokens", "max_requests", "max_minutes", "max_candidates")


@dataclass(frozen=True, slots=True, kw_only=True)
class Guide:
    """Models or an agent command, a recipe, and hard limits. None as a limit: none."""

    llm: tuple[str, ...] = ()
    """PROVIDER:MODEL each; several share the requests as arms of a bandit."""
    base_url: str = ""
    """Address of an OpenAI-compatible server, for the providers ``openai`` and ``local``."""
    agent: str = ""
    """A command that reads TASK.md in its working folder and leaves files there; used like one more model."""
    agent_env: tuple[str, ...] = ()
    """Names of variables the agent command gets besides PATH, HOME and LANG."""
    agent_seconds: float = 900.0
    """After this long the agent command is killed."""
    recipe: str = "best"
    language: str = ""
    """Language candidates are asked to be written in; empty: the recipe's, else C++ on cpu and Triton on cuda."""
    words: str = ""
    """What to write, in words, in place of a first request to beat the reference."""
    parallel: int = 2
    """Requests in flight at once."""
    price: tuple[float, ...] = ()
    """Dollars per million tokens in and out, for models whose price is not known."""
    max_usd: float | None = None
    max_tokens: int | None = None
    max_requests: int | None = None
    max_minutes: float | None = None
    max_candidates: int = CANDIDATES

    def __post_init__(self) -> None:
        kinds.settle(self)

    def checked(self) -> Guide:
        """Itself. Raises BadCommand or ModelError for what cannot work whatever a model says."""
        if not self.llm and not self.agent:
            raise BadCommand("There is no model.", expected="--llm PROVIDER:MODEL or --agent COMMAND")
        if len(set(self.llm)) != len(self.llm):
            raise BadCommand("A model is named twice.", got=", ".join(self.llm))
        if self.language and self.language not in LANGUAGES:
            raise BadCommand("There is no such language.", got=self.language, expected=" or ".join(LANGUAGES))
        for name in (*LIMITS, "parallel", "agent_seconds"):
            value = getattr(self, name)
            if value is not None and not 0 < value < math.inf:  # nan would be a limit that is never reached
                raise BadCommand(f"{name} is not a limit.", got=str(value), expected="more than 0")
        if self.price and (len(self.price) != 2 or not all(0 <= dollars < math.inf for dollars in self.price)):
            raise BadCommand("A price is two numbers.", got=str(self.price), expected="dollars per million, in and out")
        if self.agent and self.max_tokens is not None:
            raise BadCommand(
                "An agent command does not say how many tokens it takes.",
                got="--max-tokens with --agent",
                expected="--max-requests, --max-minutes or --max-candidates",
            )
        if self.agent:
            words = split(self.agent)
            if shutil.which(words[0], path=sandbox.chosen(()).get("PATH")) is None:
                raise ModelError("The agent command cannot be started.", words[0], "a program on PATH", "see --agent")
        return self


def split(command: str) -> list[str]:
    """The words of a command line. Raises BadCommand for an open quote and for nothing."""
    try:
        words = shlex.split(command)
    except ValueError as error:
        raise BadCommand("The agent command cannot be read.", got=command, expected=str(error)) from error
    if not words:
        raise BadCommand("The agent command is empty.", expected="a program and its arguments")
    return words
