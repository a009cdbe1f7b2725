"""The console in a real Chromium: `python -m bench.console [--rows 5000000] [--postgresql] [--crowd]`.

One organization has the usage of a year: of 5 people, 2 projects and 40 keys, or with --crowd of 300 people in 30
teams, 50 projects and 5,000 keys. It prints the median times until a page is loaded and painted, the bytes of the first
page of a new browser, the median time until the reference of the API shows an operation, and the processor time of the
gateway for a live view of the requests at 100 requests a second. It ends with status 1 when a figure is above its
limit. With --folder, and --url for PostgreSQL, the data stays for other parts.
"""

import argparse
import contextlib
import random
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from bench.pairs import import_from_tests
from bench.processes import BenchError, thread_seconds
from bench.rollups import AT_ONCE, PLACES, fill
from bench.run import BUILD, Phase, build, run_load
from bench.targets import Target, start_gateway, start_targets
from gateway.accounts import keys
from gateway.accounts.members import add_member
from gateway.accounts.projects import create_project
from gateway.accounts.teams import create_team, set_team_member
from gateway.billing.ledger_close import LedgerClose
from gateway.clock import DAY_US, HOUR_US, Clock
from gateway.configuration.settings import DatabaseSettings
from gateway.control.version import Control
from gateway.limits.ledger import LedgerBook
from gateway.metering.outcomes.names import OUTCOMES
from gateway.metering.outcomes.outcome_table import ADD
from gateway.metering.rollups.job import Rollups
from gateway.metering.usage_table import raw_id
from gateway.reports.focus import Month
from gateway.runtime.threads import Threads
from gateway.store.database import Database, open_database
from gateway.store.documents import Documents

DAYS = 366
ROUNDS = 5
GATEWAY = 10  # its port, after the first port
PEOPLE = 300
TEAMS = 30
PROJECTS = 50
KEYS = 5_000
FAILED = 0.01  # of the requests
MAX_MS = 1_000.0
MAX_BYTES = 150_000
MAX_SHARE = 0.03
GROUPS = ("model", "provider", "apiKey", "user", "team", "project", "app", "session", "tag&tag=team", "tag&tag=user")
EXPLORED = (
    "groupBy=model&splitBy=user",
    "groupBy=user&splitBy=model&measure=requestCost",
    "groupBy=team&splitBy=project&compare=weekdays",
    "groupBy=app&splitBy=apiKey",
    "groupBy=session&splitBy=user",
    "groupBy=tag&tag=team&splitBy=project",
    "groupBy=model&measure=wait95",
    "groupBy=model&team=No+team",
)
NAMES = ("logs", "sessions", "keys", "people", "teams", "projects", "providers", "models", "audit")
PAGES = (
    "/console",
    *(f"/console/explore?timeRange=365d&groupBy={group}" for group in GROUPS),
    *(f"/console/explore?timeRange=365d&{query}" for query in EXPLORED),
    *(f"/console/{name}" for name in NAMES),
)
LIVE = Phase("100 requests a second", 20, rate=100)
TURNS = 6
TURN_S = 8.0
COOKIE = "llmgateway.session_token"
LOADED = """!!document.querySelector("h1") && performance.getEntriesByType("navigation")[0].loadEventEnd > 0
    && performance.getEntriesByType("paint").length > 0"""
# Milliseconds until the page is loaded and its content is painted.
TAKEN = """Math.max(performance.getEntriesByType("navigation")[0].loadEventEnd,
    ...performance.getEntriesByType("paint").map(paint => paint.startTime))"""
BYTES = "performance.getEntries().reduce((sum, entry) => sum + (entry.transferSize || 0), 0)"
REFERENCE = "/docs#post-/v1/chat/completions"
# Set `shownAt` to the time at which the renderer of the reference shows the operation.
OBSERVE = """(function look() {
    const request = document.querySelector("rapi-doc")?.shadowRoot?.querySelector("api-request");
    if (request?.shadowRoot?.querySelector("[part~=btn-try]")) window.shownAt = performance.now();
    else setTimeout(look, 10);
})()"""
POLLS = "performance.getEntriesByType('resource').filter(entry => entry.name.includes('live=1')).length"


