"""The savings of routes: the cost of requests beside that of the same usage at the reference model of the route."""

from msgspec import Struct

from gateway.clock import DAY_US, Clock
from gateway.metering.usage_table import UsageRecord, raw_id
from gateway.runtime.call_merging import SharedCalls
from gateway.runtime.loop_turns import ShouldContinue, always
from gateway.runtime.threads import pause
from gateway.store.database import Database
from gateway.store.journal import Row, Statement

# Members of a usage row's details.
ROUTE, VERSION, RULE = "route", "route_version", "route_rule"
REFERENCE, REFERENCE_NUSD = "reference", "reference_nusd"
SEEN = "route_seen"  # [turn, agent, difficulty], each "" where no rule needed it
JUDGED = "route_judged"  # [model, outcome, id of its request] of the model that judged the difficulty
MAX_GROUPS = 5000  # of a report
STEP_ROWS = 500
PAUSE_S = 0.02
RECORD = Statement(
    "route_usage",
    "INSERT INTO route_usage (request, attempt, organization, project, route, version, rule, served, finish, failed, "
    "duration_ms, cost_nusd, reference_nusd, at) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?) "
    "ON CONFLICT (request, attempt) DO NOTHING",
)
SUMS = (
    "SELECT route, version, rule, served, COUNT(*), SUM(failed), SUM(duration_ms), SUM(cost_nusd), "
    "SUM(reference_nusd) FROM route_usage WHERE organization = ? AND at >= ? GROUP BY route, version, rule, served "
    "ORDER BY route, version DESC, rule, served LIMIT ?"
)
FINISHES = (
    "SELECT route, version, rule, served, finish, COUNT(*) FROM route_usage WHERE organization = ? AND at >= ? "
    "GROUP BY route, version, rule, served, finish LIMIT ?"
)
TOTAL = "SELECT COALESCE(SUM(reference_nusd - cost_nusd), 0) FROM route_usage WHERE organization = ? AND at >= ?"
TOTAL_KEPT_S = 300.0
MAX_TOTALS = 1_000  # in the memory of a worker
DELETE = "DELETE FROM route_usage WHERE at < ? AND request IN (SELECT request FROM route_usage WHERE at < ? LIMIT ?)"


class RouteSavings(Struct):
    """The sums of the calls that a rule of a version sent to one model. Savings are `reference_nusd` less
    `cost_nusd`."""

    route: str
    version: int
    rule: str
    model: str
    requests: int
    failed: int
    duration_ms: int
    cost_nusd: int
    reference_nusd: int
    finishes: dict[str, int] = {}


def row_of_route(row: Row) -> Row:
    """Return the journal row of a route beside the usage row of an attempt. Without a price of the reference model
    nothing counts as saved."""
    record = UsageRecord(*row[1][: len(UsageRecord._fields)])
    details = record.details
    cost_nusd = record.cost_nusd
    return RECORD, (
        record.request,
        record.attempt,
        record.organization,
        record.project,
        details[ROUTE],
        details[VERSION],
        details[RULE],
        record.served,
        record.finish,
        int(record.error is not None),
        record.duration_ms,
        cost_nusd,
        details.get(REFERENCE_NUSD, cost_nusd),
        record.at,
    )


def sum_savings(database: Database, organization_id: str, since_us: int) -> list[RouteSavings]:
    """Return the costs of the routes of an organization since a time, by route, version, rule and model."""
    organization = raw_id(organization_id)

    def read() -> list[RouteSavings]:
        found = {
            tuple(row[:4]): RouteSavings(*row[:4], *map(int, row[4:]))
            for row in database.fetch(SUMS, (organization, since_us, MAX_GROUPS))
        }
        for *place, finish, count in database.fetch(FINISHES, (organization, since_us, 4 * MAX_GROUPS)):
            savings = found.get(tuple(place))
            if savings is not None:
                savings.finishes[finish] = int(count)
        return list(found.values())

    return database.report(read)


class SavingsTotals:
    """What all routes of an organization saved, as of the last TOTAL_KEPT_S: a sum over many rows for a page that
    people open often."""

    def __init__(self, database: Database, clock: Clock) -> None:
        self._database = database
        self._clock = clock
        self._known: dict[tuple[str, int], tuple[float, int]] = {}
        self._reads: SharedCalls[tuple[str, int], int] = SharedCalls()

    def find(self, organization_id: str, days: int) -> int:
        """Return the nano-dollars that were saved in the last days. Unavailable."""
        key = (organization_id, days)
        until_s, total_nusd = self._known.get(key, (0.0, 0))
        if self._clock.monotonic() < until_s:
            return total_nusd
        return self._reads.run(key, lambda: self._read(key))

    def _read(self, key: tuple[str, int]) -> int:
        organization_id, days = key
        values = (raw_id(organization_id), self._database.now_us() - days * DAY_US)
        total_nusd = self._database.report(lambda: int(next(iter(self._database.fetch(TOTAL, values)))[0]))
        self._known.pop(key, None)
        if len(self._known) >= MAX_TOTALS:
            del self._known[next(iter(self._known))]
        self._known[key] = (self._clock.monotonic() + TOTAL_KEPT_S, total_nusd)
        return total_nusd


def forget_route_usage(database: Database, kept_days: int, should_continue: ShouldContinue = always) -> None:
    """Delete older rows in small steps, none with 0 days; safe to repeat. Unavailable."""
    if not kept_days:
        return
    oldest = database.now_us() - kept_days * DAY_US
    values = (oldest, oldest, STEP_ROWS)
    while should_continue():
        if database.write(lambda: database.execute(DELETE, values).rowcount) < STEP_ROWS:
            break
        pause(PAUSE_S)
