"""Idempotency-Key: the first request with a key runs once; later requests get the same bytes and cost nothing.

A request with a key runs to its end even when its caller disconnects, because the caller will probably retry.
"""

import hashlib
import hmac
import threading
import zlib
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any, NamedTuple

import orjson

from gateway.billing.admission import Settlements
from gateway.callers import access as access_module
from gateway.callers.access import keeps_nothing
from gateway.callers.authentication import Caller
from gateway.callers.vault import Vault, is_sealed
from gateway.catalogue.catalogue import CurrentCatalogue
from gateway.catalogue.entries import Mapping, Provider
from gateway.clock import Clock
from gateway.control.version import Control
from gateway.errors import GatewayError, IdempotencyInFlight, IdempotencyKeyReused, Interrupted, InvalidRequest
from gateway.metering.models import SETTLEMENT
from gateway.metering.payload_table import pack, unpack
from gateway.runtime.byte_budget import ByteBudget
from gateway.runtime.disconnects import current
from gateway.runtime.threads import Job, Threads, compute_if, spawn
from gateway.store.database import Database
from gateway.store.documents import DocumentRows, Documents
from gateway.store.journal import Journal, Row
from gateway.transport.answer_room import KeptBytes

# Checks whether a stored answer may be returned to this caller, by the rules in force now.

FRAMES_PER_TURN = 500
SERVED = f"SELECT provider, served FROM usage WHERE request IN ({{marks}}) AND kind = {SETTLEMENT} AND error IS NULL"


class Replays:
    """Checks the providers of an answer from the usage rows of its request; deleted rows forbid nothing."""

    def __init__(self, database: Database, catalogue: CurrentCatalogue, clock: Clock) -> None:
        self._database = database
        self._catalogue = catalogue
        self._clock = clock

    def check(self, caller: Caller, ip: str, request_ids: Sequence[str]) -> None:
        """Forbidden when a rule or policy excludes the caller's address, or the provider or model of one of the
        requests (32 hex digits each). Unavailable when the store cannot be reached."""
        access_module.check_address(caller.rules, ip)
        refuse = access_module.predicate(caller.rules, self._clock.now_us())
        if refuse is None:
            return
        for provider_id, model_id in self._served(request_ids):
            mapping, provider = self._find(provider_id, model_id)
            reason = refuse(mapping, provider)
            if reason:
                raise access_module.forbid(reason)

    def _served(self, request_ids: Sequence[str]) -> set[tuple[str, str]]:
        keys = [bytes.fromhex(ident) for ident in request_ids]
        served: set[tuple[str, str]] = set()
        for start in range(0, len(keys), FRAMES_PER_TURN):
            part = keys[start : start + FRAMES_PER_TURN]
            marks = ", ".join("?" * len(part))
            rows = self._database.query_rows(SERVED.format(marks=marks), part)
            served |= {(provider, model) for provider, model in rows}
        return served

    def _find(self, provider_id: str, model_id: str) -> tuple[Mapping, Provider]:
        """Return the catalogue's current mapping and provider. Removed and custom ones are represented by their
        names."""
        catalogue = self._catalogue.current()
        model = catalogue.find(model_id)
        mappings = model.mappings if model is not None else ()
        mapping = next((mapping for mapping in mappings if mapping.provider == provider_id), None)
        provider = catalogue.provider(provider_id)
        return (
            mapping or Mapping(provider_id, model_id, model_id),
            provider or Provider(provider_id, provider_id, "openai"),
        )


# A buffer between the greenlet that produces a stream's bytes and a caller who may be slow or disconnect.

MAX_BYTES_AHEAD = 1 << 17  # bytes that the producer may be ahead of the caller once the stream is too long to keep
READER_TIMEOUT_S = 600.0  # a caller that reads nothing for this long counts as disconnected


