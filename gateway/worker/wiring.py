"""The wiring: builds every long-lived object of a worker."""

import random
from functools import partial

from gateway.accounts.cleanup import AccountCleanup
from gateway.accounts.custom_providers import CustomProviders, read_provider_caps
from gateway.accounts.discounts import Discounts
from gateway.accounts.identity_domains import IdentityDomains
from gateway.accounts.identity_providers import IdentityProvider, IdentityProviders
from gateway.accounts.members import find_first_owner
from gateway.accounts.provider_keys import ProviderKeys
from gateway.accounts.provisioning.scim_tokens import ScimTokens
from gateway.accounts.service_accounts import ServiceAccountTokens
from gateway.accounts.sso_logins import SsoLogins
from gateway.accounts.workload_callers import WorkloadCallers
from gateway.admin.account_changes import Management
from gateway.admin.deleted_keys import DeletedKeys
from gateway.admin.erasure import ErasureJob
from gateway.admin.funding import Funding
from gateway.admin.provider_check import ProviderCheck
from gateway.admin.sso_accounts import SsoAccounts
from gateway.admin.sso_checks import SsoChecks, SsoServices
from gateway.admin.sso_sign_in import SingleSignOnService
from gateway.batches.native_parts import NativeServices
from gateway.batches.project_batches import Batches
from gateway.billing.admission import Settlements
from gateway.billing.ledger_close import LedgerClose, closed_until_us
from gateway.billing.provider_objects import ProviderObjects
from gateway.billing.reconciliation import MARKED, ReconciliationGauge
from gateway.billing.recovery import Recovery
from gateway.callers.authentication import Authentication
from gateway.callers.issuer_keys import IssuerKeys, fetch_over
from gateway.callers.realtime_secrets import RealtimeSecrets
from gateway.callers.throttle import Throttle
from gateway.catalogue import loader, provider_routes
from gateway.catalogue.catalogue import Catalogue, CurrentCatalogue
from gateway.clock import DAY_US, Clock
from gateway.configuration.settings import Cache, Settings
from gateway.engine.batch_lines import make_line_engines
from gateway.engine.cache import CacheStore, DocumentCacheStore, EncryptedCacheStore, RedisCacheStore, ResponseCache
from gateway.engine.chat_engine import ChatEngine
from gateway.engine.classifier_models import ask_model
from gateway.engine.coalescing import RequestCoalescing
from gateway.engine.custom_models import CustomCatalogue, CustomModels, UnlistedModels
from gateway.engine.difficulty_judge import DifficultyJudge
from gateway.engine.executor import EngineParts, Executor
from gateway.engine.gossip import (
    DatabaseGossipStore,
    Gossip,
    GossipStore,
    JournalPins,
    Pins,
    RedisGossipStore,
    RedisPins,
)
from gateway.engine.guarding import Guarding
from gateway.engine.idempotency import Idempotency, Replays
from gateway.engine.key_bounds import KeyBounds
from gateway.engine.model_routes import SESSION_MODEL_S, CallerShares, ModelRoutes
from gateway.engine.planning import Planner
from gateway.engine.realtime.engine import RealtimeEngine
from gateway.engine.retention import Retention
from gateway.engine.routing_decisions import Decisions
from gateway.engine.stored_responses import StoredResponses
from gateway.files.opened_contents import open_contents
from gateway.files.project_files import Files
from gateway.files.provider_files import ProviderFiles
from gateway.files.request_files import FileCounts
from gateway.jobs.response_jobs import ResponseJobs
from gateway.jobs.rounds import StoreClock
from gateway.jobs.sent_responses import SentResponses
from gateway.limits.holds import Holds
from gateway.limits.lease_keeping import OutageLimits
from gateway.limits.limit_book import LimitBook
from gateway.limits.rate_limits import RateLimiter
from gateway.limits.rate_rules import RateLimits
from gateway.limits.spending import Spending
from gateway.metering.clickhouse.clickhouse_http import open_client
from gateway.metering.clickhouse.clickhouse_log import ClickHouseLog
from gateway.metering.clickhouse.clickhouse_reports import ClickHouseAnswers
from gateway.metering.clickhouse.sink import UsageSink
from gateway.metering.payload_table import PayloadQuota
from gateway.metering.rollups.job import Rollups
from gateway.metering.rollups.purge import UsagePurge
from gateway.metering.sources import known_clients
from gateway.money import NANO
from gateway.neutral.request import Request
from gateway.oauth.authorization_server import OAuth
from gateway.providers.background_calls import BackgroundCalls
from gateway.providers.batches.batch_calls import BatchCalls
from gateway.providers.credentials import Credentials
from gateway.providers.files.file_calls import FileCalls
from gateway.providers.identities.upstream_identity import UpstreamIdentities
from gateway.providers.job_calls import JobCalls
from gateway.providers.model_discovery import Discovery
from gateway.providers.registry import (
    make_background_apis,
    make_batch_codecs,
    make_file_codecs,
    make_identities,
    make_protocols,
    make_upstreams,
)
from gateway.reports.usage_reports import Reports
from gateway.routes.route_book import RouteBook
from gateway.routing.cache_lifetimes import CacheLifetimes
from gateway.routing.plan import Router
from gateway.routing.provider_health import Health
from gateway.routing.sticky import Sticky
from gateway.runtime.disconnects import ReadingOn
from gateway.runtime.state_changes import StateLog
from gateway.sso.discovery import make_client_parts
from gateway.store.conversation_turns import Turns
from gateway.store.database import Database
from gateway.store.documents import DocumentRows
from gateway.store.intents import Intents
from gateway.store.live_workers import LiveWorkers
from gateway.store.outage_journal import OutageJournal
from gateway.telemetry.provider_changes import ProviderChanges
from gateway.videos.shown import CONTENT_SECRET, Links
from gateway.videos.tasks import Targets
from gateway.videos.video_jobs import Videos
from gateway.worker import accepted_configuration, extensions
from gateway.worker.service_base import WorkerBase, open_base, release
from gateway.worker.services import (
    AccountServices,
    BillingServices,
    EngineServices,
    RoutingServices,
    Services,
    StoreServices,
)

