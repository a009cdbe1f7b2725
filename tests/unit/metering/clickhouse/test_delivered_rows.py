"""The rows that are delivered to ClickHouse."""

import json

from support.usage import insert_rows, usage_row

from gateway.metering.clickhouse import sink
from gateway.metering.clickhouse.clickhouse_log import FIELDS
from gateway.metering.figures import FIGURES
from gateway.store.database import Database

BEYOND_US = 1 << 60
RENAMED = {"at": "at_us", "posted_at": "posted_us"}


def test_a_delivered_row_has_all_columns_of_usage_and_all_figures_in_their_types(sqlite_database: Database) -> None:
    record = usage_row(1_700_000_000_000_000, label="team a", session="s", tags='["a"]', discount_ppm=5)
    insert_rows(sqlite_database, record)
    rows = sqlite_database.report(lambda: sink.fetch(sqlite_database, "w.posted_at >= ?", (0,), BEYOND_US))
    delivered = json.loads(sink.write_delivered_row(rows, version=7))
    for name in set(FIELDS) - set(FIGURES):
        value = getattr(record, name)
        column = RENAMED.get(name, name)
        empty = "" if "String" in sink.TYPES[column] else 0
        assert delivered[column] == (value.hex() if isinstance(value, bytes) else value or empty), name
    assert delivered.keys() == sink.TYPES.keys() >= set(FIGURES)
    for name, kind in sink.TYPES.items():
        assert isinstance(delivered[name], str) == ("String" in kind), name
