"""The wiring: builds every long-lived object of a worker."""

import random
from dataclasses import dataclass
from pathlib import Path

from gateway.accounts.authentication import Authentication
from gateway.accounts.custom_providers import CustomProviders
from gateway.accounts.custom_providers import read_caps as read_provider_caps
from gateway.accounts.discounts import Discounts
from gateway.accounts.models import MODELS as ACCOUNT_MODELS
from gateway.accounts.provider_keys import ProviderKeys
from gateway.accounts.vault import Vault
from gateway.admin.funding import Funding
from gateway.admin.management import Management
from gateway.admin.provider_check import ProviderCheck
from gateway.billing.ledger_close import LedgerClose
from gateway.billing.reconciliation_gauge import ReconciliationGauge
from gateway.billing.recovery import Recovery
from gateway.billing.settlement import Settlements
from gateway.catalogue import loader
from gateway.catalogue.catalogue import Current
from gateway.clock import Clock
from gateway.control import Control
from gateway.engine.cache import DocumentShelf, RedisShelf, ResponseCache, SealedShelf, Shelf
from gateway.engine.chat import ChatEngine
from gateway.engine.custom_catalogue import CustomCatalogue
from gateway.engine.custom_models import CustomModels
from gateway.engine.decisions import Decisions
from gateway.engine.executor import Executor
from gateway.engine.gossip import Board, Gossip, JournalPins, Pins, RedisBoard, RedisPins, TableBoard
from gateway.engine.idempotency import Idempotency
from gateway.engine.key_bounds import KeyBounds
from gateway.engine.planning import Planner
from gateway.engine.replays import Replays
from gateway.engine.responses import StoredResponses
from gateway.engine.retention import Retention
from gateway.limits.models import MODELS as LIMIT_MODELS
from gateway.limits.rates import RateLimiter, RateLimits
from gateway.limits.spending import Spending
from gateway.metering.counters import Counters
from gateway.metering.models import MODELS as METERING_MODELS
from gateway.metering.sources import read_clients
from gateway.neutral.request import Request
from gateway.providers.credentials import Credentials
from gateway.providers.local.discovery import Discovery
from gateway.providers.registry import make_protocols, make_upstreams
from gateway.providers.upstream import Upstreams
from gateway.routing.health import Health
from gateway.routing.plan import Router
from gateway.routing.sticky import Sticky
from gateway.services import Services
from gateway.settings import Settings, SettingsError
from gateway.store import migrations
from gateway.store.database import Database, open_database
from gateway.store.documents import Documents
from gateway.store.installation import Secrets, load_secrets
from gateway.store.intents import Intents
from gateway.store.journal import Journal
from gateway.store.redis import Redis, open_redis
from gateway.store.turns import Turns
from gateway.threads import Threads
from gateway.transport import Transport

SETTLE_S = 10.0  # how long an answer waits for its settlement to be durable


@dataclass(frozen=True, slots=True)
class StoreParts:
    """The base of all other parts: the settings, the store and what is kept in it, the way out."""

    settings: Settings
    clock: Clock
    threads: Threads
    database: Database
    secrets: Secrets
    vault: Vault
    control: Control
    journal: Journal
    documents: Documents
    redis: Redis | None
    transport: Transport

    @property
    def data(self) -> Path:
        return Path(self.settings.database.data_dir)

    @property
    def hash_key(self) -> bytes:
        """The newest key of fingerprints and lookups."""
        return self.secrets.hash_keys[0]


@dataclass(frozen=True, slots=True)
class AccountParts:
    """Who calls, and what organizations brought along."""

    authentication: Authentication
    provider_keys: ProviderKeys
    custom_providers: CustomProviders
    discounts: Discounts
    offers: CustomModels
    funding: Funding


@dataclass(frozen=True, slots=True)
class RoutingParts:
    """Where a request may go, and how it gets there."""

    catalogue: Current
    discovery: Discovery
    credentials: Credentials
    health: Health
    counters: Counters
    planner: Planner
    decisions: Decisions
    upstreams: Upstreams


