"""How long a provider keeps the prompt of a conversation: five minutes, or an hour where its pauses make that cheaper.

An hour costs more to write and nothing more to read. It pays for conversations that continue again and again after more
than five minutes, each time with the whole prompt to be written anew. For each turn both lifetimes are priced: for all
conversations with the same instructions in a project, since those of a person who reads are not like those of
sub-agents, and for the session. The lifetime of a conversation is chosen at its beginning, and again whenever the
provider has forgotten the prompt anyway, so that no prompt is written twice.
"""

from typing import Any

from msgspec import Struct

from gateway.catalogue.entries import Mapping, TokenRates
from gateway.catalogue.prices import rates_at
from gateway.clock import HOUR_US, MINUTE_US, SECOND_US, Clock
from gateway.errors import GatewayError
from gateway.ids import keyed_digest
from gateway.neutral.cache_marks import HOUR, INSTRUCTIONS, MIN_TURNS, Ttl, member
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
KIND_SAMPLE = 200  # characters at the beginning of the longest instruction, which dates and folders follow
# Weights, in turns: of earlier sessions beside the present one, and of the assumption that nothing is saved.
EARLIER_WEIGHT = 100
DOUBT = 10
FEWEST_TURNS = 2
USUAL_LENGTH = 20  # of a conversation, while few are known
MOST_TURNS = 1_000  # from then on old turns count less


class CachedPrompt(Struct, frozen=True):
    """The last turn of a conversation: its time (µs), the tokens of its prompt, and whether the provider keeps
    that for an hour."""

    asked_us: int
    tokens: int
    hour: bool = False


class LifetimeCosts(Struct):
    """The cost of the prompts of turns with each lifetime, in nano-dollars per million, but for those of first turns,
    and the numbers of these turns and of conversations."""

    short: float = 0.0
    hour: float = 0.0
    turns: float = 0.0
    conversations: float = 0.0


class CacheTurn(Struct, frozen=True):
    """A turn of a conversation: its time (µs), the digests of the conversation ("" where its provider has one
    lifetime only), of its session and of its instructions, and the lifetime of its marks ("": the provider's
    default)."""

    asked_us: int
    key: str = ""
    session: str = ""
    kind: str = ""
    ttl: Ttl = ""


