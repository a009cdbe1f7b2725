"""Operator commands for rollups and recurring work."""

import json

import pytest
from support.usage import insert_rows, stored_sums, sum_up, usage_row

from gateway.accounts.alert_hooks import STORED_ALERTS
from gateway.clock import DAY_US, HOUR_US, to_iso
from gateway.metering.rollups.rollup_table import DAILY, Series
from gateway.metering.usage_table import raw_id
from gateway.money import NANO
from gateway.operator.installation_commands import Installation
from gateway.store.documents import Documents


@pytest.fixture
def installation(run):
    made = Installation()
    yield made
    made.close()


def test_sums_are_shown_and_computed_again(run, installation) -> None:
    assert "Nothing is summed yet" in run("rollups", "status")
    database = installation.database
    now_us = database.now_us()
    rows = [usage_row(now_us - n * HOUR_US, cost_nusd=n, posted_at=now_us - 1) for n in range(1, 30)]
    insert_rows(database, *rows)
    assert "error: --to must be later than --from." in run(
        "rollups", "rebuild", "--from", "2026-01-02", "--to", "2026-01-01", status=1
    )
    first, last = to_iso(now_us - 3 * DAY_US), to_iso(now_us + HOUR_US)
    assert run("rollups", "rebuild", "--from", first, "--to", last) == "29 hours were recomputed."
    database.write(lambda: database.execute("UPDATE rollup SET cost_nusd = 77"))
    assert "rollup" in run("doctor", status=1)
    run("rollups", "rebuild", "--from", first, "--to", last)
    assert stored_sums(database) == sum_up(rows)
    shown = {row["what"]: row["is"] for row in json.loads(run("rollups", "status", "--json"))}
    assert shown.pop("current up to").endswith("Z") and shown.pop("older rows") == "are summed"
    assert shown.pop("days are summed before") <= to_iso(now_us)[:10]
    assert list(shown.values()) == ["none"]


def test_jobs_are_listed_with_their_last_round_and_done_on_demand(run) -> None:
    output = run("jobs", "list")
    assert "every worker" in output and "one worker of each node" in output and "never" in output
    assert run("jobs", "run", "rollups").startswith("rollups took ")
    (line,) = [line.split() for line in run("jobs", "list").splitlines() if line.startswith("rollups ")]
    assert line[-2].endswith("Z") and line[-5] == line[-2] and line[-3] == "s"
    assert "error: There is no job cleaning; the jobs are: " in run("jobs", "run", "cleaning", status=1)
    assert "runs in each worker for itself" in run("jobs", "run", "gossip", status=1)


def test_a_job_run_by_command_leaves_its_alerts_to_be_delivered(run, installation) -> None:
    """A job notes what it finds in its process, which ends with the command."""
    run("alerts", "add", "mailto:ops@example.com", "--event", "usage.unusual")
    database = installation.database
    ((key_id,),) = database.query_rows("SELECT id FROM api_key LIMIT 1")
    hour = database.now_us() // DAY_US * 24
    days = [(Series.KEY, hour, 900 * NANO)]
    days += [(Series.KEY + DAILY, hour - 24 * day, NANO) for day in range(1, 9)]
    sql = "INSERT INTO rollup (series, owner, hour, part, name, provider, updated_at, rows, cost_nusd) VALUES ({})"
    for series, at, nusd in days:
        row = (series, raw_id(key_id), at, 0, "", "", 1, 1, nusd)
        database.change_rows(sql.format(", ".join("?" * len(row))), row)
    run("jobs", "run", "unusual_days")
    ((_, stored),) = Documents(database).entries(STORED_ALERTS)
    assert key_id in bytes(stored).decode()
    run("jobs", "run", "unusual_days")
    assert len(list(Documents(database).entries(STORED_ALERTS))) == 1
