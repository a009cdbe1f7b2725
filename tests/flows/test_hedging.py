"""A project that allows a second attempt: the next provider is asked while the first one is silent.

`north` is cheaper and asked first. A prompt of 100 and an answer of 10 tokens cost 110,000 nUSD there, and 220,000 at
`south`.
"""

import json
import socket
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import gevent
import httpx
import pytest
from fakes.openai import Answer, FakeOpenAI
from fakes.otlp import FakeCollector, attributes
from support.gateways import GatewayProcess, LocalGateway, local_gateway
from support.spending import query, reserved_nusd, until
from support.two_providers import write_twins

from gateway.accounts.projects import ProjectChange, update_project
from gateway.billing.reconciliation import doctor

HELLO = [{"role": "user", "content": "Hello"}]
PARTS = [{"role": "user", "content": [{"type": "text", "text": "Hello"}]}]
COUNTS = {"prompt": 100, "completion": 10}
NORTH_NUSD, SOUTH_NUSD = 110_000, 220_000
FAST = Answer("Hello.", **COUNTS)
SLOW = Answer("Hello.", silence_s=2.5, **COUNTS)
HANG = Answer("Too late.", silence_s=30, **COUNTS)
DOWN = Answer(status=500, silence_s=1.5)
WAYS = pytest.mark.parametrize("stream", [False, True], ids=["plain", "stream"])
# A silent attempt is hedged after 1 s: half of this time.
FIRST_BYTE = {"GATEWAY_TIMEOUTS_FIRST_BYTE_S": "2", "GATEWAY_TIMEOUTS_FIRST_BYTE_REASONING_S": "2"}
PLAIN = {"max_tokens": 20}
CLIENT = 3  # the kind of a span


class Row(NamedTuple):
    attempt: int
    provider: str
    finish: str
    error: str | None
    status: int
    cost_nusd: int


@pytest.fixture
def south() -> Iterator[FakeOpenAI]:
    with FakeOpenAI() as fake:
        yield fake


@pytest.fixture
def gateway(
    settings: Callable[..., Any], tmp_path: Path, upstream: FakeOpenAI, south: FakeOpenAI
) -> Iterator[LocalGateway]:
    more = "reasoning = false\n"
    environment = write_twins(tmp_path / "catalogue", upstream.url, south.url, more)
    for name in ("north", "south"):  # providers that bill nothing for a call once it is cancelled
        path = tmp_path / "catalogue" / "providers" / f"{name}.toml"
        path.write_text(f"cancellation = true\nplain_cancellation = true\n{path.read_text()}")
    with local_gateway(settings, **environment, **FIRST_BYTE) as one:
        allow(one)
        yield one


def allow(gateway: LocalGateway, allowed: bool = True) -> None:
    store = gateway.services.store
    change = ProjectChange(settings={"hedging": allowed})
    update_project(store.database, store.control, gateway.project_id, change, actor="test")


def ask(gateway: LocalGateway, stream: bool, **more: Any) -> httpx.Response:
    body = {"model": "twin", "messages": HELLO, "stream": stream, **PLAIN, **more}
    with httpx.Client(timeout=60) as http:
        return http.post(
            f"{gateway.url}/chat/completions", json=body, headers={"Authorization": f"Bearer {gateway.key}"}
        )


def rows_of(gateway: LocalGateway, count: int) -> list[Row]:
    """Return the usage rows, the serving one last, once there are `count`."""
    columns = ", ".join(Row._fields)

    def read() -> list[Row]:
        rows = gateway.services.store.database.query_rows(f"SELECT {columns} FROM usage ORDER BY request, attempt")
        return [Row(*row) for row in rows]

    assert until(lambda: len(read()) == count), read()
    return read()


def check_money(gateway: LocalGateway) -> None:
    """Nothing stays reserved, and the credits that were spent are the cost of the rows."""
    services = gateway.services
    database = services.store.database

    assert until(lambda: services.billing.spending.reserved_nusd() == 0)
    assert until(lambda: services.billing.settlements.intents.open_count() == 0)
    (cost_nusd,) = database.query_row("SELECT SUM(cost_nusd) FROM usage")
    unposted = "(SELECT COALESCE(SUM(spent_nusd), 0) FROM lease WHERE budget = budget.id)"
    sums = f"SELECT SUM(settled_nusd), {unposted} FROM budget WHERE kind = 'credits' AND scope_id = ?"
    settled, spent = database.query_row(sums, (gateway.organization_id,))
    assert settled + spent == cost_nusd
    assert doctor(database) == []


