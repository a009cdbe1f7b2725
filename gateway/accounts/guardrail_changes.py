"""The rules of guardrails of organizations: add, list, change, remove, and the exceptions of each."""

import json
from collections.abc import Callable, Mapping
from typing import Any
from urllib.parse import urlsplit

import peewee
from msgspec import Struct, structs

from gateway import ids
from gateway.accounts import audit
from gateway.accounts.changes import check_quota, commit
from gateway.callers.guardrail_rows import content_of, rule_of
from gateway.callers.models import ApiKey, GuardrailFinding, GuardrailRow, Project
from gateway.clock import DAY_US
from gateway.control.version import Control
from gateway.errors import InvalidRequest, NotFound
from gateway.guardrails.checkers import NO_ADDRESS, Checker
from gateway.guardrails.rule_sets import CHANGES, GuardrailRule, detectors_of
from gateway.store.database import WHOLE, Database, ListSlice

SCOPES = ("organization", "project", "key")
MAX_GUARDRAILS = 100  # in force: without those of archived projects and their keys
MAX_STORED = 1000  # those of archived projects among them, which may be activated again
MAX_PATTERNS = 200  # regular expressions in all rules of an organization: each one takes memory
MAX_EXCEPTIONS = 500  # of one rule
MAX_COUNTS = 5000  # rows of a report of findings


class GuardrailException(Struct, frozen=True):
    """A value that is no finding of a rule, known by its keyed hash only."""

    fingerprint: str
    note: str = ""
    added_at_us: int = 0


class StoredGuardrail(Struct, frozen=True):
    """A rule with its place: `scope` is organization, project or key, `scope_id` the id there."""

    id: str
    organization_id: str
    scope: str
    scope_id: str
    rule: GuardrailRule
    active: bool
    exceptions: tuple[GuardrailException, ...]
    created_at_us: int


class FindingCount(Struct, frozen=True):
    """How often a rule found values of one kind in one place on one day (days since 1970)."""

    day: int
    rule_id: str
    kind: str
    place: str
    action: str
    requests: int
    values: int


def add_guardrail(
    database: Database,
    control: Control,
    organization_id: str,
    scope: str,
    scope_id: str,
    rule: GuardrailRule,
    *,
    active: bool,
    actor: str,
) -> StoredGuardrail:
    """Add a rule to an organization, a project or a key of it. InvalidRequest, NotFound."""
    check_rule(rule)
    new = structs.replace(rule, id=ids.new("guard"))

    def work(now: int) -> StoredGuardrail:
        _check_place(organization_id, scope, scope_id)
        _remove_of_deleted_keys(organization_id, actor, now)
        rows = GuardrailRow.select().where(GuardrailRow.organization == organization_id)
        check_quota(rows, MAX_STORED, "guardrails, those of archived projects among them")
        check_quota(rows.where(GuardrailRow.scope_id.not_in(_archived(organization_id))), MAX_GUARDRAILS, "guardrails")
        _check_patterns(organization_id, new)
        GuardrailRow.insert(
            id=new.id,
            organization=organization_id,
            scope=scope,
            scope_id=scope_id,
            name=new.name,
            action=new.action,
            content=content_of(new, []),
            probation=new.probation,
            active=active,
            checker_secret=new.checker.sealed if new.checker else "",
            created_at=now,
            updated_at=now,
        ).execute()
        stored = _find(organization_id, new.id)
        _audit("guardrail.create", stored, actor, now)
        return stored

    return commit(database, control, work)


def change_guardrail(
    database: Database,
    control: Control,
    organization_id: str,
    guardrail_id: str,
    changes: Mapping[str, Any],
    active: bool | None,
    *,
    actor: str,
) -> StoredGuardrail:
    """Change members of a rule; a change that can be called gets the member as it is. InvalidRequest, NotFound."""

    def work(now: int) -> StoredGuardrail:
        before = _find(organization_id, guardrail_id)
        rule = structs.replace(before.rule, **_made(changes, before.rule))
        check_rule(rule)
        _check_patterns(organization_id, rule)
        _write(rule, before.exceptions, now, before.active if active is None else active)
        after = _find(organization_id, guardrail_id)
        _audit("guardrail.update", after, actor, now)
        return after

    return commit(database, control, work)


def remove_guardrail(
    database: Database, control: Control, organization_id: str, guardrail_id: str, *, actor: str
) -> None:
    """Delete a rule. NotFound."""

    def work(now: int) -> None:
        before = _find(organization_id, guardrail_id)
        GuardrailRow.delete().where(GuardrailRow.id == guardrail_id).execute()
        _audit("guardrail.delete", before, actor, now)

    commit(database, control, work)


