# SPDX-License-Identifier: Apache-2.0
"""Let a language model propose: render a prompt from nouns, ask, parse. It never builds, grades or times anything."""

from kernelwright.proposers.agent.brief import Evidence, Prompts, describe_attempt, describe_contract
from kernelwright.proposers.agent.effects import PREDICTED, describe_difference, describe_result, describe_us
from kernelwright.proposers.agent.fences import Block, code_blocks, prose
from kernelwright.proposers.agent.parse import Malformed, candidate_from, json_object
from kernelwright.proposers.agent.proposer import AgentProposer
from kernelwright.proposers.agent.tunables import declared_space, with_values
from kernelwright.proposers.agent.wording import Ask, Surroundings, Wording

__all__ = [
    "PREDICTED",
    "AgentProposer",
    "Ask",
    "Block",
    "Evidence",
    "Malformed",
    "Prompts",
    "Surroundings",
    "Wording",
    "candidate_from",
    "code_blocks",
    "declared_space",
    "describe_attempt",
    "describe_contract",
    "describe_difference",
    "describe_result",
    "describe_us",
    "json_object",
    "prose",
    "with_values",
]
