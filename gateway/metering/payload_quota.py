"""The quota of an organization's retained payloads: the oldest go when they take too much."""

from collections.abc import Callable
from functools import partial
from heapq import merge

from gateway.runtime.threads import pause
from gateway.store.database import Database

STEP_ROWS = 200
PAUSE_S = 0.02
SIZE = "length(sent) + length(answer) + coalesce(length(raw), 0)"
MEASURE = f"SELECT organization, project, sum({SIZE}) FROM request_log GROUP BY organization, project"
OLDEST = f"SELECT at, request, {SIZE} FROM request_log WHERE project = ? ORDER BY at LIMIT {STEP_ROWS}"
FORGET = "DELETE FROM request_log WHERE request = ?"

GoOn = Callable[[], bool]


class PayloadQuota:
    """Keeps each organization within `most_bytes` (0: any number), as they lie in the database."""

    def __init__(self, database: Database, most_bytes: int) -> None:
        self._database = database
        self._most_bytes = most_bytes

    def keep(self, go_on: GoOn = lambda: True) -> int:
        """Forget the oldest payloads of organizations that have too many, in small steps; how many. Usage rows and fees
        stay. Safe to repeat. Unavailable: the next round does it."""
        if not self._most_bytes:
            return 0
        projects: dict[bytes, list[bytes]] = {}
        taken: dict[bytes, int] = {}
        for organization, project, size in self._database.report(lambda: self._fetch(MEASURE)):
            owner = bytes(organization)
            projects.setdefault(owner, []).append(bytes(project))
            taken[owner] = taken.get(owner, 0) + int(size)
        gone = 0
        for owner, size in taken.items():
            gone += self._shrink(projects[owner], size - self._most_bytes, go_on)
        return gone

    def _shrink(self, projects: list[bytes], excess: int, go_on: GoOn) -> int:
        """Forget the oldest of these projects until they take `excess` bytes less; how many."""
        gone = 0
        while excess > 0 and go_on():
            going, freed = self._choose(projects, excess)
            if not going:
                break
            self._database.write(partial(self._forget, going))
            gone = gone + len(going)
            excess = excess - freed
            pause(PAUSE_S)
        return gone

    def _choose(self, projects: list[bytes], excess: int) -> tuple[list[bytes], int]:
        """The oldest requests, as many as are too many and fit one step, and their bytes."""

        def read() -> list[list[tuple]]:
            return [self._fetch(OLDEST, project) for project in projects]

        going: list[bytes] = []
        freed = 0
        for _, request, size in merge(*self._database.read(read), key=lambda row: row[0]):
            if freed >= excess or len(going) >= STEP_ROWS:
                break
            going.append(bytes(request))
            freed += int(size)
        return going, freed

    def _forget(self, requests: list[bytes]) -> None:
        for request in requests:
            self._database.execute(FORGET, (request,))

    def _fetch(self, sql: str, *values: bytes) -> list[tuple]:
        return self._database.execute(sql, values).fetchall()
