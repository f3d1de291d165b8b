# SPDX-License-Identifier: Apache-2.0
"""Text in, text out: one request to a language model, under hard budgets, recorded, and replayable without a model."""

from kernelwright.llm.budget import Budget, Limits, Spent
from kernelwright.llm.messages import Message, Model, ModelFailure, Reply, request_digest
from kernelwright.llm.record import Exchange, Memory, Recorder, Unheard, read_record, spent
from kernelwright.llm.speaker import Meter, Speaker

__all__ = [
    "Budget",
    "Exchange",
    "Limits",
    "Memory",
    "Message",
    "Meter",
    "Model",
    "ModelFailure",
    "Recorder",
    "Reply",
    "Speaker",
    "Spent",
    "Unheard",
    "read_record",
    "request_digest",
    "spent",
]