# The wiring of single sign-on.


def open_single_sign_on(base: WorkerBase, accounts: AccountServices, management: Management) -> SsoServices:
    """Return the services of single sign-on."""
    store = base.store
    settings = base.settings
    allow_private = settings.security.allow_private_upstreams
    providers = IdentityProviders(
        store.database, store.control, store.vault, settings.identity_providers, allow_private
    )
    owner_of = partial(_owner_of, store.database)
    logins = SsoLogins(store.database, store.vault, settings.sso)
    parts = make_client_parts(
        base.transport,
        store.documents,
        base.clock,
        providers,
        timeout_s=settings.sso.timeout_s,
        allow_private=allow_private,
        owner_of=owner_of,
    )
    service = SingleSignOnService(
        store.database,
        store.documents,
        store.vault,
        base.hash_key,
        accounts.throttle,
        management.sessions,
        providers,
        logins,
        SsoAccounts(store.database, store.control, management.second_factors, management.group_grants),
        parts,
    )
    domains = IdentityDomains(store.database, store.control, fetch_over(base.transport))
    return SsoServices(
        service, SsoChecks(service, logins, accounts.oauth.grants, owner_of, base.clock.monotonic), domains
    )


def _owner_of(database: Database, provider: IdentityProvider) -> str:
    """Return the owner of the requests to an identity provider: a person, or the operators for their provider."""
    if not provider.organization_id:
        return provider.id
    return find_first_owner(database, provider.organization_id) or provider.organization_id


# Storage that workers share: Redis if configured, otherwise the database.


def open_pins(store: StoreServices, clock: Clock) -> Pins:
    """Return the storage of sticky sessions for all workers."""
    if store.redis is not None:
        return Pins(RedisPins(store.redis), clock)
    return Pins(JournalPins(store.documents, store.database, store.journal, clock), clock)


def open_cache_store(store: StoreServices, cache: Cache) -> CacheStore:
    """Return the encrypted storage of cached responses."""
    cache_store: CacheStore = DocumentCacheStore(store.documents, store.database, cache.max_bytes)
    if store.redis is not None:
        cache_store = RedisCacheStore(store.redis)
    return EncryptedCacheStore(cache_store, store.vault)


def find_gossip_store(store: StoreServices, settings: Settings) -> GossipStore | None:
    """Return the exchange of provider health between workers; None if there is only one worker."""
    if store.redis is not None:
        return RedisGossipStore(store.redis)
    alone = store.database.kind == "sqlite" and settings.server.workers == 1
    if alone:
        return None
    return DatabaseGossipStore(store.database)


SETTLE_TIMEOUT_S = 10.0  # how long a response waits for its durable settlement


def build(settings: Settings, before: StateLog | None = None, catalogue: Catalogue | None = None) -> Services:
    """Build and connect everything; `before` is the state log of an earlier attempt, `catalogue` the catalogue if it
    was loaded already.

    Raise SettingsError if the store or the catalogue cannot be used.
    """
    extensions.install(settings.server.extensions)
    base = open_base(settings, before)
    try:
        return _assemble(base, catalogue or _find_catalogue(settings))
    except BaseException:
        release(base)
        raise


