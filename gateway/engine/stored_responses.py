"""Stored responses: conversations that a caller continues by the id of the last response.

A turn stores its new content and refers to the previous turn. Large parts, such as an image or the list of tools, are
stored once per organization however often they are sent. Everything is compressed and encrypted, off the event loop.
"""

import hmac
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from typing import Any, NamedTuple

import msgspec
import orjson
from msgspec import Struct

from gateway.callers.access import keeps_nothing
from gateway.callers.authentication import Caller, response_scope
from gateway.callers.vault import Vault
from gateway.configuration.settings import Responses
from gateway.errors import InvalidRequest, NotFound, Overloaded, Unavailable
from gateway.metering.payload_table import pack, unpack
from gateway.neutral.json_weight import LARGE, weigh
from gateway.neutral.long_json import LONG_BYTES, dumps, dumps_in_pieces, loads_long
from gateway.runtime.byte_budget import ByteBudget
from gateway.runtime.loop_turns import ShouldContinue, always
from gateway.runtime.threads import Slots, Threads, compute, compute_if
from gateway.store.conversation_turns import (
    DIGEST_BYTES,
    Link,
    PiecesGone,
    PreviousGone,
    StorageFull,
    StoredTurn,
    Turns,
)
from gateway.store.documents import Documents
from gateway.transport.answer_room import KeptBytes

# Turns of owners: large work of one owner is done one piece at a time.

RETRY_AFTER_S = 1.0


class OwnerTurns:
    """Lets each owner do one piece of work at a time; others of the same owner wait for at most `wait_s`."""

    def __init__(self, wait_s: float) -> None:
        self._wait_s = wait_s
        self._slots: dict[str, Slots] = {}
        self._users: dict[str, int] = {}  # those that hold or wait for a slot

    @contextmanager
    def turn(self, owner: str) -> Iterator[None]:
        """Wait for the turn of `owner` and take it. Overloaded if it does not come in time."""
        slot = self._slots.setdefault(owner, Slots(1))
        self._users[owner] = self._users.get(owner, 0) + 1
        try:
            if not slot.take(self._wait_s):
                text = "Your organization is loading too many long conversations; try again."
                raise Overloaded(text, retry_after=RETRY_AFTER_S)
            try:
                yield
            finally:
                slot.give()
        finally:
            self._users[owner] -= 1
            if not self._users[owner]:
                del self._users[owner]
                del self._slots[owner]


# Deduplicates large parts of JSON values: splits a value into text with references, and pieces that are stored once.
#
# The serialized bytes are cut, so nothing that a caller writes can look like a reference. Cuts depend only on sizes,
# from the front: a conversation that is sent again with an addition has the same pieces as before.

MIN_PART_BYTES = 4096  # bytes; smaller parts are not worth a row
MAX_PARTS = 256  # per value; the rest stays in the text
MAX_PART_DEPTH = 6  # levels of {"items": [{"content": [{"image_url": "…"}]}]} plus one


def split(value: Any, digest: Callable[[bytes], bytes]) -> tuple[list[bytes], dict[bytes, bytes]]:
    """Return the text of `value` as literals alternating with digests of pieces, and the pieces by digest."""
    cutter = _Cutter(digest)
    cutter.add(value, dumps_in_pieces(value), MAX_PART_DEPTH)
    return cutter.close(), cutter.pieces


def pack_segments(segments: Sequence[bytes]) -> bytes:
    return msgspec.msgpack.encode(segments)


def unpack_segments(packed: bytes) -> list[bytes]:
    return msgspec.msgpack.decode(packed, type=list[bytes])


def digests_of(segments: Sequence[bytes]) -> Sequence[bytes]:
    return segments[1::2]


def join(segments: Sequence[bytes], pieces: Mapping[bytes, bytes]) -> bytes:
    """Return the JSON of the value that was split. KeyError when a piece is missing."""
    return b"".join([pieces[segment] if place % 2 else segment for place, segment in enumerate(segments)])


