"""Realtime sessions through a real server: the official SDK as caller, a strict fake as provider, exact books."""

import base64
import contextlib
import json
import os
import re
import socket
import sqlite3
import struct
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import gevent
import openai
import pytest
import websockets
from fakes.realtime import USAGE_NUSD, Answer, FakeRealtime
from support.gateways import GatewayProcess
from websockets.sync.client import connect

from gateway.metering.usage_table import raw_id
from gateway.money import format_usd

MODEL = "gpt-realtime"
TEXT = {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "Hello"}]}
SOUND = base64.b64encode(bytes(4800)).decode()


@pytest.fixture(scope="module")
def provider() -> Iterator[FakeRealtime]:
    with FakeRealtime() as fake:
        yield fake


@pytest.fixture
def fake(provider: FakeRealtime) -> FakeRealtime:
    """The strict fake, with no sessions and nothing scripted."""
    provider.reset()
    return provider


def environment(provider: FakeRealtime) -> dict[str, str]:
    return {
        "LLM_OPENAI_API_KEY": "sk-upstream",
        "LLM_OPENAI_BASE_URL": provider.url,
        "GATEWAY_REALTIME_KEY_SESSIONS": "2",
        "GATEWAY_SERVER_ORGANIZATION_BODIES_MB": "24",
        "GATEWAY_LOG_REQUESTS": "json",
    }


@pytest.fixture(scope="module")
def shared(provider: FakeRealtime, tmp_path_factory: pytest.TempPathFactory) -> Iterator[GatewayProcess]:
    gateway = GatewayProcess(tmp_path_factory.mktemp("realtime") / "data", **environment(provider)).start()
    yield gateway
    gateway.discard()


@pytest.fixture
def gateway(shared: GatewayProcess, fake: FakeRealtime) -> GatewayProcess:
    return shared


@pytest.fixture
def key(gateway: GatewayProcess) -> tuple[str, str]:
    """Id and token of a key of the test's own."""
    return make_key(gateway)


def make_key(gateway: GatewayProcess) -> tuple[str, str]:
    output = gateway.manage("keys", "create", "--description", "realtime")
    return re.search(r"key_[0-9a-f]{32}", output)[0], re.search(r"llmgtwy_[\w-]{40}", output)[0]


@contextlib.contextmanager
def session(gateway: GatewayProcess, key: str, **query: Any) -> Iterator[Any]:
    """A session by the official SDK, after its first event."""
    client = openai.OpenAI(base_url=gateway.url, api_key=key, max_retries=0)
    with client.realtime.connect(**{"model": MODEL} | query) as connection:
        assert connection.recv().type == "session.created"
        yield connection


def until(connection: Any, kind: str) -> Any:
    """The first event of a type, and nothing after it."""
    while (event := connection.recv()).type != kind:
        assert event.type != "error", event
    return event


def respond(connection: Any) -> Any:
    """One turn of text to its end."""
    connection.conversation.item.create(item=TEXT)
    connection.response.create(response={"output_modalities": ["text"]})
    return until(connection, "response.done")


def rows(gateway: GatewayProcess, key_id: str) -> list[tuple]:
    """(operation, model, finish, n$, basis) of a key's usage, oldest first, as it is in the store now."""
    with sqlite3.connect(gateway.data / "gateway.db", timeout=10) as database:
        sql = "SELECT operation, served, finish, cost_nusd, basis FROM usage WHERE api_key = ? ORDER BY request"
        return database.execute(sql, (raw_id(key_id),)).fetchall()


def reserved(gateway: GatewayProcess) -> int:
    with sqlite3.connect(gateway.data / "gateway.db", timeout=10) as database:
        return database.execute("SELECT coalesce(sum(granted_nusd - spent_nusd), 0) FROM lease").fetchone()[0]


def wait(found: Callable[[], Any], seconds: float = 10) -> Any:
    end = time.monotonic() + seconds
    while not (value := found()) and time.monotonic() < end:
        gevent.sleep(0.02)
    return value


def lines_of(gateway: GatewayProcess, key_id: str) -> list[dict[str, Any]]:
    """The request lines of a key's requests."""
    return [json.loads(line) for line in gateway.log().splitlines() if line.startswith("{") and key_id in line]


