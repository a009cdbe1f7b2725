"""What all operations work with: the long-lived objects of a worker, its start, drain and end."""

import logging
from collections.abc import Callable
from dataclasses import dataclass, field

from gateway.accounts.alert_hooks import AlertHooks
from gateway.accounts.authentication import Authentication
from gateway.accounts.cleanup import AccountCleanup
from gateway.accounts.custom_providers import CustomProviders
from gateway.accounts.discounts import Discounts
from gateway.accounts.mail_queue import MailQueue
from gateway.accounts.passwords import Passwords
from gateway.accounts.provider_keys import ProviderKeys
from gateway.accounts.realtime_secrets import RealtimeSecrets
from gateway.accounts.throttle import Throttle
from gateway.accounts.vault import Vault
from gateway.admin.account_changes import Management
from gateway.admin.deleted_keys import DeletedKeys
from gateway.admin.funding import Funding
from gateway.billing.ledger_close import LedgerClose
from gateway.billing.reconciliation_gauge import ReconciliationGauge
from gateway.billing.recovery import Recovery
from gateway.billing.settlement import Settlements
from gateway.catalogue.catalogue import Current
from gateway.clock import Clock
from gateway.configuration.settings import Settings
from gateway.control.version import Control
from gateway.engine.cache import ResponseCache
from gateway.engine.chat import ChatEngine
from gateway.engine.custom_catalogue import CustomCatalogue
from gateway.engine.custom_models import CustomModels
from gateway.engine.executor import Executor
from gateway.engine.gossip import Gossip
from gateway.engine.idempotency import Idempotency
from gateway.engine.planning import Planner
from gateway.engine.reading_on import ReadingOn
from gateway.engine.realtime.engine import RealtimeEngine
from gateway.engine.replays import Replays
from gateway.engine.retention import Retention
from gateway.engine.routing_decisions import Decisions
from gateway.engine.stored_responses import StoredResponses
from gateway.errors import GatewayError
from gateway.limits.budgets import Budgets
from gateway.limits.ledger import LedgerBook
from gateway.limits.rate_rules import RateLimits
from gateway.limits.spending import Spending
from gateway.metering.counters import Counters, GaugeRow
from gateway.metering.payload_quota import PayloadQuota
from gateway.metering.rollups.job import Rollups
from gateway.metering.rollups.purge import UsagePurge
from gateway.metering.sources import Sources
from gateway.neutral.request import Request
from gateway.oauth.authorization_server import OAuth
from gateway.providers.credentials import Credentials
from gateway.providers.local.model_discovery import Discovery
from gateway.providers.upstream import Upstreams
from gateway.reports.usage_reports import Reports
from gateway.routing.provider_health import Health
from gateway.runtime.byte_budget import ByteBudget
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
from gateway.store.shared_slots import SharedSlots
from gateway.telemetry.alert_delivery import Alerts
from gateway.telemetry.budget_watch import BudgetWatch
from gateway.telemetry.gauges import SHARED, JobHealth, budget_rows, job_rows, provider_rows
from gateway.telemetry.model_watch import ModelWatch
from gateway.telemetry.otel import Tracing
from gateway.telemetry.presence import WorkerPresence
from gateway.telemetry.request_log_writer import RequestLog
from gateway.telemetry.request_observers import RequestObservers
from gateway.transport import Transport
from gateway.videos.video_jobs import Videos
from gateway.worker import accepted_configuration

log = logging.getLogger("gateway")

FLUSH_S = 5.0


def _nothing() -> None:
    return


@dataclass(slots=True)
class StoreServices:
    """What is kept: the database, and what is written and read around it."""

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
    """Who calls, from which client, and what organizations brought along."""

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
    oauth: OAuth
    realtime_secrets: RealtimeSecrets


@dataclass(slots=True)
class RoutingServices:
    """Where a request may go, and how it gets there."""

    catalogue: Current
    custom_catalogue: CustomCatalogue
    discovery: Discovery
    credentials: Credentials
    health: Health
    gossip: Gossip
    planner: Planner
    decisions: Decisions
    transport: Transport
    upstreams: Upstreams


@dataclass(slots=True)
class BillingServices:
    """Budgets and credits: what is reserved of them, spent, booked, and proved."""

    budgets: Budgets
    ledger: LedgerBook
    spending: Spending
    settlements: Settlements
    rate_limits: RateLimits
    recovery: Recovery
    ledger_close: LedgerClose
    rollups: Rollups
    usage_purge: UsagePurge
    reports: Reports
    reconciliation_gauge: ReconciliationGauge


@dataclass(slots=True)
class EngineServices:
    """What carries requests out (`executor` any operation, `chat` its own), and what it keeps of answers."""

    reading_on: ReadingOn
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


@dataclass(slots=True)
class BackgroundServices:
    """What runs beside the requests: threads for what would hold up the event loop, and counters for all workers."""

    threads: Threads
    counters: Counters
    # Apart from `threads`, so that callers who unpack much do not keep commits waiting.
    unpackers: Threads
    passwords: Passwords
    # Memory of large bodies of this worker, of requests and of answers.
    bodies: ByteBudget
    # Of signed-in people, by user: one who opens many reports does not keep others waiting.
    reports: FairSlots
    # By organization, in all workers.
    exports: SharedSlots


@dataclass(slots=True)
class TelemetryServices:
    """What operators are told while the worker runs."""

    requests: RequestObservers
    request_log: RequestLog
    states: StateLog
    budget_watch: BudgetWatch
    hooks: AlertHooks
    alerts: Alerts
    mail: MailQueue
    model_watch: ModelWatch
    presence: WorkerPresence
    tracing: Tracing | None = None
    # How the recurring work of this worker went; whoever runs it tells.
    jobs: Callable[[], list[JobHealth]] = list


