"""Requests that were sent to providers for background responses, where they may make them in their own background mode.

It is in the row of the response before each attempt, so that any worker can read the response on, or bill it once.
"""

import logging
from collections.abc import Callable
from typing import Any

from msgspec import DecodeError, Struct, ValidationError, json

from gateway.billing.batch_reservation import release_batch
from gateway.billing.recorded_answers import RecordedAnswer
from gateway.billing.response_reservation import BackgroundMaking, Continued, ResponseHold
from gateway.billing.usage_rows import interrupted, read_intent
from gateway.catalogue.catalogue import Catalogue
from gateway.clock import HOUR_US, SECOND_US, Clock
from gateway.errors import GatewayError, Unavailable
from gateway.limits.holds import Holds
from gateway.limits.models import split_groups
from gateway.metering.models import CREDITS
from gateway.metering.usage_table import RECORD, write_groups
from gateway.neutral.usage import Usage
from gateway.providers.background_calls import BackgroundCalls, BackgroundTerms
from gateway.providers.credentials import Credentials
from gateway.providers.protocol import Target
from gateway.store.database import Database
from gateway.store.journal import Row, Statement

ID_PREFIX = "resp_"
BILLED = -1  # the number of the event that says that a response is billed
# A second worker that has read the same response records nothing.
INSERT_BILLED = Statement(
    "response_billed",
    "INSERT INTO response_event (job, first, following, frames) VALUES (?, ?, ?, ?) "
    "ON CONFLICT (job, first) DO NOTHING",
    exact=True,
)
LEFT_US = 120 * SECOND_US  # after which nobody ends the hold of an ended response
GIVEN_UP_US = 2 * HOUR_US  # without an answer of the provider
WAIT_S = 30.0

log = logging.getLogger("gateway")


class SentResponse(Struct, frozen=True):
    """An attempt at a provider: its intent, its target, and the id of the response there, "" if it is unknown."""

    attempt: int
    intent: bytes
    provider: str
    model: str
    mapping: str
    source: str
    credential: str
    sent_at: int
    remote: str = ""


SENT = json.Decoder(SentResponse)


class SentResponses:
    """The background responses of all organizations at providers."""

    def __init__(
        self,
        database: Database,
        holds: Holds,
        calls: BackgroundCalls,
        credentials: Credentials,
        catalogue: Callable[[], Catalogue],
        clock: Clock,
    ) -> None:
        self.database = database
        self.holds = holds
        self.calls = calls
        self.clock = clock
        self._credentials = credentials
        self._catalogue = catalogue
        self._left: dict[str, int] = {}  # holds that nobody seems to end, and since when

    def read(self, text: str) -> SentResponse | None:
        """Return what a row says was sent; None for nothing."""
        try:
            return SENT.decode(text) if text else None
        except (DecodeError, ValidationError):
            return None

    def write(self, ident: str, sent: SentResponse) -> None:
        """Keep what is sent. Unavailable."""
        sql = "UPDATE response_job SET sent = ? WHERE id = ? AND state = 'in_progress'"
        self.database.change_rows(sql, (json.encode(sent).decode(), ident))

    def target_of(self, sent: SentResponse, organization: str) -> Target | None:
        """Return the target of an attempt; None where model, provider or credential were removed."""
        catalogue = self._catalogue()
        model = catalogue.models.get(sent.model.partition(":")[0])
        mapping = next((one for one in model.mappings if one.key == sent.mapping), None) if model else None
        provider = catalogue.provider(sent.provider)
        if mapping is None or provider is None:
            return None
        credential = self._credentials.find_for_job(mapping, organization, sent.source, sent.credential)
        return self._credentials.target(mapping, provider, credential) if credential else None

    def exists(self, ident: str, sent: SentResponse, organization: str) -> bool | None:
        """Return whether the provider still has a response; None while it does not answer, for some hours."""
        target = self.target_of(sent, organization)
        if target is None:
            return False
        try:
            return self.calls.exists(sent.remote, target)
        except GatewayError as error:
            log.warning("the background response %s waits for %s: %s", ident, sent.provider, error.message)
            return False if self.clock.now_us() - sent.sent_at > GIVEN_UP_US else None

    def is_billed(self, ident: str) -> bool:
        """Return whether the answer of a response has its usage row. Unavailable."""
        sql = "SELECT 1 FROM response_event WHERE job = ? AND first = ?"
        return bool(self.database.query_rows(sql, (ident, BILLED)))

    def bill_interrupted(self, ident: str, sent: SentResponse | None) -> None:
        """Bill the attempt of a dead worker like any interrupted one, unless it is billed, and end the hold.
        Unavailable."""
        left = self.holds.with_prefix(f"{ident}:")
        if sent is not None and left and not self.is_billed(ident) and not self._has_row(ident, sent.attempt):
            self._bill(ident, sent, left[0])
        self.release(ident)

    def release(self, ident: str) -> None:
        """End the hold of a response. Unavailable."""
        release_batch(self.holds, ident)
        sql = "DELETE FROM response_event WHERE job = ? AND first = ?"
        self.database.change_rows(sql, (ident, BILLED))

    def settle_left(self, find: Callable[[str], Any]) -> None:
        """End the holds of responses that have ended without their worker. Unavailable."""
        now = self.clock.now_us()
        left: dict[str, int] = {}
        for ident in dict.fromkeys(hold.rpartition(":")[0] for hold in self.holds.with_prefix(ID_PREFIX)):
            job = find(ident)
            if job is not None and not job.has_ended:
                continue
            left[ident] = self._left.get(ident, now)
            if now - left[ident] < LEFT_US:  # its worker may be about to end it
                continue
            sent = self.read(job.sent) if job is not None else None
            if sent is not None and sent.remote:
                target = self.target_of(sent, job.organization)
                if target is not None:
                    self.calls.cancel(sent.remote, target)
            self.bill_interrupted(ident, sent)
        self._left = left

    def _has_row(self, ident: str, attempt: int) -> bool:
        """Return whether an attempt has its usage row, because it failed."""
        request = bytes.fromhex(ident.removeprefix(ID_PREFIX))
        sql = "SELECT 1 FROM usage WHERE request = ? AND attempt = ?"
        return bool(self.database.query_rows(sql, (request, attempt)))

    def _bill(self, ident: str, sent: SentResponse, hold: str) -> None:
        request = bytes.fromhex(ident.removeprefix(ID_PREFIX))
        record = interrupted(read_intent(sent.intent), request, sent.attempt, self.clock.now_us())

        def write() -> None:
            teams, groups = split_groups(self.holds.budgets(hold) if record.cost_nusd else ())
            self.database.execute(RECORD.sql, (*record, teams))
            for statement, params in write_groups(record.request, record.attempt, groups):
                self.database.execute(statement.sql, params)

        self.holds.settle(hold, record.cost_nusd, record.mode == CREDITS, write)


