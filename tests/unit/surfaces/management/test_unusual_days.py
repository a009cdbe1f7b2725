"""Unusual days of keys, people and sessions are reported once, and keys are held where an owner wants it."""

from collections.abc import Iterator
from typing import Any

import pytest
from support.management import Person, Tenants
from support.statement_work import note_statements
from support.usage import insert_rows, usage_row

from gateway import ids
from gateway.accounts import keys
from gateway.accounts.outcome_settings import change_settings
from gateway.clock import DAY_US, HOUR_US
from gateway.metering.rollups.rollup_table import DAILY, Series
from gateway.metering.usage_table import raw_id
from gateway.money import NANO
from gateway.runtime.state_changes import StateChange, StateLog
from gateway.telemetry import unusual_days
from gateway.telemetry.unusual_days import ACTOR, UnusualWatch

MINIMUM = 10 * NANO
Published = list[StateChange]


@pytest.fixture
def tenants(open_tenants) -> Iterator[Tenants]:
    with open_tenants() as opened:
        yield opened


@pytest.fixture
def published() -> Published:
    return []


@pytest.fixture
def make(tenants: Tenants, published: Published):
    def build(minimum_nusd: int = MINIMUM) -> UnusualWatch:
        store = tenants.services.store
        states = StateLog()
        states.subscribe(published.append)
        return UnusualWatch(store.database, store.control, store.documents, states, minimum_nusd)

    return build


