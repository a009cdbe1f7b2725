"""The prompt cache of a vendor with cache marks, as its documentation describes it.

    upstream.prompt_cache = PromptCache(clock, minimum=1024)

An entry is written at each mark, and read where a mark, or one of the nineteen blocks before it, is where an entry was
written before. A read keeps the entry for its lifetime again. A prompt below the minimum is not cached. What was read,
what was written for an hour and for five minutes, and the rest are counted apart.

Wire facts: Anthropic documentation, "Prompt caching": "How automatic prefix checking works", "Cache limitations",
"1-hour cache duration".
"""

import hashlib
import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from gateway.clock import Clock

BYTES_PER_TOKEN = 4
LOOKBACK = 20
LIVES_S = {"5m": 300.0, "1h": 3600.0}
OWN_MEMBERS = ("cache_control",)

Json = dict[str, Any]


@dataclass(frozen=True)
class CacheCounts:
    """Tokens of one prompt."""

    input: int
    read: int
    written_5m: int
    written_1h: int


class PromptCache:
    """The entries of one account, by model and digest of the prefix."""

    def __init__(self, clock: Clock, minimum: int = 1024) -> None:
        self._clock = clock
        self._minimum = minimum
        self._entries: dict[str, tuple[float, float]] = {}  # until when it lives, and for how long a read keeps it

    def count(self, body: Json) -> CacheCounts:
        """Return the tokens of a request's prompt, and remember what it writes."""
        digest = hashlib.sha256(json.dumps([body["model"], body.get("thinking")]).encode())
        names: list[str] = []
        sizes: list[int] = []
        marks: list[tuple[int, str]] = []
        tokens = 0
        for block in _blocks(body):
            mark = block.get("cache_control")
            plain = json.dumps({name: value for name, value in block.items() if name not in OWN_MEMBERS})
            digest.update(plain.encode())
            tokens += -(-len(plain) // BYTES_PER_TOKEN)
            names.append(digest.hexdigest())
            sizes.append(tokens)
            if mark and tokens >= self._minimum:
                marks.append((len(names) - 1, mark.get("ttl", "5m")))
        now = self._clock.monotonic()
        hit = self._find(names, [place for place, _ in marks], now)
        read = 0 if hit is None else sizes[hit]
        last = {life: max((sizes[place] for place, ttl in marks if ttl == life), default=0) for life in LIVES_S}
        hour = max(read, last["1h"])
        short = max(hour, last["5m"])
        for place, ttl in marks:
            if hit is None or place > hit:
                self._entries[names[place]] = (now + LIVES_S[ttl], LIVES_S[ttl])
        return CacheCounts(tokens - short, read, short - hour, hour - read)

    def _find(self, names: list[str], marked: list[int], now: float) -> int | None:
        """Return the last block up to which the prompt is known, and keep it and what was found before it."""
        found = None
        for mark in reversed(marked):
            for place in range(mark, max(-1, mark - LOOKBACK), -1):
                until, life = self._entries.get(names[place], (0.0, 0.0))
                if until > now:
                    self._entries[names[place]] = (now + life, life)
                    found = place if found is None else found
                    break
        return found


def _blocks(body: Json) -> Iterator[Json]:
    """Yield the blocks of a prompt in the order in which they are cached; a text is one block."""
    yield from body.get("tools") or ()
    for role, content in [
        ("system", body.get("system") or []),
        *[(each["role"], each["content"]) for each in body["messages"]],
    ]:
        blocks = [{"type": "text", "text": content}] if isinstance(content, str) else content
        for block in blocks:
            yield {"role": role, **block}