@dataclass(slots=True)
class Services:
    """All that operations need, made once in a worker. `management` is what the management API changes."""

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
    leaving: bool = False
    # What the server under the application knows, in the same form as `gauges`.
    server_gauges: Callable[[], dict[str, tuple[str, float]]] = field(default=dict, repr=False)
    _closed: bool = field(default=False, repr=False)

    def start(self) -> None:
        """The worker takes its place among the others; its recurring work is `background`'s."""
        self.store.control.start()
        self.background.counters.gauges = self.gauge_rows
        self.background.counters.start()

    def watch(self, gauges: Callable[[], dict[str, tuple[str, float]]]) -> None:
        """The server under the application tells its own figures by `gauges`."""
        self.server_gauges = gauges

    def drain(self, leaving: bool = True) -> None:
        """Begin the end of the worker: readiness says so, requests in progress finish."""
        self.leaving = self.engine.realtime.leaving = leaving
        self.store.mailboxes.leave(leaving)

    def is_busy(self) -> bool:
        """Whether the worker has work in progress for callers who left."""
        return self.engine.reading_on.count > 0

    def close(self) -> None:
        """Settle the books and let go of everything; called last in a worker."""
        if self._closed:
            return
        self._closed = True
        for step in (
            self.engine.reading_on.stop,
            self.telemetry.request_log.flush,
            self.telemetry.tracing.close if self.telemetry.tracing is not None else _nothing,
            self.billing.settlements.stop,
            lambda: self.store.journal.close(FLUSH_S),
            self.store.control.stop,
            self.background.counters.stop,
            self.routing.transport.close,
            self.store.database.close,
            self.background.threads.close,
            self.background.unpackers.close,
            self.background.passwords.close,
        ):
            try:
                step()
            except GatewayError as error:
                log.error("while leaving: %s", error)
        if self.store.redis is not None:
            self.store.redis.close()

    def gauges(self) -> dict[str, tuple[str, float]]:
        """Gauges of this worker: name → (help text, value)."""
        journal = self.store.journal
        return {
            "configuration_refused": (
                "1 while a change of catalogue or configuration was refused and what was before is in force.",
                1.0 if accepted_configuration.refusal.read() else 0.0,
            ),
            "journal_pending": ("Records that wait for their commit.", journal.pending),
            "journal_commits": ("Commits of records since the start.", journal.commits),
            "journal_largest_batch": ("Most records in one commit.", journal.largest_batch),
            "journal_failed": ("Records that could not be written.", journal.failed),
            "control_age_seconds": ("Age of what this worker knows of changes.", self.store.control.age_s()),
            "redis_up": (
                "Whether Redis answered when it was asked last; 1 also where none is configured.",
                0.0 if self.store.redis is not None and self.store.redis.error else 1.0,
            ),
            "database_up": (
                "Whether the database answered when it was asked last.",
                1.0 if self.telemetry.states.is_healthy("database") else 0.0,
            ),
            "answers_read_on": (
                "Answers that are read on for their usage, whose callers left.",
                self.engine.reading_on.count,
            ),
            "realtime_sessions": ("Realtime sessions that are open.", len(self.engine.realtime.running)),
            **self.server_gauges(),
            **self.billing.spending.gauges(),
            "intents_open": ("Upstream calls without a durable record.", self.billing.settlements.intents.open_count()),
        }

    def gauge_rows(self) -> list[GaugeRow]:
        """The gauges of this worker, those with labels too; no store is asked."""
        rows: list[GaugeRow] = [(name, (), float(value)) for name, (_, value) in self.gauges().items()]
        providers = provider_rows(self.routing.health, self.routing.credentials)
        return [*rows, *providers, *job_rows(self.telemetry.jobs())]

    def gauge_texts(self) -> dict[str, str]:
        """What each gauge of a worker tells."""
        return {name: text for name, (text, _) in self.gauges().items()} | {
            name: gauge.text for name, gauge in SHARED.items()
        }

    def installation_rows(self) -> list[GaugeRow]:
        """The gauges of the installation, asked from the store; what it does not tell is left out."""
        return budget_rows(self.telemetry.budget_watch.shown())

    def redis_connected(self) -> bool:
        """Whether there is a Redis that answers."""
        return self.store.redis is not None and self.store.redis.connected()

    def database_connected(self) -> bool:
        try:
            self.store.database.now_us()
            self.store.database.read(lambda: self.store.database.execute("SELECT 1").fetchone())
        except GatewayError:
            return False
        return True

    def unready(self) -> list[str]:
        """Why requests to this worker would not succeed; empty when they would."""
        reasons = ["draining"] if self.leaving else []
        if not self.database_connected():
            return [*reasons, "the database is away"]
        return [*reasons, *migrations.verify(self.store.database), *self._refusing()]

    def notices(self) -> list[str]:
        """What is less than it should be, though requests succeed."""
        refusal = accepted_configuration.refusal.read()
        away = self.store.redis is not None and bool(self.store.redis.error)
        return [*([refusal] if refusal else []), *(["Redis is away: the gateway serves without it"] if away else [])]

    def _refusing(self) -> list[str]:
        """Why nothing could be written: this worker's own row is written twice a second, so the store is asked only
        when that failed."""
        reasons = []
        control = self.store.control
        if not control.alive() and not control.regain(control.epoch) and not control.alive():
            reasons.append("the database refuses writes")
        return reasons + full_disks(self.settings.database)