def spend(tenants: Tenants, person: Person, days_ago: int, cost_nusd: int, **more: Any) -> None:
    owners = {
        "organization": raw_id(person.organization_id),
        "project": raw_id(person.project_id),
        "api_key": raw_id(more.pop("key", person.key.info.id)),
        "member": raw_id(person.member_id),
    }
    database = tenants.services.store.database
    now = database.now_us()
    at_us = (now // DAY_US - days_ago) * DAY_US + (12 * HOUR_US if days_ago else 0)
    values = {"provider": "p", "served": "m", "session": None, "posted_at": now - HOUR_US, **more}
    insert_rows(
        database, usage_row(at_us, cost_nusd=cost_nusd, request=bytes.fromhex(ids.new_hex()), **owners, **values)
    )


def usual_month(tenants: Tenants, person: Person, **more: Any) -> None:
    for day in range(1, 31):
        spend(tenants, person, day, 2 * NANO, **more)


def sum_up(tenants: Tenants) -> None:
    tenants.services.billing.rollups.catch_up()


def test_an_unusual_key_is_reported_once_and_its_end_too(tenants: Tenants, make, published: Published, monkeypatch):
    person, other = tenants["acme developer"], tenants["rival developer"]
    usual_month(tenants, person)
    usual_month(tenants, other)
    spend(tenants, person, 0, 50 * NANO)
    spend(tenants, other, 0, 3 * NANO)
    sum_up(tenants)
    watch = make()
    watch.scan()
    watch.scan()
    make().scan()  # another leader
    (change,) = published
    assert change.event == "usage.unusual" and person.key.info.id in change.message
    assert change.facts["organization"] == person.organization_id and change.facts["usual_usd"] == "$2.00"
    assert "$50.00" in change.message and "$2.00" in change.message
    monkeypatch.setattr(unusual_days, "DAY_US", DAY_US * 10**6)  # another day
    watch.scan()
    assert [one.event for one in published] == ["usage.unusual", "usage.usual"]


def test_nothing_is_reported_with_the_setting_at_zero(tenants: Tenants, make, published: Published) -> None:
    usual_month(tenants, tenants["acme developer"])
    spend(tenants, tenants["acme developer"], 0, 50 * NANO)
    sum_up(tenants)
    make(0).scan()
    assert published == []


def test_a_person_is_unusual_by_the_sum_of_several_keys(tenants: Tenants, make, published: Published) -> None:
    person = tenants["acme developer"]
    body = {"description": "second", "projectId": person.project_id}
    second = tenants.ok("POST", "/keys/api", person, body)["apiKey"]["id"]
    usual_month(tenants, person)
    for key in (person.key.info.id, second):
        spend(tenants, person, 0, 9 * NANO, key=key)
    sum_up(tenants)
    make().scan()
    assert [change.facts.get("member") for change in published] == [person.member_id]


def test_a_session_is_compared_with_those_of_its_project(tenants: Tenants, make, published: Published) -> None:
    person = tenants["acme developer"]
    for day in range(1, 25):
        spend(tenants, person, day, 2 * NANO, session=f"s{day}")
    spend(tenants, person, 0, 50 * NANO, session="runaway")
    sum_up(tenants)
    make().scan()
    assert {change.facts.get("session") or change.facts.get("key") for change in published} == {
        "runaway",
        person.key.info.id,
    }


def test_a_key_is_held_only_if_the_organization_wants_it_and_stays_released(
    tenants: Tenants, make, published: Published
) -> None:
    person, owner, admin = (tenants[f"acme {name}"] for name in ("developer", "owner", "admin"))
    usual_month(tenants, person)
    spend(tenants, person, 0, 50 * NANO)
    sum_up(tenants)
    make().scan()
    limits = f"/orgs/{owner.organization_id}/limits"
    assert tenants.ok("GET", limits, owner)["limits"] == []
    stores = (tenants.services.store.database, tenants.services.store.control)
    change_settings(*stores, owner.organization_id, actor=owner.user_id, hold_unusual=True)
    published.clear()
    tenants.services.store.documents.delete(unusual_days.KIND, unusual_days.KEY)
    watch = make()
    watch.scan()
    (held,) = tenants.ok("GET", limits, owner)["limits"]
    name = f"unusual-{person.key.info.id}"
    assert (held["id"], held["amount"]) == (name, "2")
    assert name in published[0].remedy and published[0].facts["limit"] == name
    entry = tenants.ok("GET", f"/orgs/{owner.organization_id}/audit?limit=1", owner)["entries"][0]
    assert (entry["action"], entry["actor"]) == ("limit.set", ACTOR) or entry["actor"]["id"] == ACTOR
    tenants.ok("DELETE", f"{limits}/{name}", admin)
    watch.scan()
    make().scan()
    assert tenants.ok("GET", limits, owner)["limits"] == []


def test_a_scan_takes_as_many_statements_for_many_keys_as_for_few(
    tenants: Tenants, make, published: Published, monkeypatch: pytest.MonkeyPatch
) -> None:
    person, store = tenants["acme owner"], tenants.services.store
    sql = "INSERT INTO rollup (series, owner, hour, part, name, provider, updated_at, rows, cost_nusd) VALUES ({})"
    hour = store.database.now_us() // DAY_US * 24

    def add_keys(count: int) -> None:
        rows: list[tuple[Any, ...]] = []
        for number in range(count):
            draft = keys.Draft(person.project_id, person.member_id, f"Key {number}")
            made = keys.create(store.database, store.control, store.secrets.hash_keys, draft, actor=person.user_id)
            owner = raw_id(made.info.id)
            rows.append((Series.KEY, owner, hour, 0, "", "", 1, 1, 50 * NANO))
            rows += [(Series.KEY + DAILY, owner, hour - 24 * day, 0, "", "", 1, 1, NANO) for day in range(1, 9)]
        store.database.write(lambda: store.database.execute_many(sql.format(", ".join("?" * 9)), rows))

    def scan() -> int:
        statements = note_statements(monkeypatch)
        make().scan()
        own = [unusual_days.KEYS_TODAY, unusual_days.PAST, unusual_days.OWNERS, unusual_days.OWNED]
        return sum(sql.startswith(tuple(one.partition("{")[0] for one in own)) for sql, _ in statements)

    add_keys(3)
    few = scan()
    assert len([one for one in published if "key" in one.facts]) == 3
    add_keys(120)
    assert scan() == few
    assert len({one.subject for one in published if "key" in one.facts}) == 123
