"""The quota of an organization's retained payloads: the oldest are deleted when they take too much space."""

from functools import partial
from heapq import merge

from gateway.runtime.stepwise import ShouldContinue, always
from gateway.runtime.threads import pause
from gateway.store.database import Database

STEP_ROWS = 200
PAUSE_S = 0.02
SIZE = "length(sent) + length(answer) + coalesce(length(raw), 0)"
MEASURE = f"SELECT organization, project, sum({SIZE}) FROM request_log GROUP BY organization, project"
OLDEST = f"SELECT at, request, {SIZE} FROM request_log WHERE project = ? ORDER BY at LIMIT {STEP_ROWS}"
DELETE_PAYLOAD = "DELETE FROM request_log WHERE request = ?"


class PayloadQuota:
    """Keeps each organization within `max_bytes` (0: unlimited), measured as stored in the database."""

    def __init__(self, database: Database, max_bytes: int) -> None:
        self._database = database
        self._max_bytes = max_bytes

    def keep(self, should_continue: ShouldContinue = always) -> int:
        """Delete the oldest payloads of organizations above their quota, in small steps; return how many. Usage rows
        and fees stay. Safe to repeat. Unavailable: the next round continues."""
        if not self._max_bytes:
            return 0
        projects: dict[bytes, list[bytes]] = {}
        stored_bytes: dict[bytes, int] = {}
        for organization, project, size in self._database.report(partial(self._fetch, MEASURE)):
            owner = bytes(organization)
            projects.setdefault(owner, []).append(bytes(project))
            stored_bytes[owner] = stored_bytes.get(owner, 0) + int(size)
        deleted = 0
        for owner, size in stored_bytes.items():
            deleted += self._shrink(projects[owner], size - self._max_bytes, should_continue)
        return deleted

    def _shrink(self, projects: list[bytes], excess: int, should_continue: ShouldContinue) -> int:
        """Delete the oldest payloads of these projects until they take `excess` bytes less; return how many."""
        deleted = 0
        while excess > 0 and should_continue():
            requests, freed = self._choose(projects, excess)
            if not requests:
                break
            self._database.write(partial(self._delete, requests))
            deleted = deleted + len(requests)
            excess = excess - freed
            pause(PAUSE_S)
        return deleted

    def _choose(self, projects: list[bytes], excess: int) -> tuple[list[bytes], int]:
        """Return the oldest requests that free `excess` bytes, at most one step of them, and their bytes."""

        def read() -> list[list[tuple]]:
            return [self._fetch(OLDEST, project) for project in projects]

        requests: list[bytes] = []
        freed = 0
        for _, request, size in merge(*self._database.read(read), key=lambda row: row[0]):
            if freed >= excess or len(requests) >= STEP_ROWS:
                break
            requests.append(bytes(request))
            freed += int(size)
        return requests, freed

    def _delete(self, requests: list[bytes]) -> None:
        for request in requests:
            self._database.execute(DELETE_PAYLOAD, (request,))

    def _fetch(self, sql: str, *values: bytes) -> list[tuple]:
        return self._database.execute(sql, values).fetchall()
