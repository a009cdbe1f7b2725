"""Guardrails of requests: every operation passes here between its plan and its admission, and with its answer."""

import hashlib
import hmac
import re
from collections import OrderedDict
from collections.abc import Generator, Iterable
from functools import partial
from typing import Any, NamedTuple, TypeVar

import orjson
from msgspec import structs

from gateway.billing.context import RequestContext
from gateway.callers.access import keeps_nothing
from gateway.callers.authentication import Caller
from gateway.callers.guardrail_rows import read_rules
from gateway.callers.vault import Vault
from gateway.callers.versioned_cache import VersionedCache
from gateway.clock import Clock
from gateway.control.version import Control
from gateway.engine.planning import RoutePlan
from gateway.errors import ContentRefused, GatewayError, InvalidRequest, Unavailable
from gateway.guardrails.guarded_texts import AnswerStream, AnswerTexts, Findings, RequestEditor, edit_answer, unreadable
from gateway.guardrails.placeholders import Masks
from gateway.guardrails.rule_sets import GuardrailRule, Match, Place, RuleSet
from gateway.guardrails.texts import TextWalk
from gateway.metering.counters import Counters
from gateway.neutral.chat import ChatRequest, ChatResult, Choice, FinishReason
from gateway.neutral.events import (
    Batch,
    BlockDone,
    Event,
    Failed,
    Finished,
    Heartbeat,
    ImageMade,
    MediaPiece,
    Notice,
    PartFound,
    Progress,
    ReasoningDelta,
    RefusalDelta,
    SourceFound,
    Started,
    TextDelta,
    ToolCallDelta,
)
from gateway.neutral.parts import Part, Refusal, ToolCall
from gateway.neutral.request import Request
from gateway.runtime.threads import compute, compute_if
from gateway.store import redis as redis_keys
from gateway.store.database import Database
from gateway.store.journal import Journal, Statement
from gateway.store.redis import Redis

R = TypeVar("R", bound=Request)

KNOWN = "guardrails"  # in a caller's memo: the RuleSet, or NO_RULES
CURRENT = "current guardrails"  # the same with the rows that it was made of
NO_RULES = "none"
LARGE_TEXT = 1 << 16  # bytes of input that are checked in a thread
MAX_TEST = 200_000  # characters of a text that is tested
SETS = 100  # of rules that a worker remembers; those in use are held by their callers
SESSIONS = 10_000  # with a table that a worker remembers
SESSION_VALUES = 2_000  # of one session's table; the oldest are forgotten
SESSION_BYTES = 1 << 18  # of the values of one session's table
TABLES_BYTES = 64 << 20  # of all tables that a worker remembers
LONE_SURROGATE = re.compile("[\ud800-\udfff]")
SESSION_TTL_S = 24 * 3600.0
OPTIONS = ("extra", "image_config", "prompt_cache_key", "service_tier")  # that are sent to providers
RECORD = Statement(
    "guardrail_finding",
    "INSERT INTO guardrail_finding (request_id, rule, kind, place, organization, project, api_key, action, count, at) "
    "VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT (request_id, rule, kind, place) DO UPDATE SET "
    "count = guardrail_finding.count + excluded.count",
)
# Operations without text in their whole answers: vectors, scores, and the id of a job.
NUMBERS_ONLY = frozenset(("embeddings", "rerank", "videos"))
PLAIN_EVENTS = (Started, Notice, Heartbeat, Progress)
BLOCK_FINISH: FinishReason = "content_filter"


class TestedText(NamedTuple):
    """The result of rules for a text: the values that they found, and the text that would be sent."""

    matches: list[Match]
    text: str
    blocked: bool


