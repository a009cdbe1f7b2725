"""The points of a worker that wait to be stored: many exports make one transaction, and no caller waits for it."""

from collections import Counter
from threading import Lock

from gateway.errors import Unavailable
from gateway.metering.counters import Counters
from gateway.metering.outcomes.outcome_points import OutcomeExport
from gateway.metering.outcomes.outcome_table import store_exports
from gateway.store.database import Database

COUNTER = "agent_outcomes_total"
MAX_WAITING = 40_000  # points of a worker, about 10 MB
MAX_OF_ORGANIZATION = MAX_WAITING // 4
BATCH = 2_000  # points that one transaction stores


class OutcomeBook:
    """The points of a worker. While the store is down they wait, up to MAX_WAITING; further ones are dropped, and
    counted like the others."""

    def __init__(self, database: Database, counters: Counters) -> None:
        self._database = database
        self._counters = counters
        self._waiting: list[OutcomeExport] = []
        self._points = Counter[bytes]()
        self._storing = Lock()

    def take(self, export: OutcomeExport) -> None:
        """Keep the points of an export for the next `flush`. Never waits."""
        count = len(export.points)
        if (
            self._points.total() + count > MAX_WAITING
            or self._points[export.organization] + count > MAX_OF_ORGANIZATION
        ):
            self.drop(count)
            return
        self._points[export.organization] += count
        self._waiting.append(export)

    def drop(self, points: int) -> None:
        """Count points that are not kept."""
        self._count("dropped", points)

    def flush(self) -> None:
        """Store what waits, after another flush. Unavailable when the store is down: the points go on waiting."""
        with self._storing:
            while self._waiting:
                batch = self._next()
                try:
                    stored = store_exports(self._database, batch)
                except Unavailable:
                    raise
                except Exception:  # a batch that the store refuses must not keep the next ones waiting
                    self._forget(batch)
                    self.drop(sum(len(export.points) for export in batch))
                    raise
                self._forget(batch)
                for outcome, points in stored._asdict().items():
                    self._count(outcome, points)

    def _forget(self, batch: list[OutcomeExport]) -> None:
        del self._waiting[: len(batch)]
        for export in batch:
            self._points[export.organization] -= len(export.points)
            if not self._points[export.organization]:
                del self._points[export.organization]

    def _next(self) -> list[OutcomeExport]:
        """Return the first exports that wait, as many as one transaction stores."""
        batch: list[OutcomeExport] = []
        points = 0
        for export in self._waiting:
            points += len(export.points)
            if batch and points > BATCH:
                break
            batch.append(export)
        return batch

    def _count(self, outcome: str, points: int) -> None:
        if points:
            self._counters.add(COUNTER, (outcome,), points)
