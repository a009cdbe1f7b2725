"""docs/cli.md: its session is recorded from a gateway, and its commands and variables exist.

`WRITE_GOLDENS=1 pytest cli/tests/test_client_documents.py` records the session again.
"""

import os
import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import click
import pytest
from harness.accounts import Account
from harness.client_runs import Client
from harness.fake_agents import FakeAgents
from support.gateways import local_gateway
from support.pages import FENCE, spans
from support.shared import load

from gateway.configuration.settings import ROOT
from llmgateway_cli.main import main

PAGE = ROOT / "docs" / "cli.md"
SOURCES = ROOT / "cli" / "llmgateway_cli"
EMAIL, PASSWORD = "owner@localhost", "correct horse battery"
KEY = "key_0123456789abcdef0123456789abcdef"
COLUMNS = 120
# The lines of the session, with the answers that a person types.
SESSION = [
    (f"auth login --email {EMAIL}", [("Password:", PASSWORD)]),
    ("projects list", []),
    ('keys create -d "Nightly build" -l 50 --period-limit 10 --period 1d', []),
    ("keys list --all", []),
    (f"budget set {KEY} -l 20", []),
    ("usage --by model", []),
    ("usage --by key --from 2020-01-01 --to 2020-01-31", []),
    (f"keys delete {KEY}", [("[y/N]", "y")]),
    (f"keys delete {KEY} -y", []),
    ("auth logout", []),
]
# Values that differ in each run, and what the page has instead, of the same length.
NORMAL = [
    (re.compile(r"http://127\.0\.0\.1:\d+"), "http://127.0.0.1:4001"),
    (re.compile(r"\b(key|proj|org)_[0-9a-f]{32}"), r"\1_0123456789abcdef0123456789abcdef"),
    (re.compile(r"llmgtwy_[\w-]{40}"), "llmgtwy_" + "4f7Jw0QzVb" * 4),
    (re.compile(r"llmgtwy_[\w-]{4}•"), "llmgtwy_4f7J•"),
    (re.compile(r"Request id: [0-9a-f]{32}"), "Request id: 0123456789abcdef0123456789abcdef"),
    (re.compile(r" +$", re.MULTILINE), ""),
]
VARIABLE = re.compile(r"LLMGATEWAY_[A-Z_]+")


@pytest.fixture
def account(tmp_path: Path) -> Iterator[Account]:
    """The first organization of a new gateway."""
    with local_gateway(lambda **more: load(tmp_path, **more), GATEWAY_BOOTSTRAP_PASSWORD=PASSWORD) as running:
        yield Account(running)


def record(client: Client, account: Account) -> str:
    """Return the terminal's text of the session."""
    key_id = ""
    shown = []
    for line, answers in SESSION:
        typed = line.replace(KEY, key_id)
        with client.terminal(*shlex.split(typed), columns=COLUMNS, NO_COLOR="1") as terminal:
            for prompt, answer in answers:
                terminal.answer(prompt, answer)
            code = int(line.endswith("-y"))
            text = terminal.end(code)
        if "keys create" in line:
            key_id = account.list_keys()["Nightly build"]["id"]
        shown.append(f"$ llmgateway {line}\n{text.rstrip()}\n")
    session = "\n".join(shown)
    for pattern, normal in NORMAL:
        session = pattern.sub(normal, session)
    return session


def test_the_session_of_the_page_is_that_of_the_program(signed_out: Client, account: Account) -> None:
    account.use_model(3)
    session = record(signed_out, account)
    page = PAGE.read_text()
    (block,) = [match for match in FENCE.finditer(page) if match[3].split() == ["text", "session"]]
    if os.environ.get("WRITE_GOLDENS"):
        PAGE.write_text(page[: block.start(4)] + session + page[block.end(4) :])
        return
    assert block[4] == session


@pytest.mark.parametrize("text", sorted({span for span in spans(PAGE) if span.startswith("llmgateway ")}))
def test_a_command_of_the_page_is_understood(text: str) -> None:
    command: click.Command = main
    words = shlex.split(text)[1:]
    while isinstance(command, click.Group) and words and not words[0].startswith("-"):
        subcommand = command.get_command(click.Context(command), words.pop(0))
        assert subcommand is not None, text
        command = subcommand
    command.make_context(text, words)


def test_every_variable_of_the_page_is_read() -> None:
    sources = "".join(path.read_text() for path in SOURCES.rglob("*.py"))
    assert {name for name in VARIABLE.findall(PAGE.read_text()) if f'"{name}"' not in sources} == set()


def test_the_own_agent_of_the_page_starts(signed_out: Client, account: Account, tmp_path: Path) -> None:
    (block,) = [match for match in FENCE.finditer(PAGE.read_text()) if match[3].split() == ["json", "agents"]]
    agents = FakeAgents(tmp_path / "programs")
    agents.install("my-agent")
    signed_out.folder.mkdir(mode=0o700)
    (signed_out.folder / "agents.json").write_text(block[4])
    signed_out.run("launch", "-m", "auto", "mine", "--more", PATH=agents.path, LLMGATEWAY_API_KEY=account.key)
    assert agents.arguments("my-agent") == ["--base-url", f"{account.address}/v1", "--model", "auto", "--more"]
    assert agents.environment("my-agent")["MY_AGENT_KEY"] == account.key
