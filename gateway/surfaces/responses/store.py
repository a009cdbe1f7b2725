"""Stored responses on the wire: the responses and items that a request continues or refers to, and the list of a
response's input."""

import re
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, Protocol

import orjson

from gateway.callers.authentication import Caller
from gateway.dialects import responses_vocabulary as dialect
from gateway.engine.stored_responses import ConversationLoad, PastTurn, StoredResponse
from gateway.errors import NotFound
from gateway.runtime.threads import compute_if
from gateway.surfaces.bodies.validation_errors import invalid
from gateway.surfaces.responses import items as shapes
from gateway.surfaces.responses import schema
from gateway.surfaces.responses.opaque_tokens import MARKS
from gateway.surfaces.responses.response_answers import ResponseItems
from gateway.surfaces.web.answer_structs import ModelApiAnswer

ID_PREFIX = "resp_"
# An item id contains the id of its response, so that no second index is needed: prefix_<32 hex digits>_<place>.
ITEM_ID = re.compile(r"^[a-z]+_([0-9a-f]{32})_i?\d+$")
RESPONSE_ID = re.compile(ID_PREFIX + "[0-9a-f]{32}")
Check = Callable[[StoredResponse], object]
LARGE = 1 << 17  # bytes of stored turns
DEFAULT_LIMIT, LIMIT = 20, 100  # OpenAI API reference, list input items
Json = dict[str, Any]


def item_id(kind: str, answer_id: str, place: str | int) -> str:
    """Return the id of the item at `place` of a response's output ("i0", "i1" … of its input)."""
    prefix = dialect.ID_PREFIXES.get(kind, "item")
    return f"{prefix}_{answer_id.removeprefix(ID_PREFIX)}_{place}"


class ResponseSource(Protocol):
    """Where earlier responses are found: the stored ones (engine/stored_responses.py), or those of a socket too."""

    def find(
        self, caller: Caller, ident: str, load: ConversationLoad, param: str = "response_id", code: str = "not_found"
    ) -> StoredResponse: ...
    def check_size(self, size: int, param: str) -> None: ...


class GatheredTurns(NamedTuple):
    """The earlier conversation, a turn's own items, and the stored bytes of both."""

    history: list[Json]
    own: list[Json]
    size: int


def gather(
    body: schema.CompactBody,
    stored: ResponseSource,
    caller: Caller,
    load: ConversationLoad,
    check: Check = lambda conversation: None,
) -> GatheredTurns:
    """Return the earlier conversation, and this turn's own items with references resolved. Raises NotFound for an item
    that is not stored; `check` raises for a stored one that this caller may not use. `load` must exist as long as the
    result."""
    history: list[Json] = []
    size = 0
    ident = body.previous_response_id
    if ident:
        conversation = stored.find(caller, ident, load, "previous_response_id", "previous_response_not_found")
        check(conversation)
        history = compute_if(is_long(conversation), items_of_turns, conversation.turns)
        size = conversation.size
    if isinstance(body.input, str):
        return GatheredTurns(history, [shapes.user_text(body.input)], size)
    own = body.input or []
    if not any(shapes.kind_of(item) == shapes.REFERENCE for item in own):
        return GatheredTurns(history, own, size)
    resolver = _Resolver(stored, caller, load, history, check, size)
    return GatheredTurns(history, resolver.resolve(own), resolver.size)


class _Resolver:
    """Replaces references by the items that they refer to; each response is read once. `size` is the total of stored
    bytes that are continued: an item counts as often as it is referred to, and so does the data read for it."""

    def __init__(
        self,
        stored: ResponseSource,
        caller: Caller,
        load: ConversationLoad,
        history: list[Json],
        check: Check,
        size: int,
    ) -> None:
        self._load_of = load
        self._stored = stored
        self._caller = caller
        self._check = check
        self._known = {item["id"]: item for item in history if "id" in item}
        self._seen: set[str] = set()
        self._sizes: dict[str, int] = {}
        self.size = self._read = size

    def resolve(self, own: list[Json]) -> list[Json]:
        return [
            self._find(item, f"input.{place}") if shapes.kind_of(item) == shapes.REFERENCE else item
            for place, item in enumerate(own)
        ]

    def _find(self, reference: Json, path: str) -> Json:
        ident = reference.get("id")
        if not isinstance(ident, str):
            raise invalid(f"{path}.id", "expected a string")
        if ident not in self._known:
            self._load(ident, f"{path}.id")
        item = self._known[ident]
        if ident not in self._sizes:
            self._sizes[ident] = len(orjson.dumps(item))
        self.size += self._sizes[ident]
        self._stored.check_size(self.size, path)
        return item

    def _load(self, ident: str, param: str) -> None:
        named = ITEM_ID.match(ident)
        missing = NotFound(f"There is no stored item {ident!r}; send the item itself.", param=param)
        if named is None or named[1] in self._seen:
            raise missing
        self._seen.add(named[1])
        try:
            conversation = self._stored.find(self._caller, ID_PREFIX + named[1], self._load_of)
        except NotFound:
            raise missing from None
        self._check(conversation)
        self._read += conversation.size
        self._stored.check_size(self._read, param)
        items = compute_if(is_long(conversation), items_of_turns, conversation.turns)
        self._known |= {item["id"]: item for item in items if "id" in item}
        if ident not in self._known:
            raise missing


