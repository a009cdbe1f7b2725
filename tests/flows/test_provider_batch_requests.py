"""Requests of every kind as lines of providers' batches: of the Responses API, by routes, by `auto` and `smart`, and by
a provider key of the organization."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from openai import OpenAI
from support.batch_books import settled
from support.provider_batches import (
    VENDORS,
    Vendor,
    assert_half_price,
    begin,
    chat_line,
    is_creation,
    output,
    run,
    shorten_waits,
)
from support.shared import Share, Tenant, usage_of

from gateway.accounts import route_changes
from gateway.accounts.projects import ProjectChange, update_project
from gateway.accounts.provider_keys import ProviderKeyDraft
from gateway.metering.models import BYOK
from gateway.routes.route_document import read_document

RESPONSES = {"LLM_OPENAI_USE_RESPONSES_API": "true", "LLM_AZURE_USE_RESPONSES_API": "true"}
every_vendor = pytest.mark.parametrize("vendor", VENDORS, indirect=True)
by_responses = pytest.mark.parametrize("vendor", ["openai", "azure"], indirect=True)


@pytest.fixture(autouse=True)
def short_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    shorten_waits(monkeypatch)


@pytest.fixture
def vendor(request: pytest.FixtureRequest) -> Vendor:
    return VENDORS[getattr(request, "param", "openai")]


@pytest.fixture
def upstream(share: Share, vendor: Vendor) -> Any:
    return share.fake(vendor.fake)


@pytest.fixture
def open_gateway(share: Share, vendor: Vendor, upstream: Any) -> Callable[..., Tenant]:
    """Open a gateway with further variables of its environment."""

    def open_one(**more: str) -> Tenant:
        variable = f"LLM_{vendor.name.upper().replace('-', '_')}_BASE_URL"
        tenant = share.gateway({**vendor.environment, variable: upstream.url, **more})
        tenant.services.engine.lines.planner._absent.clear()
        return tenant

    return open_one


@pytest.fixture
def gateway(open_gateway: Callable[..., Tenant]) -> Tenant:
    return open_gateway()


@pytest.fixture
def publish(gateway: Tenant) -> Iterator[Callable[..., None]]:
    stores = (gateway.services.store.database, gateway.services.store.control)
    names: set[str] = set()

    def put(name: str, document: dict[str, Any]) -> None:
        route = read_document(document)
        route_changes.put_route(*stores, gateway.organization_id, name, route, (), "", actor="operator")
        route_changes.publish_route(*stores, gateway.organization_id, name, None, actor="operator")
        names.add(name)

    yield put
    for name in names:
        route_changes.delete_route(*stores, gateway.organization_id, name, actor="operator")


def client_of(gateway: Tenant) -> OpenAI:
    return OpenAI(base_url=gateway.url, api_key=gateway.key, max_retries=0)


def response_line(number: int, vendor: Vendor, **more: Any) -> dict[str, Any]:
    body = {"model": vendor.model, "input": f"Hello {number}!", "max_output_tokens": 50, **more}
    return {"custom_id": f"line-{number}", "method": "POST", "url": "/v1/responses", "body": body}


def check(gateway: Tenant, upstream: Any, lines: list[dict[str, Any]], url: str = "/v1/chat/completions") -> Any:
    """Run a batch of these lines, all of which providers' batches serve."""
    client = client_of(gateway)
    done = run(gateway, client, begin(client, lines, url, sending="native").id)
    errors = client.files.content(done.error_file_id).text if done.error_file_id else done.errors
    assert (done.status, done.request_counts.completed) == ("completed", len(lines)), errors
    assert [call.problem for call in upstream.calls if call.problem] == []
    rows = usage_of(gateway)
    assert len(rows) == len(lines)
    for row in rows:
        assert_half_price(gateway, row)
    settled(gateway)
    return output(client, done)


@every_vendor
def test_lines_of_the_responses_api_go_to_the_batch_api_of_every_provider(
    gateway: Tenant, upstream: Any, vendor: Vendor
):
    lines = [response_line(number, vendor, instructions="Be brief.") for number in range(3)]
    for result in check(gateway, upstream, lines, "/v1/responses"):
        answer = result["response"]["body"]
        assert answer["object"] == "response" and answer["output"][-1]["content"][0]["text"] == "Hello."