class Spool:
    """Keeps all bytes of a stream up to `max_bytes`, and while the `budget` has room; a longer stream is only passed
    on, at the caller's speed. `cramped`: there was no room."""

    def __init__(self, max_bytes: int, budget: ByteBudget | None = None) -> None:
        self._max_bytes = max_bytes
        self._kept = KeptBytes(budget)
        self.cramped = False
        self._pieces: deque[bytes] = deque()
        self._contents: list[bytes] | None = []
        self._size = self._ahead = 0
        self._failure: Exception | None = None
        self._left = False
        self._ended = threading.Event()
        self._more = threading.Event()
        self._room = threading.Event()

    @property
    def contents(self) -> bytes | None:
        """All bytes that were written, or None when they were not kept."""
        if self._contents is None:
            return None
        return b"".join(self._contents)

    def write(self, piece: bytes) -> bool:
        """Add a piece; returns whether more is wanted, by the caller or by retries that need the kept bytes."""
        self._size += len(piece)
        if self._contents is not None:
            self._contents.append(piece)
            self.cramped = not self._kept.fits(len(piece))
            if self.cramped or self._size > self._max_bytes:
                self._contents = None
        if not self._left:
            self._pieces.append(piece)
            self._ahead += len(piece)
            self._more.set()
        while self._contents is None and not self._left and self._ahead > MAX_BYTES_AHEAD:
            self._room.clear()
            if not self._room.wait(READER_TIMEOUT_S):
                self._leave()
        return self._contents is not None or not self._left

    def end(self, failure: Exception | None = None) -> None:
        """Mark the end of the stream; `failure` is raised to the reader after the last piece."""
        self._failure = failure
        self._ended.set()
        self._more.set()

    def read(self) -> Iterator[bytes]:
        """Return the pieces as they arrive. Closing the iterator means that the caller disconnected, even before the
        first piece; it waits for the end of the stream, so that the limits on connections count the request."""
        pieces = self._read()
        next(pieces)
        return pieces

    def _read(self) -> Iterator[bytes]:
        try:
            yield b""  # consumed by `read`, so that closing this generator always runs its `finally`
            while True:
                self._more.clear()
                while self._pieces:
                    piece = self._pieces.popleft()
                    self._ahead -= len(piece)
                    self._room.set()
                    yield piece
                if self._ended.is_set() and not self._pieces:
                    break
                self._more.wait()
        finally:
            self._leave()
            self._ended.wait()
        if self._failure is not None:
            raise self._failure

    def _leave(self) -> None:
        self._left = True
        self._pieces.clear()
        self._room.set()


HEADER = "Idempotency-Key"
KIND = "idempotency"
FORMAT_VERSION = 1  # version of the document format; another release may write another
RECORD_TTL_S = 24 * 3600.0
MAX_KEY_LENGTH = 255
# Larger answers are not stored. The largest ones are images of a few megabytes.
MAX_BYTES = 48 << 20
MAX_STREAM_BYTES = 16 << 20
TOTAL_BYTES = 2 << 30  # of all stored answers of the installation
WORKER_PARTS = 4  # parts of the remaining room of which a worker may fill one before it measures again
LARGE = 1 << 17  # bytes; the fingerprint of a larger request is computed in a thread
MAX_ATTEMPTS = 3
ORIGINAL_WAIT_S = 5.0
MAX_REQUEST_S = 1500.0
LABEL = b"idempotency\0"
FIRST_ERROR = 400
# Every provider refused because of load, so nothing was billed and a retry may run.
NOTHING_DONE = (429, 529)
NO_RETRY = (("x-should-retry", "false"),)  # honoured by the official clients of OpenAI and Anthropic
# Reasons why there is no answer to replay.
CRASHED_REASON = "crashed"
TOO_LARGE = "too large"
NOT_KEPT = "not kept"
NO_ROOM = "no room"
REASONS = {
    CRASHED_REASON: "The first request with this Idempotency-Key was interrupted and its answer is lost.",
    TOO_LARGE: "The first request with this Idempotency-Key was answered; the answer was too large to store.",
    NO_ROOM: "The first request with this Idempotency-Key was answered; there was no room to store the answer.",
    NOT_KEPT: "The first request with this Idempotency-Key was answered; your organization keeps no answers.",
}
NOT_REPEATED = "It is not run again, because it may have been billed: use another Idempotency-Key to send it again."

Headers = list[tuple[str, str]]
Check = Callable[[str], object]  # takes the id of the request that the answer was made for


class StoredReply(NamedTuple):
    """A response of any surface. `replayed`: it was made for an earlier request with the same key."""

    status: int
    headers: Headers
    body: bytes | Iterator[bytes]
    replayed: bool = False


class KeyedRequest(NamedTuple):
    """A request with a key. `route` is method and path, `content` everything that distinguishes it from other
    requests."""

    caller: Caller
    key: str
    route: str
    content: tuple[bytes, ...]
    request_id: str

    @property
    def size(self) -> int:
        return sum(map(len, self.content))


class _Claim(NamedTuple):
    place: str
    print: str
    request_id: str
    keeps: bool
    owner: str