def change_exceptions(
    database: Database,
    control: Control,
    organization_id: str,
    guardrail_id: str,
    change: Callable[[tuple[GuardrailException, ...], int], tuple[GuardrailException, ...]],
    *,
    actor: str,
) -> StoredGuardrail:
    """Replace the exceptions of a rule by what `change` makes of them and the time. NotFound, InvalidRequest."""

    def work(now: int) -> StoredGuardrail:
        before = _find(organization_id, guardrail_id)
        exceptions = change(before.exceptions, now)
        if len(exceptions) > MAX_EXCEPTIONS:
            raise InvalidRequest(f"A guardrail has at most {MAX_EXCEPTIONS} exceptions.", code="too_many")
        _write(before.rule, exceptions, now, before.active)
        after = _find(organization_id, guardrail_id)
        _audit("guardrail.update", after, actor, now)
        return after

    return commit(database, control, work)


def list_guardrails(database: Database, organization_id: str, part: ListSlice = WHOLE) -> list[StoredGuardrail]:
    """Return the rules of an organization, the oldest first."""

    def read() -> list[StoredGuardrail]:
        query = GuardrailRow.select().where(GuardrailRow.organization == organization_id).order_by(GuardrailRow.id)
        return [_stored(row) for row in part.narrow(query, GuardrailRow.id)]

    return database.read(read)


def find_guardrail(database: Database, organization_id: str, guardrail_id: str) -> StoredGuardrail:
    """Return a rule of an organization. NotFound."""
    return database.read(lambda: _find(organization_id, guardrail_id))


def projects_of(database: Database, organization_id: str) -> list[str]:
    """Return the ids of the projects of an organization."""
    projects = Project.select(Project.id).where(Project.organization == organization_id)
    return database.read(lambda: [project.id for project in projects])


def count_findings(database: Database, organization_id: str, days: int) -> tuple[list[FindingCount], bool]:
    """Return what the rules of an organization found in the latest days, the newest first, and whether that is all of
    it: at most MAX_COUNTS rows are returned."""
    finding = GuardrailFinding
    day = (finding.at / DAY_US).cast("integer")

    def read() -> tuple[list[FindingCount], bool]:
        since = database.now_us() - days * DAY_US
        fields = (finding.rule, finding.kind, finding.place, finding.action)
        query = (
            finding.select(day.alias("day"), *fields, peewee.fn.COUNT(finding.request_id), peewee.fn.SUM(finding.count))
            .where(finding.organization == organization_id, finding.at >= since)
            .group_by(peewee.SQL("day"), *fields)
            .order_by(peewee.SQL("day").desc(), finding.rule, finding.kind, finding.place)
            .limit(MAX_COUNTS + 1)
        )
        rows: Any = query.tuples()
        counts = [FindingCount(*map(_plain, row)) for row in rows]
        return counts[:MAX_COUNTS], len(counts) <= MAX_COUNTS

    return database.read(read)


def check_rule(rule: GuardrailRule) -> None:
    """InvalidRequest unless the rule looks for something that can be found, somewhere."""
    detectors = detectors_of(rule)
    if rule.checker is not None:
        _check_checker(rule, rule.checker, bool(detectors))
    elif not detectors:
        raise InvalidRequest("A guardrail needs detectors, terms, patterns or a checker.", param="detectors")
    if not rule.places:
        raise InvalidRequest("A guardrail needs at least one place.", param="places")


def _check_checker(rule: GuardrailRule, checker: Checker, more: bool) -> None:
    """InvalidRequest for a checker that is not complete, or that cannot do what the rule says."""
    form = checker.kind
    if more:
        text = "A guardrail has either a checker or detectors, terms and patterns; add two guardrails."
        raise InvalidRequest(text, param="checker")
    if rule.action in CHANGES and not form.places:
        text = f"{form.title} does not say where in a text it found something: use block, warn or log."
        raise InvalidRequest(text, param="action")
    if not checker.address and form.address != NO_ADDRESS:
        raise InvalidRequest(f"A guardrail with {form.title} needs its address.", param="address")
    if form.credential == "required" and not checker.sealed:
        raise InvalidRequest(f"A guardrail with {form.title} needs a credential: {form.secret}.", param="credential")


