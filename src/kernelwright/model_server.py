# SPDX-License-Identifier: Apache-2.0
"""A scripted language-model server on loopback, for tests and rehearsals: OpenAI's wire form, any manners you like.

``python -m kernelwright.model_server --port 8321 --script 429,500,ok --answer kernel.py`` then
``kernelwright optimize FILE --llm local:scripted --base-url http://127.0.0.1:8321/v1``.
Each request takes the next behaviour of the script, which repeats. ``GET /stats`` counts what was served.
"""

from __future__ import annotations

import argparse
import email.utils
import json
import sys
import threading
import time
from collections.abc import Callable, Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

PROSE = "It is well known that a kernel should be fast. "
SHAPES: dict[str, Callable[[str], str]] = {
    "ok": lambda code: f"Here is the kernel.\n```python\n{code}\n```\n",
    "empty": lambda code: "",
    "prose": lambda code: PROSE * (1_000_000 // len(PROSE)),
    "three-fences": lambda code: f"```\nnot this\n```\nfirst idea\n```python\npass\n```\nfinal\n```python\n{code}\n```",
    "no-fence": lambda code: code,
    "wrong-language": lambda code: '```rust\nfn main() { println!("fast"); }\n```',
    "syntax-error": lambda code: f"```python\n{code}\n    oops(:\n```",
    "cut-off": lambda code: f"```python\n{code[: len(code) // 2]}",
    "think": lambda code: f"<think>\nA draft:\n```python\nclass ModelNew: ...\n```\n</think>\n```python\n{code}\n```",
    "reasoning": lambda code: f"```python\n{code}\n```",
    "parts": lambda code: f"Here it is.\n```python\n{code}\n```",
    "length": lambda code: "Let me think about the memory first. " * 40,
    "no-usage": lambda code: f"```python\n{code}\n```",
    "tool-calls": lambda code: code,
    "thoughts-only": lambda code: f"```python\n{code}\n```",
    "refusal": lambda code: "I cannot help with that.",
    "filtered": lambda code: f"```python\n{code[: len(code) // 2]}",
    "json-code": lambda code: json.dumps({"files": [{"path": "kernel.py", "content": code}]}),
    "surrogates": lambda code: f"\ud800 half a letter\n```python\n{code}\n# \udfff\n```",
    "odd-ending": lambda code: f"```python\n{code}\n```",
    "half-usage": lambda code: f"```python\n{code}\n```",
    "negative-usage": lambda code: f"```python\n{code}\n```",
    "cached-usage": lambda code: f"```python\n{code}\n```",
    "huge-usage": lambda code: f"```python\n{code}\n```",
    "padded": lambda code: f"```python\n{code}\n```",
    "bom": lambda code: f"```python\n{code}\n```",
    "latin-1": lambda code: f"\u00e9l\u00e9gant\n```python\n{code}\n```",
    "apart-usage": lambda code: f"```python\n{code}\n```",
    "bare": lambda code: f"```python\n{code}\n```",
    "stream-anyway": lambda code: f"```python\n{code}\n```",
}
"""Behaviour name to what the reply says, given the right answer."""
REFUSALS = {
    "too-long": "This model's maximum context length is {context} tokens. However, you requested {whole} tokens.",
    "no-temperature": "Unsupported value: 'temperature' does not support 0.7 with this model.",
    "newer-limit": "Unsupported parameter: 'max_tokens' is not supported with this model. Use 'max_completion_tokens'.",
    "older-limit": "Unrecognized request argument supplied: max_completion_tokens",
    "stream-only": "This model only support stream mode, please enable the stream parameter to access the model.",
    "no-system": "System role not supported",
    "at-most": "max_tokens is too large: 16384. This model supports at most 4096 completion tokens.",
}
"""Behaviour name to what an answer with status 400 says: the request can be put otherwise."""
CONTEXT = 8192
"""Tokens of prompt and reply together that the double says it takes, where it refuses by "too-long"."""
FAULTS = (
    "401", "404", "429", "500", "503", "529", "hang", "truncated", "malformed", "not-json", "drop", "overrun",
    "no-choices", "error-200", "no-quota", "429-date", "null-message", "moved", *REFUSALS,
)  # fmt: skip
USAGES: dict[str, dict[str, Any]] = {
    "half-usage": {"prompt_tokens": None, "completion_tokens": "many", "total_tokens": 7.5},
    "negative-usage": {"prompt_tokens": 50, "completion_tokens": -1_000_000, "total_tokens": -999_950},
    "cached-usage": {"prompt_tokens": 50, "completion_tokens": 9, "total_tokens": 59,
                     "prompt_tokens_details": {"cached_tokens": 1_000_000}},
    "apart-usage": {"prompt_tokens": 50, "completion_tokens": 9, "total_tokens": None,
                    "completion_tokens_details": {"reasoning_tokens": 500}},
    "huge-usage": {"prompt_tokens": 10**18, "completion_tokens": 10**18, "total_tokens": 2 * 10**18},
}  # fmt: skip
"""Behaviour name to counts that cannot be, or are odd: tokens of reasoning beside those of the reply."""
HANG_S = 30.0
PATH = "/v1/chat/completions"
PATHS = (PATH, f"/gateway/openai{PATH}")
"""The places that answer; others are not found, as at any server."""


class ScriptedServer:
    """Runs in a thread of this process; ``with ScriptedServer(["429", "ok"], answer) as server: server.base_url``."""

    def __init__(
        self, script: Sequence[str], answer: str | Sequence[str], port: int = 0, hang_s: float = HANG_S
    ) -> None:
        unknown = [name for name in script if name not in SHAPES and name not in FAULTS]
        if unknown:
            raise ValueError(f"unknown behaviours {unknown}; known: {[*SHAPES, *FAULTS]}")
        self.script = list(script)
        self.answers = [answer] if isinstance(answer, str) else list(answer)
        self.hang_s = hang_s
        self.refused: set[str] = set()
        """Models that are answered with 401, outside the script."""
        self.served: dict[str, int] = {}
        self.heard: list[dict[str, Any]] = []
        self._count = 0
        self._taken = 0
        self._right = 0
        self._lock = threading.Lock()
        self._http = ThreadingHTTPServer(("127.0.0.1", port), _handler(self))
        self._http.daemon_threads = True
        self._thread = threading.Thread(target=self._http.serve_forever, daemon=True)

    @property
    def base_url(self) -> str:
        """What to give as --base-url."""
        return f"http://127.0.0.1:{self._http.server_address[1]}/v1"

    @property
    def requests(self) -> int:
        """Completion requests received, whatever was answered."""
        return self._count

    def take(self, request: dict[str, Any]) -> tuple[str, str]:
        """(behaviour, right answer) for the next request."""
        with self._lock:
            self._count += 1
            if request.get("model") in self.refused:
                return "401", ""
            behaviour = self.script[self._taken % len(self.script)]
            self._taken += 1
            self.served[behaviour] = self.served.get(behaviour, 0) + 1
            self.heard.append(request)
            answer = self.answers[self._right % len(self.answers)]
            if behaviour in SHAPES:
                self._right += 1
            return behaviour, answer

    def __enter__(self) -> ScriptedServer:
        self._thread.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self._http.shutdown()
        self._http.server_close()

    def serve_forever(self) -> None:
        """Block until interrupted."""
        self._thread.start()
        self._thread.join()


def _heard(request: dict[str, Any]) -> int:
    """Tokens of a request, plausibly."""
    return sum(len(str(message.get("content", ""))) for message in request.get("messages", [])) // 4


def _wanted(request: dict[str, Any]) -> int:
    return int(request.get("max_tokens") or request.get("max_completion_tokens") or 0)


def completion(text: str, request: dict[str, Any], behaviour: str = "ok") -> dict[str, Any]:
    """A chat completion in OpenAI's form, with plausible counts."""
    heard = _heard(request)
    data: dict[str, Any] = {
        "id": "scripted",
        "object": "chat.completion",
        "created": 0,
        "model": request.get("model", "scripted"),
        "choices": [{"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": text}}],
        "usage": {
            "prompt_tokens": heard,
            "completion_tokens": len(text) // 4,
            "total_tokens": heard + len(text) // 4,
        },
    }
    _bend(data, text, behaviour)
    return data


