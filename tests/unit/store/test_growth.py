"""What bounds each table is told to operators, so that none is added that callers can fill unnoticed."""

import re
from pathlib import Path

PAGE = Path(__file__).resolve().parents[3] / "docs" / "operating.md"
OWN = {"sqlite_sequence", "sqlite_stat1", "sqlite_stat4"}


def test_every_table_has_a_line_that_tells_what_bounds_it(sqlite_database) -> None:
    sql = "SELECT name FROM sqlite_master WHERE type = 'table'"
    there = {row[0] for row in sqlite_database.read(lambda: sqlite_database.execute(sql).fetchall())} - OWN
    section = PAGE.read_text().split("By table of the database:")[1].split("\n## ")[0]
    rows = [line.split("|")[1:4] for line in section.splitlines() if line.startswith("| `")]
    told = [name for first, _, _ in rows for name in re.findall(r"`(\w+)`", first)]
    assert sorted(told) == sorted(there)
    assert all(bound.strip() for _, _, bound in rows)