def handshake_of(query: str, *headers: str) -> bytes:
    """Return the bytes of a handshake."""
    lines = [
        f"GET /v1/realtime{query} HTTP/1.1",
        "Host: gateway",
        "Upgrade: websocket",
        "Connection: Upgrade",
        "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==",
        "Sec-WebSocket-Version: 13",
        *headers,
    ]
    return "\r\n".join([*lines, "", ""]).encode()


def handshake(gateway: GatewayProcess, query: str, *headers: str) -> tuple[int, str, socket.socket]:
    """Status and whole answer of a handshake written by hand, and its connection."""
    connection = socket.create_connection(("127.0.0.1", gateway.port), timeout=10)
    connection.sendall(handshake_of(query, *headers))
    answer = connection.recv(65_536).decode("latin-1")
    length = re.search(r"content-length: (\d+)", answer, re.IGNORECASE)
    while length and len(answer) - answer.index("\r\n\r\n") - 4 < int(length[1]):
        answer += connection.recv(65_536).decode("latin-1")
    return int(answer.split()[1]), answer, connection


def refusal(gateway: GatewayProcess, query: str, *headers: str) -> tuple[int, str]:
    status, answer, connection = handshake(gateway, query, *headers)
    connection.close()
    return status, json.loads(answer[answer.index("{") : answer.rindex("}") + 1])["error"]["code"]


def test_each_response_is_durable_and_exact_before_its_end_is_passed_on(gateway, fake, key) -> None:
    with session(gateway, key[1]) as connection:
        for turn in range(3):
            done = respond(connection)
            assert done.response.usage.output_tokens == 100
            assert rows(gateway, key[0]) == [("realtime", MODEL, "stop", USAGE_NUSD, 0)] * (turn + 1)
    recorded = fake.last
    assert (recorded.path, recorded.query) == ("/v1/realtime", {"model": [MODEL]})
    assert recorded.headers["authorization"] == "Bearer sk-upstream" and key[1] not in str(recorded.headers)
    assert recorded.problems == [] and len(recorded.named("response.create")) == 3
    lines = wait(lambda: found if len(found := lines_of(gateway, key[0])) == 4 else None)
    assert [line["operation"] for line in lines] == ["GET /v1/realtime (response)"] * 3 + ["GET /v1/realtime"]
    assert [line.get("cost_usd") for line in lines[:3]] == [format_usd(USAGE_NUSD)] * 3 and lines[3]["status"] == 101


def test_a_browser_comes_in_by_a_client_secret_and_the_server_answers_the_subprotocol(gateway, fake, key) -> None:
    body = {
        "session": {
            "type": "realtime",
            "model": MODEL,
            "instructions": "Be brief.",
            "audio": {"output": {"voice": "marin"}},
        }
    }
    status, secret = gateway.post("/v1/realtime/client_secrets", body, key[1])
    assert status == 200 and secret["value"].startswith("ek_")
    assert secret["session"] == {"type": "realtime", "model": f"openai/{MODEL}"}
    for _ in range(2):  # until its end it may be used again
        offered = ["realtime", f"openai-insecure-api-key.{secret['value']}"]
        address = gateway.url.replace("http", "ws") + "/realtime"
        with connect(address, subprotocols=offered) as browser:
            assert browser.subprotocol == "realtime"
            assert json.loads(browser.recv())["type"] == "session.created"
            assert json.loads(browser.recv())["session"]["instructions"] == "Be brief."
            browser.send(json.dumps({"type": "session.update", "session": {"type": "realtime", "instructions": "No."}}))
            event = json.loads(browser.recv())
            assert (event["type"], event["error"]["code"]) == ("error", "instructions_locked")
            browser.send(json.dumps({"type": "session.update", "session": {"type": "realtime", "model": "gpt-4o"}}))
            assert json.loads(browser.recv())["error"]["code"] == "model_locked"
            browser.send(json.dumps({"type": "response.create"}))
            while json.loads(browser.recv())["type"] != "response.done":
                continue
    assert len(rows(gateway, key[0])) == 2  # billed to the key that made the secret
    opening = fake.last.events[0]
    assert (
        opening["session"]["instructions"] == "Be brief." and opening["session"]["audio"]["output"]["voice"] == "marin"
    )
    protocol = f"Sec-WebSocket-Protocol: openai-insecure-api-key.{secret['value']}"
    assert refusal(gateway, "?model=gpt-realtime-mini", protocol) == (400, "model_locked")
    assert gateway.post("/v1/chat/completions", {"model": "auto", "messages": []}, secret["value"])[0] == 401
    gateway.manage("keys", "roll", key[0])
    assert refusal(gateway, "", protocol) == (401, "invalid_client_secret")


