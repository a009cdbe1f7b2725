"""Attributes of members for chargeback, with the hours in which each value held, on both stores."""

import importlib
import json
from typing import Any

import gevent

from gateway.accounts import audit, member_attributes, members
from gateway.accounts.member_attributes import (
    ENTERPRISE,
    MAX_LENGTH,
    MAX_PERIODS,
    AttributePeriod,
    clean_value,
    of_enterprise_user,
    read_current,
    read_periods,
    write_attributes,
    write_provisioned,
)
from gateway.callers.models import Member
from gateway.clock import HOUR_US

STEP = importlib.import_module("migrations.0052_member_attributes")
JOINED = 1_000  # the hour in which the member joined


def settle(company: Any) -> None:
    joined = Member.update(created_at=JOINED * HOUR_US).where(Member.id == company.member_id)
    company.database.write(joined.execute)


def state(company: Any, hour: int, **stated: str) -> None:
    now = hour * HOUR_US + 1
    company.database.write(lambda: write_attributes(company.member_id, stated, actor="idp_1", now=now))


def periods(company: Any, name: str = "costCenter") -> list[tuple[str, int, int | None]]:
    found = read_periods(company.database, [company.member_id], name).get(company.member_id, [])
    return [(period.value, period.since, period.until) for period in found]


def test_each_value_has_the_hours_in_which_it_held(company: Any) -> None:
    settle(company)
    state(company, 1_010, costCenter="4711", department="Research")
    state(company, 1_020, costCenter="4712")
    state(company, 1_030, costCenter="", department="Research")
    assert periods(company) == [("4711", 1_010, 1_020), ("4712", 1_020, 1_030)]
    assert read_current(company.database, [company.member_id]) == {company.member_id: {"department": "Research"}}


def test_the_first_value_of_a_new_member_holds_from_the_beginning(company: Any) -> None:
    settle(company)
    state(company, JOINED, costCenter="4711")
    assert periods(company) == [("4711", 0, None)]
    state(company, JOINED, costCenter="")
    state(company, JOINED, costCenter="4712")
    assert periods(company) == [("4711", 0, JOINED), ("4712", JOINED, None)]


def test_the_last_change_in_an_hour_counts_for_all_of_it(company: Any) -> None:
    settle(company)
    for value in ("1", "2", "3", "2"):
        state(company, 1_010, costCenter=value)
    assert periods(company) == [("2", 1_010, None)]
    state(company, 1_005, costCenter="9")  # the clock was corrected
    assert periods(company) == [("9", 1_005, None)]


def test_two_sign_ins_at_the_same_time_store_one_value(company: Any) -> None:
    """On PostgreSQL the second write waits for the row of the first, which it did not see; SQLite has one writer."""
    settle(company)
    waiting = "SELECT count(*) FROM pg_locks WHERE NOT granted AND pg_backend_pid() = ANY(pg_blocking_pids(pid))"
    is_overlapping = company.database.kind == "postgresql"
    second = gevent.Greenlet(state, company, 1_010, costCenter="4712")

    def sign_in() -> None:
        write_attributes(company.member_id, {"costCenter": "4711"}, actor="idp_1", now=1_010 * HOUR_US)
        if is_overlapping and not second:
            second.start()
            with gevent.Timeout(30):
                while company.database.execute(waiting).fetchone()[0] == 0:
                    gevent.sleep(0.01)

    company.database.write(sign_in)
    if not is_overlapping:
        second.start()
    second.get(timeout=30)
    assert periods(company) == [("4712", 1_010, None)]
    assert audit.verify(company.database)[1] == []


def test_unchanged_values_leave_no_trace(company: Any) -> None:
    settle(company)
    state(company, 1_010, costCenter="4711")
    count = len(audit.verify(company.database)[1]), audit.verify(company.database)[0]
    state(company, 1_020, costCenter="4711")
    assert periods(company) == [("4711", 1_010, None)]
    assert (len(audit.verify(company.database)[1]), audit.verify(company.database)[0]) == count


