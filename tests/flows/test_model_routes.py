"""Routes through the whole gateway: rules choose the model, a session keeps it, and a new version acts at once."""

import json
from collections.abc import Iterator
from typing import Any

import gevent
import httpx as http
import pytest
from fakes.anthropic import FakeAnthropic
from fakes.openai import Answer, FakeOpenAI
from openai import NotFoundError, OpenAI, PermissionDeniedError
from support.chat_paths import CHAT_PATHS, GEMINI_BODY
from support.gateways import LocalGateway
from support.mcp_visitor import Visitor
from support.published_routes import Routes, post
from support.shared import Share, usage_of
from support.spending import BODIES

from gateway.accounts import projects, rules
from gateway.accounts.limit_drafts import LimitDraft
from gateway.accounts.spending_limits import SpendingLimits
from gateway.limits.limit_rules import read_action, read_subject
from gateway.metering import usage_table
from gateway.metering.route_usage import sum_savings

SMALL, LARGE = "openai/gpt-4o-mini", "openai/gpt-4o"
TOOL = {"type": "function", "function": {"name": "read_file", "parameters": {"type": "object", "properties": {}}}}


@pytest.fixture
def routes(gateway: LocalGateway) -> Iterator[Routes]:
    made = Routes(gateway)
    yield made
    made.clear()


def sent_models(upstream: FakeOpenAI) -> list[str]:
    return [call.body["model"] for call in upstream.calls]


def ask(client: OpenAI, model: str, content: str = "Hello.", **more: Any) -> Any:
    return client.chat.completions.create(model=model, messages=[{"role": "user", "content": content}], **more)


def test_first_rule_that_holds_chooses_the_model(client: OpenAI, upstream: FakeOpenAI, routes: Routes) -> None:
    document = {
        "rules": [
            {"when": {"headers": {"x-tier": "gold"}}, "use": LARGE},
            {"when": {"promptTokens": {"atLeast": 500}}, "use": LARGE},
        ],
        "otherwise": SMALL,
    }
    routes.publish("house", document, "house-default")
    upstream.script(*[Answer("ok")] * 4)
    ask(client, "dynamic/house")
    ask(client, "house-default")
    ask(client, "dynamic/house", extra_headers={"x-tier": "gold"})
    ask(client, "dynamic/house", "word " * 600)
    assert sent_models(upstream) == ["gpt-4o-mini", "gpt-4o-mini", "gpt-4o", "gpt-4o"]


def test_rule_reads_fields_of_the_body_on_each_surface(
    gateway: LocalGateway, upstream: FakeOpenAI, routes: Routes
) -> None:
    rules = [
        {"when": {"body": {"metadata.tier": "gold"}}, "use": LARGE},
        {"when": {"body": {"temperature": [0, 0.5]}}, "use": LARGE},
    ]
    routes.publish("house", {"rules": rules, "otherwise": SMALL})
    upstream.script(*[Answer("ok")] * 9)
    for path in ("/v1/chat/completions", "/v1/responses", "/v1/messages"):
        body = {**BODIES[path]("Hello."), "model": "dynamic/house"}
        tier = {} if path == "/v1/messages" else {"metadata": {"tier": "gold"}}
        for more in (tier, {"temperature": 0.5}, {}):
            assert post(gateway, path, {**body, **more}).status_code == 200
    assert sent_models(upstream) == [*["gpt-4o", "gpt-4o", "gpt-4o-mini"] * 2, "gpt-4o-mini", "gpt-4o", "gpt-4o-mini"]


def test_published_version_acts_on_the_next_request(client: OpenAI, upstream: FakeOpenAI, routes: Routes) -> None:
    upstream.script(*[Answer("ok")] * 3)
    routes.publish("house", {"otherwise": SMALL})
    ask(client, "dynamic/house")
    routes.publish("house", {"otherwise": LARGE})
    ask(client, "dynamic/house")
    routes.roll_back("house", 1)
    ask(client, "dynamic/house")
    assert sent_models(upstream) == ["gpt-4o-mini", "gpt-4o", "gpt-4o-mini"]


