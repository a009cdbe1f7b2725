"""Alerts reach the addresses that want them, signed, once, and again until they are taken."""

import dataclasses
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import gevent
import gevent.event
import pytest
from fakes.server import serving
from fakes.smtp import FakeSmtp

from gateway.accounts import organizations
from gateway.accounts.alert_hooks import MAX_HOOKS, AlertHooks
from gateway.callers.vault import Vault
from gateway.configuration.settings import load
from gateway.control.version import Control
from gateway.errors import InvalidRequest, NotFound
from gateway.runtime.state_changes import StateChange, StateLog
from gateway.store.database import Database
from gateway.store.documents import Documents
from gateway.telemetry.alert_delivery import (
    CONCURRENT_DELIVERIES,
    EACH_AT_ONCE,
    KIND,
    MAX_HOURLY,
    OPERATORS_DUE,
    Alerts,
    choose,
)
from gateway.telemetry.alert_history import AlertHistory
from gateway.telemetry.alert_incidents import OutageClaims
from gateway.transport import Transport, webhook_delivery
from gateway.transport.mail import Mailer
from gateway.transport.webhook_delivery import ATTEMPTS

REFUSED = StateChange("credential.refused", "provider openai#k", "openai refused", remedy="check the key")


class Receiver:
    """Records what comes and checks its signature, as a library would."""

    def __init__(self) -> None:
        self.status, self.secret, self.body = "200 OK", "", b""
        self.events: list[dict[str, Any]] = []
        self.ids: list[str] = []

    def __call__(self, environ: dict[str, Any], start: Any) -> list[bytes]:
        body = environ["wsgi.input"].read()
        ident = environ["HTTP_WEBHOOK_ID"]
        at = int(environ["HTTP_WEBHOOK_TIMESTAMP"])
        assert (
            environ["HTTP_WEBHOOK_SIGNATURE"]
            == webhook_delivery.sign(self.secret, ident, at, body)["webhook-signature"]
        )
        self.events.append(json.loads(body))
        self.ids.append(ident)
        start(self.status, [])
        return [self.body]


@pytest.fixture
def receiver() -> Receiver:
    return Receiver()


@pytest.fixture
def address(receiver: Receiver) -> Iterator[str]:
    with serving(receiver) as running:
        yield running + "/alerts"


@pytest.fixture
def database(database_url: str, open_store: Callable[..., Database]) -> Database:
    opened = open_store(database_url)
    opened.bind()
    return opened


@pytest.fixture
def hooks(database: Database, clock) -> AlertHooks:
    return AlertHooks(database, Control.observer(database, clock), Vault(("encryption-key-of-the-tests",)), True)


@pytest.fixture
def workers(database: Database, hooks: AlertHooks, clock, tmp_path: Path) -> Callable[[], Alerts]:
    settings = load({"GATEWAY_ENV": "test", "GATEWAY_ALLOW_PRIVATE_UPSTREAMS": "true"})
    transport = Transport(settings.timeouts, settings.security, clock=clock)
    claims = OutageClaims(tmp_path / "alerts")
    history = AlertHistory(database)
    mailer = Mailer(settings.mail)
    return lambda: Alerts(hooks, Documents(database), transport, mailer, StateLog(), clock, claims, history)


def organization(database: Database, clock, name: str) -> str:
    control = Control.observer(database, clock)
    return organizations.create_organization(database, control, name, actor="test").id


@pytest.fixture
def first(database: Database, clock) -> str:
    return organization(database, clock, "Operators")


def test_two_workers_that_see_the_same_trouble_send_one_alert(workers, hooks, first, receiver, address) -> None:
    receiver.secret = hooks.add(first, address, actor="test").secret
    for alerts in (workers(), workers()):
        alerts.note(REFUSED)
        alerts.spread()
        alerts.deliver()
        alerts.deliver()
    (event,) = receiver.events
    assert event["type"] == "credential.refused" and event["object"] == "event"
    assert event["data"] == {"subject": "provider openai#k", "message": "openai refused", "remedy": "check the key"}


