"""Points are added once, whatever is repeated, restarted, late or hostile, on both stores."""

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gateway import ids
from gateway.clock import DAY_US, HOUR_US, MINUTE_US, SECOND_US
from gateway.errors import Unavailable
from gateway.metering.counters import Counters
from gateway.metering.outcomes import outcome_book, outcome_table
from gateway.metering.outcomes.names import OUTCOMES
from gateway.metering.outcomes.outcome_book import COUNTER, OutcomeBook
from gateway.metering.outcomes.outcome_points import NO_SERIES, OutcomeExport, OutcomePoint
from gateway.metering.outcomes.outcome_table import (
    MAX_AMOUNT,
    OTHER,
    SERIES_KEPT_US,
    forget_outcomes,
    store_exports,
)
from gateway.metering.usage_table import raw_id
from gateway.store.database import Database

ORGANIZATION, PROJECT, KEY, MEMBER = (raw_id(ids.new("x")) for _ in range(4))


def export(*points: OutcomePoint, key: bytes = KEY, organization: bytes = ORGANIZATION) -> OutcomeExport:
    return OutcomeExport(bytes.fromhex(ids.new_hex()), organization, PROJECT, key, MEMBER, list(points))


def point(now_us: int, amount: int = 1, outcome: str = "commits", **more: Any) -> OutcomePoint:
    given = {"series": NO_SERIES, "session": "s", "model": "", "agent": "claude-code", **more}
    return OutcomePoint(
        given["agent"],
        outcome,
        given["session"],
        given["model"],
        amount,
        given["series"],
        given.get("start_us", now_us - SECOND_US),
        given.get("time_us", now_us),
    )


@pytest.fixture
def rows(database: Database) -> Callable[..., list[dict[str, Any]]]:
    def read(**wanted: Any) -> list[dict[str, Any]]:
        columns = ("api_key", "hour", "session", "agent", "model", *OUTCOMES)
        found = database.query_rows(f"SELECT {', '.join(columns)} FROM outcome ORDER BY hour, session, model")
        listed = [dict(zip(columns, row, strict=True)) for row in found]
        return [row for row in listed if all(row[name] == value for name, value in wanted.items())]

    return read


def commits(rows: Callable[..., list[dict[str, Any]]]) -> int:
    return sum(row["commits"] for row in rows())


def test_points_are_summed_by_hour_session_agent_and_model(database: Database, rows) -> None:
    now = database.now_us()
    store_exports(
        database,
        [
            export(point(now), point(now, 5, "lines_added"), point(now, 2, "lines_added", model="opus")),
            export(point(now, session="t"), point(now, 3, agent="codex")),
        ],
    )
    store_exports(database, [export(point(now, 4))])
    found = {(row["session"], row["agent"], row["model"]): (row["commits"], row["lines_added"]) for row in rows()}
    assert found == {
        ("s", "claude-code", ""): (5, 5),
        ("s", "claude-code", "opus"): (0, 2),
        ("t", "claude-code", ""): (1, 0),
        ("s", "codex", ""): (3, 0),
    }
    assert bytes(rows()[0]["api_key"]) == KEY


def test_a_repeated_export_counts_once(database: Database, rows) -> None:
    sent = export(point(database.now_us(), 2))
    assert store_exports(database, [sent]) == (1, 0, 0)
    assert store_exports(database, [sent, sent]) == (0, 2, 0)
    other = sent._replace(api_key=raw_id(ids.new("key")))  # the same bytes of another key are its own
    assert store_exports(database, [other]) == (1, 0, 0)
    assert commits(rows) == 4


def test_cumulative_points_count_by_what_they_exceed_the_last(database: Database, rows) -> None:
    now = database.now_us()
    for after_us, amount in ((1, 3), (2, 3), (3, 7)):
        store_exports(database, [export(point(now, amount, series=b"a", time_us=now + after_us))])
    assert commits(rows) == 7


def test_cumulative_points_of_one_transaction_are_taken_in_their_order(database: Database, rows) -> None:
    now = database.now_us()
    late, early = point(now, 7, series=b"a", time_us=now + 2), point(now, 3, series=b"a", time_us=now + 1)
    store_exports(database, [export(late), export(early)])
    assert commits(rows) == 7


