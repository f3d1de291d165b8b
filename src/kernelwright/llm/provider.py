# SPDX-License-Identifier: Apache-2.0
"""The only outgoing socket: language models through pydantic-ai, any provider it knows, any OpenAI-compatible address.

Import this file only when a model was asked for: the client library takes 1.6 s to load.
"""

from __future__ import annotations

import asyncio
import functools
import importlib
import logging
import re
import threading
import warnings
from collections.abc import Callable, Coroutine, Mapping, Sequence
from typing import Any

from kernelwright.errors import ModelError
from kernelwright.llm import address, streams
from kernelwright.llm.messages import Message, ModelFailure, Reply
from kernelwright.llm.refusals import BARE, NEWER, OLDER, Manner, mended, passes, patience

KEY_NAMES: Mapping[str, tuple[str, ...]] = {
    "openai": ("OPENAI_API_KEY",),
    "anthropic": ("ANTHROPIC_API_KEY",),
    "google": ("GOOGLE_API_KEY", "GEMINI_API_KEY"),
    "local": (),
}
"""Provider to the environment variables that may hold its key; ``local`` is any server at --base-url without one."""
COMPATIBLE = ("openai", "local")
"""Providers that speak OpenAI's wire form."""
UNHEARD = ("ConnectError", "ConnectTimeout", "UnsupportedProtocol", "gaierror")
"""Names of exceptions, of the libraries below, that say that no connection came about."""
SHOWN = re.compile(r"input_value=.*?(?=, input_type=)")
"""What the client library shows of a value that it did not expect; it has cut that already, across a key maybe."""
GAVE_UP = (504, 524)
"""Statuses of gateways that waited for a server too long: it had the request, and may have written on."""
TIMEOUT_S = 600.0
"""One request, from the first byte sent to the last one read: a model that reasons may take minutes."""


def _load(name: str) -> Any:
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise ModelError(
            "The client library for language models is not installed",
            str(error),
            "pydantic-ai-slim",
            "pip install 'kernelwright[llm]' (in a checkout: pip install -e '.[llm]')",
        ) from error


@functools.cache
def _loop() -> asyncio.AbstractEventLoop:
    """One event loop for all models of this process: a client's open connections belong to the loop it began on."""
    loop = asyncio.new_event_loop()
    threading.Thread(target=loop.run_forever, name="models", daemon=True).start()
    return loop