def say_of(answer: httpx.Response) -> str:
    assert answer.status_code == 200 and "Hello." in answer.text, answer.text
    return answer.text


@WAYS
def test_a_provider_that_hangs_is_not_waited_for(gateway, upstream, south, stream) -> None:
    upstream.script(HANG)
    south.script(FAST)
    began = time.monotonic()
    say_of(ask(gateway, stream))
    assert time.monotonic() - began < 10
    loser, winner = rows_of(gateway, 2)
    assert (loser.provider, loser.finish, loser.error, loser.status) == ("north", "superseded", "superseded", 499)
    assert (winner.provider, winner.finish, winner.cost_nusd) == ("south", "stop", SOUTH_NUSD)
    assert loser.cost_nusd > 0  # the estimate of its prompt
    check_money(gateway)


@WAYS
def test_a_first_provider_that_is_only_slow_may_win(gateway, upstream, south, stream) -> None:
    upstream.script(SLOW)
    south.script(HANG)
    say_of(ask(gateway, stream))
    loser, winner = rows_of(gateway, 2)
    assert (winner.provider, winner.error, winner.cost_nusd) == ("north", None, NORTH_NUSD)
    assert (loser.provider, loser.finish) == ("south", "superseded")
    check_money(gateway)


@WAYS
def test_answers_that_come_at_once_are_each_billed_once(gateway, upstream, south, stream) -> None:
    upstream.script(Answer("Hello.", silence_s=2.4, **COUNTS))
    south.script(Answer("Hello.", silence_s=1.2, **COUNTS))
    assert say_of(ask(gateway, stream)).count("Hello.") == 1
    rows = rows_of(gateway, 2)
    assert {row.provider for row in rows} == {"north", "south"}
    assert [row.error for row in rows] == ["superseded", None]
    check_money(gateway)


@WAYS
def test_a_provider_that_bills_cancelled_calls_is_read_on_for_its_usage(
    settings, tmp_path, upstream, south, stream
) -> None:
    environment = write_twins(tmp_path / "catalogue", upstream.url, south.url)
    path = tmp_path / "catalogue" / "providers" / "north.toml"
    path.write_text(f"cancellation = false\n{path.read_text()}")
    with local_gateway(settings, **environment, **FIRST_BYTE) as gateway:
        allow(gateway)
        upstream.script(Answer("Hello.", silence_s=4, **COUNTS))
        south.script(FAST)
        say_of(ask(gateway, stream))
        loser, winner = rows_of(gateway, 2)
        assert (loser.provider, loser.cost_nusd) == ("north", NORTH_NUSD)
        assert (winner.provider, winner.cost_nusd) == ("south", SOUTH_NUSD)
        check_money(gateway)


@WAYS
def test_a_second_attempt_that_fails_leaves_the_first_one(gateway, upstream, south, stream) -> None:
    upstream.script(Answer("Hello.", silence_s=4, **COUNTS))
    south.script(DOWN)
    say_of(ask(gateway, stream))
    failed, winner = rows_of(gateway, 2)
    assert (failed.provider, failed.status, failed.cost_nusd) == ("south", 500, 0)
    assert (winner.provider, winner.cost_nusd) == ("north", NORTH_NUSD)
    check_money(gateway)


@WAYS
def test_a_first_attempt_that_fails_leaves_the_second_one(gateway, upstream, south, stream) -> None:
    upstream.script(DOWN)
    south.script(SLOW)
    say_of(ask(gateway, stream))
    failed, winner = rows_of(gateway, 2)
    assert (failed.provider, failed.status, failed.cost_nusd) == ("north", 500, 0)
    assert (winner.provider, winner.cost_nusd) == ("south", SOUTH_NUSD)
    check_money(gateway)