def test_a_refused_alert_is_sent_again_under_its_id_and_later_abandoned(
    workers, hooks, first, receiver, address, clock, database
) -> None:
    receiver.secret, receiver.status = hooks.add(first, address, actor="test").secret, "503 Busy"
    alerts = workers()
    alerts.note(REFUSED)
    alerts.spread()
    for _ in range(ATTEMPTS + 3):
        alerts.deliver()
        clock.advance(3601)
    assert len(receiver.ids) == ATTEMPTS and len(set(receiver.ids)) == 1
    receiver.status = "200 OK"
    alerts.note(REFUSED)
    alerts.spread()
    alerts.deliver()
    assert len(receiver.ids) == ATTEMPTS + 1, "the next hour is another alert"


def test_an_address_that_takes_no_alerts_says_why_until_it_takes_one(workers, hooks, first, receiver, address) -> None:
    hook = hooks.add(first, address, actor="test")
    receiver.secret, receiver.status = hook.secret, "410 Gone"
    alerts = workers()
    assert alerts.trouble_of(hook.id) == ""
    alerts.note(REFUSED)
    alerts.spread()
    alerts.deliver()
    assert "410" in workers().trouble_of(hook.id)
    receiver.status = "200 OK"
    assert alerts.test(first, hook.id)[0]
    assert workers().trouble_of(hook.id) == ""


def test_an_organization_gets_its_own_alerts_and_its_operators_get_all(
    workers, hooks, first, receiver, address, clock, database
) -> None:
    other = organization(database, clock, "Tenant")
    third = organization(database, clock, "Neighbour")
    made = {one: hooks.add(one, address, actor="test").id for one in (first, other, third)}
    alerts = workers()
    spent = StateChange("budget.spent", "key key_1", "spent", facts={"organization": other})
    for change in (spent, REFUSED, StateChange("recovery.unknown", "x", "not an alert")):
        alerts.note(change)
    alerts.spread()
    waiting = [json.loads(value) for _, value in Documents(database).entries(KIND)]
    told = sorted((one["hook"], one["event"]["type"]) for one in waiting)
    assert told == sorted(
        [(made[first], "budget.spent"), (made[other], "budget.spent"), (made[first], "credential.refused")]
    )


def test_a_test_is_sent_at_once_and_shows_what_came_back(workers, hooks, first, receiver, address) -> None:
    made = hooks.add(first, address, actor="test")
    receiver.secret = made.secret
    assert workers().test(first, made.id) == (True, "taken") and receiver.events[0]["type"] == "test"
    receiver.status = "404 Not Found"
    assert workers().test(first, made.id) == (False, "it answered 404")
    with pytest.raises(NotFound):
        workers().test("org_other", made.id)


def test_a_webhook_that_accepts_with_a_long_page_gets_the_alert_once(
    workers, hooks, first, receiver, address, clock
) -> None:
    receiver.secret = hooks.add(first, address, actor="test").secret
    receiver.body = b"x" * 1_000_000
    alerts = workers()
    alerts.note(REFUSED)
    alerts.spread()
    for _ in range(2):
        alerts.deliver()
        clock.advance(3601)
    assert len(receiver.events) == 1


def test_addresses_inside_are_guarded_as_any_upstream(hooks, first, database, clock, address, tmp_path) -> None:
    settings = load({"GATEWAY_ENV": "test", "GATEWAY_ALLOW_PRIVATE_UPSTREAMS": "false"})
    guarded = Transport(settings.timeouts, settings.security, clock=clock)
    made = hooks.add(first, address, actor="test")
    claims, history = OutageClaims(tmp_path), AlertHistory(database)
    alerts = Alerts(hooks, Documents(database), guarded, Mailer(settings.mail), StateLog(), clock, claims, history)
    delivered, result = alerts.test(first, made.id)
    assert not delivered and "address" in result.lower()


@pytest.mark.parametrize(
    "url", ["ftp://x.example", "https://", "https://user:pw@x.example/", "no address", "https://a b"]
)
def test_invalid_addresses_are_refused(hooks, first, url: str) -> None:
    with pytest.raises(InvalidRequest):
        hooks.add(first, url, actor="test")


def test_only_chosen_events_are_reported_and_hooks_are_capped(hooks, first, address) -> None:
    hooks.add(first, address, ["books.differ"], actor="test")
    assert hooks.concerned(["credential.refused"], "") == [] and len(hooks.concerned(["books.differ"], "")) == 1
    with pytest.raises(InvalidRequest):
        hooks.add(first, address, ["no.such"], actor="test")
    for _ in range(MAX_HOOKS - 1):
        hooks.add(first, address, actor="test")
    with pytest.raises(InvalidRequest):
        hooks.add(first, address, actor="test")


