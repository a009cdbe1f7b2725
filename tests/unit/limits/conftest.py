from collections.abc import Callable, Iterator

import pytest

from gateway import ids
from gateway.control.version import Control
from gateway.errors import Unavailable
from gateway.limits.budgets import Budgets
from gateway.limits.lease_keeping import OutageLimits
from gateway.limits.ledger import LedgerBook
from gateway.limits.spending import Payer, Spending
from gateway.store.database import Database
from gateway.store.journal import Journal

DOLLAR = 10**9
CENT = 10**7


class Worker:
    """The budgets of one process: its control row, journal and slices."""

    def __init__(self, database: Database, money: Database, clock, outage: OutageLimits | None = None) -> None:
        self.database, self.money = database, money
        self.control = Control(database, clock, "node", outage.keep_s if outage else 0.0)
        self.control.start()
        self.journal = Journal(database, clock)
        self.announced: list[int] = []
        self.spending = Spending(money, self.journal, self.control, clock, self.announced.append, outage)

    def pay(self, reservation, cost_nusd: int) -> bool:
        """Settle durably, as the engine does."""
        rows = reservation.rows(cost_nusd)
        if rows:
            self.journal.append(*rows).wait(60)
        return reservation.settle(cost_nusd)

    def be_idle(self) -> None:
        """All that is idle goes back."""
        self.journal.flush(60)
        self.spending.maintain(idle_s=-1.0, keep_s=-1.0)

    def serve_alone(self, alone: bool = True) -> None:
        """Simulate that the store is unreachable, or reachable again."""
        self.control._stopping.set()
        for task in self.control._tasks:
            task.join()
        vars(self.control).pop("_set_coasting", None)
        self.control._set_coasting(alone)
        if alone:
            # A renewal of the worker's row that began before still reaches the store here, and would end the outage.
            self.control._set_coasting = lambda coasting: None

    def stop(self) -> None:
        try:
            self.journal.close(1)
        except Unavailable:
            pass
        self.control.stop()


@pytest.fixture
def make_worker(database_url: str, open_store: Callable[..., Database], clock) -> Iterator[Callable[[], Worker]]:
    """A factory: each worker() is one more process on the same store."""
    made: list[Worker] = []

    def make(outage: OutageLimits | None = None) -> Worker:
        database, money = (open_store(database_url, pool_size=4, pool_wait_s=20.0) for _ in range(2))
        if not made:
            database.bind()  # Models have one store; the management is the first worker here.
        made.append(Worker(database, money, clock, outage))
        return made[-1]

    yield make
    for one in made:
        one.stop()


@pytest.fixture
def payer() -> Payer:
    return Payer(ids.new("key"), ids.new("member"), ids.new("org"), True)


@pytest.fixture
def books(make_worker: Callable[[], Worker]):
    """Budgets and ledger as the management sees them."""

    class Books:
        def __init__(self) -> None:
            self.worker = make_worker()
            self.budgets = Budgets(self.worker.database, self.worker.control)
            self.ledger = LedgerBook(self.worker.database, self.worker.control)

    return Books()
