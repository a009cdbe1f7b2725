"""MCP's oldest transport (HTTP+SSE) over two workers: a stream, and messages that reach whichever worker."""

import asyncio
import http.client
import time
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from support.gateways import GatewayProcess, LocalGateway, Start
from support.old_mcp import OldStream
from support.shared import usage_of
from support.worker_connections import Line, open_lines

from gateway.store import mailboxes
from gateway.surfaces.mcp import routes

PING = {"jsonrpc": "2.0", "id": 1, "method": "ping"}
MAX_STREAMS = 8
TALK = {"model": "sandbox/sandbox-echo", "messages": [{"role": "user", "content": "Good day"}]}


@pytest.fixture(scope="module")
def bridged(tmp_path_factory: pytest.TempPathFactory) -> Iterator[GatewayProcess]:
    environment = {"GATEWAY_TIMEOUTS_HEARTBEAT_S": "0.2", "GATEWAY_MCP_MAX_STREAMS": str(MAX_STREAMS)}
    gateway = GatewayProcess(tmp_path_factory.mktemp("bridge") / "data", 2, **environment).start()
    yield gateway
    gateway.discard()


@pytest.fixture(scope="module")
def lines(bridged: GatewayProcess) -> list[Line]:
    return open_lines(bridged)


@pytest.fixture
def stream(bridged: GatewayProcess) -> Iterator[OldStream]:
    opened = OldStream(bridged.address, bridged.key)
    yield opened
    opened.close()


async def _talk(gateway: GatewayProcess) -> tuple[Any, list[str], Any]:
    from mcp import ClientSession
    from mcp.client.sse import sse_client

    headers = {"Authorization": f"Bearer {gateway.key}"}
    async with sse_client(f"{gateway.address}/mcp", headers=headers) as streams, ClientSession(*streams) as session:
        initialized = await session.initialize()
        listed = [tool.name for tool in (await session.list_tools()).tools]
        return initialized, listed, await session.call_tool("chat", TALK)


def test_an_old_client_talks_over_two_workers(bridged: GatewayProcess) -> None:
    for _ in range(4):
        initialized, listed, said = asyncio.run(_talk(bridged))
        assert initialized.server_info.name == "llmgateway" and len(listed) == 8
        assert not said.is_error and "Good day" in said.content[0].text


def test_an_answer_comes_from_every_worker(bridged: GatewayProcess, stream: OldStream, lines: list[Line]) -> None:
    assert stream.address.startswith(f"{bridged.address}/mcp?sessionId=")
    assert stream.headers["mcp-session-id"] == stream.session and stream.headers["cache-control"].startswith("no-store")
    for number, line in enumerate(lines):
        assert line.post(stream.path, PING | {"id": number}, bridged.key) == (202, None)
        assert stream.message() == {"jsonrpc": "2.0", "id": number, "result": {}}


def test_faults_come_by_the_stream_and_broken_messages_do_not(
    bridged: GatewayProcess, stream: OldStream, lines: list[Line]
) -> None:
    assert lines[0].post(stream.path, PING | {"method": "resources/list"}, bridged.key) == (202, None)
    assert stream.message()["error"]["code"] == -32601
    status, refused = lines[0].post(stream.path, [PING], bridged.key)  # type: ignore[arg-type]
    assert status == 400 and refused["error"]["code"] == -32600
    notice = {"jsonrpc": "2.0", "method": "notifications/initialized"}
    assert lines[0].post(stream.path, notice, bridged.key) == (202, None)


def test_a_message_without_a_session_is_answered_at_once(bridged: GatewayProcess, lines: list[Line]) -> None:
    assert lines[0].post("/mcp", PING, bridged.key) == (200, {"jsonrpc": "2.0", "id": 1, "result": {}})


def test_a_stream_belongs_to_its_key(bridged: GatewayProcess, stream: OldStream, lines: list[Line]) -> None:
    output = bridged.manage("keys", "create", "--description", "other").split()
    key = next(part for part in output if part.startswith("llmgtwy_"))
    for session, token in ((stream.session, key), ("0" * 32, bridged.key), ("", bridged.key)):
        for line in lines:
            status, refused = line.post(f"/mcp?sessionId={session}", PING, token)
            assert (status, refused["error"]["code"], refused["error"]["data"]) == (
                403,
                -32001,
                {"code": "session_not_open"},
            )


