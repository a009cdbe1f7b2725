"""The objects that all groups of services use: store, threads, HTTP client and telemetry."""

import hmac
from functools import partial
from pathlib import Path

from msgspec import Struct

from gateway.accounts.alert_hooks import AlertHooks
from gateway.accounts.mail_queue import MailQueue
from gateway.accounts.passwords import Passwords
from gateway.accounts.view_subscriptions import note_delivery
from gateway.build_stamp import full_version
from gateway.callers.vault import Vault
from gateway.clock import SECOND_US, Clock
from gateway.configuration.outgoing_settings import MAIL_PASSWORD
from gateway.configuration.settings import Settings
from gateway.control.leadership import TERM_DURATION_S
from gateway.control.version import Control, node_name
from gateway.metering.counters import Counters
from gateway.metering.log.log_entries import log_tables
from gateway.metering.outcomes.outcome_book import OutcomeBook
from gateway.money import NANO
from gateway.runtime.byte_budget import ByteBudget
from gateway.runtime.fair_threads import FairSlots
from gateway.runtime.state_changes import StateChange, StateLog
from gateway.runtime.threads import Threads
from gateway.store import migrations
from gateway.store.database import Database, open_database, open_replica
from gateway.store.documents import Documents
from gateway.store.installation_identity import load_secrets
from gateway.store.journal import Journal
from gateway.store.mailboxes import Mailboxes
from gateway.store.redis import open_redis
from gateway.store.shared_slots import SessionSlots, SharedSlots
from gateway.telemetry.agent_signals import AgentSignals
from gateway.telemetry.alert_delivery import Alerts
from gateway.telemetry.alert_history import AlertHistory
from gateway.telemetry.alert_incidents import OutageClaims
from gateway.telemetry.budget_watch import BudgetWatch, ModelWatch
from gateway.telemetry.cache_watch import CacheWatch
from gateway.telemetry.otel import Tracing
from gateway.telemetry.presence import WorkerPresence
from gateway.telemetry.request_log_writer import RequestLog
from gateway.telemetry.request_observers import RequestObservers
from gateway.telemetry.unusual_days import UnusualWatch
from gateway.telemetry.weekly_views import WeeklyViews
from gateway.transport import Transport
from gateway.transport.answer_room import AnswerRoom
from gateway.transport.mail import Mailer
from gateway.transport.outgoing_routes import OutgoingRoutes
from gateway.transport.request_bytes import PRODUCT
from gateway.worker.services import BackgroundServices, StoreServices, TelemetryServices

LOOP_LABEL = b"loop"
UNPACKERS = 2
EXPORTS = 2  # exports of one organization at the same time
REPORTS = 16
ROW_SUMS = 2  # reports from single requests at the same time: each holds a connection and a thread for seconds
ROW_SUMS_WAITING = 4  # they wait within the REPORTS, which the pages of other people need too
REPORTS_EACH = 1  # reports that a worker generates at the same time, and those of one user


class WorkerBase(Struct, frozen=True):
    """The objects that all groups of services use."""

    settings: Settings
    data: Path  # the installation's data folder
    clock: Clock
    store: StoreServices
    background: BackgroundServices
    telemetry: TelemetryServices
    transport: Transport

    @property
    def hash_key(self) -> bytes:
        """Return the newest key for fingerprints and lookups."""
        return self.store.secrets.hash_keys[0]


def open_base(settings: Settings, before: StateLog | None) -> WorkerBase:
    """Open the store and build the shared objects; `before` is the state log of an earlier attempt.

    Raise SettingsError or Unavailable.
    """
    clock = Clock()
    threads = Threads()
    states = StateLog(before)
    try:
        database = open_database(settings.database, clock, threads, states)
    except BaseException:
        threads.close()
        raise
    try:
        database.replica = open_replica(settings.database, round(TERM_DURATION_S * SECOND_US), clock, states)
        database.bind()
        return _fill_base(settings, clock, threads, database, states)
    except BaseException:
        database.close()
        threads.close()
        raise


