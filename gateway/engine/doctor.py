"""Conservation of money: ledger, balances, counters and usage rows must tell the same, to the nano-dollar."""

from collections.abc import Iterator
from datetime import UTC, datetime

from gateway.clock import from_datetime
from gateway.engine.records import BOUNDED
from gateway.limits.ledger import LATE
from gateway.metering.models import CREDITS
from gateway.money import format_usd
from gateway.store.database import Database

HOUR_US = 3_600_000_000

# What every budget settled, with what its leases spent and nobody folded yet.
SPENT = """
SELECT b.scope_id, b.settled_nusd + COALESCE((SELECT SUM(l.spent_nusd) FROM lease l
    WHERE l.budget = b.id AND l.generation = b.generation), 0) FROM budget b WHERE b.kind = ?
"""
LEASED = """
SELECT b.id, b.leased_nusd, COALESCE((SELECT SUM(l.granted_nusd) FROM lease l
    WHERE l.budget = b.id AND l.generation = b.generation), 0) FROM budget b
"""
OVERDRAWN = """
SELECT b.id, b.settled_nusd, b.leased_nusd, b.limit_nusd FROM budget b WHERE b.settled_nusd < 0 OR b.leased_nusd < 0
"""
FUNDED = """
SELECT organization, SUM(amount_nusd) FROM ledger
WHERE kind IN ('grant', 'refund') OR (kind = 'adjustment' AND ref NOT LIKE ?) GROUP BY organization
"""
BALANCES = "SELECT scope_id, limit_nusd FROM budget WHERE kind = 'credits'"
# Entries of usage and storage and the adjustments of closed hours: ref is [usage:]<organization>:<hour>[:n].
BOOKED = """
SELECT organization, ref, amount_nusd FROM ledger
WHERE kind IN ('usage', 'storage') OR (kind = 'adjustment' AND ref LIKE ?)
"""
HOURS = f"""
SELECT organization, at / {HOUR_US},
    SUM(COALESCE(storage_nusd, 0) + CASE WHEN mode = {CREDITS} THEN cost_nusd ELSE 0 END) FROM usage
WHERE mode = {CREDITS} OR storage_nusd IS NOT NULL GROUP BY organization, at / {HOUR_US}
"""
LATE_REFS = f"{LATE}%"
ROWS = (
    "SELECT api_key, SUM(cost_nusd) FROM usage GROUP BY api_key",
    "SELECT member, SUM(cost_nusd) FROM usage GROUP BY member",
    "SELECT t.team, SUM(u.cost_nusd) FROM team_usage t JOIN usage u "
    "ON u.request = t.request AND u.attempt = t.attempt AND u.kind = t.kind GROUP BY t.team",
)
# What provider keys with a bound spent: the mark stands in the row's details.
KEYED = {
    "sqlite": "json_extract(extra, '$.provider_key')",
    "postgresql": "CAST(extra AS json) ->> 'provider_key'",
}
BOUND_ROWS = "SELECT {key}, SUM(cost_nusd) FROM usage WHERE extra LIKE ? GROUP BY 1"
MARKED = f'%"{BOUNDED}":true%'


def doctor(database: Database) -> list[str]:
    """Every difference as a line, [] when the books agree. One snapshot, so it may run under load.

    Of hours whose usage rows were cleared the ledger's entry stands for them; counters of keys, members, teams and
    provider keys are then only checked to be no less than the rows that are left.
    """
    level = "DEFERRED" if database.kind == "sqlite" else "REPEATABLE READ"

    def examine() -> list[str]:
        with database.peewee.transaction(level):
            return list(_examine(database))

    return database.report(examine)


def _examine(database: Database) -> Iterator[str]:
    yield from _compare("ledger", _pairs(database, FUNDED, LATE_REFS), "credit balance", _pairs(database, BALANCES))
    booked, hours = _booked(database), _hours(database)
    closed = {place: nusd for place, nusd in booked.items() if place in hours}
    yield from _compare("ledger usage", _named(closed), "usage rows", _named({place: hours[place] for place in closed}))
    cleared = [place for place in booked if place not in hours]
    used: dict[str, int] = {}
    for place, nusd in {**{place: booked[place] for place in cleared}, **hours}.items():
        used[place[0]] = used.get(place[0], 0) + nusd
    settled = {_hex(scope): nusd for scope, nusd in _pairs(database, SPENT, "credits").items()}
    yield from _compare("usage", used, "credits settled", settled)
    yield from _check_counters(database, exact=not cleared)
    yield from _check_leases(database)


def _check_counters(database: Database, exact: bool) -> Iterator[str]:
    counters = {_hex(scope): nusd for scope, nusd in _pairs(database, SPENT, "total").items()}
    rows: dict[str, int] = {}
    for sql in ROWS:
        found = database.execute(sql).fetchall()
        rows |= {bytes(ident).hex(): int(total) for ident, total in found if ident}
    bound = _pairs(database, BOUND_ROWS.format(key=KEYED[database.kind]), MARKED)
    rows |= {_hex(ident): nusd for ident, nusd in bound.items()}
    if exact:
        yield from _compare("usage rows", rows, "counter", counters)
        return
    for ident, total in sorted(rows.items()):
        if counters.get(ident, 0) < total:
            yield f"{ident}: usage rows {format_usd(total)}, counter {format_usd(counters.get(ident, 0))}"


def _check_leases(database: Database) -> Iterator[str]:
    for ident, leased, granted in database.execute(LEASED).fetchall():
        if leased != int(granted):
            yield f"{ident}: leased {format_usd(leased)}, granted to workers {format_usd(int(granted))}"
    for ident, settled, leased, _ in database.execute(OVERDRAWN).fetchall():
        yield f"{ident}: a counter is negative: settled {format_usd(settled)}, leased {format_usd(leased)}"


def _booked(database: Database) -> dict[tuple[str, int], int]:
    """(organization, hour since the epoch) → what was spent by the ledger."""
    found: dict[tuple[str, int], int] = {}
    for organization, ref, amount in database.execute(BOOKED, (LATE_REFS,)).fetchall():
        hour = ref.removeprefix(LATE).removeprefix(f"{organization}:").partition(":")[0]
        place = (_hex(organization), _hour_number(hour))
        found[place] = found.get(place, 0) - amount
    return found


def _hours(database: Database) -> dict[tuple[str, int], int]:
    rows = database.execute(HOURS).fetchall()
    return {(bytes(organization).hex(), int(hour)): int(total) for organization, hour, total in rows}


def _hour_number(text: str) -> int:
    """Hours since the epoch of "2026-01-31T14"."""
    return from_datetime(datetime.strptime(text, "%Y-%m-%dT%H").replace(tzinfo=UTC)) // HOUR_US


def _named(places: dict[tuple[str, int], int]) -> dict[str, int]:
    return {f"{organization} hour {hour}": nusd for (organization, hour), nusd in places.items()}


def _pairs(database: Database, sql: str, *params: str) -> dict[str, int]:
    return {name: int(total or 0) for name, total in database.execute(sql, params).fetchall()}


def _hex(ident: str) -> str:
    return ident.rpartition("_")[2]


def _compare(left: str, mine: dict[str, int], right: str, theirs: dict[str, int]) -> Iterator[str]:
    for ident in sorted(mine.keys() | theirs.keys()):
        one, other = mine.get(ident, 0), theirs.get(ident, 0)
        if one != other:
            yield f"{ident}: {left} {format_usd(one)}, {right} {format_usd(other)}"
