"""`/mcp` through the whole gateway: the order of its HTTP answers, and every tool with the official client."""

import asyncio
import json
import os
from base64 import b64decode
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import httpx2
import mcp
import pytest
from fakes.openai import Answer, FakeOpenAI
from support.every_operation import PNG
from support.gateways import LocalGateway, local_gateway
from support.limits import set_rate_limit
from support.mcp_visitor import BOTH, PING, Visitor, text
from support.shared import Share, usage_of

from gateway import errors
from gateway.accounts.keys import Draft, create
from gateway.accounts.members import add_member, list_members
from gateway.configuration.settings import Settings
from gateway.limits.budgets import Limits
from gateway.limits.rate_rules import RateLimits
from gateway.reports.usage_reports import Reports

Json = dict[str, Any]
MODEL = "openai/gpt-4o-mini"
TOOLS = [
    "get-account",
    "get-usage",
    "get-usage-breakdown",
    "chat",
    "generate-image",
    "generate-alt-image",
    "list-models",
    "list-image-models",
]
TALK = [{"role": "user", "content": "Hello"}]


@pytest.fixture
def gateway(share: Share, upstream_environment: dict[str, str]) -> LocalGateway:
    """The image tools use the sandbox's model, since the fake provider makes no images."""
    models = {"GATEWAY_MEDIA_IMAGE_MODEL": "sandbox-image", "GATEWAY_MEDIA_ALT_IMAGE_MODEL": "sandbox-image"}
    return share.gateway(upstream_environment | models, name="images")


@pytest.fixture
def visitor(gateway: LocalGateway) -> Visitor:
    return Visitor(gateway)


def refusal(answer: httpx.Response, ident: Any = None) -> tuple[int, int]:
    """Status and number of the JSON-RPC error to the message with an id."""
    body = answer.json()
    assert body["jsonrpc"] == "2.0" and body["id"] == ident and body["error"]["message"]
    return answer.status_code, body["error"]["code"]


# The HTTP table, in its order.


@pytest.mark.parametrize("method", ["GET", "HEAD"])
def test_information_is_public(visitor: Visitor, method: str) -> None:
    answer = visitor.send(method, key="", Accept="application/json")
    assert answer.status_code == 200
    assert "no-store" in answer.headers["cache-control"] and "Accept, Origin" in answer.headers["vary"]
    if method == "GET":
        body = answer.json()
        assert body["endpoint"] == visitor.url and body["protocolVersion"] == "2025-11-25"
        assert body["capabilities"] == {"tools": {}} and body["transport"] == "streamable-http"


def test_errors_are_reported_in_the_order_of_the_checks(visitor: Visitor) -> None:
    version, origin = {"MCP_Protocol_Version": "1999-01-01"}, {"Origin": "http://evil.example", "Host": "evil.example"}
    batch = {"body": [PING]}
    assert refusal(visitor.send(key="", **batch, **version, **origin)) == (403, -32000)
    assert refusal(visitor.send(key="", **batch, **version)) == (400, -32600)
    assert refusal(visitor.send("GET", key="", **version, Accept="text/html")) == (400, -32600)
    assert refusal(visitor.send(key="", **batch)) == (401, -32001)
    assert refusal(visitor.send("DELETE", key="")) == (401, -32001)
    assert refusal(visitor.send("DELETE")) == (405, -32000)
    assert refusal(visitor.send(key=""), PING["id"]) == (401, -32001)
    assert refusal(visitor.send(**batch, Content_Type="text/plain")) == (415, -32000)
    assert refusal(visitor.send(**batch)) == (400, -32600)
    assert refusal(visitor.send(body=b"{nonsense")) == (400, -32700)


@pytest.mark.parametrize(
    ("method", "headers"),
    [
        ("DELETE", {"Accept": "text/event-stream"}),
        ("PUT", {}),
        ("PATCH", {}),
        ("GET", {"Accept": "text/event-stream", "MCP-Protocol-Version": "2025-11-25"}),
        ("GET", {"Accept": BOTH}),
    ],
)
def test_there_are_no_streams_and_no_sessions(visitor: Visitor, method: str, headers: dict[str, str]) -> None:
    answer = visitor.send(method, **headers)
    assert refusal(answer) == (405, -32000) and answer.headers["allow"] == "POST"


def test_options_return_the_allowed_methods(visitor: Visitor) -> None:
    answer = visitor.send("OPTIONS", key="")
    assert answer.status_code == 204 and answer.headers["allow"] == "GET, HEAD, OPTIONS, POST"