class Figure(NamedTuple):
    """A line of the table. `good`: it is within its limit, or has none."""

    name: str
    text: str
    good: bool = True


@dataclass(frozen=True)
class Site:
    """Where the gateway of a run has its data, and its first port."""

    folder: Path
    environment: dict[str, str]
    url: str
    port: int

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.port + GATEWAY}"

    @contextlib.contextmanager
    def gateway(self) -> Iterator[Target]:
        """Start the mock and a gateway; its address is `address`."""
        with (
            start_targets({}, self.port, self.folder, BUILD / "mock") as (direct,),
            start_gateway(self.port + GATEWAY, direct.port, self.folder, self.environment) as gateway,
        ):
            yield gateway

    @contextlib.contextmanager
    def database(self) -> Iterator[Database]:
        """Open the database of a gateway that is down."""
        config = DatabaseSettings(self.url, str(self.folder / "data"), 4, 60.0)
        database = open_database(config, Clock(), Threads())
        try:
            yield database
        finally:
            database.close()


def main(arguments: list[str] | None = None) -> int:
    """Return 0 when every figure is within its limit."""
    parser = argparse.ArgumentParser(prog="python -m bench.console", description=__doc__.partition("\n")[0])
    parser.add_argument("--rows", type=int, default=5_000_000, help="usage rows of the year (5000000)")
    parser.add_argument("--postgresql", action="store_true", help="on a new server with default settings")
    parser.add_argument("--url", default="", help="address of a PostgreSQL database")
    parser.add_argument("--crowd", action="store_true", help="300 people, 50 projects and 5,000 keys")
    parser.add_argument("--parts", type=lambda given: given.split(","), default=["fill", "pages", "live"])
    parser.add_argument("--folder", type=Path, help="keep the data in this folder")
    parser.add_argument("--port", type=int, default=19_620, help="first of the ports to use (19620)")
    options = parser.parse_args(arguments)
    good = True
    try:
        build()
        with contextlib.ExitStack() as stack:
            folder = options.folder or Path(stack.enter_context(tempfile.TemporaryDirectory(dir="/var/tmp")))
            folder.mkdir(exist_ok=True)
            url = options.url
            if options.postgresql:
                servers = import_from_tests("servers")
                url = stack.enter_context(servers.run_postgres(servers.DEFAULTS))
            for figure in measure(make_site(folder, url, options.port), options):
                print(f"| {figure.name} | {figure.text}{'' if figure.good else ' (over the limit)'} |", flush=True)
                good = good and figure.good
    except BenchError as error:
        print(f"console: {error}", file=sys.stderr)
        return 1
    return 0 if good else 1


def make_site(folder: Path, url: str, port: int) -> Site:
    environment = {"GATEWAY_BOOTSTRAP_PASSWORD": import_from_tests("signed_in_owner").PASSWORD}
    if url:
        environment |= import_from_tests("spending").SECRETS | {"DATABASE_URL": url}
    return Site(folder, environment, url or f"sqlite:///{folder / 'data' / 'gateway.db'}", port)


def measure(site: Site, options: argparse.Namespace) -> Iterator[Figure]:
    if "fill" in options.parts:
        yield from fill_year(site, options.rows, options.crowd)
    if "pages" in options.parts:
        with site.gateway():
            yield from measure_pages(site.address)
    if "live" in options.parts:
        with site.gateway() as gateway:
            yield measure_live(site, gateway)


