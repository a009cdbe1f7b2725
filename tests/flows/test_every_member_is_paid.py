"""Requests with any member, part and tool that the vendors' SDKs know: refused, or reserved and billed at least as a
strict vendor bills them, whole, streamed, and left after any event.

The platform's provider keys pay, so no model without a price and no object of the platform's account may be reached.
"""

from __future__ import annotations

import http.client
import importlib
import json
from collections.abc import Iterator
from typing import Any, NamedTuple

import pytest
from fakes.strict_vendors import StrictCall, StrictVendors
from hypothesis import HealthCheck, event, given, settings
from hypothesis import strategies as st
from support import sdk_samples as samples
from support.gateways import LocalGateway
from support.shared import Share
from support.spending import settled_rows

from gateway.catalogue.prices import rates_at
from gateway.metering.models import CAPPED, OVERRUN

Json = dict[str, Any]
CLAUDE = "anthropic/claude-haiku-4-5"
RESPONSES = "openai/gpt-5.6-luna"
GEMINI = "google-ai-studio/gemini-3.8-flash"
MISTRAL = "mistral/mistral-large-4"
MODELS = (CLAUDE, RESPONSES, GEMINI, MISTRAL)
WAYS = ("whole", "streamed", "left", "dismissed")
EXAMPLES = max(60, settings().max_examples)


class Sample(NamedTuple):
    """A request; its caller leaves after the mark `mark`."""

    path: str
    body: Json
    way: str
    mark: int


def said(*parts: Json, role: str = "user") -> Json:
    return {"role": role, "content": [{"type": "text", "text": "Hello"}, *parts]}


class Types:
    """The types of the SDKs, which are imported when they are first used."""

    def __init__(self) -> None:
        load = importlib.import_module
        beta, responses, chat = map(load, ("anthropic.types.beta", "openai.types.responses", "openai.types.chat"))
        self.message = load("anthropic.types.beta.message_create_params").MessageCreateParamsBase
        self.blocks = _different(beta.BetaContentBlockParam)
        self.claude_tools = _different(beta.BetaToolUnionParam)
        self.response = load("openai.types.responses.response_create_params").ResponseCreateParamsBase
        self.items = _different(responses.ResponseInputItemParam)
        content = load("openai.types.responses.response_input_message_content_list_param")
        self.parts = _different(content.ResponseInputContentParam)
        self.response_tools = _different(responses.ToolParam)
        self.completion = load("openai.types.chat.completion_create_params").CompletionCreateParamsBase
        self.chat_parts = _different(chat.ChatCompletionContentPartParam)
        self.chat_messages = _different(chat.ChatCompletionMessageParam)
        self.chat_tools = _different(chat.ChatCompletionToolUnionParam)
        self.google = load("google.genai.types")


def _different(union: Any) -> list[Any]:
    return list({kind.__name__: kind for kind in samples.kinds_in(union)}.values())


@pytest.fixture(scope="module")
def types() -> Types:
    return Types()


def one_of(draw: samples.Draw, kinds: list[Any]) -> Json:
    return samples.structure_of(draw, draw(st.sampled_from(kinds)))


def members_from(draw: samples.Draw, kind: Any, without: set[str]) -> Json:
    """Some of the members of a type of request."""
    known = [(name, hint) for name, hint, _ in samples.members_of(kind) if name not in without]
    chosen = draw(st.lists(st.sampled_from(known), max_size=2, unique_by=lambda one: one[0]))
    return {name: samples.value_of(draw, hint, name, 1) for name, hint in chosen}


