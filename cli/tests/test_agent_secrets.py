"""Marked secrets never appear in output, command lines, tracebacks, or files that others can read."""

import json
import stat
from pathlib import Path

import pytest
from harness.accounts import Account
from harness.client_runs import Client
from harness.fake_agents import FakeAgents

SESSION = "MARKED-SESSION-SECRET"
COMMANDS = [
    ("models", "-s", "sandbox"),
    ("models", "--json", "-s", "sandbox-echo"),
    ("launch", "--list"),
    ("launch", "--dry-run", "claude", "SECRET"),
    ("launch", "--dry-run", "--json", "codex", "SECRET"),
    ("launch", "--check-key", "claude"),
    ("launch", "-m", "auto", "codex"),
    ("launch", "-m", "auto", "crush"),
    ("launch", "-m", "no-such-model", "codex"),
    ("launch", "missing-agent"),
    ("configure", "claude"),
    ("configure", "--dry-run", "claude"),
    ("configure", "opencode"),
    ("configure", "--project", "--json", "claude"),
    ("chat", "-m", "sandbox-echo", "Hello"),
    ("chat", "--json", "-m", "no-such-model", "Hello"),
    ("logs",),
    ("logs", "--json"),
    ("doctor",),
    ("doctor", "--json"),
    ("completion", "bash"),
]


@pytest.fixture
def agents(tmp_path: Path) -> FakeAgents:
    agents = FakeAgents(tmp_path / "programs")
    for name in ("claude", "codex", "crush"):
        agents.install(name)
    return agents


@pytest.mark.parametrize("debug", [False, True])
@pytest.mark.parametrize("accepted", [False, True])
@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_no_secret_is_shown(
    command: tuple[str, ...], accepted: bool, debug: bool, account: Account, client: Client, agents: FakeAgents
) -> None:
    """With credentials that the service accepts and refuses, and with traces of faults."""
    secrets = [account.key, account.token]
    if not accepted:
        client.configure(sessionToken=SESSION)
        secrets = ["llmgtwy_MARKED-KEY-SECRET", SESSION]
    given = [secrets[0] if word == "SECRET" else word for word in command]
    environment = {"PATH": agents.path, "LLMGATEWAY_API_KEY": secrets[0]}
    if debug:
        environment["LLMGATEWAY_DEBUG"] = "1"
    finished = client.run(*given, code=None, **environment)
    started = "".join(agents.command_line(name) for name in ("claude", "codex", "crush") if agents.was_started(name))
    for secret in secrets:
        assert secret not in finished.stdout + finished.stderr + started
    check_files(client.home, secrets)


def check_files(folder: Path, secrets: list[str]) -> None:
    """Check that only the user can read the files with secrets."""
    for path in folder.rglob("*"):
        if path.is_file() and any(secret in path.read_text() for secret in secrets):
            inner = [path, *(parent for parent in path.parents if parent.is_relative_to(folder))]
            closed = [folder for folder in inner if not stat.S_IMODE(folder.stat().st_mode) & 0o077]
            assert closed, path


@pytest.mark.parametrize("settings", [["MARKED"], {"llmgateway": "MARKED"}, {"llmgateway": {"options": ["MARKED"]}}])
def test_values_of_settings_of_another_shape_are_not_shown(settings: object, account: Account, client: Client) -> None:
    path = client.home / ".config" / "opencode" / "opencode.json"
    path.parent.mkdir(parents=True)
    path.write_text(json.dumps({"provider": settings}))
    finished = client.run("doctor", LLMGATEWAY_API_KEY=account.key, LLMGATEWAY_DEBUG="1")
    assert "MARKED" not in finished.stdout + finished.stderr and str(path) in finished.stdout