def test_the_challenge_leads_to_the_metadata(visitor: Visitor) -> None:
    metadata = f"{visitor.url.removesuffix('/mcp')}/.well-known/oauth-protected-resource/mcp"
    where = f'scope="mcp:tools", resource_metadata="{metadata}"'
    assert visitor.send(key="").headers["www-authenticate"] == f"Bearer {where}"
    unknown = visitor.send(key="llmgtwy_" + "0" * 40)
    assert unknown.headers["www-authenticate"] == f'Bearer error="invalid_token", {where}'
    assert refusal(unknown, PING["id"]) == (401, -32001)
    # The same holds for a body that is too large to be read.
    large = visitor.send(key="llmgtwy_" + "0" * 40, body=b" " * (1 << 20))
    assert large.headers["www-authenticate"] == unknown.headers["www-authenticate"]
    assert refusal(large) == (401, -32001)


def test_every_answer_forbids_caching(visitor: Visitor) -> None:
    large = b'"' + b"x" * (1 << 20) + b'"'
    answers = [
        visitor.send(),
        visitor.send(body={"jsonrpc": "2.0", "method": "notifications/initialized"}),
        visitor.send(body=[PING]),
        visitor.send(body=b"{nonsense"),
        visitor.send(body=large),
        visitor.send(body=large, key="llmgtwy_" + "0" * 40),
        visitor.send(key=""),
        visitor.send("DELETE"),
        visitor.send(Content_Type="text/plain"),
        visitor.send(Accept="text/html"),
        visitor.send(MCP_Protocol_Version="1999-01-01"),
        visitor.send("GET", Accept="*/*"),
    ]
    assert {answer.status_code for answer in answers} == {200, 202, 400, 401, 405, 406, 415}
    for answer in answers:
        assert "no-store" in answer.headers["cache-control"] and "Accept, Origin" in answer.headers["vary"]
        assert "mcp-session-id" not in answer.headers


def test_a_key_in_its_own_header_is_accepted(visitor: Visitor, gateway: LocalGateway) -> None:
    assert visitor.send(key="", x_api_key=gateway.key).json() == {"jsonrpc": "2.0", "id": 1, "result": {}}


def test_a_message_has_a_size(visitor: Visitor) -> None:
    assert refusal(visitor.send(body=b'"' + b"x" * (4 << 20) + b'"')) == (413, -32000)


@pytest.mark.parametrize(
    "body",
    [
        {"jsonrpc": "2.0", "method": "notifications/initialized"},
        {"jsonrpc": "2.0", "method": "notifications/of-tomorrow", "params": {}},
        {"jsonrpc": "2.0", "id": 3, "result": {}},
    ],
)
def test_notifications_get_no_response(visitor: Visitor, body: Json) -> None:
    answer = visitor.send(body=body)
    assert answer.status_code == 202 and answer.content == b"" and "mcp-session-id" not in answer.headers


@pytest.mark.parametrize(
    "body",
    [
        7,
        {},
        {"jsonrpc": "2.0", "id": 1},
        {"jsonrpc": "1.0", "id": 1, "method": "ping"},
        {"jsonrpc": "2.0", "id": None, "method": "ping"},
        {"jsonrpc": "2.0", "id": {}, "method": "ping"},
        {"jsonrpc": "2.0", "id": 1, "method": "ping", "params": []},
    ],
)
def test_invalid_messages_are_refused(visitor: Visitor, body: Any) -> None:
    ident = body.get("id") if isinstance(body, dict) and body.get("id") != {} else None
    assert refusal(visitor.send(body=body), ident) == (400, -32600)


def test_faults_of_a_call_are_reported_under_its_id(visitor: Visitor) -> None:
    assert visitor.request("resources/list")["error"]["code"] == -32601
    assert visitor.request("tools/call", name="rm")["error"]["code"] == -32602
    assert visitor.request("tools/call")["error"]["code"] == -32602
    assert visitor.request("tools/call", name="chat", arguments=[])["error"]["code"] == -32602


def test_only_a_client_that_takes_json_is_answered(visitor: Visitor) -> None:
    assert visitor.send(Accept="*/*").status_code == 200
    assert refusal(visitor.send(Accept="text/html"), PING["id"]) == (406, -32000)
    for accepted in ("application/json", "application/*", "text/event-stream, */*;q=0.1"):
        assert visitor.send(Accept=accepted).status_code == 200