def test_request_keeps_the_version_with_which_it_began(
    client: OpenAI, gateway: LocalGateway, upstream: FakeOpenAI, routes: Routes
) -> None:
    routes.publish("house", {"otherwise": [LARGE, SMALL]})
    upstream.script(Answer(status=500, silence_s=1.0), Answer("Done."))
    messages = [{"role": "user", "content": "Hello."}]
    create = client.chat.completions.with_raw_response.create
    asking = gevent.spawn(create, model="dynamic/house", messages=messages)
    while not upstream.calls:
        gevent.sleep(0.01)
    routes.publish("house", {"otherwise": "openai/gpt-4.1"})
    answer = asking.get()
    assert sent_models(upstream) == ["gpt-4o", "gpt-4o-mini"]
    assert answer.headers["x-llmgateway-route"] == "house; version=1; rule=otherwise"
    assert {row.details["route_version"] for row in usage_of(gateway)} == {1}


def test_unknown_route_and_one_of_another_project_are_not_found(
    client: OpenAI, gateway: LocalGateway, routes: Routes
) -> None:
    with pytest.raises(NotFoundError, match="no published route"):
        ask(client, "dynamic/none")


def test_usage_row_and_answer_name_route_version_rule_and_the_alternative(
    client: OpenAI, gateway: LocalGateway, upstream: FakeOpenAI, routes: Routes
) -> None:
    routes.publish("house", {"rules": [{"name": "short", "when": {"tools": False}, "use": SMALL}], "otherwise": LARGE})
    upstream.script(Answer("ok"))
    raw = client.chat.completions.with_raw_response.create(
        model="dynamic/house", messages=[{"role": "user", "content": "Hello."}]
    )
    assert raw.headers["x-llmgateway-route"] == "house; version=1; rule=short"
    answer = json.loads(raw.text)
    metadata = answer["llmgateway"]  # complete also for clients that read only texts in metadata
    assert metadata["requested_model"] == "dynamic/house"
    assert {name: metadata["route"][name] for name in ("name", "version", "rule", "reference")} == {
        "name": "house",
        "version": 1,
        "rule": "short",
        "reference": LARGE,
    }
    [row] = usage_table.find(gateway.services.store.database, metadata["log_id"])
    assert row.asked == "dynamic/house" and row.details["route_rule"] == "short"
    usage = answer["usage"]
    catalogue = gateway.services.routing.catalogue.current()
    rates = next(one for one in catalogue.models["gpt-4o"].mappings if one.provider == "openai").prices[0].base
    expected = usage["prompt_tokens"] * rates.prompt + usage["completion_tokens"] * rates.completion
    assert row.details["reference_nusd"] == round(expected / 1_000_000) > row.cost_nusd > 0
    [savings] = sum_savings(gateway.services.store.database, gateway.organization_id, 0)
    assert (savings.requests, savings.cost_nusd) == (1, row.cost_nusd)
    assert savings.reference_nusd == row.details["reference_nusd"]


def test_list_of_models_of_a_key_has_its_routes(client: OpenAI, gateway: LocalGateway, routes: Routes) -> None:
    routes.publish("house", {"otherwise": SMALL}, "claude-house-latest")
    listed = {model.id for model in client.models.list()}
    assert {"smart", "claude-smart", "dynamic/house", "claude-house-latest"} <= listed
    for name in ("claude-house-latest", "claude-smart"):
        assert client.models.retrieve(name).id == name
    routes.clear()
    routes.names.clear()
    assert "dynamic/house" not in {model.id for model in client.models.list()}


