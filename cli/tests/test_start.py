"""The start of the program: help, exit codes, its console script, and the modules that it imports."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from harness.client_runs import Client
from harness.fake_service import FakeService

from llmgateway_cli import __version__
from llmgateway_cli.main import COMMANDS

CLIENT = Path(__file__).resolve().parents[1]
ROOT = CLIENT.parent
# Modules that take long to import, and the command lines that may import them.
SLOW = ("requests", "urllib3", "rich", "webbrowser", "email", "http", "asyncio", "gevent", "gateway")
LIST_IMPORTS = """
import sys
from llmgateway_cli.main import run
run(sys.argv[1:])
print(*sys.modules, file=sys.stderr)
"""


@pytest.fixture
def stranger(tmp_path: Path) -> Client:
    return Client(tmp_path / "home")


def imported_by(client: Client, *arguments: str, **environment: str) -> set[str]:
    """Return the packages that a run in a fresh process imports."""
    command = [sys.executable, "-c", LIST_IMPORTS, *arguments]
    own = {**client.environment, "PYTHONPATH": str(CLIENT), **environment}
    done = subprocess.run(command, env=own, capture_output=True, text=True, timeout=60)
    return {name.partition(".")[0] for name in done.stderr.splitlines()[-1].split()}


@pytest.mark.parametrize("arguments", [("--help",), ("--version",), ("keys", "--help"), ("usage", "-r", "3d")])
def test_help_and_local_refusals_import_neither_requests_nor_rich(arguments: tuple[str, ...], stranger: Client) -> None:
    assert imported_by(stranger, *arguments).isdisjoint(SLOW)


def test_a_request_imports_requests_and_a_pipe_needs_no_rich(stranger: Client) -> None:
    with FakeService() as service:
        stranger.configure(sessionToken="token-of-al", sessionApiUrl=service.url, sessionEmail="al@example.com")
        imported = imported_by(stranger, "keys", "list", LLMGATEWAY_API_URL=service.url)
    assert "requests" in imported and imported.isdisjoint({"rich", "webbrowser", "asyncio", "gevent", "gateway"})


@pytest.mark.parametrize("columns", [40, 80, 200])
def test_the_overview_names_every_command(columns: int, stranger: Client) -> None:
    with stranger.terminal("--help", columns=columns) as terminal:
        text = terminal.end()
    for name in COMMANDS:
        assert f"\n  {name} " in text
    assert max(len(line) for line in text.splitlines()) <= columns
    assert stranger.run("-h").stdout == stranger.run("--help").stdout


@pytest.mark.parametrize("name", COMMANDS)
def test_each_command_has_help(name: str, stranger: Client) -> None:
    assert "Usage: llmgateway " in stranger.run(name, "--help").stdout


def test_the_version_is_printed(stranger: Client) -> None:
    assert stranger.run("--version").stdout == f"llmgateway, version {__version__}\n"


@pytest.mark.parametrize(
    "arguments", [("sing",), ("keys", "list", "--sing"), ("budget", "get"), ("auth", "login", "--timeout", "x")]
)
def test_wrong_usage_has_its_own_code(arguments: tuple[str, ...], stranger: Client) -> None:
    message = stranger.refused(*arguments, code=2)
    assert message.startswith("error: ") and "--help" in message


def test_a_group_without_command_shows_its_help(stranger: Client) -> None:
    assert stranger.refused("keys", code=2).startswith("Usage: llmgateway keys")


def test_a_reader_that_ends_early_is_no_fault(stranger: Client) -> None:
    command = f"{sys.executable} -m llmgateway_cli --help | true; exit ${{PIPESTATUS[0]}}"
    own = {**stranger.environment, "PYTHONPATH": str(CLIENT)}
    done = subprocess.run(["bash", "-c", command], env=own, capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stderr) == (1, "")


def test_the_checkout_has_a_script(stranger: Client) -> None:
    done = subprocess.run(
        [ROOT / "llmgateway", "--version"], capture_output=True, text=True, timeout=60, cwd=stranger.home
    )
    assert (done.returncode, done.stderr) == (0, "") and __version__ in done.stdout


def test_output_works_in_a_locale_without_unicode(stranger: Client) -> None:
    with FakeService() as service:
        stranger.configure(sessionToken="token-of-al", sessionApiUrl=service.url, sessionEmail="al@example.com")
        own = {**stranger.environment, "PYTHONPATH": str(CLIENT), "LLMGATEWAY_API_URL": service.url}
        own |= {"LC_ALL": "C", "PYTHONIOENCODING": "ascii"}
        command = [sys.executable, "-m", "llmgateway_cli", "keys", "list"]
        done = subprocess.run(command, env=own, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    assert "key_1" in done.stdout


def test_the_environment_is_unchanged() -> None:
    assert "LLMGATEWAY_API_URL" not in os.environ
