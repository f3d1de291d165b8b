# SPDX-License-Identifier: Apache-2.0
"""Servers that mean well and answer oddly: what is read, what is asked again, and what every budget says of it."""

from __future__ import annotations

from pathlib import Path

import pytest
from llm_doubles import ASK, speaker

from kernelwright.errors import BudgetSpent, ModelError
from kernelwright.llm import Budget, Limits, Recorder, Speaker, read_record
from kernelwright.model_server import ScriptedServer
from kernelwright.proposers.agent import AgentProposer, Ask, Malformed
from kernelwright.task import Task

pytest.importorskip("pydantic_ai", reason="the llm extra is not installed")

CODE = "import torch\nclass ModelNew(torch.nn.Module):\n    pass\n"
LENGTH = 640
READ = ["thoughts-only", "surrogates", "odd-ending", "half-usage", "negative-usage", "cached-usage", "padded", "bom",
        "json-code", "tool-calls", "apart-usage", "bare"]  # fmt: skip
UNREAD = {"refusal": "refused, or ended by a filter", "filtered": "ended by a filter"}
AGAIN = ["latin-1", "stream-anyway", "429-date", "null-message"]


def voice(one: Speaker) -> AgentProposer:
    """A coder over this speaker."""
    task = Task(name="t", form="kernelbench", reference="class Model: pass")
    return AgentProposer(speaker=one, task=task, device="cpu", machine=None, language="torch", max_tokens=LENGTH)


@pytest.mark.parametrize("behaviour", READ)
def test_an_odd_reply_with_a_program_is_read(behaviour: str, tmp_path: Path) -> None:
    """One request; the program can be written to a file, and the record has it."""
    with ScriptedServer([behaviour], CODE) as server:
        coder = voice(speaker(server, Limits(), tmp_path / "llm.jsonl"))
        candidate = coder.propose(Ask(kind="new"))
        assert 1 == server.requests
    (tmp_path / "kernel.py").write_text(candidate.sources[0][1], encoding="utf-8")
    assert "class ModelNew" in list(read_record(tmp_path / "llm.jsonl"))[-1]["reply"]["text"]


@pytest.mark.parametrize("behaviour", sorted(UNREAD))
def test_an_odd_reply_without_a_program_says_why(behaviour: str) -> None:
    """The next request tells the model what was wrong with it."""
    with ScriptedServer([behaviour], CODE) as server, pytest.raises(Malformed, match=UNREAD[behaviour]):
        voice(speaker(server, Limits())).propose(Ask(kind="new"))


@pytest.mark.parametrize("behaviour", AGAIN)
def test_what_cannot_be_read_at_all_is_asked_again(behaviour: str) -> None:
    """Another charset than the one declared, a stream nobody wanted, a date to come back at, no message."""
    with ScriptedServer([behaviour, "ok"], CODE) as server:
        voice(speaker(server, Limits())).propose(Ask(kind="new"))
        assert 2 == server.requests


@pytest.mark.parametrize("behaviour", ["half-usage", "negative-usage"])
def test_counts_that_cannot_be_are_charged_in_full(behaviour: str) -> None:
    """A reply never gives anything back to the budget, or costs nothing."""
    with ScriptedServer([behaviour], CODE) as server:
        one = speaker(server, Limits(tokens=2000))
        for seed in range(2):
            one.say(ASK, role="coder", max_tokens=LENGTH, seed=seed)
        assert 2 * (LENGTH + 52) == one.budget.spent().tokens
        with pytest.raises(BudgetSpent):
            one.say(ASK, role="coder", max_tokens=LENGTH, seed=2)
        assert 2 == server.requests


def test_reasoning_beside_the_reply_is_counted_and_an_error_with_status_200_is_one() -> None:
    """Billed tokens that the reply's count leaves out; the words of the server instead of those of a parser."""
    with ScriptedServer(["apart-usage"], CODE) as server:
        one = speaker(server, Limits())
        one.say(ASK, role="coder", max_tokens=LENGTH)
        assert 50 + 9 + 500 == one.budget.spent().tokens
    with ScriptedServer(["error-200"], CODE) as server:
        with pytest.raises(ModelError, match="HTTP 503.*scripted overload"):
            speaker(server, Limits()).say(ASK, role="coder", max_tokens=LENGTH)
        assert 6 == server.requests


def test_a_count_beyond_all_bounds_ends_what_can_be_limited() -> None:
    """It is counted as said, once, and nothing more is sent under a limit of tokens."""
    with ScriptedServer(["huge-usage"], CODE) as server:
        one = speaker(server, Limits(tokens=10**6))
        one.say(ASK, role="coder", max_tokens=LENGTH)
        with pytest.raises(BudgetSpent, match="ignores the limit"):
            one.say(ASK, role="coder", max_tokens=LENGTH, seed=1)
        assert (1, 1) == (server.requests, one.budget.spent().overruns)


@pytest.mark.parametrize("behaviour", ["ok", "cached-usage"])
def test_a_dollar_limit_holds_where_counts_have_no_price(behaviour: str, tmp_path: Path) -> None:
    """More tokens read from a cache than were sent: no list prices that, so the reservation is what it cost."""
    from kernelwright.llm.provider import ProviderModel

    with ScriptedServer([behaviour], CODE) as server:
        model = ProviderModel("openai:gpt-4o", key="k", base_url=server.base_url)
        most = model.price(52, LENGTH)
        assert most is not None
        one = Speaker(model, Budget(Limits(usd=2.5 * most)), Recorder(tmp_path / "llm.jsonl"), patience=0.0)
        paid = 0
        with pytest.raises(BudgetSpent, match="dollars"):
            for paid in range(300):
                one.say(ASK, role="coder", max_tokens=LENGTH, seed=paid)
    spent = one.budget.spent().usd
    assert spent is not None and 1.5 * most < spent <= 2.5 * most
    assert (paid == 2) == (behaviour == "cached-usage")


def test_a_server_that_sends_us_on_is_not_followed() -> None:
    """Prompts go where the user pointed and nowhere else; the error names the other place, after one request."""
    with ScriptedServer(["moved"], CODE) as server:
        with pytest.raises(ModelError, match=r"HTTP 307: the server is at http://elsewhere\.invalid"):
            speaker(server, Limits()).say(ASK, role="coder")
        assert 1 == server.requests


def test_an_address_below_a_path_keeps_it() -> None:
    """A gateway that serves several providers, each below its own path."""
    from kernelwright.llm.provider import ProviderModel

    with ScriptedServer(["ok"], CODE) as server:
        below = server.base_url.replace("/v1", "/gateway/openai/v1")
        model = ProviderModel("local:m", key=None, base_url=f"{below}/")
        one = Speaker(model, Budget(Limits()), patience=0.0)
        assert CODE.strip() in one.say(ASK, role="coder", max_tokens=LENGTH).text
        assert (1, 1) == (server.requests, one.budget.spent().requests)


def test_a_stream_that_is_kept_alive_by_comments_arrives() -> None:
    """Comments between the pieces, as gateways send them while a model thinks."""
    with ScriptedServer(["stream-only", "ok"], CODE) as server:
        reply = speaker(server, Limits()).say(ASK, role="coder", max_tokens=LENGTH)
        assert (CODE.strip() in reply.text, True) == (True, server.heard[1]["stream"])