def test_a_handshake_that_cannot_become_a_session_is_answered_in_http(gateway, fake, key) -> None:
    bearer = f"Authorization: Bearer {key[1]}"
    assert refusal(gateway, f"?model={MODEL}") == (401, "invalid_api_key")
    assert refusal(gateway, f"?model={MODEL}", "Sec-WebSocket-Protocol: realtime") == (401, "invalid_api_key")
    assert refusal(gateway, f"?model={MODEL}", "Sec-WebSocket-Protocol: openai-insecure-api-key.ek_no") == (
        401,
        "invalid_client_secret",
    )
    for name in ("token", "api_key", "client_secret"):
        assert refusal(gateway, f"?model={MODEL}&{name}={key[1]}", bearer) == (400, "credential_in_query")
    assert refusal(gateway, "?model=no-such-model", bearer) == (400, "model_not_found")
    assert refusal(gateway, "?model=whisper-1", bearer) == (400, "model_not_supported")
    assert refusal(gateway, "", bearer) == (400, "invalid_parameters")
    assert json.loads(gateway.get(f"/v1/realtime?model={MODEL}")[1])["error"]["code"] == "websocket_required"
    assert fake.sessions == []
    fake.refusal = 503
    assert refusal(gateway, f"?model={MODEL}", bearer)[0] in (502, 529)
    assert {row[3] for row in wait(lambda: rows(gateway, key[0]))} == {0}


def test_a_caller_who_leaves_during_the_handshake_is_logged_with_the_time_until_then(process) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"http://127.0.0.1:{silent.getsockname()[1]}/v1"
        gateway = process(LLM_OPENAI_API_KEY="sk-x", LLM_OPENAI_BASE_URL=url, GATEWAY_LOG_REQUESTS="json")
        ident, token = make_key(gateway)
        with socket.create_connection(("127.0.0.1", gateway.port)) as connection:
            connection.sendall(handshake_of(f"?model={MODEL}", f"Authorization: Bearer {token}"))
            upstream, _ = silent.accept()
        (line,) = wait(lambda: lines_of(gateway, ident))
        upstream.close()
    assert line["status"] == 499 and 0 <= line["provider_ms"] <= line["duration_ms"]


def test_a_caller_who_leaves_in_the_middle_of_a_response_pays_what_it_cost(gateway, fake, key) -> None:
    fake.answers = [Answer(holds=True)]
    with session(gateway, key[1]) as connection:
        connection.response.create()
        until(connection, "response.output_text.delta")
        connection._connection.socket.close()  # without a word
    assert wait(lambda: rows(gateway, key[0])) == [("realtime", MODEL, "cancelled", USAGE_NUSD, 0)]
    assert fake.last.named("response.cancel")


def test_a_provider_that_is_gone_ends_the_session_with_an_error_and_what_came_is_estimated(gateway, fake, key) -> None:
    fake.answers = [Answer(cuts=True)]
    with session(gateway, key[1]) as connection:
        connection.response.create()
        until(connection, "response.output_text.delta")
        assert connection.recv().error.code == "stream_truncated"
        with pytest.raises(websockets.ConnectionClosed) as ended:
            connection.recv()
        assert ended.value.rcvd.code == 1011
    ((operation, model, finish, cost, basis),) = wait(lambda: rows(gateway, key[0]))
    assert (operation, model, finish) == ("realtime", MODEL, "error") and 0 < cost < USAGE_NUSD and basis == 2


def test_a_cancelled_response_is_billed_and_one_that_failed_by_what_was_delivered(gateway, fake, key) -> None:
    fake.answers = [Answer(holds=True), Answer(status="failed", usage=None), Answer(status="incomplete")]
    with session(gateway, key[1]) as connection:
        connection.response.create()
        until(connection, "response.output_text.delta")
        connection.response.cancel()
        assert until(connection, "response.done").response.status == "cancelled"
        assert respond(connection).response.status == "failed"
        assert respond(connection).response.status == "incomplete"
    cancelled, failed, cut = [(row[2], row[3]) for row in rows(gateway, key[0])]
    assert cancelled == ("cancelled", USAGE_NUSD) and cut == ("length", USAGE_NUSD)
    assert failed[0] == "error" and 0 < failed[1] < USAGE_NUSD


