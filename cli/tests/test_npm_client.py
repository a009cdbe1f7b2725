"""The published npm client and this one: one gateway, one folder, the same documents.

Skipped where npm or its registry is not available.
"""

import json
import os
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
from harness.accounts import Account
from harness.client_runs import Client
from support import npm

from gateway.configuration.settings import ROOT

pytestmark = pytest.mark.slow
FOLDER = ROOT / "data" / "npm-client"
PACKAGES = {"@llmgateway/cli": "1.11.0"}
CODE = re.compile(r"user_code=([A-Za-z0-9-]+)")
EMAIL, PASSWORD = "owner@localhost", "correct horse battery"
PATIENCE_S = 60
# Commands of both clients that print a document. {project} and {organization} are those of the account.
SHARED = [
    ("orgs", "list"),
    ("projects", "list"),
    ("projects", "list", "-o", "{organization}"),
    ("credits",),
    (
        "keys",
        "create",
        "-d",
        "CI",
        "-p",
        "{project}",
        "-l",
        "50",
        "--period-limit",
        "10",
        "--period",
        "1d",
        "-e",
        "30d",
    ),
    ("keys", "list"),
    ("keys", "list", "--all", "-p", "{project}"),
    ("budget", "get", "{key}"),
    ("usage",),
    ("usage", "--by", "model", "-r", "24h"),
    ("usage", "--by", "key", "--days", "3"),
    ("usage", "-o", "{organization}"),
    ("usage", "sources", "-p", "{project}", "-r", "30d"),
]


class NpmClient:
    """The published client with the environment and the folder of ours."""

    def __init__(self, ours: Client) -> None:
        program = npm.install(FOLDER, PACKAGES) / "@llmgateway" / "cli" / "dist" / "index.js"
        self.command = [str(npm.node(FOLDER)), str(program)]
        self.environment = ours.environment | {"NO_COLOR": "1", "LLMGATEWAY_CONFIG_DIR": str(ours.folder)}

    def run(self, *arguments: str, code: int = 0) -> str:
        done = subprocess.run(
            [*self.command, *arguments],
            env=self.environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=PATIENCE_S,
        )
        assert done.returncode == code, done.stdout + done.stderr
        return done.stdout

    def document(self, *arguments: str) -> Any:
        return json.loads(self.run(*arguments, "--json"))


def members_of(document: Any) -> Any:
    """Return the names in a document, nested; a list is described by its first item."""
    if isinstance(document, dict):
        return {name: members_of(value) for name, value in document.items()}
    if isinstance(document, list):
        return [members_of(item) for item in document[:1]]
    return None


@pytest.fixture
def published(signed_out: Client) -> NpmClient:
    return NpmClient(signed_out)


@pytest.mark.extended
def test_both_print_the_same_documents(client: Client, account: Account) -> None:
    published = NpmClient(client)
    account.use_model(2, x_source="an-app")
    named = {
        "{project}": account.project_id,
        "{organization}": account.organization_id,
        "{key}": account.make_key("First")["id"],
    }
    for command in SHARED:
        arguments = [named.get(argument, argument) for argument in command]
        ours, theirs = client.document(*arguments), published.document(*arguments)
        assert members_of(ours) == members_of(theirs), command
        if "create" not in command:
            assert ours == theirs, command


@pytest.mark.extended
def test_a_sign_in_with_this_client_is_one_for_the_other(
    signed_out: Client, published: NpmClient, account: Account
) -> None:
    signed_out.run("auth", "login", "--email", EMAIL, LLMGATEWAY_PASSWORD=PASSWORD)
    assert EMAIL in published.run("auth", "whoami")
    published.run("auth", "logout")
    assert "not signed in" in signed_out.refused("auth", "whoami")
    signed_out.run("auth", "login", "--key", typed=f"{account.key}\n")
    assert "API key" in published.run("auth", "status")


@pytest.mark.extended
def test_a_sign_in_with_the_other_client_is_one_for_this(
    signed_out: Client, published: NpmClient, account: Account
) -> None:
    command = [*published.command, "auth", "login", "--no-browser", "--dashboard-url", account.address]
    with subprocess.Popen(command, env=published.environment, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        code = next(match[1] for line in process.stdout if (match := CODE.search(line)))
        account("POST", "/auth/device/approve", {"userCode": code})
        assert process.wait(PATIENCE_S) == 0
    assert account.email in signed_out.run("auth", "whoami").stdout
    published.run("projects", "use", account.project_id)
    assert signed_out.config["defaultProjectId"] == account.project_id
    signed_out.run("auth", "logout")
    published.run("auth", "whoami", code=1)


def test_the_folder_stays_private_under_both(signed_out: Client, published: NpmClient) -> None:
    signed_out.run("auth", "login", "--email", EMAIL, LLMGATEWAY_PASSWORD=PASSWORD)
    published.run("auth", "logout")
    assert os.stat(signed_out.folder).st_mode & 0o077 == 0
    assert Path(signed_out.folder / "config.json").stat().st_mode & 0o077 == 0
