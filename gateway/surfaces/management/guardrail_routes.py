"""`/orgs/…/guardrails`: rules that check the texts of requests and answers, their exceptions, findings and a test."""

from functools import partial
from typing import Annotated, Any

from msgspec import Meta, structs

from gateway.accounts import guardrail_changes
from gateway.accounts.guardrail_changes import (
    SCOPES,
    FindingCount,
    GuardrailException,
    StoredGuardrail,
)
from gateway.clock import DAY_US, to_iso
from gateway.engine.guarding import MAX_TEST
from gateway.engine.guardrail_replay import RetainedRequests
from gateway.errors import InvalidRequest, NotFound
from gateway.guardrails.checkers import (
    MAX_TIMEOUT_MS,
    MIN_TIMEOUT_MS,
    NO_ADDRESS,
    ON_FAILURE,
    STREAMING,
    TIMEOUT_MS,
    Checker,
    OnFailure,
    checker_forms,
    read_settings,
)
from gateway.guardrails.rule_sets import ACTIONS, INPUTS, PLACES, UNREAD, GuardrailRule
from gateway.metering.payload_table import LogInfo
from gateway.metering.usage_table import raw_id
from gateway.surfaces.management.access_groups import in_organization
from gateway.surfaces.management.managed_operation import ListPageQuery, ManagedCall, managed
from gateway.surfaces.visitors.validation_schemas import (
    Body,
    NameList,
    OneOf,
    QueryInteger,
    StatusField,
    StrictBody,
    StrictBoolean,
    TextField,
    WholeNumber,
)
from gateway.surfaces.web.answer_structs import Answer, Time
from gateway.surfaces.web.http import Operation
from gateway.transport.addresses import MAX_URL_LENGTH, check_spelling, read_receiver

TAG = "Guardrails"
MAX_CREDENTIAL, MAX_SETTING = 4096, 2100
CHECKER_MEMBERS = frozenset(("address", "credential", "settings", "timeoutMs", "onFailure", "streaming"))
MAX_TERMS, MAX_PATTERNS, MAX_NAMES = 500, 50, 100
DEFAULT_DAYS = 30
REPLAY_DAYS, MAX_REPLAY_DAYS = 7, 90
DETECTORS = "Detectors or groups of them: secrets, personal, network, injection."
TERMS = "Own terms, found in any case and as whole words."
PATTERNS = "Own regular expressions in the syntax of RE2."
PLACE = "Where the rule looks; the default is everywhere except in answers."
MODELS = "Models to which the rule applies, with * for any characters; default: all."
SCOPE = "Whose requests the rule checks: those of the organization, a project or a key."
STATUS = "An inactive rule checks no requests."
ACTION = "What happens to a value. A masked value is restored in the answer."
UNREADABLE = "What happens to content that cannot be read, such as images; by default a rule that blocks refuses it."
PROBATION = "The rule acts on nothing, and records what it would have done."
CONTACT = "Contact for callers with questions about a refusal."
CHECKER = "An outside checker that looks for values instead of detectors, terms and patterns."
ADDRESS = "Address of the checker; a changed address needs the credential again."
CREDENTIAL = (
    "Credential of the checker; it is stored encrypted and never shown. Commands read it from standard input for -."
)
SETTINGS = "Settings of the checker, such as language=en."
TIMEOUT = f"Milliseconds that the checker may take; default: {TIMEOUT_MS}."
ON_FAIL = "What happens if the checker fails; by default block for block, mask and remove, and pass for warn and log."
STREAM = (
    "Streamed answers are held back until they were checked (window), or checked at their end, where none is blocked."
)
HIDDEN = "Tools whose arguments keep placeholders instead of values; * for all tools."