def test_old_alerts_of_several_organizations_keep_no_other_waiting() -> None:
    due = [(f"{owner}{n}", {"organization": owner, "due": 1}) for owner in "abcdefgh" for n in range(100)]
    due.append(("operator", {"organization": "org_first", "due": 500}))
    chosen = choose(due)
    assert "operator" in [key for key, _ in chosen] and len(chosen) == CONCURRENT_DELIVERIES


def test_addresses_of_one_organization_keep_no_other_waiting() -> None:
    due = [(f"a{n}", {"organization": "org_a", "due": n + 1}) for n in range(100)]
    due += [(f"b{n}", {"organization": f"org_{n}", "due": 500}) for n in range(30)]
    chosen = [waiting["organization"] for _, waiting in choose(due)]
    assert len(chosen) == CONCURRENT_DELIVERIES and chosen.count("org_a") == 1
    assert choose([]) == [] and len(choose(due[:3])) == 3 and len(choose(due[:100])) == EACH_AT_ONCE


def test_alerts_that_are_not_due_are_not_read(workers, hooks, first, receiver, address, clock, monkeypatch) -> None:
    """The delivery job looks every two seconds, so alerts that wait for hours must cost nothing meanwhile."""
    receiver.secret, receiver.status = hooks.add(first, address, actor="test").secret, "503 Busy"
    alerts = workers()
    for number in range(30):
        alerts.note(StateChange("credential.refused", f"key {number}", "refused"))
    alerts.spread()
    for _ in range(30):
        alerts.deliver()
    assert len(receiver.ids) == 30
    read: list[int] = []
    keys, get, entries = Documents.keys, Documents.get, Documents.entries
    monkeypatch.setattr(Documents, "keys", lambda *given: read.append(len(found := keys(*given))) or found)
    monkeypatch.setattr(Documents, "get", lambda *given: read.append(1) or get(*given))
    monkeypatch.setattr(Documents, "entries", lambda *given: read.append(100) or entries(*given))
    for _ in range(5):
        alerts.deliver()
    assert read == [0] * 10
    clock.advance(31)
    alerts.deliver()
    assert sum(read) == 30 + EACH_AT_ONCE and len(receiver.ids) == 30 + EACH_AT_ONCE


def test_alerts_of_a_release_that_noted_no_time_are_sent(workers, hooks, first, receiver, address, database) -> None:
    receiver.secret = hooks.add(first, address, actor="test").secret
    worker = workers()
    worker.note(REFUSED)
    worker.spread()
    documents = Documents(database)
    for hint in documents.keys(OPERATORS_DUE, "g"):
        documents.delete(OPERATORS_DUE, hint)
    worker.deliver()
    assert len(receiver.ids) == 1 and documents.keys(OPERATORS_DUE, "g") == []


def test_an_alert_is_sent_although_the_leader_looks_while_it_is_being_stored(
    workers, hooks, first, receiver, address, monkeypatch
) -> None:
    receiver.secret = hooks.add(first, address, actor="test").secret
    noticing = workers()
    leader = workers()
    leader.deliver()  # its scan of all alerts; for minutes it only follows hints
    writes = {"put": Documents.put, "put_if_absent": Documents.put_if_absent}

    def restore() -> None:
        for name, write in writes.items():
            monkeypatch.setattr(Documents, name, write)

    def interrupt(name: str) -> None:
        """Let the leader look right after the first write, which `name` makes."""

        def write_then_look(*given: Any) -> Any:
            restore()
            written = writes[name](*given)
            leader.deliver()
            return written

        monkeypatch.setattr(Documents, name, write_then_look)

    for name in writes:
        interrupt(name)
    noticing.note(REFUSED)
    noticing.spread()
    leader.deliver()
    assert len(receiver.ids) == 1


