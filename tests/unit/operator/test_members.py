"""The operator's commands on people."""

import re

import pytest


@pytest.fixture
def organization(run) -> str:
    return run("organizations", "list").splitlines()[1].split()[0]


def test_an_invitation_prints_its_link_once(run, organization, monkeypatch) -> None:
    monkeypatch.setenv("GATEWAY_SERVER_PUBLIC_URL", "https://llm.example.com/")
    link = run("members", "invite", organization, "New@Example.com", "--role", "admin")
    assert re.fullmatch(r"https://llm\.example\.com/connect/invitation\?token=llmginv_[\w-]{40}", link)
    trail = run("audit", "list")
    assert "invitation.create" in trail and link.rpartition("=")[2] not in trail


@pytest.mark.parametrize("email", ["nobody", "owner@localhost"])
def test_who_cannot_be_invited_is_reported(run, organization, email: str) -> None:
    assert "error: " in run("members", "invite", organization, email, status=1)
