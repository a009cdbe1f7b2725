"""The cost of each page of the console: `python -m bench.console_pages --folder FOLDER [--url URL]`.

It answers the pages in this process, with the data that `python -m bench.console --parts fill --folder FOLDER` made,
for the first owner: the processor time of this process and the time until the answer (medians of --rounds), the
statements that a page runs and the time that it waits for them, and its bytes, compressed as a browser gets them. On
SQLite the processor time has all the work of the database; on PostgreSQL that of the server is in the wait. The pages
are those of the navigation, and of single keys, people, teams, projects, models, providers, sessions and requests.
Status 1 when a page takes longer than a second, or is larger than 150 kB.
"""

# ruff: noqa: E402 -- the gateway runs in this process, which gevent must patch first

from gevent import monkey

monkey.patch_all()

import argparse
import gzip
import re
import statistics
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import peewee

from bench.console import COOKIE, EXPLORED, GROUPS, MAX_BYTES, MAX_MS
from gateway.accounts.members import list_members
from gateway.application.app import create_app
from gateway.configuration import settings as settings_module
from gateway.surfaces.console.pages import GROUPS as NAVIGATION
from gateway.worker.services import Services
from gateway.worker.wiring import build as build_services

SLOW = 20  # statements that --statements prints of each page


class Statement(NamedTuple):
    """A statement that a page ran."""

    sql: str
    seconds: float


class Cost(NamedTuple):
    """What one answer took: milliseconds of the processor and of waiting, its statements and its bytes."""

    cpu_ms: float
    wall_ms: float
    statements: tuple[Statement, ...]
    size: int

    @property
    def store_ms(self) -> float:
        return 1000 * sum(one.seconds for one in self.statements)