@pytest.mark.parametrize("version", ["2025-11-25", "2025-06-18", "2025-03-26", "2024-11-05"])
def test_every_version_is_agreed_upon(visitor: Visitor, version: str) -> None:
    result = visitor.request("initialize", protocolVersion=version, capabilities={}, clientInfo={})["result"]
    assert result["protocolVersion"] == version and result["serverInfo"]["name"] == "llmgateway"
    assert visitor.send(MCP_Protocol_Version=version).status_code == 200


def test_a_version_of_tomorrow_gets_the_newest(visitor: Visitor) -> None:
    assert visitor.request("initialize", protocolVersion="2026-07-28")["result"]["protocolVersion"] == "2025-11-25"


def test_a_page_may_call_after_a_preflight_request(visitor: Visitor) -> None:
    origin = {"Origin": "http://localhost:6274"}
    preflight = visitor.send("OPTIONS", key="", Access_Control_Request_Method="POST", **origin)
    assert preflight.status_code == 204 and "POST" in preflight.headers["access-control-allow-methods"]
    assert visitor.send(**origin).headers["access-control-allow-origin"] == "*"


@pytest.mark.parametrize(
    "origin", ["https://evil.example.com", "http://localhost.evil.example.com:6274", "null", "http://[x"]
)
def test_a_page_of_an_unlisted_origin_is_refused_with_a_valid_key_too(visitor: Visitor, origin: str) -> None:
    assert refusal(visitor.send(Origin=origin), PING["id"]) == (403, -32000)


@pytest.mark.parametrize("origin", ["http://localhost:6274", "http://127.0.0.1:6274", "http://[::1]:6274"])
def test_pages_on_the_same_computer_may_call(visitor: Visitor, origin: str) -> None:
    assert visitor.send(Origin=origin).status_code == 200


def test_an_origin_listed_beside_the_wildcard_is_let_in(share: Share) -> None:
    listed = share.gateway({"GATEWAY_SECURITY_CORS_ORIGINS": "*,https://app.example.com"}, name="wildcard")
    visitor = Visitor(listed)
    assert visitor.send(Origin="https://app.example.com").status_code == 200
    assert refusal(visitor.send(Origin="https://evil.example.com"), PING["id"]) == (403, -32000)


def test_only_named_origins_are_let_in(share: Share) -> None:
    named = share.gateway({"GATEWAY_SECURITY_CORS_ORIGINS": "https://app.example.com"}, name="origins")
    visitor = Visitor(named)
    assert visitor.send(Origin="https://app.example.com").status_code == 200
    assert visitor.send(Origin=named.address).status_code == 200
    assert refusal(visitor.send(Origin="https://evil.example.com"), PING["id"]) == (403, -32000)


# Tools, with the official client.


async def _visit(gateway: LocalGateway, calls: list[tuple[str, Json]]) -> tuple[Any, Any, list[Any]]:
    from mcp.client.streamable_http import streamable_http_client

    headers = {"Authorization": f"Bearer {gateway.key}", "x-source": "my-agent"}
    async with (
        httpx2.AsyncClient(headers=headers) as http,
        streamable_http_client(f"{gateway.address}/mcp", http_client=http) as streams,
        mcp.ClientSession(*streams[:2]) as session,
    ):
        initialized = await session.initialize()
        listed = await session.list_tools()
        return initialized, listed, [await session.call_tool(name, arguments) for name, arguments in calls]


def visit(gateway: LocalGateway, *calls: tuple[str, Json]) -> tuple[Any, Any, list[Any]]:
    """Return the server's results of calls by the official client, which checks every result against the schemas."""
    return asyncio.run(_visit(gateway, list(calls)))


def test_the_official_client_lists_and_calls_every_tool(gateway: LocalGateway, upstream: FakeOpenAI) -> None:
    upstream.script(Answer("Good day.", prompt=7, completion=3))
    _initialized, listed, results = visit(
        gateway,
        ("get-account", {}),
        ("get-usage", {}),
        ("get-usage-breakdown", {"group_by": "model"}),
        ("chat", {"model": MODEL, "messages": TALK}),
        ("generate-image", {"prompt": "A lighthouse", "n": 2, "model": "sandbox/sandbox-image"}),
        ("generate-alt-image", {"prompt": "A boat", "aspect_ratio": "16:9"}),
        ("list-models", {"limit": 3}),
        ("list-image-models", {}),
    )
    assert [tool.name for tool in listed.tools] == TOOLS
    assert [bool(result.is_error) for result in results] == [False] * 8
    account, usage, breakdown, chat, images, alt, models, vendors = results
    assert account.structured_content["role"] == "owner"
    assert json.loads(account.content[0].text) == account.structured_content
    assert usage.structured_content["granularity"] == "day" and breakdown.structured_content["groupBy"] == "model"
    assert chat.content[0].text == "Good day.\n\n---\nTokens: 7 prompt, 3 completion, 10 total"
    image_blocks = [block for block in images.content if block.type == "image"]
    assert len(image_blocks) == 2 and b64decode(image_blocks[0].data).startswith(b"\x89PNG")
    assert [block.type for block in alt.content if block.type == "image"] == ["image"]
    assert len(models.structured_content["models"]) == 3 and "showing 3 of" in models.content[0].text
    default = vendors.structured_content["default"]
    assert vendors.structured_content["altDefault"] == "sandbox-image"
    assert default == "sandbox-image" and f"{default}** (default)" in vendors.content[0].text
    assert [row.source for row in usage_of(gateway)] == ["my-agent"] * 3


