"""Services: the long-lived objects of a worker, with its start, drain and end."""

import logging
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial

from gateway.accounts.alert_hooks import AlertHooks
from gateway.accounts.cleanup import AccountCleanup
from gateway.accounts.custom_providers import CustomProviders
from gateway.accounts.discounts import Discounts
from gateway.accounts.mail_queue import MailQueue
from gateway.accounts.passwords import Passwords
from gateway.accounts.provider_keys import ProviderKeys
from gateway.accounts.provisioning.scim_tokens import ScimTokens
from gateway.accounts.service_accounts import ServiceAccountTokens
from gateway.admin.account_changes import Management
from gateway.admin.deleted_keys import DeletedKeys
from gateway.admin.erasure import ErasureJob
from gateway.admin.funding import Funding
from gateway.admin.sso_checks import SsoServices
from gateway.batches.project_batches import Batches
from gateway.billing.admission import Settlements
from gateway.billing.ledger_close import LedgerClose
from gateway.billing.reconciliation import ReconciliationGauge
from gateway.billing.recovery import Recovery
from gateway.callers.authentication import Authentication
from gateway.callers.realtime_secrets import RealtimeSecrets
from gateway.callers.throttle import Throttle
from gateway.callers.vault import Vault
from gateway.catalogue.catalogue import CurrentCatalogue
from gateway.clock import Clock
from gateway.configuration.settings import Settings
from gateway.control.version import Control
from gateway.engine.batch_lines import LineEngines
from gateway.engine.cache import ResponseCache
from gateway.engine.chat_engine import ChatEngine
from gateway.engine.custom_models import CustomCatalogue, CustomModels
from gateway.engine.executor import Executor
from gateway.engine.gossip import Gossip
from gateway.engine.guarding import Guarding
from gateway.engine.idempotency import Idempotency, Replays
from gateway.engine.planning import Planner
from gateway.engine.realtime.engine import RealtimeEngine
from gateway.engine.request_reading import RequestPort
from gateway.engine.retention import Retention
from gateway.engine.routing_decisions import Decisions
from gateway.engine.stored_responses import StoredResponses
from gateway.errors import GatewayError
from gateway.files.project_files import Files
from gateway.files.provider_files import ProviderFiles
from gateway.files.request_files import FileCounts
from gateway.jobs.response_jobs import ResponseJobs
from gateway.limits.budgets import Budgets
from gateway.limits.ledger import LedgerBook
from gateway.limits.rate_rules import RateLimits
from gateway.limits.spending import Spending
from gateway.metering.clickhouse.sink import UsageSink
from gateway.metering.counters import Counters, GaugeRow
from gateway.metering.outcomes.outcome_book import OutcomeBook
from gateway.metering.payload_table import PayloadQuota
from gateway.metering.rollups.job import Rollups
from gateway.metering.rollups.purge import UsagePurge
from gateway.metering.sources import Sources
from gateway.neutral.request import Request
from gateway.oauth.authorization_server import OAuth
from gateway.providers.credentials import Credentials
from gateway.providers.identities.upstream_identity import UpstreamIdentities
from gateway.providers.model_discovery import Discovery
from gateway.providers.upstream import Upstreams
from gateway.reports.usage_reports import Reports
from gateway.routes.route_book import RouteBook
from gateway.routing.provider_health import Health
from gateway.runtime.byte_budget import ByteBudget
from gateway.runtime.disconnects import ReadingOn
from gateway.runtime.fair_threads import FairSlots
from gateway.runtime.state_changes import StateLog
from gateway.runtime.threads import Threads
from gateway.store import migrations
from gateway.store.database import Database
from gateway.store.disk import full_disks
from gateway.store.documents import Documents
from gateway.store.installation_identity import Secrets
from gateway.store.journal import Journal
from gateway.store.mailboxes import Mailboxes
from gateway.store.redis import Redis
from gateway.store.shared_slots import SessionSlots, SharedSlots
from gateway.telemetry.agent_signals import AgentSignals
from gateway.telemetry.alert_delivery import Alerts
from gateway.telemetry.alert_history import AlertHistory
from gateway.telemetry.budget_watch import BudgetWatch, ModelWatch
from gateway.telemetry.cache_watch import CacheWatch
from gateway.telemetry.gauges import PER_WORKER_GAUGES, JobHealth, budget_rows, job_rows, provider_rows
from gateway.telemetry.otel import Tracing
from gateway.telemetry.presence import WorkerPresence
from gateway.telemetry.request_log_writer import RequestLog
from gateway.telemetry.request_observers import RequestObservers
from gateway.telemetry.unusual_days import UnusualWatch
from gateway.telemetry.weekly_views import WeeklyViews
from gateway.transport import Transport
from gateway.videos.video_jobs import Videos
from gateway.worker import accepted_configuration