class Idempotency:
    """Runs requests with a key, one object per worker. Requests refused before an upstream call are not recorded."""

    def __init__(
        self,
        documents: Documents,
        database: Database,
        journal: Journal,
        settlements: Settlements,
        control: Control,
        clock: Clock,
        secret: bytes,
        vault: Vault,
        threads: Threads,
        longest_s: float = MAX_REQUEST_S,
        budget: ByteBudget | None = None,
        max_bytes: int = MAX_BYTES,
        total_bytes: int = TOTAL_BYTES,
    ) -> None:
        self._documents = documents
        self._journal = journal
        self._settlements = settlements
        self._control = control
        self._clock = clock
        self._secret = secret
        self._vault = vault
        self._threads = threads
        self._max_duration_s = longest_s
        self._budget = budget
        self._max_bytes = max_bytes
        self._total_bytes = total_bytes
        self._database = database
        self._room = total_bytes // WORKER_PARTS
        # The part of this room that each organization may take; others than these may take `_room_each`.
        self._rooms: dict[str, int] = {}
        self._room_each = self._room // 2
        self._running: set[str] = set()
        self._rows = DocumentRows(database, clock)

    def answer(self, keyed: KeyedRequest, make: Callable[[], StoredReply], check: Check | None = None) -> StoredReply:
        """Return the response of `make`, or the stored response to the first request with this key.

        `check` raises when a response made for another request may no longer be returned to this caller.
        InvalidRequest (malformed key), IdempotencyKeyReused (a different request), IdempotencyInFlight, Interrupted
        (its worker died, or the response could not be stored), Unavailable. `make` turns its own errors into responses.
        """
        greenlet = current()
        greenlet.paid_work = self
        try:
            outcome = Job(self._attempt, keyed, make, check).result()
        finally:
            greenlet.paid_work = None
        if isinstance(outcome, StoredReply):
            return outcome
        try:
            raise outcome
        finally:
            del outcome  # its traceback refers to this frame

    def after_disconnect(self) -> float:
        """Let the connection of a caller that disconnected wait for the end of its request, so that the limits on
        connections count the request (runtime/disconnects.py)."""
        return self._max_duration_s

    def trim(self) -> None:
        """Measure the stored answers of the installation. Until the next call this worker adds at most a quarter of the
        remaining room. An organization may add less the more it stores already, so that it never takes more than it
        leaves to others. Nothing is deleted to make room, since a request might then run twice."""
        sql = "SELECT owner, sum(length(value)) FROM document WHERE kind = ? GROUP BY owner"
        sizes = dict(self._database.report(partial(self._database.fetch, sql, (KIND,))))
        free = max(0, self._total_bytes - int(sum(sizes.values())))
        self._room = free // WORKER_PARTS
        self._room_each = self._room // 2
        self._rooms = {owner: max(0, free - int(size)) // WORKER_PARTS // 2 for owner, size in sizes.items() if owner}

    def _attempt(
        self, keyed: KeyedRequest, make: Callable[[], StoredReply], check: Check | None
    ) -> StoredReply | Exception:
        """Return the response, or the error as a value, since gevent prints errors that end a greenlet. This runs in
        its own greenlet, so a claim is complete even when the caller's greenlet is killed."""
        try:
            claimed = self._claim(keyed, check)
            if isinstance(claimed, StoredReply):
                return claimed
            return self._make(claimed, make)
        except Exception as error:
            return error

    def _claim(self, keyed: KeyedRequest, check: Check | None) -> _Claim | StoredReply:
        claim = _Claim(
            self._digest(keyed.caller.key_id.encode(), keyed.route.encode(), _check(keyed.key).encode()),
            compute_if(keyed.size >= LARGE, self._digest, *keyed.content),
            keyed.request_id,
            not keeps_nothing(keyed.caller.rules),
            keyed.caller.organization_id,
        )
        value = _write(claim, "running", owner=self._control.epoch)
        for _ in range(MAX_ATTEMPTS):
            # Added before the document exists, so that no reader takes the document for an abandoned one.
            mine = claim.place not in self._running
            self._running.add(claim.place)
            try:
                stored = mine and self._documents.put_if_absent(KIND, claim.place, value, RECORD_TTL_S)
            except BaseException:
                self._running.discard(claim.place)
                raise
            if stored:
                return claim
            if mine:
                self._running.discard(claim.place)
            known = self._documents.get(KIND, claim.place)
            if known is not None:
                return self._read(claim, known, check)
            if not mine:
                break
        raise IdempotencyInFlight(_in_flight(), retry_after=1.0)

    def _read(self, claim: _Claim, value: bytes, check: Check | None) -> StoredReply:
        head, body = _split(value)
        if head["print"] != claim.print:
            raise IdempotencyKeyReused(
                f"This {HEADER} was used for another request; use a new key for each request.", param=HEADER
            )
        if head["state"] == "running":
            if self._is_running(claim.place, head["owner"]):
                raise IdempotencyInFlight(_in_flight(), retry_after=1.0)
            # The request may have finished while its owner was looked up.
            value = self._documents.get(KIND, claim.place) or value
            head, body = _split(value)
        if head["state"] != "kept" or not claim.keeps:
            reason = NOT_KEPT if head["state"] == "kept" else head.get("reason", CRASHED_REASON)
            raise Interrupted(f"{REASONS[reason]} {NOT_REPEATED}", headers=NO_RETRY)
        if check is not None:
            check(head["request"])
        answer = self._threads.run(self._unpack, body)
        return StoredReply(head["status"], [tuple(pair) for pair in head["headers"]], answer, replayed=True)

    def _unpack(self, body: bytes) -> bytes:
        """Return the bytes of a stored answer, which earlier releases stored compressed without encryption."""
        if is_sealed(body):
            return unpack(self._vault, body)
        return zlib.decompress(body)

    def _is_running(self, place: str, owner: int) -> bool:
        if place in self._running:
            return True
        return owner != self._control.epoch and owner in self._control.live_epochs()

    def _make(self, claim: _Claim, make: Callable[[], StoredReply]) -> StoredReply:
        self._settlements.call_counts.begin(claim.request_id)
        try:
            reply = make()
        except BaseException:
            self._mark_lost(claim, CRASHED_REASON)
            raise
        if isinstance(reply.body, bytes):
            self._end(claim, reply, reply.body)
            return reply
        spool = Spool(min(self._max_bytes, MAX_STREAM_BYTES), self._budget)
        spawn(self._record, claim, reply, reply.body, spool)
        return reply._replace(body=spool.read())

    def _record(self, claim: _Claim, reply: StoredReply, pieces: Iterator[bytes], spool: Spool) -> None:
        """Read a stream to its end, for its caller and for retries. A stream that is too large to store ends when its
        caller disconnects, as does the upstream call."""
        failure: Exception | None = None
        try:
            for piece in pieces:
                if not spool.write(piece):
                    break
            self._end(claim, reply, spool.contents, NO_ROOM if spool.cramped else TOO_LARGE)
        except Exception as error:
            self._mark_lost(claim, CRASHED_REASON)
            failure = error
        finally:
            self._running.discard(claim.place)
            close = getattr(pieces, "close", None)
            if close is not None:
                close()
            spool.end(failure)

    def _end(self, claim: _Claim, reply: StoredReply, body: bytes | None, lost: str = TOO_LARGE) -> None:
        """Store the answer (None: `lost` for this reason), unless it is an error and no upstream call was made."""
        calls, billed = self._settlements.call_counts.end(claim.request_id)
        if not billed and (reply.status in NOTHING_DONE or (reply.status >= FIRST_ERROR and not calls)):
            self._post(claim, self._rows.delete(KIND, claim.place))
        elif body is None or len(body) > self._max_bytes:
            self._store(claim, _write(claim, "lost", reason=lost))
        elif not claim.keeps:
            self._store(claim, _write(claim, "lost", reason=NOT_KEPT))
        else:
            record = _write(claim, "kept", status=reply.status, headers=reply.headers)
            value = record + self._threads.run(pack, self._vault, body)
            room = self._rooms.get(claim.owner, self._room_each)
            if len(value) > min(room, self._room):
                value = _write(claim, "lost", reason=NO_ROOM)
            self._room -= len(value)
            self._rooms[claim.owner] = room - len(value)
            self._store(claim, value)

    def _mark_lost(self, claim: _Claim, reason: str) -> None:
        self._settlements.call_counts.end(claim.request_id)
        self._store(claim, _write(claim, "lost", reason=reason))

    def _store(self, claim: _Claim, value: bytes) -> None:
        self._post(claim, self._rows.put(KIND, claim.place, value, RECORD_TTL_S, claim.owner))

    def _post(self, claim: _Claim, row: Row) -> None:
        """Write through the journal, which outlasts an outage of the store: a paid answer must not fail because of
        it."""
        try:
            self._journal.append(row).wait(ORIGINAL_WAIT_S)
        except GatewayError:
            pass  # the claim remains, so the request does not run again
        finally:
            self._running.discard(claim.place)

    def _digest(self, *parts: bytes) -> str:
        """Return a keyed hash of the parts, each with its length, so that no two sequences of parts collide."""
        summed = hmac.new(self._secret, LABEL, hashlib.sha256)
        for part in parts:
            summed.update(len(part).to_bytes(8, "big") + part)
        return summed.hexdigest()


def _check(key: str) -> str:
    if not 1 <= len(key) <= MAX_KEY_LENGTH or not key.isascii() or not key.isprintable():
        raise InvalidRequest(f"{HEADER} must have 1 to {MAX_KEY_LENGTH} printable ASCII characters.", param=HEADER)
    return key


def _in_flight() -> str:
    return f"The first request with this {HEADER} is still running; retry to get its answer."


def _write(claim: _Claim, state: str, **more: object) -> bytes:
    head = {"form": FORMAT_VERSION, "state": state, "print": claim.print, "request": claim.request_id, **more}
    return orjson.dumps(head) + b"\n"


def _split(value: bytes) -> tuple[dict[str, Any], bytes]:
    head, _, body = value.partition(b"\n")
    return orjson.loads(head), body