@dataclass(frozen=True, slots=True)
class BillingParts:
    """Reservation and settlement of costs."""

    spending: Spending
    settlements: Settlements
    recovery: Recovery


def build(settings: Settings) -> Services:
    """Make and connect everything. SettingsError when the store or the catalogue is not fit to serve."""
    base = _open_base(settings)
    accounts = _open_accounts(base)
    routing = _open_routing(base, accounts)
    money = _open_money(base, accounts)
    retention = _open_retention(base)
    responses, idempotency = _open_responses(base), _open_idempotency(base, money)
    cache = ResponseCache(_open_shelf(base), base.hash_key, settings.cache)
    return Services(
        settings=settings,
        clock=base.clock,
        threads=base.threads,
        database=base.database,
        control=base.control,
        journal=base.journal,
        documents=base.documents,
        responses=responses,
        redis=base.redis,
        transport=base.transport,
        secrets=base.secrets,
        authentication=accounts.authentication,
        custom_catalogue=CustomCatalogue(accounts.offers, base.threads),
        catalogue=routing.catalogue,
        discovery=routing.discovery,
        credentials=routing.credentials,
        health=routing.health,
        planner=routing.planner,
        decisions=routing.decisions,
        counters=routing.counters,
        spending=money.spending,
        settlements=money.settlements,
        ledger=accounts.funding.ledger,
        hours=LedgerClose(base.database, base.documents, accounts.funding.ledger),
        drift=ReconciliationGauge(base.database, base.documents, base.clock),
        budgets=accounts.funding.budgets,
        chat=_open_chat(base, routing, money, cache),
        executor=_open_executor(base, routing, money, cache),
        idempotency=idempotency,
        replays=Replays(base.database, routing.catalogue, base.clock),
        retention=retention,
        exchange=Gossip(routing.health, _find_board(base)),
        cache=cache,
        recovery=money.recovery,
        management=_open_management(base, accounts, routing),
        sources=read_clients(loader.FOLDER / "clients.toml"),
    )


def _open_base(settings: Settings) -> StoreParts:
    clock, threads = Clock(), Threads()
    database = open_database(settings.database, clock, threads)
    database.bind([*ACCOUNT_MODELS, *LIMIT_MODELS, *METERING_MODELS])
    problems = migrations.verify(database)
    if problems:
        raise SettingsError(
            "The database does not fit this code; run: python -m gateway.manage migrate\n" + problems[0]
        )
    secrets = load_secrets(settings, database)
    return StoreParts(
        settings=settings,
        clock=clock,
        threads=threads,
        database=database,
        secrets=secrets,
        vault=Vault(secrets.encryption_keys),
        control=Control(database, clock),
        journal=Journal(database, clock),
        documents=Documents(database),
        redis=open_redis(settings.redis, clock),
        transport=Transport(settings.timeouts, settings.security, clock=clock),
    )


def _open_accounts(base: StoreParts) -> AccountParts:
    database, control = base.database, base.control
    funding = Funding(database, control)
    provider_keys = ProviderKeys(database, control, base.secrets, funding.budgets.write_bound)
    custom_providers = CustomProviders(database, control, read_provider_caps(base.settings.limits))
    return AccountParts(
        authentication=Authentication(database, control, base.secrets, base.clock),
        provider_keys=provider_keys,
        custom_providers=custom_providers,
        discounts=Discounts(database, control),
        funding=funding,
        offers=CustomModels(custom_providers, provider_keys),
    )


