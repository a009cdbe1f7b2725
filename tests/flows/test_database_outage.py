"""PostgreSQL down under load, while a worker is killed: in both modes nothing is lost, and nothing is counted twice."""

import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import gevent
import httpx
import psycopg
import pytest
from fakes.openai import Answer, FakeOpenAI
from support import warm
from support.breakable_network import Gate
from support.gateways import GatewayProcess
from support.spending import SECRETS, until

pytestmark = pytest.mark.extended

BODY = {"model": "openai/gpt-4o-mini", "messages": [{"role": "user", "content": "Hello"}], "max_tokens": 20}
Start = Callable[..., GatewayProcess]


class Installation:
    """A gateway with a way to PostgreSQL that can be shut, and a provider that counts its calls."""

    def __init__(
        self, process: Start, gate: Gate, url: str, upstream: FakeOpenAI, workers: int = 1, **more: str
    ) -> None:
        self.gate = gate
        self.upstream = upstream
        self._url = url
        self.gateway = process(
            workers,
            **SECRETS,
            DATABASE_URL=f"postgresql://postgres@127.0.0.1:{gate.port}{urlsplit(url).path}",
            GATEWAY_BOOTSTRAP_CREDITS_USD="100",
            LLM_OPENAI_BASE_URL=upstream.url,
            LLM_OPENAI_API_KEY="x",
            GATEWAY_ALLOW_PRIVATE_UPSTREAMS="true",
            **more,
        )
        self.http = httpx.Client(timeout=60)
        self.good: list[str] = []

    def status_of_call(self, key: str = "") -> int:
        headers = {"Authorization": f"Bearer {key or self.gateway.key}"}
        try:
            answer = self.http.post(f"{self.gateway.url}/chat/completions", json=BODY, headers=headers)
        except httpx.HTTPError:
            return 0
        if answer.status_code == 200:
            self.good.append(answer.json()["metadata"]["log_id"])
        return answer.status_code

    def ready(self) -> tuple[int, str]:
        try:
            answer = self.http.get(f"{self.gateway.address}/readyz")
        except httpx.HTTPError:
            return 0, ""
        return answer.status_code, answer.text

    def ready_anew(self) -> int:
        """Return the status of a readiness probe on a new connection."""
        with httpx.Client(timeout=60) as http:
            return http.get(f"{self.gateway.address}/readyz").status_code

    def status(self) -> str:
        """Return what `status` prints; it ends with 1 while the database is down."""
        done = warm.run(["gateway.operator.command", "status"], self.gateway.environment)
        assert done.returncode == 1
        return done.stdout

    def rows(self) -> list[str]:
        with psycopg.connect(self._url) as connection:
            return [row[0] for row in connection.execute("SELECT encode(request, 'hex') FROM usage").fetchall()]

    def check_books(self) -> None:
        """Each whole answer has one row, no call has two, and the ledger agrees."""
        assert until(lambda: set(self.good) <= set(self.rows()))
        rows = self.rows()
        assert set(self.good) <= set(rows) and len(rows) == len(set(rows)) <= len(self.upstream.calls)
        assert "The books agree" in self.gateway.manage("doctor")


@pytest.fixture
def begin(process: Start, postgresql_url: str) -> Iterator[Callable[..., Installation]]:
    folder = Path(parse_qs(urlsplit(postgresql_url).query)["host"][0])
    gate = Gate(str(next(folder.glob(".s.PGSQL.*[0-9]")))).open()
    with FakeOpenAI() as upstream:
        yield lambda workers=1, **more: Installation(process, gate, postgresql_url, upstream, workers, **more)
    gate.shut()


def test_known_keys_are_served_without_the_database_and_each_answer_is_counted_once(
    begin: Callable[..., Installation],
) -> None:
    installation = begin(
        GATEWAY_DATABASE_WHEN_AWAY="serve", GATEWAY_DATABASE_AWAY_S="600", GATEWAY_DATABASE_POOL_WAIT_S="2"
    )
    assert [installation.status_of_call() for _ in range(5)] == [200] * 5
    installation.gate.shut()
    assert until(lambda: "the database is down: known keys are served" in installation.ready()[1])
    assert installation.ready()[0] == 200
    served = [installation.status_of_call() for _ in range(20)]
    assert served == [200] * 20
    assert installation.status_of_call("llmgtwy_" + "u" * 40) == 503
    assert len(installation.rows()) == 5
    assert "keep usage records" in installation.status()
    (worker,) = installation.gateway.workers()
    os.kill(worker, signal.SIGKILL)
    assert until(lambda: installation.gateway.workers() not in ([], [worker]))
    installation.gate.open()
    assert until(lambda: installation.ready() == (200, "ready\n"))
    assert until(lambda: len(installation.rows()) >= 25)
    assert [installation.status_of_call() for _ in range(3)] == [200] * 3
    installation.check_books()


