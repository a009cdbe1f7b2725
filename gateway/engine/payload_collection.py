"""Collects the payload of one request (body and answer) if its project retains payloads."""

import logging
from typing import Any, Protocol
from urllib.parse import urlsplit

import orjson

from gateway.billing.context import RequestContext
from gateway.billing.retained_payload import HeldEntry
from gateway.callers.credential_sources import OWN_SOURCE
from gateway.callers.vault import Vault
from gateway.clock import DAY_US
from gateway.errors import GatewayError
from gateway.metering import payload_table
from gateway.metering.payload_table import ANSWER_CUT, RAW_CUT, SENT_CUT, STREAMED, PayloadRow
from gateway.metering.usage_table import raw_id
from gateway.providers.identities.upstream_identity import secret_of
from gateway.providers.protocol import Call, Target
from gateway.runtime.large_files import MessageBody
from gateway.runtime.threads import Job, spawn
from gateway.store.journal import Row, Ticket

# Captures the exchange with a provider, byte for byte but without secrets, for x-debug and retained payloads.

REDACTED = b"[secret]"
MIN_SECRET_LENGTH = 20  # of an AWS access key: its id


class WireCapture:
    """Listens to one upstream call and keeps at most `room` bytes of its two bodies together.

    Headers and the query of a URL contain credentials, so they are never kept. The credential is also removed from the
    bodies, because some providers repeat it in error messages. For calls with the platform's credential the URL is not
    kept, because the addresses of an operator's upstreams are private.
    """

    def __init__(self, target: Target, room: int) -> None:
        self._target = target
        self._room = max(0, room)
        self._method = self._url = ""
        self._status = 0
        self._sent = b""
        self._received: list[bytes] = []
        self._secrets: set[str] = set()
        self.size = 0
        self.cut = False

    def sending(self, call: Call) -> None:
        """Note the secrets of the call, which is left unchanged. A workload identity may have others at its end."""
        self._note_secrets()

    def sent(self, method: str, url: str, body: bytes | MessageBody) -> None:
        """Keep the method, URL and body; a body in pieces contains the caller's uploads and is not kept."""
        self._method = method
        if self._target.credential.source == OWN_SOURCE:
            parts = urlsplit(url)
            self._url = f"{parts.scheme}://{parts.netloc}{parts.path}"
        self._sent = self._take(body) if isinstance(body, bytes) else b""

    def answered(self, status: int) -> None:
        self._status = status

    def received(self, data: bytes) -> None:
        if data:
            self._received.append(self._take(data))

    def show(self) -> dict[str, Any]:
        """Return the exchange as JSON; bytes that are not UTF-8 are replaced."""
        return {
            "provider": self._target.provider.id,
            "model": self._target.mapping.external_id,
            "method": self._method,
            "url": self._url,
            "request": self._clean(self._sent),
            "status": self._status,
            "response": self._clean(b"".join(self._received)),
            "truncated": self.cut,
        }

    def _take(self, data: bytes) -> bytes:
        taken = data[: self._room - self.size]
        self.size += len(taken)
        self.cut = self.cut or len(taken) < len(data)
        return taken

    def _note_secrets(self) -> None:
        self._secrets.update(_parts_of(secret_of(self._target.credential)))

    def _clean(self, data: bytes) -> str:
        self._note_secrets()
        for secret in sorted(self._secrets, key=len, reverse=True):
            data = data.replace(secret.encode(), REDACTED)
            if self.cut:
                data = _drop_beginning(data, secret.encode())
        return data.decode("utf-8", "replace")


def _parts_of(secret: str) -> list[str]:
    """Return the texts to remove: the credential, and the parts of a signing key, of which AWS quotes the token of the
    session in errors about signatures."""
    if not secret:
        return []
    parts = [part for part in secret.split(":") if len(part) >= MIN_SECRET_LENGTH]
    if secret.startswith("{"):
        parts = []
    return [secret, *parts]


def _drop_beginning(data: bytes, secret: bytes) -> bytes:
    """Return `data` without a beginning of the secret that truncation left at its end."""
    for size in range(min(len(secret) - 1, len(data)), 3, -1):
        if data.endswith(secret[:size]):
            return data[:-size] + REDACTED
    return data


# The longest part of each body that is stored; longer bodies are truncated and marked.
MAX_BODY_BYTES = 4 << 20
# The same limit for all upstream exchanges of a request together (x-debug).
RAW_BYTES = 1 << 20

