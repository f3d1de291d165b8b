# SPDX-License-Identifier: Apache-2.0
"""Text in, text out: one request to a language model, under hard budgets, recorded, and replayable without a model."""

from kernelwright.llm.budget import Budget, Limits, Spent
from kernelwright.llm.messages import Message, Model, ModelFailure, Reply, request_digest
from kernelwright.llm.record import Recorder, Replayer, read_record
from kernelwright.llm.speaker import Speaker

__all__ = [
    "Budget",
    "Limits",
    "Message",
    "Model",
    "ModelFailure",
    "Recorder",
    "Replayer",
    "Reply",
    "Speaker",
    "Spent",
    "read_record",
    "request_digest",
]