async def _discover(gateway: LocalGateway) -> tuple[str | None, list[str], Any]:
    from mcp.client.streamable_http import streamable_http_client

    async with (
        httpx2.AsyncClient(headers={"Authorization": f"Bearer {gateway.key}"}) as http,
        mcp.Client(streamable_http_client(f"{gateway.address}/mcp", http_client=http)) as client,
    ):
        listed = [tool.name for tool in (await client.list_tools()).tools]
        return client.protocol_version, listed, await client.call_tool("get-account", {})


def test_a_client_of_the_newest_revision_needs_no_handshake(gateway: LocalGateway) -> None:
    version, listed, account = asyncio.run(_discover(gateway))
    assert version == "2026-07-28" and listed == TOOLS and account.structured_content["role"] == "owner"


META = {"io.modelcontextprotocol/protocolVersion": "2026-07-28", "io.modelcontextprotocol/clientCapabilities": {}}


def send_current(
    visitor: Visitor, method: str, meta: Json | None = META, name: str = "", **headers: str
) -> httpx.Response:
    """Send a message with its protocol version, and the headers that mirror it unless others are given."""
    params = ({"_meta": meta} if meta is not None else {}) | ({"name": name} if name else {})
    mirrors = {"MCP_Protocol_Version": "2026-07-28", "Mcp_Method": method} | ({"Mcp_Name": name} if name else {})
    body = {"jsonrpc": "2.0", "id": 5, "method": method, "params": params}
    return visitor.send(body=body, **(mirrors | headers))


def test_the_newest_revision_is_answered_beside_the_others(visitor: Visitor) -> None:
    found = send_current(visitor, "server/discover").json()["result"]
    assert found["supportedVersions"][0] == "2026-07-28" and "2024-11-05" in found["supportedVersions"]
    assert found["resultType"] == "complete" and found["capabilities"] == {"tools": {}}
    assert found["_meta"]["io.modelcontextprotocol/serverInfo"]["name"] == "llmgateway"
    listed = send_current(visitor, "tools/list").json()["result"]
    assert len(listed["tools"]) == 8 and listed["ttlMs"] > 0 and listed["cacheScope"] == "public"
    account = send_current(visitor, "tools/call", name="get-account")
    assert account.status_code == 200 and account.json()["result"]["resultType"] == "complete"
    encoded = send_current(visitor, "tools/call", name="get-account", Mcp_Name="=?base64?Z2V0LWFjY291bnQ=?=")
    assert encoded.status_code == 200


def fault(answer: httpx.Response) -> tuple[int, int]:
    body = answer.json()
    assert body["id"] == 5 and body["error"]["message"]
    return answer.status_code, body["error"]["code"]


def test_requests_that_the_newest_revision_refuses(visitor: Visitor) -> None:
    for removed_method in ("initialize", "ping", "resources/list"):
        assert fault(send_current(visitor, removed_method)) == (404, -32601)
    assert fault(send_current(visitor, "tools/call", name="rm")) == (400, -32602)
    assert fault(send_current(visitor, "tools/list", meta=None)) == (400, -32602)
    assert fault(send_current(visitor, "tools/list", meta={**META, "io.modelcontextprotocol/protocolVersion": 7})) == (
        400,
        -32020,
    )
    assert fault(send_current(visitor, "tools/list", MCP_Protocol_Version="2025-11-25")) == (400, -32020)
    assert fault(send_current(visitor, "tools/list", Mcp_Method="tools/call")) == (400, -32020)
    assert fault(send_current(visitor, "tools/call", name="get-usage", Mcp_Name="get-account")) == (400, -32020)
    assert fault(send_current(visitor, "tools/call", name="get-usage", Mcp_Name="=?base64?!?=")) == (400, -32020)
    # A message of an older revision knows neither the method nor the kind of a result.
    assert visitor.request("server/discover")["error"]["code"] == -32601
    assert "resultType" not in visitor.request("tools/list")["result"]