class ProviderModel:
    """One model of one provider. The key is held by the client object and appears in no attribute of ours."""

    def __init__(
        self, spec: str, *, key: str | None, base_url: str | None, timeout_s: float = TIMEOUT_S,
        price: tuple[float, float] | None = None, clean: Callable[[str], str] = str,
    ) -> None:  # fmt: skip
        """``spec`` is PROVIDER:MODEL; ``price`` in dollars per million tokens, in and out. ``clean`` goes over what a
        server says of a failure before that is cut: of a key across the cut, most would be left.

        Raises ``ModelError`` for an unknown provider or a missing key."""
        provider, _, model = spec.partition(":")
        if provider not in KEY_NAMES or not model:
            known = ", ".join(KEY_NAMES)
            raise ModelError("No such model", spec, f"PROVIDER:MODEL with PROVIDER one of {known}", "see --help")
        if provider == "local" and not base_url:
            raise ModelError("A local model needs an address", "no --base-url", "http://host:port/v1", "add --base-url")
        if KEY_NAMES[provider] and not key and not base_url:
            names = " or ".join(KEY_NAMES[provider])
            raise ModelError(f"There is no key for {provider}", f"{names} not set", "a key", f"export {names}=...")
        self.name = spec
        base_url = address.tidy(base_url) if base_url else None
        self._provider, self._bare, self._base_url = provider, model, base_url
        self._no_path = base_url is not None and provider in COMPATIBLE and address.is_bare(base_url)
        self._timeout, self._price, self._clean = timeout_s, price, clean
        self._lock = threading.Lock()
        # Servers other than OpenAI's own know max_tokens; one that ignores a name it does not know has no limit.
        self._manner = Manner(newer_name=not base_url)
        self._make = functools.partial(_client, provider, model, key or "none", base_url)
        self._clients = {self._kind(self._manner): self._make(*self._kind(self._manner))}

    def __repr__(self) -> str:
        return f"ProviderModel({self.name!r})"

    def complete(self, messages: Sequence[Message], *, max_tokens: int, temperature: float, seed: int) -> Reply:
        """One request on the wire. Raises ``ModelFailure``."""
        exceptions = _load("pydantic_ai.exceptions")
        with self._lock:
            manner = self._manner
        size = sum(len(message.text.encode("utf-8", "surrogatepass")) for message in messages)
        most = manner.room(max_tokens, size)
        settings = {"max_tokens": most, "temperature": temperature, "seed": seed, "timeout": self._timeout}
        settings = {name: value for name, value in settings.items() if name not in manner.left_out}
        sent = {*settings, NEWER if manner.newer_name else OLDER}
        sent |= {name for name, is_sent in (("stream", manner.streams), ("system", not manner.no_system)) if is_sent}
        if manner.newer_name:
            sent.discard(OLDER)
        sent |= {BARE} if self._no_path and not manner.versioned else set()
        try:
            found = self._waited(self._ask(messages, settings, manner))
        except exceptions.ModelHTTPError as error:
            refusal = error.status_code, str(error.body), error.headers or {}
            raise self._refused(*refusal, sent, (most, size)) from error
        except exceptions.UserError as error:
            raise ModelFailure(self._said(error), temporary=False) from error
        except (exceptions.ModelAPIError, OSError, TimeoutError) as error:
            moved = self._moved(error.__cause__)
            if moved:
                raise ModelFailure(moved, temporary=False) from error
            reason = f"{type(error).__name__}: {self._said(error)}"
            raise ModelFailure(reason, temporary=True, billed=not _unheard(error)) from error
        except Exception as error:
            # Whatever a body that is no completion makes the client library raise: a run outlives one bad answer.
            reason = f"malformed answer: {type(error).__name__} {self._said(error)}"
            self._adapt(0, str(error), sent, (most, size))
            raise ModelFailure(reason, temporary=True, billed=not _unheard(error)) from error
        return self._reply(found)

    def _said(self, what: object, most: int = 300) -> str:
        """The beginning of what a server or the client library says, cleaned as a whole."""
        return self._clean(SHOWN.sub("input_value=...", str(what)))[:most]

    def _moved(self, cause: BaseException | None) -> str:
        """Where a server sends us, in words; "" where the cause of an error is another."""
        answer = getattr(cause, "response", None)
        if answer is None or not 300 <= answer.status_code < 400:
            return ""
        place = self._said(answer.headers.get("location", "nowhere"), 200)
        return f"HTTP {answer.status_code}: the server is at {place}, which is not asked unless --base-url names it"

    def _refused(
        self, status: int, body: str, headers: Mapping[str, str], sent: set[str], asked: tuple[int, int]
    ) -> ModelFailure:
        wait = patience(status, headers, body)
        again = self._adapt(status, body, sent, asked) or passes(status, body, wait)
        billed = status in GAVE_UP or streams.MIDWAY in headers
        return ModelFailure(f"HTTP {status}: {self._said(body)}", again, wait, billed=billed)

    def _adapt(self, status: int, body: str, sent: set[str], asked: tuple[int, int]) -> bool:
        """Ask otherwise from now on, where a refusal says how; whether another attempt makes sense.

        ``asked``: tokens asked for in the reply, and bytes of the request."""
        with self._lock:
            manner = mended(self._manner, status, body, sent, *asked)
            if manner is not None:
                self._manner = manner
        return manner is not None

    async def _ask(self, messages: Sequence[Message], settings: Mapping[str, Any], manner: Manner) -> Any:
        direct = _load("pydantic_ai.direct")
        kind = self._kind(manner)
        if kind not in self._clients:
            self._clients[kind] = self._make(*kind)
        client = self._clients[kind]
        said = _conversation(_joined(messages) if manner.no_system else messages)
        if not manner.streams or self._provider in COMPATIBLE:
            return await direct.model_request(client, said, model_settings=dict(settings))
        async with direct.model_request_stream(client, said, model_settings=dict(settings)) as stream:
            async for _ in stream:
                pass
            return stream.get()

    @staticmethod
    def _kind(manner: Manner) -> tuple[bool, bool, bool]:
        return manner.newer_name, manner.streams, manner.versioned

    def _waited(self, asking: Coroutine[Any, Any, Any]) -> Any:
        # The client's own limit is for the gap between two bytes: a server that trickles would keep us for ever.
        future = asyncio.run_coroutine_threadsafe(asyncio.wait_for(asking, self._timeout), _loop())
        return future.result()

    def _reply(self, found: Any) -> Reply:
        text = "".join(part.content for part in found.parts if part.part_kind == "text")
        thoughts = "".join(part.content for part in found.parts if part.part_kind == "thinking")
        # A model that writes its files by calls of a tool nobody offered has written them all the same.
        text += "".join(f"\n{part.args_as_json_str()}\n" for part in found.parts if part.part_kind == "tool-call")
        finish = str(found.finish_reason or "stop")
        if not text.strip() and finish == "stop":
            text, thoughts = thoughts, ""  # a server that takes the whole reply for thoughts
        usage = found.usage
        taken, put = int(usage.input_tokens or 0), int(usage.output_tokens or 0)
        return Reply(
            text=text,
            thoughts=thoughts,
            model=str(found.model_name or self._bare),
            input_tokens=taken,
            output_tokens=put,
            counted=taken > 0 and (put > 0 or not (text or thoughts)),
            usd=self._cost(taken, put, int(usage.cache_read_tokens or 0), int(usage.cache_write_tokens or 0)),
            finish=finish,
        )

    def price(self, input_tokens: int, output_tokens: int) -> float | None:
        """As given, else from the price list shipped with the client library; None for models it does not know."""
        return self._cost(input_tokens, output_tokens, 0, 0)

    def _cost(self, taken: int, put: int, read: int, written: int) -> float | None:
        if self._price is not None:
            return (taken * self._price[0] + put * self._price[1]) / 1e6
        prices = _load("genai_prices")
        logging.getLogger("genai_prices").setLevel(logging.ERROR)
        usage = prices.Usage(
            input_tokens=max(0, taken), output_tokens=max(0, put), cache_read_tokens=max(0, read),
            cache_write_tokens=max(0, written),
        )  # fmt: skip
        places = [{"provider_api_url": self._base_url}] if self._base_url else []
        places += [{"provider_id": self._provider}] if self._provider != "local" else []
        for place in places:
            try:
                return float(prices.calc_price(usage, model_ref=self._bare, **place).total_price)
            except (LookupError, ValueError):
                continue
        return None


