"""Alerts: state changes sent as signed webhooks to the addresses that subscribed, with retries until they are accepted.

A worker that sees a state change notes it; within a second it becomes one document per address, under a name that every
worker derives identically from the incident, so that the alert is sent once, and its end once. The leading worker
delivers. That the database is away is sent at once by the first worker that sees it, to addresses it knows already.
"""

import hashlib
import logging
import re
from collections import Counter, OrderedDict, deque
from collections.abc import Callable, Mapping
from contextlib import suppress
from operator import itemgetter
from typing import Any, TypeVar

import orjson
from msgspec import Struct, field

from gateway.accounts.alert_hooks import (
    DISCORD,
    EMAIL,
    ENDS,
    EVENTS,
    MAILTO,
    PAGERDUTY,
    SLACK,
    STORED_ALERTS,
    TEAMS,
    WEBHOOK,
    AlertHook,
    AlertHooks,
)
from gateway.clock import HOUR_US, SECOND_US, Clock, to_iso
from gateway.configuration.settings import MANAGE
from gateway.errors import GatewayError
from gateway.runtime.loop_turns import ShouldContinue, always
from gateway.runtime.state_changes import StateChange, StateLog
from gateway.runtime.threads import Job
from gateway.store.documents import Documents
from gateway.telemetry.alert_history import AlertHistory
from gateway.telemetry.alert_incidents import Incidents, OutageClaims
from gateway.telemetry.view_reports import EVENT as VIEW
from gateway.transport import Transport
from gateway.transport.mail import Mail, Mailer, MailFailed
from gateway.transport.webhook_delivery import TIMEOUT_S, deliver, next_wait_us

# Forms of alerts: the JSON that each kind of receiver documents.
#
# Text of tenants (names of keys and organizations) is in alerts, so each form escapes what its receiver would read as
# markup or as a mention.

Json = dict[str, Any]
LEVEL_LABELS = {"error": "Error", "warning": "Warning", "info": "Notice"}
COLOURS = {"error": 0xD92D20, "warning": 0xF79009, "info": 0x2E90FA}
STYLES = {"error": "Attention", "warning": "Warning", "info": "Accent"}
HEADING_MEMBERS = ("subject", "message", "remedy")  # members of the data that are not facts
MAX_FACTS = 10
CARD = "application/vnd.microsoft.card.adaptive"
SOURCE = "llmgateway"
OPEN = "Open the view"
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
    if data.get("link"):
        link = {"type": "mrkdwn", "text": f"<{_slack_text(data['link'])}|{OPEN}>"}
        blocks.append({"type": "section", "text": link})
    return {"text": _cut(f"{_slack_text(title_of(event))}: {_slack_text(data['message'])}", 3000), "blocks": blocks}


def _teams(event: Mapping[str, Any], hook: AlertHook) -> Json:
    """Return an Adaptive Card in the message format that workflows of Microsoft Teams accept."""
    data = event["data"]
    level = event["level"]
    body: list[Json] = [
        {
            "type": "TextBlock",
            "text": _markdown(title_of(event)) if "title" in data else title_of(event),
            "weight": "Bolder",
            "size": "Medium",
            "color": STYLES[level],
            "wrap": True,
        },
        {"type": "TextBlock", "text": _markdown(data["message"]), "wrap": True},
    ]
    facts = [{"title": _markdown(name), "value": _markdown(value)} for name, value in facts_of(event)]
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
    if data.get("link"):
        card["actions"] = [{"type": "Action.OpenUrl", "title": OPEN, "url": data["link"]}]
    return {"type": "message", "attachments": [{"contentType": CARD, "contentUrl": None, "content": card}]}


