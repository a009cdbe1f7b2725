"""Checks of texts by outside checkers: known texts are not sent again, calls are bounded, and failures are reported."""

from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple
from urllib.parse import urlsplit

from gateway.billing.context import RequestContext
from gateway.callers.vault import Vault
from gateway.clock import Clock
from gateway.configuration.settings import MANAGE
from gateway.errors import GatewayError, Overloaded, UpstreamFailed
from gateway.guardrails.checked_texts import CheckCollector, CheckedRules, Content, Role
from gateway.guardrails.checkers import Checker, FoundValue, check_failed
from gateway.guardrails.guarded_texts import Findings
from gateway.guardrails.rule_sets import GuardrailRule, RuleSet
from gateway.metering.counters import Counters
from gateway.providers.checker_calls import CheckCall, CheckedPiece, CheckRequest, cut, place_found
from gateway.providers.checker_forms import FORMS
from gateway.runtime.fair_threads import FairSlots, QueueFull
from gateway.runtime.state_changes import INFO, WARNING, StateChange, StateLog
from gateway.runtime.threads import Job, compute_if, give_way
from gateway.transport import Transport

MOST_TEXT = 1_000_000  # characters of new text that a checker reads of one request
MOST_FILES = 20_000_000  # characters of files in base64, of the same
MOST_CALLS = 200
PARALLEL = 8  # calls for one request
CALLS, CALLS_EACH = 64, 24  # of a worker, and of an organization
MOST_WAITING, MOST_WAITING_EACH = 500, 150  # the same for those that wait
MOST_ANSWER = 1 << 20  # bytes
LARGE = 1 << 16
STEP = 256  # contents that are looked up, or whose findings are noted, before other requests have a turn
KEPT = 20_000  # contents with findings that a worker remembers, by digest
KEPT_S = 24 * 3600.0
KEPT_FINDINGS = 100  # of one content; more are not remembered
FAILURES = 3  # in succession that are reported
MOST_FAILING = 10_000
FAILING, BACK = "checker.failing", "checker.back"
REMEDY = (
    f"test it with {MANAGE} guardrails test, or change what happens then: {MANAGE} guardrails set ID --on-failure pass"
)
CHECKED, KNOWN_BEFORE, FAILED = "checked", "remembered", "failed"

# Sends pieces to a classifier model; returns its findings in each.
Classify = Callable[[RequestContext, Checker, Sequence[CheckedPiece], float], list[list[FoundValue]]]
# A content that is known: equal settings may name different checkers in two organizations, such as a custom model.
KnownPlace = tuple[str, Checker, bytes]  # the id of the organization, and the digest of the content
ContentsByChecker = Mapping[Checker, Mapping[tuple[Role, str], Content]]


class CheckScope(NamedTuple):
    """The scope of a check: an organization and the id of a request, with its context if it has one."""

    organization_id: str
    ident: str
    context: RequestContext | None = None


class CheckResults(NamedTuple):
    """The findings by checker, role and text, and the errors of checkers that failed."""

    found: dict[tuple[Checker, Role, str], tuple[FoundValue, ...]]
    failed: dict[Checker, str]


