"""Callbacks (webhooks) about the ends of jobs: signed, retried until the URL accepts them, with a record of every
attempt."""

import logging
from functools import partial
from typing import Any, NamedTuple, Protocol

from msgspec import Struct, json

from gateway.accounts import projects
from gateway.callers.vault import Vault
from gateway.clock import SECOND_US, Clock
from gateway.errors import GatewayError, NotFound
from gateway.jobs.job_rows import EVENT_PREFIX
from gateway.jobs.rounds import Rounds
from gateway.runtime.loop_turns import ShouldContinue, always
from gateway.store.database import Database
from gateway.transport import Transport
from gateway.transport.webhook_delivery import TIMEOUT_S, deliver, next_wait_us

PENDING = "pending"
RETRYING = "retrying"
DELIVERED = "delivered"
FAILED = "failed"


class CallbackOptions(NamedTuple):
    """The webhook for the end of a job: its URL ("": none), and its signing secret ("": the project's)."""

    url: str = ""
    secret: str = ""


class DeliveryAttempt(Struct, frozen=True):
    """A delivery attempt: its time, the HTTP status of the response (0: none), and why it failed."""

    at: int
    status: int
    problem: str


class Callback(NamedTuple):
    """A row of a table of callbacks, in the order of its columns. `due_at` None: no further attempts; `attempts` is
    JSON."""

    id: str
    job: str
    state: str
    due_at: int | None
    attempts: str

    @property
    def tried(self) -> list[DeliveryAttempt]:
        return json.decode(self.attempts, type=list[DeliveryAttempt])


COLUMNS = ", ".join(Callback._fields)


class Callbacks:
    """A `table` of callbacks of the jobs in the table `jobs`. Every method may raise Unavailable; `begin` and `change`
    run inside a write."""

    def __init__(self, database: Database, table: str, jobs: str) -> None:
        self.database = database
        self._table = table
        self._due = f"""SELECT project, {COLUMNS} FROM {table} JOIN (
    SELECT sent.id AS due, project, ROW_NUMBER() OVER (PARTITION BY project ORDER BY sent.due_at) AS place
    FROM {table} AS sent LEFT JOIN {jobs} ON {jobs}.id = job
    WHERE sent.due_at IS NOT NULL AND sent.due_at <= ?
) AS waiting ON id = due WHERE place <= ? ORDER BY place, due_at LIMIT ?"""

        # The states are literals, as in the index.
        self._undelivered = f"""SELECT COUNT(*) FROM {table} AS sent JOIN {jobs} ON {jobs}.id = sent.job
WHERE sent.state IN ('{RETRYING}', '{FAILED}') AND {jobs}.organization = ? AND {jobs}.completed_at >= ?"""

    def begin(self, job_id: str, now_us: int) -> None:
        """Insert the callback of an ended job; a job has one callback."""
        sql = f"INSERT INTO {self._table} ({COLUMNS}) VALUES (?, ?, ?, ?, ?) ON CONFLICT (id) DO NOTHING"
        self.database.execute(sql, (EVENT_PREFIX + job_id, job_id, PENDING, now_us, "[]"))

    def of(self, job_id: str) -> Callback | None:
        """Return the callback of a job; None without one."""
        rows = self._fetch(f"SELECT {COLUMNS} FROM {self._table} WHERE id = ?", (EVENT_PREFIX + job_id,))
        if rows:
            return Callback(*rows[0])
        return None

    def due(self, now_us: int, of_one: int, limit: int) -> list[tuple[str, Callback]]:
        """Return due callbacks with their projects ("": the job was deleted), at most `of_one` per project. Projects
        take turns: first the oldest callback of each, then the second of each."""
        return [(row[0] or "", Callback(*row[1:])) for row in self._fetch(self._due, (now_us, of_one, limit))]

    def count_undelivered(self, organization_id: str, from_us: int) -> int:
        """Return the number of callbacks of an organization's jobs that ended since `from_us` which were refused so
        far, whether or not they are tried again."""
        return int(self._fetch(self._undelivered, (organization_id, from_us))[0][0])

    def change(self, callback: Callback, **values: Any) -> Callback | None:
        """Set columns of a callback with an unchanged `due_at`; None when another worker has claimed it."""
        columns = ", ".join(f"{name} = ?" for name in values)
        sql = f"UPDATE {self._table} SET {columns} WHERE id = ? AND due_at = ?"
        changed = self.database.execute(sql, (*values.values(), callback.id, callback.due_at)).rowcount
        if changed:
            return callback._replace(**values)
        return None

    def _fetch(self, sql: str, params: tuple[Any, ...]) -> list[tuple[Any, ...]]:
        return self.database.read(partial(self.database.fetch, sql, params))