def test_a_budget_that_ends_stops_the_next_response_and_the_session(gateway, fake, key) -> None:
    gateway.manage("limits", "set", key[0], "--total", "0.33")  # of which one response may cost some 0.3
    with session(gateway, key[1]) as connection:
        event = None
        while event is None or event.type == "response.done":
            connection.response.create()
            while (event := connection.recv()).type not in ("error", "response.done"):
                continue
        assert event.error.code == "key_limit_reached"
        with pytest.raises(websockets.ConnectionClosed) as ended:
            connection.recv()
        assert ended.value.rcvd.code == 1008
    assert 1 <= len(fake.last.named("response.create")) == len(rows(gateway, key[0])) < 5
    gateway.manage("limits", "set", key[0], "--total", "0.1")
    assert refusal(gateway, f"?model={MODEL}", f"Authorization: Bearer {key[1]}") == (402, "key_limit_reached")
    assert len(fake.sessions) == 1


def test_a_key_has_so_many_sessions_at_once_and_no_more(gateway, fake, key) -> None:
    bearer = f"Authorization: Bearer {key[1]}"
    with session(gateway, key[1]), session(gateway, key[1]):
        assert refusal(gateway, f"?model={MODEL}", bearer) == (429, "too_many_sessions")
    assert wait(lambda: handshake(gateway, f"?model={MODEL}", bearer)[0] == 101)


def test_a_revoked_key_ends_its_session(gateway, fake, key) -> None:
    with session(gateway, key[1]) as connection:
        gateway.manage("keys", "deactivate", key[0])
        assert connection.recv().error.code == "invalid_api_key"
        with pytest.raises(websockets.ConnectionClosed) as ended:
            connection.recv()
        assert ended.value.rcvd.code == 1008
    assert wait(lambda: fake.last.code is not None)


def test_invalid_events_end_no_session(gateway, fake, key) -> None:
    with session(gateway, key[1]) as connection:
        raw = connection._connection
        for text, code in (
            ("no JSON", "invalid_json"),
            ("[1]", "invalid_json"),
            ("[" * 5000, "invalid_json"),
            ('{"type": "response.steal"}', "unknown_event"),
            ('{"type": "session.update", "session": {"tools": [{"type": "mcp"}]}}', "tool_type_not_supported"),
            ('{"type": "session.update", "session": 5}', "invalid_event"),
        ):
            raw.send(text)
            assert connection.recv().error.code == code
        raw.send(
            one
            for one in json.dumps(
                {"type": "session.update", "session": {"type": "realtime", "instructions": "x" * 900}}
            )
        )
        assert until(connection, "session.updated").session.instructions == "x" * 900
        for _ in range(1000):
            connection.input_audio_buffer.append(audio=SOUND)
        respond(connection)
        raw.send(b"binary")
        with pytest.raises(websockets.ConnectionClosed) as ended:
            connection.recv()
        assert ended.value.rcvd.code == 1003
    assert len(fake.last.named("input_audio_buffer.append")) == 1000 and fake.last.problems == []


def test_a_message_of_a_hundred_megabytes_is_refused_long_before_its_end(gateway, fake, key) -> None:
    (worker,) = gateway.workers()
    before = memory_mb(worker)
    with session(gateway, key[1]) as connection:
        raw = connection._connection
        with pytest.raises(websockets.ConnectionClosed):
            raw.send("x" * (100 << 20))
            connection.recv()
        assert raw.protocol.close_rcvd is None or raw.protocol.close_rcvd.code == 1009
    assert memory_mb(worker) - before < 150
    assert fake.last.events == []