def test_a_silent_stream_has_heartbeats(stream: OldStream) -> None:
    assert stream.read_line() == ": keep-alive"


def test_a_key_has_so_many_streams_over_all_workers(bridged: GatewayProcess) -> None:
    opened = [OldStream(bridged.address, bridged.key) for _ in range(MAX_STREAMS)]
    refused = OldStream(bridged.address, bridged.key)
    assert refused.status == 429 and int(refused.headers["retry-after"]) > 0
    for stream in (*opened, refused):
        stream.close()
    end = time.monotonic() + 10
    while (again := OldStream(bridged.address, bridged.key)).status != 200:  # their workers notice that they left
        again.close()
        assert time.monotonic() < end
        time.sleep(0.1)
    again.close()


def test_a_stream_ends_with_its_key(bridged: GatewayProcess) -> None:
    output = bridged.manage("keys", "create", "--description", "ending").split()
    token = next(part for part in output if part.startswith("llmgtwy_"))
    ident = next(part.strip(";,.") for part in output if part.startswith("key_"))
    ending = OldStream(bridged.address, token)
    assert ending.status == 200
    bridged.manage("keys", "delete", ident)
    assert ending.event() == ("", "")


def test_streams_end_at_once_when_the_worker_drains(process: Start) -> None:
    gateway = process(GATEWAY_SERVER_GRACEFUL_TIMEOUT_S="20")
    stream = OldStream(gateway.address, gateway.key, timeout_s=25)
    began = time.monotonic()
    gateway.terminate()
    assert stream.event() == ("", "") and time.monotonic() - began < 5
    assert gateway.wait(15) == 0


def test_no_stream_without_a_key(bridged: GatewayProcess) -> None:
    connection = http.client.HTTPConnection(bridged.address.removeprefix("http://"), timeout=10)
    connection.request("GET", "/mcp", headers={"Accept": "text/event-stream"})
    answer = connection.getresponse()
    assert answer.status == 401 and "resource_metadata=" in answer.headers["www-authenticate"]
    connection.close()


@pytest.fixture
def near(gateway: LocalGateway) -> Iterator[OldStream]:
    """Open a stream of a gateway in this process, so that the test can inspect its worker."""
    opened = OldStream(gateway.url.removesuffix("/v1"), gateway.key)
    yield opened
    opened.close()


def send(gateway: LocalGateway, stream: OldStream, message: dict[str, Any]) -> httpx.Response:
    address = gateway.url.removesuffix("/v1") + stream.path
    return httpx.post(address, json=message, headers={"Authorization": f"Bearer {gateway.key}"}, timeout=60)


def test_an_answer_that_no_stream_carries_is_reported_as_an_error(
    gateway: LocalGateway, near: OldStream, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in (routes, mailboxes):
        monkeypatch.setattr(module, "MAX_MESSAGE_BYTES", 1_000)
    listing = {"jsonrpc": "2.0", "id": 7, "method": "tools/list"}
    assert send(gateway, near, listing).status_code == 202
    message = near.message()
    assert (message["id"], message["error"]["code"], message["error"]["data"]) == (
        7,
        -32000,
        {"code": "answer_too_long"},
    )
    assert send(gateway, near, PING).status_code == 202 and near.message()["result"] == {}


def test_a_key_whose_streams_are_full_is_refused_before_a_tool_runs(
    gateway: LocalGateway, near: OldStream, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mailboxes, "OWNER_BYTES", 0)
    talk = {"jsonrpc": "2.0", "id": 8, "method": "tools/call", "params": {"name": "chat", "arguments": TALK}}
    refused = send(gateway, near, talk)
    assert refused.status_code == 429 and int(refused.headers["retry-after"]) > 0
    assert (refused.json()["id"], refused.json()["error"]["data"]) == (8, {"code": "stream_full"})
    assert usage_of(gateway) == []
