"""The queries of savings and wastes run on both stores."""

import random
from collections import Counter

import pytest
from support.usage import KEYS, PROJECTS, insert_rows, random_row, usage_row

from gateway import ids
from gateway.clock import HOUR_US, SECOND_US
from gateway.metering import route_usage
from gateway.metering.activity import Owners, Span, measure
from gateway.metering.models import CACHED, SETTLEMENT
from gateway.metering.rollups.job import Rollups
from gateway.metering.rollups.queries import at_once
from gateway.metering.usage_table import UsageRecord, raw_id
from gateway.reports.savings import (
    CACHE_LOST,
    CACHE_UNREAD,
    DISCOUNTS,
    FAILED,
    FAILURES,
    PROMPT_CACHE,
    RESPONSE_CACHE,
    RETRIED,
    ROUTES,
    SavedSum,
    SavingsQuestion,
    SavingsReport,
    WastedSum,
    read_savings,
)
from gateway.store.database import Database
from gateway.telemetry.cache_watch import LOSS

ORGANIZATION, PROJECT, KEY = (f"{kind}_{ids.new_hex()}" for kind in ("org", "proj", "key"))


def test_failures_losses_and_routes_are_summed(database: Database) -> None:
    at_us = database.now_us() - HOUR_US
    owners = {"organization": raw_id(ORGANIZATION), "project": raw_id(PROJECT), "api_key": raw_id(KEY)}
    again = bytes.fromhex(ids.new_hex())
    rows = [
        usage_row(at_us, request=again, error="upstream_error", cost_nusd=5, attempt=0, **owners),
        usage_row(at_us, request=again, cost_nusd=7, attempt=1, **owners),
        usage_row(at_us, request=bytes.fromhex(ids.new_hex()), error="upstream_error", cost_nusd=11, **owners),
    ]
    insert_rows(database, *rows)
    Rollups(database).catch_up()
    lost = (bytes.fromhex(ids.new_hex()), raw_id(PROJECT), raw_id(KEY), "s", "a cause", 10, 13, at_us)
    key = (bytes(16), 0, raw_id(ORGANIZATION), raw_id(PROJECT))
    routed = (*key, "house", 1, "hard", "m", "stop", 0, 900, 3, 20, at_us)
    database.write(lambda: (database.execute(LOSS, lost), database.execute(route_usage.RECORD.sql, routed)))
    hour = database.now_us() // HOUR_US
    span = Span(hour - 24, hour + 1, "day")
    for given, saved in ((Owners((PROJECT,)), [SavedSum(ROUTES, 17, 1)]), (Owners(key_ids=(KEY,)), [])):
        question = SavingsQuestion(given, span, [ORGANIZATION], {KEY: PROJECT}, lambda provider, model: None)
        report = read_savings(database, question)
        assert report.saved == saved
        assert report.wasted == [
            WastedSum(CACHE_LOST, "a cause", 13, 1),
            WastedSum(FAILED, "upstream_error", 11, 1),
            WastedSum(RETRIED, "upstream_error", 5, 1),
        ]


def test_failed_attempts_are_found_without_reading_the_others(database: Database) -> None:
    if database.kind != "sqlite":
        pytest.skip("plans of PostgreSQL depend on the number of rows")
    sql = FAILURES.format(errors="?, ?", more="")
    plan = database.query_rows(f"EXPLAIN QUERY PLAN {sql}", (b"",) * sql.count("?"))
    assert "usage_error (project=? AND error=? AND request>? AND request<?)" in str(plan)


def test_replayed_answers_count_as_saved_by_one_cache_alone(database: Database) -> None:
    """They repeat the cached tokens of the request that they were made for."""
    at_us = database.now_us() - HOUR_US
    owners = {"organization": raw_id(ORGANIZATION), "project": raw_id(PROJECT), "api_key": raw_id(KEY)}
    tokens = {"served": "m", "provider": "p", "input": 100, "cache_read": 900}
    paid = {**tokens, "input_nusd": 1_000, "cached_nusd": 900, "cost_nusd": 1_900}
    insert_rows(database, usage_row(at_us, **paid, **owners))
    insert_rows(database, *[usage_row(at_us, **tokens, flags=CACHED, **owners) for _ in range(9)])
    Rollups(database).catch_up()
    assert savings(database, Owners((PROJECT,))).saved == [
        SavedSum(RESPONSE_CACHE, 9 * 1_900, 9, estimated=True),
        SavedSum(PROMPT_CACHE, 900 * 10 - 900, 900, estimated=True),
    ]


def savings(database: Database, owners: Owners, hours: int = 24) -> SavingsReport:
    """Return the savings of the last hours; a million tokens of input cost 10 million nano-dollars."""
    hour = database.now_us() // HOUR_US
    span = Span(hour - hours, hour + 1, "day")
    projects = {f"key_{key.hex()}": f"proj_{PROJECTS[place % 2].hex()}" for place, key in enumerate(KEYS)}
    question = SavingsQuestion(owners, span, [ORGANIZATION], {KEY: PROJECT, **projects}, lambda *_: 10**7)
    return read_savings(database, question)


