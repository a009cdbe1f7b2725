"""Kill -9 in the middle of every operation beside chat: one row each, in the operation's own unit, nothing twice."""

import json
import socket

import gevent
import httpx
import pytest
from fakes.upstream import FakeUpstream
from support.gateways import GatewayProcess, Start
from support.spending import BESIDE_CHAT as PATHS
from support.spending import TOKEN_NUSD, at_once, query, reserved_nusd, sent_to, until

pytestmark = pytest.mark.extended

ROWS = "SELECT label, finish, cost_nusd, input, extra FROM usage"
# Unit and count that each operation is billed for, at 0.03 USD; all others are billed for input tokens.
UNITS = {
    "/v1/audio/speech": ("characters", 100),
    "/v1/audio/transcriptions": ("audio_ms", 1000),
    "/v1/audio/translations": ("audio_ms", 1000),
    "/v1/images/edits": ("images", 1),
    "/v1/images/generations": ("images", 1),
    "/v1/ocr": ("pages", 1),
}
HALF = "half"


def call(gateway: GatewayProcess, path: str, prompt: str) -> httpx.Response | None:
    """One request under the key of its path; None where its connection broke."""
    headers = {"Authorization": f"Bearer {gateway.key}", "Idempotency-Key": path, "x-request-id": path}
    with httpx.Client(timeout=90) as http:
        try:
            return http.post(gateway.address + path, headers=headers, **sent_to(path, prompt))
        except httpx.TransportError:
            return None


def code_of(answer: httpx.Response) -> str:
    """Return the code of an error, which Cohere's format has at the top."""
    body = answer.json()
    return body.get("error", body)["code"]


def begin_upload(gateway: GatewayProcess) -> socket.socket:
    """Send the first half of a form; the second half never follows."""
    form = httpx.Request("POST", gateway.address, **sent_to("/v1/audio/transcriptions", "mark:half"))
    body = form.read()
    head = (
        f"POST /v1/audio/transcriptions HTTP/1.1\r\nHost: gateway\r\nAuthorization: Bearer {gateway.key}\r\n"
        f"x-request-id: {HALF}\r\nContent-Type: {form.headers['content-type']}\r\nContent-Length: {len(body)}\r\n\r\n"
    )
    connection = socket.create_connection(("127.0.0.1", gateway.port), timeout=30)
    connection.sendall(head.encode() + body[: len(body) // 2])
    return connection


def test_a_killed_operation_is_billed_once_in_its_own_unit_and_not_done_again(start: Start, mint: FakeUpstream) -> None:
    gateway = start(workers=2, GATEWAY_BOOTSTRAP_CREDITS_USD="1000")
    # Sound breaks off in the middle, all others before their answer.
    prompts = {path: f"mark:{path} " + ("gap:60" if path == "/v1/audio/speech" else "wait:60") for path in PATHS}
    asking = gevent.spawn(at_once, len(PATHS), lambda number: call(gateway, PATHS[number], prompts[PATHS[number]]))
    with begin_upload(gateway):
        assert until(lambda: set(mint.marks()) == set(PATHS))
        gateway.kill()
    asking.join()
    assert [one.status_code for one in asking.value if one is not None] == []
    gateway.start()
    assert until(lambda: len(query(gateway, ROWS)) == len(PATHS) and reserved_nusd(gateway) == 0)
    for label, finish, cost, tokens, extra in query(gateway, ROWS):
        unit, count = UNITS.get(label, ("", 0))
        assert finish == "interrupted"
        if unit:
            assert (json.loads(extra)["units"][unit], cost) == (count, 100 * TOKEN_NUSD), label
        else:
            assert 0 < cost == tokens * TOKEN_NUSD, label
    results = [call(gateway, path, prompts[path]) for path in PATHS]
    assert [(one.status_code, code_of(one)) for one in results] == [(500, "interrupted")] * len(PATHS)
    assert sorted(mint.marks()) == PATHS
    assert {label for label, *_ in query(gateway, ROWS)} == set(PATHS)
    assert query(gateway, "SELECT count(*) FROM lease WHERE granted_nusd > spent_nusd") == [(0,)]
    assert "The books agree." in gateway.manage("doctor")