class NewGuardrail(StrictBody):
    name = TextField(1, 80, required=True)
    action = OneOf(ACTIONS, required=True, about=ACTION)
    scope = OneOf(SCOPES, load_default="organization", about=SCOPE)
    scopeId = TextField(1, 40, about="Id of the project or key; not needed for the organization.")
    detectors = NameList(MAX_NAMES, 80, load_default=list, about=DETECTORS, example=("payment_card",))
    terms = NameList(MAX_TERMS, 200, load_default=list, about=TERMS)
    patterns = NameList(MAX_PATTERNS, 500, load_default=list, about=PATTERNS)
    places = NameList(len(PLACES), 20, load_default=lambda: list(INPUTS), about=PLACE, example=("prompt", "answer"))
    models = NameList(MAX_NAMES, 255, load_default=list, about=MODELS)
    unread = OneOf(UNREAD, about=UNREADABLE)
    contact = TextField(0, 200, load_default="", about=CONTACT)
    probation = StrictBoolean(load_default=False, about=PROBATION)
    hiddenFrom = NameList(MAX_NAMES, 128, load_default=list, about=HIDDEN)
    checker = OneOf(tuple(checker_forms()), about=CHECKER)
    address = TextField(1, MAX_URL_LENGTH, about=ADDRESS, example="https://presidio.example.com")
    credential = TextField(1, MAX_CREDENTIAL, about=CREDENTIAL, example="sk-…")
    settings = NameList(20, MAX_SETTING, about=SETTINGS, example=("language=en",))
    timeoutMs = WholeNumber(MIN_TIMEOUT_MS, MAX_TIMEOUT_MS, about=TIMEOUT)
    onFailure = OneOf(ON_FAILURE, about=ON_FAIL)
    streaming = OneOf(STREAMING, about=STREAM)
    status = StatusField(load_default="active", about=STATUS)


class GuardrailChange(StrictBody):
    """Absent members stay unchanged."""

    name = TextField(1, 80, about="New name.")
    action = OneOf(ACTIONS, about=ACTION)
    detectors = NameList(MAX_NAMES, 80, about=DETECTORS, example=("payment_card",))
    terms = NameList(MAX_TERMS, 200, about=TERMS)
    patterns = NameList(MAX_PATTERNS, 500, about=PATTERNS)
    places = NameList(len(PLACES), 20, about=PLACE, example=("prompt", "answer"))
    models = NameList(MAX_NAMES, 255, about=MODELS)
    unread = OneOf(UNREAD, about=UNREADABLE)
    contact = TextField(0, 200, about=CONTACT)
    probation = StrictBoolean(about=PROBATION)
    hiddenFrom = NameList(MAX_NAMES, 128, about=HIDDEN)
    address = TextField(1, MAX_URL_LENGTH, about=ADDRESS, example="https://presidio.example.com")
    credential = TextField(1, MAX_CREDENTIAL, about=CREDENTIAL, example="sk-…")
    settings = NameList(20, MAX_SETTING, about=SETTINGS, example=("language=en",))
    timeoutMs = WholeNumber(MIN_TIMEOUT_MS, MAX_TIMEOUT_MS, about=TIMEOUT)
    onFailure = OneOf(ON_FAILURE, about=ON_FAIL)
    streaming = OneOf(STREAMING, about=STREAM)
    status = StatusField(about=STATUS)


class NewGuardrailException(StrictBody):
    value = TextField(1, 2000, about="The value that is no finding; only its keyed hash is stored.")
    fingerprint = TextField(
        32, 32, about="Instead of the value: the fingerprint of an example of a replay.", example="0" * 32
    )
    note = TextField(0, 200, load_default="", about="Why it is none.")


class GuardrailTest(StrictBody):
    text = TextField(1, MAX_TEST, required=True, about="The text to check; it is not stored.")
    place = OneOf(PLACES, load_default="prompt", about="Where the text would be.")


class FindingsQuery(Body):
    days = QueryInteger(1, 366, about=f"Of how many days; default: {DEFAULT_DAYS}.")


class ReplayBody(StrictBody):
    days = WholeNumber(1, MAX_REPLAY_DAYS, load_default=REPLAY_DAYS, about=f"Of how many days; default: {REPLAY_DAYS}.")


class GuardrailExceptionAnswer(Answer):
    fingerprint: str
    note: str
    added_at: Time


class GuardrailCheckerAnswer(Answer):
    """The outside checker of a rule, without its credential. `settings` are those that were given."""

    form: Annotated[str, Meta(examples=["presidio"])]
    address: Annotated[str, Meta(examples=["https://presidio.example.com"])]
    settings: Annotated[list[str], Meta(examples=[["language=en"]])]
    timeout_ms: Annotated[int, Meta(examples=[3000])]
    on_failure: Annotated[str, Meta(examples=["block"])]
    streaming: Annotated[str, Meta(examples=["window"])]
    has_credential: bool