def _fill_base(settings: Settings, clock: Clock, threads: Threads, database: Database, states: StateLog) -> WorkerBase:
    problems = migrations.verify(database)
    if problems:
        raise migrations.SchemaMismatch(problems)
    secrets = load_secrets(settings, database)
    documents = Documents(database)
    store = StoreServices(
        database=database,
        control=Control(database, clock, node_name(settings.server.port), settings.database.coast_s),
        journal=Journal(database, clock),
        documents=documents,
        mailboxes=Mailboxes(documents),
        redis=open_redis(settings.redis, clock, states),
        secrets=secrets,
        vault=Vault(secrets.encryption_keys),
    )
    data = Path(settings.database.data_dir)
    background = BackgroundServices(
        threads,
        Counters(data / "metrics"),
        unpackers=Threads(UNPACKERS),
        passwords=Passwords(),
        bodies=ByteBudget(settings.server.bodies_mb << 20, settings.server.organization_bodies_mb << 20),
        reports=FairSlots(REPORTS, each=REPORTS_EACH),
        row_sums=FairSlots(ROW_SUMS, each=REPORTS_EACH, max_waiting=ROW_SUMS_WAITING),
        exports=SharedSlots(documents, clock, "export", EXPORTS),
        response_sockets=SessionSlots(
            documents,
            clock,
            "response socket",
            organization=settings.responses.organization_sockets,
            key=settings.responses.key_sockets,
        ),
    )
    room = AnswerRoom(background.bodies, settings.server.answer_wait_s, clock.monotonic)
    mark = hmac.digest(secrets.hash_keys[0], LOOP_LABEL, "sha256").hex()[:16]
    routes = OutgoingRoutes(settings.outgoing)
    transport = Transport(
        settings.timeouts, settings.security, clock=clock, room=room, loop_mark=f"{PRODUCT}-{mark}", routes=routes
    )
    telemetry = _open_telemetry(settings, data, clock, store, background.counters, states, transport)

    def count_change(change: StateChange) -> None:
        background.counters.add("state_changes_total", (change.event,))

    states.subscribe(count_change)
    return WorkerBase(settings, data, clock, store, background, telemetry, transport)


def _open_telemetry(
    settings: Settings,
    data: Path,
    clock: Clock,
    store: StoreServices,
    counters: Counters,
    states: StateLog,
    transport: Transport,
) -> TelemetryServices:
    requests = RequestObservers(counters, clock)
    log = RequestLog(store.journal, clock, counters, log_tables(store.database, settings.metering.log_days))
    log.attach(requests)
    low_nusd = round(settings.alerts.credits_low_usd * NANO)
    hooks = AlertHooks(store.database, store.control, store.vault, settings.security.allow_private_upstreams)
    mailer = Mailer(settings.mail, settings.secret(MAIL_PASSWORD))
    claims = OutageClaims(data / "alerts", store.redis)
    history = AlertHistory(store.database)
    note = partial(note_delivery, store.database)
    alerts = Alerts(hooks, store.documents, transport, mailer, states, clock, claims, history, note)
    mail = MailQueue(store.documents, store.vault, mailer, clock, note)
    return TelemetryServices(
        requests=requests,
        request_log=log,
        states=states,
        budget_watch=BudgetWatch(store.database, store.documents, states, low_nusd, settings.alerts.thresholds),
        hooks=hooks,
        alerts=alerts,
        alert_history=history,
        mail=mail,
        weekly_views=WeeklyViews(
            store.database, hooks, alerts, mail, clock, store.secrets.hash_keys, settings.server.public_url
        ),
        model_watch=ModelWatch(states, clock, settings.alerts.model_end_days),
        unusual_watch=UnusualWatch(
            store.database, store.control, store.documents, states, round(settings.alerts.unusual_usd * NANO)
        ),
        cache_watch=CacheWatch(store.database, states, clock, settings.alerts.cache_hits_percent),
        presence=WorkerPresence(
            store.documents,
            store.control,
            clock,
            settings.server.version or full_version(),
            store.secrets.fingerprints,
        ),
        agent_signals=AgentSignals(settings.otel, settings.environment, transport, counters, states),
        outcomes=OutcomeBook(store.database, counters),
        tracing=_open_tracing(settings, clock, requests, states, transport.routes),
    )


def _open_tracing(
    settings: Settings, clock: Clock, requests: RequestObservers, states: StateLog, routes: OutgoingRoutes
) -> Tracing | None:
    """Return the exporter of traces; None if the operator configured no collector."""
    if not settings.otel.endpoint:
        return None
    tracing = Tracing(settings.otel, clock, states, routes)
    requests.observe(tracing)
    return tracing


def release(base: WorkerBase) -> None:
    """Release everything after a failed start, because the start will be retried."""
    base.store.journal.close(0.0)
    base.transport.close()
    base.store.database.close()
    base.background.threads.close()
    base.background.unpackers.close()
    base.background.passwords.close()
