"""The last visit of each person to the overview of an organization."""

from collections.abc import Collection

from gateway.clock import MINUTE_US
from gateway.store.database import Database

# Pages within this time of each other are one visit.
PAUSE_US = 30 * MINUTE_US
# A visit that lasts is noted again after this time.
NOTED_EVERY_US = 5 * MINUTE_US
NOTE = """
INSERT INTO last_visit (user_id, organization_id, seen_at, before_at) VALUES (?, ?, ?, 0)
ON CONFLICT (user_id, organization_id) DO UPDATE SET
    before_at = CASE WHEN excluded.seen_at - last_visit.seen_at > ?
        THEN last_visit.seen_at ELSE last_visit.before_at END,
    seen_at = CASE WHEN excluded.seen_at > last_visit.seen_at THEN excluded.seen_at ELSE last_visit.seen_at END
"""


def note_visit(database: Database, user_id: str, organization_ids: Collection[str], now_us: int) -> int:
    """Note that a person looks at these organizations now; return when the visit before ended in microseconds: the
    latest one of them, 0 if there was none. Unavailable."""
    if not organization_ids:
        return 0
    places = ", ".join("?" * len(organization_ids))
    columns = "organization_id, seen_at, before_at"
    sql = f"SELECT {columns} FROM last_visit WHERE user_id = ? AND organization_id IN ({places})"
    known = {
        organization_id: (seen_us, before_us)
        for organization_id, seen_us, before_us in database.query_rows(sql, (user_id, *organization_ids))
    }
    due = [one for one in organization_ids if one not in known or now_us - known[one][0] > NOTED_EVERY_US]
    if due:
        rows = [(user_id, organization_id, now_us, PAUSE_US) for organization_id in due]
        database.write(lambda: database.execute_many(NOTE, rows))
    return max((seen if now_us - seen > PAUSE_US else before for seen, before in known.values()), default=0)