def _open_routing(base: StoreParts, accounts: AccountParts) -> RoutingParts:
    settings, clock = base.settings, base.clock
    catalogue = Current(loader.load(settings.catalogue.path, sandbox=settings.catalogue.sandbox))
    credentials = Credentials(catalogue.current, settings.environment, accounts.provider_keys, base.hash_key)
    health, counters = Health(clock), Counters(base.data / "metrics")
    bounds = KeyBounds(accounts.funding.budgets, settings.limits.default_max_output)
    protocols = make_protocols(base.transport, clock)
    router = Router(
        catalogue.current,
        health,
        Sticky(clock, settings.routing.sticky_ttl_s, _open_pins(base)),
        settings.routing,
        settings.catalogue.auto_models,
        random.random,
        clock,
        {name: wire.dialect for name, wire in protocols.items()},
        {name: wire.lost for name, wire in protocols.items()},
        {name: frozenset(wire.codecs) for name, wire in protocols.items()},
    )
    return RoutingParts(
        catalogue=catalogue,
        discovery=Discovery(base.transport, catalogue, settings.environment),
        credentials=credentials,
        health=health,
        counters=counters,
        planner=Planner(router, credentials, health, counters, accounts.offers, bounds),
        decisions=Decisions(base.database, base.journal, clock, settings.routing.decision_days),
        upstreams=make_upstreams(protocols, base.transport, clock, settings.timeouts),
    )


def _open_money(base: StoreParts, accounts: AccountParts) -> BillingParts:
    database, control, clock, journal = base.database, base.control, base.clock, base.journal
    folder = base.data / "journal"
    intents = Intents(folder, control.node)
    recovery = Recovery(database, folder, control, clock, base.settings.timeouts.request_s)
    spending = Spending(database, journal, control, clock, intents.claim)
    rates = RateLimiter(RateLimits(database, control), clock, base.redis)
    settlements = Settlements(spending, rates, journal, intents, clock, accounts.discounts, SETTLE_S)
    return BillingParts(spending, settlements, recovery)


def _open_executor(
    base: StoreParts, routing: RoutingParts, money: BillingParts, cache: ResponseCache
) -> Executor[Request]:
    return Executor(
        routing.planner,
        money.settlements,
        routing.upstreams,
        base.clock,
        base.settings,
        routing.decisions,
        cache,
    )


def _open_chat(base: StoreParts, routing: RoutingParts, money: BillingParts, cache: ResponseCache) -> ChatEngine:
    return ChatEngine(
        routing.planner,
        money.settlements,
        routing.upstreams,
        base.clock,
        base.settings,
        base.hash_key,
        routing.decisions,
        cache,
    )


def _open_idempotency(base: StoreParts, money: BillingParts) -> Idempotency:
    return Idempotency(
        base.documents,
        base.database,
        base.journal,
        money.settlements,
        base.control,
        base.clock,
        base.hash_key,
        base.vault,
        base.threads,
    )


def _open_retention(base: StoreParts) -> Retention:
    return Retention(base.database, base.journal, base.vault, base.threads, SETTLE_S)


def _open_responses(base: StoreParts) -> StoredResponses:
    return StoredResponses(
        Turns(base.database), base.documents, base.vault, base.hash_key, base.threads, base.settings.responses
    )


def _open_management(base: StoreParts, accounts: AccountParts, routing: RoutingParts) -> Management:
    check = ProviderCheck(
        routing.catalogue.current,
        routing.credentials,
        accounts.provider_keys,
        accounts.custom_providers,
        routing.upstreams,
        base.clock,
    )
    return Management(
        base.database,
        base.control,
        base.secrets,
        base.threads,
        accounts.provider_keys,
        accounts.custom_providers,
        check,
        accounts.discounts,
        accounts.funding,
        base.vault,
        base.settings.limits,
    )


def _open_pins(base: StoreParts) -> Pins:
    """Where sessions are remembered for all workers."""
    if base.redis is not None:
        return Pins(RedisPins(base.redis), base.clock)
    return Pins(JournalPins(base.documents, base.database, base.journal, base.clock), base.clock)


def _open_shelf(base: StoreParts) -> Shelf:
    """Where cached answers are kept, encrypted."""
    shelf: Shelf = DocumentShelf(base.documents, base.database, base.settings.cache.max_bytes)
    if base.redis is not None:
        shelf = RedisShelf(base.redis)
    return SealedShelf(shelf, base.vault)


def _find_board(base: StoreParts) -> Board | None:
    """Where workers exchange health of providers; None for a worker that is surely alone."""
    if base.redis is not None:
        return RedisBoard(base.redis)
    alone = base.database.kind == "sqlite" and base.settings.server.workers == 1
    return None if alone else TableBoard(base.database)
