# SPDX-License-Identifier: Apache-2.0
"""How servers are named and reached, and what is put otherwise where one wants it so."""

from __future__ import annotations

import threading

import pytest
from llm_doubles import ASK, CODE, speaker

from kernelwright.errors import ModelError
from kernelwright.llm import (
    Budget,
    Limits,
    Speaker,
)
from kernelwright.model_server import ScriptedServer

pytest.importorskip("pydantic_ai", reason="the llm extra is not installed")


@pytest.mark.parametrize(
    ("spec", "base_url", "match"),
    [
        ("gpt-4o", None, "PROVIDER:MODEL"),
        ("nobody:x", None, "PROVIDER"),
        ("openai:gpt-4o", None, "no key"),
        ("local:x", None, "address"),
    ],
)
def test_a_model_that_cannot_be_named_is_a_clear_error(spec: str, base_url: str | None, match: str) -> None:
    """Wrong form, unknown provider, no key, no address: each says what was expected."""
    from kernelwright.llm.provider import ProviderModel

    with pytest.raises(ModelError, match=match):
        ProviderModel(spec, key=None, base_url=base_url)


def test_a_setting_that_a_model_refuses_is_left_out() -> None:
    """A model without a temperature gets none, from the second attempt on."""
    with ScriptedServer(["no-temperature", "ok", "ok"], CODE) as server:
        voice = speaker(server, Limits())
        voice.say(ASK, role="coder", max_tokens=64)
        voice.say(ASK, role="coder", max_tokens=64, seed=1)
        assert [True, False, False] == ["temperature" in request for request in server.heard]


def test_local_servers_are_told_the_limit_by_the_name_they_know() -> None:
    """``max_tokens``; a server that ignores a newer name would know no limit at all."""
    with ScriptedServer(["ok"], CODE) as server:
        speaker(server, Limits()).say(ASK, role="coder", max_tokens=77)
        assert (77, False) == (server.heard[0]["max_tokens"], "max_completion_tokens" in server.heard[0])


def test_threads_share_the_open_connections_of_one_server() -> None:
    """A server that keeps connections open, as real ones do, asked from 4 threads at once, several times over."""
    with ScriptedServer(["ok"], CODE) as server:
        voice, said = speaker(server, Limits()), []

        def ask(first: int) -> None:
            said.extend(voice.say(ASK, role="coder", max_tokens=64, seed=first + n).text for n in range(6))

        threads = [threading.Thread(target=ask, args=(100 * n,)) for n in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert (24, 24, 0) == (len(said), server.requests, voice.budget.spent().overruns)


@pytest.mark.parametrize(
    ("refusal", "key", "then"),
    [("newer-limit", "max_completion_tokens", 64), ("stream-only", "stream", True), ("at-most", "max_tokens", 64)],
)
def test_what_a_server_wants_otherwise_is_put_otherwise(refusal: str, key: str, then: object) -> None:
    """Another name for the limit, a stream, a shorter reply: the second attempt and all later ones do as told."""
    with ScriptedServer([refusal, "ok", "ok"], CODE) as server:
        voice = speaker(server, Limits())
        length = 16384 if refusal == "at-most" else 64
        replies = [voice.say(ASK, role="coder", max_tokens=length, seed=n) for n in range(2)]
        wanted = 4096 if refusal == "at-most" else then
        assert [wanted, wanted] == [request.get(key) for request in server.heard[1:]]
        assert all(CODE in reply.text and reply.counted for reply in replies)


@pytest.mark.parametrize("ending", ["", "/", "/v1", "/v1/", "/v1/chat/completions", "without a scheme"])
def test_an_address_is_understood_as_people_write_it(ending: str) -> None:
    """With the version or without, with a slash, with the whole path, without a scheme; later requests go straight."""
    from kernelwright.llm.provider import ProviderModel

    with ScriptedServer(["ok"], CODE) as server:
        root = server.base_url.removesuffix("/v1")
        given = root.removeprefix("http://") if ending == "without a scheme" else root + ending
        voice = Speaker(ProviderModel("local:m", key=None, base_url=given), Budget(Limits()), patience=0.0)
        replies = [voice.say(ASK, role="coder", max_tokens=64, seed=seed) for seed in range(2)]
    spare = 1 if ending in ("", "/", "without a scheme") else 0
    assert all(CODE in reply.text for reply in replies)
    assert (2, 2 + spare) == (server.requests, voice.budget.spent().requests)


def test_a_proxy_is_used_and_never_on_the_way_to_this_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    """A dead proxy in the environment does not keep us from a local server; a living one is asked for other hosts."""
    from kernelwright.llm.provider import ProviderModel

    for name in ("NO_PROXY", "no_proxy", "ALL_PROXY", "all_proxy"):
        monkeypatch.delenv(name, raising=False)
    with ScriptedServer(["ok"], CODE) as server:
        monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:9")
        monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")
        assert CODE in speaker(server, Limits()).say(ASK, role="coder", max_tokens=64).text
        monkeypatch.setenv("HTTP_PROXY", server.base_url.removesuffix("/v1"))
        monkeypatch.setenv("http_proxy", server.base_url.removesuffix("/v1"))
        far = ProviderModel("local:m", key=None, base_url="http://model.invalid/v1", timeout_s=5.0)
        with pytest.raises(ModelError, match="HTTP 404"):
            Speaker(far, Budget(Limits()), patience=0.0).say(ASK, role="coder", max_tokens=64)


@pytest.mark.parametrize("given", ["ftp://host/v1", "http://", "http://host:port/v1"])
def test_what_is_no_address_is_said_at_once(given: str) -> None:
    """Before any request."""
    from kernelwright.llm.provider import ProviderModel

    with pytest.raises(ModelError, match="no address"):
        ProviderModel("local:m", key=None, base_url=given)


def test_names_without_a_scheme_are_taken_for_what_they_are() -> None:
    """A name with a dot and no port is somewhere else, and spoken to in private."""
    from kernelwright.llm.address import tidy

    found = [tidy(text) for text in ("localhost:1", "10.0.0.2", "api.example.com/v1", "box:8000/v1/")]
    assert ["http://localhost:1", "http://10.0.0.2", "https://api.example.com/v1", "http://box:8000/v1"] == found


def test_a_model_without_a_system_message_reads_the_rules_first() -> None:
    """The rules stand at the head of the first question from then on."""
    with ScriptedServer(["no-system", "ok"], CODE) as server:
        speaker(server, Limits()).say(ASK, role="coder", max_tokens=64)
        said = [(turn["role"], turn["content"]) for turn in server.heard[1]["messages"]]
        assert [("user", "You write kernels.\n\nA faster relu, please.")] == said


def test_reasoning_beside_the_text_is_kept_apart_and_paid_for() -> None:
    """Thoughts in a field of their own: not in the text, in the record, and counted where only the total has them."""
    with ScriptedServer(["reasoning", "ok"], CODE) as server:
        voice = speaker(server, Limits())
        first, second = (voice.say(ASK, role="coder", max_tokens=640, seed=n) for n in range(2))
        assert ("well known" in first.thoughts, "well known" in first.text) == (True, False)
        assert first.output_tokens > second.output_tokens + 100


def test_a_text_in_parts_is_one_text() -> None:
    """``content`` as a list."""
    with ScriptedServer(["parts"], CODE) as server:
        assert f"Here it is.\n```python\n{CODE}\n```" == speaker(server, Limits()).say(ASK, role="coder").text
