# SPDX-License-Identifier: Apache-2.0
"""The only outgoing socket: language models through pydantic-ai, any provider it knows, any OpenAI-compatible address.

Import this file only when a model was asked for: the client library takes 1.6 s to load.
"""

from __future__ import annotations

import importlib
import logging
import re
from collections.abc import Mapping, Sequence
from typing import Any

from kernelwright.errors import ModelError
from kernelwright.llm.messages import Message, ModelFailure, Reply

KEY_NAMES: Mapping[str, tuple[str, ...]] = {
    "openai": ("OPENAI_API_KEY",),
    "anthropic": ("ANTHROPIC_API_KEY",),
    "google": ("GOOGLE_API_KEY", "GEMINI_API_KEY"),
    "local": (),
}
"""Provider to the environment variables that may hold its key; ``local`` is any server at --base-url without one."""
TIMEOUT_S = 300.0
TEMPORARY = {408, 409, 425, 429, 500, 502, 503, 504, 529}
REFUSED = {400, 413, 422}
OPTIONAL = ("seed", "temperature")
"""Settings that some models refuse; they are left out once one did."""
TOO_LONG = re.compile(r"context.{0,12}(?:length|window|size)|maximum.{0,20}tokens|max_model_len|too many tokens", re.I)
LEAST_REPLY = 512
"""Tokens a reply is still asked for where prompt and reply do not fit the model together."""


def _load(name: str) -> Any:
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise ModelError(
            "The client library for language models is not installed",
            str(error),
            "pydantic-ai-slim",
            "pip install 'kernelwright[llm]'",
        ) from error


class ProviderModel:
    """One model of one provider. The key is held by the client object and appears in no attribute of ours."""

    def __init__(self, spec: str, *, key: str | None, base_url: str | None, timeout_s: float = TIMEOUT_S) -> None:
        """``spec`` is PROVIDER:MODEL. Raises ``ModelError`` for an unknown provider or a missing key."""
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
        self._bare = model
        self._timeout = timeout_s
        self._client = _client(provider, model, key or "none", base_url)
        self._left_out: set[str] = set()
        self._most: int | None = None
        """Reply length that the model's context has room for, once that was found out."""

    def __repr__(self) -> str:
        return f"ProviderModel({self.name!r})"

    def complete(self, messages: Sequence[Message], *, max_tokens: int, temperature: float, seed: int) -> Reply:
        """One request on the wire. Raises ``ModelFailure``."""
        direct, exceptions = _load("pydantic_ai.direct"), _load("pydantic_ai.exceptions")
        most = min(max_tokens, self._most or max_tokens)
        settings = {"max_tokens": most, "temperature": temperature, "seed": seed, "timeout": self._timeout}
        settings = {name: value for name, value in settings.items() if name not in self._left_out}
        try:
            found = direct.model_request_sync(self._client, _conversation(messages), model_settings=settings)
        except exceptions.ModelHTTPError as error:
            body = str(error.body)
            mended = error.status_code in REFUSED and self._adapt(body, most)
            again = error.status_code in TEMPORARY or mended
            wait = _retry_after(error.headers or {})
            raise ModelFailure(f"HTTP {error.status_code}: {body[:300]}", again, wait) from error
        except exceptions.UnexpectedModelBehavior as error:
            raise ModelFailure(f"malformed answer: {str(error)[:300]}", temporary=True) from error
        except exceptions.UserError as error:
            raise ModelFailure(str(error)[:300], temporary=False) from error
        except (exceptions.ModelAPIError, OSError, TimeoutError) as error:
            raise ModelFailure(f"{type(error).__name__}: {str(error)[:300]}", temporary=True) from error
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            # A body that is JSON but not a completion makes the client raise these from its own parsing.
            reason = f"malformed answer: {type(error).__name__} {str(error)[:200]}"
            raise ModelFailure(reason, temporary=True) from error
        text = "".join(part.content for part in found.parts if part.part_kind == "text")
        usage = found.usage
        taken = (int(usage.input_tokens or 0), int(usage.output_tokens or 0))
        return Reply(
            text=text,
            model=str(found.model_name or self._bare),
            input_tokens=taken[0],
            output_tokens=taken[1],
            usd=self.price(*taken),
            finish=str(found.finish_reason or "stop"),
        )

    def _adapt(self, body: str, asked: int) -> bool:
        """Ask otherwise from now on, where a refusal says how; whether another attempt makes sense."""
        if TOO_LONG.search(body) and asked > LEAST_REPLY:
            self._most = max(LEAST_REPLY, asked // 2)
            return True
        refused = {name for name in OPTIONAL if name in body.lower()} - self._left_out
        self._left_out |= refused
        return bool(refused)

    def price(self, input_tokens: int, output_tokens: int) -> float | None:
        """From the price list shipped with the client library; None for models it does not know."""
        prices = _load("genai_prices")
        logging.getLogger("genai_prices").setLevel(logging.ERROR)
        try:
            usage = prices.Usage(input_tokens=input_tokens, output_tokens=output_tokens)
            provider = self.name.partition(":")[0]
            known = None if provider == "local" else provider
            if known is None:
                return None
            return float(prices.calc_price(usage, model_ref=self._bare, provider_id=known).total_price)
        except (LookupError, ValueError):
            return None


def _client(provider: str, model: str, key: str, base_url: str | None) -> Any:
    if provider in ("openai", "local"):
        openai = _load("openai")
        models, providers = _load("pydantic_ai.models.openai"), _load("pydantic_ai.providers.openai")
        # max_retries=0: each attempt must pass our budget, so the library may make none of its own.
        wire = openai.AsyncOpenAI(api_key=key, base_url=base_url, max_retries=0, timeout=TIMEOUT_S)
        # Local servers know max_tokens, the older name of the limit; one that ignores a name it does not know has none.
        profile = {"openai_chat_supports_max_completion_tokens": False} if provider == "local" else None
        return models.OpenAIChatModel(model, provider=providers.OpenAIProvider(openai_client=wire), profile=profile)
    if provider == "anthropic":
        anthropic = _load("anthropic")
        models, providers = _load("pydantic_ai.models.anthropic"), _load("pydantic_ai.providers.anthropic")
        wire = anthropic.AsyncAnthropic(api_key=key, base_url=base_url, max_retries=0, timeout=TIMEOUT_S)
        return models.AnthropicModel(model, provider=providers.AnthropicProvider(anthropic_client=wire))
    models, providers = _load("pydantic_ai.models.google"), _load("pydantic_ai.providers.google")
    return models.GoogleModel(model, provider=providers.GoogleProvider(api_key=key, base_url=base_url))


def _retry_after(headers: Mapping[str, str]) -> float:
    """Seconds a server asks to be left alone; 0 where it does not say, or says it as a date."""
    try:
        return max(0.0, float(headers.get("retry-after", "0")))
    except ValueError:
        return 0.0


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
