"""The money of answers whose callers leave early, and of streams that the provider ends early."""

import http.client
import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from fakes.upstream import FakeUpstream
from support.gateways import GatewayProcess, free_port
from support.spending import BODIES, STREAMED, TOKEN_NUSD, query, say_in_headers, until, with_model, write_mint

ROWS = "SELECT finish, basis, input, output, cost_nusd FROM usage"
DRAINED, ESTIMATED = 1, 2  # of metering/models.py
VISIBLE, HIDDEN, PROMPT = 100, 2_000, 50_000
BROKEN = "stream_truncated"


@pytest.fixture
def mint() -> Iterator[FakeUpstream]:
    with FakeUpstream() as fake:
        yield fake


Start = Callable[..., GatewayProcess]


@pytest.fixture
def start(process: Start, tmp_path: Path, mint: FakeUpstream) -> Start:
    """A factory of gateways at the mint; `more` are lines of the provider's entry."""

    def begin(more: str = "", **environment: str) -> GatewayProcess:
        folder = tmp_path / "catalogue"
        known = write_mint(folder, mint.url)
        entry = folder / "providers" / "mint.toml"
        entry.write_text(f"{more}\n{entry.read_text()}")
        return process(**known, **environment)

    return begin


def ask(gateway: GatewayProcess, path: str, words: str, **more: Any) -> http.client.HTTPConnection:
    """A request whose answer nobody has read yet."""
    connection = http.client.HTTPConnection(gateway.address.removeprefix("http://"), timeout=20)
    body = with_model(path, BODIES[path](words), "mint/coin") | more
    headers = {"Authorization": f"Bearer {gateway.key}", "Content-Type": "application/json"}
    connection.request("POST", path, json.dumps(body), headers | say_in_headers(path, body))
    return connection


def leave(connection: http.client.HTTPConnection, after: bytes) -> bytes:
    """Read until some bytes came, and close the connection."""
    answer, read = connection.getresponse(), b""
    assert answer.status == 200, answer.read()
    while after not in read:
        piece = answer.read1(65536)
        assert piece, read
        read += piece
    connection.close()
    return read


def read_on(port: int) -> float:
    """How many answers are read on, by the gateway's metrics."""
    text = httpx.get(f"http://127.0.0.1:{port}/metrics").text
    return float(re.findall(r"^llmgateway_answers_read_on (\S+)", text, re.M)[0])


def the_row(gateway: GatewayProcess, seconds: float = 15) -> tuple[str, int, int, int, int]:
    assert until(lambda: len(query(gateway, ROWS)) == 1, seconds)
    (row,) = query(gateway, ROWS)
    return row


@pytest.mark.parametrize("path", STREAMED)
def test_a_caller_who_leaves_a_stream_pays_what_the_provider_counts(start, path) -> None:
    """The row had an estimate of the text that was read: hidden reasoning and files of the prompt were free."""
    gateway = start()
    words = f"gap:0.02 hidden:{HIDDEN} read:{PROMPT}"
    leave(ask(gateway, path, words, stream=True), b"word")
    cost_nusd = (VISIBLE + HIDDEN) * TOKEN_NUSD
    assert the_row(gateway) == ("client_disconnect", DRAINED, PROMPT, VISIBLE + HIDDEN, cost_nusd)
    assert "The books agree." in gateway.manage("doctor")


def test_a_caller_who_leaves_while_the_provider_is_silent_pays_what_it_counts(start) -> None:
    gateway = start()
    leave(ask(gateway, "/v1/chat/completions", f"tokens:5 pause:2 read:{PROMPT}", stream=True), b"word")
    assert the_row(gateway)[1:4] == (DRAINED, PROMPT, 5)


def test_a_caller_who_leaves_a_plain_answer_pays_what_the_provider_counts(start) -> None:
    gateway = start()
    connection = ask(gateway, "/v1/chat/completions", f"wait:2 read:{PROMPT}")
    assert until(lambda: gateway.get("/readyz")[0] == 200)
    connection.close()
    assert the_row(gateway)[:4] == ("client_disconnect", DRAINED, PROMPT, VISIBLE)