log = logging.getLogger("gateway")

FLUSH_TIMEOUT_S = 5.0


def _nothing() -> None:
    return


@dataclass(slots=True)
class StoreServices:
    """The database and the components that store data in it or beside it."""

    database: Database
    control: Control
    journal: Journal
    documents: Documents
    mailboxes: Mailboxes
    redis: Redis | None
    secrets: Secrets
    vault: Vault


@dataclass(slots=True)
class AccountServices:
    """Callers, their client applications, and the definitions of organizations."""

    authentication: Authentication
    throttle: Throttle
    sources: Sources
    provider_keys: ProviderKeys
    custom_providers: CustomProviders
    custom_models: CustomModels
    discounts: Discounts
    funding: Funding
    cleanup: AccountCleanup
    deleted_keys: DeletedKeys
    erasures: ErasureJob
    oauth: OAuth
    realtime_secrets: RealtimeSecrets
    service_accounts: ServiceAccountTokens
    scim_tokens: ScimTokens


@dataclass(slots=True)
class RoutingServices:
    """Catalogue, provider health and everything else that routes a request."""

    catalogue: CurrentCatalogue
    custom_catalogue: CustomCatalogue
    discovery: Discovery
    credentials: Credentials
    identities: UpstreamIdentities
    health: Health
    gossip: Gossip
    planner: Planner
    decisions: Decisions
    routes: RouteBook
    transport: Transport
    upstreams: Upstreams


@dataclass(slots=True)
class BillingServices:
    """Budgets and credits: reservation, settlement, booking and reconciliation."""

    budgets: Budgets
    ledger: LedgerBook
    spending: Spending
    settlements: Settlements
    rate_limits: RateLimits
    recovery: Recovery
    ledger_close: LedgerClose
    rollups: Rollups
    usage_purge: UsagePurge
    usage_sink: UsageSink
    reports: Reports
    reconciliation_gauge: ReconciliationGauge


@dataclass(slots=True)
class EngineServices:
    """Execution of requests (`executor` for any operation, `chat` for chat), and storage of responses."""

    reading_on: ReadingOn
    guarding: Guarding
    executor: Executor[Request]
    chat: ChatEngine
    cache: ResponseCache
    idempotency: Idempotency
    responses: StoredResponses
    replays: Replays
    retention: Retention
    payload_quota: PayloadQuota
    realtime: RealtimeEngine
    videos: Videos
    files: Files
    provider_files: ProviderFiles
    file_counts: FileCounts
    batches: Batches
    response_jobs: ResponseJobs
    # The executors of lines that a provider's batch serves.
    lines: LineEngines
    # Set when the surfaces are known.
    requests: RequestPort | None = None


@dataclass(slots=True)
class BackgroundServices:
    """Resources beside the requests: threads for work that would block the event loop, and counters."""

    threads: Threads
    counters: Counters
    # Separate from `threads`, so that callers with large uploads do not delay commits.
    unpackers: Threads
    passwords: Passwords
    # The memory budget of this worker for large bodies of requests and responses.
    bodies: ByteBudget
    # Slots by signed-in user, so that a user with many open reports does not delay others.
    reports: FairSlots
    # The same for reports that are summed from single requests.
    row_sums: FairSlots
    # Slots by organization, in all workers.
    exports: SharedSlots
    # WebSockets of /v1/responses by key and organization, in all workers.
    response_sockets: SessionSlots