def spent(database: Database, owners: Owners, first: int) -> int:
    """Return the cost since an hour, as `/activity` has it."""
    span = Span(first, database.now_us() // HOUR_US + 1, "all")
    rows = at_once(database, lambda: measure(database, owners, span, "total", ("cost_nusd",)))
    return sum(row.figures.cost_nusd for row in rows)


def make_rows(dice: random.Random, now_us: int) -> list[UsageRecord]:
    """Requests of the last two days: some failed and were tried again, some came from the response cache."""
    rows = []
    for _ in range(60):
        at_us = now_us - dice.randrange(48 * HOUR_US)
        row = random_row(dice, at_us, kind=SETTLEMENT, posted_at=now_us, extra=None)
        failed = dice.random() < 0.3
        if row.flags & CACHED:
            free = dict.fromkeys(("cost_nusd", "input_nusd", "cached_nusd", "cache_write_nusd"), 0)
            rows.append(row._replace(**free, error=None))
            continue
        prices = {
            "cached_nusd": dice.randrange(9),
            "cache_write": dice.randrange(3),
            "discount_nusd": dice.randrange(7),
        }
        row = row._replace(**prices, error="timeout" if failed else None)
        rows.append(row)
        if failed and dice.random() < 0.5:
            rows.append(row._replace(attempt=1, error=dice.choice((None, "timeout"))))
    return rows


def saved_by(rows: list[UsageRecord]) -> dict[str, int]:
    """Return the amounts that these rows saved, by the definitions of docs/outcomes.md."""
    found = Counter({DISCOUNTS: sum(row.discount_nusd or 0 for row in rows)})
    last = {row.request: max(one.attempt for one in rows if one.request == row.request) for row in rows}
    for model in {(row.provider, row.served) for row in rows}:
        own = [row for row in rows if (row.provider, row.served) == model]
        ends = [row for row in own if last[row.request] == row.attempt]
        replayed = sum(bool(row.flags & CACHED) for row in ends)
        paid, cost = len(ends) - replayed, sum(row.cost_nusd for row in own)
        if replayed and paid:
            found[RESPONSE_CACHE] += replayed * cost // paid
        read, written = sum(row.cache_read for row in own), sum(row.cache_write for row in own)
        if replayed:
            read, written = read * paid // len(ends), written * paid // len(ends)
        fresh, cost = sum(row.input for row in own), sum(row.input_nusd for row in own)
        rate = (cost, fresh) if fresh and cost and not replayed else (10**7, 10**6)
        gain = (read + written) * rate[0] // rate[1] - sum(row.cached_nusd + row.cache_write_nusd for row in own)
        if read or written:
            found[PROMPT_CACHE if gain > 0 else CACHE_UNREAD] += abs(gain)
    return {kind: nusd for kind, nusd in found.items() if nusd}


def wasted_by(rows: list[UsageRecord]) -> Counter[tuple[str, str]]:
    """Return the amounts that these rows wasted on failed attempts."""
    found = Counter[tuple[str, str]]()
    for row in rows:
        if row.error and row.cost_nusd:
            later = any(one.request == row.request and one.attempt > row.attempt and not one.error for one in rows)
            found[RETRIED if later else FAILED, row.error] += row.cost_nusd
    return found


@pytest.mark.parametrize("seed", range(8))
def test_each_figure_equals_that_of_the_rows(database: Database, seed: int) -> None:
    dice = random.Random(seed)
    rows = make_rows(dice, database.now_us() - SECOND_US)
    insert_rows(database, *rows)
    Rollups(database).catch_up()
    hours = dice.randrange(1, 50)
    first_us = (database.now_us() // HOUR_US - hours) * HOUR_US
    for place, owner in enumerate((*PROJECTS, *KEYS)):
        column = "project" if place < len(PROJECTS) else "api_key"
        own = [row for row in rows if getattr(row, column) == owner and row.at >= first_us]
        ident = f"{'proj' if column == 'project' else 'key'}_{owner.hex()}"
        owners = Owners((ident,)) if column == "project" else Owners(key_ids=(ident,))
        report = savings(database, owners, hours)
        amounts = {one.kind: one.nusd for one in (*report.saved, *report.wasted) if one.kind not in (FAILED, RETRIED)}
        assert amounts == saved_by(own), ident
        wasted = {(one.kind, one.cause): one.nusd for one in report.wasted if one.kind in (FAILED, RETRIED)}
        assert wasted == wasted_by(own), ident
        assert spent(database, owners, first_us // HOUR_US) == sum(row.cost_nusd for row in own)
