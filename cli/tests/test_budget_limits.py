"""`budget` and the limits of an organization: set, listed, simulated, raised and deleted."""

from harness.accounts import Account
from harness.client_runs import Client


def test_a_limit_is_simulated_before_it_is_set_and_afterwards(client: Client, account: Account) -> None:
    draft = ("budget", "put", "tight", "0.000001", "--subject", "organization", "--period", "1mo")
    tried = client.run(*draft, "--dry-run").stdout
    assert "Requests refused" in tried and "There are no limits" in client.run("budget", "list").stderr
    client.run(*draft)
    assert "tight" in client.run("budget", "list").stdout
    done = client.document("budget", "simulate", "tight", "--days", "7")
    assert done["complete"] is True and done["requests"] >= done["refusedRequests"]
    assert "Their cost" in client.run("budget", "simulate", "tight").stdout
    assert "$1.00" in client.run("budget", "raise", "tight", "1", "--until", "2d").stdout
    client.run("budget", "delete", "tight")
    assert "There are no limits" in client.run("budget", "list").stderr


def test_the_tags_of_a_key_are_set_shown_and_removed(client: Client, account: Account) -> None:
    account.make_key("Tagged")
    assert "no tags" in client.run("keys", "tag", "Tagged").stderr
    assert "search" in client.run("keys", "tag", "Tagged", "team=search", "product=help").stdout
    assert client.document("keys", "tag", "Tagged") == {"team": "search", "product": "help"}
    assert "Write each tag" in client.refused("keys", "tag", "Tagged", "team")
    client.run("keys", "tag", "Tagged", "--clear")
    assert client.document("keys", "tag", "Tagged") == {}