def _bend(data: dict[str, Any], text: str, behaviour: str) -> None:
    """Change a completion as some servers would have it."""
    choice = data["choices"][0]
    message = choice["message"]
    ends = {"length": "length", "filtered": "content_filter", "tool-calls": "tool_calls", "odd-ending": "eos_token"}
    choice["finish_reason"] = ends.get(behaviour, "stop")
    data["usage"] |= USAGES.get(behaviour, {})
    if behaviour == "reasoning":  # as some servers do: billed, and left out of completion_tokens
        message["reasoning_content"] = PROSE * 10
        data["usage"]["total_tokens"] += len(PROSE * 10) // 4
    elif behaviour == "thoughts-only":
        message |= {"content": None, "reasoning_content": text}
    elif behaviour == "refusal":
        message |= {"content": None, "refusal": text}
    elif behaviour == "tool-calls":
        call = {"name": "write_file", "arguments": json.dumps({"path": "kernel.py", "content": text})}
        message |= {"content": None, "tool_calls": [{"id": "1", "type": "function", "function": call}]}
    elif behaviour == "parts":
        message["content"] = [{"type": "text", "text": text[:9]}, {"type": "text", "text": text[9:]}]
    elif behaviour == "no-usage":
        del data["usage"]
    elif behaviour == "bare":  # what small servers send: the text, and what it took
        for name in ("id", "object", "created", "model"):
            del data[name]
        del choice["index"], choice["finish_reason"], message["role"]
    elif behaviour == "no-choices":
        data["choices"] = []
    elif behaviour == "null-message":
        choice["message"] = None