def _assemble(base: WorkerBase, catalogue: Catalogue) -> Services:
    base.transport.routes.use(provider_routes.routes_of(catalogue, base.settings.environment))
    accounts = _open_accounts(base)
    routing = _open_routing(base, accounts, CurrentCatalogue(catalogue))
    billing = _open_billing(base, accounts, routing.catalogue)
    management = _open_management(base, accounts, routing)
    return Services(
        settings=base.settings,
        clock=base.clock,
        store=base.store,
        accounts=accounts,
        routing=routing,
        billing=billing,
        engine=_open_engine(base, accounts, routing, billing),
        background=base.background,
        telemetry=base.telemetry,
        management=management,
        sso=open_single_sign_on(base, accounts, management),
    )


def _open_accounts(base: WorkerBase) -> AccountServices:
    database = base.store.database
    control = base.store.control
    funding = Funding(database, control)
    provider_keys = ProviderKeys(database, control, base.store.vault, funding.budgets.write_bound)
    custom_providers = CustomProviders(database, control, read_provider_caps(base.settings.limits))
    authentication = Authentication(database, control, base.store.secrets, base.clock)
    issuer_keys = IssuerKeys(fetch_over(base.transport), base.store.documents, base.clock)
    authentication.accept_signed_tokens(WorkloadCallers(authentication, issuer_keys, control, base.clock).read)
    throttle = Throttle(database, base.hash_key)
    return AccountServices(
        authentication=authentication,
        throttle=throttle,
        sources=known_clients(),
        provider_keys=provider_keys,
        custom_providers=custom_providers,
        custom_models=CustomModels(custom_providers, provider_keys),
        discounts=Discounts(database, control),
        funding=funding,
        cleanup=AccountCleanup(database, base.settings.retention),
        deleted_keys=DeletedKeys(database, base.settings.retention.deleted_key_days),
        erasures=ErasureJob(database, base.store.documents),
        oauth=OAuth(
            database,
            control,
            base.store.documents,
            base.store.secrets,
            base.transport,
            authentication,
            throttle,
            base.clock,
        ),
        realtime_secrets=RealtimeSecrets(
            base.store.documents,
            base.store.redis,
            base.store.secrets,
            authentication,
            base.clock,
            base.store.vault,
            throttle,
        ),
        service_accounts=ServiceAccountTokens(database, authentication, control, base.store.secrets, base.clock),
        scim_tokens=ScimTokens(database, control, base.store.secrets, authentication, base.clock),
    )


def _open_routing(base: WorkerBase, accounts: AccountServices, catalogue: CurrentCatalogue) -> RoutingServices:
    settings = base.settings
    clock = base.clock
    store = base.store
    identities = make_identities(base.transport, clock, settings.environment, base.telemetry.states)
    credentials = Credentials(
        catalogue.current, settings.environment, accounts.provider_keys, base.hash_key, identities
    )
    health = Health(clock, ProviderChanges(base.telemetry.states, clock))
    counters = base.background.counters
    bounds = KeyBounds(accounts.funding.budgets, settings.limits.default_max_output)
    protocols = make_protocols(base.transport, clock, settings.spool_dir)
    pins = open_pins(store, clock)
    router = Router(
        catalogue.current,
        health,
        Sticky(clock, settings.routing.sticky_ttl_s, pins),
        settings.routing,
        settings.catalogue.auto_models,
        random.random,
        clock,
        {name: wire.dialect for name, wire in protocols.items()},
        {name: wire.lost for name, wire in protocols.items()},
        {name: frozenset(wire.codecs) for name, wire in protocols.items()},
    )
    unlisted = UnlistedModels(
        catalogue.current, credentials, store.control, accounts.funding.ledger, settings.routing.provider_objects
    )
    lifetimes = CacheLifetimes(clock, pins, base.hash_key)
    routes = RouteBook(store.database, store.control)
    planner = Planner(
        router, credentials, health, counters, accounts.custom_models, bounds, unlisted, lifetimes, routes
    )
    store.control.on_change(planner.forget)
    return RoutingServices(
        catalogue=catalogue,
        custom_catalogue=CustomCatalogue(accounts.custom_models),
        discovery=Discovery(base.transport, catalogue, settings.environment),
        credentials=credentials,
        identities=identities,
        health=health,
        gossip=Gossip(health, find_gossip_store(store, settings)),
        planner=planner,
        decisions=Decisions(store.database, store.journal, clock, settings.routing.decision_days),
        routes=routes,
        transport=base.transport,
        upstreams=make_upstreams(protocols, base.transport, clock, settings.timeouts),
    )


