# SPDX-License-Identifier: Apache-2.0
"""Streams put together below the client library: pieces, thoughts, counts, failures midway and ends that never came."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from kernelwright import model_server
from kernelwright.llm import Budget, Limits, Message, Recorder, Speaker, read_record
from kernelwright.llm.streams import Broken, Joined, asked
from kernelwright.model_server import PROSE, ScriptedServer

pytest.importorskip("pydantic_ai", reason="the llm extra is not installed")


def taken(*events: dict[str, Any] | str) -> Joined:
    """A stream of these events."""
    made = Joined()
    for event in events:
        made.take("data: " + (event if isinstance(event, str) else json.dumps(event)))
    return made


def piece(finish: str | None = None, index: int = 0, **delta: Any) -> dict[str, Any]:
    """One event."""
    return {"id": "a", "model": "m", "choices": [{"index": index, "delta": delta, "finish_reason": finish}]}


def test_pieces_thoughts_and_counts_become_one_answer() -> None:
    """Text and reasoning are joined apart, other choices left out; what it took comes with the last event."""
    end = {"choices": [], "usage": {"prompt_tokens": 3, "completion_tokens": 4, "total_tokens": 7}}
    made = taken(piece(role="assistant", content=""), piece(reasoning_content="Hm"), piece(reasoning_content="m."),
                 piece(content="one "), piece(content="other", index=1), piece(content=[{"text": "two"}]),
                 piece("length"), end, "[DONE]")  # fmt: skip
    status, whole = made.answer()
    choice = whole["choices"][0]
    assert (200, "a", 7, "length") == (status, whole["id"], whole["usage"]["total_tokens"], choice["finish_reason"])
    assert {"role": "assistant", "content": "one two", "reasoning_content": "Hmm."} == choice["message"]


def test_comments_and_other_fields_of_a_stream_are_passed_over() -> None:
    """Servers send comments to keep a connection open, and events may have names."""
    made = Joined()
    for line in (": keep-alive", "", "event: message", "data:" + json.dumps(piece("stop", content="x"))):
        made.take(line)
    assert "x" == made.answer()[1]["choices"][0]["message"]["content"]


def test_a_failure_midway_is_one_and_half_a_stream_is_none() -> None:
    """An error in place of a piece has its words; a stream that just ends is broken, and so is one of noise."""
    status, body = taken(piece(content="x"), {"error": {"message": "overloaded"}}).answer()
    assert (500, "overloaded") == (status, body["error"]["message"])
    with pytest.raises(Broken, match="ended before"):
        taken(piece(content="x")).answer()
    for noise in ("{not json", "[1, 2]"):
        with pytest.raises(Broken, match="piece of the stream"):
            taken(noise)


def test_the_request_asks_for_a_stream_and_for_what_it_took() -> None:
    """Nothing else of it changes."""
    wanted = {"model": "m", "stream": True, "stream_options": {"include_usage": True}}
    assert wanted == json.loads(asked(b'{"model": "m", "stream": false}'))


def test_a_million_characters_are_streamed_whole() -> None:
    """A server that only streams refuses the first request and sends the second in pieces; all of them arrive."""
    from kernelwright.llm.provider import ProviderModel

    with ScriptedServer(["stream-only", "prose", "429", "ok"], "class ModelNew: pass") as server:
        model = ProviderModel("local:m", key=None, base_url=server.base_url)
        voice = Speaker(model, Budget(Limits()), patience=0.0)
        reply = voice.say([Message(role="user", text="one" * 40)], role="coder")
        again = voice.say([Message(role="user", text="two" * 40)], role="coder")
        assert [None, True, True, True] == [heard.get("stream") or None for heard in server.heard]
    assert (1_000_000 // len(PROSE) * len(PROSE), "stop") == (len(reply.text), reply.finish)
    assert reply.counted and "class ModelNew" in again.text


def test_what_came_before_a_failure_midway_is_paid_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Refused at once, failed before the first piece, failed after it, and given up by a gateway: the latter two may
    have been written to their end."""
    from kernelwright.llm.provider import ProviderModel

    end: dict[str, Any] = {"error": {"message": "overloaded"}}
    answers = [
        (400, json.dumps({"error": {"message": model_server.REFUSALS["stream-only"]}}), "application/json"),
        (200, f"data: {json.dumps(end)}\n\n", "text/event-stream"),
        (200, f"data: {json.dumps(piece(content='x'))}\n\ndata: {json.dumps(end)}\n\n", "text/event-stream"),
        (504, "{}", "application/json"),
        (200, f"data: {json.dumps(piece('stop', content='x'))}\n\ndata: [DONE]\n\n", "text/event-stream"),
    ]
    served = ((status, body.encode(), {"Content-Type": kind}) for status, body, kind in answers)
    monkeypatch.setattr(model_server, "_said", lambda *_: next(served))
    with ScriptedServer(["ok"], "") as server:
        model = ProviderModel("local:m", key=None, base_url=server.base_url)
        voice = Speaker(model, Budget(Limits()), Recorder(tmp_path / "llm.jsonl"), patience=0.0)
        voice.say([Message(role="user", text="?")], role="coder", max_tokens=64)
    tried = [entry["tokens"] for entry in read_record(tmp_path / "llm.jsonl") if "attempt" in entry]
    assert [16, 16, 16 + 64, 16 + 64] == tried[:4]
