"""How long a provider keeps the prompt of a conversation: five minutes, or an hour where its pauses make that cheaper.

An hour costs more to write and nothing more to read. It pays for a conversation that goes on after more than five
minutes again and again, each time with its whole prompt to be written anew. Its pauses so far stand for those to come.
The lifetime changes only when the provider has forgotten the prompt anyway, so that no prompt is written twice.
"""

from hashlib import blake2b

from msgspec import Struct
from msgspec.structs import replace

from gateway.catalogue.entries import Mapping
from gateway.catalogue.prices import rates_at
from gateway.clock import HOUR_US, MINUTE_US, SECOND_US, Clock
from gateway.errors import GatewayError
from gateway.neutral.cache_marks import HOUR, MIN_TURNS, Ttl, member
from gateway.neutral.chat import ChatRequest
from gateway.neutral.usage import Usage
from gateway.routing.sticky import StickyMemory, Store

SHORT_US = 5 * MINUTE_US
KEPT_S = 3 * 3600.0  # a conversation that was silent for longer begins anew
CAPACITY = 50_000
# A turn that another worker served may be known this much later.
SHARED_INTERVAL_US = MINUTE_US
SAMPLE = 2048  # characters of a text that tell one conversation from another
SAMPLED_BLOCKS = 8


class CachedTurns(Struct, frozen=True):
    """The turns of a conversation: when the last one was asked (µs), the tokens of the first prompt and the last one,
    pauses after which only an hour would have kept the prompt, pauses after which nothing would, and whether it is
    kept for an hour."""

    asked_us: int
    first: int
    tokens: int
    pauses: int = 0
    losses: int = 0
    hour: bool = False


class CacheTurn(Struct, frozen=True):
    """A turn of a conversation: when it was asked (µs), the digest of the conversation ("" where its provider has one
    lifetime only), and the lifetime of its marks ("": the provider's default)."""

    asked_us: int
    key: str = ""
    ttl: Ttl = ""


class CacheLifetimes:
    """Conversations of sessions by digest, in the memory of a worker and in a store that all workers share."""

    def __init__(self, clock: Clock, store: Store | None) -> None:
        self._clock = clock
        self._memory = StickyMemory(clock, KEPT_S, CAPACITY)
        self._store = store

    def begin(self, scope: str, session: str, mapping: Mapping, request: ChatRequest) -> CacheTurn:
        """Return a turn of a session of `scope` (a project), with the lifetime of the marks in its prompt."""
        now_us = self._clock.now_us()
        if not _has_choice(mapping, now_us):
            return CacheTurn(now_us)
        key = conversation_key(scope, session, mapping, request)
        known = self._find(key, now_us) if request.requirements.messages >= MIN_TURNS else None
        if known is not None and self._next(known, now_us, mapping).hour:
            return CacheTurn(now_us, key, HOUR)
        return CacheTurn(now_us, key)

    def is_long(self, scope: str, session: str, mapping: Mapping, request: ChatRequest) -> bool:
        """Return whether the prompt of a conversation is kept for an hour."""
        now_us = self._clock.now_us()
        known = self._find(conversation_key(scope, session, mapping, request), now_us)
        return known is not None and known.hour

    def served(self, turn: CacheTurn, mapping: Mapping, usage: Usage) -> None:
        """Count a turn that was answered. Never waits."""
        if not turn.key:
            return
        asked_us = turn.asked_us
        tokens = usage.input_total
        known = _read(self._memory.get(turn.key))
        if known is None:
            turns = CachedTurns(asked_us, tokens, tokens)
        elif asked_us >= known.asked_us:
            turns = replace(self._next(known, asked_us, mapping), asked_us=asked_us, tokens=tokens)
        else:
            return  # a later turn was answered before
        self._memory.put(turn.key, _write(turns))
        if known is None or asked_us // SHARED_INTERVAL_US != known.asked_us // SHARED_INTERVAL_US:
            self._share(turn.key, turns)

    def _next(self, turns: CachedTurns, now_us: int, mapping: Mapping) -> CachedTurns:
        """Return the turns with the pause before a turn at `now_us`, and the lifetime from that turn on."""
        gap_us = now_us - turns.asked_us
        pauses = turns.pauses + (SHORT_US < gap_us <= HOUR_US)
        losses = turns.losses + (gap_us > HOUR_US)
        hour = turns.hour
        if gap_us > (HOUR_US if hour else SHORT_US):
            hour = _pays(mapping, now_us, turns, pauses, losses)
        return replace(turns, pauses=pauses, losses=losses, hour=hour)

    def _find(self, key: str, now_us: int) -> CachedTurns | None:
        """Return what is known of a conversation, from the store where the memory may have missed turns."""
        turns = _read(self._memory.get(key))
        if turns is not None and now_us - turns.asked_us <= SHORT_US:
            return turns
        if self._store is None:
            return turns
        try:
            shared = _read(self._store.get(key))
        except GatewayError:
            return turns
        if shared is None or (turns is not None and turns.asked_us >= shared.asked_us):
            return turns
        self._memory.put(key, _write(shared))
        return shared

    def _share(self, key: str, turns: CachedTurns) -> None:
        if self._store is not None:
            try:
                self._store.put(key, _write(turns), KEPT_S)
            except GatewayError:
                return  # without the store each worker knows the turns that it served