class _Cutter:
    def __init__(self, digest: Callable[[bytes], bytes]) -> None:
        self.pieces: dict[bytes, bytes] = {}
        self._digest = digest
        self._segments: list[bytes] = []
        self._literal: list[bytes] = []

    def add(self, value: Any, data: bytes, depth: int) -> None:
        """Add `value`, of which `data` is the JSON text."""
        if len(data) < MIN_PART_BYTES or len(self.pieces) >= MAX_PARTS:
            self._literal.append(data)
        elif depth and isinstance(value, dict):
            self._add_members(value, depth, len(data) >= LONG_BYTES)
        elif depth and isinstance(value, list):
            self._add_items(value, depth, len(data) >= LONG_BYTES)
        else:
            self._set_apart(data)

    def close(self) -> list[bytes]:
        return [*self._segments, b"".join(self._literal)]

    def _add_members(self, value: dict[str, Any], depth: int, long: bool) -> None:
        before = b"{"
        for name, inner in value.items():
            self._literal += (before, orjson.dumps(name), b":")
            self.add(inner, dumps(inner, long), depth - 1)
            before = b","
        self._literal.append(b"}")

    def _add_items(self, value: list[Any], depth: int, long: bool) -> None:
        """Add items; consecutive small items form a piece as soon as they are large enough together."""
        self._literal.append(b"[")
        run: list[bytes] = []
        size = 0
        for place, inner in enumerate(value):
            data = dumps(inner, long)
            if place:
                run.append(b",")
            if len(data) >= MIN_PART_BYTES:
                self._literal += run
                run = []
                size = 0
                self.add(inner, data, depth - 1)
                continue
            run.append(data)
            size += len(data) + 1
            if size >= MIN_PART_BYTES and len(self.pieces) < MAX_PARTS:
                self._set_apart(b"".join(run))
                run = []
                size = 0
        self._literal += run
        self._literal.append(b"]")

    def _set_apart(self, data: bytes) -> None:
        digest = self._digest(data)
        self.pieces[digest] = data
        self._segments += (b"".join(self._literal), digest)
        self._literal = []


# The checks before a stored conversation is loaded, and the memory that it takes.


def no_check() -> None:
    """Check nothing: the conversation is only read."""


class ConversationLoad:
    """The load of what one request continues. The bytes count against the budgets of the caller's organization and of
    the worker as long as this object exists.

    `check` raises what would refuse the request whatever it continues: it is called once, before the first conversation
    of more than LARGE bytes is read.
    """

    def __init__(
        self, budget: ByteBudget | None, turns: OwnerTurns, owner: str, check: Callable[[], object] = no_check
    ) -> None:
        self._kept = KeptBytes(budget)
        self._turns = turns
        self._owner = owner
        self._check: Callable[[], object] = check

    def begin(self, size: int) -> AbstractContextManager[None]:
        """Count the `size` bytes of a conversation's texts, and wait until the organization loads no other. Overloaded
        if there is no room, and the errors of `check`."""
        if size > LARGE:
            check = self._check
            self._check = no_check
            check()
        self._kept.grow(size)
        return self._turns.turn(self._owner)

    def weigh_texts(self, texts: Iterable[bytes], counted: int = 0) -> None:
        """Count what is decoded from these texts, of which `counted` bytes are counted. Overloaded."""
        self._kept.grow(sum(map(weigh, texts)) - counted)


KIND = "stored_response"  # kind of documents with whole responses in zlib, as earlier releases stored them
RETENTION_S = 30 * 86_400.0
LABEL = b"stored-response\0"
MAX_TURNS = 10_000  # turns of one conversation
MAX_ATTEMPTS = 3
ECHOED_ID_LENGTH = 80  # characters of an id that an error repeats
MB = 1 << 20
LOAD_WAIT_S = 30.0  # how long a request waits until its organization loads no other long conversation
Run = Callable[..., Any]
Item = dict[str, Any]


class PastTurn(NamedTuple):
    """An earlier turn: the id of its response, its input as sent, and its output."""

    ident: str
    items: list[Item]
    output: list[Item]


class StoredResponse(Struct, frozen=True):
    """A response (JSON object with `output`), the turns before it, and its own input as sent. `size`: total bytes once
    it is stored."""

    response: dict[str, Any]
    earlier: list[PastTurn]
    items: list[Item]
    size: int = 0

    @property
    def turns(self) -> list[PastTurn]:
        """The whole conversation so far."""
        return [*self.earlier, PastTurn(self.response["id"], self.items, self.response["output"])]