def test_long_messages_count_among_the_bodies_of_their_organization(gateway, fake, key) -> None:
    part = struct.pack("!BBQ", 0x01, 0xFF, 15 << 20) + b"\0\0\0\0" + b'{"a": "' + b"x" * ((15 << 20) - 7)
    end = struct.pack("!BB", 0x80, 0x80 | 2) + b'\0\0\0\0"}'
    bearer = f"Authorization: Bearer {key[1]}"
    first, second = (handshake(gateway, f"?model={MODEL}", bearer)[2] for _ in range(2))
    first.sendall(part)
    first.sendall(b"\x89\x80\0\0\0\0")
    received = b""
    while b"\x8a\x00" not in received:  # the answer to the ping: all before it was read
        received += first.recv(65_536)
    with contextlib.suppress(OSError):
        second.sendall(part)
    received = b""
    with contextlib.suppress(OSError):
        while piece := second.recv(65_536):
            received += piece
    assert struct.pack("!H", 1013) + b"Your organization is sending or receiving too many" in received
    second.close()
    first.sendall(end)
    received = b""
    while b"unknown_event" not in received:
        received += first.recv(65_536)
    third = handshake(gateway, f"?model={MODEL}", bearer)[2]
    third.sendall(part + end)
    received = b""
    while b"unknown_event" not in received:
        received += third.recv(65_536)
    first.close()
    third.close()


def test_a_caller_who_reads_nothing_fills_no_memory_and_pays_what_it_cost(gateway, fake, key) -> None:
    (worker,) = gateway.workers()
    before = memory_mb(worker)
    fake.answers = [Answer(text="x" * 65_536, pieces=1_000)]
    bearer = f"Authorization: Bearer {key[1]}"
    _, _, connection = handshake(gateway, f"?model={MODEL}", bearer)
    connection.sendall(b"\x81\x9b\0\0\0\0" + b'{"type": "response.create"}')
    assert wait(lambda: fake.last.named("response.create"))
    held = max(memory_mb(worker) for _ in range(20) if gevent.sleep(0.01) is None)
    assert held - before < 30
    connection.close()
    assert wait(lambda: rows(gateway, key[0])) == [("realtime", MODEL, "stop", USAGE_NUSD, 0)]


def memory_mb(pid: int) -> float:
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") / (1 << 20)


def test_transcription_is_billed_at_the_price_of_its_model(gateway, fake, key) -> None:
    fake.listens = True  # the provider begins a response without a request
    with session(gateway, key[1]) as connection:
        for model in ("whisper-1", "gpt-4o-transcribe"):
            sound = {"input": {"transcription": {"model": model}, "turn_detection": {"type": "server_vad"}}}
            connection.session.update(session={"type": "realtime", "audio": sound})
            until(connection, "session.updated")
            connection.input_audio_buffer.append(audio=SOUND)
            until(connection, "response.done")
        connection.session.update(
            session={"type": "realtime", "audio": {"input": {"transcription": {"model": "gpt-5"}}}}
        )
        assert connection.recv().error.code == "transcription_model_not_supported"
    assert sorted(rows(gateway, key[0])) == sorted(
        [
            ("transcriptions", "whisper-1", "stop", 1_000_000, 0),
            ("transcriptions", "gpt-4o-transcribe", "stop", 100 * 6_000 + 20 * 10_000, 0),
            *[("realtime", MODEL, "stop", USAGE_NUSD, 0)] * 2,
        ]
    )


def test_a_session_for_transcripts_alone_gives_no_responses(gateway, fake, key) -> None:
    body = {"session": {"type": "transcription", "audio": {"input": {"transcription": {"model": "whisper-1"}}}}}
    status, secret = gateway.post("/v1/realtime/client_secrets", body, key[1])
    assert status == 200 and secret["session"] == body["session"]
    for token, query in ((secret["value"], {"model": openai.omit}), (key[1], {"model": "whisper-1"})):
        with session(gateway, token, **query, extra_query={"intent": "transcription"}) as connection:
            assert until(connection, "session.updated")
            connection.response.create()
            assert connection.recv().error.code == "response_not_supported"
            sound = {"input": {"transcription": {"model": "gpt-4o-transcribe"}}}
            connection.session.update(session={"type": "transcription", "audio": sound})
            assert connection.recv().error.code == "transcription_model_locked"
            connection.input_audio_buffer.append(audio=SOUND)
            connection.input_audio_buffer.commit()
            until(connection, "conversation.item.input_audio_transcription.completed")
        assert fake.last.query == {"intent": ["transcription"]} and fake.last.problems == []
    assert rows(gateway, key[0]) == [("transcriptions", "whisper-1", "stop", 1_000_000, 0)] * 2


