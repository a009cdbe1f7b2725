"""`shares` against a gateway; the results are read back through the management API."""

from harness.accounts import Account
from harness.client_runs import Client


def test_links_to_a_request_and_a_session_are_made_listed_and_ended(client: Client, account: Account) -> None:
    organization = f"/orgs/{account.organization_id}"
    assert "There are no links" in client.run("shares", "list").stderr
    account.use_model(**{"x-session-id": "review"})
    [request] = account("GET", "/logs")["logs"]
    made = client.document("shares", "create", request["id"])
    assert account("GET", f"{organization}/shares")["shares"] == [made] and made["subject"] == request["id"]
    assert client.run("shares", "create", request["id"]).stdout.strip() == made["url"], "the same link"
    session = client.document("shares", "create", "--session", "review", "--project", account.project_id)
    assert (session["kind"], session["subject"]) == ("session", "review")
    for wrong in ((), (request["id"], "--session", "review"), ("--session", "review")):
        assert "either a request or a session" in client.refused("shares", "create", *wrong)
    listed = client.run("shares", "list").stdout
    assert made["id"] in listed and session["url"] in listed
    for one in (made, session):
        client.run("shares", "revoke", one["id"])
    assert account("GET", f"{organization}/shares")["shares"] == []
    assert client.refused("shares", "revoke", made["id"])
