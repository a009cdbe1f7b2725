"""Tool results match the tools' schemas, and `/mcp` authorizes every method with every credential correctly."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import jsonschema
import pytest
from fakes.upstream import FakeUpstream
from support.gateways import LocalGateway
from support.limits import set_rate_limit
from support.mcp_visitor import PING, Visitor, text
from support.shared import Share, usage_of
from support.spending import TOKEN_NUSD, write_mint

from gateway.accounts import keys, projects
from gateway.accounts.keys import Change, Draft
from gateway.accounts.members import list_members
from gateway.accounts.organizations import set_policy
from gateway.accounts.projects import ProjectChange
from gateway.limits.budgets import Limits

Json = dict[str, Any]
ANALYTICS = {"get-account", "get-usage", "get-usage-breakdown"}
READING = ANALYTICS | {"list-models", "list-image-models"}
TALK = [{"role": "user", "content": "Hello"}]
# Tools that cost money, with arguments that cost 0.03 USD.
PAID: dict[str, Json] = {
    "chat": {"model": "mint/coin", "messages": TALK, "max_tokens": 100},
    "generate-image": {"model": "mint/brush", "prompt": "A boat"},
    "generate-alt-image": {"prompt": "A boat"},
}


@pytest.fixture
def mint(share: Share) -> FakeUpstream:
    return share.fake(FakeUpstream)


@pytest.fixture
def gateway(share: Share, mint: FakeUpstream) -> LocalGateway:
    alt = {"GATEWAY_MEDIA_ALT_IMAGE_MODEL": "mint/brush"}
    return share.gateway(lambda folder: write_mint(folder / "catalogue", mint.url) | alt, name="minted")


@pytest.fixture
def visitor(gateway: LocalGateway) -> Visitor:
    return Visitor(gateway)


# Schemas.


def test_each_tool_shows_its_schemas_and_what_it_does(visitor: Visitor) -> None:
    for tool in visitor.request("tools/list")["result"]["tools"]:
        name, hints = tool["name"], tool["annotations"]
        jsonschema.Draft202012Validator.check_schema(tool["inputSchema"])
        assert tool["inputSchema"]["type"] == "object" and tool["title"] and tool["description"]
        assert ("additionalProperties" in tool["inputSchema"]) == (name in ANALYTICS)
        assert hints["readOnlyHint"] == (name in READING) and hints["destructiveHint"] is False
        assert hints["openWorldHint"] == (name not in READING)
        assert ("outputSchema" in tool) == (name in READING)
        if "outputSchema" in tool:
            jsonschema.Draft202012Validator.check_schema(tool["outputSchema"])


@pytest.mark.parametrize(
    ("tool", "arguments"),
    [
        ("get-account", {}),
        ("get-usage", {}),
        ("get-usage", {"granularity": "hour", "from": "2026-01-01", "to": "2026-01-02"}),
        *[("get-usage-breakdown", {"group_by": group}) for group in ("provider", "model", "app", "api_key")],
        ("list-models", {"limit": 1000, "include_deactivated": True}),
        ("list-models", {"family": "no such family"}),
        ("list-image-models", {}),
        ("get-usage", {"from": "tomorrow"}),
        ("get-usage-breakdown", {}),
        *PAID.items(),
    ],
)
def test_structured_content_satisfies_its_schema(
    gateway: LocalGateway, visitor: Visitor, tool: str, arguments: Json
) -> None:
    listed = {tool["name"]: tool for tool in visitor.request("tools/list")["result"]["tools"]}
    assert not visitor.call("chat", **PAID["chat"]).get("isError")
    gateway.services.billing.rollups.catch_up()
    result = visitor.call(tool, **arguments)
    assert all(block["type"] in ("text", "image") for block in result["content"])
    if result.get("isError") or tool not in READING:
        assert "structuredContent" not in result
        return
    jsonschema.validate(result["structuredContent"], listed[tool]["outputSchema"])
    jsonschema.validate(arguments, listed[tool]["inputSchema"])
    if tool in ANALYTICS:
        assert json.loads(text(result)) == result["structuredContent"]


# Money of tools.


@pytest.mark.parametrize("tool", PAID)
def test_a_tool_costs_what_its_request_costs_and_stops_at_every_limit(
    gateway: LocalGateway, visitor: Visitor, mint: FakeUpstream, tool: str
) -> None:
    services = gateway.services
    caller = gateway.services.accounts.authentication.caller(gateway.key)

    def refused(code: str) -> None:
        result = visitor.call(tool, **PAID[tool])
        assert result["isError"] and text(result).startswith(f"402 {code}: "), text(result)
        assert mint.calls == [] and usage_of(gateway) == []

    services.billing.budgets.set_limits("key", caller.key_id, Limits(total_nusd=0))
    refused("key_limit_reached")
    services.billing.budgets.set_limits("key", caller.key_id, Limits())
    services.billing.budgets.set_limits("member", caller.member_id, Limits(total_nusd=0))
    refused("member_limit_reached")
    services.billing.budgets.set_limits("member", caller.member_id, Limits())
    assert not visitor.call(tool, **PAID[tool]).get("isError")
    (row,) = usage_of(gateway)
    assert row.cost_nusd == 100 * TOKEN_NUSD


@pytest.mark.parametrize("tool", PAID)
def test_a_tool_needs_credits(gateway: LocalGateway, visitor: Visitor, mint: FakeUpstream, tool: str) -> None:
    ledger, organization = gateway.services.billing.ledger, gateway.organization_id
    ledger.post(organization, "adjustment", -ledger.balance(organization).balance_nusd, f"{organization} to nothing")
    refused = visitor.call(tool, **PAID[tool])
    assert refused["isError"] and text(refused).startswith("402 insufficient_credits: ") and mint.calls == []
    assert visitor.call("get-account")["structuredContent"]["creditsBalanceUsd"] == 0


@pytest.mark.parametrize("tool", PAID)
def test_a_rate_limit_of_the_account_is_reported_with_its_status(
    gateway: LocalGateway, visitor: Visitor, mint: FakeUpstream, tool: str
) -> None:
    caller = gateway.services.accounts.authentication.caller(gateway.key)
    set_rate_limit(gateway.services.billing.rate_limits, "key", caller.key_id, "requests", 0)
    body = {"jsonrpc": "2.0", "id": 4, "method": "tools/call", "params": {"name": tool, "arguments": PAID[tool]}}
    limited = visitor.send(body=body)
    assert limited.status_code == 429 and int(limited.headers["retry-after"]) > 0
    assert limited.json()["id"] == 4 and limited.json()["error"]["data"]["code"] == "rate_limit_exceeded"
    assert mint.calls == [] and not visitor.call("get-usage").get("isError")


@pytest.mark.parametrize("tool", PAID)
def test_a_retained_tool_call_keeps_its_row_and_its_payload(gateway: LocalGateway, visitor: Visitor, tool: str) -> None:
    stores = gateway.services.store.database, gateway.services.store.control
    projects.update_project(*stores, gateway.project_id, ProjectChange(retention="retain"), actor="test")
    assert not visitor.call(tool, **PAID[tool]).get("isError")
    (row,) = usage_of(gateway)
    kept = gateway.services.engine.retention.find(row.request_id)
    assert kept is not None and (kept.path, kept.status) == ("/mcp", 200) and row.cost_nusd == 100 * TOKEN_NUSD
    sent = json.loads(gateway.services.engine.retention.read(kept).sent)
    assert sent["params"]["name"] == tool


def test_an_image_that_may_not_be_kept_is_not_saved(share: Share, mint: FakeUpstream, tmp_path: Path) -> None:
    kept = tmp_path / "kept"

    def environment(folder: Path) -> dict[str, str]:
        catalogue = write_mint(folder / "catalogue", mint.url)
        path = folder / "catalogue" / "providers" / "mint.toml"
        path.write_text(path.read_text().replace("[[mappings]]", '[data_policy]\nretention = "none"\n[[mappings]]', 1))
        return catalogue | {"GATEWAY_MEDIA_ALT_IMAGE_MODEL": "mint/brush", "UPLOAD_DIR": str(kept)}

    gateway = share.gateway(environment, name="saving")
    visitor = Visitor(gateway)
    stores = (gateway.services.store.database, gateway.services.store.control)
    assert text(visitor.call("generate-alt-image", prompt="A boat", filename="a.png")) == f"Saved: {kept / 'a.png'}"
    set_policy(*stores, gateway.organization_id, {"zeroDataRetention": True}, actor="test")
    result = visitor.call("generate-alt-image", prompt="A boat", filename="b.png")
    assert [block["type"] for block in result["content"]] == ["image"]
    assert [one.name for one in kept.iterdir()] == ["a.png"]


# Authorization.


def _make(gateway: LocalGateway, kind: str = "user", **more: Any) -> keys.NewKey:
    stores = gateway.services.store.database, gateway.services.store.control
    member = list_members(gateway.services.store.database, gateway.organization_id)[0]
    draft = Draft(gateway.project_id, member.id, "Another", kind, **more)
    return keys.create(*stores, gateway.services.store.secrets.hash_keys, draft, actor="test")


def _changed(gateway: LocalGateway, state: Any) -> str:
    stores = (gateway.services.store.database, gateway.services.store.control)
    instance = _make(gateway)
    if state in ("deactivate", "revoke"):
        keys.update(*stores, instance.info.id, Change(action=state), actor="test")
    elif state == "expired":
        sql = "UPDATE api_key SET expires_at = 1 WHERE id = ?"
        stores[0].write(lambda: stores[0].execute(sql, (instance.info.id,)))
    elif state == "rolled":
        keys.roll(*stores, gateway.services.store.secrets.hash_keys, instance.info.id, actor="test")
    elif state == "deleted":
        keys.delete(*stores, instance.info.id, actor="test")
    return instance.token


NOBODY: dict[str, Callable[[LocalGateway], str]] = {
    "none": lambda gateway: "",
    "no key at all": lambda gateway: "nonsense",
    "unknown": lambda gateway: "llmgtwy_" + "0" * 40,
    "inactive": lambda gateway: _changed(gateway, "deactivate"),
    "revoked": lambda gateway: _changed(gateway, "revoke"),
    "expired": lambda gateway: _changed(gateway, "expired"),
    "rolled": lambda gateway: _changed(gateway, "rolled"),
    "deleted": lambda gateway: _changed(gateway, "deleted"),
}
ROUTES: list[tuple[str, Json | None, dict[str, str]]] = [
    ("POST", PING, {}),
    ("POST", {**PING, "method": "tools/list"}, {}),
    ("POST", {**PING, "method": "tools/call", "params": {"name": "get-account"}}, {}),
    ("POST", {"jsonrpc": "2.0", "method": "notifications/initialized"}, {}),
    ("GET", None, {"Accept": "text/event-stream"}),
    ("GET", None, {"Accept": "text/event-stream", "MCP-Protocol-Version": "2025-11-25"}),
    ("DELETE", None, {}),
    ("PUT", None, {}),
    ("PATCH", None, {}),
]


@pytest.mark.parametrize("credential", NOBODY)
def test_an_invalid_credential_only_gets_the_server_information(gateway: LocalGateway, credential: str) -> None:
    token = NOBODY[credential](gateway)
    visitor = Visitor(gateway)
    for method, body, headers in ROUTES:
        answer = visitor.send(method, body, key=token, **headers)
        error = answer.json()
        ident = body.get("id") if body else None
        assert (answer.status_code, error["error"]["code"], error["id"]) == (401, -32001, ident), (method, body)
        assert answer.headers["www-authenticate"].startswith("Bearer ") and gateway.organization_id not in answer.text
        assert ('error="invalid_token"' in answer.headers["www-authenticate"]) == bool(token)
        assert "result" not in error and (not token or token not in answer.text)
    assert visitor.send("GET", key=token, Accept="application/json").status_code == 200
    assert visitor.send("OPTIONS", key=token).status_code == 204


def test_a_closed_project_is_forbidden(gateway: LocalGateway) -> None:
    stores = gateway.services.store.database, gateway.services.store.control
    projects.update_project(*stores, gateway.project_id, ProjectChange(status="archived"), actor="test")
    for method, body, headers in ROUTES:
        answer = Visitor(gateway).send(method, body, **headers)
        error = answer.json()
        assert (answer.status_code, error["error"]["code"]) == (403, -32001), (method, body)


def test_a_customers_key_is_let_in_and_reads_no_account(gateway: LocalGateway) -> None:
    visitor, token = Visitor(gateway), _make(gateway, "customer").token
    for tool in sorted(ANALYTICS):
        arguments = {"group_by": "model"} if tool == "get-usage-breakdown" else {}
        body = {**PING, "method": "tools/call", "params": {"name": tool, "arguments": arguments}}
        result = visitor.send(body=body, key=token).json()["result"]
        assert result["isError"] and text(result).startswith("403 ") and gateway.organization_id not in text(result)
    assert visitor.send(body=PING, key=token).json()["result"] == {}


def test_keys_stand_in_no_query(gateway: LocalGateway) -> None:
    with httpx.Client(timeout=60) as http:
        answer = http.post(f"{gateway.address}/mcp?key={gateway.key}&access_token={gateway.key}", json=PING)
    assert answer.status_code == 401
