"""Each problem is reported once, in time, by whatever worker sees it first, and its end is reported once."""

import json
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from fakes.server import serving

from gateway.accounts import organizations
from gateway.accounts.alert_hooks import EVENTS, AlertHooks
from gateway.accounts.teams import create_team
from gateway.callers.models import ApiKey, Member, Project, TeamMember, User
from gateway.callers.vault import Vault
from gateway.clock import SECOND_US
from gateway.configuration.settings import load
from gateway.control.version import Control
from gateway.errors import NotFound, Unavailable
from gateway.runtime.state_changes import ERROR, INFO, StateChange, StateLog
from gateway.store.database import Database
from gateway.store.documents import Documents
from gateway.telemetry.alert_delivery import Alerts
from gateway.telemetry.alert_history import AlertHistory
from gateway.telemetry.alert_incidents import REMINDER_US, OutageClaims
from gateway.transport import Transport
from gateway.transport.mail import Mailer

AWAY = StateChange("database.away", "database", "the database is unavailable", ERROR, "start it")
BACK = StateChange("database.back", "database", "the database answers again", INFO)
REFUSED = StateChange("credential.refused", "provider openai#k", "openai refused")
ACCEPTED = StateChange("credential.back", "provider openai#k", "openai answers again", INFO)


class Receiver:
    """Records the JSON that comes."""

    def __init__(self) -> None:
        self.bodies: list[dict[str, Any]] = []

    def __call__(self, environ: dict[str, Any], start: Any) -> list[bytes]:
        self.bodies.append(json.loads(environ["wsgi.input"].read()))
        start("200 OK", [])
        return [b""]

    @property
    def types(self) -> list[str]:
        return [body["type"] for body in self.bodies]


class SharedDocuments(Documents):
    """Documents of a store that can be away."""

    away = False

    def _change(self, sql: str, params: tuple) -> bool:
        if type(self).away:
            raise Unavailable("away")
        return super()._change(sql, params)

    def get(self, kind: str, key: str) -> bytes | None:
        if type(self).away:
            raise Unavailable("away")
        return super().get(kind, key)


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
def control(database: Database, clock) -> Control:
    return Control.observer(database, clock)


@pytest.fixture
def hooks(database: Database, control: Control) -> AlertHooks:
    return AlertHooks(database, control, Vault(("encryption-key-of-the-tests",)), True)


@pytest.fixture
def first(database: Database, control: Control) -> str:
    return organizations.create_organization(database, control, "Operators", actor="test").id


@pytest.fixture
def workers(database: Database, hooks: AlertHooks, clock, tmp_path: Path) -> Iterator[Callable[..., Alerts]]:
    settings = load({"GATEWAY_ENV": "test", "GATEWAY_ALLOW_PRIVATE_UPSTREAMS": "true"})
    transport = Transport(settings.timeouts, settings.security, clock=clock)

    def start(node: str = "node1", redis: Any = None) -> Alerts:
        claims = OutageClaims(tmp_path / node, redis)
        documents = SharedDocuments(database)
        mailer = Mailer(settings.mail)
        return Alerts(hooks, documents, transport, mailer, StateLog(), clock, claims, AlertHistory(database))

    yield start
    SharedDocuments.away = False


def work(*alerts: Alerts) -> None:
    for worker in alerts:
        worker.spread()
    for _ in range(2):
        alerts[0].deliver()


def test_an_incident_of_several_workers_and_its_end_are_sent_once_each(
    workers, hooks, first, receiver, address, clock
) -> None:
    hooks.add(first, address, actor="test")
    both = workers(), workers("node2")
    for worker in both:
        worker.note(REFUSED)
        clock.advance(2)
    work(*both)
    clock.advance(20)
    for worker in both:
        worker.note(ACCEPTED)
        clock.advance(1)
    work(*both)
    [past] = AlertHistory(hooks._database).read([""], 0, clock.now_us(), 9)
    assert (past.event, past.message) == (REFUSED.event, REFUSED.message)
    assert 20 * SECOND_US <= past.ended_us - past.began_us <= 25 * SECOND_US
    assert receiver.types == ["credential.refused", "credential.back"]
    data = receiver.bodies[1]["data"]
    assert (data["ends"], data["duration_seconds"]) == ("credential.refused", 24)


def test_a_second_incident_within_the_hour_is_sent_too(workers, hooks, first, receiver, address, clock) -> None:
    hooks.add(first, address, actor="test")
    both = workers(), workers()
    for _ in range(3):
        for change in (REFUSED, ACCEPTED):
            for worker in both:
                worker.note(change)
            clock.advance(2)
            work(*both)
    assert receiver.types == ["credential.refused", "credential.back"] * 3


