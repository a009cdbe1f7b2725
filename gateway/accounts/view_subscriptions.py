"""Subscriptions: saved views of Explore that are sent each week, by mail to a person or to an address for alerts.

What is sent shows what the person who subscribed may see. A week is claimed in one transaction with what is queued for
it, so that no two workers send the same one, and none is lost when a worker ends.
"""

from collections.abc import Callable, Collection
from datetime import UTC, datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from msgspec import Struct
from msgspec.structs import replace

from gateway import ids
from gateway.accounts import audit
from gateway.accounts.saved_views import EXPLORE, SavedView
from gateway.clock import from_datetime, to_datetime
from gateway.errors import InvalidRequest, NotFound
from gateway.store.database import Database

WEEKDAYS = ("monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday")
DAYS_OF_WEEK = len(WEEKDAYS)
LAST_HOUR = 23
MAX_SUBSCRIPTIONS = 50  # of a person in an organization
MAX_LISTED = 500
MAX_DUE = 100  # in one round
MAX_PROBLEM_LENGTH = 400
COLUMNS = "id, view_id, organization_id, user_id, hook_id, weekday, hour, timezone, next_at, sent_at, problem"


class Schedule(Struct, frozen=True):
    """When a view is sent: the day (0: Monday) and the hour of the clock of a time zone."""

    weekday: int
    hour: int
    timezone: str

    def next_after(self, now_us: int) -> int:
        """Return the next time after `now_us`. An hour that the clocks leave out is the one that follows it."""
        zone = ZoneInfo(self.timezone)
        local = to_datetime(now_us).astimezone(zone)
        for days in range(2 * DAYS_OF_WEEK + 1):
            day = local.date() + timedelta(days=days)
            at = datetime(day.year, day.month, day.day, self.hour, tzinfo=zone)
            # The way through UTC moves an hour that does not exist behind the gap.
            at_us = from_datetime(at.astimezone(UTC))
            if day.weekday() == self.weekday and at_us > now_us:
                return at_us
        raise AssertionError("two weeks have each day of the week twice")


class ViewSubscription(Struct, frozen=True):
    """A subscription of a person. `hook_id` is the address for alerts that gets the view, "" for mail to the person.
    `sent_at_us` is when it was last queued, 0: never; `problem` is why the last one was not sent or delivered."""

    id: str
    view_id: str
    organization_id: str
    user_id: str
    hook_id: str
    schedule: Schedule
    next_at_us: int
    sent_at_us: int = 0
    problem: str = ""


def read_schedule(weekday: str, hour: int, timezone: str) -> Schedule:
    """Return a schedule. InvalidRequest (weekday, hour, timezone)."""
    if weekday not in WEEKDAYS:
        raise InvalidRequest(f"The weekday is one of {', '.join(WEEKDAYS)}.", param="weekday")
    if not 0 <= hour <= LAST_HOUR:
        raise InvalidRequest(f"The hour is a number from 0 to {LAST_HOUR}.", param="hour")
    try:
        ZoneInfo(timezone)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        text = f"There is no time zone {timezone[:64]!r}. Use a name such as UTC or Europe/Berlin."
        raise InvalidRequest(text, param="timezone") from None
    return Schedule(WEEKDAYS.index(weekday), hour, timezone)


def add(
    database: Database, view: SavedView, user_id: str, hook_id: str, schedule: Schedule, actor: str
) -> ViewSubscription:
    """Subscribe a person, or a channel in their name, to a view. InvalidRequest (page, too many, known already)."""
    if view.page != EXPLORE:
        raise InvalidRequest("Only views of Explore are sent; this one is of the list of requests.", param="viewId")

    def work() -> ViewSubscription:
        now = database.now_us()
        owned = (view.organization_id, user_id)
        counted = "SELECT COUNT(*) FROM view_subscription WHERE organization_id = ? AND user_id = ?"
        if database.execute(counted, owned).fetchone()[0] >= MAX_SUBSCRIPTIONS:
            text = f"A person has at most {MAX_SUBSCRIPTIONS} subscriptions. Delete one first."
            raise InvalidRequest(text, code="too_many")
        known = (
            "SELECT id FROM view_subscription WHERE organization_id = ? AND user_id = ? AND view_id = ? "
            "AND COALESCE(hook_id, '') = ?"
        )
        if database.execute(known, (*owned, view.id, hook_id)).fetchone() is not None:
            raise InvalidRequest("This view is sent there already. Change or delete that subscription.", param="viewId")
        made = ViewSubscription(ids.new("vsub"), view.id, *owned, hook_id, schedule, schedule.next_after(now))
        marks = ", ".join("?" * 12)
        database.execute(f"INSERT INTO view_subscription ({COLUMNS}, created_at) VALUES ({marks})", (*_row(made), now))
        _note(database, "view.subscribe", made, actor)
        return made

    return database.write(work)


def reschedule(database: Database, subscription: ViewSubscription, schedule: Schedule, actor: str) -> ViewSubscription:
    """Send at another time from now on. NotFound."""

    def work() -> ViewSubscription:
        changed = replace(subscription, schedule=schedule, next_at_us=schedule.next_after(database.now_us()))
        values = (schedule.weekday, schedule.hour, schedule.timezone, changed.next_at_us, changed.id)
        sql = "UPDATE view_subscription SET weekday = ?, hour = ?, timezone = ?, next_at = ? WHERE id = ?"
        if not database.execute(sql, values).rowcount:
            raise _not_found()
        _note(database, "view.reschedule", changed, actor)
        return changed

    return database.write(work)