def fill_year(site: Site, rows: int, crowd: bool) -> Iterator[Figure]:
    """Add people, keys and their usage of a year."""
    month = import_from_tests("organization_month", "soak")
    with site.gateway():
        organization = month.found(site.address)
    # A running gateway would sum up the rows while they are inserted.
    with site.database() as database:
        if crowd:
            organization.keys.extend(month.Key(*key) for key in add_crowd(database, organization.id))
        end_us = database.now_us() // HOUR_US * HOUR_US
        year = Month(end_us - DAYS * DAY_US, end_us)
        began = time.monotonic()
        fill(database, vary(month.rows_of(organization, year, rows)))
        add_results(database, organization, year)
        yield Figure("usage rows", f"{rows:,} in {time.monotonic() - began:.0f} s")
        began = time.monotonic()
        Rollups(database).rebuild(year.start_us // HOUR_US, year.end_us // HOUR_US)
        if database.kind == "postgresql":
            database.write(lambda: database.execute("ANALYZE"), patient=True)
        yield Figure("their statistics", f"{time.monotonic() - began:.0f} s")
        # A gateway that served these requests has closed their hours; else it does so while pages are measured.
        LedgerClose(database, Documents(database), LedgerBook(database, Control.observer(database))).close()


def add_crowd(database: Database, organization_id: str) -> list[tuple[str, str, str]]:
    """Add people, projects and keys, and return key, project and member of each key."""
    database.bind()
    control = Control.observer(database)
    by = {"actor": "bench"}
    members = [
        add_member(database, control, organization_id, f"person-{number}@example.com", name=f"Person {number}", **by).id
        for number in range(PEOPLE)
    ]
    projects = [
        create_project(database, control, organization_id, f"Project {number}", **by).id for number in range(PROJECTS)
    ]
    teams = [create_team(database, control, organization_id, f"Team {number}", **by).id for number in range(TEAMS)]
    for number, member in enumerate(members):
        set_team_member(database, control, teams[number % TEAMS], member, True, **by)
    made = []
    for number in range(KEYS):
        draft = keys.Draft(projects[number % PROJECTS], members[number % PEOPLE], f"Key {number}")
        key = keys.create(database, control, [b"bench"], draft, **by)
        made.append((key.info.id, draft.project_id, draft.member_id))
    return made


def vary(rows: Iterator[tuple[Any, ...]]) -> Iterator[tuple[Any, ...]]:
    """Give the rows durations, and let some fail."""
    dice = random.Random(9)
    draw = dice.random
    names = ("duration_ms", "ttft_ms", "status", "cost_nusd", "input_nusd", "output_nusd", "output", "error")
    duration, wait, status, cost, input_cost, output_cost, output, error = (PLACES[name] for name in names)
    for row in rows:
        line = list(row)
        line[duration], line[wait] = 300 + int(draw() * 9_000), 120 + int(draw() * 900)
        line[input_cost] = line[cost] // 3
        line[output_cost] = line[cost] - line[input_cost]
        line[status] = 200
        if draw() < FAILED:
            line[cost] = line[input_cost] = line[output_cost] = line[output] = 0
            line[status], line[error] = 503, "upstream_error"
        yield tuple(line)


def add_results(database: Database, organization: Any, year: Month) -> None:
    """Add what an agent reported of one hour of each workday for each person."""
    dice = random.Random(13)
    first = {key.member: key for key in reversed(organization.keys)}
    rows = []
    for day in range(year.start_us // DAY_US + 1, year.end_us // DAY_US):
        if (day + 3) % 7 >= 5:
            continue
        for key in first.values():
            counts = {"sessions": 1, "edits_accepted": dice.randrange(9), "commits": dice.randrange(3)}
            counts |= {"pull_requests": int(dice.random() < 0.3), "lines_added": dice.randrange(300)}
            owners = (raw_id(organization.id), raw_id(key.project), raw_id(key.member))
            name = (raw_id(key.id), day * 24 + 9, "s", "claude-code", f"model-{dice.randrange(12)}")
            rows.append((*name, *owners, *(counts.get(name, 0) for name in OUTCOMES)))
    for start in range(0, len(rows), AT_ONCE):
        part = rows[start : start + AT_ONCE]
        database.write(lambda part=part: database.execute_many(ADD, part), patient=True)


@contextlib.contextmanager
def browser_of(address: str) -> Iterator[Any]:
    """A new browser in which the owner is signed in."""
    owner = import_from_tests("signed_in_owner").SignedInOwner(address)
    chromium = import_from_tests("chromium")
    try:
        with contextlib.closing(chromium.Chromium()) as browser:
            token = owner.web.headers["Authorization"].removeprefix("Bearer ")
            browser.ask("Network.setCookie", name=COOKIE, value=token, url=address)
            yield browser
    finally:
        chromium.close_program()


def open_page(browser: Any, address: str) -> float:
    """Open a page and return the milliseconds that it took."""
    browser.open("about:blank")
    browser.wait_for("location.href === 'about:blank'")
    browser.open(address)
    browser.wait_for(f"location.href !== 'about:blank' && {LOADED}")
    return float(browser.run(TAKEN))


def measure_pages(address: str) -> Iterator[Figure]:
    with browser_of(address) as browser:
        taken_ms = open_page(browser, f"{address}/console")
        size = int(browser.run(BYTES))
        text = f"{taken_ms:.0f} ms, {size / 1000:.0f} kB"
        yield Figure("the first page of a new browser", text, taken_ms <= MAX_MS and size <= MAX_BYTES)
        for path in PAGES:
            times_ms = [open_page(browser, address + path) for _ in range(ROUNDS)]
            taken_ms = statistics.median(times_ms)
            yield Figure(path, f"{taken_ms:.0f} ms, slowest {max(times_ms):.0f}", taken_ms <= MAX_MS)
        yield measure_reference(browser, address + REFERENCE)


def measure_reference(browser: Any, address: str) -> Figure:
    """Open the reference several times; it has no limit, because most of the time is the renderer's."""
    browser.ask("Page.enable")
    browser.ask("Page.addScriptToEvaluateOnNewDocument", source=OBSERVE)
    times_ms = []
    for _ in range(ROUNDS):
        open_page(browser, address)
        browser.wait_for("window.shownAt")
        times_ms.append(browser.run("window.shownAt"))
    return Figure(REFERENCE, f"{statistics.median(times_ms):.0f} ms, slowest {max(times_ms):.0f}")


def measure_live(site: Site, gateway: Target) -> Figure:
    """Compare the processor time of the gateway with and without a live view, in turns."""
    shares: dict[bool, list[float]] = {True: [], False: []}
    with browser_of(site.address) as browser:
        run_load(LIVE, gateway, TURN_S, site.folder)
        for turn in range(2 * TURNS):
            watched = turn % 2 == 0
            open_page(browser, f"{site.address}/console/{'logs?live=1' if watched else 'account'}")
            shares[watched].append(share_of_load(gateway, site.folder))
            if watched and browser.run(POLLS) < TURN_S / 2:
                raise BenchError("the live view did not ask for new requests")
    more = statistics.median(shares[True]) - statistics.median(shares[False])
    text = f"{more:.1%} of a core more than {statistics.median(shares[False]):.1%}"
    return Figure("a live view at 100 requests a second", text, more <= MAX_SHARE)


def share_of_load(gateway: Target, folder: Path) -> float:
    """Return the share of a core that the gateway needs for the load."""
    assert gateway.process is not None
    began, used = time.monotonic(), thread_seconds(gateway.process.pid)
    figures = run_load(LIVE, gateway, TURN_S, folder)
    if figures["errors"] or not figures["good"]:
        raise BenchError(f"{figures['errors']} answers were not good")
    return (thread_seconds(gateway.process.pid) - used) / (time.monotonic() - began)


if __name__ == "__main__":
    sys.exit(main())
