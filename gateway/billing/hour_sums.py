"""SQL that sums credits by organization and hour: spending in usage rows and postings in the ledger."""

from gateway.clock import HOUR_US
from gateway.limits.ledger import LATE_PREFIX
from gateway.metering.models import CREDITS
from gateway.metering.rollups.row_sums import HEX

# The 32 hex digits of an id without its prefix. Budgets and ledger store the id as text, usage rows as bytes.
DIGITS = "substr({0}, length({0}) - 31)"
LATE_REF = f"substr(ref, 1, {len(LATE_PREFIX)}) = '{LATE_PREFIX}'"
HOUR_OF_MOMENT = "substr(moment, 1, 10) || ' ' || substr(moment, 12, 2) || ':00:00'"
HOUR = {
    "sqlite": f"CAST(strftime('%s', {HOUR_OF_MOMENT}) AS INTEGER) / 3600",
    "postgresql": f"CAST(EXTRACT(EPOCH FROM CAST({HOUR_OF_MOMENT} AS timestamp)) AS BIGINT) / 3600",
}
# Hours are counted since the epoch. `rows` sums usage rows and removed rows, `booked` sums the ledger: entries of usage
# and storage, and adjustments of closed hours. Their ref is [usage:]<organization>:<hour>[:n].
SUMS = f"""
WITH spent AS (
    SELECT organization, at / {HOUR_US} AS hour,
        SUM(COALESCE(storage_nusd, 0) + CASE WHEN mode = {CREDITS} THEN cost_nusd ELSE 0 END) AS nusd FROM usage
    WHERE mode = {CREDITS} OR storage_nusd IS NOT NULL GROUP BY organization, at / {HOUR_US}
), rows AS (
    SELECT id, hour, SUM(nusd) AS nusd FROM (
        SELECT {{organization}} AS id, hour, nusd FROM spent
        UNION ALL SELECT owner, hour, nusd FROM removed_spend WHERE kind IN ('credits', 'storage')
    ) s GROUP BY id, hour
), entries AS (
    SELECT {DIGITS.format("organization")} AS id, amount_nusd,
        substr(ref, length(organization) + CASE WHEN {LATE_REF} THEN {len(LATE_PREFIX) + 2} ELSE 2 END, 13) AS moment
    FROM ledger WHERE kind IN ('usage', 'storage') OR (kind = 'adjustment' AND {LATE_REF})
), booked AS (SELECT id, {{hour}} AS hour, -SUM(amount_nusd) AS nusd FROM entries GROUP BY 1, 2)
"""
DIFFERENT_SUMS = """
SELECT id, hour, SUM(mine) AS posted, SUM(theirs) AS used, MAX(entries) AS has_entry FROM (
    SELECT id, hour, nusd AS mine, 0 AS theirs, 1 AS entries FROM booked UNION ALL SELECT id, hour, 0, nusd, 0 FROM rows
) h GROUP BY id, hour HAVING SUM(mine) <> SUM(theirs)
"""
# Hours that differ and are closed or have an entry.
CLOSED = f"""
SELECT id || ' hour ' || hour, posted, used FROM ({DIFFERENT_SUMS}) x WHERE hour < ? OR has_entry = 1 ORDER BY 1
"""
# Closed hours that differ and had rows removed.
REMOVED = f"""
SELECT DISTINCT hour FROM ({DIFFERENT_SUMS}) x WHERE hour < ?
AND hour IN (SELECT hour FROM removed_spend WHERE kind IN ('credits', 'storage'))
"""


def hour_sums(kind: str) -> str:
    """Return the start of an SQL statement for a kind of store. It defines `rows` and `booked`, each (id, hour,
    nusd)."""
    return SUMS.format(organization=HEX[kind].format("organization"), hour=HOUR[kind])
