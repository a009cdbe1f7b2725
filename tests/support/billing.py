"""The billing services of a process, with the fixtures for tests of billing and of code that uses it."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from gateway import ids
from gateway.accounts.discounts import Discounts
from gateway.billing.admission import Admission, Settlements
from gateway.billing.context import Attempt, RequestContext
from gateway.billing.provider_objects import ProviderObjects
from gateway.billing.recovery import Recovery
from gateway.callers.authentication import Caller
from gateway.catalogue.entries import Mapping, Prices, Provider, TokenRates
from gateway.control.version import Control
from gateway.errors import Unavailable
from gateway.limits.budgets import Budgets
from gateway.limits.ledger import LedgerBook
from gateway.limits.limit_book import LimitBook
from gateway.limits.rate_limits import RateLimiter as RequestRates
from gateway.limits.spending import CostBound, Spending
from gateway.metering.usage_table import find
from gateway.money import MILLION
from gateway.neutral.request import Request, Requirements
from gateway.neutral.usage import Units, Usage
from gateway.providers.protocol import Credential, Target
from gateway.runtime.threads import Threads
from gateway.store.database import Database
from gateway.store.documents import DocumentRows, Documents
from gateway.store.intents import Intents
from gateway.store.journal import Journal

DOLLAR = 10**9
WRITES = ("write", "write_together")
PRICES = (Prices(TokenRates(prompt=1000 * MILLION, completion=2000 * MILLION)),)


@dataclass
class BillingIdentity:
    """A caller with its organization, all with real ids."""

    key: str = field(default_factory=lambda: ids.new("key"))
    member: str = field(default_factory=lambda: ids.new("member"))
    organization: str = field(default_factory=lambda: ids.new("org"))
    project: str = field(default_factory=lambda: ids.new("proj"))
    teams: tuple[tuple[str, str], ...] = ()

    def context(self) -> RequestContext:
        user = ids.new("user")
        caller = Caller(
            self.key,
            "user",
            "k",
            self.organization,
            self.project,
            user,
            self.member,
            "owner",
            "credits",
            teams=self.teams,
        )
        return RequestContext(ids.new_hex(), caller, 1_750_000_000_000_000, 0.0, 1e9)


def target(source: str = "platform") -> Target:
    mapping = Mapping("mock", "m-1", "m-1", prices=PRICES, price_version="p1")
    return Target(Provider("mock", "Mock", "openai"), mapping, Credential("", source, "ident"), "http://127.0.0.1")


def attempt_at(place: Target, number: int = 0, **facts) -> Attempt:
    return Attempt(number, place, 1_750_000_000_000_000, 0.0, ended=0.5, **facts)


def request_of(units: Units | None = None, streamed: bool = False, **requirements: Any) -> Request:
    """Return a request with a prompt of 400 bytes; `requirements` are further fields of Requirements."""
    return Request("m", Requirements(stream=streamed, prompt_bytes=400, units=units, **requirements), no_content)


def no_content() -> None:
    """Stand in for the content of a request that is not sent."""


def admission_of(
    context: RequestContext, cost_bound: CostBound, credits: bool = True, units: Units | None = None
) -> Admission:
    return Admission(context, context.request or request_of(units), cost_bound, credits, "m-1")


class BillingProcess:
    """The billing services of a process."""

    def __init__(self, database: Database, money: Database, clock, folder: Path, threads: Threads) -> None:
        self.database, self.money, self.clock, self.threads = database, money, clock, threads
        self.control = Control(database, clock, "node")
        self.control.start()
        self.journal = Journal(money, clock)
        self.intents = Intents(folder / "journal", "node")
        self.spending = Spending(money, self.journal, self.control, clock, self.intents.claim)
        self.discounts = Discounts(database, self.control)
        self.objects = ProviderObjects(Documents(database), DocumentRows(database, clock))
        self.limit_book = LimitBook(database, self.control, clock)
        self.settlements = Settlements(
            self.spending,
            RequestRates(),
            self.journal,
            self.intents,
            clock,
            self.discounts,
            5.0,
            self.objects,
            self.limit_book,
        )
        self.recovery = Recovery(money, folder / "journal", self.control, clock, 60.0)
        self.budgets, self.ledger = Budgets(database, self.control), LedgerBook(database, self.control)

    def admit(
        self,
        account: BillingIdentity,
        cost_bound: CostBound = CostBound(100_000, 2000 * MILLION, 100, True),
        credits: bool = True,
        units: Units | None = None,
    ):
        self.context = account.context()
        return self.settlements.admit(admission_of(self.context, cost_bound, credits, units))

    def rows(self):
        return find(self.database, self.context.request_id)

    def rest(self) -> None:
        self.journal.flush(60)
        self.settlements.reap()
        self.spending.maintain(idle_s=-1.0, keep_s=-1.0)

    def die(self) -> None:
        """Simulate kill -9: the process writes and releases nothing, and the kernel drops its locks."""
        self.journal.flush(60)
        self.intents.leave()
        self.stop()

    def fail_once(self, after: bool) -> None:
        """Make the store fail during the next write, either before it starts or after its commit."""
        writes = {name: getattr(self.money, name) for name in WRITES}

        def fail(name, *given):
            vars(self.money).update(writes)
            if after:
                writes[name](*given)
            raise Unavailable("injected")

        vars(self.money).update({name: partial(fail, name) for name in WRITES})

    def stop(self) -> None:
        try:
            self.journal.close(1)
        except Unavailable:
            pass
        self.control.stop()


@pytest.fixture
def start_billing(
    database_url: str, open_store: Callable[..., Database], clock, tmp_path: Path, threads: Threads
) -> Iterator[Callable]:
    """Return a factory: each start_billing() simulates another process on the same store and folder."""
    made: list[BillingProcess] = []

    def make() -> BillingProcess:
        database, money = (open_store(database_url, pool_size=4, pool_wait_s=20.0) for _ in range(2))
        if not made:
            database.bind()
        made.append(BillingProcess(database, money, clock, tmp_path, threads))
        return made[-1]

    yield make
    for one in made:
        one.stop()


@pytest.fixture
def account() -> BillingIdentity:
    return BillingIdentity()


@pytest.fixture
def used() -> Usage:
    """Return usage that costs 10 × 1,000 + 5 × 2,000 = 20,000 n$."""
    return Usage(input=10, output=5)
