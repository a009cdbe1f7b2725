"""The resources that unauthenticated callers may use, through the whole gateway and over raw sockets."""

import gzip
import json
import socket
import time
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from support.fleet import wait_until
from support.gateways import GatewayProcess
from support.spending import query

MEGABYTE = 1 << 20
LONG = 32 * MEGABYTE
CHAT = {"model": "sandbox-echo", "messages": [{"role": "user", "content": "hello"}]}


@pytest.fixture(params=["true", "false"], ids=["express", "flask"], scope="module")
def running(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[GatewayProcess]:
    """One worker, by both lanes."""
    process = GatewayProcess(
        tmp_path_factory.mktemp("edge") / "data",
        GATEWAY_SERVER_EXPRESS_LANE=request.param,
        GATEWAY_SERVER_ORGANIZATION_BODIES_MB="3",
        GATEWAY_SERVER_BODIES_MB="5",
        GATEWAY_METRICS_TOKEN="scrape-me",
        GATEWAY_ALLOWED_HOSTS="gateway,127.0.0.1",
        GATEWAY_SERVER_HEAD_TIMEOUT_S="1",
        GATEWAY_SERVER_ANSWER_STALL_S="1",
    )
    yield process.start()
    process.discard()


@pytest.fixture(params=["true", "false"], ids=["express", "flask"])
def roomy(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[GatewayProcess]:
    """A worker with the usual room for bodies and for what they become in memory, by both lanes."""
    process = GatewayProcess(
        tmp_path / "data", GATEWAY_SERVER_EXPRESS_LANE=request.param, GATEWAY_METRICS_TOKEN="scrape-me"
    )
    yield process.start()
    process.discard()


@pytest.fixture
def connect(running: GatewayProcess) -> Iterator[Callable[[], socket.socket]]:
    opened: list[socket.socket] = []

    def make() -> socket.socket:
        opened.append(socket.create_connection(("127.0.0.1", running.port), timeout=10))
        return opened[-1]

    yield make
    for connection in opened:
        connection.close()


def head(path: str, length: int, *lines: str) -> bytes:
    more = "".join(f"{line}\r\n" for line in (*lines, f"Content-Length: {length}"))
    return f"POST {path} HTTP/1.1\r\nHost: gateway\r\nContent-Type: application/json\r\n{more}\r\n".encode()


def figure(running: GatewayProcess, name: str) -> float:
    """One of the gauges of /metrics."""
    request = urllib.request.Request(f"{running.address}/metrics", headers={"Authorization": "Bearer scrape-me"})
    with urllib.request.urlopen(request, timeout=10) as answer:
        lines = answer.read().decode().splitlines()
    return next(float(line.split()[1]) for line in lines if line.startswith(f"llmgateway_{name} "))


def reply(caller: socket.socket) -> tuple[int, dict[str, str], bytes]:
    data = b""
    while b"\r\n\r\n" not in data:
        piece = caller.recv(65536)
        assert piece, data
        data += piece
    top, _, body = data.partition(b"\r\n\r\n")
    lines = top.decode().split("\r\n")
    headers = {name.lower(): value for name, _, value in (line.partition(": ") for line in lines[1:])}
    while len(body) < int(headers["content-length"]):
        body += caller.recv(65536)
    return int(lines[0].split()[1]), headers, body


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/messages", "/chat/completions", "/orgs", "/nothing"])
def test_a_long_body_without_a_key_is_refused_before_it_is_sent(running, connect, path) -> None:
    for header in ("X-Nothing: 1", "Authorization: Bearer llmgtwy_wrong-wrong-wrong", "Expect: 100-continue"):
        caller = connect()
        caller.sendall(head(path, LONG, header))
        status, headers, body = reply(caller)
        assert (status, headers["connection"]) == (401, "close")
        error = json.loads(body)["error"] if path not in ("/orgs",) else json.loads(body)
        assert ("authentication_error" in body.decode()) == (path == "/v1/messages") and error
        assert headers["x-request-id"]


def test_a_caller_that_sends_on_reads_the_refusal_and_can_call_again(running, connect) -> None:
    caller = connect()
    caller.sendall(head("/v1/chat/completions", 2 * MEGABYTE) + bytes(2 * MEGABYTE))
    assert reply(caller)[0] == 401
    assert running.post("/v1/chat/completions", CHAT)[0] == 200


def test_nothing_is_unpacked_for_who_has_no_key(running, connect) -> None:
    members = gzip.compress(b"") * 500
    caller = connect()
    caller.sendall(head("/v1/chat/completions", len(members), "Content-Encoding: gzip") + members)
    assert reply(caller)[0] == 401
    caller = connect()
    key = f"Authorization: Bearer {running.key}"
    caller.sendall(head("/v1/chat/completions", len(members), "Content-Encoding: gzip", key) + members)
    status, headers, body = reply(caller)
    assert status == 400 and b"members" in body and "connection" not in headers
    packed = gzip.compress(json.dumps(CHAT).encode())
    caller.sendall(head("/v1/chat/completions", len(packed), "Content-Encoding: gzip", key) + packed)
    assert reply(caller)[0] == 200


def test_bodies_under_way_are_bounded_for_an_organization_and_given_back(running, connect) -> None:
    key = f"Authorization: Bearer {running.key}"
    slow = [connect() for _ in range(2)]
    for caller in slow:
        caller.sendall(head("/v1/chat/completions", MEGABYTE * 4 // 3, key))
    time.sleep(0.3)
    caller = connect()
    caller.sendall(head("/v1/chat/completions", MEGABYTE, key))
    status, headers, body = reply(caller)
    assert (status, headers["retry-after"], json.loads(body)["error"]["code"]) == (529, "1", "overloaded")
    assert running.post("/v1/chat/completions", CHAT)[0] == 200
    for caller in slow:
        caller.close()
    time.sleep(0.3)
    # Its bytes, and the text that it becomes, fit into the 3 MB.
    long = CHAT | {"messages": [{"role": "user", "content": "a " * (MEGABYTE // 4)}]}
    assert running.post("/v1/chat/completions", long)[0] in (200, 400)


@pytest.mark.parametrize("first_bytes", [b"POST /v1/chat", head("/v1/chat/completions", 9000)])
def test_a_request_that_trickles_is_answered_408(running, connect, first_bytes) -> None:
    caller = connect()
    caller.sendall(first_bytes)
    caller.settimeout(0.2)
    for _ in range(40):
        try:
            data = caller.recv(65536)
        except TimeoutError:
            caller.sendall(b"a")
            continue
        assert b" 408 " in data
        return
    raise AssertionError("a byte now and then kept the request alive")


@pytest.mark.parametrize(
    ("length", "keyed", "status", "kind"),
    [
        (9000, True, 408, "timeout_error"),
        (9000, False, 408, "timeout_error"),
        (4 * LONG, True, 413, "request_too_large"),
        (LONG, False, 401, "authentication_error"),
    ],
)
def test_a_refusal_before_the_body_speaks_the_dialect_of_its_path_to_any_page(
    running, connect, length, keyed, status, kind
) -> None:
    key = [f"Authorization: Bearer {running.key}"] if keyed else []
    caller = connect()
    caller.sendall(head("/v1/messages", length, "Origin: https://page.example", *key))
    found, headers, body = reply(caller)
    error = json.loads(body)
    assert (found, error["type"], error["error"]["type"]) == (status, "error", kind)
    assert headers["access-control-allow-origin"] == "*" and headers["x-request-id"]


def test_heads_and_short_bodies_that_stop_halfway_count_among_the_bytes_of_bodies(running, connect) -> None:
    """All unknown callers together may hold no more bytes than one organization: here 3 MB."""
    partial_head = b"GET / HTTP/1.1\r\nHost: gateway\r\nX-Long: " + b"a" * 60_000
    callers = [connect() for _ in range(60)]
    for caller in callers:
        caller.sendall(partial_head)
    time.sleep(0.3)
    assert 2 * MEGABYTE < figure(running, "bodies_bytes") < 3.1 * MEGABYTE
    for caller in callers:
        caller.setblocking(False)
    answered = [caller for caller in callers if _is_answered(caller, b" 529 ")]
    assert 5 < len(answered) < 30
    assert running.post("/v1/chat/completions", CHAT)[0] == 200
    for caller in callers:
        caller.close()
    time.sleep(0.3)
    short = connect()
    short.sendall(head("/v1/chat/completions", 16_000) + b"{")
    wait_until(lambda: figure(running, "bodies_bytes") == 16_000)
    short.close()
    wait_until(lambda: figure(running, "bodies_bytes") == 0)


def _is_answered(caller: socket.socket, status: bytes) -> bool:
    try:
        return status in caller.recv(4096)
    except BlockingIOError:
        return False


def test_callers_without_a_key_hold_no_memory(running, connect) -> None:
    before = figure(running, "resident_bytes")
    callers = [connect() for _ in range(20)]
    for caller in callers:
        caller.sendall(head("/v1/chat/completions", LONG))
        caller.settimeout(5)
    for caller in callers:
        try:
            for _ in range(4):
                caller.sendall(bytes(MEGABYTE))
        except OSError:
            continue
    assert figure(running, "bodies_bytes") == 0
    assert figure(running, "resident_bytes") - before < 30 * MEGABYTE
    assert all(reply(caller)[0] == 401 for caller in callers)


def test_sixty_thousand_empty_members_do_not_block_the_event_loop(running, connect) -> None:
    members = gzip.compress(b"") * 60_000
    for header in ("X-Nothing: 1", f"Authorization: Bearer {running.key}"):
        caller = connect()
        caller.sendall(head("/v1/chat/completions", len(members), "Content-Encoding: gzip", header) + members)
        assert reply(caller)[0] == (400 if "Bearer" in header else 401)
    # By the watchdog's own figure: CPU time in one turn of the loop. It was 7 seconds.
    assert figure(running, "loop_busy_seconds") < 0.5


def test_under_another_name_nothing_is_answered_but_probes(running, connect) -> None:
    key = f"Authorization: Bearer {running.key}"
    body = json.dumps(CHAT).encode()
    for _ in range(3):
        caller = connect()
        wire = head("/v1/chat/completions", len(body), key).replace(b"Host: gateway", b"Host: evil.example")
        caller.sendall(wire + body)
        status, _, answer = reply(caller)
        assert status == 421 and json.loads(answer)["error"]["code"] == "host_not_allowed"
    caller = connect()
    caller.sendall(b"GET /readyz HTTP/1.1\r\nHost: 10.0.0.7\r\n\r\n")
    assert reply(caller)[0] == 200


@pytest.mark.parametrize("path", ["/healthz", "/v1/models", "/nothing", "/console/login", "/v1/chat/completions"])
def test_every_answer_forbids_guessing_its_type_and_over_https_plain_http(running, connect, path) -> None:
    for header, secure in (("X-Nothing: 1", False), ("X-Forwarded-Proto: https", True)):
        caller = connect()
        caller.sendall(f"GET {path} HTTP/1.1\r\nHost: gateway\r\n{header}\r\nConnection: close\r\n\r\n".encode())
        top = b""
        while b"\r\n\r\n" not in top:
            top += caller.recv(65536)
        top = top.partition(b"\r\n\r\n")[0].lower()
        assert top.count(b"x-content-type-options: nosniff") == 1
        assert (b"strict-transport-security: max-age=31536000" in top) == secure


def rows(running: GatewayProcess) -> list[tuple]:
    return query(running, "SELECT request, finish, error FROM usage ORDER BY at")


@pytest.mark.parametrize("reads", [0, 40])
def test_a_stream_to_a_caller_that_reads_too_slowly_ends_and_is_settled_once(running, reads) -> None:
    """With a window as small as the system gives, so that little lies between the caller and the gateway."""
    before = len(rows(running))
    slow = socket.socket()
    slow.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1024)
    slow.settimeout(10)
    slow.connect(("127.0.0.1", running.port))
    body = CHAT | {
        "model": "sandbox",
        "stream": True,
        "max_tokens": 16_000,
        "messages": [{"role": "user", "content": "[[sandbox: tokens=16000]] Go."}],
    }
    wire = json.dumps(body).encode()
    slow.sendall(head("/v1/chat/completions", len(wire), f"Authorization: Bearer {running.key}") + wire)
    ended = False
    for _ in range(100):
        time.sleep(0.1)
        if reads:
            try:
                ended = not slow.recv(reads)
            except OSError:
                ended = True
        if ended or len(rows(running)) > before:
            break
    found = rows(running)
    assert len(found) == before + 1 and found[-1][1] == "client_disconnect", found[before:]
    time.sleep(0.5)
    assert rows(running) == found
    slow.close()
    assert running.post("/v1/chat/completions", CHAT)[0] == 200


def test_large_bodies_of_every_surface_do_not_block_the_event_loop(roomy) -> None:
    """By the watchdog's own figure: CPU time in one turn of the loop, of which a beat of 50 ms is no fault."""
    talk = [{"role": ("user", "assistant")[n % 2], "content": "x"} for n in range(19_999)]
    parts = [{"role": "user", "content": [{"type": "text", "text": "x"}] * 60_000}]
    bodies = {
        "/v1/chat/completions": {"messages": talk, "frequency_penalty": 1},
        "/v1/messages": {"messages": parts, "max_tokens": 10},
        "/v1/responses": {"input": talk},
        "/v1/responses/compact": {"input": talk},
        "/v1/completions": {"prompt": "x" * 2_000_000, "echo": True},
        "/v1/messages/count_tokens": {"messages": parts},
    }
    for path, body in bodies.items():
        assert roomy.post(path, {"model": "sandbox-echo", **body}, timeout=60)[0] in (200, 400), path
    assert figure(roomy, "loop_busy_seconds") < 0.15