class ResponseResult(RecordedAnswer):
    """The answer of a response, which is billed with it. It is not kept here."""

    def add(self, piece: bytes) -> None:
        if self._inner is not None:
            self._inner.add(piece)


class BilledAnswer(ResponseResult):
    """The answer of a response that a dead worker has billed already."""

    @property
    def held(self) -> bool:
        return False

    def end(self, status: int) -> None:
        """Record nothing."""


class ResponseCall:
    """What one worker sends for a response."""

    def __init__(
        self,
        responses: SentResponses,
        ident: str,
        organization: str,
        created_at: int,
        is_claimed: Callable[[], bool],
    ) -> None:
        self._responses = responses
        self._ident = ident
        self._organization = organization
        self.created_at = created_at
        self._is_claimed = is_claimed
        self._sent: SentResponse | None = None
        self._continued: Continued | None = None
        self._is_billed = False
        self._result: ResponseResult | None = None

    def resume(self, sent: SentResponse) -> None:
        """Continue what another worker has begun. Unavailable."""
        self._sent = sent
        target = self._responses.target_of(sent, self._organization)
        if target is not None and sent.remote:
            self._continued = Continued(target, sent.attempt)
        self._is_billed = self._responses.is_billed(self._ident)

    def making(self, inbound: Any) -> BackgroundMaking:
        """Return how the response of a request is made."""

        def use_native(context: Any) -> None:
            if self._is_billed:
                self._result = BilledAnswer(self._is_claimed, self._mark)
            else:
                self._result = ResponseResult(self._is_claimed, self._mark, context.payload)
            context.payload = inbound.payload = self._result

        remote = self._sent.remote if self._sent is not None and self._continued is not None else ""
        terms = BackgroundTerms(remote, self._begun, self._is_claimed)
        hold = ResponseHold(self._responses.holds, self._ident, self._is_claimed, self._keep)
        return BackgroundMaking(hold, terms, self._continued, use_native, self._cancel)

    def end(self) -> None:
        """End the hold after the response has ended, and delete the response at its provider. Never raises: another
        worker ends what is left."""
        result = self._result
        if result is None:
            return
        try:
            if result.ticket is not None:
                result.ticket.wait(WAIT_S)
            self._responses.release(self._ident)
        except GatewayError as error:
            log.warning("the hold of the background response %s ends later: %s", self._ident, error.message)
            return
        sent = self._sent
        if sent is not None and sent.remote:
            target = self._responses.target_of(sent, self._organization)
            if target is not None:
                self._responses.calls.delete(sent.remote, target)

    def _cancel(self) -> Usage | None:
        """Cancel the response at its provider, unless another worker has it, and return what it used; None where that
        is unknown. Never raises."""
        sent = self._sent
        if sent is None or not sent.remote or not self._is_claimed():
            return None
        target = self._responses.target_of(sent, self._organization)
        return self._responses.calls.cancel(sent.remote, target) if target is not None else None

    def _keep(self, attempt: int, target: Target, intent: bytes) -> None:
        """Keep the intent of an attempt, unless it continues that of another worker. Unavailable."""
        if self._continued is not None:
            return
        mapping = target.mapping
        credential = target.credential
        self._sent = SentResponse(
            attempt,
            intent,
            target.provider.id,
            mapping.model,
            mapping.key,
            credential.source,
            credential.ident,
            self._responses.clock.now_us(),
        )
        self._responses.write(self._ident, self._sent)

    def _begun(self, remote: str, target: Target) -> None:
        """Keep the id of a response at its provider."""
        sent = self._sent
        if sent is None:
            return
        self._sent = SentResponse(**{name: getattr(sent, name) for name in sent.__struct_fields__} | {"remote": remote})
        try:
            self._responses.write(self._ident, self._sent)
        except Unavailable:
            log.warning("the background response %s is not continued after a crash: the store is down", self._ident)

    def _mark(self, status: int, answer: bytes, cost_nusd: int) -> Row:
        """Return the row that says that the response is billed."""
        return INSERT_BILLED, (self._ident, BILLED, BILLED, b"")