class GuardrailAnswer(Answer):
    columns = ("id", "name", "action", "status", "probation", "scope", "scope_id")
    id: str
    organization_id: str
    scope: str
    scope_id: str
    name: str
    action: str
    detectors: list[str]
    terms: list[str]
    patterns: list[str]
    places: list[str]
    models: list[str]
    unread: str
    contact: str
    probation: bool
    hidden_from: list[str]
    checker: GuardrailCheckerAnswer | None
    status: str
    exceptions: list[GuardrailExceptionAnswer]
    created_at: Time


class TestedFindingAnswer(Answer):
    """A value that a rule found: characters `start` to `end` of the text. `fingerprint` names it in an exception."""

    guardrail_id: str
    guardrail: str
    kind: str
    action: str
    probation: bool
    start: int
    end: int
    fingerprint: str

    def __str__(self) -> str:
        return f"{self.guardrail}: {self.kind} at {self.start}-{self.end} ({self.action})"


class FailedCheckAnswer(Answer):
    """A rule with an outside checker that failed, and the reason."""

    guardrail_id: str
    guardrail: Annotated[str, Meta(examples=["People"])]
    reason: Annotated[str, Meta(examples=["The checker did not answer in time."])]

    def __str__(self) -> str:
        return f"{self.guardrail}: {self.reason}"


class GuardrailTestAnswer(Answer):
    """`text` is what would be sent; null if the request would be blocked. Places of what outside checkers found are
    those in the text as the other rules leave it."""

    blocked: bool
    text: str | None
    findings: list[TestedFindingAnswer]
    failed: list[FailedCheckAnswer]


class GuardrailFindingAnswer(Answer):
    """The findings of a rule on one day: `values` in `requests`. `action` begins with "would" on probation."""

    columns = ("date", "guardrail_id", "kind", "place", "action", "requests", "values")
    date: Time
    guardrail_id: str
    kind: str
    place: str
    action: str
    requests: int
    values: int


class GuardrailFindingsAnswer(Answer):
    """The findings, the newest first. `complete` is false if there were more than are shown; ask for fewer days."""

    findings: list[GuardrailFindingAnswer]
    complete: bool


class ReplayCountAnswer(Answer):
    """`values` of one kind in one place, in `requests`."""

    kind: str
    place: str
    requests: int
    values: int


class ReplayExampleAnswer(Answer):
    """A value of which only the first and last character are shown, and the request that it was in. `fingerprint` names
    it in an exception."""

    log_id: str
    kind: str
    place: str
    masked: str
    fingerprint: str


class ReplayAnswer(Answer):
    """`found` of `requests` have a finding. `unread` have a body that is no JSON. `complete` is false if there were
    more than are read at once; the newest were read."""

    requests: int
    found: int
    unread: int
    complete: bool
    counts: list[ReplayCountAnswer]
    examples: list[ReplayExampleAnswer]


def list_guardrails(call: ManagedCall[str]) -> list[GuardrailAnswer]:
    """The rules of the organization, of its projects and keys, the oldest first."""
    return [
        _show(rule) for rule in call.page.read(partial(guardrail_changes.list_guardrails, call.database, call.subject))
    ]


def create(call: ManagedCall[str]) -> GuardrailAnswer:
    """Add a rule to the organization, a project or a key. It applies to the next request."""
    fields = call.fields
    checker = _new_checker(call) if "checker" in fields else None
    if checker is None:
        _refuse_members(fields)
    rule = GuardrailRule("", fields["name"], fields["action"], checker=checker, **_members(fields))
    scope_id = fields.get("scopeId", "") or (call.subject if fields["scope"] == "organization" else "")
    place = (call.subject, fields["scope"], scope_id)
    active = fields["status"] == "active"
    return _show(guardrail_changes.add_guardrail(*call.stores, *place, rule, active=active, actor=call.actor))


def update(call: ManagedCall[str]) -> GuardrailAnswer:
    """Change a rule. It applies to the next request."""
    fields = call.fields
    changes = _members(fields) | {name: fields[name] for name in ("name", "action") if name in fields}
    if not CHECKER_MEMBERS.isdisjoint(fields):
        changes["checker"] = partial(_changed_checker, call)
    active = fields["status"] == "active" if "status" in fields else None
    rule_id = call.params["guardrail_id"]
    return _show(
        guardrail_changes.change_guardrail(*call.stores, call.subject, rule_id, changes, active, actor=call.actor)
    )


