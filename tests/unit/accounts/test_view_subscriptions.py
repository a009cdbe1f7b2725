"""Subscriptions to views: the hour of their zone, and one worker alone queues a week."""

from collections.abc import Callable
from datetime import datetime
from zoneinfo import ZoneInfo

import gevent
import pytest

from gateway.accounts import members, organizations, saved_views, view_subscriptions
from gateway.accounts.saved_views import SavedView
from gateway.accounts.view_subscriptions import Schedule, ViewSubscription, read_schedule
from gateway.clock import HOUR_US, SECOND_US
from gateway.control.version import Control
from gateway.errors import InvalidRequest
from gateway.store.database import Database

WEEK_US = 7 * 24 * HOUR_US


def at(text: str, zone: str) -> int:
    return round(datetime.fromisoformat(text).replace(tzinfo=ZoneInfo(zone)).timestamp()) * SECOND_US


@pytest.mark.parametrize(
    ("now", "weekday", "hour", "zone", "expected"),
    [
        ("2026-11-30T07:59", 0, 8, "Europe/Berlin", "2026-11-30T08:00"),
        ("2026-11-30T08:00", 0, 8, "Europe/Berlin", "2026-12-07T08:00"),
        ("2026-10-24T09:00", 6, 3, "Europe/Berlin", "2026-10-25T03:00"),
        ("2026-03-28T12:00", 6, 2, "Europe/Berlin", "2026-03-29T03:00"),  # there is no 02:00 on that day
        ("2026-12-31T23:30", 4, 0, "Asia/Kathmandu", "2027-01-01T00:00"),
    ],
)
def test_a_view_is_due_at_its_hour_of_its_zone(now: str, weekday: int, hour: int, zone: str, expected: str) -> None:
    assert Schedule(weekday, hour, zone).next_after(at(now, zone)) == at(expected, zone)


@pytest.mark.parametrize(
    ("weekday", "hour", "zone"),
    [("someday", 8, "UTC"), ("monday", 24, "UTC"), ("monday", 8, "Europe/Atlantis"), ("monday", 8, "../../etc/passwd")],
)
def test_a_schedule_that_has_no_next_time_is_refused(weekday: str, hour: int, zone: str) -> None:
    with pytest.raises(InvalidRequest):
        read_schedule(weekday, hour, zone)


@pytest.fixture
def open_site(database_url: str, open_store: Callable[..., Database], clock) -> Callable[[], Database]:
    def make() -> Database:
        opened = open_store(database_url)
        opened.bind()
        return opened

    return make


def subscribe(database: Database, clock) -> tuple[SavedView, ViewSubscription]:
    control = Control.observer(database, clock)
    site = organizations.create_organization(database, control, "Acme", actor="test")
    person = members.add_member(database, control, site.id, "ann@acme.example", "admin", actor="test")
    view = saved_views.add(database, site.id, person.user_id, "Spend", "groupBy=model", False)
    schedule = Schedule(0, 8, "UTC")
    return view, view_subscriptions.add(database, view, person.user_id, "", schedule, person.user_id)


def make_due(database: Database, made: ViewSubscription) -> ViewSubscription:
    """Let a subscription be due since five weeks, as after a long outage."""
    late = made.next_at_us - 6 * WEEK_US
    database.change_rows("UPDATE view_subscription SET next_at = ? WHERE id = ?", (late, made.id))
    [due] = view_subscriptions.list_due(database, database.now_us())
    return due


def test_of_many_workers_one_queues_a_week(open_site: Callable[[], Database], clock) -> None:
    database = open_site()
    _, made = subscribe(database, clock)
    due = make_due(database, made)
    queued: list[int] = []
    workers = [
        gevent.spawn(view_subscriptions.claim, database, due, lambda number=number: queued.append(number))
        for number in range(8)
    ]
    gevent.joinall(workers, timeout=20, raise_error=True)
    assert sum(worker.value for worker in workers) == 1 and len(queued) == 1
    known = view_subscriptions.find(database, made.id)
    assert known.next_at_us > database.now_us() and known.sent_at_us > 0
    assert known.next_at_us == made.next_at_us, "weeks that were missed are not made up for"
    assert not view_subscriptions.claim(open_site(), due, lambda: queued.append(99)), "also after a restart"
    assert len(queued) == 1


def test_a_week_stays_due_when_its_queue_fails(open_site: Callable[[], Database], clock) -> None:
    database = open_site()
    _, made = subscribe(database, clock)

    def fail() -> None:
        raise RuntimeError("the worker dies")

    with pytest.raises(RuntimeError):
        view_subscriptions.claim(database, make_due(database, made), fail)
    assert [one.id for one in view_subscriptions.list_due(database, database.now_us())] == [made.id]


def test_subscriptions_end_with_their_view_and_are_limited(
    open_site: Callable[[], Database], clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    database = open_site()
    view, made = subscribe(database, clock)
    with pytest.raises(InvalidRequest, match="already"):
        view_subscriptions.add(database, view, view.user_id, "", made.schedule, "test")
    monkeypatch.setattr(view_subscriptions, "MAX_SUBSCRIPTIONS", 1)
    other = saved_views.add(database, view.organization_id, view.user_id, "Other", "", False)
    with pytest.raises(InvalidRequest, match="at most 1"):
        view_subscriptions.add(database, other, view.user_id, "", made.schedule, "test")
    saved_views.remove(database, view, actor="test")
    assert view_subscriptions.list_subscriptions(database, view.organization_id) == []
