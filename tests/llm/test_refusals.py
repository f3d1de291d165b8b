# SPDX-License-Identifier: Apache-2.0
"""refusals.py: sentences of real servers, what they ask for and how long they ask to be left alone."""

from __future__ import annotations

import datetime
import email.utils

import pytest

from kernelwright.llm.refusals import BUSY_S, Manner, mended, passes, patience

SENT = ("max_tokens", "temperature", "seed", "system")
REFUSALS = [
    ("Unsupported parameter: 'max_tokens' is not supported with this model. Use 'max_completion_tokens' instead.",
     {"newer_name": True}),
    ("max_tokens is too large: 32768. This model supports at most 16384 completion tokens, whereas you provided 32768.",
     {"most": 16384}),
    ("max_tokens: 32768 > 4096, which is the maximum allowed number of output tokens for this model", {"most": 4096}),
    ("This model's maximum context length is 8192 tokens. However, you requested 36864 tokens",
     {"rooms": ((900, 4056),)}),
    ("maximum context length is 8192 tokens. However, you requested 35000 tokens (2232 in the messages, 32768 in the "
     "completion).", {"rooms": ((900, 5920),)}),
    ("'max_tokens' is too large: 32768. This model's maximum context length is 16384 tokens and your request has 4000 "
     "input tokens (32768 > 16384 - 4000).", {"rooms": ((900, 12303),)}),
    ("The context window of this model is exceeded.", {"rooms": ((900, 16384),)}),
    ("Unsupported value: 'temperature' does not support 0.7 here.", {"left_out": frozenset({"temperature"})}),
    ('{"detail":[{"type":"extra_forbidden","loc":["body","seed"],"msg":"Extra inputs are not permitted"}]}',
     {"left_out": frozenset({"seed"})}),
    ("This model only support stream mode, please enable the stream parameter to access the model.", {"streams": True}),
    ("System role not supported", {"no_system": True}),
    ("Developer instruction is not enabled for this system message role: not supported", {"no_system": True}),
]  # fmt: skip


@pytest.mark.parametrize(("body", "changed"), REFUSALS)
def test_a_refusal_says_what_to_change(body: str, changed: dict[str, object]) -> None:
    """One thing each, and nothing else."""
    manner = mended(Manner(newer_name=False), 400, body, SENT, 32768, 900)
    assert Manner(**({"newer_name": False} | changed)) == manner  # type: ignore[arg-type]


@pytest.mark.parametrize(("status", "body"), [(401, "Incorrect API key"), (404, "The model `x` does not exist"),
                                              (400, "Your request was rejected by our safety system")])  # fmt: skip
def test_a_refusal_that_names_nothing_changes_nothing(status: int, body: str) -> None:
    """A key that is wrong stays wrong."""
    assert mended(Manner(), status, body, SENT, 32768) is None


@pytest.mark.parametrize(
    "body",
    ["This model's maximum context length is 4096 tokens. However, you requested 41000 tokens (8232 in the messages, "
     "32768 in the completion).",
     '{"error":{"code":400,"message":"the request exceeds the available context size (4096 tokens), try increasing '
     'it","type":"exceed_context_size_error","n_prompt_tokens":9000,"n_ctx":4096}}'],
)  # fmt: skip
def test_a_request_that_is_too_long_by_itself_is_not_sent_again(body: str) -> None:
    """No shorter reply makes room for it: five more attempts would be five more refusals."""
    assert mended(Manner(), 400, body, SENT, 32768, 40_000) is None


def test_what_a_long_request_left_room_for_does_not_bind_a_short_one() -> None:
    """The longest reply of the model binds all of them."""
    manner = Manner(most=9000, rooms=((1000, 4000), (5000, 600)))
    assert [9000, 4000, 600, 512] == [
        manner.room(a, s) for a, s in ((16384, 999), (16384, 4999), (16384, 5000), (512, 9))
    ]


def test_two_that_were_refused_at_once_both_try_again() -> None:
    """The second refusal of one setting, for a request that was on its way already, is worth another attempt too."""
    once = mended(Manner(), 400, "no temperature", SENT, 64)
    assert once is not None
    assert once == mended(once, 400, "no temperature", SENT, 64)
    assert mended(once, 400, "no temperature", ("max_tokens",), 64) is None


def test_how_long_to_wait_is_read_wherever_it_is_said() -> None:
    """Headers first, then words, then a usual window for a server that is busy."""
    at = email.utils.format_datetime(datetime.datetime.now(datetime.UTC) + datetime.timedelta(seconds=30))
    assert 0.35 == pytest.approx(patience(429, {"Retry-After-Ms": "350"}, ""))
    assert 7.0 == patience(503, {"retry-after": "7"}, "")
    assert 20.0 < patience(429, {"retry-after": at}, "") <= 30.0
    assert 83.5 == patience(429, {}, "Rate limit reached. Please try again in 1m23.5s.")
    assert (BUSY_S, 0.0) == (patience(429, {}, "busy"), patience(500, {}, "busy"))


@pytest.mark.parametrize(
    ("status", "body", "wait", "again"),
    [(429, "slow down", 1.0, True), (429, "You exceeded your current quota", 1.0, False), (429, "", 3600.0, False),
     (529, "", 0.0, True), (524, "", 0.0, True), (501, "", 0.0, False), (403, "", 0.0, False)],
)  # fmt: skip
def test_what_passes_by_itself(status: int, body: str, wait: float, again: bool) -> None:
    """Busy servers and broken gateways, not empty purses and closed doors."""
    assert again == passes(status, body, wait)