def delete(call: ManagedCall[str]) -> None:
    """Delete a rule. Its findings stay until they expire."""
    guardrail_changes.remove_guardrail(*call.stores, call.subject, call.params["guardrail_id"], actor=call.actor)


def add_exception(call: ManagedCall[str]) -> GuardrailAnswer:
    """Let a value be no finding of the rule. Only a keyed hash of the value is stored."""
    given = [name for name in ("value", "fingerprint") if name in call.fields]
    if len(given) != 1:
        raise InvalidRequest("Give the value or its fingerprint.", param="value")
    fingerprint = call.fields.get("fingerprint", "")
    if given == ["value"]:
        fingerprint = call.services.engine.guarding.fingerprint_of(call.subject, call.fields["value"])
    elif not set(fingerprint) <= set("0123456789abcdef"):
        raise InvalidRequest("A fingerprint has 32 hexadecimal digits.", param="fingerprint")
    note = call.fields["note"]

    def change(before: tuple[GuardrailException, ...], now: int) -> tuple[GuardrailException, ...]:
        others = tuple(entry for entry in before if entry.fingerprint != fingerprint)
        return (*others, GuardrailException(fingerprint, note, now))

    return _change_exceptions(call, change)


def remove_exception(call: ManagedCall[str]) -> GuardrailAnswer:
    """Make a value a finding again."""
    fingerprint = call.params["fingerprint"]

    def change(before: tuple[GuardrailException, ...], now: int) -> tuple[GuardrailException, ...]:
        others = tuple(entry for entry in before if entry.fingerprint != fingerprint)
        if len(others) == len(before):
            raise NotFound(f"The guardrail has no exception {fingerprint}.")
        return others

    return _change_exceptions(call, change)


def check_text(call: ManagedCall[str]) -> GuardrailTestAnswer:
    """Show what the rules of the organization would do with a text, also those that are inactive. Nothing is stored or
    counted; only outside checkers get the text."""
    stored = guardrail_changes.list_guardrails(call.database, call.subject)
    tested = call.services.engine.guarding.test(
        call.subject, tuple(entry.rule for entry in stored), call.fields["text"], call.fields["place"]
    )
    findings = [
        TestedFindingAnswer(
            match.rule.id,
            match.rule.name,
            match.detector.name,
            match.rule.action,
            match.rule.probation,
            match.start,
            match.end,
            fingerprint,
        )
        for match, fingerprint in tested.matches
    ]
    failed = [FailedCheckAnswer(rule.id, rule.name, reason) for rule, reason in tested.failed]
    return GuardrailTestAnswer(tested.blocked, None if tested.blocked else tested.text, findings, failed)


def list_findings(call: ManagedCall[str]) -> GuardrailFindingsAnswer:
    """Count the findings of the rules by day, rule, kind, place and action, without values."""
    days = call.fields.get("days", DEFAULT_DAYS)
    counts, complete = guardrail_changes.count_findings(call.database, call.subject, days)
    return GuardrailFindingsAnswer([_show_count(count) for count in counts], complete)


def replay(call: ManagedCall[str]) -> ReplayAnswer:
    """Show what a rule would have found in the retained requests of the latest days, also while it is inactive. Nothing
    is changed or counted."""
    call.visitor.permitted(call.subject, "logs:read")
    stored = guardrail_changes.find_guardrail(call.database, call.subject, call.params["guardrail_id"])
    if stored.rule.checker is not None:
        raise InvalidRequest("A guardrail with a checker cannot be replayed: put it on probation instead.")
    rules = call.services.engine.guarding.rule_set(call.subject, (stored.rule,))
    places = {"organization": "organization", "project": "project", "key": "api_key"}
    scope_id = raw_id(stored.scope_id)

    def applies(info: LogInfo) -> bool:
        names = (info.asked, info.served, *info.served.split("/", 1))
        return getattr(info, places[stored.scope]) == scope_id and stored.rule.applies_to(names)

    projects = [raw_id(project_id) for project_id in guardrail_changes.projects_of(call.database, call.subject)]
    retained = RetainedRequests(call.database, call.services.store.vault)
    done = retained.replay(projects, rules, call.fields["days"], applies)
    return ReplayAnswer(
        done.requests,
        done.found,
        done.unread,
        done.complete,
        [ReplayCountAnswer(one.kind, one.place, one.requests, one.values) for one in done.counts.values()],
        [
            ReplayExampleAnswer(one.request_id, one.kind, one.place, one.masked, one.fingerprint)
            for one in done.examples
        ],
    )


