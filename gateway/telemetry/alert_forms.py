"""Forms of alerts: the JSON that each kind of receiver documents.

Text of tenants (names of keys and organizations) is in alerts, so each form escapes what its receiver would read as
markup or as a mention.
"""

import re
from collections.abc import Callable, Mapping
from typing import Any

from gateway.accounts.alert_hooks import DISCORD, PAGERDUTY, SLACK, TEAMS, AlertHook
from gateway.clock import SECOND_US, to_iso

Json = dict[str, Any]
LEVEL_LABELS = {"error": "Error", "warning": "Warning", "info": "Notice"}
COLOURS = {"error": 0xD92D20, "warning": 0xF79009, "info": 0x2E90FA}
STYLES = {"error": "Attention", "warning": "Warning", "info": "Accent"}
HEADING_MEMBERS = ("subject", "message", "remedy")  # members of the data that are not facts
MAX_FACTS = 10
CARD = "application/vnd.microsoft.card.adaptive"
SOURCE = "llmgateway"
MARKDOWN = re.compile(r"([\\`*_~|\[\]()<>#])")


def write_body(hook: AlertHook, event: Mapping[str, Any]) -> Json:
    """Return the JSON body of an event in the form of the address."""
    write = FORM_WRITERS.get(hook.form)
    if write is None:
        return dict(event)
    return write(event, hook)


def _slack(event: Mapping[str, Any], hook: AlertHook) -> Json:
    """Return Block Kit blocks (https://docs.slack.dev/reference/block-kit/blocks), within the lengths of its
    reference."""
    data = event["data"]
    blocks: list[Json] = [
        {"type": "header", "text": {"type": "plain_text", "text": _cut(title_of(event), 150), "emoji": False}},
        {"type": "section", "text": {"type": "mrkdwn", "text": _cut(_slack_text(data["message"]), 3000)}},
    ]
    facts = [
        {"type": "mrkdwn", "text": _cut(f"*{_slack_text(name)}*\n{_slack_text(value)}", 2000)}
        for name, value in facts_of(event)
    ]
    if facts:
        blocks.append({"type": "section", "fields": facts})
    if data["remedy"]:
        remedy = {"type": "mrkdwn", "text": _cut(_slack_text(data["remedy"]), 2000)}
        blocks.append({"type": "context", "elements": [remedy]})
    return {"text": _cut(f"{title_of(event)}: {_slack_text(data['message'])}", 3000), "blocks": blocks}


def _teams(event: Mapping[str, Any], hook: AlertHook) -> Json:
    """Return an Adaptive Card in the message format that workflows of Microsoft Teams accept."""
    data = event["data"]
    level = event["level"]
    body: list[Json] = [
        {
            "type": "TextBlock",
            "text": title_of(event),
            "weight": "Bolder",
            "size": "Medium",
            "color": STYLES[level],
            "wrap": True,
        },
        {"type": "TextBlock", "text": _markdown(data["message"]), "wrap": True},
    ]
    facts = [{"title": name, "value": _markdown(value)} for name, value in facts_of(event)]
    if facts:
        body.append({"type": "FactSet", "facts": facts})
    if data["remedy"]:
        body.append({"type": "TextBlock", "text": _markdown(data["remedy"]), "wrap": True, "isSubtle": True})
    card = {
        "$schema": "http://adaptivecards.io/schemas/adaptive-card.json",
        "type": "AdaptiveCard",
        "version": "1.4",
        "body": body,
    }
    return {"type": "message", "attachments": [{"contentType": CARD, "contentUrl": None, "content": card}]}


def _discord(event: Mapping[str, Any], hook: AlertHook) -> Json:
    """Return an embed without mentions (https://discord.com/developers/docs/resources/message#embed-object)."""
    data = event["data"]
    facts = [
        {"name": _cut(name, 256), "value": _cut(_markdown(value), 300), "inline": True}
        for name, value in facts_of(event)
    ]
    embed: Json = {
        "title": _cut(title_of(event), 256),
        "description": _cut(_markdown(data["message"]), 1500),
        "color": COLOURS[event["level"]],
        "timestamp": to_iso(event["created_at"] * SECOND_US),
        "fields": facts,
    }
    if data["remedy"]:
        embed["footer"] = {"text": _cut(data["remedy"], 500)}
    return {"username": SOURCE, "embeds": [embed], "allowed_mentions": {"parse": []}}


def _pagerduty(event: Mapping[str, Any], hook: AlertHook) -> Json:
    """Return an event of the Events API v2 (https://developer.pagerduty.com/docs/send-alert-event)."""
    data = event["data"]
    return {
        "routing_key": hook.secret,
        "event_action": "resolve" if "ends" in data else "trigger",
        "dedup_key": _cut(f"{data.get('ends', event['type'])} {data['subject']}", 255),
        "client": SOURCE,
        "payload": {
            "summary": _cut(data["message"], 1024),
            "source": _cut(data["subject"], 255) or SOURCE,
            "severity": event["level"],
            "timestamp": to_iso(event["created_at"] * SECOND_US),
            "component": SOURCE,
            "class": event["type"],
            "custom_details": {name: value for name, value in data.items() if name != "message"},
        },
    }


FORM_WRITERS: dict[str, Callable[[Mapping[str, Any], AlertHook], Json]] = {
    SLACK: _slack,
    TEAMS: _teams,
    DISCORD: _discord,
    PAGERDUTY: _pagerduty,
}


def title_of(event: Mapping[str, Any]) -> str:
    """Return the headline of an alert, for example "Warning: budget.spent"."""
    return f"{LEVEL_LABELS[event['level']]}: {event['type']}"


def facts_of(event: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Return the facts of an alert besides its message, in words."""
    facts = [
        (name.replace("_", " "), str(value))
        for name, value in event["data"].items()
        if name not in HEADING_MEMBERS and value not in ("", None)
    ]
    return facts[:MAX_FACTS]


def _slack_text(text: str) -> str:
    """Escape the three characters that Slack reads as markup; others only decorate."""
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def _markdown(text: str) -> str:
    return MARKDOWN.sub(r"\\\1", text)


def _cut(text: str, maximum: int) -> str:
    if len(text) <= maximum:
        return text
    return f"{text[: maximum - 1]}…"