@pytest.mark.parametrize("url", ["/v1/responses", "/v1/chat/completions"])
@by_responses
def test_models_that_speak_the_responses_api_get_lines_of_it(
    open_gateway: Callable[..., Tenant], upstream: Any, vendor: Vendor, url: str
):
    make = response_line if url == "/v1/responses" else chat_line
    check(open_gateway(**RESPONSES), upstream, [make(number, vendor) for number in range(3)], url)
    (created,) = [call for call in upstream.calls if is_creation(call)]
    assert created.body["endpoint"] == "/v1/responses"


def test_a_stored_response_of_a_line_can_be_continued(open_gateway: Callable[..., Tenant], upstream: Any):
    gateway = open_gateway(**RESPONSES)
    (result,) = check(gateway, upstream, [response_line(1, VENDORS["openai"], store=True)], "/v1/responses")
    ident = result["response"]["body"]["id"]
    client = client_of(gateway)
    assert client.responses.retrieve(ident).output_text == "Hello."
    (second,) = check_more(gateway, upstream, response_line(2, VENDORS["openai"], previous_response_id=ident))
    assert second["response"]["body"]["previous_response_id"] == ident
    sent = json.dumps([line for batch in upstream.desk.batches.values() for line in batch.lines][-1])
    assert "Hello 1!" in sent and "Hello 2!" in sent


def check_more(gateway: Tenant, upstream: Any, line: dict[str, Any]) -> Any:
    client = client_of(gateway)
    done = run(gateway, client, begin(client, [line], "/v1/responses", sending="native").id)
    assert (done.status, done.request_counts.completed) == ("completed", 1), done
    return output(client, done)


def test_lines_by_a_route_go_to_the_models_that_it_chooses(
    gateway: Tenant, upstream: Any, publish: Callable[..., None]
):
    document = {"rules": [{"when": {"body": {"temperature": [0, 0.5]}}, "use": "openai/gpt-4o"}]}
    publish("house", {**document, "otherwise": "openai/gpt-4o-mini"})
    lines = [
        chat_line(number, VENDORS["openai"], model="dynamic/house", temperature=0.5 if number % 2 else 1.0)
        for number in range(6)
    ]
    for result in check(gateway, upstream, lines):
        metadata = result["response"]["body"]["metadata"]
        assert metadata["requested_model"] == "dynamic/house" and metadata["route"]["name"] == "house"
    sent = [[line["model"] for _, line in batch.lines] for batch in upstream.desk.batches.values()]
    assert sorted(sent) == [["gpt-4o"] * 3, ["gpt-4o-mini"] * 3]
    rows = usage_of(gateway)
    assert sorted(row.served for row in rows) == ["gpt-4o"] * 3 + ["gpt-4o-mini"] * 3
    assert {row.asked for row in rows} == {"dynamic/house"} and {row.details["route"] for row in rows} == {"house"}


def test_a_route_that_changes_while_its_lines_are_at_the_provider_bills_the_model_that_served(
    gateway: Tenant, upstream: Any, publish: Callable[..., None]
):
    publish("house", {"otherwise": "openai/gpt-4o-mini"})
    client = client_of(gateway)
    upstream.desk.held = True
    lines = [chat_line(number, VENDORS["openai"], model="dynamic/house") for number in range(3)]
    batch = begin(client, lines, sending="native")
    run(gateway, client, batch.id, lambda: bool(upstream.desk.batches))
    publish("house", {"otherwise": "openai/gpt-4o"})
    upstream.desk.held = False
    done = run(gateway, client, batch.id)
    assert (done.status, done.request_counts.completed) == ("completed", 3), done
    rows = usage_of(gateway)
    assert [row.served for row in rows] == ["gpt-4o-mini"] * 3
    for row in rows:
        assert_half_price(gateway, row)
    settled(gateway)


