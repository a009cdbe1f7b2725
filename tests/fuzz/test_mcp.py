"""Random messages and arguments of tools: each is read, or refused with an error that names the problem."""

import json
from collections.abc import Iterator
from typing import Any

import orjson
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from support.gateways import LocalGateway, local_gateway

from gateway.configuration import settings as settings_module
from gateway.configuration.settings import load
from gateway.errors import GatewayError
from gateway.surfaces.mcp import json_rpc, tool_schemas
from gateway.surfaces.mcp.generation import check_name

# Each goes through the whole gateway.
EXAMPLES = settings().max_examples

LIMITS = load({}).limits
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=6), inner, max_size=3),
    max_leaves=8,
)
MESSAGES = st.fixed_dictionaries(
    {}, optional={"jsonrpc": st.just("2.0") | JSON, "id": JSON, "method": st.just("ping") | JSON, "params": JSON}
)
KINDS = (
    tool_schemas.NoArguments,
    tool_schemas.UsageArguments,
    tool_schemas.BreakdownArguments,
    tool_schemas.ChatArguments,
    tool_schemas.ImageArguments,
    tool_schemas.AltImageArguments,
    tool_schemas.ListArguments,
    tool_schemas.AnyArguments,
)


def read(raw: bytes) -> None:
    """Check that a message that is read can be answered, and that a refused one is the caller's fault."""
    try:
        call = json_rpc.read_call(LIMITS, raw)
    except GatewayError as error:
        assert 400 <= error.status < 500 and orjson.dumps(json_rpc.error_body(error, ""))
    else:
        assert call is None or json_rpc.result_of(call, {}).encode()


@given(MESSAGES | JSON)
def test_any_json_is_a_message_or_refused(body: Any) -> None:
    read(json.dumps(body).encode())


@given(st.binary(max_size=60))
def test_any_bytes_are_refused_or_read(raw: bytes) -> None:
    read(raw)


def test_bodies_that_are_nested_too_deeply_are_refused() -> None:
    read(b'{"a":' * 100_000)


@given(st.sampled_from(KINDS), st.data())
def test_any_arguments_are_accepted_or_refused_with_the_reason(kind: type, data: st.DataObject) -> None:
    known = st.dictionaries(st.sampled_from([*tool_schemas.schema_of(kind)["properties"], "other"]), JSON, max_size=5)
    try:
        tool_schemas.read_arguments(kind, data.draw(known | JSON))
    except GatewayError as error:
        assert error.status == 400 and error.message


@given(st.text(alphabet="ab./\\:\x00-é \n", max_size=12))
def test_no_name_leads_out_of_the_folder(name: str) -> None:
    try:
        check_name(name)
    except GatewayError:
        return
    assert "/" not in name and "\\" not in name and "\x00" not in name and not name.startswith(".")


# Through the whole gateway.

WORDS = st.text(alphabet=st.characters(min_codepoint=0x20, max_codepoint=0xFF, exclude_characters="\x7f"), max_size=12)
META = {"io.modelcontextprotocol/protocolVersion": "2026-07-28", "io.modelcontextprotocol/clientCapabilities": {}}
HEADERS = st.fixed_dictionaries(
    {},
    optional={
        "Accept": st.sampled_from(["", "*/*", "text/event-stream, application/json", "text/html"]) | WORDS,
        "Content-Type": st.sampled_from(["application/json", "application/json; charset=latin-1", "text/plain"])
        | WORDS,
        "MCP-Protocol-Version": st.sampled_from(["2026-07-28", "2025-11-25", "2024-11-05", "1999-01-01"]) | WORDS,
        "Mcp-Method": st.sampled_from(["ping", "tools/call"]) | WORDS,
        "Mcp-Name": st.sampled_from(["chat", "=?base64?Y2hhdA==?=", "=?base64?!?="]) | WORDS,
        "Origin": st.sampled_from(["http://localhost", "null", "https://evil.example"]) | WORDS,
        "Host": st.sampled_from(["localhost", "evil.example", "[::1]:4001"]),
        "x-source": WORDS,
        "Idempotency-Key": WORDS,
        "Mcp-Session-Id": WORDS,
    },
)
CALLS = st.fixed_dictionaries(
    {"jsonrpc": st.just("2.0"), "id": st.integers(0, 9) | st.text(max_size=4)},
    optional={
        "method": st.sampled_from(["initialize", "ping", "tools/list", "tools/call", "server/discover", "logging"]),
        "params": st.fixed_dictionaries(
            {},
            optional={
                "name": st.sampled_from(["get-account", "get-usage", "list-models", "list-image-models"]) | JSON,
                "arguments": st.dictionaries(st.sampled_from(["from", "limit", "family", "group_by"]), JSON, max_size=2)
                | JSON,
                "_meta": st.just(META) | st.dictionaries(st.sampled_from([*META]), JSON, max_size=2) | JSON,
                "protocolVersion": JSON,
            },
        )
        | JSON,
    },
)


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalGateway]:
    base = {"GATEWAY_ENV": "test", "GATEWAY_DATA_DIR": str(tmp_path_factory.mktemp("fuzz"))}
    with local_gateway(lambda **more: settings_module.load(base | more)) as running:
        yield running


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow], max_examples=EXAMPLES)
@given(
    method=st.sampled_from(["POST"] * 6 + ["GET", "HEAD", "DELETE", "OPTIONS"]),
    headers=HEADERS,
    body=CALLS | MESSAGES | JSON,
    query=st.sampled_from(["", "", "?sessionId=abc", "?sessionId=", "?a=%ff"]),
)
def test_any_message_with_any_headers_is_answered_and_never_our_fault(
    gateway: LocalGateway, method: str, headers: dict[str, str], body: Any, query: str
) -> None:
    all_headers = {"Authorization": f"Bearer {gateway.key}", "Content-Type": "application/json", **headers}
    client = gateway.app.flask.test_client(use_cookies=False)
    answer = client.open(f"/mcp{query}", method=method, headers=all_headers, data=json.dumps(body), buffered=False)
    try:
        if answer.mimetype == "text/event-stream":
            assert answer.status_code == 200 and method in ("GET", "HEAD")
            return
        raw = answer.get_data()
    finally:
        answer.close()
    assert answer.status_code < 500, raw[:500]
    if answer.status_code in (202, 204) or method == "HEAD":
        assert raw == b""
    elif method == "POST":
        message = json.loads(raw)
        assert message["jsonrpc"] == "2.0" and ("result" in message) != ("error" in message)
        assert "error" not in message or (isinstance(message["error"]["code"], int) and message["error"]["message"])
