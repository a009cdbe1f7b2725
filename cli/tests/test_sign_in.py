"""`auth`: three ways to sign in, the stored session, and the way out."""

import base64
import json
import re
import stat
import sys
import time
import webbrowser
from pathlib import Path
from types import SimpleNamespace

import pytest
import requests
from harness.accounts import Account
from harness.client_runs import Client
from harness.fake_service import Answer, FakeService

from gateway.accounts.second_factor import code_at
from llmgateway_cli.browser_sign_in import open_page

EMAIL, PASSWORD = "owner@localhost", "correct horse battery"
PAGE = re.compile(r"(http://\S+/console/device)\?user_code=([A-Za-z0-9-]+)")
GRANT = {
    "device_code": "secret-device-code",
    "user_code": "ABCD-EFGH",
    "expires_in": 600,
    "interval": 0,
}
PENDING = Answer(400, {"error": "authorization_pending"})


def decide(account: Account, user_code: str, decision: str) -> None:
    """Approve or deny a code, as the page does with a browser's session."""
    account("POST", f"/auth/device/{decision}", {"userCode": user_code})


def test_the_browser_approves_a_sign_in(signed_out: Client, account: Account) -> None:
    with signed_out.terminal("auth", "login", "--no-browser", columns=200) as terminal:
        terminal.expect("The page shows this code:")
        page, code = PAGE.search(terminal.text).groups()
        assert page.startswith(account.address)
        decide(account, code, "approve")
        assert f"Signed in as {account.email}" in terminal.end()
    config = signed_out.config
    assert config["sessionApiUrl"] == account.address and config["sessionEmail"] == account.email
    assert signed_out.run("auth", "whoami").stdout.strip() == account.email
    assert stat.S_IMODE((signed_out.folder / "config.json").stat().st_mode) == 0o600


@pytest.fixture
def stranger(service: FakeService, tmp_path: Path) -> Client:
    """A client of the fake service, signed out."""
    return Client(tmp_path / "home", {"LLMGATEWAY_API_URL": service.url})


def grant(service: FakeService, **more: object) -> Answer:
    return Answer(200, {**GRANT, "verification_uri": f"{service.url}/console/device", **more})


def test_the_browser_is_opened_and_polled_until_the_approval(service: FakeService, stranger: Client) -> None:
    complete = f"{service.url}/console/device?user_code=ABCD-EFGH"
    granted = grant(service, verification_uri_complete=complete)
    service.script(granted, PENDING, Answer(200, {"access_token": "secret-token"}))
    opened = stranger.home / "opened"
    browser = stranger.home / "browser"
    browser.write_text(f'#!/bin/sh\necho "$1" > {opened}\n')
    browser.chmod(0o755)
    finished = stranger.run("auth", "login", "--json", BROWSER=str(browser))
    assert opened.read_text().strip() == complete
    assert finished.document == {"email": "al@example.com", "apiUrl": service.url}
    assert stranger.config == {
        "sessionApiUrl": service.url,
        "sessionEmail": "al@example.com",
        "sessionToken": "secret-token",
    }
    assert service.lines == [
        "POST /auth/device/code",
        *["POST /auth/device/token"] * 2,
        "GET /auth/get-session",
    ]
    code, token, _, session = service.calls
    assert code.body == {"client_id": "llmgateway-cli"}
    assert token.body == {
        "grant_type": "urn:ietf:params:oauth:grant-type:device_code",
        "device_code": "secret-device-code",
        "client_id": "llmgateway-cli",
    }
    assert session.headers["authorization"] == "Bearer secret-token"


def test_single_sign_on_opens_its_page_first(service: FakeService, stranger: Client) -> None:
    service.script(grant(service), Answer(400, {"error": "access_denied"}))
    message = stranger.refused("auth", "login", "--sso", "al@example.com")
    path = "%2Fteam%2Fgateway%2Fconsole%2Fdevice%3Fuser_code%3DABCD-EFGH"
    assert f"{service.url}/sso?redirect={path}&email=al%40example.com" in message


