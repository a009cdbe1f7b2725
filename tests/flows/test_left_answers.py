"""Billing of responses if the caller disconnects early, and of streams that the provider ends early."""

import http.client
import json
import random
import re
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from pathlib import Path
from typing import Any, NamedTuple

import httpx
import pytest
from fakes.upstream import FakeUpstream
from support.gateways import GatewayProcess, free_port
from support.spending import (
    BESIDE_CHAT,
    BODIES,
    GEMINI,
    STREAMED,
    TOKEN_NUSD,
    at_once,
    query,
    say_in_headers,
    sent_to,
    until,
    with_model,
    write_mint,
)
from websockets.sync.client import connect

ROWS = "SELECT finish, basis, input, output, cost_nusd FROM usage"
DRAINED, ESTIMATED = 1, 2  # of metering/models.py
VISIBLE, HIDDEN, PROMPT = 100, 2_000, 50_000
BROKEN = "stream_truncated"
ENDS = ("response.completed", "response.failed", "response.incomplete", "error")
GEMINI_STREAM = "/v1beta/models/mint/coin:streamGenerateContent"
SOCKET = "/v1/responses over a WebSocket"
CALL_NUSD = 100 * TOKEN_NUSD  # of a call of the operations beside chat


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


def send(
    gateway: GatewayProcess, path: str, prompt: str, headers: dict[str, str] | None = None, **more: Any
) -> http.client.HTTPConnection:
    """Send a request without reading its response."""
    connection = http.client.HTTPConnection(gateway.address.removeprefix("http://"), timeout=20)
    body = GEMINI[path](prompt) if path in GEMINI else with_model(path, BODIES[path](prompt), "mint/coin") | more
    sent = {"Authorization": f"Bearer {gateway.key}", "Content-Type": "application/json"} | (headers or {})
    connection.request("POST", path, json.dumps(body), sent | say_in_headers(path, body))
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
    text = httpx.get(f"http://127.0.0.1:{port}/metrics", timeout=60).text
    return float(re.findall(r"^llmgateway_answers_read_on (\S+)", text, re.M)[0])


def the_row(gateway: GatewayProcess, seconds: float = 15) -> tuple[str, int, int, int, int]:
    assert until(lambda: len(query(gateway, ROWS)) == 1, seconds)
    (row,) = query(gateway, ROWS)
    return row


@pytest.mark.parametrize("path", STREAMED)
def test_a_caller_who_leaves_a_stream_pays_what_the_provider_counts(start, path) -> None:
    """The row had an estimate of the text that was read: hidden reasoning and files of the prompt were free."""
    gateway = start()
    prompt = f"gap:0.02 hidden:{HIDDEN} read:{PROMPT}"
    leave(send(gateway, path, prompt, stream=True), b"word")
    cost_nusd = (VISIBLE + HIDDEN) * TOKEN_NUSD
    assert the_row(gateway) == ("client_disconnect", DRAINED, PROMPT, VISIBLE + HIDDEN, cost_nusd)
    assert "The books agree." in gateway.manage("doctor")


def test_a_caller_who_leaves_while_the_provider_is_silent_pays_what_it_counts(start) -> None:
    gateway = start()
    leave(send(gateway, "/v1/chat/completions", f"tokens:5 pause:2 read:{PROMPT}", stream=True), b"word")
    assert the_row(gateway)[1:4] == (DRAINED, PROMPT, 5)


def test_a_caller_who_leaves_a_plain_answer_pays_what_the_provider_counts(start) -> None:
    gateway = start()
    connection = send(gateway, "/v1/chat/completions", f"wait:2 read:{PROMPT}")
    assert until(lambda: gateway.get("/readyz")[0] == 200)
    connection.close()
    assert the_row(gateway)[:4] == ("client_disconnect", DRAINED, PROMPT, VISIBLE)


