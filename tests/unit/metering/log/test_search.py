import random
import re
from itertools import product

import orjson
import pytest
from support.requests import KEY, MEMBER, MINUTE_US, OTHER, PROJECT, START_US, attempt, entry, fill, owned, request_at

from gateway import ids
from gateway.clock import DAY_US, HOUR_US
from gateway.metering.log import search as module
from gateway.metering.log.log_entries import log_tables
from gateway.metering.log.records import read_requests
from gateway.metering.log.search import LogFilter, LogScope, is_met, is_seen, search
from gateway.metering.models import STREAMED
from gateway.metering.payload_table import STORE, PayloadRow, write_row
from gateway.metering.rollups.job import Rollups
from gateway.store.partitions import Partitions, id_at

EVERYTHING = [LogScope(PROJECT), LogScope(OTHER)]
STRANGER, OTHER_KEY = ids.new("member"), ids.new("key")


def numbers(page) -> list[int]:
    return [int.from_bytes(request.request[6:], "big") for request in page.requests]


def found(database, wanted=LogFilter(), scopes=EVERYTHING, limit=50) -> list[int]:
    return numbers(search(database, scopes, wanted, None, limit))


def all_pages(database, scopes, wanted, limit) -> list[bytes]:
    seen, before = [], None
    while True:
        page = search(database, scopes, wanted, before, limit)
        seen += [request.request for request in page.requests]
        assert len(page.requests) <= limit and (before is None or page.following is None or page.following < before)
        before = page.following
        if before is None:
            return seen


def test_served_and_refused_requests_come_in_one_order_newest_first(database) -> None:
    fill(
        database, [attempt(1), entry(2), attempt(3), attempt(3, attempt=1), entry(4), entry(3, status=200, error=None)]
    )
    page = search(database, EVERYTHING, LogFilter(), None, 3)
    assert numbers(page) == [4, 3, 2] and [len(request.attempts) for request in page.requests] == [0, 2, 0]
    assert numbers(search(database, EVERYTHING, LogFilter(), page.following, 3)) == [1]


def test_a_request_is_reported_with_its_callers_result(database) -> None:
    fill(database, [
        attempt(1, error="timeout", status=0, finish="error"), attempt(1, attempt=1),
        attempt(2, error="timeout", status=0, finish="error"), entry(2, status=502, error="all_providers_failed"),
        attempt(3, error="request_cancelled", finish="client_disconnect", status=499, flags=STREAMED, output=0),
        attempt(4, error="stream_truncated", finish="error", flags=STREAMED, status=0),
        attempt(5, error="interrupted", finish="interrupted", status=0),
    ])  # fmt: skip
    newest = search(database, EVERYTHING, LogFilter(), None, 9).requests
    assert [one.status for one in newest] == [500, 200, 499, 502, 200]
    assert [one.error for one in newest[:4]] == [
        "interrupted", "stream_truncated", "request_cancelled", "all_providers_failed",
    ]  # fmt: skip
    assert found(database, LogFilter(status=200)) == [4, 1] and found(database, LogFilter(status=502)) == [2]
    assert found(database, LogFilter(error="timeout")) == [2, 1]
    assert found(database, LogFilter(error="all_providers_failed", provider="vendor")) == [2]


def test_a_model_is_found_by_its_requested_and_its_served_name(database) -> None:
    fill(database, [attempt(1, asked="auto"), attempt(2, served="large", provider="other"), entry(3, asked="auto")])
    assert found(database, LogFilter(model="auto")) == [3, 1] and found(database, LogFilter(model="large")) == [2]
    assert found(database, LogFilter(model="vendor/small")) == [1]
    assert found(database, LogFilter(model="vendor/large")) == [] == found(database, LogFilter(provider="ven"))


def test_requests_without_an_error_or_a_session_are_found(database) -> None:
    fill(
        database,
        [
            attempt(1),
            attempt(2, session="review"),
            attempt(3, error="timeout", status=0),
            attempt(4, error="timeout", status=0, provider="first"),
            attempt(4, attempt=1),
            attempt(5, session="review", provider="other"),
            entry(6, status=402),
        ],
    )
    assert found(database, LogFilter(no_error=True)) == [5, 4, 2, 1]
    assert found(database, LogFilter(no_session=True)) == [4, 3, 1]
    assert found(database, LogFilter(no_error=True, no_session=True)) == [4, 1]
    assert found(database, LogFilter(no_error=True, provider="other")) == [5]
    assert found(database, LogFilter(no_error=True, error="timeout")) == [4]
    assert found(database, LogFilter(no_session=True, session="review")) == []
    assert found(database, LogFilter(no_session=True, failed=True)) == [3]


