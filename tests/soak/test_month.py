"""A month of many rows: the FOCUS export equals the ledger, and the sums by tag, team, session and all other groups
equal the rows, to the nano-dollar. The export needs little memory and lets model calls through. `make month` has five
million rows (`ROWS=…` another number)."""

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from decimal import Decimal
from pathlib import Path

import gevent
import pytest
from soak.organization_month import BY, Figures, Organization, found, last_month, rows_of, sum_rows
from support.gateways import GatewayProcess, Start
from support.signed_in_owner import PASSWORD, SignedInOwner
from support.spending import query

from bench.rollups import fill
from gateway.billing.ledger_close import LedgerClose
from gateway.clock import HOUR_US, Clock, to_iso
from gateway.configuration.settings import DatabaseSettings
from gateway.control.version import Control
from gateway.limits.ledger import LedgerBook
from gateway.metering.activity import Owners, Span, TagValues, measure
from gateway.metering.figures import ActivityFigures
from gateway.metering.models import CREDITS
from gateway.metering.rollups.job import Rollups
from gateway.metering.rollups.queries import at_once
from gateway.metering.rollups.rollup_table import OTHER, SESSION
from gateway.money import NANO
from gateway.reports.focus import Month
from gateway.reports.report_answers import METRIC_FIGURES
from gateway.reports.shares import MAX_VALUES
from gateway.runtime.threads import Threads
from gateway.store.database import Database, open_database
from gateway.store.documents import Documents

pytestmark = pytest.mark.soak

ROWS = int(os.environ.get("ROWS", "100000"))
MAX_DURATION_S = 3600
GROWTH_KB = 40_000
CALL = {"model": "coin", "messages": [{"role": "user", "content": "Hello"}], "max_tokens": 1}
# Reads an export from standard input, so that no disk is busy with it; prints charges, bytes and the sum of BilledCost
# in nano-dollars.
READER = """
import csv, sys
from decimal import Decimal
count = size = nusd = 0
def lines():
    global size
    for line in sys.stdin:
        size += len(line)
        yield line
rows = csv.reader(lines())
assert next(rows)[0] == "BilledCost"
for row in rows:
    count += 1
    nusd += int(Decimal(row[0]) * 10**9)
print(count, size, nusd)
"""


@contextmanager
def opened(gateway: GatewayProcess) -> Iterator[Database]:
    """The store of a gateway that is down."""
    url = gateway.environment.get("DATABASE_URL") or f"sqlite:///{gateway.data / 'gateway.db'}"
    database = open_database(DatabaseSettings(url, str(gateway.data), 4, 60.0), Clock(), Threads())
    try:
        yield database
    finally:
        database.close()


@contextmanager
def timed(name: str) -> Iterator[None]:
    began = time.monotonic()
    yield
    print(f"{name}: {time.monotonic() - began:.1f} s", flush=True)