def test_a_provider_that_stops_billing_is_cancelled_unless_the_answer_is_nearly_complete(start, mint) -> None:
    gateway = start("cancellation = true")
    leave(ask(gateway, "/v1/chat/completions", f"tokens:5 pause:1 read:{PROMPT}", stream=True), b"word")
    assert the_row(gateway)[:4] == ("client_disconnect", DRAINED, PROMPT, 5)
    words = f"tokens:4000 gap:0.02 read:{PROMPT}"
    leave(ask(gateway, "/v1/chat/completions", words, stream=True, max_tokens=4000), b"word")
    assert until(lambda: len(query(gateway, ROWS)) == 2, 15)
    finish, basis, _, output, _ = query(gateway, ROWS + " ORDER BY posted_at DESC")[0]
    assert (finish, basis) == ("client_disconnect", ESTIMATED) and 5 <= output < 4000
    assert not mint.calls[-1].told


def test_an_answer_that_is_read_on_holds_no_concurrency_slot(start) -> None:
    gateway = start()
    [(project,)] = query(gateway, "SELECT id FROM project")
    gateway.manage("rates", "set", "project", project, "concurrency", "1")
    leave(ask(gateway, "/v1/chat/completions", "tokens:5 pause:5", stream=True), b"word")

    def admitted() -> bool:
        answer = ask(gateway, "/v1/chat/completions", "tokens:5").getresponse()
        answer.read()
        return answer.status == 200

    assert until(admitted, 4) and len(query(gateway, ROWS)) == 1


def test_a_worker_that_shuts_down_waits_for_the_usage_of_answers_left(start) -> None:
    gateway = start()
    leave(ask(gateway, "/v1/chat/completions", f"tokens:5 pause:3 read:{PROMPT}", stream=True), b"word")
    gateway.terminate()
    assert gateway.wait() == 0
    assert the_row(gateway)[:4] == ("client_disconnect", DRAINED, PROMPT, 5)


def test_a_worker_whose_grace_period_ends_bills_what_came(start) -> None:
    port = free_port()
    gateway = start(SHUTDOWN_GRACE_PERIOD_MS="4000", GATEWAY_METRICS_PORT=str(port))
    leave(ask(gateway, "/v1/chat/completions", "tokens:50 pause:60", stream=True), b"word")
    assert until(lambda: read_on(port) == 1)
    gateway.terminate()
    gateway.wait()
    finish, basis, prompt, output, _ = the_row(gateway)
    assert (finish, basis, output) == ("client_disconnect", ESTIMATED, 50) and prompt > 0


def test_a_killed_worker_bills_what_was_delivered_to_a_caller_who_left(start) -> None:
    port = free_port()
    gateway = start(GATEWAY_METRICS_PORT=str(port))
    read = leave(ask(gateway, "/v1/chat/completions", "tokens:100 piece:50 pause:60", stream=True), b"wordword")
    delivered = read.count(b"word")
    assert until(lambda: read_on(port) == 1)
    gateway.kill()
    gateway.start()
    finish, basis, prompt, output, cost_nusd = the_row(gateway)
    assert (finish, basis) == ("interrupted", ESTIMATED) and delivered <= output <= 100
    assert cost_nusd == output * TOKEN_NUSD
    assert "The books agree." in gateway.manage("doctor")


@pytest.mark.parametrize("path", STREAMED)
def test_a_stream_that_the_provider_cuts_costs_what_was_delivered_and_says_so(start, path) -> None:
    """It was free, although the provider bills the tokens that it made."""
    gateway = start()
    told = ask(gateway, path, "cut:4", stream=True).getresponse().read().decode()
    finish, basis, prompt, output, cost_nusd = the_row(gateway)
    assert (finish, basis, output) == ("error", ESTIMATED, 20) and cost_nusd == output * TOKEN_NUSD
    assert f"is billed: {cost_nusd / 1e9:g} USD" in told
