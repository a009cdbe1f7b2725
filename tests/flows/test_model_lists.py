"""`models` and `provider` through the whole gateway: which model serves, at which price, and how the answer says so."""

from typing import Any

import httpx
import pytest
from fakes.openai import Answer, FakeOpenAI
from support.gateways import LocalGateway
from support.shared import Share
from support.two_providers import write_line

from gateway.accounts.projects import ProjectChange, update_project
from gateway.accounts.rules import add_rule
from gateway.limits.budgets import Limits
from gateway.metering.usage_table import find

HELLO = [{"role": "user", "content": "Hello"}]
SURFACES = {
    "/v1/chat/completions": {"messages": HELLO},
    "/v1/messages": {"messages": HELLO, "max_tokens": 50},
    "/v1/responses": {"input": "Hello"},
    "/v1/completions": {"prompt": "Hello"},
}
DOWN = Answer(status=500)


@pytest.fixture
def second(share: Share) -> FakeOpenAI:
    return share.fake(FakeOpenAI, name="second")


@pytest.fixture
def gateway(share: Share, upstream: FakeOpenAI, second: FakeOpenAI) -> LocalGateway:
    """m0 at `upstream` for 1 dollar per million tokens, m1 at `second` for 2 dollars."""
    return share.gateway(lambda folder: write_line(folder / "catalogue", upstream.url, second.url))


def post(gateway: LocalGateway, body: dict[str, Any], path: str = "/v1/chat/completions", **headers: str) -> Any:
    headers = {"Authorization": f"Bearer {gateway.key}", **headers}
    with httpx.Client(timeout=60) as http:
        return http.post(gateway.address + path, json={**SURFACES.get(path, {}), **body}, headers=headers)


def attempts(metadata: dict[str, Any]) -> list[tuple[str, int]]:
    return [(attempt["model"], attempt["status_code"]) for attempt in metadata["routing"]]


def test_the_second_model_serves_at_its_own_price_when_the_first_fails(gateway, upstream, second):
    upstream.script(DOWN)
    answer = post(gateway, {"model": "m0", "models": ["m0", "m1"]})
    body = answer.json()
    assert body["model"] == answer.headers["x-llmgateway-model"] == "at-m1/m1"
    assert attempts(body["metadata"]) == [("m0", 500), ("m1", 200)]
    assert (body["metadata"]["requested_model"], body["metadata"]["used_model"]) == ("m0", "m1")
    failed, served = find(gateway.services.store.database, body["metadata"]["log_id"])
    assert failed.cost_nusd == 0
    assert served.cost_nusd == 2_000 * body["usage"]["total_tokens"]
    assert body["usage"]["cost"] == pytest.approx(served.cost_nusd / 10**9)
    assert "models" not in second.calls[0].body


def test_the_first_model_serves_while_it_works(gateway, second):
    body = post(gateway, {"models": ["m0", "m1"]}).json()
    assert body["model"] == "at-m0/m0" and second.calls == []


@pytest.mark.parametrize("path", SURFACES)
@pytest.mark.parametrize("place", ("body", "header"))
def test_every_surface_moves_on_to_the_next_model(gateway, upstream, second, path, place):
    upstream.script(DOWN)
    if place == "body":
        answer = post(gateway, {"model": "m0", "models": ["m1"]}, path)
    else:
        answer = post(gateway, {"model": "m0"}, path, **{"X-LLMGateway-Models": "m0, m1"})
    assert answer.status_code == 200, answer.text
    assert answer.json()["model"] in ("at-m1/m1", "m1")
    assert answer.headers["x-llmgateway-model"] == "at-m1/m1" and len(second.calls) == 1


def test_a_stream_moves_on_before_its_first_content(gateway, upstream):
    upstream.script(Answer("Lost words", cut=0))
    text = post(gateway, {"model": "m0", "models": ["m1"], "stream": True}).text
    assert '"model":"at-m1/m1"' in text and "Lost" not in text and '"used_model":"m1"' in text


def test_a_mistake_of_the_caller_does_not_move_on(gateway, upstream, second):
    upstream.script(Answer(status=400, error={"message": "bad messages", "type": "invalid_request_error"}))
    assert post(gateway, {"model": "m0", "models": ["m1"]}).status_code == 400
    assert second.calls == []


def test_an_unknown_model_is_skipped_with_a_warning(gateway):
    answer = post(gateway, {"model": "gone", "models": ["m1"]})
    assert answer.json()["model"] == "at-m1/m1"
    assert answer.headers["x-llmgateway-warnings"].startswith("The model gone was skipped: There is no model 'gone'")
    assert answer.json()["metadata"]["requested_model"] == "gone"


def test_without_any_known_model_the_usual_error_comes_back(gateway):
    error = post(gateway, {"models": ["gone", "lost"]}).json()["error"]
    assert (error["code"], error["param"]) == ("model_not_found", "model") and "'gone'" in error["message"]