def _unheard(error: BaseException | None) -> bool:
    """Whether a request failed before a server had it: then nobody can have billed it."""
    while error is not None:
        if isinstance(error, ConnectionRefusedError) or type(error).__name__ in UNHEARD:
            return True
        error = error.__cause__ or error.__context__
    return False


def _client(provider: str, model: str, key: str, base_url: str | None, newer_name: bool, streams: bool,
            versioned: bool) -> Any:  # fmt: skip
    # It warns on standard error of settings that it leaves out; those are not the user's.
    warnings.filterwarnings("ignore", module=r"pydantic_ai\b")
    if provider in COMPATIBLE:
        base_url = f"{base_url}{address.VERSION}" if base_url and versioned else base_url
        openai = _load("openai")
        providers = _load("pydantic_ai.providers.openai")
        # max_retries=0: each attempt must pass our budget, so the library may make none of its own.
        trusted = not (base_url and address.is_here(base_url))
        kind = _joining() if streams else openai.DefaultAsyncHttpxClient
        # A server that sends us on would have prompts go, and requests counted, where the user never pointed.
        carrier = kind(timeout=TIMEOUT_S, trust_env=trusted, follow_redirects=False)
        wire = openai.AsyncOpenAI(
            api_key=key, base_url=base_url, max_retries=0, timeout=TIMEOUT_S, http_client=carrier
        )  # fmt: skip
        profile = {"openai_chat_supports_max_completion_tokens": newer_name}
        return _counting()(model, provider=providers.OpenAIProvider(openai_client=wire), profile=profile)
    if provider == "anthropic":
        anthropic = _load("anthropic")
        models, providers = _load("pydantic_ai.models.anthropic"), _load("pydantic_ai.providers.anthropic")
        wire = anthropic.AsyncAnthropic(api_key=key, base_url=base_url, max_retries=0, timeout=TIMEOUT_S)
        return models.AnthropicModel(model, provider=providers.AnthropicProvider(anthropic_client=wire))
    models, providers = _load("pydantic_ai.models.google"), _load("pydantic_ai.providers.google")
    return models.GoogleModel(model, provider=providers.GoogleProvider(api_key=key, base_url=base_url))


