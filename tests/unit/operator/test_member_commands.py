"""The operator's commands on people."""

import json
import os
import re
import sys

import pytest
from support.gateways import ROOT
from support.terminals import Terminal


@pytest.fixture
def organization(run) -> str:
    return run("organizations", "list").splitlines()[1].split()[0]


def test_an_invitation_prints_its_link_once(run, organization, monkeypatch) -> None:
    monkeypatch.setenv("GATEWAY_SERVER_PUBLIC_URL", "https://llm.example.com/")
    link = run("members", "invite", organization, "New@Example.com", "--role", "admin")
    assert re.fullmatch(r"https://llm\.example\.com/console/invitation\?token=llmginv_[\w-]{40}", link)
    trail = run("audit", "list")
    assert "invitation.create" in trail and link.rpartition("=")[2] not in trail


@pytest.mark.parametrize("email", ["nobody", "owner@localhost"])
def test_people_who_cannot_be_invited_are_reported(run, organization, email: str) -> None:
    assert "error: " in run("members", "invite", organization, email, status=1)


def test_an_invitation_is_queued_as_e_mail_where_a_server_is_set_up(run, monkeypatch) -> None:
    organization = json.loads(run("organizations", "list", "--json"))[0]["id"]
    given = ("members", "invite", organization, "ada@example.com", "--json")
    assert json.loads(run(*given))["emailed"] is False
    monkeypatch.setenv("GATEWAY_MAIL_HOST", "mail.example.com")
    assert "[mail] sender" in run("config", "check", status=1)
    monkeypatch.setenv("GATEWAY_MAIL_SENDER", "gw@example.com")
    monkeypatch.setenv("GATEWAY_SERVER_PUBLIC_URL", "https://llm.example.com")
    answer = json.loads(run(*given))
    assert answer["emailed"] is True and answer["link"].startswith("https://llm.example.com/console/invitation")


def test_a_password_for_mail_is_not_sent_unencrypted(run, monkeypatch) -> None:
    values = {"HOST": "mail.example.com", "SENDER": "gw@example.com", "USERNAME": "gw", "SECURITY": "none"}
    for name, value in values.items():
        monkeypatch.setenv(f"GATEWAY_MAIL_{name}", value)
    monkeypatch.setenv("GATEWAY_SERVER_PUBLIC_URL", "https://llm.example.com")
    assert "[mail] security" in run("config", "check", status=1)


@pytest.mark.parametrize("run", ["sqlite"], indirect=True)
@pytest.mark.parametrize(
    ("arguments", "prompts", "secret"),
    [
        (
            ["members", "set-password", "owner@localhost"],
            ["New password of owner@localhost: ", "Repeat"],
            "correct horse",
        ),
        (["provider-keys", "add", "ORGANIZATION", "openai"], ["Secret: "], "sk-typed-at-a-terminal-1234"),
    ],
    ids=lambda value: value[0] if isinstance(value, list) else None,
)
def test_a_secret_is_asked_for_at_a_terminal_and_not_echoed(run, organization, arguments, prompts, secret) -> None:
    program = "from gateway.operator.command import command; command()"
    command = [sys.executable, "-c", program, *(organization if one == "ORGANIZATION" else one for one in arguments)]
    with Terminal(command, ROOT, os.environ | {"PYTHONPATH": str(ROOT)}) as terminal:
        for prompt in prompts:
            terminal.answer(prompt, secret)
        code, text = terminal.end()
    assert code == 0, text
    assert secret not in text