class SessionTables:
    """The masked values of sessions: encrypted in memory, and in Redis where there is one, until a day after their last
    use."""

    def __init__(self, vault: Vault, redis: Redis | None, clock: Clock) -> None:
        self._vault = vault
        self._redis = redis
        self._clock = clock
        self._memory: OrderedDict[str, tuple[float, bytes]] = OrderedDict()
        self._size = 0  # of `_memory`, in bytes

    def read(self, session: str) -> dict[str, str]:
        """Return the values of a session by the ids of their placeholders."""
        sealed = self._find(session)
        if sealed is None:
            return {}
        try:
            values: dict[str, str] = orjson.loads(self._vault.open_bytes(sealed))
        except Unavailable:
            return {}  # sealed with a former key of the installation
        return values

    def write(self, session: str, values: dict[str, str], shared: bool) -> None:
        """Store the values of a session; `shared`: also where other workers read them."""
        sealed = self._vault.seal_bytes(orjson.dumps(_newest(values)))
        self._forget(session)
        self._memory[session] = (self._clock.monotonic() + SESSION_TTL_S, sealed)
        self._size += len(sealed)
        while len(self._memory) > SESSIONS or self._size > TABLES_BYTES:
            self._forget(next(iter(self._memory)))
        if shared and self._redis is not None:
            try:
                self._redis.put(redis_keys.masked_values(session), sealed, SESSION_TTL_S)
            except Unavailable:
                return  # other workers restore only values that the request itself has

    def _find(self, session: str) -> bytes | None:
        if self._redis is not None:
            try:
                sealed = self._redis.get(redis_keys.masked_values(session))
            except Unavailable:
                sealed = None
            if sealed is not None:
                return sealed
        until, sealed = self._memory.get(session, (0.0, None))
        if sealed is None or until < self._clock.monotonic():
            self._forget(session)
            return None
        return sealed

    def _forget(self, session: str) -> None:
        _, sealed = self._memory.pop(session, (0.0, b""))
        self._size -= len(sealed)


def _newest(values: dict[str, str]) -> dict[str, str]:
    """Return the newest values of a session that its table has room for."""
    kept: list[tuple[str, str]] = []
    size = 0
    for ident, value in reversed(values.items()):
        length = len(value.encode("utf-8", "surrogatepass"))
        size += length
        if len(kept) == SESSION_VALUES or size > SESSION_BYTES:
            break
        if value.isascii() or not LONE_SURROGATE.search(value):  # which JSON cannot write
            kept.append((ident, value))
    return dict(reversed(kept))


