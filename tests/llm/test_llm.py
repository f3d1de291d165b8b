# SPDX-License-Identifier: Apache-2.0
"""Budgets that cannot be overrun, retries, records and replay, against a real HTTP server on loopback."""

from __future__ import annotations

import threading
from pathlib import Path
from types import SimpleNamespace

import pytest
from llm_doubles import ASK, CODE, Priced, speaker

from kernelwright.errors import BudgetSpent, ModelError
from kernelwright.llm import (
    Budget,
    Limits,
    Memory,
    Message,
    ModelFailure,
    Recorder,
    Speaker,
    Spent,
    read_record,
    spent,
)
from kernelwright.llm import budget as budget_module
from kernelwright.model_server import ScriptedServer

pytest.importorskip("pydantic_ai", reason="the llm extra is not installed")

FAULTS = ["429", "500", "503", "529", "truncated", "malformed", "not-json", "drop", "hang", "no-choices"]


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_on_the_wire_is_retried_and_counted(fault: str) -> None:
    """One bad answer, then a good one: the reply arrives, and the budget has counted both requests."""
    with ScriptedServer([fault, "ok"], CODE, hang_s=3.0) as server:
        voice = speaker(server, Limits(requests=5), fault=fault)
        reply = voice.say(ASK, role="coder", max_tokens=64)
        assert (CODE in reply.text, 2, 2) == (True, server.requests, voice.budget.spent().requests)


def test_a_million_characters_of_prose_arrive_whole() -> None:
    """A reply of 1 MB is a reply; what to do with it is the parser's affair."""
    with ScriptedServer(["prose"], CODE) as server:
        assert len(speaker(server, Limits()).say(ASK, role="coder").text) > 990_000