def test_an_older_cumulative_point_that_arrives_late_counts_nothing(database: Database, rows) -> None:
    now = database.now_us()
    store_exports(database, [export(point(now, 7, series=b"a", time_us=now + 2))])
    store_exports(database, [export(point(now, 3, series=b"a", time_us=now + 1))])
    store_exports(database, [export(point(now, 8, series=b"a", time_us=now + 3))])
    assert commits(rows) == 8


def test_a_restart_begins_at_zero(database: Database, rows) -> None:
    """With a new start, which makes another series, and with a fall alone."""
    now = database.now_us()
    store_exports(database, [export(point(now, 7, series=b"a", time_us=now + 1))])
    store_exports(database, [export(point(now, 2, series=b"b", time_us=now + 2))])
    store_exports(database, [export(point(now, 1, series=b"a", time_us=now + 3))])
    assert commits(rows) == 10


def test_a_series_from_before_the_memory_of_series_begins_where_it_is(database: Database, rows) -> None:
    now = database.now_us()
    old = {"series": b"a", "start_us": now - SERIES_KEPT_US - 1}
    store_exports(database, [export(point(now, 700, time_us=now + 1, **old))])
    store_exports(database, [export(point(now, 702, time_us=now + 2, **old))])
    assert commits(rows) == 2


def test_keys_do_not_share_series(database: Database, rows) -> None:
    now = database.now_us()
    for key in (KEY, raw_id(ids.new("key"))):
        store_exports(database, [export(point(now, 5, series=b"a"), key=key)])
    assert commits(rows) == 10


def test_times_far_from_now_count_for_the_hour_of_arrival(database: Database, rows) -> None:
    now = database.now_us()
    for time_us in (0, now - 2 * DAY_US, now + HOUR_US, 2**62):
        store_exports(database, [export(point(now, time_us=time_us))])
    store_exports(database, [export(point(now, time_us=now - 3 * HOUR_US))])
    assert [row["commits"] for row in rows()] == [1, 4]
    assert rows()[1]["hour"] - rows()[0]["hour"] in (3, 4)


def test_the_series_and_sessions_of_a_key_are_bounded(database: Database, rows, monkeypatch) -> None:
    monkeypatch.setattr(outcome_table, "MAX_SERIES", 2)
    monkeypatch.setattr(outcome_table, "MAX_ROWS", 3)
    now = database.now_us()
    stored = store_exports(database, [export(*(point(now, 1, series=bytes([n])) for n in range(5)))])
    assert stored == (2, 0, 3)
    store_exports(database, [export(*(point(now, 1, session=f"x{n}") for n in range(4)))])
    assert {row["session"]: row["commits"] for row in rows()} == {"s": 2, "x0": 1, "x1": 1, OTHER: 2}


def test_sums_stay_within_the_integers_of_the_store(database: Database, rows) -> None:
    now = database.now_us()
    for _ in range(3):
        store_exports(database, [export(point(now, MAX_AMOUNT), point(now, MAX_AMOUNT))])
    assert commits(rows) == MAX_AMOUNT


@given(
    st.lists(st.integers(0, 50), min_size=1, max_size=6).flatmap(
        lambda steps: st.tuples(st.just(steps), st.permutations(range(len(steps))), st.integers(1, 3))
    )
)
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_a_series_in_any_order_and_grouping_counts_what_it_reached(database: Database, rows, case) -> None:
    steps, order, size = case
    key = raw_id(ids.new("key"))
    now = database.now_us()
    amounts = [sum(steps[: place + 1]) for place in range(len(steps))]
    points = [
        point(now, amounts[place], series=b"a", start_us=now - 99, time_us=now + place, session=key.hex())
        for place in order
    ]
    exports = [export(*points[start : start + size], key=key) for start in range(0, len(points), size)]
    for sent in (*exports, *exports):  # each is sent twice
        store_exports(database, [sent])
    assert sum(row["commits"] for row in rows(session=key.hex())) == amounts[-1]


