"""Delivery of callbacks: signed, retried until the URL accepts them, with a record of every attempt."""

import logging
from functools import partial

from msgspec import json

from gateway.accounts import projects
from gateway.accounts.vault import Vault
from gateway.clock import SECOND_US, Clock
from gateway.errors import GatewayError, NotFound
from gateway.runtime.stepwise import ShouldContinue, always
from gateway.store.database import Database
from gateway.transport import Transport
from gateway.transport.webhook_delivery import TIMEOUT_S, deliver, next_wait_us
from gateway.videos.callback_table import DELIVERED, FAILED, RETRYING, Callback, Callbacks, DeliveryAttempt
from gateway.videos.job_states import COMPLETED
from gateway.videos.job_table import VideoJob, VideoJobs
from gateway.videos.rounds import Rounds
from gateway.videos.shown import Presenter
from gateway.videos.tasks import SealedColumns, Task

# Concurrent deliveries per project (a URL may never answer) and in total.
OF_ONE = 4
OF_ALL = 64
# A worker claims a callback for this long; afterwards another worker may retry it.
CLAIM_US = round(3 * TIMEOUT_S * SECOND_US)

log = logging.getLogger("gateway")


class Deliveries:
    """Sends due callbacks. Recurring work of the leading worker; safe to run on several workers."""

    def __init__(
        self,
        callbacks: Callbacks,
        jobs: VideoJobs,
        sealed: SealedColumns,
        presenter: Presenter,
        vault: Vault,
        transport: Transport,
        clock: Clock,
    ) -> None:
        self._callbacks = callbacks
        self._jobs = jobs
        self._sealed = sealed
        self._presenter = presenter
        self._vault = vault
        self._transport = transport
        self._clock = clock
        self._database: Database = jobs.database
        self._rounds = Rounds(OF_ONE, OF_ALL, clock)

    def run(self, should_continue: ShouldContinue = always) -> None:
        """Run one round. Unavailable when the store is down."""
        due = self._callbacks.due(self._clock.now_us(), OF_ONE, OF_ALL)
        self._rounds.run(((project, partial(self._follow, callback)) for project, callback in due), should_continue)

    def _follow(self, callback: Callback) -> None:
        try:
            job = self._jobs.find(callback.job)
            if job is None:
                self._change(callback, FAILED, None, callback.tried)
            elif claimed := self._claim(callback):
                self._try(claimed, job)
        except GatewayError as error:
            log.warning("the callback %s will be retried: %s", callback.id, error.message)
        except Exception:  # A callback that cannot be sent must not block the others.
            log.exception("the callback %s could not be sent", callback.id)

    def _claim(self, callback: Callback) -> Callback | None:
        due_at = self._clock.now_us() + CLAIM_US
        return self._database.write(lambda: self._callbacks.change(callback, due_at=due_at))

    def _try(self, callback: Callback, job: VideoJob) -> None:
        task = self._sealed.task(job.task)
        body = self._write(callback, job, task)
        now = self._clock.now_us()
        status, problem = deliver(
            self._transport, task.callback_url, self._secret_of(job, task), callback.id, body, now
        )
        tried = [*callback.tried, DeliveryAttempt(now, status, problem[:500])]
        if problem:
            wait_us = next_wait_us(len(tried))
        else:
            wait_us = None
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

    def _write(self, callback: Callback, job: VideoJob, task: Task) -> bytes:
        return json.encode(
            {
                "object": "event",
                "id": callback.id,
                "type": "video.completed" if job.state == COMPLETED else "video.failed",
                "created_at": (job.completed_at or job.created_at) // SECOND_US,
                "data": self._presenter.show(job, task.base_url),
            }
        )

    def _secret_of(self, job: VideoJob, task: Task) -> str:
        if task.callback_secret:
            return task.callback_secret
        try:
            return projects.callback_secret(self._database, self._vault, job.project)
        except NotFound:
            return ""