class ContentChecks:
    """Calls the checkers of rules. Findings of a content are remembered for its organization, so that the earlier turns
    of a session are not checked again. `classify` calls classifier models; it is set when the engine is complete."""

    def __init__(self, transport: Transport, vault: Vault, clock: Clock, counters: Counters, states: StateLog) -> None:
        self._states = states
        self._failures: OrderedDict[str, int] = OrderedDict()  # in succession, by checker
        self._transport = transport
        self._vault = vault
        self._clock = clock
        self._counters = counters
        self._known: OrderedDict[KnownPlace, tuple[float, tuple[FoundValue, ...]]] = OrderedDict()
        self._slots = FairSlots(CALLS, CALLS_EACH, MOST_WAITING, MOST_WAITING_EACH)
        self.classify: Classify | None = None

    def check(self, scope: CheckScope, contents_by_checker: ContentsByChecker, remembered: bool = True) -> CheckResults:
        """Return the findings of the checkers in their contents. Never raises; a checker that fails is in `failed`.
        `remembered`: contents are looked up among those that are known, and remembered."""
        results = CheckResults({}, {})
        jobs = [
            (checker, Job(self._check_contents, scope, checker, list(contents.values()), remembered))
            for checker, contents in contents_by_checker.items()
        ]
        for checker, job in jobs:
            try:
                results.found.update(job.result())
            except GatewayError as error:
                self._counters.add("guardrail_checks_total", (checker.form, FAILED))
                results.failed[checker] = error.message
                self._report_failure(scope.organization_id, checker, error.message)
            else:
                self._report_success(scope.organization_id, checker)
        return results

    def _report_failure(self, organization_id: str, checker: Checker, reason: str) -> None:
        """Report a checker that failed several times in succession to operators and its organization."""
        subject, facts = _subject_of(organization_id, checker)
        count = self._failures[subject] = self._failures.get(subject, 0) + 1
        while len(self._failures) > MOST_FAILING:
            self._failures.popitem(last=False)
        if count >= FAILURES:
            message = f"{checker.kind.title} failed {count} times in succession: {reason}"
            self._states.fire(StateChange(FAILING, subject, message, WARNING, REMEDY, facts))

    def _report_success(self, organization_id: str, checker: Checker) -> None:
        if not self._failures:
            return
        subject, facts = _subject_of(organization_id, checker)
        if self._failures.pop(subject, 0):
            self._states.resolve(StateChange(BACK, subject, f"{checker.kind.title} answers again", INFO, facts=facts))

    def judge(
        self,
        context: RequestContext,
        rules: Sequence[GuardrailRule],
        all_rules: RuleSet,
        collector: CheckCollector,
        findings: Findings,
        answer: bool,
        remembered: bool = True,
        late: bool = False,
    ) -> CheckedRules:
        """Return the findings of checkers in the collected contents; `findings` gets those that failed. Unavailable
        where a rule blocks when its checker fails, unless it is too `late` for that."""
        scope = CheckScope(context.caller.organization_id, context.request_id, context)
        results = self.check(scope, collector.contents, remembered)
        for rule in rules:
            if rule.checker is None or rule.checker not in results.failed:
                continue
            findings.add_unread("answer" if answer else "request", f"checker {rule.checker.form}")
            if rule.probation or rule.checker.on_failure == "pass":
                continue
            if rule.checker.on_failure == "block" and not late:
                raise check_failed(rule)
            findings.failed.add((rule, answer))
        return CheckedRules(rules, all_rules, results.found)

    def _check_contents(
        self, scope: CheckScope, checker: Checker, contents: list[Content], remembered: bool
    ) -> dict[tuple[Checker, Role, str], tuple[FoundValue, ...]]:
        large = len(contents) > STEP or sum(len(content.text) for content in contents) > LARGE
        found = self._find_known(scope.organization_id, checker, contents, large) if remembered else {}
        unknown = [content for content in contents if (checker, content.role, content.text) not in found]
        if not unknown:
            return found
        _check_size(unknown)
        pieces = compute_if(large, cut, checker.kind, unknown)
        verdicts = self._judge(scope, checker, pieces, large)
        values: list[list[FoundValue]] = [[] for _ in unknown]
        unclear: set[int] = set()  # contents of a piece with a finding that may concern another one
        for piece, verdict in zip(pieces, verdicts, strict=True):
            for number, value in place_found(piece, verdict):
                values[number].append(value)
            if len(piece.parts) > 1 and any(value.end <= value.start for value in verdict):
                unclear |= {part.content for part in piece.parts}
        for number, content in enumerate(_in_turns(unknown)):
            judged = found[checker, content.role, content.text] = tuple(values[number])
            if remembered and number not in unclear and len(judged) <= KEPT_FINDINGS:
                self._remember((scope.organization_id, checker, content.digest), judged)
        self._counters.add("guardrail_checks_total", (checker.form, CHECKED), len(unknown))
        return found

    def _find_known(
        self, organization_id: str, checker: Checker, contents: list[Content], large: bool
    ) -> dict[tuple[Checker, Role, str], tuple[FoundValue, ...]]:
        found = {}
        for content, digest in zip(_in_turns(contents), compute_if(large, _digests_of, contents), strict=True):
            known = self._recall((organization_id, checker, digest))
            if known is not None:
                found[checker, content.role, content.text] = known
        if found:
            self._counters.add("guardrail_checks_total", (checker.form, KNOWN_BEFORE), len(found))
        return found

    def _judge(
        self, scope: CheckScope, checker: Checker, pieces: list[CheckedPiece], large: bool
    ) -> list[list[FoundValue]]:
        """Return the findings in each piece. GatewayError."""
        end = self._clock.monotonic() + checker.timeout_ms / 1000
        form = FORMS.get(checker.form)
        if form is None:
            if self.classify is None or scope.context is None:
                raise UpstreamFailed("Classifier models check requests only, because a request pays for the call.")
            return self.classify(scope.context, checker, pieces, end)
        credential = self._vault.open(checker.sealed)
        request = CheckRequest(checker, credential, pieces, scope.ident, self._clock.now_us())
        calls = compute_if(large, form, request)
        sent = {id(piece) for call in calls for piece in call.pieces}
        if len(calls) > MOST_CALLS or any(id(piece) not in sent for piece in pieces):
            raise UpstreamFailed("The checker would need too many calls, or has nothing to look for here.")
        found: dict[int, list[FoundValue]] = {id(piece): [] for piece in pieces}
        for call, verdicts in zip(calls, self._call_all(scope, calls, end), strict=True):
            for piece, verdict in zip(call.pieces, verdicts, strict=True):
                found[id(piece)] += verdict
        return [found[id(piece)] for piece in pieces]

    def _call_all(self, scope: CheckScope, calls: list[CheckCall], end: float) -> list[list[list[FoundValue]]]:
        verdicts: list[list[list[FoundValue]]] = []
        running: list[Job[list[list[FoundValue]]]] = []
        try:
            for call in calls:
                running.append(Job(self._call, scope.organization_id, call, end))
                if len(running) - len(verdicts) >= PARALLEL:
                    verdicts.append(self._result(running[len(verdicts)], end))
            while len(verdicts) < len(running):
                verdicts.append(self._result(running[len(verdicts)], end))
        finally:
            for job in running[len(verdicts) :]:
                job.stop()
        return verdicts

    def _result(self, job: Job[list[list[FoundValue]]], end: float) -> list[list[FoundValue]]:
        try:
            return job.result(max(0.001, end - self._clock.monotonic()))
        except TimeoutError:
            raise UpstreamFailed("The checker did not answer in time.") from None

    def _call(self, organization_id: str, call: CheckCall, end: float) -> list[list[FoundValue]]:
        try:
            with self._slots.turn(organization_id):
                answer = self._transport.request(
                    "POST",
                    call.url,
                    call.headers,
                    call.body,
                    timeout_s=max(0.001, end - self._clock.monotonic()),
                    max_bytes=MOST_ANSWER,
                )
        except QueueFull:
            raise Overloaded("Too many calls of checkers are waiting.") from None
        if answer.status != 200:
            raise UpstreamFailed(f"The checker answered {answer.status}.", upstream_status=answer.status)
        return compute_if(len(answer.body) > LARGE, call.verdicts, answer.body)

    def _recall(self, key: KnownPlace) -> tuple[FoundValue, ...] | None:
        until, found = self._known.get(key, (0.0, ()))
        if until < self._clock.monotonic():
            self._known.pop(key, None)
            return None
        self._known.move_to_end(key)
        return found

    def _remember(self, key: KnownPlace, found: tuple[FoundValue, ...]) -> None:
        self._known[key] = (self._clock.monotonic() + KEPT_S, found)
        while len(self._known) > KEPT:
            self._known.popitem(last=False)


def _subject_of(organization_id: str, checker: Checker) -> tuple[str, dict[str, object]]:
    """Return the name of a checker in reports, and its facts."""
    host = urlsplit(checker.address).hostname or dict(checker.settings).get("model", "")
    facts: dict[str, object] = {"organization": organization_id, "checker": checker.form, "host": host}
    return f"checker {checker.form} {host} of {organization_id}", facts


def _in_turns(contents: Iterable[Content]) -> Iterator[Content]:
    """Yield contents, of which a request may have many thousands, and give other requests a turn in between."""
    for number, content in enumerate(contents, 1):
        if number % STEP == 0:
            give_way()
        yield content


def _digests_of(contents: Sequence[Content]) -> list[bytes]:
    return [content.digest for content in contents]


def _check_size(contents: Sequence[Content]) -> None:
    """UpstreamFailed for more than a checker reads of one request."""
    texts = sum(len(content.text) for content in contents if not content.media_type)
    files = sum(len(content.text) for content in contents if content.media_type)
    if texts > MOST_TEXT or files > MOST_FILES:
        raise UpstreamFailed("The request has more text than a checker reads at once.")