def fill_month(database: Database, organization: Organization, month: Month) -> None:
    """Insert the rows, close their hours and sum them up, as a gateway does in the course of the month."""
    with timed(f"{ROWS} rows inserted"):
        fill(database, rows_of(organization, month, ROWS))
    database.write(lambda: database.execute("DELETE FROM document WHERE kind = 'mark' AND key = 'closed_hours'"))
    if database.kind == "postgresql":
        database.write(lambda: database.execute("ANALYZE"), patient=True)
    with timed("hours closed"):
        LedgerClose(database, Documents(database), LedgerBook(database, Control.observer(database))).close()
    with timed("statistics"):
        Rollups(database).rebuild(month.start_us // HOUR_US, month.end_us // HOUR_US)


def figures_of(figures: ActivityFigures) -> Figures:
    tokens = (figures.requests, figures.input_tokens, figures.cached_tokens, figures.output_tokens)
    return (*tokens, figures.cost_nusd, figures.byok_nusd, figures.storage_nusd)


def every_value(database: Database, organization: Organization, month: Month, tag: str) -> dict[str, Figures]:
    """Return the sums of all values of a tag or of all sessions, as reports read them."""
    owners = Owners(project_ids=tuple({key.project for key in organization.keys}))
    span = Span(month.start_us // HOUR_US, month.end_us // HOUR_US, "all")
    rows = at_once(database, lambda: measure(database, owners, span, "tag", METRIC_FIGURES, TagValues(tag)))
    return {row.value[0]: figures_of(row.figures) for row in rows}


def shares(owner: SignedInOwner, month: Month, by: str) -> dict[str, Figures]:
    """Return the shares of the month over HTTP."""
    group, _, tag = by.partition(" ")
    dates = f"from={to_iso(month.start_us)[:10]}&to={to_iso(month.end_us - 1)[:10]}"
    named = f"&tag={tag}" if tag else ""
    found = owner("GET", f"/activity/shares?{dates}&groupBy={group}{named}")["shares"]
    counts = ("requestCount", "inputTokens", "cachedTokens", "outputTokens")
    costs = ("cost", "ownKeysCost", "dataStorageCost")
    return {
        share["id"]: (*(share[name] for name in counts), *(int(Decimal(share[name]) * NANO) for name in costs))
        for share in found
    }


def status(gateway: GatewayProcess, name: str) -> int:
    """Return a line of the worker's memory status, such as VmRSS, in KB."""
    [worker] = gateway.workers()
    lines = Path(f"/proc/{worker}/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(name))


def cpu_s(gateway: GatewayProcess) -> float:
    [worker] = gateway.workers()
    parts = Path(f"/proc/{worker}/stat").read_text().rpartition(")")[2].split()
    return (int(parts[11]) + int(parts[12])) / os.sysconf("SC_CLK_TCK")


def probe(gateway: GatewayProcess, stopping: list[bool], taken_ms: list[float]) -> None:
    """Call a model ten times a second."""
    while not stopping:
        began = time.perf_counter()
        answer, _ = gateway.post("/v1/chat/completions", CALL)
        assert answer == 200
        taken_ms.append((time.perf_counter() - began) * 1000)
        gevent.sleep(0.1)


def part_of(times_ms: list[float], part: float) -> float:
    return sorted(times_ms)[min(len(times_ms) - 1, int(len(times_ms) * part))]


def export(gateway: GatewayProcess, organization: str, month: Month) -> tuple[int, int, int]:
    """Download the FOCUS export with curl; return the number of charges, of bytes, and the sum in nano-dollars."""
    token = SignedInOwner(gateway.address).web.headers["Authorization"]
    address = f"{gateway.address}/orgs/{organization}/focus?month={month.name}"
    command = ["curl", "--silent", "--fail", "--header", f"Authorization: {token}", address]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as curl:
        reader = [sys.executable, "-c", READER]
        read = subprocess.run(reader, stdin=curl.stdout, capture_output=True, check=True, timeout=MAX_DURATION_S)
    assert curl.returncode == 0
    count, size, nusd = map(int, read.stdout.split())
    return count, size, nusd


def check_export(gateway: GatewayProcess, organization: str, month: Month) -> None:
    """Model calls go on during the export, and its sum is what the ledger took."""
    [(posted,)] = query(gateway, f"SELECT -SUM(amount_nusd) FROM ledger WHERE ref LIKE '%:{month.name}-%'")
    sql = f"SELECT SUM(CASE WHEN mode = {CREDITS} THEN cost_nusd ELSE 0 END + COALESCE(storage_nusd, 0)) FROM usage "
    assert query(gateway, f"{sql} WHERE at < {month.end_us}") == [(posted,)]
    stopping: list[bool] = []
    quiet_ms: list[float] = []
    busy_ms: list[float] = []
    probing = gevent.spawn(probe, gateway, stopping, quiet_ms)
    gevent.sleep(5)
    stopping.append(True)
    probing.get()
    stopping.clear()
    probing = gevent.spawn(probe, gateway, stopping, busy_ms)
    resident_kb = status(gateway, "VmRSS")
    spent_s = cpu_s(gateway)
    with timed("export"):
        count, size, billed = export(gateway, organization, month)
    spent_s = cpu_s(gateway) - spent_s
    growth_kb = status(gateway, "VmHWM") - resident_kb
    stopping.append(True)
    probing.get()
    print(f"{count} charges, {size >> 20} MB, {spent_s:.0f} s of CPU, memory {growth_kb >> 10} MB more")
    for name, times_ms in (("before", quiet_ms), ("during", busy_ms)):
        parts = ", ".join(f"{part_of(times_ms, part):.0f}" for part in (0.5, 0.99, 1.0))
        print(f"a model call {name} the export, median, p99 and longest of {len(times_ms)}: {parts} ms")
    assert billed == int(posted)
    assert count > ROWS
    assert growth_kb < GROWTH_KB


def test_a_month_has_equal_rows_sums_and_ledger(start: Start) -> None:
    month = last_month()
    gateway = start(workers=1, GATEWAY_BOOTSTRAP_CREDITS_USD="1000000", GATEWAY_BOOTSTRAP_PASSWORD=PASSWORD)
    organization = found(gateway.address)
    gateway.stop()  # a running gateway would sum up the rows while they are inserted
    with opened(gateway) as database:
        fill_month(database, organization, month)
        with timed("rows read"):
            expected = sum_rows(gateway, organization, database.kind)
        print({by: len(of) for by, of in expected.items()})
        for by, tag in (("session", SESSION), ("tag team", "team"), ("tag user", "user")):
            with timed(f"all sums by {by}"):
                named = {value: figures for value, figures in expected[by].items() if value}
                assert every_value(database, organization, month, tag) == named
    gateway.start()
    owner = SignedInOwner(gateway.address)
    for by in BY:
        with timed(f"shares by {by}"):
            figures_by_value = shares(owner, month, by)
        rest = {value: figures for value, figures in expected[by].items() if value not in figures_by_value}
        remaining = figures_by_value.pop(OTHER, None)
        assert figures_by_value.items() <= expected[by].items(), by
        assert (remaining or ()) == tuple(map(sum, zip(*rest.values(), strict=True))), by
        assert len(figures_by_value) in (len(expected[by]), MAX_VALUES + 1), by
    check_export(gateway, organization.id, month)