def test_requests_are_found_by_their_operation(database) -> None:
    fill(database, [attempt(1, operation="embeddings"), attempt(2), entry(3, operation="embeddings")])
    assert found(database, LogFilter(operation="embeddings")) == [3, 1]
    assert found(database, LogFilter(operation="chat", model="small")) == [2]


def test_a_moment_is_kept_to_the_millisecond_and_the_end_is_not_included(database) -> None:
    fill(database, [attempt(n) for n in range(5)])
    span = LogFilter(from_us=START_US + MINUTE_US, to_us=START_US + 3 * MINUTE_US)
    assert found(database, span) == [2, 1]
    assert found(database, span._replace(from_us=START_US + MINUTE_US + 1)) == [2]


def test_all_tags_are_met_by_one_request(database) -> None:
    def tagged(number: int, **tags: str):
        return entry(number, status=200, error=None, metadata=orjson.dumps(tags).decode())

    fill(database, [tagged(1, team="a", env="x"), tagged(2, team="a"), tagged(3, team="b", env="x"), attempt(1)])
    assert found(database, LogFilter(tags=(("team", "a"),))) == [2, 1]
    assert found(database, LogFilter(tags=(("team", "a"), ("env", "x")))) == [1]
    assert found(database, LogFilter(tags=(("team", "x"),))) == []


def test_nothing_of_another_member_or_project_is_seen_by_any_filter(database) -> None:
    theirs = owned(key=OTHER_KEY, member=STRANGER)
    tags = {"metadata": '{"team":"a"}'}
    marked = {"label": "mine", "error": "timeout", "source": "shop"}
    for number, mine in enumerate((owned(), theirs, owned(OTHER))):
        fill(database, [attempt(number, **mine, **marked), entry(number + 10, **mine, **marked, **tags)])
        packed = {"served": "", "flags": 0, "sent_bytes": 1, "answer_bytes": 1, "sent": b"", "answer": b"", "raw": None}
        more = {"request": request_at(number), "at": 1, "expires_at": 2**60, "operation": "", "path": "", "asked": ""}
        row = PayloadRow(**mine, **more, **packed, status=200)
        database.write(lambda row=row: database.execute_many(STORE.sql, [write_row(row)[1]]))
    scopes = ([LogScope(PROJECT, MEMBER)], [LogScope(PROJECT, MEMBER, (KEY,))])
    wishes = [LogFilter(), LogFilter(label="mine"), LogFilter(error="timeout"), LogFilter(source="shop"),
              LogFilter(tags=(("team", "a"),)), LogFilter(retained=True), LogFilter(status=402)]  # fmt: skip
    for scope, wanted in product(scopes, wishes):
        seen = found(database, wanted, scope)
        assert seen and set(seen) <= {0, 10}, wanted
    assert found(database, LogFilter(), [LogScope(PROJECT, MEMBER, (OTHER_KEY,))]) == []
    assert found(database, LogFilter(), []) == []


def world(seed: int) -> list:
    chance = random.Random(seed)
    rows = []
    for number in range(0, 2400, 20):
        mine = owned(
            chance.choice((PROJECT, OTHER)), chance.choice((KEY, OTHER_KEY)), chance.choice((MEMBER, STRANGER))
        )
        said = {"asked": chance.choice(("small", "large")), "source": chance.choice(("", "app")),
                "label": chance.choice((None, "a", "b"))}  # fmt: skip
        tries = chance.choice((0, 1, 1, 1, 3))
        for place in range(tries):
            failed = place < tries - 1 or chance.random() < 0.3
            told = {"error": chance.choice(("timeout", "upstream_error")), "status": 0} if failed else {}
            rows.append(attempt(number, attempt=place, provider=chance.choice("xy"), **mine, **said, **told))
        if not tries or chance.random() < 0.4:
            code = chance.choice(("timeout", "key_limit_reached"))
            last_good = tries and rows[-1].error is None
            told = {"status": 200, "error": None} if last_good else {"status": chance.choice((402, 502)), "error": code}
            rows.append(entry(number, **mine, **said, **told, metadata=chance.choice((None, '{"team":"a"}'))))
    return rows


