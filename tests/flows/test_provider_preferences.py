"""`models` and the members of `provider` on every chat surface, streamed and whole, in the body and in headers: each
changes which provider is called, and the answer names the one that served."""

import json
from pathlib import Path
from typing import Any

import httpx
import pytest
from fakes.openai import Answer, FakeOpenAI
from support.gateways import LocalGateway
from support.shared import Share
from support.two_providers import MODEL, PROVIDER, write_twins
from websockets.sync.client import connect

from gateway.accounts.projects import ProjectChange, update_project

Json = dict[str, Any]
HELLO = [{"role": "user", "content": "Hello"}]
PARTS = [{"role": "user", "content": [{"type": "text", "text": "Hello"}]}]
CONTENTS = [{"role": "user", "parts": [{"text": "Hello"}]}]
AI_SDK = ("/v1/ai", "/v3/ai", "/v4/ai")
SOCKET = "/v1/responses over a socket"
GEMINI = "/v1beta/models/{model}"
BODIES: dict[str, Json] = {
    "/v1/chat/completions": {"messages": HELLO},
    "/v1/completions": {"prompt": "Hello"},
    "/v1/messages": {"messages": HELLO, "max_tokens": 50},
    "/v1/responses": {"input": "Hello"},
    SOCKET: {"input": "Hello"},
    GEMINI: {"contents": CONTENTS},
    **{prefix: {"prompt": PARTS} for prefix in AI_SDK},
}
# A socket only streams, and Gemini's body has no place for preferences.
WAYS = [
    (surface, stream, place)
    for surface in BODIES
    for stream in (False, True)
    for place in ("body", "header")
    if (stream or surface != SOCKET) and (place, surface) != ("body", GEMINI)
]
DOWN = Answer(status=500)
# Each preference, the providers that fail, and the provider that serves then. Otherwise north serves, the cheapest.
PREFERENCES: dict[str, tuple[Json, tuple[str, ...], str]] = {
    "none": ({}, (), "north"),
    "order": ({"provider": {"order": ["south", "north"]}}, (), "south"),
    "only": ({"provider": {"only": ["SOUTH"]}}, (), "south"),
    "ignore": ({"provider": {"ignore": ["north"]}}, (), "south"),
    "sort": ({"provider": {"sort": "throughput"}}, (), "south"),
    "fallbacks": ({}, ("north",), "south"),
    "no fallbacks": ({"provider": {"allow_fallbacks": False}}, ("north",), ""),
    "order without fallbacks": ({"provider": {"order": ["south"], "allow_fallbacks": False}}, ("south",), ""),
    "models": ({"models": ["third"]}, ("north", "south"), "west"),
}


@pytest.fixture
def fakes(share: Share, upstream: FakeOpenAI) -> dict[str, FakeOpenAI]:
    others = {name: share.fake(FakeOpenAI, name=name) for name in ("south", "west")}
    return {"north": upstream, **others}


@pytest.fixture
def gateway(share: Share, fakes: dict[str, FakeOpenAI]) -> LocalGateway:
    """`twin` at north and at south, which is faster and dearer; `third` at west."""

    def write(folder: Path) -> dict[str, str]:
        environment = write_twins(folder / "catalogue", fakes["north"].url, fakes["south"].url)
        fields = {"address": fakes["west"].url, "variable": "WEST", "price": "0.000003", "more": "reasoning = false"}
        provider = PROVIDER.format(name="west", **fields).replace('"twin"', '"third"')
        (folder / "catalogue" / "providers" / "west.toml").write_text(provider)
        (folder / "catalogue" / "models" / "third.toml").write_text(MODEL.replace("twin", "third"))
        return {**environment, "WEST_KEYS": "west-key"}

    running = share.gateway(write)
    mappings = running.services.routing.catalogue.current().models["twin"].mappings
    for mapping, tokens in zip(sorted(mappings, key=lambda mapping: mapping.provider), (10, 40), strict=True):
        figures = {"ttft_ms": 1000.0 / tokens, "tokens": tokens, "duration_ms": 100.0}
        for _ in range(20):
            running.services.routing.health.sample(mapping, None, **figures)
    return running


def call(gateway: LocalGateway, surface: str, stream: bool, place: str, preferences: Json) -> tuple[int, str]:
    """Call the model `twin`. Return the status and the provider that the answer names, "" for none."""
    headers = {"Authorization": f"Bearer {gateway.key}"}
    body = dict(BODIES[surface])
    path = surface
    if place == "header":
        headers |= write_headers(preferences)
    elif surface in AI_SDK:
        body["providerOptions"] = {"llmgateway": preferences}
    else:
        body |= preferences
    if surface == SOCKET:
        return take_turn(gateway, {"model": "twin", **body}, headers)
    if surface in AI_SDK:
        path = f"{surface}/language-model"
        headers |= {"ai-language-model-id": "twin", "ai-language-model-streaming": str(stream).lower()}
    elif surface == GEMINI:
        method = "streamGenerateContent?alt=sse" if stream else "generateContent"
        path = f"/v1beta/models/twin:{method}"
    else:
        body |= {"model": "twin", "stream": stream}
    with httpx.Client(trust_env=False, timeout=60) as http:
        answer = http.post(gateway.address + path, json=body, headers=headers)
    assert answer.status_code != 400, answer.text
    return answer.status_code, answer.headers.get("x-llmgateway-provider", "")


