"""Responses and log lines of a worker that cannot serve yet."""

import json
from collections.abc import Callable
from typing import Any

import gevent
import gevent.event
import pytest

from gateway.application import starting
from gateway.application.starting import StartingApplication
from gateway.configuration.settings import Settings, SettingsError
from gateway.errors import InvalidRequest, Unavailable
from gateway.store.migrations import SchemaMismatch

PROXIED = {"HTTP_X_FORWARDED_FOR": "203.0.113.9", "HTTP_X_REQUEST_ID": "mine-1"}
Ask = Callable[..., tuple[int, dict[str, str], bytes]]


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Requests do not wait for the start."""
    monkeypatch.setattr(starting, "HOLD_S", 0.001)


@pytest.fixture
def waiting(settings: Callable[..., Settings]) -> StartingApplication:
    chosen = settings(
        GATEWAY_LOG_REQUESTS="json", CLIENT_IP_HEADER="x-forwarded-for", GATEWAY_ALLOWED_HOSTS="llm.example"
    )
    return StartingApplication(chosen, lambda: pytest.fail("nothing follows it here"), Unavailable("no database"))


@pytest.fixture
def send_request(waiting: StartingApplication) -> Ask:
    def send(method: str, path: str, **more: str) -> tuple[int, dict[str, str], bytes]:
        started: list[Any] = []
        environ = {
            "REQUEST_METHOD": method,
            "PATH_INFO": path,
            "QUERY_STRING": "",
            "REMOTE_ADDR": "127.0.0.1",
            "HTTP_HOST": "llm.example",
            **more,
        }
        body = b"".join(waiting(environ, lambda *given: started.extend(given)))
        return int(started[0].split()[0]), {name.lower(): value for name, value in started[1]}, body

    return send


def lines(waiting: StartingApplication, capsys: pytest.CaptureFixture[str]) -> list[dict[str, Any]]:
    """Return the request lines in the log."""
    waiting.close()
    return [json.loads(line) for line in capsys.readouterr().err.splitlines() if line.startswith("{")]


def test_a_refusal_while_starting_has_its_line_as_every_other(
    waiting: StartingApplication, send_request: Ask, capsys: pytest.CaptureFixture[str]
) -> None:
    status, headers, body = send_request("POST", "/v1/chat/completions", **PROXIED)
    assert status == 503 and headers["x-request-id"] == "mine-1" and headers["retry-after"] == "2"
    assert json.loads(body)["error"]["code"] == "service_unavailable"
    (line,) = lines(waiting, capsys)
    assert line["operation"] == "POST /v1/chat/completions" and line["status"] == 503
    assert line["code"] == "service_unavailable" and line["remedy"] and line["level"] == "warning"
    assert line["ip"] == "203.0.113.9" and line["request_id"] == "mine-1"


def test_each_surface_is_refused_in_its_own_words_and_other_hosts_too(
    waiting: StartingApplication, send_request: Ask, capsys: pytest.CaptureFixture[str]
) -> None:
    assert json.loads(send_request("POST", "/v1/messages")[2])["type"] == "error"
    assert send_request("GET", "/nothing/here")[0] == 503
    assert send_request("POST", "/v1/messages", HTTP_HOST="evil.example")[0] == 421
    assert [(line["operation"], line["status"]) for line in lines(waiting, capsys)] == [
        ("POST /v1/messages", 503),
        ("unmatched", 503),
        ("POST /v1/messages", 421),
    ]


def test_requests_refused_by_the_server_before_start_are_logged(
    waiting: StartingApplication, capsys: pytest.CaptureFixture[str]
) -> None:
    waiting.refused(InvalidRequest("Two lengths."), "mine-2", {"REMOTE_ADDR": "203.0.113.7"})
    (line,) = lines(waiting, capsys)
    assert line["operation"] == "unmatched" and line["ip"] == "203.0.113.7" and line["status"] == 400


def test_probes_are_answered_without_a_line(
    waiting: StartingApplication, send_request: Ask, capsys: pytest.CaptureFixture[str]
) -> None:
    assert send_request("GET", "/livez")[0] == 200
    status, _, body = send_request("GET", "/readyz")
    assert status == 503 and body == b"no database\n"
    assert send_request("GET", "/")[0] == 503
    status, headers, body = send_request("HEAD", "/livez")
    assert (status, headers["content-length"], body) == (200, "3", b"")
    assert lines(waiting, capsys) == []


@pytest.mark.parametrize(
    ("error", "report", "said"),
    [
        (Unavailable("no database"), {"connected": False, "error": "Database connection failed"}, "cannot be reached"),
        (
            SchemaMismatch(["migration 0007_roles is missing; run: ./manage migrate"]),
            {
                "connected": True,
                "error": "The database schema does not match this version: "
                "migration 0007_roles is missing; run: ./manage migrate",
            },
            "has to run the migrations",
        ),
        (
            SettingsError("GATEWAY_ENCRYPTION_KEY: not the one that encrypted this database"),
            {
                "connected": True,
                "error": "The worker cannot start: GATEWAY_ENCRYPTION_KEY: not the one that encrypted this database",
            },
            "a setting is not usable yet",
        ),
    ],
)
def test_a_database_that_is_away_and_one_that_is_not_migrated_are_told_apart(
    waiting: StartingApplication, send_request: Ask, error: Exception, report: dict[str, Any], said: str
) -> None:
    waiting._note(error)
    status, _, body = send_request("GET", "/")
    assert status == 503 and json.loads(body)["health"]["database"] == report
    assert json.loads(body)["message"].endswith("unavailable" if not report["connected"] else "not ready")
    assert said in json.loads(send_request("POST", "/v1/chat/completions")[2])["error"]["message"]


class Made:
    """The application that a start makes in the end."""

    closed = False

    def __call__(self, environ: dict[str, Any], start_response: Callable[..., Any]) -> list[bytes]:
        start_response("200 OK", [])
        return [b"made"]

    def close(self) -> None:
        self.closed = True


def test_a_server_that_knows_nothing_of_the_replacement_serves_after_it(
    settings: Callable[..., Settings], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(starting, "FIRST_RETRY_S", 0.001)
    made, attempts = Made(), [Unavailable("no database")]

    def make() -> Any:
        if attempts:
            raise attempts.pop()
        return made

    application = StartingApplication(settings(), make, Unavailable("no database")).retry()
    environ = {"REQUEST_METHOD": "GET", "PATH_INFO": "/readyz", "HTTP_HOST": "llm.example", "QUERY_STRING": ""}
    assert b"no database" in b"".join(application(dict(environ), lambda *given: None))
    with gevent.Timeout(60):
        while b"".join(application(dict(environ), lambda *given: None)) != b"made":
            gevent.sleep(0.01)
    application.close()
    assert made.closed


def test_a_request_waits_for_a_start_that_succeeds_soon_and_probes_do_not(
    settings: Callable[..., Settings], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(starting, "FIRST_RETRY_S", 0.001)
    monkeypatch.setattr(starting, "HOLD_S", 60)
    begin = gevent.event.Event()

    def make() -> Any:
        begin.wait()
        return Made()

    application = StartingApplication(settings(), make, Unavailable("no database")).retry()
    environ = {"REQUEST_METHOD": "POST", "HTTP_HOST": "llm.example", "QUERY_STRING": ""}

    def send(path: str) -> bytes:
        return b"".join(application({**environ, "PATH_INFO": path}, lambda *given: None))

    asked = gevent.spawn(send, "/v1/chat/completions")
    gevent.sleep(0)
    assert b"no database" in send("/readyz") and not asked.ready()
    begin.set()
    assert asked.get(timeout=60) == b"made"
    application.close()


def test_requests_beyond_a_number_and_those_of_a_worker_that_leaves_do_not_wait(
    waiting: StartingApplication, send_request: Ask, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(starting, "HOLD_S", 600)
    monkeypatch.setattr(starting, "MAX_HELD", 1)
    first = gevent.spawn(send_request, "POST", "/v1/messages")
    gevent.sleep(0)
    assert send_request("POST", "/v1/messages")[0] == 503 and not first.ready()
    waiting.draining()
    assert first.get(timeout=60)[0] == 503


def test_the_gateways_own_server_gets_an_application_that_was_ready_before_it_asked(
    settings: Callable[..., Settings], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(starting, "FIRST_RETRY_S", 0.001)
    made, taken = Made(), gevent.event.AsyncResult()
    application = StartingApplication(settings(), lambda: made, Unavailable("no database")).retry()  # type: ignore[arg-type,return-value]
    gevent.sleep(0.05)
    application.follow(taken.set)
    assert taken.get(timeout=60) is made
    application.close()
    assert not made.closed, "the server closes what it took"