def test_a_judge_of_a_route_is_asked_once_for_a_line(
    gateway: Tenant, upstream: Any, publish: Callable[..., None], monkeypatch: pytest.MonkeyPatch
):
    """It is asked when the line is written, neither before the batch is accepted nor by the worker that delivers it."""
    judge = gateway.services.engine.chat.routes.judge
    monkeypatch.setattr(judge, "_keep", lambda *known: None)  # another worker knows no judgements of this one
    publish(
        "judged",
        {
            "judge": {"model": "openai/gpt-4.1-nano", "waitMs": 2000},
            "rules": [{"when": {"difficulty": ["large"]}, "use": "openai/gpt-4o"}],
            "otherwise": "openai/gpt-4o-mini",
        },
    )
    client = client_of(gateway)
    lines = [chat_line(number, VENDORS["openai"], model="dynamic/judged") for number in range(3)]
    done = run(gateway, client, begin(client, lines, sending="native").id)
    assert (done.status, done.request_counts.completed) == ("completed", 3), done
    asked = [call for call in upstream.calls if call.path == "/v1/chat/completions"]
    assert len(asked) == 3
    settled(gateway)


@pytest.mark.parametrize("model", ["auto", "smart"])
def test_lines_by_auto_and_smart_go_to_a_batch_api(gateway: Tenant, upstream: Any, model: str):
    check(gateway, upstream, [chat_line(number, VENDORS["openai"], model=model) for number in range(3)])
    assert {row.asked for row in usage_of(gateway)} == {model}


@pytest.mark.parametrize("vendor", [name for name in VENDORS if name != "azure"], indirect=True)
def test_lines_by_a_key_of_the_organization_cost_no_credits(gateway: Tenant, upstream: Any, vendor: Vendor):
    pay_by_own_key(gateway, vendor, upstream)
    client = client_of(gateway)
    done = run(gateway, client, begin(client, [chat_line(n, vendor) for n in range(3)], sending="native").id)
    errors = client.files.content(done.error_file_id).text if done.error_file_id else done
    assert (done.status, done.request_counts.completed) == ("completed", 3), errors
    rows = usage_of(gateway)
    assert [row.mode for row in rows] == [BYOK] * 3 and [call for call in upstream.calls if call.problem] == []
    assert_free(gateway)


@pytest.mark.parametrize("vendor", ["azure"], indirect=True)
def test_lines_by_an_own_key_for_azure_are_sent_as_requests(gateway: Tenant, upstream: Any, vendor: Vendor):
    """The operator's batch deployment is none of the organization's resource."""
    pay_by_own_key(gateway, vendor, upstream)
    client = client_of(gateway)
    lines = [chat_line(number, vendor) for number in range(3)]
    refused = run(gateway, client, begin(client, lines, sending="native").id)
    assert refused.status == "failed" and {error.code for error in refused.errors.data} == {"no_batch_api"}
    assert upstream.calls == []
    done = run(gateway, client, begin(client, lines).id)
    assert (done.status, done.request_counts.completed) == ("completed", 3)
    assert [one["custom_id"] for one in output(client, done)] == [line["custom_id"] for line in lines]
    assert len(upstream.calls) == 3 and not any(map(is_creation, upstream.calls))
    assert [call for call in upstream.calls if call.problem] == []
    rows = usage_of(gateway)
    assert [row.mode for row in rows] == [BYOK] * 3
    assert all(json.loads(row.extra or "{}").get("tier") != "batch" for row in rows)
    assert_free(gateway)


def pay_by_own_key(gateway: Tenant, vendor: Vendor, upstream: Any) -> None:
    """Let the requests of the project use a provider key of its organization."""
    services = gateway.services
    own = vendor.environment[next(name for name in vendor.environment if name.endswith("_API_KEY"))]
    draft = ProviderKeyDraft(vendor.name, own, base_url=upstream.url)
    services.management.provider_keys.add(gateway.organization_id, draft, actor="operator")
    project = services.accounts.authentication.caller(gateway.key).project_id
    change = ProjectChange(mode="api-keys")
    update_project(services.store.database, services.store.control, project, change, actor="operator")


def assert_free(gateway: Tenant) -> None:
    """Check that no credits were spent or are reserved."""
    database = gateway.services.store.database
    sql = "SELECT settled_nusd FROM budget WHERE scope_id = ? AND kind = 'credits'"
    assert {row[0] for row in database.query_rows(sql, (gateway.organization_id,))} <= {0}
    sql = "SELECT id FROM hold WHERE organization = ?"
    assert database.query_rows(sql, (gateway.organization_id,)) == []
