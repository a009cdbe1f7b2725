"""Marked secrets appear in no output, no process list, no trace of a fault, and no file that others may read."""

import os
import stat
from collections.abc import Iterator
from pathlib import Path

import click
import pytest
from harness.client_runs import Client
from harness.fake_service import HANG, TOKEN, Answer, FakeService

from llmgateway_cli.errors import CliError
from llmgateway_cli.main import COMMANDS, main, unexpected

SESSION = "marked-session-4f1c"
COOKIE = "marked-cookie-77d0"
KEY = "llmgtwy_marked-key-93ab"
PASSWORD = "marked-password-2e6f"
SECRETS = (SESSION, COOKIE, KEY, PASSWORD)

# A new key's token is shown by these commands alone, once.
COMMAND_LINES = [
    ("auth", "status"),
    ("auth", "whoami"),
    ("auth", "login", "--email", "al@example.com"),
    ("auth", "login", "--key"),
    ("auth", "login", "--no-browser"),
    ("orgs", "list"),
    ("orgs", "use", "Acme"),
    ("projects", "list"),
    ("projects", "use", "project_1"),
    ("members", "list"),
    ("teams", "list"),
    ("credits",),
    ("keys", "list"),
    ("keys", "update", "key_1", "--activate"),
    ("keys", "limit", "key_1", "-l", "1"),
    ("keys", "delete", "key_1", "-y"),
    ("budget", "get", "key_1"),
    ("budget", "set", "key_1", "--clear"),
    ("routes", "list"),
    ("guardrails", "list"),
    ("usage",),
    ("usage", "sources", "-p", "project_1"),
    ("models",),
    ("chat", "-m", "auto", "Hello"),
    ("files", "list"),
    ("jobs", "list"),
    ("logs",),
    ("views", "list"),
    ("shares", "list"),
    ("doctor",),
    ("launch", "--dry-run", "claude"),
    ("configure", "claude", "--dry-run"),
    ("list",),
    ("docs", "api"),
    ("auth", "logout"),
]
# Commands that neither read a credential nor send one.
WITHOUT_SECRETS = {"init", "add", "dev", "upgrade", "serve", "completion"}
SHOWING = [("keys", "create", "-d", "x", "-p", "project_1"), ("keys", "roll", "key_1", "-y")]


@pytest.fixture(params=["token", "cookie"])
def client(service: FakeService, tmp_path: Path, request: pytest.FixtureRequest) -> Client:
    """A client with a secret of every kind."""
    secrets = {"LLMGATEWAY_API_KEY": KEY, "LLMGATEWAY_PASSWORD": PASSWORD, "LLMGATEWAY_TIMEOUT": "2"}
    client = Client(tmp_path / "home", {"LLMGATEWAY_API_URL": service.url, **secrets})
    session = {"sessionToken": SESSION}
    if request.param == "cookie":
        session = {"sessionCookie": f"x.session_token={COOKIE}"}
    client.configure(sessionApiUrl=service.url, sessionEmail="al@example.com", apiKey=KEY, **session)
    return client


@pytest.mark.parametrize("arguments", COMMAND_LINES + SHOWING, ids=" ".join)
def test_no_command_prints_a_secret(arguments: tuple[str, ...], service: FakeService, client: Client) -> None:
    shown = "".join(
        finished.stdout + finished.stderr
        for more in ((), ("--json",))
        for finished in [client.run(*more, *arguments, code=None, LLMGATEWAY_DEBUG="1")]
    )
    assert [secret for secret in SECRETS if secret in shown] == []
    assert (TOKEN in shown) is (arguments in SHOWING)
    assert "A fault of this program" not in shown