class CacheLifetimes:
    """The last turns of conversations, in the memory of a worker and in a store that all workers share, and the costs
    of the turns that this worker served."""

    def __init__(self, clock: Clock, store: Store | None, key: bytes) -> None:
        """Conversations are named by digests with the secret `key`, since their texts are their callers'."""
        self._clock = clock
        self._key = key
        self._memory = StickyMemory(clock, KEPT_S, CAPACITY)
        self._store = store
        self._costs: dict[str, LifetimeCosts] = {}

    def begin(self, scope: str, session: str, mapping: Mapping, request: ChatRequest) -> CacheTurn:
        """Return a turn of a session of `scope` (a project), with the lifetime of the marks in its prompt."""
        now_us = self._clock.now_us()
        rates = rates_at(mapping, now_us, 0)
        if rates.input_cache_write_1h is None or rates.input_cache_write is None:
            return CacheTurn(now_us)
        kind, own, key = self._names_of(scope, session, mapping, request)
        known = self._find(key, now_us) if request.requirements.messages >= MIN_TURNS else None
        if known is not None and now_us - known.asked_us <= _lifetime_us(known.hour):
            hour = known.hour
        else:
            tokens = known.tokens if known is not None else request.requirements.prompt_bytes // 4
            hour = self._saves(kind, own, rates, tokens)
        return CacheTurn(now_us, key, own, kind, HOUR if hour else "")

    def is_long(self, scope: str, session: str, mapping: Mapping, request: ChatRequest) -> bool:
        """Return whether the prompt of a conversation is kept for an hour."""
        now_us = self._clock.now_us()
        known = self._find(self._names_of(scope, session, mapping, request)[2], now_us)
        return known is not None and known.hour

    def served(self, turn: CacheTurn, mapping: Mapping, usage: Usage) -> None:
        """Count a turn that was answered. Never waits."""
        if not turn.key:
            return
        asked_us = turn.asked_us
        tokens = usage.input_total
        known = _read(self._memory.get(turn.key))
        if known is not None and asked_us < known.asked_us:
            return  # a later turn was answered before
        rates = rates_at(mapping, asked_us, tokens)
        for name in (turn.kind, turn.session):
            self._count(name, known, asked_us, tokens, rates)
        prompt = CachedPrompt(asked_us, tokens, turn.ttl == HOUR)
        self._memory.put(turn.key, _write(prompt))
        if known is None or asked_us // SHARED_INTERVAL_US != known.asked_us // SHARED_INTERVAL_US:
            self._share(turn.key, prompt)

    def _saves(self, kind: str, own: str, rates: TokenRates, tokens: int) -> bool:
        """Return whether an hour saves more in the turns that a conversation still has than its prompt of `tokens`
        costs more to write now."""
        earlier = self._costs.get(kind) or LifetimeCosts()
        present = self._costs.get(own) or LifetimeCosts()
        if earlier.turns < FEWEST_TURNS:
            return False
        share = min(1.0, EARLIER_WEIGHT / earlier.turns)
        saved = (earlier.short - earlier.hour) * share + present.short - present.hour
        turns = earlier.turns * share + present.turns + DOUBT
        length = (earlier.turns + USUAL_LENGTH) / (earlier.conversations + 1)
        return saved / turns * length > ((rates.input_cache_write_1h or 0) - (rates.input_cache_write or 0)) * tokens

    def _names_of(self, scope: str, session: str, mapping: Mapping, request: ChatRequest) -> tuple[str, str, str]:
        """Return the digests of a conversation's instructions, of its session, and of itself."""
        place = f"cache\0{scope}\0{mapping.key}\0"
        kind = self._digest(place, _instruction_of(request))
        own = self._digest(kind, session)
        return kind, own, self._digest(own, *_opening(request))

    def _digest(self, *texts: str) -> str:
        return keyed_digest("\0".join([text[:SAMPLE] for text in (*texts, "")]), self._key)

    def _count(self, name: str, known: CachedPrompt | None, asked_us: int, tokens: int, rates: TokenRates) -> None:
        costs = self._costs.pop(name, None) or LifetimeCosts()
        self._costs[name] = costs
        if len(self._costs) > CAPACITY:
            del self._costs[next(iter(self._costs))]
        if known is None:
            costs.conversations += 1
            return
        gap_us = asked_us - known.asked_us
        costs.short += _prompt_cost(rates, rates.input_cache_write or 0, known.tokens, tokens, gap_us <= SHORT_US)
        costs.hour += _prompt_cost(rates, rates.input_cache_write_1h or 0, known.tokens, tokens, gap_us <= HOUR_US)
        costs.turns += 1
        if costs.turns > MOST_TURNS:
            costs.short, costs.hour = costs.short / 2, costs.hour / 2
            costs.turns, costs.conversations = costs.turns / 2, costs.conversations / 2

    def _find(self, key: str, now_us: int) -> CachedPrompt | None:
        """Return what is known of a conversation, from the store where the memory may have missed turns."""
        known = _read(self._memory.get(key))
        if self._store is None or (known is not None and now_us - known.asked_us <= SHORT_US):
            return known
        try:
            shared = _read(self._store.get(key))
        except GatewayError:
            return known
        if shared is None or (known is not None and known.asked_us >= shared.asked_us):
            return known
        self._memory.put(key, _write(shared))
        return shared

    def _share(self, key: str, prompt: CachedPrompt) -> None:
        if self._store is not None:
            try:
                self._store.put(key, _write(prompt), KEPT_S)
            except GatewayError:
                return  # without the store each worker knows the turns that it served


def _prompt_cost(rates: TokenRates, write: int, before: int, tokens: int, kept: bool) -> int:
    """Return the price of a prompt of which the provider has that of the turn before, or nothing any more."""
    read = rates.input_cache_read if rates.input_cache_read is not None else rates.prompt or 0
    cached = min(before, tokens) if kept else 0
    return cached * read + (tokens - cached) * write


def _lifetime_us(hour: bool) -> int:
    return HOUR_US if hour else SHORT_US


def _instruction_of(request: ChatRequest) -> str:
    """Return the beginning of the longest instruction, by which the agents of a project differ."""
    system = None if request.native is None else request.native.body.get("system")
    texts = _texts_of(system)
    for message in _messages_of(request)[:SAMPLED_BLOCKS]:
        if member(message, "role") in INSTRUCTIONS:
            texts += _texts_of(member(message, "content") or member(message, "parts"))
    return max(texts, key=len, default="")[:KIND_SAMPLE]


def _opening(request: ChatRequest) -> list[str]:
    """Return the texts of the first user message, by which the conversations of a session differ."""
    first = next((message for message in _messages_of(request) if member(message, "role") == "user"), None)
    return _texts_of(member(first, "content") or member(first, "parts"))


def _messages_of(request: ChatRequest) -> Any:
    """Return the messages, those of the caller's own body where it has some."""
    native = request.native
    messages = None if native is None else native.body.get("messages")
    if isinstance(messages, list | tuple):
        return messages
    return request.conversation().messages


def _texts_of(content: Any) -> list[str]:
    if isinstance(content, str):
        return [content]
    texts = [member(block, "text") for block in (content or ())[:SAMPLED_BLOCKS]]
    return [text for text in texts if isinstance(text, str)]


def _write(prompt: CachedPrompt) -> str:
    return f"{prompt.asked_us // SECOND_US}:{prompt.tokens}:{int(prompt.hour)}"


def _read(text: str | None) -> CachedPrompt | None:
    try:
        asked_s, tokens, hour = map(int, (text or "").split(":"))
    except ValueError:
        return None
    return CachedPrompt(asked_s * SECOND_US, tokens, hour != 0)