class CallbackEvent(NamedTuple):
    """The event that a callback delivers: the project of its job, its target, its type, and when the job ended. `show`
    is the job as its callers see it."""

    project: str
    options: CallbackOptions
    type: str
    at_us: int
    show: Any


class EventSource(Protocol):
    """A kind of jobs, as the delivery of its callbacks sees it."""

    def event_of(self, job_id: str) -> CallbackEvent | None:
        """Return the event of a job that has ended; None when the job was deleted."""


# Concurrent deliveries per project (a URL may never answer) and in total.
MAX_DELIVERIES_PER_PROJECT = 4
MAX_DELIVERIES = 64
# A worker claims a callback for this long; afterwards another worker may retry it.
DELIVERY_CLAIM_US = round(3 * TIMEOUT_S * SECOND_US)

log = logging.getLogger("gateway")


class Deliveries:
    """Sends due callbacks. Recurring work of the leading worker; safe to run on several workers."""

    def __init__(
        self, callbacks: Callbacks, source: EventSource, vault: Vault, transport: Transport, clock: Clock
    ) -> None:
        self._callbacks = callbacks
        self._source = source
        self._vault = vault
        self._transport = transport
        self._clock = clock
        self._database: Database = callbacks.database
        self._rounds = Rounds(MAX_DELIVERIES_PER_PROJECT, MAX_DELIVERIES, clock)

    def run(self, should_continue: ShouldContinue = always) -> None:
        """Run one round. Unavailable when the store is down."""
        due = self._callbacks.due(self._clock.now_us(), MAX_DELIVERIES_PER_PROJECT, MAX_DELIVERIES)
        self._rounds.run(((project, partial(self._follow, callback)) for project, callback in due), should_continue)

    def _follow(self, callback: Callback) -> None:
        try:
            event = self._source.event_of(callback.job)
            if event is None:
                self._change(callback, FAILED, None, callback.tried)
            elif claimed := self._claim(callback):
                self._try(claimed, event)
        except GatewayError as error:
            log.warning("the callback %s will be retried: %s", callback.id, error.message)
        except Exception:  # A callback that cannot be sent must not block the others.
            log.exception("the callback %s could not be sent", callback.id)

    def _claim(self, callback: Callback) -> Callback | None:
        due_at = self._clock.now_us() + DELIVERY_CLAIM_US
        return self._database.write(lambda: self._callbacks.change(callback, due_at=due_at))

    def _try(self, callback: Callback, event: CallbackEvent) -> None:
        body = _write(callback, event)
        now = self._clock.now_us()
        url = event.options.url
        status, problem = deliver(self._transport, url, self._secret_of(event), callback.id, body, now)
        tried = [*callback.tried, DeliveryAttempt(now, status, problem[:500])]
        wait_us = next_wait_us(len(tried)) if problem else None
        if not problem:
            self._change(callback, DELIVERED, None, tried)
        elif wait_us is not None:
            self._change(callback, RETRYING, self._clock.now_us() + wait_us, tried)
        else:
            self._change(callback, FAILED, None, tried)
            log.warning("the callback %s was abandoned after %d attempts: %s", callback.id, len(tried), problem)

    def _change(self, callback: Callback, state: str, due_at: int | None, tried: list[DeliveryAttempt]) -> None:
        attempts = json.encode(tried).decode()
        self._database.write(lambda: self._callbacks.change(callback, state=state, due_at=due_at, attempts=attempts))

    def _secret_of(self, event: CallbackEvent) -> str:
        if event.options.secret:
            return event.options.secret
        try:
            return projects.callback_secret(self._database, self._vault, event.project)
        except NotFound:
            return ""


def _write(callback: Callback, event: CallbackEvent) -> bytes:
    return json.encode(
        {
            "object": "event",
            "id": callback.id,
            "type": event.type,
            "created_at": event.at_us // SECOND_US,
            "data": event.show,
        }
    )
