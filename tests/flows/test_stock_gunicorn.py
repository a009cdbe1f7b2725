"""`gunicorn -k gevent wsgi:app`: every kind of operation under a server that is not the gateway's own."""

import asyncio
import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import httpx2
import mcp
import pytest
import websockets
from openai import OpenAI
from support.breakable_network import Gate
from support.gateways import GatewayProcess

SECRETS = {"GATEWAY_API_KEY_HASH_SECRET": "hash-secret-of-the-tests", "GATEWAY_ENCRYPTION_KEY": "key-of-the-tests-1"}
ASK = [{"role": "user", "content": "Say it again."}]


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[GatewayProcess]:
    process = GatewayProcess(tmp_path_factory.mktemp("stock") / "data", GATEWAY_BOOTSTRAP_CREDITS_USD="100")
    process.stock = True
    yield process.start()
    process.stop()


@pytest.fixture
def sdk(gateway: GatewayProcess) -> Iterator[OpenAI]:
    with OpenAI(base_url=gateway.url, api_key=gateway.key, max_retries=0) as client:
        yield client


def say_hello(gateway: GatewayProcess) -> int:
    return gateway.post("/v1/chat/completions", {"model": "sandbox", "messages": ASK})[0]


def is_alive(gateway: GatewayProcess) -> bool:
    try:
        return gateway.get("/livez")[0] == 200
    except OSError:
        return False


def wait_until(done: Callable[[], object]) -> None:
    until = time.monotonic() + 60
    while not done():
        assert time.monotonic() < until
        time.sleep(0.05)


@pytest.fixture
def unready(tmp_path: Path) -> Iterator[GatewayProcess]:
    process = GatewayProcess(tmp_path / "data", GATEWAY_BOOTSTRAP_CREDITS_USD="100")
    process.stock = True
    yield process
    process.discard()


def test_a_worker_whose_database_is_not_migrated_says_so_and_serves_after_the_migration(
    unready: GatewayProcess,
) -> None:
    unready.start_unready()
    wait_until(lambda: is_alive(unready))
    status, report = unready.get("/")
    database = json.loads(report)["health"]["database"]
    assert status == 503 and database["connected"] and "is missing; run: ./manage migrate" in database["error"]
    assert say_hello(unready) == 503
    unready.manage("migrate")
    unready.manage("seed")
    wait_until(unready.ready)
    assert say_hello(unready) == 200 and "Traceback" not in unready.log()


def test_a_worker_that_starts_without_its_database_serves_when_it_is_back(tmp_path: Path, postgresql_url: str) -> None:
    parts = urlsplit(postgresql_url)
    folder = Path(parse_qs(parts.query)["host"][0])
    way = Gate(str(next(folder.glob(".s.PGSQL.*[0-9]")))).open()
    url = f"postgresql://postgres@127.0.0.1:{way.port}{parts.path}"
    gateway = GatewayProcess(tmp_path / "data", DATABASE_URL=url, **SECRETS)
    gateway.stock = True
    try:
        for command in ("migrate", "seed"):
            gateway.manage(command)
        way.shut()
        gateway.start_unready()
        wait_until(lambda: is_alive(gateway))
        status, report = gateway.get("/")
        assert status == 503
        assert json.loads(report)["health"]["database"] == {"connected": False, "error": "Database connection failed"}
        assert say_hello(gateway) == 503
        way.open()
        wait_until(gateway.ready)
        assert say_hello(gateway) == 200
    finally:
        gateway.discard()
        way.shut()


def test_chat_is_answered_and_streamed(sdk: OpenAI) -> None:
    whole = sdk.chat.completions.create(model="sandbox", messages=ASK)
    assert whole.choices[0].message.content == ASK[0]["content"]
    chunks = [*sdk.chat.completions.create(model="sandbox", messages=ASK, stream=True)]
    said = "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices)
    assert said == ASK[0]["content"]


def test_media_are_made(sdk: OpenAI) -> None:
    assert sdk.images.generate(model="sandbox-image", prompt="A dot").data
    assert sdk.moderations.create(model="sandbox-moderate", input="Hello").results


def test_tools_are_called(gateway: GatewayProcess) -> None:
    async def call_tool() -> Any:
        from mcp.client.streamable_http import streamable_http_client

        headers = {"Authorization": f"Bearer {gateway.key}"}
        async with (
            httpx2.AsyncClient(headers=headers) as http,
            streamable_http_client(f"{gateway.address}/mcp", http_client=http) as (read, write),
            mcp.ClientSession(read, write) as session,
        ):
            await session.initialize()
            return await session.call_tool("get-account", {})

    assert asyncio.run(call_tool()).structured_content


async def converse(gateway: GatewayProcess, maximum: int | None = None) -> list[dict[str, Any]]:
    """The events of a session in which one response is asked for."""
    address = f"{gateway.url.replace('http', 'ws', 1)}/realtime?model=sandbox-realtime"
    headers = {"Authorization": f"Bearer {gateway.key}"}
    found: list[dict[str, Any]] = []
    async with websockets.connect(
        address, additional_headers=headers, subprotocols=["realtime"], max_size=maximum, proxy=None
    ) as session:
        assert session.subprotocol == "realtime"
        said = {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "Hello"}]}
        await session.send(json.dumps({"type": "conversation.item.create", "item": said}))
        await session.send(json.dumps({"type": "response.create"}))
        while not found or found[-1]["type"] != "response.done":
            found.append(json.loads(await session.recv()))
    return found


def test_a_realtime_session_is_held_billed_and_ended(gateway: GatewayProcess) -> None:
    kinds = [event["type"] for event in asyncio.run(converse(gateway))]
    assert kinds[0] == "session.created" and "response.output_audio.delta" in kinds
    # A session's connection serves nothing else afterwards, and the server continues.
    assert [event["type"] for event in asyncio.run(converse(gateway))][-1] == "response.done"
    assert gateway.get("/readyz")[0] == 200 and "Traceback" not in gateway.log()


@pytest.mark.parametrize(("key", "status"), [("llmgtwy_" + "0" * 40, 401), ("", 401)])
def test_a_session_is_refused_before_its_handshake(gateway: GatewayProcess, key: str, status: int) -> None:
    async def connect() -> None:
        address = f"{gateway.url.replace('http', 'ws', 1)}/realtime?model=sandbox-realtime"
        await websockets.connect(address, additional_headers={"Authorization": f"Bearer {key}"}, proxy=None)

    with pytest.raises(websockets.InvalidStatus) as refused:
        asyncio.run(connect())
    assert refused.value.response.status_code == status


def test_responses_are_created_over_a_socket(gateway: GatewayProcess, sdk: OpenAI) -> None:
    with sdk.responses.connect() as connection:
        previous: dict[str, str] = {}
        for text in ("Hello", "Hello again"):
            connection.response.create(model="sandbox-echo", input=text, store=False, **previous)
            while (event := connection.recv()).type != "response.completed":
                assert event.type != "error", event
            previous = {"previous_response_id": event.response.id}
    assert gateway.get("/readyz")[0] == 200 and "Traceback" not in gateway.log()