@pytest.mark.parametrize("mode", ["refuse", "serve"])
@pytest.mark.parametrize("stream", [True, False])
def test_an_answer_in_progress_ends_whole_when_the_database_goes_away(
    begin: Callable[..., Installation], mode: str, stream: bool
) -> None:
    installation = begin(GATEWAY_DATABASE_WHEN_AWAY=mode, GATEWAY_DATABASE_POOL_WAIT_S="2")
    assert installation.status_of_call() == 200
    if stream:
        installation.upstream.script(Answer("Hello there. " * 4, gap_s=0.3))
    else:
        installation.upstream.script(Answer("Hello there.", silence_s=3))
    lines: list[str] = []

    def call() -> None:
        headers = {"Authorization": f"Bearer {installation.gateway.key}"}
        body = BODY | {"stream": stream, "max_tokens": 200}
        with httpx.Client(timeout=60) as http:
            url = f"{installation.gateway.url}/chat/completions"
            with http.stream("POST", url, json=body, headers=headers) as answer:
                lines.append(str(answer.status_code))
                lines.extend(line for line in answer.iter_lines() if line)

    running = gevent.spawn(call)
    assert until(lambda: len(lines) > 2 if stream else len(installation.upstream.calls) == 2)
    installation.gate.shut()
    running.get(timeout=40)
    assert lines[0] == "200"
    if stream:
        assert lines[-1] == "data: [DONE]" and not any('"error"' in line for line in lines)
    if mode == "refuse":
        assert until(lambda: installation.status_of_call() == 503)
    assert len(installation.rows()) == 1
    installation.gate.open()
    assert until(lambda: installation.ready() == (200, "ready\n") and len(installation.rows()) == 2)
    installation.check_books()


def test_a_worker_that_starts_meanwhile_waits_and_loses_nothing(begin: Callable[..., Installation]) -> None:
    installation = begin(
        GATEWAY_DATABASE_WHEN_AWAY="serve", GATEWAY_DATABASE_AWAY_S="600", GATEWAY_DATABASE_POOL_WAIT_S="2"
    )
    assert installation.status_of_call() == 200
    installation.gate.shut()
    assert until(lambda: "the database is down: known keys are served" in installation.ready()[1])
    assert [installation.status_of_call() for _ in range(5)] == [200] * 5
    assert (
        "The gateway of this host serves: ready; the database is down: known keys are served" in installation.status()
    )
    (worker,) = installation.gateway.workers()
    os.kill(worker, signal.SIGKILL)
    # The next worker has no leases of budgets, which only the database gives.
    assert until(lambda: "database" in installation.ready()[1] and installation.ready()[0] == 503)
    assert installation.status_of_call() == 503
    said = installation.status()
    assert "The gateway of this host does not serve: The database" in said and "keep usage records" in said
    installation.gate.open()
    assert until(lambda: installation.ready() == (200, "ready\n") and len(installation.rows()) == 6)
    assert installation.status_of_call() == 200
    installation.check_books()


def test_a_worker_that_waits_takes_no_requests_from_one_that_serves(begin: Callable[..., Installation]) -> None:
    installation = begin(
        2, GATEWAY_DATABASE_WHEN_AWAY="serve", GATEWAY_DATABASE_AWAY_S="600", GATEWAY_DATABASE_POOL_WAIT_S="2"
    )
    assert installation.status_of_call() == 200
    installation.gate.shut()
    assert until(lambda: "the database is down: known keys are served" in installation.ready()[1])
    workers = installation.gateway.workers()
    os.kill(workers[0], signal.SIGKILL)
    assert until(lambda: len(installation.gateway.workers()) == 2 and installation.gateway.workers() != workers)
    assert until(lambda: "the worker is not ready and tries again" in installation.gateway.log())
    # Each on a new connection, which any worker could accept.
    assert until(lambda: {installation.ready_anew() for _ in range(20)} == {200})
    assert {installation.ready_anew() for _ in range(60)} == {200}
    installation.gate.open()
    assert until(lambda: installation.ready() == (200, "ready\n"))
    installation.check_books()


def test_records_of_a_worker_that_lives_are_posted_when_the_database_is_back(
    begin: Callable[..., Installation],
) -> None:
    installation = begin(GATEWAY_DATABASE_WHEN_AWAY="serve", GATEWAY_DATABASE_POOL_WAIT_S="2")
    stop: list[bool] = []
    codes: list[int] = []

    def load() -> None:
        while not stop:
            codes.append(installation.status_of_call())

    assert installation.status_of_call() == 200
    running = [gevent.spawn(load) for _ in range(4)]
    assert until(lambda: len(installation.good) > 10)
    installation.gate.shut()
    before = len(installation.good)
    assert until(lambda: len(installation.good) > before + 50)
    installation.gate.open()
    assert until(lambda: installation.ready() == (200, "ready\n"))
    stop.append(True)
    gevent.joinall(running)
    assert set(codes) == {200}
    installation.check_books()


def test_serving_without_the_database_ends_after_its_time_and_amount(begin: Callable[..., Installation]) -> None:
    installation = begin(
        GATEWAY_DATABASE_WHEN_AWAY="serve", GATEWAY_DATABASE_AWAY_USD="0.0001", GATEWAY_DATABASE_AWAY_S="8"
    )
    assert installation.status_of_call() == 200
    installation.gate.shut()
    assert until(lambda: installation.status_of_call() == 503)
    assert until(lambda: installation.ready()[0] == 503)
    installation.gate.open()
    assert until(lambda: installation.status_of_call() == 200)
    installation.check_books()


def test_by_default_requests_are_refused_until_the_database_is_back(begin: Callable[..., Installation]) -> None:
    installation = begin()
    assert installation.status_of_call() == 200
    installation.gate.shut()
    assert until(lambda: installation.status_of_call() == 503)
    assert until(lambda: installation.ready() == (503, "the database is down\n"))
    installation.gate.open()
    assert until(lambda: installation.status_of_call() == 200)
    installation.check_books()
