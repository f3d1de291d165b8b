# SPDX-License-Identifier: Apache-2.0
"""Let a language model propose: render a prompt from nouns, ask, parse. It never builds, grades or times anything."""

from kernelwright.proposers.agent.brief import Evidence, Prompts, describe_contract
from kernelwright.proposers.agent.parse import Malformed, candidate_from, code_blocks, json_object
from kernelwright.proposers.agent.proposer import AgentProposer, Ask
from kernelwright.proposers.agent.tunables import declared_space, with_values

__all__ = [
    "AgentProposer",
    "Ask",
    "Evidence",
    "Malformed",
    "Prompts",
    "candidate_from",
    "code_blocks",
    "declared_space",
    "describe_contract",
    "json_object",
    "with_values",
]