class Pages:
    """The pages of a site, opened as its first owner."""

    def __init__(self, folder: Path, url: str) -> None:
        environment = {"GATEWAY_DATA_DIR": str(folder / "data"), "GATEWAY_ENV": "test"}
        if url:
            environment |= {"DATABASE_URL": url}
        settings = settings_module.load(environment)
        self.services: Services = build_services(settings)
        self.application = create_app(settings, self.services)
        self.client = self.application.flask.test_client(use_cookies=False)
        owner = next(member for member in list_members(self.services.store.database) if member.role == "owner")
        token = self.services.management.sessions.open(owner.user_id).token
        self.headers = {"Cookie": f"{COOKIE}={token}", "Accept-Encoding": "gzip"}
        self.statements: list[Statement] = []
        self._note()

    def _note(self) -> None:
        run = peewee.Database.execute_sql

        def noting(database: peewee.Database, sql: str, params: Any = None) -> Any:
            began = time.perf_counter()
            try:
                return run(database, sql, params)
            finally:
                self.statements.append(Statement(sql, time.perf_counter() - began))

        peewee.Database.execute_sql = noting

    def open(self, path: str) -> tuple[Cost, str]:
        """Return what a page costs, and its text. Raises AssertionError for any other status than 200."""
        self.statements.clear()
        began, used = time.perf_counter(), time.process_time()
        answer = self.client.get(path, headers=self.headers)
        body = answer.get_data()
        cpu_ms, wall_ms = (time.process_time() - used) * 1000, (time.perf_counter() - began) * 1000
        packed = answer.headers.get("Content-Encoding") == "gzip"
        text = (gzip.decompress(body) if packed else body).decode()
        assert answer.status_code == 200, f"{path}: {answer.status_code} {text[:500]}"
        size = len(body if packed else gzip.compress(body, 6))
        return Cost(cpu_ms, wall_ms, tuple(self.statements), size), text

    def fetch(self, sql: str) -> list[tuple[Any, ...]]:
        database = self.services.store.database
        return database.read(lambda: database.fetch(sql, ()))

    def paths(self) -> Iterator[str]:
        """Yield the pages of the navigation and those of single things, of which the busiest were chosen."""
        yield from (link.path for _, links in NAVIGATION for link in links)
        yield from ("/console/find?q=person-29", "/console/find?q=key+4999", "/console/find?q=abcdef123456")
        yield from (
            "/console/notices",
            "/console/notices/count",
            "/console/playground/models",
            "/console/providers/keys",
        )
        yield from ("/console/keys/new", "/console/models/custom", "/console/start", "/console/playground/runs")
        yield from (f"/console/explore?timeRange=365d&groupBy={group}" for group in GROUPS)
        yield from (f"/console/explore?timeRange=365d&{query}" for query in EXPLORED)
        yield from ("/console?timeRange=90d", "/console/outcomes?timeRange=365d", "/console/outcomes?groupBy=project")
        yield from (f"/console/logs?{query}" for query in ("timeRange=30d", "failed=true", "minCost=0.009"))
        yield from (f"/console/logs?timeRange=30d&{query}" for query in ("status=503&model=model-3", "source=app-1"))
        yield from (f"/console/{page}?page=3" for page in ("keys", "people"))
        yield from (f"/console/{page}?q=nothing" for page in ("keys", "people", "sessions"))
        yield from self._single()

    def _single(self) -> Iterator[str]:
        organization = list_members(self.services.store.database)[0].organization_id
        newest = (
            "SELECT request, api_key, member, project, session FROM usage WHERE session IS NOT NULL ORDER BY at DESC"
        )
        [(request, key, member, project, session)] = self.fetch(f"{newest} LIMIT 1")
        ids = {name: bytes(value).hex() for name, value in zip("rkmp", (request, key, member, project), strict=True)}
        yield f"/console/logs/{ids['r']}"
        for tab in ("", "?tab=settings"):
            yield f"/console/keys/key_{ids['k']}{tab}"
            yield f"/console/people/{organization}/member_{ids['m']}{tab}"
            yield f"/console/projects/proj_{ids['p']}{tab}"
        for team in self.fetch("SELECT id FROM team ORDER BY id DESC LIMIT 1"):
            yield f"/console/teams/{organization}/{team[0]}"
        links = set(re.findall(r'href="[^"]*?(/console/(?:models|providers|sessions)/[^"?#]+)', self._lists()))
        for kind in ("models", "providers", "sessions"):
            yield from sorted(link for link in links if link.startswith(f"/console/{kind}/"))[:1]
        yield f"/console/sessions/proj_{ids['p']}/{session}"

    def _lists(self) -> str:
        return "".join(self.open(f"/console/{name}")[1] for name in ("models", "providers", "sessions"))


def main(arguments: list[str] | None = None) -> int:
    """Return 0 when every page is within its limits."""
    parser = argparse.ArgumentParser(prog="python -m bench.console_pages", description=__doc__.partition("\n")[0])
    parser.add_argument("--folder", type=Path, required=True, help="of bench.console")
    parser.add_argument("--url", default="", help="address of a PostgreSQL database")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", default="", help="pages whose address contains this")
    parser.add_argument("--statements", action="store_true", help="print the slowest statements of each page")
    options = parser.parse_args(arguments)
    pages = Pages(options.folder, options.url)
    good = True
    print("| Page | CPU ms | Wall ms | Statements | In them ms | kB |\n|---|---:|---:|---:|---:|---:|")
    for path in pages.paths():
        if options.only not in path:
            continue
        try:
            costs = [pages.open(path)[0] for _ in range(options.rounds)]
        except AssertionError as error:
            print(f"| {path} | {error} |")
            continue
        cpu, wall = (statistics.median(getattr(cost, name) for cost in costs) for name in ("cpu_ms", "wall_ms"))
        last = costs[-1]
        within = wall <= MAX_MS and last.size <= MAX_BYTES
        good = good and within
        figures = f"{cpu:.0f} | {wall:.0f} | {len(last.statements)} | {last.store_ms:.0f} | {last.size / 1000:.1f}"
        print(f"| {path} | {figures} |{'' if within else ' over the limit'}", flush=True)
        if options.statements:
            for one in sorted(last.statements, key=lambda one: -one.seconds)[:SLOW]:
                print(f"    {one.seconds * 1000:7.1f} ms  {one.sql[:300]}")
    pages.application.close()
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
