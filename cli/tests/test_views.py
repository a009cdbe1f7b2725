"""`views` against a gateway; the results are read back through the management API."""

from harness.accounts import Account
from harness.client_runs import Client


def test_view_is_created_changed_sent_to_a_channel_and_deleted(client: Client, account: Account) -> None:
    organization = f"/orgs/{account.organization_id}"
    assert "no saved views" in client.run("views", "list").stderr
    made = client.document("views", "create", "Spend", "--query", "measure=spend&groupBy=user")
    assert account("GET", f"{organization}/views")["views"] == [made] and made["own"]
    assert client.document("views", "update", "Spend", "--name", "Spend of people", "--shared")["shared"]
    assert "Nothing is changed" in client.refused("views", "update", made["id"])
    assert "Spend of people" in client.run("views", "list").stdout
    assert "does not send e-mail" in client.refused("views", "subscribe", "Spend of people")
    address = {"url": "https://hooks.slack.com/services/T0/B0/x"}
    hook = account("POST", f"{organization}/alerts", address)["alert"]["id"]
    options = ("--to", hook, "--weekday", "friday", "--hour", "17", "--timezone", "Europe/Berlin")
    sent = client.document("views", "subscribe", made["id"], *options)
    assert (sent["hookId"], sent["weekday"], sent["hour"], sent["timezone"]) == (hook, "friday", 17, "Europe/Berlin")
    assert client.document("views", "reschedule", sent["id"], "--hour", "9")["hour"] == 9
    assert "friday 9:00" in client.run("views", "subscriptions").stdout
    assert "within a minute" in client.run("views", "send", sent["id"]).stderr
    client.run("views", "unsubscribe", sent["id"])
    assert "No views are sent" in client.run("views", "subscriptions").stderr
    client.run("views", "delete", "Spend of people")
    assert account("GET", f"{organization}/views")["views"] == []