def _discord(event: Mapping[str, Any], hook: AlertHook) -> Json:
    """Return an embed without mentions (https://discord.com/developers/docs/resources/message#embed-object)."""
    data = event["data"]
    facts = [
        {"name": _cut(_markdown(name), 256), "value": _cut(_markdown(value), 300), "inline": True}
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
    if data.get("link"):
        embed["url"] = data["link"]
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
    """Return the headline of an event: that of a view, or for example "Warning: budget.spent"."""
    if "title" in event["data"]:
        return str(event["data"]["title"])
    return f"{LEVEL_LABELS[event['level']]}: {event['type']}"


def facts_of(event: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Return the facts of an event besides its message, in words."""
    if "title" in event["data"]:
        return [(str(name), str(value)) for name, value in event["data"]["facts"]][:MAX_FACTS]
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


# The delivery state of each alert at each address, and hints of when it is due, under keys that sort by that time, so
# that the delivering worker reads nothing while nothing is due. The operators' alerts have separate hints, since an
# organization with unresponsive addresses may have thousands that are due for hours.
KIND = STORED_ALERTS
DUE_KEY = "alert_due"
OPERATORS_DUE = "alert_due_operators"
MAX_DUE = 5_000
SCAN_INTERVAL_S = 300.0  # interval between two scans of all alerts, for those without a hint
TROUBLE = "alert_trouble"  # kind of the documents that say why an address takes no alerts
TROUBLE_TTL_S = 7 * 86_400.0
MAX_PROBLEM_LENGTH = 300
TTL_S = 3 * 86_400.0
SENT_TTL_S = 2 * 3600.0
STANDBY_INTERVAL_S = 60.0  # interval at which the addresses for an outage of the database are read again
RETRY_S = 30.0
MAX_WAITING = 1_000
CONCURRENT_DELIVERIES = 20
EACH_AT_ONCE = 4
MAX_SUBJECTS = 10_000
MAX_HOURLY = 100  # alerts that one organization causes per hour, at one worker
TEST = StateChange("test", "test", "This is a test: alerts reach this address.")

DATABASE_AWAY = "database.away"

log = logging.getLogger(__name__)
T = TypeVar("T", str, tuple[str, str])


class NotedChange(Struct):
    """A state change to report, noted at `at_us`. Of one that is sent without the database: `is_claimed` is whether
    this worker sends it (None = undecided), `sent` has the ids of the hooks that took it, `retry_at` is monotonic."""

    change: StateChange
    at_us: int
    is_claimed: bool | None = None
    sent: set[str] = field(default_factory=set)
    retry_at: float = float("-inf")


class Alerts:
    """Receives every state change in `note`, and saved views in `queue`; the other methods are recurring jobs.
    `note_view` is told of each attempt to deliver a view: the id of its subscription, and the problem, "" when it was
    accepted."""

    def __init__(
        self,
        hooks: AlertHooks,
        documents: Documents,
        transport: Transport,
        mailer: Mailer,
        states: StateLog,
        clock: Clock,
        claims: OutageClaims,
        history: AlertHistory,
        note_view: Callable[[str, str], None] | None = None,
    ) -> None:
        self._note_view = note_view
        self._hooks = hooks
        self._history = history
        self._documents = documents
        self._incidents = Incidents(documents)
        self._transport = transport
        self._mailer = mailer
        self._states = states
        self._clock = clock
        self._claims = claims
        self._noted: deque[NotedChange] = deque(maxlen=MAX_WAITING)
        # When this worker last saw a subject recover.
        self._ends: OrderedDict[str, int] = OrderedDict()
        self._standby: list[AlertHook] = []
        self._standby_read = float("-inf")
        self._hour = 0
        self._caused = dict[str, int]()
        self._looked = 0
        states.subscribe(self.note)

    def note(self, change: StateChange) -> None:
        """Queue a state change that an address may have subscribed to."""
        at_us = self._clock.now_us()
        is_wanted = change.event in EVENTS and self._has_room(str(change.facts.get("organization", "")), at_us)
        if is_wanted or change.event in ENDS:
            self._noted.append(NotedChange(change, at_us))

    def spread(self) -> None:
        """Store the queued changes for each address that subscribed. Unavailable: the next round tries again."""
        for noted in self._noted:
            if noted.change.event == DATABASE_AWAY:
                self._send_directly(noted)
        if self._clock.monotonic() - self._standby_read >= STANDBY_INTERVAL_S:
            self._standby = self._hooks.concerned((DATABASE_AWAY,), "")
            self._standby_read = self._clock.monotonic()
        while self._noted:
            noted = self._noted[0]
            if noted.change.event in ENDS:
                self._spread_end(noted)
            else:
                self._spread_begin(noted)
            # Only what was spread: the queue drops its oldest changes when it is full.
            if self._noted and self._noted[0] is noted:
                self._noted.popleft()

    def _spread_begin(self, noted: "NotedChange") -> None:
        change, at_us = noted.change, noted.at_us
        ended = self._ends.get(change.subject, 0)
        began = self._incidents.begin(change.event, change.subject, at_us, ended)
        self._history.begin(change, began)
        if noted.is_claimed is False or (noted.is_claimed is None and self._is_sent_by_another(change)):
            return
        event, idents = self._with_names(event_of(change, at_us, began))
        for hook in self._hooks.concerned((change.event,), _owner(change), idents):
            if hook.id in noted.sent:
                sent = orjson.dumps({"hook": hook.id, "told": True})
                self._documents.put(KIND, f"{hook.id}:{event['id']}", sent, SENT_TTL_S)
            else:
                self._store(hook, event, at_us)

    def _spread_end(self, noted: "NotedChange") -> None:
        change, at_us = noted.change, noted.at_us
        self._ends[change.subject] = at_us
        self._ends.move_to_end(change.subject)
        if len(self._ends) > MAX_SUBJECTS:
            self._ends.popitem(last=False)
        self._claims.drop(change.subject)
        incident = self._incidents.end(change.subject, at_us)
        if incident is None:
            return
        self._history.end(change.subject, incident.events, incident.began, at_us)
        event, idents = self._with_names(event_of(change, at_us, incident.began))
        event["data"]["duration_seconds"] = max(0, at_us - incident.began) // SECOND_US
        for hook in self._hooks.concerned(incident.events, _owner(change), idents):
            # PagerDuty has an incident for each event; the other receivers read one message.
            ended = incident.events if hook.form == PAGERDUTY else incident.events[-1:]
            for index, name in enumerate(ended):
                ident = f"{event['id']}_{index}" if index else event["id"]
                self._store(hook, {**event, "id": ident, "data": {**event["data"], "ends": name}}, at_us)

    def queue(self, hook: AlertHook, event: dict[str, Any]) -> None:
        """Queue an event for one address, once under its id; within the transaction of what causes it."""
        self._store(hook, event, self._clock.now_us())

    def _store(self, hook: AlertHook, event: dict[str, Any], at_us: int) -> None:
        waiting: dict[str, Any] = {"hook": hook.id, "organization": hook.organization_id, "event": event}
        waiting |= {"attempts": 0, "due": at_us, "operators": hook.operators}
        key = f"{hook.id}:{event['id']}"
        # The alert before its hint: a leader that meets a hint without an alert removes the hint. An alert with two
        # hints would be sent twice in one round.
        if self._documents.put_if_absent(KIND, key, orjson.dumps(waiting), TTL_S):
            self._note_due(key, waiting)

    def _with_names(self, event: dict[str, Any]) -> tuple[dict[str, Any], list[str]]:
        """Return an event with names, and the texts in it that may be ids."""
        idents = [str(value) for value in event["data"].values()]
        return with_names(event, self._hooks.names_of(idents)), idents

    def _is_sent_by_another(self, change: StateChange) -> bool:
        return change.event == DATABASE_AWAY and self._claims.is_taken(change.subject)

    def _send_directly(self, noted: "NotedChange") -> None:
        """Send an alert without the database, if no other worker does; those that failed are tried again later."""
        now = self._clock.monotonic()
        if noted.is_claimed is None and self._standby:
            noted.is_claimed = self._claims.take(noted.change.subject, noted.at_us)
        if not noted.is_claimed or now < noted.retry_at:
            return
        noted.retry_at = now + RETRY_S
        event = event_of(noted.change, noted.at_us, noted.at_us)
        hooks = [hook for hook in self._standby if hook.id not in noted.sent]
        jobs = [(hook, Job(self._send, hook, event)) for hook in hooks]
        for hook, job in jobs:
            with suppress(TimeoutError):
                if not job.result(2 * TIMEOUT_S):
                    noted.sent.add(hook.id)

    def _has_room(self, owner: str, at_us: int) -> bool:
        """Return whether an organization may cause another alert in this hour; the installation's own alerts are not
        limited."""
        hour = at_us // HOUR_US
        if self._hour != hour:
            self._hour = hour
            self._caused = {}
        self._caused[owner] = self._caused.get(owner, 0) + 1
        return not owner or self._caused[owner] <= MAX_HOURLY

    def deliver(self, should_continue: ShouldContinue = always) -> None:
        """Send the alerts that are due. Unavailable when the store is down."""
        now = self._clock.now_us()
        if now - self._looked >= SCAN_INTERVAL_S * SECOND_US:
            self._note_lost(now)
        due = [
            ((kind, hint), read_hint(hint))
            for kind in (OPERATORS_DUE, DUE_KEY)
            for hint in self._documents.keys(kind, f"{now + 1:016x}", MAX_DUE)
        ]
        if not should_continue():
            return
        # Concurrent, so that an unresponsive address does not delay the others.
        jobs = [Job(self._follow, kind, hint, now) for (kind, hint), _ in choose(due)]
        for job in jobs:
            job.result(2 * TIMEOUT_S)

    def _note_due(self, key: str, waiting: dict[str, Any]) -> None:
        kind = OPERATORS_DUE if waiting.get("operators") else DUE_KEY
        self._documents.put(kind, f"{waiting['due']:016x}:{waiting['organization']}:{key}", b"", TTL_S)

    def _note_lost(self, now: int) -> None:
        """Add hints for alerts without one, from another release or a worker that died between the two writes."""
        for key, value in self._documents.entries(KIND, MAX_DUE):
            waiting = orjson.loads(value)
            if 0 < waiting.get("due", 0) <= now:
                self._note_due(key, waiting)
        self._looked = now

    def _follow(self, kind: str, hint: str, now: int) -> None:
        """Deliver the alert that a hint refers to if it is due, and remove the hint."""
        key = hint.split(":", 2)[2]
        stored = self._documents.get(KIND, key)
        waiting = orjson.loads(stored) if stored else {}
        if 0 < waiting.get("due", 0) <= now:
            self._try(key, waiting)
        self._documents.delete(kind, hint)

    def test(self, organization_id: str, hook_id: str) -> tuple[bool, str]:
        """Send a test to one address now; returns whether it was accepted, and the response. NotFound."""
        hook = self._hooks.find(organization_id, hook_id)
        now = self._clock.now_us()
        problem = self._send(hook, event_of(TEST, now, now))
        self._note_trouble(hook, problem)
        return not problem, problem or "taken"

    def _try(self, key: str, waiting: dict[str, Any]) -> None:
        try:
            hook = self._hooks.find(waiting["organization"], waiting["hook"])
        except GatewayError as error:
            if error.kind == "not_found":
                self._documents.delete(KIND, key)
                return
            raise
        problem = self._send(hook, waiting["event"])
        self._note_trouble(hook, problem)
        subscription = waiting["event"]["data"].get("subscription")
        if subscription and waiting["event"]["type"] == VIEW and self._note_view is not None:
            self._note_view(subscription, problem)
        if not problem:
            # Kept without a due time while the same incident has the same name, so that it is not sent again.
            self._documents.put(KIND, key, orjson.dumps({"hook": hook.id, "told": True}), SENT_TTL_S)
            return
        waiting["attempts"] += 1
        wait_us = next_wait_us(waiting["attempts"])
        if wait_us is None:
            self._documents.put(KIND, key, orjson.dumps({"hook": hook.id, "told": False}), SENT_TTL_S)
            message = f"an alert could not be delivered to {hook.id}: {problem}"
            more = {"event": "alert.undelivered", "remedy": f"check the address: {MANAGE} alerts test", "facts": {}}
            log.warning("%s", message, extra=more)
            return
        waiting["due"] = self._clock.now_us() + wait_us
        self._note_due(key, waiting)
        self._documents.put(KIND, key, orjson.dumps(waiting), TTL_S)

    def _note_trouble(self, hook: AlertHook, problem: str) -> None:
        """Keep why an address takes no alerts, until it takes one."""
        if problem:
            trouble = {"problem": problem[:MAX_PROBLEM_LENGTH], "at": self._clock.now_us()}
            self._documents.put(TROUBLE, hook.id, orjson.dumps(trouble), TROUBLE_TTL_S)
        elif self._documents.get(TROUBLE, hook.id) is not None:
            self._documents.delete(TROUBLE, hook.id)

    def trouble_of(self, hook_id: str) -> str:
        """Return why an address took no alert the last time, "" if it did."""
        stored = self._documents.get(TROUBLE, hook_id)
        return str(orjson.loads(stored)["problem"]) if stored else ""

    def _send(self, hook: AlertHook, event: dict[str, Any]) -> str:
        """Send an alert; returns why it was not accepted, "" when it was."""
        event = {"level": "warning", **event}  # earlier releases stored events without a level
        if hook.form == EMAIL:
            return self._mail(hook, event)
        body = orjson.dumps(write_body(hook, event))
        secret = hook.secret if hook.form == WEBHOOK else ""
        return deliver(self._transport, hook.url, secret, event["id"], body, self._clock.now_us()).problem

    def _mail(self, hook: AlertHook, event: dict[str, Any]) -> str:
        if not self._mailer.enabled:
            return "e-mail is not configured; name a mail server under [mail] in the configuration"
        data = event["data"]
        facts = "\n".join(f"{name}: {value}" for name, value in facts_of(event))
        text = "\n\n".join(filter(None, (data["message"], facts, data["remedy"], data.get("link"))))
        subject = title_of(event) if "title" in data else f"{title_of(event)}: {data['message']}"
        try:
            self._mailer.send(Mail(hook.url.removeprefix(MAILTO), subject, text))
        except MailFailed as error:
            return str(error)
        return ""


def read_hint(hint: str) -> dict[str, Any]:
    """Return the due time and the organization of the alert that a hint refers to."""
    due, organization, _ = hint.split(":", 2)
    return {"due": int(due, 16), "organization": organization}


def _due_order(entry: tuple[T, dict[str, Any]]) -> tuple[int, T]:
    key, waiting = entry
    return waiting["due"], key


def choose(due: list[tuple[T, dict[str, Any]]]) -> list[tuple[T, dict[str, Any]]]:
    """Return the alerts to send in one round: a few per organization, the oldest of each first, so that organizations
    with unresponsive addresses or many due alerts do not delay the others."""
    taken: Counter[str] = Counter()
    ranked = []
    for key, waiting in sorted(due, key=_due_order):
        owner = waiting["organization"]
        if taken[owner] < EACH_AT_ONCE:
            ranked.append((taken[owner], key, waiting))
            taken[owner] += 1
    ranked.sort(key=itemgetter(0))
    return [(key, waiting) for _, key, waiting in ranked[:CONCURRENT_DELIVERIES]]


def with_names(event: dict[str, Any], names: Mapping[str, str]) -> dict[str, Any]:
    """Return the event with names beside ids: `organization_name` beside `organization`, `name` beside `id`, and in the
    message."""
    data: dict[str, Any] = {}
    message = event["data"]["message"]
    for fact, value in event["data"].items():
        data[fact] = value
        name = names.get(value) if isinstance(value, str) else None
        if name:
            data["name" if fact == "id" else f"{fact}_name"] = name
            message = message.replace(value, f"{name} ({value})")
    return {**event, "data": {**data, "message": message}}


def event_of(change: StateChange, at_us: int, began_us: int) -> dict[str, Any]:
    """Return the alert as it is sent. All alerts of one incident, which began at `began_us`, about the same event and
    stage have the same id."""
    subject = f"{change.subject}\n{change.stage}" if change.stage else change.subject
    digest = hashlib.sha256(f"{change.event}\n{subject}\n{began_us}".encode()).hexdigest()[:32]
    data = {"subject": change.subject, "message": change.message, "remedy": change.remedy, **change.facts}
    return {
        "object": "event",
        "id": f"evt_{digest}",
        "type": change.event,
        "level": logging.getLevelName(change.level).lower(),
        "created_at": at_us // SECOND_US,
        "data": data,
    }


def _owner(change: StateChange) -> str:
    """Return the organization that a change concerns, "" = the installation."""
    return str(change.facts.get("organization", ""))