@pytest.mark.parametrize(
    ("path", "begin"),
    [("/v1beta/models", "models/"), ("/v1/ai/config", ""), ("/v3/ai/config", ""), ("/v1/models?available=true", "")],
)
def test_lists_of_other_surfaces_have_the_routes_that_a_project_can_call(
    gateway: LocalGateway, routes: Routes, path: str, begin: str
) -> None:
    def list_names() -> set[str]:
        answer = http.get(gateway.address + path, headers={"Authorization": f"Bearer {gateway.key}"}, timeout=30)
        body = answer.json()
        entries = body.get("models") or body["data"]
        return {entry.get("name") if begin else entry["id"] for entry in entries}

    store = gateway.services.store
    other = projects.create_project(store.database, store.control, gateway.organization_id, path, actor="operator")
    routes.publish("house", {"otherwise": SMALL}, "claude-house-latest")
    routes.publish("hidden", {"otherwise": SMALL}, project=other.id)
    names = {f"{begin}{name}" for name in ("smart", "claude-smart", "dynamic/house", "claude-house-latest")}
    assert names <= list_names() and f"{begin}dynamic/hidden" not in list_names()
    routes.clear()
    routes.names.clear()
    assert f"{begin}dynamic/house" not in list_names()


def test_the_list_of_models_for_agents_has_the_routes(gateway: LocalGateway, routes: Routes) -> None:
    routes.publish("house", {"otherwise": SMALL}, "claude-house-latest")
    listed = Visitor(gateway).call("list-models")
    names = {route["id"] for route in listed["structuredContent"]["routes"]}
    assert names == {"smart", "claude-smart", "dynamic/house", "claude-house-latest"}
    assert all(f"**{name}**" in listed["content"][0]["text"] for name in names)


def test_gemini_client_gets_one_entry_of_a_route(gateway: LocalGateway, routes: Routes) -> None:
    routes.publish("house", {"otherwise": SMALL})
    headers = {"x-goog-api-key": gateway.key}
    answer = http.get(f"{gateway.address}/v1beta/models/dynamic/house", headers=headers, timeout=30).json()
    assert answer["name"] == "models/dynamic/house" and "generateContent" in answer["supportedGenerationMethods"]
    assert answer["inputTokenLimit"] > 0


def test_smart_has_a_name_that_claude_code_lists(client: OpenAI, upstream: FakeOpenAI) -> None:
    raw = client.chat.completions.with_raw_response.create(
        model="claude-smart", messages=[{"role": "user", "content": "Fix the typo."}]
    )
    assert raw.headers["x-llmgateway-route"].startswith("smart; version=1")


@pytest.mark.parametrize("path", CHAT_PATHS)
def test_route_serves_every_chat_surface(
    gateway: LocalGateway, upstream: FakeOpenAI, routes: Routes, path: str
) -> None:
    routes.publish("house", {"rules": [{"when": {"headers": {"x-tier": "gold"}}, "use": LARGE}], "otherwise": SMALL})
    upstream.script(Answer("ok"))
    body = GEMINI_BODY if path.startswith("/v1beta") else {**BODIES[path]("Hello."), "model": "dynamic/house"}
    answer = post(gateway, path, body, **{"x-tier": "gold"})
    assert answer.status_code == 200, answer.text
    assert answer.headers["x-llmgateway-route"] == "house; version=1; rule=rule 1"
    assert sent_models(upstream) == ["gpt-4o"]


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("path", ["/v1/messages", "/v1/responses"])
def test_answer_has_the_name_of_the_route_whichever_model_of_its_list_served(
    gateway: LocalGateway, upstream: FakeOpenAI, routes: Routes, path: str, stream: bool
) -> None:
    # Claude Code drops the thoughts of its session, and loses its cache, where an answer names another model.
    routes.publish("house", {"otherwise": [SMALL, LARGE]})
    upstream.script(Answer("ok"))
    answer = post(gateway, path, {**BODIES[path]("Hello."), "model": "dynamic/house", "stream": stream})
    assert answer.status_code == 200, answer.text
    events = [json.loads(line[6:]) for line in answer.text.splitlines() if line.startswith("data: {")]
    whole = [event.get("message") or event.get("response") for event in events] if stream else [answer.json()]
    names = {each["model"] for each in whole if each}
    assert names == {"dynamic/house"}


