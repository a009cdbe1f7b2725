"""The spending of deleted usage rows: the reconciliation compares counters and the ledger with it."""

from collections.abc import Sequence
from typing import Any, NamedTuple

from gateway.clock import HOUR_US
from gateway.metering.models import CREDITS
from gateway.metering.rollups.rollup_table import fetch_exact
from gateway.metering.rollups.sum_tables import run_many
from gateway.store.database import Database


class RemovedSpend(NamedTuple):
    """The spending of rows to be removed: nano-dollars by (kind, owner, hour), and the hours for which the ledger may
    lack some of these rows."""

    amounts: dict[tuple[str, str, int], int]
    unposted: set[int]


PROVIDER_KEY = {
    "sqlite": "substr(json_extract(w.extra, '$.provider_key'), -32)",
    "postgresql": "right(CAST(w.extra AS json) ->> 'provider_key', 32)",
}
COSTS = """
SELECT w.api_key, w.member, w.organization, w.at / {hour}, w.mode, SUM(w.cost_nusd), SUM(COALESCE(w.storage_nusd, 0)),
    COUNT(w.storage_nusd), MAX(w.posted_at)
FROM usage w WHERE {condition} GROUP BY w.api_key, w.member, w.organization, w.at / {hour}, w.mode
"""
OF_TEAMS = """
SELECT t.team, SUM(w.cost_nusd) FROM team_usage t
JOIN usage w ON w.request = t.request AND w.attempt = t.attempt AND w.kind = t.kind WHERE {condition} GROUP BY t.team
"""
OF_PROVIDER_KEYS = "SELECT {key}, SUM(w.cost_nusd) FROM usage w WHERE {condition} AND w.extra LIKE ? GROUP BY {key}"
# Makes the closing of hours compare such an hour again.
LOOK_AGAIN = "UPDATE rollup_hour SET late_at = ? WHERE hour = ?"
KEEP = """
INSERT INTO removed_spend (kind, owner, hour, nusd) VALUES (?, ?, ?, ?)
ON CONFLICT (kind, owner, hour) DO UPDATE SET nusd = removed_spend.nusd + excluded.nusd
"""


def sum_spent(database: Database, condition: str, params: Sequence[Any], marked: str, closed_us: int) -> RemovedSpend:
    """Return the spending of the rows `w` that meet a condition on their request and time of posting. Rows recorded
    since `closed_us`, before which every hour is closed, may be missing in the ledger. Inside a report."""
    spent = RemovedSpend({}, set())

    def add(kind: str, owner: str, nusd: Any, hour: int = 0) -> None:
        place = kind, owner, hour
        spent.amounts[place] = spent.amounts.get(place, 0) + int(nusd)

    sql = COSTS.format(condition=condition, hour=HOUR_US)
    for key, member, organization, hour, mode, cost, storage, stored, last_us in fetch_exact(database, sql, params):
        add("api_key", bytes(key).hex(), cost)
        add("member", bytes(member).hex(), cost)
        if mode == CREDITS:
            add("credits", bytes(organization).hex(), cost, int(hour))
        if stored:
            add("storage", bytes(organization).hex(), storage, int(hour))
        if last_us >= closed_us:
            spent.unposted.add(int(hour))
    of_teams = OF_TEAMS.format(condition=condition.replace("w.request", "t.request"))
    for team, cost in fetch_exact(database, of_teams, params):
        add("team", bytes(team).hex(), cost)
    sql = OF_PROVIDER_KEYS.format(condition=condition, key=PROVIDER_KEY[database.kind])
    for key, cost in fetch_exact(database, sql, [*params, marked]):
        add("provider_key", str(key), cost)
    return spent


def keep_spent(database: Database, spent: RemovedSpend) -> None:
    """Store the spending, within the transaction that removes the rows."""
    run_many(database, KEEP, [(*place, nusd) for place, nusd in sorted(spent.amounts.items())])
    now_us = database.now_us()
    run_many(database, LOOK_AGAIN, [(now_us, hour) for hour in sorted(spent.unposted)])