def test_no_request_is_sent_beyond_the_limit() -> None:
    """Eight threads, room for five requests: the server sees exactly five and three are told the budget is spent."""
    with ScriptedServer(["ok"], CODE) as server:
        voice, refused = speaker(server, Limits(requests=5)), []

        def ask() -> None:
            try:
                voice.say(ASK, role="coder", max_tokens=64)
            except BudgetSpent as error:
                refused.append(str(error))

        threads = [threading.Thread(target=ask) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert (5, 3) == (server.requests, len(refused))


def test_money_in_flight_counts() -> None:
    """A request whose worst case does not fit is refused before it is sent, though the money is not yet spent."""
    budget = Budget(Limits(usd=1.0))
    held = budget.reserve(700, 0.7)
    with pytest.raises(BudgetSpent, match="dollars"):
        budget.reserve(700, 0.7)
    budget.settle(held, 100, 0.1)
    budget.reserve(700, 0.7)
    assert 0.1 == pytest.approx(budget.spent().usd or 0)


def test_failed_attempts_are_charged_for_their_input() -> None:
    """A provider may bill what was sent; the budget never assumes it did not."""
    model = Priced("busy", "ok")
    voice = Speaker(model, Budget(Limits()), patience=0.0)
    voice.say([Message(role="user", text="x" * 200)], role="coder", max_tokens=50)
    assert (2, 116 + 60) == (voice.budget.spent().requests, voice.budget.spent().tokens)


@pytest.mark.parametrize("fault", FAULTS)
def test_a_reply_that_got_lost_is_charged_in_full_and_a_refusal_for_what_was_sent(fault: str, tmp_path: Path) -> None:
    """Who times out, breaks off or sends what cannot be read has written a reply, and will send a bill for it."""
    with ScriptedServer([fault, "ok"], CODE, hang_s=3.0) as server:
        voice = speaker(server, Limits(), tmp_path / "llm.jsonl", fault)
        reply = voice.say(ASK, role="coder", max_tokens=64)
    sent, tried = list(read_record(tmp_path / "llm.jsonl"))[:2]
    assert sent["tokens"] - (64 if fault.isdigit() else 0) == tried["tokens"]
    assert tried["tokens"] + reply.input_tokens + reply.output_tokens == voice.budget.spent().tokens


def test_nobody_bills_a_request_that_reached_nobody() -> None:
    """A connection that is refused: the reply was never on its way."""
    from kernelwright.llm.provider import ProviderModel

    model = ProviderModel("local:x", key=None, base_url="http://127.0.0.1:9/v1")
    with pytest.raises(ModelFailure) as caught:
        model.complete(ASK, max_tokens=64, temperature=0.0, seed=0)
    assert (False, True) == (caught.value.billed, caught.value.temporary)


def test_an_unknown_price_is_unknown_and_never_zero() -> None:
    """Without a price the spending is None, and a dollar limit refuses to start."""
    with ScriptedServer(["ok"], CODE) as server:
        voice = speaker(server, Limits())
        voice.say(ASK, role="coder", max_tokens=64)
        assert voice.budget.spent().usd is None
        with pytest.raises(BudgetSpent, match="known price"):
            speaker(server, Limits(usd=1.0)).say(ASK, role="coder")
        assert 1 == server.requests


def test_a_permanent_failure_is_not_retried() -> None:
    """A wrong key stays wrong: one request, one clear error."""
    model = Priced("bad key")
    with pytest.raises(ModelError, match="bad key"):
        Speaker(model, Budget(Limits()), patience=0.0).say(ASK, role="coder")
    assert 1 == model.calls


def test_a_record_replays_to_the_same_replies_without_a_model(tmp_path: Path) -> None:
    """Equal requests get their replies in recorded order; one never made ends the replay and is remembered with what
    was asked in its place."""
    path = tmp_path / "llm.jsonl"
    with ScriptedServer(["ok", "429", "ok"], [CODE, CODE + "  # second"]) as server:
        voice = speaker(server, Limits(), path)
        first = [voice.say(ASK, role="coder", max_tokens=64).text for _ in range(2)]
    memory = Memory(path)
    again = Speaker(Priced(), Budget(Limits()), memory=memory, offline=True)
    again.model.name = "local:scripted"
    assert first[0] == again.say(ASK, role="coder", max_tokens=64).text != first[1]
    with pytest.raises(BudgetSpent, match="record ends here"):
        again.say(ASK, role="coder", max_tokens=65)
    (missed,) = memory.unheard()
    assert ("coder", "coder", ASK, ASK) == (missed.role, missed.recorded_role, missed.messages, missed.recorded)
    assert first[1] == again.say(ASK, role="coder", max_tokens=64).text
    assert "" == memory.unheard()[0].recorded_role, "nothing is left that was not asked again"


def test_a_line_cut_off_by_a_crash_is_passed_over(tmp_path: Path) -> None:
    """The record survives a kill in the middle of a write."""
    path = tmp_path / "llm.jsonl"
    Recorder(path).write({"request": "a", "reply": None})
    with path.open("a") as file:
        file.write('{"request": "b", "rep')
    assert ["a"] == [entry["request"] for entry in read_record(path)]


def test_a_key_appears_nowhere(tmp_path: Path) -> None:
    """A canary key is sent to the server and found in no record, error or representation."""
    from kernelwright.llm.provider import ProviderModel

    canary, path = "sk-canary-7461", tmp_path / "llm.jsonl"
    with ScriptedServer(["500"], CODE) as server:
        model = ProviderModel("openai:gpt-4o", key=canary, base_url=server.base_url, timeout_s=1.0)
        voice = Speaker(model, Budget(Limits(requests=2)), Recorder(path), patience=0.0)
        with pytest.raises((ModelError, BudgetSpent)) as caught:
            voice.say(ASK, role="coder", max_tokens=16)
    assert canary not in path.read_text() + repr(model) + str(caught.value) + repr(caught.value)


def test_what_is_remembered_is_not_asked_again_and_costs_nothing(tmp_path: Path) -> None:
    """A new speaker on the same record gives the first reply for free, failures before it included, then asks."""
    path = tmp_path / "llm.jsonl"
    with pytest.raises(ModelError):
        Speaker(Priced("bad key"), Budget(Limits()), Recorder(path), patience=0.0).say(ASK, role="coder", max_tokens=65)
    Speaker(Priced("busy", "ok"), Budget(Limits()), Recorder(path), patience=0.0).say(ASK, role="coder", max_tokens=64)
    model = Priced()
    again = Speaker(model, Budget(Limits()), memory=Memory(path))
    assert "x" == again.say(ASK, role="coder", max_tokens=64).text
    with pytest.raises(ModelError, match="bad key"):
        again.say(ASK, role="coder", max_tokens=65)
    assert (0, 3, 0) == (model.calls, again.meter.requests, again.budget.spent().requests)
    again.say(ASK, role="coder", max_tokens=64)
    assert 1 == model.calls


def test_a_failure_after_the_last_reply_is_asked_anew_and_a_replay_hears_what_came_of_it(tmp_path: Path) -> None:
    """Twice in vain, then with success: the meter of each session and of the replay counts all three; offline nothing
    is sent, and what failed last has failed."""
    path, most = tmp_path / "llm.jsonl", 65
    met = []
    for model in (Priced("bad key"), Priced("bad key"), Priced("ok")):
        offline = Speaker(model, Budget(Limits()), memory=Memory(path), offline=True)
        with pytest.raises(ModelError if met else BudgetSpent):
            offline.say(ASK, role="coder", max_tokens=most)
        voice = Speaker(model, Budget(Limits()), Recorder(path), patience=0.0, memory=Memory(path))
        try:
            voice.say(ASK, role="coder", max_tokens=most)
        except ModelError:
            pass
        met.append((model.calls, voice.meter.requests))
    again = Speaker(Priced(), Budget(Limits()), memory=Memory(path), offline=True)
    assert "x" == again.say(ASK, role="coder", max_tokens=most).text
    assert [(1, 1), (1, 2), (1, 3)] == met
    assert (3, voice.meter) == (again.meter.requests, again.meter)


def test_equal_requests_that_failed_are_asked_anew_each_in_its_place(tmp_path: Path) -> None:
    """Two of one text failed; asked anew the first fails again and the second answers: a replay hears that order."""
    path = tmp_path / "llm.jsonl"
    for model in (Priced("one", "two"), Priced("three", "ok")):
        voice = Speaker(model, Budget(Limits()), Recorder(path), patience=0.0, memory=Memory(path))
        with pytest.raises(ModelError):
            voice.say(ASK, role="coder")
        try:
            voice.say(ASK, role="coder")
        except ModelError:
            pass
        assert 2 == model.calls
    again = Speaker(Priced(), Budget(Limits()), memory=Memory(path), offline=True)
    with pytest.raises(ModelError, match="three"):
        again.say(ASK, role="coder")
    assert "x" == again.say(ASK, role="coder").text


def test_a_failure_that_cannot_be_asked_anew_stays_one(tmp_path: Path) -> None:
    """No request is left: the run goes on from what is recorded instead of ending here."""
    path, model = tmp_path / "llm.jsonl", Priced()
    with pytest.raises(ModelError):
        Speaker(Priced("bad key"), Budget(Limits()), Recorder(path), patience=0.0).say(ASK, role="coder")
    voice = Speaker(model, Budget(Limits(requests=1), spent(path)), Recorder(path), memory=Memory(path))
    with pytest.raises(ModelError, match="bad key"):
        voice.say(ASK, role="coder")
    assert 0 == model.calls


def test_offline_a_request_without_an_answer_ends_the_record(tmp_path: Path) -> None:
    """A replay sends nothing."""
    model = Priced()
    with pytest.raises(BudgetSpent, match="record ends"):
        Speaker(model, Budget(Limits()), memory=Memory(tmp_path / "none"), offline=True).say(ASK, role="coder")
    assert 0 == model.calls


def test_a_budget_is_restored_from_its_record_with_what_was_in_flight(tmp_path: Path) -> None:
    """One answered, one failed, one sent and never heard of again: that one counts at its worst case."""
    path = tmp_path / "llm.jsonl"
    voice = Speaker(Priced("busy", "ok"), Budget(Limits()), Recorder(path), patience=0.0)
    voice.say(ASK, role="coder", max_tokens=64)
    before = voice.budget.spent()
    assert (before.requests, before.tokens, before.usd) == (spent(path).requests, spent(path).tokens, spent(path).usd)
    Recorder(path).write({"sent": "lost", "request": "k", "tokens": 1000, "usd": 1.0, "at": 1.0})
    after = spent(path)
    assert (before.requests + 1, before.tokens + 1000) == (after.requests, after.tokens)
    assert 1.0 == pytest.approx((after.usd or 0.0) - (before.usd or 0.0))
    Recorder(path).write({"sent": "lost too", "request": "k", "tokens": 1, "usd": None, "at": 1.0})
    assert spent(path).usd is None


def test_time_is_counted_over_sessions(tmp_path: Path) -> None:
    """Two sessions of 10 s and 5 s with a night between them."""
    path = tmp_path / "llm.jsonl"
    for entry in ({"session": 1, "at": 100.0}, {"sent": "a", "request": "k", "tokens": 1, "usd": 0.0, "at": 110.0},
                  {"session": 1, "at": 9000.0}, {"sent": "b", "request": "k", "tokens": 1, "usd": 0.0, "at": 9005.0},
    ):  # fmt: skip
        Recorder(path).write(entry)
    assert 15.0 == spent(path).seconds


def test_a_half_line_does_not_swallow_the_next(tmp_path: Path) -> None:
    """A kill in the middle of a write; the run goes on with the same file."""
    path = tmp_path / "llm.jsonl"
    path.write_text('{"request": "b", "rep')
    Recorder(path).write({"request": "a", "reply": None})
    assert ["a"] == [entry["request"] for entry in read_record(path)]


def test_a_prompt_that_leaves_no_room_is_asked_for_a_shorter_reply() -> None:
    """Refused for the length of the context: the next attempt asks for what the numbers leave, then for half of it, and
    so does every request as long as that one; a shorter one is asked in full."""
    with ScriptedServer(["too-long", "too-long", "ok", "ok", "ok"], CODE) as server:
        voice = speaker(server, Limits())
        voice.say(ASK, role="coder", max_tokens=16384)
        voice.say(ASK, role="coder", max_tokens=16384, seed=1)
        voice.say([Message(role="user", text="?")], role="coder", max_tokens=16384)
        assert [16384, 8142, 4071, 4071, 16384] == [request["max_tokens"] for request in server.heard]


@pytest.mark.parametrize(("limits", "stops"), [(Limits(tokens=10_000_000), True), (Limits(requests=9), False)])
def test_after_a_reply_longer_than_asked_for_a_limit_of_tokens_ends_the_requests(
    tmp_path: Path, limits: Limits, stops: bool
) -> None:
    """The server took a million tokens where 64 were allowed: under a token limit that was the last request.

    Who goes on from the record is told the same; without such a limit nothing was promised and nothing ends."""
    with ScriptedServer(["overrun", "ok"], CODE) as server:
        voice = speaker(server, limits, tmp_path / "llm.jsonl")
        voice.say(ASK, role="coder", max_tokens=64)
        if not stops:
            voice.say(ASK, role="coder", max_tokens=64, seed=1)
            assert 2 == server.requests
            return
        with pytest.raises(BudgetSpent, match="ignores the limit on the length"):
            voice.say(ASK, role="coder", max_tokens=64, seed=1)
        assert (1, 1) == (server.requests, spent(tmp_path / "llm.jsonl").overruns)
        with pytest.raises(BudgetSpent, match="ignores the limit"):
            Budget(limits, spent(tmp_path / "llm.jsonl")).reserve(10, None)


def test_a_reply_that_does_not_say_what_it_took_is_charged_at_its_worst_case(tmp_path: Path) -> None:
    """Zero would never reach a limit; the record says the same to whoever goes on from it."""
    with ScriptedServer(["no-usage"], CODE) as server:
        voice = speaker(server, Limits(tokens=300), tmp_path / "llm.jsonl")
        assert not voice.say(ASK, role="coder", max_tokens=150).counted
        assert voice.budget.spent().tokens == spent(tmp_path / "llm.jsonl").tokens > 150
        with pytest.raises(BudgetSpent, match="tokens"):
            voice.say(ASK, role="coder", max_tokens=150, seed=1)
        assert 1 == server.requests


def test_an_empty_purse_is_not_waited_for() -> None:
    """A 429 that no waiting ends is one request."""
    with ScriptedServer(["no-quota", "ok"], CODE) as server, pytest.raises(ModelError, match="quota"):
        speaker(server, Limits()).say(ASK, role="coder", max_tokens=64)
    assert 1 == server.requests


def test_a_price_that_is_given_is_the_price() -> None:
    """Dollars per million tokens, for a model no list knows."""
    from kernelwright.llm.provider import ProviderModel

    model = ProviderModel("local:x", key=None, base_url="http://127.0.0.1:1/v1", price=(2.0, 10.0))
    assert 2.0 + 5.0 == pytest.approx(model.price(1_000_000, 500_000) or 0.0)


def test_the_clock_of_a_budget_starts_when_the_models_are_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    """An hour before that is not theirs; 50 s of an earlier session are, and 15 s more end it."""
    now = [0.0]
    monkeypatch.setattr(budget_module, "time", SimpleNamespace(monotonic=lambda: now[0]))
    budget = Budget(Limits(seconds=60.0), Spent(usd=0.0, tokens=0, requests=0, seconds=50.0))
    now[0] = 3600.0
    assert 50.0 == budget.spent().seconds
    budget.begin()
    now[0] += 5.0
    budget.begin()
    budget.reserve(1, None)
    now[0] += 10.0
    with pytest.raises(BudgetSpent, match="seconds"):
        budget.reserve(1, None)
    assert 65.0 == budget.spent().seconds


def test_what_is_held_is_committed() -> None:
    """A request that nobody waits for any more counts at its worst case, its unknown price too."""
    budget = Budget(Limits())
    budget.settle(budget.reserve(100, 0.1), 40, 0.04)
    held = budget.reserve(700, 0.7)
    left = budget.committed()
    assert (2, 740, pytest.approx(0.74)) == (left.requests, left.tokens, left.usd)
    budget.reserve(5, None)
    assert budget.committed().usd is None
    budget.settle(held, 10, 0.01)
    assert (3, 55, 50) == (budget.committed().requests, budget.committed().tokens, budget.spent().tokens)


def test_after_the_search_nothing_is_sent() -> None:
    """A thread that waited to try again finds the budget closed."""
    budget = Budget(Limits())
    budget.close("the search is over")
    with pytest.raises(BudgetSpent, match="No more requests"):
        budget.reserve(1, None)