def _find_catalogue(settings: Settings) -> Catalogue:
    """Return the catalogue that the master checked; without a master, load it from the files."""
    inherited = accepted_configuration.current()
    if inherited is not None and inherited.settings is settings:
        return inherited.catalogue
    return loader.load_from(loader.sources_of(settings))


def _open_billing(base: WorkerBase, accounts: AccountServices, catalogue: CurrentCatalogue) -> BillingServices:
    store = base.store
    clock = base.clock
    funding = accounts.funding
    database = store.database
    control = store.control
    folder = base.data / "journal"
    intents = Intents(folder, control.node)
    outage = None
    if database.kind == "postgresql":
        # In both modes, so that an answer that was delivered does not end in an error.
        store.journal.fall_back(OutageJournal(database, clock, folder, intents.owner))
    if base.settings.database.coast_s:
        outage = OutageLimits(base.settings.database.away_s, round(base.settings.database.away_usd * NANO))
    console = base.settings.server.public_url.rstrip("/") + "/console"
    spending = Spending(database, store.journal, control, clock, intents.claim, outage, console)
    rate_limits = RateLimits(database, control)
    rates = RateLimiter(rate_limits, clock, store.redis)
    rollups = Rollups(database)
    sink = _open_sink(base)
    metering = base.settings.metering

    def kept_from_us() -> int:
        """The ledger and ClickHouse have everything from before this time."""
        days = metering.usage_days + base.settings.analytics.backlog_days
        return min(closed_until_us(database), sink.kept_from_us(database.now_us() - days * DAY_US))

    objects = ProviderObjects(store.documents, DocumentRows(database, clock))
    limits = LimitBook(database, control, clock)
    settlements = Settlements(
        spending, rates, store.journal, intents, clock, accounts.discounts, SETTLE_TIMEOUT_S, objects, limits
    )
    return BillingServices(
        budgets=funding.budgets,
        ledger=funding.ledger,
        spending=spending,
        settlements=settlements,
        rate_limits=rate_limits,
        recovery=Recovery(database, folder, control, clock, base.settings.timeouts.request_s, base.telemetry.states),
        ledger_close=LedgerClose(database, store.documents, funding.ledger),
        rollups=rollups,
        usage_purge=UsagePurge(database, clock, metering.usage_days, MARKED, kept_from_us),
        usage_sink=sink,
        reports=Reports(database, clock, funding.budgets, funding.ledger, catalogue.current, accounts.sources),
        reconciliation_gauge=ReconciliationGauge(database, store.documents, clock, rollups, base.telemetry.states),
    )


def _open_sink(base: WorkerBase) -> UsageSink:
    """Return the delivery of usage to ClickHouse. It answers reports and keeps the request log if the settings say so.
    SettingsError."""
    store = base.store
    chosen = base.settings.analytics
    client = open_client(base.transport, chosen.clickhouse_url, chosen.table)
    states = base.telemetry.states
    sink = UsageSink(store.database, store.documents, base.clock, states, client, chosen.table, chosen.batch_rows)
    if client is not None and chosen.reports == "clickhouse":
        answers = ClickHouseAnswers(sink, client, base.clock)
        store.database.statistics = answers
        store.database.archive = ClickHouseLog(client, chosen.table, answers)
    return sink