@pytest.mark.parametrize("model", ["dynamic/house", "smart", "house-alias"])
@pytest.mark.parametrize("path", ["/v1/embeddings", "/v1/audio/speech", "/v1/images/generations", "/v1/rerank"])
def test_other_operations_say_that_routes_serve_chat(
    gateway: LocalGateway, routes: Routes, path: str, model: str
) -> None:
    routes.publish("house", {"otherwise": SMALL}, "house-alias")
    answer = post(gateway, path, {**BODIES[path]("Hello."), "model": model})
    assert (answer.status_code, answer.json()["error"]["code"]) == (400, "route_serves_chat")


def test_denied_model_is_refused_and_a_list_goes_on_to_the_next(
    client: OpenAI, gateway: LocalGateway, upstream: FakeOpenAI, routes: Routes
) -> None:
    store = gateway.services.store
    value = {"models": ["gpt-4o"]}
    rule = rules.add_rule(
        store.database, store.control, "organization", gateway.organization_id, "deny_models", value, actor="operator"
    )
    listed = {"when": {"headers": {"x-list": "*"}}, "use": [LARGE, SMALL]}
    routes.publish("house", {"rules": [listed], "otherwise": LARGE})
    try:
        with pytest.raises(PermissionDeniedError):
            ask(client, "dynamic/house")
        upstream.script(Answer("ok"))
        ask(client, "dynamic/house", extra_headers={"x-list": "1"})
    finally:
        rules.remove_rule(store.database, store.control, gateway.organization_id, rule.id, actor="operator")
    assert sent_models(upstream) == ["gpt-4o-mini"]


def test_smart_serves_without_any_set_up(client: OpenAI, upstream: FakeOpenAI) -> None:
    upstream.script(Answer("ok"), Answer("ok"))
    easy = client.chat.completions.with_raw_response.create(
        model="smart", messages=[{"role": "user", "content": "Fix the typo."}]
    )
    hard = client.chat.completions.with_raw_response.create(
        model="smart",
        messages=[{"role": "user", "content": "Investigate why our workers deadlock under load and design a fix."}],
    )
    assert "rule=small" in easy.headers["x-llmgateway-route"] and "rule=large" in hard.headers["x-llmgateway-route"]
    assert sent_models(upstream) == ["gpt-6-luna", "gpt-6.1-sol"]
    assert hard.headers["x-llmgateway-smart-model"] == "gpt-6.1-sol"


def test_alias_of_a_model_replaces_it_for_its_organization_alone(
    client: OpenAI, gateway: LocalGateway, upstream: FakeOpenAI, routes: Routes
) -> None:
    routes.publish("house", {"otherwise": SMALL}, "gpt-4o")
    upstream.script(Answer("ok"), Answer("ok"))
    ask(client, "gpt-4o")
    ask(client.with_options(api_key=gateway.add_organization("Others")), "gpt-4o")
    assert sent_models(upstream) == ["gpt-4o-mini", "gpt-4o"]


def test_route_serves_names_with_the_mark_of_a_long_context(
    client: OpenAI, upstream: FakeOpenAI, routes: Routes
) -> None:
    routes.publish("house", {"otherwise": SMALL}, "house-default", "gpt-4o")
    upstream.script(*[Answer("ok")] * 3)
    for name in ("dynamic/house[1m]", "house-default[1M]", "gpt-4o[1m]"):
        ask(client, name)
    assert sent_models(upstream) == ["gpt-4o-mini"] * 3


def test_route_of_a_project_is_unknown_in_others(client: OpenAI, gateway: LocalGateway, routes: Routes) -> None:
    store = gateway.services.store
    other = projects.create_project(store.database, store.control, gateway.organization_id, "Other", actor="operator")
    routes.publish("house", {"otherwise": SMALL}, project=other.id)
    with pytest.raises(NotFoundError):
        ask(client, "dynamic/house")