def test_each_call_keeps_the_span_that_its_provider_was_told(settings, tmp_path, upstream, south) -> None:
    """The first attempt wins, and so its row gets the higher number."""
    environment = write_twins(tmp_path / "catalogue", upstream.url, south.url, "reasoning = false\n")
    upstream.script(SLOW)
    south.script(Answer("Too late.", silence_s=6, **COUNTS))  # the gateway waits for it when it stops
    with FakeCollector() as collector:
        environment |= FIRST_BYTE | {"OTEL_EXPORTER_OTLP_ENDPOINT": collector.address}
        with local_gateway(settings, **environment) as gateway:
            allow(gateway)
            say_of(ask(gateway, True))
            assert rows_of(gateway, 2)[-1].provider == "north"
            tracing = gateway.services.telemetry.tracing
            assert tracing is not None
            tracing._processor.force_flush(5_000)
        spans = {
            attributes(span)["gen_ai.provider.name"]: span.span_id.hex() for span in collector.spans if span.kind == 3
        }
    told = {"north": upstream, "south": south}
    assert spans == {name: fake.calls[0].headers["traceparent"].split("-")[2] for name, fake in told.items()}


@WAYS
def test_when_both_fail_the_caller_gets_the_error_of_all_attempts(gateway, upstream, south, stream) -> None:
    upstream.script(Answer(status=500, silence_s=3))
    south.script(Answer(status=500))
    answer = ask(gateway, stream)
    assert "No provider could answer" in answer.text
    assert "north" in answer.text and "south" in answer.text
    assert [row.cost_nusd for row in rows_of(gateway, 2)] == [0, 0]
    check_money(gateway)


@WAYS
def test_credits_that_do_not_cover_both_allow_only_one(gateway, upstream, south, stream) -> None:
    upstream.script(Answer("Hello.", silence_s=1.6, **COUNTS))
    gateway.organization_id, gateway.project_id, gateway.key = gateway.settle("Poor", 1_200_000)
    allow(gateway)
    say_of(ask(gateway, stream, max_tokens=400))
    (row,) = rows_of(gateway, 1)
    assert (row.provider, row.cost_nusd) == ("north", NORTH_NUSD) and not south.calls
    check_money(gateway)


@WAYS
def test_at_most_a_share_of_requests_is_hedged(gateway, upstream, south, stream) -> None:
    upstream.script(*[SLOW] * 14)
    answers = gevent.joinall([gevent.spawn(ask, gateway, stream) for _ in range(14)])
    assert all("Hello." in answer.get().text for answer in answers)
    hedged = gateway.services.background.counters.totals()["calls_hedged_total"]
    assert 1 <= sum(hedged.values()) <= 11


@WAYS
def test_a_project_without_the_setting_is_served_as_before(gateway, upstream, south, stream) -> None:
    allow(gateway, False)
    upstream.script(Answer("Hello.", silence_s=1.6, **COUNTS))
    say_of(ask(gateway, stream))
    assert len(rows_of(gateway, 1)) == 1 and not south.calls


CALLS: dict[str, dict[str, Any]] = {
    "/v1/chat/completions": {"messages": HELLO, "max_tokens": 20},
    "/v1/completions": {"prompt": "Hello", "max_tokens": 20},
    "/v1/messages": {"messages": HELLO, "max_tokens": 20},
    "/v1/responses": {"input": "Hello", "max_output_tokens": 20},
    "/v2/chat": {"messages": HELLO, "max_tokens": 20},
    "/v1beta/models/twin:generateContent": {
        "contents": [{"parts": [{"text": "Hello"}]}],
        "generationConfig": {"maxOutputTokens": 20},
    },
    "/v4/ai/language-model": {"prompt": PARTS, "maxOutputTokens": 20},
}


@WAYS
@pytest.mark.parametrize("path", CALLS)
def test_every_text_surface_is_hedged(gateway, upstream, south, path, stream) -> None:
    upstream.script(HANG)
    south.script(FAST)
    headers = {"Authorization": f"Bearer {gateway.key}"}
    body = dict(CALLS[path])
    if "v1beta" in path:
        path = path.replace("generateContent", "streamGenerateContent?alt=sse") if stream else path
    elif "/ai/" in path:
        headers |= {"ai-language-model-id": "twin", "ai-language-model-streaming": str(stream).lower()}
    else:
        body |= {"model": "twin", "stream": stream}
    with httpx.Client(timeout=60) as http:
        answer = http.post(f"{gateway.address}{path}", json=body, headers=headers)
    say_of(answer)
    assert [row.provider for row in rows_of(gateway, 2)] == ["north", "south"]