REFUSED = {
    "denied": ([Answer(400, {"error": "access_denied"})], "denied in the browser"),
    "expired": ([Answer(400, {"error": "expired_token"})], "expired before it was approved"),
    "other": ([Answer(400, {"error": "invalid_grant", "message": "Used."})], "Used."),
    "token with spaces": ([Answer(200, {"access_token": "a b"})], "'access_token'"),
    "no token": ([Answer(200, {})], "'access_token'"),
    "no session": ([Answer(200, {"access_token": "t"}), Answer(200, "null")], "'user' is missing"),
    "failure": ([Answer(500, "")], "failed with status 500"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_a_refused_sign_in_stores_nothing(case: str, service: FakeService, stranger: Client) -> None:
    answers, text = REFUSED[case]
    service.script(grant(service), *answers)
    message = stranger.refused("auth", "login", "--no-browser")
    assert text in message and "secret-device-code" not in message
    assert stranger.config == {}


STRANGE = {
    "other origin": {"verification_uri": "https://evil.example/console/device"},
    "user name": {"verification_uri": "http://127.0.0.1@evil.example/console/device"},
    "other complete origin": {"verification_uri_complete": "https://evil.example/console/device?user_code=ABCD-EFGH"},
    "other complete path": {"verification_uri_complete": "{}/other?user_code=ABCD-EFGH"},
    "other complete code": {"verification_uri_complete": "{}/console/device?user_code=OTHER"},
    "strange code": {"user_code": "AB\x1b[31m"},
    "no lifetime": {"expires_in": 0},
    "endless lifetime": {"expires_in": 10**400},
    "no address": {"verification_uri": "https://[x"},
}


@pytest.mark.parametrize("case", STRANGE)
def test_a_strange_page_or_code_is_refused(case: str, service: FakeService, stranger: Client) -> None:
    more = {name: value.replace("{}", service.url) if isinstance(value, str) else value
            for name, value in STRANGE[case].items()}  # fmt: skip
    service.script(grant(service, **more))
    stranger.refused("auth", "login", "--no-browser")
    assert service.lines == ["POST /auth/device/code"]


def test_a_service_without_the_device_flow_is_explained(service: FakeService, stranger: Client) -> None:
    assert "--email" in stranger.refused("auth", "login")


def test_a_code_that_is_not_approved_in_time_ends_the_sign_in(service: FakeService, stranger: Client) -> None:
    service.script(grant(service, interval=2))
    assert "not approved within 1 s" in stranger.refused("auth", "login", "--no-browser", "--timeout", "1")


@pytest.mark.parametrize("seconds", ["0", "1801"])
def test_the_timeout_has_bounds(seconds: str, stranger: Client) -> None:
    assert "1 to 1800" in stranger.refused("auth", "login", "--timeout", seconds)


@pytest.mark.parametrize("ways", [("--key", "--email", "a"), ("--key", "--sso"), ("--email", "a", "--no-browser")])
def test_the_ways_exclude_each_other(ways: tuple[str, ...], stranger: Client) -> None:
    assert "exclude each other" in stranger.refused("auth", "login", *ways, code=2)


@pytest.mark.parametrize("columns", [40, 80, 200])
def test_a_password_is_typed_without_echo(columns: int, signed_out: Client, account: Account) -> None:
    with signed_out.terminal("auth", "login", "--email", columns=columns) as terminal:
        terminal.answer("Email:", EMAIL)
        terminal.answer("Password:", PASSWORD)
        assert PASSWORD not in terminal.end()
    name, _, token = signed_out.config["sessionCookie"].partition("=")
    assert "session_token" in name and token
    assert EMAIL in signed_out.run("auth", "whoami").stdout
    assert f"signed in as {EMAIL}" in signed_out.run("auth", "status").stdout


def test_a_password_comes_from_a_variable_or_standard_input(signed_out: Client, account: Account) -> None:
    login = ("auth", "login", "--email", EMAIL)
    signed_out.run(*login, LLMGATEWAY_PASSWORD=PASSWORD)
    signed_out.run("auth", "logout")
    assert signed_out.config == {}
    signed_out.run(*login, typed=f"{PASSWORD}\n")
    message = signed_out.refused(*login, LLMGATEWAY_PASSWORD="wrong horse battery")
    assert "wrong horse" not in message and "expired" not in message
    assert "No password was given" in signed_out.refused(*login)
    assert "sessionCookie" in signed_out.config


def test_a_second_factor_is_requested(signed_out: Client, account: Account) -> None:
    signed_out.run("auth", "login", "--email", EMAIL, LLMGATEWAY_PASSWORD=PASSWORD)
    cookie = {"Cookie": signed_out.config["sessionCookie"], "Origin": account.address}

    def change(path: str, body: dict) -> dict:
        return requests.post(account.address + path, json=body, headers=cookie, timeout=20).json()

    secret = base64.b32decode(change("/auth/second-factor", {"password": PASSWORD})["secret"])
    confirmed = change("/auth/second-factor/confirm", {"code": code_at(secret, int(time.time()) // 30)})
    try:
        with signed_out.terminal("auth", "login", "--email", EMAIL) as terminal:
            terminal.answer("Password:", PASSWORD)
            terminal.answer("Code of the second factor:", confirmed["recoveryCodes"][0])
            assert "Signed in" in terminal.end()
    finally:
        change("/auth/second-factor/remove", {"password": PASSWORD, "code": confirmed["recoveryCodes"][1]})


def test_a_key_is_stored(stranger: Client, service: FakeService) -> None:
    service.script(*[Answer(200, {"data": {}})] * 3)
    with stranger.terminal("auth", "login", "--key", columns=200, LLMGATEWAY_API_KEY="llmgtwy_variable") as terminal:
        assert f"{service.url}/dashboard/api-keys" in terminal.expect("API key:")
        terminal.answer("API key:", "llmgtwy_typed")
        assert "llmgtwy_typed" not in terminal.end()
    assert stranger.config == {"apiKey": "llmgtwy_typed"}
    stranger.run("auth", "login", "--key", typed="llmgtwy_sent\n")
    assert stranger.config == {"apiKey": "llmgtwy_sent"}
    stranger.run("auth", "login", "--key", LLMGATEWAY_API_KEY="llmgtwy_variable")
    assert stranger.config == {"apiKey": "llmgtwy_variable"}
    shown = stranger.document(
        "auth", "login", "--key", "--gateway-url", "https://a.example", LLMGATEWAY_API_KEY="k" * 20
    )
    assert shown == {"apiKey": "kkkk****kkkk"} and stranger.config["gatewayUrl"] == "https://a.example"
    assert "no key has" in stranger.refused("auth", "login", "--key", typed="my key\n")
    assert "No API key was given" in stranger.refused("auth", "login", "--key")
    assert service.lines == ["GET /v1/key"] * 3
    assert service.calls[0].headers["authorization"] == "Bearer llmgtwy_typed"


@pytest.mark.parametrize("given", ["argument", "typed"])
def test_a_key_that_the_service_refuses_is_not_stored(given: str, signed_out: Client, account: Account) -> None:
    option = ["--key"] + ["not-a-key"] * (given == "argument")
    message = signed_out.refused("auth", "login", *option, typed="not-a-key\n" * (given == "typed"))
    assert "refuses this API key" in message and "not-a-key" not in message
    assert "apiKey" not in signed_out.config
    signed_out.run("auth", "login", "--key", account.key)
    assert signed_out.config["apiKey"] == account.key


@pytest.mark.parametrize("status", [404, 500, 503])
def test_a_service_that_cannot_check_a_key_gets_it_stored(status: int, stranger: Client, service: FakeService) -> None:
    service.script(*[Answer(status, {"error": {"message": "No check."}})] * 2)
    finished = stranger.run("auth", "login", "--key", "llmgtwy_sent", LLMGATEWAY_TIMEOUT="5")
    assert stranger.config == {"apiKey": "llmgtwy_sent"}
    assert ("No check." in finished.stderr) is (status != 404)


def test_addresses_of_the_sign_in_are_stored(service: FakeService, tmp_path: Path) -> None:
    client = Client(tmp_path / "home")
    service.script(grant(service), Answer(200, {"access_token": "t"}))
    login = ("auth", "login", "--api-url", service.url, "--gateway-url", "http://localhost:5/", "--org", "Acme")
    client.run(*login, "--no-browser")
    assert client.config["apiUrl"] == service.url and client.config["gatewayUrl"] == "http://localhost:5"
    assert "dashboardUrl" not in client.config and client.config["defaultOrgId"] == "org_1"
    assert client.run("orgs", "list").stdout.count("Acme") == 1
    service.script(grant(service), Answer(200, {"access_token": "t"}))
    client.run("auth", "login", "--dashboard-url", f"{service.address}/pages", "--no-browser")
    assert client.config["dashboardUrl"] == f"{service.address}/pages"


def test_each_address_has_a_global_option(client: Client, account: Account) -> None:
    addresses = {
        "--api-url": account.address,
        "--dashboard-url": "https://a.example",
        "--gateway-url": "https://b.example",
    }
    options = [text for option in addresses.items() for text in option]
    shown = client.document(*options, "auth", "status")
    assert [shown[name] for name in ("apiUrl", "dashboardUrl", "gatewayUrl")] == list(addresses.values())
    text = client.run(*options, "auth", "status").stdout
    assert all(address in text for address in addresses.values())
    for option in addresses:
        assert f"is not encrypted ({option})" in client.refused(option, "http://a.example", "auth", "status")


def test_the_user_is_shown(stranger: Client, service: FakeService) -> None:
    stranger.configure(sessionToken="t", sessionApiUrl=service.url, sessionEmail="al@example.com")
    assert stranger.document("auth", "whoami") == {"email": "al@example.com", "name": "Al"}
    assert stranger.run("auth", "whoami").stdout == "Al <al@example.com>\n"


def test_another_account_loses_the_key_and_the_defaults(signed_out: Client, account: Account) -> None:
    left = {"apiKey": "k", "defaultOrgId": "o", "defaultProjectId": "p", "defaultTemplate": "t"}
    signed_out.configure(sessionToken="x", sessionApiUrl=account.address, sessionEmail="other@localhost", **left)
    signed_out.run("auth", "login", "--email", EMAIL, LLMGATEWAY_PASSWORD=PASSWORD)
    assert left.keys() & signed_out.config.keys() == {"defaultTemplate"}
    signed_out.configure(**left)
    signed_out.run("auth", "login", "--email", EMAIL, LLMGATEWAY_PASSWORD=PASSWORD)
    assert left.keys() <= signed_out.config.keys()


def test_signing_out_ends_the_session_and_keeps_the_addresses(client: Client, account: Account) -> None:
    (client.folder / "agents.json").write_text("[]")
    client.configure(apiKey="k", apiUrl=account.address, defaultOrgId="o", defaultProjectId="p")
    assert client.run("auth", "logout").stdout == ""
    assert client.config == {"apiUrl": account.address}
    assert (client.folder / "agents.json").exists()
    with pytest.raises(AssertionError, match="session"):
        account("GET", "/orgs")
    client.run("auth", "logout")


def test_signing_out_works_without_the_service(stranger: Client) -> None:
    stranger.configure(sessionToken="t", sessionApiUrl="http://127.0.0.1:1", sessionEmail="a@b.c")
    finished = stranger.run("auth", "logout", LLMGATEWAY_API_URL="http://127.0.0.1:1")
    assert "was not ended at the service" in finished.stderr and stranger.config == {}


def test_the_status_shows_the_session_the_key_and_the_addresses(client: Client, account: Account) -> None:
    client.configure(apiKey="llmgtwy_0123456789abcdef")
    shown = client.document("auth", "status")
    assert shown == {
        "signedIn": True,
        "email": account.email,
        "apiKey": "llmg****cdef",
        "apiKeySource": "stored",
        "apiUrl": account.address,
        "dashboardUrl": account.address,
        "gatewayUrl": account.address,
    }
    client.configure(sessionToken="ended")
    ended = client.run("auth", "status", LLMGATEWAY_API_KEY="short")
    assert "session has expired" in ended.stdout and "***** (environment)" in ended.stdout
    assert "auth login" in ended.stderr


def test_without_a_session_nothing_is_requested(stranger: Client, service: FakeService) -> None:
    for command in (("auth", "whoami"), ("orgs", "list"), ("keys", "list"), ("usage",), ("credits",)):
        assert "not signed in" in stranger.refused(*command)
    assert "not signed in" in stranger.run("auth", "status").stdout
    assert json.loads(stranger.run("--json", "auth", "status").stdout)["signedIn"] is False
    assert service.calls == []


def test_a_page_is_opened_where_there_is_a_display(monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[str] = []
    notes: list[str] = []
    monkeypatch.setattr(sys, "platform", "linux")
    monkeypatch.setattr(webbrowser, "open", lambda page: not opened.append(page))
    for environment in ({"DISPLAY": ":0"}, {"WAYLAND_DISPLAY": "wayland-0"}, {"BROWSER": "w3m"}, {}):
        settings = SimpleNamespace(environment=environment)
        open_page(SimpleNamespace(settings=settings, output=SimpleNamespace(info=notes.append)), "https://a.example")
    assert len(opened) == 3 and len(notes) == 1 and "on any device" in notes[0]
    for platform in ("darwin", "win32"):
        monkeypatch.setattr(sys, "platform", platform)
        open_page(SimpleNamespace(settings=settings, output=SimpleNamespace(info=notes.append)), "https://a.example")
    assert len(opened) == 5