def _change_exceptions(call: ManagedCall[str], change: Any) -> GuardrailAnswer:
    rule_id = call.params["guardrail_id"]
    return _show(guardrail_changes.change_exceptions(*call.stores, call.subject, rule_id, change, actor=call.actor))


def _members(fields: dict[str, Any]) -> dict[str, Any]:
    """Return the members of a rule, besides name and action, that a request sets."""
    names = ("detectors", "terms", "patterns", "places", "models")
    found: dict[str, Any] = {name: tuple(dict.fromkeys(fields[name])) for name in names if name in fields}
    if "hiddenFrom" in fields:
        found["hidden_from"] = tuple(dict.fromkeys(fields["hiddenFrom"]))
    unknown = [place for place in found.get("places", ()) if place not in PLACES]
    if unknown:
        raise InvalidRequest(f"Unknown place {unknown[0]!r}; known: {', '.join(PLACES)}.", param="places")
    return found | {name: fields[name] for name in ("unread", "contact", "probation") if name in fields}


def _new_checker(call: ManagedCall[str]) -> Checker:
    """Return the checker of a new rule."""
    fields = call.fields
    form = checker_forms()[fields["checker"]]
    default: OnFailure = "pass" if fields["action"] in ("warn", "log") else "block"
    known = Checker(form.name, "" if form.address == NO_ADDRESS else form.address, on_failure=default)
    return _with_members(call, known)


def _changed_checker(call: ManagedCall[str], before: Checker | None) -> Checker:
    """Return the checker of a rule after a change."""
    if before is None:
        _refuse_members(call.fields)
        raise InvalidRequest("The guardrail has no checker; add another guardrail with one.", param="checker")
    after = _with_members(call, before)
    if before.sealed and after.address != before.address and "credential" not in call.fields:
        raise InvalidRequest("Give the credential again with a changed address.", param="credential")
    return after


def _refuse_members(fields: dict[str, Any]) -> None:
    """InvalidRequest for members of a checker without one."""
    given = [name for name in sorted(CHECKER_MEMBERS) if name in fields]
    if given:
        raise InvalidRequest(f"{given[0]} belongs to a checker, and there is none.", param=given[0])


def _with_members(call: ManagedCall[str], checker: Checker) -> Checker:
    """Return a checker with the members that a request sets."""
    fields = call.fields
    form = checker.kind
    changes: dict[str, Any] = {}
    if "settings" in fields or not checker.settings:
        changes["settings"] = read_settings(form, fields.get("settings", ()))
    if "address" in fields:
        if form.address == NO_ADDRESS:
            raise InvalidRequest(f"A {form.title} has no address.", param="address")
        changes["address"] = read_receiver(fields["address"], "address")
        if not call.services.settings.security.allow_private_upstreams:
            check_spelling(changes["address"], "address")
    if "credential" in fields:
        credential = fields["credential"].strip()
        if form.credential == "none" or not credential.isascii() or not credential.isprintable():
            raise InvalidRequest("A credential is one line of visible ASCII characters.", param="credential")
        changes["sealed"] = call.services.store.vault.seal(credential)
    names = {"timeoutMs": "timeout_ms", "onFailure": "on_failure", "streaming": "streaming"}
    changes |= {member: fields[name] for name, member in names.items() if name in fields}
    return structs.replace(checker, **changes)


def _show_checker(checker: Checker) -> GuardrailCheckerAnswer:
    settings = [f"{name}={value}" for name, value in checker.settings]
    how = (checker.timeout_ms, checker.on_failure, checker.streaming, bool(checker.sealed))
    return GuardrailCheckerAnswer(checker.form, checker.address, settings, *how)