def test_a_worker_that_notices_an_incident_after_its_end_does_not_report_it_again(
    workers, hooks, first, receiver, address, clock
) -> None:
    hooks.add(first, address, actor="test")
    one, late = workers(), workers()
    late.note(REFUSED)
    for change in (REFUSED, ACCEPTED):
        clock.advance(2)
        one.note(change)
    work(one)
    work(late)
    clock.advance(1)
    late.note(ACCEPTED)
    work(late)
    assert receiver.types == ["credential.refused", "credential.back"]


def test_an_end_without_a_reported_problem_is_not_sent(workers, hooks, first, receiver, address) -> None:
    hooks.add(first, address, actor="test")
    worker = workers()
    worker.note(ACCEPTED)
    work(worker)
    assert receiver.bodies == []


def test_a_receiver_that_did_not_choose_the_problem_does_not_get_its_end(
    workers, hooks, first, receiver, address
) -> None:
    hooks.add(first, address, ["books.differ"], actor="test")
    worker = workers()
    for change in (REFUSED, ACCEPTED):
        worker.note(change)
    work(worker)
    assert receiver.bodies == []


def test_a_problem_that_lasts_is_reported_again_after_an_hour(workers, hooks, first, receiver, address, clock) -> None:
    hooks.add(first, address, actor="test")
    for seconds in (0, 60, REMINDER_US // 10**6):
        clock.advance(seconds)
        worker = workers()  # after a restart: it does not know what was reported
        worker.note(REFUSED)
        work(worker)
    assert receiver.types == ["credential.refused"] * 2


def test_an_outage_of_the_database_is_sent_while_it_lasts_once_for_a_node(
    workers, hooks, first, receiver, address, clock
) -> None:
    hooks.add(first, address, actor="test")
    node = [workers() for _ in range(3)]
    work(*node)
    SharedDocuments.away = True
    for worker in node:
        worker.note(AWAY)
        clock.advance(1)
    for _ in range(3):
        for worker in node:
            with pytest.raises(Unavailable):
                worker.spread()
        clock.advance(40)
    assert receiver.types == ["database.away"]
    SharedDocuments.away = False
    for worker in node:
        worker.note(BACK)
    work(*node)
    clock.advance(61)
    work(*node)
    assert receiver.types == ["database.away", "database.back"]
    clock.advance(5)
    SharedDocuments.away = True
    for worker in node:
        worker.note(AWAY)
        with pytest.raises(Unavailable):
            worker.spread()
    assert receiver.types == ["database.away", "database.back", "database.away"]


def test_an_outage_that_could_not_be_sent_is_sent_after_it(workers, hooks, first, receiver, address, clock) -> None:
    worker = workers()
    worker.note(AWAY)  # at the start: no addresses are known yet
    SharedDocuments.away = True
    with pytest.raises(Unavailable):
        worker.spread()
    SharedDocuments.away = False
    hooks.add(first, address, actor="test")
    clock.advance(61)
    work(worker)
    assert receiver.types == ["database.away"]


def test_an_address_of_a_team_gets_alerts_about_the_team_its_members_and_their_keys(
    workers, hooks, first, receiver, address, database, control
) -> None:
    team = create_team(database, control, first, "Search", actor="test").id
    hooks.add(first, address, team=team, actor="test")

    def fill() -> None:
        Project.insert(id="proj_1", organization=first, name="P", created_at=1, updated_at=1).execute()
        for name in ("in", "out"):
            User.insert(id=f"user_{name}", email=f"{name}@x.example", created_at=1, updated_at=1).execute()
            Member.insert(
                id=f"member_{name}", organization=first, user=f"user_{name}", created_at=1, updated_at=1
            ).execute()
            ApiKey.insert(
                id=f"key_{name}",
                project="proj_1",
                member=f"member_{name}",
                description=name,
                token_hash=name,
                mask="m",
                created_at=1,
                updated_at=1,
            ).execute()
        TeamMember.insert(team=team, member="member_in").execute()

    database.write(fill)
    worker = workers()
    for ident in (team, "member_in", "key_in", "member_out", "key_out"):
        worker.note(StateChange("budget.spent", f"budget {ident}", "spent", facts={"id": ident, "organization": first}))
    worker.note(REFUSED)
    work(worker)
    assert sorted(body["data"]["id"] for body in receiver.bodies) == sorted([team, "member_in", "key_in"])
    with pytest.raises(NotFound):
        hooks.add(first, address, team="team_of_another", actor="test")


def test_pagerduty_resolves_each_incident_that_it_was_sent(workers, hooks, first, database, clock) -> None:
    hooks.add(first, "https://events.pagerduty.com/v2/enqueue", routing_key="k" * 32, actor="test")
    worker = workers()
    facts: dict[str, object] = {"id": "key_1"}
    for event in ("budget.nearly_spent", "budget.spent", "budget.back"):
        worker.note(StateChange(event, "key key_1 total", event, facts=facts))
    worker.spread()
    stored = [json.loads(value)["event"] for _, value in Documents(database).entries("alert")]
    ends = sorted(event["data"]["ends"] for event in stored if event["type"] == "budget.back")
    assert ends == ["budget.nearly_spent", "budget.spent"] and len({event["id"] for event in stored}) == 4


class SharedClaims:
    """Redis as far as OutageClaims uses it, which can be away."""

    def __init__(self) -> None:
        self.claims: set[str] = set()
        self.away = False

    def put_if_absent(self, key: str, value: bytes, ttl_s: float) -> bool:
        self._check()
        is_new = key not in self.claims
        self.claims.add(key)
        return is_new

    def delete(self, key: str) -> None:
        self._check()
        self.claims.discard(key)

    def _check(self) -> None:
        if self.away:
            raise Unavailable("away")


def problem(event: str, subject: str) -> StateChange:
    return StateChange(event, subject, f"{subject}: {event}", ERROR, "mend it")


# Begin and end in seconds of an hour, the problem, its subject and the event of its end ("" for one without an end).
HOUR = (
    (60, 100, "database.away", "database", "database.back"),
    (130, 160, "database.away", "database", "database.back"),
    (300, 360, "redis.away", "redis", "redis.back"),
    (310, 340, "database.away", "database", "database.back"),
    (500, 900, "credential.refused", "provider openai#k", "credential.back"),
    (510, 530, "provider.resting", "provider openai", "provider.back"),
    (515, 700, "provider.resting", "provider anthropic", "provider.back"),
    (560, 580, "provider.resting", "provider openai", "provider.back"),
    (1000, 0, "leases.swept", "leases", ""),
    (1001, 0, "recovery.done", "recovery", ""),
    (1200, 2400, "budget.nearly_spent", "key key_1", "budget.back"),
    (1300, 2000, "credits.low", "organization org_1", "credits.back"),
    (1400, 1500, "session.cache_lost", "session s1", "session.cache_back"),
    (1450, 1550, "checker.failing", "checker presidio", "checker.back"),
    (1470, 1570, "usage.unusual", "usage key_1", "usage.usual"),
    (1600, 1700, "books.differ", "books", "books.agree"),
    (1800, 0, "model.retiring", "model openai/gpt-4", ""),
    (3000, 3300, "redis.away", "redis", "redis.back"),
)
# Without the database and without Redis the nodes cannot agree: each sends this alert.
BOTH_AWAY = [(310, "database.away")]
IN_TIME_S = 12


def test_every_alert_of_an_hour_of_faults_comes_once_and_in_time_and_so_does_its_end(
    workers, hooks, first, receiver, address, clock
) -> None:
    """Two nodes of two workers that notice each problem and each end a second apart."""
    hooks.add(first, address, actor="test")
    redis = SharedClaims()
    fleet = [workers(node, redis) for node in ("node1", "node1", "node2", "node2")]
    work(*fleet)
    script = read_script()
    left = sorted((at, change.event) for at, changes in script.items() for change in changes)
    left += BOTH_AWAY
    assert {event for _, _, event, *_ in HOUR} | {"budget.spent", "credits.spent"} == set(EVENTS)
    came: list[tuple[int, str]] = []
    for second in range(3600):
        for number, worker in enumerate(fleet):
            for change in script.get(second - number, ()):
                worker.note(change)
        for change in script.get(second, ()):
            if change.subject == "database":
                SharedDocuments.away = change.event == AWAY.event
            redis.away = redis.away if change.subject != "redis" else change.event == "redis.away"
        work_alone(fleet)
        came += [(second, name) for name in receiver.types[len(came) :]]
        clock.advance(1)
    for second, name in came:
        due = next((one for one in left if one[1] == name and one[0] <= second), None)
        assert due is not None, f"{name} came again in second {second}"
        assert second - due[0] <= IN_TIME_S or is_database_away(due[0], second), (name, due[0], second)
        left.remove(due)
    assert left == []


def read_script() -> dict[int, list[StateChange]]:
    script: dict[int, list[StateChange]] = {}
    for begin, end, event, subject, back in HOUR:
        script.setdefault(begin, []).append(problem(event, subject))
        if back:
            script.setdefault(end, []).append(StateChange(back, subject, f"{subject} again", INFO))
    return script


def work_alone(fleet: list[Alerts]) -> None:
    """Run the jobs of workers that may have no database."""
    for worker in fleet:
        with suppress(Unavailable):
            worker.spread()
    with suppress(Unavailable):
        fleet[0].deliver()


def is_database_away(begin: int, end: int) -> bool:
    """Return whether the database was away between two seconds, so that alerts waited for it."""
    return any(event == AWAY.event and start <= end and begin <= stop for start, stop, event, *_ in HOUR)