class Guarding:
    """Finds the rules for a caller, and applies them to requests. Where rules cannot be read, nothing is sent."""

    def __init__(
        self,
        database: Database,
        control: Control,
        journal: Journal,
        vault: Vault,
        redis: Redis | None,
        clock: Clock,
        secret: bytes,
        counters: Counters,
    ) -> None:
        self._counters = counters
        self._database = database
        self._journal = journal
        self._clock = clock
        self._secret = secret
        self._rows: VersionedCache[str, tuple[tuple[str, str, GuardrailRule], ...]] = VersionedCache(control, 10_000)
        self._sets: OrderedDict[tuple[str, tuple[GuardrailRule, ...]], RuleSet] = OrderedDict()
        self.tables = SessionTables(vault, redis, clock)

    def rules_of(self, caller: Caller) -> RuleSet | str:
        """Return the rules for a caller, NO_RULES without any. Unavailable if they cannot be read."""
        known: RuleSet | str | None = caller.memo.get(KNOWN)
        if known is None:
            known = caller.memo[KNOWN] = self.current_rules(caller)
        return known

    def current_rules(self, caller: Caller) -> RuleSet | str:
        """Return the same as they are now, for a caller that was read some time ago, such as that of a session."""
        organization_id = caller.organization_id
        rows = self._rows.get(organization_id, partial(self._read, organization_id))
        known: tuple[Any, RuleSet | str] | None = caller.memo.get(CURRENT)
        if known is None or known[0] is not rows:
            places = {organization_id, caller.project_id, caller.key_id}
            rules = tuple(rule for _, scope_id, rule in rows if scope_id in places)
            known = caller.memo[CURRENT] = (rows, self.rule_set(organization_id, rules) if rules else NO_RULES)
        return known[1]

    def rules_for(self, caller: Caller, rules: RuleSet, names: Iterable[str]) -> RuleSet | None:
        """Return those of a caller's rules that apply to a model with any of these names; None when none does."""
        chosen = rules.chosen_for(names)
        if len(chosen) == len(rules.rules):
            return rules
        return self.rule_set(caller.organization_id, chosen) if chosen else None

    def fingerprint_of(self, organization_id: str, value: str) -> str:
        """Return the hash of a value by which exceptions of an organization name it."""
        text = f"exception\0{organization_id}\0{value}".encode("utf-8", "surrogatepass")
        return hmac.new(self._secret, text, hashlib.sha256).hexdigest()[:32]

    def rule_set(self, organization_id: str, rules: tuple[GuardrailRule, ...]) -> RuleSet:
        """Return the set of these rules of an organization."""
        key = (organization_id, rules)
        found = self._sets.get(key)
        if found is None:
            # Thousands of terms take a second to compile.
            found = self._sets[key] = compute(RuleSet, rules, partial(self.fingerprint_of, organization_id))
            while len(self._sets) > SETS:
                self._sets.popitem(last=False)
        else:
            self._sets.move_to_end(key)
        return found

    def test(self, organization_id: str, rules: tuple[GuardrailRule, ...], text: str, place: Place) -> TestedText:
        """Return what these rules of an organization would do with a text in a request without a session."""
        if not rules:
            return TestedText([], text, False)
        chosen = self.rule_set(organization_id, rules)
        key = hmac.digest(self._secret, f"test\0{organization_id}".encode(), "sha256")
        editor = RequestEditor(chosen, Masks(key), Findings())

        def search() -> TestedText:
            edited = editor.text(text, place)
            return TestedText(chosen.find(text, place), edited, editor.error is not None)

        return compute_if(chosen.slow or len(text) > LARGE_TEXT, search)

    def masks_of(self, caller: Caller, session: str) -> Masks:
        """Return the placeholders of a session of a key, with the values that it has had."""
        place = f"masks\0{caller.organization_id}\0{caller.project_id}\0{caller.key_id}\0{session}"
        key = hmac.digest(self._secret, place.encode("utf-8", "surrogatepass"), "sha256")
        return Masks(key, self.tables.read(_table_of(caller, session)) if session else None)

    def keep(self, context: RequestContext, masks: Masks) -> None:
        """Store the values that a request of a session added."""
        caller = context.caller
        if masks.added and context.session:
            shared = not keeps_nothing(caller.rules)
            self.tables.write(_table_of(caller, context.session), masks.values, shared)
            masks.added = False

    def protect(self, context: RequestContext, request: R, route_plan: RoutePlan, rules: RuleSet) -> R:
        """Return the request as it may be sent. ContentRefused where a rule blocks it."""
        applied = self.rules_for(context.caller, rules, _names_of(request, route_plan))
        if applied is None:
            return request
        guard = context.guard = GuardedRequest(self, context, applied, request)
        large = applied.slow or request.large or request.requirements.prompt_bytes > LARGE_TEXT
        request.content()
        try:
            protected = compute_if(large, guard.protect, request)
        except ContentRefused:
            guard.record()
            raise
        except RecursionError:
            raise InvalidRequest("The body is nested too deeply to be checked by the guardrails.") from None
        guard.keep()
        return protected

    def record(self, context: RequestContext, findings: Findings) -> None:
        """Store what was found. Never waits and never fails."""
        caller = context.caller
        found = findings.found()
        owner = (caller.organization_id, caller.project_id, caller.key_id)
        rows = [
            (RECORD, (context.request_id, one.rule, one.kind, one.place, *owner, one.action, one.values, context.at_us))
            for one in found
        ]
        for one in found:
            self._counters.add("guardrail_findings_total", (one.kind, one.place, one.action), one.values)
        for content in findings.not_checked():
            self._counters.add("guardrail_unread_total", (content,))
        if rows:
            try:
                self._journal.append(*rows)
            except Unavailable:
                return

    def _read(self, organization_id: str, version: int) -> tuple[tuple[str, str, GuardrailRule], ...]:
        return self._database.read(lambda: read_rules(organization_id))