def test_explanation_names_rule_and_version_without_a_call(
    gateway: LocalGateway, upstream: FakeOpenAI, routes: Routes
) -> None:
    routes.publish("house", {"rules": [{"name": "plain", "when": {"tools": False}, "use": SMALL}], "otherwise": LARGE})
    body = {"model": "dynamic/house", "messages": [{"role": "user", "content": "Hello."}]}
    explained = post(gateway, "/v1/route/explain", body).json()
    assert (explained["requestedModel"], explained["selectedModel"]) == ("dynamic/house", "gpt-4o-mini")
    assert {name: explained["route"][name] for name in ("name", "version", "rule")} == {
        "name": "house",
        "version": 1,
        "rule": "plain",
    }
    upstream.script(Answer("ok"))
    log_id = post(gateway, "/v1/chat/completions", body).json()["metadata"]["log_id"]
    answer = http.get(
        f"{gateway.address}/v1/route/explain/{log_id}", headers={"Authorization": f"Bearer {gateway.key}"}
    ).json()
    assert answer["route"]["rule"] == "plain" and answer["requestedModel"] == "dynamic/house"


def test_limit_that_is_nearly_used_sends_requests_to_a_route(
    client: OpenAI, gateway: LocalGateway, upstream: FakeOpenAI, routes: Routes
) -> None:
    routes.publish("saving", {"otherwise": SMALL})
    routes.publish("house", {"rules": [{"when": {"budget": {"atLeast": 50}}, "use": SMALL}], "otherwise": LARGE})
    limits = SpendingLimits(gateway.services.store.database, gateway.services.store.control)

    def ask_under(model: str, action: str) -> None:
        draft = LimitDraft((read_subject("organization"),), 1, "", (read_action(action),), "exact")
        limits.put(gateway.organization_id, "all", draft, actor="operator")
        gateway.services.billing.settlements.limits._used.clear()
        ask(client, model)
        gateway.services.billing.settlements.maintain()

    upstream.script(*[Answer("ok")] * 3)
    ask_under(LARGE, "warn@50")
    ask_under(LARGE, "model@50=dynamic/saving")
    ask_under("dynamic/house", "warn@50")
    limits.delete(gateway.organization_id, "all", actor="operator")
    assert sent_models(upstream) == ["gpt-4o", "gpt-4o-mini", "gpt-4o-mini"]


