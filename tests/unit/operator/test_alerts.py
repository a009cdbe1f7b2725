"""The operator's commands on addresses for alerts."""

import json
from typing import Any

from fakes.server import serving

from gateway import webhooks


def test_an_address_is_added_tested_listed_and_removed(run, monkeypatch) -> None:
    monkeypatch.setenv("GATEWAY_ALLOW_PRIVATE_UPSTREAMS", "true")
    seen: list[tuple[str, str, bytes]] = []

    def take(environ: dict[str, Any], start: Any) -> list[bytes]:
        seen.append((environ["HTTP_WEBHOOK_ID"], environ["HTTP_WEBHOOK_SIGNATURE"], environ["wsgi.input"].read()))
        at = int(environ["HTTP_WEBHOOK_TIMESTAMP"])
        seen[-1] = (*seen[-1][:1], str(at), seen[-1][2])
        signatures.append(environ["HTTP_WEBHOOK_SIGNATURE"])
        start("204 No Content", [])
        return [b""]

    signatures: list[str] = []
    with serving(take) as address:
        added = run("alerts", "add", address, "--event", "books.differ").splitlines()
        hook, secret = added[0], added[1].removeprefix("Secret: ")
        assert run("alerts", "test", hook) == f"{hook}: taken."
        [(ident, at, body)] = seen
        assert signatures == [webhooks.sign(secret, ident, int(at), body)["webhook-signature"]]
        assert json.loads(body)["type"] == "test"
        shown = run("alerts", "list")
        assert address in shown and "books.differ" in shown and secret not in shown
    refused = run("alerts", "test", hook, status=1)
    assert "No connection" in refused and not refused.endswith("..")
    run("alerts", "remove", hook)
    assert run("alerts", "list") == "There are no addresses for alerts."
    audit = run("audit", "list")
    assert "alert_hook.create" in audit and "alert_hook.delete" in audit and secret not in audit


def test_what_cannot_be_told_is_refused(run) -> None:
    assert run("alerts", "add", "not-an-address", status=1).startswith("error: ")
    assert "There is no alert" in run("alerts", "add", "https://x.example", "--event", "rain", status=1)
