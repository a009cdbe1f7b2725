"""Guardrails of requests: every operation passes here between its plan and its admission, and with its answer."""

import hashlib
import hmac
import re
from collections import OrderedDict
from collections.abc import Iterable, Sequence
from functools import partial
from typing import Any, NamedTuple, TypeVar

import orjson

from gateway.billing.context import RequestContext
from gateway.callers.access import keeps_nothing
from gateway.callers.authentication import Caller
from gateway.callers.guardrail_rows import read_rules
from gateway.callers.vault import Vault
from gateway.clock import Clock
from gateway.control.version import Control, VersionedCache
from gateway.engine.content_checks import CheckScope, ContentChecks
from gateway.engine.guarded_requests import GuardedRequest
from gateway.engine.planning import RoutePlan
from gateway.errors import ContentRefused, InvalidRequest, Unavailable
from gateway.guardrails.checked_texts import CheckCollector, CheckedEditor, CheckedRules
from gateway.guardrails.checkers import NO_ADDRESS
from gateway.guardrails.detectors import built_in
from gateway.guardrails.guarded_texts import Findings, RequestEditor
from gateway.guardrails.placeholders import Masks
from gateway.guardrails.rule_sets import GuardrailRule, Match, Place, RuleSet
from gateway.ids import new_hex
from gateway.metering.counters import Counters
from gateway.neutral.request import Request
from gateway.runtime.state_changes import StateLog
from gateway.runtime.threads import compute, compute_if
from gateway.store import redis as redis_keys
from gateway.store.database import Database
from gateway.store.journal import Journal, Statement
from gateway.store.redis import Redis
from gateway.transport import Transport

R = TypeVar("R", bound=Request)

KNOWN = "guardrails"  # in a caller's memo: the RuleSet, or NO_RULES
CURRENT = "current guardrails"  # the same with the rows that it was made of
NO_RULES = "none"
LARGE_TEXT = 1 << 16  # bytes of input that are checked in a thread
OWN_KINDS = ("term", "pattern")  # of values, besides those of detectors
CHECKER_KIND = "checker"  # in metrics: the kinds that checkers name are without number
MAX_TEST = 200_000  # characters of a text that is tested
SETS = 100  # of rules that a worker remembers; those in use are held by their callers
SESSIONS = 10_000  # with a table that a worker remembers
SESSION_VALUES = 2_000  # of one session's table; the oldest are forgotten
SESSION_BYTES = 1 << 18  # of the values of one session's table
TABLES_BYTES = 64 << 20  # of all tables that a worker remembers
LONE_SURROGATE = re.compile("[\ud800-\udfff]")
SESSION_TTL_S = 24 * 3600.0
RECORD = Statement(
    "guardrail_finding",
    "INSERT INTO guardrail_finding (request_id, rule, kind, place, organization, project, api_key, action, count, at) "
    "VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT (request_id, rule, kind, place) DO UPDATE SET "
    "count = guardrail_finding.count + excluded.count",
)


class TestedText(NamedTuple):
    """The result of rules for a text: the values that they found, each with the fingerprint by which an exception names
    it, and the text that would be sent. `failed` are the rules with a checker that failed, and the reason."""

    matches: list[tuple[Match, str]]
    text: str
    blocked: bool
    failed: list[tuple[GuardrailRule, str]]


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
        transport: Transport,
        states: StateLog,
    ) -> None:
        self.checks = ContentChecks(transport, vault, clock, counters, states)
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
            return TestedText([], text, False, [])
        chosen = self.rule_set(organization_id, rules)
        key = hmac.digest(self._secret, f"test\0{organization_id}".encode(), "sha256")
        masks = Masks(key)
        editor = RequestEditor(chosen, masks, Findings())

        def search() -> TestedText:
            edited = editor.text(text, place)
            found = [(match, chosen.fingerprint_of(match.value_in(text))) for match in chosen.find(text, place, masks)]
            return TestedText(found, edited, editor.error is not None, [])

        tested = compute_if(chosen.slow or len(text) > LARGE_TEXT, search)
        checked = chosen.answer_checks if place == "answer" else chosen.request_checks
        return self._ask_checkers(organization_id, chosen, checked, tested, place) if checked else tested

    def _ask_checkers(
        self, organization_id: str, rules: RuleSet, checked: Sequence[GuardrailRule], tested: TestedText, place: Place
    ) -> TestedText:
        """Return a tested text with what the checkers find in it, as the other rules leave it."""
        # Classifier models run for requests only, which pay for them.
        checked = [rule for rule in checked if rule.checker and rule.checker.kind.address != NO_ADDRESS]
        collector = CheckCollector(checked)
        collector.text(tested.text, place)
        results = self.checks.check(CheckScope(organization_id, new_hex()), collector.contents, remembered=False)
        found = CheckedRules(checked, rules, results.found)
        key = hmac.digest(self._secret, f"test\0{organization_id}".encode(), "sha256")
        editor = CheckedEditor(found, Masks(key), Findings())
        text = editor.text(tested.text, place)
        matches = [*tested.matches]
        matches += [
            (match, rules.fingerprint_of(match.value_in(tested.text))) for match in found.find(tested.text, place)
        ]
        failed = [(rule, results.failed[rule.checker]) for rule in checked if rule.checker in results.failed]
        waits = any(rule.checker and not rule.probation and rule.checker.on_failure == "block" for rule, _ in failed)
        return TestedText(matches, text, tested.blocked or editor.error is not None or waits, failed)

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
        masks = self.masks_of(context.caller, context.session)
        guard = context.guard = GuardedRequest(context, applied, request, masks, self.checks, self.record)
        large = applied.slow or request.large or request.requirements.prompt_bytes > LARGE_TEXT
        request.content()
        try:
            protected = guard.protect(request, large)
        except (ContentRefused, Unavailable):
            guard.record()
            raise
        except RecursionError:
            raise InvalidRequest("The body is nested too deeply to be checked by the guardrails.") from None
        self.keep(context, masks)
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
            kind = one.kind if one.kind in built_in() or one.kind in OWN_KINDS else CHECKER_KIND
            self._counters.add("guardrail_findings_total", (kind, one.place, one.action), one.values)
        for content in findings.not_checked():
            self._counters.add("guardrail_unread_total", (content,))
        if rows:
            try:
                self._journal.append(*rows)
            except Unavailable:
                return

    def _read(self, organization_id: str, version: int) -> tuple[tuple[str, str, GuardrailRule], ...]:
        return self._database.read(lambda: read_rules(organization_id))


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
