"""The keeping of access rules: add, list, switch, remove."""

import json
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import peewee

from gateway import ids
from gateway.accounts import audit
from gateway.accounts.changes import MAX_RULES, check_names, check_quota, commit
from gateway.accounts.known_names import KnownNames
from gateway.callers.access import SCOPE_NAMES
from gateway.callers.models import AccessRule, ApiKey, Member, Organization, Project, Scope, ServiceAccount, Team
from gateway.callers.rule_values import ADDRESS_RULES, SCOPES, RuleInfo, read_value
from gateway.control.version import Control
from gateway.errors import InvalidRequest, NotFound
from gateway.store.database import WHOLE, Database, ListSlice

KEYS_OF_QUERY = 500  # of one statement


def add_rule(
    database: Database,
    control: Control,
    scope: Scope,
    scope_id: str,
    type: str,
    value: Mapping[str, Any],
    *,
    actor: str,
    active: bool = True,
    known: KnownNames | None = None,
) -> RuleInfo:
    """Add a rule to an organization, team, member, key or service account; `known` are the names that it may allow
    (None: any). InvalidRequest, NotFound (no such `scope_id`)."""
    for member, names in value.items():
        if isinstance(names, list):
            check_names(names, f"ruleValue.{member}")
    read_value(type, value)
    if known is not None:
        known.check_rule(type, value)
    if scope not in SCOPES:
        raise InvalidRequest(f"Unknown scope {scope!r}; known: {', '.join(SCOPES)}.", param="scope")
    if scope == "service_account" and type not in ADDRESS_RULES:
        raise InvalidRequest(f"A service account takes rules of {' and '.join(ADDRESS_RULES)} only.", param="ruleType")
    rule_id = ids.new("rule")

    def work(now: int) -> RuleInfo:
        info = RuleInfo(rule_id, organization_of(scope, scope_id), scope, scope_id, type, dict(value), active, now)
        insert_rule(info, actor=actor, now=now)
        return info

    return commit(database, control, work)


def insert_rule(info: RuleInfo, *, actor: str, now: int) -> None:
    """The part of `add_rule` that runs within a transaction."""
    _check_quota(info)
    AccessRule.insert(
        id=info.id,
        organization=info.organization_id,
        scope=info.scope,
        scope_id=info.scope_id,
        type=info.type,
        value=json.dumps(info.value, sort_keys=True),
        active=info.active,
        created_at=now,
        updated_at=now,
    ).execute()
    _audit("access_rule.create", info, actor, now)


def _check_quota(new: RuleInfo) -> None:
    """Every request of a place walks through all that its rules name."""
    rules = AccessRule.select().where(AccessRule.scope == new.scope, AccessRule.scope_id == new.scope_id)
    check_quota(rules, MAX_RULES, f"rules at one {new.scope}")
    named = sum(len(names) for row in rules for names in json.loads(row.value).values() if isinstance(names, list))
    for member, names in new.value.items():
        if isinstance(names, list):
            check_names(names, f"ruleValue.{member}", named)


def list_rules(
    database: Database, organization_id: str, scope: str = "", scope_id: str = "", part: ListSlice = WHOLE
) -> list[RuleInfo]:
    """The organization's rules, oldest first; of one scope or one place in it when given."""

    def read() -> list[RuleInfo]:
        query = AccessRule.select().where(AccessRule.organization == organization_id).order_by(AccessRule.id)
        if scope:
            query = query.where(AccessRule.scope == scope)
        if scope_id:
            query = query.where(AccessRule.scope_id == scope_id)
        return [info_of(row) for row in part.narrow(query, AccessRule.id)]

    return database.read(read)


def list_key_rules(database: Database, key_ids: Sequence[str]) -> list[RuleInfo]:
    """The rules of these keys, oldest first at each."""
    rules: list[RuleInfo] = []
    for start in range(0, len(key_ids), KEYS_OF_QUERY):
        some = list(key_ids[start : start + KEYS_OF_QUERY])
        query = AccessRule.select().where(AccessRule.scope == "key", AccessRule.scope_id.in_(some))
        rules += database.read(partial(_load_all, query.order_by(AccessRule.id)))
    return rules


def _load_all(query: "peewee.ModelSelect[AccessRule]") -> list[RuleInfo]:
    return [info_of(row) for row in query]


def set_rule_active(
    database: Database, control: Control, organization_id: str, rule_id: str, active: bool, *, actor: str
) -> RuleInfo:
    """Switch a rule on or off. NotFound unless it is the organization's."""

    def work(now: int) -> RuleInfo:
        _find(organization_id, rule_id)
        AccessRule.update(active=active, updated_at=now).where(AccessRule.id == rule_id).execute()
        info = _find(organization_id, rule_id)
        _audit("access_rule.update_status", info, actor, now)
        return info

    return commit(database, control, work)


def remove_rule(database: Database, control: Control, organization_id: str, rule_id: str, *, actor: str) -> None:
    """Delete a rule. NotFound unless it is the organization's."""

    def work(now: int) -> None:
        info = _find(organization_id, rule_id)
        AccessRule.delete().where(AccessRule.id == rule_id).execute()
        _audit("access_rule.delete", info, actor, now)

    commit(database, control, work)


def organization_of(scope: Scope, scope_id: str) -> str:
    """The id of the organization that the place belongs to; within a database read or write. NotFound."""
    queries: dict[str, peewee.ModelSelect[Any]] = {
        "organization": Organization.select(Organization.id).where(Organization.id == scope_id),
        "team": Team.select(Team.organization).where(Team.id == scope_id),
        "member": Member.select(Member.organization).where(Member.id == scope_id),
        "key": Project.select(Project.organization)
        .join(ApiKey)
        .where(ApiKey.id == scope_id, ApiKey.status != "deleted"),
        "service_account": ServiceAccount.select(ServiceAccount.organization).where(ServiceAccount.id == scope_id),
    }
    organization = queries[scope].tuples().first()
    if not organization:
        raise NotFound(f"There is no {SCOPE_NAMES[scope]} {scope_id}.")
    organization_id: str = organization[0]
    return organization_id


def _find(organization_id: str, rule_id: str) -> RuleInfo:
    row = AccessRule.get_or_none(AccessRule.id == rule_id, AccessRule.organization == organization_id)
    if row is None:
        raise NotFound(f"There is no access rule {rule_id} in this organization.")
    return info_of(row)


def _audit(action: str, info: RuleInfo, actor: str, now: int) -> None:
    detail = {"scope": info.scope, "scope_id": info.scope_id, "type": info.type, "value": info.value}
    audit.append(
        action,
        info.id,
        actor=actor,
        at_us=now,
        organization_id=info.organization_id,
        detail={**detail, "active": info.active},
    )


def info_of(row: AccessRule) -> RuleInfo:
    value = json.loads(row.value)
    return RuleInfo(row.id, row.organization_id, row.scope, row.scope_id, row.type, value, row.active, row.created_at)