def test_the_attempts_and_the_explanation_say_so(gateway, upstream, south) -> None:
    upstream.script(HANG)
    south.script(FAST)
    answer = ask(gateway, False)
    assert answer.headers["x-llmgateway-provider"] == "south" and answer.headers["x-llmgateway-attempts"] == "2"
    assert float(answer.headers["x-llmgateway-overhead-ms"]) < 1_000
    facts = answer.json()["metadata"]
    assert [attempt["error_type"] for attempt in facts["routing"]] == ["superseded", "none"]
    rows_of(gateway, 2)
    headers = {"Authorization": f"Bearer {gateway.key}"}
    with httpx.Client(timeout=60, headers=headers) as http:
        decision = http.get(f"{gateway.url}/route/explain/{facts['log_id']}").json()
        assert [(attempt["provider"], attempt["error"]) for attempt in decision["attempts"]] == [
            ("north", "superseded"),
            ("south", "none"),
        ]
        explained = http.post(f"{gateway.url}/route/explain", json={"model": "twin", "messages": HELLO}).json()
    assert explained["hedging"] is True
    totals = gateway.services.background.counters.totals()
    assert sum(totals["calls_hedged_total"].values()) == sum(totals["hedges_won_total"].values()) == 1


@pytest.fixture
def worker(process, tmp_path: Path, upstream: FakeOpenAI, south: FakeOpenAI) -> GatewayProcess:
    """A gateway in another process, with a caller's request for which two attempts are open."""
    environment = write_twins(tmp_path / "catalogue", upstream.url, south.url)
    for name in ("north", "south"):
        path = tmp_path / "catalogue" / "providers" / f"{name}.toml"
        path.write_text(f"cancellation = true\nplain_cancellation = true\n{path.read_text()}")
    gateway: GatewayProcess = process(**environment, **FIRST_BYTE)
    ((project,),) = query(gateway, "SELECT id FROM project")
    gateway.manage("projects", "set", project, "--hedging")
    upstream.script(HANG)
    south.script(HANG)
    return gateway


def open_request(gateway: GatewayProcess, stream: bool, south: FakeOpenAI) -> socket.socket:
    """Send a request and return its connection when both providers have been called."""
    body = json.dumps({"model": "twin", "messages": HELLO, "stream": stream, **PLAIN}).encode()
    head = f"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {gateway.key}\r\n"
    head += f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
    connection = socket.create_connection(("127.0.0.1", gateway.port))
    connection.sendall(head.encode() + body)
    assert until(lambda: len(south.calls) == 1)
    return connection


def rows_in(gateway: GatewayProcess) -> list[Row]:
    return [Row(*row) for row in query(gateway, f"SELECT {', '.join(Row._fields)} FROM usage ORDER BY attempt")]


@WAYS
def test_a_caller_who_leaves_pays_for_both(worker, south, stream) -> None:
    open_request(worker, stream, south).close()
    assert until(lambda: len(rows_in(worker)) == 2)
    rows = rows_in(worker)
    assert {(row.provider, row.finish, row.error) for row in rows} == {
        ("north", "client_disconnect", "request_cancelled"),
        ("south", "client_disconnect", "request_cancelled"),
    }
    assert all(row.cost_nusd > 0 for row in rows)
    assert "The books agree" in worker.manage("doctor")


@WAYS
def test_a_killed_worker_leaves_a_row_for_each_attempt(worker, south, stream) -> None:
    with open_request(worker, stream, south):
        worker.kill()
    worker.start()
    assert until(lambda: len(rows_in(worker)) == 2)
    rows = rows_in(worker)
    assert [(row.attempt, row.provider, row.finish) for row in rows] == [
        (0, "north", "interrupted"),
        (1, "south", "interrupted"),
    ]
    assert all(row.cost_nusd > 0 for row in rows)
    assert until(lambda: reserved_nusd(worker) == 0)
    assert "The books agree" in worker.manage("doctor")
