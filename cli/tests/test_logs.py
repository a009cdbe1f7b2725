"""`logs`: requests of the account, newest first, or new ones as they end."""

import json
import time

import pytest
import requests
from harness.accounts import TIMEOUT_S, Account
from harness.client_runs import Client
from harness.stub_service import StubService


def call(account: Account, prompt: str = "Hello", model: str = "sandbox-echo", **headers: str) -> None:
    body = {"model": model, "messages": [{"role": "user", "content": prompt}]}
    own = {"Authorization": f"Bearer {account.key}"} | {name.replace("_", "-"): text for name, text in headers.items()}
    requests.post(f"{account.address}/v1/chat/completions", json=body, headers=own, timeout=TIMEOUT_S)


def models(client: Client, *arguments: str) -> list[str]:
    return [entry["model"] for entry in client.document("logs", *arguments)]


def wait_for_entries(account: Account, count: int) -> None:
    """Wait until the gateway has written the newest requests to its log, shortly after their answers."""
    for _ in range(600):
        if len(account("GET", "/logs")["logs"]) >= count:
            return
        time.sleep(0.1)
    raise AssertionError(f"the log has no {count} entries")


@pytest.fixture
def busy(account: Account) -> Account:
    """An account with three requests, of which one was refused."""
    call(account)
    call(account, model="sandbox-tools", x_source="my-app", x_request_id="mine-1")
    call(account, model="gpt-99")
    wait_for_entries(account, 3)
    return account


@pytest.mark.parametrize(
    ("filters", "shown"),
    [
        ((), ["gpt-99", "sandbox-tools", "sandbox-echo"]),
        (("-n", "1"), ["gpt-99"]),
        (("-m", "sandbox-tools"), ["sandbox-tools"]),
        (("--provider", "sandbox"), ["sandbox-tools", "sandbox-echo"]),
        (("--status", "400"), ["gpt-99"]),
        (("--error", "model_not_found"), ["gpt-99"]),
        (("--source", "my-app"), ["sandbox-tools"]),
        (("--request-id", "mine-1"), ["sandbox-tools"]),
        (("--from", "2020-01-01", "--to", "2021-01-01T12:00+02:00"), []),
        (("--from", "2020-01-01"), ["gpt-99", "sandbox-tools", "sandbox-echo"]),
    ],
)
def test_filters_select_requests(filters: tuple[str, ...], shown: list[str], busy: Account, client: Client) -> None:
    assert models(client, *filters) == shown


def test_projects_and_keys_select_requests(busy: Account, client: Client) -> None:
    key = busy.make_key("unused")
    assert len(models(client, "-p", busy.project_id)) == 3
    other = busy("POST", "/projects", {"name": "Second", "organizationId": busy.organization_id})["project"]
    assert models(client, "-p", other["id"]) == []
    assert models(client, "-k", key["id"]) == []


@pytest.mark.parametrize("columns", [40, 80, 200])
@pytest.mark.parametrize("plain", [False, True])
def test_the_table_fits_the_terminal(columns: int, plain: bool, busy: Account, client: Client) -> None:
    environment = {"NO_COLOR": "1"} if plain else {}
    with client.terminal("logs", columns=columns, **environment) as terminal:
        text = terminal.end()
    assert all(len(line) <= columns for line in text.splitlines())
    assert ("\x1b[" in terminal.output) is not plain
    assert "sandbox-tools" in text and "400" in text and "$0.0000" in text


def test_no_requests_is_no_error(client: Client) -> None:
    finished = client.run("logs")
    assert finished.stdout == "" and "No requests match" in finished.stderr


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (("--from", "yesterday"), 1, "--from yesterday is not a time"),
        (("--to", "2026-13-01"), 1, "--to 2026-13-01 is not a time"),
        (("-n", "0"), 2, "0 is not in the range"),
        (("--status", "99"), 2, "99 is not in the range"),
        (("--follow", "--to", "2026-01-01"), 1, "exclude each other"),
    ],
)
def test_wrong_options_are_refused(arguments: tuple[str, ...], code: int, message: str, client: Client) -> None:
    assert message in client.refused("logs", *arguments, code=code)