def request_now(database: Database, subscription: ViewSubscription, actor: str) -> None:
    """Let the next round send a view, and after that its usual days. NotFound."""

    def work() -> None:
        sql = "UPDATE view_subscription SET next_at = ? WHERE id = ?"
        if not database.execute(sql, (database.now_us(), subscription.id)).rowcount:
            raise _not_found()
        _note(database, "view.send", subscription, actor)

    database.write(work)


def remove(database: Database, subscription: ViewSubscription, actor: str) -> None:
    """End a subscription; nothing happens if it has already ended."""

    def work() -> None:
        if database.execute("DELETE FROM view_subscription WHERE id = ?", (subscription.id,)).rowcount:
            _note(database, "view.unsubscribe", subscription, actor)

    database.write(work)


def find(database: Database, subscription_id: str, organization_ids: Collection[str] | None = None) -> ViewSubscription:
    """Return a subscription, of one of these organizations. Raises NotFound."""
    row = database.query_row(f"SELECT {COLUMNS} FROM view_subscription WHERE id = ?", (subscription_id,))
    subscription = None if row is None else _read(row)
    if subscription is None or (organization_ids is not None and subscription.organization_id not in organization_ids):
        raise _not_found()
    return subscription


def list_subscriptions(
    database: Database, organization_id: str, user_id: str = "", view_id: str = ""
) -> list[ViewSubscription]:
    """Return the subscriptions of an organization, of a person or a view where one is named, oldest first."""
    sql = (
        f"SELECT {COLUMNS} FROM view_subscription WHERE organization_id = ? AND (? = '' OR user_id = ?) "
        "AND (? = '' OR view_id = ?) ORDER BY created_at, id LIMIT ?"
    )
    values = (organization_id, user_id, user_id, view_id, view_id, MAX_LISTED)
    return list(map(_read, database.query_rows(sql, values)))


def list_due(database: Database, now_us: int) -> list[ViewSubscription]:
    """Return the subscriptions whose time has come, the earliest first."""
    sql = f"SELECT {COLUMNS} FROM view_subscription WHERE next_at <= ? ORDER BY next_at, id LIMIT ?"
    return list(map(_read, database.query_rows(sql, (now_us, MAX_DUE))))


def claim(database: Database, subscription: ViewSubscription, queue: Callable[[], None]) -> bool:
    """Queue what is due and move on to the next week, in one transaction. Return False if another worker did, or the
    subscription changed or ended meanwhile."""

    def work() -> bool:
        now = database.now_us()
        sql = "UPDATE view_subscription SET next_at = ?, sent_at = ? WHERE id = ? AND next_at = ? AND next_at <= ?"
        values = (subscription.schedule.next_after(now), now, subscription.id, subscription.next_at_us, now)
        if not database.execute(sql, values).rowcount:
            return False
        queue()
        return True

    return database.write(work)


def leave_out(database: Database, subscription: ViewSubscription, problem: str, next_at_us: int) -> None:
    """Note why a due view is not sent, and when the next one is due; nothing if the subscription changed meanwhile."""
    sql = "UPDATE view_subscription SET next_at = ?, problem = ? WHERE id = ? AND next_at = ?"
    values = (next_at_us, problem[:MAX_PROBLEM_LENGTH], subscription.id, subscription.next_at_us)
    database.change_rows(sql, values)


def note_delivery(database: Database, subscription_id: str, problem: str) -> None:
    """Note why what was queued is not delivered; "" when it was."""
    sql = "UPDATE view_subscription SET problem = ? WHERE id = ? AND problem <> ?"
    text = problem[:MAX_PROBLEM_LENGTH]
    database.change_rows(sql, (text, subscription_id, text))


def _not_found() -> NotFound:
    return NotFound("There is no such subscription, or it has ended.")


def _row(subscription: ViewSubscription) -> tuple[Any, ...]:
    return (
        *(subscription.id, subscription.view_id, subscription.organization_id, subscription.user_id),
        *(subscription.hook_id or None, subscription.schedule.weekday, subscription.schedule.hour),
        *(subscription.schedule.timezone, subscription.next_at_us, subscription.sent_at_us, subscription.problem),
    )


def _read(row: Any) -> ViewSubscription:
    ident, view_id, organization_id, user_id, hook_id, weekday, hour, timezone, next_at, sent_at, problem = row
    schedule = Schedule(weekday, hour, timezone)
    return ViewSubscription(
        ident, view_id, organization_id, user_id, hook_id or "", schedule, next_at, sent_at, problem
    )


def _note(database: Database, action: str, subscription: ViewSubscription, actor: str) -> None:
    schedule = subscription.schedule
    detail = {
        "view": subscription.view_id,
        "hook": subscription.hook_id,
        "weekday": WEEKDAYS[schedule.weekday],
        "hour": schedule.hour,
        "timezone": schedule.timezone,
    }
    audit.append(
        action,
        subscription.id,
        actor=actor,
        at_us=database.now_us(),
        organization_id=subscription.organization_id,
        detail={name: value for name, value in detail.items() if value != ""},
    )