def is_long(conversation: StoredResponse) -> bool:
    """Return whether a thread assembles its items."""
    return conversation.size > LARGE


def items_of_turns(turns: list[PastTurn]) -> list[Json]:
    """Return all items of turns in their order, with ids."""
    return [item for turn in turns for item in (*label(turn.items, turn.ident), *turn.output)]


def label(items: list[Json], answer_id: str) -> list[Json]:
    """Return a turn's own items as they are shown: each with an id and a status, text content as a list of parts."""
    return [_labelled(item, answer_id, place) for place, item in enumerate(items)]


def _labelled(item: Json, answer_id: str, place: int) -> Json:
    kind = item["type"]
    labelled = {"id": item_id(kind, answer_id, f"i{place}"), **item}
    if kind in ("message", "function_call", "function_call_output"):
        labelled["status"] = "completed"
    if kind == "message" and isinstance(item["content"], str):
        content: Json = {"type": "input_text", "text": item["content"]}
        if item["role"] == "assistant":
            content = {"type": "output_text", "text": item["content"], "annotations": []}
        labelled["content"] = [content]
    return labelled


def conceal(item: Any) -> Any:
    """Return the item without its encrypted reasoning, which is shown only on request."""
    if item.get("type") != "reasoning" or "encrypted_content" not in item:
        return item
    return {name: value for name, value in item.items() if name != "encrypted_content"}


def show(response: Any, *, sealed: bool, reasoned: bool) -> Any:
    """Return a stored response as the caller sees it: reasoning only if its request enabled it (`reasoned`), and opaque
    tokens only if its request included them."""
    if sealed:
        return response
    hidden = is_mark if reasoned else is_reasoning
    output = [conceal(item) for item in response["output"] if not hidden(item)]
    return {**response, "output": output}


def asks_reasoning(response: Json) -> bool:
    """Return whether the request of a stored response enabled reasoning."""
    return any((response.get("reasoning") or {}).values())


def is_reasoning(item: Mapping[str, Any]) -> bool:
    return item.get("type") == "reasoning"


def is_mark(item: Mapping[str, Any]) -> bool:
    """Return whether a reasoning item holds only opaque tokens of other parts."""
    token = dialect.read_token(item.get("encrypted_content")) if item.get("type") == "reasoning" else None
    return token is not None and token.origin == MARKS


class ResponseItemsAnswer(ModelApiAnswer, tag_field="object", tag="list"):
    data: ResponseItems
    first_id: str
    last_id: str
    has_more: bool


def list_items(conversation: StoredResponse, arguments: dict[str, str], *, sealed: bool) -> ResponseItemsAnswer:
    """Return the list object of a response's input, newest first unless `order` is asc (response_item_list.py of the
    OpenAI SDK)."""
    asked = [*items_of_turns(conversation.earlier), *label(conversation.items, conversation.response["id"])]
    items: list[Any] = [item if sealed else conceal(item) for item in asked if sealed or not is_mark(item)]
    order = arguments.get("order") or "desc"
    if order not in ("asc", "desc"):
        raise invalid("order", "expected asc or desc")
    if order == "desc":
        items.reverse()
    after = arguments.get("after")
    if after:
        place = next((place for place, item in enumerate(items) if item["id"] == after), None)
        if place is None:
            raise invalid("after", f"there is no item {after!r} in this list")
        items = items[place + 1 :]
    limit = _limit(arguments.get("limit") or "")
    page = items[:limit]
    ids = [item["id"] for item in page] or [""]
    return ResponseItemsAnswer(page, ids[0], ids[-1], len(items) > limit)


def _limit(text: str) -> int:
    if not text:
        return DEFAULT_LIMIT
    if not (text.isascii() and text.isdigit() and 1 <= int(text) <= LIMIT):
        raise invalid("limit", f"expected a number from 1 to {LIMIT}")
    return int(text)