class GuardedRequest:
    """The rules in force for one request, what they found in it, and the values that its answer gets back."""

    def __init__(self, guarding: Guarding, context: RequestContext, rules: RuleSet, request: Request) -> None:
        self._guarding = guarding
        self._context = context
        self.rules = rules
        self.findings = Findings()
        self._masks = guarding.masks_of(context.caller, context.session)
        needs = request.requirements
        self._texts = AnswerTexts(rules, self._masks, self.findings, needs.json_object or needs.json_schema)
        self.is_chat = isinstance(request, ChatRequest)
        self._operation = request.operation
        self._recorded = False
        self.blocked: ContentRefused | None = None

    def protect(self, request: R) -> R:
        """Return the request with its texts edited. It is rebuilt for its provider rather than relayed, so that a
        provider gets nothing that was not read here."""
        editor = RequestEditor(self.rules, self._masks, self.findings)
        walk = TextWalk(editor)
        content = request.content()
        edited = walk.edit(content, "prompt")
        user = walk.edit(request.user, "prompt")
        options = walk.edit_fields(
            request.options, "prompt", frozenset(type(request.options).__struct_fields__) - frozenset(OPTIONS)
        )
        if request.requirements.media and not self.findings.unread:
            editor.unread("media")
        changes: dict[str, Any] = {"native": None, "user": user, "options": options}
        if isinstance(request, ChatRequest):
            changes["completion"] = walk.edit(request.completion, "prompt")
        if editor.error is not None:
            raise editor.error
        needs = request.requirements
        if editor.growth:
            grown = {"longest_input": needs.longest_input + editor.growth} if needs.longest_input else {}
            changes["requirements"] = structs.replace(needs, prompt_bytes=needs.prompt_bytes + editor.growth, **grown)
        changes["warnings"] = (*request.warnings, *self.findings.warnings(answer=False))
        if edited is not content:
            changes["decode"] = lambda: edited
            changes["_decoded"] = edited
            if isinstance(request, ChatRequest):
                changes["inlined"] = None
        return structs.replace(request, **changes)

    def keep(self) -> None:
        """Store the values that the request added to its session."""
        self._guarding.keep(self._context, self._masks)

    def answer(self, result: Any) -> Any:
        """Return a whole answer with its texts checked and its values restored. Raises ContentRefused if a rule blocks
        it and its operation has no form for a refusal."""
        try:
            if isinstance(result, ChatResult):
                result = compute_if(self.rules.slow or result.large, self._answer_chat, result)
            elif self._operation not in NUMBERS_ONLY:
                large = self.rules.slow or result.large
                result = compute_if(large, edit_answer, result, self._texts, self.findings, self.rules)
        finally:
            self.record()
        warnings = self.findings.warnings(answer=True)
        if warnings:
            result.warnings = (*result.warnings, *warnings)
            if self._context.outcome is not None:
                self._context.outcome.warnings.extend(warnings)
        return result

    def stream(self, batches: Generator[Batch, None, None]) -> Generator[Batch, None, None]:
        """Yield the batches of an answer with their texts checked and their values restored."""
        return GuardedStream(self, self._texts, batches).run()

    def record(self) -> None:
        """Store what was found, once."""
        if not self._recorded:
            self._recorded = True
            self._guarding.record(self._context, self.findings)

    def usage(self) -> Any:
        """Return the usage of the answer so far, None where it is not known yet."""
        outcome = self._context.outcome
        return outcome.serving.usage if outcome is not None and outcome.attempts else None

    def note_unread(self, kind: str) -> None:
        """Note that content of the answer was not read. ContentRefused where a rule refuses that."""
        self.findings.add_unread("answer", kind)
        rule = self.rules.refusing(inputs=False)
        if rule is not None:
            raise unreadable(rule, kind, answer=True)

    def edit_part(self, value: Any) -> Any:
        """Return a part of an answer with its texts edited. ContentRefused."""
        return edit_answer(value, self._texts, self.findings, self.rules)

    def _answer_chat(self, result: ChatResult) -> ChatResult:
        try:
            choices = tuple(self._edit_choice(choice) for choice in result.choices)
        except ContentRefused as error:
            refused = Choice(_refusal_parts(error), BLOCK_FINISH)
            choices = tuple(refused for _ in result.choices)
        result.choices = choices
        return result

    def _edit_choice(self, choice: Choice) -> Choice:
        return structs.replace(choice, parts=tuple(self._edit_part(part) for part in choice.parts))

    def _edit_part(self, part: Part) -> Part:
        if not isinstance(part, ToolCall):
            edited: Part = self.edit_part(part)
            return edited
        arguments = self._texts.whole(part.arguments, not part.custom, self._texts.gets_values(part.name))
        return structs.replace(part, arguments=arguments)