def test_a_clock_that_was_far_ahead_hides_no_restart(database: Database, rows) -> None:
    now = database.now_us()
    wrong, restarted = now + 3_650 * DAY_US, now + 10 * MINUTE_US
    store_exports(database, [export(point(now, 5, series=b"a", start_us=0, time_us=wrong))])
    store_exports(database, [export(point(now, 2, series=b"a", start_us=0, time_us=restarted))])
    assert commits(rows) == 7
    assert {row["hour"] for row in rows()} == {now // HOUR_US}


def test_the_last_repository_of_a_session_counts(database: Database) -> None:
    now = database.now_us()
    for repository in ("acme/house", "", "acme/garden"):
        store_exports(database, [export(point(now)._replace(repository=repository))])
        expected = repository or "acme/house"
        assert database.query_rows("SELECT repository FROM outcome") == [(expected,)]


def test_old_rows_are_deleted(database: Database, rows, monkeypatch) -> None:
    monkeypatch.setattr(outcome_table, "STEP_ROWS", 1)
    now = database.now_us()
    store_exports(database, [export(point(now, series=b"a")), export(point(now, session="t"))])
    forget_outcomes(database, 30)
    assert len(rows()) == 2
    old = now - 30 * DAY_US - 2 * HOUR_US
    database.change_rows("UPDATE outcome SET hour = ?", (old // HOUR_US,))
    for table in ("outcome_series", "outcome_export"):
        database.change_rows(f"UPDATE {table} SET at = ?", (old,))
    forget_outcomes(database, 0)
    assert len(rows()) == 2  # for ever
    forget_outcomes(database, 30)
    tables = ("outcome", "outcome_series", "outcome_export")
    assert [database.query_row(f"SELECT COUNT(*) FROM {table}")[0] for table in tables] == [0, 0, 0]


# The points that wait in a worker.


@pytest.fixture
def counters(tmp_path) -> Counters:
    return Counters(tmp_path)


def counted(counters: Counters) -> dict[str, float]:
    return {labels[0]: value for labels, value in counters.totals().get(COUNTER, {}).items()}


def test_points_wait_for_the_next_round_and_are_counted(database: Database, rows, counters: Counters) -> None:
    book = OutcomeBook(database, counters)
    sent = export(point(database.now_us(), 2))
    book.take(sent)
    book.take(sent)
    assert rows() == []
    book.flush()
    book.flush()
    assert commits(rows) == 2
    assert counted(counters) == {"counted": 1, "repeated": 1}


def test_points_wait_while_the_store_is_down(database: Database, rows, counters: Counters, monkeypatch) -> None:
    book = OutcomeBook(database, counters)
    book.take(export(point(database.now_us(), 2)))

    def fail(*args: object) -> None:
        raise Unavailable("down")

    monkeypatch.setattr(outcome_book, "store_exports", fail)
    with pytest.raises(Unavailable):
        book.flush()
    monkeypatch.undo()
    book.flush()
    assert commits(rows) == 2


def test_a_batch_that_cannot_be_stored_does_not_keep_the_next_waiting(
    database: Database, rows, counters: Counters, monkeypatch
) -> None:
    book = OutcomeBook(database, counters)
    book.take(export(point(database.now_us(), 2)))

    def fail(*args: object) -> None:
        raise ValueError("a fault")

    monkeypatch.setattr(outcome_book, "store_exports", fail)
    with pytest.raises(ValueError, match="a fault"):
        book.flush()
    monkeypatch.undo()
    book.take(export(point(database.now_us(), 1)))
    book.flush()
    assert commits(rows) == 1
    assert counted(counters) == {"dropped": 1, "counted": 1}


def test_one_organization_leaves_room_for_others(database: Database, rows, counters: Counters, monkeypatch) -> None:
    monkeypatch.setattr(outcome_book, "MAX_OF_ORGANIZATION", 2)
    monkeypatch.setattr(outcome_book, "MAX_WAITING", 3)
    book = OutcomeBook(database, counters)
    now = database.now_us()
    other = raw_id(ids.new("org"))
    book.take(export(point(now), point(now)))
    book.take(export(point(now)))  # one too many of this organization
    book.take(export(point(now), organization=other, key=raw_id(ids.new("key"))))
    book.take(export(point(now), organization=other, key=raw_id(ids.new("key"))))  # and of the worker
    book.flush()
    assert commits(rows) == 3
    assert counted(counters) == {"counted": 3, "dropped": 2}
    book.take(export(point(now), point(now)))
    book.flush()
    assert commits(rows) == 5