WISHES = {
    "model": ("", "small", "x/small"), "provider": ("", "x"), "status": (0, 200, 402, 502), "error": ("", "timeout"),
    "source": (None, "", "app"), "label": ("", "a"), "tags": ((), (("team", "a"),)),
    "from_us": (None, START_US + 400 * MINUTE_US), "to_us": (None, START_US + 1800 * MINUTE_US),
}  # fmt: skip


@pytest.mark.parametrize("summed", [True, False], ids=["summed", "unsummed"])
def test_pages_have_every_matching_row_once(database, monkeypatch, summed) -> None:
    monkeypatch.setattr(module, "DEPTH", 7)
    monkeypatch.setattr(module, "MAX_HOURS", 3)
    rows, chance = world(summed), random.Random(summed)
    fill(database, rows)
    if summed:
        Rollups(database).catch_up()
    every = sorted({row.request for row in rows}, reverse=True)
    whole = database.read(lambda: read_requests(database, every))
    for _ in range(70):
        wanted = LogFilter(**{name: chance.choice(values) for name, values in WISHES.items()})
        scopes = chance.choice((EVERYTHING, [LogScope(PROJECT)], [LogScope(PROJECT, MEMBER)],
                                [LogScope(OTHER, MEMBER, (KEY, OTHER_KEY))]))  # fmt: skip
        right = [
            one.request
            for one in whole
            if is_seen(one, scopes) and is_met(one, wanted) and (wanted.to_us is None or one.at_us < wanted.to_us)
        ]
        assert all_pages(database, scopes, wanted, chance.choice((3, 50))) == right, (scopes, wanted)


PLANS = [
    LogFilter(session="s-1"),
    LogFilter(), LogFilter(model="m1"), LogFilter(provider="p1"), LogFilter(status=402), LogFilter(status=502),
    LogFilter(status=200), LogFilter(error="timeout"), LogFilter(source="s1"), LogFilter(label="label-77"),
    LogFilter(tags=(("team", "a"),)), LogFilter(retained=True), LogFilter(from_us=1, to_us=2**60),
]  # fmt: skip
SCOPES = [LogScope(PROJECT)], [LogScope(PROJECT, MEMBER)], [LogScope(PROJECT, MEMBER, (KEY, OTHER_KEY))]


def test_no_search_reads_a_table_from_end_to_end(database) -> None:
    """Every statement of every filter uses an index and reads its rows in that order."""
    projects = [ids.new("proj") for _ in range(9)]
    mixed = [
        attempt(n, **owned((PROJECT, *projects)[n % 10], ids.new("key")), label=f"label-{n}",
                provider=f"p{n % 5}", asked=f"m{n % 40}", source=f"s{n % 30}", error=("timeout", None)[n % 50 > 0])
        for n in range(6000)
    ]  # fmt: skip
    fill(
        database,
        [*mixed, *(entry(n, **owned((PROJECT, *projects)[n % 10], ids.new("key"))) for n in range(0, 6000, 3))],
    )
    if database.kind == "postgresql":
        database.write(lambda: database.execute("ANALYZE"))
    asked, execute = [], database.execute

    def listening(sql, params=()):
        asked.append((sql, params))
        return execute(sql, params)

    database.execute = listening
    for wanted, scopes in product(PLANS, SCOPES):
        search(database, scopes, wanted, None, 50)
    database.execute = execute
    for sql, params in dict(asked).items():
        plan = plan_of(database, sql, params)
        assert not re.search(r"\bSCAN\b|TEMP B-TREE FOR GROUP|Seq Scan on (usage|log_entry)", plan), (sql, plan)


def plan_of(database, sql: str, params: tuple) -> str:
    explain = "EXPLAIN QUERY PLAN " if database.kind == "sqlite" else "EXPLAIN "
    return "\n".join(str(row[-1]) for row in database.read(lambda: database.execute(explain + sql, params).fetchall()))