# The same limit where a payload pays nothing and its organization's room for free payloads is used up.
HEAD_BYTES = 4 << 10

# Above this size, packing runs off the event loop.
INLINE_BYTES = 32 << 10
FIRST_ERROR = 400

log = logging.getLogger("gateway")


class PayloadWriter(Protocol):
    """Writes payloads: the Retention of a worker."""

    wait_s: float

    def pack(self, payload: "Payload", native: bool) -> Row | None: ...
    def append(self, row: Row) -> Ticket: ...
    def posted(self, ticket: Ticket, row: Row) -> None: ...
    def room_for_free(self, organization_id: str, size: int, whole: bool) -> int: ...


class Payload:
    """One request's payload, from the admission of its caller to the end of its answer.

    The surface adds the answer and finishes; the settlement holds its usage row back until then. The later of the two
    writes both rows as one entry. A request that is refused, or fails at every provider, is written without a
    settlement and a fee, and shortened to what its organization may store for free. An answer that was made for another
    request (`forget`) is not written, since it is in that request's log.
    """

    __slots__ = (
        *("sent", "sent_bytes", "fee_nusd", "kept_bytes", "_owner", "_context", "_path", "_streamed"),
        *("_requested_model", "_pieces", "_size", "_captures", "_entry", "_open", "_ended", "_done"),
        *("_served", "_status", "_admitted", "_raw_cut"),
    )

    def __init__(self, owner: PayloadWriter, context: RequestContext, path: str, sent: bytes) -> None:
        self._owner = owner
        self._context = context
        self._path = path
        self.sent = sent[:MAX_BODY_BYTES]
        self.sent_bytes = len(sent)
        self.fee_nusd = self.kept_bytes = self._status = self._size = 0
        self._requested_model = self._served = ""
        self._pieces: list[bytes] = []
        self._captures: list[WireCapture] = []
        self._entry: HeldEntry | None = None
        self._streamed = self._open = self._ended = self._done = self._admitted = self._raw_cut = False

    @property
    def stored(self) -> bool:
        return True

    # Called by the engine.

    def note_request(self, model: str, streamed: bool) -> None:
        """Record the model as the caller wrote it, and whether the answer is streamed."""
        self._requested_model = model
        self._streamed = streamed

    def capture_call(self, target: Target) -> WireCapture | None:
        """Return a listener for an upstream call, None unless the caller requested x-debug."""
        if not self._context.options.debug:
            return None
        self._captures.append(WireCapture(target, RAW_BYTES - sum(capture.size for capture in self._captures)))
        return self._captures[-1]

    def forget(self) -> None:
        """Store nothing: the answer was made for another request."""
        self._done = True

    def open(self) -> None:
        """Record that a settlement began."""
        self._open = self._admitted = True

    def hold(self, entry: HeldEntry) -> Ticket | None:
        """Hold an entry until the answer is complete. Return the ticket to wait for when the surface has already
        finished."""
        self._entry = entry
        self._served = entry.served
        self.fee_nusd = entry.fee_nusd
        if self._ended:
            return self._write()
        return None

    def close(self) -> None:
        """Record that the settlement ended."""
        self._open = False
        if self._ended:
            self._write_alone()

    # Called by the surface.

    def send_instead(self, sent: bytes) -> None:
        """Replace the stored body by one without the parts that must not be stored."""
        self.sent = sent[:MAX_BODY_BYTES]
        self.sent_bytes = len(sent)

    @property
    def held(self) -> bool:
        """Whether a usage row waits for the end of the answer."""
        return self._entry is not None

    def add(self, piece: bytes) -> None:
        """Add a piece of the answer that is about to be sent."""
        self._size += len(piece)
        room = MAX_BODY_BYTES - self.kept_bytes
        if room > 0:
            self._pieces.append(piece[:room])
            self.kept_bytes += min(room, len(piece))

    def finish(self, status: int) -> None:
        """End the answer before its last bytes are sent, and wait until it is durable where required. Unavailable when
        that takes too long."""
        ticket = self.end(status)
        if ticket is not None:
            ticket.wait(self._owner.wait_s)

    def end(self, status: int) -> Ticket | None:
        """End the answer. Idempotent; returns the ticket to wait for. Unavailable from the journal."""
        if self._ended:
            return None
        self._ended = True
        self._status = status
        if self._entry is not None:
            return self._write()
        if not self._open:
            self._write_alone()
        return None

    # Writing, once.

    def write(self, vault: Vault) -> PayloadRow:
        """Return the packed row; may run in a native thread."""
        context = self._context
        caller = self._context.caller
        raw, raw_cut = self._read_captures()
        flags = (STREAMED if self._streamed else 0) | (SENT_CUT if self.sent_bytes > len(self.sent) else 0)
        flags |= (ANSWER_CUT if self._size > self.kept_bytes else 0) | (RAW_CUT if raw_cut else 0)
        return PayloadRow(
            bytes.fromhex(context.request_id),
            raw_id(caller.organization_id),
            raw_id(caller.project_id),
            raw_id(caller.key_id),
            raw_id(caller.member_id),
            context.at_us,
            context.at_us + caller.retention_days * DAY_US,
            context.operation,
            _clean(self._path)[:255],
            _clean(self._requested_model)[:255],
            self._served[:340],
            self._status,
            flags,
            self.sent_bytes,
            self._size,
            payload_table.pack(vault, self.sent),
            payload_table.pack(vault, b"".join(self._pieces)),
            payload_table.pack(vault, orjson.dumps(raw)) if raw else None,
        )

    def _read_captures(self) -> tuple[list[dict[str, Any]], bool]:
        return [capture.show() for capture in self._captures], any(
            (self._raw_cut, *(capture.cut for capture in self._captures))
        )

    @property
    def _is_large(self) -> bool:
        return len(self.sent) + self.kept_bytes + sum(capture.size for capture in self._captures) > INLINE_BYTES

    def _write(self) -> Ticket | None:
        entry = self._entry
        self._entry = None
        if entry is None:
            return None
        # Packing runs in a separate job, so that a disconnecting caller cannot cancel the settlement.
        ticket = Job(self._post_both, entry).result() if self._is_large else self._post_both(entry)
        if isinstance(ticket, GatewayError):
            raise ticket
        if entry.awaited:
            return ticket
        return None

    def _post_both(self, entry: HeldEntry) -> Ticket | GatewayError:
        """Post both rows; returns an error as a value, since gevent prints errors that end a greenlet."""
        paid = entry.fee_nusd or (entry.record.cost_nusd and not entry.record.byok)
        row = None if self._done or not (paid or self._fits_for_free()) else self._pack()
        self._done = True
        if row is None:
            self.fee_nusd = 0
        try:
            ticket = entry.post(row)
        except GatewayError as error:
            return error
        if row is not None:
            self._owner.posted(ticket, row)
        return ticket

    def _write_alone(self) -> None:
        """Write a failed request without settlement and cost. Never waits and never raises."""
        if self._done:
            return
        self._done = True
        if not self._fits_for_free():
            return
        if self._is_large:
            spawn(self._post_alone)
        else:
            self._post_alone()

    def _post_alone(self) -> None:
        row = self._pack()
        if row is None:
            return
        try:
            self._owner.posted(self._owner.append(row), row)
        except GatewayError as error:
            log.warning("the payload of a failed request was not stored: %s", error.message)

    def _fits_for_free(self) -> bool:
        """Shorten the payload to what its organization may store without paying; return whether that is anything."""
        whole = self._admitted or 0 < self._status < FIRST_ERROR
        size = len(self.sent) + self.kept_bytes + sum(capture.size for capture in self._captures)
        room = self._owner.room_for_free(self._context.caller.organization_id, size, whole)
        if room < max(len(self.sent), self.kept_bytes) or (room < MAX_BODY_BYTES and self._captures):
            self.sent = self.sent[:room]
            self._pieces = [b"".join(self._pieces)[:room]]
            self.kept_bytes = len(self._pieces[0])
            self._raw_cut = bool(self._captures)
            self._captures.clear()
        return room > 0

    def _pack(self) -> Row | None:
        try:
            return self._owner.pack(self, native=self._is_large)
        except Exception:  # a payload that cannot be stored must not prevent its request's settlement
            log.exception("a payload could not be packed")
            return None


def _clean(text: str) -> str:
    """Return the text as every store accepts it: without NUL and lone surrogates."""
    return text.replace("\0", "").encode("utf-8", "replace").decode()
