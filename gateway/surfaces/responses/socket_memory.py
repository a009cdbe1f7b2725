"""Conversations that a WebSocket keeps for responses with `store: false`: the last one of each stream.

They are kept as JSON, a text for each turn: objects would take ten to thirty times the memory.
"""

from typing import Any

import orjson
from msgspec import Struct, field

from gateway.callers.access import keeps_nothing
from gateway.callers.authentication import Caller
from gateway.engine.stored_responses import ConversationLoad, PastTurn, StoredResponse, StoredResponses
from gateway.errors import NotFound, Overloaded
from gateway.neutral.json_weight import LARGE
from gateway.runtime.byte_budget import ByteBudget
from gateway.runtime.threads import compute_if

NOT_KEPT = "There is no response {!r} on this connection, and none is stored; send the whole conversation in input."
ECHOED_ID_LENGTH = 80  # characters of an id that an error repeats
TURN_BYTES = 128  # of the objects around the text of a turn


class KeptConversation(Struct, frozen=True):
    """A conversation that ends with the response `ident`: the JSON of each of its turns."""

    ident: str
    turns: tuple[bytes, ...]

    @property
    def size(self) -> int:
        return sum(map(len, self.turns)) + TURN_BYTES * len(self.turns)

    def load(self) -> StoredResponse:
        """Return the decoded conversation."""
        *earlier, last = [PastTurn(*orjson.loads(text)) for text in self.turns]
        return StoredResponse({"id": last.ident, "output": last.output}, earlier, last.items, self.size)


class SocketMemory(Struct):
    """The kept conversations of one socket, by stream. Their bytes count against the `budget` of the `owner`, an
    organization; a conversation for which it has no room is not kept."""

    budget: ByteBudget
    owner: str
    _kept: dict[str, KeptConversation] = field(default_factory=dict)
    _closed: bool = False  # a turn that is read on after a disconnect may still end

    def find(self, ident: str) -> KeptConversation | None:
        """Return the kept conversation that ends with the response `ident`."""
        return next((kept for kept in self._kept.values() if kept.ident == ident), None)

    def keep(self, stream: str, conversation: KeptConversation) -> None:
        """Keep a conversation in place of the stream's last one."""
        if self._closed:
            return
        before = self._kept.pop(stream, None)
        if before is not None:
            self.budget.grow(self.owner, -before.size)
        try:
            self.budget.grow(self.owner, conversation.size)
        except Overloaded:
            return
        self._kept[stream] = conversation

    def close(self) -> None:
        """Release everything, and keep nothing more."""
        self._closed = True
        for kept in self._kept.values():
            self.budget.grow(self.owner, -kept.size)
        self._kept.clear()


class TurnMemory:
    """The responses that one turn of a `stream` can continue: those that the socket keeps, then stored ones."""

    def __init__(self, socket: SocketMemory, stream: str, stored: StoredResponses) -> None:
        self._socket = socket
        self._stream = stream
        self._stored = stored
        self._found: dict[str, KeptConversation | StoredResponse] = {}

    def find(
        self, caller: Caller, ident: str, load: ConversationLoad, param: str = "response_id", code: str = "not_found"
    ) -> StoredResponse:
        """Return the response with that id, with its conversation. Errors as of `StoredResponses.find`; NotFound also
        under zero data retention, so that clients send the whole conversation after a reconnect."""
        kept = self._socket.find(ident)
        if kept is not None:
            self._stored.check_size(kept.size, param)
            self._found[ident] = kept
            with load.begin(0):
                load.weigh_texts(kept.turns)
                return compute_if(kept.size > LARGE, kept.load)
        if keeps_nothing(caller.rules):
            raise NotFound(NOT_KEPT.format(ident[:ECHOED_ID_LENGTH]), param=param, code=code)
        stored = self._stored.find(caller, ident, load, param, code)
        self._found[ident] = stored
        return stored

    def check_size(self, size: int, param: str) -> None:
        """InvalidRequest when a request would continue more bytes than allowed."""
        self._stored.check_size(size, param)

    def keep(self, response: dict[str, Any], items: list[dict[str, Any]], previous: str, size: int) -> None:
        """Keep a response that is not stored, as the successor of `previous`; `size` is that of its request."""
        before = self._found.get(previous)
        turn = PastTurn(response["id"], items, response["output"])
        if isinstance(before, StoredResponse):
            size += before.size
        turns = compute_if(size > LARGE, _kept_turns, before, turn)
        if turns:
            self._socket.keep(self._stream, KeptConversation(turn.ident, turns))


def _kept_turns(before: KeptConversation | StoredResponse | None, turn: PastTurn) -> tuple[bytes, ...]:
    """Return the JSON of the turns up to `turn`, none if it has numbers that JSON cannot keep."""
    try:
        if isinstance(before, StoredResponse):
            return tuple(_text_of(each) for each in (*before.turns, turn))
        return (*(before.turns if before else ()), _text_of(turn))
    except orjson.JSONEncodeError:
        return ()


def _text_of(turn: PastTurn) -> bytes:
    """Return the JSON of a turn. It is a copy, because the serializer reserves up to eight times the size."""
    return bytes(memoryview(orjson.dumps(list(turn))))
