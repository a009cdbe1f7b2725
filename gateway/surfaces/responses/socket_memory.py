"""Conversations that a WebSocket keeps for responses with `store: false`: the last one of each stream."""

import orjson
from msgspec import Struct, field

from gateway.accounts.access import keeps_nothing
from gateway.accounts.authentication import Caller
from gateway.engine.stored_responses import StoredResponse, StoredResponses
from gateway.errors import NotFound, Overloaded
from gateway.runtime.byte_budget import ByteBudget

NOT_KEPT = "There is no response {!r} on this connection, and none is stored; send the whole conversation in input."
ECHOED_ID_LENGTH = 80  # characters of an id that an error repeats


class SocketMemory(Struct):
    """The kept conversations of one socket, by stream. Their bytes count against the `budget` of the `owner`, an
    organization; a conversation for which it has no room is not kept."""

    budget: ByteBudget
    owner: str
    _kept: dict[str, StoredResponse] = field(default_factory=dict)
    _closed: bool = False  # a turn that is read on after a disconnect may still end

    def find(self, ident: str) -> StoredResponse | None:
        """Return the kept conversation that ends with the response `ident`."""
        return next((kept for kept in self._kept.values() if kept.response["id"] == ident), None)

    def keep(self, stream: str, conversation: StoredResponse) -> None:
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
        self._found: dict[str, StoredResponse] = {}

    def find(
        self,
        caller: Caller,
        ident: str,
        param: str = "response_id",
        code: str = "not_found",
        *,
        whole: bool = True,
    ) -> StoredResponse:
        """Return the response with that id, with its conversation. Errors as of `StoredResponses.find`; NotFound also
        under zero data retention, so that clients send the whole conversation after a reconnect."""
        kept = self._socket.find(ident)
        if kept is not None:
            self._stored.check_size(kept.size, param)
        elif keeps_nothing(caller.rules):
            raise NotFound(NOT_KEPT.format(ident[:ECHOED_ID_LENGTH]), param=param, code=code)
        else:
            kept = self._stored.find(caller, ident, param, code, whole=whole)
        self._found[ident] = kept
        return kept

    def check_size(self, size: int, param: str) -> None:
        """InvalidRequest when a request would continue more bytes than allowed."""
        self._stored.check_size(size, param)

    def keep(self, response: dict, items: list[dict], previous: str, size: int) -> None:
        """Keep a response that is not stored, as the successor of `previous`; `size` is that of its request."""
        before = self._found.get(previous)
        if before is None:
            earlier = []
        else:
            earlier = before.turns
            size += before.size
        ending = {"id": response["id"], "output": response["output"]}
        size += len(orjson.dumps(response["output"]))
        self._socket.keep(self._stream, StoredResponse(ending, earlier, items, size))