def test_the_number_of_former_values_is_limited(company: Any) -> None:
    settle(company)
    for hour in range(MAX_PERIODS + 20):
        state(company, 2_000 + hour, costCenter=str(hour))
    found = periods(company)
    assert len(found) == MAX_PERIODS and found[-1] == (str(MAX_PERIODS + 19), 2_000 + MAX_PERIODS + 19, None)


def test_values_are_one_line_of_limited_length() -> None:
    assert clean_value("  Research\n &\tDevelopment\0 ") == "Research & Development"
    assert clean_value(["A", "B"]) == "A" and clean_value(4711) == "4711" and clean_value([]) == ""
    assert clean_value({"value": "A"}) == clean_value(None) == clean_value(True) == ""
    assert clean_value("x" * 10_000) == "x" * MAX_LENGTH


def test_provisioning_ends_only_the_values_that_it_stated(company: Any) -> None:
    settle(company)
    state(company, 1_010, department="Research")  # by a sign-in
    scim = {ENTERPRISE: {"costCenter": "4711", "manager": {"value": "x"}}, "title": "Countess"}

    def change(before: Any, after: Any, hour: int) -> None:
        now = hour * HOUR_US
        company.database.write(lambda: write_provisioned(company.member_id, before, after, actor="scim_1", now=now))

    change({}, scim, 1_011)
    assert read_current(company.database, [company.member_id])[company.member_id] == {
        "costCenter": "4711",
        "department": "Research",
    }
    change(scim, {"title": "Countess"}, 1_012)
    assert read_current(company.database, [company.member_id])[company.member_id] == {"department": "Research"}
    assert of_enterprise_user({ENTERPRISE: "broken"}) == {}


def test_an_erasure_keeps_what_the_books_need_and_no_value_that_names_the_person(company: Any) -> None:
    settle(company)
    stated = {
        "costCenter": "4711",
        "employeeNumber": "E-1",
        "division": "Office of Ada Lovelace",
        "department": "Salad",
    }
    state(company, 1_010, **stated)
    company.database.write(lambda: member_attributes.erase(company.member_id, {"Ada Lovelace", "Ada", "A", "E-1"}))
    assert read_current(company.database, [company.member_id])[company.member_id] == {
        "costCenter": "4711",
        "department": "Salad",
        "division": "erased",
    }
    assert periods(company, "employeeNumber") == []


def test_many_members_are_read_at_once(company: Any) -> None:
    settle(company)
    state(company, 1_010, costCenter="4711")
    unknown = [f"member_{number}" for number in range(2_500)]
    found = read_periods(company.database, [*unknown, company.member_id])
    assert found == {company.member_id: [AttributePeriod("costCenter", "4711", 1_010, None)]}


def test_the_migration_takes_over_the_values_of_provisioning(company: Any) -> None:
    database = company.database
    attributes = {ENTERPRISE: {"costCenter": " 4711 ", "department": "D" * 500, "manager": {"value": "x"}}}
    columns = "member_id, organization, user_name, user_name_key, email, attributes, external_id, made_account, version"
    colleague = members.add_member(
        database, company.control, company.organization_id, "colleague@example.com", actor="operator"
    )

    def migrate() -> None:
        sql = f"INSERT INTO scim_user ({columns}, created_at, updated_at) VALUES (?, ?, ?, ?, ?, ?, '', ?, 1, 0, 0)"
        for member_id, stored in ((company.member_id, attributes), (colleague.id, {"title": "Clerk"})):
            row = (member_id, company.organization_id, member_id, member_id, "a@b.example", json.dumps(stored), False)
            database.execute(sql, row)
        database.execute("DROP TABLE member_attribute", ())
        STEP.up(None, database.peewee)

    database.write(migrate)
    found = read_periods(database, [company.member_id, colleague.id])
    assert found == {
        company.member_id: [
            AttributePeriod("costCenter", "4711", 0, None),
            AttributePeriod("department", "D" * MAX_LENGTH, 0, None),
        ]
    }