def message_body(draw: samples.Draw, types: Types) -> tuple[str, Json]:
    body: Json = {"model": draw(st.sampled_from(MODELS)), "max_tokens": 200, "messages": [said()]}
    for place in draw(st.lists(st.sampled_from(("user", "system", "assistant", "result", "tools")), max_size=2)):
        if place == "tools":
            body.setdefault("tools", []).append(one_of(draw, types.claude_tools))
        elif place == "system":
            body["system"] = [{"type": "text", "text": "Be brief."}, one_of(draw, types.blocks)]
        elif place == "result":
            call = {"type": "tool_use", "id": "toolu_1", "name": "look", "input": {}}
            result = {"type": "tool_result", "tool_use_id": "toolu_1", "content": [one_of(draw, types.blocks)]}
            body["messages"] += [{"role": "assistant", "content": [call]}, {"role": "user", "content": [result]}]
        else:
            more = said(one_of(draw, types.blocks), role=place)
            body["messages"] += [more] if place == "user" else [more, said()]
    more = members_from(draw, types.message, {"model", "messages", "max_tokens", "tools", "system", "stream"})
    return "/v1/messages", body | more


def response_body(draw: samples.Draw, types: Types) -> tuple[str, Json]:
    items: list[Json] = [{"role": "user", "content": "Hello"}]
    body: Json = {"model": draw(st.sampled_from(MODELS)), "max_output_tokens": 200, "store": False, "input": items}
    for place in draw(st.lists(st.sampled_from(("user", "system", "item", "result", "tools")), max_size=2)):
        if place == "tools":
            body.setdefault("tools", []).append(one_of(draw, types.response_tools))
        elif place == "item":
            items.append(one_of(draw, types.items))
        elif place == "result":
            call = {"type": "function_call", "call_id": "c1", "name": "look", "arguments": "{}"}
            output = {"type": "function_call_output", "call_id": "c1", "output": [one_of(draw, types.parts)]}
            items += [call, output]
        else:
            items.append({"role": place, "content": [one_of(draw, types.parts)]})
    without = {"model", "input", "max_output_tokens", "tools", "store", "stream", "instructions"}
    return "/v1/responses", body | members_from(draw, types.response, without)


def chat_body(draw: samples.Draw, types: Types) -> tuple[str, Json]:
    messages: list[Json] = [said()]
    body: Json = {"model": draw(st.sampled_from(MODELS)), "max_completion_tokens": 200, "messages": messages}
    for place in draw(st.lists(st.sampled_from(("user", "system", "message", "tools")), max_size=2)):
        if place == "tools":
            body.setdefault("tools", []).append(one_of(draw, types.chat_tools))
        elif place == "message":
            messages += [one_of(draw, types.chat_messages), said()]
        else:
            messages.append(said(one_of(draw, types.chat_parts), role=place))
    without = {"model", "messages", "max_completion_tokens", "max_tokens", "tools", "stream", "metadata", "store"}
    return "/v1/chat/completions", body | members_from(draw, types.completion, without)


def gemini_body(draw: samples.Draw, types: Types) -> tuple[str, Json]:
    google = types.google
    contents: list[Json] = [{"role": "user", "parts": [{"text": "Hello"}]}]
    config: Json = {"maxOutputTokens": 200}
    body: Json = {"contents": contents, "generationConfig": config}
    for place in draw(st.lists(st.sampled_from(("user", "model", "system", "tools", "config")), max_size=2)):
        if place == "tools":
            body.setdefault("tools", []).append(samples.structure_of(draw, google.Tool))
        elif place == "config":
            config |= members_from(draw, google.GenerationConfig, {"maxOutputTokens"})
        else:
            part = samples.structure_of(draw, google.Part) or {"text": "x"}
            content = {"role": place, "parts": [part]}
            if place == "system":
                body["systemInstruction"] = content
            else:
                contents.append(content)
    if draw(st.booleans()):
        body["cachedContent"] = "cachedContents/1"
    return f"/v1beta/models/{draw(st.sampled_from(MODELS))}", body


AI_DATA = (
    samples.PICTURE,
    {"type": "data", "data": samples.PAGE},
    {"type": "data", "data": samples.SOUND},
    *({"type": "url", "url": address} for address in samples.ADDRESSES if address.startswith("http")),
    {"type": "reference", "reference": {"openai": "file-1", "anthropic": "file_1"}},
    *samples.ADDRESSES,
)
AI_TOOLS = ("anthropic.web_search_20250305", "anthropic.advisor_20260301", "anthropic.code_execution_20250825")
AI_TOOLS += ("openai.web_search", "openai.image_generation", "openai.code_interpreter", "openai.file_search")
AI_TOOLS += ("google.google_search", "google.google_maps", "google.file_search", "gateway.perplexity_search")


