"""The FOCUS export of a month of many rows equals the ledger to the nano-dollar, needs little memory, and lets model
calls through. `ROWS=5000000` makes it five million rows."""

import csv
import os
import random
import subprocess
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import gevent
import pytest
from support.gateways import GatewayProcess, Start
from support.signed_in_owner import PASSWORD, SignedInOwner
from support.spending import query

from bench.rollups import PLACES, fill, make_rows
from gateway.billing.ledger_close import LedgerClose
from gateway.clock import DAY_US, Clock, from_datetime, to_datetime
from gateway.configuration.settings import DatabaseSettings
from gateway.control.version import Control
from gateway.limits.ledger import LedgerBook
from gateway.metering.models import BYOK, CREDITS
from gateway.metering.usage_table import raw_id
from gateway.money import NANO
from gateway.reports.focus import Month, read_month
from gateway.runtime.threads import Threads
from gateway.store.database import open_database
from gateway.store.documents import Documents

pytestmark = pytest.mark.soak

ROWS = int(os.environ.get("ROWS", "100000"))
LONGEST_S = 1800
GROWTH_KB = 40_000
CALL = {"model": "coin", "messages": [{"role": "user", "content": "Hello"}], "max_tokens": 1}


def last_month() -> Month:
    today = datetime.now(UTC)
    first = today.replace(day=1, hour=0, minute=0, second=0, microsecond=0)
    return read_month(to_datetime(from_datetime(first) - DAY_US).strftime("%Y-%m"))


def rows_of(owner: dict[str, bytes], month: Month) -> Iterator[tuple[Any, ...]]:
    """Rows of one project, evenly over the month: paid by credits or an own key, with storage, tags and sessions."""
    dice = random.Random(5)
    for row in make_rows(dice, ROWS, month.start_us, month.end_us - 1, posted=True):
        line = list(row)
        for name, value in owner.items():
            line[PLACES[name]] = value
        line[PLACES["mode"]] = CREDITS if dice.random() < 0.8 else BYOK
        line[PLACES["storage_nusd"]] = 1001 if dice.random() < 0.1 else None
        line[PLACES["session"]] = f"session-{int(dice.random() * 5000)}"
        line[PLACES["tags"]] = f'{{"team":"team-{int(dice.random() * 50)}"}}'
        yield tuple(line)


def fill_month(gateway: GatewayProcess, month: Month) -> tuple[str, float, float]:
    """Insert the rows and close their hours while the gateway is down; return the organization and the seconds of both.
    A gateway would first sum up the rows."""
    owner = SignedInOwner(gateway.address)
    organization = owner("GET", "/orgs")["organizations"][0]["id"]
    project = owner("GET", f"/orgs/{organization}/projects")["projects"][0]["id"]
    member = owner("GET", f"/orgs/{organization}/members")["members"][0]["id"]
    gateway.stop()
    url = gateway.environment.get("DATABASE_URL") or f"sqlite:///{gateway.data / 'gateway.db'}"
    database = open_database(DatabaseSettings(url, str(gateway.data), 4, 60.0), Clock(), Threads())
    try:
        ids = {"organization": organization, "project": project, "member": member}
        began = time.monotonic()
        fill(database, rows_of({name: raw_id(ident) for name, ident in ids.items()}, month))
        database.write(lambda: database.execute("DELETE FROM document WHERE kind = 'mark' AND key = 'closed_hours'"))
        filled = time.monotonic()
        LedgerClose(database, Documents(database), LedgerBook(database, Control.observer(database))).close()
        closed = time.monotonic()
    finally:
        database.close()
    gateway.start()
    return str(organization), filled - began, closed - filled


def memory_kb(gateway: GatewayProcess, name: str) -> int:
    """Return a line of the worker's memory status, such as VmRSS."""
    [worker] = gateway.workers()
    lines = Path(f"/proc/{worker}/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(name))


def probe(gateway: GatewayProcess, stopping: list[bool], taken_ms: list[float]) -> None:
    """Call a model ten times a second."""
    while not stopping:
        began = time.perf_counter()
        status, _ = gateway.post("/v1/chat/completions", CALL)
        assert status == 200
        taken_ms.append((time.perf_counter() - began) * 1000)
        gevent.sleep(0.1)


def billed_nusd(file: Path) -> tuple[int, int]:
    """Return the number of charges and the sum of BilledCost."""
    count = total = 0
    with file.open(newline="") as lines:
        reader = csv.reader(lines)
        assert next(reader)[0] == "BilledCost"
        for row in reader:
            count += 1
            total += int(Decimal(row[0]) * NANO)
    return count, total


def test_the_export_of_a_month_equals_the_ledger(start: Start, tmp_path: Path) -> None:
    month = last_month()
    gateway = start(workers=1, GATEWAY_BOOTSTRAP_CREDITS_USD="1000000", GATEWAY_BOOTSTRAP_PASSWORD=PASSWORD)
    organization, filled_s, closed_s = fill_month(gateway, month)
    spent = f"SELECT -SUM(amount_nusd) FROM ledger WHERE ref LIKE '%:{month.name}-%'"
    sql = f"SELECT SUM(CASE WHEN mode = {CREDITS} THEN cost_nusd ELSE 0 END + COALESCE(storage_nusd, 0)) FROM usage "
    expected = query(gateway, sql + f"WHERE at < {month.end_us}")
    assert query(gateway, spent) == expected

    stopping: list[bool] = []
    quiet_ms: list[float] = []
    busy_ms: list[float] = []
    probing = gevent.spawn(probe, gateway, stopping, quiet_ms)
    gevent.sleep(5)
    stopping.append(True)
    probing.join()
    stopping.clear()
    probing = gevent.spawn(probe, gateway, stopping, busy_ms)
    resident_kb = memory_kb(gateway, "VmRSS")
    token = SignedInOwner(gateway.address).web.headers["Authorization"]
    file = tmp_path / "focus.csv"
    address = f"{gateway.address}/orgs/{organization}/focus?month={month.name}"
    began = time.monotonic()
    command = ["curl", "--silent", "--fail", "--header", f"Authorization: {token}", "--output", str(file), address]
    subprocess.run(command, check=True, timeout=LONGEST_S)
    export_s = time.monotonic() - began
    growth_kb = memory_kb(gateway, "VmHWM") - resident_kb
    stopping.append(True)
    probing.join()
    count, billed = billed_nusd(file)
    middle = [sorted(taken)[len(taken) // 2] for taken in (quiet_ms, busy_ms)]
    print(f"{ROWS} rows in {filled_s:.0f} s, their hours closed in {closed_s:.1f} s")
    print(
        f"{count} charges in {export_s:.0f} s, {file.stat().st_size >> 20} MB, memory {growth_kb >> 10} MB more; "
        f"a call takes {middle[0]:.0f} ms, {middle[1]:.0f} ms during the export, at most {max(busy_ms):.0f} ms"
    )
    assert (billed,) == expected[0]
    assert count > ROWS
    assert growth_kb < GROWTH_KB