def _open_engine(
    base: WorkerBase, accounts: AccountServices, routing: RoutingServices, billing: BillingServices
) -> EngineServices:
    settings = base.settings
    clock = base.clock
    store = base.store
    threads = base.background.threads
    settlements = billing.settlements
    cache = ResponseCache(open_cache_store(store, settings.cache), base.hash_key, settings.cache)
    bodies = base.background.bodies
    coalescing = RequestCoalescing(cache, settlements, routing.decisions, clock, settings.timeouts.heartbeat_s, bodies)
    reading_on = ReadingOn()
    guarding = Guarding(
        store.database,
        store.control,
        store.journal,
        store.vault,
        store.redis,
        clock,
        base.hash_key,
        base.background.counters,
        base.transport,
        base.telemetry.states,
    )
    parts = EngineParts(
        routing.planner,
        settlements,
        routing.upstreams,
        clock,
        settings,
        routing.decisions,
        coalescing,
        reading_on,
        guarding,
    )
    turns = Turns(store.database)
    sessions = Sticky(clock, SESSION_MODEL_S, open_pins(store, clock))
    lifetimes = routing.planner.cache_lifetimes
    shares = CallerShares(billing.budgets, clock)
    catalogue = routing.catalogue.current
    judge = DifficultyJudge(clock)
    routes = ModelRoutes(
        routing.routes, settlements.limits, shares, sessions, lifetimes, catalogue, base.hash_key, judge
    )
    store_clock = StoreClock(store.database, clock)
    files = _open_files(base, routing.identities, store_clock)
    executor: Executor[Request] = Executor(parts)
    calls = BatchCalls(routing.upstreams, make_batch_codecs(base.transport, clock))
    lines = make_line_engines(parts, base.hash_key, routes, calls)
    native = NativeServices(lines, routing.upstreams, routing.credentials, catalogue, settlements, settings.spool_dir)
    guarding.checks.classify = partial(ask_model, executor, clock)
    judge.executor = executor
    return EngineServices(
        reading_on=reading_on,
        guarding=guarding,
        executor=executor,
        chat=ChatEngine(parts, base.hash_key, routes),
        cache=cache,
        idempotency=Idempotency(
            store.documents,
            store.database,
            store.journal,
            settlements,
            store.control,
            clock,
            base.hash_key,
            store.vault,
            threads,
            settings.timeouts.request_s,
            bodies,
        ),
        responses=StoredResponses(
            turns, store.documents, store.vault, base.hash_key, threads, settings.responses, bodies
        ),
        replays=Replays(store.database, routing.catalogue, clock),
        retention=Retention(store.database, store.journal, store.vault, threads, SETTLE_TIMEOUT_S, clock),
        realtime=RealtimeEngine(parts, store.documents, routing.catalogue),
        payload_quota=PayloadQuota(store.database, settings.retention.organization_payloads_mb << 20),
        videos=_open_videos(base, accounts, routing, parts),
        files=files,
        provider_files=_open_provider_files(base, routing, store_clock),
        file_counts=FileCounts(files, settings.spool_dir),
        batches=_open_batches(base, files, native, settlements.intents),
        lines=lines,
        response_jobs=ResponseJobs(
            store.database, store.vault, clock, bodies, _open_sent_responses(base, routing, store_clock)
        ),
    )


def _open_files(base: WorkerBase, identities: UpstreamIdentities, clock: StoreClock) -> Files:
    store = base.store
    states = base.telemetry.states
    contents = open_contents(base.settings, store.vault, base.transport, base.clock, states, identities)
    return Files(store.database, contents, store.vault, clock, base.settings.files)


def _open_sent_responses(base: WorkerBase, routing: RoutingServices, clock: StoreClock) -> SentResponses:
    calls = BackgroundCalls(routing.upstreams, make_background_apis(base.transport, base.clock))
    database = base.store.database
    return SentResponses(database, Holds(database), calls, routing.credentials, routing.catalogue.current, clock)


def _open_provider_files(base: WorkerBase, routing: RoutingServices, clock: StoreClock) -> ProviderFiles:
    calls = FileCalls(routing.upstreams, make_file_codecs(base.transport, base.clock))
    return ProviderFiles(base.store.database, calls, routing.credentials, routing.catalogue.current, clock)


def _open_batches(base: WorkerBase, files: Files, native: NativeServices, intents: Intents) -> Batches:
    store = base.store
    settings = base.settings
    return Batches(
        store.database,
        store.control,
        store.vault,
        base.transport,
        files,
        base.clock,
        settings.batches,
        settings.server.max_body_mb << 20,
        native,
        LiveWorkers(intents.directory, intents.owner),
    )


def _open_videos(base: WorkerBase, accounts: AccountServices, routing: RoutingServices, parts: EngineParts) -> Videos:
    store = base.store
    settings = base.settings
    return Videos(
        parts,
        store.database,
        store.control,
        store.vault,
        base.transport,
        Targets(routing.catalogue.current, routing.credentials, accounts.custom_models),
        JobCalls(routing.upstreams, base.transport),
        base.clock,
        settings.video,
        Links(settings.secret(CONTENT_SECRET), store.secrets.hash_keys, base.clock),
    )


def _open_management(base: WorkerBase, accounts: AccountServices, routing: RoutingServices) -> Management:
    check = ProviderCheck(
        routing.catalogue.current,
        routing.credentials,
        accounts.provider_keys,
        accounts.custom_providers,
        accounts.custom_models,
        routing.upstreams,
        base.clock,
    )
    return Management(
        base.store.database,
        base.store.control,
        base.store.secrets,
        base.background.passwords,
        accounts.provider_keys,
        accounts.custom_providers,
        check,
        accounts.discounts,
        accounts.funding,
        base.store.vault,
        base.settings.limits,
        base.store.documents,
        base.settings.organizations,
        accounts.throttle,
        base.telemetry.mail,
        base.settings.server.public_url,
        accounts.oauth.grants,
    )
