"""`routes` against a gateway; the results are read back through the management API."""

import json
from pathlib import Path

from harness.accounts import Account
from harness.client_runs import Client


def test_route_is_checked_set_published_rolled_back_and_deleted(
    client: Client, account: Account, tmp_path: Path
) -> None:
    routes = f"/orgs/{account.organization_id}/routes"
    file = tmp_path / "house.json"
    file.write_text(json.dumps({"rules": [{"when": {"agent": "sub"}, "use": "sandbox-echo"}], "otherwise": "auto"}))
    assert "no routes" in client.run("routes", "list").stderr
    assert "a sub-agent calls" in client.run("routes", "check", str(file)).stdout
    assert client.document("routes", "set", "house", str(file), "--alias", "house-default")["aliases"] == [
        "house-default"
    ]
    account.use_model(1)
    assert client.document("routes", "simulate", str(file))["requests"] == 1
    assert "would cost" in client.run("routes", "simulate", str(file), "--days", "1").stderr
    assert "has no version" in client.run("routes", "versions", "house").stderr
    assert client.document("routes", "publish", "house")["publishedVersion"] == 1
    file.write_text(json.dumps({"otherwise": "sandbox-echo"}))
    client.run("routes", "set", "house", str(file))
    assert client.document("routes", "publish", "house")["publishedVersion"] == 2
    assert client.document("routes", "publish", "house", "--version", "1")["publishedVersion"] == 1
    assert account("GET", f"{routes}/house")["route"] == client.document("routes", "show", "house")
    assert [one["version"] for one in client.document("routes", "versions", "house")] == [2, 1]
    assert "dynamic/house" in client.run("routes", "list").stdout
    assert "No route served" in client.run("routes", "savings").stderr
    client.run("routes", "delete", "house")
    assert account("GET", routes)["routes"] == []
    file.write_text("[]")
    assert "no JSON object" in client.refused("routes", "check", str(file))
