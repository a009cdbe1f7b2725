"""Services that answer wrong: each fault has its own message, and no credential goes anywhere else."""

import re
import ssl
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from fakes.server import Start, make_server
from gevent.pywsgi import WSGIServer
from harness.client_runs import Client
from harness.fake_service import CUT, HANG, Answer, FakeService
from support.certificates import write_certificate

from llmgateway_cli.output import Output
from llmgateway_cli.settings import Settings

PAGE = "<!DOCTYPE html><html><head><title>Corporate Proxy</title></head></html>"
HTML = {"Content-Type": "text/html"}


@pytest.fixture
def client(service_client: Client) -> Client:
    service_client.environment["LLMGATEWAY_TIMEOUT"] = "1"
    return service_client


FAULTS = {
    "page": ([Answer(200, PAGE, HTML)], ["A web page with the title 'Corporate Proxy'", "HTTPS_PROXY"]),
    "page of a failing proxy": ([Answer(502, PAGE, HTML)], ["A web page", "status 502"]),
    "page without a type": ([Answer(200, PAGE)], ["A web page"]),
    "text": ([Answer(200, "It works!")], ["cannot be understood", "LLMGATEWAY_API_URL"]),
    "other object": ([Answer(200, {"hello": "world"})], ["'apiKeys' is missing"]),
    "other list": ([Answer(200, {"apiKeys": ["key"]})], ["'apiKeys' is missing or has another type"]),
    "array": ([Answer(200, [])], ["cannot be understood"]),
    "other error": ([Answer(404, {"detail": "Not Found"})], ["cannot be understood", "Request id: req_fake"]),
    "expired session": ([Answer(401, {"message": "no"})], ["session has expired", "auth login", "req_fake"]),
    "refusal": ([Answer(403, {"error": True, "status": 403, "message": "No permission."})], ["No permission."]),
    "slug": ([Answer(403, {"error": "account_deactivated", "message": "Ask the owner."})], ["Ask the owner."]),
    "failure": ([Answer(500, "")], ["failed with status 500", "req_fake"]),
    "redirect to no address": (
        [Answer(302, "", {"Location": "https://[x"})],
        ["redirects to an address that cannot be read"],
    ),
    "redirect": ([Answer(302, "", {"Location": "https://evil.example/keys"})], ["redirects to https://evil.example"]),
    "lost twice": ([CUT, CUT], ["was lost"]),
    "silence": ([HANG], ["did not answer within 1 s"]),
    "busy for long": ([Answer(429, {"message": "Slow down."}, {"Retry-After": "3600"})], ["Slow down.", "in 3600 s."]),
    "busy twice": ([Answer(429, {"message": "Slow."}, {"Retry-After": "0"})] * 2, ["Trying again in 0 s", "Slow."]),
    "unavailable twice": ([Answer(503, {"message": "No."}, {"Retry-After": "0"})] * 2, ["is busy", "No."]),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_has_its_message(fault: str, service: FakeService, client: Client) -> None:
    answers, parts = FAULTS[fault]
    service.script(*answers)
    message = client.refused("keys", "list")
    assert all(part in message for part in parts), message
    assert message.startswith(("error: ", "info: ")) and "secret-session" not in message
    assert len(service.calls) == len(answers)


@pytest.mark.parametrize(
    "answer",
    [CUT, Answer(429, "", {"Retry-After": "0"}), Answer(503, "", {"Retry-After": "Mon, 01 Jan 2024 00:00:00 GMT"})],
)
def test_a_reading_request_is_repeated_once(answer: Answer | str, service: FakeService, client: Client) -> None:
    service.script(answer)
    assert "CI" in client.run("keys", "list", "--json").stdout
    assert service.lines == ["GET /keys/api?filter=mine&limit=500"] * 2


@pytest.mark.parametrize("answer", [CUT, Answer(503, {"message": "No."}, {"Retry-After": "0"}), HANG])
def test_a_request_that_could_happen_twice_is_not_repeated(
    answer: Answer | str, service: FakeService, client: Client
) -> None:
    service.script(answer)
    client.refused("keys", "create", "-d", "CI", "-p", "project_1")
    assert service.lines == ["POST /keys/api"]


def test_a_refused_request_is_repeated_because_it_did_not_happen(service: FakeService, client: Client) -> None:
    service.script(Answer(429, "", {"Retry-After": "0"}))
    finished = client.run("keys", "create", "-d", "CI", "-p", "project_1")
    assert "too many requests. Trying again in 0 s" in finished.stderr
    assert service.lines == ["POST /keys/api"] * 2


def test_a_redirect_is_not_followed(service: FakeService, client: Client) -> None:
    with FakeService() as other:
        service.script(Answer(307, "", {"Location": f"{other.url}/keys/api"}))
        client.refused("keys", "list")
        assert other.calls == []


def test_a_session_is_sent_to_its_service_only(service: FakeService, client: Client) -> None:
    with FakeService() as other:
        message = client.refused("--api-url", other.url, "keys", "list")
        assert f"You are signed in at {service.url}, not at {other.url}." in message
        assert (service.calls, other.calls) == ([], [])


@pytest.mark.parametrize(
    ("address", "part"),
    [
        ("http://127.0.0.1:1", "No service answers at http://127.0.0.1:1"),
        ("https://gateway.invalid", "The name in https://gateway.invalid is unknown"),
        ("http://gateway.example", "is not encrypted (LLMGATEWAY_API_URL)"),
        ("https://al:word@gateway.example", "contains credentials"),
    ],
)
def test_an_address_without_a_service_is_named(address: str, part: str, client: Client) -> None:
    client.configure(sessionApiUrl=address)
    message = client.refused("keys", "list", LLMGATEWAY_API_URL=address)
    assert part in message and "word" not in message


@pytest.mark.parametrize("level", ["info", "success", "warning"])
def test_the_level_of_a_notice_has_a_colour_at_a_terminal(level: str, monkeypatch, capsys) -> None:
    output = Output({}, Settings({}))
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    getattr(output, level)("Done.")
    assert re.fullmatch(rf"(\x1b\[\d+m)+{level}: \x1b\[0mDone\.\n", capsys.readouterr().err)


def say_nothing(environ: dict, start: Start) -> list[bytes]:
    """Answer without a body."""
    start("200 OK", [("Content-Length", "0")])
    return []


@pytest.fixture
def encrypted(tmp_path: Path) -> Iterator[str]:
    """The address of a server with a self-signed certificate."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(write_certificate(tmp_path / "pem", "127.0.0.1"))
    server = WSGIServer(("127.0.0.1", 0), say_nothing, log=None, error_log=None, ssl_context=context)
    server.start()
    yield f"https://127.0.0.1:{server.server_port}"
    server.stop(timeout=0.2)


def test_an_unknown_certificate_is_refused(encrypted: str, tmp_path: Path, client: Client) -> None:
    client.configure(sessionApiUrl=encrypted)
    message = client.refused("keys", "list", LLMGATEWAY_API_URL=encrypted)
    assert "certificate" in message and "REQUESTS_CA_BUNDLE" in message
    named = {"LLMGATEWAY_API_URL": encrypted, "REQUESTS_CA_BUNDLE": str(tmp_path / "pem")}
    assert "cannot be understood" in client.refused("keys", "list", **named)


def test_a_proxy_that_is_away_is_named(service: FakeService, client: Client) -> None:
    client.configure(sessionApiUrl="https://gateway.example")
    away = {"LLMGATEWAY_API_URL": "https://gateway.example", "HTTPS_PROXY": "http://127.0.0.1:1"}
    assert "proxy" in client.refused("keys", "list", **away)


def test_no_proxy_is_used_for_this_computer(service: FakeService, client: Client) -> None:
    proxies = dict.fromkeys(("HTTP_PROXY", "http_proxy", "ALL_PROXY"), "http://127.0.0.1:1")
    assert "CI" in client.run("keys", "list", **proxies).stdout


def test_a_password_file_replaces_no_credential(service: FakeService, client: Client) -> None:
    (client.home / ".netrc").write_text("machine 127.0.0.1 login al password word\n")
    client.run("keys", "list")
    assert service.calls[0].headers["authorization"] == "Bearer secret-session"


def test_waiting_is_shown_on_a_terminal_after_a_second(service: FakeService, client: Client) -> None:
    service.script(HANG)
    with client.terminal("keys", "list", LLMGATEWAY_TIMEOUT="2") as terminal:
        terminal.expect("1 s  Waiting for http://127.0.0.1")
        assert "did not answer within 2 s" in terminal.end(1)


def test_ctrl_c_ends_with_its_code_and_changes_nothing(service: FakeService, client: Client) -> None:
    before = client.config
    service.script(HANG)
    with client.terminal("orgs", "use", "Acme", LLMGATEWAY_TIMEOUT="30") as terminal:
        terminal.expect("Waiting for")
        terminal.interrupt()
        assert "Interrupted." in terminal.end(130)
    assert client.config == before


def test_every_request_names_its_program_and_its_origin(service: FakeService, client: Client) -> None:
    client.run("keys", "create", "-d", "CI", "-p", "project_1")
    client.run("keys", "delete", "key_1", "-y")
    created, deleted = service.calls
    assert created.headers["origin"] == service.address
    client.run("auth", "whoami")
    assert "origin" not in service.calls.pop().headers
    assert created.headers["user-agent"].startswith("llmgateway-cli/")
    assert (
        created.headers["accept"] == created.headers["content-type"] == "application/json"
        and deleted.headers["content-type"] == ""
    )
    assert deleted.body is None and "cookie" not in created.headers
    named = {"LLMGATEWAY_API_KEY": "llmgtwy_1"}
    client.run("models", code=None, **named)
    client.run("chat", "Hello", code=None, **named)
    assert [call.headers["accept"] for call in service.calls[-2:]] == ["application/json", "text/event-stream"]


def test_a_cookie_session_is_sent_as_a_cookie(service: FakeService, client: Client) -> None:
    (client.folder / "config.json").unlink()
    client.configure(sessionCookie="x.session_token=secret", sessionApiUrl=service.url, sessionEmail="al@example.com")
    client.run("orgs", "list")
    headers = service.calls[0].headers
    assert headers["cookie"] == "x.session_token=secret" and "authorization" not in headers


def test_a_plain_server_on_an_encrypted_address_is_reported(client: Client) -> None:
    server = make_server(say_nothing)
    server.start()
    address = f"https://127.0.0.1:{server.server_port}"
    client.configure(sessionApiUrl=address)
    message = client.refused("keys", "list", LLMGATEWAY_API_URL=address)
    server.stop(timeout=0.2)
    assert "does not speak TLS" in message