def test_a_backlog_of_an_organization_hides_no_alert_of_the_operators(
    workers, hooks, first, receiver, address, database, clock, monkeypatch
) -> None:
    monkeypatch.setattr("gateway.telemetry.alert_delivery.MAX_DUE", 5)
    other = organization(database, clock, "Tenant")
    hooks.add(other, "http://127.0.0.1:1/", ["budget.spent"], actor="test")
    receiver.secret = hooks.add(first, address, ["database.away"], actor="test").secret
    worker = workers()
    for number in range(10):
        worker.note(StateChange("budget.spent", f"key {number}", "spent", facts={"organization": other}))
    worker.note(StateChange("database.away", "database", "is away"))
    worker.spread()
    worker.deliver()
    assert len(receiver.ids) == 1


def test_due_alerts_are_sent_in_parallel(workers, hooks, first, receiver, address, monkeypatch) -> None:
    receiver.secret = hooks.add(first, address, actor="test").secret
    worker = workers()
    started: list[int] = []
    all_started = gevent.event.Event()
    send = Alerts._send

    def watched(self: Alerts, *given: Any) -> str:
        started.append(1)
        if len(started) == 3:
            all_started.set()
        assert all_started.wait(60)
        return send(self, *given)

    monkeypatch.setattr(Alerts, "_send", watched)
    for number in range(3):
        worker.note(StateChange("credential.refused", f"key {number}", "refused"))
    worker.spread()
    worker.deliver()
    assert len(receiver.ids) == 3


def test_an_organization_causes_so_many_alerts_an_hour_and_the_installation_any_number(
    workers, hooks, first, database, clock, address
) -> None:
    hooks.add(first, address, actor="test")
    tenant, worker = organization(database, clock, "tenant"), workers()
    for number in range(MAX_HOURLY + 20):
        worker.note(StateChange("budget.spent", f"key {number}", "spent", facts={"organization": tenant}))
    for number in range(MAX_HOURLY + 20):
        worker.note(StateChange("provider.resting", f"provider {number}", "is cooling down"))
    worker.spread()
    assert len(Documents(database).entries(KIND)) == 2 * MAX_HOURLY + 20


def test_an_alert_is_sent_by_mail_with_names_beside_ids(hooks, first, database, clock, tmp_path) -> None:
    settings = load({"GATEWAY_ENV": "test"})
    transport = Transport(settings.timeouts, settings.security, clock=clock)
    hooks.add(first, "mailto:ops@example.com", actor="test")
    with FakeSmtp(mode="none") as server:
        given = {"host": "127.0.0.1", "port": server.port, "security": "none", "sender": "gw@example.com"}
        mailer = Mailer(dataclasses.replace(settings.mail, **given))
        claims, history = OutageClaims(tmp_path), AlertHistory(database)
        alerts = Alerts(hooks, Documents(database), transport, mailer, StateLog(), clock, claims, history)
        low = f"organization {first} has $2.00 of credits left"
        alerts.note(StateChange("credits.low", "x", low, remedy="add credits", facts={"organization": first}))
        alerts.spread()
        alerts.deliver()
    [sent] = server.deliveries
    assert sent.recipients == ["ops@example.com"]
    subject = " ".join(sent.message["Subject"].split())
    assert subject == f"Warning: credits.low: organization Operators ({first}) has $2.00 of credits left"
    assert "organization name: Operators" in sent.text and "add credits" in sent.text


def test_names_of_ids_are_one_short_line(hooks, first, database, clock) -> None:
    other = organization(database, clock, "Two\nlines " + "x" * 200)
    names = hooks.names_of([first, other, "org_none", "", "provider openai", "key_1"])
    assert names[first] == "Operators" and set(names) == {first, other}
    assert len(names[other]) == 80 and "\n" not in names[other]


def test_a_webhook_for_slack_is_not_signed_and_has_blocks(workers, hooks, first, clock) -> None:
    taken: list[tuple[dict[str, Any], bytes]] = []

    def take(environ: dict[str, Any], start: Any) -> list[bytes]:
        taken.append((environ, environ["wsgi.input"].read()))
        start("200 OK", [])
        return [b"ok"]

    with serving(take) as running:
        made = hooks.add(first, running, form="slack", actor="test")
        assert workers().test(first, made.id) == (True, "taken")
    [(environ, body)] = taken
    assert json.loads(body)["blocks"] and "HTTP_WEBHOOK_SIGNATURE" not in environ
