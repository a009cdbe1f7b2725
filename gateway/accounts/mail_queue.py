"""E-mail that waits to be sent: encrypted in the store, delivered by the leading worker, tried again for some hours."""

import logging
from collections.abc import Callable
from typing import Any

import orjson

from gateway import ids
from gateway.callers.vault import Vault
from gateway.clock import Clock
from gateway.errors import GatewayError
from gateway.runtime.loop_turns import ShouldContinue, always
from gateway.runtime.threads import Job
from gateway.store.documents import Documents
from gateway.transport.mail import Mail, Mailer, MailFailed
from gateway.transport.webhook_delivery import next_wait_us

KIND = "mail"
TTL_S = 86_400.0
CONCURRENT_DELIVERIES = 8
BATCH_SIZE = 500
ROUND_TIMEOUT_S = 60.0
PLAIN_MEMBERS = 3  # of a message, which a worker of an earlier release knows

log = logging.getLogger(__name__)


class MailQueue:
    """`put` returns at once; the recurring job `deliver` sends. Messages hold links that open accounts, so they are
    encrypted at rest and never logged. `note` is told of each attempt for a subscription: its id, and the problem, ""
    when the message was accepted."""

    def __init__(
        self, documents: Documents, vault: Vault, mailer: Mailer, clock: Clock, note: Callable[[str, str], None]
    ) -> None:
        self._note = note
        self._documents = documents
        self._vault = vault
        self._clock = clock
        self._mailer = mailer

    @property
    def enabled(self) -> bool:
        """Return whether the operator set up e-mail."""
        return self._mailer.enabled

    def put(self, mail: Mail) -> None:
        """Queue a message; nothing where e-mail is off. Unavailable when the store is down."""
        if self.enabled:
            self._store(mail, 0, self._clock.now_us())

    def deliver(self, should_continue: ShouldContinue = always) -> None:
        """Send what is due. Unavailable when the store is down."""
        if not self.enabled:
            return
        now = self._clock.now_us()
        due = []
        for key, value in self._documents.entries(KIND, BATCH_SIZE):
            waiting = orjson.loads(value)
            if waiting["due"] <= now:
                due.append((key, waiting))
        for start in range(0, len(due), CONCURRENT_DELIVERIES):
            if not should_continue():
                return
            jobs = [Job(self._try, key, waiting) for key, waiting in due[start : start + CONCURRENT_DELIVERIES]]
            for job in jobs:
                job.result(ROUND_TIMEOUT_S)

    def _try(self, key: str, waiting: dict[str, Any]) -> None:
        try:
            more = orjson.loads(self._vault.open(waiting["more"])) if waiting.get("more") else ()
            mail = Mail(*orjson.loads(self._vault.open(waiting["sealed"])), *more)
        except GatewayError:
            self._documents.delete(KIND, key)  # sealed under a key that no longer exists
            return
        try:
            self._mailer.send(mail)
        except MailFailed as error:
            self._schedule_retry(key, mail, waiting["attempts"] + 1, error)
            self._note_result(mail, str(error))
            return
        self._documents.delete(KIND, key)
        self._note_result(mail, "")

    def _note_result(self, mail: Mail, problem: str) -> None:
        if mail.subscription:
            self._note(mail.subscription, problem)

    def _schedule_retry(self, key: str, mail: Mail, attempts: int, error: MailFailed) -> None:
        wait_us = None if error.final else next_wait_us(attempts)
        if wait_us is not None:
            self._store(mail, attempts, self._clock.now_us() + wait_us)
        else:
            more = {"event": "mail.undelivered", "remedy": "check [mail] of the configuration", "facts": {}}
            log.warning("an e-mail could not be delivered: %s", error, extra=more)
        self._documents.delete(KIND, key)

    def _store(self, mail: Mail, attempts: int, due: int) -> None:
        # Read in the order of keys, so that messages that wait for another attempt keep no due one from being read.
        key = f"{due:016x}:{ids.new_hex()}"
        sealed = self._vault.seal(orjson.dumps(mail[:PLAIN_MEMBERS]).decode())
        waiting = {"sealed": sealed, "attempts": attempts, "due": due}
        if any(mail[PLAIN_MEMBERS:]):
            waiting["more"] = self._vault.seal(orjson.dumps(mail[PLAIN_MEMBERS:]).decode())
        self._documents.put(KIND, key, orjson.dumps(waiting), TTL_S)
