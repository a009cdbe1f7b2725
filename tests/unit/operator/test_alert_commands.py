"""The operator's commands on addresses for alerts."""

import json
from typing import Any

from fakes.server import serving

from gateway.transport import webhook_delivery


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
        hook, form, secret = added[:3]
        assert form == "webhook" and "Save it now" in added[3]
        assert run("alerts", "test", hook) == "taken"
        [(ident, at, body)] = seen
        assert signatures == [webhook_delivery.sign(secret, ident, int(at), body)["webhook-signature"]]
        assert json.loads(body)["type"] == "test"
        output = run("alerts", "list")
        assert address in output and "books.differ" in output and secret not in output
    refused = run("alerts", "test", hook, status=1)
    assert "No connection" in refused and not refused.endswith("..")
    run("alerts", "remove", hook)
    assert run("alerts", "list") == "There are no alerts."
    audit = run("audit", "list")
    assert "alert_hook.create" in audit and "alert_hook.delete" in audit and secret not in audit


def test_invalid_addresses_and_events_of_alerts_are_refused(run) -> None:
    assert run("alerts", "add", "not-an-address", status=1).startswith("error: ")
    assert "error: Invalid value for 'events" in run("alerts", "add", "https://x.example", "--event", "rain", status=1)


def test_the_form_of_an_address_is_chosen_or_recognised(run) -> None:
    assert "slack" in run("alerts", "add", "https://hooks.slack.com/services/T0/B0/x")
    assert "teams" in run("alerts", "add", "https://proxy.example.com/x", "--form", "teams")
    address = "https://events.pagerduty.com/v2/enqueue"
    assert "PagerDuty requires the integration key" in run("alerts", "add", address, status=1)
    added = run("alerts", "add", address, "--routing-key", "-", typed="R" * 32)
    assert "pagerduty" in added and "R" * 32 not in added + run("alerts", "list")
    assert "email" in run("alerts", "add", "mailto:ops@example.com")
    assert "email" in run("alerts", "add", "mailto:dev@example.com", "--form", "email")
    assert "Not an e-mail address" in run("alerts", "add", "mailto:a@b\nBcc: c@d", status=1)
    output = run("alerts", "list")
    assert [word in output for word in ("slack", "teams", "pagerduty", "mailto:ops@example.com")] == [True] * 4


def test_an_alert_by_mail_says_that_no_server_is_set_up(run) -> None:
    hook = run("alerts", "add", "mailto:ops@example.com").splitlines()[0]
    assert "e-mail is not configured" in run("alerts", "test", hook, status=1)


def test_thresholds_of_a_limit_are_set_shown_and_removed(run) -> None:
    key = json.loads(run("keys", "list", "--json"))[0]["id"]
    run("limits", "set", key, "--total", "10", "--alert-at", "95, 50,80")
    assert json.loads(run("limits", "show", key, "--json"))[0]["alert_at"] == "50,80,95"
    run("limits", "set", key, "--amount", "5", "--period", "1d")
    assert json.loads(run("limits", "show", key, "--json"))[0]["alert_at"] == "50,80,95"
    run("limits", "set", key, "--alert-at", "default")
    assert json.loads(run("limits", "show", key, "--json"))[0]["alert_at"] is None
    for wrong in ("0", "101", "many", "1,2,3,4,5,6,7,8,9"):
        assert "error: " in run("limits", "set", key, "--alert-at", wrong, status=1)