@dataclass(slots=True)
class TelemetryServices:
    """Logs, alerts, metrics and traces for operators."""

    requests: RequestObservers
    request_log: RequestLog
    states: StateLog
    budget_watch: BudgetWatch
    hooks: AlertHooks
    alerts: Alerts
    alert_history: AlertHistory
    mail: MailQueue
    weekly_views: WeeklyViews
    model_watch: ModelWatch
    cache_watch: CacheWatch
    unusual_watch: UnusualWatch
    presence: WorkerPresence
    agent_signals: AgentSignals
    outcomes: OutcomeBook
    tracing: Tracing | None = None
    # The reports of this worker's recurring jobs.
    jobs: Callable[[], list[JobHealth]] = list


@dataclass(slots=True)
class Services:
    """All services of a worker. `management` makes the changes of the management API."""

    settings: Settings
    clock: Clock
    store: StoreServices
    accounts: AccountServices
    routing: RoutingServices
    billing: BillingServices
    engine: EngineServices
    background: BackgroundServices
    telemetry: TelemetryServices
    management: Management
    sso: SsoServices
    leaving: bool = False
    # The open WebSockets of /v1/responses.
    sockets: set[object] = field(default_factory=set, repr=False)
    # The gauges of the server below the application, in the same form as `gauges`.
    server_gauges: Callable[[], dict[str, tuple[str, float]]] = field(default=dict, repr=False)
    _closed: bool = field(default=False, repr=False)

    def start(self) -> None:
        """Register the worker among the others; `background` runs the recurring jobs."""
        self.store.control.start()
        self.background.counters.gauges = self.gauge_rows
        self.background.counters.start()

    def watch(self, gauges: Callable[[], dict[str, tuple[str, float]]]) -> None:
        """Set the function that returns the server's own gauges."""
        self.server_gauges = gauges

    def drain(self, leaving: bool = True) -> None:
        """Begin to shut down: readiness probes report it, and requests in progress finish."""
        self.leaving = self.engine.realtime.leaving = leaving
        self.store.mailboxes.leave(leaving)

    def is_busy(self) -> bool:
        """Return whether the worker still processes work of disconnected callers."""
        return self.engine.reading_on.count > 0 or bool(self.engine.response_jobs.running)

    def close(self) -> None:
        """Complete the books and release all resources; called last in a worker."""
        if self._closed:
            return
        self._closed = True
        for step in (
            self.engine.reading_on.stop,
            self.telemetry.request_log.flush,
            self.telemetry.outcomes.flush,
            self.billing.settlements.stop,
            partial(self.store.journal.close, FLUSH_TIMEOUT_S),
            self.store.control.stop,
            self.background.counters.stop,
            self.routing.transport.close,
            self.store.database.close,
            self.background.threads.close,
            self.background.unpackers.close,
            self.background.passwords.close,
            # A collector may be silent; the books are complete before it is waited for.
            self.telemetry.tracing.close if self.telemetry.tracing is not None else _nothing,
        ):
            try:
                step()
            except GatewayError as error:
                log.error("error during shutdown: %s", error)
        if self.store.redis is not None:
            self.store.redis.close()

    def gauges(self) -> dict[str, tuple[str, float]]:
        """Return the gauges of this worker: name → (help text, value)."""
        journal = self.store.journal
        return {
            "configuration_refused": (
                "1 while a change of catalogue or configuration was refused and the previous version is in force.",
                1.0 if accepted_configuration.refusal.read() else 0.0,
            ),
            "journal_pending": ("Records that wait for a commit.", journal.pending),
            "journal_commits": ("Commits of records since the start.", journal.commits),
            "journal_largest_batch": ("Largest number of records in one commit.", journal.max_batch),
            "database_coasting": (
                "1 while this worker serves without the database.",
                1.0 if self.store.control.serves_alone() else 0.0,
            ),
            "journal_failed": ("Records that could not be written.", journal.failed),
            "control_age_seconds": (
                "Age of the control version that this worker has read.",
                self.store.control.age_s(),
            ),
            "redis_up": (
                "Whether the last Redis call succeeded; 1 also if Redis is not configured.",
                0.0 if self.store.redis is not None and self.store.redis.error else 1.0,
            ),
            "database_up": (
                "Whether the last database call succeeded.",
                1.0 if self.telemetry.states.is_healthy("database") else 0.0,
            ),
            "answers_read_on": (
                "Responses of disconnected callers that are read to the end for their usage.",
                self.engine.reading_on.count,
            ),
            "realtime_sessions": ("Open realtime sessions.", len(self.engine.realtime.running)),
            "response_sockets": ("Open WebSockets of /v1/responses.", len(self.sockets)),
            **self.server_gauges(),
            **self.billing.spending.gauges(),
            "intents_open": ("Upstream calls without a durable record.", self.billing.settlements.intents.open_count()),
        }

    def gauge_rows(self) -> list[GaugeRow]:
        """Return the gauges of this worker, including those with labels, without any access to a store."""
        rows: list[GaugeRow] = [(name, (), float(value)) for name, (_, value) in self.gauges().items()]
        providers = provider_rows(self.routing.health, self.routing.credentials)
        return [*rows, *providers, *job_rows(self.telemetry.jobs())]

    def gauge_texts(self) -> dict[str, str]:
        """Return the help text of each gauge."""
        return {name: text for name, (text, _) in self.gauges().items()} | {
            name: gauge.text for name, gauge in PER_WORKER_GAUGES.items()
        }

    def installation_rows(self) -> list[GaugeRow]:
        """Return the gauges of the installation from the store; unavailable ones are left out."""
        return budget_rows(self.telemetry.budget_watch.shown())

    def redis_connected(self) -> bool:
        """Return whether Redis is configured and responds."""
        return self.store.redis is not None and self.store.redis.connected()

    def database_connected(self) -> bool:
        try:
            self.store.database.now_us()
            self.store.database.read(lambda: self.store.database.execute("SELECT 1").fetchone())
        except GatewayError:
            return False
        return True

    def unready(self) -> list[str]:
        """Return why requests to this worker would fail; empty if they would succeed."""
        reasons = ["draining"] if self.leaving else []
        control = self.store.control
        if control.serves_alone():
            return reasons + full_disks(self.settings.database)
        if not self.database_connected():
            if control.coast_left_s() > 0:
                return reasons + full_disks(self.settings.database)
            return [*reasons, "the database is down"]
        return [*reasons, *migrations.verify(self.store.database), *self._refusing()]

    def notices(self) -> list[str]:
        """Return degradations that do not make requests fail."""
        refusal = accepted_configuration.refusal.read()
        without = ""
        if self.store.control.serves_alone():
            left_s = self.store.control.coast_left_s()
            without = f"the database is down: known keys are served from budget leases for {left_s:.0f} s more"
            if refused := self.billing.spending.refused_alone:
                without += f"; {refused} requests were refused, because no lease covered them"
        away = self.store.redis is not None and bool(self.store.redis.error)
        known = [notice for notice in (refusal, without) if notice]
        return [*known, *(["Redis is down: the gateway serves without it"] if away else [])]

    def _refusing(self) -> list[str]:
        """Return why writes would fail.

        This worker's own row is written twice a second, so the store is queried only after that failed.
        """
        reasons = []
        control = self.store.control
        if not control.alive() and not control.renew_suspended(control.epoch) and not control.alive():
            reasons.append("the database refuses writes")
        return reasons + full_disks(self.settings.database)
