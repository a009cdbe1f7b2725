"""The models of sessions: one for each protocol, and of hosts and vendors with rules of their own, before strict fakes
that answer with thought and signatures."""

import io
import itertools
import json
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from contract import vendors
from contract.vendors import Say, Vendor
from fakes import anthropic, bedrock, google, openai
from fakes.anthropic_checks import sign
from fakes.openai_checks import check_alternation, check_body, check_reasoned_calls, parse

from gateway.catalogue import loader

Json = dict[str, Any]
# Members with which servers of OpenAI's format switch and stream thought.
SWITCHES = ("thinking", "enable_thinking", "thinking_budget", "tool_stream")


class FakeCompatible(openai.FakeOpenAI):
    """A server with OpenAI's format, older names of parameters and thought in `reasoning_content`."""

    thinks = False

    def check(self, environ: Json, headers: dict[str, str], payload: bytes) -> Json:
        body = parse(environ, headers, payload)
        if self.thinks:
            check_reasoned_calls(body)
        bare = {name: value for name, value in body.items() if name not in SWITCHES}
        bare["messages"] = [
            {name: value for name, value in message.items() if name != "reasoning_content"}
            for message in body.get("messages") or ()
        ]
        check_body({**bare, "model": "gpt-4"})
        return body


class FakeThinking(FakeCompatible):
    """A server that refuses a turn with calls and without its thought, as DeepSeek, Moonshot and Xiaomi do."""

    thinks = True


class FakeAlternating(FakeCompatible):
    """A server that wants the user and the assistant to take turns, as Perplexity does."""

    def check(self, environ: Json, headers: dict[str, str], payload: bytes) -> Json:
        body = super().check(environ, headers, payload)
        check_alternation(body["messages"])
        return body


class FakeVertex(google.FakeGoogle):
    """Gemini on Vertex AI."""

    base = "/v1/publishers/google"


class FakeVertexClaude(anthropic.FakeAnthropic):
    """Claude on Vertex AI: the model is in the path, the version in the body, and the signatures are those of every
    host of the models."""

    base = "/v1/publishers/anthropic"

    def serve(self, environ: Json, start: Any) -> Iterable[bytes]:
        body = json.loads(environ["wsgi.input"].read())
        model, _, verb = environ["PATH_INFO"].rpartition("/")[2].partition(":")
        assert verb == ("streamRawPredict" if body.get("stream") else "rawPredict") and "model" not in body
        version = {"HTTP_ANTHROPIC_VERSION": body.pop("anthropic_version").replace("vertex-2023-10-16", "2023-06-01")}
        plain = json.dumps({"model": model, **body}).encode()
        named = {"PATH_INFO": "/v1/messages", "HTTP_X_API_KEY": "key", "wsgi.input": io.BytesIO(plain)}
        return super().serve({**environ, **version, **named}, start)


def _script_thinking(say: Say) -> openai.Answer:
    return replace(vendors.VENDORS["openai"].script(say), thought=say.thinking)


def _script_bedrock(say: Say) -> bedrock.Answer:
    answer = vendors.VENDORS["bedrock"].script(say)
    return replace(answer, reasoning=(say.thinking, sign(say.thinking))) if say.thinking else answer


def _script_nova(say: Say) -> bedrock.Answer:
    answer = vendors.VENDORS["bedrock"].script(say)
    return replace(answer, reasoning=(say.thinking, ""))


def _script_or_break(name: str) -> Any:
    """Return the script function of a vendor, with statuses of errors."""

    def script(say: Say) -> Any:
        answer = vendors.FURTHER[name].script(say)
        return replace(answer, status=say.broken) if say.broken else answer

    return script


def _with_quirks_of(provider: str) -> str:
    return f"quirks = {json.dumps(loader.load().providers[provider].quirks)}\n"


def _compatible(provider: str, model: str, fake: type[FakeCompatible] = FakeCompatible) -> Vendor:
    return Vendor(fake, _script_thinking, "openai", model, provider=_with_quirks_of(provider))


CORE: dict[str, Vendor] = {
    **{name: vendors.VENDORS[name] for name in ("openai", "responses", "anthropic", "google")},
    "bedrock": replace(vendors.VENDORS["bedrock"], script=_script_bedrock),
    **{name: replace(vendor, script=_script_or_break(name)) for name, vendor in vendors.FURTHER.items()},
    "deepseek": _compatible("deepseek", "deepseek-flash", FakeThinking),
    "compatible": _compatible("custom", "qwen-4"),
}
# Hosts and vendors with rules of their own, which hold sessions with `HUBS` and with themselves.
OTHERS: dict[str, Vendor] = {
    "vertex": replace(vendors.VENDORS["google"], fake=FakeVertex),
    "vertexclaude": replace(
        vendors.VENDORS["anthropic"], fake=FakeVertexClaude, provider=_with_quirks_of("vertex-anthropic")
    ),
    "nova": replace(vendors.VENDORS["bedrock"], script=_script_nova, model="amazon.nova-2-lite-v1:0"),
    "kimi": _compatible("moonshot", "kimi-k2-thinking", FakeThinking),
    "qwen": _compatible("alibaba", "qwen3-max"),
    "mimo": _compatible("xiaomi", "mimo-v2-pro", FakeThinking),
    "glm": _compatible("zai", "glm-5"),
    "grok": _compatible("xai", "grok-4"),
    "sonar": _compatible("perplexity", "sonar-pro", FakeAlternating),
}
HUBS = ("anthropic", "responses", "bedrock")
VENDORS = CORE | OTHERS


def pairs() -> list[tuple[str, str]]:
    """Return the pairs of models that hold a session."""
    found = [*itertools.product(CORE, repeat=2), *((name, name) for name in OTHERS)]
    return found + [pair for name in OTHERS for hub in HUBS for pair in ((name, hub), (hub, name))]