def test_the_header_is_no_metadata_of_the_request_and_has_a_limit(gateway):
    answer = post(gateway, {"model": "m0"}, **{"X-LLMGateway-Models": ",".join("m1" for _ in range(9))})
    assert (answer.status_code, answer.json()["error"]["param"]) == (400, "x-llmgateway-models")


def test_the_explanation_lists_the_models(gateway):
    body = {"models": ["m1", "gone", "m0"], "messages": HELLO}
    explained = post(gateway, body, "/v1/route/explain").json()
    assert explained["models"] == ["m1", "m0"] and explained["order"] == ["at-m1/m1", "at-m0/m0"]
    assert explained["skippedModels"][0]["model"] == "gone"


def test_cached_answers_belong_to_one_list_of_models(gateway, upstream, second):
    services = gateway.services
    change = ProjectChange(cache_enabled=True, cache_ttl_s=60)
    update_project(services.store.database, services.store.control, gateway.project_id, change, actor="test")
    upstream.script(DOWN)
    first = post(gateway, {"model": "m0", "models": ["m1"]}).json()
    again = post(gateway, {"model": "m0", "models": ["m1"]})
    alone = post(gateway, {"model": "m0"}).json()
    assert first["model"] == again.json()["model"] == again.headers["x-llmgateway-model"] == "at-m1/m1"
    assert again.json()["metadata"]["cached"] is True
    assert alone["model"] == "at-m0/m0" and "cached" not in alone["metadata"]
    preferring = [post(gateway, {"model": "m0", "provider": {"order": ["at-m0"]}}).json() for _ in range(2)]
    assert ["cached" in answer["metadata"] for answer in preferring] == [False, True]


def test_a_budget_must_cover_the_dearest_model(gateway, upstream, second):
    caller = gateway.services.accounts.authentication.caller(gateway.key)
    gateway.services.billing.budgets.set_limits("key", caller.key_id, Limits(total_nusd=1_500_000, reservation="exact"))
    body = {"model": "m0", "max_tokens": 1000}
    refused = post(gateway, {**body, "models": ["m1"]})
    assert (refused.status_code, len(upstream.calls) + len(second.calls)) == (402, 0)
    assert post(gateway, body).status_code == 200


def test_an_access_rule_of_the_key_skips_a_model(gateway, second):
    services = gateway.services
    place = ("organization", gateway.organization_id)
    rule = ("deny_models", {"models": ["m0"]})
    add_rule(services.store.database, services.store.control, *place, *rule, actor="test")
    answer = post(gateway, {"models": ["m0", "m1"]})
    assert answer.json()["model"] == "at-m1/m1" and len(second.calls) == 1
    assert "m0 was skipped" in answer.headers["x-llmgateway-warnings"]


@pytest.mark.parametrize("place", ("options", "header"))
@pytest.mark.parametrize("stream", ("true", "false"))
def test_the_ai_sdk_names_further_models(gateway, upstream, second, place, stream):
    upstream.script(DOWN)
    headers = {"ai-language-model-id": "m0", "ai-language-model-streaming": stream}
    body: dict[str, Any] = {"prompt": [{"role": "user", "content": [{"type": "text", "text": "Hello"}]}]}
    if place == "options":
        body["providerOptions"] = {"llmgateway": {"models": ["m1"], "provider": {"ignore": ["x"]}}}
    else:
        headers["x-llmgateway-models"] = "m1"
    answer = post(gateway, body, "/v4/ai/language-model", **headers)
    assert answer.headers["x-llmgateway-model"] == "at-m1/m1" and len(second.calls) == 1, answer.text


def test_the_chat_tool_of_mcp_reads_the_header(gateway, upstream, second):
    upstream.script(DOWN)
    call = {"name": "chat", "arguments": {"model": "m0", "messages": HELLO}}
    body = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": call}
    headers = {"Accept": "application/json, text/event-stream", "X-LLMGateway-Models": "m1"}
    answer = post(gateway, body, "/mcp", **headers)
    assert answer.json()["result"]["content"][0]["text"].startswith("Hello.") and len(second.calls) == 1


def test_the_header_is_part_of_an_idempotent_request(gateway):
    first = post(gateway, {"model": "m0"}, **{"Idempotency-Key": "k", "X-LLMGateway-Models": "m1"})
    other_answer = post(gateway, {"model": "m0"}, **{"Idempotency-Key": "k", "X-LLMGateway-Models": "gone"})
    assert (first.status_code, other_answer.status_code) == (200, 422)


def test_provider_preferences_decide_and_name_themselves(gateway):
    body = {"model": "auto", "provider": {"only": ["AT-M1"], "quantizations": ["fp8"]}}
    answer = post(gateway, body)
    assert answer.json()["metadata"]["used_provider"] == "at-m1"
    assert "provider.quantizations was left out" in answer.headers["x-llmgateway-warnings"]
    error = post(gateway, {"model": "m0", "provider": {"ignore": ["at-m0"]}}).json()["error"]
    assert error["param"] == "provider.ignore"
