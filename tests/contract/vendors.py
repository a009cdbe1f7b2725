"""One answer of a model, translated into the script of each vendor's fake."""

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from fakes import anthropic, bedrock, cohere, google, mistral, openai, responses
from fakes.chat_and_responses import FakeVendor

from gateway.catalogue import loader

SIGNED = "c2lnbmVk+/8="  # what Bedrock's fake signs reasoning with
SOURCE = "https://news.example/today"


@dataclass(frozen=True)
class Say:
    """The model's answer. `finish` is "", "length", "filter" or "stop_sequence"; `source` cites a page that a search
    found; `broken` is an HTTP status instead of an answer. `piece` and `fragment` are the sizes of deltas and writes,
    `cut` breaks the connection after so many bytes."""

    text: str = ""
    tools: tuple[tuple[str, str], ...] = ()
    thinking: str = ""
    sealed: str = ""
    refusal: str = ""
    finish: str = ""
    source: str = ""
    n: int = 1
    cached: int = 0
    broken: int = 0
    piece: int = 8
    fragment: int = 0
    cut: int | None = None
    silence_s: float = 0.0

    @property
    def manner(self) -> dict[str, Any]:
        return {"piece": self.piece, "fragment": self.fragment, "cut": self.cut, "silence_s": self.silence_s}


def _openai(say: Say) -> openai.Answer:
    if say.broken:
        return openai.Answer(status=say.broken)
    finish = {"length": "length", "filter": "content_filter"}.get(say.finish, "")
    thought = 5 if say.thinking else 0
    return openai.Answer(
        say.text, say.tools, say.refusal, finish, say.n, cached=say.cached, reasoning=thought, **say.manner
    )


def _responses(say: Say) -> responses.Answer:
    if say.broken:
        return responses.Answer(status=say.broken)
    items = [responses.thought(say.thinking)] if say.thinking else []
    items += [responses.searched("news")] if say.source else []
    items += [responses.said(say.text, sources=(say.source,) if say.source else ())] if say.text else []
    items += [responses.refused(say.refusal)] if say.refusal else []
    items += [responses.call(name, arguments) for name, arguments in say.tools]
    why = {"length": "max_output_tokens", "filter": "content_filter"}.get(say.finish, "")
    return responses.Answer(
        *items, incomplete=why, cached=min(say.cached, 10), reasoning=5 if say.thinking else 0, **say.manner
    )


class Both(FakeVendor):
    """A vendor with both APIs of OpenAI's format; its script contains each answer once per API."""

    def __init__(self) -> None:
        super().__init__()
        self.chat.calls = self.responses.calls = self.calls
        self.sealed = self.responses.sealed

    def serve(self, environ: dict[str, Any], start: Any) -> Any:
        for service in (self.chat, self.responses):
            service._script.clear()
        if self._script:
            by_chat, by_responses = self._script.pop(0)
            self.chat.script(by_chat)
            self.responses.script(by_responses)
        return super().serve(environ, start)


def _both(say: Say) -> tuple[openai.Answer, responses.Answer]:
    return _openai(say), _responses(say)


def _anthropic(say: Say) -> anthropic.Answer:
    if say.broken:
        return anthropic.Answer(status=529 if say.broken == 503 else say.broken)
    finish = {"length": "max_tokens", "filter": "refusal", "stop_sequence": "stop_sequence"}.get(say.finish, "")
    return anthropic.Answer(
        say.text or say.refusal,
        say.tools,
        say.thinking,
        say.sealed,
        say.source,
        "refusal" if say.refusal else finish,
        "END" if say.finish == "stop_sequence" else None,
        cache_read=say.cached,
        **say.manner,
    )


def _google(say: Say) -> google.Answer:
    if say.broken:
        return google.Answer(status=say.broken)
    finish = "SAFETY" if say.refusal else {"length": "MAX_TOKENS", "filter": "SAFETY"}.get(say.finish, "STOP")
    grounding = {
        "webSearchQueries": ["news"],
        "groundingChunks": [{"web": {"uri": say.source, "title": "A page"}}],
        "groundingSupports": [{"segment": {"startIndex": 0, "endIndex": 4}, "groundingChunkIndices": [0]}],
    }
    return google.Answer(
        say.text or say.refusal,
        tuple((name, json.loads(arguments)) for name, arguments in say.tools),
        say.thinking,
        finish=finish,
        n=say.n,
        grounding=grounding if say.source else None,
        cached=say.cached and 2,
        thought_tokens=5 if say.thinking else 0,
        **say.manner,
    )


REFUSALS = {
    400: "ValidationException",
    401: "UnrecognizedClientException",
    429: "ThrottlingException",
    500: "InternalServerException",
    503: "ServiceUnavailableException",
}


def _bedrock(say: Say) -> bedrock.Answer:
    if say.broken:
        return bedrock.Answer(status=403 if say.broken == 401 else say.broken, error=REFUSALS[say.broken])
    reason = {"length": "max_tokens", "filter": "content_filtered"}.get(say.finish, "")
    return bedrock.Answer(
        say.text or say.refusal,
        say.tools,
        (say.thinking, SIGNED) if say.thinking else ("", ""),
        say.sealed.encode(),
        "guardrail_intervened" if say.refusal else reason,
        "END" if say.finish == "stop_sequence" else "",
        cache_read=say.cached,
        **say.manner,
    )


def _mistral(say: Say) -> mistral.Answer:
    finish = {"length": "length"}.get(say.finish, "")
    return mistral.Answer(say.text or say.refusal, say.thinking, say.tools, finish, say.piece)


def _cohere(say: Say) -> cohere.Answer:
    finish = {"length": "MAX_TOKENS"}.get(say.finish, "")
    return cohere.Answer(say.text or say.refusal, say.thinking, tools=say.tools, finish=finish, piece=say.piece)


@dataclass(frozen=True)
class Vendor:
    """A fake: its server, the function that scripts it, its protocol and its model.

    `more` is added to the model's mapping, `provider` to the provider's settings."""

    fake: Callable[[], Any]
    script: Callable[[Say], Any]
    protocol: str
    model: str
    key: str = "key-upstream"
    more: str = ""
    provider: str = ""


VENDORS: dict[str, Vendor] = {
    "openai": Vendor(openai.FakeOpenAI, _openai, "openai", "gpt-5"),
    "responses": Vendor(responses.FakeResponses, _responses, "openai-responses", "gpt-5"),
    "both": Vendor(Both, _both, "openai", "gpt-5", more="responses_api = true\n"),
    "anthropic": Vendor(anthropic.FakeAnthropic, _anthropic, "anthropic", "claude-sonnet-4-5"),
    "google": Vendor(google.FakeGoogle, _google, "google", "gemini-3-flash"),
    "bedrock": Vendor(bedrock.FakeBedrock, _bedrock, "bedrock", "anthropic.claude-sonnet-4-5-v1:0", bedrock.API_KEY),
}
# Tried with the cases of CORE alone: what sets their wires apart from the others'.
FURTHER: dict[str, Vendor] = {
    "mistral": Vendor(
        mistral.FakeMistral,
        _mistral,
        "openai",
        "magistral-medium",
        mistral.KEY,
        provider=f"quirks = {json.dumps(loader.load().providers['mistral'].quirks)}\n",
    ),
    "cohere": Vendor(cohere.FakeCohere, _cohere, "cohere", "command-a-reasoning", cohere.KEY),
}
CORE = (
    "text", "odd role order", "tool loop", "past calls", "parallel calls", "text and calls", "must call",
    "must not call", "image as bytes", "reasoning then text", "schema", "length", "empty result",
    "call without result", "unknown fields",
)  # fmt: skip
