"""The wiring: every long-lived object, made once, in one function."""

import logging
import random
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from gateway.accounts.authentication import Authentication
from gateway.accounts.custom_providers import CustomProviders
from gateway.accounts.discounts import Discounts
from gateway.accounts.key_caps import read_caps
from gateway.accounts.models import MODELS as ACCOUNT_MODELS
from gateway.accounts.provider_keys import ProviderKeys
from gateway.catalogue import loader
from gateway.catalogue.catalogue import Current
from gateway.clock import SECOND_US, Clock
from gateway.control import Control
from gateway.engine.cache import DocumentShelf, RedisShelf, ResponseCache
from gateway.engine.chat import ChatEngine
from gateway.engine.decisions import Decisions
from gateway.engine.exchange import Board, Exchange, JournalPins, Pins, RedisBoard, RedisPins, TableBoard
from gateway.engine.idempotency import Idempotency
from gateway.engine.management import Management
from gateway.engine.offers import Offers
from gateway.engine.own_models import OwnModels
from gateway.engine.planning import Planner
from gateway.engine.provider_check import ProviderCheck
from gateway.engine.recovery import Recovery
from gateway.engine.settlement import Settlements
from gateway.errors import GatewayError
from gateway.limits.budgets import Budgets
from gateway.limits.ledger import LedgerBook
from gateway.limits.models import MODELS as LIMIT_MODELS
from gateway.limits.rates import RateLimits, Rates
from gateway.limits.spending import Spending
from gateway.metering.counters import Counters
from gateway.metering.models import MODELS as METERING_MODELS
from gateway.metering.sources import Sources, read_clients
from gateway.providers.credentials import Credentials
from gateway.providers.local.discovery import Discovery
from gateway.providers.registry import make_protocols, make_upstreams
from gateway.routing.health import Health
from gateway.routing.plan import Router
from gateway.routing.sticky import Sticky
from gateway.settings import Settings, SettingsError
from gateway.store import migrations
from gateway.store.database import Database, open_database
from gateway.store.documents import Documents
from gateway.store.installation import Secrets, load_secrets
from gateway.store.intents import Intents
from gateway.store.journal import Journal, forget_writers
from gateway.store.redis import Redis, open_redis
from gateway.threads import Threads
from gateway.transport import Transport

log = logging.getLogger("gateway")

FLUSH_S = 5.0
SETTLE_S = 10.0  # how long an answer waits for its settlement to be durable
WRITERS_KEPT_US = 7 * 24 * 3600 * SECOND_US
MIGRATE = "python -m gateway.manage migrate"


@dataclass(slots=True)
class Services:
    """All that operations need. `chat` and the rest of the engine are used by surfaces, the stores by the engine."""

    settings: Settings
    clock: Clock
    threads: Threads
    database: Database
    control: Control
    journal: Journal
    documents: Documents
    redis: Redis | None
    transport: Transport
    catalogue: Current
    authentication: Authentication
    credentials: Credentials
    health: Health
    planner: Planner
    own_models: OwnModels
    decisions: Decisions
    exchange: Exchange
    spending: Spending
    settlements: Settlements
    idempotency: Idempotency
    ledger: LedgerBook
    budgets: Budgets
    chat: ChatEngine
    counters: Counters
    management: Management
    sources: Sources
    discovery: Discovery
    secrets: Secrets
    leaving: bool = False
    _closed: bool = field(default=False, repr=False)

    def start(self) -> None:
        """Background work of this worker: control version, leases, recovery."""
        self.control.start()
        self.counters.start()
        self.discovery.start()
        self.settlements.start()
        self.exchange.start()

    def drain(self, leaving: bool = True) -> None:
        """The worker begins to leave: readiness says so, requests under way finish."""
        self.leaving = leaving

    def close(self) -> None:
        """Settle the books and let go of everything; called last in a worker."""
        if self._closed:
            return
        self._closed = True
        for step in (
            self.exchange.stop,
            self.settlements.stop,
            lambda: self.journal.close(FLUSH_S),
            self.control.stop,
            self.counters.stop,
            self.discovery.stop,
            self.transport.close,
            self.database.close,
            self.threads.close,
        ):
            try:
                step()
            except GatewayError as error:
                log.error("while leaving: %s", error)
        if self.redis is not None:
            self.redis.close()

    def gauges(self) -> dict[str, tuple[str, float]]:
        """What is so right now in this worker: name → (what it tells, value)."""
        journal = self.journal
        return {
            "journal_pending": ("Records that wait for their commit.", journal.pending),
            "journal_commits": ("Commits of records since the start.", journal.commits),
            "journal_largest_batch": ("Most records in one commit.", journal.largest_batch),
            "journal_failed": ("Records that could not be written.", journal.failed),
            "control_age_seconds": ("Age of what this worker knows of changes.", self.control.age_s()),
            **self.spending.gauges(),
            "intents_open": ("Upstream calls without a durable record.", self.settlements.intents.open_count()),
        }

    def redis_connected(self) -> bool:
        """Without a Redis the in-process store stands in for it, which is always there."""
        return self.redis is None or self.redis.connected()

    def database_connected(self) -> bool:
        try:
            self.database.now_us()
            self.database.read(lambda: self.database.execute("SELECT 1").fetchone())
        except GatewayError:
            return False
        return True

    def unready(self) -> list[str]:
        """Why this worker should get no traffic; empty when it should."""
        reasons = ["draining"] if self.leaving else []
        if not self.database_connected():
            return [*reasons, "the database is away"]
        return [*reasons, *migrations.verify(self.database)]


