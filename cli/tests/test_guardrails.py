"""`guardrails` against a gateway; the results are read back through the management API."""

from harness.accounts import Account
from harness.client_runs import Client

CARD = "4111 1111 1111 1111"


def test_guardrail_is_added_tested_changed_excepted_and_deleted(client: Client, account: Account) -> None:
    path = f"/orgs/{account.organization_id}/guardrails"
    assert "no guardrails" in client.run("guardrails", "list").stderr
    added = client.document(
        "guardrails", "add", "No cards", "block", "-d", "payment_card", "-t", "Falcon", "--probation"
    )
    assert account("GET", path)["guardrails"] == [added]
    assert (added["terms"], added["probation"]) == (["Falcon"], True)
    assert "payment_card, 1 terms" in client.run("guardrails", "list").stdout
    client.run("guardrails", "set", added["id"], "--no-probation")
    shown = client.run("guardrails", "test", f"My card is {CARD}")
    assert "would be blocked" in shown.stdout and "No cards: payment_card (block)" in shown.stderr
    client.run("guardrails", "except", added["id"], CARD, "--note", "a test card")
    assert client.run("guardrails", "test", f"My card is {CARD}").stdout == f"My card is {CARD}\n"
    assert "found anything" in client.run("guardrails", "findings").stderr
    assert "0 of 0 retained requests" in client.run("guardrails", "replay", added["id"]).stdout
    assert client.document("guardrails", "set", added["id"], "--off")["status"] == "inactive"
    assert "Nothing is changed" in client.refused("guardrails", "set", added["id"])
    client.run("guardrails", "delete", added["id"])
    assert account("GET", path)["guardrails"] == []


def test_credential_of_a_checker_is_read_from_standard_input_and_never_shown(client: Client, account: Account) -> None:
    given = ("guardrails", "add", "Attacks", "block", "--checker", "lakera_guard", "--on-failure", "warn")
    assert "not given as an argument" in client.refused(*given, "--credential", "marked-credential")
    finished = client.run(*given, "--credential", "-", typed="marked-credential\n")
    rule = finished.stdout.strip()
    (stored,) = account("GET", f"/orgs/{account.organization_id}/guardrails")["guardrails"]
    assert (stored["id"], stored["checker"]["hasCredential"], stored["checker"]["onFailure"]) == (rule, True, "warn")
    assert "marked-credential" not in finished.stdout + finished.stderr + str(stored)
    client.run("guardrails", "delete", rule)