def test_a_key_that_was_used_once_is_found_behind_any_number_of_others(database, monkeypatch) -> None:
    monkeypatch.setattr(module, "DEPTH", 200)
    rare = ids.new("key")
    rows = [attempt(0, **owned(key=rare)), attempt(5000, **owned(key=rare)), *(attempt(n) for n in range(1, 4900, 3))]
    fill(database, rows)
    scope = [LogScope(PROJECT, "", (rare,))]
    page = search(database, scope, LogFilter(), None, 50)
    assert numbers(page) == [5000] and page.following is not None
    Rollups(database).catch_up()
    page = search(database, scope, LogFilter(), None, 50)
    assert numbers(page) == [5000, 0] and page.following is None
    now_us = database.now_us()
    fresh = id_at(now_us)[:6] + (9000).to_bytes(10, "big")
    fill(database, [attempt(request=fresh, at=now_us, posted_at=now_us, **owned(key=rare))])
    assert found(database, LogFilter(), scope) == [9000, 5000, 0]  # which no rollup knows yet


def test_the_last_hour_of_each_key_comes_from_the_rollups(database, monkeypatch) -> None:
    monkeypatch.setattr(module, "MAX_KEYS", 2)
    times = {KEY: START_US, OTHER_KEY: START_US + 3 * HOUR_US}
    rows = [attempt(number, at=at, **owned(key=key)) for number, (key, at) in enumerate(times.items())]
    fill(database, [*rows, attempt(7, at=START_US - DAY_US, **owned(key=OTHER_KEY))])
    assert module.find_last_hours(database, list(times)) == {}
    Rollups(database).catch_up()
    expected = {key: at // HOUR_US * HOUR_US for key, at in times.items()}
    assert module.find_last_hours(database, [STRANGER, *times]) == expected


def test_tables_in_partitions_are_searched_alike(postgresql_url, open_store) -> None:
    store = open_store(postgresql_url)
    rows = world(3)
    fill(store, rows)
    wishes = (LogFilter(), LogFilter(error="timeout"), LogFilter(label="a"), LogFilter(tags=(("team", "a"),)))
    before = [found(store, wanted) for wanted in wishes]
    tables = [Partitions(store, "usage", ("request", "attempt", "kind"), DAY_US), *log_tables(store, 0).partitions]
    for table in tables:
        table.keep_ready()
        assert table.exist()
    assert [found(store, wanted) for wanted in wishes] == before and all(before)
    indices = "SELECT count(*) FROM pg_indexes WHERE tablename = ? AND indexname NOT LIKE '%%pkey%%'"
    counts = [store.read(lambda table=table: store.execute(indices, (table,)).fetchone()[0])
              for table in ("usage", "usage_first", "log_entry", "log_entry_first")]  # fmt: skip
    assert counts[0] == counts[1] >= 3 and counts[2] == counts[3] == 4


def test_failed_slow_and_dear_requests_are_found(database) -> None:
    fill(database, [
        attempt(1, duration_ms=50, cost_nusd=5), attempt(2, error="timeout", duration_ms=9_000), attempt(2, attempt=1),
        attempt(3, error="timeout", status=0, duration_ms=20), entry(3, status=502, error="all_providers_failed"),
        entry(4, status=400), attempt(5, duration_ms=10_000, cost_nusd=900),
    ])  # fmt: skip
    assert found(database, LogFilter(failed=True)) == [4, 3]
    assert found(database, LogFilter(min_ms=9_000)) == [5, 2] and found(database, LogFilter(min_ms=10_001)) == []
    assert found(database, LogFilter(min_nusd=900)) == [5] and found(database, LogFilter(min_nusd=901)) == []
    assert found(database, LogFilter(failed=True, min_ms=10)) == [3]
    assert found(database, LogFilter(min_ms=9_000, min_nusd=900)) == [5]
    assert found(database, LogFilter(failed=True, model="none")) == []
    for wanted in (LogFilter(failed=True), LogFilter(min_ms=20), LogFilter(min_nusd=5)):
        pages = all_pages(database, EVERYTHING, wanted, 1)
        assert len(pages) == len(set(pages)) == len(found(database, wanted)) > 0
