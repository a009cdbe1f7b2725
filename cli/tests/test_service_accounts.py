"""Commands with the token of a service account, from the environment and stored."""

from typing import Any

import pytest
from harness.accounts import Account
from harness.client_runs import Client

ALL_SCOPES = ("keys:read", "keys:write", "usage:read", "settings:read", "projects:read")


def make_account(account: Account, *scopes: str, **more: Any) -> dict[str, Any]:
    body = {"name": "Terraform", "scopes": list(scopes), **more}
    path = f"/orgs/{account.organization_id}/service-accounts"
    made: dict[str, Any] = account("POST", path, body)["serviceAccount"]
    return made


@pytest.fixture
def automation(account: Account, signed_out: Client) -> Client:
    """A client whose environment has the token of a service account with all scopes that its commands need."""
    token = make_account(account, *ALL_SCOPES)["token"]
    return Client(signed_out.home, {**signed_out.environment, "LLMGATEWAY_SERVICE_TOKEN": token})


def test_every_account_command_works_with_the_token_of_the_environment(automation: Client, account: Account) -> None:
    account.use_model()
    assert automation.document("auth", "whoami")["serviceAccount"]["organizationId"] == account.organization_id
    status = automation.document("auth", "status")
    assert status["signedIn"] is True and set(status["serviceAccount"]["scopes"]) == set(ALL_SCOPES)
    assert [one["id"] for one in automation.document("orgs", "list")] == [account.organization_id]
    assert [one["id"] for one in automation.document("projects", "list")] == [account.project_id]
    assert automation.document("credits")[0]["id"] == account.organization_id
    key = automation.document("keys", "create", "-d", "CI", "-l", "5")
    assert account.key_works(key["token"])
    assert {"CI"} < {one["description"] for one in automation.document("keys", "list")}
    assert automation.document("budget", "set", key["id"], "-l", "7")["usageLimit"] == "7"
    assert automation.document("budget", "get", key["id"])["usageLimit"] == "7"
    assert automation.document("keys", "update", key["id"], "--deactivate")["status"] == "inactive"
    rolled = automation.document("keys", "roll", key["id"], "-y")
    assert rolled["token"] != key["token"]
    automation.run("keys", "delete", key["id"], "-y")
    usage = automation.document("usage", "-p", account.project_id)
    assert sum(row["requestCount"] for row in usage["activity"]) == 1
    assert automation.document("usage", "-o", account.organization_id)[0]["projectId"] == account.project_id
    assert automation.document("usage", "sources", "-p", account.project_id)
    assert not (automation.folder / "config.json").exists()


def test_a_missing_scope_names_the_scope_and_the_remedy(signed_out: Client, account: Account) -> None:
    token = make_account(account, "usage:read")["token"]
    signed_out.environment["LLMGATEWAY_SERVICE_TOKEN"] = token
    assert signed_out.document("usage", "-p", account.project_id)["activity"] is not None
    refused = signed_out.refused("keys", "create", "-d", "x", "-p", account.project_id, "--json")
    assert "requires the scope keys:write" in refused and "/console/automation" in refused
    assert "requires the scope settings:read" in signed_out.refused("orgs", "list")
    assert token not in refused


def test_a_token_that_ended_is_explained(signed_out: Client, account: Account) -> None:
    made = make_account(account, "keys:read")
    signed_out.environment["LLMGATEWAY_SERVICE_TOKEN"] = made["token"]
    path = f"/orgs/{account.organization_id}/service-accounts/{made['id']}"
    account("PATCH", path, {"status": "inactive"})
    refused = signed_out.refused("keys", "list")
    assert "service account is inactive" in refused and "LLMGATEWAY_SERVICE_TOKEN" in refused
    assert signed_out.document("auth", "status")["signedIn"] is False
    signed_out.environment["LLMGATEWAY_SERVICE_TOKEN"] = account.key
    assert "not the token of a service account" in signed_out.refused("keys", "list")


def test_a_token_is_stored_and_removed(signed_out: Client, account: Account) -> None:
    made = make_account(account, "keys:read")
    answer = signed_out.run("auth", "login", "--service-account", "--json", typed=made["token"])
    assert answer.document["email"] == "Terraform" and made["token"] not in answer.stdout + answer.stderr
    assert signed_out.config["sessionToken"] == made["token"]
    assert "service account of" in signed_out.run("auth", "whoami").stdout
    assert "with the scopes keys:read" in signed_out.run("auth", "status").stdout
    assert signed_out.document("keys", "list")
    signed_out.run("auth", "logout")
    assert "sessionToken" not in signed_out.config
    signed_out.environment["LLMGATEWAY_SERVICE_TOKEN"] = made["token"]  # logout ended nothing at the service
    assert signed_out.document("keys", "list")


def test_no_other_token_is_stored(signed_out: Client, account: Account) -> None:
    for token in (account.key, account.token, "llmgsa_x", ""):
        refused = signed_out.refused("auth", "login", "--service-account", typed=token)
        assert "service account" in refused and not signed_out.config