def test_a_provider_that_stops_billing_is_cancelled_unless_the_answer_is_nearly_complete(start, mint) -> None:
    gateway = start("cancellation = true")
    leave(send(gateway, "/v1/chat/completions", f"tokens:5 pause:1 read:{PROMPT}", stream=True), b"word")
    assert the_row(gateway)[:4] == ("client_disconnect", DRAINED, PROMPT, 5)
    prompt = f"tokens:4000 gap:0.02 read:{PROMPT}"
    leave(send(gateway, "/v1/chat/completions", prompt, stream=True, max_tokens=4000), b"word")
    assert until(lambda: len(query(gateway, ROWS)) == 2)
    finish, basis, _, output, _ = query(gateway, ROWS + " ORDER BY posted_at DESC")[0]
    assert (finish, basis) == ("client_disconnect", ESTIMATED) and 5 <= output < 4000
    assert not mint.calls[-1].usage_sent


def test_an_answer_that_is_read_on_holds_no_concurrency_slot(start) -> None:
    gateway = start()
    [(project,)] = query(gateway, "SELECT id FROM project")
    gateway.manage("rates", "set", "project", project, "concurrency", "1")
    leave(send(gateway, "/v1/chat/completions", "tokens:5 pause:30", stream=True), b"word")

    def admitted() -> bool:
        answer = send(gateway, "/v1/chat/completions", "tokens:5").getresponse()
        answer.read()
        return answer.status == 200

    assert until(admitted) and len(query(gateway, ROWS)) == 1


def test_a_worker_that_shuts_down_waits_for_the_usage_of_answers_left(start) -> None:
    gateway = start()
    leave(send(gateway, "/v1/chat/completions", f"tokens:5 pause:3 read:{PROMPT}", stream=True), b"word")
    gateway.terminate()
    assert gateway.wait() == 0
    assert the_row(gateway)[:4] == ("client_disconnect", DRAINED, PROMPT, 5)


def test_a_worker_whose_grace_period_ends_bills_the_received_part(start) -> None:
    port = free_port()
    gateway = start(SHUTDOWN_GRACE_PERIOD_MS="4000", GATEWAY_METRICS_PORT=str(port))
    leave(send(gateway, "/v1/chat/completions", "tokens:50 pause:60", stream=True), b"word")
    assert until(lambda: read_on(port) == 1)
    gateway.terminate()
    gateway.wait()
    finish, basis, prompt, output, _ = the_row(gateway)
    assert (finish, basis, output) == ("client_disconnect", ESTIMATED, 50) and prompt > 0


def test_a_killed_worker_bills_what_was_delivered_to_a_caller_who_left(start) -> None:
    port = free_port()
    gateway = start(GATEWAY_METRICS_PORT=str(port))
    read = leave(send(gateway, "/v1/chat/completions", "tokens:100 piece:50 pause:60", stream=True), b"wordword")
    delivered = read.count(b"word")
    assert until(lambda: read_on(port) == 1)
    gateway.kill()
    gateway.start()
    finish, basis, _prompt, output, cost_nusd = the_row(gateway)
    assert (finish, basis) == ("interrupted", ESTIMATED) and delivered <= output <= 100
    assert cost_nusd == output * TOKEN_NUSD
    assert "The books agree." in gateway.manage("doctor")


@pytest.mark.extended
@pytest.mark.parametrize("path", STREAMED)
def test_a_killed_worker_bills_what_its_callers_were_reading(start, path) -> None:
    """The row had the prompt alone, while the provider billed everything that it had generated."""
    gateway = start()
    prompt = "tokens:2000 piece:100 gap:0.02 pause:60"
    connection = send(gateway, path, prompt, stream=True, **{limit_of(path): 2000})
    answer, read = connection.getresponse(), b""
    while read.count(b"word") < 1900:
        read += answer.read1(65536)
    gateway.kill()
    connection.close()
    gateway.start()
    finish, basis, _, output, cost_nusd = the_row(gateway)
    assert (finish, basis) == ("interrupted", ESTIMATED) and 1900 // 2 <= output <= 2000
    assert cost_nusd == output * TOKEN_NUSD
    assert "The books agree." in gateway.manage("doctor")