@pytest.mark.parametrize("arguments", COMMAND_LINES, ids=" ".join)
def test_a_service_that_repeats_a_secret_is_not_quoted(
    arguments: tuple[str, ...], service: FakeService, client: Client
) -> None:
    echo = f"Refused: {SESSION} {COOKIE} {KEY} {PASSWORD}"
    service.script(*[Answer(403, {"message": echo, "error": {"message": echo, "code": "x"}})] * 4)
    finished = client.run(*arguments, code=None, LLMGATEWAY_DEBUG="1")
    shown = finished.stdout + finished.stderr
    used = SECRETS if "--email" in arguments else (SESSION, COOKIE, KEY)
    own = [secret for secret in used if secret in (client.folder / "config.json").read_text() or secret == KEY]
    assert [secret for secret in own if secret in shown] == []


@pytest.mark.parametrize("place", ["LLMGATEWAY_API_KEY", "LLMGATEWAY_SERVICE_TOKEN", "apiKey", "sessionToken"])
def test_a_refusal_does_not_repeat_a_secret_that_was_typed(place: str, tmp_path: Path) -> None:
    client = Client(tmp_path / "home")
    if place.isupper():
        client.environment[place] = KEY
    else:
        client.configure(**{place: KEY})
    assert "There is no agent '[hidden]'" in client.refused("launch", KEY)


def test_a_service_that_repeats_the_key_of_the_option_is_not_quoted(service: FakeService, tmp_path: Path) -> None:
    service.script(Answer(403, {"error": {"message": f"No: {KEY}", "code": "x"}}))
    client = Client(tmp_path / "home", {"LLMGATEWAY_API_URL": service.url})
    assert "No: [hidden]" in client.refused("chat", "-k", KEY, "Hello")


def test_a_secret_is_in_no_process_list(service: FakeService, client: Client) -> None:
    service.script(HANG)
    with client.terminal("keys", "list") as terminal:
        terminal.expect("Waiting for")
        listed = [
            (process / "cmdline").read_bytes()
            for process in Path("/proc").iterdir()
            if process.name.isdigit() and (process / "cmdline").exists()
        ]
        terminal.end(1)
    assert not any(secret.encode() in line for secret in SECRETS for line in listed)


def test_nothing_that_is_written_can_be_read_by_others(service: FakeService, client: Client) -> None:
    before = os.umask(0)
    try:
        for arguments in COMMAND_LINES[:-1]:
            client.run(*arguments, code=None)
    finally:
        os.umask(before)
    for path in client.folder.rglob("*"):
        assert stat.S_IMODE(path.stat().st_mode) & 0o077 == 0, path
    assert stat.S_IMODE(client.folder.stat().st_mode) == 0o700


def commands_of(command: click.Command, name: str) -> Iterator[tuple[str, click.Command]]:
    yield name, command
    if isinstance(command, click.Group):
        context = click.Context(command)
        for inner in command.list_commands(context):
            subcommand = command.get_command(context, inner)
            assert subcommand is not None
            yield from commands_of(subcommand, f"{name} {inner}")


def test_no_option_takes_a_password_because_shells_keep_histories() -> None:
    secret_words = ("password", "token", "secret", "cookie")
    taking = [
        (name, parameter.name)
        for name, command in commands_of(main, "llmgateway")
        for parameter in command.params
        if any(word in str(parameter.name) for word in secret_words) and not getattr(parameter, "is_flag", False)
    ]
    assert taking == []


def test_a_fault_names_its_place_and_no_value(monkeypatch: pytest.MonkeyPatch) -> None:
    try:
        raise ValueError(SESSION)
    except ValueError as error:
        short = unexpected(error)
        monkeypatch.setenv("LLMGATEWAY_DEBUG", "1")
        long = unexpected(error)
    assert isinstance(short, CliError) and "ValueError at test_secrets.py:" in short.message
    assert "test_a_fault_names_its_place_and_no_value" in long.message
    assert SESSION not in short.message + long.message


def test_every_top_level_command_is_among_the_lines() -> None:
    assert {line[0] for line in COMMAND_LINES} | WITHOUT_SECRETS == COMMANDS.keys()
