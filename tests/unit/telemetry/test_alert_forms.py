"""Alerts in the form that each receiver documents, checked by its own library where there is one."""

import json
from typing import Any

import pytest
from microsoft_teams.cards import AdaptiveCard
from slack_sdk.models.blocks import Block

from gateway.accounts.alert_hooks import AlertHook, recognise_form
from gateway.runtime.state_changes import ERROR, INFO, WARNING, StateChange
from gateway.telemetry.alert_delivery import event_of, with_names, write_body

AT_US = 1_700_000_000_000_000
KEY = "R" * 32
FACTS: dict[str, object] = {"scope": "key", "id": "key_1", "organization": "org_1", "left_usd": "2", "limit_usd": "10"}
SPENT = StateChange("budget.spent", "key key_1 total", "key key_1 spent 100 %", ERROR, "raise it", FACTS)
HOSTILE = StateChange("credits.low", "x", "<!channel> [click](http://x) @everyone " + "y" * 9000, facts=dict(FACTS))


def written(form: str, change: StateChange = SPENT, names: dict[str, str] | None = None) -> dict[str, Any]:
    hook = AlertHook("hook_1", "org_1", "https://x.example", (), 0, KEY, form)
    return json.loads(json.dumps(write_body(hook, with_names(event_of(change, AT_US, AT_US), names or {}))))


@pytest.mark.parametrize(
    ("url", "form"),
    [
        ("https://hooks.slack.com/services/T0/B0/x", "slack"),
        ("https://example.webhook.office.com/webhookb2/x", "teams"),
        ("https://prod-1.westeurope.logic.azure.com:443/workflows/x", "teams"),
        ("https://hooks.slack-gov.com/services/T0/B0/x", "slack"),
        ("https://default1.api.powerplatform.com/powerautomate/x", "teams"),
        ("https://discord.com/api/webhooks/1/x", "discord"),
        ("https://discordapp.com/api/webhooks/1/x", "discord"),
        ("https://events.pagerduty.com/v2/enqueue", "pagerduty"),
        ("https://events.eu.pagerduty.com/v2/enqueue", "pagerduty"),
        ("mailto:ops@example.com", "email"),
        ("https://ops.example.com/hook", "webhook"),
        ("https://hooks.slack.com.example.com/x", "webhook"),
        ("https://evil-discord.com/x", "webhook"),
        ("https://[broken", "webhook"),
    ],
)
def test_the_form_is_recognised_by_the_address(url: str, form: str) -> None:
    assert recognise_form(url) == form


@pytest.mark.parametrize("change", [SPENT, HOSTILE])
def test_slack_gets_blocks_that_its_library_accepts(change: StateChange) -> None:
    body = written("slack", change)
    assert set(body) == {"text", "blocks"} and len(body["text"]) <= 3000
    for block in Block.parse_all(body["blocks"]):
        assert block is not None
        block.validate_json()
    assert "<!channel>" not in json.dumps(body)
    assert len(body["blocks"][0]["text"]["text"]) <= 150 and len(body["blocks"][1]["text"]["text"]) <= 3000


@pytest.mark.parametrize("change", [SPENT, HOSTILE])
def test_teams_gets_an_adaptive_card_that_its_library_accepts(change: StateChange) -> None:
    body = written("teams", change)
    [attachment] = body["attachments"]
    assert (body["type"], attachment["contentType"]) == ("message", "application/vnd.microsoft.card.adaptive")
    card = AdaptiveCard.model_validate(attachment["content"])
    assert [part.type for part in card.body][:3] == ["TextBlock", "TextBlock", "FactSet"]
    assert "[click](" not in json.dumps(body)


@pytest.mark.parametrize("change", [SPENT, HOSTILE])
def test_discord_gets_an_embed_within_its_limits_without_mentions(change: StateChange) -> None:
    body = written("discord", change)
    [embed] = body["embeds"]
    assert body["allowed_mentions"] == {"parse": []} and 0 <= embed["color"] <= 0xFFFFFF
    assert len(embed["title"]) <= 256 and len(embed["description"]) <= 4096 and len(embed["fields"]) <= 25
    assert all(0 < len(field["name"]) <= 256 and 0 < len(field["value"]) <= 1024 for field in embed["fields"])
    assert sum(map(len, (embed["title"], embed["description"], *map(str, embed["fields"])))) <= 6000
    assert embed["timestamp"] == "2023-11-14T22:13:20.000Z"


@pytest.mark.parametrize("change", [SPENT, HOSTILE])
def test_pagerduty_gets_an_event_of_version_2(change: StateChange) -> None:
    body = written("pagerduty", change)
    assert (body["routing_key"], body["event_action"]) == (KEY, "trigger") and len(body["dedup_key"]) <= 255
    payload = body["payload"]
    assert {"summary", "source", "severity"} <= set(payload) and 0 < len(payload["summary"]) <= 1024
    assert payload["severity"] in ("critical", "error", "warning", "info") and payload["source"]
    assert payload["custom_details"]["organization"] == "org_1"


def test_the_message_is_no_fact_beside_itself() -> None:
    fields = [field["text"].partition("\n")[0] for field in written("slack")["blocks"][2]["fields"]]
    assert fields == ["*scope*", "*id*", "*organization*", "*left usd*", "*limit usd*"]


@pytest.mark.parametrize(
    ("level", "word", "colour", "style"),
    [
        (ERROR, "Error", 0xD92D20, "Attention"),
        (WARNING, "Warning", 0xF79009, "Warning"),
        (INFO, "Notice", 0x2E90FA, "Accent"),
    ],
)
def test_each_level_has_its_word_and_colour(level: int, word: str, colour: int, style: str) -> None:
    change = StateChange("budget.spent", "key key_1 total", "spent", level, "")
    [embed] = written("discord", change)["embeds"]
    assert (embed["title"], embed["color"]) == (f"{word}: budget.spent", colour)
    [attachment] = written("teams", change)["attachments"]
    assert attachment["content"]["body"][0]["color"] == style


def test_names_stand_beside_ids() -> None:
    event = with_names(event_of(SPENT, AT_US, AT_US), {"key_1": "CI", "org_1": "Acme"})
    data = event["data"]
    assert (data["name"], data["organization_name"]) == ("CI", "Acme")
    assert data["message"] == "key CI (key_1) spent 100 %"


def test_a_webhook_gets_the_event_unchanged() -> None:
    body = written("webhook")
    assert body["object"] == "event" and body["level"] == "error" and body["data"]["subject"] == "key key_1 total"
