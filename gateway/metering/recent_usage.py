"""Usage of the last seconds over all workers, from the usage rows."""

from gateway.clock import SECOND_US
from gateway.metering.usage_table import raw_id
from gateway.store.database import Database

COLUMNS = {"project": "project", "key": "api_key"}


def count(database: Database, scope: str, subject: str, seconds: int) -> tuple[int, int]:
    """Return the requests and tokens of a project or key that were recorded within the last `seconds`."""
    column = COLUMNS[scope]
    since = database.now_us() - seconds * SECOND_US
    sql = (
        "SELECT COUNT(DISTINCT request), COALESCE(SUM(input + cache_read + cache_write + output), 0) FROM usage "
        f"WHERE posted_at >= ? AND {column} = ?"
    )
    row = database.report(lambda: database.execute(sql, (since, raw_id(subject))).fetchone())
    return int(row[0]), int(row[1])