def _made(changes: Mapping[str, Any], rule: GuardrailRule) -> dict[str, Any]:
    return {name: value(getattr(rule, name)) if callable(value) else value for name, value in changes.items()}


def _plain(value: Any) -> Any:
    """Return a sum of PostgreSQL, which is a Decimal, as an integer."""
    return value if isinstance(value, str) else int(value)


def _write(rule: GuardrailRule, exceptions: tuple[GuardrailException, ...], now: int, active: bool) -> None:
    GuardrailRow.update(
        name=rule.name,
        action=rule.action,
        content=content_of(rule, [structs.asdict(entry) for entry in exceptions]),
        probation=rule.probation,
        active=active,
        checker_secret=rule.checker.sealed if rule.checker else "",
        updated_at=now,
    ).where(GuardrailRow.id == rule.id).execute()


def _check_patterns(organization_id: str, rule: GuardrailRule) -> None:
    """InvalidRequest if the organization would have too many own patterns."""
    if not rule.patterns:
        return
    rows = GuardrailRow.select().where(GuardrailRow.organization == organization_id, GuardrailRow.id != rule.id)
    count = len(rule.patterns) + sum(len(rule_of(row).patterns) for row in rows)
    if count > MAX_PATTERNS:
        text = f"An organization has at most {MAX_PATTERNS} own patterns in all of its guardrails; this makes {count}."
        raise InvalidRequest(text, param="patterns", code="too_many")


def _check_place(organization_id: str, scope: str, scope_id: str) -> None:
    """NotFound unless the place is in the organization."""
    if scope == "organization":
        known = scope_id == organization_id
    elif scope == "project":
        known = Project.select().where(Project.id == scope_id, Project.organization == organization_id).exists()
    else:
        keys = ApiKey.select().join(Project).where(ApiKey.id == scope_id, Project.organization == organization_id)
        known = keys.where(ApiKey.status != "deleted").exists()
    if not known:
        raise NotFound(f"There is no {scope} {scope_id} in this organization.")


def _archived(organization_id: str) -> Any:
    """Return a query of the ids of an organization's archived projects and of their keys."""
    archived = (Project.organization == organization_id) & (Project.status == "archived")
    keys = ApiKey.select(ApiKey.id).join(Project).where(archived)
    return Project.select(Project.id).where(archived).union_all(keys)


def _remove_of_deleted_keys(organization_id: str, actor: str, now: int) -> None:
    """Delete the rules of keys that were deleted, which never come back."""
    keys = ApiKey.select(ApiKey.id).join(Project).where(Project.organization == organization_id)
    rows = GuardrailRow.select().where(
        GuardrailRow.organization == organization_id,
        GuardrailRow.scope == "key",
        GuardrailRow.scope_id.not_in(keys.where(ApiKey.status != "deleted")),
    )
    for row in rows.order_by(GuardrailRow.id):
        GuardrailRow.delete().where(GuardrailRow.id == row.id).execute()
        _audit("guardrail.delete", _stored(row), actor, now)


def _find(organization_id: str, guardrail_id: str) -> StoredGuardrail:
    row = GuardrailRow.get_or_none(GuardrailRow.id == guardrail_id, GuardrailRow.organization == organization_id)
    if row is None:
        raise NotFound(f"There is no guardrail {guardrail_id} in this organization.")
    return _stored(row)


def _stored(row: GuardrailRow) -> StoredGuardrail:
    entries = json.loads(row.content).get("exceptions", ())
    exceptions = tuple(GuardrailException(**entry) for entry in entries)
    place = (row.organization_id, row.scope, row.scope_id)
    return StoredGuardrail(row.id, *place, rule_of(row), row.active, exceptions, row.created_at)


def _audit(action: str, stored: StoredGuardrail, actor: str, now: int) -> None:
    rule = stored.rule
    detail = {
        **{"name": rule.name, "action": rule.action, "scope": stored.scope, "scope_id": stored.scope_id},
        **{"detectors": list(rule.detectors), "terms": len(rule.terms), "patterns": len(rule.patterns)},
        **{"places": list(rule.places), "models": list(rule.models), "unread": rule.on_unread},
        **{"probation": rule.probation, "active": stored.active, "exceptions": len(stored.exceptions)},
    }
    if rule.checker is not None:
        detail |= {"checker": rule.checker.form, "host": urlsplit(rule.checker.address).hostname or ""}
    audit.append(action, stored.id, actor=actor, at_us=now, organization_id=stored.organization_id, detail=detail)