class GuardedStream:
    """A streamed answer: one window for each text in it."""

    def __init__(self, guard: GuardedRequest, texts: AnswerTexts, batches: Generator[Batch, None, None]) -> None:
        self._guard = guard
        self._texts = texts
        self._batches = batches
        self._open: dict[tuple[int, int], tuple[AnswerStream, Any]] = {}
        self._last_block = -1

    def run(self) -> Generator[Batch, None, None]:
        """Yield the edited batches; a blocked value ends the answer with a refusal."""
        try:
            for batch in self._batches:
                sent: Batch = []
                try:
                    for event in batch:
                        self._take(event, sent)
                except ContentRefused as error:
                    self._guard.blocked = error
                    self._batches.close()
                    yield [*sent, *self._refuse(error)]
                    return
                if sent:
                    yield sent
                elif batch:
                    yield [Heartbeat()]
        finally:
            self._batches.close()
            self._guard.record()

    def _take(self, event: Event, sent: Batch) -> None:
        if isinstance(event, TextDelta | RefusalDelta | ReasoningDelta | ToolCallDelta):
            self._take_delta(event, sent)
        elif isinstance(event, Finished):
            self._flush_all(sent)
            sent += [Notice(text) for text in self._guard.findings.warnings(answer=True)]
            sent.append(event)
        elif isinstance(event, Failed):
            sent.append(event)
        elif isinstance(event, BlockDone):
            self._flush((event.choice, event.block), sent)
            sent.append(event)
        elif isinstance(event, PLAIN_EVENTS):
            sent.append(event)
        else:
            self._take_whole(event, sent)

    def _take_delta(self, event: Any, sent: Batch) -> None:
        self._last_block = max(self._last_block, event.block)
        place = (event.choice, event.block)
        if place not in self._open:
            self._flush_all(sent, event.choice)
            self._open[place] = (self._begin(event), event)
        text, _ = self._open[place]
        field = "arguments" if isinstance(event, ToolCallDelta) else "text"
        given = getattr(event, field)
        written = text.feed(given)
        if written == given:
            sent.append(event)
        elif written or _has_more(event, field):
            sent.append(structs.replace(event, **{field: written}))

    def _begin(self, event: Any) -> AnswerStream:
        if isinstance(event, ToolCallDelta):
            return self._texts.stream(not event.custom, self._texts.gets_values(event.name))
        return self._texts.stream()

    def _flush(self, place: tuple[int, int], sent: Batch) -> None:
        known = self._open.get(place)
        if known is None:
            return
        text, first = known
        rest = text.flush()
        if rest:
            sent.append(_piece_of(first, rest))

    def _flush_all(self, sent: Batch, choice: int | None = None) -> None:
        """Send the rest of all texts. Before another block of a `choice` begins, of its texts only: the arguments of
        several tool calls may come in turns."""
        for place, (_, first) in self._open.items():
            if choice is None or (place[0] == choice and not isinstance(first, ToolCallDelta)):
                self._flush(place, sent)

    def _take_whole(self, event: Any, sent: Batch) -> None:
        """Take an event that has a whole part, or content that cannot be read."""
        if isinstance(event, SourceFound):
            sent.append(structs.replace(event, source=self._guard.edit_part(event.source)))
        elif isinstance(event, PartFound):
            sent.append(structs.replace(event, part=self._guard.edit_part(event.part)))
        elif isinstance(event, MediaPiece | ImageMade):
            self._guard.note_unread("media")
            self._flush_all(sent, event.choice)
            sent.append(event)
        else:
            raise TypeError(f"an event {type(event).__name__} passed the guardrails unread")

    def _refuse(self, error: ContentRefused) -> Batch:
        if not self._guard.is_chat:
            return [Failed(error, self._guard.usage())]
        return [RefusalDelta(error.message, self._last_block + 1), Finished(BLOCK_FINISH, self._guard.usage())]


def _piece_of(first: Any, text: str) -> Event:
    """Return a further delta of the block of `first` with this text."""
    if isinstance(first, ToolCallDelta):
        return ToolCallDelta(first.block, text, custom=first.custom, choice=first.choice)
    if isinstance(first, RefusalDelta):
        return RefusalDelta(text, first.block, first.choice)
    if isinstance(first, ReasoningDelta):
        return ReasoningDelta(text, vendor=first.vendor, summary=first.summary, block=first.block, choice=first.choice)
    return TextDelta(text, first.block, first.choice)


def _has_more(event: Any, field: str) -> bool:
    """Return whether an event has more than its text."""
    return any(
        getattr(event, name)
        for name in type(event).__struct_fields__
        if name not in (field, "block", "choice", "summary")
    )


def _refusal_parts(error: GatewayError) -> tuple[Part, ...]:
    return (Refusal(error.message),)


def _table_of(caller: Caller, session: str) -> str:
    text = f"{caller.organization_id}\0{caller.project_id}\0{caller.key_id}\0{session}"
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def _names_of(request: Request, route_plan: RoutePlan) -> set[str]:
    """Return every name of a model that may serve the request."""
    names = {request.requested_model, *request.options.models}
    for group in route_plan.groups:
        for target in group:
            names |= {target.mapping.model, target.provider.id, f"{target.provider.id}/{target.mapping.model}"}
    return names