def write_headers(preferences: Json) -> dict[str, str]:
    members = preferences.get("provider", {})
    texts = {
        name: ",".join(member) if isinstance(member, list) else str(member).lower() for name, member in members.items()
    }
    headers = {
        "X-LLMGateway-Provider": "; ".join(f"{name}={text}" for name, text in texts.items()),
        "X-LLMGateway-Models": ", ".join(preferences.get("models", ())),
    }
    return {name: value for name, value in headers.items() if value}


def take_turn(gateway: LocalGateway, body: Json, headers: dict[str, str]) -> tuple[int, str]:
    address = gateway.url.replace("http", "ws", 1) + "/responses"
    with connect(address, additional_headers=headers, proxy=None) as socket:
        socket.send(json.dumps({"type": "response.create", **body}))
        while True:
            event = json.loads(socket.recv())
            if event["type"] == "response.completed":
                return 200, event["response"]["llmgateway"]["used_provider"]
            if event["type"] in ("response.failed", "error"):
                return event.get("status", 500), ""


@pytest.mark.parametrize(
    "surface,stream,place,preference",
    [(*way, name) for way in WAYS for name, (value, *_) in PREFERENCES.items() if value or way[2] == "header"],
)
def test_each_preference_decides_on_each_surface(
    gateway: LocalGateway, fakes: dict[str, FakeOpenAI], surface: str, stream: bool, place: str, preference: str
) -> None:
    value, failing, serving = PREFERENCES[preference]
    for name in failing:
        fakes[name].script(DOWN)
    status, named = call(gateway, surface, stream, place, value)
    assert {name for name, fake in fakes.items() if fake.calls} == {*failing, serving} - {""}
    if serving:
        assert (status, named) == (200, serving)
    else:
        assert status >= 500 and named in ("", *failing)


@pytest.mark.parametrize("criterion", ("latency", "throughput"))
@pytest.mark.parametrize("spelling", ("{}", "sort.by"))
def test_sort_by_speed(gateway: LocalGateway, criterion: str, spelling: str) -> None:
    sort = {"by": criterion} if spelling == "sort.by" else criterion
    assert call(gateway, "/v1/chat/completions", True, "body", {"provider": {"sort": sort}}) == (200, "south")


def test_sort_by_price_replaces_the_strategy_of_the_project(gateway: LocalGateway) -> None:
    store = gateway.services.store
    change = ProjectChange(settings={"routing": "throughput"})
    update_project(store.database, store.control, gateway.project_id, change, actor="test")
    assert call(gateway, "/v1/messages", False, "body", {}) == (200, "south")
    assert call(gateway, "/v1/messages", False, "header", {"provider": {"sort": "price"}}) == (200, "north")


@pytest.mark.parametrize(
    "options,serving",
    [
        ({"order": ["south"]}, "south"),
        ({"only": ["south"]}, "south"),
        ({"sort": "tps"}, "south"),
        ({"sort": "cost"}, "north"),
        ({"only": ["west"], "models": ["third"]}, "west"),
    ],
)
def test_the_ai_sdk_s_own_namespace_is_read(gateway: LocalGateway, options: Json, serving: str) -> None:
    headers = {"Authorization": f"Bearer {gateway.key}", "ai-language-model-id": "twin"}
    body = {"prompt": PARTS, "providerOptions": {"gateway": options}}
    with httpx.Client(trust_env=False, timeout=60) as http:
        answer = http.post(f"{gateway.address}/v4/ai/language-model", json=body, headers=headers)
    assert answer.headers["x-llmgateway-provider"] == serving, answer.text


def test_the_body_takes_precedence_over_the_header(gateway: LocalGateway) -> None:
    headers = {"Authorization": f"Bearer {gateway.key}", "X-LLMGateway-Provider": "only=north"}
    body = {"model": "twin", "messages": HELLO, "provider": {"only": ["south"]}}
    with httpx.Client(trust_env=False, timeout=60) as http:
        answer = http.post(f"{gateway.url}/chat/completions", json=body, headers=headers)
    assert answer.headers["x-llmgateway-provider"] == "south"


@pytest.mark.parametrize("value", ("south", "only=south; colour=red", "sort=beauty", "allow_fallbacks=perhaps"))
def test_an_unreadable_header_is_an_error_that_shows_its_form(gateway: LocalGateway, value: str) -> None:
    headers = {"Authorization": f"Bearer {gateway.key}", "X-LLMGateway-Provider": value}
    with httpx.Client(trust_env=False, timeout=60) as http:
        body = {"model": "twin", "messages": HELLO}
        answer = http.post(f"{gateway.url}/chat/completions", json=body, headers=headers)
    error = answer.json()["error"]
    assert (answer.status_code, error["param"]) == (400, "x-llmgateway-provider")
    assert "only=openai,azure; sort=price" in error["message"]