LADDER = {
    "rules": [
        {"name": "nearly used", "when": {"budget": {"atLeast": 90, "limit": "all"}}, "use": SMALL},
        {"name": "saving", "when": {"budget": {"atLeast": 70, "limit": "all"}, "difficulty": ["small"]}, "use": SMALL},
    ],
    "otherwise": LARGE,
}


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/messages", "/v1/responses"])
def test_the_ladder_leads_to_smaller_models_and_to_the_refusal(
    gateway: LocalGateway, upstream: FakeOpenAI, routes: Routes, path: str
) -> None:
    limits = SpendingLimits(gateway.services.store.database, gateway.services.store.control)
    usd = 10**9
    limits.put(
        gateway.organization_id,
        "all",
        LimitDraft((read_subject("organization"),), usd // 10, reservation="exact"),
        actor="operator",
    )
    routes.publish("house", LADDER)
    easy, hard = "Fix the typo.", "Investigate why the workers deadlock under load, and design a fix."

    def step(text: str, tokens: int) -> str:
        """Spend the tokens of a prompt; gpt-4o costs 2.5 nano-dollars each thousandth, the small one 0.15."""
        upstream.calls.clear()
        upstream.script(Answer("ok", prompt=tokens, completion=1))
        answer = post(gateway, path, {**BODIES[path](text), "model": "dynamic/house"})
        gateway.services.billing.settlements.maintain()
        gateway.services.billing.settlements.limits._used.clear()
        if answer.status_code != 200:
            return f"{answer.status_code} {answer.json()['error'].get('code') or answer.json()['error']['type']}"
        return str(sent_models(upstream)[0])

    try:
        assert [step(easy, 14_400), step(easy, 14_400)] == ["gpt-4o", "gpt-4o"]  # 72 % are used
        assert [step(easy, 1_000), step(hard, 8_000)] == ["gpt-4o-mini", "gpt-4o"]  # 92 %
        assert [step(hard, 1_000), step(easy, 80_000)] == ["gpt-4o-mini", "gpt-4o-mini"]  # all
        refused = step(easy, 1)
        assert refused.startswith("4") and not upstream.calls, refused
    finally:
        limits.delete(gateway.organization_id, "all", actor="operator")


def test_smart_uses_any_model_where_none_of_its_lists_can_be_called(share: Share) -> None:
    alone = share.gateway({})
    body = {"model": "smart", "messages": [{"role": "user", "content": "Hello."}]}
    answer = post(alone, "/v1/chat/completions", body)
    assert answer.status_code == 200 and answer.json()["metadata"]["used_provider"] == "sandbox"
    assert post(alone, "/v1/route/explain", body).json()["route"]["name"] == "smart"


THINKING = [
    {"role": "user", "content": "Fix the bug."},
    {
        "role": "assistant",
        "content": [
            {"type": "thinking", "thinking": "The index is off by one.", "signature": "c2lnbmVkLWJ5LWNsYXVkZQ=="},
            {"type": "text", "text": "The index is off by one."},
        ],
    },
    {"role": "user", "content": "Go on."},
]
SEALED = [
    {"role": "user", "content": "Fix the bug."},
    {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "gAAAA-sealed-by-openai"},
    {"role": "assistant", "content": "The index is off by one."},
    {"role": "user", "content": "Go on."},
]


@pytest.mark.parametrize(
    ("path", "body", "use", "secret"),
    [
        ("/v1/messages", {"messages": THINKING, "max_tokens": 100}, LARGE, "c2lnbmVkLWJ5LWNsYXVkZQ=="),
        ("/v1/responses", {"input": SEALED, "store": False}, "anthropic/claude-haiku-4-5", "gAAAA-sealed-by-openai"),
    ],
)
def test_signed_and_sealed_reasoning_reaches_no_model_that_cannot_read_it(
    share: Share, upstream_environment: dict[str, str], path: str, body: dict[str, Any], use: str, secret: str
) -> None:
    upstream, vendor = share.fake(FakeOpenAI), share.fake(FakeAnthropic)
    environment = {"LLM_ANTHROPIC_API_KEY": "sk-ant", "LLM_ANTHROPIC_BASE_URL": vendor.url}
    both = share.gateway({**upstream_environment, **environment})
    made = Routes(both)
    made.publish("house", {"otherwise": use})
    try:
        upstream.script(Answer("ok"))
        answer = post(both, path, {**body, "model": "dynamic/house"})
    finally:
        made.clear()
    assert answer.status_code == 200, answer.text
    sent = json.dumps([call.body for call in (upstream if use == LARGE else vendor).calls])
    assert "The index is off by one." in sent and secret not in sent


def test_route_serves_the_ai_sdk_and_the_chat_tool_of_agents(
    gateway: LocalGateway, upstream: FakeOpenAI, routes: Routes
) -> None:
    routes.publish("house", {"otherwise": LARGE})
    upstream.script(Answer("ok"), Answer("ok"))
    headers = {"ai-language-model-id": "dynamic/house", "ai-language-model-streaming": "false"}
    body = {"prompt": [{"role": "user", "content": [{"type": "text", "text": "Hello."}]}]}
    assert post(gateway, "/v4/ai/language-model", body, **headers).status_code == 200
    called = Visitor(gateway).call("chat", model="dynamic/house", messages=[{"role": "user", "content": "Hello."}])
    assert not called.get("isError"), called
    assert sent_models(upstream) == ["gpt-4o", "gpt-4o"]