def streamed(whole: dict[str, Any]) -> bytes:
    """A completion as a stream of events."""
    choice = (whole["choices"] or [{"message": {"content": ""}, "finish_reason": "stop"}])[0]
    said = (choice["message"] or {}).get("content") or ""
    text = said if isinstance(said, str) else "".join(part["text"] for part in said)
    frame = {key: whole[key] for key in ("id", "created", "model")} | {"object": "chat.completion.chunk"}
    deltas = [{"index": 0, "delta": {"content": text[at : at + 4096]}, "finish_reason": None} for at in
              range(0, len(text), 4096)]  # fmt: skip
    events = [frame | {"choices": [delta]} for delta in deltas]
    events.append(frame | {"choices": [{"index": 0, "delta": {}, "finish_reason": choice["finish_reason"]}]})
    events.append(frame | {"choices": [], "usage": whole.get("usage")})
    alive = b": still at it\n\n"  # comments keep a connection open
    return b"".join(alive + b"data: " + json.dumps(event).encode() + b"\n\n" for event in events) + b"data: [DONE]\n\n"


def _said(behaviour: str, answer: str, request: dict[str, Any]) -> tuple[int, bytes, dict[str, str]] | None:
    """(status, body, headers) of an answer; None where there is none at all."""
    if behaviour in SHAPES or behaviour in ("no-choices", "null-message"):
        whole = completion(SHAPES.get(behaviour, str)(answer), request, behaviour)
        if request.get("stream") or behaviour == "stream-anyway":
            return 200, streamed(whole), {"Content-Type": "text/event-stream"}
        body = json.dumps(whole, ensure_ascii=behaviour != "latin-1")
        coded = body.encode("latin-1" if behaviour == "latin-1" else "utf-8")
        before = {"padded": b"\n \n" * 2000, "bom": b"\xef\xbb\xbf"}
        return 200, before.get(behaviour, b"") + coded, {}
    if behaviour == "error-200":
        return 200, b'{"error": {"message": "scripted overload", "code": 503}}', {}
    if behaviour == "moved":
        return 307, b"", {"Location": f"http://elsewhere.invalid{PATH}"}
    if behaviour == "429-date":
        return 429, b"{}", {"Retry-After": email.utils.formatdate(time.time() + 1.0, usegmt=True)}
    if behaviour == "no-quota":
        return 429, b'{"error": {"message": "You exceeded your current quota", "code": "insufficient_quota"}}', {}
    if behaviour in REFUSALS:
        text = REFUSALS[behaviour].format(context=CONTEXT, whole=_heard(request) + _wanted(request))
        return 400, json.dumps({"error": {"message": text, "type": "scripted"}}).encode(), {}
    if behaviour == "overrun":
        data = completion(SHAPES["ok"](answer), request)
        data["usage"] |= {"completion_tokens": 1_000_000, "total_tokens": 1_000_000}
        return 200, json.dumps(data).encode(), {}
    if behaviour.isdigit():
        headers = {"Retry-After": "0"} if behaviour == "429" else {}
        return int(behaviour), b'{"error": {"message": "scripted", "type": "scripted"}}', headers
    bodies = {
        "truncated": json.dumps(completion(answer, request)).encode()[:-40],
        "malformed": b'{"choices": "none", "usage": 3}',
        "not-json": b"<html>gateway</html>",
    }
    return (200, bodies[behaviour], {}) if behaviour in bodies else None


def _handler(server: ScriptedServer) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"  # connections stay open between requests, as at any real server

        def log_message(self, format: str, *args: object) -> None:
            """Silence: the server shares a terminal with whoever tests against it."""

        def do_GET(self) -> None:
            self._answer(200, json.dumps({"requests": server.requests, "served": server.served}).encode())

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
            if self.path not in PATHS:
                self._answer(404, b'{"detail": "Not Found"}')
                return
            request = json.loads(body)
            behaviour, answer = server.take(request)
            said = _said(behaviour, answer, request)
            if said is not None:
                self._answer(*said)
                return
            if behaviour == "hang":
                time.sleep(server.hang_s)
            self.close_connection = True

        def _answer(self, status: int, body: bytes, headers: dict[str, str] | None = None) -> None:
            self.send_response(status)
            self.send_header("Content-Length", str(len(body)))
            for name, value in ({"Content-Type": "application/json"} | (headers or {})).items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(body)

    return Handler


def main() -> None:
    """The command line of the double."""
    parser = argparse.ArgumentParser(prog="python -m kernelwright.model_server", description=__doc__)
    parser.add_argument("--port", type=int, default=8321)
    parser.add_argument("--script", default="ok", help=f"comma-separated, repeated: {', '.join([*SHAPES, *FAULTS])}")
    parser.add_argument("--answer", type=Path, nargs="+", required=True, help="files with the right answers, in order")
    chosen = parser.parse_args()
    server = ScriptedServer(chosen.script.split(","), [path.read_text() for path in chosen.answer], chosen.port)
    sys.stderr.write(f"scripted model at {server.base_url}\n")
    try:
        server.serve_forever()
    except KeyboardInterrupt:
        sys.exit(0)


if __name__ == "__main__":
    main()