def _show(stored: StoredGuardrail) -> GuardrailAnswer:
    rule = stored.rule
    return GuardrailAnswer(
        id=stored.id,
        organization_id=stored.organization_id,
        scope=stored.scope,
        scope_id=stored.scope_id,
        name=rule.name,
        action=rule.action,
        detectors=list(rule.detectors),
        terms=list(rule.terms),
        patterns=list(rule.patterns),
        places=list(rule.places),
        models=list(rule.models),
        unread=rule.on_unread,
        contact=rule.contact,
        probation=rule.probation,
        hidden_from=list(rule.hidden_from),
        checker=_show_checker(rule.checker) if rule.checker is not None else None,
        status="active" if stored.active else "inactive",
        exceptions=[
            GuardrailExceptionAnswer(entry.fingerprint, entry.note, to_iso(entry.added_at_us))
            for entry in stored.exceptions
        ],
        created_at=to_iso(stored.created_at_us),
    )


def _show_count(count: FindingCount) -> GuardrailFindingAnswer:
    place = (count.rule_id, count.kind, count.place, count.action)
    return GuardrailFindingAnswer(to_iso(count.day * DAY_US), *place, count.requests, count.values)


RULES = "/orgs/<organization_id>/guardrails"
RULE = f"{RULES}/<guardrail_id>"
READ = in_organization("rules:read")
WRITE = in_organization("rules:write")
WHAT = "--detector=detectors --term=terms --pattern=patterns --place=places --model=models"
HOW = "--unread=unread --contact=contact --probation=probation --hidden-from=hiddenFrom --status=status"
ASKED = ("--address=address --credential=credential --setting=settings --timeout-ms=timeoutMs --on-failure=onFailure "
         "--streaming=streaming")  # fmt: skip

OPERATIONS: tuple[Operation, ...] = (
    managed("GET", RULES, list_guardrails, "List guardrails", tag=TAG, who=READ, scope="rules:read",
            query=ListPageQuery, inside="guardrails", commands=("guardrails list",)),
    managed("POST", RULES, create, "Add a guardrail", tag=TAG, who=WRITE, scope="rules:write", request=NewGuardrail,
            inside="guardrail", success=201, audit="guardrail.create",
            commands=(f"guardrails create <name> <action> --scope=scope --scope-id=scopeId {WHAT} {HOW} "
                      f"--checker=checker {ASKED} -> id",)),
    managed("POST", f"{RULES}/test", check_text, "Test guardrails with a text", tag=TAG, who=READ, scope="rules:read",
            request=GuardrailTest, inside="test", commands=("guardrails test <text> --place=place",)),
    managed("GET", f"{RULES}/findings", list_findings, "List findings of guardrails", tag=TAG, who=READ,
            scope="rules:read", query=FindingsQuery,
            commands=("guardrails findings --days=days .findings",)),
    managed("PATCH", RULE, update, "Change a guardrail", tag=TAG, who=WRITE, scope="rules:write",
            request=GuardrailChange, inside="guardrail", audit="guardrail.update",
            commands=(f"guardrails set <guardrail_id> --name=name --action=action {WHAT} {HOW} {ASKED}",)),
    managed("DELETE", RULE, delete, "Delete a guardrail", tag=TAG, who=WRITE, scope="rules:write",
            message="Guardrail deleted.", audit="guardrail.delete", commands=("guardrails delete <guardrail_id>",)),
    managed("POST", f"{RULE}/replay", replay, "Replay a guardrail over retained requests", tag=TAG, who=WRITE,
            scope="rules:write", request=ReplayBody, inside="replay",
            commands=("guardrails replay <guardrail_id> --days=days",)),
    managed("POST", f"{RULE}/exceptions", add_exception, "Add an exception to a guardrail", tag=TAG, who=WRITE,
            scope="rules:write", request=NewGuardrailException, inside="guardrail", success=201,
            audit="guardrail.update",
            commands=("guardrails except <guardrail_id> <value?> --fingerprint=fingerprint --note=note",)),
    managed("DELETE", f"{RULE}/exceptions/<fingerprint>", remove_exception, "Remove an exception of a guardrail",
            tag=TAG, who=WRITE, scope="rules:write", inside="guardrail", audit="guardrail.update",
            commands=("guardrails unexcept <guardrail_id> <fingerprint>",)),
)  # fmt: skip