@pytest.mark.parametrize(("requested_s", "granted_s"), [(1, 10), (60, 60), (10_000, 300)])
def test_a_client_secret_lives_ten_seconds_to_five_minutes(gateway, key, requested_s: int, granted_s: int) -> None:
    body = {"session": {"type": "realtime", "model": MODEL}, "expires_after": {"seconds": requested_s}}
    before = int(time.time())
    status, secret = gateway.post("/v1/realtime/client_secrets", body, key[1])
    assert status == 200 and before + granted_s <= secret["expires_at"] <= time.time() + granted_s + 1


def test_a_client_secret_is_refused_for_what_no_session_could_be(gateway, key) -> None:
    def refused(**session: Any) -> tuple[int, str]:
        body = {"session": {"type": "realtime", "model": MODEL} | session}
        status, answer = gateway.post("/v1/realtime/client_secrets", body, key[1])
        return status, answer["error"]["code"]

    assert refused(model="whisper-1") == (400, "model_not_found") == refused(model="nothing")
    assert refused(type="other") == (400, "invalid_request")
    assert refused(instructions="x" * 70_000) == (400, "instructions_too_large")
    assert refused(audio={"output": {"voice": "bass"}}) == (400, "voice_not_supported")
    unheard = refused(audio={"input": {"transcription": {"model": MODEL}}})
    assert unheard == (400, "transcription_model_not_supported")


@pytest.mark.extended
def test_kill_9_in_a_session_keeps_what_was_done_and_gives_back_what_was_held(fake, process) -> None:
    gateway = process(**environment(fake))
    ident, token = make_key(gateway)
    fake.answers = [Answer(), Answer(holds=True)]
    with pytest.raises(websockets.ConnectionClosed), session(gateway, token) as connection:
        respond(connection)
        connection.response.create()
        until(connection, "response.output_text.delta")
        gateway.kill()
        connection.recv()
    gateway.start()
    done, interrupted = wait(lambda: found if len(found := rows(gateway, ident)) == 2 else None)
    assert done == ("realtime", MODEL, "stop", USAGE_NUSD, 0)
    assert interrupted[2] == "interrupted" and interrupted[3] < USAGE_NUSD
    with session(gateway, token) as connection:  # no place of the dead session is counted for ever
        respond(connection)
    gateway.terminate()
    gateway.wait()
    assert reserved(gateway) == 0
    gateway.manage("doctor")  # which fails where the books do not agree


def test_a_worker_that_ends_lets_a_response_finish_and_closes_the_session_cleanly(fake, process) -> None:
    gateway = process(**environment(fake))
    ident, token = make_key(gateway)
    fake.answers = [Answer(holds=True)]
    with session(gateway, token) as busy, session(gateway, token) as idle:
        busy.response.create()
        until(busy, "response.output_text.delta")
        gateway.terminate()
        with pytest.raises(websockets.ConnectionClosed) as ended:
            idle.recv()
        assert ended.value.rcvd.code == 1001
        busy.response.cancel()
        assert until(busy, "response.done").response.status == "cancelled"
        with pytest.raises(websockets.ConnectionClosed) as ended:
            busy.recv()
        assert ended.value.rcvd.code == 1001
    assert gateway.wait(20) == 0
    assert rows(gateway, ident) == [("realtime", MODEL, "cancelled", USAGE_NUSD, 0)] and reserved(gateway) == 0


def test_a_response_that_outlasts_the_grace_of_a_worker_is_ended_and_paid(fake, process) -> None:
    gateway = process(**environment(fake), GRACEFUL_SHUTDOWN_TIMEOUT="2")
    ident, token = make_key(gateway)
    fake.answers = [Answer(holds=True)]
    with session(gateway, token) as connection:
        connection.response.create()
        until(connection, "response.output_text.delta")
        gateway.terminate()
        with pytest.raises(websockets.ConnectionClosed) as ended:
            connection.recv()
        assert ended.value.rcvd.code == 1001
    assert gateway.wait(20) == 0
    assert rows(gateway, ident) == [("realtime", MODEL, "cancelled", USAGE_NUSD, 0)] and reserved(gateway) == 0