class StoredResponses:
    """The responses of all tenants. A caller can read those of the project; a customer's key only its own."""

    def __init__(
        self,
        turns: Turns,
        documents: Documents,
        vault: Vault,
        secret: bytes,
        threads: Threads,
        settings: Responses,
        budget: ByteBudget | None = None,
    ) -> None:
        self._turns = turns
        self._documents = documents
        self._vault = vault
        self._secret = secret
        self._threads = threads
        self._budget = budget
        self._loading = OwnerTurns(LOAD_WAIT_S)
        self._max_bytes = settings.max_organization_mb * MB
        self._max_conversation = settings.max_conversation_mb * MB

    def check_quota(self, caller: Caller) -> None:
        """InvalidRequest when the caller's organization has used up its storage."""
        if not self._max_bytes or self._turns.total(caller.organization_id) < self._max_bytes:
            return
        raise InvalidRequest(
            f"This organization's stored responses fill its {self._max_bytes // MB} MB (responses.max_organization_mb "
            "of the gateway). Send store: false, or delete stored responses (DELETE /v1/responses/{id}).",
            param="store",
            code="response_storage_full",
        )

    def keep(self, caller: Caller, stored: StoredResponse, previous: str = "") -> None:
        """Store a response under its id, as the successor of the response `previous`. InvalidRequest when there is no
        room, Unavailable when the store is down."""
        organization = caller.organization_id
        for _ in range(MAX_ATTEMPTS):
            try:
                self._add(organization, scope_of(caller), stored, previous)
            except PreviousGone:
                previous = ""  # it was deleted while this turn was answered: store the whole conversation here
            except PiecesGone:
                continue
            except StorageFull:
                raise InvalidRequest(
                    f"The response does not fit into the remaining part of {self._max_bytes // MB} MB.",
                    code="response_storage_full",
                ) from None
            else:
                return
        raise Unavailable("The response could not be stored.")

    def load_for(self, caller: Caller, check: Callable[[], object] = no_check) -> ConversationLoad:
        """Return the load of one request, which must exist as long as what it finds. `check` is called before a
        long conversation is read."""
        return ConversationLoad(self._budget, self._loading, caller.organization_id, check)

    def find(
        self,
        caller: Caller,
        ident: str,
        load: ConversationLoad,
        param: str = "response_id",
        code: str = "not_found",
        *,
        whole: bool = True,
    ) -> StoredResponse:
        """Return the response with that id, with its conversation if `whole`.

        NotFound when it does not exist, has expired or belongs to another caller; InvalidRequest when the conversation
        is too long to continue; the errors of `load`.
        """
        if keeps_nothing(caller.rules):
            raise storage_conflict(param)
        stored = self._find(caller, ident, load, param, whole)
        if stored is None:
            raise NotFound(
                f"There is no stored response {ident[:ECHOED_ID_LENGTH]!r}: "
                "it was not stored, expired, or was deleted.",
                param=param,
                code=code,
            )
        return stored

    def _find(
        self, caller: Caller, ident: str, load: ConversationLoad, param: str, whole: bool
    ) -> StoredResponse | None:
        link = self._turns.find(ident)
        if link is None:
            return self._find_old(caller, ident, load)
        if link.scope != scope_of(caller):
            return None
        if whole:
            self._check_length(link, param)
            size = link.chain_bytes
        else:
            size = self._turns.own_bytes(ident)
        with load.begin(size):
            return self._read(link, load, size, whole)

    def delete(self, caller: Caller, ident: str) -> None:
        """Delete a response. NotFound as in `find`; responses that continue it keep the conversation."""
        link = self._turns.find(ident)
        if link is None:
            known = self._find_old(caller, ident, self.load_for(caller)) is not None
        else:
            known = link.scope == scope_of(caller)
        if not known:
            raise NotFound(f"There is no stored response {ident[:ECHOED_ID_LENGTH]!r}.", param="response_id")
        self._turns.end(ident)
        self._documents.delete(KIND, ident)

    def forget(self, ident: str) -> None:
        """Delete a response that its worker stored after a caller had deleted it. Unavailable."""
        self._turns.end(ident)

    def purge(self, should_continue: ShouldContinue = always) -> int:
        """Remove expired turns; returns how many."""
        return self._turns.sweep(should_continue)

    def _check_length(self, link: Link, param: str) -> None:
        if link.turns > MAX_TURNS:
            raise self._too_long(param)
        self.check_size(link.chain_bytes, param)

    def check_size(self, size: int, param: str) -> None:
        """InvalidRequest when a request would continue more stored bytes than allowed."""
        if size > self._max_conversation > 0:
            raise self._too_long(param)

    def _too_long(self, param: str) -> InvalidRequest:
        return InvalidRequest(
            f"The stored conversation is over {MAX_TURNS:,} turns or {self._max_conversation // MB} MB "
            "(responses.max_conversation_mb of the gateway); start a new one, or compact it.",
            param=param,
            code="conversation_too_long",
        )

    def _add(self, organization: str, scope: str, stored: StoredResponse, previous: str) -> None:
        segments, parts, raw_bytes = self._threads.run(self._split, organization, stored, not previous)
        missing = parts.keys() - self._turns.known(organization, tuple(parts))
        body, values = self._threads.run(self._pack, segments, {name: parts[name] for name in missing})
        turn = StoredTurn(stored.response["id"], organization, scope, previous, tuple(parts), body, raw_bytes)
        self._turns.add(turn, values, RETENTION_S, self._max_bytes)

    def _split(
        self, organization: str, stored: StoredResponse, alone: bool
    ) -> tuple[list[bytes], dict[bytes, bytes], int]:
        """Return the text, pieces and size of a turn; a turn without a predecessor includes the earlier turns."""
        earlier = [list(turn) for turn in stored.earlier] if alone else []
        body = {"response": stored.response, "items": stored.items, "earlier": earlier}
        key = hmac.digest(self._secret, LABEL + organization.encode(), "sha256")
        segments, parts = split(body, partial(_digest, key))
        texts = sum(map(len, segments)) - DIGEST_BYTES * (len(segments) // 2)
        return segments, parts, texts + sum(len(parts[name]) for name in digests_of(segments))

    def _pack(self, segments: list[bytes], values: dict[bytes, bytes]) -> tuple[bytes, dict[bytes, bytes]]:
        packed = {name: pack(self._vault, value) for name, value in values.items()}
        return pack(self._vault, pack_segments(segments)), packed

    def _read(self, link: Link, load: ConversationLoad, size: int, whole: bool) -> StoredResponse | None:
        """Return a turn, of which `size` bytes are counted. Long ones take their owner's turn in computing."""
        rows = self._turns.chain(link.ident, MAX_TURNS if whole else 1)
        if not rows:
            return None
        if size > LARGE:
            run: Run = compute
        else:
            run = self._threads.run
        segments = run(self._open_texts, rows)
        digests = {digest for turn in segments for digest in digests_of(turn)}
        values = self._turns.values(link.organization, tuple(digests))
        try:
            texts = run(self._join, segments, values)
        except KeyError:
            return None  # it was removed while it was being read
        load.weigh_texts(texts, size)
        stored: StoredResponse = run(_decode, texts, link.chain_bytes)
        return stored

    def _open_texts(self, rows: list[tuple[str, bytes]]) -> list[list[bytes]]:
        return [unpack_segments(unpack(self._vault, body)) for _, body in rows]

    def _join(self, segments: list[list[bytes]], values: dict[bytes, bytes]) -> list[bytes]:
        """Return the JSON of each turn."""
        opened = {name: unpack(self._vault, value) for name, value in values.items()}
        return [join(turn, opened) for turn in segments]

    def _find_old(self, caller: Caller, ident: str, load: ConversationLoad) -> StoredResponse | None:
        packed = self._documents.get(KIND, ident)
        if packed is None:
            return None
        with load.begin(len(packed)):
            text = self._threads.run(zlib.decompress, packed)
            load.weigh_texts([text])
            body = compute_if(len(text) > LARGE, loads_long, text)
        if body["scope"] != scope_of(caller):
            return None
        return StoredResponse(body["response"], [PastTurn(ident, body["history"], [])], body["items"], MB)


def _decode(texts: list[bytes], size: int) -> StoredResponse:
    """Return the conversation of these turns."""
    *before, last = map(loads_long, texts)
    earlier: list[PastTurn] = []
    for body in before:
        earlier += [PastTurn(*turn) for turn in body["earlier"]]
        earlier.append(PastTurn(body["response"]["id"], body["items"], body["response"]["output"]))
    earlier += [PastTurn(*turn) for turn in last["earlier"]]
    return StoredResponse(last["response"], earlier, last["items"], size)


def _digest(key: bytes, data: bytes) -> bytes:
    return hmac.digest(key, data, "sha256")[:DIGEST_BYTES]


def storage_conflict(param: str) -> InvalidRequest:
    """Return the error for storing or finding a response of an organization under zero data retention."""
    return InvalidRequest(
        "This organization is under zero data retention, so no response is stored: send the whole conversation in "
        'input, with store: false or without store; include: ["reasoning.encrypted_content"] returns the reasoning.',
        param=param,
        code="zdr_storage_conflict",
    )


def scope_of(caller: Caller) -> str:
    return response_scope(caller.project_id, caller.key_id, caller.key_kind)