@functools.cache
def _joining() -> type:
    """The library's HTTP client, which asks for a stream and hands over the whole answer."""
    openai = _load("openai")
    wire = importlib.import_module(openai.DefaultAsyncHttpxClient.__mro__[2].__module__.partition(".")[0])

    class Joining(openai.DefaultAsyncHttpxClient):  # type: ignore[name-defined]  # loaded when first asked for
        async def send(self, request: Any, **more: Any) -> Any:
            head = {name: value for name, value in request.headers.items() if name.lower() != "content-length"}
            body = streams.asked(await request.aread())
            again = wire.Request(request.method, request.url, headers=head, content=body, extensions=request.extensions)
            answer = await super().send(again, **(more | {"stream": True}))
            try:
                if answer.status_code != 200 or "json" in answer.headers.get("content-type", ""):
                    await answer.aread()
                    return answer
                made = await streams.joined(answer.aiter_lines())
                status, whole = made.answer()
                marks = {streams.MIDWAY: "yes"} if made.begun else {}
                return wire.Response(status, json=whole, request=again, headers=marks)
            except streams.Broken as error:
                raise wire.RemoteProtocolError(str(error), request=again) from error
            finally:
                await answer.aclose()

    return Joining


@functools.cache
def _counting() -> type:
    """The library's chat model, which bears counts that are missing and counts what is in ``total_tokens`` alone.

    Some servers leave the tokens of reasoning out of ``completion_tokens``; they are billed."""
    models = _load("pydantic_ai.models.openai")

    class Counting(models.OpenAIChatModel):  # type: ignore[name-defined]  # loaded when first asked for
        def _validate_completion(self, response: Any) -> Any:
            fault = getattr(response, "error", None)
            if fault and not getattr(response, "choices", None):  # routers say so with status 200
                code = fault.get("code") if isinstance(fault, dict) else None
                status = code if isinstance(code, int) and 400 <= code < 600 else 502
                raise _load("pydantic_ai.exceptions").ModelHTTPError(status, self.model_name, fault)
            _complete(response, self.model_name)
            usage = getattr(response, "usage", None)
            if usage is not None:
                names = ("total_tokens", "prompt_tokens", "completion_tokens")
                counts = [getattr(usage, name, None) for name in names]
                total, asked, put = (count if isinstance(count, int) else 0 for count in counts)
                thought = getattr(getattr(usage, "completion_tokens_details", None), "reasoning_tokens", None)
                if isinstance(thought, int) and thought > put:
                    put += thought
                put = max(put, total - asked) if asked else put
                usage.total_tokens, usage.prompt_tokens, usage.completion_tokens = asked + put, asked, put
            return super()._validate_completion(response)

    return Counting


def _complete(response: Any, model: str) -> None:
    """Fill in what small servers leave out and nothing here depends on."""
    for name, value in (("id", ""), ("created", 0), ("model", model), ("object", "chat.completion")):
        if getattr(response, name, None) is None:
            setattr(response, name, value)
    for index, choice in enumerate(getattr(response, "choices", None) or ()):
        message = getattr(choice, "message", None)
        for place, name, value in ((choice, "index", index), (choice, "finish_reason", "stop"),
                                   (message, "role", "assistant")):  # fmt: skip
            if place is not None and getattr(place, name, None) is None:
                setattr(place, name, value)


def _joined(messages: Sequence[Message]) -> list[Message]:
    """The same with the rules at the head of the first question, for models that know no system message."""
    rules = "\n\n".join(message.text for message in messages if message.role == "system")
    rest = [message for message in messages if message.role != "system"]
    return [Message(role="user", text=f"{rules}\n\n{rest[0].text}"), *rest[1:]] if rest else list(messages)


def _conversation(messages: Sequence[Message]) -> list[Any]:
    parts = _load("pydantic_ai.messages")
    made: list[Any] = []
    for message in messages:
        if message.role == "assistant":
            made.append(parts.ModelResponse(parts=[parts.TextPart(content=message.text)]))
        elif message.role == "system":
            made.append(parts.ModelRequest(parts=[parts.SystemPromptPart(content=message.text)]))
        else:
            made.append(parts.ModelRequest(parts=[parts.UserPromptPart(content=message.text)]))
    return made