def limit_of(path: str) -> str:
    """Return the name of the output limit in a body."""
    return {"/v1/responses": "max_output_tokens", "/v4/ai/language-model": "maxOutputTokens"}.get(path, "max_tokens")


@pytest.mark.parametrize("path", STREAMED)
def test_a_stream_that_the_provider_cuts_costs_what_was_delivered_and_says_so(start, path) -> None:
    """It was free, although the provider bills the tokens that it made."""
    gateway = start()
    text = send(gateway, path, "cut:4", stream=True).getresponse().read().decode()
    finish, basis, _prompt, output, cost_nusd = the_row(gateway)
    assert (finish, basis, output) == ("error", ESTIMATED, 20) and cost_nusd == output * TOKEN_NUSD
    assert f"is billed: {cost_nusd / 1e9:g} USD" in text


class Case(NamedTuple):
    """A streamed request, the usage that its provider reports, and the pieces after which its caller leaves (None: it
    stays)."""

    path: str
    reports: str
    tokens: int
    hidden: int
    cut: int
    leaves_after: int | None

    @property
    def prompt(self) -> str:
        usage = {"complete": "", "none": "mute:1"}.get(self.reports, f"usage:{self.reports}")
        cut = f"cut:{self.cut}" if self.cut else ""
        return f"tokens:{self.tokens} gap:0.01 hidden:{self.hidden} {usage} {cut}"


MAX_TOKENS = 100  # of output, by the bodies of all dialects