def test_a_chat_costs_what_it_costs_elsewhere(gateway: LocalGateway, visitor: Visitor, upstream: FakeOpenAI) -> None:
    upstream.script(*[Answer("Good day.", prompt=700, completion=300)] * 2)
    visitor.call("chat", model=MODEL, messages=TALK, temperature=1, max_tokens=400)
    body = {"model": MODEL, "messages": TALK, "temperature": 1, "max_tokens": 400}
    headers = {"Authorization": f"Bearer {gateway.key}", "x-no-cache": "true"}
    with httpx.Client(timeout=60) as http:
        assert http.post(f"{gateway.url}/chat/completions", json=body, headers=headers).status_code == 200
    first, second = usage_of(gateway)
    assert first.cost_nusd == second.cost_nusd > 0
    assert upstream.calls[0].body == upstream.calls[1].body


def test_a_refusal_by_a_limit_is_a_tool_error_without_an_upstream_call(
    gateway: LocalGateway, visitor: Visitor, upstream: FakeOpenAI
) -> None:
    own = gateway.services.accounts.authentication.caller(gateway.key)
    gateway.services.billing.budgets.set_limits("key", own.key_id, Limits(total_nusd=0))
    for tool, more in (("chat", {"model": MODEL, "messages": TALK}), ("generate-image", {"prompt": "A boat"})):
        refused = visitor.call(tool, **more)
        assert refused["isError"] and text(refused).startswith("402 key_limit_reached: ")
    assert upstream.calls == [] and usage_of(gateway) == []
    assert visitor.call("get-account")["structuredContent"]["apiKey"]["usageLimitUsd"] == 0
    assert not visitor.call("get-usage").get("isError") and not visitor.call("list-models").get("isError")


def test_a_failure_upstream_is_a_tool_error(visitor: Visitor, upstream: FakeOpenAI) -> None:
    upstream.script(*[Answer(status=500)] * 10)
    failed = visitor.call("chat", model=MODEL, messages=TALK)
    assert failed["isError"] and text(failed)[:3].isdigit()
    unknown = visitor.call("chat", model="no-such-model", messages=TALK)
    assert unknown["isError"] and "model_not_found" in text(unknown)


