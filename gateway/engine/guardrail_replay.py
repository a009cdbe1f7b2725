"""Replays a guardrail over retained requests: shows what it would have found, before it is turned on."""

from collections.abc import Callable, Sequence
from typing import Any

import orjson
from msgspec import Struct, field

from gateway.callers.vault import Vault
from gateway.clock import DAY_US
from gateway.errors import Unavailable
from gateway.guardrails.rule_sets import Place, RuleSet
from gateway.guardrails.texts import TextReader, TextWalk
from gateway.metering import payload_table
from gateway.metering.payload_table import LogInfo
from gateway.runtime.threads import compute
from gateway.store.database import Database

MAX_REQUESTS = 1000  # the newest of the period
MAX_BYTES = 64 << 20  # of packed payloads
MAX_EXAMPLES = 50
EXAMPLES_EACH = 5  # of one kind in one place
MAX_TEXT = 1 << 20  # characters of one text that is searched
LEAST_SHOWN = 8  # characters of a value of which the first and the last are shown
SYSTEM_MEMBERS = ("system", "instructions", "tools", "systemInstruction", "system_instruction")
ROLES: dict[str, Place] = {
    "system": "system",
    "developer": "system",
    "tool": "tool_results",
    "function": "tool_results",
    "assistant": "history",
    "model": "history",
}
CALLS = frozenset(("tool_use", "function_call", "custom_tool_call", "functionCall"))
RESULTS = frozenset(("tool_result", "function_call_output", "custom_tool_call_output", "functionResponse"))
OPAQUE = ("data", "signature", "encrypted_content", "thoughtSignature")  # members that are no text


class ReplayCount(Struct):
    """How many values of a kind were found in one place, and in how many requests."""

    kind: str
    place: Place
    requests: int = 0
    values: int = 0


class ReplayExample(Struct, frozen=True):
    """A value with all but its first and last character hidden, and the request that it was in (32 hex digits).
    `fingerprint` names the value in an exception."""

    request_id: str
    kind: str
    place: Place
    masked: str
    fingerprint: str


class Replay(Struct):
    """The values that a rule would have found in `requests`. `unread` counts those with a body that is not JSON or
    cannot be decrypted. `complete` is false if there were more requests than are read at once."""

    requests: int = 0
    found: int = 0
    unread: int = 0
    complete: bool = True
    counts: dict[tuple[str, Place], ReplayCount] = field(default_factory=dict)
    examples: list[ReplayExample] = field(default_factory=list)


class RetainedRequests:
    """The retained requests of projects, read one at a time."""

    def __init__(self, database: Database, vault: Vault) -> None:
        self._database = database
        self._vault = vault

    def replay(
        self, projects: Sequence[bytes], rules: RuleSet, days: int, applies: Callable[[LogInfo], bool]
    ) -> Replay:
        """Return what `rules` find in the requests of the latest `days` that they apply to, the newest first.
        Searching is done in a thread."""
        replay = Replay()
        since_us = self._database.now_us() - days * DAY_US
        logs = payload_table.newest_logs(self._database, projects, since_us, MAX_REQUESTS + 1)
        size = 0
        for number, info in enumerate(logs):
            if number >= MAX_REQUESTS or size > MAX_BYTES:
                replay.complete = False
                break
            packed = payload_table.read_packed(self._database, info.request) if applies(info) else None
            if packed is None:
                continue
            sent, answer, _ = packed
            size += len(sent) + len(answer)
            compute(self._search, replay, info.request_id, rules, (sent, answer))
        return replay

    def _search(self, replay: Replay, request_id: str, rules: RuleSet, packed: tuple[bytes, bytes]) -> None:
        replay.requests += 1
        found = _Found(rules)
        try:
            sent, answer = (payload_table.unpack(self._vault, body) if body else b"" for body in packed)
            _walk_request(orjson.loads(sent), found)
            if rules.reads_answers:
                found.text(answer.decode(errors="replace"), "answer")
        except (ValueError, RecursionError, Unavailable):
            replay.unread += 1
        replay.found += bool(found.values)
        seen = set()
        for kind, place, masked, fingerprint in found.values:
            count = replay.counts.setdefault((kind, place), ReplayCount(kind, place))
            count.values += 1
            if (kind, place) not in seen:
                seen.add((kind, place))
                count.requests += 1
                if count.requests <= EXAMPLES_EACH and len(replay.examples) < MAX_EXAMPLES:
                    replay.examples.append(ReplayExample(request_id, kind, place, masked, fingerprint))


class _Found(TextReader):
    """Collects the values in the texts of one request."""

    def __init__(self, rules: RuleSet) -> None:
        self._rules = rules
        self.values: list[tuple[str, Place, str, str]] = []

    def text(self, text: str, place: Place) -> str:
        part = "" if text.startswith("data:") else text[:MAX_TEXT]
        for match in self._rules.find(part, place, once=True):
            value = match.value_in(part)
            fingerprint = self._rules.fingerprint_of(value)
            self.values.append((match.detector.name, place, mask_value(value), fingerprint))
        return text


def mask_value(value: str) -> str:
    """Return a value with all but its first and last character hidden; nothing of a short value is shown."""
    size = f" ({len(value)} characters)"
    return f"{value[0]}…{value[-1]}{size}" if len(value) >= LEAST_SHOWN else f"…{size}"


def _walk_request(body: Any, found: _Found) -> None:
    """Search a body of any dialect. The places of its texts are read from the roles of messages and the types of parts:
    a prompt is a user's text, wherever it is in the conversation."""
    walk = TextWalk(found)
    if not isinstance(body, dict):
        walk.edit(body, "prompt")
        return
    for name, value in body.items():
        if name in SYSTEM_MEMBERS:
            walk.edit(value, "system")
        elif isinstance(value, list):
            for item in value:
                _walk_item(item, "prompt", walk)
        else:
            walk.edit({name: value}, "prompt")


def _walk_item(item: Any, place: Place, walk: TextWalk) -> None:
    """Search a message, and its parts and tool calls at their own places."""
    if not isinstance(item, dict):
        walk.edit(item, place)
        return
    role = item.get("role")
    place = ROLES.get(role, place) if isinstance(role, str) else place
    kinds = {str(item.get("type", "")), *item}
    if not CALLS.isdisjoint(kinds):
        place = "tool_arguments"
    elif not RESULTS.isdisjoint(kinds):
        place = "tool_results"
    for name, value in item.items():
        if name in OPAQUE:
            continue
        if name == "tool_calls":
            walk.edit(value, "tool_arguments")
        elif name in ("content", "parts") and isinstance(value, list):
            for part in value:
                _walk_item(part, place, walk)
        else:
            walk.edit({name: value}, place)