def any_case(chance: random.Random) -> Case:
    tokens = chance.randint(5, MAX_TOKENS)
    pieces = -(-tokens // 5)
    return Case(
        chance.choice((*STREAMED, GEMINI_STREAM, SOCKET)),
        chance.choice(("complete", "complete", "none", "zero", "partial", "absurd")),
        tokens,
        chance.choice((0, 0, 700)),
        chance.randint(1, pieces - 1) if pieces > 1 and chance.random() < 0.25 else 0,
        chance.choice((None, 1, chance.randint(1, pieces), pieces)),
    )


def pieces_of(gateway: GatewayProcess, case: Case, name: str) -> Iterator[bytes]:
    """Send the case and yield what arrives; closing the iterator closes the connection."""
    if case.path == SOCKET:
        address = gateway.address.replace("http", "ws") + "/v1/responses"
        headers = {"Authorization": f"Bearer {gateway.key}", "x-llmgateway-session": name}
        with connect(address, additional_headers=headers) as socket:
            socket.send(
                json.dumps({"type": "response.create", "model": "mint/coin"} | BODIES["/v1/responses"](case.prompt))
            )
            while True:
                event = socket.recv(timeout=60)
                yield event.encode()
                if json.loads(event)["type"] in ENDS:
                    return
    connection = send(gateway, case.path, case.prompt, {"x-llmgateway-session": name}, stream=True)
    try:
        answer = connection.getresponse()
        assert answer.status == 200, answer.read()
        while piece := answer.read1(65536):
            yield piece
    finally:
        connection.close()


def delivered_by(gateway: GatewayProcess, case: Case, name: str) -> int:
    """Send the case, leave when it says so, and return the tokens of text that were received until then."""
    read = b""
    expected = None if case.leaves_after is None else 5 * case.leaves_after
    with closing(pieces_of(gateway, case, name)) as pieces:
        for piece in pieces:
            read += piece
            if expected is not None and read.count(b"word") >= expected:
                break
    # Some dialects repeat the whole text in their last events.
    return min(read.count(b"word"), 5 * case.cut if case.cut else case.tokens)


@pytest.mark.extended
@pytest.mark.parametrize("cancels", [False, True])
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_a_row_is_never_below_what_was_consumed_nor_above_what_was_reserved(start, cancels, seed) -> None:
    """Over all dialects, kinds of reported usage and moments of leaving. A token costs the same wherever it was made,
    and no request reserves more than MAX_TOKENS."""
    gateway = start("cancellation = true" if cancels else "")
    chance = random.Random(seed)
    cases = {f"case-{number}": any_case(chance) for number in range(40)}
    names = list(cases)
    delivered = at_once(len(names), lambda number: delivered_by(gateway, cases[names[number]], names[number]))
    assert until(lambda: len(query(gateway, ROWS)) == len(cases))
    rows = {row[0]: row[1:] for row in query(gateway, ROWS.replace("SELECT", "SELECT session,"))}
    for name, tokens in zip(names, delivered, strict=True):
        case, (_, basis, _, output, cost_nusd) = cases[name], rows[name]
        assert cost_nusd == output * TOKEN_NUSD, (case, rows[name])
        if basis == ESTIMATED:
            assert tokens <= output <= MAX_TOKENS, (case, tokens, rows[name])
        else:
            assert case.reports == "complete" and output == case.tokens + case.hidden, (case, rows[name])
        if case.reports == "complete" and not case.cut and not (cancels and case.leaves_after):
            assert basis != ESTIMATED, (case, rows[name])
    assert "The books agree." in gateway.manage("doctor")


@pytest.mark.parametrize("seed", [1, 2])
def test_operations_beside_chat_cost_the_same_whenever_their_callers_leave(start, mint, seed) -> None:
    """Each is read to its end, because its provider bills all of it. Speech is billed by what was sent to it."""
    gateway = start()
    chance = random.Random(seed)
    cases = {
        f"{path} {number}": path
        for path in (*BESIDE_CHAT, *(one for one in GEMINI if "mbed" in one))
        for number in range(2)
    }

    timeout_s = {name: chance.choice((0.05, 0.3, 0.6, None)) for name in cases}

    def call_and_leave(number: int) -> None:
        name = list(cases)[number]
        after_s = timeout_s[name]
        headers = {"Authorization": f"Bearer {gateway.key}", "x-request-id": name.replace(" ", "-")}
        body = sent_to(cases[name], f"wait:{chance.uniform(0.1, 0.8):.2f}")
        with suppress(httpx.ReadTimeout), httpx.Client(timeout=30) as caller:
            timeout = httpx.Timeout(30, read=after_s or 30)
            caller.post(gateway.address + cases[name], headers=headers, timeout=timeout, **body)

    at_once(len(cases), call_and_leave)
    assert until(lambda: len(query(gateway, "SELECT 1 FROM usage")) == len(mint.calls))
    rows = query(gateway, "SELECT label, cost_nusd, basis FROM usage")
    assert {row for row in rows if row[1] != CALL_NUSD} == set()
    # A caller with a short timeout may disconnect before its call is sent.
    assert {row[0] for row in rows} >= {name.replace(" ", "-") for name in cases if timeout_s[name] is None}
    assert "The books agree." in gateway.manage("doctor")


@pytest.mark.parametrize("streams", [True, False])
def test_a_shared_answer_that_all_callers_leave_is_billed_exactly_and_kept(start, mint, streams) -> None:
    gateway = start()
    [(project,)] = query(gateway, "SELECT id FROM project")
    gateway.manage("projects", "set", project, "--cache")
    prompt = f"tokens:20 gap:0.1 hidden:{HIDDEN} wait:{0 if streams else 2}"
    callers = [send(gateway, "/v1/chat/completions", prompt, stream=streams) for _ in range(2)]
    assert until(lambda: len(mint.calls) == 1)
    for caller in callers:
        if streams:
            leave(caller, b"word")
        caller.close()
    paid = f"SELECT basis, output FROM usage WHERE cost_nusd = {(20 + HIDDEN) * TOKEN_NUSD}"
    assert until(lambda: len(query(gateway, paid)) == 1)
    again = send(gateway, "/v1/chat/completions", prompt, stream=streams).getresponse()
    assert b"word" in again.read() and len(mint.calls) == 1