def ai_body(draw: samples.Draw, types: Types) -> tuple[str, Json]:
    prompt: list[Json] = [said()]
    body: Json = {"model": draw(st.sampled_from(MODELS)), "prompt": prompt, "maxOutputTokens": 200}
    for place in draw(st.lists(st.sampled_from(("user", "assistant", "result", "tools")), max_size=2)):
        data = draw(st.sampled_from(AI_DATA))
        part = {"type": "file", "mediaType": draw(st.sampled_from(samples.MEDIA_TYPES)), "data": data}
        if place == "tools":
            arguments = {"model": "claude-opus-4-6", "maxUses": 3, "vectorStoreIds": ["vs_1"], "container": "cntr_1"}
            tool = draw(st.sampled_from(AI_TOOLS))
            more = arguments if draw(st.booleans()) else {}
            body.setdefault("tools", []).append({"type": "provider", "id": tool, "name": "x", "args": more})
        elif place == "result":
            call = {"type": "tool-call", "toolCallId": "c1", "toolName": "look", "input": {}}
            output = {"type": "content", "value": [part]}
            result = {"type": "tool-result", "toolCallId": "c1", "toolName": "look", "output": output}
            prompt += [{"role": "assistant", "content": [call]}, {"role": "tool", "content": [result]}]
        else:
            prompt += [said(part, role=place), said()]
    return "/v4/ai/language-model", body


SURFACES = {
    "messages": message_body,
    "responses": response_body,
    "chat": chat_body,
    "gemini": gemini_body,
    "aisdk": ai_body,
}


def any_sample(draw: samples.Draw, types: Types, surface: str) -> Sample:
    path, body = SURFACES[surface](draw, types)
    way = draw(st.sampled_from(WAYS))
    if surface == "gemini":
        path += ":generateContent" if way == "whole" else ":streamGenerateContent?alt=sse"
    elif way != "whole":
        body["stream"] = True
    return Sample(path, body, way, draw(st.integers(0, 3)))


def send(gateway: LocalGateway, sample: Sample) -> tuple[int, str]:
    """Send a request, and leave it after its mark or as soon as there are no more; return what was read."""
    connection = http.client.HTTPConnection(gateway.address.removeprefix("http://"), timeout=60)
    headers = {"Authorization": f"Bearer {gateway.key}", "Content-Type": "application/json"}
    if "/ai/" in sample.path:
        streamed = "true" if sample.body.get("stream") else "false"
        headers |= {"ai-language-model-id": sample.body["model"], "ai-language-model-streaming": streamed}
    connection.request("POST", sample.path, json.dumps(sample.body), headers)
    answer = connection.getresponse()
    leaves = sample.way in ("left", "dismissed") and answer.status == 200
    text = b""
    while piece := answer.read1(65536):
        text += piece
        if leaves and (b"mark-%d" % sample.mark in text or b"word" in text):
            break
    answer.close()
    connection.close()
    return answer.status, text.decode()


def environment_of(vendors: StrictVendors, **more: str) -> dict[str, str]:
    places = {"ANTHROPIC": "/v1", "OPENAI": "/v1", "GOOGLE_AI_STUDIO": "/v1beta", "MISTRAL": "/v1"}
    return {
        **{f"LLM_{name}_API_KEY": "sk-upstream" for name in places},
        **{f"LLM_{name}_BASE_URL": vendors.url + path for name, path in places.items()},
        **more,
    }


def set_rates(gateway: LocalGateway, vendors: StrictVendors) -> None:
    for name in MODELS:
        provider, _, model = name.partition("/")
        mappings = gateway.services.routing.catalogue.current().find(model).mappings
        [mapping] = [one for one in mappings if one.provider == provider]
        base = rates_at(mapping, gateway.services.clock.now_us(), 0)
        vendors.rates[mapping.external_id] = (base.prompt, base.completion)


