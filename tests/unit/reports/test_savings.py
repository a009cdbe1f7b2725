"""The queries of savings and wastes run on both stores."""

import pytest
from support.usage import insert_rows, usage_row

from gateway import ids
from gateway.clock import HOUR_US
from gateway.metering import route_usage
from gateway.metering.activity import Owners, Span
from gateway.metering.rollups.job import Rollups
from gateway.metering.usage_table import raw_id
from gateway.reports.savings import (
    CACHE_LOST,
    FAILED,
    FAILURES,
    RETRIED,
    ROUTES,
    SavedSum,
    SavingsQuestion,
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
