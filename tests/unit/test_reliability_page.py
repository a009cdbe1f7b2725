"""docs/reliability.md has a row for each drill of outages."""

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def test_every_drill_of_an_outage_has_its_row() -> None:
    drills = (ROOT / "tests" / "drills" / "test_outages.py").read_text()
    page = (ROOT / "docs" / "reliability.md").read_text()
    table = page.partition("<!-- drills -->")[2].partition("<!-- end of drills -->")[0]
    rows = [line for line in table.splitlines() if line.startswith("| ")][1:]
    assert len(rows) == len(re.findall(r"^def test_", drills, re.M))
    assert all(len(row.split(" | ")) == 6 for row in rows)