class Scene:
    """A gateway at the vendors, with the number of rows that were looked at."""

    def __init__(self, gateway: LocalGateway, vendors: StrictVendors) -> None:
        self.gateway, self.vendors = gateway, vendors
        self.seen = 0
        set_rates(gateway, vendors)

    def check(self, sample: Sample) -> None:
        self.vendors.calls.clear()
        status, text = send(self.gateway, sample)
        calls: list[StrictCall] = list(self.vendors.calls)
        event(f"{sample.path.split('/')[2]} {status}")
        assert status < 500, (status, text, sample)
        if not calls:
            assert status != 200, (text, sample)
            return
        for call in calls:
            assert not call.stored and not call.models, (call.stored, call.models, sample, call.body)
        rows = settled_rows(self.gateway, len(calls), self.seen)
        self.seen += len(rows)
        cost = sum(one[0] for one in rows)
        bill = sum(expected(call, sample, text) for call in calls)
        assert cost >= bill, (cost, bill, rows, sample, [call.body for call in calls])
        assert not any(flags & OVERRUN for _, flags, _ in rows), (rows, sample, [call.body for call in calls])
        assert all("unpriced" not in extra for _, _, extra in rows), (rows, sample)


def expected(call: StrictCall, sample: Sample, text: str) -> int:
    """The bill of a call for what its caller received at least."""
    if sample.way != "left":
        return call.bill
    marks = [number for number in range(len(call.bills) - 1) if f"mark-{number}" in text]
    return call.bills[marks[-1]] if marks else 0


@pytest.fixture(params=["read on", "cancelled"])
def scene(request: pytest.FixtureRequest, share: Share) -> Iterator[Scene]:
    """Answers that are left are read on, or cancelled at once."""
    vendors = share.fake(StrictVendors)
    drain = "20" if request.param == "read on" else "0"
    vendors.unseen = 60_000 if request.param == "read on" else 700
    yield Scene(share.gateway(environment_of(vendors, GATEWAY_METERING_DRAIN_S=drain)), vendors)


@pytest.mark.extended
@pytest.mark.parametrize("surface", SURFACES)
def test_a_request_with_any_member_is_refused_or_paid(scene: Scene, types: Types, surface: str) -> None:
    drains = scene.vendors.unseen > 700

    @settings(max_examples=EXAMPLES, suppress_health_check=list(HealthCheck))
    @given(st.data())
    def holds(data: st.DataObject) -> None:
        sample = any_sample(data.draw, types, surface)
        if drains and sample.way == "left":
            sample = sample._replace(way="dismissed")
        elif not drains and sample.way == "dismissed":
            sample = sample._replace(way="left")
        scene.check(sample)

    holds()


SEARCHING = {
    "anthropic": ("/v1/messages", CLAUDE, {"type": "web_search_20250305", "name": "web_search"}),
    "responses": ("/v1/responses", RESPONSES, {"type": "web_search"}),
}


@pytest.mark.parametrize("way", WAYS[:2])
@pytest.mark.parametrize("vendor", SEARCHING)
def test_an_absurd_count_of_searches_is_billed_up_to_what_can_be_believed(share: Share, vendor: str, way: str) -> None:
    vendors = share.fake(StrictVendors)
    gateway = share.gateway(environment_of(vendors))
    set_rates(gateway, vendors)
    vendors.boast = 10**9
    path, model, tool = SEARCHING[vendor]
    said_before = (
        {"messages": [said()], "max_tokens": 200} if vendor == "anthropic" else {"input": "Hello", "store": False}
    )
    body = {"model": model, "tools": [tool], **said_before, "stream": way == "streamed"}
    status, text = send(gateway, Sample(path, body, way, 0))
    assert status == 200, text
    [(cost, flags, extra)] = settled_rows(gateway, 1, 0)
    [call] = vendors.calls
    assert call.bill <= cost <= 500 * 10_000_000 + call.bill and extra["units"]["searches"] == 500
    assert flags & CAPPED