def test_chat_takes_parts_and_every_role(visitor: Visitor, upstream: FakeOpenAI) -> None:
    call = {"id": "c1", "type": "function", "function": {"name": "weather", "arguments": "{}"}}
    picture = {"type": "image_url", "image_url": {"url": PNG}}
    messages = [
        {"role": "developer", "content": "Be brief."},
        {"role": "user", "content": [{"type": "text", "text": "Look:"}, picture]},
        {"role": "assistant", "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "c1", "content": [{"type": "text", "text": "Sunny."}]},
    ]
    upstream.script(Answer("Fine."))
    assert not visitor.call("chat", model=MODEL, messages=messages).get("isError")
    assert upstream.calls[-1].body["messages"] == messages
    data = PNG.partition(",")[2]
    blocks = [{"type": "image", "data": data, "mimeType": "image/png"}, {"type": "text", "text": "Look:"}]
    upstream.script(Answer("Fine."))
    upstream.script(Answer("Fine."))
    assert not visitor.call("chat", model=MODEL, messages=[{"role": "user", "content": blocks}]).get("isError")
    assert upstream.calls[-1].body["messages"][0]["content"] == [picture, blocks[1]]
    alone = {"role": "user", "content": {"type": "text", "text": "Hello"}}
    assert not visitor.call("chat", model=MODEL, messages=[alone]).get("isError")
    assert upstream.calls[-1].body["messages"][0]["content"] == [alone["content"]]


@pytest.mark.parametrize(
    ("tool", "arguments", "named"),
    [
        ("get-account", {"organization": "other"}, "organization"),
        ("get-usage", {"project_id": "other"}, "project_id"),
        ("get-usage", {"from": "2026-02-30"}, "from"),
        ("get-usage", {"from": "2026-02-03T00:00:00Z"}, "from must be a date such as 2027-01-31"),
        ("get-usage-breakdown", {"group_by": "app", "to": ""}, "to must be a date such as 2027-01-31"),
        ("get-usage", {"from": "2020-01-01"}, ""),
        ("get-usage", {"granularity": "minute"}, "granularity"),
        ("get-usage-breakdown", {}, "group_by"),
        ("get-usage-breakdown", {"group_by": "model", "limit": 101}, "limit"),
        ("get-usage-breakdown", {"group_by": "model", "offset": "1"}, "offset"),
        ("chat", {"model": MODEL, "messages": []}, "messages"),
        ("chat", {"model": MODEL, "messages": TALK, "temperature": 3}, "temperature"),
        ("generate-image", {"prompt": "A boat", "n": 5}, "n"),
        ("list-models", {"limit": 0}, "limit"),
        ("list-models", {"limit": 1001}, "limit"),
        (
            "chat",
            {"model": MODEL, "messages": [{"role": "critic", "content": ""}]},
            "not one of assistant, developer, system, tool or user",
        ),
        ("chat", {"model": MODEL, "messages": [{"role": "tool", "content": ""}]}, "messages.0.tool_call_id"),
        ("chat", {"model": MODEL, "messages": [{"role": "user"}]}, "messages.0.content"),
        (
            "chat",
            {"model": MODEL, "messages": [{"role": "user", "content": [{"type": "input_file"}]}]},
            "messages.0.content.0",
        ),
        ("chat", {"model": MODEL, "messages": TALK, "max_tokens": 1.5}, "max_tokens"),
        (
            "generate-alt-image",
            {"prompt": "A boat", "aspect_ratio": "2:1"},
            "'2:1' is not one of 16:9, 1:1, 4:3 or 5:4",
        ),
        ("generate-alt-image", {"prompt": "A boat", "filename": "../../etc/passwd"}, "filename"),
    ],
)
def test_wrong_arguments_are_a_tool_error(
    gateway: LocalGateway, visitor: Visitor, upstream: FakeOpenAI, tool: str, arguments: Json, named: str
) -> None:
    refused = visitor.call(tool, **arguments)
    assert refused["isError"] and text(refused).startswith("400 ") and named in text(refused)
    assert upstream.calls == [] and usage_of(gateway) == []


def test_models_are_listed_with_their_abilities(visitor: Visitor) -> None:
    listed = visitor.call("list-models")["structuredContent"]["models"]
    (model,) = (model for model in listed if model["id"] == MODEL.partition("/")[2])
    abilities = {name: model["capabilities"][name] for name in ("vision", "tools", "streaming", "imageGeneration")}
    assert abilities == {"vision": True, "tools": True, "streaming": True, "imageGeneration": False}
    assert isinstance(model["capabilities"]["reasoning"], bool)


def test_a_whole_number_may_be_written_with_a_point(visitor: Visitor) -> None:
    assert len(visitor.call("list-models", limit=3.0)["structuredContent"]["models"]) == 3
    assert not visitor.call("chat", model=MODEL, messages=TALK, max_tokens=100.0, temperature=1).get("isError")


def test_other_tools_ignore_what_they_do_not_know(visitor: Visitor) -> None:
    assert not visitor.call("chat", model=MODEL, messages=TALK, stream=True, colour="red").get("isError")
    assert not visitor.call("list-image-models", colour="red", family=None).get("isError")


def test_reports_are_an_error_and_no_zeros_when_the_store_is_away(
    visitor: Visitor, monkeypatch: pytest.MonkeyPatch
) -> None:
    def away(*_: Any) -> None:
        raise errors.Unavailable("secret words of a store")

    monkeypatch.setattr(Reports, "get_usage", away)
    refused = visitor.call("get-usage")
    assert refused["isError"] and "structuredContent" not in refused
    assert text(refused).startswith("503 service_unavailable: ") and "secret" not in text(refused)


@pytest.fixture
def unknown(gateway: LocalGateway, monkeypatch: pytest.MonkeyPatch) -> Visitor:
    """Return a visitor with a key that no worker has cached, while the store is unavailable."""
    services = gateway.services
    stores = services.store.database, services.store.control
    member = list_members(services.store.database, gateway.organization_id)[0]
    key = create(
        *stores, services.store.secrets.hash_keys, Draft(gateway.project_id, member.id, "New", "user"), actor="test"
    )
    visitor = Visitor(gateway)
    visitor._key = key.token

    def away(*_: Any, **__: Any) -> None:
        raise errors.Unavailable("The database is down.")

    monkeypatch.setattr(services.store.database, "read", away)
    return visitor


@pytest.mark.parametrize("tool", ["get-account", "get-usage", "get-usage-breakdown", "list-models"])
@pytest.mark.parametrize("stateless", [False, True])
def test_a_tool_fails_in_words_while_the_store_is_away(unknown: Visitor, tool: str, stateless: bool) -> None:
    headers, params = {}, {"name": tool, "arguments": {}}
    if stateless:
        headers = {"MCP_Protocol_Version": "2026-07-28", "Mcp_Method": "tools/call", "Mcp_Name": tool}
        version, able = "io.modelcontextprotocol/protocolVersion", "io.modelcontextprotocol/clientCapabilities"
        params["_meta"] = {version: "2026-07-28", able: {}}
    body = {"jsonrpc": "2.0", "id": 7, "method": "tools/call", "params": params}
    answer = unknown.send(body=body, **headers)
    assert (answer.status_code, answer.json()["id"]) == (200, 7)
    assert answer.json()["result"]["isError"] and text(answer.json()["result"]).startswith("503 ")


def test_other_messages_are_refused_under_their_id_while_the_store_is_away(unknown: Visitor) -> None:
    assert refusal(unknown.send(body=PING | {"id": "p"}), "p") == (503, -32000)
    nonsense = {"jsonrpc": "2.0", "id": 8, "method": "tools/call", "params": {"name": "rm"}}
    assert refusal(unknown.send(body=nonsense), 8) == (503, -32000)
    assert refusal(unknown.send("GET", Accept="text/event-stream")) == (503, -32000)


def test_a_bug_is_reported_under_the_id_of_the_message(visitor: Visitor, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Reports, "get_usage", lambda *_: 1 // 0)
    body = {"jsonrpc": "2.0", "id": 9, "method": "tools/call", "params": {"name": "get-usage", "arguments": {}}}
    assert refusal(visitor.send(body=body), 9) == (500, -32000)


def test_a_customers_key_may_generate_but_not_read_the_account(gateway: LocalGateway) -> None:
    services = gateway.services
    stores = services.store.database, services.store.control
    member = list_members(services.store.database, gateway.organization_id)[0]
    draft = Draft(gateway.project_id, member.id, "Customer", "customer")
    key = create(*stores, services.store.secrets.hash_keys, draft, actor="test")
    customer = Visitor(gateway)
    customer._key = key.token
    refused = customer.call("get-account")
    assert refused["isError"] and text(refused).startswith("403 permission_denied: ")
    assert not customer.call("chat", model=MODEL, messages=TALK).get("isError")


def test_a_developer_sees_what_their_own_keys_did(gateway: LocalGateway, visitor: Visitor) -> None:
    services = gateway.services
    stores = services.store.database, services.store.control
    member = add_member(*stores, gateway.organization_id, "developer@localhost", "developer", actor="test")
    draft = Draft(gateway.project_id, member.id, "Theirs")
    key = create(*stores, services.store.secrets.hash_keys, draft, actor="test")
    theirs = Visitor(gateway)
    theirs._key = key.token
    for client, count in ((visitor, 2), (theirs, 1)):
        for number in range(count):
            assert not client.call("chat", model=MODEL, messages=TALK, temperature=number).get("isError")
    services.store.journal.flush(60)
    services.billing.rollups.catch_up()
    keys = theirs.call("get-usage-breakdown", group_by="api_key")["structuredContent"]
    assert [row["id"] for row in keys["rows"]] == [key.info.id] and keys["scope"]["type"] == "member"
    assert theirs.call("get-usage")["structuredContent"]["totals"]["requestCount"] == 1
    assert theirs.call("get-account")["structuredContent"]["creditsBalanceUsd"] is None
    assert visitor.call("get-usage")["structuredContent"]["totals"]["requestCount"] == 3


def test_models_are_listed_by_family(visitor: Visitor) -> None:
    whole = visitor.call("list-models", limit=1000)["structuredContent"]["models"]
    some = visitor.call("list-models", limit=1000, family="OpenAI")["structuredContent"]["models"]
    assert 0 < len(some) < len(whole) and {one["family"].lower() for one in some} == {"openai"}
    some = visitor.call("list-models")
    assert len(some["structuredContent"]["models"]) == 20 and "anthropic (" in text(some)
    assert all({"openai", "sandbox"} & set(one["providers"]) for one in some["structuredContent"]["models"])
    assert "openai (" in text(visitor.call("list-models", family="gpt"))


def test_image_models_with_a_credential_come_first(visitor: Visitor) -> None:
    listed = visitor.call("list-image-models")["structuredContent"]["models"][1:]  # after the default model
    ready = [bool({"openai", "sandbox"} & set(one["providers"])) for one in listed]
    assert ready == sorted(ready, reverse=True) and {True, False} == set(ready)


# Settings of the operator.


@pytest.fixture
def saving(settings: Callable[..., Settings], tmp_path: Path) -> Iterator[tuple[Visitor, Path]]:
    folder = tmp_path / "images"
    with local_gateway(settings, UPLOAD_DIR=str(folder)) as running:
        yield Visitor(running), folder


def test_images_are_saved_in_the_folder_alone(saving: tuple[Visitor, Path], tmp_path: Path) -> None:
    visitor, folder = saving
    saved = visitor.call("generate-alt-image", prompt="A boat", filename="boat.png")
    assert text(saved) == f"Saved: {folder / 'boat.png'}" and saved["content"][1]["type"] == "image"
    assert (folder / "boat.png").read_bytes() == b64decode(saved["content"][1]["data"])
    victim = tmp_path / "victim.png"
    os.symlink(victim, folder / "link.png")
    (folder / "taken.png").write_bytes(b"mine")
    assert text(visitor.call("generate-alt-image", prompt="A boat", filename="link.png")).endswith("link-2.png")
    assert text(visitor.call("generate-alt-image", prompt="A boat", filename="taken.png")).endswith("taken-2.png")
    assert not victim.exists() and (folder / "taken.png").read_bytes() == b"mine"
    for bad in ("../out.png", "a/b.png", "a\\b.png", "C:out.png", "..", ".hidden", "a\x00.png", "é" * 150):
        assert visitor.call("generate-alt-image", prompt="A boat", filename=bad)["isError"]
    assert text(visitor.call("generate-alt-image", prompt="A boat", filename="run.sh")).endswith("run.sh.png")
    assert "alt-image-" in text(visitor.call("generate-alt-image", prompt="A boat"))
    assert sorted(one.name for one in tmp_path.iterdir() if one.suffix == ".png") == []


def test_a_folder_that_cannot_be_written_is_reported_and_the_image_given(saving: tuple[Visitor, Path]) -> None:
    visitor, folder = saving
    folder.write_text("a file stands in its place")
    result = visitor.call("generate-alt-image", prompt="A boat")
    assert text(result) == "The image could not be saved on the server." and result["content"][1]["type"] == "image"


def test_generate_images_default_and_that_of_the_other_tool_are_settings(share: Share) -> None:
    chosen = {"GATEWAY_MEDIA_IMAGE_MODEL": "sandbox-image", "GATEWAY_MEDIA_ALT_IMAGE_MODEL": "openai/gpt-image-1"}
    visitor = Visitor(share.gateway(chosen | {"LLM_OPENAI_API_KEY": "sk-upstream"}, name="chosen"))
    listed = visitor.call("list-image-models")["structuredContent"]
    assert (listed["default"], listed["altDefault"]) == ("sandbox-image", "gpt-image-1")


@pytest.fixture
def hasty(share: Share, upstream_environment: dict[str, str]) -> Visitor:
    return Visitor(share.gateway(upstream_environment | {"GATEWAY_MCP_TOOL_TIMEOUT_S": "1"}, name="hasty"))


def test_a_tool_that_takes_too_long_is_ended_with_its_upstream_call(hasty: Visitor, upstream: FakeOpenAI) -> None:
    upstream.script(Answer("Too late.", silence_s=5))
    fault = hasty.request("tools/call", name="chat", arguments={"model": MODEL, "messages": TALK})["error"]
    assert fault["code"] == -32001 and fault["data"] == {"code": "tool_timeout", "timeout": 1000}
    (row,) = usage_of(hasty.gateway)
    assert row.status != "ok"


def test_the_rate_limit_of_the_account_holds(own_gateway: LocalGateway, upstream: FakeOpenAI) -> None:
    services = own_gateway.services
    set_rate_limit(RateLimits(services.store.database, services.store.control), "key", "*", "requests", 1)
    visitor = Visitor(own_gateway)
    body = {"jsonrpc": "2.0", "id": 9, "method": "tools/call"}
    body["params"] = {"name": "chat", "arguments": {"model": MODEL, "messages": TALK}}
    assert visitor.send(body=body).status_code == 200
    limited = visitor.send(body=body)
    assert limited.status_code == 429 and int(limited.headers["retry-after"]) > 0
    assert limited.json()["id"] == 9 and limited.json()["error"]["code"] == -32000 and len(upstream.calls) == 1