def test_the_log_needs_a_sign_in(signed_out: Client) -> None:
    assert "llmgateway auth login" in signed_out.refused("logs")


@pytest.mark.parametrize("columns", [40, 80, 200])
def test_following_prints_requests_as_they_end(columns: int, busy: Account, client: Client) -> None:
    with client.terminal("logs", "--follow", "-n", "2", columns=columns) as terminal:
        terminal.expect("gpt-99")
        for number in range(3):
            call(busy, model=f"gpt-{100 + number}")
            terminal.expect(f"gpt-{100 + number}")
        terminal.interrupt()
        text = terminal.end(130)
    assert "sandbox-echo" not in text  # older than the two newest
    # A narrow terminal shortens names, never numbers.
    first = "sandbox-tools" if columns > 40 else "sandb"
    assert text.index(first) < text.index("gpt-99") < text.index("gpt-100")
    assert all(len(line) <= columns for line in text.splitlines())


def test_following_as_one_document_a_line(busy: Account, client: Client) -> None:
    with client.terminal("logs", "-f", "--json", columns=2000) as terminal:
        terminal.expect('"gpt-99"')
        call(busy, model="gpt-100")
        terminal.expect('"gpt-100"')
        terminal.wait_for_silence()
        terminal.interrupt()
        text = terminal.end(130)
    lines = [line for line in text.splitlines() if line.startswith("{")]
    assert [json.loads(line)["model"] for line in lines] == ["sandbox-echo", "sandbox-tools", "gpt-99", "gpt-100"]


@pytest.mark.extended
def test_following_survives_a_service_that_is_away_for_a_moment(signed_out: Client) -> None:
    entry = {"id": "1", "model": "first", "createdAt": "2026-01-01T00:00:00.000Z", "cost": "0.5", "status": 200}
    page = (200, {"logs": [entry], "next": None})
    with StubService({"GET /logs": page}) as service:
        signed_out.configure(sessionToken="token", sessionApiUrl=service.address, sessionEmail="a@b.example")
        with signed_out.terminal("logs", "-f", columns=200, LLMGATEWAY_API_URL=service.address) as terminal:
            terminal.expect("$0.50")
            service.answers["GET /logs"] = (500, {"message": "Broken."})
            terminal.expect("Broken. Trying again.")
            service.answers["GET /logs"] = (200, {"logs": [entry | {"id": "2", "model": "second"}, entry]})
            terminal.expect("second")
            service.answers["GET /logs"] = (500, {"message": "Broken for good."})
            text = terminal.end(1)
    assert text.count("Broken for good.") == 5 and text.count("first") == 1


def test_following_ends_with_the_session(signed_out: Client) -> None:
    with StubService({"GET /logs": (200, {"logs": [], "next": None})}) as service:
        signed_out.configure(sessionToken="token", sessionApiUrl=service.address, sessionEmail="a@b.example")
        with signed_out.terminal("logs", "-f", LLMGATEWAY_API_URL=service.address) as terminal:
            terminal.expect("STATUS")
            service.answers["GET /logs"] = (401, {"message": "Unauthorized"})
            assert "llmgateway auth login" in terminal.end(1)


def test_pages_are_read_until_there_are_enough(signed_out: Client) -> None:
    answers = {"GET /logs": (200, {"logs": [{"id": "1", "model": "m"}], "next": "more"})}
    with StubService(answers) as service:
        signed_out.configure(sessionToken="token", sessionApiUrl=service.address, sessionEmail="a@b.example")
        signed_out.environment["LLMGATEWAY_API_URL"] = service.address
        assert len(signed_out.document("logs", "-n", "3")) == 3
        service.answers["GET /logs"] = (200, {"entries": []})
        assert "without a list of requests" in signed_out.refused("logs")