def build(settings: Settings) -> Services:
    """Make and connect everything. SettingsError when the store or the catalogue is not fit to serve."""
    clock, threads = Clock(), Threads()
    database = open_database(settings.database, clock, threads)
    database.bind([*ACCOUNT_MODELS, *LIMIT_MODELS, *METERING_MODELS])
    problems = migrations.verify(database)
    if problems:
        raise SettingsError(
            "The database does not fit this code; run: python -m gateway.manage migrate\n" + problems[0]
        )
    secrets = load_secrets(settings, database)
    control = Control(database, clock)
    redis = open_redis(settings.redis, clock)
    journal = Journal(database, clock)
    transport = Transport(settings.timeouts, settings.security, clock=clock)
    catalogue = Current(loader.load(settings.catalogue.path, sandbox=settings.catalogue.sandbox))
    discovery = Discovery(transport, catalogue, settings.environment)
    provider_keys = ProviderKeys(database, control, secrets)
    credentials = Credentials(catalogue.current, settings.environment, provider_keys, secrets.hash_keys[0])
    health = Health(clock)
    protocols = make_protocols(transport, clock)
    documents = Documents(database)
    pins = RedisPins(redis) if redis else JournalPins(documents, database, journal, clock)
    sticky = Sticky(clock, settings.routing.sticky_ttl_s, Pins(pins, clock))
    router = Router(
        catalogue.current,
        health,
        sticky,
        settings.routing,
        settings.catalogue.auto_models,
        random.random,
        clock,
        {name: protocol.dialect for name, protocol in protocols.items()},
    )
    upstreams = make_upstreams(protocols, transport, clock, settings.timeouts)
    counters = Counters(Path(settings.database.data_dir) / "metrics")
    custom_providers = CustomProviders(database, control)
    offers = Offers(custom_providers, provider_keys)
    planner = Planner(router, credentials, health, counters, offers)
    words = Path(settings.database.data_dir) / "journal"
    intents = Intents(words, control.node)
    recovery = Recovery(database, words, control, clock, settings.timeouts.request_s)
    spending = Spending(database, journal, control, clock, intents.claim)
    rates = Rates(RateLimits(database, control), clock, redis)
    discounts = Discounts(database, control)
    chores = (recovery.run, rates.exchange)
    settlements = Settlements(spending, rates, journal, intents, clock, discounts, SETTLE_S, chores)
    decisions = Decisions(database, journal, clock, settings.routing.decision_days)
    shelf = RedisShelf(redis) if redis else DocumentShelf(documents, database, settings.cache.max_bytes)
    cache = ResponseCache(shelf, secrets.hash_keys[0], settings.cache)
    return Services(
        settings=settings,
        clock=clock,
        threads=threads,
        database=database,
        control=control,
        journal=journal,
        documents=documents,
        redis=redis,
        transport=transport,
        catalogue=catalogue,
        authentication=Authentication(database, control, secrets, clock),
        credentials=credentials,
        health=health,
        planner=planner,
        own_models=OwnModels(control, offers),
        decisions=decisions,
        exchange=Exchange(
            health, _board(settings, database, redis), (cache.trim, decisions.purge, _housekeeping(documents, database))
        ),
        spending=spending,
        settlements=settlements,
        idempotency=Idempotency(documents, database, journal, settlements, control, clock, secrets.hash_keys[0]),
        ledger=LedgerBook(database, control),
        budgets=Budgets(database, control),
        chat=ChatEngine(planner, settlements, upstreams, clock, settings, secrets.hash_keys[0], decisions, cache),
        counters=counters,
        management=Management(
            database,
            control,
            secrets,
            threads,
            provider_keys,
            custom_providers,
            ProviderCheck(catalogue.current, credentials, provider_keys, custom_providers, upstreams, clock),
            discounts,
            read_caps(settings.limits),
        ),
        sources=read_clients(loader.FOLDER / "clients.toml"),
        discovery=discovery,
        secrets=secrets,
    )


def _housekeeping(documents: Documents, database: Database) -> Callable[[], None]:
    """What every worker may do from time to time: expired documents go, and the marks of journals long ended."""

    def tidy() -> None:
        documents.sweep({})
        forget_writers(database, database.now_us() - WRITERS_KEPT_US)

    return tidy


def _board(settings: Settings, database: Database, redis: Redis | None) -> Board | None:
    """Where workers tell each other of providers; a worker that is surely alone has nobody to tell."""
    if redis is not None:
        return RedisBoard(redis)
    alone = database.kind == "sqlite" and settings.server.workers == 1
    return None if alone else TableBoard(database)