def conversation_key(scope: str, session: str, mapping: Mapping, request: ChatRequest) -> str:
    """Return the digest of a conversation: of its project, its session and what its first user message begins with,
    since the agents of a session have separate conversations."""
    digest = blake2b(f"cache\0{scope}\0{mapping.key}\0{session}".encode(errors="replace"), digest_size=16)
    for text in _opening(request):
        digest.update(b"\0")
        digest.update(text[:SAMPLE].encode(errors="replace"))
    return digest.hexdigest()


def _opening(request: ChatRequest) -> list[str]:
    """Return the texts of the first user message, from the caller's own body where that has messages."""
    native = request.native
    messages = None if native is None else native.body.get("messages")
    if not isinstance(messages, list | tuple):
        messages = request.conversation().messages
    first = next((message for message in messages if member(message, "role") == "user"), None)
    content = member(first, "content") or member(first, "parts") or ()
    if isinstance(content, str):
        return [content]
    texts = [member(block, "text") for block in content[:SAMPLED_BLOCKS]]
    return [text for text in texts if isinstance(text, str)]


def _has_choice(mapping: Mapping, at_us: int) -> bool:
    """Return whether the mapping has a price for each lifetime, as those have that let the caller choose."""
    rates = rates_at(mapping, at_us, 0)
    return rates.input_cache_write_1h is not None and rates.input_cache_write is not None


def _pays(mapping: Mapping, at_us: int, turns: CachedTurns, pauses: int, losses: int) -> bool:
    """Return whether an hour would cost less for turns and pauses like those so far, the prompt of now included, which
    is written in any case."""
    rates = rates_at(mapping, at_us, turns.tokens)
    write = rates.input_cache_write
    hour = rates.input_cache_write_1h
    if write is None or hour is None:
        return False
    read = rates.input_cache_read if rates.input_cache_read is not None else rates.prompt or 0
    saved = pauses * (write - read) * turns.tokens
    written = turns.tokens * (1 + losses) + max(0, turns.tokens - turns.first)
    return saved > (hour - write) * written


def _write(turns: CachedTurns) -> str:
    numbers = (turns.asked_us // SECOND_US, turns.first, turns.tokens, turns.pauses, turns.losses, int(turns.hour))
    return ":".join(map(str, numbers))


def _read(text: str | None) -> CachedTurns | None:
    try:
        asked_s, first, tokens, pauses, losses, hour = map(int, (text or "").split(":"))
    except ValueError:
        return None
    return CachedTurns(asked_s * SECOND_US, first, tokens, pauses, losses, hour != 0)
